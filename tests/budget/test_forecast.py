"""Forecasts: from public facts alone, and right about the noise that then comes."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from experiments.asked import measure_counts
from hypothesis import given, settings

import sklar
from sklar.answer.query import estimate
from sklar.budget.forecast import forecast, plot_forecasts, supports, table_lines, within
from sklar.budget.method import Method
from sklar.budget.plan import ONE_WAY_SHARE
from sklar.custodian.check import check
from sklar.errors import BudgetError, SchemaError, SklarError
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema
from sklar.public.settings import Person
from sklar.rows.count import Exact, ask_all, count
from sklar.rows.read import open_source
from tests.budget.test_ledger import opened, run
from tests.conftest import count_plainly, refuses

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

SCHEMA = Schema(
    name="people",
    attributes=(
        Attribute(name="age", kind="integer", edges=tuple(range(0, 101, 10))),
        Attribute(name="sex", kind="categorical", values=("F", "M"), other=True),
        Attribute(name="town", kind="categorical", values=tuple(f"t{k}" for k in range(25)), missing=""),
        Attribute(name="employed", kind="boolean", missing="?"),
    ),
)


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    """The file of the schema."""
    (tmp_path / "s.toml").write_text(SCHEMA.to_toml())
    return tmp_path / "s.toml"


def generated(schema: Schema, rows: int, seed: int = 3) -> Exact:
    """Exact counts of dependent rows, without reading a file."""
    generator = np.random.default_rng(seed)
    latent = generator.random(rows) ** 2
    drawn = [np.floor((0.7 * latent + 0.3 * generator.random(rows)) * size) for size in schema.sizes]
    return count_plainly(np.stack(drawn).astype(np.int32), schema.cells)


def foretold(counts: Exact, schema: Schema, budget: Budget, times: int) -> None:
    """Forecasts are within 15 percent of the noise that then comes."""
    squares = []
    for _ in range(times):
        tables = measure_counts(counts, schema, budget)
        one = np.concatenate([estimate(tables, name).counts for name in schema.names]) - counts.one_way
        pairs = [estimate(tables, *names).counts.ravel() for names in combinations(schema.names, 2)]
        two = np.concatenate(pairs) - counts.pairs
        squares.append((np.mean(one**2), np.mean(two**2)))
    one_way, pairs = np.sqrt(np.mean(squares, axis=0))
    expected = forecast(schema, budget, rows=counts.n_rows)
    assert expected.one_way_error == pytest.approx(one_way, rel=0.15)
    assert expected.pair_error == pytest.approx(pairs, rel=0.15)
    # A forecast that is off by a third would be noticed.
    assert expected.pair_error * 1.35 != pytest.approx(pairs, rel=0.15)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_forecasts_are_within_15_percent_of_the_noise_on_generated_tables(epsilon: float, neighbors: Any) -> None:
    # About 2,000 cells over 25 draws: the measured root mean square is known to about 1%.
    foretold(generated(SCHEMA, 8000), SCHEMA, Budget(epsilon=epsilon, neighbors=neighbors), 25)


@pytest.mark.skipif(not (DATA / "adult.csv").is_file(), reason="Adult is not here")
def test_forecasts_are_within_15_percent_of_the_noise_on_adult() -> None:
    schema = Schema.load(DATA / "adult.toml")
    counts = count(open_source(DATA / "adult.csv").batches(schema.names), ask_all(schema))
    foretold(counts, schema, Budget(epsilon=1.0), 6)


def test_more_budget_buys_less_error_and_the_split_adds_up() -> None:
    found = [forecast(SCHEMA, rows=5000, epsilon=epsilon) for epsilon in (0.1, 1.0, 10.0)]
    errors = [each.pair_error for each in found]
    assert errors == sorted(errors, reverse=True)
    assert len(found[0].mostly_noise) >= len(found[-1].mostly_noise)
    for each in found:
        assert sum(share for _, share in each.split) == pytest.approx(1.0)
        assert 0 < each.one_way_share <= 1
        assert each.seconds > 0
        assert each.memory_bytes > 1e8
    assert found[0].mostly_noise[0] == ("age", "town")
    once = forecast(SCHEMA, rows=5000, epsilon=1.0, method="binary").split
    assert [name for name, _ in once] == ["one-way tables", "two-way tables"]
    assert once[0][1] == pytest.approx(ONE_WAY_SHARE, abs=0.01)


@given(
    sizes=st.lists(st.integers(2, 40), min_size=1, max_size=5),
    bits=st.booleans(),
    searched=st.booleans(),
    weight=st.sampled_from([1.0, 3.0]),
    rows=st.integers(30, 10**6),
    epsilons=st.lists(st.floats(0.2, 20.0), min_size=2, max_size=5),
)
@settings(max_examples=60, deadline=None)
def test_no_error_grows_with_epsilon(
    sizes: list[int], bits: bool, searched: bool, weight: float, rows: int, epsilons: list[float]
) -> None:
    """Shares of the budget are continuous, and each grows more slowly than the budget: none of a table's error."""
    levels = [tuple(map(str, range(2 if bits else size))) for size in sizes]
    known = [Attribute(name=f"a{i}", kind="categorical", values=own) for i, own in enumerate(levels)]
    if searched:
        known.append(Attribute(name="income", kind="integer", edges=(0, 10**6), domain="private", at_most=20))
    elif weight > 1 and not bits:
        known[0] = replace(known[0], weight=weight)
    schema = Schema(name="s", attributes=tuple(known))
    found = [forecast(schema, rows=rows, epsilon=epsilon) for epsilon in sorted(epsilons)]
    for one, two in pairwise(found):
        for name in ("one_way_sd", "pair_sd", "search_factor", "one_way_error", "pair_error", "one_way_share"):
            assert np.all(np.asarray(getattr(two, name)) <= np.asarray(getattr(one, name)) * (1 + 1e-4)), name
        assert {*two.hopeless} <= {*one.hopeless}
        assert {*two.mostly_noise} <= {*one.mostly_noise}
        # No verdict is better than most of its tables.
        assert two.support != "two" or 2 * two.noisy.size <= two.pair_sd.size


