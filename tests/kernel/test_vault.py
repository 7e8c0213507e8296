"""The vault: what leaves, at which noise, at which cost, and what it depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import sklar
from sklar.budget.plan import plan_tables
from sklar.errors import BudgetError, DataError, SchemaError
from sklar.kernel import vault as door
from sklar.kernel.count import Counts, count_plainly
from sklar.kernel.tables import NoisyTables, Plan
from sklar.kernel.theorems import Budget, Neighbors, Spend, chance_of_one
from sklar.kernel.vault import Vault
from sklar.public.schema import Attribute, Schema

SCHEMA = Schema(
    name="t",
    attributes=(
        Attribute(name="a", kind="categorical", values=tuple("wxyz")),
        Attribute(name="b", kind="categorical", values=tuple("pqrst")),
        Attribute(name="c", kind="boolean", missing=""),
    ),
)
CELLS = SCHEMA.cells


def codes(rows: int, seed: int = 0) -> NDArray[np.int32]:
    generator = np.random.default_rng(seed)
    return np.stack([generator.integers(-1, size, rows) for size in CELLS.sizes]).astype(np.int32)


def vault(rows: NDArray[np.int32], budget: Budget) -> Vault:
    held = Vault(budget)
    held.hold(count_plainly(rows, CELLS), CELLS)
    return held


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Record what is asked of the sampler, and draw zeros. Only a test can: assignments to the module are refused."""
    calls: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = []

    def draw(scales: NDArray[np.float64], sizes: NDArray[np.int64], **_threads: int) -> NDArray[np.int64]:
        calls.append((scales.copy(), sizes.copy()))
        return np.zeros(int(sizes.sum()), dtype=np.int64)

    monkeypatch.setitem(vars(door), "discrete_gaussian", draw)
    monkeypatch.setitem(vars(door), "discrete_laplace", draw)
    return calls


def flat(tables: NoisyTables) -> NDArray[np.int64]:
    """All cells that left, in the order in which noise is laid on them."""
    total = [] if tables.total is None else [tables.total]
    return np.concatenate([total, tables.one_way, tables.pairs]).astype(np.int64)


BUDGETS = [
    Budget(epsilon=1.0),
    Budget(epsilon=1.0, mechanism="laplace"),
    Budget(epsilon=1.0, mechanism="laplace", composition="advanced"),
    Budget(epsilon=1.0, mechanism="laplace", composition="basic"),
]


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: f"{budget.mechanism}-{budget.composition}")
def test_no_replacement_of_a_row_shifts_more_than_is_claimed(budget: Budget, no_noise: Any) -> None:
    """With the noise recorded instead of drawn: every replacement of one row moves at most `shifts` cells of a table by
    one, so that the summed cost of the shifts at the drawn scales stays within what the certificate claims."""
    rows = codes(2)
    plan = plan_tables(CELLS, budget, one_way_share=None if budget.composition == "advanced" else 0.4)
    reference = flat(vault(rows, budget).measure(plan))
    scales, sizes = no_noise[0]
    per_cell = np.repeat(scales, sizes)
    assert per_cell.size == reference.size
    worst = 0.0
    every = np.stack(np.meshgrid(*[np.arange(-1, size) for size in CELLS.sizes]), axis=-1).reshape(-1, 3)
    for row in range(rows.shape[1]):
        for replacement in every:
            changed = rows.copy()
            changed[:, row] = replacement
            shift = np.abs(flat(vault(changed, budget).measure(plan)) - reference)
            assert shift.max() <= 1
            cost = np.sum(shift**2 / per_cell**2) if budget.mechanism == "gaussian" else np.sum(shift / per_cell)
            worst = max(worst, float(cost))
    claimed = (
        np.sum(budget.shifts / plan.scales**2)
        if budget.mechanism == "gaussian"
        else np.sum(budget.shifts / plan.scales)
    )
    assert worst <= claimed * (1 + 1e-12)
    # The bound is met, so a claim with half the sensitivity would fail here.
    assert worst == pytest.approx(float(claimed))


def test_adding_a_row_shifts_one_cell_of_each_table_and_the_total(no_noise: Any) -> None:
    budget = Budget(epsilon=1.0, neighbors="add-remove")
    rows = codes(7)
    plan = plan_tables(CELLS, budget)
    shift = np.abs(
        flat(vault(rows, budget).measure(plan)) - flat(vault(np.ascontiguousarray(rows[:, 1:]), budget).measure(plan))
    )
    assert shift.max() <= 1
    assert shift.sum() <= plan.scales.size
    full = np.zeros((3, 1), dtype=np.int32)
    shift = flat(vault(np.concatenate([rows, full], axis=1), budget).measure(plan)) - flat(
        vault(rows, budget).measure(plan)
    )
    assert shift.sum() == plan.scales.size == 1 + 3 + 3


