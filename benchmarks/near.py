"""How far errors are from two limits: rows drawn again, and the best unbiased answers at the same budget.

Both are errors of two-way tables as `benchmarks.judge` states them, so that they can stand beside a method's own. A
method is below the first where its rows are nearer to the table than a fresh sample of the same size would be, and
below the second where it knows more than the noisy counts say (that shares are not negative, that a model fits).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from benchmarks.judge import judge
from benchmarks.tables import Bench
from sklar.kernel.theorems import DEFAULT_DELTA, curve_epsilon

DRAWS = 3


def resampled(bench: Bench) -> dict[str, float]:
    """Mean errors of as many rows drawn from the table with replacement: no privacy, and no model."""
    found = []
    for seed in range(DRAWS):
        chosen = np.random.default_rng(seed).integers(0, bench.n_rows, bench.n_rows)
        found.append(judge(bench, np.ascontiguousarray(bench.codes[:, chosen])))
    return {name: float(np.mean([each[name] for each in found])) for name in ("tv2", "tv3")}


def unbiased_tv2(sizes: ArrayLike, rows: int, epsilon: float, delta: float = DEFAULT_DELTA) -> float:
    """The expected TV of two-way tables whose unbiased answers have the least sum of variances at this budget.

    Gaussian noise on the residuals of each attribute and each pair, by the closed form of Xiao and others
    (ResidualPlanner, 2023): a residual over A costs p = 2 prod (1 - 1/K) over its variance s when one row is replaced,
    up to terms of 1/prod K, and adds s v to the sum of variances; s = sqrt(p / v) sum(sqrt(p v)) / mu^2 is best. No
    share is cut at zero: where noise exceeds the table this may be above 1.

    >>> round(unbiased_tv2([2, 2], 1_000, 1.0), 4) < round(unbiased_tv2([20, 20], 1_000, 1.0), 4)
    True
    """
    k = np.asarray(sizes, dtype=float)
    one, other = np.triu_indices(k.size, 1)
    inside = 1 - 1 / k
    costs = np.concatenate([2 * inside, 2 * inside[one] * inside[other]])
    weights = np.concatenate([(k - 1) * (np.sum(1 / k) - 1 / k), (k[one] - 1) * (k[other] - 1)])
    mu_squared = brentq(lambda log: curve_epsilon(math.exp(log), delta) - epsilon, -30, 12)
    variances = np.sqrt(costs / weights) * np.sum(np.sqrt(costs * weights)) / math.exp(mu_squared)
    single, pair = variances[: k.size] * inside, variances[k.size :] * inside[one] * inside[other]
    cell = single[one] / k[other] ** 2 + single[other] / k[one] ** 2 + pair
    return float(np.mean(0.5 * math.sqrt(2 / math.pi) * k[one] * k[other] * np.sqrt(cell) / rows))


def limits(bench: Bench, epsilons: tuple[float, ...]) -> dict[str, Any]:
    """Both limits of a table."""
    best = {f"{epsilon:g}": unbiased_tv2(bench.schema.sizes, bench.n_rows, epsilon) for epsilon in epsilons}
    return {"resampled": resampled(bench), "unbiased_tv2": best}
