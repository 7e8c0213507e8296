"""Whether the noise of a model file is the noise that it states: the same counts are seen many times.

**What is compared.** A count is measured in its one-way table, in the margins of every two-way table of its attribute,
and in every stage. The differences of these measurements hold no count, only noise, whose law the file states. So
their mean square is about 1 for a genuine file, 0 for exact counts, and 1/4096 where all scales were stated 64 times
too large.

**Independent residuals.** Write a two-way table of attributes A and B as its grand total, K_A - 1 orthonormal contrasts
of its row sums, K_B - 1 of its column sums, and interactions. These are orthogonal functions of cells with equal,
independent noise of variance v: uncorrelated, with variances K_A K_B v, K_B v and K_A v. So each contrast of A's levels
is seen m times without correlation: directly, and in m - 1 tables. For measurements x_1, x_2, ... of one number with
variances v_1, v_2, ..., the recursive residuals

    z_k = (x_k - mean of x_1 .. x_(k-1)) / sqrt(v_k + variance of that mean),   means weighted by 1/v,

are uncorrelated and have variance 1, and their squares add up to the generalized least squares residual. The same is
done over stages, cell by cell; with the weighted mean over stages in place of a table for all that follows, which is
uncorrelated with the stages' residuals; over the totals of all tables; and, for numbers whose bins were searched for,
over the tables of the search, the finest first. Which of their cells are divided depends on earlier tables: where a
count is near the limit, a residual's mean square is between 0.85 and 1.8. So the mean square is taken as if it were a
quarter larger (`_CHOSEN`), and only too little noise is looked for there.

**Their law.** The verifier adds normal noise of variance s^2 = 4 to every cell, from the file's own digest. Discrete
Gaussian noise of scale sigma plus N(0, s^2) has the density of N(0, sigma^2 + s^2) up to a factor 1 +- 2 exp(-2 pi^2
sigma^2 s^2 / (sigma^2 + s^2)) (Poisson summation, as in `theorems.gaussian_epsilon`): 3e-7 at sigma = 1, the least
scale that is tested, 2e-27 at sigma = 3. So the z are independent standard normals, their squares chi-square, and
nothing depends on the lattice of whole numbers. For Laplace noise the z are uncorrelated but not normal. Q, the sum of
their squares, is a quadratic form with mean f (the degrees of freedom) and variance 2 f + sum kappa_i P_ii^2, where
kappa_i <= 3 is a cell's excess kurtosis and P a projection of rank f: at most 5 f. The lower tail of Q is taken from
the gamma law with these two moments, which is wider: near zero it falls with the power 0.2 f, and Q's with 0.5 f.

**Values that are in no cell.** Where an attribute has no level for them, rows may be missing from its tables: M, a
margin over B's levels, is then short of the one-way count x by the rows outside of B. Such a shift of the mean makes
sums of squares larger and |z| too (Anderson's inequality), so tests that look for too little noise hold for every file.
Tests that look for too much are made between stages, where nothing can be missing; elsewhere only where the schema
gives every value a level, and else of the largest M - x alone, as shifts are downward.

**Scales that were chosen.** A second stage's scales depend on the first stage's noisy tables: what seems to lie far
from independence is measured more precisely. So a table whose first noise n is large has a smaller v_2, and the mean
square of its residuals is above 1. With K cells and u = v_1 / (v_1 + v_2), between 0 and 1, the sum of their squares
has the mean K + E[u (|n|^2 / v_1 - K)], by Cauchy and Schwarz at most K + sqrt(2 K) / 2, whatever the choice is. As
much is taken off where squares might be too large (`chosen`); where they might be too small nothing is, as the choice
only adds to them. The least likely single table is that of all scales it might have had: its chance is multiplied by
their number. Of the law of residuals, a share of at most phi(1) / 2 E|v' - 1| moves where those of a table have
variance v' for 1, and E|v' - 1| is at most sqrt(2 / K): a distance of that much is no sign of anything.

**False alarms and power.** Every test has a level of 1e-6 over `TESTS`. All together fail a genuine file less than
once in a million. What the tests of a file could see is said with them: the largest share of the stated noise that
would be found too small 99 times in 100. A single number cannot be tested: an exact count among noisy ones, such as the
measured number of rows, has a residual that is as likely as any other. Nor can noise that is drawn well and known to
the forger.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, chdtr, chdtrc, gammainc, gammaincinv, log_ndtr, ndtr

from sklar.budget.views import NoisyTables
from sklar.fitting.margins import implied_counts
from sklar.kernel.cells import Cells, Whole
from sklar.kernel.theorems import Mechanism
from sklar.machine.spill import room_for
from sklar.public.schema import Schema

FALSE_ALARM = 1e-6
TESTS = 24
LEVEL = FALSE_ALARM / TESTS
# Below this scale noise is no smooth law; whoever states so little has stated an epsilon that promises nothing.
LEAST_SCALE = 1.0
SMEAR = 4.0
POWER = 0.99
ALL = "all residuals"
_MODULI = (2, 3, 5, 7, 10, 16)
_BINS = 2_000
_AT_ONCE = 1 << 18
_CHOSEN = 1.25
# phi(1) / 2: how far the normal distribution function moves at most, by unit of a relative change of its variance.
_MOVED = 0.121
# How much wider than chi-square a sum of squares of Laplace noise can be.
_LAPLACE_WIDTH = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseTest:
    """One test: a bound on the chance that genuine noise looks like this, and what was seen in words.

    `freedom` is the number of independent residuals, where squares were added up, and `chosen` what the choice of
    scales may add to the sum.
    """

    name: str
    chance: float
    seen: str
    freedom: int = 0
    chosen: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether genuine noise is at all likely to look like this."""
        return self.chance >= LEVEL


