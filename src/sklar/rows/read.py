"""Tables in files and in memory to batches of the schema's columns: polars data frames. More: docs/derivations.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import unquote

import numpy as np
import polars as pl
import polars.selectors as cs

from sklar.errors import DataError, SklarError
from sklar.machine.stores import Remote, place_of, version_of
from sklar.machine.threads import side_by_side, workers
from sklar.machine.wording import failing, said, stated
from sklar.public.arrow import PARQUET, column_types, file_schema
from sklar.public.schema import Schema
from sklar.public.settings import PLAIN, Reading
from sklar.rows import office, streams, text
from sklar.rows.source import AnyColumns, Batches, Open, Source, Span, batch_rows, normalizer
from sklar.rows.sql import Query

_ARROW = (".arrow", ".feather")
JSON = (".json", ".ndjson", ".jsonl")
_MOST_LETTERS = 1_000
_STORES = ("s3://", "gs://", "gcs://", "az://", "azure://", "abfs://", "abfss://", "adl://")
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
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


def open_source(data: object, described: Schema | Reading = PLAIN) -> Source:
    """A path to a file or a folder (CSV, JSON, Parquet, Arrow, Excel, Stata, SPSS), a list of paths, an address in an
    object store, a query, a pandas or polars frame, or whatever exports an Arrow stream.

    `described` says how its text is written: the table's schema, or a reading where there is no schema yet.
    """
    if isinstance(data, Plainly):
        return open_source(data.data)
    reading, schema = (described, None) if isinstance(described, Reading) else (described.reading, described)
    return _settled(_open(data, reading), reading, schema)


def open_part(place: Path | Remote, root: str | None, schema: Schema, span: Span | None = None) -> Source:
    """One file of a table, or a span of its rows (of a text's bytes), as the table whose folder is `root` reads it."""
    return _settled(_open_place(place, root, schema.reading, span), schema.reading, schema)


def _settled(source: Source, reading: Reading, schema: Schema | None) -> Source:
    """A table whose batches, and those of its parts, come in plain writing."""
    if isinstance(source.columns, AnyColumns):
        # JSON has one way to write numbers.
        reading = replace(reading, decimal=".", thousands=None)
    normalize = normalizer(reading, schema)
    parts = tuple(replace(part, normalize=normalize) for part in source.parts)
    return replace(source, normalize=normalize, parts=parts)


def _open(data: object, reading: Reading) -> Source:
    """A table of any kind, as it is written."""
    if isinstance(data, str) and "://" in data:
        return _open_store(data)
    alone = isinstance(data, str | Path)
    if alone or (isinstance(data, list | tuple) and data and all(isinstance(path, str | Path) for path in data)):
        name, places = list_files(data)
        parts = [_open_place(place, root, reading) for place, root in places]
        root = places[0][1] if alone else None
        return parts[0] if alone and root is None else joined(name, None if root is None else Path(root), parts)
    read: Open
    if isinstance(data, pl.DataFrame):
        frame, columns = data, tuple(data.columns)
        # Polars exports no column of Python objects.
        types = column_types(frame.clear().select(cs.exclude(cs.object())))
        read = lambda names: iter([pl.DataFrame([frame.get_column(name) for name in names])])  # noqa: E731
    elif streams.is_pandas(data):
        columns, types, read = streams.frame_names(data), streams.frame_types(data), partial(streams.read_frame, data)
    elif isinstance(data, Query) or hasattr(data, "__arrow_c_stream__"):
        described, read = streams.open_stream(data)
        columns, types = tuple(column.name for column in described.children), column_types(described)
    else:
        raise DataError(said("rows.no_stream", kind=type(data).__name__))
    return Source(name="the table", columns=columns, open_batches=read, types=types)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plainly:
    """A table that is written as Sklar writes, whatever its schema says of the original."""

    data: object = field(repr=False)


def as_released(data: object, schema: Schema) -> object:
    """A synthetic table of this schema, to be read as it is written: plainly, unless its header does not fit that."""
    if schema.reading == PLAIN:
        return data
    if isinstance(data, str | Path):
        try:
            columns = set(open_source(data).columns)
        except DataError:
            return data
        if not (columns >= set(schema.columns) or columns >= set(schema.dummy_names)):
            return data
    return Plainly(data=data)


def takes_one_pass(data: object) -> bool:
    """Whether the rows of this table can be read only once."""
    # By its name: pyarrow need not be installed.
    return type(data).__name__ == "RecordBatchReader" or isinstance(data, Iterator)


def reads_again(data: object) -> bool:
    """Whether a table is sure to give the same rows again: files that lie still, and frames in memory."""
    if isinstance(data, Query):
        return data.reads_again
    if isinstance(data, str) and "://" in data:
        return data.startswith(_STORES)
    if isinstance(data, str | Path):
        return office.parted(Path(data))[0].is_file() or Path(data).is_dir()
    if isinstance(data, list | tuple):
        return all(isinstance(path, str | Path) and reads_again(path) for path in data)
    # By its name: pyarrow need not be installed.
    in_memory = type(data).__name__ == "Table" and type(data).__module__.split(".")[0] == "pyarrow"
    return isinstance(data, pl.DataFrame) or streams.is_pandas(data) or in_memory


def joined(name: str, path: Path | None, parts: Sequence[Source]) -> Source:
    """A table of these files; refused where their columns differ."""
    first = parts[0]
    for part in parts:
        if set(part.columns) != set(first.columns):
            raise DataError(f"{part.name} and {first.name} have different columns. Files of a folder must agree.")

    def chain(names: tuple[str, ...]) -> Batches:
        for part in parts:
            yield from part.batches(names)

    def all_columns() -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in parts if part.find_columns for name in part.find_columns()))

    known = [part.n_rows for part in parts if part.n_rows is not None]
    rows, find = sum(known) if len(known) == len(parts) else None, all_columns if first.find_columns else None
    first = replace(first, name=name, path=path, parts=tuple(parts))
    return replace(first, open_batches=chain, n_rows=rows, find_columns=find)


