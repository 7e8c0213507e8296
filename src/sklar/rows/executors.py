"""Tables counted on Spark: files that executors open themselves, or a DataFrame whose rows Spark hands over. More:
docs/derivations.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sklar.errors import DataError, SklarError
from sklar.machine.extras import files_of_frame, is_spark, lazily, one_thread, session
from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import using
from sklar.machine.wording import failing, said
from sklar.public.schema import Schema
from sklar.public.tree import Tree
from sklar.rows.bounded import Secrets, by_bucket, choose, packed, placed, records_of, reduced
from sklar.rows.count import Ask, Exact, Histogram, count, no_answers
from sklar.rows.read import ChangedError, Part, open_files, read_part, share_out
from sklar.rows.source import batch_rows, normalizer, require_different_names
from sklar.rows.streams import frame_of
from sklar.rows.trees import count_people, owner_of, part_of, prepare, require_ids, tables_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame

na = lazily("nanoarrow")

# Partial counts that are at most summed, in bytes: with more, neighboring parts share one.
MOST_SHUFFLED = 1 << 34
TASKS_PER_CORE, _MOST_TASKS = 4, 1 << 20
# Bytes of partial counts that are worth a task of their own, and of records of people that a task chooses among.
_SUMMED_BYTES, _BUCKET_BYTES = 1 << 27, 1 << 27
# Cells that are summed together: a megabyte, so that they are well spread and no piece is large.
RUN = 1 << 17
# The key of a piece that says why nothing is counted.
_REFUSAL = -1

Piece = tuple[int, tuple[int, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of a task: count, or send records of people to buckets. Spark tries it up to `tries` times.

    Of linked tables the `branch` is the number of the one that it is on.
    """

    ask: Ask
    schema: Schema
    branch: int
    secrets: Secrets
    buckets: int
    by_content: bool
    tries: int

    def names(self, *, whole: bool = False) -> tuple[str, ...]:
        """The columns that are read: of rows that are known by their content (`whole`) all that they are."""
        person, own = self.schema.person, tuple(self.schema.columns) if whole else self.ask.columns
        if self.ask.tree is not None:
            return self.ask.tree.branches[self.branch].columns
        return self.ask.columns if person is None else (*own, person.column)

    def records(self, batches: Iterable[pl.DataFrame], number: int) -> Iterator[pl.DataFrame] | None:
        """Records of the part of this number, for rows of people to meet; None where rows are counted as they come."""
        person, ask = self.schema.person, self.ask
        if ask.tree is not None:
            rows = placed(batches, part_of(self.branch, number), by_content=self.by_content)
            made = partial(prepare, number=self.branch, ask=ask, secrets=self.secrets)
            return records_of(rows, owner_of(ask.tree.branches[self.branch]), made, self.secrets)
        if person is None:
            return None
        rows = placed(batches, number, by_content=self.by_content)
        return reduced(records_of(rows, person, ask.prepare, self.secrets), person.rows_per_person)


def open_spark(data: object, schema: Schema) -> SparkTable:
    """Files by path or address (or a list of them), or a Spark DataFrame: by its files where it is nothing but them."""
    if is_spark(data):
        files = files_of_frame(data)
        if files:
            # Executors may be unable to open the files: then Spark hands the rows over.
            with suppress(SklarError):
                table = SparkFiles(files, schema, name="the DataFrame")
                if set(data.columns) <= set(table.columns):
                    return table
        return SparkFrame(data, schema)
    if not isinstance(data, str | Path | list | tuple) or not data:
        raise DataError(f"engine 'spark' takes a path or a Spark DataFrame, got {type(data).__name__}.")
    return SparkFiles(data, schema)


