"""The paper's copula against slow, independent ways: orthants, correlations, their repair, and what is drawn."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from unittest.mock import Mock

import mpmath as mp
import numpy as np
import pytest
from experiments.illustrations import orthant
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import ndtr

from sklar.kernel.cells import Cells
from sklar.paper.estimate import _ACCURACY, Probabilities, fit_binary, nearest, tetrachoric_matrix, thresholds
from sklar.paper.gaussian import BinaryCopula
from tests.draw.test_blocks import drawn as draw
from tests.draw.test_blocks import pair_frequencies
from tests.fitting.test_denoise import schema_of

Array = NDArray[np.float64]

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


def indefinite(d: int, *, seed: int, noise: float = 0.6) -> Array:
    """A symmetric matrix with a unit diagonal and entries in [-1, 1]."""
    upper = np.triu(np.clip(np.random.default_rng(seed).normal(0.0, noise, (d, d)), -1.0, 1.0), 1)
    return np.asarray(upper + upper.T + np.eye(d))


def dummy_coded(d: int, *, levels: int, noise: float, seed: int = 0) -> Array:
    """What the paper's step 4 yields: -1 between levels of one attribute (structural zeros), noise elsewhere."""
    attribute = np.arange(d) // levels
    matrix = indefinite(d, seed=seed, noise=noise) if noise else np.eye(d)
    matrix[attribute[:, None] == attribute] = -1.0
    np.fill_diagonal(matrix, 1.0)
    return matrix


def assert_optimal(matrix: Array, x: Array, *, floor: float, weights: Array, tolerance: float = 1e-6) -> None:
    """The Karush-Kuhn-Tucker conditions, which in a convex problem are necessary and sufficient.

    W (X - G) W = diag(y) + M with M positive semidefinite and M (X - floor I) = 0; the y that fits best is solved for.
    """
    residual = weights[:, None] * (x - matrix) * weights
    slack = x - floor * np.eye(len(x))
    # M S = 0 has the diagonal y_i s_ii + (sum over j of the off-diagonal residual times S) = 0.
    off_diagonal = residual - np.diag(np.diagonal(residual))
    y = -np.einsum("ij,ji->i", off_diagonal, slack) / np.diagonal(slack)
    multiplier = off_diagonal + np.diag(y)
    scale = np.abs(residual).max()
    assert np.linalg.eigvalsh(multiplier)[0] >= -tolerance * scale
    assert np.abs(multiplier @ slack).max() <= tolerance * scale


def assert_correlation(x: Array, *, floor: float) -> None:
    assert (np.diagonal(x) == 1.0).all()
    assert (x == x.T).all()
    assert np.linalg.eigvalsh(x)[0] >= floor - 1e-13 * len(x)


def test_highams_example() -> None:
    repair = nearest(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]), floor=0.0)
    # By symmetry and rank the answer is a, a and 2a^2 - 1: a minimizes 4 (a - 1)^2 + 2 (2a^2 - 1)^2, so 4a^3 - a = 1.
    a = float(max(np.roots([4.0, 0.0, -1.0, -1.0]).real))
    b = 2.0 * a * a - 1.0
    assert (round(a, 4), round(b, 4)) == (0.7607, 0.1573)  # as printed by Higham
    np.testing.assert_allclose(repair.correlation, [[1.0, a, b], [a, 1.0, a], [b, a, 1.0]], atol=1e-7)
    assert repair.moved == pytest.approx(np.sqrt(4.0 * (1.0 - a) ** 2 + 2.0 * b * b), abs=1e-7)
    assert repair.max_moved == pytest.approx(1.0 - a, abs=1e-7)
    assert repair.negative_eigenvalues == 1


def test_structural_zeros_spread_evenly() -> None:
    # m levels that exclude one another: no correlation matrix has m variables all at -1; -1/(m-1) is the lowest.
    repair = nearest(dummy_coded(5, levels=5, noise=0.0), floor=0.0)
    np.testing.assert_allclose(repair.correlation, np.full((5, 5), -0.25) + 1.25 * np.eye(5), atol=1e-12)


