"""Tables in files counted on Spark: executors open the files themselves, and rows never cross the JVM.

The driver lists the files and what they say of themselves (columns, row groups, versions) and shares their parts out
among tasks that take seconds (`rows.parts`). A task reads its parts as the local engine does, in one thread, and counts
them to one set of partial counts, which is cut into runs of cells; each run is summed over all tasks in an executor
(`rows.sums`), so that neither the driver nor any executor holds more than a few tables at once. Only the sum comes to
the driver, and only there is noise drawn, once, by the vault.

A task that is repeated, or runs twice, counts the same parts of the same versions of files, and sends the same pieces
under the same number. What Spark keeps on the way (shuffle files, event logs) is private: docs/scale.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sklar.errors import DataError, SklarError
from sklar.machine.cluster import is_spark, one_thread, session
from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import side_by_side, using
from sklar.public.person import Person
from sklar.public.schema import Attribute, Schema
from sklar.rows.counts import Counts, no_counts
from sklar.rows.discover import Histogram, count_columns, count_values, value_columns
from sklar.rows.encode import encode
from sklar.rows.fast import count
from sklar.rows.gather import Prepare, Secrets, choose_people, send_people
from sklar.rows.parts import ChangedError, Files, Part, Seen, look, open_files, read_part, share_out
from sklar.rows.people import of_codes
from sklar.rows.source import batch_rows, unrepeated
from sklar.rows.spark_frames import SparkTable
from sklar.rows.sums import (
    Piece,
    add_counts,
    add_histograms,
    cut_counts,
    cut_histograms,
    join_counts,
    join_histograms,
)
from sklar.rows.tasks import TASKS_PER_CORE, most_tasks, reducers_of, retold

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame

# With more files than this, executors look at them.
_LOOKED_AT_HERE = 32
# The key of a piece that says why nothing is counted.
_REFUSAL = -1
# Records of people that a task chooses among, in bytes.
_BUCKET_BYTES = 1 << 27

Pieces = Iterable[tuple[int, tuple[int, bytes]]]
Task = Callable[[int, list[Part]], Iterable[Piece]]
Add = Callable[[Iterable[Piece]], Iterable[Piece]]


def open_spark(data: object, schema: Schema) -> SparkFiles | SparkTable:
    """Files by path or address (or a list of them), or a Spark DataFrame: by its files where it is nothing but them."""
    if is_spark(data):
        files = files_of_frame(data)
        if files:
            # Executors may not reach what Spark does: then Spark hands the rows over.
            with suppress(SklarError):
                found = SparkFiles(files, schema, name="the DataFrame")
                if set(data.columns) <= set(found.columns):
                    return found
        return unrepeated(SparkTable(data, schema))
    if not isinstance(data, str | Path | list | tuple) or not data:
        raise DataError(f"engine 'spark' takes a path or a Spark DataFrame, got {type(data).__name__}.")
    return SparkFiles(data, schema)


def files_of_frame(frame: DataFrame) -> list[str] | None:
    """The Parquet files that a DataFrame is, None where it is anything else: a view of some of them, a join, a filter.

    Only the plan is looked at, which is public. Options of a reader, and columns in the names of folders, have a
    meaning of Spark's own: then Spark reads.
    """
    with suppress(Exception):
        plan = frame._jdf.queryExecution().analyzed()
        relation = plan.relation() if plan.getClass().getSimpleName() == "LogicalRelation" else None
        if relation is not None and relation.getClass().getSimpleName() == "HadoopFsRelation":
            plain = relation.fileFormat().getClass().getSimpleName() == "ParquetFileFormat"
            options = [key for key in ("path",) if relation.options().contains(key)]
            if plain and not relation.partitionSchema().length() and relation.options().size() == len(options):
                return sorted(frame.inputFiles())
    return None


class SparkFiles:
    """A table in files that executors open themselves."""

    def __init__(self, data: object, schema: Schema, name: str | None = None) -> None:
        self._schema, self._context = schema, session().sparkContext
        files = open_files(data, schema, partial(_look_at, self._context, schema))
        self._files: Files = files
        self.name, self.columns, self.n_rows = name or files.name, files.first.columns, files.n_rows
        self.explain = files.first.explain

    def count(self, schema: Schema, *, progress: Progress = SILENT) -> Counts:
        """Exact counts of all rows, or of those that are chosen of each person."""
        tasks = self._tasks(schema)
        if not tasks:
            return no_counts(schema.cells)
        toml = schema.to_toml()
        with one_thread(self._context), retold(self.name):
            if schema.person is None:
                pieces, parts = self._pieces(tasks, partial(_count_task, toml)), len(tasks)
            else:
                buckets = self._buckets(schema, tasks)
                send = partial(_send_codes, toml, Secrets(), buckets)
                gathered = self._shuffled(self._pieces(tasks, send), buckets)
                pieces, parts = gathered.mapPartitionsWithIndex(partial(_count_chosen, toml)), buckets
            sums = self._summed(pieces, add_counts, reducers_of(self._context, schema, parts))
        counts = join_counts(sums, schema, parts)
        progress.advance(counts.n_rows)
        return counts

    def count_values(
        self, attributes: Sequence[Attribute], *, progress: Progress = SILENT
    ) -> tuple[int, list[Histogram]]:
        """The number of rows that count, and exact histograms of private domains, by a pass of its own."""
        schema, names = self._schema, tuple(attribute.name for attribute in attributes)
        tasks, toml = self._tasks(schema), schema.to_toml()
        if not tasks:
            return 0, [Histogram() for _ in attributes]
        spread = self._context.defaultParallelism
        with one_thread(self._context), retold(self.name):
            if schema.person is None:
                pieces, parts = self._pieces(tasks, partial(_find_task, toml, names, spread)), len(tasks)
            else:
                buckets = self._buckets(schema, tasks)
                send = partial(_send_values, toml, names, Secrets(), buckets)
                gathered = self._shuffled(self._pieces(tasks, send), buckets)
                found = partial(_find_chosen, toml, names, spread)
                pieces, parts = gathered.mapPartitionsWithIndex(found), buckets
            sums = self._summed(pieces, add_histograms, spread)
        n_rows, histograms = join_histograms(sums, attributes, spread, parts)
        progress.advance(n_rows)
        return n_rows, histograms

    def _tasks(self, schema: Schema) -> list[list[Part]]:
        context = self._context
        return share_out(self._files.parts, schema, context.defaultParallelism, most_tasks(context, schema))

    def _buckets(self, schema: Schema, tasks: Sequence[object]) -> int:
        """Into how many buckets people go: each takes as long as a task, and fits in memory."""
        rows = self.n_rows if self.n_rows is not None else sum(part.weight for part in self._files.parts) // 8
        return max(len(tasks), -(-rows * (24 + 4 * schema.n_attributes) // _BUCKET_BYTES))

    def _pieces(self, tasks: list[list[Part]], task: Task) -> RDD[tuple[int, tuple[int, bytes]]]:
        work = partial(_run, task, _tries(self._context))
        return self._context.parallelize(list(enumerate(tasks)), len(tasks)).flatMap(work)

    def _shuffled(self, pieces: RDD[tuple[int, tuple[int, bytes]]], buckets: int) -> RDD[tuple[int, tuple[int, bytes]]]:
        return pieces.partitionBy(buckets, int)

    def _summed(self, pieces: RDD[tuple[int, tuple[int, bytes]]], add: Add, reducers: int) -> list[Piece]:
        """The sums of all keys, each made in an executor: nothing else comes here."""
        sums = pieces.partitionBy(reducers, int).mapPartitions(partial(_add_up, add)).collect()
        refusals = sorted(data.decode() for key, (_, data) in sums if key == _REFUSAL)
        if refusals:
            raise DataError(refusals[0])
        return [(key, number, data) for key, (number, data) in sums]


def _tries(context: SparkContext) -> int:
    """How often Spark tries a task."""
    return 1 if context.master.startswith("local[") else int(context.getConf().get("spark.task.maxFailures", "4") or 4)


def _look_at(context: SparkContext, schema: Schema, addresses: list[str], root: str | None) -> list[Seen]:
    if len(addresses) <= _LOOKED_AT_HERE:
        return side_by_side(lambda address: look(address, root, schema), addresses)
    tasks = min(len(addresses), TASKS_PER_CORE * context.defaultParallelism)
    with one_thread(context), retold("the files"):
        found = context.parallelize(addresses, tasks).map(partial(_look, schema.to_toml(), root)).collect()
    for each in found:
        if isinstance(each, str):
            raise DataError(each)
    return [each for each in found if isinstance(each, Seen)]


def _look(schema_toml: str, root: str | None, address: str) -> Seen | str:
    try:
        return look(address, root, Schema.from_toml(schema_toml))
    except SklarError as error:
        return str(error)


def _run(task: Task, tries: int, numbered: tuple[int, list[Part]]) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """A task in an executor. What it refuses becomes a piece, so that the driver can say it."""
    from pyspark import TaskContext

    number, parts = numbered
    try:
        # Spark runs a task per core.
        with using(1):
            for key, sent, data in task(number, parts):
                yield key, (sent, data)
    except SklarError as error:
        context = TaskContext.get()
        # A store may answer the next time; a file that changed stays changed.
        if not isinstance(error, ChangedError) and context is not None and context.attemptNumber() + 1 < tries:
            raise
        yield _REFUSAL, (number, str(error).encode())


def _add_up(add: Add, pieces: Pieces) -> Iterator[tuple[int, tuple[int, bytes]]]:
    refusals: list[tuple[int, bytes]] = []
    for key, number, data in add(_without_refusals(pieces, refusals)):
        yield key, (number, data)
    for refusal in refusals:
        yield _REFUSAL, refusal


def _without_refusals(pieces: Pieces, refusals: list[tuple[int, bytes]]) -> Iterator[Piece]:
    for key, (number, data) in pieces:
        if key == _REFUSAL:
            refusals.append((number, data))
        else:
            yield key, number, data


def _rows(parts: list[Part], schema: Schema, names: tuple[str, ...]) -> Iterator[pl.DataFrame]:
    return chain.from_iterable(read_part(part, schema, names) for part in parts)


def _count_task(schema_toml: str, number: int, parts: list[Part]) -> Iterator[Piece]:
    """Partial counts of some parts."""
    schema = Schema.from_toml(schema_toml)
    yield from cut_counts(count(_rows(parts, schema, schema.names), schema), number)


def _find_task(
    schema_toml: str, names: tuple[str, ...], buckets: int, number: int, parts: list[Part]
) -> Iterator[Piece]:
    """The histograms of some parts."""
    schema = Schema.from_toml(schema_toml)
    attributes = [schema.attribute(name) for name in names]
    n_rows, histograms = count_values(_rows(parts, schema, names), attributes)
    yield from cut_histograms(n_rows, histograms, number, buckets)


def _send_codes(schema_toml: str, secrets: Secrets, buckets: int, number: int, parts: list[Part]) -> Iterator[Piece]:
    """The codes of rows that may be chosen, to where those of the same people are."""
    schema = Schema.from_toml(schema_toml)
    narrow = np.int16 if int(schema.sizes.max()) < 2**15 else np.int32
    numbers = [str(number) for number in range(schema.n_attributes)]

    def coded(batch: pl.DataFrame) -> pl.DataFrame:
        return pl.DataFrame(dict(zip(numbers, encode(batch, schema).astype(narrow), strict=True)))

    return _sent(schema, schema.names, coded, secrets, buckets, number, parts)


def _send_values(
    schema_toml: str, names: tuple[str, ...], secrets: Secrets, buckets: int, number: int, parts: list[Part]
) -> Iterator[Piece]:
    schema = Schema.from_toml(schema_toml)
    attributes = [schema.attribute(name) for name in names]
    return _sent(schema, names, partial(value_columns, attributes=attributes), secrets, buckets, number, parts)


def _sent(
    schema: Schema,
    names: tuple[str, ...],
    prepare: Prepare,
    secrets: Secrets,
    buckets: int,
    number: int,
    parts: list[Part],
) -> Iterator[Piece]:
    person = _person(schema)
    rows = _rows(parts, schema, (*names, person.column))
    return send_people(rows, person, prepare, secrets, number, buckets)


def _person(schema: Schema) -> Person:
    if schema.person is None:
        raise TypeError("rows are sent to people where the schema names them")
    return schema.person


def _count_chosen(schema_toml: str, bucket: int, pieces: Pieces) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """Partial counts of the rows that are chosen in one bucket."""
    schema, refusals = Schema.from_toml(schema_toml), list[tuple[int, bytes]]()
    chosen = choose_people(_without_refusals(pieces, refusals), _person(schema))
    rows = batch_rows(schema.n_attributes)
    frames = (part for frame in chosen.values() for part in frame.iter_slices(rows))
    with using(1):
        counts = count(frames, of_codes(schema))
    for key, number, data in cut_counts(counts, bucket):
        yield key, (number, data)
    for refusal in refusals:
        yield _REFUSAL, refusal


def _find_chosen(
    schema_toml: str, names: tuple[str, ...], buckets: int, bucket: int, pieces: Pieces
) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """The histograms of the rows that are chosen in one bucket."""
    schema, refusals = Schema.from_toml(schema_toml), list[tuple[int, bytes]]()
    attributes = [schema.attribute(name) for name in names]
    chosen = list(choose_people(_without_refusals(pieces, refusals), _person(schema)).values())
    histograms = count_columns(pl.concat(chosen), attributes) if chosen else [Histogram() for _ in attributes]
    for key, number, data in cut_histograms(sum(frame.height for frame in chosen), histograms, bucket, buckets):
        yield key, (number, data)
    for refusal in refusals:
        yield _REFUSAL, refusal
