"""Parities of bits: what a row can move, what that costs, and that nothing leaves but what a plan pays for."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.budget.method import Method
from sklar.budget.plan import plan_release
from sklar.errors import BudgetError, DataError
from sklar.kernel.cells import Cells
from sklar.kernel.count import count_plainly
from sklar.kernel.parities import moved_sets, odd_trios_plainly, parity_spend
from sklar.kernel.tables import Plan
from sklar.kernel.theorems import BLUR, Budget, Neighbors, Spend
from sklar.kernel.vault import Vault

EXACT = 1e9


def parities(bits: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Counts of odd sets of one, two and three bits of rows, by definition: bits of shape (rows, m)."""
    m = bits.shape[1]
    return [
        np.array([int((bits[:, list(chosen)].sum(axis=1) % 2).sum()) for chosen in combinations(range(m), order)])
        for order in (1, 2, 3)
    ]


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_rows_move_what_the_theorem_says(m: int) -> None:
    wanted = moved_sets(m)
    every = np.array(list(product((0, 1), repeat=m)))
    for one in every:
        for other in every:
            moved = [np.abs(a - b) for a, b in zip(parities(one[None, :]), parities(other[None, :]), strict=True)]
            assert all(each.max(initial=0) <= 1 for each in moved)
            assert [int(each.sum()) for each in moved] == wanted[int((one != other).sum())].tolist()


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("m", [2, 3, 4, 7, 16, 200])
def test_a_spend_pays_for_the_row_that_moves_most(m: int, neighbors: Neighbors) -> None:
    generator = np.random.default_rng(m)
    shifts = 2 if neighbors == "replace-one" else 1
    for _ in range(200):
        scales = np.exp(generator.uniform(-1, 6, int(generator.integers(1, 4 if m > 2 else 3))))
        spend = parity_spend(m, scales, neighbors)
        moved = moved_sets(m)[:, : scales.size]
        paid = shifts * float(np.sum(spend.tables / spend.scales**2))
        worst = float((moved @ scales**-2.0).max())
        assert worst <= paid
        if scales.min() ** 2 > BLUR:
            curve = shifts * float(np.sum(spend.tables / (spend.scales**2 - BLUR)))
            assert float((moved @ (1 / (scales**2 - BLUR))).max()) <= curve
            assert curve <= 1.0001 * float((moved @ (1 / (scales**2 - BLUR))).max()) or scales.min() < 20
        # Not far more than is owed, where noise is not tiny.
        assert paid <= worst * (1.02 if scales.min() > 20 else 3.0)


def bits(m: int, rows: int, seed: int = 0) -> NDArray[np.int64]:
    """Codes of rows, shape (m, rows), some of which have no level."""
    return np.random.default_rng(seed).choice([-1, 0, 1], size=(m, rows), p=[0.1, 0.5, 0.4])


def vault(codes: NDArray[np.int64], budget: Budget) -> Vault:
    cells = Cells([2] * len(codes))
    held = Vault(budget)
    held.hold(count_plainly(codes, cells), cells)
    return held


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_what_is_counted_are_odd_rows_with_values_outside_as_zeros(neighbors: Neighbors) -> None:
    codes = bits(5, 400)
    budget = Budget(epsilon=EXACT, neighbors=neighbors)
    plan = plan_release(Cells([2] * 5), budget, Method(), n_rows=400 if budget.rows_are_public else None).first
    held = vault(codes, budget)
    if plan.trios.size:
        held.hold_trios(odd_trios_plainly(codes, Cells([2] * 5)), 400)
    noisy = held.measure(plan)
    ones, pairs, trios = parities((codes == 1).astype(np.int64).T)
    assert np.array_equal(noisy.one_way, ones)
    assert np.array_equal(noisy.pairs, pairs)
    assert np.array_equal(noisy.trios, trios[: plan.trios.size])
    assert plan.trios.size == (10 if neighbors == "replace-one" else 0)
    assert noisy.total == (None if neighbors == "replace-one" else 400)