def _partition(part: Source, place: PurePath) -> Source:
    """A file of a folder, with a column for every folder on the way whose name is `key=value`."""
    keys = [unquote(folder).partition("=") for folder in place.parts[:-1] if "=" in folder]
    stated = {key: None if value == _NULL_PARTITION else value for key, _, value in keys if key}
    if not stated:
        return part

    def read(names: tuple[str, ...]) -> Batches:
        inside = tuple(name for name in names if name not in stated)
        # The file is read even if all wanted columns come from its path: its rows must be counted.
        for batch in part.open_batches(inside or part.columns[:1] or ("",)):
            batch = batch.with_columns(pl.lit(value, dtype=pl.String).alias(name) for name, value in stated.items())
            yield pl.DataFrame([batch.get_column(name) for name in names])

    columns = part.columns
    if not isinstance(columns, AnyColumns):
        columns = tuple(name for name in columns if name not in stated) + tuple(stated)
    return replace(part, columns=columns, open_batches=read)


def _open_place(place: Path | Remote, root: str | None, reading: Reading, span: Span | None = None) -> Source:
    """A file as it is written, with the columns that the folders between its table's folder and it stand for."""
    part = _open_file(place, reading, span)
    return part if root is None else _partition(part, PurePath(str(place).removeprefix(root).lstrip("/")))


def _open_file(path: Path | Remote, reading: Reading, span: Span | None = None) -> Source:
    here, name = path if isinstance(path, Path) else None, f"file '{path}'"
    kind = office.WORKBOOK if here is not None and office.parted(here)[1] else text.kind_of(path)
    with failing(DataError, f"{name} cannot be opened: {{why}}.", OSError):
        if kind in (office.WORKBOOK, *office.SURVEYS) and path.suffix.lower() != ".zip":
            if here is None:
                raise DataError(f"{name} is not read from a store. Copy it to a disk first, or write it as Parquet.")
            return office.open_workbook(here) if kind == office.WORKBOOK else office.open_survey(here, kind)
        # Without a header a file may be empty: a table of no rows.
        headed = kind not in JSON and (kind not in text.DELIMITERS or reading.header)
        if headed and path.stat().st_size == 0:
            raise DataError(f"{name} is empty. It must hold a header and rows.")
        if kind in text.DELIMITERS:
            reading = replace(reading, delimiter=reading.delimiter or text.DELIMITERS[kind])
            columns, skip = text.read_header(path, reading)
            read = partial(text.read_csv, path, reading, columns, skip, span=span)
            explain = partial(text.likely_option, path, reading)
            return Source(name=name, columns=columns, open_batches=read, path=here, explain=explain)
        if kind == ".json" and not text.is_list(path):
            raise DataError(f"{name} must hold a list of objects. Rename it to .ndjson where each line is an object.")
        if kind in JSON:
            # Which keys rows have depends on the rows, so any key will do.
            read, keys = partial(text.read_json, path), partial(text.json_keys, path)
            return Source(name=name, columns=AnyColumns(), open_batches=read, path=here, find_columns=keys)
        if (kind in PARQUET or kind in _ARROW) and path.suffix.lower() != ".zip":
            return _open_columnar(path, kind, span)
    if path.suffix.lower() == ".zip":
        raise DataError(said("rows.one_in_zip", name=name))
    convert = stated("sklar.rows", "said.toml")["convert"]
    raise DataError(said("rows.suffixes", name=name, remedy=convert.get(kind, "Write the table in one of them.")))


