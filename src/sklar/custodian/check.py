"""What a schema would do to the rows, and what ids, keys of linked tables and files say of people.

Exact counts, hence PRIVATE, for the custodian's eyes before a release.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.forecast import Forecast
from sklar.budget.forecast import forecast as foresee
from sklar.errors import DataError, SchemaError
from sklar.kernel.queries import NO_CELL
from sklar.machine.notebook import Tabular, html_card
from sklar.machine.progress import SILENT, Progress, watch
from sklar.machine.wording import failing, said, stated
from sklar.public.axis import parse_number, read_moment
from sklar.public.rules import Determined, rule_text
from sklar.public.schema import Attribute, Schema, SchemaLike
from sklar.public.settings import Reading, describe_reading
from sklar.public.tree import Tree, joint_of, known_of
from sklar.rows.count import Ask, Histogram
from sklar.rows.encode import coder, distinct, encode_column, is_nothing, readable_text
from sklar.rows.read import open_source
from sklar.rows.source import require_columns, require_person
from sklar.rows.sql import Query

NOTICE = "PRIVATE, for the custodian only: exact counts of values, never part of a release."
OPAQUE = "(not a value)"
# A schema that loses more than this share of an attribute's values is taken for a mistake.
_MOST = 0.5
# Distinct values outside of a domain that are kept to find a cause, how many of them are examined, and quoted.
_STRAYS, _EXAMINED, _QUOTED = 10_000, 200, 3

_FATES = ("listed", "missing", "clipped", "folded", "no_cell")
_DAYS, _TIMES, _MONTHS = stated("sklar.custodian", "said.toml")["formats"].values()
_FORMATS = dict.fromkeys(("time", "duration", "year", "yearmonth"), (*_TIMES, *_MONTHS)) | {
    "date": _DAYS,
    "datetime": (*_DAYS, *(f"{day} {time}" for day in ("%Y-%m-%d", *_DAYS) for time in _TIMES)),
}
_SIGNS = ((".", ","), (",", None), (",", "."), (".", " "), (",", " "), (".", "'"))
_TRIED, _QUANTILES = (1, 2, 4, 8, 16, 32, 64), (0.5, 0.9, 0.99)


class Hidden(dict[str, Any]):
    """Values for a PRIVATE page, by name. It has no repr: a traceback or a debugger's log must not print counts."""

    def __repr__(self) -> str:
        return "Hidden(private)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """How many values of one attribute meet which fate: PRIVATE. Where most are outside, `cause` says what is wrong."""

    attribute: str
    listed: int
    missing: int
    clipped: int
    folded: int
    no_cell: int
    cause: str = field(default="", compare=False)

    @property
    def outside(self) -> float:
        """The share of the values, without missing ones, that the domain does not hold."""
        lost = self.clipped + self.folded + self.no_cell
        return lost / max(lost + self.listed, 1)

    @property
    def warning(self) -> str:
        """A sentence for the custodian alone."""
        return f"{self.attribute}: {self.outside:.0%} of its values are outside its domain. {self.cause}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """How many rows people have: PRIVATE. `quantiles`: (share of people, rows); `kept`: (of each, share counted)."""

    column: str
    rows: int
    people: int
    without_id: int
    most: int
    quantiles: tuple[tuple[float, int], ...]
    kept: tuple[tuple[int, float], ...]

    @property
    def warning(self) -> str | None:
        """What the ids seem to be where they do not name people."""
        none, one, own = self.without_id == self.rows, self.people - self.without_id == 1, self.most == 1
        reasons = (key for key, holds in (("no_ids", none), ("one_id", one), ("own_ids", own)) if holds)
        return next((said(f"custodian.{key}", column=self.column) for key in reasons if self.rows > 1), None)

    def lines(self) -> list[str]:
        """For the custodian."""
        shares = ", ".join(f"{share:.0%} have at most {rows:,}" for share, rows in self.quantiles)
        kept = ", ".join(f"{rows:,}: {share:.1%}" for rows, share in self.kept)
        facts = asdict(self) | {"mean": self.rows / max(self.people, 1), "shares": shares, "kept": kept}
        return [*said("custodian.crowd", **facts).splitlines(), *filter(None, [self.warning])]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SchemaCheck(Tabular):
    """What a schema asks to be measured. With rows: how many values meet which fate, which is PRIVATE.

    `values` has one entry for each attribute, `rows_that_break` one number for each rule; both are None without rows.
    `forecast` says what a release would find, where the number of rows is known, `links` how rows of linked tables
    match.
    """

    schema: Schema
    values: tuple[Fate, ...] | None = None
    rows_that_break: tuple[int, ...] | None = None
    people: Crowd | None = None
    forecast: Forecast | None = None
    links: tuple[str, ...] = ()

    def __repr__(self) -> str:
        unfit = sum(bool(fate.cause) for fate in self.values or ())
        rows = "" if self.values is None else f", PRIVATE counts of values, {unfit} attributes unfit"
        return f"SchemaCheck({self.schema!r}{rows})"

    def _repr_html_(self) -> str:
        pairs = f"{self.to_dict()['two_way_tables']:,}"
        facts = {"two-way tables": pairs, "not reviewed": ", ".join(self.schema.not_reviewed) or "none"}
        columns, notes = (None, ()) if self.values is None else (self.to_columns(), (NOTICE,))
        return html_card(repr(self.schema), facts, columns, notes=notes)

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """How many values of each attribute meet which fate; without rows, its levels."""
        if self.values is None:
            fields = {"attribute": "name", "type": "kind", "levels": "n_levels"}
            return {key: [getattr(each, name) for each in self.schema.attributes] for key, name in fields.items()}
        return {name: [getattr(fate, name) for fate in self.values] for name in ("attribute", *_FATES)}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        schema, private, foreseen = self.schema, None, self.forecast and self.forecast.to_dict()
        if self.values is not None:
            private = {
                "values": [asdict(fate) for fate in self.values],
                "rows_that_break_rules": list(self.rows_that_break or ()),
                "people": None if self.people is None else asdict(self.people),
                "links": list(self.links),
                "forecast": foreseen,
            }
        return {
            "table": schema.name,
            "attributes": schema.n_attributes,
            "levels": schema.n_levels,
            "one_way_tables": schema.measured.n_attributes,
            "two_way_tables": comb(schema.measured.n_attributes, 2),
            "rules": [rule_text(rule, schema.attributes) for rule in schema.rules],
            "not_reviewed": list(schema.not_reviewed),
            "forecast": None if private else foreseen,
            "PRIVATE": private,
        }

    def lines(self) -> list[str]:
        """For a person to read."""
        schema, facts = self.schema, self.to_dict()
        lines = [
            f"table '{schema.name}', {schema.n_attributes} attributes, {schema.n_levels} levels in all,",
            f"{facts['one_way_tables']} one-way and {facts['two_way_tables']} two-way tables to measure.",
        ]
        if schema.person is not None:
            lines.append(f"Any one person, with all their rows, is protected. Counted are {schema.person.words}.")
        lines += [f"'{each.name}': {each.note}" for each in schema.attributes if each.note]
        lines += [f"Rule {number}: {text}." for number, text in enumerate(facts["rules"], start=1)]
        if schema.not_reviewed:
            lines.append(f"Not reviewed, so a release would refuse it: {', '.join(schema.not_reviewed)}.")
        expected = [] if self.forecast is None else self.forecast.verdict()
        if self.values is None:
            return lines + expected
        heads = ("attribute", "in domain", "missing", "clipped", "folded", "in no cell")
        counts = [(fate.attribute, *(f"{getattr(fate, name):,}" for name in _FATES)) for fate in self.values]
        lines += [NOTICE, *("{:<24.24}{:>12}{:>10}{:>10}{:>10}{:>12}".format(*row) for row in (heads, *counts))]
        broken = enumerate(self.rows_that_break or (), start=1)
        lines += [f"Rule {number}: broken by {rows:,} rows." for number, rows in broken]
        return [*lines, *([] if self.people is None else self.people.lines()), *self.links, *expected]


def check(
    schema: SchemaLike | Tree,
    data: object | None = None,
    *,
    query: str | None = None,
    rows: int | None = None,
    epsilon: float = 1.0,
    progress: Progress = SILENT,
) -> SchemaCheck:
    """Validate a schema; with `data`, say what it would do to the rows, which is PRIVATE.

    `schema` is a schema, the path of one, or a model for its schema; `data` a path or anything that exports an Arrow
    stream; with a `query`, a DuckDB file or the address of a database. What a release at this epsilon would find of
    every column is said for so many `rows`: as given, as the schema states, or as `data` has. Of linked tables all are
    checked, and `rows` are people.
    """
    known = known_of(schema)
    schema = joint_of(known)
    rows, checked = rows or schema.rows_about, SchemaCheck(schema=schema)
    if data is not None and isinstance(known, Tree):
        fates, broken, links = _check_tree(data, known, progress)
        people = sum(getattr(fates[0], fate) for fate in _FATES)
        checked, rows = replace(checked, values=fates, rows_that_break=broken, links=links), rows or people
    elif data is not None:
        table = data if query is None else Query(data, query)  # type: ignore[arg-type]
        values = tuple(check_values(table, schema, progress=progress))
        broken = tuple(broken_rules(table, schema, progress=progress)) if schema.rules else ()
        people = rows_per_person(table, schema, progress=progress) if schema.person else None
        checked = replace(checked, values=values, rows_that_break=broken, people=people)
        one_each = people if schema.person is not None and schema.person.count == "people" else None
        rows = rows or (one_each.people if one_each else sum(getattr(values[0], fate) for fate in _FATES))
    return replace(checked, forecast=foresee(known, rows=rows, epsilon=epsilon)) if rows else checked


def _check_tree(
    data: object, tree: Tree, progress: Progress
) -> tuple[tuple[Fate, ...], tuple[int, ...], tuple[str, ...]]:
    """What the schemas of linked tables would do to the rows, table by table, and how these match: PRIVATE."""
    # Imported here: most checks are of one table.
    from sklar.rows.trees import tables_of

    fates, broken = list[Fate](), list[int]()
    for branch, table in zip(tree.branches, tables_of(data, tree).values(), strict=True):
        below = f"{branch.name}." if branch.of else ""
        own = check_values(table, branch.schema, progress=progress)
        fates += [replace(fate, attribute=below + fate.attribute) for fate in own]
        broken += broken_rules(table, branch.schema, progress=progress) if branch.schema.rules else []
    return tuple(fates), tuple(broken), tuple(check_links(data, tree))


def _batches(data: object, schema: Schema, stage: str, progress: Progress) -> Iterator[pl.DataFrame]:
    source = open_source(data, schema)
    require_columns(source, schema)
    progress.stage(stage, unit="rows")
    return watch(source.batches(tuple(schema.columns)), progress)


def check_values(data: object, schema: Schema, *, progress: Progress = SILENT) -> list[Fate]:
    """What the schema would do to the rows, attribute by attribute: PRIVATE, exact counts."""
    # Of a private domain of numbers only the bounds are known, and of one of categories nothing.
    known = [replace(each, domain="public") if each in schema.private_domains else each for each in schema.attributes]
    every = [(each, coder(each), Counter[str](), Counter[str | None]()) for each in known]
    for batch in _batches(data, schema, "check", progress):
        for attribute, code_of, tally, outside in every:
            for text, times in tally_texts(*texts_and_places(batch.get_column(attribute.column))).items():
                fate = _fate(text, attribute, code_of(text))
                tally[fate] += times
                if fate not in ("listed", "missing") and (len(outside) < _STRAYS or text in outside):
                    outside[text] += times
    fates = []
    for attribute, (*_, tally, outside) in zip(schema.attributes, every, strict=True):
        # A release decides which categories of a private domain it lists; of a found one, it put the rare under other.
        private = attribute.private and attribute.categorical
        if private:
            tally["listed"] += tally.pop("folded", 0)
        counts: dict[str, Any] = {name: tally[name] for name in _FATES}
        fate_of = Fate(attribute=attribute.name, **counts)
        if fate_of.outside > _MOST and not private and not (attribute.domain == "found" and attribute.other):
            fate_of = replace(fate_of, cause=likely_cause(attribute, schema.reading, outside))
        fates.append(fate_of)
    return fates


def _fate(text: str | None, attribute: Attribute, code: int) -> str:
    if code == NO_CELL:
        return "no_cell"
    has_value = code < attribute.n_values
    if text is None or text in ("", attribute.missing):
        return "listed" if has_value else "missing"
    if code in attribute.special_codes:
        return "listed"
    edge = attribute.read(text) if attribute.binned else None
    if edge is not None and (edge != edge or edge == attribute.missing_number):
        return "missing"
    if edge is not None and not attribute.within(edge):
        return "clipped" if has_value else "folded"
    if attribute.binned and not text.strip():
        return "missing"
    return "listed" if has_value else "folded"


def broken_rules(data: object, schema: Schema, *, progress: Progress = SILENT) -> list[int]:
    """How many rows break each rule: PRIVATE. A row without a level of a rule's attribute breaks nothing."""
    broken = [0] * len(schema.rules)
    for batch in _batches(data, schema, "rules", progress):

        def codes(name: str, batch: pl.DataFrame = batch) -> NDArray[np.int32]:
            # Of the columns that rules name alone: a release may have yet to find the domains of others.
            return encode_column(batch.get_column(schema.attribute(name).column), schema.attribute(name))

        for number, rule in enumerate(schema.rules):
            if isinstance(rule, Determined):
                has, by = codes(rule.attribute), codes(rule.by)
                breaks = (has != np.array(rule.levels)[by]) & (has >= 0) & (by >= 0)
            else:
                breaks = np.logical_and(*(np.isin(codes(name), levels) for name, levels in rule.sides))
            broken[number] += int(np.count_nonzero(breaks))
    return broken


