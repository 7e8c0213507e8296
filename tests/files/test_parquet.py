"""Parquet files put together from parts: read the same by everybody, and described as they are."""

from __future__ import annotations

import datetime
import io
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import hypothesis.strategies as st
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from sklar.draw.decode import Decoder
from sklar.files import parquet
from sklar.files.parquet import write_groups
from sklar.files.thrift import Struct, read_struct
from sklar.files.write import HELD
from sklar.machine.threads import using
from sklar.public.schema import Schema
from tests.conftest import schemas_with_codes

MOMENT = datetime.datetime(2024, 2, 29, 23, 59, 59)
# One column of every type that a schema can ask for, and what stands in it, over and over.
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False, False]),
    **{
        str(kind): (kind, [0, 1, 100])
        for kind in map(pa.type_for_alias, ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"))
    },
    "other flag": (pa.bool_(), [False, True, True, True, False]),
    "float32": (pa.float32(), [0.5, -1.25]),
    "float64": (pa.float64(), [0.1, 1e300, -0.0]),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.25"), Decimal("-99999999.99")]),
    "long decimal": (pa.decimal128(38, 3), [Decimal("0.001"), Decimal("123456789012345.678")]),
    "date32": (pa.date32(), [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]),
    "date64": (pa.date64(), [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]),
    **{f"timestamp {unit}": (pa.timestamp(unit), [MOMENT]) for unit in ("s", "ms", "us", "ns")},
    "zoned": (pa.timestamp("us", "Europe/Berlin"), [MOMENT.replace(tzinfo=datetime.UTC)]),
    "text": (pa.string(), ["", "a,b", "名", "x" * 40]),
    "category": (pa.dictionary(pa.int32(), pa.string()), ["low", "high"]),
    "ordered": (pa.dictionary(pa.int32(), pa.string(), ordered=True), ["low", "high"]),
    "numbered": (pa.dictionary(pa.int32(), pa.int64()), [7, -7]),
    "a.b": (pa.bool_(), [True]),
}


def table(rows: int, names: list[str] | None = None, *, nulls: bool = False, required: bool = False) -> pa.Table:
    columns, fields = [], []
    for name in COLUMNS if names is None else names:
        kind, values = COLUMNS[name]
        drawn = [None if nulls and row % 7 == 3 else values[row % len(values)] for row in range(rows)]
        columns.append(column(drawn, kind))
        fields.append(pa.field(name, kind, nullable=not required))
    return pa.table(columns, schema=pa.schema(fields))


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return pa.array(values, kind)
    found = pa.array(values, kind.value_type).dictionary_encode()
    return pa.DictionaryArray.from_arrays(found.indices, found.dictionary, ordered=kind.ordered)


def written(groups: list[pa.Table], schema: pa.Schema | None = None, *, store_schema: bool = True) -> bytes:
    file = io.BytesIO()
    schema = schema or groups[0].schema
    write_groups(file, schema, groups, dictionaries=schema.names, store_schema=store_schema)
    return file.getvalue()


def by_arrow(groups: list[pa.Table], schema: pa.Schema | None = None, *, store_schema: bool = True) -> bytes:
    file = io.BytesIO()
    schema = schema or groups[0].schema
    with pq.ParquetWriter(file, schema, write_statistics=False, store_schema=store_schema) as writer:
        for group in groups:
            writer.write_table(group)
    return file.getvalue()


def footer(data: bytes) -> Struct:
    assert data[:4] == data[-4:] == b"PAR1"
    size = int.from_bytes(data[-8:-4], "little")
    fields, end = read_struct(data[-8 - size : -8])
    assert end == size
    return fields


def check_read(groups: list[pa.Table], tmp_path: Path | None = None, *, store_schema: bool = True) -> None:
    """All readers find in our file what they find in Arrow's."""
    ours, theirs = written(groups, store_schema=store_schema), by_arrow(groups, store_schema=store_schema)
    expected = pq.read_table(io.BytesIO(theirs))
    found = pq.read_table(io.BytesIO(ours))
    assert found.schema.equals(expected.schema, check_metadata=True)
    assert found.equals(expected)
    assert pq.ParquetFile(io.BytesIO(ours)).schema.equals(pq.ParquetFile(io.BytesIO(theirs)).schema)
    assert pl.read_parquet(io.BytesIO(ours)).equals(pl.read_parquet(io.BytesIO(theirs)))
    if tmp_path is not None:
        for name, data in (("ours", ours), ("theirs", theirs)):
            (tmp_path / name).write_bytes(data)
        with duckdb.connect() as connection:
            answers: list[Any] = [
                connection.read_parquet(str(tmp_path / name)).to_arrow_table() for name in ("ours", "theirs")
            ]
        assert answers[0].equals(answers[1])
        assert answers[0].num_rows == sum(group.num_rows for group in groups)
    check_described(groups, ours)


