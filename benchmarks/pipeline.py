"""Releases of the paper's five shapes from Parquet to Parquet, timed stage by stage in fresh processes.

    python -m benchmarks.pipeline --shape adult --method auto
    python -m benchmarks.pipeline --growth --page

Without --shape all five shapes are run; with --growth alone, only the growth. Every run is kept as a file
in the work folder and not repeated while the package's source is the same; `--fresh` repeats all. Beside each run of a
shape, the machine's limits and the paper's own way of doing each stage are timed. Run it on an idle machine.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks import growth, limits, references, speed
from benchmarks.pages import RESULTS, ROOT, SRC
from benchmarks.shapes import SHAPES, Input, prepare
from benchmarks.tables import FOLDER
from sklar.files.write import write_text

WORK = ROOT / "build" / "speed"
METHODS = ("auto", "binary")
# A release that takes fewer seconds than SHORT is run TIMES times.
SHORT, TIMES = 20.0, 5

# Computed on import: an edit while runs go on must not change what they say of themselves. All files, as the time of a
# release includes loading the package.


def _children() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def release(given: Input, *, method: str, threads: int | None, work: Path, epsilon: float = 1.0) -> dict[str, Any]:
    """One release in a process of its own: its stages, and as `start` the time that is in none of them."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        command = [sys.executable, "-m", "benchmarks.stages", str(given.path), str(given.schema_path), folder]
        command += ["--method", method, *(["--threads", str(threads)] if threads else []), "--epsilon", f"{epsilon:g}"]
        load = os.getloadavg()[0]
        wall, cpu = time.perf_counter(), _children()
        subprocess.run(command, check=True, cwd=ROOT)  # noqa: S603
        wall, cpu = time.perf_counter() - wall, _children() - cpu
        found: dict[str, Any] = json.loads((Path(folder) / "stages.json").read_text(encoding="utf-8"))
    laps = found["stages"]
    start = {
        "seconds": wall - sum(lap["seconds"] for lap in laps.values()),
        "cpu_seconds": cpu - sum(lap["cpu_seconds"] for lap in laps.values()),
    }
    return found | {
        "shape": given.shape,
        "title": given.title,
        "method": method,
        "attributes": given.schema.n_attributes,
        "levels": given.schema.n_levels,
        "source": SRC,
        "load": load,
        "seconds": wall,
        "cpu_seconds": cpu,
        "stages": {"start": start, **laps},
    }


