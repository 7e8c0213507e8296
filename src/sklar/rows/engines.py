"""One contract for where rows are counted: on this machine, or on Spark.

An engine opens a table and has one method: exact answers to a list of questions (`Ask`), summed over its parts, in one
pass over the rows. They depend neither on the engine nor on how rows are split, ordered or counted again:
`tests/rows/test_engines.py` holds every engine to it, to the last unit. What leaves, the vault decides (`Measurer`).

An interrupted pass over a folder of files can be resumed. The counts so far, which are private, are kept in a folder of
their owner's (0700, the file 0600) with the files that they cover; it is replaced as a whole, and deleted once all rows
are counted, before any noise is drawn. Kept counts serve the same schema and files of the same name, size and time of
change; otherwise counting begins anew without a word, as nothing of the rows may steer what is said.
"""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.plan import INSIDE, in_tokens, sides_of
from sklar.budget.search import Finding, Search, ladder_of, next_cells, plan_search
from sklar.errors import DataError, OutputError
from sklar.kernel.cells import Cells
from sklar.kernel.queries import Block, Common, Distances, Parities, Query, Shares, Tables
from sklar.kernel.theorems import NOTHING, Budget
from sklar.kernel.vault import Charge, Vault
from sklar.machine.extras import Engine, choose_engine
from sklar.machine.progress import SILENT, Progress
from sklar.machine.spill import is_large, require_disk, room_for
from sklar.machine.stores import fresh_file, own_folder, version_of
from sklar.machine.threads import merged, workers
from sklar.machine.wording import said
from sklar.public.schema import Schema
from sklar.public.tree import Known, Tree, joint_of, tree_of
from sklar.rows.bounded import Secrets, choose_here, placed, records_of
from sklar.rows.count import Ask, Exact, Histogram, ask_all, count, key_of, no_answers
from sklar.rows.read import open_source, reads_again, takes_one_pass
from sklar.rows.source import Source, batch_rows, files_at_once, require_columns, require_person
from sklar.rows.sql import Query as RowsOfQuery

if TYPE_CHECKING:
    from sklar.rows.executors import SparkTable, SparkTree
    from sklar.rows.trees import LocalTree

_FILE = "counts.npz"
# Counts are kept seldom enough that keeping them takes a tenth of the time at most.
_PATIENCE = 10
# A table where its engine can count it: the same rows in every pass. It has the method `count`, a name, columns, the
# number of its rows where that is known before they are read, and says whether these can be read once more.
CountedTable: TypeAlias = "LocalTable | SparkTable | LocalTree | SparkTree"


