"""Attacks on noise: that of every cell, of all cells together, of a search for domains, and of the sampler by itself.

Exact cells are taken off what was released, so that noise is seen as it was drawn on the way.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import bdtr, gammainc, gammaincc, ndtr, ndtri, pdtr, pdtrc

from sklar.budget.certificate import Measured
from sklar.budget.ladder import ladder_of, next_cells
from sklar.budget.method import PAPER
from sklar.errors import NoiseError
from sklar.kernel.noise import discrete_gaussian, discrete_laplace
from sklar.kernel.theorems import Budget, Mechanism
from sklar.public.schema import Attribute, Schema
from sklar.release import measure
from sklar.trust.audit.comparison import ALPHA, Comparison, Effort, compare, conclude
from sklar.trust.audit.guesses import TOWN
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

_BUDGET = Budget(epsilon=1.0)
# Discrete noise of scale 2 or more has its continuous variance to a part in a hundred.
_BLUR = 1.02
_BINS = 40
_FAR = 3.5
# Prints noise as drawn by a fresh process.
_FRESH = (
    "import numpy as np; from sklar.kernel.noise import discrete_gaussian; "
    "print(discrete_gaussian(np.full(1, 1000.0), np.full(1, 20)).tolist())"
)

# What is odd, in words, and how rarely noise as claimed is as odd.
Odd = tuple[str, float]


def check_cells(folder: Path, effort: Effort) -> Iterator[Comparison]:
    """The noise of every cell, in many releases of one file, for every kind of noise."""
    added = Budget(epsilon=1.0, neighbors="add-remove")
    yield check_noise_of_cells(folder, release_once, _BUDGET, effort.cells, "Gaussian noise, one stage")
    yield check_noise_of_cells(folder, release_twice, _BUDGET, effort.cells, "Gaussian noise, both stages")
    yield check_noise_of_cells(folder, release_twice, added, effort.cells, "Gaussian noise, both stages, add-remove")
    yield check_noise_of_cells(folder, release_once, PURE, effort.cells, "Laplace noise")


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
    # The relative error of a scale that all draws together reveal.
    reach = (_BLUR - 1) / 2 + 5.5 / math.sqrt(2 * noise.size)
    return conclude(
        "noise of cells",
        f"{runs} releases of one file, {noise.shape[1]} cells each ({words}): the size of every cell's noise, "
        "and how it goes with that of every other cell, table, stage and release.",
        [f"Found: {what}." for what, _ in odd],
        f"It sees half the noise in one cell, {1 - 2 * reach:.0%} in all, noise that two cells share, and noise that "
        "leans to one side.",
        right="Every cell has noise of its own.",
        trials=runs,
        p_value=odd[0][1] if odd else None,
    )


def to_scores(standard: NDArray[np.float64], mechanism: Mechanism) -> NDArray[np.float64]:
    """Noise over its scale as normal scores, so that one test serves both: P(|X| > x) of a Laplace is exp(-x)."""
    if mechanism == "gaussian":
        return standard
    tail = np.clip(0.5 * np.exp(-np.abs(standard)), 1e-300, 0.5)
    return np.asarray(-np.sign(standard) * ndtri(tail))


def odd_noise(scores: NDArray[np.float64], noise: NDArray[np.int64], exact: NDArray[np.int64]) -> list[Odd]:
    """What is odd about the noise of many releases, shape (releases, cells); tests share ALPHA."""
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
    return [(words, p_value) for words, p_value in found if p_value < ALPHA / len(found)]


def _tied(correlations: NDArray[np.float64], freedom: int) -> float:
    """The chance that the largest of so many correlations of independent noise is as large (Fisher's transform)."""
    if not correlations.size:
        return 1.0
    largest = float(np.abs(correlations).max())
    return 2 * correlations.size * float(ndtr(-math.atanh(min(largest, 1 - 1e-12)) * math.sqrt(freedom)))


def check_stretches(_: Path, effort: Effort, release: Release = release_twice) -> Iterator[Comparison]:
    """The noise of wide tables: its law, and no stretch of it that comes back, at any distance, in two releases."""
    schema = whole_numbers(300, 300)
    table = frame_of(schema, np.zeros((2, 3), dtype=np.int32))
    exact = exactly(release)(table, schema, _BUDGET).cells
    drawn = [release(table, schema, _BUDGET) for _ in range(effort.stretches)]
    noise = np.concatenate([each.cells - exact for each in drawn])
    # Spread over their unit, whole numbers follow the normal law but for one part in thousands.
    spread = noise + np.random.default_rng().uniform(-0.5, 0.5, noise.size)
    scores = spread / np.sqrt(np.concatenate([each.scales for each in drawn]) ** 2 + 1 / 12)
    yield _judge_law(scores, noise)
    yield _judge_stretches(scores)


def _judge_law(scores: NDArray[np.float64], noise: NDArray[np.int64]) -> Comparison:
    """The share of noise in each of 40 bins that should be alike, beyond `_FAR` deviations, and of odd numbers."""
    size = scores.size
    edges = ndtri(np.arange(1, _BINS) / _BINS)
    found = np.bincount(np.searchsorted(edges, scores), minlength=_BINS)
    law = float(gammaincc((_BINS - 1) / 2, float(np.sum((found - size / _BINS) ** 2)) / (size / _BINS) / 2))
    far, expected = int(np.sum(np.abs(scores) > _FAR)), size * 2 * float(ndtr(-_FAR))
    tails = 2 * min(float(pdtr(far, expected)), float(pdtrc(far - 1, expected)) if far else 1.0)
    odd = int(np.sum(noise % 2))
    even = 2 * float(bdtr(min(odd, size - odd), size, 0.5))
    p_value = min(3 * min(law, tails, even), 1.0)
    return compare(
        "law of the noise",
        f"{size:,} draws of noise as large releases show them: how often each size comes, far ones, odd ones.",
        f"They {'' if p_value >= ALPHA else 'do not '}follow the stated law.",
        f"It sees a hundredth of the draws moved, tails that are cut at {_FAR} deviations, and even noise.",
        (expected, float(far)),
        passed=p_value >= ALPHA,
        trials=size,
        p_value=p_value,
    )


def _judge_stretches(scores: NDArray[np.float64]) -> Comparison:
    """The correlation of the noise with itself at every distance, by Fourier's transform."""
    size = scores.size
    padded = np.fft.rfft(scores, 2 * size)
    products = np.fft.irfft(np.abs(padded) ** 2)[1:size]
    # Of `size - distance` products of independent scores: a deviation of its square root.
    overlap = size - np.arange(1, size)
    enough = overlap >= 1_000
    deviations = np.abs(products[enough]) / np.sqrt(overlap[enough])
    number = int(enough.sum())
    p_value = min(2 * number * float(ndtr(-deviations.max() / _BLUR)), 1.0)
    return compare(
        "stretches of noise",
        f"{size:,} draws of noise beside themselves, at {number:,} distances: in a table, between tables, stages and "
        "releases.",
        "None comes back." if p_value >= ALPHA else "A stretch of noise comes back.",
        f"It sees a stretch of {int(8 * math.sqrt(size)):,} cells that is drawn twice.",
        (0.0, float(deviations.max())),
        passed=p_value >= ALPHA,
        trials=number,
        p_value=p_value,
    )


def check_sampler(_: Path, effort: Effort) -> Iterator[Comparison]:
    """The sampler by itself, at scales from small to large."""
    for scale in (0.75, 3.5, 80.0):
        yield check_draws("gaussian", scale, effort.draws)
        yield check_draws("laplace", scale, effort.draws)


def check_draws(mechanism: Mechanism, scale: float, draws: int) -> Comparison:
    """The sampler's law, as the vault calls it: a chi-square over its values, and its variance."""
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
    judged = "right" if law >= ALPHA / 2 else "not the stated one"
    return compare(
        "sampler",
        f"{draws:,} draws of {mechanism} noise of scale {scale:g}.",
        f"Their variance is {ratio:.4f} times what it should be, and their law is {judged}.",
        f"It sees a hundredth of the draws moved, and a variance that is off by {2 * reachable:.1%}.",
        (1.0, ratio),
        passed=p_value >= ALPHA,
        trials=draws,
        p_value=p_value,
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
    yield conclude(
        "fresh noise",
        "noise drawn twice by one process, and once by each of two.",
        ["Noise is repeated, as if it were seeded."] * ((first == second) + (runs[0] == runs[1])),
        "It sees a seed and a key that is always the same.",
        right="No draw was repeated.",
        trials=4,
    )


# Towns of many rows, towns at the threshold, and amounts between wide bounds.
_BOTH = Schema(
    name="audit",
    attributes=(
        Attribute(name="town", kind="categorical", other=True, domain="private", at_most=100),
        Attribute(name="amount", kind="integer", edges=(0, 5_000), domain="private", at_most=5),
    ),
)
_EDGE = 40
# Amounts that many rows have: at both bounds, beyond them, and between.
_HEAPS = (0, 1, 17, 2_500, 4_999, 5_000, 10**12, -1)


def check_searches(folder: Path, effort: Effort) -> Iterator[Comparison]:
    """What a search lets out: the noise of every table that it measured, and what reached its threshold."""
    path, generator = folder / "search.parquet", np.random.default_rng()
    amounts = np.concatenate([np.repeat(_HEAPS, 500), generator.integers(0, 5_000, 4_000)])
    start = pl.DataFrame({"town": ["Bern"] * 5_000 + ["Rome"] * 3_000, "amount": amounts})
    threshold = measure(write(start, path), _BOTH, _BUDGET, method=PAPER).certificate.domains[0].threshold or 0
    edge = pl.DataFrame({"town": [f"edge{i}" for i in range(_EDGE)] * threshold})
    frame = pl.concat([start, edge.with_columns(amount=pl.int_range(edge.height, dtype=pl.Int64) % 7)])
    write(frame, path)
    drawn = [measure(path, _BOTH, _BUDGET, method=PAPER) for _ in range(effort.searches)]
    odd = [*_odd_towns(threshold, drawn), *_odd_amounts(frame["amount"].to_numpy(), drawn)]
    yield conclude(
        "search",
        f"{len(drawn)} searches of one file, for {_EDGE + 2} towns and an amount: the noise of every table that was "
        "measured, and which towns were listed.",
        [f"Found: {what}." for what, _ in odd],
        "It sees a table, a cell or a common town without noise or counted twice, and a threshold off by one.",
        right="Every table has noise, and no town below the threshold is listed.",
        trials=len(drawn),
        p_value=odd[0][1] if odd else None,
    )


def _odd_towns(threshold: int, drawn: list[Measured]) -> list[Odd]:
    """The noise of common towns, and towns that are listed below the threshold."""
    first = [each.blocks[0] for each in drawn]
    towns = [dict(zip(block.keys or (), block.values.tolist(), strict=True)) for block in first]
    noise = np.array([[each.get("Bern", 0) - 5_000, each.get("Rome", 0) - 3_000] for each in towns])
    below = any(count < threshold for each in towns for count in each.values())
    found = odd_noise(noise / drawn[0].certificate.domains[0].scale, noise, np.ones(2, dtype=np.int64))
    return [*found, *([("a town below the threshold", 0.0)] if below else [])]


def _odd_amounts(amounts: NDArray[np.int64], drawn: list[Measured]) -> list[Odd]:
    """The noise of all tables of amounts. Their cells are public: they follow from the bounds and earlier tables."""
    ladder = ladder_of(_BOTH.attribute("amount"))
    units = np.clip(amounts, ladder.low, ladder.high - 1)
    found: list[Odd] = []
    at = 1
    rounding = np.bincount(ladder.rounding_cells(units), minlength=ladder.rounding_size)
    for finding in drawn[0].certificate.domains[1:]:
        answers = [tuple(block.values for block in each.blocks[at : at + finding.tables]) for each in drawn]
        at += finding.tables
        for table in range(finding.tables):
            noise = []
            for answer in answers:
                exact = rounding
                if finding.of != "rounding":
                    exact = np.histogram(units, next_cells(ladder, answer[:table], finding.scale)[-1] - 0.5)[0]
                noise.append(answer[table] - exact)
            # Where every run has other cells, all are taken together.
            alike = len({each.size for each in noise}) == 1
            own = np.array(noise) if alike else np.concatenate(noise)[:, None]
            found += odd_noise(own / finding.scale, own, np.ones(own.shape[1], dtype=np.int64))
    return found


def check_threshold(folder: Path, _: Effort) -> Iterator[Comparison]:
    """The chance that a town of one row is listed, summed term by term, against the one that is paid for."""
    path = write(pl.DataFrame({"town": ["Bern"] * 50}), folder / "threshold.csv")
    (finding,) = measure(path, TOWN, _BUDGET, method=PAPER).certificate.domains
    far = int(40 * finding.scale)
    weights = np.exp(-(np.arange(-far, far + 1) ** 2) / (2 * finding.scale**2))
    # Largest first would lose the small ones.
    chance = float(weights[far + (finding.threshold or 0) - 1 :][::-1].sum() / weights.sum())
    yield compare(
        "threshold",
        f"the threshold of {finding.threshold} rows from which a town is listed, under noise of scale "
        f"{finding.scale:.4g}: how likely a town of one row is listed.",
        f"With a chance of {chance:.3g}; {finding.lost_delta:.3g} is paid for.",
        "It sees a threshold that is one too low for what is paid.",
        (finding.lost_delta, chance),
        passed=chance <= finding.lost_delta <= _BUDGET.delta,
        trials=1,
    )
