"""CSV, Parquet and any Arrow stream (pandas, polars, DuckDB) to record batches of the schema's columns.

Everything about the table's shape (does it exist, has it a header, has every attribute a column) is settled before the
first row is read. Text files are read as bytes without guessing types, because a guess, and the error when it turns out
wrong, would depend on the rows. A CSV row with too few or too many fields becomes a row of nulls; bytes that are not
UTF-8 become the replacement character; a row of more than 16 MiB is cut there.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from sklar.errors import DataError
from sklar.machine.threads import merged, workers
from sklar.public.schema import Schema

BATCH_ROWS = 65_536
_BATCH_CELLS = 1 << 26
_CSV_BLOCK = 1 << 24
# So many booleans take Arrow longer than it takes to load what reads them faster.
_MANY_BITS = 1 << 24
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_COMPRESSED = {".gz", ".bz2", ".zst", ".lz4", ".br"}


def batch_rows(columns: int) -> int:
    """How many rows a batch of so many columns may have: its memory is bounded too.

    >>> batch_rows(14), batch_rows(2_000)
    (65536, 32768)
    """
    # A power of two, so that columns of bits are cut between words.
    return int(min(BATCH_ROWS, 1 << (max(_BATCH_CELLS // max(columns, 1), 64).bit_length() - 1)))


class Named(Protocol):
    """A table whose columns have names."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""


