"""Where the pages of a Parquet file's columns lie, by its footer and its page headers, as compiled code reads them.

Both are structs of Thrift's compact protocol (`files.thrift` reads and writes any of them, one at a time; a wide table
has a hundred thousand). Nothing that they state is believed but what the postconditions say. Fields of another type
than Parquet's are passed over, as Arrow does.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

NONE, SNAPPY, GZIP, BROTLI, ZSTD, LZ4_RAW = 0, 1, 2, 4, 6, 7
RUNS = 3
_DEEPEST = 16
# Types of the protocol.
_TRUTH, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 2, 3, 4, 5, 6, 7, 8, 9, 10, 12

# Fields that are numbers, by their types: of a chunk's description, and of the headers of data pages.
_CHUNK = np.array([0, _I32, 0, 0, _I32, _I64, 0, _I64, 0, _I64, 0, _I64])
_PAGE_1 = np.array([0, _I32, _I32, _I32, _I32, 0, 0, 0])
_PAGE_2 = np.array([0, _I32, _I32, _I32, _I32, _I32, _I32, _TRUTH])
_ABSENT = -(1 << 62)

readonly_bytes = numba.types.Array(numba.uint8, 1, "C", readonly=True)


@numba.njit(nogil=True, boundscheck=True)
def varint(data: NDArray[np.uint8], at: int, longest: int) -> tuple[Any, Any]:
    """The number at a byte, and the byte after it; -1 where it does not end."""
    value = np.uint64(0)
    for place in range(longest):
        if at + place >= data.size:
            return np.int64(0), -1
        byte = data[at + place]
        value |= np.uint64(byte & 0x7F) << np.uint64(7 * place)
        if byte < 0x80:
            return np.int64(value), at + place + 1
    return np.int64(0), -1


@numba.njit(nogil=True, boundscheck=True)
def _field(data: NDArray[np.uint8], at: int, before: int) -> tuple[Any, Any, Any]:
    """The type of a struct's next field (0: its end), its number, where its value begins; -1 where it is none."""
    if at < 0 or at >= data.size:
        return 0, 0, -1
    head: Any = np.int64(data[at])
    at, kind, number = at + 1, head & 15, before + (head >> 4)
    if head == 0:
        return 0, 0, at
    if head >> 4 == 0:
        value, at = varint(data, at, 3)
        number = value >> 1
        if value & 1:
            at = -1
    if kind == 0 or number > 32_767:
        at = -1
    return kind, number, at


@numba.njit(nogil=True, boundscheck=True)
def _elements(data: NDArray[np.uint8], at: int) -> tuple[Any, Any, Any]:
    """The type of a list's elements, how many there are, where they begin; -1 where there cannot be so many."""
    if at < 0 or at >= data.size:
        return 0, 0, -1
    head: Any = np.int64(data[at])
    at, kind, size = at + 1, head & 15, head >> 4
    if size == 15:
        size, at = varint(data, at, 5)
    if size > data.size - at:
        at = -1
    return kind, size, at


@numba.njit(nogil=True, boundscheck=True)
def _after(data: NDArray[np.uint8], at: int, kind: int) -> int:
    """The byte after a value that is no list and no struct; -1 where it is none."""
    if kind == _BINARY:
        size, at = varint(data, at, 5)
        if at < 0 or size > data.size - at:
            return -1
        at += size
    elif kind in (_I16, _I32, _I64):
        _, at = varint(data, at, 10)
    elif kind in (_BYTE, _DOUBLE):
        at += 1 if kind == _BYTE else 8
    elif kind > _TRUTH:
        return -1
    return at if at <= data.size else -1


