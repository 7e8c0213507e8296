"""The second place that knows how far a ledger was, and what the two owe each other: no kill wedges a ledger, and no
rollback passes.

An anchor is an SQLite file elsewhere, or a table of a PostgreSQL server: one table that only grows. A row is a mark: a
ledger's number of entries and its head at that time, and the number of the mark before. Two rows cannot follow the same
mark, which the table's primary key sees to, so of two writers that know the same mark one gets on: nobody overwrites
anything, and rights to SELECT and INSERT suffice. Where a PostgreSQL role has no others, its holder can add marks and
take none back: an append-only remote.

**Protocol** of `charge`, and of whatever else appends an entry. L is the ledger, with entries 1..n; A is its anchor,
which holds a mark (c, the head after entry c).

    1. Lock L and meet A: require c <= n and that the head after entry c of L is A's; where c < n, advance A from its
       mark to the end of L. Then append entry n + 1, and commit.
    2. Lock L and meet A again, which tells it of the entry. Require that L still holds the entry.
    3. Return. Only now may noise be drawn.

States after a kill at any moment, by what is on the disk: (S0) neither knows of the entry; (S1) L has it, A does not;
(S2) both have it. There are no others, since A is told only of entries that were read from L after their commit. In
each of them L and A can meet, so a kill never wedges a ledger, and whoever writes next mends S1. In S0 nothing was
charged and nothing drawn. In S1 the budget is charged and nothing was drawn: budget may be lost, never hidden. The
entry of step 1 is the intent, the mark of step 2 makes it final.

*Proof of the claim.* Let tables be drawn; their charge is entry k, and step 2 ended with a mark c >= k of a chain that
holds it. A's marks only grow, and each follows one that its writer had compared with a chain (`Anchor.advance` lets one
writer follow a mark, so a copy of L that is written at the same time loses the race, and finds out in step 2 before
anything is drawn). Heads are collision-free, so every ledger that passes step 1 from then on holds the same entries
1..c, entry k among them.

The proof rests on L's naming A. These do not: a backup from before L had an anchor, an L whose anchor was replaced as
lost by order of the custodian (an entry says so), and, without a key, an L that somebody rewrote to name another. And
it rests on A: taken back together with L, it knows no better. Receipts of published releases do: see
`check_releases`.

A ledger without an anchor keeps the claim as long as its file is not taken back in time; its inode tells of copies. A
ledger whose anchor holds no mark yet is in the middle of its set-up: step 1 makes one before anything is charged.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from sklar.budget.ledger.chain import Pages, connected
from sklar.errors import LedgerError
from sklar.machine.extras import require
from sklar.machine.wording import failing, said

_POSTGRES = ("postgresql://", "postgres://")
_TABLE = (
    "CREATE TABLE IF NOT EXISTS {} (ledger TEXT NOT NULL, previous BIGINT NOT NULL, entries BIGINT NOT NULL "
    "CHECK (entries > previous), head TEXT NOT NULL, PRIMARY KEY (ledger, previous), UNIQUE (ledger, entries))"
)
_HEX = re.compile(r"[0-9a-f]+")


class Mark(NamedTuple):
    """How far a ledger was: its number of entries, and its head after the last of them."""

    entries: int
    head: str


class Anchor:
    """A place that keeps marks of ledgers: an SQLite file, best on another file system than the ledger's, or the table
    `sklar_anchor` of a PostgreSQL server, at an address that begins with postgresql://. `name` is what messages and the
    ledger call it.
    """

    def __init__(self, place: str | Path) -> None:
        self.name = str(place)
        if not self.name.startswith(_POSTGRES):
            if "://" in self.name:
                # It may hold a password: it is not repeated.
                raise LedgerError(said("budget.anchor_place"))
            self._file: Path | None = Path(place).absolute()
            self.name, self._table = str(self._file), "main.sklar_anchor"
            return
        # With its schema: who may make tables in another one that is searched first could put a table there.
        self._file, self._table, parts = None, "public.sklar_anchor", urlsplit(self.name)
        if parts.password or "password" in parse_qs(parts.query):
            raise LedgerError(said("budget.password"))

    def create(self) -> None:
        """Make the table where it is not there, and a file for its owner alone."""
        if self._file is not None:
            with failing(LedgerError, said("budget.anchor_unmade", place=self._file, why="{why}"), OSError):
                os.close(os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600))
        else:
            # A role that may not make tables finds it made.
            with suppress(LedgerError):
                self._run(f"SELECT entries FROM {self._table} LIMIT 1")  # noqa: S608
                return
        self._run(_TABLE.format(self._table))

    def last(self, ledger: str) -> Mark | None:
        """The last mark of a ledger, None when there is none."""
        where = f"WHERE ledger = {_literal(ledger)} ORDER BY entries DESC LIMIT 1"
        rows = self._run(f"SELECT entries, head FROM {self._table} {where}")  # noqa: S608
        return Mark(entries=int(rows[0][0]), head=str(rows[0][1])) if rows else None

    def advance(self, ledger: str, before: Mark | None, after: Mark) -> bool:
        """Put a mark behind the last one; False when `before` is the last one no more."""
        previous = 0 if before is None else before.entries
        values = f"{_literal(ledger)}, {previous:d}, {after.entries:d}, {_literal(after.head)}"
        self._run(f"INSERT INTO {self._table} VALUES ({values}) ON CONFLICT DO NOTHING")  # noqa: S608
        return self.last(ledger) == after

    def _run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement, on the disk when it returns."""
        if self._file is None:
            return self._run_on_server(statement)
        try:
            with connected(self._file) as connection:
                return connection.execute(statement).fetchall()
        except sqlite3.Error as error:
            raise LedgerError(said("budget.anchor_unreachable", anchor=self.name, why=error)) from None

    def _run_on_server(self, statement: str) -> list[tuple[Any, ...]]:
        require("adbc_driver_postgresql", what="an anchor on PostgreSQL", package="adbc-driver-postgresql", extra="sql")
        import polars as pl
        from adbc_driver_postgresql import dbapi

        address = self.name
        if "connect_timeout" not in address:
            # A server that is gone must not hold up the ledger for as long as the network likes.
            address += f"{'&' if '?' in address else '?'}connect_timeout=10"
        why = "PostgreSQL says {kind}; check it with psql"
        reached = failing(LedgerError, said("budget.anchor_unreachable", anchor=self.name, why=why))
        with reached, dbapi.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return pl.DataFrame(cursor.fetch_arrow()).rows() if statement.startswith("SELECT") else []


