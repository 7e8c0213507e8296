"""`sklar release`: measure a table, fit a model, and draw rows from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sklar.cli.console import JSON, TIMINGS, show_progress
from sklar.cli.fit import fit_data, report_cost, told
from sklar.cli.options import DUMMIES, MODEL_OUT, OUT, ROWS, SEED, SPREADSHEET, privacy_options
from sklar.cli.sample import check_out, write_rows

if TYPE_CHECKING:
    from sklar.machine.cluster import Engine


@click.command(short_help="Measure a table, fit, and draw rows.")
@privacy_options()
@ROWS
@SEED
@DUMMIES
@OUT
@SPREADSHEET
@MODEL_OUT
@JSON
@TIMINGS
def release(
    *,
    out: str,
    model_path: Path | None,
    rows: int | None,
    seed: int | None,
    spreadsheet: bool,
    engine: Engine,
    **options: Any,
) -> None:
    """Measure DATA once with noise, fit a model, and draw a synthetic table from it.

    DATA is a CSV, TSV or Parquet file (also compressed), a folder of them, or a database with --query. With --engine
    spark, DATA may lie on any file system that executors reach, and --out is a folder of Parquet files.

    \b
      sklar release adult.csv --schema adult.toml --epsilon 1 --out synthetic.csv
      sklar release adult.duckdb --query "SELECT * FROM people" --schema adult.toml --epsilon 1 --out synthetic.csv
    """
    from sklar.draw.sample import check_draw
    from sklar.files.write import check_target

    check_out(out, engine, spreadsheet=spreadsheet)
    model_path = check_target(model_path or Path(out).with_suffix(".sklar"), (".sklar",))
    rows, seed = check_draw(rows, seed)
    with show_progress() as progress:
        model = fit_data(progress=progress, engine=engine, **options)
        with told(model):
            # The model first: once privacy is spent, a failure to write rows must not lose what it bought.
            model.save(model_path)
            write_rows(model, out, rows, seed, engine, progress, spreadsheet=spreadsheet)
    drawn = rows or model.n_rows
    report_cost(
        model,
        {"rows": drawn, "seed": seed, "out": out, "model": model_path},
        f"{drawn:,} synthetic rows in {out} (seed {seed}), the model in {model_path}.",
        f"More rows cost no privacy: sklar sample {model_path} --rows N --out FILE",
        **options,
    )
