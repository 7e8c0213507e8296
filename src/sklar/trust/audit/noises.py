"""Attacks on noise (of cells, of searches, of the sampler), and guesses which of two neighbors was released.

Noise is seen as it was drawn on the way: exact cells are taken off what was released. Guesses are black box and optimal
for the worst change, so that what they prove comes close to what is claimed.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, betainc, betaincinv, gammainc, gammaincc, ndtr, ndtri, pdtr, pdtrc, rel_entr

from sklar.budget.certificate import Measured
from sklar.budget.method import PAPER
from sklar.budget.search import ladder_of, next_cells
from sklar.errors import NoiseError
from sklar.kernel.noise import discrete_gaussian, discrete_laplace
from sklar.kernel.theorems import Budget, Mechanism, gdp_delta
from sklar.public.schema import Attribute, Schema
from sklar.release import measure
from sklar.trust.audit import ALPHA, Comparison, Effort, conclude, inventions
from sklar.trust.audit.inventions import ONE, PURE, Release, exactly, frame_of, release_once, release_twice, write

Array = NDArray[np.float64]
# What is odd, in words, and how rarely noise as claimed is as odd.
Odd = tuple[str, float]
# Discrete noise of scale 2 or more has its continuous variance to a part in a hundred.
_BLUR = 1.02
_BINS = 40
_FAR = 3.5


def check_cells(folder: Path, effort: Effort) -> Iterator[Comparison]:
    """The noise of every cell, in many releases of one file, for every kind of noise."""
    for release, budget, words in (
        (release_once, ONE, "Gaussian noise, one stage"),
        (release_twice, ONE, "Gaussian noise, both stages"),
        (release_twice, inventions.ADDED, "Gaussian noise, both stages, add-remove"),
        (release_once, PURE, "Laplace noise"),
    ):
        yield check_noise_of_cells(folder, release, budget, effort.cells, words)


def check_noise_of_cells(folder: Path, release: Release, budget: Budget, runs: int, words: str) -> Comparison:
    """Every cell, seen or not, has noise of its own with the stated law, independent of all other cells and releases.

    The table has empty cells, cells of a few rows and cells of thousands.
    """
    schema = inventions.whole_numbers(4, 5)
    codes = np.array([[0] * 4_000 + [1] * 900 + [2] * 3, [0] * 3_000 + [1] * 1_000 + [3] * 903], dtype=np.int32)
    path = write(frame_of(schema, codes), folder / "noise.parquet")
    drawn = [release(path, schema, budget) for _ in range(runs)]
    exact = exactly(release)(path, schema, budget).cells[: drawn[0].cells.size]
    noise = np.array([each.cells - exact for each in drawn])
    scores = noise / np.array([each.scales for each in drawn])
    if budget.mechanism == "laplace":
        # As normal scores, so that one test serves both: P(|X| > x) is exp(-x).
        scores = -np.sign(scores) * ndtri(np.clip(0.5 * np.exp(-np.abs(scores)), 1e-300, 0.5))
    odd = odd_noise(scores, noise, exact)
    # The relative error of a scale that all draws together reveal.
    reach = (_BLUR - 1) / 2 + 5.5 / math.sqrt(2 * noise.size)
    tried = (
        f"{runs} releases of one file, {noise.shape[1]} cells each ({words}): the size of every cell's noise, "
        "and how it goes with that of every other cell, table, stage and release."
    )
    wrong = [f"Found: {what}." for what, _ in odd]
    sees = (
        f"It sees half the noise in one cell, {1 - 2 * reach:.0%} in all, noise that two cells share, and noise that "
        "leans to one side."
    )
    p_value = odd[0][1] if odd else None
    return conclude("noise of cells", tried, wrong, "Every cell has noise of its own.", sees, runs, p_value)


def odd_noise(scores: Array, noise: NDArray[np.int64], exact: NDArray[np.int64]) -> list[Odd]:
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
    chances = [
        ("a cell with too little noise", low.min() * cells),
        ("a cell with too much noise", high.min() * cells),
        ("too little noise in all", float(gammainc(half, whole * _BLUR))),
        ("too much noise in all", float(gammaincc(half, whole / _BLUR))),
        ("noise of a cell that leans to one side", lean.min() * cells),
        ("noise of two cells that goes together", _tied(within, runs - 3)),
        ("noise that goes with that of the release before", _tied(between, runs - 3)),
        ("noise that is even or odd more often", _uneven(noise)),
    ]
    for words, chosen in (("empty", exact == 0), ("filled", exact > 0)):
        part = scores[:, chosen]
        if part.size:
            tilt = 2 * float(ndtr(-abs(part.sum()) / math.sqrt(part.size * _BLUR)))
            chances.append((f"noise of {words} cells that leans to one side", tilt))
    return [(words, p_value) for words, p_value in chances if p_value < ALPHA / len(chances)]


def _tied(correlations: Array, freedom: int) -> float:
    """The chance that the largest of so many correlations of independent noise is as large (Fisher's transform)."""
    if not correlations.size:
        return 1.0
    largest = float(np.abs(correlations).max())
    return 2 * correlations.size * float(ndtr(-math.atanh(min(largest, 1 - 1e-12)) * math.sqrt(freedom)))


def _uneven(noise: NDArray[np.int64]) -> float:
    """The chance that as few are even, or as few odd."""
    odd = int(np.sum(noise % 2))
    return 2 * float(bdtr(min(odd, noise.size - odd), noise.size, 0.5))


def check_stretches(_: Path, effort: Effort, release: Release = release_twice) -> Iterator[Comparison]:
    """The noise of wide tables: its law, and no stretch of it that comes back, at any distance, in two releases."""
    schema = inventions.whole_numbers(300, 300)
    table = frame_of(schema, np.zeros((2, 3), dtype=np.int32))
    exact = exactly(release)(table, schema, ONE).cells
    drawn = [release(table, schema, ONE) for _ in range(effort.stretches)]
    noise = np.concatenate([each.cells - exact for each in drawn])
    # Spread over their unit, whole numbers follow the normal law but for one part in thousands.
    spread = noise + np.random.default_rng().uniform(-0.5, 0.5, noise.size)
    scores = spread / np.sqrt(np.concatenate([each.scales for each in drawn]) ** 2 + 1 / 12)
    yield _judge_law(scores, noise)
    yield _judge_stretches(scores)


def _judge_law(scores: Array, noise: NDArray[np.int64]) -> Comparison:
    """The share of noise in each of 40 bins that should be alike, beyond `_FAR` deviations, and of odd numbers."""
    size = scores.size
    edges = ndtri(np.arange(1, _BINS) / _BINS)
    binned = np.bincount(np.searchsorted(edges, scores), minlength=_BINS)
    bins = float(gammaincc((_BINS - 1) / 2, float(np.sum((binned - size / _BINS) ** 2)) / (size / _BINS) / 2))
    far, expected = int(np.sum(np.abs(scores) > _FAR)), size * 2 * float(ndtr(-_FAR))
    tails = 2 * min(float(pdtr(far, expected)), float(pdtrc(far - 1, expected)) if far else 1.0)
    p_value = min(3 * min(bins, tails, _uneven(noise)), 1.0)
    passed = p_value >= ALPHA
    tried = f"{size:,} draws of noise as large releases show them: how often each size comes, far ones, odd ones."
    found = f"They {'' if passed else 'do not '}follow the stated law."
    sees = f"It sees a hundredth of the draws moved, tails that are cut at {_FAR} deviations, and even noise."
    return Comparison("law of the noise", tried, found, sees, passed, expected, float(far), size, p_value)


def _judge_stretches(scores: Array) -> Comparison:
    """The correlation of the noise with itself at every distance, by Fourier's transform."""
    size = scores.size
    products = np.fft.irfft(np.abs(np.fft.rfft(scores, 2 * size)) ** 2)[1:size]
    # Of `size - distance` products of independent scores: a deviation of its square root.
    overlap = size - np.arange(1, size)
    enough = overlap >= 1_000
    largest, number = float((np.abs(products[enough]) / np.sqrt(overlap[enough])).max()), int(enough.sum())
    p_value = min(2 * number * float(ndtr(-largest / _BLUR)), 1.0)
    passed, where = p_value >= ALPHA, "in a table, between tables, stages and releases"
    tried = f"{size:,} draws of noise beside themselves, at {number:,} distances: {where}."
    found = "None comes back." if passed else "A stretch of noise comes back."
    sees = f"It sees a stretch of {int(8 * math.sqrt(size)):,} cells that is drawn twice."
    return Comparison("stretches of noise", tried, found, sees, passed, 0.0, largest, number, p_value)


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
    variance, fourth = (float(np.sum(chances * x**power)) for power in (2, 4))
    # Bins of equal chance, as far as whole numbers allow.
    bins = np.minimum((np.cumsum(chances) * _BINS).astype(int), _BINS - 1)
    expected = np.bincount(bins, chances, minlength=_BINS) * draws
    binned = np.bincount(bins[np.clip(noise, -reach, reach) + reach], minlength=_BINS)
    held = expected > 5
    statistic = float(np.sum((binned[held] - expected[held]) ** 2 / expected[held]))
    law = float(gammaincc((held.sum() - 1) / 2, statistic / 2))
    error = math.sqrt((fourth - variance**2) / draws) / variance
    ratio = float(np.mean(noise.astype(np.float64) ** 2)) / variance
    p_value = min(2 * min(law, 2 * float(ndtr(-abs(ratio - 1) / error))), 1.0)
    tried, right = f"{draws:,} draws of {mechanism} noise of scale {scale:g}.", law >= ALPHA / 2
    judged, off = "right" if right else "not the stated one", -2 * float(ndtri(ALPHA / 4)) * error
    found = f"Their variance is {ratio:.4f} times what it should be, and their law is {judged}."
    sees = f"It sees a hundredth of the draws moved, and a variance that is off by {off:.1%}."
    return Comparison("sampler", tried, found, sees, p_value >= ALPHA, 1.0, ratio, draws, p_value)


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
    tried = "noise drawn twice by one process, and once by each of two."
    wrong = ["Noise is repeated, as if it were seeded."] * ((first == second) + (runs[0] == runs[1]))
    sees = "It sees a seed and a key that is always the same."
    yield conclude("fresh noise", tried, wrong, "No draw was repeated.", sees, 4)


def _towns(at_most: int) -> Attribute:
    return Attribute(name="town", kind="categorical", other=True, domain="private", at_most=at_most)


_TOWN = Schema(name="audit", attributes=(_towns(1),))
# Towns of many rows, towns at the threshold, and amounts between wide bounds.
_BOTH = Schema(
    name="audit",
    attributes=(_towns(100), Attribute(name="amount", kind="integer", edges=(0, 5_000), domain="private", at_most=5)),
)
_EDGE = 40
# Amounts that many rows have: at both bounds, beyond them, and between.
_HEAPS = (0, 1, 17, 2_500, 4_999, 5_000, 10**12, -1)


def check_searches(folder: Path, effort: Effort) -> Iterator[Comparison]:
    """What a search lets out: the noise of every table that it measured, and what reached its threshold."""
    path, generator = folder / "search.parquet", np.random.default_rng()
    amounts = np.concatenate([np.repeat(_HEAPS, 500), generator.integers(0, 5_000, 4_000)])
    start = pl.DataFrame({"town": ["Bern"] * 5_000 + ["Rome"] * 3_000, "amount": amounts})
    threshold = measure(write(start, path), _BOTH, ONE, method=PAPER).certificate.domains[0].threshold or 0
    # With so many rows of no town, every run searches for towns again.
    edge = pl.DataFrame({"town": [f"edge{i}" for i in range(_EDGE)] * threshold + [None] * 20_000})
    frame = pl.concat([start, edge.with_columns(amount=pl.int_range(edge.height, dtype=pl.Int64) % 7)])
    write(frame, path)
    drawn = [measure(path, _BOTH, ONE, method=PAPER) for _ in range(effort.searches)]
    odd = [*_odd_towns(drawn), *_odd_amounts(frame["amount"].to_numpy(), drawn)]
    tried = (
        f"{len(drawn)} searches of one file, for {_EDGE + 2} towns and an amount: the noise of every table that was "
        "measured, and which towns were listed."
    )
    wrong = [f"Found: {what}." for what, _ in odd]
    right = "Every table has noise, and no town below the threshold is listed."
    sees = "It sees a table, a cell or a common town without noise or counted twice, and a threshold off by one."
    p_value = odd[0][1] if odd else None
    yield conclude("search", tried, wrong, right, sees, len(drawn), p_value)


def _odd_towns(drawn: list[Measured]) -> list[Odd]:
    """The noise of common towns in both rounds, and towns that are listed below the threshold."""
    rounds = [[block for block in each.blocks if block.keys is not None] for each in drawn]
    towns = [[dict(zip(block.keys or (), block.values.tolist(), strict=True)) for block in own] for own in rounds]
    noise = np.array([[[each.get("Bern", 0) - 5_000, each.get("Rome", 0) - 3_000] for each in own] for own in towns])
    scales, flat = [float(block.scales[0]) for block in rounds[0]], noise.reshape(len(drawn), -1)
    below = any((block.values < getattr(block.query, "threshold", 0)).any() for own in rounds for block in own)
    odd = odd_noise(flat / np.repeat(scales, 2), flat, np.ones(flat.shape[1], dtype=np.int64))
    return [*odd, *([("a town below the threshold", 0.0)] if below else [])]


def _odd_amounts(amounts: NDArray[np.int64], drawn: list[Measured]) -> list[Odd]:
    """The noise of all tables of amounts. Their cells are public: they follow from the bounds and earlier tables."""
    ladder = ladder_of(_BOTH.attribute("amount"))
    units = np.clip(amounts, ladder.low, ladder.high - 1)
    rounding = np.bincount(ladder.rounding_cells(units), minlength=ladder.rounding_size)
    odd: list[Odd] = []
    at = 1
    for finding in (each for each in drawn[0].certificate.domains if each.attribute == "amount"):
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
            odd += odd_noise(own / finding.scale, own, np.ones(own.shape[1], dtype=np.int64))
    return odd


def check_threshold(folder: Path, _: Effort) -> Iterator[Comparison]:
    """The chance that a town of one row is listed, summed term by term, against the one that is paid for."""
    path = write(pl.DataFrame({"town": ["Bern"] * 50}), folder / "threshold.csv")
    finding = measure(path, _TOWN, ONE, method=PAPER, anyway=True).certificate.domains[0]
    far = int(40 * finding.scale)
    weights = np.exp(-(np.arange(-far, far + 1) ** 2) / (2 * finding.scale**2))
    # Largest first would lose the small ones.
    chance = float(weights[far + (finding.threshold or 0) - 1 :][::-1].sum() / weights.sum())
    paid = finding.lost_delta
    tried = (
        f"the threshold of {finding.threshold} rows from which a town is listed, under noise of scale "
        f"{finding.scale:.4g}: how likely a town of one row is listed."
    )
    found = f"With a chance of {chance:.3g}; {paid:.3g} is paid for."
    sees = "It sees a threshold that is one too low for what is paid."
    yield Comparison("threshold", tried, found, sees, chance <= paid <= ONE.delta, paid, chance, 1)


# How often a flaw of the size that `Comparison.sees` states is found.
_OFTEN = 0.9
# One-sided, of the figure for tightness.
_CONFIDENCE = 0.95
# Where a guess tells most: mu about 2.5, and noise far above the blur of 4 units of variance, hence many tables.
_LOOSE = Budget(epsilon=18.0)
# Rows of the person who is replaced.
_ROWS = 8
_BITS = inventions.whole_numbers(*[2] * 20)
_BITS_OF_PEOPLE = inventions.people_of(_BITS, "rows", _ROWS)

Scores = tuple[Array, Array]


def check_guesses(folder: Path, effort: Effort) -> Iterator[Comparison]:
    """Guess on the whole release, of all tables at once, and of both stages; and how tight the guess is."""
    scores, mu = play(release_once, _BITS, _LOOSE, effort.once, folder)
    yield judge_guesses("210 tables measured at once", _LOOSE, scores, mu)
    yield judge_tightness("210 tables of 3 rows", _LOOSE, scores)
    # Of attributes with two levels, parities are measured.
    for words, levels in (("210 parities, measured twice", 2), ("400 tables measured in two stages", 3)):
        scores, mu = play(release_twice, inventions.whole_numbers(*[levels] * 20), _LOOSE, effort.twice, folder)
        yield judge_guesses(words, _LOOSE, scores, mu)


def check_ratio(_: Path, effort: Effort) -> Iterator[Comparison]:
    """Guess on one table of Laplace noise, where the claim is a ratio of chances."""
    yield judge_ratio(PURE, play(release_once, inventions.whole_numbers(5), PURE, effort.ratio)[0], shifts=2)


def check_person(folder: Path, effort: Effort, schema: Schema = _BITS_OF_PEOPLE) -> Iterator[Comparison]:
    """Guess in which of two cells of every table all rows of one person stand, who has many."""
    ids, tables = pl.Series([0] * _ROWS + [1, 2]), []
    for code in (0, 1):
        codes = np.zeros((schema.n_attributes, len(ids)), dtype=np.int32)
        codes[:, :_ROWS] = code
        tables.append(write(frame_of(schema, codes).with_columns(id=ids), folder / f"person{code}.parquet"))
    scores, mu = _play_between(release_once, schema, _LOOSE, effort.person, tables)
    yield judge_guesses(f"210 tables, a person of {_ROWS} rows replaced", _LOOSE, scores, mu)


def check_choice(folder: Path, effort: Effort) -> Iterator[Comparison]:
    """Two towns, one of which is listed: one row more must not decide which."""
    scores = []
    for many, few in (("Bern", "Rome"), ("Rome", "Bern")):
        path = write(pl.DataFrame({"town": [many] * 2_001 + [few] * 2_000}), folder / f"{many}.csv")
        schemas = [measure(path, _TOWN, ONE, method=PAPER).schema for _ in range(effort.searches)]
        scores.append(np.array([1.0 if each.attribute("town").values == ("Bern",) else -1.0 for each in schemas]))
    yield judge_guesses("the only town that is listed", ONE, (scores[0], scores[1]), 0.1)


def play(
    release: Release, schema: Schema, budget: Budget, trials: int, folder: Path | None = None
) -> tuple[Scores, float]:
    """The log likelihood ratio of `trials` releases of D and of D', and the mu that noise as planned gives.

    D and D' have three rows; one has the last level in every attribute of D', or, for parities, in as many as cost
    most.
    """

    def table(changed: int) -> pl.DataFrame:
        codes = np.zeros((schema.n_attributes, 3), dtype=np.int32)
        codes[:changed, 0] = schema.sizes[:changed] - 1
        return frame_of(schema, codes)

    worst = schema.n_attributes
    if schema.n_levels == 2 * schema.n_attributes:
        scales = release(table(0), schema, budget).scales
        changes = [table(changed) for changed in range(schema.n_attributes + 1)]
        start, *ends = [exactly(release)(each, schema, budget).cells[: scales.size] for each in changes]
        worst = 1 + int(np.argmax([np.sum(((end - start) / scales) ** 2) for end in ends]))
    tables: list[object] = [table(0), table(worst)]
    if folder is not None:
        tables = [write(table(changed), folder / f"play{changed}.parquet") for changed in (0, worst)]
    return _play_between(release, schema, budget, trials, tables)


def _play_between(
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

    one, two = (np.array([score(table) for _ in range(trials)]) for table in tables)
    return (one, two), math.sqrt(float(np.sum((gap / shown.scales[differ]) ** 2)))


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
    tried = f"{runs:,} releases of two neighbors ({words}): guess which it was, by the best of all guesses."
    found = f"{right / runs:.1%} of the guesses are right; as claimed, at most {chance:.1%} can be, but for luck."
    p_value = float(bdtrc(right - 1, runs, chance)) if right else 1.0
    return Comparison("whole release", tried, found, sees, low <= chance, chance, right / runs, runs, p_value)


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
    passed, share = min(first.size, second.size) * apart <= -math.log(ALPHA), f"({lower / claimed:.0%})"
    tried = f"the same {runs:,} releases ({words}): how much of the claim the attack reaches."
    found = f"It proves mu = {lower:.3f} of the claimed {claimed:.3f} {share}, with {_CONFIDENCE:.0%} confidence."
    sees = "The closer to 100%, the smaller a flaw can be that it does not see."
    return Comparison("tightness", tried, found, sees, passed, claimed, lower, runs)


def judge_ratio(budget: Budget, scores: Scores, shifts: int) -> Comparison:
    """The largest log(TPR / FPR) against epsilon, where delta is 0.

    The threshold is chosen on one half of the runs, the bounds (Clopper and Pearson) are of the other half.
    """
    half = scores[0].size // 2
    candidates = np.unique(np.concatenate([part[:half] for part in scores]))
    hits = [np.mean(part[:half, None] >= candidates[None, :], axis=0) for part in scores]
    # Add a few imaginary runs to both, so that a threshold that nothing crossed is not taken for a proof.
    gain = np.log((hits[0] + 20 / half) / (hits[1] + 20 / half)) * (hits[0] > 0.02)
    threshold = candidates[np.argmax(gain)]
    rest = scores[0].size - half

    def bound(true: int, false: int) -> float:
        low = float(betaincinv(true, rest - true + 1, ALPHA / 2)) if true > 0 else 0.0
        high = float(betaincinv(false + 1, rest - false, 1 - ALPHA / 2)) if false < rest else 1.0
        return max(math.log(max(low, 1e-300) / high), 0.0)

    def unlucky(epsilon: float) -> float:
        """The bound that all but one run in ten exceed when this is the true epsilon, spread over the shifts."""
        up = 1 / (1 + math.exp(-epsilon / shifts))
        true, false = up**shifts, (1 - up) ** shifts
        spread = [1.645 * math.sqrt(rest * chance * (1 - chance)) for chance in (true, false)]
        return bound(int(rest * true - spread[0]), min(int(rest * false + spread[1]) + 1, rest))

    steps = np.arange(1.0, 10.0, 0.05) * budget.epsilon
    least = next((epsilon for epsilon in steps if unlucky(epsilon) > budget.epsilon), math.inf)
    measured = bound(*(int(np.sum(part[half:] >= threshold)) for part in scores))
    runs, claimed = 2 * scores[0].size, budget.epsilon
    tried = f"{runs:,} releases of two neighbors, one table of Laplace noise: guess which it was."
    found = f"The guesses prove epsilon = {measured:.2f}, {claimed:g} is claimed."
    sees = f"It sees epsilon above {least:.2f}, 9 times in 10."
    return Comparison("one table", tried, found, sees, measured <= claimed, claimed, measured, runs)


def claimed_mu(budget: Budget) -> float:
    """The largest mu whose curve passes below (epsilon, delta)."""
    low, high = 1e-9, 100.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if gdp_delta(budget.epsilon, middle) <= budget.delta else (low, middle)
    return high
