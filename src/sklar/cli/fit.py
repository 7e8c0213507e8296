"""`sklar fit`: measure a table and fit a model, without drawing rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from sklar.cli.console import print_json, say, show_progress
from sklar.cli.options import DUMMIES, JSON, privacy_options, schema_of, table_of

if TYPE_CHECKING:
    from sklar.budget.account import Account
    from sklar.budget.method import Method
    from sklar.files.linked import LinkedModel
    from sklar.files.model import Model
    from sklar.kernel.theorems import Budget
    from sklar.machine.progress import Progress
    from sklar.public.schema import Schema


@click.command(short_help="Measure a table and fit a model.")
@partial(privacy_options, required=False)
@DUMMIES
@click.option(
    "--tables",
    "tables_path",
    type=click.Path(path_type=Path),
    metavar="T.parquet",
    help="Fit to noisy tables that were measured elsewhere, instead of measuring DATA (see sklar tables).",
)
@click.option(
    "--model",
    "model_path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="OUT.sklar",
    help="Where the model goes.",
)
@JSON
@click.pass_context
def fit(
    context: click.Context, /, *, model_path: Path, tables_path: Path | None, as_json: bool, **options: Any
) -> None:
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
    with told(model):
        if as_json:
            print_json({"model": model_path} | cost_figures(model, **options))
            return
        say_cost(model, **options)
        say(f"The model is in {model_path}.")


# The options that `fit` takes together with --tables; all others are about measuring.
_WITH_TABLES = (
    *("tables_path", "schema_path", "model_path", "method", "dummies", "threads"),
    *("as_json", "quiet", "timings"),
)


def _check_sources(context: click.Context, tables_path: Path | None) -> None:
    """Require DATA and a budget, or tables that were measured before, but not both."""
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) == ParameterSource.COMMANDLINE
        if tables_path is None and name in ("data", "epsilon") and not given:
            raise click.MissingParameter(ctx=context, param=parameter)
        if tables_path is not None and given and name not in _WITH_TABLES:
            raise click.UsageError(f"{parameter.opts[0]} is about measuring, which --tables replaces. Leave one out.")


def _fit_tables(path: Path, *, schema_path: Path, progress: Progress, **options: Any) -> Model:
    from sklar.files.tables import read_tables
    from sklar.release import fit_tables

    measured = read_tables(path, schema_of(schema_path))
    return fit_tables(measured, method=_method(options), progress=progress)


def fit_data(*, data: Path | str, query: str | None, schema_path: Path, progress: Progress, **options: Any) -> Model:
    """Measure DATA and fit a model. `options` are those of `privacy_options`, and --dummies."""
    from sklar.errors import BudgetError
    from sklar.release import fit as release_model

    method, budget = _method(options), _budget(options)
    kept = ("dataset", "engine", "checkpoint")
    settings = {name: options[name] for name in kept if name in options}
    if options["ledger_key"] is not None and options["ledger"] is None:
        raise BudgetError("a ledger's key was given, and no ledger. Give both.")
    if options["ledger"] is not None:
        from sklar.budget.ledger import Ledger

        settings["ledger"] = Ledger(options["ledger"], key=options["ledger_key"])
    schema = schema_of(schema_path)
    if options.get("check_first"):
        _look_first(table_of(data, query), schema, options.get("engine"), progress)
    return release_model(table_of(data, query), schema, budget, method=method, progress=progress, **settings)


def _look_first(table: object, schema: Schema, engine: str | None, progress: Progress) -> None:
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


def _method(options: Mapping[str, Any]) -> Method:
    """The method that --method, --preset and --dummies ask for together."""
    from sklar.budget.method import Method

    return Method.of(options["method"], preset=options.get("preset"), dummies=options["dummies"])


def _budget(options: Mapping[str, Any]) -> Budget:
    """The budget that the options ask for. What is given beside --preset wins."""
    stated = {name: options[name] for name in ("delta", "neighbors", "mechanism", "composition")}
    return _method(options).budget_of(None, options["epsilon"], **stated)


def told(model: Model | LinkedModel) -> AbstractContextManager[None]:
    """A block whose failures say what was charged for the model."""
    from sklar.budget.receipt import telling

    return telling([model.certificate.receipt], model.certificate.epsilon)


def _account(model: Model, ledger: Path, key: Path | None, dataset: str | None) -> Account:
    from sklar.budget.ledger import Ledger

    return Ledger(ledger, key=key).account(dataset or model.schema.name)


def cost_figures(
    model: Model,
    *,
    ledger: Path | None = None,
    ledger_key: Path | None = None,
    dataset: str | None = None,
    **_options: Any,
) -> dict[str, Any]:
    """What was released and what it cost. The figures are public."""
    return {
        "table": model.schema.name,
        "table_rows": model.n_rows,
        "certificate": model.certificate.to_dict(),
        "settings": dict(model.settings),
        "ledger": None if ledger is None else _account(model, ledger, ledger_key, dataset).to_dict(),
    }


def say_cost(
    model: Model,
    *,
    ledger: Path | None = None,
    ledger_key: Path | None = None,
    dataset: str | None = None,
    **_options: Any,
) -> None:
    """Print what was released and what it cost."""
    for line in model.summary():
        say(line)
    if ledger is not None:
        account = _account(model, ledger, ledger_key, dataset)
        say(
            f"Ledger {ledger}: data set '{account.dataset}' has spent epsilon = {account.spent:.4g} of "
            f"{account.epsilon:.4g} in {len(account.charges):,} releases."
        )
