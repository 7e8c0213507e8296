"""Counting of two- and three-way conjunctions: compiled kernels, and the same in NumPy for little work.

To a kernel, a batch of rows has one of two layouts. *Lists*: row r has the levels `levels[starts[r]:starts[r + 1]]`,
ascending; this is cheap when attributes have many levels. *Bits*: one bit per row and level, shape (d, words); this is
cheap when attributes have few levels.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sklar.machine.compiled import OFFSETS, compiled, population_count, prange


@compiled(f"void(int64[::1], int32[::1], {OFFSETS}, int64[:, ::1])", parallel=True, boundscheck=False)
def add_pairs(
    starts: NDArray[np.int64], levels: NDArray[np.int32], block: NDArray[np.int64], counts: NDArray[np.int64]
) -> None:
    """Add every pair of levels of distinct attributes that a row has into counts (d, d), above the diagonal."""
    # Each thread takes a first attribute, so that no two threads write to the same row of counts.
    for first in prange(block[-1] + 1):
        for row in range(starts.size - 1):
            for x in range(starts[row], starts[row + 1]):
                a = levels[x]
                if block[a] > first:
                    break
                if block[a] == first:
                    for y in range(x + 1, starts[row + 1]):
                        b = levels[y]
                        if block[b] > first:
                            counts[a, b] += 1


@compiled(
    f"void(int64[::1], int32[::1], {OFFSETS}, {OFFSETS}, int64[:, ::1], int32[::1])", parallel=True, boundscheck=False
)
def add_triples(
    starts: NDArray[np.int64],
    levels: NDArray[np.int32],
    block: NDArray[np.int64],
    offsets: NDArray[np.int64],
    bases: NDArray[np.int64],
    counts: NDArray[np.int32],
) -> None:
    """Add every triple of levels of distinct attributes that a row has into counts, laid out as in `Triples`."""
    d = block.size
    for first in prange(block[-1] + 1):
        for row in range(starts.size - 1):
            stop = starts[row + 1]
            for x in range(starts[row], stop):
                a = levels[x]
                if block[a] > first:
                    break
                if block[a] == first:
                    for y in range(x + 1, stop):
                        b = levels[y]
                        second = block[b]
                        if second > first:
                            after = offsets[second + 1]
                            cell = (a - offsets[first]) * (after - offsets[second]) + b - offsets[second]
                            base = bases[first, second] + cell * (d - after) - after
                            for z in range(y + 1, stop):
                                c = levels[z]
                                if c >= after:
                                    counts[base + c] += 1


@compiled(f"void(uint64[:, ::1], {OFFSETS}, {OFFSETS}, int64[:, ::1])", parallel=True, boundscheck=False)
def add_pair_bits(
    bits: NDArray[np.uint64], block: NDArray[np.int64], offsets: NDArray[np.int64], counts: NDArray[np.int64]
) -> None:
    """Do the same as `add_pairs`, on bits."""
    d, words = bits.shape
    for a in prange(d):
        for b in range(offsets[block[a] + 1], d):
            total = np.uint64(0)
            for word in range(words):
                total += population_count(bits[a, word] & bits[b, word])
            counts[a, b] += np.int64(total)


@compiled("void(uint64[:, ::1], int64[:, ::1], int32[::1])", parallel=True, boundscheck=False)
def add_triple_bits(bits: NDArray[np.uint64], triples: NDArray[np.int64], counts: NDArray[np.int32]) -> None:
    """Add the counts of the listed triples of levels, shape (k, 3), into counts (k,)."""
    words = bits.shape[1]
    for t in prange(triples.shape[0]):
        a, b, c = triples[t, 0], triples[t, 1], triples[t, 2]
        total = np.uint64(0)
        for word in range(words):
            total += population_count(bits[a, word] & bits[b, word] & bits[c, word])
        counts[t] += np.int32(total)


def add_tables_plainly(
    codes: NDArray[np.int32],
    offsets: NDArray[np.int64],
    pairs: NDArray[np.int64],
    bases: NDArray[np.int64],
    triples: NDArray[np.int32] | None,
) -> None:
    """Do what `add_pairs` and `add_triples` do, in NumPy, on codes of shape (m, rows); -1 is in no cell."""
    m, d = len(codes), int(offsets[-1])
    sizes, shifted = np.diff(offsets), codes.astype(np.int64) + 1
    for i, j in combinations(range(m), 2):
        # The place of a row that is in no cell is cut off from every table.
        both, shape = shifted[i] * (sizes[j] + 1) + shifted[j], (int(sizes[i]) + 1, int(sizes[j]) + 1)
        found = np.bincount(both, minlength=shape[0] * shape[1]).reshape(shape)
        pairs[offsets[i] : offsets[i + 1], offsets[j] : offsets[j + 1]] += found[1:, 1:]
        if triples is None:
            continue
        cells, after = int(sizes[i] * sizes[j]), int(offsets[j + 1])
        own = triples[bases[i, j] : bases[i, j] + cells * (d - after)].reshape(cells, d - after)
        for k in range(j + 1, m):
            size = int(sizes[k])
            three = np.bincount(both * (size + 1) + shifted[k], minlength=shape[0] * shape[1] * (size + 1))
            block = three.reshape(*shape, size + 1)[1:, 1:, 1:].reshape(cells, size)
            own[:, offsets[k] - after : offsets[k + 1] - after] += block.astype(np.int32)


def add_listed_plainly(bits: NDArray[np.uint64], triples: NDArray[np.int64], counts: NDArray[np.int32]) -> None:
    """Do what `add_triple_bits` does, in NumPy."""
    # As many at a time as leave a few megabytes of words.
    step = max((1 << 19) // max(bits.shape[1], 1), 1)
    for start in range(0, len(triples), step):
        first, second, third = triples[start : start + step].T
        both = bits[first] & bits[second] & bits[third]
        counts[start : start + step] += np.bitwise_count(both).sum(axis=1, dtype=np.int32)
