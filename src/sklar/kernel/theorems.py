"""(epsilon, delta), neighbors, composition theorems, noise scales.

Everything that is measured is an integer vector with fresh noise on every cell (`queries`). What one person can do to
it is a `Spend`: so many **moves** over separate cells, each of L1 norm at most its **reach**, at the scale of the noise
that is really drawn. For a table of counts:

**Sensitivity.** At most L rows of a person are counted (`Budget.rows`; 1 where a row is a person). They add to a table
a vector v of whole numbers, none negative, of sum at most L, so |v|_2 <= |v|_1 <= L: all L rows may stand in one cell.
Adding or removing the person moves the table by v: one move of reach L. Replacing the person moves it by v' - v, whose
positive part p and negative part q stand in different cells and sum to at most L each: two moves of reach L. With
`shifts` for the 2 or the 1: L1 sensitivity `shifts` L, L2 sensitivity sqrt(`shifts`) L. A row outside a table's domain
moves fewer cells: the bounds hold.

**Choosing rows at random.** Which rows of a person are counted may be drawn at random, as long as each person's draw
depends on no other person's rows (`people`). Draw the rows of everybody else first, alike for both neighbors: for each
outcome the tables differ by one person's v and v' as above, so what is measured is (epsilon, delta)-DP; and a mixture
of pairs that are (epsilon, delta)-close is (epsilon, delta)-close.

**Filters.** Queries and scales may be chosen from earlier answers, as long as their running cost stays below a limit
that was fixed before: in rho of zCDP (Feldman and Zrnic 2021; Whitehouse et al. 2023), and in mu^2 of GDP (Smith and
Thakurta 2022; Koskela et al. 2023). Each is a filter, so a run that keeps both has both guarantees, and the smaller
epsilon of the two reserved sums holds. Taking the smaller bound anew at every step would not be a filter.

Floating-point results are rounded outward: scales and epsilons up. The proofs are in the docstrings; `docs/privacy.md`
tells the same story to a reader who is not a programmer.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from sklar.errors import BudgetError
from sklar.kernel.cells import Doubles, Ints

Neighbors = Literal["replace-one", "add-remove"]
Mechanism = Literal["gaussian", "laplace"]
Composition = Literal["tight", "advanced", "basic"]

DEFAULT_DELTA = 2.0**-30

# Numerators of scales fit in 24 bits, so that the exact sampler's products fit in 64 (see `noise`).
MAX_SCALE = 2.0**24
MIN_SCALE = 2.0**-10

# Below this no noise that can be drawn is large enough.
_LEAST_EPSILON = 1e-12

# More rows of one person than this would drown everybody else's in noise.
MAX_ROWS_PER_PERSON = 1_000

# Floating-point arithmetic loses digits. A probability, a sum over tables and a conversion are believed up to this
# share of them, and stated larger by it: a hundred times what sums of 10^13 terms lose.
ROUNDING = 1e-12

# Variance that a discrete Gaussian gives up to be a post-processed continuous one, and the log-ratio that this leaves
# open over at most 10^13 noisy cells. Both from the theorem in `gaussian_epsilon`.
BLUR = 4.0
_SLACK = 1e-20

# Answers are remembered for this many questions, of at most this many different scales each: 16 MB at worst.
_REMEMBERED = 1_024
_REMEMBERED_SCALES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spend:
    """What noise costs: `moves[g]` moves over separate cells, each of L1 norm at most `reach[g]`, at scale `scales[g]`.

    `lost_delta` is the chance that a threshold fails (`Budget.less`).
    """

    scales: Doubles
    moves: Doubles
    reach: Doubles
    lost_delta: float = 0.0

    @classmethod
    def of(cls, scales: ArrayLike, moves: ArrayLike = 1, reach: ArrayLike = 1, *, lost_delta: float = 0.0) -> Spend:
        """Groups of equal scale and reach, their moves added up."""
        exact = np.ravel(np.asarray(scales, dtype=np.float64))
        if np.ndim(moves) == 0 and np.ndim(reach) == 0:
            # As below, many times as fast: a plan asks this of millions of tables.
            each, times = np.unique(exact, return_counts=True)
            total, far = np.multiply(times, moves, dtype=np.float64), np.full(each.size, reach, dtype=np.float64)
            return cls(scales=each, moves=total, reach=far, lost_delta=lost_delta)
        parts = [exact, *(np.broadcast_to(np.asarray(part, dtype=np.float64), exact.shape) for part in (moves, reach))]
        order = np.lexsort((parts[2], parts[0]))
        scale, many, far = (part[order] for part in parts)
        first = np.flatnonzero((np.diff(scale, prepend=-1.0) != 0) | (np.diff(far, prepend=-1.0) != 0))
        total = np.add.reduceat(many, first) if first.size else many
        return cls(scales=scale[first], moves=total, reach=far[first], lost_delta=lost_delta)

    def __add__(self, other: Spend) -> Spend:
        both = ((self.scales, other.scales), (self.moves, other.moves), (self.reach, other.reach))
        return Spend.of(*map(np.concatenate, both), lost_delta=self.lost_delta + other.lost_delta)

    def __mul__(self, factor: float) -> Spend:
        """The same moves at `factor` times the scales."""
        return replace(self, scales=self.scales * factor)


NOTHING = Spend.of([])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A spend in two currencies that add up over releases: `rho` of zCDP, and the square of `mu` of GDP."""

    rho: float = 0.0
    mu_squared: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(rho=self.rho + other.rho, mu_squared=self.mu_squared + other.mu_squared)

    def covers(self, other: Cost) -> bool:
        """Whether this pays for the other in every currency in which it is finite."""
        pairs = ((self.rho, other.rho), (self.mu_squared, other.mu_squared))
        return all(not math.isfinite(paid) or used <= paid * (1 + ROUNDING) for paid, used in pairs)