def texts_and_places(column: pl.Series) -> tuple[list[str | None], NDArray[np.int64]]:
    """The texts that `coder` would see, None for a null, and which of them each row has. A text may occur twice."""
    values, places = distinct(column)
    read = ((readable_text(value), value) for value in values)
    return [*(OPAQUE if text is None and not is_nothing(value) else text for text, value in read), None], places


def tally_texts(texts: Sequence[str | None], places: NDArray[np.int64]) -> Counter[str | None]:
    """How many rows have each text."""
    tally = Counter[str | None]()
    for text, times in zip(texts, np.bincount(places, minlength=len(texts)).tolist(), strict=True):
        tally[text] += times
    return +tally


def likely_cause(attribute: Attribute, reading: Reading, outside: Counter[str | None]) -> str:
    """What seems to be wrong with values outside a domain, and the key that would mend it: PRIVATE, it quotes them."""
    outside = Counter(dict(outside.most_common(_EXAMINED)))
    texts = [text for text in outside if text is not None]

    def most(holds: Callable[[str], object]) -> bool:
        return 2 * sum(outside[text] for text in texts if holds(text)) > outside.total()

    if 2 * (outside[None] + outside[""]) > outside.total():
        return 'Most of them are null, and the attribute has no level for that: add missing = "".'
    if most(lambda text: "\ufffd" in text):
        return f"They hold bytes that are not {reading.encoding} text: set encoding in [table]."

    def reads(form: str) -> bool:
        return most(lambda text: read_moment(text.strip(), form))

    formats = list(filter(reads, _FORMATS.get(attribute.kind, ())))
    if formats:
        written = " or ".join(json.dumps(form) for form in formats[:_QUOTED])
        return f"They are dates or times in another writing: add format = {written}."
    if attribute.kind in ("integer", "real"):
        numbers = {text: parse_number(text.strip()) or 0 for text in texts}
        low, high = attribute.edges[0], attribute.edges[-1]
        beyond = "Most of them are numbers {} edge, {}: check the unit, or state wider edges."
        if most(lambda text: numbers[text] < low):
            return beyond.format("below the first", attribute.axis.text(low))
        if most(lambda text: numbers[text] >= high):
            return beyond.format("above the last", attribute.axis.text(high))
        # A decimal point was rewritten as a comma, so that the text is no number.
        if reading.decimal == "," and most(lambda text: Reading(decimal=",").plain(text) != text):
            return 'They are numbers with a decimal point: remove decimal = "," from [table].'
        for decimal, thousands in () if reading.decimal == "," else _SIGNS:
            other = Reading(decimal=decimal, thousands=thousands)
            if most(lambda text, other=other: re.fullmatch(other.number, text)):  # type: ignore[misc]
                keys = [f"{key} = {json.dumps(value)}" for key, value in describe_reading(other).items()]
                return f"They are numbers in another writing: set {' and '.join(keys)} in [table]."
    if attribute.categorical:
        listed = {_loose(str(value)): str(value) for value in attribute.values}
        alike = [text for text in texts if _loose(text) in listed]
        if most(lambda text: text in alike):
            pair = f"{alike[0]!r} for {listed[_loose(alike[0])]!r}"
            return f"They differ from listed values in capitals, spaces or leading zeros: {pair}."
    frequent = [text for text, _ in outside.most_common(_QUOTED) if text is not None]
    if not most(lambda text: text in frequent):
        return "The column does not seem to be what the schema describes: compare its name, its type and its domain."
    quoted = ", ".join(map(repr, frequent))
    if attribute.boolean:
        return f"They are {quoted}: add texts = [the one for false, the one for true]."
    if attribute.categorical:
        return f"Most of them are {quoted}: list them as values, or as special where they mean something else."
    return f"Most of them are {quoted}: list them as special, or as nulls in [table] where they mean no value."


