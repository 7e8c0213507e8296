"""Compiled counting of three-way tables of coarse codes. Loaded where a table is large (`triples`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sklar.machine.compiled import compiled

# In place of a coarse code: the row has no level of the attribute.
NOWHERE = 255


@compiled("void(uint8[:, ::1], int64, int64[:, ::1], int64[:, ::1], int64[::1], int64[::1])")
def add_cubes(
    codes: NDArray[np.uint8],
    rows: int,
    attributes: NDArray[np.int64],
    shapes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Count the first rows of coarse codes, shape (m, rows), in tables of these attributes, shape (tables, 3).

    Precondition: a code of attribute i of a table is below shapes[table, i], or it is `NOWHERE`.
    """
    for table in range(attributes.shape[0]):
        first, second, third = codes[attributes[table, 0]], codes[attributes[table, 1]], codes[attributes[table, 2]]
        start, height, width = offsets[table], shapes[table, 1], shapes[table, 2]
        for row in range(rows):
            one, two, three = first[row], second[row], third[row]
            # The largest code is nowhere, and any of the three may be.
            if max(one, two, three) < NOWHERE:
                counts[start + (np.int64(one) * height + np.int64(two)) * width + np.int64(three)] += 1
