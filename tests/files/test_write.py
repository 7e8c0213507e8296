"""Files: whole or not at all, and read back as they were meant."""

from __future__ import annotations

import csv
import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from numpy.typing import NDArray

import sklar
from sklar.draw.decode import Decoder, record_schema
from sklar.errors import OutputError
from sklar.files.write import SUFFIXES, check_target, replacing, to_arrow, write_frames, write_text
from sklar.public.schema import Schema
from sklar.rows.encode import encode
from sklar.rows.read import open_source
from tests.cli.conftest import call
from tests.conftest import schemas_with_codes

PLAIN = Schema.load(Path(__file__).with_name("plain.toml"))
CODES = np.array([[0, 1, 2], [0, 0, 1], [0, 0, 1], [0, 0, 0], [0, 1, 2]], dtype=np.int32)
FAILURES = [RuntimeError("stop"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")]


def records(schema: Schema = PLAIN, codes: NDArray[np.int32] = CODES) -> pl.DataFrame:
    return Decoder(schema).decode(codes, np.random.default_rng(3))


def write(path: Path, schema: Schema = PLAIN, codes: NDArray[np.int32] = CODES) -> None:
    write_frames(path, record_schema(schema), [records(schema, codes)], schema)


def test_csv_is_plain_when_nothing_needs_quotes(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    write(path)
    assert path.read_text() == (
        "city,age,income,born,citizen\n"
        "Bern,40,0,1970-01-01,false\n"
        "Lugano,40,0,1970-01-01,true\n"
        "?,NA,,1970-01-01,unknown\n"
    )
    # Names that are patterns to polars are names.
    entries = {"*": {"type": "real", "edges": [0, 5e-324]}, "^.*$": {"type": "boolean", "missing": "?"}}
    write(path, Schema.from_dict({"attributes": entries}), np.array([[0, 0], [1, 2]], dtype=np.int32))
    assert path.read_text() == "*,^.*$\n0,true\n0,?\n"
    # Without a description nulls are empty; and text is UTF-8.
    frame = pl.DataFrame({"a": ["x,y", None], "b": [1, None]})
    write_frames(path, frame.schema, [frame], None)
    assert path.read_text() == 'a,b\n"x,y",1\n,\n'
    write_text(tmp_path / "a.toml", "é\n")
    assert (tmp_path / "a.toml").read_bytes() == b"\xc3\xa9\n"


@pytest.mark.parametrize("mark", [",", '"', "\n", "\r"])
@pytest.mark.parametrize("place", ["name", "value", "missing"])
def test_csv_quotes_when_something_needs_it(tmp_path: Path, mark: str, place: str) -> None:
    odd = {key: f"a{mark}b" if key == place else key for key in ("name", "value", "missing")}
    entry = {"type": "categorical", "values": [odd["value"]], "missing": odd["missing"]}
    schema = Schema.from_dict({"attributes": {odd["name"]: entry, "n": {"type": "integer", "edges": [0, 1]}}})
    write(tmp_path / "out.csv", schema, np.array([[0, 1], [0, 0]], dtype=np.int32))
    with (tmp_path / "out.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    assert lines == [[odd["name"], "n"], [odd["value"], "0"], [odd["missing"], "0"]]
    # Only what needs quotes has them.
    assert (tmp_path / "out.csv").read_bytes().count(b'"') == (4 if mark == '"' else 2)


@given(described=schemas_with_codes())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reading_and_encoding_a_file_gives_the_codes_back(
    described: tuple[Schema, NDArray[np.int32]], tmp_path: Path
) -> None:
    schema, codes = described
    # Readers get names by Arrow's C interface, where they end at the first null character.
    assume(not any("\0" in name for name in schema.names))
    for suffix in SUFFIXES[:6]:
        path = tmp_path / f"out{suffix}"
        write(path, schema, codes)
        if "json" in suffix and not codes.size:
            # Lines have names, a file of none has none.
            continue
        source = open_source(path)
        assert "json" in suffix or source.columns == schema.names
        rows = [row for part in source.batches(schema.names) for row in encode(part, schema).T.tolist()]
        assert rows == codes.T.tolist()


def test_parquet_keeps_types_nulls_and_all_batches(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    frame = records(codes=np.tile(CODES, 10))
    write_frames(path, frame.schema, [frame] * 5_000, PLAIN)
    table = pl.read_parquet(path)
    assert table.schema == record_schema(PLAIN)
    assert table.equals(pl.concat([frame] * 5_000))
    # Row groups are gathered from small frames, and tell nothing of the rows but the rows.
    file = pq.read_metadata(path)
    assert file.num_row_groups == 2
    assert not any(file.row_group(0).column(at).is_stats_set for at in range(file.num_columns))
    assert set(file.metadata) == {b"ARROW:schema"}


def test_row_groups_have_one_size_whatever_the_frames(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    whole = pl.DataFrame({"x": np.arange(300_000), "even": np.arange(300_000) % 2 == 0})
    found = []
    for sizes in ([300_000], [0, 5, 262_139, 0, 37_856], [131_072, 131_072, 37_856]):
        begins = np.cumsum([0, *sizes])
        frames = [whole.slice(int(begin), size) for begin, size in zip(begins, sizes, strict=False)]
        write_frames(path, whole.schema, frames, None)
        groups = [pq.read_metadata(path).row_group(index).num_rows for index in range(3)]
        assert groups == [131_072, 131_072, 37_856]
        assert pl.read_parquet(path).equals(whole)
        found.append(path.read_bytes())
    assert found[0] == found[1] == found[2]


def test_texts_held_as_enums_are_texts_to_every_reader(tmp_path: Path) -> None:
    decoder, path = Decoder(PLAIN, enums=True), tmp_path / "out.parquet"
    frame = decoder.decode(CODES, np.random.default_rng(3))
    assert isinstance(frame.schema["city"], pl.Enum)
    write_frames(path, decoder.columns, [frame], PLAIN, shown=record_schema(PLAIN))
    assert pl.read_parquet(path).equals(records())
    assert pl.read_parquet_schema(path) == record_schema(PLAIN)
    assert pq.read_table(path)["city"].to_pylist() == ["Bern", "Lugano", None]
    assert str(pq.read_schema(path).field("city").type) == "large_string"


def test_files_do_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    suffixes = (".parquet", ".csv", ".arrow")
    program = f"""
import numpy as np
from pathlib import Path
from sklar.draw.decode import Decoder, record_schema
from sklar.files.write import write_frames
from tests.files.test_write import CODES, PLAIN
for suffix in {suffixes}:
    frames = (Decoder(PLAIN).decode(np.tile(CODES, 4_000), np.random.default_rng(n)) for n in range(12))
    write_frames(Path("out" + suffix), record_schema(PLAIN), frames, PLAIN)
"""
    found = []
    for threads in ("1", "4"):
        environment = os.environ | {"POLARS_MAX_THREADS": threads, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True)
        found.append({suffix: (tmp_path / f"out{suffix}").read_bytes() for suffix in suffixes})
    assert found[0] == found[1]


TEXTS = Schema.load(Path(__file__).with_name("texts.toml"))


def test_csv_has_the_texts_that_arrow_writes(tmp_path: Path) -> None:
    """Arrow wrote these files before polars did; a reader finds the same texts."""
    codes = np.stack([np.random.default_rng(at).integers(0, size, 2_000) for at, size in enumerate(TEXTS.sizes)])
    frame = Decoder(TEXTS).decode(codes, np.random.default_rng(1))
    write_frames(tmp_path / "out.csv", frame.schema, [frame[:700], frame[700:]], TEXTS)
    table = to_arrow(frame, TEXTS)
    columns = {}
    for attribute in TEXTS.attributes:
        column = table[attribute.name]
        if attribute.name in ("day", "whole"):
            column = column.cast(pa.timestamp("s"))
        columns[attribute.name] = column.cast(pa.string()).fill_null(attribute.missing or "")
    sink, options = pa.BufferOutputStream(), pyarrow.csv.WriteOptions(quoting_style="none", quoting_header="none")
    pyarrow.csv.write_csv(pa.table(columns), sink, options)
    assert (tmp_path / "out.csv").read_bytes() == sink.getvalue().to_pybytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_rows_make_a_file_with_a_header(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    write_frames(path, record_schema(PLAIN), [], PLAIN)
    if "json" in suffix:
        # Objects have names, a file of none has none.
        assert path.read_bytes() == (b"[]\n" if suffix == ".json" else b"")
        return
    source = open_source(path)
    assert source.columns == PLAIN.names
    assert sum(frame.height for frame in source.batches(PLAIN.names)) == 0


def broken(failure: BaseException) -> Iterator[pl.DataFrame]:
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
        write_frames(path, record_schema(PLAIN), broken(failure), PLAIN)
    if isinstance(failure, OSError):
        assert str(raised.value) == f"'{path}' could not be written: No space left on device. Nothing was left behind."
    assert sorted(tmp_path.iterdir()) == ([] if before is None else [path])
    assert before is None or path.read_text() == before


def test_a_disk_that_fills_up_leaves_nothing(tmp_path: Path) -> None:
    # A limit on the size of files fails in the operating system, below polars, as a full disk does.
    program = f"""
import resource, signal
from pathlib import Path
import numpy as np
import polars as pl
from sklar.errors import OutputError
from sklar.files.write import write_frames
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
frame = pl.DataFrame({{"x": np.random.default_rng(0).random(30_000)}})
for suffix in {SUFFIXES}:
    try:
        write_frames(Path("out" + suffix), frame.schema, [frame], None)
    except OutputError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    for suffix, line in zip(SUFFIXES, done.stdout.splitlines(), strict=True):
        assert line.startswith(f"'out{suffix}' could not be written: ")
        assert line.endswith(" Nothing was left behind.")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_to_flush_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left on device"):
        write(tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    # The final name appears only at the end.
    path = tmp_path / "out.csv"
    with replacing(path) as temporary:
        temporary.write_text("half")
        assert temporary.parent == tmp_path
        assert not path.exists()
    assert [file.name for file in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664), (0o777, 0)])
def test_files_have_the_mode_of_any_new_file_and_private_ones_are_their_owners(
    tmp_path: Path, umask: int, mode: int
) -> None:
    path = tmp_path / "PRIVATE.html"
    path.write_text("an old one that all may read")
    path.chmod(0o644)
    before = os.umask(umask)
    try:
        if mode:
            write(tmp_path / "out.csv")
        with replacing(path, private=True) as temporary:
            assert temporary.stat().st_mode & 0o777 == 0o600
            temporary.write_text("exact counts")
        write_text(tmp_path / "draft.toml", "domains", private=True)
    finally:
        assert os.umask(before) == umask
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes == {"PRIVATE.html": 0o600, "draft.toml": 0o600} | ({"out.csv": mode} if mode else {})


def test_nothing_sets_the_umask_of_the_process() -> None:
    """Another thread that makes a file at that moment would get rights that nobody chose."""
    package = Path(sklar.__file__).parent
    assert [file.name for file in package.rglob("*.py") if "umask(" in file.read_text(encoding="utf-8")] == []


def test_targets_are_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dir.csv").mkdir()
    assert check_target("out.CSV", SUFFIXES) == Path("out.CSV")
    for name, message in {
        "out.txt": "'out.txt' must end in .csv, .parquet, .arrow, .feather, .ndjson, .json, .xlsx, .dta or .sav.",
        "dir.csv": "'dir.csv' is a folder. Name a file in it.",
        "no/out.csv": "the folder 'no' does not exist. Create it first.",
        "out.csv": "the folder '.' cannot be written to. Choose another, or ask for the right.",
    }.items():
        if name == "out.csv":
            # The superuser may write anywhere, so that the answer is given here.
            monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
        with pytest.raises(OutputError, match=f"^{re.escape(message)}$"):
            check_target(name, SUFFIXES)
    # One that vanished later.
    with pytest.raises(OutputError, match=r"^'no/out\.csv' cannot be written: No such file or directory\.$"):
        write(Path("no/out.csv"))


def read_texts(path: Path) -> dict[str, list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        names, *rows = csv.reader(file)
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def test_no_text_reads_as_a_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    texts = ["=1+1", "+x", "-a", "@sum", "\tx", "\rx", "a=b", "-5", "+1.5e3", "", "'x", "x"]
    frame = pl.DataFrame({"=name": texts, "n": [-1.5] * len(texts), "k": list(range(-6, 6))})
    frame = frame.with_columns(pl.col("=name").cast(pl.Enum(texts)).alias("e"))
    path = tmp_path / "out.csv"
    write_frames(path, frame.schema, [frame], None, spreadsheet=True)
    found = read_texts(path)
    wanted = ["'=1+1", "'+x", "'-a", "'@sum", "'\tx", "'\rx", "a=b", "-5", "+1.5e3", "", "'x", "x"]
    assert list(found) == ["'=name", "n", "k", "e"]
    assert found["'=name"] == found["e"] == wanted
    # Numbers stay numbers, also negative ones.
    assert found["n"] == ["-1.5"] * len(texts)
    assert found["k"] == [str(number) for number in range(-6, 6)]
    write_frames(path, frame.schema, [frame], None)
    assert read_texts(path)["=name"] == texts
    # Nor does the text of what is missing.
    schema = Schema.from_toml('[attributes.n]\ntype = "integer"\nedges = [-9, 0, 9]\nmissing = "=NA()"')
    frame = pl.DataFrame({"n": [-3, None]})
    write_frames(path, frame.schema, [frame], schema, spreadsheet=True)
    assert path.read_text() == "n\n-3\n'=NA()\n"


def test_spreadsheets_read_csv(tmp_path: Path) -> None:
    table = pl.DataFrame({"x": ["=a", "-b"] * 50})
    schema = Schema.from_toml('[attributes.x]\ntype = "categorical"\nvalues = ["=a", "-b"]')
    sklar.fit(table, schema, epsilon=1.0, method="binary").save(tmp_path / "m.sklar")
    line = ("sample", "m.sklar", "--rows", "9", "--spreadsheet", "--out")
    call(*line, "o.csv", cwd=tmp_path)
    assert set((tmp_path / "o.csv").read_text().split()[1:]) <= {"'=a", "'-b"}
    assert call(*line, "o.parquet", cwd=tmp_path, code=1).stderr == "sklar: 'o.parquet' must end in .csv.\n"
    spark = call(*line, "p.csv", "--engine", "spark", cwd=tmp_path, code=2)
    assert "--spreadsheet is about CSV files, and Spark writes Parquet. Leave one out." in spark.output
