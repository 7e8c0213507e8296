"""The paper's run-time table: its five shapes, its mechanism, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from experiments import data, paper, record
from experiments.baselines import DPC
from experiments.figures import dots
from experiments.stopwatch import Stopwatch, machine
from sklar.generate import SHAPES
from sklar.release import fit

SMALL_ROWS = {"dss": 200_000, "syn1": 20_000, "syn2": 10_000}
STAGES = ("count", "measure", "fit", "sample")


def measure(dataset: data.Dataset) -> dict[str, Any]:
    """Seconds of one run of the paper's mechanism, from the file to the last synthetic row."""
    watch = Stopwatch()
    model = fit(dataset.path, dataset.schema, epsilon=1.0, method=DPC, progress=watch)
    watch.stage("sample")
    for _ in model.sample_batches(seed=record.SEEDS[0]):
        pass
    watch.stop()
    seconds = {stage: lap.seconds for stage, lap in watch.laps.items()}
    return {
        "rows": model.n_rows,
        "attributes": dataset.schema.n_attributes,
        "dummies": dataset.schema.n_levels,
        "seconds": {stage: round(seconds.get(stage, 0.0), 2) for stage in STAGES},
        "total_seconds": round(sum(seconds.values()), 2),
    }


def markdown(results: Mapping[str, Any], where: str) -> str:
    """Ours beside the paper's."""
    rows = [
        [
            found["title"],
            f"{found['rows']:,}",
            f"{found['attributes']:,}",
            f"{found['dummies']:,}",
            *(f"{found['seconds'][stage]:.1f}" for stage in STAGES),
            f"**{found['total_seconds']:.1f} s**",
            f"{paper.TIMES[name][0]:,}",
            paper.TIMES[name][3],
        ]
        for name, found in results.items()
    ]
    head = ["", "rows", "attributes", "dummies", *(f"{stage}, s" for stage in STAGES), "total", "paper's rows", "paper"]
    sentences = (
        "From the file to the last synthetic row of dpc, stage by stage, beside what the paper printed. The generated "
        "tables have fewer rows here; only counting and sampling grow with them. Times are not of the same machine."
    )
    methods = (
        f"Ours: one run on {where}. The paper's: 10 cores (Intel Xeon E5-2660, 2.6 GHz), 128 GB. Each attribute of Syn "
        "1 and Syn 2 is one binary column in the paper and two dummies (false, true) here."
    )
    return record.told("Run-times of dpc", sentences, record.table(head, rows), methods)


@click.command()
@record.options
@click.option("--full", is_flag=True, help="All 5,240,260 rows of the generated tables.")
@click.option("--shape", "shapes", multiple=True, type=click.Choice(list(paper.TIMES)), help="Only these shapes.")
def main(data_folder: Path | None, out: Path, *, full: bool, shapes: tuple[str, ...]) -> None:
    """Run-times of dpc on the five shapes of the paper."""
    results = {}
    # The first call loads compiled code; it is not what the paper timed.
    with data.generated("census", 1_000) as dataset:
        measure(dataset)
    for name in shapes or paper.TIMES:
        rows = SHAPES[name].rows if full and name in SMALL_ROWS else SMALL_ROWS.get(name, 0)
        with data.opened(name, data_folder, rows) as dataset:
            results[name] = {"title": dataset.title, **measure(dataset)}
            click.echo(f"{name}: {results[name]['total_seconds']} s", err=True)
    document = {"header": record.header("runtimes", machine=machine(), data_seed=data.SEED), "results": results}
    series = {
        "ours": {found["title"]: found["total_seconds"] for found in results.values()},
        "the paper": {found["title"]: paper.seconds_of(paper.TIMES[name][3]) for name, found in results.items()},
    }
    pictures = {"runtimes": dots("Run-times of dpc", "seconds", series, log=True)}
    record.write(out, "runtimes", document=document, markdown=markdown(results, machine()), figures=pictures)


if __name__ == "__main__":
    main()
