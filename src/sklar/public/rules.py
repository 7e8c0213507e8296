"""Rules: combinations of levels of two attributes that no record has, and attributes that another one determines.

A rule is part of the schema, so it is public and costs no privacy; every released record honors it. An attribute that
another one determines is not measured, and what is forbidden for it becomes forbidden for the other one.

Parsing proves that every level of every measured attribute occurs in some record that honors all rules: each level has
an allowed level in every other attribute, which suffices without cycles; in a cycle a bounded search (`solve`)
must find such a record.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sklar.errors import SchemaError
from sklar.public.solve import Allowed, EffortError, SearchSteps, groups, solve

if TYPE_CHECKING:
    from sklar.public.attribute import Attribute

# The most levels that one search for a record looks at. Real rules need a few thousand; loading a file must end soon.
MAX_EFFORT = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Forbidden:
    """No record has one of `first_levels` of `first` together with one of `second_levels` of `second`."""

    first: str
    first_levels: tuple[int, ...]
    second: str
    second_levels: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Determined:
    """A record with level k of `by` has level `levels[k]` of `attribute`."""

    attribute: str
    by: str
    levels: tuple[int, ...]


Rule: TypeAlias = Forbidden | Determined


def parse_rules(entries: object, attributes: Sequence[Attribute]) -> tuple[Rule, ...]:
    """The rules that a schema file states, each of them checked, and all of them checked together."""
    if not isinstance(entries, list):
        raise SchemaError(f"rules must be a list of tables, got {entries!r}. Write [[rules]] and its keys below it.")
    known = {attribute.name: attribute for attribute in attributes}
    rules = tuple(_rule(f"rule {number}", entry, known) for number, entry in enumerate(entries, start=1))
    _check(attributes, rules)
    return rules


def describe_rule(rule: Rule, attributes: Sequence[Attribute]) -> dict[str, Any]:
    """A rule as the structure that `parse_rules` reads."""
    levels = {attribute.name: attribute.levels for attribute in attributes}
    if isinstance(rule, Determined):
        named = {key: levels[rule.attribute][code] for key, code in zip(levels[rule.by], rule.levels, strict=True)}
        return {"attribute": rule.attribute, "determined_by": rule.by, "map": named}
    sides = ((rule.first, rule.first_levels), (rule.second, rule.second_levels))
    return {"forbid": {name: [levels[name][code] for code in codes] for name, codes in sides}}


def rule_text(rule: Rule, attributes: Sequence[Attribute]) -> str:
    """A rule in words."""
    if isinstance(rule, Determined):
        return f"'{rule.attribute}' is determined by '{rule.by}'"
    sides = []
    for name, levels in describe_rule(rule, attributes)["forbid"].items():
        named = [f"'{level}'" for level in levels]
        named = named if len(named) <= 6 else [*named[:4], f"{len(named) - 4} more"]
        sides.append(f"'{name}' = {' or '.join(named)}")
    return f"no record has {' together with '.join(sides)}"


def _rule(where: str, entry: object, known: Mapping[str, Attribute]) -> Rule:
    if not isinstance(entry, Mapping):
        raise SchemaError(f"{where}: must be a table, got {entry!r}. Write [[rules]] and its keys below it.")
    keys = {"forbid"} if "forbid" in entry else {"attribute", "determined_by", "map"}
    if set(entry) != keys:
        odd = sorted(set(entry) ^ keys)[0]
        raise SchemaError(
            f"{where}: a rule has the key forbid, or the keys attribute, determined_by and map; '{odd}' is "
            f"{'missing' if odd in keys else 'not expected'}."
        )
    return _forbidden(where, entry["forbid"], known) if "forbid" in entry else _determined(where, entry, known)


def _named(where: str, name: object, known: Mapping[str, Attribute]) -> Attribute:
    """The attribute that a rule names."""
    if not isinstance(name, str) or name not in known:
        raise SchemaError(f"{where}: the schema has no attribute {name!r}. It has: {', '.join(known)}.")
    if known[name].private:
        raise SchemaError(f"{where}: the domain of '{name}' is private, so no rule names its levels. List its values.")
    return known[name]


def _forbidden(where: str, entry: object, known: Mapping[str, Attribute]) -> Forbidden:
    if not isinstance(entry, Mapping) or len(entry) != 2:
        raise SchemaError(
            f"{where}: forbid must name two attributes and their levels, got {entry!r}. "
            "Write forbid = { sex = 'Male', relationship = ['Wife'] }."
        )
    first, second = (_named(where, name, known) for name in entry)
    codes = [_codes(where, attribute, entry[attribute.name]) for attribute in (first, second)]
    return Forbidden(first=first.name, first_levels=codes[0], second=second.name, second_levels=codes[1])


def _codes(where: str, attribute: Attribute, given: object) -> tuple[int, ...]:
    """The levels of one attribute that a rule names: one level, a list of levels, or a range of bins."""
    if isinstance(given, Mapping):
        return _range(where, attribute, given)
    values = given if isinstance(given, list) else [given]
    codes = [_level_code(where, attribute, value) for value in values]
    if not codes or len(set(codes)) != len(codes):
        raise SchemaError(f"{where}: '{attribute.name}' must list different levels, at least one, got {given!r}.")
    return tuple(sorted(codes))


def _range(where: str, attribute: Attribute, given: Mapping[str, Any]) -> tuple[int, ...]:
    if not given or not set(given) <= {"from", "below"}:
        raise SchemaError(f"{where}: a range of '{attribute.name}' has the keys from or below, got {dict(given)!r}.")
    low = _cut(where, attribute, given["from"]) if "from" in given else 0
    high = _cut(where, attribute, given["below"]) if "below" in given else attribute.n_values
    if not low < high:
        raise SchemaError(f"{where}: the range of '{attribute.name}' holds no bin, got {dict(given)!r}.")
    return tuple(range(low, high))


def _level_code(where: str, attribute: Attribute, value: object) -> int:
    """The code of the level that a value names: its own name, a category, or a number or day with its own bin."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, dt.date):
        text = value.isoformat()
    levels = attribute.levels
    if text in levels:
        return levels.index(text)
    if isinstance(value, bool) and attribute.boolean:
        return int(value)
    number = None if isinstance(value, bool) else attribute.number_of(text)
    code = None if number is None else attribute.code_at(number)
    if number is None or code is None:
        shown = ", ".join(f"'{level}'" for level in levels[:12])
        more = " and others" if len(levels) > 12 else ""
        raise SchemaError(f"{where}: '{attribute.name}' has no level {value!r}. Its levels are {shown}{more}.")
    if code in attribute.bin_codes and not attribute.one_step(attribute.bin_of(number)):
        raise SchemaError(
            f"{where}: {value} lies within the bin {levels[code]} of '{attribute.name}', and rules are about whole "
            f"bins. Write '{levels[code]}', or give {value} a bin of its own."
        )
    return code


