"""Reading: every kind of table gives the same rows; bad tables are refused early; no row can make reading fail."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sklar.errors import DataError, MissingExtraError
from sklar.public.schema import Schema
from sklar.release import fit
from sklar.rows import source as sources
from sklar.rows import text
from sklar.rows.encode import encode
from sklar.rows.read import files_of, open_source
from sklar.rows.source import BATCH_ROWS, batch_rows, require_columns
from tests.conftest import refuses

COLUMNS = {"name": ["Ann", "Bo, jr", 'C "x"', None], "age": [30, None, 5, 41], "city": ["é", "a\nb", "", "z"]}
CSV = 'name,age,city\nAnn,30,é\n"Bo, jr",,"a\nb"\n"C ""x""",5,\n,41,z\n'
JSON_LINES = "\n".join(json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in zip(*COLUMNS.values(), strict=True))
SCHEMA = Schema.from_toml("""
    [attributes]
    city = {type = "categorical", values = ["é", "a\\nb", "z"], missing = ""}
    name = {type = "categorical", values = ["Ann", "Bo, jr", 'C "x"'], missing = "?"}
    age = {type = "integer", edges = [0, 10, 35, 50], missing = "?"}
""")
CODES = [[0, 1, 3, 2], [0, 1, 2, 3], [1, 3, 0, 2]]
SECRET = "SECRETCELL"
UNREADABLE = ", it is damaged, or a column has a type that polars cannot read."
HEADERS = ("header", "readable header")
SUFFIXES = (
    "file '{}' must end in .parquet, .arrow, .csv, .tsv, .json, .ndjson, .jsonl, .xlsx, .dta, .sav or .zip (text files "
    "also in .gz and other compressions). "
)
NO_LIST = "file '{}' must hold a list of objects. Rename it to .ndjson where each line is an object."
ZIP = (
    "file '{}' must be a zip of one CSV, TSV or JSON file, without a password. Unpack it, and give the file, or a "
    "folder of files that have the same columns."
)
TABLE = pa.table(COLUMNS)
TEXT = CSV.encode()


