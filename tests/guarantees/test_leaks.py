"""Nothing of the rows leaves: markers that only the table holds are searched in every byte of every output and message.

Planted are category texts, exact numbers inside and outside the domain, dates, columns that the schema leaves out, and
parts of the table's path. What is compressed is searched unpacked too, numbers also as the machine stores them. What
the custodian alone may see (`evaluate`, `schema draft`, `schema check DATA`) may hold them; it must say that it is
PRIVATE. Markers are so long that synthetic values hold one by chance less often than once in 10^7 runs. `audit` is left
out: it reads neither rows nor models.
"""

from __future__ import annotations

import gzip
import os
import sqlite3
import struct
import subprocess
import sys
import traceback
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sklar.cli import cli
from sklar.errors import SklarError
from sklar.kernel.theorems import Budget
from sklar.kernel.vault import Vault
from sklar.machine.wording import explained
from sklar.public.schema import Schema
from sklar.rows.count import ask_all
from sklar.rows.engines import open_table
from sklar.rows.read import open_source
from tests.guarantees.people import BASE, MONEY_AND_DATE, WAYS

TOML = BASE + MONEY_AND_DATE
N = 120
ROWS = [
    f"867530986753098{i},MARKERTEXT{i},271828.18284590,1066-10-{1 + i % 28:02},31415926.5358979,MARKERNOTE\n"
    for i in range(N)
]
CSV = "age,city,income,born,MARKERCOLUMN,MARKERMORE\n" + "".join(ROWS)
MARKERS = [
    b"MARKER", b"867530986753098", b"271828.182845", b"31415926.5358", b"1066-10-", "MARKER".encode("utf-16-le"),
    struct.pack("<d", 271828.1828459), struct.pack("<d", 31415926.5358979),
    *[struct.pack("<q", int(f"867530986753098{i}")) for i in range(0, N, 10)],
]  # fmt: skip


def sklar(*arguments: str, private: bool = False, fails: bool = False) -> bytes:
    """Run a command; everything that it prints, with the traceback that `--debug` would show.

    The path of the table is a setting of the run: it may be named where a message is about it.
    """
    done = CliRunner().invoke(cli, arguments)
    assert (done.exit_code != 0) == fails, done.output
    printed = done.output + done.stderr
    if private:
        assert "PRIVATE" in printed
        return b""
    if fails:
        assert isinstance(done.exception, SklarError)
        printed += "\n".join([explained(done.exception), *traceback.format_exception(done.exception)])
    return printed.replace("../MARKERPATH", "").encode()


def unpacked(path: Path) -> list[bytes]:
    """The bytes of a file, and of what is packed in it."""
    parts = [path.read_bytes()]
    if path.suffix == ".sklar":
        with zipfile.ZipFile(path) as archive:
            parts += [archive.read(name) for name in archive.namelist()]
            parts += [str(archive.infolist()).encode(), archive.comment]
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        parts += [str(table.schema).encode(), str(pq.read_metadata(path).to_dict()).encode()]
        parts += [str(column.to_pylist()).encode() for column in table.columns]
    if path.suffix == ".db":
        with sqlite3.connect(path) as connection:
            parts += ["\n".join(connection.iterdump()).encode()]
        connection.close()
    return parts


