"""`sklar evaluate`: compare synthetic rows with the real ones, for the custodian."""

from __future__ import annotations

from pathlib import Path

import click

from sklar.cli.console import print_figures, say, show_progress
from sklar.cli.options import JSON, SCHEMA, schema_of


@click.command(short_help="Compare with the real rows: private.")
@click.argument("real", type=click.Path(path_type=Path))
@click.argument("synthetic", type=click.Path(path_type=Path))
@SCHEMA
@JSON
@click.option(
    "--plot", "plot_path", type=click.Path(path_type=Path), metavar="OUT.png|.svg", help="CDFs of the errors."
)
@click.option(
    "--report",
    "report_path",
    type=click.Path(path_type=Path),
    metavar="PRIVATE.html",
    help="A private report of all of it, with a histogram of every column and the worst pairs side by side.",
)
@click.option("--target", help="An attribute to predict: each table trains a model, and --test tests both.")
@click.option("--test", type=click.Path(path_type=Path), help="Real rows kept apart, for --target.")
def evaluate(
    *,
    real: Path,
    synthetic: Path,
    schema_path: Path,
    as_json: bool,
    plot_path: Path | None,
    report_path: Path | None,
    target: str | None,
    test: Path | None,
) -> None:
    """Compare SYNTHETIC with the REAL rows, for the custodian's eyes only.

    One line says which columns to leave alone. Below it stand the errors of counts, and how the raw values of numbers
    compare: distances, moments, heaps, rounding, correlations.

    \b
      sklar evaluate adult.csv synthetic.csv --schema adult.toml --report PRIVATE.html
      sklar evaluate adult.csv synthetic.csv --schema adult.sklar --json
    """
    from sklar.custodian.evaluate import evaluate as compare
    from sklar.custodian.evaluate import plot
    from sklar.custodian.evaluate.report import MARK, custodian_report
    from sklar.files.write import check_target, write_text

    if plot_path:
        check_target(plot_path, (".png", ".svg"))
    if report_path:
        check_target(report_path, (".html",))
    schema, text = schema_of(schema_path), ""
    with show_progress() as progress:
        found = compare(real, synthetic, schema, target=target, test=test, progress=progress)
        if report_path:
            text = custodian_report(found, real, synthetic, schema, progress=progress)
    print_figures(found, as_json=as_json)
    if plot_path:
        plot(found, plot_path)
    if report_path:
        write_text(report_path, text, private=True)
    for path in () if as_json else filter(None, (plot_path, report_path)):
        say(f"PRIVATE as well: {path}")
        if path == report_path and MARK not in path.name:
            say(f"Its name does not say so: consider {path.with_name(f'{MARK}-{path.name}')}.")
