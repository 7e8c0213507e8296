"""Counting tables that are larger than memory, or than one machine, by every engine. Only counting sees rows.

    python -m benchmarks.scale --rows 50_000_000 --shards 64 --page

A folder of shards of the DSS-like table is counted by a fresh process, and by a process that is killed in the middle
and a second one that goes on; then here and on Spark in turn (`benchmarks.turns`), with fewer rows and more columns, up
to a million rows of 1,000 booleans, and once through the JVM. All must give the same counts. Runs are kept in the work
folder and not repeated while the source of counting is the same; `--fresh` repeats all. Run it on an idle machine, with
Java 17 for Spark.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from experiments.stopwatch import machine

from benchmarks import pages
from benchmarks.pages import RESULTS, ROOT, SRC
from benchmarks.shapes import prepare
from experiments import record
from sklar.files.write import write_frames, write_text
from sklar.generate import generate, schema_toml
from sklar.machine.threads import workers
from sklar.public.schema import Schema
from sklar.rows.executors import MOST_SHUFFLED, TASKS_PER_CORE
from sklar.rows.read import TASK_SECONDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORK = ROOT / "build" / "scale"
ATTRIBUTES = (125, 250, 500, 1000)
# The cores of the cluster that costs are computed for.
CORES = 400


def shards(rows: int, count: int, work: Path, *, shape: str = "dss", part: int = 0) -> tuple[Path, Path]:
    """A folder of shards of a part of a generated table and its schema, made once."""
    folder, schema = work / f"{shape}.{rows}.{count}{f'.{part}' if part else ''}", work / f"{shape}.toml"
    write_text(schema, schema_toml(shape))
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path = folder / f"{number:04d}.parquet"
        share = rows * (number + 1) // count - rows * number // count
        if path.exists() or not share:
            continue
        columns, frames = generate(shape, rows=share, seed=count * part + number)
        write_frames(path, columns, frames, None)
    return folder, schema


def some_of(folder: Path, part: int, work: Path) -> Path:
    """A folder with links to every `part`-th shard."""
    target = work / f"{folder.name}.part{part}"
    target.mkdir(exist_ok=True)
    for path in sorted(folder.glob("*.parquet"))[::part]:
        if not (target / path.name).exists():
            os.link(path, target / path.name)
    return target


def counted(source: Path, schema: Path, out: Path, *, fresh: bool = False, **options: Any) -> dict[str, Any]:
    """One pass in a process of its own, kept in `out`."""
    if not fresh and out.exists():
        kept: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        if kept.get("source") == SRC:
            return kept
    load = os.getloadavg()[0]
    subprocess.run(_command(source, schema, out, options), check=True, cwd=ROOT, stdout=subprocess.DEVNULL)  # noqa: S603
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) | {"source": SRC, "load": load}
    write_text(out, json.dumps(found) + "\n")
    return found


def _command(source: Path, schema: Path, out: Path, options: Mapping[str, Any]) -> list[str]:
    given = [text for name, value in options.items() if value is not None for text in (f"--{name}", str(value))]
    return [sys.executable, "-m", "benchmarks.counting", str(source), str(schema), str(out), *given]


def taken_in_turn(tables: Sequence[Mapping[str, Any]], out: Path, master: str, *, fresh: bool) -> dict[str, Any]:
    """Both engines over these tables, in one process, kept in `out`."""
    listed = [dict(table) for table in tables]
    if not fresh and out.exists():
        kept: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        if kept.get("source") == SRC and kept.get("tables") == listed:
            return kept
    asked = out.with_suffix(".tables.json")
    write_text(asked, json.dumps(listed) + "\n")
    command = [sys.executable, "-m", "benchmarks.turns", str(asked), str(out), "--master", master]
    subprocess.run(command, check=True, cwd=ROOT)  # noqa: S603
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) | {"source": SRC, "tables": listed}
    write_text(out, json.dumps(found) + "\n")
    return found


def interrupted(source: Path, schema: Path, out: Path, rows: int, *, fresh: bool, **options: Any) -> dict[str, Any]:
    """A pass that is killed when half of the rows are counted, and the pass that goes on."""
    checkpoint = out.with_suffix(".checkpoint")
    if fresh or not out.exists():
        shutil.rmtree(checkpoint, ignore_errors=True)
        command = _command(source, schema, out, {**options, "checkpoint": checkpoint})
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
            for line in process.stdout or ():
                if int(line) >= rows // 2:
                    process.send_signal(signal.SIGKILL)
                    break
    return counted(source, schema, out, fresh=fresh, checkpoint=checkpoint, **options)


def on_paper(
    *, rows: int, attributes: int, levels: int, cores: int, rate: float, cell_bytes: float
) -> dict[str, float]:
    """What counting costs on a cluster, from sizes and from what was measured of one core.

    `rate` is the number of pairs of attributes that a core counts in a second, for one row; `cell_bytes` is what a
    value takes on the disk.

    >>> costs = on_paper(rows=10**9, attributes=2000, levels=4000, cores=400, rate=2e9, cell_bytes=0.125)
    >>> {name: f"{value:.3g}" for name, value in costs.items()}
    ... # doctest: +NORMALIZE_WHITESPACE
    {'read_bytes': '2.5e+11', 'partial_bytes': '3.2e+07', 'partials': '1.6e+03', 'shuffle_bytes': '5.12e+10',
     'driver_bytes': '3.2e+08', 'core_seconds': '1e+06', 'seconds': '2.5e+03'}
    """
    # Pairs of levels of different attributes, four bytes each.
    partial = 4 * levels**2 * (1 - 1 / attributes) / 2
    read = rows * attributes * cell_bytes
    seconds = rows * attributes * (attributes - 1) / 2 / rate
    tasks = max(-(-seconds // TASK_SECONDS), cores)
    partials = min(tasks, max(MOST_SHUFFLED // partial, TASKS_PER_CORE * cores))
    return {
        "read_bytes": read,
        "partial_bytes": partial,
        "partials": partials,
        "shuffle_bytes": partial * partials,
        # At most: the sums as they come, and two arrays of d x d counts.
        "driver_bytes": 2 * partial + 2 * 8 * levels**2,
        "core_seconds": seconds,
        "seconds": seconds / cores,
    }


def show(name: str, run: Mapping[str, Any]) -> None:
    """One run on the screen."""
    rate = run["rows"] / run["seconds"]
    peak = f", peak RSS {run['peak_bytes'] / 1e9:.2f} GB" if "peak_bytes" in run else ""
    click.echo(f"{name}: {run['rows']:,} rows in {run['seconds']:.1f} s, {rate:,.0f} rows/s{peak}, {run['digest']}")


@click.command(help=__doc__)
@click.option("--rows", type=int, default=50_000_000, show_default=True)
@click.option("--shards", "count", type=click.IntRange(2), default=64, show_default=True)
@click.option("--wide-rows", type=click.IntRange(1), help="Rows of the tables of many columns.  [default: a fiftieth]")
@click.option("--master", default=None, help="Spark's master.  [default: local, with as many tasks as threads]")
@click.option("--no-spark", is_flag=True, help="Leave Spark out.")
@click.option("--passes", type=click.IntRange(1), default=3, show_default=True, help="Of both engines in turn.")
@click.option("--no-growth", is_flag=True, help="Leave out fewer rows and fewer columns.")
@click.option("--no-jvm", is_flag=True, help="Leave out what goes through the JVM, which takes long.")
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), default=WORK, help="Where runs are kept.")
@click.option("--fresh", is_flag=True, help="Repeat runs that have their file.")
@click.option("--page", is_flag=True, help="Write docs/results/scale.*.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=RESULTS, help="Where the page goes.")
def main(
    *,
    rows: int,
    count: int,
    wide_rows: int | None,
    master: str | None,
    no_spark: bool,
    passes: int,
    no_growth: bool,
    no_jvm: bool,
    work: Path,
    fresh: bool,
    page: bool,
    out: Path,
) -> None:
    """Run what is asked for, show it, and write the page."""
    work.mkdir(parents=True, exist_ok=True)
    master = master or f"local[{workers()}]"
    folder, schema = shards(rows, count, work)
    tag = f"{rows}.{count}"
    # Compiling, which happens once, is not timed.
    counted(some_of(folder, count, work), schema, work / "warm.json", fresh=True)
    main_runs = {"here": counted(folder, schema, work / f"local.{tag}.json", fresh=fresh)}
    show("here", main_runs["here"])
    main_runs["resumed"] = interrupted(folder, schema, work / f"resumed.{tag}.json", rows, fresh=fresh)
    show("after a kill at half", main_runs["resumed"])
    wide = {
        attributes: prepare("syn1", rows=wide_rows or max(1, rows // 50), attributes=attributes, work=work)
        for attributes in (ATTRIBUTES[-1:] if no_growth else ATTRIBUTES)
    }
    columns, jvm = Schema.load(schema).n_attributes, not no_jvm
    tables = [_table(f"{rows:,} x {columns}", folder, schema, rows, passes, "rows", through_jvm=jvm)]
    for attributes, given in wide.items():
        name, last = f"{given.rows:,} x {attributes:,}", attributes == ATTRIBUTES[-1]
        times = passes if last else 1
        paths = (given.path, given.schema_path)
        tables.append(_table(name, *paths, attributes, times, "columns", through_jvm=jvm and last))
    for part in () if no_growth else (8, 4, 2):
        tables.append(_table(f"one shard in {part}", some_of(folder, part, work), schema, 0, 1, "rows"))
    goals = (tables[0]["name"], f"{wide[ATTRIBUTES[-1]].rows:,} x {ATTRIBUTES[-1]:,}")
    in_turn: dict[str, Any] = {}
    growth: dict[str, list[dict[str, Any]]] = {"rows": [], "columns": []}
    if not no_spark:
        found = taken_in_turn(tables, work / f"turns.{tag}.json", master, fresh=fresh)
        for table in tables:
            run = found["runs"][table["name"]]
            run["median"] = {way: float(np.median(each)) for way, each in run["times"].items() if each}
            run["cpu_median"] = {way: float(np.median(each)) for way, each in run["cpu"].items() if each}
            if table["name"] in goals:
                in_turn[table["name"]] = run
            for engine in ("local", "spark"):
                point = {"engine": engine, "size": table["size"] or run["rows"], "rows": run["rows"]}
                growth[table["axis"]].append(point | {"seconds": run["median"][engine]})
        main_runs["spark"] = found["runs"][tables[0]["name"]] | {"start_seconds": found["start_seconds"]}
        main_runs["spark"]["seconds"] = main_runs["spark"]["median"]["spark"]
        show(f"Spark, {master}", main_runs["spark"])
    widest = wide[ATTRIBUTES[-1]]
    run = counted(widest.path, widest.schema_path, work / f"wide.{widest.path.stem}.json", fresh=fresh)
    show(f"here, {ATTRIBUTES[-1]:,} attributes", run)
    cell = widest.path.stat().st_size / run["rows"] / ATTRIBUTES[-1]
    wide_run = run | {"size": ATTRIBUTES[-1], "cell_bytes": cell}
    require_equal(list(main_runs.values()))
    if page:
        write(document(main_runs, growth, in_turn, wide_run), out)


def _table(
    name: str, source: Path, schema: Path, size: int, passes: int, axis: str, *, through_jvm: bool = False
) -> dict[str, Any]:
    """A table that both engines count."""
    paths = {"source": str(source), "schema": str(schema)}
    return paths | {"name": name, "size": size, "passes": passes, "axis": axis, "through_jvm": through_jvm}


def require_equal(runs: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to report runs over the same rows whose counts differ."""
    if len({run["digest"] for run in runs}) != 1:
        raise click.ClickException("the engines do not agree: " + ", ".join(run["digest"] for run in runs))


