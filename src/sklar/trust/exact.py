"""The epsilon of noisy tables, numerically and by another path than the theorems that a release is planned by.

It knows nothing of zCDP, of the Gaussian curve, of sums of binomial chances: it inverts the Laplace transform of the
privacy loss of the discrete noise itself (Gaussian), or takes the loss's tails from incomplete beta functions
(Laplace). It is the true epsilon of the measurements, to a stated tolerance; a sound certificate states no less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammaln

# Relative error that is allowed to the independent epsilon.
TOLERANCE = 1e-3
# Below this scale the sum over the whole numbers is taken as it is; above, it is an integral to 1e-70.
_DIRECT = 3.0
# Where many scales are that small, sums are taken below this one alone: losses of different scales share no lattice.
_DIRECT_OF_MANY = 1.5
_MOST_POINTS = 8_192
_MOST_SCALES = 3


def exact_epsilon(
    mechanism: str, scales: NDArray[np.float64], shifts: Sequence[int] | Any, delta: float, *, rows: int = 1
) -> float:
    """The epsilon at this delta of `shifts[g]` shifts of one cell under discrete noise of `scales[g]`, to `TOLERANCE`.

    A shift moves a cell by so many `rows`. Under Laplace noise what is computed is the worst that shifts of that sum
    can do, over any cells: randomized response.

    >>> 0.99 < exact_epsilon("gaussian", np.array([79.8]), np.array([210]), 2.0**-30) < 1.001
    True
    """
    if mechanism == "laplace":
        scales, rows = np.asarray(scales, dtype=np.float64) / rows, 1
    scales, shifts = np.asarray(scales, dtype=np.float64), np.asarray(shifts, dtype=np.float64)
    wide = _wide(mechanism, scales)
    few = _few(scales[~wide], shifts[~wide])
    scales, shifts = np.concatenate([scales[wide], few[0]]), np.concatenate([shifts[wide], few[1]])
    pure = float(np.sum(shifts / scales))

    def enough(epsilon: float) -> bool:
        if mechanism == "laplace" and scales.size <= 2:
            return _laplace_delta(epsilon, scales, shifts) <= delta
        return _transform_delta(mechanism, epsilon, scales, shifts, rows) <= delta

    # About where a normal loss would have it: sqrt(2 ln(1/delta)) deviations.
    low, high = 0.0, max(math.sqrt(2 * math.log(1 / delta) * float(np.sum(shifts * (rows / scales) ** 2))), 1e-9)
    while not enough(high):
        low, high = high, 2 * high
        if mechanism == "laplace" and high >= pure:
            high = pure
            break
    while high - low > TOLERANCE / 20 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _wide(mechanism: str, scales: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whose sums over the whole numbers are integrals."""
    if mechanism != "gaussian":
        return np.zeros(scales.size, dtype=bool)
    narrow = int(np.sum(scales <= _DIRECT))
    return np.asarray(scales > (_DIRECT if narrow <= _MOST_SCALES else _DIRECT_OF_MANY))


