"""Counts plus noise to NoisyTables: the only door out of the private side.

Claim, for one `Vault` over its whole life: everything that `measure` has returned is together (epsilon, delta)-DP under
the budget's neighbors.

Proof. A row has one code per attribute, by the schema alone (`encode`), so it stands in at most one cell of each
one-way and each two-way table, and replacing it moves at most two cells of a table by one (adding or removing it, at
most one): `Budget.shifts` unit shifts a table. Every cell of the public domain gets fresh exact noise (`noise`), seen
or not. By `Budget.spent` the tables measured so far cost the epsilon it returns, also when a later plan was made from
earlier noisy tables; `measure` refuses before it draws when that would exceed the budget. The number of rows leaves
without noise under replace-one only, where neighbors share it. Whether and what is raised, and how many words of
noise are drawn, depends on schema, plan and budget alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sklar.budget import Budget
from sklar.errors import BudgetError, DataError
from sklar.plan import Plan
from sklar.private.count import Counts, count
from sklar.private.noise import discrete_gaussian, discrete_laplace
from sklar.private.read import open_source, require_columns
from sklar.progress import SILENT, Progress
from sklar.schema import Schema
from sklar.tables import NoisyTables, above_diagonal, certify


class Vault:
    """Exact counts of one table behind the door, with the budget that guards it."""

    __slots__ = ("_budget", "_counts", "_schema", "_spent")

    def __init__(self, counts: Counts, schema: Schema, budget: Budget) -> None:
        if budget.neighbors == "replace-one" and counts.n_rows == 0:
            # Under replace-one the number of rows is public, so this message may depend on it.
            raise DataError("the table has no rows. It must hold at least one.")
        self._counts, self._schema, self._budget = counts, schema, budget
        self._spent: NDArray[np.float64] = np.empty(0)

    @property
    def n_rows(self) -> int | None:
        """The number of rows where neighbors share it (replace-one), else None."""
        return self._counts.n_rows if self._budget.neighbors == "replace-one" else None

    def measure(self, plan: Plan) -> NoisyTables:
        """Noisy tables by this plan.

        Sensitivity: `Budget.shifts` unit shifts per table. Cost: `Budget.spent` of all scales measured so far.
        """
        schema, counts = self._schema, self._counts
        m = schema.n_attributes
        if plan.one_way.shape != (m,) or plan.pairs.shape != (m * (m - 1) // 2,):
            raise BudgetError(f"the plan must cover all tables of {m} attributes. Make it with plan_tables.")
        if (plan.total is None) != (self._budget.neighbors == "replace-one"):
            raise BudgetError("the number of rows is measured under add-remove, and only there. Make a new plan.")
        spent = np.concatenate([self._spent, plan.scales])
        epsilon = self._budget.spent(spent)
        if epsilon > self._budget.epsilon:
            raise BudgetError(
                f"this plan would bring the privacy spent to epsilon={epsilon:.6g}, above the budget of "
                f"{self._budget.epsilon:.6g}. Plan for what is left."
            )
        certificate = certify(schema, self._budget, plan, self.n_rows)
        # Spent before drawn: an interruption may lose budget but never hide a measurement.
        self._spent = spent

        where = above_diagonal(schema)
        scales, sizes = _segments(schema, plan)
        draw = discrete_gaussian if self._budget.mechanism == "gaussian" else discrete_laplace
        noise = draw(scales, sizes)
        first = 0 if plan.total is None else 1
        d = schema.n_levels
        pairs = np.zeros((d, d), dtype=np.int64)
        pairs[where] = noise[first + d :]
        pairs += counts.pairs
        return NoisyTables(
            schema=schema,
            n_rows=self.n_rows,
            total=None if plan.total is None else int(counts.n_rows + noise[0]),
            one_way=counts.one_way + noise[first : first + d],
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
    scales = np.concatenate([total, plan.one_way, plan.pair_scales()[rows][runs]])
    lengths = np.concatenate([[1] * len(total), sizes, np.broadcast_to(sizes, runs.shape)[runs]]).astype(np.int64)
    return scales, lengths


def open_vault(data: object, schema: Schema, budget: Budget, *, progress: Progress = SILENT) -> Vault:
    """Read, encode and count a table; what comes back gives nothing away but through `Vault.measure`."""
    schema.require_reviewed()
    source = open_source(data)
    require_columns(source, schema)
    progress.stage("count", unit="rows")
    return Vault(count(source.batches(schema.names), schema, progress=progress), schema, budget)
