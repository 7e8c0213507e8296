"""Generated tables: their shapes, their public schemas, their dependence, and that a seed means the same rows."""

from __future__ import annotations

import datetime as dt
import tomllib
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy.stats import chi2_contingency
from scipy.stats.contingency import crosstab

from sklar.errors import DataError
from sklar.generate import SHAPES, binary, generate, hospital, schema_toml
from sklar.generate.visits import KEY, MOST, TABLES, VISIT, generate_visits
from sklar.generate.visits import hospital as clinic
from sklar.public.schema import Schema
from sklar.rows.encode import encode

UNLISTED = {"census": ("person_id",)}
NARROW = [shape for shape in SHAPES if not shape.startswith("syn")]


def table(shape: str, rows: int, seed: int = 0) -> pl.DataFrame:
    columns, frames = generate(shape, rows=rows, seed=seed)
    drawn = pl.concat(frames)
    assert drawn.schema == columns
    return drawn


def attributes(shape: str) -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = tomllib.loads(schema_toml(shape))["attributes"]
    return entries


def levels(entry: dict[str, Any]) -> int:
    """Levels counted from the TOML alone, not by Sklar's own schema."""
    listed = {"boolean": 2, "categorical": len(set(entry.get("values", ())))}
    binned = entry["bins"] if "bins" in entry else len(entry.get("edges", ())) - 1
    return listed.get(entry["type"], binned) + ("missing" in entry) + bool(entry.get("other"))


def cramers_v(shape: str, data: pl.DataFrame, a: str, b: str) -> float:
    """Cramer's V with the bias correction of Bergsma (2013): near 0 for independent columns of any size."""
    counts = crosstab(binned(shape, data, a), binned(shape, data, b)).count
    n, (rows, columns) = len(data), counts.shape
    phi = max(0.0, chi2_contingency(counts, correction=False).statistic / n - (rows - 1) * (columns - 1) / (n - 1))
    smaller = min(rows - (rows - 1) ** 2 / (n - 1), columns - (columns - 1) ** 2 / (n - 1)) - 1
    return float(np.sqrt(phi / smaller))


def binned(shape: str, data: pl.DataFrame, name: str) -> npt.NDArray[Any]:
    """A column as level numbers or texts."""
    entry, values = attributes(shape)[name], data[name]
    if "edges" not in entry:
        return np.array(values.to_list(), dtype=str)
    edges = [dt.date.fromisoformat(edge) if isinstance(edge, str) else edge for edge in entry["edges"]]
    kind = "datetime64[D]" if entry["type"] == "date" else float
    numbers = values.to_numpy().astype(kind).astype(float)
    bins: npt.NDArray[np.intp] = np.digitize(numbers, np.array(edges, dtype=kind).astype(float))
    return bins


@pytest.mark.parametrize(("shape", "rows", "n_attributes", "n_levels", "n_small"), [
    ("census", 30_000, 14, 119, 8), ("hospital", 10_000, 9, 1_201, 1), ("dss", 5_240_260, 27, 674, 10),
    ("census-linked", 1_000_000, 60, 561, 42), ("syn1", 5_240_260, 1_000, 2_000, 1_000),
    ("syn2", 5_240_260, 2_000, 4_000, 2_000),
])  # fmt: skip
def test_shapes_are_those_of_the_paper(shape: str, rows: int, n_attributes: int, n_levels: int, n_small: int) -> None:
    sizes = [levels(entry) for entry in attributes(shape).values()]
    assert (len(sizes), sum(sizes), sum(size < 10 for size in sizes)) == (n_attributes, n_levels, n_small)
    schema = Schema.from_toml(schema_toml(shape))
    assert (schema.name, schema.n_attributes, schema.n_levels) == (shape, n_attributes, n_levels)
    assert SHAPES[shape].rows == rows
    columns, frames = generate(shape, rows=10)
    assert next(frames).schema == columns
    assert tuple(columns.names()) == (*UNLISTED.get(shape, ()), *schema.names)
    # A random stream of its own.
    assert [each.table().stream for each in SHAPES.values()].count(SHAPES[shape].table().stream) == 1


