"""Several tables of the same people: one row a person in the first, any number of rows of a person in all others.

Every table has a schema of its own, and a column with the person's key, which is used to find a person's rows and
never released. A row of a table hangs on a person, or on a row of the same person in another table, whose id it names.
At most `at_most` rows hang on any one; of more, so many are chosen at random. Tables that are public are looked up:
copied, never measured.

A person is one row of a **joint table**: the attributes of people; of each other table the number of rows that hang on
the person (or on the row above), and the attributes of one of these rows, drawn at random, with a level for nobody's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from math import ceil
from pathlib import Path
from typing import Any, TypeAlias

from sklar.errors import SchemaError
from sklar.machine.wording import said
from sklar.public.attribute import NO_WORDS, Attribute, Remembering, refuse, repeated, within
from sklar.public.description import describes_tree, read_described, toml_table
from sklar.public.outputs import grain, spread
from sklar.public.rules import Determined, Forbidden, Rule, parse_rules
from sklar.public.schema import Schema, SchemaLike
from sklar.public.settings import PLAIN, Person

# Whoever has more rows than this is no person, but a mistake in the key.
MOST_ROWS = 1_000
# Tables of people's own rows: of so many, kinds of rows can be combined such that those of any two are so evenly.
MOST_TABLES = 6
# Of these so many with tables below them, whose rows deal 1,024 parts each (`rows.trees`): with `MOST_ROWS` rows in 64
# rounds, and 1,024 parts of each of two other tables, a person has fewer than 2^46 (`kernel.people.deal`).
MOST_DEEP = 3
# The level of a joint table for people without a row.
NONE = "(none)"
# What can be the order of rows, and with how many levels one of the others follows another.
_ORDERED = ("date", "datetime", "integer", "year", "yearmonth")
MOST_FOLLOWING = 16
# Gaps are told apart from this share of the domain of the order on, each bin twice as wide as the one before.
_FINEST_GAP = 1 << 13
# What a table says of itself beside its schema, as a file holds it, with what stands for nothing.
_SAID: dict[str, Any] = {"key": "", "of": "", "id": "", "parent": "", "at_most": 1}
_SAID |= {"order": "", "follows": "", "unique": ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What is public of the order of rows, all in steps of `step` numbers on the axis of attribute `order`.

    Times begin with `first` and are 0 to `width` - 1 steps later; `edges` are where bins of times begin, `gaps` where
    bins of gaps do, `numbers` where those of the number of rows do, and all where the last one ends. What follows one
    another are the `states` levels of attribute `follows`, or a single one (`follows` is None). No two rows of a person
    have one time where times are `strict`.
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
class Branch:
    """One table: its schema, the column of the person's key, and the table `of` which its rows hang (none: people).

    `id` is the column by which other tables refer to its rows, `parent` the one by which its rows refer to those above.
    `order` is the attribute by which a person's rows are ordered, `follows` the one whose level depends on that of the
    row before. Of rows with the same values of all attributes of `unique` one counts.
    """

    name: str
    schema: Schema
    key: str
    of: str = ""
    id: str = ""
    parent: str = ""
    at_most: int = 1
    order: str = ""
    follows: str = ""
    unique: tuple[str, ...] = ()

    @property
    def bins(self) -> tuple[int, ...]:
        """Where the bins of the number of rows begin, and where the last one ends: 0, 1, 2, 3-4, 5-8, 9-16, ..."""
        begins, step = [0, 1], 1
        while begins[-1] + step <= self.at_most:
            begins.append(begins[-1] + step)
            step = begins[-1] - 1
        return (*begins, self.at_most + 1)

    @property
    def course(self) -> Course | None:
        """What is public of the order of rows; None where they have none."""
        if not self.order:
            return None
        place = self.schema.names.index(self.order)
        step, edges = _steps(self.schema.attributes[place])
        begins = takewhile(lambda gap: gap < edges[-1], (ceil(edges[-1] / _FINEST_GAP) << k for k in range(14)))
        follows = self.schema.names.index(self.follows) if self.follows else None
        return Course(
            order=place,
            follows=follows,
            states=1 if follows is None else int(self.schema.sizes[follows]),
            step=step,
            first=-(-int(self.schema.attributes[place].edges[0]) // step),
            edges=edges,
            gaps=(0, *begins, edges[-1]),
            numbers=self.bins,
            strict=self.unique == (self.order,),
        )

    @property
    def ids(self) -> tuple[str, ...]:
        """The columns of ids: that of the key first."""
        return tuple(dict.fromkeys(each for each in (self.key, self.id, self.parent) if each))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read: of ids, of the attributes, and last that of the key."""
        return (*self.ids[1:], *self.schema.columns, self.key)

    def describe(self) -> dict[str, Any]:
        """What is said of it beside its schema."""
        own = {name: getattr(self, name) for name in _SAID}
        return {key: list(each) if isinstance(each, tuple) else each for key, each in own.items() if each != _SAID[key]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """A public table, whose `id` is the domain of the attributes of that name; a text, or none, for every value."""

    name: str
    id: str
    columns: tuple[tuple[str, tuple[str | None, ...]], ...]

    @property
    def ids(self) -> tuple[str | None, ...]:
        """The ids of its rows."""
        return dict(self.columns)[self.id]

    def describe(self) -> dict[str, Any]:
        """What a file holds of it."""
        return {"public": {name: list(values) for name, values in self.columns}, "id": self.id}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree(Remembering):
    """All tables of a release: `branches`, those above before those below, people first; public `lookups`; and `rules`
    across tables, about attributes of the joint table.
    """

    branches: tuple[Branch, ...]
    lookups: tuple[Lookup, ...] = ()
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        names = [*(each.name for each in self.branches), *(each.name for each in self.lookups)]
        known = dict[str, Branch]()
        twice = repeated(name.lower() for name in names)
        refuse((twice is not None, f"tables must differ in name, got '{twice}' twice. Rename one."))
        for branch in self.branches:
            with within(f"[{branch.name}] "):
                _check(branch, known)
                _check_order(branch)
            known[branch.name] = branch
        refuse((len(self.branches) < 2, "linked tables are people and at least one other table. Add one."))
        several = len(self.children(self.name)) > MOST_TABLES
        refuse((several, f"at most {MOST_TABLES} tables can hang on people. Release the others by themselves."))
        above = [sum(bool(self.children(own.name)) for own in self.children(each.name)) for each in self.branches]
        refuse((max(above, default=0) > MOST_DEEP, said("public.deep", most=MOST_DEEP)))
        depth_first = _below(self.branches, "")
        refuse((depth_first != [each.name for each in self.branches], "tables must follow those that they hang on."))
        for lookup in self.lookups:
            with within(f"[{lookup.name}] "):
                _check_lookup(lookup, self.branches)
        both = repeated(self.joint.names)
        refuse((both is not None, f"'{both}' is an attribute of people, and a table or one of its. Rename one."))
        _ = self.joint.checked()

    @classmethod
    def load(cls, path: str | Path) -> Tree:
        """Read a file of linked tables (TOML), or a model file; files that it names lie beside it."""
        return cls.from_dict(read_described(path), folder=Path(path).parent)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], *, folder: Path | None = None) -> Tree:
        """Build it from parsed TOML, or the same in JSON. A schema is a table, or the path of a file in `folder`."""
        entries = {name: entry for name, entry in document.items() if name != "rules"}
        for name, entry in entries.items():
            table = isinstance(entry, Mapping) and ("schema" in entry) != ("public" in entry)
            refuse((not table, f"[{name}] must say its schema, or which file is public. Write schema = 'FILE.toml'."))
        lookups = [_lookup(name, entry, folder) for name, entry in entries.items() if "public" in entry]
        ids = {lookup.id: [*dict.fromkeys(each for each in lookup.ids if each is not None)] for lookup in lookups}
        branches = list[Branch]()
        for name, entry in entries.items():
            if "public" in entry:
                continue
            with within(f"[{name}] "):
                odd = min(set(entry) - set(_SAID) - {"schema"}, default=None)
                refuse((odd, f"unknown key '{odd}'. Known are schema, {', '.join(_SAID)}."))
                own: dict[str, Any] = {"key": "", "of": branches[0].name if branches else ""}
                own |= {key: tuple(each) if isinstance(each, list) else each for key, each in entry.items()}
                own["schema"] = _schema(entry["schema"], folder, ids)
                branches.append(Branch(name=name, **own))
        # Each right after the tables above it, wherever it stands in the file; those that hang on none are refused.
        found = [each for name in _below(branches, "") for each in branches if each.name == name]
        branches = found if len(found) == len(branches) else branches
        tree = cls(branches=tuple(branches), lookups=tuple(lookups))
        rules = document.get("rules", [])
        return replace(tree, rules=parse_rules(rules, tree.joint.attributes)) if rules else tree

    def to_dict(self) -> dict[str, Any]:
        """The structure that `from_dict` reads."""
        levels = {each.name: each.levels for each in self.joint.attributes} if self.rules else {}
        branches = {each.name: {"schema": each.schema.to_dict(), **each.describe()} for each in self.branches}
        rules = {"rules": [rule.describe(levels) for rule in self.rules]} if self.rules else {}
        return branches | {each.name: each.describe() for each in self.lookups} | rules

    def to_toml(self) -> str:
        """All of it as the text of one file, as a person would write it."""
        texts, document = [], self.to_dict()
        for branch in self.branches:
            # Every heading of the schema begins with its place here. Only headings begin a line with a bracket.
            inner = re.sub(r"(?m)^(\[+)", rf"\g<1>{branch.name}.schema.", branch.schema.to_toml())
            texts += [toml_table(f"[{branch.name}]", branch.describe()), inner]
        texts += [toml_table(f"[{each.name}]", each.describe()) for each in self.lookups]
        return "\n".join([*texts, *(toml_table("[[rules]]", rule) for rule in document.get("rules", ()))])

    @property
    def root(self) -> Branch:
        """The table of people."""
        return self.branches[0]

    @property
    def name(self) -> str:
        """What a ledger calls all of them, unless told otherwise."""
        return self.root.name

    @cached_property
    def above(self) -> Mapping[int, int]:
        """Of each table but that of people, the number of the one that its rows hang on."""
        names = [each.name for each in self.branches]
        return {i: names.index(each.of) for i, each in enumerate(self.branches) if each.of}

    @cached_property
    def people(self) -> Schema:
        """What people have as a whole: their attributes, and the numbers of their rows in other tables."""
        numbers = tuple(self.joint.attribute(each.name) for each in self.children(self.name))
        schema = self.root.schema
        return replace(schema, attributes=(*schema.attributes, *numbers), pairs=(), target=(), reading=PLAIN)

    def children(self, name: str) -> tuple[Branch, ...]:
        """The tables whose rows hang on those of this one."""
        return tuple(each for each in self.branches[1:] if each.of == name)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content, whatever the layout on disk."""
        canonical = json.dumps(self.to_dict(), separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Of every attribute of the joint table, its branch and its place there; -1 for the number of rows."""
        numbered = ((i, range(-bool(i), each.schema.n_attributes)) for i, each in enumerate(self.branches))
        return tuple((i, place) for i, places in numbered for place in places)

    @cached_property
    def joint(self) -> Schema:
        """The joint table. An attribute of another table than people is called by both names: visits.type."""
        attributes, rules, weights, target = [], list[Rule](), list[tuple[str, str, float]](), list[str]()
        for branch, place in ((self.branches[i], place) for i, place in self.places):
            if place < 0:
                title = f"Number of {branch.name}" + (f" of one of {branch.of}" if branch.parent else "")
                words = replace(NO_WORDS, title=title)
                number = Attribute(name=branch.name, kind="integer", edges=branch.bins, words=words)
                attributes.append(number if branch.of == self.name else with_none(number))
            elif branch.of:
                own = branch.schema.attributes[place]
                column = own.part_of and f"{branch.name}.{own.part_of}"
                attributes.append(with_none(replace(own, name=f"{branch.name}.{own.name}", part_of=column)))
            else:
                attributes.append(branch.schema.attributes[place])
        known = {each.name: each for each in attributes}
        for branch in self.branches:
            below = f"{branch.name}." if branch.of else ""
            rules += [_joint_rule(rule, below, known) for rule in branch.schema.rules]
            weights += [(below + one, below + two, weight) for one, two, weight in branch.schema.pairs]
            target += [below + name for name in branch.schema.target]
        root = self.root.schema
        own_of: dict[str, Any] = {"pairs": tuple(weights), "target": tuple(target), "rows_about": root.rows_about}
        # Noise is the same for any number of rows.
        own_of["person"] = Person(column=self.root.key, count="everyone")
        schema = Schema(name=self.name, attributes=tuple(attributes), words=root.words, **own_of)
        return replace(schema, rules=(*rules, *self.rules))

    def aimed(self, *target: str) -> Tree:
        """The same tables for a release that should say most of these attributes of the joint one (`Schema.aimed`)."""
        _ = [self.joint.attribute(name) for name in target]
        branches = []
        for branch in self.branches:
            below = f"{branch.name}." if branch.of else ""
            own = [each for each in branch.schema.names if below + each in target]
            branches.append(replace(branch, schema=branch.schema.aimed(*own)))
        return replace(self, branches=tuple(branches))

    def found(self, joint: Schema) -> Tree:
        """The same tables with the domains that a joint table of theirs has."""
        held, branches = dict(zip(self.places, joint.attributes, strict=True)), []
        for i, branch in enumerate(self.branches):
            # All that a search decides.
            decided = ("values", "edges", "points", "clip", "domain", "at_most", "words")
            attributes = tuple(
                replace(own, **{name: getattr(held[i, place], name) for name in decided}) if own.private else own
                for place, own in enumerate(branch.schema.attributes)
            )
            branches.append(replace(branch, schema=replace(branch.schema, attributes=attributes)))
        return replace(self, branches=tuple(branches))

    @cached_property
    def ties(self) -> tuple[int, ...]:
        """Of every measured attribute of the joint table, the table below people that it is part of, from 1 on; 0 for
        what a person has as a whole: the attributes of people, and the numbers of rows.
        """
        of = {self.name: 0}
        for branch in self.branches[1:]:
            of[branch.name] = of[branch.of] or 1 + max(of.values())
        whole = (place < 0 and self.branches[i].of == self.name for i, place in self.places)
        each = [0 if alone else of[self.branches[i].name] for (i, _), alone in zip(self.places, whole, strict=True)]
        joint = self.joint
        return tuple(own for own, name in zip(each, joint.names, strict=True) if name not in joint.determined)

    def require_reviewed(self) -> None:
        """Refuse entries that a draft proposed and nobody has reviewed."""
        for branch in self.branches:
            with within(f"[{branch.name}] "):
                branch.schema.require_reviewed()


