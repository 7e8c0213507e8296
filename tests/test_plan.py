from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sklar.budget import Budget
from sklar.errors import BudgetError
from sklar.plan import plan_tables
from sklar.schema import Attribute, Schema


def schema_of(m: int) -> Schema:
    return Schema(name="t", attributes=tuple(Attribute(name=f"a{i}", kind="boolean") for i in range(m)))


def test_the_papers_split_is_equal() -> None:
    plan = plan_tables(schema_of(5), Budget(epsilon=1.0))
    assert plan.one_way.shape == (5,)
    assert plan.pairs.shape == (10,)
    assert np.unique(plan.scales).size == 1
    assert plan.total is None


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_share_is_a_share_of_the_inverse_squared_scales(share: float) -> None:
    plan = plan_tables(schema_of(6), Budget(epsilon=2.0), one_way_share=share)
    one_way, pairs = np.sum(plan.one_way**-2), np.sum(plan.pairs**-2)
    assert one_way / (one_way + pairs) == pytest.approx(share, rel=1e-5)


@pytest.mark.parametrize("settings", [{}, {"mechanism": "laplace"}, {"mechanism": "laplace", "composition": "basic"}])
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("share", [None, 0.3])
def test_a_plan_spends_the_whole_budget_and_no_more(settings: Any, neighbors: Any, share: float | None) -> None:
    budget = Budget(epsilon=0.7, neighbors=neighbors, **settings)
    plan = plan_tables(schema_of(4), budget, one_way_share=share)
    assert 0.7 * (1 - 1e-5) < budget.spent(plan.scales) <= 0.7
    assert (plan.total is not None) == (neighbors == "add-remove")


def test_one_attribute_has_no_pairs() -> None:
    plan = plan_tables(schema_of(1), Budget(epsilon=1.0), one_way_share=0.3)
    assert plan.pairs.size == 0
    assert plan.one_way.size == 1


def test_pair_scales_are_laid_out_symmetrically() -> None:
    plan = plan_tables(schema_of(3), Budget(epsilon=1.0))
    square = plan.pair_scales(3)
    assert (square == square.T).all()
    assert (np.diag(square) == 0).all()
    assert (square[np.triu_indices(3, 1)] == plan.pairs).all()


def test_a_plan_cannot_be_changed() -> None:
    plan = plan_tables(schema_of(3), Budget(epsilon=1.0))
    with pytest.raises(ValueError, match="read-only"):
        plan.pairs[0] = 1e-9


@pytest.mark.parametrize("share", [0.0, 1.0, -0.2])
def test_a_share_must_leave_something_to_both(share: float) -> None:
    with pytest.raises(BudgetError, match=r"^the one-way share must lie strictly between 0 and 1, got"):
        plan_tables(schema_of(3), Budget(epsilon=1.0), one_way_share=share)
