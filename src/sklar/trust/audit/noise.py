"""Attacks on noise: that of every cell, of all cells together, and of the sampler by itself.

Exact cells are taken off what was released, so that noise is seen as it was drawn on the way.
"""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sklar.errors import NoiseError
from sklar.kernel.noise import discrete_gaussian, discrete_laplace
from sklar.kernel.theorems import Budget, Mechanism
from sklar.trust.audit.effort import FULL, Effort
from sklar.trust.audit.path import Release, exactly, release_once, release_twice
from sklar.trust.audit.result import ALPHA, Comparison
from sklar.trust.audit.tables import frame_of, whole_numbers, write

_PURE = Budget(epsilon=1.0, mechanism="laplace", composition="basic")
# Discrete noise of scale 2 or more has its continuous variance to a part in a hundred.
_BLUR = 1.02
_BINS = 40
_FAR = 3.5

# Prints noise as drawn by a fresh process.
_FRESH = (
    "import numpy as np; from sklar.kernel.noise import discrete_gaussian; "
    "print(discrete_gaussian(np.full(1, 1000.0), np.full(1, 20)).tolist())"
)


def check_cells(
    folder: Path, *, effort: Effort = FULL, once: Release = release_once, twice: Release = release_twice
) -> list[Comparison]:
    """The noise of every cell, in many releases of one file, for every kind of noise."""
    added = Budget(epsilon=1.0, neighbors="add-remove")
    return [
        check_noise_of_cells(folder, once, Budget(epsilon=1.0), effort.cells, "Gaussian noise, one stage"),
        check_noise_of_cells(folder, twice, Budget(epsilon=1.0), effort.cells, "Gaussian noise, both stages"),
        check_noise_of_cells(folder, twice, added, effort.cells, "Gaussian noise, both stages, add-remove"),
        check_noise_of_cells(folder, once, _PURE, effort.cells, "Laplace noise"),
    ]


def check_noise_of_cells(folder: Path, release: Release, budget: Budget, runs: int, words: str) -> Comparison:
    """Every cell, seen or not, has noise of its own with the stated law, independent of all other cells and releases.

    The table has empty cells, cells of a few rows and cells of thousands.
    """
    schema = whole_numbers(4, 5)
    codes = np.array([[0] * 4_000 + [1] * 900 + [2] * 3, [0] * 3_000 + [1] * 1_000 + [3] * 903], dtype=np.int32)
    path = write(frame_of(schema, codes), folder / "noise.parquet")
    exact = exactly(release)(path, schema, budget).cells
    drawn = [release(path, schema, budget) for _ in range(runs)]
    exact = exact[: drawn[0].cells.size]
    noise = np.array([each.cells - exact for each in drawn])
    scores = to_scores(noise / np.array([each.scales for each in drawn]), budget.mechanism)
    odd = odd_noise(scores, noise, exact)
    return Comparison(
        part="noise of cells",
        tried=f"{runs} releases of one file, {noise.shape[1]} cells each ({words}): the size of every cell's noise, "
        "and how it goes with that of every other cell, table, stage and release.",
        found="Every cell has noise of its own." if not odd else f"Found: {odd[0].words}.",
        sees=f"It sees half the noise in one cell, {1 - 2 * _reach(noise.size):.0%} in all, noise that two cells "
        "share, and noise that leans to one side.",
        passed=not odd,
        claimed=0.0,
        measured=float(len(odd)),
        trials=runs,
        p_value=odd[0].p_value if odd else None,
    )


def to_scores(standard: NDArray[np.float64], mechanism: Mechanism) -> NDArray[np.float64]:
    """Noise over its scale as normal scores, so that one test serves both: P(|X| > x) of a Laplace is exp(-x)."""
    from scipy.special import ndtri

    if mechanism == "gaussian":
        return standard
    tail = np.clip(0.5 * np.exp(-np.abs(standard)), 1e-300, 0.5)
    return np.asarray(-np.sign(standard) * ndtri(tail))


@dataclass(frozen=True, slots=True)
class Odd:
    """Something that noise as claimed does less often than once in a million times."""

    words: str
    p_value: float


