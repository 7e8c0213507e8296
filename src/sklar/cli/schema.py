"""`sklar schema`: draft, review, import or check what is publicly known of a table."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sklar.cli import options as shared
from sklar.cli.console import JSON, TIMINGS, finish, is_given, print_answer, warn, watched
from sklar.cli.options import DATA_IF_GIVEN, HELP, QUERY, SCHEMA_FILE, WRITTEN, command, flag, table_of
from sklar.errors import SchemaError
from sklar.machine.notebook import sentence

if TYPE_CHECKING:
    from sklar.custodian.check import Fate
    from sklar.custodian.draft import Draft
    from sklar.custodian.draft.columns import OpenRule
    from sklar.custodian.review import Question

_TYPED = {
    "values": "  the values, separated by commas",
    "edges": "  the edges, separated by commas",
    "bounds": "  the lower and the upper bound",
}
_OUT = click.option("-o", "--out", required=True, type=WRITTEN, metavar="S.toml", help="Where it goes.")


@click.group(short_help="Draft, review, import or check a schema.")
def schema() -> None:
    """Draft, review, import or check a schema: what is publicly known of a table."""


@command(None, _OUT, shared.REPLACE, JSON, TIMINGS, of=schema)
@shared.DATA
@QUERY
def draft(*, data: Path | str, query: str | None, out: Path, replace: bool) -> None:
    """Look at the rows of DATA and propose a schema, to be reviewed before any release."""
    from sklar.custodian.draft import draft as propose

    # A drafted table has the name of its file, where it has one.
    name = (data.name.split(".")[0] if isinstance(data, Path) else "") or "table"
    proposed = watched(propose, table_of(data, query), name=name, out=out, replace=replace)
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


@command(None, JSON, of=schema)
@click.argument("schema_path", metavar="SCHEMA", type=WRITTEN)
@DATA_IF_GIVEN
@QUERY
@click.option("--people", metavar="COLUMN", help=HELP["--people"])
@click.option("--target", metavar="COLUMN[,...]", help="What releases are for: written to [table] as target.")
@flag("--accept", "Ask nothing: accept what is proposed. Entries that were read from the rows are not accepted so.")
def review(*, schema_path: Path, data: Path | str | None, query: str | None, accept: bool, **said: str | None) -> None:
    """Answer the open questions of SCHEMA, and mark each entry with where it comes from."""
    from sklar.custodian import draft as drafts
    from sklar.custodian import review as decisions
    from sklar.public.schema import Schema

    if is_given("json") and not accept:
        raise click.UsageError("--json asks nothing: add --accept.")
    for name, say in (("people", decisions.say_people), ("target", decisions.say_target)):
        if (words := said[name]) is not None:
            decisions.save(schema_path, say(_read(schema_path), words))
    described, drafted = Schema.load(schema_path), None
    if accept:
        decisions.save(schema_path, decisions.accept_all(_read(schema_path)))
    else:
        if data is not None:
            reading = {"name": described.name, "reading": described.reading}
            drafted = watched(drafts.draft, table_of(data, query), **reading)
        try:
            _walk(schema_path, drafted)
        except click.Abort:
            left = len(decisions.questions(_read(schema_path)))
            click.echo(f"\nStopped; {left} columns are open. All answers are in {schema_path}: run it again to go on.")
            return
    described = Schema.load(schema_path)
    counts = Counter[str](attribute.known_from for attribute in described.attributes)
    read = Counter[str](each.known_from for each in described.attributes if each.reviewed != "unread")
    parts = [f"{read[word]} {says}" for word, says in decisions.PROVENANCE.items() if read[word]]
    parts += [f"{len(described.unread)} accepted unread"] * bool(described.unread)
    each = "one row: each is taken for another person's (else add --people COLUMN)"
    person = described.person
    whom = each if person is None else f"one person, all rows of one {person.column}, and counts {person.words}"
    finish(
        {"provenance": {word: counts[word] for word in decisions.PROVENANCE}, "attributes": described.n_attributes}
        | {"person": person and person.column, "rules": len(described.rules), "out": schema_path},
        f"It protects {whom}.",
        f"{schema_path} is public now. Its entries: {', '.join(parts)}.",
        *map(sentence, described.standing),
        f"Next: sklar forecast --schema {schema_path} --rows N --epsilon 1",
    )


@command(None, _OUT, shared.REPLACE, JSON, of=schema, name="import")
@click.argument("file", type=shared.PATH)
@shared.choice("--format", "arrow frictionless sdv smartnoise", "What FILE is.  [default: recognized]", to="format_")
def import_(*, file: Path, format_: str | None, out: Path, replace: bool) -> None:
    """Turn a description of a table that exists already into a schema to complete. No row is read."""
    from sklar.files.write import check_target, require_same, write_text
    from sklar.public.importers import import_schema
    from sklar.public.schema import Schema

    check_target(out, (".toml",))
    if file.suffix.lower() == ".sklar" and format_ is None:
        known = Schema.load(file)
        text, facts = known.to_toml(), {"attributes": known.n_attributes, "open": [], "left_out": {}}
        done = [f"The schema of {file}, {known.n_attributes} attributes, is in {out}. Using it costs no privacy."]
    else:
        imported = import_schema(file, format=format_)
        missing, left_out, number = list(imported.open), dict(imported.left_out), len(imported.entries)
        text, facts = imported.to_toml(), {"attributes": number, "open": missing, "left_out": left_out}
        done = [f"{number} attributes imported from {imported.source} into {out}.", *_left_out(left_out)]
        todo = f"To complete from public knowledge: {', '.join(missing)}. A release refuses the file until then."
        done += [todo] if missing else []
    require_same(out, text, replace=replace)
    write_text(out, text)
    finish(facts | {"out": out}, *done)


@command(None, JSON, TIMINGS, of=schema)
@SCHEMA_FILE
@DATA_IF_GIVEN
@QUERY
@shared.option("--rows", HELP["schema check --rows"], int)
@shared.option("--epsilon", "With this privacy budget.", shared.number, default="1")
def check(*, schema_path: Path, data: Path | str | None, query: str | None, **foreseen: Any) -> None:
    """Validate SCHEMA; with DATA, tell the custodian what would be clipped or folded, and how many rows people have."""
    from sklar.custodian.check import check as look
    from sklar.public.tree import known_of

    rows, known = None if data is None else table_of(data, query), known_of(schema_path)
    found = look(known, **foreseen) if rows is None else watched(look, known, rows, **foreseen)
    lines = found.lines()
    print_answer(found.to_dict(), [f"{schema_path}: {lines[0]}", *lines[1:]])
    if warn_of_unfit(found.values or ()):
        sys.exit(1)


def warn_of_unfit(fates: Sequence[Fate]) -> bool:
    """Tell the custodian, on standard error, which attributes would lose most values; whether there are any."""
    unfit = [fate for fate in fates if fate.cause]
    for fate in unfit:
        warn(fate.warning, "STOP (PRIVATE)")
    return bool(unfit)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _walk(path: Path, draft: Draft | None) -> None:
    from sklar.custodian.review import answer, open_rules, people, questions, save, say_people

    # Whom a release protects is asked before all else, where a column of ids repeats.
    while seen := people(_read(path), draft):
        click.secho("\nCan a person have several rows?", bold=True)
        for line in seen:
            _wrapped("  PRIVATE   ", line, color="red")
        click.echo(HELP["whose rows"])
        try:
            save(path, say_people(_read(path), _prompt("  whose rows"), draft))
        except SchemaError as error:
            click.echo(f"  {error}")
    waiting = questions(_read(path), draft)
    if waiting:
        click.echo(f"{len(waiting)} columns to decide. ? explains, q stops; every answer is saved at once.")
        if draft is None:
            click.echo(HELP["no rows"])
    all_others = False
    for number, question in enumerate(waiting, start=1):
        if not (all_others and question.default):
            all_others = not _decide(path, question, f"{number} of {len(waiting)}") or all_others
        if all_others and question.default:
            save(path, answer(_read(path), question.name, question.choices[0].entry))
    for rule in open_rules(_read(path)):
        _decide_rule(path, rule, draft)


def _decide(path: Path, question: Question, place: str) -> bool:
    """Ask until an answer is given, and save it. False says that this and all other proposals are accepted."""
    from sklar.custodian.review import answer, complete, save
    from sklar.public.schema import Schema

    _show(question, place)
    choices = {each.key: each for each in question.choices}
    while True:
        typed = _prompt(f"  {question.name}", question.default)
        if typed == "A" and question.default:
            return False
        if typed == "A":
            click.echo("  This entry cannot be accepted in bulk: answer it by itself.")
        elif typed not in choices:
            click.echo(HELP["question"] if typed == "?" else f"  Type one of {', '.join(choices)}, A, ? or q.")
        else:
            try:
                chosen = choices[typed]
                entry = chosen.entry
                if chosen.asks:
                    values = _prompt(_TYPED[chosen.asks])
                    entry = complete(chosen, values, Schema.load(path).attribute(question.name))
                save(path, answer(_read(path), question.name, entry))
            except SchemaError as error:
                click.echo(f"  {error}")
            else:
                return True


def _show(question: Question, place: str) -> None:
    click.echo()
    click.secho(f"[{place}] {question.name}", bold=True, nl=False)
    click.echo(f"  ({question.kind})")
    _wrapped("  Proposed: ", question.proposed)
    _wrapped("            ", question.stated)
    _wrapped("  Decide:   ", question.decide)
    for line in question.private:
        _wrapped("  PRIVATE   ", line, color="red")
    for each in question.choices:
        default = " (or Enter)" if each.key == question.default else ""
        click.echo(f"    {each.key}  {each.says}{default}")
    click.echo("    A  as proposed, here and in all questions that are left")


def _wrapped(head: str, text: str, color: str | None = None) -> None:
    """Print a paragraph to the right of its head, as wide as the terminal."""
    width = max(shutil.get_terminal_size().columns, 40) - len(head) - 1
    for number, line in enumerate(textwrap.wrap(text, width, break_on_hyphens=False) or [""]):
        click.secho(head if number == 0 else " " * len(head), fg=color, nl=False)
        click.echo(line)


def _decide_rule(path: Path, rule: OpenRule, draft: Draft | None) -> None:
    from sklar.custodian.review import answer_rule, rule_entries, rule_words, save

    how = "determine" if rule.how == "determines" else "exclude some values of"
    seems = f"\n'{rule.first}' seems to {how} '{rule.second}'."
    if draft is None:
        click.echo(f"{seems} Give the table too, to decide on a rule.")
        return
    text, confirmed = _read(path), []
    entries = rule_entries(rule, text, draft)
    if not entries:
        click.echo(f"{seems} No rule can say so: it needs listed values on both sides.")
    for entry in entries:
        click.echo()
        click.secho(f"Rule? {rule.first} and {rule.second}", bold=True)
        _wrapped("  PRIVATE   ", f"In nearly all rows {rule_words(entry)}.", color="red")
        while (typed := _prompt("  is it public knowledge? y or n")) not in ("y", "n"):
            click.echo(HELP["question"] if typed == "?" else "  Type y, n, ? or q.")
        if typed == "y":
            confirmed.append(entry)
    try:
        save(path, answer_rule(text, rule, confirmed))
    except SchemaError as error:
        click.echo(f"  {error} No rule was added.")
        save(path, answer_rule(text, rule, ()))


def _prompt(text: str, default: str | None = None) -> str:
    """What is typed; q, Ctrl-C and the end of the input stop the review."""
    typed = str(click.prompt(text, default=default or "", show_default=False, prompt_suffix=" > ")).strip()
    if typed.lower() == "q":
        raise click.Abort
    return typed
