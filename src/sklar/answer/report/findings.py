"""The figures of the publishable report, worked out from a model alone: dependence, match and noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import above_diagonal, block_of_level
from sklar.draw.repair import sample_codes
from sklar.files.model import Model
from sklar.fitting.binary import BinaryCopula
from sklar.fitting.denoise import interactions
from sklar.fitting.latent import LatentModel, predict_pairs
from sklar.fitting.margins import Estimates, margins, pool

_SAMPLED_ROWS = 20_000


def closed_form(copula: BinaryCopula | LatentModel) -> NDArray[np.float64] | None:
    """The probabilities of pairs of levels, with those of levels on the diagonal, shape (d, d).

    None when the copula has no closed form.
    """
    if isinstance(copula, BinaryCopula):
        return None
    pairs = predict_pairs(copula).astype(np.float64)
    np.fill_diagonal(pairs, copula.probabilities.mean(axis=0, dtype=np.float64))
    return pairs


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


def find(model: Model) -> Findings:
    """Work out the figures of a model."""
    schema = model.measured_schema
    estimates = pool(model.measured)
    first, second = np.triu_indices(schema.n_attributes, 1)
    paired = bool(first.size)
    predicted, sampling = _predict(model)
    return Findings(
        levels=np.diagonal(predicted),
        first=first,
        second=second,
        cells=schema.sizes[first] * schema.sizes[second],
        pair_sd=estimates.pair_sd[first, second],
        # Half the L1 distance is the total variation distance from independence.
        dependence=interactions(estimates, margins(estimates)) / (2 * model.n_rows) if paired else np.zeros(0),
        ratios=_ratios(estimates, predicted, sampling)[first, second] if paired else np.zeros(0),
    )


def _predict(model: Model) -> tuple[NDArray[np.float64], float]:
    """The probabilities of pairs of levels, with those of levels on the diagonal, shape (d, d).

    Without a closed form, and with rules, which change what the copula draws, they are counted in synthetic rows. The
    second value is 1 / rows then, because sampling has variance p (1 - p) / rows, and 0 otherwise.
    """
    schema = model.measured_schema
    known = None if schema.rules else closed_form(model.copula)
    if known is not None:
        return known, 0.0
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
    """Mean squared differences between model and noisy table, in units of the variance of noise, shape (m, m)."""
    schema, n = estimates.schema, estimates.n_rows
    offsets, sizes, block = schema.offsets[:-1], schema.sizes, block_of_level(schema)
    variance = (estimates.pair_sd**2)[block][:, block]
    if sampling:
        variance += n**2 * sampling * predicted * (1 - predicted)
    squares = (estimates.pairs - n * predicted) ** 2 / np.where(variance > 0, variance, 1.0)
    squares[~above_diagonal(schema)] = 0.0
    summed = np.add.reduceat(np.add.reduceat(squares, offsets, axis=0), offsets, axis=1)
    return np.asarray(summed / np.outer(sizes, sizes))
