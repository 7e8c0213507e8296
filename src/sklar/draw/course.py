"""Rows of people: how many, of which kinds, and in the order of time what follows what, after which gap, and when.
More: docs/derivations.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from sklar.kernel.cells import Cells, Doubles, Floats, Ints
from sklar.public.tree import Tree, none_code

if TYPE_CHECKING:
    from sklar.fitting.order import CourseLaws

# Dates that are tried before the last one is moved into the domain.
_TRIES = 24
# A little of every level, so that each has some chance.
_LITTLE = 1e-9
# Into how many parts a bin of gaps is divided.
_PARTS = 4


def level_drawer(chances: Floats | Doubles, cells: Cells) -> Callable[[Ints, np.random.Generator], Ints]:
    """Draws a level of every attribute, shape (attributes, rows), by the classes of rows, from (classes, levels)."""
    every = [np.cumsum(chances[:, cells.levels(i)].astype(np.float64), axis=1) for i in range(cells.n_attributes)]
    # One increasing list for all classes: class c's chances lie between c and c + 1.
    steps = [(np.arange(len(upto))[:, None] + upto / upto[:, -1:]).ravel() for upto in every]

    def draw(of_class: Ints, rng: np.random.Generator) -> Ints:
        drawn = np.empty((len(steps), of_class.size), dtype=np.int64)
        for i, (size, own) in enumerate(zip(cells.sizes, steps, strict=True)):
            level = np.searchsorted(own, of_class + rng.random(of_class.size), side="right") - of_class * size
            # Rounding may lead past the last level.
            drawn[i] = np.clip(level, 0, size - 1)
        return drawn

    return draw


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kinds:
    """What rows of a table are like, by H classes of people and K kinds of each: probabilities.

    `number` (H, bins) is of the number of rows, or (H K, bins) of rows that hang on rows; `kind` (H, K) of the kind of
    a row, and `levels` (H K, d) of the levels of its measured attributes, as the table's own schema has them.
    """

    number: Doubles
    kind: Doubles
    levels: Doubles


def kinds_of(probabilities: Floats, kinds: int, tree: Tree, i: int) -> Kinds:
    """Those of one table, by the components of a model of the joint table, `kinds` to a class."""
    joint, branch, own, some = tree.joint.measured, tree.branches[i], list[Doubles](), list[Doubles]()
    names = [branch.name, *(f"{branch.name}.{each.name}" for each in branch.schema.measured.attributes)]
    for place in map(joint.names.index, names):
        levels, attribute = probabilities[:, joint.cells.levels(place)] + _LITTLE, joint.attributes[place]
        if (none := none_code(attribute)) is not None:
            some.append(1 - levels[:, none] / levels.sum(axis=1))
            levels = np.delete(levels, none, axis=1)
        own.append(levels / levels.sum(axis=1, keepdims=True))
    number, *rest = own
    kind = np.mean(some, axis=0).reshape(-1, kinds) + _LITTLE
    number = number[::kinds] if branch.of == tree.name else number
    return Kinds(number=number, kind=kind / kind.sum(axis=1, keepdims=True), levels=np.hstack(rest))


class Chain:
    """Draws states and times of the events of people: a function of the laws, and of the stream of random numbers."""

    def __init__(self, laws: CourseLaws) -> None:
        course = self._course = laws.course
        self._numbers, self._edges = np.array(course.numbers), np.array(course.edges)
        self._gaps, gap = _divided(np.array(course.gaps), laws.gap.reshape(-1, len(course.gaps) - 1))
        self._first = level_drawer(laws.first, Cells([course.states]))
        self._next = level_drawer(laws.following.reshape(-1, course.states), Cells([course.states]))
        self._gap = level_drawer(gap, Cells([self._gaps.size - 1]))
        self._when = level_drawer(laws.when, Cells([self._edges.size - 1]))
        self._kept = laws.season / laws.season.max(axis=1, keepdims=True)

    def draw(self, of_class: Ints, counts: Ints, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
        """States, times and bins of times of the events of people of these classes, who have so many of them."""
        # Whoever has none is in no event.
        of_class, counts = of_class[counts > 0], counts[counts > 0]
        owner, begins = np.repeat(np.arange(counts.size), counts), np.cumsum(counts) - counts
        at, states = np.arange(owner.size) - begins[owner], np.zeros(owner.size, dtype=np.int64)
        states[begins] = self._first(of_class, rng)[0]
        for number in range(1, int(counts.max(initial=1))):
            who = np.flatnonzero(counts > number)
            here = begins[who] + number
            states[here] = self._next(of_class[who] * self._course.states + states[here - 1], rng)[0]
        in_bin = np.searchsorted(self._numbers, counts, side="right") - 2
        since = self._since(in_bin[owner], at, states, rng)
        since -= since[begins][owner]
        # More than there is room for is shortened in proportion, down to the least that there must be.
        last, room = begins + counts - 1, self._course.width - 1
        least = at if self._course.strict else np.zeros_like(at)
        share = np.minimum((room - least[last]) / np.maximum(since[last] - least[last], 1), 1.0)[owner]
        since = np.where(share < 1, least + np.floor((since - least) * share).astype(np.int64), since)
        anchor = since[begins + (rng.random(counts.size) * counts).astype(np.int64)]
        begin, left = np.zeros_like(counts), np.arange(counts.size)
        for _ in range(_TRIES):
            bins = self._when(of_class[left], rng)[0]
            date = self._edges[bins] + (rng.random(left.size) * np.diff(self._edges)[bins]).astype(np.int64)
            begin[left] = date - anchor[left]
            kept = rng.random(left.size) < self._kept[in_bin[left], bins]
            left = left[~kept | (begin[left] < 0) | (begin[left] + since[last[left]] > room)]
        times = np.clip(begin, 0, room - since[last])[owner] + since
        return states, times, np.searchsorted(self._edges, times, side="right") - 1

    def _since(self, in_bin: Ints, at: Ints, states: Ints, rng: np.random.Generator) -> Ints:
        """How long after the very first of all events each of them would be, one person after the other."""
        after, waits = np.flatnonzero(at), np.zeros_like(at)
        bins = self._gap((in_bin[after] - 1) * self._course.states + states[after - 1], rng)[0]
        low, high, share = self._gaps[bins], self._gaps[bins + 1], rng.random(after.size)
        # Even in ratios, from the second bin on; strict times differ by one at least.
        long = np.where(low > 0, np.maximum(low, 1) * (high / np.maximum(low, 1)) ** share, high * share)
        waits[after] = np.maximum(np.minimum(long.astype(np.int64), high - 1), int(self._course.strict))
        return np.cumsum(waits)


def _divided(gaps: Ints, law: Floats) -> tuple[Ints, Doubles]:
    """Finer bins of gaps with their chances: a distribution function smooth in the logarithm of gaps."""
    # Imported here: only events in order need it.
    from scipy.interpolate import PchipInterpolator

    parts = [np.unique(np.rint(low * (high / low) ** (np.arange(_PARTS) / _PARTS))) for low, high in pairwise(gaps[1:])]
    finer = np.unique(np.concatenate([gaps, *parts]).astype(np.int64))
    upto = np.concatenate([np.zeros((len(law), 1)), np.cumsum(law, axis=1, dtype=np.float64)], axis=1)
    smooth = PchipInterpolator(np.log(gaps + gaps[1] / 2), upto, axis=1)
    return finer, np.maximum(np.diff(smooth(np.log(finer + gaps[1] / 2)), axis=1), 0.0)
