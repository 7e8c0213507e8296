"""Reading: every kind of table gives the same rows; bad tables are refused early; no row can make reading fail."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
import lzma
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sklar.errors import DataError, MissingExtraError
from sklar.public.schema import Schema
from sklar.rows import source as sources
from sklar.rows import text
from sklar.rows.count import ask_all, count
from sklar.rows.encode import encode
from sklar.rows.read import open_source
from sklar.rows.source import BATCH_ROWS, batch_rows, require_columns

COLUMNS = {"name": ["Ann", "Bo, jr", 'C "x"', None], "age": [30, None, 5, 41], "city": ["é", "a\nb", "", "z"]}
CSV = 'name,age,city\nAnn,30,é\n"Bo, jr",,"a\nb"\n"C ""x""",5,\n,41,z\n'
JSON_LINES = "\n".join(json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in zip(*COLUMNS.values(), strict=True))
SCHEMA = Schema.from_toml(
    """
    [attributes.city]
    type = "categorical"
    values = ["é", "a\\nb", "z"]
    missing = ""
    [attributes.name]
    type = "categorical"
    values = ["Ann", "Bo, jr", 'C "x"']
    missing = "?"
    [attributes.age]
    type = "integer"
    edges = [0, 10, 35, 50]
    missing = "?"
    """
)
CODES = [[0, 1, 3, 2], [0, 1, 2, 3], [1, 3, 0, 2]]
SECRET = "SECRETCELL"
UNREADABLE = ", it is damaged, or a column has a type that polars cannot read."
SUFFIXES = (
    "file '{}' must end in .parquet, .arrow, .csv, .tsv, .ndjson or .jsonl (text files also in .gz and other "
    "compressions)."
)


def table() -> pa.Table:
    return pa.table(COLUMNS)


def as_file(name: str, data: bytes) -> Callable[[Path], object]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return make


def as_parquet(folder: Path) -> Path:
    pq.write_table(table(), folder / "t.parquet")
    return folder / "t.parquet"


def as_arrow(folder: Path) -> Path:
    with pa.ipc.new_file(folder / "t.arrow", table().schema) as writer:
        writer.write_table(table())
    return folder / "t.arrow"


def as_parquet_folder(folder: Path) -> str:
    (folder / "deep").mkdir()
    pq.write_table(table().slice(0, 1), folder / "1.parquet")
    pq.write_table(table().slice(1).select(["city", "age", "name"]), folder / "deep" / "2.parquet")
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden.csv").write_text("x\n1\n")
    (folder / "_delta_log").mkdir()
    (folder / "_delta_log" / "0.json").write_text("{}")
    return str(folder)


def as_csv_folder(folder: Path) -> Path:
    (folder / "1.csv").write_text('name,age,city\nAnn,30,é\n"Bo, jr",,"a\nb"\n', encoding="utf-8")
    (folder / "2.csv").write_text('city,name,age\n,"C ""x""",5\nz,,41\n', encoding="utf-8")
    return folder


def as_reader(_folder: Path) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table().schema, table().to_batches(max_chunksize=1))


def as_duckdb(_folder: Path) -> object:
    connection = duckdb.connect()
    connection.register("source", table())
    return connection.sql("select * from source")


