"""Ledgers: how releases add up, what is refused, and that nothing is drawn before it was charged."""

from __future__ import annotations

import math
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings

import sklar
from sklar.budget.account import own_cost
from sklar.budget.ledger import Ledger, Paid
from sklar.budget.ledger.anchor import Anchor, Mark
from sklar.cli import cli
from sklar.errors import BudgetError, LedgerError
from sklar.kernel import vault as door
from sklar.kernel.theorems import Budget, Cost, Spend, cost, gaussian_epsilon
from sklar.public.schema import Attribute, Schema
from tests.conftest import refuses

DELTA = 2.0**-30
SCHEMA = Schema(
    name="t",
    attributes=(
        Attribute(name="a", kind="categorical", values=tuple("wxyz")),
        Attribute(name="b", kind="categorical", values=tuple("pqrst")),
        Attribute(name="c", kind="boolean"),
    ),
)
TABLE = pa.table({"a": list("wxyz") * 50, "b": list("pqrs") * 50, "c": [True, False] * 100})


def opened(path: Path, epsilon: float = 1.0, **settings: Any) -> Ledger:
    """A ledger with a data set 't'."""
    book = Ledger(path, key=settings.pop("key", None))
    book.open_account("t", **{"epsilon": epsilon, "delta": DELTA, **settings})
    return book


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return opened(tmp_path / "l.db", 2.0)


def many(budget: Budget, tables: int = 105) -> Spend:
    return budget.tables(budget.scales(np.ones(tables)))


def pay(book: Ledger, epsilon: float = 0.9, tables: int = 10, dataset: str = "t", **settings: Any) -> Paid:
    budget = Budget(epsilon=epsilon, **settings)
    return book.charge(dataset, budget, many(budget, tables))


def fails(*_: Any, **_settings: Any) -> Any:
    """In place of whatever must not be reached, or shall break."""
    raise RuntimeError("planted")


def run(*words: object) -> Result:
    """What a command does."""
    return CliRunner().invoke(cli, [*map(str, words)])


def changed(path: Path, statement: str, *rows: Sequence[Any]) -> list[list[Any]]:
    """A statement run on a database by other means than ours, for each of these rows if any, and what it answers."""
    with closing(sqlite3.connect(path)) as connection, connection:
        found = connection.executemany(statement, rows) if rows else connection.execute(statement)
        return [[*row] for row in found]


def test_releases_add_up_by_the_accountant_and_the_naive_sum_is_shown(ledger: Ledger) -> None:
    budget = Budget(epsilon=1.0)
    assert pay(ledger, 1.0, 105).account.spent == budget.spent(many(budget))
    for _ in range(2):
        account = pay(ledger, 1.0, 105).account
    assert account.accountant == "curve"
    scale = float(many(budget).scales[0])
    assert account.spent == pytest.approx(gaussian_epsilon(np.array([scale]), np.array([630]), DELTA), rel=1e-6)
    assert 1.7 < account.spent < 1.85
    assert account.naive[0] == pytest.approx(3.0, rel=1e-6)
    assert account.naive[1] == 3 * DELTA
    text = "\n".join(account.lines())
    assert "in 3 releases (pooled on the Gaussian curve)" in text
    assert "the naive sum would be epsilon = 3, delta = 2.79e-09" in text


def test_a_refusal_says_what_is_left_and_what_fits(ledger: Ledger) -> None:
    pay(ledger, 1.5, 105)
    over = r"must stay within epsilon=2 .* of which 1.5 is spent; .* would overspend"
    refused = refuses(over, pay, ledger, 1.5, 105, error=BudgetError)
    fits = float(str(refused).rsplit("epsilon=", 1)[1].rstrip("."))
    assert 1.0 < fits < 1.5
    assert len(ledger.account("t").charges) == 1
    assert 1.98 < pay(ledger, fits, 105).account.spent <= 2.0
    ledger.open_account("u", epsilon=2.0, delta=DELTA)
    pay(ledger, 2.0, 105, "u")
    none = r"No release like this one fits any more; .* costs nothing|fits up to about epsilon=0\.0"
    refuses(none, pay, ledger, 1.5, 105, "u", error=BudgetError)


