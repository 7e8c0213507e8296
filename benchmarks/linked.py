"""Linked tables: people and their events by one model, in order of time, and beside a flattened join.

    python -m benchmarks.linked --people 20000 --people 100000           # beside a flattened join
    python -m benchmarks.linked --page                                   # goals of order: docs/results/linked.md

Generated visits (`sklar generate visits`), fresh draws of noise. All figures are total variations times 1,000, of pairs
averaged over pairs of attributes: of events (rows of the table of events); of people with events (rows of the join);
the largest difference of the distribution of events per person (KS); and of one attribute in two visits of a person
(every person with two or more counts once, with two visits at random). "Exact margins" have no noise and no dependence.
A flattened join has no keys: two of its visits are as good as strangers.

Of order: the number of events of a person; the type of a first visit; the types of a visit and the next one; days
between two visits, in bins; how many types a person has; days of all visits of a person, in bins. A panel has a row for
every year that a person was seen in, and no two for one year.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklar.public.events import Linked

from benchmarks.pages import RESULTS, mark, versions, write_page
from sklar.generate.visits import KEY, generate_visits, linked
from sklar.public.schema import Schema
from sklar.release import fit, fit_linked
from sklar.rows.encode import encode

CAPS = (1, 4, 8, 16)
Shares = Mapping[object, NDArray[np.float64]]

SIZES = (10_000, 100_000)
# Of 10,000 people at epsilon 1, times 1,000; of 100,000 half of each.
GOALS = {
    "number of events": 20, "first type": 30, "transitions": 70, "gaps": 70, "event pairs": 35, "person-event": 50,
    "distinct types": 30, "totals per person": 40,
}  # fmt: skip
# Days between two visits, and days of all visits of a person: where bins begin, and the last one ends.
GAPS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1_096)
TOTALS = (0, 1, 2, 3, 5, 8, 12, 16, 24, 32, 48, 64, 96, 128, 10_000)
YEARS = (2010, 2020)
MARK = mark("linked")
OTHERWISE = """# Linked tables in order of time

