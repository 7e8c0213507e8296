"""Spent budgets on disk: one SQLite file, charged before any noise is drawn, that refuses to overspend.

Invariant: whoever holds noisy tables of a data set, their charge was on the disk before the first of them was drawn,
and the charges of a data set together stay within its total (epsilon, delta).

The file is a journal of entries, each with the hash of all before it. A data set is opened once, with a total; every
other entry is a charge. What is spent is recomputed from the journal each time, never stored.

**How releases add up.** A charge holds the noise scales of the whole release. `theorems.cost` turns them into two
currencies, zCDP and GDP. Both add up over releases even when a later release is chosen after looking at earlier ones,
as long as the limit was fixed before (zCDP: Whitehouse et al. 2023; GDP: Smith and Thakurta 2022). Thresholds that may
fail (`Budget.less`) have a currency of their own, the chance that one does. It adds up and comes off the total delta.

The third accountant, `sum`, adds up the releases' own (epsilon, delta). A minimum of accountants taken after the fact
would not be a limit fixed before, so the first charge of a data set decides, before anything of it is measured: the
smaller of curve and zCDP, unless that does not fit the total or is above `_DEARER` times the sum (a few tables of
Laplace noise, which are pure); then `sum`. It stays.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sklar.errors import BudgetError, LedgerError
from sklar.kernel.theorems import ROUNDING, Budget, Cost, Neighbors, Spend, cost, curve_epsilon, zcdp_epsilon

Accountant = Literal["curve", "zcdp", "sum"]

APPLICATION_ID = 0x534B4C52  # "SKLR"
VERSION = 1

_WAIT_SECONDS = 60.0
_DEARER = 1.2
_KEYS = {
    "open": {"epsilon", "delta", "neighbors"},
    "charge": {"epsilon", "delta", "neighbors", "mechanism", "composition", "scales", "accountant", "schema_sha256"},
    "adopt": set(),
}
_OPTIONAL: dict[str, set[str]] = {"open": set(), "charge": {"lost_delta"}, "adopt": set()}


_WORDS = {
    "curve": "pooled on the Gaussian curve",
    "zcdp": "pooled as zCDP",
    "sum": "epsilons and deltas added up",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the journal: a data set was opened with a total, or charged, or the file was adopted after a copy."""

    number: int
    time: str
    kind: Literal["open", "charge", "adopt"]
    dataset: str
    body: dict[str, Any]

    @property
    def cost(self) -> Cost:
        """Of a charge."""
        scales, tables = np.array(self.body["scales"], dtype=np.float64).reshape(-1, 2).T
        shifts = Budget(epsilon=1.0, neighbors=self.body["neighbors"]).shifts
        return cost(self.body["mechanism"], shifts, Spend.of(scales, tables))

    @property
    def lost_delta(self) -> float:
        """Of a charge: the chance that a threshold fails."""
        return float(self.body.get("lost_delta", 0.0))

    def line(self) -> str:
        """In one line."""
        body = self.body
        what = {
            "open": "opened with epsilon = {epsilon:.6g}, delta = {delta:.3g} in all ({neighbors} neighbors)",
            "charge": "charged epsilon = {epsilon:.4g}, delta = {delta:.3g}: {tables:,} tables, {mechanism} noise, "
            "{composition} composition, counted by {accountant}",
            "adopt": "the file was copied or restored, and put in force",
        }[self.kind]
        tables = sum(count for _, count in body.get("scales", []))
        return f"{self.number:>4}  {self.time}  {self.dataset or '-'}: {what.format(**body, tables=tables)}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"number": self.number, "time": self.time, "kind": self.kind, "dataset": self.dataset, **self.body}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A data set: its total, and the charges so far."""

    dataset: str
    epsilon: float
    delta: float
    neighbors: Neighbors
    charges: tuple[Entry, ...] = ()

    @property
    def accountant(self) -> Accountant | None:
        """What its first charge decided; None before."""
        return self.charges[0].body["accountant"] if self.charges else None

    @property
    def naive(self) -> tuple[float, float]:
        """The sums of the releases' own epsilons and deltas, for comparison."""
        bodies = [entry.body for entry in self.charges]
        return math.fsum(body["epsilon"] for body in bodies), math.fsum(body["delta"] for body in bodies)

    @property
    def spent(self) -> float:
        """Epsilon of all charges together, at this data set's delta, by its accountant."""
        return self.epsilon_with(self.accountant or "curve", Cost(), 0.0, 0.0, 0.0)

    def lines(self) -> list[str]:
        """What was spent and what is left, in words."""
        naive, deltas = self.naive
        lines = [
            f"Data set '{self.dataset}': epsilon = {self.epsilon:.6g}, delta = {self.delta:.3g} for all releases "
            f"together ({self.neighbors} neighbors)."
        ]
        if self.charges:
            lines += [
                f"  spent: epsilon = {self.spent:.4g} at that delta, in {len(self.charges):,} releases "
                f"({_WORDS[self.accountant or 'curve']})",
                f"  the naive sum would be epsilon = {naive:.4g}, delta = {deltas:.3g}",
            ]
        else:
            lines.append("  nothing spent")
        left = self.left
        lines.append(
            f"  one more release of Gaussian noise fits up to about epsilon = {left:.4g}, at delta = {self.delta:.3g}"
        )
        return lines

    @property
    def left(self) -> float:
        """About the largest epsilon, at this delta, of one more release of many Gaussian tables."""
        budget = Budget(epsilon=self.epsilon, delta=self.delta, neighbors=self.neighbors)
        # Of many tables, so that 4 units of variance are nothing.
        return _largest(self, budget, Spend.of([1000.0], [1_000_000_000]))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        naive, deltas = self.naive
        return {
            "dataset": self.dataset,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbors": self.neighbors,
            "accountant": self.accountant,
            "releases": len(self.charges),
            "spent_epsilon": self.spent,
            "naive_epsilon": naive,
            "naive_delta": deltas,
            "left_epsilon": self.left,
        }

    def epsilon_with(
        self, accountant: Accountant, more: Cost, lost_delta: float, epsilon: float, delta: float
    ) -> float:
        """What would be spent with one more release of this cost, or of this (epsilon, delta) for `sum`."""
        if accountant == "sum":
            epsilons, deltas = self.naive
            return epsilons + epsilon if deltas + delta <= self.delta * (1 + ROUNDING) else math.inf
        total = sum((entry.cost for entry in self.charges), more)
        amount = total.rho if accountant == "zcdp" else total.mu_squared
        if amount == 0 or not math.isfinite(amount):
            return amount
        lost = math.fsum([lost_delta, *(entry.lost_delta for entry in self.charges)])
        if lost >= self.delta:
            return math.inf
        # The same functions as a release's own epsilon, so that one release costs the same here and there.
        pooled = zcdp_epsilon if accountant == "zcdp" else curve_epsilon
        return pooled(amount, self.delta - lost) - math.log1p(-lost)


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
        return _accounts(self.history())

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
            accountant = _choose(account, budget, spend)
            if accountant is None:
                raise BudgetError(self._refusal(account, budget, spend))
            own, delta = _own(budget, spend)
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
        accounts = {account.dataset: account for account in _accounts(entries)}
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
        asked, _ = _own(budget, spend)
        fits = _largest(account, budget, spend)
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


