from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sklar.budget.method import PAPER, Method
from sklar.budget.plan import (
    Stages,
    expected_one_way_tv,
    margin_sd,
    plan_release,
    plan_second,
    plan_stages,
    plan_tables,
)
from sklar.errors import BudgetError
from sklar.kernel.cells import Cells
from sklar.kernel.theorems import Budget


def cells_of(m: int) -> Cells:
    return Cells([2] * m)


def share_of(stages: Stages) -> float:
    """Of the cost of all tables, that of the one-way tables."""
    costs = [float(np.sum(scales**-2.0)) for scales in (stages.first.one_way, stages.first.pairs, stages.reserve)]
    return costs[0] / sum(costs)


def test_the_papers_split_is_equal() -> None:
    plan = plan_tables(cells_of(5), Budget(epsilon=1.0))
    assert plan.one_way.shape == (5,)
    assert plan.pairs.shape == (10,)
    assert np.unique(plan.scales).size == 1
    assert plan.total is None


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_share_is_a_share_of_the_inverse_squared_scales(share: float) -> None:
    plan = plan_tables(cells_of(6), Budget(epsilon=2.0), one_way_share=share)
    one_way, pairs = np.sum(plan.one_way**-2), np.sum(plan.pairs**-2)
    assert one_way / (one_way + pairs) == pytest.approx(share, rel=1e-5)


@pytest.mark.parametrize("settings", [{}, {"mechanism": "laplace"}, {"mechanism": "laplace", "composition": "basic"}])
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("share", [None, 0.3])
def test_a_plan_spends_the_whole_budget_and_no_more(settings: Any, neighbors: Any, share: float | None) -> None:
    budget = Budget(epsilon=0.7, neighbors=neighbors, **settings)
    plan = plan_tables(cells_of(4), budget, one_way_share=share)
    assert 0.7 * (1 - 1e-5) < budget.spent(plan.spend) <= 0.7
    assert (plan.total is not None) == (neighbors == "add-remove")


def test_one_attribute_has_no_pairs() -> None:
    plan = plan_tables(cells_of(1), Budget(epsilon=1.0), one_way_share=0.3)
    assert plan.pairs.size == 0
    assert plan.one_way.size == 1


def test_a_plan_cannot_be_changed() -> None:
    plan = plan_tables(cells_of(3), Budget(epsilon=1.0))
    with pytest.raises(ValueError, match="read-only"):
        plan.pairs[0] = 1e-9


@pytest.mark.parametrize("share", [0.0, 1.0, -0.2])
def test_a_share_must_leave_something_to_both(share: float) -> None:
    with pytest.raises(BudgetError, match=r"^the one-way share must lie strictly between 0 and 1, got"):
        plan_tables(cells_of(3), Budget(epsilon=1.0), one_way_share=share)


def test_a_second_stage_never_overspends_whatever_the_first_one_showed() -> None:
    generator = np.random.default_rng(0)
    for epsilon in (0.01, 1.0, 30.0, 300.0):
        cells = cells_of(7)
        for neighbors in ("replace-one", "add-remove"):
            budget = Budget(epsilon=epsilon, neighbors=neighbors)
            stages = plan_stages(cells, budget, 1_000 if neighbors == "replace-one" else None)
            assert (stages.first.total is not None) == (neighbors == "add-remove")
            for distances in (np.zeros(21), generator.exponential(1e4, 21), np.eye(21)[3] * 1e9):
                second = plan_second(cells, stages, distances)
                spent = budget.spent(stages.first.spend + second.spend)
                assert spent <= epsilon
                if not distances.any():
                    # And wastes next to nothing: the reserve was spread evenly.
                    assert spent > epsilon * 0.97


def test_dependent_pairs_get_less_noise_in_the_second_stage() -> None:
    cells = cells_of(4)
    stages = plan_stages(cells, Budget(epsilon=1.0), 5_000)
    second = plan_second(cells, stages, np.array([0.0, 0.0, 3_000.0, 0.0, 0.0, 0.0]))
    assert second.one_way.size == 0
    assert second.pairs[2] < 0.75 * second.pairs[0]


def test_one_way_tables_get_more_when_rows_are_few() -> None:
    cells = Cells([50] * 5)
    budget = Budget(epsilon=1.0)
    shares = [share_of(plan_stages(cells, budget, rows)) for rows in (1_000, 13_000, 1_000_000)]
    assert shares[0] == pytest.approx(0.5, rel=1e-5)
    assert shares[2] == pytest.approx(0.1, rel=1e-5)
    assert shares[0] >= shares[1] >= shares[2]
    assert expected_one_way_tv(cells, 1_000_000, plan_stages(cells, budget, 1_000_000)) < 0.05


def test_one_attribute_needs_no_second_stage() -> None:
    stages = plan_stages(cells_of(1), Budget(epsilon=1.0), 100)
    assert stages.reserve.size == 0
    assert stages.first.pairs.size == 0


def test_the_method_and_the_noise_decide_how_many_stages_there_are() -> None:
    cells, gaussian = cells_of(4), Budget(epsilon=1.0)
    laplace = Budget(epsilon=1.0, mechanism="laplace")
    assert plan_release(cells, gaussian, Method(), n_rows=1_000).reserve.size == cells.n_pairs
    assert plan_release(cells, laplace, Method(), n_rows=1_000).reserve.size == 0
    once = plan_release(cells, gaussian, Method(name="binary"), n_rows=1_000)
    assert once.reserve.size == 0
    assert share_of(once) == pytest.approx(0.4, rel=1e-5)
    paper = plan_release(cells, laplace, PAPER, n_rows=1_000)
    assert np.unique(paper.first.scales).size == 1


def test_a_release_spends_the_whole_budget() -> None:
    for neighbors in ("replace-one", "add-remove"):
        budget = Budget(epsilon=0.7, neighbors=neighbors)
        stages = plan_release(cells_of(5), budget, Method(), n_rows=None)
        assert 0.7 * (1 - 1e-5) < budget.spent(stages.spend) <= 0.7


def test_margins_are_averaged_over_every_table_that_shows_them() -> None:
    cells = Cells([2, 3])
    sd = margin_sd(cells, np.array([4.0, 5.0]), np.array([1 / 9]))
    assert sd == pytest.approx([(1 / 16 + 1 / 27) ** -0.5, (1 / 25 + 1 / 18) ** -0.5])


def test_methods_are_checked() -> None:
    with pytest.raises(BudgetError, match=r"^method must be one of auto, mixture, factor, binary, got 'best'\.$"):
        Method.of("best")
    with pytest.raises(
        BudgetError, match=r"^the paper's preset and its dummies go with method 'binary', got method 'auto'"
    ):
        Method(dummies=True)
    assert Method.of(PAPER) is PAPER
    assert PAPER.budget_of(None, 2.0) == Budget(epsilon=2.0, mechanism="laplace", composition="advanced")
    assert Method().budget_of(None, 2.0) == Budget(epsilon=2.0)
    own = Budget(epsilon=3.0, delta=1e-6)
    assert PAPER.budget_of(own, None) is own
    for budget, epsilon in ((None, None), (own, 1.0)):
        with pytest.raises(BudgetError, match=r"^give either a budget or an epsilon, for example epsilon=1\.0\.$"):
            Method().budget_of(budget, epsilon)
