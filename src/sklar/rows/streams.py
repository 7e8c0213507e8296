"""Tables that other libraries hold: Arrow streams, pandas frames, and files that pyarrow reads, column by column. More:
docs/derivations.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.errors import DataError
from sklar.machine.extras import lazily
from sklar.machine.stores import Remote
from sklar.machine.wording import said
from sklar.public.arrow import PARQUET, ColumnType, column_type, column_types
from sklar.rows.source import BATCH_ROWS, Batches, Open, batch_rows
from sklar.rows.sql import Query

na = lazily("nanoarrow")

_SECONDS = (2**63 - 1) // 1_000
_TEXTS = {"u": "z", "U": "Z"}
# Numbers, booleans, bytes, dates and nulls, which pass as they are.
_PLAIN = {"n", "b", "c", "C", "s", "S", "i", "I", "l", "L", "e", "f", "g", "z", "Z", "tdD"}
_UNITS = {"s": "s", "m": "ms", "u": "us", "n": "ns"}
_PER_SECOND = {"s": 1, "m": 1_000, "u": 1_000_000, "n": 1_000_000_000}
_NUMPY = {"c": "i1", "C": "u1", "s": "i2", "S": "u2", "i": "i4", "I": "u4", "l": "i8", "L": "u8"}


def open_stream(data: object) -> tuple[Any, Open]:
    """The schema of a query, or of a table that exports a stream, and how its rows are read."""
    rows: Any = data.run() if isinstance(data, Query) else data
    try:
        stream = na.c_array_stream(rows)
        schema = stream.get_schema()
    except Exception:
        # The library's message may quote a cell.
        schema = None
    if schema is None or schema.format != "+s":
        raise DataError(said("rows.not_arrow", kind=type(rows).__name__))
    return schema, partial(_read_stream, stream, rows.close if isinstance(data, Query) else lambda: None)


def _read_stream(stream: Any, close: Callable[[], None], names: tuple[str, ...]) -> Batches:
    try:
        places = {child.name: at for at, child in enumerate(stream.get_schema().children)}
        for batch in stream:
            yield frame_of(batch, {name: places[name] for name in names})
    finally:
        stream.release()
        close()


def frame_of(batch: Any, places: dict[str, int]) -> pl.DataFrame:
    """Columns of an Arrow record batch: each name's column stands at its place."""
    columns = [column_of(batch.child(place)).alias(name) for name, place in places.items()]
    # A batch may be a slice of its columns.
    return pl.DataFrame([column.slice(batch.offset, batch.length) for column in columns])


