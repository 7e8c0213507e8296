"""Rows of a model drawn on Spark: every block where there is room for it, the same rows as on one machine.

A block depends on the model, the seed and its number alone: it does not matter which executor draws it, or whether it
is drawn again. Executors write files themselves; only a DataFrame of rows crosses the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from shutil import copyfile, rmtree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sklar.draw.sample import check_draw
from sklar.errors import ModelError, OutputError
from sklar.files.archive import load
from sklar.files.model import Model, TreeModel
from sklar.files.write import arrow_schema, replacing, to_arrow, write_frames, write_tables
from sklar.machine.extras import one_thread, session
from sklar.machine.stores import Remote, place_of
from sklar.machine.threads import using
from sklar.machine.wording import failing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Broadcast
    from pyspark.sql import DataFrame

# About how many rows a file has at most.
_PART_ROWS = 1 << 20


def sample_on_spark(model: Model, rows: int | None = None, *, seed: int | None = None) -> DataFrame:
    """The rows of `model.sample(rows, seed=seed)` as a Spark DataFrame; its partitions hold them in order."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if isinstance(model, TreeModel):
        raise ModelError("a DataFrame holds one table, and the model is of several. Write them: write_on_spark.")
    shipped, rows, seed, ranges = _prepare(model, rows, seed)
    described = from_arrow_schema(_spark_types(model), prefer_timestamp_ntz=True)
    numbers = session().range(0, ranges[-1][1], 1, len(ranges))
    return numbers.mapInArrow(partial(_draw_part, shipped, rows, seed), described)


def _prepare(
    model: Model, rows: int | None, seed: int | None
) -> tuple[Broadcast[bytes], int, int, list[tuple[int, int]]]:
    """The model's file, fetched once by every executor; rows, seed, and the first and the end of each file's blocks."""
    rows, seed = check_draw(rows, seed)
    rows, context = model.n_rows if rows is None else rows, session().sparkContext
    numbers = sum(1 for _ in model.sampler(seed).blocks(rows))
    parts = min(numbers, max(-(-rows // _PART_ROWS), int(context.defaultParallelism)))
    ranges = [(numbers * part // parts, numbers * (part + 1) // parts) for part in range(parts)]
    with TemporaryDirectory() as folder:
        model.save(path := Path(folder) / "model.sklar")
        return context.broadcast(path.read_bytes()), rows, seed, ranges


def write_on_spark(model: Model, path: str, rows: int | None = None, *, seed: int | None = None) -> None:
    """Draw rows straight into a folder of Parquet files, by the executors, wherever they can write.

    A file is there whole or not at all, whichever task wrote it; `_SUCCESS`, as Spark leaves it, says that all are. Of
    linked tables each has a folder of its own in it, and public ones a file.
    """
    check_folder(path, tables=isinstance(model, TreeModel))
    shipped, rows, seed, ranges = _prepare(model, rows, seed)
    context, place = session().sparkContext, place_of(path)
    place = place.absolute() if isinstance(place, Path) else place
    remedy = "Choose a path that does not exist yet, where its executors may write."
    failed = f"Spark could not write '{path}' ({{kind}}). {remedy}"
    with failing(OutputError, failed):
        place.mkdir(parents=True) if isinstance(place, Path) else place.make_folder()
    # From here on the folder is this run's, to fill or to remove.
    try:
        with failing(OutputError, failed), one_thread(context):
            work = partial(_write_part, shipped, rows, seed, str(place))
            inner = [place / f"{name}.parquet" for name in model.columns if isinstance(model, TreeModel)]
            for own in inner:
                own.mkdir() if isinstance(own, Path) else own.make_folder()
            written = sum(context.parallelize(list(enumerate(ranges)), len(ranges)).map(work).collect())
            if written != rows:
                raise OutputError(f"Spark wrote {written:,} of {rows:,} rows to '{path}'. Run it again.")
            with (place / "_SUCCESS").open("wb"):
                pass
    except BaseException:
        with suppress(Exception):
            rmtree(place) if isinstance(place, Path) else place.remove_folder()
        raise


def _write_part(
    shipped: Broadcast[bytes], rows: int, seed: int, folder: str, numbered: tuple[int, tuple[int, int]]
) -> int:
    """Draw and write one file, in an executor; how many rows it has."""
    number, (first, last) = numbered
    model, sampler = _sampler(shipped.value, seed, enums=True)
    place, part, blocks = place_of(folder), f"part-{number:05d}.parquet", list(sampler.blocks(rows, first, last))
    # Spark runs a task per core.
    with using(1), TemporaryDirectory() as scratch:
        drawn: Any = map(sampler.draw, blocks)
        if isinstance(model, TreeModel):
            write_tables(Path(scratch), model.tree, sampler.columns, drawn, shown=model.columns, kind="parquet")
            public = [f"{each.name}.parquet" for each in model.tree.lookups]
            for made in Path(scratch).iterdir():
                if made.name not in public or not number:
                    _put(made, place / made.name if made.name in public else place / made.name / part)
        else:
            own = Path(scratch) / part
            write_frames(own, sampler.columns, drawn, model._described, shown=model.columns)
            _put(own, place / part)
    return sum(size for _, size in blocks)


def _put(made: Path, target: Path | Remote) -> None:
    """Bring a file to its place, whole or not at all."""
    if not isinstance(target, Path):
        target.put(made)
        return
    with replacing(target) as temporary:
        copyfile(made, temporary)


def check_folder(path: str, *, tables: bool = False) -> None:
    """Refuse, before any work is done, a path that Spark would not write to."""
    if not tables and not path.lower().endswith(".parquet"):
        raise OutputError(f"'{path}' must end in .parquet: Spark writes a folder of Parquet files.")
    place = place_of(path)
    if bool(place.files()) if isinstance(place, Remote) else place.exists():
        raise OutputError(f"'{path}' exists already, and Spark replaces nothing. Remove it, or choose another.")


def _spark_types(model: Model) -> pa.Schema:
    """The types of a model's columns, without unsigned ones, which Spark does not have."""
    import pyarrow as pa

    if model.dummies:
        return pa.schema([(name, pa.int16()) for name in model.columns])
    schema = arrow_schema(model.schema)
    return pa.schema([(field.name, pa.int16() if pa.types.is_uint8(field.type) else field.type) for field in schema])


def _draw_part(
    shipped: Broadcast[bytes], rows: int, seed: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    model, sampler = _sampler(shipped.value, seed)
    described = _spark_types(model)
    # Spark runs a task per core.
    with using(1):
        for batch in batches:
            for number in batch.column(0).to_pylist():
                (block,) = sampler.blocks(rows, number, number + 1)
                drawn = to_arrow(sampler.draw(block), model._described)
                yield from drawn.cast(described).to_batches()


@lru_cache(maxsize=1)
def _sampler(model: bytes, seed: int, *, enums: bool = False) -> tuple[Model, Any]:
    """Made once by a Python worker, which draws many parts. `enums` is for files, as one machine writes them."""
    with TemporaryDirectory() as folder:
        (path := Path(folder) / "model.sklar").write_bytes(model)
        loaded = load(path)
        return loaded, loaded.sampler(seed, enums=enums)