@dataclass(slots=True)
class Squares:
    """Squares of residuals of one kind, added up, with the distribution of the residuals in bins."""

    total: float = 0.0
    freedom: int = 0
    bins: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_BINS, dtype=np.int64))

    def add(self, z: NDArray[np.float64]) -> None:
        """Count these residuals in."""
        for start in range(0, z.size, _AT_ONCE):
            part = z.ravel()[start : start + _AT_ONCE]
            self.total += float(part @ part)
            self.bins += np.bincount(np.minimum((ndtr(part) * _BINS).astype(np.int64), _BINS - 1), minlength=_BINS)
        self.freedom += z.size

    def __add__(self, other: Squares) -> Squares:
        return Squares(self.total + other.total, self.freedom + other.freedom, self.bins + other.bins)


@dataclass(slots=True)
class Residuals:
    """All residuals of a file, by what they compare; see the module's docstring.

    `tables` and `attributes` are sums of squares and degrees of freedom of each, shape (2, tables) and (2, m).
    `chosen` is what the choice of scales may add to the sum of squares between stages, and `scales` how many there were
    to choose from. `crossed` is standard normal, and says whether stages are correlated. `highest` is the largest
    margin above its one-way count, in standard deviations, of `compared` ones, with a bound on its chance.
    """

    stages: Squares
    tables: NDArray[np.float64]
    margins: Squares
    direct: Squares
    attributes: NDArray[np.float64]
    totals: Squares
    one_way_totals: Squares
    grids: Squares
    crossed: float | None
    highest: float
    highest_chance: float
    chosen: float = 0.0
    scales: int = 1

    @property
    def together(self) -> Squares:
        """All of them but those of searches: none is used twice."""
        return sum((self.margins, self.direct, self.totals, self.one_way_totals), self.stages)


def examine(stages: Sequence[NoisyTables], schema: Schema, grids: Sequence[Grid] = ()) -> list[NoiseTest]:
    """All tests of the noise of one file; none where its scales are too small to tell."""
    scales = [float(tables.plan.scales.min(initial=np.inf)) for tables in stages] + [grid.scale for grid in grids]
    if min(scales) < LEAST_SCALE:
        return []
    mechanism = stages[0].mechanism
    complete = all(each.missing is not None or each.other for each in schema.attributes)
    found = residuals(stages, schema.cells, grids)
    normal = mechanism == "gaussian"
    tests = [
        *squares_test(ALL, found.together, mechanism, both=False, chosen=found.chosen),
        *squares_test("between stages", found.stages, mechanism, both=normal, chosen=found.chosen),
        *squares_test("margins of two-way tables", found.margins, mechanism, both=normal and complete),
        *squares_test("one-way tables against margins", found.direct, mechanism, both=normal and complete),
        *squares_test("totals of two-way tables", found.totals, mechanism, both=normal and complete),
        *squares_test("totals of one-way tables", found.one_way_totals, mechanism, both=normal and complete),
        *squares_test("tables of searches", found.grids, mechanism, both=False, slack=_CHOSEN),
        *each_test("each two-way table between stages", found.tables, mechanism, both=normal, scales=found.scales),
        *each_test("each attribute's margins", found.attributes, mechanism, both=False),
        NoiseTest(
            name="largest margin above its one-way count",
            chance=found.highest_chance,
            seen=f"{found.highest:.2f} standard deviations",
        ),
        *_residues(stages, grids),
    ]
    if normal:
        moved = _MOVED * 2 * found.chosen / max(found.stages.freedom, 1)
        tests += _distribution("distribution between stages", found.stages, both=True, moved=moved)
        tests += _distribution("distribution of margins", found.margins + found.direct, both=complete)
    if found.crossed is not None:
        chance = 2 * float(ndtr(-abs(found.crossed)))
        tests.append(NoiseTest(name="covariance between stages", chance=chance, seen=f"z = {found.crossed:.2f}"))
    return tests


