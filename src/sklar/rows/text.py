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
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import IO, Any, cast

import polars as pl

from sklar.errors import DataError
from sklar.machine.extras import require
from sklar.machine.stores import Remote
from sklar.public.reading import Reading, codec_of
from sklar.rows.records import Records

_BLOCK = 1 << 24
_ROWS_AT_ONCE = 1 << 16
_SIGNS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
DELIMITERS = {".csv": ",", ".tsv": "\t"}
_BY_PYARROW = {".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}
COMPRESSED = {".gz", ".bz2", ".xz", *_BY_PYARROW}
# What reading a damaged file may raise.
_BROKEN = (csv.Error, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
# What files begin with, the longest first: UTF-32's mark begins as that of UTF-16.
_MARKS = (
    ("utf-32", "-le", codecs.BOM_UTF32_LE),
    ("utf-32", "-be", codecs.BOM_UTF32_BE),
    ("utf-8", "", codecs.BOM_UTF8),
    ("utf-16", "-le", codecs.BOM_UTF16_LE),
    ("utf-16", "-be", codecs.BOM_UTF16_BE),
)
# What a JSON value is encoded as that can be in no domain, as lists are elsewhere.
_NO_VALUE = "(not a value)"


def kind_of(path: Path | Remote) -> str:
    """The suffix of a file's name, without that of its compression, in lower case."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return suffixes[-2] if len(suffixes) > 1 and suffixes[-1] in COMPRESSED else "".join(suffixes[-1:])


def open_bytes(path: Path | Remote) -> IO[bytes]:
    """A file's bytes, decompressed as its suffix says."""
    suffix = path.suffix.lower()
    given: Any = path if isinstance(path, Path) or suffix not in COMPRESSED else path.open()
    if suffix == ".gz":
        import gzip

        return cast(IO[bytes], gzip.open(given, "rb"))
    if suffix == ".bz2":
        import bz2

        return cast(IO[bytes], bz2.open(given, "rb"))
    if suffix == ".xz":
        return cast(IO[bytes], lzma.open(given, "rb"))
    if suffix in _BY_PYARROW:
        require("pyarrow", what=f"a file that ends in {suffix}", package="pyarrow", extra="arrow")
        import pyarrow as pa

        given = str(path) if isinstance(path, Path) else given
        return cast(IO[bytes], pa.input_stream(given, compression=_BY_PYARROW[suffix]))
    return path.open("rb")


def begin(path: Path | Remote, encoding: str) -> tuple[str, int]:
    """The codec of a file in this encoding, and how many bytes its byte order mark takes, which may decide between two.

    Without a mark UTF-16 and UTF-32 are read as little-endian, which is how most of them are.
    """
    codec = codec_of(encoding) or encoding
    with open_bytes(path) as stream:
        first = stream.read(4)
    for family, order, mark in _MARKS:
        if codec in (family, family + order) and first.startswith(mark):
            return family + order, len(mark)
    return codec + "-le" if codec in ("utf-16", "utf-32") else codec, 0


def read_header(path: Path | Remote, reading: Reading) -> tuple[tuple[str, ...], int]:
    """The names of a CSV file's columns, and how many bytes its first record takes once it is UTF-8.

    They are in the file's first record, which is public, or in `reading`, where files have no header.
    """
    taken = 0

    def lines(text: io.TextIOWrapper) -> Iterator[str]:
        nonlocal taken
        for line in text:
            taken += len(line.encode())
            yield line

    try:
        codec, mark = begin(path, reading.encoding)
        if not reading.header:
            return reading.columns, 0
        with open_bytes(path) as stream:
            stream.read(mark)
            # The wrapper decodes ahead, into the rows, where nothing may raise; the header is checked by itself.
            text = io.TextIOWrapper(stream, encoding=codec, errors="replace", newline="")
            columns = tuple(next(csv.reader(lines(text), delimiter=reading.delimiter or ",", **_quoting(reading)), ()))
    except _BROKEN:
        raise DataError(f"file '{path}' has no readable header line. It must begin with the column names.") from None
    if any("\ufffd" in column or "\0" in column for column in columns):
        raise DataError(
            f"the header of file '{path}' must be {reading.encoding} text. Set encoding in [table] to what it is "
            f"written in{_likely_encoding(path)}."
        )
    if not any(columns):
        raise DataError(f"file '{path}' has no header line. It must begin with the column names.")
    return columns, taken


def _quoting(reading: Reading) -> dict[str, Any]:
    return {"quotechar": reading.quote} if reading.quote else {"quotechar": None, "quoting": csv.QUOTE_NONE}


def _likely_encoding(path: Path | Remote) -> str:
    """What the file's first bytes, which are those of its header, say of its encoding."""
    with open_bytes(path) as stream:
        first = stream.read(4)
    marks = [family for family, _, mark in _MARKS if first.startswith(mark)]
    if marks:
        return f', as its first bytes say: encoding = "{marks[0]}"'
    if b"\0" in first:
        return f', probably encoding = "utf-16-{"be" if first[0] == 0 else "le"}"'
    return ', for example encoding = "windows-1252" or "latin-1"'


def likely_option(path: Path | Remote, reading: Reading, names: Collection[str]) -> str | None:
    """What in `[table]` would give a CSV file these columns, in words; None where nothing is likely.

    Its header alone decides, which is public, and nothing of it is quoted: what looks like a header may be a row.
    """
    columns, _ = read_header(path, reading)
    for delimiter, quote in product(_SIGNS, (reading.quote, '"', "'")):
        try:
            found, _ = read_header(path, replace(reading, delimiter=delimiter, quote=quote))
        except DataError:
            continue
        if set(names) <= set(found):
            signs = {"delimiter": (delimiter, reading.delimiter), "quote": (quote, reading.quote)}
            options = [f"{key} = {json.dumps(sign)}" for key, (sign, present) in signs.items() if sign != present]
            return f"Its header has them between {_SIGNS[delimiter]}: set {' and '.join(options)} in [table]."
    if {name.strip().casefold() for name in names} <= {column.strip().casefold() for column in columns}:
        return "Its header has them with other capitals or spaces: write them as they stand there."
    return None


def lines_are_records(path: Path | Remote, reading: Reading) -> bool:
    """Whether every line feed of a CSV file ends a record, by declaration: then any process can begin at any of them.

    Nothing is quoted, and no other character of the file's encoding holds the byte of a line feed.
    """
    return not reading.quote and path.suffix.lower() not in COMPRESSED and _like_ascii(codec_of(reading.encoding) or "")


def read_csv(
    path: Path | Remote,
    reading: Reading,
    columns: tuple[str, ...],
    skip: int,
    names: tuple[str, ...],
    span: tuple[int, int] | None = None,
) -> Iterator[pl.DataFrame]:
    """The rows after the header, which takes `skip` bytes of UTF-8: texts of these columns, ragged rows last.

    With a `span` of bytes, where lines are records: those whose lines begin in it.
    """
    delimiter, quote = reading.delimiter or ",", reading.quote
    # With room for a quote that closes and the end of the line.
    records = Records(delimiter.encode(), quote.encode(), len(columns), _BLOCK - 4)
    wanted = [columns.index(name) for name in names]
    schema = {str(number): pl.String() for number in range(len(columns))}

    def parse(block: bytes) -> pl.DataFrame:
        scan = pl.scan_csv(
            block,
            has_header=False,
            separator=delimiter,
            quote_char=records.quote.decode(),
            schema=schema,
            empty_string_is_null=False,
        )
        # By position: a name may look like a pattern.
        frame = scan.select(pl.nth(wanted)).collect()
        frame.columns = list(names)
        return frame

    codec, mark = begin(path, reading.encoding)
    if span is not None and span[0] > 0:
        mark, skip = 0, 0
    with open_bytes(path) as stream:
        blocks = _blocks(stream) if span is None else _lines_within(stream, *span)
        for block in _texts(blocks, codec, mark):
            rest, skip = block[skip:], max(skip - len(block), 0)
            if whole := records.take(rest):
                yield parse(whole)
    if whole := records.finish():
        yield parse(whole)
    # A ragged row is still a row of the table: its values are unknown, its number counts.
    for start in range(0, records.ragged, _ROWS_AT_ONCE):
        rows = min(_ROWS_AT_ONCE, records.ragged - start)
        yield pl.DataFrame([pl.Series(name, [None], dtype=pl.String).new_from_index(0, rows) for name in names])


def read_json_lines(path: Path | Remote, names: tuple[str, ...]) -> Iterator[pl.DataFrame]:
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


def json_keys(path: Path | Remote) -> tuple[str, ...]:
    """Every key of every line, in the order in which they occur: private, for the custodian's eyes."""
    keys: dict[str, None] = {}
    for line in _lines(path):
        keys |= dict.fromkeys(_object(line))
    return tuple(keys)


def _like_ascii(codec: str) -> bool:
    return bytes(range(128)).decode(codec, errors="replace") == bytes(range(128)).decode("ascii")


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    while block := stream.read(_BLOCK):
        yield block


def _lines_within(stream: IO[bytes], first: int, last: int) -> Iterator[bytes]:
    """The lines that begin at or after one byte of a file and before another, in blocks."""
    at = max(first - 1, 0)
    stream.seek(at)
    inside = first == 0
    while at < last or inside:
        block = stream.read(_BLOCK)
        if not block:
            return
        begin, end = 0, len(block)
        if not inside:
            # The line that the byte before the first stands in is another part's.
            begin = block.find(b"\n") + 1
            inside = begin > 0 and at + begin < last
            if not inside and (begin > 0 or at + end >= last):
                return
        if inside and at + end >= last:
            # The last line that begins inside ends at the first line feed from the byte before `last` on.
            found = block.find(b"\n", max(last - 1 - at, 0))
            if found >= 0:
                yield block[begin : found + 1]
                return
        if inside:
            yield block[begin:]
        at += end


def _texts(blocks: Iterator[bytes], codec: str, mark: int) -> Iterator[bytes]:
    """The file as UTF-8, block by block, without the bytes of its mark."""
    decoder = codecs.getincrementaldecoder(codec)(errors="replace")
    ascii_alike = _like_ascii(codec)
    for whole in blocks:
        block, mark = whole[mark:], 0
        if ascii_alike and block.isascii() and not decoder.getstate()[0]:
            yield block
        else:
            yield decoder.decode(block).encode()
    yield decoder.decode(b"", final=True).encode()


def _lines(path: Path | Remote) -> Iterator[bytes]:
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