def cost(mechanism: Mechanism, spend: Spend) -> Cost:
    """The cost of these moves in both currencies, rounded up.

    zCDP: a move of Gaussian noise of scale s by p is |p|_2^2/(2 s^2)-zCDP, at most reach^2/(2 s^2) (Canonne, Kamath and
    Steinke 2020); one of Laplace noise is pure (|p|_1/s)-DP, at most reach/s, and so reach^2/(2 s^2)-zCDP too (Bun and
    Steinke 2016). Cells are independent: they add. GDP: a move of Gaussian noise is mu-GDP with mu^2 = reach^2/(s^2 -
    4) by the theorem in `gaussian_epsilon`; one of Laplace noise is pure e-DP with e = reach/s and so `pure_mu(e)`-GDP.
    """
    scales, squares = spend.scales, spend.moves * spend.reach**2
    rho = _sum_up(squares / (2 * scales**2))
    if mechanism == "laplace":
        each = np.array([pure_mu(float(reach / scale)) for reach, scale in zip(spend.reach, scales, strict=True)])
        return Cost(rho=rho, mu_squared=_sum_up(spend.moves * each**2))
    if scales.size and scales.min() ** 2 <= BLUR:
        return Cost(rho=rho, mu_squared=math.inf)
    return Cost(rho=rho, mu_squared=_sum_up(squares / (scales**2 - BLUR)))


