"""The command line as a person meets it: exit codes, one-line errors, whole files; real processes where one matters."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import click
import duckdb
import polars as pl
import pytest
from click.testing import Result

import sklar
from sklar.budget.ledger import Ledger
from sklar.cli.options import FileOrAddress, number, table_of
from sklar.public.schema import Schema
from tests.cli.conftest import call, run
from tests.linked import small, tables

RELEASE = ("release", "people.csv", "--schema", "s.toml", "--epsilon", "1")
EVALUATE = ("evaluate", "people.csv", "people.csv", "--schema", "s.toml")
REFUSED = tomllib.loads(Path(__file__).with_name("refused.toml").read_text())
LINK = ("release", "real", "--schema", "s.toml", "--epsilon", "1", "--out", "drawn", "--model", "p.sklar")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(Path(__file__).with_name("people.toml"), tmp_path / "s.toml")
    rows = "".join(f"{20 + i % 50},{('Bern', 'Rome', '?')[i % 3]},secret{i}\n" for i in range(300))
    (tmp_path / "people.csv").write_text("age,city,note\n" + rows)
    return tmp_path


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_release_then_sample(folder: Path) -> None:
    done = run(*RELEASE, "--out", "out.csv", "--seed", "7", cwd=folder)
    assert "Privacy spent: epsilon = 1, delta = 9.32e-10" in done.stdout
    assert "300 synthetic rows in out.csv (seed 7), the model in out.sklar." in done.stdout
    stages = [line.split(":")[0] for line in done.stderr.splitlines()]
    # Whether anything is fitted after the choice depends on what the noisy tables show.
    assert [stage for stage in stages if stage != "fit"] == ["count", "measure", "choose", "sample"]
    first = (folder / "out.csv").read_text()
    assert first.splitlines()[0] == "age,city"
    assert len(first.splitlines()) == 301
    assert {line.split(",")[1] for line in first.splitlines()[1:]} == {"Bern", "Rome", "?"}
    # Nothing is said of what the schema leaves out.
    everything = done.stdout + done.stderr + first + (folder / "out.sklar").read_bytes().decode("latin-1")
    assert "secret" not in everything
    assert "note" not in done.stdout + done.stderr + first
    # Drawn again from the model: the same rows, at no cost.
    again = run("sample", "out.sklar", "--seed", "7", "--out", "again.csv", cwd=folder)
    assert "No privacy was spent." in again.stdout
    assert (folder / "again.csv").read_text() == first
    assert files(folder) == {"s.toml", "people.csv", "out.csv", "out.sklar", "again.csv"}


def test_dummies_and_the_papers_preset(folder: Path) -> None:
    done = call(*RELEASE, "--preset", "paper", "--dummies", "--rows", "50", "--out", "d.csv", cwd=folder)
    assert "laplace noise, advanced composition" in done.stdout
    table = pl.read_csv(folder / "d.csv")
    ages = ["age=[0, 20)", "age=[20, 40)", "age=[40, 60)", "age=[60, 120)"]
    assert table.columns == [*ages, "city=Bern", "city=Rome", "city=?"]
    assert table.height == 50


@pytest.mark.parametrize("line", REFUSED)
def test_refusals(folder: Path, line: str) -> None:
    before, (code, message) = files(folder), REFUSED[line]
    done = call(*line.split(), cwd=folder, code=code)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert files(folder) == before


def test_version_and_the_traceback_that_debug_shows(folder: Path) -> None:
    assert call("--version", cwd=folder).output == f"sklar {sklar.__version__}\n"
    done = run("--debug", "sample", "none.sklar", "--out", "o.csv", cwd=folder, code=1)
    assert "Traceback" in done.stderr
    assert "ModelError" in done.stderr


def test_an_unwritable_folder_is_refused_before_anything_is_spent(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o500)
    if os.access(closed, os.W_OK):
        pytest.skip("this user may write anywhere")
    assert "cannot be written to" in call(*RELEASE, "--out", "closed/o.csv", cwd=folder, code=1).stderr


def test_a_full_disk_loses_no_model(folder: Path) -> None:
    """Rows that do not fit leave no part of them, and the model that privacy was spent on is kept."""

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = run(*RELEASE, "--rows", "100000", "--out", "big.csv", cwd=folder, code=1, preexec_fn=small_files)
    assert "'big.csv' could not be written" in done.stderr
    assert files(folder) == {"s.toml", "people.csv", "big.sklar"}
    call("sample", "big.sklar", "--rows", "10", "--out", "small.csv", cwd=folder)


def test_an_interruption_leaves_no_half_written_file(folder: Path) -> None:
    call("fit", *RELEASE[1:], "--model", "m.sklar", cwd=folder)
    command = [sys.executable, "-m", "sklar", "sample", "m.sklar", "--rows", "2000000000", "--out", "o.csv"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    # However slow the machine: rows are drawn until it is stopped.
    while not any(name.endswith(".part") for name in files(folder)):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate()
    assert process.returncode == 130
    assert stderr.strip() == "sklar: interrupted. No file was left half-written."
    assert stdout == ""
    assert files(folder) == {"s.toml", "people.csv", "m.sklar"}


def test_schema_check(folder: Path) -> None:
    (folder / "people.csv").write_text("age,city\n10,Bern\n500,Paris\n,\n")
    done = call("schema", "check", "s.toml", cwd=folder)
    assert "table 'people', 2 attributes, 7 levels in all" in done.stdout
    assert "PRIVATE" not in done.stdout
    done = call("schema", "check", "s.toml", "people.csv", cwd=folder, code=1)
    assert "PRIVATE, for the custodian only" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.split()[0] in ("age", "city")]
    # in domain, missing, clipped, folded, in no cell
    assert rows == [["age", "1", "0", "1", "0", "1"], ["city", "1", "1", "0", "1", "0"]]


def test_a_check_stops_where_most_values_would_be_lost(folder: Path) -> None:
    """With an exit code, on standard error; a release stops too, before anything is spent, where it is asked to."""
    (folder / "d.toml").write_text("[attributes.d]\ntype = 'date'\nedges = ['1900-01-01', '1950-01-01']\nmissing = ''")
    (folder / "d.csv").write_text("d\n" + "14.04.1912\n" * 50)
    warning = (
        "STOP (PRIVATE): d: 100% of its values are outside its domain. They are dates or times in another writing: "
        'add format = "%d.%m.%Y".\n'
    )
    check = ("schema", "check", "d.toml", "d.csv", "--quiet")
    assert call(*check, cwd=folder, code=1).stderr == warning
    done = call(*check, "--json", cwd=folder, code=1)
    assert json.loads(done.stdout)["PRIVATE"]["values"][0]["cause"].endswith('add format = "%d.%m.%Y".')
    book = Ledger(folder / "l.db")
    book.open_account("table", epsilon=2.0, delta=2**-30)
    options = ("--schema", "d.toml", "--epsilon", "1", "--ledger", "l.db", "--quiet", "--check")
    fit = ("fit", "d.csv", *options, "--model", "m.sklar", "--method", "binary")
    done = call(*fit, cwd=folder, code=1)
    assert done.stderr.startswith(f"{warning}sklar: --check stopped the release: the schema would lose most values")
    assert not (folder / "m.sklar").exists()
    assert book.account("table").charges == ()
    call(*fit, "--engine", "spark", cwd=folder, code=2)
    # Where nothing is lost, it is a release like any other.
    (folder / "d.csv").write_text("d\n" + "1912-04-14\n" * 50)
    call(*fit, cwd=folder)
    assert len(book.account("table").charges) == 1


def test_a_query_on_duckdb_leaves_no_word_of_its_own(folder: Path) -> None:
    with duckdb.connect(str(folder / "p.duckdb")) as connection:
        connection.execute(f"CREATE TABLE people AS FROM read_csv('{folder / 'people.csv'}')")
    done = run("schema", "check", "s.toml", "p.duckdb", "--query", "SELECT * FROM people", "--quiet", cwd=folder)
    assert done.stderr == ""


def test_demo(tmp_path: Path) -> None:
    done = call("demo", "--out", "shown", "--rows", "2000", cwd=tmp_path)
    assert "noisy" in done.stdout
    assert "synthetic" in done.stdout
    assert files(tmp_path / "shown") == {"census.csv", "census.toml", "synthetic.csv", "census.sklar"}
    assert len((tmp_path / "shown" / "synthetic.csv").read_text().splitlines()) == 2001


def test_numbers() -> None:
    texts = {"1": 1.0, "1e-9": 1e-9, "2**-30": 2.0**-30, "1/8": 0.125}
    assert {text: number(text) for text in texts} == texts
    for text in ("", "x", "__import__('os')", "1+", "9**9**9**9", "(-1)**0.5", "1/0", "[1]"):
        with pytest.raises(click.BadParameter, match="is not a number such as"):
            number(text)


def test_addresses_of_files_are_kept_and_those_of_databases_need_a_query() -> None:
    for address in ("s3a://bucket/table.parquet", "hdfs://host/table", "gs://bucket/part*.parquet"):
        assert table_of(FileOrAddress().convert(address, None, None), None) == address
    assert table_of(FileOrAddress().convert("folder/table.csv", None, None), None) == Path("folder/table.csv")
    for address in ("postgresql://me:hidden@host/db", "mysql://me:hidden@host/db"):
        # The message does not repeat it.
        with pytest.raises(click.UsageError, match=r"^DATA is the address of a database: say which rows with --query"):
            table_of(address, None)


def test_a_folder_is_released_with_a_checkpoint_that_is_gone_in_the_end(folder: Path) -> None:
    (folder / "shards").mkdir()
    for name in ("a.csv", "b.csv"):
        (folder / "shards" / name).write_text((folder / "people.csv").read_text())
    options = (*RELEASE[2:], "--checkpoint", "counting", "--rows", "10", "--out", "out.csv")
    done = call("release", "shards", *options, cwd=folder)
    assert "600 rows" in done.stdout
    assert files(folder) == {"s.toml", "people.csv", "shards", "out.csv", "out.sklar"}


def test_a_generated_table_goes_all_the_way(tmp_path: Path) -> None:
    made = call("generate", "census", "--rows", "500", "--out", "c.csv", "--schema", "c.toml", cwd=tmp_path)
    assert "500 rows of census-like people" in made.stdout
    line = "release c.csv --schema c.toml --epsilon 1 --neighbors add-remove --out o.csv"
    done = call(*line.split(), cwd=tmp_path)
    assert "for the presence of any one row" in done.stdout
    assert tuple(pl.read_csv(tmp_path / "o.csv").columns) == Schema.load(tmp_path / "c.toml").names
    judged = call(*["evaluate", "c.csv", "o.csv", "--schema", "c.toml", "--json"], cwd=tmp_path)
    assert json.loads(judged.stdout)["notice"].startswith("PRIVATE")
    itself = call(*["evaluate", "c.csv", "c.csv", "--schema", "c.toml"], cwd=tmp_path).stdout
    assert itself.startswith("PRIVATE: computed from the real rows without noise.")
    assert "of tables: 0.00% of one column, 0.00% of two, 0.00% of three" in " ".join(itself.split())


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A folder in which linked tables were released, and what was printed."""
    folder, frames = tmp_path_factory.mktemp("linked"), tables(200)
    (folder / "real").mkdir()
    stray = frames["events"].head(2).with_columns(person=pl.lit(9_999, dtype=pl.Int64))
    frames["events"] = pl.concat([frames["events"], stray])
    for name, frame in frames.items():
        frame.write_csv(folder / "real" / f"{name}.csv")
    (folder / "s.toml").write_text(small().to_toml())
    return folder, call(*LINK, "--seed", "5", "--check", cwd=folder)


