"""Counts and rows on a real cluster of two executors: what can go wrong there, and must not be seen in a count."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from sklar.budget.method import PAPER
from sklar.cli import cli
from sklar.errors import DataError, OutputError
from sklar.files.archive import load
from sklar.files.spark import write_on_spark
from sklar.kernel import vault as door
from sklar.kernel.count import count_plainly
from sklar.public.schema import Schema
from sklar.release import fit
from sklar.rows import sums, tasks
from sklar.rows.engines import open_table
from sklar.rows.fast import count
from sklar.rows.read import open_source
from tests.rows.test_engines import SCHEMA, expected, table
from tests.rows.test_fast import same, schema_of

pytestmark = pytest.mark.spark


def through(frame: Any, work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> Any:
    """The table after `work` in its executors; under plain names, as mapInArrow itself takes no others."""
    plain = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    return plain.mapInArrow(work, plain.schema).toDF(*frame.columns)


def executors(spark: Any) -> list[int]:
    """Processes of this session's executors."""
    mark = spark.sparkContext.applicationId.encode()
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark in command and b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in command:
                found.append(int(process.name))
    return found


def test_an_executor_killed_in_the_middle_changes_no_count(spark: Any, tmp_path: Path) -> None:
    """Two partitions of six are counted, two are being counted, when an executor dies with what it has done."""
    rows = table(3000)
    attempts, go = tmp_path / "attempts", tmp_path / "go"
    attempts.mkdir()

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import uuid

        from pyspark import TaskContext

        part = TaskContext.get().partitionId()
        (attempts / f"{part}.{uuid.uuid4().hex}").touch()
        while part >= 2 and not go.exists():
            time.sleep(0.05)
        yield from batches

    frame = spark.createDataFrame(rows).repartition(6)
    frame = through(frame, slowly)
    victims = executors(spark)
    assert len(victims) == 2
    with ThreadPoolExecutor(1) as pool:
        counted = pool.submit(open_table(frame, SCHEMA).count, SCHEMA)
        while len({path.name.split(".")[0] for path in attempts.iterdir()} - {"0", "1"}) < 2:
            assert not counted.done()
            time.sleep(0.05)
        os.kill(victims[0], signal.SIGKILL)
        go.touch()
        assert same(counted.result(), expected(rows))
    assert len(list(attempts.iterdir())) > 6
    assert victims[0] not in executors(spark)


def test_empty_and_skewed_partitions(spark: Any) -> None:
    rows = table(4000)
    frame = spark.createDataFrame(rows)
    # All rows but ten in one partition of several batches, ten in another, and many partitions without any.
    large, small = spark.createDataFrame(rows.slice(10)), spark.createDataFrame(rows.slice(0, 10))
    skewed = large.repartition(1).union(small.repartition(3)).union(frame.limit(0).repartition(5))
    assert skewed.rdd.getNumPartitions() >= 4
    assert same(open_table(skewed, SCHEMA).count(SCHEMA), expected(rows))


def test_a_partition_is_many_batches(spark: Any) -> None:
    def batches(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"batches": [sum(1 for _ in parts)]})

    rows = table(4321)
    frame = spark.createDataFrame(rows).repartition(1)
    told = frame.select("code").mapInArrow(batches, "batches long").toArrow()
    assert told["batches"].to_pylist() == [5]
    assert same(open_table(frame, SCHEMA).count(SCHEMA), expected(rows))


