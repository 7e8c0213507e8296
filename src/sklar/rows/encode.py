"""Batches of rows to integer codes, by the schema alone.

Every value gets a code of its attribute or -1, "in no cell"; which one depends on that value and the schema only, and
no value raises. Special values are looked for first, then points, then bins. Nulls, empty texts and the missing text go
to `missing`; unlisted categories to `other`, else `missing`; numbers outside the edges to the end bins, or to `missing`
when the schema says so; what has no such home gets -1. A number or date equal to the missing text, or to a special
value, is that, whatever the column's type. Times with a zone are taken in UTC.
"""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.kernel.queries import NO_CELL
from sklar.public.axis import days, parse_number, plain_pattern
from sklar.public.schema import Attribute, Schema
from sklar.rows.values import (
    READABLE,
    clocked,
    distinct_numbered,
    filled,
    is_nothing,
    microseconds,
    opaque,
    readable_text,
    text_of,
)

_LARGEST = 2**63 - 1
_DAY = 86_400_000_000
_DATED = ("date", "datetime", "year", "yearmonth")
# What Python and polars read alike: numbers that 64 bits hold exactly, years that Python has, seconds that exist.
_PLAINLY = {
    "integer": r"^-?[0-9]{1,15}$",
    "real": r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$",
    "date": r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}$",
    "datetime": r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[ T][0-2][0-9]:[0-5][0-9]:[0-5][0-9]$",
    "time": r"^([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])$",
    "duration": r"^([0-9]{1,5}):([0-5][0-9]):([0-5][0-9])$",
    "year": r"^[0-9]{1,4}$",
    "yearmonth": r"^([1-9][0-9]{3})-(0[1-9]|1[0-2])$",
}
# Fewer values are encoded one by one before polars has begun.
_FEW = 64


def encode(batch: pl.DataFrame, schema: Schema) -> NDArray[np.int32]:
    """Codes of a batch whose columns are the schema's attributes in order, shape (m, rows).

    Invariant: -1 <= codes[i] < n_levels of attribute i.
    """
    schema.require_found()
    codes = np.empty((schema.n_attributes, batch.height), dtype=np.int32)
    for index, (column, attribute) in enumerate(zip(batch.iter_columns(), schema.attributes, strict=True)):
        codes[index] = encode_column(column, attribute)
    return codes


def encode_column(column: pl.Series, attribute: Attribute) -> NDArray[np.int32]:
    """Codes of one column, shape (rows,)."""
    kind = column.dtype
    if kind == pl.Null:
        return np.full(len(column), null_code(attribute), dtype=np.int32)
    if opaque(kind):
        return _with_nulls(column, np.full(len(column), unknown_code(attribute), dtype=np.int32), attribute)
    if kind == pl.Boolean and attribute.boolean:
        return _with_nulls(column, filled(column.cast(pl.Int32)).copy(), attribute)
    numbers = typed_numbers(column, attribute)
    if numbers is not None:
        return _with_nulls(column, _bins(numbers, attribute), attribute)
    values, numbers, places = distinct_numbered(column)
    lookup = np.full(int(numbers.max(initial=-1)) + 2, null_code(attribute), dtype=np.int32)
    lookup[numbers] = _codes_of(values, attribute)
    # A null's number is past all others; clipping is faster than checking.
    return lookup.take(places, mode="clip")


def null_code(attribute: Attribute) -> int:
    """The code of a null or an empty text."""
    return next((code for code in (attribute.missing_code, attribute.other_code) if code is not None), NO_CELL)


def unknown_code(attribute: Attribute) -> int:
    """The code of a value that the domain does not hold and that cannot be clipped into it."""
    return next((code for code in (attribute.other_code, attribute.missing_code) if code is not None), NO_CELL)


def coder(attribute: Attribute) -> Callable[[object], int]:
    """A function from one value (text, number, date, None) to its code. It never raises."""
    nothing, unknown = null_code(attribute), unknown_code(attribute)
    known: dict[str, int] = {}
    if attribute.categorical:
        known = {str(value): code for code, value in enumerate(attribute.values)}
    for value, code in zip(attribute.special, attribute.special_codes, strict=True):
        known.setdefault(str(value), code)
    if attribute.missing is not None:
        known.setdefault(attribute.missing, nothing)
    known.setdefault("", nothing)
    named = _numbers_by_name(attribute)
    whole = attribute.categorical and isinstance(next(iter(attribute.values), None), int)

    def categorical(value: object) -> int:
        text = text_of(value)
        code = known.get(text)
        if code is None and whole:
            number = parse_number(text)
            code = known.get(str(int(number))) if number is not None and number == number // 1 else None
        return unknown if code is None else code

    def boolean(value: object) -> int:
        text = text_of(value)
        truth = attribute.truth_of(text)
        if truth is not None:
            return truth
        return known.get(text, known.get(text.strip(), unknown if text.strip() else nothing))

    def binned(value: object) -> int:
        text = text_of(value)
        if text in known or not text.strip():
            return known.get(text, nothing)
        # What is a date already needs no format.
        edge = attribute.axis.parse(text, None if isinstance(value, dt.date | dt.time) else attribute.format)
        if edge is None:
            return known.get(text.strip(), unknown)
        if edge != edge:
            return nothing
        code = named.get(edge)
        return _bin(edge, attribute) if code is None else code

    choose = {"categorical": categorical, "boolean": boolean}.get(attribute.kind, binned)

    def code_of(value: object) -> int:
        if is_nothing(value):
            return nothing
        if not isinstance(value, READABLE):
            return unknown
        try:
            return choose(value)
        except (ArithmeticError, ValueError):
            # A signaling NaN, say: an object may refuse what its type can do.
            return unknown

    return code_of


