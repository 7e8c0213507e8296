"""Noisy parities of triples of bits, as a part of what a latent model is fitted to.

In contrasts (see `contrasts`) a bit with probability p of 1 is f = (1 - 2 p) / sqrt(2), so that a component predicts
the parity X of three bits of n rows as f_i f_j f_k = (1 - 2 X / n) / sqrt(8), and pairs as f_i f_j = (1 - 2 X / n) / 2.
The noise of X has sqrt(2) times the weight in n f_i f_j that it has in n f_i f_j f_k.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sklar.fitting.margins import Estimates
from sklar.kernel.cells import Cells


class Trios:
    """Targets of all triples of bits, and one weight: the precision of each beside the mean precision of pairs.

    Arrays have a row for every pair of bits and a column for every third one, zero where that is one of the two: every
    triple stands in three places.
    """

    def __init__(self, estimates: Estimates) -> None:
        cells, m = estimates.cells, estimates.cells.n_attributes
        self._first, self._second = cells.pairs
        place = _places(cells)
        here = place >= 0
        wanted = (1 - 2 * estimates.trios / estimates.n_rows) / np.sqrt(8.0)
        self._wanted = np.where(here, wanted[place], 0.0).astype(np.float32)
        pair_variance = 1 / np.mean(estimates.pair_sd**-2.0)
        self.weight = 2 * pair_variance / estimates.trio_sd**2
        self._weights = (self.weight * here).astype(np.float32).reshape(-1, m)

    def pull(self, found: NDArray[np.float32], pull: NDArray[np.float32], fits: int = 1) -> None:
        """Add the gradient of sum of weight x (predicted - target)^2 over triples, times D / 2, to that of pairs.

        `found` are contrasts, shape (m, D), of so many fits side by side, each by itself. Of f_i it is the sum over
        pairs (j, k) of residual_ijk f_j f_k.
        """
        for own, out in zip(np.split(found, fits, axis=1), np.split(pull, fits, axis=1), strict=True):
            pairs = own[self._first] * own[self._second]
            residual = pairs @ own.T
            residual *= np.float32(1 / own.shape[1])
            residual -= self._wanted
            residual *= self._weights
            out += residual.T @ pairs

    def score(self, found: NDArray[np.float32], margins: NDArray[np.float32]) -> tuple[float, float]:
        """Weighted squared distances of what these components predict: from the targets, and from independence."""
        scale = np.float32(1 / found.shape[1])
        predicted = scale * ((found[self._first] * found[self._second]) @ found.T)
        alone = np.outer(margins[self._first] * margins[self._second], margins)
        error = float(np.sum(self._weights * (predicted - self._wanted) ** 2, dtype=np.float64))
        return error / 3, float(np.sum(self._weights * (predicted - alone) ** 2, dtype=np.float64)) / 3


def _places(cells: Cells) -> NDArray[np.int64]:
    """Where the triple of every pair and every third bit stands among all triples, shape (n_pairs, m); -1 for none."""
    cube = np.full((cells.n_attributes,) * 3, -1)
    i, j, k = cells.trios
    numbers = np.arange(cells.n_trios)
    for one, two, three in ((i, j, k), (i, k, j), (j, k, i)):
        cube[one, two, three] = numbers
    return np.asarray(cube[cells.pairs])


def trios_of(estimates: Estimates) -> Trios | None:
    """The parities of triples, where they were measured."""
    return Trios(estimates) if estimates.trios.size else None
