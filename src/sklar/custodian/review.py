"""The open decisions of a schema file, what may be answered, and how an answer changes the file.

A file under review stays what a person made of it: an answer replaces one entry, and leaves all other lines alone. What
rows show beside a question is private; an answer says where the entry comes from: public knowledge, found with budget,
or read from the rows at the custodian's risk.
"""

from __future__ import annotations

import csv
import json
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sklar.answer.report.render import short
from sklar.custodian.draft import DECIDE, HEADING, LEFT_OUT, PROPOSED, READ_WITH, RULE, RULES_HEADING, Draft
from sklar.custodian.draft.columns import ColumnSummary, Tie
from sklar.custodian.draft.page import common, facts
from sklar.custodian.draft.propose import as_seen
from sklar.errors import SchemaError
from sklar.public.codelists import natural
from sklar.public.schema import Attribute, Schema
from sklar.public.toml import toml_key, toml_value

Asks = Literal["", "values", "edges", "bounds"]
Entry = dict[str, Any]

# Where an entry's levels come from, in words.
PROVENANCE = {
    "public": "public knowledge",
    "found": "found with budget",
    "rows": "read from the rows, at the custodian's risk",
}
_BINS, _AT_MOST = 20, 50
_MOST_SHOWN, _FEW_SHOWN = 60, 12
_MOST_LETTERS = 400
_DOMAIN_KEYS = ("domain", "at_most", "values", "other", "ordered", "edges", "low", "high", "bins", "points", "step")
_RULE_LINE = re.compile(rf'{re.escape(RULE)}("(?:[^"\\]|\\.)*") (determines|excludes) ("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One answer to a question: its key, what it says, and the entry that it makes; None leaves the column out.

    Where it `asks` for something, the custodian types it, and `complete` adds it to the entry.
    """

    key: str
    says: str
    entry: Entry | None
    asks: Asks = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Question:
    """One open decision, with what the rows show (`private`) and the answers to it. The first is the proposal.

    `default` is the key of the answer that may be given without reading on: none where the entry came from the rows.
    """

    name: str
    kind: str
    proposed: str
    stated: str
    decide: str
    private: tuple[str, ...]
    choices: tuple[Choice, ...]
    default: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRule:
    """A tie between two columns that a draft noticed: perhaps a public rule."""

    first: str
    how: str
    second: str


def questions(text: str, draft: Draft | None = None, *, about: Collection[str] | None = None) -> list[Question]:
    """The open decisions about attributes; with a draft of the same table, beside what the rows show.

    `about` names the attributes to ask about instead, decided or not.
    """
    schema = Schema.from_toml(text)
    entries = schema.to_dict()["attributes"]
    return [
        _question(text, attribute, entries[attribute.name], draft)
        for attribute in schema.attributes
        if (not attribute.reviewed if about is None else attribute.name in about)
    ]


def _question(text: str, attribute: Attribute, entry: Entry, draft: Draft | None) -> Question:
    seen = None if draft is None else draft.seen.column(attribute.name)
    notes = _notes(text, attribute.name)
    # Nobody may vouch unread for a domain that an earlier version, or a person, took from the rows.
    drafted = attribute.provenance != "rows" and (PROPOSED in notes or attribute.private)
    return Question(
        name=attribute.name,
        kind=attribute.kind,
        proposed=notes.get(PROPOSED, _describe(attribute)),
        stated=_stated(entry),
        decide=notes.get(DECIDE, "is it public knowledge?") + _tied(text, attribute.name),
        private=() if seen is None else ("; ".join(facts(seen)) + ".", *_examples(seen)),
        choices=_choices(attribute, entry, seen),
        default="a" if drafted else None,
    )


def _stated(entry: Entry) -> str:
    """The keys of an entry in one line."""
    keys = {key: value for key, value in entry.items() if key not in ("type", "domain", "reviewed", "provenance")}
    return short(", ".join(f"{key} = {toml_value(value)}" for key, value in keys.items()), _MOST_LETTERS)


def _tied(text: str, name: str) -> str:
    others = [
        rule.second if rule.first == name else rule.first
        for rule in open_rules(text)
        if name in (rule.first, rule.second)
    ]
    return f" A rule with {', '.join(others)} is possible only where both list their values." if others else ""


def _describe(attribute: Attribute) -> str:
    if attribute.private:
        return "a release finds the domain with part of its budget."
    levels = attribute.levels if attribute.n_levels <= 8 else (*attribute.levels[:6], "...", attribute.levels[-1])
    return f"{attribute.n_levels} levels: {', '.join(levels)}."


def _examples(seen: ColumnSummary) -> list[str]:
    """All values where a person can read them; else the most common ones."""
    most = _MOST_SHOWN if len(seen.counts) <= _MOST_SHOWN else _FEW_SHOWN
    listed = [f"{value} ({share})" for value, _, share in common(seen, most)]
    which = "All values" if len(seen.counts) <= most else "The most common values"
    return [f"{which}: {', '.join(listed)}."] if listed else []


def _choices(attribute: Attribute, entry: Entry, seen: ColumnSummary | None) -> tuple[Choice, ...]:
    """The answers to a question."""
    kept = {key: value for key, value in entry.items() if key not in (*_DOMAIN_KEYS, "reviewed", "provenance")}
    private = attribute.private
    whole = {key: value for key, value in entry.items() if key not in ("reviewed", "provenance")}
    accepted = "as proposed: found with budget" if private else "as proposed: it is public knowledge"
    choices = [Choice(key="a", says=accepted, entry=whole | {"provenance": "public"})]
    if attribute.binned:
        choices += [
            Choice(
                key="b",
                says="find it with budget, between other bounds" if private else "find it with budget, between bounds",
                entry=_kept(kept, entry, "step") | {"domain": "private", "bins": _BINS, "provenance": "public"},
                asks="bounds",
            ),
            Choice(
                key="e",
                says="state the edges of bins, from public knowledge",
                entry=_kept(kept, entry, "step") | {"provenance": "public"},
                asks="edges",
            ),
        ]
    elif attribute.categorical:
        if not private:
            found = {"domain": "private", "at_most": _AT_MOST, "provenance": "public"}
            choices.append(Choice(key="f", says="find it with budget instead", entry=_text_output(kept) | found))
        choices.append(
            Choice(
                key="v",
                says="list the values, from public knowledge (a code book)",
                entry=kept | {"provenance": "public"},
                asks="values",
            )
        )
    shown = _as_seen(attribute, seen)
    if attribute.provenance == "rows":
        choices[0] = Choice(key="p", says="I compared it with public knowledge", entry=whole | {"provenance": "public"})
        choices.insert(1, Choice(key="r", says=_AT_RISK, entry=whole | {"provenance": "rows"}))
    elif shown is not None and private:
        what = "bins that cover the values" if attribute.binned else "values"
        choices += [
            Choice(
                key="c",
                says=f"take the {what} that were seen: I compared them with public knowledge",
                entry=shown | {"provenance": "public"},
            ),
            Choice(key="r", says=f"take the {what} that were seen, {_AT_RISK}", entry=shown | {"provenance": "rows"}),
        ]
    choices.append(Choice(key="x", says="leave the column out", entry=None))
    return tuple(choices)


_AT_RISK = "at my risk: they tell who is in the table"


def _kept(kept: Entry, entry: Entry, *keys: str) -> Entry:
    return kept | {key: entry[key] for key in keys if key in entry}


def _text_output(entry: Entry) -> Entry:
    """The entry without an output that only listed values can have."""
    return {key: value for key, value in entry.items() if key != "output"}


def _as_seen(attribute: Attribute, seen: ColumnSummary | None) -> Entry | None:
    """The entry with the domain that the rows show, where it is of the same kind."""
    shown = None if seen is None else as_seen(seen)
    if shown is None or shown.kind != attribute.kind or attribute.special:
        return None
    entry: Entry = Schema(name="t", attributes=(shown,)).to_dict()["attributes"][attribute.name]
    return {key: value for key, value in entry.items() if key not in ("reviewed", "provenance")}


def complete(choice: Choice, typed: str, attribute: Attribute) -> Entry:
    """The entry of a choice with what the custodian typed: values, edges, or two bounds."""
    listed = [each.strip() for each in next(csv.reader([typed], skipinitialspace=True), []) if each.strip()]
    entry = dict(choice.entry or {})
    if choice.asks == "values":
        if not listed:
            raise SchemaError("values must list at least one text. Separate them by commas.")
        whole = bool(attribute.values) and isinstance(attribute.values[0], int)
        return entry | {"values": [int(text) for text in listed] if whole else listed}
    numbers = [_number(text, attribute.kind) for text in listed]
    if choice.asks == "edges":
        return entry | {"edges": numbers}
    if len(numbers) != 2:
        raise SchemaError(f"bounds must be two, the lower and the upper one, got {typed!r}. Write 0, 1000000.")
    return entry | {"low": numbers[0], "high": numbers[1]}


def _number(text: str, kind: str) -> object:
    if kind not in ("integer", "real"):
        return text
    try:
        return int(text.replace("_", ""))
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise SchemaError(f"{text!r} is not a number. Write numbers, separated by commas.") from None


def answer(text: str, name: str, entry: Entry | None) -> str:
    """The file with an entry in place of the open one, or without it; an error when the file would be no schema."""
    before = Schema.from_toml(text)
    if entry is None:
        if before.n_attributes == 1:
            raise SchemaError(f"'{name}' is the last column of the schema, which needs one. Keep it.")
        changed = _without_rules(_replaced(text, name, None), name)
        return _tidied(changed)
    alone = Schema.from_dict({"attributes": {name: entry}})
    wanted = alone.attributes[0]
    changed = _replaced(text, name, alone.to_dict()["attributes"][name])
    if Schema.from_toml(changed).attribute(name) != wanted:
        raise SchemaError(f"attribute '{name}': its lines could not be replaced. Edit the file by hand.")
    return _tidied(changed)


def open_rules(text: str) -> tuple[OpenRule, ...]:
    """The ties between columns that nobody has decided on yet."""
    found = map(_RULE_LINE.fullmatch, text.splitlines())
    return tuple(OpenRule(first=json.loads(each[1]), how=each[2], second=json.loads(each[3])) for each in found if each)


def rule_entries(rule: OpenRule, text: str, draft: Draft) -> list[Entry]:
    """The rules that a tie in the rows amounts to, in the levels of the schema; none where it cannot state them.

    The custodian confirms each as public knowledge, so the rows that break it are mistakes.
    """
    wanted = (rule.first, rule.how, rule.second)
    tie = next((tie for tie in draft.ties if (tie.first, tie.how, tie.second) == wanted), None)
    schema = Schema.from_toml(text)
    if tie is None or not {rule.first, rule.second} <= set(schema.names):
        return []
    first, second = schema.attribute(rule.first), schema.attribute(rule.second)
    if "private" in (first.domain, second.domain):
        return []
    entries = _determined(tie, first, second) if rule.how == "determines" else _forbidden(tie)
    document = schema.to_dict()
    try:
        Schema.from_dict({**document, "rules": [*document.get("rules", []), *entries]})
    except SchemaError:
        return []
    return entries


def _determined(tie: Tie, first: Attribute, second: Attribute) -> list[Entry]:
    partners = dict(tie.pairs)
    if first.missing is not None and second.missing is not None:
        partners[first.missing or "(missing)"] = second.missing or "(missing)"
    if set(first.levels) - set(partners):
        return []
    named = {level: partners[level] for level in first.levels}
    return [{"attribute": tie.second, "determined_by": tie.first, "map": named}]


def _forbidden(tie: Tie) -> list[Entry]:
    """A rule for each set of values that exclude the same values."""
    partners: dict[str, list[str]] = {}
    for one, two in tie.pairs:
        partners.setdefault(one, []).append(two)
    alike: dict[tuple[str, ...], list[str]] = {}
    for one, excluded in partners.items():
        alike.setdefault(tuple(sorted(excluded, key=natural)), []).append(one)
    return [{"forbid": {tie.first: values, tie.second: list(excluded)}} for excluded, values in alike.items()]


def answer_rule(text: str, rule: OpenRule, entries: Sequence[Entry]) -> str:
    """The file without the open question, and with the rules that the custodian confirmed."""
    line = f"{RULE}{toml_value(rule.first)} {rule.how} {toml_value(rule.second)}"
    changed = "\n".join(each for each in text.splitlines() if each != line).rstrip("\n") + "\n"
    changed = _tidied(changed)
    for entry in entries:
        changed += "\n[[rules]]\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in entry.items())
    Schema.from_toml(changed)
    return changed


def _tidied(text: str) -> str:
    """The file without what only a draft has to say: its headings, once nothing below them is open."""
    lines = text.splitlines()
    if not open_rules(text):
        lines = [line for line in lines if line not in RULES_HEADING]
    if not Schema.from_toml(text).not_reviewed and lines[:1] == [HEADING[0]]:
        lines = [line for line in lines if line not in HEADING and not line.startswith((LEFT_OUT, READ_WITH))]
    return "\n".join(lines).strip("\n") + "\n"


def _without_rules(text: str, name: str) -> str:
    for rule in open_rules(text):
        if name in (rule.first, rule.second):
            text = answer_rule(text, rule, ())
    return text


def _place(lines: list[str], name: str) -> tuple[int, int]:
    """Where the lines of an entry begin and end: from its header to its last key."""
    start = next((number for number, line in enumerate(lines) if _header(line) == name), None)
    if start is None:
        raise SchemaError(
            f"attribute '{name}': its header [attributes.{toml_key(name)}] was not found. Edit the file by hand."
        )
    end = start + 1
    while end < len(lines) and not re.match(r"\s*\[{1,2}\s*[A-Za-z\"']", lines[end]):
        end += 1
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    return start, end


def _header(line: str) -> str | None:
    if not line.lstrip().startswith("["):
        return None
    try:
        attributes = tomllib.loads(line).get("attributes")
    except ValueError:
        return None
    return next(iter(attributes)) if isinstance(attributes, Mapping) and len(attributes) == 1 else None


def _notes(text: str, name: str) -> dict[str, str]:
    """What a draft wrote below an entry's header: what is proposed, and what is to be decided."""
    lines = text.splitlines()
    try:
        start, end = _place(lines, name)
    except SchemaError:
        return {}
    return {
        mark: line[len(mark) :] for mark in (PROPOSED, DECIDE) for line in lines[start:end] if line.startswith(mark)
    }


def _replaced(text: str, name: str, entry: Entry | None) -> str:
    lines = text.splitlines()
    start, end = _place(lines, name)
    if entry is None:
        while end < len(lines) and not lines[end].strip():
            end += 1
        return "\n".join(lines[:start] + lines[end:]).rstrip("\n") + "\n"
    own = [
        line
        for line in lines[start + 1 : end]
        if line.lstrip().startswith("#") and not line.startswith((PROPOSED, DECIDE))
    ]
    written = [f"{key} = {toml_value(value)}" for key, value in entry.items()]
    return "\n".join([*lines[: start + 1], *own, *written, *lines[end:]]) + "\n"
