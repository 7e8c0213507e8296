"""A national census linked with registers: 55 million generated rows of 60 columns, on this machine and on Spark.

    .venv-spark/bin/python -m benchmarks.census --page               # an idle machine, Java 17, 6 GB of disk
    .venv-spark/bin/python -m benchmarks.census --rows 1000000       # a trial: nothing is said of goals
    .venv-spark/bin/python -m benchmarks.census --billion            # also a billion rows x 27, counted
    .venv-spark/bin/python -m benchmarks.census --wide               # also 2 million rows x 10,000 bits

The table is released in a process of its own, stage by stage; counted by a process that is killed in the middle and
by a second one that goes on; and counted here and on a local Spark cluster of two workers in turn: all counts must be
equal. A billion rows are 20 parts, each generated, counted and deleted, whose counts add. Beside each stage stands the
least that it takes at the machine's own rates of reading, counting and writing. Runs are kept in the work folder and
repeated when the package has changed.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchmarks import limits, pipeline, scale
from benchmarks.pages import RESULTS, ROOT, SRC, mark, versions, write_page
from benchmarks.shapes import Input
from experiments import record
from sklar.budget.forecast import forecast
from sklar.files.write import write_frames, write_text
from sklar.generate import binary
from sklar.generate.blueprint import Blueprint, blocks
from sklar.public.schema import Schema

WORK = ROOT / "build" / "census"
SHAPE, ROWS, SHARDS = "census-linked", 55_000_000, 64
MASTER = "local-cluster[2,1,3072]"
# Seconds of measuring and fitting and of drawing, bytes, and how many times as long as here Spark may take.
MEASURED, DRAWN, BYTES, RATIO = 300.0, 360.0, 3e9, 1.3
PARTS, PART_ROWS = 20, 50_000_000
WIDE_ROWS, WIDE_COLUMNS = 2_000_000, 10_000


def table(shape: str, rows: int, work: Path) -> Input:
    """A folder of shards of a generated table, and its schema."""
    folder, schema = scale.shards(rows, SHARDS, work, shape=shape)
    found = Schema.load(schema)
    return Input(shape=shape, rows=rows, schema=found, path=folder, schema_path=schema, origin="generated")


def wide(rows: int, columns: int, work: Path) -> Input:
    """Bits that hang together as those of Syn 1, in any number of columns."""
    blueprint: Blueprint = binary.table(8, columns)
    schema = Schema.from_dict({"table": {"name": "wide"}, "attributes": blueprint.attributes})
    path, described = work / f"wide.{rows}.{columns}.parquet", work / f"wide.{columns}.toml"
    if not path.exists():
        drawn = blocks(rows, 1, stream=8, block_rows=blueprint.block_rows)
        write_frames(path, blueprint.columns, (blueprint.draw(rng, at).head(rows - at) for rng, at in drawn), None)
    write_text(described, schema.to_toml())
    return Input(shape="wide", rows=rows, schema=schema, path=path, schema_path=described, origin="generated")


def released(given: Input, work: Path) -> dict[str, Any]:
    """One release in a process of its own, beside what the machine can do; kept while the package is the same."""
    path = work / f"{given.shape}.{given.rows}.{given.schema.n_attributes}.json"
    run = pipeline.kept(path)
    if run is None:
        run = pipeline.release(given, method="auto", threads=None, work=work)
        run["limits"] = limits.measure(work, None)
        run["floors"] = limits.floors(run, given.schema.sizes.tolist(), run["limits"])
        run["pair_error"] = forecast(given.schema, rows=given.rows, epsilon=1.0).pair_error
        pipeline.keep(path, run)
    return run


def in_parts(parts: int, rows: int, work: Path) -> dict[str, Any]:
    """Parts of the DSS-like table, each generated, counted in a process and deleted: counts add."""
    runs = []
    for part in range(1, parts + 1):
        kept = work / f"part.{rows}.{part}.json"
        if pipeline.kept(kept) is None:
            folder, schema = scale.shards(rows, SHARDS, work, part=part)
            run = scale.counted(folder, schema, kept)
            size = sum(path.stat().st_size for path in folder.glob("*.parquet"))
            pipeline.keep(kept, run | {"bytes": size, "source": SRC})
            shutil.rmtree(folder)
        runs.append(pipeline.kept(kept) or {})
        click.echo(f"part {part} of {parts}: {runs[-1]['seconds']:.1f} s", err=True)
    total = {key: sum(run[key] for run in runs) for key in ("rows", "seconds", "cpu_seconds", "bytes")}
    return total | {"parts": parts, "peak_bytes": max(run["peak_bytes"] for run in runs)}


def goals(found: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Each goal in words, what was found, and the most that it may be."""
    laps, whole = found["release"]["stages"], found["release"]["peak_bytes"]
    before = sum(lap["seconds"] for name, lap in laps.items() if name not in ("save", "sample"))
    listed = [
        ("measured and fitted, s", before, MEASURED),
        ("drawn and written, s", laps["sample"]["seconds"], DRAWN),
        ("peak memory of all stages, GB", whole / 1e9, BYTES / 1e9),
    ]
    if "spark" in found:
        listed.append(("Spark's counting over this machine's", found["spark"]["ratio"], RATIO))
    return listed


