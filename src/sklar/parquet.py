"""Parquet files whose columns are encoded side by side.

Arrow's writer encodes one column after the other. Here neighboring columns of a row group are a piece of work for any
thread: Arrow encodes them as a small file in memory, and their chunks are put one behind the other into one file, under
a footer of their own. Booleans without nulls are the same packed bits in Arrow and in Parquet, and are only compressed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from sklar.threads import in_order
from sklar.thrift import BINARY, I32, I64, LIST, STRUCT, Sequenced, Struct, read_struct, varint, write_struct

_MAGIC = b"PAR1"
# Numbers of the format: a type, two encodings, a compression, a kind of page.
_BOOLEAN, _PLAIN, _RLE, _SNAPPY, _DATA_PAGE = 0, 0, 3, 1, 0
# What one thread encodes at once: many enough that a piece is worth its while, few enough that many of them fit.
_COLUMNS = 64


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column of a row group: its size with its page headers, before and after compression, and its footer entry.

    The entry is Arrow's metadata, or ours up to the one number that is not known before the chunk has its place.
    """

    plain: int
    size: int
    entry: bytes | Struct


@dataclass(frozen=True, slots=True)
class _Encoded:
    data: bytes
    chunks: list[_Chunk]


def write_groups(
    file: BinaryIO, schema: pa.Schema, groups: Iterable[pa.Table], *, dictionaries: Collection[str], store_schema: bool
) -> None:
    """Write tables as the row groups of a file, each as it comes; no column may be nested.

    `dictionaries` names the columns in which repetitions are looked for. `store_schema` keeps Arrow's own types for
    readers that know them. The bytes do not depend on the number of threads.
    """
    pieces = [
        _Piece(schema, range(first, min(first + _COLUMNS, len(schema))), dictionaries)
        for first in range(0, len(schema), _COLUMNS)
    ]

    def work() -> Iterator[tuple[_Piece, pa.Table]]:
        for group in groups:
            for piece in pieces:
                yield piece, group

    footer = _footer(_in_memory(schema, None, dictionaries, store_schema=store_schema))
    file.write(_MAGIC)
    at, rows = len(_MAGIC), 0
    described: list[bytes] = []
    entries: list[bytes] = []
    begin, plain = at, 0
    for piece, count, encoded in in_order(lambda item: (item[0], item[1].num_rows, item[0].encode(item[1])), work()):
        file.write(encoded.data)
        for chunk in encoded.chunks:
            entries.append(_placed(chunk, at))
            at += chunk.size
            plain += chunk.plain
        if piece is pieces[-1]:
            described.append(_described(entries, count, begin, at - begin, plain))
            rows += count
            entries, begin, plain = [], at, 0
    footer[3] = (I64, rows)
    footer[4] = (LIST, Sequenced(STRUCT, described))
    end = write_struct(footer)
    file.write(end + len(end).to_bytes(4, "little") + _MAGIC)


class _Piece:
    """Neighboring columns, which are encoded together."""

    def __init__(self, schema: pa.Schema, where: range, dictionaries: Collection[str]) -> None:
        self._where = where
        self._dictionaries = dictionaries
        self._optional = [schema.field(index).nullable for index in where]
        # The part of a boolean's footer entry that is the same in every row group; two structs are left open.
        self._heads = [
            _chunk_entry(
                {
                    1: (I32, _BOOLEAN),
                    2: (LIST, Sequenced(I32, [_RLE, _PLAIN])),
                    3: (LIST, Sequenced(BINARY, [schema.field(index).name.encode()])),
                    4: (I32, _SNAPPY),
                }
            )[:-2]
            for index in where
        ]

    def encode(self, group: pa.Table) -> _Encoded:
        """The chunks of these columns, in their order."""
        rows = group.num_rows
        columns = [group.column(index) for index in self._where]
        packed = [pa.types.is_boolean(column.type) and not column.null_count for column in columns]
        others = [index for index, own in zip(self._where, packed, strict=True) if not own]
        bits = iter(group.select([index for index in self._where if index not in others]).combine_chunks().columns)
        theirs = iter(_by_arrow(group.select(others), self._dictionaries) if others else ())
        pages = {optional: _Pages(rows, optional=optional) for optional in (True, False)}
        data: list[Any] = []
        chunks = []
        for own, optional, head in zip(packed, self._optional, self._heads, strict=True):
            if own:
                (array,) = next(bits).chunks
                header, body = pages[optional].page(array)
                plain, size = len(header) + pages[optional].size, len(header) + len(body)
                data += (header, body)
                entry = head + b"\x16%b\x16%b\x16%b\x26" % (_zigzag(rows), _zigzag(plain), _zigzag(size))
                chunks.append(_Chunk(plain, size, entry))
            else:
                chunk, content = next(theirs)
                data.append(content)
                chunks.append(chunk)
        return _Encoded(b"".join(data), chunks)