@pytest.mark.parametrize("composition", ["tight", "advanced", "basic"])
def test_laplace_releases_fit_a_total_of_their_own_size(tmp_path: Path, composition: Any) -> None:
    account = pay(opened(tmp_path / "l.db"), 1.0, 3, mechanism="laplace", composition=composition).account
    assert account.spent <= 1.0 + 1e-9
    assert account.accountant == {"basic": "sum"}.get(composition, account.accountant)


def test_mixtures_of_noise_pool_and_the_first_charge_decides_the_accountant(ledger: Ledger, tmp_path: Path) -> None:
    pay(ledger, 1.0, 105)
    account = pay(ledger, 1.0, 105, mechanism="laplace", composition="advanced").account
    assert 1.1 < account.spent < 1.5
    assert [entry.body["accountant"] for entry in account.charges] == ["curve", "curve"]
    book = opened(tmp_path / "large.db", 100.0)
    assert many(Budget(epsilon=50.0), 3).scales.max() < 2
    assert [pay(book, *each).account.accountant for each in ((50.0, 3), (1.0, 105))] == ["zcdp", "zcdp"]


def test_costs() -> None:
    assert cost("laplace", Spend.of([10.0])).rho == pytest.approx(0.005)
    # Small e: mu = sqrt(2 pi) / 2 e.
    assert cost("laplace", Spend.of([1000.0])).mu_squared == pytest.approx(math.pi / 2 * 1e-6, rel=1e-4)
    assert cost("gaussian", Spend.of([2.0], 2)).mu_squared == math.inf
    assert Cost(rho=1, mu_squared=math.inf).covers(Cost(rho=1, mu_squared=5))
    assert not Cost(rho=1, mu_squared=1).covers(Cost(rho=1, mu_squared=1.1))


def test_laplace_noise_is_as_gdp_as_is_claimed() -> None:
    """The trade-off curve of k shifts of discrete Laplace noise lies above the Gaussian one that is charged."""
    from sklar.kernel.theorems import gdp_delta, laplace_delta

    for scale, shifts in ((0.7, 3), (5.0, 40), (100.0, 210)):
        mu = math.sqrt(cost("laplace", Spend.of([scale], [shifts])).mu_squared)
        for epsilon in (0.01, 0.3, 1.0, 3.0):
            exact = laplace_delta(epsilon, np.array([scale]), np.array([shifts]))
            assert exact <= gdp_delta(epsilon, mu) * (1 + 1e-9) + 1e-15


@settings(max_examples=10, deadline=None)
@given(
    charges=st.lists(
        st.tuples(st.floats(0.01, 5.0), st.sampled_from(["gaussian", "laplace"]), st.integers(1, 200)), max_size=6
    )
)
def test_no_sequence_of_charges_overspends(tmp_path_factory: pytest.TempPathFactory, charges: Any) -> None:
    book = opened(tmp_path_factory.mktemp("l") / "l.db", 3.0)
    for epsilon, mechanism, tables in charges:
        before = book.account("t").spent
        try:
            account = pay(book, epsilon, tables, mechanism=mechanism).account
        except BudgetError:
            assert book.account("t").spent == before
            continue
        assert before <= account.spent <= 3.0 * (1 + 1e-9)


def test_fit_charges_before_it_draws(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(door), "discrete_gaussian", fails)
    refuses("planted", sklar.fit, TABLE, SCHEMA, epsilon=1.0, ledger=ledger, error=RuntimeError)
    # Charged although the run ended: budget may be lost, never hidden; and for both stages.
    account = ledger.account("t")
    assert account.spent == pytest.approx(1.0, rel=1e-3)
    assert sum(moves for _, moves, _ in account.charges[0].body["scales"]) == 2 * 9


