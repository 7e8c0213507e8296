"""Values of a column one by one, whatever its type: which of them differ, and their texts. No value raises."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.public.axis import clock_text, days, span_text

_LARGEST = 2**63 - 1
_DAY = 86_400_000_000
# Microseconds in a tick.
_TICKS = {"ms": 1_000, "us": 1, "ns": 0}
READABLE = (str, bytes, int, float, Decimal, dt.date, dt.time, dt.timedelta, np.bool_, np.integer, np.floating)


def is_nothing(value: object) -> bool:
    """Whether a value is null or not a number: columns without nulls use the one for the other."""
    try:
        return value is None or bool(value != value)
    except (ArithmeticError, TypeError, ValueError):
        # pandas' NA is neither equal nor unequal to itself; an array is both.
        return type(value).__name__ == "NAType"


def distinct(column: pl.Series) -> tuple[list[object], NDArray[np.int64]]:
    """The values of a column that differ, and where each row's value stands among them: after the last for a null."""
    values, numbers, places = distinct_numbered(column)
    lookup = np.full(int(numbers.max(initial=-1)) + 2, len(values))
    lookup[numbers] = np.arange(len(values))
    return list(values), lookup.take(places, mode="clip")


def distinct_numbered(column: pl.Series) -> tuple[pl.Series | list[object], NDArray[np.int64], NDArray[np.int64]]:
    """The values of a column that differ, a number for each, and each row's number; a null's is larger than all."""
    kind = column.dtype
    if kind in (pl.String, pl.Binary):
        try:
            column = column.cast(pl.String).cast(pl.Categorical(pl.Categories.random()))
        except pl.exceptions.PolarsError:
            # Bytes that are not UTF-8.
            return _listed(column.to_list())
    elif kind == pl.Object:
        return _listed(column.to_list())
    elif kind not in (pl.Categorical, pl.Enum):
        values = column.drop_nulls().unique()
        number = pl.int_range(len(values), eager=True)
        places = column.replace_strict(values, number, default=len(values), return_dtype=pl.Int64)
        return values_of(values), number.to_numpy(), places.to_numpy()
    physical = column.to_physical()
    if column.null_count():
        last = cast(int | None, physical.max())
        null = 0 if last is None else last + 1
        rows = physical.cast(pl.Int64).fill_null(null).to_numpy()
    else:
        rows = physical.to_numpy().astype(np.int64)
        null = int(rows.max(initial=-1)) + 1
    # Not all categories: those of other columns, and of other tables, may be among them.
    here = np.flatnonzero(np.bincount(rows)[:null]).astype(np.int64)
    return pl.Series(here, dtype=physical.dtype).cat.to(column.dtype).cast(pl.String), here, rows


def _listed(values: list[object]) -> tuple[list[object], NDArray[np.int64], NDArray[np.int64]]:
    """The same for Python's values, which may be equal without being alike (1 and True), or not be comparable."""
    seen: dict[tuple[type, object], int] = {}
    found: list[object] = []
    places = np.empty(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        try:
            place = seen.setdefault((type(value), value), len(found))
        except TypeError:
            place = len(found)
        if place == len(found):
            found.append(value)
        places[row] = place
    return found, np.arange(len(found)), places


def opaque(kind: pl.DataType) -> bool:
    """Whether values of this type can be in no domain: lists, structs."""
    return kind.is_nested()


def values_of(values: pl.Series) -> list[object]:
    """Distinct values as Python objects, one by one: no value may make the others fail."""
    kind = values.dtype
    if isinstance(kind, pl.Datetime | pl.Date):
        # Python's dates end with year 9999. Without the zone, which this machine may not know: UTC.
        per_day = {"ms": 86_400_000, "us": _DAY}.get(getattr(kind, "time_unit", ""), 1 if kind == pl.Date else 0)
        if per_day:
            first, last = (days(day) * per_day for day in (dt.date.min, dt.date.max))
            values = values.to_physical().clip(first, last)
        plain = kind if kind == pl.Date else pl.Datetime(kind.time_unit)  # type: ignore[union-attr]
        values = values.to_physical().cast(plain).cast(pl.String)
    elif isinstance(kind, pl.Time | pl.Duration):
        shown = clock_text if kind == pl.Time else span_text
        return [shown(int(counted)) for counted in clocked(values)]
    return values.to_list()


def filled(column: pl.Series) -> NDArray[Any]:
    """A column as an array, 0 for nulls."""
    return (column.fill_null(0) if column.null_count() else column).to_numpy()


def clocked(column: pl.Series) -> NDArray[np.int64]:
    """Microseconds of times of day, or of durations; 0 for nulls."""
    values = filled(column.to_physical()).astype(np.int64, copy=False)
    return microseconds(values, "ns" if column.dtype == pl.Time else column.dtype.time_unit)  # type: ignore[attr-defined]


def microseconds(values: NDArray[np.int64], unit: str) -> NDArray[np.int64]:
    """Ticks of this unit as microseconds, as far as 64 bits hold them."""
    ticks = _TICKS[unit]
    if ticks == 0:
        return values // 1_000
    return values if ticks == 1 else np.clip(values, -(_LARGEST // ticks), _LARGEST // ticks) * ticks


def text_of(value: object) -> str:
    """A value as the text that a CSV file would hold."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, dt.timedelta):
        return span_text(value // dt.timedelta(microseconds=1))
    if isinstance(value, float | Decimal) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)


def readable_text(value: object) -> str | None:
    """The same where a value has a text and is not null; else None."""
    if is_nothing(value) or not isinstance(value, READABLE):
        return None
    try:
        return text_of(value)
    except (ArithmeticError, ValueError):
        return None