def odd_noise(scores: NDArray[np.float64], noise: NDArray[np.int64], exact: NDArray[np.int64]) -> list[Odd]:
    """What is odd about the noise of many releases, shape (releases, cells); tests share ALPHA."""
    from scipy.special import bdtr, gammainc, gammaincc, ndtr

    runs, cells = scores.shape
    squares = (scores**2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        within = np.nan_to_num(np.atleast_2d(np.corrcoef(scores.T)), nan=1.0)[np.triu_indices(cells, 1)]
        sides = np.sqrt((scores[:-1] ** 2).sum(axis=0))[:, None] * np.sqrt((scores[1:] ** 2).sum(axis=0))
        between = np.nan_to_num(scores[:-1].T @ scores[1:] / sides, nan=1.0).ravel()
    low, high = gammainc(runs / 2, squares / 2 * _BLUR), gammaincc(runs / 2, squares / 2 / _BLUR)
    half, whole = scores.size / 2, float(squares.sum()) / 2
    lean = 2 * ndtr(-np.abs(scores.sum(axis=0)) / math.sqrt(runs * _BLUR))
    odds = int(np.sum(noise % 2))
    found = [
        ("a cell with too little noise", low.min() * cells),
        ("a cell with too much noise", high.min() * cells),
        ("too little noise in all", float(gammainc(half, whole * _BLUR))),
        ("too much noise in all", float(gammaincc(half, whole / _BLUR))),
        ("noise of a cell that leans to one side", lean.min() * cells),
        ("noise of two cells that goes together", _tied(within, runs - 3)),
        ("noise that goes with that of the release before", _tied(between, runs - 3)),
        ("noise that is even or odd more often", 2 * float(bdtr(min(odds, noise.size - odds), noise.size, 0.5))),
    ]
    for words, chosen in (("empty", exact == 0), ("filled", exact > 0)):
        part = scores[:, chosen]
        if part.size:
            tilt = 2 * float(ndtr(-abs(part.sum()) / math.sqrt(part.size * _BLUR)))
            found.append((f"noise of {words} cells that leans to one side", tilt))
    return [Odd(words, p_value) for words, p_value in found if p_value < ALPHA / len(found)]


def _tied(correlations: NDArray[np.float64], freedom: int) -> float:
    """The chance that the largest of so many correlations of independent noise is as large (Fisher's transform)."""
    from scipy.special import ndtr

    if not correlations.size:
        return 1.0
    largest = float(np.abs(correlations).max())
    return 2 * correlations.size * float(ndtr(-math.atanh(min(largest, 1 - 1e-12)) * math.sqrt(freedom)))


def _reach(draws: int) -> float:
    """The relative error of a scale that all draws together reveal."""
    return (_BLUR - 1) / 2 + 5.5 / math.sqrt(2 * draws)


def check_stretches(*, effort: Effort = FULL, release: Release = release_twice) -> list[Comparison]:
    """The noise of wide tables: its law, and no stretch of it that comes back, at any distance, in two releases."""
    schema, budget = whole_numbers(300, 300), Budget(epsilon=1.0)
    table = frame_of(schema, np.zeros((2, 3), dtype=np.int32))
    exact = exactly(release)(table, schema, budget).cells
    drawn = [release(table, schema, budget) for _ in range(effort.stretches)]
    noise = np.concatenate([each.cells - exact for each in drawn])
    # Spread over their unit, whole numbers follow the normal law but for one part in thousands.
    spread = noise + np.random.default_rng().uniform(-0.5, 0.5, noise.size)
    scores = spread / np.sqrt(np.concatenate([each.scales for each in drawn]) ** 2 + 1 / 12)
    return [_judge_law(scores, noise), _judge_stretches(scores)]


def _judge_law(scores: NDArray[np.float64], noise: NDArray[np.int64]) -> Comparison:
    """The share of noise in each of 40 bins that should be alike, beyond `_FAR` deviations, and of odd numbers."""
    from scipy.special import bdtr, gammaincc, ndtr, ndtri, pdtr, pdtrc

    size = scores.size
    edges = ndtri(np.arange(1, _BINS) / _BINS)
    found = np.bincount(np.searchsorted(edges, scores), minlength=_BINS)
    law = float(gammaincc((_BINS - 1) / 2, float(np.sum((found - size / _BINS) ** 2)) / (size / _BINS) / 2))
    far, expected = int(np.sum(np.abs(scores) > _FAR)), size * 2 * float(ndtr(-_FAR))
    tails = 2 * min(float(pdtr(far, expected)), float(pdtrc(far - 1, expected)) if far else 1.0)
    odd = int(np.sum(noise % 2))
    even = 2 * float(bdtr(min(odd, size - odd), size, 0.5))
    p_value = min(3 * min(law, tails, even), 1.0)
    return Comparison(
        part="law of the noise",
        tried=f"{size:,} draws of noise as large releases show them: how often each size comes, far ones, odd ones.",
        found="They follow the stated law." if p_value >= ALPHA else "They do not follow the stated law.",
        sees=f"It sees a hundredth of the draws moved, tails that are cut at {_FAR} deviations, and even noise.",
        passed=p_value >= ALPHA,
        claimed=expected,
        measured=float(far),
        trials=size,
        p_value=p_value,
    )


def _judge_stretches(scores: NDArray[np.float64]) -> Comparison:
    """The correlation of the noise with itself at every distance, by Fourier's transform."""
    from scipy.special import ndtr

    size = scores.size
    padded = np.fft.rfft(scores, 2 * size)
    products = np.fft.irfft(np.abs(padded) ** 2)[1:size]
    # Of `size - distance` products of independent scores: a deviation of its square root.
    overlap = size - np.arange(1, size)
    enough = overlap >= 1_000
    deviations = np.abs(products[enough]) / np.sqrt(overlap[enough])
    p_value = min(2 * int(enough.sum()) * float(ndtr(-deviations.max() / _BLUR)), 1.0)
    return Comparison(
        part="stretches of noise",
        tried=f"{size:,} draws of noise beside themselves, at {int(enough.sum()):,} distances: in a table, between "
        "tables, stages and releases.",
        found="None comes back." if p_value >= ALPHA else "A stretch of noise comes back.",
        sees=f"It sees a stretch of {int(8 * math.sqrt(size)):,} cells that is drawn twice.",
        passed=p_value >= ALPHA,
        claimed=0.0,
        measured=float(deviations.max()),
        trials=int(enough.sum()),
        p_value=p_value,
    )


def check_sampler(*, effort: Effort = FULL) -> list[Comparison]:
    """The sampler by itself, at scales from small to large."""
    mechanisms: tuple[Mechanism, ...] = ("gaussian", "laplace")
    return [check_draws(mechanism, scale, effort.draws) for mechanism in mechanisms for scale in (0.75, 3.5, 80.0)]


def check_draws(mechanism: Mechanism, scale: float, draws: int) -> Comparison:
    """The sampler's law, as the vault calls it: a chi-square over its values, and its variance."""
    from scipy.special import gammaincc, ndtr, ndtri

    draw = discrete_gaussian if mechanism == "gaussian" else discrete_laplace
    noise = draw(np.full(1, scale), np.full(1, draws))
    reach = int(60 * scale) + 3
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * scale**2)) if mechanism == "gaussian" else np.exp(-np.abs(x) / scale)
    chances = weights / weights.sum()
    variance = float(np.sum(chances * x**2))
    fourth = float(np.sum(chances * x**4))
    # Bins of equal chance, as far as whole numbers allow.
    bins = np.minimum((np.cumsum(chances) * _BINS).astype(int), _BINS - 1)
    expected = np.bincount(bins, chances, minlength=_BINS) * draws
    found = np.bincount(bins[np.clip(noise, -reach, reach) + reach], minlength=_BINS)
    held = expected > 5
    statistic = float(np.sum((found[held] - expected[held]) ** 2 / expected[held]))
    law = float(gammaincc((held.sum() - 1) / 2, statistic / 2))
    error = math.sqrt((fourth - variance**2) / draws) / variance
    ratio = float(np.mean(noise.astype(np.float64) ** 2)) / variance
    spread = 2 * float(ndtr(-abs(ratio - 1) / error))
    p_value = min(2 * min(law, spread), 1.0)
    reachable = -float(ndtri(ALPHA / 4)) * error
    return Comparison(
        part="sampler",
        tried=f"{draws:,} draws of {mechanism} noise of scale {scale:g}.",
        found=f"Their variance is {ratio:.4f} times what it should be"
        + (", and their law is right." if law >= ALPHA / 2 else ", and their law is not the stated one."),
        sees=f"It sees a hundredth of the draws moved, and a variance that is off by {2 * reachable:.1%}.",
        passed=p_value >= ALPHA,
        claimed=1.0,
        measured=ratio,
        trials=draws,
        p_value=p_value,
    )


def check_fresh() -> list[Comparison]:
    """Noise repeats neither from call to call nor from process to process, so that no seed explains it."""
    first, second = (discrete_gaussian(np.full(1, 1000.0), np.full(1, 20)).tolist() for _ in range(2))
    processes = [
        subprocess.Popen([sys.executable, "-c", _FRESH], stdout=subprocess.PIPE, text=True)  # noqa: S603
        for _ in range(2)
    ]
    runs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise NoiseError("a fresh process must be able to draw noise, got an error. Reinstall Sklar, then audit again.")
    repeats = int(first == second) + int(runs[0] == runs[1])
    return [
        Comparison(
            part="fresh noise",
            tried="noise drawn twice by one process, and once by each of two.",
            found="No draw was repeated." if not repeats else "Noise is repeated, as if it were seeded.",
            sees="It sees a seed and a key that is always the same.",
            passed=repeats == 0,
            claimed=0.0,
            measured=float(repeats),
            trials=4,
        )
    ]
