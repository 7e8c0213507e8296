"""Commands that spend privacy, and those that do not: release, fit, sample, tables."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from sklar.cli.shared import (
    DUMMIES,
    ENGINE,
    JSON,
    OUT,
    ROWS,
    SEED,
    THREADS,
    print_json,
    privacy_options,
    say,
    show_progress,
    table_of,
)

if TYPE_CHECKING:
    from sklar.budget.ledger import Account
    from sklar.files.model import Model
    from sklar.machine.cluster import Engine
    from sklar.machine.progress import Progress
    from sklar.release import Method


@click.command(short_help="Measure a table, fit, and draw rows.")
@privacy_options
@ROWS
@SEED
@DUMMIES
@OUT
@click.option(
    "--model",
    "model_path",
    type=click.Path(path_type=Path),
    metavar="OUT.sklar",
    help="Where the model goes.  [default: beside --out]",
)
@JSON
def release(
    *,
    out: str,
    model_path: Path | None,
    rows: int | None,
    seed: int | None,
    engine: Engine,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure DATA once with noise, fit a model, and draw a synthetic table from it.

    DATA is a CSV, TSV or Parquet file (also compressed), a folder of them, or a database with --query; with --engine
    spark on any file system that Spark reads, and --out is a folder of Parquet files.

    \b
      sklar release adult.csv --schema adult.toml --epsilon 1 --out synthetic.csv
      sklar release adult.duckdb --query "SELECT * FROM people" --schema adult.toml --epsilon 1 --out synthetic.csv
    """
    from sklar.draw.sample import check_draw
    from sklar.files.write import check_target

    _check_out(out, engine)
    model_path = check_target(model_path or Path(out).with_suffix(".sklar"), (".sklar",))
    rows, seed = check_draw(rows, seed)
    with show_progress() as progress:
        model = _fit(progress=progress, engine=engine, **options)
        # The model first: once privacy is spent, a failure to write rows must not lose what it bought.
        model.save(model_path)
        _write(model, out, rows, seed, engine, progress)
    if as_json:
        drawn = {"rows": rows or model.n_rows, "seed": seed, "out": out, "model": model_path}
        print_json(drawn | _spent(model, **options))
        return
    _say_spent(model, **options)
    say(f"{rows or model.n_rows:,} synthetic rows in {out} (seed {seed}), the model in {model_path}.")
    say(f"More rows cost no privacy: sklar sample {model_path} --rows N --out FILE")


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
            model = _fit(progress=progress, **options)
        else:
            model = _fit_tables(tables_path, progress=progress, **options)
        model.save(model_path)
    if as_json:
        print_json({"model": model_path} | _spent(model, **options))
        return
    _say_spent(model, **options)
    say(f"The model is in {model_path}.")


# What `fit` takes beside --tables: everything else is about measuring.
_WITH_TABLES = ("tables_path", "schema_path", "model_path", "method", "dummies", "threads", "as_json", "quiet")


def _check_sources(context: click.Context, tables_path: Path | None) -> None:
    """DATA and a budget, or tables that were measured before."""
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) == ParameterSource.COMMANDLINE
        if tables_path is None and name in ("data", "epsilon") and not given:
            raise click.MissingParameter(ctx=context, param=parameter)
        if tables_path is not None and given and name not in _WITH_TABLES:
            raise click.UsageError(f"{parameter.opts[0]} is about measuring, which --tables replaces. Leave one out.")


def _fit_tables(
    path: Path, *, schema_path: Path, method: Method | None, dummies: bool, progress: Progress, **_options: Any
) -> Model:
    from sklar.files.tables import read_tables
    from sklar.public.schema import Schema
    from sklar.release import fit_tables

    measured = read_tables(path, Schema.load(schema_path))
    method = method or ("binary" if dummies else "auto")
    return fit_tables(measured, method=method, dummies=dummies, progress=progress)


def _check_out(out: str, engine: Engine) -> None:
    """Refuse, before any privacy is spent, an output that could not be written."""
    from sklar.files.write import SUFFIXES, check_target

    if engine == "local":
        check_target(out, SUFFIXES)
        return
    from sklar.files.spark import check_folder

    check_folder(out)


def _write(model: Model, out: str, rows: int | None, seed: int, engine: Engine, progress: Progress) -> None:
    if engine == "local":
        model.write(out, rows, seed=seed, progress=progress)
        return
    from sklar.files.spark import write_on_spark

    progress.stage("sample")
    write_on_spark(model, out, rows, seed=seed)


def _fit(*, data: Path | str, query: str | None, schema_path: Path, progress: Progress, **options: Any) -> Model:
    from sklar.public.schema import Schema
    from sklar.release import fit

    return fit(table_of(data, query), Schema.load(schema_path), progress=progress, **options)


def _account(model: Model, ledger: Path, dataset: str | None) -> Account:
    from sklar.budget.ledger import Ledger

    return Ledger(ledger).account(dataset or model.schema.name)


def _spent(model: Model, *, ledger: Path | None = None, dataset: str | None = None, **_options: Any) -> dict[str, Any]:
    """What was released and what it cost: public figures."""
    return {
        "table": model.schema.name,
        "table_rows": model.n_rows,
        "certificate": model.certificate.to_dict(),
        "settings": dict(model.settings),
        "ledger": None if ledger is None else _account(model, ledger, dataset).to_dict(),
    }


def _say_spent(model: Model, *, ledger: Path | None = None, dataset: str | None = None, **_options: Any) -> None:
    for line in model.summary():
        say(line)
    if ledger is not None:
        account = _account(model, ledger, dataset)
        say(
            f"Ledger {ledger}: data set '{account.dataset}' has spent epsilon = {account.spent:.4g} of "
            f"{account.epsilon:.4g} in {len(account.charges):,} releases."
        )


@click.command(short_help="Draw more rows from a model, for free.")
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@ROWS
@SEED
@OUT
@ENGINE
@THREADS
@JSON
def sample(*, model_path: Path, rows: int | None, seed: int | None, out: str, engine: Engine, as_json: bool) -> None:
    """Draw synthetic rows from a MODEL file. This costs no privacy, however often it is done.

    \b
      sklar sample adult.sklar --rows 10000 --seed 7 --out synthetic.parquet
    """
    from sklar.draw.sample import check_draw
    from sklar.files.model import load

    rows, seed = check_draw(rows, seed)
    _check_out(out, engine)
    model = load(model_path)
    with show_progress() as progress:
        _write(model, out, rows, seed, engine, progress)
    if as_json:
        print_json({"rows": rows or model.n_rows, "seed": seed, "out": out, "spent_epsilon": 0})
        return
    say(f"{rows or model.n_rows:,} synthetic rows in {out} (seed {seed}). No privacy was spent.")


@click.command(short_help="Export the noisy tables of a model.")
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), metavar="OUT.parquet", help="Where the tables go."
)
@JSON
def tables(*, model_path: Path, out: Path, as_json: bool) -> None:
    """Write the noisy tables of a MODEL file to Parquet, one row per cell. This costs no privacy.

    \b
      sklar tables adult.sklar --out tables.parquet
    """
    from sklar.files.model import load
    from sklar.files.tables import write_tables
    from sklar.files.write import check_target

    check_target(out, (".parquet",))
    model = load(model_path)
    write_tables(model.measured, out)
    stages = len(model.measured)
    if as_json:
        print_json({"stages": stages, "out": out, "spent_epsilon": 0})
        return
    say(f"The noisy tables of {stages} stage{'s' if stages > 1 else ''} are in {out}. No privacy was spent.")
