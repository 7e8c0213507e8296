"""Commands that spend privacy, and the one that does not: release, fit, sample."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sklar.cli.shared import DUMMIES, ENGINE, OUT, ROWS, SEED, THREADS, privacy_options, show_progress

if TYPE_CHECKING:
    from sklar.cluster import Engine
    from sklar.model import Model
    from sklar.progress import Progress


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
def release(
    out: str, model_path: Path | None, rows: int | None, seed: int | None, engine: Engine, **options: Any
) -> None:
    """Measure DATA once with noise, fit a model, and draw a synthetic table from it.

    DATA is a CSV, TSV or Parquet file (also compressed), or a folder of them; with --engine spark on any file system
    that Spark reads, and --out is a folder of Parquet files.

    \b
      sklar release adult.csv --schema adult.toml --epsilon 1 --out synthetic.csv
    """
    from sklar.model import check_draw
    from sklar.output import check_target

    _check_out(out, engine)
    model_path = check_target(model_path or Path(out).with_suffix(".sklar"), (".sklar",))
    rows, seed = check_draw(rows, seed)
    with show_progress() as progress:
        model = _fit(progress=progress, engine=engine, **options)
        # The model first: once privacy is spent, a failure to write rows must not lose what it bought.
        model.save(model_path)
        _write(model, out, rows, seed, engine, progress)
    _say_spent(model, **options)
    click.echo(f"{rows or model.n_rows:,} synthetic rows in {out} (seed {seed}), the model in {model_path}.")
    click.echo(f"More rows cost no privacy: sklar sample {model_path} --rows N --out FILE")


@click.command(short_help="Measure a table and fit a model.")
@privacy_options
@DUMMIES
@click.option(
    "--model",
    "model_path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="OUT.sklar",
    help="Where the model goes.",
)
def fit(model_path: Path, **options: Any) -> None:
    """Measure DATA once with noise and fit a model, without drawing rows.

    \b
      sklar fit adult.csv --schema adult.toml --epsilon 1 --model adult.sklar
    """
    from sklar.output import check_target

    check_target(model_path, (".sklar",))
    with show_progress() as progress:
        model = _fit(progress=progress, **options)
        model.save(model_path)
    _say_spent(model, **options)
    click.echo(f"The model is in {model_path}.")


def _check_out(out: str, engine: Engine) -> None:
    """Refuse, before any privacy is spent, an output that could not be written."""
    from sklar.output import SUFFIXES, check_target

    if engine == "local":
        check_target(out, SUFFIXES)
        return
    from sklar.spread import check_folder

    check_folder(out)


def _write(model: Model, out: str, rows: int | None, seed: int, engine: Engine, progress: Progress) -> None:
    if engine == "local":
        model.write(out, rows, seed=seed, progress=progress)
        return
    from sklar.spread import write_on_spark

    progress.stage("sample")
    write_on_spark(model, out, rows, seed=seed)


def _fit(*, data: str, schema_path: Path, progress: Progress, **options: Any) -> Model:
    from sklar.release import fit
    from sklar.schema import Schema

    return fit(data, Schema.load(schema_path), progress=progress, **options)


def _say_spent(model: Model, *, ledger: Path | None = None, dataset: str | None = None, **_options: Any) -> None:
    for line in model.summary():
        click.echo(line)
    if ledger is not None:
        from sklar.ledger import Ledger

        account = Ledger(ledger).account(dataset or model.schema.name)
        click.echo(
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
def sample(model_path: Path, rows: int | None, seed: int | None, out: str, engine: Engine) -> None:
    """Draw synthetic rows from a MODEL file. This costs no privacy, however often it is done.

    \b
      sklar sample adult.sklar --rows 10000 --seed 7 --out synthetic.parquet
    """
    from sklar.model import check_draw, load

    rows, seed = check_draw(rows, seed)
    _check_out(out, engine)
    model = load(model_path)
    with show_progress() as progress:
        _write(model, out, rows, seed, engine, progress)
    click.echo(f"{rows or model.n_rows:,} synthetic rows in {out} (seed {seed}). No privacy was spent.")