def as_bytes(write: Callable[[io.BytesIO], object]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def packed_by_pyarrow(codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(TEXT)
    return bytes(sink.getvalue())


# What is written, by its path: a file, or the files of a folder.
FILES: dict[str, dict[str, bytes]] = {
    "csv": {"t.csv": TEXT}, "upper case": {"T.CSV": TEXT},
    "tsv": {"t.tsv": CSV.replace("Bo, jr", "Bo; jr").replace(",", "\t").replace("Bo; jr", "Bo, jr").encode()},
    "byte order mark": {"t.csv": b"\xef\xbb\xbf" + TEXT}, "no last newline": {"t.csv": TEXT.rstrip(b"\n")},
    "crlf": {"t.csv": TEXT.replace(b"\n", b"\r\n").replace(b"a\r\nb", b"a\nb")},
    "blank lines": {"t.csv": CSV.replace("30,é\n", "30,é\n\n").encode() + b"\n\n"},
    "gz": {"t.csv.gz": gzip.compress(TEXT)}, "xz": {"t.csv.xz": lzma.compress(TEXT)},
    "bz2": {"t.csv.bz2": bz2.compress(TEXT)}, "zst": {"t.csv.zst": packed_by_pyarrow("zstd")},
    "lz4": {"t.csv.lz4": packed_by_pyarrow("lz4")}, "br": {"t.csv.br": packed_by_pyarrow("brotli")},
    "json lines": {"t.ndjson": JSON_LINES.encode()},
    "packed json lines": {"t.jsonl.gz": gzip.compress(JSON_LINES.encode())},
    "arrow": {"t.arrow": as_bytes(pl.DataFrame(COLUMNS).write_ipc)},
    "parquet": {"t.parquet": as_bytes(partial(pq.write_table, TABLE))},
    "parquet folder": {"1.parquet": as_bytes(partial(pq.write_table, TABLE.slice(0, 1))),
        "deep/2.parquet": as_bytes(partial(pq.write_table, TABLE.slice(1).select(["city", "age", "name"]))),
        "_SUCCESS": b"", ".hidden.csv": b"x\n1\n", "_delta_log/0.json": b"{}"},
    "csv folder": {"1.csv": 'name,age,city\nAnn,30,é\n"Bo, jr",,"a\nb"\n'.encode(),
        "2.csv": b'city,name,age\n,"C ""x""",5\nz,,41\n'},
}  # fmt: skip
HELD: dict[str, Callable[[], object]] = {
    "pyarrow": lambda: TABLE,
    "reader": lambda: pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(max_chunksize=1)),
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "pandas categories": lambda: pd.DataFrame(COLUMNS).astype({"name": "category", "city": "category"}),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "polars categories": lambda: pl.DataFrame(COLUMNS).with_columns(pl.col("name").cast(pl.Categorical)),
    "duckdb": lambda: duckdb.connect().register("source", TABLE).sql("select * from source"),
}


@pytest.mark.parametrize("kind", [*FILES, *HELD])
def test_every_source_gives_the_same_rows_in_the_order_asked(kind: str, tmp_path: Path) -> None:
    paths = {tmp_path / name: data for name, data in FILES.get(kind, {}).items()}
    for path, data in paths.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    source = open_source(HELD[kind]() if kind in HELD else tmp_path if len(paths) > 1 else next(iter(paths)))
    assert source.columns == (() if source.find_columns else ("name", "age", "city"))
    assert (source.find_columns or (lambda: source.columns))() == ("name", "age", "city")
    require_columns(source, SCHEMA)
    batches = list(source.batches(SCHEMA.names))
    assert all(batch.columns == list(SCHEMA.names) for batch in batches)
    rows = sorted(row for batch in batches for row in encode(batch, SCHEMA).T.tolist())
    assert rows == sorted(list(row) for row in zip(*CODES, strict=True))


def cells(path: Path, data: bytes) -> list[tuple[bytes | None, ...]]:
    """All rows of a CSV file, as bytes."""
    path.write_bytes(data)
    source = open_source(path)
    rows = (row for batch in source.batches(source.columns) for row in batch.rows())
    return [tuple(None if cell is None else cell.encode() for cell in row) for row in rows]


@pytest.mark.parametrize(("data", "rows"), [
    (b"a,b\n", []), (b"a,b", []), (b"a,b\r\n1,2\r\n", [(b"1", b"2")]),
    (b"a,b\n1\n2,3\n4,5,6\n", [(b"2", b"3"), (None, None), (None, None)]), (b"a,b\n1\n", [(None, None)]),
    (b"a,b\n\xff\xfe,\xc3\n", [("\ufffd\ufffd".encode(), "\ufffd".encode())]),
    (b"a,b\n\xff\n\xc3\n1,2\n", [(b"1", b"2"), (None, None), (None, None)]),
    (b"a,b\n1,\xc3", [(b"1", "\ufffd".encode())]), (b"a,b\n\x00,x\x00y\n", [(b"\x00", b"x\x00y")]),
    (b'a,b\n"x, ""y""\nz",2', [(b'x, "y"\nz', b"2")]),
    (b'a,b\n1,"never closed\n2,3\n', [(b"1", b"never closed\n2,3\n")]), (b"a,b\n NA ,null\n", [(b" NA ", b"null")]),
    (b"a\n1\n\n2\n", [(b"1",), (b"",), (b"2",)]), (b'a\n""\n', [(b"",)]),
    (b"a,b\n" + b"x" * 3_000_000 + b",2\n", [(b"x" * 3_000_000, b"2")]),
])  # fmt: skip
def test_no_row_of_a_csv_file_makes_reading_fail(tmp_path: Path, data: bytes, rows: list[tuple[bytes, ...]]) -> None:
    assert cells(tmp_path / "t.csv", data) == rows


def test_an_unclosed_quote_of_eighteen_megabytes_is_no_error(tmp_path: Path) -> None:
    found = cells(tmp_path / "t.csv", b'a,b\n1,2\n"' + b"3,4\n" * 4_500_000)
    assert found == [(b"1", b"2"), (None, None)]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_columns_are_found_by_their_whole_name_in_wide_files_too(tmp_path: Path, kind: str) -> None:
    names = ["^.*$", "*", "a", "^a$", "a.b", "x y", "é", *(f"column_{i}" for i in range(3_000))]
    frame, path = pl.DataFrame({name: [number] for number, name in enumerate(names)}), tmp_path / f"t.{kind}"
    frame.write_parquet(path) if kind == "parquet" else frame.write_csv(path)
    source, wanted = open_source(path), ("column_2999", *names[:8])
    assert source.columns == tuple(names)
    (batch,) = source.batches(wanted)
    assert batch.columns == list(wanted)
    assert [int(value) for value in batch.row(0)] == [3_006, *range(8)]


def test_batches_of_wide_tables_have_fewer_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {0: BATCH_ROWS, 1: BATCH_ROWS, 1_024: BATCH_ROWS, 1_025: BATCH_ROWS // 2, 4_096: BATCH_ROWS // 4, 10**9: 64}
    assert {columns: batch_rows(columns) for columns in rows} == rows
    monkeypatch.setattr(sources, "_BATCH_CELLS", 512)
    data = pa.table({"x": range(1_000), "y": range(1_000)})
    pq.write_table(data, tmp_path / "t.parquet")
    for source in (data, tmp_path / "t.parquet"):
        assert {batch.height for batch in open_source(source).batches(("x", "y"))} == {256, 1_000 - 3 * 256}


@pytest.mark.parametrize("group", [1, 7, 1_000])
def test_row_groups_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int) -> None:
    monkeypatch.setattr(sources, "BATCH_ROWS", 64)
    data = pa.table({"x": range(300), "text": [f"t{i % 90}" for i in range(300)]})
    pq.write_table(data, tmp_path / "t.parquet", row_group_size=group, use_dictionary=group == 7)
    batches = list(open_source(tmp_path / "t.parquet").batches(("text", "x")))
    assert [row for batch in batches for row in batch.to_dicts()] == data.select(["text", "x"]).to_pylist()
    assert max(batch.height for batch in batches) <= 64
    # Small groups are read together.
    assert len(batches) < 12


def test_the_number_of_rows_is_known_where_a_file_states_it(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "1.parquet")
    pq.write_table(TABLE, tmp_path / "2.parquet")
    assert open_source(tmp_path / "1.parquet").n_rows == 4
    assert open_source(tmp_path).n_rows == 8
    (tmp_path / "3.csv").write_text(CSV, encoding="utf-8")
    assert open_source(tmp_path).n_rows is None
    assert open_source(TABLE).n_rows is None


def refusal(data: object) -> str:
    """What is said of a table that cannot be read: nothing of it, not even in what a traceback would show beside it."""

    def read_all() -> None:
        source = open_source(data)
        list(source.batches(source.columns))

    with pytest.raises(DataError) as refused:
        read_all()
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
    return str(refused.value)


EMPTY = "file '{}' is empty. It must hold a header and rows."
NO_HEADER, UNREAD = (f"file '{{}}' has no {word} line. It must begin with the column names." for word in HEADERS)


@pytest.mark.parametrize(("name", "data", "message"), [
    ("t.csv", b"", EMPTY), ("t.parquet", b"", EMPTY), ("t.csv", b"\n\na,b\n", NO_HEADER),
    ("t.csv", b",\n1,2\n", NO_HEADER),
    ("t.csv", b"a,b,a\n1,2,3\n", "columns 1 and 3 of file '{}' have the same name. Rename one of them."),
    ("t.csv", b"a" * 200_000, UNREAD), ("t.csv.gz", b"a,b\n1,2\n", UNREAD),
    ("t.xls", b"PK", SUFFIXES + "Save it as .xlsx, or as CSV."),
    ("t.sas7bdat", b"", "file '{}' is empty. It must hold a header and rows."),
    ("t.sas7bdat", b"SAS", SUFFIXES + "Save it as a .sav, .dta or CSV file."),
    ("t", b"a\n1\n", SUFFIXES + "Write the table in one of them."), ("t.zip", b"PK", ZIP),
    ("t.json", b'{"a": [1]}', NO_LIST), ("t.json", b"", NO_LIST),
    ("t.arrow", SECRET.encode() * 20, f"file '{{}}' is not an Arrow file{UNREADABLE}"),
    ("t.parquet", SECRET.encode() * 20, f"file '{{}}' is not a Parquet file{UNREADABLE}"),
    ("no.csv", None, "file '{}' does not exist. Check the path."),
    ("t.csv.zst", None, "file '{}' does not exist. Check the path."),
])  # fmt: skip
def test_a_file_is_refused(tmp_path: Path, name: str, data: bytes | None, message: str) -> None:
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    assert refusal(path) == message.format(path)


TWICE = "columns 1 and 2 of the table have the same name. Rename one of them."
OBJECTS = (
    ([1, 2],
        "data must be a path or an object that exports an Arrow stream (pyarrow, pandas, polars, DuckDB), got list."),
    (pl.Series([1]),
        "the table of type Series does not export an Arrow stream. It must be a table of rows and named columns."),
    (pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), TWICE),
    (pd.DataFrame([[1, 2]], columns=[7, "7"]), TWICE),
    (
        f"mysql://me:{SECRET}@host/table",
        "an address must begin with one of s3://, gs://, gcs://, az://, azure://, abfs://, abfss://, adl://, or be "
        "that of a database.",
    ),
    (
        "s3://bucket/t.csv",
        "'s3://bucket/t.csv' must be a .parquet or .arrow file, or a folder of Parquet files. Copy text files to a "
        "disk first.",
    ),
)  # fmt: skip


