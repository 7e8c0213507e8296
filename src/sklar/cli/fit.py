"""`sklar fit`: measure a table and fit a model, without drawing rows."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from sklar.cli.console import JSON, TIMINGS, is_given, print_json, say, show_progress
from sklar.cli.options import DUMMIES, open_ledger, path, privacy_options, schema_of, table_of

if TYPE_CHECKING:
    from sklar.budget.method import Method
    from sklar.files.model import LinkedModel, Model
    from sklar.machine.progress import Progress
    from sklar.public.schema import Schema

# The options that `fit` takes together with --tables; all others are about measuring.
_WITH_TABLES = ("tables_path", "schema_path", "model_path", "method", "dummies", "threads", "json", "quiet", "timings")


@click.command(short_help="Measure a table and fit a model.")
@privacy_options(required=False)
@DUMMIES
@path(
    "--tables",
    "T.parquet",
    "Fit to noisy tables that were measured elsewhere, instead of measuring DATA (see sklar tables).",
    to="tables_path",
)
@path("--model", "OUT.sklar", "Where the model goes.", to="model_path", required=True)
@JSON
@TIMINGS
@click.pass_context
def fit(context: click.Context, /, *, model_path: Path, tables_path: Path | None, **options: Any) -> None:
    """Measure DATA once with noise and fit a model, without drawing rows.

    With --tables, fit to noisy tables that were measured before, by Sklar or by another system. Their privacy is then
    what the file claims.

    \b
      sklar fit adult.csv --schema adult.toml --epsilon 1 --model adult.sklar
      sklar fit --tables tables.parquet --schema adult.toml --model adult.sklar
    """
    from sklar.files.write import check_target

    _check_sources(context, tables_path)
    check_target(model_path, (".sklar",))
    with show_progress() as progress:
        if tables_path is None:
            model = fit_data(progress=progress, **options)
        else:
            model = _fit_tables(tables_path, progress=progress, **options)
        with told(model):
            model.save(model_path)
    report_cost(model, {"model": model_path}, f"The model is in {model_path}.", **options)


def _check_sources(context: click.Context, tables_path: Path | None) -> None:
    """Require DATA and a budget, or tables that were measured before, but not both."""
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) == ParameterSource.COMMANDLINE
        if tables_path is None and name in ("data", "epsilon") and not given:
            raise click.MissingParameter(ctx=context, param=parameter)
        if tables_path is not None and given and name not in _WITH_TABLES:
            raise click.UsageError(f"{parameter.opts[0]} is about measuring, which --tables replaces. Leave one out.")


def _fit_tables(tables: Path, *, schema_path: Path, progress: Progress, **options: Any) -> Model:
    from sklar.files.model import fit_tables
    from sklar.files.tables import read_tables

    return fit_tables(read_tables(tables, schema_of(schema_path)), method=_method(**options), progress=progress)


def fit_data(*, data: Path | str, query: str | None, schema_path: Path, progress: Progress, **options: Any) -> Model:
    """Measure DATA and fit a model. `options` are those of `privacy_options`, and --dummies."""
    from sklar.release import fit as release_model

    method = _method(**options)
    # What is given beside --preset wins.
    stated = {name: options[name] for name in ("delta", "neighbors", "mechanism", "composition")}
    budget = method.budget_of(None, options["epsilon"], **stated)
    ledger = open_ledger(options["ledger"], options["ledger_key"])
    schema = schema_of(schema_path)
    if options["check_first"]:
        _check_first(table_of(data, query), schema, options["engine"], progress)
    settings = {name: options[name] for name in ("dataset", "engine", "checkpoint")} | {"ledger": ledger}
    return release_model(table_of(data, query), schema, budget, method=method, progress=progress, **settings)


def _check_first(table: object, schema: Schema, engine: str, progress: Progress) -> None:
    """Stop where the schema would lose most values of an attribute: private, and before anything is measured."""
    from sklar.cli.schema import warn_of_unfit
    from sklar.custodian.check import check_values
    from sklar.errors import DataError

    if engine == "spark":
        raise click.UsageError("--check reads the rows on this machine. Leave it out with --engine spark.")
    if warn_of_unfit(check_values(table, schema, progress=progress)):
        raise DataError(
            "--check stopped the release: the schema would lose most values of the attributes above. Nothing was "
            "released and no privacy was spent. That it stopped depends on the rows, and is PRIVATE."
        )


def _method(*, method: str | None, dummies: bool, preset: str | None = None, **_options: Any) -> Method:
    """The method that --method, --preset and --dummies ask for together."""
    from sklar.budget.method import Method

    return Method.of(method, preset=preset, dummies=dummies)


def told(model: Model | LinkedModel) -> AbstractContextManager[None]:
    """A block whose failures say what was charged for the model."""
    from sklar.budget.receipt import telling

    return telling([model.certificate.receipt], model.certificate.epsilon)


def report_cost(
    model: Model,
    document: dict[str, Any],
    *lines: str,
    ledger: Path | None,
    ledger_key: Path | None,
    dataset: str | None,
    **_options: Any,
) -> None:
    """Print what was released and what it cost, as JSON or as text: public figures."""
    with told(model):
        book = open_ledger(ledger, ledger_key)
        account = None if book is None else book.account(dataset or model.schema.name)
        if is_given("json"):
            facts = {
                "table": model.schema.name,
                "table_rows": model.n_rows,
                "certificate": model.certificate.to_dict(),
                "settings": dict(model.settings),
                "ledger": None if account is None else account.to_dict(),
            }
            print_json(document | facts)
            return
        say(*model.summary())
        if account is not None:
            say(
                f"Ledger {ledger}: data set '{account.dataset}' has spent epsilon = {account.spent:.4g} of "
                f"{account.epsilon:.4g} in {len(account.charges):,} releases."
            )
        say(*lines)
