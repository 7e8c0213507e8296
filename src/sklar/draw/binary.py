"""Records or dummies of the binary copula, block by block.

A module of its own, which the copula imports where rows are drawn: nothing here is compiled for models that never do.
"""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import BLOCK_ROWS, Codes, empty_codes
from sklar.draw.normals import words
from sklar.draw.winners import correlated, differences, settle, settle_two
from sklar.fitting.cuts import slopes
from sklar.machine.threads import side_by_side

if TYPE_CHECKING:
    from sklar.fitting.binary import BinaryCopula

# Passes over a block that settle it on the margins.
_ROUNDS = 5
# The first of the words that round the counts: where no normal of any row is drawn from.
_ROUNDING = 0xFFFFFFFF << 32


class BinarySampler:
    """Draws any block of a copula's rows; whatever all blocks share is worked out once.

    Dummies need every Y. A record depends only on differences between the Y of one attribute, so the differences of
    each level from the attribute's last one are drawn instead: they are jointly normal too, and one fewer per
    attribute, which is half of them where attributes are boolean. Levels that nobody has are left out.
    """

    def __init__(self, copula: BinaryCopula) -> None:
        self._copula = copula
        self._scratch = threading.local()
        if copula.dummies:
            self._factor = np.asfortranarray(copula.factor)
            return
        self._cells = copula.schema.cells
        offsets = self._cells.offsets
        self._present = [_finite(copula.cuts[first:last]) for first, last in pairwise(offsets)]
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

    block_rows = BLOCK_ROWS

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
            wanted = np.array([self._shares[index][0] * rows for index in self._two])
            second = np.empty((self._two.size, rows), dtype=np.uint8)
            settle_two(drawn, *self._between, wanted, chance, _ROUNDS, second)
            codes[self._two] = second
            for place, index in enumerate(self._two.tolist()):
                if self._present[index][1] != 1:
                    codes[index] = self._present[index][second[place]]
        won = np.empty(rows, dtype=np.uint16)
        for index, first, cuts, steepness in self._more:
            settle(drawn, first, cuts, self._shares[index] * rows, steepness, _ROUNDS, won, np.empty(cuts.size))
            present = self._present[index]
            codes[index] = won if present[-1] == present.size - 1 else present[won]
        return codes


class RedrawWhole:
    """Draws whole records anew, at the fitted cut points."""

    def __init__(self, copula: BinaryCopula) -> None:
        self._factor, self._cuts = copula.factor, copula.cuts.astype(np.float32)
        self._offsets = copula.schema.cells.offsets

    def __call__(self, codes: Codes, _rows: NDArray[np.int64], generator: np.random.Generator) -> Codes:
        """Independent records, as many as `codes` holds."""
        exceed = self._factor @ generator.standard_normal((self._cuts.size, codes.shape[1]), dtype=np.float32)
        exceed -= self._cuts[:, None]
        return np.stack([exceed[start:stop].argmax(axis=0) for start, stop in pairwise(self._offsets)])


def _finite(cuts: NDArray[np.float64]) -> NDArray[np.int64]:
    """The levels that can win; the first one where a damaged model leaves none."""
    return np.flatnonzero(np.isfinite(cuts)) if np.isfinite(cuts).any() else np.zeros(1, dtype=np.int64)
