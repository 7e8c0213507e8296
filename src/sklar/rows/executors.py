"""Tables counted on Spark: files that executors open themselves, or a DataFrame whose rows Spark hands over.

Of files the driver lists what they say of themselves (columns, row groups, versions) and shares their parts out among
tasks that take seconds (`rows.parts`); a task reads its parts as the local engine does, in one thread, and rows never
cross the JVM. A DataFrame that is more than files (a view, a join, a filter) costs a copy beside that: each partition's
rows come through Arrow (`mapInArrow`). What follows is the same: a task counts to one set of partial counts, which is
cut into pieces; each is summed over all tasks in an executor (`rows.sums`), so that neither the driver nor any executor
holds more than a few tables at once. Only the sum comes to the driver, and only there is noise drawn, by the vault.

Where rows are chosen by person, their records meet in buckets first (`rows.bounded`), and buckets are counted.

A task that is repeated, or runs twice, counts the same rows, and sends the same pieces under the same number. What
Spark keeps on the way (shuffle files, event logs) is private: docs/scale.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from sklar.errors import DataError, SklarError
from sklar.machine.cluster import is_spark, one_thread, session
from sklar.machine.extras import lazily
from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import side_by_side, using
from sklar.public.schema import Schema
from sklar.public.settings import Person
from sklar.rows.bounded import Secrets, by_bucket, choose, packed, placed, records_of, reduced
from sklar.rows.count import Ask, Exact, count, no_answers
from sklar.rows.parts import ChangedError, FileFacts, Part, look, open_files, read_part, share_out
from sklar.rows.source import batch_rows, normalizer, require_different_names
from sklar.rows.streams import frame_of
from sklar.rows.sums import Piece, add, cut, join, length, runs_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame

na = lazily("nanoarrow")

# With more files than this, executors look at them.
_LOOKED_AT_HERE = 32
# Partial counts that are at most summed, in bytes: with more, neighboring parts share one.
MOST_SHUFFLED = 1 << 34
TASKS_PER_CORE, _MOST_TASKS = 4, 1 << 20
# Bytes of partial counts that are worth a task of their own, and of records of people that a task chooses among.
_SUMMED_BYTES, _BUCKET_BYTES = 1 << 27, 1 << 27
# The key of a piece that says why nothing is counted.
_REFUSAL = -1
_PIECES = "key long, number long, data binary"

# A piece as Spark sends it, by its key.
Sent = tuple[int, tuple[int, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What tasks do: count, or send records of people to buckets; `spread` is into how many buckets values go."""

    ask: Ask
    spread: int
    person: Person | None
    secrets: Secrets
    buckets: int
    by_content: bool


def open_spark(data: object, schema: Schema) -> SparkTable:
    """Files by path or address (or a list of them), or a Spark DataFrame: by its files where it is nothing but them."""
    if is_spark(data):
        files = files_of_frame(data)
        if files:
            # Executors may not reach what Spark does: then Spark hands the rows over.
            with suppress(SklarError):
                found = SparkFiles(files, schema, name="the DataFrame")
                if set(data.columns) <= set(found.columns):
                    return found
        return SparkFrame(data, schema)
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


