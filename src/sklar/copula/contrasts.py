"""Tables in orthonormal contrasts: the same squared errors from fewer numbers.

An attribute's K probabilities sum to one, so that K - 1 contrasts say all: x -> Q x with Q the last K - 1 rows of the
Householder reflection that takes the constant vector to the first axis,

    (Q x)_j = x_j - (sum(x) / sqrt(K) - x_0) / (sqrt(K) - 1),    j = 1 ... K - 1.

Q Q^T = I and Q 1 = 0. A two-way table T of attributes A and B, with total 1 and margins a and b, is then three parts at
right angles, Q T Q^T, Q a and Q b, and for two such tables

    ||T - T'||^2 = ||Q (T - T') Q^T||^2 + ||Q (a - a')||^2 / K_B + ||Q (b - b')||^2 / K_A.

d levels of m attributes become d - m contrasts: a quarter of the cells where all attributes are binary.
Arrays have one row per level or contrast, so that kernels run along rows whatever the sizes of the attributes.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from sklar.schema import Schema

_ROWS = numba.float32[:, ::1]
_OFFSETS = numba.int64[::1]
_FAST = {"contract", "reassoc"}


def block_of_contrast(schema: Schema) -> NDArray[np.int64]:
    """The attribute that each of the d - m contrasts belongs to, shape (d - m,)."""
    return np.repeat(np.arange(schema.n_attributes), schema.sizes - 1)


def contrasts(values: NDArray[np.float32], schema: Schema) -> NDArray[np.float32]:
    """Q along the first axis: shape (d, n) to (d - m, n)."""
    found = np.empty((schema.n_levels - schema.n_attributes, values.shape[1]), dtype=np.float32)
    _contrast(np.ascontiguousarray(values), schema.offsets, found)
    return found


def contrast_levels(levels: NDArray[np.float64], schema: Schema) -> NDArray[np.float32]:
    """Q p of every attribute's probabilities, shape (d,) to (d - m,)."""
    return contrasts(levels.astype(np.float32)[:, None], schema)[:, 0]


def contrast_tables(tables: NDArray[np.float32], schema: Schema) -> NDArray[np.float32]:
    """Q T Q^T of every two-way table, shape (d, d) to (d - m, d - m)."""
    return np.ascontiguousarray(contrasts(contrasts(tables, schema).T, schema).T)


@numba.njit(numba.void(_ROWS, _OFFSETS, _ROWS), cache=True, nogil=True, fastmath=_FAST)
def _contrast(values: NDArray[np.float32], offsets: NDArray[np.int64], found: NDArray[np.float32]) -> None:
    n = values.shape[1]
    shift = np.empty(n, dtype=np.float32)
    for a in range(offsets.size - 1):
        first, size = offsets[a], offsets[a + 1] - offsets[a]
        if size == 1:
            continue
        root = np.sqrt(np.float32(size))
        shift[:] = values[first]
        for k in range(1, size):
            for c in range(n):
                shift[c] += values[first + k, c]
        for c in range(n):
            shift[c] = (shift[c] / root - values[first, c]) / (root - np.float32(1.0))
        for k in range(1, size):
            for c in range(n):
                found[first - a + k - 1, c] = values[first + k, c] - shift[c]


@numba.njit(numba.void(_ROWS, _OFFSETS), cache=True, nogil=True, fastmath=_FAST)
def subtract_max(logits: NDArray[np.float32], offsets: NDArray[np.int64]) -> None:
    """From each attribute's logits, shape (d, n), their largest, in place."""
    n = logits.shape[1]
    top = np.empty(n, dtype=np.float32)
    for a in range(offsets.size - 1):
        top[:] = logits[offsets[a]]
        for k in range(offsets[a] + 1, offsets[a + 1]):
            for c in range(n):
                top[c] = logits[k, c] if logits[k, c] > top[c] else top[c]
        for k in range(offsets[a], offsets[a + 1]):
            for c in range(n):
                logits[k, c] -= top[c]


@numba.njit(numba.void(_ROWS, _OFFSETS, _ROWS), cache=True, nogil=True, fastmath=_FAST)
def normalize(weights: NDArray[np.float32], offsets: NDArray[np.int64], found: NDArray[np.float32]) -> None:
    """Positive weights, shape (d, n), to probabilities within each attribute, in place, and to their contrasts."""
    n = weights.shape[1]
    scale, shift = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float32)
    one = np.float32(1.0)
    for a in range(offsets.size - 1):
        first, size = offsets[a], offsets[a + 1] - offsets[a]
        scale[:] = weights[first]
        for k in range(1, size):
            for c in range(n):
                scale[c] += weights[first + k, c]
        root = np.sqrt(np.float32(size))
        slope = one / (root - one) if size > 1 else one
        for c in range(n):
            scale[c] = one / scale[c]
            weights[first, c] *= scale[c]
            shift[c] = (one / root - weights[first, c]) * slope
        for k in range(1, size):
            for c in range(n):
                weights[first + k, c] *= scale[c]
                found[first - a + k - 1, c] = weights[first + k, c] - shift[c]


@numba.njit(numba.void(_ROWS, numba.float32[::1], _ROWS, _OFFSETS, _ROWS), cache=True, nogil=True, fastmath=_FAST)
def through_softmax(
    pull: NDArray[np.float32],
    constant: NDArray[np.float32],
    probabilities: NDArray[np.float32],
    offsets: NDArray[np.int64],
    gradient: NDArray[np.float32],
) -> None:
    """From the gradient in the contrasts, pull + constant, to the gradient in the logits, shape (d, n).

    In the probabilities it is g = Q^T (pull + constant), and in the logits p (g - sum of p g within the attribute),
    which does not change when g moves by a constant: so that g_j is pull_j and g_0 the sum of them / (sqrt(K) - 1).
    """
    n = pull.shape[1]
    one = np.float32(1.0)
    total, mean = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float32)
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
        for c in range(n):
            total[c] *= slope
            mean[c] += total[c] * probabilities[first, c]
            gradient[first, c] = (total[c] - mean[c]) * probabilities[first, c]
        for k in range(1, size):
            at = first - a + k - 1
            for c in range(n):
                gradient[first + k, c] = (pull[at, c] + constant[at] - mean[c]) * probabilities[first + k, c]
