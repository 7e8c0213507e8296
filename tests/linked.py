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
    people, events = Schema.from_toml(PEOPLE), Schema.from_toml(EVENTS)
    return Linked(people=people, events=events, people_key="id", events_key="person", at_most=at_most)


def tables(n: int = 400) -> tuple[pl.DataFrame, pl.DataFrame]:
    """People whose region decides what their events are; every seventh has none."""
    number = [0 if i % 7 == 0 else 1 + i % 4 for i in range(n)]
    owner = [i for i in range(n) for _ in range(number[i])]
    sex, region = ["FM"[i % 2] for i in range(n)], [("north", "south", "west")[i % 3] for i in range(n)]
    people = pl.DataFrame({"id": list(range(n)), "sex": sex, "region": region})
    kind, urgent = ["abc"[i % 3] for i in owner], [i % 3 == 0 for i in owner]
    return people, pl.DataFrame({"person": owner, "kind": kind, "urgent": urgent})
