"""Whether the noise of a model file is the noise that it states: the same counts are seen many times. The derivation:
docs/derivations.md.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, chdtrc, gammainc, gammaincinv, log_ndtr, ndtr

from sklar.budget.certificate import Measured, tokens_of
from sklar.budget.plan import INSIDE, STEPS, sides_of
from sklar.fitting.margins import implied_counts, table_runs
from sklar.kernel.cells import Cells, Doubles, Ints
from sklar.kernel.queries import Block, Distances, Parities, Shares, Tables
from sklar.kernel.theorems import Mechanism, noise_variance
from sklar.machine.spill import room_for
from sklar.public.schema import Schema

FALSE_ALARM = 1e-6
TESTS = 30
LEVEL = FALSE_ALARM / TESTS
SMEAR = 4.0
# Of scales below 1: how far the law of smeared noise is from normal, and the root of how much its bound is above its
# variance.
_ROUGH, _ABOVE = 2e-4, 1.011
POWER = 0.99
ALL = "all residuals"
_STAGES = "between stages"
_MARGINS, _DIRECT = "margins of two-way tables", "one-way tables against margins"
_TOTALS, _ONE_WAY_TOTALS = "totals of two-way tables", "totals of one-way tables"
# Each order has residuals of its own: those of two orders would see the same two-way noise twice.
_SEARCHES, _WIDER = "tables of searches", {3: "margins of three-way tables", 4: "margins of four-way tables"}
_MOMENTS, SIDES_TOGETHER = "first moments inside bins", "tables of rows"
_SCORES = {3: "scores of three-way tables", 4: "scores of four-way tables"}
_EACH_PAIR, _PLACES = "each two-way table between stages", "the same place of all tables between stages"
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

    `freedom` is the number of independent residuals, where squares were added up, `chosen` what the choice of scales
    may add to the sum, and `hidden` the mean square that exact counts would have, by what the verifier adds.
    """

    name: str
    chance: float
    seen: str
    freedom: int = 0
    chosen: float = 0.0
    hidden: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether genuine noise is at all likely to look like this."""
        return self.chance >= LEVEL


@dataclass(slots=True)
class Squares:
    """Squares of residuals of one kind, added up, with the distribution of the residuals in bins."""

    total: float = 0.0
    freedom: int = 0
    bins: Ints = field(default_factory=lambda: np.zeros(_BINS, dtype=np.int64))

    def add(self, z: Doubles) -> None:
        """Count these residuals in."""
        for start in range(0, z.size, _AT_ONCE):
            part = z.ravel()[start : start + _AT_ONCE]
            self.total += float(part @ part)
            self.bins += np.bincount(np.minimum((ndtr(part) * _BINS).astype(np.int64), _BINS - 1), minlength=_BINS)
        self.freedom += z.size

    def __add__(self, other: Squares) -> Squares:
        return Squares(self.total + other.total, self.freedom + other.freedom, self.bins + other.bins)


class Grid(NamedTuple):
    """The noisy tables of a search for one attribute's numbers, the first one first, with the edges of their cells."""

    tables: tuple[Ints, ...]
    edges: tuple[Ints, ...]
    scale: float


