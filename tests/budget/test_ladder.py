"""The public cells of a search."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from sklar.budget.search import ladder_of, next_cells
from sklar.public.axis import days
from sklar.public.schema import Attribute


def private(kind: Any, low: float, high: float, **rest: Any) -> Attribute:
    return Attribute(name="x", kind=kind, edges=(low, high), domain="private", **{"at_most": 20, **rest})


@given(st.integers(-(10**9), 10**9), st.integers(33, 10**12), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_tables_are_nested_and_cover_the_bounds_whatever_was_divided(low: int, width: int, seed: int) -> None:
    ladder, generator = ladder_of(private("integer", low, low + width)), np.random.default_rng(seed)
    tables: list[Any] = []
    for _ in range(ladder.tables):
        cells = next_cells(ladder, tables, 1.0)
        assert all(set(before) <= set(after) for before, after in pairwise(cells))
        assert (np.diff(cells[-1]) > 0).all()
        assert (cells[-1][0], cells[-1][-1]) == (ladder.low, ladder.high)
        # Bounds of a million millions take as many tables as a thousand, and no more memory.
        assert cells[-1].size < 200_000
        tables.append(np.rint(generator.normal(0, 2.5, cells[-1].size - 1)).astype(np.int64))


def test_the_first_table_grows_with_the_logarithm_of_the_bound() -> None:
    wide, wider = (ladder_of(private("integer", 0, 10**power)) for power in (6, 9))
    assert wider.first().size - wide.first().size == 45
    assert wide.tables == wider.tables == 4
    assert wide.first()[:13].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14]
    both = ladder_of(private("integer", -1000, 1000)).first()
    assert (both == -both[::-1]).all()


def test_a_cell_with_rows_is_divided_and_a_cell_without_is_counted_again() -> None:
    ladder = ladder_of(private("integer", 0, 10**6))
    first = np.zeros(ladder.first().size - 1, dtype=np.int64)
    heavy = int(np.searchsorted(ladder.first(), 50_000))
    first[heavy] = 1000
    second = next_cells(ladder, [first], 10.0)[-1]
    assert np.diff(second[(second >= 50_000) & (second <= 60_000)]).tolist() == [500] * 20
    assert set(ladder.first()) <= set(second)
    assert second.size == ladder.first().size + 19


def test_dates_and_times_are_divided_by_the_calendar() -> None:
    low, high = days(dt.date(1990, 1, 1)), days(dt.date(2030, 1, 1))
    dates = ladder_of(private("date", low, high))
    assert dates.first().size == 41
    counts = np.zeros(40, dtype=np.int64)
    counts[10] = 1000
    months = next_cells(dates, [counts], 1.0)[-1]
    inside = [dt.date(1970, 1, 1) + dt.timedelta(days=int(day)) for day in months]
    assert [day for day in inside if day.year == 2000] == [dt.date(2000, month, 1) for month in range(1, 13)]
    assert ladder_of(private("time", 0, 86_400 * 10**6)).first().size == 25
    assert ladder_of(private("datetime", 0, 10**9 * 10**6)).steps == (1, 60, 900, 3600, 86_400)


@pytest.mark.parametrize(
    ("low", "high", "roundest"),
    [(38, 43, 40), (1234, 1289, 1250), (-7, 12, 0), (19_400, 21_000, 20_000), (7, 7, 7), (-1289, -1234, -1250)],
)
def test_the_roundest_number_is_what_a_person_would_write(low: int, high: int, roundest: int) -> None:
    assert ladder_of(private("integer", -(10**6), 10**6)).roundest(low, high) == roundest


def test_reals_have_a_grain_and_steps_are_kept() -> None:
    real = ladder_of(private("real", 0.0, 1000.0))
    assert real.axis(real.units(np.array([0.29, 19.99, 1000.0, np.inf]))).tolist()[:2] == [0.29, 19.99]
    stepped = ladder_of(private("real", 0.0, 1000.0, step=0.25))
    assert stepped.units(np.array([0.25, 0.5, 0.74])).tolist() == [1, 2, 3]
    assert not stepped.steps
    assert ladder_of(private("integer", 0, 10**6, step=100)).axis(np.array([3])).tolist() == [300]


def test_decade_by_step_has_one_cell_for_each_number() -> None:
    ladder = ladder_of(private("integer", 0, 10**6))
    cells = ladder.rounding_cells(np.array([0, 7, 15, 20, 1500, 999_999]))
    digits, steps = np.divmod(cells, len(ladder.steps))
    assert digits.tolist() == [0, 1, 2, 2, 4, 6]
    assert [ladder.steps[step] for step in steps.tolist()[1:]] == [1, 5, 10, 500, 1]
    assert cells.max() < ladder.rounding_size
