"""One contract for where rows are counted: on this machine, or on Spark.

An engine opens a table and gives back exact counts that are the sum of partial counts of its parts. Counts do not
depend on the engine, on how rows are split, on the order of parts, or on how often a part had to be counted again.
`tests/private/test_engines.py` holds every engine to it, with equal tables to the last unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from sklar.errors import DataError
from sklar.machine.cluster import Engine, choose_engine
from sklar.machine.progress import SILENT, Progress
from sklar.public.schema import Attribute, Schema
from sklar.rows.discover import Tally, tally
from sklar.rows.fast import Counts, count
from sklar.rows.read import Source, open_source


class Table(Protocol):
    """A table where its engine can count it."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""

    @property
    def n_rows(self) -> int | None:
        """How many rows it has, where that is known before they are read."""

    def count(self, schema: Schema, *, progress: Progress = SILENT) -> Counts:
        """Exact counts of all rows."""

    def tally(self, attributes: Sequence[Attribute], *, progress: Progress = SILENT) -> tuple[int, list[Tally]]:
        """The number of rows, and exact histograms of attributes whose domain is private."""


class LocalTable:
    """A file, a folder of files, or an Arrow stream, counted by the threads of this process in bounded memory."""

    def __init__(self, source: Source, checkpoint: str | Path | None = None) -> None:
        self._source, self._checkpoint = source, checkpoint
        self.name, self.columns, self.n_rows = source.name, source.columns, source.n_rows

    def count(self, schema: Schema, *, progress: Progress = SILENT) -> Counts:
        """Exact counts of all rows; with a checkpoint, resumed where an earlier pass ended."""
        if self._checkpoint is None:
            return count(self._source.scan(schema.names), schema, progress=progress)
        # Imported here: most counting goes without.
        from sklar.rows.checkpoint import count_resumable

        return count_resumable(self._source, schema, self._checkpoint, progress=progress)

    def tally(self, attributes: Sequence[Attribute], *, progress: Progress = SILENT) -> tuple[int, list[Tally]]:
        """The number of rows, and exact histograms of attributes whose domain is private."""
        return tally(self._source.scan(tuple(each.name for each in attributes)), attributes, progress=progress)


def open_table(data: object, engine: Engine | None = None, checkpoint: str | Path | None = None) -> Table:
    """The table behind the engine that is asked for. No row is read yet."""
    if choose_engine(engine, data) == "local":
        return LocalTable(open_source(data), checkpoint)
    if checkpoint is not None:
        raise DataError("a checkpoint is for engine 'local', got engine 'spark', which repeats lost parts by itself.")
    from sklar.rows.spark import open_spark

    return open_spark(data)
