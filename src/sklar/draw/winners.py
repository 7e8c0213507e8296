"""Correlated normals in tiles of rows, and the level that wins in each row."""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.draw.normals import fill_normals
from sklar.machine.compiled import compiled

# Rows that are multiplied at once: few enough for the processor's caches, enough to make up for preparing the factor.
_TILE = 2048


@cache
def _strmm() -> Any:
    """BLAS's triangular product, from scipy's interface for compiled code.

    Called through ctypes it lets other threads run, which scipy's own wrapper does not.
    """
    from scipy.linalg import cython_blas

    capsule = ctypes.py_object(cython_blas.__pyx_capi__["strmm"])
    ctypes.pythonapi.PyCapsule_GetName.restype = ctypes.c_char_p
    ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
    name = ctypes.c_char_p(ctypes.pythonapi.PyCapsule_GetName(capsule))
    address = ctypes.pythonapi.PyCapsule_GetPointer(capsule, name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_char_p] * 4, *[ctypes.c_void_p] * 7)(address)


def differences(factor: NDArray[np.float32], levels: list[NDArray[np.int64]]) -> NDArray[np.float32]:
    """A factor of the covariance of Y_k - Y_l, for all of an attribute's levels k but its last one, l.

    The differences are A factor @ normals for a matrix A, and (A factor)^T = Q R gives them the covariance R^T R.
    """
    rows = np.concatenate([own[:-1] for own in levels])
    last = np.concatenate([np.full(own.size - 1, own[-1]) for own in levels])
    upper = np.asarray(np.linalg.qr((factor[rows] - factor[last]).T, mode="r"))
    return np.asfortranarray(upper.T)


