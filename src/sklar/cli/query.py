"""`sklar query`: counts with error bars, from a model."""

from __future__ import annotations

from pathlib import Path

import click

from sklar.cli.console import JSON, print_figures
from sklar.cli.options import MODEL, flag, number


@click.command(short_help="Counts with error bars, from a model.")
@MODEL
@click.argument("predicate")
@click.option("--level", type=number, default="0.95", show_default=True, help="Coverage of the confidence interval.")
@flag(
    "--complete",
    "Vouch that every row has a level of every attribute: errors get smaller. Without it, the schema decides.",
)
@flag("--exact", "Refuse a predicate that cuts a bin, instead of using the model's share.")
@JSON
def query(*, model_path: Path, predicate: str, level: float, complete: bool, exact: bool) -> None:
    """Count the rows that satisfy PREDICATE, with error bars, from a MODEL file. This costs no privacy.

    Predicates over one or two attributes were measured: they get an estimate, its standard error and a confidence
    interval. So do those over three whose table the release measured, where its coarse levels tell what is asked.
    Others get the synthetic rows' answer only. Where a predicate cuts a bin, the model's share of the bin is used, and
    the error includes that it was not measured.

    \b
      sklar query adult.sklar "income = '>50K' and sex = 'Female'"
      sklar query adult.sklar "30 <= age < 40 and not workclass is missing"
      sklar query adult.sklar "education in ('Masters', 'Doctorate') or education-num >= 14"

    \b
    Names stand bare or in double quotes, values in single quotes. Comparisons: =, !=, <, <=, >, >=,
    in (...), is missing. Joined by and, or, not and parentheses.
    """
    from sklar.answer.query import answer
    from sklar.files.archive import load

    print_figures(answer(load(model_path), predicate, level=level, complete=complete, exact=exact))
