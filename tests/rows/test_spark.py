"""Counts and rows on a real cluster of two executors: what can go wrong there, and must not be seen in a count."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
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
from sklar.budget.plan import TOKENS, sides_of
from sklar.cli import cli
from sklar.errors import DataError, OutputError
from sklar.files import spark as to_spark
from sklar.files.archive import load
from sklar.files.spark import write_on_spark
from sklar.kernel import vault as door
from sklar.public.schema import Schema
from sklar.release import fit
from sklar.rows import executors as on_spark
from sklar.rows import read
from sklar.rows.count import Ask, Exact, ask_all, count
from sklar.rows.engines import open_table
from sklar.rows.executors import SparkFiles, SparkFrame
from sklar.rows.read import open_source
from sklar.rows.trees import LocalTree
from tests.conftest import refuses
from tests.linked import deep, deep_tables
from tests.rows.test_count import answers_by, same, schema_of
from tests.rows.test_engines import SCHEMA, expected, table

pytestmark = pytest.mark.spark

ASK = ask_all(SCHEMA)


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


def count_and_kill(spark: Any, opened: Any, folder: Path) -> tuple[Exact, int]:
    """The answers of a table and the executor that died, with what it had done, once tasks beyond 0 and 1 had begun.

    Tasks note their numbers in `folder/attempts`; those beyond 0 and 1 wait until `folder/go` is there.
    """
    while len(executors(spark)) < 2:
        time.sleep(0.1)
    with ThreadPoolExecutor(1) as pool:
        counted = pool.submit(opened.count, ASK)
        while len({path.name.split(".")[0] for path in (folder / "attempts").iterdir()} - {"0", "1"}) < 2:
            assert not counted.done()
            time.sleep(0.05)
        victim = executors(spark)[0]
        os.kill(victim, signal.SIGKILL)
        (folder / "go").touch()
        return counted.result(), victim


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

    frame = through(spark.createDataFrame(rows).repartition(6), slowly)
    answers, victim = count_and_kill(spark, open_table(frame, SCHEMA), tmp_path)
    assert same(answers, expected(rows))
    assert len(list(attempts.iterdir())) > 6
    assert victim not in executors(spark)


def test_empty_and_skewed_partitions(spark: Any) -> None:
    rows = table(4000)
    frame = spark.createDataFrame(rows)
    # All rows but ten in one partition of several batches, ten in another, and many partitions without any.
    large, small = spark.createDataFrame(rows.slice(10)), spark.createDataFrame(rows.slice(0, 10))
    skewed = large.repartition(1).union(small.repartition(3)).union(frame.limit(0).repartition(5))
    assert skewed.rdd.getNumPartitions() >= 4
    assert same(open_table(skewed, SCHEMA).count(ASK), expected(rows))


def test_a_partition_is_many_batches(spark: Any) -> None:
    def batches(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"batches": [sum(1 for _ in parts)]})

    rows = table(4321)
    frame = spark.createDataFrame(rows).repartition(1)
    told = frame.select("code").mapInArrow(batches, "batches long").toArrow()
    assert told["batches"].to_pylist() == [5]
    assert same(open_table(frame, SCHEMA).count(ASK), expected(rows))


def test_tables_of_many_runs_are_put_together(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """More cells than are summed at once, and fewer tasks than partitions."""
    schema = schema_of([300, 2, 310, 5, 290])
    rng = np.random.default_rng(5)
    codes = np.stack([rng.integers(0, size, 2000) for size in schema.sizes]).astype(np.int32)
    rows = pa.table({f"a{i}": column for i, column in enumerate(codes)})
    monkeypatch.setattr(on_spark, "MOST_SHUFFLED", 1)
    frame, ask = spark.createDataFrame(rows).repartition(20), ask_all(schema)
    assert sum(ask.sizes) > 2 * on_spark.RUN
    assert same(open_table(frame, schema).count(ask), answers_by(codes, ask, compiled=False))


def test_noise_is_drawn_once_here_and_after_the_sum(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def draw(_scales: NDArray[np.float64], sizes: NDArray[np.int64], **_threads: int) -> NDArray[np.int64]:
        asked.append(int(sizes.sum()))
        return np.zeros(asked[-1], dtype=np.int64)

    monkeypatch.setitem(vars(door), "discrete_laplace", draw)
    rows = table(500)
    options: dict[str, Any] = {"epsilon": 1.0, "method": PAPER}
    there = fit(spark.createDataFrame(rows).repartition(7), SCHEMA, **options).measured.blocks
    here = fit(rows, SCHEMA, **options).measured.blocks
    assert asked == asked[:2] * 2
    assert there[0].values.tolist() == here[0].values.tolist() == expected(rows).one_way.tolist()
    assert there[1].values.tolist() == here[1].values.tolist()


PRIVATE = Schema.load(Path(__file__).with_name("private.toml"))


def people(rows: int = 900) -> pl.DataFrame:
    """Rows of which a person has up to five, some without an id, one person with very many of one odd city."""
    rng = np.random.default_rng(8)
    cities = np.array(["Bern", "Rome", "Oslo"])[rng.integers(0, 3, rows)].tolist()
    return pl.DataFrame(
        {
            "age": rng.integers(0, 100, rows),
            "id": [None if n % 50 == 0 else "odd" if n % 9 == 0 else f"p{n // 5}" for n in range(rows)],
            "city": ["odd" if n % 9 == 0 and n % 50 else city for n, city in enumerate(cities)],
            "flag": rng.integers(0, 2, rows).astype(bool),
        }
    )


@pytest.mark.parametrize("by_person", [True, False])
@pytest.mark.parametrize("way", ["files", "DataFrame"])
def test_private_domains_and_people_are_counted_in_executors(
    spark: Any, way: str, by_person: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "_LEAST_ROWS", 100)
    monkeypatch.setattr(read, "TASK_SECONDS", 1e-6)
    schema, rows = PRIVATE if by_person else replace(PRIVATE, person=None), people()
    rows.write_parquet(tmp_path / "t.parquet", row_group_size=100)
    data: Any = tmp_path / "t.parquet"
    if way == "DataFrame":
        data = spark.createDataFrame(rows.to_arrow()).repartition(5)
    table = open_table(data, schema, engine="spark")
    answers = table.count(Ask(values=tuple(schema.private_domains)))
    n_rows, (cities, ages) = answers.n_rows, answers.values
    times = Counter(own for own in rows["id"].to_list() if own is not None)
    wanted = sum(min(own, 2) for own in times.values()) + rows["id"].null_count() if by_person else 900
    assert n_rows == wanted == sum(cities.texts.values()) == int(ages.values()[1].sum())
    assert cities.texts["odd"] == (2 if by_person else (rows["city"] == "odd").sum())
    if not by_person:
        assert dict(cities.texts) == dict(Counter(rows["city"].to_list()))
        assert dict(zip(*(each.tolist() for each in ages.values()), strict=True)) == Counter(rows["age"].to_list())
    # A release to its end: few rows of one person let no city out.
    released = fit(data, schema, epsilon=8.0, engine="spark", method="mixture")
    found = released.schema.attribute("city").values
    assert set(found) == {"Bern", "Rome", "Oslo"} if by_person else {"Bern", "Rome", "Oslo"} <= set(found)


def test_linked_tables_meet_in_executors_and_are_drawn_there(spark: Any, tmp_path: Path) -> None:
    """With the same secrets the same tokens as here, also where not all rows of a person count; and the same rows."""
    tree, frames = deep(2), deep_tables(2_000)
    (tmp_path / "real").mkdir()
    for name, frame in frames.items():
        frame.write_parquet(tmp_path / "real" / f"{name}.parquet", row_group_size=500)
    here, there = LocalTree(tmp_path / "real", tree), on_spark.SparkTree(tmp_path / "real", tree)
    there._secrets = here._secrets
    sides = tuple(side.query for side in sides_of(tree))
    ask = replace(ask_all(tree.joint.measured, inside=True, sides=sides), tree=tree, each=TOKENS)
    found = [table.count(ask) for table in (here, there)]
    assert found[0].n_rows == found[1].n_rows == 2_000
    for one, two in zip(*(each.tables for each in found), strict=True):
        assert np.array_equal(one, two)
    model = fit(tmp_path / "real", tree, epsilon=3.0, engine="spark")
    write_on_spark(model, str(tmp_path / "drawn"), 700, seed=3)
    drawn: Any = model.sample(700, seed=3)
    for name, rows in drawn.items():
        assert pl.read_parquet(tmp_path / "drawn" / f"{name}.parquet").cast(rows.schema).equals(rows)


def test_a_dataframe_that_is_files_is_read_as_files(spark: Any, tmp_path: Path) -> None:
    rows = table(500)
    (tmp_path / "a b").mkdir()
    for number in range(2):
        pq.write_table(rows.slice(number * 250, 250), tmp_path / "a b" / f"{number}.parquet")
    frame = spark.read.parquet(str(tmp_path / "a b"))
    found = open_table(frame, SCHEMA)
    assert isinstance(found, SparkFiles)
    assert (found.name, found.n_rows) == ("the DataFrame", 500)
    assert same(found.count(ASK), expected(rows))
    optional = spark.read.option("pathGlobFilter", "0*").parquet(str(tmp_path / "a b"))
    views = [frame.filter("code = 1"), frame.limit(5), frame.union(frame), optional]
    assert all(isinstance(open_table(view, SCHEMA), SparkFrame) for view in views)
    half = open_table(frame.filter("code = 1"), SCHEMA).count(ASK)
    assert half.n_rows == rows["code"].to_pylist().count(1)


@pytest.mark.usefixtures("spark")
def test_files_by_address_and_files_that_changed(tmp_path: Path) -> None:
    rows = table(300)
    path = tmp_path / "t.parquet"
    pq.write_table(rows, path, row_group_size=100)
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    for scheme in ("file", "fsspec+file"):
        assert same(open_table(f"{scheme}://{path}", SCHEMA, engine="spark").count(ASK), expected(rows))
    opened = open_table(path, SCHEMA, engine="spark")
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match=rf"file '{path}' changed while the table was read. Nothing was released"):
        opened.count(ASK)
    path.write_bytes(path.read_bytes()[:-2000] + bytes(1990) + path.read_bytes()[-10:])
    refuses("is not a Parquet file", open_table, path, SCHEMA, engine="spark", error=DataError)


def test_an_executor_killed_while_it_reads_files_costs_its_own_parts_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of six parts two are counted and two are being counted when an executor dies with what it has done."""
    monkeypatch.setattr(read, "TASK_SECONDS", 1e-9)
    rows, attempts, go = table(1200), tmp_path / "attempts", tmp_path / "go"
    attempts.mkdir()
    (tmp_path / "t").mkdir()
    for number in range(6):
        pq.write_table(rows.slice(number * 200, 200), tmp_path / "t" / f"{number}.parquet")
    run = on_spark._run_on_files

    def slowly(work: Any, numbered: Any) -> Any:
        import uuid

        number = numbered[0]
        # A worker is forked by a process that its executor started.
        started = (Path("/proc") / str(os.getppid()) / "stat").read_text().rpartition(")")[2].split()[1]
        (attempts / f"{number}.{started}.{uuid.uuid4().hex}").touch()
        while number >= 2 and not go.exists():
            time.sleep(0.05)
        return run(work, numbered)

    monkeypatch.setattr(on_spark, "_run_on_files", slowly)
    answers, victim = count_and_kill(spark, open_table(tmp_path / "t", SCHEMA, engine="spark"), tmp_path)
    assert same(answers, expected(rows))
    made = [path.name.split(".")[:2] for path in attempts.iterdir()]
    assert {task for task, _ in made} == set("012345")
    assert len(made) > 6
    # What the other executor had counted was not counted again.
    assert max(Counter(task for task, started in made if started != str(victim)).values()) == 1


