"""One contract for where rows are counted: on this machine, or on Spark.

An engine opens a table and puts exact counts, the sum of partial counts of its parts, behind the vault's door. Counts
do not depend on the engine, on how rows are split, on the order of parts, or on how often a part was counted again.
`tests/rows/test_engines.py` holds every engine to it, with equal tables to the last unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.ladder import ladder_of, next_cells
from sklar.budget.search import Answer, Finding, Search, plan_search
from sklar.errors import DataError
from sklar.kernel.count import Counts
from sklar.kernel.theorems import Budget
from sklar.kernel.triples import NoisyScores, NoisyTriples, Triples
from sklar.kernel.vault import Vault
from sklar.machine.cluster import Engine, choose_engine
from sklar.machine.progress import SILENT, Progress
from sklar.public.schema import Attribute, Schema
from sklar.rows.discover import Finder, Histogram, count_values
from sklar.rows.fast import count
from sklar.rows.read import open_source, reads_again, takes_one_pass
from sklar.rows.source import batch_rows, require_columns, require_person


class CountedTable(Protocol):
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

    def count_values(
        self, attributes: Sequence[Attribute], *, progress: Progress = SILENT
    ) -> tuple[int, list[Histogram]]:
        """The number of rows, and exact histograms of attributes whose domain is private, by a pass of its own."""


class LocalTable:
    """A file, a folder of files, or an Arrow stream, counted by the threads of this process in bounded memory."""

    def __init__(self, data: object, schema: Schema, checkpoint: str | Path | None = None) -> None:
        self._data, self._schema, self._checkpoint = data, schema, checkpoint
        self._source = open_source(data, schema)
        require_columns(self._source, schema)
        require_person(self._source, schema)
        self._seen: int | None = None
        self.name, self.columns, self.n_rows = self._source.name, self._source.columns, self._source.n_rows
        self.again = checkpoint is None and schema.person is None and not takes_one_pass(data)

    def count(self, schema: Schema, *, progress: Progress = SILENT) -> Counts:
        """Exact counts of all rows; with a checkpoint, resumed where an earlier pass ended."""
        if self._checkpoint is None:
            counts, n_rows = self._counted(schema, progress)
            if self._seen not in (None, n_rows):
                raise DataError("the table changed while it was read, or can be read once only. Give a table or file.")
            self._seen = n_rows
            return counts
        # Imported here: most counting goes without.
        from sklar.rows.checkpoint import count_resumable

        return count_resumable(self._source, schema, self._checkpoint, progress=progress)

    def count_values(
        self, attributes: Sequence[Attribute], *, progress: Progress = SILENT
    ) -> tuple[int, list[Histogram]]:
        """The number of rows that count, and exact histograms of private domains, by a pass of its own."""
        if takes_one_pass(self._data):
            raise DataError("private domains take two passes over the rows, a stream allows one. Give a table or file.")
        names, person = tuple(attribute.name for attribute in attributes), self._schema.person
        if person is None:
            n_rows, histograms = count_values(self._source.scan(names), attributes, progress=progress)
            self._seen = n_rows
        else:
            # Imported here: most tables have a row for each person.
            from sklar.rows.people import choose

            finder, read = Finder(attributes), _Reading()
            for codes in choose(read.through(self._source.scan((*names, person.column))), person, finder.codes):
                finder.add(codes)
            n_rows, histograms = finder.n_rows, finder.histograms()
            self._seen = read.rows
        self._source = open_source(self._data, self._schema)
        return n_rows, histograms

    @property
    def takes_triples(self) -> bool:
        """Whether its rows can be read once more, by what kind of table it is: not with a checkpoint."""
        return self._checkpoint is None and reads_again(self._data)

    def count_triples(self, schema: Schema, triples: Triples, *, progress: Progress = SILENT) -> NDArray[np.int64]:
        """Exact counts of three-way tables, by a pass of its own over as many rows as the first one read."""
        # Imported here: most tables are read once.
        from sklar.rows.triples import columns_of, count_triples

        names, person = columns_of(schema, triples), schema.person
        columns = names if person is None else (*names, person.column)
        source = open_source(self._data, self._schema)
        n_rows, counts = count_triples(source.scan(columns), schema, triples, person=person, progress=progress)
        if n_rows != self._seen:
            raise DataError("the table changed while it was read, or can be read once only. Give a table or file.")
        return counts

    def count_trios(self, schema: Schema, *, progress: Progress = SILENT) -> tuple[NDArray[np.int64], int]:
        """Exact parities of all triples of bits, and the number of rows, by a pass of its own."""
        # Imported here: few tables are all bits.
        from sklar.rows.trios import count_trios

        source = open_source(self._data, self._schema)
        return count_trios(source.scan(schema.names), schema, progress=progress)

    def _counted(self, schema: Schema, progress: Progress) -> tuple[Counts, int]:
        """Exact counts, and the number of rows that were read for them."""
        person = schema.person
        if person is None:
            counts = count(self._source.scan(schema.names), schema, progress=progress)
            return counts, counts.n_rows
        from sklar.rows.people import count_people

        read, columns = _Reading(), (*schema.names, person.column)
        batches = read.through(self._source.scan(columns))
        return count_people(batches, schema, person, rows=batch_rows(len(columns))), read.rows


class _Reading:
    """How many rows went through."""

    def __init__(self) -> None:
        self.rows = 0

    def through(self, batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        for batch in batches:
            self.rows += batch.height
            yield batch


def open_table(
    data: object, schema: Schema, *, engine: Engine | None = None, checkpoint: str | Path | None = None
) -> CountedTable:
    """The table behind the engine that is asked for, refused where it lacks a column. No row is read yet."""
    if checkpoint is not None and schema.private_domains:
        raise DataError(
            "a checkpoint goes with public domains only: a run that starts again finds private ones anew. Leave it out."
        )
    if checkpoint is not None and schema.person is not None:
        raise DataError(
            "a checkpoint goes with rows, and [table] names a person: a run that starts again chooses other rows of "
            "people. Leave it out."
        )
    table: CountedTable
    if choose_engine(engine, data) == "local":
        table = LocalTable(data, schema, checkpoint)
    else:
        if checkpoint is not None:
            raise DataError(
                "a checkpoint is for engine 'local', got engine 'spark', which repeats lost parts by itself."
            )
        from sklar.rows.spark import open_spark

        table = open_spark(data, schema)
        require_columns(table, schema)
        require_person(table, schema)
    return table


def search_rows(
    table: CountedTable, vault: Vault, schema: Schema, budget: Budget, *, progress: Progress = SILENT
) -> tuple[Search, tuple[Answer, ...]]:
    """What the rows say, with noise, about each private domain, and the plan by which they were asked.

    Of categories, the common texts; of numbers, every table of the search: the cells of one follow from the noisy
    tables before it. The whole release is charged here, before the first noise is drawn.
    """
    wanted = schema.private_domains
    n_rows, histograms = table.count_values(wanted, progress=_watched("find", table, vault, progress))
    search = plan_search(schema, budget, n_rows=n_rows if vault.rows_are_public else None)
    vault.reserve(search.spend + search.rest)
    exact = dict(zip(wanted, histograms, strict=True))
    return search, tuple(
        _answer(vault, finding, schema.attribute(finding.attribute), exact[schema.attribute(finding.attribute)])
        for finding in search.findings
    )


def _answer(vault: Vault, finding: Finding, attribute: Attribute, exact: Histogram) -> Answer:
    if finding.threshold is not None:
        return vault.common(exact.texts, finding.scale, finding.threshold)
    ladder = ladder_of(attribute)
    if finding.of == "rounding":
        return (vault.histogram(exact.rounding(ladder), finding.scale),)
    tables: list[NDArray[np.int64]] = []
    for _ in range(finding.tables):
        cells = next_cells(ladder, tables, finding.scale)[-1]
        tables.append(vault.histogram(exact.table(cells), finding.scale))
    return tuple(tables)


def hold_counts(table: CountedTable, vault: Vault, schema: Schema, *, progress: Progress = SILENT) -> None:
    """Count the table and put its counts behind the vault's door. Noise is drawn there, once, after all are summed."""
    vault.hold(table.count(schema, progress=_watched("count", table, vault, progress)), schema.cells)


