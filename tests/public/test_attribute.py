"""Attributes: numbers and dates on an axis, column types, what people call levels, and public lists of codes."""

from __future__ import annotations

import datetime as dt
import random
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings

from sklar.draw.decode import column_type
from sklar.errors import SchemaError
from sklar.public.arrow import column_types
from sklar.public.attribute import Attribute, Words
from sklar.public.axis import AXES, Spacing, days, microseconds, number_format, parse_number
from sklar.public.codelists import code_lists, find_list, natural, truth_texts, words_of
from sklar.public.importers import from_arrow, from_frictionless
from sklar.public.outputs import arrow_type, parse_output, polars_type
from sklar.public.schema import Schema
from sklar.public.shown import shown_levels, shown_name, shown_number, shown_table, with_unit
from tests.draw.test_decode import decode_column
from tests.public import READ, one


@given(st.dates(), st.datetimes())
def test_dates_and_times_are_read_as_they_are_written(day: dt.date, moment: dt.datetime) -> None:
    for axis, value, counted in ((AXES["date"], day, days(day)), (AXES["datetime"], moment, microseconds(moment))):
        assert axis.text(counted) == value.isoformat()
        assert axis.parse(value.isoformat()) == axis.check(value) == counted


POINTS: dict[str, dict[str, float | None]] = {
    "integer": {" 7 ": 7, "1e3": 1000.0},
    "real": {"-Infinity": float("-inf"), "": None},
    "date": {"1970-01-01T23:59": 0, "1969-12-31": -1, "tomorrow": None},
    "datetime": {"1970-01-01T00:00:01": 1e6, "1970-01-01T01:00+01:00": 0, "0001-01-01T00:00+10:00": None},
}


def test_points_that_texts_stand_for_and_texts_that_are_no_finite_number() -> None:
    for kind, points in POINTS.items():
        assert {text: AXES[kind].parse(text) for text in points} == points
    texts = ["", "x", "1_000", "1e999", "9" * 401, "0x10", "nan"]
    assert [text for text in texts if parse_number(text) is not None] == []


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6), st.integers(1, 50))
def test_equal_steps_end_where_they_should_and_differ_by_one_at_most(first: int, width: int, bins: int) -> None:
    edges = AXES["integer"].spaced(first, first + width, bins)
    assert (edges[0], edges[-1], len(edges)) == (first, first + width, bins + 1)
    steps = {after - before for before, after in pairwise(edges)}
    assert max(steps) - min(steps) <= 1


