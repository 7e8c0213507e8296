"""Parquet and Arrow files through pyarrow: how they are cut, and their rows where polars does not reach them.

pyarrow is loaded by these functions alone. Of a footer the numbers of rows are taken, never the statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from sklar.machine.extras import lazily
from sklar.machine.stores import Remote
from sklar.public.importers.arrow import PARQUET
from sklar.rows.streams import frame_of

na = lazily("nanoarrow")

_ROWS_AT_ONCE = 1 << 16


def arrow_schema(place: Path | Remote, kind: str) -> Any:
    """The names and types of a file's columns."""
    if kind in PARQUET:
        from pyarrow.parquet import read_schema

        with place.open("rb") as file:
            return read_schema(file)
    from pyarrow import ipc

    with place.open("rb") as file:
        return ipc.open_file(file).schema


def row_groups(place: Path | Remote) -> list[int]:
    """How many rows each row group of a Parquet file has."""
    from pyarrow.parquet import read_metadata

    with place.open("rb") as file:
        footer = read_metadata(file)
    return [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]


def read_arrow(
    place: Remote, kind: str, span: tuple[int, int] | None, names: tuple[str, ...]
) -> Iterator[pl.DataFrame]:
    """The rows of a file in a store, or those of a span of whole row groups."""
    with place.open("rb") as file:
        for batch in _parquet(file, span, names) if kind in PARQUET else _arrow(file):
            places = {name: batch.schema.get_field_index(name) for name in names}
            yield frame_of(na.c_array(batch), places)


def _parquet(file: Any, span: tuple[int, int] | None, names: tuple[str, ...]) -> Iterator[Any]:
    from pyarrow.parquet import ParquetFile

    opened, wanted, at = ParquetFile(file, pre_buffer=True), [], 0
    for number in range(opened.num_row_groups):
        if span is None or span[0] <= at < span[1]:
            wanted.append(number)
        at += opened.metadata.row_group(number).num_rows
    # Without threads of its own: whoever reads many files reads them side by side.
    yield from opened.iter_batches(_ROWS_AT_ONCE, row_groups=wanted, columns=list(names), use_threads=False)


def _arrow(file: Any) -> Iterator[Any]:
    from pyarrow import ipc

    reader = ipc.open_file(file)
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)
