"""AIM and MST with the estimators of `mbi`, on integer codes, as a script inside an environment of its own: no sklar.

    python -P benchmarks/graphical.py METHOD IN.npz OUT.npz --epsilon 1 --delta 9.3e-10 --seconds 3600

METHOD is `mst`, or such as `aim2-8` and `aim3-80`: AIM (McKenna, Mullins, Sheldon and Miklau 2022) for all two-way or
all three-way tables, whose models take at most so many megabytes. `IN.npz` holds `codes`, shape (rows, m), and `sizes`,
shape (m,); `OUT.npz` gets synthetic codes of the same shape, the seconds, the rounds and whether all rounds were made:
AIM is stopped at the first round after `--seconds`.

Compiling takes most of the time, so little is compiled, and lightly. The tables by which AIM selects are inferred
without `mbi`, whose own way compiles once for each table and round. A table that is measured again is united with its
first measurement. XLA optimizes less. From the same measurements the models are the same to nine digits.

Neighbors differ in one replaced row: two cells of a table move, so that a Gaussian measurement costs 2 / (2 sigma^2) of
zCDP, and an L1 distance, by which both mechanisms select, moves by 2. With `--neighbors add-remove`, which is these
mechanisms' own promise, both are 1, and the number of rows is estimated from measurements, but for how many are drawn.
Selecting and measuring spend rho together, which is what (epsilon, delta) converts to (Canonne, Kamath and Steinke
2020).
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterable
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Clique = tuple[str, ...]

FLAGS = "--xla_cpu_multi_thread_eigen=false"
SMALL = 1 << 17


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

    def __init__(self, codes: NDArray[np.int64], sizes: NDArray[np.int64], moved: int = 2) -> None:
        from mbi import Dataset, Domain

        # Cells of a table in which neighbors differ by one.
        self.moved = moved
        self.names = [f"x{index}" for index in range(sizes.size)]
        self.domain = Domain(self.names, [int(size) for size in sizes])
        self._data = Dataset(dict(zip(self.names, codes.T, strict=True)), self.domain)
        self._seen: dict[Clique, NDArray[np.float64]] = {}
        self.rows, self.generator = len(codes), np.random.default_rng()

    def cost(self, sigma: float) -> float:
        """The zCDP of one measurement."""
        return self.moved / (2 * sigma**2)

    def sigma(self, rho: float) -> float:
        """The noise of a measurement that costs this much."""
        return math.sqrt(self.moved / (2 * rho))

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

    def measure_again(self, measured: dict[Clique, Any], clique: Clique, sigma: float) -> None:
        """Measure a table; one that was measured before takes the place of both: no new shape, nothing to compile."""
        new = self.measure(clique, sigma)
        if clique in measured:
            from mbi import LinearMeasurement

            old = measured[clique]
            weight = old.stddev**-2 / (old.stddev**-2 + new.stddev**-2)
            counts = weight * old.noisy_measurement + (1 - weight) * new.noisy_measurement
            new = LinearMeasurement(counts, clique, old.stddev * math.sqrt(weight))
        measured[clique] = new

    def far(self, model: Inferred, clique: Clique) -> float:
        """The L1 distance of a model's table from the exact one."""
        return float(np.abs(self.exact(clique) - model.table(clique)).sum())

    def choose(self, quality: list[float], epsilon: float, sensitivity: float) -> int:
        """By the exponential mechanism."""
        odds = np.array(quality) * epsilon / (2 * sensitivity)
        odds = np.exp(odds - odds.max())
        return int(self.generator.choice(len(quality), p=odds / odds.sum()))


