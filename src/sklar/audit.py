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

from sklar.budget import Budget, gdp_delta
from sklar.plan import Plan, plan_tables
from sklar.private import measure
from sklar.private.count import Counts, count_codes
from sklar.private.measure import Vault
from sklar.release import measure_twice
from sklar.schema import Attribute, Schema
from sklar.tables import NoisyTables, above_diagonal
from sklar.verify import exact_epsilon

ALPHA = 1e-6

# As a value whose attributes may be put aside for a while: noise is recorded, or planted flaws are tried.
door: Any = measure

# Exact counts of invented rows, while `remembered`.
_COUNTED: dict[tuple[bytes, str], Counts] = {}

Draw = Callable[[NDArray[np.float64], NDArray[np.int64]], NDArray[np.int64]]
# From codes, shape (m, rows), to all cells that leave, with the noise scale of each: one line per layer's subject.
Release = Callable[[NDArray[np.int32], Schema, Budget], tuple[NDArray[np.int64], NDArray[np.float64]]]

# Prints noise as drawn by a fresh process.
_FRESH = (
    "import numpy as np; from sklar.private.noise import discrete_gaussian; "
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


def release_all(codes: NDArray[np.int32], schema: Schema, budget: Budget) -> tuple[Any, Any]:
    """All tables at once: `Vault.measure`, as `fit` calls it for the binary method and for Laplace noise."""
    return cells_of((_vault(codes, schema, budget).measure(plan_tables(schema, budget)),))


def release_pair(codes: NDArray[np.int32], schema: Schema, budget: Budget) -> tuple[Any, Any]:
    """Two-way tables alone."""
    n_pairs = schema.n_attributes * (schema.n_attributes - 1) // 2
    plan = Plan(one_way=np.empty(0), pairs=budget.scales(np.ones(n_pairs)))
    return cells_of((_vault(codes, schema, budget).measure(plan),))


def release_twice(codes: NDArray[np.int32], schema: Schema, budget: Budget) -> tuple[Any, Any]:
    """Both stages: `measure_twice`, as `fit` calls it by default."""
    return cells_of(measure_twice(_vault(codes, schema, budget), schema, budget))


def _vault(codes: NDArray[np.int32], schema: Schema, budget: Budget) -> Vault:
    key = codes.tobytes(), schema.digest
    if key not in _COUNTED:
        _COUNTED[key] = count_codes(codes, schema)
    return Vault(_COUNTED[key], schema, budget)


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


@contextmanager
def remembered() -> Iterator[None]:
    """Equal counts and costs are computed once: thousands of runs share them, and neither is drawn by chance."""
    original, memory = Budget._spent, dict[Any, float]()
    _COUNTED.clear()

    def spent(self: Budget, values: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
        key = self, values.tobytes(), counts.tobytes()
        if key not in memory:
            memory[key] = original(self, values, counts)
        return memory[key]

    Budget._spent = spent  # type: ignore[method-assign]
    try:
        yield
    finally:
        Budget._spent = original  # type: ignore[method-assign]
        _COUNTED.clear()


def check_sensitivity(subject: str, release: Release, schema: Schema, budget: Budget) -> list[Finding]:
    """Layer (a): every replacement of one of two records, with noise recorded. No chance is involved."""
    every = np.array(list(product(*[range(-1, size) for size in schema.sizes])), dtype=np.int32)
    other = np.zeros(schema.n_attributes, dtype=np.int32)

    def run(record: NDArray[np.int32]) -> tuple[NDArray[np.int64], Any, NDArray[np.float64]]:
        rows = [other] if record is None else [other, record]
        with recorded() as calls:
            cells, _ = release(np.ascontiguousarray(np.stack(rows, axis=1)), schema, budget)
        drawn = np.concatenate([np.repeat(scales, sizes) for scales, sizes in calls])
        shape = [(scales.tolist(), sizes.tolist()) for scales, sizes in calls]
        return cells, shape, drawn

    starts = every if budget.neighbors == "add-remove" else every[:: max(len(every) // 40, 1)]
    with remembered():
        outcomes = {tuple(record): run(record) for record in every}
    reference = outcomes[tuple(every[0])]
    shapes = all(outcome[1] == reference[1] for outcome in outcomes.values())
    worst = 0.0
    costs: list[tuple[float, NDArray[np.float64], NDArray[np.int64]]] = []
    for start in starts:
        base = run(None)[0] if budget.neighbors == "add-remove" else outcomes[tuple(start)][0]  # type: ignore[arg-type]
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

    Pure epsilon: the largest log((TPR - delta) / FPR). Tight Gaussian: TPR - FPR against the total variation of the
    claimed curve, 2 Phi(mu/2) - 1. The threshold is chosen on one half of the runs, the bound is of the other half.
    """
    from scipy.special import betaincinv, ndtr

    here = np.zeros((schema.n_attributes, 3), dtype=np.int32)
    there = here.copy()
    there[:, 0] = schema.sizes - 1
    _COUNTED.clear()
    with recorded():
        means = [release(rows, schema, budget)[0] for rows in (here, there)]
    differ = np.flatnonzero(means[0] != means[1])
    gap = (means[0] - means[1])[differ]
    with recorded() as calls:
        release(here, schema, budget)
    offsets = np.concatenate([_markers(int(np.sum(sizes))) for _, sizes in calls])
    exact = (means[0] - offsets)[differ]

    def score(rows: NDArray[np.int32]) -> float:
        cells, scales = release(rows, schema, budget)
        x, scale = cells[differ] - exact, scales[differ]
        if budget.mechanism == "gaussian":
            return float(np.sum(((x + gap) ** 2 - x**2) / (2 * scale**2)))
        return float(np.sum((np.abs(x + gap) - np.abs(x)) / scale))

    with remembered():
        scores = [np.array([score(rows) for _ in range(trials)]) for rows in (here, there)]
    half = trials // 2
    candidates = np.unique(np.concatenate([part[:half] for part in scores]))
    hits = [np.mean(part[:half, None] >= candidates[None, :], axis=0) for part in scores]
    gaussian = budget.mechanism == "gaussian"
    # Add a few imaginary runs to both, so that a threshold that nothing crossed is not taken for a proof.
    gain = hits[0] - hits[1] if gaussian else np.log((hits[0] + 20 / half) / (hits[1] + 20 / half)) * (hits[0] > 0.02)
    threshold = candidates[np.argmax(gain)]
    true, false = (int(np.sum(part[half:] >= threshold)) for part in scores)
    rest = trials - half
    low = float(betaincinv(true, rest - true + 1, ALPHA / 2)) if true else 0.0
    high = float(betaincinv(false + 1, rest - false, 1 - ALPHA / 2)) if false < rest else 1.0
    if gaussian:
        mu = _mu(budget.epsilon, budget.delta)
        claimed, measured = float(2 * ndtr(mu / 2) - 1), max(low - high, 0.0)
        slack = 2 * math.sqrt(math.log(2 / ALPHA) / (2 * rest))
        power = f"sees total variation above {min(claimed + slack, 1):.2f}"
    else:
        claimed = budget.epsilon
        delta = 0.0 if budget.composition == "basic" else budget.delta
        measured = max(math.log(max(low - delta, 1e-300) / high), 0.0)
        power = f"sees at most epsilon {math.log(1 / float(betaincinv(1, rest, 1 - ALPHA / 2))):.1f}"
    return [
        Finding(
            layer="c whole" if gaussian else "b per table",
            subject=subject + (": total variation" if gaussian else ": lower bound on epsilon"),
            passed=measured <= claimed,
            claimed=claimed,
            measured=measured,
            trials=2 * trials,
            power=power,
        )
    ]


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
    command = [sys.executable, "-c", _FRESH]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]  # noqa: S603
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
            "all tables 4 x 5, epsilon 8", release_all, pair, Budget(epsilon=8.0), trials=1_500 if quick else 20_000
        ),
    ]
    if not quick:
        findings += check_distinguishing(
            "both stages 4 x 5, epsilon 8", release_twice, pair, Budget(epsilon=8.0), trials=2_000
        )
    draws = 200_000 if quick else 2_000_000
    for mechanism in ("gaussian", "laplace"):
        for scale in (0.75, 3.5, 80.0):
            findings += check_noise(mechanism, scale, draws)
    return Audit(findings=(*findings, *check_fresh()))
