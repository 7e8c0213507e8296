"""Boolean columns of a Parquet file, from its pages straight to the bits that are counted.

Parquet holds booleans eight to a byte, the first in the lowest bit: as Arrow does, and as the counting kernels do. Only
the plain kind is decoded here: columns that are not nested, data pages of both versions, values plain or in runs. Of
any other column, and of any that has something inconsistent about it, nothing is said here: Arrow reads it, or refuses
it. No size that the file states is believed: what is allocated is bounded by the number of values, and that by
the bytes of the file (`_MOST`); and what reads the file's words checks every index besides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sklar.machine.threads import side_by_side
from sklar.rows.pages import (
    BROTLI,
    GZIP,
    LZ4_RAW,
    NONE,
    RUNS,
    SNAPPY,
    ZSTD,
    find_chunks,
    find_pages,
    readonly_bytes,
    varint,
)

# LZ4 as Hadoop writes it is left to Arrow.
_CODECS = {NONE: None, SNAPPY: "snappy", GZIP: "gzip", BROTLI: "brotli", ZSTD: "zstd", LZ4_RAW: "lz4_raw"}
# Those that do not say when a body is shorter than expected.
_UNSURE = (GZIP, BROTLI, LZ4_RAW)
# The columns decoded at once may take so many bytes, or so many times those of the file.
_MOST, _TIMES = 1 << 28, 4
# So many values are read sooner than threads begin; others in so many parts.
_ALONE, _PARTS = 1 << 22, 16
# So many pages are decompressed at a time.
_PAGES = 64
_PLAIN = 0


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column's number among all of the file, and whether it may hold nulls."""

    index: int
    optional: bool