@numba.njit(nogil=True, boundscheck=True)
def _skip(data: NDArray[np.uint8], at: int, kind: int) -> int:
    """The byte after a value; -1 where it is none."""
    if kind not in (_LIST, _SET, _STRUCT):
        return _after(data, at, kind)
    # The lists and structs that are open: the type of their elements, and how many are left (-1: a struct).
    kinds, left, depth = np.zeros(_DEEPEST, dtype=np.int64), np.zeros(_DEEPEST, dtype=np.int64), -1
    while True:
        if kind in (_LIST, _SET, _STRUCT):
            depth += 1
            if depth == _DEEPEST:
                return -1
            left[depth] = -1
            if kind != _STRUCT:
                kind, left[depth], at = _elements(data, at)
                # A truth value of a list takes a byte, that of a struct none.
                kinds[depth] = max(kind, _BYTE)
        else:
            at = _after(data, at, kind)
        if at < 0:
            return -1
        kind = 0
        while depth >= 0 and kind == 0:
            if left[depth] < 0:
                kind, _, at = _field(data, at, 0)
                if at < 0:
                    return -1
            elif left[depth] > 0:
                left[depth] -= 1
                kind = kinds[depth]
            if kind == 0:
                depth -= 1
        if depth < 0:
            return at


@numba.njit(nogil=True, boundscheck=True)
def _numbers(data: NDArray[np.uint8], at: int, kinds: NDArray[np.int64], out: NDArray[np.int64]) -> int:
    """Take the numbers of a struct whose types are these, by field: the byte after it, -1 where it is none."""
    number = 0
    while True:
        kind, number, at = _field(data, at, number)
        if at < 0 or kind == 0:
            return at
        if number >= kinds.size or kinds[number] != max(kind, _TRUTH):
            at = _skip(data, at, kind)
        elif kind <= _TRUTH:
            out[number] = 2 - kind
        else:
            value, at = varint(data, at, 10 if kind == _I64 else 5)
            out[number] = (value >> 1 & 0x7FFF_FFFF_FFFF_FFFF) ^ -(value & 1)


@numba.njit(nogil=True, boundscheck=True)
def _chunk(data: NDArray[np.uint8], at: int, chunk: NDArray[np.int64]) -> int:
    """Read the footer's words about a chunk into a row of `find_chunks`: the byte after them, -1 for none."""
    fields = np.full(_CHUNK.size, _ABSENT, dtype=np.int64)
    number, plain = 0, 1
    while True:
        kind, number, at = _field(data, at, number)
        if at < 0:
            return -1
        if kind == 0:
            break
        if number == 3 and kind == _STRUCT:
            at = _numbers(data, at, _CHUNK, fields)
        else:
            # In another file, or encrypted.
            if number == 1 or number > 7:
                plain = 0
            at = _skip(data, at, kind)
    # A dictionary.
    if fields[11] != _ABSENT:
        plain = 0
    chunk[0], chunk[1], chunk[2] = fields[9], fields[7], fields[5]
    chunk[3], chunk[4] = fields[4], plain if fields[1] == 0 else 0
    return at


@numba.njit(numba.int64(readonly_bytes, numba.int64[:, :, ::1]), cache=True, nogil=True, boundscheck=True)
def find_chunks(footer: NDArray[np.uint8], chunks: NDArray[np.int64]) -> int:
    """Read a footer's words about the column chunks, shape (row groups, columns, 5): 1 if there are just so many.

    A row of `chunks` is: the byte where its first page begins, its bytes, values, codec, and 1 where it holds booleans
    in this file, without a dictionary and not encrypted. Any of them may be absurd.
    """
    at = number = groups = 0
    while True:
        kind, number, at = _field(footer, at, number)
        if at < 0:
            return 0
        if kind == 0:
            return 1 if groups == chunks.shape[0] else 0
        if number != 4 or kind != _LIST:
            at = _skip(footer, at, kind)
            continue
        kind, size, at = _elements(footer, at)
        if at < 0 or kind != _STRUCT or size != chunks.shape[0] or groups:
            return 0
        groups = size
        for group in range(size):
            inside = columns = 0
            while True:
                kind, inside, at = _field(footer, at, inside)
                if at < 0:
                    return 0
                if kind == 0:
                    break
                if inside != 1 or kind != _LIST:
                    at = _skip(footer, at, kind)
                    continue
                kind, width, at = _elements(footer, at)
                if at < 0 or kind != _STRUCT or width != chunks.shape[1] or columns:
                    return 0
                columns = width
                for column in range(width):
                    at = _chunk(footer, at, chunks[group, column])
            if columns != chunks.shape[1]:
                return 0


