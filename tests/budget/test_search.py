"""Domains that are not public."""

from __future__ import annotations

import datetime as dt
import math
import zipfile
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

import sklar
from sklar.budget import search as searches
from sklar.budget.search import DELTA_SHARE, MOST, ROUNDING_SHARE, SECOND, ladder_of, next_cells, plan_search
from sklar.errors import BudgetError, DataError, ModelError, SchemaError
from sklar.fitting.domains import common_counts, find_domains, found_numbers, found_values
from sklar.kernel import vault as door
from sklar.kernel.queries import Block, Common
from sklar.kernel.theorems import Budget, Neighbors, chance_of_one, least_threshold
from sklar.public.axis import days
from sklar.public.schema import Attribute, Schema
from sklar.rows.count import Ask, count
from sklar.rows.encode import encode
from sklar.rows.engines import Measurer
from sklar.trust.verify import verify
from tests.budget.test_ledger import fails, opened
from tests.conftest import refuses
from tests.trust.forge import forged

TOML = """
[attributes]
town = { type = "categorical", domain = "private", at_most = 4 }
income = { type = "integer", domain = "private", low = 0, high = 1_000_000, bins = 6 }
smoker = { type = "boolean" }
"""
SCHEMA = Schema.from_toml(TOML)
TOWN, INCOME = SCHEMA.private_domains
SEEDS = st.integers(0, 2**32)
N = 4000
TABLE = pa.table(
    {
        "town": ["Ahausen"] * 2000 + ["Behausen"] * 1500 + ["Cehausen"] * 499 + ["marker-town"],
        "income": [(row * 37) % 50_000 for row in range(N)],
        "smoker": [row % 3 == 0 for row in range(N)],
    }
)


def private(kind: Any, low: float, high: float, **rest: Any) -> Attribute:
    return Attribute(name="x", kind=kind, edges=(low, high), domain="private", **{"at_most": 20, **rest})


def test_a_schema_says_which_domains_are_private_and_survives_its_own_toml() -> None:
    assert [attribute.name for attribute in SCHEMA.private_domains] == ["town", "income"]
    assert SCHEMA.sizes.tolist() == [5, 6, 2]
    assert Schema.from_toml(SCHEMA.to_toml()) == SCHEMA
    assert TOWN.other
    found = Schema(name="t", attributes=(replace(TOWN, values=(), domain="found", at_most=0),))
    assert Schema.from_toml(found.to_toml()) == found
    assert found.n_levels == 1


def shown_laws(scale: float, threshold: int, *tables: str) -> list[NDArray[np.float64]]:
    """The law of what a threshold shows of each of two tables: noisy counts from it on, or nothing, which comes first.

    A cell that is equal in both has the same factor in both: it changes no divergence, and is left out.
    """
    reach = math.ceil(scale)
    shown, noise = np.arange(threshold, threshold + 8 * reach), np.arange(-12 * reach, 12 * reach + 1)
    mass = np.exp(-(noise**2) / (2 * scale**2))

    def law(count: int) -> NDArray[np.float64]:
        at = np.array([mass[noise + count == value].sum() for value in shown]) / mass.sum() * (count > 0)
        return np.array([1 - at.sum(), *at])

    moved = [value for value in "abc" if len({table.count(value) for table in tables}) > 1]
    return [reduce(np.outer, [law(table.count(value)) for value in moved]).ravel() for table in tables]