def _literal(text: str) -> str:
    """A text of ours in a statement: drivers disagree on how to pass values, and hexadecimal digits need no quoting."""
    if not _HEX.fullmatch(text):
        raise LedgerError("a ledger's name and head must be hexadecimal digits. The ledger is damaged.")
    return f"'{text}'"


def require_mark(pages: Pages) -> tuple[Anchor | None, Mark | None]:
    """The ledger's anchor and its last mark, which the ledger is required to contain."""
    setup = pages.setup
    if setup.anchor is None:
        return None, None
    anchor = Anchor(setup.anchor)
    mark = anchor.last(setup.ledger)
    if mark is None and any(entry.kind == "charge" for entry in pages.entries[pages.setups[-1][0] :]):
        raise LedgerError(said("budget.no_mark", anchor=anchor.name, ledger=pages.path))
    _require(pages, anchor, mark)
    return anchor, mark


def tell_anchor(pages: Pages, anchor: Anchor, mark: Mark | None) -> None:
    """Advance the anchor from its mark to the end of a ledger that is locked, before anything is appended."""
    end = Mark(entries=len(pages.entries), head=pages.entries[-1].head)
    if mark is None:
        _retire(pages)
    while mark != end and not anchor.advance(pages.setup.ledger, mark, end):
        # Another writer came between, with a copy of this ledger: the check says so, or the copy is the same.
        _, mark = require_mark(pages)


def _require(pages: Pages, anchor: Anchor, mark: Mark | None) -> None:
    if mark is None:
        return
    about: dict[str, Any] = {"ledger": pages.path, "anchor": anchor.name, "seen": mark.entries}
    if (missing := mark.entries - len(pages.entries)) > 0:
        raise LedgerError(said("budget.older", **about, n=len(pages.entries), missing=missing))
    if pages.entries[mark.entries - 1].head != mark.head:
        raise LedgerError(said("budget.not_the_one", **about))


def _retire(pages: Pages) -> None:
    """Tell the anchor before this one of the change, before any charge: else a backup from before it would pass."""
    setups = pages.setups
    if len(setups) < 2 or setups[-1][1].lost:
        return
    (_, before), (number, now) = setups[-2:]
    if before.anchor is None or before.anchor == now.anchor:
        return
    anchor, end = Anchor(before.anchor), Mark(entries=number, head=pages.entries[number - 1].head)
    mark = anchor.last(before.ledger)
    while mark is None or mark.entries < number:
        anchor.advance(before.ledger, mark, end)
        mark = anchor.last(before.ledger)
        _require(pages, anchor, mark)
