"""Numbers and dates as points on an axis: how they are read, checked, spaced and written.

A date is counted in days since 1970-01-01, a datetime in microseconds since 1970-01-01 UTC. `kind` is the type of an
attribute: integer, real, date or datetime.
"""

from __future__ import annotations

import datetime as dt
import math
import sys
from fractions import Fraction
from typing import cast

from sklar.errors import SchemaError

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
    return str(edge)


def parse_edge(text: str, kind: str) -> int | float | None:
    """The point on the axis that a text stands for, or None when it stands for none. Infinity and nan are points.

    >>> parse_edge(" 2.5 ", "real"), parse_edge("1970-01-03", "date"), parse_edge("soon", "date")
    (2.5, 2, None)
    """
    text = text.strip()
    if kind in ("integer", "real"):
        lowered = text.lower()
        if lowered in ("nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"):
            return float(lowered)
        return parse_number(text)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
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
    if kind in ("integer", "real"):
        return _check_number(where, kind, edge, what)
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


def _check_number(where: str, kind: str, edge: object, what: str) -> int | float:
    # Python's whole numbers have no end; floats do.
    finite = isinstance(edge, int | float) and not isinstance(edge, bool) and abs(edge) <= sys.float_info.max
    if not finite:
        raise SchemaError(f"{where}: {what} must be finite numbers, got {edge!r}.")
    number = cast(float, edge)
    if kind == "real":
        return float(number)
    if number != int(number) or abs(number) >= 2**63:
        raise SchemaError(f"{where}: {what} of an integer must be whole and below 2**63, got {number!r}. Use real.")
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
