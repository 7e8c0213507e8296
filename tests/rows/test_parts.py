"""Parts of tables in files, on disks and in stores: together they are the table; a file that changed is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklar.errors import DataError
from sklar.machine.stores import Remote
from sklar.public.schema import Schema
from sklar.rows import read as of_parts
from sklar.rows.read import Part, open_files, open_part, open_source, read_part, share_out
from sklar.rows.source import Source, Span
from sklar.rows.text import _lines_within, kind_of
from tests.conftest import refuses

SCHEMA = Schema.from_toml(
    '[attributes.city]\ntype = "categorical"\nvalues = ["a", "b"]\n[attributes.age]\ntype = "integer"\nedges = [0, 9]\n'
)
UNQUOTED = Schema.from_toml('[table]\nquote = ""\n' + SCHEMA.to_toml().partition("[table]")[2].partition("\n")[2])


def opened(data: object, schema: Schema = SCHEMA) -> tuple[Source, list[Part]]:
    return open_files(data, schema)


def rows_of(parts: Sequence[Part], schema: Schema = SCHEMA) -> pl.DataFrame:
    return pl.concat([batch.cast(pl.String) for part in parts for batch in read_part(part, schema, schema.names)])


def frame(rows: int) -> pl.DataFrame:
    return pl.DataFrame({"age": range(rows), "city": ["a", "b", "c"][:1] * rows})


def file_of(rows: pl.DataFrame, name: str) -> bytes:
    """Rows as a file of this name: of its kind, in row groups of seven, packed as it says."""
    path, buffer = Path(name), BytesIO()
    if kind_of(path) == ".parquet":
        rows.write_parquet(buffer, row_group_size=7)
    else:
        getattr(rows, {".arrow": "write_ipc", ".csv": "write_csv", ".ndjson": "write_ndjson"}[kind_of(path)])(buffer)
    codec = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    return bytes(pa.compress(buffer.getvalue(), codec, asbytes=True)) if codec else buffer.getvalue()


def same_rows(found: pl.DataFrame, wanted: pl.DataFrame) -> bool:
    return found.equals(wanted.select(SCHEMA.names).cast(pl.String))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a few rows."""
    monkeypatch.setattr(of_parts, "_LEAST_ROWS", 10)
    monkeypatch.setattr(of_parts, "_LEAST_BYTES", 40)


@pytest.mark.parametrize(("name", "schema", "count"), [
    ("t.parquet", SCHEMA, 8), ("t.arrow", SCHEMA, 10), ("t.csv", SCHEMA, 1), ("t.csv", UNQUOTED, 13),
    ("t.ndjson", SCHEMA, 1),
])  # fmt: skip
def test_the_parts_of_a_file_are_its_rows_in_order(name: str, schema: Schema, count: int, tmp_path: Path) -> None:
    path, rows = tmp_path / name, frame(100)
    path.write_bytes(file_of(rows, name))
    source, parts = opened(path, schema)
    assert len(parts) == count
    assert source.n_rows == (100 if name in ("t.parquet", "t.arrow") else None)
    found = rows_of(parts, schema)
    # A number of JSON has no value of a text's.
    assert same_rows(found.sort("age"), rows.with_columns(pl.col("age").cast(pl.String)).sort("age"))
    # Whoever reads one part reads its rows alone.
    assert sum(rows_of([part], schema).height for part in parts) == 100


def test_row_groups_of_one_row_go_together_and_an_empty_file_has_no_parts(tmp_path: Path) -> None:
    frame(25).write_parquet(tmp_path / "t.parquet", row_group_size=1)
    assert [part.span for part in opened(tmp_path / "t.parquet")[1]] == [(0, 10), (10, 20), (20, 25)]
    frame(0).write_parquet(tmp_path / "none.parquet")
    source, parts = opened(tmp_path / "none.parquet")
    assert (source.n_rows, parts) == (0, [])
    assert share_out(parts, SCHEMA, cores=2, most=9) == []


@given(st.binary(max_size=60).map(lambda text: text.replace(b"x", b"\n")), st.lists(st.integers(0, 70), max_size=5))
def test_lines_of_all_spans_are_the_lines_of_the_file(text: bytes, cuts: list[int]) -> None:
    bounds = [0, *sorted(cut for cut in set(cuts) if 0 < cut < len(text)), max(len(text), 1)]
    found = [b"".join(_lines_within(BytesIO(text), first, last)) for first, last in pairwise(bounds)]
    assert b"".join(found) == text
    # Every span but the last ends with a line, so that each line has one reader.
    assert all(part.endswith(b"\n") for part in found[:-1] if part and part is not found[-1] and any(found[1:]))


