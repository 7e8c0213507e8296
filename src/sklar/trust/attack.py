"""Attacks on the release path of this installation, on invented tables, through its public interface alone.

Every attack runs what a release runs (`release.measure`) and compares what comes out with what is claimed. Nothing is
replaced or recorded on the way. Exact counts are had by measuring with a budget that is large enough to need no noise.
Error rates: each statistical comparison fails sound code with a chance of at most `ALPHA`.

`trust.audit` runs this file as a process of its own: `python -m sklar.trust.attack [--quick]` prints its comparisons.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.method import PAPER, Method
from sklar.errors import NoiseError
from sklar.kernel.noise import discrete_gaussian, discrete_laplace
from sklar.kernel.theorems import Budget, Mechanism, gdp_delta
from sklar.public.schema import Attribute, Schema
from sklar.release import measure
from sklar.trust.audit import ALPHA, Comparison
from sklar.trust.exact import exact_epsilon

# How often a flaw of the size that `Comparison.power` states is found.
_OFTEN = 0.9
# Noise at this epsilon is zero but for a chance below exp(-1000).
_EXACT = 1e9
# Runs on one table in which every cell must show its own noise.
_REPEATS = 100

Draw = Callable[..., NDArray[np.int64]]
# From codes, shape (m, rows), to all cells that leave, with the noise scale of each.
Run = Callable[[NDArray[np.int32]], tuple[NDArray[np.int64], NDArray[np.float64]]]
# What an attack is made on.
Release = Callable[[Schema, Budget], Run]

# Prints noise as drawn by a fresh process.
_FRESH = (
    "import numpy as np; from sklar.kernel.noise import discrete_gaussian; "
    "print(discrete_gaussian(np.full(1, 1000.0), np.full(1, 20)).tolist())"
)


def table_schema(*sizes: int) -> Schema:
    """Attributes that are whole numbers from 0 on, with these numbers of levels."""
    return Schema(
        name="audit",
        attributes=tuple(
            Attribute(name=f"a{index}", kind="integer", edges=tuple(range(size + 1)), outside="missing")
            for index, size in enumerate(sizes)
        ),
    )


def release_once(schema: Schema, budget: Budget) -> Run:
    """All tables at once, at equal scales: what `fit` measures for the paper's method."""
    return release_by(schema, budget, PAPER)


def release_twice(schema: Schema, budget: Budget) -> Run:
    """Both stages: what `fit` measures by default."""
    return release_by(schema, budget, Method())


