"""Attacks by whole people: a person with many rows is replaced, and all of those rows may stand in one cell.

The neighbors here differ in all rows of one person, whatever is released. So a release for rows, run on such data,
fails these attacks: its noise is meant for one row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations_with_replacement, product

import numpy as np
from numpy.typing import NDArray

from sklar.budget.method import PAPER
from sklar.kernel.theorems import Budget
from sklar.public.person import Count, Person
from sklar.public.schema import Schema
from sklar.trust.attack import Release, Run, check_distinguishing, exactly, release_by
from sklar.trust.audit import Comparison
from sklar.trust.exact import exact_epsilon

# Records of the person who is replaced: from none to so many more than are counted.
_BEYOND = 2


def release_people(count: Count, most: int = 1) -> Release:
    """All tables at once, for people: rows whose last code is the same number are one person's."""
    person = Person(column="id", count=count, rows_per_person=most)

    def release(schema: Schema, budget: Budget) -> Run:
        return release_by(replace(schema, person=person), budget, PAPER)

    return release


def check_people(subject: str, release: Release, schema: Schema, budget: Budget, *, most: int) -> list[Comparison]:
    """Every replacement of one of two people with up to `most` rows, and some with more: what it costs.

    No chance is involved: whoever has more rows than are counted has them all in one cell.
    """
    every = list(product(*[range(-1, size) for size in schema.sizes]))
    crowds = [rows for k in range(1, most + 1) for rows in combinations_with_replacement(every, k)]
    crowds += [(record,) * (most + _BEYOND) for record in every]
    other = (0,) * schema.n_attributes
    exact, shown = exactly(release, schema, budget), release(schema, budget)

    def table(rows: tuple[tuple[int, ...], ...]) -> NDArray[np.int32]:
        """Codes, then ids: the person's rows, and one row of somebody else."""
        codes = np.array([*rows, other], dtype=np.int32).T
        return np.vstack([codes, np.append(np.zeros(len(rows), dtype=np.int32), 1)])

    cells = np.array([exact(table(rows))[0] for rows in crowds])
    without = exact(np.append(np.array(other, dtype=np.int32), 1)[:, None])[0]
    scales = shown(table(crowds[0]))[1]
    # Among the starts are all who have their rows in one cell.
    spread = np.concatenate([cells[:: max(len(cells) // 60, 1)], cells[-len(every) :]])
    starts = spread if budget.neighbors == "replace-one" else without[None, :]
    order = 2 if budget.mechanism == "gaussian" else 1
    amounts = (np.abs(cells[None, :, :] - starts[:, None, :]) / scales) ** order
    start, end = np.unravel_index(int(np.argmax(amounts.sum(axis=2))), amounts.shape[:2])
    shift = np.abs(cells[end] - starts[start])
    if budget.mechanism == "gaussian":
        # A shift by L weighs as L^2 unit shifts, but for what noise of a small scale adds.
        measured = exact_epsilon("gaussian", scales[shift > 0], shift[shift > 0] ** 2, budget.delta)
    else:
        measured = float(np.sum(shift / scales))
    return [
        Comparison(
            layer="a sensitivity",
            subject=f"{subject}: epsilon of the worst person",
            passed=measured <= budget.epsilon * 1.002,
            claimed=budget.epsilon,
            measured=measured,
            trials=len(starts) * len(cells),
            power="certain: all changes tried",
        )
    ]


def check_person(
    subject: str, release: Release, schema: Schema, budget: Budget, *, most: int, trials: int
) -> list[Comparison]:
    """Tell two tables apart in which one person has `most` rows in one cell or in another, as often as luck cannot."""
    return check_distinguishing(subject, release, schema, budget, trials=trials, tables=_apart(schema, most))


def _apart(schema: Schema, most: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    ids = np.append(np.zeros(most, dtype=np.int32), [1, 2])
    here = np.vstack([np.zeros((schema.n_attributes, ids.size), dtype=np.int32), ids])
    there = here.copy()
    there[:-1, :most] = (schema.sizes - 1)[:, None]
    return here, there


def attack_people(table_schema: Callable[..., Schema], *, guesses: int) -> list[Comparison]:
    """All attacks by whole people."""
    small, rows = table_schema(2, 2), Budget(epsilon=1.0)
    laplace = replace(rows, mechanism="laplace", composition="basic")
    found = [
        *check_people("up to 3 rows a person, gaussian", release_people("rows", 3), small, rows, most=3),
        *check_people("one row a person, gaussian", release_people("people"), small, rows, most=2),
        *check_people(
            "up to 2 rows a person, add-remove",
            release_people("rows", 2),
            small,
            replace(rows, neighbors="add-remove"),
            most=2,
        ),
        *check_people("up to 2 rows a person, laplace", release_people("rows", 2), small, laplace, most=2),
    ]
    wide, loose = table_schema(*[2] * 20), Budget(epsilon=18.0)
    found += check_person("8 rows a person, epsilon 18", release_people("rows", 8), wide, loose, most=8, trials=guesses)
    return found
