"""A value's code is one level of its attribute or none: whatever an encoder says, checked here before it is counted.

The privacy argument needs no more of an encoder than this: a row has at most one code per attribute, and its codes
depend on that row and the schema alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# The code of a value that stands in no cell.
NO_CELL = -1


def one_or_none(codes: NDArray[np.integer[Any]], size: int) -> NDArray[np.int32]:
    """Codes of an attribute with this many levels, shape (rows,): what is no level becomes `NO_CELL`. Never raises.

    Postcondition: -1 <= code < size. So a row stands in at most one cell of every table that this attribute is in.

    >>> one_or_none(np.array([0, 2, 3, -5]), 3).tolist()
    [0, 2, -1, -1]
    """
    # Compared before they are narrowed: a number that does not fit would become another one.
    outside, narrow = (codes < 0) | (codes >= size), codes.astype(np.int32, copy=False)
    return np.where(outside, np.int32(NO_CELL), narrow) if outside.any() else narrow
