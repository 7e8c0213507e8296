"""Raw columns as numbers: every type, and what is missing or no number."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import cast

import numpy as np
import polars as pl
import pytest

from sklar.custodian.check import OPAQUE
from sklar.custodian.evaluate.raw import read_values
from sklar.public.schema import Attribute, AttributeKind

AMOUNT = Attribute(name="x", kind="integer", edges=(0, 100), missing="-1")
RATE = Attribute(name="x", kind="real", edges=(0.0, 1.0))
DAY = Attribute(name="x", kind="date", edges=(0, 10))
MOMENT = Attribute(name="x", kind="datetime", edges=(0, 10))
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
    ],
)
def test_columns_become_numbers(
    column: pl.Series, attribute: Attribute, numbers: list[float], missing: int, texts: dict[str, int]
) -> None:
    found = read_values(column, attribute)
    assert found.numbers == pytest.approx(numbers, nan_ok=True)
    assert found.missing == missing
    assert dict(found.texts) == texts


@pytest.mark.parametrize(
    ("column", "missing"),
    [
        (pl.Series(["a", "", "?", None]), 3),
        (pl.Series([True, None]), 1),
        (pl.Series([1.0, NAN, None]), 2),
        (pl.Series(["a", "?"], dtype=pl.Enum(["a", "?"])), 1),
    ],
)
def test_categories_have_missing_values_and_no_numbers(column: pl.Series, missing: int) -> None:
    found = read_values(column, Attribute(name="x", kind="categorical", values=("a",), missing="?"))
    assert found.missing == missing
    assert found.numbers.size == 0


@pytest.mark.parametrize(
    ("column", "numbers", "missing", "texts"),
    [
        (pl.Series(["1", "N", "-9", "-9.0", "N"]), [1, NAN, NAN, NAN, NAN], 0, {"N": 2, "-9": 2}),
        (pl.Series([1, -9, None]), [1, NAN, NAN], 1, {"-9": 1}),
        (pl.Series([1.5, -9.0, NAN]), [1.5, NAN, NAN], 1, {"-9": 1}),
    ],
)
def test_special_values_are_no_numbers(
    column: pl.Series, numbers: list[float], missing: int, texts: dict[str, int]
) -> None:
    found = read_values(column, Attribute(name="x", kind="integer", edges=(0, 10), special=("N", -9)))
    assert found.numbers == pytest.approx(numbers, nan_ok=True)
    assert found.missing == missing
    assert dict(found.texts) == texts


def attribute_of(kind: str) -> Attribute:
    """What an attribute of any kind tells this module."""
    return Attribute(name="x", kind=cast(AttributeKind, kind), edges=(0, 10))


@pytest.mark.parametrize(
    ("kind", "column", "numbers"),
    [
        ("time", pl.Series([dt.time(0, 1), None]), [6e7, NAN]),
        ("duration", pl.Series([dt.timedelta(seconds=2), None], dtype=pl.Duration("ms")), [2e6, NAN]),
        ("year", pl.Series([1999, None]), [1999, NAN]),
        ("year", pl.Series([dt.date(1969, 12, 31), dt.date(2020, 1, 1)]), [1969, 2020]),
        ("yearmonth", pl.Series([dt.date(1969, 12, 31), None]), [1970 * 12 - 1, NAN]),
        ("yearmonth", pl.Series([dt.datetime(1970, 2, 3, 4)]), [1970 * 12 + 1]),
    ],
)
def test_typed_columns_of_every_kind(kind: str, column: pl.Series, numbers: list[float]) -> None:
    found = read_values(column, attribute_of(kind))
    assert found.numbers == pytest.approx(numbers, nan_ok=True)
    assert found.missing == sum(np.isnan(numbers))
