"""Choosing between models on noisy tables alone, at no privacy cost.

Gaussian thinning: with h the noisy counts, sigma the known sd of their noise and z a fresh standard normal,
h + g sigma z and h - sigma z / g are independent and both unbiased. The first trains, the second judges. It is
post-processing of what was released already, with public randomness from a fixed seed, so that a fit is a function of
the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from sklar.fitting.contrasts import attribute_of_contrast, contrast_levels, contrast_tables, contrasts
from sklar.fitting.denoise import denoise_margins, denoise_tables, relative_precision
from sklar.fitting.descent import (
    Fit,
    LatentKind,
    Loss,
    Room,
    Start,
    cell_weights,
    margin_weights,
    predicted_strips,
)
from sklar.fitting.latent import LatentModel, fit_latent, independent
from sklar.fitting.margins import Estimates, implied_counts
from sklar.kernel.cells import Cells
from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import side_by_side
from sklar.public.schema import Schema

SEED = 20_260_204
GAIN = 0.5
SPLITS = 2
EVERY = 10
PATIENCE = 60
HOPE = 4.0
# What a model may lose again of its gain over independence before it is taken to overfit.
LOSS = 0.05
SHRINKAGES = (0.4, 0.0)
SDS = (1.0, 0.5)
PREFERENCE = 0.01
# A gain over independence must be at least this many times the sd that it has by chance.
SIGNIFICANT = 2.0
MAX_STEPS = 1200
COMPONENTS: Mapping[LatentKind, int] = MappingProxyType({"mixture": 150, "factor": 500})
FITS: Mapping[LatentKind, int] = MappingProxyType({"mixture": 8, "factor": 2})
# Operations of a step, of one fit, and of all fits that are united.
MAX_STEP = 1e9
MAX_RUN = 2e12
MAX_OPERATIONS = 8e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One candidate: its best number of steps, and the share of independence's held-out error that it takes away.

    For a candidate that was given up, both are as far as it came.
    """

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


def thin(estimates: Estimates, generator: np.random.Generator) -> tuple[Estimates, Estimates]:
    """Two independent sets of estimates of the same counts: one to train on, one to judge by.

    Their variances are 1 + g^2 and 1 + 1 / g^2 times the original's, with the gain g = `GAIN`.
    """
    cells = estimates.cells
    one_way = estimates.one_way_sd[cells.attribute_of_level] * generator.standard_normal(cells.n_levels)
    pairs = generator.standard_normal(cells.n_cells)
    pairs *= np.repeat(estimates.pair_sd, cells.pair_sizes)

    def half(step: float) -> Estimates:
        wider = np.sqrt(1 + step**2)
        return replace(
            estimates,
            one_way=estimates.one_way + step * one_way,
            one_way_sd=estimates.one_way_sd * wider,
            pairs=estimates.pairs + step * pairs,
            pair_sd=estimates.pair_sd * wider,
        )

    return half(GAIN), half(-1 / GAIN)


class Split:
    """Targets from one half, and the other half as a judge. `weights` are those of `cell_weights`."""

    def __init__(self, estimates: Estimates, generator: np.random.Generator, weights: NDArray[np.float32]) -> None:
        cells = estimates.cells
        train, held = thin(estimates, generator)
        self.targets = denoise_tables(train, denoise_margins(train).levels)
        self.weights = weights
        precision = self.targets.precision
        self._margins = contrast_levels(self.targets.levels, cells)
        self._margin_weights = margin_weights(cells, precision).astype(np.float64)
        tables = held.pairs / held.n_rows
        self._held = contrast_tables(tables.astype(np.float32), cells)
        # What each table says of the margins of its attributes, shape (d, m), and the rest of `_error`'s sum.
        implied = implied_counts(tables, cells)
        said = contrasts(implied.astype(np.float32), cells).astype(np.float64)
        each = (precision / cells.sizes)[attribute_of_contrast(cells)]
        self._said = (each * said).sum(axis=1)
        totals = 1 - np.add.reduceat(implied, cells.offsets[:-1], axis=0)
        self._rest = float((each * said**2).sum())
        self._rest += float((precision / np.outer(cells.sizes, cells.sizes) * totals**2).sum()) / 2
        # precision is sigma^-2 of the training half over its mean.
        self._kappa = float(np.mean(precision[cells.pairs] * (held.pair_sd / held.n_rows) ** 2))
        self._scale = 1.0
        self._scale = self.score(self._margins[:, None], Room(cells, 1))[0]

    def score(self, found: NDArray[np.float32], room: Room) -> tuple[float, float]:
        """Weighted squared error of the held-out tables under these components, and the sd of its gain by chance.

        Both relative to the error of independence. With P the predicted tables, I independence, V the held-out ones
        with noise sigma, and w = kappa / sigma^2 the weights, the noise in sum w (P - V)^2 - sum w (I - V)^2 is
        -2 sum w (P - I) (V - E V), of variance 4 kappa sum w (P - I)^2. `found` are contrasts, shape (d - m, D).
        """
        # Tables without any noise may be independent to the last digit.
        error, distance = float(np.finfo(np.float32).tiny), 0.0
        for first, _, predicted in predicted_strips(found, room):
            scale = np.float32(1 / found.shape[1])
            parts = _error(predicted, self._held, self.weights, self._margins, first, scale)
            error += parts[0]
            distance += parts[1]
        margins = found.mean(axis=1, dtype=np.float64)
        error += float(self._margin_weights @ margins**2 - 2 * self._said @ margins) + self._rest
        distance += float(self._margin_weights @ (margins - self._margins) ** 2)
        return error / self._scale, 2 * float(np.sqrt(self._kappa * distance)) / self._scale