def release_by(schema: Schema, budget: Budget, method: Method) -> Run:
    """What this method measures. Where codes have one line more than the schema has attributes, it holds ids."""

    def run(codes: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        # A code below 0 lies outside the edges, and there is no level for that: it stands in no cell.
        table = pl.DataFrame(dict(zip([*schema.names, "id"], codes, strict=False)))
        cells: list[NDArray[np.int64]] = []
        scales: list[NDArray[np.float64]] = []
        for tables in measure(table, schema, budget, method=method).stages:
            plan, sizes = tables.plan, tables.cells.sizes
            cells += [np.array([] if tables.total is None else [tables.total], dtype=np.int64)]
            cells += [tables.one_way, tables.pairs]
            scales += [
                np.array([] if plan.total is None else [plan.total]),
                np.repeat(plan.one_way, sizes[: plan.one_way.size]),
            ]
            scales += [np.repeat(plan.pairs, tables.cells.pair_sizes[: plan.pairs.size])]
        return np.concatenate(cells), np.concatenate(scales)

    return run


def exactly(release: Release, schema: Schema, budget: Budget) -> Run:
    """The same release with noise that is always zero: exact cells, by the public interface."""
    return release(schema, replace(budget, epsilon=_EXACT))


def check_sensitivity(subject: str, release: Release, schema: Schema, budget: Budget) -> list[Comparison]:
    """Every replacement of one of two records: what it costs by the scales that are drawn. No chance is involved."""
    every = np.array(list(product(*[range(-1, size) for size in schema.sizes])), dtype=np.int32)
    other = np.zeros(schema.n_attributes, dtype=np.int32)
    run, shown = exactly(release, schema, budget), release(schema, budget)

    def beside(record: NDArray[np.int32] | None) -> NDArray[np.int32]:
        return np.ascontiguousarray(np.stack([other] if record is None else [other, record], axis=1))

    cells = {tuple(record): run(beside(record))[0] for record in every}
    scales = shown(beside(every[0]))[1]
    added = budget.neighbors == "add-remove"
    starts = every[:1] if added else every[:: max(len(every) // 40, 1)]
    order = 2 if budget.mechanism == "gaussian" else 1
    worst, measured = 0.0, 0.0
    for start in starts:
        base = run(beside(None))[0] if added else cells[tuple(start)]
        for record in every:
            shift = np.abs(cells[tuple(record)] - base)
            amount = float(np.sum((shift / scales) ** order))
            if amount > worst:
                worst, measured = amount, _epsilon(budget, scales, shift)
    return [
        Comparison(
            layer="a sensitivity",
            subject=f"{subject}: epsilon of the worst change",
            passed=measured <= budget.epsilon * 1.002,
            claimed=budget.epsilon,
            measured=measured,
            trials=len(starts) * len(every),
            power="certain: all changes tried",
        ),
        *_check_cells(subject, release, schema, budget, beside(every[-1])),
    ]


def _check_cells(
    subject: str, release: Release, schema: Schema, budget: Budget, rows: NDArray[np.int32]
) -> list[Comparison]:
    """Every cell, seen or not, carries noise of its own with the stated variance, independent of every other cell's."""
    from scipy.special import gammainc, gammaincc, ndtri

    run, exact = release(schema, budget), exactly(release, schema, budget)(rows)[0]
    drawn = [run(rows) for _ in range(_REPEATS)]
    same = all(np.array_equal(scales, drawn[0][1]) for _, scales in drawn)
    noise = np.array([cells - exact for cells, _ in drawn]) / drawn[0][1]
    if budget.mechanism == "laplace":
        # To normal scores, so that one test serves both: P(|X| > x) of a Laplace is exp(-x).
        tail = np.clip(0.5 * np.exp(-np.abs(noise)), 1e-300, 0.5)
        noise = -np.sign(noise) * ndtri(tail)
    squares, share = (noise**2).sum(axis=0), ALPHA / 4 / noise.shape[1]
    # Discrete noise of scale 2 or more has its continuous variance to a part in a hundred.
    low = gammainc(_REPEATS / 2, squares / 2 * 1.02) < share
    high = gammaincc(_REPEATS / 2, squares / 2 / 1.02) < share
    # All cells together see a smaller flaw of all of them.
    half, whole = noise.size / 2, float(squares.sum()) / 2
    off = min(gammainc(half, whole * 1.02), gammaincc(half, whole / 1.02)) < ALPHA / 12
    with np.errstate(divide="ignore", invalid="ignore"):
        together = np.nan_to_num(np.asarray(np.corrcoef(noise.T)), nan=1.0)[np.triu_indices(noise.shape[1], 1)]
    reach = -float(ndtri(ALPHA / 8 / together.size)) / math.sqrt(_REPEATS - 3)
    tied = int(np.sum(np.abs(np.arctanh(np.clip(together, -1 + 1e-12, 1 - 1e-12))) > reach))
    odd = noise.shape[1] if off else int(low.sum() + high.sum()) + tied
    return [
        Comparison(
            layer="a independence",
            subject=f"{subject}: cells without noise of their own",
            passed=same and odd == 0,
            claimed=0.0,
            measured=float(odd if same else noise.shape[1]),
            trials=_REPEATS,
            power="sees half the noise in a cell, 4/5 in all, one that two share",
        )
    ]


def _epsilon(budget: Budget, scales: NDArray[np.float64], shift: NDArray[np.int64]) -> float:
    """What these shifts cost, numerically for tight composition, by definition for the others."""
    moved = shift > 0
    if budget.composition == "basic":
        return float(np.sum(shift / scales))
    if int(shift.max()) > 1:
        return math.inf
    values, counts = np.unique(scales[moved], return_counts=True)
    return exact_epsilon(budget.mechanism, values, counts, budget.delta)


def check_distinguishing(
    subject: str,
    release: Release,
    schema: Schema,
    budget: Budget,
    *,
    trials: int,
    tables: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None,
) -> list[Comparison]:
    """Tell D from D' by the likelihood ratio of what was released, as often as luck alone cannot.

    D' differs from D in one row, in every attribute: the worst change. Or they are `tables`. `trials` runs on each.
    """
    here = np.zeros((schema.n_attributes, 3), dtype=np.int32)
    there = here.copy()
    there[:, 0] = schema.sizes - 1
    here, there = (here, there) if tables is None else tables
    run, exact = release(schema, budget), exactly(release, schema, budget)
    means = [exact(rows)[0] for rows in (here, there)]
    differ = np.flatnonzero(means[0] != means[1])
    gap, centre = (means[0] - means[1])[differ], means[0][differ]
    gaussian = budget.mechanism == "gaussian"

    def score(rows: NDArray[np.int32]) -> float:
        cells, scales = run(rows)
        x, scale = cells[differ] - centre, scales[differ]
        if gaussian:
            return float(np.sum(((x + gap) ** 2 - x**2) / (2 * scale**2)))
        return float(np.sum((np.abs(x + gap) - np.abs(x)) / scale))

    scores = [np.array([score(rows) for _ in range(trials)]) for rows in (here, there)]
    if gaussian:
        scales = run(here)[1][differ]
        return [_judge_guesses(subject, budget, scores, math.sqrt(float(np.sum((gap / scales) ** 2))))]
    return [_judge_ratio(subject, budget, scores, int(np.sum(np.abs(gap))))]


def _judge_guesses(subject: str, budget: Budget, scores: list[NDArray[np.float64]], mu: float) -> Comparison:
    """Guess D where the log likelihood ratio is positive; right guesses against the claimed curve.

    The claim is mu-GDP: no guess is right more often than Phi(mu/2), on average over D and D' (Dong, Roth and Su 2022),
    which is the trade-off curve at epsilon = 0: TPR - FPR <= 2 Phi(mu/2) - 1. The guess is the optimal one and its
    threshold is fixed before, so all runs count. Right guesses are a sum of independent coins whose mean chance is at
    most that; its tail is below the binomial's (Hoeffding 1956, theorem 4), so Clopper and Pearson's bound is valid.
    `mu` is what noise as planned gives; it serves to state the power.
    """
    from scipy.special import betainc, betaincinv, ndtr, ndtri

    runs = sum(part.size for part in scores)
    right = int(np.sum(scores[0] > 0) + np.sum(scores[1] <= 0))
    chance = float(ndtr(_mu(budget.epsilon, budget.delta) / 2))
    low = float(betaincinv(right, runs - right + 1, ALPHA)) if right else 0.0
    # The fewest right guesses that would have failed, the chance that brings them 9 times in 10, the noise that does.
    counts = np.arange(1, runs + 1)
    failing = counts[betainc(counts, runs - counts + 1, chance) < ALPHA]
    power = "none: too few runs"
    if failing.size:
        likely = float(betaincinv(failing[0], runs - failing[0] + 1, _OFTEN))
        power = f"sees noise below {mu / (2 * float(ndtri(likely))):.0%} of its scale, 9 times in 10"
    return Comparison(
        layer="c whole",
        subject=f"{subject}: total variation",
        passed=low <= chance,
        claimed=2 * chance - 1,
        measured=max(2 * low - 1, 0.0),
        trials=runs,
        power=power,
    )


def _judge_ratio(subject: str, budget: Budget, scores: list[NDArray[np.float64]], shifts: int) -> Comparison:
    """The largest log((TPR - delta) / FPR) against epsilon.

    The threshold is chosen on one half of the runs, the bounds (Clopper and Pearson) are of the other half.
    """
    from scipy.special import betaincinv

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

    seen = next(
        (epsilon for epsilon in np.arange(1.0, 10.0, 0.05) * budget.epsilon if unlucky(epsilon) > budget.epsilon),
        math.inf,
    )
    measured = bound(*(int(np.sum(part[half:] >= threshold)) for part in scores))
    return Comparison(
        layer="b per table",
        subject=f"{subject}: lower bound on epsilon",
        passed=measured <= budget.epsilon,
        claimed=budget.epsilon,
        measured=measured,
        trials=2 * scores[0].size,
        power=f"sees epsilon above {seen:.2f}, 9 times in 10",
    )


def _mu(epsilon: float, delta: float) -> float:
    """The largest mu whose curve passes below (epsilon, delta)."""
    low, high = 1e-9, 100.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if gdp_delta(epsilon, middle) <= delta else (low, middle)
    return high


def check_noise(mechanism: Mechanism, scale: float, draws: int) -> list[Comparison]:
    """The sampler's distribution, as the vault calls it: a chi-square over its values, and its variance."""
    from scipy.special import gammaincc, ndtri

    draw: Draw = discrete_gaussian if mechanism == "gaussian" else discrete_laplace
    noise = draw(np.full(1, scale), np.full(1, draws))
    reach = int(60 * scale) + 3
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * scale**2)) if mechanism == "gaussian" else np.exp(-np.abs(x) / scale)
    chances = weights / weights.sum()
    variance = float(np.sum(chances * x**2))
    fourth = float(np.sum(chances * x**4))
    # Bins of equal chance, as far as whole numbers allow.
    bins = np.minimum((np.cumsum(chances) * 40).astype(int), 39)
    expected = np.bincount(bins, chances, minlength=40) * draws
    found = np.bincount(bins[np.clip(noise, -reach, reach) + reach], minlength=40)
    held = expected > 5
    statistic = float(np.sum((found[held] - expected[held]) ** 2 / expected[held]))
    p_value = float(gammaincc((held.sum() - 1) / 2, statistic / 2))
    error = math.sqrt((fourth - variance**2) / draws)
    reachable = -float(ndtri(ALPHA / 2)) * error / variance
    ratio = float(np.mean(noise.astype(np.float64) ** 2)) / variance
    subject = f"{mechanism} noise of scale {scale:g}"
    return [
        Comparison(
            layer="d sampler",
            subject=f"{subject}: p of a chi-square, 39 df",
            passed=p_value >= ALPHA,
            claimed=ALPHA,
            measured=p_value,
            trials=draws,
            power="sees a shift of 1% of the draws",
        ),
        Comparison(
            layer="d sampler",
            subject=f"{subject}: variance over exact",
            passed=abs(ratio - 1) <= reachable,
            claimed=1.0,
            measured=ratio,
            trials=draws,
            power=f"sees variance off by {2 * reachable:.1%}",
        ),
    ]


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
            layer="d sampler",
            subject="noise repeated by a call or a process",
            passed=repeats == 0,
            claimed=0.0,
            measured=float(repeats),
            trials=4,
            power="chance of a false alarm below 1e-60",
        )
    ]


