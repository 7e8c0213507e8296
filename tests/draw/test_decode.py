"""Decoding: encoding what was decoded gives the codes back, for every kind; types are as documented."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sklar.draw.decode import Decoder, column_type, decode_dummies, dummy_schema, record_schema
from sklar.public.schema import Attribute, Schema
from sklar.rows.encode import encode
from tests.conftest import schemas_with_codes
from tests.public import cases, one


def decode_column(codes: Any, attribute: Attribute, generator: np.random.Generator) -> pl.Series:
    """Values of one attribute's codes, shape (rows,)."""
    return Decoder(Schema(name="t", attributes=(attribute,))).decode(codes[None, :], generator).to_series()


def drawn(attribute: Attribute, code: int, times: int = 200) -> pl.Series:
    return decode_column(np.full(times, code, dtype=np.int32), attribute, np.random.default_rng(5))


@given(described=schemas_with_codes(), seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_encoding_what_was_decoded_gives_the_codes_back(described: tuple[Schema, NDArray[np.int32]], seed: int) -> None:
    schema, codes = described
    decoder = Decoder(schema)
    frame = decoder.decode(codes, np.random.default_rng(seed))
    assert frame.schema == decoder.columns == record_schema(schema)
    assert encode(frame, schema).tolist() == codes.tolist()


@given(described=schemas_with_codes(), seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_enums_and_narrow_codes_mean_the_same(described: tuple[Schema, NDArray[np.int32]], seed: int) -> None:
    schema, codes = described
    expected = Decoder(schema).decode(codes, np.random.default_rng(seed))
    decoder = Decoder(schema, enums=True)
    frame = decoder.decode(codes.astype(np.uint8), np.random.default_rng(seed))
    assert frame.schema == decoder.columns
    assert frame.cast(record_schema(schema)).equals(expected)
    for attribute in schema.attributes:
        if attribute.kind in ("categorical", "boolean"):
            assert frame.schema[attribute.name] != pl.String


class Extremes(np.random.Generator):
    """A generator whose uniforms are the least and the largest that NumPy can draw."""

    def random(self, size: int) -> NDArray[np.float64]:  # type: ignore[override]
        return np.where(np.arange(size) % 2, 1 - 2**-53, 0.0)


@given(
    edges=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=6, unique=True).map(sorted)
)
@example(edges=[0.1, 0.2, 0.30000000000000004])
@example(edges=[0.0, 5e-324, 1e-323])
@example(edges=[-1.7e308, 1.7e308])
@example(edges=[1.0, np.nextafter(1.0, 2), 2.0])
@settings(max_examples=50, deadline=None)
def test_reals_stay_inside_their_bin_at_the_ends_of_the_generator(edges: list[float]) -> None:
    attribute = Attribute(name="x", kind="real", edges=tuple(float(edge) for edge in edges))
    codes = np.repeat(np.arange(attribute.n_values, dtype=np.int32), 2)
    values = decode_column(codes, attribute, Extremes(np.random.PCG64(0))).to_numpy()
    assert np.all(values >= np.array(edges)[codes])
    assert np.all(values < np.array(edges)[codes + 1])


def test_integers_are_as_large_as_64_bits_hold_and_reals_have_four_digits_within_the_narrowest_bin() -> None:
    widest = Attribute(name="n", kind="integer", edges=(-(2**63) + 1, 2**63 - 1))
    assert max(drawn(widest, 0).to_list()) > 2**60
    attribute = Attribute(name="x", kind="real", edges=(0.0, 0.5, 100.0))
    assert all(len(str(value)) <= len("99.00001") for value in drawn(attribute, 1).to_list())
    assert len(set(drawn(attribute, 0).to_list())) > 190


def test_reals_are_spread_evenly() -> None:
    values = drawn(Attribute(name="x", kind="real", edges=(10.0, 20.0)), 0, times=4_000).to_numpy()
    # Kolmogorov's distance of 4,000 uniforms is above 0.04 once in 200,000 times; the seed is fixed besides.
    expected = np.sort(values) / 10 - 1
    assert np.abs(expected - np.arange(4_000) / 4_000).max() < 0.04


def test_dummies_are_small_zeros_and_ones_and_names_that_are_patterns_to_polars_are_names() -> None:
    schema = Schema.from_toml(
        "[attributes.a]\ntype = 'categorical'\nvalues = ['x']\nmissing = '?'\n[attributes.b]\ntype = 'boolean'"
    )
    frame = decode_dummies(np.array([[True, False], [False, True], [False, False], [True, True]]), schema)
    assert frame.schema == dummy_schema(schema) == pl.Schema(dict.fromkeys(frame.columns, pl.UInt8()))
    assert frame.to_dict(as_series=False) == {"a=x": [1, 0], "a=?": [0, 1], "b=false": [0, 0], "b=true": [1, 1]}
    names = ("*", "^.*$", "a")
    schema = Schema.from_dict({"attributes": {name: {"type": "categorical", "values": [name]} for name in names}})
    frame = Decoder(schema).decode(np.zeros((3, 2), dtype=np.uint8), np.random.default_rng(0))
    assert frame.to_dict(as_series=False) == {name: [name, name] for name in names}


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 13, 100])
def test_booleans_are_packed_column_by_column_whatever_their_number(rows: int) -> None:
    entries: dict[str, dict[str, object]] = {f"b{index}": {"type": "boolean"} for index in range(11)}
    entries["c"] = {"type": "boolean", "missing": ""}
    schema = Schema.from_dict({"attributes": entries})
    codes = np.random.default_rng(rows).integers(0, 2, (12, rows)).astype(np.uint8)
    for narrow in (codes, codes.astype(np.int32)):
        frame = Decoder(schema).decode(narrow, np.random.default_rng(0))
        assert frame.height == rows
        assert frame.rows() == [tuple(column) for column in codes.astype(bool).T.tolist()]


