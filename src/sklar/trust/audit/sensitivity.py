"""Attacks on reading, encoding and counting: what one row or one person can move, and whether counts are right.

No chance is involved: exact cells are had by a budget that needs no noise. Neighbors of people differ in all rows of
one person, whatever is released: a release for rows fails that attack, as its noise is meant for one row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, cycle, product
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.errors import SklarError
from sklar.kernel.theorems import Budget
from sklar.public.person import Count, Person
from sklar.public.schema import Schema
from sklar.trust.audit.comparison import Comparison, Effort, compare, conclude
from sklar.trust.audit.inventions import (
    ODD,
    PEOPLE,
    PURE,
    Release,
    exactly,
    frame_of,
    invent,
    neighbors,
    release_once,
    release_twice,
    replaced,
    right_counts,
    whole_numbers,
    write,
)
from sklar.trust.exact import exact_epsilon

_ONE = Budget(epsilon=1.0)
_ADDED = replace(_ONE, neighbors="add-remove")
# What the numerical epsilon may be off by.
_TOLERANCE = 1.002
# Rows of a person beyond those that are counted.
_BEYOND = 2
# Changes are tried from every start where there are few, and from about as many where there are more.
_STARTS = 60


def people_of(schema: Schema, count: Count, most: int = 1) -> Schema:
    """The schema for people, whose ids are in the column `id`."""
    return replace(schema, person=Person(column="id", count=count, rows_per_person=most))


def check_records(_: Path, __: Effort) -> Iterator[Comparison]:
    """Every replacement of one of two records, for every kind of noise."""
    small, tight = whole_numbers(2, 3), replace(_ONE, mechanism="laplace")
    yield check_changes(release_once, whole_numbers(4, 5), PURE, "Laplace noise, epsilons added up")
    yield check_changes(release_once, small, _ONE, "Gaussian noise")
    yield check_changes(release_once, small, tight, "Laplace noise, tight")
    yield check_changes(release_once, small, _ADDED, "Gaussian noise, a record added")
    yield check_changes(release_twice, small, _ONE, "Gaussian noise, both stages")
    yield check_changes(release_twice, whole_numbers(2, 2, 2, 2), _ONE, "parities of up to three", others=5_000)
    yield check_changes(release_twice, whole_numbers(2, 2, 2), _ADDED, "parities, a row added")


def check_crowds(_: Path, effort: Effort) -> Iterator[Comparison]:
    """Every replacement of a person in a small table, for both ways to count and both kinds of neighbors."""
    small, most = whole_numbers(2, 2), effort.crowd
    by_rows, many = people_of(small, "rows", 2), people_of(small, "rows", most)
    yield check_changes(release_once, many, _ONE, f"up to {most} rows, Gaussian noise", most=most)
    yield check_changes(release_once, people_of(small, "people"), _ONE, "one row, Gaussian noise", most=2)
    yield check_changes(release_once, by_rows, _ADDED, "up to 2 rows, a person added", most=2)
    yield check_changes(release_once, by_rows, PURE, "up to 2 rows, Laplace noise", most=2)


def check_changes(
    release: Release, schema: Schema, budget: Budget, words: str, *, others: int = 1, most: int | None = None
) -> Comparison:
    """Every change of one record, or of a person with up to `most` of them and some more, beside `others`.

    What the worst costs by the scales that are drawn. Whoever has more rows than are counted has them all in one cell.
    """
    every = list(product(*[range(-1, size) for size in schema.sizes]))
    crowds = [rows for k in range(1, (most or 1) + 1) for rows in combinations_with_replacement(every, k)]
    crowds += [(record,) * (most + _BEYOND) for record in every] if most else []
    exact = exactly(release)

    def beside(rows: tuple[tuple[int, ...], ...]) -> pl.DataFrame:
        frame = frame_of(schema, np.array([*rows, *[(0,) * schema.n_attributes] * others], dtype=np.int32).T)
        return frame if most is None else frame.with_columns(id=pl.Series([0] * len(rows) + [1] * others))

    shown = release(beside(crowds[0]), schema, budget)
    cells = np.array([exact(beside(rows), schema, budget).cells[: shown.cells.size] for rows in crowds])
    if budget.neighbors == "add-remove":
        starts = exact(beside(()), schema, budget).cells[None, : shown.cells.size]
    else:
        # Among them all who have their rows in one cell.
        starts = np.concatenate([cells[: -len(every) : max(len(cells) // _STARTS, 1)], cells[-len(every) :]])
    amounts = _amount(budget, shown.scales, cells[None, :] - starts[:, None])
    start, end = np.unravel_index(int(np.argmax(amounts)), amounts.shape)
    measured = cost_of(budget, shown.scales, np.abs(cells[end] - starts[start]))
    part, who = "people", f"a person with up to {most} rows, and of some with more"
    if most is None:
        part, who = "sensitivity", f"one record, in a table of {' x '.join(map(str, schema.sizes))} levels"
    return compare(
        part,
        f"every change of {who} ({words}).",
        f"The worst change costs epsilon {measured:.4g}, {budget.epsilon:g} is claimed.",
        "It sees every change that costs more than claimed: all were tried.",
        (budget.epsilon, measured),
        passed=measured <= budget.epsilon * _TOLERANCE,
        trials=amounts.size,
    )


def _amount(budget: Budget, scales: NDArray[np.float64], shifts: NDArray[np.int64]) -> NDArray[np.float64]:
    """What orders shifts by their cost, which is dear to compute; cells are along the last axis."""
    return np.asarray(np.sum(np.abs(shifts / scales) ** (2 if budget.mechanism == "gaussian" else 1), axis=-1))


def cost_of(budget: Budget, scales: NDArray[np.float64], shift: NDArray[np.int64]) -> float:
    """The epsilon of these shifts, numerically for tight composition, by definition for the others.

    Under Gaussian noise a shift by L weighs as L^2 unit shifts, but for what noise of a small scale adds; under Laplace
    noise as one at a scale of 1/L.
    """
    scales, shift = scales[shift > 0], shift[shift > 0]
    if budget.composition == "basic" or not shift.size:
        return float(np.sum(shift / scales))
    gaussian = budget.mechanism == "gaussian"
    values, groups = np.unique(scales if gaussian else scales / shift, return_inverse=True)
    weights = np.bincount(groups, weights=shift**2 if gaussian else None)
    return exact_epsilon(budget.mechanism, values, weights, budget.delta)


def check_counts(folder: Path, effort: Effort, release: Release = release_once) -> Iterator[Comparison]:
    """Exact counts of whole files against those of the codes that their values were chosen for."""
    generator, exact = np.random.default_rng(), exactly(release)
    wrong: list[str] = []

    def count(schema: Schema, data: object, codes: NDArray[np.int64], words: str) -> None:
        right = right_counts(codes, schema)
        same = np.array_equal(exact(data, schema, _ONE).cells[: right.size], right)
        wrong.append("" if same else f"Wrong counts: {words}.")

    for rows in effort.neighbors:
        for typed in (False, True):
            table, kind = invent(rows, generator, typed=typed), "parquet" if typed else "csv"
            for each, order in ((table, "any"), (table.ordered(), "sorted")):
                path = write(each.frame, folder / f"counts.{kind}")
                count(PEOPLE, path, each.codes, f"{rows:,} rows in {order} order, {kind}")
            count(PEOPLE, table.frame, table.codes, f"{rows:,} rows in memory")
    # Above this many pairs of attributes times rows, counting takes another way.
    levels, rows = [2, 2, 3, 9, 30] * 8, effort.wide_rows
    wide = whole_numbers(*levels)
    codes = np.array([generator.integers(-1, size, rows) for size in levels])
    count(wide, write(frame_of(wide, codes), folder / "wide.parquet"), codes, f"{rows:,} rows of 40 attributes")
    yield conclude(
        "counting",
        f"{len(wrong)} tables of 3 to {max(effort.neighbors):,} rows (CSV, Parquet, in memory; sorted and not) whose "
        "counts are known.",
        [*filter(None, wrong)],
        "It sees a value whose code depends on other rows, and a row that is counted twice or not at all.",
        right="All counts are right.",
        trials=len(wrong),
    )


def check_neighbors(folder: Path, effort: Effort, release: Release = release_twice) -> Iterator[Comparison]:
    """Search for a neighbor that moves more than it may: in small and large files, at every place, with odd values."""
    generator, odd, budget, exact = np.random.default_rng(), cycle(ODD), _ONE, exactly(release)
    shifts, worst, epsilon, raised, tried = 0, 0.0, 0.0, "", 0
    for rows, count in effort.neighbors.items():
        for typed, in_memory in product((False, True), (False, True)):
            table = invent(rows, generator, typed=typed)
            frame = table.ordered().frame if in_memory else table.frame
            path = folder / f"neighbors.{'parquet' if typed else 'csv'}"

            def given(each: pl.DataFrame, path: Path | None = None if in_memory else path) -> object:
                return each if path is None else write(each, path)

            scales = release(given(frame), PEOPLE, budget).scales
            base = exact(given(frame), PEOPLE, budget)
            for place, row in neighbors(frame, count // 4, generator, odd):
                tried += 1
                try:
                    other = exact(given(replaced(frame, place, row)), PEOPLE, budget)
                except SklarError as error:
                    raised = type(error).__name__
                    continue
                if other.cells.size != base.cells.size:
                    shifts, epsilon = base.cells.size, math.inf
                    continue
                shift = np.abs(other.cells - base.cells)
                shifts = max(shifts, int(np.bincount(base.tables, shift).max()))
                amount = float(_amount(budget, scales, shift))
                if amount > worst:
                    worst, epsilon = amount, max(epsilon, cost_of(budget, scales, shift))
    found = (
        f"The worst of them costs epsilon {epsilon:.4g} of {budget.epsilon:g} and moves a table by {shifts} of "
        f"{budget.shifts} allowed."
    )
    if raised:
        found = f"One change raised an error ({raised}), which tells that it was made."
    yield compare(
        "neighbors",
        f"{tried:,} replacements of a row in tables of 3 to 100,000 rows: random values, values at edges "
        "and outside, nulls, odd texts; the first row, the last, those at the ends of batches and in a sorted table.",
        found,
        "It sees a change that moves a third cell of any table, or one cell by two.",
        (budget.epsilon, epsilon),
        passed=not raised and shifts <= budget.shifts and epsilon <= budget.epsilon * _TOLERANCE,
        trials=tried,
    )
