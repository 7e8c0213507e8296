"""Codes to values of the original columns and types.

Categories come back as they were listed, numbers uniform inside their bin (integers stay integers, dates dates),
missing as null. What happens inside a bin is not learned from the rows: it is spread evenly. A column has the type that
the schema's `output` states, else the plain type of its kind; either is public knowledge.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sklar.machine.arrays import array, strings, validity
from sklar.public.schema import Attribute, Schema
from sklar.public.types import TICKS, Output, arrow_type, parse_output, plain_output, units

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND

Codes: TypeAlias = NDArray[np.integer[Any]]


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
        self.arrow_schema = record_schema(schema)
        # Booleans that are never missing are their bits, packed for all columns at once.
        self._packed = np.array(
            [
                attribute.kind == "boolean" and attribute.missing is None and pa.types.is_boolean(field.type)
                for attribute, field in zip(attributes, self.arrow_schema, strict=True)
            ],
            dtype=bool,
        )
        self._values = [_values(attribute) if attribute.kind == "categorical" else None for attribute in attributes]
        for index, field in enumerate(self.arrow_schema if dictionaries else ()):
            if self._values[index] is not None and pa.types.is_string(field.type):
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
        return _categories(codes, attribute, values, self.arrow_schema.field(index).type)


def decode_dummies(dummies: NDArray[np.bool_], schema: Schema) -> pa.RecordBatch:
    """A batch of 0/1 columns from dummies of shape (d, rows)."""
    return pa.record_batch([array(row.view(np.uint8)) for row in dummies], schema=dummy_schema(schema))


def _values(attribute: Attribute) -> pa.Array:
    """The released values of a categorical attribute, in order: those listed, then 'other'. All, drawn or not."""
    plain, kind = _plain_type(attribute), column_type(attribute)
    if plain == pa.string():
        listed = strings([str(value) for value in attribute.values] + ["other"] * attribute.other)
    else:
        listed = array(np.array(attribute.values, dtype=np.int64))
    return listed if pa.types.is_dictionary(kind) else listed.cast(kind)


def _indices(codes: Codes, attribute: Attribute) -> pa.Array:
    """Where each code's value stands among `_values`; null where it is missing, which stands before 'other'."""
    missing = attribute.missing_code
    if missing is None:
        return array(codes.astype(np.uint16, copy=False))
    return array((codes - (codes > missing)).astype(np.uint16), codes == missing)


def _categories(codes: Codes, attribute: Attribute, values: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of this type; where that is a dictionary, one that is the same for every batch."""
    indices = _indices(codes, attribute)
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(indices.cast(kind.index_type), values, ordered=kind.ordered)
    return values.take(indices)


def decode_column(codes: Codes, attribute: Attribute, generator: np.random.Generator) -> pa.Array:
    """Values of one attribute's codes, shape (rows,)."""
    kind, output = column_type(attribute), _output(attribute)
    if attribute.kind == "categorical":
        return _categories(codes, attribute, _values(attribute), kind)
    missing = None if attribute.missing_code is None else codes == attribute.missing_code
    if attribute.kind == "boolean":
        return array(codes == 1, missing).cast(kind)
    edges = np.asarray(attribute.edges)
    # Codes may be bytes: one more than the last would not fit.
    inside = codes if missing is None else np.where(missing, 0, codes)
    if output is not None and output.name == "decimal":
        counted = np.array(units(attribute.edges, output.scale))
        return _decimals(generator.integers(counted[:-1][inside], counted[1:][inside]), missing, kind)
    low, high = edges[:-1][inside], edges[1:][inside]
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
    values = array(drawn.astype(np.int32) if attribute.kind == "date" else drawn, missing)
    if output is not None and output.name == "timestamp":
        moments = array(drawn * (_DAY if attribute.kind == "date" else 1), missing)
        # By way of a zone: a number is a moment in UTC, whatever the zone it is shown in.
        return moments.cast(pa.timestamp("us", output.zone)).cast(kind)
    plain = _plain_type(attribute)
    if attribute.kind == "datetime" and kind == pa.string() and not np.any(edges % _SECOND):
        return values.cast(plain).cast(pa.timestamp("s")).cast(kind)
    return values.cast(plain).cast(kind)


def _decimals(counted: NDArray[np.int64], missing: NDArray[np.bool_] | None, kind: pa.DataType) -> pa.Array:
    """Decimals of whole units, without rounding: Arrow holds them as 128-bit numbers of units."""
    wide = np.stack([counted, counted >> 63], axis=1)
    return pa.Array.from_buffers(kind, counted.size, [validity(missing), pa.py_buffer(wide)])


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
