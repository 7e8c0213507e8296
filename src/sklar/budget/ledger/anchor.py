"""The second place that knows how far a ledger was: an SQLite file elsewhere, or a table of a PostgreSQL server.

Both hold one table that only grows. A row is a mark: a ledger's number of entries and its head at that time, and the
number of the mark before. Two rows cannot follow the same mark, which the table's primary key sees to, so of two
writers that know the same mark one gets on: nobody overwrites anything, and rights to SELECT and INSERT suffice. Where
a PostgreSQL role has no others, its holder can add marks and take none back: an append-only remote.
"""

from __future__ import annotations

import os
import re
import sqlite3
from abc import ABC, abstractmethod
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sklar.errors import LedgerError
from sklar.machine.extras import require

_POSTGRES = ("postgresql://", "postgres://")
_TABLE = (
    "CREATE TABLE IF NOT EXISTS sklar_anchor (ledger TEXT NOT NULL, previous BIGINT NOT NULL, entries BIGINT NOT NULL "
    "CHECK (entries > previous), head TEXT NOT NULL, PRIMARY KEY (ledger, previous), UNIQUE (ledger, entries))"
)
_HEX = re.compile(r"[0-9a-f]+")
_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far a ledger was: its number of entries, and its head after the last of them."""

    entries: int
    head: str


class Anchor(ABC):
    """A place that keeps marks of ledgers. `name` is what messages and the ledger call it."""

    name: str

    def create(self) -> None:
        """Make the table, where it is not there."""
        self._run(_TABLE)

    def last(self, ledger: str) -> Mark | None:
        """The last mark of a ledger, None when there is none."""
        where = f"WHERE ledger = {_literal(ledger)} ORDER BY entries DESC LIMIT 1"
        rows = self._run(f"SELECT entries, head FROM sklar_anchor {where}")  # noqa: S608
        return Mark(entries=int(rows[0][0]), head=str(rows[0][1])) if rows else None

    def advance(self, ledger: str, before: Mark | None, after: Mark) -> bool:
        """Put a mark behind the last one; False when `before` is the last one no more."""
        previous = 0 if before is None else before.entries
        values = f"{_literal(ledger)}, {previous:d}, {after.entries:d}, {_literal(after.head)}"
        self._run(f"INSERT INTO sklar_anchor VALUES ({values}) ON CONFLICT DO NOTHING")  # noqa: S608
        return self.last(ledger) == after

    @abstractmethod
    def _run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement, on the disk when it returns."""

    def _unreachable(self, why: str) -> LedgerError:
        return LedgerError(
            f"the anchor {self.name} cannot be used: {why}. Without it nothing tells whether the ledger is complete. "
            "Bring it back, or name another: sklar ledger anchor FILE PLACE --lost"
        )


class FileAnchor(Anchor):
    """An SQLite file, best on another file system than the ledger's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)

    def create(self) -> None:
        """Make the file, for its owner alone, where it is not there."""
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise LedgerError(
                f"the anchor '{self._path}' cannot be made: {error.strerror or error}. Name a file in a folder that "
                "can be written, best on another file system."
            ) from None
        super().create()

    def _run(self, statement: str) -> list[tuple[Any, ...]]:
        address = f"{self._path.absolute().as_uri()}?mode=rw"
        try:
            opened = sqlite3.connect(address, uri=True, timeout=_WAIT_SECONDS, isolation_level=None)
            with closing(opened) as connection:
                connection.execute("PRAGMA trusted_schema = OFF")
                # As for the ledger: what was written survives a loss of power.
                connection.execute("PRAGMA synchronous = EXTRA")
                return connection.execute(statement).fetchall()
        except sqlite3.Error as error:
            raise self._unreachable(str(error)) from None


class PostgresAnchor(Anchor):
    """A table `sklar_anchor` of a PostgreSQL server."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.password or "password" in parse_qs(parts.query):
            raise LedgerError(
                "the address of an anchor is kept in the ledger and must not hold a password. Put the password into "
                "~/.pgpass or PGPASSWORD."
            )
        self.name = address

    def create(self) -> None:
        """Make the table where it is not there: a role that may not make tables finds it made."""
        try:
            self._run("SELECT entries FROM sklar_anchor LIMIT 1")
        except LedgerError:
            super().create()

    def _run(self, statement: str) -> list[tuple[Any, ...]]:
        require("adbc_driver_postgresql", what="an anchor on PostgreSQL", package="adbc-driver-postgresql", extra="sql")
        import polars as pl
        from adbc_driver_postgresql import dbapi

        address = self.name
        if "connect_timeout" not in address:
            # A server that is gone must not hold up the ledger for as long as the network likes.
            address += f"{'&' if '?' in address else '?'}connect_timeout=10"
        with ExitStack() as held:
            try:
                connection = held.enter_context(dbapi.connect(address, autocommit=True))
                cursor = held.enter_context(connection.cursor())
                cursor.execute(statement)
                return pl.DataFrame(cursor.fetch_arrow()).rows() if statement.startswith("SELECT") else []
            except Exception as error:
                raise self._unreachable(f"PostgreSQL says {type(error).__name__}; check it with psql") from None


def open_anchor(place: str) -> Anchor:
    """The anchor at a place: an address that begins with postgresql://, or the path of a file."""
    if place.startswith(_POSTGRES):
        return PostgresAnchor(place)
    if "://" in place:
        # It may hold a password: it is not repeated.
        raise LedgerError("an anchor must be a file, or an address that begins with postgresql://. Name another place.")
    return FileAnchor(Path(place).absolute())


def _literal(text: str) -> str:
    """A text of ours in a statement: drivers disagree on how to pass values, and hexadecimal digits need no quoting."""
    if not _HEX.fullmatch(text):
        raise LedgerError("a ledger's name and head must be hexadecimal digits. The ledger is damaged.")
    return f"'{text}'"