# Entries, the type of their column, and the values of each code. No bin yields a point or a special number, not even
# one of reals that holds next to nothing else.
KINDS = r"""
categorical ; values = ["x", "1"] ; missing = "?" -> String: x | 1 | None
categorical ; values = [7, -1] ; missing = "?" -> Int64: 7 | -1 | None
categorical ; values = [2, 1] ; special = [9] ; missing = "" -> Int64: 2 | 1 | 9 | None
categorical ; values = [7] ; missing = "?" ; other = true -> String: 7 | None | other
categorical ; values = [7] ; output = "string" -> String: 7
categorical ; values = ["b", "a"] ; ordered = true -> Enum(categories=['b', 'a']): b | a
categorical ; values = ["b"] ; ordered = true ; output = "string" -> String: b
categorical ; values = ["b", "a"] ; output = "category" -> Categorical: b | a
categorical ; values = ["b"] ; missing = "?" ; output = "ordered category" -> Enum(categories=['b']): b | None
categorical ; values = [2, 1] ; output = "category" -> Int64: 2 | 1
categorical ; values = [2, 1] ; output = "ordered category" -> Enum(categories=['2', '1']): 2 | 1
categorical ; values = [2] ; missing = "?" ; other = true ; output = "ordered category"
    -> Enum(categories=['2', 'other']): 2 | None | other
categorical ; values = [2] ; other = true ; output = "category" -> Categorical: 2 | other
boolean ; missing = "?" -> Boolean: False | True | None
boolean ; special = ["refused"] ; missing = "" -> String: false | true | refused | None
boolean ; missing = "" ; output = "string" -> String: false | true | None
boolean ; texts = ["N", "Y"] -> String: N | Y
boolean ; texts = ["N", "Y"] ; output = "bool" -> Boolean: False | True
boolean ; texts = ["1", "2"] ; output = "int8" -> Int8: 1 | 2
integer ; edges = [-2, 1, 5] ; missing = "" -> Int64: -1, -2, 0 | 1, 2, 3, 4 | None
integer ; edges = [0, 4, 9, 14] ; points = [4, 7] ; special = [11, -9]
    -> Int64: 0, 1, 2, 3 | 4 | 5, 6, 8 | 7 | 10, 12, 13, 9 | 11 | -9
integer ; edges = [-1, 0] ; output = "string" -> String: -1
integer ; edges = [0, 300, 400] ; step = 100 ; points = [200] -> Int64: 0, 100 | 200 | 300
real ; edges = [0, 5e-324] ; missing = "" -> Float64: 0.0 | None
real ; edges = [0, 5e-324] ; output = "string" -> String: 0
real ; edges = [5, 5.0000000000000018] ; points = [5.0] ; special = ["N", -9] ; missing = "?"
    -> String: 5 | 5.000000000000001 | N | -9 | None
real ; edges = [0, 2e-323] ; points = [0, 1e-323] ; special = [1.5e-323] -> Float64: 0.0 | 5e-324 | 1e-323 | 1.5e-323
real ; edges = [1, 1.0000002384185791] ; points = [1] ; output = "float32" -> Float32: 1.0 | 1.0000001192092896
real ; edges = [0, 0.03] ; points = [0.01] ; output = "decimal(5, 2)"
    -> Decimal(precision=5, scale=2): 0.00, 0.02 | 0.01
real ; edges = [-0.02, 0.01] ; missing = "" ; output = "decimal(3, 2)"
    -> Decimal(precision=3, scale=2): -0.01, -0.02, 0.00 | None
real ; edges = [0.7, 1] ; step = 0.1 -> Float64: 0.7, 0.8, 0.9
real ; edges = [0.7, 1] ; step = 0.1 ; points = [0.8] ; special = [0.9] -> Float64: 0.7 | 0.8 | 0.9
real ; edges = [0, 1] ; step = 0.25 ; output = "float32" -> Float32: 0.0, 0.25, 0.5, 0.75
real ; edges = [0, 1] ; step = 0.5 ; output = "decimal(5, 2)" -> Decimal(precision=5, scale=2): 0.00, 0.50
date ; edges = ["1969-12-31", "1970-01-02"] ; missing = "" -> Date: 1969-12-31, 1970-01-01 | None
date ; edges = ["1970-01-01", "1970-01-02"] ; special = ["9999-12-31"] -> Date: 1970-01-01 | 9999-12-31
date ; edges = ["0001-01-01", "0001-01-02"] ; output = "string" -> String: 0001-01-01
date ; edges = ["2000-01-01", "2000-01-02"] ; format = "%d.%m.%Y" -> String: 01.01.2000
date ; edges = ["1970-01-01", "1970-01-15"] ; step = 7 -> Date: 1970-01-01, 1970-01-08
datetime ; edges = ["1969-12-31T23:59:58", "1970-01-01"] ; missing = ""
    -> Datetime(time_unit='us', time_zone=None): 1969-12-31 23:59:58, 1969-12-31 23:59:59 | None
datetime ; edges = ["1970-01-01", "1970-01-01T00:00:00.000002"]
    -> Datetime(time_unit='us', time_zone=None): 1970-01-01 00:00:00, 1970-01-01 00:00:00.000001
datetime ; edges = ["2020-01-01", "2020-01-01T00:00:01"] ; output = "string" -> String: 2020-01-01 00:00:00
datetime ; edges = ["1970-01-01 00:00:00.000001", "1970-01-01 00:00:00.000002"] ; output = "string"
    -> String: 1970-01-01 00:00:00.000001
datetime ; edges = ["1970-01-01", "1970-01-01T02:00"] ; step = 3600
    -> Datetime(time_unit='us', time_zone=None): 1970-01-01 00:00:00, 1970-01-01 01:00:00
datetime ; edges = ["2000-01-01", "2000-01-01T00:02"] ; format = "%d.%m.%Y %H:%M"
    -> String: 01.01.2000 00:00, 01.01.2000 00:01
time ; edges = ["23:00", "24:00"] ; step = 1800 -> Time: 23:00:00, 23:30:00
time ; edges = ["1:00", "1:02"] ; format = "%I:%M %p" -> String: 01:00 AM, 01:01 AM
duration ; edges = ["-0:01", "0:01"] ; step = 60 -> Duration(time_unit='us'): -1 day, 23:59:00, 0:00:00
duration ; edges = ["-0:00:02", "0:00"] ; output = "string" -> String: -0:00:01, -0:00:02
year ; edges = [1990, 2010] ; step = 10 -> Int64: 1990, 2000
yearmonth ; edges = ["1999-11", "2000-02"] -> String: 1999-11, 1999-12, 2000-01
yearmonth ; edges = ["1999-12", "2000-01"] ; output = "date32" -> Date: 1999-12-01
yearmonth ; edges = ["1999-12", "2000-01"] ; format = "%m/%Y" -> String: 12/1999
"""


@pytest.mark.parametrize(("entry", "expected"), cases(KINDS))
def test_types_and_values_of_each_kind(entry: str, expected: str) -> None:
    attribute = one(entry)
    columns = [drawn(attribute, code) for code in range(attribute.n_levels)]
    values = [", ".join(sorted({str(value) for value in column})) for column in columns]
    assert f"{column_type(attribute)}: {' | '.join(values)}" == expected
    assert all(column.dtype == column_type(attribute) for column in columns)
