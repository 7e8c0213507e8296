"""Judges that others wrote, on raw values: sdmetrics, mostlyai-qa, SDNist's k-marginal and Anonymeter.

    .venv-raw/bin/python -m benchmarks.judges                       # all, with --page by make results
    .venv-raw/bin/python -m benchmarks.judges --tables adult --judges sdmetrics,sdnist

Each table is released at epsilon 1 from a draft that is accepted unread, and from the schema of a knowing person where
`benchmarks/judges/TABLE.toml` is one. Beside the releases stand real rows that were not released, the ceiling, and the
draft's release with each column shuffled by itself, the floor: its margins under the same budget, and no dependence.
Judges are programs in environments of their own (`make judges`), and see texts of the columns that all candidates have.
The tables were chosen by their descriptions and numbers of rows before any was judged. Runs are kept in the work folder
and repeated when the package has changed; what a judge says of real rows is kept.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

import click
import pandas as pd

from benchmarks import raw
from benchmarks.pages import RESULTS, ROOT, SRC, mark, versions, write_page
from benchmarks.tables import FOLDER
from experiments import record
from sklar import Schema, fit
from sklar.files.write import write_text

WORK = ROOT / "build" / "judges"
# What a judge said is kept while the judges and their environments are the same.
_JUDGING = [Path(__file__).with_name("judging.py"), *(ROOT / "requirements").glob("*.txt")]
JUDGING = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_JUDGING))).hexdigest()[:8]
TABLES = ("adult", "weather", "pizzaplace", "stops", "seattlepets", "movies")
# Each judge: its environment, the figures that it gives, and a goal: how far the draft may be from real test rows.
JUDGES: Mapping[str, tuple[str, tuple[str, ...], float | None]] = {
    "sdmetrics": (".venv-raw", ("score", "columns", "pairs"), 0.01),
    "mostlyai": (".venv-mostlyai", ("score", "auc"), 0.02),
    "sdnist": (".venv-sdnist", ("score",), None),
    "anonymeter": (".venv-anonymeter", ("singling", "singling_reach", "inference", "inference_reach"), None),
}
CANDIDATES = {"test": "real test rows", "known": "a knowing person's schema", "draft": "a draft, unread"}
CANDIDATES |= {"floor": "independence"}
EPSILON, DRAWS, TEST_SHARE = 1.0, 3, 0.2


def split(name: str, work: Path) -> tuple[Path, Path]:
    """The rows that are released and the real rows that are not, as CSV files."""
    if name == "adult":
        return FOLDER / "adult.csv", FOLDER / "adult_test.csv"
    train, test = work / f"{name}.train.csv", work / f"{name}.test.csv"
    if not test.exists():
        whole = raw.texts(raw.opened(name, work))
        chosen = whole.sample(frac=TEST_SHARE, random_state=1)
        whole.drop(chosen.index).to_csv(train, index=False)
        chosen.to_csv(test, index=False)
    return train, test


def candidates(name: str, draw: int, train: Path, work: Path) -> dict[str, Path]:
    """The rows of each release of a table and of the floor."""
    schemas = {"draft": raw.accepted(train)[0]}
    if (known := Path(__file__).with_name(f"{name}.toml")).exists():
        schemas["known"] = Schema.load(known)
    made, rows = {}, len(raw.texts(train))
    for kind, schema in schemas.items():
        made[kind] = work / f"{name}.{kind}.{draw}.csv"
        fit(train, schema, epsilon=EPSILON).sample(rows, seed=draw).write_csv(made[kind])
    made["floor"] = work / f"{name}.floor.{draw}.csv"
    shuffled = raw.texts(made["draft"])
    for place, column in enumerate(shuffled.columns):
        shuffled[column] = shuffled[column].sample(frac=1, random_state=1000 * draw + place).to_numpy()
    shuffled.to_csv(made["floor"], index=False)
    return made


def columns_of(paths: Sequence[Path]) -> list[str]:
    """The columns that all of these files have, in the order of the first."""
    held = [list(pd.read_csv(path, nrows=0).columns) for path in paths]
    return [name for name in held[0] if all(name in each for each in held[1:])]


def said(judge: str, train: Path, test: Path, judged: Path, columns: Sequence[str]) -> dict[str, float] | str:
    """A judge's figures, or the last line of why there are none."""
    python = ROOT / JUDGES[judge][0] / "bin" / "python"
    if not python.exists():
        return f"needs {JUDGES[judge][0]}. Run make judges."
    command = [python, "-m", "benchmarks.judges.judging", judge, train, test, judged, "--columns", json.dumps(columns)]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["ended without a word"])[-1]
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def run(name: str, draw: int, judges: Sequence[str], work: Path, jobs: int) -> dict[str, Any]:
    """One draw of a table before the judges; what was asked of this state of the package is not asked again."""
    kept = work / f"{name}.{draw}.json"
    found: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    if found.get("judging") != JUDGING:
        found["said"] = {}
    train, test = split(name, work)
    if found.get("source") != SRC:
        made = candidates(name, draw, train, work)
        columns = columns_of([train, test, *made.values()])
        same = found.get("columns") == columns
        real = {key: value for key, value in found.get("said", {}).items() if same and key.endswith(".test")}
        files = {kind: str(path) for kind, path in made.items()}
        found = {"table": name, "draw": draw, "source": SRC, "rows": len(raw.texts(train)), "columns": columns}
        found |= {"files": files, "said": real}
    found["judging"] = JUDGING
    asked = [
        (judge, kind, path)
        for judge in judges
        for kind, path in ({"test": str(test)} | found["files"]).items()
        if not isinstance(found["said"].get(f"{judge}.{kind}"), dict) and (draw == 1 or kind != "test")
    ]

    with ThreadPoolExecutor(jobs) as pool:
        answers = pool.map(lambda each: said(each[0], train, test, Path(each[2]), found["columns"]), asked)
        for (judge, kind, _), answer in zip(asked, answers, strict=True):
            found["said"][f"{judge}.{kind}"] = answer
            click.echo(f"{name}, draw {draw}, {judge}, {CANDIDATES[kind]}: {answer}")
            write_text(kept, json.dumps(found) + "\n")
    return found


