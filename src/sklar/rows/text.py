"""Text files, CSV and JSON, to batches of texts.

Nothing here fails because of a row, and no type is guessed. Bytes that are not text become the replacement character. A
CSV record with too few or too many fields, or over 16 MiB, and a line or list element that is not a JSON object are
rows of nulls. Polars gets only complete CSV records, quoted as a whole or not at all; blocks with others are read by
Python's reader, which never fails, and rewritten. A zip holds one such file, unpacked block by block within its size.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from itertools import chain, islice, product
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.errors import DataError
from sklar.machine.extras import require
from sklar.machine.stores import Remote
from sklar.machine.wording import said
from sklar.public.settings import Reading, codec_of
from sklar.rows.encode import NO_TEXT

Names = tuple[str, ...]
# Bytes that are read and checked at a time, that polars parses at a time, and that a record may have.
_BLOCK, _PARSED, _LONGEST = 1 << 17, 1 << 24, 1 << 24
_LONGEST_NAME = 1 << 17
_ROWS_AT_ONCE = 1 << 16
_LINE_FEED, _CARRIAGE_RETURN = 10, 13
SIGNS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
DELIMITERS = {".csv": ",", ".tsv": "\t"}
_BY_PYARROW = {".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}
_BY_PYTHON = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}
COMPRESSED = {*_BY_PYTHON, *_BY_PYARROW, ".zip"}
# Exceptions that a damaged file may raise.
_BROKEN = (csv.Error, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
# The compressions of zips that Python reads.
_UNPACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
# Brackets, commas and quotes of a JSON list; escaped characters are skipped.
_STRUCTURE = re.compile(rb'\\.|["\[\]{},]', re.DOTALL)
# The marks that files begin with, the longest first: UTF-32's begins as that of UTF-16.
_MARKS = [
    ("utf-32", "-le", codecs.BOM_UTF32_LE),
    ("utf-32", "-be", codecs.BOM_UTF32_BE),
    ("utf-8", "", codecs.BOM_UTF8),
]
_MARKS += [("utf-16", "-le", codecs.BOM_UTF16_LE), ("utf-16", "-be", codecs.BOM_UTF16_BE)]


def kind_of(path: Path | Remote) -> str:
    """The suffix of a file's name, without that of its compression, in lower case; of the one file in a zip."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".zip"]:
        return PurePosixPath(_packed(path) or path.suffix).suffix.lower() or ".zip"
    return suffixes[-2] if len(suffixes) > 1 and suffixes[-1] in COMPRESSED else "".join(suffixes[-1:])


def open_bytes(path: Path | Remote) -> IO[bytes]:
    """A file's bytes, decompressed as its suffix says."""
    suffix = path.suffix.lower()
    if suffix == ".zip" and (name := _packed(path)) is not None:
        with zipfile.ZipFile(path if isinstance(path, Path) else path.open()) as archive:
            return archive.open(name)
    if isinstance(path, Path) and suffix not in COMPRESSED:
        return path.open("rb")
    stream: Any = str(path) if isinstance(path, Path) else path.open()
    if suffix in _BY_PYTHON:
        return cast(IO[bytes], import_module(_BY_PYTHON[suffix]).open(stream, "rb"))
    if suffix in _BY_PYARROW:
        require("pyarrow", what=f"a file that ends in {suffix}", package="pyarrow", extra="arrow")
        import pyarrow as pa

        stream = pa.input_stream(stream, compression=_BY_PYARROW[suffix])
    # Files of pyarrow have no lines.
    return io.BufferedReader(stream)


def _packed(path: Path | Remote) -> str | None:
    """The name of the only file in a zip, beside notes of the system that made it; None where it cannot be read."""
    try:
        with zipfile.ZipFile(path if isinstance(path, Path) else path.open()) as archive:
            inside = [each for each in archive.infolist() if not each.is_dir()]
    except (OSError, zipfile.BadZipFile):
        return None
    files = [each for each in inside if not re.search(r"^__MACOSX/|(^|/)\.", each.filename)]
    readable = len(files) == 1 and not files[0].flag_bits & 1 and files[0].compress_type in _UNPACKED
    return files[0].filename if readable else None


