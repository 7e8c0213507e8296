"""Progress of long work, which the command line draws as bars. No run times: they depend on the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Protocol, TypeVar


class Progress(Protocol):
    """Receives every stage as it begins, and its steps."""

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """A stage begins (and the one before it is done); `total` steps are expected, None when not known."""

    def advance(self, steps: int) -> None:
        """This many more steps of the present stage are done."""


B = TypeVar("B", bound=Sized)


def watch(batches: Iterable[B], progress: Progress) -> Iterator[B]:
    """The same batches; `progress` advances after each one has been processed."""
    for batch in batches:
        yield batch
        progress.advance(len(batch))


class Silent:
    """Shows nothing."""

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """Nothing."""

    def advance(self, steps: int) -> None:
        """Nothing."""


SILENT = Silent()
