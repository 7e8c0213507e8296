"""Which tables to measure at which scale: a frozen public value.

The first plan is made from public facts alone (the schema and the budget). A later one may be made from earlier noisy
tables; then its cost, not its scales, is what must have been fixed before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sklar.budget.method import Method
from sklar.errors import BudgetError
from sklar.kernel.cells import Cells
from sklar.kernel.tables import Plan
from sklar.kernel.theorems import Budget, Spend, matched_scales


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stages:
    """A first plan, and the cost that a second look at the two-way tables may have: both from public facts.

    `reserve` holds the scales that the second stage would have if it were planned like the first, shape (n_pairs,), or
    (0,) where all tables are measured at once. They fix its cost; how that is spread over the pairs may then depend on
    the first stage's tables.
    """

    first: Plan
    reserve: NDArray[np.float64]

    def __post_init__(self) -> None:
        self.reserve.setflags(write=False)

    @property
    def spend(self) -> Spend:
        """What both stages may cost together."""
        return Spend.of(np.concatenate([self.first.scales, self.reserve]))


# Of the cost of all tables, the one-way tables' share where all are measured at once. They answer what is asked most
# and anchor every two-way table.
ONE_WAY_SHARE = 0.4
# Of the cost of two-way tables, what waits for the second stage.
_SECOND_SHARE = 0.4
# Larger tables need less noise per cell for the same total variation: cost grows with cells^0.2.
_CELLS_POWER = 0.2
# The second stage's cost of a pair grows with the square root of its distance from independence; this many rows are
# added, so that no pair is left out.
_DISTANCE_FLOOR = 200.0
# Second-stage costs are rounded to powers of this, which keeps the certificate short.
_COST_GRID = 1.1
# Three-way tables are measured where noise alone is expected to cost two-way tables at most this total variation (and
# has at least this scale: below it an epsilon promises little), and take at most this share of what waits for the
# second stage. To look at more of them than this takes too long.
TRIPLES_UP_TO = 0.05
LEAST_NOISE = 1.0
TRIPLES_SHARE = 0.4
MOST_LOOKED_AT = 20_000
_ONE_WAY_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
_ONE_WAY_TARGET = 0.025


def plan_release(
    cells: Cells, budget: Budget, method: Method, *, n_rows: int | None, rest: Spend | None = None
) -> Stages:
    """The plan of a release by this method that spends the whole budget, or as much as `rest` costs.

    Gaussian noise for a latent model is measured in two stages, everything else at once. `n_rows` is the number of rows
    where it is public.
    """
    if rest is None:
        return _remembered(cells, budget, method, n_rows)
    return _plan(cells, budget, method, n_rows, rest)


def _plan(cells: Cells, budget: Budget, method: Method, n_rows: int | None, rest: Spend | None) -> Stages:
    if method.name == "binary" or budget.mechanism == "laplace":
        share = None if method.paper else ONE_WAY_SHARE
        return Stages(first=plan_tables(cells, budget, one_way_share=share, rest=rest), reserve=np.empty(0))
    return plan_stages(cells, budget, n_rows, rest)


@lru_cache(maxsize=4)
def _remembered(cells: Cells, budget: Budget, method: Method, n_rows: int | None) -> Stages:
    """A plan from public facts alone: the same facts give the same plan, which an audit asks for thousands of times."""
    return _plan(cells, budget, method, n_rows, None)


def plan_stages(cells: Cells, budget: Budget, n_rows: int | None, rest: Spend | None = None) -> Stages:
    """Plan two stages of Gaussian noise that spend the whole budget together, or as much as `rest` costs.

    The one-way share is the smallest of 0.1, 0.2, ... 0.5 that lets one-way tables be expected within a total variation
    of 0.025; where the number of rows is not public, the share is 0.3.
    """
    if n_rows is None:
        return _staged(cells, budget, 0.3, rest)
    for share in _ONE_WAY_SHARES:
        stages = _staged(cells, budget, share, rest)
        if expected_one_way_tv(cells, n_rows, stages) <= _ONE_WAY_TARGET:
            break
    return stages


def _scales(budget: Budget, weights: NDArray[np.float64], rest: Spend | None) -> NDArray[np.float64]:
    return budget.scales(weights) if rest is None else matched_scales(weights, rest)


def _staged(cells: Cells, budget: Budget, one_way_share: float, rest: Spend | None) -> Stages:
    m, total = cells.n_attributes, 0 if budget.rows_are_public else 1
    if m == 1:
        return Stages(first=plan_tables(cells, budget, rest=rest), reserve=np.empty(0))
    weights = cells.pair_sizes**_CELLS_POWER
    pairs = (1 - one_way_share) * weights / weights.sum()
    costs = [np.full(total + m, one_way_share / (total + m)), (1 - _SECOND_SHARE) * pairs, _SECOND_SHARE * pairs]
    scales = _scales(budget, np.concatenate(costs) ** -0.5, rest)
    one_way, first, reserve = np.split(scales, [total + m, total + m + cells.n_pairs])
    return Stages(
        first=Plan(total=float(one_way[0]) if total else None, one_way=one_way[total:].copy(), pairs=first.copy()),
        reserve=reserve.copy(),
    )


def margin_sd(cells: Cells, one_way: NDArray[np.float64], pair_precision: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sd of a level's count averaged over its one-way table and the sums of its two-way tables, shape (m,).

    `one_way` holds noise sds, shape (m,), and `pair_precision` inverse variances of two-way cells, shape (n_pairs,). A
    sum over the K_j levels of another attribute has K_j times the variance of a cell.
    """
    implied = (cells.symmetric(pair_precision) / cells.sizes[None, :]).sum(axis=1)
    return np.asarray((one_way**-2.0 + implied) ** -0.5)