def visible(freedom: int, mechanism: Mechanism, chosen: float = 0.0) -> float:
    """The largest share of the stated noise that so many degrees of freedom show to be too small.

    99 times in 100: where noise has a share r of the stated standard deviation, the sum of squares is r^2 times a
    chi-square, and is found when that lies below the quantile of `LEVEL`. The choice of scales may add `chosen` to it.

    >>> round(visible(1_000, "gaussian"), 2)
    0.84
    """
    shape = freedom / 2 / (1.0 if mechanism == "gaussian" else _LAPLACE_WIDTH)
    if not freedom:
        return 0.0
    return math.sqrt(float(gammaincinv(shape, LEVEL) / gammaincinv(shape, POWER)) / (1 + chosen / freedom))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """The noisy tables of a search for one attribute's numbers, the first one first, with the edges of their cells.

    Every cell of a table is divided into cells of the next, or stands in it as it was.
    """

    tables: tuple[NDArray[np.int64], ...]
    edges: tuple[NDArray[np.int64], ...]
    scale: float


def residuals(stages: Sequence[NoisyTables], cells: Cells, grids: Sequence[Grid] = ()) -> Residuals:
    """Residuals of all measurements that see the same counts."""
    smear = _smear(stages)
    mechanism = stages[0].mechanism
    if stages[0].plan.parities is not None:
        return _of_parities(stages, smear)
    one_way, one_way_variance, _ = _over_stages(
        [(tables.one_way, tables.plan.one_way) for tables in stages], cells.sizes, mechanism, smear, Squares()
    )
    between = Squares()
    pairs, variance, differences = _over_stages(
        [(tables.pairs, tables.plan.pairs) for tables in stages], cells.pair_sizes, mechanism, smear, between
    )
    totals, one_way_totals = _totals(stages, cells, one_way, one_way_variance, pairs, variance, smear)
    found = Residuals(
        stages=between,
        tables=_by_table(differences, cells),
        margins=Squares(),
        direct=Squares(),
        attributes=np.zeros((2, cells.n_attributes)),
        totals=totals,
        one_way_totals=one_way_totals,
        grids=Squares(),
        crossed=None,
        highest=0.0,
        highest_chance=1.0,
    )
    for tables in stages[1:]:
        ratio = tables.plan.pairs / stages[0].plan.pairs
        # Scales are rounded to single precision: where all tables have the same ratio, none was chosen for a table.
        if ratio.size and ratio.max() > ratio.min() * (1 + 1e-5):
            found.chosen += float(np.sqrt(cells.pair_sizes / 2).sum())
            found.scales = max(found.scales, np.unique(tables.plan.pairs).size)
    for grid in grids:
        _over_grid(grid, mechanism, smear, found.grids)
    if one_way.size and pairs.size:
        if len(differences):
            found.crossed = _crossed(differences[0], cells, one_way, one_way_variance, pairs, variance)
        implied = implied_counts(pairs, cells)
        for attribute in range(cells.n_attributes):
            _of_attribute(attribute, cells, implied, one_way, one_way_variance, variance, found)
        _highest(cells, implied, one_way, one_way_variance, variance, stages, found)
    return found


