"""The algorithm on one page: one call per stage, in the paper's order."""

from __future__ import annotations

from typing import Literal, get_args

from sklar.budget import DEFAULT_DELTA, Budget, Composition, Mechanism, Neighbors
from sklar.copula.binary import fit_binary
from sklar.errors import BudgetError
from sklar.margins import consistent, plain, pool
from sklar.model import Model
from sklar.plan import plan_tables
from sklar.private.measure import open_vault
from sklar.progress import SILENT, Progress
from sklar.schema import Schema
from sklar.tables import NoisyTables

Method = Literal["binary"]
Preset = Literal["paper"]

# One-way tables answer the questions that are asked most and anchor every two-way table.
ONE_WAY_SHARE = 0.4


def fit(
    data: object,
    schema: Schema,
    *,
    epsilon: float,
    delta: float = DEFAULT_DELTA,
    neighbors: Neighbors = "replace-one",
    mechanism: Mechanism | None = None,
    composition: Composition | None = None,
    method: Method = "binary",
    preset: Preset | None = None,
    dummies: bool = False,
    progress: Progress = SILENT,
) -> Model:
    """Measure a table once, within (epsilon, delta), and fit a model from which any number of rows can be drawn.

    `data` is a path (CSV, Parquet, a folder of them) or anything that exports an Arrow stream. The preset `paper` is
    the paper's mechanism, soundly read: Laplace noise, advanced composition, equal shares, no consistency step; what
    is given beside it wins. `dummies` fits the paper's 0/1 output instead of valid records.
    """
    _one_of("method", method, get_args(Method))
    if preset is not None:
        _one_of("preset", preset, get_args(Preset))
    paper = preset == "paper"
    chosen: Mechanism = mechanism or ("laplace" if paper else "gaussian")
    budget = Budget(
        epsilon=epsilon,
        delta=delta,
        neighbors=neighbors,
        mechanism=chosen,
        composition=composition or ("advanced" if paper and chosen == "laplace" else "tight"),
    )
    schema.require_reviewed()
    plan = plan_tables(schema, budget, one_way_share=None if paper else ONE_WAY_SHARE)

    vault = open_vault(data, schema, budget, progress=progress)
    progress.stage("measure")
    measured = (vault.measure(plan),)
    progress.stage("fit")
    return fit_tables(measured, paper=paper, dummies=dummies)


def fit_tables(measured: tuple[NoisyTables, ...], *, paper: bool, dummies: bool) -> Model:
    """Fit a model to noisy tables: post-processing, at no privacy cost."""
    estimates = pool(measured)
    probabilities = plain(estimates) if paper else consistent(estimates)
    return Model(
        measured=measured,
        copula=fit_binary(probabilities, dummies=dummies, weighted=not paper),
        n_rows=probabilities.n_rows,
        settings={"method": "binary", "preset": "paper" if paper else None},
    )


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise BudgetError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
