"""Record batches to integer codes, by the schema alone.

Every value gets a code of its attribute or -1, "in no cell"; which one depends on that value and the schema only, and
no value raises. Nulls, empty texts and the missing text go to `missing`; unlisted categories to `other`, else
`missing`; numbers outside the edges to the end bins, or to `missing` when the schema says so; what has no such home
gets -1. A number or date equal to the missing text is missing too, whatever the column's type. Times with a zone are
taken in UTC.
"""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_right
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sklar.machine.arrays import array, filled, held
from sklar.public.axis import days, parse_edge, parse_number
from sklar.public.schema import BINNED, FALSE_TEXTS, TRUE_TEXTS, Attribute, Schema

NO_CELL = -1


def encode(batch: pa.RecordBatch, schema: Schema) -> NDArray[np.int32]:
    """Codes of a batch whose columns are the schema's attributes in order, shape (m, rows).

    Invariant: -1 <= codes[i] < n_levels of attribute i.
    """
    schema.require_found()
    codes = np.empty((schema.n_attributes, batch.num_rows), dtype=np.int32)
    for index, attribute in enumerate(schema.attributes):
        codes[index] = encode_column(batch.column(index), attribute)
    return codes


def encode_column(column: pa.Array, attribute: Attribute) -> NDArray[np.int32]:
    """Codes of one column, shape (rows,)."""
    column = plain(column)
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), null_code(attribute), dtype=np.int32)
    if pa.types.is_dictionary(kind):
        # Nulls may stand among the indices and inside the dictionary.
        lookup = np.append(encode_column(column.dictionary, attribute), np.int32(null_code(attribute)))
        return lookup.take(positions(column))
    if opaque(kind):
        return _with_nulls(column, np.full(len(column), unknown_code(attribute), dtype=np.int32), attribute)
    if pa.types.is_boolean(kind) and attribute.kind == "boolean":
        return _with_nulls(column, filled(column).astype(np.int32), attribute)
    numbers = _numbers(column, attribute)
    if numbers is not None:
        return _with_nulls(column, _bins(numbers, attribute), attribute)
    code_of = coder(attribute)
    encoded = distinct(column)
    lookup = np.array([code_of(value) for value in [*values_of(encoded.dictionary), None]], dtype=np.int32)
    return lookup.take(positions(encoded))