SOURCES: dict[str, Callable[[Path], object]] = {
    "csv": as_file("t.csv", CSV.encode()),
    "upper case": as_file("T.CSV", CSV.encode()),
    "gz": as_file("t.csv.gz", gzip.compress(CSV.encode())),
    "tsv": as_file("t.tsv", CSV.replace("Bo, jr", "Bo; jr").replace(",", "\t").replace("Bo; jr", "Bo, jr").encode()),
    "byte order mark": as_file("t.csv", b"\xef\xbb\xbf" + CSV.encode()),
    "no last newline": as_file("t.csv", CSV.encode().rstrip(b"\n")),
    "crlf": as_file("t.csv", CSV.replace("\n", "\r\n").replace("a\r\nb", "a\nb").encode()),
    "blank lines": as_file("t.csv", CSV.replace("30,é\n", "30,é\n\n").encode() + b"\n\n"),
    "xz": as_file("t.csv.xz", lzma.compress(CSV.encode())),
    "bz2": as_file("t.csv.bz2", bz2.compress(CSV.encode())),
    "json lines": as_file("t.ndjson", JSON_LINES.encode()),
    "packed json lines": as_file("t.jsonl.gz", gzip.compress(JSON_LINES.encode())),
    "arrow": as_arrow,
    "parquet": as_parquet,
    "parquet folder": as_parquet_folder,
    "csv folder": as_csv_folder,
    "pyarrow": lambda _: table(),
    "reader": as_reader,
    "pandas": lambda _: pd.DataFrame(COLUMNS),
    "pandas categories": lambda _: pd.DataFrame(COLUMNS).astype({"name": "category", "city": "category"}),
    "polars": lambda _: pl.DataFrame(COLUMNS),
    "polars categories": lambda _: pl.DataFrame(COLUMNS).with_columns(pl.col("name").cast(pl.Categorical)),
    "duckdb": as_duckdb,
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_every_source_gives_the_same_rows_in_the_order_asked(make: Callable[[Path], object], tmp_path: Path) -> None:
    source = open_source(make(tmp_path))
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


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"a,b\n", []),
        (b"a,b", []),
        (b"a,b\r\n1,2\r\n", [(b"1", b"2")]),
        (b"a,b\n1\n2,3\n4,5,6\n", [(b"2", b"3"), (None, None), (None, None)]),
        (b"a,b\n1\n", [(None, None)]),
        (b"a,b\n\xff\xfe,\xc3\n", [("\ufffd\ufffd".encode(), "\ufffd".encode())]),
        (b"a,b\n\xff\n\xc3\n1,2\n", [(b"1", b"2"), (None, None), (None, None)]),
        (b"a,b\n1,\xc3", [(b"1", "\ufffd".encode())]),
        (b"a,b\n\x00,x\x00y\n", [(b"\x00", b"x\x00y")]),
        (b'a,b\n"x, ""y""\nz",2', [(b'x, "y"\nz', b"2")]),
        (b'a,b\n1,"never closed\n2,3\n', [(b"1", b"never closed\n2,3\n")]),
        (b"a,b\n NA ,null\n", [(b" NA ", b"null")]),
        (b"a\n1\n\n2\n", [(b"1",), (b"",), (b"2",)]),
        (b'a\n""\n', [(b"",)]),
        (b"a,b\n" + b"x" * 3_000_000 + b",2\n", [(b"x" * 3_000_000, b"2")]),
    ],
)
def test_no_row_of_a_csv_file_makes_reading_fail(tmp_path: Path, data: bytes, rows: list[tuple[bytes, ...]]) -> None:
    assert cells(tmp_path / "t.csv", data) == rows


@given(body=st.text('ab,"\r\n \x00', max_size=60).map(str.encode) | st.binary(max_size=60))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bytes_after_the_header_never_raise(tmp_path: Path, body: bytes) -> None:
    assert all(len(row) == 2 for row in cells(tmp_path / "t.csv", b"a,b\n" + body))


@pytest.mark.parametrize(
    "row",
    [
        b'"never closed,2\n' + b"3,4\n" * 4_000,
        b'1,"never closed\n' + b"3,4\n" * 4_000,
        b"x" * 20_000 + b",2\n",
        b"1," + b"y" * 20_000 + b"\n",
        b'1,"' + b'""z\n' * 5_000 + b'"\n',
        b",".join([b"5"] * 20_000) + b"\n",
    ],
    ids=["unclosed first", "unclosed last", "wide first", "wide last", "quotes in quotes", "many fields"],
)
def test_a_row_that_is_too_long_is_one_row_of_unknown_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: bytes
) -> None:
    monkeypatch.setattr(text, "_BLOCK", 1_024)
    monkeypatch.setattr(text, "_LONGEST", 4_096)
    before = [(b"%d" % i, b"p") for i in range(100)]
    head = b"a,b\n" + b"".join(b"%b,%b\n" % pair for pair in before)
    after = [] if b"never closed" in row else [(b"7", b"8")]
    found = cells(tmp_path / "t.csv", head + row + b"".join(b"%b,%b\n" % pair for pair in after))
    assert sorted(found, key=str) == sorted([*before, (None, None), *after], key=str)


def test_an_unclosed_quote_of_forty_megabytes_is_no_error(tmp_path: Path) -> None:
    found = cells(tmp_path / "t.csv", b'a,b\n1,2\n"' + b"3,4\n" * 10_000_000)
    assert found == [(b"1", b"2"), (None, None)]


