"""Noisy tables to the paper's copula (Eqs 5-7 and Algorithm 4), and cut points at which records hold the margins. The
derivation: docs/derivations.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.linalg.blas import dgemm, sgemm
from scipy.sparse import diags_array
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import ndtr, ndtri, owens_t

from sklar.fitting.denoise import PairTables, shrink
from sklar.fitting.margins import Estimates, margins
from sklar.kernel.cells import Cells, Doubles, Floats, Ints
from sklar.machine.threads import side_by_side, undivided
from sklar.paper.gaussian import BinaryCopula, Repairs
from sklar.paper.winners import argmax_chances, correlated, differences, in_groups, settle, slopes
from sklar.public.schema import Schema

_FLOOR = 1e-6
# Noise moves correlations by hundredths; further steps of their repair would move none by a thousandth.
_ACCURACY = 1e-6
_CALIBRATION_ROWS = 1 << 16
_CALIBRATION_SEED = 20_200_619
# The cut point of a level that all have.
_CERTAIN = -6.0
_TINY = 1e-150  # cut points and cosines stay above it, and their product above the smallest float
_MOST_STEPS = 100
_CHUNK = 1 << 15
# Steps of the repair, halvings of one, and steps of its conjugate gradients.
_MAX_NEWTON, _MAX_HALVINGS, _MAX_CG = 60, 25, 200
# Smaller entries of eigenvectors are set to zero: subnormal numbers make a product several times as slow.
_NOTHING = 1e-20
_BOUND_SLACK = 4.0 * np.finfo(np.float64).eps  # rounding in p_i + p_j - 1 is not a target out of bounds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probabilities:
    """Estimated probabilities of levels, shape (d,), and of pairs of levels, shape (n_cells,), laid out by `cells`."""

    cells: Cells
    levels: Doubles
    pairs: Doubles


def read_tables(estimates: Estimates, *, paper: bool) -> Probabilities:
    """Noisy counts as probabilities: clipped, over n, as the paper has them (Algorithms 1 and 2, soundly).

    Else margins come from all tables together, on the simplex, and two-way tables are shrunk toward independence.
    """
    cells, n = estimates.cells, estimates.n_rows
    if paper:
        levels, pairs = estimates.one_way / n, estimates.pairs / n
    else:
        levels, pairs = margins(estimates), np.empty(cells.n_cells)

        def fill(members: Ints) -> None:
            tables = PairTables(estimates, levels, members)
            pairs[tables.places] = tables.independent + shrink(tables.centered, tables.sd)

        side_by_side(fill, cells.alike())
    return Probabilities(cells=cells, levels=np.clip(levels, 0.0, 1.0), pairs=np.clip(pairs, 0.0, 1.0))


def fit_binary(probabilities: Probabilities, schema: Schema, *, dummies: bool, weighted: bool) -> BinaryCopula:
    """Fit the copula.

    Dummies keep the paper's structural zeros: correlation -1 between levels of one attribute. Records get exclusiveness
    from the decoding, so that it is 0 instead, but -1 between two levels. `weighted` weighs the repair by the square
    root of the levels' probabilities: rare levels give way first.
    """
    cells, levels = probabilities.cells, probabilities.levels
    # Noise can clip every level of an attribute to zero; a record needs one all the same.
    empty = np.add.reduceat(levels, cells.offsets[:-1]) <= 0
    if not dummies and empty.any():
        attribute = cells.attribute_of_level
        levels = np.where(empty[attribute], 1 / cells.sizes[attribute], levels)
    mirrors = np.zeros(0, dtype=np.int64) if dummies else cells.offsets[:-1][cells.sizes == 2] + 1
    own = np.delete(np.arange(levels.size), mirrors)
    r, clipped = tetrachoric_matrix(probabilities.levels[own], cells.square(probabilities.pairs)[own[:, None], own])
    if not dummies:
        attribute = cells.attribute_of_level[own]
        r[attribute[:, None] == attribute] = 0.0
        np.fill_diagonal(r, 1.0)
    rarity = levels.copy()
    rarity[mirrors - 1] = np.minimum(levels[mirrors - 1], levels[mirrors])
    # Threads of a decomposition wait for each other: on a busy machine they take many times as long as one.
    with undivided():
        weights = np.sqrt(np.maximum(rarity[own], 1e-6)) if weighted else None
        repair = nearest(r, floor=_FLOOR, weights=weights, tolerance=_ACCURACY)
        triangle = np.linalg.cholesky(repair.correlation).astype(np.float32)
    factor = np.zeros((levels.size, levels.size), dtype=np.float32)
    factor[own[:, None], own] = triangle
    factor[mirrors] = -factor[mirrors - 1]
    return BinaryCopula(
        schema=schema,
        dummies=dummies,
        levels=levels,
        cuts=thresholds(levels) if dummies else calibrate(cells, levels, factor),
        factor=factor,
        repairs=Repairs(
            clipped_pairs=clipped,
            empty_attributes=0 if dummies else int(empty.sum()),
            negative_eigenvalues=repair.negative_eigenvalues,
            # Digits that a reader can use: more could hide anything.
            moved=float(f"{repair.moved:.3g}"),
            max_moved=float(f"{repair.max_moved:.3g}"),
        ),
    )


def calibrate(cells: Cells, levels: Doubles, factor: Floats) -> Doubles:
    """Cut points c, shape (d,), with P(argmax of Y_k - c_k = k) = p_k within each attribute.

    Two levels: exactly. More: as if their Y were independent, by quadrature, which is accurate for rare levels too;
    then corrected on a fixed simulated sample, as the repair leaves some correlation.
    """
    cuts = np.full(levels.size, np.inf)
    first = cells.offsets[:-1][cells.sizes == 2]
    share = levels[first] / (levels[first] + levels[first + 1])
    # A level of probability 0 is cut off at infinity; the other still needs a finite cut point.
    cuts[first] = np.maximum(thresholds(share), _CERTAIN)
    cuts[first + 1] = np.maximum(thresholds(1 - share), _CERTAIN)

    larger = np.flatnonzero(cells.sizes != 2)
    own = [cells.offsets[each] + np.flatnonzero(levels[cells.levels(each)] > 0) for each in larger.tolist()]
    shares = [levels[each] / levels[each].sum() for each in own]
    independent = in_groups(_independent_cuts, shares)
    steepness = slopes(independent)

    def calibrated(place: int) -> Doubles:
        alone = independent[place]
        if alone.size < 2:
            return alone
        rows = factor[own[place]].astype(np.float64)
        within = np.linalg.cholesky(rows @ rows.T).astype(np.float32)
        apart = differences(within, [np.arange(alone.size)])
        drawn = correlated(apart, _CALIBRATION_ROWS, int(larger[place]), _CALIBRATION_SEED)
        won, settled = np.empty(_CALIBRATION_ROWS, dtype=np.uint16), np.empty(alone.size)
        goals = np.stack([alone, shares[place] * _CALIBRATION_ROWS, steepness[place]])
        settle(drawn, 0, goals, 15, won, settled)
        return settled

    for place, settled in enumerate(side_by_side(calibrated, range(larger.size))):
        cuts[own[place]] = settled
    return cuts


def _independent_cuts(shares: Doubles) -> Doubles:
    """Cut points as if the Y of one attribute were independent, shape (attributes, levels)."""
    c = thresholds(np.minimum(shares, 1 - 1e-9))
    for _ in range(60):
        chance, slope = argmax_chances(c)
        # All cut points move at once and only differences count: were Y Gumbel, 1 - share would make it Newton's step.
        step = np.log(chance / shares) / slope * (1 - shares)
        c += np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-10:
            break
    return c


def thresholds(probabilities: Doubles) -> Doubles:
    """Cut points t with P(Y > t) = p for a standard normal Y (the paper's quasi-inverse of F).

    A level nobody has (p = 0) is never drawn: its cut point is +inf.
    """
    # ndtri(1 - p) loses every digit of a small p; -ndtri(p) keeps them.
    return np.asarray(-ndtri(probabilities))


def far_orthant(h: Doubles, k: Doubles, r: Doubles, u: Doubles) -> Doubles:
    """L(h, k, r) where h and k are at least zero and u = sqrt(1 - r^2) (Owen 1956)."""
    h, k, u = np.maximum(h, _TINY), np.maximum(k, _TINY), np.maximum(u, _TINY)
    # 1 - r and h - k r without cancellation where r is next to 1.
    below = np.where(r > 0.0, u * u / (1.0 + np.abs(r)), 1.0 - r)
    with np.errstate(over="ignore"):
        across = owens_t(h, (k - h + h * below) / (h * u)) + owens_t(k, (h - k + k * below) / (k * u))
    return np.asarray(0.5 * (ndtr(-h) + ndtr(-k)) - across)


def tetrachoric_matrix(probabilities: Doubles, joint: Doubles) -> tuple[Doubles, int]:
    """The r with P(Y_i > t_i, Y_j > t_j; r) = p_ij for every pair (Eq. 7): the paper's P, and how many were clipped.

    Of `joint`, the p_ij, entries above the diagonal are read. A target outside its Frechet bounds is clipped to r = -1
    or 1. A margin of 0 or 1 has r = 0.
    """
    p, d = probabilities, probabilities.size
    r, rows = np.eye(d), max(_CHUNK // max(d, 1), 1)

    def solve(first: int) -> int:
        i, j = np.triu_indices(min(rows, d - first), first + 1, d)
        i += first
        p_i, p_j, p_ij = p[i], p[j], joint[i, j]
        lower, upper = np.maximum(0.0, p_i + p_j - 1.0), np.minimum(p_i, p_j)
        found = np.where(p_ij <= lower, -1.0, 1.0)
        found[(upper <= 0.0) | (np.maximum(p_i, p_j) >= 1.0)] = 0.0
        inside = (p_ij > lower) & (p_ij < upper)
        found[inside] = _solve(p_i[inside], p_j[inside], p_ij[inside])
        r[i, j] = r[j, i] = found
        return int(np.count_nonzero((p_ij < lower - _BOUND_SLACK) | (p_ij > upper + _BOUND_SLACK)))

    return r, sum(side_by_side(solve, range(0, d, rows)))


def _solve(p_i: Doubles, p_j: Doubles, p_ij: Doubles) -> Doubles:
    """The r of pairs strictly inside their bounds, by Newton's method in a bracket; log g taken as linear: order 3."""
    sign = np.where((p_i > 0.5) == (p_j > 0.5), 1.0, -1.0)
    covariance = sign * (p_ij - p_i * p_j)
    p_i, p_j = np.minimum(p_i, 1.0 - p_i), np.minimum(p_j, 1.0 - p_j)
    target = p_i * p_j + covariance
    h, k = (np.maximum(thresholds(p), _TINY) for p in (p_i, p_j))
    solved, left = np.zeros_like(h), np.arange(h.size)
    x, low, high, area = np.zeros_like(h), np.full_like(h, -math.pi / 2), np.full_like(h, math.pi / 2), p_i * p_j
    for _ in range(_MOST_STEPS):
        r, u = np.sin(x), np.maximum(np.cos(x), _TINY)
        low, high = np.where(area > target, low, x), np.where(area > target, x, high)
        with np.errstate(all="ignore"):
            square = (h * h + k * k - 2.0 * h * k * r) / (u * u)
            slope = (h * k - square * r) / u
            newton = (target - area) * 2.0 * math.pi * np.exp(np.minimum(0.5 * square, 690.0))
            bend = newton * slope
            # A fall of g that uses up more than its whole integral has no solution: go far, the bracket holds it.
            step = np.where(np.abs(bend) < 1e-8, newton, np.log1p(np.maximum(bend, -0.95)) / slope)
        inside = (x + step >= low) & (x + step <= high)
        done = inside & (np.abs(step) <= 1e-4 * u) | (high - low < 1e-15)
        x = np.where(inside, x + step, 0.5 * (low + high))
        solved[left[done]] = x[done]
        left, x, low, high, h, k, target = (each[~done] for each in (left, x, low, high, h, k, target))
        if not left.size:
            break
        area = far_orthant(h, k, np.sin(x), np.cos(x))
    solved[left] = x
    return np.asarray(sign * np.sin(solved))


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestCorrelation:
    """A repaired correlation matrix, and what a report says of the repair."""

    correlation: Doubles
    moved: float  # Frobenius norm of the change
    max_moved: float  # largest change of one entry
    negative_eigenvalues: int  # of the input, its diagonal set to one: how many lay below the floor


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
    correlation = np.array(matrix, dtype=np.float64)
    np.fill_diagonal(correlation, 1.0)
    if negative:
        point = _minimize(point, shifted, target, tolerance=tolerance * float(np.linalg.norm(w)))
        correlation = _primal(point, floor=floor)
    change = correlation - matrix
    return NearestCorrelation(
        correlation=correlation,
        moved=float(np.linalg.norm(change)),
        max_moved=float(np.abs(change).max()),
        negative_eigenvalues=negative,
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


def _minimize(point: _Dual, matrix: Doubles, target: Doubles, *, tolerance: float) -> _Dual:
    """Newton steps from `point`, each shortened until the dual function falls enough."""
    for _ in range(_MAX_NEWTON):
        size = float(np.linalg.norm(point.gradient))
        if size <= tolerance:
            break
        direction = _direction(point)
        slope = float(point.gradient @ direction)
        for length in 0.5 ** np.arange(_MAX_HALVINGS):
            trial = _Dual.at(point.y + length * direction, matrix, target)
            # Near the end the fall of theta drowns in rounding; a gradient that halves is progress in a convex problem.
            if trial.value <= point.value + 1e-4 * length * slope or 2.0 * np.linalg.norm(trial.gradient) <= size:
                break
        else:
            break
        point = trial
    return point


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
