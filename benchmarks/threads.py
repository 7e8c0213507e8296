"""How each stage of a release scales with threads: seconds by stage and number of threads, and how many times as fast.

    python -m benchmarks.threads --threads 1,2,4,8 --json build/threads.json

Every release runs in a process of its own, on as many processors as it has threads where the system can bind it, with
polars limited to the same. `draw` makes the synthetic rows and drops them, `write` makes them again and writes them.
Compiled code is cached before the first run is timed. Run it on an idle machine that has the processors.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from experiments.stopwatch import Stopwatch, machine, peak_bytes

from benchmarks.pages import ROOT, versions
from benchmarks.shapes import SHAPES, Input, prepare
from benchmarks.stages import EPSILON, SEED
from sklar.files.write import write_text
from sklar.machine.threads import using
from sklar.public.schema import Schema
from sklar.release import fit

WORK = ROOT / "build" / "threads"
ROWS = {"dss": 2_000_000, "syn1": 200_000, "syn2": 50_000}
WARM_ROWS = 100_000
# Stages of `fit` by their names, and what this file times after it.
STAGES = ("count", "measure", "choose", "fit", "draw", "save", "write")


def timed(source: Path, schema: Schema, folder: Path) -> dict[str, Any]:
    """One release, stage by stage, in this process."""
    watch = Stopwatch()
    model = fit(source, schema, epsilon=EPSILON, progress=watch)
    watch.stage("draw")
    for _ in model.sample_batches(seed=SEED):
        pass
    watch.stage("save")
    model.save(folder / "release.sklar")
    watch.stage("write")
    model.write(folder / "release.parquet", seed=SEED)
    watch.stop()
    stages = {name: asdict(lap) for name, lap in watch.laps.items()}
    return {"rows": model.n_rows, "stages": stages, "peak_bytes": peak_bytes(), "settings": dict(model.settings)}


def release(given: Input, threads: int, work: Path) -> dict[str, Any]:
    """The same in a process of its own, with this many threads on as many processors."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        command = [sys.executable, "-m", "benchmarks.threads", "--child", str(given.path), str(given.schema_path)]
        command += ["--threads", str(threads), "--work", folder]
        limits = {name: str(threads) for name in ("POLARS_MAX_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
        begun = time.perf_counter()
        subprocess.run(command, check=True, cwd=ROOT, env=os.environ | limits)  # noqa: S603
        seconds = time.perf_counter() - begun
        found: dict[str, Any] = json.loads((Path(folder) / "stages.json").read_text(encoding="utf-8"))
    return found | {"shape": given.shape, "title": given.title, "threads": threads, "seconds": seconds}


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Seconds of each stage of one shape's runs, and in brackets how many times as fast as the first run.

    >>> runs = [{"threads": n, "seconds": 9 / n, "stages": {"count": {"seconds": 8 / n}}} for n in (1, 2)]
    >>> print(table(runs))
    | stage | 1 thread | 2 threads |
    |---|---:|---:|
    | count | 8.00 | 4.00 (2.0x) |
    | all | 9.00 | 4.50 (2.0x) |
    """
    names = [name for name in STAGES if all(name in run["stages"] for run in runs)]
    heads = [f"{run['threads']} thread{'s' if run['threads'] > 1 else ''}" for run in runs]
    lines = ["| stage | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(runs)]
    rows = [(name, [run["stages"][name]["seconds"] for run in runs]) for name in names]
    for name, seconds in [*rows, ("all", [run["seconds"] for run in runs])]:
        shown = [f"{seconds[0]:.2f}", *(f"{each:.2f} ({seconds[0] / max(each, 1e-9):.1f}x)" for each in seconds[1:])]
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _numbers(_context: click.Context, _parameter: click.Parameter, given: str) -> tuple[int, ...]:
    try:
        found = tuple(int(each) for each in given.split(","))
    except ValueError:
        found = (0,)
    if min(found) < 1:
        raise click.BadParameter(f"must be whole numbers of at least 1 with commas between, got {given}.")
    return found


@click.command(help=__doc__)
@click.option("--shape", "shapes", multiple=True, type=click.Choice(SHAPES), default=("dss", "syn1"), show_default=True)
@click.option("--rows", type=click.IntRange(1), help="Rows of each shape.  [default: dss 2,000,000, syn1 200,000]")
@click.option("--threads", default="1,2,4,8", show_default=True, callback=_numbers)
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), default=WORK, help="Where inputs are kept.")
@click.option("--json", "out", type=click.Path(path_type=Path, dir_okay=False), help="Write all runs to this file.")
@click.option("--child", nargs=2, type=click.Path(path_type=Path), hidden=True)
def main(
    *,
    shapes: tuple[str, ...],
    rows: int | None,
    threads: tuple[int, ...],
    work: Path,
    out: Path | None,
    child: tuple[Path, Path] | None,
) -> None:
    """Run what is asked for and print a table for each shape."""
    work.mkdir(parents=True, exist_ok=True)
    if child is not None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: threads[0]])
        with using(threads[0]):
            found = timed(child[0], Schema.load(child[1]), work)
        write_text(work / "stages.json", json.dumps(found) + "\n")
        return
    document: dict[str, Any] = {"machine": machine(), **versions(), "runs": []}
    click.echo(f"{document['machine']}; load {os.getloadavg()[0]:.1f}")
    for shape in shapes:
        given = prepare(shape, rows=rows or ROWS.get(shape), work=work)
        # Rows enough that all that is compiled is compiled here.
        release(prepare(shape, rows=min(given.rows, WARM_ROWS), work=work), max(threads), work)
        runs = []
        for count in threads:
            runs.append(release(given, count, work))
            document["runs"].append(runs[-1])
            if out is not None:
                write_text(out, json.dumps(document) + "\n")
        click.echo(f"\n{given.title}: {runs[0]['rows']:,} rows x {given.schema.n_attributes:,} attributes, seconds\n")
        click.echo(table(runs))


if __name__ == "__main__":
    main()
