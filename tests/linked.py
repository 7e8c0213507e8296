"""Small linked tables that several test files share."""

from __future__ import annotations

import polars as pl

from sklar.public.events import Linked
from sklar.public.schema import Schema

PEOPLE = """
[table]
name = "people"
[attributes]
sex = {type = "categorical", values = ["F", "M"]}
region = {type = "categorical", values = ["north", "south", "west"]}
"""
EVENTS = """
[table]
name = "events"
[attributes]
kind = {type = "categorical", values = ["a", "b", "c"]}
urgent = {type = "boolean"}
"""


def small(at_most: int = 3) -> Linked:
    return Linked(
        people=Schema.from_toml(PEOPLE),
        events=Schema.from_toml(EVENTS),
        people_key="id",
        events_key="person",
        at_most=at_most,
    )


def tables(n: int = 400) -> tuple[pl.DataFrame, pl.DataFrame]:
    """People whose region decides what their events are; every seventh has none."""
    number = [0 if i % 7 == 0 else 1 + i % 4 for i in range(n)]
    owner = [i for i in range(n) for _ in range(number[i])]
    people = pl.DataFrame(
        {
            "id": list(range(n)),
            "sex": [("F", "M")[i % 2] for i in range(n)],
            "region": [("north", "south", "west")[i % 3] for i in range(n)],
        }
    )
    events = pl.DataFrame(
        {"person": owner, "kind": [("a", "b", "c")[i % 3] for i in owner], "urgent": [i % 3 == 0 for i in owner]}
    )
    return people, events
