"""The page docs/results/accuracy.md: tables of what `benchmarks.accuracy` measured, under a person's text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import pages
from benchmarks.tables import NAMES, TARGET
from experiments import record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARK = pages.mark("accuracy")
NAMED = {
    "auto": "**sklar auto**",
    "mixture": "sklar mixture",
    "binary": "sklar binary",
    "aim": "AIM",
    "mst": "MST",
    "privbayes": "PrivBayes",
    "dpc": "the paper's dpc",
    "independence": "DP independence",
}
MEASURES = {
    "one-way avg": ("one_way_average", 1),
    "max": ("one_way_maximum", 0),
    "two-way avg": ("two_way_average", 2),
    "max ": ("two_way_maximum", 0),
    "TV1": ("tv1", 4),
    "TV2": ("tv2", 4),
    "TV3": ("tv3", 4),
    "valid": ("valid", 3),
    "seconds": ("seconds", 0),
    "CPU s": ("cpu_seconds", 0),
}


def cell(runs: Sequence[dict[str, Any]], measure: str, digits: int) -> str:
    """The mean over the draws and, with several, their range.

    >>> cell([{"tv2": 0.03}, {"tv2": 0.05}], "tv2", 2), cell([{"tv2": None}], "tv2", 2)
    ('0.04 (0.03-0.05)', '-')
    """
    values = [run[measure] for run in runs if run.get(measure) is not None]
    if not values:
        return "-"
    shown, low, high = (f"{value:,.{digits}f}" for value in (sum(values) / len(values), min(values), max(values)))
    return shown if low == high else f"{shown} ({low}-{high})"


def _of(runs: Sequence[dict[str, Any]], **wanted: object) -> list[dict[str, Any]]:
    return [run for run in runs if all(run[key] == value for key, value in wanted.items())]


def results_table(runs: Sequence[dict[str, Any]]) -> str:
    """The methods on one table, one line each, with how many draws there are."""
    lines = []
    for method, name in NAMED.items():
        here = _of(runs, method=method)
        done = _of(here, status="finished")
        if done:
            lines.append([name, str(len(done)), *(cell(done, *how) for how in MEASURES.values())])
        elif here:
            lines.append([name, here[0]["status"], *(cell(here, *how) for how in MEASURES.values())])
    return record.table(["method", "draws", *(name.strip() for name in MEASURES)], lines)


def markdown(document: dict[str, Any]) -> str:
    """The tables of the page. A person writes above them what they mean."""
    runs, parts = document["runs"], []
    for name in NAMES:
        here = _of(runs, table=name, epsilon=1.0)
        if here:
            size = f"{here[0]['rows']:,} rows, {here[0]['attributes']} attributes, {here[0]['levels']:,} levels"
            parts.append(f"## {here[0]['title']}: {size}\n\n{results_table(here)}")
    swept = sorted({run["epsilon"] for run in _of(runs, table="adult", method="auto", status="finished")})
    if len(swept) > 1:
        shown = [how for name, how in MEASURES.items() if name not in ("valid", "seconds", "CPU s")]
        lines = []
        for epsilon in swept:
            here = _of(runs, table="adult", method="auto", status="finished", epsilon=epsilon)
            lines.append([f"{epsilon:g}", str(len(here)), *(cell(here, *how) for how in shown)])
        parts.append(
            "## `auto` on Adult-194 by epsilon\n\n"
            + record.table(["epsilon", "draws", *(name.strip() for name in list(MEASURES)[:7])], lines)
        )
    if document["learning"]:
        parts.append(
            f"## Training on synthetic rows, testing on real ones\n\nAdult, predicting {TARGET} on the 16,281 rows of "
            "the UCI test split.\n\n" + learning_table(document["learning"])
        )
    return "\n".join(parts)


def _method(score: dict[str, Any]) -> str:
    return "real" if score["stem"] == "real" else str(score["stem"].split(".")[1])


def learning_table(scores: Sequence[dict[str, Any]]) -> str:
    """Accuracy and AUC of both learners by training table."""
    lines = []
    for method, name in {"real": "real rows", **NAMED}.items():
        by = {
            learner: [s for s in scores if s["learner"] == learner and _method(s) == method]
            for learner in ("logistic regression", "boosted trees")
        }
        draws = len(by["boosted trees"])
        if draws:
            cells = [cell(found, measure, 3) for found in by.values() for measure in ("accuracy", "auc")]
            lines.append([name, str(draws), *cells])
    head = ["trained on", "draws", "logistic regression: accuracy", "AUC", "boosted trees: accuracy", "AUC"]
    return record.table(head, lines)


def figure(runs: Sequence[dict[str, Any]]) -> Figure:
    """Mean TV of two-way tables by table and method, over that of DP independence."""
    from matplotlib.figure import Figure

    shown = [method for method in NAMED if method not in ("independence", "dpc", "mixture")]
    tables = [name for name in NAMES if _of(runs, table=name, epsilon=1.0, method="independence")]
    drawn = Figure(figsize=(8, 0.7 * len(tables) + 1.6), layout="constrained")
    axes = drawn.subplots()
    for index, method in enumerate(shown):
        points = []
        for where, name in enumerate(tables):
            here, floor = (
                [run["tv2"] for run in _of(runs, table=name, epsilon=1.0, method=each, status="finished")]
                for each in (method, "independence")
            )
            points += [(value / (sum(floor) / len(floor)), -where) for value in here]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, "o^svD<>"[index], label=NAMED[method].strip("*"), alpha=0.75)
    axes.axvline(1.0, color="grey", linewidth=1)
    axes.set_yticks([-where for where in range(len(tables))])
    axes.set_yticklabels([_of(runs, table=name)[0]["title"] for name in tables])
    axes.set_xlim(left=0)
    axes.set_xlabel("TV of two-way tables over that of DP independence (one point a draw; left is better)")
    axes.legend(fontsize="small", loc="lower left")
    return drawn


def write_page(document: dict[str, Any], folder: Path) -> None:
    """Write accuracy.json, accuracy.md and the figure."""
    pages.write_page(
        folder,
        "accuracy",
        marked=MARK,
        otherwise="# Accuracy beside peers\n\n![accuracy](accuracy.svg)",
        document=document,
        markdown=markdown(document),
        figure=figure(document["runs"]),
    )