def pure_mu(epsilon: float) -> float:
    """The least mu for which epsilon-DP implies mu-GDP: Phi(mu / 2) = 1 / (1 + exp(-epsilon)).

    The trade-off curve of epsilon-DP has one corner. The Gaussian curve of this mu passes through it, and as that curve
    is convex, it lies below the two straight lines of the other.
    """
    wrong = math.exp(-epsilon) / (1 + math.exp(-epsilon)) * (1 - ROUNDING)
    return smallest(lambda mu: math.exp(log_ndtr(-mu / 2)) <= wrong, start=max(epsilon, 1e-300))


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much privacy may be spent, against which neighbors, and by which theorem it is counted.

    `rows_per_person` is None where a row is a person. Else neighbors differ in all rows of one person, of which at most
    so many are counted.
    """

    epsilon: float
    delta: float = DEFAULT_DELTA
    neighbors: Neighbors = "replace-one"
    mechanism: Mechanism = "gaussian"
    composition: Composition = "tight"
    rows_per_person: int | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            value = getattr(self, name)
            if not isinstance(value, int | float | np.number) or isinstance(value, bool):
                raise BudgetError(f"{name} must be a number, got {value!r:.60}. Write {name}=0.5, without quotes.")
        if not (math.isfinite(self.epsilon) and self.epsilon >= _LEAST_EPSILON):
            raise BudgetError(f"epsilon must be positive and finite, got epsilon={self.epsilon}. Give 1e-12 or more.")
        if not 0 < self.delta < 1:
            raise BudgetError(f"delta must lie strictly between 0 and 1, got delta={self.delta}. Try 2**-30.")
        for name, kind in (("neighbors", Neighbors), ("mechanism", Mechanism), ("composition", Composition)):
            value, known = getattr(self, name), get_args(kind)
            if value not in known:
                raise BudgetError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
        if self.mechanism == "gaussian" and self.composition != "tight":
            raise BudgetError(
                f"composition '{self.composition}' adds up pure-epsilon mechanisms, which Gaussian noise is not. "
                "Use mechanism 'laplace', or composition 'tight'."
            )
        rows = self.rows_per_person
        if rows is not None and (type(rows) is not int or not 1 <= rows <= MAX_ROWS_PER_PERSON):
            raise BudgetError(
                f"rows_per_person must be a whole number from 1 to {MAX_ROWS_PER_PERSON:,}, or None where a row is a "
                f"person, got {rows!r}."
            )

    @property
    def shifts(self) -> int:
        """Shifts that one person makes in one table, each of `rows` rows at most: out of it and, replaced, into it."""
        return 2 if self.neighbors == "replace-one" else 1

    @property
    def rows(self) -> int:
        """The most rows of one person that are counted."""
        return 1 if self.rows_per_person is None else self.rows_per_person

    @property
    def rows_are_public(self) -> bool:
        """Whether neighbors share the number of rows that are counted.

        They do under replace-one where every person has one: the number of people is public. With up to L > 1 rows, a
        replaced person may bring more of them or fewer.
        """
        return self.neighbors == "replace-one" and self.rows == 1

    def spent(self, spend: Spend) -> float:
        """The epsilon of this spend at this delta.

        Precondition: it was fixed before anything is measured, and what is measured stays within it: the same scales
        and moves, or, under Gaussian noise, no more in rho, in mu^2 and in lost delta (filters, top of this file).
        Postcondition: the joint output is (returned epsilon, delta)-DP under `neighbors`. Thresholds that may fail are
        paid for as `less` proves.
        """
        compose = _compose if spend.scales.size <= _REMEMBERED_SCALES else _compose.__wrapped__
        settings = (self.mechanism, self.composition, self.shifts, self.less(spend.lost_delta).delta)
        epsilon = compose(*settings, spend.scales.tobytes(), spend.moves.tobytes(), spend.reach.tobytes())
        return up(epsilon - math.log1p(-spend.lost_delta)) if spend.lost_delta else epsilon

    def cost(self, spend: Spend) -> Cost:
        """The same in currencies that add up over releases."""
        return cost(self.mechanism, spend)

    def tables(self, scales: ArrayLike, number: ArrayLike = 1, lost_delta: float = 0.0) -> Spend:
        """What tables of counts cost at these scales: `number[g]` of them at `scales[g]` (top of this file)."""
        return Spend.of(scales, self.shifts * np.asarray(number), self.rows, lost_delta=lost_delta)

    def less(self, lost_delta: float) -> Budget:
        """The budget that is left for noise when, with probability `lost_delta`, a threshold may fail.

        Claim. Let every table be noised on the cells that some row occupies, and a cell be shown only if its noisy
        count reaches a threshold; let t_i bound the chance that any of the cells of table i in which one person stands
        alone reaches it (`chance_of_one`); let the t_i of all tables sum to t, and let all that is measured, in these
        tables and after them, be (e, d)-DP if cells that only one of the two neighbors occupies are never shown. Then
        it is (e - ln(1 - t), d + t)-DP.

        Proof. Let D have the person x where D' has y (or none). Of the cells of a table, x may be alone in some in D,
        and y in some in D', at most as many as they have rows; call these the rare cells. Let R be the event that a
        rare cell is shown: P_D(R) <= t and P_D'(R) <= t, as the rare cells of D are x's and those of D' are y's. (A
        cell that others occupy too is there under both neighbors, and its noisy count is paid for by e and d like any
        other.) Write Q and Q' for the transcripts, everything that follows included, of
        runs on D and D' that never show a rare cell: Q(S) <= e^e Q'(S) + d. A rare cell's noise is independent of the
        rest and decides nothing while it is not shown, so for every set S of transcripts P_D(S, not R) <= Q(S) and
        P_D'(S) >= P_D'(S, not R) >= (1 - t) Q'(S). Hence P_D(S) <= t + Q(S) <= t + d + e^e Q'(S)
        <= (t + d) + e^e / (1 - t) P_D'(S).

        Which tables there are, at which scales and thresholds, may follow from what was shown before, also of the same
        column, with fresh noise: given a transcript without R, each t_i bounds the chance of a rare cell of table i,
        and as they sum to at most t in every transcript, P(R) <= t and the factor 1 - t hold as above.
        """
        if not 0 <= lost_delta < self.delta:
            raise BudgetError(f"thresholds must fail with less than delta={self.delta}, got {lost_delta}.")
        if lost_delta == 0:
            return self
        # Less is left than the difference says: rounded down.
        left = -up(-(self.epsilon + math.log1p(-lost_delta))), -up(-(self.delta - lost_delta))
        return replace(self, epsilon=left[0], delta=left[1])

    def scales(self, weights: ArrayLike) -> Doubles:
        """The smallest scales proportional to these weights (one per table) that stay within the budget.

        The inverse of `spent`; each scale is rounded up to a number that the exact sampler can draw.
        """
        weights = np.asarray(weights, dtype=np.float64)
        shape = self.tables(weights)

        def within(factor: float) -> bool:
            if self.mechanism == "laplace" and self.composition == "tight":
                # The same question as below, without solving for epsilon at every step.
                return laplace_delta(self.epsilon, *_unit_moves(shape * factor)) <= self.delta
            return self.spent(shape * factor) <= self.epsilon

        start = self.rows * math.sqrt(weights.size) / self.epsilon / float(shape.scales.max())
        factor = smallest(within, start=start)
        scales = drawable(weights * factor)
        if scales.max() > MAX_SCALE:
            raise BudgetError(
                f"epsilon={self.epsilon} over {weights.size} tables needs noise of scale {scales.max():.3g}, above the "
                f"largest that can be drawn exactly ({MAX_SCALE:.0f}). Use a larger epsilon or fewer attributes."
            )
        return scales


@lru_cache(maxsize=_REMEMBERED)
def _compose(
    mechanism: Mechanism, composition: Composition, shifts: int, delta: float, scales: bytes, moves: bytes, reach: bytes
) -> float:
    """The epsilon of a spend.

    Gaussian noise: the squares of L2 sensitivities add up (`gaussian_epsilon`), and a move of reach G is worth at most
    G^2 unit moves. Laplace noise: the cells of one move together are pure (G/b)-DP at scale b. A pure e-DP mechanism is
    randomized response with odds e^e, post-processed (Kairouz, Oh and Viswanath 2015), which is what one unit move at
    scale 1/e = b/G is (`laplace_epsilon`); and composition, adaptive too, keeps to what the dominating pairs compose to
    (Zhu, Dong and Wang 2022). Basic and advanced composition take the `shifts` moves of a table as one mechanism, as
    the paper does.

    Arrays come as bytes, so that equal questions are answered from memory: a plan asks the same ones again and again.
    """
    spend = Spend(scales=np.frombuffer(scales), moves=np.frombuffer(moves), reach=np.frombuffer(reach))
    if spend.scales.size == 0:
        return 0.0
    if mechanism == "gaussian":
        return gaussian_epsilon(spend.scales, spend.moves * spend.reach**2, delta)
    if composition == "tight":
        return laplace_epsilon(*_unit_moves(spend), delta)
    tables, each = spend.moves / shifts, shifts * spend.reach / spend.scales
    return _sum_up(tables * each) if composition == "basic" else advanced_epsilon(each, tables, delta)


def _unit_moves(spend: Spend) -> tuple[Doubles, Ints]:
    """Scales and numbers of unit moves that cost what a spend of Laplace noise does; scales rounded down."""
    scales = np.where(spend.reach == 1, spend.scales, np.nextafter(spend.scales / spend.reach, 0.0))
    return scales, spend.moves.astype(np.int64)


def matched_factor(shape: Spend, reference: Spend) -> float:
    """The factor by which Gaussian scales must grow so that `shape` costs no more than the reference does.

    Both sums of `cost` stay at or below the reference's, so that whatever else is measured, `Budget.spent` is at most
    what it is with the reference. The cost of a stage can so be fixed before its scales are chosen. Scales are then
    rounded up (`drawable`).
    """
    allowed = cost("gaussian", reference)
    factor = math.sqrt(cost("gaussian", shape).rho / allowed.rho)
    if math.isfinite(allowed.mu_squared):
        least = smallest(lambda x: cost("gaussian", shape * x).mu_squared <= allowed.mu_squared, start=factor)
        factor = max(factor, least)
    # Sums over millions of tables are rounded: stay a hair below.
    return factor * (1 + 1e-9)


def drawable(scales: ArrayLike) -> Doubles:
    """The next scales that the exact sampler draws, none below `MIN_SCALE`."""
    return np.maximum(round_up_scale(scales), MIN_SCALE)


def round_up_scale(scales: ArrayLike) -> Doubles:
    """The next scales with a 24-bit numerator over a power of two, which single precision holds exactly."""
    exact = np.asarray(scales, dtype=np.float64)
    single = exact.astype(np.float32)
    return np.where(single < exact, np.nextafter(single, np.float32(np.inf)), single).astype(np.float64)


def gaussian_epsilon(scales: Doubles, shifts: Doubles, delta: float) -> float:
    """Epsilon of discrete Gaussian noise: `shifts[g]` unit shifts in all at scale sigma = `scales[g]`.

    A shift of whole numbers of squared length D^2 (L2 sensitivity D, over any cells) counts as D^2 unit shifts. The
    smaller of two bounds, both theorems for adaptive composition with unequal scales.

    **zCDP.** Discrete Gaussian noise on an integer vector with L2 sensitivity D is D^2 / (2 sigma^2)-zCDP, zCDP adds
    up, and converts to (epsilon, delta) by the formula in `zcdp_epsilon` (Canonne, Kamath and Steinke 2020).

    **Gaussian curve.** Let s^2 = 4 (`BLUR`), sigma^2 = tau^2 + s^2, and x an integer count. Draw y ~ N(x, tau^2), then
    an integer z with probability proportional to exp(-(z - y)^2 / (2 s^2)); that step does not know x. By Poisson
    summation its normalizer is s sqrt(2 pi) (1 + e(y)) with |e(y)| <= a = 2.01 exp(-2 pi^2 s^2) < 1.1e-34. So z has a
    probability within [1/(1+a), 1/(1-a)] times the N(x, sigma^2) density at z, and the discrete Gaussian has one within
    [1/(1+a), 1] times it. Hence a noisy cell is, up to a factor exp(+-eta) with eta = 3a < 4e-34, a post-processed
    continuous Gaussian cell of variance sigma^2 - 4. That holds of each neighbor by itself, whatever whole number x is:
    how far the two lie apart plays no part, and the 4 is the same for a shift by 1 and by L. Densities multiply along
    an adaptive run, so N cells differ by a factor of at most exp(+-N eta), under either neighbor. The continuous cells
    of a table, shifted by a vector of length D, are (D / sqrt(sigma^2 - 4))-GDP, and compose to mu-GDP with mu^2 = sum
    of D^2 / (sigma^2 - 4) (Dong, Roth and Su 2022), whose curve delta'(epsilon) is `gdp_delta`. So
    P(S) <= e^(N eta) P~(S) <= e^(N eta) (e^epsilon Q~(S) + delta') <= e^(epsilon + 2 N eta) Q(S) + e^(N eta) delta',
    and for N <= 10^13 cells 2 N eta < 1e-20 (`_SLACK`).
    """
    bounds = [zcdp_epsilon(_sum_up(shifts / (2 * scales**2)), delta)]
    variances = scales**2 - BLUR
    if variances.min() > 0:
        bounds.append(curve_epsilon(_sum_up(shifts / variances), delta))
    return min(bounds)


def curve_epsilon(mu_squared: float, delta: float) -> float:
    """Epsilon of noisy cells that are mu-GDP together, by the Gaussian curve and with the slack of `gaussian_epsilon`.

    Sensitivity and scales are in `mu_squared` = sum of unit shifts / (sigma^2 - 4). Postcondition: (returned epsilon,
    delta)-DP; 0 where the curve starts below delta.
    """
    target = delta * (1 - _SLACK) - ROUNDING * delta
    mu = math.sqrt(mu_squared)
    if mu == 0 or gdp_delta(0.0, mu) <= target:
        return 0.0
    return smallest(lambda epsilon: gdp_delta(epsilon, mu) <= target, start=mu) * (1 + ROUNDING) + _SLACK


def gdp_delta(epsilon: float, mu: float) -> float:
    """The delta at this epsilon of mu-GDP: Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), rounded up.

    (Balle and Wang 2018, theorem 8.)
    """
    upper = math.exp(log_ndtr(mu / 2 - epsilon / mu))
    lower = math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
    return upper - lower + ROUNDING * upper


def log_ndtr(x: float) -> float:
    """log Phi(x), to about 14 digits."""
    if x > -35:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    # Beyond the range of erfc: the asymptotic series, whose terms fall by a factor of at least 70 here.
    term = series = 1.0
    for k in range(1, 9):
        term *= -(2 * k - 1) / x**2
        series += term
    return -(x**2) / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log(series)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon of rho-zCDP: inf over alpha > 1 of rho alpha + log1p(-1/alpha) - log(delta alpha) / (alpha - 1).

    (Canonne, Kamath and Steinke 2020, proposition 12.) Every alpha gives a valid epsilon, so that the search need not
    be exact. The three terms are rounded by their sizes, since their sum may be much smaller than each.
    """
    # The best alpha is near 1 + sqrt(log(1/delta)/rho); a factor e^6 each way, in steps of 0.1%, is more than enough.
    centre = math.sqrt(math.log(1 / delta) / rho)
    alpha = 1 + centre * np.exp(np.linspace(-6, 6, 12_001))
    terms = np.array([rho * alpha, np.log1p(-1 / alpha), -np.log(delta * alpha) / (alpha - 1)])
    return max(float(np.min(terms.sum(axis=0) + ROUNDING * np.abs(terms).sum(axis=0))), 0.0)


