"""Released rows as the tables of other libraries, with exactly the types that the schema states.

polars: rows are drawn as a frame of polars, with its nearest types. Arrow: every type as the schema spells it. pandas:
whole numbers and booleans of an attribute that may be missing come as nullable types (`Int64`, `boolean`), others as
NumPy's; categories as `category`, dates and decimals as Python objects. DuckDB needs no conversion: it queries frames
of polars and Arrow tables as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sklar.draw.decode import released_values
from sklar.errors import ModelError
from sklar.machine.extras import lazily, require
from sklar.public.outputs import arrow_type, output_of, plain_output
from sklar.public.schema import Attribute, Schema

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
else:
    pl = lazily("polars")

Library = Literal["polars", "pandas", "arrow"]

# What each library's tables are made with, and the extra that installs it.
_NEEDED = {"polars": (), "pandas": ("pandas", "pyarrow"), "arrow": ("pyarrow",)}


def check_library(to: str) -> None:
    """Refuse a library that is not known or not installed, before any row is drawn."""
    if to not in _NEEDED:
        raise ModelError(f"to must be 'polars', 'pandas' or 'arrow', got {to!r}.")
    for package in _NEEDED[to]:
        require(package, what=f"to='{to}'", package=package, extra=to)


def to_library(frame: pl.DataFrame, to: str, schema: Schema | None) -> pl.DataFrame | pd.DataFrame | pa.Table:
    """The frame as a table of this library; `schema` says what its columns are, None that they are dummies."""
    if to == "polars":
        return frame
    table = to_arrow(frame, schema)
    if to == "arrow":
        return table
    may_miss = set() if schema is None else {entry.name for entry in schema.attributes if entry.missing is not None}
    return _to_pandas(table, may_miss)


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of released records."""
    import pyarrow as pa

    return pa.schema([(attribute.name, _arrow_type(attribute)) for attribute in schema.attributes])


def to_arrow(frame: pl.DataFrame, schema: Schema | None) -> pa.Table:
    """Released rows as an Arrow table; `schema` says what its columns are, None that they are dummies."""
    import pyarrow as pa

    if schema is None:
        return pa.table({column.name: _exported(column) for column in frame.iter_columns()})
    columns = [_arrow_column(frame[attribute.name], attribute) for attribute in schema.attributes]
    return pa.table(columns, schema=arrow_schema(schema))


def _arrow_type(attribute: Attribute) -> pa.DataType:
    import pyarrow as pa

    output, plain = output_of(attribute), plain_output(attribute)
    if output.name.endswith("category"):
        return pa.dictionary(pa.int32(), arrow_type(plain), ordered=output.name.startswith("ordered"))
    return arrow_type(output)


def _arrow_column(column: pl.Series, attribute: Attribute) -> pa.ChunkedArray:
    import pyarrow as pa

    kind = _arrow_type(attribute)
    if not pa.types.is_dictionary(kind):
        return _exported(column).cast(kind)
    # One dictionary of all public values in their order, drawn or not.
    values = released_values(attribute)
    place = pl.Enum([str(value) for value in values])
    indices = _exported(column.cast(pl.String).cast(place).to_physical().cast(pl.Int32))
    listed = pa.array(values, kind.value_type)
    return pa.chunked_array(
        [pa.DictionaryArray.from_arrays(part, listed, ordered=kind.ordered) for part in indices.chunks], kind
    )


def _exported(column: pl.Series) -> pa.ChunkedArray:
    # Arrow's C interface takes no name that has a null character in it.
    return column.alias("").to_frame().to_arrow().column(0)


def _to_pandas(table: pa.Table, may_miss: set[str]) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa

    def nullable(kind: pa.DataType) -> object:
        if pa.types.is_boolean(kind):
            return pd.BooleanDtype()
        names = {"int": "Int", "uint": "UInt"}
        sort = str(kind).rstrip("0123456789")
        return pd.api.types.pandas_dtype(str(kind).replace(sort, names[sort])) if sort in names else None

    frame = table.to_pandas(types_mapper=nullable)
    always = [field for field in table.schema if field.name not in may_miss and nullable(field.type) is not None]
    return frame.astype({field.name: field.type.to_pandas_dtype() for field in always})
