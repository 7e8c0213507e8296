"""The open decisions of a schema file, what may be answered, and how an answer changes the file.

An answer replaces one entry and leaves all other lines alone, so a file under review stays what a person made of it.
What rows show beside a question is PRIVATE; an answer says where the entry comes from: public knowledge, found with
budget, or read from the rows at the custodian's risk.
"""

from __future__ import annotations

import csv
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sklar.answer.report.render import short
from sklar.custodian.draft import DECIDE, HEADING, LEFT_OUT, PROPOSED, READ_WITH, RULES_HEADING, Draft, common, facts
from sklar.custodian.draft.columns import RULE, ColumnSummary, OpenRule, Tie
from sklar.custodian.draft.propose import as_seen, asked, round_bounds, searched, shown_ends
from sklar.errors import SchemaError
from sklar.files.write import write_text
from sklar.machine.wording import said, stated
from sklar.public.axis import parse_number
from sklar.public.codelists import natural
from sklar.public.declare import build_attribute, describe_attribute
from sklar.public.description import toml_key, toml_value
from sklar.public.schema import Attribute, Schema
from sklar.public.settings import PERSON_KEYS, Person, describe_person, whose

Asks = Literal["", "values", "edges", "bounds"]
Entry = dict[str, Any]

PROVENANCE: dict[str, str] = stated("sklar.custodian", "said.toml")["provenance"]
_BINS, _AT_MOST = 20, 50
_MOST_SHOWN, _FEW_SHOWN, _MOST_LETTERS = 60, 12, 400
_DOMAIN_KEYS = ("domain", "at_most", "values", "other", "ordered", "edges", "low", "high", "bins", "points")
_REVIEW_KEYS = ("reviewed", "provenance")
_AT_RISK = "at my risk: they tell who is in the table"
_RULE_LINE = re.compile(rf'{re.escape(RULE)}("(?:[^"\\]|\\.)*") (determines|excludes) ("(?:[^"\\]|\\.)*")')
_PERSON_LINE = re.compile(rf"\s*({'|'.join(PERSON_KEYS)}|ask_person)\s*=")
_TARGET_LINE = re.compile(r"\s*target\s*=")


@dataclass(frozen=True, slots=True)
class ReviewChoice:
    """One answer and the entry that it makes, None to leave the column out; `complete` adds what it `asks` for."""

    key: str
    says: str
    entry: Entry | None
    asks: Asks = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Question:
    """One open decision, what rows show (`private`), and the answers; no `default` where an entry came from rows."""

    name: str
    kind: str
    proposed: str
    stated: str
    decide: str
    private: tuple[str, ...]
    choices: tuple[ReviewChoice, ...]
    default: str | None


def questions(text: str, draft: Draft | None = None, *, about: Collection[str] | None = None) -> list[Question]:
    """The open decisions about attributes, or about those named, with what a draft of the table saw in the rows."""
    schema = Schema.from_toml(text)
    entries = schema.to_dict()["attributes"]
    about = [each.name for each in schema.attributes if each.reviewed is not True] if about is None else about
    chosen = [each for each in schema.attributes if each.name in about]
    lines, rules = text.splitlines(), open_rules(text)
    places = _places(lines)
    own = [lines[slice(*places.get(("attributes", each.name), (0, 0)))] for each in chosen]
    return [_question(each, entries[each.name], at, rules, draft) for each, at in zip(chosen, own, strict=True)]


