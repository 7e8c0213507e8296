"""`sklar tables`: export the noisy tables of a model."""

from __future__ import annotations

from pathlib import Path

import click

from sklar.cli.console import print_json, say
from sklar.cli.options import JSON, MODEL


@click.command(short_help="Export the noisy tables of a model.")
@MODEL
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), metavar="OUT.parquet", help="Where the tables go."
)
@JSON
def tables(*, model_path: Path, out: Path, as_json: bool) -> None:
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
    stages = len(model.measured.stages)
    if as_json:
        print_json({"stages": stages, "out": out, "spent_epsilon": 0})
        return
    say(f"The noisy tables of {stages} stage{'s' if stages > 1 else ''} are in {out}. No privacy was spent.")
