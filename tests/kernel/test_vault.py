"""The vault: what leaves, at which noise, within which reserve, and what it depends on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.errors import BudgetError, DataError
from sklar.kernel import noise
from sklar.kernel import vault as door
from sklar.kernel.cells import Cells
from sklar.kernel.queries import Block, Common, Distances, Parities, Shares, Tables
from sklar.kernel.theorems import Budget, Neighbors, Spend, chance_of_one
from sklar.kernel.vault import Vault
from tests.conftest import refuses

CELLS = Cells([4, 5, 2])
ONE_WAY, PAIRS, TOTAL = (Tables(cells=CELLS, order=order) for order in (1, 2, 0))
BUDGETS = [
    Budget(epsilon=1.0),
    Budget(epsilon=1.0, mechanism="laplace"),
    Budget(epsilon=1.0, mechanism="laplace", composition="advanced"),
    Budget(epsilon=1.0, mechanism="laplace", composition="basic"),
]


def codes(rows: int, seed: int = 0) -> NDArray[np.int32]:
    generator = np.random.default_rng(seed)
    return np.stack([generator.integers(-1, size, rows) for size in CELLS.sizes]).astype(np.int32)


def opened(budget: Budget, scales: NDArray[np.float64], *, times: int = 1, rows: int = 40) -> Vault:
    """A vault with so many looks at pairs reserved."""
    held = Vault(budget)
    held.hold(rows)
    held.reserve(sum([PAIRS.bound(scales, budget)] * times, Spend.of([])))
    return held


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[float], list[int]]]:
    """Record what is asked of the sampler, and draw zeros. Only a test can: assignments to the module are refused."""
    calls: list[tuple[list[float], list[int]]] = []

    def draw(scales: NDArray[np.float64], sizes: NDArray[np.int64], **_rest: int) -> NDArray[np.int64]:
        calls.append((scales.tolist(), sizes.tolist()))
        return np.zeros(int(sizes.sum()), dtype=np.int64)

    monkeypatch.setitem(vars(door), "discrete_gaussian", draw)
    monkeypatch.setitem(vars(door), "discrete_laplace", draw)
    return calls


def test_the_literal_algorithm_2_would_be_caught() -> None:
    """The paper's Algorithm 2, read literally: four cells for every pair of dummies. Its claim is one e' per pair of
    attributes; replacing a row moves two cells of each of 2(|A| + |B| - 2) dummy pairs: the same count finds it."""
    sizes = (4, 5)

    def literal(a: int, b: int) -> NDArray[np.int64]:
        x, y = np.eye(sizes[0], dtype=np.int64)[a], np.eye(sizes[1], dtype=np.int64)[b]
        return np.concatenate([np.outer(u, v).ravel() for u in (x, 1 - x) for v in (y, 1 - y)])

    rows = [literal(a, b) for a in range(4) for b in range(5)]
    worst = max(int(np.abs(one - other).sum()) for one in rows for other in rows)
    # Each unit shift costs e'/2 under Lap(2/e').
    assert worst / 2 == 2 * (sizes[0] + sizes[1] - 2)


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: f"{budget.mechanism}-{budget.composition}")
def test_exact_answers_go_through_with_noise_of_these_scales(budget: Budget, no_noise: Any) -> None:
    scales = budget.scales(np.ones(3))
    exact = PAIRS.count(codes(40))
    block = opened(budget, scales).measure(PAIRS, exact, scales)
    assert block.values.tolist() == exact.tolist()
    assert no_noise == [(scales.tolist(), [20, 8, 10])]
    assert block.query is PAIRS


def test_every_cell_of_the_public_domain_has_noise_of_the_scale_of_its_table() -> None:
    """No rows at all: zeros must be noised as well."""
    scales, budget = np.array([64.0, 128.0, 256.0]), Budget(epsilon=3.0)
    held = opened(budget, scales, times=200)
    drawn = [held.measure(PAIRS, np.zeros(38, dtype=np.int64), scales) for _ in range(200)]
    values = np.stack([block.values for block in drawn])
    # Noise of scale 64 repeats in a cell 200 times with a chance below 1e-400.
    assert not np.all(values == values[0], axis=0).any()
    for scale, own in zip(scales, np.split(values, PAIRS.offsets[1:-1], axis=1), strict=True):
        # The relative error of the sd over 1,600 draws or more is at most 1.8%; six of them fail once in 10^8.
        assert np.std(own) == pytest.approx(scale, rel=0.11)


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_the_number_of_rows_leaves_exactly_only_where_neighbors_share_it(neighbors: Neighbors) -> None:
    budget = Budget(epsilon=1.0, neighbors=neighbors)
    held = Vault(budget)
    held.hold(1234)
    assert held.n_rows == (1234 if neighbors == "replace-one" else None)
    held.reserve(TOTAL.bound(np.array([30.0]), budget))
    assert abs(int(held.measure(TOTAL, np.array([1234]), [30.0]).values[0]) - 1234) < 12 * 30


def test_nothing_is_measured_without_a_reserve_and_none_is_above_the_budget() -> None:
    budget = Budget(epsilon=1.0)
    scales = budget.scales(np.ones(3))
    exact = np.zeros(38, dtype=np.int64)
    refuses("reserved before it is measured", Vault(budget).measure, PAIRS, exact, scales, error=BudgetError)
    with pytest.raises(BudgetError, match=r"would bring the privacy spent to epsilon=1\.\d+, above the budget of 1"):
        Vault(budget).reserve(PAIRS.bound(np.nextafter(scales * 0.99, 0).astype(np.float32).astype(float), budget))
    charged: list[Spend] = []
    held = Vault(budget, charge=charged.append)
    held.reserve(PAIRS.bound(scales, budget))
    assert len(charged) == 1
    refuses("a release is charged once", held.reserve, Spend.of([]), error=BudgetError)
    held.measure(PAIRS, exact, scales)
    refuses("costs more than was reserved", held.measure, PAIRS, exact, np.full(3, 2.0**20), error=BudgetError)


@pytest.mark.parametrize(("scale", "tables"), [(2.5, 2), (8.0, 20)])
def test_both_currencies_bind_at_the_reserved_sums(scale: float, tables: int) -> None:
    """At small scales rho is the tighter currency, at large ones mu^2. A reserve of one kind, spent on the other, would
    pass where the smaller bound is taken anew at every call: 13 tables at 2.5, 141 at 8."""
    reserved = Spend.of([9.4], 200)
    top = Budget(epsilon=50.0)
    budget = Budget(epsilon=top.spent(reserved))
    held = Vault(budget)
    held.hold(10)
    held.reserve(reserved)
    paid, query = budget.cost(reserved), Tables(cells=Cells([2]), order=1)
    refused = 0
    for _ in range(10 * tables):
        try:
            held.measure(query, np.zeros(2, dtype=np.int64), [scale])
        except BudgetError:
            refused += 1
    drawn = budget.cost(held.spent)
    assert 0 < refused < 10 * tables
    assert drawn.rho <= paid.rho * (1 + 1e-9)
    assert drawn.mu_squared <= paid.mu_squared * (1 + 1e-9)
    more = budget.cost(held.spent + query.bound(np.array([scale]), budget))
    assert more.rho > paid.rho or more.mu_squared > paid.mu_squared


def test_lost_delta_binds_too() -> None:
    budget = Budget(epsilon=1.0)
    query = Common(about="town", threshold=2_000)
    reserved = query.bound(np.array([300.0]), budget)
    assert reserved.lost_delta == chance_of_one(300.0, 2_000)
    held = Vault(budget)
    held.hold(100)
    held.reserve(reserved)
    lower = Common(about="town", threshold=1_990)
    refuses("costs more than was reserved", held.measure, lower, {"a": 5}, [300.0], error=BudgetError)
    block = held.measure(query, {"a": 5, "b": 10_000}, [300.0])
    # 'a' reaches the threshold with a chance below 1e-10, and 'b' misses it with one below 1e-100.
    assert block.keys == ("b",)


class Cheap(Tables):
    def bound(self, scales: NDArray[np.float64], budget: Budget) -> Spend:
        return Spend.of([])


def test_laplace_noise_has_the_reserved_scales_and_queries_are_the_kernels() -> None:
    budget, exact = Budget(epsilon=1.0, mechanism="laplace"), np.zeros(38, dtype=np.int64)
    scales = budget.scales(np.ones(3))
    held = opened(budget, scales)
    refuses("costs more than was reserved", held.measure, PAIRS, exact, scales * 2, error=BudgetError)
    refuses("their bounds are proven", held.measure, Cheap(cells=CELLS, order=2), exact, scales, error=BudgetError)
    held.measure(PAIRS, exact, scales)


@pytest.mark.parametrize(
    "exact",
    [np.full(38, 5.25), np.zeros(37, dtype=np.int64), np.zeros((38, 1), dtype=np.int64), np.zeros(38, dtype=np.uint64)],
)
def test_exact_answers_are_whole_numbers_of_every_cell(exact: NDArray[Any]) -> None:
    held = opened(Budget(epsilon=1.0), np.full(3, 100.0))
    refuses("a whole number for every cell", held.measure, PAIRS, exact, [100.0] * 3, error=BudgetError)
    assert held.spent.scales.size == 0


def test_what_left_cannot_be_changed_and_scales_are_copied(no_noise: Any) -> None:
    scales, exact = np.full(3, 100.0), np.arange(38)
    block = opened(Budget(epsilon=1.0), scales).measure(PAIRS, exact, scales)
    scales[:] = 1.0
    assert block.scales.tolist() == [100.0] * 3
    assert exact.tolist() == list(range(38))
    for array in (block.scales, block.values):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_every_pass_counts_the_same_rows_and_some() -> None:
    held = Vault(Budget(epsilon=1.0))
    refuses("has no rows", held.hold, 0, error=DataError)
    held.hold(10)
    held.hold(10)
    refuses("the table changed while it was read", held.hold, 11, error=DataError)
    Vault(Budget(epsilon=1.0, neighbors="add-remove")).hold(0)


def test_every_kind_of_query_leaves_as_a_block(no_noise: Any) -> None:
    budget, bits = Budget(epsilon=1.0, rows_per_person=1), Cells([2, 2, 2])
    rows = codes(20)[:, :] % 2
    tables = Tables(cells=bits, order=3)
    asked: list[tuple[Any, Any, list[float]]] = [
        (tables, tables.count(rows), [900.0]),
        (Parities(cells=bits, orders=2), Parities(cells=bits, orders=2).count(rows), [900.0, 900.0]),
        (Distances(of=tables, reference=np.zeros(8, dtype=np.int64)), np.array([7]), [9000.0]),
        (Shares(what="number", lengths=np.array([2]), each=4), np.array([3, 5]), [9000.0]),
        (Common(about="town", threshold=6_000), {"x": 7_000}, [900.0]),
    ]
    held = Vault(budget)
    held.reserve(sum((query.bound(np.array(scales), budget) for query, _, scales in asked), Spend.of([])))
    blocks = [held.measure(*question) for question in asked]
    assert all(type(block) is Block for block in blocks)
    assert [block.values.tolist() for block in blocks[2:]] == [[7], [3, 5], [7_000]]
    assert blocks[-1].keys == ("x",)


def test_threads_that_measure_at_once_do_not_overspend() -> None:
    budget = Budget(epsilon=1.0)
    scales = budget.scales(np.ones(3))
    held = opened(budget, scales)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(held.measure, PAIRS, np.zeros(38, dtype=np.int64), scales) for _ in range(8)]
    assert sum(isinstance(each.exception(), BudgetError) for each in asked) == 7


@pytest.mark.parametrize("module", [door, noise])
def test_noise_cannot_be_replaced_by_assignment(module: Any) -> None:
    for name in ("discrete_gaussian", "discrete_laplace", "anything"):
        with pytest.raises(AttributeError, match=rf"^'{name}' decides what leaves the private side, so it cannot be"):
            setattr(module, name, lambda *_: 0)
    with pytest.raises(AttributeError, match="cannot be replaced"):
        del module.discrete_gaussian
    for name in ("measure", "_require"):
        refuses("cannot be replaced", setattr, Vault, name, None, error=AttributeError)
        refuses("cannot be replaced", delattr, Vault, name, error=AttributeError)


def test_entropy_cannot_be_replaced_by_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler holds the operating system's function itself, not the name under which others look it up."""
    monkeypatch.setattr("os.urandom", lambda count: bytes(count))
    drawn = [noise.discrete_gaussian(np.full(1, 1000.0), np.full(1, 20)).tolist() for _ in range(2)]
    # Equal with a chance below 1e-60.
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(("neighbors", "rows", "kind"), [
    ("replace-one", 40, np.int32), ("replace-one", 2**31 - 1 - 128 * 100, np.int32),
    ("replace-one", 2**31 - 128 * 100, np.int64), ("add-remove", 40, np.int64),
])  # fmt: skip
def test_very_many_cells_take_32_bits_where_public_facts_say_that_these_hold_them(
    neighbors: Neighbors, rows: int, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vars(door), "MANY_CELLS", 20)
    scales = np.full(3, 100.0)
    block = opened(Budget(epsilon=1.0, neighbors=neighbors), scales, rows=rows).measure(PAIRS, np.arange(38), scales)
    assert block.values.dtype == np.dtype(kind)
