"""People and their events to tables of tokens, and those through the vault's door.

`kernel.queries.deal` deals: whatever stands here, a person gives at most one unit to each table. What is decided here
is to which cells, by the weights that `budget.linked` describes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sklar.budget.linked import FULL_WEIGHT, LinkedPlan, LinkedTable
from sklar.kernel.queries import Block, Entries
from sklar.kernel.theorems import Budget
from sklar.kernel.vault import Vault
from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import side_by_side
from sklar.public.events import Linked
from sklar.rows.join import Joined, LinkedRows


def measure_linked(
    rows: LinkedRows, vault: Vault, linked: Linked, plan: LinkedPlan, budget: Budget, *, progress: Progress = SILENT
) -> tuple[list[Block], int | None]:
    """Noisy blocks by this plan, and the number of people where it is public."""
    # Without their number: how many rows people have is nobody's business.
    progress.stage("count")
    joined = rows.join()
    vault.hold(joined.n_people)
    exact = count_tokens(joined, linked, plan)
    progress.stage("measure")
    vault.reserve(plan.spend(budget))
    blocks = [vault.measure(query, counts, scales) for (query, scales), counts in zip(plan.parts, exact, strict=True)]
    return blocks, vault.n_rows


def count_tokens(joined: Joined, linked: Linked, plan: LinkedPlan) -> list[NDArray[np.int64]]:
    """Tokens of all people, the tables of one query after the other."""
    of_kind = [[table for table in plan.tables if table.kind == query.what] for query, _ in plan.parts]
    exact = [np.zeros(query.n_cells, dtype=np.int64) for query, _ in plan.parts]
    for first, last in joined.parts():
        part = _Part(joined, linked, first, last)

        def dealt(at: int, part: _Part = part) -> NDArray[np.int64]:
            return plan.parts[at][0].count([part.entries(table) for table in of_kind[at]])

        for total, tokens in zip(exact, side_by_side(dealt, range(len(exact))), strict=True):
            np.add(total, tokens, out=total)
    return exact


class _Part:
    """Some people with their events: who gives which parts of their unit to which cells."""

    def __init__(self, joined: Joined, linked: Linked, first: int, last: int) -> None:
        start, end = int(joined.begins[first]), int(joined.begins[last])
        self._people = joined.people[:, first:last].astype(np.int64)
        self._events = joined.events[:, start:end].astype(np.int64)
        self._number = np.diff(joined.begins[first : last + 1])
        self._everyone = np.arange(last - first)
        self._owner = np.repeat(self._everyone, self._number)
        self._bin = np.searchsorted(np.array(linked.bins), self._number, side="right") - 1

    def entries(self, table: LinkedTable) -> Entries:
        """Who gives which parts of their unit to which cells of this table."""
        kind, i, j = table.kind, table.first, table.second
        people, events, owner = self._people, self._events, self._owner
        if kind == "event":
            return self._halves(table)
        if kind == "two-events":
            return self._twice(table)
        if kind in ("person-event", "event-event", "number-event"):
            if kind == "person-event":
                cell = _crossed(people[i][owner], events[j], table.shape[1])
            elif kind == "event-event":
                cell = _crossed(events[i], events[j], table.shape[1])
            else:
                cell = _crossed(self._bin[owner] - 1, events[i], table.shape[1])
            return owner, cell, np.ones_like(owner), self._number[owner]
        if kind == "people":
            cell = np.zeros_like(self._everyone)
        elif kind == "person":
            cell = people[i]
        elif kind == "number":
            cell = self._number
        elif kind == "person-person":
            cell = _crossed(people[i], people[j], table.shape[1])
        else:
            cell = _crossed(self._bin, people[i], table.shape[1])
        ones = np.ones_like(self._everyone)
        return self._everyone, cell, ones, ones

    def _halves(self, table: LinkedTable) -> Entries:
        """Each event's 1/k, cut in two by min(k, 12)/12."""
        code, owner, size = self._events[table.first], self._owner, table.shape[1]
        number = self._number[owner]
        full = np.minimum(number, FULL_WEIGHT)
        cell = np.concatenate([code, np.where(code >= 0, code + size, -1)])
        weight = np.concatenate([full, FULL_WEIGHT - full])
        twice = np.concatenate([owner, owner])
        return twice, cell, weight, FULL_WEIGHT * self._number[twice]

    def _twice(self, table: LinkedTable) -> Entries:
        """Pairs of a person's events by the two levels of an attribute, the lower first: 2/(k (k - 1)) each."""
        code, size = self._events[table.first], table.shape[0]
        kept = code >= 0
        levels, times = np.unique(self._owner[kept] * size + code[kept], return_counts=True)
        owner, level = np.divmod(levels, size)
        # Every level of a person with every level of the same person that is not below it.
        following = np.searchsorted(owner, owner, side="right") - np.arange(owner.size)
        one = np.repeat(np.arange(owner.size), following)
        other = one + np.arange(one.size) - np.repeat(np.cumsum(following) - following, following)
        same = one == other
        weight = np.where(same, times[one] * (times[one] - 1) // 2, times[one] * times[other])
        low, high = level[one], level[other]
        number = self._number[owner[one]]
        cell = triangle(low, high, size)
        return owner[one], cell, weight, number * (number - 1) // 2


def triangle(low: NDArray[np.int64], high: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Where the pair of levels low <= high stands among all such pairs, in the order of `np.triu_indices`.

    >>> triangle(*np.triu_indices(3), 3).tolist()
    [0, 1, 2, 3, 4, 5]
    """
    return low * size - low * (low - 1) // 2 + high - low


def _crossed(first: NDArray[np.int64], second: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """The cell of two codes, -1 where one of them is no level."""
    return np.where((first >= 0) & (second >= 0), first * width + second, -1)