def _few(scales: NDArray[np.float64], shifts: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same where scales are few; of many, runs of neighbors at the largest of each, which costs no more than they.

    A release has few scales. A file that states a million of them shall not keep a stranger waiting, and the answer,
    if a little too small, still shows what costs more than is stated.
    """
    if scales.size <= _MOST_SCALES:
        return scales, shifts
    order = np.argsort(scales)
    runs = np.array_split(order, _MOST_SCALES)
    return np.array([scales[run[-1]] for run in runs]), np.array([shifts[run].sum() for run in runs])


def _laplace_delta(epsilon: float, scales: NDArray[np.float64], shifts: NDArray[np.float64]) -> float:
    """P(L > epsilon) - e^epsilon Q(L > epsilon) of at most two groups of shifts.

    A group loses (2X - u) / b with X binomial. The outcomes of the group with fewer shifts are enumerated, the tail of
    the other is an incomplete beta function.
    """
    order = np.argsort(shifts)
    (scale, count), lost, here, there = (scales[order[-1]], shifts[order[-1]]), np.zeros(1), np.ones(1), np.ones(1)
    if scales.size == 2:
        b, u = scales[order[0]], shifts[order[0]]
        x = np.arange(u + 1)
        ways = gammaln(u + 1) - gammaln(x + 1) - gammaln(u - x + 1)
        up = -math.log1p(math.exp(-1 / b))
        lost = (2 * x - u) / b
        here, there = np.exp(ways + u * up - (u - x) / b), np.exp(ways + u * up - x / b)
    first = np.floor(((epsilon - lost) * scale + count) / 2) + 1
    inside = np.clip(first, 1, count)

    def tail(chance: float) -> NDArray[np.float64]:
        exact = betainc(inside, count - inside + 1, chance)
        return np.where(first <= 0, 1.0, np.where(first > count, 0.0, exact))

    odds = math.exp(-1 / scale)
    below = math.exp(min(epsilon, 700.0)) * float(there @ tail(odds / (1 + odds)))
    return float(here @ tail(1 / (1 + odds))) - below


def _transform_delta(
    mechanism: str, epsilon: float, scales: NDArray[np.float64], shifts: NDArray[np.float64], rows: int
) -> float:
    """delta = 1/(2 pi i) int exp(K(z) - epsilon z) / (z (z + 1)) dz along Re z = s > 0, K = log E[exp(z L)].

    (Alghamdi et al. 2022, "The saddle-point method in differential privacy"; the line crosses at the saddle, so that
    the integrand is largest there and a tiny delta keeps its digits.)
    """
    grow = _cumulants(mechanism, scales, shifts, rows)
    variance = float(np.sum(shifts * (rows / scales) ** 2))

    def exponent(s: float) -> float:
        return float(grow(np.array([complex(s)]))[0].real) - epsilon * s - math.log(s * (s + 1))

    s = _minimum(exponent)
    top = exponent(s) + math.log(s * (s + 1))
    spread = 1 / math.sqrt(variance)
    step = min(s / 6, spread / 5, 2 * math.pi / (60 * math.sqrt(variance) + 2 * epsilon))
    # Losses on a lattice make the integrand come back; the larger the noise, the later and the lower.
    length = 13 * spread + 40 * s if scales.min() > _DIRECT else max(13 * spread, 2000 * s * (s + 1))
    points = int(min(length / step, _MOST_POINTS)) + 1
    z = s + 1j * (np.arange(points) + 0.5) * step
    total = float(np.sum((np.exp(grow(z) - epsilon * z - top) / (z * (z + 1))).real))
    return math.exp(min(top, 700.0)) * total * step / math.pi


def _cumulants(mechanism: str, scales: NDArray[np.float64], shifts: NDArray[np.float64], rows: int) -> Any:
    wide = _wide(mechanism, scales)
    rho = float(np.sum(shifts[wide] * rows**2 / (2 * scales[wide] ** 2)))
    narrow = list(zip(scales[~wide].tolist(), shifts[~wide].tolist(), strict=True))

    def grow(z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        total = rho * z * (z + 1)
        for scale, count in narrow:
            if mechanism == "laplace":
                up = 1 / (1 + math.exp(-1 / scale))
                parts = [np.log(up) + z / scale, np.log(1 - up) - z / scale]
            else:
                # Loss (2x + 1) / (2 scale^2) at x, for L rows (2xL + L^2) / (2 scale^2); the tilt moves the mean by
                # L Re z, which the support must hold.
                reach = int(16 * scale + rows * abs(float(z.real.max()))) + 2
                x = np.arange(-reach, reach + 1)
                mass = np.exp(-(x**2) / (2 * scale**2))
                logs = np.log(np.maximum(mass, 1e-300) / mass.sum())
                # All points share their real part: terms that are nothing there are nothing everywhere.
                loss = (2 * x * rows + rows**2) / (2 * scale**2)
                real = logs + float(z.real.max()) * loss
                kept = real > real.max() - 40
                parts = [log + z * lost for lost, log in zip(loss[kept], logs[kept], strict=True)]
            peak = np.max([part.real for part in parts], axis=0)
            inner = sum(np.exp(part - peak) for part in parts)
            total = total + count * (peak + np.log(inner))
        return np.asarray(total)

    return grow


def _minimum(value: Any) -> float:
    """Where a convex function of s > 0 is smallest, to a percent: any s is right, a good one is accurate."""
    low, high = -12.0, 14.0
    ratio = (math.sqrt(5) - 1) / 2
    while high - low > 0.01:
        one, two = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, two) if value(math.exp(one)) < value(math.exp(two)) else (one, high)
    return math.exp((low + high) / 2)
