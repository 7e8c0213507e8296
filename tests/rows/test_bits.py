"""Booleans of Parquet files: the same values as Arrow reads, whoever wrote the file; what is odd is left to Arrow."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklar.errors import DataError
from sklar.files.thrift import BINARY, I32, I64, STRUCT, TRUE, Struct, read_struct, write_struct
from sklar.machine.threads import using
from sklar.public.schema import Attribute, Schema
from sklar.rows import bits, read
from sklar.rows.bits import Booleans
from sklar.rows.encode import ready_bits
from sklar.rows.fast import count
from sklar.rows.pages import ZSTD, find_pages
from sklar.rows.read import batch_rows, open_source

CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_MANY_BITS", 1)


def booleans(rows: int, nulls: float, seed: int = 0, ones: float = 0.4) -> pa.BooleanArray:
    generator = np.random.default_rng(seed)
    return pa.array(generator.random(rows) < ones, mask=generator.random(rows) < nulls)


def written(table: pa.Table, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


def decoded(data: bytes, name: str = "x") -> pa.BooleanArray | None:
    """A column of all row groups, by this module alone."""
    stream = pa.BufferReader(data)
    file = pq.ParquetFile(stream)
    column = Booleans(stream, file, [name]).read(list(range(file.metadata.num_row_groups))).get(name)
    if column is not None:
        column.validate(full=True)
    return column


def rows_of(path: Path, names: tuple[str, ...]) -> pa.Table | None:
    batches = list(open_source(path).batches(names))
    return pa.Table.from_batches(batches) if batches else None


@settings(max_examples=150, deadline=None)
@given(
    rows=st.integers(1, 700),
    nulls=st.sampled_from([0.0, 0.0, 0.01, 0.5, 1.0]),
    ones=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    seed=st.integers(0, 10),
    group=st.integers(1, 300),
    step=st.integers(1, 90),
    page=st.sampled_from([1, 100, 1 << 20]),
    version=st.sampled_from(["1.0", "2.0"]),
    codec=st.sampled_from(CODECS),
    required=st.booleans(),
)
def test_values_are_those_that_were_written(
    rows: int, nulls: float, ones: float, seed: int, group: int, step: int, page: int, version: str, codec: str,
    required: bool,
) -> None:  # fmt: skip
    nullable = nulls > 0 or not required
    values = booleans(rows, nulls, seed, ones)
    data = written(
        pa.table([values], pa.schema([pa.field("x", pa.bool_(), nullable)])),
        row_group_size=group,
        data_page_size=page,
        write_batch_size=step,
        data_page_version=version,
        compression=codec,
    )
    found = decoded(data)
    if found is None:
        # A body of one byte, whose size some codecs do not let be checked.
        assert not nullable
        assert codec in ("gzip", "lz4", "brotli")
        return
    assert found.equals(values)
    assert found.null_count == values.null_count


@pytest.mark.parametrize("nulls", [0.0, 0.3])
@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_files_of_polars_are_read(tmp_path: Path, codec: Any, nulls: float) -> None:
    values = booleans(5003, nulls)
    pl.from_arrow(pa.table({"x": values})).write_parquet(  # type: ignore[union-attr]
        tmp_path / "t.parquet", compression=codec, row_group_size=1001, data_page_size=200
    )
    found = decoded((tmp_path / "t.parquet").read_bytes())
    assert found is not None
    assert found.equals(values)


@pytest.mark.parametrize("nulls", [0.0, 0.3])
@pytest.mark.parametrize("version", ["V1", "V2"])
@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "gzip", "zstd", "lz4_raw", "brotli"])
def test_files_of_duckdb_are_read(tmp_path: Path, codec: str, version: str, nulls: float) -> None:
    values = booleans(5003, nulls)
    connection = duckdb.connect()
    connection.register("data", pa.table({"x": values}))
    connection.execute(
        f"copy (select * from data) to '{tmp_path}/t.parquet' "
        f"(format parquet, compression '{codec}', parquet_version {version}, row_group_size 2048)"
    )
    found = decoded((tmp_path / "t.parquet").read_bytes())
    assert found is not None
    assert found.equals(values)


def mixed(rows: int) -> pa.Table:
    fields = [
        pa.field("a", pa.bool_(), nullable=False, metadata={"unit": "none"}),
        pa.field("text", pa.string()),
        pa.field("b.c", pa.bool_()),
        pa.field("n", pa.int64()),
        pa.field("b", pa.struct([pa.field("c", pa.bool_())])),
        pa.field("many", pa.list_(pa.bool_())),
        pa.field("d", pa.bool_()),
    ]
    columns = [
        booleans(rows, 0.0, 1),
        pa.array([f"t{row % 7}" for row in range(rows)]),
        booleans(rows, 0.1, 2),
        pa.array(range(rows)),
        pa.StructArray.from_arrays([booleans(rows, 0.1, 3)], fields=[fields[2].with_name("c")]),
        pa.array([[True, None], None, []] * (rows // 3) + [[False]] * (rows % 3), pa.list_(pa.bool_())),
        booleans(rows, 0.0, 4),
    ]
    return pa.table(columns, pa.schema(fields, {"about": "test"}))


@pytest.mark.parametrize("group", [100, 7, 40_001, 1 << 20])
@pytest.mark.parametrize(
    "names",
    [("a", "b.c", "d"), ("d", "text", "a", "n"), ("b", "b.c"), ("many", "b.c", "b", "text", "a"), ("n",), ("d",)],
)
def test_batches_are_those_of_arrow_whatever_stands_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int, names: tuple[str, ...]
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(mixed(1000 if group < 1000 else 100_003), path, row_group_size=group, data_page_size=64)
    found = list(open_source(path).batches(names))
    monkeypatch.setattr(read, "_bits", lambda *_: None)
    expected = list(open_source(path).batches(names))
    assert all(batch.num_rows <= batch_rows(len(names)) for batch in found)
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(expected), check_metadata=True)
    assert [batch.num_rows for batch in found] == [batch.num_rows for batch in expected]


def test_columns_that_are_nested_are_left_to_arrow() -> None:
    stream, names = pa.BufferReader(written(mixed(10))), mixed(10).column_names
    assert Booleans(stream, pq.ParquetFile(stream), [*names, "c", "element"]).read([0]).keys() == {"a", "b.c", "d"}


@pytest.mark.parametrize("threads", [1, 3])
def test_many_columns_are_decoded_side_by_side(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bits, "_ALONE", 0)
    table = pa.table({f"x{i}": booleans(1003, 0.1 * (i % 2), i) for i in range(37)})
    stream = pa.BufferReader(written(table))
    with using(threads):
        found = Booleans(stream, pq.ParquetFile(stream), table.column_names).read([0])
    assert pa.table(found).select(table.column_names).equals(table)


def test_columns_come_as_bits_that_are_counted_as_they_are(tmp_path: Path) -> None:
    pq.write_table(pa.table({f"x{i}": booleans(300_007, 0.0, i) for i in range(3)}), tmp_path / "t.parquet")
    attribute = Attribute(name="x", kind="boolean")
    for batch in open_source(tmp_path / "t.parquet").batches(("x2", "x0")):
        for column in batch.columns:
            assert ready_bits(column, attribute) is not None


def test_counts_are_the_same_whoever_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"x{i}" for i in range(9)]
    schema = Schema.from_toml("".join(f'[attributes.{name}]\ntype = "boolean"\nmissing = "?"\n' for name in names))
    table = pa.table({name: booleans(70_001, 0.2 * (i == 3), i) for i, name in enumerate(names)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=30_001)
    found = count(open_source(tmp_path / "t.parquet").batches(schema.names), schema)
    monkeypatch.setattr(read, "_bits", lambda *_: None)
    expected = count(open_source(tmp_path / "t.parquet").batches(schema.names), schema)
    assert found.n_rows == expected.n_rows
    assert np.array_equal(found.one_way, expected.one_way)
    assert np.array_equal(found.pairs, expected.pairs)


def footer(data: bytes) -> tuple[Struct, int]:
    """What the file says about itself, and where."""
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return read_struct(data, at)[0], at


def chunk_of(about: Struct) -> Struct:
    """The description of the first column chunk."""
    chunk: Struct = about[4][1].values[0][1][1].values[0][3][1]
    return chunk


def rewritten(data: bytes, edit: Callable[[Struct, Struct], None], chunk: bytes = b"") -> bytes:
    """The file with a chunk added, and other words about itself: `edit` gets all of them, and those about a chunk."""
    about, at = footer(data)
    if chunk:
        chunk_of(about)[9] = (I64, at)
        chunk_of(about)[7] = (I64, len(chunk))
    edit(about, chunk_of(about))
    words = write_struct(about)
    return data[:at] + chunk + words + len(words).to_bytes(4, "little") + b"PAR1"


def unchanged(_about: Struct, _chunk: Struct) -> None:
    pass


def outcome(path: Path) -> list[pa.Table | None] | str:
    try:
        names = open_source(path).columns
        return [rows_of(path, names), rows_of(path, names[:1])]
    except DataError as error:
        return str(error)


def agreed(path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> list[pa.Table | None] | str:
    """What is read of the bytes, which must be what Arrow alone reads."""
    path.write_bytes(data)
    found = outcome(path)
    with monkeypatch.context() as patch:
        patch.setattr(read, "_bits", lambda *_: None)
        assert outcome(path) == found
    return found


LEVELS, PLAIN = b"\x02\x00\x00\x00" + bytes([20 << 1, 1]), bytes([0b10110010, 0b01011101, 0b00000110])
RUNS = b"\x07\x00\x00\x00" + bytes([2 << 1 | 1, 0b11110000, 0b00110011, 3 << 1, 1, 1 << 1, 0])


def page(body: bytes, *, full: int | None = None, **fields: int) -> bytes:
    """A page of version 1 with 20 values, its header's numbers as given."""
    about = {1: 20, 2: 0, 3: 3, 4: 3} | {int(name[1:]): value for name, value in fields.items()}
    header: Struct = {
        1: (I32, 0),
        2: (I32, len(body) if full is None else full),
        3: (I32, len(body)),
        5: (STRUCT, {number: (I32, value) for number, value in about.items() if value is not None}),
    }
    return write_struct(header) + body