@pytest.mark.parametrize(
    ("rows", "others"), [("a", "b"), ("aa", "ab"), ("aab", "abb"), ("aaabc", "aaabb"), ("ab", "a")]
)
@pytest.mark.parametrize("delta", [1e-2, 1e-4])
def test_the_claim_holds_for_every_set_of_outputs(rows: str, others: str, delta: float) -> None:
    """The whole law of the mechanism on two neighbors, at a delta that can be summed: none of it is beyond the claim.

    The shown cells are the noisy counts from the threshold on, or nothing; they are independent, so the law is their
    product. Leaving out what a threshold loses breaks the claim for 'a' and 'b', where every output differs.
    """
    neighbors: Neighbors = "replace-one" if len(rows) == len(others) else "add-remove"
    budget = Budget(epsilon=1.0, delta=delta, neighbors=neighbors)
    scale = float(budget.less(DELTA_SHARE * delta).scales(np.ones(1))[0])
    threshold = least_threshold(scale, DELTA_SHARE * delta)
    lost = chance_of_one(scale, threshold)
    finding = searches.Finding(attribute="a", tables=1, scale=scale, threshold=threshold, lost_delta=lost)
    epsilon = budget.spent(searches.search_spend([finding], budget))
    assert epsilon <= 1.0
    joint = shown_laws(scale, threshold, rows, others)
    for one, other in (joint, joint[::-1]):
        assert np.maximum(one - math.exp(epsilon) * other, 0.0).sum() <= delta
    if (rows, others) == ("a", "b"):
        # What is lost is really lost: without it, delta would be claimed as zero here.
        assert np.maximum(joint[0] - math.exp(50.0) * joint[1], 0.0).sum() > 0


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_search_and_what_it_leaves_spend_the_budget_together(neighbors: Neighbors, epsilon: float) -> None:
    budget = Budget(epsilon=epsilon, neighbors=neighbors)
    search = plan_search(SCHEMA, budget, n_rows=N if neighbors == "replace-one" else None)
    assert search.rest is not None
    assert 0.995 * epsilon < budget.spent(search.spend(budget) + search.rest) <= epsilon
    assert 0.2 * DELTA_SHARE < search.spend(budget).lost_delta / budget.delta <= DELTA_SHARE
    cost, rest = (budget.cost(each).rho for each in (search.spend(budget), search.rest))
    assert cost / (cost + rest) == pytest.approx(search.share, rel=0.05)
    found = [(finding.of, finding.tables) for finding in search.findings]
    assert found == [("domain", 1), ("domain", ladder_of(INCOME).tables), ("rounding", 1)]


def test_what_a_search_takes_falls_with_the_rows_and_has_a_limit() -> None:
    """Numbers want the same relative noise at any size: a quarter of the cost at twice the rows, until the limit."""
    budget = Budget(epsilon=1.0)
    schema = Schema(name="t", attributes=(INCOME,))
    few, some, more = (plan_search(schema, budget, n_rows=rows) for rows in (1_000, 40_000, 80_000))
    assert few.share == pytest.approx(MOST)
    assert few.factor > 1
    assert some.factor == 1
    assert (some.share - ROUNDING_SHARE) / (more.share - ROUNDING_SHARE) == pytest.approx(4.0, rel=1e-6)
    assert more.findings[0].scale == pytest.approx(searches.WANTED * 80_000, rel=0.01)
    # However many columns there are.
    wide = Schema(name="t", attributes=tuple(replace(INCOME, name=f"income{number}") for number in range(50)))
    assert plan_search(wide, budget, n_rows=40_000).share == pytest.approx(MOST)


def test_bounds_that_hold_few_values_are_not_searched() -> None:
    """Every value is a level, the domain is public, and nothing is paid."""
    schema = Schema.from_toml('[attributes.grade]\ntype = "integer"\ndomain = "private"\nlow = 1\nhigh = 17')
    table = pa.table({"grade": [1 + row % 16 for row in range(200)]})
    model = sklar.fit(table, schema, epsilon=1.0, method="binary")
    assert model.schema.attribute("grade").edges == tuple(range(1, 18))
    assert model.schema.attribute("grade").domain == "public"
    assert model.certificate.domains == ()
    # Where nothing else is said, 20 levels are looked for.
    wide = Schema.from_toml('[attributes.a]\ntype = "integer"\ndomain = "private"\nlow = 0\nhigh = 99')
    assert wide.sizes.tolist() == [20]


@given(st.lists(st.integers(-5, 4000), min_size=1, max_size=30), st.integers(0, 29), st.integers(-5, 4000), SEEDS)
@settings(max_examples=60, deadline=None)
def test_replacing_a_row_moves_two_cells_of_each_table_by_one(
    values: list[int], where: int, instead: int, seed: int
) -> None:
    """Of every table, whichever cells earlier noisy tables made it divide; and of decade by step."""
    attribute = private("integer", 0, 3000, at_most=3)
    other = [*values]
    other[where % len(values)] = instead
    pairs = []
    for kind in (attribute, replace(attribute, kind="categorical", edges=(), other=True)):
        counted = [count([pl.DataFrame({"x": rows})], Ask(values=(kind,))) for rows in (values, other)]
        pairs.append([answers.values[0] for answers in counted])
    ladder, noise, noisy = ladder_of(attribute), np.random.default_rng(seed), list[NDArray[np.int64]]()
    tables = []
    for _ in range(ladder.tables):
        cells = next_cells(ladder, noisy, 2.0)[-1]
        # What is divided next is chosen by noise: any choice must do.
        noisy.append(np.rint(noise.normal(0, 9, cells.size - 1)).astype(np.int64))
        tables.append([found.table(cells) for found in pairs[0]])
    tables.append([found.rounding(ladder) for found in pairs[0]])
    for one, two in tables:
        assert one.sum() == two.sum() == len(values)
        assert np.abs(one - two).sum() <= 2
        assert np.abs(one - two).max() <= 1
    here, there = (found.texts for found in pairs[1])
    assert sum(abs(here[text] - there[text]) for text in set(here) | set(there)) <= 2


