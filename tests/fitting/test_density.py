"""Densities from nested noisy tables."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.budget.search import Ladder, ladder_of, next_cells
from sklar.draw.decode import Decoder
from sklar.fitting.density import Density, _by_tree, _seen_bins, estimate_density
from sklar.fitting.domains import found_numbers
from sklar.public.axis import AttributeKind
from sklar.public.schema import Schema
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


@pytest.mark.parametrize(("low", "high", "kind", "bounds", "slack"), [
    (1, 32, "integer", (0, 10**9), 0), (900, 1040, "integer", (-(10**9), 10**9), 10), (0, 24, "integer", (0, 169), 2),
    (44.89, 45.05, "real", (-90.0, 90.0), 0.05), (-93.33, -93.2, "real", (-180.0, 180.0), 0.05),
    (15_706, 16_071, "date", (-25_567, 47_482), 16),
])  # fmt: skip
def test_numbers_end_where_rows_do_whatever_the_bounds(
    low: float, high: float, kind: AttributeKind, bounds: tuple[float, float], slack: float
) -> None:
    """Even numbers, whose last ones noise of 0.3% shows: ends by windows of a few cells, at fixed seeds."""
    attribute = private(kind, *bounds)
    ladder = ladder_of(attribute)
    values = np.random.default_rng(5).uniform(low, high, 10_000)
    units = ladder.units(values if kind == "real" else np.floor(values).astype(np.int64))
    for seed in range(6):
        found = estimate_density(ladder, searched(units, ladder, seed), SCALE)
        first, last = ladder.axis(np.array([found.first, found.last])).tolist()
        assert abs(first - low) <= slack + 1e-9
        assert abs(last - high) <= slack + 1e-9
        assert found.masses[(found.edges[:-1] < found.first) | (found.edges[1:] > found.last)].sum() == 0


def test_rows_of_outer_bins_that_noise_alone_filled_are_drawn_inside() -> None:
    z, edges = np.array([1.0, -3.0, 9.0, 0.5, 4.0, 2.4, -1.0]), np.array([0.0, 40, 70, 80, 90, 100, 130, 131])
    assert _seen_bins(z, edges).tolist() == [2, 1, 2, 3, 4, 5, 4]
    assert _seen_bins(np.zeros(3), np.arange(4.0)).tolist() == [0, 1, 2]


def test_where_all_rows_are_heaps_they_take_nearly_all_levels() -> None:
    prices = np.array([975, 1050, 1100, 1200, 1250, 1275, 1450, 1475, 1600, 1650, 1675, 1700, 1750, 1795, 1800, 2025])
    assert set(found_numbers(WIDE, searched(prices.repeat(700), ladder_of(WIDE), 3), SCALE).points) == {*prices}


def test_a_heap_with_more_digits_than_grains_is_no_level_that_nobody_has() -> None:
    """8.05546, seven knots in miles an hour, has more digits than grains tell: its heap stays inside of a bin."""
    attribute = private("real", 0.0, 1e12)
    ladder = ladder_of(attribute)
    values = np.array([0.0, 2.5, 8.05546, 11.5077]).repeat(2500)
    tables = searched(ladder.units(values), ladder, 1)
    assert set(found_numbers(attribute, tables, SCALE).points) == {0.0, 2.5}
    assert estimate_density(ladder, tables, SCALE).heaps.size == 4


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


def planted(values: NDArray[np.int64], far: int, rows: int) -> tuple[Ladder, list[NDArray[np.int64]]]:
    """Tables without noise, but for `rows` that noise put into the cell of `far` in each of them."""
    ladder, tables = ladder_of(WIDE), list[NDArray[np.int64]]()
    for _ in range(ladder.tables):
        edges = next_cells(ladder, tables, SCALE)[-1]
        tables.append(
            np.histogram(values, edges)[0]
            + rows * (np.searchsorted(edges, far, side="right") - 1 == np.arange(edges.size - 1))
        )
    return ladder, tables


@pytest.mark.parametrize(("rows", "shown"), [(105, False), (170, True)])
def test_noise_of_five_standard_errors_far_out_is_no_support(rows: int, shown: bool) -> None:
    """Two tables count the far cell before it is divided: standard errors of 21 rows."""
    ladder, tables = planted(np.arange(1000, 3000).repeat(5), 500_000, rows)
    assert (estimate_density(ladder, tables, SCALE).last > 500_000) == shown


def test_a_bin_before_a_tail_is_drawn_no_farther_than_rows_were_seen() -> None:
    """All rows are points, so that no piece says how the others lie in the bin that reaches to the tail."""
    ladder, tables = planted(np.array([1, 3, 7]).repeat(3000), 500_000, 60)
    density = estimate_density(ladder, tables, SCALE)
    found = found_numbers(WIDE, tables, SCALE)
    assert density.tails
    assert density.last < 20
    assert set(found.points) == {1, 3, 7}
    shape = _by_tree(found, np.full(found.n_levels, 1 / found.n_levels), ladder, density, np.zeros(found.n_bins))
    drawn = Decoder(Schema(name="t", attributes=(found,)), shapes={"x": shape}).decode(
        np.repeat(found.bin_codes, 200)[None, :], np.random.default_rng(1)
    )
    assert drawn["x"].max() < 20  # type: ignore[operator]
