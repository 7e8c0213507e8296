"""`sklar generate`: test tables that are about nobody, with their schemas."""

from __future__ import annotations

from pathlib import Path

import click

from sklar.cli.console import print_json, say, show_progress
from sklar.cli.options import JSON, OUT


@click.command(short_help="Generate a test table and its schema.")
@click.argument("shape", type=click.Choice(["census", "hospital", "dss", "syn1", "syn2"]))
@click.option("--rows", type=int, help="Rows to generate.  [default: census 30,000, hospital 10,000, others 5,240,260]")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed, another table.")
@OUT
@click.option(
    "--schema",
    "schema_path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="S.toml",
    help="Where its public schema goes.",
)
@JSON
def generate(*, shape: str, rows: int | None, seed: int, out: str, schema_path: Path, as_json: bool) -> None:
    """Generate a test table of a given SHAPE, with its schema: nothing in it is about anyone.

    \b
      sklar generate dss --rows 100000 --out dss.parquet --schema dss.toml
    """
    from sklar.files.write import SUFFIXES, check_target, write_frames, write_text
    from sklar.generate import SHAPES, schema_toml
    from sklar.generate import generate as make
    from sklar.machine.progress import watch
    from sklar.public.schema import Schema

    target = check_target(out, SUFFIXES)
    check_target(schema_path, (".toml",))
    columns, frames = make(shape, rows=rows, seed=seed)
    with show_progress() as progress:
        progress.stage("generate", total=rows or SHAPES[shape].rows, unit="rows")
        write_frames(target, columns, watch(frames, progress), Schema.from_toml(schema_toml(shape)))
    write_text(schema_path, schema_toml(shape))
    if as_json:
        print_json(
            {"shape": shape, "rows": rows or SHAPES[shape].rows, "seed": seed, "out": out, "schema": schema_path}
        )
        return
    say(f"{rows or SHAPES[shape].rows:,} rows of {SHAPES[shape].description} in {out}, the schema in {schema_path}.")
