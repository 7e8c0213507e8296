"""A table of people and a table of events: joined by their keys, and dealt to tables of tokens.

A person is a key of the table of people, with the first row that has it; a row without a key is a person of their own,
without events. An event whose key no person has is left out: by rule, and without a word to anyone but the custodian
(`custodian.check`). Of a person's events that must be `unique` the first in the table is kept, and of those who have
more events than the schema says, so many are chosen at random (`kernel.people`). So whatever one person's rows are,
they decide nothing about anyone else's part. Keys are compared as texts (`encode.id_texts`). No value raises.

`queries.Shares` deals: whatever stands here, a person gives at most one unit to each table. What is decided here is to
which cells, by the weights that `budget.plan.KINDS` describes.

Where events have an order, each person's are put in it, those of one time as they stand in the table; an event whose
time is no level has no place in it. A step is from an event to the next one of the same person. A person with s steps
gives 1/s for each: none is negative, and together they are one unit, however many there are. So a person's vector v in
such a table has L1 and L2 norm of at most one unit, and replacing a person moves the table by at most |v - v'| <=
sqrt(|v|^2 + |v'|^2) <= sqrt(2) units. Order, gaps and steps of a person are functions of that person's rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from os import urandom

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.certificate import LinkedMeasured, certify
from sklar.budget.plan import FULL_WEIGHT, STEPS, LinkedTable, Plan, linked_tables, plan_linked
from sklar.errors import DataError
from sklar.kernel.people import choose_rows
from sklar.kernel.queries import Entries, Shares
from sklar.kernel.theorems import Budget
from sklar.kernel.vault import Charge, Vault
from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import side_by_side, workers
from sklar.public.attribute import Attribute
from sklar.public.events import Course, Linked
from sklar.public.schema import Schema
from sklar.rows.encode import NO_TEXT, encode, id_texts, numbers_of
from sklar.rows.read import open_source
from sklar.rows.source import Source, require_columns

# Events that are worked on at a time.
_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Joined:
    """Codes of people and of their events: private.

    `people` has shape (attributes, n) and `events` (attributes, N). The events of person i stand from `begins[i]` up to
    `begins[i + 1]`, where they have an order in that of their `times`, shape (N,), which are -1 where an event has
    none. `unmatched` events had the key of nobody, `beyond` were left out of those who had too many, or two that must
    be unique, and `repeated` rows of people had the key of an earlier row.
    """

    people: NDArray[np.int16]
    events: NDArray[np.int16]
    begins: NDArray[np.int64]
    times: NDArray[np.int64]
    unmatched: int
    beyond: int
    repeated: int

    def __repr__(self) -> str:
        # A traceback or a debugger's log must not print codes.
        return "Joined(private)"

    @property
    def n_people(self) -> int:
        """How many people there are."""
        return self.begins.size - 1

    @property
    def numbers(self) -> NDArray[np.int64]:
        """How many events each person has, shape (n,)."""
        return np.diff(self.begins)

    def parts(self) -> Iterator[tuple[int, int]]:
        """The first and last person of parts of the people that have about as many events each."""
        first = 0
        while first < self.n_people:
            last = int(np.searchsorted(self.begins, self.begins[first] + _AT_ONCE, side="right")) - 1
            last = min(max(last, first + 1), first + _AT_ONCE, self.n_people)
            yield first, last
            first = last


def join(people: object, events: object, linked: Linked) -> Joined:
    """Codes of all people with those of their events. Tables that lack a column are refused before a row is read."""
    of_people = _open(people, linked.people, linked.people_key, "people")
    of_events = _open(events, linked.events, linked.events_key, "events")
    keys, codes, _ = _read(of_people, linked.people, linked.people_key)
    kept = np.flatnonzero((keys.is_null() | keys.is_first_distinct()).to_numpy())
    known = pl.DataFrame({"key": keys[kept], "number": np.arange(kept.size)}).drop_nulls()
    keys_of_events, codes_of_events, times = _read(of_events, linked.events, linked.events_key, linked.course)
    owned = keys_of_events.to_frame("key").join(known, on="key", how="left", maintain_order="left")
    owner = owned["number"].fill_null(-1).to_numpy()
    matched = np.flatnonzero(owner >= 0)
    counted = matched[_first_of_each(owner, codes_of_events, times, linked)[matched]]
    marks = np.stack([owner[counted], np.zeros_like(counted)], axis=1).astype(np.uint64)
    keys_of_rows = np.frombuffer(urandom(8 * counted.size), dtype=np.uint64)
    chosen = np.sort(counted[choose_rows(marks, keys_of_rows, linked.at_most)])
    chosen = chosen[np.lexsort((times[chosen], owner[chosen]))]
    begins = np.concatenate([[0], np.cumsum(np.bincount(owner[chosen], minlength=kept.size))])
    return Joined(
        people=codes[:, kept],
        events=codes_of_events[:, chosen],
        begins=begins.astype(np.int64),
        times=times[chosen],
        unmatched=int(owner.size - matched.size),
        beyond=int(matched.size - chosen.size),
        repeated=int(len(keys) - kept.size),
    )


def _open(data: object, schema: Schema, key: str, part: str) -> Source:
    source = open_source(data, schema)
    require_columns(source, schema)
    if key not in source.columns:
        raise DataError(
            f"{source.name} has no column '{key}', which [{part}] names as its key. Correct the key, or the file."
        )
    return source


def _read(
    source: Source, schema: Schema, key: str, course: Course | None = None
) -> tuple[pl.Series, NDArray[np.int16], NDArray[np.int64]]:
    """Keys, codes and times (zeros without a course) of a table, in its order. Two bytes hold every code."""
    keys, times = [pl.Series("id", [], dtype=pl.String)], [np.empty(0, dtype=np.int64)]
    codes = [np.empty((schema.n_attributes, 0), dtype=np.int16)]
    for batch in source.batches((key, *schema.columns)):
        keys.append(id_texts(batch.to_series(0)))
        codes.append(encode(batch.select(pl.nth(range(1, batch.width))), schema).astype(np.int16))
        times.append(np.zeros(batch.height, dtype=np.int64))
        if course is not None:
            column, levels = batch.to_series(1 + course.order), codes[-1][course.order]
            times[-1] = _times(column, levels, schema.attributes[course.order], course)
    texts = pl.concat(keys)
    # What has no text is no key.
    return texts.set(texts == NO_TEXT, None), np.concatenate(codes, axis=1), np.concatenate(times)


def _times(column: pl.Series, levels: NDArray[np.int16], attribute: Attribute, course: Course) -> NDArray[np.int64]:
    """The times of a column of these levels: of the domain whatever its values are, and -1 where one is no level."""
    if column.dtype == pl.Null or column.dtype.is_nested():
        return np.full(levels.size, -1, dtype=np.int64)
    steps = np.nan_to_num(numbers_of(column, attribute)) // course.step - course.first
    return np.where(levels >= 0, np.clip(steps, 0, course.width - 1), -1).astype(np.int64)


def _first_of_each(
    owner: NDArray[np.int64], codes: NDArray[np.int16], times: NDArray[np.int64], linked: Linked
) -> NDArray[np.bool_]:
    """Which events are the first of their person with their time, or their levels, of the unique attributes."""
    if not linked.unique:
        return np.ones(owner.size, dtype=bool)
    of = linked.events.names.index
    columns = [times if name == linked.order else codes[of(name)] for name in linked.unique]
    same = pl.DataFrame({str(place): column for place, column in enumerate([owner, *columns])})
    return same.select(pl.struct(pl.all()).is_first_distinct()).to_series().to_numpy()


def measure_shares(
    people: object,
    events: object,
    linked: Linked,
    budget: Budget,
    *,
    charge: Charge | None = None,
    progress: Progress = SILENT,
) -> LinkedMeasured:
    """All noisy tables of people and their events, by the plan that spends this budget."""
    plan, vault = plan_linked(linked, budget), Vault(budget, charge=charge, threads=workers())
    # Without their number: how many rows people have is nobody's business.
    progress.stage("count")
    joined = join(people, events, linked)
    vault.hold(joined.n_people)
    exact = count_tokens(joined, linked, plan)
    progress.stage("measure")
    vault.reserve(plan.spend(budget))
    blocks = [vault.measure(query, counts, scales) for (query, scales), counts in zip(plan.parts, exact, strict=True)]
    certificate = certify(linked, budget, blocks, vault.n_rows)
    return LinkedMeasured(linked=linked, blocks=tuple(blocks), certificate=certificate)


def count_tokens(joined: Joined, linked: Linked, plan: Plan) -> list[NDArray[np.int64]]:
    """Tokens of all people, the tables of one query after the other."""
    queries = [query for query, _ in plan.parts if isinstance(query, Shares)]
    exact = [np.zeros(query.n_cells, dtype=np.int64) for query in queries]
    for first, last in joined.parts():
        part = _SomePeople(joined, linked, first, last)
        for total, tokens in zip(exact, side_by_side(part.tokens, queries), strict=True):
            np.add(total, tokens, out=total)
    return exact


class _SomePeople:
    """Some people with their events: who gives which parts of their unit to which cells."""

    def __init__(self, joined: Joined, linked: Linked, first: int, last: int) -> None:
        start, end = int(joined.begins[first]), int(joined.begins[last])
        self._tables = linked_tables(linked)
        self._people = joined.people[:, first:last].astype(np.int64)
        self._events = joined.events[:, start:end].astype(np.int64)
        self._number = np.diff(joined.begins[first : last + 1])
        self._everyone = np.arange(last - first)
        self._owner = np.repeat(self._everyone, self._number)
        self._bin = np.searchsorted(np.array(linked.bins), self._number, side="right") - 1
        if linked.course is not None:
            self._follow(linked.course, joined.times[start:end])

    def _follow(self, course: Course, times: NDArray[np.int64]) -> None:
        """Find everybody's first event, and steps from one event to the next, among events that have a time."""
        timed = np.flatnonzero(times >= 0)
        first = np.diff(self._owner[timed], prepend=-1) > 0
        after = np.flatnonzero(~first)
        self._first, self._before, self._after = timed[first], timed[after - 1], timed[after]
        waits = times[self._after] - times[self._before]
        self._gap = np.searchsorted(np.array(course.gaps), waits, side="right") - 1

    def tokens(self, query: Shares) -> NDArray[np.int64]:
        """What they give to the tables of a query."""
        return query.count([self._entries(table) for table in self._tables[query.what]])

    def _entries(self, table: LinkedTable) -> Entries:
        """Who gives which parts of their unit to which cells of this table."""
        people, events, owner, first, second = self._people, self._events, self._owner, table.first, table.second
        crossed = partial(_crossed, width=table.shape[-1])
        by_event: dict[str, Callable[[], NDArray[np.int64]]] = {
            "person-event": lambda: crossed(people[first][owner], events[second]),
            "event-event": lambda: crossed(events[first], events[second]),
            "number-event": lambda: crossed(self._bin[owner] - 1, events[first]),
        }
        by_person: dict[str, Callable[[], NDArray[np.int64]]] = {
            "people": lambda: np.zeros_like(self._everyone),
            "person": lambda: people[first],
            "number": lambda: self._number,
            "person-person": lambda: crossed(people[first], people[second]),
            "number-person": lambda: crossed(self._bin, people[first]),
        }
        if table.kind == "first-event":
            whose = owner[self._first]
            return whose, events[first][self._first], np.ones_like(whose), np.ones_like(whose)
        if table.kind in STEPS:
            mover, before = owner[self._after], events[first][self._before]
            by_step: dict[str, Callable[[], NDArray[np.int64]]] = {
                "next-event": lambda: crossed(before, events[first][self._after]),
                "event-gap": lambda: crossed(before, self._gap),
                "number-gap": lambda: crossed(self._bin[mover] - 2, self._gap),
            }
            return mover, by_step[table.kind](), np.ones_like(mover), np.bincount(mover)[mover]
        if table.kind in by_event:
            return owner, by_event[table.kind](), np.ones_like(owner), self._number[owner]
        if table.kind in by_person:
            return self._everyone, by_person[table.kind](), np.ones_like(self._everyone), np.ones_like(self._everyone)
        return self._halves(table) if table.kind == "event" else self._twice(table)

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
        """Pairs of a person's events by the two levels of an attribute, the lower first: 2/(k (k - 1)) each.

        Apart from steps, where those are a table of their own: 2/((k - 1) (k - 2)) each.
        """
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
        whose, cell = owner[one], triangle(level[one], level[other], size)
        number = self._number[whose]
        if table.kind == "two-events":
            return whose, cell, weight, number * (number - 1) // 2
        steps = np.sort(code[np.stack([self._before, self._after])], axis=0)
        known = np.flatnonzero(steps[0] >= 0)
        low, high = steps[:, known]
        # Pairs by person and cell ascend, and every step is one of them.
        mover = self._owner[self._after][known]
        place = np.searchsorted(whose * table.cells + cell, mover * table.cells + triangle(low, high, size))
        weight -= np.bincount(place, minlength=weight.size)
        return whose, cell, weight, (number - 1) * (number - 2) // 2


def triangle(low: NDArray[np.int64], high: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Where the pair of levels low <= high stands among all such pairs, in the order of `np.triu_indices`.

    >>> triangle(*np.triu_indices(3), 3).tolist()
    [0, 1, 2, 3, 4, 5]
    """
    return low * size - low * (low - 1) // 2 + high - low


def _crossed(first: NDArray[np.int64], second: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """The cell of two codes, -1 where one of them is no level."""
    return np.where((first >= 0) & (second >= 0), first * width + second, -1)
