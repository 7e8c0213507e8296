"""Codes to exact one- and two-way counts, as partial sums that merge by addition.

A two-way table is counted on bits where it is small and as a histogram of codes where it is large; the attributes'
sizes alone decide. A batch's columns are prepared side by side, then its pairs of attributes are counted side by side,
each into its own cells of one array: memory is a few batches and one d x d array,
whatever the number of threads and rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import ahead, crew
from sklar.public.schema import Schema
from sklar.rows.bits import Packed, packed_columns
from sklar.rows.encode import encode_column

# A table with so many cells, first levels left out, costs as much on bits as a histogram of codes does.
_CELLS_ON_BITS = 300
# To make the bits of so many levels costs about as much as a histogram.
_LEVELS_PER_HISTOGRAM = 12
# Both sides of a tile stay in a second-level cache, and tiles are many enough to keep all threads at work.
_TILE_LEVELS, _TILE_PARTNERS = 64, 192
_HISTOGRAMS_AT_ONCE = 16
_GROUPS_OF_COLUMNS = 32
# Where rows do not come in batches.
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counts:
    """Exact counts of some rows: private. `one_way` has shape (d,), `pairs` (d, d) laid out as in `NoisyTables`."""

    n_rows: int
    one_way: NDArray[np.int64]
    pairs: NDArray[np.int64]

    def __repr__(self) -> str:
        # A traceback or a debugger's log must not print counts.
        return "Counts(private)"

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            n_rows=self.n_rows + other.n_rows,
            one_way=self.one_way + other.one_way,
            pairs=self.pairs + other.pairs,
        )


def no_counts(schema: Schema) -> Counts:
    """The counts of no rows, over the full public domain."""
    d = schema.n_levels
    return Counts(n_rows=0, one_way=np.zeros(d, dtype=np.int64), pairs=np.zeros((d, d), dtype=np.int64))


def merge(parts: Iterable[Counts], schema: Schema) -> Counts:
    """The sum of partial counts."""
    return reduce(Counts.__add__, parts, no_counts(schema))


def count_codes(codes: NDArray[np.int32], schema: Schema) -> Counts:
    """Exact counts of codes, shape (m, rows), in the thread that calls."""
    tally = Tally(schema)
    for start in range(0, codes.shape[1], _ROWS_AT_ONCE):
        part = codes[:, start : start + _ROWS_AT_ONCE]
        tally.begin(part.shape[1])
        for index, column in enumerate(part):
            tally.put_codes(index, column)
        for job in tally.jobs():
            job()
    return tally.counts()


def count(batches: Iterable[pl.DataFrame], schema: Schema, *, progress: Progress = SILENT) -> Counts:
    """Exact counts of all batches, whose columns are the schema's attributes in order."""
    tally = Tally(schema)
    groups = np.array_split(np.arange(schema.n_attributes), min(schema.n_attributes, _GROUPS_OF_COLUMNS))
    with crew() as together:
        for batch in ahead(batches):
            packed = packed_columns(batch)

            def put(group: NDArray[np.int64], batch: pl.DataFrame = batch, packed: dict[int, Packed] = packed) -> None:
                for index in group.tolist():
                    tally.put_column(index, batch, packed.get(index))

            tally.begin(batch.height)
            together(put, groups)
            together(_call, tally.jobs())
            progress.advance(batch.height)
    return tally.counts()


def _call(job: Callable[[], None]) -> None:
    job()


