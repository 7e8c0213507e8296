"""Small linked tables that several test files share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl
from numpy.typing import NDArray

from sklar.budget.plan import TOKENS, sides_of
from sklar.public.schema import Schema
from sklar.public.tree import Branch, Tree
from sklar.rows.count import ask_all
from sklar.rows.trees import LocalTree

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
DAY = 'day = {type = "integer", edges = [0, 2, 5, 10]}'
STEPS = '[attributes]\nstep = {type = "categorical", values = ["x", "y"]}'
Frames = Mapping[str, pl.DataFrame]


def tree(people: str = PEOPLE, events: str = EVENTS, at_most: int = 3, **more: Any) -> Tree:
    """People and their events."""
    below = Branch(name="events", of="people", schema=Schema.from_toml(events), key="person", at_most=at_most, **more)
    return Tree(branches=(Branch(name="people", schema=Schema.from_toml(people), key="id"), below))


def small(at_most: int = 3) -> Tree:
    """Without an order."""
    return tree(at_most=at_most)


def in_order(at_most: int = 3, *, follows: str = "kind", unique: tuple[str, ...] = (), **more: Any) -> Tree:
    """The same with a day by which events are ordered."""
    return tree(events=EVENTS + DAY, at_most=at_most, order="day", follows=follows, unique=unique, **more)


def deep(at_most: int = 3) -> Tree:
    """With steps of events, drugs of people beside, and a public table of regions."""
    people, events = small(at_most).branches
    steps, drugs = (Schema.from_toml(STEPS), Schema.from_toml(STEPS.replace("step", "drug")))
    below = Branch(name="steps", of="events", schema=steps, key="person", parent="event", at_most=2)
    beside = Branch(name="drugs", of="people", schema=drugs, key="person", at_most=2)
    return Tree(branches=(people, replace(events, id="event"), below, beside))


def days(frames: Frames) -> dict[str, pl.DataFrame]:
    """Events with a day: of one person two later each, the rows from the last to the first."""
    dated = frames["events"].with_columns(day=pl.int_range(pl.len()).over("person") * 2).reverse()
    return {**frames, "events": dated}


def tables(n: int = 400) -> dict[str, pl.DataFrame]:
    """People whose region decides what their events are; every seventh has none."""
    number = [0 if i % 7 == 0 else 1 + i % 4 for i in range(n)]
    owner = [i for i in range(n) for _ in range(number[i])]
    sex, region = ["FM"[i % 2] for i in range(n)], [("north", "south", "west")[i % 3] for i in range(n)]
    people = pl.DataFrame({"id": list(range(n)), "sex": sex, "region": region})
    kind, urgent = ["abc"[i % 3] for i in owner], [i % 3 == 0 for i in owner]
    return {"people": people, "events": pl.DataFrame({"person": owner, "kind": kind, "urgent": urgent})}


def deep_tables(n: int = 400) -> dict[str, pl.DataFrame]:
    """With two steps of every second event, of its kind, and a drug of every third person, of their region."""
    frames = tables(n)
    events = frames["events"].with_row_index("event")
    steps = pl.concat([events.filter(pl.col("event") % 2 == 0)] * 2)
    steps = steps.select(
        "person", "event", step=pl.when(pl.col("kind") == "a").then(pl.lit("x")).otherwise(pl.lit("y"))
    )
    drugs = frames["people"].filter(pl.col("id") % 3 == 0).select(person="id", drug=pl.lit("x"))
    return {**frames, "events": events, "steps": steps, "drugs": drugs}


def exact_of(tree: Tree, frames: Frames, each: int = TOKENS) -> dict[str | int, NDArray[Any]]:
    """The exact tokens of all that is measured: of the joint table by order, of sides by name."""
    joint, sides = tree.joint.measured, tuple(side.query for side in sides_of(tree))
    ask = replace(ask_all(joint, sides=sides), tree=tree, each=each)
    return dict(zip([1, 2, *(query.what for query in sides)], LocalTree(frames, tree).count(ask).tables, strict=True))
