"""The questions of `sklar schema review`, on a terminal: keyboard only, and every answer is saved at once."""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sklar.cli.console import finish, is_given, show_progress
from sklar.cli.options import table_of
from sklar.errors import SchemaError

if TYPE_CHECKING:
    from sklar.custodian.draft import Draft
    from sklar.custodian.review import OpenRule, Question, ReviewChoice

_HELP = """\
  A schema is public, so nothing in it may tell who is in the table. Each entry comes from one of three places:
    public knowledge   a code book, a questionnaire, a legal limit: anyone could have written it without the rows;
    found with budget  a release finds the domain itself, from noisy counts, for a part of epsilon;
    the rows           values as they were seen. That is a leak that no noise repairs: the certificate and the report of
                       every release will say that the promise does not cover it.
  Lists are separated by commas; quote a value that holds one: "Smith, J.", Miller. Days are written 2020-12-31."""
_TYPED = {
    "values": "  the values, separated by commas",
    "edges": "  the edges, separated by commas",
    "bounds": "  the lower and the upper bound",
}


class _StopError(Exception):
    """The custodian stops here."""


def ask(schema_path: Path, data: Path | str | None, query: str | None, *, accept: bool) -> None:
    """Walk through the open decisions of a schema file, or accept what is proposed; then say what was decided."""
    from sklar.custodian import review as decisions
    from sklar.custodian.draft import draft
    from sklar.custodian.review import accept_all, save
    from sklar.public.schema import Schema

    if is_given("json") and not accept:
        raise click.UsageError("--json asks nothing: add --accept.")
    schema = Schema.load(schema_path)
    if accept:
        save(schema_path, accept_all(_read(schema_path)))
    else:
        drafted = None
        if data is not None:
            with show_progress() as progress:
                drafted = draft(table_of(data, query), name=schema.name, reading=schema.reading, progress=progress)
        try:
            _walk(schema_path, drafted)
        except _StopError:
            left = len(decisions.questions(_read(schema_path)))
            click.echo(f"\nStopped; {left} columns are open. All answers are in {schema_path}: run it again to go on.")
            return
    schema = Schema.load(schema_path)
    counts = Counter[str](attribute.known_from for attribute in schema.attributes)
    parts = [f"{counts[word]} {says}" for word, says in decisions.PROVENANCE.items() if counts[word]]
    uncovered = "Releases will say that their promise does not cover the columns that were read from the rows."
    finish(
        {"provenance": {word: counts[word] for word in decisions.PROVENANCE}, "attributes": schema.n_attributes}
        | {"rules": len(schema.rules), "out": schema_path},
        f"Every column is reviewed: {', '.join(parts)}. {schema_path} is public now.",
        *([uncovered] if counts["rows"] else []),
        f"Next: sklar forecast --schema {schema_path} --rows N --epsilon 1",
    )


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _walk(path: Path, draft: Draft | None) -> None:
    from sklar.custodian.review import answer, open_rules, questions, save

    waiting = questions(_read(path), draft)
    if waiting:
        click.echo(f"{len(waiting)} columns to decide. ? explains, q stops; every answer is saved at once.")
        if draft is None:
            click.echo(
                "Give the table too (sklar schema review S.toml DATA) to see what its rows show beside each question."
            )
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
    while True:
        choice = _choose(question)
        if choice is None and question.default:
            return False
        if choice is None:
            click.echo("  This entry cannot be accepted in bulk: answer it by itself.")
            continue
        try:
            entry = choice.entry
            if choice.asks:
                typed = _prompt(_TYPED[choice.asks], None)
                entry = complete(choice, typed, Schema.load(path).attribute(question.name))
            save(path, answer(_read(path), question.name, entry))
        except SchemaError as error:
            click.echo(f"  {error}")
            continue
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
    for choice in question.choices:
        default = " (or Enter)" if choice.key == question.default else ""
        click.echo(f"    {choice.key}  {choice.says}{default}")
    click.echo("    A  as proposed, here and in all questions that are left")


def _wrapped(head: str, text: str, color: str | None = None) -> None:
    """Print a paragraph to the right of its head, as wide as the terminal."""
    width = max(shutil.get_terminal_size().columns, 40) - len(head) - 1
    for number, line in enumerate(textwrap.wrap(text, width, break_on_hyphens=False) or [""]):
        click.secho(head if number == 0 else " " * len(head), fg=color, nl=False)
        click.echo(line)


def _choose(question: Question) -> ReviewChoice | None:
    """The answer that the custodian chooses; None accepts all proposals that are left."""
    keys = {choice.key: choice for choice in question.choices}
    while True:
        typed = _prompt(f"  {question.name}", question.default)
        if typed == "A":
            return None
        if typed in keys:
            return keys[typed]
        click.echo(_HELP if typed == "?" else f"  Type one of {', '.join(keys)}, A, ? or q.")


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
        while (typed := _prompt("  is it public knowledge? y or n", None)) not in ("y", "n"):
            click.echo(_HELP if typed == "?" else "  Type y, n, ? or q.")
        if typed == "y":
            confirmed.append(entry)
    try:
        save(path, answer_rule(text, rule, confirmed))
    except SchemaError as error:
        click.echo(f"  {error} No rule was added.")
        save(path, answer_rule(text, rule, ()))


def _prompt(text: str, default: str | None) -> str:
    try:
        typed = str(click.prompt(text, default=default or "", show_default=False, prompt_suffix=" > ")).strip()
    except click.Abort:
        raise _StopError from None
    if typed.lower() == "q":
        raise _StopError
    return typed