def attack(*, quick: bool = False) -> list[Comparison]:
    """All attacks: (a) deterministic, (b) by one table's ratio, (c) on the whole release, (d) on the sampler."""
    # Imported here: those attacks are made of these.
    from sklar.trust.crowd import attack_people

    pair, small = table_schema(4, 5), table_schema(2, 3)
    laplace = Budget(epsilon=1.0, mechanism="laplace", composition="basic")
    # Where a guess tells most: mu about 2.5, and noise far above the blur of 4 units of variance, hence many tables.
    wide, loose = table_schema(*[2] * 20), Budget(epsilon=18.0)
    guesses = 500 if quick else 20_000
    found = [
        *check_sensitivity("all tables 4 x 5, laplace", release_once, pair, laplace),
        *check_sensitivity("all tables 2 x 3, gaussian", release_once, small, Budget(epsilon=1.0)),
        *check_sensitivity(
            "all tables 2 x 3, add-remove", release_once, small, Budget(epsilon=1.0, neighbors="add-remove")
        ),
        *check_sensitivity(
            "all tables 2 x 3, laplace tight", release_once, small, Budget(epsilon=1.0, mechanism="laplace")
        ),
        *check_distinguishing("one table of 5, laplace", release_once, table_schema(5), laplace, trials=guesses),
        *check_distinguishing("all 210 tables, epsilon 18", release_once, wide, loose, trials=guesses),
        *attack_people(table_schema, guesses=guesses // 2),
    ]
    if not quick:
        found += check_distinguishing("both stages, 400 tables, epsilon 18", release_twice, wide, loose, trials=2_000)
    draws = 200_000 if quick else 2_000_000
    mechanisms: tuple[Mechanism, ...] = ("gaussian", "laplace")
    for mechanism in mechanisms:
        for scale in (0.75, 3.5, 80.0):
            found += check_noise(mechanism, scale, draws)
    return [*found, *check_fresh()]


if __name__ == "__main__":
    sys.stdout.write(json.dumps([asdict(each) for each in attack(quick="--quick" in sys.argv[1:])]))