Patients and their visits (`sklar generate visits`, 6 attributes of patients and 7 of visits, `order = "date"`,
`follows = "type"`), released together for one budget per person, delta 2^-30. All distances are total variations times
1,000. Goals were set before this was built; what misses one is said to. Rows without an order are put in order of their
dates, as one would."""


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


def in_time(people: pl.DataFrame, events: pl.DataFrame) -> dict[str, Any]:
    """Shares of what has to do with order, and the median gap; visits of each patient are put in order of time."""
    events = events.sort(KEY, "date", maintain_order=True)
    owner, types = events[KEY].to_numpy(), events["type"].cast(pl.String).to_numpy()
    levels = sorted(set(types.tolist()))
    of_type, days = np.searchsorted(levels, types), events["date"].to_physical().to_numpy().astype(np.int64)
    first: NDArray[np.bool_] = np.diff(owner, prepend=0) > 0
    after = np.flatnonzero(~first)
    gaps = days[after] - days[after - 1]
    each = events.group_by(KEY).agg(types=pl.col("type").n_unique(), days=pl.col("days").sum())
    nobody = people.height - each.height
    totals = np.concatenate([each["days"].to_numpy(), np.zeros(nobody, dtype=np.int64)])
    found: dict[str, NDArray[Any]] = {
        "number of events": np.bincount(np.bincount(owner, minlength=people.height + 1)[1:], minlength=40),
        "first type": np.bincount(of_type[first], minlength=len(levels)),
        "transitions": np.bincount(of_type[after - 1] * len(levels) + of_type[after], minlength=len(levels) ** 2),
        "gaps": np.histogram(gaps, GAPS)[0],
        "distinct types": np.bincount(each["types"].to_numpy(), minlength=len(levels) + 1) + nobody * np.eye(1, 6)[0],
        "totals per person": np.histogram(totals, TOTALS)[0],
    }
    return {name: counts / counts.sum() for name, counts in found.items()} | {"median gap": np.median(gaps)}


def compared(real: tuple[pl.DataFrame, pl.DataFrame], other: tuple[pl.DataFrame, pl.DataFrame]) -> dict[str, float]:
    """The distances that goals are about, times 1,000, and the median gap of the other tables."""
    described = linked()
    one, two, known, drawn = in_time(*real), in_time(*other), figures(*real, described), figures(*other, described)
    found = {name: 500 * float(abs(one[name] - two[name]).sum()) for name in GOALS if name in one}
    found |= {
        "event pairs": _distance(known.events, drawn.events),
        "person-event": _distance(known.across, drawn.across),
    }
    found |= {"two visits": _distance(known.twice, drawn.twice), "median gap": float(two["median gap"])}
    return {name: round(value, 1) for name, value in found.items()}


def panel(people: int, seed: int = 1) -> tuple[pl.DataFrame, pl.DataFrame, Linked]:
    """People seen in some of ten years, from one to another without a break for most, and what is known of them."""
    rng, years = np.random.default_rng(seed), np.arange(*YEARS)
    begin, length = rng.integers(0, 10, people), 1 + rng.poisson(4.0, people)
    seen = (np.arange(10) >= begin[:, None]) & (np.arange(10) < (begin + length)[:, None])
    seen &= rng.random(seen.shape) < 0.95
    wealth, state = rng.integers(0, 3, people), np.zeros(seen.shape, dtype=np.int64)
    state[:, 0] = rng.random(people) < 0.3 + 0.2 * wealth
    for year in range(1, 10):
        stays = rng.random(people) < 0.85
        state[:, year] = np.where(stays, state[:, year - 1], rng.integers(0, 3, people))
    owner, at = np.nonzero(seen)
    rows = pl.DataFrame({KEY: owner + 1, "year": years[at], "state": state[owner, at]})
    whole = {"type": "integer", "edges": [0, 1, 2, 3]}
    known = Schema.from_dict({"table": {"name": "people"}, "attributes": {"wealth": whole}})
    of_years = {"year": {"type": "integer", "edges": list(range(YEARS[0], YEARS[1] + 1))}, "state": whole}
    events = Schema.from_dict({"table": {"name": "years"}, "attributes": of_years})
    described = Linked(
        people=known, events=events, people_key=KEY, events_key=KEY, at_most=10, order="year", follows="state",
        unique=("year",),
    )  # fmt: skip
    return pl.DataFrame({KEY: np.arange(people) + 1, "wealth": wealth}), rows, described


def repeated(events: pl.DataFrame) -> tuple[float, float]:
    """Of consecutive rows of a person, the shares that are of one year, and of two years in a row, in percent."""
    gaps = events.sort(KEY, "year").select(pl.col("year").diff().over(KEY)).to_series().drop_nulls()
    return round(100 * float((gaps == 0).mean()), 1), round(100 * float((gaps == 1).mean()), 1)  # type: ignore[arg-type]


def goals_page(sizes: Sequence[int], epsilon: float, draws: int) -> None:
    """Release the hospital with and without an order, and a panel, and write the page."""
    document: dict[str, object] = {"header": versions(), "epsilon": epsilon, "draws": draws}
    lines = []
    for n in sizes:
        made = list(generate_visits(n))
        persons, visits = (pl.concat([block[at] for block in made]) for at in (0, 1))
        unordered = replace(linked(), order="", follows="")
        runs = [
            [compared((persons, visits), fit_linked(persons, visits, described, epsilon=epsilon).sample(seed=draw))
             for draw in range(draws)]
            for described in (unordered, linked())
        ]  # fmt: skip
        exact = in_time(persons, visits)["median gap"]
        document[f"{n} people"] = {"without order": runs[0], "in order": runs[1], "median gap": float(exact)}
        lines += [
            f"\n**{n:,} patients, {visits.height:,} visits, epsilon {epsilon:g}**: the mean of {draws} draws and, in "
            f"brackets, the least and the most. The true median gap is {exact:g} days.\n",
            "| | goal | in order | | without order |", "|---|---|---|---|---|",
        ]  # fmt: skip
        for name in (*GOALS, "two visits", "median gap"):
            plain, ordered = ([run[name] for run in of] for of in runs)
            goal = GOALS[name] / (1 if n < SIZES[1] else 2) if name in GOALS else None
            met = "" if goal is None else "met" if np.mean(ordered) <= goal else "**missed**"
            shown = [f"{np.mean(of):.1f} ({min(of):.1f}-{max(of):.1f})" for of in (ordered, plain)]
            lines.append(f"| {name} | {'' if goal is None else f'{goal:g}'} | {shown[0]} | {met} | {shown[1]} |")
    seen, years, by_year = panel(SIZES[0])
    lines += [
        f"\n**A panel of {SIZES[0]:,} people by year** (`unique = [\"year\"]`), percent of its steps\n",
        "| | one year twice | two years in a row |", "|---|---|---|",
    ]  # fmt: skip
    plainly = replace(by_year, order="", follows="", unique=())
    of_years: list[tuple[str, pl.DataFrame]] = [
        ("real", years),
        *((f"in order, draw {draw}", fit_linked(seen, years, by_year, epsilon=epsilon).sample(seed=draw)[1])
          for draw in range(draws)),
        ("without order", fit_linked(seen, years, plainly, epsilon=epsilon).sample(seed=0)[1]),
    ]  # fmt: skip
    for name, rows in of_years:
        same, next_year = repeated(rows)
        document[f"panel, {name}"] = [same, next_year]
        lines.append(f"| {name} | {same} | {next_year} |")
    write_page(
        RESULTS, "linked", marked=MARK, otherwise=OTHERWISE, document=document, markdown="\n".join(lines), figure=None
    )
    click.echo("\n".join(lines))


@click.command()
@click.option("--people", multiple=True, type=int, help="20000 and 100000, of the page 10000 and 100000.")
@click.option("--epsilon", type=float, default=1.0, show_default=True)
@click.option("--caps", multiple=True, type=int, default=CAPS, show_default=True, help="Rows per person of the join.")
@click.option("--draws", type=int, default=3, show_default=True, help="Fresh draws of noise of the linked model.")
@click.option("--page", is_flag=True, help="Write docs/results/linked.md instead, of goals and order.")
def main(*, people: Sequence[int], epsilon: float, caps: Sequence[int], draws: int, page: bool) -> None:
    """Print a table for each number of people."""
    if page:
        goals_page(people or SIZES, epsilon, draws)
        return
    described = linked()
    for n in people or (20_000, 100_000):
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