Known: TypeAlias = Schema | Tree


def known_of(given: SchemaLike | Tree) -> Known:
    """What a caller says is known of one table, or of linked ones: by value, as the path of a file, or of a model."""
    if isinstance(given, Tree):
        return given
    if isinstance(given, str | Path):
        document = read_described(given)
        return Tree.load(given) if describes_tree(document) else Schema.from_dict(document)
    tree = getattr(getattr(given, "measured", None), "tree", None)
    return tree if isinstance(tree, Tree) else Schema.of(given)


def joint_of(known: Known) -> Schema:
    """The one table that is measured: of linked tables the joint one."""
    return known.joint if isinstance(known, Tree) else known


def tree_of(known: Known) -> Tree | None:
    """The linked tables, where there are some."""
    return known if isinstance(known, Tree) else None


def with_none(attribute: Attribute) -> Attribute:
    """The attribute with one level more: of people who have no row."""
    return replace(attribute, special=(*attribute.special, NONE))


def none_code(joint: Attribute) -> int | None:
    """The code of that level; None where an attribute has none: of people, and of numbers of their own rows."""
    return joint.special_codes[-1] if joint.special[-1:] == (NONE,) else None


def _joint_rule(rule: Rule, below: str, known: Mapping[str, Attribute]) -> Rule:
    """A rule of a table as one of the joint table: who has no row has none of what it is about."""
    if not below:
        return rule

    def none(name: str) -> int:
        return known[below + name].special_codes[-1]

    def moved(name: str, code: int) -> int:
        return code + (code >= none(name))

    if isinstance(rule, Forbidden):
        sides = ((name, tuple(moved(name, code) for code in codes)) for name, codes in rule.sides)
        return Forbidden(sides=tuple((below + name, codes) for name, codes in sides))
    levels = [moved(rule.attribute, code) for code in rule.levels]
    levels.insert(none(rule.by), none(rule.attribute))
    return Determined(attribute=below + rule.attribute, by=below + rule.by, levels=tuple(levels))


