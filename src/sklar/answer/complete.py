"""Rows whose nulls are filled from a model, given the rest of each row: post-processing of noisy tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import Copula
from sklar.draw.decode import Decoder, Shape
from sklar.draw.given import Domains, fill
from sklar.errors import ModelError
from sklar.machine.extras import lazily
from sklar.public.schema import Attribute, Schema

if TYPE_CHECKING:
    import polars as pl
else:
    pl = lazily("polars")


def complete_rows(copula: Copula, rows: object, shapes: Mapping[str, Shape], seed: int) -> pl.DataFrame:
    """The rows with all attributes of the schema, nulls filled from the model given the rest of each row."""
    schema = copula.schema.whole or copula.schema
    frame = _frame(rows, schema)
    codes = {name: _codes(frame[name], schema.attribute(name)) for name in frame.columns}
    domains = _domains(schema, codes, frame.height)
    filled = schema.complete(fill(copula, domains, seed))
    generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, 8])))
    drawn = Decoder(schema, shapes=shapes).decode(filled, generator)
    return pl.DataFrame([_kept(frame[name], drawn[name]) if name in codes else drawn[name] for name in schema.names])


def _frame(rows: object, schema: Schema) -> pl.DataFrame:
    if not isinstance(rows, pl.DataFrame) and not hasattr(rows, "__arrow_c_stream__"):
        raise ModelError(
            f"rows must be a table of polars, pandas or Arrow, got {type(rows).__name__}. Read a file first: "
            "polars.read_csv."
        )
    frame = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(rows)
    unknown = [name for name in frame.columns if name not in schema.names]
    if unknown:
        listed = ", ".join(schema.names[:12])
        raise ModelError(f"the schema has no attribute '{unknown[0]}'. Drop or rename that column; it has: {listed}.")
    # Not a number is how some libraries write null.
    return frame.with_columns(pl.selectors.float().fill_nan(None))


def _codes(column: pl.Series, attribute: Attribute) -> NDArray[np.int64]:
    """The level of every value, shape (rows,); -1 for null."""
    distinct = column.unique().drop_nulls()
    known = [_code(attribute, value) for value in distinct.to_list()]
    codes = column.replace_strict(distinct, pl.Series(known, dtype=pl.Int64), default=None, return_dtype=pl.Int64)
    return codes.fill_null(-1).to_numpy().astype(np.int64)


def _code(attribute: Attribute, value: Any) -> int:
    """The level of one value; one that is outside the domain is refused unless it has a level there."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    code = attribute.code_named(text)
    if code is None and attribute.binned:
        number = attribute.number_of(value.isoformat() if hasattr(value, "isoformat") else text)
        code = None if number is None else attribute.code_at(number)
    elif code is None:
        code = attribute.other_code
    if code is None:
        raise ModelError(
            f"column '{attribute.name}': {text!r} is outside the attribute's domain. Correct it, or make it null to "
            "have it filled."
        )
    return code


def _domains(schema: Schema, codes: Mapping[str, NDArray[np.int64]], rows: int) -> list[Domains]:
    """The levels of each measured attribute that every row allows; a filled value is never missing."""
    domains = []
    for place, attribute in enumerate(schema.measured.attributes):
        free = np.ones(attribute.n_levels, dtype=bool)
        if attribute.missing_code is not None and attribute.n_levels > 1:
            free[attribute.missing_code] = False
        # Code -1, null, is the last row of each table.
        tables = [np.vstack([np.eye(attribute.n_levels, dtype=bool), free])]
        kinds = [codes.get(attribute.name, np.full(rows, -1)) % (attribute.n_levels + 1)]
        for name, (source, levels) in zip(schema.names, schema.sources, strict=True):
            if source == place and name != attribute.name and name in codes:
                size = schema.attribute(name).n_levels
                tables.append(np.vstack([np.arange(size)[:, None] == levels, np.ones(levels.size, dtype=bool)]))
                kinds.append(codes[name] % (size + 1))
        together, which = np.unique(np.stack(kinds), axis=1, return_inverse=True)
        allowed = np.logical_and.reduce([table[kind] for table, kind in zip(tables, together, strict=True)])
        empty = ~allowed.any(axis=1)[which.ravel()]
        if empty.any():
            raise ModelError(
                f"row {int(np.argmax(empty)) + 1:,}: its values contradict the rule by which '{attribute.name}' "
                "determines others. Correct the row."
            )
        domains.append(Domains(allowed=allowed, kinds=which.ravel()))
    return domains


def _kept(given: pl.Series, drawn: pl.Series) -> pl.Series:
    """A column with its values as they were given, where they are of the released type, and its nulls filled."""
    try:
        return given.cast(drawn.dtype).fill_null(drawn)
    except pl.exceptions.PolarsError:
        raise ModelError(
            f"column '{drawn.name}' must be of type {drawn.dtype} or convert to it, got {given.dtype}. Convert it."
        ) from None
