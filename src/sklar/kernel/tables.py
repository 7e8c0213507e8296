"""What goes into a measurement and what comes out of it: a plan and noisy tables. Both are public values."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sklar.kernel.cells import Cells, Whole
from sklar.kernel.parities import parity_spend
from sklar.kernel.theorems import Mechanism, Neighbors, Spend

# Tokens that a person deals (`tokens`) are a power of two up to this, so that G s is drawn as exactly as s.
MOST_TOKENS = 1 << 16
# Noisy tables of more cells than this take 32 bits a cell where these hold them (`vault`): 20,000 levels have no more.
MANY_CELLS = 200_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Noise scales of one measurement: all one-way tables, all two-way tables, or both, over the full public domain.

    `one_way` has shape (m,), or (0,) when not measured; `pairs` has shape (n_pairs,), in the order of `Cells.pairs`, or
    (0,); `total` is the scale of the noise on the number of rows, which is measured where neighbors do not share it.

    Where `parities` names neighbors, all attributes are bits, and parities are measured in place of tables (see
    `parities`), one count each, at the cost that they have under these neighbors: ones at `one_way`, pairs at `pairs`,
    and triples, in the order of `Cells.trios`, at `trios`, of shape (0,) where not measured. Scales of one order are
    equal.
    """

    one_way: NDArray[np.float64]
    pairs: NDArray[np.float64]
    total: float | None = None
    trios: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    parities: Neighbors | None = None

    def __post_init__(self) -> None:
        for scales in (self.one_way, self.pairs, self.trios):
            scales.setflags(write=False)

    @property
    def scales(self) -> NDArray[np.float64]:
        """All scales, one per table or parity: the total's, then those of orders one, two and three."""
        total = [] if self.total is None else [self.total]
        return np.concatenate([total, self.one_way, self.pairs, self.trios])

    @property
    def spend(self) -> Spend:
        """What the measurement costs."""
        if self.parities is None:
            return Spend.of(self.scales)
        # Where scales of an order were to differ, all are priced as the smallest.
        orders = np.array([each.min() for each in (self.one_way, self.pairs, self.trios) if each.size])
        total = Spend.of([] if self.total is None else [self.total])
        return total + parity_spend(self.one_way.size, orders, self.parities)

    def sizes(self, cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The number of counts at each scale of `one_way` and of `pairs`: the cells of a table, or one parity."""
        if self.parities is None:
            return cells.sizes[: self.one_way.size], cells.pair_sizes if self.pairs.size else cells.pair_sizes[:0]
        return np.ones(self.one_way.size, dtype=np.int64), np.ones(self.pairs.size, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyTables:
    """What one measurement let out: tables with noise on every cell of the public domain.

    `one_way` has shape (d,) and `pairs` (n_cells,), both laid out by `cells`; what the plan does not measure has size
    0. Of parities, `one_way` has shape (m,), `pairs` (n_pairs,) and `trios` (n_trios,). `n_rows` is the number of rows
    where neighbors share it. It is None elsewhere, where `total` is its noisy measurement instead.
    """

    cells: Cells
    mechanism: Mechanism
    n_rows: int | None
    total: int | None
    one_way: NDArray[np.int64]
    pairs: Whole
    plan: Plan
    trios: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        for counts in (self.one_way, self.pairs, self.trios):
            counts.setflags(write=False)

    def variances(self, scales: NDArray[np.float64]) -> NDArray[np.float64]:
        """Variance of the noise at these scales."""
        return noise_variance(self.mechanism, scales)


def noise_variance(mechanism: Mechanism, scales: NDArray[np.float64]) -> NDArray[np.float64]:
    """Variance of discrete noise: sigma^2 (an upper bound, reached but for 1e-6 above sigma = 1), or Laplace's exactly.

    >>> noise_variance("laplace", np.array([10.0])).round(2).tolist()
    [199.83]
    """
    if mechanism == "gaussian":
        return scales**2
    with np.errstate(over="ignore"):
        return np.where(scales > 0, 0.5 / np.sinh(0.5 / np.where(scales > 0, scales, 1.0)) ** 2, 0.0)
