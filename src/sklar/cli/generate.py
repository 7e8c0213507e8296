"""`sklar generate`: test tables that are about nobody, with their schemas."""

from __future__ import annotations

from pathlib import Path

import click

from sklar.cli.console import JSON, TIMINGS, finish, show_progress
from sklar.cli.options import OUT, path, rows_out


@click.command(short_help="Generate a test table and its schema.")
@click.argument("shape", type=click.Choice(["census", "hospital", "dss", "syn1", "syn2", "visits"]))
@click.option(
    "--rows",
    type=int,
    help="Rows to generate (for visits: patients).  [default: census 30,000, hospital 10,000, visits 20,000, "
    "others 5,240,260]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed, another table.")
@OUT
@path("--schema", "S.toml", "Where its public schema goes.", to="schema_path", required=True)
@rows_out(
    "--events-out", "For visits, which are two tables: where the visits go; --out gets the patients.", required=False
)
@JSON
@TIMINGS
def generate(*, shape: str, rows: int | None, seed: int, out: str, schema_path: Path, events_out: str | None) -> None:
    """Generate a test table of a given SHAPE, with its schema: nothing in it is about anyone.

    \b
      sklar generate dss --rows 100000 --out dss.parquet --schema dss.toml
      sklar generate visits --out patients.csv --events-out visits.csv --schema visits.toml
    """
    from sklar.files.write import SUFFIXES, check_target, write_frames, write_text
    from sklar.generate import SHAPES, schema_toml
    from sklar.generate import generate as make
    from sklar.machine.progress import watch
    from sklar.public.schema import Schema

    target = check_target(out, SUFFIXES)
    check_target(schema_path, (".toml",))
    if (shape == "visits") != (events_out is not None):
        raise click.UsageError("visits are two tables and need --events-out FILE; no other shape takes it.")
    if events_out is not None:
        _generate_visits(rows, seed, target, check_target(events_out, SUFFIXES), schema_path)
        return
    columns, frames = make(shape, rows=rows, seed=seed)
    rows = rows or SHAPES[shape].rows
    with show_progress() as progress:
        progress.stage("generate", total=rows, unit="rows")
        write_frames(target, columns, watch(frames, progress), Schema.from_toml(schema_toml(shape)))
    write_text(schema_path, schema_toml(shape))
    finish(
        {"shape": shape, "rows": rows, "seed": seed, "out": out, "schema": schema_path},
        f"{rows:,} rows of {SHAPES[shape].description} in {out}, the schema in {schema_path}.",
    )


def _generate_visits(patients: int | None, seed: int, out: Path, events_out: Path, schema_path: Path) -> None:
    """Two linked tables, and the schema of both."""
    from sklar.draw.sample import linked_columns
    from sklar.files.write import write_frames, write_text
    from sklar.generate.visits import PATIENTS, generate_visits, linked

    schemas, patients = linked(), PATIENTS if patients is None else patients
    with show_progress() as progress:
        for at, (target, schema) in enumerate(((out, schemas.people), (events_out, schemas.events))):
            progress.stage("generate")
            frames = (block[at] for block in generate_visits(patients, seed=seed))
            write_frames(target, linked_columns(schemas)[at], frames, schema)
    write_text(schema_path, schemas.to_toml())
    written = {"out": out, "events_out": events_out, "schema": schema_path}
    finish(
        {"shape": "visits", "patients": patients, "seed": seed} | written,
        f"{patients:,} patients in {out}, their visits in {events_out}, the schema of both in {schema_path}.",
    )