class _Layout:
    """How the tables of a schema are counted: public, by the attributes' sizes alone.

    Two attributes are counted on bits when both have bits and (size - 1)(size' - 1) <= `_CELLS_ON_BITS`; an attribute
    has bits when enough partners pay for making them. `reach` is the size of its largest such partner, 0 for none.
    """

    def __init__(self, schema: Schema) -> None:
        m, sizes, offsets = schema.n_attributes, schema.sizes, schema.offsets
        reach = np.minimum(_CELLS_ON_BITS // np.maximum(sizes - 1, 1) + 1, sizes.max())
        partners = np.searchsorted(np.sort(sizes), reach, side="right") - (sizes <= reach)
        reach[(partners == 0) | (partners * _LEVELS_PER_HISTOGRAM < sizes - 1)] = 0
        self.sizes, self.offsets, self.reach = sizes, offsets, reach
        self.on_bits = reach > 0

        others = [np.flatnonzero((sizes[i + 1 :] > reach[i]) | (sizes[i] > reach[i + 1 :])) for i in range(m)]
        first = np.repeat(np.arange(m), [each.size for each in others])
        self.histograms = np.stack([first, np.concatenate(others) + first + 1], axis=1)
        self.in_histograms = np.isin(np.arange(m), self.histograms)
        # As lists, to be asked of one column after the other.
        self.bits_alone, self.first = (self.on_bits & ~self.in_histograms).tolist(), offsets.tolist()
        # Codes are held plus one.
        self.code_type: Any = np.uint8 if sizes.max() < 255 else np.int32

        # Small attributes first: then the partners of each one stand side by side.
        ranked = np.argsort(sizes, kind="stable")
        ranked = ranked[self.on_bits[ranked]]
        rank = np.repeat(np.arange(ranked.size), sizes[ranked])
        self.attributes = ranked[rank]
        self.levels = offsets[self.attributes] + np.arange(rank.size) - np.searchsorted(rank, rank)

    def pairing(self, present: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """What `add_bits` pairs of the levels that are present: their order, each one's first partner and end."""
        here = present[self.levels]
        order, attributes = self.levels[here], self.attributes[here]
        last = np.flatnonzero(np.append(attributes[1:] != attributes[:-1], True)[: order.size]) + 1
        low = np.repeat(last, np.diff(last, prepend=0))
        high = np.searchsorted(self.sizes[attributes], self.reach[attributes], side="right")
        return order, low, np.maximum(high, low)


class Tally:
    """Running counts. Batch by batch: `begin`, then put every column, then do all `jobs`, each step in any order.

    A batch is held as bits (d, words) and as codes plus one (m, rows), each where the layout needs it. The bits of an
    attribute's first level are not made: in their place stand those of the rows that are in no cell of it, where there
    are any, and `counts` makes up for it.
    """

    def __init__(self, schema: Schema) -> None:
        # Imported here, before threads begin: numba is slow to load.
        from sklar.rows import planes as kernels

        self._kernels, self._schema, self._layout = kernels, schema, _Layout(schema)
        self._total = no_counts(schema)
        self._n_rows = 0
        self._nowhere = np.zeros(schema.n_attributes, dtype=np.int64)
        self._bits = np.empty((schema.n_levels, 0), dtype=np.uint64)
        self._codes: NDArray[Any] = np.empty((schema.n_attributes, 0), dtype=self._layout.code_type)

    def begin(self, rows: int) -> None:
        """A batch of so many rows comes; the one before it is counted."""
        self._n_rows += rows
        self._rows, self._words = rows, -(-rows // 64)
        if rows > self._codes.shape[1]:
            # What the layout does not need is never written, and takes no memory.
            self._bits = np.empty((self._bits.shape[0], self._words), dtype=np.uint64)
            self._codes = np.empty((self._codes.shape[0], rows), dtype=self._codes.dtype)
        self._present = np.ones(self._bits.shape[0], dtype=bool)

    def put_column(self, index: int, batch: pl.DataFrame, packed: Packed | None = None) -> None:
        """Take the batch's values of one attribute, whose column has the same number; as bits where they are given."""
        attribute = self._schema.attributes[index]
        if packed is None or attribute.kind != "boolean" or not self._layout.bits_alone[index]:
            self.put_codes(index, encode_column(batch.to_series(index), attribute))
            return
        false = self._layout.first[index]
        ones = self._kernels.place(packed.bits, packed.offset, self._bits[false + 1, : self._words], self._rows)
        self._total.one_way[false] += self._rows - ones
        self._total.one_way[false + 1] += ones
        if attribute.n_levels > 2:
            # The level of missing values, which this batch has none of.
            self._bits[false + 2 : false + attribute.n_levels, : self._words] = 0
        self._present[false] = False

    def put_codes(self, index: int, codes: NDArray[np.int32]) -> None:
        """Take the batch's codes of one attribute, shape (rows,)."""
        layout = self._layout
        start, stop = int(layout.offsets[index]), int(layout.offsets[index + 1])
        found = np.empty(stop - start + 1, dtype=np.int64)
        if layout.in_histograms[index] or not layout.on_bits[index]:
            np.add(codes, 1, out=self._codes[index, : self._rows], casting="unsafe")
        if layout.on_bits[index]:
            self._kernels.spread(np.ascontiguousarray(codes), self._bits[start:stop], found)
        else:
            found = np.bincount(self._codes[index, : self._rows], minlength=found.size)
        self._total.one_way[start:stop] += found[1:]
        self._nowhere[index] += found[0]
        # The counts are the same either way.
        self._present[start] = found[0] > 0

    def jobs(self) -> list[Callable[[], None]]:
        """What is left to do of the batch: pieces that write to different cells."""
        layout, counts = self._layout, self._total.pairs
        order, low, high = layout.pairing(self._present)
        tiles = [
            np.array([first, min(first + _TILE_LEVELS, order.size), begin, begin + _TILE_PARTNERS])
            for first in range(0, order.size, _TILE_LEVELS)
            for begin in range(int(low[first]), int(high[first]), _TILE_PARTNERS)
        ]
        add_bits = partial(self._kernels.add_bits, self._bits, self._words, order, low, high)
        add_codes = partial(self._kernels.add_codes, self._codes, self._rows, layout.sizes, layout.offsets)
        slices = range(0, len(layout.histograms), _HISTOGRAMS_AT_ONCE)
        return [
            *(partial(add_codes, layout.histograms[start : start + _HISTOGRAMS_AT_ONCE], counts) for start in slices),
            *(partial(add_bits, tile, counts) for tile in tiles),
        ]

    def counts(self) -> Counts:
        """The counts of all batches. They are the tally's last word."""
        layout, total = self._layout, self._total
        self._kernels.complete(layout.offsets, layout.reach, self._nowhere, total.one_way, total.pairs)
        return Counts(n_rows=self._n_rows, one_way=total.one_way, pairs=total.pairs)