def begin(path: Path | Remote, encoding: str) -> tuple[str, int]:
    """The codec of a file in this encoding, and the size of its byte order mark; without one, little-endian."""
    codec = codec_of(encoding) or encoding
    for family, order, mark in marks_of(path)[1]:
        if codec in (family, family + order):
            return family + order, len(mark)
    return codec + "-le" if codec in ("utf-16", "utf-32") else codec, 0


def marks_of(path: Path | Remote) -> tuple[bytes, list[tuple[str, str, bytes]]]:
    """The first bytes of a file, and the marks that they may be."""
    with open_bytes(path) as stream:
        first = stream.read(4)
    return first, [each for each in _MARKS if first.startswith(each[2])]


def read_header(path: Path | Remote, reading: Reading) -> tuple[tuple[str, ...], int]:
    """The names of a CSV file's columns, by its header (public) or by `reading`, and the header's size in UTF-8."""
    taken = 0
    try:
        codec, mark = begin(path, reading.encoding)
        if not reading.header:
            return reading.columns, 0
        with open_bytes(path) as stream:
            stream.read(mark)
            # The wrapper decodes ahead, into the rows, where nothing may raise; the header is checked by itself.
            text = io.TextIOWrapper(stream, encoding=codec, errors="replace", newline="")

            def line() -> str:
                nonlocal taken
                read = text.readline(max(_LONGEST - taken, 0))
                taken += len(read.encode())
                return read

            columns = tuple(next(records_of(iter(line, ""), reading), ()))
        if taken >= _LONGEST or any(len(column) > _LONGEST_NAME for column in columns):
            raise ValueError("a header is shorter")
    except _BROKEN:
        raise DataError(f"file '{path}' has no readable header line. It must begin with the column names.") from None
    if any("\ufffd" in column or "\0" in column for column in columns):
        first, marks = marks_of(path)
        likely = ', for example encoding = "windows-1252" or "latin-1"'
        if marks:
            likely = f', as its first bytes say: encoding = "{marks[0][0]}"'
        elif b"\0" in first:
            likely = f', probably encoding = "utf-16-{"be" if first[0] == 0 else "le"}"'
        raise DataError(said("rows.header_encoding", path=path, encoding=reading.encoding, likely=likely))
    if not any(columns):
        raise DataError(f"file '{path}' has no header line. It must begin with the column names.")
    return columns, taken


def records_of(lines: Iterable[str], reading: Reading) -> Any:
    """The records of these lines by Python's reader, without a limit of its own on their length."""
    csv.field_size_limit(2**31 - 1)
    quoting: dict[str, Any] = {"quoting": csv.QUOTE_MINIMAL if reading.quote else csv.QUOTE_NONE}
    return csv.reader(lines, delimiter=reading.delimiter or ",", quotechar=reading.quote or None, **quoting)


def likely_option(path: Path | Remote, reading: Reading, names: Collection[str]) -> str | None:
    """The setting of `[table]` that would likely give a CSV file these columns, by its header alone; None without one.

    Nothing of the header is quoted: it may be a row.
    """
    columns, _ = read_header(path, reading)
    for delimiter, quote in product(SIGNS, (reading.quote, '"', "'")):
        try:
            others, _ = read_header(path, replace(reading, delimiter=delimiter, quote=quote))
        except DataError:
            continue
        if set(names) <= set(others):
            signs = {"delimiter": (delimiter, reading.delimiter), "quote": (quote, reading.quote)}
            options = [f"{key} = {json.dumps(sign)}" for key, (sign, present) in signs.items() if sign != present]
            return f"Its header has them between {SIGNS[delimiter]}: set {' and '.join(options)} in [table]."
    if {name.strip().casefold() for name in names} <= {column.strip().casefold() for column in columns}:
        return "Its header has them with other capitals or spaces: write them as they stand there."
    return None


def lines_are_records(path: Path | Remote, reading: Reading) -> bool:
    """Whether every line feed of a CSV file ends a record, by declaration: nothing is quoted, and no other character of
    its encoding holds that byte. Then any process can begin at any of them.
    """
    return not reading.quote and path.suffix.lower() not in COMPRESSED and _like_ascii(codec_of(reading.encoding) or "")


