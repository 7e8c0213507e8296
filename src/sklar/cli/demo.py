"""`sklar demo`: a release of a generated table, from beginning to end."""

from __future__ import annotations

from pathlib import Path

import click

from sklar.cli.console import JSON, TIMINGS, finish, show_progress
from sklar.cli.options import PATH, number


@click.command(short_help="Release a generated table and show it.")
@click.option("--out", type=PATH, default="sklar-demo", show_default=True, help="Folder to fill.")
@click.option("--rows", type=int, default=30_000, show_default=True, help="Rows of the generated table.")
@click.option("--epsilon", type=number, default="1", show_default=True, help="Privacy budget.")
@JSON
@TIMINGS
def demo(*, out: Path, rows: int, epsilon: float) -> None:
    """Generate a census-like table, release it, and show what came out.

    \b
      sklar demo --rows 2000
    """
    from sklar.custodian.demo import run

    with show_progress() as progress:
        shown = run(out, rows=rows, epsilon=epsilon, progress=progress)
    finish(shown.to_dict(), *shown.lines())