class LocalTable:
    """A file, a folder of files, or an Arrow stream, counted by the threads of this process in bounded memory."""

    def __init__(self, data: object, schema: Schema, checkpoint: str | Path | None = None) -> None:
        self._data, self._schema, self._checkpoint, self._secrets = data, schema, checkpoint, Secrets()
        source = open_source(data, schema)
        self._opened: Source | None = source
        self._rows_read: int | None = None
        self.name, self.columns, self.n_rows, self.explain = source.name, source.columns, source.n_rows, source.explain
        self.reads_again = checkpoint is None and reads_again(data)

    def count(self, ask: Ask, *, progress: Progress = SILENT) -> Exact:
        """Exact answers; with a checkpoint, resumed where an earlier pass ended."""
        if ask.values and takes_one_pass(self._data):
            raise DataError("private domains take two passes over the rows, a stream allows one. Give a table or file.")
        source = self._opened or open_source(self._data, self._schema)
        self._opened = None
        if self._checkpoint is not None:
            return count_resumable(source, self._schema, ask, self._checkpoint, progress=progress)
        heights: list[int] = []

        def read(batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
            for batch in batches:
                heights.append(batch.height)
                yield batch

        person = self._schema.person
        if person is None:
            answers = count(read(source.scan(ask.columns)), ask, progress=progress)
        else:
            # A query may give its rows in another order each time: they are known by all that they are.
            by_content = isinstance(self._data, RowsOfQuery)
            names, parts = tuple(self._schema.columns) if by_content else ask.columns, source.parts or (source,)
            streams = (
                placed(read(part.batches((*names, person.column))), number, by_content=by_content)
                for number, part in enumerate(parts)
            )
            records = records_of(merged(streams, files_at_once(parts)), person, ask.prepare, self._secrets)
            chosen = choose_here(records, person.rows_per_person)
            batches = (batch for frame in chosen for batch in frame.iter_slices(batch_rows(frame.width)))
            answers = count(batches, replace(ask, chosen=True), progress=progress)
        if self._rows_read not in (None, sum(heights)):
            raise DataError("the table changed while it was read, or can be read once only. Give a table or file.")
        self._rows_read = sum(heights)
        return answers


# The name of a file and its version.
Shard = tuple[str, str]


def count_resumable(
    source: Source, schema: Schema, ask: Ask, folder: str | Path, *, progress: Progress = SILENT
) -> Exact:
    """Exact answers about a folder of files, kept in `folder` on the way: a later call goes on where this one ended."""
    folder, origin = Path(folder), source.path
    if origin is None or not source.parts:
        raise DataError(f"a checkpoint is for a folder of files, got {source.name}. Leave it out.")
    if folder.resolve().is_relative_to(origin.resolve()):
        raise DataError(f"the checkpoint folder '{folder}' must lie outside of {source.name}. Choose another.")

    def shard_of(part: Source) -> Shard:
        path = part.path or origin
        return path.relative_to(origin).as_posix(), version_of(path)

    # Kept counts are valid for these files, this schema and the tables that were counted.
    tables = sha256(repr([ask.inside, *map(key_of, ask.tables)]).encode()).hexdigest()
    about = {"schema": schema.digest, "origin": str(origin.resolve()), "tables": tables}
    with own_folder(folder):
        _sweep(folder)
        shards = {shard_of(part): part for part in source.parts}
        total, done = _read(folder, about, ask)
        if not shards.keys() >= set(done):
            total, done = no_answers(ask), []
        if done:
            progress.advance(total.n_rows)
        covered, last, took = set(done), 0.0, 0.0
        rest, together = [shard for shard in shards if shard not in covered], files_at_once(source.parts)
        for first in range(0, len(rest), together):
            group = rest[first : first + together]
            parts = [shards[shard] for shard in group]
            total += count(merged((part.batches(ask.columns) for part in parts), together), ask, progress=progress)
            if group != [shard_of(part) for part in parts]:
                raise DataError(f"{source.name} changed while it was read. Nothing was released. Run it again.")
            done += group
            begun = time.monotonic()
            if begun - last >= _PATIENCE * took:
                _write(folder, about | {"done": done, "rows": total.n_rows}, total)
                last = time.monotonic()
                took = last - begun
        (folder / _FILE).unlink(missing_ok=True)
        # Files of others stay.
        with suppress(OSError):
            folder.rmdir()
    return total


def _sweep(folder: Path) -> None:
    """Remove what a killed run was writing."""
    for left in folder.glob(f".{_FILE}.*.part"):
        left.unlink(missing_ok=True)


def _write(folder: Path, about: dict[str, Any], answers: Exact) -> None:
    try:
        temporary = fresh_file(folder / _FILE, private=True)
        with temporary.open("wb") as file:
            np.savez(file, np.frombuffer(json.dumps(about).encode(), dtype=np.uint8), *answers.tables)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / _FILE)
    except OSError as error:
        _sweep(folder)
        raise OutputError(said("rows.unwritten", folder=folder, why=error.strerror or error)) from None


def _read(folder: Path, about: dict[str, Any], ask: Ask) -> tuple[Exact, list[Shard]]:
    """The counts that are kept and the files that they cover; none where none are of this schema and folder."""
    if not (folder / _FILE).exists():
        return no_answers(ask), []
    try:
        with (folder / _FILE).open("rb") as file, np.load(file, allow_pickle=False) as kept:
            first, *tables = (kept[name] for name in kept.files)
            written: dict[str, Any] = json.loads(first.tobytes())
            if any(written[key] != value for key, value in about.items()):
                return no_answers(ask), []
            for counts, size in zip(tables, ask.sizes, strict=True):
                if counts.shape != (size,) or counts.dtype not in (np.int64, np.int32):
                    raise ValueError("other cells or numbers than the schema's counts")
            done = [(str(name), str(version)) for name, version in written["done"]]
            return Exact(n_rows=int(written["rows"]), tables=tuple(tables)), done
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        raise DataError(f"the checkpoint in '{folder}' is damaged. Delete it to count from the beginning.") from None