def _of_parities(stages: Sequence[NoisyTables], smear: np.random.Generator) -> Residuals:
    """Residuals of looks at the same parities: no parity says anything of another, so that looks are all there is."""
    mechanism, between, totals = stages[0].mechanism, Squares(), Squares()
    for name in ("one_way", "pairs", "trios"):
        looks = [(getattr(tables, name), getattr(tables.plan, name)) for tables in stages]
        _over_stages(looks, np.ones(looks[0][1].size, dtype=np.int64), mechanism, smear, between)
    counted = [
        (np.array([tables.total], dtype=np.int64), np.array([tables.plan.total]))
        for tables in stages
        if tables.total is not None and tables.plan.total is not None
    ]
    _over_stages(counted, np.ones(1, dtype=np.int64), mechanism, smear, totals)
    return Residuals(
        stages=between,
        tables=np.zeros((2, 0)),
        margins=Squares(),
        direct=Squares(),
        attributes=np.zeros((2, 0)),
        totals=totals,
        one_way_totals=Squares(),
        grids=Squares(),
        crossed=None,
        highest=0.0,
        highest_chance=1.0,
    )


def _smear(stages: Sequence[NoisyTables]) -> np.random.Generator:
    """Public randomness that no forger of a file can choose apart from its tables."""
    digest = hashlib.sha256()
    for tables in stages:
        digest.update(tables.one_way.data)
        digest.update(tables.pairs.data)
        digest.update(tables.trios.data)
    return np.random.Generator(np.random.SFC64(np.frombuffer(digest.digest(), dtype=np.uint32)))