def test_refusals(ledger: Ledger, tmp_path: Path) -> None:
    refuses(r"has no data set 'u'; it has 't'\. Name one with --dataset", pay, ledger, dataset="u")
    total: Any = {"epsilon": 9.0, "delta": DELTA}
    refuses(r"has its total in ledger .* already; a total is set once", ledger.open_account, "t", **total)
    refuses("a data set must have a name that can be printed, got ''", ledger.open_account, "", **total)
    refuses("epsilon must be positive", ledger.open_account, "v", epsilon=-1.0, delta=DELTA, error=BudgetError)
    unit = "unit must be 'row' or 'person', got 'visit'"
    refuses(unit, ledger.open_account, "v", **total, unit="visit", error=BudgetError)
    refuses(r"does not exist\. Make it: sklar ledger init", Ledger(tmp_path / "none.db").accounts)
    add_remove = Budget(epsilon=1.0, neighbors="add-remove")
    other = "counts its budget for replace-one neighbors, got a release for add-remove"
    refuses(other, sklar.fit, TABLE, SCHEMA, add_remove, ledger=ledger, error=BudgetError)
    none = "a data set is a name in a ledger, got dataset='t' and no ledger"
    refuses(none, sklar.fit, TABLE, SCHEMA, epsilon=1.0, dataset="t", error=BudgetError)


def test_a_copy_is_refused_until_it_is_adopted(ledger: Ledger, tmp_path: Path) -> None:
    copy = Ledger(tmp_path / "copy.db")
    copy.path.write_bytes(ledger.path.read_bytes())
    refuses(r"is a copy, or was restored from one: .* run: sklar ledger adopt", pay, copy)
    refuses("is a copy", copy.open_account, "u", epsilon=1.0, delta=DELTA)
    copy.adopt()
    assert pay(copy, 0.5).account.spent == pytest.approx(0.5, rel=1e-3)
    assert [entry.kind for entry in copy.history()] == ["setup", "open", "adopt", "charge"]
    # Moved on its disk, it stays itself.
    ledger.path.rename(tmp_path / "moved.db")
    pay(Ledger(tmp_path / "moved.db"))


@pytest.mark.parametrize("statement", [
    "UPDATE entries SET body = replace(body, '2.0', '9.0') WHERE number = 2",
    "UPDATE entries SET salt = 'ab' WHERE number = 2", "DELETE FROM entries WHERE number = 1",
    "UPDATE entries SET dataset = 'x' WHERE number = 3", "UPDATE entries SET time = '' WHERE number = 2",
    "PRAGMA application_id = 7", "PRAGMA user_version = 7", "DROP TABLE entries",
])  # fmt: skip
def test_edited_ledgers_are_refused(ledger: Ledger, statement: str) -> None:
    pay(ledger, 0.5)
    changed(ledger.path, statement)
    refuses(r"Nothing was measured\.$", pay, ledger, 0.5)


def test_damaged_ledgers_are_refused_or_unharmed(ledger: Ledger) -> None:
    for _ in range(5):
        pay(ledger, 0.01)
    whole, entries = ledger.path.read_bytes(), ledger.history()
    generator = np.random.default_rng(1)
    for length in (0, 1, 100, 512, len(whole) // 2, len(whole) - 1):
        ledger.path.write_bytes(whole[:length])
        refuses("ledger", pay, ledger, 0.01)
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[int(generator.integers(len(whole)))] ^= 1 << int(generator.integers(8))
        ledger.path.write_bytes(damaged)
        try:
            found = ledger.history()
        except LedgerError:
            continue
        assert found == entries


def test_a_full_disk_measures_nothing(tmp_path: Path) -> None:
    size = opened(tmp_path / "l.db", 2.0).path.stat().st_size

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 4096, size - 4096))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    code = (
        "from sklar.budget.ledger import Ledger; from sklar.kernel.theorems import Budget, Spend\n"
        "Ledger('l.db').charge('t', Budget(epsilon=1.0), Spend.of([100.0], [6]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=small_files
    )
    assert "LedgerError" in done.stderr
    assert "on a disk with room. Nothing was measured." in done.stderr
    assert [entry.kind for entry in Ledger(tmp_path / "l.db").history()] == ["setup", "open"]


def test_a_ledger_that_cannot_be_written(ledger: Ledger) -> None:
    if os.geteuid() == 0:
        pytest.skip("this user may write anywhere")
    ledger.path.chmod(0o400)
    refuses("It must be a file that can be written", pay, ledger)


