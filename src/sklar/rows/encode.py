"""Batches of rows to integer codes, by the schema alone; and values of a column one by one, whatever its type.

Every value gets a code of its attribute or -1, "in no cell", by that value and the schema alone, and no value raises.
Special values come first, then points, then bins. Nulls, empty texts and the missing text go to `missing`; unlisted
categories to `other`, else `missing`; numbers outside the edges to the end bins, or to `missing` if the schema says so;
all else is -1. A number or date equal to the missing text or to a special value is that, whatever the column's type.
Times with a zone are taken in UTC.
"""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl
from numpy.typing import DTypeLike, NDArray

from sklar.budget.plan import TOKENS
from sklar.budget.search import MAX_TEXT, ladder_of
from sklar.kernel.queries import NO_CELL
from sklar.machine.wording import stated
from sklar.public.axis import DAY, PARTS, clock_text, days, parse_number, plain_pattern, span_text
from sklar.public.schema import Attribute, Schema

Numbers = NDArray[np.int64] | NDArray[np.float64]
Many = Callable[[Numbers], NDArray[Any]]
One = Callable[[object], int | float]

_LARGEST = 2**63 - 1
_READABLE = (str, bytes, int, float, Decimal, dt.date, dt.time, dt.timedelta, np.bool_, np.integer, np.floating)
# The text of values that have none: lists, records.
NO_TEXT = "(not a value)"
_PLAINLY: dict[str, str] = stated("sklar.public", "texts.toml")["plainly"]
# Below this many values, reading them one by one is faster than starting polars.
_FEW = 64


def encode(batch: pl.DataFrame, schema: Schema) -> NDArray[np.int32]:
    """Codes of a batch whose columns are those of the schema in order, shape (m, rows).

    Invariant: -1 <= codes[i] < n_levels of attribute i.
    """
    schema.require_found()
    codes = np.empty((schema.n_attributes, batch.height), dtype=np.int32)
    for column, places in zip(batch.iter_columns(), schema.columns.values(), strict=True):
        for place in places:
            codes[place] = encode_column(column, schema.attributes[place])
    return codes


def encode_column(column: pl.Series, attribute: Attribute) -> NDArray[np.int32]:
    """Codes of one column, shape (rows,)."""
    numbers = typed_numbers(column, attribute)
    if column.dtype == pl.Boolean and attribute.boolean:
        codes = filled(column.cast(pl.Int32)).copy()
    elif numbers is not None:
        codes = _bins(numbers, attribute)
    else:
        return _by_value(column, attribute, partial(_bins, attribute=attribute), coder(attribute), np.int32)
    if column.null_count():
        codes[column.is_null().to_numpy()] = null_code(attribute)
    return codes


def null_code(attribute: Attribute) -> int:
    """The code of a null or an empty text."""
    return next((code for code in (attribute.missing_code, attribute.other_code) if code is not None), NO_CELL)


def unknown_code(attribute: Attribute) -> int:
    """The code of a value that the domain does not hold and that cannot be clipped into it."""
    return next((code for code in (attribute.other_code, attribute.missing_code) if code is not None), NO_CELL)


def coder(attribute: Attribute) -> Callable[[object], int]:
    """A function from one value (text, number, date, None) to its code. It never raises."""
    nothing, unknown = null_code(attribute), unknown_code(attribute)
    known = {"": nothing, attribute.missing or "": nothing}
    known |= dict(zip(map(str, attribute.special), attribute.special_codes, strict=True))
    values = {str(value): code for code, value in enumerate(attribute.values)}
    known |= values
    whole = isinstance(next(iter(attribute.values), None), int)
    points = zip(attribute.points, attribute.point_codes.tolist(), strict=True)
    named: dict[int | float, int] = dict(points) | _apart(attribute)

    def code_of(value: object) -> int:
        text = readable_text(value)
        if text is None:
            return nothing if is_nothing(value) else unknown
        truth = attribute.truth_of(text)
        code = known.get(text) if truth is None else truth
        if code is not None:
            return code
        if attribute.categorical:
            number = parse_number(text) if whole else None
            if number is None or number != number // 1:
                return values.get(attribute.cut(text), unknown)
            return known.get(str(int(number)), unknown)
        number = _parse(value, text, attribute)
        if number is None:
            return known.get(text.strip(), unknown)
        if attribute.clip is not None and number not in named:
            number = min(number, attribute.clip)
        if number != number or (attribute.outside == "missing" and not attribute.within(number)):
            return named.get(number, nothing)
        return named.get(number, int(attribute.bin_codes[attribute.bin_of(number)]))

    return code_of


