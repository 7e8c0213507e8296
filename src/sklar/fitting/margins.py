"""Noisy tables to mutually consistent probabilities: post-processing.

There are two readings of the same tables. `plain` is the paper's: each count stands alone, and negative counts become
zero. `consistent` uses every table for every margin, puts margins on the simplex and shrinks each two-way table toward
independence as far as its known noise asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sklar.budget.plan import margin_sd
from sklar.fitting.simplex import project_levels
from sklar.fitting.triples import TripleEstimates
from sklar.kernel.cells import Cells
from sklar.kernel.tables import MANY_CELLS, NoisyTables
from sklar.kernel.triples import NoisyTriples
from sklar.machine.spill import room_for
from sklar.machine.threads import side_by_side

# Cells of consecutive tables that are pooled together.
_TOGETHER = 250_000
# Cells whose sums take as long as it takes to begin threads.
_THREADED = 500_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probabilities:
    """Estimated probabilities of levels, shape (d,), and of pairs of levels, shape (n_cells,), laid out by `cells`."""

    cells: Cells
    levels: NDArray[np.float64]
    pairs: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimates:
    """Unbiased estimates of all counts from all measurements, with the standard deviations of their noise.

    `one_way` has shape (d,) and `pairs` (n_cells,), both laid out by `cells`; very many cells are in single precision.
    The standard deviations are one number per table: `one_way_sd` has shape (m,), `pair_sd` (n_pairs,). `triples` are
    those of three-way tables, where any were measured.

    Where parities were measured (`crossed`), tables follow from them: `pair_sd` is the noise of a table's interaction,
    and its margins are those of the one-way tables, of which it says nothing more. Then `one_way_sd` is the noise of a
    contrast of two levels. `trios` are noisy parities of triples, shape (n_trios,) or (0,), with noise `trio_sd`.
    """

    cells: Cells
    n_rows: int
    one_way: NDArray[np.float64]
    one_way_sd: NDArray[np.float64]
    pairs: NDArray[np.float64]
    pair_sd: NDArray[np.float64]
    crossed: bool = False
    trios: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    trio_sd: float = 1.0
    triples: TripleEstimates | None = None


def pool(stages: Sequence[NoisyTables], triples: NoisyTriples | None = None) -> Estimates:
    """Average what several measurements say of the same tables, each weighed by its inverse variance."""
    cells = stages[0].cells
    if stages[0].plan.parities is not None:
        return _pool_parities(stages)
    one_way, one_way_weight = np.zeros(cells.n_levels), np.zeros(cells.n_attributes)
    for tables in stages:
        if tables.plan.one_way.size:
            weight = 1 / tables.variances(tables.plan.one_way)
            one_way += tables.one_way * weight[cells.attribute_of_level]
            one_way_weight += weight
    one_way /= one_way_weight[cells.attribute_of_level]

    paired = [tables for tables in stages if tables.plan.pairs.size]
    weights = [1 / tables.variances(tables.plan.pairs) for tables in paired]
    whole = sum(weights, np.zeros(cells.n_pairs))
    # Noise leaves no digit of a count beyond single precision, and very many cells would take twice the room.
    pairs = room_for(cells.n_cells, np.float32 if cells.n_cells > MANY_CELLS else np.float64)

    def fill(first: int, last: int) -> None:
        run = slice(int(cells.pair_offsets[first]), int(cells.pair_offsets[last]))
        for tables, weight in zip(paired, weights, strict=True):
            shares = weight[first:last] / whole[first:last]
            pairs[run] += tables.pairs[run] * np.repeat(shares, cells.pair_sizes[first:last])

    # Runs of tables: weights of all cells at once would take as much memory as the cells.
    side_by_side(lambda run: fill(*run), table_runs(cells))
    return Estimates(
        cells=cells,
        n_rows=estimate_rows(stages),
        one_way=one_way,
        one_way_sd=one_way_weight**-0.5,
        pairs=pairs,
        pair_sd=whole**-0.5,
        triples=None if triples is None else TripleEstimates.of(triples),
    )


def _pool_parities(stages: Sequence[NoisyTables]) -> Estimates:
    """Tables from the average of several looks at parities."""
    n_rows = estimate_rows(stages)
    (ones, ones_sd), (odd, odd_sd), (trios, trio_sd) = (
        _looks([(getattr(tables, name), getattr(tables.plan, name)) for tables in stages])
        for name in ("one_way", "pairs", "trios")
    )
    one_way = np.column_stack([n_rows - ones, ones]).ravel()
    return Estimates(
        cells=stages[0].cells,
        n_rows=n_rows,
        one_way=one_way,
        one_way_sd=math.sqrt(2.0) * ones_sd,
        pairs=crossed_tables(stages[0].cells, ones, odd, n_rows),
        pair_sd=odd_sd,
        crossed=True,
        trios=trios,
        trio_sd=float(trio_sd[0]) if trio_sd.size else 1.0,
    )


def _looks(
    looks: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The average of noisy counts by inverse variance, and its sd."""
    precision = np.sum([scales**-2.0 for _, scales in looks], axis=0)
    return np.sum([counts * scales**-2.0 for counts, scales in looks], axis=0) / precision, precision**-0.5


