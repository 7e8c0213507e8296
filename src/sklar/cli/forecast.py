"""`sklar forecast`: what errors to expect, before any budget is spent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sklar.cli.console import JSON, print_answer
from sklar.cli.options import FORESEEN, N_ROWS, SCHEMA, flag, number, path, schema_of


@click.command(short_help="What errors to expect, before spending.")
@SCHEMA
@N_ROWS
@click.option(
    "--epsilon", "epsilons", required=True, multiple=True, type=number, help="A budget; may be given several times."
)
@FORESEEN
@flag(
    "--complete", "Vouch that every row has a level of every attribute: one-way errors get smaller. As for sklar query."
)
@JSON
@path("--plot", "OUT.png|.svg", "Draw the error against epsilon.", to="plot_path")
def forecast(
    *,
    schema_path: Path,
    epsilons: tuple[float, ...],
    delta: float,
    neighbors: Any,
    plot_path: Path | None,
    **options: Any,
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
    forecasts = [foresee(schema, budget, **options) for budget in budgets]
    if target:
        with replacing(target) as temporary:
            plot_forecasts(forecasts, temporary, kind=target.suffix.lower()[1:])
    after = [f"The plot is in {target}."] if target else []
    print_answer([each.to_dict() for each in forecasts], table_lines(forecasts), *after)
