"""Receipts, names for the same rows, and what a failure says after the charge."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import sklar
from sklar.budget.ledger import Ledger, chain, check_releases
from sklar.budget.method import PAPER
from sklar.budget.receipt import Receipt, charge_notes
from sklar.cli import main
from sklar.custodian.check import hash_files
from sklar.errors import BudgetError, DataError, ModelError, OutputError
from sklar.files.archive import load
from sklar.files.model import Model
from sklar.kernel.theorems import Budget
from sklar.rows.engines import Measurer
from tests.budget.test_ledger import DELTA, SCHEMA, TABLE, fails, opened, run
from tests.conftest import refuses
from tests.trust.forge import forged

TOML = (
    '[table]\nname = "t"\n[attributes.a]\ntype = "categorical"\nvalues = ["x", "y"]\n[attributes.b]\ntype = "boolean"\n'
)
SEARCHED = sklar.Schema.from_toml(TOML.replace('values = ["x", "y"]', 'domain = "private"'))
CSV = "a,b\n" + "x,true\ny,false\n" * 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table, its schema and a ledger, in the present folder."""
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(TOML)
    Path("d.csv").write_text(CSV)
    opened(Path("l.db"), 5.0)
    return tmp_path


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    return opened(tmp_path / "l.db", 5.0)


def fitted(book: Ledger | None, epsilon: float = 0.5) -> Model:
    return sklar.fit(TABLE, SCHEMA, epsilon=epsilon, method="binary", ledger=book)


def test_a_certificate_holds_the_receipt_of_its_charge(book: Ledger, tmp_path: Path) -> None:
    model = fitted(book)
    receipt = Receipt(entry=3, head=book.history()[2].head)
    assert model.certificate.receipt == receipt
    model.save(tmp_path / "m.sklar")
    assert load(tmp_path / "m.sklar").certificate.receipt == receipt
    assert fitted(None).certificate.receipt is None


@pytest.mark.parametrize("receipt", [
    5, {}, {"entry": 3}, {"entry": 0, "head": "a" * 64}, {"entry": True, "head": "a" * 64},
    {"entry": 2**63, "head": "a" * 64}, {"entry": 3, "head": "A" * 64}, {"entry": 3, "head": "a" * 63},
    {"entry": 3, "head": 7}, {"entry": 3, "head": "a" * 64, "more": "rows"},
])  # fmt: skip
def test_a_receipt_holds_nothing_else(book: Ledger, tmp_path: Path, receipt: Any) -> None:
    fitted(book).save(tmp_path / "m.sklar")
    change = {"receipt": receipt}
    bad = forged(tmp_path / "m.sklar", lambda d, _: d["certificate"].update(change), tmp_path / "bad.sklar")
    refuses(r"receipt|certificate", load, bad, error=ModelError)


