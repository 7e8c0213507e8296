"""The paper's summary of errors, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklar.custodian.evaluate.conjunctions import PERCENTS, absolute_errors, tally


def test_best_by_hand() -> None:
    # 40 queries: 95% are the best 38, 99% the best 39.6, rounded up to all 40.
    errors = tally([np.arange(40)])
    best = [errors.best(percent) for percent in PERCENTS]
    assert [each.queries for each in best] == [38, 40, 40]
    assert [each.average for each in best] == [18.5, 19.5, 19.5]
    assert [each.maximum for each in best] == [37, 39, 39]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=300), st.sampled_from(PERCENTS), st.booleans())
def test_best_is_the_sorted_prefix(values: list[int], percent: int, whole: bool) -> None:
    chunk = np.array(values) if whole else np.array(values) + 0.25
    kept = np.sort(chunk)[: -(-len(values) * percent // 100)]
    best = tally([chunk]).best(percent)
    assert best.queries == kept.size
    assert best.average == pytest.approx(kept.mean())
    assert best.maximum == kept.max()


def test_chunks_of_whole_and_real_numbers_merge() -> None:
    errors = tally([np.array([1, 2, 2]), np.array([0.5, 2.0]), np.array([7])])
    assert errors.values.tolist() == [0.5, 1.0, 2.0, 7.0]
    assert errors.counts.tolist() == [1, 1, 3, 1]
    assert errors.total == 14.5


def test_no_queries_have_no_errors() -> None:
    errors = tally([])
    assert errors.size == 0
    assert errors.best(95).average == errors.best(95).maximum == 0.0
    assert errors.cdf()[0].size == 0


def test_errors_are_absolute_scaled_and_selected() -> None:
    true, given_ = np.array([10, 0, 5]), np.array([4, 1, 5])
    assert absolute_errors(true, given_).values.tolist() == [0, 1, 6]
    assert absolute_errors(true, given_, factor=2.0).values.tolist() == [2, 5]
    assert absolute_errors(true, given_, where=true > 0).values.tolist() == [0, 6]


def test_errors_of_many_queries_go_by_chunks() -> None:
    true = np.zeros((1 << 22) + 5, dtype=np.int32)
    given_ = true.copy()
    given_[-3:] = -2
    errors = absolute_errors(true, given_)
    assert dict(zip(errors.values, errors.counts, strict=True)) == {0.0: (1 << 22) + 2, 2.0: 3}


def test_cdf_by_hand() -> None:
    at, share = tally([np.array([0, 0, 1, 3])]).cdf()
    assert at.tolist() == [0, 1, 3]
    assert share.tolist() == [0.5, 0.75, 1.0]


def test_a_thinned_cdf_is_exact_where_it_stands() -> None:
    values = np.random.default_rng(0).exponential(100, 20_000)
    errors = tally([values])
    at, share = errors.cdf(50)
    assert 25 <= at.size <= 51
    assert (np.diff(at) > 0).all()
    assert share.tolist() == [np.mean(values <= x) for x in at]
    assert share[-1] == 1.0