def takes_triples(table: CountedTable) -> bool:
    """Whether three-way tables can be counted after the first stage: a public fact about where the rows are."""
    return isinstance(table, LocalTable) and table.takes_triples


def measure_triples(
    table: CountedTable,
    vault: Vault,
    schema: Schema,
    triples: Triples,
    scales: NDArray[np.float64],
    *,
    progress: Progress = SILENT,
) -> NoisyTriples:
    """Count these three-way tables in another pass over the rows, and let them out with noise of these scales."""
    return vault.triples(_count_again(table, vault, schema, triples, progress), triples, scales)


def measure_scores(
    table: CountedTable,
    vault: Vault,
    schema: Schema,
    triples: Triples,
    reference: NDArray[np.int64],
    scale: float,
    *,
    progress: Progress = SILENT,
) -> NoisyScores:
    """Count all three-way tables in another pass, and let out how far each lies from the reference, with noise."""
    return vault.scores(_count_again(table, vault, schema, triples, progress), triples, reference, scale)


def _count_again(
    table: CountedTable, vault: Vault, schema: Schema, triples: Triples, progress: Progress
) -> NDArray[np.int64]:
    if not isinstance(table, LocalTable):
        raise DataError("three-way tables are counted by engine 'local' only. Leave them out.")
    return table.count_triples(schema, triples, progress=_watched("count again", table, vault, progress))


def recounting(
    table: CountedTable, vault: Vault, schema: Schema, *, progress: Progress = SILENT
) -> Callable[[], None] | None:
    """What puts exact parities of triples of bits behind the door, from a second pass over the same rows.

    None where there is no second pass: rows come in a stream, from Spark or with a checkpoint, or are chosen anew.
    """
    if not (isinstance(table, LocalTable) and table.again):
        return None

    def hold() -> None:
        vault.hold_trios(*table.count_trios(schema, progress=_watched("count again", table, vault, progress)))

    return hold


def _watched(stage: str, table: CountedTable, vault: Vault, progress: Progress) -> Progress:
    """Whoever watches a stage: told of rows only where the number of those that are read is public."""
    if not (vault.rows_are_public and vault.rows_are_people):
        progress.stage(stage)
        return SILENT
    progress.stage(stage, total=table.n_rows, unit="rows")
    return progress
