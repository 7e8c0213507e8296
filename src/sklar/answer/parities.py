"""Counts of rows from noisy parities of bits: linear in them, with the variance that this has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import Measured


def counts_parities(measured: Measured, where: Sequence[int]) -> bool:
    """Whether parities of these attributes, and of all sets of them, were measured."""
    plan = measured.stages[0].plan
    return plan.parities is not None and len(where) <= (3 if plan.trios.size else 2)


def count_by_parities(
    measured: Measured, cells: NDArray[np.bool_] | NDArray[np.float64], where: Sequence[int]
) -> tuple[float, float]:
    """The count of rows in these cells of the table of one to three bits, or in shares of them, and its standard error.

    A cell of k bits is the sum over all sets S of them of (-1)^(sum of its bits in S) (n - 2 X_S) / 2^k, with X_S the
    rows whose bits in S sum to an odd number: none for the empty set.
    """
    rows, rows_variance = _averaged([(tables.total, tables.plan.total) for tables in measured.stages])
    if measured.n_rows is not None:
        rows, rows_variance = float(measured.n_rows), 0.0
    levels, shares, count, variance = np.indices(cells.shape), 0.0, 0.0, 0.0
    for size in range(len(where) + 1):
        for chosen in combinations(range(len(where)), size):
            sign = 1 - 2 * (levels[list(chosen)].sum(axis=0) % 2)
            share = float((sign * cells).sum()) / cells.size
            shares += share
            if chosen and share:
                odd, own = _parity(measured, sorted(where[bit] for bit in chosen))
                count -= 2 * share * odd
                variance += (2 * share) ** 2 * own
    return count + shares * rows, math.sqrt(variance + shares**2 * rows_variance)


def _parity(measured: Measured, attributes: Sequence[int]) -> tuple[float, float]:
    """The average of all looks at the parity of these attributes, and its variance."""
    cells = measured.schema.cells
    if len(attributes) == 1:
        name, at = "one_way", attributes[0]
    elif len(attributes) == 2:
        name, at = "pairs", cells.pair(*attributes)
    else:
        name = "trios"
        here = [trio == attribute for trio, attribute in zip(cells.trios, attributes, strict=True)]
        at = int(np.flatnonzero(np.logical_and.reduce(here))[0])
    return _averaged([(getattr(tables, name)[at], getattr(tables.plan, name)[at]) for tables in measured.stages])


def _averaged(looks: Sequence[tuple[int | None, float | None]]) -> tuple[float, float]:
    """Of counts with noise of these scales, by inverse variance, and the variance; of none, nothing."""
    known = [(float(count), scale**-2.0) for count, scale in looks if count is not None and scale is not None]
    precision = sum(weight for _, weight in known)
    return (sum(count * weight for count, weight in known) / precision, 1 / precision) if known else (0.0, 0.0)
