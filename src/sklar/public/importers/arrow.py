"""An Arrow schema: the names and types in a Parquet or Arrow file, without its rows.

A Parquet file's footer also holds the least and the largest value of every column. They are exact facts about the rows,
so they are not read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklar.errors import SchemaError
from sklar.public.importers.proposal import Imported, Proposal
from sklar.public.types import Output, output_of, plain_output

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".parquet", ".pq", ".arrow", ".feather")


def from_file(path: Path, name: str) -> Imported:
    """The schema of a Parquet file or an Arrow file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            schema = pq.read_schema(path)
        else:
            with pa.memory_map(str(path)) as file:
                schema = pa.ipc.open_file(file).schema
    except (pa.ArrowException, OSError, ValueError):
        raise SchemaError(f"'{path}' is not a Parquet file or an Arrow file, or it is damaged.") from None
    return from_schema(schema, name)


def from_schema(schema: pa.Schema, name: str) -> Imported:
    """What names and types say: kinds and outputs, but of domains only that a boolean is true or false."""
    entries, left_out = {}, {}
    for field in schema:
        keys = _keys(field.type)
        if keys is None:
            left_out[field.name] = f"a column of type {field.type} is in no domain"
        elif field.name.startswith("__index_level_"):
            left_out[field.name] = "it is an index that pandas wrote"
        else:
            entries[field.name] = Proposal(keys=keys | ({"missing": ""} if field.nullable else {}))
    return Imported(name=name, source="an Arrow schema", entries=entries, left_out=left_out)


def _keys(kind: pa.DataType) -> dict[str, Any] | None:
    import pyarrow as pa

    types = pa.types
    tests = {
        "boolean": types.is_boolean,
        "integer": types.is_integer,
        "real": lambda each: types.is_floating(each) or types.is_decimal(each),
        "date": types.is_date,
        "datetime": types.is_timestamp,
        "categorical": lambda each: types.is_dictionary(each) or output_of(each) == "string",
    }
    found = next((name for name, test in tests.items() if test(kind)), None)
    if found is None:
        return None
    output = output_of(kind)
    plain: Output | str = plain_output(found, ("",), other=False)
    return {"type": found} | ({} if output in (None, str(plain)) else {"output": output})
