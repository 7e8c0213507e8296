"""Spent budgets on disk: charged before any noise is drawn, refused where they would overspend.

**Claim.** Whoever holds noisy tables of a data set, their charge was on the disk before the first of them was drawn;
and a ledger with an anchor that lacks a charge whose tables were drawn accepts no other, unless the anchor was taken
back in time with it. So what is charged is never less than what was spent, and it stays within the total.
`budget.ledger.anchor` has the protocol and the proof.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args
from unicodedata import normalize

import numpy as np

from sklar.budget.account import Account, Entry, Unit, accounts_of, choose_accountant, largest_fitting, own_cost
from sklar.budget.ledger.anchor import Anchor, require_mark, tell_anchor
from sklar.budget.ledger.chain import Pages, find_key, make_key, open_pages
from sklar.budget.receipt import Receipt, telling
from sklar.errors import BudgetError, LedgerError, MissingExtraError
from sklar.kernel.theorems import Budget, Neighbors, Spend
from sklar.machine.wording import said

if TYPE_CHECKING:
    from sklar.budget.certificate import Certificate, Measured

# Letters that readers take for one another.
_CYRILLIC = "\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0456\u0458\u0455"
_GREEK = "\u03b1\u03b2\u03b5\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u03c9"
_TWINS = str.maketrans(f"{_CYRILLIC}{_GREEK}01|", "abekmhopctyxijsabeiknoptuxwoll")
# Sums of chances are equal up to this.
_EQUAL = 1e-9


class Paid(NamedTuple):
    """A charge that is on the disk: the account after it, and its receipt."""

    account: Account
    receipt: Receipt


class Standing(NamedTuple):
    """Why a ledger is not complete or not in force, and what could not be checked."""

    problems: tuple[str, ...]
    remarks: tuple[str, ...]


class Ledger:
    """A ledger file, and its key file where the environment holds no key. Every method opens, checks and closes it."""

    __slots__ = ("_key_file", "path")

    def __init__(self, path: str | Path, *, key: str | Path | None = None) -> None:
        self.path = Path(path)
        self._key_file = None if key is None else Path(key)

    def open_account(
        self,
        dataset: str,
        *,
        epsilon: float,
        delta: float,
        neighbors: Neighbors = "replace-one",
        unit: Unit = "row",
        anchor: str | Path | None = None,
    ) -> Account:
        """Open a data set with its total, once and for all; the file, anchor and key are made where there are none."""
        if unit not in get_args(Unit):
            raise BudgetError(f"unit must be 'row' or 'person', got {unit!r}.")
        budget = Budget(epsilon=epsilon, delta=delta, neighbors=neighbors)
        if not dataset.strip() or not dataset.isprintable():
            raise LedgerError(f"a data set must have a name that can be printed, got {dataset!r}. Give --dataset NAME.")
        place = None if anchor is None else self._place(anchor)
        if not self.path.exists() or not self.path.stat().st_size:
            make_key(self._key_file)
            if place is not None:
                Anchor(place).create()
        with self._writing(create=True) as pages:
            if not pages.entries:
                pages.set_up(anchor=place)
            elif place not in (None, pages.setup.anchor):
                raise LedgerError(said("budget.other_anchor", ledger=self.path))
            if any(entry.kind == "open" and entry.dataset == dataset for entry in pages.entries):
                raise LedgerError(said("budget.total_once", dataset=dataset, ledger=self.path))
            for other in {entry.dataset for entry in pages.entries if entry.kind == "open"}:
                if _looks(other) == _looks(dataset):
                    raise LedgerError(said("budget.alike", dataset=dataset, other=other, ledger=self.path))
            body = {"epsilon": budget.epsilon, "delta": budget.delta, "neighbors": budget.neighbors}
            pages.append("open", dataset, body if unit == "row" else body | {"unit": unit})
        return self._find(self._settle(), dataset)

    def adopt(self) -> None:
        """Say that this copy of a ledger is the one in force from now on."""
        with self._writing(moved=True) as pages:
            pages.append("adopt", "", {})
        self._settle()

    def upgrade(self) -> None:
        """Give the ledger a key where it has none yet."""
        if self.path.exists():
            make_key(self._key_file)
        with self._writing(keying=True) as pages:
            setup = pages.setup
            if setup.key is not None or find_key(self._key_file) is None:
                state = "has its key" if setup.key else "was given no key"
                raise LedgerError(said("budget.no_upgrade", ledger=self.path, state=state))
            pages.set_up(anchor=setup.anchor)
        self._settle()

    def move_anchor(self, place: str | Path, *, lost: bool = False) -> None:
        """Name another anchor. `lost` says that the present one cannot be asked any more."""
        with self._writing(lost=lost) as pages:
            name = self._place(place)
            if name == pages.setup.anchor and not lost:
                raise LedgerError(f"ledger '{self.path}' has the anchor {name} already. Name another place.")
            Anchor(name).create()
            pages.set_up(anchor=name, lost=lost)
        self._settle()

    def bind(self, dataset: str, digests: Sequence[bytes]) -> tuple[str, ...]:
        """Tie a data set to the contents of its files, given as hashes; the other data sets that share one of them.

        They are kept keyed with the ledger's own secret: whoever has no ledger cannot test a guess at the rows.
        """
        with self._writing() as pages:
            self._find(pages.entries, dataset)
            secret = bytes.fromhex(pages.setup.secret)
            files = sorted({hmac.new(secret, digest, hashlib.sha256).hexdigest() for digest in digests})
            bound = [entry for entry in pages.entries if entry.kind == "bind"]
            pages.append("bind", dataset, {"files": files})
        self._settle()
        others = {entry.dataset for entry in bound if set(entry.body["files"]) & set(files)}
        return tuple(sorted(others - {dataset}))

    def history(self) -> tuple[Entry, ...]:
        """All entries, oldest first."""
        with open_pages(self.path, find_key(self._key_file), begin="BEGIN") as pages:
            return tuple(pages.entries)

    def accounts(self) -> tuple[Account, ...]:
        """All data sets."""
        return accounts_of(self.history())

    def account(self, dataset: str) -> Account:
        """One of them."""
        return self._find(self.history(), dataset)

    def standing(self) -> Standing:
        """Whether the ledger is complete and in force, and what could not be checked."""
        with open_pages(self.path, find_key(self._key_file), begin="BEGIN") as pages:
            problems, remarks = [], []
            try:
                require_mark(pages)
            except (LedgerError, MissingExtraError) as error:
                problems.append(str(error))
            if pages.is_copy:
                problems.append(self._copied())
            if pages.setup.anchor is None:
                remarks.append(said("budget.no_anchor", ledger=self.path))
            if pages.lacks_key:
                remarks.append(f"ledger '{self.path}' has a key, which was not given: its signatures were not checked.")
            return Standing(tuple(problems), tuple(remarks))

    def require(self, dataset: str, budget: Budget) -> None:
        """Refuse, before any row is read, what this ledger could never be charged for."""
        with _nothing_measured(), self._writing() as pages:
            self._matching(pages.entries, dataset, budget)

    def charge(self, dataset: str, budget: Budget, spend: Spend, *, schema_sha256: str = "") -> Paid:
        """Charge a release that will spend this, or no more in any currency.

        Postcondition: when this returns, the charge is on the disk and the anchor knows of it; when it raises, nothing
        may be measured, and a note tells whether the charge was made.
        """
        with _nothing_measured(), self._writing() as pages:
            account = self._matching(pages.entries, dataset, budget)
            accountant, (own, delta) = choose_accountant(account, budget, spend), own_cost(budget, spend)
            if accountant is None:
                fits = largest_fitting(account, budget, spend)
                remedy = said("budget.fits" if fits > 0 else "budget.nothing_fits", fits=fits)
                facts: dict[str, Any] = {"total": account.epsilon, "at": account.delta, "spent": account.spent}
                facts |= {"dataset": dataset, "own": own, "delta": budget.delta, "remedy": remedy}
                raise BudgetError(said("budget.overspent", **facts))
            groups = np.stack([spend.scales, spend.moves, spend.reach], axis=1).tolist()
            body = asdict(budget) | {"epsilon": own, "delta": delta, "scales": groups, "accountant": accountant}
            body |= {"schema_sha256": schema_sha256, "lost_delta": spend.lost_delta or None}
            body = {name: value for name, value in body.items() if value is not None}
            receipt = pages.append("charge", dataset, body)
        with telling([receipt], own), _nothing_measured():
            entries = self._settle()
            if len(entries) < receipt.entry or entries[receipt.entry - 1].head != receipt.head:
                raise LedgerError(f"ledger '{self.path}' was replaced by another file while it was charged.")
            return Paid(self._find(entries, dataset), receipt)

    def _find(self, entries: Sequence[Entry], dataset: str) -> Account:
        accounts = {account.dataset: account for account in accounts_of(entries)}
        if dataset in accounts:
            return accounts[dataset]
        known = ", ".join(f"'{name}'" for name in accounts) or "none"
        raise LedgerError(said("budget.no_data_set", ledger=self.path, dataset=dataset, known=known))

    def _matching(self, entries: Sequence[Entry], dataset: str, budget: Budget) -> Account:
        account = self._find(entries, dataset)
        if account.neighbors != budget.neighbors:
            own, other = account.neighbors, budget.neighbors
            raise BudgetError(said("budget.other_neighbors", dataset=dataset, own=own, other=other))
        unit = "row" if budget.rows_per_person is None else "person"
        if account.unit != unit:
            raise BudgetError(said(f"budget.not_by_{account.unit}", dataset=dataset))
        return account

    @contextmanager
    def _writing(
        self, *, create: bool = False, moved: bool = False, keying: bool = False, lost: bool = False
    ) -> Iterator[Pages]:
        """Step 1 of the protocol: the ledger, locked, and required to be complete and in force.

        `moved` lets a copy pass, `keying` a key that the ledger is yet to get; a `lost` anchor is not asked.
        """
        with open_pages(self.path, find_key(self._key_file), create=create, keying=keying) as pages:
            if pages.lacks_key:
                raise LedgerError(said("budget.lacks_key", ledger=self.path))
            anchor, mark = (None, None) if lost else require_mark(pages)
            if pages.is_copy and not moved:
                raise LedgerError(self._copied())
            if anchor is not None:
                tell_anchor(pages, anchor, mark)
            yield pages

    def _settle(self) -> Sequence[Entry]:
        """Step 2 of the protocol: tell the anchor of what was appended. All entries."""
        with self._writing() as pages:
            return tuple(pages.entries)

    def _place(self, place: str | Path) -> str:
        name = Anchor(place).name
        if Path(name).resolve() == self.path.resolve():
            raise LedgerError(f"an anchor must be another place than its ledger, got '{place}' for both.")
        return name

    def _copied(self) -> str:
        return said("budget.copied", ledger=self.path)


def _looks(name: str) -> str:
    """How a name looks: without case, spaces, marks and hyphens, and Cyrillic and Greek letters as their Latin twins.

    >>> _looks("Adult 1") == _looks("\\u0430dult_l"), _looks("adult") == _looks("adult2")
    (True, False)
    """
    plain = normalize("NFKD", normalize("NFKC", name).casefold()).translate(_TWINS)
    return "".join(letter for letter in plain if letter.isalnum())


@contextmanager
def _nothing_measured() -> Iterator[None]:
    try:
        yield
    except LedgerError as error:
        raise LedgerError(f"{error} Nothing was measured.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasesChecked:
    """A ledger and releases checked against it. `releases` has one line for each, None when paid."""

    ledger: str
    entries: int
    head: str
    problems: tuple[str, ...]
    releases: dict[str, str | None]

    @property
    def passed(self) -> bool:
        """Whether nothing does."""
        return not self.problems and not any(self.releases.values())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"passed": self.passed}

    def lines(self) -> list[str]:
        """In words."""
        lines = [f"Ledger {self.ledger}: {self.entries:,} entries, head {self.head}"]
        lines += [f"  FAIL  {problem}" for problem in self.problems]
        lines += [
            f"  FAIL  {name} {problem}" if problem else f"  ok    {name} is in the ledger and was charged in full"
            for name, problem in self.releases.items()
        ]
        return [*lines, "Passed." if self.passed else "Failed."]


def check_releases(
    ledger: str, entries: Sequence[Entry], problems: Sequence[str], releases: Sequence[tuple[str, Measured]]
) -> ReleasesChecked:
    """Every release against the entries, and against the others: a charge pays for one set of noisy tables."""
    faults: dict[str, str | None] = {}
    payers: dict[int, Measured] = {}
    for name, measured in releases:
        faults[name] = _problem(entries, measured.certificate)
        receipt = measured.certificate.receipt
        if faults[name] is None and receipt is not None:
            other = payers.setdefault(receipt.entry, measured)
            if not _same(other, measured):
                faults[name] = f"names entry {receipt.entry:,} as its charge, which paid for other tables among these."
    head = entries[-1].head if entries else ""
    return ReleasesChecked(ledger=ledger, entries=len(entries), head=head, problems=tuple(problems), releases=faults)


def _problem(entries: Sequence[Entry], certificate: Certificate) -> str | None:
    receipt = certificate.receipt
    if receipt is None:
        return "has no receipt: no ledger was charged for it."
    if receipt.entry > len(entries):
        return said("budget.not_yet_charged", entry=receipt.entry, n=len(entries))
    entry, spend = entries[receipt.entry - 1], certificate.search_spend + certificate.spend
    if entry.head != receipt.head:
        return f"was charged as entry {receipt.entry:,} of another ledger, or entries were changed since: heads differ."
    alike = ("neighbors", "rows_per_person", "mechanism")
    if (
        entry.kind == "charge"
        and all(entry.body.get(name) == getattr(certificate, name) for name in alike)
        and entry.cost.covers(certificate.budget.cost(spend))
        and entry.lost_delta >= spend.lost_delta * (1 - _EQUAL)
    ):
        return None
    return f"measured more than entry {receipt.entry:,} was charged for."


def _same(first: Measured, second: Measured) -> bool:
    """Whether two releases hold the same noisy values: models that were fitted to them anew are paid for."""
    return len(first.blocks) == len(second.blocks) and all(
        np.array_equal(one.values, other.values) and one.keys == other.keys
        for one, other in zip(first.blocks, second.blocks, strict=True)
    )
