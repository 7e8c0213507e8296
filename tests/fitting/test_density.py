"""Densities from nested noisy tables."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.budget.search import Ladder, ladder_of, next_cells
from sklar.fitting.density import Density, estimate_density
from sklar.fitting.domains import found_numbers
from tests.budget.test_search import private

SCALE = 30.0


WIDE, NARROW = (private("integer", 0, high) for high in (10**6, 120))


def searched(values: NDArray[np.int64], ladder: Ladder, seed: int) -> list[NDArray[np.int64]]:
    generator, tables = np.random.default_rng(seed), list[NDArray[np.int64]]()
    for _ in range(ladder.tables):
        exact = np.histogram(values, next_cells(ladder, tables, SCALE)[-1])[0]
        tables.append(exact + np.rint(generator.normal(0, SCALE, exact.size)).astype(np.int64))
    return tables


def density_of(values: NDArray[np.int64], high: int, seed: int = 0) -> Density:
    ladder = ladder_of(private("integer", 0, high))
    return estimate_density(ladder, searched(values, ladder, seed), SCALE)


@pytest.mark.parametrize("high", [300, 10**6, 10**9])
def test_the_distribution_function_is_found_under_any_bound(high: int) -> None:
    """10,000 rows, noise of 0.3%: a chance below one in a million to be off by 0.06 anywhere, at fixed seeds none."""
    values = np.random.default_rng(1).gamma(3, 20, 10_000).astype(np.int64)
    found = density_of(values, high)
    upto = np.concatenate([[0], np.cumsum(found.masses)]) / found.masses.sum()
    real = np.searchsorted(np.sort(values), found.edges) / values.size
    assert np.abs(upto - real).max() < 0.03
    assert found.last < 1000


@pytest.mark.parametrize("heap", [0, 37, 50_000, 99_999])
def test_a_heap_is_found_down_to_its_grain(heap: int) -> None:
    """A twentieth of the rows at one value, ten standard errors of its count."""
    generator = np.random.default_rng(2)
    values = np.concatenate([np.full(1000, heap), generator.lognormal(9, 1, 9000).astype(np.int64)])
    found = density_of(values, 10**6)
    assert heap in found.edges[found.heaps].tolist()
    assert heap in found_numbers(WIDE, searched(values, ladder_of(WIDE), 0), SCALE).points


def test_a_smooth_column_has_no_heaps_and_bins_of_about_equal_rows() -> None:
    values = np.random.default_rng(3).normal(50, 12, 10_000).clip(0, 119).astype(np.int64)
    found = found_numbers(NARROW, searched(values, ladder_of(NARROW), 1), SCALE)
    assert found.points == ()
    assert found.n_bins == 20
    assert np.histogram(values, found.edges)[0].max() < 1500


def test_noise_alone_gives_valid_bins_and_no_rows_far_out() -> None:
    found = density_of(np.empty(0, dtype=np.int64), 10**9)
    assert found.masses.sum() == 0
    some = density_of(np.arange(1000, 3000).repeat(3), 10**9, seed=4)
    assert some.last < 10_000


def test_what_is_too_little_to_be_sure_of_is_a_tail_and_no_support() -> None:
    """90 rows at the far end, six standard errors of the four counts together but none of one: a range to look at."""
    values = np.concatenate([np.arange(1000, 3000).repeat(5), np.full(45, 95_000)])
    found = [density_of(values, 10**6, seed=seed) for seed in range(8)]
    assert all(each.last < 10_000 for each in found)
    assert sum(any(low <= 95_000 < high for low, high in each.tails) for each in found) >= 4
