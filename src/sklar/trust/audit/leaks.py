"""Attacks on what a release shows or keeps beside noisy cells: facts, plans, models, ledger, checkpoints, the seal."""

from __future__ import annotations

import math
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import chdtr, chdtrc

from sklar.budget.certificate import SCORES, Measured
from sklar.budget.ledger import Ledger
from sklar.budget.method import PAPER, Method
from sklar.budget.plan import plan_release
from sklar.errors import BudgetError, DataError
from sklar.files.model import fit_tables
from sklar.fitting.margins import pool
from sklar.fitting.third import look, look_ahead
from sklar.kernel import noise
from sklar.kernel.queries import PARTS, Block, Distances, Tables
from sklar.kernel.theorems import DEFAULT_DELTA, NOTHING, Budget, Spend
from sklar.public.schema import Schema
from sklar.release import fit, measure
from sklar.trust.audit import Comparison, Effort, conclude, inventions
from sklar.trust.audit.inventions import ADDED, EXACT, ONE, PEOPLE, Release, frame_of, invent, release_twice, write
from sklar.trust.exact import exact_epsilon
from sklar.trust.verify.refit import as_planned

# A fact that noise decides is the same in so many releases of each neighbor, and another in those of the other, with a
# chance below 4 ** -16.
_RUNS = 16


def check_shown(folder: Path, _: Effort, release: Release = release_twice) -> Iterator[Comparison]:
    """Facts that are the same in all releases of a table, and others in all releases of its neighbor."""
    for budget, words in ((ONE, "one row is another"), (ADDED, "one row is left out")):
        whole = {"born": pl.lit("1950-01-01"), "member": pl.lit("true")}
        table = invent(40).frame.with_columns(**whole)
        other = table[1:]
        if budget.neighbors == "replace-one":
            # A row that stands in no cell of an attribute, in place of one that does.
            other = other.vstack(table[:1].with_columns(born=pl.lit("")))
        shown = []
        for number, each in enumerate((table, other)):
            path = write(each, folder / f"shown{number}.csv")
            shown.append([inventions.facts_of(release(path, PEOPLE, budget).measured) for _ in range(_RUNS)])
        # What is not there is a fact too.
        every = {key for facts in shown for run in facts for key in run}
        values = {key: [{run.get(key) for run in facts} for facts in shown] for key in every}
        telling = sorted(key for key, (one, two) in values.items() if len(one) == len(two) == 1 and one != two)
        tried = (
            f"{2 * _RUNS} releases of two neighbors ({words}, {budget.neighbors}): all that is released beside noisy "
            "cells, from the certificate to the number of rows and the noise scales."
        )
        wrong = [f"These tell the two apart: {', '.join(telling[:3])}."] * len(telling)
        sees = "It sees every fact that follows from the rows and not from noise."
        yield conclude("facts beside the cells", tried, wrong, "Nothing tells the two apart.", sees, 2 * _RUNS)
    yield check_first_plan(folder, release)


def check_first_plan(folder: Path, release: Release) -> Comparison:
    """Under add-remove a first plan is the same for all tables: from one to another lead many neighbors."""
    shown = []
    for rows in (3, 300, 100_000):
        path = write(invent(rows, typed=True).frame, folder / "plans.parquet")
        facts = inventions.facts_of(release(path, PEOPLE, ADDED).measured)
        first = ("block 0", "block 1", "block 2", "schema")
        shown.append({key: value for key, value in facts.items() if key.startswith(first)})
    tried = "releases of 3, 300 and 100,000 rows under add-remove: the noise scales of their first stage."
    wrong = ["They differ, and so tell how many rows there are." for facts in shown[1:] if facts != shown[0]]
    sees = "It sees a plan that was made from the exact number of rows."
    return conclude("first plan", tried, wrong, "They are the same.", sees, len(shown))


def check_plan(folder: Path, _: Effort) -> Iterator[Comparison]:
    """The second stage's scales must follow from the first stage's noisy tables."""
    schema, generator = inventions.whole_numbers(3, 4, 5), np.random.default_rng()
    first = generator.integers(0, 3, 3_000)
    codes = np.array([first, (first + generator.integers(0, 2, 3_000)) % 4, generator.integers(0, 5, 3_000)])
    path, runs = write(frame_of(schema, codes), folder / "plan.parquet"), 10
    follow = [follows(measure(path, schema, ONE), schema, ONE) for _ in range(runs)]
    tried = f"{runs} releases in two stages: the second's scales worked out again from the first's noisy tables."
    wrong = ["They do not follow: something else decided them."] * (runs - sum(follow))
    sees = "It sees a plan that was made from exact counts."
    yield conclude("second plan", tried, wrong, "They follow.", sees, runs)


