"""People and their events: what is matched, dropped and chosen, tokens, and how far a person can move tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import combinations, combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from sklar.budget.plan import WITH_EVENTS, Plan, linked_queries, linked_tables, plan_linked
from sklar.errors import DataError
from sklar.kernel.theorems import Budget
from sklar.rows.encode import id_texts
from sklar.rows.shares import Joined, count_tokens, join, triangle
from tests.linked import small, tables

LINKED = small()
TABLES = [table for tables in linked_tables(LINKED).values() for table in tables]
TOKENS = 1_024
PLAN = plan_linked(LINKED, Budget(epsilon=1.0, neighbors="add-remove", rows_per_person=1))


def joined(ids: Any, owners: Any, *, at_most: int = 3) -> Joined:
    people = pl.DataFrame({"id": ids, "sex": ["F"] * len(ids), "region": ["north"] * len(ids)})
    kinds = [("a", "b", "c")[i % 3] for i in range(len(owners))]
    events = pl.DataFrame({"person": owners, "kind": kinds, "urgent": [True] * len(owners)})
    return join(people, events, small(at_most))


def test_events_stand_with_their_people() -> None:
    found = joined(["x", "y", "z"], ["z", "x", "z", "x"])
    assert found.events[0].tolist() == [1, 0, 0, 2]
    assert repr(found) == "Joined(private)"


@pytest.mark.parametrize(("ids", "owners", "numbers", "unmatched", "repeated"), [
    (["x", "y", "z"], ["z", "x", "z", "x"], [2, 0, 2], 0, 0),
    # An event without a person is dropped, and a person without a key has no events.
    ([1, 2], [2, 3, None, 2], [0, 2], 2, 0), ([None, "a", None], ["a", None], [0, 1, 0], 1, 0),
    ([5, 5, 6], [5, 6, 5], [2, 1], 0, 1),
    # Keys of any type are compared as texts.
    ([1, 2], ["2", "02"], [0, 1], 1, 0), ([1.0, 2.0, None], [1, 2], [1, 1, 0], 0, 0),
    ([dt.date(2020, 1, 1)], ["2020-01-01"], [1], 0, 0), ([Decimal("1.50")], [Decimal("1.50")], [1], 0, 0),
])  # fmt: skip
def test_whose_events_are_whose(ids: Any, owners: Any, numbers: list[int], unmatched: int, repeated: int) -> None:
    found = joined(ids, owners)
    assert (found.n_people, found.numbers.tolist()) == (len(numbers), numbers)
    assert (found.unmatched, found.beyond, found.repeated) == (unmatched, 0, repeated)


def test_no_key_raises() -> None:
    odd = [[1], b"\xff", object(), float("nan"), 10**30, "", "x" * 9, None]
    assert id_texts(pl.Series(odd, dtype=pl.Object)).null_count() >= 3
    for values in ([[1, 2], [3]], [{"a": 1}], [b"\xff", b"a"], [float("inf"), float("nan")], [True, None]):
        assert len(id_texts(pl.Series(values))) == len(values)


def test_of_too_many_events_a_random_part_is_chosen_afresh() -> None:
    """Of 12 events 3 are chosen: each with the same chance, and every run anew."""
    ids, owners = list(range(2_000)), np.repeat(range(2_000), 12).tolist()
    found = joined(ids, owners)
    assert found.numbers.tolist() == [3] * 2_000
    assert found.beyond == 9 * 2_000
    # Kinds come in turn, so that a third of each is chosen: 5 sd of 6,000 draws without replacement is below 190.
    assert (abs(np.bincount(found.events[0]) - 2_000) < 190).all()
    assert joined(ids, owners).events[0].tolist() != found.events[0].tolist()


def test_a_key_that_a_table_lacks_is_told(tmp_path: Path) -> None:
    people, events = tables(10)
    wrong: list[tuple[Any, Any, str]] = [
        (people.drop("id"), events, r"has no column 'id', which \[people\] names as its key"),
        (people, events.drop("person"), r"has no column 'person', which \[events\] names as its key"),
        (people, events.drop("kind"), "has no column for 'kind'"),
        (tmp_path / "people.csv", events, "does not exist"),
    ]
    for one, other, message in wrong:
        with pytest.raises(DataError, match=message):
            join(one, other, small())


def test_parts_cover_everyone_once() -> None:
    found = joined(list(range(50)), [0] * 3 + [49] * 2)
    assert [person for first, last in found.parts() for person in range(first, last)] == list(range(50))


def one_person(person: tuple[int, ...], events: tuple[tuple[int, ...], ...]) -> Joined:
    return Joined(
        people=np.array(person, dtype=np.int16)[:, None],
        events=np.array(events, dtype=np.int16).reshape(-1, 2).T.copy(),
        begins=np.array([0, len(events)]),
        unmatched=0,
        beyond=0,
        repeated=0,
    )


def tokens_of(joined: Joined, plan: Plan) -> list[NDArray[np.int64]]:
    """The tokens of all people in every table of the plan, in its order."""
    counted = zip(plan.parts, count_tokens(joined, LINKED, plan), strict=True)
    return [part for (query, _), counts in counted for part in np.split(counts, np.cumsum(query.sizes)[:-1])]


@pytest.fixture(scope="module")
def everyone() -> list[list[NDArray[np.int64]]]:
    """The tokens of every person there can be, with 0 to 3 events and values in no cell: those without order alike."""
    # Some kinds of events, so that all people can be compared with all.
    some = [(-1, 0), (0, 0), (0, 1), (1, 1), (2, -1), (2, 0)]
    found = []
    for person in ((-1, 0), (0, 2), (1, 0)):
        for number in range(4):
            for events in combinations_with_replacement(some, number):
                found.append(tokens_of(one_person(person, events), PLAN))
    return found


def test_replacing_a_whole_person_stays_within_the_claim(everyone: list[list[NDArray[np.int64]]]) -> None:
    for place, table in enumerate(TABLES):
        each = TOKENS if table.kind in WITH_EVENTS else 1
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


def test_shares_are_those_of_the_recipe() -> None:
    """Against fractions that are added up person by person, to a token each."""
    linked, joined = LINKED, join(*tables(60), LINKED)
    queries = linked_queries(linked, 1 << 16, total=True)
    plan = Plan(parts=tuple((query, np.ones(query.sizes.size)) for query in queries))
    for table, tokens in zip(TABLES, tokens_of(joined, plan), strict=True):
        exact = [Fraction(0)] * table.cells
        for i in range(joined.n_people):
            person = joined.people[:, i].tolist()
            events = joined.events[:, joined.begins[i] : joined.begins[i + 1]].T.tolist()
            for cell, share in _shares(table.kind, table.first, table.second, table.shape, person, events, linked.bins):
                exact[cell] += share
        each = 1 << 16 if table.kind in WITH_EVENTS else 1
        away = abs(tokens - np.array([float(each * share) for share in exact]))
        assert (away <= (joined.n_people if table.kind in WITH_EVENTS else 0)).all(), table.kind


def _shares(
    kind: str, i: int, j: int, shape: tuple[int, ...], person: list[int], events: list[list[int]], bins: tuple[int, ...]
) -> list[tuple[int, Fraction]]:
    k = len(events)
    in_bin = max(at for at, begin in enumerate(bins) if begin <= k)
    if kind == "event":
        weight = Fraction(min(k, 12), 12)
        halves = [(event[i], weight / k) for event in events]
        return halves + [(shape[1] + event[i], (1 - weight) / k) for event in events]
    # A person's cells, with equal shares.
    cells: dict[str, Callable[[], list[int]]] = {
        "people": lambda: [0], "person": lambda: [person[i]], "number": lambda: [k],
        "person-person": lambda: [person[i] * shape[1] + person[j]],
        "number-person": lambda: [in_bin * shape[1] + person[i]],
        "person-event": lambda: [person[i] * shape[1] + event[j] for event in events],
        "event-event": lambda: [event[i] * shape[1] + event[j] for event in events],
        "number-event": lambda: [(in_bin - 1) * shape[1] + event[i] for event in events],
        "two-events": lambda: [int(triangle(np.minimum(one[i], two[i]), np.maximum(one[i], two[i]), shape[0])) for one,
            two in combinations(events, 2)],
    }  # fmt: skip
    found = cells[kind]()
    return [(cell, Fraction(1, len(found))) for cell in found]
