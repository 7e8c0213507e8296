"""What a schema would do to the rows: exact counts, hence PRIVATE, for the custodian's eyes before a release."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.custodian.keys import Crowd, rows_per_person
from sklar.kernel.queries import NO_CELL
from sklar.machine.notebook import Tabular, html_card
from sklar.machine.progress import SILENT, Progress
from sklar.public.axis import parse_number
from sklar.public.reading import Reading, describe_reading
from sklar.public.rules import Determined, rule_text
from sklar.public.schema import Attribute, Schema, SchemaLike
from sklar.rows.encode import coder, encode, missing_number
from sklar.rows.read import open_source
from sklar.rows.source import require_columns
from sklar.rows.sql import Query
from sklar.rows.values import distinct, is_nothing, opaque, readable_text

NOTICE = "PRIVATE, for the custodian only: exact counts of values, never part of a release."
OPAQUE = "(not a value)"
# A schema that loses more than this share of an attribute's values is taken for a mistake.
_MOST = 0.5
# Distinct values outside of a domain that are kept to find a cause, how many of them are examined, and quoted.
_STRAYS, _EXAMINED, _QUOTED = 10_000, 200, 3

_FATES = ("listed", "missing", "clipped", "folded", "no_cell")
_DAYS = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d"),
    *("%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y"),
)
_TIMES = ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p", "%H:%M:%S.%f")
_MONTHS = ("%Y-%m", "%m/%Y", "%m.%Y", "%b %Y", "%Y%m")
_MOMENTS = tuple(f"{day} {time}" for day in ("%Y-%m-%d", *_DAYS) for time in _TIMES)
_FORMATS = {"date": _DAYS, "datetime": (*_DAYS, *_MOMENTS)} | dict.fromkeys(
    ("time", "duration", "year", "yearmonth"), (*_TIMES, *_MONTHS)
)
_WRITINGS = (
    Reading(thousands=","),
    Reading(decimal=","),
    Reading(decimal=",", thousands="."),
    Reading(thousands=" "),
    Reading(decimal=",", thousands=" "),
    Reading(thousands="'"),
)


class Hidden(dict[str, Any]):
    """Values for a PRIVATE page, by name. It has no repr: a traceback or a debugger's log must not print counts."""

    def __repr__(self) -> str:
        return "Hidden(private)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """How many values of one attribute meet which fate under a schema: PRIVATE.

    `cause` says what seems to be wrong where more than half of the values are outside of the domain.
    """

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
    def unfit(self) -> bool:
        """Whether a release would waste its budget on this attribute."""
        return bool(self.cause)

    @property
    def warning(self) -> str:
        """A sentence for the custodian alone."""
        return f"{self.attribute}: {self.outside:.0%} of its values are outside its domain. {self.cause}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Checked(Tabular):
    """What a schema asks to be measured. With rows: how many values meet which fate, which is PRIVATE.

    `values` has one entry for each attribute, `rows_that_break` one number for each rule; both are None without rows.
    """

    schema: Schema
    values: tuple[Fate, ...] | None = None
    rows_that_break: tuple[int, ...] | None = None
    people: Crowd | None = None

    @property
    def unfit(self) -> tuple[Fate, ...]:
        """The attributes that would lose more than half of their values: PRIVATE."""
        return tuple(fate for fate in self.values or () if fate.unfit)

    @property
    def rules(self) -> list[str]:
        """The schema's rules in words."""
        return [rule_text(rule, self.schema.attributes) for rule in self.schema.rules]

    def __repr__(self) -> str:
        rows = "" if self.values is None else f", PRIVATE counts of values, {len(self.unfit)} attributes unfit"
        return f"Checked({self.schema!r}{rows})"

    def _repr_html_(self) -> str:
        facts = {"two-way tables": f"{self._pairs:,}", "not reviewed": ", ".join(self.schema.not_reviewed) or "none"}
        note = "" if self.values is None else NOTICE
        return html_card(repr(self.schema), facts, self.to_columns() if self.values else None, note=note)

    @property
    def _pairs(self) -> int:
        m = self.schema.measured.n_attributes
        return m * (m - 1) // 2

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """How many values of each attribute meet which fate; without rows, its levels."""
        if self.values is None:
            fields = {"attribute": "name", "type": "kind", "levels": "n_levels"}
            return {key: [getattr(each, name) for each in self.schema.attributes] for key, name in fields.items()}
        return {name: [getattr(fate, name) for fate in self.values] for name in ("attribute", *_FATES)}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "table": self.schema.name,
            "attributes": self.schema.n_attributes,
            "levels": self.schema.n_levels,
            "one_way_tables": self.schema.measured.n_attributes,
            "two_way_tables": self._pairs,
            "rules": self.rules,
            "not_reviewed": list(self.schema.not_reviewed),
            "PRIVATE": None
            if self.values is None
            else {
                "values": [asdict(fate) for fate in self.values],
                "rows_that_break_rules": list(self.rows_that_break or ()),
                "people": None if self.people is None else self.people.to_dict(),
            },
        }

    def lines(self) -> list[str]:
        """For a person to read."""
        schema = self.schema
        lines = [
            f"table '{schema.name}', {schema.n_attributes} attributes, {schema.n_levels} levels in all,",
            f"{schema.measured.n_attributes} one-way and {self._pairs} two-way tables to measure.",
        ]
        if schema.person is not None:
            lines.append(f"Any one person, with all their rows, is protected. Counted are {schema.person.words}.")
        lines += [f"Rule {number}: {text}." for number, text in enumerate(self.rules, start=1)]
        if schema.not_reviewed:
            lines.append(f"Not reviewed, so a release would refuse it: {', '.join(schema.not_reviewed)}.")
        if self.values is None:
            return lines
        heads = ("attribute", "in domain", "missing", "clipped", "folded", "in no cell")
        counts = [(fate.attribute, *(f"{getattr(fate, name):,}" for name in _FATES)) for fate in self.values]
        lines += [NOTICE, *("{:<24.24}{:>12}{:>10}{:>10}{:>10}{:>12}".format(*row) for row in (heads, *counts))]
        broken = enumerate(self.rows_that_break or (), start=1)
        lines += [f"Rule {number}: broken by {rows:,} rows." for number, rows in broken]
        return [*lines, *([] if self.people is None else self.people.lines())]