def check_refit(folder: Path, _: Effort) -> Iterator[Comparison]:
    """A model must follow from its noisy tables."""
    path, wrong = write(invent(500).frame, folder / "refit.csv"), []
    for method in ("binary", "mixture"):
        model = fit(path, PEOPLE, epsilon=1.0, method=method)
        again = fit_tables(model.measured, method=method)
        pairs = zip(model.copula.arrays().values(), again.copula.arrays().values(), strict=True)
        alike = all(one.shape == two.shape and np.allclose(one, two, 1e-3, 1e-4) for one, two in pairs)
        if model.n_rows != again.n_rows or not alike:
            wrong.append(f"Another model comes out ({method}).")
    tried = "two releases, a model of each kind: fitted again to the noisy tables that the model holds."
    sees = "It sees a model that was fitted to anything but its noisy tables."
    yield conclude("model", tried, wrong, "The same models come out.", sees, 2)


_THIRD_ROWS, _THIRD_BUDGET = 20_000, Budget(epsilon=2.0)
_SIZES = (4, 5, 3, 11, 4, 6, 3, 5, 4)
# Genuine noise fails with this chance.
_LEVEL = 1e-9


def check_third(folder: Path, effort: Effort) -> Iterator[Comparison]:
    """The tables and scales of a third stage follow from noisy tables, hold the noise that they state, and are paid."""
    schema, codes = inventions.whole_numbers(*_SIZES), _codes()
    path, wrong, runs = write(frame_of(schema, codes), folder / "third.parquet"), [], effort.third
    # Sums of squares and their number: of tables, then of scores, which are few beside cells.
    squares = np.zeros((2, 2))
    for _ in range(runs):
        measured = measure(path, schema, _THIRD_BUDGET)
        blocks = measured.blocks
        chosen = next((block for block in blocks if getattr(block.query, "sets", None) is not None), None)
        scores = next((block for block in blocks if isinstance(block.query, Distances)), None)
        if chosen is None:
            wrong.append("no three-way table was measured")
            continue
        if not follows(measured, schema, _THIRD_BUDGET):
            wrong.append("something else than noisy tables decided the later stages")
        z = (chosen.values - _counted(codes, chosen.query)) / np.repeat(chosen.scales, chosen.query.sizes)
        for part, own in enumerate((z, _score_noise(codes, measured, scores))):
            squares[part] += float(own @ own), own.size
        if _THIRD_BUDGET.spent(sum(map(_moved, blocks), NOTHING)) > _THIRD_BUDGET.epsilon:
            wrong.append("all stages cost more than the budget")
        stated = sum(entry.tables for entry in measured.certificate.measurements if entry.order in (3, SCORES))
        if stated != chosen.scales.size + (0 if scores is None else scores.values.size):
            wrong.append("the certificate does not state them")
    for name, (total, freedom) in zip(("their noise", "the noise of scores"), squares.tolist(), strict=True):
        if not freedom:
            wrong.append(f"{name} was not seen")
        elif 2 * min(chdtr(freedom, total), chdtrc(freedom, total)) < _LEVEL:
            wrong.append(f"{name} has {total / freedom:.3g} times the variance that is stated")
    tried = (
        f"{runs} releases with a third stage: its tables and scales worked out again from the first stage's "
        "noisy tables and noisy scores, its counts and scores compared with those of the rows, its cost added up."
    )
    wrong = [f"Wrong: {each}." for each in wrong]
    sees = "It sees tables that exact counts chose, noise that is missing, rows counted twice, and a cost left out."
    yield conclude("three-way tables", tried, wrong, "All of it follows.", sees, runs)


def _moved(block: Block) -> Spend:
    """What a replaced row moves, whatever the package says: two cells of a table, or a score by 15 sqrt(2), rounded."""
    scored = isinstance(block.query, Distances)
    return Spend.of(block.scales, block.values.size, 22) if scored else Spend.of(block.scales, 2)


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


def follows(measured: Measured, schema: Schema, budget: Budget) -> bool:
    """Whether the later stages follow from the first stage's noisy tables and from noisy scores."""
    stages = plan_release(schema.cells, budget, Method(), n_rows=measured.n_rows)
    first, later = measured.blocks[: len(stages.first.parts)], measured.blocks[len(stages.first.parts) :]
    outlook = look_ahead(first, schema, stages, measured.n_rows)
    scores = [block for block in later if isinstance(block.query, Distances)]
    planned = [*outlook.plan(scores).parts, *outlook.scores]
    return as_planned(later, planned, tolerance=0.0)