def passes(found: Mapping[str, Any]) -> list[str]:
    """A line for each goal; the goals are those of `ROWS`, and are not judged on other sizes."""
    whole = found["release"]["rows"] == ROWS
    said = {True: "PASS", False: "FAIL"} if whole else {True: "trial", False: "trial"}
    lines = [f"{said[value <= most]}  {words}: {value:.4g} (at most {most:g})" for words, value, most in goals(found)]
    return [*lines, f"EQUAL  {', '.join(found['equal'])}: {found['digest']}"]


def collect(given: Input, work: Path, *, spark: bool) -> dict[str, Any]:
    """The release, the pass that was killed, and both engines; their counts are equal or nothing is reported."""
    tag = f"{given.shape}.{given.rows}"
    counts = {"here": scale.counted(given.path, given.schema_path, work / f"here.{tag}.json")}
    kill = partial(scale.interrupted, given.path, given.schema_path, work / f"resumed.{tag}.json", given.rows)
    counts["after a kill"] = kill(fresh=False)
    found: dict[str, Any] = {"release": released(given, work), "counts": counts}
    if spark:
        name = f"{given.rows:,} x {given.schema.n_attributes}"
        paths = {"source": str(given.path), "schema": str(given.schema_path), "through_jvm": False}
        turns = scale.taken_in_turn(
            [paths | {"name": name, "passes": 1}], work / f"turns.{tag}.json", MASTER, fresh=False
        )
        run = turns["runs"][name]
        counts["Spark"] = run
        ratio = run["times"]["spark"][0] / run["times"]["local"][0]
        found["spark"] = {"ratio": ratio, "times": run["times"], "start_seconds": turns["start_seconds"]}
    scale.require_equal(list(counts.values()))
    return found | {"equal": list(counts), "digest": counts["here"]["digest"]}


def roofline(run: Mapping[str, Any]) -> list[list[str]]:
    """Each stage: its seconds, the least at the machine's rates, what sets that, and bytes of the file a second."""
    rates, least, laps = run["limits"], run["floors"], run["stages"]
    cells = run["rows"] * run["attributes"]
    floors = {
        "count": (max(run["input_bytes"] / rates["disk_read"], least["counting"] / run["threads"]), run["input_bytes"]),
        "sample": (max(least["disk"], least["pass"]), run["output_bytes"]),
    }
    why = {
        "count": "reading the file, or AND and popcount of its bits",
        "sample": "writing the file, or a pass over cells",
    }
    rows = []
    for name, lap in laps.items():
        floor, size = floors.get(name, (None, None))
        each = [name, f"{lap['seconds']:.1f}", f"{lap['cpu_seconds']:.1f}", "-" if floor is None else f"{floor:.2f}"]
        speeds = ["-", "-"]
        if size is not None and lap["seconds"]:
            speeds = [f"{size / lap['seconds'] / 1e6:,.0f}", f"{cells / lap['seconds'] / 1e6:,.0f}"]
        rows.append([*each, *speeds, why.get(name, "")])
    return rows