def _variances(mechanism: Mechanism, scales: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of a noisy cell and what is added to it."""
    exact = scales**2 if mechanism == "gaussian" else 0.5 / np.sinh(0.5 / scales) ** 2
    return np.asarray(exact + SMEAR)


def _over_stages(
    measured: Sequence[tuple[Whole, NDArray[np.float64]]],
    sizes: NDArray[np.int64],
    mechanism: Mechanism,
    smear: np.random.Generator,
    between: Squares,
) -> tuple[NDArray[np.float64], NDArray[np.float64], list[NDArray[np.float64]]]:
    """The mean over stages of every cell, its variance in every table, and the stages' standardized residuals."""
    mean, variance = np.empty(0), np.empty(0)
    differences: list[NDArray[np.float64]] = []
    for counts, scales in measured:
        if not scales.size:
            continue
        here: NDArray[np.float64] = room_for(counts.size, np.float64)
        for start in range(0, counts.size, _AT_ONCE):
            smear.standard_normal(out=here[start : start + _AT_ONCE])
        here *= math.sqrt(SMEAR)
        here += counts
        own = _variances(mechanism, scales)
        if not mean.size:
            mean, variance = here, own
            continue
        here -= mean
        step = variance / (variance + own)
        spread = (variance + own) ** -0.5
        for first, last, run in _runs(sizes):
            mean[run] += here[run] * np.repeat(step[first:last], sizes[first:last])
            here[run] *= np.repeat(spread[first:last], sizes[first:last])
        between.add(here)
        differences.append(here)
        variance = variance * own / (variance + own)
    return mean, variance, differences


def _runs(sizes: NDArray[np.int64]) -> Iterator[tuple[int, int, slice]]:
    """Runs of tables of not too many cells: the first and the last table, and their cells."""
    ends = np.concatenate([[0], np.cumsum(sizes)])
    starts = np.unique(np.append(np.searchsorted(ends, np.arange(0, ends[-1], _AT_ONCE)), sizes.size))
    for first, last in pairwise(starts.tolist()):
        yield first, last, slice(int(ends[first]), int(ends[last]))


def _by_table(differences: Sequence[NDArray[np.float64]], cells: Cells) -> NDArray[np.float64]:
    if not differences:
        return np.zeros((2, 0))
    squares = np.zeros(cells.n_pairs)
    for z in differences:
        for first, last, run in _runs(cells.pair_sizes):
            squares[first:last] += np.add.reduceat(z[run] ** 2, cells.pair_offsets[first:last] - run.start)
    return np.array([squares, len(differences) * cells.pair_sizes])


def _contrasts(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal contrasts of the rows of an array: Helmert's, shape (rows - 1, columns)."""
    k = np.arange(1, len(values))[:, None]
    means = np.cumsum(values[:-1], axis=0) / k
    return np.asarray((values[1:] - means) * np.sqrt(k / (k + 1)))


def _recursive(values: NDArray[np.float64], variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Recursive residuals along the columns, which measure the same with these variances, shape (rows, columns - 1)."""
    weights = 1 / variances
    upto = np.cumsum(weights)[:-1]
    # Around the first column: counts may be so large that sums of them lose the noise.
    moved = values - values[:, :1]
    means = np.cumsum(moved[:, :-1] * weights[:-1], axis=1) / upto
    return np.asarray((moved[:, 1:] - means) * (variances[1:] + 1 / upto) ** -0.5)


def _of_attribute(
    attribute: int,
    cells: Cells,
    implied: NDArray[np.float64],
    one_way: NDArray[np.float64],
    one_way_variance: NDArray[np.float64],
    variance: NDArray[np.float64],
    found: Residuals,
) -> None:
    """Residuals of one attribute's margins, and of its one-way table, which is measured last."""
    levels = cells.levels(attribute)
    others = np.delete(np.arange(cells.n_attributes), attribute)
    if not others.size or cells.sizes[attribute] < 2:
        return
    first, second = np.minimum(others, attribute), np.maximum(others, attribute)
    tables = first * (2 * cells.n_attributes - first - 1) // 2 + second - first - 1
    seen = np.column_stack([implied[levels][:, others], one_way[levels]])
    spread = np.append(cells.sizes[others] * variance[tables], one_way_variance[attribute])
    z = _recursive(_contrasts(seen), spread)
    found.margins.add(z[:, :-1])
    found.direct.add(z[:, -1])
    found.attributes[:, attribute] = float(np.square(z).sum()), z.size


def _totals(
    stages: Sequence[NoisyTables],
    cells: Cells,
    one_way: NDArray[np.float64],
    one_way_variance: NDArray[np.float64],
    pairs: NDArray[np.float64],
    variance: NDArray[np.float64],
    smear: np.random.Generator,
) -> tuple[Squares, Squares]:
    """The sums of all tables against the public number of rows, or against each other and against measured totals.

    Those of two-way tables, and those of one-way tables with the measured totals.
    """
    sums, spread = [], []
    if pairs.size:
        sums.append(np.add.reduceat(pairs, cells.pair_offsets[:-1]))
        spread.append(variance * cells.pair_sizes)
    if one_way.size:
        sums.append(np.add.reduceat(one_way, cells.offsets[:-1]))
        spread.append(one_way_variance * cells.sizes)
    for tables in stages:
        if tables.total is not None and tables.plan.total is not None:
            sums.append(np.array([tables.total + math.sqrt(SMEAR) * smear.standard_normal()]))
            spread.append(_variances(tables.mechanism, np.array([tables.plan.total])))
    seen, variances = np.concatenate(sums), np.concatenate(spread)
    two_way, others = Squares(), Squares()
    n_rows = stages[0].n_rows
    # Without a public number the first sum is what the others are compared with.
    z = _recursive(seen[None, :], variances)[0] if n_rows is None else (seen - n_rows) * variances**-0.5
    first = max(variance.size - (n_rows is None), 0)
    two_way.add(z[:first])
    others.add(z[first:])
    return two_way, others


def _over_grid(grid: Grid, mechanism: Mechanism, smear: np.random.Generator, found: Squares) -> None:
    """Every cell against the sum of the cells that it is divided into, the last table first."""
    own = float(_variances(mechanism, np.array([grid.scale]))[0])
    below, variance = np.empty(0), np.empty(0)
    inner: NDArray[np.int64] | None = None
    for counts, edges in zip(reversed(grid.tables), reversed(grid.edges), strict=True):
        here = counts + math.sqrt(SMEAR) * smear.standard_normal(counts.size)
        if inner is None:
            below, variance, inner = here, np.full(here.size, own), edges
            continue
        parent = np.searchsorted(edges, inner[:-1], side="right") - 1
        added = np.bincount(parent, weights=below, minlength=here.size)
        spread = np.bincount(parent, weights=variance, minlength=here.size)
        found.add((here - added) * (own + spread) ** -0.5)
        below, variance, inner = (here * spread + added * own) / (own + spread), own * spread / (own + spread), edges


def _crossed(
    z: NDArray[np.float64],
    cells: Cells,
    one_way: NDArray[np.float64],
    one_way_variance: NDArray[np.float64],
    pairs: NDArray[np.float64],
    variance: NDArray[np.float64],
) -> float:
    """Standard normal unless the stages' difference depends on their mean, as it does when one stage's noise is stated
    too large and the other's too small, or the two are correlated.

    Sums along rows of z are independent of the pooled rows' distances R from the one-way counts. Given R, the sum of
    their products is normal with variance sum R^2, whatever R's law is.
    """
    first, second = cells.pairs
    heights, widths = cells.sizes[first], cells.sizes[second]
    rows = np.repeat(widths, heights)
    starts = np.concatenate([[0], np.cumsum(rows)[:-1]])
    within = np.arange(rows.size) - np.repeat(np.cumsum(heights) - heights, heights)
    level = np.repeat(cells.offsets[first], heights) + within
    apart = np.add.reduceat(pairs, starts) - one_way[level]
    apart /= np.sqrt(rows * np.repeat(variance, heights) + np.repeat(one_way_variance[first], heights))
    summed = np.add.reduceat(z, starts) / np.sqrt(rows)
    return float(summed @ apart / math.sqrt(max(float(apart @ apart), 1e-300)))


def _highest(
    cells: Cells,
    implied: NDArray[np.float64],
    one_way: NDArray[np.float64],
    one_way_variance: NDArray[np.float64],
    variance: NDArray[np.float64],
    stages: Sequence[NoisyTables],
    found: Residuals,
) -> None:
    """The largest margin above its one-way count, and a union bound on its chance."""
    attribute = cells.attribute_of_level
    spread = cells.symmetric(variance) * cells.sizes[None, :] + one_way_variance[:, None]
    above = (implied - one_way[:, None]) / np.sqrt(spread)[attribute]
    above[np.arange(cells.n_levels), attribute] = -np.inf
    at = np.unravel_index(np.argmax(above), above.shape)
    found.highest = float(above[at])
    compared = cells.n_levels * (cells.n_attributes - 1)
    if stages[0].mechanism == "gaussian":
        log_tail = float(log_ndtr(-found.highest))
    else:
        largest = max(float(tables.plan.scales.max()) for tables in stages)
        log_tail = _laplace_tail(found.highest, float(spread[attribute[at[0]], at[1]]), largest)
    found.highest_chance = min(1.0, compared * math.exp(min(log_tail, 0.0)))


def _laplace_tail(deviations: float, variance: float, scale: float) -> float:
    """A bound on the log of P(X > deviations sqrt(V)), X a sum of Laplace noise of at most this scale b, variance V.

    log E exp(s X) <= V s^2 where s <= 1 / (sqrt(2) b), since -log(1 - x) <= 2 x for x <= 1/2; the discrete law's is
    smaller still, and normal noise's is V s^2 / 2.
    """
    if deviations <= 0:
        return 0.0
    far = deviations * math.sqrt(variance)
    s = min(far / (2 * variance), 1 / (math.sqrt(2) * scale))
    return variance * s**2 - s * far


def squares_test(
    name: str, found: Squares, mechanism: Mechanism, *, both: bool, slack: float = 1.0, chosen: float = 0.0
) -> Iterator[NoiseTest]:
    """Whether squares of residuals are too small in all, or, of both sides, too large."""
    if found.freedom:
        seen = f"mean square {found.total / found.freedom:.6g} over {found.freedom:,} degrees of freedom"
        total, freedom = np.array([slack * found.total]), np.array([found.freedom])
        chance = float(_tails(total, freedom, mechanism, both=both, chosen=chosen)[0])
        yield NoiseTest(name=name, chance=chance, seen=seen, freedom=found.freedom, chosen=chosen)


def each_test(
    name: str, sums: NDArray[np.float64], mechanism: Mechanism, *, both: bool, scales: int = 1
) -> Iterator[NoiseTest]:
    """The least likely of many sums of squares, each at the one of so many `scales` that was chosen for it."""
    total, freedom = sums[:, sums[1] > 0]
    if total.size:
        chances = _tails(total, freedom, mechanism, both=both)
        worst = int(np.argmin(chances))
        seen = f"mean square {total[worst] / freedom[worst]:.4g} in the least likely of {total.size:,}"
        yield NoiseTest(name=name, chance=min(1.0, float(chances[worst]) * total.size * scales), seen=seen)


def _tails(
    total: NDArray[np.float64],
    freedom: NDArray[np.float64],
    mechanism: Mechanism,
    *,
    both: bool,
    chosen: float = 0.0,
) -> NDArray[np.float64]:
    """The chance of sums of squares that are as small, or, of both sides, as far out, `chosen` aside."""
    if mechanism == "gaussian":
        low = chdtr(freedom, total)
    else:
        low = gammainc(freedom / 2 / _LAPLACE_WIDTH, total / (2 * _LAPLACE_WIDTH))
    high = chdtrc(freedom, np.maximum(total - chosen, 0.0))
    return np.asarray(np.minimum(2 * np.minimum(low, high), 1.0) if both else low)


def _distribution(name: str, found: Squares, *, both: bool, moved: float = 0.0) -> Iterator[NoiseTest]:
    """The law of residuals against the normal: P(distance > e) <= 2 exp(-2 N e^2), half of it on one side.

    A distance of `moved` is no sign of anything.

    (Dvoretzky, Kiefer and Wolfowitz 1956, Massart 1990.) Unless `both`, of |z|, and only where too many are small.
    """
    if not found.freedom:
        return
    share, even = np.cumsum(found.bins) / found.freedom, np.arange(1, _BINS + 1) / _BINS
    if both:
        distance = float(np.abs(share - even).max())
    else:
        half = _BINS // 2
        inner = found.bins[half:] + found.bins[:half][::-1]
        distance = max(float((np.cumsum(inner) / found.freedom - np.arange(1, half + 1) / half).max()), 0.0)
    chance = min(1.0, (2 if both else 1) * math.exp(-2 * found.freedom * max(distance - moved, 0.0) ** 2))
    yield NoiseTest(name=name, chance=chance, seen=f"distance {distance:.4g} of {found.freedom:,} residuals")


def _residues(stages: Sequence[NoisyTables], grids: Sequence[Grid]) -> Iterator[NoiseTest]:
    """Noise makes every remainder equally likely, whatever the counts are: parity, and remainders by a few others.

    The remainders by q of noise with characteristic function phi are even but for phi(2 pi j / q). Tables are taken
    whose noise is so wide that this could not be seen.
    """
    for q in _MODULI:
        counts = np.zeros(q, dtype=np.int64)
        for tables in stages:
            one_way, two_way = tables.plan.sizes(tables.cells)
            for values, scales, sizes in (
                (tables.one_way, tables.plan.one_way, one_way),
                (tables.pairs, tables.plan.pairs, two_way),
                (tables.trios, tables.plan.trios, np.ones(tables.plan.trios.size, dtype=np.int64)),
            ):
                wide = _uneven(tables.mechanism, scales, q) ** 2 * sizes.sum() < 1e-3 if scales.size else np.empty(0)
                if not wide.size or not wide.any():
                    continue
                for first, last, run in _runs(sizes):
                    taken = values[run]
                    if not wide[first:last].all():
                        taken = taken[np.repeat(wide[first:last], sizes[first:last])]
                    counts += np.bincount(taken % q, minlength=q)
        for grid in grids:
            for table in grid.tables:
                if _uneven("gaussian", np.array([grid.scale]), q)[0] ** 2 * table.size < 1e-3:
                    counts += np.bincount(table % q, minlength=q)
        n = int(counts.sum())
        if n == 0:
            continue
        if q == 2:
            chance = min(1.0, 2 * float(bdtr(int(counts.min()), n, 0.5)))
            yield NoiseTest(name="parity", chance=chance, seen=f"{counts[1] / n:.2%} odd of {n:,}")
        elif n >= 1000 * q:
            far = float(np.sum((counts - n / q) ** 2) / (n / q))
            seen = f"chi-square {far:.1f} with {q - 1} degrees of freedom"
            yield NoiseTest(name=f"remainders by {q}", chance=float(chdtrc(q - 1, far)), seen=seen)


def _uneven(mechanism: Mechanism, scales: NDArray[np.float64], q: int) -> NDArray[np.float64]:
    """How far from even remainders by q can be: the characteristic function at 2 pi / q."""
    turn = 2 * math.pi / q
    if mechanism == "gaussian":
        return np.asarray(2 * np.exp(-(scales**2) * turn**2 / 2))
    # (1 - p)^2 / (1 - 2 p cos t + p^2) with p = exp(-1/b).
    return np.asarray(1 / (1 + (1 - math.cos(turn)) / (np.cosh(1 / scales) - 1)))