class _Pages:
    """Pages of so many booleans without nulls, one for each column."""

    def __init__(self, rows: int, *, optional: bool) -> None:
        self._rows = rows
        self._codec = pa.Codec("snappy")
        # One run of "not null".
        levels = varint(rows << 1) + b"\x01" if optional else b""
        self._levels = len(levels).to_bytes(4, "little") + levels if optional else b""
        self.size = len(self._levels) + (rows + 7) // 8
        # Fields are numbered from the one before: what follows the third is written as if it followed none.
        values = {1: (I32, rows), 2: (I32, _PLAIN), 3: (I32, _RLE), 4: (I32, _RLE)}
        self._head = write_struct({1: (I32, _DATA_PAGE), 2: (I32, self.size)})[:-1] + b"\x15"
        self._tail = write_struct({5 - 3: (STRUCT, values)})

    def page(self, column: pa.BooleanArray) -> tuple[bytes, bytes]:
        """Header and compressed body of a column's page."""
        body = self._codec.compress(self._levels + _packed(column), asbytes=True)
        return self._head + _zigzag(len(body)) + self._tail, body


def _packed(column: pa.BooleanArray) -> bytes:
    """A column's bits from the first bit of a byte on, those after the last row zero."""
    view = memoryview(column.buffers()[1])
    begin, rows = column.offset, len(column)
    held, skipped = view[begin // 8 : (begin + rows + 7) // 8], begin % 8
    if skipped or rows % 8:
        each = np.unpackbits(np.frombuffer(held, np.uint8), count=skipped + rows, bitorder="little")
        return np.packbits(each[skipped:], bitorder="little").tobytes()
    return bytes(held)


def _by_arrow(table: pa.Table, dictionaries: Collection[str]) -> Iterator[tuple[_Chunk, memoryview]]:
    """What Arrow makes of all columns of a table: each with its bytes."""
    data = _in_memory(table.schema, table, dictionaries, store_schema=False)
    (group,) = _footer(data)[4][1].values
    for column in group[1][1].values:
        entry: Struct = column[3][1]
        begin = min(value for number, (_, value) in entry.items() if number in (9, 11))
        size = entry[7][1]
        # Places in the file are from here on counted from the chunk's first byte. Filters and indices are not kept.
        moved = {
            number: (kind, value - begin if number in (9, 11) else value)
            for number, (kind, value) in entry.items()
            if number not in (10, 14, 15)
        }
        yield _Chunk(entry[6][1], size, moved), data[begin : begin + size]


def _in_memory(
    schema: pa.Schema, table: pa.Table | None, dictionaries: Collection[str], *, store_schema: bool
) -> memoryview:
    """A file of one row group, or of none, as Arrow writes it."""
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        use_dictionary=[name for name in schema.names if name in dictionaries],
        # Rows are in random order: no reader could skip any by the least and the largest value.
        write_statistics=False,
        store_schema=store_schema,
    ) as writer:
        if table is not None:
            writer.write_table(table)
    return memoryview(sink.getvalue()).cast("B")


def _footer(data: memoryview) -> Struct:
    size = int.from_bytes(data[-8:-4], "little")
    return read_struct(data[-8 - size : -8])[0]


def _placed(chunk: _Chunk, at: int) -> bytes:
    """The footer entry of a chunk that begins at this byte of the file."""
    if isinstance(chunk.entry, bytes):
        return chunk.entry + _zigzag(at) + b"\x00\x00"
    return _chunk_entry({**chunk.entry, **{n: (I64, chunk.entry[n][1] + at) for n in (9, 11) if n in chunk.entry}})


def _chunk_entry(metadata: Struct) -> bytes:
    # The first number was once the place of a copy of the metadata; there is none.
    return write_struct({2: (I64, 0), 3: (STRUCT, metadata)})


def _described(entries: list[bytes], rows: int, begin: int, size: int, plain: int) -> bytes:
    """The footer's description of a row group."""
    return write_struct(
        {
            1: (LIST, Sequenced(STRUCT, entries)),
            2: (I64, plain),
            3: (I64, rows),
            5: (I64, begin),
            6: (I64, size),
        }
    )


def _zigzag(number: int) -> bytes:
    return varint(number << 1)
