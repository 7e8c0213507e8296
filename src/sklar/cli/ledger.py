"""`sklar ledger`: keep count of what was spent on each data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sklar.cli.console import print_json, say
from sklar.cli.options import JSON, NEIGHBORS, number

_FILE = click.argument("path", metavar="FILE", type=click.Path(path_type=Path))


@click.group(short_help="Keep count of what was spent.")
def ledger() -> None:
    """Keep count of what was spent on each data set, and refuse to overspend."""


@ledger.command()
@_FILE
@click.option("--dataset", required=True, metavar="NAME", help="By default, releases look for the schema's table name.")
@click.option("--epsilon", required=True, type=number, help="Total for all releases together, set once.")
@click.option("--delta", type=number, default="2**-30", show_default=True, help="Total for all releases together.")
@click.option("--neighbors", type=NEIGHBORS, default="replace-one", show_default=True)
@JSON
def init(*, path: Path, dataset: str, epsilon: float, delta: float, neighbors: Any, as_json: bool) -> None:
    """Give a data set its total budget in FILE, once; the file is made when there is none.

    \b
      sklar ledger init ledger.db --dataset adult --epsilon 3
    """
    from sklar.budget.ledger import Ledger

    account = Ledger(path).open_account(dataset, epsilon=epsilon, delta=delta, neighbors=neighbors)
    if as_json:
        print_json(account.to_dict())
        return
    say(
        f"Data set '{account.dataset}' in {path}: epsilon = {account.epsilon:.6g}, delta = {account.delta:.3g} for all "
        f"releases together ({account.neighbors} neighbors)."
    )
    say(f"Release with: --ledger {path} --dataset {account.dataset}")


@ledger.command()
@_FILE
@JSON
def show(*, path: Path, as_json: bool) -> None:
    """Show what each data set has spent and has left.

    \b
      sklar ledger show ledger.db
    """
    from sklar.budget.ledger import Ledger

    accounts = Ledger(path).accounts()
    if as_json:
        print_json([account.to_dict() for account in accounts])
        return
    for account in accounts:
        for line in account.lines():
            click.echo(line)
    say("Drawing more rows from a model that was paid for costs nothing.")


@ledger.command()
@_FILE
@JSON
def history(*, path: Path, as_json: bool) -> None:
    """List every entry, oldest first.

    \b
      sklar ledger history ledger.db
    """
    from sklar.budget.ledger import Ledger

    entries = Ledger(path).history()
    if as_json:
        print_json([entry.to_dict() for entry in entries])
        return
    for entry in entries:
        click.echo(entry.line())


@ledger.command()
@_FILE
def adopt(path: Path) -> None:
    """Put a copied or restored FILE in force; make sure that no charge is missing from it.

    \b
      sklar ledger adopt ledger.db
    """
    from sklar.budget.ledger import Ledger

    Ledger(path).adopt()
    say(f"{path} is in force. No other copy of it may be charged from now on.")