def test_a_ragged_row_counts_as_a_row_of_unknown_values(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"x,y\ntrue,false\ntrue\ntrue,false,true\n")
    schema = Schema.from_toml("[attributes.x]\ntype = 'boolean'\nmissing = ''\n[attributes.y]\ntype = 'boolean'")
    counts = count(open_source(path).batches(schema.names), ask_all(schema))
    assert counts.n_rows == 3
    assert counts.one_way.tolist() == [0, 1, 2, 1, 0]


def test_rows_are_the_same_however_the_file_is_cut_into_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"a,b\n" + b"".join(b'%d,"x\n%d"\n%s' % (i, i, b"odd\n" * (i % 7 == 0)) for i in range(400))
    whole = cells(tmp_path / "t.csv", data)
    monkeypatch.setattr(text, "_BLOCK", 64)
    assert sorted(cells(tmp_path / "t.csv", data), key=str) == sorted(whole, key=str)
    assert len(whole) == 400 + 58


def test_wide_files_and_single_columns_of_them(tmp_path: Path) -> None:
    names = [f"column_{i}" for i in range(3_000)]
    path = tmp_path / "t.csv"
    path.write_text(",".join(names) + "\n" + ",".join(map(str, range(3_000))) + "\n")
    source = open_source(path)
    assert source.columns == tuple(names)
    (batch,) = source.batches(("column_2999", "column_7"))
    assert batch.to_dict(as_series=False) == {"column_2999": ["2999"], "column_7": ["7"]}


@pytest.mark.parametrize("name", ["a.b", "a", "x y", "é"])
def test_parquet_columns_are_found_by_their_whole_name(tmp_path: Path, name: str) -> None:
    pq.write_table(pa.table({name: [1], "b": [2], "s": [{"b": 3}]}), tmp_path / "t.parquet")
    (batch,) = open_source(tmp_path / "t.parquet").batches(("s", name))
    assert batch.to_dict(as_series=False) == {"s": [{"b": 3}], name: [1]}


@pytest.mark.parametrize("suffix", ["csv", "parquet", ""])
def test_batches_are_bounded(tmp_path: Path, suffix: str) -> None:
    rows = 2 * BATCH_ROWS + 5
    data: object = pa.table({"x": range(rows)})
    if suffix == "csv":
        (tmp_path / "t.csv").write_text("x\n" + "".join(f"{i}\n" for i in range(rows)))
        data = tmp_path / "t.csv"
    elif suffix == "parquet":
        pq.write_table(data, tmp_path / "t.parquet")
        data = tmp_path / "t.parquet"
    sizes = [batch.height for batch in open_source(data).batches(("x",))]
    assert max(sizes) <= BATCH_ROWS
    assert sum(sizes) == rows


def test_batches_of_wide_tables_have_fewer_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [batch_rows(columns) for columns in (0, 1, 1_024, 1_025, 4_096, 10**9)] == [
        BATCH_ROWS,
        BATCH_ROWS,
        BATCH_ROWS,
        BATCH_ROWS // 2,
        BATCH_ROWS // 4,
        64,
    ]
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
    pq.write_table(table(), tmp_path / "1.parquet")
    pq.write_table(table(), tmp_path / "2.parquet")
    assert open_source(tmp_path / "1.parquet").n_rows == 4
    assert open_source(tmp_path).n_rows == 8
    (tmp_path / "3.csv").write_text(CSV, encoding="utf-8")
    assert open_source(tmp_path).n_rows is None
    assert open_source(table()).n_rows is None


def read_all(data: object) -> None:
    source = open_source(data)
    list(source.batches(source.columns))


