"""Words: they are read, kept and shown, and change no level; what is no text, or names no level, is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sklar.public.attribute import Attribute, Words
from sklar.public.importers.arrow import from_schema
from sklar.public.importers.documents import from_frictionless
from sklar.public.schema import Schema
from sklar.public.shown import shown_levels, shown_name, shown_number, shown_table, with_unit

SCHEMA = """
[table]
name = "people"
title = "People of Utopia"
description = "Everybody who answered.\\nIn two lines."

[attributes.age]
type = "integer"
title = "Age at the census"
unit = "years"
edges = [0, 18, 40, 45, 46]
missing = ""
labels = { "[0, 18)" = "children", "" = "did not say" }

[attributes.sex]
type = "categorical"
values = ["F", "M"]
labels = { F = "female", M = "male" }
"""


def test_words_are_read_written_and_part_of_the_digest() -> None:
    schema = Schema.from_toml(SCHEMA)
    assert (shown_table(schema), shown_name(schema.attributes[0])) == ("People of Utopia", "Age at the census")
    assert schema.words.description == "Everybody who answered.\nIn two lines."
    assert with_unit(schema.attributes[0], "Age") == "Age (years)"
    assert with_unit(schema.attributes[1], "Sex") == "Sex"
    for back in (Schema.from_toml(schema.to_toml()), Schema.from_dict(schema.to_dict())):
        assert back == schema
        assert back.digest == schema.digest
    plain = Schema.from_toml(SCHEMA.replace('title = "Age at the census"\n', ""))
    assert plain.digest != schema.digest
    assert plain.dummy_names == schema.dummy_names
    assert schema.measured.words == schema.words


def test_levels_read_as_a_person_would_say_them() -> None:
    age, sex = Schema.from_toml(SCHEMA).attributes
    assert shown_levels(age) == ("children", "18 to 39", "40 to 44", "45", "did not say")
    assert shown_levels(sex) == ("female", "male")


@pytest.mark.parametrize(
    ("attribute", "shown"),
    [
        (Attribute(name="x", kind="boolean", missing="?"), ("no", "yes", "missing (?)")),
        (Attribute(name="x", kind="boolean", texts=("N", "Y")), ("N", "Y")),
        (Attribute(name="x", kind="integer", edges=(0, 10_000, 20_000)), ("0 to 9,999", "10,000 to 19,999")),
        (Attribute(name="x", kind="integer", edges=(0, 1000, 3000), step=100), ("0 to 900", "1000 to 2900")),
        (Attribute(name="x", kind="integer", edges=(0, 40), points=(0,)), ("0", "1 to 39")),
        (Attribute(name="x", kind="integer", edges=(0, 40), points=(20,)), ("0 to 39 without 20", "20")),
        (Attribute(name="x", kind="integer", edges=(0, 40), points=(39,)), ("0 to 38", "39")),
        (
            Attribute(name="x", kind="integer", edges=(0, 40), points=(2, 4, 6, 8)),
            ("0 to 39 without 4 points", "2", "4", "6", "8"),
        ),
        (Attribute(name="x", kind="real", edges=(0.0, 0.5, 1.0)), ("0 up to 0.5", "0.5 to 1")),
        (Attribute(name="x", kind="real", edges=(0.0, 1.0, 2.0), points=(0.0,)), ("0", "above 0 up to 1", "1 to 2")),
        (Attribute(name="x", kind="real", edges=(0.0, 1.0, 2.0), output="decimal(4, 1)"), ("0 to 0.9", "1 to 2")),
        (Attribute(name="x", kind="year", edges=(1990, 2000, 2001)), ("1990 to 1999", "2000")),
        (Attribute(name="x", kind="yearmonth", edges=(24_000, 24_003)), ("2000-01 to 2000-03",)),
        (Attribute(name="x", kind="date", edges=(0, 31)), ("1970-01-01 to 1970-01-31",)),
        (Attribute(name="x", kind="time", edges=(0, 3_600_000_000)), ("00:00 up to 01:00",)),
        (Attribute(name="x", kind="categorical", values=("a",), special=("N",), other=True), ("a", "N", "other")),
    ],
)
def test_intervals_by_grain(attribute: Attribute, shown: tuple[str, ...]) -> None:
    assert shown_levels(attribute) == shown
    assert len(shown) == attribute.n_levels


def test_long_numbers_have_separators_and_years_do_not() -> None:
    assert shown_number(Attribute(name="x", kind="real", edges=(0.0, 1.0)), -12345.5) == "-12,345.5"
    assert shown_number(Attribute(name="x", kind="real", edges=(0.0, 1e5)), -0.5) == "-0.5"
    assert shown_number(Attribute(name="x", kind="year", edges=(0, 1)), 12_345) == "12345"


def test_a_domain_that_is_found_may_have_labels_of_what_is_not_found() -> None:
    text = '[attributes.a]\ntype = "categorical"\ndomain = "private"\nlabels = { x = "an x" }'
    found = Schema.from_toml(text.replace('"private"', '"found"') + '\nvalues = ["y"]\nother = true')
    assert Schema.from_toml(text).attributes[0].words == found.attributes[0].words == Words(labels=(("x", "an x"),))
    assert shown_levels(found.attributes[0]) == ("y", "other")


def test_importers_bring_words_along() -> None:
    words = {"title": "Sex", "description": "as\n  stated", "constraints": {"required": True}}
    sex = {"name": "sex", "type": "string", "categories": [{"value": "F", "label": "female"}, {"value": "M"}], **words}
    fields = [sex, {"name": "ok", "type": "boolean", "title": " ", "unit": "x"}]
    described = {"resources": [{"name": "people", "title": "People", "schema": {"fields": fields}}]}
    schema = Schema.from_toml(from_frictionless(described, "t").to_toml())
    assert schema.words == Words(title="People")
    assert schema.attributes[0].words == Words(title="Sex", description="as stated", labels=(("F", "female"),))
    assert schema.attributes[1].words == Words(unit="x")
    field = pa.field("ok", pa.bool_(), metadata={"comment": "Whether it is", "label": "Well?", "other": "x"})
    arrow = Schema.from_toml(from_schema(pa.schema([field]), "t").to_toml())
    assert arrow.attributes[0].words == Words(title="Well?", description="Whether it is")
