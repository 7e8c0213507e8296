"""The paper's figures of error CDFs: without DP (cop, cop-ID, cop-1, no-cor) and with it (cop, dpc, Lap)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from experiments import baselines, data, paper, record
from experiments.errors import EPSILON, MAX_TRIPLES
from experiments.figures import cdf_figure
from sklar.custodian.evaluate import answer, choose_triples, compare
from sklar.custodian.evaluate.conjunctions import Answers, Errors
from sklar.generate import SHAPES

SEED = record.SEEDS[0]
POINTS = 120
TWO = ("one-way", "two-way")
SEEN = "three-way, count > 0"


def curves(dataset: data.Dataset) -> dict[str, dict[str, Errors]]:
    """Errors by output and class of queries."""
    schema, path = dataset.schema, dataset.path

    def of(given: Answers) -> dict[str, Errors]:
        return {result.name: result.errors for result in compare(true, given).results}

    # Three-way queries take memory and are asked of dpc and Lap only.
    true = answer(path, schema, choose_triples(schema, max_triples=MAX_TRIPLES))
    found = {
        "dpc": of(baselines.dpc(path, true, epsilon=EPSILON, seed=SEED)),
        "Lap": of(baselines.laplace(true, epsilon=EPSILON)),
    }
    true = answer(path, schema, choose_triples(schema, max_triples=0, sampled=0))
    return found | {
        "cop": of(baselines.cop(true, seed=SEED)),
        "cop-ID": of(baselines.cop_identity(true, seed=SEED)),
        "cop-1": of(baselines.cop_ones(true, seed=SEED)),
        "no-cor": of(baselines.no_cor(true)),
    }


def _panels(
    found: dict[str, dict[str, dict[str, Errors]]], kinds: tuple[str, ...], outputs: tuple[str, ...]
) -> dict[str, dict[str, Errors]]:
    return {
        f"{title}, {kind}": {output: by_output[output][kind] for output in outputs if _drawn(output, kind)}
        for kind in kinds
        for title, by_output in found.items()
    }


def _drawn(output: str, kind: str) -> bool:
    # no-cor answers one-way queries exactly.
    return output != "no-cor" or kind != "one-way"


@click.command()
@record.options
@click.option("--full", is_flag=True, help="All 5,240,260 rows of the DSS-like table.")
def main(data_folder: Path | None, out: Path, *, full: bool) -> None:
    """CDFs of the absolute error, without and with differential privacy."""
    rows = SHAPES["dss"].rows if full else data.GENERATED_ROWS
    found, names = {}, {}
    for name in ("adult", "dss", "hospital"):
        with data.opened(name, data_folder, rows) as dataset:
            found[dataset.title], names[dataset.title] = curves(dataset), name
            click.echo(f"{name} done", err=True)
    results: dict[str, Any] = {
        name: {
            output: {kind: _thin(errors) for kind, errors in kinds.items() if errors.size and _wanted(output, kind)}
            for output, kinds in found[title].items()
        }
        for title, name in names.items()
    }
    table = record.table(
        ["cop, maximum error of the best 99%", *names],
        [
            [
                kind,
                *(
                    f"{found[title]['cop'][kind].best(99).maximum:,.0f} (paper {paper.COP_99[kind][name]})"
                    for title, name in names.items()
                ),
            ]
            for kind in TWO
        ],
    )
    figures = {
        "cdfs_without_dp": cdf_figure(
            _panels(found, TWO, ("cop", "cop-ID", "cop-1", "no-cor")), columns=3, title="Without differential privacy"
        ),
        "cdfs_with_dp": cdf_figure(
            _panels(found, TWO, ("cop", "dpc", "Lap")), columns=3, title="With differential privacy, epsilon = 1"
        ),
        "cdfs_three_way": cdf_figure(
            _panels(found, ("three-way", SEEN), ("dpc", "Lap")), columns=3, title="Three-way queries, epsilon = 1"
        ),
    }
    document = {"header": record.header("cdfs", epsilon=EPSILON, data_seed=data.SEED), "results": results}
    sentences = (
        "The paper's figures, run again: which share of the queries has at most which error, without noise and with "
        "it. Markers stand at the median, 90% and 99%. Below is the largest error of cop's best 99%."
    )
    text = record.told("CDFs of the absolute error", sentences, table, "One run each.")
    record.write(out, "cdfs", document=document, markdown=text, figures=figures)


def _wanted(output: str, kind: str) -> bool:
    return kind in TWO or (kind in ("three-way", SEEN) and output in ("dpc", "Lap"))


def _thin(errors: Errors) -> dict[str, Any]:
    at, share = errors.cdf(POINTS)
    return {
        "best_99_maximum": round(errors.best(99).maximum, 3),
        "error": at.round(2).tolist(),
        "share": share.round(5).tolist(),
    }


if __name__ == "__main__":
    main()
