"""Attacks that are made on every kind of release (`kinds`), all on the same releases of a table and of its neighbor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import Measured, is_of_schema
from sklar.budget.ledger import Ledger
from sklar.budget.method import PAPER, Method
from sklar.budget.plan import beside_of, plan_release
from sklar.budget.search import finding_faults, fits, replan_search
from sklar.errors import BudgetError
from sklar.files.model import fit_tables
from sklar.fitting.density import searched
from sklar.fitting.domains import domain_faults
from sklar.fitting.third import look_ahead
from sklar.kernel.queries import Distances
from sklar.kernel.theorems import Budget
from sklar.release import fit
from sklar.trust.audit import Comparison, Effort, compare, conclude, noises, sensitivity
from sklar.trust.audit.inventions import EXACT, facts_of
from sklar.trust.audit.kinds import Kind, rows_of, scales_of
from sklar.trust.audit.together import drawn_by, odd_together
from sklar.trust.verify import verify_model
from sklar.trust.verify.refit import as_planned

Runs = Sequence[Measured]
# A fact that noise decides is the same in so many releases of each neighbor, and another in those of the other, with a
# chance below 4 ** -16.
LEAST_RUNS = 16
# Where a guess tells most: mu about 2.5, and noise far above the blur of 4 units of variance, hence many tables.
LOOSE = Budget(epsilon=18.0)
# Less than this much noise in rows is none.
_EXACT = 2.0**-6
# Plans and costs are worked out again for so many releases.
_FEW = 3


def attack_noise(kind: Kind, here: Runs, *_: Any) -> Comparison:
    """Whitened residuals of everything that was drawn are independent: `together`."""
    odd = odd_together(drawn_by(kind, here))
    wrong = [f"Found: {words}." for words, _ in odd]
    return conclude("noise together", wrong, len(here), odd[0][1] if odd else None)


def attack_counts(kind: Kind, *_: Any) -> Comparison:
    """Every exact answer of a release is the one to the rows, or to those of each person that are counted."""
    bare = kind.measure(budget=replace(kind.budget, epsilon=EXACT.epsilon))
    # A search for numbers keeps the noise that it wants, whatever the budget.
    pairs = zip(bare.blocks, kind.exact(bare), strict=True)
    quiet = [(block, exact) for block, exact in pairs if block.in_rows.scales.max() < _EXACT]
    same = [
        bool((abs(block.values - exact) < _EXACT * getattr(block.query, "each", 1)).all()) for block, exact in quiet
    ]
    return conclude("counts", ["Wrong counts."] * (len(same) - sum(same)), len(same))


def attack_facts(_: Kind, here: Runs, there: Runs, __: Path) -> Comparison:
    """Facts that are the same in all releases of a table, and others in all releases of its neighbor."""
    shown, runs = [[facts_of(measured) for measured in runs] for runs in (here, there)], len(here) + len(there)
    # What is not there is a fact too.
    every = {key for facts in shown for run in facts for key in run}
    values = {key: [{run.get(key) for run in facts} for facts in shown] for key in every}
    telling = sorted(key for key, (one, two) in values.items() if len(one) == len(two) == 1 and one != two)
    # Fewer releases tell nothing: what noise decides may be the same in all of them.
    telling = telling if len(here) >= LEAST_RUNS else []
    wrong = [f"These tell the two apart: {', '.join(telling[:3])}."] * len(telling)
    return conclude("facts beside the cells", wrong, runs)


def attack_cost(kind: Kind, here: Runs, *_: Any) -> Comparison:
    """What the neighbor costs, by how far it moves every exact answer, by the noise that is stated and what is left of
    delta."""
    left = replace(kind.budget, delta=kind.budget.delta - _lost(here[0]))
    found = max(sensitivity.cost_of(left, *_moved(kind, each)) for each in here[:_FEW])
    claimed = kind.budget.epsilon
    return compare("cost of a neighbor", claimed, found, _FEW, passed=found <= claimed * sensitivity.TOLERANCE)


def attack_guess(kind: Kind, here: Runs, there: Runs, *_: Any) -> Comparison:
    """Guess which of two neighbors was released, by the log likelihood ratio of all blocks."""
    scales, shift = _moved(kind, here[0])
    both = ratios(kind, here), ratios(kind, there)
    return noises.judge_guesses(kind.name, kind.budget, both, math.sqrt(float(np.sum((shift / scales) ** 2))))


def ratios(kind: Kind, runs: Runs) -> NDArray[np.float64]:
    """The log likelihood ratio of the table beside its neighbor, of every release."""
    gaussian = kind.budget.mechanism == "gaussian"

    def ratio(measured: Measured) -> float:
        noisy, scales = np.concatenate([block.values for block in measured.blocks]), scales_of(measured)
        one, two = (np.abs(noisy - np.concatenate(kind.exact(measured, which))) / scales for which in (0, 1))
        return float(np.sum((two**2 - one**2) / 2 if gaussian else two - one))

    return np.array([ratio(measured) for measured in runs])


def check_guesses(_: Path, effort: Effort) -> Iterator[Comparison]:
    """Guess where that tells most: many tables of few rows, by a budget that lets noise be far above its blur."""
    for words, size, people, method, trials in (
        ("210 tables measured at once", 2, 0, PAPER, effort.once),
        ("210 parities, measured twice", 2, 0, Method(), effort.twice),
        ("400 tables measured in two stages", 3, 0, Method(), effort.twice),
        ("210 tables, a person of 8 rows replaced", 2, 8, PAPER, effort.twice),
    ):
        kind = rows_of(words, (size,) * 20, 3 * max(people, 1), LOOSE, people, method)
        here, there = ([kind.measure(which) for _ in range(trials)] for which in (0, 1))
        yield attack_guess(kind, here, there)
        if trials == effort.once:
            yield noises.judge_tightness(words, LOOSE, (ratios(kind, here), ratios(kind, there)))


def attack_plan(kind: Kind, here: Runs, *_: Any) -> Comparison:
    """Queries and scales worked out again from public facts and noisy blocks."""
    follow = [follows(measured, kind.budget) for measured in here[:_FEW]]
    wrong = ["They do not follow: something else decided them."] * (len(follow) - sum(follow))
    return conclude("plan", wrong, len(follow))


def attack_charge(kind: Kind, here: Runs, _: Runs, folder: Path) -> Comparison:
    """A charge covers what a release measured: what the neighbor moves, and the chances of thresholds. When all is
    spent, nothing more is measured or charged."""
    book, budget = Ledger(folder / f"{kind.name.replace(' ', '-')}.db"), kind.budget
    unit: Any = "row" if here[0].certificate.rows_per_person is None else "person"
    book.open_account("audit", epsilon=budget.epsilon, delta=budget.delta, neighbors=budget.neighbors, unit=unit)
    measured, refused = kind.measure(ledger=book), False
    try:
        kind.measure(budget=replace(budget, epsilon=budget.epsilon / 2), ledger=book)
    except BudgetError:
        refused = True
    charge, *more = book.account("audit").charges
    scales, shift = _moved(kind, measured)
    wrong = ["It does not cover what was measured."]
    wrong *= charge.cost.rho < float(np.sum((shift / scales) ** 2)) / 2 * (1 - 1e-9)
    wrong += ["It leaves out chances of thresholds."] * (charge.lost_delta < _lost(measured) * (1 - 1e-9))
    wrong += ["Half as much more was let out, or charged when it was refused."] * (not refused or bool(more))
    return conclude("charge", wrong)


def attack_model(kind: Kind, *_: Any) -> Comparison:
    """A model follows from its noisy blocks, and `verify` finds that it costs what it claims.

    That reckons noise, thresholds and their chances by other code than a release.
    """
    wrong = []
    for method in ("auto", "binary") if kind.name == "rows" else ("auto",):
        model = fit(kind.data(), kind.schema, kind.budget, method=method)
        both = model.copula.arrays(), fit_tables(model.measured, method=method).copula.arrays()
        checks = verify_model(model).checks
        wrong += [f"Verify contradicts it ({method}): {each.detail}." for each in checks if each.passed is False]
        pairs = zip(*(each.values() for each in both), strict=True)
        if not all(one.shape == two.shape and np.allclose(one, two, 1e-3, 1e-4) for one, two in pairs):
            wrong.append(f"Another model comes out ({method}).")
    return conclude("model", wrong)


BY_KIND: dict[str, Callable[[Kind, Runs, Runs, Path], Comparison]] = {
    "noise together": attack_noise,
    "counts": attack_counts,
    "facts beside the cells": attack_facts,
    "cost of a neighbor": attack_cost,
    "whole release": attack_guess,
    "plan": attack_plan,
    "charge": attack_charge,
    "model": attack_model,
}


def on_kind(kind: Kind) -> Callable[[Path, Effort], Iterator[Comparison]]:
    """The attacks on one kind of release, on as many releases of both neighbors as the effort says."""

    def check(folder: Path, effort: Effort) -> Iterator[Comparison]:
        here, there = ([kind.measure(which) for _ in range(effort.each)] for which in (0, 1))
        for attack in BY_KIND.values():
            found = attack(kind, here, there, folder)
            yield replace(found, kind=kind.name, tried=f"{kind.name}. {found.tried[0].upper()}{found.tried[1:]}")

    check.__name__ = f"check_{kind.name}"
    return check


def _moved(kind: Kind, measured: Measured) -> tuple[Any, Any]:
    """The scale of every cell of a release, and how far the neighbor's exact answers lie from the table's."""
    one, two = (np.concatenate(kind.exact(measured, which)) for which in (0, 1))
    return scales_of(measured), np.abs(two - one)


def _lost(measured: Measured) -> float:
    """The part of delta that thresholds take."""
    return math.fsum(finding.lost_delta for finding in measured.certificate.domains)


def follows(measured: Measured, budget: Budget) -> bool:
    """Whether queries and scales follow from public facts and noisy blocks, to the last digit."""
    if replace(budget, rows_per_person=measured.certificate.rows_per_person) != measured.certificate.budget:
        return False
    stated, schema = measured.certificate, measured.schema
    budget, rest = stated.budget, None
    if stated.domains:
        rest = replan_search(schema, budget, stated.domains, measured.blocks, stated.public_rows).rest
        cells = all(
            finding.threshold is not None or fits(finding, schema, [block.values for block in own])
            for finding, own in searched(stated.domains, measured.blocks)
        )
        faults = finding_faults(schema, budget, stated.domains, stated.earlier, measured.blocks, stated.public_rows)
        if faults or domain_faults(measured) or not cells:
            return False
    blocks = [block for block in measured.blocks if is_of_schema(block)]
    public = {"n_rows": measured.n_rows, "importance": schema.importance, "beside": beside_of(measured.known)}
    stages = plan_release(schema.cells, budget, Method(), rest=rest, **public)
    planned = list(stages.first.parts) * stages.looks
    if stages.reserve.size:
        outlook = look_ahead(blocks[: len(planned)], schema, stages, measured.n_rows)
        scores = [block for block in blocks if isinstance(block.query, Distances)]
        planned += [*outlook.plan(scores).parts, *outlook.scores]
    return as_planned(blocks, planned, tolerance=0.0)
