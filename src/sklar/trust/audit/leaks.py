"""Attacks on what is shown beside noisy cells: facts that tell neighbors apart, plans and models that know too much.

Which three-way tables are measured, with which noise, over which rows and at which cost is attacked here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import chdtr, chdtrc

from sklar.budget.certificate import SCORES, Measured
from sklar.budget.method import Method
from sklar.budget.plan import plan_release
from sklar.files.model import fit_tables
from sklar.fitting.margins import pool
from sklar.fitting.third import look, look_ahead
from sklar.kernel.queries import PARTS, Block, Distances
from sklar.kernel.theorems import NOTHING, Budget
from sklar.public.schema import Schema
from sklar.release import fit, measure
from sklar.trust.audit.comparison import Comparison, Effort, conclude
from sklar.trust.audit.inventions import (
    PEOPLE,
    Release,
    facts_of,
    frame_of,
    invent,
    release_twice,
    whole_numbers,
    write,
)

# A fact that noise decides is the same in so many releases of each neighbor, and another in those of the other, with a
# chance below 4 ** -16.
_RUNS = 16
_BUDGET = Budget(epsilon=1.0)
_ADDED = Budget(epsilon=1.0, neighbors="add-remove")


def check_shown(folder: Path, _: Effort, release: Release = release_twice) -> Iterator[Comparison]:
    """Facts that are the same in all releases of a table, and others in all releases of its neighbor."""
    yield _check_facts(folder, release, _BUDGET, "one row is another")
    yield _check_facts(folder, release, _ADDED, "one row is left out")
    yield check_first_plan(folder, release)


def _check_facts(folder: Path, release: Release, budget: Budget, words: str) -> Comparison:
    whole = {"born": pl.lit("1950-01-01"), "member": pl.lit("true")}
    table = invent(40, np.random.default_rng()).frame.with_columns(**whole)
    other = table[1:]
    if budget.neighbors == "replace-one":
        # A row that stands in no cell of an attribute, in place of one that does.
        other = other.vstack(table[:1].with_columns(born=pl.lit("")))
    shown = []
    for number, each in enumerate((table, other)):
        path = write(each, folder / f"shown{number}.csv")
        shown.append([facts_of(release(path, PEOPLE, budget).measured) for _ in range(_RUNS)])
    # What is not there is a fact too.
    every = {key for facts in shown for run in facts for key in run}
    values = {key: [{run.get(key) for run in facts} for facts in shown] for key in every}
    telling = sorted(key for key, (one, two) in values.items() if len(one) == len(two) == 1 and one != two)
    return conclude(
        "facts beside the cells",
        f"{2 * _RUNS} releases of two neighbors ({words}, {budget.neighbors}): all that is released beside noisy "
        "cells, from the certificate to the number of rows and the noise scales.",
        [f"These tell the two apart: {', '.join(telling[:3])}."] * len(telling),
        "It sees every fact that follows from the rows and not from noise.",
        right="Nothing tells the two apart.",
        trials=2 * _RUNS,
    )


def check_first_plan(folder: Path, release: Release) -> Comparison:
    """Under add-remove a first plan is the same for all tables: from one to another lead many neighbors."""
    shown = []
    for rows in (3, 300, 100_000):
        path = write(invent(rows, np.random.default_rng(), typed=True).frame, folder / "plans.parquet")
        facts = facts_of(release(path, PEOPLE, _ADDED).measured)
        first = ("block 0", "block 1", "block 2", "schema")
        shown.append({key: value for key, value in facts.items() if key.startswith(first)})
    same = all(facts == shown[0] for facts in shown)
    return conclude(
        "first plan",
        "releases of 3, 300 and 100,000 rows under add-remove: the noise scales of their first stage.",
        [] if same else ["They differ, and so tell how many rows there are."],
        "It sees a plan that was made from the exact number of rows.",
        right="They are the same.",
        trials=len(shown),
    )


def check_plan(folder: Path, _: Effort) -> Iterator[Comparison]:
    """The second stage's scales must follow from the first stage's noisy tables."""
    schema, generator = whole_numbers(3, 4, 5), np.random.default_rng()
    first = generator.integers(0, 3, 3_000)
    codes = np.array([first, (first + generator.integers(0, 2, 3_000)) % 4, generator.integers(0, 5, 3_000)])
    path, runs = write(frame_of(schema, codes), folder / "plan.parquet"), 10
    follow = [follows(measure(path, schema, _BUDGET), schema, _BUDGET) for _ in range(runs)]
    yield conclude(
        "second plan",
        f"{runs} releases in two stages: the second's scales worked out again from the first's noisy tables.",
        ["They do not follow: something else decided them."] * (runs - sum(follow)),
        "It sees a plan that was made from exact counts.",
        right="They follow.",
        trials=runs,
    )


def check_refit(folder: Path, _: Effort) -> Iterator[Comparison]:
    """A model must follow from its noisy tables."""
    path = write(invent(500, np.random.default_rng()).frame, folder / "refit.csv")
    wrong = []
    for method in ("binary", "mixture"):
        model = fit(path, PEOPLE, epsilon=1.0, method=method)
        again = fit_tables(model.measured, method=method)
        pairs = zip(model.copula.arrays().values(), again.copula.arrays().values(), strict=True)
        alike = all(one.shape == two.shape and np.allclose(one, two, 1e-3, 1e-4) for one, two in pairs)
        if model.n_rows != again.n_rows or not alike:
            wrong.append(f"Another model comes out ({method}).")
    yield conclude(
        "model",
        "two releases, a model of each kind: fitted again to the noisy tables that the model holds.",
        wrong,
        "It sees a model that was fitted to anything but its noisy tables.",
        right="The same models come out.",
        trials=2,
    )


_THIRD_ROWS, _THIRD_BUDGET = 20_000, Budget(epsilon=2.0)
_SIZES = (4, 5, 3, 11, 4, 6, 3, 5, 4)
# Genuine noise fails with this chance.
_LEVEL = 1e-9


def check_third(folder: Path, effort: Effort) -> Iterator[Comparison]:
    """The tables and scales of a third stage follow from noisy tables, hold the noise that they state, and are paid."""
    schema, codes = whole_numbers(*_SIZES), _codes()
    path, wrong, runs = write(frame_of(schema, codes), folder / "third.parquet"), [], effort.third
    # Sums of squares and their number: of tables, then of scores, which are few beside cells.
    squares = np.zeros((2, 2))
    for _ in range(runs):
        measured = measure(path, schema, _THIRD_BUDGET)
        chosen, scores = _later(measured)
        if chosen is None:
            wrong.append("no three-way table was measured")
            continue
        if not follows(measured, schema, _THIRD_BUDGET):
            wrong.append("something else than noisy tables decided the later stages")
        z = (chosen.values - _counted(codes, chosen.query)) / np.repeat(chosen.scales, chosen.query.sizes)
        for part, own in enumerate((z, _score_noise(codes, measured, schema))):
            squares[part] += float(own @ own), own.size
        spent = sum((block.spend(_THIRD_BUDGET) for block in measured.blocks), NOTHING)
        if _THIRD_BUDGET.spent(spent) > _THIRD_BUDGET.epsilon:
            wrong.append("all stages cost more than the budget")
        stated = sum(entry.tables for entry in measured.certificate.measurements if entry.order in (3, SCORES))
        if stated != chosen.scales.size + (0 if scores is None else scores.values.size):
            wrong.append("the certificate does not state them")
    for name, (total, freedom) in zip(("their noise", "the noise of scores"), squares.tolist(), strict=True):
        if not freedom:
            wrong.append(f"{name} was not seen")
        elif 2 * min(chdtr(freedom, total), chdtrc(freedom, total)) < _LEVEL:
            wrong.append(f"{name} has {total / freedom:.3g} times the variance that is stated")
    yield conclude(
        "three-way tables",
        f"{runs} releases with a third stage: its tables and scales worked out again from the first stage's "
        "noisy tables and noisy scores, its counts and scores compared with those of the rows, its cost added up.",
        [f"Wrong: {each}." for each in wrong],
        "It sees tables that exact counts chose, noise that is missing, rows counted twice, and a cost left out.",
        right="All of it follows.",
        trials=runs,
    )


def _codes() -> NDArray[np.int32]:
    """Rows whose pairs leave much of their three-way tables open, so that noise decides which of these are measured."""
    generator = np.random.default_rng()
    one, two = generator.integers(0, 4, _THIRD_ROWS), generator.integers(0, 5, _THIRD_ROWS)
    # A function of two columns, but for some rows and some that are in no cell: fits of pairs disagree about it.
    three = np.where(generator.random(_THIRD_ROWS) < 0.8, (one + two) % 3, generator.integers(-1, 3, _THIRD_ROWS))
    four = (3 * one + 2 * two + three * one + generator.integers(0, 3, _THIRD_ROWS)) % 11
    columns = [one, two, three, four]
    for size in _SIZES[4:]:
        first, second = generator.choice(4, 2, replace=False)
        made = (columns[first] + columns[second] + generator.integers(0, 2, _THIRD_ROWS)) % size
        columns.append(np.where(generator.random(_THIRD_ROWS) < 0.6, made, generator.integers(0, size, _THIRD_ROWS)))
    return np.stack(columns).astype(np.int32)


def _later(measured: Measured) -> tuple[Block | None, Block | None]:
    """Chosen three-way tables and noisy scores of all of them, where they were measured."""
    chosen = (block for block in measured.blocks if getattr(block.query, "sets", None) is not None)
    return next(chosen, None), next((block for block in measured.blocks if isinstance(block.query, Distances)), None)


def follows(measured: Measured, schema: Schema, budget: Budget) -> bool:
    """Whether the later stages follow from the first stage's noisy tables and from noisy scores."""
    stages = plan_release(schema.cells, budget, Method(), n_rows=measured.n_rows)
    first, later = measured.blocks[: len(stages.first.parts)], measured.blocks[len(stages.first.parts) :]
    outlook = look_ahead(first, schema, stages, measured.n_rows)
    scores = [block for block in later if isinstance(block.query, Distances)]
    planned = [*outlook.plan(scores).parts, *outlook.scores]
    return len(planned) == len(later) and all(
        type(block.query) is type(query)
        and np.array_equal(block.scales, scales)
        and all(np.array_equal(getattr(query, name, 0), getattr(block.query, name, 0)) for name in ("sets", "coarse"))
        for (query, scales), block in zip(planned, later, strict=True)
    )


