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
from sklar.tables import block_of_level

SEED = 20_260_204
GAIN = 0.5
SPLITS = 2
EVERY = 10
PATIENCE = 60
SHRINKAGES = (0.0, 0.4)
SDS = (1.0, 0.5)
PREFERENCE = 0.01
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


def choose(
    estimates: Estimates, *, kinds: Sequence[Kind] = ("mixture", "factor"), max_steps: int | None = None
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
    splits = [Split(estimates, generator) for _ in range(SPLITS)]
    tried: list[Trial] = []

    def attempt(start: Start, shrinkage: float) -> Trial:
        scores = curve(splits, start, shrinkage, max_steps=limit)
        best = int(np.argmin(scores))
        tried.append(Trial(start=start, shrinkage=shrinkage, steps=best * EVERY, gain=1 - scores[best] / scores[0]))
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
    estimates: Estimates, *, kinds: Sequence[Kind] = ("mixture", "factor")
) -> tuple[LatentModel, dict[str, Any]]:
    """The model that thinning chooses, refitted to the full tables, and everything that was decided on the way."""
    schema = estimates.schema
    margins = denoise_margins(estimates)
    choice = choose(estimates, kinds=kinds)
    fits = union_size(schema.n_levels, choice) if choice.steps else 0
    if choice.steps:
        targets = denoise_tables(estimates, margins.levels)
        model = fit_latent(targets, choice.shrinkage, choice.start, steps=choice.steps, fits=fits)
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