def page_2(levels: bytes, values: bytes, *, packed: bool | None = None, **fields: int) -> bytes:
    about = {1: 20, 2: 0, 3: 20, 4: 0, 5: len(levels), 6: 0} | {int(name[1:]): value for name, value in fields.items()}
    inner: Struct = {number: (I32, value) for number, value in about.items()}
    if packed is not None:
        inner[7] = (TRUE, packed)
    size = len(levels) + len(values)
    return write_struct({1: (I32, 3), 2: (I32, size), 3: (I32, size), 8: (STRUCT, inner)}) + levels + values


def base(*, nullable: bool = True, codec: str = "none") -> bytes:
    table = pa.table([booleans(20, 0.0)], pa.schema([pa.field("x", pa.bool_(), nullable)]))
    return written(table, compression=codec)


BITS = [bool(PLAIN[row // 8] >> row % 8 & 1) for row in range(20)]
NULLS = bytes([2 << 1 | 1, 0b11110000, 0b00110011, 4 << 1, 1])


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (page(LEVELS + PLAIN), BITS),
        (page(LEVELS + PLAIN + b"more"), BITS),
        (page(b"\x03\x00\x00\x00" + LEVELS[4:] + b"x" + PLAIN), BITS),
        (page(b"\x04\x00\x00\x00" + bytes([3 << 1 | 1, 255, 255, 255]) + PLAIN), BITS),
        (
            page(LEVELS + RUNS, _2=3),
            [False] * 4 + [True] * 6 + [False] * 2 + [True] * 2 + [False] * 2 + [True] * 3 + [False],
        ),
        (page_2(LEVELS[4:], PLAIN), BITS),
        (page_2(LEVELS[4:], PLAIN, packed=False), BITS),
        (page_2(NULLS, PLAIN, _2=8), None),
        (page_2(bytes([20 << 1, 0]), b"", _2=20), [None] * 20),
    ],
)
def test_pages_are_read_as_their_headers_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: bytes, expected: list[bool | None] | None
) -> None:
    data = rewritten(base(), unchanged, chunk)
    column = decoded(data)
    assert column is not None
    found = agreed(tmp_path / "t.parquet", data, monkeypatch)
    assert not isinstance(found, str)
    assert found[0] is not None
    assert found[0]["x"].combine_chunks().equals(column)
    if expected is not None:
        assert column.to_pylist() == expected