def correlated(
    factor: NDArray[np.float32], rows: int, block: int, seed: int, scratch: threading.local | None = None
) -> NDArray[np.float32]:
    """factor @ normals for at least this many rows, shape (tiles, len(factor), _TILE): in tiles, and in place of them.

    With `scratch`, the result is overwritten by this thread's next call with it: fresh memory of this size is returned
    to the system each time, and costs as much as a third of the product to get back.
    """
    shape = (-(-rows // _TILE), len(factor), _TILE)
    drawn = getattr(scratch, "drawn", np.empty((0, *shape[1:]), dtype=np.float32))
    if len(drawn) < shape[0]:
        drawn = np.empty(shape, dtype=np.float32)
    if scratch is not None:
        scratch.drawn = drawn
    drawn = drawn[: shape[0]]
    for number, tile in enumerate(drawn):
        fill_normals(tile, number * _TILE, block, seed)
        _multiply(factor, tile)
    return drawn


def _multiply(factor: NDArray[np.float32], tile: NDArray[np.float32]) -> None:
    """tile = factor @ tile for a lower triangular factor, held by columns: half the operations of a full product."""
    if not len(factor):
        return
    # To Fortran the tile is its transpose, so that the factor multiplies from the right, transposed.
    columns, n, one = ctypes.c_int(tile.shape[1]), ctypes.c_int(len(factor)), ctypes.c_float(1.0)
    width, size = ctypes.byref(columns), ctypes.byref(n)
    _strmm()(b"R", b"L", b"T", b"N", width, size, ctypes.byref(one), factor.ctypes.data, size, tile.ctypes.data, width)


@compiled(
    "void(float32[:, :, ::1], int64, float64[::1], uint16[::1], int64[::1])",
    boundscheck=False,
)
def _winners(
    drawn: NDArray[np.float32],
    first: int,
    cuts: NDArray[np.float64],
    winners: NDArray[np.uint16],
    wins: NDArray[np.int64],
) -> None:
    """The level with the largest exceedance in each row, and how often each level has it."""
    last, columns = cuts.size - 1, drawn.shape[2]
    best = np.empty(columns, dtype=np.float32)
    level = np.empty(columns, dtype=np.int32)
    wins[:] = 0
    for tile in range(drawn.shape[0]):
        best[:] = np.float32(-cuts[last])
        level[:] = last
        for k in range(last):
            cut, own, code = np.float32(cuts[k]), drawn[tile, first + k], np.int32(k)
            for column in range(columns):
                exceedance = own[column] - cut
                better = exceedance > best[column]
                best[column] = exceedance if better else best[column]
                level[column] = code if better else level[column]
        start = tile * columns
        used = min(columns, winners.size - start)
        for column in range(used):
            winners[start + column] = level[column]
        if last < 8:
            # Comparing with every level is faster than adding to the same few counts again and again.
            for k in range(last):
                code, count = np.int32(k), np.int32(0)
                for column in range(used):
                    count += np.int32(level[column] == code)
                wins[k] += count
        else:
            for column in range(used):
                wins[level[column]] += 1
    if last < 8:
        wins[last] = winners.size - wins[:last].sum()


@compiled(
    "void(float32[:, :, ::1], int64, float64[::1], float64[::1], float64[::1], int64, uint16[::1], float64[::1])",
    boundscheck=False,
)
def settle(
    drawn: NDArray[np.float32],
    first: int,
    cuts: NDArray[np.float64],
    wanted: NDArray[np.float64],
    slopes: NDArray[np.float64],
    rounds: int,
    won: NDArray[np.uint16],
    settled: NDArray[np.float64],
) -> None:
    """The winning level of each row, `won`, and cut points, `settled`, moved so that winners are as often as `wanted`.

    `drawn`, shape (tiles, n, columns), holds the attribute's differences at `first` and after, one fewer than levels.
    """
    levels = cuts.size
    # A level wanted a few times only is left to chance: forcing its count would round it to nothing.
    gain = wanted / (wanted + 10.0) / slopes
    # Loops, here and below: a copy of one array to another takes numba seconds to compile.
    for k in range(levels):
        settled[k] = cuts[k]
    direction = np.zeros(levels)
    trial = np.empty(levels)
    winners = np.empty(won.size, dtype=np.uint16)
    wins = np.empty(levels, dtype=np.int64)
    least, step = np.inf, 0.5
    for _ in range(rounds):
        for k in range(levels):
            trial[k] = settled[k] + step * direction[k]
        _winners(drawn, first, trial, winners, wins)
        error, farthest = 0.0, 0.0
        for k in range(levels):
            error += abs(wins[k] - wanted[k]) * gain[k]
            farthest = max(farthest, abs(wins[k] - wanted[k]))
        # Not `error < least`: what a damaged model makes of the error must not leave rows without a winner.
        if not error >= least:
            least = error
            for row in range(won.size):
                won[row] = winners[row]
            for k in range(levels):
                settled[k] = trial[k]
                direction[k] = gain[k] * np.log((wins[k] + 0.5) / (wanted[k] + 0.5))
        else:
            # Correlated levels answer more strongly than independent ones would.
            step /= 2
        if farthest < 1:
            break


@compiled(
    "void(float32[:, :, ::1], int64[::1], float64[::1], float64[::1], float64[::1], uint32[::1], int64, uint8[:, ::1])",
    boundscheck=False,
)
def settle_two(
    drawn: NDArray[np.float32],
    first: NDArray[np.int64],
    cuts: NDArray[np.float64],
    densities: NDArray[np.float64],
    wanted: NDArray[np.float64],
    chance: NDArray[np.uint32],
    rounds: int,
    won: NDArray[np.uint8],
) -> None:
    """The same for many attributes of two levels at once: `won`, shape (attributes, rows), has the winner of each row.

    Level 0 wins where the difference in row `first` of `drawn` is above the cut point, whose density there is given; it
    is `wanted` so often, rounded by a random word. The cut point is found by its counts alone: Newton's steps until it
    is between two that were tried, then in proportion.
    """
    rows, columns = won.shape[1], drawn.shape[2]
    for i in range(first.size):
        # A level wanted a few times only is left to chance, as above.
        rarer = min(wanted[i], rows - wanted[i])
        forced, rounding = rarer / (rarer + 10.0), chance[i] * 2.0**-32
        cut, settled, least, target = cuts[i], cuts[i], np.inf, 0.0
        low, high, too_many, too_few = -np.inf, np.inf, 0.0, 0.0
        for turn in range(rounds):
            above = np.int64(0)
            at = np.float32(cut)
            for tile in range(drawn.shape[0]):
                own = drawn[tile, first[i], : min(columns, rows - tile * columns)]
                count = np.int32(0)
                for column in range(own.size):
                    count += np.int32(own[column] > at)
                above += np.int64(count)
            if turn == 0:
                target = np.floor(above + forced * (wanted[i] - above) + rounding)
            missed = above - target
            if abs(missed) < least:
                least, settled = abs(missed), cut
            if missed > 0:
                low, too_many = cut, missed
            elif missed < 0:
                high, too_few = cut, -missed
            else:
                break
            if np.isfinite(high - low):
                cut = low + (high - low) * too_many / (too_many + too_few)
            else:
                cut += min(max(missed / (rows * densities[i]), -1.0), 1.0)
        at = np.float32(settled)
        for tile in range(drawn.shape[0]):
            own = drawn[tile, first[i], : min(columns, rows - tile * columns)]
            out = won[i, tile * columns : tile * columns + own.size]
            for column in range(own.size):
                out[column] = own[column] <= at
