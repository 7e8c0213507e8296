"""Linked tables of a generated hospital: how near people with all their rows come to the real ones.

    python -m benchmarks.linked --people 10000 --draws 1                 # goals at that size
    python -m benchmarks.linked --page                                   # goals of order: docs/results/linked.md

Fresh draws of noise. All figures are total variations times 1,000. Of pairs of attributes, the mean over pairs: of a
visit (rows of the table of visits), of patients and a visit (rows of the join), of one attribute in two visits of a
patient (whoever has two or more counts once, with two at random). Of order: the number of visits of a patient; the type
of a first visit; the types of a visit and the next one; days between two visits, in bins. Of patients: how many types
their visits have; days of all visits, in bins; the numbers of visits and of prescriptions, in bins. A panel has a row
for every year that a person was seen in, and no two for one year.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import click
import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.pages import RESULTS, mark, versions, write_page
from sklar.generate.visits import KEY, generate_visits, hospital
from sklar.public.schema import Schema
from sklar.public.tree import Branch, Tree
from sklar.release import fit
from sklar.rows.encode import encode

Shares = Mapping[object, NDArray[np.float64]]
Frames = Mapping[str, pl.DataFrame]

SIZES = (10_000, 100_000)
# Of 10,000 people at epsilon 1, times 1,000; of 100,000 half of each.
GOALS = {
    "number of events": 20, "first type": 30, "transitions": 70, "gaps": 70, "event pairs": 35, "person-event": 50,
    "distinct types": 30, "totals per person": 40, "visits x prescriptions": 50,
}  # fmt: skip
# Days between two visits, and days of all visits of a person: where bins begin, and the last one ends.
GAPS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1_096)
TOTALS = (0, 1, 2, 3, 5, 8, 12, 16, 24, 32, 48, 64, 96, 128, 10_000)
NUMBERS, YEARS = (0, 1, 2, 3, 5, 9, 17, 99), (2010, 2020)
MARK = mark("linked")
OTHERWISE = """# Linked tables in order of time

