from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sklar.budget.plan import expected_one_way_tv, plan_second, plan_stages, plan_tables
from sklar.errors import BudgetError
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema


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


def test_a_second_stage_never_overspends_whatever_the_first_one_showed() -> None:
    generator = np.random.default_rng(0)
    for epsilon in (0.01, 1.0, 30.0, 300.0):
        schema = schema_of(7)
        for neighbors in ("replace-one", "add-remove"):
            budget = Budget(epsilon=epsilon, neighbors=neighbors)
            stages = plan_stages(schema, budget, 1_000 if neighbors == "replace-one" else None)
            assert (stages.first.total is not None) == (neighbors == "add-remove")
            for distances in (np.zeros(21), generator.exponential(1e4, 21), np.eye(21)[3] * 1e9):
                second = plan_second(schema, stages, distances)
                spent = budget.spent(np.concatenate([stages.first.scales, second.scales]))
                assert spent <= epsilon
                if not distances.any():
                    # And wastes next to nothing: the reserve was spread evenly.
                    assert spent > epsilon * 0.97


def test_dependent_pairs_get_less_noise_in_the_second_stage() -> None:
    schema = schema_of(4)
    stages = plan_stages(schema, Budget(epsilon=1.0), 5_000)
    second = plan_second(schema, stages, np.array([0.0, 0.0, 3_000.0, 0.0, 0.0, 0.0]))
    assert second.one_way.size == 0
    assert second.pairs[2] < 0.75 * second.pairs[0]


def test_one_way_tables_get_more_when_rows_are_few() -> None:
    schema = Schema(
        name="t",
        attributes=tuple(
            Attribute(name=f"a{i}", kind="categorical", values=tuple(map(str, range(50)))) for i in range(5)
        ),
    )
    budget = Budget(epsilon=1.0)
    shares = [plan_stages(schema, budget, rows).one_way_share for rows in (1_000, 13_000, 1_000_000)]
    assert shares[0] == 0.5
    assert shares[2] == 0.1
    assert shares[0] >= shares[1] >= shares[2]
    assert expected_one_way_tv(schema, 1_000_000, plan_stages(schema, budget, 1_000_000)) < 0.05


def test_one_attribute_needs_no_second_stage() -> None:
    stages = plan_stages(schema_of(1), Budget(epsilon=1.0), 100)
    assert stages.reserve.size == 0
    assert stages.first.pairs.size == 0
