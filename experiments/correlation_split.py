"""The paper's split by correlation on Hospital: what cop gains where pairs of dummies are correlated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from experiments import baselines, data, paper, record
from experiments.figures import cdf_figure
from sklar.custodian.evaluate import answer, choose_triples, compare

HIGH, LOW = "two-way, |r| >= 0.5", "two-way, |r| < 0.5"


def markdown(results: Mapping[str, Any]) -> str:
    """The split as a table."""
    high, low = (results["cop"]["classes"][kind]["queries"] for kind in (HIGH, LOW))
    rows = [
        [f"{output}, {kind.removeprefix('two-way, ')}", *record.cells(found["classes"][kind])]
        for kind in (HIGH, LOW)
        for output, found in results.items()
    ]
    sentences = (
        f"{high:,} of {high + low:,} pairs of dummies have |r| >= 0.5 (the paper: {paper.CORRELATED_PAIRS:,} of "
        f"{paper.PAIRS:,}, on {paper.HOSPITAL_DUMMIES:,} dummies). On them a copula can be nearer than independence; "
        "on the rest there is little to gain."
    )
    title, shown = "Correlated and uncorrelated pairs of Hospital", record.table(["", "95%", "99%", "100%"], rows)
    return record.told(title, sentences, shown, "Average / maximum absolute error without noise, three runs.")


@click.command()
@record.options
def main(data_folder: Path | None, out: Path) -> None:
    """Errors on pairs with |r| >= 0.5 and with |r| < 0.5, without differential privacy."""
    dataset = data.from_folder("hospital", data_folder)
    schema = dataset.schema
    true = answer(dataset.path, schema, choose_triples(schema, max_triples=0, sampled=0))
    runs = {
        "cop": [compare(true, baselines.cop(true, seed=seed)) for seed in record.SEEDS],
        "cop-ID": [compare(true, baselines.cop_identity(true, seed=seed)) for seed in record.SEEDS],
        "cop-1": [compare(true, baselines.cop_ones(true, seed=seed)) for seed in record.SEEDS],
        "no-cor": [compare(true, baselines.no_cor(true))],
    }
    results = {output: record.summary(evaluations) for output, evaluations in runs.items()}
    panels = {
        f"Hospital, {kind}": {output: evaluations[0].result(kind).errors for output, evaluations in runs.items()}
        for kind in (HIGH, LOW)
    }
    record.write(
        out,
        "correlation_split",
        document={"header": record.header("correlation_split"), "results": results},
        markdown=markdown(results),
        figures={"correlation_split": cdf_figure(panels, title="Where correlation matters, without noise")},
    )


if __name__ == "__main__":
    main()
