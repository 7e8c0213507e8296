"""How time and memory grow with rows, columns, levels, epsilon and threads: which releases are timed, over two decades
where the machine allows, fitted exponents, and the figure. What a release counts and how many steps it takes
(`worked`) does not depend on the machine: a test holds the exponents of those."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments import record
from sklar.machine.threads import workers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 5_240_260

AXES = {
    "n": "rows of the DSS-like table",
    "m": "binary attributes (d = 2 m)",
    "d": "levels of 16 attributes in all",
    "epsilon": "epsilon, Adult",
    "threads": "threads, DSS-like table",
}
ATTRIBUTES = (10, 100, 1000)
# Each attribute packs this many columns of Syn 1, so that its number of levels is a power of two.
PACKED = (1, 3, 5, 7)
EPSILONS = (0.1, 1.0, 10.0)
PACKED_ATTRIBUTES = 16

# The parts of a release. A stage that is listed neither here nor in `_ELSEWHERE` is part of the fit.
PARTS = ("count", "measure", "fit", "sample")
_ELSEWHERE = ("start", "save")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One release along an axis of growth."""

    axis: str
    shape: str
    rows: int | None = None
    attributes: int | None = None
    packed: int = 1
    epsilon: float = 1.0
    threads: int | None = None


def points(rows: int = ROWS) -> list[Point]:
    """A hundredth, a tenth and all of the rows for growing n; a tenth of them for the others, and Adult for epsilon."""
    some = max(1, rows // 10)
    return [
        *(Point(axis="n", shape="dss", rows=max(1, rows // part)) for part in (100, 10, 1)),
        *(Point(axis="m", shape="syn1", rows=some, attributes=attributes) for attributes in ATTRIBUTES),
        *(Point(axis="d", shape="syn1", rows=some, attributes=PACKED_ATTRIBUTES, packed=packed) for packed in PACKED),
        *(Point(axis="epsilon", shape="adult", epsilon=epsilon) for epsilon in EPSILONS),
        *(Point(axis="threads", shape="dss", rows=some, threads=2**k) for k in range(workers().bit_length())),
    ]


def worked(measured: Iterable[int], laps: Mapping[str, Any]) -> dict[str, int]:
    """What a release did, on any machine: cells measured, rows read, and steps of its fits.

    >>> from types import SimpleNamespace as Lap
    >>> worked([4, 6], {"count": Lap(steps=10), "choose": Lap(steps=3), "fit": Lap(steps=4)})
    {'cells': 10, 'rows': 10, 'steps': 7}
    """
    steps = {name: lap.steps for name, lap in laps.items()}
    rows = sum(count for name, count in steps.items() if name.startswith("count"))
    return {"cells": sum(measured), "rows": rows, "steps": sum(steps.get(name, 0) for name in ("choose", "fit"))}


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float | None:
    """The slope of log seconds on log size by least squares; None where a time is zero or all sizes are alike.

    >>> round(exponent([1, 2, 4], [3.0, 6.0, 12.0]), 6)
    1.0
    """
    if not all(value > 0 for value in seconds) or len(set(sizes)) < 2:
        return None
    x, y = ([math.log(value) for value in values] for values in (sizes, seconds))
    center = sum(x) / len(x)
    return sum((a - center) * b for a, b in zip(x, y, strict=True)) / sum((a - center) ** 2 for a in x)


def parts(run: Mapping[str, Any]) -> dict[str, float]:
    """CPU seconds of the parts of a release.

    >>> stages = {name: {"cpu_seconds": 1.0} for name in ("start", "count", "choose", "fit", "save", "sample")}
    >>> parts({"stages": stages})
    {'count': 1.0, 'measure': 0.0, 'fit': 2.0, 'sample': 1.0}
    """
    found = dict.fromkeys(PARTS, 0.0)
    for stage, lap in run["stages"].items():
        if stage not in _ELSEWHERE:
            found[stage if stage in PARTS else "fit"] += lap["cpu_seconds"]
    return found


def size(run: Mapping[str, Any]) -> float:
    """The size of a run along its axis."""
    return float(run[{"n": "rows", "m": "attributes", "d": "levels"}.get(run["axis"], run["axis"])])


def lines(runs: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """Runs by method and axis, in order of size."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for run in sorted(runs, key=size):
        found.setdefault((run["method"], run["axis"]), []).append(run)
    return {
        (method, axis): found[method, axis]
        for method in dict.fromkeys(method for method, _ in sorted(found))
        for axis in AXES
        if (method, axis) in found
    }


def steps(run: Mapping[str, Any]) -> int:
    """Steps of all fits of a run."""
    return sum(run["stages"].get(name, {}).get("steps", 0) for name in ("choose", "fit"))


def _power(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def markdown(runs: Sequence[Mapping[str, Any]]) -> str:
    """Every run, and below the runs of one axis their exponents."""
    rows = []
    for (method, axis), line in lines(runs).items():
        sizes = [size(run) for run in line]
        for run, at in zip(line, sizes, strict=True):
            taken = parts(run)
            rows.append(
                [
                    f"{method}, {axis} = {at:,g}",
                    f"{run['rows']:,}",
                    f"{run['seconds']:.1f}",
                    f"{run['cpu_seconds']:.1f}",
                    *(f"{taken[part]:.2f}" for part in PARTS),
                    f"{steps(run):,}",
                    f"{run['peak_bytes'] / 1e9:.2f}",
                ]
            )
        columns = [[run["seconds"] for run in line], [run["cpu_seconds"] for run in line]]
        columns += [[parts(run)[part] for run in line] for part in PARTS]
        columns += [[steps(run) for run in line], [run["peak_bytes"] for run in line]]
        powers = [f"*{_power(exponent(sizes, values))}*" for values in columns]
        rows.append([f"*{method}, exponent of {axis}*", "", *powers])
    head = ["", "rows", "wall, s", "CPU, s", *(f"{part}, CPU s" for part in PARTS)]
    head += ["steps of the fit", "peak RSS, GB"]
    return record.table(head, rows)


def figure(runs: Sequence[Mapping[str, Any]]) -> Figure:
    """CPU seconds of each part along each axis, one row of panels per method, and peak memory along n, log-log."""
    from experiments.figures import STYLES, grid

    drawn = lines(runs)
    methods = list(dict.fromkeys(method for method, _ in drawn))
    columns = len(AXES) + 1
    made, axes = grid(
        columns * max(1, len(methods)), columns, title="How releases grow, with fitted exponents", size=(3.5, 3.0)
    )
    for row, method in enumerate(methods):
        for column, axis in enumerate(AXES):
            ax, line = axes[row * columns + column], drawn.get((method, axis), [])
            sizes = [size(run) for run in line]
            for part, (colour, style, marker) in zip(PARTS, STYLES, strict=False):
                seconds = [parts(run)[part] for run in line]
                power = exponent(sizes, seconds)
                if power is not None:
                    ax.plot(sizes, seconds, color=colour, linestyle=style, marker=marker, label=f"{part}: {power:.2f}")
            _dress(ax, f"{method}, by {axis}", AXES[axis], sizes)
            ax.set_ylabel("CPU seconds", fontsize=8)
        ax, line = axes[row * columns + columns - 1], drawn.get((method, "n"), [])
        sizes, peaks = [size(run) for run in line], [run["peak_bytes"] / 1e9 for run in line]
        power = exponent(sizes, peaks)
        if power is not None:
            ax.plot(sizes, peaks, color="#000000", marker="o", label=f"peak RSS: {power:.2f}")
        _dress(ax, f"{method}, memory by n", AXES["n"], sizes)
        # From zero, so that a flat line looks flat.
        ax.set_yscale("linear")
        ax.set_ylim(0, 1.4 * max(peaks, default=1.0))
        ax.set_ylabel("GB", fontsize=8)
    return made


def _dress(ax: Any, title: str, label: str, sizes: Sequence[float]) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_title(title, fontsize=10, loc="left")
    ax.set_xlabel(label, fontsize=8)
    ax.set_xticks(sizes, [f"{at / 1e6:.2g} M" if at >= 1e6 else f"{at:,g}" for at in sizes])
    ax.minorticks_off()
    if ax.get_legend_handles_labels()[0]:
        # Lines may run anywhere: the legend gets room above them.
        low, high = ax.get_ylim()
        ax.set_ylim(low, high * (high / low) ** 0.3)
        ax.legend(fontsize=7, frameon=False, handlelength=3.2, ncols=2, loc="upper left")
