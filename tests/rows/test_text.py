"""Text as the schema says that it is written: encodings, quotes, no header, numbers; errors name the option."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sklar.errors import DataError
from sklar.public.schema import Schema
from sklar.public.settings import PLAIN, Reading
from sklar.rows import text
from sklar.rows.engines import open_table
from sklar.rows.read import as_released, open_source
from sklar.rows.source import normalizer, require_columns

ROWS = [("Köln", "1"), ("São, Tomé", "2"), ("", "3"), ('say "so"', "4")]
SCHEMA = Schema.from_toml(
    '[attributes.age]\ntype = "integer"\nedges = [0, 10, 20]\n[attributes.town]\ntype = "categorical"\nvalues = ["x"]'
)


def rows(path: Path, reading: Reading) -> list[tuple[str, ...]]:
    source = open_source(path, reading)
    return [row for batch in source.batches(source.columns) for row in batch.rows()]


def refusal(path: Path, reading: Reading = Reading()) -> str:  # noqa: B008
    with pytest.raises(DataError) as refused:
        require_columns(open_source(path, reading), replace(SCHEMA, reading=reading))
    return str(refused.value)


def written(delimiter: str, quote: str) -> str:
    fields = [(town.replace(quote, 2 * quote) if quote else town, age) for town, age in ROWS]
    return "".join(f"{quote}{town}{quote}{delimiter}{age}\n" for town, age in fields)


ENCODINGS = {"windows-1252": "cp1252", "utf-8": "utf-8-sig", "utf-16": "utf-16-le", "utf-16-le": "utf-16"}
SAME = ("latin-1", "cp850", "utf-16", "utf-16-be", "utf-32", "gb18030")


@pytest.mark.parametrize(("encoding", "as_written"), [*ENCODINGS.items(), *zip(SAME, SAME, strict=True)])
@pytest.mark.parametrize("block", [1 << 24, 7])
def test_files_in_other_encodings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, as_written: str, block: int
) -> None:
    monkeypatch.setattr(text, "_BLOCK", block)
    path = tmp_path / "t.csv"
    path.write_bytes(f"Ört;age\n{written(';', '')}".encode(as_written))
    assert rows(path, Reading(delimiter=";", encoding=encoding, quote="")) == ROWS
    assert open_source(path, Reading(delimiter=";", encoding=encoding)).columns == ("Ört", "age")


def test_a_mark_may_say_big_endian(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    for encoding, mark in (("utf-16", codecs.BOM_UTF16_BE), ("utf-32", codecs.BOM_UTF32_BE)):
        path.write_bytes(gzip.compress(mark + "a,b\nä,1\n".encode(f"{encoding}-be")))
        assert rows(path, Reading(encoding=encoding)) == [("ä", "1")]


@pytest.mark.parametrize("quote", ['"', "'", ""])
@pytest.mark.parametrize("delimiter", [";", "\t", "|", " "])
def test_delimiters_and_quotes(tmp_path: Path, delimiter: str, quote: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"town{delimiter}age\n{written(delimiter, quote)}", encoding="utf-8")
    expected = ROWS if quote or delimiter != " " else [("Köln", "1"), ("", "3"), (None, None), (None, None)]
    assert rows(path, Reading(delimiter=delimiter, quote=quote)) == expected


def test_a_delimiter_wins_over_the_name_of_a_file(tmp_path: Path) -> None:
    for delimiter, reading in ((";", Reading(delimiter=";")), ("\t", Reading(decimal=","))):
        (tmp_path / "t.tsv").write_text(f"a{delimiter}b\n1{delimiter}2\n")
        assert rows(tmp_path / "t.tsv", reading) == [("1", "2")]


def test_files_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(codecs.BOM_UTF8 + b"1,2\n3,4\n5\n")
    assert rows(path, Reading(columns=("a", "b"))) == [("1", "2"), ("3", "4"), (None, None)]
    # Whatever its first row is, it raises nothing.
    for first in (b"", b"\xff\xfe,\n", b"\n", b'"', b",,,", b"\0"):
        path.write_bytes(first)
        rows(path, Reading(columns=("a", "b")))


@given(
    body=st.text('ab,"\r\n \x00', max_size=60).map(str.encode) | st.binary(max_size=60),
    encoding=st.sampled_from([*SAME, "utf-8", "cp1252", "cp437", "shift_jis", "big5", "koi8-r", "cp037"]),
    quote=st.sampled_from(["'", '"', ""]),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_raise_in_any_encoding(tmp_path: Path, body: bytes, encoding: str, quote: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"x" + body)
    reading = Reading(encoding=encoding, quote=quote, columns=("a", "b"), decimal=",", nulls=("x",))
    assert all(len(row) == 2 for row in rows(path, reading))


def test_texts_for_null_are_null_in_every_kind_of_file(tmp_path: Path) -> None:
    frame, reading = pl.DataFrame({"a": ["NA", "x"], "b": ["1", "?"]}), Reading(nulls=("NA", "?"))
    for suffix in ("csv", "parquet", "ndjson"):
        getattr(frame, f"write_{suffix}")(tmp_path / f"t.{suffix}")
        (batch,) = open_source(tmp_path / f"t.{suffix}", reading).batches(("a", "b"))
        assert batch.rows() == [(None, "1"), ("x", None)]
    (tmp_path / "d" / "a=NA").mkdir(parents=True)
    frame.select("b").write_csv(tmp_path / "d" / "a=NA" / "t.csv")
    (batch,) = open_source(tmp_path / "d", reading).batches(("a", "b"))
    assert batch.rows() == [(None, "1"), (None, None)]


def test_numbers_of_json_are_written_as_json_writes_them(tmp_path: Path) -> None:
    (tmp_path / "t.ndjson").write_text('{"age": 1.5, "town": "NA"}\n')
    schema = replace(SCHEMA, reading=Reading(decimal=",", nulls=("NA",)))
    (batch,) = open_source(tmp_path / "t.ndjson", schema).batches(("age", "town"))
    assert batch.rows() == [("1.5", None)]


LACKS = "has no column for 'age', 'town'."
BETWEEN = f"{LACKS} Its header has them between"
OTHERWISE = "Its header has them with other capitals or spaces: write them as they stand there."
NO_HEADER = "If its first line is a row already, set header = false and columns = [...] in [table]."


@pytest.mark.parametrize(("data", "delimiter", "message"), [
    (b"age;town\n1;x\n", None, f'{BETWEEN} semicolons: set delimiter = ";" in [table].'),
    (b"age\ttown\n", None, f'{BETWEEN} tabs: set delimiter = "\\t" in [table].'),
    (b"age,town\n", ";", f'{BETWEEN} commas: set delimiter = "," in [table].'),
    (b"'age'|'town'\n", None, f"""{BETWEEN} bars: set delimiter = "|" and quote = "'" in [table]."""),
    (b"'age','town'\n", None, f"""{BETWEEN} commas: set quote = "'" in [table]."""),
    (b"Age, Town\n", None, f"{LACKS} {OTHERWISE}"),
    (b"17,SECRET\n18,x\n", None, f"{LACKS} {NO_HEADER}"),
    (b"age,SECRET\n", None, "has no column for 'town'. Correct the schema, or remove the attribute from it."),
])  # fmt: skip
def test_a_file_that_does_not_fit_is_told_the_likely_option(
    tmp_path: Path, data: bytes, delimiter: str | None, message: str
) -> None:
    """From the header alone, and nothing of it is quoted: it may be a row."""
    path, reading = tmp_path / "d" / "t.csv", Reading(delimiter=delimiter)
    path.parent.mkdir()
    path.write_bytes(data)
    assert refusal(path, reading) == f"file '{path}' {message}"
    assert refusal(path.parent, reading) == f"folder '{path.parent}' {message}"
    with pytest.raises(DataError, match=re.escape(f"file '{path}' {message}")):
        open_table(path, replace(SCHEMA, reading=reading))


@pytest.mark.parametrize(("data", "told"), [
    ("age,town\n".encode("utf-16"), ', as its first bytes say: encoding = "utf-16".'),
    ("age,town\n".encode("utf-32"), ', as its first bytes say: encoding = "utf-32".'),
    ("age,town\n".encode("utf-16-le"), ', probably encoding = "utf-16-le".'),
    ("age,town\n".encode("utf-16-be"), ', probably encoding = "utf-16-be".'),
    ("age,größe\n".encode("latin-1"), ', for example encoding = "windows-1252" or "latin-1".'),
])  # fmt: skip
def test_a_header_in_another_encoding_is_told_the_likely_one(tmp_path: Path, data: bytes, told: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    assert refusal(path) == (
        f"the header of file '{path}' must be utf-8 text. Set encoding in [table] to what it is written in{told}"
    )


def test_a_synthetic_table_is_read_as_sklar_writes_it(tmp_path: Path) -> None:
    schema = replace(SCHEMA, reading=Reading(delimiter=";", decimal=","))
    ours, theirs = tmp_path / "ours.csv", tmp_path / "theirs.csv"
    ours.write_text("age,town\n1.5,x\n")
    theirs.write_text("age;town\n1,5;x\n")
    for path in (ours, theirs):
        (batch,) = open_source(as_released(path, schema), schema).batches(("age", "town"))
        assert batch.rows() == [("1.5", "x")]
    (batch,) = open_source(as_released(pl.DataFrame({"age": ["1.5"]}), schema), schema).batches(("age",))
    assert batch.rows() == [("1.5",)]
    assert as_released(ours, SCHEMA) is ours


CSV = st.text('ab,"\r\n', max_size=80).map(str.encode) | st.text("a,\n", max_size=80).map(str.encode)


def cut(data: bytes, fields: int, limit: int, block: int, quote: str = '"') -> tuple[list[list[str]], int]:
    """The rows of a CSV text that comes in blocks, by a strict reader, and how many records are ragged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_LONGEST", limit)
        records = text._CsvRecords(Reading(quote=quote), fields)
        records._usual = min(max(block // 3, 1), limit)
        parts = list(records.cut(data[at : at + block] for at in range(0, len(data), block)))
    assert all(part.endswith(b"\n") for part in parts if part)
    quoting: Any = csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE
    plain = io.StringIO(b"".join(parts).decode(), newline="")
    return [row or [""] for row in csv.reader(plain, strict=True, quoting=quoting)], records.ragged


# A field that begins with a quote is quoted up to one that is not doubled, and may go on behind it.
FIELD = rb'(?:"(?:[^"]|"")*+(?:"[^,\r\n]*)?|[^,\r\n"][^,\r\n]*|)'
RECORD = re.compile(rb"(%b(?:,%b)*)(?:\r\n|[\r\n]|\Z)" % (FIELD, FIELD))


def raw_records(data: bytes) -> list[bytes]:
    """Records as they are written, without their ends of line."""
    return [found[1] for found in RECORD.finditer(data) if found[0]]


@given(data=CSV, fields=st.integers(1, 3), limit=st.integers(1, 90), block=st.integers(1, 90))
@settings(max_examples=300, deadline=None)
def test_records_hold_what_was_written(data: bytes, fields: int, limit: int, block: int) -> None:
    """Those that Python's reader finds in each record by itself; one that is too long is ragged."""
    records = [
        record if len(record.removesuffix(b"\n").removesuffix(b"\r")) <= limit else b",,,,,"
        for record in raw_records(data)
    ]
    rows = [next(csv.reader(io.StringIO(record.decode(), newline="")), []) for record in records]
    # A line without anything is a row of one empty value, or none.
    rows = [row or [""] for row in rows if row or fields == 1]
    whole = [row for row in rows if len(row) == fields]
    assert cut(data, fields, limit, block) == (whole, len(rows) - len(whole))


@given(data=CSV, fields=st.integers(1, 3), limit=st.integers(1, 90), block=st.integers(1, 90))
@settings(max_examples=100, deadline=None)
def test_where_nothing_is_quoted_quotes_are_characters(data: bytes, fields: int, limit: int, block: int) -> None:
    lines = data.decode().replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n") if data else []
    rows = [(line if len(line) <= limit else ",,,,,").split(",") for line in lines if line or fields == 1]
    whole = [row for row in rows if len(row) == fields]
    assert cut(data, fields, limit, block, quote="") == (whole, len(rows) - len(whole))


@pytest.mark.parametrize("byte", [b"\0", b'"', b","])
def test_of_a_line_that_does_not_end_no_more_is_kept_than_its_limit(
    monkeypatch: pytest.MonkeyPatch, byte: bytes
) -> None:
    monkeypatch.setattr(text, "_LONGEST", 1_000)
    records, kept = text._CsvRecords(Reading(), 2), []

    def blocks() -> Iterator[bytes]:
        for _ in range(50):
            yield 10_000 * byte
            kept.append(sum(len(value) for value in generator.gi_frame.f_locals.values() if isinstance(value, bytes)))
        yield b"\n1,2\n"

    generator: Any = records.cut(blocks())
    assert b"".join(generator).replace(b'"', b"") == b"1,2\n"
    assert records.ragged == 1
    assert max(kept) < 60_000


@pytest.mark.parametrize(("data", "is_plain"), [
    (b"1,2\n3,4\r\n5,6", True),
    (b'"a, ""b""\r\nc",2\r\n"",""""\n3,"4"', True),
    *((b"1,2\n" + line + b"\n", False) for line in (b'a"b,1', b'"a"b,1', b'1," 2', b'1, "2"', b'1,"2\r')),
])  # fmt: skip
def test_only_odd_blocks_go_to_the_slow_reader(monkeypatch: pytest.MonkeyPatch, data: bytes, *, is_plain: bool) -> None:
    slow: list[bytes] = []
    rewritten = text._CsvRecords._rewritten

    def watched(records: text._CsvRecords, block: bytes, *, last: bool = False) -> tuple[bytes, int]:
        slow.append(block)
        return rewritten(records, block, last=last)

    monkeypatch.setattr(text._CsvRecords, "_rewritten", watched)
    list(text._CsvRecords(Reading(), 2).cut(iter([data])))
    assert (not slow) == is_plain


ATTRIBUTES = """
[attributes]
x = {type = "real", edges = [0, 10, 20], missing = "9,99", special = ["0,5", -1]}
n = {type = "categorical", values = [1000, 2]}
t = {type = "categorical", values = ["1,5", "a"]}
d = {type = "date", edges = ["2000-01-01", "2001-01-01"]}
"""
WRITTEN = Schema.from_toml('[table]\ndecimal = ","\nthousands = "."\nnulls = ["NA", "1,7"]\n' + ATTRIBUTES)
TEXTS = ["1.234,5", "9,99", "NA", "1,7", "1.5", "N", None, "", "0,5", "-1,0"]
TEXT_TYPES: list[Any] = [pl.String, pl.Binary, pl.Categorical]
PLAINLY = ["1234.5", "9,99", None, None, "1,5", "N", None, "", "0,5", "-1.0"]


def normalized(column: pl.Series, name: str = "x", reading: Reading = WRITTEN.reading) -> list[object]:
    normalize = normalizer(reading, WRITTEN)
    assert normalize is not None
    return normalize(pl.DataFrame([column.alias(name)])).to_series().to_list()


def test_texts_of_every_type_in_columns_of_numbers_are_rewritten() -> None:
    for column in (pl.Series(TEXTS, dtype=pl.Object), *(pl.Series(TEXTS).cast(kind) for kind in TEXT_TYPES)):
        assert normalized(column) == PLAINLY
    assert normalized(pl.Series(["1.000", "2,0"]), "n") == ["1000", "2.0"]
    assert normalized(pl.Series(["1,5", "NA"]), "t") == ["1,5", None]
    assert normalized(pl.Series(["01.02.2000", "NA"]), "d") == ["01.02.2000", None]
    assert normalized(pl.Series([1.5, None])) == [1.5, None]


def test_values_that_are_not_text_stay_and_bytes_that_are_not_are_replaced() -> None:
    assert normalized(pl.Series([b"1,5", b"\xff1,5", b"NA", None], dtype=pl.Binary)) == ["1.5", "\ufffd1,5", None, None]
    values = [1.5, [1], object(), True]
    mixed = pl.Series([b"1.234,5", b"9,99", b"NA", *values], dtype=pl.Object)
    assert normalized(mixed) == ["1234.5", b"9,99", None, *values]


def test_a_plain_table_is_not_touched() -> None:
    assert normalizer(PLAIN, WRITTEN) is None
    assert normalizer(Reading(delimiter=";", encoding="latin-1"), WRITTEN) is None
    assert normalizer(Reading(decimal=","), None) is None
    assert normalizer(Reading(decimal=","), Schema(name="t", attributes=WRITTEN.attributes[2:])) is None


@given(
    texts=st.lists(st.text("0123456789.,' e+-\u00a0\u2019x\n\u0661", max_size=12) | st.none(), max_size=8),
    decimal=st.sampled_from(".,"),
    thousands=st.sampled_from([None, ".", ",", " ", "'"]),
)
def test_polars_agrees_with_python(texts: list[str | None], decimal: str, thousands: str | None) -> None:
    reading = Reading(decimal=decimal, thousands=None if thousands == decimal else thousands, nulls=("1",))
    kept = (None, "1", "9,99", "0,5")
    plain = [text if text in kept or not reading.rewrites_numbers else reading.plain(str(text)) for text in texts]
    found = normalized(pl.Series(texts, dtype=pl.String), reading=reading)
    assert found == [None if text == "1" else text for text in plain]
