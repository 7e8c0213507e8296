"""Two tables of the same people: one row a person in the first, any number of events of a person in the second.

Both are described by schemas of their own. A key column in each says whose row it is; it is used to find the events of
a person and never released. At most `at_most` events of a person count. Where an attribute of events says in which
`order` they come, it is measured how they follow one another, and drawn ones do so.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from math import ceil
from pathlib import Path
from typing import Any

from sklar.errors import BudgetError, SchemaError
from sklar.kernel.theorems import Budget
from sklar.public.attribute import Attribute, refuse, within
from sklar.public.description import read_described, toml_table
from sklar.public.outputs import grain, spread
from sklar.public.schema import Schema

# A person with more events than this is no person, but a mistake in the key.
MOST_EVENTS = 1_000
# A fit holds squares of all levels, and a table of two events half of that of an attribute: 64 MB each.
MAX_LINKED_LEVELS = 4_000
_KEYS = {"people": ("key", "schema"), "events": ("at_most", "key", "schema")}
_IN_TIME = ("order", "follows", "unique")
# What can be the order of events, and with how many levels one of the others follows another.
_ORDERED = ("date", "datetime", "integer", "year", "yearmonth")
MOST_FOLLOWING = 16
# Gaps are told apart from this share of the domain of the order on, each bin twice as wide as the one before.
_FINEST_GAP = 1 << 13


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What is public of the order of events, all in steps of `step` numbers on the axis of attribute `order`.

    Times begin with `first` and are 0 to `width` - 1 steps later; `edges` are where bins of times begin, `gaps` where
    bins of gaps do, `numbers` where those of the number of events do, and all where the last one ends. What follows one
    another are the `states` levels of attribute `follows`, or a single one (`follows` is None). No two events of a
    person have one time where times are `strict`.
    """

    order: int
    follows: int | None
    states: int
    step: int
    first: int
    edges: tuple[int, ...]
    gaps: tuple[int, ...]
    numbers: tuple[int, ...]
    strict: bool

    @property
    def width(self) -> int:
        """How many times there are."""
        return self.edges[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """What is publicly known of a table of people and a table of their events, and the columns that hold the keys.

    `at_most` is how many events of a person count: of those who have more, so many are chosen at random. `order` is the
    attribute of events by which those of a person are ordered, and `follows` the one whose level depends on that of the
    event before. A person has at most one event with the same values of all attributes of `unique`: further ones are
    left out, those that stand later in the table, before any are chosen.
    """

    people: Schema
    events: Schema
    people_key: str
    events_key: str
    at_most: int
    order: str = ""
    follows: str = ""
    unique: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if type(self.at_most) is not int or not 1 <= self.at_most <= MOST_EVENTS:
            got = f"a whole number from 1 to {MOST_EVENTS:,}, got {self.at_most!r}"
            raise SchemaError(f"[events] at_most must be {got}. Give the number of events that hardly anyone exceeds.")
        for part, (schema, key) in self.parts.items():
            with within(f"[{part}] "):
                _check(schema, key)
        levels = self.people.n_levels + self.events.n_levels
        if levels > MAX_LINKED_LEVELS:
            raise SchemaError(f"both schemas must have at most {MAX_LINKED_LEVELS} levels together, got {levels}.")
        with within("[events] "):
            _check_order(self)

    @property
    def course(self) -> Course | None:
        """What is public of the order of events; None where they have none."""
        if not self.order:
            return None
        place = self.events.names.index(self.order)
        step, edges = _steps(self.events.attributes[place])
        begins = takewhile(lambda gap: gap < edges[-1], (ceil(edges[-1] / _FINEST_GAP) << k for k in range(14)))
        follows = self.events.names.index(self.follows) if self.follows else None
        return Course(
            order=place,
            follows=follows,
            states=1 if follows is None else int(self.events.sizes[follows]),
            step=step,
            first=-(-int(self.events.attributes[place].edges[0]) // step),
            edges=edges,
            gaps=(0, *begins, edges[-1]),
            numbers=self.bins,
            strict=self.unique == (self.order,),
        )

    @property
    def parts(self) -> dict[str, tuple[Schema, str]]:
        """Each table by its heading: its schema, and the column of its keys."""
        return {"people": (self.people, self.people_key), "events": (self.events, self.events_key)}

    def part(self, name: str) -> LinkedPart:
        """One of the tables, by its heading or by its name."""
        found = [heading for heading, (schema, _) in self.parts.items() if name in (heading, schema.name)]
        # Tables of one name are told apart by their headings.
        if name not in found and len(found) != 1:
            known = " or ".join(f"{heading} ('{schema.name}')" for heading, (schema, _) in self.parts.items())
            raise SchemaError(f"linked tables have no table '{name}' of its own. Name {known}.")
        return LinkedPart(linked=self, name=name if name in found else found[0])

    @classmethod
    def of(cls, given: Linked | str | Path) -> Linked:
        """What a caller gives, by value or as the path of its file."""
        return given if isinstance(given, Linked) else cls.load(given)

    @classmethod
    def load(cls, path: str | Path) -> Linked:
        """Read a file of linked tables (TOML), or a model file; schemas that it names lie beside it."""
        return cls.from_dict(read_described(path), folder=Path(path).parent)

    @staticmethod
    def is_at(path: str | Path) -> bool:
        """Whether a file describes linked tables. What cannot be read does not: whoever loads it finds out why."""
        with suppress(SchemaError):
            return _KEYS.keys() <= read_described(path).keys()
        return False

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], *, folder: Path | None = None) -> Linked:
        """Build it from parsed TOML, or the same in JSON. A schema is a table, or the path of a file in `folder`."""
        unknown = min(set(document) - set(_KEYS), default=None)
        refuse((unknown, f"linked tables: unknown key '{unknown}'. Known are [people] and [events]."))
        schemas: dict[str, Any] = {}
        for part, keys in _KEYS.items():
            entry, known = document.get(part), ", ".join(keys)
            if not isinstance(entry, Mapping):
                raise SchemaError(f"linked tables need [{part}] with {known}. Add it.")
            optional = _IN_TIME if part == "events" else ()
            odd = min((set(entry) ^ set(keys)) - (set(entry) & set(optional)), default=None)
            what = f"unknown key '{odd}'" if odd in entry else f"'{odd}' is missing"
            refuse((odd, f"[{part}] {what}. It has {known}."))
            given = entry["schema"]
            if isinstance(given, Mapping):
                schemas[part] = Schema.from_dict(given)
            elif isinstance(given, str) and given and folder is not None:
                schemas[part] = Schema.load(folder / given)
            else:
                raise SchemaError(f"[{part}] schema must name a schema file or hold a schema, got {given!r}.")
        people, events = document["people"], document["events"]
        in_time: dict[str, Any] = {key: events[key] for key in _IN_TIME if key in events}
        in_time |= {key: tuple(value) for key, value in in_time.items() if isinstance(value, list)}
        named = {"people_key": people["key"], "events_key": events["key"], "at_most": events["at_most"]}
        return cls(**schemas, **named, **in_time)

    def to_dict(self) -> dict[str, Any]:
        """The structure that `from_dict` reads."""
        people, events = ({"schema": schema.to_dict(), "key": key} for schema, key in self.parts.values())
        return {"people": people, "events": {**events, **self._of_events}}

    @property
    def _of_events(self) -> dict[str, Any]:
        """What is said of the table of events beside its schema and key."""
        in_time = {"order": self.order, "follows": self.follows, "unique": list(self.unique)}
        return {"at_most": self.at_most, **{key: value for key, value in in_time.items() if value}}

    def to_toml(self) -> str:
        """Both schemas as the text of one file, as a person would write it."""
        texts = []
        for part, (schema, key) in self.parts.items():
            keys = {"key": key} | (self._of_events if part == "events" else {})
            # Every heading of the schema begins with its place here. Only headings begin a line with a bracket.
            texts += [toml_table(f"[{part}]", keys), re.sub(r"(?m)^\[", f"[{part}.schema.", schema.to_toml())]
        return "\n".join(texts)

    @property
    def name(self) -> str:
        """What a ledger calls both tables, unless told otherwise."""
        return self.people.name

    @property
    def digest(self) -> str:
        """SHA-256 of the content, whatever the layout on disk."""
        canonical = json.dumps(self.to_dict(), separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def read_from_rows(self) -> tuple[str, ...]:
        """Attributes whose domain was read from the rows: the promise does not cover what these domains tell."""
        return tuple(f"{part}: {name}" for part, (schema, _) in self.parts.items() for name in schema.read_from_rows)

    @property
    def unread(self) -> tuple[str, ...]:
        """Attributes that were accepted as a draft of the rows proposed them: the promise does not cover that."""
        return tuple(f"{part}: {name}" for part, (schema, _) in self.parts.items() for name in schema.unread)

    @property
    def bins(self) -> tuple[int, ...]:
        """Where the bins of the number of events begin, and where the last one ends: 0, 1, 2, 3-4, 5-8, 9-16, ..."""
        begins, step = [0, 1], 1
        while begins[-1] + step <= self.at_most:
            begins.append(begins[-1] + step)
            step = begins[-1] - 1
        return (*begins, self.at_most + 1)

    def budget_for(self, budget: Budget) -> Budget:
        """The same budget for any one person, who gives at most one unit to a table however many events they have."""
        if budget.rows_per_person not in (None, 1):
            got = f"got rows_per_person={budget.rows_per_person}. Leave it out, and give at_most in [events]"
            raise BudgetError(f"linked tables cost the same for any number of events, {got}.")
        return replace(budget, rows_per_person=1)

    def require_reviewed(self) -> None:
        """Refuse entries that a draft proposed and nobody has reviewed."""
        self.people.require_reviewed()
        self.events.require_reviewed()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedPart:
    """One of two linked tables, "people" or "events", to ask about by itself; of events a person's share one unit."""

    linked: Linked
    name: str

    @property
    def schema(self) -> Schema:
        """What is publicly known of it."""
        return self.linked.parts[self.name][0]

    @property
    def of_people(self) -> bool:
        """Whether its rows are people."""
        return self.name == "people"


def _check(schema: Schema, key: object) -> None:
    """Refuse a key that is no column of ids, and what a schema of linked tables cannot have."""
    named, private = isinstance(key, str) and key, next((each.name for each in schema.private_domains), None)
    listed, parts = key in schema.columns, len(schema.columns) < schema.n_attributes
    refuse(
        (not named, f"key must name the column that says whose row it is, got {key!r}."),
        (listed, f"key '{key}' is also an attribute of its schema. It is not released: remove it there."),
        (parts, "linked tables take no parts of columns yet. Give each column one attribute, without part_of."),
        (schema.person, "the key says whose row it is: its schema takes no [table] person. Remove it and its keys."),
        (private, f"domains of linked tables must be public, got a private one: '{private}'. List its levels."),
        (schema.rules, "linked tables take no rules yet. Remove [[rules]] from the schema."),
        (schema.target, "linked tables take no target yet. Remove it from [table]."),
        (schema.importance is not None, "linked tables take no weights yet. Remove weight and [[pairs]]."),
    )


def _check_order(linked: Linked) -> None:
    """Refuse an order that drawn events could not have, and rules that they could not keep."""
    order, follows, unique, events = linked.order, linked.follows, linked.unique, linked.events
    refuse((not isinstance(unique, tuple), f"unique must be a list of attributes, got {unique!r}."))
    odd = next((name for name in (order or None, follows or None, *unique) if name not in (None, *events.names)), None)
    has = f"It has {', '.join(events.names)}."
    refuse(
        (odd is not None, f"order, follows and unique must name attributes of its schema, got {odd!r}. {has}"),
        (len(set(unique)) < len(unique), "unique names an attribute twice. Remove one."),
    )
    wide = next((name for name in unique if name != order and spread(events.attribute(name))), None)
    refuse(
        (wide, f"unique attributes need levels of one value each: '{wide}' has bins of several. Divide them."),
        (follows and not order, "follows needs an order: name the attribute by which events are ordered."),
    )
    if not order:
        return
    timed = events.attribute(order)
    states = events.attribute(follows).n_levels if follows else 1
    apart = timed.missing is not None or timed.special or timed.points or timed.clip is not None
    refuse(
        (timed.kind not in _ORDERED, f"order must be one of {', '.join(_ORDERED)}: '{order}' is {timed.axis.one}."),
        (apart, f"order takes bins alone: remove missing, special, points and clip of '{order}'."),
        (linked.at_most < 2, "order needs an at_most of 2 or more."),
        (follows == order, f"follows must name another attribute than order, got '{order}' for both."),
        (states > MOST_FOLLOWING, f"follows takes at most {MOST_FOLLOWING} levels: '{follows}' has {states}."),
    )
    course = linked.course
    most = course.width if course is not None and course.strict else linked.at_most
    refuse((most < linked.at_most, f"unique '{order}' has {most} values: at_most must be at most so many."))


def _steps(attribute: Attribute) -> tuple[int, tuple[int, ...]]:
    """The step between the numbers of an order, and where its bins begin, in steps after the first number."""
    step = int(grain(attribute) or 1)
    edges = [-(-int(edge) // step) for edge in attribute.edges]
    return step, tuple(edge - edges[0] for edge in edges)
