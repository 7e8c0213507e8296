"""The bill of a release and its receipt: in a certificate, and in what a failure says after the charge."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from sklar.errors import BudgetError, ModelError

if TYPE_CHECKING:
    from sklar.budget.ledger import Ledger
    from sklar.kernel.theorems import Budget, Spend
    from sklar.public.tree import Known

LedgerLike: TypeAlias = Union["Ledger", str, Path, None]

_HEAD = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The entry of a ledger that paid for a release, and the ledger's head after it.

    A head is a hash over this entry and all before it, each with 128 random bits that never leave the ledger: whoever
    has no ledger learns from a receipt how many entries it had, and nothing of what they say.
    """

    entry: int
    head: str

    def __post_init__(self) -> None:
        if type(self.entry) is not int or not 1 <= self.entry < 2**63:
            raise ModelError(f"a receipt must name an entry of a ledger, got {self.entry!r}. Get an intact copy.")
        if not isinstance(self.head, str) or not _HEAD.fullmatch(self.head):
            raise ModelError("a receipt must hold the head of a ledger, 64 hexadecimal digits. Get an intact copy.")


class Bill:
    """One release's charge, for the vault to call. `receipts` holds that of the charge, once it is made.

    The schema names its data set unless told. Without a ledger nothing is charged; with one, what could never be
    charged is refused before any row is read.
    """

    __slots__ = ("_book", "_budget", "_dataset", "_schema_sha256", "receipts")

    def __init__(self, ledger: LedgerLike, dataset: str | None, known: Known, budget: Budget) -> None:
        if isinstance(ledger, str | Path):
            # Imported here: most releases have no ledger.
            from sklar.budget.ledger import Ledger

            ledger = Ledger(ledger)
        if ledger is None and dataset is not None:
            raise BudgetError(f"a data set is a name in a ledger, got dataset='{dataset}' and no ledger. Give both.")
        self._book, self._dataset, self._budget = ledger, dataset or known.name, budget
        self._schema_sha256, self.receipts = known.digest, list[Receipt]()
        if ledger is not None:
            ledger.require(self._dataset, budget)

    @property
    def receipt(self) -> Receipt | None:
        """That of the charge; None where none was made."""
        return self.receipts[0] if self.receipts else None

    def __call__(self, spend: Spend, /) -> None:
        """Charge the ledger."""
        if self._book is not None:
            paid = self._book.charge(self._dataset, self._budget, spend, schema_sha256=self._schema_sha256)
            self.receipts.append(paid.receipt)


class ChargeNote(str):
    """A note on an exception that tells of a charge; of all notes, only these are known to quote no row."""

    __slots__ = ()


@contextmanager
def telling(charged: Sequence[Receipt | None], epsilon: float, kept: str | Path | None = None) -> Iterator[None]:
    """Add a note to any exception of this block that a release was charged, once `charged` is filled.

    The note also says how to go on from what the release measured, where the file `kept` holds it.
    """
    try:
        yield
    except BaseException as error:
        for receipt in filter(None, charged):
            note = f"The ledger was charged for this release of epsilon={epsilon:.6g} before (entry {receipt.entry}), "
            error.add_note(ChargeNote(f"{note}and that stays spent."))
        if kept is not None and Path(kept).exists():
            go_on = f"To go on at no cost: sklar fit --resume {kept} --model FILE"
            error.add_note(ChargeNote(f"What was measured is in {kept}. {go_on}"))
        raise


def charge_notes(error: BaseException) -> list[str]:
    """The notes of an exception about charges made before it."""
    return [note for note in getattr(error, "__notes__", ()) if isinstance(note, ChargeNote)]
