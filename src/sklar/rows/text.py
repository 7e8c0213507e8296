"""Text files, CSV and JSON lines, to batches of texts.

Types are never guessed, because a guess, and the error when it turns out wrong, would depend on the rows; and polars
is never given a byte that it could fail on. Bytes that are not text become the replacement character. A CSV record
with too few or too many fields, or of more than 16 MiB, becomes a row of nulls, and so does a line that is not a JSON
object: it is still a row of the table.

A CSV reader may fail on an unterminated quote, a long record or a field too many, and its error would depend on a row.
So polars is given only blocks whose records have all their fields and are quoted as a whole or not at all, which is
most of most files; Python's own reader, which never fails, reads the other blocks.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import lzma
import re
import zlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from itertools import pairwise, product
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.errors import DataError
from sklar.machine.extras import require
from sklar.machine.stores import Remote
from sklar.public.settings import Reading, codec_of

if TYPE_CHECKING:
    from _csv import Reader

# Bytes that are read and checked at a time, that polars parses at a time, and that a record may have.
_BLOCK, _PARSED, _LONGEST = 1 << 20, 1 << 24, 1 << 24
# The least bytes of a piece of a block in which something is odd.
_PIECE = 1 << 15
_LONGEST_NAME = 1 << 17
_ROWS_AT_ONCE = 1 << 16
_LINE_FEED, _CARRIAGE_RETURN = 10, 13
_SIGNS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
DELIMITERS = {".csv": ",", ".tsv": "\t"}
_BY_PYARROW = {".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}
_BY_PYTHON = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}
COMPRESSED = {*_BY_PYTHON, *_BY_PYARROW}
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
    if suffix in _BY_PYTHON:
        return cast(IO[bytes], import_module(_BY_PYTHON[suffix]).open(given, "rb"))
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
        while line := text.readline(_LONGEST):
            taken += len(line.encode())
            if taken > _LONGEST:
                raise ValueError("a header is shorter")
            yield line

    try:
        codec, mark = begin(path, reading.encoding)
        if not reading.header:
            return reading.columns, 0
        with open_bytes(path) as stream:
            stream.read(mark)
            # The wrapper decodes ahead, into the rows, where nothing may raise; the header is checked by itself.
            text = io.TextIOWrapper(stream, encoding=codec, errors="replace", newline="")
            columns = tuple(next(_rows_of(lines(text), reading), ()))
        if any(len(column) > _LONGEST_NAME for column in columns):
            raise ValueError("a name is shorter")
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


def _rows_of(lines: Iterable[str], reading: Reading) -> Reader:
    """The records of these lines by Python's reader, without a limit of its own on their length."""
    csv.field_size_limit(2**31 - 1)
    quoting: dict[str, Any] = {"quoting": csv.QUOTE_MINIMAL if reading.quote else csv.QUOTE_NONE}
    return csv.reader(lines, delimiter=reading.delimiter or ",", quotechar=reading.quote or None, **quoting)


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
    records = _CsvRecords(reading, len(columns))
    wanted = [columns.index(name) for name in names]
    schema = {str(number): pl.String() for number in range(len(columns))}

    def parse(lines: bytes) -> pl.DataFrame:
        scan = pl.scan_csv(
            lines,
            has_header=False,
            separator=reading.delimiter or ",",
            quote_char=reading.quote or None,
            schema=schema,
            empty_string_is_null=False,
        )
        # By position: a name may look like a pattern.
        frame = scan.select(pl.nth(wanted)).collect()
        frame.columns = list(names)
        return frame

    def framed(rows: list[list[str]]) -> pl.DataFrame:
        fields = list(zip(*rows, strict=True))
        return pl.DataFrame(
            [pl.Series(name, fields[at], dtype=pl.String) for name, at in zip(names, wanted, strict=True)]
        )

    codec, mark = begin(path, reading.encoding)
    if span is not None and span[0] > 0:
        mark, skip = 0, 0
    with open_bytes(path) as stream:
        blocks = _blocks(stream) if span is None else _lines_within(stream, *span)
        parts = _runs(records.cut(_without(skip, _texts(blocks, codec, mark))))
        yield from _large(parse(part) if isinstance(part, bytes) else framed(part) for part in parts)
    # A ragged row is still a row of the table: its values are unknown, its number counts.
    for start in range(0, records.ragged, _ROWS_AT_ONCE):
        rows = min(_ROWS_AT_ONCE, records.ragged - start)
        yield pl.DataFrame([pl.Series(name, [None], dtype=pl.String).new_from_index(0, rows) for name in names])