class SparkTable(ABC):
    """A table that executors count. Which rows of a person count is decided once, by its own secrets."""

    name: str
    columns: tuple[str, ...]
    n_rows: int | None = None
    # A file that changes is refused.
    reads_again = True

    def __init__(self, schema: Schema, context: SparkContext) -> None:
        self.schema, self.context, self._secrets = schema, context, Secrets()

    def count(self, ask: Ask, *, progress: Progress = SILENT) -> Exact:
        """Exact answers about all rows, or about those that are chosen of each person."""
        answers = _count([self], ask, self._secrets, self.name)
        progress.advance(answers.n_rows)
        return answers

    @abstractmethod
    def pieces(self, work: Work, most: int) -> tuple[RDD[Piece] | None, int | None]:
        """The pieces of at most `most` tasks, None if there are no tasks, and the number of tasks if it is known."""


class SparkTree:
    """Linked tables that executors count. Which rows of a person count is decided once, by secrets of its own."""

    n_rows: int | None = None

    def __init__(self, data: object, tree: Tree) -> None:
        self.tables, self._secrets, self.name = list[SparkTable](), Secrets(), "the tables"
        for branch, table in zip(tree.branches, tables_of(data, tree).values(), strict=True):
            self.tables.append(open_spark(table, branch.schema))
            require_ids(self.tables[-1], branch)
        self.columns, self.reads_again = tuple(tree.joint.columns), all(each.reads_again for each in self.tables)

    def count(self, ask: Ask, *, progress: Progress = SILENT) -> Exact:
        """Exact answers about all people, whose number is not shown on the way."""
        del progress
        return _count(self.tables, ask, self._secrets, self.name)