def page_of(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables of the page."""
    parts = ["## Goals\n\n```text\n" + "\n".join(passes(tables["census"])) + "\n```"]
    head = ["stage", "wall, s", "CPU, s", "least at the machine's rates, s", "file, MB/s", "cells, M/s", "least by"]
    for name, found in tables.items():
        if run := found.get("release"):
            told = f"{run['rows']:,} rows x {run['attributes']:,} columns, {run['levels']:,} levels, "
            told += f"peak {run['peak_bytes'] / 1e9:.2f} GB, load before {run['load']:.1f}. A cell of a two-way table "
            told += f"is expected to be off by {run['pair_error']:,.0f} rows."
            parts.append(f"## {name}\n\n{told}\n\n{record.table(head, roofline(run))}")
    if run := tables.get("billion"):
        rate = run["bytes"] / run["seconds"] / 1e6
        told = f"{run['rows']:,} rows x 27 counted in {run['parts']} parts in {run['seconds']:.0f} s "
        told += f"({run['cpu_seconds']:.0f} CPU s), {rate:,.0f} MB of files a second, "
        told += f"peak {run['peak_bytes'] / 1e9:.2f} GB."
        parts.append(f"## A billion rows\n\n{told}")
    return "\n\n".join([*parts, "## Methods\n\n" + _METHODS])


_METHODS = """\
Rows are generated (`sklar generate census-linked`), in 64 files. Each release and each pass is a process of its own.
The least of counting is reading the file at the disk's rate or the cheaper of AND and popcount on bits and of
histograms, on all threads; of drawing, writing the file or one pass over all cells in memory. Counts by both engines
and after a kill were equal to the last unit. Tables grow with the square of the columns: a table of d levels has d *
d / 2 cells, which bounds what fits a machine, and their noise grows with the square root of the number of tables."""

OTHERWISE = """\
# A census of 55 million

![Stages](census.svg)

A generated table of the shape of a national census that is linked with registers is released on one machine, and
counted on Spark with the same exact counts. The picture has each stage beside the least that it could take at the
machine's own rates. Goals: five minutes to measure and fit, six to draw, 3 GB, and Spark within 1.3 times."""


def picture(run: Mapping[str, Any]) -> Any:
    """Seconds of each stage beside the least."""
    from experiments.figures import STYLES, grid

    made, (ax, *_) = grid(1, 1, title="Stages beside the machine's limits", size=(6.0, 3.0))
    rows = roofline(run)
    for place, row in enumerate(rows):
        ax.plot(
            [float(row[1])], [place], color=STYLES[0][0], marker="o", linestyle="", label="taken" if not place else None
        )
        if row[3] != "-":
            ax.plot([float(row[3])], [place], color=STYLES[1][0], marker="|", markersize=14, linestyle="")
    ax.set_xscale("symlog", linthresh=1)
    ax.set_yticks(range(len(rows)), [row[0] for row in rows], fontsize=8)
    ax.invert_yaxis()
    ax.set_xlabel("wall, s (line: the least)", fontsize=8)
    return made


def tried(columns: Sequence[int], work: Path) -> dict[str, Any]:
    """Wide tables one after the other until one fails: each in a process of its own, with why the last one failed."""
    found: dict[str, Any] = {}
    for count in columns:
        try:
            found[f"{count:,} columns of bits"] = {"release": released(wide(WIDE_ROWS, count, work), work)}
        except subprocess.CalledProcessError as error:
            click.echo(f"{count:,} columns: the release ended with exit status {error.returncode}.")
            break
    return found


@click.command(help=__doc__)
@click.option("--rows", type=click.IntRange(1), default=ROWS, show_default=True)
@click.option("--no-spark", is_flag=True, help="Leave Spark out.")
@click.option("--billion", is_flag=True, help="Count a billion rows x 27.")
@click.option("--wide", "grow", is_flag=True, help="Release 2 million rows of 2,500, 5,000 and 10,000 bits.")
@click.option("--page", is_flag=True, help="Write docs/results/census.*.")
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), default=WORK, help="Where runs are kept.")
def main(*, rows: int, no_spark: bool, billion: bool, grow: bool, page: bool, work: Path) -> None:
    """Run what is asked for, show it, and write the page."""
    work.mkdir(parents=True, exist_ok=True)
    tables: dict[str, Any] = {"census": collect(table(SHAPE, rows, work), work, spark=not no_spark)}
    if grow:
        tables |= tried((WIDE_COLUMNS // 4, WIDE_COLUMNS // 2, WIDE_COLUMNS), work)
    if billion:
        tables["billion"] = in_parts(PARTS, PART_ROWS, work)
    for line in passes(tables["census"]):
        click.echo(line)
    if page:
        document = {"header": {"command": "python -m benchmarks.census --page", **versions()}, "tables": tables}
        write_page(
            RESULTS, "census", marked=mark("census"), otherwise=OTHERWISE, document=document,
            markdown=page_of(tables), figure=picture(tables["census"]["release"]),
        )  # fmt: skip
    else:
        click.echo(page_of(tables))


if __name__ == "__main__":
    main()
