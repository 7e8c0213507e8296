"""What an attacker gains: bounds that hold for mechanisms whose exact figures are known, and that are not vacuous."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import ndtr

from sklar.budget.certificate import certify
from sklar.budget.plan import plan_tables
from sklar.budget.risk import ANY, GAUSSIAN, Risk, risk_of
from sklar.kernel.queries import Block
from sklar.kernel.theorems import Budget, Mechanism, curve_epsilon
from sklar.public.schema import Schema

SCHEMA = Schema.from_toml('[attributes.a]\ntype="boolean"\n[attributes.b]\ntype="boolean"')


def risk(
    epsilon: float, mechanism: Mechanism = "gaussian", delta: float = 2.0**-30, claimed: str | None = None
) -> Risk:
    budget = Budget(epsilon=epsilon, mechanism=mechanism, delta=delta)
    parts = plan_tables(SCHEMA.cells, budget, one_way_share=0.4).parts
    blocks = [Block(query=q, scales=s, values=np.zeros(q.n_cells, dtype=np.int64)) for q, s in parts]
    return risk_of(replace(certify(SCHEMA, budget, blocks, 100), claimed_by=claimed))


@pytest.mark.parametrize("mu", [0.02, 0.2, 1.0])
def test_the_advantage_covers_that_of_a_gaussian_with_this_epsilon(mu: float) -> None:
    # The exact advantage of mu-GDP: two unit normals mu apart.
    exact = 2 * ndtr(mu / 2) - 1
    found = risk(curve_epsilon(mu**2, 2.0**-30))
    assert found.theorem == GAUSSIAN
    assert exact <= found.advantage <= 1.35 * exact + 2.0**-28


def test_other_noise_and_claims_have_the_bound_of_any_mechanism() -> None:
    # Randomized response attains it.
    attained = (math.e - 1) / (math.e + 1)
    for found in (risk(1.0, "laplace"), risk(1.0, claimed="somebody")):
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
