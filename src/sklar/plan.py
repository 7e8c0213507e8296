"""Which tables to measure at which scale: a frozen public value.

The first plan is made from public facts alone (the schema and the budget). A later one may be made from earlier noisy
tables; then its cost, not its scales, is what must have been fixed before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sklar.budget import Budget
from sklar.errors import BudgetError
from sklar.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Noise scales of one measurement: all one-way tables, all two-way tables, or both, over the full public domain.

    `one_way` has shape (m,), or (0,) when not measured; `pairs` has shape (m (m - 1) / 2,), for attributes (0, 1),
    (0, 2), ... (1, 2), ..., or (0,); `total` is the scale of the noise on the number of rows, which is measured under
    add-remove only.
    """

    one_way: NDArray[np.float64]
    pairs: NDArray[np.float64]
    total: float | None = None

    def __post_init__(self) -> None:
        for scales in (self.one_way, self.pairs):
            scales.setflags(write=False)

    @property
    def scales(self) -> NDArray[np.float64]:
        """All scales, one per table: what `Budget.spent` takes."""
        total = [] if self.total is None else [self.total]
        return np.concatenate([total, self.one_way, self.pairs])

    def pair_scales(self, m: int) -> NDArray[np.float64]:
        """Scales of the two-way tables of m attributes as a symmetric matrix, with zeros on its diagonal."""
        square = np.zeros((m, m))
        square[np.triu_indices(m, 1)] = self.pairs
        return square + square.T


def plan_tables(schema: Schema, budget: Budget, *, one_way_share: float | None = None) -> Plan:
    """A plan for all one-way and all two-way tables that spends the whole budget.

    `one_way_share` is the part of the sum of 1/scale^2 (which privacy cost is proportional to under Gaussian noise)
    that goes to the one-way tables; None gives every table the same scale, as the paper does.
    """
    m = schema.n_attributes
    n_pairs = m * (m - 1) // 2
    if one_way_share is not None and not 0 < one_way_share < 1:
        raise BudgetError(f"the one-way share must lie strictly between 0 and 1, got {one_way_share}.")
    total = 1 if budget.neighbors == "add-remove" else 0
    if one_way_share is None or n_pairs == 0:
        one_way_weight = pair_weight = 1.0
    else:
        one_way_weight = math.sqrt((m + total) / one_way_share)
        pair_weight = math.sqrt(n_pairs / (1 - one_way_share))
    scales = budget.scales(np.repeat([one_way_weight, pair_weight], [total + m, n_pairs]))
    return Plan(
        total=float(scales[0]) if total else None,
        one_way=scales[total : total + m].copy(),
        pairs=scales[total + m :].copy(),
    )
