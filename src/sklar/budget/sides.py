"""What is measured of linked tables beside their joint table, about all rows of a person: which tables, and where rows
stand in them. One description for counting, fitting, drawing, verifying and comparing.

A person's rows make entries, each with a cell of every table of a side: one for how many rows there are, one for how
many levels, or what sum, they have; one for each row, for each two that stand beside each other in a ring of random
order, and for each step from a row to the next one in time. A person's entries weigh the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from sklar.kernel.cells import Doubles, Ints
from sklar.kernel.queries import NO_CELL, Shares
from sklar.public.attribute import Attribute
from sklar.public.outputs import grain
from sklar.public.schema import Schema
from sklar.public.tree import FINEST, Branch, Tree

# By kind: its part of the precision of all sides, and what it is in words. Where no one attribute follows another, rows
# have one state.
SIDES: Mapping[str, tuple[float, str]] = {
    "number": (1, "how many {of} a person has"),
    "two": (8, "one attribute in two of a person's {of}"),
    "distinct": (3, "how many levels a person's {of} have"),
    "total": (3, "what numbers of a person's {of} sum to"),
    "first": (1.5, "the first of a person's {of}"),
    "next": (7, "one of a person's {of} and the next one"),
    "gap": (4, "one of a person's {of} and the gap to the next one"),
    "gaps": (4, "how many {of} a person has, and the gaps between them"),
}
# Those that are about steps from a row to the next one.
STEPS = ("next", "gap", "gaps")
# Cells of a table of two rows beyond which next to nothing but noise would be measured.
_MOST_OF_TWO = 1 << 16
_SUMMED = ("integer", "real", "duration")


class Axis(NamedTuple):
    """What an axis is about: levels of the attribute at this place, how many of them a person has, or what its numbers
    sum to; the number of rows, or gaps. Where its bins begin, and where the last one ends."""

    of: str
    edges: tuple[int, ...]
    place: int = -1

    @property
    def size(self) -> int:
        """How many bins, or levels, there are."""
        return len(self.edges) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Tables of one kind about the rows of one table: their axes. Those of two rows have no order: a triangle."""

    of: Branch
    kind: str
    tables: tuple[tuple[Axis, ...], ...]

    @property
    def what(self) -> str:
        """The name of its query."""
        return f"{self.of.name}: {self.kind}"

    @property
    def query(self) -> Shares:
        """What is asked of people."""
        return Shares(what=self.what, lengths=np.array(self.lengths, dtype=np.int64), each=1)

    @property
    def said(self) -> str:
        """What its tables are, in words."""
        return said_of(self.what)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each table, but for those of two rows."""
        return tuple(tuple(axis.size for axis in axes) for axes in self.tables)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of cells of each table."""
        two = self.kind == "two"
        return tuple(shape[0] * (shape[0] + 1) // 2 if two else math.prod(shape) for shape in self.shapes)


def said_of(what: str) -> str:
    """What the tables of a side are, in words, by their name."""
    of, _, kind = what.partition(": ")
    return SIDES[kind][1].format(of=of)


def weighed_sides(tree: Tree, branch: Branch) -> tuple[Side, ...]:
    """What drawn rows of a table are weighed by: all its sides but numbers, and single levels by the number of rows."""
    own = tuple(side for side in sides_of(tree) if side.of == branch and side.kind != "number")
    known, number = branch.schema.determined, Axis("number", branch.bins[1:])
    levels = ((number, _levels(branch.schema, at)) for at, name in enumerate(branch.schema.names) if name not in known)
    return (*own, Side(of=branch, kind="level", tables=tuple(levels))) if own else ()


def _levels(schema: Schema, place: int) -> Axis:
    return Axis("level", tuple(range(schema.attributes[place].n_levels + 1)), place)


@lru_cache(maxsize=8)
def sides_of(tree: Tree) -> tuple[Side, ...]:
    """All that is measured of linked tables beside their joint table. What has no table is left out."""
    found = (Side(of=branch, kind=kind, tables=tables) for branch in tree.children(tree.name)
        for kind, tables in _tables(branch).items())  # fmt: skip
    return tuple(side for side in found if side.tables)


def _tables(branch: Branch) -> dict[str, tuple[tuple[Axis, ...], ...]]:
    schema, bins, several = branch.schema, branch.bins, branch.at_most > 1
    number = Axis("number", bins[2:])
    own = [_levels(schema, place) for place in range(schema.n_attributes)]
    apart = {branch.order, *schema.determined}
    twice = [axis for axis in own if several and schema.names[axis.place] not in apart]
    twice = [axis for axis in twice if axis.size * (axis.size + 1) // 2 <= _MOST_OF_TWO]
    tables = {"number": ((Axis("number", tuple(range(branch.at_most + 2))),),)}
    tables["two"] = tuple((axis, axis) for axis in twice)
    # So many levels at most: the last bin ends where it would.
    upto = [bins[1 : 2 + int(np.searchsorted(bins[1:], axis.size, side="right"))] for axis in twice]
    tables["distinct"] = tuple(
        (number, Axis("distinct", each, axis.place)) for each, axis in zip(upto, twice, strict=True)
    )
    summed = [axis.place for axis in twice if steps_of(schema.attributes[axis.place]) is not None]
    tables["total"] = tuple((number, Axis("total", _ladder(branch, place), place)) for place in summed)
    if (course := branch.course) is not None:
        gaps = Axis("gap", course.gaps)
        tables["gaps"] = ((number, gaps),)
        if course.follows is not None:
            state = own[course.follows]
            tables |= {"first": ((state,),), "next": ((state, state),), "gap": ((state, gaps),)}
    return tables


def steps_of(attribute: Attribute) -> tuple[float, float] | None:
    """Where the numbers of an attribute begin, and the step that their sums are counted in; None where none are summed."""
    if attribute.kind not in _SUMMED or not attribute.edges or attribute.part_of:
        return None
    least, most = float(attribute.edges[0]), float(attribute.edges[-1])
    return least, max(float(grain(attribute) or 0), (most - least) / FINEST)


def _ladder(branch: Branch, place: int) -> tuple[int, ...]:
    """Bins of sums, in steps beyond the least number: none, and each bin as wide as all before it."""
    attribute = branch.schema.attributes[place]
    least, step = steps_of(attribute) or (0.0, 1.0)
    most = branch.at_most * math.ceil((float(attribute.edges[-1]) - least) / step) + 1
    return (0, *takewhile(lambda edge: edge < most, (1 << k for k in range(64))), most)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """The rows of some people in one table, private or drawn: `owner` says whose each is, ascending, and those of one
    person stand in a random `ring`: places of rows. `codes` are levels by place, `numbers` steps beyond the least
    number, and `times` where rows have an order; -1 is none. `number` is how many each person has.
    """

    owner: Ints
    number: Ints
    ring: Ints
    codes: Mapping[int, Ints]
    numbers: Mapping[int, Doubles]
    times: Ints | None

    def __repr__(self) -> str:
        # A traceback or a debugger's log must not print codes.
        return "Rows(private)"


def entries_of(side: Side, rows: Rows) -> tuple[Ints, list[Ints]]:
    """Whose the entries are, and for each table the cells in which they stand: by the rows of that person alone."""
    owner, one, two = _entries(side.kind, rows)

    def along(axis: Axis, row: Ints) -> Ints:
        if axis.of == "level":
            return rows.codes[axis.place][row]
        values: Any = rows.number[owner]
        if axis.of == "gap" and rows.times is not None:
            values = rows.times[two] - rows.times[one]
        elif axis.of == "distinct":
            codes, size = rows.codes[axis.place], len(side.of.schema.attributes[axis.place].levels)
            held = np.unique((rows.owner * size + codes)[codes >= 0]) // size
            values = np.bincount(held, minlength=rows.number.size)[owner]
        elif axis.of == "total":
            values = np.rint(np.bincount(rows.owner, rows.numbers[axis.place], rows.number.size))[owner]
        return np.searchsorted(np.array(axis.edges), values, side="right") - 1

    cells = []
    for axes in side.tables:
        own = [along(axis, row) for axis, row in zip(axes, (one, two), strict=False)]
        low, high, size = own[0], own[-1], axes[-1].size
        if side.kind == "two":
            cells.append(triangle(low, high, size))
        else:
            whole = low * size + high if len(own) > 1 else low
            cells.append(np.where((low >= 0) & (high >= 0) & (high < size), whole, NO_CELL))
    return owner, cells


def _entries(kind: str, rows: Rows) -> tuple[Ints, Ints, Ints]:
    """Whose the entries are, and the one or two rows of each."""
    if kind in ("number", "distinct", "total"):
        everyone = np.arange(rows.number.size)
        return everyone, everyone, everyone
    if kind == "level":
        return rows.owner, np.arange(rows.owner.size), np.arange(rows.owner.size)
    if kind == "two":
        begin, at = (np.cumsum(rows.number) - rows.number)[rows.owner], np.arange(rows.owner.size)
        several = np.flatnonzero(rows.number[rows.owner] > 1)
        beside = begin + (at - begin + 1) % rows.number[rows.owner]
        return rows.owner[several], rows.ring[several], rows.ring[beside[several]]
    # In order of time, those of one time as they stand. A row whose time is no level has no place in it.
    times = np.full(rows.owner.size, NO_CELL) if rows.times is None else rows.times
    timed = np.flatnonzero(times >= 0)
    timed = timed[np.lexsort((times[timed], rows.owner[timed]))]
    first = np.diff(rows.owner[timed], prepend=-1) > 0
    if kind == "first":
        return rows.owner[timed[first]], timed[first], timed[first]
    later = np.flatnonzero(~first)
    return rows.owner[timed[later]], timed[later - 1], timed[later]


def triangle(one: Ints, other: Ints, size: int) -> Ints:
    """Where two levels stand among all pairs of levels low <= high, in the order of `np.triu_indices`.

    >>> triangle(np.array([0, 2, 1, 2]), np.array([1, 0, 1, 2]), 3).tolist()
    [1, 2, 3, 5]
    """
    low, high = np.minimum(one, other), np.maximum(one, other)
    return np.where(low < 0, NO_CELL, low * size - low * (low - 1) // 2 + high - low)


def weighed(sides: Sequence[Side], rows: Rows) -> Iterator[tuple[Ints, Ints, Doubles]]:
    """All entries of these sides, those of one table after the other: whose they are, in which cell, and their share."""
    begin = 0
    for side in sides:
        owner, tables = entries_of(side, rows)
        share = 1 / np.bincount(owner, minlength=rows.number.size)[owner]
        for cells, length in zip(tables, side.lengths, strict=True):
            inside = cells != NO_CELL
            yield owner[inside], begin + cells[inside], share[inside]
            begin += length