def test_the_literal_algorithm_2_would_be_caught() -> None:
    """The paper's Algorithm 2, read literally: four cells for every pair of dummies. Its claim is one e' per pair of
    attributes; replacing a row moves two cells of each of 2(|A| + |B| - 2) dummy pairs: the same count finds it."""
    sizes = (4, 5)

    def literal(a: int, b: int) -> NDArray[np.int64]:
        x, y = np.eye(sizes[0], dtype=np.int64)[a], np.eye(sizes[1], dtype=np.int64)[b]
        cells = [np.outer(u, v) for u in (x, 1 - x) for v in (y, 1 - y)]
        return np.concatenate([cell.ravel() for cell in cells])

    worst = max(
        int(np.abs(literal(a, b) - literal(p, q)).sum())
        for a in range(4)
        for b in range(5)
        for p in range(4)
        for q in range(5)
    )
    # Each unit shift costs e'/2 under Lap(2/e').
    assert worst / 2 == 2 * (sizes[0] + sizes[1] - 2)


def test_every_cell_of_the_public_domain_is_noised() -> None:
    """One row only: all other cells are zeros, and zeros must be noised as well."""
    one = np.zeros((3, 1), dtype=np.int32)
    budget = Budget(epsilon=0.1)
    drawn = [flat(vault(one, budget).measure(plan_tables(CELLS, budget))) for _ in range(4)]
    never = np.all(np.stack(drawn) == drawn[0], axis=0)
    # Noise of scale over 100 repeats in a cell four times with chance below 1e-6 each, over 65 cells.
    assert not never.any()


def test_noise_has_the_planned_scale_in_every_table() -> None:
    budget = Budget(epsilon=0.5)
    plan = plan_tables(CELLS, budget, one_way_share=0.7)
    rows = codes(50)
    exact = count_plainly(rows, CELLS)
    one_way, pairs = [], []
    for _ in range(200):
        tables = vault(rows, budget).measure(plan)
        one_way.append(tables.one_way - exact.one_way)
        pairs.append(tables.pairs - exact.pairs)
    # Relative error of the sd over 200 x 12 and 200 x 47 draws: 1.4% and 0.7%; 6 of them fail once in 10^8.
    assert np.std(one_way) == pytest.approx(plan.one_way[0], rel=0.087)
    assert np.std(pairs) == pytest.approx(plan.pairs[0], rel=0.044)
    assert plan.one_way[0] < 0.8 * plan.pairs[0]


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_the_number_of_rows_leaves_exactly_only_where_neighbors_share_it(neighbors: Any) -> None:
    budget = Budget(epsilon=1.0, neighbors=neighbors)
    held = vault(codes(1234), budget)
    tables = held.measure(plan_tables(CELLS, budget))
    if neighbors == "replace-one":
        assert held.n_rows == tables.n_rows == 1234
        assert tables.total is None
    else:
        assert held.n_rows is None
        assert tables.n_rows is None
        assert tables.total is not None
        assert abs(tables.total - 1234) < 12 * (tables.plan.total or 0)


def test_a_vault_refuses_to_overspend() -> None:
    budget = Budget(epsilon=1.0)
    plan = plan_tables(CELLS, budget)
    held = vault(codes(10), budget)
    held.measure(plan)
    with pytest.raises(
        BudgetError, match=r"^this plan would bring the privacy spent to epsilon=1\.\d+, above the budget"
    ):
        held.measure(plan)


def test_stages_share_one_budget() -> None:
    budget = Budget(epsilon=1.0)
    whole = plan_tables(CELLS, budget, one_way_share=0.5)
    held = vault(codes(10), budget)
    first = held.measure(Plan(one_way=whole.one_way, pairs=np.empty(0)))
    assert first.one_way.shape == (12,)
    assert first.pairs.size == 0
    second = held.measure(Plan(one_way=np.empty(0), pairs=whole.pairs))
    assert second.one_way.size == 0
    assert budget.spent(held.spent) == pytest.approx(budget.spent(whole.spend))
    with pytest.raises(BudgetError, match="above the budget"):
        held.measure(Plan(one_way=whole.one_way, pairs=np.empty(0)))


