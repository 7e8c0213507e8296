"""What readers are told where a person is the unit: queries and the report."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

from sklar.answer.query import answer
from sklar.answer.report import publishable
from sklar.public.schema import Schema
from sklar.release import fit

ATTRIBUTES = '[attributes.a]\ntype = "boolean"\n[attributes.b]\ntype = "boolean"\n'


def model(how: str) -> Any:
    generator = np.random.default_rng(3)
    ids = np.repeat(np.arange(400), generator.integers(1, 9, 400))
    rows = pl.DataFrame({"id": ids, "a": generator.random(ids.size) < 0.3, "b": generator.random(ids.size) < 0.6})
    return fit(rows, Schema.from_toml(f'[table]\nname = "v"\n{how}\n{ATTRIBUTES}'), epsilon=5.0)


@pytest.fixture(scope="module")
def people() -> Any:
    return model('person = "id"\ncount = "people"')


@pytest.fixture(scope="module")
def four() -> Any:
    return model('person = "id"\ncount = "rows"\nrows_per_person = 4')


def test_a_query_says_what_it_counts(people: Any, four: Any) -> None:
    found = answer(people, "a = true")
    assert found.lines()[0] == "People, one row of each, with a = true, of 400:"
    assert found.estimate is not None
    share = found.estimate / 400
    assert found.choosing_error == pytest.approx(math.sqrt(400 * share * (1 - share)))
    assert any("choosing rows   adds a standard error of at most" in line for line in found.lines())
    rows = answer(four, "a = true")
    assert rows.lines()[0].startswith("Rows, at most 4 of each person, with a = true, of ")
    assert rows.choosing_error is None
    assert answer(model(""), "a = true").lines()[0].startswith("Rows with a = true, of ")


def test_the_interval_of_a_count_has_the_noise_of_l_rows(people: Any, four: Any) -> None:
    one, wide = (answer(each, "a = true").standard_error for each in (people, four))
    assert one is not None
    assert wide is not None
    assert 2.5 * one < wide < 8 * one


def test_the_report_is_about_people(people: Any, four: Any) -> None:
    text = publishable(people)
    for sentence in (
        "any one person in it, with all their rows",
        "One row of each person was chosen at random",
        "shares are averages over people, not over rows",
        "the number of people",
        "A person under two ids is protected less",
    ):
        assert sentence in text
    assert "It protects a person with several rows less" not in text
    assert "Of each person in the confidential table at most 4 rows were chosen at random" in publishable(four)
