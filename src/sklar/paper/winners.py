"""Records or dummies of the binary copula, block by block: correlated normals in tiles, and the level that wins.

Normals are drawn by counter, in single precision, so that any value can be drawn without those before it. Words come
from Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011), keyed by the seed. A word of 32 bits gives a sign and the
chance q that a normal is larger in size, an odd multiple of 2^-32. With x = 1 - q and w = -log(1 - x^2) the normal is x
Q(w), with Q a polynomial of w in the middle, and of its square root in the tails (Giles 2010): minimax fits to scipy's
`ndtri` and `log1p`. No value is larger in size than 6.4: the chance of one is 2e-10.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable
from functools import cache
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from sklar.draw.blocks import BLOCK_ROWS, empty_codes
from sklar.kernel.cells import Codes, Doubles, Floats, Ints
from sklar.machine.compiled import compiled
from sklar.machine.threads import side_by_side

if TYPE_CHECKING:
    from sklar.paper.gaussian import BinaryCopula

# Rows that are multiplied at once: they stay in a processor's cache.
_TILE = 2048
# Passes over a block that settle it on the margins.
_ROUNDS = 5
# The first of the words that round the counts: no normal of any row is drawn from it.
_ROUNDING = 0xFFFFFFFF << 32
# Levels whose chances are integrated at once.
_TOGETHER = 4096
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_SQRT_HALF_BITS, _MANTISSA = np.int32(0x3F3504F3), np.int32(0x007FFFFF)
_ONE, _STEP, _HALF_STEP, _LN2 = (np.float32(each) for each in (1.0, 2.0**-31, 2.0**-32, 0.6931471805599453))
_GROUP = 64
# w = 5 at q (2 - q) = exp(-5).
_TAIL_WORDS = np.uint32(2**32 * (1 - math.sqrt(1 - math.exp(-5))))

# Coefficients from the highest power down.
_LOG = (
    0.087223585, -0.143668445, 0.149522663, -0.165623928, 0.199568336, -0.250020741, 0.333341856, -0.49999988,
    0.999999974,
)  # fmt: skip
_MIDDLE = (
    -1.24323737e-08, 3.28558898e-08, 6.59264079e-07, -4.89700365e-06, -7.01923021e-06, 0.000308785666, -0.00177164456,
    -0.00590771704, 0.348802038, 2.12331348,
)  # fmt: skip
_TAIL = (
    6.40263941e-05, -2.41616959e-05, -0.000460636075, 0.00102387601, -0.00136611383, 0.00205010523, -0.00365628456,
    0.00562693655, 1.4236146, 4.57467471,
)  # fmt: skip


class BinarySampler:
    """Draws any block of a copula's rows.

    Dummies need every Y. A record depends only on differences between the Y of one attribute, so the differences from
    its last level are drawn instead: jointly normal too, and one fewer. Levels that nobody has are left out.
    """

    block_rows = BLOCK_ROWS

    def __init__(self, copula: BinaryCopula) -> None:
        self._copula, self._cells = copula, copula.schema.cells
        self._scratch = threading.local()
        if copula.dummies:
            self._factor = np.asfortranarray(copula.factor)
            return
        offsets = self._cells.offsets
        finite = [np.flatnonzero(np.isfinite(copula.cuts[first:last])) for first, last in pairwise(offsets)]
        # The levels that can win; the first one where a damaged model leaves none.
        self._present = [each if each.size else np.zeros(1, dtype=np.int64) for each in finite]
        at = [first + present for first, present in zip(offsets[:-1], self._present, strict=True)]
        # In one thread: the same factor whatever the number of threads.
        (self._factor,) = side_by_side(lambda levels: differences(copula.factor, levels), [at])
        sizes = np.array([levels.size for levels in at])
        first = np.cumsum(sizes - 1) - (sizes - 1)
        self._shares = [copula.levels[levels] / copula.levels[levels].sum() for levels in at]
        self._one, self._two, more = (np.flatnonzero(which) for which in (sizes == 1, sizes == 2, sizes > 2))
        cuts = [copula.cuts[at[index]] for index in more]
        self._more = list(zip(more.tolist(), first[more].tolist(), cuts, slopes(cuts), strict=True))
        # The first of two levels wins where their difference is above that of their cut points.
        between = np.array([-np.diff(copula.cuts[at[index]])[0] for index in self._two])
        sd = np.maximum(np.linalg.norm(self._factor[first[self._two]], axis=1), 1e-6).astype(np.float64)
        density = np.exp(-0.5 * (between / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
        self._between = (first[self._two], between, np.maximum(density, 1e-12))

    def draw(self, seed: int, block: int, rows: int) -> Codes:
        """A block of codes, shape (m, rows), or of dummies 0 and 1, shape (d, rows)."""
        drawn = correlated(self._factor, rows, block, seed, self._scratch)
        if self._copula.dummies:
            above = (drawn > self._copula.cuts.astype(np.float32)[:, None]).view(np.uint8)
            return np.ascontiguousarray(above.swapaxes(0, 1).reshape(len(self._copula.cuts), -1)[:, :rows])
        codes = empty_codes(self._cells, rows)
        for index in self._one.tolist():
            codes[index] = self._present[index][0]
        # Settling each block on the margins takes most of the sampling error out of one-way counts.
        if self._two.size:
            chance = np.empty(-(-self._two.size // 4) * 4, dtype=np.uint32)
            words(chance, _ROUNDING, block, seed)
            targets = np.array([self._shares[index][0] * rows for index in self._two])
            second = np.empty((self._two.size, rows), dtype=np.uint8)
            first, between, density = self._between
            settle_two(drawn, first, np.stack([between, density, targets]), chance, _ROUNDS, second)
            codes[self._two] = second
            for place, index in enumerate(self._two.tolist()):
                if self._present[index][1] != 1:
                    codes[index] = self._present[index][second[place]]
        won = np.empty(rows, dtype=np.uint16)
        for index, first, cuts, steepness in self._more:
            goals = np.stack([cuts, self._shares[index] * rows, steepness])
            settle(drawn, first, goals, _ROUNDS, won, np.empty(cuts.size))
            present = self._present[index]
            codes[index] = won if present[-1] == present.size - 1 else present[won]
        return codes


def slopes(cuts: list[Doubles]) -> list[Doubles]:
    """-d log P(k) / d c_k of each attribute's levels, as if the Y were independent."""
    return in_groups(lambda alike: argmax_chances(alike)[1], cuts)


