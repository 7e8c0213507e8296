"""A ledger's file: one SQLite database, a journal of entries that only grows. More: docs/derivations.md."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sklar.budget.account import Entry
from sklar.budget.receipt import Receipt
from sklar.errors import LedgerError
from sklar.machine.wording import failing, said

APPLICATION_ID = 0x534B4C52  # "SKLR"
VERSION = 2
_COLUMNS = ("time", "kind", "dataset", "body", "file", "hash", "salt", "signature")
# Statements that make an empty file a ledger.
_LAYOUT = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"CREATE TABLE entries (number INTEGER PRIMARY KEY, {' TEXT NOT NULL, '.join(_COLUMNS)} TEXT NOT NULL) STRICT",
    f"PRAGMA user_version = {VERSION}",
)

WAIT_SECONDS = 60.0
VARIABLE = "SKLAR_LEDGER_KEY"
_KEY = re.compile(r"[0-9a-f]{64}")
_KEYS = {
    "setup": {"ledger", "secret", "anchor", "key", "lost"},
    "open": {"epsilon", "delta", "neighbors"},
    "charge": {"epsilon", "delta", "neighbors", "mechanism", "composition", "scales", "accountant", "schema_sha256"},
    "bind": {"files"},
    "adopt": set(),
}
_OPTIONAL = {"open": {"unit"}, "charge": {"lost_delta", "rows_per_person"}}


class Setup(NamedTuple):
    """What a ledger is. `lost` says that the anchor before this one could not be asked."""

    ledger: str
    secret: str
    anchor: str | None
    key: str | None
    lost: bool = False


class Pages:
    """A ledger that is open and checked; what is appended is on the disk when the block of `open_pages` ends."""

    __slots__ = ("_connection", "_file", "_key", "_made", "entries", "path")

    def __init__(self, path: Path, connection: sqlite3.Connection, key: bytes | None, *, keying: bool) -> None:
        self.path, self._connection, self._key, self._file = path, connection, key, ""
        self.entries: list[Entry] = []
        self._made = self._recognize()
        self._check_key(self._read() if self._made else [], keying=keying)

    @property
    def setups(self) -> list[tuple[int, Setup]]:
        """All setups, with the numbers of their entries."""
        return [(entry.number, Setup(**entry.body)) for entry in self.entries if entry.kind == "setup"]

    @property
    def setup(self) -> Setup:
        """What the ledger is; before its first setup a new one, without anchor and key."""
        setups = self.setups
        return setups[-1][1] if setups else Setup(secrets.token_hex(16), secrets.token_hex(32), None, None)

    @property
    def is_copy(self) -> bool:
        """Whether the last entry was written to another file."""
        return bool(self.entries) and self._identity() != self._file

    @property
    def lacks_key(self) -> bool:
        """Whether the ledger has a key that was not given: its signatures were not checked."""
        return self._key is None and self.setup.key is not None

    def append(self, kind: str, dataset: str, body: dict[str, Any]) -> Receipt:
        """Write one entry more."""
        text = json.dumps(body, sort_keys=True, allow_nan=False)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        fields = (len(self.entries) + 1, now, kind, dataset, text, self._identity())
        salt = secrets.token_hex(16)
        head = _head(self.entries[-1].head if self.entries else "", *fields, salt)
        row = (*fields, head, salt, "" if self._key is None else sign(self._key, head))
        self._connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._add(fields, head)
        return Receipt(entry=fields[0], head=head)

    def set_up(self, *, anchor: str | None, lost: bool = False) -> None:
        """Say what the ledger is from now on; the key is the one that was given."""
        if not self._made:
            for statement in _LAYOUT:
                self._connection.execute(statement)
            self._made = True
        key = None if self._key is None else key_name(self._key)
        self.append("setup", "", self.setup._replace(anchor=anchor, key=key, lost=lost)._asdict())
        if self._key is not None:
            # Signs the earlier entries too: they were checked as far as possible.
            signed = [(sign(self._key, entry.head), entry.number) for entry in self.entries]
            self._connection.executemany("UPDATE entries SET signature = ? WHERE number = ?", signed)

    def _identity(self) -> str:
        # A copy has another inode, and so has a backup that was put back by a new file; a file that was moved on its
        # disk, or written, has not. A backup that is written into the old file has not either: see the anchor.
        return str(self.path.stat().st_ino)

    def _recognize(self) -> bool:
        """Whether the file is a ledger; it is not where it is empty."""
        application, version, objects = (
            self._connection.execute(question).fetchone()[0]
            for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if not (application or version or objects):
            return False
        if application != APPLICATION_ID:
            raise self._error("damaged", "it belongs to another program")
        if version != VERSION:
            raise self._error("another_sklar", f"have format version {VERSION}, got {version}")
        if self._connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            raise self._error("damaged", "SQLite's integrity check fails")
        return True

    def _read(self) -> list[str]:
        """Read all entries, each of which must follow from those before it; their signatures."""
        question = f"SELECT number, {', '.join(_COLUMNS)} FROM entries ORDER BY number"  # noqa: S608
        signatures, head = [], ""
        for *fields, digest, salt, signature in self._connection.execute(question):
            if not salt:
                raise self._error("another_sklar", f"have a salt in every entry, got none in entry {fields[0]}")
            head = _head(head, *fields, salt)
            if digest != head or fields[0] != len(self.entries) + 1:
                raise self._error("damaged", f"entry {fields[0]} does not follow from those before it")
            self._add(fields, head)
            signatures.append(signature)
            kind, body = self.entries[-1].kind, self.entries[-1].body
            if kind not in _KEYS or body.keys() - _OPTIONAL.get(kind, set()) != _KEYS[kind]:
                # Only a later Sklar, or a forger who knows how to chain, writes one.
                raise self._error("damaged", f"entry {fields[0]} is of an unknown kind")
            if kind == "charge" and any(len(group) != 3 for group in body["scales"]):
                raise self._error("another_sklar", f"charge scales, moves and reaches, got tables in entry {fields[0]}")
        return signatures

    def _add(self, fields: Sequence[Any], head: str) -> None:
        number, time, kind, dataset, body, self._file = fields
        body = json.loads(body)
        self.entries.append(Entry(number=number, time=time, kind=kind, dataset=dataset, body=body, head=head))

    def _check_key(self, signatures: list[str], *, keying: bool) -> None:
        if self._key is None or not self.entries:
            return
        setup, given = self.setup, key_name(self._key)
        if setup.key is None:
            if keying:
                return
            raise LedgerError(said("budget.key_off", ledger=self.path))
        if setup.key != given:
            differ = f"({setup.key}, not {given})"
            raise LedgerError(f"ledger '{self.path}' has another key than the one given {differ}. Give its own.")
        for entry, signature in zip(self.entries, signatures, strict=True):
            if not hmac.compare_digest(sign(self._key, entry.head), signature):
                raise self._error("damaged", f"entry {entry.number} was not written with its key")

    def _error(self, key: Literal["damaged", "another_sklar"], why: str) -> LedgerError:
        return LedgerError(said(f"budget.{key}", ledger=self.path, why=why))


@contextmanager
def open_pages(
    path: Path, key: bytes | None, *, begin: str = "BEGIN IMMEDIATE", create: bool = False, keying: bool = False
) -> Iterator[Pages]:
    """A ledger, locked and checked; what is appended is on the disk when the block ends well. `keying` adds a key."""
    try:
        if create:
            # For its owner alone: it holds the secret that fingerprints of files are made with.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        elif not path.is_file():
            raise LedgerError(said("budget.no_ledger", path=path))
        with connected(path) as connection:
            connection.execute(begin)
            pages = Pages(path, connection, key, keying=keying)
            if not pages.entries and not create:
                raise LedgerError(f"ledger '{path}' is not a Sklar ledger: it is empty. Restore an intact copy.")
            yield pages
            connection.execute("COMMIT")
    except (OSError, sqlite3.Error) as error:
        raise _trouble(path, error) from None


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A database file that is there. What is not committed when the block ends is rolled back."""
    address = f"{path.resolve().as_uri()}?mode=rw"
    with closing(sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS, isolation_level=None)) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        # EXTRA also makes the removal of the rollback journal durable: what is committed survives a loss of power.
        connection.execute("PRAGMA synchronous = EXTRA")
        yield connection


