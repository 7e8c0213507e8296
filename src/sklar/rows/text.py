"""Text files, CSV and JSON lines, to batches of texts.

Types are never guessed, because a guess, and the error when it turns out wrong, would depend on the rows; and polars
is never given a byte that it could fail on. Bytes that are not text become the replacement character. A CSV record
with too few or too many fields becomes a row of nulls, and so does a line that is not a JSON object: it is still a row
of the table. A record of more than 16 MiB is cut there.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import polars as pl

from sklar.errors import DataError
from sklar.machine.extras import require
from sklar.rows.records import Records

_BLOCK = 1 << 24
_ROWS_AT_ONCE = 1 << 16
_BY_PYARROW = {".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}
COMPRESSED = {".gz", ".bz2", ".xz", *_BY_PYARROW}
# What reading a damaged file may raise.
_BROKEN = (csv.Error, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
# What a JSON value is encoded as that can be in no domain, as lists are elsewhere.
_NO_VALUE = "(not a value)"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat:
    """How a CSV file is written. A field whose text is among `nulls` is null."""

    delimiter: str = ","
    quote: str = '"'
    encoding: str = "utf-8"
    nulls: tuple[str, ...] = ()


def open_bytes(path: Path) -> IO[bytes]:
    """A file's bytes, decompressed as its suffix says."""
    suffix = path.suffix.lower()
    if suffix == ".gz":
        import gzip

        return cast(IO[bytes], gzip.open(path, "rb"))
    if suffix == ".bz2":
        import bz2

        return cast(IO[bytes], bz2.open(path, "rb"))
    if suffix == ".xz":
        return cast(IO[bytes], lzma.open(path, "rb"))
    if suffix in _BY_PYARROW:
        require("pyarrow", what=f"a file that ends in {suffix}", package="pyarrow", extra="arrow")
        import pyarrow as pa

        return cast(IO[bytes], pa.input_stream(str(path), compression=_BY_PYARROW[suffix]))
    return path.open("rb")


def read_header(path: Path, layout: CsvFormat) -> tuple[tuple[str, ...], int]:
    """The names of a CSV file's columns, and how many bytes the header takes."""
    taken = 0

    def lines(text: io.TextIOWrapper) -> Iterator[str]:
        nonlocal taken
        for line in text:
            taken += len(line.encode(layout.encoding, errors="surrogateescape"))
            yield line

    try:
        with open_bytes(path) as stream:
            if stream.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:
                taken = len(codecs.BOM_UTF8)
        with open_bytes(path) as stream:
            stream.read(taken)
            # The wrapper decodes ahead, into the rows, where nothing may raise; the header is checked by itself.
            text = io.TextIOWrapper(stream, encoding=layout.encoding, errors="surrogateescape", newline="")
            columns = tuple(next(csv.reader(lines(text), delimiter=layout.delimiter, quotechar=layout.quote), ()))
            "".join(columns).encode()
    except UnicodeEncodeError:
        raise DataError(
            f"the header of file '{path}' must be UTF-8 text. Convert it first (for example with iconv)."
        ) from None
    except _BROKEN:
        raise DataError(f"file '{path}' has no readable header line. It must begin with the column names.") from None
    if not any(columns):
        raise DataError(f"file '{path}' has no header line. It must begin with the column names.")
    return columns, taken


def read_csv(
    path: Path, layout: CsvFormat, columns: tuple[str, ...], skip: int, names: tuple[str, ...]
) -> Iterator[pl.DataFrame]:
    """The rows after the header, which takes `skip` bytes: texts of these columns, ragged rows last."""
    # With room for a quote that closes and the end of the line.
    records = Records(layout.delimiter.encode(), layout.quote.encode(), len(columns), _BLOCK - 4)
    wanted = [columns.index(name) for name in names]
    schema = {str(number): pl.String() for number in range(len(columns))}

    def parse(block: bytes) -> pl.DataFrame:
        scan = pl.scan_csv(
            block,
            has_header=False,
            separator=layout.delimiter,
            quote_char=layout.quote,
            schema=schema,
            null_values=list(layout.nulls) or None,
            empty_string_is_null=False,
        )
        # By position: a name may look like a pattern.
        frame = scan.select(pl.nth(wanted)).collect()
        frame.columns = list(names)
        return frame

    with open_bytes(path) as stream:
        stream.read(skip)
        for block in _texts(stream, layout.encoding):
            if whole := records.take(block):
                yield parse(whole)
    if whole := records.finish():
        yield parse(whole)
    # A ragged row is still a row of the table: its values are unknown, its number counts.
    for start in range(0, records.ragged, _ROWS_AT_ONCE):
        rows = min(_ROWS_AT_ONCE, records.ragged - start)
        yield pl.DataFrame([pl.Series(name, [None], dtype=pl.String).new_from_index(0, rows) for name in names])


def read_json_lines(path: Path, names: tuple[str, ...]) -> Iterator[pl.DataFrame]:
    """The rows of a file with one JSON object a line: texts of these keys, null where an object lacks one."""
    rows: list[list[str | None]] = []
    for line in _lines(path):
        found = _object(line)
        rows.append([_text(found.get(name)) for name in names])
        if len(rows) == _ROWS_AT_ONCE:
            yield _framed(rows, names)
            rows = []
    if rows:
        yield _framed(rows, names)


def json_keys(path: Path) -> tuple[str, ...]:
    """Every key of every line, in the order in which they occur: private, for the custodian's eyes."""
    keys: dict[str, None] = {}
    for line in _lines(path):
        keys |= dict.fromkeys(_object(line))
    return tuple(keys)


def _texts(stream: IO[bytes], encoding: str) -> Iterator[bytes]:
    """The file as UTF-8, block by block."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    unicode = codecs.lookup(encoding).name == "utf-8"
    while block := stream.read(_BLOCK):
        if unicode and block.isascii() and not decoder.getstate()[0]:
            yield block
        else:
            yield decoder.decode(block).encode()
    yield decoder.decode(b"", final=True).encode()


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file that are not blank, none longer than a block."""
    with open_bytes(path) as stream:
        long = False
        while line := stream.readline(_BLOCK):
            if not long and line.strip():
                yield line
            # What follows in a line that was cut belongs to it.
            long = not line.endswith(b"\n")


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line.decode("utf-8", errors="replace"), parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        # A lone half of a pair is not text.
        return None if value is None else value.encode("utf-8", errors="replace").decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    return _NO_VALUE


def _framed(rows: list[list[str | None]], names: tuple[str, ...]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            pl.Series(name, list(values), dtype=pl.String)
            for name, values in zip(names, zip(*rows, strict=True), strict=True)
        ]
    )