def check_described(groups: list[pa.Table], data: bytes) -> None:
    """Every number of the footer holds: chunks lie one behind the other, and their pages fill them."""
    metadata = pq.read_metadata(io.BytesIO(data))
    assert metadata.num_row_groups == len(groups)
    assert metadata.num_rows == sum(group.num_rows for group in groups)
    described = footer(data)
    at = 4
    for group, fields in zip(groups, described[4][1].values, strict=True):
        assert fields[3][1] == group.num_rows
        assert fields[5][1] == at
        chunks = [column[3][1] for column in fields[1][1].values]
        assert [chunk[3][1].values for chunk in chunks] == [[name.encode()] for name in group.column_names]
        assert fields[2][1] == sum(chunk[6][1] for chunk in chunks)
        assert fields[6][1] == sum(chunk[7][1] for chunk in chunks)
        for chunk in chunks:
            assert at == min(chunk[number][1] for number in (9, 11) if number in chunk)
            end, plain, values = at + chunk[7][1], 0, 0
            while at < end:
                header, body = read_struct(data, at)
                if header[1][1] == 0:
                    assert at >= chunk[9][1]
                    values += header[5][1][1][1]
                    assert header[5][1][2][1] in chunk[2][1].values
                page = data[body : body + header[3][1]]
                assert len(pa.decompress(page, header[2][1], "snappy")) == header[2][1]
                plain += body - at + header[2][1]
                at = body + header[3][1]
            assert (at, plain, values) == (end, chunk[6][1], group.num_rows)
            assert chunk[5][1] == group.num_rows
    assert at == len(data) - 8 - int.from_bytes(data[-8:-4], "little")


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 8, 9, 1000])
def test_every_type_is_read_as_from_a_file_of_arrow(tmp_path: Path, rows: int, nulls: bool, required: bool) -> None:
    if required and nulls:
        with pytest.raises(pa.ArrowInvalid, match="contains nulls"):
            written([table(rows if rows > 3 else 4, nulls=True, required=True)])
        return
    check_read([table(rows, nulls=nulls, required=required)], tmp_path)


@pytest.mark.parametrize("names", [["flag"], ["flag", "other flag", "a.b"], ["int8", "text"]], ids=str)
@pytest.mark.parametrize("nulls", [False, True])
def test_only_booleans_and_none_at_all(tmp_path: Path, names: list[str], nulls: bool) -> None:
    check_read([table(100, names, nulls=nulls), table(9, names)], tmp_path)


@pytest.mark.parametrize("groups", [[], [1], [8, 1, 300, 17]], ids=str)
def test_row_groups_keep_their_order_and_any_number_of_rows(tmp_path: Path, groups: list[int]) -> None:
    whole = table(400, nulls=True)
    ends = np.cumsum([0, *groups]).tolist()
    parts = [whole.slice(begin, end - begin) for begin, end in pairwise(ends)]
    data = written(parts, whole.schema)
    assert pq.read_table(io.BytesIO(data)).to_pylist() == whole.slice(0, ends[-1]).to_pylist()
    assert pl.read_parquet(io.BytesIO(data)).height == ends[-1]
    check_described(parts, data)
    if groups:
        check_read(parts, tmp_path)
    else:
        assert data == by_arrow([], whole.schema)


