"""Choosing between models on noisy tables alone, at no privacy cost.

Gaussian thinning: with h the noisy counts, sigma the known sd of their noise and z a fresh standard normal,
h + g sigma z and h - sigma z / g are independent and both unbiased. The first trains, the second judges. The seed is
fixed, so that a fit is a function of the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sklar.budget.plan import RULES
from sklar.draw.refine import refining_rounds, steady_pairs
from sklar.fitting import descent
from sklar.fitting.denoise import denoise_margins, denoise_tables, missed, relative_precision
from sklar.fitting.descent import CellWeights, Fit, Loss, Room, Start, Tied, fits_together, step_operations
from sklar.fitting.latent import KINDS, LatentModel, independent
from sklar.fitting.margins import Estimates, as_stored, crossed_tables, expected_noise, implied_counts, table_runs
from sklar.fitting.steps import attribute_of_contrast, contrast_levels, contrast_tables, contrasts
from sklar.kernel.cells import MANY_CELLS, Doubles, Floats
from sklar.machine.progress import SILENT, Progress
from sklar.machine.spill import room_for
from sklar.machine.threads import ahead, side_by_side, workers
from sklar.public.schema import Schema

SEED = 20_260_204
GAIN = 0.5
_STEPS = (GAIN, -1 / GAIN)
SPLITS = 2
# Steps between two judgments.
EVERY = 10
# A longer fit is worth its time as long as `WINDOW` steps take away more than this share of the error, and of the gain
# over independence. Every further step invents three-way structure that pairs cannot see.
WINDOW, WORTH = 100, 0.004
# How much of a fit's targets is shrunk; the rest is noisy. The first suits tables where much depends a little, the
# second those where few columns depend, or follow from each other: there larger tables are shrunk, too.
SHRINKAGES, CLEARLY = (0.4, 1.0), 0.005
# A gain over independence must be at least this many times the sd that it has by chance: a stricter test would lose
# dependence that pairs show.
SIGNIFICANT = 1.0
# Normalized steps learn noise as fast as dependence. Where the total variation to expect of noise in a two-way table is
# so many times `LOUD`, steps are damped by its square, and starts, of `START` there, are nearer to independence by its
# root, within these limits.
LOUD, MOST_DAMPING, LEAST_START, START = 0.06, 5.0, 0.3, 0.7
# Damping up to `SMALL` contrasts, and beyond, where most levels are rare, and learn the sooner with less of it.
DAMPING, WIDE_DAMPING = 0.01, 0.003
MAX_STEPS = 1200
# Components of a fit, so many times the contrasts times a power of that variation, within these limits, and one over
# the variation at least, up to so many; and of all fits that are united, which averages away three-way structure that
# each of them invents.
PER_CONTRAST, NOISE_POWER, COMPONENTS, MOST_COMPONENTS = 0.089, -0.75, (150, 400), 800
UNITED, LEAST_FITS = 1_600, 3
# Operations of a step, of one fit, and of all fits that are united.
MAX_STEP, MAX_RUN, MAX_OPERATIONS = 3e8, 2e12, 8e12
# Cells of two-way tables up to which a model holds what it misses of them.
MOST_MISSED = 1 << 24


def thin(estimates: Estimates, generator: np.random.Generator) -> tuple[Estimates, Estimates]:
    """Two independent sets of estimates of the same counts, with 1 + g^2 and 1 + 1 / g^2 times the variance."""
    cells, wider = estimates.cells, estimates.wider

    def drawn() -> Iterator[tuple[slice, Doubles]]:
        for first, last in table_runs(cells.pair_offsets):
            run = slice(int(cells.pair_offsets[first]), int(cells.pair_offsets[last]))
            noise = generator.standard_normal(run.stop - run.start)
            noise *= np.repeat(estimates.pair_sd[first:last], cells.pair_sizes[first:last])
            yield run, noise

    if estimates.crossed:
        # Tables follow from parities, so that a half has the noise of its own parities alone.
        ones = estimates.one_way_sd / np.sqrt(2.0) * generator.standard_normal(cells.n_attributes)
        odd = estimates.pair_sd * generator.standard_normal(cells.n_pairs)
        one_way = np.column_stack([-ones, ones]).ravel()
        runs: Iterable[tuple[slice, Doubles]] = [(slice(None), crossed_tables(cells, ones, odd, 0.0))]
    else:
        one_way = estimates.one_way_sd[cells.attribute_of_level] * generator.standard_normal(cells.n_levels)
        runs = drawn()
    pairs = [room_for(cells.n_cells, estimates.pairs.dtype) for _ in _STEPS]
    for run, noise in runs:
        for own, step in zip(pairs, _STEPS, strict=True):
            own[run] = estimates.pairs[run] + step * noise
    third = np.repeat(estimates.third_sd, np.concatenate([tables.sizes for tables in wider]) if wider else 1)
    third *= generator.standard_normal(third.size)
    train, held = (
        replace(
            estimates,
            one_way=estimates.one_way + step * one_way,
            one_way_sd=estimates.one_way_sd * np.sqrt(1 + step**2),
            pairs=own,
            pair_sd=estimates.pair_sd * np.sqrt(1 + step**2),
            third=estimates.third + step * third,
            third_sd=estimates.third_sd * np.sqrt(1 + step**2),
        )
        for own, step in zip(pairs, _STEPS, strict=True)
    )
    return train, held


class Split:
    """Targets from one half, and the other half as a judge."""

    def __init__(self, estimates: Estimates, generator: np.random.Generator, weights: CellWeights) -> None:
        cells = estimates.cells
        train, held = thin(estimates, generator)
        self.train, self.targets = train, denoise_tables(train, denoise_margins(train).levels)
        self.weights, self._held_three = weights, descent.three_way_loss(held)
        precision = self.targets.precision
        self._tied = None if estimates.ties is None else Tied(cells, estimates.ties)
        self._margins = contrast_levels(self.targets.levels, cells)
        self._margin_weights = descent.margin_weights(cells, precision).astype(np.float64)
        tables = held.pairs
        tables /= held.n_rows
        self._held = contrast_tables(tables, cells)
        # What each table says of the margins of its attributes, shape (d, m), and the rest of the errors' sum.
        implied = implied_counts(tables, cells)
        said = contrasts(implied.astype(np.float32), cells).astype(np.float64)
        each = (precision / cells.sizes)[attribute_of_contrast(cells)]
        self._said = (each * said).sum(axis=1)
        totals = 1 - np.add.reduceat(implied, cells.offsets[:-1], axis=0)
        self._rest = float((each * said**2).sum())
        self._rest += float((precision / np.outer(cells.sizes, cells.sizes) * totals**2).sum()) / 2
        self._kappa = float(np.mean(precision[cells.pairs] * (held.pair_sd / held.n_rows) ** 2))
        strips, contrasts_of_all = np.arange(0, len(self._held), descent.SMALL), max(len(self._held), 1)
        # Of very many tables some judge: all would take longer than the steps in between.
        share = min(1.0, EVERY * step_operations(cells, Start(components=1)) / contrasts_of_all**2)
        own = generator.permutation(strips)[: max(1, round(share * strips.size))]
        self._strips, self._per_strip = np.sort(own).tolist(), strips.size / max(own.size, 1)
        self._scale = 1.0
        alone = self._margins[:, None] if self._tied is None else np.repeat(self._margins[:, None], KINDS, axis=1)
        self._scale = self.score(alone, Room(cells, alone.shape[1]))[0]

    def score(self, found: Floats, room: Room) -> tuple[float, float]:
        """Weighted squared error of the held-out tables under these components, and the sd of its gain by chance.

        Both relative to the error of independence. With P the predicted tables, I independence, V the held-out ones
        with noise sigma, and w = kappa / sigma^2 the weights, the noise in sum w (P - V)^2 - sum w (I - V)^2 is
        -2 sum w (P - I) (V - E V), of variance 4 kappa sum w (P - I)^2. `found` are contrasts, shape (d - m, D).
        """
        # Tables without any noise may be independent to the last digit.
        error, distance = float(np.finfo(np.float32).tiny), 0.0
        for first in self._strips:
            last = min(first + descent.SMALL, len(found))
            shape = last - first, len(found) - first
            strip = room.strip[: shape[0] * shape[1]].reshape(shape)
            if self._tied is None:
                predicted = np.matmul(found[first:last], found[first:].T, out=strip)
                predicted *= np.float32(1 / found.shape[1])
            else:
                predicted = self._tied.predict(found, slice(first, last))[:, first:]
            weight, alone = (
                self.weights.rows(first, last)[:, first:],
                np.outer(self._margins[first:last], self._margins[first:]),
            )
            # What lies among the strip's own rows is there twice: all arrays are symmetric.
            apart, moved = (
                float(each.sum(dtype=np.float64)) - float(each[:, : last - first].sum(dtype=np.float64)) / 2
                for each in (weight * (predicted - other) ** 2 for other in (self._held[first:last, first:], alone))
            )
            error += self._per_strip * apart
            # A sum that is taken f times has f^2 times its variance.
            distance += self._per_strip**2 * moved
        margins = found.mean(axis=1, dtype=np.float64)
        error += float(self._margin_weights @ margins**2 - 2 * self._said @ margins) + self._rest
        distance += float(self._margin_weights @ (margins - self._margins) ** 2)
        if self._held_three is not None:
            more = self._held_three.score(found, self._margins)
            error += more[0]
            distance += more[1]
        return error / self._scale, 2 * float(np.sqrt(self._kappa * distance)) / self._scale


def follow(
    split: Split, start: Start, *, max_steps: int, shrinkage: float = SHRINKAGES[0], progress: Progress = SILENT
) -> Doubles:
    """Held-out error and its gain's sd by chance every `EVERY` steps, first independence, while steps are worth it."""
    three = descent.three_way_loss(split.train, shrunk=shrinkage == 1)
    loss = Loss(split.targets, shrinkage, split.weights, three, split.train.ties)
    fit, spare = Fit(loss, start), workers() > SPLITS
    room = Room(split.targets.cells, start.components) if spare else fit.room

    def states() -> Iterator[Floats]:
        for _ in range(0, max_steps, EVERY):
            fit.advance(EVERY)
            progress.advance(EVERY)
            yield fit.contrasts.copy() if spare else fit.contrasts

    rows, least, back = [(1.0, 0.0)], [np.inf], WINDOW // EVERY
    for found in ahead(states()) if spare else states():
        rows.append(split.score(found, room))
        least.append(min(least[-1], rows[-1][0]))
        if len(rows) > back and least[-1 - back] - least[-1] <= worth(least[-1]):
            break
    return np.array(rows)