def test_every_seen_value_and_every_cell_of_the_grid_gets_noise_at_its_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[float], list[int]]] = []

    def recorded(scales: NDArray[np.float64], sizes: NDArray[np.int64], **_threads: int) -> NDArray[np.int64]:
        calls.append((scales.tolist(), sizes.tolist()))
        return np.zeros(int(np.sum(sizes)), dtype=np.int64)

    monkeypatch.setitem(vars(door), "discrete_gaussian", recorded)
    budget = Budget(epsilon=1.0)
    town, income, rounding = plan_search(SCHEMA, budget, n_rows=N).findings
    measured = sklar.measure(TABLE, SCHEMA, budget)
    schema = measured.schema
    answer = [block.values for block in measured.blocks if getattr(block.query, "about", "") == "income"]
    ladder = ladder_of(INCOME)
    grids = [([income.scale], [cells.size - 1]) for cells in next_cells(ladder, answer[: income.tables], income.scale)]
    last = ([rounding.scale], [ladder.rounding_size])
    assert calls[: 2 + income.tables] == [([town.scale], [4]), *grids, last]
    assert 1 < (town.threshold or 0) < 499
    assert schema.attribute("town").values == ("Ahausen", "Behausen", "Cehausen")
    assert schema.attribute("town").domain == "found"
    edges = schema.attribute("income").edges
    assert len(edges) - 1 <= 6
    # About equal numbers of rows, and none of the empty rest of the wide bounds.
    shares = np.histogram(TABLE["income"].to_numpy(), edges)[0] / N
    assert edges[-1] <= 60_000
    assert shares.max() < 0.35


def test_the_most_common_texts_are_kept_and_names_of_other_levels_are_not() -> None:
    common = {"a": 10, "b": 9, "d": 50, "e": 11, "other": 99}
    found = found_values(replace(TOWN, at_most=3), common, frozenset())
    assert found.values == ("a", "d", "e")
    assert found_values(TOWN, common, frozenset({"town=d"})).values == ("a", "b", "e")
    assert found_values(TOWN, {}, frozenset()).levels == ("other",)


