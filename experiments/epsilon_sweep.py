"""The paper's epsilon sweep: dpc on Adult from 0.25 to 5."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from experiments import baselines, data, paper, record
from experiments.figures import cdf_figure
from sklar.custodian.evaluate import answer, choose_triples, compare

EPSILONS = (0.25, 0.5, 1.0, 2.0, 5.0)
TWO = ("one-way", "two-way")


def markdown(results: Mapping[str, Any]) -> str:
    """Average and maximum error by epsilon."""
    rows = []
    for epsilon, by_output in results.items():
        for output, found in by_output.items():
            cells: list[object] = []
            for kind in TWO:
                ours = found["classes"][kind]["100"]
                cells.append(f"{record.spread(ours['average'])} / {record.spread(ours['maximum'])}")
                printed = paper.SWEEP.get(float(epsilon), {}).get(kind) if output == "dpc" else None
                cells.append(f"{printed[0]} / {printed[1]:,}" if printed else "")
            rows.append([f"{output}, epsilon {epsilon}", *cells])
    sentences = (
        "The paper's mechanism and DP independence with more and with less budget. More of it mends one-way answers "
        "and hardly two-way ones. The picture has the errors of all queries at each epsilon."
    )
    shown = record.table(["", "one-way", "the paper", "two-way", "the paper"], rows)
    methods = "Average / maximum absolute error over all queries, three runs (and their range)."
    return record.told("dpc on Adult by epsilon", sentences, shown, methods)


@click.command()
@record.options
def main(data_folder: Path | None, out: Path) -> None:
    """Errors of dpc (and of DP independence) on Adult for epsilon from 0.25 to 5."""
    dataset = data.from_folder("adult", data_folder)
    schema = dataset.schema
    true = answer(dataset.path, schema, choose_triples(schema, max_triples=0, sampled=0))
    results: dict[str, Any] = {}
    panels: dict[str, dict[str, Any]] = {f"Adult, {kind}": {} for kind in TWO}
    for epsilon in EPSILONS:
        dpc = [compare(true, baselines.dpc(dataset.path, true, epsilon=epsilon, seed=seed)) for seed in record.SEEDS]
        floor = [compare(true, baselines.independence(true, epsilon=epsilon, seed=seed)) for seed in record.SEEDS]
        results[f"{epsilon:g}"] = {"dpc": record.summary(dpc), "DP independence": record.summary(floor)}
        for kind in TWO:
            panels[f"Adult, {kind}"][f"epsilon {epsilon:g}"] = dpc[0].result(kind).errors
    record.write(
        out,
        "epsilon_sweep",
        document={"header": record.header("epsilon_sweep"), "results": results},
        markdown=markdown(results),
        figures={"epsilon_sweep": cdf_figure(panels, title="dpc by epsilon")},
    )


if __name__ == "__main__":
    main()
