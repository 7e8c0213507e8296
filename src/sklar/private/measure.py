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

With a ledger: nothing is drawn unless a charge that covers it is on the disk. `charge` pays for the whole release, all
its stages; `measure` pays for its plan when nothing was charged yet, and refuses what the charge does not cover.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sklar.budget import Budget
from sklar.errors import BudgetError, DataError
from sklar.ledger import Charge, Cost, cost, covers
from sklar.plan import Plan
from sklar.private.count import Counts, count
from sklar.private.noise import discrete_gaussian, discrete_laplace
from sklar.private.read import open_source, require_columns
from sklar.progress import SILENT, Progress
from sklar.schema import Schema
from sklar.tables import NoisyTables, above_diagonal, certify


class Vault:
    """Exact counts of one table behind the door, with the budget that guards it."""

    __slots__ = ("_budget", "_charge", "_charged", "_counts", "_plans", "_schema")

    def __init__(self, counts: Counts, schema: Schema, budget: Budget, charge: Charge | None = None) -> None:
        if budget.neighbors == "replace-one" and counts.n_rows == 0:
            # Under replace-one the number of rows is public, so this message may depend on it.
            raise DataError("the table has no rows. It must hold at least one.")
        self._counts, self._schema, self._budget = counts, schema, budget
        self._plans: list[Plan] = []
        self._charge, self._charged = charge, Cost()

    @property
    def n_rows(self) -> int | None:
        """The number of rows where neighbors share it (replace-one), else None."""
        return self._counts.n_rows if self._budget.neighbors == "replace-one" else None

    def charge(self, scales: NDArray[np.float64]) -> None:
        """Charge the ledger, where there is one, for a release at these scales, or at others that cost no more.

        Precondition: nothing was measured yet. Postcondition: the charge is on the disk.
        """
        if self._charge is not None:
            if self._plans or self._charged.rho:
                raise BudgetError("a release is charged once, before it is measured. Open the table again.")
            self._charge(scales)
            self._charged = self._cost(scales)

    def _cost(self, scales: NDArray[np.float64]) -> Cost:
        return cost(self._budget.mechanism, self._budget.neighbors, scales)

    def measure(self, plan: Plan) -> NoisyTables:
        """Noisy tables by this plan.

        Sensitivity: `Budget.shifts` unit shifts per table. Cost: `Budget.spent` of all scales measured so far.
        """
        schema, counts = self._schema, self._counts
        m = schema.n_attributes
        if plan.one_way.size not in (0, m) or plan.pairs.size not in (0, m * (m - 1) // 2):
            raise BudgetError(f"the plan must cover all tables of {m} attributes. Make it with plan_tables.")
        if plan.total is not None and self._budget.neighbors == "replace-one":
            raise BudgetError("the number of rows is measured under add-remove only. Make a new plan.")
        plans = [*self._plans, plan]
        scales = np.concatenate([each.scales for each in plans])
        epsilon = self._budget.spent(scales)
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
        certificate = certify(schema, self._budget, plans, self.n_rows)
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
    data: object, schema: Schema, budget: Budget, *, charge: Charge | None = None, progress: Progress = SILENT
) -> Vault:
    """Read, encode and count a table; what comes back gives nothing away but through `Vault.measure`."""
    schema.require_reviewed()
    source = open_source(data)
    require_columns(source, schema)
    # Progress is seen: it may tell of the number of rows only where that is public.
    public = budget.neighbors == "replace-one"
    progress.stage("count", total=source.n_rows if public else None, unit="rows" if public else "")
    counts = count(source.batches(schema.names), schema, progress=progress if public else SILENT)
    return Vault(counts, schema, budget, charge)
