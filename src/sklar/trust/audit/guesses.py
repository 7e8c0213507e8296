"""Attacks that guess which of two neighbors was released, as often as luck alone cannot: black box, thousands of runs.

The guess is the optimal one for the worst change, so that what it measures comes close to what is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import bdtrc, betainc, betaincinv, ndtr, ndtri, rel_entr

from sklar.budget.method import PAPER
from sklar.kernel.theorems import Budget, gdp_delta
from sklar.public.schema import Attribute, Schema
from sklar.release import measure
from sklar.trust.audit.comparison import ALPHA, Comparison, Effort, compare
from sklar.trust.audit.inventions import (
    PURE,
    Release,
    exactly,
    frame_of,
    release_once,
    release_twice,
    whole_numbers,
    write,
)
from sklar.trust.audit.sensitivity import people_of

# How often a flaw of the size that `Comparison.sees` states is found.
_OFTEN = 0.9
# One-sided, of the figure for tightness.
_CONFIDENCE = 0.95
# Where a guess tells most: mu about 2.5, and noise far above the blur of 4 units of variance, hence many tables.
_LOOSE = Budget(epsilon=18.0)
_BITS = whole_numbers(*[2] * 20)
# Rows of the person who is replaced.
_ROWS = 8
TOWN = Schema(
    name="audit", attributes=(Attribute(name="town", kind="categorical", other=True, domain="private", at_most=1),)
)

Scores = tuple[NDArray[np.float64], NDArray[np.float64]]


def check_guesses(folder: Path, effort: Effort) -> Iterator[Comparison]:
    """Guess on the whole release, of all tables at once, and of both stages; and how tight the guess is."""
    scores, mu = play(release_once, _BITS, _LOOSE, effort.once, folder)
    yield judge_guesses("210 tables measured at once", _LOOSE, scores, mu)
    yield judge_tightness("210 tables of 3 rows", _LOOSE, scores)
    # Of attributes with two levels, parities are measured.
    for words, levels in (("210 parities, measured twice", 2), ("400 tables measured in two stages", 3)):
        scores, mu = play(release_twice, whole_numbers(*[levels] * 20), _LOOSE, effort.twice, folder)
        yield judge_guesses(words, _LOOSE, scores, mu)


def check_ratio(_: Path, effort: Effort) -> Iterator[Comparison]:
    """Guess on one table of Laplace noise, where the claim is a ratio of chances."""
    yield judge_ratio(PURE, play(release_once, whole_numbers(5), PURE, effort.ratio)[0], shifts=2)


def check_person(folder: Path, effort: Effort) -> Iterator[Comparison]:
    """Guess on the whole release where one person has many rows, all in one cell."""
    yield guess_person(people_of(_BITS, "rows", _ROWS), effort.person, folder)


def guess_person(schema: Schema, trials: int, folder: Path) -> Comparison:
    """Guess in which of two cells of every table all rows of one person stand."""
    ids, tables = pl.Series([0] * _ROWS + [1, 2]), []
    for code in (0, 1):
        codes = np.zeros((schema.n_attributes, len(ids)), dtype=np.int32)
        codes[:, :_ROWS] = code
        tables.append(write(frame_of(schema, codes).with_columns(id=ids), folder / f"person{code}.parquet"))
    scores, mu = play_between(release_once, schema, _LOOSE, trials, tables)
    return judge_guesses(f"210 tables, a person of {_ROWS} rows replaced", _LOOSE, scores, mu)


def check_choice(folder: Path, effort: Effort) -> Iterator[Comparison]:
    """Two towns, one of which is listed: one row more must not decide which."""
    scores, budget = [], Budget(epsilon=1.0)
    for many, few in (("Bern", "Rome"), ("Rome", "Bern")):
        path = write(pl.DataFrame({"town": [many] * 2_001 + [few] * 2_000}), folder / f"{many}.csv")
        found = [measure(path, TOWN, budget, method=PAPER).schema for _ in range(effort.searches)]
        scores.append(np.array([1.0 if each.attribute("town").values == ("Bern",) else -1.0 for each in found]))
    yield judge_guesses("the only town that is listed", budget, (scores[0], scores[1]), 0.1)


def play(
    release: Release, schema: Schema, budget: Budget, trials: int, folder: Path | None = None
) -> tuple[Scores, float]:
    """The log likelihood ratio of `trials` releases of D and of D', and the mu that noise as planned gives.

    D' differs from D in one row: in every attribute, or, for parities, in as many as cost most.
    """
    frames = [_changed(schema, changed) for changed in (0, _worst_change(release, schema, budget))]
    if folder is None:
        return play_between(release, schema, budget, trials, frames)
    paths = [write(each, folder / f"play{number}.parquet") for number, each in enumerate(frames)]
    return play_between(release, schema, budget, trials, paths)


def _changed(schema: Schema, changed: int) -> pl.DataFrame:
    """Three rows, of which one has the last level in so many attributes."""
    codes = np.zeros((schema.n_attributes, 3), dtype=np.int32)
    codes[:changed, 0] = schema.sizes[:changed] - 1
    return frame_of(schema, codes)


def _worst_change(release: Release, schema: Schema, budget: Budget) -> int:
    """How many attributes of a row must change to cost most: all of them, unless parities are measured."""
    if schema.n_levels > 2 * schema.n_attributes:
        return schema.n_attributes
    exact, scales = exactly(release), release(_changed(schema, 0), schema, budget).scales
    frames = [_changed(schema, changed) for changed in range(schema.n_attributes + 1)]
    start, *ends = [exact(frame, schema, budget).cells[: scales.size] for frame in frames]
    return 1 + int(np.argmax([np.sum(((end - start) / scales) ** 2) for end in ends]))


def play_between(
    release: Release, schema: Schema, budget: Budget, trials: int, tables: Sequence[object]
) -> tuple[Scores, float]:
    """The log likelihood ratio of releases of two tables, and the mu between them."""
    shown = release(tables[0], schema, budget)
    means = [exactly(release)(table, schema, budget).cells[: shown.cells.size] for table in tables]
    differ = np.flatnonzero(means[0] != means[1])
    gap, centre = (means[0] - means[1])[differ], means[0][differ]

    def score(table: object) -> float:
        drawn = release(table, schema, budget)
        x, scale = drawn.cells[differ] - centre, drawn.scales[differ]
        if budget.mechanism == "gaussian":
            return float(np.sum(((x + gap) ** 2 - x**2) / (2 * scale**2)))
        return float(np.sum((np.abs(x + gap) - np.abs(x)) / scale))

    scales = shown.scales[differ]
    scores = tuple(np.array([score(table) for _ in range(trials)]) for table in tables)
    return (scores[0], scores[1]), math.sqrt(float(np.sum((gap / scales) ** 2)))


def judge_guesses(words: str, budget: Budget, scores: Scores, mu: float) -> Comparison:
    """Guess D where the log likelihood ratio is positive; right guesses against the claimed curve.

    The claim is mu-GDP: no guess is right more often than Phi(mu/2), on average over D and D' (Dong, Roth and Su 2022),
    which is the trade-off curve at epsilon = 0: TPR - FPR <= 2 Phi(mu/2) - 1. The guess is the optimal one and its
    threshold is fixed before, so all runs count. Right guesses are a sum of independent coins whose mean chance is at
    most that; its tail is below the binomial's (Hoeffding 1956, theorem 4), so Clopper and Pearson's bound is valid.
    `mu` is what noise as planned gives; it serves to state the power.
    """
    runs = sum(part.size for part in scores)
    right = int(np.sum(scores[0] > 0) + np.sum(scores[1] <= 0))
    chance = float(ndtr(claimed_mu(budget) / 2))
    low = float(betaincinv(right, runs - right + 1, ALPHA)) if right else 0.0
    # The fewest right guesses that would have failed, the chance that brings them 9 times in 10, the noise that does.
    counts = np.arange(1, runs + 1)
    failing = counts[betainc(counts, runs - counts + 1, chance) < ALPHA]
    sees = "The runs are too few to see anything."
    if failing.size:
        likely = float(betaincinv(failing[0], runs - failing[0] + 1, _OFTEN))
        sees = f"It sees noise below {mu / (2 * float(ndtri(likely))):.0%} of its scale, 9 times in 10."
    return compare(
        "whole release",
        f"{runs:,} releases of two neighbors ({words}): guess which it was, by the best of all guesses.",
        f"{right / runs:.1%} of the guesses are right; as claimed, at most {chance:.1%} can be, but for luck.",
        sees,
        (chance, right / runs),
        passed=low <= chance,
        trials=runs,
        p_value=float(bdtrc(right - 1, runs, chance)) if right else 1.0,
    )


def judge_tightness(words: str, budget: Budget, scores: Scores) -> Comparison:
    """The mu that the runs prove, beside the claimed one.

    No attack on a mu-GDP release has a curve of right over false alarms above the Gaussian one, so that the area under
    it is at most Phi(mu / sqrt(2)). The area is estimated by pairs (Mann and Whitney), its error by placements (DeLong,
    DeLong and Clarke-Pearson 1988): a lower bound on mu, with the stated confidence, for many runs. Whether it fails is
    decided by a bound that holds for any number: the estimate is a mean of means of n independent pairs, so it reaches
    a with a chance of at most exp(-n KL(a, area)) (Hoeffding 1963).
    """
    first, second = (np.sort(part) for part in scores)
    above = np.searchsorted(second, first) / second.size
    below = 1 - np.searchsorted(first, second) / first.size
    area = float(above.mean())
    error = math.sqrt(float(above.var(ddof=1)) / first.size + float(below.var(ddof=1)) / second.size)
    claimed = claimed_mu(budget)
    lower = math.sqrt(2) * float(ndtri(np.clip(area + ndtri(1 - _CONFIDENCE) * error, 0.5, 1 - 1e-12)))
    most = float(ndtr(claimed / math.sqrt(2)))
    apart = float(rel_entr(area, most) + rel_entr(1 - area, 1 - most)) if area > most else 0.0
    return compare(
        "tightness",
        f"the same {first.size + second.size:,} releases ({words}): how much of the claim the attack reaches.",
        f"It proves mu = {lower:.3f} of the claimed {claimed:.3f} ({lower / claimed:.0%}), with "
        f"{_CONFIDENCE:.0%} confidence.",
        "The closer to 100%, the smaller a flaw can be that it does not see.",
        (claimed, lower),
        passed=min(first.size, second.size) * apart <= -math.log(ALPHA),
        trials=first.size + second.size,
    )


def judge_ratio(budget: Budget, scores: Scores, shifts: int) -> Comparison:
    """The largest log((TPR - delta) / FPR) against epsilon.

    The threshold is chosen on one half of the runs, the bounds (Clopper and Pearson) are of the other half.
    """
    half = scores[0].size // 2
    candidates = np.unique(np.concatenate([part[:half] for part in scores]))
    hits = [np.mean(part[:half, None] >= candidates[None, :], axis=0) for part in scores]
    # Add a few imaginary runs to both, so that a threshold that nothing crossed is not taken for a proof.
    gain = np.log((hits[0] + 20 / half) / (hits[1] + 20 / half)) * (hits[0] > 0.02)
    threshold = candidates[np.argmax(gain)]
    rest = scores[0].size - half
    delta = 0.0 if budget.composition == "basic" else budget.delta

    def bound(true: int, false: int) -> float:
        low = float(betaincinv(true, rest - true + 1, ALPHA / 2)) if true > 0 else 0.0
        high = float(betaincinv(false + 1, rest - false, 1 - ALPHA / 2)) if false < rest else 1.0
        return max(math.log(max(low - delta, 1e-300) / high), 0.0)

    def unlucky(epsilon: float) -> float:
        """The bound that all but one run in ten exceed when this is the true epsilon, spread over the shifts."""
        up = 1 / (1 + math.exp(-epsilon / shifts))
        true, false = up**shifts, (1 - up) ** shifts
        spread = [1.645 * math.sqrt(rest * chance * (1 - chance)) for chance in (true, false)]
        return bound(int(rest * true - spread[0]), min(int(rest * false + spread[1]) + 1, rest))

    steps = np.arange(1.0, 10.0, 0.05) * budget.epsilon
    seen = next((epsilon for epsilon in steps if unlucky(epsilon) > budget.epsilon), math.inf)
    measured = bound(*(int(np.sum(part[half:] >= threshold)) for part in scores))
    return compare(
        "one table",
        f"{2 * scores[0].size:,} releases of two neighbors, one table of Laplace noise: guess which it was.",
        f"The guesses prove epsilon = {measured:.2f}, {budget.epsilon:g} is claimed.",
        f"It sees epsilon above {seen:.2f}, 9 times in 10.",
        (budget.epsilon, measured),
        trials=2 * scores[0].size,
    )


def claimed_mu(budget: Budget) -> float:
    """The largest mu whose curve passes below (epsilon, delta)."""
    low, high = 1e-9, 100.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if gdp_delta(budget.epsilon, middle) <= budget.delta else (low, middle)
    return high
