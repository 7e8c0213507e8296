"""How long work tells how far it is. The command line draws bars; the library is silent unless asked.

It tells no run times: they depend on the rows (`cli.console` shows them to the custodian alone).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Protocol, TypeVar


class Progress(Protocol):
    """Told of every stage as it begins, and of its steps."""

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """A stage begins (and the one before it is done); `total` steps are expected, None when not known."""

    def advance(self, steps: int) -> None:
        """This many more steps of the present stage are done."""


B = TypeVar("B", bound=Sized)


def watch(batches: Iterable[B], progress: Progress) -> Iterator[B]:
    """The same batches, telling `progress` of each one that has been taken care of."""
    for batch in batches:
        yield batch
        progress.advance(len(batch))


class Silent:
    """Says nothing."""

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """Say nothing."""

    def advance(self, steps: int) -> None:
        """Say nothing."""


SILENT = Silent()