def ready_bits(column: pa.Array, attribute: Attribute) -> NDArray[np.uint8] | None:
    """A column of true and false as bits, eight rows to a byte, where Arrow holds it so; None where it does not.

    Bit r % 8 of byte r // 8 is row r's code. Bits past the last row may be anything.
    """
    if attribute.kind != "boolean" or not isinstance(column, pa.BooleanArray):
        return None
    if column.null_count or column.offset % 8 or len(column) == 0:
        return None
    start = column.offset // 8
    return np.frombuffer(column.buffers()[1], dtype=np.uint8)[start : start - (-len(column) // 8)]


def null_code(attribute: Attribute) -> int:
    """The code of a null or an empty text."""
    return next(
        (code for code in (attribute.missing_code, attribute.other_code) if code is not None),
        NO_CELL,
    )


def unknown_code(attribute: Attribute) -> int:
    """The code of a value that the domain does not hold and that cannot be clipped into it."""
    return next(
        (code for code in (attribute.other_code, attribute.missing_code) if code is not None),
        NO_CELL,
    )


def coder(attribute: Attribute) -> Callable[[object], int]:
    """A function from one value (text, number, date, None) to its code. It never raises."""
    nothing, unknown = null_code(attribute), unknown_code(attribute)
    known: dict[str, int] = {}
    if attribute.kind == "categorical":
        known = {str(value): code for code, value in enumerate(attribute.values)}
    if attribute.missing is not None:
        known.setdefault(attribute.missing, nothing)
    known.setdefault("", nothing)
    sentinel = missing_number(attribute)
    whole = attribute.kind == "categorical" and isinstance(next(iter(attribute.values), None), int)

    def categorical(value: object) -> int:
        text = text_of(value)
        code = known.get(text)
        if code is None and whole:
            number = parse_number(text)
            code = known.get(str(int(number))) if number is not None and number == number // 1 else None
        return unknown if code is None else code

    def boolean(value: object) -> int:
        text = text_of(value).strip().lower()
        if text in TRUE_TEXTS or text in FALSE_TEXTS:
            return int(text in TRUE_TEXTS)
        return known.get(text_of(value), nothing if not text else unknown)

    def binned(value: object) -> int:
        text = text_of(value)
        if text in known or not text.strip():
            return known.get(text, nothing)
        edge = parse_edge(text, attribute.kind)
        if edge is None:
            return unknown
        return nothing if edge != edge or edge == sentinel else _bin(edge, attribute)

    choose = {"categorical": categorical, "boolean": boolean}.get(attribute.kind, binned)
    return lambda value: nothing if is_nothing(value) else choose(value)


def is_nothing(value: object) -> bool:
    """Whether a value is null or not a number: columns without nulls use the one for the other."""
    return value is None or value != value


def missing_number(attribute: Attribute) -> int | float | None:
    """The missing text as a number on the attribute's axis (-1, 999, 9999-12-31), None when it is none."""
    return parse_edge(attribute.missing or "", attribute.kind) if attribute.kind in BINNED else None


def plain(column: pa.Array) -> pa.Array:
    """The column without extension types and run ends."""
    while isinstance(column, pa.ExtensionArray | pa.RunEndEncodedArray):
        column = column.storage if isinstance(column, pa.ExtensionArray) else pc.run_end_decode(column)
    return column


def distinct(column: pa.Array) -> pa.DictionaryArray:
    """The column with each of its values once, where Arrow can do that for its type."""
    try:
        return column.dictionary_encode()
    except pa.ArrowNotImplementedError:
        return pa.DictionaryArray.from_arrays(array(np.arange(len(column))), column)


def positions(column: pa.DictionaryArray) -> NDArray[np.integer[Any]]:
    """Where each row's value stands in the dictionary; the position after its last for a null."""
    indices = column.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(array(np.array([len(column.dictionary)]))[0])
    return held(indices)


def opaque(kind: pa.DataType) -> bool:
    """Whether values of this Arrow type can be in no domain: lists, structs, durations, times of day."""
    times = pa.types.is_time(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind)
    return bool(times or pa.types.is_nested(kind))


def values_of(dictionary: pa.Array) -> list[object]:
    """Distinct values as Python objects, one by one: no value may make the others fail."""
    kind = dictionary.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        # Invalid UTF-8 would raise as text.
        dictionary = dictionary.cast(pa.large_binary())
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        # Python's dates end with year 9999.
        number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        ticking = dictionary.cast(number)
        per_day = {"day": 1, "s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 0}
        ticks = per_day[kind.unit] if pa.types.is_timestamp(kind) else 1 if pa.types.is_date32(kind) else 86_400_000
        if ticks:
            first, last = (np.asarray(days(day) * ticks) for day in (dt.date.min, dt.date.max))
            clipped = np.clip(filled(ticking), first, last)
            ticking = array(clipped, held(dictionary.is_null())).cast(number)
        # Without its zone, which this machine may not know: UTC.
        dictionary = ticking.cast(pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind).cast(pa.string())
    return dictionary.to_pylist()  # type: ignore[no-any-return]


def text_of(value: object) -> str:
    """A value as the text that a CSV file would hold."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float | Decimal) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)


def _bin(edge: int | float, attribute: Attribute) -> int:
    edges, last = attribute.edges, attribute.n_values - 1
    index = bisect_right(edges, edge) - 1
    if index > last and attribute.kind == "real" and edge == edges[-1]:
        index = last
    if 0 <= index <= last:
        return index
    if attribute.outside == "missing":
        return null_code(attribute)
    return 0 if index < 0 else last


def _numbers(column: pa.Array, attribute: Attribute) -> NDArray[np.int64] | NDArray[np.float64] | None:
    """The column as numbers on the attribute's axis when its Arrow type allows that directly, else None."""
    kind = column.type
    if attribute.kind in ("integer", "real"):
        if pa.types.is_decimal(kind):
            column = column.cast(pa.float64(), safe=False)
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return None
        numbers = filled(column)
        if numbers.dtype == np.uint64 and attribute.kind == "integer":
            numbers = np.minimum(numbers, np.uint64(2**63 - 1))
        floats = attribute.kind == "real" or numbers.dtype.kind == "f"
        return numbers.astype(np.float64) if floats else numbers.astype(np.int64)
    if attribute.kind == "date" and pa.types.is_date32(kind):
        return filled(column.cast(pa.int32())).astype(np.int64)
    if attribute.kind in ("date", "datetime") and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        if pa.types.is_date32(kind):
            column = column.cast(pa.int32()).cast(pa.int64())
            ticks = 86_400_000_000
        elif pa.types.is_date64(kind):
            column, ticks = column.cast(pa.int64()), 1_000
        else:
            ticks = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0}[kind.unit]
            column = (
                column.cast(pa.timestamp(kind.unit)).cast(pa.int64()) if kind.tz is None else column.cast(pa.int64())
            )
        values = filled(column).astype(np.int64)
        if ticks == 0:
            values = values // 1_000
        else:
            bound = (2**63 - 1) // ticks
            values = np.clip(values, -bound, bound) * ticks
        return values // 86_400_000_000 if attribute.kind == "date" else values
    return None


def _bins(numbers: NDArray[np.int64] | NDArray[np.float64], attribute: Attribute) -> NDArray[np.int32]:
    codes = _looked_up(numbers, attribute)
    if codes is None:
        codes = _searched(numbers, attribute)
    sentinel = missing_number(attribute)
    if sentinel is not None:
        codes[numbers == sentinel] = null_code(attribute)
    return codes


def _searched(numbers: NDArray[np.int64] | NDArray[np.float64], attribute: Attribute) -> NDArray[np.int32]:
    """Bins by a search among the edges, for any numbers."""
    edges = np.asarray(attribute.edges)
    last = attribute.n_values - 1
    index = np.searchsorted(edges, numbers, side="right") - 1
    if attribute.kind == "real":
        index[numbers == edges[-1]] = last
    outside = (index < 0) | (index > last)
    codes = np.clip(index, 0, last).astype(np.int32)
    if attribute.outside == "missing":
        codes[outside] = null_code(attribute)
    if numbers.dtype.kind == "f":
        codes[np.isnan(numbers)] = null_code(attribute)
    return codes


def _looked_up(numbers: NDArray[np.int64] | NDArray[np.float64], attribute: Attribute) -> NDArray[np.int32] | None:
    """The same for whole numbers whose edges are few steps of one width apart, several times as fast; else None."""
    if numbers.dtype.kind == "f" or attribute.kind == "real":
        return None
    first, last = (int(edge) for edge in (attribute.edges[0], attribute.edges[-1]))
    width = math.gcd(*(int(edge) - first for edge in attribute.edges))
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
    return codes.take(step)


def _with_nulls(column: pa.Array, codes: NDArray[np.int32], attribute: Attribute) -> NDArray[np.int32]:
    if column.null_count:
        codes[held(column.is_null())] = null_code(attribute)
    return codes