def worth(error: float) -> float:
    """How much of a held-out error `WINDOW` steps must take away."""
    return WORTH * max(0.0, min(1 - error, error))


def stopping(curve: Doubles) -> int:
    """The first row of a curve that is about as good as the best whose gain is significant; else that of no steps."""
    gains = np.where(1 - curve[:, 0] > SIGNIFICANT * curve[:, 1], 1 - curve[:, 0], 0.0)
    return int(np.argmax(gains >= gains.max() - worth(1 - gains.max()) / 4))


def choose_steps(
    estimates: Estimates,
    start: Start,
    seeds: Sequence[int | np.random.SeedSequence],
    most: int,
    progress: Progress = SILENT,
    shrinkages: Sequence[float] = SHRINKAGES[:1],
) -> tuple[int, float, float]:
    """How long to fit, the share of held-out error that this takes away, and the shrinkage.

    As many splits as seeds judge, by the mean of their curves as far as all go: the noise of single splits averages out
    before anything is chosen. The first shrinkage stays where another takes away less than `CLEARLY` more of the error.
    """
    weights = CellWeights(estimates.cells, relative_precision(estimates.cells, estimates.pair_sd))

    def judged(number: int) -> list[Doubles]:
        split = Split(estimates, np.random.Generator(np.random.SFC64(seeds[number])), weights)
        own = replace(start, seed=start.seed + number)

        def curve(shrinkage: float) -> Doubles:
            return follow(split, own, max_steps=most, shrinkage=shrinkage, progress=progress)

        # Very many cells are held a few times in each run; then products of matrices keep all threads at work.
        if estimates.cells.n_cells > MANY_CELLS:
            return list(map(curve, shrinkages))
        return side_by_side(curve, shrinkages, threads=fits_together(estimates.cells, start, 1)[1])

    found: list[tuple[int, float, float]] = []
    for shrinkage, curves in zip(shrinkages, zip(*map(judged, range(len(seeds))), strict=True), strict=True):
        curve = np.mean([each[: min(map(len, curves))] for each in curves], axis=0)
        found.append((EVERY * (end := stopping(curve)), float(1 - curve[end, 0]), shrinkage))
    best = max(found, key=lambda each: each[1])
    best = best if 1 - best[1] < (1 - CLEARLY) * (1 - found[0][1]) else found[0]
    return best if best[0] else (0, 0.0, SHRINKAGES[0])


