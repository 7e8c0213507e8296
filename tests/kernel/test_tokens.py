"""Tokens: whatever a person's entries are, they are whole, none negative, at most so many, and that person's alone."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from sklar.errors import BudgetError
from sklar.kernel.theorems import Budget, Spend
from sklar.kernel.tokens import Tokens, deal
from sklar.kernel.vault import Vault

ENTRIES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-2, 6), st.integers(-2, 40), st.integers(0, 60)), max_size=30
)


def dealt(entries: list[tuple[int, int, int, int]], each: int) -> NDArray[np.int64]:
    person, cell, weight, whole = np.array(entries, dtype=np.int64).reshape(-1, 4).T
    return deal(person, cell, weight, whole, cells=5, each=each).table


@given(ENTRIES, st.sampled_from([1, 2, 8, 1024]))
def test_a_person_deals_at_most_so_many_and_depends_on_nobody(
    entries: list[tuple[int, int, int, int]], each: int
) -> None:
    total = np.zeros(5, dtype=np.int64)
    for person in range(4):
        own = dealt([entry for entry in entries if entry[0] == person], each)
        assert (own >= 0).all()
        assert own.sum() <= each
        total += own
    assert total.tolist() == dealt(entries, each).tolist()


@given(ENTRIES, st.sampled_from([1, 8, 1024]))
def test_shares_are_rounded_by_less_than_a_token(entries: list[tuple[int, int, int, int]], each: int) -> None:
    own = [(0, cell, weight, 5_000) for _, cell, weight, _ in entries]
    exact = np.zeros(5)
    for _, cell, weight, whole in own:
        if 0 <= cell < 5 and weight > 0:
            exact[cell] += each * weight / whole
    found = dealt(own, each)
    assert (abs(found - exact) < 1).all()
    assert found.sum() == int(exact.sum() + 1e-9)


def test_largest_remainders_come_first_and_ties_by_cell() -> None:
    # 8 x 3/7, 2/7, 2/7 = 3.43, 2.29, 2.29: the eighth token goes to the largest remainder.
    assert dealt([(0, 4, 3, 7), (0, 0, 2, 7), (0, 2, 2, 7)], 8).tolist() == [2, 0, 2, 0, 4]
    assert dealt([(0, 3, 1, 2), (0, 1, 1, 2)], 1).tolist() == [0, 1, 0, 0, 0]


def test_tokens_are_not_printed() -> None:
    assert repr(deal(*np.ones((4, 1), dtype=np.int64), cells=2, each=1)) == "Tokens(private)"


def test_noise_has_as_many_times_the_scale_as_a_person_has_tokens() -> None:
    # 40,000 cells: the variance is off by 2.8% with a chance below 1e-6 (5 sd of sqrt(2 / 40,000)), and 2.8% is far
    # less than a scale of 0.7 or 1.3 times would show.
    vault = Vault(Budget(epsilon=50.0, rows_per_person=1))
    for each, scale in ((1, 4.0), (64, 4.0)):
        (noisy,) = vault.shares([Tokens(table=np.zeros(40_000, dtype=np.int64), each=each)], np.array([scale]))
        assert abs(noisy.var() / (each * scale) ** 2 - 1) < 0.036


def test_shares_cost_what_tables_of_counts_do() -> None:
    budget = Budget(epsilon=1.0, rows_per_person=1)
    scale = float(budget.scales([1.0])[0])
    vault = Vault(budget)
    tokens = Tokens(table=np.zeros(3, dtype=np.int64), each=1024)
    vault.shares([tokens], np.array([scale]))
    assert budget.spent(vault.spent) == budget.spent(Spend.of([scale]))
    with pytest.raises(BudgetError, match="above the budget"):
        vault.shares([tokens], np.array([scale]))


@pytest.mark.parametrize(
    ("budget", "each", "words"),
    [
        (Budget(epsilon=1.0), 8, "a budget by person"),
        (Budget(epsilon=1.0, rows_per_person=2), 8, "a budget by person"),
        (Budget(epsilon=1.0, rows_per_person=1, mechanism="laplace"), 8, "gaussian noise"),
        (Budget(epsilon=1.0, rows_per_person=1), 12, "power of two"),
        (Budget(epsilon=1.0, rows_per_person=1), 0, "power of two"),
        (Budget(epsilon=1.0, rows_per_person=1), 1 << 17, "power of two"),
    ],
)
def test_what_the_proof_does_not_cover_is_refused(budget: Budget, each: int, words: str) -> None:
    with pytest.raises(BudgetError, match=words):
        Vault(budget).shares([Tokens(table=np.zeros(3, dtype=np.int64), each=each)], np.array([100.0]))