@pytest.mark.parametrize(
    "chunk",
    [
        page(LEVELS + PLAIN, _1=21),
        page(LEVELS + PLAIN, _1=19),
        page(LEVELS + PLAIN, _1=-1),
        page(LEVELS + PLAIN, _2=2),
        page(LEVELS + PLAIN, _3=4),
        page(LEVELS + PLAIN[:-1]),
        page(LEVELS[:3]),
        page(b"\xff\xff\xff\x7f" + LEVELS[4:] + PLAIN),
        page(b"\x02\x00\x00\x00" + bytes([19 << 1, 1]) + PLAIN),
        page(b"\x02\x00\x00\x00" + bytes([20 << 1, 2]) + PLAIN),
        page(b"\x02\x00\x00\x00" + bytes([0, 1]) + PLAIN),
        page(b"\x06\x00\x00\x00" + b"\xff\xff\xff\xff\xff\x01" + PLAIN),
        page(b"\x01\x00\x00\x00" + b"\x28" + PLAIN),
        page(b"\x02\x00\x00\x00" + bytes([3 << 1 | 1, 255]) + PLAIN),
        page(LEVELS + RUNS[:-2], _2=3),
        page(LEVELS + b"\x08" + RUNS[1:], _2=3),
        page(LEVELS + PLAIN, full=1 << 30),
        page(LEVELS + PLAIN)[:-1],
        page(LEVELS + PLAIN) + b"\x00",
        page(LEVELS + PLAIN)[:9],
        b"\x00" * 30,
        b"\x1c" * 40,
        b"\x15\x00" + b"\x10" + page(LEVELS + PLAIN)[2:],
        page_2(LEVELS[4:], PLAIN, _2=1),
        page_2(LEVELS[4:], PLAIN, _3=19),
        page_2(LEVELS[4:], PLAIN, _5=100),
        page_2(LEVELS[4:], PLAIN, _6=1),
        write_struct({1: (I32, 2), 2: (I32, 0), 3: (I32, 0), 7: (STRUCT, {1: (I32, 0), 2: (I32, 0)})})
        + page(LEVELS + PLAIN),
    ],
)
def test_odd_pages_are_left_to_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: bytes) -> None:
    data = rewritten(base(), unchanged, chunk)
    assert decoded(data) is None
    agreed(tmp_path / "t.parquet", data, monkeypatch)


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_page_that_has_another_size_than_it_says_is_left_to_arrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, wrong: int
) -> None:
    plain = base(nullable=False, codec=codec)
    body = pa.compress(PLAIN, codec="lz4_raw" if codec == "lz4" else codec, asbytes=True)
    sound = rewritten(plain, unchanged, page(body, full=3))
    assert decoded(sound) is not None
    assert not isinstance(agreed(tmp_path / "t.parquet", sound, monkeypatch), str)
    data = rewritten(plain, unchanged, page(body, full=3 + wrong))
    assert decoded(data) is None
    assert "damaged" in str(agreed(tmp_path / "t.parquet", data, monkeypatch))