def test_a_long_line_is_one_part_wherever_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbfcity,age,note\na,1," + b"z" * 200 + b"\nb,2,\r\nragged\na,3,\xff")
    parts = opened(path, UNQUOTED)[1]
    assert len(parts) > 4
    found = rows_of(parts, UNQUOTED)
    assert sorted(found["age"].fill_null("none").to_list()) == ["1", "2", "3", "none"]


def test_tasks_have_about_as_much_to_do_and_neighbors_are_joined(tmp_path: Path) -> None:
    frame(100).write_parquet(tmp_path / "t.parquet", row_group_size=10)
    parts = opened(tmp_path / "t.parquet")[1]
    assert [part.span for group in share_out(parts, SCHEMA, cores=2, most=9) for part in group] == [(0, 100)]
    heavy = [Part(address="t.parquet", root=None, version="", span=(n, n + 1), weight=10**8) for n in range(10)]
    groups = share_out(heavy, SCHEMA, cores=2, most=5)
    assert [[part.span for part in group] for group in groups] == [[(n, n + 2)] for n in range(0, 10, 2)]
    # A task takes seconds: 10^9 rows of two attributes are more than ten tasks, 10^6 only one.
    assert len(share_out(heavy, SCHEMA, cores=2, most=99)) == 10
    assert len(share_out([heavy[0]] * 3, SCHEMA, cores=64, most=99)) == 3


def test_a_file_that_changed_is_refused_before_and_after_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    frame(50).write_parquet(path, row_group_size=10)
    part, *_ = opened(path)[1]
    reading = read_part(part, SCHEMA, SCHEMA.names)
    next(reading)
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match=rf"file '{path}' changed while the table was read. Nothing was released. Run"):
        list(reading)
    refuses("changed while the table was read", next, read_part(part, SCHEMA, SCHEMA.names), error=DataError)
    path.unlink()
    refuses("changed while the table was read", next, read_part(part, SCHEMA, SCHEMA.names), error=DataError)


