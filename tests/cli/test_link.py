"""`sklar link`, `sample`, `verify` and `generate` with linked tables, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result

from sklar.budget.ledger import Ledger
from sklar.cli import cli
from tests.linked import small, tables


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    people, events = tables(200)
    people.write_csv(tmp_path / "people.csv")
    pl.concat([events, events.head(2).with_columns(person=pl.lit(9_999, dtype=pl.Int64))]).write_csv(tmp_path / "e.csv")
    (tmp_path / "s.toml").write_text(small().to_toml())
    return tmp_path


def link(folder: Path, *more: str | Path) -> Result:
    given = (folder / "people.csv", folder / "e.csv", "--schema", folder / "s.toml", "--epsilon", "1")
    return call("link", *given, "--out", folder / "p.csv", "--events-out", folder / "ev.csv", *more)


def test_link_then_sample_then_verify(folder: Path) -> None:
    done = link(folder, "--seed", "5", "--check")
    assert done.exit_code == 0, done.exception
    assert "PRIVATE: 2 events have a key that no person has" in done.stderr
    assert "PRIVATE" not in done.stdout
    assert "any one person, with all their events" in done.stdout
    model = folder / "p.sklar"
    done = call(
        "sample", model, "--rows", "50", "--seed", "5", "--out", folder / "p2.csv", "--events-out", folder / "e2.csv"
    )
    assert done.exit_code == 0, done.exception
    people, events = pl.read_csv(folder / "p2.csv"), pl.read_csv(folder / "e2.csv")
    assert people.height == 50
    assert events["person"].is_in(people["id"].implode()).all()
    assert call("verify", model).exit_code == 0


def test_nothing_that_is_printed_tells_of_dropped_keys(folder: Path) -> None:
    done = link(folder)
    assert done.exit_code == 0
    assert "9999" not in done.output
    assert "no person has" not in done.output
    assert str(tables(200)[1].height) not in done.output


def test_a_ledger_by_person_is_charged(folder: Path) -> None:
    book = Ledger(folder / "l.db")
    book.open_account("people", epsilon=1.2, delta=2**-30, unit="person")
    done = link(folder, "--ledger", folder / "l.db", "--json")
    assert done.exit_code == 0, done.exception
    assert json.loads(done.stdout)["certificate"]["receipt"]["entry"] > 0
    assert 0.99 < book.account("people").spent <= 1.0
    assert link(folder, "--ledger", folder / "l.db").exit_code == 1


def test_a_ledger_by_row_is_refused(folder: Path) -> None:
    Ledger(folder / "l.db").open_account("people", epsilon=9.0, delta=2**-30)
    done = link(folder, "--ledger", folder / "l.db")
    assert done.exit_code == 1
    assert "for any one row" in str(done.exception)


def test_what_is_not_understood(folder: Path) -> None:
    done = call("link", folder / "people.csv", folder / "e.csv", "--schema", folder / "s.toml", "--epsilon", "1",
                "--out", folder / "p.csv", "--events-out", folder / "p.csv")  # fmt: skip
    assert done.exit_code == 2
    assert "need a file each" in done.stderr
    assert "no ledger" in str(link(folder, "--ledger-key", folder / "k").exception)
    assert "no ledger" in str(link(folder, "--dataset", "x").exception)
    assert link(folder).exit_code == 0
    model = folder / "p.sklar"
    assert "give --events-out" in call("sample", model, "--out", folder / "o.csv").stderr
    generated = call(
        "generate", "census", "--out", folder / "c.csv", "--schema", folder / "c.toml", "--events-out", "x"
    )
    assert "no other shape takes it" in generated.stderr
    generated = call("generate", "visits", "--out", folder / "c.csv", "--schema", folder / "c.toml")
    assert "need --events-out" in generated.stderr


def test_generated_visits_can_be_linked(folder: Path) -> None:
    made = ("generate", "visits", "--rows", "80", "--out", folder / "pa.csv", "--events-out", folder / "v.parquet")
    done = call(*made, "--schema", folder / "v.toml", "--json")
    assert json.loads(done.stdout)["patients"] == 80
    done = call("link", folder / "pa.csv", folder / "v.parquet", "--schema", folder / "v.toml", "--epsilon", "1",
                "--out", folder / "p.csv", "--events-out", folder / "ev.csv")  # fmt: skip
    assert done.exit_code == 0, done.exception