def _below(branches: Sequence[Branch], name: str) -> list[str]:
    """The names of all tables that hang on this one, each right before those that hang on it; of "", of all."""
    own = (each.name for each in branches if each.of == name and each.name)
    return [found for each in own for found in (each, *_below(branches, each))]


def _schema(given: object, folder: Path | None, ids: Mapping[str, Sequence[str]]) -> Schema:
    """A schema in place, or in a file. Categories that are rows of a public table need not be listed."""
    if isinstance(given, str) and given and folder is not None:
        given = read_described(folder / given)
    if not isinstance(given, Mapping):
        raise SchemaError(f"schema must name a schema file or hold a schema, got {given!r}.")
    attributes = given.get("attributes")
    if isinstance(attributes, Mapping):
        listed = {name for name, entry in attributes.items() if name in ids and isinstance(entry, Mapping)}
        own = {name: {"values": list(ids[name]), **attributes[name]} for name in listed}
        given = {**given, "attributes": {**attributes, **own}}
    return Schema.from_dict(given)


def _lookup(name: str, entry: Mapping[str, Any], folder: Path | None) -> Lookup:
    """A public table in a file, or in place."""
    given, column = entry["public"], str(entry.get("id"))
    with within(f"[{name}] "):
        odd = min(set(entry) ^ {"public", "id"}, default=None)
        refuse((odd, f"'{odd}' is {'unknown' if odd in entry else 'missing'}. It has public, id."))
        if isinstance(given, str) and folder is not None:
            # Imported here: few schemas have such a table.
            import polars as pl

            read = pl.read_parquet if given.endswith(".parquet") else pl.read_csv
            try:
                frame = read(folder / given).cast(pl.String)
            except (OSError, pl.exceptions.PolarsError) as error:
                raise SchemaError(f"public table '{given}' cannot be read: {error}.") from None
            given = frame.to_dict(as_series=False)
        if not isinstance(given, Mapping) or column not in given:
            raise SchemaError(f"public must name a file with a column '{column}'. Correct public, or id.")
        columns = tuple((title, tuple(values)) for title, values in given.items())
    return Lookup(name=name, id=column, columns=columns)


