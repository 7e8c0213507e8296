"""The generated tables: their shapes, their public schemas, their dependence, and that a seed means the same rows."""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from sklar.errors import DataError
from sklar.generate import SHAPES, binary, generate, hospital, schema_toml
from sklar.public.schema import Schema

UNLISTED = {"census": ["person_id"]}
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
    if entry["type"] == "boolean":
        values = 2
    elif entry["type"] == "categorical":
        assert len(set(entry["values"])) == len(entry["values"])
        values = len(entry["values"])
    else:
        values = entry["bins"] if "bins" in entry else len(entry["edges"]) - 1
    return values + ("missing" in entry) + bool(entry.get("other"))


def cramers_v(a: Iterable[object], b: Iterable[object]) -> float:
    """Cramer's V with the bias correction of Bergsma (2013): near 0 for independent columns of any size."""
    _, i = np.unique(np.array(list(a), dtype=str), return_inverse=True)
    _, j = np.unique(np.array(list(b), dtype=str), return_inverse=True)
    counts = np.zeros((i.max() + 1, j.max() + 1))
    np.add.at(counts, (i, j), 1)
    n = counts.sum()
    expected = counts.sum(1, keepdims=True) * counts.sum(0) / n
    rows, columns = counts.shape
    phi = max(0.0, ((counts - expected) ** 2 / expected).sum() / n - (rows - 1) * (columns - 1) / (n - 1))
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


# --- shapes and schemas


def test_shapes_have_the_rows_of_the_paper() -> None:
    rows = {name: shape.rows for name, shape in SHAPES.items()}
    big = 5_240_260
    assert rows == {"census": 30_000, "hospital": 10_000, "dss": big, "syn1": big, "syn2": big}
    assert all(shape.description for shape in SHAPES.values())


@pytest.mark.parametrize("shape", SHAPES)
def test_the_schema_lists_the_columns_in_order(shape: str) -> None:
    columns, frames = generate(shape, rows=10)
    assert next(frames).schema == columns
    assert columns.names() == UNLISTED.get(shape, []) + list(attributes(shape))
    assert tomllib.loads(schema_toml(shape))["table"] == {"name": shape}


@pytest.mark.parametrize(
    ("shape", "n_attributes", "n_levels", "n_small"),
    [
        ("census", 14, 119, None),
        ("hospital", 9, 1_201, 1),
        ("dss", 27, 674, 10),
        ("syn1", 1_000, 2_000, 1_000),
        ("syn2", 2_000, 4_000, 2_000),
    ],
)
def test_levels_are_those_of_the_paper(shape: str, n_attributes: int, n_levels: int, n_small: int | None) -> None:
    sizes = [levels(entry) for entry in attributes(shape).values()]
    assert (len(sizes), sum(sizes)) == (n_attributes, n_levels)
    assert n_small is None or sum(size < 10 for size in sizes) == n_small
    schema = Schema.from_toml(schema_toml(shape))
    assert (schema.n_attributes, schema.n_levels) == (n_attributes, n_levels)


def test_streams_differ_between_shapes() -> None:
    assert len({shape.table().stream for shape in SHAPES.values()}) == len(SHAPES)


@pytest.mark.parametrize("shape", NARROW)
def test_values_are_listed_and_of_the_stated_type(shape: str) -> None:
    kinds = {
        "boolean": (pl.Boolean,),
        "integer": (pl.Int32,),
        "real": (pl.Float64,),
        "date": (pl.Date,),
        "datetime": (pl.Datetime("ms"),),
        "categorical": (pl.String, pl.Categorical),
    }
    data = table(shape, 20_000)
    for name, entry in attributes(shape).items():
        assert data.schema[name] in kinds[entry["type"]], name
        assert (data[name].null_count() > 0) == ("missing" in entry), name
        if entry["type"] == "categorical":
            found = set(data[name].drop_nulls().unique().to_list())
            unlisted = found - set(entry["values"])
            assert bool(unlisted) == bool(entry.get("other")), name
            assert found >= set(entry["values"]) or shape == "dss", name


def test_dss_numbers_stay_inside_their_edges_and_reach_every_bin() -> None:
    data = table("dss", 131_072)
    for name, entry in attributes("dss").items():
        if "edges" in entry:
            bins = binned("dss", data, name)
            assert set(bins) == set(range(1, len(entry["edges"]))), name
            assert all(low < high for low, high in pairwise(entry["edges"]))


def test_dss_has_uniform_zipf_and_dominated_columns() -> None:
    data = table("dss", 65_536)

    def top(name: str) -> float:
        counts = np.unique(binned("dss", data, name), return_counts=True)[1]
        return float(counts.max() / counts.sum())

    assert top("region") < 0.02
    assert 0.25 < top("payment_type") < 0.4
    assert top("country") > 0.6
    assert top("condition") > 0.75


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
    registered = data["registered"].to_numpy()
    assert registered.max() < np.datetime64("2025-01-01")
    assert registered.min() < np.datetime64("1950-01-01")
    contact = data["last_contact"].drop_nulls().to_numpy()
    assert contact.min() >= np.datetime64("2024-01-01")
    assert contact.max() < np.datetime64("2025-01-01")


# --- dependence