@pytest.mark.parametrize(("data", "message"), OBJECTS)
def test_objects_and_addresses_that_are_no_table_are_refused(data: object, message: str) -> None:
    assert refusal(data) == message


CUT = "could not be read to its end: it is damaged or cut off. Nothing was released."


def test_a_file_that_is_cut_off_is_refused_without_quoting_it(tmp_path: Path) -> None:
    rows = "".join(f"{SECRET}{i * 7919 % 100_003},{i}\n" for i in range(20_000))
    packed = gzip.compress(f"a,b\n{rows}".encode())
    data = as_bytes(partial(pq.write_table, pa.table({"a": [f"{SECRET}{i}" for i in range(20_000)]})))
    cut = {"t.csv.gz": packed[: len(packed) // 2], "t.parquet": data[:4] + b"\xff" * 4_996 + data[5_000:]}
    for name, content in cut.items():
        (tmp_path / name).write_bytes(content)
        assert refusal(tmp_path / name) == f"file '{tmp_path / name}' {CUT}"


def test_a_stream_that_breaks_is_refused_without_quoting_it() -> None:
    def broken() -> object:
        yield pa.record_batch({"a": [1]})
        raise pa.ArrowInvalid(f"cannot convert {SECRET}")

    assert refusal(pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), broken())) == f"the table {CUT}"