def examine(
    blocks: Sequence[Block], schema: Schema, mechanism: Mechanism, n_rows: int | None, grids: Sequence[Grid] = ()
) -> list[NoiseTest]:
    """All tests of the noise of one file; none where nothing in it was seen twice."""
    normal = mechanism == "gaussian"
    # Too much noise can be told from missing rows where the schema gives every value a level.
    complete = normal and all(each.missing is not None or each.other for each in schema.attributes)
    residuals = NoiseResiduals(blocks, schema.cells, mechanism, n_rows, grids)
    stages = residuals.squares[_STAGES]
    tests = [
        replace(test, hidden=_hidden(blocks, schema.cells, mechanism, n_rows))
        for test in _squares_test(ALL, residuals.together, mechanism, both=False, chosen=residuals.chosen)
    ]
    tests += _squares_test(_STAGES, stages, mechanism, both=normal, chosen=residuals.chosen)
    tests += _squares_test(_PLACES, residuals.squares[_PLACES], mechanism, both=normal)
    tests += _squares_test(_MOMENTS, residuals.squares[_MOMENTS], mechanism, both=normal)
    for name in (_MARGINS, _DIRECT, _TOTALS, _ONE_WAY_TOTALS, *_WIDER.values()):
        tests += _squares_test(name, residuals.squares[name], mechanism, both=complete)
    tests += _squares_test(_SEARCHES, residuals.squares[_SEARCHES], mechanism, both=False, slack=_CHOSEN)
    for name in _SCORES.values():
        tests += _squares_test(name, residuals.squares[name], mechanism, both=False)
    for name, sums in residuals.each.items():
        between = name == _EACH_PAIR
        tests += _each_test(name, sums, mechanism, both=normal and between, scales=residuals.scales if between else 1)
    if not math.isinf(residuals.highest[0]):
        seen, chance = f"{residuals.highest[0]:.2f} standard deviations", residuals.highest[1]
        tests.append(NoiseTest(name="largest margin above its one-way count", chance=chance, seen=seen))
    tests += _residues(blocks, mechanism)
    if normal:
        moved = _ROUGH + _MOVED * 2 * residuals.chosen / max(stages.freedom, 1)
        tests += _distribution("distribution between stages", stages, both=True, moved=moved)
        margins = residuals.squares[_MARGINS] + residuals.squares[_DIRECT]
        tests += _distribution("distribution of margins", margins, both=complete, moved=_ROUGH)
    if not math.isnan(residuals.across):
        chance, seen = 2 * float(ndtr(-abs(residuals.across))), f"z = {residuals.across:.2f}"
        tests.append(NoiseTest(name="covariance between stages", chance=chance, seen=seen))
    return tests


def visible(freedom: int, mechanism: Mechanism, chosen: float = 0.0, hidden: float = 0.0) -> float:
    """The largest share of the stated noise that so many degrees of freedom show to be too small, if all of it is.

    99 times in 100: where noise has a share r of the stated standard deviation, the sum of squares is h + r^2 (1 - h)
    times a chi-square, with h = `hidden` (`NoiseTest`), and is found when that lies below the quantile of `LEVEL`. The
    choice of scales may add `chosen` to it.
    """
    shape = freedom / 2 / (1.0 if mechanism == "gaussian" else _LAPLACE_WIDTH)
    if not freedom or hidden >= 1:
        return 0.0
    square = float(gammaincinv(shape, LEVEL) / gammaincinv(shape, POWER)) / (1 + chosen / freedom)
    return math.sqrt(max(square - hidden, 0.0) / (1 - hidden))


def unseen(blocks: Sequence[Block]) -> Iterator[str]:
    """What the tests cannot see but for its remainders, by name: nothing else in the file shows the same counts."""
    tables = [block.query for block in blocks if isinstance(block.query, Tables) and not block.query.about]
    parities = [block.query for block in blocks if isinstance(block.query, Parities)]
    looks = [query for query in tables if query.order == 2 and query.sets is None]
    if not parities and not any(query.cells.n_pairs for query in looks):
        yield "the cells of the one-way table, beyond their total"
    if len(looks) == 1 and looks[0].cells.n_pairs:
        yield "interactions in two-way tables, which were measured once"
    for order in sorted({query.order for query in tables if query.order > 2}):
        yield f"interactions in {'three' if order == 3 else 'four'}-way tables"
    if len(parities) == 1:
        yield "parities, which were measured once"
    if any(isinstance(block.query, Distances) for block in blocks):
        yield "what scores of larger tables say, beyond too little noise"


def _hidden(blocks: Sequence[Block], cells: Cells, mechanism: Mechanism, n_rows: int | None) -> float:
    """The mean square of all residuals of exact counts: a bound where that is little, else from tables of zeros."""
    least = min(float(block.scales.min(initial=np.inf)) for block in blocks)
    bound = SMEAR / (float(noise_variance(mechanism, np.array([least]))[0]) + SMEAR)
    if bound < 0.05:
        return bound
    zeros = [replace(block, values=np.zeros_like(block.values)) for block in blocks]
    found = NoiseResiduals(zeros, cells, mechanism, None if n_rows is None else 0, ()).together
    return found.total / max(found.freedom, 1)


