"""Files: whole or not at all, and read back as they were meant."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray

from sklar.draw.decode import decode, record_schema
from sklar.errors import OutputError
from sklar.files.write import SUFFIXES, check_target, replacing, write_batches, write_text
from sklar.public.schema import Schema
from sklar.rows.encode import encode
from sklar.rows.read import open_source
from tests.conftest import schemas_with_codes

PLAIN = Schema.from_toml(
    """
    [attributes.city]
    type = "categorical"
    values = ["Bern", "Lugano"]
    missing = "?"
    [attributes.age]
    type = "integer"
    edges = [40, 41]
    missing = "NA"
    [attributes.income]
    type = "real"
    edges = [0, 5e-324]
    missing = ""
    [attributes.born]
    type = "date"
    edges = ["1970-01-01", "1970-01-02"]
    [attributes.citizen]
    type = "boolean"
    missing = "unknown"
    """
)
CODES = np.array([[0, 1, 2], [0, 0, 1], [0, 0, 1], [0, 0, 0], [0, 1, 2]], dtype=np.int32)
FAILURES = [RuntimeError("stop"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")]


def records(schema: Schema = PLAIN, codes: NDArray[np.int32] = CODES) -> pa.RecordBatch:
    return decode(codes, schema, np.random.default_rng(3))


def write(path: Path, schema: Schema = PLAIN, codes: NDArray[np.int32] = CODES) -> None:
    write_batches(path, record_schema(schema), [records(schema, codes)], schema)


def test_csv_is_plain_when_nothing_needs_quotes(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    write(path)
    assert path.read_text() == (
        "city,age,income,born,citizen\n"
        "Bern,40,0,1970-01-01,false\n"
        "Lugano,40,0,1970-01-01,true\n"
        "?,NA,,1970-01-01,unknown\n"
    )


@pytest.mark.parametrize("mark", [",", '"', "\n", "\r"])
@pytest.mark.parametrize("place", ["name", "value", "missing"])
def test_csv_quotes_when_something_needs_it(tmp_path: Path, mark: str, place: str) -> None:
    odd = {key: f"a{mark}b" if key == place else key for key in ("name", "value", "missing")}
    entry = {"type": "categorical", "values": [odd["value"]], "missing": odd["missing"]}
    schema = Schema.from_dict({"attributes": {odd["name"]: entry, "n": {"type": "integer", "edges": [0, 1]}}})
    write(tmp_path / "out.csv", schema, np.array([[0, 1], [0, 0]], dtype=np.int32))
    rows = [row for batch in open_source(tmp_path / "out.csv").batches(schema.names) for row in batch.to_pylist()]
    assert rows == [
        {odd["name"]: odd["value"].encode(), "n": b"0"},
        {odd["name"]: odd["missing"].encode(), "n": b"0"},
    ]


@given(described=schemas_with_codes())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reading_and_encoding_a_file_gives_the_codes_back(
    described: tuple[Schema, NDArray[np.int32]], tmp_path: Path
) -> None:
    schema, codes = described
    for suffix in SUFFIXES:
        path = tmp_path / f"out{suffix}"
        write(path, schema, codes)
        source = open_source(path)
        assert source.columns == schema.names
        rows = [row for part in source.batches(schema.names) for row in encode(part, schema).T.tolist()]
        assert rows == codes.T.tolist()


def test_parquet_keeps_types_nulls_and_all_batches(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    batch = records()
    many = [batch] * 50_000
    write_batches(path, batch.schema, many, PLAIN)
    table = pq.read_table(path)
    assert table.schema == record_schema(PLAIN)
    assert table.slice(149_997).to_pylist() == batch.to_pylist()
    assert table.num_rows == 150_000
    assert table["city"].null_count == 50_000
    # Row groups are gathered from small batches.
    assert pq.read_metadata(path).num_row_groups == 2


def test_row_groups_have_one_size_whatever_the_batches(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    whole = pa.record_batch({"x": np.arange(300_000), "even": np.arange(300_000) % 2 == 0})
    found = []
    for sizes in ([300_000], [0, 5, 262_139, 0, 37_856], [131_072, 131_072, 37_856]):
        begins = np.cumsum([0, *sizes])
        batches = [whole.slice(int(begin), size) for begin, size in zip(begins, sizes, strict=False)]
        write_batches(path, whole.schema, batches, None)
        groups = [pq.read_metadata(path).row_group(index).num_rows for index in range(3)]
        assert groups == [131_072, 131_072, 37_856]
        assert pq.read_table(path).equals(pa.Table.from_batches([whole]))
        found.append(path.read_bytes())
    assert found[0] == found[1] == found[2]


def test_parquet_looks_for_repetitions_only_where_there_are_some(tmp_path: Path) -> None:
    schema = Schema.from_toml(
        """
        [attributes.city]
        type = "categorical"
        values = ["Bern", "Lugano"]
        [attributes.age]
        type = "integer"
        edges = [0, 50, 100]
        [attributes.salary]
        type = "integer"
        edges = [0, 50_000, 100_000]
        [attributes.income]
        type = "real"
        edges = [0, 1, 2]
        """
    )
    write(tmp_path / "out.parquet", schema, np.zeros((4, 5), dtype=np.int32))
    group = pq.read_metadata(tmp_path / "out.parquet").row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(4)] == [True, True, False, False]
    assert not group.column(0).is_stats_set


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_rows_make_a_file_with_a_header(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    write_batches(path, record_schema(PLAIN), [], PLAIN)
    source = open_source(path)
    assert source.columns == PLAIN.names
    assert list(source.batches(PLAIN.names)) == []


def test_without_a_description_nulls_are_empty(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    batch = pa.record_batch({"a": ["x,y", None], "b": [1, None]})
    write_batches(path, batch.schema, [batch], None)
    assert path.read_text() == '"a","b"\n"x,y",1\n,\n'


def test_text_is_written_as_utf8(tmp_path: Path) -> None:
    write_text(tmp_path / "a.toml", "é\n")
    assert (tmp_path / "a.toml").read_bytes() == b"\xc3\xa9\n"


def broken(failure: BaseException) -> Iterator[pa.RecordBatch]:
    yield records()
    raise failure


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("failure", FAILURES, ids=["error", "interrupt", "full"])
@pytest.mark.parametrize("before", [None, "old"])
def test_a_stream_that_breaks_leaves_what_was_there(
    tmp_path: Path, suffix: str, failure: BaseException, before: str | None
) -> None:
    path = tmp_path / f"out{suffix}"
    if before is not None:
        path.write_text(before)
    expected = OutputError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(expected) as raised:
        write_batches(path, record_schema(PLAIN), broken(failure), PLAIN)
    if isinstance(failure, OSError):
        assert str(raised.value) == (
            f"'{path}' could not be written: No space left on device. Nothing was left behind."
        )
    assert sorted(tmp_path.iterdir()) == ([] if before is None else [path])
    assert before is None or path.read_text() == before


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_disk_that_fills_up_leaves_nothing(tmp_path: Path, suffix: str) -> None:
    # A limit on the size of files fails in the operating system, below Arrow, as a full disk does.
    program = f"""