def document(
    runs: Mapping[str, Any], growth: Mapping[str, Any], in_turn: Mapping[str, Any], wide: Mapping[str, Any]
) -> dict[str, Any]:
    """All that the page shows. No absolute paths and no host names."""
    header = {"command": "python -m benchmarks.scale (make scale)", **pages.versions(), "machine": machine()}
    header |= {"source": SRC, "threads": runs["here"]["threads"]}
    return {"header": header, "runs": runs, "in turn": in_turn, "growth": growth, "wide": wide}


MARK = pages.mark("scale")
OTHERWISE = """\
# Scale

![Growth](scale.svg)

What counting costs, here and on Spark, `make scale`: the only step that sees rows. Each pass is a process of its own,
with compiled code cached on disk; counts of all passes over the same rows were equal to the last unit. Spark's start is
shown by itself. The cost on a cluster is reckoned in [docs/scale.md](../scale.md)."""


def markdown(found: Mapping[str, Any]) -> str:
    """The tables."""
    names = {"here": "one process", "resumed": "after a kill at half: the second one", "spark": "Spark, one machine"}
    main_rows = [
        [
            names[name] + (f", {run['kept_rows']:,} rows kept" if name == "resumed" else ""),
            f"{run['rows']:,}",
            f"{run['seconds']:.1f}",
            "-" if name == "resumed" else f"{run['rows'] / run['seconds']:,.0f}",
            f"{run['peak_bytes'] / 1e9:.2f}" if "peak_bytes" in run else "-",
            f"{run['start_seconds']:.1f}" if "start_seconds" in run else "-",
            f"{run['load']:.1f}",
        ]
        for name, run in found["runs"].items()
    ]
    head = ["", "rows of the table", "wall, s", "rows/s", "peak RSS, GB", "Spark's start, s", "load before"]
    text = record.table(head, main_rows)
    if found["in turn"]:
        text += f"\n\n{beside(found['in turn'])}"
    for axis, runs in found["growth"].items():
        rows = [
            [f"{run['engine']}, {run['size']:,}", f"{run['rows']:,}", f"{run['seconds']:.2f}"]
            for run in sorted(runs, key=lambda run: (run["size"], run["engine"]))
        ]
        text += f"\n\n## By {axis}\n\n" + record.table([axis, "rows of the table", "wall, s"], rows)
    return f"{text}\n\n{reckoned(found)}"


