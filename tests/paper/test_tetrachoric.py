"""Orthant probabilities and tetrachoric correlations against slow, independent ways to compute them."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr

from sklar.paper.estimate import orthant, tetrachoric_matrix, thresholds

Array = NDArray[np.float64]

CUTS = st.floats(-4.3, 4.3)
PROBABILITIES = st.floats(1e-5, 1 - 1e-5)


def by_conditioning(h: float, k: float, r: float) -> float:
    """P(Y1 > h, Y2 > k) as the integral over y > h of the density of Y1 times P(Y2 > k | Y1 = y), at 25 digits."""
    with mp.workdps(25):
        h, k, r = mp.mpf(h), mp.mpf(k), mp.mpf(r)
        width = mp.sqrt(1 - r * r)

        def density(y: mp.mpf) -> mp.mpf:
            return mp.npdf(y) * mp.erfc((k - r * y) / (width * mp.sqrt(2))) / 2

        # P(Y2 > k | y) jumps around y = k / r, the more sharply the nearer |r| is to 1.
        jumps = [k / r + side * width * z for side in (-1, 1) for z in (0, 2, 6, 12)]
        inside = sorted({z for z in [*jumps, h + 1, h + 3, h + 6, mp.mpf(0)] if h < z < h + 14})
        points = [h, *inside, h + 14]
        # mpmath stops at an absolute error: scale the integrand to keep the digits of a tiny integral.
        scale = max(density(y) for y in points)
        return float(mp.quad(lambda y: density(y) / scale, points) * scale)


def on_the_paper_grid(t_i: float, t_j: float, r: float) -> float:
    """The paper's double integral: the bivariate density summed over cells of side 0.01 in [-10, 10]^2."""
    centers = np.arange(-10.0, 10.0, 0.01) + 0.005
    y_i, y_j = centers[centers > t_i, None], centers[centers > t_j]
    exponent = (y_i * y_i - 2.0 * r * y_i * y_j + y_j * y_j) / (-2.0 * (1.0 - r * r))
    return float(np.exp(exponent).sum() * 1e-4 / (2.0 * math.pi * math.sqrt(1.0 - r * r)))


def tolerance(h: float, k: float, r: float, *, scale: float) -> float:
    """How far the orthant at a solution r may be from its target: rounding, and the step to the next number after r."""
    neighbors = orthant(h, k, np.clip(np.nextafter(r, [-2.0, 2.0]), -1.0, 1.0))
    return float(1e-15 + 4e-12 * scale + neighbors[1] - neighbors[0])


def tetrachoric(p_i: Array, p_j: Array, p_ij: Array) -> tuple[Array, int]:
    """Single pairs, through a matrix in which all other pairs are independent."""
    p = np.stack([p_i, p_j], axis=1).ravel()
    joint = np.outer(p, p)
    at = np.arange(0, p.size, 2)
    joint[at, at + 1] = p_ij
    r, clipped = tetrachoric_matrix(p, joint)
    return r[at, at + 1], clipped


def solve(p_i: float, p_j: float, p_ij: float) -> float:
    return float(tetrachoric(np.array([p_i]), np.array([p_j]), np.array([p_ij]))[0][0])


def test_thresholds_invert_the_tail() -> None:
    p = np.array([1e-300, 1e-12, 1e-5, 0.3, 0.5, 0.99])
    np.testing.assert_allclose(ndtr(-thresholds(p)), p, rtol=1e-12)
    assert thresholds(np.array([0.0, 1.0])).tolist() == [math.inf, -math.inf]


