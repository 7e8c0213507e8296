"""The cells in which a search counts the numbers of one attribute: from bounds alone down to the grain.

Numbers are counted in grains: 1 for whole numbers and days, a second for moments, a declared step, else a millionth of
a millionth of the bound. The first table's cells grow with the distance from 0 (single grains up to 10, then 15 cells a
decade; negative numbers mirrored), so that a bound of a billion adds few cells and no table. Bounds that do not reach
toward 0 are divided evenly, dates and times by the calendar. Every later table has the cells of the one before it, and
those that were chosen are divided. Edges of cells are round numbers, or begin years, months, days, hours.

All of it is a function of the schema and of earlier noisy tables: public.

Sensitivity. The cells of one table do not overlap, and whatever was chosen, they cover the same numbers: a row stands
in at most one cell of each table, and replacing it moves at most two cells by one. So each table costs what any
histogram costs, and which cells it has may depend on the noisy tables before it (adaptive composition): these were
paid for. Every cell gets noise, seen or not.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sklar.public.axis import AXES
from sklar.public.outputs import grain
from sklar.public.schema import Attribute

Units = NDArray[np.int64]

# Up to this many grains every value may be a level of its own, and there is nothing to search.
VALUES = 32
# Up to this many grains the second table reaches the grain everywhere.
_SMALL = 512
_DIVIDE = 20
_GRAINS = 4096
# A real without a step has this many decades below its larger bound.
_DECADES = 12
# A decade of the first table: single grains below 10.
_DECADE = (10, 12, 14, 16, 18, 20, 25, 30, 35, 40, 50, 60, 70, 80, 90)
# Bounds whose ratio is smaller than this do not reach toward 0.
_REACH = 16
_EVEN, _FEW = 64, 24
# Cells of the first table by the calendar, at least.
_FIRST_CALENDAR = 16
# A cell is divided when its count is this many standard errors above zero: in the first table, then.
_SOLID_FIRST, _SOLID = 4.0, 3.0

_SECOND = 1_000_000
_CLOCK = {"hour": 3600 * _SECOND, "minute": 60 * _SECOND, "second": _SECOND}
_SPANS = ("decade", "year", "month", "day", "hour", "minute", "second")
_FIRST_DAY = dt.date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The public frame of one attribute's search: its numbers in grains, from `low` up to but without `high`.

    `tables` is how many tables the search takes; 0 where every value is a level. `spans` are calendar units, coarse to
    fine, of dates and times. `steps` are what numbers may be rounded to, in grains, each a multiple of the one before
    it; empty where the schema states a step or the tables reach the grain.
    """

    low: int
    high: int
    grain: Fraction
    tables: int
    real: bool = False
    spans: tuple[str, ...] = ()
    day: int = 0
    steps: tuple[int, ...] = ()

    def first(self) -> Units:
        """The edges of the first table's cells."""
        if self.spans:
            return self._by_calendar(self.low, self.high, self.spans[0])
        size = self.high - self.low
        if size <= _SMALL:
            return _multiples(self.low, self.high, _round_up(size / _FEW))
        if (self.low > 0 and self.high < _REACH * self.low) or (self.high <= 0 and -self.low < _REACH * -self.high):
            return _multiples(self.low, self.high, _round_up(size / _EVEN))
        positive = _decades(max(self.high, 0))
        negative = _decades(max(-self.low, 0))
        edges = np.concatenate([-negative[::-1], positive])
        inside = edges[(edges > self.low) & (edges < self.high)]
        return np.unique(np.concatenate([[self.low], inside, [self.high]]))

    def divided(self, edges: Units, chosen: NDArray[np.bool_], table: int) -> Units:
        """The edges of table number `table` (the first is 0): the chosen cells divided, all others as they were."""
        last = table == self.tables - 1
        parts = [edges]
        for index in np.flatnonzero(chosen).tolist():
            low, high = int(edges[index]), int(edges[index + 1])
            if high - low > 1:
                if self.spans and (table < len(self.spans)):
                    parts.append(self._by_calendar(low, high, self.spans[table]))
                else:
                    parts.append(_multiples(low, high, _round_up((high - low) / (_GRAINS if last else _DIVIDE))))
        return np.unique(np.concatenate(parts))

    def chosen(
        self, edges: Units, counts: NDArray[np.float64], sd: NDArray[np.float64], table: int
    ) -> NDArray[np.bool_]:
        """Which cells table number `table` divides, by noisy counts so far and their standard errors."""
        if self.high - self.low <= _SMALL:
            return np.diff(edges) > 1
        solid = _SOLID_FIRST if table in (1, self.tables - 1) else _SOLID
        return (counts >= solid * sd) & (np.diff(edges) > 1)

    def units(self, numbers: NDArray[np.int64] | NDArray[np.float64]) -> Units:
        """Numbers on the attribute's axis in grains, those beyond the bounds in the outermost."""
        if numbers.dtype.kind == "f":
            # A number that is too large is beyond the bounds; nobody must hear of it.
            with np.errstate(over="ignore"):
                scaled = numbers * float(self.grain.denominator) / float(self.grain.numerator)
            # A real is at most half a grain from what was written: 0.29 * 100 is below 29.
            whole = np.rint(scaled) if self.real else np.floor(scaled)
            return np.clip(whole, self.low, self.high - 1).astype(np.int64)
        return np.clip(np.floor_divide(numbers, self.grain.numerator), self.low, self.high - 1)

    def axis(self, units: Units) -> NDArray[np.int64] | NDArray[np.float64]:
        """The numbers on the axis that grains begin."""
        if self.grain.denominator == 1:
            return units * self.grain.numerator
        return units * float(self.grain.numerator) / self.grain.denominator

    def _by_calendar(self, low: int, high: int, span: str) -> Units:
        """Edges between two numbers of grains where this span of the calendar begins."""
        if span in ("decade", "year", "month"):
            return _within(low, high, np.array(_month_starts(span), dtype=np.int64) * self.day)
        width = self.day if span == "day" else _CLOCK[span] // self.grain.numerator
        return _multiples(low, high, max(width, 1))

    def rounding_cells(self, units: Units) -> Units:
        """The cell of each number in the table of decade by step, flat: how many digits it has, and the largest of the
        steps that divides it. 0 has no digits. A number has one cell."""
        digits = np.zeros(units.size, dtype=np.int64)
        if not self.spans:
            digits = np.searchsorted(10 ** np.arange(19, dtype=np.int64), np.abs(units), side="right").astype(np.int64)
        step = np.zeros(units.size, dtype=np.int64)
        for index, width in enumerate(self.steps):
            step[units % width == 0] = index
        return digits * len(self.steps) + step

    @property
    def rounding_size(self) -> int:
        """How many cells that table has."""
        largest = max(abs(self.low), abs(self.high))
        return (1 if self.spans else len(str(largest)) + 1) * len(self.steps)

    def roundest(self, low: int, high: int) -> int:
        """The roundest number of grains from `low` up to and with `high`: what a person would write."""
        if low >= high:
            return low
        for span in self.spans:
            found = self._by_calendar(low - 1, high + 1, span)[1:-1]
            if found.size:
                return int(found[found.size // 2])
        if low <= 0 <= high:
            return 0
        power = int(10 ** (len(str(max(abs(low), abs(high)))) + 1))
        while True:
            for width in (power, power // 2, power // 5):
                multiple = -(-low // max(width, 1)) * max(width, 1)
                if multiple <= high:
                    # Of several, the one in the middle.
                    return multiple + (high - multiple) // max(width, 1) // 2 * max(width, 1)
            power //= 10


def next_cells(ladder: Ladder, tables: Sequence[NDArray[np.int64]], scale: float) -> list[Units]:
    """The edges of the cells of every table so far and of the next one, by the noisy tables so far."""
    cells = [ladder.first()]
    for number in range(1, min(len(tables), ladder.tables - 1) + 1):
        edges = cells[-1]
        total, times = np.zeros(edges.size - 1), np.zeros(edges.size - 1)
        # A cell that was not divided is counted again by every table, each time with fresh noise.
        for earlier, counts in zip(cells, tables, strict=False):
            place = np.searchsorted(earlier, edges[:-1], side="right") - 1
            same = (earlier[place] == edges[:-1]) & (earlier[place + 1] == edges[1:])
            total[same] += counts[place[same]]
            times += same
        chosen = ladder.chosen(edges, total / times, scale / np.sqrt(times), number)
        cells.append(ladder.divided(edges, chosen, number))
    return cells


def ladder_of(attribute: Attribute) -> Ladder:
    """The frame of the search between an attribute's bounds.

    >>> gain = Attribute(name="gain", kind="integer", edges=(0, 10**9), domain="private", at_most=20)
    >>> ladder_of(gain).first().size, ladder_of(gain).tables
    (131, 4)
    """
    unit, stepped = _grain(attribute)
    return _ladder(attribute.kind, attribute.edges[0], attribute.edges[-1], unit, attribute.at_most, stepped=stepped)


@lru_cache(maxsize=256)
def _ladder(kind: str, first: float, last: float, grain: Fraction, at_most: int, *, stepped: bool) -> Ladder:
    if kind == "real":
        low, high = round(Fraction(first) / grain), round(Fraction(last) / grain)
    else:
        low, high = math.floor(Fraction(first) / grain), math.ceil(Fraction(last) / grain)
    high = max(high, low + 1)
    size, day = high - low, 0
    spans: tuple[str, ...] = ()
    if (kind == "date" and grain == 1) or (kind in ("datetime", "time") and grain in (1, _SECOND)):
        day = 1 if kind == "date" else 86_400 * _SECOND // int(grain)
        fine = _SPANS[:4] if kind == "date" else _SPANS if kind == "datetime" else tuple(_CLOCK)
        lengths = {"decade": 3653 * day, "year": 366 * day, "month": 31 * day, "day": day}
        lengths |= {span: max(width // int(grain), 1) for span, width in _CLOCK.items()}
        begin = next((i for i, span in enumerate(fine) if size >= _FIRST_CALENDAR * lengths[span]), len(fine) - 1)
        spans = fine[begin:]
    if size <= min(VALUES, at_most):
        tables = 0
    elif size <= _SMALL:
        tables = 2
    else:
        tables = max(min(len(spans), 4), 2) if kind == "date" else 4
    return Ladder(
        low=low,
        high=high,
        grain=grain,
        tables=tables,
        real=kind == "real",
        spans=spans[:tables],
        day=day,
        steps=() if stepped or tables < 3 else _steps(kind, max(abs(low), abs(high)), int(grain)),
    )


def _grain(attribute: Attribute) -> tuple[Fraction, bool]:
    """The finest difference between two numbers that a search looks for, and whether the schema states it."""
    stated = grain(attribute)
    if stated is not None:
        return stated, attribute.step is not None
    largest = max(abs(edge) for edge in attribute.edges)
    return Fraction(10) ** (math.floor(math.log10(largest)) - _DECADES), False


def _steps(kind: str, largest: int, grain: int) -> tuple[int, ...]:
    """What numbers may be rounded to, in grains, each a multiple of the one before it."""
    if kind == "date":
        return ()
    if AXES[kind].timed:
        clock = [_SECOND // 1000, _SECOND, 60 * _SECOND, 900 * _SECOND, 3600 * _SECOND, 86_400 * _SECOND]
        return (1, *(width // grain for width in clock if width > grain))
    steps = [1]
    while steps[-1] * 2 <= largest:
        steps.append(steps[-1] * (5 if len(steps) % 2 else 2))
    return tuple(steps)


def _decades(end: int) -> Units:
    """0, single grains up to 10, then 15 edges a decade, up to `end`."""
    edges, power = list(range(10)), 1
    while _DECADE[0] * power <= end:
        edges += [multiple * power for multiple in _DECADE]
        power *= 10
    return np.array([edge for edge in edges if edge <= end], dtype=np.int64)


def _round_up(width: float) -> int:
    """The next 1, 2 or 5 times a power of ten that is a width in grains."""
    if width <= 1:
        return 1
    power = 10 ** math.floor(math.log10(width))
    return next(int(factor * power) for factor in (1, 2, 5, 10, 20) if factor * power >= width)


def _multiples(low: int, high: int, width: int) -> Units:
    """The bounds, and the multiples of a width between them."""
    return _within(low, high, np.arange(low // width + 1, -(-high // width), dtype=np.int64) * width)


def _within(low: int, high: int, edges: Units) -> Units:
    return np.unique(np.concatenate([[low], edges[(edges > low) & (edges < high)], [high]])).astype(np.int64)


@lru_cache(maxsize=3)
def _month_starts(span: str) -> Sequence[int]:
    """The days since 1970 on which months, years or decades begin, of all years that a date can have."""
    years = range(1, 10_000) if span != "decade" else range(10, 10_000, 10)
    months = range(1, 13) if span == "month" else (1,)
    return tuple(dt.date(year, month, 1).toordinal() - _FIRST_DAY for year in years for month in months)
