"""Time both engines in turn, in one process and one session of Spark, so that whatever else runs here slows both.

    python -m benchmarks.turns TABLES.json OUT.json --master 'local[2]'

TABLES.json lists tables: a name, a source, a schema, how many passes are timed, and whether one goes through the JVM,
as a DataFrame that is not files: how every table went on Spark before executors opened files themselves.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from benchmarks.counting import digest
from sklar.files.write import write_text
from sklar.machine.extras import Engine, one_thread
from sklar.machine.threads import workers
from sklar.public.schema import Schema
from sklar.rows.count import ask_all
from sklar.rows.engines import open_table


def family_cpu_seconds() -> float:
    """CPU seconds of this process and of all that descend from it: Spark's Java and its Python workers."""
    used: dict[int, float] = {}
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
        # Of a process and of the children that it has waited for.
        used[int(folder.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def ours(process: int) -> bool:
        return process == os.getpid() or (process in parents and ours(parents[process]))

    return sum(seconds for process, seconds in used.items() if ours(process))


@contextmanager
def started(master: str) -> Iterator[tuple[Any, float]]:
    """A session of Spark, and how long its start took: with Python workers and compiled code."""
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
            .config("spark.local.dir", folder)
            .config("spark.executorEnv.PYTHONPATH", ":".join(path for path in sys.path if path))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        # The first task pays for Python workers and compiled code.
        with one_thread(session.sparkContext):
            session.sparkContext.parallelize(range(8), 8).foreach(_load)
        try:
            yield session, time.perf_counter() - wall
        finally:
            session.stop()


def in_turn(session: Any, table: Mapping[str, Any]) -> dict[str, Any]:
    """Wall and CPU seconds of every pass over one table; all must give the same counts. A pass before is not timed."""
    source, schema = Path(table["source"]), Schema.load(table["schema"])
    times: dict[str, list[float]] = {"local": [], "spark": [], "frame": []}
    cpu: dict[str, list[float]] = {way: [] for way in times}
    found: dict[str, int] = {}

    def timed(engine: Engine, data: object, way: str) -> None:
        wall, used = time.perf_counter(), family_cpu_seconds()
        counts = open_table(data, schema, engine=engine).count(ask_all(schema))
        times[way].append(time.perf_counter() - wall)
        cpu[way].append(family_cpu_seconds() - used)
        found[digest(counts)] = counts.n_rows

    load = os.getloadavg()[0]
    for _ in range(table["passes"] + 1):
        timed("local", source, "local")
        timed("spark", source, "spark")
    if table["through_jvm"]:
        frame = session.read.parquet(str(source))
        timed("spark", frame.union(frame.limit(0)), "frame")
    if len(found) != 1:
        raise click.ClickException("the engines do not agree: " + ", ".join(sorted(found)))
    for each in (times, cpu):
        # The first pass pays for what is loaded once.
        each["local"].pop(0)
        each["spark"].pop(0)
    ((counted, rows),) = found.items()
    return {"rows": rows, "digest": counted, "times": times, "cpu": cpu, "load": load}


def _load(_number: int) -> None:
    import sklar.rows.executors
    import sklar.rows.planes  # noqa: F401


@click.command(help=__doc__)
@click.argument("tables", type=click.Path(path_type=Path, exists=True))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
def main(tables: Path, out: Path, master: str) -> None:
    """Time all tables."""
    listed = json.loads(tables.read_text(encoding="utf-8"))
    with started(master) as (session, start):
        runs = {}
        for table in listed:
            runs[table["name"]] = run = in_turn(session, table)
            click.echo(f"{table['name']}: {json.dumps(run['times'])}", err=True)
    write_text(out, json.dumps({"start_seconds": start, "threads": workers(), "runs": runs}) + "\n")


if __name__ == "__main__":
    main()
