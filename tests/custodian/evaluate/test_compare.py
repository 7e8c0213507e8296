"""A whole evaluation: classes, total variation, the table for a person, plots, and the notice on all of it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sklar.custodian.evaluate import NOTICE, Evaluation, answer, choose_triples, compare, evaluate
from sklar.custodian.evaluate.conjunctions import pearson
from sklar.errors import DataError, OutputError, SchemaError
from sklar.public.schema import Schema
from tests.custodian.evaluate.tables import SCHEMA, as_dummies, brute_force, codes, dummies, records


def slow_errors(order: int, rows: int = 90) -> dict[tuple[int, ...], int]:
    one, other = (brute_force(as_dummies(codes(rows, seed)), order) for seed in (0, 1))
    return {levels: abs(one[levels] - other[levels]) for levels in one}


@pytest.fixture(scope="module")
def compared() -> Evaluation:
    return evaluate(records(90, 0), records(90, 1), SCHEMA)


def test_every_class_of_queries_is_judged(compared: Evaluation) -> None:
    for order, (name, tables) in enumerate({"one-way": 4, "two-way": 6, "three-way": 4}.items(), start=1):
        slow = slow_errors(order)
        best = compared.result(name).errors.best(100)
        assert (best.queries, best.maximum) == (len(slow), max(slow.values()))
        assert best.average == pytest.approx(np.mean(list(slow.values())))
        assert compared.result(name).tv == pytest.approx(sum(slow.values()) / (2 * 90) / tables)


def test_three_way_queries_with_a_true_count_stand_apart() -> None:
    true = brute_force(as_dummies(codes(25, 0)), 3)
    slow = [error for levels, error in slow_errors(3, rows=25).items() if true[levels] > 0]
    best = evaluate(records(25, 0), records(25, 1), SCHEMA).result("three-way, count > 0").errors.best(100)
    assert 0 < best.queries == len(slow) < len(true)
    assert best.average == pytest.approx(np.mean(slow))


def test_pairs_are_split_by_the_correlation_of_the_real_dummies(compared: Evaluation) -> None:
    real = answer(records(90), SCHEMA, choose_triples(SCHEMA))
    high = int((np.abs(pearson(real)) >= 0.5).sum())
    assert compared.result("two-way, |r| >= 0.5").errors.size == high > 0
    assert compared.result("two-way, |r| < 0.5").errors.size == len(slow_errors(2)) - high


def test_samples_of_triples_other_numbers_of_rows_and_few_attributes_are_said(compared: Evaluation) -> None:
    sampled = evaluate(records(90, 0), records(90, 1), SCHEMA, max_triples=10)
    assert sampled.triples == "a random sample of 500,000 of 81 triples (seed 2020)"
    assert sampled.result("three-way").tv == pytest.approx(compared.result("three-way").tv, rel=0.02)
    scaled = evaluate(records(90), records(45), SCHEMA)
    apart = as_dummies(codes(90)).sum(axis=1) - 2 * as_dummies(codes(45)).sum(axis=1)
    assert scaled.result("one-way").errors.total == pytest.approx(np.abs(apart).sum())
    assert "Synthetic counts are scaled to the number of real rows." in scaled.lines()
    two = evaluate(records(9), records(9, 1), Schema(name="two", attributes=SCHEMA.attributes[:2]))
    assert (two.result("three-way").errors.size, two.result("three-way").tv) == (0, None)
    assert two.lines()
    true = answer(records(50), SCHEMA, choose_triples(SCHEMA))
    without_rows = compare(true, replace(true, valid_rows=None, form=None))
    assert without_rows.valid_share is None
    assert "valid" not in without_rows.lines()[2]


def test_lines_begin_with_the_notice_and_fit_a_terminal() -> None:
    assert all(each.errors.best(100).maximum == 0 for each in evaluate(dummies(70), dummies(70), SCHEMA).results)
    lines = evaluate(records(90), dummies(90), SCHEMA).lines()
    assert lines[0] == NOTICE
    assert re.match("PRIVATE.*do not publish", NOTICE)
    assert lines[2].startswith("tiny: 90 real rows, 90 synthetic dummies, ")
    told = " ".join(" ".join(lines).split())
    assert re.search(r"of tables: [\d.]+% of one column, [\d.]+% of two, [\d.]+% of three", told)
    assert "Three-way queries: all 81 triples." in told
    assert max(map(len, lines)) <= 100


def test_bad_arguments_are_refused_before_any_work(tmp_path: Path) -> None:
    refused: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"target": "a"}, DataError, "usefulness needs a test table of real rows kept apart"),
        ({"target": "income", "test": "t.csv"}, SchemaError, "has no attribute 'income'"),
        ({"report": tmp_path / "report.pdf"}, OutputError, r"must end in .html"),
    ]
    for arguments, kind, message in refused:
        with pytest.raises(kind, match=message):
            evaluate("no such file.csv", "nor this.csv", SCHEMA, **arguments)
    assert not list(tmp_path.iterdir())
