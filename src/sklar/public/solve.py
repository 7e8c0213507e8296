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
# Which levels of each attribute are still possible.
Levels: TypeAlias = Mapping[int, NDArray[np.bool_]]


def groups(allowed: Allowed) -> list[list[int]]:
    """Attributes that rules tie together, directly or through others."""
    sets: list[set[int]] = []
    for pair in allowed:
        touched = [group for group in sets if group & set(pair)]
        sets = [group for group in sets if not group & set(pair)] + [set(pair).union(*touched)]
    return sorted(sorted(group) for group in sets)


class EffortError(Exception):
    """A search did not end within its effort. Internal: the caller knows what that means and says it."""


class SearchSteps:
    """How many steps searches may still take."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        """Take steps, and stop the search when none are left."""
        self._left -= steps
        if self._left < 0:
            raise EffortError


def solve(
    domains: Levels,
    allowed: Allowed,
    *,
    effort: SearchSteps,
    order: Callable[[int, NDArray[np.int64]], Iterable[int]] = lambda _attribute, codes: codes.tolist(),
) -> dict[int, int] | None:
    """A record: one level from every attribute's domain, such that all pairs are allowed. None when there is none.

    Backtracking that keeps domains arc-consistent (Sabin and Freuder 1994), so it never turns back where the rules have
    no cycle. `order` puts the levels of an attribute into the order in which they are tried.
    """
    neighbors = _neighbors(domains, allowed)

    def branches(parent: Levels, attribute: int) -> Iterator[Levels | None]:
        size = parent[attribute].size
        for code in order(attribute, np.flatnonzero(parent[attribute])):
            yield _propagate({**parent, attribute: np.arange(size) == code}, neighbors, [attribute], effort)

    # A stack instead of recursion: rules may tie together more attributes than Python can nest calls.
    stack: list[Iterator[Levels | None]] = [iter([_propagate(domains, neighbors, domains, effort)])]
    while stack:
        for current in stack[-1]:
            if current is None:
                continue
            sizes = {i: int(np.count_nonzero(domain)) for i, domain in current.items()}
            open_sizes = {i: size for i, size in sizes.items() if size > 1}
            if not open_sizes:
                return {i: int(np.argmax(domain)) for i, domain in current.items()}
            stack.append(branches(current, min(open_sizes, key=open_sizes.__getitem__)))
            break
        else:
            stack.pop()
    return None


def narrowed(domains: Levels, allowed: Allowed) -> Levels | None:
    """The domains without levels that have no allowed partner in another one; None when one of them gets empty."""
    return _propagate(domains, _neighbors(domains, allowed), domains, SearchSteps(2**62))


_Neighbors: TypeAlias = Mapping[int, list[tuple[int, NDArray[np.bool_]]]]


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
            effort.spend(free.size)
            kept = left[j] & free[left[i]].any(axis=0)
            if not kept.any():
                return None
            if np.count_nonzero(kept) < np.count_nonzero(left[j]):
                left[j] = kept
                waiting.append(j)
    return left
