"""Why most values of an attribute may lie outside its domain, in words: private, for the custodian's eyes.

What is named is a key of the schema that would mend it. Values are quoted: nothing on the release path calls this.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from sklar.public.axis import parse_number
from sklar.public.reading import Reading, describe_reading
from sklar.public.schema import Attribute

_DAYS = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d"),
    *("%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y"),
)
_TIMES = ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p", "%H:%M:%S.%f")
_MONTHS = ("%Y-%m", "%m/%Y", "%m.%Y", "%b %Y", "%Y%m")
_FEW = 3
# Different values that are looked at, the most frequent ones.
_LOOKED_AT = 200

_WRITINGS = (
    Reading(thousands=","),
    Reading(decimal=","),
    Reading(decimal=",", thousands="."),
    Reading(thousands=" "),
    Reading(decimal=",", thousands=" "),
    Reading(thousands="'"),
)

Outside = Counter[str | None]


def likely_cause(attribute: Attribute, reading: Reading, outside: Outside) -> str:
    """What seems to be the matter with values outside a domain, and the key of the schema that would mend it."""
    outside = Counter(dict(outside.most_common(_LOOKED_AT)))
    for explain in (_nulls, _bytes, _dates, _numbers, _spelling, _special):
        cause = explain(attribute, reading, outside)
        if cause:
            return cause
    return "The column does not seem to be what the schema describes: compare its name, its type and its domain."


def _most(outside: Outside, holds: Callable[[str], bool]) -> bool:
    """Whether more than half of the values are texts of which this holds."""
    fitting = sum(times for text, times in outside.items() if text is not None and holds(text))
    return 2 * fitting > outside.total()


def _nulls(_attribute: Attribute, _reading: Reading, outside: Outside) -> str | None:
    if 2 * (outside[None] + outside[""]) > outside.total():
        return 'Most of them are null, and the attribute has no level for that: add missing = "".'
    return None


def _bytes(_attribute: Attribute, reading: Reading, outside: Outside) -> str | None:
    if _most(outside, lambda text: "\ufffd" in text):
        return f"They hold bytes that are not {reading.encoding} text: set encoding in [table]."
    return None


def _dates(attribute: Attribute, _reading: Reading, outside: Outside) -> str | None:
    if attribute.kind in ("categorical", "boolean", "integer", "real"):
        return None
    moments = tuple(f"{day} {time}" for day in ("%Y-%m-%d", *_DAYS) for time in _TIMES)
    shapes = {"date": _DAYS, "datetime": (*_DAYS, *moments)}.get(attribute.kind, (*_TIMES, *_MONTHS))
    formats = [json.dumps(shape) for shape in shapes if _most(outside, partial(_fits, shape))]
    if not formats:
        return None
    return f"They are dates or times in another writing: add format = {' or '.join(formats[:_FEW])}."


def _fits(shape: str, text: str) -> bool:
    with suppress(ValueError):
        dt.datetime.strptime(text.strip(), shape)
        return True
    return False


def _numbers(attribute: Attribute, reading: Reading, outside: Outside) -> str | None:
    if attribute.kind not in ("integer", "real"):
        return None
    number = {text: parse_number(text.strip()) for text in outside if text is not None}
    ends = attribute.edge_text(attribute.edges[0]), attribute.edge_text(attribute.edges[-1])
    if _most(outside, lambda text: (number[text] or 0) < attribute.edges[0]):
        return f"Most of them are numbers below the first edge, {ends[0]}: check the unit, or state wider edges."
    if _most(outside, lambda text: (number[text] or 0) >= attribute.edges[-1]):
        return f"Most of them are numbers above the last edge, {ends[1]}: check the unit, or state wider edges."
    if reading.decimal == ",":
        # What has a decimal point was written with a comma, so that it is no number.
        if _most(outside, lambda text: Reading(decimal=",").plain(text) != text):
            return 'They are numbers with a decimal point: remove decimal = "," from [table].'
        return None
    for other in _WRITINGS:
        if _most(outside, lambda text, other=other: re.fullmatch(other.number, text) is not None):  # type: ignore[misc]
            keys = [f"{key} = {json.dumps(value)}" for key, value in describe_reading(other).items()]
            return f"They are numbers in another writing: set {' and '.join(keys)} in [table]."
    return None


def _spelling(attribute: Attribute, _reading: Reading, outside: Outside) -> str | None:
    if attribute.kind != "categorical":
        return None
    listed = {_loose(str(value)): str(value) for value in attribute.values}
    if _most(outside, lambda text: _loose(text) in listed):
        text = next(text for text in outside if text is not None and _loose(text) in listed)
        alike = listed[_loose(text)]
        return f"They differ from listed values in capitals, spaces or leading zeros: {text!r} for {alike!r}."
    return None


def _loose(text: str) -> str:
    return text.strip().casefold().lstrip("0") or "0"


def _special(attribute: Attribute, _reading: Reading, outside: Outside) -> str | None:
    frequent = [(text, times) for text, times in outside.most_common(_FEW) if text is not None]
    if 2 * sum(times for _, times in frequent) <= outside.total():
        return None
    shown = ", ".join(repr(text) for text, _ in frequent)
    if attribute.kind == "boolean":
        return f"They are {shown}: add texts = [the one for false, the one for true]."
    if attribute.kind == "categorical":
        return f"Most of them are {shown}: list them as values, or as special where they mean something else."
    return f"Most of them are {shown}: list them as special, or as nulls in [table] where they mean no value."
