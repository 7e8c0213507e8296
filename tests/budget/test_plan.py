"""Plans: shares of the cost, whole budgets, stages that never overspend, and linked tables."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.budget import plan as plans
from sklar.budget.method import PAPER, Method
from sklar.budget.plan import looks_for_triples, plan_release, plan_scores, plan_second, plan_stages, plan_tables
from sklar.errors import BudgetError
from sklar.kernel.cells import Cells
from sklar.kernel.queries import Shares, Tables
from sklar.kernel.theorems import MAX_SCALE, NOTHING, Budget, Neighbors, Spend
from sklar.public.tree import Tree
from tests.conftest import refuses
from tests.linked import deep, in_order, small

NEIGHBORS: tuple[Neighbors, ...] = ("replace-one", "add-remove")


def share_of(stages: plans.Stages) -> float:
    """Of the cost of all tables, that of the one-way tables."""
    costs = [float(np.sum(scales**-2.0)) for scales in (stages.first.scales(1), stages.first.scales(2), stages.reserve)]
    return costs[0] / sum(costs)


def test_plans_of_tables_split_the_budget_by_a_share() -> None:
    equal = plan_tables(Cells([2] * 5), Budget(epsilon=1.0))
    assert [equal.scales(order).size for order in (0, 1, 2)] == [0, 5, 10]
    assert np.unique([*equal.scales(1), *equal.scales(2)]).size == 1
    with pytest.raises(ValueError, match="read-only"):
        equal.scales(2)[0] = 1e-9
    for share in (0.1, 0.5, 0.9):
        plan = plan_tables(Cells([2] * 6), Budget(epsilon=2.0), one_way_share=share)
        one_way, pairs = np.sum(plan.scales(1) ** -2), np.sum(plan.scales(2) ** -2)
        assert one_way / (one_way + pairs) == pytest.approx(share, rel=1e-5)
    alone = plan_tables(Cells([2]), Budget(epsilon=1.0), one_way_share=0.3)
    assert [alone.scales(order).size for order in (1, 2)] == [1, 0]


@pytest.mark.parametrize("settings", [{}, {"mechanism": "laplace"}, {"mechanism": "laplace", "composition": "basic"}])
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("share", [None, 0.3])
def test_a_plan_spends_the_whole_budget_and_no_more(settings: Any, neighbors: Any, share: float | None) -> None:
    budget = Budget(epsilon=0.7, neighbors=neighbors, **settings)
    plan = plan_tables(Cells([2] * 4), budget, one_way_share=share)
    release = plan_release(Cells([2] * 5), budget, Method(), n_rows=None)
    for spend in (plan.spend(budget), release.spend):
        assert 0.7 * (1 - 1e-5) < budget.spent(spend) <= 0.7
    assert (plan.scales(0).size > 0) == (neighbors == "add-remove")


def test_dependent_pairs_get_less_noise_in_the_second_stage() -> None:
    cells = Cells([2] * 4)
    stages = plan_stages(cells, Budget(epsilon=1.0), 5_000)
    second = plan_second(cells, stages, np.array([0.0, 0.0, 3_000.0, 0.0, 0.0, 0.0]))
    assert second.scales(1).size == 0
    assert second.scales(2)[2] < 0.75 * second.scales(2)[0]


def test_one_way_tables_get_more_when_rows_are_few() -> None:
    cells = Cells([50] * 5)
    budget = Budget(epsilon=1.0)
    shares = [share_of(plan_stages(cells, budget, rows)) for rows in (1_000, 13_000, 1_000_000)]
    assert shares[0] > 2.5 * shares[1] > 5 * shares[2]
    assert shares[2] == pytest.approx(0.05, rel=1e-5)
    assert share_of(plan_stages(cells, budget, 1)) == pytest.approx(0.5, rel=1e-5)
    assert plans.expected_one_way_tv(cells, 1_000_000, plan_stages(cells, budget, 1_000_000)) < 0.05


def test_the_method_and_the_noise_decide_how_many_stages_there_are() -> None:
    # Of bits parities are measured (`plan_parities`).
    cells, gaussian = Cells([3] * 4), Budget(epsilon=1.0)
    laplace = Budget(epsilon=1.0, mechanism="laplace")
    assert plan_release(cells, gaussian, Method(), n_rows=1_000).reserve.size == cells.n_pairs
    assert plan_release(cells, laplace, Method(), n_rows=1_000).reserve.size == 0
    alone = plan_stages(Cells([2]), gaussian, 100)
    assert alone.reserve.size == alone.first.scales(2).size == 0
    once = plan_release(cells, gaussian, Method(name="binary"), n_rows=1_000)
    assert once.reserve.size == 0
    assert share_of(once) == pytest.approx(0.4, rel=1e-5)
    paper = plan_release(cells, laplace, PAPER, n_rows=1_000)
    assert np.unique([*paper.first.scales(1), *paper.first.scales(2)]).size == 1


def test_margins_are_averaged_over_every_table_that_shows_them() -> None:
    cells = Cells([2, 3])
    sd = plans.margin_sd(cells, np.array([4.0, 5.0]), np.array([1 / 9]))
    assert sd == pytest.approx([(1 / 16 + 1 / 27) ** -0.5, (1 / 25 + 1 / 18) ** -0.5])


def test_methods_have_budgets() -> None:
    assert Method.of(PAPER) is PAPER
    assert PAPER.budget_of(None, 2.0) == Budget(epsilon=2.0, mechanism="laplace", composition="advanced")
    assert Method().budget_of(None, 2.0) == Budget(epsilon=2.0)
    own = Budget(epsilon=3.0, delta=1e-6)
    assert PAPER.budget_of(own, None) is own


def triples(cells: Cells, scales: NDArray[np.float64]) -> list[tuple[Tables, NDArray[np.float64]]]:
    """The first three-way tables, at these scales."""
    return [(Tables(cells=cells, order=3, sets=np.stack(cells.triples, axis=1)[: scales.size]), scales)]


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_later_stages_never_overspend_whatever_is_wanted(seed: int, scored: bool) -> None:
    """Random tables, budgets, distances and scales: what follows the first stage stays within what was set aside."""
    generator, neighbors = np.random.default_rng(seed), NEIGHBORS[seed % 2]
    levels, epsilons = ((3, 12), [0.3, 1.0, 10.0]) if scored else ((2, 20), [0.01, 0.1, 1.0, 4.0, 10.0, 100.0, 300.0])
    cells, epsilon = Cells(generator.integers(*levels, generator.integers(3, 9))), epsilons[seed % len(epsilons)]
    budget = Budget(epsilon=epsilon, neighbors=neighbors, rows_per_person=(None, 8)[seed // 2 % 2])
    stages = left = plan_stages(cells, budget, 1_000 if budget.rows_are_public else None)
    assert (stages.first.scales(0).size > 0) == (not budget.rows_are_public)
    scores = NOTHING
    if scored:
        planned = plan_scores(cells, 10**7, stages, orders=(3,))
        assert planned is not None
        (own, *_), left = planned
        scale = own.scale
        reach = math.floor(15 * math.sqrt(budget.shifts) * budget.rows + 1.3)
        scores, table = (
            Spend.of([scale], cells.n_triples, reach),
            scale * math.sqrt(budget.shifts) * budget.rows / reach,
        )
        assert cells.n_triples * table**-2.0 == pytest.approx(plans.SCORES_SHARE * stages.precision, rel=0.03)
        assert left.first is stages.first
        assert (left.reserve > stages.reserve).all()
    costs = generator.gamma(0.3, size=generator.integers(1, min(cells.n_triples, 120) + 1)) + 1e-6
    share = plans.TRIPLES_SHARE * (1.0 if seed % 3 == 0 else generator.random())
    wanted = (costs / costs.sum() * share * np.sum(left.reserve**-2.0)) ** -0.5
    second = plan_second(cells, left, generator.gamma(0.1, 5_000.0, cells.n_pairs), None, triples(cells, wanted))
    chosen, even = second.spend(budget), plan_second(cells, left, np.ones(cells.n_pairs)).spend(budget)
    one = plan_second(cells, left, np.eye(cells.n_pairs)[0] * 1e9).spend(budget)
    paid = budget.cost(budget.tables(stages.reserve))
    for later in (chosen, one, even, budget.tables(left.reserve)):
        used = budget.cost(scores + later)
        assert used.rho <= paid.rho
        assert used.mu_squared <= paid.mu_squared
        # Nearly all of it is used, but where both scores and triples weigh one currency more than the other.
        share = max(used.rho / paid.rho, used.mu_squared / paid.mu_squared)
        assert share > 0.999 or (scored and later in (chosen, one))
        assert budget.spent(stages.first.spend(budget) + scores + later) <= budget.epsilon
    # What the tables get is what they wanted, but for the grid of costs.
    assert scored or np.abs(np.log(second.scales(3) / wanted)).max() < 0.15
    assert [second.scales(order).size for order in (1, 2, 3)] == [0, cells.n_pairs, wanted.size]
    # Planted overspends: the second look as if nothing had gone to the triples, or to the scores.
    assert not paid.covers(budget.cost(scores + even + budget.tables(second.scales(3))))
    whole = plan_second(cells, stages, np.ones(cells.n_pairs)).spend(budget)
    assert paid.covers(budget.cost(scores + whole)) == (not scored)


def test_whether_scores_are_made_follows_from_sizes_and_noise() -> None:
    def made(sizes: list[int], *, rows: int = 10**6, epsilon: float = 1.0) -> bool:
        cells = Cells(sizes)
        return plan_scores(cells, rows, plan_release(cells, Budget(epsilon=epsilon), Method(), n_rows=rows)) is not None

    assert made([3, 4, 5])
    assert not made([2, 2, 2])
    # More than 10,000 tables, 2^24 cells, or 2 x 10^9 cells that rows are counted into.
    assert made([3] * 40, rows=200_000, epsilon=10.0)
    assert not made([3] * 41, rows=150_000, epsilon=10.0)
    assert not made([3] * 40, rows=210_000, epsilon=10.0)
    assert not made([3] * 5, epsilon=1e9)
    # Noise may be an eighth of what a column shows that follows from two others, over as many levels as it allows.
    cells = Cells([8] * 6)
    stages = plan_release(cells, Budget(epsilon=1.0), Method(), n_rows=10**6)

    def levels(rows: int) -> int:
        planned = plan_scores(cells, rows, stages, orders=(3,))
        return 0 if planned is None else int(planned[0][0].tables.levels[0])

    planned = plan_scores(cells, 10**6, stages, orders=(3,))
    assert planned is not None
    least = [math.ceil(8 * planned[0][0].scale / 15 / math.sqrt((k - 1) / k**3)) for k in (8, 4, 2)]
    assert [levels(rows + move) for rows in least for move in (1, -1)] == [8, 4, 4, 2, 2, 0]


def test_whether_triples_are_looked_for_follows_from_sizes_and_noise() -> None:
    def looks(sizes: list[int], *, rows: int = 10**6, method: str = "auto", **settings: Any) -> bool:
        cells, budget = Cells(sizes), Budget(**{"epsilon": 1.0, **settings})
        return looks_for_triples(cells, plan_release(cells, budget, Method.of(method), n_rows=rows))

    assert looks([3, 4, 5])
    assert not looks([3, 4, 5], method="binary")
    assert not looks([3, 4])
    assert not looks([2, 2, 2])
    assert looks([2, 2, 3])
    # Whatever the noise of pairs is; not where noise is none.
    assert looks([30] * 10, rows=10_000)
    assert not looks([3, 4, 5], epsilon=1e9)
    most = next(m for m in range(3, 100) if math.comb(m, 3) > plans.MOST_LOOKED_AT)
    assert looks([3] * (most - 1), rows=10**9)
    assert not looks([3] * most, rows=10**9)
    assert not looks([3] * 5, rows=10**9, mechanism="laplace")


def test_two_looks_at_parities_spend_the_budget_and_no_more() -> None:
    cases = (
        (2, Budget(epsilon=1.0)),
        (5, Budget(epsilon=1.0, neighbors="add-remove")),
        (16, Budget(epsilon=1.0, rows_per_person=3)),
    )
    for m, budget in cases:
        stages = plan_release(Cells([2] * m), budget, Method(), n_rows=100_000 if budget.rows_are_public else None)
        assert stages.looks == 2
        assert stages.first.of_parities
        assert stages.first.scales(0).size == (not budget.rows_are_public)
        assert 1 - 1e-5 < budget.spent(stages.spend) <= 1.0

    def first(**settings: Any) -> plans.Plan:
        return plan_release(Cells([2] * 5), Budget(epsilon=1.0), Method(), **{"n_rows": 100_000, **settings}).first

    assert first().scales(3).size == 10
    # Not where their noise drowns them, rows cannot be counted again, or attributes have weights.
    assert not first(n_rows=300).scales(3).size
    assert not first(again=False).scales(3).size
    assert not first(n_rows=100, importance=(1.0,) * 5 + (2.0,) * 10).of_parities


def by_person(rows: int | None) -> Budget:
    return Budget(epsilon=1.0, rows_per_person=rows)


def test_a_plan_measures_the_number_of_rows_where_it_is_not_public() -> None:
    method, cells = Method(), Cells([2, 2, 3])
    people = plan_release(cells, by_person(1), method, n_rows=1000)
    assert not people.first.scales(0).size
    alone = plan_release(cells, by_person(None), method, n_rows=1000)
    assert all(np.array_equal(people.first.scales(order), alone.first.scales(order)) for order in (1, 2, 3))
    eight = plan_release(cells, by_person(8), method, n_rows=None)
    assert eight.first.scales(0).size
    assert 0.999 < by_person(8).spent(eight.spend) <= 1.0
    assert eight.spend.reach.tolist() == [8.0] * eight.spend.reach.size


PERSON = by_person(1)


def of_tables(tree: Tree, budget: Budget = PERSON) -> plans.Stages:
    """The plan of linked tables."""
    cells = tree.joint.measured.cells
    return plan_release(cells, budget, Method(), n_rows=1000, beside=plans.beside_of(tree))


@pytest.mark.parametrize("tree", [small(), in_order(), in_order(follows=""), deep()])
def test_sides_of_linked_tables_take_their_parts_of_the_whole_budget(tree: Tree) -> None:
    stages = of_tables(tree)
    assert 0.999 < PERSON.spent(stages.spend) <= 1.0
    costs = {
        query.what: float(np.sum((scales / query.each) ** -2.0))
        for query, scales in stages.first.parts
        if isinstance(query, Shares)
    }
    kinds = {"number", "two", *(("gaps",) if tree.branches[1].order else ())}
    kinds |= {"first", "next", "gap"} if tree.branches[1].follows else set()
    assert {what for what in costs if what.startswith("events: ")} == {f"events: {kind}" for kind in kinds}
    costs.pop(plans.INSIDE, None)
    for what, cost in costs.items():
        assert cost / stages.precision == pytest.approx(plans.SIDES[what.split(": ")[1]][0], rel=1e-5)


def test_noise_of_linked_tables_is_that_of_one_unit_a_person() -> None:
    """However many rows count, and however many tokens a person has: they cost what rows do, at noise as large."""
    few, many = (of_tables(small(most)).first for most in (6, 8))
    assert few.scales(2) == pytest.approx(many.scales(2))
    assert [side.kind for side in plans.sides_of(small(1))] == ["number"]
    for query, scales in of_tables(in_order()).first.parts:
        dealt = plans.in_tokens(query, scales, plans.TOKENS)
        assert PERSON.cost(dealt[0].bound(dealt[1], PERSON)).rho == pytest.approx(
            PERSON.cost(query.bound(scales, PERSON)).rho, rel=1e-9
        )


def test_little_budget_has_fewer_tokens() -> None:
    cells, beside = small().joint.measured.cells, plans.beside_of(small())
    poor = Budget(epsilon=0.0005, rows_per_person=1)
    tokens = plans.tokens_for(cells, poor, Method(), beside)
    assert 1 <= tokens < plans.TOKENS == plans.tokens_for(cells, PERSON, Method(), beside)
    assert math.log2(tokens).is_integer()
    assert max(scales.max() for _, scales in of_tables(small(), poor).first.parts) * tokens <= MAX_SCALE


def test_refusals() -> None:
    cells, budget, refused = Cells([3, 4, 5]), Budget(epsilon=1.0), partial(refuses, error=BudgetError)
    stages = plan_stages(cells, budget, 10**6)
    for share in (0.0, 1.0, -0.2):
        strictly = r"^the one-way share must lie strictly between 0 and 1, got"
        refused(strictly, plan_tables, Cells([2] * 3), budget, one_way_share=share)
    wanted = triples(cells, np.array([(0.41 * np.sum(stages.reserve**-2.0)) ** -0.5]))
    dear = r"^larger tables may take 40% of what is set aside .*, got 41%\. Want fewer"
    refused(dear, plan_second, cells, stages, np.ones(3), None, wanted)
    half = r"^scores may take half of what is set aside .*, got \d+%\. Set more aside\.$"
    refused(half, plan_scores, cells, 10**6, replace(stages, reserve=stages.reserve * 5))
    largest = "above the largest that can be drawn exactly"
    refused(largest, plan_release, Cells([2] * 20), Budget(epsilon=1e-6), Method(), n_rows=100)
    gaussian = "linked tables take gaussian noise"
    refused(gaussian, of_tables, small(), replace(PERSON, mechanism="laplace"))
    binary = r"^the paper's preset and its dummies go with method 'binary', got method 'auto'"
    refused(binary, Method, dummies=True)
    either = r"^give either a budget or an epsilon, for example epsilon=1\.0\.$"
    refused(either, Method().budget_of, None, None)
