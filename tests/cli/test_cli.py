"""The command line as a person meets it: exit codes, one-line errors, whole files; real processes where one matters."""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import duckdb
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import sklar
from sklar.budget.ledger import Ledger
from sklar.cli import cli, main
from sklar.cli.options import FileOrAddress, number, table_of
from sklar.public.schema import Schema

PEOPLE = '[table]\nname = "people"\n[attributes.age]\ntype = "integer"\nedges = [0, 20, 40, 60, 120]\n' + (
    '[attributes.city]\ntype = "categorical"\nvalues = ["Bern", "Rome"]\nmissing = "?"\n'
)


def run(*arguments: str | Path, cwd: Path, **settings: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sklar", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False, **settings)  # type: ignore[call-overload, no-any-return]


Here = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """The same in this process, which has loaded everything: all of it from its arguments to its exit code."""

    def run_here(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.chdir(cwd)
            patch.setattr(sys, "argv", ["sklar", *map(str, arguments)])
            # What a process does at its end.
            patch.setattr(sys, "unraisablehook", sys.unraisablehook)
            patch.setattr(atexit, "register", lambda leave: leave)
            code = 0
            try:
                main()
            except SystemExit as done:
                code = int(done.code or 0)
        shown = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, shown.out, shown.err)

    return run_here


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.toml").write_text(PEOPLE)
    rows = "".join(f"{20 + i % 50},{('Bern', 'Rome', '?')[i % 3]},secret{i}\n" for i in range(300))
    (tmp_path / "people.csv").write_text("age,city,note\n" + rows)
    return tmp_path


RELEASE = ("release", "people.csv", "--schema", "s.toml", "--epsilon", "1")
EVALUATE = ("evaluate", "people.csv", "people.csv", "--schema", "s.toml")


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_release_then_sample(folder: Path) -> None:
    done = run(*RELEASE, "--out", "out.csv", "--seed", "7", cwd=folder)
    assert done.returncode == 0, done.stderr
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
    assert again.returncode == 0
    assert "No privacy was spent." in again.stdout
    assert (folder / "again.csv").read_text() == first
    assert files(folder) == {"s.toml", "people.csv", "out.csv", "out.sklar", "again.csv"}


def test_fit_and_a_named_model_and_parquet(here: Here, folder: Path) -> None:
    done = here("fit", "people.csv", "--schema", "s.toml", "--epsilon", "2", "--model", "m.sklar", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "The model is in m.sklar."
    done = here("sample", "m.sklar", "--rows", "1000", "--out", "out.parquet", cwd=folder)
    assert done.returncode == 0
    assert pq.read_table(folder / "out.parquet").num_rows == 1000


def test_dummies_and_the_papers_preset(here: Here, folder: Path) -> None:
    done = here(
        *RELEASE, "--preset", "paper", "--dummies", "--rows", "50", "--out", "d.csv", "--model", "d.sklar", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert "laplace noise, advanced composition" in done.stdout
    table = pa_csv.read_csv(folder / "d.csv")
    ages = ["age=[0, 20)", "age=[20, 40)", "age=[40, 60)", "age=[60, 120)"]
    assert table.column_names == [*ages, "city=Bern", "city=Rome", "city=?"]
    assert table.num_rows == 50


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("release", "none.csv", *RELEASE[2:], "--out", "o.csv"), 1, "sklar: file 'none.csv' does not exist."),
        ((*RELEASE[:2], "--schema", "none.toml", *RELEASE[4:], "--out", "o.csv"), 1, "sklar: schema file 'none.toml'"),
        ((*RELEASE[:4], "--epsilon", "0", "--out", "o.csv"), 1, "sklar: epsilon must be positive and finite"),
        ((*RELEASE[:4], "--epsilon", "-1", "--out", "o.csv"), 1, "sklar: epsilon must be positive and finite"),
        ((*RELEASE[:4], "--epsilon", "nan", "--out", "o.csv"), 1, "sklar: epsilon must be positive and finite"),
        ((*RELEASE[:4], "--epsilon", "inf", "--out", "o.csv"), 1, "sklar: epsilon must be positive and finite"),
        ((*RELEASE, "--delta", "0", "--out", "o.csv"), 1, "sklar: delta must lie strictly between 0 and 1"),
        ((*RELEASE, "--delta", "1", "--out", "o.csv"), 1, "sklar: delta must lie strictly between 0 and 1"),
        ((*RELEASE, "--rows", "0", "--out", "o.csv"), 1, "sklar: rows must be a whole number of at least 1, got 0."),
        ((*RELEASE, "--out", "no-folder/o.csv"), 1, "sklar: the folder 'no-folder' does not exist."),
        ((*RELEASE, "--out", "o.xlsx"), 1, "sklar: 'o.xlsx' must end in .csv, .parquet, .arrow, .feather or .ndjson."),
        ((*RELEASE, "--composition", "basic", "--out", "o.csv"), 1, "sklar: composition 'basic' adds up pure-epsilon"),
        ((*RELEASE, "--checkpoint", "c", "--out", "o.csv"), 1, "sklar: a checkpoint is for a folder of files"),
        ((*RELEASE, "--engine", "spark", "--out", "o.csv"), 1, "sklar: 'o.csv' must end in .parquet: Spark writes a"),
        (("sample", "none.sklar", "--out", "o.csv"), 1, "sklar: model file 'none.sklar' does not exist."),
        ((*RELEASE[:4], "--epsilon", "much", "--out", "o.csv"), 2, "'much' is not a number such as 1e-9 or 2**-30."),
        (("release", "people.csv", "--out", "o.csv"), 2, "Missing option '--schema'"),
        (("reelase",), 2, "No such command 'reelase'"),
        (("generate", "census", "--rows", "0", "--out", "c.csv", "--schema", "c.toml"), 1, "rows must be"),
        ((*EVALUATE, "--plot", "e.pdf"), 1, "must end in .png or .svg"),
        ((*EVALUATE, "--target", "age"), 1, "needs both a target"),
    ],
)  # fmt: skip
def test_refusals(here: Here, folder: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    before = files(folder)
    done = here(*arguments, cwd=folder)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert files(folder) == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("age,city\n", "the table has no rows"),
        ("age,age,city\n1,2,Bern\n", "columns 1 and 2 of file 'people.csv' have the same name"),
        ("age,town\n1,Bern\n", "has no column for 'city'"),
    ],
)
def test_tables_that_cannot_be_released(here: Here, folder: Path, content: str, message: str) -> None:
    (folder / "people.csv").write_text(content)
    before = files(folder)
    done = here(*RELEASE, "--out", "o.csv", cwd=folder)
    assert done.returncode == 1
    assert message in done.stderr
    assert files(folder) == before


