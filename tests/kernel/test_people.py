"""A person with up to L rows: what the sensitivity of a table, its cost and its thresholds are, by brute force."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.kernel.people import choose_rows, deal
from sklar.kernel.queries import Common
from sklar.kernel.theorems import Budget, Composition, Mechanism, Neighbors, Spend, chance_of_one, cost, least_threshold
from tests.kernel.test_theorems import KINDS, true_delta

NEIGHBORS: tuple[Neighbors, ...] = ("replace-one", "add-remove")


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("most", [2, 3])
def test_every_person_of_l_rows_costs_at_most_what_is_claimed(
    mechanism: Mechanism, neighbors: Neighbors, most: int
) -> None:
    scale, delta = 6.0, 1e-4
    budget = Budget(epsilon=1.0, delta=delta, neighbors=neighbors, mechanism=mechanism, rows_per_person=most)
    claimed = budget.spent(budget.tables([scale]))
    single = Budget(epsilon=1.0, delta=delta, neighbors=neighbors, mechanism=mechanism)
    one_row = single.spent(single.tables([scale]))
    # All ways to spread the rows over cells, out of the table and, replaced, into others.
    parts = {2: [(2,), (1, 1)], 3: [(3,), (2, 1)]}[most]
    worst = 0.0
    for out in parts:
        for into in parts if neighbors == "replace-one" else [()]:
            shifts = (*out, *(-each for each in into))
            if len(shifts) > 2:
                continue
            worst = max(worst, true_delta(mechanism, [(scale, shift) for shift in shifts], claimed))
            if shifts[0] == most:
                # The claim of one row would be false, and the claim of L rows is not far from the truth.
                assert true_delta(mechanism, [(scale, shift) for shift in shifts], one_row) > delta
    assert 0 < worst <= delta
    assert claimed < most * one_row * 1.5


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_costs_of_l_rows_are_those_of_l_times_less_noise(mechanism: Mechanism) -> None:
    spend = Spend.of([400.0, 800.0], [20, 40])
    wide, narrow = cost(mechanism, replace(spend, reach=8 * spend.reach)), cost(mechanism, spend * (1 / 8))
    assert wide.rho == pytest.approx(narrow.rho)
    # The variance that a discrete Gaussian gives up is 4 whatever L is.
    assert wide.mu_squared == pytest.approx(narrow.mu_squared, rel=2e-3)
    assert wide.mu_squared <= narrow.mu_squared * (1 + 1e-9)


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize(("mechanism", "composition"), KINDS)
def test_scales_grow_with_l(neighbors: Neighbors, mechanism: Mechanism, composition: Composition) -> None:
    budget = Budget(epsilon=1.0, neighbors=neighbors, mechanism=mechanism, composition=composition)
    alone, one, eight = (replace(budget, rows_per_person=rows).scales(np.ones(28))[0] for rows in (None, 1, 8))
    assert alone == one
    assert eight == pytest.approx(8 * one, rel=5e-3)


def test_rows_are_public_where_every_person_has_one() -> None:
    assert Budget(epsilon=1.0).rows_are_public
    assert Budget(epsilon=1.0, rows_per_person=1).rows_are_public
    assert not Budget(epsilon=1.0, rows_per_person=2).rows_are_public
    assert not Budget(epsilon=1.0, rows_per_person=1, neighbors="add-remove").rows_are_public


def partitions(total: int, largest: int | None = None) -> list[tuple[int, ...]]:
    largest = total if largest is None else largest
    if total == 0:
        return [()]
    return [(part, *rest) for part in range(min(total, largest), 0, -1) for rest in partitions(total - part, part)]


@pytest.mark.parametrize("scale", [0.7, 2.05, 20.0, 300.0])
@pytest.mark.parametrize("most", [1, 2, 5, 8])
def test_thresholds_hold_however_a_person_spreads_rows_over_new_values(scale: float, most: int) -> None:
    least = least_threshold(scale, 1e-7, most)
    reach = np.arange(1, int(least + 60 * scale))
    half = np.exp(-(reach**2) / (2 * scale**2))
    # The chance that noise is at least so much, from 1 on.
    tail = np.append(np.cumsum(half[::-1])[::-1], 0.0) / (1 + 2 * half.sum())
    budget = Budget(epsilon=1.0, rows_per_person=most)
    for threshold in (most + 1, most + round(3 * scale) + 1, least):

        def shown(spread: tuple[int, ...], threshold: int = threshold) -> float:
            return 1 - math.prod(1 - float(tail[threshold - count - 1]) for count in spread)

        worst = max(shown(spread) for total in range(1, most + 1) for spread in partitions(total))
        lost = Common(about="town", threshold=threshold).bound(np.array([scale]), budget).lost_delta
        assert worst <= lost == chance_of_one(scale, threshold, most)
        # One step of the threshold covers the difference.
        assert most > 1 or chance_of_one(scale, threshold + 1) <= worst * (1 + 1e-6)
    if most > 1 and scale > 1:
        # The threshold for one row fails a person of L rows more often than it says.
        single = least_threshold(scale, 1e-7)
        assert max(1 - (1 - float(tail[single - 2])) ** most, float(tail[max(single - most - 1, 0)])) > 1e-7
        assert chance_of_one(scale, most, most) == 1.0


@pytest.mark.parametrize("most", [1, 8])
@pytest.mark.parametrize("chance", [1e-3, 9e-11, 1e-20])
def test_the_threshold_is_the_smallest_that_keeps_its_chance(chance: float, most: int) -> None:
    for scale in (1.0, 8.0, 92.45, 3.7e5):
        threshold = least_threshold(scale, chance, most)
        assert chance_of_one(scale, threshold, most) <= chance < chance_of_one(scale, threshold - 1, most)


def test_the_smallest_keys_of_each_person_are_chosen() -> None:
    generator = np.random.default_rng(5)
    marks = generator.integers(0, 3, (200, 2)).astype(np.uint64)
    keys = generator.permutation(200).astype(np.uint64)
    for most in (1, 3, 50):
        chosen = choose_rows(marks, keys, most)
        assert np.unique(chosen).size == chosen.size
        for mark in np.unique(marks, axis=0):
            own = np.flatnonzero((marks == mark).all(axis=1))
            wanted = own[np.argsort(keys[own])][:most]
            assert sorted(wanted) == sorted(set(chosen.tolist()) & set(own.tolist()))
    assert choose_rows(marks[:0], keys[:0], 3).size == 0


def test_others_change_no_choice_and_parts_may_be_reduced_first() -> None:
    generator = np.random.default_rng(6)
    marks, keys = generator.integers(0, 4, (90, 2)).astype(np.uint64), generator.permutation(90).astype(np.uint64)

    def chosen(places: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.sort(places[choose_rows(marks[places], keys[places], 2)])

    whole, mine = chosen(np.arange(90)), np.flatnonzero((marks == marks[0]).all(axis=1))
    assert np.setdiff1d(whole, mine).tolist() == chosen(np.setdiff1d(np.arange(90), mine)).tolist()
    parts = [chosen(np.arange(start, start + 30)) for start in (0, 30, 60)]
    assert chosen(np.concatenate(parts)).tolist() == whole.tolist()


@pytest.mark.parametrize("each", [1, 2, 7, 1_024, 1 << 16])
def test_the_tokens_of_an_owner_are_whole_and_of_one_sum_by_their_own_parts_alone(each: int) -> None:
    rng = np.random.default_rng(each)
    for most in (1, 3, 1 << 20, (1 << 46) // 200):
        owner, parts = rng.integers(0, 20, 200), rng.integers(0, most, 200, endpoint=True)
        parts[owner == 3] = 0
        tokens = deal(owner, parts, each)
        assert tokens.dtype == np.int64
        assert (tokens >= 0).all()
        sums = np.bincount(owner, tokens, 20)
        assert (sums == np.where(np.bincount(owner, parts, 20) > 0, each, 0)).all()
        for one in (0, 3, 7):
            assert deal(owner[owner == one], parts[owner == one], each).tolist() == tokens[owner == one].tolist()
        exact = each * parts / np.maximum(np.bincount(owner, parts, 20)[owner], 1)
        assert (abs(tokens - exact) < 1 + 1e-6).all()
    assert deal(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), each).size == 0
    # Of many owners sums exceed 64 bits, and tokens are what they are of each.
    owner, parts = np.repeat(np.arange(1 << 18), 2), np.tile([2**45, 2**45 - 1], 1 << 18)
    assert (deal(owner, parts, each).reshape(-1, 2) == deal(np.zeros(2, dtype=np.int64), parts[:2], each)).all()