@given(
    st.integers(1, 30),
    st.integers(0, 3),
    st.floats(0.5, 500),
    st.sampled_from([(0, 3), (-7, 90), (0, 10**9), (-(10**6), 10**6), (-(2**62), 2**62), (1900, 2100), (-90, -7)]),
    st.sampled_from(["integer", "real", "date", "datetime"]),
    st.sampled_from([0.0, 3.0, 50.0]),
)
@settings(max_examples=40, deadline=None)
def test_edges_are_valid_whatever_the_noise(
    bins: int, seed: int, scale: float, bounds: Any, kind: Any, heaps: float
) -> None:
    if kind == "date":
        bounds = (bounds[0] % 1000, bounds[0] % 1000 + 1 + bounds[1] % 40_000)
    if kind == "real":
        bounds = (float(bounds[0]), float(bounds[1]))
    if kind == "datetime":
        bounds = (bounds[0] % 10**9 * 10**6, (bounds[0] % 10**9 + 1 + bounds[1] % 10**6) * 10**6)
    attribute = private(kind, *bounds, at_most=bins)
    generator, ladder, tables = np.random.default_rng(seed), ladder_of(attribute), list[NDArray[np.int64]]()
    for _ in range(ladder.tables):
        size = next_cells(ladder, tables, scale)[-1].size - 1
        high = generator.random(size) < 0.1
        drawn = scale * (generator.normal(0, 1, size) + heaps * high) * (seed < 3)
        tables.append(np.rint(drawn).astype(np.int64))
    if not tables:
        return
    found = found_numbers(attribute, tables, scale)
    assert found.n_bins >= 1
    assert found.n_values <= max(bins, 2)
    assert bounds[0] <= found.edges[0] < found.edges[-1] <= bounds[1]
    schema = Schema(name="t", attributes=(found,))
    assert Schema.from_toml(schema.to_toml()) == schema
    assert (ladder.first()[0], ladder.first()[-1]) == (ladder.low, ladder.high)


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("method", ["binary", "mixture"])
def test_a_release_finds_its_domains_and_says_what_they_cost(tmp_path: Path, neighbors: Neighbors, method: Any) -> None:
    model = sklar.fit(TABLE, SCHEMA, Budget(epsilon=4.0, neighbors=neighbors), method=method)
    path = tmp_path / "model.sklar"
    model.save(path)
    again = sklar.load(path)
    assert again.schema.private_domains == ()
    assert {"Ahausen", "Behausen"} <= set(again.schema.attribute("town").values)
    # The budget, fixed beforehand; few tables at small scales do not spend it to the last bit.
    assert again.certificate.epsilon == 4.0
    # Where the number of rows is not public, every column of categories is searched again.
    found = ["town", "income", "income", *(["town"] if neighbors == "add-remove" else [])]
    assert [finding.attribute for finding in again.certificate.domains] == found
    blocks, kept = ([(each.keys, each.values.tolist()) for each in one.measured.blocks] for one in (model, again))
    assert blocks == kept
    assert again.sample(300, seed=5).equals(model.sample(300, seed=5))
    assert any("domain of 'town' found" in line for line in again.summary())
    result = verify(path)
    assert result.passed, result.lines()
    assert "domains" in [check.name for check in result.checks]
    rows = again.sample(500, seed=1)
    assert set(rows["town"].to_list()) <= {"other", *again.schema.attribute("town").values}
    # A single row's town stays inside: it would need noise of some fifteen standard deviations.
    with zipfile.ZipFile(path) as archive:
        assert not any(b"marker-town" in archive.read(name) for name in archive.namelist())
    # The schema that was found can be used again, and costs nothing more.
    repeat = sklar.fit(TABLE, again.schema, epsilon=4.0, method="binary")
    assert repeat.certificate.domains == ()
    assert repeat.certificate.earlier == ("town", "income")
    assert "domains found by an earlier release, which paid for them: 'town', 'income'" in "\n".join(repeat.summary())


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("search") / "model.sklar"
    sklar.fit(TABLE, SCHEMA, epsilon=4.0, method="binary").save(path)
    return path


# Of the search for towns, then of that for incomes.
@pytest.mark.parametrize(("place", "forgery"), [
    (0, {"threshold": 5}), (0, {"lost_delta": 0.0}), (0, {"threshold": None, "lost_delta": 0.0}), (0, {"scale": "1"}),
    (0, {"attribute": "smoker"}), (0, {"attribute": "nothing"}),
    (1, {"threshold": 100}), (1, {"scale": 1e6}), (1, {"tables": 1}), (1, {"bounds": [0, 2_000_000]}),
    (1, {"bounds": None}), (1, {"at_most": 7}),
])  # fmt: skip
def test_a_forged_search_fails(released: Path, tmp_path: Path, place: int, forgery: dict[str, Any]) -> None:
    bad = forged(released, lambda d, _: d["certificate"]["domains"][place].update(forgery), tmp_path / "f.sklar")
    assert {check.name for check in verify(bad).checks if check.passed is False} in ({"domains"}, {"format"})


def test_the_ledger_is_charged_for_the_search_before_any_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, budget = opened(tmp_path / "ledger.db", 1.2), Budget(epsilon=1.0)
    given: Any = {"epsilon": 1.0, "method": "binary", "ledger": ledger, "dataset": "t"}
    sklar.fit(TABLE, SCHEMA, **given)
    account = ledger.account("t")
    (charge,) = account.charges
    assert charge.lost_delta == plan_search(SCHEMA, budget, n_rows=N).spend(budget).lost_delta > 0
    assert 0.99 < account.spent <= 1.0 + 1e-9
    monkeypatch.setitem(vars(door), "discrete_gaussian", fails)
    refuses("would overspend", sklar.fit, TABLE, SCHEMA, **given, error=BudgetError)
    assert len(ledger.account("t").charges) == 1


def test_chances_of_failure_add_up_in_the_ledger(tmp_path: Path) -> None:
    ledger, budget = opened(tmp_path / "ledger.db", 50.0, delta=1e-6), Budget(epsilon=1.0, delta=1e-6)
    without = ledger.charge("t", budget, budget.tables([100.0], [10])).account.spent
    risky = budget.tables([100.0], [10], 4e-7)
    assert ledger.charge("t", budget, risky).account.spent > without
    ledger.charge("t", budget, risky)
    refuses("would overspend", ledger.charge, "t", budget, risky, error=BudgetError)


