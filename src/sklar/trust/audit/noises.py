"""Attacks on noise (of cells, of searches, of the sampler, its seal), and guesses which of two neighbors was released.

Noise is seen as it was drawn on the way: exact cells are taken off what was released. Guesses are black box and optimal
for the worst change, so that what they prove comes close to what is claimed.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.optimize import brentq
from scipy.special import bdtrc, betainc, betaincinv, gammaincc, ndtr, ndtri, rel_entr

from sklar.budget.method import PAPER
from sklar.errors import NoiseError
from sklar.kernel import noise
from sklar.kernel.cells import Doubles
from sklar.kernel.noise import discrete_gaussian, discrete_laplace
from sklar.kernel.theorems import Budget, Mechanism, gdp_delta
from sklar.public.schema import Attribute, Schema
from sklar.release import measure
from sklar.trust.audit import ALPHA, Comparison, Effort, compare, conclude
from sklar.trust.audit.inventions import ONE, write

_BINS = 40


def check_sampler(_: Path, effort: Effort) -> Iterator[Comparison]:
    """The sampler by itself, at scales from small to large."""
    for scale in (0.75, 3.5, 80.0):
        yield check_draws("gaussian", scale, effort.draws)
        yield check_draws("laplace", scale, effort.draws)


def check_draws(mechanism: Mechanism, scale: float, draws: int) -> Comparison:
    """The sampler's law, as the vault calls it: a chi-square over its values, and its variance."""
    draw = discrete_gaussian if mechanism == "gaussian" else discrete_laplace
    drawn = draw(np.full(1, scale), np.full(1, draws))
    reach = int(60 * scale) + 3
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * scale**2)) if mechanism == "gaussian" else np.exp(-np.abs(x) / scale)
    chances = weights / weights.sum()
    variance, fourth = (float(np.sum(chances * x**power)) for power in (2, 4))
    # Bins of equal chance, as far as whole numbers allow.
    bins = np.minimum((np.cumsum(chances) * _BINS).astype(int), _BINS - 1)
    expected = np.bincount(bins, chances, minlength=_BINS) * draws
    binned = np.bincount(bins[np.clip(drawn, -reach, reach) + reach], minlength=_BINS)
    held = expected > 5
    statistic = float(np.sum((binned[held] - expected[held]) ** 2 / expected[held]))
    law = float(gammaincc((held.sum() - 1) / 2, statistic / 2))
    error = math.sqrt((fourth - variance**2) / draws) / variance
    ratio = float(np.mean(drawn.astype(np.float64) ** 2)) / variance
    p_value = min(2 * min(law, 2 * float(ndtr(-abs(ratio - 1) / error))), 1.0)
    shown: dict[str, Any] = {"mechanism": mechanism, "scale": scale, "off": -2 * float(ndtri(ALPHA / 4)) * error}
    shown["judged"] = "right" if law >= ALPHA / 2 else "not the stated one"
    return compare("sampler", 1.0, ratio, draws, p_value, passed=p_value >= ALPHA, **shown)


def check_seal(_: Path, __: Effort) -> Iterator[Comparison]:
    """Try to replace the noise from outside, as another part of a program might."""
    wrong = ["The noise of this process can be replaced."]
    try:
        noise.discrete_gaussian = noise.discrete_gaussian
    except AttributeError:
        wrong = []
    yield conclude("seal", wrong)


# Prints noise as drawn by a fresh process.
_FRESH = (
    "import numpy as np; from sklar.kernel.noise import discrete_gaussian; "
    "print(discrete_gaussian(np.full(1, 1000.0), np.full(1, 20)).tolist())"
)


def check_fresh(_: Path, __: Effort) -> Iterator[Comparison]:
    """Noise repeats neither from call to call nor from process to process, so that no seed explains it."""
    first, second = (discrete_gaussian(np.full(1, 1000.0), np.full(1, 20)).tolist() for _ in range(2))
    processes = [
        subprocess.Popen([sys.executable, "-c", _FRESH], stdout=subprocess.PIPE, text=True)  # noqa: S603
        for _ in range(2)
    ]
    runs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise NoiseError("a fresh process must be able to draw noise, got an error. Reinstall Sklar, then audit again.")
    wrong = ["Noise is repeated, as if it were seeded."] * ((first == second) + (runs[0] == runs[1]))
    yield conclude("fresh noise", wrong, 4)


_TOWN = Attribute(name="town", kind="categorical", other=True, domain="private", at_most=100)
_EDGE = 40


def check_searches(folder: Path, effort: Effort) -> Iterator[Comparison]:
    """Towns that lie at the threshold: none is listed below it."""
    path, start = folder / "search.parquet", pl.DataFrame({"town": ["Bern"] * 5_000})
    schema = Schema(name="audit", attributes=(_TOWN,))
    threshold = measure(write(start, path), schema, ONE, method=PAPER).certificate.domains[0].threshold or 0
    write(pl.concat([start, pl.DataFrame({"town": [f"edge{i}" for i in range(_EDGE)] * threshold})]), path)
    drawn = [measure(path, schema, ONE, method=PAPER).blocks[0] for _ in range(effort.searches)]
    listed = [sum(key.startswith("edge") for key in block.keys or ()) for block in drawn]
    below = [count for block in drawn for count in block.values.tolist() if count < threshold]
    wrong = [f"Found: a town below the threshold of {threshold} rows, with {count}." for count in below]
    # Half of those at the threshold are listed, and a little more: not all, nor none, but for a chance of 2^-39 a run.
    wrong += ["Found: towns that are listed without noise."] * (effort.searches > 1 and len(set(listed)) == 1)
    yield conclude("search", wrong, len(drawn), towns=_EDGE)


# How often a flaw of the size that `Comparison.sees` states is found.
_OFTEN = 0.9
# One-sided, of the figure for tightness.
_CONFIDENCE = 0.95

Scores = tuple[Doubles, Doubles]


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
    p_value = float(bdtrc(right - 1, runs, chance)) if right else 1.0
    return compare("whole release", chance, right / runs, runs, p_value, passed=low <= chance, words=words, sees=sees)


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
    area, runs = float(above.mean()), first.size + second.size
    error = math.sqrt(float(above.var(ddof=1)) / first.size + float(below.var(ddof=1)) / second.size)
    claimed = claimed_mu(budget)
    lower = math.sqrt(2) * float(ndtri(np.clip(area + ndtri(1 - _CONFIDENCE) * error, 0.5, 1 - 1e-12)))
    most = float(ndtr(claimed / math.sqrt(2)))
    apart = float(rel_entr(area, most) + rel_entr(1 - area, 1 - most)) if area > most else 0.0
    shown: dict[str, Any] = {"words": words, "share": lower / claimed, "sure": _CONFIDENCE}
    passed = min(first.size, second.size) * apart <= -math.log(ALPHA)
    return compare("tightness", claimed, lower, runs, passed=passed, **shown)


def claimed_mu(budget: Budget) -> float:
    """The largest mu whose curve passes below (epsilon, delta)."""
    return float(brentq(lambda mu: gdp_delta(budget.epsilon, mu) - budget.delta, 1e-9, 100.0))
