"""Attacks on three-way tables: which are measured, what noise they have, which rows they count, and what they cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from sklar.budget.certificate import SCORES, Measured
from sklar.budget.method import Method
from sklar.budget.plan import plan_release, plan_scores, plan_second, plan_third
from sklar.fitting.denoise import interactions
from sklar.fitting.margins import margins, pool
from sklar.fitting.third import look
from sklar.kernel.theorems import Budget, Spend
from sklar.kernel.triples import Triples
from sklar.public.schema import Schema
from sklar.release import look_for_triples, measure
from sklar.trust.audit.result import Comparison
from sklar.trust.audit.tables import frame_of, whole_numbers, write

_ROWS, _BUDGET = 20_000, Budget(epsilon=2.0)
_SIZES = (4, 5, 3, 11, 4, 6, 3, 5, 4)
# Genuine noise fails with this chance.
_LEVEL = 1e-9


def check_third(folder: Path) -> Comparison:
    """The tables and scales of a third stage follow from noisy tables, hold the noise that they state, and are paid."""
    schema, codes = whole_numbers(*_SIZES), _codes()
    path, wrong, runs = write(frame_of(schema, codes), folder / "third.parquet"), [], 6
    # Sums of squares and their number: of tables, then of scores, which are few beside cells.
    squares = np.zeros((2, 2))
    for _ in range(runs):
        measured = measure(path, schema, _BUDGET)
        triples = measured.triples
        if triples is None:
            wrong.append("no three-way table was measured")
            continue
        wrong += unplanned(measured, schema, _BUDGET)
        z = (triples.counts - _counted(codes, triples.triples)) / np.repeat(triples.scales, triples.triples.sizes)
        for part, own in enumerate((z, _score_noise(codes, measured, schema))):
            squares[part] += float(own @ own), own.size
        stages = [tables.plan.spend for tables in measured.stages]
        scores = measured.scores
        scored = Spend.of([]) if scores is None else Spend.of([scores.scale], [scores.scores.size])
        if _BUDGET.spent(sum(stages, Spend.of(triples.scales) + scored)) > _BUDGET.epsilon:
            wrong.append("all stages cost more than the budget")
        stated = sum(entry.tables for entry in measured.certificate.measurements if entry.order in (3, SCORES))
        if stated != len(triples.scales) + int(scored.tables.sum()):
            wrong.append("the certificate does not state them")
    ratio = squares[0, 0] / max(squares[0, 1], 1)
    for name, (total, freedom) in zip(("their noise", "the noise of scores"), squares.tolist(), strict=True):
        if not freedom:
            wrong.append(f"{name} was not seen")
        elif 2 * min(chi2.cdf(total, freedom), chi2.sf(total, freedom)) < _LEVEL:
            wrong.append(f"{name} has {total / freedom:.3g} times the variance that is stated")
    return Comparison(
        part="three-way tables",
        tried=f"{runs} releases with a third stage: its tables and scales worked out again from the first stage's "
        "noisy tables and noisy scores, its counts and scores compared with those of the rows, its cost added up.",
        found="All of it follows." if not wrong else f"Wrong: {wrong[0]}.",
        sees="It sees tables that exact counts chose, noise that is missing, rows counted twice, and a cost left out.",
        passed=not wrong,
        claimed=1.0,
        measured=ratio,
        trials=runs,
    )


def _codes() -> NDArray[np.int32]:
    """Rows whose pairs leave much of their three-way tables open, so that noise decides which of these are measured."""
    generator = np.random.default_rng()
    one, two = generator.integers(0, 4, _ROWS), generator.integers(0, 5, _ROWS)
    # A function of two columns, but for some rows and some that are in no cell: fits of pairs disagree about it.
    three = np.where(generator.random(_ROWS) < 0.8, (one + two) % 3, generator.integers(-1, 3, _ROWS))
    four = (3 * one + 2 * two + three * one + generator.integers(0, 3, _ROWS)) % 11
    columns = [one, two, three, four]
    for size in _SIZES[4:]:
        first, second = generator.choice(4, 2, replace=False)
        made = (columns[first] + columns[second] + generator.integers(0, 2, _ROWS)) % size
        columns.append(np.where(generator.random(_ROWS) < 0.6, made, generator.integers(0, size, _ROWS)))
    return np.stack(columns).astype(np.int32)


def unplanned(measured: Measured, schema: Schema, budget: Budget) -> list[str]:
    """What of the later stages does not follow from the first stage's noisy tables and from noisy scores."""
    stages = plan_release(schema.cells, budget, Method(), n_rows=measured.n_rows)
    estimates = pool(measured.stages[:1])
    scores, triples = measured.scores, measured.triples
    found = look_for_triples(estimates, schema, stages, None if scores is None else lambda *_asked: scores)
    wanted, planned = found.wanted, plan_scores(schema.cells, estimates.n_rows, stages)
    distances = interactions(estimates, margins(estimates))
    if wanted is None or triples is None:
        second = plan_second(schema.cells, found.stages, distances, schema.importance)
        same = wanted is None and triples is None
    else:
        second, scales = plan_third(schema.cells, found.stages, distances, wanted.scales, schema.importance)
        same = (
            np.array_equal(wanted.triples.attributes, triples.triples.attributes)
            and np.array_equal(wanted.triples.coarse, triples.triples.coarse)
            and np.array_equal(scales, triples.scales)
        )
    same = same and np.array_equal(second.pairs, measured.stages[1].plan.pairs)
    same = same and (None if scores is None else scores.scale) == (None if planned is None else planned[0])
    return [] if same else ["something else than noisy tables decided the later stages"]


def _score_noise(codes: NDArray[np.int32], measured: Measured, schema: Schema) -> NDArray[np.float64]:
    """The noise of scores in units of what is stated; nothing where there are none."""
    scores, asked = measured.scores, look(pool(measured.stages[:1]), schema, scored=True)
    if scores is None or asked is None:
        return np.empty(0)
    apart = _counted(codes, asked.triples) - asked.reference
    exact = []
    for own, shape in zip(np.split(apart, asked.triples.offsets[1:-1]), asked.triples.shapes, strict=True):
        table = own.reshape(shape).astype(np.float64)
        for axis in range(3):
            table -= table.mean(axis=axis, keepdims=True)
        exact.append(np.linalg.norm(table))
    return np.asarray((scores.rows - np.array(exact)) / scores.sd)


def _counted(codes: NDArray[np.int32], triples: Triples) -> NDArray[np.int64]:
    """The right counts, row by row: in no cell where a code is below zero."""
    counts = []
    for chosen, shape in zip(triples.attributes.tolist(), triples.shapes.tolist(), strict=True):
        table, own = np.zeros(shape, dtype=np.int64), codes[chosen]
        own = own[:, (own >= 0).all(axis=0)]
        places = [triples.coarse[triples.cells.levels(each)][level] for each, level in zip(chosen, own, strict=True)]
        np.add.at(table, tuple(places), 1)
        counts.append(table.ravel())
    return np.concatenate(counts)