@pytest.mark.parametrize("shape", NARROW)
def test_values_are_listed_and_of_the_stated_type(shape: str) -> None:
    kinds: dict[str, tuple[Any, ...]] = {"boolean": (pl.Boolean,), "integer": (pl.Int32,), "real": (pl.Float64,)}
    kinds |= {"date": (pl.Date,), "datetime": (pl.Datetime("ms"),), "categorical": (pl.String, pl.Categorical)}
    data = table(shape, 20_000)
    for name, entry in attributes(shape).items():
        assert data.schema[name] in kinds[entry["type"]], name
        assert (data[name].null_count() > 0) == ("missing" in entry), name
        if entry["type"] == "categorical":
            found = set(data[name].drop_nulls().unique().to_list())
            unlisted = found - set(entry["values"])
            assert bool(unlisted) == bool(entry.get("other")), name
            assert found >= set(entry["values"]) or shape == "dss", name


def test_dss_numbers_reach_every_bin_inside_their_edges_and_a_region_lies_in_one_state() -> None:
    data = table("dss", 131_072)
    for name, entry in attributes("dss").items():
        if "edges" in entry:
            assert set(binned("dss", data, name)) == set(range(1, len(entry["edges"]))), name
    regions, states = (data[name].cast(pl.String) for name in ("region", "state"))
    assert (regions.str.head(-3) == states).all()


def test_census_has_a_few_values_outside_its_schema() -> None:
    data = table("census", 30_000)
    entries = attributes("census")
    for name in ("age", "hours_per_week", "income"):
        values = data[name].drop_nulls().to_numpy()
        assert 0 < (values >= entries[name]["edges"][-1]).sum() < 150, name
        assert values.min() >= entries[name]["edges"][0], name
    foreign = [c for c in data["birth_country"].to_list() if c not in entries["birth_country"]["values"]]
    assert 0 < len(foreign) < 300
    assert data["person_id"].to_list() == list(range(1, 30_001))
    assert any("," in text for text in data["region"].to_list())
    registered, contact = (data[name].drop_nulls().dt.year() for name in ("registered", "last_contact"))
    assert set(contact) == {2024}
    assert (registered <= 2024).all()
    assert (registered < 1950).any()


@pytest.mark.parametrize(
    ("shape", "a", "b", "least"),
    [
        ("census", "age", "marital_status", 0.3), ("census", "marital_status", "children", 0.2),
        ("census", "age", "children", 0.15), ("census", "education", "occupation", 0.25),
        ("census", "education", "income", 0.15), ("census", "occupation", "sex", 0.3),
        ("census", "age", "employed", 0.5), ("census", "employed", "hours_per_week", 0.95),
        ("census", "region", "birth_country", 0.08), ("census", "age", "registered", 0.5),
        ("dss", "region", "state", 0.99), ("dss", "region", "office", 0.2), ("dss", "country", "language", 0.2),
        ("census-linked", "area", "nation", 0.99), ("census-linked", "earnings", "tax", 0.1),
        ("census-linked", "benefit", "housing_support", 0.2),
        ("dss", "occupation", "industry", 0.25), ("dss", "age", "payment_type", 0.15),
        ("dss", "disability", "condition", 0.4), ("dss", "income", "payment_amount", 0.06),
    ],
)  # fmt: skip
def test_named_pairs_depend(shape: str, a: str, b: str, least: float) -> None:
    assert cramers_v(shape, table(shape, 20_000), a, b) > least


def test_unrelated_pairs_do_not() -> None:
    for shape, other in (("census", "sex"), ("dss", "student")):
        assert cramers_v(shape, table(shape, 20_000), "region", other) < 0.04