def _parse(value: object, text: str, attribute: Attribute) -> int | float | None:
    # Typed dates and numbers need no format.
    typed = isinstance(value, dt.date | dt.time) or (attribute.axis.numeric and not isinstance(value, str | bytes))
    return attribute.read(text, plain=typed)


def _apart(attribute: Attribute) -> dict[int | float, int]:
    """The numbers on an axis that are no matter of bins, with their codes: special ones, and the missing one."""
    numbers = (*attribute.special_numbers, attribute.missing_number)
    codes = (*attribute.special_codes, null_code(attribute))
    return {number: code for number, code in zip(numbers, codes, strict=True) if number is not None}


def _by_value(
    column: pl.Series, attribute: Attribute, of_numbers: Many, of_value: One, kind: DTypeLike
) -> NDArray[Any]:
    """The meaning of a column's values, each distinct one read once; plainly written ones are read together."""
    values, places = distinct(column)
    if isinstance(values, pl.Series) and attribute.binned and len(values) >= _FEW:
        numbers = plainly_written(values, attribute)
        lookup = of_numbers(filled(numbers)).astype(kind)
        for row in np.flatnonzero(numbers.is_null().to_numpy()).tolist():
            lookup[row] = of_value(values[row])
    else:
        lookup = np.array([of_value(value) for value in values], dtype=kind)
    # The last place is that of nulls.
    return np.append(lookup, lookup.dtype.type(of_value(None))).take(places)


def typed_numbers(column: pl.Series, attribute: Attribute) -> Numbers | None:
    """The column as numbers on the attribute's axis when its type allows that directly, else None; 0 for nulls."""
    kind = column.dtype
    if attribute.part_of is not None:
        moments = typed_numbers(column, replace(attribute, kind="datetime", part_of=None))
        return None if moments is None else np.asarray(PARTS[attribute.kind](moments))
    if attribute.axis.numeric and kind.is_numeric():
        if kind.is_decimal() or kind.is_float() or attribute.axis.continuous:
            return filled(column.cast(pl.Float64))
        if kind in (pl.UInt64, pl.Int128, pl.UInt128):
            column = column.clip(0 if kind.is_unsigned_integer() else -_LARGEST - 1, _LARGEST)
        return filled(column.cast(pl.Int64))
    if attribute.kind in ("time", "duration"):
        return _microseconds(column) if isinstance(kind, pl.Time | pl.Duration) else None
    if not attribute.axis.dated or not isinstance(kind, pl.Date | pl.Datetime):
        return None
    timed = isinstance(kind, pl.Datetime)
    values = _microseconds(column) if timed else filled(column.to_physical()).astype(np.int64)
    if attribute.kind == "datetime":
        return values if timed else values * DAY
    dates = values // DAY if timed else values
    if attribute.kind == "date":
        return dates
    # Days that Python has no date for are taken as its first or last.
    calendar = pl.Series(np.clip(dates, days(dt.date.min), days(dt.date.max)), dtype=pl.Int32).cast(pl.Date)
    years = calendar.dt.year().to_numpy().astype(np.int64)
    return years if attribute.kind == "year" else years * 12 + calendar.dt.month().to_numpy() - 1


def _bins(numbers: Numbers, attribute: Attribute) -> NDArray[np.int32]:
    stated = numbers
    if attribute.clip is not None:
        numbers = np.minimum(numbers, attribute.clip)
    codes = _looked_up(numbers, attribute)
    codes = _searched(numbers, attribute) if codes is None else codes
    for number, code in _apart(attribute).items():
        codes[stated == number] = code
    return codes


