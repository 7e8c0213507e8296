"""Parquet files whose columns are encoded side by side.

Arrow's writer encodes one column after the other. Here neighboring columns of a row group are a piece of work for any
thread: Arrow encodes them as a small file in memory, and their chunks are put one behind the other into one file, under
a footer of their own. Booleans without nulls are the same packed bits in Arrow and in Parquet, and are only compressed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa

from sklar.files.thrift import BINARY, I32, I64, LIST, STRUCT, Sequenced, Struct, read_struct, varint, write_struct
from sklar.machine.threads import in_order

_MAGIC = b"PAR1"
# Numbers of the format: a type, two encodings, a compression, a kind of page.
_BOOLEAN, _PLAIN, _RLE, _SNAPPY, _DATA_PAGE = 0, 0, 3, 1, 0
# Fields of a column's metadata: where its data, index and dictionary pages begin.
_PLACES = (9, 10, 11)
# What one thread encodes at once: enough to be worth its while, few enough that every thread has some in memory.
_COLUMNS = 16

_Content: TypeAlias = tuple[bytes | memoryview, ...]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column of a row group: its size, before and after compression, with page headers, and its footer entry.

    The entry is Arrow's, with places counted from the chunk's first byte, or ours up to the place, which comes last.
    """

    plain: int
    size: int
    entry: bytes | Struct


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Neighboring columns of a row group."""

    rows: int
    data: bytes
    chunks: list[_Chunk]


def write_groups(
    file: BinaryIO, schema: pa.Schema, groups: Iterable[pa.Table], *, dictionaries: Collection[str], store_schema: bool
) -> None:
    """Write tables as the row groups of a file, each as it comes.

    None may be empty or have more than 2**20 rows, which Arrow would cut, and no column may be nested. `dictionaries`
    names the columns in which repetitions are looked for. `store_schema` keeps Arrow's own types for readers that know
    them. The bytes do not depend on the number of threads.
    """
    pieces = [_Piece(schema, first, dictionaries) for first in range(0, len(schema), _COLUMNS)]
    work = ((piece, group) for group in groups for piece in pieces)
    footer = _footer(_by_arrow(schema, None, dictionaries, store_schema=store_schema))
    file.write(_MAGIC)
    at, rows = len(_MAGIC), 0
    described: list[bytes] = []
    chunks: list[_Chunk] = []
    for encoded in in_order(lambda item: item[0].encode(item[1]), work):
        file.write(encoded.data)
        chunks += encoded.chunks
        if len(chunks) == len(schema):
            described.append(_described(chunks, encoded.rows, at))
            at += sum(chunk.size for chunk in chunks)
            rows += encoded.rows
            chunks = []
    end = write_struct({**footer, 3: (I64, rows), 4: (LIST, Sequenced(STRUCT, described))})
    file.write(end + len(end).to_bytes(4, "little") + _MAGIC)


class _Piece:
    """Neighboring columns, from the one with this number on, that are encoded together."""

    def __init__(self, schema: pa.Schema, first: int, dictionaries: Collection[str]) -> None:
        self._columns = range(first, min(first + _COLUMNS, len(schema)))
        self._dictionaries = dictionaries
        # What is the same in every row group of a boolean's footer entry; its two structs go on.
        self._heads = {
            index: _entry(
                {
                    1: (I32, _BOOLEAN),
                    2: (LIST, Sequenced(I32, [_RLE, _PLAIN])),
                    3: (LIST, Sequenced(BINARY, [schema.field(index).name.encode()])),
                    4: (I32, _SNAPPY),
                }
            )[:-2]
            for index in self._columns
            if pa.types.is_boolean(schema.field(index).type)
        }

    def encode(self, group: pa.Table) -> _Encoded:
        """The chunks of these columns, in their order."""
        packed = [index for index in self._columns if index in self._heads and not group.column(index).null_count]
        others = sorted(set(self._columns) - set(packed))
        encoded = dict(zip(packed, self._own(group, packed), strict=True))
        if others:
            encoded |= zip(others, _theirs(group.select(others), self._dictionaries), strict=True)
        parts = [encoded[index] for index in self._columns]
        data = b"".join(piece for _, content in parts for piece in content)
        return _Encoded(group.num_rows, data, [chunk for chunk, _ in parts])

    def _own(self, group: pa.Table, packed: list[int]) -> Iterator[tuple[_Chunk, _Content]]:
        rows = group.num_rows
        pages = {optional: _Pages(rows, optional=optional) for optional in (True, False)}
        for index, column in zip(packed, group.select(packed).combine_chunks().columns, strict=True):
            own = pages[group.schema.field(index).nullable]
            header, body = own.page(column.chunk(0))
            plain, size = len(header) + own.size, len(header) + len(body)
            # Fields 5 to 7, 64-bit integers all, and the head of field 9.
            sizes = b"\x16%b\x16%b\x16%b\x26" % (_zigzag(rows), _zigzag(plain), _zigzag(size))
            yield _Chunk(plain, size, self._heads[index] + sizes), (header, body)


class _Pages:
    """Pages of so many booleans without nulls, one for each column."""

    def __init__(self, rows: int, *, optional: bool) -> None:
        self._codec = pa.Codec("snappy")
        # One run of "not null".
        run = varint(rows << 1) + b"\x01"
        self._levels = len(run).to_bytes(4, "little") + run if optional else b""
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


def _theirs(table: pa.Table, dictionaries: Collection[str]) -> Iterator[tuple[_Chunk, _Content]]:
    """What Arrow makes of all columns of a table."""
    data = _by_arrow(table.schema, table, dictionaries, store_schema=False)
    (group,) = _footer(data)[4][1].values
    for column in group[1][1].values:
        # Filters, were there any, are not kept.
        entry: Struct = {number: field for number, field in column[3][1].items() if number not in (14, 15)}
        begin = min(entry[number][1] for number in _PLACES if number in entry)
        size = entry[7][1]
        yield _Chunk(entry[6][1], size, _moved(entry, -begin)), (data[begin : begin + size],)


def _by_arrow(
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


def _described(chunks: list[_Chunk], rows: int, begin: int) -> bytes:
    """The footer's description of a row group whose chunks lie one behind the other from this byte of the file on."""
    at = begin
    entries = []
    for chunk in chunks:
        if isinstance(chunk.entry, bytes):
            entries.append(chunk.entry + _zigzag(at) + b"\x00\x00")
        else:
            entries.append(_entry(_moved(chunk.entry, at)))
        at += chunk.size
    return write_struct(
        {
            1: (LIST, Sequenced(STRUCT, entries)),
            2: (I64, sum(chunk.plain for chunk in chunks)),
            3: (I64, rows),
            5: (I64, begin),
            6: (I64, at - begin),
        }
    )


def _entry(metadata: Struct) -> bytes:
    # The first number was once the place of a copy of the metadata; there is none.
    return write_struct({2: (I64, 0), 3: (STRUCT, metadata)})


def _moved(metadata: Struct, by: int) -> Struct:
    return metadata | {number: (I64, metadata[number][1] + by) for number in _PLACES if number in metadata}


def _zigzag(number: int) -> bytes:
    return varint(number << 1)
