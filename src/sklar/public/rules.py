"""Rules: combinations of levels of two attributes that no record has, and attributes that another one determines.

A determined attribute is not measured; what is forbidden for it becomes forbidden for the one that determines it.
Parsing proves that every level of every measured attribute occurs in some record that honors all rules. Each level has
an allowed level in every other attribute, which suffices without cycles; in a cycle `solve` must find such a record.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sklar.errors import SchemaError
from sklar.machine.wording import said
from sklar.public.attribute import Attribute, refuse, repeated, within

# Which pairs of levels one record may have, shape (levels of i, levels of j), for attributes i < j. Any two levels of a
# pair of attributes that is not listed may stand together.
Allowed: TypeAlias = Mapping[tuple[int, int], NDArray[np.bool_]]
# Which levels of each attribute are still possible.
Levels: TypeAlias = Mapping[int, NDArray[np.bool_]]
LevelNames: TypeAlias = Mapping[str, tuple[str, ...]]
Order: TypeAlias = Callable[[int, NDArray[np.int64]], Sequence[int]]
_Neighbors: TypeAlias = Mapping[int, list[tuple[int, NDArray[np.bool_]]]]
# The most levels that one search for a record looks at. Real rules need a few thousand; loading a file must end soon.
MAX_EFFORT = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Forbidden:
    """No record has one of the levels of the attribute on the one side together with one of those on the other."""

    sides: tuple[tuple[str, tuple[int, ...]], ...]

    def describe(self, levels: LevelNames) -> dict[str, Any]:
        """The entry that `parse_rules` reads."""
        return {"forbid": {name: [levels[name][code] for code in codes] for name, codes in self.sides}}

    def divided(self, parts: Mapping[str, NDArray[np.int64]]) -> Forbidden:
        """The same rule over finer levels, given the level here that each of them is part of."""
        finer = ((name, np.flatnonzero(np.isin(parts[name], codes)).tolist()) for name, codes in self.sides)
        return Forbidden(sides=tuple((name, tuple(codes)) for name, codes in finer))


@dataclass(frozen=True, slots=True, kw_only=True)
class Determined:
    """A record with level k of `by` has level `levels[k]` of `attribute`."""

    attribute: str
    by: str
    levels: tuple[int, ...]

    def describe(self, levels: LevelNames) -> dict[str, Any]:
        """The entry that `parse_rules` reads."""
        named = {key: levels[self.attribute][code] for key, code in zip(levels[self.by], self.levels, strict=True)}
        return {"attribute": self.attribute, "determined_by": self.by, "map": named}

    def divided(self, parts: Mapping[str, NDArray[np.int64]]) -> Determined:
        """The same rule over finer levels. What a rule determines is never divided."""
        return replace(self, levels=tuple(np.array(self.levels)[parts[self.by]].tolist()))


Rule: TypeAlias = Forbidden | Determined


def parse_rules(entries: object, attributes: Sequence[Attribute]) -> tuple[Rule, ...]:
    """The rules that a schema file states, each of them checked, and all of them checked together."""
    if not isinstance(entries, list):
        raise SchemaError(f"rules must be a list of tables, got {entries!r}. Write [[rules]] and its keys below it.")
    known = {attribute.name: attribute for attribute in attributes}
    rules: list[Rule] = []
    for number, entry in enumerate(entries, start=1):
        with within(f"rule {number}: "):
            rules.append(_rule(entry, known))
    _check(attributes, rules)
    return tuple(rules)


def rule_text(rule: Rule, attributes: Sequence[Attribute]) -> str:
    """A rule in words."""
    if isinstance(rule, Determined):
        return f"'{rule.attribute}' is determined by '{rule.by}'"
    sides = []
    for name, levels in rule.describe({each.name: each.levels for each in attributes})["forbid"].items():
        named = [f"'{level}'" for level in levels]
        named = named if len(named) <= 6 else [*named[:4], f"{len(named) - 4} more"]
        sides.append(f"'{name}' = {' or '.join(named)}")
    return f"no record has {' together with '.join(sides)}"


def _rule(entry: object, known: Mapping[str, Attribute]) -> Rule:
    if not isinstance(entry, Mapping):
        raise SchemaError(f"must be a table, got {entry!r}. Write [[rules]] and its keys below it.")
    keys = {"forbid"} if "forbid" in entry else {"attribute", "determined_by", "map"}
    odd = min(set(entry) ^ keys, default=None)
    refuse((odd, said("public.rule_keys", key=odd, state="missing" if odd in keys else "not expected")))
    if "forbid" not in entry:
        return _determined(entry, known)
    sides = entry["forbid"]
    if not isinstance(sides, Mapping) or len(sides) != 2:
        raise SchemaError(said("public.two_sides", got=sides))
    return Forbidden(sides=tuple((name, _codes(_named(name, known), levels)) for name, levels in sides.items()))


def _determined(entry: Mapping[str, Any], known: Mapping[str, Attribute]) -> Determined:
    attribute, by = (_named(entry[key], known) for key in ("attribute", "determined_by"))
    name, mapped = attribute.name, entry["map"]
    refuse(
        (attribute is by, f"'{by.name}' cannot determine itself. Name another attribute."),
        (not isinstance(mapped, Mapping), f"map must be a table from levels of '{by.name}' to levels of '{name}'."),
    )
    pairs = [(_level_code(by, key), _level_code(attribute, value)) for key, value in mapped.items()]
    levels = dict(pairs)
    twice = repeated(by.levels[code] for code, _level in pairs)
    lost = next((level for code, level in enumerate(by.levels) if code not in levels), None)
    refuse(
        (twice is not None, f"map gives level '{twice}' of '{by.name}' twice. Remove one."),
        (lost is not None, said("public.not_mapped", by=by.name, name=name, level=lost)),
    )
    return Determined(attribute=name, by=by.name, levels=tuple(levels[code] for code in range(by.n_levels)))


def _named(name: object, known: Mapping[str, Attribute]) -> Attribute:
    if not isinstance(name, str) or name not in known:
        raise SchemaError(f"the schema has no attribute {name!r}. It has: {', '.join(known)}.")
    if known[name].private:
        raise SchemaError(f"the domain of '{name}' is private, so no rule names its levels. List its values.")
    return known[name]


def _codes(attribute: Attribute, given: object) -> tuple[int, ...]:
    """The levels of one attribute that a rule names: one level, a list of levels, or a range of bins."""
    name = attribute.name
    if not isinstance(given, Mapping):
        codes = [_level_code(attribute, value) for value in (given if isinstance(given, list) else [given])]
        alike = not codes or len(set(codes)) != len(codes)
        refuse((alike, f"'{name}' must list different levels, at least one, got {given!r}."))
        return tuple(sorted(codes))
    odd = not given or not set(given) <= {"from", "below"}
    refuse((odd, f"a range of '{name}' has the keys from or below, got {dict(given)!r}."))
    low = _cut(attribute, given["from"]) if "from" in given else 0
    high = _cut(attribute, given["below"]) if "below" in given else attribute.n_values
    refuse((not low < high, f"the range of '{name}' holds no bin, got {dict(given)!r}."))
    return tuple(range(low, high))


def _level_code(attribute: Attribute, value: object) -> int:
    """The code of the level that a value names: its own name, a category, or a number or day with its own bin."""
    truth = isinstance(value, bool)
    text = value.isoformat() if isinstance(value, dt.date) else str(value).lower() if truth else str(value)
    levels, name = attribute.levels, attribute.name
    if text in levels:
        return levels.index(text)
    if isinstance(value, bool) and attribute.boolean:
        return int(value)
    number = None if truth else attribute.number_of(text)
    code = None if number is None else attribute.code_at(number)
    if number is None or code is None:
        shown = ", ".join(f"'{level}'" for level in levels[:12]) + (" and others" if len(levels) > 12 else "")
        raise SchemaError(f"'{name}' has no level {value!r}. Its levels are {shown}.")
    if code in attribute.bin_codes and not attribute.one_step(attribute.bin_of(number)):
        raise SchemaError(said("public.within_bin", value=value, level=levels[code], name=name))
    return code


def _cut(attribute: Attribute, value: object) -> int:
    """The number of levels below the edge at which a range begins or ends."""
    if not attribute.edges:
        raise SchemaError(f"'{attribute.name}' is {attribute.kind} and has no range. List its levels.")
    with within(f"'{attribute.name}': "):
        edge = attribute.axis.check(value)
    if edge not in attribute.edges:
        raise SchemaError(f"a range of '{attribute.name}' must begin and end at its edges, got {value!r}.")
    place = attribute.edges.index(edge)
    # The last bin of a real holds its upper edge, so a point there is below the end of the range.
    return attribute.n_values if place == attribute.n_bins else place + bisect_left(attribute.points, edge)


def origins(attributes: Sequence[Attribute], rules: Sequence[Rule]) -> list[tuple[int, NDArray[np.int64]]]:
    """For every attribute, the measured one (or itself) that decides its level, and the level that each decides."""
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

    Where a rule forbids levels of a determined attribute, it forbids the levels of the other one that lead to them. The
    parts of a column have rules that nobody states (`_joint_levels`).
    """
    decided = dict(zip((attribute.name for attribute in attributes), origins(attributes, rules), strict=True))
    allowed: dict[tuple[int, int], NDArray[np.bool_]] = {}
    for number, rule in enumerate(rules, start=1):
        if not isinstance(rule, Forbidden):
            continue
        (i, first), (j, second) = ((decided[name][0], np.isin(decided[name][1], own)) for name, own in rule.sides)
        names = " and ".join(f"'{name}'" for name, _ in rule.sides)
        if i == j:
            # Both follow from one attribute: the maps show which of its levels lead to both.
            level = attributes[i].levels[int(np.argmax(first & second))]
            never = said("public.maps_require", number=number, names=names, by=attributes[i].name, level=level)
            refuse(((first & second).any(), never))
            continue
        if i > j:
            i, j, first, second = j, i, second, first
        free = allowed.setdefault((i, j), np.ones((attributes[i].n_levels, attributes[j].n_levels), dtype=bool))
        cells = np.ix_(first, second)
        if first.any() and second.any() and not free[cells].any():
            raise SchemaError(f"rule {number}: earlier rules already forbid what it forbids for {names}. Remove it.")
        free[cells] = False
    parts = sorted((each for each in attributes if each.part_of), key=lambda each: (each.part_of, each.kind))
    for one, other in combinations(parts, 2):
        if one.part_of != other.part_of:
            continue
        (i, own), (j, others) = decided[one.name], decided[other.name]
        free = _joint_levels(one, other)[np.ix_(own, others)]
        if i != j and not free.all():
            pair, free = ((i, j), free) if i < j else ((j, i), free.T)
            allowed[pair] = np.logical_and(free, allowed.get(pair, True))
    return allowed