def _trouble(path: Path, error: OSError | sqlite3.Error) -> LedgerError:
    if "locked" in str(error):
        return LedgerError(f"ledger '{path}' was in use by another process for {WAIT_SECONDS:.0f} seconds. Try again.")
    if isinstance(error, OSError | sqlite3.OperationalError):
        return LedgerError(said("budget.unusable", path=path, error=error))
    return LedgerError(f"ledger '{path}' is not a Sklar ledger, or it is damaged ({error}). Restore an intact copy.")


def _head(previous: str, *fields: object) -> str:
    return hashlib.sha256(json.dumps([previous, *fields]).encode()).hexdigest()


def find_key(file: Path | None) -> bytes | None:
    """The key of this file, else that of the environment, else None."""
    text, where = os.environ.get(VARIABLE), f"the environment's {VARIABLE}"
    if file is not None:
        where = f"the key file '{file}'"
        unread = f"{where} cannot be read ({{kind}}). Check the path."
        with failing(LedgerError, unread, (OSError, UnicodeDecodeError)), file.open() as opened:
            mode, text = stat.S_IMODE(os.fstat(opened.fileno()).st_mode), opened.read(1024)
        # On other systems these bits mean nothing.
        if os.name == "posix" and mode & 0o077:
            raise LedgerError(f"{where} must be for its owner alone, got mode {mode:04o}. Run: chmod 600 {file}")
    if text is None:
        return None
    if not _KEY.fullmatch(text.strip()):
        raise LedgerError(f"{where} must hold 64 hexadecimal digits. Make one with: openssl rand -hex 32")
    return bytes.fromhex(text.strip())


def make_key(file: Path | None) -> None:
    """Write a new key to a file that only its owner can read; a file that is there already stays as it is."""
    if file is None:
        return
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise LedgerError(said("budget.key_unwritten", file=file, why=error.strerror or error)) from None
    with os.fdopen(handle, "w") as opened:
        opened.write(secrets.token_hex(32) + "\n")
        opened.flush()
        os.fsync(opened.fileno())


def key_name(key: bytes) -> str:
    """A fingerprint of the key: enough to notice another one, of no use to guess it."""
    return hmac.new(key, b"sklar ledger key", hashlib.sha256).hexdigest()[:16]


def sign(key: bytes, head: str) -> str:
    """The signature of a head, which only a holder of the key can make."""
    return hmac.new(key, b"sklar ledger head " + head.encode(), hashlib.sha256).hexdigest()
