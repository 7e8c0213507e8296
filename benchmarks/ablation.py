"""What each part of a release brings: errors without it, on the same noisy tables where the part comes after them.

    python -m benchmarks.ablation --jobs 16 --peers-python .venv-graphical/bin/python
    python -m benchmarks.ablation --page

One job is a table, an epsilon and a draw of noise. It releases once with all parts. A part of the fit or of drawing is
then taken out of the same measured tables; a part of the plan needs noise of its own, so that its figures vary more.
Parts are taken out by setting a constant of the package in this process, which no option of a release does. A job that
left its file is not repeated while the package has not changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np
from experiments.figures import dots
from threadpoolctl import threadpool_limits

from benchmarks.judge import judge
from benchmarks.pages import RESULTS, ROOT, SRC, mark, versions, write_page
from benchmarks.tables import FOLDER, Bench, codes_of, opened
from experiments import record
from sklar.budget.certificate import Measured
from sklar.budget.method import Method
from sklar.budget.plan import plan_scores, plan_second
from sklar.draw.blocks import Copula
from sklar.files.model import Model, fit_tables
from sklar.fitting.latent import LatentModel
from sklar.machine.threads import using
from sklar.release import measure

WORK = ROOT / "build" / "ablation"
TABLES = (
    *("adult", "happiness", "Computers", "SumHes", "PSID", "VerbAgg", "charity", "nwtco"),
    *("functions", "sequences"),
)
EPSILONS = (1.0, 4.0, 10.0)
ALL = "all parts"
MEASURES = {"tv1": "TV1", "tv2": "TV2", "tv3": "TV3"}
# Changes of less than this mean change of TV2 and of TV3 are marked: such a part is not worth its lines.
WORTH = 0.01


def _evenly(cells: Any, stages: Any, distances: Any, *rest: Any) -> Any:
    return plan_second(cells, stages, np.zeros_like(distances), *rest)


def _of_three(cells: Any, n_rows: Any, stages: Any, targets: Any, **_: Any) -> Any:
    return plan_scores(cells, n_rows, stages, targets, orders=(3,))


def _never(*_: Any, **__: Any) -> Any:
    return None


# What is set where in the package to take a part out: before tables are measured, or only when they are fitted.
PLANNED: Mapping[str, tuple[str, Any]] = {
    "sets of four": ("sklar.fitting.third.plan_scores", _of_three),
    "second stage by distances": ("sklar.fitting.third.plan_second", _evenly),
    "third stage": ("sklar.budget.plan.looks_for_triples", _never),
    "scores": ("sklar.fitting.third.plan_scores", _never),
}
FITTED: Mapping[str, tuple[str, Any]] = {
    "mix of shrunk tables": ("sklar.fitting.choose.SHRINKAGES", (0.0,)),
    "shrunk tables alone": ("sklar.fitting.choose.SHRINKAGES", (0.4,)),
    "what fits miss": ("sklar.fitting.choose.MOST_MISSED", -1),
    "capacity by noise": ("sklar.fitting.choose.COMPONENTS", (150, 150)),
    "several fits": ("sklar.fitting.choose.UNITED", 300),
    "margins from interactions": ("sklar.fitting.denoise._SHARPENING_ROUNDS", 0),
    "margins by Bayes": ("sklar.fitting.denoise.LARGE_TV", np.inf),
}


def _plain(copula: Copula) -> Copula:
    return replace(copula, rounds=0) if isinstance(copula, LatentModel) else copula


def _whole(copula: Copula) -> Copula:
    return replace(copula, fits=1) if isinstance(copula, LatentModel) else copula


# Parts of drawing are taken out of the fitted model.
DRAWN: Mapping[str, Callable[[Copula], Copula]] = {"exchanges": _plain, "few fits for few rows": _whole}


def errors(bench: Bench, model: Model, seed: int) -> dict[str, float]:
    """The errors of one sample."""
    found = judge(bench, codes_of(model.sample(seed=seed), bench.schema))
    return {name: found[name] for name in MEASURES}


def tried(bench: Bench, epsilon: float, draw: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Errors with all parts, and without each."""

    def measured() -> Measured:
        return measure(bench.rows, bench.schema, Method().budget_of(None, epsilon))

    first = measured()
    model = fit_tables(first)
    yield ALL, errors(bench, model, draw)
    for name, change in DRAWN.items():
        yield name, errors(bench, replace(model, copula=change(model.copula)), draw)
    for name, (place, value) in PLANNED.items():
        with patch(place, value):
            own = measured()
        yield name, errors(bench, fit_tables(own), draw)
    for name, (place, value) in FITTED.items():
        with patch(place, value):
            yield name, errors(bench, fit_tables(first), draw)