def laplace_epsilon(scales: Doubles, shifts: Ints, delta: float) -> float:
    """Epsilon of discrete Laplace noise: `shifts[g]` unit shifts in all at scale b = `scales[g]`, exactly.

    P(x) is proportional to exp(-|x|/b), so the ratio of P(x) to P(x - 1) is exp(1/b) for x <= 0 and exp(-1/b) for
    x >= 1: one unit shift has a privacy loss of +1/b with probability 1/(1 + exp(-1/b)), else -1/b. Shifts are
    independent, so u of them lose (2X - u)/b with X binomial, and groups add up. Under the neighbor the same X has the
    complementary success probability. Then delta(epsilon) = P(loss > epsilon) - e^epsilon Q(loss > epsilon).
    """
    largest = _sum_up(shifts / scales)
    search = smallest(lambda epsilon: laplace_delta(epsilon, scales, shifts) <= delta, start=min(largest, 1.0))
    return min(largest, search)


def laplace_delta(epsilon: float, scales: Doubles, shifts: Ints) -> float:
    """The delta at this epsilon of the loss in `laplace_epsilon`, rounded up.

    Two groups at most: the outcomes of the one with fewer shifts are enumerated, the other's tails are looked up.
    """
    if scales.size > 2:
        raise BudgetError(
            f"tight composition of Laplace noise takes at most two different scales, got {scales.size}. "
            "Use mechanism 'gaussian'."
        )
    order = np.argsort(shifts, kind="stable")
    scale, count = float(scales[order[-1]]), int(shifts[order[-1]])
    lost, here, there = np.zeros(1), np.ones(1), np.ones(1)
    if scales.size == 2:
        small, few = float(scales[order[0]]), int(shifts[order[0]])
        low, here = _binomial(few, 1 / small)
        x = low + np.arange(here.size)
        lost, mirrored = (2 * x - few) / small, few - x - low
        there = np.where((mirrored >= 0) & (mirrored < here.size), here[np.clip(mirrored, 0, here.size - 1)], 0.0)
    low, chances = _binomial(count, 1 / scale)
    upto = np.concatenate([[0.0], np.cumsum(chances)])
    beyond = np.append(np.cumsum(chances[::-1])[::-1], 0.0)
    first = np.searchsorted((2 * (low + np.arange(chances.size)) - count) / scale, epsilon - lost, side="right")
    # Under the neighbor heads and tails change places. What is left out of a tail there can only raise the answer.
    above, below = here @ beyond[first], there @ upto[np.clip(count - 2 * low - first + 1, 0, chances.size)]
    return float(above - math.exp(min(epsilon, 700.0)) * below + ROUNDING * above)