def test_version_and_the_traceback_that_debug_shows(folder: Path) -> None:
    assert CliRunner().invoke(cli, ["--version"]).output == f"sklar {sklar.__version__}\n"
    done = run("--debug", "sample", "none.sklar", "--out", "o.csv", cwd=folder)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ModelError" in done.stderr


def test_an_unwritable_folder_is_refused_before_anything_is_spent(here: Here, folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    if os.access(closed, os.W_OK):
        pytest.skip("this user may write anywhere")
    done = here(*RELEASE, "--out", "closed/o.csv", cwd=folder)
    assert done.returncode == 1
    assert "cannot be written to" in done.stderr


def test_a_full_disk_loses_no_model(folder: Path) -> None:
    """Rows that do not fit leave no part of them, and the model that privacy was spent on is kept."""

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = run(*RELEASE, "--rows", "100000", "--out", "big.csv", cwd=folder, preexec_fn=small_files)
    assert done.returncode == 1
    assert "'big.csv' could not be written" in done.stderr
    assert files(folder) == {"s.toml", "people.csv", "big.sklar"}
    again = run("sample", "big.sklar", "--rows", "10", "--out", "small.csv", cwd=folder)
    assert again.returncode == 0


def test_an_interruption_leaves_no_half_written_file(folder: Path) -> None:
    run("fit", "people.csv", "--schema", "s.toml", "--epsilon", "2", "--model", "m.sklar", cwd=folder)
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


def test_schema_draft_is_refused_until_reviewed(here: Here, folder: Path) -> None:
    done = here("schema", "draft", "people.csv", "-o", "draft.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "PRIVATE, for your eyes: what the rows show is in draft.PRIVATE.html." in done.stdout
    assert "Left out: note" in done.stdout
    refused = here("release", "people.csv", "--schema", "draft.toml", "--epsilon", "1", "--out", "o.csv", cwd=folder)
    assert refused.returncode == 1
    assert "not reviewed: age, city. A domain read from the rows tells who is in them" in refused.stderr
    reviewed = here("schema", "review", "draft.toml", "--accept", cwd=folder)
    assert reviewed.returncode == 0, reviewed.stderr
    accepted = here("release", "people.csv", "--schema", "draft.toml", "--epsilon", "1", "--out", "o.csv", cwd=folder)
    assert accepted.returncode == 0, accepted.stderr


def test_schema_check(here: Here, folder: Path) -> None:
    (folder / "people.csv").write_text("age,city\n10,Bern\n500,Paris\n,\n")
    done = here("schema", "check", "s.toml", cwd=folder)
    assert done.returncode == 0
    assert "table 'people', 2 attributes, 7 levels in all" in done.stdout
    assert "PRIVATE" not in done.stdout
    done = here("schema", "check", "s.toml", "people.csv", cwd=folder)
    assert "PRIVATE, for the custodian only" in done.stdout
    rows = {
        line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.split()[0] in ("age", "city")
    }
    # in domain, missing, clipped, folded, in no cell
    assert rows["age"] == ["1", "0", "1", "0", "1"]
    assert rows["city"] == ["1", "1", "0", "1", "0"]


def test_a_check_stops_where_most_values_would_be_lost(folder: Path) -> None:
    """With an exit code, on standard error; a release stops too, before anything is spent, where it is asked to."""
    (folder / "d.toml").write_text("[attributes.d]\ntype = 'date'\nedges = ['1900-01-01', '1950-01-01']\nmissing = ''")
    (folder / "d.csv").write_text("d\n" + "14.04.1912\n" * 50)
    warning = (
        "STOP (PRIVATE): d: 100% of its values are outside its domain. They are dates or times in another writing: "
        'add format = "%d.%m.%Y".'
    )
    ask = CliRunner()
    check = ("schema", "check", str(folder / "d.toml"), str(folder / "d.csv"), "--quiet")
    done = ask.invoke(cli, check)
    assert (done.exit_code, done.stderr) == (1, warning + "\n")
    done = ask.invoke(cli, [*check, "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["PRIVATE"]["values"][0]["cause"].endswith('add format = "%d.%m.%Y".')
    book = Ledger(folder / "l.db")
    book.open_account("table", epsilon=2.0, delta=2**-30)
    options = ("--schema", folder / "d.toml", "--epsilon", "1", "--ledger", folder / "l.db", "--quiet", "--check")
    release = ("fit", folder / "d.csv", *options, "--model", folder / "m.sklar", "--method", "binary")
    done = ask.invoke(cli, [*map(str, release)])
    assert (done.exit_code, done.stderr) == (1, warning + "\n")
    assert str(done.exception).startswith("--check stopped the release: the schema would lose most values")
    assert not (folder / "m.sklar").exists()
    assert book.account("table").charges == ()
    assert ask.invoke(cli, [*map(str, release), "--engine", "spark"]).exit_code == 2
    # Where nothing is lost, it is a release like any other.
    (folder / "d.csv").write_text("d\n" + "1912-04-14\n" * 50)
    done = ask.invoke(cli, [*map(str, release)])
    assert done.exit_code == 0, done.exception
    assert len(book.account("table").charges) == 1


def test_a_query_on_duckdb_leaves_no_word_of_its_own(folder: Path) -> None:
    with duckdb.connect(str(folder / "p.duckdb")) as connection:
        connection.execute(f"CREATE TABLE people AS FROM read_csv('{folder / 'people.csv'}')")
    done = run("schema", "check", "s.toml", "p.duckdb", "--query", "SELECT * FROM people", "--quiet", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")


def test_demo(here: Here, tmp_path: Path) -> None:
    done = here("demo", "--out", "shown", "--rows", "2000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "noisy" in done.stdout
    assert "synthetic" in done.stdout
    assert files(tmp_path / "shown") == {"census.csv", "census.toml", "synthetic.csv", "census.sklar"}
    assert len((tmp_path / "shown" / "synthetic.csv").read_text().splitlines()) == 2001


def test_numbers() -> None:
    texts = {"1": 1.0, "1e-9": 1e-9, "2**-30": 2.0**-30, "1/8": 0.125, "2**-(1/2)": 2**-0.5}
    assert {text: number(text) for text in texts} == texts


@pytest.mark.parametrize("text", ["", "x", "__import__('os')", "1+", "9**9**9**9", "(-1)**0.5", "1/0", "[1]"])
def test_what_is_not_a_number(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a number such as"):
        number(text)


def test_addresses_of_files_are_kept_as_they_were_written() -> None:
    for address in ("s3a://bucket/table.parquet", "hdfs://host/table", "gs://bucket/part*.parquet"):
        assert table_of(FileOrAddress().convert(address, None, None), None) == address
    assert table_of(FileOrAddress().convert("folder/table.csv", None, None), None) == Path("folder/table.csv")


@pytest.mark.parametrize("address", ["postgresql://me:hidden@host/db", "mysql://me:hidden@host/db"])
def test_the_address_of_a_database_needs_a_query_and_is_not_repeated(address: str) -> None:
    with pytest.raises(click.UsageError, match=r"^DATA is the address of a database: say which rows with --query\.$"):
        table_of(address, None)


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is not None, reason="PySpark is installed")
def test_an_engine_that_is_not_installed_says_how_to_get_it(folder: Path) -> None:
    done = run(*RELEASE, "--engine", "spark", "--out", "o.parquet", cwd=folder)
    assert done.returncode == 1
    assert "needs PySpark 4 and Java 17: pip install 'sklar[spark]'" in done.stderr
    assert files(folder) == {"s.toml", "people.csv"}


def test_a_folder_is_released_with_a_checkpoint_that_is_gone_in_the_end(here: Here, folder: Path) -> None:
    (folder / "shards").mkdir()
    for name in ("a.csv", "b.csv"):
        (folder / "shards" / name).write_text((folder / "people.csv").read_text())
    options = (*RELEASE[2:], "--checkpoint", "counting", "--rows", "10", "--out", "out.csv")
    done = here("release", "shards", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "600 rows" in done.stdout
    assert files(folder) == {"s.toml", "people.csv", "shards", "out.csv", "out.sklar"}


def test_a_generated_table_goes_all_the_way(here: Here, tmp_path: Path) -> None:
    made = "generate census --rows 500 --out c.parquet --schema c.toml"
    assert here(*made.split(), cwd=tmp_path).returncode == 0
    line = "release c.parquet --schema c.toml --epsilon 1 --neighbors add-remove --out o.csv"
    done = here(*line.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "for the presence of any one row" in done.stdout
    header = (tmp_path / "o.csv").read_text().splitlines()[0].replace('"', "")
    assert tuple(header.split(",")) == Schema.load(tmp_path / "c.toml").names


def test_generate_and_evaluate(here: Here, tmp_path: Path) -> None:
    line = ("generate", "census", "--rows", "2000", "--schema", "c.toml")
    made = here(*line, "--out", "c.csv", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "2,000 rows of census-like people" in made.stdout
    assert here(*line, "--seed", "1", "--out", "d.csv", cwd=tmp_path).returncode == 0
    wanted = ("--json", "--plot", "e.svg")
    judged = here("evaluate", "c.csv", "d.csv", "--schema", "c.toml", *wanted, cwd=tmp_path)
    assert judged.returncode == 0, judged.stderr
    found = json.loads(judged.stdout)
    assert found["notice"].startswith("PRIVATE")
    assert {result["name"] for result in found["results"]} >= {"one-way", "two-way", "three-way"}
    assert (tmp_path / "e.svg").read_text().lstrip().startswith("<?xml")
    itself = here("evaluate", "c.csv", "c.csv", "--schema", "c.toml", cwd=tmp_path)
    assert itself.stdout.startswith("PRIVATE: computed from the real rows without noise.")
    rows = [line for line in itself.stdout.splitlines() if line.startswith(("one-way", "two-way", "three-way"))]
    assert rows
    assert all(line.split("0.0 / 0")[0] != line for line in rows)
