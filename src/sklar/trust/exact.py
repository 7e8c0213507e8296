"""The epsilon of noisy tables, numerically and by another path than the theorems that a release is planned by.

It uses neither zCDP, nor the Gaussian curve, nor sums of binomial chances: it inverts the Laplace transform of the
privacy loss of the discrete noise itself. The result is the true epsilon of the measurements, to a stated tolerance; a
sound certificate states no less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

Array = NDArray[np.float64]
Complex = NDArray[np.complexfloating[Any, Any]]

# Relative error that is allowed to the independent epsilon.
TOLERANCE = 1e-3
# Below this scale the sum over the whole numbers is taken as it is; above, it is an integral to 1e-70.
_DIRECT = 3.0
# Where many scales are that small, sums are taken below this one alone: losses of different scales share no lattice.
_DIRECT_OF_MANY = 1.5
_MOST_POINTS = 8_192
_MOST_SCALES = 3


def exact_epsilon(mechanism: str, scales: Array, shifts: Sequence[int] | Any, delta: float, *, rows: int = 1) -> float:
    """The epsilon at this delta of `shifts[g]` shifts of one cell under discrete noise of `scales[g]`, to `TOLERANCE`.

    A shift moves a cell by so many `rows`. Under Laplace noise what is computed is the worst that shifts of that sum
    can do, over any cells: randomized response.

    >>> 0.99 < exact_epsilon("gaussian", np.array([79.8]), np.array([210]), 2.0**-30) < 1.001
    True
    """
    scales, shifts = np.asarray(scales, dtype=np.float64), np.asarray(shifts, dtype=np.float64)
    gaussian = mechanism == "gaussian"
    if not gaussian:
        scales, rows = scales / rows, 1
    many = np.sum(scales <= _DIRECT) > _MOST_SCALES
    # Whose sums over the whole numbers are integrals.
    wide = gaussian & (scales > (_DIRECT_OF_MANY if many else _DIRECT))
    weight = float(np.sum(shifts[wide] * (rows / scales[wide]) ** 2))
    few, number = _few(scales[~wide], shifts[~wide])
    variance = weight + float(np.sum(number * (rows / few) ** 2))
    # Losses of narrow Gaussian noise lie on a lattice, and those of Laplace noise.
    lattice = not gaussian or min(scales[wide].min(initial=np.inf), few.min(initial=np.inf)) <= _DIRECT

    def grow(z: Complex) -> Complex:
        """K(z) = log E[exp(z L)] of the loss L of all shifts; all z share their real part."""
        total = weight / 2 * z * (z + 1)
        for scale, count in zip(few.tolist(), number.tolist(), strict=True):
            total = total + count * (_narrow_gaussian(z, scale, rows) if gaussian else _laplace(z, scale))
        return np.asarray(total)

    def enough(epsilon: float) -> bool:
        return epsilon >= pure or _transform_delta(grow, epsilon, variance, lattice=lattice) <= delta

    # No loss of Laplace noise is larger. And about where a normal loss would have it: sqrt(2 ln(1/delta)) deviations.
    pure = math.inf if gaussian else float(np.sum(number / few))
    low, high = 0.0, min(max(math.sqrt(2 * math.log(1 / delta) * variance), 1e-9), pure)
    while not enough(high):
        low, high = high, min(2 * high, pure)
    while high - low > TOLERANCE / 20 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _few(scales: Array, shifts: Array) -> tuple[Array, Array]:
    """The same where scales are few; of many, runs of neighbors at the largest of each, which costs no more than they.

    A release has few scales. A file that states a million of them shall not keep a stranger waiting, and the answer,
    if a little too small, still shows what costs more than is stated.
    """
    if scales.size <= _MOST_SCALES:
        return scales, shifts
    runs = np.array_split(np.argsort(scales), _MOST_SCALES)
    return np.array([scales[run[-1]] for run in runs]), np.array([shifts[run].sum() for run in runs])


def _transform_delta(grow: Callable[[Complex], Complex], epsilon: float, variance: float, *, lattice: bool) -> float:
    """delta = 1/(2 pi i) int exp(K(z) - epsilon z) / (z (z + 1)) dz along Re z = s > 0.

    (Alghamdi et al. 2022, "The saddle-point method in differential privacy"; the line crosses at the saddle, so that
    the integrand is largest there and a tiny delta keeps its digits.)
    """

    def exponent(s: float) -> float:
        return float(grow(np.array([complex(s)]))[0].real) - epsilon * s - math.log(s * (s + 1))

    # Where this convex function is smallest, to a percent: any s is right, a good one is accurate.
    found = minimize_scalar(lambda at: exponent(math.exp(at)), bounds=(-12.0, 14.0), options={"xatol": 0.01})
    s = math.exp(found.x)
    top = exponent(s) + math.log(s * (s + 1))
    spread = 1 / math.sqrt(variance)
    step = min(s / 6, spread / 5, 2 * math.pi / (60 * math.sqrt(variance) + 2 * epsilon))
    # Losses on a lattice make the integrand come back; the larger the noise, the later and the lower.
    length = max(13 * spread, 2000 * s * (s + 1)) if lattice else 13 * spread + 40 * s
    points = int(min(length / step, _MOST_POINTS)) + 1
    z = s + 1j * (np.arange(points) + 0.5) * step
    total = float(np.sum((np.exp(grow(z) - epsilon * z - top) / (z * (z + 1))).real))
    return math.exp(min(top, 700.0)) * total * step / math.pi


def _laplace(z: Complex, scale: float) -> Complex:
    chance = -math.log1p(math.exp(-1 / scale))
    likely, other = chance + z / scale, chance - (1 + z) / scale
    return np.asarray(likely + np.log1p(np.exp(other - likely)))


def _narrow_gaussian(z: Complex, scale: float, rows: int) -> Complex:
    """Of the loss (2xL + L^2) / (2 scale^2) at x, for a shift by L rows; the tilt moves the mean by L Re z."""
    real = float(z.real.max())
    reach = int(16 * scale + rows * abs(real)) + 2
    x = np.arange(-reach, reach + 1)
    mass = np.exp(-(x**2) / (2 * scale**2))
    logs = np.log(np.maximum(mass, 1e-300) / mass.sum())
    loss = (2 * x * rows + rows**2) / (2 * scale**2)
    size = logs + real * loss
    # Terms that are nothing at one point are nothing everywhere.
    kept, peak = size > size.max() - 40, size.max()
    inner = sum(np.exp(log - peak + z * lost) for lost, log in zip(loss[kept], logs[kept], strict=True))
    return np.asarray(peak + np.log(inner))
