"""Public structural knowledge: combinations of two attributes that no record has, and attributes that others determine.

A rule is part of the schema, so it is public and costs no privacy; every released record honors it. This module parses
rules, checks them for contradictions, and says what they mean for the attributes that are measured: an attribute that
another determines is not measured at all, and what is forbidden for it is forbidden for the one that determines it.

What the check proves: every level of every measured attribute occurs in some record that honors all rules. Pairs of
attributes are checked for support in each other, which suffices where the rules tie attributes together without a
cycle; where there is a cycle, such a record is searched for, and rules are refused for which a bounded search finds
neither a record nor a contradiction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sklar.errors import SchemaError

if TYPE_CHECKING:
    from sklar.public.schema import Attribute

# Which pairs of levels may stand in one record, shape (levels of i, levels of j), by attributes i < j. Pairs of
# attributes that are not in it are free.
Allowed: TypeAlias = dict[tuple[int, int], NDArray[np.bool_]]

# Levels looked at in one search for a record. Real rules need a few thousand; a file must not stall whoever loads it.
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
    """`attribute` has level `levels[k]` in every record in which `by` has level k."""

    attribute: str
    by: str
    levels: tuple[int, ...]


Rule: TypeAlias = Forbidden | Determined


def parse_rules(entries: object, attributes: Sequence[Attribute]) -> tuple[Rule, ...]:
    """Rules as the schema file writes them, checked one by one and against one another."""
    if not isinstance(entries, list):
        raise SchemaError(
            f"rules must be a list of tables, got {entries!r}. Write [[rules]] and the rule's keys below it."
        )
    known = {attribute.name: attribute for attribute in attributes}
    rules = tuple(_rule(f"rule {number}", entry, known) for number, entry in enumerate(entries, start=1))
    _check(attributes, rules)
    return rules


def describe_rule(rule: Rule, attributes: Sequence[Attribute]) -> dict[str, Any]:
    """The structure that `parse_rules` reads."""
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
    described = describe_rule(rule, attributes)["forbid"]
    sides = (f"'{name}' = {' or '.join(_shortened(levels))}" for name, levels in described.items())
    return f"no record has {' together with '.join(sides)}"


def _shortened(levels: Sequence[str]) -> list[str]:
    named = [f"'{level}'" for level in levels]
    return named if len(named) <= 6 else [*named[:4], f"{len(named) - 4} more"]


def _rule(where: str, entry: object, known: Mapping[str, Attribute]) -> Rule:
    if not isinstance(entry, Mapping):
        raise SchemaError(f"{where}: must be a table, got {entry!r}. Write [[rules]] and the rule's keys below it.")
    keys = {"forbid"} if "forbid" in entry else {"attribute", "determined_by", "map"}
    if set(entry) != keys:
        odd = sorted(set(entry) ^ keys)[0]
        raise SchemaError(
            f"{where}: a rule has the key forbid, or the keys attribute, determined_by and map; '{odd}' is "
            f"{'missing' if odd in keys else 'not expected'}."
        )
    if "forbid" in entry:
        return _forbidden(where, entry["forbid"], known)
    return _determined(where, entry, known)


def _known(where: str, name: object, known: Mapping[str, Attribute]) -> Attribute:
    if not isinstance(name, str) or name not in known:
        raise SchemaError(f"{where}: the schema has no attribute {name!r}. It has: {', '.join(known)}.")
    if known[name].domain == "private":
        raise SchemaError(
            f"{where}: the domain of '{name}' is private, so no rule can name its levels. List its values."
        )
    return known[name]


def _forbidden(where: str, entry: object, known: Mapping[str, Attribute]) -> Forbidden:
    if not isinstance(entry, Mapping) or len(entry) != 2:
        raise SchemaError(
            f"{where}: forbid must name two attributes and their levels, got {entry!r}. "
            "Write forbid = { sex = 'Male', relationship = ['Wife'] }."
        )
    first, second = (_known(where, name, known) for name in entry)
    codes = [_codes(where, attribute, entry[attribute.name]) for attribute in (first, second)]
    return Forbidden(first=first.name, first_levels=codes[0], second=second.name, second_levels=codes[1])


def _codes(where: str, attribute: Attribute, given: object) -> tuple[int, ...]:
    """The levels of one attribute that a rule speaks of: one, a list, or a range of bins."""
    if isinstance(given, Mapping):
        return _range(where, attribute, given)
    values = given if isinstance(given, list) else [given]
    codes = [attribute.level_code(where, value) for value in values]
    if not codes or len(set(codes)) != len(codes):
        raise SchemaError(f"{where}: '{attribute.name}' must list different levels, at least one, got {given!r}.")
    return tuple(sorted(codes))


def _range(where: str, attribute: Attribute, given: Mapping[str, Any]) -> tuple[int, ...]:
    if not given or not set(given) <= {"from", "below"}:
        raise SchemaError(
            f"{where}: a range of '{attribute.name}' has the keys from, below or both, got {dict(given)!r}."
        )
    low = attribute.edge_index(where, given["from"]) if "from" in given else 0
    high = attribute.edge_index(where, given["below"]) if "below" in given else attribute.n_values
    if not low < high:
        raise SchemaError(f"{where}: the range of '{attribute.name}' holds no bin, got {dict(given)!r}.")
    return tuple(range(low, high))


def _determined(where: str, entry: Mapping[str, Any], known: Mapping[str, Attribute]) -> Determined:
    attribute = _known(where, entry["attribute"], known)
    by = _known(where, entry["determined_by"], known)
    if attribute is by:
        raise SchemaError(f"{where}: '{by.name}' cannot determine itself. Name another attribute.")
    mapped = entry["map"]
    if not isinstance(mapped, Mapping):
        raise SchemaError(f"{where}: map must be a table from levels of '{by.name}' to levels of '{attribute.name}'.")
    levels: dict[int, int] = {}
    for key, value in mapped.items():
        code = by.level_code(where, key)
        if code in levels:
            raise SchemaError(f"{where}: map gives level '{by.levels[code]}' of '{by.name}' twice. Remove one.")
        levels[code] = attribute.level_code(where, value)
    lost = [level for code, level in enumerate(by.levels) if code not in levels]
    if lost:
        raise SchemaError(
            f"{where}: map must give every level of '{by.name}' a level of '{attribute.name}'; '{lost[0]}' has none. "
            "Add it."
        )
    return Determined(attribute=attribute.name, by=by.name, levels=tuple(levels[code] for code in range(by.n_levels)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """Where an attribute's level comes from: a measured attribute and, for each of its levels, the level here."""

    attribute: int
    levels: NDArray[np.int64]