def test_one_attribute_has_no_pairs() -> None:
    schema = Schema(name="one", attributes=SCHEMA.attributes[:1])
    expected = forecast(schema, rows=100, epsilon=1.0)
    assert expected.pair_error == 0
    assert expected.mostly_noise == ()
    assert [name for name, _ in expected.split] == ["one-way tables", "where numbers lie inside bins"]
    assert "0 of 0" in "\n".join(expected.lines())


def test_refusals() -> None:
    refused: Any = partial(refuses, error=BudgetError)
    for rows in (0, 1.5):
        message = f"^rows must be a whole number of at least 1, got {rows}.$"
        refused(message, forecast, SCHEMA, rows=rows, epsilon=1.0)
    methods = "^method must be one of auto, mixture, binary, got 'magic'.$"
    refused(methods, forecast, SCHEMA, rows=10, epsilon=1.0, method="magic")
    refused("^give either a budget or an epsilon", forecast, SCHEMA, Budget(epsilon=1.0), rows=10, epsilon=1.0)


def test_a_budget_a_method_and_the_path_of_a_schema_are_accepted(toml: Path) -> None:
    budget = Budget(epsilon=1.0, delta=1e-6)
    found = forecast(toml, budget, rows=5000, method=Method(name="binary"))
    assert found.budget == budget
    assert found.to_dict() == sklar.forecast(SCHEMA, budget, rows=5000, method="binary").to_dict()


def test_the_table_has_bars_and_names_the_noisy_pairs() -> None:
    text = "\n".join(table_lines([forecast(SCHEMA, rows=2000, epsilon=epsilon) for epsilon in (0.1, 1.0)]))
    for part in ("Nothing was spent", "Mostly noise at epsilon 0.1", "age x town", "within a factor of three"):
        assert part in text


def test_the_command(toml: Path) -> None:
    base = ("forecast", "--schema", toml, "--rows", "5000", "--epsilon", "0.5", "--epsilon", "2")
    done = run(*base, "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert [each["epsilon"] for each in found] == [0.5, 2.0]
    assert found[0]["two_way"]["tables"] == 6
    assert "number of rows" in run(*base, "--neighbors", "add-remove").stdout
    assert isinstance(run(*base, "--plot", toml.with_suffix(".pdf")).exception, SklarError)


def test_plots_are_repeatable(toml: Path) -> None:
    pytest.importorskip("matplotlib")
    one, other, image = (toml.with_name(name) for name in ("a.svg", "b.svg", "a.png"))
    for path in (one, other, image):
        done = run("forecast", "--schema", toml, "--rows", "50", "--epsilon", "1", "--plot", path)
        assert done.exit_code == 0, done.output
    assert one.read_bytes() == other.read_bytes()
    assert image.stat().st_size > 1000


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SklarError, match=r"a plot needs matplotlib: pip install 'sklar\[plot\]'"):
        plot_forecasts([forecast(SCHEMA, rows=10, epsilon=1.0)], tmp_path / "x.svg", kind="svg")


