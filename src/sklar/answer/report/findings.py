"""The figures of the publishable report, worked out from a model alone: dependence, match and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sklar.draw.repair import sample_codes
from sklar.fitting.denoise import interactions
from sklar.fitting.margins import Estimates, margins, pool

if TYPE_CHECKING:
    from sklar.files.model import Model

_SAMPLED_ROWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Findings:
    """Figures of all levels, shape (d,), and of all pairs of attributes, in the order (0, 1), (0, 2), ... (1, 2), ...

    `levels` are shares among synthetic rows. `pair_sd` is the standard error of a count. `dependence` is the share of
    rows that would have to change to make a pair independent. `ratios` are the squared differences between model and
    noisy table, divided by those that noise alone is expected to make.
    """

    levels: NDArray[np.float64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    cells: NDArray[np.int64]
    pair_sd: NDArray[np.float64]
    dependence: NDArray[np.float64]
    ratios: NDArray[np.float64]


def root_mean_square(values: NDArray[np.float64]) -> float:
    """A typical size: the root of the mean square."""
    return math.sqrt(float(np.mean(values**2)))


def find(model: Model) -> Findings:
    """Work out the figures of a model."""
    model.measured_schema.require_square("a report")
    cells, estimates = model.measured_schema.cells, pool(model.measured.stages)
    first, second = cells.pairs
    paired = bool(first.size)
    predicted, sampling = _predict(model)
    return Findings(
        levels=np.diagonal(predicted),
        first=first,
        second=second,
        cells=cells.pair_sizes,
        pair_sd=estimates.pair_sd,
        # Half the L1 distance is the total variation distance from independence.
        dependence=interactions(estimates, margins(estimates)) / (2 * model.n_rows) if paired else np.zeros(0),
        ratios=_ratios(estimates, predicted, sampling) if paired else np.zeros(0),
    )


def _predict(model: Model) -> tuple[NDArray[np.float64], float]:
    """The probabilities of pairs of levels, with those of levels on the diagonal, shape (d, d).

    Without a closed form, and with rules, which change what the copula draws, they are counted in synthetic rows. The
    second value is 1 / rows then, because sampling has variance p (1 - p) / rows, and 0 otherwise.
    """
    schema = model.measured_schema
    known = None if schema.rules else model.copula.predict_pairs()
    if known is not None:
        square = known.astype(np.float64)
        np.fill_diagonal(square, model.copula.margins())
        return square, 0.0
    rows = min(model.n_rows, _SAMPLED_ROWS)
    total = np.zeros((schema.n_levels, schema.n_levels))
    for block in sample_codes(model.copula, rows, 0):
        if model.dummies:
            ones = block.view(np.bool_).astype(np.float32)
        else:
            ones = np.zeros((schema.n_levels, block.shape[1]), dtype=np.float32)
            ones[(block + schema.offsets[:-1, None]).ravel(), np.tile(np.arange(block.shape[1]), len(block))] = 1.0
        total += ones @ ones.T
    return total / rows, 1 / rows


def _ratios(estimates: Estimates, predicted: NDArray[np.float64], sampling: float) -> NDArray[np.float64]:
    """Mean squared differences between model and noisy table, in units of the variance of noise, shape (n_pairs,)."""
    cells, n, expected = estimates.cells, estimates.n_rows, estimates.cells.flat(predicted)
    variance = np.repeat(estimates.pair_sd**2, cells.pair_sizes)
    if sampling:
        variance += n**2 * sampling * expected * (1 - expected)
    squares = (estimates.pairs - n * expected) ** 2 / variance
    return np.asarray(np.add.reduceat(squares, cells.pair_offsets[:-1]) / cells.pair_sizes)
