"""Rows moved so that their two-way tables come nearer to the model's, without leaving its distribution behind.

A table of n rows drawn from a model has sampling error beside the model's own, and at a large epsilon that is most of
the error. Within a component attributes are independent, so two of its rows may exchange the levels that they have of
one attribute: what comes out is as likely as what went in. Exchanges are made that bring two-way counts nearer to n
times the model's probabilities. Where noise is so small that sampling is much of the error of three-way tables too,
these are matched as well: an exchange is made where (m - 2) times the squares of pairs plus those of triples fall, so
that every pair weighs as much as all triples that hold it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numba
import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import Codes
from sklar.kernel.cells import Cells

MOST_ROUNDS = 18
# Comparisons of two values, in all rounds of a table: a few seconds.
_MOST_WORK = 2e9


def refining_rounds(rows: int, attributes: int) -> int:
    """How often each value of a table of this size is offered an exchange: never where that would take long."""
    return int(min(MOST_ROUNDS, _MOST_WORK // max(rows * attributes**2, 1)))


# The same with three-way tables, of so many cells each on average: sampling is little of the error of larger ones.
# Fewer rounds than these are not worth the time.
_MOST_TRIPLE_WORK = 1e9
_MOST_TRIPLE_CELLS = 512
_LEAST_ROUNDS = 6
# The total variation to expect of the noise in two-way tables up to which three-way tables are matched too.
_LITTLE_NOISE = 0.03


def triple_rounds(rows: int, cells: Cells, noise: float) -> int:
    """How often each value is offered an exchange that counts triples too: never where it costs more than it gains."""
    m, sizes = cells.n_attributes, cells.sizes.astype(np.float64)
    if m < 3 or noise > _LITTLE_NOISE:
        return 0
    total, squares = sizes.sum(), (sizes**2).sum()
    all_cells = (total**3 - 3 * total * squares + 2 * (sizes**3).sum()) / 6
    rounds = int(min(MOST_ROUNDS, _MOST_TRIPLE_WORK // (rows * m * (m - 1) * (m - 2) / 2)))
    return rounds if all_cells <= _MOST_TRIPLE_CELLS * cells.n_trios and rounds >= _LEAST_ROUNDS else 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ThreeWay:
    """All three-way tables of a model, flat, and where cells of them stand.

    For attribute i and the p-th pair of others (j, k), `index[i, p]` holds j, k, and what a level of i, of j and of k
    moves a cell's place by, after the place of the table's first cell: shape (m, pairs, 6).
    """

    probabilities: NDArray[np.float32]
    index: NDArray[np.int64]

    @classmethod
    def of(cls, probabilities: NDArray[np.float32], cells: Cells, free: NDArray[np.int64]) -> ThreeWay:
        """Those of the attributes `free`, from the components' probabilities, shape (components, d)."""
        own = [np.ascontiguousarray(probabilities[:, cells.levels(int(i))].T) for i in free]
        sizes = [len(each) for each in own]
        m, share = len(own), np.float32(1 / len(probabilities))
        tables: list[NDArray[np.float32]] = []
        places: list[list[tuple[int, ...]]] = [[] for _ in range(m)]
        start = 0
        for i, j, k in combinations(range(m), 3):
            both = (own[i][:, None, :] * own[j][None, :, :]).reshape(-1, len(probabilities))
            tables.append(np.asarray(both @ own[k].T * share, dtype=np.float32).ravel())
            steps = {i: sizes[j] * sizes[k], j: sizes[k], k: 1}
            for a, b, c in ((i, j, k), (j, i, k), (k, i, j)):
                places[a].append((b, c, start, steps[a], steps[b], steps[c]))
            start += tables[-1].size
        return cls(probabilities=np.concatenate(tables), index=np.array(places, dtype=np.int64))


