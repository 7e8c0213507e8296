"""Records of a CSV file in the one form that any reader understands: every record has all fields and a bounded length.

A CSV reader may fail on a quote that nobody closed, on a record that is too long, or on a record that has a field too
many, and then tell which: its error would depend on a row. So records pass here first. Whole records that have all
their fields, quoted as they should be, which is most of most files, are passed on as they are; any other block is
rewritten byte by byte, by compiled code where there is much of it. A record with too few or too many fields is taken
out and counted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sklar.machine.compiled import Worth
from sklar.rows.requote import CLOSED, MEMORY, QUOTED, RAGGED, STATE, rewrite

# Bytes of a file that Python rewrites before compiled code is worth loading.
_PLAIN_BYTES = 1_000_000
_LINE_FEED, _CARRIAGE_RETURN = 10, 13


def _inside(text: NDArray[np.uint8], quote: int) -> NDArray[np.bool_]:
    """Whether each byte is inside of quotes, which those that open are and those that close are not."""
    return np.asarray(np.logical_xor.accumulate(text == quote))


class Records:
    """Turns blocks of a CSV file, from its first record on, into whole records.

    Given: `delimiter` is one byte, and so is `quote`, or it is empty where quotes are characters like others. Ensured:
    what `take` and `finish` return are records of exactly `fields` fields that end with a line feed and whose quotes,
    which are `self.quote`, are balanced; a record is cut after `limit` bytes. `ragged` counts the records that were
    taken out.
    """

    def __init__(self, delimiter: bytes, quote: bytes, fields: int, limit: int) -> None:
        self.ragged = 0
        # Where nothing is quoted, a field that holds what then serves as a quote is.
        self.quote = quote or (b'"' if delimiter != b'"' else b"'")
        self._settings = (delimiter, self.quote, bool(quote), fields, limit)
        self._delimiter, self._fields, self._limit, self._quoting = ord(delimiter), fields, limit, bool(quote)
        # The last line so far, as long as it may turn out plain.
        self._line = b""
        self._rewriter: _Rewriter | None = None

    def take(self, block: bytes) -> bytes:
        """The records that end in this block."""
        if self._rewriter is not None and not self._rewriter.between_records:
            return self._rewrite(block)
        block = self._line + block
        self._line = b""
        end = self._end(block)
        lines = self._plain(block[:end])
        if lines is None or len(block) - end > self._limit:
            return self._rewrite(block)
        self._line = block[end:]
        return lines

    def finish(self) -> bytes:
        """The last record, where the file does not end with an end of line."""
        line, self._line = self._line, b""
        if line:
            lines = self._plain(line + b"\n")
            if lines is not None:
                return lines
        out = self._rewrite(line)
        if self._rewriter is not None:
            out += self._rewriter.finish()
            self.ragged = self._rewriter.ragged
        return out

    def _end(self, block: bytes) -> int:
        """Where the last whole record ends, if all quotes are where they should be."""
        end = block.rfind(b"\n") + 1
        if not self._quoting or self.quote not in block:
            return end
        text = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero((text == _LINE_FEED) & ~_inside(text, ord(self.quote)))
        return int(ends[-1]) + 1 if ends.size else 0

    def _plain(self, lines: bytes) -> bytes | None:
        """Whole records, where each has all its fields and needs no rewriting; else None."""
        if self.quote in lines:
            return self._quoted(lines) if self._quoting else None
        if b"\r" in lines:
            lines = lines.replace(b"\r\n", b"\n")
            if b"\r" in lines:
                return None
        text = np.frombuffer(lines, dtype=np.uint8)
        return lines if self._has_all_fields(text, np.ones(1, dtype=bool)) else None

    def _quoted(self, lines: bytes) -> bytes | None:
        """The same for lines with quotes: fields are quoted as a whole or not at all, and quotes inside are doubled."""
        text, quote = np.frombuffer(lines, dtype=np.uint8), ord(self.quote)
        inside = _inside(text, quote)
        if inside[-1]:
            return None
        returns = (text == _CARRIAGE_RETURN) & ~inside
        if returns.any():
            if (np.append(text[1:], 0)[returns] != _LINE_FEED).any():
                return None
            text, inside = text[~returns], inside[~returns]
        at = np.flatnonzero(text == quote)
        opening = inside[at]
        # What stands before a quote that opens, and behind one that closes, is the end of a field or the other of two.
        before, behind = np.insert(text, 0, _LINE_FEED)[at], np.append(text, _LINE_FEED)[at + 1]
        beside = np.where(opening, before, behind)
        if not ((beside == self._delimiter) | (beside == _LINE_FEED) | (beside == quote)).all():
            return None
        return text.tobytes() if self._has_all_fields(text, ~inside) else None

    def _has_all_fields(self, text: NDArray[np.uint8], outside: NDArray[np.bool_]) -> bool:
        """Whether all lines are records with all their fields, and none is too long; `outside` of quotes fields end."""
        ends = (text == _LINE_FEED) & outside
        marks = np.flatnonzero(ends | ((text == self._delimiter) & outside))
        at_end = ends[marks]
        if marks.size % self._fields or not at_end[self._fields - 1 :: self._fields].all():
            return False
        if np.count_nonzero(at_end) * self._fields != marks.size:
            return False
        lengths = np.diff(marks[self._fields - 1 :: self._fields], prepend=-1)
        # In a file of one column an empty line is a record, which a reader may skip.
        return not lengths.size or bool(lengths.max() <= self._limit and (self._fields > 1 or lengths.min() > 1))

    def _rewrite(self, block: bytes) -> bytes:
        if self._rewriter is None:
            if not block:
                return b""
            self._rewriter = _Rewriter(*self._settings)
        out = self._rewriter.take(block)
        self.ragged = self._rewriter.ragged
        return out


class _Rewriter:
    """The kernel, with what it must remember from block to block."""

    def __init__(self, delimiter: bytes, quote: bytes, quoted: bool, fields: int, limit: int) -> None:  # noqa: FBT001
        self._settings = (ord(delimiter), ord(quote), int(quoted), fields, limit)
        self._memory: NDArray[np.int64] = np.zeros(MEMORY, dtype=np.int64)
        self._begun = b""
        self._worth_compiling = Worth(_PLAIN_BYTES)

    @property
    def ragged(self) -> int:
        """How many records were taken out."""
        return int(self._memory[RAGGED])

    @property
    def between_records(self) -> bool:
        """Whether no record has begun."""
        return not self._memory[:RAGGED].any()

    def take(self, block: bytes) -> bytes:
        """The records that end in this block."""
        copied = len(self._begun)
        out = bytearray(copied + 3 * len(block) + 8)
        out[:copied] = self._begun
        if self._worth_compiling(len(block)):
            text, room = np.frombuffer(block, dtype=np.uint8), np.frombuffer(out, dtype=np.uint8)
            whole, copied = rewrite(text, room, copied, self._memory, *self._settings)
        else:
            memory = self._memory.tolist()
            whole, copied = rewrite.plain(block, out, copied, memory, *self._settings)
            self._memory[:] = memory
        # Copies: a view would keep all of `out` for as long as a reader keeps what is left of it.
        self._begun = bytes(out[whole:copied])
        return bytes(out[:whole])

    def finish(self) -> bytes:
        """The last record, where there is one that did not end; a quote that nobody closed ends with it."""
        if self.between_records:
            return b""
        if self._memory[STATE] == QUOTED:
            self._memory[STATE] = CLOSED
        return self.take(b"\n")