def two(numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(numbers, min_size=2, max_size=2, unique=True).map(sorted)


@given(
    bounds=two(st.integers(-(2**62), 2**62) | st.integers(-50, 50)) | two(st.floats(-1e300, 1e300)),
    bins=st.integers(1, 40),
    spacing=st.sampled_from(["log", "1-2-5"]),
    step=st.sampled_from([None, 1, 7, 100]),
)
@settings(deadline=None, max_examples=200)
def test_growing_bins_lie_between_the_bounds(bounds: list[Any], bins: int, spacing: Spacing, step: int | None) -> None:
    whole = isinstance(bounds[0], int) and isinstance(bounds[1], int)
    low, high = (bound * (step or 1) for bound in bounds) if whole else bounds
    assume(high - low >= bins * (step or 1) if whole else high - low > 1e-290)
    grain = Fraction(step) if step and whole else None
    edges = AXES["integer" if whole else "real"].spaced(low, high, bins, spacing, grain)
    assert (edges[0], edges[-1]) == (low, high)
    assert all(before < after for before, after in pairwise(edges))
    assert len(edges) <= bins + 1
    if whole:
        assert all(isinstance(edge, int) and edge % (step or 1) == 0 for edge in edges)
        assert len(edges) == bins + 1 or spacing != "log" or low < 0
    elif low < 0 < high and bins > 1:
        assert 0.0 in edges


@pytest.mark.parametrize(("keys", "edges"), READ["edges"])
def test_low_high_and_bins_imply_edges_with_exact_ends(keys: str, edges: str) -> None:
    attribute = one(keys)
    assert " ".join(attribute.axis.text(edge).removeprefix("9000-01-01") for edge in attribute.edges) == edges


@pytest.mark.parametrize(("text", "kind", "nearest"), [
    ("bool", pa.bool_(), pl.Boolean()), ("int8", pa.int8(), pl.Int8()), ("uint64", pa.uint64(), pl.UInt64()),
    ("float32", pa.float32(), pl.Float32()), ("float64", pa.float64(), pl.Float64()),
    ("decimal(10, 2)", pa.decimal128(10, 2), pl.Decimal(10, 2)), ("string", pa.string(), pl.String()),
    ("date32", pa.date32(), pl.Date()), ("date64", pa.date64(), pl.Date()),
    ("timestamp[s]", pa.timestamp("s"), pl.Datetime("ms")), ("timestamp[ns]", pa.timestamp("ns"), pl.Datetime("ns")),
    ("timestamp[us, tz=Europe/Berlin]", pa.timestamp("us", "Europe/Berlin"), pl.Datetime("us", "Europe/Berlin")),
    ("timestamp[us, tz=+02:00]", pa.timestamp("us", "+02:00"), pl.Datetime("us", "Etc/GMT-2")),
    ("timestamp[us, tz=+05:30]", pa.timestamp("us", "+05:30"), pl.Datetime("us", "UTC")),
])  # fmt: skip
def test_a_text_its_arrow_type_and_the_nearest_of_polars(text: str, kind: pa.DataType, nearest: pl.DataType) -> None:
    output = parse_output(text)
    assert output is not None
    assert str(output) == text
    assert arrow_type(output) == kind
    assert column_types(pa.schema([("x", kind)]))["x"].output == text
    assert polars_type(output) == nearest


def test_other_arrow_types() -> None:
    unknown = (pa.binary(), pa.float16(), pa.decimal256(50, 2), pa.list_(pa.int8()), pa.month_day_nano_interval())
    outputs = dict.fromkeys(unknown) | dict.fromkeys((pa.large_string(), pa.string_view()), "string")
    outputs |= {pa.duration("s"): "duration[s]", pa.time32("ms"): "time32[ms]"}
    outputs |= {pa.dictionary(pa.int8(), pa.string()): "category"}
    outputs |= {pa.dictionary(pa.int8(), pa.string(), ordered=True): "ordered category"}
    for kind, output in outputs.items():
        assert column_types(pa.schema([("x", kind)]))["x"].output == output


@pytest.mark.parametrize("text", ["", "int", "decimal(39, 2)", "decimal(2, 3)", "decimal(0, 0)", "timestamp", "object"])
def test_texts_that_are_no_type(text: str) -> None:
    assert parse_output(text) is None
    with pytest.raises(SchemaError, match="attribute 'age': output must be a column type such as 'int32'"):
        one(f'boolean\noutput = "{text}"')


@pytest.mark.parametrize("body", [entry for entry, _ in READ["drawn"]])
def test_every_bin_of_an_accepted_type_can_be_drawn(body: str) -> None:
    attribute = one(body)
    codes = np.repeat(np.arange(attribute.n_values, dtype=np.int32), 300)
    values = decode_column(codes, attribute, np.random.default_rng(3))
    assert values.dtype == column_type(attribute)
    assert values.null_count() == 0


WORDS = Path(__file__).with_name("words.toml").read_text()


def test_words_are_read_written_and_part_of_the_digest() -> None:
    schema = Schema.from_toml(WORDS)
    assert (shown_table(schema), shown_name(schema.attributes[0])) == ("People of Utopia", "Age at the census")
    assert schema.words.description == "Everybody who answered.\nIn two lines."
    assert with_unit(schema.attributes[0], "Age") == "Age (years)"
    assert with_unit(schema.attributes[1], "Sex") == "Sex"
    assert shown_levels(schema.attributes[0]) == ("children", "18 to 39", "40 to 44", "45", "did not say")
    assert shown_levels(schema.attributes[1]) == ("female", "male")
    for back in (Schema.from_toml(schema.to_toml()), Schema.from_dict(schema.to_dict())):
        assert back == schema
        assert back.digest == schema.digest
    plain = Schema.from_toml(WORDS.replace('title = "Age at the census"\n', ""))
    assert plain.digest != schema.digest
    assert plain.dummy_names == schema.dummy_names
    assert schema.measured.words == schema.words


@pytest.mark.parametrize(("entry", "shown"), READ["intervals"])
def test_intervals_by_grain(entry: str, shown: str) -> None:
    attribute = one(entry)
    assert " | ".join(shown_levels(attribute)) == shown
    assert len(shown_levels(attribute)) == attribute.n_levels


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
    arrow = Schema.from_toml(from_arrow(pa.schema([field]), "t").to_toml())
    assert arrow.attributes[0].words == Words(title="Well?", description="Whether it is")


def test_lists_are_whole() -> None:
    sizes = {known.what: len(known.values) for known in code_lists()}
    assert sizes["countries (ISO 3166, two letters)"] == sizes["countries (ISO 3166, three letters)"] == 249
    assert (sizes["months"], sizes["days of the week"]) == (12, 7)
    states = next(known for known in code_lists() if known.what == "states of the USA")
    assert len(states.values) == 50 + 1 + 5
    assert all(len(set(known.values)) == len(known.values) for known in code_lists())


RECOGNIZED = {
    "states of the USA": [("State", "AL TX"), ("home_state", "ca ny"),
        ("x", "TX NY OH IA UT ME GA CA WA OR MN ZZ YY X")],
    "countries (ISO 3166, two letters)": [("country", "DE FR")],
    "countries (ISO 3166, three letters)": [("x", "DEU FRA ITA ESP POL USA CAN MEX")],
    "sexes": [("sex", "Male Female"), ("x", "F M"), ("sex", "F M U")],
    "months": [("month", "1 12"), ("x", "Jan Feb May")], "days of the week": [("x", "MONDAY SUNDAY")],
    "countries (English names)": [("land", "Germany France")],
    None: [("grade", "AL TX"), ("x", "1 12"), ("x", "F M U"), ("country", "DE QQ"), ("code", "d m")],
}  # fmt: skip


def test_what_is_recognized() -> None:
    for what, name, texts in ((what, *column) for what, columns in RECOGNIZED.items() for column in columns):
        known = find_list(name, set(texts.split()))
        assert (None if known is None else known.what) == what, name
        assert known is None or len(set(texts.split()) - set(known.values)) <= 3
    assert find_list("x", {"Ohio", "Guam", "Puerto Rico"}) == find_list("state", {"Ohio", "Texas", "--"})


@pytest.mark.parametrize(("example", "texts"), [
    ("$1,234.50",
        {"$1,234.50": 1234.5, "1234.5": 1234.5, "-$5": -5, "$-5.00": -5, "($5)": -5, " $ 12,34,567.1 ": 1234567.1}),
    ("$1,234.50", dict.fromkeys(["(5", "--5", "(-5)", "$1,23", "1.234,50", "€5", "$", "", "$1e5", "5%"])),
    ("1.234,50 €", {"1.234,50 €": 1234.5, "€5": None, "1.5": None, "-0,5€": -0.5, "1234": 1234}),
    ("1 234,5 kr", {"1 234,5 kr": 1234.5, "1.5": None}), ("(1,234)", {"(1,234)": -1234, "1,234": 1234, "1.234": 1.234}),
    ("12.5%", {"12.5%": 12.5, "12.5 %": 12.5, "1,234.5%": None}),
])  # fmt: skip
def test_numbers_are_read_and_written_as_an_example_shows(example: str, texts: dict[str, float | None]) -> None:
    assert {text: AXES["real"].parse(text, example) for text in texts} == texts
    form = number_format(example)
    for number in (0.0, 0.5, -7.5, 999.0, 1234.5, -1_234_567.0):
        kept = round(number, form.places)
        assert AXES["real"].parse(form.text(kept), example) == kept
    assert form.text(-1234.5 if form.brackets else 1234.5)[:3] in (example[:3], "123")


def test_yes_and_no_keep_their_texts() -> None:
    for pair in (("N", "Y"), ("no", "yes"), ("FALSE", "TRUE"), ("Nein", "Ja"), ("0", "1")):
        assert truth_texts(set(pair)) == pair
    assert truth_texts({"y", "No"}) is truth_texts({"Y"}) is None


def test_codes_sort_as_people_do() -> None:
    wanted = ["1", "2", "10", "11", "20", "a1", "a2", "a10", "b"]
    shuffled = random.Random(1).sample(wanted, len(wanted))
    assert sorted(shuffled, key=natural) == wanted
    assert sorted(["9" * 5_000, "8" * 5_000], key=natural)[0].startswith("8")


def test_words_of_names() -> None:
    assert words_of("PassengerId") == {"passenger", "id"}
    assert words_of("HTTPServer_name2") == {"http", "server", "name"}
