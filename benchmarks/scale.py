"""Counting tables that are larger than memory, or than one machine, by every engine. Only counting sees rows.

    python -m benchmarks.scale --rows 50_000_000 --shards 64 --page

A folder of shards of the DSS-like table is counted three times: by a fresh process, by a process that is killed in the
middle and a second one that goes on, and by Spark on the same machine. All must give the same counts. Then the number
of rows, columns or partitions grows. Runs are kept in the work folder and not repeated while the source of counting is
the same; `--fresh` repeats all. Run it on an idle machine, with Java 17 for Spark.
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
from experiments.stopwatch import machine

from benchmarks import pages
from benchmarks.pages import COUNTING, RESULTS, ROOT, source_digest
from benchmarks.shapes import prepare
from experiments import record
from sklar.files.write import write_frames, write_text
from sklar.generate import generate, schema_toml
from sklar.machine.threads import workers
from sklar.rows.tasks import MOST_SHUFFLED, TASKS_PER_CORE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORK = ROOT / "build" / "scale"
ATTRIBUTES = (125, 250, 500, 1000)
PARTITIONS = (4, 16, 64)
# Bytes of a file that Spark gives to one task, and the cores of the cluster that costs are computed for.
SPLIT = 128 << 20
CORES = 400
SOURCE = source_digest(COUNTING)


def shards(rows: int, count: int, work: Path) -> tuple[Path, Path]:
    """A folder of shards of the DSS-like table and its schema, made once."""
    folder, schema = work / f"dss.{rows}.{count}", work / "dss.toml"
    write_text(schema, schema_toml("dss"))
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path = folder / f"{number:04d}.parquet"
        share = rows * (number + 1) // count - rows * number // count
        if path.exists() or not share:
            continue
        columns, frames = generate("dss", rows=share, seed=number)
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
        if kept.get("source") == SOURCE:
            return kept
    load = os.getloadavg()[0]
    subprocess.run(_command(source, schema, out, options), check=True, cwd=ROOT, stdout=subprocess.DEVNULL)  # noqa: S603
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) | {
        "source": SOURCE,
        "load": load,
        **_named(options),
    }
    write_text(out, json.dumps(found) + "\n")
    return found


def _named(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"engine": options.get("engine", "local"), "partitions": options.get("partitions")}


def _command(source: Path, schema: Path, out: Path, options: Mapping[str, Any]) -> list[str]:
    given = [text for name, value in options.items() if value is not None for text in (f"--{name}", str(value))]
    return [sys.executable, "-m", "benchmarks.counting", str(source), str(schema), str(out), *given]


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
    {'read_bytes': '2.5e+11', 'partial_bytes': '6.4e+07', 'partials': '1.6e+03', 'shuffle_bytes': '1.02e+11',
     'driver_bytes': '3.2e+08', 'core_seconds': '1e+06', 'seconds': '2.5e+03'}
    """
    # Pairs of levels of different attributes, eight bytes each.
    partial = 8 * levels**2 * (1 - 1 / attributes) / 2
    read = rows * attributes * cell_bytes
    partials = min(-(-read // SPLIT), max(MOST_SHUFFLED // partial, TASKS_PER_CORE * cores))
    seconds = rows * attributes * (attributes - 1) / 2 / rate
    return {
        "read_bytes": read,
        "partial_bytes": partial,
        "partials": partials,
        "shuffle_bytes": partial * partials,
        # At most: the sums as they come, and two arrays of d x d counts.
        "driver_bytes": partial + 2 * 8 * levels**2,
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
    growth: dict[str, list[dict[str, Any]]] = {"rows": [], "columns": [], "partitions": []}
    engines = ["local"] if no_spark else ["local", "spark"]
    if not no_spark:
        spark_out = work / f"spark.{tag}.json"
        main_runs["spark"] = counted(folder, schema, spark_out, fresh=fresh, engine="spark", master=master)
        show(f"Spark, {master}", main_runs["spark"])
    for part in (8, 4, 2):
        for engine in engines if count > part else ():
            options = {"engine": engine, "master": master if engine == "spark" else None}
            path = work / f"rows.{engine}.{tag}.{part}.json"
            run = counted(some_of(folder, part, work), schema, path, fresh=fresh, **options)
            growth["rows"].append({**run, "size": run["rows"]})
            show(f"{engine}, one shard in {part}", run)
    for attributes in ATTRIBUTES:
        given = prepare("syn1", rows=wide_rows or max(1, rows // 50), attributes=attributes, work=work)
        splits: Sequence[int | None] = PARTITIONS if attributes == ATTRIBUTES[-2] else (None,)
        for engine in engines:
            for split in splits if engine == "spark" else (None,):
                options = {"engine": engine, "master": master if engine == "spark" else None}
                path = work / f"columns.{engine}.{given.path.stem}.{split or 'as-is'}.json"
                run = counted(given.path, given.schema_path, path, fresh=fresh, partitions=split, **options)
                run |= {"attributes": attributes, "levels": given.schema.n_levels}
                run["cell_bytes"] = given.path.stat().st_size / run["rows"] / attributes
                if split:
                    growth["partitions"].append({**run, "size": split})
                if split in (None, splits[0]):
                    growth["columns"].append({**run, "size": attributes})
                show(f"{engine}, {attributes} attributes, {split or 'own'} partitions", run)
    require_equal(list(main_runs.values()))
    if page:
        write(document(main_runs, growth), out)


def require_equal(runs: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to report runs over the same rows whose counts differ."""
    if len({run["digest"] for run in runs}) != 1:
        raise click.ClickException("the engines do not agree: " + ", ".join(run["digest"] for run in runs))


def document(runs: Mapping[str, Any], growth: Mapping[str, Any]) -> dict[str, Any]:
    """All that the page shows. No absolute paths and no host names."""
    header = {"command": "python -m benchmarks.scale (make scale)", **pages.versions(), "machine": machine()}
    return {"header": header | {"source": SOURCE, "threads": runs["here"]["threads"]}, "runs": runs, "growth": growth}


MARK = pages.mark("scale")
OTHERWISE = """\
# Scale

What counting costs, here and on Spark, `make scale`: the only step that sees rows. Each pass is a process of its own,
with compiled code cached on disk; counts of all passes over the same rows were equal to the last unit. Spark's start is
shown by itself. The cost on a cluster is reckoned in [docs/scale.md](../scale.md).

![Growth](scale.svg)"""


def markdown(found: Mapping[str, Any]) -> str:
    """The tables."""
    names = {
        "here": "one process",
        "resumed": "after a kill at half: the second one",
        "spark": "Spark, one machine",
    }
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
    for axis, runs in found["growth"].items():
        rows = [
            [
                f"{run['engine']}, {run['size']:,}",
                f"{run['rows']:,}",
                f"{run['seconds']:.2f}",
                f"{run['peak_bytes'] / 1e9:.2f}" if "peak_bytes" in run else "-",
                f"{run['partials']:,}" if "partials" in run else "-",
                f"{run['partial_bytes'] / 1e6:.2f}" if "partial_bytes" in run else "-",
            ]
            for run in runs
        ]
        titles = [axis, "rows of the table", "wall, s", "peak RSS, GB", "partial counts", "shuffled, MB"]
        text += f"\n\n## By {axis}\n\n" + record.table(titles, rows)
    return f"{text}\n\n{reckoned(found)}"


def reckoned(found: Mapping[str, Any]) -> str:
    """A billion rows of 2,000 binary attributes on a cluster, from the widest table that was counted here."""
    widest = max((run for run in found["growth"]["columns"] if run["engine"] == "local"), key=lambda run: run["size"])
    pairs = widest["rows"] * widest["size"] * (widest["size"] - 1) / 2
    rate = pairs / widest["cpu_seconds"]
    costs = on_paper(rows=10**9, attributes=2000, levels=4000, cores=CORES, rate=rate, cell_bytes=widest["cell_bytes"])
    rows = [
        ["read", f"{costs['read_bytes'] / 1e9:,.0f} GB"],
        ["partial counts", f"{costs['partials']:,.0f} of {costs['partial_bytes'] / 1e6:.0f} MB"],
        ["shuffled, before compression", f"{costs['shuffle_bytes'] / 1e9:,.0f} GB"],
        ["driver's memory for counts", f"{costs['driver_bytes'] / 1e9:.2f} GB"],
        ["counting, at the rate above", f"{costs['core_seconds'] / 3600:,.0f} core hours"],
        [f"counting, {CORES} cores", f"{costs['seconds'] / 60:,.0f} minutes"],
    ]
    rate_text = (
        f"One core here counts {rate:.2g} pairs of attributes a second, by CPU seconds at m = {widest['size']:,}."
    )
    on_spark = [run for run in found["growth"]["columns"] if run["engine"] == "spark"]
    if on_spark:
        widest = max(on_spark, key=lambda run: run["size"])
        held = widest["seconds"] * widest["threads"] / (widest["rows"] * widest["size"]) * 1e9 * 2000
        rate_text += (
            " Spark's whole pass, in which readers hand rows to Python, is taken to grow with the number of values "
            f"from m = {widest['size']:,} on."
        )
        rows += [
            ["Spark's whole pass, at the rate above", f"{held / 3600:,.0f} core hours"],
            [f"Spark's whole pass, {CORES} cores", f"{held / CORES / 60:,.0f} minutes"],
        ]
    return f"## A billion rows x 2,000 binary attributes, on paper\n\n{rate_text}\n\n" + record.table(["", ""], rows)


def figure(found: Mapping[str, Any]) -> Figure:
    """Seconds along each axis, by engine, log-log."""
    from sklar.custodian.evaluate.plots import STYLES, grid

    made, axes = grid(3, 3, title="What counting costs", size=(3.5, 3.0))
    for ax, (axis, runs) in zip(axes, found["growth"].items(), strict=True):
        for engine, (colour, style, marker) in zip(("local", "spark"), STYLES, strict=False):
            line = sorted((run["size"], run["seconds"]) for run in runs if run["engine"] == engine)
            if line:
                ax.plot(*zip(*line, strict=True), color=colour, linestyle=style, marker=marker, label=engine)
        ax.set_xscale("log")
        sizes = sorted({run["size"] for run in runs})
        ax.set_xticks(sizes, [f"{size / 1e6:g} M" if size >= 10**6 else f"{size:,}" for size in sizes], fontsize=8)
        # The times hardly differ here: a logarithm would magnify noise.
        if axis == "partitions":
            ax.set_ylim(0, 1.2 * max((run["seconds"] for run in runs), default=1.0))
        else:
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
