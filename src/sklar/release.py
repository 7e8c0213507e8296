"""The algorithm on one page: one call per stage, in the paper's order."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from sklar.budget.certificate import NoisyTables
from sklar.budget.ledger import Ledger
from sklar.budget.plan import plan_second, plan_stages, plan_tables
from sklar.draw.repair import settle
from sklar.errors import BudgetError, SchemaError
from sklar.files.model import Model
from sklar.fitting.binary import fit_binary
from sklar.fitting.choose import fit_auto
from sklar.fitting.denoise import interactions
from sklar.fitting.latent import Kind
from sklar.fitting.margins import consistent, margins, plain, pool
from sklar.kernel.theorems import DEFAULT_DELTA, Budget, Composition, Mechanism, Neighbors
from sklar.kernel.vault import Vault, open_vault
from sklar.machine.cluster import Engine
from sklar.machine.progress import SILENT, Progress
from sklar.public.schema import Schema

Method = Literal["auto", "mixture", "factor", "binary"]
Preset = Literal["paper"]

# Where all tables are measured at once. One-way tables answer what is asked most and anchor every two-way table.
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
    method: Method | None = None,
    preset: Preset | None = None,
    dummies: bool = False,
    ledger: Ledger | str | Path | None = None,
    dataset: str | None = None,
    engine: Engine | None = None,
    checkpoint: str | Path | None = None,
    progress: Progress = SILENT,
) -> Model:
    """Measure a table once, within (epsilon, delta), and fit a model from which any number of rows can be drawn.

    `data` is a path (CSV, Parquet, a folder of them) or anything that exports an Arrow stream. Methods: `mixture` and
    `factor` are latent models over whole attributes, `auto` (the default) takes the better of them by the noisy tables
    alone, `binary` is the paper's copula over dummies. The preset `paper` is the paper's mechanism, soundly read:
    binary copula, Laplace noise, advanced composition, equal shares, no consistency step; what is given beside it wins.
    `dummies` gives the paper's 0/1 output instead of valid records. A `ledger` is charged for the whole release, under
    the name `dataset` (by default the schema's), before any noise is drawn; it refuses what would overspend. Attributes
    that the schema's rules determine are not measured; every record honors all rules.

    `engine` says where rows are counted: `local`, or `spark` for what one machine does not hold (the default for a
    Spark DataFrame). With a `checkpoint`, a folder for exact counts that is deleted in the end, an interrupted pass
    over a folder of files goes on where it ended.
    """
    paper = preset == "paper"
    if preset is not None:
        _one_of("preset", preset, get_args(Preset))
    method = method or ("binary" if paper or dummies else "auto")
    _one_of("method", method, get_args(Method))
    if method != "binary" and (paper or dummies):
        raise BudgetError(f"the paper's preset and its dummies go with method 'binary', got method '{method}'.")
    mechanism = mechanism or ("laplace" if paper else "gaussian")
    composition = composition or ("advanced" if paper and mechanism == "laplace" else "tight")
    budget = Budget(epsilon=epsilon, delta=delta, neighbors=neighbors, mechanism=mechanism, composition=composition)
    schema.require_reviewed()
    _require_records(schema, dummies=dummies)

    charge = None
    if ledger is not None:
        book, name = ledger if isinstance(ledger, Ledger) else Ledger(ledger), dataset or schema.name
        book.require(name, budget)
        charge = partial(book.charge, name, budget, schema_sha256=schema.digest)
    elif dataset is not None:
        raise BudgetError(f"a data set is a name in a ledger, got dataset='{dataset}' and no ledger. Give both.")

    schema = schema.measured
    vault = open_vault(data, schema, budget, charge=charge, engine=engine, checkpoint=checkpoint, progress=progress)
    schema = vault.schema
    progress.stage("measure")
    if method == "binary" or mechanism == "laplace":
        share = None if paper else ONE_WAY_SHARE
        measured: tuple[NoisyTables, ...] = (
            vault.measure(plan_tables(schema, budget, one_way_share=share, rest=vault.rest)),
        )
    else:
        measured = measure_twice(vault, schema, budget)
    return fit_tables(measured, method=method, paper=paper, dummies=dummies, progress=progress)


def measure_twice(vault: Vault, schema: Schema, budget: Budget) -> tuple[NoisyTables, ...]:
    """All tables, then all pairs again, those that the first noisy tables show to depend more precisely."""
    stages = plan_stages(schema, budget, vault.n_rows, vault.rest)
    # Both stages at once: a run that ends between them must not leave one of them uncharged.
    vault.charge(np.concatenate([stages.first.scales, stages.reserve]))
    first = vault.measure(stages.first)
    if schema.n_attributes == 1:
        return (first,)
    estimates = pool((first,))
    distances = interactions(estimates, margins(estimates))
    return first, vault.measure(plan_second(schema, stages, distances))


def fit_tables(
    measured: tuple[NoisyTables, ...],
    *,
    method: Method = "auto",
    paper: bool = False,
    dummies: bool = False,
    progress: Progress = SILENT,
) -> Model:
    """Fit a model to noisy tables, ours or another system's (`exchange`): post-processing, at no privacy cost."""
    _one_of("method", method, get_args(Method))
    _require_records(measured[0].schema.whole or measured[0].schema, dummies=dummies)
    estimates = pool(measured)
    settings = {"method": method, "preset": "paper" if paper else None}
    if method == "binary":
        progress.stage("fit")
        probabilities = plain(estimates) if paper else consistent(estimates)
        copula = settle(fit_binary(probabilities, dummies=dummies, weighted=not paper))
        return Model(measured=measured, copula=copula, n_rows=estimates.n_rows, settings=settings)
    kinds: tuple[Kind, ...] = ("mixture", "factor") if method == "auto" else (method,)
    latent, decisions = fit_auto(estimates, kinds=kinds, progress=progress)
    # Forbidden cells keep their noisy counts in the fit: thinning needs every count to carry the noise that it states.
    return Model(measured=measured, copula=settle(latent), n_rows=estimates.n_rows, settings=settings | decisions)


def _require_records(schema: Schema, *, dummies: bool) -> None:
    if dummies and schema.rules:
        raise SchemaError(
            "rules are about records, and dummies are single 0/1 columns. Leave out dummies or the rules."
        )


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise BudgetError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
