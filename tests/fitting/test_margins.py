from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sklar.budget.certificate import above_diagonal, block_of_level
from sklar.budget.plan import Plan, plan_tables
from sklar.fitting.margins import Estimates, consistent, estimate_rows, margins, plain, pool, project, shrink, simplex
from sklar.kernel.theorems import Budget
from sklar.kernel.vault import Vault
from sklar.public.schema import Attribute, Schema
from sklar.rows.fast import Counts, count_codes

SCHEMA = Schema(
    name="t",
    attributes=(
        Attribute(name="a", kind="categorical", values=tuple("wxyz")),
        Attribute(name="b", kind="categorical", values=tuple("pqrstu")),
        Attribute(name="c", kind="boolean"),
    ),
)
ROWS = 5_000


def exact_counts() -> Counts:
    generator = np.random.default_rng(3)
    a = generator.integers(0, 4, ROWS)
    b = np.minimum(a + generator.integers(0, 3, ROWS), 5)
    c = (a + generator.integers(0, 4, ROWS) > 3).astype(int)
    return count_codes(np.stack([a, b, c]).astype(np.int32), SCHEMA)


def estimates_of(counts: Counts, sd: float = 0.01) -> Estimates:
    m = SCHEMA.n_attributes
    return Estimates(
        schema=SCHEMA,
        n_rows=counts.n_rows,
        one_way=counts.one_way.astype(float),
        one_way_sd=np.full(m, sd),
        pairs=counts.pairs.astype(float),
        pair_sd=sd * (1 - np.eye(m)),
    )


def test_exact_counts_come_back_as_exact_probabilities() -> None:
    counts = exact_counts()
    for reading in (plain, consistent):
        probabilities = reading(estimates_of(counts))
        np.testing.assert_allclose(probabilities.levels, counts.one_way / ROWS, atol=1e-6)
        np.testing.assert_allclose(probabilities.pairs, (counts.pairs + counts.pairs.T) / ROWS, atol=1e-5)


@settings(max_examples=100, deadline=None)
@given(arrays(np.float64, st.integers(1, 12), elements=st.floats(-3, 3)))
def test_simplex_is_the_nearest_point(point: np.ndarray) -> None:
    projected = simplex(point)
    assert (projected >= 0).all()
    assert projected.sum() == pytest.approx(1.0)
    # The optimality condition of a projection onto a convex set, at its corners.
    assert ((point - projected) @ (np.eye(point.size) - projected).T <= 1e-9).all()


def test_projection_takes_every_attribute_alone() -> None:
    schema = Schema.from_dict(
        {"attributes": {f"a{k}": {"type": "categorical", "values": list(range(s))} for k, s in enumerate((3, 2, 3, 1))}}
    )
    levels = np.random.default_rng(0).normal(0.3, 0.5, 9)
    parts = [simplex(levels[first:last]) for first, last in ((0, 3), (3, 5), (5, 8), (8, 9))]
    assert np.allclose(project(levels, schema), np.concatenate(parts))


def test_margins_use_the_sums_of_two_way_tables() -> None:
    """The average over direct and implied margins has the variance that inverse-variance weights promise."""
    budget = Budget(epsilon=1.0)
    plan = plan_tables(SCHEMA, budget)
    counts = exact_counts()
    block = block_of_level(SCHEMA)
    errors = []
    for _ in range(500):
        levels = margins(pool((Vault(counts, SCHEMA, budget).measure(plan),)))
        errors.append(levels * ROWS - counts.one_way)
        for attribute in range(3):
            assert levels[block == attribute].sum() == pytest.approx(1.0)
    sigma2 = plan.one_way[0] ** 2
    # Attribute a (4 levels): the direct table, sums over 6 levels of b, sums over 2 of c; centring removes 1/4.
    expected = 1 / (1 / sigma2 + 1 / (6 * sigma2) + 1 / (2 * sigma2)) * (3 / 4)
    measured = np.mean(np.square(np.array(errors)[:, block == 0]))
    # 500 x 3 squared normals (the four sum to nothing): 3.7% relative error; 20% is 5.4 of them, once in 10^7 runs.
    # (No level is near the simplex' boundary.)
    assert measured == pytest.approx(expected, rel=0.2)


