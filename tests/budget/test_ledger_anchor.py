"""Anchors notice a ledger that went back in time, and keys one that was rewritten. And ledgers of other versions."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import sklar
from sklar.budget.ledger import Ledger
from sklar.budget.ledger.anchor import Anchor, Mark
from sklar.budget.ledger.chain import VARIABLE, Pages, open_pages
from sklar.budget.receipt import charge_notes
from sklar.errors import LedgerError, MissingExtraError
from sklar.kernel.theorems import Budget
from sklar.machine.wording import said
from tests.budget.test_ledger import DELTA, SCHEMA, TABLE, changed, opened, pay, run
from tests.conftest import refuses
from tests.postgres import serving

BUDGET = Budget(epsilon=0.9)


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    """A ledger in a folder of its own, anchored outside of it."""
    (tmp_path / "work").mkdir()
    return opened(tmp_path / "work" / "l.db", anchor=tmp_path / "anchor.db")


def mark(book: Ledger) -> Mark | None:
    setup = next(entry for entry in reversed(book.history()) if entry.kind == "setup")
    return Anchor(setup.body["anchor"]).last(setup.body["ledger"])


COPY = "cp backup/l.db work/l.db"


@pytest.mark.parametrize(
    "way", [COPY, "cat backup/l.db > work/l.db", f"rm work/l.db && {COPY}", "rm -r work && cp -a backup work"]
)
def test_a_ledger_that_went_back_in_time_is_refused(book: Ledger, tmp_path: Path, way: str) -> None:
    shutil.copytree(book.path.parent, tmp_path / "backup")
    pay(book)
    subprocess.run(way, shell=True, check=True, cwd=tmp_path)
    older = r"is older than its anchor .*: it has 2 entries, and the anchor has seen 3\. .* 1 are missing"
    assert charge_notes(refuses(older + r".* Nothing was measured\.$", pay, book)) == []
    refuses(older, sklar.fit, TABLE, SCHEMA, BUDGET, ledger=book)
    # Nor does it become the one in force by saying so.
    refuses(older, book.adopt)
    assert not book.account("t").charges
    shown = run("ledger", "show", book.path)
    assert "WARNING" in shown.stderr
    assert "is older than its anchor" in shown.stderr


def test_both_places_together_go_back_unnoticed_but_for_a_release(book: Ledger, tmp_path: Path) -> None:
    """What is not defended, as docs/privacy.md says; a release that was published tells."""
    shutil.copy(book.path, tmp_path / "l.back")
    shutil.copy(tmp_path / "anchor.db", tmp_path / "anchor.back")
    sklar.fit(TABLE, SCHEMA, BUDGET, method="binary", ledger=book).save(tmp_path / "m.sklar")
    shutil.copyfile(tmp_path / "l.back", book.path)
    shutil.copyfile(tmp_path / "anchor.back", tmp_path / "anchor.db")
    assert book.standing().problems == ()
    checked = run("ledger", "check", book.path, str(tmp_path / "m.sklar"))
    assert checked.exit_code == 1
    assert "was charged as entry 3, and the ledger has 2: the ledger is older than the release" in checked.stdout


class Killed(BaseException):
    """As good as a kill: nothing that was not committed stays, and nothing is tidied up."""


def killed(*_: Any) -> Any:
    raise Killed


ADVANCE = Anchor.advance
# What dies, and how far the ledger and its anchor are then.
KILLS: dict[str, tuple[type, str, Any, int, int]] = {
    "before the commit": (Pages, "append", killed, 2, 2),
    "between ledger and anchor": (Anchor, "advance", killed, 3, 2),
    "after the anchor was told": (Anchor, "advance", lambda *given: killed(ADVANCE(*given)), 3, 3),
}


@pytest.mark.parametrize("when", KILLS)
def test_a_kill_loses_at_most_the_charge_and_wedges_nothing(
    book: Ledger, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    owner, name, instead, entries, told = KILLS[when]
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, instead)
        notes = charge_notes(refuses(None, pay, book, 0.5, error=Killed))
    # What was charged is never less than what was spent.
    charges, heads = entries - 2, [entry.head for entry in book.history()]
    assert len(heads) == entries
    assert notes == charges * [
        "The ledger was charged for this release of epsilon=0.5 before (entry 3), and that stays spent."
    ]
    assert book.account("t").spent == pytest.approx(0.5 * charges, rel=1e-3)
    assert mark(book) == Mark(entries=told, head=heads[told - 1])
    assert book.standing().problems == ()
    paid = pay(book, 0.1)
    assert len(paid.account.charges) == charges + 1
    assert mark(book) == Mark(entries=entries + 1, head=paid.receipt.head)


def test_an_anchor_that_fails_after_the_charge_says_that_it_was_charged(
    book: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = LedgerError(said("budget.anchor_unreachable", anchor="a.db", why="disk full"))
    monkeypatch.setattr(Anchor, "advance", Mock(side_effect=error))
    failed = refuses(r"the anchor .* cannot be used: disk full\..* Nothing was measured", pay, book, 0.5)
    assert "epsilon=0.5 before (entry 3), and that stays spent" in charge_notes(failed)[0]


def follows_once(anchor: Anchor) -> None:
    first, second, other = (Mark(entries=n, head=h * 64) for n, h in ((2, "a"), (3, "b"), (5, "c")))
    assert anchor.last("ab") is None
    assert anchor.advance("ab", None, first)
    assert anchor.advance("ab", first, second)
    assert not anchor.advance("ab", first, other)
    assert not anchor.advance("ab", None, other)
    assert anchor.last("ab") == second
    assert anchor.last("cd") is None
    # Told again, as after a kill, it is as it was.
    assert anchor.advance("ab", first, second)


def test_a_mark_is_followed_once(tmp_path: Path) -> None:
    anchor = Anchor(tmp_path / "a.db")
    anchor.create()
    follows_once(anchor)
    refuses("must be hexadecimal digits", anchor.last, "x'; DROP TABLE sklar_anchor --")


def test_a_copy_that_is_charged_beside_the_ledger_loses_the_race(
    book: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(book.path, tmp_path / "copy.db")
    copy = Ledger(tmp_path / "copy.db")
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "_settle", lambda _: ())
        copy.adopt()
    pay(book, 0.1)
    other = r"is not the one that its anchor .* has seen: they differ in entry 3 or before it\. A copy was charged"
    refuses(other, pay, copy, 0.1)
    assert not copy.account("t").charges


def test_what_comes_between_commit_and_anchor_is_noticed_before_anything_is_drawn(
    book: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, copy, plain = Ledger._settle, Ledger(tmp_path / "copy.db"), opened(tmp_path / "plain.db")
    shutil.copy(book.path, copy.path)
    backup = plain.path.read_bytes()

    def between(self: Ledger) -> Any:
        monkeypatch.setattr(Ledger, "_settle", settle)
        copy.adopt() if self is book else plain.path.write_bytes(backup)
        return settle(self)

    monkeypatch.setattr(Ledger, "_settle", between)
    refuses(r"A copy was charged, or entries were rewritten.* Nothing was measured", pay, book, 0.1)
    # Without an anchor too, a charge that is not in the file any more pays for nothing.
    monkeypatch.setattr(Ledger, "_settle", between)
    refuses(r"was replaced by another file while it was charged\. Nothing was measured", pay, plain, 0.1)


def test_a_lost_anchor_is_replaced_by_order_alone(book: Ledger, tmp_path: Path) -> None:
    pay(book, 0.1)
    (tmp_path / "anchor.db").unlink()
    refuses(r"the anchor .* cannot be used: .* sklar ledger anchor FILE PLACE --lost", pay, book, 0.1)
    Anchor(tmp_path / "anchor.db").create()
    refuses(r"has no mark of ledger .* it was replaced or taken back", pay, book, 0.1)
    refuses("it was replaced or taken back", book.move_anchor, tmp_path / "new.db")
    book.move_anchor(tmp_path / "new.db", lost=True)
    assert book.history()[-1].line().endswith("(the anchor before it was lost)")
    assert pay(book, 0.1).receipt.entry == 5


@pytest.mark.parametrize("killed", [False, True])
def test_a_backup_from_before_a_change_of_anchors_is_refused(
    book: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """The old anchor is told of the change, also when a kill came right after the change: before the next charge."""
    backup = book.path.read_bytes()
    with monkeypatch.context() as patched:
        if killed:
            patched.setattr(Ledger, "_settle", lambda _: ())
        book.move_anchor(tmp_path / "new.db")
    refuses(r"has the anchor .*new\.db already", book.move_anchor, tmp_path / "new.db")
    pay(book)
    book.path.write_bytes(backup)
    refuses(r"is older than its anchor .*anchor\.db", pay, book)


def test_where_an_anchor_may_be(book: Ledger, tmp_path: Path) -> None:
    refuses("an anchor must be another place than its ledger", book.move_anchor, book.path)
    places = "an anchor must be a file, or an address that begins with postgresql://"
    refuses(places, book.move_anchor, "s3://me:hidden@bucket/anchor")
    refuses(r"must not hold a password.*~/\.pgpass", book.move_anchor, "postgresql://me:hidden@host/db")
    refuses(r"must not hold a password", book.move_anchor, "postgresql://host/db?password=hidden")
    absent, total = tmp_path / "none" / "a.db", {"epsilon": 1.0, "delta": DELTA}
    refuses(r"cannot be made: .* Name a file in a folder that can be written", book.move_anchor, absent)
    refuses("with another anchor or none", book.open_account, "u", **total, anchor=tmp_path / "other.db")
    book.open_account("u", epsilon=1.0, delta=DELTA, anchor=tmp_path / "anchor.db")
    assert (tmp_path / "anchor.db").stat().st_mode & 0o777 == 0o600
    assert book.path.stat().st_mode & 0o777 == 0o600
    # What could not be made leaves no ledger behind.
    refuses("cannot be made", opened, tmp_path / "n.db", anchor=absent)
    assert not (tmp_path / "n.db").exists()


def test_a_server_that_cannot_be_asked_is_told_without_details(book: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = r"cannot be used: PostgreSQL says \w+; check it with psql"
    refuses(gone, book.move_anchor, "postgresql://nobody@/none?host=/nowhere")
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    extra = r"an anchor on PostgreSQL needs .*pip install 'sklar\[sql\]'"
    refuses(extra, book.move_anchor, "postgresql://host/db", error=MissingExtraError)


def test_the_commands_warn_of_the_place(tmp_path: Path) -> None:
    path = str(tmp_path / "l.db")
    made = run("ledger", "init", path, "--dataset", "t", "--epsilon", "1")
    assert "Note: ledger" in made.stderr
    assert "has no anchor: a backup that is written over it would not be noticed" in made.stderr
    moved = run("ledger", "anchor", path, tmp_path / "a.db")
    assert "is on the same file system as" in moved.stderr
    assert "is anchored at" in moved.stdout
    for words in (("init", path, "--dataset", "u", "--epsilon", "1"), ("show", path)):
        assert run("ledger", *words).stderr == ""
    shutil.copy(path, tmp_path / "copy.db")
    shown = run("ledger", "show", tmp_path / "copy.db", "--json")
    assert "WARNING: ledger" in shown.stderr
    assert "is a copy, or was restored from one" in shown.stderr


@pytest.fixture(scope="module")
def socket() -> Iterator[Path]:
    with serving() as home:
        yield home


@pytest.mark.slow
def test_a_postgresql_table_that_only_grows(socket: Path, tmp_path: Path) -> None:
    """An append-only remote: the ledger's own role may read and add marks, and take none back."""
    from adbc_driver_postgresql import dbapi

    def run(user: str, *statements: str) -> None:
        with dbapi.connect(f"postgresql://{user}@/postgres?host={socket}", autocommit=True) as connection:
            for statement in statements:
                with connection.cursor() as cursor:
                    cursor.execute(statement)

    owner, role = (f"postgresql://{user}@/postgres?host={socket}" for user in ("tester", "custodian"))
    Anchor(owner).create()
    run("tester", "CREATE ROLE custodian LOGIN", "GRANT SELECT, INSERT ON sklar_anchor TO custodian")
    book = opened(tmp_path / "l.db", anchor=role)
    backup = book.path.read_bytes()
    pay(book)
    book.path.write_bytes(backup)
    refuses(r"is older than its anchor postgresql://custodian@", pay, book)
    for statement in ("DELETE FROM sklar_anchor", "UPDATE sklar_anchor SET entries = 2", "TRUNCATE sklar_anchor"):
        refuses(None, run, "custodian", statement, error=dbapi.Error)
    follows_once(Anchor(role))


