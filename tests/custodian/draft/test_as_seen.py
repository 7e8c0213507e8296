"""Domains as the rows show them: they cover the rows, and say that they were read from them."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from sklar.custodian.check import check_values
from sklar.custodian.draft import draft
from sklar.errors import SchemaError
from sklar.public.codelists import natural
from sklar.public.schema import Attribute, AttributeKind, Schema
from sklar.rows.encode import encode
from sklar.rows.read import open_source
from tests.conftest import NAMES, TEXTS, refuses
from tests.custodian.draft.test_draft import drafted
from tests.rows.test_encode import PASSING


def proposed(values: list[object], kind: pa.DataType | None = None) -> Attribute:
    """The domain that a column of these values shows."""
    return drafted("x", values, kind).as_seen().attribute("x")


def read(kind: AttributeKind, **keys: Any) -> Attribute:
    """An attribute whose domain was read from the rows."""
    return Attribute(name="x", kind=kind, reviewed=False, provenance="rows", **keys)


@pytest.mark.parametrize(("values", "attribute"), [
    (["b", "a", "b"], read("categorical", values=("a", "b"))),
    (["01", "1", "02"], read("categorical", values=("01", "1", "02"))),
    (["0" * 5, "90210"], read("categorical", values=("00000", "90210"))),
    (["yes", "no", "?"], read("boolean", missing="?", texts=("no", "yes"))),
    (["yes", "yes"], read("categorical", values=("yes",))),
    (["3", "1", "", "NA", "NA"], read("integer", edges=(1, 2, 3, 4), missing="NA")),
    (["-2", "+0"], read("integer", edges=(-2, -1, 0, 1))),
    (["7", "93"], read("integer", edges=tuple(range(5, 100, 5)))),
    (["0.5", "1"], read("real", edges=tuple(i / 20 for i in range(10, 22)))),
    (["1999-05-01", "2001-01-01", "."], read("date", edges=(10_592, 10_957, 11_323, 11_688), missing=".")),
    (["1970-06-01T10:00:00", "1970-06-01T10:00:01"], read("datetime", edges=(0, 365 * 86_400_000_000))),
    (["1990", "2005"], read("integer", edges=tuple(range(1990, 2007)))),
    (["1", "x"], read("categorical", values=("1", "x"))),
    (["1" * 16, "2" * 16], read("categorical", values=("1" * 16, "2" * 16))),
])  # fmt: skip
def test_types_of_text_columns(values: list[object], attribute: Attribute) -> None:
    """A text file says nothing of types; a column of texts is given back as one, a category as one."""
    assert proposed([str(value).encode() for value in values], pa.binary()) == attribute
    listed = list(dict.fromkeys(str(value) for value in values if value not in ("", "?", "NA", ".")))
    texts = read("categorical", values=tuple(sorted(listed, key=natural)), missing=attribute.missing)
    quantity = attribute.kind not in ("categorical", "boolean")
    assert proposed(values, pa.string()) == (replace(attribute, output="string") if quantity else texts)
    for ordered, output in ((False, "category"), (True, "ordered category")):
        category = replace(texts, values=tuple(listed), output=output)
        assert proposed(values, pa.dictionary(pa.int8(), pa.string(), ordered=ordered)) == category


@pytest.mark.parametrize(("values", "kind", "output"), [
    ([1, 2], pa.int8(), "int8"), ([1, 2], pa.int64(), None), ([1.0, 2.0], pa.float64(), "float64"),
    ([1.5, 2.0], pa.float64(), None), ([1.5, 2.0], pa.float32(), "float32"),
    ([Decimal("1.50"), Decimal("1.51")], pa.decimal128(10, 2), "decimal(10, 2)"),
    ([Decimal("1.00"), Decimal("9.00")], pa.decimal128(10, 2), "decimal(10, 2)"),
    ([dt.date(2000, 1, 1)], pa.date32(), None), ([dt.date(2000, 1, 1)], pa.date64(), "date64"),
    ([dt.datetime(2000, 1, 1)], pa.timestamp("us"), None),
    ([dt.datetime(2000, 1, 1)], pa.timestamp("ns"), "timestamp[ns]"),
    ([dt.datetime(2000, 1, 1)], pa.timestamp("us", "Europe/Berlin"), "timestamp[us, tz=Europe/Berlin]"),
    (["1.5", "2"], pa.string(), "string"),
])  # fmt: skip
def test_a_draft_states_the_type_of_a_typed_column(values: list[object], kind: pa.DataType, output: str | None) -> None:
    attribute = proposed(values, kind)
    assert attribute.output == output
    # What it states can hold the domain: reading the draft back would refuse it otherwise.
    shown = Schema(name="t", attributes=(attribute,))
    assert Schema.from_toml(shown.to_toml()) == shown


def test_types_of_typed_columns() -> None:
    numbers = proposed(pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), pa.array([7, 3, 5])))
    assert (numbers.values, numbers.output) == ((7, 3, 5), "category")
    assert proposed([True, None]) == Attribute(name="x", kind="boolean", missing="")
    assert proposed([1.5, float("nan")]) == read("real", edges=proposed([1.5]).edges, missing="")
    beyond_python = pa.array([2**60, -(2**60)]).cast(pa.timestamp("s"))
    assert proposed(beyond_python).kind == "datetime"
    assert proposed([dt.datetime(2000, 1, 1, 5)], pa.timestamp("ns", "UTC")).kind == "datetime"


def test_what_the_rows_show_ends_where_they_hold_too_many_texts() -> None:
    people = [f"person {i}" for i in range(201)]
    for values in (people, [None, "", "?"], [f"{10**17 + i}" for i in range(300)]):
        assert drafted("x", values).as_seen().names == ("y",)
    few = drafted("x", people[1:]).as_seen()
    # It must be reviewed, and says where it is from.
    refuses("not reviewed: x", few.require_reviewed, error=SchemaError)
    assert few.reviewed("rows").read_from_rows == ("x",)


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**14), 10**14).map(float)
DAYS, MOMENTS = st.dates(max_value=dt.date(9999, 12, 30)), st.datetimes(max_value=dt.datetime(9999, 12, 30))
WORDS = st.sampled_from(["(missing)", "", "other", "NA", "a", "true", "no", "inf", "nan", "0", "1_0"])


def column(values: st.SearchStrategy[Any], kind: pa.DataType | None = None) -> st.SearchStrategy[pa.Array]:
    return st.lists(st.none() | values, min_size=1, max_size=8).map(lambda each: pa.array(each, kind or pa.string()))


WRITTEN = (NUMBERS.map(repr), *(values.map(str) for values in (st.integers(), DAYS, MOMENTS)))
COLUMNS = st.one_of(*map(column, (TEXTS, *WRITTEN, WORDS)), column(st.floats(), pa.float64()))


# A name ends at its first zero byte where tables change hands (Arrow's C interface).
@given(name=NAMES.filter(lambda name: "\x00" not in name), values=COLUMNS)
@settings(max_examples=90, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_draft_parses_back_and_covers_every_value(name: str, values: pa.Array) -> None:
    """What the rows show loses no value and clips none; the draft itself parses back."""
    data = pa.table({name: values, name + "_": [True] * len(values)})
    made = draft(data)
    assert Schema.from_toml(made.to_toml()) == made.schema
    shown = made.as_seen()
    assert Schema.from_toml(shown.to_toml()) == shown
    assert {(fate.clipped, fate.no_cell) for fate in check_values(data, shown)} <= {(0, 0)}
    for batch in open_source(data).batches(shown.names):
        assert encode(batch, shown).min(initial=0) >= 0


@pytest.mark.parametrize("column", PASSING, ids=lambda column: str(column.type)[:40])
def test_no_arrow_type_makes_a_draft_or_a_check_fail(column: pa.Array) -> None:
    table = pa.table({"x": column, "y": [True] * len(column)})
    made = draft(table)
    assert Schema.from_toml(made.to_toml()) == made.schema
    schema = Schema.from_toml("[attributes.x]\ntype = 'integer'\nedges = [0, 1]\nmissing = ''")
    (fate,) = check_values(table, schema)
    assert fate.listed + fate.missing + fate.clipped + fate.folded + fate.no_cell == len(column)
    assert fate.missing >= column.null_count
