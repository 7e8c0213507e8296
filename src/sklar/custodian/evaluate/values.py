"""Columns as numbers on their axis, row by row, with what is missing and what is no number told apart. Private.

This is the one place that knows how a raw column becomes numbers for an evaluation: typed columns are converted at
once, texts by `public.axis`, which knows every kind that a schema can name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.public.schema import Attribute
from sklar.rows.encode import missing_number
from sklar.rows.values import distinct, is_nothing, opaque, readable_text

OPAQUE = "(not a value)"

# Texts that polars reads as Python does.
_PLAIN = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"
_DAY = 86_400_000_000
_PER_MICROSECOND = {"ms": 1e-3, "us": 1.0, "ns": 1e3}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Values:
    """One column of a batch: its numbers, shape (rows,) with nan where a row has none, and what those rows have.

    `missing` rows have a null, an empty text or the missing text; `texts` counts whatever else is not a finite number.
    Categories have no numbers: the array is empty, and so are the texts.
    """

    numbers: NDArray[np.float64]
    missing: int
    texts: Counter[str]


def is_number(attribute: Attribute) -> bool:
    """Whether the values of an attribute lie on an axis."""
    return attribute.binned


def special_texts(attribute: Attribute) -> tuple[str, ...]:
    """The texts or numbers that a schema lists as meaning something else than a value."""
    return tuple(str(value) for value in attribute.special)


def read_values(column: pl.Series, attribute: Attribute) -> Values:
    """The values of one column of a batch."""
    if not is_number(attribute):
        return Values(numbers=np.empty(0), missing=_missing(column, attribute), texts=Counter())
    if column.dtype == pl.Null:
        return Values(numbers=np.full(len(column), np.nan), missing=len(column), texts=Counter())
    numbers = _typed(column, attribute.kind)
    if numbers is None:
        return _from_texts(column, attribute)
    nothing = np.isnan(numbers)
    sentinel = missing_number(attribute)
    if sentinel is not None:
        nothing |= numbers == sentinel
    texts = Counter({str(end): int(np.count_nonzero(numbers == end)) for end in (np.inf, -np.inf)})
    for text in special_texts(attribute):
        here = ~nothing & (numbers == _point(text, attribute))
        texts[text] = int(np.count_nonzero(here))
        numbers[here] = np.nan
    numbers[nothing | ~np.isfinite(numbers)] = np.nan
    return Values(numbers=numbers, missing=int(np.count_nonzero(nothing)), texts=+texts)


def _point(text: str, attribute: Attribute) -> float:
    """Where a text stands on the axis; nan where it stands nowhere."""
    written = getattr(attribute, "format", None)
    point = attribute.axis.parse(text, written or None)
    return np.nan if point is None else float(point)


def _typed(column: pl.Series, kind: str) -> NDArray[np.float64] | None:
    """The numbers of a column whose type has them, nan for nulls; None when its texts must be read."""
    held = column.dtype
    if kind in ("integer", "real", "year") and held.is_numeric():
        return column.cast(pl.Float64).fill_null(np.nan).to_numpy().copy()
    if kind == "time" and held == pl.Time:
        return np.floor(_ticks(column) / _PER_MICROSECOND["ns"])
    if kind == "duration" and isinstance(held, pl.Duration):
        return np.floor(_ticks(column) / _PER_MICROSECOND[held.time_unit])
    if isinstance(held, pl.Date | pl.Datetime) and kind in ("date", "datetime", "year", "yearmonth"):
        ticks = _ticks(column)
        moments = ticks * _DAY if isinstance(held, pl.Date) else ticks / _PER_MICROSECOND[held.time_unit]
        return np.floor(moments) if kind == "datetime" else _calendar(moments // _DAY, kind)
    return None


def _ticks(column: pl.Series) -> NDArray[np.float64]:
    return np.asarray(column.to_physical().cast(pl.Float64).fill_null(np.nan).to_numpy())


def _calendar(days: NDArray[np.float64], kind: str) -> NDArray[np.float64]:
    """Days since 1970 as they are, or the years or the months since the year 0 that they lie in."""
    if kind == "date":
        return np.asarray(days)
    here = ~np.isnan(days)
    dates = np.where(here, days, 0.0).astype(np.int64).astype("datetime64[D]")
    unit, before = ("Y", 1970) if kind == "year" else ("M", 1970 * 12)
    return np.where(here, dates.astype(f"datetime64[{unit}]").astype(np.int64) + before, np.nan)


def _from_texts(column: pl.Series, attribute: Attribute) -> Values:
    """The same for a column whose distinct values are read one by one, all that are plainly written at once."""
    if opaque(column.dtype):
        nulls = column.null_count()
        texts = +Counter({OPAQUE: len(column) - nulls})
        return Values(numbers=np.full(len(column), np.nan), missing=nulls, texts=texts)
    values, places = distinct(column)
    times = np.bincount(places, minlength=len(values) + 1)
    special = special_texts(attribute)
    specials = {text: _point(text, attribute) for text in special}
    sentinel = missing_number(attribute)
    points = _plainly(values, attribute.kind)
    missing, found = int(times[-1]), Counter[str]()
    for place, value in enumerate(values):
        text = None
        if np.isnan(points[place]):
            if is_nothing(value):
                missing += int(times[place])
                continue
            text = readable_text(value)
            if text is None:
                found[OPAQUE] += int(times[place])
                continue
            if not text.strip() or text == attribute.missing:
                missing += int(times[place])
                continue
            points[place] = np.nan if text in specials else _point(text, attribute)
            if attribute.kind in ("integer", "real") and text.strip().lower() == "nan":
                missing += int(times[place])
                continue
        if sentinel is not None and points[place] == sentinel:
            points[place] = np.nan
            missing += int(times[place])
            continue
        coded = next((name for name, number in specials.items() if points[place] == number), None)
        if coded is not None or not np.isfinite(points[place]):
            found[coded or text or str(points[place])] += int(times[place])
            points[place] = np.nan
    return Values(numbers=np.append(points, np.nan)[places], missing=missing, texts=found)


def _plainly(values: list[object], kind: str) -> NDArray[np.float64]:
    """The numbers that plain texts stand for, nan for all others."""
    points = np.full(len(values), np.nan)
    if kind in ("integer", "real") and values and all(isinstance(value, str) for value in values):
        texts = pl.Series(cast("list[str]", values), dtype=pl.String)
        plain = texts.to_frame("text").select(pl.when(pl.col("text").str.contains(_PLAIN)).then(pl.col("text")))
        read: NDArray[Any] = plain.to_series().cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
        points = read.copy()
    return points


def _missing(column: pl.Series, attribute: Attribute) -> int:
    """How many values of a category are null, empty or the missing text."""
    nulls = column.null_count()
    if column.dtype.is_float():
        return nulls + int(column.is_nan().sum())
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return nulls
    return nulls + int(column.cast(pl.String).is_in(["", attribute.missing or ""]).sum())
