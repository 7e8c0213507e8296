"""Which rows of each person are counted: at most so many of each, those whose random keys are smallest.

The privacy argument needs two things of this file, and nothing else: at most `most` rows of a person are chosen, and
which of a person's rows are chosen depends on that person's rows and keys alone. A person is a mark, which stands for
an id.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def choose_rows(marks: NDArray[np.uint64], keys: NDArray[np.uint64], most: int) -> NDArray[np.intp]:
    """The places of the rows that are counted: of the rows of each mark, the `most` with the smallest keys.

    `marks` has shape (rows, 2), `keys` (rows,). Postcondition: no mark has more than `most` places, and a mark with
    fewer rows has all of them.

    Keys are independent and uniform, so of a person's k rows every set of min(k, most) is chosen with the same chance.
    The smallest of a whole are the smallest among the smallest of its parts: parts may be reduced first.

    >>> choose_rows(np.array([[7, 0], [8, 0], [7, 0], [7, 0]], dtype=np.uint64), np.array([3, 9, 1, 2]), 2).tolist()
    [2, 3, 1]
    """
    order = np.lexsort((keys, marks[:, 1], marks[:, 0]))
    ordered = marks[order]
    first = np.ones(order.size, dtype=bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    places = np.arange(order.size)
    # A row's rank among its person's: how far it stands from the first of them.
    rank = places - np.maximum.accumulate(np.where(first, places, 0))
    return order[rank < most]
