"""Boolean columns of a Parquet file, from its pages straight to the bits that are counted.

Parquet holds booleans eight to a byte, the first in the lowest bit: as Arrow does, and as the counting kernels do. Only
the plain kind is decoded here: columns that are not nested, data pages of both versions, values plain or in runs. Of
any other column, and of any that has something inconsistent about it, nothing is said here but None: Arrow reads it, or
refuses it. No size that the file states is believed: what is allocated is bounded by the number of rows, and that by
the bytes of the file (`_MOST`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sklar.threads import side_by_side

# As pyarrow names them, and the codec that takes their pages; LZ4 as Hadoop wrote it fails there, and is Arrow's.
_CODECS = {
    "UNCOMPRESSED": None,
    "SNAPPY": "snappy",
    "GZIP": "gzip",
    "BROTLI": "brotli",
    "ZSTD": "zstd",
    "LZ4": "lz4_raw",
    "LZ4_RAW": "lz4_raw",
}
# The columns decoded at once may take so many bytes, or so many times what they take in the file.
_MOST, _TIMES = 1 << 28, 4
# So many values are read sooner than threads begin; others in so many parts.
_ALONE, _PARTS = 1 << 22, 16
# So many pages are decompressed at a time.
_PAGES = 64
_NONE, _SNAPPY, _OTHER = range(3)
_PACKINGS = {None: _NONE, "snappy": _SNAPPY}
# Codecs that do not say when a body is shorter than expected.
_UNSURE = ("gzip", "brotli", "lz4_raw")
_PLAIN, _RUNS = 0, 3
_STRUCT, _I32 = 12, 5

_bytes = numba.types.Array(numba.uint8, 1, "C", readonly=True)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of booleans: its number among the columns of the file, and whether it may hold nulls."""

    index: int
    optional: bool


def boolean_leaves(file: Any) -> dict[str, Leaf]:
    """The columns of an open Parquet file that are booleans and not nested, by name."""
    leaves, schema = {}, file.schema
    for index in range(len(schema)):
        column = schema.column(index)
        # The path of a nested column is longer than its name. A name may hold dots.
        if column.physical_type == "BOOLEAN" and column.path == column.name and column.max_repetition_level == 0:
            leaves[column.name] = Leaf(index, column.max_definition_level == 1)
    return leaves


def read_columns(stream: Any, groups: Sequence[Any], leaves: dict[str, Leaf]) -> dict[str, pa.BooleanArray]:
    """The columns of these row groups (their metadata) that are of the plain kind. `stream` is the open file."""
    names = list(leaves)

    def read(part: list[str]) -> list[pa.BooleanArray | None]:
        return [read_column(stream, groups, leaves[name], len(names)) for name in part]

    if len(names) * sum(group.num_rows for group in groups) < _ALONE:
        columns = read(names)
    else:
        parts = [names[start::_PARTS] for start in range(_PARTS)]
        names = [name for part in parts for name in part]
        columns = [column for part in side_by_side(read, parts) for column in part]
    return {name: column for name, column in zip(names, columns, strict=True) if column is not None}


