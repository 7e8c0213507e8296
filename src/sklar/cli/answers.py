"""Commands that look at no rows and spend nothing: forecast, query, report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sklar.cli.shared import JSON, number, print_json, say


@click.command(short_help="What errors to expect, before spending.")
@click.option(
    "--schema",
    "schema_path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="S.toml",
    help="What is publicly known of the table.",
)
@click.option("--rows", required=True, type=int, help="How many rows the table has, or about has.")
@click.option("--epsilon", "epsilons", required=True, multiple=True, type=number, help="A budget; give it repeatedly.")
@click.option("--delta", type=number, default="2**-30", show_default=True, help="Chance that the epsilon bound fails.")
@click.option("--neighbors", type=click.Choice(["replace-one", "add-remove"]), default="replace-one", show_default=True)
@click.option("--method", type=click.Choice(["auto", "mixture", "factor", "binary"]), default="auto", show_default=True)
@JSON
@click.option(
    "--plot",
    "plot_path",
    type=click.Path(path_type=Path),
    metavar="OUT.png|.svg",
    help="Draw the error against epsilon.",
)
def forecast(
    schema_path: Path,
    rows: int,
    epsilons: tuple[float, ...],
    as_json: bool,  # noqa: FBT001
    plot_path: Path | None,
    **settings: Any,
) -> None:
    """Say what errors to expect from a release, before any budget is spent.

    \b
      sklar forecast --schema adult.toml --rows 32561 --epsilon 0.5 --epsilon 1 --epsilon 2
    """
    from sklar.budget.forecast import forecast as foresee
    from sklar.budget.forecast import plot_forecasts, table_lines
    from sklar.files.write import check_target, replacing
    from sklar.public.schema import Schema

    target = check_target(plot_path, (".png", ".svg")) if plot_path else None
    schema = Schema.load(schema_path)
    found = [foresee(schema, rows=rows, epsilon=epsilon, **settings) for epsilon in epsilons]
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


@click.command(short_help="Counts with error bars, from a model.")
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("predicate")
@click.option("--level", type=number, default="0.95", show_default=True, help="Coverage of the confidence interval.")
@click.option(
    "--complete",
    is_flag=True,
    help="Vouch that every row has a level of every attribute: smaller errors; without it, the schema decides.",
)
@JSON
def query(model_path: Path, predicate: str, level: float, complete: bool, as_json: bool) -> None:  # noqa: FBT001
    """Count the rows that satisfy PREDICATE, with error bars, from a MODEL file. This costs no privacy.

    Predicates over one or two attributes were measured: they get an estimate, its standard error and a confidence
    interval. Wider ones get the synthetic rows' answer only.

    \b
      sklar query adult.sklar "income = '>50K' and sex = 'Female'"
      sklar query adult.sklar "30 <= age < 40 and not workclass is missing"
      sklar query adult.sklar "education in ('Masters', 'Doctorate') or education-num >= 14"

    \b
    Names stand bare or in double quotes, values in single quotes. Comparisons: =, !=, <, <=, >, >=,
    in (...), is missing. Joined by and, or, not and parentheses.
    """
    from sklar.answer.query import answer
    from sklar.files.model import load

    found = answer(load(model_path), predicate, level=level, complete=complete)
    if as_json:
        print_json(found.to_dict())
        return
    for line in found.lines():
        click.echo(line)


@click.command(short_help="A report that is safe to publish.")
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), metavar="OUT.html", help="Where the report goes."
)
@JSON
def report(*, model_path: Path, out: Path, as_json: bool) -> None:
    """Write a report that is safe to publish, from a MODEL file alone: one HTML page that needs no network.

    \b
      sklar report adult.sklar --out report.html
    """
    from sklar.answer.report import publishable
    from sklar.files.model import load
    from sklar.files.write import check_target, write_text

    check_target(out, (".html",))
    text = publishable(load(model_path), file_name=model_path.name)
    write_text(out, text)
    if as_json:
        print_json({"out": out, "bytes": len(text.encode())})
        return
    say(f"The report is in {out} ({len(text.encode()) / 1e6:.2f} MB).")
    say("Safe to publish: made from the model file alone, which is differentially private. No privacy was spent.")
