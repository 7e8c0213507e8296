"""Published releases against the ledger that says it paid for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sklar.budget.account import Entry
from sklar.budget.certificate import Certificate, Measured
from sklar.budget.search import search_spend

_EQUAL = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A ledger, and releases beside it: what speaks against them. `releases` has one line for each, None when paid."""

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
) -> Checked:
    """Every release against the entries, and against the others: a charge pays for one set of noisy tables."""
    found: dict[str, str | None] = {}
    payers: dict[int, Measured] = {}
    for name, measured in releases:
        found[name] = _problem(entries, measured.certificate)
        receipt = measured.certificate.receipt
        if found[name] is None and receipt is not None:
            other = payers.setdefault(receipt.entry, measured)
            if not _same(other, measured):
                found[name] = f"names entry {receipt.entry:,} as its charge, which paid for other tables among these."
    return Checked(
        ledger=ledger,
        entries=len(entries),
        head=entries[-1].head if entries else "",
        problems=tuple(problems),
        releases=found,
    )


def _problem(entries: Sequence[Entry], certificate: Certificate) -> str | None:
    receipt = certificate.receipt
    if receipt is None:
        return "has no receipt: no ledger was charged for it, or it was made before there were receipts."
    if receipt.entry > len(entries):
        return (
            f"was charged as entry {receipt.entry:,}, and the ledger has {len(entries):,}: the ledger is older than "
            "the release, or another."
        )
    entry = entries[receipt.entry - 1]
    if entry.head != receipt.head:
        return f"was charged as entry {receipt.entry:,} of another ledger, or entries were changed since: heads differ."
    if entry.kind != "charge" or not _covers(entry, certificate):
        return f"measured more than entry {receipt.entry:,} was charged for."
    return None


def _covers(entry: Entry, stated: Certificate) -> bool:
    spend = search_spend(stated.domains, stated.budget) + stated.spend
    return (
        entry.body["neighbors"] == stated.neighbors
        and entry.body.get("rows_per_person") == stated.rows_per_person
        and entry.body["mechanism"] == stated.mechanism
        and entry.cost.covers(stated.budget.cost(spend))
        and entry.lost_delta >= spend.lost_delta * (1 - _EQUAL)
    )


def _same(first: Measured, second: Measured) -> bool:
    """Whether two releases hold the same noisy values: models that were fitted to them anew are paid for."""
    pairs = zip(first.blocks, second.blocks, strict=False)
    return len(first.blocks) == len(second.blocks) and all(
        np.array_equal(one.values, other.values) and one.keys == other.keys for one, other in pairs
    )
