"""How a table's text is written: the keys of [table], what is refused, and numbers in plain writing."""

from __future__ import annotations

import codecs
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklar.errors import BudgetError
from sklar.kernel.theorems import Budget
from sklar.public.axis import parse_number
from sklar.public.schema import Schema
from sklar.public.settings import PLAIN, Person, Reading, budget_for, codec_of, describe_reading, parse_reading

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


WARD = '[attributes.ward]\ntype = "categorical"\nvalues = ["A", "B"]\n'


def visits(keys: str) -> Schema:
    return Schema.from_toml(f'[table]\nname = "visits"\n{keys}\n{WARD}')


@pytest.mark.parametrize(
    ("keys", "person"),
    [
        ('person = "id"\ncount = "people"', Person(column="id", count="people")),
        (
            'person = "id"\ncount = "rows"\nrows_per_person = 8\nnull_ids = "drop"',
            Person(column="id", count="rows", rows_per_person=8, null_ids="drop"),
        ),
        ("", None),
    ],
)
def test_a_person_is_read_and_written_back(keys: str, person: Person | None) -> None:
    found = visits(keys)
    assert found.person == person
    assert Schema.from_toml(found.to_toml()) == found
    assert Schema.from_dict(found.to_dict()) == found
    assert found.measured.person == person


def test_the_unit_is_part_of_the_digest() -> None:
    assert len({visits(keys).digest for keys in ("", 'person = "id"\ncount = "people"')}) == 2


def test_the_schema_decides_for_whom_a_budget_is() -> None:
    plain, eight = Budget(epsilon=1.0), Person(column="id", count="rows", rows_per_person=8)
    assert budget_for(None, plain) == plain
    assert budget_for(eight, plain).rows_per_person == 8
    assert budget_for(Person(column="id", count="people"), plain).rows_per_person == 1
    assert budget_for(eight, Budget(epsilon=1.0, rows_per_person=8)).rows_per_person == 8
    with pytest.raises(BudgetError, match="people with up to 4 rows, and the schema says rows_per_person = 8"):
        budget_for(eight, Budget(epsilon=1.0, rows_per_person=4))
    with pytest.raises(BudgetError, match="people with up to 4 rows, and the schema says that a row is a person"):
        budget_for(None, Budget(epsilon=1.0, rows_per_person=4))
