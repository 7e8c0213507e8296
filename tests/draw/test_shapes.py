"""Numbers inside their bins: shapes, grains and rounding."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import numpy as np
import polars as pl
from hypothesis import given, settings

import sklar
from sklar.draw.decode import Decoder, Rounding, Shape
from sklar.fitting.density import _chances, interpolated
from sklar.public.schema import Attribute, Schema


def drawn(attribute: Attribute, shape: Shape | None, codes: Any, seed: int = 1) -> pl.Series:
    decoder = Decoder(Schema(name="t", attributes=(attribute,)), shapes={} if shape is None else {"x": shape})
    return decoder.decode(np.asarray(codes)[None, :], np.random.default_rng(seed)).to_series()


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=8),
    st.lists(st.floats(0, 1), min_size=8, max_size=8),
    st.sampled_from(["integer", "real", "date"]),
    st.integers(0, 2**32),
)
@settings(max_examples=40, deadline=None)
def test_interpolated_numbers_stay_in_their_bins_and_are_never_points(
    widths: list[int], masses: list[float], kind: Any, seed: int
) -> None:
    edges = np.concatenate([[0], np.cumsum([width + 1 for width in widths])])
    given_edges = tuple(float(edge) if kind == "real" else int(edge) for edge in edges)
    points = (given_edges[0],)
    attribute = Attribute(name="x", kind=kind, edges=given_edges, points=points)
    levels = np.array([0.1, *masses[: len(widths)]])
    shape = interpolated(attribute, levels)
    assert (np.diff(shape.heights) >= 0).all()
    codes = np.repeat(attribute.bin_codes, 50)
    found = drawn(attribute, shape, codes, seed)
    numbers = (found.cast(pl.Int32) if kind == "date" else found).to_numpy()
    bins = np.searchsorted(edges, numbers, side="right") - 1
    assert (attribute.bin_codes[bins] == codes).all()
    assert not np.isin(numbers, points).any()


def test_a_steep_distribution_is_drawn_steeply() -> None:
    """Within the bin that it shares with a heavy neighbor, most of the rows lie beside it."""
    attribute = Attribute(name="x", kind="integer", edges=(0, 100, 200, 300))
    shape = interpolated(attribute, np.array([0.7, 0.25, 0.05]))
    found = drawn(attribute, shape, np.ones(4000, dtype=np.int64)).to_numpy()
    assert found.min() >= 100
    assert found.max() < 200
    # Even bins would have half; the chance to miss by this much is below one in a million.
    assert np.mean(found < 150) > 0.55


def test_a_level_that_noise_filled_is_drawn_like_the_one_before() -> None:
    attribute = Attribute(name="x", kind="integer", edges=(0, 10, 1000))
    shape = Shape(bins=np.array([0, 0]), heights=np.array([0.0, 1, 1, 2]), places=np.array([0.0, 10, 10, 1000]))
    assert drawn(attribute, shape, np.array([1] * 100)).max() < 10  # type: ignore[operator]


def test_a_small_number_is_not_rounded_up_to_a_step_that_its_far_bin_allows() -> None:
    steps = np.array([1, 5, 10, 50, 100])
    rounding = Rounding(grain=Fraction(1), steps=steps, upto=np.zeros((1, 4)), kept=np.array([0]))
    units, low, high = np.array([3, 47, 130, 170]), np.array([2, 2, 2, 150]), np.full(4, 10**6)
    rounded, done = rounding.round(units, low, high, np.random.default_rng(1))
    # 3 has no multiple below it in its bin but of one; 170 is less than a step from the first multiple of its bin.
    assert rounded.tolist() == [3, 40, 100, 200]
    assert done.tolist() == [False, True, True, True]


def test_a_number_that_stands_apart_is_drawn_again_by_its_shape_and_not_anywhere() -> None:
    """Numbers lie from 5 to 8, of which 6 and 7 are points, in a bin that reaches far: 5 is left, or 8 beside 7."""
    attribute = Attribute(name="x", kind="integer", edges=(5, 10**6), points=(6, 7))
    for low, left in ((5.0, {5}), (6.0, {8})):
        shape = Shape(bins=np.array([0]), heights=np.array([0.0, 1.0]), places=np.array([low, 8.0]))
        assert set(drawn(attribute, shape, np.zeros(2000, dtype=np.int64)).to_list()) <= {*left, 8}


def test_rounding_comes_out_as_often_as_it_was_counted() -> None:
    steps = np.array([1, 5, 10, 50, 100])
    counted = np.array([0.04, 0.0, 0.0, 0.06, 0.9])
    chances = _chances(counted, steps)
    upto = np.cumsum(chances)[None, :-1]
    rounding = Rounding(grain=Fraction(1), steps=steps, upto=upto, kept=np.array([1234]))
    generator = np.random.default_rng(1)
    units = generator.integers(1000, 9000, 50_000)
    rounded, _ = rounding.round(units, np.full(50_000, 1000), np.full(50_000, 9000), generator)
    assert abs(np.mean(rounded % 100 == 0) - 0.9) < 0.01
    assert abs(np.mean(rounded % 50 == 0) - 0.96) < 0.01
    kept, _ = rounding.round(np.full(10, 1234), np.full(10, 1000), np.full(10, 9000), generator)
    assert (kept == 1234).all()
    # A bin without a multiple keeps its numbers.
    narrow, done = rounding.round(np.full(9, 1003), np.full(9, 1001), np.full(9, 1004), generator)
    assert (narrow == 1003).all()
    assert not done.any()


def test_rounded_reals_keep_their_places_and_integers_their_step() -> None:
    attribute = Attribute(name="x", kind="real", edges=(0.0, 10.0, 20.0))
    tens = Rounding(
        grain=Fraction(1, 10**9), steps=np.array([1, 10**7]), upto=np.zeros((1, 1)), kept=np.empty(0, dtype=np.int64)
    )
    shape = Shape(
        bins=np.arange(2), heights=np.array([0.0, 1, 1, 2]), places=np.array([0.0, 10, 10, 20]), rounding=tens
    )
    found = drawn(attribute, shape, [0, 1] * 200)
    assert all(len(str(value).split(".")[1]) <= 2 for value in found.to_list())
    stepped = Attribute(name="x", kind="integer", edges=(0, 1000, 5000), step=100)
    assert not (drawn(stepped, interpolated(stepped, np.array([0.5, 0.5])), [0, 1] * 200).to_numpy() % 100).any()


def test_a_release_from_bounds_keeps_heaps_rounding_and_decimals() -> None:
    """Raw defects of the first releases: no zeros, values that nobody wrote, and means pulled up by wide bounds.

    At epsilon 20 noise is below a tenth of a percent of the rows; the bounds asked for are many times that.
    """
    generator = np.random.default_rng(5)
    income = (generator.lognormal(10, 0.7, 6000) // 100 * 100).astype(np.int64)
    income[:4000] = 0
    price = np.round(generator.gamma(2, 10, 6000), 2)
    table = pl.DataFrame({"income": income, "price": price})
    toml = '[attributes.{0}]\ntype = "{1}"\ndomain = "private"\nlow = 0\nhigh = 1_000_000_000\n'
    schema = Schema.from_toml(toml.format("income", "integer") + toml.format("price", "real"))
    model = sklar.fit(table, schema, epsilon=20.0, method="binary")
    rows = model.sample(6000, seed=1)
    assert 0 in model.schema.attribute("income").points
    assert abs(np.mean(rows["income"].to_numpy() == 0) - 2 / 3) < 0.05
    assert np.mean(rows["income"].to_numpy() % 100 == 0) > 0.95
    assert 0.8 < rows["income"].to_numpy().mean() / income.mean() < 1.2
    assert 0.8 < rows["price"].to_numpy().mean() / price.mean() < 1.2
    assert np.mean([len(str(value).split(".")[1]) <= 2 for value in rows["price"].to_list()]) > 0.9
