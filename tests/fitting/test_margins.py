from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sklar.budget.plan import Plan, plan_tables
from sklar.fitting import margins as fitting
from sklar.fitting.denoise import center, shrink
from sklar.fitting.margins import estimate_rows, implied_counts, margins, pool_blocks, project
from sklar.kernel.cells import Cells
from sklar.kernel.queries import Block, Parities, Tables
from sklar.kernel.theorems import Budget
from sklar.paper.estimate import read_tables
from tests.fitting.test_denoise import estimates

CELLS = Cells([4, 6, 2])
ROWS = 5_000
GENERATOR = np.random.default_rng(3)
A = GENERATOR.integers(0, 4, ROWS)
CODES = np.stack(
    [A, np.minimum(A + GENERATOR.integers(0, 3, ROWS), 5), (A + GENERATOR.integers(0, 4, ROWS) > 3).astype(int)]
)
ONE_WAY, PAIRS = (Tables(cells=CELLS, order=order).count(CODES) for order in (1, 2))


def noisy_blocks(plan: Plan, exact: Iterable[np.ndarray], seed: int, noise: float = 1.0) -> list[Block]:
    """Blocks of these counts, with noise from a fixed seed instead of the vault's."""
    generator, blocks = np.random.default_rng(seed), []
    for (query, scales), counts in zip(plan.parts, exact, strict=True):
        drawn = noise * np.repeat(scales, query.sizes) * generator.standard_normal(counts.size)
        blocks.append(Block(query=query, scales=scales, values=counts + np.rint(drawn).astype(np.int64)))
    return blocks


def measured(plan: Plan, seed: int = 0, codes: np.ndarray = CODES) -> list[Block]:
    return noisy_blocks(plan, (query.count(codes) for query, _ in plan.parts if isinstance(query, Tables)), seed)


def test_exact_counts_come_back_as_exact_probabilities() -> None:
    exact = estimates(CELLS, ROWS, ONE_WAY.astype(float), PAIRS.astype(float), 0.01)
    for paper in (True, False):
        probabilities = read_tables(exact, paper=paper)
        np.testing.assert_allclose(probabilities.levels, ONE_WAY / ROWS, atol=1e-6)
        np.testing.assert_allclose(probabilities.pairs, PAIRS / ROWS, atol=1e-5)


def test_every_table_says_what_its_margins_are() -> None:
    implied = implied_counts(PAIRS.astype(float), CELLS)
    own = CELLS.attribute_of_level[:, None] == np.arange(3)
    assert np.array_equal(implied, np.where(own, 0, ONE_WAY[:, None]))


def test_margins_use_the_sums_of_two_way_tables() -> None:
    """The average over direct and implied margins has the variance that inverse-variance weights promise."""
    plan = plan_tables(CELLS, Budget(epsilon=1.0))
    block = CELLS.attribute_of_level
    errors = []
    for seed in range(500):
        levels = margins(pool_blocks(measured(plan, seed=seed), "gaussian", ROWS))
        errors.append(levels * ROWS - ONE_WAY)
        for attribute in range(3):
            assert levels[block == attribute].sum() == pytest.approx(1.0)
    sigma2 = plan.scales(1)[0] ** 2
    # Attribute a (4 levels): the direct table, sums over 6 levels of b, sums over 2 of c; centering removes 1/4.
    expected = 1 / (1 / sigma2 + 1 / (6 * sigma2) + 1 / (2 * sigma2)) * (3 / 4)
    found = np.mean(np.square(np.array(errors)[:, block == 0]))
    # 500 x 3 squared normals (the four sum to nothing): 3.7% relative error. No level is near the simplex' boundary.
    assert found == pytest.approx(expected, rel=0.2)


def test_a_table_of_one_attribute_has_no_pairs_to_pool() -> None:
    query = Tables(cells=Cells([4]), order=1)
    pooled = pool_blocks([Block(query=query, scales=np.ones(1), values=np.array([1, 2, 3, 4]))], "gaussian", 10)
    assert pooled.pairs.shape == pooled.pair_sd.shape == (0,)
    np.testing.assert_allclose(read_tables(pooled, paper=False).levels, [0.1, 0.2, 0.3, 0.4])