def check(
    schema: SchemaLike, data: object | None = None, *, query: str | None = None, progress: Progress = SILENT
) -> Checked:
    """Validate a schema; with `data`, say what it would do to the rows, which is PRIVATE.

    `schema` is a schema, the path of one, or a model for its schema; `data` a path or anything that exports an Arrow
    stream; with a `query`, a DuckDB file or the address of a database.
    """
    schema = Schema.of(schema)
    if data is None:
        return Checked(schema=schema)
    rows = data if query is None else Query(data, query)  # type: ignore[arg-type]
    return Checked(
        schema=schema,
        values=tuple(check_values(rows, schema, progress=progress)),
        rows_that_break=tuple(broken_rules(rows, schema, progress=progress)) if schema.rules else (),
        people=rows_per_person(rows, schema, progress=progress) if schema.person else None,
    )


def check_values(data: object, schema: Schema, *, progress: Progress = SILENT) -> list[Fate]:
    """What the schema would do to the rows, attribute by attribute: PRIVATE, exact counts."""
    source = open_source(data, schema)
    require_columns(source, schema)
    tallies = [Counter[str]() for _ in schema.attributes]
    strays = [Counter[str | None]() for _ in schema.attributes]
    # Of a private domain of numbers only the bounds are known, and of one of categories nothing.
    known = [
        replace(attribute, domain="public") if attribute in schema.private_domains else attribute
        for attribute in schema.attributes
    ]
    coders = [coder(attribute) for attribute in known]
    progress.stage("check", unit="rows")
    for batch in source.batches(schema.names):
        for column, attribute, code_of, tally, outside in zip(
            batch.iter_columns(), known, coders, tallies, strays, strict=True
        ):
            for text, times in tally_texts(*texts_and_places(column)).items():
                fate = _fate(text, attribute, code_of(text))
                tally[fate] += times
                if fate not in ("listed", "missing") and (len(outside) < _STRAYS or text in outside):
                    outside[text] += times
        progress.advance(batch.height)
    return [
        _judge(attribute, schema.reading, tally, outside)
        for attribute, tally, outside in zip(schema.attributes, tallies, strays, strict=True)
    ]


