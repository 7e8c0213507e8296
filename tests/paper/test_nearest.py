"""The nearest correlation matrix against slow, independent ways to find it."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklar.paper.estimate import _ACCURACY
from sklar.paper.nearest import nearest

Array = npt.NDArray[np.float64]


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


def by_alternating_projections(matrix: Array, *, floor: float, steps: int = 20000) -> Array:
    """Higham (2002): project on eigenvalues >= floor, with Dykstra's correction, and on a unit diagonal, in turn."""
    x, correction = matrix.copy(), np.zeros_like(matrix)
    for _ in range(steps):
        shifted = x - correction
        values, vectors = np.linalg.eigh(shifted)
        projected = (vectors * np.maximum(values, floor)) @ vectors.T
        correction = projected - shifted
        previous, x = x, projected
        np.fill_diagonal(x, 1.0)
        if np.abs(x - previous).max() < 1e-10:
            break
    return x


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


@pytest.mark.parametrize(("d", "floor"), [(5, 0.0), (12, 0.05), (25, 1e-8)])
def test_agrees_with_alternating_projections(d: int, floor: float) -> None:
    matrix = indefinite(d, seed=d)
    repair = nearest(matrix, floor=floor)
    np.testing.assert_allclose(repair.correlation, by_alternating_projections(matrix, floor=floor), atol=1e-6)
    assert_correlation(repair.correlation, floor=floor)
    assert_optimal(matrix, repair.correlation, floor=floor, weights=np.ones(d))


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
def test_few_decompositions_on_dummy_coded_attributes(levels: int, noise: float) -> None:
    repair = nearest(dummy_coded(100, levels=levels, noise=noise))
    assert repair.decompositions <= 15
    assert repair.residual <= 1e-7
    assert_correlation(repair.correlation, floor=1e-8)
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
    assert repair.residual <= 1e-7
    assert repair.moved == pytest.approx(np.linalg.norm(repair.correlation - matrix))
    assert repair.max_moved == np.abs(repair.correlation - matrix).max()
    assert repair.negative_eigenvalues == np.count_nonzero(np.linalg.eigvalsh(matrix) < floor - 1e-13)
    again = nearest(repair.correlation, floor=floor)
    assert (again.moved, again.max_moved, again.negative_eigenvalues, again.decompositions) == (0.0, 0.0, 0, 1)
    assert (again.correlation == repair.correlation).all()
    assert again.correlation is not repair.correlation


def test_the_input_is_left_alone_and_its_diagonal_does_not_matter() -> None:
    matrix = indefinite(10, seed=3)
    other = matrix + np.diag(np.linspace(-1.0, 1.0, 10))
    kept = other.copy()
    assert (nearest(other).correlation == nearest(matrix).correlation).all()
    assert (other == kept).all()
    assert nearest(2.0 * np.eye(3)).max_moved == 1.0


@pytest.mark.parametrize(("d", "floor", "spread"), [(4, 0.0, 1.0), (15, 1e-8, 2.0), (30, 0.01, 1.0)])
def test_weighted_optimum(d: int, floor: float, spread: float) -> None:
    matrix = indefinite(d, seed=d + 1)
    weights = 10.0 ** np.random.default_rng(d).uniform(-spread, 0.0, d)
    repair = nearest(matrix, floor=floor, weights=weights)
    assert_correlation(repair.correlation, floor=floor)
    assert_optimal(matrix, repair.correlation, floor=floor, weights=weights, tolerance=1e-5)
    # Where weight is, less moves than without weights; and only ratios of weights matter.
    plain = nearest(matrix, floor=floor)
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
    assert near.decompositions < exact.decompositions
    assert np.abs(near.correlation - exact.correlation).max() < 1e-3
    assert_correlation(near.correlation, floor=1e-6)