class Inferred:
    """Tables of a fitted model by NumPy. `mbi` has the same ones, but compiles for every table anew in every round.

    A model is the product of its shares over the cliques of a junction tree, each but the first of a part of the tree
    over its shares of what it has in common with the clique before it.
    """

    def __init__(self, potentials: Any, total: float) -> None:
        from mbi.junction_tree import make_junction_tree, message_passing_order

        self._domain, self._total = potentials.domain, total
        self._tree = make_junction_tree(self._domain, potentials.cliques)[0]
        logs = {node: np.zeros([self._domain[name] for name in node]) for node in self._tree}
        for clique in potentials.cliques:
            node = min((each for each in logs if set(clique) <= set(each)), key=self._domain.size)
            logs[node] += self._spread(np.asarray(potentials[clique].values), clique, node)
        sent: dict[tuple[Clique, Clique], NDArray[np.float64]] = {}
        for one, other in message_passing_order(self._tree):
            shared = _shared(one, other)
            back = self._spread(sent[other, one], shared, one) if (other, one) in sent else 0.0
            sent[one, other] = _log_sum(logs[one] - back, _axes(one, shared))
            logs[other] = logs[other] + self._spread(sent[one, other], shared, other)
        self._shares = {node: np.exp(values - _log_sum(values, None)) for node, values in logs.items()}

    def _spread(self, values: NDArray[np.float64], clique: Clique, node: Clique) -> NDArray[np.float64]:
        """A table of some attributes of a node, to be broadcast over its others."""
        held = [name for name in node if name in clique]
        moved = values.transpose([clique.index(name) for name in held])
        return moved.reshape([self._domain[name] if name in held else 1 for name in node])

    def table(self, clique: Clique) -> NDArray[np.float64]:
        """The counts that the model expects, as a vector."""
        import networkx as nx

        kept: Any = self._tree.copy()
        pruned: list[Clique] = list(kept)
        while pruned:
            # A leaf that holds no wanted attribute that its neighbor lacks sums to one.
            pruned = [
                node for node in kept if kept.degree(node) < 2 and not set(clique) & set(node) - set(*kept[node])
            ][:1]
            kept.remove_nodes_from(pruned)
        number = {name: at for at, name in enumerate(self._domain)}
        factors: list[Any] = []
        for part in nx.connected_components(kept):
            first = next(iter(part))
            factors += [self._shares[first], [number[name] for name in first]]
            for before, node in nx.bfs_edges(kept, first):
                shares, shared = self._shares[node], _shared(node, before)
                below = shares.sum(axis=_axes(node, shared), keepdims=True)
                given = np.divide(shares, below, out=np.zeros_like(shares), where=below > 0)
                factors += [given, [number[name] for name in node]]
        shares = np.einsum(*factors, [number[name] for name in clique], optimize="greedy")
        return np.asarray(self._total * shares.ravel(), dtype=np.float64)


def oracle(potentials: Any, total: Any, **rest: Any) -> Any:
    """The tables of potentials: by `mbi` where it compiles a step of the descent, else without compiling."""
    import jax
    from mbi import CliqueVector, Factor
    from mbi.marginal_oracles import message_passing_hugin

    if any(isinstance(values, jax.core.Tracer) for values in jax.tree.leaves(potentials)):
        return message_passing_hugin(potentials, total, **rest)
    inferred, domain = Inferred(potentials, float(total)), potentials.domain
    tables = {}
    for clique in potentials.cliques:
        own = domain.project(clique)
        tables[clique] = Factor(own, jax.numpy.asarray(inferred.table(clique).reshape(own.shape)))
    return CliqueVector(domain, potentials.cliques, tables)


def estimated(table: Table, measured: Iterable[Any], **how: Any) -> tuple[Any, Inferred]:
    """The model that mirror descent fits to measurements, and its tables."""
    from mbi.estimation import MirrorDescent

    total = float(table.rows) if table.moved == 2 else None
    model = MirrorDescent(marginal_oracle=oracle).estimate(table.domain, list(measured), known_total=total, **how)
    return model, Inferred(model.potentials, float(model.total))


def _shared(one: Clique, other: Clique) -> Clique:
    return tuple(name for name in one if name in other)


def _axes(node: Clique, shared: Clique) -> tuple[int, ...]:
    return tuple(at for at, name in enumerate(node) if name not in shared)


def _log_sum(values: NDArray[np.float64], axes: tuple[int, ...] | None) -> Any:
    top = values.max(axis=axes, keepdims=True)
    return np.log(np.exp(values - top).sum(axis=axes)) + top.squeeze(axes)


def fit_mst(table: Table, rho: float) -> Any:
    """Single columns, then a tree of pairs that is chosen by their distance from independence."""
    m = len(table.names)
    sigma = table.sigma(rho / 3 / m)
    measured = [table.measure((name,), sigma) for name in table.names]
    _, inferred = estimated(table, measured)
    pairs = list(combinations(table.names, 2))
    distance = [table.far(inferred, pair) for pair in pairs]
    part = {name: name for name in table.names}
    sigma = table.sigma(rho / 3 / (m - 1))
    for _ in range(m - 1):
        apart = [at for at, (one, other) in enumerate(pairs) if part[one] != part[other]]
        epsilon = math.sqrt(8 * (rho / 3) / (m - 1))
        at = apart[table.choose([distance[each] for each in apart], epsilon, float(table.moved))]
        old, new = part[pairs[at][0]], part[pairs[at][1]]
        part = {name: new if own == old else own for name, own in part.items()}
        measured.append(table.measure(pairs[at], sigma))
    return estimated(table, measured)[0]


