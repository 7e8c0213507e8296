"""Try to break the privacy of the code that is installed here, on invented tables. Four layers, in `audit`.

Every layer runs what a release runs (`Vault.measure`, `measure_twice`, the sampler) and compares what comes out with
what is claimed. Error rates: each statistical layer fails sound code with a chance of at most `ALPHA` per comparison.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import NoisyTables, above_diagonal
from sklar.budget.plan import Plan, plan_tables
from sklar.errors import NoiseError
from sklar.kernel import vault as measure
from sklar.kernel.theorems import Budget, gdp_delta
from sklar.kernel.vault import Vault
from sklar.public.schema import Attribute, Schema
from sklar.release import measure_twice
from sklar.rows.fast import Counts, count_codes
from sklar.trust.verify import exact_epsilon

ALPHA = 1e-6
# How often a flaw of the size that `Finding.power` states is found.
_OFTEN = 0.9

# As a value whose attributes may be put aside for a while: noise is recorded, or planted flaws are tried.
door: Any = measure

Draw = Callable[[NDArray[np.float64], NDArray[np.int64]], NDArray[np.int64]]
# From codes, shape (m, rows), to all cells that leave, with the noise scale of each.
Run = Callable[[NDArray[np.int32]], tuple[NDArray[np.int64], NDArray[np.float64]]]
# What a layer attacks: planned once, as a release is, from public facts; then run on thousands of tables.
Release = Callable[[Schema, Budget], Run]

# Prints noise as drawn by a fresh process.
_FRESH = (
    "import numpy as np; from sklar.kernel.noise import discrete_gaussian; "
    "print(discrete_gaussian(np.full(1, 1000.0), np.full(1, 20)).tolist())"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One comparison: what was claimed, what was measured, and how much it could have seen."""

    layer: str
    subject: str
    passed: bool
    claimed: float
    measured: float
    trials: int
    power: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All comparisons."""

    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether none of them found anything."""
        return all(finding.passed for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"passed": self.passed, "alpha": ALPHA, "findings": [asdict(finding) for finding in self.findings]}

    def lines(self) -> list[str]:
        """For a person."""
        lines = [f"{'':<5}{'layer':<16}{'subject':<56}{'claimed':>9}{'measured':>10}{'trials':>9}  power"]
        for finding in self.findings:
            lines.append(
                f"{'ok' if finding.passed else 'FAIL':<5}{finding.layer:<16}{finding.subject:<56}"
                f"{finding.claimed:>9.4g}{finding.measured:>10.4g}{finding.trials:>9,}  {finding.power}"
            )
        verdict = "nothing found" if self.passed else "THIS CODE IS NOT PRIVATE AS CLAIMED. Do not release with it"
        return [*lines, f"{len(self.findings)} comparisons: {verdict}."]


def table_schema(*sizes: int) -> Schema:
    """Categorical attributes with so many levels."""
    return Schema(
        name="audit",
        attributes=tuple(
            Attribute(name=f"a{index}", kind="categorical", values=tuple(map(str, range(size))))
            for index, size in enumerate(sizes)
        ),
    )


def release_all(schema: Schema, budget: Budget) -> Run:
    """All tables at once: `Vault.measure`, as `fit` calls it for the binary method and for Laplace noise."""
    plan, vault = plan_tables(schema, budget), _vaults(schema, budget)
    return lambda codes: cells_of((vault(codes).measure(plan),))


def release_pair(schema: Schema, budget: Budget) -> Run:
    """Two-way tables alone."""
    n_pairs = schema.n_attributes * (schema.n_attributes - 1) // 2
    plan, vault = Plan(one_way=np.empty(0), pairs=budget.scales(np.ones(n_pairs))), _vaults(schema, budget)
    return lambda codes: cells_of((vault(codes).measure(plan),))


def release_twice(schema: Schema, budget: Budget) -> Run:
    """Both stages: `measure_twice`, as `fit` calls it by default."""
    vault = _vaults(schema, budget)
    return lambda codes: cells_of(measure_twice(vault(codes), schema, budget))


def _vaults(schema: Schema, budget: Budget) -> Callable[[NDArray[np.int32]], Vault]:
    """Opens a fresh vault for every run; equal rows are counted once, as no chance is involved in that."""
    counted: dict[bytes, Counts] = {}

    def open_vault(codes: NDArray[np.int32]) -> Vault:
        key = codes.tobytes()
        if key not in counted:
            counted[key] = count_codes(codes, schema)
        return Vault(counted[key], schema, budget)

    return open_vault