def refine(
    codes: Codes,
    place: NDArray[np.uint32],
    bounds: NDArray[np.int64],
    targets: NDArray[np.float32],
    offsets: NDArray[np.int64],
    free: NDArray[np.int64],
    rounds: int,
    key: np.uint64,
    triples: ThreeWay | None = None,
) -> None:
    """Exchange levels of the attributes `free` between rows of a component, in place, `rounds` times for each value.

    `codes` has shape (m, rows); the rows of component c are `place[bounds[c] : bounds[c + 1]]`. `targets` are the
    wanted counts of pairs of levels, shape (d, d), symmetric. With `triples`, three-way tables are matched too.
    """
    first = offsets[free].astype(np.int32)
    rows = np.ascontiguousarray(codes[free][:, place].T.astype(np.int32) + first)
    if triples is None:
        _exchange(rows, bounds, _errors(rows, targets), rounds, key)
    else:
        wider = _triple_errors(rows, first, triples.probabilities * np.float32(len(rows)), triples.index)
        _exchange_triples(rows, first, bounds, _errors(rows, targets), wider, triples.index, rounds, key)
    codes[free[:, None], place] = rows.T - offsets[free].astype(np.int32)[:, None]


@numba.njit(cache=True, nogil=True)
def _errors(rows: NDArray[np.int32], targets: NDArray[np.float32]) -> NDArray[np.float32]:
    """Counts of pairs of levels less the wanted ones."""
    errors = -targets
    for row in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            for j in range(rows.shape[1]):
                errors[rows[row, i], rows[row, j]] += np.float32(1.0)
    return errors


@numba.njit(cache=True, nogil=True)
def _exchange(
    rows: NDArray[np.int32],
    bounds: NDArray[np.int64],
    errors: NDArray[np.float32],
    rounds: int,
    key: np.uint64,
) -> None:
    """Offer every value an exchange with a random row of its component; it is made where squared errors fall.

    With e the errors, a and b the two levels, and u and v those of another attribute j, the squares change by
    2 (e_bu - e_au + e_av - e_bv) + 4, summed over all j in which the rows differ.
    """
    state = key
    m = rows.shape[1]
    for _ in range(rounds):
        made = 0
        for c in range(bounds.size - 1):
            begin, size = bounds[c], bounds[c + 1] - bounds[c]
            if size < 2:
                continue
            for row in range(begin, begin + size):
                one = rows[row]
                for i in range(m):
                    state ^= state >> np.uint64(12)
                    state ^= state << np.uint64(25)
                    state ^= state >> np.uint64(27)
                    word = (state * np.uint64(2685821657736338717)) >> np.uint64(32)
                    partner = begin + np.int64((word * np.uint64(size)) >> np.uint64(32))
                    other = rows[partner]
                    a, b = one[i], other[i]
                    if a == b:
                        continue
                    of_a, of_b = errors[a], errors[b]
                    change, apart = np.float32(0.0), 0
                    for j in range(m):
                        u, v = one[j], other[j]
                        if u != v and j != i:
                            change += of_b[u] - of_a[u] + of_a[v] - of_b[v]
                            apart += 1
                    if change + np.float32(2 * apart) >= np.float32(0.0) or apart == 0:
                        continue
                    made += 1
                    for j in range(m):
                        u, v = one[j], other[j]
                        if u != v and j != i:
                            for level, own, step in ((a, u, -1.0), (b, u, 1.0), (a, v, 1.0), (b, v, -1.0)):
                                errors[level, own] += np.float32(step)
                                errors[own, level] += np.float32(step)
                    one[i], other[i] = b, a
        # Few are left to be found.
        if made * 1000 < rows.size:
            break