def _score_noise(codes: NDArray[np.int32], measured: Measured, scores: Block | None) -> NDArray[np.float64]:
    """The noise of scores in units of what is stated; nothing where there are none."""
    scored = look(pool(measured, first=True), measured.schema, scored=True)
    if scores is None or scored is None:
        return np.empty(0)
    apart = _counted(codes, scored.triples) - scored.reference
    exact = []
    for own, shape in zip(np.split(apart, scored.triples.offsets[1:-1]), scored.triples.shapes, strict=True):
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


_TOTAL, _EACH, _MANY = 1.0, 0.3, 20


def check_ledger(folder: Path, _: Effort) -> Iterator[Comparison]:
    """Release until the ledger refuses: what has left costs no more than the total, and every charge covers its own."""
    book = Ledger(folder / "ledger.db")
    book.open_account("audit", epsilon=_TOTAL, delta=DEFAULT_DELTA)
    path = write(invent(40).frame, folder / "ledger.csv")
    scales: list[float] = []
    short = done = 0
    while done < _MANY:
        try:
            measured = measure(path, PEOPLE, Budget(epsilon=_EACH), ledger=book, dataset="audit")
        except BudgetError:
            break
        done += 1
        # One scale a table: what one person can move in it is counted below.
        own = np.concatenate([block.scales for block in measured.blocks if isinstance(block.query, Tables)])
        charges = book.account("audit").charges
        short += charges[-1].cost.rho < float(np.sum(1 / own**2)) * (1 - 1e-9)
        short += len(charges) != done
        scales += own.tolist()
    short += len(book.account("audit").charges) != done
    values, tables = np.unique(scales, return_counts=True)
    spent = exact_epsilon("gaussian", values, 2 * tables, DEFAULT_DELTA) if values.size else math.inf
    passed = 0 < done < _MANY and spent <= _TOTAL * 1.002
    tried = f"releases of epsilon {_EACH} from a ledger with a total of {_TOTAL:g}, until it refused."
    found = f"{done} releases left; together they cost epsilon {spent:.4g}."
    sees = "It sees a ledger that lets more out than its total."
    yield Comparison("ledger", tried, found, sees, passed, _TOTAL, spent, done)
    tried = f"the charges of these {done} releases, beside the noise scales of all tables that they measured."
    wrong = [f"{short} charges do not cover what was measured."] * short
    right = "Every charge covers its release, and a refusal charged nothing."
    sees = "It sees a table or a stage that was measured and not charged."
    yield conclude("ledger", tried, wrong, right, sees, done)


def check_checkpoint(folder: Path, _: Effort) -> Iterator[Comparison]:
    """Interrupt a pass over a folder of files, look at what it kept, and let it go on."""
    parts, place, kept = [invent(300, typed=True) for _ in range(4)], folder / "parts", folder / "kept"
    place.mkdir()
    last = [write(part.frame, place / f"{number}.parquet") for number, part in enumerate(parts)][-1]
    whole = last.read_bytes()
    # A file whose pages are damaged but whose end is not: it opens, and fails when it is read.
    damaged = min(2_000, len(whole) // 3)
    last.write_bytes(whole[:4] + bytes(damaged) + whole[4 + damaged :])
    raised = False
    try:
        measure(place, PEOPLE, EXACT, method=PAPER, checkpoint=kept)
    except DataError:
        raised = True
    files = [path for path in kept.rglob("*") if path.is_file()]
    closed = all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    closed = closed and (not files or stat.S_IMODE(kept.stat().st_mode) == 0o700)
    last.write_bytes(whole)
    cells = inventions.released(measure(place, PEOPLE, EXACT, method=PAPER, checkpoint=kept)).cells
    counts = inventions.right_counts(np.concatenate([part.codes for part in parts], axis=1), PEOPLE)
    same = raised and bool(files) and np.array_equal(cells, counts)
    tried = "a pass over four files that was interrupted at the last, and went on."
    wrong = [] if same else ["The counts are not those of the rows."]
    sees = "It sees a file that is counted twice, or not at all, after an interruption."
    yield conclude("checkpoint", tried, wrong, "The counts are those of the rows.", sees)
    tried = "what that pass kept on the disk while it was interrupted, and what it left behind in the end."
    wrong = ["Exact counts were open to others, or were left behind."] * ((not closed) + kept.exists())
    right = "It was closed to others, and nothing was left."
    sees = "It sees rights beyond those of the owner, and every file that stays."
    yield conclude("checkpoint", tried, wrong, right, sees, len(files))


def check_seal(_: Path, __: Effort) -> Iterator[Comparison]:
    """Try to replace the noise from outside, as another part of a program might."""
    wrong = ["The noise of this process can be replaced."]
    try:
        noise.discrete_gaussian = noise.discrete_gaussian
    except AttributeError:
        wrong = []
    tried = "to assign to the name of the sampler, from outside its module."
    sees = "It sees a sampler that any code in the process can switch off."
    yield conclude("seal", tried, wrong, "It is refused.", sees)
