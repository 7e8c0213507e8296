"""Rows moved so that their two-way tables come nearer to the model's, without leaving its distribution behind. More:
docs/derivations.md.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sklar.kernel.cells import Cells, Doubles, Floats, Ints
from sklar.machine.compiled import Worth, compiled
from sklar.machine.threads import side_by_side

if TYPE_CHECKING:
    from sklar.fitting.latent import LatentModel

MOST_ROUNDS = 18
# Comparisons of two values, in all rounds of a table: a few seconds.
_MOST_WORK = 2e9
# Comparisons in a round, and pairs of levels, up to which Python is faster than compiling (`benchmarks.start`).
_PLAIN_WORK, _PLAIN_CELLS = 300_000, 4_000_000
_worth_compiling = Worth(_PLAIN_WORK)
# Errors are whole numbers of this part of a row: sums of them are the same in any order, on any machine.
_UNIT = 256
_MOST_LEVELS = 20_000
# Rows of a product that are made at a time.
_STRIP = 512


# The same with three-way tables, of so many cells in all: to predict them takes as long as exchanges do.
# Fewer rounds than these are not worth the time, nor is it worth loading compiled code for so little work in a round.
_MOST_TRIPLE_WORK, _LEAST_TRIPLE_WORK, _MOST_TRIPLE_CELLS = 1e9, 1e5, 1 << 21
_LEAST_ROUNDS = 6


def refining_rounds(rows: int, cells: Cells) -> tuple[int, int]:
    """How often each value of a table of this size is offered an exchange, and of what order tables are matched.

    No exchange is offered where that takes long, or gigabytes, and three-way tables count where that takes seconds.
    """
    m, sizes = cells.n_attributes, cells.sizes.astype(np.float64)
    total, squares, cubes = ((sizes**power).sum() for power in (1, 2, 3))
    work = rows * m * (m - 1) * (m - 2) / 2
    rounds = int(min(MOST_ROUNDS, _MOST_TRIPLE_WORK // max(work, 1.0)))
    few_cells = (total**3 - 3 * total * squares + 2 * cubes) / 6 <= _MOST_TRIPLE_CELLS
    if work >= _LEAST_TRIPLE_WORK and rounds >= _LEAST_ROUNDS and few_cells:
        return rounds, 3
    return int(min(MOST_ROUNDS, _MOST_WORK // max(rows * m**2, 1))) if cells.n_levels <= _MOST_LEVELS else 0, 2


class Refiner:
    """Exchanges levels of the attributes `free` between rows of a component, `model.rounds` times for each value."""

    def __init__(self, model: LatentModel, free: Ints, chances: Doubles | None = None) -> None:
        cells, probabilities, self._rounds = model.schema.cells, model.probabilities, model.rounds
        self._free, self._first = free, cells.offsets[free].astype(np.int32)
        self._pairs = steady_pairs(probabilities, chances)
        if model.missed.size and chances is None:
            self._pairs += (missed := cells.square(model.missed))
            self._pairs += missed.T
        self._triples = model.matched == 3 and free.size > 2
        if self._triples:
            self.three_way, self.index = three_way_tables(probabilities, cells, free)

    def __call__(self, codes: NDArray[np.integer[Any]], place: Ints, bounds: Ints, key: np.uint64) -> None:
        """Exchange in place. `codes` has shape (m, n); rows of component c are `place[bounds[c] : bounds[c + 1]]`."""
        free, n_rows = self._free, codes.shape[1]
        rows = np.ascontiguousarray(codes[free][:, place].T.astype(np.int32) + self._first)
        errors = np.rint(self._pairs * np.float32(n_rows) * np.float32(-_UNIT)).astype(np.int32)
        if self._triples:
            wider = np.rint(self.three_way * np.float32(-_UNIT * n_rows)).astype(np.int32)
            exchange(rows, bounds, errors, wider, self.index, self._rounds, key)
        # Whichever way, the rows are the same.
        elif _worth_compiling(n_rows * free.size**2) or errors.size > _PLAIN_CELLS:
            none = np.empty((free.size, 0, 6), dtype=np.int64)
            exchange(rows, bounds, errors, np.empty(0, dtype=np.int32), none, self._rounds, key)
        else:
            exchange_plainly(rows, bounds, errors, self._rounds, key)
        codes[free[:, None], place] = rows.T - self._first[:, None]


def steady_pairs(probabilities: Floats, chances: Doubles | None = None) -> Floats:
    """Predicted two-way tables, shape (d, d), the same to the last bit on any number of threads.

    The rows of a seed depend on every bit. Double sums vary by threads in their last bits, which rounding takes off.
    """
    pairs = np.empty((probabilities.shape[1],) * 2, dtype=np.float32)
    exact = probabilities.astype(np.float64)
    weighed = exact / len(exact) if chances is None else exact * chances[:, None]
    for first in range(0, len(pairs), _STRIP):
        pairs[first : first + _STRIP] = exact[:, first : first + _STRIP].T @ weighed
    return pairs


def three_way_tables(probabilities: Floats, cells: Cells, free: Ints) -> tuple[Floats, Ints]:
    """All three-way tables of the attributes `free`, flat, and where cells of them stand: shape (m, pairs, 6).

    For attribute i and the p-th pair of others (j, k), the index [i, p] holds j, k, the place of a cell of levels zero,
    and what a level of i, of j and of k, numbered over all attributes, moves that place by.
    """
    # In double precision, and rounded then: the same on any number of threads, as in `steady_pairs`.
    own = [np.ascontiguousarray(probabilities[:, cells.levels(int(i))].T, dtype=np.float64) for i in free]
    offsets, share = cells.offsets[free].tolist(), 1 / len(probabilities)
    pairs = list(combinations(range(len(own) - 1), 2))

    def products(pair: tuple[int, int]) -> list[Floats]:
        # A strip of combinations of two at a time, with the levels of all attributes that come later.
        first, second = (own[each] for each in pair)
        one, two = (each.ravel() for each in np.indices((len(first), len(second))))
        later, found = np.concatenate(own[pair[1] + 1 :]).T * share, list[Floats]()
        for strip in (slice(start, start + _STRIP) for start in range(0, one.size, _STRIP)):
            found.append(((first[one[strip]] * second[two[strip]]) @ later).astype(np.float32))
        ends = np.cumsum([len(each) for each in own[pair[1] + 1 : -1]])
        return [table.ravel() for table in np.split(np.concatenate(found), ends, axis=1)]

    tables = [table for found in side_by_side(products, pairs) for table in found]
    places: list[list[tuple[int, ...]]] = [[] for _ in own]
    start = 0
    for (i, j, k), table in zip(combinations(range(len(own)), 3), tables, strict=True):
        steps = {i: len(own[j]) * len(own[k]), j: len(own[k]), k: 1}
        zero = start - sum(offsets[a] * step for a, step in steps.items())
        for a, b, c in ((i, j, k), (j, i, k), (k, i, j)):
            places[a].append((b, c, zero, steps[a], steps[b], steps[c]))
        start += table.size
    return np.concatenate(tables), np.array(places, dtype=np.int64)


@compiled("void(int32[:, ::1], int64[::1], int32[:, ::1], int32[::1], int64[:, :, ::1], int64, uint64)")
def exchange(
    rows: NDArray[np.int32],
    bounds: Ints,
    errors: NDArray[np.int32],
    wider: NDArray[np.int32],
    index: Ints,
    rounds: int,
    key: np.uint64,
) -> None:
    """Offer every value an exchange with a random row of its component; it is made where squared errors fall.

    `errors` are minus the targets of pairs of levels, in units of 1 / `_UNIT`; first, the counts are added. With e the
    errors, a and b the two levels, and u and v those of another attribute j, the squares change by
    2 (e_bu - e_au + e_av - e_bv) + 4, summed over all j in which the rows differ. `wider` are the same of three-way
    cells at the places of `index`; those of (i, j, k) change where j or k differ. An empty index leaves them out.
    """
    state = key
    m, triples = rows.shape[1], index.shape[1]
    weight = np.int64(m - 2 if triples else 1)
    for row in range(rows.shape[0]):
        one = rows[row]
        for i in range(m):
            for j in range(m):
                errors[one[i], one[j]] += _UNIT
            for p in range(triples):
                j, k = index[i, p, 0], index[i, p, 1]
                # Every table stands at three attributes: once is enough.
                if i < j and j < k:
                    at = index[i, p, 2] + one[i] * index[i, p, 3]
                    wider[at + one[j] * index[i, p, 4] + one[k] * index[i, p, 5]] += _UNIT
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
                    change = np.int64(0)
                    for j in range(m):
                        u, v = one[j], other[j]
                        if u != v and j != i:
                            change += of_b[u] - of_a[u] + of_a[v] - of_b[v] + 2 * _UNIT
                    change *= weight
                    for p in range(triples):
                        j, k = index[i, p, 0], index[i, p, 1]
                        if one[j] != other[j] or one[k] != other[k]:
                            zero, along, by_j, by_k = index[i, p, 2], index[i, p, 3], index[i, p, 4], index[i, p, 5]
                            here = zero + one[j] * by_j + one[k] * by_k
                            there = zero + other[j] * by_j + other[k] * by_k
                            change += wider[here + b * along] - wider[here + a * along] + 2 * _UNIT
                            change += wider[there + a * along] - wider[there + b * along]
                    if change >= 0:
                        continue
                    made += 1
                    for j in range(m):
                        u, v = one[j], other[j]
                        if u != v and j != i:
                            for level, own, step in ((a, u, -_UNIT), (b, u, _UNIT), (a, v, _UNIT), (b, v, -_UNIT)):
                                errors[level, own] += step
                                errors[own, level] += step
                    for p in range(triples):
                        j, k = index[i, p, 0], index[i, p, 1]
                        if one[j] != other[j] or one[k] != other[k]:
                            zero, along, by_j, by_k = index[i, p, 2], index[i, p, 3], index[i, p, 4], index[i, p, 5]
                            here = zero + one[j] * by_j + one[k] * by_k
                            there = zero + other[j] * by_j + other[k] * by_k
                            wider[here + b * along] += _UNIT
                            wider[here + a * along] -= _UNIT
                            wider[there + a * along] += _UNIT
                            wider[there + b * along] -= _UNIT
                    one[i], other[i] = b, a
        # Converged.
        if made * 1000 < rows.size:
            break


def exchange_plainly(
    rows: NDArray[np.int32], bounds: Ints, errors: NDArray[np.int32], rounds: int, key: np.uint64
) -> None:
    """`exchange` without three-way tables, in Python's own numbers: for inputs too small to repay compilation."""
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
                    # Levels are numbered over all attributes: no other one has the level a.
                    differ = [(u, v) for u, v in zip(one, other, strict=True) if u != v and u != a]
                    if sum(of_b[u] - of_a[u] + of_a[v] - of_b[v] + 2 * _UNIT for u, v in differ) >= 0:
                        continue
                    made += 1
                    for u, v in differ:
                        for level, own, step in ((a, u, -_UNIT), (b, u, _UNIT), (a, v, _UNIT), (b, v, -_UNIT)):
                            table[level][own] += step
                            table[own][level] += step
                    one[i], other[i] = b, a
        if made * 1000 < rows.size:
            break
    rows[:] = held
