"""A table in files as parts that any process can count by itself: which there are, how they are shared out, their rows.

A part is a file or a range of it: whole row groups of a Parquet file, rows of an Arrow file, bytes of a CSV file whose
lines are records by declaration. It is known by its file, its range and the file's version (size and time of change). A
part of a file that has another version, before or after it was read, is refused: so whoever counts a part again, and
wherever, counts the same rows. Nothing here looks at a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl

from sklar.errors import DataError
from sklar.machine.stores import Remote, place_of, size_of, version_of
from sklar.public.importers.arrow import PARQUET
from sklar.public.schema import Schema
from sklar.rows.read import files_of, open_part, require_different
from sklar.rows.source import Source, Span
from sklar.rows.streams import row_groups
from sklar.rows.text import DELIMITERS, kind_of, lines_are_records

# Parts are not made smaller than this: a batch of rows, or as many bytes of text as are read at once.
_LEAST_ROWS, _LEAST_BYTES = 1 << 16, 1 << 24
# About what one thread takes to read a byte of text, a boolean and another value; to count a row of a table as a
# histogram, and on bits; and up to which size an attribute's tables are mostly counted on bits (`rows.count`).
_TEXT_SECONDS, _FLAG_SECONDS, _VALUE_SECONDS, _HISTOGRAM_SECONDS, _BITS_SECONDS = 1e-8, 2e-9, 2e-8, 1e-9, 7e-12
_SMALL = 18
# How long a task should take: long beside the start of a task, short beside what is lost with one.
TASK_SECONDS = 4.0
_WORTH_A_TASK = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some rows of a table: a file, or a span of it, in one version. `weight` says how many rows or bytes it has.

    `root` is the folder that is the table, where it is one: names of folders below it may be columns.
    """

    address: str
    root: str | None
    version: str
    span: Span | None
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a file says of itself without its rows. `n_rows` is None where it does not tell how many it has."""

    columns: tuple[str, ...]
    parts: tuple[Part, ...]
    n_rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """A table in files: `first` is one of them, opened."""

    name: str
    first: Source = field(repr=False)
    parts: tuple[Part, ...] = field(repr=False)
    n_rows: int | None


def list_files(data: object) -> tuple[str, list[str], str | None]:
    """What messages call a table in files, the addresses of its files, and the folder that it is, where it is one.

    `data` is a path or an address, of a file or a folder, or a list of them.
    """
    if isinstance(data, list | tuple):
        found = [list_files(each) for each in data]
        addresses = [address for _, own, _ in found for address in own]
        require_different([place for place in map(place_of, addresses) if isinstance(place, Path)])
        return f"the list of {len(data)} paths", addresses, None
    place = place_of(str(data))
    if isinstance(place, Remote):
        addresses = [each.address for each in place.files()]
        if not addresses:
            raise DataError(f"'{place}' does not exist, or holds no files. Check the address.")
        return (
            (f"file '{place}'", addresses, None)
            if addresses == [place.address]
            else (f"folder '{place}'", addresses, place.address)
        )
    if not place.exists():
        raise DataError(f"file '{place}' does not exist. Check the path.")
    # Whoever reads them works in another folder.
    whole = place.absolute()
    if place.is_dir():
        return f"folder '{place}'", [str(file) for file in files_of(whole)], str(whole)
    return f"file '{place}'", [str(whole)], None


def look(address: str, root: str | None, schema: Schema) -> Seen:
    """Open a file for its columns, its version and where it can be cut."""
    place = place_of(address)
    try:
        version = version_of(place)
    except OSError as error:
        raise DataError(f"file '{place}' cannot be opened: {error.strerror or error}.") from None
    source, kind, size = open_part(place, root, schema), kind_of(place), size_of(place)
    n_rows, spans = source.n_rows, None
    if kind in PARQUET:
        try:
            groups = row_groups(place)
        except Exception:
            raise DataError(f"file '{place}' is not a Parquet file, or it is damaged.") from None
        n_rows, spans = sum(groups), _together(groups, _LEAST_ROWS)
    elif kind in DELIMITERS and lines_are_records(place, schema.reading):
        spans = _together([min(_LEAST_BYTES, size - first) for first in range(0, size, _LEAST_BYTES)], _LEAST_BYTES)
    elif n_rows is not None:
        spans = _together([min(_LEAST_ROWS, n_rows - first) for first in range(0, n_rows, _LEAST_ROWS)], _LEAST_ROWS)
    whole = Part(address=address, root=root, version=version, span=None, weight=size)
    parts = [whole] if spans is None else [replace(whole, span=span, weight=span[1] - span[0]) for span in spans]
    return Seen(columns=tuple(source.columns), parts=tuple(parts), n_rows=n_rows)


def _together(sizes: Sequence[int], least: int) -> Iterator[Span]:
    """Neighboring runs of rows or bytes of these sizes as spans, each of enough of them."""
    first = last = 0
    for size in sizes:
        last += size
        if last - first >= least:
            yield first, last
            first = last
    if last > first:
        yield first, last


def open_files(data: object, schema: Schema, look_at: Callable[[list[str], str | None], list[Seen]]) -> Files:
    """A table in files, refused where they do not fit together. `look_at` looks at all of them, side by side."""
    name, addresses, root = list_files(data)
    seen = look_at(addresses, root)
    first = open_part(place_of(addresses[0]), root, schema)
    for address, each in zip(addresses, seen, strict=True):
        if set(each.columns) != set(seen[0].columns):
            raise DataError(
                f"file '{place_of(address)}' and {first.name} have different columns. Files of a folder must agree."
            )
    known = [each.n_rows for each in seen if each.n_rows is not None]
    return Files(
        name=name,
        first=first,
        parts=tuple(part for each in seen for part in each.parts),
        n_rows=sum(known) if len(known) == len(seen) else None,
    )


def share_out(parts: Sequence[Part], schema: Schema, cores: int, most: int) -> list[list[Part]]:
    """Parts in groups of neighbors, one group a task: each takes seconds, and no more of them are made than `most`.

    >>> from sklar.public.schema import Schema
    >>> schema = Schema.from_toml('[attributes.a]\\ntype = "boolean"')
    >>> parts = [Part(address=f"{n}.parquet", root=None, version="", span=None, weight=10**9) for n in range(8)]
    >>> [len(group) for group in share_out(parts, schema, cores=2, most=4)]
    [2, 2, 2, 2]
    """
    if not parts:
        return []
    row = seconds_per_row(schema)
    columnar = [kind_of(place_of(part.address)) not in (*DELIMITERS, ".ndjson", ".jsonl") for part in parts]
    seconds = np.array(
        [part.weight * (row if rows else _TEXT_SECONDS) for part, rows in zip(parts, columnar, strict=True)]
    )
    total = float(seconds.sum())
    tasks = max(total / TASK_SECONDS, min(cores, total / _WORTH_A_TASK), 1.0)
    tasks = min(int(np.ceil(tasks)), most, len(parts))
    # Where the middle of a part falls says which task has it.
    middles = (np.cumsum(seconds) - seconds / 2) / max(total, 1e-300)
    place = np.minimum((middles * tasks).astype(np.int64), tasks - 1)
    groups: list[list[Part]] = [[] for _ in range(tasks)]
    for part, task in zip(parts, place.tolist(), strict=True):
        groups[task].append(part)
    return [_joined(group) for group in groups if group]


def seconds_per_row(schema: Schema) -> float:
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


def _joined(group: list[Part]) -> list[Part]:
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