def open_table(
    data: object, known: Known, *, engine: Engine | None = None, checkpoint: str | Path | None = None
) -> CountedTable:
    """The table behind the engine that is asked for, refused where it lacks a column. No row is read yet."""
    if isinstance(known, Tree):
        # Imported here: most releases are of one table.
        from sklar.rows.trees import open_tree

        if checkpoint is not None:
            raise DataError(said("rows.person_checkpoint"))
        return open_tree(data, known, engine)
    schema = known
    if checkpoint is not None and schema.private_domains:
        raise DataError(said("rows.private_checkpoint"))
    if checkpoint is not None and schema.person is not None:
        raise DataError(said("rows.person_checkpoint"))
    table: CountedTable
    if choose_engine(engine, data) == "local":
        table = LocalTable(data, schema, checkpoint)
    elif checkpoint is not None:
        raise DataError("a checkpoint is for engine 'local', got engine 'spark', which repeats lost parts by itself.")
    else:
        from sklar.rows.executors import open_spark

        table = open_spark(data, schema)
    require_columns(table, schema)
    require_person(table, schema)
    return table


# Arrays of all two-way cells, of four bytes each, that a fit has in files at once: noisy tables of two stages,
# estimates, targets and what they are made from, and two squares of contrasts, each of twice as many.
_ARRAYS = 12