def test_files_must_agree_and_folders_may_be_columns(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    for city in "ab":
        (folder / f"city={city}").mkdir(parents=True)
        pl.DataFrame({"age": [1, 2]}).write_parquet(folder / f"city={city}" / "1.parquet")
    for data in (folder, [folder]):
        source, parts = opened(data)
        assert set(source.columns) == {"age", "city"}
        assert rows_of(parts)["city"].to_list() == ["a", "a", "b", "b"]
    pl.DataFrame({"ages": [1]}).write_parquet(folder / "city=a" / "0.parquet")
    refuses(r"have different columns\. Files of a folder must agree", opened, folder, error=DataError)


def test_lists_of_paths_and_what_is_not_there(tmp_path: Path) -> None:
    paths = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    for path in paths:
        frame(12).write_parquet(path)
    assert opened(paths)[0].n_rows == 24
    assert opened(paths)[0].name == "the list of 2 paths"
    assert opened(f"file://{paths[0]}")[0].n_rows == 12
    refuses("are the same file", opened, [paths[0], paths[0]], error=DataError)
    refuses(r"does not exist\. Check the path", opened, tmp_path / "3.parquet", error=DataError)
    paths[0].write_bytes(b"no Parquet")
    refuses("is not a Parquet file", opened, paths, error=DataError)


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.csv", "t.csv.gz", "t.csv.zst", "t.ndjson", "t.ndjson.zst"])
def test_files_that_pyarrow_opens_are_read_as_those_of_a_disk(name: str, tmp_path: Path) -> None:
    """As those of a store, of which this file system is one to pyarrow."""
    path, rows = tmp_path / name, frame(60)
    path.write_bytes(file_of(rows, name))
    for schema in (SCHEMA, UNQUOTED):
        spans: list[Span | None] = [None]
        if name == "t.parquet":
            spans = [(0, 14), (14, 60)]
        elif name == "t.csv" and schema is UNQUOTED:
            spans = [*pairwise([0, 4, 100, 103, 400])]
        sources = [open_part(Remote(f"file://{path}"), None, schema, span) for span in spans]
        read = pl.concat([batch.cast(pl.String) for source in sources for batch in source.batches(schema.names)])
        assert same_rows(read, rows)


@pytest.fixture
def memory() -> Any:
    """A store that fsspec has in this process."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    store = fsspec.filesystem("memory")
    yield store
    store.rm("/", recursive=True)


def test_files_of_a_store_are_read_in_parts(memory: Any) -> None:
    rows = frame(60)
    for name in ("1.parquet", "2.parquet", "_note.parquet"):
        memory.pipe(f"/table/city=a/{name}", file_of(rows, name))
    source, parts = opened("memory://table")
    assert (source.name, source.n_rows) == ("folder 'memory://table'", 120)
    assert len(parts) == 2 * 5
    assert rows_of(parts)["city"].to_list() == ["a"] * 120
    for name in ("t.csv", "t.csv.gz"):
        memory.pipe(f"/texts/{name}", file_of(rows, name))
        for schema in (SCHEMA, UNQUOTED):
            parts = opened(f"memory://texts/{name}", schema)[1]
            assert same_rows(rows_of(parts, schema), rows)
            assert (len(parts) > 1) == (schema is UNQUOTED and name == "t.csv")
    memory.pipe("/t.arrow", file_of(rows, "t.arrow"))
    assert same_rows(rows_of(opened("memory://t.arrow")[1]), rows)


def test_a_file_of_a_store_that_changed_is_refused(memory: Any) -> None:
    memory.pipe("/t.csv", file_of(frame(5), "t.csv"))
    (part,) = opened("memory://t.csv")[1]
    memory.pipe("/t.csv", file_of(frame(6), "t.csv"))
    refuses(r"file 'memory://t\.csv' changed while the table was read", rows_of, [part], error=DataError)
    with pytest.raises(DataError, match=r"'memory://nothing' does not exist, or holds no files\. Check the address"):
        opened("memory://nothing")
    memory.pipe("/bad.parquet", b"no Parquet")
    with pytest.raises(
        DataError, match=r"bad\.parquet' is not a Parquet file, it is damaged, or it cannot be reached\."
    ):
        opened("memory://bad.parquet")


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    server = pytest.importorskip("moto.server", reason="moto is not installed")
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
    with pytest.MonkeyPatch.context() as patch:
        running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        running.start()
        host, port = running.get_host_and_port()
        settings = {
            "AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ALLOW_HTTP": "true",
        }  # fmt: skip
        for name, value in settings.items():
            patch.setenv(name, value)
        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        stored = {"t.parquet": [1, 2, 3], "t.arrow": [6], "t.csv": [7, 8]}
        for key, values in (stored | {"parts/year=2000/1.parquet": [4], "parts/year=2001/2.parquet": [5]}).items():
            client.put_object(Bucket="bucket", Key=key, Body=file_of(pl.DataFrame({"x": values}), key))
        yield "s3://bucket"
        running.stop()


@pytest.mark.parametrize(("path", "columns", "rows"), [
    ("t.parquet", ("x",), [(1,), (2,), (3,)]), ("t.arrow", ("x",), [(6,)]),
    ("parts", ("x", "year"), [(4, 2000), (5, 2001)]), ("parts/", ("x", "year"), [(4, 2000), (5, 2001)]),
])  # fmt: skip
def test_files_and_folders(bucket: str, path: str, columns: tuple[str, ...], rows: list[tuple[int, ...]]) -> None:
    source = open_source(f"{bucket}/{path}")
    assert source.columns == columns
    assert sorted(row for batch in source.batches(columns) for row in batch.rows()) == rows


def test_what_is_not_there(bucket: str) -> None:
    with pytest.raises(
        DataError, match=r"'s3://bucket/no\.parquet' cannot be read\. Check the address, and the"
    ) as refused:
        open_source(f"{bucket}/no.parquet")
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "wanted"), [("t.parquet", [1, 2, 3]), ("t.arrow", [6]), ("t.csv", [7, 8]), ("parts", [4, 5])]
)
def test_parts_of_a_store_are_its_rows(bucket: str, path: str, wanted: list[int]) -> None:
    """As executors of Spark read them: listed by pyarrow, read by polars."""
    pytest.importorskip("pyarrow")
    schema = Schema.from_toml('[attributes.x]\ntype = "integer"\nedges = [0, 9]\n')
    source, parts = opened(f"{bucket.replace('s3:', 's3a:')}/{path}", schema)
    rows = [value for part in parts for batch in read_part(part, schema, ("x",)) for value in batch["x"]]
    assert [int(value) for value in rows] == wanted
    assert ("year" in source.columns) == (path == "parts")
