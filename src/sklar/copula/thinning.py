"""Choosing between models on noisy tables alone, at no privacy cost.

Gaussian thinning: with h the noisy counts, sigma the known sd of their noise and z a fresh standard normal,
h + g sigma z and h - sigma z / g are independent and both unbiased. One trains, the other judges. It is post-processing
of what was released already, with public randomness from a fixed seed, so that a fit is a function of the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from sklar.copula.latent import (
    Fit,
    Kind,
    LatentModel,
    Loss,
    Start,
    cell_weights,
    fit_latent,
    independent,
    predicted_strips,
)
from sklar.denoise import denoise_margins, denoise_tables
from sklar.margins import Estimates
from sklar.progress import SILENT, Progress
from sklar.tables import block_of_level
from sklar.threads import side_by_side

SEED = 20_260_204
GAIN = 0.5
SPLITS = 2
EVERY = 10
PATIENCE = 60
SHRINKAGES = (0.0, 0.4)
SDS = (1.0, 0.5)
PREFERENCE = 0.01
# A gain over independence must be so many times its sd by chance.
SIGNIFICANT = 2.0
MAX_STEPS = 1200
COMPONENTS: Mapping[Kind, int] = MappingProxyType({"mixture": 150, "factor": 500})
FITS: Mapping[Kind, int] = MappingProxyType({"mixture": 8, "factor": 2})
MAX_OPERATIONS = 1e13


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One candidate: its best number of steps, and the share of independence's held-out error that it takes away."""

    start: Start
    shrinkage: float
    steps: int
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What thinning decided: how to start, how much to shrink, how long to fit. No steps: independence."""

    start: Start
    shrinkage: float
    steps: int
    gain: float
    tried: tuple[Trial, ...]


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
        self._levels = self.targets.levels.astype(np.float32)
        off = ~np.eye(estimates.schema.n_attributes, dtype=bool)
        # precision is sigma^-2 of the training half over its mean.
        variance = (held.pair_sd[off] / held.n_rows) ** 2
        self._kappa = float(np.mean(self.targets.precision[off] * variance))
        self._scale = 1.0
        self._scale = self.score(self._levels[None, :])[0]

    def score(self, probabilities: NDArray[np.float32]) -> tuple[float, float]:
        """Weighted squared error of the held-out tables under these components, and the sd of its gain by chance.

        Both relative to the error of independence. With P the predicted tables, I independence, V the held-out ones
        with noise sigma, and w = kappa / sigma^2 the weights, the noise in sum w (P - V)^2 - sum w (I - V)^2 is
        -2 sum w (P - I) (V - E V), of variance 4 kappa sum w (P - I)^2.
        """
        # Tables without any noise may be independent to the last digit.
        error, distance = float(np.finfo(np.float32).tiny), 0.0
        for strip, predicted in predicted_strips(probabilities):
            parts = _error(
                predicted,
                self._held[strip],
                self._weights[strip],
                self._levels[strip],
                self._levels,
                len(probabilities),
            )
            error += parts[0]
            distance += parts[1]
        return error / self._scale, 2 * float(np.sqrt(self._kappa * distance)) / self._scale


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _error(
    predicted: NDArray[np.float32],
    held: NDArray[np.float32],
    weights: NDArray[np.float32],
    rows: NDArray[np.float32],
    columns: NDArray[np.float32],
    components: int,
) -> tuple[float, float]:
    """Weighted squared distances of predicted tables from held-out ones and from independence."""
    total, moved, scale = 0.0, 0.0, 1 / components
    for i in range(predicted.shape[0]):
        for j in range(predicted.shape[1]):
            value = scale * predicted[i, j]
            total += weights[i, j] * (value - held[i, j]) ** 2
            moved += weights[i, j] * (value - rows[i] * columns[j]) ** 2
    return total, moved


def curve(
    splits: Sequence[Split], start: Start, shrinkage: float, *, max_steps: int, progress: Progress = SILENT
) -> NDArray[np.float64]:
    """Held-out error and the sd of its gain by chance every `EVERY` steps, shape (evaluations, 2), mean over splits.

    The first row is independence, whose error is 1. Stops when the error has not fallen for `PATIENCE` steps.
    """
    running = [
        (split, Fit(Loss(split.targets, shrinkage), replace(start, seed=start.seed + index)))
        for index, split in enumerate(splits)
    ]
    rows, best, best_at = [np.array([1.0, 0.0])], np.inf, 0

    def advance(pair: tuple[Split, Fit]) -> tuple[float, float]:
        split, fit = pair
        for _ in range(EVERY):
            fit.step()
        return split.score(fit.probabilities)

    while (len(rows) - 1) * EVERY < max_steps:
        rows.append(np.mean(side_by_side(advance, running), axis=0))
        progress.advance(EVERY * len(running))
        if rows[-1][0] < best:
            best, best_at = rows[-1][0], len(rows)
        elif (len(rows) - best_at) * EVERY >= PATIENCE:
            break
    return np.stack(rows)


def choose(
    estimates: Estimates,
    *,
    kinds: Sequence[Kind] = ("mixture", "factor"),
    max_steps: int | None = None,
    progress: Progress = SILENT,
) -> Choice:
    """The start, shrinkage and number of steps that predict held-out tables best; no steps where independence does.

    Shrinkages are compared first, then starts, then parametrisations. A smaller start must be better by more than
    `PREFERENCE` of what the model gains over independence: held-out two-way tables cannot see the three-way structure
    that it loses.
    """
    limit = step_limit(estimates) if max_steps is None else max_steps
    first = Start(kind=kinds[0], components=COMPONENTS[kinds[0]])
    if estimates.schema.n_attributes < 2:
        return Choice(start=first, shrinkage=0.0, steps=0, gain=0.0, tried=())
    generator = np.random.Generator(np.random.SFC64(SEED))
    progress.stage("choose", unit="steps")
    splits = [Split(estimates, generator) for _ in range(SPLITS)]
    tried: list[Trial] = []

    def attempt(start: Start, shrinkage: float) -> Trial:
        errors, chance = curve(splits, start, shrinkage, max_steps=limit, progress=progress).T
        best = int(np.argmin(errors))
        if 1 - errors[best] <= SIGNIFICANT * chance[best]:
            best = 0
        tried.append(Trial(start=start, shrinkage=shrinkage, steps=best * EVERY, gain=float(1 - errors[best])))
        return tried[-1]

    chosen = max((attempt(first, shrinkage) for shrinkage in SHRINKAGES), key=lambda trial: trial.gain)
    for sd in SDS[1:]:
        trial = attempt(replace(first, sd=sd), chosen.shrinkage)
        if trial.gain > (1 + PREFERENCE) * chosen.gain:
            chosen = trial
    for kind in kinds[1:]:
        trial = attempt(replace(first, kind=kind, components=COMPONENTS[kind]), chosen.shrinkage)
        if trial.gain > chosen.gain:
            chosen = trial
    return Choice(
        start=chosen.start, shrinkage=chosen.shrinkage, steps=chosen.steps, gain=chosen.gain, tried=tuple(tried)
    )


def step_limit(estimates: Estimates) -> int:
    """The most steps worth trying: 1,200, and more where the signal may be far above the noise."""
    m = estimates.schema.n_attributes
    if m < 2:
        return 0
    noise = float(np.median(estimates.pair_sd[np.triu_indices(m, 1)])) / estimates.n_rows
    return int(np.clip(MAX_STEPS * np.sqrt(1e-3 / max(noise, 1e-12)), MAX_STEPS, 4 * MAX_STEPS))


def fit_auto(
    estimates: Estimates, *, kinds: Sequence[Kind] = ("mixture", "factor"), progress: Progress = SILENT
) -> tuple[LatentModel, dict[str, Any]]:
    """The model that thinning chooses, refitted to the full tables, and everything that was decided on the way."""
    schema = estimates.schema
    margins = denoise_margins(estimates)
    choice = choose(estimates, kinds=kinds, progress=progress)
    fits = union_size(schema.n_levels, choice) if choice.steps else 0
    if choice.steps:
        progress.stage("fit", total=fits * choice.steps, unit="steps")
        targets = denoise_tables(estimates, margins.levels)
        model = fit_latent(targets, choice.shrinkage, choice.start, steps=choice.steps, fits=fits, progress=progress)
    else:
        model = independent(schema, margins.levels)
    return model, {
        "kind": choice.start.kind if choice.steps else "independence",
        "shrinkage": choice.shrinkage,
        "start_sd": choice.start.sd,
        "steps": choice.steps,
        "components": choice.start.components if choice.steps else 1,
        "rank": choice.start.rank if choice.start.kind == "factor" else None,
        "fits": fits,
        "gain_over_independence": choice.gain,
        "priors": {name: prior for name, prior in zip(schema.names, margins.priors, strict=True) if prior != "none"},
        "tried": [
            {
                "kind": trial.start.kind,
                "start_sd": trial.start.sd,
                "shrinkage": trial.shrinkage,
                "steps": trial.steps,
                "gain": trial.gain,
            }
            for trial in choice.tried
        ],
    }


def union_size(n_levels: int, choice: Choice) -> int:
    """How many fits to unite: 8, fewer where a table is so wide that they would take many minutes; at least 2."""
    operations = 4.0 * choice.start.components * n_levels**2 * choice.steps
    return int(np.clip(MAX_OPERATIONS / max(operations, 1.0), 2, FITS[choice.start.kind]))