def _cut(where: str, attribute: Attribute, value: object) -> int:
    """The number of levels below the edge at which a range begins or ends."""
    if not attribute.edges:
        raise SchemaError(f"{where}: '{attribute.name}' is {attribute.kind} and has no range. List its levels.")
    edge = attribute.axis.check(f"{where}: '{attribute.name}'", value)
    if edge not in attribute.edges:
        raise SchemaError(f"{where}: a range of '{attribute.name}' must begin and end at its edges, got {value!r}.")
    place = attribute.edges.index(edge)
    # The last bin of a real holds its upper edge, so a point there is below the end of the range.
    return attribute.n_values if place == attribute.n_bins else place + bisect_left(attribute.points, edge)


def _determined(where: str, entry: Mapping[str, Any], known: Mapping[str, Attribute]) -> Determined:
    attribute = _named(where, entry["attribute"], known)
    by = _named(where, entry["determined_by"], known)
    if attribute is by:
        raise SchemaError(f"{where}: '{by.name}' cannot determine itself. Name another attribute.")
    mapped = entry["map"]
    if not isinstance(mapped, Mapping):
        raise SchemaError(f"{where}: map must be a table from levels of '{by.name}' to levels of '{attribute.name}'.")
    levels: dict[int, int] = {}
    for key, value in mapped.items():
        code = _level_code(where, by, key)
        if code in levels:
            raise SchemaError(f"{where}: map gives level '{by.levels[code]}' of '{by.name}' twice. Remove one.")
        levels[code] = _level_code(where, attribute, value)
    lost = [level for code, level in enumerate(by.levels) if code not in levels]
    if lost:
        raise SchemaError(
            f"{where}: map must give every level of '{by.name}' a level of '{attribute.name}'; '{lost[0]}' has none. "
            "Add it."
        )
    return Determined(attribute=attribute.name, by=by.name, levels=tuple(levels[code] for code in range(by.n_levels)))


