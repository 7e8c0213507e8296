"""People and events put together by their keys: what is matched, dropped and chosen; and that no value raises."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from sklar.errors import DataError
from sklar.rows.join import Joined, LinkedRows, key_texts
from tests.linked import small, tables


def joined(ids: Any, owners: Any, *, at_most: int = 3) -> Joined:
    people = pl.DataFrame({"id": ids, "sex": ["F"] * len(ids), "region": ["north"] * len(ids)})
    kinds = [("a", "b", "c")[i % 3] for i in range(len(owners))]
    events = pl.DataFrame({"person": owners, "kind": kinds, "urgent": [True] * len(owners)})
    return LinkedRows(people, events, small(at_most)).join()


def test_events_stand_with_their_people() -> None:
    found = joined(["x", "y", "z"], ["z", "x", "z", "x"])
    assert found.numbers.tolist() == [2, 0, 2]
    assert found.events[0].tolist() == [1, 0, 0, 2]
    assert (found.unmatched, found.beyond, found.repeated) == (0, 0, 0)
    assert repr(found) == "Joined(private)"


def test_keys_without_a_person_are_dropped_and_counted() -> None:
    found = joined([1, 2], [2, 3, None, 2])
    assert found.numbers.tolist() == [0, 2]
    assert found.unmatched == 2


def test_people_without_a_key_are_people_without_events() -> None:
    found = joined([None, "a", None], ["a", None])
    assert found.n_people == 3
    assert found.numbers.tolist() == [0, 1, 0]


def test_a_person_counts_once() -> None:
    found = joined([5, 5, 6], [5, 6, 5])
    assert (found.n_people, found.repeated) == (2, 1)
    assert found.numbers.tolist() == [2, 1]


def test_keys_of_any_type_are_compared_as_texts() -> None:
    assert joined([1, 2], ["2", "02"]).numbers.tolist() == [0, 1]
    assert joined([1.0, 2.0, None], [1, 2]).numbers.tolist() == [1, 1, 0]
    assert joined([dt.date(2020, 1, 1)], ["2020-01-01"]).numbers.tolist() == [1]
    assert joined([Decimal("1.50")], [Decimal("1.50")]).numbers.tolist() == [1]


def test_no_key_raises() -> None:
    odd = [[1], b"\xff", object(), float("nan"), 10**30, "", "x" * 9, None]
    column = pl.Series(odd, dtype=pl.Object)
    assert key_texts(column).null_count() >= 3
    for values in ([[1, 2], [3]], [{"a": 1}], [b"\xff", b"a"], [float("inf"), float("nan")], [True, None]):
        assert len(key_texts(pl.Series(values))) == len(values)


def test_of_too_many_events_a_random_part_is_chosen_afresh() -> None:
    """Of 12 events 3 are chosen: each with the same chance, and every run anew."""
    ids = list(range(2_000))
    owners = np.repeat(ids, 12).tolist()
    found = joined(ids, owners)
    assert found.numbers.tolist() == [3] * 2_000
    assert found.beyond == 9 * 2_000
    # Kinds come in turn, so that a third of each is chosen: 5 sd of 6,000 draws without replacement is below 190.
    assert (abs(np.bincount(found.events[0]) - 2_000) < 190).all()
    assert joined(ids, owners).events[0].tolist() != found.events[0].tolist()


def test_a_key_that_a_table_lacks_is_told(tmp_path: Path) -> None:
    people, events = tables(10)
    with pytest.raises(DataError, match=r"has no column 'id', which \[people\] names as its key"):
        LinkedRows(people.drop("id"), events, small())
    with pytest.raises(DataError, match=r"has no column 'person', which \[events\] names as its key"):
        LinkedRows(people, events.drop("person"), small())
    with pytest.raises(DataError, match="has no column for 'kind'"):
        LinkedRows(people, events.drop("kind"), small())
    with pytest.raises(DataError, match="does not exist"):
        LinkedRows(tmp_path / "people.csv", events, small())


def test_parts_cover_everyone_once() -> None:
    found = joined(list(range(50)), [0] * 3 + [49] * 2)
    assert [person for first, last in found.parts() for person in range(first, last)] == list(range(50))
