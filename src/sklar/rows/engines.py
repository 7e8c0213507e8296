"""One contract for where rows are counted: on this machine, or on Spark.

An engine opens a table and gives exact counts, the sum of partial counts of its parts, for the vault's door. Counts do
not depend on the engine, on how rows are split, on the order of parts, or on how often a part was counted again.
`tests/rows/test_engines.py` holds every engine to it, with equal tables to the last unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.ladder import ladder_of, next_cells
from sklar.budget.search import Finding, Search, plan_search
from sklar.budget.views import Triples
from sklar.errors import DataError
from sklar.kernel.cells import Cells
from sklar.kernel.queries import Block, Common, Distances, Parities, Query, Tables
from sklar.kernel.theorems import Budget
from sklar.kernel.vault import Vault
from sklar.machine.cluster import Engine, choose_engine
from sklar.machine.progress import SILENT, Progress
from sklar.public.schema import Attribute, Schema
from sklar.rows.counts import Counts
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
        """Exact one-way and two-way counts of all rows."""

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
        self.counted = 0
        self.name, self.columns, self.n_rows = self._source.name, self._source.columns, self._source.n_rows

    def count(self, schema: Schema, *, progress: Progress = SILENT) -> Counts:
        """Exact counts of all rows; with a checkpoint, resumed where an earlier pass ended."""
        if self._checkpoint is None:
            counts, n_rows = self._counted(schema, progress)
            if self._seen not in (None, n_rows):
                raise DataError("the table changed while it was read, or can be read once only. Give a table or file.")
            self._seen, self.counted = n_rows, counts.n_rows
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
    def reads_again(self) -> bool:
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
) -> tuple[Search, tuple[Block, ...]]:
    """What the rows say, with noise, about each private domain, and the plan by which they were asked.

    Of categories, the common texts; of numbers, every table of the search: the cells of one follow from the noisy
    tables before it. The whole release is charged here, before the first noise is drawn.
    """
    wanted = schema.private_domains
    n_rows, histograms = table.count_values(wanted, progress=_watched("find", table, budget, progress))
    search = plan_search(schema, budget, n_rows=n_rows if budget.rows_are_public else None)
    vault.reserve(search.spend(budget) + search.rest)
    exact = {attribute.name: histogram for attribute, histogram in zip(wanted, histograms, strict=True)}
    blocks = [
        block
        for finding in search.findings
        for block in _answers(vault, finding, schema.attribute(finding.attribute), exact[finding.attribute])
    ]
    return search, tuple(blocks)


def _answers(vault: Vault, finding: Finding, attribute: Attribute, exact: Histogram) -> Iterator[Block]:
    scales, name = np.array([finding.scale]), finding.attribute
    if finding.threshold is not None:
        yield vault.measure(Common(about=name, threshold=finding.threshold), exact.texts, scales)
        return
    ladder = ladder_of(attribute)
    tables: list[NDArray[Any]] = []
    for _ in range(finding.tables):
        if finding.of == "rounding":
            counts = exact.rounding(ladder)
        else:
            counts = exact.table(next_cells(ladder, tables, finding.scale)[-1])
        block = vault.measure(Tables(cells=Cells([counts.size]), order=1, about=name), counts, scales)
        tables.append(block.values)
        yield block


class Measurer:
    """One table behind the vault's door: queries in, blocks out. Exact answers stay here."""

    def __init__(
        self, table: CountedTable, vault: Vault, schema: Schema, budget: Budget, *, progress: Progress = SILENT
    ) -> None:
        self._table, self._vault, self._schema, self._budget, self._progress = table, vault, schema, budget, progress
        self._known: dict[tuple[int, bytes, bytes], NDArray[Any]] = {}

    @property
    def reads_again(self) -> bool:
        """Whether rows can be counted after the first pass: a public fact about where they are."""
        return bool(getattr(self._table, "reads_again", False))

    def count(self, *tables: Tables) -> None:
        """Count what was not counted yet, in one pass over the rows."""
        unknown = [each for each in tables if each.order and _key(each) not in self._known]
        if not unknown:
            return
        progress = _watched("count again" if self._known else "count", self._table, self._budget, self._progress)
        n_rows, exact = count_tables(self._table, unknown, self._schema, progress=progress)
        self._vault.hold(n_rows)
        self._n_rows = n_rows
        self._known |= {_key(each): counts for each, counts in zip(unknown, exact, strict=True)}

    def measure(self, query: Query, scales: NDArray[np.float64]) -> Block:
        """The noisy answer to one query."""
        if isinstance(query, Tables):
            self.count(query)
            exact = np.array([self._n_rows]) if query.order == 0 else self._known[_key(query)]
        elif isinstance(query, Parities | Distances):
            self.count(*query.tables)
            exact = query.answer(*(self._known[_key(each)] for each in query.tables))
        else:
            raise DataError(f"{type(query).__name__} are not counted from the rows of one table.")
        return self._vault.measure(query, exact, scales)


def _key(tables: Tables) -> tuple[int, bytes, bytes]:
    parts = (b"" if part is None else part.tobytes() for part in (tables.sets, tables.coarse))
    return (tables.order, *parts)  # type: ignore[return-value]


def count_tables(
    table: CountedTable, queries: Sequence[Tables], schema: Schema, *, progress: Progress = SILENT
) -> tuple[int, list[NDArray[Any]]]:
    """The number of rows, and exact answers to these queries."""
    counts: Counts | None = None
    answers: list[NDArray[Any]] = []
    for query in queries:
        if query.order < 3:
            if counts is None:
                counts = table.count(schema, progress=progress)
            answers.append(counts.one_way if query.order == 1 else counts.pairs)
            continue
        if not isinstance(table, LocalTable):
            raise DataError("three-way tables are counted by engine 'local' only. Leave them out.")
        coarse = np.concatenate([np.arange(size) for size in schema.sizes]) if query.coarse is None else query.coarse
        triples = Triples(cells=schema.cells, attributes=query.members, coarse=coarse)
        answers.append(table.count_triples(schema, triples, progress=progress))
    return (getattr(table, "counted", 0) if counts is None else counts.n_rows), answers


def _watched(stage: str, table: CountedTable, budget: Budget, progress: Progress) -> Progress:
    """Whoever watches a stage: told of rows only where the number of those that are read is public."""
    if not (budget.rows_are_public and budget.rows_per_person is None):
        progress.stage(stage)
        return SILENT
    progress.stage(stage, total=table.n_rows, unit="rows")
    return progress
