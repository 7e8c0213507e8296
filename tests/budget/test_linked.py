"""Plans of linked tables: shares of the cost, whole budgets, and refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sklar.budget.linked import SHARES, WITH_EVENTS, LinkedCertificate, certify_linked, linked_tables, plan_linked
from sklar.errors import BudgetError, ModelError
from sklar.kernel.theorems import MAX_SCALE, Budget
from tests.linked import small

BUDGET = Budget(epsilon=1.0, rows_per_person=1)


def test_the_whole_budget_is_spent_by_the_shares() -> None:
    plan = plan_linked(small(), BUDGET)
    assert 0.999 < BUDGET.spent(plan.spend(BUDGET)) <= 1.0
    costs = plan.scales**-2.0 / np.sum(plan.scales**-2.0)
    kinds = {table.kind for table in plan.tables}
    whole = sum(SHARES[kind] for kind in kinds)
    assert kinds == set(SHARES) - {"people"}
    for kind in kinds:
        own = sum(cost for cost, table in zip(costs, plan.tables, strict=True) if table.kind == kind)
        assert own == pytest.approx(SHARES[kind] / whole, rel=1e-5)


def test_costs_do_not_grow_with_the_number_of_events() -> None:
    few, many = (plan_linked(small(at_most), BUDGET) for at_most in (4, 900))
    people = [table.kind == "person" for table in few.tables]
    assert few.scales[people] == pytest.approx(many.scales[[table.kind == "person" for table in many.tables]])


def test_tables_that_there_are() -> None:
    tables = linked_tables(small(), total=True)
    assert [table.kind for table in tables].count("person-event") == 4
    assert tables[0].kind == "people"
    assert "two-events" not in {table.kind for table in linked_tables(small(1), total=False)}
    triangle = next(table for table in tables if table.kind == "two-events")
    assert triangle.cells == 6


def test_little_budget_has_fewer_tokens() -> None:
    plan = plan_linked(small(), Budget(epsilon=0.0005, rows_per_person=1))
    assert plan.tokens < 1_024
    assert plan.tokens * plan.scales.max() <= MAX_SCALE
    assert math.log2(plan.tokens).is_integer()
    assert all(plan.each(table) == (plan.tokens if table.kind in WITH_EVENTS else 1) for table in plan.tables)


def test_laplace_noise_is_refused() -> None:
    with pytest.raises(BudgetError, match="linked tables take gaussian noise, got mechanism 'laplace'"):
        plan_linked(small(), replace(BUDGET, mechanism="laplace"))


def test_a_plan_above_the_budget_is_not_certified() -> None:
    plan = plan_linked(small(), replace(BUDGET, epsilon=2.0))
    with pytest.raises(BudgetError, match="above the budget of 1"):
        certify_linked(small(), BUDGET, plan, 10, None)


def test_certificates_are_read_again() -> None:
    made = certify_linked(small(), BUDGET, plan_linked(small(), BUDGET), 10, None)
    document = made.to_dict()
    document["measurements"] = list(document["measurements"])
    assert LinkedCertificate.from_dict(document) == made
    assert made.budget == BUDGET
    assert {entry.sensitivity_l2 for entry in made.measurements} == {math.sqrt(2)}
    with pytest.raises(ModelError, match="is not readable"):
        LinkedCertificate.from_dict(document | {"mood": "good"})
