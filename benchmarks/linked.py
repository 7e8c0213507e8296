"""Linked tables: people and their events by one model, beside a flattened join at the same guarantee per person.

    python -m benchmarks.linked --people 20000 --people 100000

Generated visits (`sklar generate visits`), one fresh draw of noise each. All figures are total variations times 1,000,
averaged over pairs of attributes: of events (rows of the table of events); of people with events (rows of the join);
the largest difference of the distribution of events per person (KS); and of one attribute in two visits of a person
(every person with two or more counts once, with two visits at random). "Exact margins" have no noise and no dependence.
A flattened join has no keys: two of its visits are as good as strangers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click
import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.generate.visits import KEY, generate_visits, linked
from sklar.public.events import Linked
from sklar.public.schema import Schema
from sklar.release import fit, fit_linked
from sklar.rows.encode import encode

CAPS = (1, 4, 8, 16)
Shares = Mapping[object, NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is compared of two tables: shares by what they are about; none where tables have no keys."""

    events: Shares
    across: Shares
    number: NDArray[np.float64] | None
    twice: Shares


def figures(people: pl.DataFrame, events: pl.DataFrame, described: Linked) -> Figures:
    """Of a table of people, whose keys are 1, 2, ..., and one of their events."""
    person = encode(people.select(described.people.names), described.people)
    event = encode(events.select(described.events.names), described.events)
    owner = events[KEY].to_numpy() - 1
    number = np.bincount(owner, minlength=people.height)
    twice: dict[object, NDArray[np.float64]] = {}
    for j, size in enumerate(described.events.sizes.tolist()):
        counts = np.zeros((people.height, size))
        np.add.at(counts, (owner, event[j]), 1)
        several = number > 1
        weight = 1 / (number * (number - 1.0))[several, None]
        pairs = counts[several].T @ (weight * counts[several]) - np.diag((weight * counts[several]).sum(axis=0))
        twice[j] = pairs / several.sum()
    return Figures(
        events=_within(event, described.events),
        across=_across(person[:, owner], event, described),
        number=np.bincount(number, minlength=described.at_most + 1) / people.height,
        twice=twice,
    )


def of_join(joined: pl.DataFrame, described: Linked) -> Figures:
    """Of a flattened join, whose rows are events with what is known of their people."""
    person = encode(joined.select(described.people.names), described.people)
    event = encode(joined.select(described.events.names), described.events)
    alone = [np.bincount(event[j], minlength=size) for j, size in enumerate(described.events.sizes.tolist())]
    return Figures(
        events=_within(event, described.events),
        across=_across(person, event, described),
        number=None,
        twice={j: np.outer(levels, levels) / levels.sum() ** 2 for j, levels in enumerate(alone)},
    )


def independent(real: Figures) -> Figures:
    """The same margins without any dependence."""

    def apart(shares: Shares) -> Shares:
        return {key: np.outer(table.sum(axis=1), table.sum(axis=0)) for key, table in shares.items()}

    return Figures(events=apart(real.events), across=apart(real.across), number=None, twice=apart(real.twice))


def _within(codes: NDArray[np.int32], schema: Schema) -> Shares:
    sizes = schema.sizes.tolist()
    return {(i, j): _table(codes[i], codes[j], sizes[i], sizes[j]) for j in range(len(sizes)) for i in range(j)}


def _across(person: NDArray[np.int32], event: NDArray[np.int32], described: Linked) -> Shares:
    heights, widths = described.people.sizes.tolist(), described.events.sizes.tolist()
    return {
        (i, j): _table(person[i], event[j], height, width)
        for i, height in enumerate(heights)
        for j, width in enumerate(widths)
    }


def _table(first: NDArray[np.int32], second: NDArray[np.int32], height: int, width: int) -> NDArray[np.float64]:
    cells = first.astype(np.int64) * width + second
    return np.bincount(cells, minlength=height * width).reshape(height, width) / first.size


def _distance(real: Shares, other: Shares) -> float:
    return 1000 * float(np.mean([abs(real[key] - other[key]).sum() / 2 for key in real]))


def line(name: str, real: Figures, other: Figures, seconds: float | None = None) -> str:
    """One line of the page."""
    ks = "-"
    if real.number is not None and other.number is not None:
        ks = f"{1000 * abs(np.cumsum(real.number) - np.cumsum(other.number)).max():.1f}"
    shown = [_distance(getattr(real, part), getattr(other, part)) for part in ("events", "across", "twice")]
    took = "" if seconds is None else f"{seconds:.0f}"
    return f"| {name} | {shown[0]:.1f} | {shown[1]:.1f} | {ks} | {shown[2]:.1f} | {took} |"


@click.command()
@click.option("--people", multiple=True, type=int, default=(20_000, 100_000), show_default=True)
@click.option("--epsilon", type=float, default=1.0, show_default=True)
@click.option("--caps", multiple=True, type=int, default=CAPS, show_default=True, help="Rows per person of the join.")
@click.option("--draws", type=int, default=1, show_default=True, help="Fresh draws of noise of the linked model.")
def main(*, people: Sequence[int], epsilon: float, caps: Sequence[int], draws: int) -> None:
    """Print a table for each number of people."""
    described = linked()
    for n in people:
        blocks = list(generate_visits(n))
        persons, visits = (pl.concat([block[at] for block in blocks]) for at in (0, 1))
        real = figures(persons, visits, described)
        click.echo(f"\n{n:,} people, {visits.height:,} visits, epsilon {epsilon:g} per person; TV x 1,000\n")
        click.echo("| | event pairs | person-event pairs | events per person, KS | two visits of a person | s |")
        click.echo("|---|---|---|---|---|---|")
        click.echo(line("exact margins, independence", real, independent(real)))
        joined = visits.join(persons, on=KEY)
        for cap in caps:
            began = time.perf_counter()
            drawn = fit(joined, _flat(described, cap), epsilon=epsilon).sample(visits.height, seed=1)
            click.echo(line(f"flattened join, L = {cap}", real, of_join(drawn, described), time.perf_counter() - began))
        for draw in range(draws):
            began = time.perf_counter()
            model = fit_linked(persons, visits, described, epsilon=epsilon)
            tables = model.sample(seed=draw)
            seconds = time.perf_counter() - began
            click.echo(line("linked", real, figures(*tables, described), seconds))


def _flat(described: Linked, cap: int) -> Schema:
    """The schema of the join, in which at most so many rows of a person count."""
    attributes = described.people.to_dict()["attributes"] | described.events.to_dict()["attributes"]
    table = {"name": "join", "person": KEY, "count": "rows", "rows_per_person": cap}
    return Schema.from_dict({"table": table, "attributes": attributes})


if __name__ == "__main__":
    main()