def sources(attributes: Sequence[Attribute], rules: Sequence[Rule]) -> tuple[Source, ...]:
    """For every attribute the measured one that decides its level: itself, unless a rule determines it."""
    index = {attribute.name: i for i, attribute in enumerate(attributes)}
    rule_of = {rule.attribute: rule for rule in rules if isinstance(rule, Determined)}
    found = []
    for attribute in attributes:
        chained, name = [], attribute.name
        while name in rule_of:
            chained.append(np.array(rule_of[name].levels, dtype=np.int64))
            name = rule_of[name].by
            if len(chained) > len(rule_of):
                raise SchemaError(
                    f"rules: '{attribute.name}' is determined in a circle. Remove one rule of the circle."
                )
        levels = np.arange(attributes[index[name]].n_levels)
        for step in reversed(chained):
            levels = step[levels]
        found.append(Source(attribute=index[name], levels=levels))
    return tuple(found)


def allowed_pairs(attributes: Sequence[Attribute], rules: Sequence[Rule]) -> Allowed:
    """Which pairs of levels may stand in one record, for every pair of measured attributes that rules speak of.

    A combination that is forbidden for an attribute that another determines is forbidden for that other one.
    """
    index, source = {attribute.name: i for i, attribute in enumerate(attributes)}, sources(attributes, rules)
    allowed: Allowed = {}
    for number, rule in enumerate(rules, start=1):
        if not isinstance(rule, Forbidden):
            continue
        one, two = source[index[rule.first]], source[index[rule.second]]
        first, second = np.isin(one.levels, rule.first_levels), np.isin(two.levels, rule.second_levels)
        if one.attribute == two.attribute:
            # Both follow from one attribute: the map says which of its levels have both.
            if (first & second).any():
                origin = attributes[one.attribute]
                level = origin.levels[int(np.argmax(first & second))]
                raise SchemaError(
                    f"rule {number}: it forbids what the maps require: '{rule.first}' and '{rule.second}' both follow "
                    f"from '{origin.name}', whose level '{level}' could then never occur. Correct one of them."
                )
            continue
        if one.attribute > two.attribute:
            one, two, first, second = two, one, second, first
        pair = one.attribute, two.attribute
        shape = attributes[pair[0]].n_levels, attributes[pair[1]].n_levels
        free = allowed.setdefault(pair, np.ones(shape, dtype=bool))
        cells = np.ix_(first, second)
        if first.any() and second.any() and not free[cells].any():
            raise SchemaError(
                f"rule {number}: what it forbids for '{rule.first}' and '{rule.second}' earlier rules forbid already. "
                "Remove it."
            )
        free[cells] = False
    return allowed


