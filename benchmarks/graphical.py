"""AIM and MST with the estimators of `mbi`, on integer codes, as a script inside an environment of its own: no sklar.

    python -P benchmarks/graphical.py METHOD IN.npz OUT.npz --epsilon 1 --delta 9.3e-10 --seconds 3600

METHOD is `mst`, or `aim2` or `aim3`: AIM (McKenna, Mullins, Sheldon and Miklau 2022) for all two-way or all three-way
tables, whose models take at most `--megabytes`. `IN.npz` holds `codes`, shape (rows, m), and `sizes`, shape (m,);
`OUT.npz` gets synthetic codes of the same shape, the seconds, the rounds and whether all rounds were made: AIM compiles
anew in every round, and is stopped at the first round after `--seconds`.

Neighbors differ in one replaced row: two cells of a table move, so that a Gaussian measurement costs 2 / (2 sigma^2) of
zCDP, and an L1 distance, by which both mechanisms select, moves by 2. Selecting and measuring spend rho together, which
is what (epsilon, delta) converts to (Canonne, Kamath and Steinke 2020).
"""

from __future__ import annotations

import argparse
import math
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Clique = tuple[str, ...]


def rho_of(epsilon: float, delta: float) -> float:
    """The zCDP that (epsilon, delta) allows."""
    alpha = 1 + np.exp(np.linspace(-6, 9, 6_001))
    low, high = 0.0, epsilon + 1
    for _ in range(100):
        rho = (low + high) / 2
        spent = float(np.min(rho * alpha + np.log1p(-1 / alpha) - np.log(delta * alpha) / (alpha - 1)))
        low, high = (rho, high) if spent <= epsilon else (low, rho)
    return low


