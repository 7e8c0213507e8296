"""Attacks by whole people: a person with many rows is replaced, and all of those rows may stand in one cell.

The neighbors here differ in all rows of one person, whatever is released. So a release for rows, run on such data,
fails these attacks: its noise is meant for one row.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement, product
from pathlib import Path

import numpy as np
import polars as pl

from sklar.kernel.theorems import Budget
from sklar.public.person import Count, Person
from sklar.public.schema import Schema
from sklar.trust.audit.effort import FULL, Effort
from sklar.trust.audit.guesses import judge_guesses, play_between
from sklar.trust.audit.path import Release, exactly, release_once
from sklar.trust.audit.result import Comparison
from sklar.trust.audit.tables import frame_of, whole_numbers, write
from sklar.trust.exact import exact_epsilon

# What the numerical epsilon may be off by.
_TOLERANCE = 1.002
# Rows of the person who is replaced: up to as many as are counted, and this many more.
_BEYOND = 2
_STARTS = 60
_LOOSE = Budget(epsilon=18.0)
_MANY = 8


def people_of(schema: Schema, count: Count, most: int = 1) -> Schema:
    """The schema for people, whose ids are in the column `id`."""
    return replace(schema, person=Person(column="id", count=count, rows_per_person=most))


def check_crowds(release: Release = release_once) -> list[Comparison]:
    """Every replacement of a person in a small table, for both ways to count and both kinds of neighbors."""
    small, budget = whole_numbers(2, 2), Budget(epsilon=1.0)
    pure = replace(budget, mechanism="laplace", composition="basic")
    added = replace(budget, neighbors="add-remove")
    return [
        check_every_person(release, people_of(small, "rows", 3), budget, most=3, words="up to 3 rows, Gaussian noise"),
        check_every_person(release, people_of(small, "people"), budget, most=2, words="one row, Gaussian noise"),
        check_every_person(release, people_of(small, "rows", 2), added, most=2, words="up to 2 rows, a person added"),
        check_every_person(release, people_of(small, "rows", 2), pure, most=2, words="up to 2 rows, Laplace noise"),
    ]


def check_every_person(release: Release, schema: Schema, budget: Budget, *, most: int, words: str) -> Comparison:
    """Every change of a person with up to `most` rows, and of some with more: what it costs by the scales drawn.

    No chance is involved: whoever has more rows than are counted has them all in one cell.
    """
    every = list(product(*[range(-1, size) for size in schema.sizes]))
    crowds = [rows for k in range(1, most + 1) for rows in combinations_with_replacement(every, k)]
    crowds += [(record,) * (most + _BEYOND) for record in every]
    exact = exactly(release)
    cells = np.array([exact(_beside(schema, rows), schema, budget).cells for rows in crowds])
    scales = release(_beside(schema, crowds[0]), schema, budget).scales
    if budget.neighbors == "add-remove":
        starts = exact(_beside(schema, ()), schema, budget).cells[None, :]
    else:
        # Among them all who have their rows in one cell.
        starts = np.concatenate([cells[:: max(len(cells) // _STARTS, 1)], cells[-len(every) :]])
    amounts = (np.abs(cells[None, :, :] - starts[:, None, :]) / scales) ** (2 if budget.mechanism == "gaussian" else 1)
    start, end = np.unravel_index(int(np.argmax(amounts.sum(axis=2))), amounts.shape[:2])
    shift = np.abs(cells[end] - starts[start])
    if budget.mechanism == "gaussian":
        # A shift by L weighs as L^2 unit shifts, but for what noise of a small scale adds.
        measured = exact_epsilon("gaussian", scales[shift > 0], shift[shift > 0] ** 2, budget.delta)
    else:
        measured = float(np.sum(shift / scales))
    return Comparison(
        part="people",
        tried=f"every change of a person with up to {most} rows, and of some with more ({words}).",
        found=f"The worst change costs epsilon {measured:.4g}, {budget.epsilon:g} is claimed.",
        sees="It sees every person who costs more than claimed: all were tried.",
        passed=measured <= budget.epsilon * _TOLERANCE,
        claimed=budget.epsilon,
        measured=measured,
        trials=len(starts) * len(cells),
    )


def _beside(schema: Schema, rows: tuple[tuple[int, ...], ...]) -> pl.DataFrame:
    """A person's rows, and one row of somebody else."""
    codes = np.array([*rows, (0,) * schema.n_attributes], dtype=np.int32).T
    return frame_of(schema, codes).with_columns(id=pl.Series([0] * len(rows) + [1]))


def check_person(folder: Path, *, effort: Effort = FULL, release: Release = release_once) -> Comparison:
    """Guess on the whole release where one person has many rows, all in one cell."""
    schema = people_of(whole_numbers(*[2] * 20), "rows", _MANY)
    return guess_person(release, schema, effort.person, folder)


def guess_person(release: Release, schema: Schema, trials: int, folder: Path) -> Comparison:
    """Guess in which of two cells of every table all rows of one person stand."""
    ids, tables = pl.Series([0] * _MANY + [1, 2]), []
    for name, code in (("here", 0), ("there", 1)):
        codes = np.zeros((schema.n_attributes, len(ids)), dtype=np.int32)
        codes[:, :_MANY] = code
        tables.append(write(frame_of(schema, codes).with_columns(id=ids), folder / f"person-{name}.parquet"))
    scores, mu = play_between(release, schema, _LOOSE, trials, tables)
    return judge_guesses(f"210 tables, a person of {_MANY} rows replaced", _LOOSE, scores, mu)
