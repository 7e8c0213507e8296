"""What a classifier learns from synthetic rows: AUC of boosted trees on real rows that no release has seen.

    python -m benchmarks.labels export --peers-python .venv-graphical/bin/python
    python -m benchmarks.labels peers --peers-python .venv-graphical/bin/python --seconds 3600
    python -m benchmarks.labels ours --jobs 16
    python -m benchmarks.labels page

Six tables with a label of two values, chosen by shape before any result was seen, and generated ones whose label is the
parity of the signs of two to five columns. A fifth of the rows, by a fixed seed, is kept for testing; the rest is the
private table. `ours` releases it twice: as it is, and with the label declared as the target; beside the AUC stand the
errors of two-way tables with the label and of all others, which pay for a target. The pieces are those of
`benchmarks.aim`: a run is kept as a file, peers' rows may be made on another machine and brought back. `export` needs
the peers' environment, whose packages hold the tables; what it leaves in the work folder is all that the others need.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl
from experiments.figures import dots
from experiments.paper import OTHERS
from threadpoolctl import threadpool_limits

from benchmarks import aim, pages
from benchmarks.accuracy import Run, independent, warm_up
from benchmarks.aim_page import mean
from benchmarks.tables import FOLDER, Bench, codes_of, opened
from experiments import record
from sklar.custodian.evaluate import usefulness
from sklar.draw.decode import Decoder
from sklar.files.write import write_text
from sklar.public.schema import Schema
from sklar.release import fit

WORK = pages.ROOT / "build" / "labels"
MARK = pages.mark("labels")
LABELS: Mapping[str, str] = {
    "adult": "income",
    "happiness": "vhappy",
    "HI": "whi",
    "nwtco": "rel",
    "twoyear": "BA",
    "VietNamI": "insurance",
}
PARITIES = (2, 3, 4, 5)
PARITY_ROWS, PARITY_COLUMNS = 20_000, 8
TABLES = (*LABELS, *(f"parity{k}" for k in PARITIES))
OURS = ("target", "auto", "independence")
NAMED = {
    "real": "real rows",
    "target": "sklar, target",
    "auto": "sklar",
    "aim3-8": "AIM-3",
    "independence": "independence",
}
PEERS = ("aim3-8",)
TREES = "boosted trees"
SEED = 3


def parity(k: int) -> Bench:
    """Independent normal columns, in eight bins each, and the parity of the signs of the first `k`.

    >>> rows = parity(3).rows
    >>> bool((((rows["x0"] < 0) ^ (rows["x1"] < 0) ^ (rows["x2"] < 0)) == (rows["label"] == "odd")).all())
    True
    """
    values = np.random.default_rng([SEED, k]).normal(size=(PARITY_ROWS, PARITY_COLUMNS))
    odd = (values[:, :k] < 0).sum(axis=1) % 2
    rows = pl.DataFrame(
        {f"x{at}": values[:, at] for at in range(PARITY_COLUMNS)} | {"label": np.array(["even", "odd"])[odd]}
    )
    edges = [-6, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 6]
    attributes: dict[str, Any] = {f"x{at}": {"type": "real", "edges": edges} for at in range(PARITY_COLUMNS)}
    attributes["label"] = {"type": "categorical", "values": ["even", "odd"]}
    schema = Schema.from_dict({"table": {"name": f"parity{k}"}, "attributes": attributes})
    return bench_of(f"parity{k}", f"parity of {k} signs (generated)", schema, rows)


def bench_of(name: str, title: str, schema: Schema, rows: pl.DataFrame) -> Bench:
    """A table in memory."""
    return Bench(name=name, title=title, schema=schema, rows=rows, codes=codes_of(rows, schema))


def split(name: str, *, peers: Path | None, work: Path) -> tuple[Bench, pl.DataFrame]:
    """The private table, and the rows kept for testing."""
    whole = parity(int(name[-1])) if name.startswith("parity") else opened(name, folder=FOLDER, peers=peers, work=work)
    tested = np.random.default_rng(SEED).random(whole.n_rows) < 0.2
    private = whole.rows.filter(pl.Series(~tested))
    return bench_of(name, whole.title, whole.schema, private), whole.rows.filter(pl.Series(tested))


def two_way(bench: Bench, rows: pl.DataFrame) -> dict[str, float]:
    """The mean total variation of two-way tables that hold the label, and of all others."""
    drawn, sizes = codes_of(rows, bench.schema), bench.schema.sizes.tolist()
    label, errors = bench.schema.names.index(label_of(bench.name)), dict[bool, list[float]]({True: [], False: []})
    for i, j in combinations(range(len(sizes)), 2):
        shares = [
            np.bincount(codes[i] * sizes[j] + codes[j], minlength=sizes[i] * sizes[j]) / codes.shape[1]
            for codes in (bench.codes, drawn)
        ]
        errors[label in (i, j)].append(0.5 * float(np.abs(shares[0] - shares[1]).sum()))
    return {name: round(float(np.mean(errors[held])), 5) for name, held in (("tv2_label", True), ("tv2_others", False))}


def label_of(name: str) -> str:
    """The column that is predicted."""
    return LABELS.get(name, "label")


def auc(bench: Bench, tested: pl.DataFrame, rows: Sequence[pl.DataFrame]) -> list[float]:
    """The AUC of boosted trees trained on each of these tables."""
    found: list[float] = []
    for at in range(0, len(rows), 2):
        pair = rows[at], rows[min(at + 1, len(rows) - 1)]
        scores = usefulness(*pair, tested, bench.schema, target=label_of(bench.name))
        found += [round(score.auc, 4) for score in scores if score.learner == TREES]
    return found[: len(rows)]


def release(bench: Bench, run: Run) -> pl.DataFrame:
    """Synthetic rows of one release."""
    if run.method == "independence":
        codes = independent(bench, run.epsilon, run.draw)
        return Decoder(bench.schema).decode(codes, np.random.default_rng(run.draw))
    schema = bench.schema
    if run.method == "target":
        schema = schema.aimed(label_of(bench.name))
    drawn: pl.DataFrame = fit(bench.rows, schema, epsilon=run.epsilon).sample(seed=run.draw)
    return drawn


def keep(work: Path, bench: Bench, tested: pl.DataFrame, run: Run, rows: pl.DataFrame, **facts: Any) -> str:
    """A run's file, and its line."""
    found = aim.facts(bench, run) | {"label": label_of(bench.name), "auc": auc(bench, tested, [rows])[0]}
    found |= {"whole": True} | two_way(bench, rows) | facts
    write_text(work / f"{run.stem}.json", json.dumps(found) + "\n")
    return f"{run.stem}: AUC {found['auc']:.4f}, TV2 {found['tv2_label']:.4f} with the label, {found['tv2_others']:.4f}"