def forbidden_rules(attributes: Sequence[Attribute], allowed: Allowed) -> tuple[Forbidden, ...]:
    """The same knowledge as rules over these attributes: one for each set of levels that share their partners."""
    rules = []
    for (i, j), free in sorted(allowed.items()):
        patterns, which = np.unique(free, axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            if not pattern.all():
                rules.append(
                    Forbidden(
                        first=attributes[i].name,
                        first_levels=tuple(np.nonzero(which.ravel() == number)[0].tolist()),
                        second=attributes[j].name,
                        second_levels=tuple(np.nonzero(~pattern)[0].tolist()),
                    )
                )
    return tuple(rules)


def _check(attributes: Sequence[Attribute], rules: Sequence[Rule]) -> None:
    """Refuse rules that contradict one another, or under which some level can never occur."""
    seen: dict[str, int] = {}
    for number, rule in enumerate(rules, start=1):
        if isinstance(rule, Determined):
            if rule.attribute in seen:
                raise SchemaError(
                    f"rule {number}: rule {seen[rule.attribute]} determines '{rule.attribute}' already. Remove one."
                )
            seen[rule.attribute] = number
    allowed = allowed_pairs(attributes, rules)
    for (i, j), free in allowed.items():
        for one, other, support in ((i, j, free.any(axis=1)), (j, i, free.any(axis=0))):
            if not support.all():
                level = attributes[one].levels[int(np.argmin(support))]
                raise SchemaError(
                    f"rules: level '{level}' of '{attributes[one].name}' is forbidden with every level of "
                    f"'{attributes[other].name}', so that it can never occur. Correct a rule, or remove the level."
                )
    sizes = [attribute.n_levels for attribute in attributes]
    for group in groups(allowed):
        within = {pair: free for pair, free in allowed.items() if pair[0] in group}
        # Without a cycle, pairwise support is enough (Freuder 1982).
        if len(within) >= len(group):
            _check_levels(attributes, group, within, sizes)


def _check_levels(
    attributes: Sequence[Attribute], group: Sequence[int], allowed: Allowed, sizes: Sequence[int]
) -> None:
    """Find a record for every level of a group of attributes that rules tie together in a cycle."""
    found = {i: np.zeros(sizes[i], dtype=bool) for i in group}
    effort = Effort(MAX_EFFORT)
    for i in group:
        for level in range(sizes[i]):
            if found[i][level]:
                continue
            domains = {j: np.ones(sizes[j], dtype=bool) for j in group}
            domains[i] = np.arange(sizes[i]) == level
            named = f"level '{attributes[i].levels[level]}' of '{attributes[i].name}'"
            try:
                record = solve(domains, allowed, effort=effort)
            except EffortError:
                raise SchemaError(
                    f"rules: whether {named} can occur was not decided within {MAX_EFFORT:,} steps of search. "
                    "State fewer or simpler rules."
                ) from None
            if record is None:
                raise SchemaError(
                    f"rules: {named} can occur in no record: the rules together leave it no partners. Correct a rule, "
                    "or remove the level."
                )
            for j, code in record.items():
                found[j][code] = True


def groups(allowed: Allowed) -> list[list[int]]:
    """Attributes that rules tie together, directly or through others."""
    found: list[set[int]] = []
    for pair in allowed:
        touched = [group for group in found if group & set(pair)]
        found = [group for group in found if not group & set(pair)] + [set(pair).union(*touched)]
    return sorted(sorted(group) for group in found)


class EffortError(Exception):
    """A search did not end within its effort. Internal: whoever searches says what that means."""


class Effort:
    """What a search may still cost."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        """Count, and stop the search when nothing is left."""
        self._left -= steps
        if self._left < 0:
            raise EffortError


def solve(
    domains: Mapping[int, NDArray[np.bool_]],
    allowed: Allowed,
    *,
    effort: Effort,
    order: Callable[[int, NDArray[np.int64]], Iterable[int]] = lambda _attribute, codes: codes.tolist(),
) -> dict[int, int] | None:
    """A level of every attribute, within its domain, such that all pairs are allowed; None when no record is.

    Backtracking that keeps domains arc-consistent (Sabin and Freuder 1994), so that it never turns back where the rules
    have no cycle. `order` says which level to try first.
    """
    neighbors: dict[int, list[tuple[int, NDArray[np.bool_]]]] = {i: [] for i in domains}
    for (i, j), free in allowed.items():
        if i in domains and j in domains:
            neighbors[i].append((j, free))
            neighbors[j].append((i, free.T))
    start = _propagated(dict(domains), neighbors, list(domains), effort)
    return None if start is None else _search(start, neighbors, effort, order)


def _search(
    start: dict[int, NDArray[np.bool_]],
    neighbors: Mapping[int, list[tuple[int, NDArray[np.bool_]]]],
    effort: Effort,
    order: Callable[[int, NDArray[np.int64]], Iterable[int]],
) -> dict[int, int] | None:
    # A stack of its own: rules may tie more attributes together than Python nests calls.
    stack: list[Iterator[dict[int, NDArray[np.bool_]]]] = [iter([start])]
    while stack:
        domains = next(stack[-1], None)
        if domains is None:
            stack.pop()
            continue
        undecided = [i for i, domain in domains.items() if np.count_nonzero(domain) > 1]
        if not undecided:
            return {i: int(np.argmax(domain)) for i, domain in domains.items()}
        attribute = min(undecided, key=lambda i: int(np.count_nonzero(domains[i])))
        codes = order(attribute, np.nonzero(domains[attribute])[0])
        stack.append(_branches(domains, attribute, codes, neighbors, effort))
    return None


def _branches(
    domains: dict[int, NDArray[np.bool_]],
    attribute: int,
    codes: Iterable[int],
    neighbors: Mapping[int, list[tuple[int, NDArray[np.bool_]]]],
    effort: Effort,
) -> Iterator[dict[int, NDArray[np.bool_]]]:
    for code in codes:
        fixed = domains | {attribute: np.arange(domains[attribute].size) == code}
        narrowed = _propagated(fixed, neighbors, [attribute], effort)
        if narrowed is not None:
            yield narrowed


def _propagated(
    domains: dict[int, NDArray[np.bool_]],
    neighbors: Mapping[int, list[tuple[int, NDArray[np.bool_]]]],
    changed: list[int],
    effort: Effort,
) -> dict[int, NDArray[np.bool_]] | None:
    """Domains without the levels that have no partner left in a neighbor's; None when one becomes empty."""
    waiting = list(changed)
    while waiting:
        i = waiting.pop()
        for j, free in neighbors[i]:
            effort.spend(free.size)
            kept = domains[j] & free[domains[i]].any(axis=0)
            if not kept.any():
                return None
            if np.count_nonzero(kept) < np.count_nonzero(domains[j]):
                domains[j] = kept
                waiting.append(j)
    return domains


def violating(codes: NDArray[np.integer[Any]], allowed: Allowed) -> NDArray[np.bool_]:
    """Which records, columns of codes of shape (m, rows), hold a forbidden combination. Code -1 is in none."""
    broken = np.zeros(codes.shape[1], dtype=bool)
    for (i, j), free in allowed.items():
        broken |= ~free[codes[i], codes[j]] & (codes[i] >= 0) & (codes[j] >= 0)
    return broken


def constrained(allowed: Allowed) -> tuple[int, ...]:
    """The attributes that some forbidden combination is about, ascending."""
    return tuple(sorted(set(chain.from_iterable(allowed))))