@pytest.mark.parametrize(("levels", "noise"), [(2, 0.0), (2, 0.3), (7, 1.0), (50, 0.02), (50, 0.3)])
def test_few_decompositions_on_dummy_coded_attributes(
    levels: int, noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix, counted = dummy_coded(100, levels=levels, noise=noise), Mock(wraps=eigh)
    monkeypatch.setattr("sklar.paper.estimate.eigh", counted)
    near = nearest(matrix, tolerance=_ACCURACY)
    roughly, repair = counted.call_count, nearest(matrix)
    assert roughly <= counted.call_count - roughly <= 15
    assert np.abs(near.correlation - repair.correlation).max() < 1e-3
    assert_correlation(repair.correlation, floor=1e-8)
    assert_optimal(matrix, repair.correlation, floor=1e-8, weights=np.ones(100))
    np.linalg.cholesky(repair.correlation)


@pytest.mark.parametrize("floor", [0.0, 1e-8, 0.1])
def test_one_and_two_rows(floor: float) -> None:
    assert nearest(np.array([[1.0]]), floor=floor).correlation.tolist() == [[1.0]]
    for r in (-1.7, -1.0, 1.0, 3.0):
        # Eigenvalues 1 - |r| and 1 + |r|: the nearest r with both >= floor.
        x = nearest(np.array([[1.0, r], [r, 1.0]]), floor=floor).correlation
        assert x[0, 1] == pytest.approx(np.sign(r) * (1.0 - floor), abs=2e-8)
        assert_correlation(x, floor=floor)


@given(
    d=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    noise=st.floats(0.0, 3.0),
    floor=st.sampled_from([1e-8, 1e-3, 0.2]),
)
@settings(max_examples=30, deadline=None)
def test_a_repair_is_a_correlation_matrix_and_needs_no_repair(d: int, seed: int, noise: float, floor: float) -> None:
    matrix = indefinite(d, seed=seed, noise=noise)
    repair = nearest(matrix, floor=floor)
    assert_correlation(repair.correlation, floor=floor)
    np.linalg.cholesky(repair.correlation)
    assert_optimal(matrix, repair.correlation, floor=floor, weights=np.ones(d))
    assert repair.moved == pytest.approx(np.linalg.norm(repair.correlation - matrix))
    assert repair.max_moved == np.abs(repair.correlation - matrix).max()
    assert repair.negative_eigenvalues == np.count_nonzero(np.linalg.eigvalsh(matrix) < floor - 1e-13)
    again = nearest(repair.correlation, floor=floor)
    assert (again.moved, again.max_moved, again.negative_eigenvalues) == (0.0, 0.0, 0)
    assert (again.correlation == repair.correlation).all()
    assert again.correlation is not repair.correlation


def test_the_input_is_left_alone_and_its_diagonal_does_not_matter() -> None:
    matrix = indefinite(10, seed=3)
    other = matrix + np.diag(np.linspace(-1.0, 1.0, 10))
    kept = other.copy()
    assert (nearest(other).correlation == nearest(matrix).correlation).all()
    assert (other == kept).all()
    assert nearest(2.0 * np.eye(3)).max_moved == 1.0


@pytest.mark.parametrize(("d", "floor", "spread"), [(4, 0.0, 1.0), (12, 0.05, 1.0), (15, 1e-8, 2.0), (30, 0.01, 1.0)])
def test_a_repair_is_optimal_with_weights_and_without(d: int, floor: float, spread: float) -> None:
    matrix = indefinite(d, seed=d + 1)
    weights = 10.0 ** np.random.default_rng(d).uniform(-spread, 0.0, d)
    repair = nearest(matrix, floor=floor, weights=weights)
    assert_correlation(repair.correlation, floor=floor)
    assert_optimal(matrix, repair.correlation, floor=floor, weights=weights, tolerance=1e-5)
    # Where weight is, less moves than without weights; and only ratios of weights matter.
    plain = nearest(matrix, floor=floor)
    assert_correlation(plain.correlation, floor=floor)
    assert_optimal(matrix, plain.correlation, floor=floor, weights=np.ones(d))
    size = np.sqrt(np.outer(weights, weights))
    assert np.linalg.norm(size * (repair.correlation - matrix)) < np.linalg.norm(size * (plain.correlation - matrix))
    np.testing.assert_allclose(
        nearest(matrix, floor=floor, weights=1e6 * weights).correlation, repair.correlation, atol=1e-9
    )
    assert repair.negative_eigenvalues == plain.negative_eigenvalues


@pytest.mark.parametrize(("levels", "noise"), [(2, 0.02), (7, 0.3), (50, 0.1)])
def test_the_accuracy_of_a_fit_is_far_below_the_noise(levels: int, noise: float) -> None:
    # Weights as of levels from common to one in a million.
    matrix, weights = dummy_coded(100, levels=levels, noise=noise), 10.0 ** -np.linspace(0.0, 3.0, 100)
    near = nearest(matrix, floor=1e-6, weights=weights, tolerance=_ACCURACY)
    exact = nearest(matrix, floor=1e-6, weights=weights)
    assert np.abs(near.correlation - exact.correlation).max() < 1e-3
    assert_correlation(near.correlation, floor=1e-6)


SCHEMA = schema_of(4, 3, 2)
CELLS = SCHEMA.cells


def probabilities(*, rare: bool = False) -> Probabilities:
    """A table with real dependence, as exact probabilities."""
    a = np.array([0.4, 0.3, 0.2999, 0.0001]) if rare else np.array([0.4, 0.3, 0.2, 0.1])
    given_a = np.array([[0.6, 0.3, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6], [0.3, 0.3, 0.4]])
    given_b = np.array([0.2, 0.5, 0.7])
    joint = a[:, None] * given_a
    full = joint[:, :, None] * np.stack([1 - given_b, given_b], axis=1)[None]
    levels = np.concatenate([a, joint.sum(axis=0), full.sum(axis=(0, 1))])
    pairs = np.concatenate([joint.ravel(), full.sum(axis=1).ravel(), full.sum(axis=0).ravel()])
    return Probabilities(cells=CELLS, levels=levels, pairs=pairs)


def fitted(wanted: Probabilities, *, dummies: bool = False) -> BinaryCopula:
    return fit_binary(wanted, schema_of(*wanted.cells.sizes), dummies=dummies, weighted=not dummies)


def test_records_are_valid_and_hold_the_margins() -> None:
    wanted = probabilities()
    codes = draw(fitted(wanted), 100_000, 1)
    assert ((codes >= 0) & (codes < SCHEMA.sizes[:, None])).all()
    pairs = pair_frequencies(SCHEMA, codes)
    # Settled blocks: far below the sampling error of independent draws, 0.0016.
    np.testing.assert_allclose(np.diag(pairs), wanted.levels, atol=0.0008)
    # The copula's own limits show in the pairs, but it must be much closer than independence.
    independent = np.abs(CELLS.flat(np.outer(wanted.levels, wanted.levels)) - wanted.pairs).mean()
    assert np.abs(CELLS.flat(pairs) - wanted.pairs).mean() < 0.6 * independent


def test_dummies_follow_the_paper() -> None:
    wanted = probabilities()
    dummies = draw(fitted(wanted, dummies=True), 200_000, 2)
    assert dummies.dtype == np.uint8
    assert dummies.max() == 1
    np.testing.assert_allclose(dummies.mean(axis=1), wanted.levels, atol=0.006)
    pairs = dummies.astype(float) @ dummies.T.astype(float) / dummies.shape[1]
    independent = np.abs(CELLS.flat(np.outer(wanted.levels, wanted.levels)) - wanted.pairs).mean()
    assert np.abs(CELLS.flat(pairs) - wanted.pairs).mean() < 0.6 * independent
    # And may be inconsistent: some rows have no level of an attribute, some several.
    assert set(np.unique(dummies[:4].sum(axis=0))) >= {0, 1, 2}


def test_dummies_have_the_right_pairs_when_nothing_needs_repair() -> None:
    """Two booleans given as one level each would be a plain bivariate normal: the copula is exact there."""
    wanted = Probabilities(cells=Cells([1, 1]), levels=np.array([0.3, 0.6]), pairs=np.array([0.25]))
    copula = fitted(wanted, dummies=True)
    assert copula.repairs.negative_eigenvalues == 0
    dummies = draw(copula, 400_000, 3)
    # Five sampling errors.
    assert (dummies[0] & dummies[1]).mean() == pytest.approx(0.25, abs=0.0035)


def booleans(share: Array, both: Array) -> BinaryCopula:
    """Records of booleans with P(first level) = share, shape (m,), and P(first levels of both), shape (m, m)."""
    cells = Cells([2] * share.size)
    i, j = cells.pairs
    p = both[i, j]
    pairs = np.stack([p, share[i] - p, share[j] - p, 1 - share[i] - share[j] + p], axis=1).ravel()
    levels = np.stack([share, 1 - share], axis=1).ravel()
    return fitted(Probabilities(cells=cells, levels=levels, pairs=pairs))


def test_records_of_booleans_have_exactly_the_wanted_pairs() -> None:
    """A boolean is one normal and one cut point: where nothing needs repair, all two-way tables are exact."""
    share = np.array([0.3, 0.6, 0.1])
    both = np.array([[0.3, 0.25, 0.05], [0.25, 0.6, 0.03], [0.05, 0.03, 0.1]])
    copula = booleans(share, both)
    assert copula.repairs.negative_eigenvalues == 0
    assert not copula.factor[:, 1::2].any()
    assert np.array_equal(copula.factor[1::2], -copula.factor[::2])
    codes = draw(copula, 400_000, 3)
    found = np.array([[np.mean((codes[i] == 0) & (codes[j] == 0)) for j in range(3)] for i in range(3)])
    # Six sampling errors: nine tables fail by chance less than once in 10^7.
    assert np.abs(found - both).max() < 6 * 0.5 / np.sqrt(400_000)


def test_a_boolean_that_all_share() -> None:
    share = np.array([0.0, 1.0, 0.5])
    both = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.5, 0.5]])
    codes = draw(booleans(share, both), 20_000, 3)
    assert (codes[0] == 1).all()
    assert (codes[1] == 0).all()
    assert abs(codes[2].mean() - 0.5) < 0.02