def test_what_finds_no_domains_is_refused_before_a_row_is_read() -> None:
    laplace, reader = Budget(epsilon=1.0, mechanism="laplace"), TABLE.to_reader()
    noise = r"private domains \(town, income\) are found with Gaussian noise"
    refuses(noise, sklar.fit, TABLE, SCHEMA, laplace, error=BudgetError)
    yet = "domains are private and a release has yet to find them: town, income"
    refuses(yet, encode, pl.DataFrame({name: [] for name in SCHEMA.names}), SCHEMA, error=SchemaError)
    refuses("two passes over the rows", sklar.fit, reader, SCHEMA, epsilon=1.0, error=DataError)
    assert reader.read_all().num_rows == N


def towns(*numbers: int) -> Block:
    """A noisy first round that lists so many towns with these counts."""
    keys = tuple(f"t{place}" for place in range(len(numbers)))
    return Block(query=Common(about="town", threshold=1), scales=np.ones(1), values=np.array(numbers), keys=keys)


@pytest.mark.parametrize(("counts", "n_rows", "again"), [
    ((3880,), N, False), ((3879,), N, True), ((), N, True), ((3999,), None, True), ((1, 1, 1, 1), N, False),
    ((1, 1, 1, 1), None, False),
])  # fmt: skip
def test_a_second_round_is_for_columns_that_left_rows_in_other_and_have_room(
    counts: tuple[int, ...], n_rows: int | None, again: bool
) -> None:
    budget = Budget(epsilon=1.0)
    first = plan_search(SCHEMA, budget, n_rows=n_rows)
    both = first.then(budget, [towns(*counts)], n_rows)
    assert [finding.round for finding in both.findings] == [1, 0, 0, *([2] if again else [])]
    # A second round in the file does not change what followed from the first.
    assert both.findings == first.then(budget, [towns(*counts), towns(N)], n_rows).findings
    assert both.rest is not None
    assert first.rest is not None
    grown = budget.cost(both.rest).rho / budget.cost(first.rest).rho
    assert grown == pytest.approx(1.0 if again else 1 + SECOND / (1 - first.share), rel=1e-4)


@pytest.mark.parametrize("rows", [None, 8])
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 15.0])
def test_any_second_round_keeps_to_the_reserve(neighbors: Neighbors, epsilon: float, rows: int | None) -> None:
    """In rho, in mu^2 and in lost delta, whichever columns are chosen; and next to nothing of it is left unspent."""
    budget = Budget(epsilon=epsilon, neighbors=neighbors, rows_per_person=rows)
    schema = Schema(name="t", attributes=(*(replace(TOWN, name=f"town{i}") for i in range(4)), INCOME))
    first = plan_search(schema, budget, n_rows=None)
    assert first.rest is not None
    reserve = first.spend(budget) + first.rest
    assert budget.spent(reserve) <= epsilon
    assert reserve.lost_delta <= DELTA_SHARE * budget.delta
    full = [replace(towns(1, 1, 1, 1), query=Common(about=f"town{i}", threshold=1)) for i in range(4)]
    for chosen in range(5):
        both = first.then(budget, full[chosen:] if chosen < 4 else [], None)
        assert sum(finding.round == 2 for finding in both.findings) == chosen
        assert both.rest is not None
        spend = both.spend(budget) + both.rest
        assert budget.cost(reserve).covers(budget.cost(spend))
        parts = [(budget.cost(each).rho, budget.cost(each).mu_squared) for each in (spend, reserve)]
        assert max(np.array(parts[0]) / np.array(parts[1])) > 0.99
        assert spend.lost_delta <= reserve.lost_delta
        halves = [math.fsum(each.lost_delta for each in both.findings if each.round == number) for number in (1, 2)]
        assert all(0.05 < half / (DELTA_SHARE * budget.delta / 2) <= 1 for half in halves if half)