class Booleans:
    """Those columns of a Parquet file, of these names, that hold booleans and are not nested; `stream` is its bytes."""

    def __init__(self, stream: Any, file: Any, names: Collection[str]) -> None:
        self._stream, self._end = stream, stream.size()
        self._leaves = {name: leaf for name, leaf in _leaves(file.schema) if name in names}
        metadata = file.metadata
        self._rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._chunks = np.zeros((len(self._rows), metadata.num_columns, 5), dtype=np.int64)
        try:
            known = bool(self._leaves) and find_chunks(self._footer(), self._chunks)
        except IndexError:
            known = False
        if not known:
            self._leaves = {}

    def read(self, groups: list[int]) -> dict[str, pa.BooleanArray]:
        """The columns of these row groups, those left out that are not of the plain kind."""
        names = list(self._leaves)
        chunks = self._chunks[groups].swapaxes(0, 1).tolist()
        rows = [self._rows[group] for group in groups]
        if len(names) * sum(rows) > 8 * max(_MOST, _TIMES * self._end):
            return {}

        def part(some: list[str]) -> list[pa.BooleanArray | None]:
            leaves = [self._leaves[name] for name in some]
            return [self._column(chunks[leaf.index], rows, optional=leaf.optional) for leaf in leaves]

        if len(names) * sum(rows) < _ALONE:
            columns = part(names)
        else:
            parts = [names[start::_PARTS] for start in range(_PARTS)]
            names = [name for some in parts for name in some]
            columns = [column for some in side_by_side(part, parts) for column in some]
        return {name: column for name, column in zip(names, columns, strict=True) if column is not None}

    def _footer(self) -> NDArray[np.uint8]:
        """The file's words about itself, which pyarrow has found sound."""
        tail = self._stream.read_at(8, self._end - 8)
        size = int.from_bytes(tail[:4], "little")
        plain = tail[4:] == b"PAR1" and size <= self._end - 8
        return np.frombuffer(self._stream.read_at(size, self._end - 8 - size) if plain else b"", dtype=np.uint8)

    def _column(self, chunks: list[list[int]], rows: list[int], *, optional: bool) -> pa.BooleanArray | None:
        for (at, size, values, codec, plain), expected in zip(chunks, rows, strict=True):
            if not plain or values != expected or values <= 0 or codec not in _CODECS:
                return None
            if at < 4 or not 0 < size <= self._end - at:
                return None
        total = sum(rows)
        bits = np.zeros(-(-total // 8), dtype=np.uint8)
        valid = np.zeros(bits.size if optional else 0, dtype=np.uint8)
        start = nulls = 0
        for at, size, values, codec, _ in chunks:
            try:
                nulls = _decode(self._stream.read_at(size, at), values, codec, bits, valid, start, nulls)
            except (pa.ArrowException, OSError, ValueError, IndexError):
                return None
            if nulls < 0:
                return None
            start += values
        buffers = [pa.py_buffer(valid) if nulls else None, pa.py_buffer(bits)]
        return pa.Array.from_buffers(pa.bool_(), total, buffers, null_count=nulls)


def _leaves(schema: Any) -> Iterator[tuple[str, _Leaf]]:
    for index in range(len(schema)):
        column = schema.column(index)
        # The path of a nested column is longer than its name. A name may hold dots.
        if column.physical_type == "BOOLEAN" and column.path == column.name and column.max_repetition_level == 0:
            yield column.name, _Leaf(index, column.max_definition_level == 1)


def _decode(
    chunk: bytes,
    rows: int,
    codec: int,
    bits: NDArray[np.uint8],
    valid: NDArray[np.uint8],
    start: int,
    nulls: int,
) -> int:
    """Write a chunk's values from row `start` on, as `put_pages` does: -1 where it is not of the plain kind."""
    data, pages = np.frombuffer(chunk, dtype=np.uint8), np.empty((_PAGES, 9), dtype=np.int64)
    at = seen = 0
    while seen < rows:
        found = pages[: find_pages(data, at, rows - seen, codec, pages)]
        if found.size == 0:
            return -1
        bodies = data if codec == NONE else np.frombuffer(_unpacked(codec, chunk, found), dtype=np.uint8)
        nulls = put_pages(bodies, found, bits, valid, start + seen, nulls, codec)
        if nulls < 0:
            return -1
        at, seen = int(found[-1, 0] + found[-1, 1]), seen + int(found[-1, 8])
    return nulls if at == len(chunk) else -1


def _unpacked(codec: int, chunk: bytes, pages: NDArray[np.int64]) -> bytes:
    """The bodies of pages, one after the other.

    Each must have exactly the bytes that its header states: pyarrow leaves those that are lacking as they were.
    """
    unpack = pa.Codec(_CODECS[codec]).decompress
    parts = []
    for at, size, full, _, _, levels, _, packed, _ in pages.tolist():
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
    return b"".join(parts)


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


@numba.njit(nogil=True, boundscheck=True)
def _runs(data: NDArray[np.uint8], count: int, out: NDArray[np.uint8], at: int) -> int:
    """Write bits that are held in runs from bit `at` of `out` on: how many are ones, -1 where something is wrong."""
    ones = byte = 0
    while count:
        head, byte = varint(data, byte, 5)
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


@numba.njit(nogil=True, boundscheck=True)
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


@numba.njit(nogil=True, boundscheck=True)
def _levels(data: NDArray[np.uint8], count: int, valid: NDArray[np.uint8], at: int, nulls: int) -> int:
    """Write which of a page's values are not null: how many, -1 where something is wrong; `nulls` came before."""
    head, byte = varint(data, 0, 5)
    if 0 < byte < data.size and data[byte] == 1 and head & 1 == 0 and count <= head >> 1 < 1 << 30:
        if nulls:
            _fill(count, valid, at)
        return count
    if not nulls:
        _fill(at, valid, 0)
    return _runs(data, count, valid, at)


@numba.njit(nogil=True, boundscheck=True)
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
    if encoding == RUNS:
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
    numba.int64(
        readonly_bytes, numba.int64[:, ::1], numba.uint8[::1], numba.uint8[::1], numba.int64, numba.int64, numba.int64
    ),
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
    codec: int,
) -> int:
    """Write the values of pages from bit `at` on, so many before them being null: how many are by now.

    `bodies` are the bytes that the pages were found in or, where there is a codec, the decompressed bodies one after
    the other. All bits from `at` on must be 0, and enough for the values of all pages; nothing is written past them.
    `valid` is empty where nothing can be null, and is not complete as long as nothing is. -1 where a page is not of the
    plain kind, or too short for its values.
    """
    begin = 0
    for page in pages:
        full, count, encoding, levels, stated = page[2], page[3], page[4], page[5], page[6]
        if codec == NONE:
            begin = page[0]
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
        begin += full
        at += count
        nulls += count - present
    return nulls