def test_a_plan_for_another_table_is_refused() -> None:
    budget = Budget(epsilon=1.0)
    with pytest.raises(BudgetError, match="the plan must cover all tables of 3 attributes"):
        vault(codes(5), budget).measure(Plan(one_way=np.full(2, 1e4), pairs=np.full(1, 1e4)))
    with pytest.raises(BudgetError, match="the number of rows is measured only where it is not public"):
        vault(codes(5), budget).measure(Plan(one_way=np.full(3, 1e4), pairs=np.full(3, 1e4), total=1e4))


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: f"{budget.mechanism}-{budget.composition}")
def test_what_is_drawn_does_not_depend_on_the_rows(budget: Budget, no_noise: Any) -> None:
    plan = plan_tables(CELLS, budget)
    for rows in (codes(40, 1), np.zeros((3, 40), dtype=np.int32), np.full((3, 40), -1, dtype=np.int32)):
        vault(rows, budget).measure(plan)
    first = no_noise[0]
    for scales, sizes in no_noise[1:]:
        assert (scales == first[0]).all()
        assert (sizes == first[1]).all()


def test_a_table_without_rows_is_refused_where_its_size_is_public() -> None:
    empty = pa.table({name: pa.array([], pa.string()) for name in SCHEMA.names})
    with pytest.raises(DataError, match=r"^the table has no rows\. It must hold at least one\.$"):
        sklar.measure(empty, SCHEMA, Budget(epsilon=1.0))
    # Under add-remove an error would tell an empty table from a table of one.
    assert sklar.measure(empty, SCHEMA, Budget(epsilon=1.0, neighbors="add-remove")).n_rows is None


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_progress_tells_the_number_of_rows_only_where_it_is_public(tmp_path: Path, neighbors: Neighbors) -> None:
    told: list[object] = []

    class Watch:
        def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
            told.append((name, total, unit))

        def advance(self, steps: int) -> None:
            told.append(steps)

    pq.write_table(pa.table({name: ["0", "1", "x"] for name in SCHEMA.names}), tmp_path / "t.parquet")
    budget = Budget(epsilon=1.0, neighbors=neighbors)
    sklar.measure(tmp_path / "t.parquet", SCHEMA, budget, progress=Watch())
    counted = [("count", 3, "rows"), 3] if neighbors == "replace-one" else [("count", None, "")]
    assert told == [*counted, ("measure", None, "")]


def test_an_unreviewed_schema_never_meets_the_rows() -> None:
    waiting = Schema(name="t", attributes=(Attribute(name="a", kind="boolean", reviewed=False),))
    with pytest.raises(SchemaError, match="not reviewed: a"):
        sklar.measure("no-such-file.csv", waiting, Budget(epsilon=1.0))


def test_counts_beyond_32_bits_are_exact(no_noise: Any) -> None:
    many = 2**31
    part = count_plainly(np.zeros((3, 1), dtype=np.int32), CELLS)
    large = Counts(n_rows=many - 1, one_way=part.one_way * (many - 1), pairs=part.pairs * (many - 1))
    budget = Budget(epsilon=1.0)
    held = Vault(budget)
    held.hold(large + part, CELLS)
    tables = held.measure(plan_tables(CELLS, budget))
    assert tables.n_rows == tables.one_way[0] == tables.pairs.max() == many


def test_a_vault_holds_one_whole_table() -> None:
    held = Vault(Budget(epsilon=1.0))
    with pytest.raises(BudgetError, match=r"^the vault holds no table yet\. Count one first\.$"):
        held.measure(plan_tables(CELLS, Budget(epsilon=1.0)))
    part = count_plainly(codes(4), CELLS)
    with pytest.raises(BudgetError, match=r"^counts must cover all tables of their attributes\. Count them by"):
        held.hold(Counts(n_rows=4, one_way=part.one_way, pairs=part.pairs[1:]), CELLS)
    held.hold(part, CELLS)
    with pytest.raises(BudgetError, match=r"^a vault holds the counts of one table\. Open another for another"):
        held.hold(part, CELLS)


def test_measuring_does_not_change_what_is_held() -> None:
    budget = Budget(epsilon=1.0)
    counts = count_plainly(codes(40), CELLS)
    before = counts.one_way.copy(), counts.pairs.copy()
    held = Vault(budget)
    held.hold(counts, CELLS)
    held.measure(plan_tables(CELLS, budget))
    assert (counts.one_way == before[0]).all()
    assert (counts.pairs == before[1]).all()


