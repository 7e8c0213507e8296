"""A Spark DataFrame that is more than files (a view, a join, a filter): counted from the rows that Spark hands over.

Each partition's rows come from the JVM through Arrow (`mapInArrow`), a copy at a time; that is what it costs beside
files, which executors open themselves (`rows.spark`). What follows is the same: partial counts are summed in executors
(`rows.sums`), and only sums come to the driver. A task that is repeated, or runs twice, repeats an exact count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from os import urandom
from typing import TYPE_CHECKING, Any

import nanoarrow as na
import polars as pl
import pyarrow as pa

from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import using
from sklar.public.person import Person
from sklar.public.reading import Reading
from sklar.public.schema import Attribute, Schema
from sklar.rows.counts import Counts
from sklar.rows.discover import Histogram, count_values
from sklar.rows.fast import count
from sklar.rows.source import normalizer
from sklar.rows.streams import frame_of
from sklar.rows.sums import (
    Piece,
    add_counts,
    add_histograms,
    cut_counts,
    cut_histograms,
    join_counts,
    join_histograms,
)
from sklar.rows.tasks import most_tasks, reducers_of, retold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PIECES_AT_ONCE = 16
_PIECES = pa.schema([("key", pa.int64()), ("number", pa.int64()), ("data", pa.binary())])
_PIECES_DDL = "key long, number long, data binary"
_ID, _CONTENT, _NUMBER = "_sklar_id", "_sklar_content", "_sklar_number"


class SparkTable:
    """A DataFrame, counted by the executors of its session."""

    def __init__(self, frame: DataFrame, schema: Schema) -> None:
        self._frame, self._schema, self.columns = frame, schema, tuple(frame.columns)
        self.name = "the DataFrame"
        # Not known before a job has run.
        self.n_rows: int | None = None

    def count(self, schema: Schema, *, progress: Progress = SILENT) -> Counts:
        """Exact counts of all rows, or of those that are chosen of each person."""
        frame = self._rows(schema.names)
        context = frame.sparkSession.sparkContext
        most = most_tasks(context, schema)
        # How many partitions there are would take a job to find out.
        reducers = reducers_of(context, schema, most)
        task = partial(_count_part, schema.to_toml())
        counts = join_counts(self._summed(frame.coalesce(most), task, add_counts, reducers), schema)
        progress.advance(counts.n_rows)
        return counts

    def count_values(
        self, attributes: Sequence[Attribute], *, progress: Progress = SILENT
    ) -> tuple[int, list[Histogram]]:
        """The number of rows, and exact histograms of private domains, by a pass of its own."""
        names = tuple(attribute.name for attribute in attributes)
        frame = self._rows(names)
        buckets = frame.sparkSession.sparkContext.defaultParallelism
        task = partial(_find_part, self._schema.to_toml(), names, buckets)
        n_rows, histograms = join_histograms(self._summed(frame, task, add_histograms, buckets), attributes, buckets)
        progress.advance(n_rows)
        return n_rows, histograms

    def _rows(self, names: Sequence[str]) -> DataFrame:
        """The columns of these names, of the rows that count."""
        # By position: Spark's names are blind to case, and may hold dots.
        wanted, person = [str(self.columns.index(name)) for name in names], self._schema.person
        frame = self._frame.toDF(*map(str, range(len(self.columns))))
        if person is not None:
            frame = _chosen(frame, wanted, str(self.columns.index(person.column)), person, self._schema.reading)
        return frame.select(*(f"`{number}`" for number in wanted))

    def _summed(
        self,
        frame: DataFrame,
        task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        add: Callable[[Iterable[Piece]], Iterable[Piece]],
        reducers: int,
    ) -> list[Piece]:
        with retold(self.name):
            pieces = frame.mapInArrow(task, _PIECES_DDL)
            found = pieces.repartition(reducers, "key").mapInArrow(partial(_add_parts, add), _PIECES_DDL).toArrow()
        return list(_unpack(found.to_batches()))


def _chosen(frame: DataFrame, wanted: list[str], column: str, person: Person, reading: Reading) -> DataFrame:
    """The rows that are chosen, by window functions: as `rows.people` chooses, and the same again in a repeated task.

    A task that Spark repeats must choose the same rows, whatever their order: else parts of one table could hold
    different rows of a person, and more than are paid for. So a row's key is a keyed hash of its id, its content and
    its number among equal rows of that person, which stand for each other. The key of the hash is drawn here, by the
    operating system, and never again: keys of different rows are as good as independent and uniform, so the choice has
    the distribution of the local engine's. It depends on a person's own rows alone.
    """
    from pyspark.sql import Window, functions

    held = {number: frame.schema[number].dataType for number in dict.fromkeys(wanted)}
    columns = {number: functions.col(f"`{number}`") for number in held}
    # Nulls leave a hash as it is, so it is told of them. Of lists and records no more is counted than that they are.
    told = [column for number, column in columns.items() if _is_single(held[number])]
    content = functions.xxhash64(*told, *(column.isNull() for column in columns.values()))
    rows = frame.select(*columns.values(), _id(frame, column, reading).alias(_ID)).withColumn(_CONTENT, content)
    alike, own = Window.partitionBy(_ID, _CONTENT).orderBy(functions.lit(0)), Window.partitionBy(_ID)
    chosen = rows.filter(functions.col(_ID).isNotNull()).withColumn(_NUMBER, functions.row_number().over(alike))
    parts = [functions.lit(urandom(32).hex()), functions.xxhash64(_ID), functions.col(_CONTENT), functions.col(_NUMBER)]
    key = functions.sha2(functions.concat_ws("|", *parts), 256)
    chosen = chosen.withColumn(_NUMBER, functions.row_number().over(own.orderBy(key)))
    chosen = chosen.filter(functions.col(_NUMBER) <= person.rows_per_person).drop(_NUMBER)
    return chosen if person.null_ids == "drop" else chosen.union(rows.filter(functions.col(_ID).isNull()))


def _id(frame: DataFrame, column: str, reading: Reading) -> Any:
    """The ids, null where there is none: as `rows.people.ids_of` reads them."""
    from pyspark.sql import functions
    from pyspark.sql.types import FractionalType, StringType

    kind, given = frame.schema[column].dataType, functions.col(f"`{column}`")
    if not _is_single(kind):
        return functions.when(given.isNotNull(), functions.lit(""))
    if isinstance(kind, StringType):
        return functions.when(~given.isin("", *reading.nulls), given)
    if isinstance(kind, FractionalType):
        return functions.when(~functions.isnan(given), given)
    return given


def _is_single(kind: Any) -> bool:
    from pyspark.sql.types import AtomicType

    return isinstance(kind, AtomicType)


def _count_part(schema_toml: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Partial counts of one partition, in an executor: nothing for no rows, else all of them, run by run."""
    schema = Schema.from_toml(schema_toml)
    # Spark runs a task per core.
    with using(1):
        counts = count(_frames(batches, schema, schema.names), schema)
    if counts.n_rows:
        yield from _pack(cut_counts(counts, _partition()))


def _find_part(
    schema_toml: str, names: tuple[str, ...], buckets: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The histograms of one partition, in an executor."""
    schema = Schema.from_toml(schema_toml)
    with using(1):
        n_rows, histograms = count_values(_frames(batches, schema, names), [schema.attribute(name) for name in names])
    yield from _pack(cut_histograms(n_rows, histograms, _partition(), buckets))


def _partition() -> int:
    from pyspark import TaskContext

    task = TaskContext.get()
    return 0 if task is None else task.partitionId()


def _frames(batches: Iterator[pa.RecordBatch], schema: Schema, names: tuple[str, ...]) -> Iterator[pl.DataFrame]:
    places = {name: place for place, name in enumerate(names)}
    normalize = normalizer(schema.reading, schema)
    for batch in batches:
        frame = frame_of(na.c_array(batch), places)
        yield normalize(frame) if normalize else frame


def _add_parts(
    add: Callable[[Iterable[Piece]], Iterable[Piece]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield from _pack(add(_unpack(batches)))


def _pack(pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    waiting = iter(pieces)
    while some := list(islice(waiting, _PIECES_AT_ONCE)):
        yield pa.record_batch([list(column) for column in zip(*some, strict=True)], schema=_PIECES)


def _unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
