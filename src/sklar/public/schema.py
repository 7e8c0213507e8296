"""What is publicly known of a table: each attribute's type, its finite domain, and the rules between attributes.

A schema is written from public knowledge, never from the rows: every noised table covers the domain that the schema
states in full, so the domain must not depend on who is in the data. Levels have codes in the schema's order: listed
values (or bins and points along the axis), then special values, then `missing`, then `other`.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from sklar.errors import SchemaError
from sklar.kernel.cells import Cells, read_only
from sklar.machine.notebook import html_card
from sklar.machine.wording import said
from sklar.public import declare, settings
from sklar.public.attribute import NO_WORDS, Attribute, Domain, Provenance, Remembering, Words, refuse, repeated, within
from sklar.public.axis import AttributeKind
from sklar.public.declare import MAX_LEVELS
from sklar.public.description import describes_tree, parse_toml, read_described, toml_key, toml_table
from sklar.public.rules import Allowed, Determined, Rule, allowed_pairs, forbidden_rules, origins, parse_rules

__all__ = ["MAX_LEVELS", "Attribute", "AttributeKind", "Domain", "Schema", "SchemaLike"]

# For squares of all pairs of levels: 1.6 GB in single precision.
MAX_SQUARE = 20_000
MAX_ATTRIBUTES = 10_000
# A single two-way table is worked on as a whole.
MAX_TABLE = 100_000_000

# How much a single two-way table matters: two attributes and a weight.
PairWeight = tuple[str, str, float]
# How many times as much a two-way table matters that holds a target.
TARGET_WEIGHT = 2.0


class HasSchema(Protocol):
    """What has a schema: a model, a draft."""

    @property
    def schema(self) -> Schema:
        """What is publicly known of its table."""


SchemaLike: TypeAlias = "Schema | HasSchema | str | Path"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Schema(Remembering):
    """The public description of a table: its name, its attributes in the order of the release, and rules between them.

    The schema of the measured part names the full one as its `whole`. `reading` says how the table's text is written,
    `person` which rows are one person's (None: each row is its own). `pairs` weigh single two-way tables: `weight = 3`
    triples the privacy cost of a table before all are scaled to the budget. A draft asks whether a person can have
    several rows where the columns `ask_person` repeat. `rows_about` is public knowledge of how many rows count.
    `target` names the attributes that the release is for (`aimed`).
    """

    name: str
    attributes: tuple[Attribute, ...]
    rules: tuple[Rule, ...] = ()
    reading: settings.Reading = settings.PLAIN
    person: settings.Person | None = None
    whole: Schema | None = None
    words: Words = NO_WORDS
    pairs: tuple[PairWeight, ...] = ()
    ask_person: tuple[str, ...] = ()
    rows_about: int | None = None
    target: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Schema('{self.name}', {self.n_attributes:,} attributes, {self.n_levels:,} levels)"

    @classmethod
    def of(cls, given: SchemaLike) -> Schema:
        """The schema that a caller gives: by value, as the path of a schema or model file, or of what has a schema."""
        if isinstance(given, str | Path):
            return cls.load(given)
        schema = given if isinstance(given, Schema) else getattr(given, "schema", None)
        if not isinstance(schema, Schema):
            raise SchemaError(f"a schema must be a Schema, the path of one, or a model, got {type(given).__name__}.")
        return schema

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema file (TOML), or the schema of a model file."""
        return cls.from_dict(read_described(path))

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """Parse a schema from TOML text."""
        return cls.from_dict(parse_toml(text))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Schema:
        """Build a schema from parsed TOML, or from the same structure in JSON."""
        if describes_tree(document):
            raise SchemaError(said("public.linked"))
        with within("schema: "):
            declare.require_known_keys(document, ("table", "attributes", "rules", "pairs"))
        table, entries = document.get("table", {}), document.get("attributes")
        if not isinstance(table, Mapping):
            raise SchemaError("[table] must be a table of settings. Write [table] and name = '...' below it.")
        with within("[table]: "):
            known = ("name", "rows_about", "target", "ask_person", *declare.TABLE_WORDS)
            declare.require_known_keys(table, (*known, *settings.READING_KEYS, *settings.PERSON_KEYS))
            words, rows = declare.parse_words(table), table.get("rows_about")
        name, asked, aims = table.get("name", "table"), table.get("ask_person", []), table.get("target", [])
        whole = rows is None or (type(rows) is int and rows > 0)
        refuse(
            (not isinstance(name, str) or not name, f"[table] name must be a text that is not empty, got {name!r}."),
            (not isinstance(asked, list) or not all(isinstance(each, str) for each in asked), said("public.asked")),
            (not whole, f"[table] rows_about must be a whole number of at least 1, got {rows!r}."),
        )
        if not isinstance(entries, Mapping) or not entries:
            raise SchemaError("the schema lists no attributes. Add [attributes.NAME] for each column to release.")
        attributes = tuple(declare.build_attribute(key, entry) for key, entry in entries.items())
        reading = settings.parse_reading(table)
        settings.check_reading(reading, attributes)
        person = settings.parse_person(table, entries)
        facts: dict[str, Any] = {"reading": reading, "person": person, "words": words, "rows_about": rows}
        schema = cls(name=name, attributes=attributes, ask_person=tuple(asked), **facts).checked()
        rules = parse_rules(document.get("rules", []), attributes)
        schema = replace(schema, rules=rules) if rules else schema
        schema = schema.aimed(*aims) if isinstance(aims, list | tuple) else schema.aimed(aims)
        pairs = _parse_pairs(document.get("pairs", []), schema)
        return replace(schema, pairs=pairs) if pairs else schema

    def to_dict(self) -> dict[str, Any]:
        """The structure that `from_dict` reads."""
        table: dict[str, Any] = {"name": self.name}
        table |= {} if self.rows_about is None else {"rows_about": self.rows_about}
        table |= {"target": list(self.target) if len(self.target) > 1 else self.target[0]} if self.target else {}
        table |= declare.describe_words(self.words) | settings.describe_person(self.person)
        table |= {"ask_person": list(self.ask_person)} if self.ask_person else {}
        levels = {attribute.name: attribute.levels for attribute in self.attributes} if self.rules else {}
        document = {
            "table": table | settings.describe_reading(self.reading),
            "attributes": {attribute.name: declare.describe_attribute(attribute) for attribute in self.attributes},
            "rules": [rule.describe(levels) for rule in self.rules],
            "pairs": [{"attributes": [one, other], "weight": weight} for one, other, weight in self.pairs],
        }
        return {key: entries for key, entries in document.items() if entries or key in ("table", "attributes")}

    def to_toml(self) -> str:
        """The schema as TOML text, one line per key, as a person would write it."""
        document = self.to_dict()
        parts = [toml_table("[table]", document["table"])]
        parts += [toml_table(f"[attributes.{toml_key(key)}]", each) for key, each in document["attributes"].items()]
        parts += [toml_table(f"[[{key}]]", each) for key in ("rules", "pairs") for each in document.get(key, ())]
        return "\n".join(parts)

    def checked(self) -> Schema:
        """This schema, or an error when it is too large to be measured, or two dummies would share a name."""
        largest = max(self.attributes, key=lambda attribute: attribute.n_levels)
        first, second = sorted([0, 0, *(attribute.n_levels for attribute in self.attributes)])[-2:]
        sizes = {"n": self.n_levels, "name": largest.name, "own": largest.n_levels}
        refuse(
            (self.n_levels > MAX_LEVELS, said("public.levels", most=MAX_LEVELS, **sizes)),
            (len(self.names) > MAX_ATTRIBUTES, said("public.many", most=MAX_ATTRIBUTES, n=len(self.names))),
            (first * second > MAX_TABLE, said("public.large_table", most=MAX_TABLE, first=first, second=second)),
        )
        twice = repeated(self.dummy_names)
        refuse((twice is not None, said("public.dummy_twice", name=twice)))
        _ = self.released  # refuses parts that contradict one another
        return self

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content with its rules, whatever the layout on disk. A part has the digest of its whole."""
        canonical = json.dumps((self.whole or self).to_dict(), separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @cached_property
    def columns(self) -> Mapping[str, tuple[int, ...]]:
        """The names of the table's columns, in order, with the places of the attributes that each is held by."""
        places: dict[str, tuple[int, ...]] = {}
        for place, attribute in enumerate(self.attributes):
            places[attribute.column] = (*places.get(attribute.column, ()), place)
        return MappingProxyType(places)

    @cached_property
    def released(self) -> tuple[Attribute, ...]:
        """The columns of released rows, each as one attribute: the parts of a column are joined."""
        own = ([self.attributes[place] for place in places] for places in self.columns.values())
        return tuple(declare.join_parts(parts) if any(each.part_of for each in parts) else parts[0] for parts in own)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Attribute names, in order."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def n_attributes(self) -> int:
        """m in the paper."""
        return len(self.attributes)

    @cached_property
    def cells(self) -> Cells:
        """Which cells the one-way and two-way tables of these attributes have."""
        return Cells([attribute.n_levels for attribute in self.attributes])

    @property
    def n_levels(self) -> int:
        """d in the paper: the number of dummy columns."""
        return self.cells.n_levels

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of levels of each attribute, shape (m,), read-only."""
        return self.cells.sizes

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each attribute's levels begin among the d dummies, shape (m + 1,), read-only."""
        return self.cells.offsets

    @cached_property
    def dummy_names(self) -> tuple[str, ...]:
        """Names of the d dummy columns, `attribute=level`."""
        return tuple(f"{attribute.name}={level}" for attribute in self.attributes for level in attribute.levels)

    def aimed(self, *target: str) -> Schema:
        """The same schema for a release that should say most of these attributes: public knowledge of what it is for.

        Tables that hold one of them get more of the budget, and are looked at first where three and four are counted
        together; all others get less (`budget.plan.target_price`). Without a name, no attribute is favored.
        """
        texts, names = all(isinstance(each, str) for each in target), "must be the name of an attribute, or list some"
        refuse((not texts, f"[table] target {names}, got {target!r}."))
        twice = repeated(target)
        refuse((twice is not None, f"[table] target must name different attributes, got '{twice}' twice. Remove one."))
        for name in target:
            by = self.determined.get(self.attribute(name).name)
            refuse((by, f"[table] target: a rule determines '{name}', which is not measured. Name '{by}' instead."))
        return replace(self, target=target)

    @property
    def targets(self) -> tuple[int, ...]:
        """The places of the target's attributes, ascending."""
        return tuple(sorted(map(self.names.index, self.target)))

    @cached_property
    def importance(self) -> tuple[float, ...] | None:
        """The weight of every one-way table, then of every two-way table; None where all are 1.

        A two-way table has the product of its attributes' weights, times its own, times `TARGET_WEIGHT` where it holds
        a target.
        """
        own = np.array([attribute.weight for attribute in self.attributes])
        first, second = self.cells.pairs
        pairs = own[first] * own[second]
        for one, other, weight in self.pairs:
            i, j = sorted((self.names.index(one), self.names.index(other)))
            pairs[self.cells.pair(i, j)] *= weight
        pairs[np.isin(first, self.targets) | np.isin(second, self.targets)] *= TARGET_WEIGHT
        weights = (*own.tolist(), *pairs.tolist())
        return None if all(math.isclose(weight, 1.0) for weight in weights) else weights

    def attribute(self, name: str) -> Attribute:
        """The attribute of that name."""
        if name not in self.names:
            raise SchemaError(self.parts_of(name) or said("public.unknown", name=name, names=", ".join(self.names)))
        return self.attributes[self.names.index(name)]

    def parts_of(self, column: str) -> str:
        """For whoever names a column that is measured in parts: what to name instead; empty for any other name."""
        parts = ", ".join(self.names[place] for place in self.columns.get(column, ()))
        return f"column '{column}' is measured in parts. Name one of them: {parts}." if parts else ""

    @cached_property
    def private_domains(self) -> tuple[Attribute, ...]:
        """Attributes whose categories or bins a release has to find."""
        return tuple(attribute for attribute in self.attributes if attribute.private)

    def require_found(self) -> None:
        """Refuse a schema with private domains where levels are needed."""
        if self.private_domains:
            names = ", ".join(attribute.name for attribute in self.private_domains)
            raise SchemaError(said("public.not_found", names=names))

    @cached_property
    def allowed(self) -> Allowed:
        """Which pairs of levels one record may have, for each pair i < j of measured attributes in the rules."""
        pairs = allowed_pairs(self.attributes, self.rules)
        return MappingProxyType({pair: read_only(free) for pair, free in pairs.items()})

    @cached_property
    def determined(self) -> Mapping[str, str]:
        """The attributes that rules determine, each with the attribute that determines it."""
        return MappingProxyType({rule.attribute: rule.by for rule in self.rules if isinstance(rule, Determined)})

    @cached_property
    def measured(self) -> Schema:
        """The part that is measured: the attributes that no rule determines, with the rules that apply to them."""
        if not self.determined:
            return self
        place = self._places
        attributes = tuple(self.attributes[i] for i in place)
        allowed = {(place[i], place[j]): free for (i, j), free in self.allowed.items()}
        return replace(self, attributes=attributes, rules=forbidden_rules(attributes, allowed), whole=self)

    def part(self, places: Sequence[int]) -> Schema:
        """The schema of some of the measured attributes, with the rules that are about them alone."""
        attributes, at = tuple(self.attributes[i] for i in places), {i: place for place, i in enumerate(places)}
        allowed = {(at[i], at[j]): free for (i, j), free in self.allowed.items() if {i, j} <= at.keys()}
        rules = forbidden_rules(attributes, allowed)
        return replace(self, attributes=attributes, rules=rules, whole=None, pairs=(), target=())

    @cached_property
    def sources(self) -> tuple[tuple[int, NDArray[np.int64]], ...]:
        """For each attribute, the place in `measured` of the one that decides its level, and the level for each."""
        return tuple((self._places[i], read_only(levels)) for i, levels in origins(self.attributes, self.rules))

    @cached_property
    def _places(self) -> Mapping[int, int]:
        """The place in `measured` of each attribute that is measured."""
        kept = (i for i, attribute in enumerate(self.attributes) if attribute.name not in self.determined)
        return {i: place for place, i in enumerate(kept)}

    def complete(self, codes: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
        """Codes of all attributes, shape (m, rows), from the codes of the measured ones. Code -1 stays -1."""
        if not self.determined:
            return codes
        return np.stack([np.append(levels, -1).astype(np.int32)[codes[source]] for source, levels in self.sources])

    @property
    def read_from_rows(self) -> tuple[str, ...]:
        """Attributes whose domain was read from the rows, at the custodian's risk: the promise does not cover them."""
        return tuple(attribute.name for attribute in self.attributes if attribute.provenance == "rows")

    @property
    def unread(self) -> tuple[str, ...]:
        """Attributes that were accepted as a draft of the rows proposed them: the promise does not cover that."""
        return tuple(attribute.name for attribute in self.attributes if attribute.reviewed == "unread")

    @property
    def not_reviewed(self) -> tuple[str, ...]:
        """Attributes that nobody has reviewed."""
        return tuple(attribute.name for attribute in self.attributes if not attribute.reviewed)

    def _repr_html_(self) -> str:
        shown = {"attribute": "name", "type": "kind", "levels": "n_levels"}
        columns = {title: [getattr(each, name) for each in self.attributes] for title, name in shown.items()}
        said = {False: "not reviewed", "unread": "accepted unread"}
        columns["known from"] = [said.get(each.reviewed, each.known_from) for each in self.attributes]
        facts = {"protects": "any one row" if self.person is None else f"any one person, by '{self.person.column}'"}
        return html_card(f"Schema of '{self.name}'", facts, columns, verdict=self.standing)

    @property
    def standing(self) -> tuple[str, ...]:
        """What keeps a release from being made or covered, in words; or that nothing does."""
        waiting, unread, rows = (len(names) for names in (self.not_reviewed, self.unread, self.read_from_rows))
        told = (
            (self.ask_person, f"say first whether a person can have several rows: {', '.join(self.ask_person)}"),
            (waiting, f"{waiting:,} of {self.n_attributes:,} entries are not reviewed, and a release refuses them"),
            (unread, f"{unread:,} entries were accepted unread: epsilon does not cover what they say of the rows"),
            (rows, f"entries that were read from the rows: {rows:,}, and epsilon does not cover what they say of them"),
        )
        return tuple(words for holds, words in told if holds) or ("every entry is reviewed",)

    def require_square(self, what: str) -> None:
        """Refuse what holds a number for every pair of levels at once, where there are too many."""
        if self.n_levels > MAX_SQUARE:
            raise SchemaError(said("public.square", what=what, most=MAX_SQUARE, n=self.n_levels))

    def require_reviewed(self) -> None:
        """Refuse entries that a draft proposed and nobody has reviewed, and people of whom nobody knows."""
        self.require_person_known()
        if self.not_reviewed:
            raise SchemaError(said("public.not_reviewed", names=", ".join(self.not_reviewed)))
        again = Schema.from_dict(json.loads(json.dumps(self.to_dict())))
        if again.digest != self.digest:
            both = zip(self.attributes, again.attributes, strict=True)
            changed = ", ".join(one.name for one, two in both if repr(one) != repr(two))
            raise SchemaError(said("public.not_its_file", names=changed))

    def require_person_known(self) -> None:
        """Refuse a draft that does not say yet whether a person can have several rows."""
        if self.ask_person:
            raise SchemaError(said("public.ask_person", names=", ".join(self.ask_person)))

    def reviewed(self, provenance: Provenance | Mapping[str, Provenance] | None = None) -> Schema:
        """The same schema with every entry marked reviewed, by whoever says where its waiting entries come from.

        `provenance` is "public" (public knowledge, also for the bounds of a domain that a release finds) or "rows"
        (read from the rows, at the custodian's risk), for all waiting entries or for each by its name.
        """
        self.require_person_known()
        given = dict.fromkeys(self.not_reviewed, provenance) if isinstance(provenance, str) else provenance or {}
        unsaid = [name for name in self.not_reviewed if given.get(name) is None]
        if unsaid:
            raise SchemaError(said("public.unsaid", names=", ".join(unsaid)))
        for name, word in given.items():
            if word not in get_args(Provenance):
                raise SchemaError(f"provenance of '{name}' must be 'public' or 'rows', got {word!r}.")
            self.attribute(name)
        sources = {each.name: given.get(each.name, each.provenance) for each in self.attributes}
        attributes = tuple(replace(each, reviewed=True, provenance=sources[each.name]) for each in self.attributes)
        return replace(self, attributes=attributes)


def _parse_pairs(entries: object, schema: Schema) -> tuple[PairWeight, ...]:
    if not isinstance(entries, list):
        raise SchemaError(f"pairs must be tables, got {entries!r}. Write [[pairs]] with attributes and weight.")
    weights: dict[frozenset[str], PairWeight] = {}
    for number, entry in enumerate(entries, start=1):
        with within(f"pair {number}: "):
            if not isinstance(entry, Mapping) or set(entry) != {"attributes", "weight"}:
                raise SchemaError(f"a pair has the keys attributes and weight, got {entry!r}.")
            pair = entry["attributes"]
            if not isinstance(pair, list) or len(pair) != 2 or pair[0] == pair[1]:
                raise SchemaError(f"attributes must be two different names, got {pair!r}.")
            for name in pair:
                determined = schema.attribute(name).name in schema.determined
                refuse((determined, f"a rule determines '{name}', which is not measured. Remove the pair."))
            (one, other), twice = pair, frozenset(pair) in weights
            refuse((twice, f"'{one}' and '{other}' have a weight already. Remove one."))
            weights[frozenset(pair)] = (one, other, float(declare.read_key(entry, "weight")))
    return tuple(weights.values())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Divided:
    """A schema with finer bins, and for each of its attributes the coarser level that each of its levels is part of."""

    schema: Schema
    parts: tuple[NDArray[np.int64], ...]

    @property
    def measured_parts(self) -> tuple[NDArray[np.int64], ...]:
        """Those of the measured attributes."""
        return tuple(self.parts[i] for i in self.schema._places)


def divide_schema(schema: Schema, cuts: Mapping[str, Sequence[int | float]]) -> Divided:
    """The schema with these numbers, on each attribute's axis, as further edges of its bins.

    >>> age = Attribute(name="age", kind="integer", edges=(0, 30, 60), points=(40,), missing="?")
    >>> finer = divide_schema(Schema(name="people", attributes=(age,)), {"age": [45]})
    >>> finer.schema.attributes[0].levels, finer.parts[0].tolist()
    (('[0, 30)', '[30, 45)', '40', '[45, 60)', '?'), [0, 1, 2, 1, 3])
    """
    attributes, parts = [], {}
    for attribute in schema.attributes:
        edges = tuple(sorted({*attribute.edges, *cuts.get(attribute.name, ())}))
        finer = attribute if len(edges) == len(attribute.edges) else replace(attribute, edges=edges)
        own = np.arange(finer.n_levels) - finer.n_levels + attribute.n_levels
        if finer is not attribute:
            own[finer.point_codes] = attribute.point_codes
            within = [bisect_right(attribute.edges, edge) - 1 for edge in finer.edges[:-1]]
            own[finer.bin_codes] = attribute.bin_codes[within]
        attributes.append(finer)
        parts[attribute.name] = own
    rules = tuple(rule.divided(parts) for rule in schema.rules)
    return Divided(schema=replace(schema, attributes=tuple(attributes), rules=rules), parts=tuple(parts.values()))