def read_column(stream: Any, groups: Sequence[Any], leaf: Leaf, share: int = 1) -> pa.BooleanArray | None:
    """A column of these row groups, None where it is not of the plain kind; one of `share` that are held together."""
    total = sum(group.num_rows for group in groups)
    chunks = []
    try:
        for group in groups:
            chunk = group.column(leaf.index)
            if chunk.num_values != group.num_rows or chunk.has_dictionary_page or chunk.file_path:
                return None
            chunks.append((chunk.data_page_offset, chunk.total_compressed_size, chunk.num_values, chunk.compression))
        held, end = sum(size for _, size, _, _ in chunks), stream.size()
        if any(at < 4 or size <= 0 or at + size > end or rows <= 0 for at, size, rows, _ in chunks):
            return None
        if total > 8 * max(_MOST // share, _TIMES * held):
            return None
        bits = np.zeros(-(-total // 8), dtype=np.uint8)
        valid = np.zeros(bits.size if leaf.optional else 0, dtype=np.uint8)
        start, nulls = 0, 0
        for at, size, rows, compression in chunks:
            found = _decode(stream.read_at(size, at), rows, compression, bits, valid, start, nulls)
            if found is None:
                return None
            start, nulls = start + rows, found
    except (pa.ArrowException, OSError, ValueError):
        return None
    buffers = [pa.py_buffer(valid) if nulls else None, pa.py_buffer(bits)]
    return pa.Array.from_buffers(pa.bool_(), total, buffers, null_count=nulls)


def _decode(
    chunk: bytes,
    rows: int,
    compression: str,
    bits: NDArray[np.uint8],
    valid: NDArray[np.uint8],
    start: int,
    nulls: int,
) -> int | None:
    """Write a chunk's values from row `start` on, as `put_pages` does; None where it is not of the plain kind."""
    if compression not in _CODECS:
        return None
    codec = _CODECS[compression]
    data, pages = np.frombuffer(chunk, dtype=np.uint8), np.empty((_PAGES, 8), dtype=np.int64)
    at = seen = 0
    while seen < rows:
        found = pages[: find_pages(data, at, rows - seen, _PACKINGS.get(codec, _OTHER), pages)]
        if found.size == 0:
            return None
        at = int(found[-1, 0] + found[-1, 1])
        bodies = data if codec is None else np.frombuffer(_unpacked(codec, chunk, found), dtype=np.uint8)
        nulls = put_pages(bodies, found, bits, valid, start + seen, nulls)
        if nulls < 0:
            return None
        seen += int(found[:, 3].sum())
    return nulls if at == len(chunk) else None


def _unpacked(codec: str, chunk: bytes, pages: NDArray[np.int64]) -> bytes:
    """The bodies of pages, one after the other; where they begin is put in the place of where they began.

    Each must have exactly the bytes that its header states: pyarrow leaves those that are lacking as they were.
    """
    unpack = pa.Codec(codec).decompress
    parts = []
    for at, size, full, _, _, levels, _, packed in pages.tolist():
        if not packed:
            parts.append(chunk[at : at + size])
            continue
        if levels > 0:
            parts.append(chunk[at : at + levels])
            at, size, full = at + levels, size - levels, full - levels
        body = chunk[at : at + size]
        if codec in _UNSURE:
            try:
                unpack(body, full - 1)
            except OSError:
                pass
            else:
                raise ValueError("a page is shorter than its header says.")
        parts.append(unpack(body, full, asbytes=True))
    pages[:, 0] = np.cumsum(pages[:, 2]) - pages[:, 2]
    return b"".join(parts)


@numba.njit(nogil=True, boundscheck=False)
def _varint(data: NDArray[np.uint8], at: int, longest: int) -> tuple[Any, Any]:
    """The number at a byte, and the byte after it; -1 where it does not end."""
    value = np.uint64(0)
    for place in range(longest):
        if at + place >= data.size:
            return np.int64(0), -1
        byte = data[at + place]
        value |= np.uint64(byte & 0x7F) << np.uint64(7 * place)
        if byte < 0x80:
            return np.int64(value), at + place + 1
    return 0, -1


@numba.njit(nogil=True, boundscheck=False)
def _header(data: NDArray[np.uint8], at: int, page: NDArray[np.int64]) -> bool:
    """Read the page header at a byte into a row of `find_pages`: whether it is of the plain kind.

    The header is a struct of Thrift's compact protocol; it nests structs only. Fields of another type than Parquet's
    are passed over, as Arrow does.
    """
    path = np.zeros(5, dtype=np.int64)
    # Fields of the header, of the header of a page of version 1, and of version 2; -1 where absent.
    fields = np.full((3, 9), -1, dtype=np.int64)
    depth = 0
    while True:
        if at >= data.size:
            return False
        head: Any = np.int64(data[at])
        at += 1
        if head == 0:
            if depth == 0:
                break
            depth -= 1
            continue
        kind = head & 15
        if head >> 4:
            path[depth] += head >> 4
        else:
            value, at = _varint(data, at, 3)
            path[depth] = value >> 1
            if at < 0 or value & 1:
                return False
        number = path[depth]
        value = 2 - kind
        if kind == 0 or number > 32_767:
            return False
        if kind == _STRUCT:
            # Of the headers inside, only those of data pages.
            if (depth == 0 and number != 5 and number != 8) or depth == 4:
                return False
            if depth == 0:
                fields[1 if number == 5 else 2, 0] = 0
            depth += 1
            path[depth] = 0
            continue
        if kind in (4, 5, 6):
            value, at = _varint(data, at, 10 if kind == 6 else 5)
            value = (value >> 1) ^ -(value & 1)
        elif kind == 8:
            size, at = _varint(data, at, 5)
            if at < 0 or size < 0 or size > data.size - at:
                return False
            at += size
        elif kind == 3 or kind == 7:
            at += 1 if kind == 3 else 8
        elif kind > 2:
            return False
        if at < 0 or at > data.size:
            return False
        if number < 1 or number > 8:
            continue
        if kind == _I32 or (kind <= 2 and depth == 1 and path[0] == 8 and number == 7):
            if value < 0 and not (depth == 0 and number == 4):
                return False
            if depth == 0:
                fields[0, number] = value
            elif depth == 1:
                fields[1 if path[0] == 5 else 2, number] = value
    page[0], page[1], page[2] = at, fields[0, 3], fields[0, 2]
    if fields[0, 1] == 0 and fields[2].max() < 0 and fields[1, 1:5].min() >= 0:
        page[3], page[4] = fields[1, 1], fields[1, 2]
        page[5], page[6], page[7] = -1 if fields[1, 3] == _RUNS else -2, -1, 1
        return True
    if fields[0, 1] == 3 and fields[1].max() < 0 and fields[2, 1:7].min() >= 0:
        page[3], page[4] = fields[2, 1], fields[2, 4]
        page[5], page[6], page[7] = fields[2, 5], fields[2, 2], abs(fields[2, 7])
        # Nothing is repeated: a row to a value, and no levels that say otherwise.
        return bool(fields[2, 3] == fields[2, 1] and fields[2, 6] == 0)
    return False


@numba.njit(
    numba.int64(_bytes, numba.int64, numba.int64, numba.int64, numba.int64[:, ::1]),
    cache=True,
    nogil=True,
    boundscheck=False,
)
def find_pages(data: NDArray[np.uint8], at: int, rows: int, packing: int, pages: NDArray[np.int64]) -> int:
    """Find the pages from a byte on, until they have so many rows or `pages` is full: how many, 0 if any is not plain.

    A row of `pages` is: the byte where its body begins, its bytes here and when decompressed, values, encoding, bytes
    of levels before the values (-1: its body says how many, -2: not in runs), nulls (-1: not said), and whether it is
    compressed. Postcondition: bodies lie inside of `data`, levels inside of bodies, no decompressed body is larger than
    four bits a value and 64 bytes, and one that is not compressed has the same size both ways.
    """
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
        if packing == _NONE:
            page[7] = 0
        if not page[7] and size != full:
            return 0
        if packing == _SNAPPY and page[7]:
            stated, after = _varint(data, begin + before, 5)
            if after < 0 or stated != full - before:
                return 0
        at, rows = begin + size, rows - count
        if rows == 0:
            return found + 1
    return len(pages)


@numba.njit(nogil=True, boundscheck=False)
def _copy(source: NDArray[np.uint8], count: int, out: NDArray[np.uint8], at: int) -> None:
    """Write the first bits of `source` from bit `at` of `out` on, where all bits are 0."""
    shift, first, whole, rest = at & 7, at >> 3, count >> 3, count & 7
    if shift == 0:
        out[first : first + whole] = source[:whole]
    elif whole:
        into = out[first : first + whole]
        into[0] |= (source[0] << shift) & 255
        for byte in range(1, whole):
            into[byte] = (source[byte] << shift | source[byte - 1] >> (8 - shift)) & 255
        out[first + whole] = source[whole - 1] >> (8 - shift)
    if rest:
        last = source[whole] & ((1 << rest) - 1)
        out[first + whole] |= (last << shift) & 255
        if shift + rest > 8:
            out[first + whole + 1] |= last >> (8 - shift)


@numba.njit(nogil=True, boundscheck=False)
def _fill(count: int, out: NDArray[np.uint8], at: int) -> None:
    """Write ones from bit `at` of `out` on."""
    end = at + count
    while at < end and at & 7:
        out[at >> 3] |= 1 << (at & 7)
        at += 1
    out[at >> 3 : end >> 3] = 255
    at = max(at, end & ~7)
    while at < end:
        out[at >> 3] |= 1 << (at & 7)
        at += 1


@numba.njit(nogil=True, boundscheck=False)
def _ones(source: NDArray[np.uint8], count: int) -> int:
    """How many of the first bits are ones."""
    total = 0
    for byte in range((count + 7) >> 3):
        pairs: Any = np.int64(source[byte]) & (1 << min(count - 8 * byte, 8)) - 1
        pairs -= pairs >> 1 & 0x55
        fours = (pairs & 0x33) + (pairs >> 2 & 0x33)
        total += (fours + (fours >> 4)) & 0x0F
    return total


@numba.njit(nogil=True, boundscheck=False)
def _runs(data: NDArray[np.uint8], count: int, out: NDArray[np.uint8], at: int) -> int:
    """Write bits that are held in runs from bit `at` of `out` on: how many are ones, -1 where something is wrong."""
    ones = byte = 0
    while count:
        head, byte = _varint(data, byte, 5)
        if byte < 0 or head < 2 or head >= 1 << 31:
            return -1
        if head & 1:
            # Eight values to a byte.
            size = head >> 1
            if size > data.size - byte:
                return -1
            taken = min(8 * size, count)
            _copy(data[byte : byte + size], taken, out, at)
            ones += _ones(data[byte : byte + size], taken)
            byte += size
        else:
            taken = min(head >> 1, count)
            if byte >= data.size or data[byte] > 1:
                return -1
            if data[byte]:
                _fill(taken, out, at)
                ones += taken
            byte += 1
        at += taken
        count -= taken
    return ones


@numba.njit(nogil=True, boundscheck=False)
def _length(body: NDArray[np.uint8]) -> Any:
    """The four bytes that a part of a page begins with, -1 where they are not there."""
    if body.size < 4:
        return -1
    return np.int64(body[0]) | np.int64(body[1]) << 8 | np.int64(body[2]) << 16 | np.int64(body[3]) << 24


@numba.njit(nogil=True, boundscheck=False)
def _scatter(plain: NDArray[np.uint8], count: int, bits: NDArray[np.uint8], valid: NDArray[np.uint8], at: int) -> None:
    """Write bits in order to the places of `count` that are valid, from bit `at` on."""
    taken = 0
    for row in range(at, at + count):
        if valid[row >> 3] >> (row & 7) & 1:
            bits[row >> 3] |= (plain[taken >> 3] >> (taken & 7) & 1) << (row & 7)
            taken += 1


@numba.njit(nogil=True, boundscheck=False)
def _levels(data: NDArray[np.uint8], count: int, valid: NDArray[np.uint8], at: int, nulls: int) -> int:
    """Write which of a page's values are not null: how many, -1 where something is wrong; `nulls` came before."""
    head, byte = _varint(data, 0, 5)
    if 0 < byte < data.size and data[byte] == 1 and head & 1 == 0 and count <= head >> 1 < 1 << 30:
        if nulls:
            _fill(count, valid, at)
        return count
    if not nulls:
        _fill(at, valid, 0)
    return _runs(data, count, valid, at)


@numba.njit(nogil=True, boundscheck=False)
def _values(
    body: NDArray[np.uint8],
    count: int,
    present: int,
    encoding: int,
    bits: NDArray[np.uint8],
    valid: NDArray[np.uint8],
    at: int,
) -> bool:
    """Write a page's values, of which so many are not null: whether they are all there."""
    if encoding == _RUNS:
        length = _length(body)
        if length < 0 or length > body.size - 4:
            return False
        runs = body[4 : 4 + length]
        if present == count:
            return _runs(runs, count, bits, at) >= 0
        plain = np.zeros((present + 7) // 8, dtype=np.uint8)
        if _runs(runs, present, plain, 0) < 0:
            return False
        _scatter(plain, count, bits, valid, at)
        return True
    if encoding != _PLAIN or body.size < (present + 7) // 8:
        return False
    if present == count:
        _copy(body, count, bits, at)
    else:
        _scatter(body, count, bits, valid, at)
    return True


@numba.njit(
    numba.int64(_bytes, numba.int64[:, ::1], numba.uint8[::1], numba.uint8[::1], numba.int64, numba.int64),
    cache=True,
    nogil=True,
    boundscheck=False,
)
def put_pages(
    bodies: NDArray[np.uint8],
    pages: NDArray[np.int64],
    bits: NDArray[np.uint8],
    valid: NDArray[np.uint8],
    at: int,
    nulls: int,
) -> int:
    """Write the values of pages, whose bodies are decompressed, from bit `at` on; so many before them were null.

    How many are null by now, -1 where a page is not of the plain kind or too short for its values. All bits from `at`
    on must be 0, and enough for the values of all pages; nothing is written past them. `valid` is empty where nothing
    can be null, and is not complete as long as nothing is.
    """
    for page in pages:
        begin, full, count, encoding, levels, stated = page[0], page[2], page[3], page[4], page[5], page[6]
        body, present = bodies[begin : begin + full], count
        if valid.size:
            if levels == -1:
                levels = _length(body)
                body = body[4:]
            if levels < 0 or levels > body.size:
                return -1
            present = _levels(body[:levels], count, valid, at, nulls)
            body = body[levels:]
        elif levels > 0:
            return -1
        if present < 0 or (stated >= 0 and stated != count - present):
            return -1
        if not _values(body, count, present, encoding, bits, valid, at):
            return -1
        at += count
        nulls += count - present
    return nulls
