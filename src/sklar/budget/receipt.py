"""Receipts of charges: in a certificate, and in what a failure says after its release was charged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sklar.errors import ModelError

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

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> Receipt | None:
        """From JSON."""
        return None if document is None else cls(**document)


class ChargeNote(str):
    """A note on an exception that tells of a charge; of all notes, only these are known to quote no row."""

    __slots__ = ()


@contextmanager
def telling(charged: Sequence[Receipt | None], epsilon: float) -> Iterator[None]:
    """Whatever fails in this block says, in a note, that a release of this epsilon was charged before.

    `charged` may be filled within the block.
    """
    try:
        yield
    except BaseException as error:
        for receipt in charged:
            if receipt is not None:
                error.add_note(
                    ChargeNote(
                        f"The ledger was charged for this release of epsilon={epsilon:.6g} before (entry "
                        f"{receipt.entry}), and that stays spent."
                    )
                )
        raise


def charge_notes(error: BaseException) -> list[str]:
    """What an exception tells of charges that were made before it."""
    return [note for note in getattr(error, "__notes__", ()) if isinstance(note, ChargeNote)]