def test_eight_writers_at_once_never_overspend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKLAR_LEDGER_KEY", "ab" * 32)
    ledger = opened(tmp_path / "l.db", 2.0, anchor=tmp_path / "anchor.db")
    code = """
import sys, numpy as np
from sklar.budget.ledger import Ledger
from sklar.errors import BudgetError
from sklar.kernel.theorems import Budget
done, budget = 0, Budget(epsilon=0.5)
for _ in range(10):
    try: Ledger(sys.argv[1]).charge('t', budget, budget.tables(budget.scales(np.ones(10)))); done += 1
    except BudgetError: pass
print(done)
"""
    command = [sys.executable, "-c", code, str(ledger.path)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    charged = sum(int(writer.communicate(timeout=300)[0]) for writer in writers)
    account = ledger.account("t")
    assert charged == len(account.charges) > 8
    assert account.spent <= 2.0
    entries = ledger.history()
    assert [entry.number for entry in entries] == list(range(1, charged + 3))
    anchor = Anchor(tmp_path / "anchor.db")
    assert anchor.last(entries[0].body["ledger"]) == Mark(entries=len(entries), head=entries[-1].head)


def test_the_commands(tmp_path: Path) -> None:
    book = str(tmp_path / "l.db")
    made = run("ledger", "init", book, "--dataset", "people", "--epsilon", "3", "--delta", "1e-9")
    assert made.exit_code == 0
    assert "epsilon = 3, delta = 1e-09 for all releases together" in made.output
    Ledger(book).charge("people", Budget(epsilon=1.0), Spend.of([100.0], [6]))
    shown = run("ledger", "show", book)
    assert "Data set 'people'" in shown.output
    assert "the naive sum would be" in shown.output
    assert "costs nothing" in shown.output
    assert '"spent_epsilon"' in run("ledger", "show", book, "--json").output
    listed = run("ledger", "history", book).output.splitlines()
    assert "people: opened with epsilon = 3" in listed[1]
    assert "3 tables, gaussian noise, tight composition, counted by curve" in listed[2]
    assert '"kind": "charge"' in run("ledger", "history", book, "--json").output
    assert "is in force" in run("ledger", "adopt", book).output


def test_a_ledger_refuses_a_release_of_another_unit(ledger: Ledger) -> None:
    ledger.open_account("people", epsilon=10.0, delta=1e-6, unit="person")
    row = r"for any one row, got a release for any one person.*--unit person"
    refuses(row, pay, ledger, rows_per_person=8, error=BudgetError)
    person = r"for any one person, got a release for any one row.*Name the person"
    refuses(person, pay, ledger, dataset="people", error=BudgetError)


def test_releases_by_person_add_up_whatever_rows_each_counts(ledger: Ledger) -> None:
    ledger.open_account("people", epsilon=10.0, delta=1e-6, unit="person")
    for rows in (1, 8):
        budget = Budget(epsilon=1.0, rows_per_person=rows)
        ledger.charge("people", budget, budget.tables([200.0], [100]))
    account = ledger.account("people")
    assert (account.unit, ledger.account("t").unit) == ("person", "row")
    costs = [charge.cost for charge in account.charges]
    assert costs[0].rho == pytest.approx(100 / 200**2)
    assert costs[1].rho == pytest.approx(64 * costs[0].rho)
    alone = Budget(epsilon=10.0, delta=1e-6, rows_per_person=1)
    # Together they cost what 65 times the tables of one row cost.
    assert account.spent == pytest.approx(alone.spent(alone.tables([200.0], [6_500])), rel=1e-3)
    assert account.to_dict()["unit"] == "person"
    assert "for any one person" in account.lines()[0]
    assert "for people with up to 8 rows" in account.charges[1].line()
    assert "for any one person" in next(entry.line() for entry in ledger.history() if entry.dataset == "people")
    # Pure releases cost their rows.
    pure = Budget(epsilon=1.0, mechanism="laplace", composition="basic", rows_per_person=8)
    assert own_cost(pure, pure.tables([100.0])) == pytest.approx((16 / 100, 0))