def in_groups(work: Callable[[Doubles], Doubles], parts: list[Doubles]) -> list[Doubles]:
    """`work` on every part, parts of one size as rows of one array: thousands of small calls would be slow."""
    order = sorted(range(len(parts)), key=lambda index: parts[index].size)
    sizes = [parts[index].size for index in order]
    runs = groupby(range(len(order)), key=lambda at: (sizes[at], at * sizes[at] // _TOGETHER))
    groups = [[order[at] for at in run] for _, run in runs]
    rows = side_by_side(lambda group: work(np.stack([parts[index] for index in group])), groups)
    results = dict(zip(chain(*groups), chain(*rows), strict=True))
    return [results[index] for index in range(len(parts))]


def argmax_chances(c: Doubles) -> tuple[Doubles, Doubles]:
    """P(k) = int phi(v + c_k) prod_{l != k} Phi(v + c_l) dv for independent normals, and -d log P(k) / d c_k.

    All have shape (attributes, levels).
    """
    # The trapezoidal rule converges exponentially on a smooth integrand that vanishes at both ends.
    low, high = -c.max(axis=1) - 9.0, -c.min(axis=1) + 9.0
    step = (high - low) / 399
    at = (low[:, None] + step[:, None] * np.arange(400))[:, :, None] + c[:, None, :]
    logs = log_ndtr(at)
    density = np.exp(-0.5 * at**2 - 0.5 * np.log(2 * np.pi) + logs.sum(axis=2, keepdims=True) - logs)
    chance = step[:, None] * density.sum(axis=1)
    return chance, np.maximum(step[:, None] * (at * density).sum(axis=1) / chance, 0.5)


def differences(factor: Floats, levels: list[Ints]) -> Floats:
    """A factor of the covariance of Y_k - Y_l for all of an attribute's levels k but its last, l: R^T of a QR."""
    rows = np.concatenate([own[:-1] for own in levels])
    last = np.concatenate([np.full(own.size - 1, own[-1]) for own in levels])
    upper = np.asarray(np.linalg.qr((factor[rows] - factor[last]).T, mode="r"))
    return np.asfortranarray(upper.T)


def correlated(factor: Floats, rows: int, block: int, seed: int, scratch: threading.local | None = None) -> Floats:
    """factor @ normals for at least this many rows, shape (tiles, len(factor), _TILE); the factor is lower triangular.

    With `scratch`, the buffer is reused by this thread's next call: allocating costs a third of the product.
    """
    shape = (-(-rows // _TILE), len(factor), _TILE)
    drawn = getattr(scratch, "drawn", np.empty((0, *shape[1:]), dtype=np.float32))
    if len(drawn) < shape[0]:
        drawn = np.empty(shape, dtype=np.float32)
    if scratch is not None:
        scratch.drawn = drawn
    drawn = drawn[: shape[0]]
    width, size, one = (ctypes.byref(each) for each in (ctypes.c_int(_TILE), ctypes.c_int(shape[1]), ctypes.c_float(1)))
    for number, tile in enumerate(drawn):
        fill_normals(tile, number * _TILE, block, seed)
        if tile.size:
            # To Fortran the tile is its transpose, so that the factor multiplies from the right, transposed.
            _strmm()(b"R", b"L", b"T", b"N", width, size, one, factor.ctypes.data, size, tile.ctypes.data, width)
    return drawn


@cache
def _strmm() -> Any:
    """BLAS's triangular product, through ctypes: it releases the GIL, which scipy's own wrapper does not."""
    from scipy.linalg import cython_blas

    capsule = ctypes.py_object(cython_blas.__pyx_capi__["strmm"])
    ctypes.pythonapi.PyCapsule_GetName.restype = ctypes.c_char_p
    ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
    name = ctypes.c_char_p(ctypes.pythonapi.PyCapsule_GetName(capsule))
    address = ctypes.pythonapi.PyCapsule_GetPointer(capsule, name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_char_p] * 4, *[ctypes.c_void_p] * 7)(address)


@compiled("void(float32[:, :, ::1], int64, float64[::1], uint16[::1], int64[::1])", boundscheck=False)
def _winners(drawn: Floats, first: int, cuts: Doubles, winners: NDArray[np.uint16], wins: Ints) -> None:
    """The level with the largest exceedance in each row, and how often each level has it."""
    last, columns = cuts.size - 1, drawn.shape[2]
    best, level = np.empty(columns, dtype=np.float32), np.empty(columns, dtype=np.int32)
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
        # Comparing with every level is vectorized; adding to the same few counts again and again is not.
        for k in range(last):
            code, count = np.int32(k), np.int32(0)
            for column in range(used):
                count += np.int32(level[column] == code)
            wins[k] += count
    wins[last] = winners.size - wins[:last].sum()


@compiled("void(float32[:, :, ::1], int64, float64[:, ::1], int64, uint16[::1], float64[::1])", boundscheck=False)
def settle(drawn: Floats, first: int, goals: Doubles, rounds: int, won: NDArray[np.uint16], settled: Doubles) -> None:
    """The winning level of each row, `won`, and cut points, `settled`, moved so that levels win as often as they shall.

    `goals`, shape (3, levels), are the cut points to begin with, how often levels shall win, and their slopes. `drawn`,
    shape (tiles, n, columns), holds the attribute's differences at `first` and after, one fewer than levels.
    """
    cuts, targets, slopes = goals[0], goals[1], goals[2]
    levels = cuts.size
    # A level with a target of a few is left to chance: forcing its count would round it to nothing.
    gain = targets / (targets + 10.0) / slopes
    # Loops, here and below: a copy of one array to another takes numba seconds to compile.
    for k in range(levels):
        settled[k] = cuts[k]
    direction, trial, wins = np.zeros(levels), np.empty(levels), np.empty(levels, dtype=np.int64)
    winners = np.empty(won.size, dtype=np.uint16)
    least, step = np.inf, 0.5
    for _ in range(rounds):
        for k in range(levels):
            trial[k] = settled[k] + step * direction[k]
        _winners(drawn, first, trial, winners, wins)
        error, farthest = 0.0, 0.0
        for k in range(levels):
            error += abs(wins[k] - targets[k]) * gain[k]
            farthest = max(farthest, abs(wins[k] - targets[k]))
        # Not `error < least`: what a damaged model makes of the error must not leave rows without a winner.
        if not error >= least:
            least = error
            for row in range(won.size):
                won[row] = winners[row]
            for k in range(levels):
                settled[k] = trial[k]
                direction[k] = gain[k] * np.log((wins[k] + 0.5) / (targets[k] + 0.5))
        else:
            # Correlated levels answer more strongly than independent ones would.
            step /= 2
        if farthest < 1:
            break


@compiled("void(float32[:, :, ::1], int64[::1], float64[:, ::1], uint32[::1], int64, uint8[:, ::1])", boundscheck=False)
def settle_two(
    drawn: Floats, first: Ints, goals: Doubles, chance: NDArray[np.uint32], rounds: int, won: NDArray[np.uint8]
) -> None:
    """The same for many attributes of two levels at once: `won`, shape (attributes, rows), has the winner of each row.

    Level 0 wins where the difference in row `first` of `drawn` is above the cut point. `goals`, shape (3, attributes),
    are cut points, densities there, and targets, which a random word rounds. Cut points: Newton's steps until one is
    bracketed, then in proportion.
    """
    rows, columns = won.shape[1], drawn.shape[2]
    cuts, densities, targets = goals[0], goals[1], goals[2]
    for i in range(first.size):
        # A level with a target of a few is left to chance, as above.
        rarer = min(targets[i], rows - targets[i])
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
                target = np.floor(above + forced * (targets[i] - above) + rounding)
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


@compiled("void(uint32[::1], uint64, uint64, uint64)", boundscheck=False)
def words(out: NDArray[np.uint32], counter: np.uint64 | int, upper: int, seed: int) -> None:
    """Four random words for each counter from (`upper`, `counter`) on, 64 bits each; `out` has a multiple of four."""
    for i in range(out.size >> 2):
        at = counter + np.uint64(i)
        c0, c1, c2, c3 = at & _LOW, at >> _HALF, upper & _LOW, upper >> _HALF
        k0, k1 = seed & _LOW, seed >> _HALF
        for _ in range(10):
            first, second = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
            c0, c1, c2, c3 = (second >> _HALF) ^ c1 ^ k0, second & _LOW, (first >> _HALF) ^ c3 ^ k1, first & _LOW
            k0, k1 = (k0 + np.uint64(0x9E3779B9)) & _LOW, (k1 + np.uint64(0xBB67AE85)) & _LOW
        out[4 * i], out[4 * i + 1], out[4 * i + 2], out[4 * i + 3] = c0, c1, c2, c3


@compiled()
def _polynomial(coefficients, x):  # type: ignore[no-untyped-def]
    value = np.float32(0.0)
    for c in coefficients:
        value = value * x + np.float32(c)
    return value


@compiled()
def _minus_log(t):  # type: ignore[no-untyped-def]
    """-log t for a t of at most one, but not below zero."""
    # The exponent is chosen so that the mantissa 1 + f lies between the roots of 1/2 and of 2.
    bits = np.int32(np.float32(t).view(np.int32) - _SQRT_HALF_BITS)
    exponent = np.int32(bits >> np.int32(23))
    f = np.int32((bits & _MANTISSA) + _SQRT_HALF_BITS).view(np.float32) - _ONE
    return max(-(_polynomial(_LOG, f) * f + np.float32(exponent) * _LN2), np.float32(0.0))


@compiled("void(uint32[::1], float32[::1])", boundscheck=False, fastmath={"contract"}, error_model="numpy")
def to_normals(drawn: NDArray[np.uint32], out: Floats) -> None:
    """The normal of each word."""
    for i in range(out.size):
        word = drawn[i]
        # Through a signed integer: processors convert those directly.
        q = np.float32(np.int32(word >> np.uint32(1))) * _STEP + _HALF_STEP
        x = _ONE - q
        size = x * _polynomial(_MIDDLE, _minus_log(q * (_ONE + x)) - np.float32(2.5))
        out[i] = size if word & np.uint32(1) else -size
    # One word in 300 is in a tail: found by the group, so that most are never looked at one by one.
    for start in range(0, out.size, _GROUP):
        group = drawn[start : start + _GROUP]
        least = group[0]
        # Over a slice from 0: other indices might be negative to the compiler, and would not be vectorized.
        for i in range(group.size):
            least = min(least, group[i])
        if least < _TAIL_WORDS:
            for i in range(group.size):
                if group[i] < _TAIL_WORDS:
                    q = np.float32(np.int32(group[i] >> np.uint32(1))) * _STEP + _HALF_STEP
                    x = _ONE - q
                    size = x * _polynomial(_TAIL, np.sqrt(_minus_log(q * (_ONE + x))) - np.float32(3.4))
                    out[start + i] = size if group[i] & np.uint32(1) else -size


@compiled("void(float32[:, ::1], uint64, uint64, uint64)", boundscheck=False)
def fill_normals(out: Floats, first: int, block: int, seed: int) -> None:
    """Normals number `first`, `first` + 1, ... of every row of a block; `first` and the columns are multiples of four.

    A value depends on its row, its number, the block and the seed alone.
    """
    drawn = np.empty(out.shape[1], dtype=np.uint32)
    for row in range(out.shape[0]):
        words(drawn, (np.uint64(row) << _HALF) + (first >> np.uint64(2)), block, seed)
        to_normals(drawn, out[row])
