"""A ledger's key: whoever holds it notices a total that was rewritten and hashed anew. And ledgers of version 1."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sklar.budget.ledger import Ledger
from sklar.budget.ledger.chain import VARIABLE
from sklar.cli import cli
from sklar.errors import LedgerError
from tests.budget.test_ledger import DELTA, opened, pay, refuses

Row = list[Any]


def forge(path: Path, change: Callable[[list[Row]], None]) -> None:
    """Change entries, and compute all hashes anew, as whoever can read this test can."""
    connection = sqlite3.connect(path)
    rows = [list(row) for row in connection.execute("SELECT * FROM entries ORDER BY number")]
    change(rows)
    connection.execute("DELETE FROM entries")
    head = ""
    for row in rows:
        head = hashlib.sha256(json.dumps([head, *row[:6], *row[7:8]]).encode()).hexdigest()
        connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row[:6], head, *row[7:]))
    connection.commit()
    connection.close()


def raise_total(rows: list[Row]) -> None:
    rows[1][4] = rows[1][4].replace('"epsilon": 1.0', '"epsilon": 9.0')


def take_key_off(rows: list[Row]) -> None:
    raise_total(rows)
    rows[0][4] = json.dumps({**json.loads(rows[0][4]), "key": None}, sort_keys=True)
    for row in rows:
        row[8] = ""


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    return opened(tmp_path / "l.db", key=tmp_path / "key")


@pytest.mark.parametrize(("change", "said"), [
    (raise_total, "entry 2 was not written with its key"),
    (take_key_off, "has no key, and one was given: it was made without, or somebody took the signatures off"),
])  # fmt: skip
def test_a_rewritten_and_rehashed_total_is_refused(book: Ledger, change: Any, said: str) -> None:
    pay(book)
    forge(book.path, change)
    with pytest.raises(LedgerError, match=f"{said}.* Nothing was measured"):
        pay(book)
    # Whoever has no key can read it, and is told that signatures were not checked.
    without = Ledger(book.path)
    assert without.account("t").epsilon == 9.0
    if change is raise_total:
        assert "its signatures were not checked" in without.standing().remarks[-1]


def test_an_anchor_alone_notices_it_too(tmp_path: Path) -> None:
    book = opened(tmp_path / "l.db", anchor=tmp_path / "a.db")
    forge(book.path, raise_total)
    refuses(r"is not the one that its anchor .* has seen: .* entries were rewritten", pay, book)


def test_without_the_key_nothing_is_written(book: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuses(r"is written with its key, which was not given\. Name its file \(--ledger-key", pay, Ledger(book.path))
    monkeypatch.setenv(VARIABLE, (tmp_path / "key").read_text())
    assert pay(Ledger(book.path), 0.1).receipt.entry == 3
    monkeypatch.setenv(VARIABLE, "ab" * 32)
    refuses(r"has another key than the one given \([0-9a-f]{16}, not [0-9a-f]{16}\)", Ledger(book.path).accounts)
    monkeypatch.setenv(VARIABLE, "secret")
    refuses(f"{VARIABLE} must hold 64 hexadecimal digits", Ledger(book.path).accounts)
    # A file wins over the environment.
    assert len(book.account("t").charges) == 1


def test_a_key_file_is_for_its_owner_alone(book: Ledger, tmp_path: Path) -> None:
    key = tmp_path / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_text().strip()) == 64
    for mode in (0o640, 0o604, 0o660):
        key.chmod(mode)
        refuses(rf"must be for its owner alone, got mode {mode:04o}\. Run: chmod 600", pay, book)
    refuses(r"the key file .* cannot be read \(FileNotFoundError\)", pay, Ledger(book.path, key=tmp_path / "none"))
    refuses(r"the key file .* cannot be written", opened, tmp_path / "new.db", key=tmp_path / "none" / "key")
    assert not (tmp_path / "new.db").exists()


def test_a_key_can_be_given_later(tmp_path: Path) -> None:
    path, key = tmp_path / "l.db", tmp_path / "key"
    pay(opened(path, anchor=tmp_path / "a.db"), 0.1)
    run = CliRunner().invoke
    done = run(cli, ["ledger", "upgrade", str(path), "--key", str(key)])
    assert done.exit_code == 0, done.exception
    assert "Destroy copies from before" in done.stdout
    book = Ledger(path, key=key)
    assert pay(book, 0.1).receipt.entry == 5
    assert book.history()[3].line().endswith(f"anchor {tmp_path / 'a.db'} and the key {book.history()[3].body['key']}")
    forge(path, raise_total)
    refuses("entry 2 was not written with its key", book.accounts)
    other, plain = opened(tmp_path / "m.db", key=key), opened(tmp_path / "n.db")
    refuses("is of the present version and has its key: there is nothing to upgrade", other.upgrade)
    refuses("is of the present version: there is nothing to upgrade", plain.upgrade)


def make_version_1(path: Path) -> None:
    """As Sklar 0.2.0 wrote it: a data set of epsilon 1, charged once."""
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA application_id = {0x534B4C52}")
    connection.execute("PRAGMA user_version = 1")
    connection.execute(
        "CREATE TABLE entries (number INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, "
        "dataset TEXT NOT NULL, body TEXT NOT NULL, file TEXT NOT NULL, hash TEXT NOT NULL) STRICT"
    )
    opened = {"epsilon": 1.0, "delta": DELTA, "neighbors": "replace-one"}
    charged = opened | {"epsilon": 0.5, "mechanism": "gaussian", "composition": "tight", "scales": [[50.0, 10]]}
    charged |= {"accountant": "curve", "schema_sha256": ""}
    head = ""
    for number, (kind, body) in enumerate((("open", opened), ("charge", charged)), start=1):
        text, inode = json.dumps(body, sort_keys=True), str(path.stat().st_ino)
        row = (number, "2026-01-01T00:00:00+00:00", kind, "t", text, inode)
        head = hashlib.sha256(json.dumps([head, *row]).encode()).hexdigest()
        connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, head))
    connection.commit()
    connection.close()


def test_a_ledger_of_version_1_is_read_and_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    make_version_1(path)
    spent = Ledger(path).account("t").spent
    assert 0.1 < spent < 1
    refuses(r"is of version 1, .* present one: sklar ledger upgrade .* Nothing was measured", pay, Ledger(path), 0.1)
    shown = CliRunner().invoke(cli, ["ledger", "show", str(path)])
    assert "is of version 1" in shown.stderr
    book = Ledger(path, key=tmp_path / "key")
    book.upgrade()
    book.move_anchor(tmp_path / "a.db")
    assert book.account("t").spent == spent
    assert pay(book, 0.1).account.spent > spent
    assert [entry.kind for entry in book.history()] == ["open", "charge", "setup", "setup", "charge"]
    assert book.standing().problems == ()


def test_a_ledger_of_version_1_that_comes_with_a_key_is_suspect(book: Ledger, tmp_path: Path) -> None:
    book.path.unlink()
    make_version_1(book.path)
    refuses("unless it had a key before: then it was replaced", pay, book, 0.1)


def test_a_copy_of_version_1_is_adopted(tmp_path: Path) -> None:
    make_version_1(tmp_path / "l.db")
    shutil.copy(tmp_path / "l.db", tmp_path / "copy.db")
    copy = Ledger(tmp_path / "copy.db")
    refuses("is a copy", copy.upgrade)
    copy.adopt()
    assert [entry.kind for entry in copy.history()] == ["open", "charge", "setup", "adopt"]
    pay(copy, 0.1)
