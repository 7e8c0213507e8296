"""Choosing between models on noisy tables alone, at no privacy cost.

Gaussian thinning: with h the noisy counts, sigma the known sd of their noise and z a fresh standard normal,
h + g sigma z and h - sigma z / g are independent and both unbiased. One trains, the other judges. It is post-processing
of what was released already, with public randomness from a fixed seed, so that a fit is a function of the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from sklar.copula.latent import Fit, Kind, LatentModel, Loss, Start, cell_weights, fit_latent, independent, predicted_strips
from sklar.denoise import Targets, denoise_margins, denoise_tables
from sklar.margins import Estimates
from sklar.tables import block_of_level

SEED = 20_260_204
GAIN = 0.5
SPLITS = 2
EVERY = 10
PATIENCE = 60
SHRINKAGES = (0.0, 0.4)
SDS = (1.0, 0.5)
PREFERENCE = 0.005
MAX_STEPS = 1200
FITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What thinning decided: how to start, how much to shrink, how long to fit. No steps: independence."""

    start: Start
    shrinkage: float
    steps: int
    score: float
    independence: float


def thin(estimates: Estimates, generator: np.random.Generator, gain: float = GAIN) -> tuple[Estimates, Estimates]:
    """Two independent sets of estimates of the same counts: one to train on, one to judge by.

    Their variances are 1 + gain^2 and 1 + 1 / gain^2 times the original's.
    """
    schema = estimates.schema
    block = block_of_level(schema)
    one_way = estimates.one_way_sd[block] * generator.standard_normal(block.size)
    pairs = generator.standard_normal((block.size, block.size))
    for first in range(0, block.size, 1024):
        strip = slice(first, first + 1024)
        pairs[strip] *= np.where(block[strip, None] < block[None, :], estimates.pair_sd[block[strip]][:, block], 0.0)

    def half(step: float) -> Estimates:
        wider = np.sqrt(1 + step**2)
        return replace(
            estimates,
            one_way=estimates.one_way + step * one_way,
            one_way_sd=estimates.one_way_sd * wider,
            pairs=estimates.pairs + step * pairs,
            pair_sd=estimates.pair_sd * wider,
        )

    return half(gain), half(-1 / gain)


class Split:
    """Targets from one half, and the other half as a judge."""

    def __init__(self, estimates: Estimates, generator: np.random.Generator) -> None:
        train, held = thin(estimates, generator)
        self.targets = denoise_tables(train, denoise_margins(train).levels)
        self._held = (held.pairs / held.n_rows).astype(np.float32)
        self._weights = cell_weights(estimates.schema, self.targets.precision)
        block = block_of_level(estimates.schema)
        for first in range(0, block.size, 1024):
            strip = slice(first, first + 1024)
            self._weights[strip][block[strip, None] >= block[None, :]] = 0.0
        self.independence = self.score([self.targets.levels.astype(np.float32)[None, :]])

    def score(self, fits: Sequence[NDArray[np.float32]]) -> float:
        """Weighted squared error of the held-out tables as the union of these fits predicts them; lower is better."""
        probabilities = np.concatenate(fits) if len(fits) > 1 else fits[0]
        total = 0.0
        for strip, predicted in predicted_strips(probabilities):
            total += _error(predicted, self._held[strip], self._weights[strip], 1 / len(probabilities))
        return total


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _error(
    predicted: NDArray[np.float32], held: NDArray[np.float32], weights: NDArray[np.float32], scale: float
) -> float:
    total = 0.0
    for i in range(predicted.shape[0]):
        for j in range(predicted.shape[1]):
            error = scale * predicted[i, j] - held[i, j]
            total += weights[i, j] * error * error
    return total


def curve(splits: Sequence[Split], start: Start, shrinkage: float, *, max_steps: int, fits: int = 1) -> list[float]:
    """Held-out error every `EVERY` steps, mean over splits, from independence on, until it stops falling."""
    running = [
        (split, [Fit(loss, replace(start, seed=start.seed + fits * index + k)) for k in range(fits)])
        for index, split in enumerate(splits)
        for loss in [Loss(split.targets, shrinkage)]
    ]
    scores = [float(np.mean([split.independence for split in splits]))]
    best, best_at = np.inf, 0
    while (len(scores) - 1) * EVERY < max_steps:
        for _, members in running:
            for fit in members:
                for _ in range(EVERY):
                    fit.step()
        scores.append(float(np.mean([split.score([f.probabilities for f in members]) for split, members in running])))
        if scores[-1] < best:
            best, best_at = scores[-1], len(scores)
        elif (len(scores) - best_at) * EVERY >= PATIENCE:
            break
    return scores
