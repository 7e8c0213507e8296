"""People and their events: what is matched, dropped and chosen, tokens, and how far a person can move tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from sklar.budget.plan import IN_ORDER, WITH_EVENTS, LinkedTable, Plan, linked_queries, linked_tables, plan_linked
from sklar.errors import DataError
from sklar.kernel.queries import Shares
from sklar.kernel.theorems import Budget
from sklar.public.events import Linked
from sklar.rows.encode import id_texts
from sklar.rows.shares import Joined, count_tokens, join, triangle
from tests.linked import days, in_order, small, tables

TOKENS = 1_024
# People with up to three events, and with up to four that have an order.
SCHEMAS = {"no order": small(), "in order": in_order(4), "days alone": in_order(4, follows="")}


def tables_of(linked: Linked) -> list[LinkedTable]:
    return [table for tables in linked_tables(linked).values() for table in tables]


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


def one_person(person: tuple[int, ...], events: tuple[tuple[int, ...], ...], times: tuple[int, ...] = ()) -> Joined:
    return Joined(
        people=np.array(person, dtype=np.int16)[:, None],
        events=np.array(events, dtype=np.int16).reshape(-1, 3).T.copy(),
        begins=np.array([0, len(events)]),
        times=np.array(times or [0] * len(events), dtype=np.int64),
        unmatched=0,
        beyond=0,
        repeated=0,
    )


def tokens_of(joined: Joined, plan: Plan, linked: Linked) -> list[NDArray[np.int64]]:
    """The tokens of all people in every table of the plan, in its order."""
    counted = zip(plan.parts, count_tokens(joined, linked, plan), strict=True)
    return [part for (query, _), counts in counted for part in np.split(counts, np.cumsum(query.sizes)[:-1])]


def everyone(linked: Linked) -> list[list[NDArray[np.int64]]]:
    """The tokens of every person there can be, and values in no cell: those without order alike."""
    # Some kinds of events, so that all people can be compared with all.
    some = [(-1, 0, 0), (0, 0, 0), (0, 1, 2), (1, 1, -1), (2, -1, 1), (2, 0, 1)]
    plan = plan_linked(linked, Budget(epsilon=1.0, neighbors="add-remove", rows_per_person=1))
    found = []
    for person in ((-1, 0), (0, 2), (1, 0)) if not linked.order else ((0, 2), (1, 0)):
        for number in range(linked.at_most + 1):
            for events in combinations_with_replacement(some, number):
                for turned in {events, events[::-1], events[1:] + events[:1]} if linked.order else {events}:
                    # In order, with ties; who has no level of the order has no place in it.
                    days = np.cumsum([3 * (event[0] == 0) + event[1] // 2 * 2 for event in turned]).tolist()
                    times = tuple(-1 if event[2] < 0 else min(day, 9) for event, day in zip(turned, days, strict=True))
                    found.append(tokens_of(one_person(person, turned, times), plan, linked))
    return found


@pytest.mark.parametrize("schema", SCHEMAS)
def test_replacing_a_whole_person_stays_within_the_claim(schema: str) -> None:
    linked = SCHEMAS[schema]
    people = everyone(linked)
    for place, table in enumerate(tables_of(linked)):
        each = TOKENS if table.kind in WITH_EVENTS else 1
        vectors = np.unique(np.array([person[place] for person in people]), axis=0).astype(np.float64)
        squares = (vectors**2).sum(axis=1)
        distances = squares[:, None] + squares - 2 * vectors @ vectors.T
        # Shifts are 2 for a replaced person and 1 for one who comes or goes, each of `each` tokens.
        assert distances.max() <= 2 * each**2 + 1e-6, table.kind
        assert squares.max() <= each**2, table.kind
        assert vectors.min() >= 0, table.kind
        assert vectors.sum(axis=1).max() <= each, table.kind
        # The claim is tight: a smaller one would be wrong. (With few events nobody is in one half of a one-way table.)
        if table.kind == "event":
            continue
        if table.cells > 1:
            assert distances.max() == pytest.approx(2 * each**2), table.kind
        assert squares.max() == each**2, table.kind


def test_steps_of_one_person_are_one_unit_however_many_there_are() -> None:
    """The largest persons there can be: a thousand events, alike or at random, with and without a level."""
    linked, rng = in_order(1_000), np.random.default_rng(3)
    plan = plan_linked(linked, Budget(epsilon=1.0, rows_per_person=1))
    for k in (2, 3, 999, 1_000):
        for levels in ([[0, 0, 0]] * k, rng.integers(-1, 2, (k, 3)).tolist()):
            person = one_person((0, 0), tuple(map(tuple, levels)), tuple(np.sort(rng.integers(0, 10, k)).tolist()))
            for (query, _), tokens in zip(plan.parts, count_tokens(person, linked, plan), strict=True):
                if isinstance(query, Shares) and query.what in IN_ORDER:
                    assert tokens.min() >= 0
                    assert tokens.sum() <= query.each
                    assert np.any(levels) or tokens.sum() == query.each


@pytest.mark.parametrize("schema", SCHEMAS)
def test_shares_are_those_of_the_recipe(schema: str) -> None:
    """Against fractions that are added up person by person, to a token each."""
    people, events = tables(60)
    linked = SCHEMAS[schema]
    joined = join(people, days(events), linked)
    queries = linked_queries(linked, 1 << 16, total=True)
    plan = Plan(parts=tuple((query, np.ones(query.sizes.size)) for query in queries))
    for table, tokens in zip(tables_of(linked), tokens_of(joined, plan, linked), strict=True):
        exact = [Fraction(0)] * table.cells
        for i in range(joined.n_people):
            person, own = joined.people[:, i].tolist(), slice(joined.begins[i], joined.begins[i + 1])
            for cell, share in _shares(
                table, person, joined.events[:, own].T.tolist(), joined.times[own].tolist(), linked
            ):
                exact[cell] += share
        each = 1 << 16 if table.kind in WITH_EVENTS else 1
        away = abs(tokens - np.array([float(each * share) for share in exact]))
        assert (away <= (joined.n_people if table.kind in WITH_EVENTS else 0)).all(), table.kind


def _shares(
    table: LinkedTable, person: list[int], events: list[list[int]], times: list[int], linked: Linked
) -> list[tuple[int, Fraction]]:
    k, kind, i, j, shape = len(events), table.kind, table.first, table.second, table.shape
    in_bin = max(at for at, begin in enumerate(linked.bins) if begin <= k)
    if kind == "event":
        weight = Fraction(min(k, 12), 12)
        halves = [(event[i], weight / k) for event in events]
        return halves + [(shape[1] + event[i], (1 - weight) / k) for event in events]
    assert times == sorted(times)
    gaps = [max(at for at, begin in enumerate(linked.course.gaps) if begin <= later - time)
        for time, later in pairwise(times)] if linked.course else []  # fmt: skip

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
        "first-event": lambda: [event[i] for event in events[:1]],
        "next-event": lambda: [one[i] * shape[1] + two[i] for one, two in pairwise(events)],
        "event-gap": lambda: [event[i] * shape[1] + gap for event, gap in zip(events, gaps, strict=False)],
        "number-gap": lambda: [(in_bin - 2) * shape[1] + gap for gap in gaps],
    }  # fmt: skip
    found = cells[kind]()
    return [(cell, Fraction(1, len(found))) for cell in found]


def test_events_stand_in_order_and_those_that_must_be_unique_once() -> None:
    people = pl.DataFrame({"id": ["x", "y"], "sex": ["F", "F"], "region": ["north", "north"]})
    events = pl.DataFrame({
        "person": ["x", "y", "x", "x", "x", "y"], "kind": ["a", "b", "b", "c", "a", "b"], "urgent": [True] * 6,
        "day": [7, 99, 3, 3, None, 99],
    })  # fmt: skip
    found = join(people, events, in_order(4))
    # No time comes before all, equal ones as they stand in the table; values outside are the last of the domain.
    assert found.times.tolist() == [-1, 3, 3, 7, 9, 9]
    assert found.events[0].tolist() == [0, 1, 2, 0, 1, 1]
    assert join(people, events, in_order(4, unique=("day",))).events[0].tolist() == [0, 1, 0, 1]
    assert join(people, events, in_order(4, unique=("kind", "urgent"))).events[0].tolist() == [1, 2, 0, 1]
    odd: list[Any] = [
        [None] * 6,
        [[1]] * 6,
        [float("nan"), float("inf"), -float("inf"), 1e300, 0.5, None],
        ["x", "7", "", "9.5", "-1", None],
    ]
    for days_of in odd:
        times = join(people, events.with_columns(day=pl.Series(days_of, strict=False)), in_order(4)).times
        assert times.min() >= -1
        assert times.max() <= 9