@pytest.mark.parametrize(
    ("h", "k", "r"),
    [
        (0.3, 0.3, 0.999999),
        (0.3, 0.300001, 0.999999),
        (-1.0, 1.0, -0.999999),
        (4.2, 4.25, 0.99),
        (4.2, -4.2, -0.95),
        (-4.2, -4.2, -0.99),
        (0.0, 0.0, 0.8),
        (-0.7, -0.7, -0.6),
        (0.0, 1.3, 0.2),
        (2.5, -2.5, 0.9),
        (3.0, 4.2, -0.97),
        (3.0, 3.0, 0.5),
    ],
)
def test_orthant_agrees_with_conditioning(h: float, k: float, r: float) -> None:
    assert float(orthant(h, k, r)) == pytest.approx(by_conditioning(h, k, r), rel=0.0, abs=1e-15)


@given(h=CUTS, k=CUTS, r=st.floats(-1.0, 1.0))
@settings(max_examples=50, deadline=None)
def test_orthant_identities(h: float, k: float, r: float) -> None:
    low, middle, high, value = orthant(h, k, [-1.0, 0.0, 1.0, r])
    assert low == pytest.approx(max(0.0, ndtr(-h) - ndtr(k)), abs=1e-15)
    assert middle == pytest.approx(ndtr(-h) * ndtr(-k), abs=1e-15)
    assert high == pytest.approx(min(ndtr(-h), ndtr(-k)), abs=1e-15)
    assert value == pytest.approx(float(orthant(k, h, r)), abs=1e-15)
    assert value + orthant(h, -k, -r) == pytest.approx(ndtr(-h), abs=1e-14)
    assert 0.0 <= value <= min(ndtr(-h), ndtr(-k))
    assert orthant(0.0, 0.0, r) == pytest.approx(0.25 + math.asin(r) / (2.0 * math.pi), abs=1e-15)


def test_orthant_at_the_edges() -> None:
    r = np.array([-1.0, -0.5, 0.0, 0.9, 1.0])
    assert (orthant([[math.inf], [0.3]], [[0.3], [math.inf]], r) == 0.0).all()
    np.testing.assert_allclose(orthant([[-math.inf], [0.3]], [[0.3], [-math.inf]], r), ndtr(-0.3), rtol=1e-15)
    assert (orthant(-math.inf, -math.inf, r) == 1.0).all()
    assert (orthant(1e200, [-1e200, 1e200], 0.5) == 0.0).all()
    assert np.isnan(orthant(0.0, 0.0, [1.0000001, -2.0, math.nan])).all()
    assert np.isnan(orthant(math.nan, 0.0, 0.5))


def test_agrees_with_the_papers_bisection_on_its_grid() -> None:
    # Cut points on cell borders leave the grid only the error of the midpoint rule, and it resolves four digits of r.
    t_i, t_j, p_ij = 0.5, 1.2, 0.08
    low, high = -0.999, 0.999
    while high - low > 1e-5:
        middle = 0.5 * (low + high)
        enough = on_the_paper_grid(t_i - 1e-9, t_j - 1e-9, middle) >= p_ij
        low, high = (low, middle) if enough else (middle, high)
    assert low == pytest.approx(solve(float(ndtr(-t_i)), float(ndtr(-t_j)), p_ij), abs=1e-4)


@given(p_i=PROBABILITIES, p_j=PROBABILITIES, share=st.floats(0.0, 1.0))
@settings(max_examples=60, deadline=None)
def test_reaches_every_target_between_the_bounds(p_i: float, p_j: float, share: float) -> None:
    low, high = max(0.0, p_i + p_j - 1.0), min(p_i, p_j)
    p_ij = min(high, low + share * (high - low))
    (r,), clipped = tetrachoric(np.array([p_i]), np.array([p_j]), np.array([p_ij]))
    assert clipped == 0
    h, k = thresholds(np.array([p_i, p_j]))
    assert orthant(h, k, r) == pytest.approx(p_ij, abs=tolerance(h, k, r, scale=high))
    assert solve(p_j, p_i, p_ij) == r
    assert solve(p_i, p_j, p_i * p_j) == 0.0
    # X_j turned into 1 - X_j: p_ij -> p_i - p_ij, and the correlation changes sign, as far as 1 - p_j keeps p_j.
    flipped = solve(p_i, 1.0 - p_j, p_i - p_ij)
    assert orthant(h, k, -flipped) == pytest.approx(p_ij, abs=1e-13 + tolerance(h, k, -flipped, scale=high))


