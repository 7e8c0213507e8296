"""Rows moved so that their two-way tables come nearer to the model's, without leaving its distribution behind.

A table of n rows drawn from a model has sampling error beside the model's own, and at a large epsilon that is most of
the error. Within a component attributes are independent, so two of its rows may exchange the levels that they have of
one attribute: what comes out is as likely as what went in. Exchanges are made that bring two-way counts nearer to n
times the model's probabilities.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import Codes
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


def refining_rounds(rows: int, attributes: int) -> int:
    """How often each value of a table of this size is offered an exchange: never where that would take long."""
    return int(min(MOST_ROUNDS, _MOST_WORK // max(rows * attributes**2, 1)))


def refine(
    codes: Codes,
    place: NDArray[np.uint32],
    bounds: NDArray[np.int64],
    targets: NDArray[np.float32],
    offsets: NDArray[np.int64],
    free: NDArray[np.int64],
    rounds: int,
    key: np.uint64,
) -> None:
    """Exchange levels of the attributes `free` between rows of a component, in place, `rounds` times for each value.

    `codes` has shape (m, rows); the rows of component c are `place[bounds[c] : bounds[c + 1]]`. `targets` are the
    wanted counts of pairs of levels, shape (d, d), symmetric.
    """
    rows = np.ascontiguousarray(codes[free][:, place].T.astype(np.int32) + offsets[free].astype(np.int32))
    errors = np.rint(targets * np.float32(-_UNIT)).astype(np.int32)
    # Whichever way, the rows are the same.
    fast = _worth_compiling(rows.shape[0] * rows.shape[1] ** 2) or errors.size > _PLAIN_CELLS
    (exchange if fast else exchange_plainly)(rows, bounds, errors, rounds, key)
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