@pytest.mark.parametrize(
    ("shape", "a", "b", "least"),
    [
        ("census", "age", "marital_status", 0.3),
        ("census", "marital_status", "children", 0.2),
        ("census", "age", "children", 0.15),
        ("census", "education", "occupation", 0.25),
        ("census", "education", "income", 0.15),
        ("census", "occupation", "sex", 0.3),
        ("census", "age", "employed", 0.5),
        ("census", "employed", "hours_per_week", 0.95),
        ("census", "region", "birth_country", 0.08),
        ("census", "age", "registered", 0.5),
        ("dss", "region", "state", 0.99),
        ("dss", "region", "office", 0.2),
        ("dss", "country", "language", 0.2),
        ("dss", "occupation", "industry", 0.25),
        ("dss", "age", "payment_type", 0.15),
        ("dss", "disability", "condition", 0.4),
        ("dss", "income", "payment_amount", 0.06),
    ],
)
def test_named_pairs_depend(shape: str, a: str, b: str, least: float) -> None:
    data = table(shape, 20_000)
    assert cramers_v(binned(shape, data, a), binned(shape, data, b)) > least


@pytest.mark.parametrize(("shape", "a", "b"), [("census", "region", "sex"), ("dss", "region", "student")])
def test_unrelated_pairs_do_not(shape: str, a: str, b: str) -> None:
    data = table(shape, 20_000)
    assert cramers_v(binned(shape, data, a), binned(shape, data, b)) < 0.04


def test_a_dss_region_lies_in_one_state() -> None:
    data = table("dss", 65_536)
    assert all(
        region.rsplit("-", 1)[0] == state
        for region, state in zip(data["region"].to_list(), data["state"].to_list(), strict=True)
    )


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

    correlation = np.corrcoef(bits)
    same: list[float] = []
    opposite: list[float] = []
    other: list[float] = []
    for i in range(240):
        for j in range(i):
            (mean_i, _, factor_i, reversed_i), (mean_j, _, factor_j, reversed_j) = design[i], design[j]
            if factor_i != factor_j:
                other.append(correlation[i, j])
            elif 0.3 < mean_i < 0.7 and 0.3 < mean_j < 0.7:
                (same if reversed_i == reversed_j else opposite).append(correlation[i, j])
    assert min(same) > 0.1
    assert max(same) > 0.3
    assert max(opposite) < 0
    assert 0.02 < np.mean(np.abs(other)) < 0.1


def test_hospital_facts_are_functions_of_the_provider() -> None:
    data = table("hospital", 10_000)
    *facts, measure = data.columns
    columns = [data[name].to_list() for name in facts]
    lines = set(zip(*columns, strict=True))
    assert lines == {tuple(line) for line in hospital.directory()}
    assert len(lines) == len(set(columns[0])) == 184
    # Every pair of a hospital and a measure at most once, nearly all of them there.
    pairs = set(zip(columns[0], data[measure].to_list(), strict=True))
    assert len(pairs) == 10_000
    assert len(set(data[measure].to_list())) == 55


def test_hospital_directory_is_public_and_nested() -> None:
    first, second = table("hospital", 10_120, seed=1), table("hospital", 10_120, seed=2)
    for name in first.columns:
        assert sorted(first[name].to_list(), key=str) == sorted(second[name].to_list(), key=str)
    for line in hospital.directory():
        assert line.provider.startswith("0")
        assert len(line.zip_code) == 5
        assert len(line.phone) == 10
    for inner, outer in (("zip_code", "city"), ("city", "state"), ("county", "state")):
        pairs = {(getattr(line, inner), getattr(line, outer)) for line in hospital.directory() if line.county}
        assert len(pairs) == len({pair[0] for pair in pairs}), (inner, outer)


# --- seeds and streaming


@pytest.mark.parametrize("shape", SHAPES)
def test_a_seed_means_the_same_rows(shape: str) -> None:
    assert table(shape, 200, seed=7).equals(table(shape, 200, seed=7))
    assert not table(shape, 200, seed=7).equals(table(shape, 200, seed=8))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_short_table_begins_a_long_one(shape: str) -> None:
    assert table(shape, 1_000).slice(0, 100).equals(table(shape, 100))


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
    binary._table.cache_clear()
    try:
        long, short = table("syn1", 300), table("syn1", 130)
    finally:
        binary._table.cache_clear()
    assert long.height == 300
    assert long.slice(0, 130).equals(short)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_drawn_only_when_asked_for(shape: str) -> None:
    _, frames = generate(shape)
    frame = next(frames)
    assert frame.height == min(SHAPES[shape].table().block_rows, SHAPES[shape].rows)
    assert frame.estimated_size() < 32 * 2**20


# --- errors


def test_an_unknown_shape_is_refused() -> None:
    message = r"^shape must be one of census, hospital, dss, syn1, syn2, got 'adult'\. Choose one of those\.$"
    with pytest.raises(DataError, match=message):
        generate("adult")
    with pytest.raises(DataError, match=message):
        schema_toml("adult")


@pytest.mark.parametrize("rows", [0, -5, 2.5, True, "10"])
def test_bad_rows_are_refused_at_once(rows: Any) -> None:
    with pytest.raises(DataError, match=rf"^rows must be a whole number of at least 1, got rows={rows!r}\. Leave"):
        generate("census", rows=rows)


@pytest.mark.parametrize("seed", [-1, 0.5, None, False])
def test_bad_seeds_are_refused_at_once(seed: Any) -> None:
    with pytest.raises(DataError, match=rf"^seed must be a whole number of at least 0, got seed={seed!r}\. Leave"):
        generate("census", seed=seed)
