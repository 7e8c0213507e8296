"""`sklar forecast`: what errors to expect, before any budget is spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sklar.cli.console import print_json, say
from sklar.cli.options import DELTA, JSON, METHODS, NEIGHBORS, SCHEMA, number, schema_of

if TYPE_CHECKING:
    from sklar.kernel.theorems import Neighbors


@click.command(short_help="What errors to expect, before spending.")
@SCHEMA
@click.option("--rows", required=True, type=int, help="How many rows the table has, exactly or roughly.")
@click.option(
    "--epsilon", "epsilons", required=True, multiple=True, type=number, help="A budget; may be given several times."
)
@DELTA
@click.option("--neighbors", type=NEIGHBORS, default="replace-one", show_default=True)
@click.option("--method", type=METHODS, default="auto", show_default=True)
@click.option(
    "--complete",
    is_flag=True,
    help="Vouch that every row has a level of every attribute: one-way errors get smaller. As for sklar query.",
)
@JSON
@click.option(
    "--plot",
    "plot_path",
    type=click.Path(path_type=Path),
    metavar="OUT.png|.svg",
    help="Draw the error against epsilon.",
)
def forecast(
    *,
    schema_path: Path,
    rows: int,
    epsilons: tuple[float, ...],
    delta: float,
    neighbors: Neighbors,
    method: str,
    complete: bool,
    as_json: bool,
    plot_path: Path | None,
) -> None:
    """Say what errors to expect from a release, before any budget is spent.

    \b
      sklar forecast --schema adult.toml --rows 32561 --epsilon 0.5 --epsilon 1 --epsilon 2
    """
    from sklar.budget.forecast import forecast as foresee
    from sklar.budget.forecast import plot_forecasts, table_lines
    from sklar.files.write import check_target, replacing
    from sklar.kernel.theorems import Budget

    target = check_target(plot_path, (".png", ".svg")) if plot_path else None
    schema = schema_of(schema_path)
    budgets = [Budget(epsilon=epsilon, delta=delta, neighbors=neighbors) for epsilon in epsilons]
    found = [foresee(schema, budget, rows=rows, method=method, complete=complete) for budget in budgets]
    if target:
        with replacing(target) as temporary:
            plot_forecasts(found, temporary, kind=target.suffix.lower()[1:])
    if as_json:
        print_json([each.to_dict() for each in found])
        return
    for line in table_lines(found):
        click.echo(line)
    if target:
        say(f"The plot is in {target}.")