def test_pooling_weighs_stages_by_inverse_variance() -> None:
    counts = exact_counts()
    budget = Budget(epsilon=50.0)
    one_way = np.full(3, 3.0)
    stages = (Plan(one_way=one_way, pairs=np.full(3, 30.0)), Plan(one_way=np.empty(0), pairs=np.full(3, 10.0)))
    vault = Vault(counts, SCHEMA, budget)
    first, second = (vault.measure(plan) for plan in stages)
    pooled = pool((first, second))
    # Noise may make the average 0, which rounding misses by a little.
    np.testing.assert_allclose(pooled.pairs, first.pairs * 0.1 + second.pairs * 0.9, atol=1e-9)
    np.testing.assert_allclose(pooled.pair_sd[np.triu_indices(3, 1)], 1 / np.sqrt(1 / 900 + 1 / 100))
    np.testing.assert_allclose(pooled.one_way, first.one_way)
    np.testing.assert_allclose(pooled.one_way_sd, 3.0)


def test_the_number_of_rows_is_estimated_from_all_totals_under_add_remove() -> None:
    counts = exact_counts()
    budget = Budget(epsilon=1.0, neighbors="add-remove")
    plan = plan_tables(SCHEMA, budget)
    guesses = [estimate_rows((Vault(counts, SCHEMA, budget).measure(plan),)) for _ in range(200)]
    assert plan.total is not None
    assert np.mean(guesses) == pytest.approx(ROWS, abs=6 * plan.total / np.sqrt(200))
    # All totals together are better than the measured one alone.
    assert np.std(guesses) < 0.95 * plan.total


def test_the_number_of_rows_is_at_least_one() -> None:
    nobody = count_codes(np.empty((3, 0), dtype=np.int32), SCHEMA)
    budget = Budget(epsilon=1.0, neighbors="add-remove")
    plan = plan_tables(SCHEMA, budget)
    assert all(estimate_rows((Vault(nobody, SCHEMA, budget).measure(plan),)) >= 1 for _ in range(20))


@pytest.mark.parametrize("shape", [(2, 2), (2, 7), (7, 2), (3, 5)])
def test_shrinkage_is_that_of_singular_values(shape: tuple[int, int]) -> None:
    residual = np.random.default_rng(0).standard_normal((20, *shape))
    sd = np.linspace(0.1, 2.0, 20)
    short, long = sorted(side - 1 for side in shape)
    beta = short / long
    for table, noise, shrunk in zip(residual, sd, shrink(residual, sd), strict=True):
        centred = table - table.mean(axis=0)
        centred -= centred.mean(axis=1, keepdims=True)
        left, values, right = np.linalg.svd(centred, full_matrices=False)
        y = values / (noise * np.sqrt(long))
        kept = [np.sqrt((v**2 - beta - 1) ** 2 - 4 * beta) / v if v > 1 + np.sqrt(beta) else 0.0 for v in y]
        assert np.allclose(shrunk, left @ np.diag(np.multiply(kept, noise * np.sqrt(long))) @ right)


def test_shrinkage_removes_noise_and_keeps_signal() -> None:
    generator = np.random.default_rng(5)
    sd = np.full(50, 0.01)
    noise = generator.normal(0, 0.01, (50, 12, 9))
    # Pure noise: almost everything goes.
    assert np.sum(shrink(noise, sd) ** 2) < 0.05 * np.sum(noise**2)
    left, right = generator.normal(size=12), generator.normal(size=9)
    signal = 0.05 * np.outer(left - left.mean(), right - right.mean())
    shrunk = shrink(signal + noise, sd)
    assert np.sum((shrunk - signal) ** 2) < 0.5 * np.sum(noise**2)
    np.testing.assert_allclose(shrunk.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(shrunk.sum(axis=2), 0, atol=1e-12)


def test_a_table_with_one_row_has_no_interaction() -> None:
    assert (shrink(np.ones((3, 1, 4)), np.ones(3)) == 0).all()


def test_consistent_is_better_than_plain_under_noise() -> None:
    counts = exact_counts()
    budget = Budget(epsilon=0.5)
    plan = plan_tables(SCHEMA, budget)
    mask = above_diagonal(SCHEMA)
    plain_error, consistent_error = [], []
    for _ in range(30):
        pooled = pool((Vault(counts, SCHEMA, budget).measure(plan),))
        plain_error.append(np.abs(plain(pooled).pairs * ROWS - counts.pairs)[mask].mean())
        consistent_error.append(np.abs(consistent(pooled).pairs * ROWS - counts.pairs)[mask].mean())
    # 0.81 measured, with a standard error of about 0.02.
    assert np.mean(consistent_error) < 0.92 * np.mean(plain_error)
