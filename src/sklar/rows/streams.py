"""Tables that other libraries hold, through Arrow's C stream interface, column by column.

A stream is read once, batch by batch. Only the wanted columns are handed to polars, and only in types that it takes
without looking at a value: texts as bytes, because they may not be UTF-8; times without their zone's name, which this
machine may not know; nested values as placeholders, because they can be in no domain. So no value, and no column that
the schema leaves out, can make reading fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.errors import DataError, SklarError
from sklar.machine.extras import lazily

na = lazily("nanoarrow")

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
