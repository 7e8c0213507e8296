"""The distribution of a column's numbers in bounded memory: exact while it has few distinct values, fine cells after.

A double is a whole number of units of its last place. Dropping its lowest bits gives cells that follow the scale of the
numbers: their width is a fixed share of their place on the axis. When more cells are occupied than the limit, one more
bit is dropped, so what is kept depends on the numbers alone and not on their order. A cell knows its least and its
largest number, so a heap that shares its cell with nothing else stays exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_CELLS = 1 << 16

_SIGN = np.int64(2**63 - 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Distribution:
    """Occupied cells in ascending order: how many numbers each holds, the least, the largest and their mean.

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
    def exact(self) -> bool:
        """Whether every cell holds one value."""
        return bool((self.low == self.high).all())

    @property
    def widest(self) -> float:
        """The largest share of numbers in a cell with several values: a distribution function is known to this."""
        mixed = self.counts[self.low < self.high]
        return float(mixed.max(initial=0) / max(self.size, 1))

    def coarser(self, bits: int) -> Distribution:
        """The same numbers with at least this many bits dropped."""
        if bits <= self.bits:
            return self
        counts, low, high, center = _regroup(bits, self.counts, self.low, self.high, self.center)
        return Distribution(bits=bits, counts=counts, low=low, high=high, center=center, mean=self.mean, sd=self.sd)

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
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]] = []
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
        counts, low, high, center = _regroup(self._bits, counts, low, high, center)
        while counts.size > self._limit:
            self._bits += 1
            counts, low, high, center = _regroup(self._bits, counts, low, high, center)
        self._parts = [(counts, low, high, center)]
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


def _regroup(
    bits: int,
    counts: NDArray[np.int64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    center: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Put all that falls into one cell together."""
    keys = cells(low, bits)
    order = np.argsort(keys, kind="stable")
    keys, counts, low, high, center = keys[order], counts[order], low[order], high[order], center[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    total = np.add.reduceat(counts, starts)
    least, largest = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    # From the least number on: the weighted mean of equal numbers must be that number.
    middle = (
        least + np.add.reduceat((center - np.repeat(least, np.diff([*starts, keys.size]))) * counts, starts) / total
    )
    return total, least, largest, np.clip(middle, least, largest)


def common_steps(real: Distribution, other: Distribution) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both distribution functions at the end of every cell that either occupies, at the coarser of both cells."""
    bits = max(real.bits, other.bits)
    real, other = real.coarser(bits), other.coarser(bits)
    ends = np.union1d(cells(real.low, bits), cells(other.low, bits))
    return _upto(real, ends), _upto(other, ends)


def _upto(held: Distribution, ends: NDArray[np.int64]) -> NDArray[np.float64]:
    upto = np.concatenate([[0], np.cumsum(held.counts)]) / held.size
    return np.asarray(upto[np.searchsorted(cells(held.low, held.bits), ends, side="right")])


def ks_distance(real: Distribution, other: Distribution) -> float:
    """The largest difference of the two distribution functions (Kolmogorov and Smirnov)."""
    one, two = common_steps(real, other)
    return float(np.abs(one - two).max())


def wasserstein_distance(real: Distribution, other: Distribution) -> float:
    """The area between the two distribution functions: how far numbers would have to move, on average."""
    points = np.union1d(real.center, other.center)
    one, two = (
        np.concatenate([[0], np.cumsum(each.counts)])[np.searchsorted(each.center, points, side="right")] / each.size
        for each in (real, other)
    )
    return float((np.abs(one - two)[:-1] * np.diff(points)).sum())
