"""Records or dummies of the binary copula, block by block: correlated normals in tiles, and the level that wins."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from sklar.draw.blocks import BLOCK_ROWS, empty_codes, stream
from sklar.kernel.cells import Codes, Doubles, Floats, Ints
from sklar.machine.compiled import compiled
from sklar.machine.threads import side_by_side

if TYPE_CHECKING:
    from sklar.paper.gaussian import BinaryCopula

# Rows that are multiplied at once: they stay in a processor's cache.
_TILE = 2048
# Passes over a block that settle it on the margins.
_ROUNDS = 5
# Levels whose chances are integrated at once.
_TOGETHER = 4096


class BinarySampler:
    """Draws any block of a copula's rows.

    Dummies need every Y. A record depends only on differences between the Y of one attribute, so the differences from
    its last level are drawn instead: jointly normal too, and one fewer. Levels that nobody has are left out.
    """

    block_rows = BLOCK_ROWS

    def __init__(self, copula: BinaryCopula) -> None:
        self._copula, self._cells = copula, copula.schema.cells
        if copula.dummies:
            self._factor = copula.factor
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
        self._one, more = np.flatnonzero(sizes == 1), np.flatnonzero(sizes > 1)
        cuts = [copula.cuts[at[index]] for index in more]
        self._more = list(zip(more.tolist(), first[more].tolist(), cuts, slopes(cuts), strict=True))

    def draw(self, seed: int, block: int, rows: int) -> Codes:
        """A block of codes, shape (m, rows), or of dummies 0 and 1, shape (d, rows)."""
        drawn = correlated(self._factor, rows, block, seed)
        if self._copula.dummies:
            above = (drawn > self._copula.cuts.astype(np.float32)[:, None]).view(np.uint8)
            return np.ascontiguousarray(above.swapaxes(0, 1).reshape(len(self._copula.cuts), -1)[:, :rows])
        codes = empty_codes(self._cells, rows)
        for index in self._one.tolist():
            codes[index] = self._present[index][0]
        # Settling each block on the margins takes most of the sampling error out of one-way counts.
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
    return np.asarray(upper.T)


def correlated(factor: Floats, rows: int, block: int, seed: int) -> Floats:
    """factor @ normals for at least this many rows, shape (tiles, len(factor), _TILE)."""
    drawn = np.empty((-(-rows // _TILE), len(factor), _TILE), dtype=np.float32)
    normals = np.empty(drawn.shape[1:], dtype=np.float32)
    for number, tile in enumerate(drawn):
        stream(seed, block, number).standard_normal(dtype=np.float32, out=normals)
        np.matmul(factor, normals, out=tile)
    return drawn


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
