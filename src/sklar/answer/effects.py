"""Noisy tables with known variances, and what they say in independent pieces: the effects of sets of attributes.

A noisy table over the attributes S is white noise on top of exact counts. Summed over all of S but U, and centered
along every axis of U, it speaks of the effect of U alone: a margin's contrasts, a pair's interaction. Projections on
different effects are orthogonal, so their noises are independent; the same effect seen in several tables is averaged by
inverse variance. A three-way table over coarse levels adds an effect of its own: its part centered along all axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sklar.answer.predicate import QueryError
from sklar.budget.certificate import Measured
from sklar.fitting.margins import estimate_rows
from sklar.kernel.queries import Parities, Tables
from sklar.kernel.theorems import noise_variance

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
# Attributes, ascending, by their place in the measured schema.
Subset: TypeAlias = tuple[int, ...]

# Totals of an attribute's tables differ from the number of rows by noise alone; so many standard errors are not noise.
_INCOMPLETE = 4.0


def normal_quantile(level: float) -> float:
    """How many standard errors an interval of this level reaches to either side under normal noise."""
    if not 0 < level < 1:
        raise QueryError(f"the confidence level must lie strictly between 0 and 1, got {level}. Try 0.95.")
    return NormalDist().inv_cdf(0.5 + level / 2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyTable:
    """The counts of some attributes, one axis each, the variance of the noise on a cell, and coarse levels, if any.

    A table that is `alone` speaks of the effect of all its attributes together, and of no smaller set: a parity.
    """

    attributes: Subset
    counts: Floats
    variance: float
    coarse: tuple[Codes, ...] = ()
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Effect:
    """The pooled effect of some attributes, in shares of rows, centered along every axis, as is its white noise.

    Where its table is over coarse levels, `coarse` has the coarse level of each level, by attribute.
    """

    values: Floats
    variance: float
    coarse: tuple[Codes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Effects:
    """All measured effects of the attributes `where`, by set; noise of the number of rows is independent of them.

    Rows that have no level of some attribute stand in no cell of its tables. Where totals of tables show that there are
    such rows of some of `where`, these are `lost`: the number of rows is that of the others.
    """

    where: Subset
    sizes: tuple[int, ...]
    by_set: Mapping[Subset, Effect]
    n_rows: int
    n_rows_variance: float
    lost: Subset = ()


def tables_of(measured: Measured, where: Sequence[int], beside: Iterable[int] | None = None) -> Iterator[NoisyTable]:
    """The noisy tables of each attribute, of its pairs with those `beside` it (by default all), and of larger sets.

    Parities are tables that hold nothing but their effect: with X rows of an odd sum of k bits, every cell of it is
    (n - 2 X) / 2^k, up to its sign. White noise of variance v on 2^k cells, centered along all axes, has the variance
    v / 2^k in a cell: v is 4 / 2^k times that of X, and, where n is measured, 1 / 2^k times that of n.
    """
    if any(isinstance(block.query, Parities) for block in measured.blocks):
        n, rows_variance = rows_of(measured)
        for subset, (odd, variance) in _pooled_parities(measured, where).items():
            sign = (-1.0) ** np.indices((2,) * len(subset)).sum(axis=0)
            counts, noise = sign * (n - 2 * odd) / sign.size, (4 * variance + rows_variance) / sign.size
            yield NoisyTable(attributes=subset, counts=counts, variance=noise, alone=True)
        return
    cells, mechanism = measured.schema.cells, measured.certificate.mechanism
    others = range(cells.n_attributes) if beside is None else tuple(beside)
    pairs = sorted({(min(i, j), max(i, j)) for i in where for j in others if i != j})
    for block in measured.counted:
        query = block.query
        if not isinstance(query, Tables) or query.about or not query.order:
            continue
        if query.sets is None:
            chosen = [((i,), i) for i in where] if query.order == 1 else [(pair, cells.pair(*pair)) for pair in pairs]
        else:
            chosen = [(tuple(row), at) for at, row in enumerate(query.sets.tolist()) if set(row) <= set(where)]
        variances = noise_variance(mechanism, block.scales[[at for _, at in chosen]])
        # Of millions of pairs the offsets are known to the cells.
        offsets = cells.pair_offsets if query.sets is None and query.order == 2 else query.offsets
        levels, coarse = query.levels, query.coarse
        for (attributes, at), variance in zip(chosen, variances.tolist(), strict=True):
            flat = block.values[offsets[at] : offsets[at + 1]].astype(np.float64)
            own = () if coarse is None else tuple(coarse[cells.levels(i)] for i in attributes)
            # Over all levels as they are it says what any table does.
            own = own if any((each != np.arange(each.size)).any() for each in own) else ()
            yield NoisyTable(
                attributes=attributes, counts=flat.reshape(levels[list(attributes)]), variance=variance, coarse=own
            )


def _pooled_parities(measured: Measured, where: Sequence[int]) -> dict[Subset, tuple[float, float]]:
    """The pooled rows with an odd sum of bits, and their variances, by set of bits."""
    m, sums = measured.schema.n_attributes, dict[Subset, tuple[float, float]]()
    for block in [each for each in measured.blocks if isinstance(each.query, Parities)]:
        start = 0
        for order, scale in enumerate(block.scales.tolist(), start=1):
            for subset in combinations(sorted(where), order):
                count, precision = sums.get(subset, (0.0, 0.0))
                odd = float(block.values[start + _rank(subset, m)])
                sums[subset] = count + odd / scale**2, precision + 1 / scale**2
            start += math.comb(m, order)
    return {subset: (count / precision, 1 / precision) for subset, (count, precision) in sums.items()}


def _rank(chosen: Subset, m: int) -> int:
    """The place of a set among all sets of so many of m attributes, in the order of `combinations`."""
    after = sum(math.comb(m - 1 - each, len(chosen) - at) for at, each in enumerate(chosen))
    return math.comb(m, len(chosen)) - 1 - after


def pool_effects(measured: Measured, where: Sequence[int]) -> Effects:
    """The effects of all sets of these attributes that some table holds, averaged over tables and stages."""
    chosen, (n, variance) = tuple(sorted(where)), rows_of(measured)
    tables, sizes = list(tables_of(measured, chosen)), tuple(int(measured.schema.sizes[i]) for i in chosen)
    lossy = losing(measured) if measured.n_rows is not None else set()
    lost = set(chosen) & lossy
    if lossy:
        # Tables that as many rows stand in: those that lose rows by the same attributes.
        tables = [each for each in tables if set(each.attributes) & lossy == lost]
        totals = [(each.counts.sum(), each.counts.size * each.variance) for each in tables if lost and not each.coarse]
        if totals:
            sums, variances = np.array(totals).T
            variance = 1 / float(np.sum(1 / variances))
            n = max(round(variance * float(np.sum(sums / variances))), 1)
    by_set = pool_tables([table for table in tables if not table.coarse], chosen, n)
    # A set whose own table was measured needs no coarse one. Of four attributes a table over coarse levels is not
    # followed: effects of three of them in it, which no other table may have, would have to be known too.
    chosen_tables = [table for table in tables if table.coarse and len(table.attributes) <= 3]
    for each in [table for table in chosen_tables if table.attributes not in by_set]:
        values = centered(each.counts / n, each.counts.ndim)
        by_set[each.attributes] = Effect(values=values, variance=each.variance / n**2, coarse=each.coarse)
    least = tuple(sorted(lost))
    return Effects(where=chosen, sizes=sizes, by_set=by_set, n_rows=n, n_rows_variance=variance, lost=least)


def pool_tables(tables: Iterable[NoisyTable], where: Subset, n_rows: int) -> dict[Subset, Effect]:
    """The effects of all sets of some attributes that some of these tables holds; further axes in front are kept."""
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
    mechanism, precision = measured.certificate.mechanism, 0.0
    n = estimate_rows(measured.counted, mechanism, measured.n_rows)
    if measured.n_rows is not None:
        return n, 0.0
    for block in measured.counted:
        query = block.query
        if isinstance(query, Tables) and not query.about and query.sets is None:
            # A total is a sum of all cells of a table.
            precision += float(np.sum(1 / (query.sizes * noise_variance(mechanism, block.scales))))
    return n, 1 / precision


def losing(measured: Measured) -> set[int]:
    """Attributes whose own tables hold clearly fewer rows than there are, or more."""
    own, n = range(measured.schema.n_attributes), measured.n_rows or 0
    sums: dict[int, list[tuple[float, float]]] = {}
    for each in tables_of(measured, own, ()):
        if len(each.attributes) == 1 and not each.alone:
            sums.setdefault(each.attributes[0], []).append((each.counts.sum() - n, each.counts.size * each.variance))
    off = {i: sum(gap / v for gap, v in own) / sum(1 / v for _, v in own) ** 0.5 for i, own in sums.items()}
    return {i for i, errors in off.items() if abs(errors) > _INCOMPLETE}


def subsets(attributes: Sequence[int]) -> list[Subset]:
    """All sets of some of these attributes, without the empty one, small ones first."""
    return [part for size in range(1, len(attributes) + 1) for part in combinations(attributes, size)]


def centered(array: Floats, axes: int) -> Floats:
    """The array less its means along each of its last axes."""
    for axis in range(array.ndim - axes, array.ndim):
        array = array - array.mean(axis=axis, keepdims=True)
    return array
