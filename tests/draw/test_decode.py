"""Decoding: encoding what was decoded gives the codes back, for every kind; types are as documented."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
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


def one(body: str) -> Attribute:
    return Schema.from_toml(f"[attributes.x]\n{body}").attributes[0]


def test_a_bin_yields_no_point_and_no_special_number() -> None:
    hours = one('type = "integer"\nedges = [0, 40, 45, 50]\npoints = [40, 43]\nspecial = [47, -9]')
    assert hours.levels == ("[0, 40)", "40", "(40, 45)", "43", "[45, 50)", "47", "-9")
    expected = [set(range(40)), {40}, {41, 42, 44}, {43}, {45, 46, 48, 49}, {47}, {-9}]
    assert [set(drawn(hours, code, times=2_000).to_list()) for code in range(7)] == expected
    assert column_type(hours) == pl.Int64


def test_no_point_is_drawn_from_a_bin_of_reals_that_holds_next_to_nothing_else() -> None:
    tiny = 5e-324
    attribute = Attribute(
        name="x", kind="real", edges=(0.0, 4 * tiny, 1.0), points=(0.0, 2 * tiny), special=(3 * tiny,)
    )
    assert set(drawn(attribute, 1).to_list()) == {tiny}
    single = one('type = "real"\nedges = [1, 1.0000002384185791]\npoints = [1]\noutput = "float32"')
    assert set(drawn(single, 1).to_list()) == {1.0000001192092896}
    money = one('type = "real"\nedges = [0, 0.03]\npoints = [0.01]\noutput = "decimal(5, 2)"')
    assert {str(value) for value in drawn(money, 0)} == {"0.00", "0.02"}
    assert {str(value) for value in drawn(money, 1)} == {"0.01"}


DAY, MOMENT = dt.date(1970, 1, 1), dt.datetime(1970, 1, 1)


# The type of the column, and the values of each code.
@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        ('"categorical"\nvalues = ["x", "1"]\nmissing = "?"', pl.String, [{"x"}, {"1"}, {None}]),
        ('"categorical"\nvalues = [7, -1]\nmissing = "?"', pl.Int64, [{7}, {-1}, {None}]),
        ('"categorical"\nvalues = [2, 1]\nspecial = [9]\nmissing = ""', pl.Int64, [{2}, {1}, {9}, {None}]),
        ('"categorical"\nvalues = [7]\nmissing = "?"\nother = true', pl.String, [{"7"}, {None}, {"other"}]),
        ('"categorical"\nvalues = [7]\noutput = "string"', pl.String, [{"7"}]),
        ('"categorical"\nvalues = ["b", "a"]\nordered = true', pl.Enum(["b", "a"]), [{"b"}, {"a"}]),
        ('"categorical"\nvalues = ["b"]\nordered = true\noutput = "string"', pl.String, [{"b"}]),
        ('"boolean"\nmissing = "?"', pl.Boolean, [{False}, {True}, {None}]),
        ('"boolean"\nspecial = ["refused"]\nmissing = ""', pl.String, [{"false"}, {"true"}, {"refused"}, {None}]),
        ('"boolean"\nmissing = ""\noutput = "string"', pl.String, [{"false"}, {"true"}, {None}]),
        ('"boolean"\ntexts = ["N", "Y"]', pl.String, [{"N"}, {"Y"}]),
        ('"boolean"\ntexts = ["N", "Y"]\noutput = "bool"', pl.Boolean, [{False}, {True}]),
        ('"boolean"\ntexts = ["1", "2"]\noutput = "int8"', pl.Int8, [{1}, {2}]),
        ('"integer"\nedges = [-2, 1, 5]\nmissing = ""', pl.Int64, [{-2, -1, 0}, {1, 2, 3, 4}, {None}]),
        ('"integer"\nedges = [-1, 0]\noutput = "string"', pl.String, [{"-1"}]),
        ('"integer"\nedges = [0, 300, 400]\nstep = 100\npoints = [200]', pl.Int64, [{0, 100}, {200}, {300}]),
        ('"real"\nedges = [0, 5e-324]\nmissing = ""', pl.Float64, [{0.0}, {None}]),
        ('"real"\nedges = [0, 5e-324]\noutput = "string"', pl.String, [{"0"}]),
        (
            '"real"\nedges = [5, 5.0000000000000018]\npoints = [5.0]\nspecial = ["N", -9]\nmissing = "?"',
            *(pl.String, [{"5"}, {"5.000000000000001"}, {"N"}, {"-9"}, {None}]),
        ),
        ('"real"\nedges = [0.7, 1]\nstep = 0.1', pl.Float64, [{0.7, 0.8, 0.9}]),
        ('"real"\nedges = [0.7, 1]\nstep = 0.1\npoints = [0.8]\nspecial = [0.9]', pl.Float64, [{0.7}, {0.8}, {0.9}]),
        ('"real"\nedges = [0, 1]\nstep = 0.25\noutput = "float32"', pl.Float32, [{0.0, 0.25, 0.5, 0.75}]),
        (
            '"real"\nedges = [0, 1]\nstep = 0.5\noutput = "decimal(5, 2)"',
            *(pl.Decimal(5, 2), [{Decimal("0.00"), Decimal("0.50")}]),
        ),
        ('"date"\nedges = ["1969-12-31", "1970-01-02"]\nmissing = ""', pl.Date, [{dt.date(1969, 12, 31), DAY}, {None}]),
        (
            '"date"\nedges = ["1970-01-01", "1970-01-02"]\nspecial = ["9999-12-31"]',
            *(pl.Date, [{DAY}, {dt.date(9999, 12, 31)}]),
        ),
        ('"date"\nedges = ["0001-01-01", "0001-01-02"]\noutput = "string"', pl.String, [{"0001-01-01"}]),
        ('"date"\nedges = ["2000-01-01", "2000-01-02"]\nformat = "%d.%m.%Y"', pl.String, [{"01.01.2000"}]),
        ('"date"\nedges = ["1970-01-01", "1970-01-15"]\nstep = 7', pl.Date, [{DAY, dt.date(1970, 1, 8)}]),
        (
            '"datetime"\nedges = ["1969-12-31T23:59:58", "1970-01-01"]\nmissing = ""',
            *(pl.Datetime("us"), [{MOMENT - dt.timedelta(seconds=late) for late in (1, 2)}, {None}]),
        ),
        (
            '"datetime"\nedges = ["1970-01-01", "1970-01-01T00:00:00.000002"]',
            *(pl.Datetime("us"), [{MOMENT.replace(microsecond=tick) for tick in (0, 1)}]),
        ),
        (
            '"datetime"\nedges = ["2020-01-01", "2020-01-01T00:00:01"]\noutput = "string"',
            *(pl.String, [{"2020-01-01 00:00:00"}]),
        ),
        (
            '"datetime"\nedges = ["1970-01-01 00:00:00.000001", "1970-01-01 00:00:00.000002"]\noutput="string"',
            *(pl.String, [{"1970-01-01 00:00:00.000001"}]),
        ),
        (
            '"datetime"\nedges = ["1970-01-01", "1970-01-01T02:00"]\nstep = 3600',
            *(pl.Datetime("us"), [{MOMENT, MOMENT.replace(hour=1)}]),
        ),
        (
            '"datetime"\nedges = ["2000-01-01", "2000-01-01T00:02"]\nformat = "%d.%m.%Y %H:%M"',
            *(pl.String, [{"01.01.2000 00:00", "01.01.2000 00:01"}]),
        ),
        ('"time"\nedges = ["23:00", "24:00"]\nstep = 1800', pl.Time, [{dt.time(23), dt.time(23, 30)}]),
        ('"time"\nedges = ["1:00", "1:02"]\nformat = "%I:%M %p"', pl.String, [{"01:00 AM", "01:01 AM"}]),
        (
            '"duration"\nedges = ["-0:01", "0:01"]\nstep = 60',
            *(pl.Duration("us"), [{dt.timedelta(minutes=-1), dt.timedelta(0)}]),
        ),
        ('"duration"\nedges = ["-0:00:02", "0:00"]\noutput = "string"', pl.String, [{"-0:00:02", "-0:00:01"}]),
        ('"year"\nedges = [1990, 2010]\nstep = 10', pl.Int64, [{1990, 2000}]),
        ('"yearmonth"\nedges = ["1999-11", "2000-02"]', pl.String, [{"1999-11", "1999-12", "2000-01"}]),
        ('"yearmonth"\nedges = ["1999-12", "2000-01"]\noutput = "date32"', pl.Date, [{dt.date(1999, 12, 1)}]),
        ('"yearmonth"\nedges = ["1999-12", "2000-01"]\nformat = "%m/%Y"', pl.String, [{"12/1999"}]),
    ],
)
def test_types_and_values_of_each_kind(body: str, kind: pl.DataType, expected: list[set[object]]) -> None:
    attribute = one(f"type = {body}")
    columns = [drawn(attribute, code) for code in range(attribute.n_levels)]
    assert [set(column.to_list()) for column in columns] == expected
    assert all(column.dtype == kind == column_type(attribute) for column in columns)