def _accounts(entries: Sequence[Entry]) -> tuple[Account, ...]:
    return tuple(
        Account(
            dataset=opened.dataset,
            epsilon=opened.body["epsilon"],
            delta=opened.body["delta"],
            neighbors=opened.body["neighbors"],
            charges=tuple(entry for entry in entries if entry.kind == "charge" and entry.dataset == opened.dataset),
        )
        for opened in entries
        if opened.kind == "open"
    )


def _own(budget: Budget, spend: Spend) -> tuple[float, float]:
    """The epsilon of a release by itself, and the delta that it is stated at: none where pure epsilons add up to it."""
    epsilon = budget.spent(spend)
    sum_of_pure = float(np.sum(spend.tables * budget.shifts / spend.scales))
    pure = budget.mechanism == "laplace" and sum_of_pure <= epsilon * (1 + ROUNDING)
    return epsilon, 0.0 if pure else budget.delta


def _choose(account: Account, budget: Budget, spend: Spend) -> Accountant | None:
    """The accountant that counts this charge, None when it does not fit."""
    more = budget.cost(spend)
    own, delta = _own(budget, spend)

    def total(accountant: Accountant) -> float:
        return account.epsilon_with(accountant, more, spend.lost_delta, own, delta)

    limit = account.epsilon * (1 + ROUNDING)
    if account.accountant is not None:
        return account.accountant if total(account.accountant) <= limit else None
    pooled: tuple[Accountant, ...] = ("curve", "zcdp")
    best = min(pooled, key=total)
    if total("sum") <= limit and total(best) > min(_DEARER * total("sum"), limit):
        return "sum"
    return best if total(best) <= limit else None


def _largest(account: Account, budget: Budget, spend: Spend) -> float:
    """About the largest epsilon of a release of the same shape (scales times one factor) that fits; 0 for none."""

    def fits(factor: float) -> bool:
        return _choose(account, budget, spend * factor) is not None

    high = 1.0
    while not fits(high):
        high *= 2
        if high > 1e6:
            return 0.0
    low = high / 2
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    # Rounded down, with room for a plan whose shape is a little different at the smaller epsilon.
    exact = 0.999 * _own(budget, spend * high)[0]
    digits = 3 - math.floor(math.log10(exact)) if exact > 0 else 0
    return math.floor(exact * 10.0**digits) / 10.0**digits