def test_linked_tables_are_released_sampled_and_verified(linked: tuple[Path, Result]) -> None:
    folder, done = linked
    assert "any one person, with all their rows in all tables" in done.stdout
    assert "200 synthetic people in drawn (seed 5), the model in p.sklar." in done.stdout
    more = ("sample", "p.sklar", "--rows", "50", "--seed", "5")
    assert json.loads(call(*more, "--out", "more", "--json", cwd=folder).stdout)["rows"] == 50
    people, events = (pl.read_csv(folder / "more" / f"{name}.csv") for name in ("people", "events"))
    assert people.height == 50
    assert events["person"].is_in(people["id"].implode()).all()
    call("verify", "p.sklar", cwd=folder)
    assert "Linked tables are several" in call("sample", "p.sklar", "--out", "o.csv", cwd=folder, code=1).stderr
    women = call("sample", "p.sklar", "--rows", "9", "--given", "sex = 'F'", "--out", "both.db", cwd=folder)
    assert "9 synthetic people with all their rows, all with sex = 'F', in both.db" in women.stdout


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("query p.sklar sex='F'|and|events>=2", "with sex='F' and events>=2, of 200"),
        ("query p.sklar events.kind='a'", "with events.kind='a', of 200"),
        ("infer p.sklar share(events.kind)|by|region", "north"),
        ("report p.sklar --out report.html", "The report is in report.html"),
        ("tables p.sklar --out tables.parquet", "tables.parquet"),
        ("plan --schema s.toml --rows 200 --want events.kind|within|20%", "Smallest epsilon"),
        ("forecast --schema p.sklar --rows 200 --epsilon 1", "with all their rows in all tables"),
        ("schema check s.toml real", "2 name nobody that counts"),
        ("evaluate real drawn --schema s.toml --report seen.html", "consider PRIVATE-seen.html"),
    ],
)
def test_what_takes_a_model_takes_one_of_linked_tables(linked: tuple[Path, Result], line: str, words: str) -> None:
    done = call(*(word.replace("|", " ") for word in line.split()), cwd=linked[0])
    assert words in done.stdout + done.stderr


