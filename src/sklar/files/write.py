"""Results to disk, whole or not at all.

A file is written under a temporary name in its own folder, flushed to the disk and then renamed; an interruption leaves
the old file, or none, and never half a file under the final name.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyarrow import csv

from sklar.errors import OutputError
from sklar.files.parquet import write_groups
from sklar.machine.arrays import strings
from sklar.machine.threads import in_order
from sklar.public.schema import Schema

SUFFIXES = (".csv", ".parquet")
# Indices of text that is only held as a dictionary, on its way into a file.
HELD = pa.uint16()
_ROW_GROUP = 1 << 17


def check_target(path: str | Path, suffixes: tuple[str, ...]) -> Path:
    """The path, when a file of one of these kinds can be put there; refused before any work is done otherwise."""
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        raise OutputError(f"'{path}' must end in {' or '.join(suffixes)}.")
    if path.is_dir():
        raise OutputError(f"'{path}' is a folder. Name a file in it.")
    if not path.parent.is_dir():
        raise OutputError(f"the folder '{path.parent}' does not exist. Create it first.")
    if not os.access(path.parent, os.W_OK):
        raise OutputError(f"the folder '{path.parent}' cannot be written to. Choose another, or ask for the right.")
    return path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its name when the block ends well, and vanishes when it does not."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise OutputError(f"'{path}' cannot be written: {error.strerror or error}.") from None
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes files for their owner alone; a release is meant to be read as any new file is.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OutputError(
            f"'{path}' could not be written: {error.strerror or error}. Nothing was left behind."
        ) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_batches(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], described: Schema | None) -> None:
    """Stream batches to a CSV or Parquet file. In CSV a null is the attribute's missing text, by `described`."""
    with replacing(path) as temporary:
        if path.suffix.lower() == ".parquet":
            _write_parquet(temporary, schema, batches, described)
        else:
            _write_csv(temporary, schema, batches, described)


def _write_parquet(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], described: Schema | None) -> None:
    # Numbers spread over wide bins hardly repeat: looking for repetitions takes longer than writing them.
    wide = {
        attribute.name
        for attribute in (() if described is None else described.attributes)
        if attribute.kind == "real" or (attribute.edges and attribute.edges[-1] - attribute.edges[0] > _ROW_GROUP // 8)
    }
    with path.open("wb") as file:
        write_groups(
            file,
            schema,
            _row_groups(schema, batches),
            dictionaries=set(schema.names) - wide,
            # Text that is held as a dictionary (a category has other indices) is still text to a reader.
            store_schema=not any(pa.types.is_dictionary(kind) and kind.index_type == HELD for kind in schema.types),
        )


def _row_groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches gathered, or cut, into row groups."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        left = batch
        while rows + left.num_rows >= _ROW_GROUP:
            waiting.append(left.slice(0, _ROW_GROUP - rows))
            left = left.slice(_ROW_GROUP - rows)
            yield pa.Table.from_batches(waiting, schema)
            waiting, rows = [], 0
        if left.num_rows:
            waiting.append(left)
            rows += left.num_rows
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def _write_csv(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], described: Schema | None) -> None:
    from pyarrow import csv

    # Arrow's "needed" quotes every text; whether any needs it is known beforehand, from public names and values.
    texts = [*schema.names]
    for attribute in () if described is None else described.attributes:
        texts += [attribute.missing or "", *(str(value) for value in attribute.values)]
    plain = described is not None and not any(mark in text for text in texts for mark in '",\r\n')
    style = "none" if plain else "needed"
    options = csv.WriteOptions(quoting_style=style, quoting_header=style)
    headless = csv.WriteOptions(quoting_style=style, include_header=False)
    attributes = () if described is None else described.attributes
    missing = {attribute.name: attribute.missing for attribute in attributes if attribute.missing}
    filled = [name for name in schema.names if name in missing]
    # Times whose bins have whole seconds are drawn in whole seconds: six zeros more would only be noise to a reader.
    seconds = {
        attribute.name: pa.timestamp("s", schema.field(attribute.name).type.tz)
        for attribute in (() if described is None else described.attributes)
        if pa.types.is_timestamp(schema.field(attribute.name).type)
        and (attribute.kind == "date" or not any(edge % 1_000_000 for edge in attribute.edges))
    }
    for name, kind in seconds.items():
        schema = schema.set(schema.get_field_index(name), pa.field(name, kind))
    for name in filled:
        schema = schema.set(schema.get_field_index(name), pa.field(name, pa.string()))

    def text(batch: pa.RecordBatch) -> pa.Buffer:
        for name, kind in seconds.items():
            index = batch.schema.get_field_index(name)
            batch = batch.set_column(index, name, batch.column(index).cast(kind))
        for name in filled:
            index = batch.schema.get_field_index(name)
            column = batch.column(index).cast(pa.string()).fill_null(strings([missing[name]])[0])
            batch = batch.set_column(index, name, column)
        return _csv(batch, headless)

    with path.open("wb") as file:
        file.write(_csv(pa.Table.from_batches([], schema), options))
        # Arrow formats in one thread only; blocks are formatted side by side.
        for formatted in in_order(text, batches):
            file.write(formatted)


def _csv(rows: pa.RecordBatch | pa.Table, options: csv.WriteOptions) -> pa.Buffer:
    from pyarrow import csv

    sink = pa.BufferOutputStream()
    csv.write_csv(rows, sink, options)
    return sink.getvalue()