def coded(data: object, schema: Schema) -> list[list[int]]:
    return [list(row) for batch in open_source(data).batches(schema.names) for row in encode(batch, schema).T.tolist()]


NUMBERS = Schema.from_toml("[attributes.x]\ntype = 'integer'\nedges = [0, 10, 20]\nmissing = '?'")
TIMES = Schema.from_toml(
    "[attributes.x]\ntype = 'datetime'\nedges = ['1970-01-01', '2000-01-01T12:00:00', '2030-01-01']\nmissing = '?'"
)


@pytest.mark.parametrize(
    "kind",
    ["int8", "uint64", "float32", "float64", "Int16", "Float64", "string", "category", "object", "int64[pyarrow]"],
)
def test_pandas_columns_of_every_kind_of_number(kind: str) -> None:
    values = pd.Series([0, 12, 100]).astype(kind)
    assert coded(pd.DataFrame({"x": values}), NUMBERS) == [[0], [1], [1]]
    if kind not in ("int8", "uint64"):
        values[1] = None
        assert coded(pd.DataFrame({"x": values}), NUMBERS) == [[0], [2], [1]]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_pandas_times(unit: str, zone: str | None) -> None:
    moments = pd.Series(["2000-01-01 11:59:59", "2000-01-01 12:00:00", None]).astype(f"datetime64[{unit}]")
    if zone is not None:
        moments = moments.dt.tz_localize("UTC").dt.tz_convert(zone)
    assert coded(pd.DataFrame({"x": moments}), TIMES) == [[0], [1], [2]]