def _through_jvm(median: Mapping[str, float]) -> list[str]:
    if "frame" not in median:
        return ["-", "-"]
    return [f"{median['frame']:.1f}", f"{median['frame'] / median['local']:.1f}"]


def beside(in_turn: Mapping[str, Any]) -> str:
    """Both engines in turn, and how Spark was before executors opened files themselves."""
    rows = [
        [
            name,
            f"{run['median']['local']:.1f}",
            f"{run['median']['spark']:.1f}",
            f"{run['median']['spark'] / run['median']['local']:.2f}",
            f"{run['cpu_median']['spark'] / run['cpu_median']['local']:.2f}",
            *_through_jvm(run["median"]),
            f"{run['load']:.1f}",
        ]
        for name, run in in_turn.items()
    ]
    head = ["rows x attributes", "local, s", "Spark, files, s", "ratio", "of CPU s"]
    head += ["through the JVM, s", "ratio", "load before"]
    timed = min(len(run["times"]["spark"]) for run in in_turn.values())
    told = (
        f"One process counts here and on Spark in turn, after one pass of each that is not timed: medians of {timed} "
        "passes, after Spark's start. Through the JVM is what a DataFrame costs that is not files, and what every "
        "table cost on Spark before executors opened files themselves: before and after, in one run."
    )
    return f"## In turn\n\n{told}\n\n" + record.table(head, rows)


