"""Plans of linked tables: shares of the cost, whole budgets, refusals, and the certificate's JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from sklar.budget.certificate import Certificate, certify
from sklar.budget.plan import KINDS, WITH_EVENTS, linked_tables, plan_linked
from sklar.errors import BudgetError, ModelError
from sklar.kernel.queries import Block, Shares
from sklar.kernel.theorems import MAX_SCALE, Budget
from tests.linked import small

BUDGET = Budget(epsilon=1.0, rows_per_person=1)


def parts(budget: Budget = BUDGET, at_most: int = 3) -> dict[str, tuple[Shares, np.ndarray]]:
    """Queries and scales in people, by kind."""
    plan = plan_linked(small(at_most), budget).parts
    return {query.what: (query, scales / query.each) for query, scales in plan if isinstance(query, Shares)}


def test_the_whole_budget_is_spent_by_the_shares() -> None:
    assert 0.999 < BUDGET.spent(plan_linked(small(), BUDGET).spend(BUDGET)) <= 1.0
    costs = {kind: float(np.sum(scales**-2.0)) for kind, (_, scales) in parts().items()}
    assert set(costs) == set(KINDS) - {"people"}
    whole = sum(KINDS[kind][0] for kind in costs)
    for kind, cost in costs.items():
        assert cost / sum(costs.values()) == pytest.approx(KINDS[kind][0] / whole, rel=1e-5)


def test_costs_do_not_grow_with_the_number_of_events() -> None:
    assert parts(at_most=4)["person"][1] == pytest.approx(parts(at_most=900)["person"][1])


def test_tables_that_there_are() -> None:
    tables = linked_tables(small())
    assert len(tables["person-event"]) == 4
    assert tables["two-events"][0].cells == 6
    assert "two-events" not in linked_tables(small(1))
    assert next(iter(parts(replace(BUDGET, neighbors="add-remove")))) == "people"


def test_little_budget_has_fewer_tokens() -> None:
    made = parts(Budget(epsilon=0.0005, rows_per_person=1))
    tokens = made["event"][0].each
    assert 1 < tokens < 1_024
    assert math.log2(tokens).is_integer()
    assert all(scales.max() * tokens <= MAX_SCALE for _, scales in made.values())
    assert all(query.each == (tokens if kind in WITH_EVENTS else 1) for kind, (query, _) in made.items())


def test_laplace_noise_is_refused() -> None:
    with pytest.raises(BudgetError, match="linked tables take gaussian noise, got mechanism 'laplace'"):
        plan_linked(small(), replace(BUDGET, mechanism="laplace"))


def test_certificates_are_read_again_and_say_what_they_always_said() -> None:
    plan = plan_linked(small(), BUDGET)
    blocks = [
        Block(query=query, scales=own, values=np.zeros(query.n_cells, dtype=np.int64)) for query, own in plan.parts
    ]
    made = certify(small(), BUDGET, blocks, 10)
    document = json.loads(json.dumps(made.to_dict()))
    assert Certificate.from_dict(document) == made
    assert (made.budget, made.unit) == (BUDGET, "person, with all their events")
    assert made.budget.spent(made.spend) == pytest.approx(BUDGET.spent(plan.spend(BUDGET)))
    assert {"public_people": 10, "unit": "person", "tokens": 1_024}.items() <= document.items()
    # In people, whatever the tokens are; all in one stage.
    scales = {kind: scales.tolist() for kind, (_, scales) in parts().items()}
    for entry in document["measurements"]:
        assert entry["scale"] in scales[entry["kind"]]
        assert (entry["stage"], entry["sensitivity_l1"], entry["sensitivity_l2"]) == (1, 2.0, math.sqrt(2))
    with pytest.raises(ModelError, match="is not readable"):
        Certificate.from_dict(document | {"mood": "good"})