def test_noise_is_on_every_parity() -> None:
    codes, budget = bits(6, 5_000), Budget(epsilon=1.0)
    plan = plan_release(Cells([2] * 6), budget, Method(), n_rows=5_000).first
    held = vault(codes, budget)
    held.hold_trios(odd_trios_plainly(codes, Cells([2] * 6)), 5_000)
    looks = [held.measure(plan) for _ in range(2)]
    exact = parities((codes == 1).astype(np.int64).T)
    # 82 counts with noise of scale 25 and more: each is exact with a chance of at most 1.6%, and more than 12 of them
    # once in 10^9 times.
    found = [np.concatenate([look.one_way, look.pairs, look.trios]) for look in looks]
    same = sum(int(np.sum(each == np.concatenate(exact))) for each in found)
    assert same <= 12
    assert np.sum(found[0] == found[1]) <= 12


def test_two_looks_spend_the_budget_and_no_more() -> None:
    for m, neighbors, epsilon in product((2, 3, 8, 40), ("replace-one", "add-remove"), (0.1, 1.0, 10.0)):
        budget = Budget(epsilon=epsilon, neighbors=neighbors)  # type: ignore[arg-type]
        n = 100_000 if budget.rows_are_public else None
        stages = plan_release(Cells([2] * m), budget, Method(), n_rows=n)
        spent = budget.spent(stages.spend)
        assert spent <= epsilon
        assert spent >= 0.99 * epsilon
        held = vault(bits(m, 1_000), budget)
        plan = stages.first
        if plan.trios.size:
            held.hold_trios(odd_trios_plainly(bits(m, 1_000), Cells([2] * m)), 1_000)
        held.measure(plan)
        held.measure(plan)
        with pytest.raises(BudgetError, match="above the budget"):
            held.measure(plan)


def scaled(m: int, **others: object) -> Plan:
    values = {
        "one_way": np.full(m, 64.0),
        "pairs": np.full(m * (m - 1) // 2, 64.0),
        "parities": "replace-one",
    } | others
    return Plan(**values)  # type: ignore[arg-type]


def test_what_is_no_plan_of_parities_is_refused() -> None:
    budget, codes = Budget(epsilon=50.0), bits(4, 100)
    uneven = np.array([64.0, 64.0, 64.0, 32.0])
    for plan in (
        scaled(4, parities="add-remove"),
        scaled(4, one_way=uneven),
        scaled(4, pairs=np.empty(0)),
        scaled(4, trios=np.full(4, 64.0)),
    ):
        with pytest.raises(BudgetError, match=r"parities|all tables"):
            vault(codes, budget).measure(plan)
    with pytest.raises(BudgetError, match="parities take gaussian"):
        vault(codes, Budget(epsilon=50.0, mechanism="laplace")).measure(scaled(4))
    mixed = Vault(budget)
    cells = Cells([2, 2, 2, 3])
    mixed.hold(count_plainly(codes, cells), cells)
    with pytest.raises(BudgetError, match="parities are of bits"):
        mixed.measure(scaled(4))


def test_triples_are_of_the_rows_that_were_counted() -> None:
    codes = bits(4, 100)
    held = vault(codes, Budget(epsilon=1.0))
    odd = odd_trios_plainly(codes, Cells([2] * 4))
    with pytest.raises(DataError, match="changed while it was read"):
        held.hold_trios(odd, 101)
    with pytest.raises(BudgetError, match="all triples"):
        held.hold_trios(odd[:3], 100)
    held.hold_trios(odd, 100)
    with pytest.raises(BudgetError, match="once"):
        held.hold_trios(odd, 100)


def test_uneven_scales_are_priced_as_the_smallest() -> None:
    even = scaled(4).spend
    uneven = scaled(4, one_way=np.array([64.0, 80.0, 90.0, 100.0])).spend
    assert np.array_equal(even.scales, uneven.scales)
    assert np.array_equal(even.tables, uneven.tables)
    assert isinstance(even, Spend)