def leaked(parts: list[bytes]) -> list[bytes]:
    everything = b"\n".join(parts)
    return [marker for marker in MARKERS if marker in everything]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Where the table is, and where everything else is: the working folder."""
    secret, work = tmp_path / "MARKERPATH", tmp_path / "work"
    secret.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)
    (secret / "people.csv").write_text(CSV)
    (work / "s.toml").write_text(TOML)
    return secret, work


def test_the_search_finds_what_is_there(folders: tuple[Path, Path]) -> None:
    """The markers are found in a file of each kind that holds them."""
    secret, work = folders
    assert leaked(unpacked(secret / "people.csv"))
    with zipfile.ZipFile(work / "m.sklar", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", np.full(1000, 271828.1828459).tobytes())
    assert leaked(unpacked(work / "m.sklar")) == [struct.pack("<d", 271828.1828459)]
    pq.write_table(pa.table({"x": ["MARKERTEXT1"] * 3}), work / "t.parquet", compression="gzip")
    assert b"MARKER" in leaked(unpacked(work / "t.parquet"))


@pytest.mark.parametrize("way", [*WAYS, "add-remove"])
def test_no_marker_leaves(folders: tuple[Path, Path], way: str) -> None:
    _, work = folders
    neighbors = ["--neighbors", "add-remove"] if way == "add-remove" else []
    options = ("--schema", "s.toml", "--epsilon", "1", "--ledger", "l.db", *WAYS.get(way, neighbors))
    release = ("../MARKERPATH/people.csv", *options)
    printed = [
        sklar("ledger", "init", "l.db", "--dataset", "people", "--epsilon", "5", *neighbors),
        sklar("release", *release, "--out", "o.csv"),
        sklar("fit", *release, "--model", "f.sklar"),
        sklar("sample", "o.sklar", "--rows", "500", "--out", "again.parquet"),
        sklar("report", "o.sklar", "--out", "r.html"),
        sklar("verify", "o.sklar"),
        sklar("verify", "o.sklar", "--json"),
        sklar("query", "o.sklar", "city = 'Bern' and income < 100000", "--json"),
        sklar("ledger", "show", "l.db", "--json"),
        sklar("ledger", "history", "l.db"),
        sklar("forecast", "--schema", "s.toml", "--rows", str(N), "--epsilon", "1"),
    ]
    printed += [part for path in work.iterdir() for part in unpacked(path)]
    names = {path.name for path in work.iterdir()}
    assert names == {"s.toml", "l.db", "o.csv", "o.sklar", "f.sklar", "again.parquet", "r.html"}
    assert leaked([*printed, *(name.encode() for name in names)]) == []


DAMAGE = {
    "cut off": ("t.csv.gz", gzip.compress((CSV * 50).encode())[:-400]),
    "never closed": ("t.csv", (CSV + '"MARKERTEXT never closed\n' + "".join(ROWS)).encode()),
    "not text": ("t.csv", CSV.encode() + b"\xff\xfeMARKERTEXT\xff,\xff\n"),
    "twice": ("t.csv", CSV.replace("MARKERMORE", "MARKERCOLUMN").encode()),
    "no column": ("t.csv", CSV.replace("born", "MARKERBORN").encode()),
    "no table": ("t.parquet", CSV.encode()),
    "damaged": ("t.parquet", b"PAR1" + CSV.encode() + b"PAR1"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_no_marker_in_errors_and_tracebacks(folders: tuple[Path, Path], kind: str) -> None:
    """Every command that reads rows, on tables that it may fail on; also the custodian's, as errors get around."""
    secret, work = folders
    name, data = DAMAGE[kind]
    (secret / name).write_bytes(data)
    table = f"../MARKERPATH/{name}"
    fails = kind not in ("never closed", "not text")
    release = ("release", table, "--schema", "s.toml", "--epsilon", "1", "--method", "binary", "--out", "o.csv")
    printed = [sklar(*release, fails=fails)]
    if fails:
        printed.append(sklar("evaluate", table, table, "--schema", "s.toml", fails=True))
        printed.append(sklar("schema", "check", "s.toml", table, fails=True))
        if kind != "no column":
            printed.append(sklar("schema", "draft", table, "-o", "d.toml", fails=True))
        assert all(b"Traceback" in text for text in printed)
        assert {path.name for path in work.iterdir()} == {"s.toml"}
    assert leaked([*printed, *(part for path in work.iterdir() for part in unpacked(path))]) == []


def test_no_marker_in_what_a_process_prints(folders: tuple[Path, Path]) -> None:
    """The real thing once, with --debug: nothing else writes to its outputs."""
    secret, work = folders
    name, data = DAMAGE["cut off"]
    (secret / name).write_bytes(data)
    command = ["--debug", "fit", f"../MARKERPATH/{name}", "--schema", "s.toml", "--epsilon", "1", "--model", "m.sklar"]
    done = subprocess.run([sys.executable, "-m", "sklar", *command], cwd=work, capture_output=True, check=False)
    assert done.returncode == 1
    assert b"Traceback" in done.stderr
    assert leaked([done.stdout, done.stderr.replace(b"../MARKERPATH", b"")]) == []


def test_what_the_custodian_alone_may_see_is_a_file_of_the_owner_alone(folders: tuple[Path, Path]) -> None:
    """And says that it is PRIVATE. A umask that closes nothing: these files are 0600 all the same, a release is not."""
    _, work = folders
    table, before = "../MARKERPATH/people.csv", os.umask(0)
    try:
        sklar("schema", "draft", table, "-o", "d.toml", private=True)
        # The markers lie outside of every domain, which the custodian is told by the exit code too.
        sklar("schema", "check", "s.toml", table, private=True, fails=True)
        for wanted in (["--json"], ["--report", "PRIVATE.html"]):
            sklar("evaluate", table, table, "--schema", "s.toml", *wanted, private=True)
        sklar("fit", table, "--schema", "s.toml", "--epsilon", "1", "--method", "binary", "--model", "m.sklar")
    finally:
        assert os.umask(before) == 0
    assert "reviewed = false" in (work / "d.toml").read_text()
    assert "PRIVATE" in (work / "PRIVATE.html").read_text()
    rights = {path.name: path.stat().st_mode & 0o777 for path in work.iterdir() if path.name != "s.toml"}
    private = dict.fromkeys(["d.toml", "d.PRIVATE.html", "PRIVATE.html"], 0o600)
    assert rights == private | {"m.sklar": 0o666}


def test_private_values_print_nothing(folders: tuple[Path, Path]) -> None:
    """What a debugger or a log would show of the objects that hold rows or counts."""
    secret, _ = folders
    schema = Schema.from_toml(TOML)
    source = open_source(secret / "people.csv")
    vault = Vault(Budget(epsilon=1.0))
    counts = open_table(secret / "people.csv", schema).count(ask_all(schema))
    vault.hold(counts.n_rows)
    shown = [repr(vault), str(vault), repr(source), repr(counts), f"{counts}"]
    text = "\n".join(shown).replace(str(secret), "")
    assert leaked([text.encode()]) == []
    assert str(N) not in text.replace(hex(id(vault)), "")
