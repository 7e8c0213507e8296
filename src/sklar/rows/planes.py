"""Compiled counting kernels. Each stays in the thread that calls it and lets others run beside it.

Two layouts of a batch of rows. *Bits*: one bit per row and level, a row of words for each of the d levels; a cell of a
two-way table is the number of ones that two rows of words have in common. *Codes*: one number per row and attribute; a
table is a histogram. Which is cheaper depends on the sizes of the attributes (`sklar.rows.count`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sklar.machine.compiled import OFFSETS, compiled, population_count

# Four rows of this many words leave half of a first-level cache of 32 KiB to the rows that they are compared with.
_CHUNK = 512


@compiled(inline="never", nogil=True, boundscheck=False)
def _place(
    a: np.int64, b: np.int64, of: NDArray[np.int64], offsets: NDArray[np.int64], strips: NDArray[np.int64]
) -> np.int64:
    """Where two levels of different attributes meet in the flat vector of cells (`Cells.places_of`, in any order)."""
    a, b = min(a, b), max(a, b)
    i, j = of[a], of[b]
    height, width = offsets[i + 1] - offsets[i], offsets[j + 1] - offsets[j]
    table = strips[i] + height * (offsets[j] - offsets[i + 1])
    return np.int64(table + (a - offsets[i]) * width + b - offsets[j])


@compiled("void(int32[::1], uint64[:, ::1], int64[::1])", boundscheck=False)
def spread(codes: NDArray[np.int32], bits: NDArray[np.uint64], found: NDArray[np.int64]) -> None:
    """Write one attribute's codes (rows,) as bits, shape (size, >= words), and how many have each code, from -1 on.

    The rows that are in no cell take the place of the first level; the bits of that one are not written.
    """
    size = bits.shape[0]
    # Eight words of each level at a time: a line of the cache, written once.
    lines = np.empty((size + 1) * 8, dtype=np.uint64)
    found[:] = 0
    for start in range(0, codes.size, 512):
        part = codes[start : start + 512]
        lines[:] = 0
        # Rows of different words in turn: to write to a word again at once would wait for the write before.
        for bit in range(64):
            one = np.uint64(1) << np.uint64(bit)
            for word in range(8):
                row = 64 * word + bit
                if row < part.size:
                    lines[np.uint64(part[row] + 1) * np.uint64(8) + np.uint64(word)] |= one
        first, words = start // 64, (part.size + 63) // 64
        for level in range(size + 1):
            for word in range(words):
                line = lines[8 * level + word]
                found[level] += np.int64(population_count(line))
                if level != 1:
                    bits[max(level - 1, 0), first + word] = line


@compiled("int64(Array(uint8, 1, 'C', readonly=True), int64, uint64[::1], int64)", boundscheck=False)
def place(packed: NDArray[np.uint8], offset: int, bits: NDArray[np.uint64], rows: int) -> np.int64:
    """Write a column that is bits already, from bit `offset` on, as words, zeros behind it: how many are ones."""
    start, shift = offset // 8, offset % 8
    size, rest = (rows + 7) // 8, rows % 8
    source, out = packed[start:], bits.view(np.uint8)
    if shift == 0:
        out[:size] = source[:size]
    else:
        for byte in range(size):
            after = source[byte + 1] if byte + 1 < source.size else np.uint8(0)
            out[byte] = (source[byte] >> shift | after << (8 - shift)) & 255
    out[size:] = 0
    if rest:
        out[size - 1] &= (1 << rest) - 1
    total = np.uint64(0)
    for word in range(bits.size):
        total += population_count(bits[word])
    return np.int64(total)


@compiled(inline="never", nogil=True, boundscheck=False)
def _common(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> np.int64:
    """How many ones two rows of words share."""
    total = np.uint64(0)
    for word in range(a.size):
        total += population_count(a[word] & b[word])
    return np.int64(total)


@compiled(inline="never", nogil=True, boundscheck=False)
def _common_16(
    a0: NDArray[np.uint64],
    a1: NDArray[np.uint64],
    a2: NDArray[np.uint64],
    a3: NDArray[np.uint64],
    b0: NDArray[np.uint64],
    b1: NDArray[np.uint64],
    b2: NDArray[np.uint64],
    b3: NDArray[np.uint64],
) -> tuple[np.uint64, ...]:
    """The same for four rows with four others: every word that is loaded is used four times."""
    zero = np.uint64(0)
    s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = zero
    # Over slices that begin at 0: other indices turn loads into gathers.
    for word in range(a0.size):
        x0, x1, x2, x3 = a0[word], a1[word], a2[word], a3[word]
        y0, y1, y2, y3 = b0[word], b1[word], b2[word], b3[word]
        s00 += population_count(x0 & y0)
        s01 += population_count(x0 & y1)
        s02 += population_count(x0 & y2)
        s03 += population_count(x0 & y3)
        s10 += population_count(x1 & y0)
        s11 += population_count(x1 & y1)
        s12 += population_count(x1 & y2)
        s13 += population_count(x1 & y3)
        s20 += population_count(x2 & y0)
        s21 += population_count(x2 & y1)
        s22 += population_count(x2 & y2)
        s23 += population_count(x2 & y3)
        s30 += population_count(x3 & y0)
        s31 += population_count(x3 & y1)
        s32 += population_count(x3 & y2)
        s33 += population_count(x3 & y3)
    return s00, s01, s02, s03, s10, s11, s12, s13, s20, s21, s22, s23, s30, s31, s32, s33


@compiled(
    "void(uint64[:, ::1], int64, int64[::1], int64[::1], int64[::1], "
    f"{OFFSETS}, {OFFSETS}, {OFFSETS}, int64[::1], int32[::1])",
    boundscheck=False,
)
def add_bits(
    bits: NDArray[np.uint64],
    words: int,
    order: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    of: NDArray[np.int64],
    offsets: NDArray[np.int64],
    strips: NDArray[np.int64],
    tile: NDArray[np.int64],
    counts: NDArray[np.int32],
) -> None:
    """Add to the flat counts how many ones pairs of rows of `bits` (d, >= words) have in common.

    `of` is the attribute of each level, and `strips` where its tables begin (`Cells`). `order` lists the rows that take
    part; number p of it is paired with numbers low[p] to high[p], and of these pairs the `tile` (first p, end, first
    partner, end) is counted. Low must not fall along the order, nor high rise.
    """
    first, last, begin, end = tile[0], tile[1], tile[2], tile[3]
    for start in range(0, words, _CHUNK):
        stop = min(start + _CHUNK, words)
        for p in range(first, last, 4):
            left, right = end, end
            if p + 4 <= last:
                # The partners that all four share.
                left = min(max(low[p + 3], begin), end)
                right = max(min(high[p + 3], end), left)
                right -= (right - left) % 4
                for q in range(left, right, 4):
                    sums = _common_16(
                        bits[order[p], start:stop],
                        bits[order[p + 1], start:stop],
                        bits[order[p + 2], start:stop],
                        bits[order[p + 3], start:stop],
                        bits[order[q], start:stop],
                        bits[order[q + 1], start:stop],
                        bits[order[q + 2], start:stop],
                        bits[order[q + 3], start:stop],
                    )
                    for k in range(16):
                        at = _place(order[p + k // 4], order[q + k % 4], of, offsets, strips)
                        counts[at] += np.int32(sums[k])
            for row in range(p, min(p + 4, last)):
                a = order[row]
                for q in range(max(low[row], begin), min(high[row], end)):
                    if q < left or q >= right:
                        b = order[q]
                        counts[_place(a, b, of, offsets, strips)] += np.int32(
                            _common(bits[a, start:stop], bits[b, start:stop])
                        )


@compiled(inline="never", nogil=True, boundscheck=False)
def _add_table(
    a: NDArray[np.uint8] | NDArray[np.int32],
    b: NDArray[np.uint8] | NDArray[np.int32],
    height: int,
    width: int,
    scratch: NDArray[np.int32],
    at: int,
    counts: NDArray[np.int32],
) -> None:
    """Add the table of two columns of codes plus one, of so many levels each, to the flat counts from `at` on."""
    if (height + 1) * (width + 1) <= a.size:
        table = scratch[: (height + 1) * (width + 1)]
        table[:] = 0
        step = np.uint64(width + 1)
        for row in range(a.size):
            # Unsigned: a signed index would be tested for counting from the end.
            table[np.uint64(a[row]) * step + np.uint64(b[row])] += np.int32(1)
        for x in range(1, height + 1):
            for y in range(1, width + 1):
                counts[at] += table[x * (width + 1) + y]
                at += 1
    else:
        # A table of more cells than rows would be cleared and added in vain: its rows go straight to the counts.
        for row in range(a.size):
            if a[row] > 0 and b[row] > 0:
                counts[at + (np.int64(a[row]) - 1) * width + np.int64(b[row]) - 1] += np.int32(1)


@compiled(
    [
        f"void({code}[:, ::1], int64, int64[:, ::1], int64[:, ::1], int64[::1], int32[::1])"
        for code in ("uint8", "int32")
    ],
    boundscheck=False,
)
def add_codes(
    codes: NDArray[np.uint8] | NDArray[np.int32],
    rows: int,
    sets: NDArray[np.int64],
    shapes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    counts: NDArray[np.int32],
) -> None:
    """Add the tables of these sets of two or three columns, shape (k, order), to the flat counts at their offsets.

    `codes` has shape (columns, >= rows) and holds every code plus one: 0 is a row without a level. Three columns are
    two, of which the first has a level for every pair of levels of the first two.
    """
    order, largest = sets.shape[1], 0
    for k in range(sets.shape[0]):
        height = shapes[k, 0] * shapes[k, 1] if order == 3 else shapes[k, 0]
        largest = max(largest, (height + 1) * (shapes[k, order - 1] + 1))
    scratch = np.empty(min(largest, rows), dtype=np.int32)
    both = np.empty(rows if order == 3 else 0, dtype=np.int32)
    for k in range(sets.shape[0]):
        a, b, last = codes[sets[k, 0], :rows], codes[sets[k, 1], :rows], codes[sets[k, order - 1], :rows]
        height, width = shapes[k, 0], shapes[k, 1]
        if order == 2:
            _add_table(a, b, height, width, scratch, offsets[k], counts)
            continue
        if k == 0 or sets[k, 0] != sets[k - 1, 0] or sets[k, 1] != sets[k - 1, 1]:
            for row in range(rows):
                first, second = np.int64(a[row]), np.int64(b[row])
                both[row] = np.int32((first - 1) * width + second) if first > 0 and second > 0 else np.int32(0)
        _add_table(both, last, height * width, shapes[k, 2], scratch, offsets[k], counts)


@compiled(
    "void(uint64[:, ::1], int64, int64[:, ::1], int64[:, ::1], boolean[::1], int64[::1], int32[::1])", boundscheck=False
)
def add_threes(
    bits: NDArray[np.uint64],
    words: int,
    planes: NDArray[np.int64],
    shapes: NDArray[np.int64],
    full: NDArray[np.bool_],
    offsets: NDArray[np.int64],
    counts: NDArray[np.int32],
) -> None:
    """The same for small tables of three attributes on bits: `planes`, shape (k, 3), says where their levels begin.

    Where every row has a level of the last attribute (`full`), the first of these has what the others leave.
    """
    most = 0
    for k in range(planes.shape[0]):
        most = max(most, shapes[k, 0] * shapes[k, 1])
    both, ones = np.empty((most, _CHUNK), dtype=np.uint64), np.empty(most, dtype=np.int64)
    for start in range(0, words, _CHUNK):
        stop = min(start + _CHUNK, words)
        for k in range(planes.shape[0]):
            height, width = shapes[k, 0] * shapes[k, 1], shapes[k, 2]
            if k == 0 or planes[k, 0] != planes[k - 1, 0] or planes[k, 1] != planes[k - 1, 1]:
                for row in range(height):
                    a = bits[planes[k, 0] + row // shapes[k, 1], start:stop]
                    b = bits[planes[k, 1] + row % shapes[k, 1], start:stop]
                    for word in range(stop - start):
                        both[row, word] = a[word] & b[word]
                    ones[row] = _common(both[row, : stop - start], both[row, : stop - start])
            for row in range(height):
                rest, at = ones[row], offsets[k] + row * width
                for level in range(1, width):
                    found = _common(both[row, : stop - start], bits[planes[k, 2] + level, start:stop])
                    counts[at + level] += np.int32(found)
                    rest -= found
                if not full[k]:
                    rest = _common(both[row, : stop - start], bits[planes[k, 2], start:stop])
                counts[at] += np.int32(rest)


@compiled(f"void(int64, {OFFSETS}, {OFFSETS}, int64[::1], int64[::1], int64[::1], int32[::1])", boundscheck=False)
def complete(
    i: int,
    offsets: NDArray[np.int64],
    strips: NDArray[np.int64],
    reach: NDArray[np.int64],
    nowhere: NDArray[np.int64],
    one_way: NDArray[np.int64],
    counts: NDArray[np.int32],
) -> None:
    """Put the counts of first levels into attribute i's tables with later ones that were counted on bits.

    Those hold, in the place of the first level, the rows that stand in no cell of that attribute. All rows are in one
    of the levels or nowhere, so what a table's margin has beyond the others belongs to the first level: exact, for
    whole numbers. `reach` is the size up to which an attribute's partners were counted on bits (0: none), `nowhere` the
    number of rows in no cell of it, `one_way` all one-way tables, complete.
    """
    for j in range(i + 1, offsets.size - 1):
        height, width = offsets[i + 1] - offsets[i], offsets[j + 1] - offsets[j]
        if width > reach[i] or height > reach[j]:
            continue
        at = strips[i] + height * (offsets[j] - offsets[i + 1])
        table = counts[at : at + height * width]
        both = np.int64(table[0])
        second = nowhere[j] - both
        for x in range(1, height):
            rest = one_way[offsets[i] + x]
            for y in range(width):
                rest -= table[x * width + y]
            second -= table[x * width]
            table[x * width] = np.int32(rest)
        rest = one_way[offsets[i]] - second
        for y in range(1, width):
            cell = one_way[offsets[j] + y]
            for x in range(height):
                cell -= table[x * width + y]
            table[y] = np.int32(cell)
            rest -= cell
        table[0] = np.int32(rest)
