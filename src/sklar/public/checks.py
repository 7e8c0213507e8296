"""What stands beside the bins and the categories of an attribute: points and special values, read and checked.

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
from sklar.public.axis import check_edge, edge_text, parse_edge, parse_number
from sklar.public.schema import BINNED, FALSE_TEXTS, TRUE_TEXTS, Attribute, repeated
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
        if kind in ("integer", "real") and abs(point) >= _EXACT:
            raise SchemaError(f"{where}: points must be smaller than 2**53 in size, got {point}. Leave it in its bin.")
    return tuple(points)


def special_of(where: str, kind: str, entry: Mapping[str, Any], values: Sequence[object]) -> tuple[Any, ...]:
    """The special values of an entry: numbers where the column holds numbers, else texts."""
    if "special" not in entry:
        return ()
    raw = entry["special"]
    if not isinstance(raw, list) or not raw:
        raise SchemaError(f"{where}: special must list texts or numbers, got {raw!r}. Write special = ['N', -9].")
    special = tuple(_special(where, kind, value, whole=bool(values) and isinstance(values[0], int)) for value in raw)
    twice = repeated(str(value) for value in special)
    if twice is not None:
        raise SchemaError(f"{where}: special values must differ, got '{twice}' twice. Remove one.")
    listed = {str(value) for value in values}
    for value in special:
        if str(value) in listed:
            raise SchemaError(f"{where}: '{value}' is listed under values and under special. Remove one.")
    return special


def _special(where: str, kind: str, given: object, *, whole: bool) -> str | int | float:
    """One special value: a number if the attribute's values are numbers and it is one, else its text."""
    value = given.isoformat() if isinstance(given, dt.date) else given
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise SchemaError(f"{where}: special must list texts or numbers, got {given!r}. Write special = ['N', -9].")
    if isinstance(value, float) and value == value // 1 and math.isfinite(value):
        value = int(value)
    text = str(value)
    if not text.strip():
        raise SchemaError(f"{where}: special must not list an empty text, which is missing. Use missing = ''.")
    if kind == "boolean" and text.strip().lower() in TRUE_TEXTS | FALSE_TEXTS:
        raise SchemaError(f"{where}: special must not list a text for true or false, got '{text}'. Use other texts.")
    if kind not in BINNED:
        number = parse_number(text) if whole else None
        return text if number is None or number != number // 1 else int(number)
    number = parse_edge(text, kind)
    if number is None:
        return text
    if kind not in ("integer", "real"):
        return edge_text(kind, number)
    if not abs(number) < _EXACT or (kind == "integer" and number != number // 1):
        needed = "whole numbers" if kind == "integer" else "finite numbers"
        raise SchemaError(f"{where}: special numbers must be {needed} smaller than 2**53 in size, got {given!r}.")
    return int(number) if number == number // 1 else number


def check_apart(where: str, attribute: Attribute) -> None:
    """Refuse special values that are something else too, and points or special numbers that leave a bin empty."""
    missing = parse_edge(attribute.missing or "", attribute.kind) if attribute.kind in BINNED else None
    for value, number in zip(attribute.special, attribute.special_numbers, strict=True):
        if str(value) == attribute.missing or (number is not None and number == missing):
            raise SchemaError(f"{where}: '{value}' is listed under special and is the missing text too. Remove one.")
        if number is not None and number in attribute.points:
            raise SchemaError(f"{where}: {value} is listed under points and under special. Remove one.")
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
