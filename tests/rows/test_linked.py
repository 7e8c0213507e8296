"""Tables of tokens: what they hold, and how far a whole person can move them, by trying every person there can be."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.budget.linked import WITH_EVENTS, LinkedPlan, plan_linked
from sklar.kernel.theorems import Budget
from sklar.rows.join import Joined, LinkedRows
from sklar.rows.linked import _Part, count_tokens, triangle
from tests.linked import small, tables

LINKED = small()
PLAN = plan_linked(LINKED, Budget(epsilon=1.0, neighbors="add-remove", rows_per_person=1))


def one_person(person: tuple[int, ...], events: tuple[tuple[int, ...], ...]) -> Joined:
    return Joined(
        people=np.array(person, dtype=np.int16)[:, None],
        events=np.array(events, dtype=np.int16).reshape(-1, 2).T.copy(),
        begins=np.array([0, len(events)]),
        unmatched=0,
        beyond=0,
        repeated=0,
    )


@pytest.fixture(scope="module")
def everyone() -> list[list[NDArray[np.int64]]]:
    """The tokens of every person there can be, with 0 to 3 events and values in no cell: those without order alike."""
    # Some kinds of events, so that all people can be compared with all.
    some = [(-1, 0), (0, 0), (0, 1), (1, 1), (2, -1), (2, 0)]
    found = []
    for person in ((-1, 0), (0, 2), (1, 0)):
        for number in range(4):
            for events in combinations_with_replacement(some, number):
                part = _Part(one_person(person, events), LINKED, 0, 1)
                found.append([part.deal(table, PLAN.each(table)).table for table in PLAN.tables])
    return found


def test_replacing_a_whole_person_stays_within_the_claim(everyone: list[list[NDArray[np.int64]]]) -> None:
    for place, table in enumerate(PLAN.tables):
        each = PLAN.each(table)
        vectors = np.unique(np.array([person[place] for person in everyone]), axis=0).astype(np.float64)
        squares = (vectors**2).sum(axis=1)
        distances = squares[:, None] + squares - 2 * vectors @ vectors.T
        # Shifts are 2 for a replaced person and 1 for one who comes or goes, each of `each` tokens.
        assert distances.max() <= 2 * each**2 + 1e-6, table.kind
        assert squares.max() <= each**2, table.kind
        assert abs(vectors[:, None] - vectors).sum(axis=2).max() <= 2 * each, table.kind
        # The claim is tight: a smaller one would be wrong. (With 3 events nobody is in one half of a one-way table.)
        if table.kind == "event":
            continue
        if table.cells > 1:
            assert distances.max() == pytest.approx(2 * each**2), table.kind
        assert squares.max() == each**2, table.kind


def test_rows_that_are_not_shared_out_would_break_the_claim() -> None:
    """What the shares are for: counts of events move by as many as a person has."""
    joined = one_person((0, 0), ((0, 0), (0, 0), (0, 0)))
    place = next(place for place, table in enumerate(PLAN.tables) if table.kind == "event-event")
    tokens = count_tokens(joined, LINKED, PLAN)[place].table
    assert tokens.max() == PLAN.tokens
    assert np.bincount(joined.events[0]).max() == 3


def test_shares_are_those_of_the_recipe() -> None:
    """Against fractions that are added up person by person, to a token each."""
    linked, joined = LINKED, LinkedRows(*tables(60), LINKED).join()
    plan = LinkedPlan(tables=PLAN.tables, scales=PLAN.scales, tokens=1 << 16)
    counted = count_tokens(joined, linked, plan)
    for table, tokens in zip(plan.tables, counted, strict=True):
        exact = [Fraction(0)] * table.cells
        for i in range(joined.n_people):
            person = joined.people[:, i].tolist()
            events = joined.events[:, joined.begins[i] : joined.begins[i + 1]].T.tolist()
            for cell, share in _shares(table.kind, table.first, table.second, table.shape, person, events, linked.bins):
                exact[cell] += share
        each = plan.each(table)
        away = abs(tokens.table - np.array([float(each * share) for share in exact]))
        assert (away <= (joined.n_people if table.kind in WITH_EVENTS else 0)).all(), table.kind


def _shares(
    kind: str,
    i: int,
    j: int,
    shape: tuple[int, ...],
    person: list[int],
    events: list[list[int]],
    bins: tuple[int, ...],
) -> list[tuple[int, Fraction]]:
    k, one = len(events), Fraction(1)
    in_bin = max(at for at, begin in enumerate(bins) if begin <= k)
    if kind == "people":
        return [(0, one)]
    if kind == "person":
        return [(person[i], one)]
    if kind == "number":
        return [(k, one)]
    if kind == "person-person":
        return [(person[i] * shape[1] + person[j], one)]
    if kind == "number-person":
        return [(in_bin * shape[1] + person[i], one)]
    if kind == "person-event":
        return [(person[i] * shape[1] + event[j], one / k) for event in events]
    if kind == "event-event":
        return [(event[i] * shape[1] + event[j], one / k) for event in events]
    if kind == "number-event":
        return [((in_bin - 1) * shape[1] + event[i], one / k) for event in events]
    if kind == "event":
        weight = Fraction(min(k, 12), 12)
        halves = [(event[i], weight / k) for event in events]
        return halves + [(shape[1] + event[i], (1 - weight) / k) for event in events]
    pairs = [sorted((events[s][i], events[t][i])) for s in range(k) for t in range(s)]
    found = [int(triangle(np.array(low), np.array(high), shape[0])) for low, high in pairs]
    return [(cell, Fraction(2, k * (k - 1))) for cell in found]