def examine_sides(measured: Measured) -> tuple[list[NoiseTest], Sequence[str]]:
    """Tests of the sides of linked tables: what they say of the same steps, or people; and what they cannot see."""
    if measured.tree is None:
        return [], ()
    smear, n = _public_noise(measured.blocks), measured.n_rows
    held = {block.query.what: block for block in measured.blocks if isinstance(block.query, Shares)}
    seen: dict[tuple[str, str | int], list[tuple[Doubles, float]]] = defaultdict(list)
    for side in sides_of(measured.tree):
        block, name = held[side.what], side.of.name
        variance = float(_variance("gaussian", block.scales)[0])
        values = block.values + math.sqrt(SMEAR) * smear.standard_normal(block.values.size)
        if side.kind == "number" and n is not None:
            seen[name, "people"] += [(np.array([float(n * tokens_of([block]))]), 1e-9)]
            seen[name, "people"] += [(values.sum(keepdims=True), variance * values.size)]
        elif side.kind in STEPS:
            seen[name, "steps"].append((values.sum(keepdims=True), variance * values.size))
            axes, shape = side.tables[0]
            for place, axis in enumerate(axes):
                # An attribute of a step is that of the row before, or of the next one.
                shaped = np.moveaxis(values.reshape(shape), place, 0)
                summed = shaped.reshape(len(shaped), -1).sum(axis=1)
                seen[name, place if axis >= 0 else axis].append((summed, variance * values.size / len(shaped)))
    squares, each = Squares(), []
    for (_, what), columns in seen.items():
        found, variances = np.column_stack([one for one, _ in columns]), np.array([own for _, own in columns])
        z = _recursive(found if isinstance(what, str) else _contrasts(found, [0]), variances)
        squares.add(z)
        each.append((float(np.square(z).sum()), z.size))
    if not each:
        return [], ("tables beside the joint one",)
    tests = [*_squares_test(SIDES_TOGETHER, squares, "gaussian", both=False)]
    tests += _each_test(f"each of the {SIDES_TOGETHER}", np.array(each).T, "gaussian", both=False, scales=1)
    return tests, ("numbers of rows one by one, two rows of a person and pairs in steps",)