def _count(tables: Sequence[SparkTable], ask: Ask, secrets: Secrets, name: str) -> Exact:
    """Exact answers about a table, or linked ones."""
    # The number of rows, and the cells of all tables.
    context, size = tables[0].context, 4 * (1 + sum(ask.sizes))
    at_once = TASKS_PER_CORE * int(context.defaultParallelism)
    # More tasks than this would send more partial counts than are worth it.
    most = min(max(MOST_SHUFFLED // size, at_once), _MOST_TASKS)
    records = sum((each.n_rows or 0) * (24 + 4 * len(each.columns)) for each in tables)
    # Each takes as long as a task, and fits in memory.
    facts: dict[str, Any] = {"buckets": max(at_once, -(-records // _BUCKET_BYTES)), "secrets": secrets, "ask": ask}
    with one_thread(context), failing(DataError, said("rows.spark_failed", name=name, kind="{kind}")):
        local = context.master.startswith("local[")
        facts["tries"] = 1 if local else int(context.getConf().get("spark.task.maxFailures", "4") or 4)
        found = []
        for branch, table in enumerate(tables):
            work = Work(schema=table.schema, branch=branch, by_content=isinstance(table, SparkFrame), **facts)
            found.append(table.pieces(work, most))
        tasks, parts = [pieces for pieces, _ in found if pieces is not None], found[0][1]
        if not tasks:
            return no_answers(ask)
        pieces = context.union(tasks)
        if ask.tree is not None or tables[0].schema.person is not None:
            gathered = pieces.partitionBy(work.buckets, int)
            pieces, parts = gathered.mapPartitionsWithIndex(partial(_count_chosen, work)), work.buckets
        # How many partitions a DataFrame has would take a job to find out.
        sent = size * (most if parts is None else parts)
        reducers = min(_n_keys(ask), at_once, max(-(-sent // _SUMMED_BYTES), len(ask.values), 1))
        sums = pieces.partitionBy(reducers, int).mapPartitions(add).collect()
    return join(sums, ask, parts)


class SparkFiles(SparkTable):
    """A table in files that executors open themselves."""

    def __init__(self, data: object, schema: Schema, name: str | None = None) -> None:
        super().__init__(schema, session().sparkContext)
        source, self._parts = open_files(data, schema)
        self.name, self.columns, self.n_rows = name or source.name, source.columns, source.n_rows
        self.explain = source.explain

    def pieces(self, work: Work, most: int) -> tuple[RDD[Piece] | None, int | None]:
        """Those of tasks that open files."""
        tasks = share_out(self._parts, self.schema, self.context.defaultParallelism, most)
        if not tasks:
            return None, 0
        spread = self.context.parallelize(list(enumerate(tasks)), len(tasks))
        return spread.flatMap(partial(_run_on_files, work)), len(tasks)


class SparkFrame(SparkTable):
    """A DataFrame whose rows Spark hands over. Its order may change: rows of people are known by their content."""

    def __init__(self, frame: DataFrame, schema: Schema) -> None:
        super().__init__(schema, frame.sparkSession.sparkContext)
        self._frame, self.name, self.columns = frame, "the DataFrame", tuple(frame.columns)
        require_different_names(self)
        self.reads_again = False
        with suppress(Exception):
            self.reads_again = bool(frame._jdf.queryExecution().analyzed().deterministic())

    def pieces(self, work: Work, most: int) -> tuple[RDD[Piece] | None, int | None]:
        """Those of the rows of partitions."""
        # Of a person's row all that it is, in every pass: its key follows from that.
        names = work.names(whole=True)
        # By position: Spark's names are blind to case, and may hold dots.
        frame = self._frame.toDF(*map(str, range(len(self.columns))))
        rows = frame.select(*(f"`{self.columns.index(name)}`" for name in names)).coalesce(most)
        sent = rows.mapInArrow(partial(_run_on_frames, work, names), "key long, number long, data binary").rdd
        return sent.map(lambda row: (row[0], (row[1], bytes(row[2])))), None


def _run_on_files(work: Work, numbered: tuple[int, list[Part]]) -> Iterator[Piece]:
    """A task in an executor, of parts of files."""
    (number, parts), names = numbered, work.names()
    return _run(work, number, chain.from_iterable(read_part(part, work.schema, names) for part in parts))


def _run_on_frames(work: Work, names: tuple[str, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task in an executor, of the rows of a partition."""
    import pyarrow as pa
    from pyspark import TaskContext

    context, schema = TaskContext.get(), work.schema
    places = {name: place for place, name in enumerate(names)}
    normalize = normalizer(schema.reading, schema) or (lambda frame: frame)
    frames = (normalize(frame_of(na.c_array(batch), places)) for batch in batches)
    kind = pa.schema([("key", pa.int64()), ("number", pa.int64()), ("data", pa.binary())])
    for key, (number, data) in _run(work, 0 if context is None else context.partitionId(), frames):
        yield pa.record_batch([[key], [number], [data]], schema=kind)


def _run(work: Work, number: int, batches: Iterable[pl.DataFrame]) -> Iterator[Piece]:
    """The pieces of a task. What it refuses becomes a piece, so that the driver can say it."""
    from pyspark import TaskContext

    try:
        # Spark runs a task per core.
        with using(1):
            yield from _task(work, number, batches)
    except SklarError as error:
        context = TaskContext.get()
        # A store may answer the next time; a file that changed stays changed.
        if not isinstance(error, ChangedError) and context is not None and context.attemptNumber() + 1 < work.tries:
            raise
        yield _REFUSAL, (number, str(error).encode())


def _task(work: Work, number: int, batches: Iterable[pl.DataFrame]) -> Iterator[Piece]:
    """Partial counts of some rows, or records of those that may be chosen, to where those of the same people are."""
    records = work.records(batches, number)
    if records is None:
        answers = count(batches, work.ask)
        # The number of partitions with rows is unknown for a DataFrame.
        if answers.n_rows or not work.by_content:
            yield from cut(answers, number)
        return
    for sent, frame in enumerate(records):
        for bucket, own in by_bucket(frame, work.buckets):
            # A number for every piece: a part sends several to a bucket.
            yield bucket, (part_of(work.branch, number) << 32 | sent, packed(own))


def _count_chosen(work: Work, bucket: int, pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Partial counts of the rows that are chosen in one bucket, and what tasks refused."""
    refusals: list[Piece] = []
    records = (frame for _, frame in _once(pieces, refusals, Counter()))
    with using(1):
        if work.ask.tree is not None:
            answers = count_people(records, ask=work.ask)
        else:
            chosen = choose(records, work.schema.person.rows_per_person if work.schema.person else 0)
            frames: Iterable[pl.DataFrame] = [] if chosen is None else chosen.iter_slices(batch_rows(chosen.width))
            answers = count(frames, replace(work.ask, chosen=True))
    yield from cut(answers, bucket)
    yield from refusals


def _n_keys(ask: Ask) -> int:
    """In how many pieces answers are summed, with one for each attribute whose domain is private."""
    return -(-(1 + sum(ask.sizes)) // RUN) + len(ask.values)


def cut(answers: Exact, number: int) -> Iterator[Piece]:
    """The answers of one part, in four bytes each where they hold them: no cell exceeds the number of rows, but
    tokens."""
    flat = np.concatenate([[answers.n_rows], *answers.tables])
    flat = flat.astype(np.uint32 if flat.max() < 2**32 else np.int64)
    frames = [pl.DataFrame({"times": flat[first : first + RUN]}) for first in range(0, flat.size, RUN)]
    frames += [histogram.frame() for histogram in answers.values]
    for key, frame in enumerate(frames):
        yield key, (number, packed(frame))


def add(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The sum of each key that came here, and of how many parts it is. What was refused passes."""
    held: dict[int, list[pl.DataFrame]] = {}
    refusals: list[Piece] = []
    parts = Counter[int]()
    for key, frame in _once(pieces, refusals, parts):
        frames = held.setdefault(key, [])
        frames.append(frame)
        # Merged as soon as they are as large as the sum: memory stays bounded, and no frame is added often.
        if sum(each.height for each in frames[1:]) > frames[0].height:
            frames[:] = [_added(frames)]
    for key, frames in held.items():
        yield key, (parts[key], packed(_added(frames)))
    yield from refusals


def _once(pieces: Iterable[Piece], refusals: list[Piece], parts: Counter[int]) -> Iterator[tuple[int, pl.DataFrame]]:
    """The frames of pieces, each number once for each key; counts them in `parts`, and collects refusals."""
    known: set[tuple[int, int]] = set()
    for key, (number, data) in pieces:
        if key == _REFUSAL:
            refusals.append((key, (number, data)))
        elif (key, number) not in known:
            known.add((key, number))
            parts[key] += 1
            yield key, pl.read_ipc(data)


def _added(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    if frames[0].columns == ["times"]:
        return pl.DataFrame({"times": np.sum([frame["times"].to_numpy() for frame in frames], axis=0, dtype=np.int64)})
    return pl.concat(frames).group_by("value").agg(pl.col("times").sum())


def join(sums: Sequence[Piece], ask: Ask, parts: int | None = None) -> Exact:
    """Exact from the sums of all keys, refused where a part is lacking in one; `parts` is how many there are."""
    refusals = sorted(data.decode() for key, (_, data) in sums if key == _REFUSAL)
    if refusals:
        raise DataError(refusals[0])
    if not sums and not parts:
        return no_answers(ask)
    keys, counted = sorted(key for key, _ in sums), {number for _, (number, _) in sums}
    # A part that is in some sums and not in others would be a table that no row was counted into once.
    if keys != list(range(_n_keys(ask))) or len(counted) != 1 or parts not in (None, *counted):
        raise DataError("Spark's partial counts do not add up. Nothing was released. Run it again.")
    frames = [pl.read_ipc(data) for _, (_, data) in sorted(sums)]
    runs = len(frames) - len(ask.values)
    flat = pl.concat(frames[:runs])["times"].to_numpy()
    values = tuple(map(Histogram, ask.values, frames[runs:]))
    ends = np.cumsum(ask.sizes)[:-1]
    tables = tuple(each.copy() for each in np.split(flat[1:], ends)) if ask.tables else ()
    return Exact(n_rows=int(flat[0]), tables=tables, values=values)