def _question(
    attribute: Attribute, entry: Entry, own: list[str], rules: tuple[OpenRule, ...], draft: Draft | None
) -> Question:
    seen = None if draft is None else draft.column(attribute.name)
    # What a draft wrote below the entry's header.
    notes = {mark: line[len(mark) :] for mark in (PROPOSED, DECIDE) for line in own if line.startswith(mark)}
    tied = [pair for rule in rules if attribute.name in (pair := (rule.first, rule.second))]
    others = ", ".join(second if first == attribute.name else first for first, second in tied)
    rule = f" A rule with {others} is possible only where both list their values." if others else ""
    stated = [f"{key} = {toml_value(value)}" for key, value in _without(entry, "type", "domain", *_REVIEW_KEYS).items()]
    levels = attribute.levels if attribute.n_levels <= 8 else (*attribute.levels[:6], "...", attribute.levels[-1])
    listed = f"{attribute.n_levels} levels: {', '.join(levels)}."
    private = tuple[str, ...]()
    if seen is not None:
        # All values where a person can read them; else the most common ones.
        few = len(seen.counts) <= _MOST_SHOWN
        shown = [f"{value} ({share})" for value, _, share in common(seen, _MOST_SHOWN if few else _FEW_SHOWN)]
        values = [f"{'All values' if few else 'The most common values'}: {', '.join(shown)}."] if shown else []
        private = ("; ".join(facts(seen)) + ".", *values)
    # A domain that an earlier version, or a person, took from the rows cannot be accepted in bulk.
    drafted = attribute.provenance != "rows" and (PROPOSED in notes or attribute.private)
    return Question(
        name=attribute.name,
        kind=attribute.kind,
        proposed=notes.get(PROPOSED, said("custodian.found") if attribute.private else listed),
        stated=short(", ".join(stated), _MOST_LETTERS),
        decide=asked(notes.get(DECIDE, ""), attribute, seen) + rule,
        private=private,
        choices=_choices(attribute, entry, seen),
        default="a" if drafted else None,
    )


def _without(entry: Entry, *keys: str) -> Entry:
    return {key: value for key, value in entry.items() if key not in keys}


def _choices(attribute: Attribute, entry: Entry, seen: ColumnSummary | None) -> tuple[ReviewChoice, ...]:
    """The answers to a question."""
    public, rows = {"provenance": "public"}, {"provenance": "rows"}
    whole, kept = _without(entry, *_REVIEW_KEYS), _without(entry, *_DOMAIN_KEYS, *_REVIEW_KEYS)
    private = attribute.private
    accepted = "found with budget" if private else "it is public knowledge"
    choices = [ReviewChoice("a", f"as proposed: {accepted}", whole | public)]
    if attribute.binned:
        says = f"find it with budget, between {'other ' if private else ''}bounds"
        if seen is not None and (ends := round_bounds(attribute, seen)):
            shown_as = " to ".join(shown_ends(attribute, *ends))
            never = f"no, by public knowledge: {shown_as}, as the file then says to everybody"
            stated = dict(zip(("low", "high"), map(attribute.axis.value, ends), strict=True))
            choices.append(ReviewChoice("n", never, kept | {"domain": "private"} | stated | public))
        choices += [
            ReviewChoice("b", says, kept | {"domain": "private", "bins": _BINS} | public, "bounds"),
            ReviewChoice("e", "state the edges of bins, from public knowledge", kept | public, "edges"),
        ]
    elif attribute.categorical:
        if not private:
            # Only listed values can have an output.
            searched = _without(kept, "output") | {"domain": "private", "at_most": _AT_MOST} | public
            choices.append(ReviewChoice("f", "find it with budget instead", searched))
        says = "list the values, from public knowledge (a code book)"
        choices.append(ReviewChoice("v", says, kept | public, "values"))
    shown = None if seen is None or attribute.part_of is not None else as_seen(seen)
    if attribute.provenance == "rows":
        choices[0] = ReviewChoice("p", "I compared it with public knowledge", whole | public)
        choices.insert(1, ReviewChoice("r", _AT_RISK, whole | rows))
    elif shown is not None and private and shown.kind == attribute.kind and not attribute.special:
        document = Schema(name="t", attributes=(shown,)).to_dict()["attributes"][attribute.name]
        domain = _without(document, *_REVIEW_KEYS)
        says = f"take the {'bins that cover the values' if attribute.binned else 'values'} that were seen"
        choices.append(ReviewChoice("c", f"{says}: I compared them with public knowledge", domain | public))
        choices.append(ReviewChoice("r", f"{says}, {_AT_RISK}", domain | rows))
    return (*choices, ReviewChoice("x", "leave the column out", None))


