"""`sklar schema`: draft, review, import or check what is publicly known of a table."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sklar.cli.console import JSON, TIMINGS, finish, is_given, print_figures, show_progress, warn
from sklar.cli.options import DATA, DATA_IF_GIVEN, PATH, QUERY, SCHEMA_FILE, flag, schema_of, table_of

if TYPE_CHECKING:
    from sklar.custodian.check import Fate

_OUT = click.option("-o", "--out", required=True, type=PATH, metavar="S.toml", help="Where it goes.")


@click.group(short_help="Draft, review, import or check a schema.")
def schema() -> None:
    """Draft, review, import or check a schema: what is publicly known of a table."""


@schema.command()
@DATA
@QUERY
@_OUT
@JSON
@TIMINGS
def draft(*, data: Path | str, query: str | None, out: Path) -> None:
    """Look at the rows of DATA and propose a schema, to be reviewed before any release.

    Its domains are public lists, wide bounds, or left for a release to find: none is read from the rows. What they show
    goes to a PRIVATE page beside it, S.PRIVATE.html, for your eyes.

    \b
      sklar schema draft adult.csv -o adult.toml
    """
    from sklar.custodian.draft import draft as propose

    # A drafted table has the name of its file, where it has one.
    name = (data.name.split(".")[0] if isinstance(data, Path) else "") or "table"
    with show_progress() as progress:
        proposed = propose(table_of(data, query), name=name, out=out, progress=progress)
    n_attributes, page = proposed.schema.n_attributes, out.with_suffix(".PRIVATE.html")
    reading = [dict(zip(("key", "value", "sure", "why"), each, strict=True)) for each in proposed.remarks]
    finish(
        {"notice": "PRIVATE until reviewed", "attributes": n_attributes, "left_out": proposed.left_out}
        | {"reading": reading, "out": out, "page": page},
        f"{n_attributes} attributes drafted in {out}.",
        *(f"Read with {key} = {value} ({sure}: {why})." for key, value, sure, why in proposed.remarks),
        *_left_out(proposed.left_out),
        f"PRIVATE, for your eyes: what the rows show is in {page}.",
        f"A release refuses {out} until it is reviewed: sklar schema review {out} {shlex.quote(str(data))}",
    )


def _left_out(names: Mapping[str, str]) -> list[str]:
    return [f"Left out: {name}: {reason}." for name, reason in names.items()]


@schema.command()
@SCHEMA_FILE
@DATA_IF_GIVEN
@QUERY
@flag("--accept", "Ask nothing: accept what is proposed. Entries that were read from the rows are not accepted so.")
@JSON
def review(*, schema_path: Path, data: Path | str | None, query: str | None, accept: bool) -> None:
    """Answer the open questions of SCHEMA, and mark each entry with where it comes from.

    With DATA, what the rows show stands beside each question (PRIVATE). Every answer is saved at once: stop at any
    time, and go on later.

    \b
      sklar schema review adult.toml adult.csv
      sklar schema review adult.toml --accept
    """
    from sklar.cli.questions import ask

    ask(schema_path, data, query, accept=accept)


@schema.command("import")
@click.argument("file", type=PATH)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["arrow", "frictionless", "sdv", "smartnoise"]),
    help="What FILE is.  [default: recognized]",
)
@_OUT
@JSON
def import_(*, file: Path, format_: str | None, out: Path) -> None:
    """Turn a description of a table that exists already into a schema to complete. No row is read.

    FILE is SDV metadata, SmartNoise metadata or transformers, a Frictionless Table Schema, a Parquet or Arrow file
    (only its names and types are read), or a model (its schema lists the domains that its release found).

    \b
      sklar schema import metadata.json -o imported.toml
      sklar schema import adult.parquet -o imported.toml
      sklar schema import adult.sklar -o found.toml
    """
    from sklar.files.write import check_target, write_text
    from sklar.public.importers import import_schema

    check_target(out, (".toml",))
    if file.suffix.lower() == ".sklar" and format_ is None:
        model_schema = schema_of(file)
        write_text(out, model_schema.to_toml())
        finish(
            {"attributes": model_schema.n_attributes, "open": [], "left_out": {}, "out": out},
            f"The schema of {file}, {model_schema.n_attributes} attributes, is in {out}. Using it costs no privacy.",
        )
        return
    imported = import_schema(file, format=format_)
    write_text(out, imported.to_toml())
    n_entries, missing = len(imported.entries), ", ".join(imported.open)
    to_complete = f"To complete from public knowledge: {missing}. A release refuses the file until then."
    finish(
        {"attributes": n_entries, "open": list(imported.open), "left_out": dict(imported.left_out), "out": out},
        f"{n_entries} attributes imported from {imported.source} into {out}.",
        *_left_out(imported.left_out),
        *([to_complete] if missing else []),
    )


@schema.command()
@SCHEMA_FILE
@DATA_IF_GIVEN
@QUERY
@JSON
@TIMINGS
def check(*, schema_path: Path, data: Path | str | None, query: str | None) -> None:
    """Validate SCHEMA; with DATA, tell the custodian what would be clipped or folded, and how many rows people have.

    Exit code 1 where more than half of an attribute's values are outside its domain, which is most often a mistake in
    how the table is read. With DATA, what is printed and the exit code depend on the rows: they are PRIVATE.

    \b
      sklar schema check adult.toml adult.csv
    """
    from sklar.custodian.check import check as look

    schema = schema_of(schema_path)
    if data is None:
        checked = look(schema)
    else:
        with show_progress() as progress:
            checked = look(schema, table_of(data, query), progress=progress)
    if not is_given("json"):
        click.echo(f"{schema_path}: ", nl=False)
    print_figures(checked)
    if warn_of_unfit(checked.values or ()):
        sys.exit(1)


def warn_of_unfit(fates: Sequence[Fate]) -> bool:
    """Tell the custodian, on standard error, which attributes would lose most values; whether there are any."""
    unfit = [fate for fate in fates if fate.unfit]
    for fate in unfit:
        warn(fate.warning, "STOP (PRIVATE)")
    return bool(unfit)
