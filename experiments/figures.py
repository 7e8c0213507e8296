"""Drawings of the CDFs of absolute errors, readable in grayscale too. They need matplotlib only when called."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sklar.custodian.evaluate.conjunctions import Errors
from sklar.files.write import replacing
from sklar.machine.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Each line has a color of a different lightness, a style and a marker. Any one of the three tells it from the others.
STYLES = (
    ("#000000", "-", "o"),
    ("#c2410c", "--", "s"),
    ("#2563eb", "-.", "^"),
    ("#7e9b2f", ":", "D"),
    ("#8b5cf6", (0, (5, 1, 1, 1, 1, 1)), "v"),
    ("#9ca3af", (0, (1, 1)), "x"),
    ("#0f766e", (0, (8, 2)), "P"),
)

_INK = "#1f2937"


def cdf_figure(panels: Mapping[str, Mapping[str, Errors]], *, title: str, columns: int | None = None) -> Figure:
    """One panel of CDFs per entry, one line per output, on a shared logarithmic axis of errors."""
    figure, axes = grid(len(panels), columns or len(panels), title=title)
    for index, (name, lines) in enumerate(panels.items()):
        ax = axes[index]
        for (label, errors), (color, style, marker) in zip(lines.items(), STYLES, strict=False):
            if errors.size == 0:
                continue
            at, share = errors.cdf()
            # The step function rises from zero. The axis is linear below one, so that it can show an error of zero.
            steps = np.concatenate([[0.0, at[0]], at]), np.concatenate([[0.0, 0.0], share])
            ax.step(*steps, where="post", color=color, linestyle=style, linewidth=1.6, label=label)
            marked = np.searchsorted(share, (0.5, 0.9, 0.99)).clip(0, at.size - 1)
            ax.plot(at[marked], share[marked], marker, color=color, markersize=4.5, linestyle="none")
        ax.set_xscale("symlog", linthresh=1.0)
        ax.set_xlim(left=0)
        ax.set_ylim(0, 1.02)
        ax.set_title(name, fontsize=10, color=_INK, loc="left")
        ax.set_xlabel("absolute error (rows)")
        ax.legend(fontsize=8, frameon=False, loc="lower right", handlelength=3.2)
    for ax in axes[:: columns or len(panels)]:
        ax.set_ylabel("share of queries")
    return figure


def grid(panels: int, columns: int, *, title: str, size: tuple[float, float] = (4.3, 3.4)) -> tuple[Figure, list[Axes]]:
    """An empty figure with a number of panels, and their axes in reading order."""
    require("matplotlib", what="a plot", package="matplotlib", extra="plot")
    from matplotlib.figure import Figure

    rows = -(-panels // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows + 0.5), layout="constrained")
    figure.suptitle(title, fontsize=12, fontweight="bold", color=_INK, x=0.01, ha="left")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes:
        ax.grid(visible=True, color="#e5e7eb", linewidth=0.7)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8, colors=_INK)
    for ax in axes[panels:]:
        ax.set_visible(False)
    return figure, list(axes)


def dots(
    title: str, label: str, series: Mapping[str, Mapping[str, float]], *, log: bool = False, line: float | None = None
) -> Figure:
    """A line for each name with a mark for each series that has it, in the order of the first series, and a `line`
    at what to compare with.
    """
    names = sorted(next(iter(series.values())), key=next(iter(series.values())).__getitem__)
    figure, (ax, *_) = grid(1, 1, title=title, size=(7.0, 0.8 + 0.22 * len(names)))
    for (told, values), (color, _, marker) in zip(series.items(), STYLES, strict=False):
        places = [place for place, name in enumerate(names) if name in values]
        at = [values[names[place]] for place in places]
        ax.plot(at, places, marker, color=color, markersize=5, linestyle="none", label=told)
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel(label, fontsize=8)
    if log:
        ax.set_xscale("log")
    if line is not None:
        ax.axvline(line, color=_INK, linewidth=0.8)
    if len(series) > 1:
        ax.legend(fontsize=7, frameon=False)
    return figure


def save(figure: Figure, target: Path) -> None:
    """Write a figure, whole or not at all; equal figures are equal files."""
    import matplotlib as mpl

    kind = target.suffix.lower()[1:]
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with replacing(target) as temporary, mpl.rc_context({"svg.hashsalt": "sklar", "svg.fonttype": "none"}):
        figure.savefig(temporary, format=kind, dpi=110, metadata=metadata)
