"""Events of people in the order of time: what follows what, after which gap, and when.

A person's states are a chain: the first by their class, each next one by their class and the one before. Gaps depend on
the state before them and on the number of events. One of the events, at random, is dated by the class, the others by
the gaps between them; where all do not lie in the domain of the order another date is tried. Gaps that add up to more
than the domain are shortened in proportion.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from scipy.interpolate import PchipInterpolator

from sklar.draw.decode import AxisDecoder
from sklar.kernel.cells import Cells, Doubles, Floats, Ints
from sklar.machine.extras import lazily

if TYPE_CHECKING:
    import polars as pl

    from sklar.fitting.classes import LinkedClasses
    from sklar.fitting.order import CourseLaws
else:
    pl = lazily("polars")

# Dates that are tried before the last one is moved into the domain.
_TRIES = 24
# Into how many parts a bin of gaps is divided.
_PARTS = 4


class _Draws(Protocol):
    def __call__(self, of_class: Ints, rng: np.random.Generator, shares: Doubles | None = None) -> Ints: ...


def level_drawer(chances: Floats | Doubles, cells: Cells) -> _Draws:
    """Draws a level of every attribute, shape (attributes, rows), by the classes of rows, from (classes, levels).

    `shares` say where a row stands among its class, from 0 to 1, in place of random numbers.
    """
    every = [np.cumsum(chances[:, cells.levels(i)].astype(np.float64), axis=1) for i in range(cells.n_attributes)]
    # One increasing list for all classes: class c's chances lie between c and c + 1.
    steps = [(np.arange(len(upto))[:, None] + upto / upto[:, -1:]).ravel() for upto in every]

    def draw(of_class: Ints, rng: np.random.Generator, shares: Doubles | None = None) -> Ints:
        drawn = np.empty((len(steps), of_class.size), dtype=np.int64)
        for i, (size, own) in enumerate(zip(cells.sizes, steps, strict=True)):
            level = np.searchsorted(
                own, of_class + (rng.random(of_class.size) if shares is None else shares), side="right"
            )
            level -= of_class * size
            # Rounding may lead past the last level.
            drawn[i] = np.clip(level, 0, size - 1)
        return drawn

    return draw


def dealt_classes(people: int, classes: int, rng: np.random.Generator) -> tuple[Ints, Doubles]:
    """Classes of people, about as many of each, and where each of them stands in theirs, from 0 to 1 at even steps.

    So numbers of events differ from their chances by less than those of people who are drawn one by one.
    """
    place = rng.permutation(people)
    of_class = place % classes
    return of_class, (place // classes + rng.random(people)) / ((people - 1 - of_class) // classes + 1)


class Drawn(NamedTuple):
    """The events of people, one person after the other: whose each is, which of that person's, its state and time."""

    owner: Ints
    at: Ints
    states: Ints
    times: Ints


