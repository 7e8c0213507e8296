"""Numbers and dates on an axis: what texts stand for, and what is refused."""

from __future__ import annotations

import datetime as dt
from fractions import Fraction
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given, settings

from sklar.errors import SchemaError
from sklar.public.axis import AXES, Spacing, days, microseconds, parse_number
from tests.public import one


def test_times_without_a_zone_are_utc() -> None:
    assert microseconds(dt.datetime(1970, 1, 1, 0, 0, 1)) == 1_000_000
    assert microseconds(dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))) == 0
    assert days(dt.date(1969, 12, 31)) == -1


@given(st.dates())
def test_a_date_is_read_as_it_is_written(day: dt.date) -> None:
    assert AXES["date"].text(days(day)) == day.isoformat()
    assert AXES["date"].parse(day.isoformat()) == AXES["date"].check(day) == days(day)


@given(st.datetimes())
def test_a_datetime_is_read_as_it_is_written(moment: dt.datetime) -> None:
    assert AXES["datetime"].text(microseconds(moment)) == moment.isoformat()
    assert AXES["datetime"].parse(moment.isoformat()) == AXES["datetime"].check(moment) == microseconds(moment)


@pytest.mark.parametrize("text", ["", "x", "1_000", "1e999", "9" * 401, "0x10", "nan"])
def test_texts_that_are_no_finite_number(text: str) -> None:
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("text", "kind", "point"),
    [
        (" 7 ", "integer", 7),
        ("1e3", "integer", 1000.0),
        ("-Infinity", "real", float("-inf")),
        ("1970-01-01T23:59", "date", 0),
        ("1970-01-01T01:00+01:00", "datetime", 0),
        ("0001-01-01T00:00+10:00", "datetime", None),
        ("tomorrow", "date", None),
        ("", "real", None),
    ],
)
def test_points_that_texts_stand_for(text: str, kind: str, point: float | None) -> None:
    assert AXES[kind].parse(text) == point


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6), st.integers(1, 50))
def test_equal_steps_end_where_they_should_and_differ_by_one_at_most(first: int, width: int, bins: int) -> None:
    edges = AXES["integer"].spaced(first, first + width, bins)
    assert (edges[0], edges[-1], len(edges)) == (first, first + width, bins + 1)
    steps = {after - before for before, after in pairwise(edges)}
    assert max(steps) - min(steps) <= 1


def test_an_edge_is_refused_as_it_was_written() -> None:
    with pytest.raises(SchemaError) as refused:
        AXES["date"].check("1990-01-31T12:00:00")
    assert str(refused.value) == ("edges of a date must be ISO texts ('1990-01-31'), got '1990-01-31T12:00:00'.")


@given(
    bounds=st.lists(st.integers(-(2**62), 2**62) | st.integers(-50, 50), min_size=2, max_size=2, unique=True).map(
        sorted
    ),
    bins=st.integers(1, 40),
    spacing=st.sampled_from(["log", "1-2-5"]),
    step=st.sampled_from([None, 1, 7, 100]),
)
@settings(deadline=None)
def test_whole_numbers(bounds: list[int], bins: int, spacing: Spacing, step: int | None) -> None:
    low, high = (bound * (step or 1) for bound in bounds)
    assume(high - low >= bins * (step or 1))
    edges = AXES["integer"].spaced(low, high, bins, spacing, None if step is None else Fraction(step))
    assert (edges[0], edges[-1]) == (low, high)
    assert all(before < after for before, after in pairwise(edges))
    assert len(edges) <= bins + 1
    assert all(isinstance(edge, int) and edge % (step or 1) == 0 for edge in edges)
    if spacing == "log" and low >= 0:
        assert len(edges) == bins + 1


@given(
    bounds=st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=2, unique=True).map(sorted),
    bins=st.integers(1, 30),
    spacing=st.sampled_from(["log", "1-2-5"]),
)
@settings(deadline=None)
def test_reals(bounds: list[float], bins: int, spacing: Spacing) -> None:
    low, high = bounds
    assume(high - low > 1e-290)
    edges = AXES["real"].spaced(low, high, bins, spacing)
    assert (edges[0], edges[-1]) == (low, high)
    assert all(before < after for before, after in pairwise(edges))
    assert len(edges) <= bins + 1
    if low < 0 < high and bins > 1:
        assert 0.0 in edges


def test_bins_grow_with_the_numbers() -> None:
    money = one('integer\nlow = 0\nhigh = 1000000\nbins = 20\nspacing = "log"')
    assert money.edges[:7] == (0, 1, 2, 4, 8, 17, 35)
    widths = [after - before for before, after in pairwise(money.edges)]
    assert widths == sorted(widths)
    round_ones = one('integer\nlow = 0\nhigh = 100000\nbins = 10\nspacing = "1-2-5"')
    assert round_ones.edges == (0, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
    mirrored = one('real\nlow = -10\nhigh = 10\nbins = 6\nspacing = "1-2-5"')
    assert mirrored.edges == (-10.0, -5.0, -2.0, 0.0, 2.0, 5.0, 10.0)
    waits = one('duration\nlow = "0:00:00"\nhigh = "24:00:00"\nbins = 3\nspacing = "1-2-5"')
    assert waits.levels == ("[0:00:00, 5:33:20)", "[5:33:20, 13:53:20)", "[13:53:20, 24:00:00)")


def test_equal_bins_keep_a_step() -> None:
    assert one("integer\nlow = 0\nhigh = 1000\nbins = 3\nstep = 100").edges == (0, 300, 700, 1000)
    waits = one('duration\nlow = "0:00:00"\nhigh = "0:00:10"\nbins = 3')
    assert waits.levels == ("[0:00:00, 0:00:03)", "[0:00:03, 0:00:07)", "[0:00:07, 0:00:10)")
    clock = one('time\nlow = "0:00"\nhigh = "0:10"\nbins = 3\nformat = "%H:%M"')
    assert clock.levels == ("[00:00:00, 00:03:00)", "[00:03:00, 00:07:00)", "[00:07:00, 00:10:00)")