def test_heads_tell_nothing_of_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ledgers with the same entries, to the second and the file, have heads that share nothing."""
    monkeypatch.setattr(chain, "datetime", Mock(now=lambda _: dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)))
    monkeypatch.setattr(chain.Pages, "_identity", lambda _: "1")
    one, other = (opened(tmp_path / name).history()[1:] for name in ("a.db", "b.db"))
    assert [(entry.dataset, entry.time) for entry in one] == [(entry.dataset, entry.time) for entry in other]
    assert {entry.head for entry in one}.isdisjoint(entry.head for entry in other)


def problem(book: Ledger, *models: Model) -> str | None:
    found = check_releases("l", book.history(), (), [(f"m{i}", model.measured) for i, model in enumerate(models)])
    assert found.passed == (not any(found.releases.values()))
    return found.releases[f"m{len(models) - 1}"]


def stated(model: Model, receipt: Receipt | None) -> Model:
    certificate = replace(model.certificate, receipt=receipt)
    return replace(model, measured=replace(model.measured, certificate=certificate))


def test_every_release_must_be_in_the_ledger(book: Ledger, tmp_path: Path) -> None:
    backup = book.path.read_bytes()
    first, second = fitted(book), fitted(book)
    assert problem(book, first, second) is None
    # Another model of the same noisy tables is paid for; other tables are not.
    again = sklar.fit_tables(first.measured, method="binary")
    assert problem(book, first, again) is None
    paid, opening = first.certificate.receipt, Receipt(entry=2, head=book.history()[1].head)
    shared = stated(second, paid)
    assert "entry 3 as its charge, which paid for other tables" in str(problem(book, first, shared))
    assert "has no receipt: no ledger was charged for it" in str(problem(book, fitted(None)))
    assert "measured more than entry 2 was charged for" in str(problem(book, stated(first, opening)))
    assert "measured more than entry 3" in str(problem(book, stated(fitted(None, epsilon=2.0), paid)))
    foreign = stated(first, Receipt(entry=3, head="a" * 64))
    assert "entry 3 of another ledger, or entries were changed since" in str(problem(book, foreign))
    book.path.write_bytes(backup)
    assert "and the ledger has 2: the ledger is older than the release, or another" in str(problem(book, first))


@pytest.mark.parametrize("method", ["auto", "binary", PAPER])
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_every_kind_of_release_is_charged_for_what_it_measures(
    tmp_path: Path, method: Any, neighbors: Any, mechanism: Any
) -> None:
    book = opened(tmp_path / "l.db", 5.0, delta=4 * DELTA, neighbors=neighbors)
    budget = Budget(epsilon=1.0, neighbors=neighbors, mechanism=mechanism)
    # The same again is charged again.
    measured = [sklar.measure(TABLE, SCHEMA, budget, method=method, ledger=book.path) for _ in range(2)]
    assert check_releases("l", book.history(), (), [("m", measured[0]), ("n", measured[1])]).passed
    spend, account = measured[0].certificate.spend, book.account("t")
    assert spend.moves.sum() == sum(block.spend(budget).moves.sum() for block in measured[0].blocks)
    assert [entry.body["schema_sha256"] for entry in account.charges] == [SCHEMA.digest] * 2
    assert all(entry.cost.covers(budget.cost(spend)) for entry in account.charges)
    assert (account.accountant == "sum") == (mechanism == "laplace")


def test_check_says_which_release_is_missing(folder: Path) -> None:
    fit = ["fit", "d.csv", "--schema", "s.toml", "--epsilon", "1", "--method", "binary", "--model"]
    assert run(*fit, "paid.sklar", "--ledger", "l.db").exit_code == 0
    assert run(*fit, "unpaid.sklar").exit_code == 0
    good = run("ledger", "check", "l.db", "paid.sklar")
    assert good.exit_code == 0
    assert "ok    paid.sklar is in the ledger and was charged in full" in good.stdout
    assert good.stdout.endswith("Passed.\n")
    bad = run("ledger", "check", "l.db", "paid.sklar", "unpaid.sklar")
    assert bad.exit_code == 1
    assert "FAIL  unpaid.sklar has no receipt" in bad.stdout
    found = json.loads(run("ledger", "check", "l.db", "unpaid.sklar", "--json").stdout)
    assert (found["passed"], found["entries"]) == (False, 3)


def test_a_second_name_for_the_same_rows_is_told(folder: Path) -> None:
    bound = run("ledger", "bind", "l.db", "d.csv", "--dataset", "t")
    assert bound.exit_code == 0, bound.exception
    assert "WARNING" not in bound.stderr
    made = run("ledger", "init", "l.db", "--dataset", "twin", "--epsilon", "5", "--data", "d.csv")
    assert made.exit_code == 0
    assert "data set 'twin' has files in common with 't'" in made.stderr
    # Also as one of the files of a folder; not when the file changed.
    (folder / "parts").mkdir()
    (folder / "parts" / "1.csv").write_text(CSV)
    (folder / "parts" / "2.csv").write_text(CSV + "x,true\n")
    made = run("ledger", "init", "l.db", "--dataset", "three", "--epsilon", "5", "--data", "parts", "--json")
    assert json.loads(made.stdout)["same_rows"] == ["t", "twin"]
    (folder / "parts" / "1.csv").write_text(CSV + "y,true\n")
    made = run("ledger", "init", "l.db", "--dataset", "four", "--epsilon", "5", "--data", "parts/1.csv", "--json")
    assert json.loads(made.stdout)["same_rows"] == []


def test_fingerprints_and_their_secret_stay_in_the_ledger(folder: Path) -> None:
    book = Ledger("l.db")
    printed = run("ledger", "bind", "l.db", "d.csv", "--dataset", "t", "--json").output
    bound = book.history()[-1].body["files"]
    (plain,) = hash_files("d.csv")
    # Keyed: the file's own hash is not in the ledger, and another ledger has another fingerprint.
    assert plain.hex() not in Path("l.db").read_bytes().decode("latin-1")
    other = opened(Path("other.db"))
    other.bind("t", [plain])
    assert other.history()[-1].body["files"] != bound
    out = ["--epsilon", "1", "--method", "binary", "--ledger", "l.db", "--out", "o.csv", "--json"]
    printed += run("release", "d.csv", "--schema", "s.toml", *out).output
    printed += run("ledger", "history", "l.db").output + run("ledger", "history", "l.db", "--json").output
    assert "bound to the contents of 1 files" in printed
    with zipfile.ZipFile("o.sklar") as archive:
        written = b"".join(archive.read(name) for name in archive.namelist()) + Path("o.csv").read_bytes()
    for private in (*bound, plain.hex(), book.history()[0].body["secret"]):
        assert private not in printed
        assert private.encode() not in written


def test_what_cannot_be_bound(folder: Path) -> None:
    bound = "a data set is bound to files: give a file or a folder"
    refuses(bound, hash_files, "postgresql://me:hidden@host/db", error=DataError)
    refuses("does not exist", hash_files, folder / "none.csv", error=DataError)


STEPS = (
    "release.find_domains", "fitting.third.plan_second", "release.certify", "release.fit_tables",
    "fitting.choose.fit_auto", "draw.repair.hold_margins",
)  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
def test_whatever_fails_after_the_charge_says_what_was_charged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Every step of a release, with a search, whose charge comes first: all but finding out that it fits fail late."""
    monkeypatch.setattr(f"sklar.{step}", fails)
    failed = refuses(
        "planted", sklar.fit, "d.csv", SEARCHED, epsilon=1.0, anyway=True, ledger="l.db", error=RuntimeError
    )
    assert charge_notes(failed) == [
        "The ledger was charged for this release of epsilon=1 before (entry 3), and that stays spent."
    ]
    assert len(Ledger("l.db").account("t").charges) == 1


