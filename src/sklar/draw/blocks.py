"""How a sample is cut into blocks: the unit that is drawn at once, in any thread, on any machine, in any order.

What a seed means: block b of a sample depends on the model, the seed, b and the number of rows in the block, and on
nothing else; the size of full blocks is the model's. Whoever changes it, a generator, or the order in which draws are
made changes the rows of every seed, and so what is released.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sklar.kernel.cells import Cells

BLOCK_ROWS = 1 << 14
# Blocks whose rows are refined are larger: what rounding leaves in each of them adds up.
REFINED_ROWS = 1 << 17
# So are those of models of many components, which each have so many rows of a block, while it has fewer values than
# these: what a block costs by component is then little beside its rows.
_ROWS_EACH, _MOST_VALUES = 16, 1 << 25

Codes: TypeAlias = NDArray[np.integer[Any]]


def blocks(rows: int, size: int, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int]]:
    """Number and size of the blocks of at most `size` of these rows, from block `first` up to and without `last`.

    >>> list(blocks(40_000, BLOCK_ROWS))
    [(0, 16384), (1, 16384), (2, 7232)]
    >>> list(blocks(40_000, BLOCK_ROWS, first=2))
    [(2, 7232)]
    """
    end = -(-rows // size)
    for block in range(first, end if last is None else min(last, end)):
        yield block, min(size, rows - block * size)


def dealt_rows(cells: Cells, components: int) -> int:
    """The size of the blocks of a model of this many components, a power of two.

    >>> dealt_rows(Cells([2] * 27), 1_200), dealt_rows(Cells([2] * 27), 2_400), dealt_rows(Cells([2] * 2_000), 2_400)
    (32768, 65536, 16384)
    """
    rows = BLOCK_ROWS
    while rows < _ROWS_EACH * components and 2 * rows * cells.n_attributes <= _MOST_VALUES:
        rows *= 2
    return min(rows, REFINED_ROWS)


def empty_codes(cells: Cells, rows: int) -> Codes:
    """Room for the codes of this many rows, shape (m, rows), in bytes where these hold every level."""
    # No attribute has more than schema.MAX_LEVELS = 40,000 levels.
    return np.empty((cells.n_attributes, rows), dtype=np.uint8 if cells.sizes.max() <= 256 else np.uint16)
