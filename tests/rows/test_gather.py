"""Rows of people that lie in many parts: as many as are paid for, by fair chances, and the same ones again."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pytest
from scipy.special import gammaincc

from sklar.public.person import NullIds, Person
from sklar.rows import gather
from sklar.rows.gather import Secrets, choose_people, send_people


def chosen(
    rows: pl.DataFrame,
    most: int,
    secrets: Secrets,
    *,
    parts: int = 4,
    buckets: int = 3,
    batch: int = 10,
    null_ids: NullIds = "person",
) -> pl.DataFrame:
    """What is chosen of rows in this many parts; every piece is sent twice, the last part first."""
    person = Person(column="id", count="rows", rows_per_person=most, null_ids=null_ids)
    size = -(-rows.height // parts)
    pieces = [
        piece
        for number, part in reversed(list(enumerate(rows.iter_slices(size))))
        for piece in send_people(part.iter_slices(batch), person, lambda frame: frame, secrets, number, buckets)
    ]
    found = choose_people([*pieces, *pieces], person)
    assert set(found) <= set(range(buckets))
    return pl.concat(found.values()) if found else rows.clear()


def visits(people: int, times: int) -> pl.DataFrame:
    """The rows of a person lie in different parts."""
    return pl.DataFrame({"row": range(people * times), "id": [str(n % people) for n in range(people * times)]})


def test_a_person_has_at_most_so_many_rows_wherever_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, secrets = visits(20, 9), Secrets()
    first = chosen(rows, 2, secrets)
    assert Counter(Counter(rows["id"][row] for row in first["row"]).values()) == {2: 20}
    # The same again, also where records are sent in smaller pieces.
    monkeypatch.setattr(gather, "HELD_BYTES", 100)
    assert sorted(chosen(rows, 2, secrets)["row"]) == sorted(first["row"])
    assert sorted(chosen(rows, 2, secrets, buckets=1)["row"]) == sorted(first["row"])
    assert sorted(chosen(rows, 2, Secrets())["row"]) != sorted(first["row"])
    assert sorted(chosen(rows, 9, secrets)["row"]) == list(range(180))


def test_rows_without_an_id_are_people_or_nobody() -> None:
    rows = pl.DataFrame({"row": range(6), "id": ["a", None, "", "a", None, "b"]})
    person, drop = (chosen(rows, 1, Secrets(), parts=2, null_ids=kind) for kind in ("person", "drop"))
    assert len(set(person["row"]) - {0, 3}) == 4
    assert len(person) == 5
    assert set(drop["row"]) in ({0, 5}, {3, 5})


def test_every_choice_of_a_persons_rows_has_the_same_chance() -> None:
    """Five rows a person in five parts, two chosen: ten choices. False-failure rate: 1e-7."""
    people = 6_000
    rows = visits(people, 5)
    picked = chosen(rows, 2, Secrets(), parts=5, batch=2000)["row"].to_numpy()
    own: dict[int, list[int]] = {}
    for row in picked.tolist():
        own.setdefault(row % people, []).append(row // people)
    found = Counter(tuple(sorted(pair)) for pair in own.values())
    assert len(own) == people
    assert len(found) == 10
    statistic = sum((times - people / 10) ** 2 / (people / 10) for times in found.values())
    assert float(gammaincc(9 / 2, statistic / 2)) >= 1e-7


def test_secrets_are_not_shown_and_words_are_of_part_and_row() -> None:
    secrets = Secrets()
    assert "b'" not in repr(secrets)
    words = gather.words_of(secrets.rows, 3, 10, 4)
    assert np.array_equal(words[2:], gather.words_of(secrets.rows, 3, 12, 2))
    assert len({tuple(word) for number in range(3) for word in gather.words_of(secrets.rows, number, 0, 5)}) == 15