def refusal(data: object) -> str:
    with pytest.raises(DataError) as refused:
        read_all(data)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.csv", b"", "file '{}' is empty. It must hold a header and rows."),
        ("t.parquet", b"", "file '{}' is empty. It must hold a header and rows."),
        ("t.csv", b"\n\na,b\n", "file '{}' has no header line. It must begin with the column names."),
        ("t.csv", b",\n1,2\n", "file '{}' has no header line. It must begin with the column names."),
        ("t.csv", b"a,b,a\n1,2,3\n", "columns 1 and 3 of file '{}' have the same name. Rename one of them."),
        (
            "t.csv",
            b"a,\xff\n1,2\n",
            "the header of file '{}' must be utf-8 text. Set encoding in [table] to what it is written in, for example "
            'encoding = "windows-1252" or "latin-1".',
        ),
        ("t.csv", b"a" * 200_000, "file '{}' has no readable header line. It must begin with the column names."),
        ("t.csv.gz", b"a,b\n1,2\n", "file '{}' has no readable header line. It must begin with the column names."),
        ("t.xlsx", b"PK", SUFFIXES),
        ("t", b"a\n1\n", SUFFIXES),
        ("t.arrow", SECRET.encode() * 20, f"file '{{}}' is not an Arrow file{UNREADABLE}"),
        ("t.parquet", SECRET.encode() * 20, f"file '{{}}' is not a Parquet file{UNREADABLE}"),
    ],
)
def test_a_file_is_refused(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert refusal(path) == message.format(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no.csv") == f"file '{tmp_path / 'no.csv'}' does not exist. Check the path."


def test_folders_are_refused(tmp_path: Path) -> None:
    assert (
        refusal(tmp_path)
        == f"the folder '{tmp_path}' holds no files. It must hold CSV, JSON lines, Parquet or Arrow files."
    )
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    first.write_text("a,b\n1,2\n")
    second.write_text("a,c\n1,2\n")
    assert refusal(tmp_path) == (
        f"file '{second}' and file '{first}' have different columns. Files of a folder must agree."
    )
    second.write_text("a,b,b\n1,2,3\n")
    assert refusal(tmp_path) == f"columns 2 and 3 of file '{second}' have the same name. Rename one of them."


CUT = "could not be read to its end: it is damaged or cut off. Nothing was released."


def test_a_file_that_is_cut_off_is_refused_without_quoting_it(tmp_path: Path) -> None:
    rows = "".join(f"{SECRET}{i * 7919 % 100_003},{i}\n" for i in range(20_000))
    packed = gzip.compress(f"a,b\n{rows}".encode())
    path = tmp_path / "t.csv.gz"
    path.write_bytes(packed[: len(packed) // 2])
    assert refusal(path) == f"file '{path}' {CUT}"
    pq.write_table(pa.table({"a": [f"{SECRET}{i}" for i in range(20_000)]}), tmp_path / "t.parquet")
    data = bytearray((tmp_path / "t.parquet").read_bytes())
    data[4:5_000] = b"\xff" * 4_996
    (tmp_path / "t.parquet").write_bytes(data)
    assert refusal(tmp_path / "t.parquet") == f"file '{tmp_path / 't.parquet'}' {CUT}"


def test_a_stream_that_breaks_is_refused_without_quoting_it() -> None:
    def broken() -> object:
        yield pa.record_batch({"a": [1]})
        raise pa.ArrowInvalid(f"cannot convert {SECRET}")

    assert refusal(pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), broken())) == f"the table {CUT}"


def test_objects_without_a_usable_stream_are_refused() -> None:
    assert refusal([1, 2]) == (
        "data must be a path or an object that exports an Arrow stream (pyarrow, pandas, polars, DuckDB), got list."
    )
    assert refusal(pl.Series([1])) == (
        "the table of type Series does not export an Arrow stream. It must be a table of rows and named columns."
    )
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert refusal(twice) == "columns 1 and 2 of the table have the same name. Rename one of them."


def coded(data: object, schema: Schema) -> list[list[int]]:
    return [list(row) for batch in open_source(data).batches(schema.names) for row in encode(batch, schema).T.tolist()]


ODD = Schema.from_toml(
    """
    [attributes.x]
    type = "categorical"
    values = ["a", "7"]
    missing = "?"
    other = true
    """
)
ODD_VALUES: list[object] = [
    "a", 7, None, float("nan"), "b", b"a", True, Decimal("7"), Decimal("sNaN"), [1], {"a": 1}, object(), pd.NA, pd.NaT,
    dt.date(2000, 1, 1), np.int8(7), np.array([1, 2]), "\ud800", 10**5000,
]  # fmt: skip
ODD_CODES = [0, 1, 2, 2, 3, 0, 3, 1, 3, 3, 3, 3, 2, 2, 3, 1, 3, 3, 3]


def test_a_column_of_python_objects_is_encoded_value_by_value() -> None:
    """One odd value among texts raises nothing and changes no other row."""
    for frame in (
        pd.DataFrame({"x": pd.Series(ODD_VALUES, dtype=object)}),
        pl.DataFrame({"x": pl.Series(ODD_VALUES, dtype=pl.Object)}),
    ):
        assert coded(frame, ODD) == [[code] for code in ODD_CODES]
    for value, code in zip(ODD_VALUES, ODD_CODES, strict=True):
        assert coded(pd.DataFrame({"x": pd.Series(["a", value, "7"], dtype=object)}), ODD) == [[0], [code], [1]]


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
    source = open_source(frame)
    assert source.columns == ("7", "y", "x")
    assert coded(frame, NUMBERS) == [[0], [1]]
    assert refusal(pd.DataFrame([[1, 2]], columns=[7, "7"])) == (
        "columns 1 and 2 of the table have the same name. Rename one of them."
    )


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


def test_names_that_look_like_patterns_are_names(tmp_path: Path) -> None:
    names = ["^.*$", "*", "a", "^a$"]
    pq.write_table(pa.table({name: [number] for number, name in enumerate(names)}), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text(",".join(names) + "\n0,1,2,3\n")
    for path in (tmp_path / "t.parquet", tmp_path / "t.csv"):
        (batch,) = open_source(path).batches(("^a$", "*"))
        assert [int(value) for value in batch.row(0)] == [3, 1]


PARTITIONED = Schema.from_toml(
    """
    [attributes.x]
    type = "integer"
    edges = [0, 10, 20]
    [attributes.city]
    type = "categorical"
    values = ["a b", "c"]
    missing = "?"
    [attributes.year]
    type = "integer"
    edges = [2000, 2001, 2002]
    """
)


@pytest.mark.parametrize("kind", ["parquet", "csv", "ndjson"])
def test_folders_named_after_values_are_columns(tmp_path: Path, kind: str) -> None:
    places = {
        "year=2000/city=a%20b": [5],
        "year=2001/city=c": [15, 5],
        "year=2001/city=__HIVE_DEFAULT_PARTITION__": [7],
    }
    for place, values in places.items():
        (tmp_path / place).mkdir(parents=True)
        getattr(pl.DataFrame({"x": values}), f"write_{kind}")(tmp_path / place / f"t.{kind}")
    found = coded(tmp_path, PARTITIONED)
    assert sorted(found) == sorted([[0, 0, 0], [1, 1, 1], [0, 1, 1], [0, 2, 1]])
    years = Schema(name="t", attributes=PARTITIONED.attributes[2:])
    assert sorted(coded(tmp_path, years)) == [[0], [1], [1], [1]]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[1]",
        b"7",
        b'{"x": 1} trailing',
        b'{"x": ' + b"[" * 10_000,
        b'{"x": "\xff"}',
        b'{"x": "\\ud800"}',
        b'{"x": {"y": 1}}',
        b'{"y": 1}',
        b'{"x": 1' + b"0" * 10_000 + b"}",
        b'{"x": NaN}',
        b"\x00",
    ],
)
def test_no_line_makes_reading_json_fail_or_changes_another(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"x": 5}\n' + line + b'\n{"x": "15", "y": null}\n')
    found = coded(path, NUMBERS)
    # A blank line is no row.
    assert (found[0], found[-1], len(found)) == ([0], [1], 3 if line else 2)


def test_a_json_line_longer_than_a_block_is_a_row_of_nulls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_LONGEST", 64)
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"x": 5}\n{"x": 5, "y": "' + b"z" * 1_000 + b'"}\n{"x": 15}\n')
    assert coded(path, NUMBERS) == [[0], [2], [1]]