def complete(choice: ReviewChoice, typed: str, attribute: Attribute) -> Entry:
    """The entry of a choice with what the custodian typed: values, edges, or two bounds."""
    listed = [each.strip() for each in next(csv.reader([typed], skipinitialspace=True), []) if each.strip()]
    entry = dict(choice.entry or {})
    if choice.asks == "values":
        if not listed:
            raise SchemaError("values must list at least one text. Separate them by commas.")
        whole = bool(attribute.values) and isinstance(attribute.values[0], int)
        return entry | {"values": [int(text) for text in listed] if whole else listed}
    ends: list[Any] = listed
    if attribute.kind in ("integer", "real"):
        ends = [parse_number(text.replace("_", "")) for text in listed]
        if None in ends:
            raise SchemaError(f"{listed[ends.index(None)]!r} is not a number. Write numbers, separated by commas.")
    if choice.asks == "edges":
        return entry | {"edges": ends}
    if len(ends) != 2:
        raise SchemaError(f"bounds must be two, the lower and the upper one, got {typed!r}. Write 0, 1000000.")
    return entry | {"low": ends[0], "high": ends[1]}


def answer(text: str, name: str, entry: Entry | None) -> str:
    """The file with an entry in place of the open one, or without it; an error when the file would be no schema."""
    if entry is None:
        if len(Schema.from_toml(text).columns) == 1:
            raise SchemaError(f"'{name}' is the last column of the schema, which needs one. Keep it.")
        schema = Schema.from_toml(text)
        for place in schema.columns[schema.attribute(name).column]:
            text = _replace(text, {schema.names[place]: None})
        for rule in (each for each in open_rules(text) if name in (each.first, each.second)):
            text = answer_rule(text, rule, ())
        return _tidy(text)
    return _answer_all(text, {name: entry})


def _answer_all(text: str, entries: Mapping[str, Entry]) -> str:
    """The file with these entries in place of the open ones: lines are looked through once, however many there are."""
    alone = {name: build_attribute(name, entry) for name, entry in entries.items()}
    changed = _replace(text, {name: describe_attribute(each) for name, each in alone.items()})
    made = {each.name: each for each in Schema.from_toml(changed).attributes}
    if wrong := [name for name, each in alone.items() if made.get(name) != each]:
        raise SchemaError(f"attribute '{wrong[0]}': its lines could not be replaced. Edit the file by hand.")
    return _tidy(changed)


def left_out(schema: Schema, draft: Draft | None) -> dict[str, str]:
    """The columns that a draft left out, and that a schema does not have either, each with the reason."""
    ids = () if schema.person is None else (schema.person.column,)
    found = {} if draft is None else draft.left_out
    return {name: reason for name, reason in found.items() if name not in (*schema.columns, *ids)}


def bring_back(text: str, draft: Draft, name: str) -> str:
    """The file with a column that the draft left out, as an open question: a release would find its common values."""
    seen = draft.column(name) if name in left_out(Schema.from_toml(text), draft) else None
    if seen is None or (proposal := searched(seen)).attribute is None:
        raise SchemaError(f"no column '{name}' was left out. Choose one of those that were.")
    lines = [line for line in text.splitlines() if not line.startswith(f"{LEFT_OUT}{toml_value(name)}: ")]
    lines += ["", f"[attributes.{toml_key(name)}]", f"{PROPOSED}{proposal.proposed}.", f"{DECIDE}{proposal.decide}"]
    lines += [f"{key} = {toml_value(value)}" for key, value in describe_attribute(proposal.attribute).items()]
    changed = "\n".join(lines) + "\n"
    Schema.from_toml(changed)
    return changed


def open_rules(text: str) -> tuple[OpenRule, ...]:
    """The ties between columns that nobody has decided on yet."""
    matches = filter(None, map(_RULE_LINE.fullmatch, text.splitlines()))
    return tuple(OpenRule(first=json.loads(each[1]), how=each[2], second=json.loads(each[3])) for each in matches)


