"""Records: rewritten so that no CSV reader can fail on them, with the values that Python's own reader finds."""

from __future__ import annotations

import csv
import io

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from sklar.rows import records as module
from sklar.rows.records import Records

DATA = st.text('ab,"\r\n', max_size=80).map(str.encode) | st.text("a,\n", max_size=80).map(str.encode)


def rewritten(data: bytes, fields: int, limit: int, block: int, quote: bytes = b'"') -> tuple[bytes, int]:
    """What comes out, by Python and by compiled code alike, and where the second takes over from the first."""
    found = set()
    for plain in (0, 20, 1_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_PLAIN_BYTES", plain)
            records = Records(b",", quote, fields, limit)
            parts = [records.take(data[at : at + block]) for at in range(0, len(data), block)]
            found.add((b"".join([*parts, records.finish()]), records.ragged))
    (only,) = found
    return only


def raw_records(data: bytes) -> list[bytes]:
    """Records as they are written, without their ends of line."""
    records, record, inside, start, at = [], bytearray(), False, True, 0
    while at < len(data):
        byte = data[at : at + 1]
        if inside and data[at : at + 2] == b'""':
            record += b'""'
            at += 2
            continue
        if byte in b"\r\n" and not inside:
            records.append(bytes(record))
            record, start = bytearray(), True
            at += 2 if data[at : at + 2] == b"\r\n" else 1
            continue
        if byte == b'"':
            inside = not inside and start
        start = byte == b"," and not inside
        record += byte
        at += 1
    return [*records, bytes(record)] if record else records


def values(records: list[bytes], fields: int, limit: int) -> tuple[list[list[str]], int]:
    """The rows that Python's reader finds in each record, cut after `limit` bytes, and how many are ragged."""
    texts = [record[:limit].decode() for record in records]
    rows = [next(csv.reader(io.StringIO(text, newline="")), []) for text in texts]
    # A line without anything is a row of one empty value, or none.
    rows = [row or [""] for row in rows if row or fields == 1]
    return [row for row in rows if len(row) == fields], sum(len(row) != fields for row in rows)


@given(data=DATA, fields=st.integers(1, 3), limit=st.integers(1, 90), block=st.integers(1, 90))
@settings(max_examples=300, deadline=None)
def test_rewritten_records_hold_what_was_written(data: bytes, fields: int, limit: int, block: int) -> None:
    out, ragged = rewritten(data, fields, limit, block)
    found = list(csv.reader(io.StringIO(out.decode(), newline=""), strict=True))
    assert (found, ragged) == values(raw_records(data), fields, limit)
    assert out == b"" or out.endswith(b"\n")


@pytest.mark.parametrize(
    ("data", "out", "ragged"),
    [
        (b"1,2\n3,4", b"1,2\n3,4\n", 0),
        (b"1,2\r\n3,4\r\n", b"1,2\n3,4\n", 0),
        (b'a"b,"x"y"z\n', b'"a""b","xy""z"\n', 0),
        (b'1,"never closed\n2,3\n', b'1,"never closed\n2,3\n"\n', 0),
        (b"1,2\n\n3\n4,5,6\n7,8\n", b"1,2\n7,8\n", 2),
        (b"1,2\r3,4\r", b"1,2\n3,4\n", 0),
        (b"1,\n,2\n,\n", b"1,\n,2\n,\n", 0),
        (b"1\n2,3,4\n", b"", 2),
    ],
)
def test_examples(data: bytes, out: bytes, ragged: int) -> None:
    for block in (1, 2, 5, 100):
        assert rewritten(data, 2, 1_000, block) == (out, ragged)


@given(data=DATA, fields=st.integers(1, 3), limit=st.integers(1, 90), block=st.integers(1, 90))
@settings(max_examples=100, deadline=None)
def test_where_nothing_is_quoted_quotes_are_characters(data: bytes, fields: int, limit: int, block: int) -> None:
    out, ragged = rewritten(data, fields, limit, block, quote=b"")
    found = list(csv.reader(io.StringIO(out.decode(), newline=""), strict=True))
    lines = [line[:limit] for line in data.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    lines = lines if lines[-1] else lines[:-1]
    rows = [line.split(",") for line in lines if line or fields == 1]
    assert found == [row for row in rows if len(row) == fields]
    assert ragged == sum(len(row) != fields for row in rows)


@pytest.mark.parametrize("byte", [b"\0", b'"', b","])
def test_of_a_line_that_does_not_end_no_more_is_kept_than_its_limit(byte: bytes) -> None:
    records = Records(b",", b'"', 2, 1_000)
    for _ in range(50):
        assert records.take(10_000 * byte) == b""
        begun = 0 if records._rewriter is None else len(records._rewriter._begun)
        # Of each byte there may be three, and a block waits for the end of its last line.
        assert len(records._line) <= 1_000
        assert begun <= 3_008
    assert records.take(b"\n") == records.finish() == b""
    assert records.ragged == 1


def test_plain_lines_compile_nothing() -> None:
    records = Records(b",", b'"', 2, 1_000)
    assert records.take(b"1,2\n3,") + records.take(b"4\r\n5,6") + records.finish() == b"1,2\n3,4\n5,6\n"
    assert records._rewriter is None


def test_lines_that_are_quoted_as_they_should_be_compile_nothing() -> None:
    records = Records(b",", b'"', 2, 1_000)
    parts = [b'"a, ""b""\r\n', b'c",2\r\n"",""', b'""\n3,"4"']
    assert b"".join(map(records.take, parts)) + records.finish() == b'"a, ""b""\r\nc",2\n"",""""\n3,"4"\n'
    assert records._rewriter is None


@pytest.mark.parametrize("line", [b'a"b,1', b'"a"b,1', b'1," 2', b'1, "2"', b'1,"2\r'])
def test_other_quotes_are_rewritten(line: bytes) -> None:
    records = Records(b",", b'"', 2, 1_000)
    records.take(b"1,2\n" + line + b"\n")
    records.finish()
    assert records._rewriter is not None
