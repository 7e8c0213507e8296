"""Rows moved so that their two-way tables come nearer to the model's, without leaving its distribution behind.

A table of n rows drawn from a model has sampling error beside the model's own, and at a large epsilon that is most of
the error. Within a component attributes are independent, so two of its rows may exchange the levels that they have of
one attribute: what comes out is as likely as what went in. Exchanges are made that bring two-way counts nearer to n
times the model's probabilities.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import Codes

MOST_ROUNDS = 18
# Comparisons of two values, in all rounds of a table: a few seconds.
_MOST_WORK = 2e9
_MOST_LEVELS = 20_000


def refining_rounds(rows: int, attributes: int, levels: int) -> int:
    """How often each value of a table of this size is offered an exchange: never where that would take long.

    Nor where the errors of all pairs of levels, which every thread holds, would take gigabytes.
    """
    if levels > _MOST_LEVELS:
        return 0
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
    _exchange(rows, bounds, _errors(rows, targets), rounds, key)
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