def typical(given: Input, *, method: str, threads: int | None, work: Path) -> dict[str, Any]:
    """One release. A short one, which other work disturbs most, is run `TIMES` times: the one of median wall time."""
    runs = [release(given, method=method, threads=threads, work=work)]
    if runs[0]["seconds"] < SHORT:
        runs += [release(given, method=method, threads=threads, work=work) for _ in range(TIMES - 1)]
    runs.sort(key=lambda run: run["seconds"])
    return runs[len(runs) // 2] | {"walls": [run["seconds"] for run in runs]}


def kept(path: Path) -> dict[str, Any] | None:
    """The run in this file; None where there is none, or it is of another source and must be repeated."""
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found if found.get("source") == SRC else None


def rounded(value: Any) -> Any:
    """The same, with every fraction rounded to six digits: no clock is more precise.

    >>> rounded({"a": [1.23456789, 7], "b": None})
    {'a': [1.23457, 7], 'b': None}
    """
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def keep(path: Path, run: dict[str, Any]) -> None:
    """Write a run to its file."""
    write_text(path, json.dumps(rounded(run)) + "\n")


def warm_up(methods: Sequence[str], work: Path) -> None:
    """Run small releases that fill the cache of compiled code, so that no timed run compiles."""
    folder = work / "warm"
    folder.mkdir(exist_ok=True)
    small = [prepare("adult", rows=1000, work=folder), prepare("syn1", rows=1000, attributes=8, work=folder)]
    for method in methods:
        for given in small:
            release(given, method=method, threads=None, work=work)


def show(run: dict[str, Any]) -> None:
    """One run on the screen."""
    rate = run["rows"] / run["seconds"]
    click.echo(
        f"{run['title']}, {run['method']}: {run['rows']:,} rows x {run['attributes']:,} attributes in "
        f"{run['seconds']:.2f} s ({run['cpu_seconds']:.2f} CPU s), peak RSS {run['peak_bytes'] / 1e9:.2f} GB, "
        f"{rate:,.0f} rows/s, {rate * run['attributes']:,.0f} cells/s"
    )
    for name, lap in run["stages"].items():
        click.echo(f"  {name:8} {lap['seconds']:9.3f} s {lap['cpu_seconds']:9.3f} CPU s")
    if "limits" in run:
        for table in (speed.rates_table, speed.limits_table, speed.references_table):
            click.echo("\n" + table([run]))


@click.command(help=__doc__)
@click.option("--shape", "shapes", multiple=True, type=click.Choice(SHAPES), help="Only these shapes.")
@click.option("--method", "methods", multiple=True, type=click.Choice(METHODS), default=METHODS, show_default=True)
@click.option("--rows", type=click.IntRange(1), help="Rows of each shape, and the most rows of the growth.")
@click.option("--threads", type=click.IntRange(1), help="Threads that work at once.  [default: one per processor]")
@click.option("--growth", "grow", is_flag=True, help="Time the growth in rows, columns, levels, epsilon and threads.")
@click.option("--authors-python", type=click.Path(path_type=Path), help="Python with the authors' package, to time it.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=FOLDER, help="Adult and Hospital.")
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), default=WORK, help="Where runs are kept.")
@click.option("--fresh", is_flag=True, help="Repeat runs that have their file.")
@click.option("--page", is_flag=True, help="Write docs/results/speed.* from all runs in the work folder.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=RESULTS, help="Where the page goes.")
def main(
    *,
    shapes: tuple[str, ...],
    methods: tuple[str, ...],
    rows: int | None,
    threads: int | None,
    grow: bool,
    authors_python: Path | None,
    data: Path,
    work: Path,
    fresh: bool,
    page: bool,
    out: Path,
) -> None:
    """Run what is asked for, show it, and write the page."""
    work.mkdir(parents=True, exist_ok=True)
    if fresh:
        for path in work.iterdir():
            if path.suffix in (".json", ".parquet", ".toml"):
                path.unlink()
    warm_up(methods, work)
    for shape in shapes or (() if grow else SHAPES):
        given = prepare(shape, rows=rows, work=work, folder=data)
        for method in methods:
            path = work / f"{given.path.stem}.{method}.{threads or 'all'}.json"
            run = kept(path)
            if run is None:
                run = typical(given, method=method, threads=threads, work=work)
                sizes = given.schema.sizes.tolist()
                run["limits"] = limits.measure(work, threads)
                run["kernel"] = run["rows"] / limits.counting(given.schema, threads)
                run["floors"] = limits.floors(run, sizes, run["limits"])
                run["references"] = references.measure(run["rows"], sizes)
                keep(path, run)
            show(run)
    if grow:
        for point in growth.points(rows or growth.ROWS):
            given = prepare(
                point.shape, rows=point.rows, attributes=point.attributes, packed=point.packed, work=work, folder=data
            )
            for method in methods:
                at = point.threads or threads
                path = work / f"growth.{point.axis}.{given.path.stem}.{method}.{at or 'all'}.{point.epsilon:g}.json"
                run = kept(path)
                if run is None:
                    run = release(given, method=method, threads=at, work=work, epsilon=point.epsilon)
                    run |= {"axis": point.axis, "epsilon": point.epsilon, "most_rows": rows or growth.ROWS}
                    keep(path, run)
                show(run)
    if authors_python is not None and not (work / "authors.json").exists():
        script = Path(__file__).with_name("authors.py")
        subprocess.run([str(authors_python), "-P", str(script), str(work / "authors.json")], check=True)  # noqa: S603
    if page:
        document = collected(work)
        speed.write(document, out)
        click.echo(speed.markdown(document))


def largest(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The run with the most rows, then the most threads, of each shape and method: smaller ones were trials."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for run in sorted(runs, key=lambda run: (run["rows"], run["threads"])):
        best[run["shape"], run["method"]] = run
    return list(best.values())


def collected(work: Path) -> dict[str, Any]:
    """The runs of this source in the work folder, as a page shows them. No absolute paths and no host names."""
    found = [run for path in sorted(work.glob("*.json")) if (run := kept(path)) is not None]
    grown = [run for run in found if "axis" in run]
    most = max((run["most_rows"] for run in grown), default=0)
    authors = work / "authors.json"
    return {
        "header": speed.header(source=SRC, threads=sorted({run["threads"] for run in found})),
        "runs": largest([run for run in found if "axis" not in run]),
        "growth": [run for run in grown if run["most_rows"] == most],
        "authors": json.loads(authors.read_text(encoding="utf-8")) if authors.exists() else None,
    }


if __name__ == "__main__":
    main()