def test_a_level_that_nobody_has_is_never_drawn() -> None:
    wanted = probabilities()
    levels, pairs = wanted.levels.copy(), CELLS.square(wanted.pairs)
    levels[2] += levels[3]
    pairs[2] += pairs[3]
    levels[3], pairs[3] = 0.0, 0.0
    nobody = Probabilities(cells=CELLS, levels=levels, pairs=CELLS.flat(pairs))
    codes = draw(fitted(nobody), 50_000, 4)
    assert (codes[0] != 3).all()
    assert np.mean(codes[0] == 2) == pytest.approx(levels[2], abs=0.002)


def test_rare_levels_keep_their_expected_count() -> None:
    wanted = probabilities(rare=True)
    codes = draw(fitted(wanted), 2_000_000, 5)
    # 200 expected; five standard deviations and 15% of bias.
    assert abs(int((codes[0] == 3).sum()) - 200) < 5 * np.sqrt(200) + 30


def test_one_attribute_with_one_level() -> None:
    wanted = Probabilities(cells=Cells([1]), levels=np.ones(1), pairs=np.empty(0))
    assert (draw(fitted(wanted), 10, 6) == 0).all()


def test_repairs_are_recorded() -> None:
    wanted = probabilities()
    pairs = wanted.pairs.copy()
    CELLS.table(pairs, 0, 1)[0, 0] = 0.9
    copula = fitted(replace(wanted, pairs=pairs), dummies=True)
    assert copula.repairs.clipped_pairs == 1
    assert copula.repairs.negative_eigenvalues > 0
    assert copula.repairs.moved > 0


