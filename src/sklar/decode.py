"""Codes to values of the original columns and types.

Categories come back as they were listed, numbers uniform inside their bin (integers stay integers, dates dates),
missing as null. What happens inside a bin is not learned from the rows: it is spread evenly.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sklar.schema import Attribute, Schema

_SECOND = 1_000_000

Codes: TypeAlias = NDArray[np.integer[Any]]


def column_type(attribute: Attribute) -> pa.DataType:
    """The Arrow type of a released column."""
    if attribute.kind == "categorical":
        # With other = true a released value may be the text 'other'.
        whole = isinstance(attribute.values[0], int) and not attribute.other
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


def decode(codes: Codes, schema: Schema, generator: np.random.Generator) -> pa.RecordBatch:
    """Records of these codes, shape (m, rows)."""
    return Decoder(schema).decode(codes, generator)


class Decoder:
    """Decodes any number of blocks of codes; whatever they share is worked out once.

    With `dictionaries`, text is left as a dictionary of the attribute's values with indices into it: many times faster
    to make, and to write where a file holds it likewise.
    """

    def __init__(self, schema: Schema, *, dictionaries: bool = False) -> None:
        attributes = schema.attributes
        self._attributes = attributes
        # Booleans that are never missing are their bits, packed for all columns at once.
        self._packed = np.array(
            [attribute.kind == "boolean" and attribute.missing is None for attribute in attributes], dtype=bool
        )
        self._values = [_values(attribute) if attribute.kind == "categorical" else None for attribute in attributes]
        self._dictionaries = dictionaries
        self.arrow_schema = record_schema(schema)
        for index, field in enumerate(self.arrow_schema if dictionaries else ()):
            if pa.types.is_string(field.type):
                kind = pa.dictionary(pa.uint16(), pa.string())
                self.arrow_schema = self.arrow_schema.set(index, field.with_type(kind))

    def decode(self, codes: Codes, generator: np.random.Generator) -> pa.RecordBatch:
        """Records of these codes, shape (m, rows)."""
        rows = codes.shape[1]
        whole = bool(self._packed.all())
        bits = iter(np.packbits(codes if whole else codes[self._packed], axis=1, bitorder="little"))
        columns = [
            pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(next(bits))], 0)
            if self._packed[index]
            else self._column(index, codes[index], generator)
            for index in range(len(self._attributes))
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)

    def _column(self, index: int, codes: Codes, generator: np.random.Generator) -> pa.Array:
        attribute, values = self._attributes[index], self._values[index]
        if values is None:
            return decode_column(codes, attribute, generator)
        if not self._dictionaries or not pa.types.is_string(values.type):
            return values.take(_indices(codes, attribute))
        return pa.DictionaryArray.from_arrays(_indices(codes, attribute), values)


def decode_dummies(dummies: NDArray[np.bool_], schema: Schema) -> pa.RecordBatch:
    """A batch of 0/1 columns from dummies of shape (d, rows)."""
    return pa.record_batch([pa.array(row.view(np.uint8)) for row in dummies], schema=dummy_schema(schema))


def _values(attribute: Attribute) -> pa.Array:
    """The released values of a categorical attribute: those listed, then 'other'."""
    kind = column_type(attribute)
    values = [str(value) if kind == pa.string() else value for value in attribute.values]
    return pa.array(values + ["other"] * attribute.other, type=kind)


def _indices(codes: Codes, attribute: Attribute) -> pa.Array:
    """Where each code's value stands among `_values`; null where it is missing, which stands before 'other'."""
    missing = attribute.missing_code
    if missing is None:
        return pa.array(codes.astype(np.uint16, copy=False))
    return pa.array((codes - (codes > missing)).astype(np.uint16), mask=codes == missing)


def decode_column(codes: Codes, attribute: Attribute, generator: np.random.Generator) -> pa.Array:
    """Values of one attribute's codes, shape (rows,)."""
    kind = column_type(attribute)
    if attribute.kind == "categorical":
        return _values(attribute).take(_indices(codes, attribute))
    missing = None if attribute.missing_code is None else codes == attribute.missing_code
    if attribute.kind == "boolean":
        return pa.array(codes == 1, type=kind, mask=missing)
    edges = np.asarray(attribute.edges)
    inside = codes if missing is None else np.where(missing, 0, codes)
    low, high = edges[:-1][inside], edges[1:][inside]
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