def perform(run: Run, peers: Path | None, work: Path) -> str:
    """One run of ours, or real rows, in a process of its own."""
    with threadpool_limits(1):
        bench, tested = split(run.table, peers=peers, work=work)
        if run.method == "real":
            return keep(work, bench, tested, run, bench.rows, source=pages.SRC)
        return keep(work, bench, tested, run, release(bench, run), source=pages.SRC)


def markdown(runs: Sequence[dict[str, Any]]) -> str:
    """AUC by table, epsilon and method, with the spread of draws; then errors of two-way tables."""
    methods = [name for name in NAMED if any(run["method"] == name for run in runs)]
    scores, errors = [], []
    for table in (name for name in TABLES if any(run["table"] == name for run in runs)):
        here = [run for run in runs if run["table"] == table]
        for epsilon in sorted({run["epsilon"] for run in here if run["epsilon"]}):
            by = {
                name: [run for run in here if run["method"] == name and run["epsilon"] in (0, epsilon)]
                for name in methods
            }
            named = [f"{here[0]['title']}: {here[0]['label']}", f"{epsilon:g}"]
            scores.append(
                [*named, *(f"{mean(each, 'auc'):.3f}{_spread(each)}" if each else "-" for each in by.values())]
            )
            pairs = [
                f"{mean(each, 'tv2_label'):.4f} / {mean(each, 'tv2_others'):.4f}" if each else "-"
                for name, each in by.items()
                if name != "real"
            ]
            errors.append([*named, *pairs])
    shown = [NAMED[name] for name in methods]
    released = [NAMED[name] for name in methods if name != "real"]
    return (
        record.table(["table: label", "epsilon", *shown], scores)
        + "\n\nMean total variation of two-way tables with the label / of all others:\n\n"
        + record.table(["table: label", "epsilon", *released], errors)
        + f"\n\n{published()}"
    )


def published() -> str:
    """What others say of peers that are not run here."""
    told = json.loads(OTHERS.read_text(encoding="utf-8"))
    low, high = told["tab_pe"]["auc"]
    return f"*Not run here: {told['tab_pe']['source']}, {low:.2f} to {high:.2f}; {told['margnet']['source']}.*"


def figure(runs: Sequence[dict[str, Any]]) -> Any:
    """AUC at epsilon 1 of each table's label, a mark a method."""
    at = [run for run in runs if run["method"] == "real" or run["epsilon"] == 1.0]
    by: dict[str, dict[str, list[float]]] = {}
    for run in at:
        by.setdefault(run["method"], {}).setdefault(run["title"], []).append(run["auc"])
    named = {"real": "real rows", "auto": "sklar", "target": "sklar, target", "independence": "independence"}
    series = {
        told: {title: float(np.mean(values)) for title, values in by[method].items()}
        for method, told in named.items()
        if method in by
    }
    return dots("What a classifier learns, epsilon 1", "AUC on real test rows", series)


