"""Tables in orthonormal contrasts: the same squared errors from fewer numbers.

An attribute's K probabilities sum to one, so K - 1 contrasts hold all that they say: x -> Q x, where Q is the last
K - 1 rows of the Householder reflection that takes the constant vector to the first axis,

    (Q x)_j = x_j - (sum(x) / sqrt(K) - x_0) / (sqrt(K) - 1),    j = 1 ... K - 1.

Q Q^T = I and Q 1 = 0. A two-way table T of attributes A and B, with total 1 and margins a and b, then has three parts
at right angles, Q T Q^T, Q a and Q b, and for two such tables

    ||T - T'||^2 = ||Q (T - T') Q^T||^2 + ||Q (a - a')||^2 / K_B + ||Q (b - b')||^2 / K_A.

d levels of m attributes become d - m contrasts: a quarter of the cells where all attributes are binary.
Arrays have one row per level or contrast, so that kernels run along rows whatever the sizes of the attributes.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from sklar.kernel.cells import Cells

_ROWS = numba.float32[:, ::1]
OFFSETS = numba.types.Array(numba.int64, 1, "C", readonly=True)
_FAST = {"contract", "reassoc"}
# 2^f between -1/2 and 1/2, to the least largest relative error.
_EXP = tuple(
    np.float32(c) for c in (1, 0.693147206, 0.240226469, 0.0555032878, 0.00961848896, 0.00133999312, 0.000153458116)
)


def attribute_of_contrast(cells: Cells) -> NDArray[np.int64]:
    """The attribute that each of the d - m contrasts belongs to, shape (d - m,)."""
    return np.repeat(np.arange(cells.n_attributes), cells.sizes - 1)


def contrasts(values: NDArray[np.float32], cells: Cells) -> NDArray[np.float32]:
    """Q along the first axis: shape (d, n) to (d - m, n)."""
    found = np.empty((cells.n_levels - cells.n_attributes, values.shape[1]), dtype=np.float32)
    _contrast(np.ascontiguousarray(values), cells.offsets, found)
    return found


def contrast_levels(levels: NDArray[np.float64], cells: Cells) -> NDArray[np.float32]:
    """Q p of every attribute's probabilities, shape (d,) to (d - m,)."""
    return contrasts(levels.astype(np.float32)[:, None], cells)[:, 0]


def contrast_tables(tables: NDArray[np.float32], cells: Cells) -> NDArray[np.float32]:
    """Q T Q^T of every two-way table, shape (n_cells,) to (d - m, d - m), symmetric; zero within attributes."""
    size = cells.n_levels - cells.n_attributes
    found = np.zeros((size, size), dtype=np.float32)
    _contrast_tables(tables, cells.offsets, found)
    return found


@numba.njit(numba.void(_ROWS, OFFSETS, _ROWS), cache=True, nogil=True, fastmath=_FAST)
def _contrast(values: NDArray[np.float32], offsets: NDArray[np.int64], found: NDArray[np.float32]) -> None:
    n = values.shape[1]
    shift = np.empty(n, dtype=np.float32)
    for a in range(offsets.size - 1):
        first, size = offsets[a], offsets[a + 1] - offsets[a]
        if size == 1:
            continue
        root = np.sqrt(np.float32(size))
        # Loops, here and below: a copy of one array to another takes numba seconds to compile.
        for c in range(n):
            shift[c] = values[first, c]
        for k in range(1, size):
            for c in range(n):
                shift[c] += values[first + k, c]
        for c in range(n):
            shift[c] = (shift[c] / root - values[first, c]) / (root - np.float32(1.0))
        for k in range(1, size):
            for c in range(n):
                found[first - a + k - 1, c] = values[first + k, c] - shift[c]


@numba.njit(numba.void(numba.float32[::1], OFFSETS, _ROWS), cache=True, nogil=True, fastmath=_FAST)
def _contrast_tables(tables: NDArray[np.float32], offsets: NDArray[np.int64], found: NDArray[np.float32]) -> None:
    one = np.float32(1.0)
    shift, row = np.empty(offsets[-1], dtype=np.float32), np.empty(offsets[-1], dtype=np.float32)
    start = 0
    for a in range(offsets.size - 1):
        height = offsets[a + 1] - offsets[a]
        for b in range(a + 1, offsets.size - 1):
            width = offsets[b + 1] - offsets[b]
            at, start = start, start + height * width
            if height == 1 or width == 1:
                continue
            tall, wide = np.sqrt(np.float32(height)), np.sqrt(np.float32(width))
            for column in range(width):
                shift[column] = tables[at + column]
            for k in range(1, height):
                for column in range(width):
                    shift[column] += tables[at + k * width + column]
            for column in range(width):
                shift[column] = (shift[column] / tall - tables[at + column]) / (tall - one)
            for k in range(1, height):
                total = np.float32(0.0)
                for column in range(width):
                    row[column] = tables[at + k * width + column] - shift[column]
                    total += row[column]
                moved = (total / wide - row[0]) / (wide - one)
                up = offsets[a] - a + k - 1
                for column in range(1, width):
                    across = offsets[b] - b + column - 1
                    found[up, across] = row[column] - moved
                    found[across, up] = row[column] - moved


