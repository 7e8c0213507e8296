"""Codes to values of the original columns and types.

Categories come back as they were listed, numbers uniform inside their bin (integers stay integers, dates dates),
missing as null. What happens inside a bin is not learned from the rows: it is spread evenly. A column has the type that
the schema's `output` states, or the nearest that polars has (`public.types` lists those), else the plain type of its
kind; either is public knowledge.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.draw.texts import float_texts, moment_texts
from sklar.public.schema import Attribute, Schema
from sklar.public.types import TICKS, Output, parse_output, plain_output, polars_type, units

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_MOMENT = pl.Datetime("us")
# As wide as any: what a decimal is before its precision is checked.
_DIGITS = 38

Codes: TypeAlias = NDArray[np.integer[Any]]


def column_type(attribute: Attribute) -> pl.DataType:
    """The type of a released column."""
    output, plain = _output(attribute), _plain_output(attribute)
    if output is None:
        return polars_type(plain)
    if output.name == "ordered category":
        return pl.Enum([str(value) for value in released_values(attribute)])
    if output.name == "category":
        return pl.Categorical() if plain.name == "string" else polars_type(plain)
    return polars_type(output)


def released_values(attribute: Attribute) -> list[Any]:
    """The values of a categorical attribute that a row may have, in order: those listed, then 'other'."""
    if _plain_output(attribute).name == "string":
        return [str(value) for value in attribute.values] + ["other"] * attribute.other
    return list(attribute.values)


def whole_seconds(attribute: Attribute) -> bool:
    """Whether moments are drawn without fractions of a second: where no edge has any."""
    return attribute.kind == "date" or not any(edge % _SECOND for edge in attribute.edges)


def _output(attribute: Attribute) -> Output | None:
    return None if attribute.output is None else parse_output(attribute.output)


def _plain_output(attribute: Attribute) -> Output:
    return plain_output(attribute.kind, attribute.values, other=attribute.other)


def record_schema(schema: Schema) -> pl.Schema:
    """Names and types of the columns of released records."""
    return pl.Schema({attribute.name: column_type(attribute) for attribute in schema.attributes})


def dummy_schema(schema: Schema) -> pl.Schema:
    """Names and types of the paper's dummies: 0/1 columns named `attribute=level`."""
    return pl.Schema(dict.fromkeys(schema.dummy_names, pl.UInt8()))


class Decoder:
    """Decodes any number of blocks of codes; whatever they share is worked out once.

    With `enums`, listed texts are held as an Enum of all of them: several times as fast to write where the file holds
    them likewise.
    """

    def __init__(self, schema: Schema, *, enums: bool = False) -> None:
        self.columns = record_schema(schema)
        self._attributes = schema.attributes
        listed = {attribute.name: _listed(attribute) for attribute in schema.attributes if _is_listed(attribute)}
        # Booleans that are never missing are packed into bits for all columns at once.
        self._packed = np.array(
            [
                attribute.kind == "boolean" and attribute.missing is None and kind == pl.Boolean
                for attribute, kind in zip(schema.attributes, self.columns.dtypes(), strict=True)
            ],
            dtype=bool,
        )
        if enums:
            texts = {name: values for name, values in listed.items() if values.dtype == pl.String}
            listed |= {name: values.cast(pl.Enum(values.drop_nulls())) for name, values in texts.items()}
            self.columns |= {name: listed[name].dtype for name in texts}
        # By place: a name such as * would be a pattern.
        self._looked_up = [
            pl.lit(listed[name]).gather(pl.nth(index)).alias(name)
            for index, name in enumerate(schema.names)
            if name in listed and not self._packed[index]
        ]

    def decode(self, codes: Codes, generator: np.random.Generator) -> pl.DataFrame:
        """Records of these codes, shape (m, rows)."""
        rows = codes.shape[1]
        packed = codes if self._packed.all() else codes[self._packed]
        bits = pl.Series(np.ascontiguousarray(packed).ravel()).cast(pl.Boolean)
        begins = iter(range(0, len(bits), rows or 1))
        columns = [
            bits.slice(next(begins, 0), rows)
            if packed
            else pl.Series(row)
            if _is_listed(attribute)
            else decode_column(row, attribute, generator)
            for attribute, packed, row in zip(self._attributes, self._packed, codes, strict=True)
        ]
        frame = pl.DataFrame([column.alias(name) for column, name in zip(columns, self.columns, strict=True)])
        # All columns in one go: asking polars costs as much as looking up a short column.
        return frame.with_columns(self._looked_up) if self._looked_up else frame


