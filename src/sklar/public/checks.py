"""What stands beside the bins and the categories of an attribute, read and checked: points, special values, steps,
texts and formats.

An error names the attribute, what is required, what was given, and how to mend it.
"""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from sklar.errors import SchemaError
from sklar.public.axis import NUMBERS, TIMED, check_edge, edge_text, parse_edge, parse_number
from sklar.public.clock import DAY, format_grain, read_moment
from sklar.public.schema import BINNED, Attribute, repeated
from sklar.public.types import exact, grain, least_float32, multiples, output_of

# Whole numbers below this are held exactly by the floats of a column, so a value is equal to one of them or it is not.
_EXACT = 2**53


def points_of(where: str, kind: str, entry: Mapping[str, Any], edges: Sequence[float]) -> tuple[Any, ...]:
    """The points of an entry, ascending; an error where one is not a number within the edges."""
    if "points" not in entry:
        return ()
    raw = entry["points"]
    if not isinstance(raw, list) or not raw:
        raise SchemaError(f"{where}: points must list numbers within the edges, got {raw!r}. Write points = [0, 40].")
    points = sorted(check_edge(where, kind, point, what="points") for point in raw)
    twice = repeated(edge_text(kind, point) for point in points)
    if twice is not None:
        raise SchemaError(f"{where}: points must differ, got {twice} twice. Remove one.")
    for point in points:
        inside = edges[0] <= point < edges[-1] or (kind == "real" and point == edges[-1])
        if not inside:
            raise SchemaError(
                f"{where}: points must lie within the edges, got {edge_text(kind, point)}. Move the edges past it, or "
                "list it under special."
            )
        if kind in NUMBERS and abs(point) >= _EXACT:
            raise SchemaError(f"{where}: points must be smaller than 2**53 in size, got {point}. Leave it in its bin.")
    return tuple(points)


def special_of(where: str, kind: str, entry: Mapping[str, Any], values: Sequence[object]) -> tuple[Any, ...]:
    """The special values of an entry: numbers where the column holds numbers, else texts."""
    if "special" not in entry:
        return ()
    raw = entry["special"]
    if not isinstance(raw, list) or not raw:
        raise SchemaError(f"{where}: special must list texts or numbers, got {raw!r}. Write special = ['N', -9].")
    whole, written = bool(values) and isinstance(values[0], int), "format" in entry
    special = tuple(_special(where, kind, value, whole=whole, written=written) for value in raw)
    twice = repeated(str(value) for value in special)
    if twice is not None:
        raise SchemaError(f"{where}: special values must differ, got '{twice}' twice. Remove one.")
    listed = {str(value) for value in values}
    for value in special:
        if str(value) in listed:
            raise SchemaError(f"{where}: '{value}' is listed under values and under special. Remove one.")
    return special