@numba.njit(
    "UniTuple(float64, 2)(float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[::1], int64, float32)",
    cache=True,
    nogil=True,
    fastmath={"contract", "reassoc"},
)
def _error(
    predicted: NDArray[np.float32],
    held: NDArray[np.float32],
    weights: NDArray[np.float32],
    margins: NDArray[np.float32],
    first: int,
    scale: np.float32,
) -> tuple[float, float]:
    """Weighted squared distances of a strip of predictions from held-out tables and from independence."""
    total, moved = 0.0, 0.0
    for i in range(predicted.shape[0]):
        seen, weight, level = held[first + i, first:], weights[first + i, first:], margins[first + i]
        in_row, moved_in_row = np.float32(0.0), np.float32(0.0)
        # A strip begins with its own rows: each pair counts once.
        for j in range(i + 1, predicted.shape[1]):
            value = scale * predicted[i, j]
            missed = value - seen[j]
            away = value - level * margins[first + j]
            in_row += weight[j] * missed * missed
            moved_in_row += weight[j] * away * away
        total += float(in_row)
        moved += float(moved_in_row)
    return total, moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """One candidate on one split, and the error that it must come below to be of use."""

    split: int
    start: Start
    shrinkage: float
    rival: float = np.inf


def follow(race: Race, splits: Sequence[Split], *, max_steps: int, progress: Progress = SILENT) -> NDArray[np.float64]:
    """Held-out error and the sd of its gain by chance every `EVERY` steps, shape (evaluations, 2).

    The first row is independence, whose error is 1. Stops when the error has not fallen for `PATIENCE` steps, when more
    than `LOSS` of what it gained is lost again, or when it would stay above the rival's even if it fell `HOPE` times as
    much again as in the last `PATIENCE` steps.
    """
    split = splits[race.split]
    fit = Fit(
        Loss(split.targets, race.shrinkage, split.weights), replace(race.start, seed=race.start.seed + race.split)
    )
    rows, best, best_at, back = [(1.0, 0.0)], np.inf, 0, PATIENCE // EVERY
    while (len(rows) - 1) * EVERY < max_steps:
        fit.advance(EVERY)
        rows.append(split.score(fit.contrasts, fit.room))
        progress.advance(EVERY)
        error = rows[-1][0]
        if error < best:
            best, best_at = error, len(rows)
        elif len(rows) - best_at >= back or error - best > LOSS * (1 - best) > 0:
            break
        if len(rows) > 2 * back and error - HOPE * max(rows[-1 - back][0] - error, 0.0) > race.rival:
            break
    return np.array(rows)


