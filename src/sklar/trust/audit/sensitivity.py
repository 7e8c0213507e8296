"""Attacks on reading, encoding and counting: what one row or one person can move, whether counts are right or stay.

No chance is involved, but for which rows of people are counted. What a whole person moves is in `by_kind`.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.method import PAPER
from sklar.errors import DataError, SklarError
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from sklar.release import measure
from sklar.trust.audit import Comparison, Effort, compare, conclude, inventions
from sklar.trust.audit.inventions import EXACT, ONE, PEOPLE, released
from sklar.trust.exact import exact_epsilon

# What the numerical epsilon may be off by.
TOLERANCE = 1.002


def check_passes(_: Path, __: Effort) -> Iterator[Comparison]:
    """People of two rows, of which one is counted: the same one by every pass over the rows.

    Three bits of one row are 1, all others 0. So the rows with two bits are those with these and a third, if passes
    agree; with 150 people for each three bits who choose anew, all 15 numbers agree with a chance below 1e-9.
    """
    bits, many = 6, 3_000
    triples, pairs = (list(combinations(range(bits), order)) for order in (3, 2))
    schema = inventions.people_of(inventions.whole_numbers(*[2] * bits), "people")
    codes, numbers = np.zeros((bits, 2 * many), dtype=np.int32), np.arange(many)
    codes[np.array(triples)[numbers % len(triples)].T, numbers] = 1
    frame = inventions.frame_of(schema, codes).with_columns(id=pl.Series(np.arange(2 * many) % many))
    ones, odd, odds = measure(frame, schema, EXACT).blocks[0].by_scale()
    both: dict[tuple[int, ...], int] = {(i, j): (ones[i] + ones[j] - odd[at]) // 2 for at, (i, j) in enumerate(pairs)}
    three = {
        each: (odds[at] - ones[list(each)].sum() + 2 * sum(both[pair] for pair in combinations(each, 2))) // 4
        for at, each in enumerate(triples)
    }
    agree = all(both[pair] == sum(three[each] for each in triples if {*pair} < {*each}) for pair in pairs)
    yield conclude("passes", ["Passes counted different rows."] * (not agree), people=many)


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


def check_counts(folder: Path, effort: Effort) -> Iterator[Comparison]:
    """Exact counts of whole files against those of the codes that their values were chosen for."""
    wrong: list[str] = []

    def count(schema: Schema, data: object, codes: NDArray[np.int64], words: str) -> None:
        right = inventions.right_counts(codes, schema)
        same = np.array_equal(released(data, schema, EXACT, method=PAPER).cells[: right.size], right)
        wrong.append("" if same else f"Wrong counts: {words}.")

    for rows, kind in product(effort.neighbors, ("csv", "parquet")):
        table = inventions.invent(rows, typed=kind == "parquet")
        for each, order in ((table, "any"), (table.ordered(), "sorted")):
            path = inventions.write(each.frame, folder / f"counts.{kind}")
            count(PEOPLE, path, each.codes, f"{rows:,} rows in {order} order, {kind}")
        count(PEOPLE, table.frame, table.codes, f"{rows:,} rows in memory")
    # Above this many pairs of attributes times rows, counting takes another way.
    levels, rows = [2, 2, 3, 9, 30] * 8, effort.wide_rows
    wide = inventions.whole_numbers(*levels)
    codes = np.array([np.random.default_rng().integers(-1, size, rows) for size in levels])
    path = inventions.write(inventions.frame_of(wide, codes), folder / "wide.parquet")
    count(wide, path, codes, f"{rows:,} rows of 40 attributes")
    yield conclude("counting", [*filter(None, wrong)], len(wrong), most=max(effort.neighbors))


def check_neighbors(folder: Path, effort: Effort) -> Iterator[Comparison]:
    """Search for a neighbor that moves more than it may: in small and large files, at every place, with odd values."""
    odd, trials, raised = cycle(inventions.ODD), 0, ""
    shifts, worst, epsilon = 0, 0.0, 0.0
    for (rows, count), kind, in_memory in product(effort.neighbors.items(), ("csv", "parquet"), (False, True)):
        table = inventions.invent(rows, typed=kind == "parquet")
        frame = table.ordered().frame if in_memory else table.frame
        write = partial(inventions.write, path=folder / f"neighbors.{kind}")
        given: Callable[[pl.DataFrame], object] = pl.DataFrame if in_memory else write
        scales, base = released(given(frame), PEOPLE, ONE).scales, released(given(frame), PEOPLE, EXACT)
        for _, changed in inventions.neighbors(frame, count // 4, odd):
            trials += 1
            try:
                other = released(given(changed), PEOPLE, EXACT)
            except SklarError as error:
                raised = type(error).__name__
                continue
            if other.cells.size != base.cells.size:
                shifts, epsilon = base.cells.size, math.inf
                continue
            shift = np.abs(other.cells - base.cells)
            shifts = max(shifts, int(np.bincount(base.tables, shift).max()))
            # What orders shifts by their cost, which is dear to compute.
            amount = float(np.sum((shift / scales) ** 2))
            if amount > worst:
                worst, epsilon = amount, max(epsilon, cost_of(ONE, scales, shift))
    passed = not raised and shifts <= ONE.shifts and epsilon <= ONE.epsilon * TOLERANCE
    shown: dict[str, Any] = {"shifts": shifts, "allowed": ONE.shifts}
    if raised:
        shown["found"] = f"One change raised an error ({raised}), which tells that it was made."
    yield compare("neighbors", ONE.epsilon, epsilon, trials, passed=passed, **shown)


def check_checkpoint(folder: Path, _: Effort) -> Iterator[Comparison]:
    """Interrupt a pass over a folder of files, look at what it kept, and let it go on."""
    parts = [inventions.invent(300, typed=True) for _ in range(4)]
    place, kept = folder / "parts", folder / "kept"
    place.mkdir()
    last = [inventions.write(part.frame, place / f"{number}.parquet") for number, part in enumerate(parts)][-1]
    whole = last.read_bytes()
    # A file whose pages are damaged but whose end is not: it opens, and fails when it is read.
    damaged = min(2_000, len(whole) // 3)
    last.write_bytes(whole[:4] + bytes(damaged) + whole[4 + damaged :])
    raised = False
    try:
        released(place, PEOPLE, EXACT, method=PAPER, checkpoint=kept)
    except DataError:
        raised = True
    files = [path for path in kept.rglob("*") if path.is_file()]
    closed = all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    closed = closed and (not files or stat.S_IMODE(kept.stat().st_mode) == 0o700)
    last.write_bytes(whole)
    cells = released(place, PEOPLE, EXACT, method=PAPER, checkpoint=kept).cells
    counts = inventions.right_counts(np.concatenate([part.codes for part in parts], axis=1), PEOPLE)
    same = raised and bool(files) and np.array_equal(cells, counts)
    yield conclude("checkpoint", [] if same else ["The counts are not those of the rows."])
    wrong = ["Exact counts were open to others, or were left behind."] * ((not closed) + kept.exists())
    yield conclude("what a checkpoint keeps", wrong, len(files))
