"""`sklar evaluate`: compare synthetic rows with the real ones, for the custodian."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sklar.cli.console import JSON, TIMINGS, is_given, print_figures, say, show_progress
from sklar.cli.options import PATH, SCHEMA, path, schema_of


@click.command(short_help="Compare with the real rows: private.")
@click.argument("real", type=PATH)
@click.argument("synthetic", type=PATH)
@SCHEMA
@JSON
@path("--plot", "OUT.png|.svg", "CDFs of the errors.")
@path(
    "--report",
    "PRIVATE.html",
    "A private report of all of it, with a histogram of every column and the worst pairs side by side.",
)
@click.option("--target", help="An attribute to predict: each table trains a model, and --test tests both.")
@click.option("--test", type=PATH, help="Real rows kept apart, for --target.")
@TIMINGS
def evaluate(*, real: Path, synthetic: Path, schema_path: Path, **options: Any) -> None:
    """Compare SYNTHETIC with the REAL rows, for the custodian's eyes only.

    One line says which columns to leave alone. Below it stand the errors of counts, and how the raw values of numbers
    compare: distances, moments, heaps, rounding, correlations.

    \b
      sklar evaluate adult.csv synthetic.csv --schema adult.toml --report PRIVATE.html
      sklar evaluate adult.csv synthetic.csv --schema adult.sklar --json
    """
    from sklar.custodian.evaluate import evaluate as compare
    from sklar.custodian.evaluate.private_report import MARK

    with show_progress() as progress:
        comparison = compare(real, synthetic, schema_of(schema_path), progress=progress, **options)
    print_figures(comparison)
    for written in () if is_given("json") else filter(None, (options["plot"], options["report"])):
        say(f"PRIVATE as well: {written}")
        if written == options["report"] and MARK not in written.name:
            say(f"Its name does not say so: consider {written.with_name(f'{MARK}-{written.name}')}.")
