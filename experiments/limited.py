"""How often 95% intervals hold the limited means of numbers whose bins a release found, or whose edges are public.

    python -m experiments.limited --releases 12 --epsilon 1 --epsilon 4

Ten columns of different shapes, of known truth, in one table of 20,000 rows, asked about the table itself, which is the
harder target. Of a found column the mean is that of numbers limited to what the answer names.
"""

from __future__ import annotations

import re
from collections import defaultdict

import click
import numpy as np
import polars as pl
from numpy.typing import NDArray

import sklar
from sklar.public.axis import AXES, Spacing
from sklar.public.schema import Schema

ROWS, HIGH = 20_000, 1_000_000


def columns(generator: np.random.Generator, n: int = ROWS) -> dict[str, NDArray[np.int64]]:
    """Numbers of ten shapes."""
    share = generator.random(n)
    heaps = generator.choice([0, 100, 500, 1000, 2000], n, p=[0.3, 0.2, 0.2, 0.2, 0.1])
    low, high = generator.normal(100, 10, n), generator.normal(3000, 500, n)
    drawn = {
        "lognormal": generator.lognormal(7, 1, n),
        "heavy": generator.lognormal(5, 2, n),
        "exponential": generator.exponential(300, n),
        "uniform": generator.uniform(0, 5000, n),
        "normal": generator.normal(500, 80, n),
        "heaps": np.where(share < 0.5, heaps, generator.gamma(2, 400, n)),
        "rounded": np.round(generator.lognormal(7, 0.8, n), -2),
        "zeros": np.where(share < 0.9, 0, generator.lognormal(8, 0.8, n)),
        "mixture": np.where(share < 0.7, low, high),
        "counts": generator.poisson(generator.gamma(1, 3, n)),
    }
    return {name: np.clip(values, 0, HIGH - 1).astype(np.int64) for name, values in drawn.items()}


def schema_of(real: dict[str, NDArray[np.int64]], *, found: bool) -> Schema:
    """Bounds far beyond all rows, or twelve public bins up to half more than 99.5% of the rows have."""
    lines = []
    for name, values in real.items():
        entry = f'{name} = {{ type = "integer", '
        if found:
            lines.append(entry + f'domain = "private", low = 0, high = {HIGH}, bins = 20 }}')
            continue
        spacing: Spacing = "equal" if name in ("uniform", "normal", "rounded", "mixture", "counts") else "log"
        edges = AXES["integer"].spaced(0, int(1.5 * np.quantile(values, 0.995)) + 2, 12, spacing)
        lines.append(entry + f"edges = {list(edges)} }}")
    return Schema.from_toml("[attributes]\n" + "\n".join(lines))


@click.command()
@click.option("--releases", default=12)
@click.option("--epsilon", "epsilons", multiple=True, default=(1.0, 4.0), type=float)
def main(releases: int, epsilons: tuple[float, ...]) -> None:
    """Print the share of intervals that hold, by epsilon, kind of domain and shape."""
    generator = np.random.default_rng(28)
    for epsilon in epsilons:
        for found in (True, False):
            held: dict[str, list[bool]] = defaultdict(list)
            for _ in range(releases):
                real = columns(generator)
                model = sklar.fit(pl.DataFrame(real), schema_of(real, found=found), epsilon=epsilon)
                for name, values in real.items():
                    answer = model.infer(f"mean({name})", target="table")
                    ends = (0, model.schema.attribute(name).edges[-1])
                    if name in answer.limits:
                        ends = tuple(map(int, re.findall(r"-?\d+", answer.limits[name])))[:2]  # type: ignore[assignment]
                    figure, truth = answer.figures[0], float(np.clip(values, ends[0], ends[1] - 1).mean())
                    held[name].append((figure.low or 0.0) <= truth <= (figure.high or np.inf))
            whole = np.mean([each for own in held.values() for each in own])
            each = ", ".join(f"{name} {np.mean(own):.2f}" for name, own in held.items())
            click.echo(f"epsilon {epsilon:g}, {'found' if found else 'public'}: {whole:.3f} ({each})")


if __name__ == "__main__":
    main()