class NoiseResiduals:
    """Residuals of all measurements of a file that see the same counts, by what they compare.

    `each` holds sums of squares and degrees of freedom of single tables or attributes, shape (2, tables), `highest` the
    largest margin above its count and its chance, `across` a covariance of stages. `chosen` is what the choice of
    scales may add to the sum of squares between stages, and `scales` how many there were to choose from.
    """

    def __init__(
        self, blocks: Sequence[Block], cells: Cells, mechanism: Mechanism, n_rows: int | None, grids: Sequence[Grid]
    ) -> None:
        self.squares: dict[str, Squares] = defaultdict(Squares)
        self.each: dict[str, Doubles] = {}
        self.highest, self.across = (-math.inf, 1.0), math.nan
        self.chosen, self.scales = 0.0, 1
        self._cells, self._mechanism, self._n_rows, self._smear = cells, mechanism, n_rows, _public_noise(blocks)
        self._variance = partial(_variance, mechanism)
        # By the order of tables; those of parities are below zero.
        looks: dict[int, list[Block]] = defaultdict(list)
        for block in blocks:
            query = block.query
            if isinstance(query, Parities):
                looks[-query.orders].append(block)
            elif isinstance(query, Tables) and query.sets is None and not query.about:
                looks[query.order].append(block)
            elif isinstance(query, Shares) and query.what == INSIDE:
                one, two = np.split(self._smeared(block.values), 2)
                variances = np.repeat(self._variance(block.scales), query.sizes).reshape(2, -1).sum(axis=0)
                self.squares[_MOMENTS].add((two - one) * variances**-0.5)
        # The mean of every cell over all looks at the tables of an order, and its variance in every table.
        self._pooled: dict[int, tuple[Doubles, Doubles]] = {}
        between = {order: self._pool(own, order) for order, own in looks.items()}
        self._over_totals()
        if 1 in self._pooled and 2 in self._pooled:
            implied = implied_counts(self._pooled[2][0], cells)
            # Of the margin of every attribute in its table with every other one.
            variance = cells.symmetric(self._pooled[2][1]) * cells.sizes
            each = [self._of_attribute(attribute, implied, variance) for attribute in range(cells.n_attributes)]
            self.each["each attribute's margins"] = np.array(each).T
            variance += self._pooled[1][1][:, None]
            implied -= self._pooled[1][0][:, None]
            implied /= np.sqrt(variance)[cells.attribute_of_level]
            if between[2] is not None:
                self.across = self._covariance(between[2], implied)
            largest = max(float(block.scales.max()) for own in looks.values() for block in own)
            self.highest = self._highest(implied, variance, largest)
            for block in blocks:
                if isinstance(block.query, Tables) and block.query.order in _WIDER:
                    self._of_wider(block, block.query)
        for grid in grids:
            self._over_grid(grid)
        for block in blocks:
            if isinstance(block.query, Distances):
                apart = _contrasts(self._smeared(block.values)[:, None], [0])
                self.squares[_SCORES[block.query.of.order]].add(apart * self._variance(block.scales) ** -0.5)

    @property
    def together(self) -> Squares:
        """All of them but those of searches and of larger tables: none is used twice."""
        names = (_STAGES, _MOMENTS, _MARGINS, _DIRECT, _TOTALS, _ONE_WAY_TOTALS)
        return sum((self.squares[name] for name in names), Squares())

    def _smeared(self, counts: NDArray[np.integer]) -> Doubles:
        here: Doubles = room_for(counts.size, np.float64)
        for start in range(0, counts.size, _AT_ONCE):
            self._smear.standard_normal(out=here[start : start + _AT_ONCE])
        here *= math.sqrt(SMEAR)
        here += counts
        return here

    def _pool(self, looks: Sequence[Block], order: int) -> Doubles | None:
        """Residuals of looks at one query, of which the second's are returned, and of tables of an order the mean."""
        first, *later = looks
        sizes, variance, mean = first.query.sizes, self._variance(first.scales), self._smeared(first.values)
        sums, difference = np.zeros(sizes.size), None
        for look in later:
            here, own = self._smeared(look.values), self._variance(look.scales)
            here -= mean
            step, spread = variance / (variance + own), (variance + own) ** -0.5
            for start, end, run in _runs(sizes):
                mean[run] += here[run] * np.repeat(step[start:end], sizes[start:end])
                here[run] *= np.repeat(spread[start:end], sizes[start:end])
                begins = np.cumsum(sizes[start:end]) - sizes[start:end]
                sums[start:end] += np.add.reduceat(here[run] ** 2, begins)
            self.squares[_STAGES].add(here)
            self.squares[_PLACES] += _same_places(here, sizes)
            difference = here if difference is None else difference
            variance = variance * own / (variance + own)
            ratio = look.scales / first.scales
            # Scales are rounded to single precision: where all tables have the same ratio, none was chosen for a table.
            if ratio.max() > ratio.min() * (1 + 1e-5):
                self.chosen += float(np.sqrt(sizes / 2).sum())
                self.scales = max(self.scales, np.unique(look.scales).size)
        if order >= 0:
            self._pooled[order] = mean, variance
        if order == 2 and difference is not None:
            self.each[_EACH_PAIR] = np.array([sums, len(later) * sizes])
        return difference

    def _covariance(self, z: Doubles, apart: Doubles) -> float:
        """Standard normal unless the stages' difference depends on their mean, as it does when one stage's noise is
        stated too large and the other's too small, or the two are correlated.

        Sums along rows of z are independent of the pooled rows' distances R from the one-way counts. Given R, the sum
        of their products is normal with variance sum R^2, whatever R's law is.
        """
        later = np.arange(self._cells.n_attributes) > self._cells.attribute_of_level[:, None]
        summed, rows = implied_counts(z, self._cells), apart[later]
        summed /= np.sqrt(self._cells.sizes)
        return float(summed[later] @ rows / math.sqrt(max(float(rows @ rows), 1e-300)))

    def _over_totals(self) -> None:
        """The sums of all tables against the public number of rows, or against each other and measured totals."""
        sums, spread = [], []
        for order in (2, 1, 0):
            if order in self._pooled:
                (mean, variance), sizes = self._pooled[order], Tables(cells=self._cells, order=order).sizes
                sums.append(np.add.reduceat(mean, np.cumsum(sizes) - sizes))
                spread.append(variance * sizes)
        if not sums:
            return
        seen, variances = np.concatenate(sums), np.concatenate(spread)
        # Without a public number the first sum is what the others are compared with.
        known = self._n_rows is not None
        z = (seen - self._n_rows) * variances**-0.5 if known else _recursive(seen[None, :], variances)[0]
        first = max((self._cells.n_pairs if 2 in self._pooled else 0) - (not known), 0)
        self.squares[_TOTALS].add(z[:first])
        self.squares[_ONE_WAY_TOTALS].add(z[first:])

    def _of_attribute(self, attribute: int, implied: Doubles, variance: Doubles) -> tuple[float, int]:
        """Residuals of one attribute's margins, and of its one-way table, which is measured last."""
        cells, (ones, one_variance) = self._cells, self._pooled[1]
        levels, others = cells.levels(attribute), np.delete(np.arange(cells.n_attributes), attribute)
        if not others.size or cells.sizes[attribute] < 2:
            return 0.0, 0
        seen = np.column_stack([implied[levels][:, others], ones[levels]])
        z = _recursive(_contrasts(seen, [0]), np.append(variance[attribute, others], one_variance[attribute]))
        self.squares[_MARGINS].add(z[:, :-1])
        self.squares[_DIRECT].add(z[:, -1])
        return float(np.square(z).sum()), z.size

    def _highest(self, apart: Doubles, variances: Doubles, scale: float) -> tuple[float, float]:
        """The largest margin above its one-way count, and a union bound on its chance.

        Of Laplace noise X of at most this scale b, with variance V: log E exp(s X) <= V s^2 where s <= 1 / (sqrt(2) b),
        since -log(1 - x) <= 2 x for x <= 1/2; the discrete law's is smaller still, and normal noise's is V s^2 / 2.
        """
        cells, attribute = self._cells, self._cells.attribute_of_level
        apart[np.arange(cells.n_levels), attribute] = -np.inf
        level, other = np.unravel_index(np.argmax(apart), apart.shape)
        highest, variance = float(apart[level, other]) / _ABOVE, float(variances[attribute[level], other])
        log_tail = float(log_ndtr(-highest))
        if self._mechanism == "laplace":
            far = max(highest, 0.0) * math.sqrt(variance)
            s = min(far / (2 * variance), 1 / (math.sqrt(2) * scale))
            log_tail = variance * s**2 - s * far
        return highest, min(1.0, cells.n_levels * (cells.n_attributes - 1) * math.exp(min(log_tail, 0.0)))

    def _of_wider(self, block: Block, query: Tables) -> None:
        """Residuals of the one-way and two-way margins of larger tables."""
        best: dict[tuple[int, ...], tuple[Doubles, Doubles]] = {}
        sums = np.zeros((2, block.scales.size))
        for number, (counts, chosen) in enumerate(zip(block.by_scale(), query.members.tolist(), strict=True)):
            variance = float(self._variance(block.scales[number : number + 1])[0])
            table = self._smeared(counts).reshape(query.shapes[number])
            z = []
            if self._n_rows is not None:
                z.append(np.array([(table.sum() - self._n_rows) / math.sqrt(table.size * variance)]))
            axes = range(query.order)
            for kept in (*((axis,) for axis in axes), *combinations(axes, 2)):
                left = tuple(axis for axis in axes if axis not in kept)
                margin = _contrasts(table.sum(axis=left), range(len(kept))).ravel()
                attributes = tuple(chosen[axis] for axis in kept)
                # The best estimate so far, in contrasts, with its covariance.
                known, covariance = best.get(attributes) or self._coarse(attributes, query)
                both = covariance + variance * math.prod(table.shape[axis] for axis in left) * np.eye(margin.size)
                gain = np.linalg.solve(both, covariance).T
                best[attributes] = known + gain @ (margin - known), covariance - gain @ covariance
                z.append(np.linalg.solve(np.linalg.cholesky(both), margin - known))
            own = np.concatenate(z)
            self.squares[_WIDER[query.order]].add(own)
            sums[:, number] = float(own @ own), own.size
        self.each[f"each of the {_WIDER[query.order]}"] = sums

    def _coarse(self, attributes: tuple[int, ...], query: Tables) -> tuple[Doubles, Doubles]:
        """What one-way or two-way tables say of contrasts of coarse cells, with the covariance of that."""
        cells, (mean, variance), rows = query.cells, self._pooled[len(attributes)], []
        for own in map(cells.levels, attributes):
            coarse = np.arange(own.stop - own.start) if query.coarse is None else query.coarse[own]
            rows.append(_contrasts((coarse == np.arange(coarse.max() + 1)[:, None]).astype(np.float64), [0]))
        table, number = mean[cells.levels(attributes[0])][:, None], attributes[0]
        if len(attributes) == 2:
            table, number = cells.table(mean, *attributes), cells.pair(*attributes)
        one, two, *_ = *rows, np.ones((1, 1))
        return (one @ table @ two.T).ravel(), variance[number] * np.kron(one @ one.T, two @ two.T)

    def _over_grid(self, grid: Grid) -> None:
        """Every cell against the sum of the cells that it is divided into, the last table first."""
        own = float(self._variance(np.array([grid.scale]))[0])
        below, inner = self._smeared(grid.tables[-1]), grid.edges[-1]
        variance = np.full(below.size, own)
        for counts, edges in zip(grid.tables[-2::-1], grid.edges[-2::-1], strict=True):
            here = self._smeared(counts)
            parent = np.searchsorted(edges, inner[:-1], side="right") - 1
            added = np.bincount(parent, weights=below, minlength=here.size)
            spread = np.bincount(parent, weights=variance, minlength=here.size)
            self.squares[_SEARCHES].add((here - added) * (own + spread) ** -0.5)
            below, variance = (here * spread + added * own) / (own + spread), own * spread / (own + spread)
            inner = edges