def test_what_fails_before_the_charge_says_nothing_of_one(book: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in ("rows.engines.open_table", "release.measure_stages", "release.plan_release"):
        with monkeypatch.context() as patched:
            patched.setattr(f"sklar.{step}", fails)
            failed = refuses("planted", sklar.fit, TABLE, SCHEMA, epsilon=1.0, ledger=book, error=RuntimeError)
            assert charge_notes(failed) == []
    assert not book.account("t").charges


@pytest.fixture
def stopped(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command that is charged and fails prints."""

    def stop(command: str, *words: str) -> str:
        settings = ["--schema", "s.toml", "--epsilon", "1", "--method", "binary", "--ledger", "l.db", "--quiet"]
        monkeypatch.setattr(sys, "argv", ["sklar", command, "d.csv", *settings, *words])
        refuses(None, main, error=SystemExit)
        return capsys.readouterr().err

    return stop


@pytest.mark.parametrize(("command", "fails", "error", "said"), [
    (["fit", "--model", "m.sklar"], "save", OutputError("disk full."), "disk full."),
    (["release", "--out", "o.csv"], "save", OutputError("disk full."), "disk full."),
    (["release", "--out", "o.csv"], "write", KeyboardInterrupt(), "interrupted. No file was left half-written."),
    (["release", "--out", "o.csv"], "write", MemoryError(), "out of memory. Use a schema with fewer levels, or a"),
    (["fit", "--model", "m.sklar"], "save", RuntimeError("Jane Doe"), "unexpected RuntimeError."),
])  # fmt: skip
def test_the_command_line_says_it_too(
    stopped: Any, monkeypatch: pytest.MonkeyPatch, command: list[str], fails: str, error: BaseException, said: str
) -> None:
    # What others note may quote a row: it is not shown.
    error.add_note("Jane Doe")
    monkeypatch.setattr(Model, fails, Mock(side_effect=error))
    printed = stopped(*command)
    assert f"sklar: {said}" in printed
    assert "The ledger was charged for this release of epsilon=1 before (entry 3), and that stays spent." in printed
    assert "Jane Doe" not in printed


def test_a_ledger_that_fails_after_a_release_does_not_say_that_nothing_was_measured(
    stopped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Model.save

    def spoil(self: Model, path: Path) -> None:
        save(self, path)
        Path("l.db").write_bytes(b"")

    monkeypatch.setattr(Model, "save", spoil)
    printed = stopped("fit", "--model", "m.sklar")
    assert "it is empty. Restore an intact copy." in printed
    assert "Nothing was measured" not in printed
    assert "(entry 3), and that stays spent" in printed


def test_a_table_that_is_cut_off_between_two_passes_is_not_said_to_cost_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search is charged and drawn in the first pass; the second one fails."""
    search = Measurer.search

    def cut(measurer: Measurer) -> Any:
        found = search(measurer)
        Path("d.csv.gz").write_bytes(gzip.compress(CSV.encode())[:-12])
        return found

    Path("d.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    monkeypatch.setattr(Measurer, "search", cut)
    failed = refuses(
        "d.csv.gz", sklar.fit, "d.csv.gz", SEARCHED, epsilon=1.0, anyway=True, ledger="l.db", error=DataError
    )
    assert "no privacy was spent" not in str(failed)
    assert "epsilon=1 before (entry 3), and that stays spent" in charge_notes(failed)[0]


def test_a_release_with_a_key_on_the_command_line(folder: Path) -> None:
    made = run("ledger", "init", "k.db", "--dataset", "t", "--epsilon", "3", "--anchor", "a.db", "--key", "key")
    assert "--ledger-key key" in made.stdout
    fit = ["fit", "d.csv", "--schema", "s.toml", "--epsilon", "1", "--method", "binary", "--model", "m.sklar"]
    alone = run(*fit, "--ledger-key", "key").exception
    assert isinstance(alone, BudgetError)
    assert str(alone) == "a ledger's key was given, and no ledger. Give both."
    assert "which was not given" in str(run(*fit, "--ledger", "k.db").exception)
    done = run(*fit, "--ledger", "k.db", "--ledger-key", "key")
    assert done.exit_code == 0, done.exception
    assert "has spent epsilon = 1 of 3 in 1 releases" in done.stdout
    assert run("ledger", "check", "k.db", "m.sklar", "--key", "key").exit_code == 0
