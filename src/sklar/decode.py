"""Codes to values of the original columns and types.

Categories come back as they were listed, numbers uniform inside their bin (integers stay integers, dates dates),
missing as null. What happens inside a bin is not learned from the rows: it is spread evenly. A column has the type that
the schema's `output` states, else the plain type of its kind; either is public knowledge.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sklar.columns import TICKS, Output, arrow_type, parse_output, plain_output, units
from sklar.schema import Attribute, Schema

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND


def column_type(attribute: Attribute) -> pa.DataType:
    """The Arrow type of a released column."""
    output = _output(attribute)
    if output is None:
        return _plain_type(attribute)
    if output.name.endswith("category"):
        return pa.dictionary(pa.int32(), _plain_type(attribute), ordered=output.name.startswith("ordered"))
    return arrow_type(output)


def _output(attribute: Attribute) -> Output | None:
    return None if attribute.output is None else parse_output(attribute.output)


def _plain_type(attribute: Attribute) -> pa.DataType:
    return arrow_type(plain_output(attribute.kind, attribute.values, other=attribute.other))


def record_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of released records."""
    return pa.schema([(attribute.name, column_type(attribute)) for attribute in schema.attributes])


def dummy_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of the paper's dummies: 0/1 columns named `attribute=level`."""
    return pa.schema([(name, pa.uint8()) for name in schema.dummy_names])


def decode(codes: NDArray[np.int32], schema: Schema, generator: np.random.Generator) -> pa.RecordBatch:
    """Records of these codes, shape (m, rows)."""
    columns = [decode_column(codes[i], attribute, generator) for i, attribute in enumerate(schema.attributes)]
    return pa.record_batch(columns, schema=record_schema(schema))


def decode_dummies(dummies: NDArray[np.bool_], schema: Schema) -> pa.RecordBatch:
    """A batch of 0/1 columns from dummies of shape (d, rows)."""
    return pa.record_batch([pa.array(row.view(np.uint8)) for row in dummies], schema=dummy_schema(schema))


def decode_column(codes: NDArray[np.int32], attribute: Attribute, generator: np.random.Generator) -> pa.Array:
    """Values of one attribute's codes, shape (rows,)."""
    kind, output = column_type(attribute), _output(attribute)
    missing = codes == (-1 if attribute.missing_code is None else attribute.missing_code)
    if attribute.kind == "categorical":
        return _decode_categories(codes, attribute, kind)
    if attribute.kind == "boolean":
        return pa.array(codes == 1, mask=missing).cast(kind)
    edges = np.asarray(attribute.edges)
    inside = np.where(missing, 0, codes)
    if output is not None and output.name == "decimal":
        counted = np.array(units(attribute.edges, output.scale))
        return _decimals(generator.integers(counted[inside], counted[inside + 1]), missing, kind)
    low, high = edges[inside], edges[inside + 1]
    drawn: NDArray[Any]
    if attribute.kind == "real":
        share = generator.random(codes.size)
        # Not low + (high - low) * share: the difference may overflow.
        drawn = _short(low * (1 - share) + high * share, edges)
        # Rounding may leave the bin; the upper edge belongs to the next.
        drawn = np.clip(drawn, low, np.nextafter(high, low))
        if output is not None and output.name == "float32":
            drawn = _single(drawn, low, high)
    elif attribute.kind == "datetime":
        # Likewise, no microseconds where the edges have none.
        tick = _SECOND if not np.any(edges % _SECOND) else TICKS[output.unit] if output and output.unit else 1
        drawn = generator.integers(low // tick, high // tick) * tick
    else:
        drawn = generator.integers(low, high)
    values = pa.array(drawn.astype(np.int32) if attribute.kind == "date" else drawn, mask=missing)
    if output is not None and output.name == "timestamp":
        moments = pa.array(drawn * (_DAY if attribute.kind == "date" else 1), mask=missing)
        # By way of a zone: a number is a moment in UTC, whatever the zone it is shown in.
        return moments.cast(pa.timestamp("us", output.zone)).cast(kind)
    plain = _plain_type(attribute)
    if attribute.kind == "datetime" and kind == pa.string() and not np.any(edges % _SECOND):
        return values.cast(plain).cast(pa.timestamp("s")).cast(kind)
    return values.cast(plain).cast(kind)


def _decode_categories(codes: NDArray[np.int32], attribute: Attribute, kind: pa.DataType) -> pa.Array:
    values: list[Any] = list(attribute.values)
    if attribute.other:
        values = [str(value) for value in values]
    if attribute.missing is not None:
        values.append(None)
    if attribute.other:
        values.append("other")
    if not pa.types.is_dictionary(kind):
        return pa.array(values, type=_plain_type(attribute)).cast(kind).take(pa.array(codes))
    # All public values, whether drawn or not, in their order: one dictionary for every batch.
    named = [value for value in values if value is not None]
    missing = codes == (-1 if attribute.missing_code is None else attribute.missing_code)
    places = np.where(codes == attribute.other_code, len(named) - 1, codes) if attribute.other else codes
    return pa.DictionaryArray.from_arrays(
        pa.array(places, type=pa.int32(), mask=missing), pa.array(named, type=kind.value_type), ordered=kind.ordered
    )


def _decimals(counted: NDArray[np.int64], missing: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    """Decimals of whole units, without rounding: Arrow holds them as 128-bit numbers of units."""
    wide = np.stack([counted, counted >> 63], axis=1)
    whole = pa.Array.from_buffers(kind, counted.size, [None, pa.py_buffer(np.ascontiguousarray(wide))])
    return pc.if_else(pa.array(missing), pa.scalar(None, kind), whole) if missing.any() else whole


def _single(drawn: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float32]:
    """Single-precision numbers inside their bins."""
    single = drawn.astype(np.float32)
    single = np.where(single.astype(np.float64) >= high, np.nextafter(single, np.float32(-np.inf)), single)
    return np.where(single.astype(np.float64) < low, np.nextafter(single, np.float32(np.inf)), single)


def _short(drawn: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Four digits within the narrowest bin: more would suggest a precision that the bins do not have."""
    with np.errstate(over="ignore"):
        grid = 10.0 ** (4 - np.floor(np.log10(np.diff(edges).min())))
        exact = grid > 0 and np.abs(edges).max() * grid < 2**53
        return np.floor(drawn * grid) / grid if exact else drawn