def _score_noise(codes: NDArray[np.int32], measured: Measured, schema: Schema) -> NDArray[np.float64]:
    """The noise of scores in units of what is stated; nothing where there are none."""
    (_, scores), asked = _later(measured), look(pool(measured, first=True), schema, scored=True)
    if scores is None or asked is None:
        return np.empty(0)
    apart = _counted(codes, asked.triples) - asked.reference
    exact = []
    for own, shape in zip(np.split(apart, asked.triples.offsets[1:-1]), asked.triples.shapes, strict=True):
        table = own.reshape(shape).astype(np.float64)
        for axis in range(3):
            table -= table.mean(axis=axis, keepdims=True)
        exact.append(PARTS * np.linalg.norm(table))
    return np.asarray((scores.values - exact) / scores.scales)


def _counted(codes: NDArray[np.int32], triples: Any) -> NDArray[np.int64]:
    """The right counts, row by row: in no cell where a code is below zero."""
    counts, coarse = [], np.asarray(triples.coarse)
    for chosen, shape in zip(triples.members.tolist(), triples.shapes.tolist(), strict=True):
        table, own = np.zeros(shape, dtype=np.int64), codes[chosen]
        own = own[:, (own >= 0).all(axis=0)]
        places = [coarse[triples.cells.levels(each)][level] for each, level in zip(chosen, own, strict=True)]
        np.add.at(table, tuple(places), 1)
        counts.append(table.ravel())
    return np.concatenate(counts)