def test_binary_means_and_correlations_are_as_designed() -> None:
    data = table("syn1", 65_536)
    names = data.columns[:240]
    design = [binary.attribute(j) for j in range(240)]
    bits = np.array([data[name].to_numpy() for name in names], dtype=float)
    means = np.array([binary.attribute(j)[0] for j in range(1_000)])
    assert means.min() < 0.03
    assert means.max() > 0.97
    # 240 comparisons at 5 standard errors: a false failure in 10,000 seeds.
    error = np.abs(bits.mean(axis=1) - means[:240]) / np.sqrt(means[:240] * (1 - means[:240]) / 65_536)
    assert error.max() < 5

    _, _, factors, reverse = map(np.array, zip(*design, strict=True))
    i, j = np.tril_indices(240, -1)
    correlation, alike = np.corrcoef(bits)[i, j], factors[i] == factors[j]
    middle = (means[:240] > 0.3) & (means[:240] < 0.7)
    near = alike & middle[i] & middle[j]
    same, opposite = correlation[near & (reverse[i] == reverse[j])], correlation[near & (reverse[i] != reverse[j])]
    assert same.min() > 0.1
    assert same.max() > 0.3
    assert opposite.max() < 0
    assert 0.02 < np.abs(correlation[~alike]).mean() < 0.1


def test_hospital_facts_are_functions_of_the_provider() -> None:
    data = table("hospital", 10_000)
    provider, *_, measure = data.columns
    assert set(data.drop(measure).iter_rows()) == set(hospital.directory().iter_rows())
    assert (data[provider].n_unique(), data[measure].n_unique(), len(hospital.directory())) == (184, 55, 184)
    # Every pair of a hospital and a measure at most once, nearly all of them there.
    assert data.select(provider, measure).n_unique() == 10_000


def test_hospital_directory_is_public_and_nested() -> None:
    first, second = table("hospital", 10_120, seed=1), table("hospital", 10_120, seed=2)
    for name in first.columns:
        assert sorted(first[name].to_list(), key=str) == sorted(second[name].to_list(), key=str)
    directory = hospital.directory()
    assert directory["Provider ID"].str.starts_with("0").all()
    assert set(directory["ZIP Code"].str.len_chars()) == {5}
    assert set(directory["Phone Number"].str.len_chars()) == {10}
    for inner, outer in (("ZIP Code", "City"), ("City", "State"), ("County Name", "State")):
        pairs = directory.drop_nulls().select(inner, outer)
        assert pairs.n_unique() == pairs[inner].n_unique(), (inner, outer)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_seed_means_the_same_rows_drawn_when_they_are_asked_for(shape: str) -> None:
    long = table(shape, 1_000, seed=7)
    assert long.head(100).equals(table(shape, 100, seed=7))
    assert not long.equals(table(shape, 1_000, seed=8))
    frame = next(generate(shape)[1])
    assert frame.height == min(SHAPES[shape].table().block_rows, SHAPES[shape].rows)
    assert frame.estimated_size() < 32 * 2**20


@pytest.mark.parametrize("shape", NARROW)
def test_a_short_table_begins_a_long_one_across_blocks(shape: str) -> None:
    block = SHAPES[shape].table().block_rows
    long = table(shape, 2 * block + 3)
    assert long.height == 2 * block + 3
    assert long.slice(0, block + 2).equals(table(shape, block + 2))
    assert not long.slice(0, block).equals(long.slice(block, block))


def test_binary_blocks_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "BLOCK_ROWS", 128)
    monkeypatch.setattr(binary, "_WORDS", 2)
    binary.table.cache_clear()
    try:
        long, short = table("syn1", 300), table("syn1", 130)
    finally:
        binary.table.cache_clear()
    assert long.height == 300
    assert long.slice(0, 130).equals(short)