@numba.njit(inline="always")
def _exp(x):  # type: ignore[no-untyped-def]
    """e^x for an x of at most zero, to a few units of the last digit; written out so that loops of it vectorize."""
    # x = (k + f) ln 2 with a whole k and f between -1/2 and 1/2.
    y = max(x, np.float32(-87.0)) * np.float32(1.4426950408889634)
    k = np.int32(y - np.float32(0.5))
    f = y - np.float32(k)
    power = _EXP[6]
    power = power * f + _EXP[5]
    power = power * f + _EXP[4]
    power = power * f + _EXP[3]
    power = power * f + _EXP[2]
    power = power * f + _EXP[1]
    power = power * f + _EXP[0]
    return power * np.int32((k + np.int32(127)) << np.int32(23)).view(np.float32)


@numba.njit(numba.void(_ROWS, OFFSETS, _ROWS, _ROWS), cache=True, nogil=True, fastmath=_FAST)
def softmax(
    logits: NDArray[np.float32],
    offsets: NDArray[np.int64],
    probabilities: NDArray[np.float32],
    found: NDArray[np.float32],
) -> None:
    """Probabilities within each attribute from logits, both of shape (d, n), and their contrasts, (d - m, n)."""
    n = logits.shape[1]
    top, scale, shift = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float32)
    one = np.float32(1.0)
    for a in range(offsets.size - 1):
        first, size = offsets[a], offsets[a + 1] - offsets[a]
        for c in range(n):
            top[c] = logits[first, c]
        for k in range(1, size):
            for c in range(n):
                top[c] = logits[first + k, c] if logits[first + k, c] > top[c] else top[c]
        scale[:] = np.float32(0.0)
        for k in range(size):
            for c in range(n):
                weight = _exp(logits[first + k, c] - top[c])
                probabilities[first + k, c] = weight
                scale[c] += weight
        root = np.sqrt(np.float32(size))
        slope = one / (root - one) if size > 1 else one
        for c in range(n):
            scale[c] = one / scale[c]
            probabilities[first, c] *= scale[c]
            shift[c] = (one / root - probabilities[first, c]) * slope
        for k in range(1, size):
            for c in range(n):
                probabilities[first + k, c] *= scale[c]
                found[first - a + k - 1, c] = probabilities[first + k, c] - shift[c]


@numba.njit(numba.float64(_ROWS, numba.float32[::1], _ROWS, OFFSETS, _ROWS), cache=True, nogil=True, fastmath=_FAST)
def through_softmax(
    pull: NDArray[np.float32],
    constant: NDArray[np.float32],
    probabilities: NDArray[np.float32],
    offsets: NDArray[np.int64],
    gradient: NDArray[np.float32],
) -> float:
    """From the gradient in the contrasts, pull + constant, to the gradient in the logits, shape (d, n): its square.

    In the probabilities it is g = Q^T (pull + constant), and in the logits p (g - sum of p g within the attribute),
    which does not change when g moves by a constant: so that g_j is pull_j and g_0 the sum of them / (sqrt(K) - 1).
    """
    n = pull.shape[1]
    one = np.float32(1.0)
    total, mean = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float32)
    square = 0.0
    for a in range(offsets.size - 1):
        first, size = offsets[a], offsets[a + 1] - offsets[a]
        total[:] = np.float32(0.0)
        mean[:] = np.float32(0.0)
        for k in range(1, size):
            at = first - a + k - 1
            for c in range(n):
                pulled = pull[at, c] + constant[at]
                total[c] += pulled
                mean[c] += pulled * probabilities[first + k, c]
        slope = one / (np.sqrt(np.float32(size)) - one) if size > 1 else one
        part = np.float32(0.0)
        for c in range(n):
            total[c] *= slope
            mean[c] += total[c] * probabilities[first, c]
            moved = (total[c] - mean[c]) * probabilities[first, c]
            gradient[first, c] = moved
            part += moved * moved
        square += float(part)
        for k in range(1, size):
            at = first - a + k - 1
            part = np.float32(0.0)
            for c in range(n):
                moved = (pull[at, c] + constant[at] - mean[c]) * probabilities[first + k, c]
                gradient[first + k, c] = moved
                part += moved * moved
            square += float(part)
    return square
