"""Compiled counting kernels."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit("void(int32[:, ::1], int64[::1], int64[:, ::1])", parallel=True, cache=True, nogil=True, boundscheck=False)
def count_pairs(codes: NDArray[np.int32], offsets: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
    """Add the contingency tables of all attribute pairs i < j of a batch of codes, shape (m, rows), into counts (d, d).

    O(m^2 n), as in the paper's Appendix D. A row with code -1 in either attribute counts in no cell of that pair.
    """
    m, rows = codes.shape
    # Pairs write to disjoint blocks, so they may run side by side; the first attribute has the most partners.
    for i in numba.prange(m):
        for j in range(i + 1, m):
            row_start, column_start = offsets[i], offsets[j]
            for row in range(rows):
                a, b = codes[i, row], codes[j, row]
                if a >= 0 and b >= 0:
                    counts[row_start + a, column_start + b] += 1
