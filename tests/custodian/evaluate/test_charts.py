"""What is drawn of a column: axes that fit it, heaps apart, nothing lost."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sklar.answer.report import svg
from sklar.answer.report.svg import axis_scale, tick_text
from sklar.custodian.evaluate import evaluate
from sklar.custodian.evaluate.private_report import bin_numbers, draw_numbers
from sklar.custodian.evaluate.raw import Distribution, Sketch
from sklar.public.schema import Attribute, AttributeKind, Schema


def held(numbers: object) -> Distribution:
    sketch = Sketch()
    sketch.add(np.asarray(numbers, dtype=np.float64))
    found = sketch.done()
    assert found is not None
    return found


def drawn(kind: AttributeKind, real: object, synthetic: object, without: tuple[float, ...] = ()) -> svg.Steps:
    one, two = held(real), held(synthetic)
    attribute = Attribute(name="x", kind=kind, edges=(0, 1))
    found = bin_numbers(attribute, one, two, (one.size, two.size), without=np.array(without, dtype=np.float64))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kind", "real", "synthetic"),
    [
        ("integer", [1, 2, 2, 3], [1, 3, 3, 7]),
        ("integer", [0, 0, 5, 100_000], [-3, 20, 5_000, 99_999]),
        ("integer", [7, 7], [7]),
        ("real", [0.5, 0.25], [0.75, 0.1]),
        ("real", [0.5], [0.5]),
        ("real", [0.001, 5.5, 1e6], [-0.25, 1e5]),
        ("date", [0, 20_000], [10_000]),
        ("datetime", [1.7e15, 1.7e15 + 1], [1.7e15 + 3e12]),
    ],
)
def test_every_number_is_in_a_bin(kind: AttributeKind, real: list[float], synthetic: list[float]) -> None:
    found = drawn(kind, real, synthetic)
    assert found.first.sum() == pytest.approx(1)
    assert found.second.sum() == pytest.approx(1)
    assert (np.diff(found.edges) > 0).all()
    assert (found.edges[0], found.edges[-1]) == (pytest.approx(0), pytest.approx(1))
    assert found.edges.size <= 41
    assert all(-1e-9 <= place <= 1 + 1e-9 for place, _ in found.ticks)
    assert found.ticks


def test_few_whole_numbers_have_a_bar_each() -> None:
    found = drawn("integer", [1, 2, 2, 4], [1, 1, 1, 4])
    assert found.first.tolist() == [0.25, 0.5, 0, 0.25]
    assert found.second.tolist() == [0.75, 0, 0, 0.25]


def test_heaps_stand_apart_and_are_marked() -> None:
    found = drawn("integer", [0] * 90 + list(range(10)), list(range(100)), without=(0.0,))
    assert found.first.sum() == pytest.approx(0.09)
    assert found.second.sum() == pytest.approx(0.99)
    assert len(found.marks) == 1
    assert found.marks[0] < 0.1
    attribute = Attribute(name="x", kind="integer", edges=(0, 1))
    zero = held([0.0, 0.0])
    assert bin_numbers(attribute, zero, zero, (2, 2), without=np.zeros(1)) is None


def test_the_axis_is_logarithmic_where_numbers_are_skewed() -> None:
    def scale(kind: AttributeKind, numbers: list[float]) -> float:
        found = held(numbers)
        return axis_scale(Attribute(name="x", kind=kind, edges=(0, 1)), found.center, found.counts)

    assert scale("integer", [17, 30, 50, 90]) == 0
    assert scale("integer", [0, 25, 3_000, 100_000]) == 10
    assert scale("integer", [0, 0, 0]) == 0
    assert scale("date", [1, 20_000]) == 0
    # Half of the picture for the thousands, though one number is a hundred times as large.
    found = drawn("integer", [*range(1_000, 9_000, 10), 900_000], [5_000])
    assert found.edges[np.searchsorted(np.cumsum(found.first), 0.99)] > 0.3


@pytest.mark.parametrize(
    ("kind", "value", "label"),
    [
        ("integer", 100_000, "100k"), ("integer", -2_500_000, "-2.5M"), ("real", 0.05, "0.05"), ("integer", 0, "0"),
        ("date", 31, "1970-02-01"), ("datetime", 86_400_000_000, "1970-01-02"), ("real", 3e20, "3e+20"),
    ],
)  # fmt: skip
def test_labels_of_an_axis_are_short(kind: AttributeKind, value: float, label: str) -> None:
    assert tick_text(Attribute(name="x", kind=kind, edges=(0, 1)), value) == label


def test_a_chart_shows_heaps_missing_values_and_texts() -> None:
    schema = Schema(name="t", attributes=(Attribute(name="x", kind="integer", edges=(0, 100)),))
    real = pl.DataFrame({"x": ["40"] * 50 + [str(number) for number in range(40)] + ["N"] * 5 + [None] * 5})
    found = evaluate(real, real, schema)
    assert found.looked is not None
    seen = found.looked[0].columns[0].numbers
    assert seen is not None
    chart = draw_numbers(found.columns[0], seen, seen, (100, 100))
    for label in ("exactly 40", "missing", ">N<"):
        assert label in chart["bars"]
    # Shares are of all rows, not of the numbers alone.
    assert "50% | 50%" in chart["bars"]
    assert "heaps apart" in chart["numbers"]