def _loose(text: str) -> str:
    return text.strip().casefold().lstrip("0") or "0"


def rows_per_person(data: object, schema: Schema, *, progress: Progress = SILENT) -> Crowd:
    """Count the rows of each person: PRIVATE. Memory grows with the number of people."""
    # Imported here, as below: most tables have neither people nor events.
    from sklar.rows.bounded import Secrets, ids_of, marks_of

    person = schema.person
    if person is None:
        raise SchemaError("the schema names no person. Add person = 'COLUMN' to [table] (docs/people.md).")
    source = open_source(data, schema)
    require_person(source, schema)
    secrets, rows, without = Secrets(), 0, 0
    counted = Histogram(Attribute(name=person.column, kind="integer"))
    progress.stage("people", unit="rows")
    for batch in watch(source.scan((person.column,)), progress):
        ids = ids_of(batch.to_series(0))
        # Half a mark is enough to count by: no promise depends on it.
        counted.add_column(pl.Series(marks_of(ids.drop_nulls(), secrets.ids)[:, 0].astype(np.int64)))
        rows, without = rows + batch.height, without + ids.null_count()
    alone = np.ones(without if person.null_ids == "person" else 0, dtype=np.int64)
    own = np.sort(np.concatenate([counted.values()[1], alone]))
    whole = max(int(own.sum()), 1)
    return Crowd(
        column=person.column,
        rows=rows,
        people=own.size,
        without_id=without,
        most=int(own.max(initial=0)),
        quantiles=tuple((share, int(own[int(np.ceil(share * own.size)) - 1])) for share in _QUANTILES if own.size),
        kept=tuple((tried, float(np.minimum(own, tried).sum()) / whole) for tried in _TRIED),
    )