def in_chunk(number: int, value: tuple[int, Any]) -> Callable[[Struct, Struct], None]:
    return lambda _about, chunk: chunk.__setitem__(number, value)


@pytest.mark.parametrize(
    "edit",
    [
        in_chunk(4, (I32, 1)),
        in_chunk(1, (I32, 1)),
        in_chunk(4, (I32, 3)),
        in_chunk(4, (I32, 5)),
        in_chunk(4, (I32, 1 << 20)),
        in_chunk(5, (I64, 19)),
        in_chunk(5, (I64, 21)),
        in_chunk(5, (I64, -1)),
        in_chunk(7, (I64, 1 << 60)),
        in_chunk(7, (I64, 3)),
        in_chunk(7, (I64, -3)),
        in_chunk(9, (I64, 0)),
        in_chunk(9, (I64, 1 << 60)),
        in_chunk(9, (I64, -7)),
        in_chunk(11, (I64, 4)),
        lambda about, _chunk: about[4][1].values[0].__setitem__(3, (I64, 21)),
        lambda about, _chunk: about[4][1].values[0][1][1].values[0].__setitem__(1, (BINARY, b"other.parquet")),
    ],
)
def test_what_a_footer_says_wrongly_is_left_to_arrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: Callable[[Struct, Struct], None]
) -> None:
    data = rewritten(base(), edit)
    assert decoded(data) is None
    agreed(tmp_path / "t.parquet", data, monkeypatch)


@pytest.mark.parametrize("rows", [10, 19, 21, 64, 65, 128])
def test_columns_of_different_lengths_end_as_for_arrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(read, "batch_rows", lambda _columns: 64)
    for before in (64, 65, 128, 130):
        data = written(pa.table({"n": list(range(before)), "x": booleans(before, 0.0)}))
        changed = rewritten(data, in_chunk(5, (I64, rows)))
        assert decoded(changed) is not None
        agreed(tmp_path / "t.parquet", changed, monkeypatch)


def test_memory_is_bounded_whatever_number_of_rows_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 1 << 40

    def vast(about: Struct, chunk: Struct) -> None:
        about[3] = about[4][1].values[0][3] = chunk[5] = (I64, rows)

    assert decoded(rewritten(base(), vast)) is None
    monkeypatch.setattr(bits, "_MOST", 2)
    assert decoded(written(pa.table({"x": booleans(9999, 0.0)}), compression="none")) is not None
    assert decoded(written(pa.table({"x": booleans(99_999, 0.0, ones=0.0)}), compression="zstd")) is None


def test_a_page_of_more_bytes_than_its_values_need_is_not_decompressed() -> None:
    body = pa.compress(bytes(1 << 20), codec="zstd", asbytes=True)
    data = np.frombuffer(page(body, full=1 << 20), dtype=np.uint8)
    assert find_pages(data, 0, 20, ZSTD, np.empty((4, 9), dtype=np.int64)) == 0
