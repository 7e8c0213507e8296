"""Which tables to measure at which scale: a frozen public value.

The first plan is made from public facts alone (the schema and the budget). A later one may be made from earlier noisy
tables; then its cost, not its scales, is what must have been fixed before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sklar.errors import BudgetError
from sklar.kernel.theorems import Budget, matched_scales
from sklar.public.schema import Schema


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stages:
    """A first plan, and the cost that a second look at the two-way tables may have: both from public facts.

    `reserve` holds the scales that the second stage would have if it were planned like the first, shape
    (m (m - 1) / 2,). They fix its cost; how it is spread over the pairs may then depend on the first stage's tables.
    """

    one_way_share: float
    first: Plan
    reserve: NDArray[np.float64]


# Of the cost of two-way tables, what waits for the second stage.
_SECOND_SHARE = 0.4
# Larger tables need less noise per cell for the same total variation: cost grows with cells^0.2.
_CELLS_POWER = 0.2
# The second stage's cost of a pair grows with the square root of its distance from independence; this many rows are
# added, so that no pair is left out.
_DISTANCE_FLOOR = 200.0
# Second-stage costs are rounded to powers of this, which keeps the certificate short.
_COST_GRID = 1.1
_ONE_WAY_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
_ONE_WAY_TARGET = 0.025


def plan_stages(schema: Schema, budget: Budget, n_rows: int | None, rest: NDArray[np.float64] | None = None) -> Stages:
    """Plan two stages of Gaussian noise that spend the whole budget together, or the cost of the scales `rest`.

    The one-way share is the smallest of 0.1, 0.2, ... 0.5 that lets one-way tables be expected within a total variation
    of 0.025; under add-remove the number of rows is not public, and the share is 0.3.
    """
    if n_rows is None:
        return _staged(schema, budget, 0.3, rest)
    for share in _ONE_WAY_SHARES:
        stages = _staged(schema, budget, share, rest)
        if expected_one_way_tv(schema, n_rows, stages) <= _ONE_WAY_TARGET:
            break
    return stages


def _scales(budget: Budget, weights: NDArray[np.float64], rest: NDArray[np.float64] | None) -> NDArray[np.float64]:
    return budget.scales(weights) if rest is None else matched_scales(weights, rest)


def _staged(schema: Schema, budget: Budget, one_way_share: float, rest: NDArray[np.float64] | None) -> Stages:
    m, total = schema.n_attributes, 1 if budget.neighbors == "add-remove" else 0
    if m == 1:
        return Stages(one_way_share=1.0, first=plan_tables(schema, budget, rest=rest), reserve=np.empty(0))
    cells = _cells(schema) ** _CELLS_POWER
    pairs = (1 - one_way_share) * cells / cells.sum()
    costs = [np.full(total + m, one_way_share / (total + m)), (1 - _SECOND_SHARE) * pairs, _SECOND_SHARE * pairs]
    scales = _scales(budget, np.concatenate(costs) ** -0.5, rest)
    one_way, first, reserve = np.split(scales, [total + m, total + m + cells.size])
    return Stages(
        one_way_share=one_way_share,
        first=Plan(total=float(one_way[0]) if total else None, one_way=one_way[total:].copy(), pairs=first.copy()),
        reserve=reserve.copy(),
    )


def _cells(schema: Schema) -> NDArray[np.float64]:
    first, second = np.triu_indices(schema.n_attributes, 1)
    return (schema.sizes[first] * schema.sizes[second]).astype(np.float64)


def expected_one_way_tv(schema: Schema, n_rows: int, stages: Stages) -> float:
    """The mean over attributes of 0.4 K sd / n, at most 1: the total variation that noise alone is expected to cause.

    K levels with noise of this sd, averaged over the direct table and the sums of two-way tables of both stages.
    """
    m, sizes = schema.n_attributes, schema.sizes
    precision = np.zeros((m, m))
    precision[np.triu_indices(m, 1)] = stages.first.pairs**-2.0 + stages.reserve**-2.0
    precision += precision.T
    sd = (stages.first.one_way**-2.0 + (precision / sizes[None, :]).sum(axis=1)) ** -0.5
    return float(np.mean(np.minimum(0.4 * sizes * sd / n_rows, 1.0)))


def plan_second(schema: Schema, stages: Stages, distances: NDArray[np.float64]) -> Plan:
    """Measure all pairs again, those further from independence more precisely, at the cost that was set aside.

    `distances` are L1 distances from independence in rows, shape (m (m - 1) / 2,), estimated from the first stage's
    noisy tables. Whatever they are, the cost is at most the reserve's (`budget.matched_scales`), so that the two stages
    compose adaptively within the budget.
    """
    cost = _cells(schema) ** _CELLS_POWER * np.sqrt(distances + _DISTANCE_FLOOR)
    cost = _COST_GRID ** np.round(np.log(cost / cost.max()) / math.log(_COST_GRID))
    return Plan(one_way=np.empty(0), pairs=matched_scales(cost**-0.5, stages.reserve))


def plan_tables(
    schema: Schema,
    budget: Budget,
    *,
    one_way_share: float | None = None,
    rest: NDArray[np.float64] | None = None,
) -> Plan:
    """A plan for all one-way and all two-way tables that spends the whole budget, or the cost of the scales `rest`.

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
    scales = _scales(budget, np.repeat([one_way_weight, pair_weight], [total + m, n_pairs]), rest)
    return Plan(
        total=float(scales[0]) if total else None,
        one_way=scales[total : total + m].copy(),
        pairs=scales[total + m :].copy(),
    )