def decode_dummies(dummies: NDArray[np.bool_], schema: Schema) -> pl.DataFrame:
    """A frame of 0/1 columns from dummies of shape (d, rows)."""
    return pl.DataFrame(
        [pl.Series(name, row) for name, row in zip(schema.dummy_names, dummies.view(np.uint8), strict=True)]
    )


def _is_listed(attribute: Attribute) -> bool:
    return attribute.kind in ("categorical", "boolean")


def _listed(attribute: Attribute) -> pl.Series:
    """The value of every code of a categorical or boolean attribute, in a column of its type."""
    kind = column_type(attribute)
    if attribute.kind == "boolean":
        values: list[Any] = ["false", "true"] if kind == pl.String else [False, True]
    else:
        values = released_values(attribute)
    if attribute.missing_code is not None:
        values.insert(attribute.missing_code, None)
    texts = isinstance(kind, pl.Enum | pl.Categorical)
    return pl.Series([None if value is None else str(value) for value in values] if texts else values).cast(kind)


def decode_column(codes: Codes, attribute: Attribute, generator: np.random.Generator) -> pl.Series:
    """Values of one attribute's codes, shape (rows,)."""
    if _is_listed(attribute):
        return _listed(attribute).gather(pl.Series(codes))
    missing = None if attribute.missing_code is None else codes == attribute.missing_code
    # Codes may be bytes: one more than the last would not fit.
    inside = codes if missing is None else np.where(missing, 0, codes)
    values = _shaped(pl.Series(_draw(inside, attribute, generator)), attribute)
    return values if missing is None else values.set(pl.Series(missing), None)


def _draw(codes: Codes, attribute: Attribute, generator: np.random.Generator) -> NDArray[Any]:
    """Numbers inside the bins of these codes: decimals in their units, dates in days, moments in microseconds."""
    edges, output = np.asarray(attribute.edges), _output(attribute)
    if output is not None and output.name == "decimal":
        counted = np.array(units(attribute.edges, output.scale))
        return generator.integers(counted[:-1][codes], counted[1:][codes])
    low, high = edges[:-1][codes], edges[1:][codes]
    if attribute.kind == "datetime":
        # No microseconds where the edges have none.
        tick = _SECOND if whole_seconds(attribute) else TICKS[output.unit] if output and output.unit else 1
        return np.asarray(generator.integers(low // tick, high // tick) * tick)
    if attribute.kind != "real":
        return generator.integers(low, high)
    share = generator.random(codes.size)
    # Not low + (high - low) * share: the difference may overflow.
    drawn = _short(low * (1 - share) + high * share, edges)
    # Rounding may leave the bin; the upper edge belongs to the next.
    drawn = np.clip(drawn, low, np.nextafter(high, low))
    return _single(drawn, low, high) if output is not None and output.name == "float32" else drawn


def _shaped(drawn: pl.Series, attribute: Attribute) -> pl.Series:
    """Drawn numbers as a column of the attribute's type."""
    kind, output = column_type(attribute), _output(attribute)
    if isinstance(kind, pl.Decimal):
        # The product of decimals is exact: no unit is lost to rounding.
        unit = pl.Series([Decimal(1).scaleb(-kind.scale)], dtype=pl.Decimal(_DIGITS, kind.scale))
        return (drawn.cast(pl.Decimal(_DIGITS, 0)) * unit).cast(kind)
    if isinstance(kind, pl.Datetime):
        counted = drawn * _DAY if attribute.kind == "date" else drawn
        # A number is a moment in UTC, whatever the zone it is shown in.
        return counted.cast(pl.Datetime("us", kind.time_zone)).cast(kind)
    if attribute.kind == "datetime":
        moments = pl.lit(drawn.cast(_MOMENT))
        return pl.select(moment_texts(moments, _MOMENT, seconds=whole_seconds(attribute))).to_series()
    if attribute.kind == "date":
        return drawn.cast(pl.Int32).cast(pl.Date).cast(kind)
    if attribute.kind == "real" and output is not None and output.name == "string":
        return pl.select(float_texts(pl.lit(drawn))).to_series()
    return drawn.cast(kind)


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
