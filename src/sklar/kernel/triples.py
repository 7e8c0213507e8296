"""Which three-way tables are measured or scored, over coarse levels, and what comes out: public values.

Every attribute has one coarsening, shared by all its tables: a level belongs to one coarse level. A row has at most one
code per attribute, hence at most one coarse code, and so stands in at most one cell of each three-way table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sklar.errors import BudgetError
from sklar.kernel.cells import Cells
from sklar.kernel.theorems import Spend

# Coarse levels that an attribute may have.
MOST_COARSE = 8
# A score is in parts of a row, so many to one, and moves by at most so many times what a table does (`count`).
SCORE_UNITS, SCORE_MOVES = 15, 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Triples:
    """Three-way tables of these attributes, over coarse levels.

    `attributes` has shape (t, 3), ascending within a row and from row to row; `coarse` has shape (d,), the coarse level
    of every level, laid out by `cells`. Tables lie flat, one after the other; within one, cells follow its attributes
    in order, the last one fastest.

    >>> cells, coarse = Cells([2, 3, 2]), np.array([0, 1, 0, 0, 1, 0, 1])
    >>> triples = Triples(cells=cells, attributes=np.array([[0, 1, 2]]), coarse=coarse)
    >>> triples.levels.tolist(), triples.sizes.tolist(), triples.n_cells
    ([2, 2, 2], [8], 8)
    """

    cells: Cells
    attributes: NDArray[np.int64]
    coarse: NDArray[np.int64]

    def __post_init__(self) -> None:
        chosen, coarse, m = self.attributes, self.coarse, self.cells.n_attributes
        shaped = chosen.ndim == 2 and chosen.shape[1:] == (3,) and coarse.shape == (self.cells.n_levels,)
        if not shaped or (np.diff(chosen, axis=1) <= 0).any() or (chosen < 0).any() or (chosen >= m).any():
            raise BudgetError("a triple must name three attributes of the schema, in ascending order.")
        if (np.diff(chosen @ [m * m, m, 1]) <= 0).any():
            raise BudgetError("triples must differ, and stand in ascending order.")
        if (coarse < 0).any() or (coarse >= MOST_COARSE).any():
            raise BudgetError(f"every level must belong to a coarse level from 0 to {MOST_COARSE - 1}.")
        for array in (chosen, coarse):
            array.setflags(write=False)

    @property
    def levels(self) -> NDArray[np.int64]:
        """The number of coarse levels of every attribute, shape (m,)."""
        return np.maximum.reduceat(self.coarse, self.cells.offsets[:-1]) + 1

    @property
    def shapes(self) -> NDArray[np.int64]:
        """The numbers of coarse levels of each table's attributes, shape (t, 3)."""
        return self.levels[self.attributes]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of cells of every table, shape (t,)."""
        return np.asarray(np.prod(self.shapes, axis=1))

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where every table begins in the flat vector, and where the last one ends, shape (t + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @property
    def n_cells(self) -> int:
        """The cells of all tables."""
        return int(self.sizes.sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyTriples:
    """Three-way tables with noise on every cell: `counts` lie as `triples` says, table t at noise scale `scales[t]`."""

    triples: Triples
    counts: NDArray[np.int64]
    scales: NDArray[np.float64]

    def __post_init__(self) -> None:
        for array in (self.counts, self.scales):
            array.setflags(write=False)

    @property
    def spend(self) -> Spend:
        """What they cost."""
        return Spend.of(self.scales)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyScores:
    """How far all three-way tables lie from what a public model predicts: whole numbers of 1 / `SCORE_UNITS` rows.

    One for every set of three attributes, in the order of `Cells.trios`, with noise of `SCORE_MOVES` times the scale.
    """

    scores: NDArray[np.int64]
    scale: float

    def __post_init__(self) -> None:
        self.scores.setflags(write=False)

    @property
    def rows(self) -> NDArray[np.float64]:
        """The scores in rows, shape (n_trios,)."""
        return self.scores / SCORE_UNITS

    @property
    def sd(self) -> float:
        """The sd of their noise, in rows."""
        return self.scale * SCORE_MOVES / SCORE_UNITS

    @property
    def spend(self) -> Spend:
        """What they cost: each as much as a table at this scale (`count.score_plainly`)."""
        return Spend.of([self.scale], [self.scores.size])