@numba.njit(cache=True, nogil=True)
def _triple_errors(
    rows: NDArray[np.int32], first: NDArray[np.int32], targets: NDArray[np.float32], index: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Counts of the cells of all three-way tables less the wanted ones."""
    errors = -targets
    for row in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            for p in range(index.shape[1]):
                j, k = index[i, p, 0], index[i, p, 1]
                # Every table stands at three attributes: once is enough.
                if i < j and j < k:
                    place = index[i, p, 2] + (rows[row, i] - first[i]) * index[i, p, 3]
                    place += (rows[row, j] - first[j]) * index[i, p, 4] + (rows[row, k] - first[k]) * index[i, p, 5]
                    errors[place] += np.float32(1.0)
    return errors


@numba.njit(cache=True, nogil=True)
def _exchange_triples(
    rows: NDArray[np.int32],
    first: NDArray[np.int32],
    bounds: NDArray[np.int64],
    errors: NDArray[np.float32],
    wider: NDArray[np.float32],
    index: NDArray[np.int64],
    rounds: int,
    key: np.uint64,
) -> None:
    """As `_exchange`, with the squares of three-way errors: those of (i, j, k) change where j or k differ."""
    state = key
    m = rows.shape[1]
    weight = np.float32(m - 2)
    ours, theirs = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64)
    for _ in range(rounds):
        made = 0
        for c in range(bounds.size - 1):
            begin, size = bounds[c], bounds[c + 1] - bounds[c]
            if size < 2:
                continue
            for row in range(begin, begin + size):
                one = rows[row]
                for i in range(m):
                    state ^= state >> np.uint64(12)
                    state ^= state << np.uint64(25)
                    state ^= state >> np.uint64(27)
                    word = (state * np.uint64(2685821657736338717)) >> np.uint64(32)
                    partner = begin + np.int64((word * np.uint64(size)) >> np.uint64(32))
                    other = rows[partner]
                    a, b = one[i], other[i]
                    if a == b:
                        continue
                    of_a, of_b = errors[a], errors[b]
                    change, apart = np.float32(0.0), 0
                    for j in range(m):
                        u, v = one[j], other[j]
                        ours[j], theirs[j] = u - first[j], v - first[j]
                        if u != v and j != i:
                            change += of_b[u] - of_a[u] + of_a[v] - of_b[v]
                            apart += 1
                    if apart == 0:
                        continue
                    total, more = np.float32(0.0), 0
                    low, high = a - first[i], b - first[i]
                    for p in range(index.shape[1]):
                        j, k = index[i, p, 0], index[i, p, 1]
                        if ours[j] == theirs[j] and ours[k] == theirs[k]:
                            continue
                        step = index[i, p, 3]
                        here = index[i, p, 2] + ours[j] * index[i, p, 4] + ours[k] * index[i, p, 5]
                        there = index[i, p, 2] + theirs[j] * index[i, p, 4] + theirs[k] * index[i, p, 5]
                        total += wider[here + high * step] - wider[here + low * step]
                        total += wider[there + low * step] - wider[there + high * step]
                        more += 1
                    if weight * (change + np.float32(2 * apart)) + total + np.float32(2 * more) >= np.float32(0.0):
                        continue
                    made += 1
                    for j in range(m):
                        u, v = one[j], other[j]
                        if u != v and j != i:
                            for level, own, step in ((a, u, -1.0), (b, u, 1.0), (a, v, 1.0), (b, v, -1.0)):
                                errors[level, own] += np.float32(step)
                                errors[own, level] += np.float32(step)
                    for p in range(index.shape[1]):
                        j, k = index[i, p, 0], index[i, p, 1]
                        if ours[j] == theirs[j] and ours[k] == theirs[k]:
                            continue
                        along = index[i, p, 3]
                        here = index[i, p, 2] + ours[j] * index[i, p, 4] + ours[k] * index[i, p, 5]
                        there = index[i, p, 2] + theirs[j] * index[i, p, 4] + theirs[k] * index[i, p, 5]
                        wider[here + high * along] += np.float32(1.0)
                        wider[here + low * along] -= np.float32(1.0)
                        wider[there + low * along] += np.float32(1.0)
                        wider[there + high * along] -= np.float32(1.0)
                    one[i], other[i] = b, a
        # Few are left to be found.
        if made * 1000 < rows.size:
            break
