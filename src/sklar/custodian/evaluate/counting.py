"""Compiled counting kernels for two- and three-way conjunctions.

A batch of rows has one of two layouts. *Lists*: row r has the levels `levels[starts[r]:starts[r + 1]]`, ascending; this
is cheap when attributes have many levels. *Bits*: one bit per row and level, shape (d, words); this is cheap when
attributes have few levels.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

_ONES = np.uint64(0x0101010101010101)
_NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
_PAIRS = np.uint64(0x3333333333333333)
_ODD = np.uint64(0x5555555555555555)

_NUMBERS, _TABLE = numba.int64[::1], numba.int64[:, ::1]
# A schema's offsets are read-only.
_OFFSETS = numba.types.Array(numba.int64, 1, "C", readonly=True)


@numba.njit(
    numba.void(_NUMBERS, numba.int32[::1], _OFFSETS, _TABLE),
    parallel=True,
    cache=True,
    nogil=True,
    boundscheck=False,
)
def add_pairs(
    starts: NDArray[np.int64], levels: NDArray[np.int32], block: NDArray[np.int64], counts: NDArray[np.int64]
) -> None:
    """Add every pair of levels of distinct attributes that a row has into counts (d, d), above the diagonal."""
    # Each thread takes a first attribute, so that no two threads write to the same row of counts.
    for first in numba.prange(block[-1] + 1):
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


@numba.njit(
    numba.void(_NUMBERS, numba.int32[::1], _OFFSETS, _OFFSETS, _TABLE, numba.int32[::1]),
    parallel=True,
    cache=True,
    nogil=True,
    boundscheck=False,
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
    for first in numba.prange(block[-1] + 1):
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


@numba.njit("int64(uint64)", cache=True, nogil=True, inline="always")
def _ones(x: np.uint64) -> np.int64:
    """The number of set bits of a word. The compiler knows this idiom and vectorizes it."""
    x = x - ((x >> np.uint64(1)) & _ODD)
    x = (x & _PAIRS) + ((x >> np.uint64(2)) & _PAIRS)
    x = (x + (x >> np.uint64(4))) & _NIBBLES
    return np.int64((x * _ONES) >> np.uint64(56))


@numba.njit(
    numba.void(numba.uint64[:, ::1], _OFFSETS, _OFFSETS, _TABLE),
    parallel=True,
    cache=True,
    nogil=True,
    boundscheck=False,
)
def add_pair_bits(
    bits: NDArray[np.uint64], block: NDArray[np.int64], offsets: NDArray[np.int64], counts: NDArray[np.int64]
) -> None:
    """Do the same as `add_pairs`, on bits."""
    d, words = bits.shape
    for a in numba.prange(d):
        for b in range(offsets[block[a] + 1], d):
            total = np.int64(0)
            for word in range(words):
                total += _ones(bits[a, word] & bits[b, word])
            counts[a, b] += total


@numba.njit("void(uint64[:, ::1], int64[:, ::1], int32[::1])", parallel=True, cache=True, nogil=True, boundscheck=False)
def add_triple_bits(bits: NDArray[np.uint64], triples: NDArray[np.int64], counts: NDArray[np.int32]) -> None:
    """Add the counts of the listed triples of levels, shape (k, 3), into counts (k,)."""
    words = bits.shape[1]
    for t in numba.prange(triples.shape[0]):
        a, b, c = triples[t, 0], triples[t, 1], triples[t, 2]
        total = np.int64(0)
        for word in range(words):
            total += _ones(bits[a, word] & bits[b, word] & bits[c, word])
        counts[t] += np.int32(total)