@pytest.mark.parametrize(("rows", "others"), [("a", "b"), ("aa", "ab"), ("aab", "abb"), ("ab", "a")])
def test_two_rounds_hold_their_claim_for_every_set_of_outputs(rows: str, others: str) -> None:
    """The whole law on two neighbors, at a delta that can be summed, where the second round follows from the first: it
    is drawn where nothing was shown. A reserve that counts one round alone does not hold it."""
    neighbors: Neighbors = "replace-one" if len(rows) == len(others) else "add-remove"
    budget = Budget(epsilon=1.0, delta=1e-2, neighbors=neighbors)
    scale = float(budget.less(DELTA_SHARE * budget.delta).scales(np.ones(2))[0])
    threshold = least_threshold(scale, DELTA_SHARE * budget.delta / 2)
    lost = chance_of_one(scale, threshold)
    epsilon = budget.spent(budget.tables([scale, scale], lost_delta=2 * lost))
    assert epsilon <= 1.0
    once = shown_laws(scale, threshold, rows, others)
    joint = [np.concatenate([own[1:], own[0] * own]) for own in once]
    for one, other in (joint, joint[::-1]):
        assert np.maximum(one - math.exp(epsilon) * other, 0.0).sum() <= budget.delta
    if (rows, others) == ("a", "b"):
        # What both rounds lose is lost: it is more than one of them was given.
        assert np.maximum(joint[0] - math.exp(50.0) * joint[1], 0.0).sum() > 1.5 * (once[0][1:].sum())


MANY = 40
CITIES = Schema(name="t", attributes=(replace(TOWN, name="city", at_most=60), SCHEMA.attribute("smoker")))


