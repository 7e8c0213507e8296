"""Codes to values of the original columns and types.

Categories come back as they were listed, numbers uniform inside their bin (integers stay integers, dates dates),
missing as null. What happens inside a bin is not learned from the rows: it is spread evenly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sklar.schema import Attribute, Schema

_SECOND = 1_000_000


def column_type(attribute: Attribute) -> pa.DataType:
    """The Arrow type of a released column."""
    if attribute.kind == "categorical":
        # With other = true a released value may be the text 'other'.
        whole = isinstance(next(iter(attribute.values), None), int) and not attribute.other
        return pa.int64() if whole else pa.string()
    return {
        "boolean": pa.bool_(),
        "integer": pa.int64(),
        "real": pa.float64(),
        "date": pa.date32(),
        "datetime": pa.timestamp("us"),
    }[attribute.kind]


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
    kind = column_type(attribute)
    missing = codes == (-1 if attribute.missing_code is None else attribute.missing_code)
    if attribute.kind == "categorical":
        values: list[Any] = list(attribute.values)
        if attribute.missing is not None:
            values.append(None)
        if attribute.other:
            values = [None if value is None else str(value) for value in values] + ["other"]
        return pa.array(values, type=kind).take(pa.array(codes))
    if attribute.kind == "boolean":
        return pa.array(codes == 1, type=kind, mask=missing)
    edges = np.asarray(attribute.edges)
    inside = np.where(missing, 0, codes)
    low, high = edges[inside], edges[inside + 1]
    drawn: NDArray[Any]
    if attribute.kind == "real":
        share = generator.random(codes.size)
        # Not low + (high - low) * share: the difference may overflow.
        drawn = _short(low * (1 - share) + high * share, edges)
        # Rounding may leave the bin; the upper edge belongs to the next.
        drawn = np.clip(drawn, low, np.nextafter(high, low))
    elif attribute.kind == "datetime" and not np.any(edges % _SECOND):
        # Likewise, no microseconds where the edges have none.
        drawn = generator.integers(low // _SECOND, high // _SECOND) * _SECOND
    else:
        drawn = generator.integers(low, high)
    if attribute.kind == "date":
        drawn = drawn.astype(np.int32)
    return pa.array(drawn, mask=missing).cast(kind)


def _short(drawn: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Four digits within the narrowest bin: more would suggest a precision that the bins do not have."""
    with np.errstate(over="ignore"):
        grid = 10.0 ** (4 - np.floor(np.log10(np.diff(edges).min())))
        exact = grid > 0 and np.abs(edges).max() * grid < 2**53
        return np.floor(drawn * grid) / grid if exact else drawn
