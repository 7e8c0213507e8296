"""`sklar link`, `sample`, `verify` and `generate` with linked tables, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result

from sklar.budget.ledger import Ledger
from sklar.cli import cli
from sklar.public.events import Linked
from tests.linked import small, tables


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def prepare(folder: Path) -> Path:
    people, events = tables(200)
    people.write_csv(folder / "people.csv")
    stray = events.head(2).with_columns(person=pl.lit(9_999, dtype=pl.Int64))
    pl.concat([events, stray]).write_csv(folder / "e.csv")
    (folder / "s.toml").write_text(small().to_toml())
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return prepare(tmp_path)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A folder in which tables were linked, and what was printed."""
    folder = prepare(tmp_path_factory.mktemp("linked"))
    return folder, link(folder, "--seed", "5", "--check")


def link(folder: Path, *more: str | Path) -> Result:
    given = (folder / "people.csv", folder / "e.csv", "--schema", folder / "s.toml", "--epsilon", "1")
    return call("link", *given, "--out", folder / "p.csv", "--events-out", folder / "ev.csv", *more)


def test_link_then_sample_then_verify(done: tuple[Path, Result]) -> None:
    folder, linked = done
    assert linked.exit_code == 0, linked.exception
    assert "any one person, with all their events" in linked.stdout
    model, out = folder / "p.sklar", ("--out", folder / "p2.csv", "--events-out", folder / "e2.csv")
    sampled = call("sample", model, "--rows", "50", "--seed", "5", *out, "--json")
    assert json.loads(sampled.stdout)["people"] == 50
    people, events = pl.read_csv(folder / "p2.csv"), pl.read_csv(folder / "e2.csv")
    assert people.height == 50
    assert events["person"].is_in(people["id"].implode()).all()
    assert call("verify", model).exit_code == 0
    assert "give --events-out" in call("sample", model, "--out", folder / "o.csv").stderr


def test_only_the_custodian_is_told_of_keys_without_a_match(done: tuple[Path, Result]) -> None:
    _, linked = done
    private = [line for line in linked.stderr.splitlines() if line.startswith("PRIVATE")]
    assert "PRIVATE: 2 events have a key that no person has, and are dropped." in private
    public = linked.stdout + "".join(set(linked.stderr.splitlines()) - set(private))
    assert "no person has" not in public
    assert str(tables(200)[1].height) not in public


def test_a_ledger_by_person_is_charged(folder: Path) -> None:
    book = Ledger(folder / "l.db")
    book.open_account("people", epsilon=1.2, delta=2**-30, unit="person")
    done = link(folder, "--ledger", folder / "l.db", "--json")
    assert done.exit_code == 0, done.exception
    assert json.loads(done.stdout)["certificate"]["receipt"]["entry"] > 0
    assert 0.99 < book.account("people").spent <= 1.0
    assert link(folder, "--ledger", folder / "l.db").exit_code == 1
    # One for rows is refused.
    Ledger(folder / "rows.db").open_account("people", epsilon=9.0, delta=2**-30)
    done = link(folder, "--ledger", folder / "rows.db")
    assert done.exit_code == 1
    assert "for any one row" in str(done.exception)


def test_what_is_not_understood(folder: Path) -> None:
    done = call("link", folder / "people.csv", folder / "e.csv", "--schema", folder / "s.toml", "--epsilon", "1",
                "--out", folder / "p.csv", "--events-out", folder / "p.csv")  # fmt: skip
    assert done.exit_code == 2
    assert "need a file each" in done.stderr
    assert "no ledger" in str(link(folder, "--ledger-key", folder / "k").exception)
    assert "no ledger" in str(link(folder, "--dataset", "x").exception)
    generated = call(
        "generate", "census", "--out", folder / "c.csv", "--schema", folder / "c.toml", "--events-out", "x"
    )
    assert "no other shape takes it" in generated.stderr
    generated = call("generate", "visits", "--out", folder / "c.csv", "--schema", folder / "c.toml")
    assert "need --events-out" in generated.stderr


def test_generated_visits_have_a_schema_of_both_tables(folder: Path) -> None:
    made = ("generate", "visits", "--rows", "80", "--out", folder / "pa.csv", "--events-out", folder / "v.parquet")
    done = call(*made, "--schema", folder / "v.toml", "--json")
    assert json.loads(done.stdout)["patients"] == 80
    assert Linked.load(folder / "v.toml").people_key == "patient_id"
    assert pl.read_csv(folder / "pa.csv").height == 80