def _judge(attribute: Attribute, reading: Reading, tally: Counter[str], outside: Counter[str | None]) -> Fate:
    private = attribute.private and attribute.categorical
    if private:
        # A release decides which of them it lists.
        tally["listed"] += tally.pop("folded", 0)
    listed, missing, clipped, folded, no_cell = (tally[name] for name in _FATES)
    fate = Fate(
        attribute=attribute.name, listed=listed, missing=missing, clipped=clipped, folded=folded, no_cell=no_cell
    )
    # Where a release found the categories, it put the rare ones under other itself.
    if fate.outside <= _MOST or private or (attribute.domain == "found" and attribute.other):
        return fate
    return replace(fate, cause=likely_cause(attribute, reading, outside))


def _fate(text: str | None, attribute: Attribute, code: int) -> str:
    if code == NO_CELL:
        return "no_cell"
    if text is None or text in ("", attribute.missing):
        return "listed" if code < attribute.n_values else "missing"
    if code in attribute.special_codes:
        return "listed"
    if attribute.binned:
        edge = attribute.axis.parse(text, attribute.format)
        if not text.strip() or (edge is not None and (edge != edge or edge == missing_number(attribute))):
            return "missing"
        if edge is not None:
            first, last = attribute.edges[0], attribute.edges[-1]
            inside = first <= edge < last or (attribute.kind == "real" and edge == last)
            if not inside:
                return "clipped" if code < attribute.n_values else "folded"
    return "listed" if code < attribute.n_values else "folded"


def broken_rules(data: object, schema: Schema, *, progress: Progress = SILENT) -> list[int]:
    """How many rows break each rule of the schema: PRIVATE, exact counts.

    A row without a level of one of a rule's attributes breaks nothing.
    """
    source = open_source(data, schema)
    require_columns(source, schema)
    names, broken = schema.names, [0] * len(schema.rules)
    progress.stage("rules", unit="rows")
    for batch in source.batches(names):
        codes = encode(batch, schema)
        for number, rule in enumerate(schema.rules):
            if isinstance(rule, Determined):
                has, by = codes[names.index(rule.attribute)], codes[names.index(rule.by)]
                breaks = (has != np.array(rule.levels)[by]) & (has >= 0) & (by >= 0)
            else:
                breaks = np.isin(codes[names.index(rule.first)], rule.first_levels)
                breaks &= np.isin(codes[names.index(rule.second)], rule.second_levels)
            broken[number] += int(np.count_nonzero(breaks))
        progress.advance(batch.height)
    return broken


def texts_and_places(column: pl.Series) -> tuple[list[str | None], NDArray[np.int64]]:
    """The texts that `coder` would see, None for a null, and which of them each row has. A text may occur twice."""
    if column.dtype == pl.Null:
        return [None], np.zeros(len(column), dtype=np.int64)
    if opaque(column.dtype):
        return [OPAQUE, None], column.is_null().to_numpy().astype(np.int64)
    values, places = distinct(column)
    return [*map(_text, values), None], places


def _text(value: object) -> str | None:
    text = readable_text(value)
    return OPAQUE if text is None and not is_nothing(value) else text