def rule_entries(rule: OpenRule, text: str, draft: Draft) -> list[Entry]:
    """The rules that a tie amounts to, in the schema's levels, or none: once confirmed, exceptions are mistakes."""
    tie, schema = next((tie for tie in draft.ties if tie.line == rule.line), None), Schema.from_toml(text)
    if tie is None or not {rule.first, rule.second} <= set(schema.names):
        return []
    first, second = schema.attribute(rule.first), schema.attribute(rule.second)
    if "private" in (first.domain, second.domain):
        return []
    entries, document = _entries(tie, first, second), schema.to_dict()
    with suppress(SchemaError):
        Schema.from_dict({**document, "rules": [*document.get("rules", []), *entries]})
        return entries
    return []


def rule_words(entry: Entry) -> str:
    """An entry of a rule in words."""
    if "forbid" in entry:
        (first, values), (second, others) = entry["forbid"].items()
        return f"there is no {first} = {' or '.join(values)} with {second} = {' or '.join(others)}"
    shown = [f"{key} goes with {value}" for key, value in list(entry["map"].items())[:8]]
    more = ", ..." if len(entry["map"]) > len(shown) else ""
    return f"{entry['determined_by']} determines {entry['attribute']}: {', '.join(shown)}{more}"


def _entries(tie: Tie, first: Attribute, second: Attribute) -> list[Entry]:
    """A map of all levels, or a rule for each set of values that exclude the same values."""
    if tie.how == "determines":
        partners = dict(tie.pairs)
        if first.missing is not None and second.missing is not None:
            partners[first.missing or "(missing)"] = second.missing or "(missing)"
        levels = {level: partners.get(level) for level in first.levels}
        return [] if None in levels.values() else [{"attribute": tie.second, "determined_by": tie.first, "map": levels}]
    excluded, alike = defaultdict[str, list[str]](list), defaultdict[tuple[str, ...], list[str]](list)
    for one, two in tie.pairs:
        excluded[one].append(two)
    for one, others in excluded.items():
        alike[tuple(sorted(others, key=natural))].append(one)
    return [{"forbid": {tie.first: values, tie.second: list(others)}} for others, values in alike.items()]


def answer_rule(text: str, rule: OpenRule, entries: Sequence[Entry]) -> str:
    """The file without the open question, and with the rules that the custodian confirmed."""
    changed = _tidy("\n".join(line for line in text.splitlines() if line != rule.line))
    for entry in entries:
        changed += "\n[[rules]]\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in entry.items())
    Schema.from_toml(changed)
    return changed


def accept_all(text: str) -> str:
    """The file with every proposal that is left accepted unread, and no open rules; those of the rows are refused."""
    Schema.from_toml(text).require_person_known()
    waiting = questions(text)
    refused = [question.name for question in waiting if question.default is None]
    if refused:
        raise SchemaError(said("custodian.not_in_bulk", names=", ".join(refused)))
    unread = {each.name: _without(each.choices[0].entry or {}, "provenance") for each in waiting}
    text = _answer_all(text, {name: entry | {"reviewed": "unread"} for name, entry in unread.items()})
    return _tidy("\n".join(line for line in text.splitlines() if not _RULE_LINE.fullmatch(line)))


def save(path: Path, text: str) -> None:
    """Save the file: for its owner alone while something in it waits for an answer."""
    write_text(path, text, private=bool(Schema.from_toml(text).not_reviewed or open_rules(text)))


def people(text: str, draft: Draft | None) -> tuple[str, ...]:
    """What was seen (PRIVATE) of each column that may say whose rows are; nothing where it is decided."""
    seen = {name: draft and draft.column(name) for name in Schema.from_toml(text).ask_person}
    return tuple(f"{name} repeats{f': {column.rows_each}' if column else ''}." for name, column in seen.items())


def say_people(text: str, said: str, draft: Draft | None = None) -> str:
    """The file with the answer to whether a person can have several rows, as `settings.whose` reads it."""
    schema, person = Schema.from_toml(text), whose(said)
    columns = schema.ask_person if draft is None else [column.name for column in draft.columns]
    if person is not None and columns and person.column not in columns:
        raise SchemaError(f"whose rows are must be said by one of {', '.join(columns)}, got '{said}'. Or say each-row.")
    return name_person(text, person)


