"""Small linked tables that several test files share."""

from __future__ import annotations

from dataclasses import replace

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


DAY = 'day = {type = "integer", edges = [0, 2, 5, 10]}'


def in_order(at_most: int = 3, *, follows: str = "kind", unique: tuple[str, ...] = ()) -> Linked:
    """The same with a day by which events are ordered."""
    linked = small(at_most)
    return replace(linked, events=Schema.from_toml(EVENTS + DAY), order="day", follows=follows, unique=unique)


def days(events: pl.DataFrame) -> pl.DataFrame:
    """Events with a day: of one person a step later each, the rows from the last to the first."""
    return events.with_columns(day=pl.int_range(pl.len()).over("person") * 2).reverse()


def tables(n: int = 400) -> tuple[pl.DataFrame, pl.DataFrame]:
    """People whose region decides what their events are; every seventh has none."""
    number = [0 if i % 7 == 0 else 1 + i % 4 for i in range(n)]
    owner = [i for i in range(n) for _ in range(number[i])]
    sex, region = ["FM"[i % 2] for i in range(n)], [("north", "south", "west")[i % 3] for i in range(n)]
    people = pl.DataFrame({"id": list(range(n)), "sex": sex, "region": region})
    kind, urgent = ["abc"[i % 3] for i in owner], [i % 3 == 0 for i in owner]
    return people, pl.DataFrame({"person": owner, "kind": kind, "urgent": urgent})