def test_pandas_columns_that_are_in_no_domain() -> None:
    for values in (
        pd.Series([pd.Timedelta(1), None]),
        pd.Series([1 + 2j, None], dtype=complex),
        pd.Series(pd.IntervalIndex.from_tuples([(0, 1), (1, 2)])),
        pd.Series(pd.period_range("2000", periods=2)),
    ):
        assert {code for [code] in coded(pd.DataFrame({"x": values}), NUMBERS)} == {2}
    sparse = pd.Series(pd.arrays.SparseArray([0, 0, 12]))
    assert coded(pd.DataFrame({"x": sparse}), NUMBERS) == [[0], [0], [1]]


def test_a_named_index_is_a_column_and_labels_are_texts() -> None:
    frame = pd.DataFrame({7: [1, 2], "y": [3, 4]}, index=pd.Index([5, 15], name="x"))
    assert open_source(frame).columns == ("7", "y", "x")
    assert coded(frame, NUMBERS) == [[0], [1]]


def test_pandas_needs_no_pyarrow() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import pandas as pd\nfrom sklar.rows.read import open_source\n"
        "frame = pd.DataFrame({'x': ['a', None, 'b'], 'n': [1, 2, 3], 't': pd.to_datetime(['2000-01-01'] * 3)})\n"
        "source = open_source(frame.astype({'n': 'Int8'}))\n"
        "[batch] = source.batches(source.columns)\nprint(batch.height)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "3\n", done.stderr


def test_a_stream_is_read_once_and_never_held_as_a_whole() -> None:
    given = 0

    def endless() -> Iterator[pa.RecordBatch]:
        nonlocal given
        while True:
            given += 1
            yield pa.record_batch({"x": [given]})

    batches = open_source(pa.RecordBatchReader.from_batches(pa.schema({"x": pa.int64()}), endless())).batches(("x",))
    for number in range(1, 20):
        assert next(batches)["x"].to_list() == [number]
    assert given <= 21


def test_no_column_that_is_not_asked_for_is_looked_at() -> None:
    union = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])
    nowhere = pa.array([0], pa.timestamp("us", "No/Where"))
    assert coded(pa.table({"u": union, "t": nowhere, "x": [12]}), NUMBERS) == [[1]]


PARTITIONED = Schema.from_toml("""
    [attributes]
    x = {type = "integer", edges = [0, 10, 20]}
    city = {type = "categorical", values = ["a b", "c"], missing = "?"}
    year = {type = "integer", edges = [2000, 2001, 2002]}
""")


@pytest.mark.parametrize("kind", ["parquet", "csv", "ndjson"])
def test_folders_named_after_values_are_columns(tmp_path: Path, kind: str) -> None:
    places = {
        "year=2000/city=a%20b": [5], "year=2001/city=c": [15, 5], "year=2001/city=__HIVE_DEFAULT_PARTITION__": [7],
    }  # fmt: skip
    for place, values in places.items():
        (tmp_path / place).mkdir(parents=True)
        getattr(pl.DataFrame({"x": values}), f"write_{kind}")(tmp_path / place / f"t.{kind}")
    found = coded(tmp_path, PARTITIONED)
    assert sorted(found) == sorted([[0, 0, 0], [1, 1, 1], [0, 1, 1], [0, 2, 1]])
    years = Schema(name="t", attributes=PARTITIONED.attributes[2:])
    assert sorted(coded(tmp_path, years)) == [[0], [1], [1], [1]]


def test_a_json_line_longer_than_a_block_is_a_row_of_nulls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_LONGEST", 64)
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"x": 5}\n{"x": 5, "y": "' + b"z" * 1_000 + b'"}\n{"x": 15}\n')
    assert coded(path, NUMBERS) == [[0], [2], [1]]


