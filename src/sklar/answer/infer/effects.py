"""What was measured, as independent pieces: the effects of sets of attributes, each with its known noise.

A noisy table over the attributes S is white noise on top of exact counts. Summed over all of S but U, and centered
along every axis of U, it speaks of the effect of U alone: a margin's contrasts, a pair's interaction. Projections on
different effects are orthogonal, so their noises are independent, whichever tables they come from; and the same effect
seen in several tables is averaged by inverse variance. Wider tables would need no other code.

A functional is a sum of functions of tables, <g_S, P_S> over sets S with P the shares of rows. Its part on the effect
of U is the mean of g_S over S without U, centered along every axis of U. So its variance is a sum over effects of
variance times squared norm.

Three-way tables over coarse levels add effects of their own: a function of coarse levels is its part that is centered
along all three axes, which that table alone speaks of, and functions of pairs, which are known from all tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import Measured
from sklar.fitting.margins import estimate_rows
from sklar.kernel.cells import Cells
from sklar.kernel.tables import noise_variance

Floats = NDArray[np.float64]
# Attributes, ascending, by their place in the measured schema.
Subset: TypeAlias = tuple[int, ...]
# Functions of the levels of sets of attributes, shape (q, levels of the first, levels of the second, ...): q at a time.
Functional: TypeAlias = Mapping[Subset, Floats]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """A noisy table: its attributes, its counts with one axis for each, and the variance of the noise on a cell.

    One that is `alone` speaks of the effect of all its attributes together, and of no smaller set: a parity.
    """

    attributes: Subset
    counts: Floats
    variance: float
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Effect:
    """The pooled effect of a set of attributes, in shares of rows, centered along every axis; and its variance.

    Its noise is that of white noise of this variance on the cells, centered likewise.
    """

    values: Floats
    variance: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coarse:
    """The effect of three attributes over coarse levels, like `Effect`; `levels` gives each level's coarse one."""

    values: Floats
    variance: float
    levels: tuple[NDArray[np.int64], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Effects:
    """All effects that were measured of the attributes `where`, by set of attributes; those of coarse levels apart.

    `n_rows` is the number of rows, `n_rows_variance` the variance of its noise: 0 where it is public. The noise of
    totals is independent of that of effects.
    """

    where: Subset
    sizes: tuple[int, ...]
    by_set: Mapping[Subset, Effect]
    n_rows: int
    n_rows_variance: float
    coarse: Mapping[Subset, Coarse] = field(default_factory=dict)

    def size_of(self, attribute: int) -> int:
        """The number of levels of one of the attributes."""
        return self.sizes[self.where.index(attribute)]

    def widest(self) -> list[Subset]:
        """The sets that were measured and that no larger measured set holds."""
        return [one for one in self.by_set if not any(set(one) < set(other) for other in self.by_set)]


def tables_of(measured: Measured, where: Sequence[int]) -> Iterator[Table]:
    """The noisy tables of every stage that hold at least one of these attributes."""
    cells = measured.schema.cells
    pairs = sorted({(min(i, j), max(i, j)) for i in where for j in range(cells.n_attributes) if i != j})
    if measured.stages[0].plan.parities is not None:
        yield from _parities(measured, where)
        return
    for tables in measured.stages:
        plan = tables.plan
        if plan.one_way.size:
            variances = noise_variance(tables.mechanism, plan.one_way)
            for i in where:
                counts = tables.one_way[cells.levels(i)].astype(np.float64)
                yield Table(attributes=(i,), counts=counts, variance=float(variances[i]))
        if plan.pairs.size:
            numbers = np.array([cells.pair(i, j) for i, j in pairs], dtype=np.int64)
            variances = noise_variance(tables.mechanism, plan.pairs[numbers])
            for (i, j), variance in zip(pairs, variances.tolist(), strict=True):
                counts = cells.table(tables.pairs, i, j).astype(np.float64)
                yield Table(attributes=(i, j), counts=counts, variance=variance)


def _parities(measured: Measured, where: Sequence[int]) -> Iterator[Table]:
    """The parities of these attributes, of their pairs and triples, as tables that hold nothing but their effect.

    With X rows of an odd sum of k bits, every cell of the effect is (n - 2 X) / 2^k, up to its sign. White noise of
    variance v on 2^k cells, centered along all axes, has the variance v / 2^k in a cell: v is 4 / 2^k times that of X,
    and, where n is measured, 1 / 2^k times that of n.
    """
    cells = measured.schema.cells
    n, rows_variance = rows_of(measured)
    triples = {trio: at for at, trio in enumerate(zip(*(each.tolist() for each in cells.trios), strict=True))}
    for tables in measured.stages:
        plan = tables.plan
        for subset in subsets(sorted(where)):
            if len(subset) == 1:
                odd, scales, at = tables.one_way, plan.one_way, subset[0]
            elif len(subset) == 2:
                odd, scales, at = tables.pairs.astype(np.int64), plan.pairs, cells.pair(*subset)
            elif len(subset) == 3 and plan.trios.size:
                odd, scales, at = tables.trios, plan.trios, triples[subset]
            else:
                continue
            sign = (-1.0) ** np.indices((2,) * len(subset)).sum(axis=0)
            variance = (4 * float(scales[at]) ** 2 + rows_variance) / sign.size
            counts = sign * (n - 2 * float(odd[at])) / sign.size
            yield Table(attributes=subset, counts=counts, variance=variance, alone=True)


def pool_effects(measured: Measured, where: Sequence[int]) -> Effects:
    """The effects of all sets of these attributes that some table holds, averaged over tables and stages."""
    cells, chosen = measured.schema.cells, tuple(sorted(where))
    n, variance = rows_of(measured)
    by_set = pool_tables(tables_of(measured, chosen), chosen, n)
    sizes = tuple(int(cells.sizes[i]) for i in chosen)
    return Effects(
        where=chosen,
        sizes=sizes,
        by_set=by_set,
        n_rows=n,
        n_rows_variance=variance,
        coarse=_coarse_effects(measured, chosen, n),
    )


def _coarse_effects(measured: Measured, where: Subset, n_rows: int) -> dict[Subset, Coarse]:
    """The effects of the three-way tables whose attributes are all among these; finer ones are known where given."""
    noisy = measured.triples
    if noisy is None:
        return {}
    cells, triples = measured.schema.cells, noisy.triples
    variances = noise_variance(measured.certificate.mechanism, noisy.scales)
    found = {}
    for at, row in enumerate(triples.attributes.tolist()):
        if set(row) <= set(where):
            counts = noisy.counts[triples.offsets[at] : triples.offsets[at + 1]].reshape(triples.shapes[at])
            found[tuple(row)] = Coarse(
                values=centered(counts / n_rows, 3),
                variance=float(variances[at]) / n_rows**2,
                levels=tuple(triples.coarse[cells.levels(i)] for i in row),
            )
    return found


def split_coarse(functional: Functional, coarse: Mapping[Subset, Coarse]) -> tuple[Functional, Functional]:
    """Functions of coarse levels as their centered parts, and as functions of the levels of smaller sets."""
    tops: dict[Subset, Floats] = {}
    rest: dict[Subset, Floats] = {}
    for attributes, function in functional.items():
        for subset in subsets(attributes):
            others = tuple(1 + axis for axis, i in enumerate(attributes) if i not in subset)
            part = centered(function.mean(axis=others) if others else function, len(subset))
            if len(subset) == len(attributes):
                tops[attributes] = part
                continue
            for axis, i in enumerate(subset):
                part = np.take(part, coarse[attributes].levels[attributes.index(i)], axis=1 + axis)
            rest[subset] = rest[subset] + part if subset in rest else part
    return tops, rest


def pool_tables(tables: Iterable[Table], where: Subset, n_rows: int) -> dict[Subset, Effect]:
    """The effects of all sets of some attributes that some of these tables holds.

    A table's counts may have further axes before those of its attributes; effects then have them too.
    """
    sums: dict[Subset, Floats] = {}
    precisions: dict[Subset, float] = {}
    for table in tables:
        order = len(table.attributes)
        for subset in [table.attributes] if table.alone else subsets([i for i in table.attributes if i in where]):
            others = tuple(axis - order for axis, i in enumerate(table.attributes) if i not in subset)
            summed = int(np.prod([table.counts.shape[axis] for axis in others], dtype=np.int64))
            precision = 1 / (summed * table.variance)
            effect = centered(table.counts.sum(axis=others) if others else table.counts, len(subset))
            sums[subset] = sums.get(subset, 0.0) + precision * effect
            precisions[subset] = precisions.get(subset, 0.0) + precision
    return {
        subset: Effect(values=sums[subset] / (precision * n_rows), variance=1 / (precision * n_rows**2))
        for subset, precision in sorted(precisions.items(), key=lambda item: (len(item[0]), item[0]))
    }


def rows_of(measured: Measured) -> tuple[int, float]:
    """The number of rows, and the variance of its noise: 0 where it is public."""
    n = estimate_rows(measured.stages)
    if measured.n_rows is not None:
        return n, 0.0
    precision = 0.0
    for tables in measured.stages:
        cells, plan = tables.cells, tables.plan
        # As many cells as a total is a sum of.
        summed = [np.ones(0 if plan.total is None else 1, dtype=np.int64)]
        if plan.parities is None:
            summed += [cells.sizes] if plan.one_way.size else []
            summed += [cells.pair_sizes] if plan.pairs.size else []
        sizes = np.concatenate(summed)
        precision += float(np.sum(1 / (sizes * tables.variances(plan.scales[: sizes.size]))))
    return n, 1 / precision


def misfit(measured: Measured, where: Sequence[int]) -> float:
    """By how many standard errors the totals of these attributes' own tables differ from the public rows at most.

    Where every row has a level of every attribute that is noise, about 0 to 3.
    """
    if measured.n_rows is None:
        return 0.0
    cells: Cells = measured.schema.cells
    worst = 0.0
    for tables in measured.stages:
        if tables.plan.one_way.size and tables.plan.parities is None:
            for i in where:
                counts = tables.one_way[cells.levels(i)]
                sd = float(np.sqrt(counts.size * tables.variances(tables.plan.one_way[i : i + 1])[0]))
                worst = max(worst, abs(float(counts.sum()) - measured.n_rows) / sd)
    return worst


def subsets(attributes: Sequence[int]) -> list[Subset]:
    """All sets of some of these attributes, without the empty one.

    >>> subsets([0, 2])
    [(0,), (2,), (0, 2)]
    """
    return [part for size in range(1, len(attributes) + 1) for part in combinations(attributes, size)]


def centered(array: Floats, axes: int) -> Floats:
    """The array less its means along each of its last axes.

    >>> centered(np.array([[1.0, 2.0], [3.0, 6.0]]), 2).tolist()
    [[0.5, -0.5], [-0.5, 0.5]]
    """
    for axis in range(array.ndim - axes, array.ndim):
        array = array - array.mean(axis=axis, keepdims=True)
    return array


def parts(functional: Functional) -> dict[Subset, Floats]:
    """What a functional says of every effect, shape (q, levels ...): means over other attributes, centered."""
    found: dict[Subset, Floats] = {}
    for attributes, function in functional.items():
        for subset in subsets(attributes):
            others = tuple(1 + axis for axis, i in enumerate(attributes) if i not in subset)
            part = centered(function.mean(axis=others) if others else function, len(subset))
            found[subset] = found[subset] + part if subset in found else part
    return found


def applied(coefficients: Functional, values: Mapping[Subset, Floats]) -> Floats:
    """The sum over effects of coefficients times values, shape (q,)."""
    terms = [part.reshape(len(part), -1) @ values[subset].ravel() for subset, part in coefficients.items()]
    return np.asarray(np.sum(terms, axis=0))


def noise_covariance(coefficients: Functional, effects: Effects, tops: Functional | None = None) -> Floats:
    """The covariance that noise alone gives to functionals with these coefficients, shape (q, q).

    `tops` are those of effects over coarse levels.
    Where the number of rows n is measured, its relative error moves all shares alike.
    """
    known: list[tuple[Floats, Effect | Coarse]] = [(part, effects.by_set[each]) for each, part in coefficients.items()]
    known += [(part, effects.coarse[each]) for each, part in (tops or {}).items()]
    size = len(known[0][0])
    covariance, linear = np.zeros((size, size)), np.zeros(size)
    for part, effect in known:
        flat = part.reshape(size, -1)
        covariance += effect.variance * (flat @ flat.T)
        linear += flat @ effect.values.ravel()
    if effects.n_rows_variance:
        covariance += np.outer(linear, linear) * effects.n_rows_variance / effects.n_rows**2
    return covariance


def joined(functionals: Iterable[Functional]) -> dict[Subset, Floats]:
    """The sum of functionals."""
    found: dict[Subset, Floats] = {}
    for functional in functionals:
        for subset, function in functional.items():
            found[subset] = found[subset] + function if subset in found else function
    return found