def test_pooling_weighs_stages_by_inverse_variance() -> None:
    orders = ((1, 3.0), (2, 30.0), (2, 10.0))
    plan = Plan(parts=tuple((Tables(cells=CELLS, order=order), np.full(3, scale)) for order, scale in orders))
    one_way, *pairs = blocks = measured(plan)
    pooled = pool_blocks(blocks, "gaussian", ROWS)
    # Noise may make the average 0, which rounding misses by a little.
    np.testing.assert_allclose(pooled.pairs, pairs[0].values * 0.1 + pairs[1].values * 0.9, atol=1e-9)
    np.testing.assert_allclose(pooled.pair_sd, 1 / np.sqrt(1 / 900 + 1 / 100))
    np.testing.assert_allclose(pooled.one_way, one_way.values)
    np.testing.assert_allclose(pooled.one_way_sd, 3.0)


def test_the_number_of_rows_is_estimated_from_all_totals_under_add_remove() -> None:
    plan = plan_tables(CELLS, Budget(epsilon=1.0, neighbors="add-remove"))
    total = float(plan.scales(0)[0])

    def guess(seed: int, codes: np.ndarray = CODES) -> int:
        return estimate_rows(measured(plan, seed=seed, codes=codes), "gaussian", None)

    guesses = [guess(seed) for seed in range(200)]
    assert np.mean(guesses) == pytest.approx(ROWS, abs=6 * total / np.sqrt(200))
    # All totals together are better than the measured one alone.
    assert np.std(guesses) < 0.95 * total
    assert all(guess(seed, CODES[:, :0]) >= 1 for seed in range(20))


@pytest.mark.parametrize("shape", [(2, 2), (2, 7), (7, 2), (3, 5)])
def test_shrinkage_is_that_of_singular_values(shape: tuple[int, int]) -> None:
    residual = np.random.default_rng(0).standard_normal((20, *shape))
    sd = np.linspace(0.1, 2.0, 20)
    short, long = sorted(side - 1 for side in shape)
    beta = short / long
    for table, noise, shrunk in zip(residual, sd, shrink(center(residual), sd), strict=True):
        centered = table - table.mean(axis=0)
        centered -= centered.mean(axis=1, keepdims=True)
        left, values, right = np.linalg.svd(centered, full_matrices=False)
        y = values / (noise * np.sqrt(long))
        kept = [np.sqrt((v**2 - beta - 1) ** 2 - 4 * beta) / v if v > 1 + np.sqrt(beta) else 0.0 for v in y]
        assert np.allclose(shrunk, left @ np.diag(np.multiply(kept, noise * np.sqrt(long))) @ right)
    # A table with one row has no interaction.
    assert (shrink(center(np.ones((3, 1, 4))), np.ones(3)) == 0).all()


@settings(max_examples=100, deadline=None)
@given(arrays(np.float64, st.integers(1, 12), elements=st.floats(-3, 3)), st.floats(0.01, 5))
def test_the_projection_is_the_nearest_point(point: np.ndarray, total: float) -> None:
    projected = project(point, total)
    assert (projected >= 0).all()
    assert projected.sum() == pytest.approx(total)
    # The optimality condition of a projection onto a convex set, at its corners.
    assert ((point - projected) @ (total * np.eye(point.size) - projected).T <= 1e-9).all()


def test_every_attribute_is_projected_and_scaled_alone() -> None:
    levels = np.random.default_rng(0).normal(0.3, 0.5, 9)
    parts = [project(levels[first:last]) for first, last in ((0, 3), (3, 5), (5, 8), (8, 9))]
    assert np.allclose(fitting.project_levels(levels, Cells([3, 2, 3, 1])), np.concatenate(parts))
    assert fitting.scale_levels(np.array([[1.0, 3.0, 5.0]]), Cells([2, 1])).tolist() == [[0.25, 0.75, 1.0]]
    sums = np.array([[0.0], [2.0]])
    assert project(np.array([[3.0, -1.0], [3.0, -1.0]]), sums).tolist() == [[0.0, 0.0], [2.0, 0.0]]


def test_parities_of_wide_tables_take_no_room_for_triples_that_nobody_measured() -> None:
    """Of 600 bits there are 36 million triples; of 2,000 they took 11 GB."""
    query = Parities(cells=Cells([2] * 600), orders=2)
    block = Block(query=query, scales=np.full(2, 9.0), values=np.zeros(query.n_cells, dtype=np.int64))
    tracemalloc.start()
    try:
        pooled = pool_blocks([block, block], "gaussian", 1_000)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
    assert (pooled.third.size, pooled.pairs.size) == (0, query.cells.n_cells)
