"""`sklar plan`: the smallest epsilon for what is wanted, and what an epsilon answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sklar.cli.console import print_figures
from sklar.cli.options import DELTA, JSON, METHODS, NEIGHBORS, SCHEMA, number, schema_of

if TYPE_CHECKING:
    from sklar.kernel.theorems import Neighbors


@click.command(short_help="The smallest epsilon for your questions.")
@SCHEMA
@click.option("--rows", required=True, type=int, help="How many rows the table has, exactly or roughly.")
@click.option(
    "--want",
    "wants",
    multiple=True,
    metavar="QUESTION",
    help='A question and its margin, such as "region = \'North\' within 2%" or "age x income within 5% of rows"; may '
    "be given several times.",
)
@click.option(
    "--epsilon", type=number, help="Say what this budget answers.  [default: the smallest that answers every question]"
)
@DELTA
@click.option("--neighbors", type=NEIGHBORS, default="replace-one", show_default=True)
@click.option("--method", type=METHODS, default="auto", show_default=True)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Say what the release would leave of this ledger. Nothing is charged.",
)
@click.option(
    "--ledger-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The ledger's key, where it has one.  [default: SKLAR_LEDGER_KEY of the environment]",
)
@click.option("--dataset", metavar="NAME", help="Its name in the ledger.  [default: the schema's]")
@JSON
def plan(
    *,
    schema_path: Path,
    rows: int,
    wants: tuple[str, ...],
    epsilon: float | None,
    delta: float,
    neighbors: Neighbors,
    method: str,
    ledger: Path | None,
    ledger_key: Path | None,
    dataset: str | None,
    as_json: bool,
) -> None:
    """Say which epsilon your questions need, before any budget is spent; or, with --epsilon, which it answers.

    A margin is a share of the rows, or a number of rows, and holds with 95% confidence for each question; for a table
    (age x income), for all its cells together. Exit code 1 where --epsilon does not answer every question.

    \b
      sklar plan --schema adult.toml --rows 32561 --want "sex = 'Female' within 1%"
      sklar plan --schema adult.toml --rows 32561 --epsilon 1 --want "age x income within 2% of rows"
    """
    from sklar.answer.wants import plan as foresee
    from sklar.budget.ledger import Ledger
    from sklar.errors import BudgetError

    if ledger is None and (ledger_key is not None or dataset is not None):
        raise BudgetError("a ledger's key or data set was given, and no ledger. Give --ledger, too.")
    found = foresee(
        schema_of(schema_path),
        rows=rows,
        want=wants,
        epsilon=epsilon,
        delta=delta,
        neighbors=neighbors,
        method=method,
        ledger=None if ledger is None else Ledger(ledger, key=ledger_key),
        dataset=dataset,
    )
    print_figures(found, as_json=as_json)
    if not found.answered:
        sys.exit(1)
