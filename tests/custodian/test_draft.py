"""Drafts: they cover the rows, and say that they were read from them."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import hypothesis.strategies as st
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from sklar.custodian.check import check
from sklar.custodian.draft import draft
from sklar.errors import DataError, SchemaError
from sklar.generate import generate
from sklar.public.schema import Attribute, Schema
from sklar.rows.encode import encode
from sklar.rows.read import open_source
from tests.conftest import NAMES, TEXTS
from tests.rows.test_encode import PASSING


def proposed(values: list[object], kind: pa.DataType | None = None) -> Attribute:
    """The entry that a draft proposes for a column of these values."""
    return draft(pa.table({"x": pa.array(values, type=kind), "y": [True] * len(values)})).schema.attribute("x")


def left_out(values: list[object], kind: pa.DataType | None = None) -> str:
    return draft(pa.table({"x": pa.array(values, type=kind), "y": [True] * len(values)})).left_out["x"]


def assert_covers(data: pa.Table) -> None:
    """The draft parses back, loses no value and clips none."""
    made = draft(data)
    assert Schema.from_toml(made.to_toml()) == made.schema
    for fate in check(data, made.schema):
        assert (fate.clipped, fate.no_cell) == (0, 0)
    for batch in open_source(data).batches(made.schema.names):
        assert encode(batch, made.schema).min(initial=0) >= 0


@pytest.mark.parametrize(
    ("values", "attribute"),
    [
        (["b", "a", "b"], Attribute(name="x", kind="categorical", values=("a", "b"), reviewed=False)),
        (["01", "1", "02"], Attribute(name="x", kind="categorical", values=("01", "02", "1"), reviewed=False)),
        (["0" * 5, "90210"], Attribute(name="x", kind="categorical", values=("00000", "90210"), reviewed=False)),
        (["yes", "no", "?"], Attribute(name="x", kind="boolean", missing="?", reviewed=False)),
        (["yes", "yes"], Attribute(name="x", kind="categorical", values=("yes",), reviewed=False)),
        (
            ["3", "1", "", "NA", "NA"],
            Attribute(name="x", kind="integer", edges=(1, 2, 3, 4), missing="NA", reviewed=False),
        ),
        (["-2", "+0"], Attribute(name="x", kind="integer", edges=(-2, -1, 0, 1), reviewed=False)),
        (["7", "93"], Attribute(name="x", kind="integer", edges=tuple(range(5, 100, 5)), reviewed=False)),
        (["0.5", "1"], Attribute(name="x", kind="real", edges=tuple(i / 20 for i in range(10, 22)), reviewed=False)),
        (
            ["1999-05-01", "2001-01-01", "."],
            Attribute(name="x", kind="date", edges=(10_592, 10_957, 11_323, 11_688), missing=".", reviewed=False),
        ),
        (
            ["1970-06-01T10:00:00", "1970-06-01T10:00:01"],
            Attribute(name="x", kind="datetime", edges=(0, 365 * 86_400_000_000), reviewed=False),
        ),
        (["1990", "2005"], Attribute(name="x", kind="integer", edges=tuple(range(1990, 2007)), reviewed=False)),
        (["1", "x"], Attribute(name="x", kind="categorical", values=("1", "x"), reviewed=False)),
        (["1" * 16, "2" * 16], Attribute(name="x", kind="categorical", values=("1" * 16, "2" * 16), reviewed=False)),
    ],
)
def test_types_of_text_columns(values: list[object], attribute: Attribute) -> None:
    """A text file says nothing of types; a column of texts is given back as one, a category as one."""
    assert proposed([str(value).encode() for value in values], pa.binary()) == attribute
    listed = list(dict.fromkeys(str(value) for value in values if value not in ("", "?", "NA", ".")))
    texts = Attribute(
        name="x", kind="categorical", values=tuple(sorted(listed)), missing=attribute.missing, reviewed=False
    )
    quantity = attribute.kind not in ("categorical", "boolean")
    assert proposed(values, pa.string()) == (replace(attribute, output="string") if quantity else texts)
    for ordered, output in ((False, "category"), (True, "ordered category")):
        category = replace(texts, values=tuple(listed), output=output)
        assert proposed(values, pa.dictionary(pa.int8(), pa.string(), ordered=ordered)) == category


@pytest.mark.parametrize(
    ("values", "kind", "output"),
    [
        ([1, 2], pa.int8(), "int8"),
        ([1, 2], pa.int64(), None),
        ([1.0, 2.0], pa.float64(), "float64"),
        ([1.5, 2.0], pa.float64(), None),
        ([1.5, 2.0], pa.float32(), "float32"),
        ([Decimal("1.50"), Decimal("1.51")], pa.decimal128(10, 2), "decimal(10, 2)"),
        ([Decimal("1.00"), Decimal("9.00")], pa.decimal128(10, 2), "decimal(10, 2)"),
        ([dt.date(2000, 1, 1)], pa.date32(), None),
        ([dt.date(2000, 1, 1)], pa.date64(), "date64"),
        ([dt.datetime(2000, 1, 1)], pa.timestamp("us"), None),
        ([dt.datetime(2000, 1, 1)], pa.timestamp("ns"), "timestamp[ns]"),
        ([dt.datetime(2000, 1, 1)], pa.timestamp("us", "Europe/Berlin"), "timestamp[us, tz=Europe/Berlin]"),
        (["1.5", "2"], pa.string(), "string"),
    ],
)
def test_a_draft_states_the_type_of_a_typed_column(values: list[object], kind: pa.DataType, output: str | None) -> None:
    attribute = proposed(values, kind)
    assert attribute.output == output
    # What it states can hold the domain: reading the draft back would refuse it otherwise.
    assert Schema.from_toml(draft(pa.table({"x": pa.array(values, type=kind)})).to_toml()).attributes == (attribute,)


def test_categories_of_numbers_stay_numbers() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), pa.array([7, 3, 5]))
    attribute = draft(pa.table({"x": column})).schema.attribute("x")
    assert (attribute.values, attribute.output) == ((7, 3, 5), "category")


def test_types_of_typed_columns() -> None:
    assert proposed([True, None]) == Attribute(name="x", kind="boolean", missing="")
    assert proposed([1, None]).kind == "integer"
    assert proposed([1.5, float("nan")]) == Attribute(
        name="x", kind="real", edges=proposed([1.5]).edges, missing="", reviewed=False
    )
    assert proposed([dt.date(2000, 1, 1)]).kind == "date"
    assert proposed([dt.datetime(2000, 1, 1, 5)]).kind == "datetime"
    beyond_python = pa.array([2**60, -(2**60)]).cast(pa.timestamp("s"))
    assert draft(pa.table({"x": beyond_python})).schema.attribute("x").kind == "datetime"
    assert proposed([dt.datetime(2000, 1, 1, 5)], pa.timestamp("ns", "UTC")).kind == "datetime"


def test_columns_that_a_draft_cannot_describe_are_left_out_with_the_reason() -> None:
    assert left_out([f"person {i}" for i in range(201)]) == (
        "it holds more than 200 different texts; list public values and other = true to keep it"
    )
    assert proposed([f"person {i}" for i in range(200)]).n_values == 200
    assert left_out([None, "", "?"]) == "it holds no values"
    assert left_out([f"{10**17 + i}" for i in range(300)]).startswith("it holds more than 200 different texts")


def test_the_file_says_what_was_left_out_and_stays_a_schema(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(',"odd\n[attributes.evil]",age\n' + "".join(f"{i},text {i},{i % 9}\n" for i in range(300)))
    made = draft(path, name="people")
    text = made.to_toml()
    assert made.schema.names == ("age",)
    assert made.left_out[""] == "it has no name"
    assert Schema.from_toml(text) == made.schema
    assert made.schema.name == "people"
    assert "# Left out: 'odd\\n[attributes.evil]': it holds more than 200" in text
    assert "reviewed = false" in text


def test_every_entry_read_from_the_rows_must_be_reviewed() -> None:
    _, frames = generate("census", rows=500, seed=1)
    made = draft(pl.concat(frames))
    for attribute in made.schema.attributes:
        assert attribute.reviewed == (attribute.kind == "boolean" and attribute.missing == "")
    with pytest.raises(SchemaError, match="not reviewed"):
        Schema.from_toml(made.to_toml()).require_reviewed()


def test_a_draft_covers_a_generated_census() -> None:
    _, frames = generate("census", rows=3_000, seed=4)
    table = pl.concat(frames)
    assert_covers(table)
    made = draft(table)
    assert set(made.left_out) <= {"person_id"}
    assert {attribute.kind for attribute in made.schema.attributes} >= {"categorical", "integer", "date"}


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**14), 10**14).map(float)
COLUMNS = st.one_of(
    st.lists(st.none() | TEXTS, min_size=1, max_size=8),
    st.lists(st.none() | NUMBERS.map(repr), min_size=1, max_size=8),
    st.lists(st.none() | st.integers().map(str), min_size=1, max_size=8),
    st.lists(st.none() | st.dates(max_value=dt.date(9999, 12, 30)).map(str), min_size=1, max_size=8),
    st.lists(st.datetimes(max_value=dt.datetime(9999, 12, 30)).map(str), min_size=1, max_size=8),
    st.lists(
        st.sampled_from(["(missing)", "", "other", "NA", "a", "true", "no", "inf", "nan", "0", "1_0"]), min_size=1
    ),
)


# A name ends at its first zero byte where tables change hands (Arrow's C interface).
@given(name=NAMES.filter(lambda name: "\x00" not in name), column=COLUMNS)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_draft_parses_back_and_covers_every_value(name: str, column: list[str | None]) -> None:
    assert_covers(pa.table({name: pa.array(column, pa.string()), name + "_": [True] * len(column)}))


@given(column=st.lists(st.none() | st.floats(), min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_a_draft_covers_floats(column: list[float | None]) -> None:
    assert_covers(pa.table({"x": pa.array(column, pa.float64()), "y": [True] * len(column)}))


@pytest.mark.parametrize("column", PASSING, ids=lambda column: str(column.type)[:40])
def test_no_arrow_type_makes_a_draft_or_a_check_fail(column: pa.Array) -> None:
    table = pa.table({"x": column, "y": [True] * len(column)})
    made = draft(table)
    assert Schema.from_toml(made.to_toml()) == made.schema
    schema = Schema.from_toml("[attributes.x]\ntype = 'integer'\nedges = [0, 1]\nmissing = ''")
    (fate,) = check(table, schema)
    assert fate.listed + fate.missing + fate.clipped + fate.folded + fate.no_cell == len(column)
    assert fate.missing >= column.null_count


def test_tables_without_anything_to_draft_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n")
    with pytest.raises(DataError) as empty:
        draft(path)
    assert str(empty.value) == f"file '{path}' has no rows to draft a schema from. Write the schema by hand."
    with pytest.raises(DataError) as nothing:
        draft(pa.table({"a": [None]}))
    assert str(nothing.value) == "the table has no column that a draft could describe. Write the schema by hand."
