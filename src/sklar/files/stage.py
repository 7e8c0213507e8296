"""The noisy tables of one stage while their cells are read, in any order: each once, all or none, with one scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sklar.errors import ModelError
from sklar.kernel.queries import Block, Tables
from sklar.public.schema import Schema


class StageTables:
    """The tables of one stage while they are read."""

    def __init__(self, schema: Schema, stage: int, *, public_rows: bool) -> None:
        cells = schema.cells
        self.schema, self.stage, self._cells, self._public_rows = schema, stage, cells, public_rows
        self.total: int | None = None
        self._total_scale: float | None = None
        self.one_way, self._seen_one = np.zeros(cells.n_levels, dtype=np.int64), np.zeros(cells.n_levels, dtype=bool)
        self._one_scales, self._pair_scales = np.full(cells.n_attributes, np.nan), np.full(cells.n_pairs, np.nan)
        # Filled when the first cell comes: a stage may measure one-way tables only.
        self.pairs, self._seen_pairs = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)
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
        if self._public_rows:
            raise ModelError("it holds a noisy number of rows, which is measured only where that is not public.")
        if self.total is not None or values.size > 1:
            raise ModelError(f"stage {self.stage} holds the number of rows twice.")
        self.total, self._total_scale = int(values[0]), float(scales[0])

    def add_one_way(self, at: NDArray[np.int64], values: NDArray[np.int64], scales: NDArray[np.float64]) -> None:
        """Cells of one-way tables."""
        self._once(at, self._seen_one[at])
        self._seen_one[at], self.one_way[at] = True, values
        table = self._cells.attribute_of_level[at]
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
        cells = self._cells
        if not self.has_pairs:
            self.pairs, self._seen_pairs = np.zeros(cells.n_cells, dtype=np.int64), np.zeros(cells.n_cells, dtype=bool)
        at = cells.places_of(first, second)
        self._once(at, self._seen_pairs[at])
        self._seen_pairs[at], self.pairs[at] = True, values
        table = np.searchsorted(cells.pair_offsets, at, side="right") - 1
        known = self._pair_scales[table]
        self._pair_scales[table] = np.where(np.isnan(known), scales, known)
        wrong = table[self._pair_scales[table] != scales]
        self._same(cells.pairs[0][wrong], cells.pairs[1][wrong])

    def _once(self, cells: NDArray[np.int64], seen: NDArray[np.bool_]) -> None:
        if seen.any() or np.unique(cells).size < cells.size:
            raise ModelError(f"stage {self.stage} holds a cell twice. Give every cell once.")

    def _same(self, one: NDArray[np.int64], two: NDArray[np.int64] | None) -> None:
        if one.size:
            table = _table(self.schema, int(one[0]), None if two is None else int(two[0]))
            raise ModelError(f"stage {self.stage}: all cells of {table} must have one scale.")

    def check_whole(self) -> None:
        """Refuse tables that lack cells, or that are there without the others."""
        if self.has_one_way and not self._seen_one.all():
            lacks = int(self._cells.attribute_of_level[np.argmin(self._seen_one)])
            self._lacking(lacks, None, whole=bool(np.isnan(self._one_scales[lacks])))
        if self.has_pairs and not self._seen_pairs.all():
            table = int(np.searchsorted(self._cells.pair_offsets, np.argmin(self._seen_pairs), side="right")) - 1
            first, second = (int(side[table]) for side in self._cells.pairs)
            self._lacking(first, second, whole=bool(np.isnan(self._pair_scales[table])))

    def _lacking(self, i: int, j: int | None, *, whole: bool) -> None:
        raise ModelError(
            f"stage {self.stage}: {_table(self.schema, i, j)} {'is missing' if whole else 'lacks cells'}. A stage must "
            f"hold all {'one' if j is None else 'two'}-way tables of the schema in full, or none."
        )

    def blocks(self) -> list[Block]:
        """What was read."""
        cells = self._cells
        parts = [] if self.total is None else [(0, np.array([self.total]), np.array([self._total_scale]))]
        parts += [(1, self.one_way, self._one_scales)] if self.has_one_way else []
        parts += [(2, self.pairs, self._pair_scales)] if self.has_pairs else []
        return [
            Block(query=Tables(cells=cells, order=order), scales=scales, values=own) for order, own, scales in parts
        ]


def _table(schema: Schema, i: int, j: int | None) -> str:
    names = schema.names
    return f"the table of '{names[i]}'" if j is None else f"the table of '{names[i]}' and '{names[j]}'"