def _check_lookup(lookup: Lookup, branches: Sequence[Branch]) -> None:
    """Refuse ids that are no key, and attributes that refer to rows that are not there."""
    ids, lengths = lookup.ids, {len(values) for _, values in lookup.columns}
    refuse(
        (len(lengths) != 1 or not ids, "columns of a public table must have the same number of rows, at least one."),
        (len(set(ids)) < len(ids) or None in ids, f"id '{lookup.id}' must have another text in every row."),
    )
    for schema in (branch.schema for branch in branches if lookup.id in branch.schema.names):
        attribute = schema.attribute(lookup.id)
        lost = next((str(value) for value in attribute.values if str(value) not in ids), None)
        wrong = not attribute.categorical or attribute.private or attribute.other or bool(attribute.special)
        refuse(
            (wrong, f"'{lookup.id}' must have listed categories, which are its rows, without other and special."),
            (lost is not None, f"it has no row '{lost}', a value of '{lookup.id}' in '{schema.name}'. Add it."),
        )


def _check(branch: Branch, known: Mapping[str, Branch]) -> None:
    """Refuse ids that are no columns, and what a schema of linked tables cannot have."""
    schema, above = branch.schema, known.get(branch.of)
    ids = {"key": branch.key, "id": branch.id, "parent": branch.parent}
    for what, column in ids.items():
        named = isinstance(column, str) and (column or what != "key")
        listed = column in schema.columns
        refuse(
            (not named, f"{what} must name the column that says whose row it is, got {column!r}."),
            (listed, f"{what} '{column}' is also an attribute of its schema. It is not released: remove it there."),
        )
    below, deep = bool(known), above is not None and bool(above.of)
    most = type(branch.at_most) is int and 1 <= branch.at_most <= MOST_ROWS
    got = f"a whole number from 1 to {MOST_ROWS:,}, got {branch.at_most!r}"
    dotted = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", branch.name) is None
    refuse(
        (dotted, "a table's name must be letters, digits and underscores."),
        (schema.person, "the key says whose row it is: its schema takes no [table] person. Remove it and its keys."),
        (below and above is None, f"of must name a table that stands before it, got {branch.of!r}."),
        (not below and branch.of, "the first table is that of people, and hangs on none. Remove of."),
        (not most, f"at_most must be {got}. Give the number of rows that hardly anyone exceeds."),
        (not below and branch.at_most > 1, "at_most is for tables of which a person has several rows. Remove it."),
        (deep and not branch.parent, "parent must name the column with the id of the row that it hangs on."),
        (deep and above is not None and not above.id, f"[{branch.of}] needs an id: rows of '{branch.name}' name it."),
        (not deep and branch.parent, "parent is for rows that hang on rows of a table below people. Remove it."),
        (deep and branch.order, f"order is for tables of people's own rows, and these hang on '{branch.of}'."),
    )