def column_of(array: Any) -> pl.Series:
    """One column of an Arrow array of any type."""
    kind = array.schema.format
    if array.schema.dictionary is not None:
        return _coded(np.where(_valid(array), _numbers(array).astype(np.int64), -1), column_of(array.dictionary))
    if kind == "+r":
        places = np.searchsorted(_numbers(array.child(0)), array.offset + np.arange(array.length), side="right")
        return column_of(array.child(1)).gather(places)
    if kind in _PLAIN or kind in _TEXTS or kind.startswith("w:"):
        return _passed(array, _TEXTS.get(kind, kind))
    if kind == "tdm":
        # Polars would take days that are held in milliseconds for moments.
        return (_passed(array, "l") // 86_400_000).clip(-(2**31), 2**31 - 1).cast(pl.Int32).cast(pl.Date)
    if kind in ("vu", "vz"):
        return _viewed(array)
    if kind.startswith("ts"):
        moment = partial(pl.Datetime, time_zone="UTC" if kind[4:] else None)
        return _timed(_passed(array, "l"), _UNITS[kind[2]], moment)
    if kind.startswith("tt"):
        ticks = _passed(array, "i" if kind[2] in "sm" else "l").cast(pl.Int64)
        per_day = 86_400 * _PER_SECOND[kind[2]]
        return (ticks.clip(0, per_day - 1) * (86_400_000_000_000 // per_day)).cast(pl.Time)
    if kind.startswith("tD"):
        return _timed(_passed(array, "l"), _UNITS[kind[2]], pl.Duration)
    if kind.startswith("d:"):
        precision, scale, *width = (int(part) for part in kind[2:].split(","))
        if precision <= 38 and 0 <= scale <= precision and width != [256]:
            return _passed(array, kind)
        return _decimals(array, (width or [128])[0] // 8, scale)
    return _placeholders(_valid(array))


class _Renamed:
    """An array under a schema that says what polars shall take it for."""

    def __init__(self, schema: Any, array: Any) -> None:
        self._schema, self._array = schema, array

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        del requested_schema
        return self._schema.__arrow_c_schema__(), self._array.__arrow_c_array__()[1]


def _passed(array: Any, kind: str) -> pl.Series:
    # Drops the metadata of extension types and of pandas.
    return pl.Series(_Renamed(array.schema.modify(format=kind, metadata={}), array))


def _coded(codes: NDArray[np.int64], values: pl.Series) -> pl.Series:
    """Values by their place in a list, -1 for null: an Enum where the list can be one, else the values themselves."""
    codes = np.where((codes >= 0) & (codes < len(values)), codes, -1)
    places, texts = pl.Series(codes).replace(-1, None), None
    if values.dtype in (pl.String, pl.Binary) or values.dtype.is_integer():
        try:
            texts = values.cast(pl.String)
        except pl.exceptions.PolarsError:
            texts = None
    if texts is None or texts.null_count() or texts.n_unique() < len(texts):
        return values.gather(places)
    return places.cast(pl.UInt32).cat.to(pl.Enum(texts))


def _timed(ticks: pl.Series, unit: str, kind: Callable[[Any], Any]) -> pl.Series:
    """Moments or durations. Polars has no seconds, and would let milliseconds overflow without a word."""
    if unit == "s":
        ticks, unit = ticks.clip(-_SECONDS, _SECONDS) * 1_000, "ms"
    return ticks.cast(kind(unit))


def _placeholders(valid: NDArray[np.bool_]) -> pl.Series:
    """Values that are in no domain, whatever they are, or null."""
    return pl.select(pl.when(pl.Series(valid)).then(pl.struct(pl.lit(0)))).to_series()


def _viewed(array: Any) -> pl.Series:
    """Texts or bytes that lie in several places, put together: nanoarrow cannot pass them on as they are."""
    view, length = array.view(), array.length
    if not length:
        return pl.Series([], dtype=pl.Binary)
    heads = np.frombuffer(view.buffer(1), dtype=np.int32).reshape(-1, 4)[array.offset : array.offset + length]
    # The last buffer holds the sizes of those between.
    texts = [np.frombuffer(view.buffer(number), dtype=np.uint8) for number in range(2, view.n_buffers - 1)]
    starts = np.cumsum([4 * heads.size, *(text.size for text in texts)])
    sizes = np.where(_valid(array), heads[:, 0], 0).astype(np.int64)
    # Twelve bytes and fewer stand in the head itself.
    long = heads[:, 2].clip(0, max(len(texts) - 1, 0))
    places = np.where(sizes > 12, starts[long] + heads[:, 3], 16 * np.arange(length) + 4)
    ends = np.cumsum(sizes)
    bytes_of = np.repeat(places - (ends - sizes), sizes) + np.arange(int(ends[-1]))
    data = np.concatenate([np.ascontiguousarray(heads).view(np.uint8).ravel(), *texts])[bytes_of]
    valid = np.packbits(_valid(array), bitorder="little")
    return pl.Series(na.c_array_from_buffers(na.large_binary(), length, [valid, np.append(0, ends), data]))


def _numbers(array: Any) -> NDArray[Any]:
    kind = _NUMPY[array.schema.format]
    if not array.length:
        return np.empty(0, dtype=kind)
    return np.frombuffer(array.view().buffer(1), dtype=kind)[array.offset : array.offset + array.length]


def _valid(array: Any) -> NDArray[np.bool_]:
    """Which values are not null; of types that say it inside of their values, all."""
    if array.null_count == 0 or array.schema.format in ("+r", "n") or array.schema.format.startswith("+u"):
        return np.full(array.length, array.schema.format != "n")
    bits = np.frombuffer(array.view().buffer(0), dtype=np.uint8)
    return np.unpackbits(bits, bitorder="little", count=array.offset + array.length)[array.offset :].astype(bool)


def _decimals(array: Any, width: int, scale: int) -> pl.Series:
    """Decimals that polars has no type for, as Python holds them."""
    data = bytes(array.view().buffer(1))[array.offset * width :]
    units = (int.from_bytes(data[at * width : (at + 1) * width], "little", signed=True) for at in range(array.length))
    exact = [Decimal(f"{unit}E{-scale}") if valid else None for unit, valid in zip(units, _valid(array), strict=True)]
    return pl.Series(exact, dtype=pl.Object)


def is_pandas(data: object) -> bool:
    """Whether an object is a pandas data frame. pandas itself is not loaded."""
    kind = type(data)
    return kind.__name__ == "DataFrame" and kind.__module__.split(".")[0] == "pandas"


def frame_names(frame: Any) -> tuple[str, ...]:
    """The names of a frame's columns, and of those levels of its index that have one of their own."""
    columns = tuple(str(name) for name in frame.columns)
    levels = (str(name) for name in frame.index.names if name is not None)
    return columns + tuple(name for name in levels if name not in columns)


def read_frame(frame: Any, names: tuple[str, ...]) -> Batches:
    """The rows of a frame, as these columns."""
    every, width = frame_names(frame), len(frame.columns)
    levels, rows = [str(name) for name in frame.index.names], batch_rows(len(names))

    def values(name: str, part: Any) -> Any:
        number = every.index(name)
        return part.iloc[:, number] if number < width else _as_column(part.index.get_level_values(levels.index(name)))

    for start in range(0, len(frame), rows):
        part = frame.iloc[start : start + rows]
        yield pl.DataFrame([_series(values(name, part)).alias(name) for name in names])


def frame_types(frame: Any) -> dict[str, ColumnType]:
    """The types of those columns whose pandas type says what they hold."""
    types: dict[str, ColumnType] = {}
    for number, label in enumerate(frame.columns):
        name, column = str(label), frame.iloc[:0, number]
        kind, described = column.dtype, None
        family = type(kind).__name__
        if family == "CategoricalDtype":
            listed = _series(_as_column(kind.categories))
            texts = listed.dtype in (pl.String, pl.Binary) or all(isinstance(value, str) for value in listed)
            values = na.int64() if listed.dtype.is_integer() else na.string() if texts else na.null()
            described = na.dictionary(na.int32(), values, dictionary_ordered=bool(kind.ordered))
        elif family == "DatetimeTZDtype":
            described = na.timestamp(kind.unit, str(kind.tz))
        elif getattr(kind, "kind", "") == "M":
            described = na.timestamp(np.datetime_data(kind)[0])
        elif family == "StringDtype":
            described = na.string()
        elif family == "ArrowDtype":
            described = na.c_array_stream(column).get_schema()
        elif (empty := _series(column)).dtype != pl.Object:
            types |= column_types(empty.to_frame(name))
        if described is not None:
            types[name] = column_type(na.c_schema(described))
    return types


def _series(column: Any) -> pl.Series:
    """One column of a frame."""
    kind = column.dtype
    family = type(kind).__name__
    if isinstance(kind, np.dtype) or family == "SparseDtype":
        return _of_numpy(np.asarray(column))
    if family == "CategoricalDtype":
        return _coded(column.cat.codes.to_numpy().astype(np.int64), _series(_as_column(kind.categories)))
    if family == "DatetimeTZDtype":
        # pandas gives the moments in UTC.
        return _of_numpy(column.to_numpy(dtype=f"datetime64[{kind.unit}]")).dt.replace_time_zone("UTC")
    if family == "ArrowDtype" or getattr(kind, "storage", None) == "pyarrow":
        parts = [column_of(part) for part in na.c_array_stream(column)]
        return pl.concat(parts) if parts else pl.Series([], dtype=pl.Null)
    if getattr(kind, "numpy_dtype", None) is not None:
        values = _of_numpy(column.to_numpy(dtype=kind.numpy_dtype, na_value=0))
        return _without(values, column.isna().to_numpy())
    if family == "PeriodDtype":
        # A month is written 2024-03, a year 2024, a day as ISO has it.
        return _without(pl.Series([str(value) for value in column], dtype=pl.String), column.isna().to_numpy())
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
    if family in "mM" and (unit := np.datetime_data(values.dtype)[0]) in _UNITS.values():
        ticks = _without(pl.Series(values.view(np.int64)), np.isnat(values))
        return _timed(ticks, unit, pl.Datetime if family == "M" else pl.Duration)
    if family in "mc":
        return _placeholders(~np.isnat(values) if family == "m" else ~np.isnan(values))
    return pl.Series(values.tolist(), dtype=pl.Object)


def _without(values: pl.Series, mask: NDArray[np.bool_]) -> pl.Series:
    return values.scatter(np.flatnonzero(mask), None) if mask.any() else values


def arrow_schema(place: Path | Remote, kind: str) -> Any:
    """The names and types of a file's columns."""
    from pyarrow import ipc
    from pyarrow.parquet import read_schema

    with place.open("rb") as file:
        return read_schema(file) if kind in PARQUET else ipc.open_file(file).schema


def row_groups(place: Path | Remote) -> list[int]:
    """How many rows each row group of a Parquet file has."""
    from pyarrow.parquet import read_metadata

    with place.open("rb") as file:
        footer = read_metadata(file)
    return [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]


def read_arrow(place: Remote, kind: str, span: tuple[int, int] | None, names: tuple[str, ...]) -> Batches:
    """The rows of a file in a store, or those of a span of whole row groups."""
    from pyarrow import ipc
    from pyarrow.parquet import ParquetFile

    batches: Iterator[Any]
    with place.open("rb") as file:
        if kind in PARQUET:
            opened = ParquetFile(file, pre_buffer=True)
            sizes = [opened.metadata.row_group(number).num_rows for number in range(opened.num_row_groups)]
            starts = np.cumsum([0, *sizes])[:-1].tolist()
            groups = [at for at, first in enumerate(starts) if span is None or span[0] <= first < span[1]]
            # Single-threaded: callers read many files in parallel.
            batches = opened.iter_batches(BATCH_ROWS, row_groups=groups, columns=list(names), use_threads=False)
        else:
            reader = ipc.open_file(file)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        for batch in batches:
            yield frame_of(na.c_array(batch), {name: batch.schema.get_field_index(name) for name in names})