def choose(
    estimates: Estimates,
    *,
    kinds: Sequence[LatentKind] = ("mixture", "factor"),
    progress: Progress = SILENT,
) -> Choice:
    """The start, shrinkage and number of steps that predict held-out tables best; no steps where independence does.

    Shrinkages are compared first, then starts and parametrizations. Another parametrization is tried on the first
    split, and on the others only when it does better there. A smaller start must be better by more than `PREFERENCE` of
    what the model gains over independence: held-out two-way tables cannot see the three-way structure that it loses.
    """
    first = starting(estimates.cells, kinds[0])
    if estimates.cells.n_attributes < 2:
        return Choice(start=first, shrinkage=SHRINKAGES[0], steps=0, gain=0.0, tried=())
    progress.stage("choose", unit="steps")
    weights = cell_weights(estimates.cells, relative_precision(estimates.cells, estimates.pair_sd))
    seeds = np.random.SeedSequence(SEED).spawn(SPLITS)
    splits = side_by_side(lambda seed: Split(estimates, np.random.Generator(np.random.SFC64(seed)), weights), seeds)

    def run(races: Sequence[Race]) -> dict[Race, NDArray[np.float64]]:
        """All of them side by side, the longest first."""

        def one(race: Race) -> NDArray[np.float64]:
            return follow(race, splits, max_steps=step_limit(estimates, race.start), progress=progress)

        races = sorted(races, key=lambda race: -race.start.components)
        return dict(zip(races, side_by_side(one, races), strict=True))

    def judge(found: Sequence[NDArray[np.float64]], race: Race) -> Trial:
        best = [int(np.argmin(curve[:, 0])) for curve in found]
        errors, chance = np.mean([curve[at] for curve, at in zip(found, best, strict=True)], axis=0)
        steps = EVERY * round(float(np.mean(best)))
        if 1 - errors <= SIGNIFICANT * chance:
            steps, errors = 0, 1.0
        return Trial(start=race.start, shrinkage=race.shrinkage, steps=steps, gain=float(1 - errors))

    def on_all(race: Race) -> list[Race]:
        return [replace(race, split=split) for split in range(SPLITS)]

    shrinkages = [Race(split=0, start=first, shrinkage=shrinkage) for shrinkage in SHRINKAGES]
    curves = run([each for race in shrinkages for each in on_all(race)])
    tried = [judge([curves[each] for each in on_all(race)], race) for race in shrinkages]
    chosen = max(tried, key=lambda trial: trial.gain)
    incumbent = shrinkages[tried.index(chosen)]

    def against(race: Race, needed: float) -> Race:
        """The same, given up when it will not be better than the incumbent on its split by this share of the gain."""
        error = float(curves[replace(incumbent, split=race.split)][:, 0].min())
        return replace(race, rival=error - needed * (1 - error))

    smaller = [replace(incumbent, start=replace(first, sd=sd)) for sd in SDS[1:]]
    others = [replace(incumbent, start=starting(estimates.cells, kind)) for kind in kinds[1:]]
    ran = {race: [against(each, PREFERENCE) for each in on_all(race)] for race in smaller}
    ran |= {race: [against(race, 0.0)] for race in others}
    curves |= run([each for races in ran.values() for each in races])
    beaten = [curve[:, 0].min() for race, curve in curves.items() if race.split == 0 and race.start.kind == first.kind]
    for race in others:
        if curves[ran[race][0]][:, 0].min() < min(beaten):
            ran[race] += on_all(race)[1:]
    curves |= run([each for race in others for each in ran[race][1:]])
    for race, races in ran.items():
        tried.append(judge([curves[each] for each in races], race))
        needed = PREFERENCE if race in smaller else 0.0
        if len(races) == SPLITS and tried[-1].gain > (1 + needed) * chosen.gain:
            chosen = tried[-1]
    return Choice(
        start=chosen.start, shrinkage=chosen.shrinkage, steps=chosen.steps, gain=chosen.gain, tried=tuple(tried)
    )


def starting(cells: Cells, kind: LatentKind) -> Start:
    """How a kind of model starts. A factor model has fewer points where a step would take long, but never few."""
    start = Start(kind=kind, components=COMPONENTS[kind])
    affordable = int(MAX_STEP / step_operations(cells, replace(start, components=1)))
    return replace(start, components=max(min(start.components, affordable), COMPONENTS["mixture"]))


def step_limit(estimates: Estimates, start: Start) -> int:
    """The most steps worth trying: 1,200, and more where the signal may be far above the noise.

    A wide table gets fewer, so that one fit takes at most `MAX_RUN` operations, but at least 100 steps.
    """
    if not estimates.pair_sd.size:
        return 0
    noise = float(np.median(estimates.pair_sd)) / estimates.n_rows
    wanted = np.clip(MAX_STEPS * np.sqrt(1e-3 / max(noise, 1e-12)), MAX_STEPS, 4 * MAX_STEPS)
    return int(min(wanted, max(MAX_RUN / step_operations(estimates.cells, start), 100)))


def step_operations(cells: Cells, start: Start) -> float:
    """Multiplications and additions in one step of a fit; see `descent`."""
    return max(3.0 * start.components * (cells.n_levels - cells.n_attributes) ** 2, 1.0)


def fit_auto(
    estimates: Estimates,
    schema: Schema,
    *,
    kinds: Sequence[LatentKind] = ("mixture", "factor"),
    progress: Progress = SILENT,
) -> tuple[LatentModel, dict[str, Any]]:
    """The model that thinning chooses, refitted to the full tables, and everything that was decided on the way."""
    margins = denoise_margins(estimates)
    choice = choose(estimates, kinds=kinds, progress=progress)
    fits = union_size(estimates.cells, choice) if choice.steps else 0
    if choice.steps:
        progress.stage("fit", total=fits * choice.steps, unit="steps")
        targets = denoise_tables(estimates, margins.levels)
        model = fit_latent(
            targets, schema, choice.shrinkage, choice.start, steps=choice.steps, fits=fits, progress=progress
        )
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


def union_size(cells: Cells, choice: Choice) -> int:
    """How many fits to unite: as many as `FITS` says, fewer where they would take minutes, at least 2."""
    operations = step_operations(cells, choice.start) * choice.steps
    return int(np.clip(MAX_OPERATIONS / max(operations, 1.0), 2, FITS[choice.start.kind]))