def _spread(runs: Sequence[dict[str, Any]]) -> str:
    values = [run["auc"] for run in runs]
    stopped = "" if all(run["whole"] for run in runs) else " *"
    return (f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else "") + stopped


def _chosen(_context: Any, _option: Any, value: str) -> list[str]:
    unknown = [name for name in value.split(",") if name not in TABLES]
    if unknown:
        raise click.BadParameter(f"no such table: {', '.join(unknown)}. Choose from {', '.join(TABLES)}.")
    return value.split(",")


_tables = click.option("--tables", default=",".join(TABLES), callback=_chosen, help="Names, with commas.")
_work = click.option("--work", type=click.Path(path_type=Path), default=WORK, help="Where runs are kept.")
_python = click.option("--peers-python", type=click.Path(path_type=Path, exists=True), help="The Python with mbi.")


@click.group(help=__doc__)
def main() -> None:
    """The pieces are commands."""


@main.command()
@_tables
@_work
@_python
def export(*, tables: list[str], work: Path, peers_python: Path | None) -> None:
    """Write the tables' codes and the list of jobs for peers."""
    work.mkdir(parents=True, exist_ok=True)
    for name in tables:
        bench, _ = split(name, peers=peers_python, work=work)
        np.savez_compressed(work / f"{name}.npz", codes=bench.codes.T.astype(np.int16), sizes=bench.schema.sizes)
    jobs = [f"{name} {peer} {epsilon:g} 1\n" for peer in PEERS for epsilon in aim.EPSILONS for name in tables]
    write_text(work / "jobs.txt", "".join(jobs))


main.add_command(aim.peers)


@main.command()
@_tables
@_work
@_python
@click.option("--draws", default=3, show_default=True, help="Fresh draws of noise.")
@click.option("--methods", default=",".join(OURS), show_default=True, help="Of ours.")
@click.option("--jobs", default=1, show_default=True, help="Runs at a time, a process with one thread each.")
def ours(*, tables: list[str], work: Path, peers_python: Path | None, draws: int, methods: str, jobs: int) -> None:
    """Release with this package what was not released by this state of it yet, and train on real rows once."""
    work.mkdir(parents=True, exist_ok=True)
    runs = []
    # Those that take longest first.
    for epsilon in aim.EPSILONS:
        runs += [
            Run(table=name, method=method, epsilon=epsilon, draw=draw)
            for name in tables
            for method in methods.split(",")
            for draw in range(1, draws + 1)
        ]
    runs = [run for run in runs if _source(work / f"{run.stem}.json") != pages.SRC]
    real = [Run(table=name, method="real", epsilon=0.0, draw=1) for name in tables]
    runs += [run for run in real if _source(work / f"{run.stem}.json") != pages.SRC]
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=warm_up) as pool:
        for done in as_completed([pool.submit(perform, run, peers_python, work) for run in runs]):
            click.echo(done.result())


def _source(path: Path) -> str | None:
    found: str | None = json.loads(path.read_text()).get("source") if path.exists() else None
    return found


@main.command()
@_work
@_python
@click.option("--out", type=click.Path(path_type=Path), default=pages.RESULTS, help="Folder of the page.")
def page(*, work: Path, peers_python: Path | None, out: Path) -> None:
    """Judge the rows that peers left, and write the page."""
    for run, path in aim.left_by_peers(work):
        if not (work / f"{run.stem}.json").exists():
            bench, tested = split(run.table, peers=peers_python, work=work)
            with np.load(path) as made:
                codes, whole = np.ascontiguousarray(made["codes"].T.astype(np.int32)), bool(made["whole"])
                peer = str(made["version"]) if "version" in made else "of unknown version"
            rows = Decoder(bench.schema).decode(codes, np.random.default_rng(run.draw))
            click.echo(keep(work, bench, tested, run, rows, whole=whole, peer=peer))
    found, record = [json.loads(path.read_text()) for path in sorted(work.glob("*.*.*.*.json"))], out / "labels.json"
    recorded = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    runs = aim.with_recorded(found, recorded)
    header = {"command": "python -m benchmarks.labels", **pages.versions(), "delta": "2^-30"}
    header |= {"peers": aim.locked_peer()}
    pages.write_page(
        out,
        "labels",
        marked=MARK,
        otherwise="# Labels: what a classifier learns from synthetic rows\n\n![Figures of this page](labels.svg)",
        document={"header": header, "runs": runs},
        markdown=markdown(runs),
        figure=figure(runs),
    )


if __name__ == "__main__":
    main()