def test_a_forecast_says_what_may_go_to_three_way_tables() -> None:
    toml = "".join(f'[attributes.a{i}]\ntype = "integer"\nedges = [0, 1, 2, 3, 4]\n' for i in range(4))
    schema = Schema.from_toml(toml)
    found = [forecast(schema, rows=rows, epsilon=1.0) for rows in (500, 50_000)]
    assert [each.triples_share for each in found] == [0.4, 0.4]
    assert found[1].to_dict()["three_way"] == {"most_of_stage_2": 0.4, "scores_of_all": 0.03}
    assert any(line.startswith("At epsilon 1, 3% of all cost, out of stage 2, goes to") for line in found[1].lines())
    assert any(
        line.startswith("At epsilon 1, up to 40% of stage 2 may go to tables of three or four")
        for line in found[1].lines()
    )
    # Two pairs of six with the target cost twice as much: the others get 6 / 9 of the precision.
    aimed = forecast(schema.aimed("a0"), rows=500, epsilon=1.0)
    # Margins' contrasts are a small part of a cell.
    assert (aimed.pair_sd / found[0].pair_sd) ** 2 == pytest.approx([0.75] * 3 + [1.5] * 3, rel=0.05)
    words = (
        "The release is for a0: noise in two-way tables that hold it is 13% less, and in all others 22.5% more, than"
    )
    assert any(line.startswith(words) for line in aimed.lines())
    assert not any("release is for" in line for line in found[0].lines())
    assert aimed.triples_share == 0.4
    binary = forecast(schema, rows=50_000, epsilon=1.0, method="binary")
    assert binary.triples_share == binary.scores_share == 0.0


def test_a_forecast_shows_the_error_against_rows_per_person() -> None:
    eight = replace(SCHEMA, person=Person(column="id", count="rows", rows_per_person=8))
    found = forecast(eight, rows=10_000, epsilon=1.0)
    errors = {each.budget.rows_per_person: each.one_way_error for each in found.against_rows()}
    assert list(errors) == [1, 2, 4, 8, 16, 32]
    assert errors[8] == found.one_way_error
    assert errors[16] == pytest.approx(2 * errors[8], rel=0.01)
    text = "\n".join(table_lines([found]))
    assert "Any one person, with all their rows, is protected. Counted are rows: at most 8 of each person" in text
    assert "Within how many rows a count is at epsilon 1, by rows_per_person:" in text
    assert "(the schema)" in text
    document = found.to_dict()
    assert (document["count"], document["rows_per_person"]) == ("rows", 8)
    assert len(document["against_rows_per_person"]) == 6
    # One row of each person costs what one row costs.
    people = forecast(replace(SCHEMA, person=Person(column="id", count="people")), rows=10_000, epsilon=1.0)
    assert people.one_way_error == forecast(SCHEMA, rows=10_000, epsilon=1.0).one_way_error
    assert people.against_rows() == ()
    assert forecast(SCHEMA, rows=10_000, epsilon=1.0).to_dict()["count"] is None


def few(categories: int, numbers: int, public: int, *, rows: int = 0) -> Schema:
    table = f"[table]\nrows_about = {rows}\n" if rows else ""
    found = [f'c{i} = {{ type = "categorical", domain = "private" }}' for i in range(categories)]
    wide = 'type = "integer", domain = "private", low = 0, high = 10_000_000'
    found += [f"n{i} = {{ {wide} }}" for i in range(numbers)]
    found += [f'p{i} = {{ type = "categorical", values = [{", ".join(map(repr, "abcde"))}] }}' for i in range(public)]
    return Schema.from_toml(f"{table}[attributes]\n" + "\n".join(found))


@pytest.mark.parametrize(("schema", "rows", "hopeless"), [
    (few(3, 4, 1), 344, ("n0", "n1", "n2", "n3")), (few(3, 1, 1), 200, ("c0", "c1", "c2", "n0")),
    (few(0, 4, 4), 344, ("n0", "n1", "n2", "n3")),
    (few(3, 4, 1), 1_000, ()), (few(0, 0, 30), 1_000, ()), (few(0, 0, 8), 200, ()), (few(1, 0, 2), 120, ("c0",)),
    (few(0, 0, 3), 10, ("p0", "p1", "p2")),
])  # fmt: skip
def test_what_is_hopeless_is_known_beforehand(schema: Schema, rows: int, hopeless: tuple[str, ...]) -> None:
    """Public facts alone: at 344 rows eight private columns are noise, ordinary tables of 1,000 rows are not."""
    foreseen = forecast(schema, rows=rows, epsilon=1.0)
    assert foreseen.hopeless == hopeless
    assert foreseen.to_dict()["hopeless"] == list(hopeless)
    verdict = foreseen.verdict()
    assert ("cannot support" in verdict[-1]) == bool(hopeless)
    assert foreseen.refused == tuple(name for name in hopeless if not name.startswith("p"))
    for name in hopeless:
        assert f"At epsilon 1, {name}: {foreseen.needs[name][0]}." in verdict
        assert name in verdict[-1]