def check_links(data: object, tree: Tree) -> list[str]:
    """How the rows of linked tables match, and which are dropped, a line each: PRIVATE, exact counts."""
    from sklar.rows.trees import LocalTree, People

    read, matched, kept, most = (np.zeros(len(tree.branches), dtype=np.int64) for _ in range(4))
    ask = Ask(tree=tree)
    for people in (People(records, ask) for records in LocalTree(data, tree).people(ask)):
        read, matched, kept = read + people.read, matched + people.matched, kept + people.kept
        own = (np.bincount(people.owner[i]).max(initial=0) for i in range(1, len(most)))
        most[1:] = np.maximum(most[1:], [*own])
    lines = [said("custodian.people", kept=kept[0], repeated=read[0] - kept[0])]
    for i, branch in enumerate(tree.branches[1:], start=1):
        facts = {"of": branch.name, "kept": kept[i], "unmatched": read[i] - matched[i], "beyond": matched[i] - kept[i]}
        odd = "no_rows" if not kept[i] else "own_rows" if most[i] <= 1 else "one_person" if kept[0] == 1 else ""
        shown = ["matched", *([odd] if odd else [])]
        lines += [said(f"custodian.{key}", **facts, most=most[i], at_most=branch.at_most) for key in shown]
    return [f"PRIVATE: {line}" for line in lines]


def hash_files(data: object, *, progress: Progress = SILENT) -> tuple[bytes, ...]:
    """The SHA-256 of every file that this path stands for, for a ledger to notice two names of the same rows: PRIVATE.

    Compared by the custodian's commands alone: a release that compared them would be refused or not depending on rows.
    """
    if not isinstance(data, str | Path) or "://" in str(data):
        raise DataError("a data set is bound to files: give a file or a folder, not a database or an object store.")
    source = open_source(data)
    paths = [part.path for part in source.parts or (source,) if part.path is not None]
    progress.stage("hash", total=sum(path.stat().st_size for path in paths), unit="bytes")
    digests = []
    for path in paths:
        with failing(DataError, said("custodian.unread", path=path), OSError), path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").digest())
        progress.advance(path.stat().st_size)
    return tuple(digests)
