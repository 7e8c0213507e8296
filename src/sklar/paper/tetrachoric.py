"""Pair probabilities to Gaussian correlations (Eqs 5-7 of the paper), solved to rounding instead of on a grid.

For dummies X = 1{Y > t} of standard normals with correlation r = sin x, the expectation of Eq. 6 is the orthant
probability L(h, k, r) = P(Y1 > h, Y2 > k): two of Owen's T functions away from the margins, with the derivative
g(x) = exp(-(h^2 + k^2 - 2 h k sin x) / (2 cos^2 x)) / 2 pi in x (Plackett 1954). A level whose probability is above 1/2
is replaced by its complement, so that sums lose no more than rounding of the smaller margins.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri, owens_t

from sklar.kernel.cells import Doubles
from sklar.machine.threads import side_by_side

_TINY = 1e-150  # cut points and cosines stay above it, and their product above the smallest float
_FAR = 38.5  # P(Y > 38.5) underflows: farther cut points are infinite
_MOST_STEPS = 100
_CHUNK = 1 << 15
_BOUND_SLACK = 4.0 * np.finfo(np.float64).eps  # rounding in p_i + p_j - 1 is not a target out of bounds


def thresholds(probabilities: Doubles) -> Doubles:
    """Cut points t with P(Y > t) = p for a standard normal Y (the paper's quasi-inverse of F).

    A level nobody has (p = 0) is never drawn: its cut point is +inf.

    >>> thresholds(np.array([0.5, 0.0])).tolist()
    [-0.0, inf]
    """
    # ndtri(1 - p) loses every digit of a small p; -ndtri(p) keeps them.
    return np.asarray(-ndtri(probabilities))


def orthant(h: ArrayLike, k: ArrayLike, r: ArrayLike) -> Doubles:
    """P(Y1 > h, Y2 > k) for standard normals with correlation r (Eq. 6), to 1e-15; NaN where |r| > 1.

    >>> orthant(0.0, 0.0, [-1.0, 0.0, 0.5, 1.0]).round(12).tolist()
    [0.0, 0.25, 0.333333333333, 0.5]
    """
    h, k = (np.clip(np.asarray(each, np.float64), -_FAR, _FAR) for each in (h, k))
    r = np.asarray(r, np.float64)
    u = np.sqrt(np.where(np.abs(r) <= 1.0, (1.0 - r) * (1.0 + r), np.nan))
    area = _far_orthant(np.abs(h), np.abs(k), np.where((h < 0.0) == (k < 0.0), r, -r), u)
    # P(Y1 > h, Y2 > k) = P(Y2 > k) - P(-Y1 > -h, Y2 > k)
    area = np.where(h < 0.0, ndtr(-np.abs(k)) - area, area)
    return np.clip(np.where(k < 0.0, ndtr(-h) - area, area), 0.0, np.minimum(ndtr(-h), ndtr(-k)))


def _far_orthant(h: Doubles, k: Doubles, r: Doubles, u: Doubles) -> Doubles:
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

    >>> tetrachoric_matrix(np.array([0.5, 0.5]), np.array([[0.5, 1 / 6], [1 / 6, 0.5]]))[0].round(12).tolist()
    [[1.0, -0.5], [-0.5, 1.0]]
    """
    p, d = probabilities, probabilities.size
    r, rows = np.eye(d), max(_CHUNK // max(d, 1), 1)

    def solve(first: int) -> int:
        i, j = np.triu_indices(min(rows, d - first), first + 1, d)
        r[i + first, j], clipped = _clip_or_solve(p[i + first], p[j], joint[i + first, j])
        r[j, i + first] = r[i + first, j]
        return clipped

    return r, sum(side_by_side(solve, range(0, d, rows)))


def _clip_or_solve(p_i: Doubles, p_j: Doubles, p_ij: Doubles) -> tuple[Doubles, int]:
    """The r of pairs, and how many targets lay out of bounds."""
    lower, upper = np.maximum(0.0, p_i + p_j - 1.0), np.minimum(p_i, p_j)
    clipped = int(np.count_nonzero((p_ij < lower - _BOUND_SLACK) | (p_ij > upper + _BOUND_SLACK)))
    r = np.where(p_ij <= lower, -1.0, 1.0)
    r[(upper <= 0.0) | (np.maximum(p_i, p_j) >= 1.0)] = 0.0
    inside = (p_ij > lower) & (p_ij < upper)
    r[inside] = _solve(p_i[inside], p_j[inside], p_ij[inside])
    return r, clipped


def _solve(p_i: Doubles, p_j: Doubles, p_ij: Doubles) -> Doubles:
    """The r of pairs strictly inside their bounds, by Newton's method in a bracket; log g taken as linear: order 3."""
    sign = np.where((p_i > 0.5) == (p_j > 0.5), 1.0, -1.0)
    covariance = sign * (p_ij - p_i * p_j)
    p_i, p_j = np.minimum(p_i, 1.0 - p_i), np.minimum(p_j, 1.0 - p_j)
    target = p_i * p_j + covariance
    h, k = (np.maximum(thresholds(p), _TINY) for p in (p_i, p_j))
    found, left = np.zeros_like(h), np.arange(h.size)
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
        found[left[done]] = x[done]
        left, x, low, high, h, k, target = (each[~done] for each in (left, x, low, high, h, k, target))
        if not left.size:
            break
        area = _far_orthant(h, k, np.sin(x), np.cos(x))
    found[left] = x
    return np.asarray(sign * np.sin(found))
