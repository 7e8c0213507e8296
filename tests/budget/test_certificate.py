"""Certificates: the unit that they name, their JSON, and the bounds on an attacker that follow from them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import ndtr

from sklar.budget.certificate import Certificate, certify
from sklar.budget.method import Method
from sklar.budget.plan import TOKENS, Plan, beside_of, in_tokens, plan_release, plan_tables
from sklar.budget.risk import ANY, GAUSSIAN, Risk, risk_of
from sklar.errors import ModelError
from sklar.kernel.queries import Block
from sklar.kernel.theorems import Budget, Mechanism, curve_epsilon
from sklar.public.schema import Schema
from sklar.public.settings import Person, budget_for
from tests.conftest import refuses
from tests.linked import small

SCHEMA = Schema.from_toml('[attributes]\na = {type = "boolean"}\nb = {type = "categorical", values = ["x", "y", "z"]}')
PEOPLE = replace(SCHEMA, person=Person(column="id", count="people"))
EIGHT = replace(SCHEMA, person=Person(column="id", count="rows", rows_per_person=8))


def empty(plan: Plan) -> Sequence[Block]:
    """Blocks of zeros, at a plan's scales."""
    return [Block(query=q, scales=s, values=np.zeros(q.n_cells, dtype=np.int64)) for q, s in plan.parts]


def test_a_certificate_names_the_unit() -> None:
    def certificate(schema: Schema) -> Certificate:
        budget = budget_for(schema.person, Budget(epsilon=1.0))
        stages = plan_release(schema.cells, budget, Method(), n_rows=1000 if budget.rows_are_public else None)
        return certify(schema, budget, empty(stages.first), None)

    plain, people, eight = (certificate(schema) for schema in (SCHEMA, PEOPLE, EIGHT))
    assert [each.count for each in (plain, people, eight)] == [None, "people", "rows"]
    assert [each.rows_per_person for each in (plain, people, eight)] == [None, 1, 8]
    assert [each.unit for each in (plain, people)] == ["row", "person, with all their rows"]
    assert eight.counted == "rows, at most 8 of each person"
    assert {each.sensitivity_l1 for each in eight.measurements} == {16.0}
    assert {each.sensitivity_l2 for each in eight.measurements} == {8 * 2**0.5}
    assert Certificate.from_dict(eight.to_dict()) == eight
    # A file from before people has neither key.
    document = {key: value for key, value in plain.to_dict().items() if key not in ("count", "rows_per_person")}
    assert Certificate.from_dict(document) == plain


def test_a_certificate_of_linked_tables_is_about_people_and_in_tokens() -> None:
    """Scales and sensitivities are in people, whatever the tokens are; reach, and the noise drawn, in tokens."""
    tree, budget = small(), Budget(epsilon=1.0, rows_per_person=1)
    joint = tree.joint.measured
    stages = plan_release(joint.cells, budget, Method(), n_rows=10, beside=beside_of(tree))
    plan = Plan(parts=tuple(in_tokens(query, scales, TOKENS) for query, scales in stages.first.parts))
    made = certify(joint, budget, empty(plan), 10, tree=tree)
    document = json.loads(json.dumps(made.to_dict()))
    assert Certificate.from_dict(document) == made
    assert (made.budget, made.unit, made.tokens) == (budget, "person, with all their rows in all tables", TOKENS)
    assert (made.count, made.public_rows, made.schema_sha256) == ("everyone", 10, tree.digest)
    assert made.budget.spent(made.spend) == pytest.approx(budget.spent(plan.spend(budget)))
    scales = {float(scale) for _, scales in stages.first.parts for scale in scales}
    for entry in made.measurements:
        assert min(abs(entry.scale / scale - 1) for scale in scales) < 1e-9
        assert (entry.stage, entry.sensitivity_l1, entry.sensitivity_l2) == (1, 2.0, math.sqrt(2))
        assert entry.reach == TOKENS
    refuses("is not readable", Certificate.from_dict, document | {"mood": "good"}, error=ModelError)


def risk(epsilon: float, mechanism: Mechanism = "gaussian", delta: float = 2.0**-30) -> Risk:
    budget = Budget(epsilon=epsilon, mechanism=mechanism, delta=delta)
    blocks = empty(plan_tables(SCHEMA.cells, budget, one_way_share=0.4))
    return risk_of(certify(SCHEMA, budget, blocks, 100))


@pytest.mark.parametrize("mu", [0.02, 0.2, 1.0])
def test_the_advantage_covers_that_of_a_gaussian_with_this_epsilon(mu: float) -> None:
    # The exact advantage of mu-GDP: two unit normals mu apart.
    exact = 2 * ndtr(mu / 2) - 1
    found = risk(curve_epsilon(mu**2, 2.0**-30))
    assert found.theorem == GAUSSIAN
    assert exact <= found.advantage <= 1.35 * exact + 2.0**-28


def test_other_noise_has_the_bound_of_any_mechanism() -> None:
    # Randomized response attains it.
    attained = (math.e - 1) / (math.e + 1)
    found = risk(1.0, "laplace")
    assert found.theorem == ANY
    assert attained <= found.advantage <= attained + 1e-9


def test_guesses_grow_with_epsilon_and_stay_chances() -> None:
    found = [risk(epsilon) for epsilon in (0.01, 0.1, 1.0, 10.0, 100.0)]
    assert all(one.advantage < two.advantage for one, two in pairwise(found[:4]))
    for each in found:
        for others in (1, 9, 99):
            before, after = each.right(others)
            assert before == 1 - 1 / (1 + others)
            assert before <= after <= 1
            assert 1 / (1 + others) <= each.sure(others) <= 1
        assert 0.01 <= each.found(100) <= 1


def test_figures_by_hand() -> None:
    found = Risk(advantage=0.2, theorem="", epsilon=math.log(3), delta=0.0)
    assert found.right(1) == (0.5, 0.6)
    assert found.right(9) == pytest.approx((0.9, 0.92))
    assert found.sure(1) == pytest.approx(0.75)
    assert found.found(100) == pytest.approx(0.03)
    assert Risk(advantage=0.2, theorem="", epsilon=9.0, delta=0.0).found(100) == pytest.approx(0.21)
