"""Attacks on reading, encoding and counting: what one row can move, and whether counts are those of the rows.

No chance is involved: exact cells are had by a budget that needs no noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.errors import SklarError
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from sklar.trust.audit.effort import FULL, Effort
from sklar.trust.audit.path import Release, exactly, release_once, release_twice
from sklar.trust.audit.result import Comparison
from sklar.trust.audit.tables import (
    ODD,
    PEOPLE,
    frame_of,
    invent,
    neighbors,
    replaced,
    right_counts,
    whole_numbers,
    write,
)
from sklar.trust.exact import exact_epsilon

# What the numerical epsilon may be off by.
_TOLERANCE = 1.002
_PURE = Budget(epsilon=1.0, mechanism="laplace", composition="basic")
# Rows of the tables that are counted: a few, more than a thousand, more than five, and more than a batch.
_SIZES = (3, 40, 1_500, 7_000, 100_000)


def check_records(release: Release = release_once) -> list[Comparison]:
    """Every replacement of one of two records, for every kind of noise: what it costs by the scales that are drawn."""
    small = whole_numbers(2, 3)
    return [
        check_every_record(release, whole_numbers(4, 5), _PURE, "Laplace noise, epsilons added up"),
        check_every_record(release, small, Budget(epsilon=1.0), "Gaussian noise"),
        check_every_record(release, small, Budget(epsilon=1.0, mechanism="laplace"), "Laplace noise, tight"),
        check_every_record(
            release, small, Budget(epsilon=1.0, neighbors="add-remove"), "Gaussian noise, a record added"
        ),
        check_every_record(release_twice, small, Budget(epsilon=1.0), "Gaussian noise, both stages"),
        check_every_record(
            release_twice, whole_numbers(2, 2, 2, 2), Budget(epsilon=1.0), "parities of up to three", others=5_000
        ),
        check_every_record(
            release_twice, whole_numbers(2, 2, 2), Budget(epsilon=1.0, neighbors="add-remove"), "parities, a row added"
        ),
    ]


def check_every_record(release: Release, schema: Schema, budget: Budget, words: str, *, others: int = 1) -> Comparison:
    """Every change of one record beside others of a small table of whole numbers."""
    every = np.array(list(product(*[range(-1, size) for size in schema.sizes])), dtype=np.int32)
    other = np.zeros((schema.n_attributes, others), dtype=np.int32)
    exact = exactly(release)

    def beside(record: NDArray[np.int32] | None) -> pl.DataFrame:
        return frame_of(schema, other if record is None else np.column_stack([other, record]))

    shown = release(beside(every[0]), schema, budget)
    size = shown.cells.size
    cells = {tuple(record): exact(beside(record), schema, budget).cells[:size] for record in every}
    added = budget.neighbors == "add-remove"
    starts = every[:1] if added else every[:: max(len(every) // 40, 1)]
    worst, measured = 0.0, 0.0
    for start in starts:
        base = exact(beside(None), schema, budget).cells[:size] if added else cells[tuple(start)]
        for record in every:
            shift = np.abs(cells[tuple(record)] - base)
            amount = _amount(budget, shown.scales, shift)
            if amount > worst:
                worst, measured = amount, cost_of(budget, shown.scales, shift)
    sizes = " x ".join(str(size) for size in schema.sizes)
    return Comparison(
        part="sensitivity",
        tried=f"every change of one record, in a table of {sizes} levels ({words}).",
        found=f"The worst change costs epsilon {measured:.4g}, {budget.epsilon:g} is claimed.",
        sees="It sees every change that costs more than claimed: all were tried.",
        passed=measured <= budget.epsilon * _TOLERANCE,
        claimed=budget.epsilon,
        measured=measured,
        trials=len(starts) * len(every),
    )


def _amount(budget: Budget, scales: NDArray[np.float64], shift: NDArray[np.int64]) -> float:
    return float(np.sum((shift / scales) ** (2 if budget.mechanism == "gaussian" else 1)))


def cost_of(budget: Budget, scales: NDArray[np.float64], shift: NDArray[np.int64]) -> float:
    """The epsilon of these shifts, numerically for tight composition, by definition for the others."""
    if budget.composition == "basic":
        return float(np.sum(shift / scales))
    if int(shift.max(initial=0)) > 1:
        return math.inf
    values, counts = np.unique(scales[shift > 0], return_counts=True)
    return exact_epsilon(budget.mechanism, values, counts, budget.delta) if values.size else 0.0


def check_counts(folder: Path, *, effort: Effort = FULL, release: Release = release_once) -> Comparison:
    """Exact counts of whole files against those of the codes that their values were chosen for."""
    generator = np.random.default_rng()
    exact, budget, trials = exactly(release), Budget(epsilon=1.0), 0
    wrong: list[str] = []

    def compare(schema: Schema, data: object, codes: NDArray[np.int64], words: str) -> None:
        nonlocal trials
        trials += 1
        found = exact(data, schema, budget).cells
        right = right_counts(codes, schema)
        if found.size < right.size or not np.array_equal(found[: right.size], right):
            wrong.append(words)

    for rows in _SIZES:
        for typed in (False, True):
            table = invent(rows, generator, typed=typed)
            for each, order in ((table, "any"), (table.ordered(), "sorted")):
                kind = "parquet" if typed else "csv"
                path = write(each.frame, folder / f"counts.{kind}")
                compare(PEOPLE, path, each.codes, f"{rows:,} rows in {order} order, {kind}")
            compare(PEOPLE, table.frame, table.codes, f"{rows:,} rows in memory")
    # Above this many pairs of attributes times rows, counting takes another way.
    levels, rows = [2, 2, 3, 9, 30] * 8, effort.wide_rows
    wide = whole_numbers(*levels)
    codes = np.array([generator.integers(-1, size, rows) for size in levels])
    compare(wide, write(frame_of(wide, codes), folder / "wide.parquet"), codes, f"{rows:,} rows of 40 attributes")
    return Comparison(
        part="counting",
        tried=f"{trials} tables of 3 to 100,000 rows (CSV, Parquet, in memory; sorted and not) whose counts are known.",
        found="All counts are right." if not wrong else f"Wrong counts: {'; '.join(wrong)}.",
        sees="It sees a value whose code depends on other rows, and a row that is counted twice or not at all.",
        passed=not wrong,
        claimed=0.0,
        measured=float(len(wrong)),
        trials=trials,
    )


@dataclass(slots=True)
class _Worst:
    """The worst of all changes so far."""

    amount: float = 0.0
    epsilon: float = 0.0
    shifts: int = 0
    raised: str = ""
    tried: int = 0


def check_neighbors(folder: Path, *, effort: Effort = FULL, release: Release = release_twice) -> Comparison:
    """Search for a neighbor that moves more than it may: in small and large files, at every place, with odd values."""
    generator, budget, worst = np.random.default_rng(), Budget(epsilon=1.0), _Worst()
    odd = cycle(ODD)
    for rows, count in effort.neighbors.items():
        for typed in (False, True):
            table = invent(rows, generator, typed=typed)
            for path, each in ((folder / f"neighbors.{'parquet' if typed else 'csv'}", table), (None, table.ordered())):
                _try(worst, release, path, each.frame, count // 4, generator, odd, budget)
    allowed = budget.shifts
    found = f"The worst of them costs epsilon {worst.epsilon:.4g} of {budget.epsilon:g} and moves a table by "
    found += f"{worst.shifts} of {allowed} allowed."
    if worst.raised:
        found = f"One change raised an error ({worst.raised}), which tells that it was made."
    return Comparison(
        part="neighbors",
        tried=f"{worst.tried:,} replacements of a row in tables of 3 to 100,000 rows: random values, values at edges "
        "and outside, nulls, odd texts; the first row, the last, those at the ends of batches and in a sorted table.",
        found=found,
        sees="It sees a change that moves a third cell of any table, or one cell by two.",
        passed=not worst.raised and worst.shifts <= allowed and worst.epsilon <= budget.epsilon * _TOLERANCE,
        claimed=budget.epsilon,
        measured=worst.epsilon,
        trials=worst.tried,
    )


def _try(
    worst: _Worst,
    release: Release,
    path: Path | None,
    frame: pl.DataFrame,
    count: int,
    generator: np.random.Generator,
    odd: Iterator[str],
    budget: Budget,
) -> None:
    exact = exactly(release)

    def given(table: pl.DataFrame) -> object:
        return table if path is None else write(table, path)

    scales = release(given(frame), PEOPLE, budget).scales
    base = exact(given(frame), PEOPLE, budget)
    for place, row in neighbors(frame, count, generator, odd):
        worst.tried += 1
        try:
            other = exact(given(replaced(frame, place, row)), PEOPLE, budget)
        except SklarError as error:
            worst.raised = type(error).__name__
            continue
        if other.cells.size != base.cells.size:
            worst.shifts = base.cells.size
            worst.epsilon = math.inf
            continue
        shift = np.abs(other.cells - base.cells)
        worst.shifts = max(worst.shifts, int(np.bincount(base.tables, shift).max()))
        amount = _amount(budget, scales, shift)
        if amount > worst.amount:
            worst.amount, worst.epsilon = amount, max(worst.epsilon, cost_of(budget, scales, shift))