def _joint_levels(one: Attribute, other: Attribute) -> NDArray[np.bool_]:
    """Which levels two parts of a column have together: a value is missing in both or in none; a day has a weekday.

    Of a date and a weekday the date is the first. Shape (levels of one, levels of the other).
    """
    free = np.ones((one.n_levels, other.n_levels), dtype=bool)
    if one.missing_code is not None and other.missing_code is not None:
        free[one.missing_code], free[:, other.missing_code] = False, False
        free[one.missing_code, other.missing_code] = True
    if (one.kind, other.kind) != ("date", "weekday"):
        return free
    # A release has yet to find the bins of a private domain: all lie within its bounds.
    bins = [slice(one.n_values)] if one.private else one.bin_codes.tolist()
    week, fewest = np.arange(7), 7 * (len(one.points) + 1)
    for code, (low, high) in zip(bins, pairwise(map(int, one.edges)), strict=True):
        days = np.setdiff1d(np.arange(low, min(high, low + fewest)), one.points)
        free[code, :7] = np.isin(week, (days + 3) % 7)
    for code, point in zip(one.point_codes, one.points, strict=True):
        free[code, :7] = week == (point + 3) % 7
    return free


def forbidden_rules(attributes: Sequence[Attribute], allowed: Allowed) -> tuple[Forbidden, ...]:
    """Rules over these attributes that forbid the same: one for each set of levels with the same allowed partners."""
    rules = []
    for (i, j), free in sorted(allowed.items()):
        patterns, which = np.unique(free, axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            here, there = np.flatnonzero(which.ravel() == number).tolist(), np.flatnonzero(~pattern).tolist()
            if there:
                sides = (attributes[i].name, tuple(here)), (attributes[j].name, tuple(there))
                rules.append(Forbidden(sides=sides))
    return tuple(rules)


def _check(attributes: Sequence[Attribute], rules: Sequence[Rule]) -> None:
    """Refuse rules that contradict one another, and rules under which some level can never occur."""
    determines: dict[str, int] = {}
    for number, rule in enumerate(rules, start=1):
        if isinstance(rule, Determined) and determines.setdefault(rule.attribute, number) != number:
            earlier = determines[rule.attribute]
            raise SchemaError(f"rule {number}: rule {earlier} determines '{rule.attribute}' already. Remove one.")
    allowed = allowed_pairs(attributes, rules)
    for (i, j), free in allowed.items():
        for one, other, support in ((i, j, free.any(axis=1)), (j, i, free.any(axis=0))):
            if not support.all():
                level = attributes[one].levels[int(np.argmin(support))]
                names = (attributes[one].name, attributes[other].name)
                raise SchemaError(said("public.never", level=level, names=names))
    for group in groups(allowed):
        tied = {pair: free for pair, free in allowed.items() if pair[0] in group}
        # Without a cycle, an allowed partner in each pair is enough (Freuder 1982).
        if len(tied) >= len(group):
            _check_cycle({i: attributes[i] for i in group}, tied)


def _check_cycle(group: Mapping[int, Attribute], allowed: Allowed) -> None:
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
                undecided = said("public.undecided", level=name, name=attribute.name, steps=MAX_EFFORT)
                raise SchemaError(undecided) from None
            if record is None:
                raise SchemaError(said("public.alone", level=name, name=attribute.name))
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


def groups(allowed: Allowed) -> list[list[int]]:
    """Attributes that rules tie together, directly or through others."""
    sets: list[set[int]] = []
    for pair in allowed:
        touched = [group for group in sets if group & set(pair)]
        sets = [group for group in sets if not group & set(pair)] + [set(pair).union(*touched)]
    return sorted(sorted(group) for group in sets)


class EffortError(Exception):
    """A search did not end within its effort. Internal: the caller knows what that means and says it."""


@dataclass
class SearchSteps:
    """How many steps searches for a record may still take."""

    left: int


def solve(
    domains: Levels, allowed: Allowed, *, effort: SearchSteps, order: Order = lambda _attribute, codes: codes.tolist()
) -> dict[int, int] | None:
    """A record: one level from every attribute's domain, such that all pairs are allowed. None when there is none.

    Backtracking that keeps domains arc-consistent (Sabin and Freuder 1994), so it never turns back where the rules have
    no cycle. `order` puts the levels of an attribute into the order in which they are tried.
    """
    neighbors = _neighbors(domains, allowed)
    # A stack instead of recursion: rules may tie together more attributes than Python can nest calls.
    stack: list[tuple[Levels, Mapping[int, int]]] = [(domains, {})]
    while stack:
        parent, chosen = stack.pop()
        own = {i: np.arange(parent[i].size) == code for i, code in chosen.items()}
        current = _propagate({**parent, **own}, neighbors, chosen or domains, effort)
        if current is None:
            continue
        sizes = {i: size for i, domain in current.items() if (size := int(np.count_nonzero(domain))) > 1}
        if not sizes:
            return {i: int(np.argmax(domain)) for i, domain in current.items()}
        i = min(sizes, key=sizes.__getitem__)
        codes = order(i, np.flatnonzero(current[i]))
        stack += [(current, {i: code}) for code in reversed(codes)]
    return None


def narrowed(domains: Levels, allowed: Allowed) -> Levels | None:
    """The domains without levels that have no allowed partner in another one; None when one of them gets empty."""
    return _propagate(domains, _neighbors(domains, allowed), domains, SearchSteps(2**62))


def _neighbors(domains: Levels, allowed: Allowed) -> _Neighbors:
    neighbors: dict[int, list[tuple[int, NDArray[np.bool_]]]] = {i: [] for i in domains}
    for (i, j), free in allowed.items():
        if i in domains and j in domains:
            neighbors[i].append((j, free))
            neighbors[j].append((i, free.T))
    return neighbors


def _propagate(domains: Levels, neighbors: _Neighbors, changed: Iterable[int], effort: SearchSteps) -> Levels | None:
    """The domains without the levels that have no allowed partner in a neighbor's domain; None when one gets empty."""
    left, waiting = dict(domains), list(changed)
    while waiting:
        i = waiting.pop()
        for j, free in neighbors[i]:
            effort.left -= free.size
            if effort.left < 0:
                raise EffortError
            kept = left[j] & free[left[i]].any(axis=0)
            if not kept.any():
                return None
            if np.count_nonzero(kept) < np.count_nonzero(left[j]):
                left[j] = kept
                waiting.append(j)
    return left