def reckoned(found: Mapping[str, Any]) -> str:
    """A billion rows of 2,000 binary attributes on a cluster, from the widest table that was counted here."""
    widest = found["wide"]
    pairs = widest["rows"] * widest["size"] * (widest["size"] - 1) / 2
    rate = pairs / widest["cpu_seconds"]
    costs = on_paper(rows=10**9, attributes=2000, levels=4000, cores=CORES, rate=rate, cell_bytes=widest["cell_bytes"])
    rows = [
        ["read", f"{costs['read_bytes'] / 1e9:,.0f} GB"],
        ["partial counts", f"{costs['partials']:,.0f} of {costs['partial_bytes'] / 1e6:.0f} MB"],
        ["shuffled, before compression", f"{costs['shuffle_bytes'] / 1e9:,.0f} GB"],
        ["driver's memory for counts", f"{costs['driver_bytes'] / 1e9:.2f} GB"],
        ["reading and counting, at the rate above", f"{costs['core_seconds'] / 3600:,.1f} core hours"],
        [f"reading and counting, {CORES} cores", f"{costs['seconds'] / 60:,.1f} minutes"],
    ]
    rate_text = (
        f"One core here reads and counts {rate:.2g} pairs of attributes a second, by CPU seconds at m = "
        f"{widest['size']:,}; reading grows more slowly than pairs do, so that this is too much rather than too little."
    )
    if found["in turn"]:
        # The table of most attributes comes last.
        *_, (name, run) = found["in turn"].items()
        ratio = run["median"]["spark"] / run["median"]["local"]
        held = costs["core_seconds"] * ratio
        rate_text += f" Spark's whole pass takes {ratio:.2f} times as long as one machine's, as for {name} above."
        rows += [
            ["Spark's whole pass", f"{held / 3600:,.1f} core hours"],
            [f"Spark's whole pass, {CORES} cores", f"{held / CORES / 60:,.1f} minutes"],
        ]
    return f"## A billion rows x 2,000 binary attributes, on paper\n\n{rate_text}\n\n" + record.table(["", ""], rows)


def figure(found: Mapping[str, Any]) -> Figure:
    """Seconds along each axis, by engine, log-log."""
    from experiments.figures import STYLES, grid

    made, axes = grid(2, 2, title="What counting costs", size=(3.5, 3.0))
    for ax, (axis, runs) in zip(axes, found["growth"].items(), strict=True):
        for engine, (colour, style, marker) in zip(("local", "spark"), STYLES, strict=False):
            line = sorted((run["size"], run["seconds"]) for run in runs if run["engine"] == engine)
            if line:
                ax.plot(*zip(*line, strict=True), color=colour, linestyle=style, marker=marker, label=engine)
        ax.set_xscale("log")
        sizes = sorted({run["size"] for run in runs})
        ax.set_xticks(sizes, [f"{size / 1e6:g} M" if size >= 10**6 else f"{size:,}" for size in sizes], fontsize=8)
        ax.set_yscale("log")
        ax.minorticks_off()
        ax.set_xlabel(axis, fontsize=8)
        ax.set_ylabel("wall, s", fontsize=8)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize=7, frameon=False)
    return made


def write(found: Mapping[str, Any], folder: Path) -> None:
    """Write scale.json, scale.md and the figure."""
    pages.write_page(
        folder,
        "scale",
        marked=MARK,
        otherwise=OTHERWISE,
        document=found,
        markdown=markdown(found),
        figure=figure(found),
    )


if __name__ == "__main__":
    main()