def _searched(numbers: Numbers, attribute: Attribute) -> NDArray[np.int32]:
    """Bins and points by a search among them, for any numbers."""
    edges = np.asarray(attribute.edges)
    codes = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, attribute.n_bins - 1).astype(np.int32)
    if attribute.points:
        codes = attribute.bin_codes.astype(np.int32)[codes]
        points = np.asarray(attribute.points)
        place = np.minimum(np.searchsorted(points, numbers), points.size - 1)
        here = points[place] == numbers
        codes[here] = attribute.point_codes[place[here]]
    if attribute.outside == "missing":
        beyond = numbers > edges[-1] if attribute.axis.continuous else numbers >= edges[-1]
        codes[beyond | (numbers < edges[0])] = null_code(attribute)
    codes[numbers != numbers] = null_code(attribute)
    return codes


def _looked_up(numbers: Numbers, attribute: Attribute) -> NDArray[np.int32] | None:
    """The same for whole numbers whose edges are few steps of one width apart, several times as fast; else None."""
    if numbers.dtype.kind == "f" or attribute.axis.continuous:
        return None
    first, last = (int(edge) for edge in (attribute.edges[0], attribute.edges[-1]))
    # A point begins and ends a step: the next number is in a bin again.
    width = 1 if attribute.points else math.gcd(*(int(edge) - first for edge in attribute.edges))
    steps = (last - first) // width
    if steps > numbers.size // 4 or last - first >= 2**63:  # few enough to pay, and differences that int64 holds
        return None
    # Numbers below get the code of first - 1, those above that of last.
    codes = _searched(np.concatenate([[first - 1], first + width * np.arange(steps), [last]]), attribute)
    step: NDArray[Any] = np.clip(numbers, first - 1, last) - first
    return codes.take((step if width == 1 else step // width) + 1, mode="clip")


def numbers_of(column: pl.Series, attribute: Attribute) -> Numbers:
    """Numbers on the attribute's axis, shape (rows,): anything for values that, by their codes, are no numbers."""
    numbers, kind = typed_numbers(column, attribute), np.float64 if attribute.axis.continuous else np.int64
    if numbers is not None:
        return numbers

    def number_of(value: object) -> int | float:
        """One value as a number that the array holds; 0 where it is none."""
        text = readable_text(value)
        number = None if text is None else _parse(value, text, attribute)
        if number is None or number != number:
            return 0
        if attribute.axis.continuous:
            return float(max(min(number, sys.float_info.max), -sys.float_info.max))
        return math.floor(max(min(number, _LARGEST), -_LARGEST - 1))

    return _by_value(column, attribute, np.asarray, number_of, kind)


def dealt(column: pl.Series, attribute: Attribute, codes: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """How many of `TOKENS` each row deals to the level that its code says, shape (rows,): `plan.inside_query`.

    Postcondition, for any column and codes: 0 <= tokens <= `TOKENS`, and 0 where a row stands in no bin. They depend on
    a row's value and code alone. Never raises.
    """
    tokens, here = np.zeros(codes.size, dtype=np.int64), np.flatnonzero(np.isin(codes, attribute.bin_codes))
    if here.size:
        edges = np.asarray(attribute.edges, dtype=np.float64)
        place = np.searchsorted(attribute.bin_codes, codes[here])
        with np.errstate(over="ignore", invalid="ignore"):
            way = (numbers_of(column, attribute)[here] - edges[place]) / (edges[place + 1] - edges[place])
        tokens[here] = np.rint(TOKENS * np.clip(np.nan_to_num(way), 0.0, 1.0))
    return tokens


def value_column(column: pl.Series, attribute: Attribute) -> pl.Series:
    """What is counted of an attribute whose domain is private: texts, or grains; null for what is not in the domain."""
    if not attribute.categorical:
        bounds = replace(attribute, domain="public", at_most=0)
        inside = np.asarray(encode_column(column, bounds) == bounds.bin_codes[0])
        units = np.zeros(len(column), dtype=np.int64)
        units[inside] = ladder_of(attribute).units(numbers_of(column, attribute)[inside])
        return pl.Series(units).scatter(np.flatnonzero(~inside), None)
    values, places = distinct(column)
    known = {"", attribute.missing, *map(str, attribute.special)}
    texts = [(readable_text(value) or "").encode(errors="replace").decode() for value in values]
    # The last place is that of nulls.
    held = [None if text in known or len(text) > MAX_TEXT else attribute.cut(text) for text in texts]
    return pl.Series([*held, None], dtype=pl.String).gather(places)


def plainly_written(texts: pl.Series, attribute: Attribute) -> pl.Series:
    """Numbers on the attribute's axis that texts stand for, null for all but the plainest."""
    if attribute.part_of is not None:
        moments = plainly_written(texts, replace(attribute, kind="datetime", part_of=None))
        return pl.Series(PARTS[attribute.kind](moments))
    kind, written = attribute.kind, attribute.format
    pattern = _PLAINLY[kind] if written is None else plain_pattern(written)
    if pattern is None or (written is not None and kind not in ("date", "datetime")):
        return pl.Series([None], dtype=pl.Int64).new_from_index(0, len(texts))
    text = pl.col("text")
    plain = texts.to_frame("text").select(pl.when(text.str.contains(pattern)).then(text)).to_series()
    if attribute.axis.numeric:
        return plain.cast(pl.Float64 if attribute.axis.continuous else pl.Int64, strict=False)
    if kind in ("time", "duration", "yearmonth"):
        first, second, third = (text.str.extract(pattern, group).cast(pl.Int64) for group in (1, 2, 3))
        counted = first * 12 + second - 1 if kind == "yearmonth" else (first * 3_600 + second * 60 + third) * 1_000_000
        return plain.to_frame("text").select(counted).to_series()
    if kind == "date":
        return plain.str.to_date(written or "%Y-%m-%d", strict=False).cast(pl.Int32).cast(pl.Int64)
    moments = plain if written is not None else plain.str.replace("T", " ", literal=True)
    return moments.str.to_datetime(written or "%Y-%m-%d %H:%M:%S", strict=False, time_unit="us").cast(pl.Int64)


def is_nothing(value: object) -> bool:
    """Whether a value is null or not a number: columns without nulls use the one for the other."""
    try:
        return value is None or bool(value != value)
    except (ArithmeticError, TypeError, ValueError):
        # pandas' NA is neither equal nor unequal to itself; an array is both.
        return type(value).__name__ == "NAType"


def distinct(column: pl.Series) -> tuple[pl.Series | list[object], NDArray[np.int64]]:
    """The values of a column that differ, and where each row's value stands among them: after the last for a null."""
    if column.dtype == pl.Null or column.dtype.is_nested():
        # One value stands for all of these: it is in no domain.
        return [[]], column.is_null().to_numpy().astype(np.int64)
    if column.dtype in (pl.String, pl.Binary):
        # Bytes that are not UTF-8 stay bytes.
        with suppress(pl.exceptions.PolarsError):
            column = column.cast(pl.String).cast(pl.Categorical(pl.Categories.random()))
    if column.dtype in (pl.Object, pl.Binary):
        return _listed(column.to_list())
    if column.dtype not in (pl.Categorical, pl.Enum):
        values = column.drop_nulls().unique()
        number = pl.int_range(len(values), eager=True)
        places = column.replace_strict(values, number, default=len(values), return_dtype=pl.Int64)
        return values_of(values), places.to_numpy()
    # A null is 0, and the category of number k is k + 1. Categories of other columns and tables may be among them.
    physical = column.to_physical()
    rows = filled(physical).astype(np.int64) + 1
    if column.null_count():
        rows[column.is_null().to_numpy()] = 0
    occurs = np.bincount(rows, minlength=1) > 0
    here = np.flatnonzero(occurs[1:])
    among = np.append(here.size, np.cumsum(occurs[1:]) - 1)
    return pl.Series(here, dtype=physical.dtype).cat.to(column.dtype).cast(pl.String), among[rows]


def _listed(values: list[object]) -> tuple[list[object], NDArray[np.int64]]:
    """The same for Python's values, which may be equal without being alike (1 and True), or not be comparable."""
    places: dict[tuple[type, object], int] = {}
    try:
        rows = [places.setdefault((type(value), value), len(places)) for value in values]
    except (ArithmeticError, TypeError, ValueError):
        return values, np.arange(len(values))
    return [value for _, value in places], np.array(rows, dtype=np.int64)


def values_of(values: pl.Series) -> list[object]:
    """Distinct values as Python objects, one by one: no value may make the others fail."""
    kind = values.dtype
    if isinstance(kind, pl.Time | pl.Duration):
        return [(clock_text if kind == pl.Time else span_text)(counted) for counted in _microseconds(values).tolist()]
    if isinstance(kind, pl.Datetime | pl.Date):
        # Python's dates end with year 9999. Without the zone, which this machine may not know: UTC.
        unit, values = getattr(kind, "time_unit", None), values.to_physical()
        if unit != "ns":
            per_day = {None: 1, "ms": DAY // 1_000, "us": DAY}[unit]
            values = values.clip(days(dt.date.min) * per_day, days(dt.date.max) * per_day)
        values = values.cast(pl.Datetime(unit) if unit else pl.Date).cast(pl.String)
    return values.to_list()


def filled(column: pl.Series) -> NDArray[Any]:
    """A column as an array, 0 for nulls."""
    return (column.fill_null(0) if column.null_count() else column).to_numpy()


def _microseconds(column: pl.Series) -> NDArray[np.int64]:
    """Microseconds of moments, times of day or durations, as far as 64 bits hold them; 0 for nulls."""
    values = filled(column.to_physical()).astype(np.int64, copy=False)
    unit = "ns" if column.dtype == pl.Time else column.dtype.time_unit  # type: ignore[attr-defined]
    if unit == "ms":
        return np.clip(values, -(_LARGEST // 1_000), _LARGEST // 1_000) * 1_000
    return values if unit == "us" else values // 1_000


def readable_text(value: object) -> str | None:
    """A value as the text that a CSV file would hold; None where it is null or has no text."""
    try:
        if is_nothing(value) or not isinstance(value, _READABLE):
            return None
        if isinstance(value, bytes):
            return value.decode("utf-8", errors="replace")
        if isinstance(value, bool | np.bool_):
            return "true" if value else "false"
        if isinstance(value, dt.timedelta):
            return span_text(value // dt.timedelta(microseconds=1))
        if isinstance(value, float | Decimal) and math.isfinite(value) and value == int(value):
            return str(int(value))
        return str(value)
    except (ArithmeticError, ValueError):
        # A signaling NaN, say: an object may refuse what its type can do.
        return None


def _id(value: object) -> str | None:
    text = readable_text(str(value) if isinstance(value, UUID) else value)
    if text is None:
        return None if is_nothing(value) else NO_TEXT
    # A lone half of a pair of surrogates is not text.
    return text.encode(errors="replace").decode()


def id_texts(column: pl.Series) -> pl.Series:
    """Ids as texts: 7, 7.0 and "7" are one. Null for nulls and empty texts, `NO_TEXT` for what has none. Never raises.

    >>> id_texts(pl.Series([7.0, None, 2.5])).to_list(), id_texts(pl.Series(["7", "", "007"])).to_list()
    (['7', None, '2.5'], ['7', None, '007'])
    """
    kind = column.dtype
    if kind.is_float() or kind.is_decimal():
        # A zero has no sign.
        plain = column.fill_nan(None) + 0.0 if kind.is_float() else column
        texts = plain.cast(pl.String).str.replace(r"\.0+$", "")
    elif kind in (pl.Object, pl.Binary) or kind.is_temporal() or kind.is_nested():
        values, places = distinct(column)
        texts = pl.Series([*map(_id, values), None], dtype=pl.String).gather(places)
    else:
        texts = column.cast(pl.String)
    return texts.replace("", None).alias("id")