def missing_number(attribute: Attribute) -> int | float | None:
    """The missing text as a number on the attribute's axis (-1, 999, 9999-12-31), None when it is none."""
    return attribute.number_of(attribute.missing or "")


def _numbers_by_name(attribute: Attribute) -> dict[int | float, int]:
    """The numbers on an axis that are no matter of bins, with their codes: points, special numbers, the missing one."""
    named = dict(zip(attribute.points, attribute.point_codes.tolist(), strict=True))
    for number, code in zip(attribute.special_numbers, attribute.special_codes, strict=True):
        if number is not None:
            named[number] = code
    sentinel = missing_number(attribute)
    return named if sentinel is None else named | {sentinel: null_code(attribute)}


def _codes_of(values: pl.Series | list[object], attribute: Attribute) -> NDArray[np.int32]:
    """The codes of values one by one, as `coder` gives them: all that are written plainly at once."""
    code_of = coder(attribute)
    if isinstance(values, list) or not attribute.binned or len(values) < _FEW:
        listed = values if isinstance(values, list) else values.to_list()
        return np.array([code_of(value) for value in listed], dtype=np.int32)
    numbers = plainly_written(values, attribute.kind, attribute.format)
    codes = _bins(filled(numbers), attribute)
    for row in np.flatnonzero(numbers.is_null().to_numpy()).tolist():
        codes[row] = code_of(values[row])
    return codes


def _bin(edge: int | float, attribute: Attribute) -> int:
    if attribute.outside == "missing" and not attribute.within(edge):
        return null_code(attribute)
    return int(attribute.bin_codes[attribute.bin_of(edge)])


def typed_numbers(column: pl.Series, attribute: Attribute) -> NDArray[np.int64] | NDArray[np.float64] | None:
    """The column as numbers on the attribute's axis when its type allows that directly, else None; 0 for nulls."""
    kind = column.dtype
    if attribute.axis.numeric and kind.is_numeric():
        if kind.is_decimal() or kind.is_float() or attribute.axis.continuous:
            return filled(column.cast(pl.Float64)).astype(np.float64, copy=False)
        if kind in (pl.UInt64, pl.Int128, pl.UInt128):
            column = column.clip(0 if kind.is_unsigned_integer() else -_LARGEST - 1, _LARGEST)
        return filled(column.cast(pl.Int64)).astype(np.int64, copy=False)
    if attribute.kind in ("time", "duration"):
        return clocked(column) if isinstance(kind, pl.Time | pl.Duration) else None
    if attribute.kind not in _DATED or not isinstance(kind, pl.Date | pl.Datetime):
        return None
    values = filled(column.to_physical()).astype(np.int64, copy=False)
    if isinstance(kind, pl.Datetime):
        values = microseconds(values, kind.time_unit)
        if attribute.kind == "datetime":
            return values
        values = values // _DAY
    elif attribute.kind == "datetime":
        return values * _DAY
    return values if attribute.kind == "date" else _calendar(values, attribute.kind)


def _calendar(values: NDArray[np.int64], kind: str) -> NDArray[np.int64]:
    """The years, or the months, of days; days that Python has no date for are taken as its first or last."""
    dates = pl.Series(np.clip(values, days(dt.date.min), days(dt.date.max)), dtype=pl.Int32).cast(pl.Date)
    years = dates.dt.year().to_numpy().astype(np.int64)
    return years if kind == "year" else years * 12 + dates.dt.month().to_numpy() - 1


def _bins(numbers: NDArray[np.int64] | NDArray[np.float64], attribute: Attribute) -> NDArray[np.int32]:
    codes = _looked_up(numbers, attribute)
    if codes is None:
        codes = _searched(numbers, attribute)
    for number, code in zip(attribute.special_numbers, attribute.special_codes, strict=True):
        if number is not None:
            codes[numbers == number] = code
    sentinel = missing_number(attribute)
    if sentinel is not None:
        codes[numbers == sentinel] = null_code(attribute)
    return codes