def _like_ascii(codec: str) -> bool:
    return bytes(range(128)).decode(codec, errors="replace") == bytes(range(128)).decode("ascii")


def read_csv(
    path: Path | Remote, reading: Reading, columns: Names, skip: int, names: Names, span: tuple[int, int] | None = None
) -> Iterator[pl.DataFrame]:
    """The rows after the header, which takes `skip` bytes of UTF-8: texts of these columns, ragged rows last. With a
    `span` of bytes, where lines are records: those whose lines begin in it.
    """
    # By position: a name may look like a pattern.
    places = pl.nth([columns.index(name) for name in names])
    options: Any = {"has_header": False, "empty_string_is_null": False}
    options |= {"separator": reading.delimiter or ",", "quote_char": reading.quote or None}
    options |= {"schema": {str(number): pl.String() for number in range(len(columns))}}
    empty = pl.DataFrame(schema=dict.fromkeys(names, pl.String))
    records, lines = _CsvRecords(reading, len(columns)), bytearray()

    def parsed() -> pl.DataFrame:
        frame = pl.scan_csv(bytes(lines), **options).select(places).collect()
        frame.columns = empty.columns
        lines.clear()
        return frame

    codec, mark = begin(path, reading.encoding)
    with open_bytes(path) as stream:
        blocks = iter(lambda: stream.read(_BLOCK), b"")
        if span is not None:
            blocks = _lines_within(stream, *span)
            mark, skip = (mark, skip) if span[0] == 0 else (0, 0)
        for block in records.cut(_texts(blocks, codec, mark, skip)):
            lines += block
            if len(lines) >= _PARSED:
                yield parsed()
        if lines:
            yield parsed()
    # A ragged row is still a row of the table: its values are unknown, its number counts.
    for start in range(0, records.ragged, _ROWS_AT_ONCE):
        yield empty.clear(min(_ROWS_AT_ONCE, records.ragged - start))


def _lines_within(stream: IO[bytes], first: int, last: int) -> Iterator[bytes]:
    """The lines that begin at or after one byte of a file and before another, in blocks."""
    at = max(first - 1, 0)
    stream.seek(at)
    block = b"" if first else b"\n"
    # The line that the byte before the first stands in is another part's.
    while not block.endswith(b"\n") and (block := stream.readline(_BLOCK)):
        at += len(block)
    while at < last and (block := stream.read(min(_BLOCK, last - at))):
        at += len(block)
        yield block
    while not block.endswith(b"\n") and (block := stream.readline(_BLOCK)):
        yield block


def _texts(blocks: Iterable[bytes], codec: str, mark: int, skip: int) -> Iterator[bytes]:
    """The file as UTF-8, block by block, without the bytes of its mark, then without those of its header."""
    decoder, ascii_alike = codecs.getincrementaldecoder(codec)(errors="replace"), _like_ascii(codec)
    for whole in chain(blocks, [b""]):
        text, mark = whole[mark:], 0
        if not (whole and ascii_alike and text.isascii() and not decoder.getstate()[0]):
            text = decoder.decode(text, final=not whole).encode()
        rest, skip = text[skip:], max(skip - len(text), 0)
        if rest:
            yield rest


def _last_line(text: bytes) -> int:
    """Where the last whole line ends: a carriage return at the end may be the first half of an end of line."""
    return max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1