def test_tables_of_many_runs_are_put_together(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """More cells than are summed at once, and fewer tasks than partitions."""
    schema = schema_of([300, 2, 310, 5, 290])
    rng = np.random.default_rng(5)
    codes = np.stack([rng.integers(0, size, 2000) for size in schema.sizes]).astype(np.int32)
    rows = pa.table({f"a{i}": column for i, column in enumerate(codes)})
    monkeypatch.setattr(tasks, "MOST_SHUFFLED", 1)
    frame = spark.createDataFrame(rows).repartition(20)
    assert sums.runs_of(schema.cells) > 2
    assert same(open_table(frame, schema).count(schema), count_plainly(codes, schema.cells))


def test_parts_that_do_not_add_up_are_refused() -> None:
    schema = schema_of([300, 300, 300])
    for parts in ({0: 2, 1: 2, 2: 1}, {0: 1, 1: 1}):
        with pytest.raises(DataError, match="partial counts do not add up"):
            sums.join_counts([(run, number, b"") for run, number in parts.items()], schema)


def test_noise_is_drawn_once_here_and_after_the_sum(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def draw(_scales: NDArray[np.float64], sizes: NDArray[np.int64], **_threads: int) -> NDArray[np.int64]:
        asked.append(int(sizes.sum()))
        return np.zeros(asked[-1], dtype=np.int64)

    monkeypatch.setitem(vars(door), "discrete_laplace", draw)
    rows = table(500)
    options: dict[str, Any] = {"epsilon": 1.0, "method": PAPER}
    there = fit(spark.createDataFrame(rows).repartition(7), SCHEMA, **options).measured.stages[0]
    here = fit(rows, SCHEMA, **options).measured.stages[0]
    assert asked == [asked[0]] * 2
    assert there.one_way.tolist() == here.one_way.tolist() == expected(rows).one_way.tolist()
    assert there.pairs.tolist() == here.pairs.tolist()


def test_private_domains_are_refused(spark: Any) -> None:
    schema = Schema.from_dict(
        {"table": {"name": "t"}, "attributes": {"city": {"type": "categorical", "domain": "private", "at_most": 5}}}
    )
    with pytest.raises(DataError, match="the domain of 'city' is private, and engine 'spark' needs public ones"):
        fit(spark.createDataFrame(table(10)), schema, epsilon=1.0)


def test_what_spark_says_of_rows_is_not_repeated(spark: Any) -> None:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            raise ValueError(f"a secret: {batch.to_pylist()[0]}")
        yield from ()

    frame = spark.createDataFrame(table(10))
    with pytest.raises(DataError, match="Spark could not count the DataFrame") as caught:
        open_table(through(frame, fail), SCHEMA).count(SCHEMA)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.usefixtures("spark")
def test_a_release_on_spark_from_the_command_line(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    rows = table(2000)
    for number in range(3):
        pq.write_table(rows.slice(number * 700, 700), shards / f"{number}.parquet")
    (tmp_path / "s.toml").write_text(SCHEMA.to_toml())
    out, model_path = tmp_path / "out.parquet", tmp_path / "out.sklar"
    options = ["--schema", str(tmp_path / "s.toml"), "--epsilon", "1", "--engine", "spark", "--method", "mixture"]
    command = ["release", str(shards), *options, "--rows", "40000", "--seed", "3", "--out", str(out)]
    done = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert done.exit_code == 0
    model = load(model_path)
    assert model.n_rows == 2000
    wanted = model.sample(40_000, seed=3)
    parts = [pl.read_parquet(path) for path in sorted(out.glob("part-*.parquet"))]
    assert len(parts) > 1
    assert pl.concat(parts).cast(wanted.schema).equals(wanted)
    again = CliRunner().invoke(cli, ["sample", str(model_path), "--engine", "spark", "--out", str(out)])
    assert isinstance(again.exception, OutputError)
    assert "exists already, and Spark replaces nothing" in str(again.exception)
    with pytest.raises(OutputError, match=r"must end in \.parquet: Spark writes a folder"):
        write_on_spark(model, str(tmp_path / "out.csv"))


def test_a_wide_table_of_the_generator(spark: Any, tmp_path: Path) -> None:
    """Dictionaries become texts on Spark, small whole numbers wide ones: the codes are the same."""
    from sklar.generate import generate, schema_toml

    _, frames = generate("census", rows=3000, seed=1)
    pl.concat(frames).write_parquet(tmp_path / "census.parquet")
    schema = Schema.from_toml(schema_toml("census"))
    here = count(open_source(tmp_path / "census.parquet").batches(schema.names), schema)
    assert same(open_table(tmp_path / "census.parquet", schema, engine="spark").count(schema), here)
