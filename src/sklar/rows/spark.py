"""The same counts computed on Spark, by the same kernels, where the rows are.

Each partition's rows become partial counts in an executor (`mapInArrow`); partial counts are cut into runs of cells,
and each run is summed over all partitions in an executor, so that neither the driver nor any executor holds more than
a few tables at once. Only the sum comes to the driver, and only there is noise drawn, once, by the vault: a task that
is repeated, or runs twice, repeats an exact count. What Spark keeps on the way (shuffle files, event logs, its own
checkpoints) is private: docs/scale.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from os import urandom
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import nanoarrow as na
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sklar.errors import DataError, SklarError
from sklar.kernel.cells import Cells
from sklar.kernel.count import Counts
from sklar.machine.cluster import is_spark, session
from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import using
from sklar.public.person import Person
from sklar.public.reading import PLAIN, Reading
from sklar.public.schema import Attribute, Schema
from sklar.rows.discover import Histogram
from sklar.rows.fast import count
from sklar.rows.folders import files_of
from sklar.rows.normalize import normalizer
from sklar.rows.read import unrepeated
from sklar.rows.streams import frame_of
from sklar.rows.text import DELIMITERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Cells that are summed together: a megabyte, so that they are well spread and no row is large.
_RUN = 1 << 17
_RUNS_AT_ONCE = 16
# Partial counts that are at most summed, in bytes: with more, neighboring partitions share one.
MOST_SHUFFLED = 1 << 34
TASKS_PER_CORE = 4
_RESULT = pa.schema([("run", pa.int64()), ("parts", pa.int64()), ("cells", pa.binary())])
_RESULT_DDL = "run long, parts long, cells binary"
_RAGGED = "_sklar_ragged"
_ID, _CONTENT, _NUMBER = "_sklar_id", "_sklar_content", "_sklar_number"
_KINDS = {*DELIMITERS, ".parquet", ".pq"}
_COMPRESSED = {".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate"}


class SparkTable:
    """A DataFrame, counted by the executors of its session."""

    def __init__(self, frame: DataFrame, name: str) -> None:
        self._frame, self.name, self.columns = frame, name, tuple(frame.columns)
        # Not known before a job has run.
        self.n_rows: int | None = None

    def count(self, schema: Schema, *, progress: Progress = SILENT) -> Counts:
        """Exact counts of all rows, or of those that are chosen of each person."""
        # By position: Spark's names are blind to case, and may hold dots.
        wanted = [str(self.columns.index(name)) for name in schema.names]
        frame = self._frame.toDF(*map(str, range(len(self.columns))))
        if schema.person is not None:
            frame = _chosen(frame, wanted, str(self.columns.index(schema.person.column)), schema.person, schema.reading)
        frame = frame.select(*(f"`{number}`" for number in wanted))
        context = frame.sparkSession.sparkContext
        length = _length(schema.cells)
        most = max(MOST_SHUFFLED // (8 * length), TASKS_PER_CORE * context.defaultParallelism)
        try:
            partials = frame.coalesce(most).mapInArrow(partial(_count_part, schema.to_toml()), _RESULT_DDL)
            reducers = min(-(-length // _RUN), TASKS_PER_CORE * context.defaultParallelism)
            summed = partials.repartition(reducers, "run").mapInArrow(_add_parts, _RESULT_DDL).toArrow()
        except SklarError:
            raise
        except Exception as error:
            # What Spark says may quote a cell of the table.
            raise DataError(
                f"Spark could not count {self.name} ({type(error).__name__}). Nothing was released. Spark's own logs, "
                "which are private, say why."
            ) from None
        counts = _put_together(summed, schema)
        progress.advance(counts.n_rows)
        return counts

    def count_values(
        self, attributes: Sequence[Attribute], *, progress: Progress = SILENT
    ) -> tuple[int, list[Histogram]]:
        """Not on Spark: the values that occur would have to be brought together."""
        del progress
        raise DataError(
            f"the domain of '{attributes[0].name}' is private, and engine 'spark' needs public ones. State it in the "
            "schema, find it with engine 'local' on a machine, or leave the attribute out."
        )


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


def open_spark(data: object, reading: Reading = PLAIN) -> SparkTable:
    """A Spark DataFrame, or a path that Spark can read: CSV, TSV or Parquet, a file or a folder, on any file system.

    `reading` says how text files are written; Spark's are in UTF-8.
    """
    if is_spark(data):
        return unrepeated(SparkTable(data, "the DataFrame"))
    if not isinstance(data, str | Path):
        raise DataError(f"engine 'spark' takes a path or a Spark DataFrame, got {type(data).__name__}.")
    path = str(data)
    if reading.encoding != "utf-8":
        raise DataError(
            f"engine 'spark' reads UTF-8 files, and [table] says encoding = '{reading.encoding}'. Convert the files "
            "(for example with iconv), or use engine 'local'."
        )
    if Path(path).is_dir():
        # Spark would count a file under two names twice.
        files_of(Path(path))
    spark = session()
    try:
        frame = _read(spark, path, reading)
    except SklarError:
        raise
    except Exception as error:
        raise DataError(f"Spark cannot read '{path}' ({type(error).__name__}). Check the path and format.") from None
    return unrepeated(SparkTable(frame, f"'{path}'"))


def _read(spark: Any, path: str, reading: Reading) -> DataFrame:
    from pyspark.sql import functions
    from pyspark.sql.types import StringType, StructField, StructType

    kind = _kind(path)
    if kind not in _KINDS:
        kind = _kind_of_folder(spark, path)
    if kind not in DELIMITERS:
        return spark.read.parquet(path)
    options: dict[str, Any] = {
        "sep": reading.delimiter or DELIMITERS[kind],
        "header": reading.header,
        "quote": reading.quote,
        # As the local engine reads: quotes are doubled, values may hold line ends, nothing is guessed or cut.
        "escape": reading.quote or '"',
        "multiLine": True,
        "inferSchema": False,
        "maxCharsPerColumn": -1,
        "columnPruning": False,
    }
    names = reading.columns or tuple(spark.read.options(**options).csv(path).columns)
    fields = [StructField(str(number), StringType()) for number in range(len(names))]
    described = StructType([*fields, StructField(_RAGGED, StringType())])
    options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _RAGGED}
    rows = spark.read.options(**options).schema(described).csv(path)
    # A ragged row is still a row of the table: its values are unknown, its number counts.
    whole = functions.col(_RAGGED).isNull()
    kept = [functions.when(whole, functions.col(f"`{field.name}`")) for field in fields]
    return rows.select(*kept).toDF(*names)


def _kind(path: str) -> str:
    suffixes = [suffix.lower() for suffix in PurePosixPath(path).suffixes]
    return suffixes[-2] if len(suffixes) > 1 and suffixes[-1] in _COMPRESSED else "".join(suffixes[-1:])


def _kind_of_folder(spark: Any, path: str) -> str:
    """The suffix of a folder's files, which agree."""
    files = spark.read.format("binaryFile").option("recursiveFileLookup", True).load(path).select("path")  # noqa: FBT003
    kinds = {_kind(row.path) for row in files.collect()}
    if len(kinds) != 1 or not kinds <= _KINDS:
        raise DataError(f"the files of '{path}' must all be .csv, all .tsv or all .parquet.")
    return kinds.pop()


