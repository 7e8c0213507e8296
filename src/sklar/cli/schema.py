"""`sklar schema`: draft, review, import or check what is publicly known of a table."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sklar.cli.console import print_figures, print_json, say, show_progress
from sklar.cli.options import DATA, DATA_IF_GIVEN, JSON, QUERY, schema_of, table_of

if TYPE_CHECKING:
    from sklar.custodian.check import Fate

_OUT = click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path), metavar="S.toml", help="Where it goes."
)


@click.group(short_help="Draft, review, import or check a schema.")
def schema() -> None:
    """Draft, review, import or check a schema: what is publicly known of a table."""


@schema.command()
@DATA
@QUERY
@_OUT
@JSON
def draft(*, data: Path | str, query: str | None, out: Path, as_json: bool) -> None:
    """Look at the rows of DATA and propose a schema, to be reviewed before any release.

    Its domains are public lists, wide bounds, or left for a release to find: none is read from the rows. What they show
    goes to a PRIVATE page beside it, S.PRIVATE.html, for your eyes.

    \b
      sklar schema draft adult.csv -o adult.toml
    """
    from sklar.custodian.draft import draft as propose

    with show_progress() as progress:
        proposed = propose(table_of(data, query), name=name_of(data), out=out, progress=progress)
    page = out.with_suffix(".PRIVATE.html")
    if as_json:
        print_json(
            {
                "notice": "PRIVATE until reviewed",
                "attributes": proposed.schema.n_attributes,
                "left_out": proposed.left_out,
                "reading": [dict(zip(("key", "value", "sure", "why"), each, strict=True)) for each in proposed.remarks],
                "out": out,
                "page": page,
            }
        )
        return
    say(f"{proposed.schema.n_attributes} attributes drafted in {out}.")
    for key, value, sure, why in proposed.remarks:
        say(f"Read with {key} = {value} ({sure}: {why}).")
    for left, reason in proposed.left_out.items():
        say(f"Left out: {left}: {reason}.")
    say(f"PRIVATE, for your eyes: what the rows show is in {page}.")
    say(f"A release refuses {out} until it is reviewed: sklar schema review {out} {shlex.quote(str(data))}")


def name_of(data: Path | str) -> str:
    """What a drafted table is called: as its file, where it has one."""
    return (data.name.split(".")[0] if isinstance(data, Path) else "") or "table"


@schema.command()
@click.argument("schema_path", metavar="SCHEMA", type=click.Path(path_type=Path))
@DATA_IF_GIVEN
@QUERY
@click.option(
    "--accept",
    is_flag=True,
    help="Ask nothing: accept what is proposed. Entries that were read from the rows are not accepted so.",
)
@JSON
def review(*, schema_path: Path, data: Path | str | None, query: str | None, accept: bool, as_json: bool) -> None:
    """Answer the open questions of SCHEMA, and mark each entry with where it comes from.

    With DATA, what the rows show stands beside each question (PRIVATE). Every answer is saved at once: stop at any
    time, and go on later.

    \b
      sklar schema review adult.toml adult.csv
      sklar schema review adult.toml --accept
    """
    from sklar.cli.questions import ask

    ask(schema_path, data, query, accept=accept, as_json=as_json)


@schema.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "format_",
    type=click.Choice(["arrow", "frictionless", "sdv", "smartnoise"]),
    help="What FILE is.  [default: recognized]",
)
@_OUT
@JSON
def import_(*, file: Path, format_: str | None, out: Path, as_json: bool) -> None:
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
        _import_model(file, out, as_json=as_json)
        return
    found = import_schema(file, format=format_)
    write_text(out, found.to_toml())
    if as_json:
        counted = {"attributes": len(found.entries), "open": list(found.open), "left_out": dict(found.left_out)}
        print_json(counted | {"out": out})
        return
    say(f"{len(found.entries)} attributes imported from {found.source} into {out}.")
    for name, reason in found.left_out.items():
        say(f"Left out: {name}: {reason}.")
    if found.open:
        say(f"To complete from public knowledge: {', '.join(found.open)}. A release refuses the file until then.")


def _import_model(file: Path, out: Path, *, as_json: bool) -> None:
    from sklar.files.write import write_text

    found = schema_of(file)
    write_text(out, found.to_toml())
    if as_json:
        print_json({"attributes": found.n_attributes, "open": [], "left_out": {}, "out": out})
        return
    say(f"The schema of {file}, {found.n_attributes} attributes, is in {out}. Using it costs no privacy.")


@schema.command()
@click.argument("schema_path", metavar="SCHEMA", type=click.Path(path_type=Path))
@DATA_IF_GIVEN
@QUERY
@JSON
def check(*, schema_path: Path, data: Path | str | None, query: str | None, as_json: bool) -> None:
    """Validate SCHEMA; with DATA, tell the custodian what would be clipped or folded, and how many rows people have.

    Exit code 1 where more than half of an attribute's values are outside its domain, which is most often a mistake in
    how the table is read. With DATA, what is printed and the exit code depend on the rows: they are PRIVATE.

    \b
      sklar schema check adult.toml adult.csv
    """
    from sklar.custodian.check import check as look

    described = schema_of(schema_path)
    if data is None:
        found = look(described)
    else:
        with show_progress() as progress:
            found = look(described, table_of(data, query), progress=progress)
    if not as_json:
        click.echo(f"{schema_path}: ", nl=False)
    print_figures(found, as_json=as_json)
    if warn_of_unfit(found.values or ()):
        sys.exit(1)


def warn_of_unfit(fates: Sequence[Fate]) -> bool:
    """Tell the custodian, on standard error, which attributes would lose most values; whether there are any."""
    unfit = [fate for fate in fates if fate.unfit]
    for fate in unfit:
        click.echo(f"STOP (PRIVATE): {fate.warning}", err=True)
    return bool(unfit)
