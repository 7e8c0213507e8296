"""What the rows of a table show: read in the background, kept while the studio runs, private and in memory alone."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from sklar.custodian.draft import Draft, draft
from sklar.errors import DataError
from sklar.machine.wording import explained, failing
from sklar.public.settings import Reading
from sklar.studio.folder import Desk, Folder


@dataclass(slots=True, kw_only=True, repr=False)
class TableLook:
    """One look at a table, under way or over: then it has a draft, or says what went wrong."""

    draft: Draft | None = None
    problem: str = ""
    rows: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    # What pages have made of it, by column and entry: to look through many different values takes time.
    shown: dict[object, Any] = field(default_factory=dict)

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """A look has one stage."""

    def advance(self, steps: int) -> None:
        """Count rows."""
        self.rows += steps


class Looks:
    """The looks of all tables: one for each table as it lies on the disk, and each way to read it."""

    def __init__(self, folder: Folder) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._kept: dict[str, tuple[object, TableLook]] = {}

    def at(self, desk: Desk, reading: Reading, *, wait_s: float) -> TableLook:
        """The look at a table, begun now if need be; waited for so long."""
        gone = f"the file '{desk.data}' does not exist any more. Put it back, or open another."
        with failing(DataError, gone, OSError):
            facts = self._folder.inside(desk.data).stat()
        key = (desk.data, desk.query, reading, facts.st_mtime_ns, facts.st_size)
        with self._lock:
            kept = self._kept.get(desk.name)
            if kept is None or kept[0] != key:
                kept = self._kept[desk.name] = (key, TableLook())
                threading.Thread(target=self._look, args=(desk, reading, kept[1]), daemon=True).start()
        kept[1].over.wait(wait_s)
        return kept[1]

    def present(self, desk: Desk) -> TableLook | None:
        """The last look at a table, under way or over; None where there was none."""
        kept = self._kept.get(desk.name)
        return None if kept is None else kept[1]

    def _look(self, desk: Desk, reading: Reading, look: TableLook) -> None:
        try:
            look.draft = draft(self._folder.table(desk), name=desk.name, reading=reading, progress=look)
        except Exception as error:
            look.problem = explained(error)
        finally:
            look.over.set()
