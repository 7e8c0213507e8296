"""How a table's text is written: the keys of [table], what is refused, and numbers in plain writing."""

from __future__ import annotations

import codecs
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklar.errors import SchemaError
from sklar.public.axis import parse_number
from sklar.public.reading import PLAIN, Reading, codec_of, describe_reading, parse_reading
from sklar.public.schema import Schema

ATTRIBUTE = '[attributes.a]\ntype = "categorical"\nvalues = ["x", "y"]\n'
EVERY = """[table]
name = "t"
delimiter = ";"
decimal = ","
thousands = "."
encoding = "latin-1"
quote = "'"
header = false
columns = ["a", "b c"]
nulls = ["NA", "?"]
"""


def test_every_key_is_read_and_written_back() -> None:
    schema = Schema.from_toml(EVERY + ATTRIBUTE)
    assert schema.reading == Reading(
        delimiter=";",
        decimal=",",
        thousands=".",
        encoding="latin-1",
        quote="'",
        columns=("a", "b c"),
        nulls=("NA", "?"),
    )
    assert not schema.reading.header
    assert schema.to_toml().startswith(EVERY)
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_a_schema_that_says_nothing_has_the_digest_that_it_had() -> None:
    schema = Schema.from_toml(ATTRIBUTE)
    assert schema.reading == PLAIN
    document = {"table": {"name": "table"}, "attributes": {"a": {"type": "categorical", "values": ["x", "y"]}}}
    assert schema.to_dict() == document
    assert schema.digest == hashlib.sha256(json.dumps(document, separators=(",", ":")).encode()).hexdigest()
    said = Schema.from_toml(
        '[table]\ndecimal = "."\nencoding = "UTF8"\nquote = "\\""\nheader = true\nnulls = []\n' + ATTRIBUTE
    )
    assert (said, said.digest) == (schema, schema.digest)