class Chain:
    """Draws states and times of the events of people: a function of the laws, and of the stream of random numbers."""

    def __init__(self, laws: CourseLaws) -> None:
        course = laws.course
        self._course, self._bins, self._edges = course, np.array(course.numbers), np.array(course.edges)
        states = course.states
        self._gaps, gap = _divided(np.array(course.gaps), laws.gap.reshape(-1, len(course.gaps) - 1))
        self._first = level_drawer(laws.first, Cells([states]))
        self._next = level_drawer(laws.following.reshape(-1, states), Cells([states]))
        self._gap = level_drawer(gap, Cells([self._gaps.size - 1]))
        self._when = level_drawer(laws.when, Cells([self._edges.size - 1]))
        self._kept = laws.season / laws.season.max(axis=1, keepdims=True)

    def draw(self, of_class: Ints, counts: Ints, rng: np.random.Generator) -> Drawn:
        """The events of people of these classes, who have so many of them."""
        owner, begins = np.repeat(np.arange(counts.size), counts), np.cumsum(counts) - counts
        at = np.arange(owner.size) - begins[owner]
        states = np.zeros(owner.size, dtype=np.int64)
        for number in range(int(counts.max(initial=0))):
            who = np.flatnonzero(counts > number)
            here = begins[who] + number
            if number:
                states[here] = self._next(of_class[who] * self._course.states + states[here - 1], rng)[0]
            else:
                states[here] = self._first(of_class[who], rng)[0]
        return Drawn(owner, at, states, self._times(of_class, counts, owner, at, states, rng))

    def _times(
        self, of_class: Ints, counts: Ints, owner: Ints, at: Ints, states: Ints, rng: np.random.Generator
    ) -> Ints:
        least = np.where(self._course.strict, at, 0)
        since = self._since(counts, owner, at, states, rng)
        some = np.flatnonzero(counts)
        last = np.cumsum(counts[some]) - 1
        span, room = np.zeros(counts.size, dtype=np.int64), self._course.width - 1
        span[some] = since[last]
        least_span = np.zeros_like(span)
        least_span[some] = least[last]
        # More than there is room for is shortened in proportion, down to the least that there must be.
        share = np.minimum((room - least_span) / np.maximum(span - least_span, 1), 1.0)
        since = np.where(share[owner] < 1, least + np.floor((since - least) * share[owner]).astype(np.int64), since)
        span[some] = since[last]
        anchor = since[
            np.minimum(last - counts[some] + 1 + (rng.random(some.size) * counts[some]).astype(np.int64), last)
        ]
        begin = np.zeros(counts.size, dtype=np.int64)
        left = np.arange(some.size)
        for _ in range(_TRIES):
            who = some[left]
            bins = self._when(of_class[who], rng)[0]
            low, high = self._edges[bins], self._edges[bins + 1]
            begin[who] = low + (rng.random(who.size) * (high - low)).astype(np.int64) - anchor[left]
            kept = rng.random(who.size) < self._kept[self._bin_of(counts[who]) - 1, bins]
            left = left[~kept | (begin[who] < 0) | (begin[who] + span[who] > room)]
        begin = np.clip(begin, 0, room - span)
        return begin[owner] + since

    def _bin_of(self, counts: Ints) -> Ints:
        return np.asarray(np.searchsorted(self._bins, counts, side="right") - 1)

    def _since(self, counts: Ints, owner: Ints, at: Ints, states: Ints, rng: np.random.Generator) -> Ints:
        """How long after a person's first event each of them is."""
        after = np.flatnonzero(at)
        law = self._bin_of(counts[owner[after]]) - 2
        bins = self._gap(law * self._course.states + states[after - 1], rng)[0]
        low, high = self._gaps[bins], self._gaps[bins + 1]
        share = rng.random(after.size)
        # Even in ratios, from the second bin on; strict times differ by one at least.
        long = np.where(low > 0, np.maximum(low, 1) * (high / np.maximum(low, 1)) ** share, high * share)
        waits = np.zeros(owner.size, dtype=np.int64)
        waits[after] = np.maximum(np.minimum(long.astype(np.int64), high - 1), int(self._course.strict))
        upto = np.cumsum(waits)
        begins = np.cumsum(counts) - counts
        return upto - np.append(upto, 0)[begins][owner] if owner.size else upto


def _divided(gaps: Ints, law: Floats) -> tuple[Ints, Doubles]:
    """Finer bins of gaps with their chances: a distribution function smooth in the logarithm of gaps."""
    parts = [np.unique(np.rint(low * (high / low) ** (np.arange(_PARTS) / _PARTS))) for low, high in pairwise(gaps[1:])]
    finer = np.unique(np.concatenate([gaps, *parts]).astype(np.int64))
    upto = np.concatenate([np.zeros((len(law), 1)), np.cumsum(law, axis=1, dtype=np.float64)], axis=1)
    smooth = PchipInterpolator(np.log(gaps + gaps[1] / 2), upto, axis=1)
    return finer, np.maximum(np.diff(smooth(np.log(finer + gaps[1] / 2)), axis=1), 0.0)


class Decided(NamedTuple):
    """What the order decides of events: their classes, levels of attributes by place, and the column of the order."""

    kinds: Ints
    levels: list[tuple[int, Ints]]
    column: pl.Series


class CourseSampler:
    """Draws what the order decides; other attributes of an event go by its class of events, given these levels."""

    def __init__(self, classes: LinkedClasses, laws: CourseLaws) -> None:
        linked, self._course, self._chain = classes.linked, laws.course, Chain(laws)
        self._edges = np.array(laws.course.edges)
        self._kinds, self._event = classes.event_class.astype(np.float64), classes.event
        self._offsets = linked.events.offsets
        self._name = linked.order
        self._axis = AxisDecoder(linked.events.attributes[self._course.order])

    def draw(self, of_class: Ints, counts: Ints, rng: np.random.Generator) -> Decided:
        """What is decided of the events of people of these classes, who have so many of them."""
        course, drawn = self._course, self._chain.draw(of_class, counts, rng)
        levels = [(course.order, np.searchsorted(self._edges, drawn.times, side="right") - 1)]
        if course.follows is not None:
            levels.append((course.follows, drawn.states))
        whose = of_class[drawn.owner]
        weights = self._kinds[whose]
        for place, own in levels:
            weights = weights * self._event[whose, :, self._offsets[place] + own]
        upto = np.cumsum(weights, axis=1)
        kinds = (rng.random(whose.size)[:, None] * upto[:, -1:] >= upto[:, :-1]).sum(axis=1)
        column = self._axis.column((course.first + drawn.times) * course.step)
        return Decided(kinds, levels, column.alias(self._name))
