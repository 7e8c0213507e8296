"""Absolute errors of many queries: the paper's (alpha, beta) summary, and the CDF."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PERCENTS = (95, 99, 100)

_CHUNK = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best `percent` % of the queries: their number, and the average and maximum of their errors."""

    percent: int
    queries: int
    average: float
    maximum: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Errors:
    """The distribution of absolute errors: the distinct values, ascending, and the number of queries with each.

    >>> errors = tally([np.array([3, 0, 1, 0])])
    >>> errors.values.tolist(), errors.counts.tolist(), errors.best(100)
    ([0.0, 1.0, 3.0], [2, 1, 1], Best(percent=100, queries=4, average=1.0, maximum=3.0))
    """

    values: NDArray[np.float64]
    counts: NDArray[np.int64]

    @property
    def size(self) -> int:
        """The number of queries."""
        return int(self.counts.sum())

    @property
    def total(self) -> float:
        """The sum of all errors."""
        return float(self.values @ self.counts)

    def best(self, percent: int) -> Best:
        """The paper's (alpha, beta): average and maximum of the smallest errors, a share of 1 - beta (rounded up)."""
        kept = (self.size * percent + 99) // 100
        if kept == 0:
            return Best(percent=percent, queries=0, average=0.0, maximum=0.0)
        upto = np.cumsum(self.counts)
        last = int(np.searchsorted(upto, kept))
        whole = self.values[:last] @ self.counts[:last]
        rest = kept - (int(upto[last - 1]) if last else 0)
        average = float(whole + rest * self.values[last]) / kept
        return Best(percent=percent, queries=kept, average=average, maximum=float(self.values[last]))

    def share_within(self, alpha: NDArray[np.float64]) -> NDArray[np.float64]:
        """The CDF: the share of queries whose error is at most `alpha`."""
        upto = np.concatenate([[0], np.cumsum(self.counts)])
        return np.asarray(upto[np.searchsorted(self.values, alpha, side="right")] / max(self.size, 1))

    def cdf(self, points: int = 200) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The CDF as (errors, shares): at all values, or at `points` of them, spread evenly on a logarithmic axis."""
        at = self.values
        if at.size > points:
            low = max(float(at[at > 0][0]), 0.5)
            grid = np.geomspace(low, at[-1], points - 1)
            # Only values that occur are used, so that no point lies between two steps.
            near = np.searchsorted(at, grid, side="right") - 1
            at = np.unique(np.concatenate([at[:1], at[np.clip(near, 0, at.size - 1)], at[-1:]]))
        return at, self.share_within(at)


def tally(chunks: Iterable[NDArray[Any]]) -> Errors:
    """Count the errors of all chunks by value: whole numbers with a histogram, others by sorting."""
    whole = np.zeros(0, dtype=np.int64)
    values, counts = [np.zeros(0)], [np.zeros(0, dtype=np.int64)]
    for chunk in chunks:
        if chunk.dtype.kind in "iu":
            found = np.bincount(chunk)
            if found.size > whole.size:
                whole = np.concatenate([whole, np.zeros(found.size - whole.size, dtype=np.int64)])
            whole[: found.size] += found
        else:
            distinct, times = np.unique(chunk, return_counts=True)
            values.append(distinct)
            counts.append(times)
    seen = np.nonzero(whole)[0]
    distinct, which = np.unique(np.concatenate([*values, seen.astype(np.float64)]), return_inverse=True)
    times = np.zeros(distinct.size, dtype=np.int64)
    np.add.at(times, which, np.concatenate([*counts, whole[seen]]))
    return Errors(values=distinct, counts=times)


def absolute_errors(
    true: NDArray[Any], given: NDArray[Any], *, factor: float = 1.0, where: NDArray[np.bool_] | None = None
) -> Errors:
    """The errors |true - factor * given| of all queries, or of those in `where`, one chunk at a time."""

    def chunks() -> Iterable[NDArray[Any]]:
        for start in range(0, true.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            one, other = true[part], given[part]
            if where is not None:
                one, other = one[where[part]], other[where[part]]
            yield np.abs(one - other) if factor == 1.0 else np.abs(one - factor * other)

    return tally(chunks())
