"""`sklar tables`: export the noisy tables of a model."""

from __future__ import annotations

from pathlib import Path

import click

from sklar.cli.console import JSON, finish
from sklar.cli.options import MODEL, path


@click.command(short_help="Export the noisy tables of a model.")
@MODEL
@path("--out", "OUT.parquet", "Where the tables go.", required=True)
@JSON
def tables(*, model_path: Path, out: Path) -> None:
    """Write the noisy tables of a MODEL file to Parquet, one row per cell. This costs no privacy.

    \b
      sklar tables adult.sklar --out tables.parquet
    """
    from sklar.files.archive import load
    from sklar.files.tables import write_tables
    from sklar.files.write import check_target

    check_target(out, (".parquet",))
    model = load(model_path)
    write_tables(model.measured, out)
    stages = max(each.stage for each in model.certificate.measurements if each.order <= 2)
    finish(
        {"stages": stages, "out": out, "spent_epsilon": 0},
        f"The noisy tables of {stages} stage{'s' if stages > 1 else ''} are in {out}. No privacy was spent.",
    )
