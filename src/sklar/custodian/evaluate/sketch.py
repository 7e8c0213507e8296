"""The distribution of a column's numbers in bounded memory: exact while it has few distinct values, fine cells after.

A double is a whole number of units of its last place. Dropping its lowest bits gives cells that follow the scale of the
numbers: their width is a fixed share of their place on the axis. When more cells are occupied than the limit, one more
bit is dropped, so the cells depend on the numbers alone and not on their order. A value that many rows have is never
put together with others, so a heap stays exact however many distinct values are around it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_CELLS = 1 << 16

_SIGN = np.int64(2**63 - 1)


# A value with one in this many of the numbers stays exact.
_HEAVY = 1 << 10

_Items = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Distribution:
    """Values and occupied cells in ascending order: how many numbers each holds, their least, largest and mean.

    `mean` and `sd` are those of the numbers themselves, whatever the cells. `bits` were dropped; with 0 each cell is
    one value.
    """

    bits: int
    counts: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    center: NDArray[np.float64]
    mean: float
    sd: float

    @property
    def size(self) -> int:
        """The number of numbers."""
        return int(self.counts.sum())

    @property
    def single(self) -> NDArray[np.bool_]:
        """Which entries are one value."""
        return np.asarray(self.low == self.high)

    @property
    def widest(self) -> float:
        """The largest share of numbers in a cell with several values: a distribution function is known to this."""
        mixed = self.counts[~self.single]
        return float(mixed.max(initial=0) / max(self.size, 1))

    def share(self, value: float) -> float:
        """The share of the numbers that are exactly this: 0 where it is too rare to be kept apart in its cell."""
        place = int(np.searchsorted(self.low, value))
        found = place < self.low.size and self.low[place] == self.high[place] == value
        return float(self.counts[place] / self.size) if found else 0.0

    def quantiles(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """The smallest values that at least these shares of the numbers do not exceed."""
        upto = np.cumsum(self.counts)
        places = np.searchsorted(upto, np.ceil(shares * upto[-1] - 1e-9))
        return np.asarray(self.center[np.minimum(places, upto.size - 1)])

    def ranks(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean rank of each of these numbers among all, as a share; equal numbers have one rank; nan stays."""
        upto = np.concatenate([[0], np.cumsum(self.counts)])
        middle = (upto[:-1] + upto[1:]) / (2 * upto[-1])
        place = np.searchsorted(self.low, numbers, side="right") - 1
        return np.where(np.isnan(numbers), np.nan, middle[np.clip(place, 0, middle.size - 1)])


class Sketch:
    """Collects numbers batch by batch."""

    def __init__(self, limit: int = MAX_CELLS) -> None:
        self._limit, self._bits, self._waiting = limit, 0, 0
        self._parts: list[_Items] = []
        self._n, self._mean, self._squares = 0, 0.0, 0.0

    def add(self, numbers: NDArray[np.float64]) -> None:
        """Add finite numbers."""
        if numbers.size == 0:
            return
        mean = float(numbers.mean())
        apart, n = mean - self._mean, self._n + numbers.size
        self._squares += float(((numbers - mean) ** 2).sum()) + apart**2 * self._n * numbers.size / n
        self._mean += apart * numbers.size / n
        self._n = n
        # Minus zero is zero.
        values, counts = np.unique(numbers + 0.0, return_counts=True)
        self._parts.append((counts.astype(np.int64), values, values, values))
        self._waiting += values.size
        if self._waiting > 2 * self._limit:
            self._merge()

    def _merge(self) -> None:
        counts, low, high, center = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        items = _together(cells(low, 0), low == high, counts, low, high, center)
        heavy = self._n / min(_HEAVY, max(self._limit // 4, 1))
        while True:
            counts, low, high, center = items
            if self._bits:
                apart = (low == high) & (counts >= heavy)
                items = counts, low, high, center = _together(cells(low, self._bits), apart, counts, low, high, center)
            if counts.size <= self._limit:
                break
            self._bits += 1
        self._parts = [items]
        self._waiting = counts.size

    def done(self) -> Distribution | None:
        """What was collected; None without any number."""
        if not self._parts:
            return None
        self._merge()
        counts, low, high, center = self._parts[0]
        sd = float(np.sqrt(self._squares / self._n))
        return Distribution(bits=self._bits, counts=counts, low=low, high=high, center=center, mean=self._mean, sd=sd)


def cells(numbers: NDArray[np.float64], bits: int) -> NDArray[np.int64]:
    """The cells of numbers: whole numbers that ascend with them, with the lowest bits dropped."""
    held = (numbers + 0.0).view(np.int64)
    return np.asarray(np.where(held < 0, -(held & _SIGN), held) >> bits)


def _last(cell: NDArray[np.int64], bits: int) -> NDArray[np.float64]:
    """The largest number of each cell."""
    last = ((cell + 1) << bits) - 1
    return np.asarray(np.where(last < 0, -last | ~_SIGN, last)).view(np.float64)


def _together(
    cell: NDArray[np.int64],
    apart: NDArray[np.bool_],
    counts: NDArray[np.int64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    center: NDArray[np.float64],
) -> _Items:
    """Put all that falls into one cell together, but each value that is `apart` with its equals alone; ascending."""
    group = np.where(apart, cells(low, 0), 0)
    order = np.lexsort((group, apart, cell))
    cell, apart, group = cell[order], apart[order], group[order]
    counts, low, high, center = counts[order], low[order], high[order], center[order]
    new = (cell[1:] != cell[:-1]) | (apart[1:] != apart[:-1]) | (group[1:] != group[:-1])
    starts = np.flatnonzero(np.concatenate([[True], new]))
    total = np.add.reduceat(counts, starts)
    least, largest = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    # From the least number on: the weighted mean of equal numbers must be that number.
    above = center - np.repeat(least, np.diff(np.append(starts, cell.size)))
    middle = np.clip(least + np.add.reduceat(above * counts, starts) / total, least, largest)
    ascending = np.argsort(least, kind="stable")
    return total[ascending], least[ascending], largest[ascending], middle[ascending]


def ks_distance(real: Distribution, other: Distribution) -> float:
    """The largest difference of the two distribution functions (Kolmogorov and Smirnov).

    It is off by at most the sum of both `widest`: a cell with several values is taken to lie at its end.
    """
    bits = max(real.bits, other.bits)
    placed = [
        _placed(each, np.where(each.single, each.low, _last(cells(each.low, bits), bits))) for each in (real, other)
    ]
    return float(np.abs(np.subtract(*_at_all(*placed)[1])).max())


def wasserstein_distance(real: Distribution, other: Distribution) -> float:
    """The area between the two distribution functions: how far numbers would have to move, on average."""
    points, (one, two) = _at_all(*(_placed(each, each.center) for each in (real, other)))
    return float((np.abs(one - two)[:-1] * np.diff(points)).sum())


def _placed(held: Distribution, places: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Places in ascending order, and the share of the numbers up to and at each; 0 before the first."""
    order = np.argsort(places, kind="stable")
    return places[order], np.concatenate([[0], np.cumsum(held.counts[order])]) / held.size


def _at_all(
    one: tuple[NDArray[np.float64], NDArray[np.float64]], two: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> tuple[NDArray[np.float64], tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Both distribution functions at the places of both."""
    points = np.union1d(one[0], two[0])
    upto = [shares[np.searchsorted(places, points, side="right")] for places, shares in (one, two)]
    return points, (upto[0], upto[1])
