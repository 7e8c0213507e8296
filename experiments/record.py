"""What an experiment leaves behind: JSON, a Markdown table and figures, with what is needed to run it again."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from benchmarks.pages import stamp

from sklar.custodian.evaluate import Evaluation
from sklar.custodian.evaluate.conjunctions import PERCENTS
from sklar.files.write import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"

# Of sampling. Noise comes from the operating system and cannot be seeded, so figures are means over runs.
SEEDS = (1, 2, 3)

CLASSES = ("one-way", "two-way", "three-way", "three-way, count > 0")


Command = TypeVar("Command", bound=Callable[..., Any])


def options(command: Command) -> Command:
    """The options that every experiment takes."""
    command = click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        default=RESULTS,
        show_default="docs/results",
        help="Folder for the results.",
    )(command)
    return click.option(
        "--data",
        "data_folder",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="Folder with adult.csv, adult.toml, hospital.csv, hospital.toml; ../shared/data when left out.",
    )(command)


def header(module: str, **facts: Any) -> dict[str, Any]:
    """What is needed to run a module again. No absolute paths and no host names."""
    return {
        "command": " ".join(
            ["python -m", module if "." in module else f"experiments.{module}", *_public(sys.argv[1:])]
        ),
        "python": platform.python_version(),
        **{package: version(package) for package in ("sklar", "numpy", "scipy", "numba")},
        **stamp(),
        **({} if "." in module else {"sampling_seeds": list(SEEDS)}),
        "noise": "from the operating system, not seeded: figures are means over the runs",
        **facts,
    }


def _public(arguments: Sequence[str]) -> list[str]:
    """Arguments as typed, but for the folders."""
    kept, folders = [], {"--data": "DIR", "--out": "DIR"}
    for before, argument in zip(["", *arguments], arguments, strict=False):
        option, equals, _ = argument.partition("=")
        kept.append(folders.get(before) or (f"{option}=DIR" if equals and option in folders else argument))
    return kept


def write(
    folder: Path, name: str, *, document: Mapping[str, Any], markdown: str, figures: Mapping[str, Figure] | None = None
) -> None:
    """Write NAME.json and NAME.md, and every figure as .svg and .png: pictures stand below the title."""
    from experiments.figures import save

    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{name}.json", json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    facts = "\n".join(f"{key}: {value}" for key, value in document["header"].items())
    title, _, rest = markdown.strip().partition("\n\n")
    pictures = "".join(f"![{figure}]({figure}.svg)\n\n" for figure in figures or {})
    write_text(folder / f"{name}.md", f"<!--\n{facts}\n-->\n\n{title}\n\n{pictures}{rest}\n")
    for figure, drawn in (figures or {}).items():
        save(drawn, folder / f"{figure}.svg")
        save(drawn, folder / f"{figure}.png")
    click.echo(markdown.strip())


def told(title: str, sentences: str, tables: str, methods: str) -> str:
    """A page: its title, a few sentences, its tables, and at the end how it was measured."""
    return f"# {title}\n\n{sentences}\n\n{tables.strip()}\n\n## Methods\n\n{methods}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table, the first column to the left and the others to the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    # A bar inside a cell, as in |r|, would end it.
    escaped = ([str(cell).replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in escaped) + "\n"


def summary(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """Averages and maxima of every class in every run, for JSON."""
    out: dict[str, Any] = {}
    for result in evaluations[0].results:
        runs = [evaluation.result(result.name) for evaluation in evaluations]
        out[result.name] = {
            "queries": result.errors.size,
            "mean_total_variation": None if result.tv is None else [round(float(run.tv or 0), 6) for run in runs],
            **{
                str(percent): {
                    "average": [round(run.errors.best(percent).average, 3) for run in runs],
                    "maximum": [round(run.errors.best(percent).maximum, 3) for run in runs],
                }
                for percent in PERCENTS
            },
        }
    shares = [evaluation.valid_share for evaluation in evaluations]
    return {
        "valid_share": None if None in shares else [round(float(share or 0), 6) for share in shares],
        "three_way_queries": evaluations[0].triples,
        "classes": out,
    }


def cells(kind: Mapping[str, Any]) -> list[str]:
    """Average / maximum of the best 95%, 99% and 100%, with their spread."""
    return [f"{spread(kind[str(p)]['average'])} / {spread(kind[str(p)]['maximum'])}" for p in PERCENTS]


def mean(values: Sequence[float]) -> float:
    """The mean over the runs."""
    return sum(values) / len(values)


def spread(values: Sequence[float], digits: int | None = None) -> str:
    """The mean of the runs and their range, as `18 (17-19)`; one number where they agree."""
    digits = digits if digits is not None else (1 if mean(values) < 10 else 0)
    shown, low, high = (f"{value:,.{digits}f}" for value in (mean(values), min(values), max(values)))
    return shown if low == high else f"{shown} ({low}-{high})"
