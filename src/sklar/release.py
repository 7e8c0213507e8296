"""The algorithm on one page: one call per stage, in the paper's order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from sklar.budget.certificate import Measured, certify
from sklar.budget.method import Method
from sklar.budget.plan import (
    TRIPLES_SHARE,
    Stages,
    expected_pair_tv,
    looks_for_triples,
    plan_release,
    plan_scores,
    plan_second,
    plan_third,
)
from sklar.budget.receipt import telling
from sklar.budget.search import Search, require_gaussian
from sklar.draw.refine import refining_rounds, triple_rounds
from sklar.draw.repair import hold_margins
from sklar.errors import BudgetError, SchemaError
from sklar.files.model import LinkedModel, Model
from sklar.fitting.choose import fit_auto
from sklar.fitting.denoise import interactions
from sklar.fitting.domains import find_domains
from sklar.fitting.latent import LatentModel
from sklar.fitting.margins import Estimates, expected_noise, margins, pool, pool_blocks
from sklar.fitting.third import Disagreement, Wanted, look, want_triples
from sklar.kernel.queries import Block, Distances, Tables
from sklar.kernel.theorems import Budget, Composition, Mechanism, Neighbors
from sklar.kernel.vault import Vault
from sklar.machine.cluster import Engine
from sklar.machine.progress import SILENT, Progress
from sklar.machine.spill import is_large, require_disk, room_for
from sklar.machine.threads import workers
from sklar.public.person import budget_for
from sklar.public.schema import Schema, SchemaLike
from sklar.rows.engines import Measurer, open_table, search_rows
from sklar.rows.sql import Query

if TYPE_CHECKING:
    from sklar.budget.ledger import Bill, Ledger
    from sklar.public.events import Linked

# Arrays of all two-way cells, of four bytes each, that a fit has in files at once: noisy tables of two stages,
# estimates, targets and what they are made from, and two squares of contrasts, each of twice as many.
_FILES = 12


def fit(
    data: object,
    schema: SchemaLike,
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
    ledger: Ledger | str | Path | None = None,
    dataset: str | None = None,
    engine: Engine | None = None,
    checkpoint: str | Path | None = None,
    progress: Progress = SILENT,
) -> Model:
    """Measure a table once, within a budget, and fit a model from which any number of rows can be drawn.

    `data` is a path (a file, a folder of files) or anything that exports an Arrow stream; with a `query`, a DuckDB file
    or the address of a database. `schema` is a schema, the path of one, or a model for its schema. Give a `budget`, or
    an `epsilon` as its short form, with what `sklar fit` takes beside it. `method` says how tables are measured and
    which model is fitted (`budget.method`). A `ledger` is charged for the whole release, under the name `dataset` (by
    default the schema's), before any noise is drawn; it refuses what would overspend. Attributes that the schema's
    rules determine are not measured; every record honors all rules.

    `engine` says where rows are counted: `local`, or `spark` for what one machine does not hold (the default for a
    Spark DataFrame). With a `checkpoint`, a folder for exact counts that is deleted in the end, an interrupted pass
    over a folder of files goes on where it ended.
    """
    method = Method.of(method, preset=preset, dummies=dummies)
    budget = method.budget_of(
        budget, epsilon, delta=delta, neighbors=neighbors, mechanism=mechanism, composition=composition
    )
    measured = measure(
        data if query is None else Query(cast("Path | str", data), query),
        schema,
        budget,
        method=method,
        ledger=ledger,
        dataset=dataset,
        engine=engine,
        checkpoint=checkpoint,
        progress=progress,
    )
    with telling([measured.certificate.receipt], measured.certificate.epsilon):
        return fit_tables(measured, method=method, progress=progress)


def measure(
    data: object,
    schema: SchemaLike,
    budget: Budget,
    *,
    method: Method | str = "auto",
    ledger: Ledger | str | Path | None = None,
    dataset: str | None = None,
    engine: Engine | None = None,
    checkpoint: str | Path | None = None,
    progress: Progress = SILENT,
) -> Measured:
    """The noisy blocks that a release measures: all that ever leaves the private side. Arguments are those of `fit`."""
    schema, method = Schema.of(schema), Method.of(method)
    schema.require_reviewed()
    _require_records(schema, method)
    budget = budget_for(schema.person, budget)
    require_gaussian(schema, budget)
    bill = _bill(ledger, dataset, schema, budget)
    schema = schema.measured
    if not schema.private_domains and is_large(4 * schema.cells.n_cells):
        # Before anything is charged: a disk that is full in the middle of a fit would cost the budget.
        require_disk(_FILES * 4 * schema.cells.n_cells)
    vault = Vault(budget, charge=bill, threads=workers())
    receipts = [] if bill is None else bill.receipts
    with telling(receipts, budget.epsilon):
        table = open_table(data, schema, engine=engine, checkpoint=checkpoint)
        search: Search | None = None
        blocks: tuple[Block, ...] = ()
        if schema.private_domains:
            search, blocks = search_rows(table, vault, schema, budget, progress=progress)
            schema = find_domains(schema, search, blocks)
        measurer = Measurer(table, vault, schema, budget, progress=progress)
        measured = measure_stages(measurer, vault, schema, budget, method, search=search, progress=progress)
    certificate = replace(measured.certificate, receipt=receipts[0] if receipts else None)
    return replace(measured, blocks=blocks + measured.blocks, certificate=certificate)


def measure_stages(
    measurer: Measurer,
    vault: Vault,
    schema: Schema,
    budget: Budget,
    method: Method,
    *,
    search: Search | None = None,
    progress: Progress = SILENT,
) -> Measured:
    """All stages of a release of one table. `search` is how the schema's domains were found."""
    cells, findings = schema.cells, () if search is None else search.findings
    measurer.count(Tables(cells=cells, order=1), Tables(cells=cells, order=2))
    progress.stage("measure")
    stages = plan_release(
        cells,
        budget,
        method,
        n_rows=vault.n_rows,
        rest=None if search is None else search.rest,
        importance=schema.importance,
        again=measurer.reads_again,
    )
    if search is None:
        # All stages at once: a run that ends between them must not leave one of them uncharged.
        vault.reserve(stages.spend)
    blocks = [_settled(measurer.measure(*part)) for _ in range(stages.looks) for part in stages.first.parts]
    if stages.reserve.size:
        estimates = pool_blocks(blocks, budget.mechanism, vault.n_rows)
        distances = interactions(estimates, margins(estimates))
        outlook = look_at_triples(estimates, schema, stages) if measurer.reads_again else None
        later: list[Block] = []
        if outlook is not None and outlook.scale is not None:
            query = Distances(of=outlook.look.triples, reference=outlook.look.reference)
            later.append(measurer.measure(query, np.array([outlook.scale])))
        wanted = None if outlook is None else choose_triples(outlook, next(iter(later), None))
        aside = stages if outlook is None else outlook.stages
        if wanted is None:
            second = plan_second(cells, aside, distances, schema.importance)
        else:
            second, scales = plan_third(cells, aside, distances, wanted.scales, schema.importance)
            later.append(measurer.measure(wanted.triples, scales))
        blocks += [_settled(measurer.measure(*part)) for part in second.parts]
        blocks += later[::-1]
    certificate = certify(schema, budget, blocks, vault.n_rows, findings)
    return Measured(schema=schema, blocks=tuple(blocks), certificate=certificate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What the first stage's fits say of three-way tables, the scale of scores of them, and what is left to spend."""

    look: Disagreement
    scale: float | None
    stages: Stages
    pair_tv: float
    precision: float


def look_at_triples(estimates: Estimates, schema: Schema, stages: Stages) -> Outlook | None:
    """Fits of the first stage's estimates, where a release looks for three-way tables to measure; None elsewhere.

    Scores are paid from what was set aside, whether tables are then wanted or not.
    """
    cells, n_rows = schema.cells, estimates.n_rows
    if not looks_for_triples(cells, n_rows, stages):
        return None
    planned = plan_scores(cells, n_rows, stages)
    seen = look(estimates, schema, scored=planned is not None)
    if seen is None:
        return None
    scale, left = (None, stages) if planned is None else planned
    precision = stages.first.precision + float(np.sum(stages.reserve**-2.0))
    pair_tv = expected_pair_tv(cells, n_rows, stages)
    return Outlook(look=seen, scale=scale, stages=left, pair_tv=pair_tv, precision=precision)


def choose_triples(outlook: Outlook, scores: Block | None) -> Wanted | None:
    """The three-way tables that are worth measuring, by fits and, where there are any, noisy scores."""
    most = TRIPLES_SHARE * float(np.sum(outlook.stages.reserve**-2.0))
    return want_triples(outlook.look, scores, pair_tv=outlook.pair_tv, precision=outlook.precision, most_precision=most)


def _settled(block: Block) -> Block:
    """The same block, in a file where it is large: it stays as long as the fit lasts, which needs the memory."""
    if not is_large(block.values.nbytes):
        return block
    values = room_for(block.values.size, block.values.dtype)
    values[:] = block.values
    return replace(block, values=values)


def fit_tables(measured: Measured, *, method: Method | str = "auto", progress: Progress = SILENT) -> Model:
    """Fit a model to noisy tables, ours or another system's (`files.tables`): post-processing, at no privacy cost."""
    method = Method.of(method)
    _require_records(measured.schema.whole or measured.schema, method)
    estimates = pool(measured)
    settings = {"method": method.name, "preset": "paper" if method.paper else None}
    if method.name == "binary":
        # Imported here: scipy takes a while to load, and most releases do without.
        from sklar.paper.estimate import fit_binary, read_tables

        progress.stage("fit")
        probabilities = read_tables(estimates, paper=method.paper)
        fitted = fit_binary(probabilities, measured.schema, dummies=method.dummies, weighted=not method.paper)
        binary = hold_margins(fitted)
        return Model(measured=measured, copula=binary, n_rows=estimates.n_rows, settings=settings)
    latent, decisions = fit_auto(estimates, measured.schema, progress=progress)
    # Forbidden cells keep their noisy counts in the fit: thinning needs every count to carry the noise that it states.
    copula = refined(hold_margins(latent), estimates)
    return Model(measured=measured, copula=copula, n_rows=estimates.n_rows, settings=settings | decisions)


def refined(model: LatentModel, estimates: Estimates) -> LatentModel:
    """The model with as many rounds of exchanges as a table of its size and noise affords: a public rule."""
    cells, n_rows = model.schema.cells, estimates.n_rows
    triples = triple_rounds(n_rows, cells, expected_noise(estimates))
    if triples:
        return replace(model, rounds=triples, matched=3)
    return replace(model, rounds=refining_rounds(n_rows, cells.n_attributes, cells.n_levels))


def fit_linked(
    people: object,
    events: object,
    schema: Linked | str | Path,
    budget: Budget | None = None,
    *,
    epsilon: float | None = None,
    ledger: Ledger | str | Path | None = None,
    dataset: str | None = None,
    progress: Progress = SILENT,
) -> LinkedModel:
    """Measure a table of people and one of their events once, within one budget per person, and fit a model of both.

    Neighbors differ in one person with all their events. `schema` is a `Linked`, or the path of its file; the other
    arguments are those of `fit`.
    """
    # Imported here: most releases are of one table.
    from sklar.budget.linked import LinkedMeasured, certify_linked, plan_linked
    from sklar.fitting.classes import fit_classes
    from sklar.public.events import Linked
    from sklar.rows.shares import LinkedRows, measure_linked

    linked, budget = Linked.of(schema), Method.of("auto").budget_of(budget, epsilon)
    linked.require_reviewed()
    budget = linked.budget_for(budget)
    plan = plan_linked(linked, budget)
    bill = _bill(ledger, dataset, linked, budget)
    vault = Vault(budget, charge=bill, threads=workers())
    receipts = [] if bill is None else bill.receipts
    with telling(receipts, budget.epsilon):
        rows = LinkedRows(people, events, linked)
        blocks, n_people = measure_linked(rows, vault, linked, plan, budget, progress=progress)
        receipt = receipts[0] if receipts else None
        certificate = certify_linked(linked, budget, blocks, n_people, receipt)
        measured = LinkedMeasured(linked=linked, blocks=tuple(blocks), certificate=certificate)
        classes, settings = fit_classes(measured, progress=progress)
        return LinkedModel(measured=measured, classes=classes, n_people=measured.n_people, settings=settings)


def _bill(
    ledger: Ledger | str | Path | None, dataset: str | None, schema: Schema | Linked, budget: Budget
) -> Bill | None:
    """What charges the ledger for a release, where there is one."""
    if ledger is not None:
        from sklar.budget.ledger import Bill, Ledger

        book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        return Bill(book, dataset or schema.name, budget, schema_sha256=schema.digest)
    if dataset is not None:
        raise BudgetError(f"a data set is a name in a ledger, got dataset='{dataset}' and no ledger. Give both.")
    return None


def _require_records(schema: Schema, method: Method) -> None:
    if method.dummies and schema.rules:
        raise SchemaError(
            "rules are about records, and dummies are single 0/1 columns. Leave out dummies or the rules."
        )
    if method.name == "binary":
        schema.require_square("method 'binary'")
