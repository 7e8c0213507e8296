"""Released rows as the tables of other libraries, with the types that the schema states.

pandas: whole numbers and booleans of an attribute that may be missing come as nullable types (`Int64`, `boolean`),
others as NumPy's; categories as `category`, dates and decimals as Python objects. polars: an ordered category is an
`Enum`. DuckDB needs no conversion: it queries Arrow tables as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from sklar.errors import ModelError
from sklar.machine.extras import require
from sklar.public.schema import Schema

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Library = Literal["arrow", "pandas", "polars"]


def to_library(table: pa.Table, to: str, schema: Schema | None) -> pa.Table | pd.DataFrame | pl.DataFrame:
    """The table as one of this library; `schema` says what may be missing, None that nothing may."""
    if to == "arrow":
        return table
    may_miss = set() if schema is None else {entry.name for entry in schema.attributes if entry.missing is not None}
    return _to_pandas(table, may_miss) if to == "pandas" else _to_polars(table)


def check_library(to: str) -> None:
    """Refuse a library that is not known or not installed, before any row is drawn."""
    if to not in ("arrow", "pandas", "polars"):
        raise ModelError(f"to must be 'arrow', 'pandas' or 'polars', got {to!r}.")
    if to != "arrow":
        require(to, what=f"to='{to}'", package=to, extra=to)


def _to_pandas(table: pa.Table, may_miss: set[str]) -> pd.DataFrame:
    import pandas as pd

    def nullable(kind: pa.DataType) -> object:
        if pa.types.is_boolean(kind):
            return pd.BooleanDtype()
        names = {"int": "Int", "uint": "UInt"}
        sort = str(kind).rstrip("0123456789")
        return pd.api.types.pandas_dtype(str(kind).replace(sort, names[sort])) if sort in names else None

    frame = table.to_pandas(types_mapper=nullable)
    always = [field for field in table.schema if field.name not in may_miss and nullable(field.type) is not None]
    return frame.astype({field.name: field.type.to_pandas_dtype() for field in always})


def _to_polars(table: pa.Table) -> pl.DataFrame:
    import polars as pl

    frame = pl.from_arrow(table)
    ordered = [field for field in table.schema if pa.types.is_dictionary(field.type) and field.type.ordered]
    # The dictionary is the same in every batch; an empty table has none.
    enums = {field.name: table[field.name].chunk(0).dictionary for field in ordered if table.num_rows}
    return frame.with_columns(  # type: ignore[union-attr]
        pl.col(name).cast(pl.Enum(values.cast(pa.string()).to_pylist())) for name, values in enums.items()
    )
