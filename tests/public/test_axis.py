"""Numbers and dates on an axis: what texts stand for, and what is refused."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sklar.errors import SchemaError
from sklar.public.axis import AXES, days, microseconds, parse_number
from sklar.public.spacing import spaced_edges


def test_times_without_a_zone_are_utc() -> None:
    assert microseconds(dt.datetime(1970, 1, 1, 0, 0, 1)) == 1_000_000
    assert microseconds(dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))) == 0
    assert days(dt.date(1969, 12, 31)) == -1


@given(st.dates())
def test_a_date_is_read_as_it_is_written(day: dt.date) -> None:
    assert AXES["date"].text(days(day)) == day.isoformat()
    assert AXES["date"].parse(day.isoformat()) == AXES["date"].check("", day) == days(day)


@given(st.datetimes())
def test_a_datetime_is_read_as_it_is_written(moment: dt.datetime) -> None:
    assert AXES["datetime"].text(microseconds(moment)) == moment.isoformat()
    assert AXES["datetime"].parse(moment.isoformat()) == AXES["datetime"].check("", moment) == microseconds(moment)


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
    edges = spaced_edges("integer", first, first + width, bins)
    assert (edges[0], edges[-1], len(edges)) == (first, first + width, bins + 1)
    steps = {after - before for before, after in pairwise(edges)}
    assert max(steps) - min(steps) <= 1


def test_an_edge_is_refused_as_it_was_written() -> None:
    with pytest.raises(SchemaError) as refused:
        AXES["date"].check("attribute 'a'", "1990-01-31T12:00:00")
    assert str(refused.value) == (
        "attribute 'a': edges of a date must be ISO texts ('1990-01-31'), got '1990-01-31T12:00:00'."
    )