def figures(runs: Sequence[Mapping[str, Any]], judge: str, kind: str, figure: str) -> list[float]:
    """A judge's figure of one kind of rows, of all draws that have it."""
    every = [run["said"].get(f"{judge}.{kind}") for run in runs]
    return [each[figure] for each in every if isinstance(each, dict)]


def goals(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, float, float, float]]:
    """Table, judge, how far the draft is from real test rows (mean over draws), the limit, and the draft's score."""
    found = []
    for name in dict.fromkeys(run["table"] for run in runs):
        mine = [run for run in runs if run["table"] == name]
        for judge, (_, _, limit) in JUDGES.items():
            real, draft = (figures(mine, judge, kind, "score") for kind in ("test", "draft")) if limit else ([], [])
            if limit and real and draft:
                found.append((name, judge, mean(real) - mean(draft), limit, mean(draft)))
    return found


def passes(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for every goal, and one for each judge that said nothing of some rows."""
    lines = [
        f"{'PASS' if behind <= limit else 'FAIL'}  {judge} on {name}: {score:.3f}, {behind:+.4f} behind real rows "
        f"(at most {limit:g})"
        for name, judge, behind, limit, score in goals(runs)
    ]
    silent = [
        f"{judged} of {run['table']}, draw {run['draw']}: {each}"
        for run in runs
        for judged, each in run["said"].items()
        if isinstance(each, str)
    ]
    return [*lines, *(f"NONE  {each}" for each in silent)]


def page_of(runs: Sequence[Mapping[str, Any]]) -> str:
    """The tables of the page."""
    head = ["table", "judge", "limit", "behind real rows", ""]
    lines = [
        [name, judge, f"{limit:g}", f"{behind:+.4f}", "PASS" if behind <= limit else "FAIL"]
        for name, judge, behind, limit, _ in goals(runs)
    ]
    text = f"## Goals\n\n{record.table(head, lines)}"
    for judge, (_, names, _) in JUDGES.items():
        rows = []
        for name in dict.fromkeys(run["table"] for run in runs):
            mine = [run for run in runs if run["table"] == name]
            for kind, words in CANDIDATES.items():
                cells = [figures(mine, judge, kind, figure) for figure in names]
                if any(cells):
                    rows.append([name, words, str(len(cells[0])), *map(_spread, cells)])
        if rows:
            text += f"\n\n## {judge}\n\n" + record.table(["table", "rows of", "draws", *names], rows)
    silent = [line for line in passes(runs) if line.startswith("NONE")]
    return "\n\n".join([text, *([" ".join(silent)] if silent else []), f"## Methods\n\n{_METHODS}"])


def _spread(values: Sequence[float]) -> str:
    digits = 1 if max(values, default=0) > 10 else 3
    middle = f"{mean(values):.{digits}f}" if values else "-"
    return middle + (f" ({min(values):.{digits}f}-{max(values):.{digits}f})" if len(values) > 1 else "")


_METHODS = f"""\
Means over draws, smallest and largest in parentheses. Adult has test rows of its own; of the other tables a random
{TEST_SHARE:.0%} of the rows are not released and are the real test rows. Judges see the columns that all candidates
have. The floor is the draft's release with every column shuffled by itself. sdmetrics looks at 10,000 rows, mostlyai-qa
at 5,000 (1,000 for embeddings), Anonymeter attacks 300 times with 10,000; SDNist's k-marginal is computed by its own
code over all pairs, after its 20 percentile bins of numbers and times. AUC: .5 is a classifier that cannot tell the
rows from real ones. Anonymeter's figures are the success of attacks beyond that on real rows which were not released,
and the upper end of its 95% interval."""

OTHERWISE = """\
# Outside judges, on raw values

![Judges](judges.svg)

What sdmetrics, mostlyai-qa, SDNist and Anonymeter say of releases at epsilon 1, on values as they stand in the files. A
draft that was accepted unread is compared with real rows that were not released, which no release can beat but by luck.
Each dot of the picture is a table; the goal is .01 behind real rows for sdmetrics and .02 for mostlyai-qa."""


def picture(runs: Sequence[Mapping[str, Any]]) -> Any:
    """Scores of each table, a panel a judge."""
    from experiments.figures import STYLES, grid

    scored = [judge for judge, (_, names, _) in JUDGES.items() if "score" in names]
    tables = list(dict.fromkeys(run["table"] for run in runs))
    made, axes = grid(len(scored), len(scored), title="Scores on raw values (right is better)", size=(3.5, 3.0))
    for ax, judge in zip(axes, scored, strict=True):
        for (kind, words), (colour, _, marker) in zip(CANDIDATES.items(), STYLES, strict=False):
            points = [
                (mean(values), place)
                for place, name in enumerate(tables)
                if (values := figures([run for run in runs if run["table"] == name], judge, kind, "score"))
            ]
            if points:
                ax.plot(*zip(*points, strict=True), color=colour, linestyle="", marker=marker, label=words)
        ax.set_title(judge, fontsize=10, loc="left")
        ax.set_yticks(range(len(tables)), tables, fontsize=8)
        ax.invert_yaxis()
    axes[0].legend(fontsize=7, frameon=False)
    return made


def _names(_context: Any, option: Any, value: str) -> list[str]:
    every = list(JUDGES) if option.name == "judges" else list(TABLES)
    chosen = [name for name in value.split(",") if name] or every
    if unknown := [name for name in chosen if name not in every]:
        raise click.BadParameter(f"no such one: {', '.join(unknown)}. Choose from {', '.join(every)}.")
    return chosen


@click.command(help=__doc__)
@click.option("--tables", default="", callback=_names, help="Names, with commas between them; all by default.")
@click.option("--judges", default="", callback=_names, help="Names, with commas between them; all by default.")
@click.option("--draws", default=DRAWS, show_default=True, help="Fresh releases of each table.")
@click.option("--jobs", default=2, show_default=True, help="Judges at a time.")
@click.option("--page", is_flag=True, help="Write docs/results/judges.*.")
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), default=WORK, help="Where runs are kept.")
def main(*, tables: list[str], judges: list[str], draws: int, jobs: int, page: bool, work: Path) -> None:
    """Run what was not run by this state of the package, and say whether the goals are met."""
    work.mkdir(parents=True, exist_ok=True)
    runs = [run(name, draw, judges, work, jobs) for name in tables for draw in range(1, draws + 1)]
    for line in passes(runs):
        click.echo(line)
    if page:
        header = {"command": f"python -m benchmarks.judges --draws {draws} --page", **versions(), "source": SRC}
        kept = [{key: value for key, value in run.items() if key != "files"} for run in runs]
        document = {"header": header, "goals": [list(each) for each in goals(runs)], "runs": kept}
        write_page(
            RESULTS, "judges", marked=mark("judges/__main__"), otherwise=OTHERWISE, document=document,
            markdown=page_of(runs), figure=picture(runs),
        )  # fmt: skip


if __name__ == "__main__":
    main()
