"""A search for a record that honors all rules: one level for every attribute, such that every pair is allowed.

Rules speak of pairs of attributes, so this is a binary constraint satisfaction problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

# Which pairs of levels one record may have, shape (levels of i, levels of j), for attributes i < j. Any two levels of a
# pair of attributes that is not listed may stand together.
Allowed: TypeAlias = Mapping[tuple[int, int], NDArray[np.bool_]]


def groups(allowed: Allowed) -> list[list[int]]:
    """Attributes that rules tie together, directly or through others."""
    found: list[set[int]] = []
    for pair in allowed:
        touched = [group for group in found if group & set(pair)]
        found = [group for group in found if not group & set(pair)] + [set(pair).union(*touched)]
    return sorted(sorted(group) for group in found)


class EffortError(Exception):
    """A search did not end within its effort. Internal: the caller knows what that means and says it."""


class Effort:
    """How many steps a search may still take."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        """Take steps, and stop the search when none are left."""
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
    """A record: one level from every attribute's domain, such that all pairs are allowed. None when there is none.

    Backtracking that keeps domains arc-consistent (Sabin and Freuder 1994), so it never turns back where the rules have
    no cycle. `order` puts the levels of an attribute into the order in which they are tried.
    """
    neighbors = _neighbors(domains, allowed)
    start = _propagated(dict(domains), neighbors, list(domains), effort)
    return None if start is None else _search(start, neighbors, effort, order)


def narrowed(domains: Mapping[int, NDArray[np.bool_]], allowed: Allowed) -> dict[int, NDArray[np.bool_]] | None:
    """The domains without levels that have no allowed partner in another one; None when one of them gets empty."""
    return _propagated(dict(domains), _neighbors(domains, allowed), list(domains), Effort(2**62))


def _neighbors(
    domains: Mapping[int, NDArray[np.bool_]], allowed: Allowed
) -> dict[int, list[tuple[int, NDArray[np.bool_]]]]:
    neighbors: dict[int, list[tuple[int, NDArray[np.bool_]]]] = {i: [] for i in domains}
    for (i, j), free in allowed.items():
        if i in domains and j in domains:
            neighbors[i].append((j, free))
            neighbors[j].append((i, free.T))
    return neighbors


def _search(
    start: dict[int, NDArray[np.bool_]],
    neighbors: Mapping[int, list[tuple[int, NDArray[np.bool_]]]],
    effort: Effort,
    order: Callable[[int, NDArray[np.int64]], Iterable[int]],
) -> dict[int, int] | None:
    # A stack instead of recursion: rules may tie together more attributes than Python can nest calls.
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
    """The domains without the levels that have no allowed partner in a neighbor's domain; None when one gets empty."""
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