def fit_aim(table: Table, rho: float, order: int, megabytes: float, seconds: float) -> tuple[Any, int, bool]:
    """AIM for all tables of this order: the model, how many rounds it took, and whether it came to its end."""
    import jax
    from mbi.junction_tree import hypothetical_model_size

    begin = time.perf_counter()
    wanted = list(combinations(table.names, order))
    below = {part for clique in wanted for size in range(1, order + 1) for part in combinations(clique, size)}
    weight = {clique: float(sum(len(set(clique) & set(other)) for other in wanted)) for clique in below}
    limit = 16 * len(table.names)
    sigma, epsilon = table.sigma(0.9 * rho / limit), math.sqrt(8 * 0.1 * rho / limit)
    measured: dict[Clique, Any] = {(name,): table.measure((name,), sigma) for name in table.names}
    used = len(table.names) * table.cost(sigma)
    model, inferred = estimated(table, measured.values())
    rounds, last = 0, False
    while not last:
        if time.perf_counter() - begin > seconds:
            return model, rounds, False
        rounds += 1
        if rho - used < 2 * (table.cost(sigma) + epsilon**2 / 8):
            left = rho - used
            sigma, epsilon, last = table.sigma(0.9 * left), math.sqrt(8 * 0.1 * left), True
        used += table.cost(sigma) + epsilon**2 / 8
        small = [
            clique
            for clique in weight
            if len(clique) == 1 or hypothetical_model_size(table.domain, [*measured, clique]) <= megabytes * used / rho
        ]
        expected = math.sqrt(2 / math.pi) * sigma
        quality = [weight[each] * (table.far(inferred, each) - expected * table.domain.size(each)) for each in small]
        clique = small[table.choose(quality, epsilon, table.moved * max(weight[each] for each in small))]
        before = inferred.table(clique)
        table.measure_again(measured, clique, sigma)
        model, inferred = estimated(
            table, measured.values(), iters=1_000 if last else 300, warm_start=model, tol=None if last else 1e-4
        )
        if float(np.abs(inferred.table(clique) - before).sum()) <= expected * table.domain.size(clique):
            sigma, epsilon = sigma / 2, epsilon * 2
        spent = time.perf_counter() - begin
        print(f"round {rounds}: {spent:.0f} s, {used / rho:.0%} of rho, {', '.join(clique)}", flush=True)  # noqa: T201
        if rounds % 10 == 0:
            jax.clear_caches()
    return model, rounds, True


def main() -> None:
    """Fit a peer to codes, draw as many rows, and save them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method", help="mst, aim2-MEGABYTES or aim3-MEGABYTES")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--delta", type=float, default=2.0**-30)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--neighbors", choices=("replace-one", "add-remove"), default="replace-one")
    asked = parser.parse_args()
    with np.load(asked.source) as given:
        codes, sizes = given["codes"].astype(np.int64), given["sizes"].astype(np.int64)
    # Models of small tables take less time to fit than to compile.
    level = 0 if float(np.prod(sizes.astype(float))) <= SMALL else 1
    os.environ["XLA_FLAGS"] = f"{FLAGS} --xla_backend_optimization_level={level}"
    os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    import jax

    jax.config.update("jax_enable_x64", val=True)
    table = Table(codes, sizes, moved=2 if asked.neighbors == "replace-one" else 1)
    begin, rho = time.perf_counter(), rho_of(asked.epsilon, asked.delta)
    if asked.method == "mst":
        model, rounds, whole = fit_mst(table, rho), 0, True
    else:
        order, megabytes = asked.method.removeprefix("aim").split("-")
        model, rounds, whole = fit_aim(table, rho, int(order), float(megabytes), asked.seconds)
    drawn = model.synthetic_data(rows=table.rows).to_dict()
    codes = np.stack([np.asarray(drawn[name]) for name in table.names], axis=1).astype(np.int32)
    seconds = time.perf_counter() - begin
    # Under another name first: a file that is there is whole.
    part = asked.target.with_suffix(".part.npz")
    took: Any = {"seconds": seconds, "rounds": rounds, "whole": whole, "version": f"mbi=={version('mbi')}"}
    np.savez_compressed(part, codes=codes.astype(np.int16), **took)
    part.replace(asked.target)


if __name__ == "__main__":
    main()