def _searched(numbers: NDArray[np.int64] | NDArray[np.float64], attribute: Attribute) -> NDArray[np.int32]:
    """Bins and points by a search among them, for any numbers."""
    edges = np.asarray(attribute.edges)
    last = attribute.n_bins - 1
    index = np.searchsorted(edges, numbers, side="right") - 1
    if attribute.axis.continuous:
        index[numbers == edges[-1]] = last
    outside = (index < 0) | (index > last)
    codes = np.clip(index, 0, last).astype(np.int32)
    if attribute.points:
        codes = attribute.bin_codes.astype(np.int32)[codes]
        points = np.asarray(attribute.points)
        place = np.minimum(np.searchsorted(points, numbers), points.size - 1)
        here = points[place] == numbers
        codes[here] = attribute.point_codes[place[here]]
    if attribute.outside == "missing":
        codes[outside] = null_code(attribute)
    if numbers.dtype.kind == "f":
        codes[np.isnan(numbers)] = null_code(attribute)
    return codes


def _looked_up(numbers: NDArray[np.int64] | NDArray[np.float64], attribute: Attribute) -> NDArray[np.int32] | None:
    """The same for whole numbers whose edges are few steps of one width apart, several times as fast; else None."""
    if numbers.dtype.kind == "f" or attribute.axis.continuous:
        return None
    first, last = (int(edge) for edge in (attribute.edges[0], attribute.edges[-1]))
    # A point begins and ends a step: the next number is in a bin again.
    width = 1 if attribute.points else math.gcd(*(int(edge) - first for edge in attribute.edges))
    steps = (last - first) // width
    if steps > numbers.size // 4 or last - first >= 2**63:  # few enough to pay, and differences that int64 holds
        return None
    # What lies below has the code of first - 1, what lies above that of last.
    codes = _searched(np.concatenate([[first - 1], first + width * np.arange(steps), [last]]), attribute)
    step: NDArray[np.int64] = np.clip(numbers.astype(np.int64, copy=False), first - 1, last)
    step -= first
    if width > 1:
        step //= width
    step += 1
    return codes.take(step, mode="clip")


def _with_nulls(column: pl.Series, codes: NDArray[np.int32], attribute: Attribute) -> NDArray[np.int32]:
    if column.null_count():
        codes[column.is_null().to_numpy()] = null_code(attribute)
    return codes


def numbers_of(column: pl.Series, attribute: Attribute) -> NDArray[np.int64] | NDArray[np.float64]:
    """The numbers on the attribute's axis that a column's values stand for, shape (rows,); anything for other values.

    Which values are numbers of the domain, their codes say.
    """
    if column.dtype == pl.Null or opaque(column.dtype):
        return np.zeros(len(column), dtype=np.int64)
    numbers = typed_numbers(column, attribute)
    if numbers is not None:
        return numbers
    values, own, places = distinct_numbered(column)
    lookup: NDArray[Any] = np.zeros(
        int(own.max(initial=-1)) + 2, dtype=np.float64 if attribute.axis.continuous else np.int64
    )
    if isinstance(values, list) or len(values) < _FEW:
        lookup[own] = [_number_of(value, attribute) for value in values]
    else:
        plain = plainly_written(values, attribute.kind, attribute.format)
        found = filled(plain).astype(lookup.dtype)
        for row in np.flatnonzero(plain.is_null().to_numpy()).tolist():
            found[row] = _number_of(values[row], attribute)
        lookup[own] = found
    return lookup.take(places, mode="clip")


def _number_of(value: object, attribute: Attribute) -> int | float:
    """One value as a number that its kind's arrays hold; 0 where it is none."""
    text = readable_text(value)
    written = None if isinstance(value, dt.date | dt.time) else attribute.format
    number = None if text is None else attribute.axis.parse(text, written)
    if number is None or number != number:
        return 0
    if attribute.axis.continuous:
        return float(max(min(number, sys.float_info.max), -sys.float_info.max))
    return math.floor(max(min(number, _LARGEST), -_LARGEST - 1))


def plainly_written(texts: pl.Series, kind: str, written: str | None) -> pl.Series:
    """Numbers on the axis of this kind that texts stand for, null for all but the plainest."""
    pattern = _PLAINLY[kind] if written is None else plain_pattern(written)
    if pattern is None or (written is not None and kind not in ("date", "datetime")):
        return pl.Series([None], dtype=pl.Int64).new_from_index(0, len(texts))
    plain = (
        texts.to_frame("text").select(pl.when(pl.col("text").str.contains(pattern)).then(pl.col("text"))).to_series()
    )
    if kind in ("integer", "year"):
        return plain.cast(pl.Int64, strict=False)
    if kind == "real":
        return plain.cast(pl.Float64, strict=False)
    if kind in ("time", "duration", "yearmonth"):
        first, second, third = (pl.col("text").str.extract(pattern, group).cast(pl.Int64) for group in (1, 2, 3))
        counted = first * 12 + second - 1 if kind == "yearmonth" else (first * 3_600 + second * 60 + third) * 1_000_000
        return plain.to_frame("text").select(counted).to_series()
    if kind == "date":
        return plain.str.to_date(written or "%Y-%m-%d", strict=False).cast(pl.Int32).cast(pl.Int64)
    moments = plain if written is not None else plain.str.replace("T", " ", literal=True)
    return moments.str.to_datetime(written or "%Y-%m-%d %H:%M:%S", strict=False, time_unit="us").cast(pl.Int64)
