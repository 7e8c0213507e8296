"""The page docs/results/speed.md: tables of what `benchmarks.pipeline` measured, under a person's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.stopwatch import machine

from benchmarks import growth, pages
from benchmarks.shapes import SHAPES
from experiments import paper, record

MARK = pages.mark("speed")
OTHERWISE = """\
# Speed

Whole releases of the paper's five shapes, `make bench`: from a Parquet file to a saved model and a Parquet file of
synthetic rows, by `auto` (the default) and `binary` (the paper's copula, drawing valid records).

- **One process a release**, started afresh, with compiled code cached on disk by small releases before it. Wall time is
  of the whole process. The input was just written and is likely in memory.
- **CPU seconds** are of all threads. Limits and references are measured beside each run and compared by CPU seconds,
  which other work on the machine disturbs less than wall time; the load before each run is shown.
- **Tables.** Adult and Hospital are real where they were at hand. DSS is not public: a generated table has its shape.
  Syn 1 and Syn 2 have 1,000 and 2,000 binary attributes, of two levels each here and of one dummy each in the paper.
- **The paper's own way** is our NumPy reading of it, and kinder than the authors' code. Their package `dpcgeneration`
  0.1.5 runs with `sklearn==0.0`, NumPy 1 and `epssize=None`: it depends on a name that now refuses to be installed,
  takes arrays of one number for numbers, and divides by its default of 0.

## Findings

Not written yet.

![Growth](speed.svg)"""


def _name(run: Mapping[str, Any]) -> str:
    return f"{run['title']}, `{run['method']}`"


def seconds(value: float) -> str:
    """Seconds with as many digits as matter; hours or days where seconds are many.

    >>> [seconds(value) for value in (0.0123, 3.21, 68.4, 5400.0, 400000.0)]
    ['0.012 s', '3.2 s', '68 s', '1.5 h', '4.6 days']
    """
    if value >= 2 * 86400:
        return f"{value / 86400:,.1f} days"
    if value >= 3600:
        return f"{value / 3600:,.1f} h"
    return f"{value:,.0f} s" if value >= 10 else f"{value:.2g} s"


def times(value: float) -> str:
    """A ratio.

    >>> times(12345.6), times(3.14)
    ('12,346 x', '3.1 x')
    """
    return f"{value:,.0f} x" if value >= 10 else f"{value:.1f} x"


def _spread(walls: Sequence[float]) -> str:
    """The median of the runs and, where there are several, the least and the largest."""
    middle = f"**{sorted(walls)[len(walls) // 2]:.1f}**"
    return middle if len(walls) == 1 else f"{middle} ({min(walls):.1f} to {max(walls):.1f})"


def shapes_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Whole releases beside the paper's."""
    rows = []
    for run in runs:
        cells = run["rows"] * run["attributes"]
        theirs = paper.TIMES[run["shape"]]
        rows.append(
            [
                _name(run),
                f"{run['rows']:,}",
                f"{run['attributes']:,}",
                f"{run['levels']:,}",
                _spread(run["walls"]),
                f"{run['cpu_seconds']:.1f}",
                f"{run['peak_bytes'] / 1e9:.2f}",
                f"{run['rows'] / run['seconds']:,.0f}",
                f"{cells / run['seconds'] / 1e6:,.2f}",
                f"{run['load']:.1f}",
                f"{theirs[0]:,}",
                theirs[3],
            ]
        )
    head = ["", "rows", "attributes", "levels", "wall, s", "CPU, s", "peak RSS, GB", "rows/s", "million cells/s"]
    return record.table([*head, "load before", "paper's rows", "paper, 10 cores"], rows)


def stages_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Wall and CPU seconds of every stage that any run had."""
    names = list(dict.fromkeys(name for run in runs for name in run["stages"]))
    # `auto` has a stage more than `binary`: the run with the most stages gives the order of all.
    longest = max((list(run["stages"]) for run in runs), key=len, default=[])
    names.sort(key=lambda name: longest.index(name) if name in longest else len(longest))
    rows = []
    for run in runs:
        laps = [run["stages"].get(name) for name in names]
        rows.append(
            [_name(run), *("-" if lap is None else f"{lap['seconds']:.2f} ({lap['cpu_seconds']:.2f})" for lap in laps)]
        )
    return record.table(["", *names], rows)


def rates_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """The highest rates of the machine, measured beside each run."""
    how = {
        "AND + popcount, G words/s": ("popcount", 1e9),
        "histogram, G increments/s": ("histogram", 1e9),
        "sgemm, GFLOP/s": ("multiply_add", 0.5e9),
        "triad, GB/s": ("memory", 1e9),
        "disk write, GB/s": ("disk_write", 1e9),
        "disk read, GB/s": ("disk_read", 1e9),
    }
    rows = [[_name(run), *(f"{run['limits'][key] / unit:.2f}" for key, unit in how.values())] for run in runs]
    return record.table(["", *how], rows)


def _share(floor: float | None, taken: float) -> str:
    return "-" if floor is None or taken <= 0 else f"{floor / taken:.1%}"


def limits_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """What a stage would take at the machine's limits, as a share of what it took."""
    rows = []
    for run in runs:
        least, laps = run["floors"], run["stages"]
        count, sample = (laps[name]["cpu_seconds"] for name in ("count", "sample"))
        rows.append(
            [
                _name(run),
                f"{count:.2f}",
                f"{run['kernel']:.3f}",
                f"{least['counting']:.3f}",
                _share(least["counting"], run["kernel"]),
                _share(least["counting"], count),
                f"{sample:.2f}",
                "-" if least["multiply"] is None else f"{least['multiply']:.3f}",
                _share(least["multiply"], sample),
                _share(least["pass"], sample),
                _share(least["disk"], laps["sample"]["seconds"]),
            ]
        )
    head = ["", "count, CPU s", "kernels alone, CPU s", "popcount limit, s", "of the kernels", "of the stage"]
    return record.table([*head, "sample, CPU s", "sgemm limit, s", "of the stage", "of memory", "of disk"], rows)


def references_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """The paper's way beside ours, in CPU seconds."""
    rows = []
    for run in runs:
        theirs, ours = run["references"], growth.parts(run)
        fitting = theirs["correlations"] + theirs["repair"]
        rows.append(
            [
                _name(run),
                f"{theirs['dummy_pairs']:,}",
                seconds(theirs["counting"]),
                times(theirs["counting"] / ours["count"]),
                seconds(theirs["correlations"]),
                seconds(theirs["repair"]),
                times(fitting / ours["fit"]),
                times((theirs["counting"] + fitting) / run["cpu_seconds"]),
            ]
        )
    head = ["", "pairs of dummies", "naive counting", "over our count", "bisection", "alternating projections"]
    return record.table([*head, "both over our fit", "all three over our release"], rows)


def authors_text(found: Mapping[str, Any] | None, runs: Sequence[Mapping[str, Any]]) -> str:
    """The authors' package, where it was timed."""
    if found is None:
        return "The authors' package `dpcgeneration` was not timed.\n"
    pair, release = found["pair"]["cpu_seconds"], found["release"]
    text = (
        f"The authors' package `dpcgeneration` 0.1.5, in its own environment: one release of {found['rows']:,} rows "
        f"and {found['pairs']} pairs of 0/1 columns took {release['seconds']:.1f} s ({release['cpu_seconds']:.1f} CPU "
        f"s in its ten processes); one Gaussian correlation takes {pair:.2f} CPU s."
    )
    adult = [run for run in runs if run["shape"] == "adult"]
    if adult:
        pairs = adult[0]["references"]["dummy_pairs"]
        text += (
            f" For Adult's {pairs:,} pairs that is {seconds(pair * pairs)} of CPU time, **extrapolated**: it refuses "
            "tables of more than 160 dummies."
        )
        for run in adult:
            text += f" Our whole release by `{run['method']}` takes {run['cpu_seconds']:.1f} CPU s."
    return text + "\n"


def markdown(document: Mapping[str, Any]) -> str:
    """The tables of the page. A person writes above them what they mean."""
    runs = sorted(document["runs"], key=lambda run: (SHAPES.index(run["shape"]), run["method"]))
    extrapolated = (
        "CPU seconds of one core, **extrapolated** from pieces timed beside each run: counts of some pairs over some "
        "rows, one correlation bisected twenty times over the paper's grid, one projection of at most 1,000 dummies "
        "times the number of projections that 200 dummies need. A binary attribute is one dummy here."
    )
    parts = [
        "## Releases\n\nFrom a Parquet file to a model and a Parquet file with as many rows, epsilon 1, a fresh "
        "process with compiled code cached; its start and end are included. Of short releases the one of median wall "
        "time among five is shown, with the least and the largest. The paper's 10 cores are of an Intel Xeon "
        f"E5-2660 at 2.6 GHz, with 128 GB.\n\n{shapes_table(runs)}",
        "## Stages\n\nWall seconds (CPU seconds). `count` loads compiled code, reads, encodes and counts; `sample` "
        f"also writes; `start` is the interpreter, imports and its end.\n\n{stages_table(runs)}",
        "## Limits\n\nRates per CPU second of a thread with one on every core; the disk's per second.\n\n"
        f"{rates_table(runs)}\nWhat a stage would take at these rates, and the share that is of what it took. `count` "
        "holds reading and encoding too; each pair is counted by bit planes or by a histogram, whichever limit is "
        "lower, and the kernels alone count one batch of rows again and again; memory is one write and one read of "
        f"every cell as a byte.\n\n{limits_table(runs)}",
        f"## The paper's own way\n\n{extrapolated}\n\n{references_table(runs)}\n"
        + authors_text(document["authors"], runs),
    ]
    if document["growth"]:
        parts.append(
            "## Growth\n\nExponents are slopes of logarithms by least squares; one is proportional.\n\n"
            + growth.markdown(document["growth"])
        )
    return "\n".join(parts)


def header(**facts: Any) -> dict[str, Any]:
    """What is needed to run it again."""
    return {
        "command": "python -m benchmarks.pipeline, piece by piece (make bench: all of them)",
        **pages.versions(),
        "machine": machine(),
        **facts,
    }


def write(document: Mapping[str, Any], folder: Path) -> None:
    """Write speed.json, speed.md and the figure."""
    pages.write_page(
        folder,
        "speed",
        marked=MARK,
        otherwise=OTHERWISE,
        document=document,
        markdown=markdown(document),
        figure=growth.figure(document["growth"]),
    )
