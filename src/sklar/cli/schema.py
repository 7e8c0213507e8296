"""Commands about what is publicly known: schema draft, schema check."""

from __future__ import annotations

from pathlib import Path

import click

from sklar.cli.shared import show_progress


@click.group(short_help="Draft or check a schema.")
def schema() -> None:
    """Draft or check a schema: what is publicly known of a table."""


@schema.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), metavar="S.toml", help="Where it goes.")
def draft(data: Path, out: Path) -> None:
    """Propose a schema from the rows of DATA, to be reviewed by hand before any release.

    \b
      sklar schema draft adult.csv -o adult.toml
    """
    from sklar.output import check_target, write_text
    from sklar.private.inspect import draft as propose

    check_target(out, (".toml",))
    with show_progress() as progress:
        proposed = propose(data, name=data.name.split(".")[0] or "table", progress=progress)
    write_text(out, proposed.to_toml())
    click.echo(f"{proposed.schema.n_attributes} attributes drafted in {out}.")
    for name, reason in proposed.left_out.items():
        click.echo(f"Left out: {name}: {reason}.")
    click.echo(
        "PRIVATE until reviewed: its domains were read from the rows. Check each entry against public knowledge,"
    )
    click.echo("correct it, and remove its line reviewed = false. A release refuses the file until then.")


@schema.command()
@click.argument("schema_path", metavar="SCHEMA", type=click.Path(path_type=Path))
@click.argument("data", required=False, type=click.Path(path_type=Path))
def check(schema_path: Path, data: Path | None) -> None:
    """Validate SCHEMA; with DATA, tell the custodian what would be clipped or folded.

    \b
      sklar schema check adult.toml adult.csv
    """
    from sklar.rules import rule_text
    from sklar.schema import Schema

    described = Schema.load(schema_path)
    m = described.measured.n_attributes
    click.echo(
        f"{schema_path}: table '{described.name}', {described.n_attributes} attributes, {described.n_levels} levels "
        "in all,"
    )
    click.echo(f"{m} one-way and {m * (m - 1) // 2} two-way tables to measure.")
    for number, rule in enumerate(described.rules, start=1):
        click.echo(f"Rule {number}: {rule_text(rule, described.attributes)}.")
    waiting = [attribute.name for attribute in described.attributes if not attribute.reviewed]
    if waiting:
        click.echo(f"Not reviewed, so a release would refuse it: {', '.join(waiting)}.")
    if data is None:
        return
    from sklar.private.inspect import broken_rules
    from sklar.private.inspect import check as look

    with show_progress() as progress:
        fates = look(data, described, progress=progress)
        broken = broken_rules(data, described, progress=progress) if described.rules else []
    click.echo("PRIVATE, for the custodian only: exact counts of values, never part of a release.")
    click.echo(f"{'attribute':<24}{'in domain':>12}{'missing':>10}{'clipped':>10}{'folded':>10}{'in no cell':>12}")
    for fate in fates:
        click.echo(
            f"{fate.attribute:<24.24}{fate.listed:>12,}{fate.missing:>10,}{fate.clipped:>10,}{fate.folded:>10,}"
            f"{fate.no_cell:>12,}"
        )
    for number, rows in enumerate(broken, start=1):
        click.echo(f"Rule {number}: broken by {rows:,} rows.")