@given(p_i=PROBABILITIES, p_j=PROBABILITIES)
@settings(max_examples=20, deadline=None)
def test_rises_with_the_target(p_i: float, p_j: float) -> None:
    targets = np.linspace(max(0.0, p_i + p_j - 1.0), min(p_i, p_j), 101)
    r, _ = tetrachoric(np.full(101, p_i), np.full(101, p_j), targets)
    assert np.diff(r).min() >= -1e-9
    assert (r[0], r[-1]) == (-1.0, 1.0)


@pytest.mark.parametrize("p_ij", [1e-14, 1e-10, 1e-6, 9.9e-6])
def test_rare_levels(p_ij: float) -> None:
    h = float(thresholds(np.array([1e-5]))[0])
    assert orthant(h, h, solve(1e-5, 1e-5, p_ij)) == pytest.approx(p_ij, rel=1e-9, abs=1e-17)


def test_extreme_probabilities_stay_finite() -> None:
    tiny = np.array([1e-320, 1e-300, 1e-200, 1e-60, 1e-16, 0.5, 1.0 - 1e-16])
    p_i, p_j = (m.ravel() for m in np.meshgrid(tiny, tiny))
    low, high = np.maximum(0.0, p_i + p_j - 1.0), np.minimum(p_i, p_j)
    for share in (1e-300, 1e-30, 1e-3, 0.5, 0.999999):
        r, _ = tetrachoric(p_i, p_j, low + share * (high - low))
        assert (np.abs(r) <= 1.0).all()
    assert solve(0.5, 0.5, 1e-300) == -1.0
    assert solve(0.5, 0.5, 1e-12) == pytest.approx(-math.cos(2.0 * math.pi * 1e-12), abs=1e-15)


def test_targets_out_of_bounds_are_clipped_and_counted() -> None:
    r, clipped = tetrachoric(np.full(5, 0.75), np.full(5, 0.625), np.array([-0.1, 0.37, 0.375, 0.625, 0.63]))
    assert r.tolist() == [-1.0, -1.0, -1.0, 1.0, 1.0]
    assert clipped == 3
    # A structural zero is at its bound, and a margin that never varies has no correlation.
    zeros, ones = np.array([0.2, 0.0, 1.0, 0.3, 0.0]), np.array([0.3, 0.4, 0.4, 1.0, 1.0])
    r, clipped = tetrachoric(zeros, ones, np.array([0.0, 0.0, 0.4, 0.3, 0.0]))
    assert r.tolist() == [-1.0, 0.0, 0.0, 0.0, 0.0]
    assert clipped == 0
    assert tetrachoric(np.array([0.0]), np.array([0.4]), np.array([0.1]))[1] == 1


@pytest.mark.parametrize("d", [0, 1, 2, 200])
def test_matrix_is_every_pair_above_the_diagonal_in_any_layout(d: int) -> None:
    rng = np.random.default_rng(d)
    p = rng.uniform(0.0, 0.7, d)
    joint = np.outer(p, p) + rng.normal(0.0, 0.1, (d, d))
    r, clipped = tetrachoric_matrix(np.repeat(p, 2)[::2], np.asfortranarray(np.triu(joint, 1)))
    i, j = (each[:100] for each in np.triu_indices(d, 1))
    np.testing.assert_array_equal(r[i, j], [solve(*each) for each in zip(p[i], p[j], joint[i, j], strict=True)])
    low, high = np.maximum(0.0, p[:, None] + p - 1.0), np.minimum(p[:, None], p)
    assert clipped == np.count_nonzero(np.triu((joint < low) | (joint > high), 1))
    assert (r == r.T).all()
    assert (np.diagonal(r) == 1.0).all()