@numba.njit(nogil=True, boundscheck=True)
def _header(data: NDArray[np.uint8], at: int, page: NDArray[np.int64]) -> bool:
    """Read the page header at a byte into a row of `find_pages`: whether it is of the plain kind."""
    fields = np.full((3, 8), _ABSENT, dtype=np.int64)
    number = 0
    while True:
        kind, number, at = _field(data, at, number)
        if at < 0:
            return False
        if kind == 0:
            break
        if kind == _STRUCT:
            # Of the headers inside, only that of a data page.
            if number != 5 and number != 8:
                return False
            version = 1 if number == 5 else 2
            fields[version, 0] = 1
            at = _numbers(data, at, _PAGE_1 if version == 1 else _PAGE_2, fields[version])
        elif kind == _I32 and number <= 3:
            value, at = varint(data, at, 5)
            fields[0, number] = (value >> 1) ^ -(value & 1)
        else:
            at = _skip(data, at, kind)
    page[0], page[1], page[2] = at, fields[0, 3], fields[0, 2]
    one, two = fields[1], fields[2]
    if fields[0, 1] == 0 and two[0] < 0 and one[:5].min() >= 0:
        page[3], page[4] = one[1], one[2]
        page[5], page[6], page[7] = -1 if one[3] == RUNS else -2, -1, 1
        return True
    if fields[0, 1] == 3 and one[0] < 0 and two[:7].min() >= 0:
        page[3], page[4] = two[1], two[4]
        page[5], page[6], page[7] = two[5], two[2], 0 if two[7] == 0 else 1
        # Nothing is repeated: a row to a value, and no levels that say otherwise.
        return bool(two[3] == two[1] and two[6] == 0)
    return False


@numba.njit(
    numba.int64(readonly_bytes, numba.int64, numba.int64, numba.int64, numba.int64[:, ::1]),
    cache=True,
    nogil=True,
    boundscheck=True,
)
def find_pages(data: NDArray[np.uint8], at: int, rows: int, codec: int, pages: NDArray[np.int64]) -> int:
    """Find the pages from a byte on, until they have so many rows or `pages` is full: how many, 0 if any is not plain.

    A row of `pages` is: the byte where its body begins, its bytes here and when decompressed, values, encoding, bytes
    of levels before the values (-1: its body says how many, -2: not in runs), nulls (-1: not said), whether it is
    compressed, and the values of all pages so far. Postcondition: bodies lie inside of `data`, levels inside of bodies,
    no decompressed body is larger than four bits a value and 64 bytes, and one that is not compressed has the same size
    both ways.
    """
    wanted = rows
    for found in range(pages.shape[0]):
        page = pages[found]
        if not _header(data, at, page):
            return 0
        begin, size, full, count, before = page[0], page[1], page[2], page[3], max(page[5], 0)
        # Values and levels take a bit each. A size that is absent is negative.
        if size < 0 or size > data.size - begin or count < 1 or count > rows:
            return 0
        if full > count // 2 + 64 or before > min(size, full):
            return 0
        if codec == NONE:
            page[7] = 0
        if not page[7] and size != full:
            return 0
        if codec == SNAPPY and page[7]:
            stated, after = varint(data, begin + before, 5)
            if after < 0 or stated != full - before:
                return 0
        at, rows = begin + size, rows - count
        page[8] = wanted - rows
        if rows == 0:
            return found + 1
    return len(pages)
