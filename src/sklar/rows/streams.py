"""Tables that other libraries hold: Arrow streams, pandas frames, and files that pyarrow reads, column by column.

An Arrow stream is read once, batch by batch. Only the wanted columns are handed to polars, and only in types that it
takes without looking at a value: texts as bytes, because they may not be UTF-8; times without their zone's name, which
this machine may not know; nested values as placeholders, because they can be in no domain. So no value, and no column
that the schema leaves out, can make reading fail.

pandas exports a frame to Arrow only where pyarrow is installed and no value spoils it (one number among the texts of a
column). So frames are read by their columns' types, and Python objects are handed on to be encoded one by one.

pyarrow is loaded only where polars does not reach a file. Of a footer the numbers of rows are taken, never statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.errors import DataError, SklarError
from sklar.machine.extras import lazily
from sklar.machine.stores import Remote
from sklar.public.importers.arrow import PARQUET, ColumnType, column_type, column_types
from sklar.public.outputs import parse_output

na = lazily("nanoarrow")

_ROWS_AT_ONCE = 1 << 16
_SECONDS = (2**63 - 1) // 1_000
_TEXTS = {"u": "z", "U": "Z"}
# Numbers, booleans, bytes, dates and nulls, which pass as they are.
_PLAIN = {"n", "b", "c", "C", "s", "S", "i", "I", "l", "L", "e", "f", "g", "z", "Z", "tdD"}
_PER_SECOND = {"s": 1, "m": 1_000, "u": 1_000_000, "n": 1_000_000_000}
_NUMPY = {"c": "i1", "C": "u1", "s": "i2", "S": "u2", "i": "i4", "I": "u4", "l": "i8", "L": "u8"}


class _Renamed:
    """An array under a schema that says what polars shall take it for."""

    def __init__(self, schema: Any, array: Any) -> None:
        self._schema, self._array = schema, array

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        del requested_schema
        return self._schema.__arrow_c_schema__(), self._array.__arrow_c_array__()[1]


def read_stream(stream: Any, close: Callable[[], None], names: tuple[str, ...]) -> Iterator[pl.DataFrame]:
    """The batches of a stream of records, as these columns; `close` is called at their end."""
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
    # A batch may be a part of what its columns hold.
    return pl.DataFrame([column.slice(batch.offset, batch.length) for column in columns])


def column_of(array: Any) -> pl.Series:
    """One column of an Arrow array of any type."""
    schema = array.schema
    kind = schema.format
    if schema.dictionary is not None:
        codes = _numbers(array, _NUMPY[kind]).astype(np.int64)
        return coded(np.where(_valid(array), codes, -1), column_of(array.dictionary))
    if kind == "+r":
        ends, values = array.child(0), column_of(array.child(1))
        places = np.searchsorted(
            _numbers(ends, _NUMPY[ends.schema.format]), array.offset + np.arange(array.length), side="right"
        )
        return values.gather(places)
    if kind in _PLAIN or kind in _TEXTS or kind.startswith("w:"):
        return _passed(array, _TEXTS.get(kind, kind))
    if kind == "tdm":
        # Polars would take days that are held in milliseconds for moments.
        return (_passed(array, "l") // 86_400_000).clip(-(2**31), 2**31 - 1).cast(pl.Int32).cast(pl.Date)
    if kind in ("vu", "vz"):
        return _viewed(array)
    if kind.startswith("ts"):
        unit, zone = kind[2], "UTC" if kind[4:] else ""
        if unit != "s":
            return _passed(array, f"ts{unit}:{zone}")
        return of_seconds(_passed(array, "l"), zone or None)
    if kind.startswith("tt"):
        ticks = _passed(array, "i" if kind[2] in "sm" else "l").cast(pl.Int64)
        per_day = 86_400 * _PER_SECOND[kind[2]]
        return (ticks.clip(0, per_day - 1) * (86_400_000_000_000 // per_day)).cast(pl.Time)
    if kind.startswith("tD"):
        return of_spans(_passed(array, "l"), {"m": "ms", "u": "us", "n": "ns"}.get(kind[2], "s"))
    if kind.startswith("d:"):
        precision, scale, *width = (int(part) for part in kind[2:].split(","))
        if precision <= 38 and 0 <= scale <= precision and width != [256]:
            return _passed(array, kind)
        return _decimals(array, (width or [128])[0] // 8, scale)
    return placeholders(_valid(array))


def coded(codes: NDArray[np.int64], values: pl.Series) -> pl.Series:
    """Values by their place in a list, -1 for null: an Enum where the list can be one, else the values themselves."""
    codes = np.where((codes >= 0) & (codes < len(values)), codes, -1)
    places = pl.Series(codes).replace(-1, None)
    texts = _as_texts(values)
    if texts is None or texts.null_count() or texts.n_unique() < len(texts):
        return values.gather(places)
    return places.cast(pl.UInt32).cat.to(pl.Enum(texts))


def of_seconds(seconds: pl.Series, zone: str | None = None) -> pl.Series:
    """Moments that are held in seconds: polars has milliseconds, and would let them overflow without a word."""
    return (seconds.clip(-_SECONDS, _SECONDS) * 1_000).cast(pl.Datetime("ms", zone))


def of_spans(ticks: pl.Series, unit: str) -> pl.Series:
    """Durations in this unit; those in seconds are held as moments in seconds are."""
    if unit == "s":
        return (ticks.clip(-_SECONDS, _SECONDS) * 1_000).cast(pl.Duration("ms"))
    return ticks.cast(pl.Duration(unit))  # type: ignore[arg-type]


def placeholders(valid: NDArray[np.bool_]) -> pl.Series:
    """Values that are in no domain, whatever they are, or null."""
    return pl.select(pl.when(pl.Series(valid)).then(pl.struct(pl.lit(0)))).to_series()


def _as_texts(values: pl.Series) -> pl.Series | None:
    if values.dtype not in (pl.String, pl.Binary) and not values.dtype.is_integer():
        return None
    try:
        return values.cast(pl.String)
    except pl.exceptions.PolarsError:
        return None


def _passed(array: Any, kind: str) -> pl.Series:
    # Without what an extension type or pandas wrote beside it.
    return pl.Series(_Renamed(array.schema.modify(format=kind, metadata={}), array))


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


def _buffer(array: Any, number: int) -> Any:
    return array.view().buffer(number)


def _numbers(array: Any, kind: str) -> NDArray[Any]:
    if not array.length:
        return np.empty(0, dtype=kind)
    return np.frombuffer(_buffer(array, 1), dtype=kind)[array.offset : array.offset + array.length]


def _valid(array: Any) -> NDArray[np.bool_]:
    """Which values are not null; of types that say it inside of their values, all."""
    if array.null_count == 0 or array.schema.format in ("+r", "n") or array.schema.format.startswith("+u"):
        return np.full(array.length, array.schema.format != "n")
    bits = np.frombuffer(_buffer(array, 0), dtype=np.uint8)
    return np.unpackbits(bits, bitorder="little", count=array.offset + array.length)[array.offset :].astype(bool)


def _decimals(array: Any, width: int, scale: int) -> pl.Series:
    """Decimals that polars has no type for, as Python holds them."""
    data, first = bytes(_buffer(array, 1)), array.offset
    units = [
        int.from_bytes(data[at * width : (at + 1) * width], "little", signed=True)
        for at in range(first, first + array.length)
    ]
    exact = [Decimal(f"{unit}E{-scale}") if valid else None for unit, valid in zip(units, _valid(array), strict=True)]
    return pl.Series(exact, dtype=pl.Object)


def open_stream(data: object) -> tuple[Any, Any]:
    """The stream of a table that exports one, and its schema."""
    try:
        stream = na.c_array_stream(data)
        schema = stream.get_schema()
    except SklarError:
        raise
    except Exception:
        # What a library says may quote a cell.
        schema = None
    if schema is None or schema.format != "+s":
        raise DataError(
            f"the table of type {type(data).__name__} does not export an Arrow stream. It must be a table of rows and "
            "named columns."
        )
    return stream, schema


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


def arrow_schema(place: Path | Remote, kind: str) -> Any:
    """The names and types of a file's columns."""
    if kind in PARQUET:
        from pyarrow.parquet import read_schema

        with place.open("rb") as file:
            return read_schema(file)
    from pyarrow import ipc

    with place.open("rb") as file:
        return ipc.open_file(file).schema


