"""The only door out of the private side: refuse, charge, draw, add.

Claim, for one `Vault` over its whole life: everything that it has returned is together (epsilon, delta)-DP under the
budget's neighbors.

Proof. Every query is one of a closed list, and one person moves its exact answer as its `bound` says (`queries`); a row
is a person, or at most `Budget.rows` rows of a person are counted (`people`). Every cell of the public domain gets
fresh exact noise (`noise`), seen or not. `reserve` comes first, and refuses what costs more than the budget. Whatever
is then measured stays within it: under Gaussian noise in rho, in mu^2 and in the chance that a threshold fails, each of
which is a filter (`theorems`), so queries and scales may follow from earlier answers; under Laplace noise at the
reserved scales themselves. The epsilon that the reserve costs, which is at most the budget's, therefore covers all
answers together.

The number of rows leaves without noise only where neighbors share it (`Budget.rows_are_public`). Every pass over the
rows tells it (`hold`), so that all answers are about the same rows. Whether and what is raised, and how much noise is
drawn, depends on sizes, queries, budget and ledger alone, but for values that are not public (`queries.Common`).

With a ledger: nothing is drawn unless a charge that covers it is on the disk. Noise cannot be switched off: no argument
replaces it, and this module, `noise` and the class refuse assignments.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from sklar.errors import BudgetError, DataError
from sklar.kernel.cells import MANY_CELLS, Doubles
from sklar.kernel.noise import discrete_gaussian, discrete_laplace
from sklar.kernel.queries import QUERIES, Block, Query, Tables
from sklar.kernel.seal import Sealed, seal
from sklar.kernel.theorems import NOTHING, ROUNDING, Budget, Spend

# Pays for a spend before any of it is measured: on the disk when it returns; raises when it does not fit.
Charge: TypeAlias = Callable[[Spend], object]


class Vault(metaclass=Sealed):
    """The door of one release, with the budget that guards it."""

    __slots__ = ("_budget", "_charge", "_lock", "_reserved", "_rows", "_spent", "_threads")

    def __init__(self, budget: Budget, *, charge: Charge | None = None, threads: int = 1) -> None:
        self._budget, self._charge, self._threads = budget, charge, threads
        self._spent, self._reserved, self._rows = NOTHING, cast("Spend | None", None), cast("int | None", None)
        self._lock = Lock()

    @property
    def n_rows(self) -> int | None:
        """The number of rows where it is public, else None."""
        return self._rows if self._budget.rows_are_public else None

    @property
    def spent(self) -> Spend:
        """What was drawn so far."""
        return self._spent

    def hold(self, n_rows: int) -> None:
        """Say how many rows a pass has counted: every pass the same."""
        if self._budget.rows_are_public and n_rows == 0:
            raise DataError("the table has no rows. It must hold at least one.")
        if self._rows not in (None, n_rows):
            raise DataError("the table changed while it was read, or can be read once only. Give a table or file.")
        self._rows = n_rows

    def reserve(self, spend: Spend) -> None:
        """Fix what a whole release may cost, and charge the ledger, where there is one, before anything is drawn."""
        with self._lock:
            if self._reserved is not None:
                raise BudgetError("a release is charged once, before it is measured. Open the table again.")
            epsilon = self._budget.spent(spend)
            if epsilon > self._budget.epsilon:
                raise BudgetError(
                    f"this plan would bring the privacy spent to epsilon={epsilon:.6g}, above the budget of "
                    f"{self._budget.epsilon:.6g}. Plan for less."
                )
            if self._charge is not None:
                self._charge(spend)
            self._reserved = spend

    def measure(self, query: Query, exact: Any, scales: ArrayLike) -> Block:
        """The answer with noise of these scales on every cell; refused where the reserve does not cover its bound.

        Precondition: `exact` is what the query's `count` gives for the rows or people of this release. Sensitivity and
        cost: `query.bound`.
        """
        if type(query) not in QUERIES:
            raise BudgetError("the vault takes the queries of sklar.kernel.queries alone: their bounds are proven.")
        # A copy: the caller's array stays writable.
        own = np.array(scales, dtype=np.float64)
        bound = query.bound(own, self._budget)
        keys, counts = query.lay(exact)
        with self._lock:
            spent = self._spent + bound
            self._require(spent)
            # Spent before drawn: an interruption may lose budget but never hide a measurement.
            self._spent = spent
        draw = discrete_gaussian if self._budget.mechanism == "gaussian" else discrete_laplace
        sizes = query.sizes if keys is None else np.array([counts.size])
        noisy = draw(own, sizes, threads=self._threads, narrow=self._fits_32_bits(query, own))
        noisy += counts
        keys, noisy = query.show(keys, noisy)
        return Block(query=query, scales=own, values=noisy, keys=keys)

    def _require(self, spent: Spend) -> None:
        """Refuse what goes beyond the reserve, in any of its currencies."""
        reserved, budget = self._reserved, self._budget
        if reserved is None:
            raise BudgetError("a release is reserved before it is measured. Call reserve first.")
        within = spent.lost_delta <= reserved.lost_delta * (1 + ROUNDING)
        if budget.mechanism == "gaussian":
            within = within and budget.cost(reserved).covers(budget.cost(spent))
        else:
            left = {(scale, reach): moves for scale, moves, reach in _groups(reserved)}
            within = within and all(moves <= left.get((scale, reach), 0.0) for scale, moves, reach in _groups(spent))
        if not within:
            raise BudgetError("this measurement costs more than was reserved. Reserve all stages at first.")

    def _fits_32_bits(self, query: Query, scales: Doubles) -> bool:
        """Whether very many cells are drawn, and 32 bits hold every count with its noise: by public facts alone."""
        # A cell of a table holds at most all rows' tokens, and a draw is below 128 times its scale (`noise`).
        if self.n_rows is None or not isinstance(query, Tables) or query.n_cells <= MANY_CELLS:
            return False
        return bool(self.n_rows * query.each + 128 * scales.max() < 2**31)


def _groups(spend: Spend) -> zip[tuple[float, float, float]]:
    return zip(spend.scales.tolist(), spend.moves.tolist(), spend.reach.tolist(), strict=True)


seal(__name__)