def starting(estimates: Estimates) -> tuple[Start, int]:
    """How a fit starts, with fewer components where steps take long, and how many fits to unite, by the known noise."""
    cells, noise = estimates.cells, max(expected_noise(estimates), 1e-9)
    n_contrasts, times = cells.n_levels - cells.n_attributes, noise / LOUD
    affordable = MAX_STEP / step_operations(cells, Start(components=1), estimates.wider)
    wanted = max(np.clip(PER_CONTRAST * n_contrasts * noise**NOISE_POWER, *COMPONENTS), min(1 / noise, MOST_COMPONENTS))
    components = int(max(min(wanted, affordable), COMPONENTS[0]))
    components -= components % KINDS if estimates.ties else 0
    start = Start(
        components=components,
        sd=START * float(np.clip(times**-0.5, LEAST_START, 1 / START)),
        damping=(DAMPING if n_contrasts <= descent.SMALL else WIDE_DAMPING)
        * float(np.clip(times**2, 1.0, MOST_DAMPING)),
    )
    return start, max(UNITED // components, LEAST_FITS)


def step_limit(estimates: Estimates, start: Start) -> int:
    """The most steps worth trying: more where noise is small, fewer where they take long, at least 100."""
    if not estimates.pair_sd.size:
        return 0
    noise = float(np.median(estimates.pair_sd)) / estimates.n_rows
    wanted = np.clip(MAX_STEPS * np.sqrt(1e-3 / max(noise, 1e-12)), MAX_STEPS, 4 * MAX_STEPS)
    return int(min(wanted, max(MAX_RUN / step_operations(estimates.cells, start, estimates.wider), 100)))


def fit_auto(
    estimates: Estimates, schema: Schema, *, progress: Progress = SILENT
) -> tuple[LatentModel, dict[str, Any]]:
    """The model that thinning chooses, refitted to the full tables, and everything that was decided on the way."""
    margins, cells = denoise_margins(estimates), estimates.cells
    (start, fits), steps, gain, shrinkage = starting(estimates), 0, 0.0, SHRINKAGES[0]
    if cells.n_attributes > 1:
        progress.stage("choose", unit="steps")
        seeds = np.random.SeedSequence(SEED).spawn(SPLITS)
        most = step_limit(estimates, start)
        steps, gain, shrinkage = choose_steps(estimates, start, seeds, most, progress, SHRINKAGES)
    if steps:
        affordable = MAX_OPERATIONS / max(step_operations(cells, start, estimates.wider) * steps, 1.0)
        fits = int(np.clip(affordable, 2, fits))
        progress.stage("fit", total=fits * steps, unit="steps")
        chosen: dict[str, Any] = {"steps": steps, "fits": fits, "shrinkage": shrinkage}
        model = fit_steps(estimates, schema, margins.levels, start, **chosen, progress=progress)
    else:
        model = replace(independent(schema, margins.levels), ties=tied_in(estimates))
    return model, {
        "kind": "mixture" if steps else "independence",
        "steps": steps,
        "components": start.components if steps else 1,
        # A place in the file that nothing takes.
        "rank": None,
        "fits": fits if steps else 0,
        "shrinkage": shrinkage,
        "rules": RULES,
        "gain_over_independence": gain,
        "priors": {name: prior for name, prior in zip(schema.names, margins.priors, strict=True) if prior != "none"},
    }


def fit_steps(
    estimates: Estimates,
    schema: Schema,
    levels: Doubles,
    start: Start,
    *,
    steps: int,
    fits: int,
    shrinkage: float = SHRINKAGES[0],
    progress: Progress = SILENT,
) -> LatentModel:
    """The union of so many fits to all tables, with these margins, each of so many steps from a random start."""
    targets = denoise_tables(estimates, levels)
    weights, three = (
        CellWeights(targets.cells, targets.precision),
        descent.three_way_loss(estimates, shrunk=shrinkage == 1),
    )
    loss = Loss(targets, shrinkage, weights, three, estimates.ties)
    together, threads = fits_together(targets.cells, start, fits)

    def run(first: int) -> Floats:
        own = min(together, fits - first)
        fit = Fit(loss, replace(start, seed=start.seed + first), fits=own, until=steps)
        for done in range(0, steps, EVERY):
            some = min(EVERY, steps - done)
            fit.advance(some)
            progress.advance(own * some)
        return fit.probabilities.T

    parts = side_by_side(run, range(0, fits, together), threads=threads)
    probabilities = np.concatenate(parts)
    return LatentModel(schema=schema, probabilities=probabilities, fits=fits, ties=tied_in(estimates))


def tied_in(estimates: Estimates) -> tuple[int, ...]:
    """Of which table each attribute is, where there are several."""
    return () if estimates.ties is None else estimates.ties.of


def refined(model: LatentModel, estimates: Estimates, bits: int) -> LatentModel:
    """The model as a file holds it, with as many rounds of exchanges as a table of its size affords: a public rule."""
    rounds, matched = refining_rounds(estimates.n_rows, model.schema.cells)
    return completed(as_stored(replace(model, rounds=rounds, matched=matched), bits), estimates, bits)


def completed(model: LatentModel, estimates: Estimates, bits: int) -> LatentModel:
    """The model with what noisy tables say beyond it, where components exchange values."""
    if not model.rounds or model.n_components == 1 or model.schema.cells.n_cells > MOST_MISSED:
        return replace(model, missed=model.missed[:0])
    predicted = model.schema.cells.flat(steady_pairs(model.components()))
    return as_stored(replace(model, missed=missed(estimates, model.margins(), predicted)), bits)