@lru_cache(maxsize=8)
def _binomial(count: int, log_odds: float) -> tuple[int, Doubles]:
    """The first value and the chances of a binomial of `count` coins, but for values whose chance is below 1e-300.

    By the ratios of neighboring chances, from the mode outward: sums of small logarithms, which keep their digits.
    """
    chance = 1 / (1 + math.exp(-log_odds))
    mode, reach = min(int((count + 1) * chance), count), int(40 * math.sqrt(count * chance * (1 - chance))) + 750
    low, high = max(mode - reach, 0), min(mode + reach, count)
    x = np.arange(low, high)
    steps = np.log((count - x) / (x + 1)) + log_odds
    at = mode - low
    logs = np.concatenate([-np.cumsum(steps[:at][::-1])[::-1], [0.0], np.cumsum(steps[at:])])
    chances = np.exp(logs)
    chances /= chances.sum()
    chances.setflags(write=False)
    return low, chances


def advanced_epsilon(each: ArrayLike, counts: ArrayLike, delta: float) -> float:
    """Advanced composition as the paper uses it: `counts[g]` mechanisms that are `each[g]`-DP.

    epsilon = sqrt(2 ln(1/delta) sum e^2) + sum e (exp(e) - 1), which is the paper's formula when all are equal. (Dwork,
    Rothblum and Vadhan 2010: losses lie in [-e, e] with mean at most e (exp(e) - 1); Azuma's inequality does the rest.)
    """
    each, counts = np.asarray(each, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    with np.errstate(over="ignore"):
        drift = _sum_up(counts * each * np.expm1(each))
    return math.sqrt(2 * math.log(1 / delta) * _sum_up(counts * each**2)) * (1 + ROUNDING) + up(drift)


def chance_of_one(scale: float, threshold: int, rows: int = 1) -> float:
    """A bound on the chance that some value reaches the threshold which one person alone has, in up to `rows` = L rows.

    A value of c rows reaches T with chance P(c + X >= T). X is discrete Gaussian, P(X = k) = exp(-k^2 / (2 sigma^2)) /
    N. By Poisson summation N >= sigma sqrt(2 pi), and as the density falls, the sum over k >= t is at most its integral
    from t - 1: P(X >= t) <= Phi(-(t - 1) / sigma). So the chance is at most F(c) = Phi(-(T - 1 - c) / sigma).

    The person's rows may hold k different values, c_1 + ... + c_k <= L, and the chance that any of them reaches T is at
    most the sum of F(c_i). F grows, and it is convex as long as c <= T - 1, which T > L ensures. So for each k the sum
    is largest at the ends, (L - k + 1, 1, ..., 1), where it is F(L - k + 1) + (k - 1) F(1); that is convex in k, and so
    largest at k = 1 or k = L: the chance is at most max(F(L), L F(1)). For L = 1 both are F(1).
    """
    if threshold <= rows:
        return 1.0
    alone, apart = (math.exp(log_ndtr(-(threshold - 1 - count) / scale)) for count in (rows, 1))
    return min(max(alone, rows * apart) * (1 + ROUNDING), 1.0)


def least_threshold(scale: float, chance: float, rows: int = 1) -> int:
    """The smallest whole threshold that `chance_of_one` shows to be passed with at most this chance."""
    every = range(2, 2**53)
    return every[bisect_left(every, -chance, key=lambda threshold: -chance_of_one(scale, threshold, rows))]


def noise_variance(mechanism: Mechanism, scales: Doubles) -> Doubles:
    """Variance of discrete noise: sigma^2 (an upper bound, reached but for 1e-6 above sigma = 1), or Laplace's exactly.

    >>> noise_variance("laplace", np.array([10.0])).round(2).tolist()
    [199.83]
    """
    if mechanism == "gaussian":
        return scales**2
    with np.errstate(over="ignore"):
        return np.where(scales > 0, 0.5 / np.sinh(0.5 / np.where(scales > 0, scales, 1.0)) ** 2, 0.0)


def up(value: float) -> float:
    """The next number above."""
    return math.nextafter(value, math.inf)


def _sum_up(terms: Doubles) -> float:
    """The sum of numbers of one sign, none negative, rounded up by more than its terms and itself can have lost."""
    return float(np.sum(terms)) * (1 + ROUNDING)


def smallest(holds: Callable[[float], bool], *, start: float) -> float:
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
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