def expected_one_way_tv(cells: Cells, n_rows: int, stages: Stages) -> float:
    """The total variation to expect from noise alone: the mean over attributes of 0.4 K sd / n, at most 1."""
    sd = margin_sd(cells, stages.first.one_way, _precision(stages))
    return float(np.mean(np.minimum(0.4 * cells.sizes * sd / n_rows, 1.0)))


def expected_pair_tv(cells: Cells, n_rows: int, stages: Stages) -> float:
    """The same of two-way tables: the mean over pairs of 0.4 K K' sd / n, at most 1, if stages are planned alike."""
    sd = _precision(stages) ** -0.5
    return float(np.mean(np.minimum(0.4 * cells.pair_sizes * sd / n_rows, 1.0)))


def looks_for_triples(cells: Cells, n_rows: int, stages: Stages) -> bool:
    """Whether a release looks for three-way tables after its first stage, by sizes and noise scales alone.

    It needs a second stage to pay for them, and some attribute of more than two levels: of three binary attributes one
    number is open, which fits do not disagree about.
    """
    m = cells.n_attributes
    if not stages.reserve.size or not 1 <= math.comb(m, 3) <= MOST_LOOKED_AT or int(cells.sizes.max()) <= 2:
        return False
    return stages.first.pairs.min() >= LEAST_NOISE and expected_pair_tv(cells, n_rows, stages) <= TRIPLES_UP_TO


def _precision(stages: Stages) -> NDArray[np.float64]:
    second = stages.reserve**-2.0 if stages.reserve.size else 0.0
    return np.asarray(stages.first.pairs**-2.0 + second)


def plan_second(cells: Cells, stages: Stages, distances: NDArray[np.float64]) -> Plan:
    """Measure all pairs again, those further from independence more precisely, at the cost that was set aside.

    `distances` are L1 distances from independence in rows, shape (n_pairs,), estimated from the first stage's noisy
    tables. Whatever they are, the cost is at most the reserve's (`theorems.matched_scales`), so that the two stages
    compose adaptively within the budget.
    """
    cost = cells.pair_sizes**_CELLS_POWER * np.sqrt(distances + _DISTANCE_FLOOR)
    cost = _COST_GRID ** np.round(np.log(cost / cost.max()) / math.log(_COST_GRID))
    return Plan(one_way=np.empty(0), pairs=matched_scales(cost**-0.5, Spend.of(stages.reserve)))


def plan_third(
    cells: Cells, stages: Stages, distances: NDArray[np.float64], wanted: NDArray[np.float64]
) -> tuple[Plan, NDArray[np.float64]]:
    """A second look at all pairs, and scales of chosen three-way tables, together at the cost that was set aside.

    `distances` are those of `plan_second`; `wanted` are the scales that the three-way tables are worth, shape (t,),
    found from the first stage's noisy tables. They get the part of the reserve that these scales take, pairs the rest,
    and then all of them are scaled by one factor (`theorems.matched_scales`): whatever is wanted, what both cost
    together is at most the reserve's. Refused where the pairs would get less than 1 - `TRIPLES_SHARE` of it.
    """
    reserve, taken = float(np.sum(stages.reserve**-2.0)), float(np.sum(wanted**-2.0))
    if not taken <= TRIPLES_SHARE * reserve * (1 + 1e-9):
        raise BudgetError(
            f"three-way tables may take {TRIPLES_SHARE:.0%} of what is set aside for a second stage, got "
            f"{taken / reserve:.0%}. Want fewer, or larger scales."
        )
    cost = _COST_GRID ** np.round(np.log(wanted**-2.0) / math.log(_COST_GRID))
    # Rounding may not take more than the share, either.
    cost *= min(1.0, TRIPLES_SHARE * reserve / float(cost.sum()))
    pairs = plan_second(cells, stages, distances).pairs ** -2.0
    pairs *= (reserve - cost.sum()) / pairs.sum()
    scales = matched_scales(np.concatenate([cost, pairs]) ** -0.5, Spend.of(stages.reserve))
    return Plan(one_way=np.empty(0), pairs=scales[wanted.size :].copy()), scales[: wanted.size].copy()


def plan_tables(cells: Cells, budget: Budget, *, one_way_share: float | None = None, rest: Spend | None = None) -> Plan:
    """A plan for all one-way and all two-way tables that spends the whole budget, or as much as `rest` costs.

    `one_way_share` is the part of the sum of 1/scale^2 (which privacy cost is proportional to under Gaussian noise)
    that goes to the one-way tables; None gives every table the same scale, as the paper does.
    """
    m, n_pairs = cells.n_attributes, cells.n_pairs
    if one_way_share is not None and not 0 < one_way_share < 1:
        raise BudgetError(f"the one-way share must lie strictly between 0 and 1, got {one_way_share}.")
    total = 0 if budget.rows_are_public else 1
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