def test_only_the_custodian_is_told_of_keys_without_a_match(linked: tuple[Path, Result]) -> None:
    _, done = linked
    private = [line for line in done.stderr.splitlines() if line.startswith("PRIVATE")]
    assert any("2 name nobody that counts" in line for line in private)
    public = done.stdout + "".join(set(done.stderr.splitlines()) - set(private))
    assert "name nobody" not in public
    assert str(tables(200)["events"].height) not in public


def test_a_ledger_by_person_is_charged(linked: tuple[Path, Result]) -> None:
    folder, _ = linked
    book = Ledger(folder / "l.db")
    book.open_account("people", epsilon=1.2, delta=2**-30, unit="person")
    charged = (*LINK, "--ledger", "l.db")
    done = call(*charged, "--json", cwd=folder)
    assert json.loads(done.stdout)["certificate"]["receipt"]["entry"] > 0
    assert 0.99 < book.account("people").spent <= 1.0
    assert "p.sklar" in call("ledger", "check", "l.db", "p.sklar", cwd=folder).stdout
    call(*charged, cwd=folder, code=1)
    # One for rows is refused, and a data set's name without a ledger.
    Ledger(folder / "rows.db").open_account("people", epsilon=9.0, delta=2**-30)
    assert "for any one row" in call(*charged[:-1], "rows.db", cwd=folder, code=1).stderr
    assert "no ledger" in call(*charged[:-2], "--dataset", "x", cwd=folder, code=1).stderr