def crossed_tables(
    cells: Cells, ones: NDArray[np.float64], odd: NDArray[np.float64], n_rows: float
) -> NDArray[np.float64]:
    """The two-way tables of bits with these ones, shape (m,), and parities of pairs, (n_pairs,): shape (n_cells,).

    >>> crossed_tables(Cells([2, 2]), np.array([5.0, 4.0]), np.array([3.0]), 10).tolist()
    [4.0, 1.0, 2.0, 3.0]
    """
    first, second = cells.pairs
    both = (ones[first] + ones[second] - odd) / 2
    return np.column_stack([n_rows - both - odd, ones[second] - both, ones[first] - both, both]).ravel()


def expected_noise(estimates: Estimates) -> float:
    """The total variation to expect of the noise in a two-way table, on average: 0.4 cells sd / n, at most 1."""
    cells = estimates.cells
    if not cells.n_pairs:
        return 1.0
    return float(np.mean(np.minimum(0.4 * cells.pair_sizes * estimates.pair_sd / estimates.n_rows, 1.0)))


def with_alike(cells: Cells, work: Callable[[NDArray[np.int64]], None]) -> None:
    """Do light work on every group of `Cells.alike`: side by side where there is enough of it to pay for threads."""
    if cells.n_cells > _THREADED:
        side_by_side(work, cells.alike())
        return
    for members in cells.alike():
        work(members)


def table_runs(cells: Cells) -> Iterator[tuple[int, int]]:
    """Runs of two-way tables that are worked on together: the first one, and that after the last."""
    starts = np.searchsorted(cells.pair_offsets, np.arange(0, cells.n_cells, _TOGETHER))
    return pairwise(np.unique(np.append(starts, cells.n_pairs)).tolist())


def estimate_rows(stages: Sequence[NoisyTables]) -> int:
    """The public number of rows; under add-remove, the inverse-variance average of all noisy totals, at least 1."""
    public = stages[0].n_rows
    if public is not None:
        return public
    weighted, weights = 0.0, 0.0
    for tables in stages:
        cells, totals, summed = tables.cells, [], []
        if tables.total is not None:
            totals.append(np.array([tables.total]))
            summed.append(np.ones(1, dtype=np.int64))
        if tables.plan.parities is None and tables.plan.one_way.size:
            totals.append(np.add.reduceat(tables.one_way, cells.offsets[:-1]))
            summed.append(cells.sizes)
        if tables.plan.parities is None and tables.plan.pairs.size:
            totals.append(np.add.reduceat(tables.pairs, cells.pair_offsets[:-1], dtype=np.int64))
            summed.append(cells.pair_sizes)
        # A sum of cells has the variance of each cell times their number.
        sizes = np.concatenate(summed)
        weight = 1 / (sizes * tables.variances(tables.plan.scales[: sizes.size]))
        weighted += float(weight @ np.concatenate(totals))
        weights += float(weight.sum())
    return max(1, round(weighted / weights))


def plain(estimates: Estimates) -> Probabilities:
    """The paper's reading (Algorithms 1 and 2, soundly): noisy counts clipped to [0, n], over n."""
    n = estimates.n_rows
    return Probabilities(
        cells=estimates.cells,
        levels=np.clip(estimates.one_way / n, 0.0, 1.0),
        pairs=np.clip(estimates.pairs / n, 0.0, 1.0),
    )


def consistent(estimates: Estimates) -> Probabilities:
    """Margins from all tables together, on the simplex; two-way tables shrunk toward independence."""
    levels = margins(estimates)
    return Probabilities(cells=estimates.cells, levels=levels, pairs=shrunk_pairs(estimates, levels))


def margins(estimates: Estimates) -> NDArray[np.float64]:
    """Probabilities of the levels of each attribute, shape (d,): the averaged counts over n, on the simplex."""
    return project_levels(average_margins(estimates)[0] / estimates.n_rows, estimates.cells)


