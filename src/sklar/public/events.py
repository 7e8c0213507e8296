"""Two tables of the same people: one row a person in the first, any number of events of a person in the second.

Both are described by schemas of their own. A key column in each says whose row it is; it is used to find the events of
a person and never released. At most `at_most` events of a person count.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sklar.errors import BudgetError, SchemaError
from sklar.kernel.theorems import Budget
from sklar.public.attribute import refuse, within
from sklar.public.description import read_described, toml_table
from sklar.public.schema import Schema

# A person with more events than this is no person, but a mistake in the key.
MOST_EVENTS = 1_000
# Codes of linked rows are held in two bytes, and every class of people has a probability of every level.
MAX_LINKED_LEVELS = 20_000
_KEYS = {"people": ("key", "schema"), "events": ("at_most", "key", "schema")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """What is publicly known of a table of people and a table of their events, and the columns that hold the keys.

    `at_most` is how many events of a person count: of those who have more, so many are chosen at random.
    """

    people: Schema
    events: Schema
    people_key: str
    events_key: str
    at_most: int

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
        schemas = {}
        for part, keys in _KEYS.items():
            entry, known = document.get(part), ", ".join(keys)
            if not isinstance(entry, Mapping):
                raise SchemaError(f"linked tables need [{part}] with {known}. Add it.")
            odd = min(set(entry) ^ set(keys), default=None)
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
        return cls(**schemas, people_key=people["key"], events_key=events["key"], at_most=events["at_most"])

    def to_dict(self) -> dict[str, Any]:
        """The structure that `from_dict` reads."""
        people, events = ({"schema": schema.to_dict(), "key": key} for schema, key in self.parts.values())
        return {"people": people, "events": {**events, "at_most": self.at_most}}

    def to_toml(self) -> str:
        """Both schemas as the text of one file, as a person would write it."""
        texts = []
        for part, (schema, key) in self.parts.items():
            keys = {"key": key} | ({"at_most": self.at_most} if part == "events" else {})
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