def test_a_compression_that_needs_more_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.csv.zst").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refuses(r"a file that ends in \.zst needs pyarrow", open_source, tmp_path / "t.csv.zst", error=MissingExtraError)


def test_folders_are_refused(tmp_path: Path) -> None:
    message = f"the folder '{tmp_path}' holds no files. It must hold files of a table."
    assert refusal(tmp_path) == message
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    first.write_text("a,b\n1,2\n")
    second.write_text("a,c\n1,2\n")
    message = f"file '{second}' and file '{first}' have different columns. Files of a folder must agree."
    assert refusal(tmp_path) == message
    second.write_text("a,b,b\n1,2,3\n")
    assert refusal(tmp_path) == f"columns 2 and 3 of file '{second}' have the same name. Rename one of them."


def heights(data: object) -> int:
    return sum(batch.height for batch in open_source(data).batches(("x",)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.csv").write_text("x\n" + "5\n" * 100)
    return tmp_path / "d"


SAME = "are the same file (a link, or a path given twice): its rows would count twice. Remove one of them."


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_beside_its_file_is_refused(folder: Path, link: Callable[[Path, Path], None]) -> None:
    link(folder / "a.csv", folder / "b.csv")
    assert refusal(folder) == f"'{folder / 'a.csv'}' and '{folder / 'b.csv'}' {SAME}"
    refuses("are the same file", fit, folder, NUMBERS, epsilon=1.0, error=DataError)


def test_two_links_to_one_file_elsewhere_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "far.csv").write_text("x\n1\n")
    (folder / "b.csv").symlink_to(tmp_path / "far.csv")
    assert heights(folder) == 101
    (folder / "c.csv").symlink_to("b.csv")
    assert refusal(folder) == f"'{folder / 'b.csv'}' and '{folder / 'c.csv'}' {SAME}"


def test_linked_folders_are_read_once(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "z.csv").write_text("x\n1\n")
    (folder / "in").symlink_to(tmp_path / "more")
    assert heights(folder) == 101
    (folder / "in2").symlink_to(tmp_path / "more")
    message = "are the same folder (one is a link): its rows would count twice. Remove one of them."
    assert refusal(folder).endswith(message)
    (folder / "in2").unlink()
    (folder / "in").unlink()
    (folder / "round").symlink_to(folder)
    assert refusal(folder) == f"'{folder}' and '{folder / 'round'}' {message}"


def test_a_link_to_nothing_is_refused(folder: Path) -> None:
    (folder / "b.csv").symlink_to("gone.csv")
    message = f"'{folder / 'b.csv'}' is a link to a file that does not exist. Remove it, or bring the file back."
    assert refusal(folder) == message
    (folder / "_b.csv").symlink_to("gone.csv")
    (folder / "b.csv").unlink()
    assert files_of(folder) == [folder / "a.csv"]


def test_a_list_of_paths_is_one_table(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("x\n1\n2\n")
    both = [folder, str(tmp_path / "b.csv")]
    assert heights(both) == 102
    assert open_source(both).name == "the list of 2 paths"
    assert sum(batch.height for batch in open_source(both).scan(("x",))) == 102
    twice = [folder / "a.csv", f"{folder}/../d/a.csv"]
    assert refusal(twice) == f"'{twice[0]}' and '{twice[1]}' {SAME}"
    assert refusal([folder, folder / "a.csv"]) == f"'{folder / 'a.csv'}' and '{folder / 'a.csv'}' {SAME}"
    (tmp_path / "link.csv").symlink_to(tmp_path / "b.csv")
    assert refusal([tmp_path / "b.csv", tmp_path / "link.csv"]).endswith(SAME)
    assert refusal([tmp_path / "no.csv"]) == f"file '{tmp_path / 'no.csv'}' does not exist. Check the path."
    (tmp_path / "c.csv").write_text("y\n1\n")
    assert "have different columns" in refusal([tmp_path / "b.csv", tmp_path / "c.csv"])