def average_margins(estimates: Estimates) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The best linear estimate of level counts, shape (d,), and the sd of its noise before centering, shape (m,).

    The direct one-way table and the sums of every two-way table are unbiased for the same counts. Each is centered to
    n, and they are averaged by inverse variance (K_j sigma_ij^2 for sums over the K_j levels of j).
    """
    cells, attribute = estimates.cells, estimates.cells.attribute_of_level
    if estimates.crossed:
        return estimates.one_way, estimates.one_way_sd
    precision = estimates.pair_sd**-2.0
    sd = margin_sd(cells, estimates.one_way_sd, precision)
    weights = cells.symmetric(precision) / cells.sizes[None, :]
    np.fill_diagonal(weights, estimates.one_way_sd**-2.0)
    weights *= sd[:, None] ** 2
    counts = implied_counts(estimates.pairs, cells)
    counts[np.arange(cells.n_levels), attribute] = estimates.one_way
    missing = estimates.n_rows - np.add.reduceat(counts, cells.offsets[:-1], axis=0)
    centering = (weights * missing).sum(axis=1) / cells.sizes
    return np.einsum("ij,ij->i", weights[attribute], counts) + centering[attribute], sd


def implied_counts(pairs: NDArray[np.float64], cells: Cells) -> NDArray[np.float64]:
    """What every two-way table says of the counts of its levels, shape (d, m); zero for a level's own attribute.

    >>> implied_counts(np.array([1.0, 2.0, 3.0, 4.0]), Cells([2, 2])).tolist()
    [[0.0, 3.0], [0.0, 7.0], [4.0, 0.0], [6.0, 0.0]]
    """
    counts = room_for((cells.n_levels, cells.n_attributes), np.float64)

    def add(members: NDArray[np.int64]) -> None:
        tables = pairs[cells.places(members)]
        first, second = (each[members][:, None] for each in cells.pairs)
        rows, columns = cells.offsets[first] + np.arange(tables.shape[1]), cells.offsets[second]
        counts[rows, second] = tables.sum(axis=2, dtype=np.float64)
        counts[columns + np.arange(tables.shape[2]), first] = tables.sum(axis=1, dtype=np.float64)

    with_alike(cells, add)
    return counts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residuals:
    """Two-way tables of one shape, as probabilities: independence, and what the noisy tables add to it.

    `independent` and `centered`, which is the rest centered both ways, have shape (tables, rows, columns); `places` are
    their cells in a flat vector. The margins are `rows`, shape (tables, rows), and `columns`, shape (tables, columns);
    `sd` is the noise on a cell, shape (tables,).
    """

    places: NDArray[np.int64]
    rows: NDArray[np.float64]
    columns: NDArray[np.float64]
    independent: NDArray[np.float64]
    centered: NDArray[np.float64]
    sd: NDArray[np.float64]

    @classmethod
    def of(cls, estimates: Estimates, levels: NDArray[np.float64], members: NDArray[np.int64]) -> Residuals:
        """Those of these tables, one of the groups of `Cells.alike`, beside these margins."""
        cells, n = estimates.cells, estimates.n_rows
        places = cells.places(members)
        first, second = (each[members] for each in cells.pairs)
        rows = levels[cells.offsets[first][:, None] + np.arange(places.shape[1])]
        columns = levels[cells.offsets[second][:, None] + np.arange(places.shape[2])]
        independent = rows[:, :, None] * columns[:, None, :]
        return cls(
            places=places,
            rows=rows,
            columns=columns,
            independent=independent,
            centered=center(estimates.pairs[places] / n - independent),
            sd=estimates.pair_sd[members] / n,
        )


def center(tables: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tables, shape (tables, rows, columns), less the means of their rows and of their columns."""
    centered = tables - tables.mean(axis=1, keepdims=True)
    centered -= centered.mean(axis=2, keepdims=True)
    return np.asarray(centered)


def shrunk_pairs(estimates: Estimates, levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Two-way probabilities with the given margins, each table shrunk toward independence, shape (n_cells,)."""
    pairs = np.empty(estimates.cells.n_cells)

    def fill(members: NDArray[np.int64]) -> None:
        tables = Residuals.of(estimates, levels, members)
        pairs[tables.places] = tables.independent + shrink(tables.centered, tables.sd)

    side_by_side(fill, estimates.cells.alike())
    return np.clip(pairs, 0.0, 1.0, out=pairs)


def shrink(centered: NDArray[np.float64], sd: NDArray[np.float64]) -> NDArray[np.float64]:
    """Denoised interactions of tables of one shape, (tables, rows, columns), with noise of these sds on their cells.

    A noisy table less independence, centered both ways, is the interaction plus white noise on (rows - 1) x
    (columns - 1) dimensions. Its singular values are shrunk as is optimal for that noise (Gavish and Donoho 2017,
    Frobenius loss): with beta = rows / columns <= 1 and y the singular value over sd sqrt(columns), keep
    sqrt((y^2 - beta - 1)^2 - 4 beta) / y where y > 1 + sqrt(beta), else nothing.
    """
    short, long = sorted((centered.shape[1] - 1, centered.shape[2] - 1))
    if short == 0:
        return np.zeros_like(centered)
    beta = short / long
    if short == 1:
        # One singular value: the Frobenius norm.
        norms = np.sqrt((centered**2).sum(axis=(1, 2)))
        y = np.maximum(norms / (sd * np.sqrt(long)), 1e-150)
        return np.asarray(centered * (_kept(y, beta) / y)[:, None, None])
    unit = sd[:, None] * np.sqrt(long)
    left, values, right = np.linalg.svd(centered, full_matrices=False)
    kept = _kept(np.maximum(values / unit, 1e-300), beta) * unit
    return np.asarray((left * kept[:, None, :]) @ right)


def _kept(y: NDArray[np.float64], beta: float) -> NDArray[np.float64]:
    kept = np.sqrt(np.maximum((y**2 - beta - 1) ** 2 - 4 * beta, 0.0)) / y
    return np.where(y > 1 + np.sqrt(beta), kept, 0.0)