def _open_columnar(place: Path | Remote | str, kind: str, span: Span | None = None) -> Source:
    """A Parquet or an Arrow file, or an address in a store: by polars where it reads that, else by pyarrow."""
    name, n_rows, parquet = f"file '{place}'", None, kind in PARQUET
    key, what = "unreadable" if isinstance(place, Path) else "unreached", "a Parquet" if parquet else "an Arrow"
    if isinstance(place, str):
        # The address may be confidential, but holds no credentials: these are in the environment.
        name, key = f"'{place}'", "unread"
    read: Open
    try:
        if isinstance(place, Remote) and not place.address.startswith(_STORES):
            described = streams.arrow_schema(place, kind)
            columns, types = tuple(described.names), column_types(described)
            read = partial(streams.read_arrow, place, kind, span)
        else:
            options: Any = {"glob": False, "hive_partitioning": isinstance(place, str)}
            options |= {"use_statistics": False, "cache": False} if parquet else {}
            scan = (pl.scan_parquet if parquet else pl.scan_ipc)(str(place), **options)
            schema = scan.collect_schema()
            if any("\0" in column or len(column) > _MOST_LETTERS for column in schema):
                # Arrow's C interface ends the process at the first.
                raise DataError(f"{name} is damaged: names of columns must have no NUL and at most 1,000 characters.")
            columns, types = tuple(schema), column_types(pl.DataFrame(schema=schema))
            if isinstance(place, Path):
                types, n_rows = column_types(file_schema(place)), int(scan.select(pl.len()).collect().item())
            scan = scan if span is None else scan.slice(span[0], span[1] - span[0])
            # Polars takes days that are held in milliseconds for moments.
            held = [columns.index(name) for name, described in types.items() if described.output == "date64"]
            day = (pl.nth(held).cast(pl.Int64) // 86_400_000).clip(-(2**31), 2**31 - 1)
            scan = scan.with_columns(day.cast(pl.Int32).cast(pl.Date)) if held else scan
            read = partial(_read_scan, scan, columns)
    except (Exception, pl.exceptions.PanicException) as error:
        if isinstance(error, OSError | SklarError) and not isinstance(place, str):
            raise
        raise DataError(said(f"rows.{key}", name=name, what=what)) from None
    path = place if isinstance(place, Path) else None
    return Source(name=name, columns=columns, open_batches=read, n_rows=n_rows, types=types, path=path, threaded=True)


def _read_scan(scan: pl.LazyFrame, columns: tuple[str, ...], names: tuple[str, ...]) -> Batches:
    # By position: a name may look like a pattern.
    wanted = scan.select(pl.nth([columns.index(name) for name in names]))
    yield from wanted.collect_batches(chunk_size=batch_rows(len(names)), lazy=True, engine="streaming")


def _open_store(address: str) -> Source:
    """A Parquet or an Arrow file, or a folder of Parquet files, in an object store that polars reads."""
    if not address.startswith(_STORES):
        # It may hold a password: it is not repeated.
        raise DataError(f"an address must begin with one of {', '.join(_STORES)}, or be that of a database.")
    kind = Path(address.rstrip("/")).suffix.lower()
    if not kind:
        # A folder, which polars knows by its end.
        address, kind = address.rstrip("/") + "/", PARQUET[0]
    if kind not in (*PARQUET, *_ARROW):
        raise DataError(said("rows.store_files", address=address))
    return _open_columnar(address, kind)


def files_of(folder: Path) -> list[Path]:
    """The files in a folder and below it, in order; refused where two names lead to one file or folder."""
    with failing(DataError, f"the folder '{folder}' cannot be read: {{why}}.", OSError):
        files = sorted(_files(folder, {}))
    if not files:
        raise DataError(f"the folder '{folder}' holds no files. It must hold files of a table.")
    require_different(files)
    return files


def require_different(files: Iterable[Path]) -> None:
    """Refuse one file under two names: a symbolic link, a hard link, or a path that was given twice."""
    places: dict[object, Path] = {}
    for file in files:
        if not file.exists():
            raise DataError(f"file '{file}' does not exist. Check the path.")
        _require_new(file, places, "file (a link, or a path given twice)")


def _files(folder: Path, places: dict[object, Path]) -> Iterator[Path]:
    _require_new(folder, places, "folder (one is a link)")
    for entry in folder.iterdir():
        # Names that begin with a dot or an underline are notes of the tool that wrote the folder, not data.
        if entry.name[0] in "._":
            continue
        if entry.is_dir():
            yield from _files(entry, places)
        elif entry.is_file():
            yield entry
        elif entry.is_symlink():
            raise DataError(f"'{entry}' is a link to a file that does not exist. Remove it, or bring the file back.")


def _require_new(path: Path, places: dict[object, Path], what: str) -> None:
    facts = path.stat()
    # Some file systems give no numbers.
    first = places.setdefault((facts.st_dev, facts.st_ino) if facts.st_ino else path.resolve(), path)
    if first is not path:
        raise DataError(f"'{first}' and '{path}' are the same {what}: its rows would count twice. Remove one of them.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some rows of a table, of so many rows or bytes (`weight`); folders below `root`, the table's, may be columns."""

    address: str
    root: str | None
    version: str
    span: Span | None
    weight: int


def list_files(data: object) -> tuple[str, list[tuple[Path | Remote, str | None]]]:
    """The name of a table in files, for messages, and its files, each with the folder that it was found in, if any."""
    if isinstance(data, list | tuple):
        found = [each for path in data for each in list_files(path)[1]]
        require_different(place for place, _ in found if isinstance(place, Path))
        return f"the list of {len(data)} paths", found
    place, root = place_of(str(data)), str(data)
    if isinstance(place, Remote):
        root, files = place.address, list[Path | Remote](place.files())
        if not files:
            raise DataError(f"'{place}' does not exist, or holds no files. Check the address.")
    elif place.is_dir():
        root, files = str(place), list(files_of(place))
    elif not office.parted(place)[0].exists():
        raise DataError(f"file '{place}' does not exist. Check the path.")
    else:
        root, files = str(place), [place]
    if [str(file) for file in files] == [root]:
        return f"file '{place}'", [(file, None) for file in files]
    return f"folder '{place}'", [(file, root) for file in files]


def look(place: Path | Remote, root: str | None, schema: Schema) -> tuple[Source, list[Part]]:
    """Open a file for what it says of itself without its rows, its version and where it can be cut."""
    with failing(DataError, f"file '{place}' cannot be opened: {{why}}.", OSError):
        version = version_of(place)
    source, kind, size = open_part(place, root, schema), text.kind_of(place), int(place.stat().st_size)
    whole = Part(address=str(place), root=root, version=version, span=None, weight=size)
    if kind in PARQUET:
        with failing(DataError, f"file '{place}' is not a Parquet file, or it is damaged."):
            groups = streams.row_groups(place)
        source, spans = replace(source, n_rows=sum(groups)), _spans(accumulate(groups), _LEAST_ROWS)
    elif kind in text.DELIMITERS and text.lines_are_records(place, schema.reading):
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
    given: Any = data if isinstance(data, list | tuple) else [data]
    # Readers run in another working directory.
    here = [path if "://" in str(path) else Path(path).absolute() for path in given]
    name, places = list_files(here if given is data else here[0])
    files = side_by_side(lambda each: look(*each, schema), places, threads=max(workers(), _OPENED_AT_ONCE))
    return joined(name, None, [source for source, _ in files]), [part for _, parts in files for part in parts]


def share_out(parts: Sequence[Part], schema: Schema, cores: int, most: int) -> list[list[Part]]:
    """Parts in groups of neighbors, one group a task: each takes seconds, and no more of them are made than `most`."""
    if not parts:
        return []
    texts, row = (*text.DELIMITERS, *JSON), _seconds_per_row(schema)
    rates = [_TEXT_SECONDS if text.kind_of(place_of(part.address)) in texts else row for part in parts]
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
    read = flags * _FLAG_SECONDS + (schema.n_attributes - flags) * _VALUE_SECONDS
    return float(read + histograms * _HISTOGRAM_SECONDS + (small - 1).sum() ** 2 / 2 * _BITS_SECONDS)


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
