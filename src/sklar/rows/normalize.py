"""Batches in plain writing: texts that mean null become null, and numbers are written as Python reads them.

The schema alone says which columns hold numbers and how they are written (`public.reading`). Only texts are touched, in
whatever type a library holds them; no text raises, and each one's fate depends on itself alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import polars as pl

from sklar.public.reading import WITH_A_POINT, Reading
from sklar.public.schema import Attribute, Schema

Normalizer = Callable[[pl.DataFrame], pl.DataFrame]


def normalizer(reading: Reading, schema: Schema | None) -> Normalizer | None:
    """What puts batches of a table into plain writing, None where they are.

    Without a schema no column is known to hold numbers: only `nulls` count.
    """
    attributes = schema.attributes if schema is not None and reading.rewrites_numbers else ()
    numbers = {attribute.name: _kept(attribute) for attribute in attributes if _is_number(attribute)}
    return partial(_normalize, reading, numbers) if reading.nulls or numbers else None


def _is_number(attribute: Attribute) -> bool:
    coded = attribute.kind == "categorical" and isinstance(next(iter(attribute.values), None), int)
    return coded or attribute.kind in ("integer", "real")


def _kept(attribute: Attribute) -> frozenset[str]:
    """Texts that the schema itself gives a meaning: they stay as they were written."""
    return frozenset(text for text in (attribute.missing, *attribute.special) if isinstance(text, str))


def _normalize(reading: Reading, numbers: Mapping[str, frozenset[str]], batch: pl.DataFrame) -> pl.DataFrame:
    columns = []
    for column in batch.iter_columns():
        kept = numbers.get(column.name)
        touched = kept is not None or bool(reading.nulls)
        columns.append(_plain(column, reading, kept) if touched else column)
    return pl.DataFrame(columns)


def _plain(column: pl.Series, reading: Reading, kept: frozenset[str] | None) -> pl.Series:
    """One column; `kept` is None where it does not hold numbers."""
    kind = column.dtype
    if kind in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    elif kind == pl.Binary:
        try:
            column = column.cast(pl.String)
        except pl.exceptions.PolarsError:
            # Bytes that are not UTF-8: as the encoder reads them.
            texts = [None if value is None else value.decode(errors="replace") for value in column]
            column = pl.Series(column.name, texts, dtype=pl.String)
    if column.dtype == pl.Object:
        values = [_plain_value(value, reading, kept) for value in column]
        return pl.Series(column.name, values, dtype=pl.Object)
    return _plain_texts(column, reading, kept) if column.dtype == pl.String else column


def _plain_value(value: object, reading: Reading, kept: frozenset[str] | None) -> object:
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if not isinstance(text, str):
        return value
    if text in reading.nulls:
        return None
    return value if kept is None or text in kept else reading.plain(text)


def _plain_texts(column: pl.Series, reading: Reading, kept: frozenset[str] | None) -> pl.Series:
    text = said = pl.col("text")
    if kept is not None:
        number = text.str.replace_all(f"[{reading.grouping}]", "") if reading.grouping else text
        number = number.str.replace_all(reading.decimal, ".", literal=True)
        if reading.decimal != ".":
            other = text.str.replace_all(".", reading.decimal, literal=True)
            said = pl.when(text.str.contains(f"^(?:{WITH_A_POINT})$")).then(other).otherwise(said)
        said = pl.when(text.str.contains(f"^(?:{reading.number})$")).then(number).otherwise(said)
        if kept:
            said = pl.when(text.is_in(sorted(kept))).then(text).otherwise(said)
    if reading.nulls:
        said = pl.when(~text.is_in(list(reading.nulls))).then(said)
    return column.to_frame("text").select(said).to_series().alias(column.name)
