"""(epsilon, delta), neighbors, composition theorems, noise scales.

What is measured is always whole tables of counts in which one row stands in at most one cell. So replacing one row
moves at most two cells of each table by one, and adding or removing one moves at most one cell by one: `shifts` unit
shifts a table (2 or 1), L1 sensitivity `shifts`, L2 sensitivity sqrt(`shifts`). A row that lies outside a table's
domain moves fewer cells, which is the same table followed by post-processing that hides the others: the bounds below
still hold.

Each theorem takes the tables' noise scales and gives the epsilon they spend together at the budget's delta. The proofs
are in the docstrings; `docs/privacy.md` tells the same story to a reader who is not a programmer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklar.errors import BudgetError

Neighbors = Literal["replace-one", "add-remove"]
Mechanism = Literal["gaussian", "laplace"]
Composition = Literal["tight", "advanced", "basic"]

DEFAULT_DELTA = 2.0**-30

# Numerators of scales fit in 24 bits, so that the exact sampler's products fit in 64 (see private/noise.py).
MAX_SCALE = 2.0**24
MIN_SCALE = 2.0**-10

# Subtracting two tail probabilities loses digits; a delta is only believed up to this share of the larger of the two.
_ROUNDING = 1e-12

# Variance that a discrete Gaussian gives up to be a post-processed continuous one, and the log-ratio that this leaves
# open over at most 10^13 noisy cells. Both from the theorem in `gaussian_epsilon`.
BLUR = 4.0
_SLACK = 1e-20

# Costs are remembered for this many questions of at most so many different scales each: 16 MB at worst.
_REMEMBERED = 1_024
_REMEMBERED_SCALES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much privacy may be spent, against which neighbors, and by which theorem it is counted.

    >>> Budget(epsilon=1.0).neighbors
    'replace-one'
    """

    epsilon: float
    delta: float = DEFAULT_DELTA
    neighbors: Neighbors = "replace-one"
    mechanism: Mechanism = "gaussian"
    composition: Composition = "tight"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise BudgetError(f"epsilon must be positive and finite, got epsilon={self.epsilon}.")
        if not 0 < self.delta < 1:
            raise BudgetError(f"delta must lie strictly between 0 and 1, got delta={self.delta}. Try 2**-30.")
        for name, value, known in (
            ("neighbors", self.neighbors, get_args(Neighbors)),
            ("mechanism", self.mechanism, get_args(Mechanism)),
            ("composition", self.composition, get_args(Composition)),
        ):
            if value not in known:
                raise BudgetError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
        if self.mechanism == "gaussian" and self.composition != "tight":
            raise BudgetError(
                f"composition '{self.composition}' adds up pure-epsilon mechanisms, which Gaussian noise is not. "
                "Use mechanism 'laplace', or composition 'tight'."
            )

    @property
    def shifts(self) -> int:
        """Unit shifts that one person makes in one table; also its L1 sensitivity, and the square of its L2."""
        return 2 if self.neighbors == "replace-one" else 1

    def spent(self, scales: ArrayLike, tables: ArrayLike = 1) -> float:
        """The epsilon that tables measured at these scales spend together at this delta: `tables[g]` at `scales[g]`.

        Precondition: the scales are fixed before any of the tables is measured, or are chosen from earlier noisy
        tables within a cost that was fixed before (see `plan`). Postcondition: the joint output is
        (returned epsilon, delta)-DP under `neighbors`.

        >>> Budget(epsilon=1.0).spent([80.0, 90.0, 80.0]) == Budget(epsilon=1.0).spent([80.0, 90.0], [2, 1])
        True
        """
        exact, each = np.ravel(np.asarray(scales, dtype=np.float64)), np.asarray(tables, dtype=np.int64)
        if each.ndim == 0:
            # As below, many times as fast: a plan asks this of millions of tables.
            values, counts = np.unique(exact, return_counts=True)
            return self._spent(values, counts * each)
        values, groups = np.unique(exact, return_inverse=True)
        counts = np.zeros(values.size, dtype=np.int64)
        np.add.at(counts, groups, np.broadcast_to(each, exact.shape))
        return self._spent(values, counts)

    def _spent(self, values: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
        # Not `neighbors` but the shifts themselves, so that what is remembered cannot belong to another sensitivity.
        compose = _compose if values.size <= _REMEMBERED_SCALES else _compose.__wrapped__
        tables = counts.astype(np.int64, copy=False)
        return compose(self.mechanism, self.composition, self.shifts, self.delta, values.tobytes(), tables.tobytes())

    def less(self, lost_delta: float) -> Budget:
        """The budget that is left for noise when, with probability `lost_delta`, a threshold may fail.

        Claim. Let every table be noised on the cells that some row occupies, and a cell be shown only if its noisy
        count reaches a threshold that a count of one reaches with probability t_i at most; let the t_i of all tables
        sum to t, and let all that is measured, in these tables and after them, be (e, d)-DP if cells that only one of
        the two neighbors occupies are never shown. Then it is (e - ln(1 - t), d + t)-DP.

        Proof. Let D have the row x where D' has y (or none). Of the cells of a table, x may be alone in one in D, and y
        in one in D'; call these the rare cells, at most one a table and side. Let R be the event that a rare cell is
        shown: P_D(R) <= t and P_D'(R) <= t. Write Q and Q' for the transcripts, everything that follows included, of
        runs on D and D' that never show a rare cell: Q(S) <= e^e Q'(S) + d. A rare cell's noise is independent of the
        rest and decides nothing while it is not shown, so for every set S of transcripts P_D(S, not R) <= Q(S) and
        P_D'(S) >= P_D'(S, not R) >= (1 - t) Q'(S). Hence P_D(S) <= t + Q(S) <= t + d + e^e Q'(S)
        <= (t + d) + e^e / (1 - t) P_D'(S).
        """
        if not 0 <= lost_delta < self.delta:
            raise BudgetError(f"thresholds must fail with less than delta={self.delta}, got {lost_delta}.")
        return replace(self, epsilon=self.epsilon + math.log1p(-lost_delta), delta=self.delta - lost_delta)

    def scales(self, weights: ArrayLike) -> NDArray[np.float64]:
        """The smallest scales proportional to these weights (one per table) that stay within the budget.

        The inverse of `spent`; each scale is rounded up to a number that the exact sampler can draw.
        """
        weights = np.asarray(weights, dtype=np.float64)
        values, counts = np.unique(weights, return_counts=True)

        def within(factor: float) -> bool:
            if self.mechanism == "laplace" and self.composition == "tight":
                # The same question as below, without solving for epsilon at every step.
                return laplace_delta(self.epsilon, values * factor, counts * self.shifts) <= self.delta
            return self._spent(values * factor, counts) <= self.epsilon

        factor = _smallest(within, start=float(math.sqrt(counts.sum()) / self.epsilon / values.max()))
        scales = np.maximum(round_up_scale(weights * factor), MIN_SCALE)
        if scales.max() > MAX_SCALE:
            raise BudgetError(
                f"epsilon={self.epsilon} over {weights.size} tables needs noise of scale {scales.max():.3g}, above the "
                f"largest that can be drawn exactly ({MAX_SCALE:.0f}). Use a larger epsilon or fewer attributes."
            )
        return scales


@lru_cache(maxsize=_REMEMBERED)
def _compose(
    mechanism: Mechanism, composition: Composition, shifts: int, delta: float, scales: bytes, tables: bytes
) -> float:
    """The epsilon of `tables[g]` tables at `scales[g]`, each of which one person moves by `shifts` unit shifts.

    Sensitivity of a table: L1 `shifts`, L2 sqrt(`shifts`). Arrays come as bytes, so that equal questions are answered
    from memory: a plan asks the same ones again and again.
    """
    values, counts = np.frombuffer(scales, dtype=np.float64), np.frombuffer(tables, dtype=np.int64)
    if values.size == 0:
        return 0.0
    if mechanism == "gaussian":
        return gaussian_epsilon(values, counts * shifts, delta)
    if composition == "tight":
        return laplace_epsilon(values, counts * shifts, delta)
    each = shifts / values
    if composition == "basic":
        return float(counts @ each)
    return advanced_epsilon(each, counts, delta)


def matched_scales(scales: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    """These Gaussian scales, times one factor, so that they cost no more than the reference scales do.

    Both bounds of `gaussian_epsilon` grow with a sum over all tables: of 1/sigma^2, and of 1/(sigma^2 - 4). The factor
    keeps both sums at or below the reference's, so that whatever else is measured, `Budget.spent` with these scales is
    at most what it is with the reference. The cost of a stage can so be fixed before its scales are chosen.
    """
    factor = math.sqrt(float(np.sum(scales**-2.0)) / float(np.sum(reference**-2.0)))
    if reference.min() ** 2 > BLUR:
        allowed = float(np.sum(1 / (reference**2 - BLUR)))
        values, counts = np.unique(scales, return_counts=True)

        def affordable(times: float) -> bool:
            variances = (times * values) ** 2 - BLUR
            return bool(variances.min() > 0 and np.sum(counts / variances) <= allowed)

        factor = max(factor, _smallest(affordable, start=factor))
    # Sums over millions of tables are rounded: stay a hair below.
    return np.maximum(round_up_scale(scales * factor * (1 + 1e-9)), MIN_SCALE)


def round_up_scale(scales: ArrayLike) -> NDArray[np.float64]:
    """The next scales with a 24-bit numerator over a power of two, which single precision holds exactly.

    >>> float(round_up_scale(0.1)) >= 0.1
    True
    """
    exact = np.asarray(scales, dtype=np.float64)
    single = exact.astype(np.float32)
    return np.where(single < exact, np.nextafter(single, np.float32(np.inf)), single).astype(np.float64)


def gaussian_epsilon(scales: NDArray[np.float64], shifts: NDArray[np.int64], delta: float) -> float:
    """Epsilon of discrete Gaussian noise: `shifts[g]` unit shifts in all at scale sigma = `scales[g]`.

    The smaller of two bounds, both theorems for adaptive composition with unequal scales.

    **zCDP.** Discrete Gaussian noise on an integer vector with L2 sensitivity D is D^2 / (2 sigma^2)-zCDP, zCDP adds
    up, and converts to (epsilon, delta) by the formula in `zcdp_epsilon` (Canonne, Kamath and Steinke 2020).

    **Gaussian curve.** Let s^2 = 4 (`BLUR`), sigma^2 = tau^2 + s^2, and x an integer count. Draw y ~ N(x, tau^2), then
    an integer z with probability proportional to exp(-(z - y)^2 / (2 s^2)); that step does not know x. By Poisson
    summation its normalizer is s sqrt(2 pi) (1 + e(y)) with |e(y)| <= a = 2.01 exp(-2 pi^2 s^2) < 1.1e-34. So z has a
    probability within [1/(1+a), 1/(1-a)] times the N(x, sigma^2) density at z, and the discrete Gaussian has one within
    [1/(1+a), 1] times it. Hence a noisy cell is, up to a factor exp(+-eta) with eta = 3a < 4e-34, a post-processed
    continuous Gaussian cell of variance sigma^2 - 4. Densities multiply along an adaptive run, so N cells differ by a
    factor of at most exp(+-N eta), under either neighbor. The continuous cells compose to mu-GDP with
    mu^2 = sum of shifts / (sigma^2 - 4) (Dong, Roth and Su 2022), whose curve delta'(epsilon) is `gdp_delta`. So
    P(S) <= e^(N eta) P~(S) <= e^(N eta) (e^epsilon Q~(S) + delta') <= e^(epsilon + 2 N eta) Q(S) + e^(N eta) delta',
    and for N <= 10^13 cells 2 N eta < 1e-20 (`_SLACK`).

    >>> 0.99 < gaussian_epsilon(np.array([79.8]), np.array([210]), 2.0**-30) < 1.01
    True
    """
    bounds = [zcdp_epsilon(float(np.sum(shifts / (2 * scales**2))), delta)]
    variances = scales**2 - BLUR
    if variances.min() > 0:
        bounds.append(curve_epsilon(float(np.sum(shifts / variances)), delta))
    return min(bounds)


def curve_epsilon(mu_squared: float, delta: float) -> float:
    """Epsilon of noisy cells that are mu-GDP together, by the Gaussian curve and with the slack of `gaussian_epsilon`.

    Sensitivity and scales are in `mu_squared` = sum of unit shifts / (sigma^2 - 4). Postcondition: (returned epsilon,
    delta)-DP; 0 where the curve starts below delta.

    >>> curve_epsilon(0.0, 1e-9)
    0.0
    """
    target = delta * (1 - _SLACK) - _ROUNDING * delta
    mu = math.sqrt(mu_squared)
    if mu == 0 or gdp_delta(0.0, mu) <= target:
        return 0.0
    return _smallest(lambda epsilon: gdp_delta(epsilon, mu) <= target, start=mu) + _SLACK


def gdp_delta(epsilon: float, mu: float) -> float:
    """The delta at this epsilon of mu-GDP: Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), rounded up.

    (Balle and Wang 2018, theorem 8.)
    """
    from scipy.special import log_ndtr

    upper = math.exp(log_ndtr(mu / 2 - epsilon / mu))
    lower = math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
    return upper - lower + _ROUNDING * upper


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon of rho-zCDP: inf over alpha > 1 of rho alpha + log1p(-1/alpha) - log(delta alpha) / (alpha - 1).

    (Canonne, Kamath and Steinke 2020, proposition 12.) Every alpha gives a valid epsilon, so that the search need not
    be exact.
    """
    # The best alpha is near 1 + sqrt(log(1/delta)/rho); a factor e^6 each way, in steps of 0.1%, is more than enough.
    centre = math.sqrt(math.log(1 / delta) / rho)
    alpha = 1 + centre * np.exp(np.linspace(-6, 6, 12_001))
    return max(float(np.min(rho * alpha + np.log1p(-1 / alpha) - np.log(delta * alpha) / (alpha - 1))), 0.0)


def laplace_epsilon(scales: NDArray[np.float64], shifts: NDArray[np.int64], delta: float) -> float:
    """Epsilon of discrete Laplace noise: `shifts[g]` unit shifts in all at scale b = `scales[g]`, exactly.

    P(x) is proportional to exp(-|x|/b), so the ratio of P(x) to P(x - 1) is exp(1/b) for x <= 0 and exp(-1/b) for
    x >= 1: one unit shift has a privacy loss of +1/b with probability 1/(1 + exp(-1/b)), else -1/b. Shifts are
    independent, so u of them lose (2X - u)/b with X binomial, and groups add up. Under the neighbor the same X has the
    complementary success probability. Then delta(epsilon) = P(loss > epsilon) - e^epsilon Q(loss > epsilon).
    """
    largest = float(np.sum(shifts / scales))
    search = _smallest(lambda epsilon: laplace_delta(epsilon, scales, shifts) <= delta, start=min(largest, 1.0))
    return min(largest, search)


def laplace_delta(epsilon: float, scales: NDArray[np.float64], shifts: NDArray[np.int64]) -> float:
    """The delta at this epsilon of the loss in `laplace_epsilon`, rounded up.

    Two groups at most: the one with fewer shifts is enumerated, the other's tail is an incomplete beta function.
    """
    from scipy.special import betainc, gammaln

    if scales.size > 2:
        raise BudgetError(
            f"tight composition of Laplace noise takes at most two different scales, got {scales.size}. "
            "Use mechanism 'gaussian'."
        )
    order = np.argsort(shifts)
    scales, shifts = scales[order], shifts[order]
    last_scale, last_shifts = float(scales[-1]), int(shifts[-1])
    if scales.size == 1:
        lost, under_p, under_q = np.zeros(1), np.ones(1), np.ones(1)
    else:
        b, u = float(scales[0]), int(shifts[0])
        x = np.arange(u + 1)
        ways = gammaln(u + 1) - gammaln(x + 1) - gammaln(u - x + 1)
        log_up = -math.log1p(math.exp(-1 / b))
        log_down = log_up - 1 / b
        lost = (2 * x - u) / b
        under_p = np.exp(ways + x * log_up + (u - x) * log_down)
        under_q = np.exp(ways + x * log_down + (u - x) * log_up)
    first = np.floor(((epsilon - lost) * last_scale + last_shifts) / 2) + 1
    inside = np.clip(first, 1, last_shifts)
    odds = math.exp(-1 / last_scale)

    def tail(probability: float) -> NDArray[np.float64]:
        exact = betainc(inside, last_shifts - inside + 1, probability)
        return np.where(first <= 0, 1.0, np.where(first > last_shifts, 0.0, exact))

    above = float(under_p @ tail(1 / (1 + odds)))
    # Beyond e^700 a smaller factor is used: it can only raise the answer.
    below = math.exp(min(epsilon, 700.0)) * float(under_q @ tail(odds / (1 + odds)))
    return above - below + _ROUNDING * above


def advanced_epsilon(each: ArrayLike, counts: ArrayLike, delta: float) -> float:
    """Advanced composition as the paper uses it: `counts[g]` mechanisms that are `each[g]`-DP.

    epsilon = sqrt(2 ln(1/delta) sum e^2) + sum e (exp(e) - 1), which is the paper's formula when all are equal. (Dwork,
    Rothblum and Vadhan 2010: losses lie in [-e, e] with mean at most e (exp(e) - 1); Azuma's inequality does the rest.)

    >>> round(advanced_epsilon([0.014782], [105], 2.0**-30), 3)
    1.0
    """
    each, counts = np.asarray(each, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    with np.errstate(over="ignore"):
        drift = float(np.sum(counts * each * np.expm1(each)))
    return math.sqrt(2 * math.log(1 / delta) * float(np.sum(counts * each**2))) + drift


def _smallest(holds: Callable[[float], bool], *, start: float) -> float:
    """The smallest positive x at which a monotone condition holds, from above, to about 13 digits."""
    high = start
    while not holds(high):
        high *= 2
    low = high / 2
    while holds(low):
        high, low = low, low / 2
        if low < 1e-300:
            return high
    while (high - low) > 1e-13 * high:
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
