"""How far one run's figures scatter: dpc and Lap on Adult, one- and two-way, over thirty runs.

The paper gives the figures of one run; its one-way 99% maximum is the second largest of 194 errors. Where a figure of
the paper lies within the range of thirty runs, the mechanism may well give it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments import baselines, data, paper, record
from experiments.errors import EPSILON
from experiments.figures import dots
from sklar.custodian.evaluate import answer, choose_triples, compare
from sklar.custodian.evaluate.conjunctions import PERCENTS, Answers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS = 30
TWO = ("one-way", "two-way")


def within(results: Mapping[str, Any]) -> dict[str, bool]:
    """Whether each figure of the paper lies within the range of the runs."""
    out = {}
    for output, found in results.items():
        for kind in TWO:
            printed = paper.ERRORS["adult"][output][kind]
            for percent, figures in zip(PERCENTS, printed, strict=True):
                for measure, figure in zip(("average", "maximum"), figures, strict=True):
                    runs = found["classes"][kind][str(percent)][measure]
                    # The paper prints whole numbers.
                    inside = min(runs) - 0.5 <= figure <= max(runs) + 0.5
                    out[f"{output}, {kind}, {percent}% {measure}"] = inside
    return out


def markdown(results: Mapping[str, Any]) -> str:
    """Means and ranges of all runs beside the paper's figures."""
    rows: list[list[str]] = []
    for output, found in results.items():
        for kind in TWO:
            rows.append([f"{output}, {kind}", *record.cells(found["classes"][kind])])
            rows.append(["*the paper*", *(f"*{a:,} / {b:,}*" for a, b in paper.ERRORS["adult"][output][kind])])
    inside = within(results)
    outside = [name for name, holds in inside.items() if not holds]
    sentences = (
        f"{sum(inside.values())} of the paper's {len(inside)} figures lie within the range of {RUNS} runs"
        + (f"; outside: {'; '.join(outside)}" if outside else "")
        + ". The paper gives the figures of one run, and one run's maxima scatter widely. In the picture the paper's "
        "figure is one."
    )
    methods = f"Average / maximum absolute error, mean of {RUNS} runs (and their range)."
    shown = record.table(["", "95%", "99%", "100%"], rows)
    return record.told(f"{RUNS} runs of dpc and Lap on Adult", sentences, shown, methods)


def figure(results: Mapping[str, Any]) -> Figure:
    """The least, the mean and the largest of all runs, over what the paper printed."""
    series: dict[str, dict[str, float]] = {"mean": {}, "least": {}, "largest": {}}
    for output, found in results.items():
        for kind in TWO:
            for percent, figures in zip(PERCENTS, paper.ERRORS["adult"][output][kind], strict=True):
                for measure, printed in zip(("average", "maximum"), figures, strict=True):
                    runs = found["classes"][kind][str(percent)][measure]
                    name = f"{output}, {kind}, {percent}% {measure}"
                    for what, value in zip(series, (record.mean(runs), min(runs), max(runs)), strict=True):
                        series[what][name] = value / printed
    return dots("Thirty runs over the paper's figure", "ratio", series, line=1.0)


@click.command()
@record.options
def main(data_folder: Path | None, out: Path) -> None:
    """The range over thirty runs of dpc's and Lap's errors on Adult."""
    dataset = data.from_folder("adult", data_folder)
    schema = dataset.schema
    true = answer(dataset.path, schema, choose_triples(schema, max_triples=0, sampled=0))
    outputs: Mapping[str, Callable[[int], Answers]] = {
        "dpc": lambda seed: baselines.dpc(dataset.path, true, epsilon=EPSILON, seed=seed),
        "Lap": lambda _: baselines.laplace(true, epsilon=EPSILON),
    }
    results = {
        output: record.summary([compare(true, run(seed)) for seed in range(1, RUNS + 1)])
        for output, run in outputs.items()
    }
    header = {**record.header("scatter", epsilon=EPSILON), "sampling_seeds": f"1 to {RUNS}"}
    document = {"header": header, "within": within(results), "results": results}
    pictures = {"scatter": figure(results)}
    record.write(out, "scatter", document=document, markdown=markdown(results), figures=pictures)


if __name__ == "__main__":
    main()
