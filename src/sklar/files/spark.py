"""Rows of a model drawn on Spark: every block where there is room for it, the same rows as on one machine.

A block depends on the model, the seed and its number alone, so that it does not matter which executor draws it, or
whether it is drawn again. The model is public: it may lie on every executor's disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from sklar.draw.sample import BlockSampler, check_draw
from sklar.errors import OutputError
from sklar.files.archive import load
from sklar.files.frames import arrow_schema, to_arrow
from sklar.files.model import Model
from sklar.machine.cluster import session
from sklar.machine.threads import using

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Broadcast
    from pyspark.sql import DataFrame

# A file of about a million rows.
_BLOCKS_PER_PART = 64


def sample_on_spark(model: Model, rows: int | None = None, *, seed: int | None = None) -> DataFrame:
    """The rows of `model.sample(rows, seed=seed)` as a Spark DataFrame; its partitions hold them in order."""
    from pyspark.sql.pandas.types import from_arrow_schema

    rows, seed = check_draw(rows, seed)
    rows = model.n_rows if rows is None else rows
    spark = session()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.sklar"
        model.save(path)
        # Fetched once by every executor, for as long as the DataFrame is in use.
        shipped = spark.sparkContext.broadcast(path.read_bytes())
    described = from_arrow_schema(_spark_types(model), prefer_timestamp_ntz=True)
    numbers = sum(1 for _ in BlockSampler(model.copula, seed).blocks(rows))
    parts = max(-(-numbers // _BLOCKS_PER_PART), min(numbers, spark.sparkContext.defaultParallelism))
    return spark.range(0, numbers, 1, parts).mapInArrow(partial(_draw_part, shipped, rows, seed), described)


def write_on_spark(model: Model, path: str, rows: int | None = None, *, seed: int | None = None) -> None:
    """Draw rows straight into a folder of Parquet files, wherever Spark can write."""
    check_folder(path)
    drawn = sample_on_spark(model, rows, seed=seed)
    try:
        drawn.write.parquet(path)
    except Exception as error:
        raise OutputError(
            f"Spark could not write '{path}' ({type(error).__name__}). Choose a path that does not exist yet, where "
            "its executors may write."
        ) from None


def check_folder(path: str) -> None:
    """Refuse, before any work is done, a path that Spark would not write to."""
    if not path.lower().endswith(".parquet"):
        raise OutputError(f"'{path}' must end in .parquet: Spark writes a folder of Parquet files.")
    if Path(path).exists():
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
                drawn = to_arrow(sampler.draw(block), None if model.dummies else model.schema)
                yield from drawn.cast(described).to_batches()


@lru_cache(maxsize=1)
def _sampler(model: bytes, seed: int) -> tuple[Model, BlockSampler]:
    """Made once by a Python worker, which draws many parts."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.sklar"
        path.write_bytes(model)
        loaded = load(path)
        return loaded, BlockSampler(loaded.copula, seed, shapes=loaded.shapes)