class Table:
    """Exact tables, and measurements of them."""

    def __init__(self, codes: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        from mbi import Dataset, Domain

        self.names = [f"x{index}" for index in range(sizes.size)]
        self.domain = Domain(self.names, [int(size) for size in sizes])
        self._data = Dataset(dict(zip(self.names, codes.T, strict=True)), self.domain)
        self._seen: dict[Clique, NDArray[np.float64]] = {}
        self.rows, self.generator = len(codes), np.random.default_rng()

    def exact(self, clique: Clique) -> NDArray[np.float64]:
        """The counts of a table."""
        if clique not in self._seen:
            self._seen[clique] = np.asarray(self._data.project(clique).datavector(), dtype=np.float64)
        return self._seen[clique]

    def measure(self, clique: Clique, sigma: float) -> Any:
        """The counts with Gaussian noise."""
        from mbi import LinearMeasurement

        counts = self.exact(clique)
        return LinearMeasurement(counts + self.generator.normal(0, sigma, counts.size), clique, float(sigma))

    def far(self, model: Any, clique: Clique) -> float:
        """The L1 distance of a model's table from the exact one."""
        return float(np.abs(self.exact(clique) - _table(model, clique)).sum())

    def choose(self, quality: list[float], epsilon: float, sensitivity: float) -> int:
        """By the exponential mechanism."""
        odds = np.array(quality) * epsilon / (2 * sensitivity)
        odds = np.exp(odds - odds.max())
        return int(self.generator.choice(len(quality), p=odds / odds.sum()))


def _table(model: Any, clique: Clique) -> NDArray[np.float64]:
    return np.asarray(model.project(clique).datavector(), dtype=np.float64)


def fit_mst(table: Table, rho: float) -> Any:
    """Single columns, then a tree of pairs that is chosen by their distance from independence."""
    from mbi.estimation import MirrorDescent

    m, total = len(table.names), float(table.rows)
    sigma = math.sqrt(m / (rho / 3))
    measured = [table.measure((name,), sigma) for name in table.names]
    model = MirrorDescent().estimate(table.domain, measured, known_total=total)
    pairs = list(combinations(table.names, 2))
    distance = [table.far(model, pair) for pair in pairs]
    part = {name: name for name in table.names}
    sigma = math.sqrt((m - 1) / (rho / 3))
    for _ in range(m - 1):
        apart = [at for at, (one, other) in enumerate(pairs) if part[one] != part[other]]
        at = apart[table.choose([distance[each] for each in apart], math.sqrt(8 * (rho / 3) / (m - 1)), 2.0)]
        old, new = part[pairs[at][0]], part[pairs[at][1]]
        part = {name: new if own == old else own for name, own in part.items()}
        measured.append(table.measure(pairs[at], sigma))
    return MirrorDescent().estimate(table.domain, measured, known_total=total)


def fit_aim(table: Table, rho: float, order: int, megabytes: float, seconds: float) -> tuple[Any, int, bool]:
    """AIM for all tables of this order: the model, how many rounds it took, and whether it came to its end."""
    import jax
    from mbi.estimation import MirrorDescent
    from mbi.junction_tree import hypothetical_model_size

    begin, total = time.perf_counter(), float(table.rows)
    wanted = list(combinations(table.names, order))
    below = {part for clique in wanted for size in range(1, order + 1) for part in combinations(clique, size)}
    weight = {clique: float(sum(len(set(clique) & set(other)) for other in wanted)) for clique in below}
    limit = 16 * len(table.names)
    sigma, epsilon = math.sqrt(limit / (0.9 * rho)), math.sqrt(8 * 0.1 * rho / limit)
    measured = [table.measure((name,), sigma) for name in table.names]
    used = len(table.names) / sigma**2
    model = MirrorDescent().estimate(table.domain, measured, known_total=total)
    rounds, last = 0, False
    while not last:
        if time.perf_counter() - begin > seconds:
            return model, rounds, False
        rounds += 1
        if rho - used < 2 * (1 / sigma**2 + epsilon**2 / 8):
            left = rho - used
            sigma, epsilon, last = math.sqrt(1 / (0.9 * left)), math.sqrt(8 * 0.1 * left), True
        used += 1 / sigma**2 + epsilon**2 / 8
        held = [each.clique for each in measured]
        small = [
            clique
            for clique in weight
            if len(clique) == 1 or hypothetical_model_size(table.domain, [*held, clique]) <= megabytes * used / rho
        ]
        expected = math.sqrt(2 / math.pi) * sigma
        quality = [weight[each] * (table.far(model, each) - expected * table.domain.size(each)) for each in small]
        clique = small[table.choose(quality, epsilon, 2 * max(weight[each] for each in small))]
        before = _table(model, clique)
        measured.append(table.measure(clique, sigma))
        model = MirrorDescent().estimate(
            table.domain,
            measured,
            known_total=total,
            iters=1_000 if last else 300,
            warm_start=model,
            tol=None if last else 1e-4,
        )
        if float(np.abs(_table(model, clique) - before).sum()) <= expected * table.domain.size(clique):
            sigma, epsilon = sigma / 2, epsilon * 2
        if rounds % 10 == 0:
            jax.clear_caches()
    return model, rounds, True


def main() -> None:
    """Fit a peer to codes, draw as many rows, and save them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method", choices=("mst", "aim2", "aim3"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--delta", type=float, default=2.0**-30)
    parser.add_argument("--megabytes", type=float, default=8.0)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    asked = parser.parse_args()
    import jax

    jax.config.update("jax_enable_x64", val=True)
    with np.load(asked.source) as given:
        table = Table(given["codes"].astype(np.int64), given["sizes"].astype(np.int64))
    begin, rho = time.perf_counter(), rho_of(asked.epsilon, asked.delta)
    if asked.method == "mst":
        model, rounds, whole = fit_mst(table, rho), 0, True
    else:
        model, rounds, whole = fit_aim(table, rho, int(asked.method[3]), asked.megabytes, asked.seconds)
    drawn = model.synthetic_data(rows=table.rows).to_dict()
    codes = np.stack([np.asarray(drawn[name]) for name in table.names], axis=1).astype(np.int32)
    seconds = time.perf_counter() - begin
    np.savez_compressed(asked.target, codes=codes, seconds=seconds, rounds=rounds, whole=whole)


if __name__ == "__main__":
    main()