def cities(common: int = 1_000) -> pa.Table:
    names = [f"c{row % MANY:02d}" for row in range(MANY * common)] + [f"rare{row}" for row in range(MANY * common // 4)]
    return pa.table({"city": names, "smoker": [row % 3 == 0 for row in range(len(names))]})


def test_both_rounds_have_noise_of_their_own_and_are_paid_for() -> None:
    """Forty cities: their noise is equal in both rounds by chance far less than once in a million runs."""
    budget = Budget(epsilon=1.0)
    measurer = Measurer.open(cities(), CITIES, budget)
    measurer.count_values()
    search, (one, two) = measurer.search()
    first, second = search.findings
    assert [first.round, second.round] == [1, 2]
    assert second.scale < first.scale
    assert [block.query.bound(block.scales, budget).lost_delta for block in (one, two)] == [
        first.lost_delta,
        second.lost_delta,
    ]
    noise = [block.values[: MANY - 5] - 1_000 for block in (one, two)]
    assert (noise[0] != noise[1]).any()
    # Independent: a correlation of 35 pairs above 0.8 comes once in 10^8 runs.
    assert abs(np.corrcoef(noise[0], noise[1]).ravel()[1]) < 0.8
    spent = measurer._vault.spent
    assert spent.lost_delta == pytest.approx(first.lost_delta + second.lost_delta)
    assert budget.cost(spent).rho == pytest.approx(first.scale**-2.0 + second.scale**-2.0)
    assert len(find_domains(CITIES, search, (one, two)).attribute("city").values) == MANY


def test_counts_of_two_rounds_are_weighted_by_their_noise() -> None:
    blocks = [replace(towns(100, 50), scales=np.array([20.0])), replace(towns(80), scales=np.array([10.0]))]
    assert common_counts(blocks) == {"t0": pytest.approx(84.0), "t1": 50.0}


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("rounds") / "model.sklar"
    sklar.fit(cities(), CITIES, epsilon=1.0, method="binary").save(path)
    return path


def test_a_release_of_two_rounds_verifies_and_says_so(twice: Path) -> None:
    result, model = verify(twice, refit=True), sklar.load(twice)
    assert result.passed, result.lines()
    thresholds = [finding.threshold or 0 for finding in model.certificate.domains]
    text = "\n".join(model.summary())
    assert f"40 categories after a second round, by {thresholds[1]:,} rows or more after noise" in text
    assert thresholds[1] < thresholds[0]


@pytest.mark.parametrize(("place", "forgery"), [
    (1, None), (1, {"round": 1}), (1, {"round": 0}), (0, {"round": 0}), (0, {"round": 2}), (1, {"at_most": 39}),
    (0, {"at_most": 39}), (1, {"scale": 50.0}), (1, {"lost_delta": 0.0}), (1, {"threshold": 5}), (1, {"round": 3}),
])  # fmt: skip
def test_a_forged_second_round_fails(twice: Path, tmp_path: Path, place: int, forgery: dict[str, Any] | None) -> None:
    def forge(document: Any, _: Any) -> None:
        if forgery is None:
            del document["certificate"]["domains"][place]
        else:
            document["certificate"]["domains"][place].update(forgery)

    failed = {check.name for check in verify(forged(twice, forge, tmp_path / "f.sklar")).checks if not check.passed}
    assert "domains" in failed or failed == {"format"}


def test_a_search_of_categories_without_rounds_is_refused(twice: Path, tmp_path: Path) -> None:
    def forge(document: Any, _: Any) -> None:
        del document["certificate"]["domains"][0]["round"]

    with pytest.raises(ModelError, match="its search for 'city' must state a round if it is of categories, else none"):
        sklar.load(forged(twice, forge, tmp_path / "f.sklar"))


def test_a_forecast_tells_what_a_category_needs() -> None:
    forecast = sklar.forecast(SCHEMA, rows=N, epsilon=1.0)
    search = plan_search(SCHEMA, Budget(epsilon=1.0), n_rows=N)
    threshold, text = search.then(Budget(epsilon=1.0)).findings[-1].threshold or 0, "\n".join(forecast.lines())
    assert dict(forecast.split)["finding domains"] == pytest.approx(search.share, rel=0.05)
    assert search.share == pytest.approx(searches.FIRST + SECOND + MOST)
    # 4,000 rows are too few: what is lost is said before anything is spent.
    assert search.factor > 2
    assert f"A search has {search.factor:.1f} times the noise that numbers want: rows are too few for less." in text
    noise = search.findings[1].scale
    assert f"a value needs {math.ceil(4 * noise):,} rows to stand out, its range {math.ceil(9 * noise):,} rows" in text
    assert forecast.to_dict()["search_noise_factor"] == round(search.factor, 3)
    many = sklar.forecast(SCHEMA, rows=10**6, epsilon=1.0)
    assert "times the noise that numbers want" not in "\n".join(many.lines())
    assert f"town: a category needs {threshold:,} rows to be found ({threshold / N:.1%} of 4,000)." in text
    assert "4,000 rows at epsilon 1: noise hides no column as a whole." in text
    assert forecast.to_dict()["private_domains"]["town"]["threshold"] == threshold
    assert sum(share for _, share in forecast.split) == pytest.approx(1.0)


def test_texts_that_cannot_be_categories_are_left_out() -> None:
    rows = ["x" * 500, "", None, "?", "ok"]
    attribute = replace(TOWN, missing="?")
    for kind in (pl.String, pl.Categorical, pl.Enum([text for text in rows if text is not None])):
        towns = pl.DataFrame({"town": pl.Series(rows, dtype=pl.String).cast(kind)})
        (found,) = count([towns], Ask(values=(attribute,))).values
        assert dict(found.texts) == {"ok": 1}
        assert "ok" not in repr(found)
    for opaque in ([[1], [2]], [None, None]):
        (found,) = count([pl.DataFrame({"town": opaque})], Ask(values=(attribute,))).values
        assert not found.texts


RULES = """
ward = { type = "categorical", values = ["x", "y"] }
floor = { type = "categorical", values = ["1", "2"] }

[[rules]]
attribute = "floor"
determined_by = "ward"
map = { x = "1", y = "2" }
"""


def test_rules_and_private_domains_go_together_but_not_on_one_attribute() -> None:
    schema = Schema.from_toml(TOML + RULES)
    ward = ["x" if row % 2 else "y" for row in range(N)]
    table = TABLE.append_column("ward", pa.array(ward)).append_column("floor", pa.array(["1"] * N))
    model = sklar.fit(table, schema, epsilon=4.0, method="binary")
    rows = model.sample(200, seed=1).to_dicts()
    assert all((row["ward"] == "x") == (row["floor"] == "1") for row in rows)
    assert model.schema.rules == schema.rules
    assert "Ahausen" in model.schema.attribute("town").values
    rule = '[[rules]]\nforbid = { town = "Ahausen", smoker = "true" }'
    with pytest.raises(SchemaError, match="the domain of 'town' is private, so no rule names its levels"):
        Schema.from_toml(f"{TOML}\n{rule}")


@given(st.integers(-(10**9), 10**9), st.integers(33, 10**12), SEEDS)
@settings(max_examples=60, deadline=None)
def test_tables_are_nested_and_cover_the_bounds_whatever_was_divided(low: int, width: int, seed: int) -> None:
    ladder, generator = ladder_of(private("integer", low, low + width)), np.random.default_rng(seed)
    tables: list[Any] = []
    for _ in range(ladder.tables):
        cells = next_cells(ladder, tables, 1.0)
        assert all(set(before) <= set(after) for before, after in pairwise(cells))
        assert (np.diff(cells[-1]) > 0).all()
        assert (cells[-1][0], cells[-1][-1]) == (ladder.low, ladder.high)
        # Bounds of a million millions take as many tables as a thousand, and no more memory.
        assert cells[-1].size < 200_000
        tables.append(np.rint(generator.normal(0, 2.5, cells[-1].size - 1)).astype(np.int64))


def test_the_first_table_grows_with_the_logarithm_of_the_bound() -> None:
    wide, wider = (ladder_of(private("integer", 0, 10**power)) for power in (6, 9))
    assert wider.first().size - wide.first().size == 45
    assert wide.tables == wider.tables == 4
    assert wide.first()[:13].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14]
    both = ladder_of(private("integer", -1000, 1000)).first()
    assert (both == -both[::-1]).all()


def test_a_cell_with_rows_is_divided_and_a_cell_without_is_counted_again() -> None:
    ladder = ladder_of(private("integer", 0, 10**6))
    first = np.zeros(ladder.first().size - 1, dtype=np.int64)
    heavy = int(np.searchsorted(ladder.first(), 50_000))
    first[heavy] = 1000
    second = next_cells(ladder, [first], 10.0)[-1]
    assert np.diff(second[(second >= 50_000) & (second <= 60_000)]).tolist() == [500] * 20
    assert set(ladder.first()) <= set(second)
    assert second.size == ladder.first().size + 19


def test_dates_and_times_are_divided_by_the_calendar() -> None:
    low, high = days(dt.date(1990, 1, 1)), days(dt.date(2030, 1, 1))
    dates = ladder_of(private("date", low, high))
    assert dates.first().size == 41
    months = next_cells(dates, [1000 * np.eye(40, dtype=np.int64)[10]], 1.0)[-1]
    inside = [dt.date(1970, 1, 1) + dt.timedelta(days=int(day)) for day in months]
    assert [day for day in inside if day.year == 2000] == [dt.date(2000, month, 1) for month in range(1, 13)]
    assert ladder_of(private("time", 0, 86_400 * 10**6)).first().size == 25
    assert ladder_of(private("datetime", 0, 10**9 * 10**6)).steps == (1, 60, 900, 3600, 86_400)


@pytest.mark.parametrize(
    ("low", "high", "roundest"),
    [(38, 43, 40), (1234, 1289, 1250), (-7, 12, 0), (19_400, 21_000, 20_000), (7, 7, 7), (-1289, -1234, -1250)],
)
def test_the_roundest_number_is_what_a_person_would_write(low: int, high: int, roundest: int) -> None:
    assert ladder_of(private("integer", -(10**6), 10**6)).roundest(low, high) == roundest


def test_reals_have_a_grain_and_steps_are_kept() -> None:
    real = ladder_of(private("real", 0.0, 1000.0))
    assert real.axis(real.units(np.array([0.29, 19.99, 1000.0, np.inf]))).tolist()[:2] == [0.29, 19.99]
    stepped = ladder_of(private("real", 0.0, 1000.0, step=0.25))
    assert stepped.units(np.array([0.25, 0.5, 0.74])).tolist() == [1, 2, 3]
    assert not stepped.steps
    assert ladder_of(private("integer", 0, 10**6, step=100)).axis(np.array([3])).tolist() == [300]


def test_decade_by_step_has_one_cell_for_each_number() -> None:
    ladder = ladder_of(private("integer", 0, 10**6))
    cells = ladder.rounding_cells(np.array([0, 7, 15, 20, 1500, 999_999]))
    digits, steps = np.divmod(cells, len(ladder.steps))
    assert digits.tolist() == [0, 1, 2, 2, 4, 6]
    assert [ladder.steps[step] for step in steps.tolist()[1:]] == [1, 5, 10, 500, 1]
    assert cells.max() < ladder.rounding_size


def test_thresholds_are_for_all_rows_of_a_person() -> None:
    schema = Schema(name="t", attributes=(TOWN,))
    budgets = [Budget(epsilon=1.0, rows_per_person=rows) for rows in (1, 8)]
    one, eight = (plan_search(schema, budget, n_rows=None).findings[0] for budget in budgets)
    assert eight.scale == pytest.approx(8 * one.scale, rel=0.01)
    assert (eight.threshold or 0) > 7 * (one.threshold or math.inf)
    assert eight.lost_delta <= 0.1 * budgets[1].delta
