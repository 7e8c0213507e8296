"""A table in files as parts that any process can count by itself: which there are, how they are shared out, their rows.

A part is a file or a span of it: whole row groups of a Parquet file, rows of an Arrow file, bytes of a CSV file whose
lines are records by declaration. Where the file's version (size and time of change) is another before or after it is
read, it is refused: whoever counts a part again counts the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import polars as pl

from sklar.errors import DataError
from sklar.machine.stores import Remote, place_of, version_of
from sklar.machine.threads import side_by_side, workers
from sklar.public.arrow import PARQUET
from sklar.public.schema import Schema
from sklar.rows.read import JSON, files_of, joined, open_part, require_different
from sklar.rows.source import Source, Span
from sklar.rows.streams import row_groups
from sklar.rows.text import DELIMITERS, kind_of, lines_are_records

# Parts are not made smaller than this: a batch of rows, or as many bytes of text as are read at once.
_LEAST_ROWS, _LEAST_BYTES = 1 << 16, 1 << 24
# About what one thread takes to read a byte of text, a boolean and another value; to count a row of a table as a
# histogram, and on bits; and up to which size an attribute's tables are mostly counted on bits (`rows.count`).
_TEXT_SECONDS, _FLAG_SECONDS, _VALUE_SECONDS, _HISTOGRAM_SECONDS, _BITS_SECONDS = 1e-8, 2e-9, 2e-8, 1e-9, 7e-12
_SMALL = 18
# How long a task should take: long enough to repay its start, short enough to be repeated.
TASK_SECONDS = 4.0
_WORTH_A_TASK = 0.5
# To open a file is to wait, for a store more than for a disk.
_OPENED_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some rows of a table, of so many rows or bytes (`weight`); folders below `root`, the table's, may be columns."""

    address: str
    root: str | None
    version: str
    span: Span | None
    weight: int


def list_files(data: object) -> tuple[str, list[str], str | None]:
    """The name of a table in files, for messages, the addresses of its files, and its folder if it is one."""
    if isinstance(data, list | tuple):
        addresses = [address for each in data for address in list_files(each)[1]]
        require_different([place for place in map(place_of, addresses) if isinstance(place, Path)])
        return f"the list of {len(data)} paths", addresses, None
    place = place_of(str(data))
    if isinstance(place, Remote):
        addresses, whole = [each.address for each in place.files()], place.address
        if not addresses:
            raise DataError(f"'{place}' does not exist, or holds no files. Check the address.")
        is_folder = addresses != [place.address]
    else:
        if not place.exists():
            raise DataError(f"file '{place}' does not exist. Check the path.")
        # Readers run in another working directory.
        whole, is_folder = str(place.absolute()), place.is_dir()
        addresses = [str(file) for file in files_of(place.absolute())] if is_folder else [whole]
    return f"{'folder' if is_folder else 'file'} '{place}'", addresses, whole if is_folder else None


def look(address: str, root: str | None, schema: Schema) -> tuple[Source, list[Part]]:
    """Open a file for what it says of itself without its rows, its version and where it can be cut."""
    place = place_of(address)
    try:
        version = version_of(place)
    except OSError as error:
        raise DataError(f"file '{place}' cannot be opened: {error.strerror or error}.") from None
    source, kind, size = open_part(place, root, schema), kind_of(place), int(place.stat().st_size)
    whole = Part(address=address, root=root, version=version, span=None, weight=size)
    if kind in PARQUET:
        try:
            groups = row_groups(place)
        except Exception:
            raise DataError(f"file '{place}' is not a Parquet file, or it is damaged.") from None
        source, spans = replace(source, n_rows=sum(groups)), _spans(accumulate(groups), _LEAST_ROWS)
    elif kind in DELIMITERS and lines_are_records(place, schema.reading):
        spans = _spans([*range(_LEAST_BYTES, size, _LEAST_BYTES), size], _LEAST_BYTES)
    elif source.n_rows is not None:
        spans = _spans([*range(_LEAST_ROWS, source.n_rows, _LEAST_ROWS), source.n_rows], _LEAST_ROWS)
    else:
        return source, [whole]
    return source, [replace(whole, span=span, weight=span[1] - span[0]) for span in spans]


def _spans(ends: Iterable[int], least: int) -> Iterator[Span]:
    """Spans that end at some of these rows or bytes, each of enough of them."""
    first = last = 0
    for last in ends:
        if last - first >= least:
            yield first, last
            first = last
    if last > first:
        yield first, last


def open_files(data: object, schema: Schema) -> tuple[Source, list[Part]]:
    """A table in files, and its parts; refused where files do not fit together."""
    name, addresses, root = list_files(data)
    opened = partial(look, root=root, schema=schema)
    files = side_by_side(opened, addresses, threads=max(workers(), _OPENED_AT_ONCE))
    return joined(name, None, [source for source, _ in files]), [part for _, parts in files for part in parts]


def share_out(parts: Sequence[Part], schema: Schema, cores: int, most: int) -> list[list[Part]]:
    """Parts in groups of neighbors, one group a task: each takes seconds, and no more of them are made than `most`."""
    if not parts:
        return []
    texts, row = (*DELIMITERS, *JSON), _seconds_per_row(schema)
    rates = [_TEXT_SECONDS if kind_of(place_of(part.address)) in texts else row for part in parts]
    seconds = np.array([part.weight for part in parts]) * rates
    total = float(seconds.sum())
    tasks = max(total / TASK_SECONDS, min(cores, total / _WORTH_A_TASK), 1.0)
    tasks = min(int(np.ceil(tasks)), most, len(parts))
    # A part belongs to the task in which its middle falls.
    middles = (np.cumsum(seconds) - seconds / 2) / max(total, 1e-300)
    places = np.minimum((middles * tasks).astype(np.int64), tasks - 1).tolist()
    return [_spliced(part for _, part in group) for _, group in groupby(zip(places, parts, strict=True), itemgetter(0))]


def _seconds_per_row(schema: Schema) -> float:
    """About how long one thread takes to read and count a row, by the attributes' kinds and sizes alone."""
    flags = sum(attribute.boolean for attribute in schema.attributes)
    small = schema.sizes[schema.sizes <= _SMALL]
    histograms = schema.cells.n_pairs - small.size * (small.size - 1) // 2
    return float(
        flags * _FLAG_SECONDS
        + (schema.n_attributes - flags) * _VALUE_SECONDS
        + histograms * _HISTOGRAM_SECONDS
        + (small - 1).sum() ** 2 / 2 * _BITS_SECONDS
    )


def _spliced(group: Iterable[Part]) -> list[Part]:
    """The same rows, with neighboring spans of a file as one."""
    joined: list[Part] = []
    for part in group:
        last = joined[-1] if joined else None
        if last and last.address == part.address and last.span and part.span and last.span[1] == part.span[0]:
            joined[-1] = replace(last, span=(last.span[0], part.span[1]), weight=last.weight + part.weight)
        else:
            joined.append(part)
    return joined


def read_part(part: Part, schema: Schema, names: tuple[str, ...]) -> Iterator[pl.DataFrame]:
    """The rows of a part as these columns; refused where the file is not, or does not stay, what it was."""
    place = place_of(part.address)
    _require_version(place, part)
    yield from open_part(place, part.root, schema, part.span).batches(names)
    _require_version(place, part)


class ChangedError(DataError):
    """A file is not what it was when the table was opened."""


def _require_version(place: Path | Remote, part: Part) -> None:
    try:
        same = version_of(place) == part.version
    except OSError:
        same = False
    if not same:
        raise ChangedError(f"file '{place}' changed while the table was read. Nothing was released. Run it again.")
