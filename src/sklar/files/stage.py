"""The noisy tables of one stage while their cells are read, in any order: each once, all or none, with one scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import block_of_level
from sklar.budget.plan import Plan
from sklar.errors import ModelError
from sklar.kernel.theorems import Neighbors
from sklar.public.schema import Schema


def pair_cells_at(first: NDArray[np.int64], second: NDArray[np.int64]) -> Any:
    """Where `NoisyTables.pairs` holds the cells of these levels among all d, those of the earlier attribute first."""
    return first, second


def no_pairs(schema: Schema, kind: type[np.generic], *, whole: bool) -> NDArray[Any]:
    """Room for all two-way cells, laid out as `NoisyTables.pairs`, or for none."""
    d = schema.n_levels if whole else 0
    return np.zeros((d, d), dtype=kind)


class StageTables:
    """The tables of one stage while they are read."""

    def __init__(self, schema: Schema, stage: int, neighbors: Neighbors) -> None:
        m, d = schema.n_attributes, schema.n_levels
        self.schema, self.stage, self._neighbors = schema, stage, neighbors
        self.total: int | None = None
        self._total_scale: float | None = None
        self.one_way, self._seen_one = np.zeros(d, dtype=np.int64), np.zeros(d, dtype=bool)
        self._one_scales, self._pair_scales = np.full(m, np.nan), np.full((m, m), np.nan)
        # Filled when the first cell comes: a stage may measure one-way tables only.
        self.pairs, self._seen_pairs = no_pairs(schema, np.int64, whole=False), no_pairs(schema, np.bool_, whole=False)
        self._filled = np.zeros((m, m), dtype=np.int64)
        self.rounded = False

    @property
    def has_one_way(self) -> bool:
        """Whether any one-way cell was read."""
        return bool(self._seen_one.any())

    @property
    def has_pairs(self) -> bool:
        """Whether any two-way cell was read."""
        return bool(self.pairs.size)

    def add_total(self, values: NDArray[np.int64], scales: NDArray[np.float64]) -> None:
        """The noisy number of rows."""
        if self._neighbors == "replace-one":
            raise ModelError("it holds a noisy number of rows, which is measured under add-remove only.")
        if self.total is not None or values.size > 1:
            raise ModelError(f"stage {self.stage} holds the number of rows twice.")
        self.total, self._total_scale = int(values[0]), float(scales[0])

    def add_one_way(self, at: NDArray[np.int64], values: NDArray[np.int64], scales: NDArray[np.float64]) -> None:
        """Cells of one-way tables."""
        self._once(at, self._seen_one[at])
        self._seen_one[at], self.one_way[at] = True, values
        table = block_of_level(self.schema)[at]
        self._one_scales[table] = np.where(np.isnan(self._one_scales[table]), scales, self._one_scales[table])
        self._same(table[self._one_scales[table] != scales], None)

    def add_pairs(
        self,
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        values: NDArray[np.int64],
        scales: NDArray[np.float64],
    ) -> None:
        """Cells of two-way tables, by their levels among all d, those of the earlier attribute first."""
        d, block = self.schema.n_levels, block_of_level(self.schema)
        if not self.has_pairs:
            self.pairs = no_pairs(self.schema, np.int64, whole=True)
            self._seen_pairs = no_pairs(self.schema, np.bool_, whole=True)
        at = pair_cells_at(first, second)
        self._once(first * d + second, self._seen_pairs[at])
        self._seen_pairs[at], self.pairs[at] = True, values
        one, two = block[first], block[second]
        np.add.at(self._filled, (one, two), 1)
        known = self._pair_scales[one, two]
        self._pair_scales[one, two] = np.where(np.isnan(known), scales, known)
        wrong = self._pair_scales[one, two] != scales
        self._same(one[wrong], two[wrong])

    def _once(self, cells: NDArray[np.int64], seen: NDArray[np.bool_]) -> None:
        if seen.any() or np.unique(cells).size < cells.size:
            raise ModelError(f"stage {self.stage} holds a cell twice. Give every cell once.")

    def _same(self, one: NDArray[np.int64], two: NDArray[np.int64] | None) -> None:
        if one.size:
            table = _table(self.schema, int(one[0]), None if two is None else int(two[0]))
            raise ModelError(f"stage {self.stage}: all cells of {table} must have one scale.")

    def check_whole(self) -> None:
        """Refuse tables that lack cells, or that are there without the others."""
        schema = self.schema
        if self.has_one_way and not self._seen_one.all():
            lacks = block_of_level(schema)[np.argmin(self._seen_one)]
            self._lacking(int(lacks), None, np.isnan(self._one_scales))
        if self.has_pairs:
            first, second = np.triu_indices(schema.n_attributes, 1)
            lacking = np.nonzero(self._filled[first, second] < schema.sizes[first] * schema.sizes[second])[0]
            if lacking.size:
                self._lacking(int(first[lacking[0]]), int(second[lacking[0]]), np.isnan(self._pair_scales))

    def _lacking(self, i: int, j: int | None, empty: NDArray[np.bool_]) -> None:
        whole = bool(empty[i] if j is None else empty[i, j])
        raise ModelError(
            f"stage {self.stage}: {_table(self.schema, i, j)} {'is missing' if whole else 'lacks cells'}. A stage must "
            f"hold all {'one' if j is None else 'two'}-way tables of the schema in full, or none."
        )

    def plan(self) -> Plan:
        """The scales that were read."""
        upper = np.triu_indices(self.schema.n_attributes, 1)
        return Plan(
            total=self._total_scale,
            one_way=self._one_scales if self.has_one_way else np.empty(0),
            pairs=self._pair_scales[upper] if self.has_pairs else np.empty(0),
        )


def _table(schema: Schema, i: int, j: int | None) -> str:
    names = schema.names
    return f"the table of '{names[i]}'" if j is None else f"the table of '{names[i]}' and '{names[j]}'"
