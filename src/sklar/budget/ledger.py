"""Spent budgets on disk: one SQLite file, charged before any noise is drawn, that refuses to overspend.

Invariant: whoever holds noisy tables of a data set, their charge was on the disk before the first of them was drawn,
and the charges of a data set together stay within its total (epsilon, delta).

The file is a journal of entries, each with the hash of all before it. A data set is opened once, with a total; every
other entry is a charge. What is spent is recomputed from the journal each time, never stored.

How releases add up is in `budget.account`.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sklar.budget.account import Account, Entry, accounts_of, choose_accountant, largest_fitting, own_cost
from sklar.errors import BudgetError, LedgerError
from sklar.kernel.theorems import Budget, Neighbors, Spend

APPLICATION_ID = 0x534B4C52  # "SKLR"
VERSION = 1

_WAIT_SECONDS = 60.0
_KEYS = {
    "open": {"epsilon", "delta", "neighbors"},
    "charge": {"epsilon", "delta", "neighbors", "mechanism", "composition", "scales", "accountant", "schema_sha256"},
    "adopt": set(),
}
_OPTIONAL: dict[str, set[str]] = {"open": set(), "charge": {"lost_delta"}, "adopt": set()}


class Ledger:
    """A ledger file. Every method opens it, checks all of it, and closes it again: no state is kept in between."""

    __slots__ = ("path",)

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def open_account(
        self, dataset: str, *, epsilon: float, delta: float, neighbors: Neighbors = "replace-one"
    ) -> Account:
        """Open a data set with its total, once and for all; the file is made when there is none."""
        budget = Budget(epsilon=epsilon, delta=delta, neighbors=neighbors)
        if not dataset.strip() or not dataset.isprintable():
            raise LedgerError(f"a data set must have a name that can be printed, got {dataset!r}. Give --dataset NAME.")
        with self._transaction(create=True) as (connection, entries):
            if any(entry.kind == "open" and entry.dataset == dataset for entry in entries):
                raise LedgerError(
                    f"data set '{dataset}' has its total in ledger '{self.path}' already; a total is set once. "
                    "See it with: sklar ledger show"
                )
            body = {"epsilon": budget.epsilon, "delta": budget.delta, "neighbors": budget.neighbors}
            self._append(connection, entries, "open", dataset, body)
        return self.account(dataset)

    def adopt(self) -> None:
        """Say that this copy of a ledger is the one in force from now on."""
        with self._transaction(moved=True) as (connection, entries):
            self._append(connection, entries, "adopt", "", {})

    def history(self) -> tuple[Entry, ...]:
        """All entries, oldest first."""
        with self._transaction(begin="BEGIN", moved=True) as (_, entries):
            return tuple(entries)

    def accounts(self) -> tuple[Account, ...]:
        """All data sets."""
        return accounts_of(self.history())

    def account(self, dataset: str) -> Account:
        """One data set."""
        return self._find(self.history(), dataset)

    def require(self, dataset: str, budget: Budget) -> None:
        """Refuse, before any row is read, what this ledger could never be charged for."""
        with self._transaction() as (_, entries):
            self._matching(entries, dataset, budget)

    def charge(self, dataset: str, budget: Budget, spend: Spend, *, schema_sha256: str = "") -> Account:
        """Charge a release that will spend this, or no more in any currency.

        Postcondition: when this returns, the charge is on the disk; when it raises, nothing may be measured.
        """
        with self._transaction() as (connection, entries):
            account = self._matching(entries, dataset, budget)
            accountant = choose_accountant(account, budget, spend)
            if accountant is None:
                raise BudgetError(self._refusal(account, budget, spend))
            own, delta = own_cost(budget, spend)
            body = {
                "epsilon": own,
                "delta": delta,
                "neighbors": budget.neighbors,
                "mechanism": budget.mechanism,
                "composition": budget.composition,
                "scales": [list(pair) for pair in zip(spend.scales.tolist(), spend.tables.tolist(), strict=True)],
                "accountant": accountant,
                "schema_sha256": schema_sha256,
            }
            if spend.lost_delta:
                body["lost_delta"] = spend.lost_delta
            self._append(connection, entries, "charge", dataset, body)
        return self.account(dataset)

    def _find(self, entries: Sequence[Entry], dataset: str) -> Account:
        accounts = {account.dataset: account for account in accounts_of(entries)}
        if dataset not in accounts:
            known = ", ".join(f"'{name}'" for name in accounts) or "none"
            raise LedgerError(
                f"ledger '{self.path}' has no data set '{dataset}'; it has {known}. Name one with --dataset, or open "
                f"it: sklar ledger init {self.path} --dataset NAME --epsilon E"
            )
        return accounts[dataset]

    def _matching(self, entries: Sequence[Entry], dataset: str, budget: Budget) -> Account:
        account = self._find(entries, dataset)
        if account.neighbors != budget.neighbors:
            raise BudgetError(
                f"data set '{dataset}' counts its budget for {account.neighbors} neighbors, got a release for "
                f"{budget.neighbors}. Release with --neighbors {account.neighbors}."
            )
        return account

    def _refusal(self, account: Account, budget: Budget, spend: Spend) -> str:
        asked, _ = own_cost(budget, spend)
        fits = largest_fitting(account, budget, spend)
        remedy = (
            f"A release like this one fits up to about epsilon={fits:.4g}."
            if fits > 0
            else "No release like this one fits any more; drawing more rows from an existing model costs nothing."
        )
        return (
            f"data set '{account.dataset}' must stay within epsilon={account.epsilon:.6g} at delta="
            f"{account.delta:.3g}, of which {account.spent:.4g} is spent; this release of epsilon={asked:.4g} at delta="
            f"{budget.delta:.3g} would overspend it. Nothing was measured. {remedy}"
        )

    @contextmanager
    def _transaction(
        self, *, begin: str = "BEGIN IMMEDIATE", create: bool = False, moved: bool = False
    ) -> Iterator[tuple[sqlite3.Connection, list[Entry]]]:
        """All entries, checked, with the file locked; what the block appends is on the disk when it ends.

        `moved` lets a copy pass.
        """
        if not create and not self.path.is_file():
            raise LedgerError(
                f"ledger '{self.path}' does not exist. Make it: "
                f"sklar ledger init {self.path} --dataset NAME --epsilon E"
            )
        mode = "rwc" if create else "rw"
        try:
            connection = sqlite3.connect(
                f"{self.path.resolve().as_uri()}?mode={mode}", uri=True, timeout=_WAIT_SECONDS, isolation_level=None
            )
        except sqlite3.Error as error:
            raise self._trouble(error) from None
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            # EXTRA also makes the removal of the rollback journal durable: a charge survives a loss of power.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute(begin)
            entries = self._read(connection, create=create)
            if entries and not moved and self._identity() != _last_identity(connection):
                raise LedgerError(
                    f"ledger '{self.path}' is a copy, or was restored from one: charges made to the other file may be "
                    f"missing here. If no other is in use and nothing is missing, run: sklar ledger adopt {self.path}"
                )
            yield connection, entries
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._trouble(error) from None
        finally:
            # Rolls back whatever was not committed.
            connection.close()

    def _trouble(self, error: sqlite3.Error) -> LedgerError:
        if "locked" in str(error):
            return LedgerError(
                f"ledger '{self.path}' was in use by another process for {_WAIT_SECONDS:.0f} seconds. Try again. "
                "Nothing was measured."
            )
        if isinstance(error, sqlite3.OperationalError):
            return LedgerError(
                f"ledger '{self.path}' cannot be used: {error}. It must be a file that can be written, on a disk with "
                "room. Nothing was measured."
            )
        return LedgerError(
            f"ledger '{self.path}' is not a Sklar ledger, or it is damaged ({error}). Restore an intact copy. "
            "Nothing was measured."
        )

    def _damaged(self, what: str) -> LedgerError:
        return LedgerError(
            f"ledger '{self.path}' is not a Sklar ledger, or it is damaged: {what}. Restore an intact copy. "
            "Nothing was measured."
        )

    def _identity(self) -> str:
        # A copy and a restored backup have another inode; a file that was moved on its disk, or written, has not.
        return str(self.path.stat().st_ino)

    def _read(self, connection: sqlite3.Connection, *, create: bool) -> list[Entry]:
        application, version, objects = (
            connection.execute(question).fetchone()[0]
            for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if create and not (application or version or objects):
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute(
                "CREATE TABLE entries (number INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, "
                "dataset TEXT NOT NULL, body TEXT NOT NULL, file TEXT NOT NULL, hash TEXT NOT NULL) STRICT"
            )
            return []
        if application != APPLICATION_ID:
            raise self._damaged("it is empty" if not objects else "it belongs to another program")
        if version != VERSION:
            raise self._damaged(f"its version is {version}, not {VERSION}")
        found = connection.execute("PRAGMA integrity_check").fetchall()
        if found != [("ok",)]:
            raise self._damaged("SQLite's integrity check fails")
        entries: list[Entry] = []
        previous = ""
        question = "SELECT number, time, kind, dataset, body, file, hash FROM entries ORDER BY number"
        for number, time, kind, dataset, body, file, digest in connection.execute(question):
            previous = _digest(previous, number, time, kind, dataset, body, file)
            if digest != previous or number != len(entries) + 1:
                raise self._damaged(f"entry {number} does not follow from those before it")
            parsed = json.loads(body)
            if kind not in _KEYS or set(parsed) - _OPTIONAL[kind] != _KEYS[kind]:
                # Only a later Sklar, or a forger who knows how to chain, writes one.
                raise self._damaged(f"entry {number} is of an unknown kind")
            entries.append(Entry(number=number, time=time, kind=kind, dataset=dataset, body=parsed))
        return entries

    def _append(
        self, connection: sqlite3.Connection, entries: Sequence[Entry], kind: str, dataset: str, body: dict[str, Any]
    ) -> None:
        last = connection.execute("SELECT hash FROM entries ORDER BY number DESC LIMIT 1").fetchone()
        fields = (
            len(entries) + 1,
            datetime.now(UTC).isoformat(timespec="seconds"),
            kind,
            dataset,
            json.dumps(body, sort_keys=True, allow_nan=False),
            self._identity(),
        )
        digest = _digest(last[0] if last else "", *fields)
        connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", (*fields, digest))


def _digest(previous: str, *fields: object) -> str:
    return hashlib.sha256(json.dumps([previous, *fields]).encode()).hexdigest()


def _last_identity(connection: sqlite3.Connection) -> str:
    return str(connection.execute("SELECT file FROM entries ORDER BY number DESC LIMIT 1").fetchone()[0])