def test_the_measured_part_of_a_schema_is_read_like_the_whole() -> None:
    rules = (
        '[attributes.b]\ntype = "categorical"\nvalues = ["x", "y"]\n[[rules]]\nattribute = "b"\ndetermined_by = "a"\n'
    )
    rules += 'map = { x = "x", y = "y" }\n'
    schema = Schema.from_toml('[table]\ndelimiter = ";"\n' + ATTRIBUTE + rules)
    assert schema.measured.names == ("a",)
    assert schema.measured.reading == schema.reading


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("decimal = ';'", "[table] decimal must be '.' or ',', got ';'."),
        ("thousands = '.'", "[table] thousands must be . , ' _ or a space, and not the decimal sign, got '.'."),
        ("thousands = 'x'", "[table] thousands must be . , ' _ or a space, and not the decimal sign, got 'x'."),
        *(
            (
                f"encoding = {given}",
                f"[table] encoding must be one like 'utf-8', 'windows-1252' or 'utf-16', got {json.loads(given)!r}.",
            )
            for given in ('"klingon"', '"rot13"', '"unicode_escape"', '"utf-7"', '"idna"', "7", '"a\\u0000"')
        ),
        *(
            (
                f"delimiter = {given!r}",
                f"[table] delimiter must be one ASCII character, no letter, digit or end of line, got {given!r}.",
            )
            for given in ("", "ab", "x", "7", "\u00a6", 7)
        ),
        (
            "quote = 'xy'",
            "[table] quote must be one ASCII character, or '' where nothing is quoted, no letter, digit or end of "
            "line, got 'xy'.",
        ),
        ("delimiter = '|'\nquote = '|'", "[table] delimiter and quote must differ, got '|' for both."),
        ("header = 1", "[table] header must be true or false, got 1."),
        ("columns = ['a']", "[table] columns name what has no header. Add header = false, or remove columns."),
        (
            "header = false",
            "[table] header = false needs columns = [...]: a name for each column of the file, in order.",
        ),
        (
            "header = false\ncolumns = ['a', '']",
            "[table] columns must not be empty texts. Name every column of the file, in order.",
        ),
        ("header = false\ncolumns = ['a', 'a']", "[table] columns must differ, got 'a' twice. Remove one."),
        ("columns = 'a'", "[table] columns must be a list of texts, got 'a'."),
        ("nulls = [1]", "[table] nulls must be a list of texts, got [1]."),
        ("nulls = ['']", "[table] nulls must not list '', which is null anyway. Remove it."),
        (
            "header = false\ncolumns = ['b']",
            "attribute 'a' must be one of the columns that [table] lists. Add or rename it.",
        ),
        (
            "nulls = ['y']",
            "attribute 'a': values must not list 'y', which [table] nulls call null. Remove one of them.",
        ),
        (
            "nulls = ['-9']\n[attributes.b]\ntype = 'integer'\nedges = [0, 1]\nspecial = [-9]",
            "attribute 'b': values must not list '-9', which [table] nulls call null. Remove one of them.",
        ),
    ],
)
def test_a_reading_is_refused(lines: str, message: str) -> None:
    with pytest.raises(SchemaError) as refused:
        Schema.from_toml(f"[table]\n{lines}\n{ATTRIBUTE}")
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("decimal", "thousands", "text", "plain"),
    [
        (".", None, "1,5", "1,5"),
        (",", None, "1,5", "1.5"),
        (",", None, " -1,5e3 ", " -1.5e3 "),
        (",", None, ",5", ".5"),
        (",", None, "7", "7"),
        (",", None, "1.5", "1,5"),
        (",", None, "1.234,5", "1.234,5"),
        (",", ".", "1.234,5", "1234.5"),
        (",", ".", "1.234", "1234"),
        (",", ".", "-12.345.678,00", "-12345678.00"),
        (",", ".", "1.5", "1,5"),
        (".", ",", "1,234.50", "1234.50"),
        (".", ",", "12,34,567", "1234567"),
        (".", ",", "1,23", "1,23"),
        (".", " ", "1\u202f234\u00a0567 ", "1234567"),
        (".", "'", "1\u2019234.5", "1234.5"),
        (".", "_", "1_000", "1000"),
        (",", ".", "n.a.", "n.a."),
        (",", ".", "nan", "nan"),
        (",", ".", "", ""),
    ],
)
def test_numbers_in_plain_writing(decimal: str, thousands: str | None, text: str, plain: str) -> None:
    assert Reading(decimal=decimal, thousands=thousands).plain(text) == plain


SIGNS = st.text("0123456789.,' e+-\u00a0x", max_size=12)


@given(text=SIGNS)
def test_no_text_is_read_as_a_number_that_its_writing_does_not_have(text: str) -> None:
    """Beside a decimal comma a point is none: what Python then reads comes from the comma alone."""
    found = parse_number(Reading(decimal=",").plain(text).strip())
    swapped = text.translate(str.maketrans(".,", ",.")).strip()
    assert found == parse_number(swapped)


def test_encodings_are_those_that_turn_any_bytes_into_text() -> None:
    assert codec_of("latin-1") == "iso8859-1"
    assert codec_of("Windows-1252") == "cp1252"
    assert codec_of("utf-8-sig") == "utf-8"
    assert [codec_of(name) for name in ("hex", "undefined", "punycode", "nothing such")] == [None] * 4
    for name in ("utf-8", "latin-1", "cp1252", "utf-16-le", "utf-16-be", "utf-32", "shift_jis", "gb18030", "koi8-r"):
        assert codecs.lookup(codec_of(name) or "").name


def test_a_reading_is_described_by_what_is_not_plain() -> None:
    assert describe_reading(PLAIN) == {}
    assert describe_reading(Reading(quote="", columns=("a",))) == {"quote": "", "header": False, "columns": ["a"]}
    assert parse_reading({"quote": "", "header": False, "columns": ["a"]}) == Reading(quote="", columns=("a",))
