"""Raw columns as numbers of every type, and their distributions in bounded memory against NumPy and SciPy."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sklar.custodian.check import OPAQUE
from sklar.custodian.evaluate import raw
from sklar.custodian.evaluate.raw import MISSING, Categories, CategorySketch, Distribution, RawColumn, Sketch
from sklar.custodian.evaluate.verdict import compare_values
from sklar.public.schema import Attribute, AttributeKind


def on_axis(kind: str, **keys: Any) -> Attribute:
    return Attribute(name="x", kind=cast(AttributeKind, kind), edges=(0, 10), **keys)


AMOUNT, RATE, DAY, MOMENT = on_axis("integer", missing="-1"), on_axis("real"), on_axis("date"), on_axis("datetime")
CODED, YEAR, MONTH = on_axis("integer", special=("N", -9)), on_axis("year"), on_axis("yearmonth")
WORDS = Attribute(name="x", kind="categorical", values=("a",), missing="?")
NAN = float("nan")


@pytest.mark.parametrize(
    ("column", "attribute", "numbers", "missing", "texts"),
    [
        (pl.Series([3, -1, None, 200]), AMOUNT, [3, NAN, NAN, 200], 2, {}),
        (pl.Series([3.0, NAN, np.inf, -np.inf]), AMOUNT, [3, NAN, NAN, NAN], 1, {"inf": 1, "-inf": 1}),
        (pl.Series(["3", "-1", "", None, " 4 ", "N", "1e2"]), AMOUNT, [3, NAN, NAN, NAN, 4, NAN, 100], 3, {"N": 1}),
        (pl.Series(["3", "inf", "nan", "N", "N"]), AMOUNT, [3, NAN, NAN, NAN, NAN], 1, {"N": 2, "inf": 1}),
        (pl.Series(["0.25", "3", "x"]), RATE, [0.25, 3, NAN], 0, {"x": 1}),
        (pl.Series([Decimal("0.25"), None]), RATE, [0.25, NAN], 1, {}),
        (pl.Series(["0.5", "1"], dtype=pl.Categorical), RATE, [0.5, 1], 0, {}),
        (pl.Series([[1], None]), RATE, [NAN, NAN], 1, {OPAQUE: 1}),
        (pl.Series([None, None]), RATE, [NAN, NAN], 2, {}),
        (pl.Series([dt.date(1970, 1, 3), None]), DAY, [2, NAN], 1, {}),
        (pl.Series([dt.datetime(1970, 1, 3, 12)], dtype=pl.Datetime("ms")), DAY, [2], 0, {}),
        (pl.Series(["1970-01-03", "soon"]), DAY, [2, NAN], 0, {"soon": 1}),
        (pl.Series([dt.datetime(1970, 1, 1, 0, 1)], dtype=pl.Datetime("ns")), MOMENT, [6e7], 0, {}),
        (pl.Series([dt.date(1970, 1, 2)]), MOMENT, [86_400e6], 0, {}),
        (pl.Series(["1970-01-01 00:01:00"]), MOMENT, [6e7], 0, {}),
        (pl.Series([3, "x", None], dtype=pl.Object), AMOUNT, [3, NAN, NAN], 1, {"x": 1}),
        (pl.Series(["1", "N", "-9", "-9.0", "N"]), CODED, [1, NAN, NAN, NAN, NAN], 0, {"N": 2, "-9": 2}),
        (pl.Series([1, -9, None]), CODED, [1, NAN, NAN], 1, {"-9": 1}),
        (pl.Series([1.5, -9.0, NAN]), CODED, [1.5, NAN, NAN], 1, {"-9": 1}),
        (pl.Series([dt.time(0, 1), None]), on_axis("time"), [6e7, NAN], 1, {}),
        (pl.Series([dt.timedelta(seconds=2)], dtype=pl.Duration("ms")), on_axis("duration"), [2e6], 0, {}),
        (pl.Series([1999, None]), YEAR, [1999, NAN], 1, {}),
        (pl.Series([dt.date(1969, 12, 31), dt.date(2020, 1, 1)]), YEAR, [1969, 2020], 0, {}),
        (pl.Series([dt.date(1969, 12, 31), None]), MONTH, [1970 * 12 - 1, NAN], 1, {}),
        (pl.Series([dt.datetime(1970, 2, 3, 4)]), MONTH, [1970 * 12 + 1], 0, {}),
    ],
)
def test_columns_become_numbers(
    column: pl.Series, attribute: Attribute, numbers: list[float], missing: int, texts: dict[str, int]
) -> None:
    read, absent, others = raw.read_values(column, attribute)
    assert read == pytest.approx(numbers, nan_ok=True)
    assert (absent, dict(others)) == (missing, texts)


@pytest.mark.parametrize(
    ("column", "values", "missing"),
    [
        (pl.Series(["a", "", "?", None, " b "]), ["a", MISSING, MISSING, MISSING, "b"], 3),
        (pl.Series([True, None]), ["true", MISSING], 1),
        (pl.Series([1.0, NAN, None]), ["1", MISSING, MISSING], 2),
        (pl.Series(["a", "?"], dtype=pl.Enum(["a", "?"])), ["a", MISSING], 1),
        (pl.Series([None, None]), [MISSING, MISSING], 2),
    ],
)
def test_categories_are_as_they_are_written(column: pl.Series, values: list[str], missing: int) -> None:
    labels, places = raw.read_categories(column, WORDS)
    assert [labels[place] for place in places] == values
    whole = RawColumn(WORDS, 10)
    keys = whole.add(column)
    assert whole.missing == missing
    assert [keys[0] == key for key in keys] == [values[0] == value for value in values]


def test_truth_values_are_equal_however_they_are_written() -> None:
    smoker = Attribute(name="smoker", kind="boolean", texts=("No", "Yes"))
    for column in (pl.Series(["Yes", "No", None]), pl.Series([True, False, None])):
        labels, places = raw.read_categories(column, smoker)
        assert [labels[place] for place in places] == ["Yes", "No", MISSING]


def test_many_categories_are_sampled_alike_in_both_tables_and_common_ones_stay() -> None:
    def collected(rows: int) -> Categories:
        sketch = CategorySketch(limit=2_000)
        for part in np.array_split(np.arange(rows), 7):
            sketch.add(
                [*(f"rare {at}" for at in part), "common"], np.r_[np.arange(part.size), np.full(rows // 7, part.size)]
            )
        return sketch.done()

    one, half = collected(70_000), collected(35_000)
    assert one.frame.height <= 2_000
    assert one.frame["text"][0] == "common"
    assert one.bits > 3
    kept = compare_values(one, half)
    # Half of the rows are common; of the others, half are there, twice as common. Ten standard errors of a sample.
    assert kept.values == pytest.approx(70_001, rel=10 / np.sqrt(70_000 / 2**one.bits))
    assert kept.survive == pytest.approx(0.75, abs=0.1)
    assert kept.present == pytest.approx(0.75, abs=0.1)


NUMBERS = st.lists(
    st.one_of(st.integers(-50, 50).map(float), st.floats(-1e12, 1e12, allow_subnormal=False)), min_size=1, max_size=60
)


def held(numbers: object, limit: int = 1 << 16, parts: int = 1) -> Distribution:
    sketch = Sketch(limit)
    for part in np.array_split(np.asarray(numbers, dtype=np.float64), parts):
        sketch.add(part)
    found = sketch.done()
    assert found is not None
    return found


def true_ks(one: object, two: object) -> float:
    # SciPy's p-value divides by zero for single numbers; the statistic is what is wanted.
    with np.errstate(divide="ignore"):
        return float(stats.ks_2samp(one, two, method="asymp").statistic)


@settings(max_examples=50, deadline=None)
@given(NUMBERS, NUMBERS)
def test_the_distance_is_that_of_scipy(one: list[float], two: list[float]) -> None:
    assert raw.distance(held(one), held(two)) == pytest.approx(true_ks(one, two))


@settings(max_examples=50, deadline=None)
@given(NUMBERS)
def test_moments_and_quantiles_are_those_of_all_numbers(numbers: list[float]) -> None:
    found = held(numbers, parts=3)
    assert found.size == len(numbers)
    assert found.mean == pytest.approx(np.mean(numbers), rel=1e-9, abs=1e-3)
    assert found.sd == pytest.approx(np.std(numbers), rel=1e-6, abs=1e-3)
    percents = [1, 25, 50, 95, 100]
    assert found.percentiles(percents) == np.percentile(numbers, percents, method="inverted_cdf").tolist()


@settings(max_examples=8, deadline=None)
@given(st.permutations([-3.5, -0.0, 0.0, 1e-9, 1.0, 1.0, 1.5, 2.0, 1e6, 1e6 + 1, 7.25, 9.0, -40.0]))
def test_what_is_kept_depends_on_the_numbers_and_not_on_their_order(numbers: list[float]) -> None:
    one, two = held(numbers, limit=4, parts=4), held(sorted(numbers), limit=4)
    assert one.bits == two.bits > 0
    assert one.counts.tolist() == two.counts.tolist()
    assert (one.low.tolist(), one.high.tolist()) == (two.low.tolist(), two.high.tolist())


def test_cells_ascend_with_the_numbers() -> None:
    numbers = np.array([-np.float64(1e300), -2.0, -1e-300, 0.0, 5e-324, 1.0, 1.0 + 2**-52, 1e300])
    assert (np.diff(raw.cells(numbers, 0)) > 0).all()
    assert raw.cells(np.array([-0.0]), 0).tolist() == [0]


def test_many_distinct_numbers_are_kept_within_the_limit_and_the_stated_error() -> None:
    generator = np.random.default_rng(0)
    one, two = generator.normal(50, 10, 20_000), generator.normal(51, 10, 15_000)
    one[:4_000] = 40.0
    real, other = held(one, limit=1_000, parts=7), held(two, limit=1_000, parts=5)
    assert max(real.counts.size, other.counts.size) <= 1_000
    assert not real.single.all()
    ks, error = raw.distance(real, other), real.widest + other.widest
    assert abs(ks - true_ks(one, two)) <= error < 0.02
    assert real.percentiles([50])[0] == pytest.approx(np.median(one), rel=2**-6)
    assert real.mean == pytest.approx(one.mean())


@pytest.mark.parametrize("shuffled", [True, False])
def test_heaps_stay_exact_among_many_distinct_numbers(shuffled: bool) -> None:
    generator = np.random.default_rng(0)
    numbers = np.concatenate([np.zeros(500), np.full(400, 2_000.0), generator.lognormal(8, 2, 5_000)])
    found = held(generator.permutation(numbers) if shuffled else np.sort(numbers), limit=300, parts=4)
    assert found.counts.size <= 300
    assert found.share(0.0) == pytest.approx(500 / 5_900)
    assert found.share(2_000.0) == pytest.approx(400 / 5_900)
    assert found.share(2_001.0) == 0
    assert (np.diff(found.low) > 0).all()
    assert found.widest < 0.02


def test_moments_far_from_their_origin_keep_their_digits_and_no_numbers_are_no_distribution() -> None:
    moments = 1.7e15 + np.array([0.0, 1e6, 2e6])
    assert held(moments, parts=3).sd == pytest.approx(np.std([0, 1e6, 2e6]), rel=1e-6)
    empty = Sketch()
    empty.add(np.empty(0))
    assert empty.done() is None
