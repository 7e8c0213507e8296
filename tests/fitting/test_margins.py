from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sklar.budget.plan import plan_tables
from sklar.fitting.denoise import center, consistent, plain, shrink
from sklar.fitting.margins import (
    Estimates,
    estimate_rows,
    implied_counts,
    margins,
    pool,
    project,
    project_levels,
    scale_levels,
)
from sklar.kernel.cells import Cells
from sklar.kernel.count import Counts, count_plainly
from sklar.kernel.tables import NoisyTables, Plan
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema

SCHEMA = Schema(
    name="t",
    attributes=(
        Attribute(name="a", kind="categorical", values=tuple("wxyz")),
        Attribute(name="b", kind="categorical", values=tuple("pqrstu")),
        Attribute(name="c", kind="boolean"),
    ),
)
CELLS = SCHEMA.cells
ROWS = 5_000


def exact_counts() -> Counts:
    generator = np.random.default_rng(3)
    a = generator.integers(0, 4, ROWS)
    b = np.minimum(a + generator.integers(0, 3, ROWS), 5)
    c = (a + generator.integers(0, 4, ROWS) > 3).astype(int)
    return count_plainly(np.stack([a, b, c]), CELLS)


def measured(counts: Counts, *plans: Plan, seed: int = 0) -> tuple[NoisyTables, ...]:
    """Tables with noise from a fixed seed instead of the vault's."""
    generator = np.random.default_rng(seed)

    def noisy(exact: np.ndarray, scales: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        if not scales.size:
            return np.empty(0, dtype=np.int64)
        return exact + np.rint(np.repeat(scales, sizes) * generator.standard_normal(exact.size)).astype(np.int64)

    return tuple(
        NoisyTables(
            cells=CELLS,
            mechanism="gaussian",
            n_rows=None if plan.total else counts.n_rows,
            total=int(counts.n_rows + plan.total * generator.standard_normal()) if plan.total else None,
            one_way=noisy(counts.one_way, plan.one_way, CELLS.sizes),
            pairs=noisy(counts.pairs, plan.pairs, CELLS.pair_sizes),
            plan=plan,
        )
        for plan in plans
    )


def estimates_of(counts: Counts, sd: float = 0.01) -> Estimates:
    return Estimates(
        cells=CELLS,
        n_rows=counts.n_rows,
        one_way=counts.one_way.astype(float),
        one_way_sd=np.full(3, sd),
        pairs=counts.pairs.astype(float),
        pair_sd=np.full(3, sd),
    )


def test_exact_counts_come_back_as_exact_probabilities() -> None:
    counts = exact_counts()
    for reading in (plain, consistent):
        probabilities = reading(estimates_of(counts))
        np.testing.assert_allclose(probabilities.levels, counts.one_way / ROWS, atol=1e-6)
        np.testing.assert_allclose(probabilities.pairs, counts.pairs / ROWS, atol=1e-5)


def test_every_table_says_what_its_margins_are() -> None:
    counts = exact_counts()
    implied = implied_counts(counts.pairs.astype(float), CELLS)
    own = CELLS.attribute_of_level[:, None] == np.arange(3)
    assert np.array_equal(implied, np.where(own, 0, counts.one_way[:, None]))


def test_margins_use_the_sums_of_two_way_tables() -> None:
    """The average over direct and implied margins has the variance that inverse-variance weights promise."""
    plan = plan_tables(CELLS, Budget(epsilon=1.0))
    counts = exact_counts()
    block = CELLS.attribute_of_level
    errors = []
    for seed in range(500):
        levels = margins(pool(measured(counts, plan, seed=seed)))
        errors.append(levels * ROWS - counts.one_way)
        for attribute in range(3):
            assert levels[block == attribute].sum() == pytest.approx(1.0)
    sigma2 = plan.one_way[0] ** 2
    # Attribute a (4 levels): the direct table, sums over 6 levels of b, sums over 2 of c; centering removes 1/4.
    expected = 1 / (1 / sigma2 + 1 / (6 * sigma2) + 1 / (2 * sigma2)) * (3 / 4)
    found = np.mean(np.square(np.array(errors)[:, block == 0]))
    # 500 x 3 squared normals (the four sum to nothing): 3.7% relative error. No level is near the simplex' boundary.
    assert found == pytest.approx(expected, rel=0.2)


def test_a_table_of_one_attribute_has_no_pairs_to_pool() -> None:
    cells = Cells([4])
    tables = NoisyTables(
        cells=cells,
        mechanism="gaussian",
        n_rows=10,
        total=None,
        one_way=np.array([1, 2, 3, 4]),
        pairs=np.empty(0, dtype=np.int64),
        plan=Plan(one_way=np.ones(1), pairs=np.empty(0)),
    )
    pooled = pool((tables,))
    assert pooled.pairs.shape == pooled.pair_sd.shape == (0,)
    np.testing.assert_allclose(consistent(pooled).levels, [0.1, 0.2, 0.3, 0.4])


def test_pooling_weighs_stages_by_inverse_variance() -> None:
    counts = exact_counts()
    one_way = np.full(3, 3.0)
    stages = (Plan(one_way=one_way, pairs=np.full(3, 30.0)), Plan(one_way=np.empty(0), pairs=np.full(3, 10.0)))
    first, second = measured(counts, *stages)
    pooled = pool((first, second))
    # Noise may make the average 0, which rounding misses by a little.
    np.testing.assert_allclose(pooled.pairs, first.pairs * 0.1 + second.pairs * 0.9, atol=1e-9)
    np.testing.assert_allclose(pooled.pair_sd, 1 / np.sqrt(1 / 900 + 1 / 100))
    np.testing.assert_allclose(pooled.one_way, first.one_way)
    np.testing.assert_allclose(pooled.one_way_sd, 3.0)


def test_the_number_of_rows_is_estimated_from_all_totals_under_add_remove() -> None:
    plan = plan_tables(CELLS, Budget(epsilon=1.0, neighbors="add-remove"))
    assert plan.total is not None
    counts, nobody = exact_counts(), count_plainly(np.empty((3, 0), dtype=np.int64), CELLS)
    guesses = [estimate_rows(measured(counts, plan, seed=seed)) for seed in range(200)]
    assert np.mean(guesses) == pytest.approx(ROWS, abs=6 * plan.total / np.sqrt(200))
    # All totals together are better than the measured one alone.
    assert np.std(guesses) < 0.95 * plan.total
    assert all(estimate_rows(measured(nobody, plan, seed=seed)) >= 1 for seed in range(20))


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


def test_shrinkage_removes_noise_and_keeps_signal() -> None:
    generator = np.random.default_rng(5)
    sd = np.full(50, 0.01)
    noise = generator.normal(0, 0.01, (50, 12, 9))
    # Pure noise: almost everything goes.
    assert np.sum(shrink(center(noise), sd) ** 2) < 0.05 * np.sum(noise**2)
    left, right = generator.normal(size=12), generator.normal(size=9)
    signal = 0.05 * np.outer(left - left.mean(), right - right.mean())
    shrunk = shrink(center(signal + noise), sd)
    assert np.sum((shrunk - signal) ** 2) < 0.5 * np.sum(noise**2)
    np.testing.assert_allclose(shrunk.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(shrunk.sum(axis=2), 0, atol=1e-12)


def test_a_table_with_one_row_has_no_interaction() -> None:
    assert (shrink(center(np.ones((3, 1, 4))), np.ones(3)) == 0).all()


def test_consistent_is_better_than_plain_under_noise() -> None:
    counts = exact_counts()
    plan = plan_tables(CELLS, Budget(epsilon=0.5))
    plain_error, consistent_error = [], []
    for seed in range(30):
        pooled = pool(measured(counts, plan, seed=seed))
        plain_error.append(np.abs(plain(pooled).pairs * ROWS - counts.pairs).mean())
        consistent_error.append(np.abs(consistent(pooled).pairs * ROWS - counts.pairs).mean())
    # 0.81 measured, with a standard error of about 0.02.
    assert np.mean(consistent_error) < 0.92 * np.mean(plain_error)


@settings(max_examples=100, deadline=None)
@given(arrays(np.float64, st.integers(1, 12), elements=st.floats(-3, 3)), st.floats(0.01, 5))
def test_the_projection_is_the_nearest_point(point: np.ndarray, total: float) -> None:
    projected = project(point, total)
    assert (projected >= 0).all()
    assert projected.sum() == pytest.approx(total)
    # The optimality condition of a projection onto a convex set, at its corners.
    assert ((point - projected) @ (total * np.eye(point.size) - projected).T <= 1e-9).all()


def test_a_sum_of_zero_leaves_nothing() -> None:
    sums = np.array([[0.0], [2.0]])
    assert project(np.array([[3.0, -1.0], [3.0, -1.0]]), sums).tolist() == [[0.0, 0.0], [2.0, 0.0]]


def test_projection_takes_every_attribute_alone() -> None:
    levels = np.random.default_rng(0).normal(0.3, 0.5, 9)
    parts = [project(levels[first:last]) for first, last in ((0, 3), (3, 5), (5, 8), (8, 9))]
    assert np.allclose(project_levels(levels, Cells([3, 2, 3, 1])), np.concatenate(parts))


def test_scaling_takes_every_attribute_alone() -> None:
    assert scale_levels(np.array([[1.0, 3.0, 5.0]]), Cells([2, 1])).tolist() == [[0.25, 0.75, 1.0]]
