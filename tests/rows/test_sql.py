"""Queries: rows come as a stream, and neither rows nor passwords leave with an error. DuckDB, and a real PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl
import pytest
from click.testing import CliRunner

import sklar
from sklar.cli import cli
from sklar.custodian.draft import draft
from sklar.errors import DataError, MissingExtraError
from sklar.rows.read import open_source
from sklar.rows.sql import Query
from tests.conftest import refuses
from tests.postgres import serving
from tests.rows.test_read import SECRET, refusal

SCHEMA = (
    '[table]\nname = "p"\n[attributes.age]\ntype = "integer"\nedges = [0, 50, 100]\n[attributes.city]\n'
    'type = "categorical"\nvalues = ["Bern", "Rome"]\nmissing = "?"\n'
)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE people AS SELECT (i % 100)::TINYINT AS age, CASE WHEN i % 3 = 0 THEN 'Bern' ELSE 'Rome' END "
            f"AS city, '{SECRET}' AS name, (i % 900 / 100)::DECIMAL(6, 2) AS paid FROM range(150000) AS r(i)"
        )
    return path


def rows(query: Query) -> pl.DataFrame:
    source = open_source(query)
    return pl.concat(source.batches(source.columns))


def test_a_query_is_a_table_that_each_reading_runs_anew(database: Path) -> None:
    few = rows(Query(database, "SELECT age, city FROM people WHERE age < 10"))
    # Texts are bytes: they need not be UTF-8.
    assert few.dtypes == [pl.Int8, pl.Binary]
    assert few.height == 15_000
    query = Query(database, "SELECT * FROM people")
    for _ in range(2):
        sizes = [batch.height for batch in open_source(query).batches(("age",))]
        assert sum(sizes) == 150_000
        assert len(sizes) > 1
    schema = draft(Query(database, "SELECT age, paid FROM people")).schema
    assert [attribute.output for attribute in schema.attributes] == ["int8", "decimal(6, 2)"]


def check_refusal(database: Path | str, text: str, people: int) -> None:
    message = refusal(Query(database, text))
    assert "hidden" not in message
    assert message.startswith(("the database did not run the query.", "the query returns no", "the table"))
    assert rows(Query(database, "SELECT count(*) AS n FROM people"))["n"].item() == people


REFUSED = (
    "SELECT * FROM nothing", "SELEC", "SELECT name::INTEGER AS age FROM people", "DROP TABLE people",
    "CREATE TABLE other (a INTEGER)",
)  # fmt: skip


@pytest.mark.parametrize("text", [*REFUSED, "SELECT error(name) AS age FROM people", ""])
def test_errors_of_the_database_quote_nothing(database: Path, text: str) -> None:
    check_refusal(database, text, people=150_000)


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    with pytest.raises(DataError, match=r"t\.csv' cannot be opened as a DuckDB file: it is damaged"):
        rows(Query(tmp_path / "t.csv", "SELECT 1"))
    with pytest.raises(DataError, match=r"the DuckDB file '.*none\.duckdb' does not exist"):
        rows(Query(tmp_path / "none.duckdb", "SELECT 1"))
    with pytest.raises(DataError, match="must begin with postgresql://") as refused:
        Query("mysql://me:hidden@host/db", "SELECT 1")
    assert "hidden" not in str(refused.value)
    assert "hidden" not in repr(Query("postgresql://me:hidden@host/db", "SELECT 1"))


@pytest.mark.parametrize(("module", "address"), [("duckdb", "x"), ("adbc_driver_postgresql", "postgresql://h/d")])
def test_a_driver_that_is_not_installed(module: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    refuses(r"pip install 'sklar\[sql\]'", rows, Query(address, "SELECT 1"), error=MissingExtraError)


def test_the_command_line_reads_a_query_and_keeps_an_address_to_itself(database: Path, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SCHEMA)
    settings = ["--schema", str(tmp_path / "s.toml"), "--epsilon", "1", "--model", str(tmp_path / "m.sklar")]
    query = ["--query", "SELECT age, city FROM people WHERE age < 50"]
    done = CliRunner().invoke(cli, ["fit", str(database), *query, *settings])
    assert done.exit_code == 0, done.output
    assert sklar.load(tmp_path / "m.sklar").n_rows == 75_000
    checked = CliRunner().invoke(cli, ["schema", "check", str(tmp_path / "s.toml"), str(database), *query])
    assert "75,000" in checked.output
    address = "postgresql://me:hidden@127.0.0.1:1/none"
    forgotten = CliRunner().invoke(cli, ["fit", address, *settings])
    assert forgotten.exit_code == 2
    assert "say which rows with --query" in forgotten.output
    unreachable = CliRunner().invoke(cli, ["fit", address, *query, *settings])
    assert isinstance(unreachable.exception, DataError)
    assert "hidden" not in forgotten.output + unreachable.output + str(unreachable.exception)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, in a process of its own in this folder."""
    (folder / "s.toml").write_text(SCHEMA)
    command = [sys.executable, "-m", "sklar", *arguments, "--schema", "s.toml", "--epsilon", "1"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_release_of_a_query_says_nothing_of_its_own_end(database: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "fit", str(database), "--query", "SELECT * FROM people", "--quiet", "--model", "m.sklar")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def filled() -> Iterator[str]:
    """The address of a PostgreSQL server of our own, which lives in a folder and listens on a socket there."""
    with serving() as home:
        from adbc_driver_postgresql import dbapi

        address = f"postgresql://tester:hidden@/postgres?host={home}"
        with dbapi.connect(address) as connection, connection.cursor() as cursor:
            cursor.execute(
                "CREATE TABLE people AS SELECT (i % 100)::smallint AS age, i % 2 = 0 AS member, "
                "(array['Bern', 'Rome', NULL])[1 + i % 3] AS city, DATE '2020-01-01' + i % 300 AS since, "
                "now() - i % 90 * INTERVAL '1 day' AS seen, (i % 900)::numeric(8, 2) / 100 AS paid, "
                f"'{SECRET}' AS name FROM generate_series(1, 200000) AS i"
            )
            connection.commit()
        yield address


@pytest.mark.slow
def test_postgresql_is_read_as_a_stream(filled: str) -> None:
    source = open_source(Query(filled, "SELECT * FROM people"))
    sizes = [batch.height for batch in source.batches(source.columns)]
    assert sum(sizes) == 200_000
    assert len(sizes) > 3


@pytest.mark.slow
def test_a_table_that_nobody_reads_leaves_no_connection_behind(filled: str) -> None:
    source = open_source(Query(filled, "SELECT * FROM people"))
    next(source.batches(source.columns))
    del source
    asked = "SELECT count(*) AS n FROM pg_stat_activity WHERE backend_type = 'client backend'"
    # The server needs a moment to notice; a connection that is still held would stay for good.
    for _ in range(100):
        if rows(Query(filled, asked))["n"].item() == 1:
            return
        time.sleep(0.1)
    pytest.fail("a connection is still open")


@pytest.mark.slow
def test_postgresql_types_reach_the_draft(filled: str) -> None:
    schema = draft(Query(filled, "SELECT age, city, member, since, seen, paid FROM people LIMIT 5000")).schema
    assert [(attribute.name, attribute.kind, attribute.output) for attribute in schema.attributes] == [
        ("age", "integer", "int16"),
        ("city", "categorical", None),
        ("member", "boolean", None),
        ("since", "date", None),
        ("seen.date", "date", "timestamp[us, tz=UTC]"),
        ("seen.time", "time", None),
        ("seen.weekday", "weekday", None),
        # The driver hands numerics over as texts of its own type, of which the schema has no word.
        ("paid", "real", None),
    ]


@pytest.mark.slow
def test_postgresql_is_released_from_the_command_line(filled: str, tmp_path: Path) -> None:
    done = run(tmp_path, "release", filled, "--query", "SELECT * FROM people WHERE age < 50", "--out", "o.csv")
    assert done.returncode == 0, done.stderr
    assert "100,000 synthetic rows in o.csv" in done.stdout
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert "hidden" not in done.stdout + done.stderr
    assert b"hidden" not in written
    assert SECRET.encode() not in written


WRITES = "INSERT INTO people SELECT * FROM people RETURNING age"


@pytest.mark.slow
@pytest.mark.parametrize("text", [*REFUSED, "SELECT 1 / (age - age) AS age FROM people", WRITES])
def test_errors_of_postgresql_quote_nothing(filled: str, text: str) -> None:
    check_refusal(filled, text, people=200_000)