def row_groups(place: Path | Remote) -> list[int]:
    """How many rows each row group of a Parquet file has."""
    from pyarrow.parquet import read_metadata

    with place.open("rb") as file:
        footer = read_metadata(file)
    return [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]


def read_arrow(
    place: Remote, kind: str, span: tuple[int, int] | None, names: tuple[str, ...]
) -> Iterator[pl.DataFrame]:
    """The rows of a file in a store, or those of a span of whole row groups."""
    with place.open("rb") as file:
        for batch in _parquet(file, span, names) if kind in PARQUET else _arrow(file):
            places = {name: batch.schema.get_field_index(name) for name in names}
            yield frame_of(na.c_array(batch), places)


def _parquet(file: Any, span: tuple[int, int] | None, names: tuple[str, ...]) -> Iterator[Any]:
    from pyarrow.parquet import ParquetFile

    opened, wanted, at = ParquetFile(file, pre_buffer=True), [], 0
    for number in range(opened.num_row_groups):
        if span is None or span[0] <= at < span[1]:
            wanted.append(number)
        at += opened.metadata.row_group(number).num_rows
    # Without threads of its own: whoever reads many files reads them side by side.
    yield from opened.iter_batches(_ROWS_AT_ONCE, row_groups=wanted, columns=list(names), use_threads=False)


def _arrow(file: Any) -> Iterator[Any]:
    from pyarrow import ipc

    reader = ipc.open_file(file)
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)