def _public_noise(blocks: Sequence[Block]) -> np.random.Generator:
    """Public randomness that no forger of a file can choose apart from its tables."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(np.ascontiguousarray(block.values).data)
    return np.random.Generator(np.random.SFC64(np.frombuffer(digest.digest(), dtype=np.uint32)))


def _variance(mechanism: Mechanism, scales: Doubles) -> Doubles:
    """The variance of noise and smear: of Gaussian noise below scale 1, added up, since sigma^2 is only a bound."""
    variance = noise_variance(mechanism, scales)
    if mechanism == "gaussian" and (small := scales < 1).any():
        k = np.arange(1, 12)
        weights = np.exp(-(k**2) / (2 * np.maximum(scales[small], 0.01)[:, None] ** 2))
        variance = variance.copy()
        variance[small] = 2 * weights @ k**2.0 / (1 + 2 * weights.sum(axis=1))
    return np.asarray(variance + SMEAR)


def _runs(sizes: Ints) -> Iterator[tuple[int, int, slice]]:
    """Runs of tables of not too many cells: the first and the last table, and their cells."""
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return ((first, last, slice(ends[first], ends[last])) for first, last in table_runs(ends))


def _same_places(z: Doubles, sizes: Ints) -> Squares:
    """Sums of residuals at the same place of all tables: as any residual, unless tables share noise or cancel."""
    sums, times = np.zeros((2, int(sizes.max(initial=0))))
    for first, last, run in _runs(sizes):
        own = sizes[first:last]
        place = np.arange(own.sum()) - np.repeat(np.cumsum(own) - own, own)
        sums += np.bincount(place, z[run], minlength=sums.size)
        times += np.bincount(place, minlength=sums.size)
    squares = Squares()
    squares.add((sums / np.sqrt(np.maximum(times, 1.0)))[times > 1])
    return squares


def _contrasts(table: Doubles, axes: Sequence[int]) -> Doubles:
    """Orthonormal (Helmert) contrasts along these axes: what is left when sums along any of them are taken out."""
    for axis in axes:
        along = np.moveaxis(table, axis, 0)
        k = np.arange(1, len(along)).reshape(-1, *[1] * (table.ndim - 1))
        means = np.cumsum(along[:-1], axis=0) / k
        table = np.moveaxis((along[1:] - means) * np.sqrt(k / (k + 1)), 0, axis)
    return np.asarray(table)


def _recursive(values: Doubles, variances: Doubles) -> Doubles:
    """Recursive residuals along the columns, which measure the same with these variances, shape (rows, columns - 1)."""
    weights = 1 / variances
    upto = np.cumsum(weights)[:-1]
    # Around the first column: counts may be so large that sums of them lose the noise.
    moved = values - values[:, :1]
    means = np.cumsum(moved[:, :-1] * weights[:-1], axis=1) / upto
    return np.asarray((moved[:, 1:] - means) * (variances[1:] + 1 / upto) ** -0.5)


def _squares_test(
    name: str, squares: Squares, mechanism: Mechanism, *, both: bool, slack: float = 1.0, chosen: float = 0.0
) -> Iterator[NoiseTest]:
    """Whether squares of residuals are too small in all, or, of both sides, too large."""
    if squares.freedom:
        seen = f"mean square {squares.total / squares.freedom:.6g} over {squares.freedom:,} degrees of freedom"
        total, freedom = np.array([slack * squares.total]), np.array([squares.freedom])
        chance = float(_tails(total, freedom, mechanism, both=both, chosen=chosen)[0])
        yield NoiseTest(name=name, chance=chance, seen=seen, freedom=squares.freedom, chosen=chosen)


def _each_test(name: str, sums: Doubles, mechanism: Mechanism, *, both: bool, scales: int) -> Iterator[NoiseTest]:
    """The least likely of many sums of squares, each at the one of so many `scales` that was chosen for it."""
    total, freedom = sums[:, sums[1] > 0]
    if total.size:
        chances = _tails(total, freedom, mechanism, both=both)
        worst = int(np.argmin(chances))
        seen = f"mean square {total[worst] / freedom[worst]:.4g} in the least likely of {total.size:,}"
        yield NoiseTest(name=name, chance=min(1.0, float(chances[worst]) * total.size * scales), seen=seen)


def _tails(total: Doubles, freedom: Doubles, mechanism: Mechanism, *, both: bool, chosen: float = 0.0) -> Doubles:
    """The chance of sums of squares that are as small, or, of both sides, as far out, `chosen` aside."""
    wide = 1.0 if mechanism == "gaussian" else _LAPLACE_WIDTH
    low = gammainc(freedom / 2 / wide, total / (2 * wide))
    high = chdtrc(freedom, np.maximum(total - chosen, 0.0))
    return np.asarray(np.minimum(2 * np.minimum(low, high), 1.0) if both else low)


def _distribution(name: str, squares: Squares, *, both: bool, moved: float = 0.0) -> Iterator[NoiseTest]:
    """The law of residuals against the normal: P(distance > e) <= 2 exp(-2 N e^2), half of it on one side.

    A distance of `moved` is no sign of anything.

    (Dvoretzky, Kiefer and Wolfowitz 1956, Massart 1990.) Unless `both`, of |z|, and only where too many are small.
    """
    if not squares.freedom:
        return
    share, even = np.cumsum(squares.bins) / squares.freedom, np.arange(1, _BINS + 1) / _BINS
    if both:
        distance = float(np.abs(share - even).max())
    else:
        half = _BINS // 2
        inner = squares.bins[half:] + squares.bins[:half][::-1]
        distance = max(float((np.cumsum(inner) / squares.freedom - np.arange(1, half + 1) / half).max()), 0.0)
    chance = min(1.0, (2 if both else 1) * math.exp(-2 * squares.freedom * max(distance - moved, 0.0) ** 2))
    yield NoiseTest(name=name, chance=chance, seen=f"distance {distance:.4g} of {squares.freedom:,} residuals")


def _residues(blocks: Sequence[Block], mechanism: Mechanism) -> Iterator[NoiseTest]:
    """Noise makes every remainder equally likely, whatever the counts are: parity, and remainders by a few others.

    The remainders by q of noise with characteristic function phi are even but for phi(2 pi j / q). Tables are taken
    whose noise is so wide that this could not be seen. Values that reached a threshold were chosen: they are left out.
    """
    for q in _MODULI:
        counts, turn = np.zeros(q, dtype=np.int64), 2 * math.pi / q
        for block in blocks:
            if block.keys is not None:
                continue
            sizes = block.query.sizes
            far = 2 * np.exp(-(block.scales**2) * turn**2 / 2)
            if mechanism == "laplace":
                # (1 - p)^2 / (1 - 2 p cos t + p^2) with p = exp(-1/b).
                far = 1 / (1 + (1 - math.cos(turn)) / (np.cosh(1 / block.scales) - 1))
            wide = far**2 * sizes.sum() < 1e-3
            for first, last, run in _runs(sizes) if wide.any() else ():
                taken = block.values[run]
                if not wide[first:last].all():
                    taken = taken[np.repeat(wide[first:last], sizes[first:last])]
                counts += np.bincount(taken % q, minlength=q)
        n = int(counts.sum())
        if n == 0:
            continue
        if q == 2:
            chance = min(1.0, 2 * float(bdtr(int(counts.min()), n, 0.5)))
            yield NoiseTest(name="parity", chance=chance, seen=f"{counts[1] / n:.2%} odd of {n:,}")
        elif n >= 1000 * q:
            square = float(np.sum((counts - n / q) ** 2) / (n / q))
            seen = f"chi-square {square:.1f} with {q - 1} degrees of freedom"
            yield NoiseTest(name=f"remainders by {q}", chance=float(chdtrc(q - 1, square)), seen=seen)
