"""What the custodian is told of keys."""

from __future__ import annotations

import polars as pl
import pytest

from sklar.custodian.links import check_links
from tests.linked import small, tables


def test_counts_are_exact() -> None:
    people, events = tables(70)
    events = pl.concat([events, events.head(5).with_columns(person=pl.lit(-1, dtype=pl.Int64))])
    people = pl.concat([people, people.head(2)])
    found = check_links(people, events, small(2))
    numbers = [0 if i % 7 == 0 else 1 + i % 4 for i in range(70)]
    assert found.to_dict() == {
        "people": 70,
        "events": sum(min(number, 2) for number in numbers),
        "unmatched": 5,
        "beyond": sum(max(number - 2, 0) for number in numbers),
        "repeated": 2,
        "without_events": numbers.count(0),
        "most": 2,
    }
    assert all(line.startswith("PRIVATE: ") for line in found.lines())
    assert "2 rows of people have the key of an earlier row" in found.lines()[3]


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (["x"] * 9, "no event has a person. Are both keys the same thing"),
        (list(range(9)), "nobody has two events. If the key is unique for every event, it names events"),
    ],
)
def test_odd_keys_are_explained(owner: list[object], words: str) -> None:
    people, _ = tables(20)
    events = pl.DataFrame({"person": owner, "kind": ["a"] * 9, "urgent": [True] * 9})
    assert words in "\n".join(check_links(people, events, small()).lines())


def test_a_constant_key_is_explained() -> None:
    people, events = tables(20)
    found = check_links(people.with_columns(id=pl.lit(1)), events.with_columns(person=pl.lit(1)), small())
    assert "it names nobody" in found.lines()[-1]