def job(table: str, epsilon: float, draw: int, peers: Path | None, work: Path) -> str:
    """Do one job and keep what it found."""
    path = work / f"{table}.{epsilon:g}.{draw}.json"
    if path.exists() and json.loads(path.read_text())["source"] == SRC:
        return f"{path.stem}: kept"
    with threadpool_limits(1), using(1):
        bench = opened(table, folder=FOLDER, peers=peers, work=work)
        found = dict(tried(bench, epsilon, draw))
    facts = {"table": table, "title": bench.title, "rows": bench.n_rows, "epsilon": epsilon, "draw": draw}
    path.write_text(json.dumps({**facts, "source": SRC, "errors": found}) + "\n")
    return f"{path.stem}: {found[ALL]}"


def changes(runs: list[dict[str, Any]], part: str, measure: str) -> np.ndarray[Any, Any]:
    """How many times larger an error is without a part, less one: of means over draws, by table and epsilon."""
    cells: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for run in runs:
        own = run["errors"]
        cells.setdefault((run["table"], run["epsilon"]), []).append((own[ALL][measure], own[part][measure]))
    means = [np.mean(each, axis=0) for each in cells.values()]
    return np.array([without / whole - 1 for whole, without in means])


def markdown(runs: list[dict[str, Any]]) -> str:
    """Mean changes over all tables, by part, with how often a part helps, and by epsilon."""
    groups = {"all": runs} | {f"{each:g}": [run for run in runs if run["epsilon"] == each] for each in EPSILONS}
    lines = []
    for part in (*DRAWN, *PLANNED, *FITTED):
        found = {measure: changes(runs, part, measure) for measure in MEASURES}
        spread = found["tv2"].std(ddof=1) / max(found["tv2"].size, 1) ** 0.5 if found["tv2"].size > 1 else 0.0
        small = max(found["tv2"].mean(), found["tv3"].mean()) < WORTH
        lines.append(
            [
                part + (" *" if small else ""),
                *[f"{each.mean():+.1%}" for each in found.values()],
                f"{spread:.1%}",
                f"{np.count_nonzero(found['tv2'] > 0)} of {found['tv2'].size}",
                *[f"{changes(own, part, 'tv2').mean():+.1%}" for key, own in groups.items() if key != "all" and own],
            ]
        )
    head = ["without", *MEASURES.values(), "± of TV2", "TV2 larger in"]
    return record.table([*head, *[f"TV2, epsilon {key}" for key, own in groups.items() if key != "all" and own]], lines)


def figure(runs: list[dict[str, Any]]) -> Any:
    """How much larger errors are without each part."""
    series = {
        told: {part: 100 * float(changes(runs, part, measure).mean()) for part in (*DRAWN, *PLANNED, *FITTED)}
        for measure, told in MEASURES.items()
    }
    return dots("Errors without each part", "% more, mean over tables", series)


@click.command(help=__doc__)
@click.option("--tables", default=",".join(TABLES), show_default=True)
@click.option("--epsilons", default="1,4,10", show_default=True)
@click.option("--draws", default=3, show_default=True, help="Fresh draws of noise.")
@click.option("--jobs", default=2, show_default=True, help="Processes at a time, one core each.")
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), default=WORK, help="Where runs are kept.")
@click.option("--peers-python", type=click.Path(path_type=Path, exists=True), help="The Python that has the packages.")
@click.option("--page", is_flag=True, help="Write docs/results/ablation.* from the work folder, and run nothing.")
def main(
    *, tables: str, epsilons: str, draws: int, jobs: int, work: Path, peers_python: Path | None, page: bool
) -> None:
    """Run what was not run, or write the page."""
    if page:
        kept = [json.loads(path.read_text()) for path in sorted(work.glob("*.*.*.json"))]
        runs = [run for run in kept if run["source"] == SRC]
        header = {
            "command": "python -m benchmarks.ablation",
            **versions(),
            "source": SRC,
            "draws": f"{len({run['draw'] for run in runs})} of {len({run['table'] for run in runs})} tables",
        }
        write_page(
            RESULTS,
            "ablation",
            marked=mark("ablation"),
            otherwise="# What each part of a release brings\n\n![Figures of this page](ablation.svg)",
            document={"header": header, "runs": runs},
            markdown=markdown(runs),
            figure=figure(runs),
        )
        return
    work.mkdir(parents=True, exist_ok=True)
    every = [(table, float(e)) for table in tables.split(",") for e in epsilons.split(",")]
    for table in tables.split(","):
        # Once, before processes want it together.
        opened(table, folder=FOLDER, peers=peers_python, work=work)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(job, *each, draw, peers_python, work) for draw in range(1, draws + 1) for each in every]
        for done in as_completed(asked):
            click.echo(done.result())


if __name__ == "__main__":
    main()
