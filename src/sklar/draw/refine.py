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
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import Codes
from sklar.kernel.cells import Cells
from sklar.machine.compiled import Worth, compiled

MOST_ROUNDS = 18
# Comparisons of two values, in all rounds of a table: a few seconds.
_MOST_WORK = 2e9
# Comparisons in a round of all that a process refines, and pairs of levels, up to which Python is done before compiled
# code is there (`python -m benchmarks.start --crossover`).
_PLAIN_WORK, _PLAIN_CELLS = 300_000, 4_000_000
_worth_compiling = Worth(_PLAIN_WORK)
# Errors are whole numbers of this part of a row: sums of them are the same in any order, on any machine.
_UNIT = 256
_MOST_LEVELS = 20_000


def refining_rounds(rows: int, attributes: int, levels: int) -> int:
    """How often each value of a table of this size is offered an exchange: never where that would take long.

    Nor where the errors of all pairs of levels, which every thread holds, would take gigabytes.
    """
    if levels > _MOST_LEVELS:
        return 0
    return int(min(MOST_ROUNDS, _MOST_WORK // max(rows * attributes**2, 1)))


# The same with three-way tables, of so many cells each on average: sampling is little of the error of larger ones.
# Fewer rounds than these are not worth the time, nor is it worth compiling code for so little work in a round.
_MOST_TRIPLE_WORK, _LEAST_TRIPLE_WORK = 1e9, 3e5
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
    work = rows * m * (m - 1) * (m - 2) / 2
    rounds = int(min(MOST_ROUNDS, _MOST_TRIPLE_WORK // work)) if work >= _LEAST_TRIPLE_WORK else 0
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
        # In double precision, and rounded then: the same on any number of threads (`latent.steady_pairs`).
        own = [np.ascontiguousarray(probabilities[:, cells.levels(int(i))].T, dtype=np.float64) for i in free]
        sizes = [len(each) for each in own]
        m, share = len(own), 1 / len(probabilities)
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
    errors = np.rint(targets * np.float32(-_UNIT)).astype(np.int32)
    if triples is None:
        # Whichever way, the rows are the same.
        fast = _worth_compiling(rows.shape[0] * rows.shape[1] ** 2) or errors.size > _PLAIN_CELLS
        (exchange if fast else exchange_plainly)(rows, bounds, errors, rounds, key)
    else:
        wider = np.rint(triples.probabilities * np.float32(-_UNIT * len(rows))).astype(np.int32)
        exchange_triples(rows, first, bounds, errors, wider, triples.index, rounds, key)
    codes[free[:, None], place] = rows.T - offsets[free].astype(np.int32)[:, None]


@compiled("void(int32[:, ::1], int64[::1], int32[:, ::1], int64, uint64)")
def exchange(
    rows: NDArray[np.int32], bounds: NDArray[np.int64], errors: NDArray[np.int32], rounds: int, key: np.uint64
) -> None:
    """Offer every value an exchange with a random row of its component; it is made where squared errors fall.

    `errors` come as the wanted counts of pairs of levels, negative, in units of 1 / `_UNIT`; first, the counts are
    added. With e the errors, a and b the two levels, and u and v those of another attribute j, the squares change by
    2 (e_bu - e_au + e_av - e_bv) + 4, summed over all j in which the rows differ.
    """
    state = key
    m = rows.shape[1]
    for row in range(rows.shape[0]):
        for i in range(m):
            for j in range(m):
                errors[rows[row, i], rows[row, j]] += _UNIT
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
                    change, apart = np.int64(0), 0
                    for j in range(m):
                        u, v = one[j], other[j]
                        if u != v and j != i:
                            change += of_b[u] - of_a[u] + of_a[v] - of_b[v]
                            apart += 1
                    if change + 2 * _UNIT * apart >= 0 or apart == 0:
                        continue
                    made += 1
                    for j in range(m):
                        u, v = one[j], other[j]
                        if u != v and j != i:
                            for level, own, step in ((a, u, -_UNIT), (b, u, _UNIT), (a, v, _UNIT), (b, v, -_UNIT)):
                                errors[level, own] += step
                                errors[own, level] += step
                    one[i], other[i] = b, a
        # Few are left to be found.
        if made * 1000 < rows.size:
            break


def exchange_plainly(
    rows: NDArray[np.int32], bounds: NDArray[np.int64], errors: NDArray[np.int32], rounds: int, key: np.uint64
) -> None:
    """Do the same as `exchange` with Python's own numbers, for small tables."""
    m, low = rows.shape[1], (1 << 64) - 1
    for i in range(m):
        for j in range(m):
            np.add.at(errors, (rows[:, i], rows[:, j]), _UNIT)
    table, held, state = errors.tolist(), rows.tolist(), int(key)
    runs = [(begin, end - begin) for begin, end in pairwise(bounds.tolist()) if end - begin > 1]
    for _ in range(rounds):
        made = 0
        for begin, size in runs:
            for one in held[begin : begin + size]:
                for i in range(m):
                    state ^= state >> 12
                    state ^= (state << 25) & low
                    state ^= state >> 27
                    other = held[begin + ((state * 2685821657736338717 & low) >> 32) * size // (1 << 32)]
                    a, b = one[i], other[i]
                    if a == b:
                        continue
                    of_a, of_b = table[a], table[b]
                    differ = [(u, v) for u, v in zip(one, other, strict=True) if u != v]
                    change = sum(of_b[u] - of_a[u] + of_a[v] - of_b[v] for u, v in differ)
                    # The attribute itself is among those that differ.
                    change -= of_b[a] - of_a[a] + of_a[b] - of_b[b]
                    if change + 2 * _UNIT * (len(differ) - 1) >= 0 or len(differ) == 1:
                        continue
                    made += 1
                    for u, v in differ:
                        if u == a:
                            continue
                        for level, own, step in ((a, u, -_UNIT), (b, u, _UNIT), (a, v, _UNIT), (b, v, -_UNIT)):
                            table[level][own] += step
                            table[own][level] += step
                    one[i], other[i] = b, a
        if made * 1000 < rows.size:
            break
    rows[:] = held


@compiled("void(int32[:, ::1], int32[::1], int64[::1], int32[:, ::1], int32[::1], int64[:, :, ::1], int64, uint64)")
def exchange_triples(
    rows: NDArray[np.int32],
    first: NDArray[np.int32],
    bounds: NDArray[np.int64],
    errors: NDArray[np.int32],
    wider: NDArray[np.int32],
    index: NDArray[np.int64],
    rounds: int,
    key: np.uint64,
) -> None:
    """As `exchange`, with the squares of three-way errors: those of (i, j, k) change where j or k differ.

    `wider` are the wanted counts of three-way cells, negative, in units of 1 / `_UNIT`.
    """
    state = key
    m = rows.shape[1]
    ours, theirs = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64)
    for row in range(rows.shape[0]):
        for i in range(m):
            for j in range(m):
                errors[rows[row, i], rows[row, j]] += _UNIT
            for p in range(index.shape[1]):
                j, k = index[i, p, 0], index[i, p, 1]
                # Every table stands at three attributes: once is enough.
                if i < j and j < k:
                    place = index[i, p, 2] + (rows[row, i] - first[i]) * index[i, p, 3]
                    place += (rows[row, j] - first[j]) * index[i, p, 4] + (rows[row, k] - first[k]) * index[i, p, 5]
                    wider[place] += _UNIT
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
                    change, apart = np.int64(0), 0
                    for j in range(m):
                        u, v = one[j], other[j]
                        ours[j], theirs[j] = u - first[j], v - first[j]
                        if u != v and j != i:
                            change += of_b[u] - of_a[u] + of_a[v] - of_b[v]
                            apart += 1
                    if apart == 0:
                        continue
                    change = (m - 2) * (change + 2 * _UNIT * apart)
                    low, high = a - first[i], b - first[i]
                    for p in range(index.shape[1]):
                        j, k = index[i, p, 0], index[i, p, 1]
                        if ours[j] == theirs[j] and ours[k] == theirs[k]:
                            continue
                        along = index[i, p, 3]
                        here = index[i, p, 2] + ours[j] * index[i, p, 4] + ours[k] * index[i, p, 5]
                        there = index[i, p, 2] + theirs[j] * index[i, p, 4] + theirs[k] * index[i, p, 5]
                        change += wider[here + high * along] - wider[here + low * along] + 2 * _UNIT
                        change += wider[there + low * along] - wider[there + high * along]
                    if change >= 0:
                        continue
                    made += 1
                    for j in range(m):
                        u, v = one[j], other[j]
                        if u != v and j != i:
                            for level, own, step in ((a, u, -_UNIT), (b, u, _UNIT), (a, v, _UNIT), (b, v, -_UNIT)):
                                errors[level, own] += step
                                errors[own, level] += step
                    for p in range(index.shape[1]):
                        j, k = index[i, p, 0], index[i, p, 1]
                        if ours[j] == theirs[j] and ours[k] == theirs[k]:
                            continue
                        along = index[i, p, 3]
                        here = index[i, p, 2] + ours[j] * index[i, p, 4] + ours[k] * index[i, p, 5]
                        there = index[i, p, 2] + theirs[j] * index[i, p, 4] + theirs[k] * index[i, p, 5]
                        wider[here + high * along] += _UNIT
                        wider[here + low * along] -= _UNIT
                        wider[there + low * along] += _UNIT
                        wider[there + high * along] -= _UNIT
                    one[i], other[i] = b, a
        # Few are left to be found.
        if made * 1000 < rows.size:
            break