N = TypeVar("N", bound=Named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table that can be read once, in batches of the wanted columns; a folder's `parts` are its files.

    `n_rows` is None where no file states it. `types` are the columns' own, where batches may hold them otherwise.
    """

    name: str
    columns: tuple[str, ...] = field(repr=False)
    _open: Any = field(repr=False)
    n_rows: int | None = None
    types: pa.Schema | None = field(default=None, repr=False)
    path: Path | None = None
    parts: tuple[Source, ...] = ()
    threaded: bool = False

    def scan(self, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The same batches as `batches` in any order: the files of a folder are read side by side."""
        parts = self.parts or (self,)
        return merged((part.batches(columns) for part in parts), files_at_once(parts))

    def batches(self, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Record batches of these columns, in this order, at most `batch_rows` rows each."""
        rows = batch_rows(len(columns))
        try:
            for batch in self._open(columns):
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)
        except (pa.ArrowException, OSError, EOFError, ValueError):
            # What Arrow says may quote a cell of the table.
            raise DataError(
                f"{self.name} could not be read to its end: it is damaged or cut off. Nothing was released and no "
                "privacy was spent."
            ) from None


def files_at_once(parts: Sequence[Source]) -> int:
    """How many files are read side by side: one a thread, but two where reading one takes threads and memory itself."""
    return min(2, workers()) if any(part.threaded for part in parts) else workers()


def open_source(data: object) -> Source:
    """A path to a CSV, TSV or Parquet file, a folder of them, or any object that exports an Arrow stream.

    Raises DataError when there is no such table, or it has no header or repeated column names.
    """
    if isinstance(data, str | Path):
        source = _open_path(Path(data))
    elif hasattr(data, "__arrow_c_stream__"):
        try:
            reader = pa.RecordBatchReader.from_stream(data)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            # What Arrow says may quote a cell: pandas converts its columns here.
            raise DataError(
                f"the table of type {type(data).__name__} does not export an Arrow stream. It must be a table whose "
                "columns have one type each; convert mixed columns to text."
            ) from None
        source = Source(name="the table", columns=tuple(reader.schema.names), _open=lambda names: _pick(reader, names))
    else:
        raise DataError(
            "data must be a path or an object that exports an Arrow stream (pyarrow, pandas, polars, DuckDB), got "
            f"{type(data).__name__}."
        )
    return unrepeated(source)


def takes_one_pass(data: object) -> bool:
    """Whether the rows of this table can be read only once."""
    return isinstance(data, pa.RecordBatchReader)


def require_columns(source: Named, schema: Schema) -> None:
    """Refuse a table that lacks a column for some attribute.

    The table's other columns are not named: what the schema leaves out stays out of messages too.
    """
    absent = [name for name in schema.names if name not in source.columns]
    if absent:
        raise DataError(
            f"{source.name} has no column for {', '.join(repr(name) for name in absent)}. Correct the schema, or "
            "remove the attribute from it."
        )


def unrepeated(source: N) -> N:
    """The table, refused where a column's name is repeated."""
    first: dict[str, int] = {}
    for number, name in enumerate(source.columns, start=1):
        if first.setdefault(name, number) != number:
            raise DataError(
                f"columns {first[name]} and {number} of {source.name} have the same name. Rename one of them."
            )
    return source


def _pick(reader: pa.RecordBatchReader, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        yield batch.select(list(names))


def _open_path(path: Path) -> Source:
    if path.is_dir():
        # Names that begin with a dot or an underline are notes of the tool that wrote the folder, not data.
        files = sorted(file for file in path.rglob("*") if file.is_file() and not _is_note(file.relative_to(path)))
        parts = [unrepeated(_open_file(file)) for file in files]
        if not parts:
            raise DataError(f"the folder '{path}' holds no files. It must hold CSV or Parquet files.")
        for part in parts:
            if set(part.columns) != set(parts[0].columns):
                raise DataError(
                    f"{part.name} and {parts[0].name} have different columns. Files of a folder must agree."
                )

        def chain(names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
            for part in parts:
                yield from part.batches(names)

        known = [part.n_rows for part in parts if part.n_rows is not None]
        return Source(
            name=f"folder '{path}'",
            columns=parts[0].columns,
            _open=chain,
            n_rows=sum(known) if len(known) == len(parts) else None,
            types=parts[0].types,
            path=path,
            parts=tuple(parts),
        )
    if not path.exists():
        raise DataError(f"file '{path}' does not exist. Check the path.")
    return _open_file(path)


def _is_note(path: Path) -> bool:
    return any(part[0] in "._" for part in path.parts)


def _open_file(path: Path) -> Source:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] in _COMPRESSED else "".join(suffixes[-1:])
    try:
        if path.stat().st_size == 0:
            raise DataError(f"file '{path}' is empty. It must hold a header and rows.")
        if kind in _DELIMITERS:
            return _open_csv(path, _DELIMITERS[kind])
        if kind in (".parquet", ".pq"):
            return _open_parquet(path)
    except OSError as error:
        raise DataError(f"file '{path}' cannot be opened: {error.strerror or error}.") from None
    raise DataError(f"file '{path}' must end in .csv, .tsv (also .gz and other compressions) or .parquet.")


def _open_parquet(path: Path) -> Source:
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, ValueError):
        raise DataError(f"file '{path}' is not a Parquet file, or it is damaged.") from None

    def read(names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        # Texts with each distinct one once: they are then encoded once, too.
        texts = [name for name in names if _is_text(schema.field(name).type)]
        booleans = {name for name in names if pa.types.is_boolean(schema.field(name).type)}
        size = batch_rows(len(names))
        with pa.OSFile(str(path)) as stream, pq.ParquetFile(stream, read_dictionary=texts) as file:
            many = file.metadata.num_rows * len(booleans) >= _MANY_BITS
            bits = _bits(stream, file, booleans) if many else None
            for groups in _row_groups(file.metadata):
                ready = bits(groups) if bits else {}
                rest = [name for name in names if name not in ready]
                if ready and not rest:
                    yield pa.record_batch(ready, pa.schema(map(schema.field, names), schema.metadata))
                    continue
                batches = file.iter_batches(
                    batch_size=size,
                    row_groups=groups,
                    columns=rest,
                    use_threads=workers() > 1,
                )
                found = (batch.select(rest) for batch in batches)
                for batch in _beside(ready, found, schema, size) if ready else found:
                    yield batch.select(list(names))

    return Source(
        name=f"file '{path}'",
        columns=tuple(schema.names),
        _open=read,
        n_rows=n_rows,
        types=schema,
        path=path,
        threaded=True,
    )


def _bits(stream: Any, file: Any, names: set[str]) -> Callable[[list[int]], dict[str, pa.BooleanArray]]:
    """Reads, of some row groups, those of the boolean columns that do not need Arrow: many times faster."""
    # Imported here, before threads begin: numba is slow to load.
    from sklar.rows.bits import Booleans

    return Booleans(stream, file, names).read


def _beside(
    ready: dict[str, pa.BooleanArray], batches: Iterable[pa.RecordBatch], schema: pa.Schema, size: int
) -> Iterator[pa.RecordBatch]:
    """The batches, of so many rows, each with its rows of the columns that are ready."""
    rows, at, end = len(next(iter(ready.values()))), 0, 0
    fields = [schema.field(name) for name in ready]
    for batch in batches:
        end = at + batch.num_rows
        if end > rows:
            break
        columns = [*batch.columns, *(column.slice(at, end - at) for column in ready.values())]
        yield pa.record_batch(columns, pa.schema([*batch.schema, *fields], batch.schema.metadata))
        at = end
    # In a damaged file columns may differ in length: Arrow ends with the shortest, but not inside a batch.
    if end != rows and min(end, rows) % size:
        raise ValueError("columns differ in length.")


def _row_groups(metadata: Any) -> Iterator[list[int]]:
    """Row groups that are read at once: Arrow keeps buffers of all of them until it is done with the last."""
    groups, rows = [], 0
    for group in range(metadata.num_row_groups):
        groups.append(group)
        rows += metadata.row_group(group).num_rows
        if rows >= BATCH_ROWS:
            yield groups
            groups, rows = [], 0
    if groups:
        yield groups


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _open_csv(path: Path, delimiter: str) -> Source:
    columns = _header(path, delimiter)

    def read(names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        from pyarrow import csv as arrow_csv

        ragged = 0

        def skip(_row: object) -> str:
            nonlocal ragged
            ragged += 1
            return "skip"

        with pa.input_stream(str(path), compression="detect") as stream:
            try:
                batches = arrow_csv.open_csv(
                    pa.lib.TransformInputStream(stream, _readable(delimiter)),
                    read_options=arrow_csv.ReadOptions(block_size=_CSV_BLOCK),
                    parse_options=arrow_csv.ParseOptions(
                        delimiter=delimiter,
                        newlines_in_values=True,
                        invalid_row_handler=skip,
                        # In a file of one column an empty line is a row whose value is empty.
                        ignore_empty_lines=len(columns) > 1,
                    ),
                    convert_options=arrow_csv.ConvertOptions(
                        include_columns=list(names),
                        column_types={name: pa.binary() for name in names},
                        strings_can_be_null=False,
                    ),
                )
            except pa.ArrowInvalid as error:
                if "Empty CSV" in str(error):
                    return
                raise
            yield from batches
        # A ragged row is still a row of the table: its values are unknown, its number counts.
        for start in range(0, ragged, BATCH_ROWS):
            rows = min(BATCH_ROWS, ragged - start)
            yield pa.record_batch({name: pa.nulls(rows, pa.binary()) for name in names})

    return Source(name=f"file '{path}'", columns=columns, _open=read, path=path)


def _readable(delimiter: str) -> Callable[[pa.Buffer], bytes]:
    """A filter for what Arrow fails on: text that is not UTF-8 is replaced, records longer than a block are cut."""
    from sklar.rows.records import bounded

    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    # With room for a quote that closes and the end of the line.
    bound = bounded(ord(delimiter), _CSV_BLOCK - 4)
    return lambda block: bound(decoder.decode(bytes(block), final=not len(block)).encode())


def _header(path: Path, delimiter: str) -> tuple[str, ...]:
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            # The wrapper decodes ahead, into the rows, where nothing may raise; the header is checked by itself.
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
            columns = tuple(next(csv.reader(text, delimiter=delimiter), ()))
            "".join(columns).encode()
    except UnicodeEncodeError:
        raise DataError(
            f"the header of file '{path}' must be UTF-8 text. Convert it first (for example with iconv)."
        ) from None
    except (csv.Error, pa.ArrowException, OSError, EOFError):
        raise DataError(f"file '{path}' has no readable header line. It must begin with the column names.") from None
    if not any(columns):
        raise DataError(f"file '{path}' has no header line. It must begin with the column names.")
    return columns
