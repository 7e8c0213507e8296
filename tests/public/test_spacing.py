"""Edges from public bounds: they increase, end where they should, are as many as asked, and follow the spacing."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given, settings

from sklar.errors import SchemaError
from sklar.public.spacing import Spacing, spaced_edges
from tests.public import one


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
    edges = spaced_edges("integer", low, high, bins, spacing, None if step is None else Fraction(step))
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
    edges = spaced_edges("real", low, high, bins, spacing)
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


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            'integer\nlow = 0\nhigh = 9\nbins = 2\nspacing = "square"',
            "spacing must be one of equal, log, 1-2-5, got 'square'.",
        ),
        (
            'year\nlow = 1900\nhigh = 2000\nbins = 2\nspacing = "log"',
            "spacing = 'log' is for integer, real, duration, where zero means nothing. Use 'equal'.",
        ),
        (
            'integer\nedges = [0, 9]\nspacing = "log"',
            "give either edges or low, high and bins, not both. Remove spacing.",
        ),
        ("integer\nlow = 0\nhigh = 900\nbins = 10\nstep = 100", "10 bins do not fit between 0 and 900. Use fewer."),
        (
            'integer\nlow = 0\nhigh = 9\nbins = 2\nspacing = "log"\ndomain = "private"',
            'domain = "private" is found by a release, so it takes no spacing. Remove one.',
        ),
    ],
)
def test_what_is_refused(body: str, message: str) -> None:
    with pytest.raises(SchemaError) as refused:
        one(body)
    assert str(refused.value) == f"attribute 'age': {message}"