def cells_of(measured: tuple[NoisyTables, ...]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """All cells that left and the scale of each, in the order in which noise is laid on them."""
    cells: list[Any] = []
    scales: list[Any] = []
    for tables in measured:
        schema, plan = tables.schema, tables.plan
        if tables.total is not None:
            cells.append([tables.total])
            scales.append([plan.total])
        if plan.one_way.size:
            cells.append(tables.one_way)
            scales.append(np.repeat(plan.one_way, schema.sizes))
        if plan.pairs.size:
            where = above_diagonal(schema)
            block = np.repeat(np.arange(schema.n_attributes), schema.sizes)
            cells.append(tables.pairs[where])
            scales.append(plan.pair_scales(schema.n_attributes)[block][:, block][where])
    return np.concatenate(cells).astype(np.int64), np.concatenate(scales).astype(np.float64)


@contextmanager
def recorded() -> Iterator[list[tuple[NDArray[np.float64], NDArray[np.int64]]]]:
    """Noise is recorded instead of drawn; in its place come numbers far from any count, another for every cell."""
    calls: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = []

    def record(scales: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        calls.append((np.array(scales), np.array(sizes)))
        return _markers(int(np.sum(sizes)))

    kept = door.discrete_gaussian, door.discrete_laplace
    door.discrete_gaussian = door.discrete_laplace = record
    try:
        yield calls
    finally:
        door.discrete_gaussian, door.discrete_laplace = kept


def _markers(count: int) -> NDArray[np.int64]:
    return 1_000_000 + 1_000 * np.arange(count, dtype=np.int64)


def check_sensitivity(subject: str, release: Release, schema: Schema, budget: Budget) -> list[Finding]:
    """Layer (a): every replacement of one of two records, with noise recorded. No chance is involved."""
    every = np.array(list(product(*[range(-1, size) for size in schema.sizes])), dtype=np.int32)
    other = np.zeros(schema.n_attributes, dtype=np.int32)
    measure = release(schema, budget)

    def run(record: NDArray[np.int32] | None) -> tuple[NDArray[np.int64], Any, NDArray[np.float64]]:
        rows = [other] if record is None else [other, record]
        with recorded() as calls:
            cells, _ = measure(np.ascontiguousarray(np.stack(rows, axis=1)))
        drawn = np.concatenate([np.repeat(scales, sizes) for scales, sizes in calls])
        shape = [(scales.tolist(), sizes.tolist()) for scales, sizes in calls]
        return cells, shape, drawn

    starts = every if budget.neighbors == "add-remove" else every[:: max(len(every) // 40, 1)]
    outcomes = {tuple(record): run(record) for record in every}
    reference = outcomes[tuple(every[0])]
    shapes = all(outcome[1] == reference[1] for outcome in outcomes.values())
    worst = 0.0
    costs: list[tuple[float, NDArray[np.float64], NDArray[np.int64]]] = []
    for start in starts:
        base = run(None)[0] if budget.neighbors == "add-remove" else outcomes[tuple(start)][0]
        for record in every if budget.neighbors == "replace-one" else [start]:
            shift = np.abs(outcomes[tuple(record)][0] - base)
            order = 2 if budget.mechanism == "gaussian" else 1
            amount = float(np.sum((shift / reference[2]) ** order))
            if amount > worst:
                worst = amount
                costs.append((amount, reference[2], shift))
    measured = _epsilon(budget, *costs[-1][1:]) if costs else 0.0
    # Every cell must carry its own marker, seen or not.
    carried = sum(size for _, sizes in reference[1] for size in sizes)
    bare = 0
    for cells, _, _ in outcomes.values():
        left = np.concatenate([_markers(sum(sizes)) for _, sizes in reference[1]])
        bare = max(bare, int(np.sum(np.abs(cells - left) > 2)) if cells.size == left.size else cells.size)
    trials = len(starts) * (len(every) if budget.neighbors == "replace-one" else 1)
    return [
        Finding(
            layer="a sensitivity",
            subject=f"{subject}: epsilon of the worst change",
            passed=measured <= budget.epsilon * 1.002,
            claimed=budget.epsilon,
            measured=measured,
            trials=trials,
            power="certain: all changes tried",
        ),
        Finding(
            layer="a independence",
            subject=f"{subject}: cells without noise, calls by rows",
            passed=shapes and bare == 0,
            claimed=0.0,
            measured=float(bare if shapes else carried),
            trials=len(every),
            power="certain: all records tried",
        ),
    ]


def _epsilon(budget: Budget, scales: NDArray[np.float64], shift: NDArray[np.int64]) -> float:
    """What these shifts cost, by `verify`'s path for tight composition, by definition for the others."""
    moved = shift > 0
    if budget.composition == "basic":
        return float(np.sum(shift / scales))
    if int(shift.max()) > 1:
        return math.inf
    values, counts = np.unique(scales[moved], return_counts=True)
    return exact_epsilon(budget.mechanism, values, counts, budget.delta)


def check_distinguishing(
    subject: str, release: Release, schema: Schema, budget: Budget, *, trials: int
) -> list[Finding]:
    """Layers (b) and (c): tell D from D' by the likelihood ratio of what was released, as often as luck alone cannot.

    D' differs from D in one row, in every attribute: the worst change. `trials` runs on each.
    """
    here = np.zeros((schema.n_attributes, 3), dtype=np.int32)
    there = here.copy()
    there[:, 0] = schema.sizes - 1
    measure = release(schema, budget)
    with recorded():
        means = [measure(rows)[0] for rows in (here, there)]
    differ = np.flatnonzero(means[0] != means[1])
    gap = (means[0] - means[1])[differ]
    with recorded() as calls:
        scales = measure(here)[1][differ]
    offsets = np.concatenate([_markers(int(np.sum(sizes))) for _, sizes in calls])
    exact = (means[0] - offsets)[differ]
    gaussian = budget.mechanism == "gaussian"

    def score(rows: NDArray[np.int32]) -> float:
        cells, scales = measure(rows)
        x, scale = cells[differ] - exact, scales[differ]
        if gaussian:
            return float(np.sum(((x + gap) ** 2 - x**2) / (2 * scale**2)))
        return float(np.sum((np.abs(x + gap) - np.abs(x)) / scale))

    scores = [np.array([score(rows) for _ in range(trials)]) for rows in (here, there)]
    if gaussian:
        return [_judge_guesses(subject, budget, scores, math.sqrt(float(np.sum((gap / scales) ** 2))))]
    return [_judge_ratio(subject, budget, scores, int(np.sum(np.abs(gap))))]


def _judge_guesses(subject: str, budget: Budget, scores: list[NDArray[np.float64]], mu: float) -> Finding:
    """Layer (c): guess D where the log likelihood ratio is positive; right guesses against the claimed curve.

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
    return Finding(
        layer="c whole",
        subject=f"{subject}: total variation",
        passed=low <= chance,
        claimed=2 * chance - 1,
        measured=max(2 * low - 1, 0.0),
        trials=runs,
        power=power,
    )


def _judge_ratio(subject: str, budget: Budget, scores: list[NDArray[np.float64]], shifts: int) -> Finding:
    """Layer (b): the largest log((TPR - delta) / FPR) against epsilon.

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
    return Finding(
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


def check_noise(mechanism: str, scale: float, draws: int) -> list[Finding]:
    """Layer (d): the sampler's distribution, as the door calls it: a chi-square over its values, and its variance."""
    from scipy.special import gammaincc, ndtri

    draw: Draw = door.discrete_gaussian if mechanism == "gaussian" else door.discrete_laplace
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
        Finding(
            layer="d sampler",
            subject=f"{subject}: p of a chi-square, 39 df",
            passed=p_value >= ALPHA,
            claimed=ALPHA,
            measured=p_value,
            trials=draws,
            power="sees a shift of 1% of the draws",
        ),
        Finding(
            layer="d sampler",
            subject=f"{subject}: variance over exact",
            passed=abs(ratio - 1) <= reachable,
            claimed=1.0,
            measured=ratio,
            trials=draws,
            power=f"sees variance off by {2 * reachable:.1%}",
        ),
    ]


def check_fresh() -> list[Finding]:
    """Layer (d): noise repeats neither from call to call nor from process to process, so that no seed explains it."""
    first, second = (door.discrete_gaussian(np.full(1, 1000.0), np.full(1, 20)).tolist() for _ in range(2))
    processes = [
        subprocess.Popen([sys.executable, "-c", _FRESH], stdout=subprocess.PIPE, text=True)  # noqa: S603
        for _ in range(2)
    ]
    runs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise NoiseError("a fresh process must be able to draw noise, got an error. Reinstall Sklar, then audit again.")
    repeats = int(first == second) + int(runs[0] == runs[1])
    return [
        Finding(
            layer="d sampler",
            subject="noise repeated by a call or a process",
            passed=repeats == 0,
            claimed=0.0,
            measured=float(repeats),
            trials=4,
            power="chance of a false alarm below 1e-60",
        )
    ]


def audit(*, quick: bool = False) -> Audit:
    """Run all layers: (a) deterministic, (b) per table, (c) the whole release, (d) the sampler."""
    pair, small = table_schema(4, 5), table_schema(2, 3)
    laplace = Budget(epsilon=1.0, mechanism="laplace", composition="basic")
    # Where a guess tells most: mu about 2.5, and noise far above the blur of 4 units of variance, hence many tables.
    wide, loose = table_schema(*[2] * 20), Budget(epsilon=18.0)
    findings = [
        *check_sensitivity("pair 4 x 5, laplace", release_pair, pair, laplace),
        *check_sensitivity("all tables 2 x 3, gaussian", release_all, small, Budget(epsilon=1.0)),
        *check_sensitivity(
            "all tables 2 x 3, add-remove", release_all, small, Budget(epsilon=1.0, neighbors="add-remove")
        ),
        *check_sensitivity(
            "all tables 2 x 3, laplace tight", release_all, small, Budget(epsilon=1.0, mechanism="laplace")
        ),
        *check_distinguishing("pair 4 x 5, laplace", release_pair, pair, laplace, trials=2_000 if quick else 20_000),
        *check_distinguishing(
            "all 210 tables, epsilon 18", release_all, wide, loose, trials=2_000 if quick else 20_000
        ),
    ]
    if not quick:
        findings += check_distinguishing(
            "both stages, 400 tables, epsilon 18", release_twice, wide, loose, trials=2_000
        )
    draws = 200_000 if quick else 2_000_000
    for mechanism in ("gaussian", "laplace"):
        for scale in (0.75, 3.5, 80.0):
            findings += check_noise(mechanism, scale, draws)
    return Audit(findings=(*findings, *check_fresh()))
