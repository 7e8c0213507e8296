"""Numbers, dates and times as points on an axis: how they are read, checked, spaced and written.

A date is counted in days since 1970-01-01, a datetime in microseconds since 1970-01-01 UTC, a time of day in
microseconds since midnight, a duration in microseconds, a month in months since the year 0. `kind` is the type of an
attribute: integer, real, year, date, datetime, time, duration or yearmonth.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
from fractions import Fraction
from typing import cast

from sklar.errors import SchemaError
from sklar.public.clock import (
    clock_text,
    microseconds_of,
    month_text,
    parse_clock,
    parse_month,
    parse_span,
    read_moment,
    span_text,
)

# Kinds whose edges are numbers; those of the others are texts.
NUMBERS = ("integer", "real", "year")
# Kinds whose axis has whole steps that people name: x <= 39 is x < 40.
STEPPED = ("integer", "year", "date", "yearmonth")
# Kinds whose axis is in microseconds; what a schema counts in them is seconds.
TIMED = ("datetime", "time", "duration")

_EXAMPLES = {"time": "'13:30:00'", "duration": "'1:30:00'", "yearmonth": "'1990-01'"}
_ISO = re.compile(r"\d{4}-\d\d|\d\d:\d\d:\d\d", re.ASCII)
_FIRST_DAY = dt.date(1970, 1, 1)
_FIRST_MOMENT = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


def days(value: dt.date) -> int:
    """Days since 1970-01-01."""
    return (value - _FIRST_DAY).days


def microseconds(value: dt.datetime) -> int:
    """Microseconds since 1970-01-01 UTC; a time without a zone is taken as UTC."""
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return (value - _FIRST_MOMENT) // _MICROSECOND


def edge_text(kind: str, edge: float) -> str:
    """An edge as a person writes it: a number or an ISO date.

    >>> edge_text("date", 31), edge_text("datetime", 60_000_000), edge_text("integer", 18)
    ('1970-02-01', '1970-01-01T00:01:00', '18')
    """
    if kind == "date":
        return (_FIRST_DAY + dt.timedelta(days=int(edge))).isoformat()
    if kind == "datetime":
        return (_FIRST_MOMENT + int(edge) * _MICROSECOND).isoformat()
    shown = {"time": clock_text, "duration": span_text, "yearmonth": month_text}.get(kind)
    return str(edge) if shown is None else shown(int(edge))


def parse_edge(text: str, kind: str, written: str | None = None) -> int | float | None:
    """The point on the axis that a text stands for, or None when it stands for none. Infinity and nan are points.

    `written` is the format of dates and times, in the letters of strptime. What it does not read, and all texts without
    one, are read as ISO has them.

    >>> parse_edge(" 2.5 ", "real"), parse_edge("1970-01-03", "date"), parse_edge("soon", "date")
    (2.5, 2, None)
    >>> parse_edge("3.1.1970", "date", "%d.%m.%Y"), parse_edge("12/1970", "yearmonth", "%m/%Y") - 1970 * 12
    (2, 11)
    """
    text = text.strip()
    if kind in NUMBERS:
        lowered = text.lower()
        if lowered in ("nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"):
            return float(lowered)
        number = parse_number(text)
        if number is not None or kind != "year":
            return number
    if kind == "duration":
        return parse_span(text)
    if written is not None:
        moment = read_moment(text, written)
        if moment is not None:
            return _counted(moment, kind)
        # What other files of a release hold is ISO. Day before month would make it another date.
        if written.startswith("%Y-%d") or not _ISO.match(text):
            return None
    plainly = {"time": parse_clock, "yearmonth": parse_month}.get(kind)
    counted = None if plainly is None else plainly(text)
    if counted is not None or kind == "time":
        return counted
    moment = _moment(text)
    return None if moment is None else _counted(moment, kind)


def _moment(text: str) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return None


def _counted(moment: dt.datetime, kind: str) -> int | None:
    """Where a moment stands on the axis of this kind."""
    if kind == "year":
        return moment.year
    if kind == "yearmonth":
        return moment.year * 12 + moment.month - 1
    if kind == "time":
        return microseconds_of(moment - moment.replace(hour=0, minute=0, second=0, microsecond=0))
    try:
        return days(moment.date()) if kind == "date" else microseconds(moment)
    except OverflowError:
        return None


def parse_number(text: str) -> int | float | None:
    """The finite number that a text stands for, or None when it stands for none."""
    # Python reads 1_000 as a number; no data file means that.
    if "_" in text or len(text) > 400:
        return None
    for parse in (int, float):
        try:
            number: int | float = parse(text)
        except ValueError:
            continue
        return number if parse is int or math.isfinite(number) else None
    return None


def check_edge(where: str, kind: str, edge: object, *, what: str = "edges") -> int | float:
    """The number on the axis that an edge in a schema states; an error that names `where` when it states none."""
    if kind in NUMBERS:
        return _check_number(where, kind, edge, what)
    if kind not in ("date", "datetime"):
        # TOML has times of day.
        text = edge.isoformat() if isinstance(edge, dt.time) else edge
        counted = parse_edge(text, kind) if isinstance(text, str) else None
        if counted is None or abs(counted) >= 2**63:
            raise SchemaError(f"{where}: {what} of a {kind} must be texts such as {_EXAMPLES[kind]}, got {edge!r}.")
        return counted
    try:
        moment = dt.datetime.fromisoformat(edge) if isinstance(edge, str) else edge
        if kind == "datetime":
            if isinstance(moment, dt.date) and not isinstance(moment, dt.datetime):
                moment = dt.datetime(moment.year, moment.month, moment.day)
            return microseconds(cast(dt.datetime, moment))
        if isinstance(moment, dt.datetime):
            if moment.time() != dt.time(0):
                raise ValueError
            moment = moment.date()
        return days(cast(dt.date, moment))
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise SchemaError(
            f"{where}: {what} of a {kind} must be ISO texts such as '1990-01-31', got {edge!r}."
        ) from None


def edge_value(kind: str, edge: float) -> str | int | float:
    """An edge as a schema file holds it: a number, or the text of a date or time."""
    return edge if kind in NUMBERS else edge_text(kind, edge)


def _check_number(where: str, kind: str, edge: object, what: str) -> int | float:
    # Python's whole numbers have no end; floats do.
    finite = isinstance(edge, int | float) and not isinstance(edge, bool) and abs(edge) <= sys.float_info.max
    if not finite:
        raise SchemaError(f"{where}: {what} must be finite numbers, got {edge!r}.")
    number = cast(float, edge)
    if kind == "real":
        return float(number)
    if number != int(number) or abs(number) >= 2**63:
        of = "a year" if kind == "year" else "an integer"
        raise SchemaError(f"{where}: {what} of {of} must be whole and below 2**63, got {number!r}. Use real.")
    return int(number)


def equal_steps(kind: str, first: float, last: float, bins: int) -> tuple[int, ...] | tuple[float, ...]:
    """The edges of bins of equal width between two points, rounded to whole steps unless the kind is real.

    >>> equal_steps("integer", 0, 10, 4), equal_steps("real", 0.1, 0.7, 3)
    ((0, 2, 5, 8, 10), (0.1, 0.3, 0.5, 0.7))
    """
    # Exact: floats would miss `last`, overflow, or put microseconds beside full seconds.
    width = (Fraction(last) - Fraction(first)) / bins
    steps = [Fraction(first) + width * step for step in range(bins + 1)]
    return tuple(map(float, steps)) if kind == "real" else tuple(map(round, steps))
