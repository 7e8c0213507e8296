"""How long work tells how far it is. The command line draws bars; the library is silent unless asked."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told of every stage as it begins, and of its steps."""

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """A stage begins (and the one before it is done); `total` steps are expected, None when not known."""

    def advance(self, steps: int) -> None:
        """So many more steps of the present stage are done."""


class Silent:
    """Says nothing."""

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """Say nothing."""

    def advance(self, steps: int) -> None:
        """Say nothing."""


SILENT = Silent()
