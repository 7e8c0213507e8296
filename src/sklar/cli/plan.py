"""`sklar plan`: the smallest epsilon for what is wanted, and what an epsilon answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sklar.cli.console import JSON, print_figures
from sklar.cli.options import FORESEEN, N_ROWS, SCHEMA, ledger_options, number, open_ledger, schema_of


@click.command(short_help="The smallest epsilon for your questions.")
@SCHEMA
@N_ROWS
@click.option(
    "--want",
    "want",
    multiple=True,
    metavar="QUESTION",
    help='A question and its margin, such as "region = \'North\' within 2%" or "age x income within 5% of rows"; may '
    "be given several times.",
)
@click.option(
    "--epsilon", type=number, help="Say what this budget answers.  [default: the smallest that answers every question]"
)
@FORESEEN
@ledger_options("Say what the release would leave of this ledger. Nothing is charged.")
@JSON
def plan(
    *, schema_path: Path, ledger: Path | None, ledger_key: Path | None, dataset: str | None, **options: Any
) -> None:
    """Say which epsilon your questions need, before any budget is spent; or, with --epsilon, which it answers.

    A margin is a share of the rows, or a number of rows, and holds with 95% confidence for each question; for a table
    (age x income), for all its cells together. Exit code 1 where --epsilon does not answer every question.

    \b
      sklar plan --schema adult.toml --rows 32561 --want "sex = 'Female' within 1%"
      sklar plan --schema adult.toml --rows 32561 --epsilon 1 --want "age x income within 2% of rows"
    """
    from sklar.answer.wants import plan as foresee
    from sklar.errors import BudgetError

    book = open_ledger(ledger, ledger_key)
    if book is None and dataset is not None:
        raise BudgetError("a data set was given, and no ledger. Give both.")
    foreseen = foresee(schema_of(schema_path), ledger=book, dataset=dataset, **options)
    print_figures(foreseen, passed=foreseen.answered)