def _special(where: str, kind: str, given: object, *, whole: bool, written: bool) -> str | int | float:
    """One special value: a number if the attribute's values are numbers and it is one, else its text."""
    value = given.isoformat() if isinstance(given, dt.date | dt.time) else given
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise SchemaError(f"{where}: special must list texts or numbers, got {given!r}. Write special = ['N', -9].")
    if isinstance(value, float) and value == value // 1 and math.isfinite(value):
        value = int(value)
    text = str(value)
    if not text.strip():
        raise SchemaError(f"{where}: special must not list an empty text, which is missing. Use missing = ''.")
    if kind not in BINNED:
        number = parse_number(text) if whole else None
        return text if number is None or number != number // 1 else int(number)
    number = parse_edge(text, kind)
    if number is None:
        return text
    if kind == "time" and number == DAY:
        raise SchemaError(f"{where}: special must not list the end of the day, got '{text}'. Use another text.")
    if kind not in NUMBERS:
        return text if written else edge_text(kind, number)
    if not abs(number) < _EXACT or (kind != "real" and number != number // 1):
        needed = "finite numbers" if kind == "real" else "whole numbers"
        raise SchemaError(f"{where}: special numbers must be {needed} smaller than 2**53 in size, got {given!r}.")
    return int(number) if number == number // 1 else number


def step_of(where: str, kind: str, entry: Mapping[str, Any]) -> int | float | None:
    """The grain of an entry's numbers: a positive number, whole where the axis has whole steps."""
    step = entry.get("step")
    if step is None:
        return None
    number = isinstance(step, int | float) and not isinstance(step, bool) and 0 < step < _EXACT
    if not number:
        raise SchemaError(f"{where}: step must be a positive number, got {step!r}. Write step = 100, or step = 0.01.")
    if step == step // 1:
        return int(step)
    if kind in ("real", "duration", "time", "datetime"):
        return float(step)
    raise SchemaError(f"{where}: step of a {kind} must be whole, got {step!r}. Use 1 or more.")


def texts_of(where: str, entry: Mapping[str, Any]) -> tuple[str, str] | tuple[()]:
    """The texts of false and true, in this order."""
    texts = entry.get("texts")
    if texts is None:
        return ()
    if not isinstance(texts, list) or len(texts) != 2 or any(not isinstance(text, str) for text in texts):
        raise SchemaError(f"{where}: texts must be those of false and true, got {texts!r}. Write texts = ['N', 'Y'].")
    false, true = texts
    if false == true or any(not text or text != text.strip() for text in texts):
        raise SchemaError(f"{where}: texts must differ, without blanks around them, got {texts!r}. Correct one.")
    if false.lower() == "true" or true.lower() == "false":
        raise SchemaError(f"{where}: texts must be those of false and then true, got {texts!r}. Turn them around.")
    return false, true


_TOLD = {
    "date": ("a day, a month and a year, and no time", "%d.%m.%Y"),
    "datetime": ("a day, a month, a year and one of 24 hours", "%d.%m.%Y %H:%M"),
    "time": ("one of 24 hours", "%H:%M"),
    "yearmonth": ("a month and a year", "%m/%Y"),
}


def format_of(where: str, kind: str, entry: Mapping[str, Any]) -> str | None:
    """The format of dates or times, if what it writes is read back: it must tell all that the kind has."""
    written = entry.get("format")
    if written is None:
        return None
    sample = dt.datetime(2003, 11, 28, 16, 5, 6)
    read = read_moment(sample.strftime(written), written) if isinstance(written, str) and written else None
    if read is not None:
        year, month, day, hour = (
            getattr(read, part) == getattr(sample, part) for part in ("year", "month", "day", "hour")
        )
        fits = {
            "date": year and month and day and not hour,
            "datetime": year and month and day and hour,
            "time": hour,
            "yearmonth": year and month and not hour,
        }
        if fits[kind]:
            return str(written)
    needed, example = _TOLD[kind]
    raise SchemaError(
        f"{where}: format must tell {needed}, in the letters of strptime, got {written!r}. Write format = '{example}'."
    )


def check_step(where: str, attribute: Attribute) -> None:
    """Refuse edges and points that are no multiples of the step, or that the format cannot write."""
    unit = grain(attribute)
    if unit is None or (attribute.step is None and attribute.format is None):
        return
    for number in (*attribute.edges, *attribute.points):
        if (exact(number) / unit).denominator != 1:
            shown = attribute.edge_text(number)
            what = f"the step of {attribute.step}" if attribute.step is not None else f"what '{attribute.format}' tells"
            raise SchemaError(f"{where}: edges and points must be multiples of {what}, got {shown}. Move it.")
    if attribute.format is not None and unit % (format_grain(attribute.format) if attribute.kind in TIMED else 1):
        raise SchemaError(f"{where}: the step must be one that '{attribute.format}' can tell. Use a larger one.")
    if attribute.kind == "real" and max(map(abs, attribute.edges)) / unit * unit.numerator >= _EXACT:
        raise SchemaError(f"{where}: step must not be that fine, got {attribute.step}. Leave it out.")


def check_apart(where: str, attribute: Attribute) -> None:
    """Refuse special values that are something else too, and points or special numbers that leave a bin empty."""
    missing = attribute.number_of(attribute.missing or "")
    numbers = [number for number in attribute.special_numbers if number is not None]
    twice = repeated(edge_text(attribute.kind, number) for number in numbers)
    if twice is not None:
        raise SchemaError(f"{where}: special values must differ, got {twice} twice. Remove one.")
    for value, number in zip(attribute.special, attribute.special_numbers, strict=True):
        if str(value) == attribute.missing or (number is not None and number == missing):
            raise SchemaError(f"{where}: '{value}' is listed under special and is the missing text too. Remove one.")
        if number is not None and number in attribute.points:
            raise SchemaError(f"{where}: {value} is listed under points and under special. Remove one.")
        if attribute.kind == "boolean" and attribute.truth_of(str(value)) is not None:
            raise SchemaError(
                f"{where}: special must not list a text for true or false, got '{value}'. Use other texts."
            )
    if attribute.apart and attribute.domain != "private":
        _check_bins(where, attribute)


def _check_bins(where: str, attribute: Attribute) -> None:
    apart, unit = attribute.apart, grain(attribute)
    for low, high in pairwise(attribute.edges):
        here = apart[bisect_left(apart, low) : bisect_left(apart, high)]
        if not here:
            continue
        if unit is None:
            empty = _first_free(attribute, float(low), set(here)) >= high
        else:
            first, last = multiples((low, high), unit)
            empty = last - first <= sum((exact(point) / unit).denominator == 1 for point in here)
        if empty:
            shown = f"[{attribute.edge_text(low)}, {attribute.edge_text(high)})"
            raise SchemaError(
                f"{where}: the bin {shown} holds nothing but points and special values, so it would stay empty. "
                "Remove an edge, or leave them in their bin."
            )


def _first_free(attribute: Attribute, low: float, taken: set[int | float]) -> float:
    """The least number from `low` on that is not taken and that a column of the attribute's type holds."""
    if output_of(attribute).name != "float32":
        while low in taken:
            low = math.nextafter(low, math.inf)
        return low
    import numpy as np

    single = np.float32(least_float32(low))
    while float(single) in taken:
        single = np.nextafter(single, np.float32(np.inf))
    return float(single)
