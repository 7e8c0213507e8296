"""Whether intervals cover as often as they promise, and forecasts hold: many noise draws on two tables.

    python -m experiments.coverage

Noise comes from the operating system and cannot be seeded, so the last digit of a figure moves from run to run. Only
noise is judged: noisy tables against exact counts of the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from experiments.asked import measure_counts
from experiments.data import Dataset, opened
from experiments.record import table
from sklar.answer.effects import normal_quantile, pool_effects
from sklar.answer.infer.onestep import means_of
from sklar.answer.query import estimate
from sklar.budget.certificate import Measured
from sklar.budget.forecast import forecast
from sklar.kernel.theorems import Budget, Mechanism, Neighbors
from sklar.public.schema import Schema
from sklar.rows.count import Exact, ask_all, count
from sklar.rows.read import open_source

ROWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One way to measure."""

    name: str
    epsilon: float = 1.0
    neighbors: Neighbors = "replace-one"
    mechanism: Mechanism = "gaussian"


SETTINGS = (
    Setting(name="epsilon 1"),
    Setting(name="epsilon 0.1", epsilon=0.1),
    Setting(name="epsilon 1, add-remove", neighbors="add-remove"),
    Setting(name="epsilon 1, Laplace noise", mechanism="laplace"),
)


def counts_of(dataset: Dataset) -> Exact:
    """Exact counts, which an experiment may look at: its tables are not confidential."""
    source = open_source(dataset.path)
    return count(source.batches(dataset.schema.names), ask_all(dataset.schema))


def draws(counts: Exact, schema: Schema, setting: Setting, times: int) -> Iterator[Measured]:
    """The same counts measured again and again."""
    budget = Budget(epsilon=setting.epsilon, neighbors=setting.neighbors, mechanism=setting.mechanism)
    for _ in range(times):
        yield measure_counts(counts, schema, budget)


def coverage(
    counts: Exact, schema: Schema, setting: Setting, *, times: int, level: float = 0.95, seed: int = 1
) -> dict[str, float]:
    """Shares of intervals that hold the exact count: one-way, two-way, and random sets of cells of both."""
    generator = np.random.default_rng(seed)
    geometry = schema.cells
    held: dict[str, list[float]] = {"one-way": [], "two-way": [], "one-way sets": [], "two-way sets": []}
    for measured in draws(counts, schema, setting, times):
        i, j = sorted(generator.choice(geometry.n_attributes, size=2, replace=False).tolist())
        exact: dict[str, NDArray[np.int64]] = {
            "one-way": counts.one_way[geometry.levels(i)],
            "two-way": geometry.table(counts.pairs, i, j),
        }
        for kind, names in (("one-way", (schema.names[i],)), ("two-way", (schema.names[i], schema.names[j]))):
            found = estimate(measured, *names, level=level)
            held[kind].append(float(np.mean((found.low <= exact[kind]) & (exact[kind] <= found.high))))
        for kind, where in (("one-way", [i]), ("two-way", [i, j])):
            cells = generator.random(exact[kind].shape) < generator.random()
            effects = pool_effects(measured, where)
            (share,), noise = means_of({effects.where: cells[None].astype(np.float64)}, effects)
            off = abs(share - exact[kind][cells].sum() / counts.n_rows)
            held[f"{kind} sets"].append(float(off <= normal_quantile(level) * math.sqrt(noise[0, 0])))
    return {kind: float(np.mean(shares)) for kind, shares in held.items()}


def noise_errors(counts: Exact, schema: Schema, setting: Setting, *, times: int) -> tuple[float, float]:
    """Root mean square errors of one-way and two-way counts, over all cells and draws."""
    squares: list[tuple[float, float]] = []
    for measured in draws(counts, schema, setting, times):
        one = np.concatenate([estimate(measured, name).counts for name in schema.names]) - counts.one_way
        two = [estimate(measured, *pair).counts.ravel() for pair in combinations(schema.names, 2)]
        squares.append((float(np.mean(one**2)), float(np.mean((np.concatenate(two) - counts.pairs) ** 2))))
    means = np.mean(squares, axis=0)
    return math.sqrt(means[0]), math.sqrt(means[1])


@click.command()
@click.option("--times", default=1000, show_default=True, help="Noise draws for coverage; forecasts take a twentieth.")
@click.option("--data", "folder", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Adult's folder.")
def main(times: int, folder: Path | None) -> None:
    """Print coverage of intervals and accuracy of forecasts as Markdown."""
    coverages, errors = [], []
    for name in ("census", "adult"):
        with opened(name, folder, ROWS) as dataset:
            counts, schema = counts_of(dataset), dataset.schema
            for setting in SETTINGS:
                found = coverage(counts, schema, setting, times=times)
                coverages.append([f"{dataset.title}, {setting.name}", *(f"{share:.1%}" for share in found.values())])
            for epsilon in (0.25, 1.0, 4.0):
                setting = Setting(name=f"epsilon {epsilon:g}", epsilon=epsilon)
                one, two = noise_errors(counts, schema, setting, times=max(times // 20, 2))
                expected = forecast(schema, rows=counts.n_rows, epsilon=epsilon)
                errors.append(
                    [
                        f"{dataset.title}, {setting.name}",
                        *(f"{value:,.1f}" for value in (expected.one_way_error, one)),
                        f"{expected.one_way_error / one - 1:+.1%}",
                        *(f"{value:,.1f}" for value in (expected.pair_error, two)),
                        f"{expected.pair_error / two - 1:+.1%}",
                    ]
                )
    click.echo(f"Coverage of 95% intervals over {times:,} noise draws:\n")
    click.echo(table(["table", "one-way", "two-way", "sets of levels", "sets of pairs"], coverages))
    click.echo("Standard error of a count, forecast and measured (root mean square over all cells and draws):\n")
    head = ["table", "one-way, forecast", "measured", "off by", "two-way, forecast", "measured", "off by"]
    click.echo(table(head, errors))


if __name__ == "__main__":
    main()