def _length(cells: Cells) -> int:
    """How many numbers partial counts are: the number of rows, the one-way cells, the two-way cells."""
    return 1 + cells.n_levels + cells.n_cells


def _count_part(schema_toml: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Partial counts of one partition, in an executor: nothing for no rows, else all of them, run by run."""
    schema = Schema.from_toml(schema_toml)
    # Spark runs a task per core.
    with using(1):
        places = {name: place for place, name in enumerate(schema.names)}
        frames = (frame_of(na.c_array(batch), places) for batch in batches)
        normalize = normalizer(schema.reading, schema)
        counts = count(map(normalize, frames) if normalize else frames, schema)
    if not counts.n_rows:
        return
    flat = np.concatenate([[counts.n_rows], counts.one_way, counts.pairs])
    del counts
    runs = {run: flat[first : first + _RUN] for run, first in enumerate(range(0, flat.size, _RUN))}
    yield from _rows(runs, dict.fromkeys(runs, 1))


def _add_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The sums of the runs of cells that came to one executor, and of how many parts they are."""
    runs: dict[int, NDArray[np.int64]] = {}
    parts: dict[int, int] = {}
    for batch in batches:
        for run, times, cells in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            part = np.frombuffer(cells, dtype="<i8")
            parts[run] = parts.get(run, 0) + times
            if run in runs:
                runs[run] += part
            else:
                runs[run] = part.astype(np.int64)
    yield from _rows(runs, parts)


def _rows(runs: dict[int, NDArray[np.int64]], parts: dict[int, int]) -> Iterator[pa.RecordBatch]:
    numbers = list(runs)
    for first in range(0, len(numbers), _RUNS_AT_ONCE):
        some = numbers[first : first + _RUNS_AT_ONCE]
        cells = [runs[run].astype("<i8").tobytes() for run in some]
        yield pa.record_batch([some, [parts[run] for run in some], cells], schema=_RESULT)


def _put_together(summed: pa.Table, schema: Schema) -> Counts:
    flat = np.zeros(_length(schema.cells), dtype=np.int64)
    runs, parts = summed["run"].to_pylist(), summed["parts"].to_pylist()
    # A part that is in some sums and not in others would be a table that no row was counted into once.
    if runs and (sorted(runs) != list(range(-(-flat.size // _RUN))) or len(set(parts)) != 1):
        raise DataError("Spark's partial counts do not add up. Nothing was released. Run it again.")
    for run, cells in zip(runs, summed["cells"], strict=True):
        flat[run * _RUN : (run + 1) * _RUN] = np.frombuffer(cells.as_buffer(), dtype="<i8")
    levels = schema.n_levels
    return Counts(n_rows=int(flat[0]), one_way=flat[1 : 1 + levels].copy(), pairs=flat[1 + levels :].copy())
