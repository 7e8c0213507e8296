"""Decoding: encoding what was decoded gives the codes back, for every kind; types are as documented."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sklar.draw.decode import Decoder, column_type, decode, decode_column, decode_dummies, dummy_schema, record_schema
from sklar.public.schema import Attribute, Schema
from sklar.rows.encode import encode
from tests.conftest import schemas_with_codes


def drawn(attribute: Attribute, code: int, times: int = 200) -> pa.Array:
    return decode_column(np.full(times, code, dtype=np.int32), attribute, np.random.default_rng(5))


@given(described=schemas_with_codes(), seed=st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_encoding_what_was_decoded_gives_the_codes_back(described: tuple[Schema, NDArray[np.int32]], seed: int) -> None:
    schema, codes = described
    batch = decode(codes, schema, np.random.default_rng(seed))
    assert batch.schema == record_schema(schema)
    batch.validate(full=True)
    assert encode(batch, schema).tolist() == codes.tolist()


@given(described=schemas_with_codes(), seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_dictionaries_and_narrow_codes_mean_the_same(described: tuple[Schema, NDArray[np.int32]], seed: int) -> None:
    schema, codes = described
    expected = decode(codes, schema, np.random.default_rng(seed))
    decoder = Decoder(schema, dictionaries=True)
    batch = decoder.decode(codes.astype(np.uint8), np.random.default_rng(seed))
    assert batch.schema == decoder.arrow_schema
    batch.validate(full=True)
    assert pa.Table.from_batches([batch]).cast(record_schema(schema)).equals(pa.Table.from_batches([expected]))


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
@settings(max_examples=200, deadline=None)
def test_reals_stay_inside_their_bin_at_the_ends_of_the_generator(edges: list[float]) -> None:
    attribute = Attribute(name="x", kind="real", edges=tuple(float(edge) for edge in edges))
    codes = np.repeat(np.arange(attribute.n_values, dtype=np.int32), 2)
    values = decode_column(codes, attribute, Extremes(np.random.PCG64(0))).to_numpy()
    assert np.all(values >= np.array(edges)[codes])
    assert np.all(values < np.array(edges)[codes + 1])


def test_integers_are_whole_and_take_every_value_of_their_bin() -> None:
    attribute = Attribute(name="age", kind="integer", edges=(-2, 1, 5))
    assert set(drawn(attribute, 0).to_pylist()) == {-2, -1, 0}
    assert set(drawn(attribute, 1).to_pylist()) == {1, 2, 3, 4}
    widest = Attribute(name="n", kind="integer", edges=(-(2**63) + 1, 2**63 - 1))
    assert max(drawn(widest, 0).to_pylist()) > 2**60


def test_dates_fill_their_bin_before_and_after_1970() -> None:
    attribute = Attribute(name="day", kind="date", edges=(-3, -2, 0, 1))
    assert set(drawn(attribute, 0).to_pylist()) == {dt.date(1969, 12, 29)}
    assert set(drawn(attribute, 1).to_pylist()) == {dt.date(1969, 12, 30), dt.date(1969, 12, 31)}
    assert set(drawn(attribute, 2).to_pylist()) == {dt.date(1970, 1, 1)}


def test_datetimes_have_seconds_unless_the_edges_say_otherwise() -> None:
    whole = Attribute(name="at", kind="datetime", edges=(-2_000_000, 0))
    assert set(drawn(whole, 0).to_pylist()) == {dt.datetime(1969, 12, 31, 23, 59, second) for second in (58, 59)}
    fine = Attribute(name="at", kind="datetime", edges=(0, 2))
    assert set(drawn(fine, 0).to_pylist()) == {dt.datetime(1970, 1, 1, microsecond=tick) for tick in (0, 1)}


def test_reals_have_four_digits_within_the_narrowest_bin() -> None:
    attribute = Attribute(name="x", kind="real", edges=(0.0, 0.5, 100.0))
    assert all(len(str(value)) <= len("99.00001") for value in drawn(attribute, 1).to_pylist())
    assert len(set(drawn(attribute, 0).to_pylist())) > 190


def test_reals_are_spread_evenly() -> None:
    values = drawn(Attribute(name="x", kind="real", edges=(10.0, 20.0)), 0, times=4_000).to_numpy()
    # Kolmogorov's distance of 4,000 uniforms is above 0.04 once in 200,000 times; the seed is fixed besides.
    expected = np.sort(values) / 10 - 1
    assert np.abs(expected - np.arange(4_000) / 4_000).max() < 0.04


@pytest.mark.parametrize(
    ("attribute", "kind", "values"),
    [
        (Attribute(name="a", kind="categorical", values=("x", "1"), missing="?"), pa.string(), ["x", "1", None]),
        (Attribute(name="a", kind="categorical", values=(7, -1), missing="?"), pa.int64(), [7, -1, None]),
        (
            Attribute(name="a", kind="categorical", values=(7, -1), missing="?", other=True),
            pa.string(),
            ["7", "-1", None, "other"],
        ),
        (Attribute(name="a", kind="categorical", values=("x",), other=True), pa.string(), ["x", "other"]),
        (Attribute(name="a", kind="boolean", missing="?"), pa.bool_(), [False, True, None]),
        (Attribute(name="a", kind="integer", edges=(5, 6, 7), missing=""), pa.int64(), [5, 6, None]),
        (Attribute(name="a", kind="real", edges=(0.0, 5e-324), missing=""), pa.float64(), [0.0, None]),
        (Attribute(name="a", kind="date", edges=(0, 1), missing=""), pa.date32(), [dt.date(1970, 1, 1), None]),
        (
            Attribute(name="a", kind="datetime", edges=(0, 1), missing=""),
            pa.timestamp("us"),
            [dt.datetime(1970, 1, 1), None],
        ),
    ],
)
def test_types_and_values_of_each_kind(attribute: Attribute, kind: pa.DataType, values: list[object]) -> None:
    codes = np.arange(attribute.n_levels, dtype=np.int32)
    column = decode_column(codes, attribute, np.random.default_rng(0))
    assert column_type(attribute) == column.type == kind
    assert column.to_pylist() == values


def test_dummies_are_small_zeros_and_ones() -> None:
    schema = Schema.from_toml(
        "[attributes.a]\ntype = 'categorical'\nvalues = ['x']\nmissing = '?'\n[attributes.b]\ntype = 'boolean'"
    )
    dummies = np.array([[True, False], [False, True], [False, False], [True, True]])
    batch = decode_dummies(dummies, schema)
    assert batch.schema == dummy_schema(schema)
    assert batch.schema.types == [pa.uint8()] * 4
    assert batch.to_pydict() == {"a=x": [1, 0], "a=?": [0, 1], "b=false": [0, 0], "b=true": [1, 1]}


def test_a_seed_gives_the_same_values_again() -> None:
    schema = Schema.from_toml("[attributes.x]\ntype = 'real'\nedges = [0, 1]")
    codes = np.zeros((1, 50), dtype=np.int32)
    first, second, third = (decode(codes, schema, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.equals(second)
    assert not first.equals(third)
