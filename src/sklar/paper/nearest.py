"""The nearest correlation matrix: the paper's repair of P into P' (step 5), solved by Newton's method.

The paper alternates projections (Higham 2002): hundreds of eigendecompositions. The semismooth Newton method of Qi and
Sun (2006) on the dual, with one unknown per diagonal entry, finds the same matrix after about seven.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.linalg.blas import dgemm, sgemm
from scipy.sparse import diags_array
from scipy.sparse.linalg import LinearOperator, cg

from sklar.kernel.cells import Doubles, Floats

_MAX_NEWTON = 60
_MAX_HALVINGS = 25
_MAX_CG = 200
# Smaller entries of eigenvectors are set to zero: subnormal numbers make a product several times as slow.
_NOTHING = 1e-20


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestCorrelation:
    """A repaired correlation matrix, and what a report says of the repair."""

    correlation: Doubles
    moved: float  # Frobenius norm of the change
    max_moved: float  # largest change of one entry
    negative_eigenvalues: int  # of the input, its diagonal set to one: how many lay below the floor
    decompositions: int  # eigendecompositions
    residual: float  # root mean square error of the diagonal before it was made exact; a large one means no convergence


def nearest(
    matrix: Doubles, *, floor: float = 1e-8, weights: Doubles | None = None, tolerance: float = 1e-8
) -> NearestCorrelation:
    """The correlation matrix X with eigenvalues >= `floor` that minimizes ||W^1/2 (X - matrix) W^1/2||_F.

    `matrix` is symmetric and finite; its diagonal has no say. W is the diagonal of `weights`, positive. The result is
    symmetric with a unit diagonal, exactly; a matrix that needs no repair comes back as it is. Newton's method ends
    where the root mean square of the diagonal's error is within `tolerance`.
    """
    # Only ratios matter; a mean of one keeps the tolerances meaningful.
    w = np.ones(len(matrix)) if weights is None else weights / weights.mean()
    scale = np.sqrt(w)
    # X = floor I + S^-1 Z S^-1 turns the problem into: the positive semidefinite Z with diagonal `target` nearest to G.
    target = w * (1.0 - floor)
    shifted = matrix * scale[:, None] * scale
    np.fill_diagonal(shifted, target)
    point = _Dual.at(np.zeros(len(matrix)), shifted, target)
    # Congruence with S keeps the signs of the eigenvalues of matrix - floor I.
    slack = len(matrix) * np.finfo(np.float64).eps * float(np.abs(point.values).max())
    negative = int(np.count_nonzero(point.values < -slack))
    decompositions, residual = 1, 0.0
    correlation = np.array(matrix, dtype=np.float64)
    np.fill_diagonal(correlation, 1.0)
    if negative:
        point, more = _minimize(point, shifted, target, tolerance=tolerance * float(np.linalg.norm(w)))
        decompositions += more
        residual = float(np.sqrt(np.mean((point.gradient / w) ** 2)))
        correlation = _primal(point, floor=floor)
    change = correlation - matrix
    return NearestCorrelation(
        correlation=correlation,
        moved=float(np.linalg.norm(change)),
        max_moved=float(np.abs(change).max()),
        negative_eigenvalues=negative,
        decompositions=decompositions,
        residual=residual,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dual:
    """theta(y) = 1/2 ||(G + diag y)_+||^2 - b'y, whose gradient is diag((G + diag y)_+) - b (Qi and Sun, section 3).

    At one y, with the eigendecomposition of G + diag(y), eigenvalues ascending.
    """

    y: Doubles
    value: float
    gradient: Doubles
    values: Doubles
    vectors: Doubles

    @classmethod
    def at(cls, y: Doubles, matrix: Doubles, target: Doubles) -> _Dual:
        """Evaluate; costs one eigendecomposition."""
        shifted = np.array(matrix, order="F")
        shifted[np.diag_indices(len(y))] += y
        values, vectors = eigh(shifted, driver="evd", overwrite_a=True, check_finite=False)
        positive = np.maximum(values, 0.0)
        diagonal = np.einsum("ik,ik,k->i", vectors, vectors, positive)
        value = 0.5 * float(np.sum(positive**2)) - float(np.sum(target * y))
        return cls(y=y, value=value, gradient=diagonal - target, values=values, vectors=vectors)


def _minimize(point: _Dual, matrix: Doubles, target: Doubles, *, tolerance: float) -> tuple[_Dual, int]:
    """Newton steps from `point`, each shortened until the dual function falls enough; and how many were tried."""
    tried = 0
    for _ in range(_MAX_NEWTON):
        size = float(np.linalg.norm(point.gradient))
        if size <= tolerance:
            break
        direction = _direction(point)
        slope = float(point.gradient @ direction)
        for length in 0.5 ** np.arange(_MAX_HALVINGS):
            trial = _Dual.at(point.y + length * direction, matrix, target)
            tried += 1
            # Near the end the fall of theta drowns in rounding; a gradient that halves is progress in a convex problem.
            if trial.value <= point.value + 1e-4 * length * slope or 2.0 * np.linalg.norm(trial.gradient) <= size:
                break
        else:
            break
        point = trial
    return point, tried


class _Hessian:
    """h -> diag(P (Omega o P'diag(h)P) P'), an element of the generalized Hessian (Qi and Sun, eq. 3.7).

    Omega is 1 between positive eigenvalues, a / (a - b) between a positive a and another b, and 0 between the others.
    A product takes the eigenvectors of the smaller side: of the negative one, it is h less that of 1 - Omega.
    """

    def __init__(self, values: Doubles, vectors: Doubles) -> None:
        # Single precision is enough for a search direction and takes half the time.
        self.vectors: Floats = np.where(np.abs(vectors) < _NOTHING, 0.0, vectors).astype(np.float32)
        d, negative = len(values), int(np.count_nonzero(values <= 0.0))
        below, above = slice(0, negative), slice(negative, d)
        self.complement = negative < d - negative
        side, other = (below, above) if self.complement else (above, below)
        self.side = self.vectors[:, side]
        near, far = np.abs(values[side]), np.abs(values[other, None])
        # A pair within the side is met twice in the sum, a mixed pair once: hence the half, and the 2 in `_signed`.
        self.omega: Floats = np.full((d, len(near)), 0.5, dtype=np.float32, order="F")
        self.omega[other] = near / np.maximum(near + far, np.finfo(np.float64).tiny)

    def __call__(self, h: Floats) -> Floats:
        # scipy's BLAS, as in eigh: numpy's has a second thread pool.
        inner = sgemm(1.0, self.vectors, h[:, None] * self.side, trans_a=True)
        inner *= self.omega
        return self._signed(h, sgemm(1.0, self.vectors, inner))

    def diagonal(self) -> Floats:
        """Its diagonal, the preconditioner."""
        squares = sgemm(1.0, np.square(self.vectors), self.omega)
        squares *= self.side
        return self._signed(np.ones(len(squares), dtype=np.float32), squares)

    def _signed(self, h: Floats, product: Floats) -> Floats:
        total = np.float32(2.0) * np.einsum("ik,ik->i", self.side, product)
        return np.asarray(h - total if self.complement else total)


def _direction(point: _Dual) -> Doubles:
    """Solve Hessian @ direction = -gradient to a hundredth, by preconditioned conjugate gradients."""
    size, d = float(np.linalg.norm(point.gradient)), len(point.y)
    hessian, right = _Hessian(point.values, point.vectors), (-point.gradient / size).astype(np.float32)
    # The generalized Hessian may be singular far from the answer; the shift vanishes with the gradient.
    shift = np.float32(min(1e-4, 0.01 * size / np.sqrt(d)))
    inverse = 1.0 / np.maximum(hessian.diagonal() + shift, np.float32(1e-6))
    matrix = LinearOperator((d, d), matvec=lambda h: hessian(h) + shift * h, dtype=np.float32)
    solution, _ = cg(matrix, right, rtol=1e-2, maxiter=_MAX_CG, M=diags_array(inverse))
    direction = solution.astype(np.float64) * size
    # Rounding in a nearly singular system may turn the direction uphill; the gradient never does.
    return direction if float(direction @ point.gradient) < 0.0 else -point.gradient


def _primal(point: _Dual, *, floor: float) -> Doubles:
    """(G + diag y)_+, with the floor put back and the weights undone: X = floor I + (1 - floor) D^-1/2 Z D^-1/2."""
    positive = point.values > 0.0
    root = point.vectors[:, positive] * np.sqrt(point.values[positive])
    root /= np.sqrt(np.einsum("ik,ik->i", root, root))[:, None]
    correlation = dgemm(1.0 - floor, root, root, trans_b=True)
    # Rounding leaves a product of a matrix with its transpose short of symmetric, and of a unit diagonal.
    correlation = 0.5 * (correlation + correlation.T)
    np.fill_diagonal(correlation, 1.0)
    return np.asarray(correlation)