def tally_texts(texts: Sequence[str | None], places: NDArray[np.int64]) -> Counter[str | None]:
    """How many rows have each text."""
    tally = Counter[str | None]()
    for text, times in zip(texts, np.bincount(places, minlength=len(texts)).tolist(), strict=True):
        tally[text] += times
    return +tally


def likely_cause(attribute: Attribute, reading: Reading, outside: Counter[str | None]) -> str:
    """What seems to be wrong with values outside a domain, and the key of the schema that would mend it.

    Values are quoted: nothing on the release path calls this.
    """
    outside = Counter(dict(outside.most_common(_EXAMINED)))
    texts = [text for text in outside if text is not None]

    def most(holds: Callable[[str], object]) -> bool:
        return 2 * sum(outside[text] for text in texts if holds(text)) > outside.total()

    if 2 * (outside[None] + outside[""]) > outside.total():
        return 'Most of them are null, and the attribute has no level for that: add missing = "".'
    if most(lambda text: "\ufffd" in text):
        return f"They hold bytes that are not {reading.encoding} text: set encoding in [table]."
    formats = [form for form in _FORMATS.get(attribute.kind, ()) if most(lambda text, form=form: _fits(form, text))]  # type: ignore[misc]
    if formats:
        written = " or ".join(json.dumps(form) for form in formats[:_QUOTED])
        return f"They are dates or times in another writing: add format = {written}."
    if attribute.kind in ("integer", "real"):
        cause = _cause_of_numbers(attribute, reading, texts, most)
        if cause:
            return cause
    if attribute.categorical:
        listed = {_loose(str(value)): str(value) for value in attribute.values}
        if most(lambda text: _loose(text) in listed):
            text = next(text for text in texts if _loose(text) in listed)
            alike = listed[_loose(text)]
            return f"They differ from listed values in capitals, spaces or leading zeros: {text!r} for {alike!r}."
    frequent = [text for text, _ in outside.most_common(_QUOTED) if text is not None]
    if most(lambda text: text in frequent):
        quoted = ", ".join(map(repr, frequent))
        if attribute.boolean:
            return f"They are {quoted}: add texts = [the one for false, the one for true]."
        if attribute.categorical:
            return f"Most of them are {quoted}: list them as values, or as special where they mean something else."
        return f"Most of them are {quoted}: list them as special, or as nulls in [table] where they mean no value."
    return "The column does not seem to be what the schema describes: compare its name, its type and its domain."


def _cause_of_numbers(
    attribute: Attribute, reading: Reading, texts: Sequence[str], most: Callable[[Callable[[str], object]], bool]
) -> str | None:
    numbers = {text: parse_number(text.strip()) or 0 for text in texts}
    low, high = attribute.edges[0], attribute.edges[-1]
    advice = "check the unit, or state wider edges."
    if most(lambda text: numbers[text] < low):
        return f"Most of them are numbers below the first edge, {attribute.edge_text(low)}: {advice}"
    if most(lambda text: numbers[text] >= high):
        return f"Most of them are numbers above the last edge, {attribute.edge_text(high)}: {advice}"
    if reading.decimal == ",":
        # A decimal point was rewritten as a comma, so that the text is no number.
        pointed = most(lambda text: Reading(decimal=",").plain(text) != text)
        return 'They are numbers with a decimal point: remove decimal = "," from [table].' if pointed else None
    for other in _WRITINGS:
        if most(lambda text, other=other: re.fullmatch(other.number, text)):  # type: ignore[misc]
            keys = [f"{key} = {json.dumps(value)}" for key, value in describe_reading(other).items()]
            return f"They are numbers in another writing: set {' and '.join(keys)} in [table]."
    return None


def _fits(form: str, text: str) -> bool:
    with suppress(ValueError):
        dt.datetime.strptime(text.strip(), form)
        return True
    return False


def _loose(text: str) -> str:
    return text.strip().casefold().lstrip("0") or "0"
