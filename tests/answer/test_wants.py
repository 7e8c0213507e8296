"""Planning by question: the smallest epsilon that answers it, what an epsilon answers, and what a ledger has left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sklar
from sklar.answer.effects import pool_effects
from sklar.answer.infer.onestep import means_of
from sklar.answer.predicate import QueryError
from sklar.answer.wants import plan, read_want
from sklar.budget.ledger import Ledger
from sklar.budget.method import Method
from sklar.budget.plan import plan_release
from sklar.cli import cli
from sklar.errors import BudgetError
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from tests.answer.test_query import measured_by
from tests.conftest import output_of

TEXT = """
table.name = "people"
attributes.region = {type = "categorical", values = ["North", "South", "East", "West"]}
attributes.age = {type = "integer", edges = [0, 20, 40, 60, 80], missing = ""}
attributes.income = {type = "categorical", values = ["low", "high"], other = true}
attributes.town = {type = "categorical", domain = "private"}
attributes.side = {type = "categorical", values = ["up", "down"]}
[[rules]]
attribute = "side"
determined_by = "region"
map = {North = "up", South = "down", East = "down", West = "down"}
"""
SCHEMA = Schema.from_toml(TEXT)
PLAIN = Schema(name="people", attributes=SCHEMA.attributes[:3])
ROWS = 10_000


def test_the_smallest_epsilon_answers_everything_and_a_smaller_one_does_not() -> None:
    wants = ["region = 'North' within 2%", "age x income within 5% of rows", "region within 400 rows"]
    found = plan(PLAIN, rows=ROWS, want=wants)
    assert found.answered
    assert not found.asked
    less = plan(PLAIN, rows=ROWS, want=wants, epsilon=0.98 * found.epsilon)
    assert not less.answered
    assert less.asked
    assert plan(PLAIN, rows=ROWS, want=wants[0]).epsilon <= found.epsilon
    assert found.to_polars()["met"].to_list() == [True, True, True]
    assert repr(found).startswith("Planned('people', epsilon=")
    assert "Plan for" in found._repr_html_()


def test_a_margin_is_what_a_query_of_the_release_states() -> None:
    """One-way counts: the same error beforehand and from noisy tables, which no noise can change."""
    budget = Budget(epsilon=1.0)
    codes: Any = np.stack([np.random.default_rng(1).integers(0, size, 500) for size in PLAIN.sizes])
    first = plan_release(PLAIN.cells, budget, Method(name="binary"), n_rows=500).first
    measured = measured_by(PLAIN, budget, first, [query.count(codes) for query, _ in first.parts], 500)
    for text, where, held in [
        ("region = 'North' within 2%", [0], [True, False, False, False]),
        ("age >= 20 within 2%", [1], [False, True, True, True, False]),
        ("region = 'North' and income = low within 2%", [0, 2], [[True, False, False]] + [[False] * 3] * 3),
    ]:
        expected = plan(PLAIN, rows=500, want=text, epsilon=1.0, method="binary")
        _, noise = means_of({tuple(where): np.array([held], dtype=np.float64)}, pool_effects(measured, where))
        delivered = 1.959964 * 500 * np.sqrt(noise[0, 0])
        assert np.isclose(expected.to_columns()["reached_rows"][0], delivered, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "cells", "whole", "within"),
    [
        ("region = 'North' within 2%", 1, False, 200),
        ("region in (North, East) within 150 rows", 2, False, 150),
        ("age x income within 5% of rows", 15, True, 500),
        ('"age" by income WITHIN 0.5 % of the rows', 15, True, 50),
        ("town within 1%", 51, True, 100),
        ("side = down within 1,000 rows", 3, False, 1000),
        ("age is not missing within 1%", 4, False, 100),
    ],
)
def test_wants_are_read(text: str, cells: int, whole: bool, within: float) -> None:
    want = read_want(text, SCHEMA, ROWS)
    assert (want.cells, want.whole, want.within) == (cells, whole, within)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("region = 'North'", "this must be a question with its margin, got 'region = 'North''. Example:"),
        ("region within 2", "the margin must be above 0, in % of the rows or in rows. Write 2% or 500 rows."),
        ("region within 0%", "the margin must be above 0"),
        ("region within 1.2.3%", "the margin must be a number such as 2% or 500 rows."),
        ("town = 'A' within 2%", "the domain of 'town' is private, so its levels are not known before a release."),
        ("region = North and age < 20 and income = low within 2%", "is about 3 attributes, and only tables of one and"),
        ("region x region within 2%", "a table is of two different attributes, got 'region x region'."),
        ("region x nowhere within 2%", "the schema has no attribute 'nowhere'. It has: 'region', 'age'"),
        ("age < 30 within 2%", "cuts the bin [20, 40), and only whole bins were measured."),
        ("age x income within 0.1 rows", "no epsilon up to 100 answers 'age x income within 0.1 rows'"),
        ([], "give what is wanted, or an epsilon to say what it answers"),
    ],
)
def test_wants_that_cannot_be_planned_are_refused(text: str, message: str) -> None:
    with pytest.raises((QueryError, BudgetError)) as refused:
        plan(SCHEMA, rows=ROWS, want=text)
    assert message in str(refused.value)


def test_a_ledger_says_what_would_be_left(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open_account("people", epsilon=2.0, delta=2.0**-30)
    found = plan(PLAIN, rows=ROWS, epsilon=1.0, ledger=ledger)
    assert 0.9 < (found.leaves() or 0.0) <= 1.001
    assert any("would have epsilon" in line for line in found.lines())
    beyond = plan(PLAIN, rows=ROWS, epsilon=3.0, ledger=ledger)
    assert beyond.leaves() is None
    assert any("it does not fit" in line for line in beyond.lines())
    assert len(ledger.account("people").charges) == 0


def test_the_command_prints_what_the_function_finds(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(PLAIN.to_toml())
    arguments = ["plan", "--schema", tmp_path / "s.toml", "--rows", ROWS, "--want", "region within 2%"]
    found = plan(PLAIN, rows=ROWS, want="region within 2%")
    assert output_of(cli, *arguments).splitlines() == found.lines()
    assert json.loads(output_of(cli, *arguments, "--json"))["epsilon"] == found.epsilon
    output_of(cli, *arguments, "--epsilon", "0.01", code=1)
    with pytest.raises(BudgetError, match=r"no ledger\. Give both\."):
        output_of(cli, *arguments, "--dataset", "people")


def test_forecast_and_query_state_the_same_error() -> None:
    """A drafted table declares neither missing nor other: its sums count as those of any table."""
    bare = Schema.from_toml("\n".join(f'attributes.{name} = {{type = "boolean"}}' for name in "abc"))
    model = sklar.fit(pl.DataFrame(dict.fromkeys("abc", [True, False] * 200)), bare, epsilon=1.0)
    expected = sklar.forecast(bare, rows=400, epsilon=1.0)
    assert model.query("a = true").standard_error == pytest.approx(expected.one_way_sd[0], rel=1e-3)
    assert model.estimate("a", "b").standard_errors[0, 0] == pytest.approx(expected.pair_sd[0], rel=1e-3)