def origins(attributes: Sequence[Attribute], rules: Sequence[Rule]) -> list[tuple[int, NDArray[np.int64]]]:
    """For every attribute, the measured attribute that decides its level, and the level that each of its own decides.

    An attribute that no rule determines decides itself.
    """
    index = {attribute.name: i for i, attribute in enumerate(attributes)}
    rule_of = {rule.attribute: rule for rule in rules if isinstance(rule, Determined)}
    decided = []
    for attribute in attributes:
        chained, name = [], attribute.name
        while name in rule_of:
            chained.append(np.array(rule_of[name].levels, dtype=np.int64))
            name = rule_of[name].by
            if len(chained) > len(rule_of):
                raise SchemaError(f"rules: '{attribute.name}' is determined in a circle. Remove one of its rules.")
        levels = np.arange(attributes[index[name]].n_levels)
        for step in reversed(chained):
            levels = step[levels]
        decided.append((index[name], levels))
    return decided


def allowed_pairs(attributes: Sequence[Attribute], rules: Sequence[Rule]) -> Allowed:
    """Which pairs of levels one record may have, for every pair of measured attributes in the rules.

    Where a rule forbids levels of a determined attribute, it forbids the levels of the other one that lead to them.
    """
    decided = dict(zip((attribute.name for attribute in attributes), origins(attributes, rules), strict=True))
    allowed: dict[tuple[int, int], NDArray[np.bool_]] = {}
    for number, rule in enumerate(rules, start=1):
        if not isinstance(rule, Forbidden):
            continue
        (i, one), (j, two) = decided[rule.first], decided[rule.second]
        first, second = np.isin(one, rule.first_levels), np.isin(two, rule.second_levels)
        if i == j:
            # Both follow from one attribute: the maps show which of its levels lead to both.
            if (first & second).any():
                level = attributes[i].levels[int(np.argmax(first & second))]
                raise SchemaError(
                    f"rule {number}: it forbids what the maps require: '{rule.first}' and '{rule.second}' both follow "
                    f"from '{attributes[i].name}', whose level '{level}' could then never occur. Correct one of them."
                )
            continue
        if i > j:
            i, j, first, second = j, i, second, first
        free = allowed.setdefault((i, j), np.ones((attributes[i].n_levels, attributes[j].n_levels), dtype=bool))
        cells = np.ix_(first, second)
        if first.any() and second.any() and not free[cells].any():
            raise SchemaError(
                f"rule {number}: earlier rules already forbid what it forbids for '{rule.first}' and '{rule.second}'. "
                "Remove it."
            )
        free[cells] = False
    return allowed