def test_a_histogram_covers_its_whole_grid_and_costs_one_table() -> None:
    budget = Budget(epsilon=1.0)
    scale = float(budget.scales(np.ones(2))[0])
    held = Vault(budget)
    first, second = (held.histogram(np.zeros(400, dtype=np.int64), scale) for _ in range(2))
    # 400 cells of the same noise twice: the chance that a tenth of them agree is below 1e-30 at this scale.
    assert np.count_nonzero(first == second) < 40
    assert budget.spent(held.spent) == budget.spent(Spend.of([scale], [2]))
    with pytest.raises(BudgetError, match="above the budget"):
        held.histogram(np.zeros(4, dtype=np.int64), scale)


def test_common_values_reach_the_threshold_and_pay_for_its_failures(no_noise: Any) -> None:
    budget = Budget(epsilon=1.0)
    held = Vault(budget)
    shown = held.common({"rare": 1, "edge": 200, "often": 4000, "below": 199}, 30.0, 200)
    assert shown == {"edge": 200, "often": 4000}
    assert held.spent.lost_delta == chance_of_one(30.0, 200)
    assert budget.spent(held.spent) > budget.spent(Spend.of([30.0]))
    assert no_noise[0][1].tolist() == [4]


@pytest.mark.parametrize("module", ["vault", "noise"])
def test_noise_cannot_be_replaced_by_assignment(module: str) -> None:
    from sklar.kernel import noise

    target: Any = {"vault": door, "noise": noise}[module]
    for name in ("discrete_gaussian", "discrete_laplace", "anything"):
        with pytest.raises(AttributeError, match=rf"^'{name}' decides what leaves the private side, so it cannot be"):
            setattr(target, name, lambda *_: 0)
    with pytest.raises(AttributeError, match="cannot be replaced"):
        del target.discrete_gaussian
    for name in ("measure", "_draw"):
        with pytest.raises(AttributeError, match="cannot be replaced"):
            setattr(Vault, name, None)
    with pytest.raises(AttributeError, match="cannot be replaced"):
        del Vault.measure


def test_entropy_cannot_be_replaced_by_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler holds the operating system's function itself, not the name under which others look it up."""
    monkeypatch.setattr("os.urandom", lambda count: bytes(count))
    scales, sizes = np.full(1, 1000.0), np.full(1, 20)
    from sklar.kernel.noise import discrete_gaussian

    # Equal with a chance below 1e-60.
    assert discrete_gaussian(scales, sizes).tolist() != discrete_gaussian(scales, sizes).tolist()


@pytest.mark.parametrize(("neighbors", "rows", "kind"), [("replace-one", 40, np.int32), ("add-remove", 40, np.int64)])
def test_very_many_cells_take_32_bits_where_public_facts_say_that_these_hold_them(
    neighbors: Neighbors, rows: int, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every cell has noise then too: of scale above 100, which repeats in a cell four times less than once in 1e6."""
    monkeypatch.setitem(vars(door), "MANY_CELLS", 20)
    budget = Budget(epsilon=0.1, neighbors=neighbors)
    drawn = [vault(codes(rows), budget).measure(plan_tables(CELLS, budget)) for _ in range(4)]
    assert {tables.pairs.dtype for tables in drawn} == {np.dtype(kind)}
    assert {tables.one_way.dtype for tables in drawn} == {np.dtype(np.int64)}
    assert not np.all(np.stack([flat(tables) for tables in drawn]) == flat(drawn[0]), axis=0).any()


def test_counts_that_32_bits_do_not_hold_with_their_noise_take_64(
    monkeypatch: pytest.MonkeyPatch, no_noise: Any
) -> None:
    monkeypatch.setitem(vars(door), "MANY_CELLS", 20)
    asked: list[bool] = []
    inner = vars(door)["discrete_gaussian"]

    def draw(scales: NDArray[np.float64], sizes: NDArray[np.int64], *, narrow: bool, **rest: int) -> NDArray[np.int64]:
        asked.append(narrow)
        drawn: NDArray[np.int64] = inner(scales, sizes, **rest)
        return drawn

    monkeypatch.setitem(vars(door), "discrete_gaussian", draw)
    budget, few = Budget(epsilon=0.1), count_plainly(codes(40), CELLS)
    plan = plan_tables(CELLS, budget)
    for n_rows in (40, 2**31 - 1 - int(128 * plan.scales.max()), 2**31):
        held = Vault(budget)
        held.hold(Counts(n_rows=n_rows, one_way=few.one_way, pairs=few.pairs), CELLS)
        held.measure(plan)
    assert asked == [True, True, False]
