"""Exact one-way and two-way counts of some rows, which are private. Counts of parts of the rows add up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sklar.kernel.cells import Cells, Whole
from sklar.kernel.queries import Codes, Tables

_MOST_IN_32_BITS = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counts:
    """Exact counts of some rows: private. `one_way` has shape (d,), `pairs` (n_cells,), both laid out by `Cells`.

    A row adds at most one to a cell, so that two-way cells may take 32 bits up to 2^31 - 1 rows.
    """

    n_rows: int
    one_way: NDArray[np.int64]
    pairs: Whole

    def __repr__(self) -> str:
        # A traceback or a debugger's log must not print counts.
        return "Counts(private)"

    def __add__(self, other: Counts) -> Counts:
        rows = self.n_rows + other.n_rows
        return Counts(
            n_rows=rows,
            one_way=self.one_way + other.one_way,
            pairs=np.add(self.pairs, other.pairs, dtype=np.int64 if rows > _MOST_IN_32_BITS else None),
        )


def no_counts(cells: Cells) -> Counts:
    """The counts of no rows, over the full public domain."""
    return Counts(
        n_rows=0, one_way=np.zeros(cells.n_levels, dtype=np.int64), pairs=np.zeros(cells.n_cells, dtype=np.int64)
    )


def count_plainly(codes: Codes, cells: Cells) -> Counts:
    """Exact counts of codes, one array of shape (rows,) per attribute."""
    one_way, pairs = (Tables(cells=cells, order=order).count(codes) for order in (1, 2))
    return Counts(n_rows=len(codes[0]), one_way=one_way, pairs=pairs)