def test_an_attribute_whose_levels_were_all_clipped_is_drawn_evenly() -> None:
    wanted = probabilities()
    levels, pairs = wanted.levels.copy(), wanted.pairs.copy()
    levels[:4], CELLS.table(pairs, 0, 1)[:], CELLS.table(pairs, 0, 2)[:] = 0.0, 0.0, 0.0
    copula = fit_binary(replace(wanted, levels=levels, pairs=pairs), SCHEMA, dummies=False, weighted=False)
    assert copula.repairs.empty_attributes == 1
    np.testing.assert_allclose(np.diag(pair_frequencies(SCHEMA, draw(copula, 40_000, 9)))[:4], 0.25, atol=0.002)


def test_records_are_distributed_as_the_largest_exceedance() -> None:
    """Drawing differences must give what drawing every Y gives, with plain NumPy here."""
    copula, rows = fitted(probabilities()), 400_000
    pairs = pair_frequencies(SCHEMA, draw(copula, rows, 11))
    latent = copula.factor.astype(float) @ np.random.default_rng(1).standard_normal((SCHEMA.n_levels, rows))
    exceedance = latent - copula.cuts[:, None]
    codes = np.stack([exceedance[a:b].argmax(axis=0) for a, b in pairwise(SCHEMA.offsets)])
    expected = pair_frequencies(SCHEMA, codes)
    # Six standard errors of a difference of two samples, 2e-9 each, and the little that settling moves.
    sd = np.sqrt(2 * expected * (1 - expected) / rows)
    assert (np.abs(pairs - expected) < 6 * sd + 0.002).all()


def test_attributes_with_more_levels_than_a_byte_holds() -> None:
    levels = np.concatenate([np.full(300, 1 / 300), [0.25, 0.75]])
    pairs = np.outer(levels[:300], levels[300:]).ravel()
    codes = draw(fitted(Probabilities(cells=Cells([300, 2]), levels=levels, pairs=pairs)), 60_000, 1)
    # 200 expected of each: seven standard deviations, 1e-12 for each of 300 levels.
    assert np.abs(np.bincount(codes[0], minlength=300) - 200).max() < 7 * np.sqrt(200)
    assert codes[1].mean() == pytest.approx(0.75, abs=0.002)


def test_a_damaged_model_without_a_level_to_draw_draws_the_first() -> None:
    copula = fitted(probabilities())
    cuts = copula.cuts.copy()
    cuts[:4] = np.nan
    assert not draw(replace(copula, cuts=cuts), 100, 1)[0].any()
