"""Time one pass over a table in a process of its own: exact counts of generated rows, by one engine.

    python -m benchmarks.counting FOLDER SCHEMA.toml OUT.json --engine spark --master 'local[2]'
    python -m benchmarks.counting FOLDER SCHEMA.toml OUT.json --engine both --passes 3

Prints how many rows it has counted so far, so that whoever started it can interrupt it in the middle.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from experiments.stopwatch import peak_bytes

from sklar.files.write import write_text
from sklar.kernel.count import Counts
from sklar.machine.cluster import Engine, one_thread
from sklar.machine.threads import using, workers
from sklar.public.schema import Schema
from sklar.rows.engines import open_table


class Told:
    """A `Progress` that prints how many rows are counted."""

    def __init__(self) -> None:
        self._rows, self.first = 0, 0

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """Say nothing."""

    def advance(self, steps: int) -> None:
        """Print how many rows are counted so far."""
        self._rows += steps
        self.first = self.first or steps
        click.echo(self._rows)


def digest(counts: Counts) -> str:
    """A text that is the same for equal counts and for no others."""
    parts = (str(counts.n_rows).encode(), counts.one_way.tobytes(), counts.pairs.tobytes())
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def cpu_seconds() -> float:
    """CPU seconds of this process and of the child processes that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def local(source: Path, schema: Schema, checkpoint: Path | None) -> dict[str, Any]:
    """Count by the threads of this process."""
    goes_on = checkpoint is not None and checkpoint.exists()
    told = Told()
    wall, cpu = time.perf_counter(), cpu_seconds()
    counts = open_table(source, schema, engine="local", checkpoint=checkpoint).count(schema, progress=told)
    return {
        "rows": counts.n_rows,
        "kept_rows": told.first if goes_on else 0,
        "digest": digest(counts),
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": cpu_seconds() - cpu,
        "peak_bytes": peak_bytes(),
    }


@contextmanager
def started(master: str) -> Iterator[tuple[Any, Path, float]]:
    """A session of Spark, where its event log goes, and how long its start took: with Python and compiled code."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        wall = time.perf_counter()
        session = (
            SparkSession.builder.master(master)
            .appName("sklar benchmark")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.network.timeout", "600s")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.eventLog.enabled", "true")
            .config("spark.eventLog.rolling.enabled", "false")
            .config("spark.eventLog.compress", "false")
            .config("spark.eventLog.dir", Path(folder).as_uri())
            .config("spark.local.dir", folder)
            .config("spark.executorEnv.PYTHONPATH", ":".join(path for path in sys.path if path))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        # The first task pays for Python workers and compiled code.
        with one_thread(session.sparkContext):
            session.sparkContext.parallelize(range(8), 8).foreach(_load)
        yield session, Path(folder), time.perf_counter() - wall


def on_spark(source: Path, schema: Schema, master: str, partitions: int | None) -> dict[str, Any]:
    """Count on Spark. The session's start is timed by itself; Spark's event log says what was shuffled.

    With `partitions`, rows come from a DataFrame that is not files: through the JVM.
    """
    with started(master) as (session, folder, start):
        wall = time.perf_counter()
        data = source if partitions is None else session.read.parquet(str(source)).repartition(partitions)
        counts = open_table(data, schema, engine="spark").count(schema)
        seconds = time.perf_counter() - wall
        session.stop()
        written, tasks = _shuffled(folder)
    return {
        "rows": counts.n_rows,
        "digest": digest(counts),
        "start_seconds": start,
        "seconds": seconds,
        "partial_bytes": written,
        "partials": tasks,
    }


def beside(source: Path, schema: Schema, master: str, passes: int, *, through_jvm: bool) -> dict[str, Any]:
    """Count here and on Spark in turn, so that whatever else runs on this machine slows both; all must agree.

    With `through_jvm`, once more as a DataFrame that is not files, which is how all tables went before.
    """
    times: dict[str, list[float]] = {"local": [], "spark": [], "frame": []}
    found: set[str] = set()

    def timed(engine: Engine, data: object, way: str) -> int:
        wall = time.perf_counter()
        counts = open_table(data, schema, engine=engine).count(schema)
        times[way].append(time.perf_counter() - wall)
        found.add(digest(counts))
        return counts.n_rows

    with started(master) as (session, _, start):
        for number in range(passes + 1):
            rows = timed("local", source, "local")
            timed("spark", source, "spark")
            if not number:
                # The first pass pays for what is loaded once.
                times["local"].clear()
                times["spark"].clear()
        if through_jvm:
            frame = session.read.parquet(str(source))
            timed("spark", frame.filter("true").union(frame.limit(0)), "frame")
        session.stop()
    if len(found) != 1:
        raise click.ClickException("the engines do not agree: " + ", ".join(sorted(found)))
    return {"rows": rows, "digest": found.pop(), "start_seconds": start, "times": times}


def _load(_number: int) -> None:
    import sklar.rows.planes
    import sklar.rows.spark  # noqa: F401


def _shuffled(folder: Path) -> tuple[int, int]:
    """Bytes and number of the partial counts that Spark shuffled to sum them, by the last stage that shuffled."""
    stages: dict[int, list[int]] = {}
    for log in folder.glob("local-*"):
        for line in log.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd" and event.get("Task Metrics"):
                written = event["Task Metrics"]["Shuffle Write Metrics"]["Shuffle Bytes Written"]
                if written:
                    stages.setdefault(event["Stage ID"], []).append(written)
    last = stages[max(stages)] if stages else []
    return sum(last), len(last)


@click.command(help=__doc__)
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@click.argument("schema", type=click.Path(path_type=Path, exists=True))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--engine", type=click.Choice(["local", "spark", "both"]), default="local", show_default=True)
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@click.option("--partitions", type=int, help="Through the JVM, in this many partitions.")
@click.option("--passes", type=click.IntRange(1), default=3, show_default=True, help="Of both engines in turn.")
@click.option("--through-jvm", is_flag=True, help="With both: once more through the JVM.")
@click.option("--checkpoint", type=click.Path(path_type=Path))
@click.option("--threads", type=int)
def main(
    *,
    source: Path,
    schema: Path,
    out: Path,
    engine: str,
    master: str,
    partitions: int | None,
    passes: int,
    through_jvm: bool,
    checkpoint: Path | None,
    threads: int | None,
) -> None:
    """Time one pass, or several of both engines."""
    described = Schema.load(schema)
    with using(threads):
        if engine == "local":
            found = local(source, described, checkpoint)
        elif engine == "spark":
            found = on_spark(source, described, master, partitions)
        else:
            found = beside(source, described, master, passes, through_jvm=through_jvm)
        found["threads"] = workers()
    write_text(out, json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
