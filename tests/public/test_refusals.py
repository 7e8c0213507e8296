"""What a schema refuses: every message names the place, the requirement, the value and the remedy (`refused.txt`)."""

from __future__ import annotations

import re

import pytest

from sklar.errors import SchemaError
from sklar.public.schema import Schema
from tests.public import REFUSED, one


def assert_refused(text: str, message: str, name: str = "") -> None:
    with pytest.raises(SchemaError) as refused:
        one(text) if name else Schema.from_toml(text.replace(" ; ", "\n"))
    pattern = ".*".join(map(re.escape, (name + message).split("...")))
    assert re.fullmatch(pattern, str(refused.value)), str(refused.value)


@pytest.mark.parametrize(("entry", "message"), REFUSED["entries"])
def test_an_entry_is_refused(entry: str, message: str) -> None:
    assert_refused(entry, message, "attribute 'age': ")


TRUTHS = 'attributes = {a = {type = "boolean"}, b = {type = "boolean"}}\n'
WHOLE = REFUSED["documents"] + [(TRUTHS + entry, message) for entry, message in REFUSED["pairs"]]


@pytest.mark.parametrize(("entry", "message"), WHOLE)
def test_a_schema_is_refused(entry: str, message: str) -> None:
    assert_refused(entry, message)


@pytest.mark.parametrize(("entry", "message"), REFUSED["tables"])
def test_settings_of_a_table_are_refused(entry: str, message: str) -> None:
    attribute = "[attributes.a]\ntype = 'categorical'\nvalues = ['x', 'y']"
    assert_refused(f"[table]\n{entry}\n{attribute}", message)


def test_long_schemas_texts_and_numbers_are_refused() -> None:
    wide = "\n".join(f"[attributes.a{i}]\ntype = 'categorical'\nvalues = ['x']" for i in range(10_001))
    asks = "Leave out those that nobody asks for, or release groups of them by themselves, each at its own cost."
    assert_refused(wide, f"the schema must have at most 10000 attributes, got 10001. {asks}")
    said = f"description must be a text of 1 to 4,000 printable characters, got '{'x' * 59}."
    assert_refused(f"boolean\ndescription = '{'x' * 4001}'", said, "attribute 'age': ")
    huge = f"1{'0' * 309}"
    assert_refused(f"real\nedges = [0, {huge}]", f"edges must be finite numbers, got {huge}.", "attribute 'age': ")
    assert_refused(f"a = 1{'0' * 5000}", "the schema is not valid TOML: ....")
