"""Tables in orthonormal contrasts: the same squared errors from fewer numbers.

An attribute's K probabilities sum to one, so K - 1 contrasts hold all that they say: x -> Q x, where Q is the last
K - 1 rows of the Householder reflection that takes the constant vector to the first axis,

    (Q x)_j = x_j - (sum(x) / sqrt(K) - x_0) / (sqrt(K) - 1),    j = 1 ... K - 1.

Q Q^T = I and Q 1 = 0. A two-way table T of attributes A and B, with total 1 and margins a and b, then has three parts
at right angles, Q T Q^T, Q a and Q b, and for two such tables

    ||T - T'||^2 = ||Q (T - T') Q^T||^2 + ||Q (a - a')||^2 / K_B + ||Q (b - b')||^2 / K_A.

d levels of m attributes become d - m contrasts: a quarter of the cells where all attributes are binary.
Arrays have one row per level or contrast, so that work runs along rows whatever the sizes of the attributes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.fitting.margins import with_alike
from sklar.kernel.cells import Cells
from sklar.machine.spill import room_for


def attribute_of_contrast(cells: Cells) -> NDArray[np.int64]:
    """The attribute that each of the d - m contrasts belongs to, shape (d - m,)."""
    return np.repeat(np.arange(cells.n_attributes), cells.sizes - 1)


def others(cells: Cells) -> NDArray[np.int64]:
    """The levels that are not the first of their attribute, shape (d - m,): each has a contrast."""
    return np.flatnonzero(np.diff(cells.attribute_of_level, prepend=-1) == 0)


def contrasts(values: NDArray[np.float32], cells: Cells) -> NDArray[np.float32]:
    """Q along the first axis: shape (d, n) to (d - m, n)."""
    attribute = attribute_of_contrast(cells)
    root = np.sqrt(cells.sizes.astype(np.float32))[:, None]
    totals = np.add.reduceat(values, cells.offsets[:-1], axis=0)
    # An attribute of one level has no contrasts: whatever its shift, nothing is moved by it.
    shift = (totals / root - values[cells.offsets[:-1]]) / np.maximum(root - 1, 1e-3)
    return np.asarray(values[others(cells)] - shift[attribute], dtype=np.float32)


def contrast_levels(levels: NDArray[np.float64], cells: Cells) -> NDArray[np.float32]:
    """Q p of every attribute's probabilities, shape (d,) to (d - m,)."""
    return contrasts(levels.astype(np.float32)[:, None], cells)[:, 0]


def contrast_tables(tables: NDArray[np.floating[Any]], cells: Cells) -> NDArray[np.float32]:
    """Q T Q^T of every two-way table, shape (n_cells,) to (d - m, d - m), symmetric; zero within attributes."""
    size = cells.n_levels - cells.n_attributes
    found: NDArray[np.float32] = room_for((size, size), np.float32)
    starts = cells.offsets[:-1] - np.arange(cells.n_attributes)

    def fill(members: NDArray[np.int64]) -> None:
        own = tables[cells.places(members)].astype(np.float32, copy=False)
        height, width = own.shape[1:]
        if height == 1 or width == 1:
            return
        own = _along(_along(own, 1), 2)
        first, second = (starts[each[members]] for each in cells.pairs)
        up = (first[:, None] + np.arange(height - 1))[:, :, None]
        across = (second[:, None] + np.arange(width - 1))[:, None, :]
        found[up, across] = own
        found[across, up] = own

    with_alike(cells, fill)
    return found


def _along(tables: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
    """Q along one axis of tables of one shape, (tables, rows, columns)."""
    root = np.sqrt(np.float32(tables.shape[axis]))
    first, rest = np.split(tables, [1], axis=axis)
    return np.asarray(rest - (tables.sum(axis=axis, keepdims=True) / root - first) / (root - np.float32(1.0)))