def name_person(text: str, person: Person | None) -> str:
    """The file with the column of ids of people, which is no attribute any more; None: each row is a person."""
    if person is not None and person.column in Schema.from_toml(text).names:
        text = answer(text, person.column, None)
    changed = _in_table(text, _PERSON_LINE, describe_person(person))
    if Schema.from_toml(changed).person != person:
        raise SchemaError("the person's lines could not be put into [table]. Edit the file by hand.")
    return changed


def say_target(text: str, said: str) -> str:
    """The file with what releases are for, names with commas (`Schema.aimed`); without any, nothing is favored."""
    target = tuple(name for name in said.split(",") if name)
    Schema.from_toml(text).aimed(*target)
    changed = _in_table(text, _TARGET_LINE, {"target": list(target)} if target else {})
    if Schema.from_toml(changed).target != target:
        raise SchemaError("the target could not be put into [table]. Edit the file by hand.")
    return changed


def _in_table(text: str, old: re.Pattern[str], stated: Entry) -> str:
    """The file with these settings in `[table]`, in place of the lines of `old` ones."""
    lines = text.splitlines()
    if ("table",) not in _places(lines):
        lines = ["[table]", "", *lines]
    start, end = _places(lines)["table",]
    kept = [line for line in lines[start + 1 : end] if not old.match(line)]
    own = [f"{key} = {toml_value(value)}" for key, value in stated.items()]
    return "\n".join([*lines[: start + 1], *kept, *own, *lines[end:]]) + "\n"


def _tidy(text: str) -> str:
    """The file without what only a draft has to say: its headings, once nothing below them is open."""
    lines = text.splitlines()
    if not open_rules(text):
        lines = [line for line in lines if line not in RULES_HEADING]
    if not Schema.from_toml(text).not_reviewed and lines[:1] == [HEADING[0]]:
        lines = [line for line in lines if line not in HEADING and not line.startswith((LEFT_OUT, READ_WITH))]
    return "\n".join(lines).strip("\n") + "\n"


def _places(lines: list[str]) -> dict[tuple[str, ...], tuple[int, int]]:
    """Where the lines below each header begin and end, by its keys: from the header to its last key."""
    places = dict[tuple[str, ...], tuple[int, int]]()
    for start, line in enumerate(lines):
        with suppress(ValueError):
            if not line.lstrip().startswith("["):
                continue
            held, keys = tomllib.loads(line), tuple[str, ...]()
            while isinstance(held, dict) and held:
                [(key, held)] = held.items()
                keys += (key,)
            end = start + 1
            while end < len(lines) and not re.match(r"\s*\[{1,2}\s*[A-Za-z\"']", lines[end]):
                end += 1
            while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
                end -= 1
            places.setdefault(keys, (start, end))
    return places


def _replace(text: str, entries: Mapping[str, Entry | None]) -> str:
    """The file with other lines below the headers of these attributes; without those whose entry is None."""
    lines = text.splitlines()
    places = _places(lines)
    if lost := [name for name in entries if ("attributes", name) not in places]:
        raise SchemaError(said("custodian.lost", name=lost[0], key=toml_key(lost[0])))
    # From the end on: lines before it stay where they are.
    for name in sorted(entries, key=lambda name: places["attributes", name], reverse=True):
        (start, end), entry = places["attributes", name], entries[name]
        if entry is None:
            while end < len(lines) and not lines[end].strip():
                end += 1
            lines[start:end] = []
            continue
        own = [line for line in lines[start + 1 : end] if line.lstrip().startswith("#")]
        own = [line for line in own if not line.startswith((PROPOSED, DECIDE))]
        lines[start + 1 : end] = [*own, *(f"{key} = {toml_value(value)}" for key, value in entry.items())]
    return "\n".join(lines).rstrip("\n") + "\n"