class Measurer:
    """One table, or linked ones, behind the vault's door: queries in, blocks out. Exact answers stay here.

    Questions and scales are about rows. Of linked tables (`tree`) people are counted, and each of them has so many
    tokens: what is drawn is noise in tokens.
    """

    def __init__(
        self, table: CountedTable, vault: Vault, known: Known, budget: Budget, *, progress: Progress = SILENT
    ) -> None:
        self._table, self._vault, self.known, self.budget, self._progress = table, vault, known, budget, progress
        self.schema, self.tree, self._tokens = joint_of(known).measured, tree_of(known), 1
        self._n_rows, self._values = 0, cast("Exact | None", None)
        self._exact: dict[object, NDArray[Any]] = {}
        self.reads_again, self.reserve = table.reads_again, vault.reserve

    @classmethod
    def open(
        cls,
        data: object,
        known: Known,
        budget: Budget,
        *,
        charge: Charge | None = None,
        query: str | None = None,
        engine: Engine | None = None,
        checkpoint: str | Path | None = None,
        progress: Progress = SILENT,
    ) -> Measurer:
        """A table, as `open_table` opens it, behind a vault of its own."""
        schema = joint_of(known)
        if not schema.private_domains and is_large(4 * schema.cells.n_cells):
            # Before anything is charged: a disk that is full in the middle of a fit would cost the budget.
            require_disk(_ARRAYS * 4 * schema.cells.n_cells)
        rows = data if query is None else RowsOfQuery(cast("Path | str", data), query)
        table = open_table(rows, known, engine=engine, checkpoint=checkpoint)
        return cls(table, Vault(budget, charge=charge, threads=workers()), known, budget, progress=progress)

    def over(self, schema: Schema) -> Measurer:
        """The same table over the domains that were found."""
        known = schema if self.tree is None else self.tree.found(schema.whole or schema)
        return Measurer(self._table, self._vault, known, self.budget, progress=self._progress)

    @property
    def n_rows(self) -> int | None:
        """The number of rows that count, where it is public."""
        return self._vault.n_rows

    def count_values(self) -> int | None:
        """Count the values of private domains in one pass; the number of rows where that is public, else None."""
        if self.schema.private_domains:
            ask = Ask(values=self.schema.private_domains, tree=self.tree)
            self._values = self._table.count(ask, progress=self._watched("find"))
        return self._values.n_rows if self._values and self.budget.rows_are_public else None

    def search(self) -> tuple[Search, tuple[Block, ...]]:
        """Noisy answers about each private domain, and the plan by which they were asked.

        Of categories, the common texts; of numbers, every table of the search: the cells of one follow from the noisy
        tables before it, as do the categories that are searched again. The whole release is charged here, before the
        first noise is drawn.
        """
        budget, answers = self.budget, self._values
        if answers is None:
            return Search(), ()
        n_rows = answers.n_rows if budget.rows_are_public else None
        search = plan_search(self.schema, budget, n_rows=n_rows)
        self._vault.reserve(search.spend(budget) + (search.rest or NOTHING))
        exact = dict(zip([each.name for each in self.schema.private_domains], answers.values, strict=True))
        blocks = [block for finding in search.findings for block in self._answers(finding, exact[finding.attribute])]
        both = search.then(budget, blocks, n_rows)
        for finding in both.findings[len(search.findings) :]:
            blocks += self._answers(finding, exact[finding.attribute])
        return both, tuple(blocks)

    def count_all(self, tokens: int = 1) -> None:
        """Count all one-way and two-way tables, and all that is measured beside them, in one pass over the rows; of
        linked tables in so many tokens a person.
        """
        sides, self._tokens = () if self.tree is None else tuple(side.query for side in sides_of(self.tree)), tokens
        self._count(ask_all(self.schema, inside=True, sides=sides))

    def _count(self, ask: Ask) -> None:
        progress = self._watched("count again" if self._exact else "count")
        ask = ask if self.tree is None else replace(ask, tree=self.tree, each=self._tokens)
        answers = self._table.count(ask, progress=progress)
        self._vault.hold(answers.n_rows)
        self._n_rows, keys = answers.n_rows, list[object](map(key_of, ask.tables))
        keys += [INSIDE] if ask.inside else []
        self._exact |= zip([*keys, *(query.what for query in ask.sides)], answers.tables, strict=True)

    def _require(self, *queries: Query) -> None:
        """Count what was not counted yet for these queries, in one pass over the rows."""
        of = (each for query in queries for each in getattr(query, "tables", (query,)) if isinstance(each, Tables))
        if unknown := tuple(each for each in of if each.order and key_of(each) not in self._exact):
            self._count(Ask(attributes=self.schema.attributes, tables=unknown))

    def measure_all(self, parts: Sequence[tuple[Query, NDArray[np.float64]]]) -> list[Block]:
        """The noisy answers to several queries, whose tables are counted together."""
        self._require(*(query for query, _ in parts))
        return [self.measure(*part) for part in parts]

    def measure(self, query: Query, scales: NDArray[np.float64]) -> Block:
        """The noisy answer to one query."""
        self._require(query)
        query, scales = in_tokens(query, scales, self._tokens)
        if isinstance(query, Tables):
            exact = np.array([self._n_rows * self._tokens]) if query.order == 0 else self._exact[key_of(query)]
        elif isinstance(query, Parities | Distances):
            exact = query.answer(*(self._exact[key_of(each)] for each in query.tables))
        elif isinstance(query, Shares) and query.what in self._exact:
            # Moments inside bins are seen twice.
            exact = np.tile(self._exact[query.what], 1 + (query.what == INSIDE))
        else:
            raise DataError(f"{type(query).__name__} are not counted from the rows of one table.")
        block = self._vault.measure(query, exact, scales)
        if not is_large(block.values.nbytes):
            return block
        # In a file where it is large: it stays as long as the fit lasts, which needs the memory.
        values = room_for(block.values.size, block.values.dtype)
        values[:] = block.values
        return replace(block, values=values)

    def _watched(self, stage: str) -> Progress:
        """The progress of a stage: it counts rows only if the number of rows read is public."""
        if not (self.budget.rows_are_public and self.budget.rows_per_person is None):
            self._progress.stage(stage)
            return SILENT
        self._progress.stage(stage, total=self._table.n_rows, unit="rows")
        return self._progress

    def _answers(self, finding: Finding, exact: Histogram) -> Iterator[Block]:
        scales, name = np.array([finding.scale]), finding.attribute
        if finding.threshold is not None:
            yield self._vault.measure(Common(about=name, threshold=finding.threshold), exact.texts, scales)
            return
        ladder = ladder_of(self.schema.attribute(name))
        tables: list[NDArray[Any]] = []
        for _ in range(finding.tables):
            if finding.of == "rounding":
                counts = exact.rounding(ladder)
            else:
                counts = exact.table(next_cells(ladder, tables, finding.scale)[-1])
            block = self._vault.measure(Tables(cells=Cells([counts.size]), order=1, about=name), counts, scales)
            tables.append(block.values)
            yield block