def _without(skip: int, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The blocks without their first bytes."""
    for block in blocks:
        rest, skip = block[skip:], max(skip - len(block), 0)
        if rest:
            yield rest


def _runs(parts: Iterable[bytes | list[list[str]]]) -> Iterator[bytes | list[list[str]]]:
    """The same parts that are not empty, neighboring ones of bytes as one."""
    run = bytearray()
    for part in parts:
        if run and (not isinstance(part, bytes) or len(run) >= _PARSED):
            yield bytes(run)
            run.clear()
        if isinstance(part, bytes):
            run += part
        elif part:
            yield part
    if run:
        yield bytes(run)


def _large(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The same rows in frames that are worth a batch."""
    waiting: list[pl.DataFrame] = []
    for frame in frames:
        waiting.append(frame)
        if sum(each.height for each in waiting) >= _ROWS_AT_ONCE or frame.estimated_size() >= _PARSED:
            yield pl.concat(waiting)
            waiting = []
    if waiting:
        yield pl.concat(waiting)


def _last_line(text: bytes) -> int:
    """Where the last whole line ends: a carriage return at the end may be the first half of an end of line."""
    return max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1


class _CsvRecords:
    """Cuts UTF-8 text of a CSV file, from its first record on, into whole records of exactly `fields` fields.

    `ragged` counts the records that have another number of fields or are too long, which are left out.
    """

    def __init__(self, reading: Reading, fields: int) -> None:
        self.ragged, self._reading, self._fields = 0, reading, fields
        self._delimiter, self._quote = (reading.delimiter or ",").encode(), reading.quote.encode()
        # Into pieces of some records a block is cut in which something is odd.
        self._piece = max(_PIECE, 64 * fields)

    def cut(self, blocks: Iterator[bytes]) -> Iterator[bytes | list[list[str]]]:
        """Lines that any CSV reader understands as they are written, or the rows of others."""
        rest, pieces = b"", deque[bytes]()
        # The blocks, or the pieces of one in which something is odd: most of them are plain.
        source = iter(lambda: pieces.popleft() if pieces else next(blocks, b""), b"")
        for block in source:
            is_piece = len(block) <= self._piece
            # A record that goes on waits for as much again, so that no byte is looked at many times.
            while len(block) < len(rest) and (following := next(source, b"")):
                block += following
            text = rest + block
            end = self._last_end(text)
            lines = self._plain(text[:end])
            # After a quote that is not where it should be nothing seems to end.
            if lines is not None and (len(text) - end <= self._piece or not self._has_quotes(text[end:])):
                rest = text[end:]
                yield lines
            elif is_piece:
                rows, rest = self._rows(text)
                yield rows
            else:
                pieces.extend(block[at : at + self._piece] for at in range(0, len(block), self._piece))
                continue
            if len(rest) > _LONGEST + len(b"\r\n"):
                self.ragged += 1
                rest = self._after(rest, source)
        if rest:
            lines = self._plain(rest + b"\n")
            yield self._rows(rest, last=True)[0] if lines is None else lines

    def _has_quotes(self, text: bytes) -> bool:
        return bool(self._quote) and self._quote in text

    def _inside(self, text: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Whether each byte is inside of quotes, which those that open are and those that close are not."""
        return np.asarray(np.logical_xor.accumulate(text == ord(self._quote)))

    def _last_end(self, block: bytes) -> int:
        """Where the last whole record ends, if all quotes are where they should be."""
        if not self._has_quotes(block):
            return _last_line(block)
        text = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero((text == _LINE_FEED) & ~self._inside(text))
        return int(ends[-1]) + 1 if ends.size else 0

    def _plain(self, lines: bytes) -> bytes | None:
        """Whole records with ends of line of one byte, where each has all its fields; else None."""
        if self._has_quotes(lines):
            return self._quoted(lines)
        lines = lines.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        text = np.frombuffer(lines, dtype=np.uint8)
        return lines if self._has_all_fields(text, np.ones(1, dtype=bool)) else None

    def _quoted(self, lines: bytes) -> bytes | None:
        """The same for lines with quotes: fields are quoted as a whole or not at all, and quotes inside are doubled."""
        text, quote = np.frombuffer(lines, dtype=np.uint8), ord(self._quote)
        inside = self._inside(text)
        returns = (text == _CARRIAGE_RETURN) & ~inside
        if inside[-1] or (np.append(text[1:], 0)[returns] != _LINE_FEED).any():
            return None
        text, inside = text[~returns], inside[~returns]
        at = np.flatnonzero(text == quote)
        # What stands before a quote that opens, and behind one that closes, is the end of a field or the other of two.
        before, behind = np.insert(text, 0, _LINE_FEED)[at], np.append(text, _LINE_FEED)[at + 1]
        beside = np.where(inside[at], before, behind)
        if not ((beside == ord(self._delimiter)) | (beside == _LINE_FEED) | (beside == quote)).all():
            return None
        return text.tobytes() if self._has_all_fields(text, ~inside) else None

    def _has_all_fields(self, text: NDArray[np.uint8], outside: NDArray[np.bool_]) -> bool:
        """Whether all lines are records with all their fields, and none is too long; `outside` of quotes fields end."""
        ends = (text == _LINE_FEED) & outside
        marks = np.flatnonzero(ends | ((text == ord(self._delimiter)) & outside))
        last = np.arange(self._fields - 1, marks.size, self._fields)
        if marks.size % self._fields or not np.array_equal(np.flatnonzero(ends[marks]), last):
            return False
        lengths = np.diff(marks[last], prepend=-1) - 1
        # In a file of one column an empty line is a record, which a reader may skip.
        return bool((lengths <= _LONGEST).all() and (self._fields > 1 or lengths.all()))

    def _rows(self, text: bytes, *, last: bool = False) -> tuple[list[list[str]], bytes]:
        """The records of a text by Python's reader, and what is left: the last one, where the text goes on."""
        end = len(text) if last else _last_line(text)
        lines = list(io.StringIO(text[:end].decode(), newline=""))
        # A line more, which is a row of nothing, or a part of the last record where that goes on.
        reader = _rows_of([*lines, *([] if last else ["\n"])], self._reading)
        rows, ends = list[list[str]](), [0]
        for row in reader:
            rows.append(row)
            ends.append(reader.line_num)
        if len(text) > _LONGEST:
            records = ["".join(lines[first:end]).removesuffix("\n") for first, end in pairwise(ends)]
            short = [len(record.removesuffix("\r").encode()) <= _LONGEST for record in records]
            rows = [row if fits else [*row, *self._fields * [""]] for row, fits in zip(rows, short, strict=True)]
        rest = b""
        if not last:
            rows.pop()
            rest = "".join(lines[ends[-2] :]).encode() + text[end:]
        if self._fields == 1:
            rows = [row or [""] for row in rows]
        whole = [row for row in rows if len(row) == self._fields]
        self.ragged += len(rows) - len(whole) - rows.count([])
        return whole, rest

    def _after(self, text: bytes, blocks: Iterator[bytes]) -> bytes:
        """What follows the record that `text` begins with, which is too long to be kept."""
        mark = re.compile(b"[\r\n]|" + re.escape(self._delimiter))
        quoted = bool(self._quote) and text.startswith(self._quote)
        at = int(quoted)
        while True:
            if at + 2 > len(text):
                following = next(blocks, b"")
                if not following:
                    return b""
                text, at = text[at:] + following, 0
            found = text.find(self._quote, at) if quoted else getattr(mark.search(text, at), "start", lambda: -1)()
            at = len(text) if found < 0 else found
            if at + 1 >= len(text):
                continue
            if quoted:
                # A doubled quote stands for itself.
                quoted = text[at + 1] == text[at]
                at += 1 + quoted
            elif text[at : at + 1] == self._delimiter:
                quoted = bool(self._quote) and text[at + 1 : at + 2] == self._quote
                at += 1 + quoted
            else:
                return text[at + 1 + (text[at : at + 2] == b"\r\n") :]


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
    """The lines of a file that are not blank, each cut to a bounded length."""
    with open_bytes(path) as stream:
        long = False
        while line := stream.readline(_LONGEST):
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
