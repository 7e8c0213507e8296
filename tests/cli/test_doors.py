"""What comes in from elsewhere: one clear line, nothing raw on the terminal, no file beyond the one that was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import sklar
from sklar.budget.ledger import Ledger
from sklar.budget.ledger.anchor import Anchor, Mark
from sklar.errors import BudgetError, DataError, LedgerError, SchemaError, SignatureError
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from sklar.rows.read import open_source
from sklar.rows.sql import Query
from sklar.trust.sign import read_signature
from tests.cli.conftest import call
from tests.cli.test_nothing_lost import TOML


@pytest.mark.parametrize("epsilon", ["1", [1.0], None, True, 1e-320, 0, float("nan")])
def test_a_budget_is_a_number(epsilon: Any) -> None:
    with pytest.raises(BudgetError, match=r"epsilon must be .*got"):
        Budget(epsilon=epsilon)
    with pytest.raises(BudgetError, match="delta must be a number"):
        Budget(epsilon=1, delta="1e-9")  # type: ignore[arg-type]


def test_deep_texts_give_one_line(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="nested too deep"):
        Schema.from_toml("a = " + "[" * 20_000)
    (tmp_path / "m.sklar").write_bytes(b"")
    (tmp_path / "m.sklar.sig").write_text("[" * 4000)
    with pytest.raises(SignatureError, match="is not a signature"):
        read_signature(tmp_path / "m.sklar")


def test_numbers_and_control_characters_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(TOML)
    forecast = ("forecast", "--schema", "s.toml", "--rows")
    assert "not in the range" in call(*forecast, "9" * 20, "--epsilon", "1", cwd=tmp_path, code=2).output
    assert "epsilon must be positive" in call(*forecast, "9", "--epsilon", "1e-320", cwd=tmp_path, code=1).output
    sklar.fit(
        pl.DataFrame({"seen": [True, False] * 50}), Schema.from_toml("attributes.seen.type = 'boolean'"), epsilon=9
    ).save(tmp_path / "m.sklar")
    said = call("query", "m.sklar", "seen = \x1b[31m\x9b", cwd=tmp_path, code=1).output
    assert "\x1b" not in said
    assert "\x9b" not in said
    assert "\\x1b" in said or "x1b" in said


def test_a_name_with_a_nul_is_refused_before_it_is_exported(tmp_path: Path) -> None:
    pl.DataFrame({"aXb": [1]}).write_ipc(tmp_path / "t.arrow")
    damaged = (tmp_path / "t.arrow").read_bytes().replace(b"aXb", b"a\0b")
    (tmp_path / "t.arrow").write_bytes(damaged)
    with pytest.raises(DataError, match="no NUL"):
        open_source(tmp_path / "t.arrow")


@pytest.mark.parametrize(
    "text",
    ["SELECT * FROM elsewhere", "SELECT * FROM read_csv('{0}/d.csv')", "COPY t TO '{0}/o.csv'", "ATTACH '{0}/o.db'"],
)
def test_a_query_on_duckdb_reads_its_file_alone(tmp_path: Path, text: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / "d.csv").write_text("a\n1\n")
    with duckdb.connect(str(tmp_path / "t.duckdb")) as made:
        made.execute("CREATE TABLE t AS SELECT 1 AS a")
        made.execute(f"CREATE VIEW elsewhere AS SELECT * FROM read_csv('{tmp_path}/d.csv')")
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(DataError):
        pl.DataFrame(Query(tmp_path / "t.duckdb", text.format(tmp_path)).run())
    assert {path.name for path in tmp_path.iterdir()} == before
    assert pl.DataFrame(Query(tmp_path / "t.duckdb", "SELECT * FROM t").run()).height == 1


@pytest.mark.parametrize("name", ["Adult", " adult", "\u0430dult", "\uff41dult", "ad-ult"])
def test_names_that_look_alike_are_refused(tmp_path: Path, name: str) -> None:
    book = Ledger(tmp_path / "l.db")
    book.open_account("adult", epsilon=1, delta=1e-9)
    with pytest.raises(LedgerError, match="look alike"):
        book.open_account(name, epsilon=1, delta=1e-9)
    book.open_account("adult 2", epsilon=1, delta=1e-9)


def test_the_anchor_names_its_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    for place in (tmp_path / "a.db", "postgresql://host/db"):
        monkeypatch.setattr(Anchor, "_run", lambda _self, statement: said.__iadd__([statement])[:0])
        anchor = Anchor(place)
        anchor.create()
        anchor.advance("0a", None, Mark(1, "0b"))
    assert all("main.sklar_anchor" in each for each in said[:3])
    assert all("public.sklar_anchor" in each for each in said[3:])