def test_what_cannot_be_generated() -> None:
    unknown = (
        r"^shape must be one of census, hospital, dss, census-linked, syn1, syn2, got 'adult'\. Choose one of those\.$"
    )
    for call in (generate, schema_toml):
        with pytest.raises(DataError, match=unknown):
            call("adult")
    bad: Any
    for bad in (0, -5, 2.5, True, "10"):
        with pytest.raises(DataError, match=rf"^rows must be a whole number of at least 1, got rows={bad!r}\. Leave"):
            generate("census", rows=bad)
        with pytest.raises(DataError, match=f"^patients must be a whole number of at least 1, got patients={bad!r}"):
            generate_visits(bad)
    for bad in (-1, 0.5, None, False):
        with pytest.raises(DataError, match=rf"^seed must be a whole number of at least 0, got seed={bad!r}\. Leave"):
            generate("census", seed=bad)


def drawn(patients: int, seed: int = 0) -> dict[str, pl.DataFrame]:
    parts = list(generate_visits(patients, seed=seed))
    return {name: pl.concat([part[name] for part in parts]) for name in TABLES}


def test_fewer_patients_are_the_beginning_of_more() -> None:
    few, more = drawn(9_000), drawn(10_000)
    assert all(more[name].head(few[name].height).equals(few[name]) for name in TABLES)
    assert not drawn(9_000, seed=1)["patients"].equals(few["patients"])


def test_a_hospital_is_as_described() -> None:
    frames = drawn(8_000)
    patients, visits, procedures = frames["patients"], frames["visits"], frames["procedures"]
    assert patients[KEY].to_list() == list(range(1, 8_001))
    assert all(each[KEY].is_in(patients[KEY].implode()).all() for each in frames.values())
    assert visits[VISIT].n_unique() == visits.height
    assert procedures.join(visits, on=[KEY, VISIT], how="anti").is_empty()
    numbers = visits.group_by(KEY).len()["len"]
    assert numbers.max() == MOST
    # One in twenty never comes: 5 sd of 8,000 are 0.012. A mean of 6 has an sd of 0.06.
    assert abs(1 - len(numbers) / 8_000 - 0.05) < 0.013
    assert 5.5 < visits.height / 8_000 < 6.5
    for branch in clinic().branches:
        above = VISIT if branch.of == "visits" else KEY
        assert frames[branch.name].group_by(above).len().filter(pl.col("len") > branch.at_most).is_empty()
        codes = encode(frames[branch.name].select(branch.schema.names), branch.schema)
        assert (codes >= 0).all()
        # Every level occurs.
        assert all(np.unique(row).size == size for row, size in zip(codes, branch.schema.sizes, strict=True))


def test_visits_of_a_patient_are_alike() -> None:
    visits = drawn(8_000)["visits"]
    first = visits.group_by(KEY, maintain_order=True).agg(pl.all().first(), n=pl.len())
    last = visits.group_by(KEY, maintain_order=True).agg(pl.all().last())
    several = first["n"] > 1
    for name, least in (("department", 0.10), ("diagnosis", 0.03), ("days", 0.05)):
        same = (first[name] == last[name]).filter(several).mean()
        assert isinstance(same, float)
        shares = visits[name].value_counts(normalize=True)["proportion"]
        assert same > float((shares**2).sum()) + least


def test_visits_follow_one_another() -> None:
    """By order in time: what comes next depends on the type of the last, gaps are skewed, and winters are full."""
    visits = drawn(8_000)["visits"]
    assert visits.equals(visits.sort(KEY, "date", maintain_order=True))
    column = {name: visits[name].to_numpy() for name in (KEY, "type", "date")}
    same = column[KEY][1:] == column[KEY][:-1]
    before, after, gap = (
        column["type"][:-1][same],
        column["type"][1:][same],
        np.diff(column["date"])[same].astype(float),
    )
    shares = {name: np.mean(after[before == name] == "inpatient") for name in np.unique(before)}
    assert 0.43 < shares.pop("emergency") < 0.52
    assert max(shares.values()) < 0.12
    assert 11 <= np.median(gap) <= 13
    assert 20 < gap.mean() < 30
    month = column["date"][np.append(True, ~same)].astype("datetime64[M]").astype(int) % 12 + 1
    assert np.isin(month, [12, 1, 2]).sum() > 1.3 * np.isin(month, [6, 7, 8]).sum()
