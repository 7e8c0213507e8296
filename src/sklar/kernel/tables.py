"""What goes into a measurement and what comes out of it: a plan and noisy tables. Both are public values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sklar.kernel.cells import Cells, Whole
from sklar.kernel.theorems import Mechanism, Spend

# Tokens that a person deals (`tokens`) are a power of two up to this, so that G s is drawn as exactly as s.
MOST_TOKENS = 1 << 16
# Noisy tables of more cells than this take 32 bits a cell where these hold them (`vault`): 20,000 levels have no more.
MANY_CELLS = 200_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Noise scales of one measurement: all one-way tables, all two-way tables, or both, over the full public domain.

    `one_way` has shape (m,), or (0,) when not measured; `pairs` has shape (n_pairs,), in the order of `Cells.pairs`, or
    (0,); `total` is the scale of the noise on the number of rows, which is measured where neighbors do not share it.
    """

    one_way: NDArray[np.float64]
    pairs: NDArray[np.float64]
    total: float | None = None

    def __post_init__(self) -> None:
        for scales in (self.one_way, self.pairs):
            scales.setflags(write=False)

    @property
    def scales(self) -> NDArray[np.float64]:
        """All scales, one per table: the total's, then those of one-way tables, then those of two-way tables."""
        total = [] if self.total is None else [self.total]
        return np.concatenate([total, self.one_way, self.pairs])

    @property
    def spend(self) -> Spend:
        """What the measurement costs."""
        return Spend.of(self.scales)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyTables:
    """What one measurement let out: tables with noise on every cell of the public domain.

    `one_way` has shape (d,) and `pairs` (n_cells,), both laid out by `cells`; what the plan does not measure has size
    0. `n_rows` is the number of rows where neighbors share it. It is None elsewhere, where `total` is its noisy
    measurement instead.
    """

    cells: Cells
    mechanism: Mechanism
    n_rows: int | None
    total: int | None
    one_way: NDArray[np.int64]
    pairs: Whole
    plan: Plan

    def __post_init__(self) -> None:
        for counts in (self.one_way, self.pairs):
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