A hospital (`sklar generate visits`; `order = "date"`, `follows = "type"`), released for one budget per person, delta
2^-30: all four tables, or patients and visits alone, with and without an order. All distances are total variations
times 1,000. Goals were set before this was built; what misses one is said to. Rows without an order are put in order of
their dates, as one would."""


def figures(frames: Frames, tree: Tree) -> dict[str, Shares]:
    """Shares of pairs: of a visit, of patients and a visit, and of two visits. Patients have keys 1, 2, ..."""
    (root, below), (people, events) = tree.branches[:2], (frames[each.name] for each in tree.branches[:2])
    person, event = (encode(f.select(b.schema.names), b.schema) for f, b in ((people, root), (events, below)))
    owner = events[KEY].to_numpy() - 1
    number = np.bincount(owner, minlength=people.height)
    twice, across = dict[object, NDArray[np.float64]](), dict[object, NDArray[np.float64]]()
    for j, size in enumerate(below.schema.sizes.tolist()):
        counts = np.zeros((people.height, size))
        np.add.at(counts, (owner, event[j]), 1)
        several = number > 1
        weight = 1 / (number * (number - 1.0))[several, None]
        pairs = counts[several].T @ (weight * counts[several]) - np.diag((weight * counts[several]).sum(axis=0))
        twice[j] = pairs / several.sum()
    heights, widths = (each.schema.sizes.tolist() for each in (root, below))
    for (i, height), (j, width) in product(enumerate(heights), enumerate(widths)):
        across[i, j] = _table(person[i, owner], event[j], height, width)
    return {"event pairs": _within(event, below.schema), "person-event": across, "two visits": twice}


def _within(codes: NDArray[np.int32], schema: Schema) -> Shares:
    sizes = schema.sizes.tolist()
    return {(i, j): _table(codes[i], codes[j], sizes[i], sizes[j]) for j in range(len(sizes)) for i in range(j)}


def _table(first: NDArray[np.int32], second: NDArray[np.int32], height: int, width: int) -> NDArray[np.float64]:
    cells = first.astype(np.int64) * width + second
    return np.bincount(cells, minlength=height * width).reshape(height, width) / first.size


def _distance(real: Shares, other: Shares) -> float:
    return 1000 * float(np.mean([abs(real[key] - other[key]).sum() / 2 for key in real]))


def in_time(frames: Frames) -> dict[str, Any]:
    """Shares of what has to do with order, and the median gap; visits of each patient are put in order of time."""
    people, events = frames["patients"], frames["visits"].sort(KEY, "date", maintain_order=True)
    owner, types = events[KEY].to_numpy(), events["type"].cast(pl.String).to_numpy()
    levels = sorted(set(types.tolist()))
    of_type, days = np.searchsorted(levels, types), events["date"].to_physical().to_numpy().astype(np.int64)
    first: NDArray[np.bool_] = np.diff(owner, prepend=0) > 0
    after = np.flatnonzero(~first)
    gaps = days[after] - days[after - 1]
    each = events.group_by(KEY).agg(types=pl.col("type").n_unique(), days=pl.col("days").sum())
    nobody = people.height - each.height
    totals = np.concatenate([each["days"].to_numpy(), np.zeros(nobody, dtype=np.int64)])
    number = np.bincount(owner, minlength=people.height + 1)[1:]
    found: dict[str, NDArray[Any]] = {
        "number of events": np.bincount(number, minlength=40),
        "first type": np.bincount(of_type[first], minlength=len(levels)),
        "transitions": np.bincount(of_type[after - 1] * len(levels) + of_type[after], minlength=len(levels) ** 2),
        "gaps": np.histogram(gaps, GAPS)[0],
        "distinct types": np.bincount(each["types"].to_numpy(), minlength=len(levels) + 1) + nobody * np.eye(1, 6)[0],
        "totals per person": np.histogram(totals, TOTALS)[0],
    }
    if "prescriptions" in frames:
        drugs = np.bincount(frames["prescriptions"][KEY].to_numpy(), minlength=people.height + 1)[1:]
        found["visits x prescriptions"] = np.histogram2d(number, drugs, (NUMBERS, NUMBERS))[0].ravel()
    return {name: counts / counts.sum() for name, counts in found.items()} | {"median gap": np.median(gaps)}


def compared(real: Frames, other: Frames) -> dict[str, float]:
    """The distances that goals are about, times 1,000, and the median gap of the other tables."""
    tree, one, two = hospital("patients", "visits"), in_time(real), in_time(other)
    known, drawn = figures(real, tree), figures(other, tree)
    found = {name: 500 * float(abs(one[name] - two[name]).sum()) for name in GOALS if name in two}
    found |= {name: _distance(own, drawn[name]) for name, own in known.items()} | {
        "median gap": float(two["median gap"])
    }
    return {name: round(value, 1) for name, value in found.items()}


def panel(people: int, seed: int = 1) -> tuple[dict[str, pl.DataFrame], Tree]:
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
    below = Branch(name="years", of="people", schema=events, key=KEY, at_most=10, order="year", follows="state",
                   unique=("year",))  # fmt: skip
    tree = Tree(branches=(Branch(name="people", schema=known, key=KEY), below))
    return {"people": pl.DataFrame({KEY: np.arange(people) + 1, "wealth": wealth}), "years": rows}, tree


def without_order(tree: Tree) -> Tree:
    """The same without an order of rows."""
    own = (replace(each, order="", follows="", unique=()) for each in tree.branches)
    return replace(tree, branches=tuple(own))


def repeated(events: pl.DataFrame) -> tuple[float, float]:
    """Of consecutive rows of a person, the shares that are of one year, and of two years in a row, in percent."""
    gaps = events.sort(KEY, "year").select(pl.col("year").diff().over(KEY)).to_series().drop_nulls()
    return round(100 * float((gaps == 0).mean()), 1), round(100 * float((gaps == 1).mean()), 1)  # type: ignore[arg-type]


def drawn(frames: Frames, tree: Tree, epsilon: float, seed: int) -> Frames:
    """The rows of a fresh release."""
    found: Any = fit(frames, tree, epsilon=epsilon).sample(seed=seed)
    return dict(found)


def goals_of(sizes: Sequence[int], epsilon: float, draws: int) -> tuple[dict[str, object], list[str]]:
    """Release the hospital, whole and in part, with and without an order: what came of it, and the lines of tables."""
    document: dict[str, object] = {"header": versions(), "epsilon": epsilon, "draws": draws}
    lines, two = [], hospital("patients", "visits")
    trees = {"four tables": hospital(), "two tables": two, "two, without order": without_order(two)}
    for n in sizes:
        made = list(generate_visits(n))
        frames = {name: pl.concat([block[name] for block in made]) for name in made[0]}
        runs = {
            name: [compared(frames, drawn(frames, tree, epsilon, draw)) for draw in range(draws)]
            for name, tree in trees.items()
        }
        exact = float(in_time(frames)["median gap"])
        document[f"{n} people"] = {**runs, "median gap": exact}
        lines += [
            f"\n**{n:,} patients, {frames['visits'].height:,} visits, epsilon {epsilon:g}**: the mean of {draws} draws "
            f"and, in brackets, the least and the most. The true median gap is {exact:g} days.\n",
            f"| | goal | {' | '.join(trees)} |", "|---|---|---|---|---|",
        ]  # fmt: skip
        for name in (*GOALS, "two visits", "median gap"):
            goal, shown = GOALS[name] / (1 if n < SIZES[1] else 2) if name in GOALS else None, []
            for of in ([run[name] for run in own if name in run] for own in runs.values()):
                missed = " **missed**" if goal is not None and of and np.mean(of) > goal else ""
                shown.append(f"{np.mean(of):.1f} ({min(of):.1f}-{max(of):.1f}){missed}" if of else "-")
            lines.append(f"| {name} | {'' if goal is None else f'{goal:g}'} | {' | '.join(shown)} |")
    return document, lines


def page_of(sizes: Sequence[int], epsilon: float, draws: int) -> None:
    """Write the page: the goals, and a panel."""
    document, lines = goals_of(sizes, epsilon, draws)
    frames, tree = panel(SIZES[0])
    lines += [
        f"\n**A panel of {SIZES[0]:,} people by year** (`unique = [\"year\"]`), percent of its steps\n",
        "| | one year twice | two years in a row |", "|---|---|---|",
    ]  # fmt: skip
    of_years: list[tuple[str, pl.DataFrame]] = [
        ("real", frames["years"]),
        *((f"in order, draw {draw}", drawn(frames, tree, epsilon, draw)["years"])
          for draw in range(draws)),
        ("without order", drawn(frames, without_order(tree), epsilon, 0)["years"]),
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
@click.option("--people", multiple=True, type=int, default=SIZES, show_default=True)
@click.option("--epsilon", type=float, default=1.0, show_default=True)
@click.option("--draws", type=int, default=3, show_default=True, help="Fresh draws of noise.")
@click.option("--page", is_flag=True, help="Write docs/results/linked.md, with a panel beside.")
def main(*, people: Sequence[int], epsilon: float, draws: int, page: bool) -> None:
    """Print a table for each number of people."""
    if page:
        page_of(people, epsilon, draws)
    else:
        click.echo("\n".join(goals_of(people, epsilon, draws)[1]))


if __name__ == "__main__":
    main()