@pytest.mark.parametrize("begin", [0, 1, 7, 8, 13, 16])
@pytest.mark.parametrize("rows", [1, 7, 8, 9, 64])
def test_bits_may_begin_anywhere_and_none_is_left_behind_them(begin: int, rows: int) -> None:
    whole = table(100, ["flag", "other flag"])
    part = whole.slice(begin, rows)
    assert part.column(0).chunk(0).offset == begin
    copied = pa.table({name: part[name].to_pylist() for name in part.column_names})
    # The same bytes, whatever lies around the rows in memory.
    assert written([part]) == written([copied])
    check_read([part])
    chunked = pa.concat_tables([part.slice(0, rows // 2), part.slice(rows // 2)])
    assert written([chunked]) == written([copied])


def test_bits_behind_the_last_row_are_zero() -> None:
    ones = pa.py_buffer(b"\xff" * 8)
    data = written([pa.table({"x": pa.Array.from_buffers(pa.bool_(), 11, [None, ones])})])
    header, at = read_struct(data, 4)
    page = pa.decompress(data[at : at + header[3][1]], header[2][1], "snappy").to_pybytes()
    # The length of the definition levels, their one run, and the bits.
    assert page == bytes([2, 0, 0, 0, 11 << 1, 1]) + b"\xff\x07"


def test_a_mask_without_nulls_is_no_mask() -> None:
    masked = pa.Array.from_buffers(pa.bool_(), 8, [pa.py_buffer(b"\xff"), pa.py_buffer(b"\x5a")])
    plain = pa.Array.from_buffers(pa.bool_(), 8, [None, pa.py_buffer(b"\x5a")])
    assert written([pa.table({"x": masked})]) == written([pa.table({"x": plain})])


def test_booleans_may_have_nulls_in_one_group_and_none_in_the_next(tmp_path: Path) -> None:
    names = ["flag", "int8", "other flag"]
    check_read([table(20, names, nulls=nulls) for nulls in (False, True, False, True)], tmp_path)


def test_text_held_as_a_dictionary_is_text_to_a_reader(tmp_path: Path) -> None:
    indices = pa.array(np.arange(50) % 2, HELD)
    held = pa.DictionaryArray.from_arrays(indices, pa.array(["Bern", "Lugano"]))
    rows = pa.table({"city": held, "flag": [True, False] * 25})
    assert rows.schema.field("city").type == pa.dictionary(HELD, pa.string())
    check_read([rows, rows], tmp_path, store_schema=False)
    found = pq.read_table(io.BytesIO(written([rows], store_schema=False)))
    assert found.schema == pa.schema([("city", pa.string()), ("flag", pa.bool_())])


def test_columns_are_looked_at_for_repetitions_by_name() -> None:
    rows = table(50, ["int64", "flag", "float64"])
    file = io.BytesIO()
    write_groups(file, rows.schema, [rows], dictionaries={"int64"}, store_schema=True)
    group = pq.read_metadata(file).row_group(0)
    assert [group.column(index).has_dictionary_page for index in range(3)] == [True, False, False]
    assert not any(group.column(index).is_stats_set for index in range(3))


def test_more_columns_than_one_thread_takes(tmp_path: Path) -> None:
    source = table(30, nulls=True)
    columns = {f"{number} {name}": source[name] for number in range(6) for name in source.column_names}
    rows = pa.table(columns)
    assert rows.num_columns > 2 * parquet._COLUMNS
    check_read([rows.slice(0, 20), rows.slice(20)], tmp_path)


def test_more_rows_than_arrow_puts_on_a_page(tmp_path: Path) -> None:
    rows = table(50_000, ["flag", "int64", "category"])
    check_read([rows, rows.slice(0, 30_001)], tmp_path)


def test_what_arrow_writes_is_taken_over_to_the_byte() -> None:
    rows = table(1000, ["int8", "float64", "text", "category", "decimal"], nulls=True)
    assert written([rows, rows.slice(0, 10)]) == by_arrow([rows, rows.slice(0, 10)])


def test_the_bytes_do_not_depend_on_the_number_of_threads() -> None:
    rows = table(3000, nulls=True).append_column("last", pa.array([True, False] * 1500))
    groups = [rows.slice(first, 700) for first in range(0, 3000, 700)]
    found = []
    for threads in (1, 3):
        with using(threads):
            found.append(written(groups))
    assert found[0] == found[1]


def test_a_file_that_cannot_be_written_to_is_an_error() -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            if self.tell() > 100:
                raise OSError("full")
            return super().write(data)

    rows = table(1000)
    with pytest.raises(OSError, match="full"):
        write_groups(Full(), rows.schema, [rows] * 20, dictionaries=(), store_schema=True)


@given(described=schemas_with_codes(), cuts=st.lists(st.integers(0, 12), max_size=3), held=st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_released_rows_are_read_as_from_a_file_of_arrow(
    described: tuple[Schema, NDArray[np.int32]], cuts: list[int], held: bool
) -> None:
    schema, codes = described
    batch = Decoder(schema, dictionaries=held).decode(codes, np.random.default_rng(5))
    rows = pa.Table.from_batches([batch])
    ends = sorted({0, rows.num_rows, *(cut for cut in cuts if cut < rows.num_rows)})
    groups = [rows.slice(begin, end - begin) for begin, end in pairwise(ends)]
    store = not any(pa.types.is_dictionary(kind) and kind.index_type == HELD for kind in rows.schema.types)
    if groups:
        check_read(groups, store_schema=store)
    else:
        assert written([], rows.schema, store_schema=store) == by_arrow([], rows.schema, store_schema=store)
