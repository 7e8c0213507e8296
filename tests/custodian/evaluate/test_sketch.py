"""Distributions in bounded memory, against plain NumPy and SciPy on all numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sklar.custodian.evaluate.raw import Distribution, Sketch, cells, ks_distance, wasserstein_distance

NUMBERS = st.lists(
    st.one_of(st.integers(-50, 50).map(float), st.floats(-1e12, 1e12, allow_subnormal=False)), min_size=1, max_size=60
)


def held(numbers: object, limit: int = 1 << 16, parts: int = 1) -> Distribution:
    sketch = Sketch(limit)
    for part in np.array_split(np.asarray(numbers, dtype=np.float64), parts):
        sketch.add(part)
    found = sketch.done()
    assert found is not None
    return found


def true_ks(one: object, two: object) -> float:
    # SciPy's p-value divides by zero for single numbers; the statistic is what is wanted.
    with np.errstate(divide="ignore"):
        return float(stats.ks_2samp(one, two, method="asymp").statistic)


@settings(max_examples=50, deadline=None)
@given(NUMBERS, NUMBERS)
def test_distances_are_those_of_scipy(one: list[float], two: list[float]) -> None:
    real, other = held(one), held(two)
    assert ks_distance(real, other) == pytest.approx(true_ks(one, two))
    assert wasserstein_distance(real, other) == pytest.approx(stats.wasserstein_distance(one, two), rel=1e-9, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(NUMBERS)
def test_moments_quantiles_and_ranks_are_those_of_all_numbers(numbers: list[float]) -> None:
    found = held(numbers, parts=3)
    assert found.size == len(numbers)
    assert found.mean == pytest.approx(np.mean(numbers), rel=1e-9, abs=1e-3)
    assert found.sd == pytest.approx(np.std(numbers), rel=1e-6, abs=1e-3)
    shares = np.array([0.01, 0.25, 0.5, 0.95, 1.0])
    assert found.quantiles(shares).tolist() == np.quantile(numbers, shares, method="inverted_cdf").tolist()
    ranks = (stats.rankdata(numbers) - 0.5) / len(numbers)
    assert found.ranks(np.array([*numbers, np.nan])) == pytest.approx([*ranks, np.nan], nan_ok=True)


@settings(max_examples=20, deadline=None)
@given(st.permutations([-3.5, -0.0, 0.0, 1e-9, 1.0, 1.0, 1.5, 2.0, 1e6, 1e6 + 1, 7.25, 9.0, -40.0]))
def test_what_is_kept_depends_on_the_numbers_and_not_on_their_order(numbers: list[float]) -> None:
    one, two = held(numbers, limit=4, parts=4), held(sorted(numbers), limit=4)
    assert one.bits == two.bits > 0
    assert one.counts.tolist() == two.counts.tolist()
    assert (one.low.tolist(), one.high.tolist()) == (two.low.tolist(), two.high.tolist())


def test_cells_ascend_with_the_numbers() -> None:
    numbers = np.array([-np.float64(1e300), -2.0, -1e-300, 0.0, 5e-324, 1.0, 1.0 + 2**-52, 1e300])
    assert (np.diff(cells(numbers, 0)) > 0).all()
    assert cells(np.array([-0.0]), 0).tolist() == [0]


def test_many_distinct_numbers_are_kept_within_the_limit_and_the_stated_error() -> None:
    generator = np.random.default_rng(0)
    one, two = generator.normal(50, 10, 20_000), generator.normal(51, 10, 15_000)
    one[:4_000] = 40.0
    real, other = held(one, limit=1_000, parts=7), held(two, limit=1_000, parts=5)
    assert max(real.counts.size, other.counts.size) <= 1_000
    assert not real.single.all()
    error = real.widest + other.widest
    assert abs(ks_distance(real, other) - true_ks(one, two)) <= error < 0.02
    assert wasserstein_distance(real, other) == pytest.approx(stats.wasserstein_distance(one, two), rel=0.01)
    assert real.quantiles(np.array([0.5])) == pytest.approx(np.median(one), rel=2**-6)
    assert real.mean == pytest.approx(one.mean())


@pytest.mark.parametrize("shuffled", [True, False])
def test_heaps_stay_exact_among_many_distinct_numbers(shuffled: bool) -> None:
    generator = np.random.default_rng(0)
    numbers = np.concatenate([np.zeros(500), np.full(400, 2_000.0), generator.lognormal(8, 2, 5_000)])
    found = held(generator.permutation(numbers) if shuffled else np.sort(numbers), limit=300, parts=4)
    assert found.counts.size <= 300
    assert found.share(0.0) == pytest.approx(500 / 5_900)
    assert found.share(2_000.0) == pytest.approx(400 / 5_900)
    assert found.share(2_001.0) == 0
    assert (np.diff(found.low) > 0).all()
    assert found.widest < 0.02


def test_moments_far_from_their_origin_keep_their_digits() -> None:
    moments = 1.7e15 + np.array([0.0, 1e6, 2e6])
    assert held(moments, parts=3).sd == pytest.approx(np.std([0, 1e6, 2e6]), rel=1e-6)


def test_no_numbers_are_no_distribution() -> None:
    sketch = Sketch()
    sketch.add(np.empty(0))
    assert sketch.done() is None
