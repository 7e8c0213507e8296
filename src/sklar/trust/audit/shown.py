"""Attacks on what is shown beside noisy cells: facts that tell neighbors apart, plans and models that know too much."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from sklar.kernel.theorems import Budget
from sklar.release import fit, fit_tables, measure
from sklar.trust.audit.path import Release, facts_of, release_twice
from sklar.trust.audit.result import Comparison
from sklar.trust.audit.tables import PEOPLE, frame_of, invent, whole_numbers, write
from sklar.trust.audit.third import unplanned

# A fact that noise decides is the same in so many releases of each neighbor, and another in those of the other, with a
# chance below 4 ** -16.
_RUNS = 16


def check_shown(folder: Path, *, release: Release = release_twice) -> list[Comparison]:
    """Facts that are the same in all releases of a table, and others in all releases of its neighbor."""
    return [
        _check_facts(folder, release, Budget(epsilon=1.0), "one row is another"),
        _check_facts(folder, release, Budget(epsilon=1.0, neighbors="add-remove"), "one row is left out"),
        _check_plans(folder, release),
    ]


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
    found = {key: [{run.get(key) for run in facts} for facts in shown] for key in every}
    telling = sorted(key for key, (one, two) in found.items() if len(one) == len(two) == 1 and one != two)
    return Comparison(
        part="facts beside the cells",
        tried=f"{2 * _RUNS} releases of two neighbors ({words}, {budget.neighbors}): all that is released beside noisy "
        "cells, from the certificate to the number of rows and the noise scales.",
        found="Nothing tells the two apart." if not telling else f"These tell the two apart: {', '.join(telling[:3])}.",
        sees="It sees every fact that follows from the rows and not from noise.",
        passed=not telling,
        claimed=0.0,
        measured=float(len(telling)),
        trials=2 * _RUNS,
    )


def _check_plans(folder: Path, release: Release) -> Comparison:
    """Under add-remove a first plan is the same for all tables: from one to another lead many neighbors."""
    budget, shown = Budget(epsilon=1.0, neighbors="add-remove"), []
    for rows in (3, 300, 100_000):
        path = write(invent(rows, np.random.default_rng(), typed=True).frame, folder / "plans.parquet")
        facts = facts_of(release(path, PEOPLE, budget).measured)
        shown.append({key: value for key, value in facts.items() if key.startswith(("stage 0", "rows", "schema"))})
    same = all(facts == shown[0] for facts in shown)
    return Comparison(
        part="first plan",
        tried="releases of 3, 300 and 100,000 rows under add-remove: the noise scales of their first stage.",
        found="They are the same." if same else "They differ, and so tell how many rows there are.",
        sees="It sees a plan that was made from the exact number of rows.",
        passed=same,
        claimed=0.0,
        measured=float(not same),
        trials=len(shown),
    )


def check_plan(folder: Path) -> Comparison:
    """The second stage's scales must follow from the first stage's noisy tables."""
    schema, budget, generator = whole_numbers(3, 4, 5), Budget(epsilon=1.0), np.random.default_rng()
    first = generator.integers(0, 3, 3_000)
    codes = np.array([first, (first + generator.integers(0, 2, 3_000)) % 4, generator.integers(0, 5, 3_000)])
    path, wrong, runs = write(frame_of(schema, codes), folder / "plan.parquet"), 0, 10
    for _ in range(runs):
        wrong += len(unplanned(measure(path, schema, budget), schema, budget))
    return Comparison(
        part="second plan",
        tried=f"{runs} releases in two stages: the second's scales worked out again from the first's noisy tables.",
        found="They follow." if not wrong else "They do not follow: something else decided them.",
        sees="It sees a plan that was made from exact counts.",
        passed=not wrong,
        claimed=0.0,
        measured=float(wrong),
        trials=runs,
    )


def check_refit(folder: Path) -> Comparison:
    """A model must follow from its noisy tables."""
    path = write(invent(500, np.random.default_rng()).frame, folder / "refit.csv")
    wrong = []
    for method in ("binary", "mixture"):
        model = fit(path, PEOPLE, epsilon=1.0, method=method)
        again = fit_tables(model.measured, method=method)
        one, two = model.copula.arrays(), again.copula.arrays()
        alike = all(
            one[name].shape == two[name].shape and np.allclose(one[name], two[name], 1e-3, 1e-4) for name in one
        )
        if model.n_rows != again.n_rows or not alike:
            wrong.append(method)
    return Comparison(
        part="model",
        tried="two releases, a model of each kind: fitted again to the noisy tables that the model holds.",
        found="The same models come out." if not wrong else f"Other models come out ({', '.join(wrong)}).",
        sees="It sees a model that was fitted to anything but its noisy tables.",
        passed=not wrong,
        claimed=0.0,
        measured=float(len(wrong)),
        trials=2,
    )