def test_what_spark_says_of_rows_is_not_repeated(spark: Any) -> None:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            raise ValueError(f"a secret: {batch.to_pylist()[0]}")
        yield from ()

    frame = spark.createDataFrame(table(10))
    with pytest.raises(DataError, match="Spark could not count the DataFrame") as caught:
        open_table(through(frame, fail), SCHEMA).count(ASK)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.usefixtures("spark")
def test_a_release_on_spark_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    rows = table(2000)
    for number in range(3):
        pq.write_table(rows.slice(number * 700, 700), shards / f"{number}.parquet")
    (tmp_path / "s.toml").write_text(SCHEMA.to_toml())
    out, model_path = tmp_path / "out.parquet", tmp_path / "out.sklar"
    options = ["--schema", str(tmp_path / "s.toml"), "--epsilon", "1", "--engine", "spark", "--method", "binary"]
    command = ["release", str(shards), *options, "--rows", "40000", "--seed", "3", "--out", str(out)]
    done = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert done.exit_code == 0
    model = load(model_path)
    assert model.n_rows == 2000
    wanted = model.sample(40_000, seed=3)
    written = [pl.read_parquet(path) for path in sorted(out.glob("part-*.parquet"))]
    assert len(written) > 1
    assert pl.concat(written).equals(wanted)
    names = [f"part-{number:05d}.parquet" for number in range(len(written))]
    assert sorted(path.name for path in out.iterdir()) == ["_SUCCESS", *names]
    again = CliRunner().invoke(cli, ["sample", str(model_path), "--engine", "spark", "--out", str(out)])
    assert isinstance(again.exception, OutputError)
    assert "exists already, and Spark replaces nothing" in str(again.exception)
    with pytest.raises(OutputError, match=r"must end in \.parquet: Spark writes a folder"):
        write_on_spark(model, str(tmp_path / "out.csv"))
    # By an address, and what cannot be written leaves nothing.
    write_on_spark(model, f"fsspec+file://{tmp_path}/there.parquet", 100, seed=3)
    assert pl.read_parquet(tmp_path / "there.parquet" / "part-00000.parquet").equals(model.sample(100, seed=3))
    with monkeypatch.context() as patch:
        patch.setattr(to_spark, "_write_part", lambda *_: 1)
        with pytest.raises(OutputError, match=r"Spark wrote 1 of 100 rows to '.*lost\.parquet'. Run it again"):
            write_on_spark(model, str(tmp_path / "lost.parquet"), 100, seed=3)
    assert not (tmp_path / "lost.parquet").exists()
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"Spark could not write '.*' \(NotADirectoryError\)"):
        write_on_spark(model, str(tmp_path / "file" / "x.parquet"), 100)


def test_a_wide_table_of_the_generator(spark: Any, tmp_path: Path) -> None:
    """Dictionaries become texts on Spark, small whole numbers wide ones: the codes are the same."""
    from sklar.generate import generate, schema_toml

    _, frames = generate("census", rows=3000, seed=1)
    pl.concat(frames).write_parquet(tmp_path / "census.parquet")
    schema = Schema.from_toml(schema_toml("census"))
    here = count(open_source(tmp_path / "census.parquet").batches(schema.names), ask_all(schema))
    assert same(open_table(tmp_path / "census.parquet", schema, engine="spark").count(ask_all(schema)), here)