def test_an_address_is_one_of_an_object_store() -> None:
    message = refusal("mysql://me:hidden@host/table")
    assert message.startswith("an address must begin with one of s3://")
    assert "hidden" not in message
    assert refusal("s3://bucket/t.csv") == (
        "'s3://bucket/t.csv' must be a .parquet or .arrow file, or a folder of Parquet files. Copy text files to a "
        "disk first."
    )


def test_a_compression_that_needs_more_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.csv.zst").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"a file that ends in \.zst needs pyarrow"):
        open_source(tmp_path / "t.csv.zst")


def test_files_compressed_as_pyarrow_compresses(tmp_path: Path) -> None:
    for name, codec in (("t.csv.zst", "zstd"), ("t.csv.lz4", "lz4"), ("t.csv.br", "brotli")):
        with pa.output_stream(tmp_path / name, compression=codec) as sink:
            sink.write(CSV.encode())
        assert sum(batch.height for batch in open_source(tmp_path / name).batches(("age",))) == 4


def test_every_attribute_needs_a_column() -> None:
    with pytest.raises(DataError) as refused:
        require_columns(open_source(pa.table({"age": [1], "town": ["x"]})), SCHEMA)
    assert str(refused.value) == (
        "the table has no column for 'city', 'name'. Correct the schema, or remove the attribute from it."
    )
