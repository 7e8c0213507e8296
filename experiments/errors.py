"""The paper's table of errors: dpc and Lap on one-, two- and three-way queries, beside the figures that it printed.

Three more outputs are put through the same queries: DP independence, DPCopula-Kendall, and this package's default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from experiments import baselines, data, paper, record
from experiments.figures import dots
from experiments.kendall import kendall
from sklar.custodian.evaluate import Evaluation, answer, choose_triples, compare
from sklar.custodian.evaluate.conjunctions import PERCENTS, Answers
from sklar.generate import SHAPES
from sklar.release import fit

EPSILON = 1.0
OUTPUTS = ("dpc", "Lap", "DP independence", "DPCopula-Kendall", "sklar default")

# All three-way queries of Hospital, 200 million of them, fit in 1 GB per table.
MAX_TRIPLES = 1 << 28


def measure(dataset: data.Dataset) -> dict[str, Any]:
    """Errors of every output in every run, for JSON."""
    schema, path = dataset.schema, dataset.path
    true = answer(path, schema, choose_triples(schema, max_triples=MAX_TRIPLES))
    scales = baselines.laplace_scales(schema, epsilon=EPSILON)
    outputs = {}
    for output in OUTPUTS:
        outputs[output] = record.summary([_run(output, path, true, seed) for seed in record.SEEDS])
        click.echo(f"{dataset.name}: {output} done", err=True)
    return {
        "rows": true.n_rows,
        "attributes": schema.n_attributes,
        "dummies": schema.n_levels,
        "epsilon_each": 2 / scales[0],
        "epsilon_each_three_way": 2 / scales[1],
        "outputs": outputs,
    }


def _run(output: str, path: Path, true: Answers, seed: int) -> Evaluation:
    runs: Mapping[str, Callable[[], Answers]] = {
        "dpc": lambda: baselines.dpc(path, true, epsilon=EPSILON, seed=seed),
        "Lap": lambda: baselines.laplace(true, epsilon=EPSILON),
        "DP independence": lambda: baselines.independence(true, epsilon=EPSILON, seed=seed),
        "DPCopula-Kendall": lambda: kendall(true, epsilon=EPSILON, seed=seed),
        "sklar default": lambda: baselines.drawn(fit(path, true.schema, epsilon=EPSILON), true, seed=seed),
    }
    return compare(true, runs[output]())


_TOLD = """\
The paper's table of errors, run again: dpc and Lap on one-, two- and three-way queries, each beside the figures that it
printed, in italics. Three more outputs answer the same queries. A dot of the picture at one is the paper's figure."""
_METHODS = """\
Average / maximum absolute error of the best 95%, 99% and 100% of the queries, mean of three runs (and their range). Of
DSS, which is not public, a generated table of its shape stands here. Tables of dpc's dummies need not sum to n, so that
their total variation can exceed 1."""


def markdown(results: Mapping[str, Any]) -> str:
    """Two tables per dataset: beside the paper's, and the other outputs."""
    parts = []
    for name, found in results.items():
        parts.append(
            f"## {found['title']}: {found['rows']:,} rows, {found['attributes']} attributes, {found['dummies']:,} "
            f"dummies\n\ne' = {found['epsilon_each']:.6f}, for three-way Lap {found['epsilon_each_three_way']:.6f}.\n"
        )
        rows: list[list[object]] = []
        for output in OUTPUTS:
            for kind in record.CLASSES:
                ours = found["outputs"][output]["classes"][kind]
                rows.append([f"{output}, {kind}", *record.cells(ours)])
                printed = paper.ERRORS.get(name, {}).get(output, {}).get(kind)
                if printed:
                    rows.append(["*the paper*", *(f"*{average:,} / {maximum:,}*" for average, maximum in printed)])
        parts.append(record.table(["", "95%", "99%", "100%"], rows))
        parts.append(
            "Share of valid records: "
            + ", ".join(_valid(found, output) for output in OUTPUTS if output != "Lap")
            + ".\n"
        )
        parts.append(
            "Mean total variation distance, one-, two- and three-way: "
            + "; ".join(f"{output} {_tvs(found, output)}" for output in OUTPUTS if output != "Lap")
            + ".\n"
        )
    return "\n".join(parts)


def _valid(found: Mapping[str, Any], output: str) -> str:
    return f"{output} {100 * record.mean(found['outputs'][output]['valid_share']):.2f}%"


def _tvs(found: Mapping[str, Any], output: str) -> str:
    classes = found["outputs"][output]["classes"]
    return ", ".join(f"{record.mean(classes[kind]['mean_total_variation']):.3f}" for kind in record.CLASSES[:3])


def ratios(results: Mapping[str, Any]) -> dict[str, float]:
    """Ours over the paper's for every average, and every maximum but that of 100%, of dpc and Lap on Adult."""
    out = {}
    for output, kinds in paper.ERRORS["adult"].items():
        for kind, printed in kinds.items():
            ours = results["adult"]["outputs"][output]["classes"][kind]
            for percent, (average, maximum) in zip(PERCENTS, printed, strict=True):
                out[f"{output}, {kind}, {percent}% average"] = record.mean(ours[str(percent)]["average"]) / average
                if percent < 100:
                    out[f"{output}, {kind}, {percent}% maximum"] = record.mean(ours[str(percent)]["maximum"]) / maximum
    return out


@click.command()
@record.options
@click.option("--full", is_flag=True, help="All 5,240,260 rows of the DSS-like table.")
def main(data_folder: Path | None, out: Path, *, full: bool) -> None:
    """Errors of dpc and Lap on Adult, Hospital and a DSS-like table, beside the paper's."""
    rows = SHAPES["dss"].rows if full else data.GENERATED_ROWS
    results = {}
    for name in ("adult", "hospital", "dss"):
        with data.opened(name, data_folder, rows) as dataset:
            results[name] = {"title": dataset.title, **measure(dataset)}
    document = {
        "header": record.header("errors", epsilon=EPSILON, data_seed=data.SEED),
        "ours_over_paper_adult": {key: round(value, 3) for key, value in ratios(results).items()},
        "results": results,
    }
    away = {name: ratio for name, ratio in ratios(results).items() if "maximum" not in name}
    text = record.told("Errors", _TOLD, markdown(results), _METHODS)
    picture = dots("Ours over the paper's, Adult", "average errors, ratio", {"ours": away}, log=True, line=1.0)
    record.write(out, "errors", document=document, markdown=text, figures={"errors": picture})


if __name__ == "__main__":
    main()
