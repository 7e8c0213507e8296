"""An Arrow schema: the names and types in a Parquet or Arrow file, without its rows.

A Parquet file's footer also holds extremes of every column. They are exact facts about rows, so they are not read.
"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklar.machine.wording import stated
from sklar.public.outputs import parse_output

SUFFIXES = (".parquet", ".pq", ".arrow", ".feather")
PARQUET = (".parquet", ".pq")
# An Arrow file is a stream between two of these marks.
_MARK = b"ARROW1\x00\x00"
# The letters that Arrow's C interface has for types, in the words of schemas: a kind, and an output if it has one.
_WORDS: dict[str, list[str]] = stated("sklar.public", "types.toml")["arrow"]
_FAMILIES = {"+s": "struct", "+m": "map", "+u": "union", "+": "list", "ti": "interval"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """What a type says of a column: its kind, None where it has none or its values are in no domain, and its output.

    `whole` is set where the values, or the categories, are whole numbers. `labels` are pairs of a value and what the
    file calls it, `title` what it calls the column.
    """

    kind: str | None = None
    output: str | None = None
    whole: bool = False
    nullable: bool
    family: str
    labels: tuple[tuple[str, str], ...] = ()
    title: str | None = None


def column_types(schema: Any) -> dict[str, ColumnType]:
    """The types of all columns of a schema, or a table: any object that exports one by Arrow's C interface."""
    return {field.name: column_type(field) for field in fields_of(schema)}


def fields_of(schema: Any) -> list[Any]:
    """The fields of a schema, or of a table."""
    import nanoarrow as na

    table = hasattr(schema, "__arrow_c_stream__")
    return list((na.c_array_stream(schema).get_schema() if table else na.c_schema(schema)).children)


def file_schema(path: Path) -> Any:
    """The schema of a Parquet or an Arrow file, in as much detail as the file states it.

    Most files hold an Arrow schema, which tells nulls, days in milliseconds and categories of numbers; polars does not.
    """
    import nanoarrow as na
    import polars as pl

    parquet = path.suffix.lower() in PARQUET
    known = pl.read_parquet_schema(path) if parquet else pl.read_ipc_schema(path)
    try:
        if parquet:
            schema = _read_message(io.BytesIO(base64.b64decode(pl.read_parquet_metadata(path)["ARROW:schema"])))
        else:
            with path.open("rb") as file:
                file.seek(len(_MARK))
                schema = _read_message(file)
        if [field.name for field in schema.children] == list(known):
            return schema
    except Exception:
        # No note, a note of another form, or types that nanoarrow does not know.
        schema = None
    return na.c_array_stream(pl.DataFrame(schema=known)).get_schema()


def _read_message(readable: Any) -> Any:
    import nanoarrow as na
    from nanoarrow.ipc import InputStream

    with InputStream.from_readable(readable) as stream, na.c_array_stream(stream) as batches:
        return batches.get_schema()


def column_type(field: Any) -> ColumnType:
    """The type of one field of a schema."""
    ordered, nullable = bool(field.flags & 1), bool(field.flags & 2)
    if field.dictionary is not None:
        values = column_type(field.dictionary)
        listed = values.whole or values.output == "string"
        output = None if not listed else "ordered category" if ordered else "category"
        return ColumnType(kind="categorical", output=output, whole=values.whole, nullable=nullable, family="dictionary")
    if b"ARROW:extension:name" in dict(field.metadata or {}):
        return ColumnType(nullable=nullable, family="extension")
    kind, output = _words(field.format)
    family = next((name for start, name in _FAMILIES.items() if field.format.startswith(start)), "binary")
    return ColumnType(kind=kind, output=output, whole=kind == "integer", nullable=nullable, family=family)


def _words(letters: str) -> tuple[str | None, str | None]:
    if letters in _WORDS:
        kind, *outputs = _WORDS[letters]
        return kind, next(iter(outputs), None)
    if letters.startswith("ts"):
        unit, zone = {"m": "ms", "u": "us", "n": "ns"}.get(letters[2], letters[2]), letters[4:]
        kind, output = "datetime", parse_output(f"timestamp[{unit}, tz={zone}]" if zone else f"timestamp[{unit}]")
    elif letters.startswith("d:"):
        precision, scale, *width = letters[2:].split(",")
        kind, output = "real", parse_output(f"decimal({precision}, {scale})") if width in ([], ["128"]) else None
    else:
        return None, None
    return kind, None if output is None else str(output)