class SparkTable(ABC):
    """A table that executors count. Which rows of a person count is decided once, by its own secrets."""

    name: str
    columns: tuple[str, ...]
    n_rows: int | None = None
    # Files are refused where they change.
    reads_again = True

    def __init__(self, schema: Schema, context: SparkContext) -> None:
        self._schema, self._context, self._secrets = schema, context, Secrets()

    def count(self, ask: Ask, *, progress: Progress = SILENT) -> Exact:
        """Exact answers about all rows, or about those that are chosen of each person."""
        context, person = self._context, self._schema.person
        # More tasks than this would send more partial counts than are worth it.
        most = max(MOST_SHUFFLED // (4 * length(ask)), TASKS_PER_CORE * int(context.defaultParallelism))
        most = min(most, _MOST_TASKS)
        with one_thread(context), _private_failures(self.name):
            work = Work(
                ask=ask,
                spread=int(context.defaultParallelism),
                person=person,
                secrets=self._secrets,
                buckets=self._buckets(ask),
                by_content=isinstance(self, SparkFrame),
            )
            pieces, parts = self._pieces(work, most)
            if pieces is None:
                return no_answers(ask)
            if person is not None:
                gathered = pieces.partitionBy(work.buckets, int)
                pieces, parts = gathered.mapPartitionsWithIndex(partial(_count_chosen, work)), work.buckets
            # How many partitions a DataFrame has would take a job to find out.
            sent = 4 * length(ask) * (most if parts is None else parts)
            keys = runs_of(ask) + (work.spread if ask.values else 0)
            reducers = min(keys, TASKS_PER_CORE * work.spread, max(-(-sent // _SUMMED_BYTES), len(ask.values)))
            sums = pieces.partitionBy(max(reducers, 1), int).mapPartitions(partial(_add_up, ask)).collect()
        refusals = sorted(data.decode() for key, (_, data) in sums if key == _REFUSAL)
        if refusals:
            raise DataError(refusals[0])
        answers = join([(key, number, data) for key, (number, data) in sums], ask, work.spread, parts)
        progress.advance(answers.n_rows)
        return answers

    @abstractmethod
    def _pieces(self, work: Work, most: int) -> tuple[RDD[Sent] | None, int | None]:
        """What at most so many tasks send, None where there are none, and how many they are where that is known."""

    def _buckets(self, ask: Ask) -> int:
        """Into how many buckets people go: each takes as long as a task, and fits in memory."""
        size = 0 if self.n_rows is None else self.n_rows * (24 + 4 * len(ask.columns))
        return max(TASKS_PER_CORE * int(self._context.defaultParallelism), -(-size // _BUCKET_BYTES))


class SparkFiles(SparkTable):
    """A table in files that executors open themselves."""

    def __init__(self, data: object, schema: Schema, name: str | None = None) -> None:
        super().__init__(schema, session().sparkContext)
        source, self._parts = open_files(data, schema, partial(_look_at, self._context, schema))
        self.name, self.columns, self.n_rows = name or source.name, source.columns, source.n_rows
        self.explain = source.explain

    def _pieces(self, work: Work, most: int) -> tuple[RDD[Sent] | None, int | None]:
        tasks = share_out(self._parts, self._schema, self._context.defaultParallelism, most)
        if not tasks:
            return None, 0
        run = partial(_run_on_files, work, self._schema.to_toml(), _tries(self._context))
        return self._context.parallelize(list(enumerate(tasks)), len(tasks)).flatMap(run), len(tasks)


class SparkFrame(SparkTable):
    """A DataFrame whose rows Spark hands over. Its order may change: rows of people are known by their content."""

    def __init__(self, frame: DataFrame, schema: Schema) -> None:
        super().__init__(schema, frame.sparkSession.sparkContext)
        self._frame, self.name, self.columns = frame, "the DataFrame", tuple(frame.columns)
        require_different_names(self)
        self.reads_again = False
        with suppress(Exception):
            self.reads_again = bool(frame._jdf.queryExecution().analyzed().deterministic())

    def _pieces(self, work: Work, most: int) -> tuple[RDD[Sent] | None, int | None]:
        names = work.ask.columns
        if work.person is not None:
            # All that a row is, in every pass: its key follows from that.
            names = (*self._schema.names, work.person.column)
        # By position: Spark's names are blind to case, and may hold dots.
        frame = self._frame.toDF(*map(str, range(len(self.columns))))
        rows = frame.select(*(f"`{self.columns.index(name)}`" for name in names)).coalesce(most)
        run = partial(_run_on_frames, work, self._schema.to_toml(), names, _tries(self._context))
        sent = rows.mapInArrow(run, _PIECES).rdd
        return sent.map(lambda row: (row[0], (row[1], bytes(row[2])))), None


@contextmanager
def _private_failures(name: str) -> Iterator[None]:
    """What Spark says of a failure may quote a cell of the table: its kind alone is told."""
    try:
        yield
    except SklarError:
        raise
    except Exception as error:
        raise DataError(
            f"Spark could not count {name} ({type(error).__name__}). Nothing was released. Spark's own logs, which are "
            "private, say why."
        ) from None


def _tries(context: SparkContext) -> int:
    """How often Spark tries a task."""
    return 1 if context.master.startswith("local[") else int(context.getConf().get("spark.task.maxFailures", "4") or 4)


def _look_at(context: SparkContext, schema: Schema, addresses: list[str], root: str | None) -> list[FileFacts]:
    if len(addresses) <= _LOOKED_AT_HERE:
        return side_by_side(lambda address: look(address, root, schema), addresses)
    tasks = min(len(addresses), TASKS_PER_CORE * context.defaultParallelism)
    with one_thread(context), _private_failures("the files"):
        found = context.parallelize(addresses, tasks).map(partial(_look, schema.to_toml(), root)).collect()
    for each in found:
        if isinstance(each, str):
            raise DataError(each)
    return [each for each in found if isinstance(each, FileFacts)]


def _look(schema_toml: str, root: str | None, address: str) -> FileFacts | str:
    try:
        return look(address, root, Schema.from_toml(schema_toml))
    except SklarError as error:
        return str(error)


def _run_on_files(work: Work, schema_toml: str, tries: int, numbered: tuple[int, list[Part]]) -> Iterator[Sent]:
    """A task in an executor, of parts of files."""
    schema, (number, parts) = Schema.from_toml(schema_toml), numbered
    names = work.ask.columns if work.person is None else (*work.ask.columns, work.person.column)
    return _run(work, number, tries, chain.from_iterable(read_part(part, schema, names) for part in parts))


def _run_on_frames(
    work: Work, schema_toml: str, names: tuple[str, ...], tries: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A task in an executor, of the rows of a partition."""
    import pyarrow as pa
    from pyspark import TaskContext

    context, schema = TaskContext.get(), Schema.from_toml(schema_toml)
    places = {name: place for place, name in enumerate(names)}
    normalize = normalizer(schema.reading, schema) or (lambda frame: frame)
    frames = (normalize(frame_of(na.c_array(batch), places)) for batch in batches)
    kind = pa.schema([("key", pa.int64()), ("number", pa.int64()), ("data", pa.binary())])
    for key, (number, data) in _run(work, 0 if context is None else context.partitionId(), tries, frames):
        yield pa.record_batch([[key], [number], [data]], schema=kind)


def _run(work: Work, number: int, tries: int, batches: Iterable[pl.DataFrame]) -> Iterator[Sent]:
    """The pieces of a task. What it refuses becomes a piece, so that the driver can say it."""
    from pyspark import TaskContext

    try:
        # Spark runs a task per core.
        with using(1):
            for key, sent, data in _task(work, number, batches):
                yield key, (sent, data)
    except SklarError as error:
        context = TaskContext.get()
        # A store may answer the next time; a file that changed stays changed.
        if not isinstance(error, ChangedError) and context is not None and context.attemptNumber() + 1 < tries:
            raise
        yield _REFUSAL, (number, str(error).encode())


def _task(work: Work, number: int, batches: Iterable[pl.DataFrame]) -> Iterator[Piece]:
    """Partial counts of some rows, or records of those that may be chosen, to where those of the same people are."""
    if work.person is None:
        answers = count(batches, work.ask)
        # Of a DataFrame nobody knows how many partitions have rows.
        if answers.n_rows or not work.by_content:
            yield from cut(answers, work.ask, number, work.spread)
        return
    rows = placed(batches, number, by_content=work.by_content)
    records = records_of(rows, work.person, work.ask.prepare, work.secrets)
    for sent, frame in enumerate(reduced(records, work.person.rows_per_person)):
        for bucket, own in by_bucket(frame, work.buckets):
            # A number for every piece: a part sends several to a bucket.
            yield bucket, number << 32 | sent, packed(own)


def _count_chosen(work: Work, bucket: int, sent: Iterable[Sent]) -> Iterator[Sent]:
    """Partial counts of the rows that are chosen in one bucket."""
    refusals: list[tuple[int, bytes]] = []

    def records() -> Iterator[pl.DataFrame]:
        seen: set[int] = set()
        for _, number, data in _without_refusals(sent, refusals):
            if number not in seen:
                seen.add(number)
                yield pl.read_ipc(data)

    chosen = choose(records(), work.person.rows_per_person if work.person else 0)
    frames: Iterable[pl.DataFrame] = [] if chosen is None else chosen.iter_slices(batch_rows(chosen.width))
    with using(1):
        answers = count(frames, replace(work.ask, chosen=True))
    for key, number, data in cut(answers, work.ask, bucket, work.spread):
        yield key, (number, data)
    yield from ((_REFUSAL, refusal) for refusal in refusals)


def _add_up(ask: Ask, sent: Iterable[Sent]) -> Iterator[Sent]:
    refusals: list[tuple[int, bytes]] = []
    for key, number, data in add(_without_refusals(sent, refusals), ask):
        yield key, (number, data)
    yield from ((_REFUSAL, refusal) for refusal in refusals)


def _without_refusals(sent: Iterable[Sent], refusals: list[tuple[int, bytes]]) -> Iterator[Piece]:
    for key, (number, data) in sent:
        if key == _REFUSAL:
            refusals.append((number, data))
        else:
            yield key, number, data