def _check_order(branch: Branch) -> None:
    """Refuse an order that drawn rows could not have, and rules that they could not keep."""
    order, follows, unique, schema = branch.order, branch.follows, branch.unique, branch.schema
    refuse((not isinstance(unique, tuple), f"unique must be a list of attributes, got {unique!r}."))
    odd = next((name for name in (order or None, follows or None, *unique) if name not in (None, *schema.names)), None)
    has = f"It has {', '.join(schema.names)}."
    refuse(
        (odd is not None, f"order, follows and unique must name attributes of its schema, got {odd!r}. {has}"),
        (len(set(unique)) < len(unique), "unique names an attribute twice. Remove one."),
        ((order or follows or unique) and not branch.of, "order, follows and unique are for other tables than people."),
    )
    named = [name for name in (order, follows, *unique) if name]
    private = next((name for name in named if schema.attribute(name).private), None)
    wide = next((name for name in unique if name != order and spread(schema.attribute(name))), None)
    refuse(
        (private, f"order, follows and unique need public domains, got a private one: '{private}'. List its levels."),
        (wide, f"unique attributes need levels of one value each: '{wide}' has bins of several. Divide them."),
        (follows and not order, "follows needs an order: name the attribute by which rows are ordered."),
    )
    if not order:
        return
    timed = schema.attribute(order)
    states = schema.attribute(follows).n_levels if follows else 1
    apart = timed.missing is not None or timed.special or timed.points or timed.clip is not None or timed.part_of
    refuse(
        (timed.kind not in _ORDERED, f"order must be one of {', '.join(_ORDERED)}: '{order}' is {timed.axis.one}."),
        (apart, f"order takes bins alone: remove missing, special, points, clip and parts of '{order}'."),
        (branch.at_most < 2, "order needs an at_most of 2 or more."),
        (follows == order, f"follows must name another attribute than order, got '{order}' for both."),
        (states > MOST_FOLLOWING, f"follows takes at most {MOST_FOLLOWING} levels: '{follows}' has {states}."),
        (set(named) & set(schema.determined), "a rule determines an attribute that is in order. Remove the rule."),
    )
    course = branch.course
    most = course.width if course is not None and course.strict else branch.at_most
    refuse((most < branch.at_most, f"unique '{order}' has {most} values: at_most must be at most so many."))


def _steps(attribute: Attribute) -> tuple[int, tuple[int, ...]]:
    """The step between the numbers of an order, and where its bins begin, in steps after the first number."""
    step = int(grain(attribute) or 1)
    edges = [-(-int(edge) // step) for edge in attribute.edges]
    return step, tuple(edge - edges[0] for edge in edges)