import resource, signal
from pathlib import Path
import pyarrow as pa
from sklar.errors import OutputError
from sklar.files.write import write_batches
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
batch = pa.record_batch({{"x": pa.array(range(300_000))}})
try:
    write_batches(Path("out{suffix}"), batch.schema, [batch], None)
except OutputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.startswith(f"'out{suffix}' could not be written: ")
    assert done.stdout.endswith(" Nothing was left behind.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_to_flush_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left on device"):
        write(tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []


def test_the_final_name_appears_only_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with replacing(path) as temporary:
        temporary.write_text("half")
        assert temporary.parent == tmp_path
        assert not path.exists()
    assert [file.name for file in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_files_have_the_mode_of_any_new_file(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "out.csv")
    finally:
        assert os.umask(before) == umask
    assert (tmp_path / "out.csv").stat().st_mode & 0o777 == mode


def test_targets_are_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def message(path: Path) -> str:
        with pytest.raises(OutputError) as refused:
            check_target(path, SUFFIXES)
        return str(refused.value)

    assert check_target(str(tmp_path / "out.CSV"), SUFFIXES) == tmp_path / "out.CSV"
    assert message(tmp_path / "out.txt") == f"'{tmp_path / 'out.txt'}' must end in .csv or .parquet."
    (tmp_path / "dir.csv").mkdir()
    assert message(tmp_path / "dir.csv") == f"'{tmp_path / 'dir.csv'}' is a folder. Name a file in it."
    absent = tmp_path / "no" / "out.csv"
    assert message(absent) == f"the folder '{absent.parent}' does not exist. Create it first."
    # The superuser may write anywhere, so that the answer is given here.
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    assert message(tmp_path / "out.csv") == (
        f"the folder '{tmp_path}' cannot be written to. Choose another, or ask for the right."
    )


def test_a_folder_that_vanished_is_an_output_error(tmp_path: Path) -> None:
    path = tmp_path / "no" / "out.csv"
    with pytest.raises(OutputError) as refused:
        write(path)
    assert str(refused.value) == f"'{path}' cannot be written: No such file or directory."
