"""Compiled counting kernels. Each stays in the thread that calls it and lets others run beside it.

Two layouts of a batch of rows. *Bits*: one bit per row and level, a row of words for each level; a cell of a two-way
table is the number of ones that two rows of words have in common. *Codes*: one number per row and attribute; a table is
a histogram. Which is cheaper depends on the sizes of the attributes (`sklar.rows.count`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sklar.kernel.cells import Ints
from sklar.machine.compiled import OFFSETS, compiled, population_count

Words = NDArray[np.uint64]
Codes = NDArray[np.uint8] | NDArray[np.int32]
Counts = NDArray[np.int32]

# Rows of this many words, and those that they are compared with, fit in a first-level cache of 32 KiB.
_CHUNK = 512
_SETS = "void({}[:, ::1], int64, int64[:, ::1], int64[:, ::1], int64[::1], int32[::1])"


@compiled(inline="never", nogil=True, boundscheck=False)
def _place(a: np.int64, b: np.int64, of: Ints, offsets: Ints, strips: Ints) -> np.int64:
    """Where two levels of different attributes meet in the flat vector of cells (`Cells.places_of`, in any order)."""
    a, b = min(a, b), max(a, b)
    i, j = of[a], of[b]
    height, width = offsets[i + 1] - offsets[i], offsets[j + 1] - offsets[j]
    table = strips[i] + height * (offsets[j] - offsets[i + 1])
    return np.int64(table + (a - offsets[i]) * width + b - offsets[j])


@compiled(inline="never", nogil=True, boundscheck=False)
def _common(a: Words, b: Words) -> np.int64:
    """How many ones two rows of words share."""
    total = np.uint64(0)
    for word in range(a.size):
        total += population_count(a[word] & b[word])
    return np.int64(total)


@compiled(inline="never", nogil=True, boundscheck=False)
def _common_4(a0: Words, a1: Words, b0: Words, b1: Words) -> tuple[np.uint64, ...]:
    """The same for two rows with two others, almost twice as fast: every word that is loaded is used twice."""
    s00 = s01 = s10 = s11 = np.uint64(0)
    # Over slices that begin at 0: other indices turn loads into gathers.
    for word in range(a0.size):
        s00 += population_count(a0[word] & b0[word])
        s01 += population_count(a0[word] & b1[word])
        s10 += population_count(a1[word] & b0[word])
        s11 += population_count(a1[word] & b1[word])
    return s00, s01, s10, s11


@compiled(
    f"void(uint64[:, ::1], int64, int64[::1], int64[:, ::1], {OFFSETS}, {OFFSETS}, {OFFSETS}, int64[::1], int32[::1])",
    boundscheck=False,
)
def add_pairs(
    bits: Words, words: int, order: Ints, spans: Ints, of: Ints, offsets: Ints, strips: Ints, tile: Ints, counts: Counts
) -> None:
    """Add to the flat counts how many ones pairs of rows of `bits` (d, >= words) have in common.

    `of` is the attribute of each level, and `strips` where its tables begin (`Cells`). `order` lists the rows that take
    part; number p of it is paired with numbers spans[p, 0] to spans[p, 1], and of these pairs the `tile` (first p,
    end, first partner, end) is counted. The first must not fall along the order, nor the last rise.
    """
    first, last, begin, end = tile[0], tile[1], tile[2], tile[3]
    for start in range(0, words, _CHUNK):
        stop = min(start + _CHUNK, words)
        for p in range(first, last, 2):
            left, right = end, end
            if p + 2 <= last:
                # The partners that both share.
                left = min(max(spans[p + 1, 0], begin), end)
                right = max(min(spans[p + 1, 1], end), left)
                right -= (right - left) % 2
                a0, a1 = bits[order[p], start:stop], bits[order[p + 1], start:stop]
                for q in range(left, right, 2):
                    sums = _common_4(a0, a1, bits[order[q], start:stop], bits[order[q + 1], start:stop])
                    for k in range(4):
                        at = _place(order[p + k // 2], order[q + k % 2], of, offsets, strips)
                        counts[at] += np.int32(sums[k])
            for row in range(p, min(p + 2, last)):
                for q in range(max(spans[row, 0], begin), min(spans[row, 1], end)):
                    if q < left or q >= right:
                        shared = _common(bits[order[row], start:stop], bits[order[q], start:stop])
                        counts[_place(order[row], order[q], of, offsets, strips)] += np.int32(shared)


@compiled(f"void(int64, {OFFSETS}, {OFFSETS}, int64[::1], int64[::1], int64[::1], int32[::1])", boundscheck=False)
def complete(i: int, offsets: Ints, strips: Ints, reach: Ints, nowhere: Ints, one_way: Ints, counts: Counts) -> None:
    """Put the counts of first levels into attribute i's tables with later ones that were counted on bits.

    Those hold, in the place of the first level, the rows that stand in no cell of that attribute. All rows are in one
    of the levels or nowhere, so what a margin has beyond the others belongs to the first level: exact, for whole
    numbers. `reach` is the size up to which an attribute's partners were counted on bits (0: none), `nowhere` the
    number of rows in no cell of it, `one_way` all one-way tables, complete.
    """
    height = offsets[i + 1] - offsets[i]
    for j in range(i + 1, offsets.size - 1):
        width = offsets[j + 1] - offsets[j]
        if width > reach[i] or height > reach[j]:
            continue
        at = strips[i] + height * (offsets[j] - offsets[i + 1])
        table = counts[at : at + height * width].reshape(height, width)
        # Of the first level of i, the rows that stand in no cell of j.
        neither = nowhere[j] - table[:, 0].sum()
        for x in range(1, height):
            table[x, 0] = np.int32(one_way[offsets[i] + x] - table[x].sum())
        for y in range(1, width):
            table[0, y] = np.int32(one_way[offsets[j] + y] - table[:, y].sum())
        table[0, 0] = np.int32(one_way[offsets[i]] - neither - table[0, 1:].sum())


@compiled(inline="never", nogil=True, boundscheck=False)
def _add_table(a: Codes, b: Codes, height: int, width: int, scratch: Counts, at: int, counts: Counts) -> None:
    """Add the table of two columns of codes plus one, of so many levels each, to the flat counts from `at` on."""
    if (height + 1) * (width + 1) <= a.size:
        table = scratch[: (height + 1) * (width + 1)]
        table[:] = 0
        step = np.uint64(width + 1)
        for row in range(a.size):
            # Unsigned: a signed index would be tested for counting from the end.
            table[np.uint64(a[row]) * step + np.uint64(b[row])] += np.int32(1)
        for x in range(height):
            for y in range(width):
                counts[at + x * width + y] += table[(x + 1) * (width + 1) + y + 1]
    else:
        # A table of more cells than rows would be cleared and added in vain: its rows go straight to the counts.
        for row in range(a.size):
            if a[row] > 0 and b[row] > 0:
                counts[at + (np.int64(a[row]) - 1) * width + np.int64(b[row]) - 1] += np.int32(1)


@compiled([_SETS.format(code) for code in ("uint8", "int32")], boundscheck=False)
def add_codes(codes: Codes, rows: int, sets: Ints, shapes: Ints, offsets: Ints, counts: Counts) -> None:
    """Add the tables of these sets of two columns or more, shape (k, order), to the flat counts at their offsets.

    `codes` has shape (columns, >= rows) and holds every code plus one: 0 is a row without a level. Three columns or
    more are two, of which the first has a level for every combination of levels of all but the last.
    """
    order, scratch, both = sets.shape[1], np.empty(rows, dtype=np.int32), np.empty(rows, dtype=np.int32)
    for k in range(sets.shape[0]):
        last, height = codes[sets[k, order - 1], :rows], shapes[k, 0]
        if order == 2:
            _add_table(codes[sets[k, 0], :rows], last, height, shapes[k, 1], scratch, offsets[k], counts)
            continue
        same = k > 0 and np.array_equal(sets[k, : order - 1], sets[k - 1, : order - 1])
        for at in range(1, order - 1):
            width, height = shapes[k, at], height * shapes[k, at]
            for row in range(0 if same else rows):
                first = np.int64(codes[sets[k, 0], row]) if at == 1 else np.int64(both[row])
                second = np.int64(codes[sets[k, at], row])
                both[row] = np.int32((first - 1) * width + second) if first > 0 and second > 0 else np.int32(0)
        _add_table(both, last, height, shapes[k, order - 1], scratch, offsets[k], counts)


@compiled(_SETS.format("uint64"), boundscheck=False)
def add_threes(bits: Words, words: int, planes: Ints, shapes: Ints, offsets: Ints, counts: Counts) -> None:
    """The same for small tables of three attributes on bits: `planes`, shape (k, 3), says where their levels begin."""
    both = np.empty((np.max(shapes[:, 0] * shapes[:, 1]), _CHUNK), dtype=np.uint64)
    for start in range(0, words, _CHUNK):
        stop = min(start + _CHUNK, words)
        for k in range(planes.shape[0]):
            height, width, depth = shapes[k, 0], shapes[k, 1], shapes[k, 2]
            if k == 0 or planes[k, 0] != planes[k - 1, 0] or planes[k, 1] != planes[k - 1, 1]:
                for row in range(height * width):
                    a, b = bits[planes[k, 0] + row // width], bits[planes[k, 1] + row % width]
                    for word in range(start, stop):
                        both[row, word - start] = a[word] & b[word]
            for cell in range(height * width * depth):
                third = bits[planes[k, 2] + cell % depth, start:stop]
                counts[offsets[k] + cell] += np.int32(_common(both[cell // depth, : stop - start], third))
