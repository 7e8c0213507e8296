"""pandas data frames, column by column: the type of a column alone decides how it is read.

pandas exports a frame to Arrow only where pyarrow is installed, and only where no value spoils it: one number among
the texts of a column, and the export fails. Here a column of Python objects is handed on as it is, to be encoded value
by value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.machine.extras import lazily
from sklar.public.importers.arrow import ColumnType, column_type, column_types
from sklar.public.types import parse_output
from sklar.rows.streams import coded, column_of, of_seconds, of_spans, placeholders

na = lazily("nanoarrow")


def is_pandas(data: object) -> bool:
    """Whether an object is a pandas data frame. pandas itself is not loaded."""
    kind = type(data)
    return kind.__name__ == "DataFrame" and kind.__module__.split(".")[0] == "pandas"


def frame_names(frame: Any) -> tuple[str, ...]:
    """The names of a frame's columns, and of those levels of its index that have one of their own."""
    columns = tuple(str(name) for name in frame.columns)
    levels = (str(name) for name in frame.index.names if name is not None)
    return columns + tuple(name for name in levels if name not in columns)


def read_frame(frame: Any, rows_at_once: int, names: tuple[str, ...]) -> Iterator[pl.DataFrame]:
    """The rows of a frame, as these columns."""
    every, width = frame_names(frame), len(frame.columns)
    levels = [str(name) for name in frame.index.names]

    def values(name: str, part: Any) -> Any:
        number = every.index(name)
        return part.iloc[:, number] if number < width else _as_column(part.index.get_level_values(levels.index(name)))

    for start in range(0, len(frame), rows_at_once):
        part = frame.iloc[start : start + rows_at_once]
        yield pl.DataFrame([series_of(values(name, part)).alias(name) for name in names])


def frame_types(frame: Any) -> dict[str, ColumnType]:
    """The types of those columns whose pandas type says what they hold."""
    found = {}
    for number, label in enumerate(frame.columns):
        name, column = str(label), frame.iloc[:0, number]
        kind = column.dtype
        family = type(kind).__name__
        if family == "CategoricalDtype":
            listed = series_of(_as_column(kind.categories))
            texts = listed.dtype in (pl.String, pl.Binary) or all(isinstance(value, str) for value in listed)
            whole, order = listed.dtype.is_integer(), "ordered category" if kind.ordered else "category"
            output = order if whole or texts else None
            found[name] = ColumnType(kind="categorical", output=output, whole=whole, nullable=True, family="dictionary")
        elif family == "DatetimeTZDtype":
            found[name] = _of_moments(f"timestamp[{kind.unit}, tz={kind.tz}]")
        elif getattr(kind, "kind", "") == "M":
            found[name] = _of_moments(f"timestamp[{np.datetime_data(kind)[0]}]")
        elif family == "StringDtype":
            found |= column_types(pl.DataFrame(schema={name: pl.String}))
        elif family == "ArrowDtype":
            found[name] = column_type(na.c_array_stream(column).get_schema())
        elif (values := series_of(column)).dtype != pl.Object:
            found |= column_types(pl.DataFrame([values.alias(name)]))
    return found


def _of_moments(word: str) -> ColumnType:
    output = parse_output(word)
    return ColumnType(
        kind="datetime", output=str(output) if output else None, whole=False, nullable=True, family="timestamp"
    )


def series_of(column: Any) -> pl.Series:
    """One column of a frame."""
    kind = column.dtype
    if isinstance(kind, np.dtype):
        return _of_numpy(column.to_numpy())
    family = type(kind).__name__
    if family == "CategoricalDtype":
        codes = column.cat.codes.to_numpy().astype(np.int64)
        return coded(codes, series_of(_as_column(kind.categories)))
    if family == "DatetimeTZDtype":
        # pandas gives the moments in UTC.
        return _of_numpy(column.to_numpy(dtype=f"datetime64[{kind.unit}]")).dt.replace_time_zone("UTC")
    if getattr(kind, "numpy_dtype", None) is not None and family != "ArrowDtype":
        values = _of_numpy(column.to_numpy(dtype=kind.numpy_dtype, na_value=0))
        return _without(values, column.isna().to_numpy())
    if family == "ArrowDtype" or getattr(kind, "storage", None) == "pyarrow":
        parts = [column_of(part) for part in na.c_array_stream(column)]
        return pl.concat(parts) if parts else pl.Series([], dtype=pl.Null)
    if family == "PeriodDtype":
        # A month is written 2024-03, a year 2024, a day as ISO has it.
        return _without(pl.Series([str(value) for value in column], dtype=pl.String), column.isna().to_numpy())
    if family == "SparseDtype":
        return _of_numpy(np.asarray(column))
    return _of_numpy(column.to_numpy(dtype=object))


def _as_column(index: Any) -> Any:
    """The values of an index in its own type: pandas would guess another from the values, and fail at some of them."""
    import pandas as pd

    return pd.Series(index.array, dtype=index.dtype)


def _of_numpy(values: NDArray[Any]) -> pl.Series:
    family = values.dtype.kind
    if family in "biu" or values.dtype in (np.float16, np.float32, np.float64):
        return pl.Series(np.ascontiguousarray(values))
    if family == "f":
        return pl.Series(values.astype(np.float64))
    if family == "M":
        return _moments(values)
    if family == "m" and np.datetime_data(values.dtype)[0] in ("s", "ms", "us", "ns"):
        ticks = _without(pl.Series(values.view(np.int64)), np.isnat(values))
        return of_spans(ticks, np.datetime_data(values.dtype)[0])
    if family in "mc":
        return placeholders(~np.isnat(values) if family == "m" else ~np.isnan(values))
    return pl.Series(values.tolist(), dtype=pl.Object)


def _moments(values: NDArray[Any]) -> pl.Series:
    unit = np.datetime_data(values.dtype)[0]
    ticks = _without(pl.Series(values.view(np.int64)), np.isnat(values))
    return of_seconds(ticks) if unit == "s" else ticks.cast(pl.Datetime(unit))  # type: ignore[arg-type]


def _without(values: pl.Series, mask: NDArray[np.bool_]) -> pl.Series:
    return values.scatter(np.flatnonzero(mask), None) if mask.any() else values