def test_both_cases_are_told_where_searches_decide() -> None:
    """As the studio and a notebook tell them: with 50 categories a column pairs are noise, with ten they are not."""
    foreseen = forecast(few(4, 0, 0), rows=2_000, epsilon=3.0)
    assert (foreseen.support, foreseen.likely.support) == ("one", "two")
    words = supports(foreseen, foreseen.likely)
    assert words[0].startswith("If searches find at most 10 categories or bins a column, a release is usable for")
    told, card = " ".join(foreseen.lines()), foreseen._repr_html_()
    assert f"At epsilon 3, i{words[0][1:-1]}: {within(foreseen.likely.one_way_error)}, " in told
    assert "0 of 6 pairs mostly noise. If they find as many as the schema lets them, a release is usable" in told
    assert all(each in card for each in words)
    assert (public := forecast(few(0, 0, 3), rows=2_000, epsilon=3.0)).likely is public


def test_what_cannot_be_found_is_refused_before_it_is_charged(tmp_path: Path) -> None:
    """By the public number of rows; by the stated one before a row is read; never by a number that is not public."""
    table = pa.table({"c0": ["a"] * 120, "p0": ["b"] * 120, "p1": ["c"] * 120})
    needs = r"120 rows at epsilon 1 cannot support 1 of 3 columns: noise would hide all of c0\. State values.*"
    given: Any = {"epsilon": 1.0, "method": "binary"}
    ledger = opened(tmp_path / "l.db", 5.0)
    with pytest.raises(BudgetError, match=rf"{needs}Nothing was spent\. --anyway or anyway=True overrides\."):
        sklar.fit(table, few(1, 0, 2), ledger=ledger, dataset="t", **given)
    assert not ledger.account("t").charges
    with pytest.raises(BudgetError, match="120 rows at epsilon 1 cannot support 1 of 3"):
        sklar.fit("no such file.csv", few(1, 0, 2, rows=120), **given)
    for how in ({"anyway": True}, {"neighbors": "add-remove"}):
        assert sklar.fit(table, few(1, 0, 2), **given, **how).certificate.epsilon == 1.0
    # Noise in public levels is stated and seen: nothing is refused.
    bare = sklar.measure(pa.table({f"p{i}": ["a"] * 10 for i in range(3)}), few(0, 0, 3), Budget(epsilon=1.0))
    assert forecast(few(0, 0, 3), rows=10, epsilon=1.0).hopeless == bare.schema.names


@pytest.mark.parametrize("rows", ["0", "-1", "1.5", "true", '"many"'])
def test_stated_rows_are_a_whole_number(rows: str) -> None:
    with pytest.raises(SchemaError, match=r"\[table\] rows_about must be a whole number of at least 1, got"):
        Schema.from_toml(f"[table]\nrows_about = {rows}\n[attributes.a]\ntype = 'boolean'")
    schema = few(0, 0, 1, rows=500)
    assert Schema.from_toml(schema.to_toml()) == schema


def test_a_check_says_what_a_release_would_find() -> None:
    schema, table = few(1, 0, 2), pa.table({"c0": ["a"] * 120, "p0": ["b"] * 120, "p1": ["c"] * 120})
    assert check(schema).forecast is None
    assert not any("At epsilon" in line for line in check(schema).lines())
    stated = check(few(1, 0, 2, rows=19_000), epsilon=1.0)
    assert stated.forecast is not None
    need = stated.forecast.findings[-1].threshold or 0
    says = f"a category needs {need} rows to be found ({need / 19_000:.1%} of 19,000)."
    assert f"At epsilon 1, c0: {says}" in stated.lines()
    assert stated.lines()[-1] == "19,000 rows at epsilon 1: noise hides no column as a whole."
    assert stated.to_dict()["forecast"]["hopeless"] == []
    # Counted rows are PRIVATE, as all that is said of rows.
    counted = check(schema, table)
    assert counted.forecast is not None
    assert counted.forecast.n_rows == 120
    assert counted.to_dict()["forecast"] is None
    assert counted.to_dict()["PRIVATE"]["forecast"]["hopeless"] == ["c0"]
    assert "5,000 rows at epsilon 1" in check(schema, table, rows=5_000).lines()[-1]