def forbidden_rules(attributes: Sequence[Attribute], allowed: Allowed) -> tuple[Forbidden, ...]:
    """Rules over these attributes that forbid the same: one for each set of levels with the same allowed partners."""
    rules = []
    for (i, j), free in sorted(allowed.items()):
        patterns, which = np.unique(free, axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            here, there = np.flatnonzero(which.ravel() == number).tolist(), np.flatnonzero(~pattern).tolist()
            if there:
                first, second = attributes[i].name, attributes[j].name
                rules.append(
                    Forbidden(first=first, first_levels=tuple(here), second=second, second_levels=tuple(there))
                )
    return tuple(rules)


def _check(attributes: Sequence[Attribute], rules: Sequence[Rule]) -> None:
    """Refuse rules that contradict one another, and rules under which some level can never occur."""
    determines: dict[str, int] = {}
    for number, rule in enumerate(rules, start=1):
        earlier = determines.setdefault(rule.attribute, number) if isinstance(rule, Determined) else number
        if isinstance(rule, Determined) and earlier != number:
            raise SchemaError(f"rule {number}: rule {earlier} determines '{rule.attribute}' already. Remove one.")
    allowed = allowed_pairs(attributes, rules)
    for (i, j), free in allowed.items():
        for one, other, support in ((i, j, free.any(axis=1)), (j, i, free.any(axis=0))):
            if not support.all():
                level = attributes[one].levels[int(np.argmin(support))]
                raise SchemaError(
                    f"rules: level '{level}' of '{attributes[one].name}' is forbidden with every level of "
                    f"'{attributes[other].name}', so it can never occur. Correct a rule, or remove the level."
                )
    for group in groups(allowed):
        within = {pair: free for pair, free in allowed.items() if pair[0] in group}
        # Without a cycle, an allowed partner in each pair is enough (Freuder 1982).
        if len(within) >= len(group):
            _check_levels({i: attributes[i] for i in group}, within)


def _check_levels(group: Mapping[int, Attribute], allowed: Allowed) -> None:
    """Refuse rules that tie a group of attributes together in a cycle and leave one of its levels without a record."""
    occurs = {i: np.zeros(attribute.n_levels, dtype=bool) for i, attribute in group.items()}
    effort = SearchSteps(MAX_EFFORT)
    for i, attribute in group.items():
        for level, name in enumerate(attribute.levels):
            if occurs[i][level]:
                continue
            domains = {j: np.ones_like(own) for j, own in occurs.items()}
            domains[i] = np.arange(attribute.n_levels) == level
            try:
                record = solve(domains, allowed, effort=effort)
            except EffortError:
                raise SchemaError(
                    f"rules: whether level '{name}' of '{attribute.name}' can occur was not decided within "
                    f"{MAX_EFFORT:,} steps of search. State fewer or simpler rules."
                ) from None
            if record is None:
                raise SchemaError(
                    f"rules: level '{name}' of '{attribute.name}' can occur in no record: the rules together leave it "
                    "no partners. Correct a rule, or remove the level."
                )
            for j, code in record.items():
                occurs[j][code] = True


def violating(codes: NDArray[np.integer[Any]], allowed: Allowed) -> NDArray[np.bool_]:
    """Which records hold a forbidden combination, for codes of shape (m, rows). Code -1 is no level, and in none."""
    broken = np.zeros(codes.shape[1], dtype=bool)
    for (i, j), free in allowed.items():
        broken |= ~free[codes[i], codes[j]] & (codes[i] >= 0) & (codes[j] >= 0)
    return broken


def constrained(allowed: Allowed) -> tuple[int, ...]:
    """The attributes that stand in some forbidden combination, ascending."""
    return tuple(sorted(set(chain.from_iterable(allowed))))


def divided_rule(rule: Rule, parts: Mapping[str, NDArray[np.int64]]) -> Rule:
    """The same rule over finer levels, given the level here that each of them is part of."""
    if isinstance(rule, Determined):
        # What a rule determines is never divided, so that its levels are as they were.
        return replace(rule, levels=tuple(np.array(rule.levels)[parts[rule.by]].tolist()))

    def finer(name: str, codes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(np.flatnonzero(np.isin(parts[name], codes)).tolist())

    first, second = finer(rule.first, rule.first_levels), finer(rule.second, rule.second_levels)
    return replace(rule, first_levels=first, second_levels=second)
