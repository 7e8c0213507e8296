"""Noisy tables of a search to a density: pieces of the axis with their rows, and heaps. Post-processing.

The tables of a search are nested (`budget.ladder`), so they are the levels of a tree. Weighted least squares up and
down that tree make one consistent estimate of all tables (Hay et al. 2010). Where a cell was divided, its parts are
grouped into as few pieces of constant density as the noise allows. A single grain that stands out is a heap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sklar.budget.ladder import Ladder, Units, next_cells
from sklar.fitting.simplex import project

Floats = NDArray[np.float64]

# What one more piece of constant density must explain, in squared standard errors.
_PENALTY = 6.0
# A grain that is this many standard errors above its neighbors is a heap.
_HEAP = 4.0
# Numbers that end in 0 or 5 are more often heaps than others: less is asked of them.
_ROUND, _HEAP_ROUND, _PENALTY_ROUND = 5, 3.0, 1.0
# Larger groups of siblings are grains of one cell, in which only heaps are looked for.
_MOST_SIBLINGS = 128
# Windows of cells of the first table, and the standard errors by which one shows where rows are: anywhere, and next to
# where others do.
_WINDOWS, _SURE, _NEXT = (1, 2, 4, 8), 4.5, 1.5
# Beyond the support, what is too little to be sure of: at least this, and near the largest of as many empty cells.
_TAIL, _TAIL_SLACK = 2.0, 0.3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Density:
    """Rows of an attribute along its axis, in grains, as noisy tables have them.

    Piece i reaches from `edges[i]` to `edges[i + 1]` and holds `masses[i]` rows, spread evenly. `heaps` are the pieces
    of one grain that stand out. Rows were seen from `first` up to `last`; `tails` are ranges beyond it that may hold
    some, too few to be sure.
    """

    edges: Units
    masses: Floats
    heaps: NDArray[np.int64]
    first: int
    last: int
    tails: tuple[tuple[int, int], ...] = ()


def estimate_density(ladder: Ladder, tables: Sequence[NDArray[np.int64]], scale: float) -> Density:
    """The density that noisy tables of a search show."""
    cells = next_cells(ladder, tables[:-1], scale)
    below, variances = _combine_up(cells, tables, scale)
    first, last = _support(below[0], variances[0])
    # Onto the same sum: clipping alone would turn the noise of empty cells into rows.
    masses, own = np.zeros(below[0].size), slice(first, last)
    if first < last:
        masses[own] = project(below[0][own], max(float(below[0][own].sum()), 0.0))
    for level in range(1, len(cells)):
        masses = _descend(cells[level - 1], masses, cells[level], below[level], variances[level])
    return Density(
        edges=cells[-1],
        masses=masses,
        heaps=_heaps(cells[-1], masses, np.sqrt(variances[-1])),
        first=int(cells[0][first]),
        last=int(cells[0][last]),
        tails=_tails(cells[0], below[0], variances[0], last),
    )


def _combine_up(
    cells: Sequence[Units], tables: Sequence[NDArray[np.int64]], scale: float
) -> tuple[list[Floats], list[Floats]]:
    """Each cell's rows by its own count and by those of its parts, and the variance of that, table by table."""
    rows = [tables[-1].astype(np.float64)]
    variances = [np.full(tables[-1].size, scale**2)]
    for level in range(len(tables) - 2, -1, -1):
        starts = np.searchsorted(cells[level + 1], cells[level][:-1])
        parts, noise = np.add.reduceat(rows[0], starts), np.add.reduceat(variances[0], starts)
        variance = 1 / (scale**-2 + 1 / noise)
        rows.insert(0, variance * (tables[level] / scale**2 + parts / noise))
        variances.insert(0, variance)
    return rows, variances


def _descend(parents: Units, masses: Floats, edges: Units, rows: Floats, variances: Floats) -> Floats:
    """The rows of a table's cells, which add up to those of the cells above: pieces of constant density."""
    starts = np.searchsorted(edges, parents)
    found = np.empty(rows.size)
    for index in range(parents.size - 1):
        own = slice(int(starts[index]), int(starts[index + 1]))
        if own.stop - own.start == 1:
            found[own] = masses[index]
            continue
        widths = np.diff(edges[own.start : own.stop + 1]).astype(np.float64)
        lacking = masses[index] - rows[own].sum()
        fitted = rows[own] + lacking * variances[own] / variances[own].sum()
        alone = np.where((widths == 1) & (edges[own] % _ROUND == 0), _PENALTY_ROUND, _PENALTY)
        found[own] = _pieces(fitted, variances[own], widths, masses[index], alone)
    return found


def _pieces(rows: Floats, variances: Floats, widths: Floats, total: float, alone: Floats) -> Floats:
    """Siblings' rows by an optimal partition into runs of constant density, which add up to `total`."""
    ends = (
        _heaps_apart(rows, variances, widths)
        if rows.size > _MOST_SIBLINGS
        else _partition(rows, variances, widths, alone)
    )
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    sums = np.add.reduceat(rows, starts)
    kept = project(sums[None, :], np.array([[max(total, 0.0)]]))[0]
    lengths = ends - starts
    spans = np.add.reduceat(widths, starts)
    return np.repeat(kept / spans, lengths) * widths


