"""`sklar sample`: draw more rows from a model, at no cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sklar.cli.console import JSON, TIMINGS, finish, show_progress
from sklar.cli.options import ENGINE, MODEL, OUT, ROWS, SEED, SPREADSHEET, THREADS, rows_out

if TYPE_CHECKING:
    from sklar.files.model import Model
    from sklar.machine.cluster import Engine
    from sklar.machine.progress import Progress


@click.command(short_help="Draw more rows from a model, for free.")
@MODEL
@ROWS
@SEED
@click.option(
    "--given", metavar="PREDICATE", help="Draw only rows that satisfy this condition, written as for sklar query."
)
@OUT
@rows_out(
    "--events-out",
    "For a model of linked tables: where events go; --out gets the people, and --rows counts them.",
    required=False,
)
@SPREADSHEET
@ENGINE
@THREADS
@JSON
@TIMINGS
def sample(
    *,
    model_path: Path,
    rows: int | None,
    seed: int | None,
    given: str | None,
    out: str,
    events_out: str | None,
    spreadsheet: bool,
    engine: Engine,
) -> None:
    """Draw synthetic rows from a MODEL file. This costs no privacy, however often it is done.

    With --given, rows have the model's distribution under a condition, however rare it is. Where the condition cuts a
    bin, the model's shape inside the bin decides, which was not measured unless the release searched there.

    \b
      sklar sample adult.sklar --rows 10000 --seed 7 --out synthetic.parquet
      sklar sample adult.sklar --given "sex = 'Female' and age >= 30 and age < 45" --out women.csv
      sklar sample visits.sklar --out p.csv --events-out v.csv
    """
    from sklar.draw.sample import check_draw
    from sklar.files.archive import is_linked, load

    rows, seed = check_draw(rows, seed)
    check_out(out, engine, spreadsheet=spreadsheet)
    if given is not None and engine != "local":
        raise click.UsageError("--given draws rows on this machine. Leave out --engine.")
    if is_linked(model_path):
        if events_out is None or engine != "local" or spreadsheet or given is not None:
            raise click.UsageError(
                "the model is of linked tables: give --events-out FILE, and none of --engine, --spreadsheet, --given."
            )
        _sample_linked(model_path, rows, seed, out, events_out)
        return
    if events_out is not None:
        raise click.UsageError("--events-out is for models of linked tables (sklar link). Leave it out.")
    model = load(model_path)
    with show_progress() as progress:
        write_rows(model, out, rows, seed, engine, progress, spreadsheet=spreadsheet, given=given)
    drawn = model.n_rows if rows is None else rows
    under = "" if given is None else f", all with {given},"
    finish(
        {"rows": drawn, "given": given, "seed": seed, "out": out, "spent_epsilon": 0},
        f"{drawn:,} synthetic rows{under} in {out} (seed {seed}). No privacy was spent.",
    )


def _sample_linked(model_path: Path, people: int | None, seed: int, out: str, events_out: str) -> None:
    """Draw people and their events."""
    from sklar.files.archive import load_linked

    model = load_linked(model_path)
    with show_progress() as progress:
        model.write(out, events_out, people, seed=seed, progress=progress)
    drawn = people or model.n_people
    finish(
        {"people": drawn, "seed": seed, "out": out, "events_out": events_out, "spent_epsilon": 0},
        f"{drawn:,} synthetic people in {out}, their events in {events_out} (seed {seed}). No privacy was spent.",
    )


def check_out(out: str, engine: Engine, *, spreadsheet: bool) -> None:
    """Refuse, before any privacy is spent, an output that could not be written."""
    from sklar.files.write import SUFFIXES, check_target

    if engine == "local" or spreadsheet:
        check_target(out, (".csv",) if spreadsheet else SUFFIXES)
    if engine == "local":
        return
    if spreadsheet:
        raise click.UsageError("--spreadsheet is about CSV files, and Spark writes Parquet. Leave one out.")
    from sklar.files.spark import check_folder

    check_folder(out)


def write_rows(
    model: Model,
    out: str,
    rows: int | None,
    seed: int,
    engine: Engine,
    progress: Progress,
    *,
    spreadsheet: bool,
    given: str | None = None,
) -> None:
    """Draw rows into a file, or on Spark into a folder of files."""
    if engine == "local":
        model.write(out, rows, given=given, seed=seed, spreadsheet=spreadsheet, progress=progress)
        return
    from sklar.files.spark import write_on_spark

    progress.stage("sample")
    write_on_spark(model, out, rows, seed=seed)