def test_the_anchor_holds_marks_and_nothing_else(book: Ledger, tmp_path: Path) -> None:
    pay(book, 0.1)
    name, heads = book.history()[0].body["ledger"], [entry.head for entry in book.history()]
    marks = changed(tmp_path / "anchor.db", "SELECT * FROM sklar_anchor")
    assert marks == [[name, 0, 2, heads[1]], [name, 2, 3, heads[2]]]


def test_an_anchor_that_alone_went_back_is_told_again(book: Ledger, tmp_path: Path) -> None:
    backup = (tmp_path / "anchor.db").read_bytes()
    pay(book, 0.1)
    (tmp_path / "anchor.db").write_bytes(backup)
    assert book.standing().problems == ()
    paid = pay(book, 0.1)
    assert mark(book) == Mark(entries=4, head=paid.receipt.head)


def test_a_ledger_can_be_shown_where_its_anchor_cannot_be_asked(book: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Mock(side_effect=MissingExtraError("an anchor on PostgreSQL needs a driver."))
    monkeypatch.setattr("sklar.budget.ledger.require_mark", missing)
    shown = run("ledger", "show", book.path)
    assert shown.exit_code == 0
    assert "WARNING: an anchor on PostgreSQL needs a driver." in shown.stderr


Row = list[Any]


def hashed(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows with all hashes computed anew, as whoever can read this test can."""
    head = ""
    for row in rows:
        head = hashlib.sha256(json.dumps([head, *row[:6], *row[7:8]]).encode()).hexdigest()
        yield [*row[:6], head, *row[7:]]


def forge(path: Path, change: Callable[[list[Row]], None]) -> None:
    """Change entries, and all hashes with them."""
    rows = changed(path, "SELECT * FROM entries ORDER BY number")
    change(rows)
    changed(path, "DELETE FROM entries")
    changed(path, "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *hashed(rows))


def raise_total(rows: list[Row]) -> None:
    rows[1][4] = rows[1][4].replace('"epsilon": 1.0', '"epsilon": 9.0')


def take_key_off(rows: list[Row]) -> None:
    raise_total(rows)
    rows[0][4] = json.dumps({**json.loads(rows[0][4]), "key": None}, sort_keys=True)
    for row in rows:
        row[8] = ""


@pytest.fixture
def keyed(tmp_path: Path) -> Ledger:
    return opened(tmp_path / "l.db", key=tmp_path / "key")


@pytest.mark.parametrize(("change", "said"), [
    (raise_total, "entry 2 was not written with its key"),
    (take_key_off, "has no key, and one was given: it was made without, or somebody took the signatures off"),
])  # fmt: skip
def test_a_rewritten_and_rehashed_total_is_refused(keyed: Ledger, change: Any, said: str) -> None:
    pay(keyed)
    forge(keyed.path, change)
    refuses(f"{said}.* Nothing was measured", pay, keyed)
    # Whoever has no key can read it, and is told that signatures were not checked.
    without = Ledger(keyed.path)
    assert without.account("t").epsilon == 9.0
    if change is raise_total:
        assert "its signatures were not checked" in without.standing().remarks[-1]


def test_an_anchor_alone_notices_it_too(book: Ledger) -> None:
    forge(book.path, raise_total)
    refuses(r"is not the one that its anchor .* has seen: .* entries were rewritten", pay, book)


def test_without_the_key_nothing_is_written(keyed: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuses(r"is written with its key, which was not given\. Name its file \(--ledger-key", pay, Ledger(keyed.path))
    monkeypatch.setenv(VARIABLE, (tmp_path / "key").read_text())
    assert pay(Ledger(keyed.path), 0.1).receipt.entry == 3
    monkeypatch.setenv(VARIABLE, "ab" * 32)
    refuses(r"has another key than the one given \([0-9a-f]{16}, not [0-9a-f]{16}\)", Ledger(keyed.path).accounts)
    monkeypatch.setenv(VARIABLE, "secret")
    refuses(f"{VARIABLE} must hold 64 hexadecimal digits", Ledger(keyed.path).accounts)
    # A file wins over the environment.
    assert len(keyed.account("t").charges) == 1


def test_a_key_file_is_for_its_owner_alone(keyed: Ledger, tmp_path: Path) -> None:
    key = tmp_path / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_text().strip()) == 64
    for mode in (0o640, 0o604, 0o660):
        key.chmod(mode)
        refuses(rf"must be for its owner alone, got mode {mode:04o}\. Run: chmod 600", pay, keyed)
    refuses(r"the key file .* cannot be read \(FileNotFoundError\)", pay, Ledger(keyed.path, key=tmp_path / "none"))
    refuses(r"the key file .* cannot be written", opened, tmp_path / "new.db", key=tmp_path / "none" / "key")
    assert not (tmp_path / "new.db").exists()


def test_a_key_can_be_given_later(tmp_path: Path) -> None:
    path, key = tmp_path / "l.db", tmp_path / "key"
    pay(opened(path, anchor=tmp_path / "a.db"), 0.1)
    done = run("ledger", "upgrade", path, "--key", str(key))
    assert done.exit_code == 0, done.exception
    assert "Destroy copies from before" in done.stdout
    book = Ledger(path, key=key)
    assert pay(book, 0.1).receipt.entry == 5
    assert book.history()[3].line().endswith(f"anchor {tmp_path / 'a.db'} and the key {book.history()[3].body['key']}")
    forge(path, raise_total)
    refuses("entry 2 was not written with its key", book.accounts)
    other, plain = opened(tmp_path / "m.db", key=key), opened(tmp_path / "n.db")
    refuses("has its key: there is nothing to upgrade", other.upgrade)
    refuses("was given no key: there is nothing to upgrade", plain.upgrade)


OTHER = "another Sklar wrote it. Use that one, or open a new ledger, whose totals add to what this one has spent"


@pytest.mark.parametrize(("change", "must"), [
    ("PRAGMA user_version = 1", "have format version 2, got 1"),
    ("UPDATE entries SET salt = ''", "have a salt in every entry, got none in entry 1"),
])  # fmt: skip
def test_a_ledger_of_another_version_is_refused(tmp_path: Path, change: str, must: str) -> None:
    book = opened(tmp_path / "l.db")
    changed(book.path, change)
    refuses(f"must {must}: {OTHER}\\. Nothing was measured", pay, book, 0.1)
    for read in (book.accounts, book.adopt, book.upgrade):
        refuses(f"must {must}: {OTHER}", read)


def test_a_ledger_whose_charges_name_tables_is_refused(tmp_path: Path) -> None:
    """Of two numbers, scale and tables, it must not be taken for one that spent little."""
    book = opened(tmp_path / "l.db")
    body = {"epsilon": 0.5, "delta": DELTA, "neighbors": "replace-one", "mechanism": "gaussian", "composition": "tight"}
    body |= {"scales": [[50.0, 10]], "accountant": "curve", "schema_sha256": ""}
    with open_pages(book.path, None) as pages:
        pages.append("charge", "t", body)
    refuses(f"must charge scales, moves and reaches, got tables in entry 3: {OTHER}", book.accounts)