def _partition(rows: Floats, variances: Floats, widths: Floats, alone: Floats) -> NDArray[np.int64]:
    """Where each run of the best partition ends: least squares and a penalty for every run."""
    weights = 1 / variances
    squares = np.concatenate([[0.0], np.cumsum(rows**2 * weights)])
    crossed = np.concatenate([[0.0], np.cumsum(rows * widths * weights)])
    across = np.concatenate([[0.0], np.cumsum(widths**2 * weights)])
    size = rows.size
    best, back = np.zeros(size + 1), np.zeros(size + 1, dtype=np.int64)
    for end in range(1, size + 1):
        slope = np.maximum(crossed[end] - crossed[:end], 0.0)
        costs = best[:end] + squares[end] - squares[:end] - slope**2 / (across[end] - across[:end]) + _PENALTY
        costs[end - 1] += alone[end - 1] - _PENALTY
        back[end] = np.argmin(costs)
        best[end] = costs[back[end]]
    ends = [size]
    while back[ends[-1]] > 0:
        ends.append(int(back[ends[-1]]))
    return np.array(ends[::-1], dtype=np.int64)


def _heaps_apart(rows: Floats, variances: Floats, widths: Floats) -> NDArray[np.int64]:
    """The same where there are too many siblings for noise to show more than heaps."""
    level = max(float(rows.sum()), 0.0) / widths.sum() * widths
    needed = max(_HEAP, np.sqrt(2 * np.log(rows.size)) + 1.5)
    apart = np.flatnonzero(rows - level >= needed * np.sqrt(variances))
    return np.unique(np.concatenate([apart, apart + 1, [rows.size]]))[int(0 in apart) :]


def _heaps(edges: Units, masses: Floats, sd: Floats) -> NDArray[np.int64]:
    """Single grains whose rows exceed what their neighbors' densities explain."""
    density = masses / np.diff(edges)
    around = np.maximum(np.append(density[1:], 0.0), np.insert(density[:-1], 0, 0.0))
    needed = np.where(edges[:-1] % _ROUND == 0, _HEAP_ROUND, _HEAP)
    return np.flatnonzero((np.diff(edges) == 1) & (masses - around >= needed * sd))


def _support(rows: Floats, variances: Floats) -> tuple[int, int]:
    """The first and the last edge (as places) between which rows were seen; the same edge twice where none were.

    Windows that stand out from noise anywhere show where rows are; from there on a window next to them need not stand
    out as far, because few are asked. Cells at the end of a window that only lower what it shows are left out.
    """
    upto = np.concatenate([[0.0], np.cumsum(rows)])
    noise = np.concatenate([[0.0], np.cumsum(variances)])

    def z(start: int, end: int) -> float:
        return float((upto[end] - upto[start]) / np.sqrt(noise[end] - noise[start]))

    def trimmed(start: int, end: int) -> tuple[int, int]:
        first = max(range(start, end), key=lambda begin: z(begin, end))
        return first, max(range(first + 1, end + 1), key=lambda stop: z(first, stop))

    windows = [(start, start + size) for size in _WINDOWS for start in range(rows.size - size + 1)]
    sure = [trimmed(*window) for window in windows if z(*window) >= _SURE]
    if not sure:
        return 0, 0
    first, last = min(start for start, _ in sure), max(end for _, end in sure)
    while grown := [size for size in _WINDOWS if last + size <= rows.size and z(last, last + size) >= _NEXT]:
        last = trimmed(last, last + grown[0])[1]
    while grown := [size for size in _WINDOWS if first >= size and z(first - size, first) >= _NEXT]:
        first = trimmed(first - grown[0], first)[0]
    # Rows are seldom seen to their very last.
    return max(first - 1, 0), min(last + 1, rows.size)


def _tails(edges: Units, rows: Floats, variances: Floats, last: int) -> tuple[tuple[int, int], ...]:
    """Up to two ranges of one or two cells beyond the support that may hold rows, in order."""
    least = max(_TAIL, float(np.sqrt(2 * np.log(max(rows.size - last, 1)))) - _TAIL_SLACK)
    likely: list[tuple[float, int, int]] = []
    for window in (1, 2):
        for start in range(last, rows.size - window + 1):
            own = slice(start, start + window)
            z = float(rows[own].sum() / np.sqrt(variances[own].sum()))
            if z > least:
                likely.append((-z, start, start + window))
    likely.sort()
    found = [(start, end) for _, start, end in likely[:1]]
    apart = [(start, end) for _, start, end in likely[1:] if start >= found[0][1] or end <= found[0][0]]
    return tuple((int(edges[start]), int(edges[end])) for start, end in sorted([*found, *apart[:1]]))
