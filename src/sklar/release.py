"""The algorithm on one page: one call per stage, in the paper's order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from sklar.budget.certificate import Measured, certify
from sklar.budget.forecast import require_support
from sklar.budget.method import Method
from sklar.budget.plan import beside_of, plan_release, tokens_for
from sklar.budget.receipt import Bill, LedgerLike, telling
from sklar.files.model import Model, fit_tables
from sklar.files.write import check_keep
from sklar.fitting.domains import find_domains
from sklar.fitting.third import look_ahead
from sklar.kernel.theorems import Budget, Composition, Mechanism, Neighbors
from sklar.machine.progress import SILENT, Progress
from sklar.public.schema import SchemaLike
from sklar.public.tree import Tree, joint_of, known_of, tree_of
from sklar.rows.engines import Measurer


def fit(
    data: object,
    schema: SchemaLike | Tree,
    budget: Budget | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    neighbors: Neighbors | None = None,
    method: Method | str | None = None,
    preset: Literal["paper"] | None = None,
    dummies: bool = False,
    mechanism: Mechanism | None = None,
    composition: Composition | None = None,
    query: str | None = None,
    ledger: LedgerLike = None,
    dataset: str | None = None,
    engine: Literal["local", "spark"] | None = None,
    checkpoint: str | Path | None = None,
    keep: str | Path | None = None,
    anyway: bool = False,
    progress: Progress = SILENT,
) -> Model:
    """Measure a table once, within a budget, and fit a model from which any number of rows can be drawn.

    `data` is a path (a file, a folder of files) or anything that exports an Arrow stream; with a `query`, a DuckDB file
    or the address of a database. `schema` is a schema, the path of one, or a model for its schema. Linked tables
    (`Tree`) come as a folder of files, a DuckDB file, or tables by name, and all they say of a person is released for
    one budget. Give a `budget`, or an `epsilon` as its short form, with what `sklar fit` takes beside it. `method` says
    how tables are measured and which model is fitted (`budget.method`). A `ledger` is charged for the whole release,
    under the name `dataset` (by default the schema's), before any noise is drawn; it refuses what would overspend.
    Attributes that the schema's rules determine are not measured; every record honors all rules.

    `engine` says where rows are counted: `local`, or `spark` for what one machine does not hold (the default for a
    Spark DataFrame). With a `checkpoint`, a folder for exact counts that is deleted in the end, an interrupted pass
    over a folder of files goes on where it ended. What was measured is written to the file `keep`, noisy values alone,
    before a model is fitted: `sklar.resume(keep)` goes on from there at no cost. A table whose rows, public or stated
    as `rows_about` in the schema, cannot support its columns is refused before anything is charged
    (`budget.forecast`), but for `anyway`.
    """
    method = Method.of(method, preset=preset, dummies=dummies)
    budget = method.budget_of(
        budget, epsilon, delta=delta, neighbors=neighbors, mechanism=mechanism, composition=composition
    )
    known = known_of(schema)
    check_keep(keep, joint_of(known).cells.n_cells)
    how: dict[str, Any] = {"query": query, "engine": engine, "checkpoint": checkpoint, "progress": progress}
    how |= {"ledger": ledger, "dataset": dataset, "anyway": anyway}
    measured = measure(data, known, budget, method=method, **how)
    with telling([measured.certificate.receipt], measured.certificate.epsilon, keep):
        return fit_tables(measured, method=method, keep=keep, progress=progress)


def measure(
    data: object,
    schema: SchemaLike | Tree,
    budget: Budget,
    *,
    method: Method | str = "auto",
    query: str | None = None,
    ledger: LedgerLike = None,
    dataset: str | None = None,
    engine: Literal["local", "spark"] | None = None,
    checkpoint: str | Path | None = None,
    anyway: bool = False,
    progress: Progress = SILENT,
) -> Measured:
    """The noisy blocks that a release measures: all that ever leaves the private side. Arguments are those of `fit`."""
    known, method = known_of(schema), Method.of(method)
    known.require_reviewed()
    joint = joint_of(known)
    budget = method.budget_for(joint, budget)
    require_support(joint, budget, method, joint.rows_about, anyway=anyway)
    bill = Bill(ledger, dataset, known, budget)
    with telling(bill.receipts, budget.epsilon):
        how: dict[str, Any] = {"query": query, "engine": engine, "checkpoint": checkpoint, "progress": progress}
        measurer = Measurer.open(data, tree_of(known) or joint.measured, budget, charge=bill, **how)
        measured = measure_stages(measurer, method, anyway=anyway, progress=progress)
    return replace(measured, certificate=replace(measured.certificate, receipt=bill.receipt))


def measure_stages(measurer: Measurer, method: Method, *, anyway: bool = True, progress: Progress = SILENT) -> Measured:
    """All stages of a release: domains that are not public, the first plan, and what follows from it."""
    budget = measurer.budget
    require_support(measurer.schema, budget, method, measurer.count_values(), anyway=anyway)
    search, noisy = measurer.search()
    measurer = measurer.over(find_domains(measurer.schema, search, noisy))
    schema, beside = measurer.schema, beside_of(measurer.known)
    measurer.count_all(tokens_for(schema.cells, budget, method, beside) if measurer.tree else 1)
    progress.stage("measure")
    facts: dict[str, Any] = {"n_rows": measurer.n_rows, "importance": schema.importance, "again": measurer.reads_again}
    stages = plan_release(schema.cells, budget, method, rest=search.rest, beside=beside, **facts)
    if search.rest is None:
        # All stages at once: a run that ends between them must not leave one of them uncharged.
        measurer.reserve(stages.spend)
    blocks = [measurer.measure(*part) for _ in range(stages.looks) for part in stages.first.parts]
    if stages.reserve.size:
        outlook = look_ahead(blocks, schema, stages, measurer.n_rows, again=measurer.reads_again)
        scores = measurer.measure_all(outlook.scores)
        blocks += measurer.measure_all(outlook.plan(scores).parts) + scores
    certificate = certify(schema, budget, blocks, measurer.n_rows, search.findings, measurer.tree)
    return Measured(schema=schema, blocks=(*noisy, *blocks), certificate=certificate, tree=measurer.tree)