class _CsvRecords:
    """Cuts UTF-8 text of a CSV file into whole records of exactly `fields` fields; others are left out as `ragged`."""

    def __init__(self, reading: Reading, fields: int) -> None:
        self.ragged, self._reading, self._fields = 0, reading, fields
        self._delimiter, self._quote = (reading.delimiter or ",").encode(), reading.quote.encode()
        # The bytes that the last record of a block usually has, at most.
        self._usual = max(_BLOCK, 64 * fields)

    def cut(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Lines that every CSV reader understands alike."""
        rest = b""
        for block in blocks:
            # A record that goes on waits for as much again, so that no byte is looked at many times.
            while len(block) < len(rest) and (following := next(blocks, b"")):
                block += following
            text = rest + block
            lines, end = self._plain(text)
            # After a misplaced quote no record seems to end.
            if lines is None or (len(text) - end > self._usual and self._has_quotes(text[end:])):
                lines, end = self._rewritten(text)
            rest = text[end:]
            yield lines
            if len(rest) > _LONGEST + len(b"\r\n"):
                self.ragged += 1
                rest = self._after(rest, blocks)
        if rest:
            whole = rest.removesuffix(b"\n") + b"\n"
            lines, end = self._plain(whole)
            yield lines if lines and end == len(whole) else self._rewritten(rest, last=True)[0]

    def _has_quotes(self, text: bytes) -> bool:
        return bool(self._quote) and self._quote in text

    def _plain(self, block: bytes) -> tuple[bytes | None, int]:
        """Whole records with ends of line of one byte, and where the last ends, if all quotes are where they should be.

        None for the records unless each has all its fields, quoted as a whole.
        """
        if not self._has_quotes(block):
            end = _last_line(block)
            lines = block[:end].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            text, outside = np.frombuffer(lines, dtype=np.uint8), np.ones(1, dtype=bool)
            return lines if self._has_all_fields(text, outside) else None, end
        text, quote = np.frombuffer(block, dtype=np.uint8), ord(self._quote)
        # A quote that opens is inside of quotes, one that closes is not.
        inside = np.logical_xor.accumulate(text == quote)
        ends = np.flatnonzero((text == _LINE_FEED) & ~inside)
        end = int(ends[-1]) + 1 if ends.size else 0
        text, inside = text[:end], inside[:end]
        returns = (text == _CARRIAGE_RETURN) & ~inside
        if (text[np.flatnonzero(returns) + 1] != _LINE_FEED).any():
            return None, end
        text, inside = text[~returns], inside[~returns]
        at = np.flatnonzero(text == quote)
        # An opening quote follows a delimiter, a closing one precedes one; or the quote is doubled.
        beside = np.where(inside[at], np.insert(text, 0, _LINE_FEED)[at], np.append(text, _LINE_FEED)[at + 1])
        whole = (beside == ord(self._delimiter)) | (beside == _LINE_FEED) | (beside == quote)
        return text.tobytes() if whole.all() and self._has_all_fields(text, ~inside) else None, end

    def _has_all_fields(self, text: NDArray[np.uint8], outside: NDArray[np.bool_]) -> bool:
        """Whether all lines are records with all their fields, and none is too long; `outside` of quotes fields end."""
        ends = (text == _LINE_FEED) & outside
        marks = np.flatnonzero(ends | ((text == ord(self._delimiter)) & outside))
        last = np.arange(self._fields - 1, marks.size, self._fields)
        if marks.size % self._fields or not np.array_equal(np.flatnonzero(ends[marks]), last):
            return False
        return bool((np.diff(marks[last], prepend=-1) - 1 <= _LONGEST).all())

    def _rewritten(self, text: bytes, *, last: bool = False) -> tuple[bytes, int]:
        """The records of a text by Python's reader, in plain lines, and where they end: the last may go on."""
        end = len(text) if last else _last_line(text)
        lines = list(io.StringIO(text[:end].decode(), newline=""))
        # An extra empty line: an empty record, or part of the last record if that is unfinished.
        reader, first = records_of([*lines, *([] if last else ["\n"])], self._reading), 0
        records: list[tuple[list[str], str]] = []
        for fields in reader:
            records.append((fields, "".join(lines[first : reader.line_num])))
            first = reader.line_num
        if not last:
            end -= len(records.pop()[1].encode())
        plain, delimiter = io.StringIO(), self._delimiter.decode()
        signs: Any = {"quotechar": self._reading.quote or '"', "quoting": csv.QUOTE_ALL}
        write = csv.writer(plain, delimiter=delimiter, lineterminator="\n", **signs).writerow
        for fields, raw in records:
            fields = fields or [""] * (self._fields == 1)
            long = len(text) > _LONGEST and len(raw.removesuffix("\n").removesuffix("\r").encode()) > _LONGEST
            if long or len(fields) != self._fields:
                self.ragged += bool(fields)
            elif self._quote:
                write(fields)
            else:
                plain.write(delimiter.join(fields) + "\n")
        return plain.getvalue().encode(), end

    def _after(self, text: bytes, blocks: Iterator[bytes]) -> bytes:
        """The text after the record that `text` begins with, which is too long to be kept."""
        ends = b"\r\n|[\r\n]" + (b"|" + re.escape(self._delimiter + self._quote) if self._quote else b"")
        quoted = bool(self._quote) and text.startswith(self._quote)
        at = int(quoted)
        while True:
            mark = re.compile(re.escape(self._quote) + b"{1,2}" if quoted else ends).search(text, at)
            if mark is None or mark.end() == len(text):
                # It may go on in the next block, as may the last byte.
                following = next(blocks, b"")
                if not following:
                    return b""
                text, at = text[mark.start() if mark else -1 :] + following, 0
                continue
            at = mark.end()
            if mark[0][:1] in b"\r\n":
                return text[at:]
            # A doubled quote stands for itself.
            quoted = not quoted or len(mark[0]) == 2


def read_json(path: Path | Remote, names: tuple[str, ...]) -> Iterator[pl.DataFrame]:
    """The rows of a file with one JSON object a line, or a list: texts of these keys, null where one lacks it."""
    objects = _objects(path)
    while rows := [[_text(each.get(name)) for name in names] for each in islice(objects, _ROWS_AT_ONCE)]:
        columns = zip(names, zip(*rows, strict=True), strict=True)
        yield pl.DataFrame([pl.Series(name, values, dtype=pl.String) for name, values in columns])


def json_keys(path: Path | Remote) -> tuple[str, ...]:
    """Every key of every line, in the order in which they occur: private, for the custodian's eyes."""
    return tuple(dict.fromkeys(key for each in _objects(path) for key in each))


def is_list(path: Path | Remote) -> bool:
    """Whether a JSON file begins as a list does."""
    with open_bytes(path) as stream:
        return stream.read(_BLOCK).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")


def _objects(path: Path | Remote) -> Iterator[dict[str, Any]]:
    """The objects of all lines, or elements, that are not blank; an empty one for what is too long or not an object."""
    with open_bytes(path) as stream:
        for written in _elements(stream) if kind_of(path) == ".json" else _lines(stream):
            if written.strip():
                text = written.decode("utf-8", errors="replace")
                try:
                    read = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
                except (ValueError, RecursionError):
                    read = None
                yield read if isinstance(read, dict) else {}


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    long = False
    while line := stream.readline(_LONGEST):
        if not long:
            yield line
        # The rest of a line that was cut belongs to it.
        long = not line.endswith(b"\n")


def _elements(stream: IO[bytes]) -> Iterator[bytes]:
    """The elements of a list, which end at commas outside of texts, lists and objects; null for one too long."""
    element, depth, quoted = bytearray(), 0, False
    while block := stream.read(_BLOCK):
        # An escaped character may begin the next block.
        while block.endswith(b"\\") and (following := stream.read(_BLOCK)):
            block += following
        start = 0
        for mark in _STRUCTURE.finditer(block):
            sign, at = mark[0], mark.start()
            quoted ^= sign == b'"'
            if quoted or sign[0] in b'\\"':
                continue
            depth += (sign in b"[{") - (sign in b"]}")
            if depth == 1 and sign == b"[":
                start = at + 1
            elif depth == 0 or (depth == 1 and sign == b","):
                element += block[start:at]
                yield bytes(element) if len(element) <= _LONGEST else b"null"
                element, start = bytearray(), at + 1
                if not depth:
                    return
        # No more is kept of a long one than tells that it is.
        element += block[start:][: _LONGEST + 1 - len(element) if depth else 0]
    yield bytes(element)


def _text(value: object) -> str | None:
    if isinstance(value, str):
        # A lone half of a pair is not text.
        return value.encode("utf-8", errors="replace").decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    # Lists and objects are in no domain, as this text is.
    return None if value is None else NO_TEXT
