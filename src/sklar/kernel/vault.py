"""Counts plus noise to NoisyTables: the only door out of the private side.

Claim, for one `Vault` over its whole life: everything that `measure` has returned is together (epsilon, delta)-DP under
the budget's neighbors.

Proof. A row has one code per attribute, by the schema alone (`encode`), so it stands in at most one cell of each
one-way and each two-way table, and replacing it moves at most two cells of a table by one (adding or removing it, at
most one): `Budget.shifts` unit shifts a table. Every cell of the public domain gets fresh exact noise (`noise`), seen
or not. By `Budget.spent` the tables measured so far cost the epsilon it returns, also when a later plan was made from
earlier noisy tables; `measure` refuses before it draws when that would exceed the budget. The number of rows leaves
without noise under replace-one only, where neighbors share it. Whether and what is raised, and how many words of
noise are drawn, depends on schema, plan, budget and ledger alone.

Private domains are found first (`_find`). Edges come from full noisy tables on a public grid: the same argument.
Categories come from tables with noise on the values that occur, of which only those that reach a threshold are let out;
what that costs beside the noise, a chance `lost_delta`, is proven in `Budget.less` and taken off the budget. All that
follows depends on the rows through what was let out, and through counts over the domain that was found; it composes
adaptively, as a later plan does. How much noise is drawn for categories depends on how many values occur: nothing but
the time it takes can tell.

With a ledger: nothing is drawn unless a charge that covers it is on the disk. `charge` pays for the whole release, all
its stages; `measure` pays for its plan when nothing was charged yet, and refuses what the charge does not cover.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sklar.budget.certificate import NoisyTables, above_diagonal, certify, spent_with
from sklar.budget.ledger import Charge, Cost, cost, covers
from sklar.budget.plan import Plan
from sklar.budget.search import Finding, Search, found_edges, found_values, plan_search
from sklar.errors import BudgetError, DataError
from sklar.kernel.noise import discrete_gaussian, discrete_laplace
from sklar.kernel.theorems import Budget
from sklar.machine.cluster import Engine
from sklar.machine.progress import SILENT, Progress
from sklar.public.schema import Schema
from sklar.rows.discover import Tally
from sklar.rows.engines import open_table
from sklar.rows.fast import Counts
from sklar.rows.read import require_columns


class Vault:
    """Exact counts of one table behind the door, with the budget that guards it."""

    __slots__ = ("_budget", "_charge", "_charged", "_counts", "_plans", "_search", "schema")

    def __init__(
        self,
        counts: Counts,
        schema: Schema,
        budget: Budget,
        charge: Charge | None = None,
        search: Search | None = None,
    ) -> None:
        """`search` is how the schema's domains were found, already charged for: with it, what it left to spend."""
        if budget.neighbors == "replace-one" and counts.n_rows == 0:
            # Under replace-one the number of rows is public, so this message may depend on it.
            raise DataError("the table has no rows. It must hold at least one.")
        self._counts, self.schema, self._budget = counts, schema, budget
        self._plans: list[Plan] = []
        self._search = search
        self._charge, self._charged = charge, Cost() if search is None else _whole_cost(search, budget)

    @property
    def rest(self) -> NDArray[np.float64] | None:
        """Scales whose cost is what finding domains left; None where nothing had to be found."""
        return None if self._search is None else self._search.rest

    @property
    def _findings(self) -> tuple[Finding, ...]:
        return () if self._search is None else self._search.findings

    @property
    def n_rows(self) -> int | None:
        """The number of rows where neighbors share it (replace-one), else None."""
        return self._counts.n_rows if self._budget.neighbors == "replace-one" else None

    def charge(self, scales: NDArray[np.float64]) -> None:
        """Charge the ledger, where there is one, for a release at these scales, or at others that cost no more.

        Precondition: nothing was measured yet. Postcondition: the charge is on the disk.
        """
        if self._charge is not None and self._search is None:
            if self._plans or self._charged.rho:
                raise BudgetError("a release is charged once, before it is measured. Open the table again.")
            self._charge(scales)
            self._charged = self._cost(scales)

    def _cost(self, scales: NDArray[np.float64]) -> Cost:
        found = np.zeros(0) if self._search is None else self._search.scales
        return cost(self._budget.mechanism, self._budget.neighbors, np.concatenate([found, scales]))

    def measure(self, plan: Plan) -> NoisyTables:
        """Noisy tables by this plan.

        Sensitivity: `Budget.shifts` unit shifts per table. Cost: `Budget.spent` of all scales measured so far.
        """
        schema, counts = self.schema, self._counts
        m = schema.n_attributes
        if plan.one_way.size not in (0, m) or plan.pairs.size not in (0, m * (m - 1) // 2):
            raise BudgetError(f"the plan must cover all tables of {m} attributes. Make it with plan_tables.")
        if plan.total is not None and self._budget.neighbors == "replace-one":
            raise BudgetError("the number of rows is measured under add-remove only. Make a new plan.")
        plans = [*self._plans, plan]
        scales = np.concatenate([each.scales for each in plans])
        epsilon = spent_with(self._budget, self._findings, scales)
        if epsilon > self._budget.epsilon:
            raise BudgetError(
                f"this plan would bring the privacy spent to epsilon={epsilon:.6g}, above the budget of "
                f"{self._budget.epsilon:.6g}. Plan for what is left."
            )
        if self._charge is not None:
            if not self._charged.rho:
                self.charge(scales)
            if not covers(self._charged, self._cost(scales)):
                raise BudgetError("this plan costs more than the ledger was charged for. Charge all stages at first.")
        certificate = certify(schema, self._budget, plans, self.n_rows, self._findings)
        # Spent before drawn: an interruption may lose budget but never hide a measurement.
        self._plans = plans

        draw = discrete_gaussian if self._budget.mechanism == "gaussian" else discrete_laplace
        noise = draw(*_segments(schema, plan))
        first = 0 if plan.total is None else 1
        last = first + (schema.n_levels if plan.one_way.size else 0)
        pairs = np.zeros((0, 0), dtype=np.int64)
        if plan.pairs.size:
            pairs = counts.pairs.copy()
            pairs[above_diagonal(schema)] += noise[last:]
        return NoisyTables(
            schema=schema,
            n_rows=self.n_rows,
            total=None if plan.total is None else int(counts.n_rows + noise[0]),
            one_way=counts.one_way[: last - first] + noise[first:last],
            pairs=pairs,
            plan=plan,
            certificate=certificate,
        )


def _segments(schema: Schema, plan: Plan) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scales and lengths of the runs of cells that share a scale, in the order in which noise is laid out.

    First the total, then the one-way tables, then the cells above the diagonal row by row: the row of a level of
    attribute i has a run for each attribute j > i.
    """
    m, sizes = schema.n_attributes, schema.sizes
    after = np.triu(np.ones((m, m), dtype=bool), 1)
    rows = np.repeat(np.arange(m), sizes)
    runs = after[rows]
    total = [] if plan.total is None else [plan.total]
    scales, lengths = [np.array(total)], [np.ones(len(total), dtype=np.int64)]
    if plan.one_way.size:
        scales.append(plan.one_way)
        lengths.append(sizes)
    if plan.pairs.size:
        scales.append(plan.pair_scales(m)[rows][runs])
        lengths.append(np.broadcast_to(sizes, runs.shape)[runs])
    return np.concatenate(scales), np.concatenate(lengths)


def open_vault(
    data: object,
    schema: Schema,
    budget: Budget,
    *,
    charge: Charge | None = None,
    engine: Engine | None = None,
    checkpoint: str | Path | None = None,
    progress: Progress = SILENT,
) -> Vault:
    """Read, encode and count a table; what comes back gives nothing away but through `Vault.measure`.

    Where the schema has private domains, they are found first, which takes a pass over the rows of its own; the vault's
    schema lists what was found. Whatever the engine, noise is drawn here, once, after all parts are summed.
    """
    schema.require_reviewed()
    if checkpoint is not None and schema.private_domains:
        raise DataError(
            "a checkpoint goes with public domains only: a run that starts again finds private ones anew. Leave it out."
        )
    table = open_table(data, engine, checkpoint)
    require_columns(table, schema)
    # How many rows there are may be told only where neighbors share it.
    public = budget.neighbors == "replace-one"
    unit, told = ("rows", progress) if public else ("", SILENT)
    search = None
    if schema.private_domains:
        if isinstance(data, pa.RecordBatchReader):
            raise DataError("private domains take two passes over the rows, a stream allows one. Give a table or file.")
        search = plan_search(schema, budget)
        wanted = schema.private_domains
        progress.stage("find", total=table.n_rows if public else None, unit=unit)
        n_rows, tallies = table.tally(wanted, progress=told)
        if charge is not None:
            charge(np.concatenate([search.scales, search.rest]), search.lost_delta)
        schema = _find(schema, search, tallies)
        table = open_table(data, engine)
    progress.stage("count", total=table.n_rows if public else None, unit=unit)
    counts = table.count(schema, progress=told)
    if search is not None and counts.n_rows != n_rows:
        raise DataError("the table changed while it was read, or can be read once only. Give a table or file.")
    return Vault(counts, schema, budget, charge, search)


def _whole_cost(search: Search, budget: Budget) -> Cost:
    return cost(budget.mechanism, budget.neighbors, np.concatenate([search.scales, search.rest]))


def _find(schema: Schema, search: Search, tallies: list[Tally]) -> Schema:
    """The schema with its private domains found.

    Sensitivity: `Budget.shifts` unit shifts per table, one table an attribute of categories and one a level of a grid.
    Cost: `Budget.spent` of `search.scales` at delta less `search.lost_delta`; see `Budget.less`.
    """
    found = {attribute.name: attribute for attribute in schema.attributes}
    taken = frozenset(
        Schema(name="", attributes=tuple(a for a in schema.attributes if a.domain != "private")).dummy_names
    )
    for finding, exact in zip(search.findings, tallies, strict=True):
        attribute = schema.attribute(finding.attribute)
        scale = np.array([finding.scale])
        if finding.threshold is not None:
            texts = sorted(exact.texts)
            counts = np.array([exact.texts[text] for text in texts], dtype=np.int64)
            noisy = counts + discrete_gaussian(scale, np.array([counts.size]))
            chosen = found_values(attribute, texts, noisy, finding.threshold, taken)
            taken |= {f"{attribute.name}={level}" for level in chosen.levels}
        else:
            levels = exact.levels(attribute)
            sizes = np.array([level.size for level in levels])
            noise = np.split(discrete_gaussian(np.repeat(scale, sizes.size), sizes), np.cumsum(sizes)[:-1])
            chosen = found_edges(
                attribute, [level + drawn for level, drawn in zip(levels, noise, strict=True)], finding.scale
            )
        found[attribute.name] = chosen
    # Rules speak of public domains alone, so they stay as they are.
    whole = schema.whole or schema
    attributes = tuple(found.get(attribute.name, attribute) for attribute in whole.attributes)
    return replace(whole, attributes=attributes).checked().measured
