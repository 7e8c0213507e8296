"""Batches to exact counts on all threads: what `kernel.count` counts plainly, many times as fast for large tables.

The first rows are counted by the kernel's plain routine, until their work would repay loading compiled code. After that
a two-way table is counted on bits where it is small and as a histogram of codes where it is large; the attributes'
sizes alone decide. A batch's columns are prepared side by side, then its pairs of attributes are counted side by side,
each into its own cells of one flat vector (`Cells`): memory is a few batches and four bytes a cell, whatever the number
of threads and rows; beyond a part of the machine's memory the cells lie in a file without a name (`machine.spill`). The
counts are the plain routine's to the last unit, whatever the way (`tests/rows/test_engines.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.kernel.cells import Cells
from sklar.kernel.queries import one_or_none
from sklar.machine.compiled import load
from sklar.machine.progress import SILENT, Progress
from sklar.machine.spill import room_for
from sklar.machine.threads import ahead, crew, side_by_side
from sklar.public.schema import Schema
from sklar.rows.bits import Packed, packed_columns
from sklar.rows.counts import Counts, count_plainly, no_counts
from sklar.rows.encode import encode_column

# Of pairs of attributes times rows, with rows for the overhead of a pair: below this the plain routine is at least as
# fast as loading compiled code, and never compiles.
_PLAIN_WORK, _PAIR_OVERHEAD = 3e7, 2_000
# The plain routine holds all cells a few times, in eight bytes each.
_PLAIN_CELLS = 1 << 23
# A cell has four bytes: after this many rows counting goes on in a new counter, and sums are wider.
_MOST_ROWS = 2**31 - 1
# A table with this many cells, first levels left out, costs as much on bits as a histogram of codes does.
_CELLS_ON_BITS = 300
# To make the bits of this many levels costs about as much as a histogram.
_LEVELS_PER_HISTOGRAM = 12
# Both sides of a tile stay in a second-level cache, and tiles are many enough to keep all threads at work.
_TILE_LEVELS, _TILE_PARTNERS = 64, 192
_HISTOGRAMS_AT_ONCE = 16
_GROUPS_OF_COLUMNS = 32


def count(batches: Iterable[pl.DataFrame], schema: Schema, *, progress: Progress = SILENT) -> Counts:
    """Exact counts of all batches, whose columns are the schema's attributes in order."""
    cells = schema.cells
    total = no_counts(cells) if cells.n_cells <= _PLAIN_CELLS else None
    compiled: BitCounter | None = None
    groups = np.array_split(np.arange(schema.n_attributes), min(schema.n_attributes, _GROUPS_OF_COLUMNS))
    with ExitStack() as stack:
        for batch in ahead(batches):
            if compiled is None and total is not None and _is_little(cells, total.n_rows + batch.height):
                codes = [encode_column(batch.to_series(i), attribute) for i, attribute in enumerate(schema.attributes)]
                total += count_plainly(codes, cells)
                progress.advance(batch.height)
                continue
            if compiled is None:
                compiled, together = BitCounter(schema), stack.enter_context(crew())
            elif compiled.n_rows + batch.height > _MOST_ROWS:
                total = add_up(total, compiled.counts())
                compiled = BitCounter(schema)
            put = partial(_put, compiled, batch, packed_columns(batch))
            compiled.begin(batch.height)
            together(put, groups)
            together(_call, compiled.jobs())
            progress.advance(batch.height)
    if compiled is None:
        return no_counts(cells) if total is None else total
    return add_up(total, compiled.counts())


def _is_little(cells: Cells, rows: int) -> bool:
    """Whether this many rows are too little work for compiled code to be loaded."""
    return cells.n_pairs * (rows + _PAIR_OVERHEAD) <= _PLAIN_WORK


def add_up(total: Counts | None, part: Counts) -> Counts:
    """The sum of both, in the memory of `part` where its cells hold it: a third array of many cells is not made."""
    if total is None or not total.n_rows:
        return part
    rows = total.n_rows + part.n_rows
    if rows > _MOST_ROWS or total.pairs.dtype != part.pairs.dtype:
        return total + part
    np.add(total.pairs, part.pairs, out=part.pairs)
    return Counts(n_rows=rows, one_way=total.one_way + part.one_way, pairs=part.pairs)


def _put(counter: BitCounter, batch: pl.DataFrame, packed: Mapping[int, Packed], group: NDArray[np.int64]) -> None:
    for index in group.tolist():
        counter.put_column(index, batch, packed.get(index))


def _call(job: Callable[[], None]) -> None:
    job()


class _Layout:
    """How the tables of a schema are counted: public, by the attributes' sizes alone.

    Two attributes are counted on bits when both have bits and (size - 1)(size' - 1) <= `_CELLS_ON_BITS`; an attribute
    has bits when enough partners pay for making them. `reach` is the size of its largest such partner, 0 for none.
    """

    def __init__(self, cells: Cells) -> None:
        m, sizes, offsets = cells.n_attributes, cells.sizes, cells.offsets
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


class BitCounter:
    """Running counts by compiled code. Batch by batch: `begin`, put every column, do all `jobs`, each in any order.

    A batch is held as bits (d, words) and as codes plus one (m, rows), each where the layout needs it. The bits of an
    attribute's first level are not made: in their place stand those of the rows that are in no cell of it, where there
    are any, and `counts` makes up for it.
    """

    def __init__(self, schema: Schema) -> None:
        # Here, before threads begin: only one of them could compile.
        self._kernels, self._schema, self._layout = load("sklar.rows.planes"), schema, _Layout(schema.cells)
        self._one_way = np.zeros(schema.n_levels, dtype=np.int64)
        self._pairs: NDArray[np.int32] = room_for(schema.cells.n_cells, np.int32, private=True)
        self.n_rows = 0
        self._nowhere = np.zeros(schema.n_attributes, dtype=np.int64)
        self._bits = np.empty((schema.n_levels, 0), dtype=np.uint64)
        self._codes: NDArray[Any] = np.empty((schema.n_attributes, 0), dtype=self._layout.code_type)

    def begin(self, rows: int) -> None:
        """A batch of this many rows comes; the one before it is counted."""
        self.n_rows += rows
        self._rows, self._words = rows, -(-rows // 64)
        if rows > self._codes.shape[1]:
            # What the layout does not need is never written, and takes no memory.
            self._bits = np.empty((self._bits.shape[0], self._words), dtype=np.uint64)
            self._codes = np.empty((self._codes.shape[0], rows), dtype=self._codes.dtype)
        self._present = np.ones(self._bits.shape[0], dtype=bool)

    def put_column(self, index: int, batch: pl.DataFrame, packed: Packed | None = None) -> None:
        """Take the batch's values of one attribute, whose column has the same number; as bits where they are given."""
        attribute = self._schema.attributes[index]
        if packed is None or not attribute.boolean or not self._layout.bits_alone[index]:
            self.put_codes(index, encode_column(batch.to_series(index), attribute))
            return
        false = self._layout.first[index]
        ones = self._kernels.place(packed.bits, packed.offset, self._bits[false + 1, : self._words], self._rows)
        self._one_way[false] += self._rows - ones
        self._one_way[false + 1] += ones
        if attribute.n_levels > 2:
            # The level of missing values, which this batch has none of.
            self._bits[false + 2 : false + attribute.n_levels, : self._words] = 0
        self._present[false] = False

    def put_codes(self, index: int, codes: NDArray[np.int32]) -> None:
        """Take the batch's codes of one attribute, shape (rows,)."""
        layout = self._layout
        start, stop = int(layout.offsets[index]), int(layout.offsets[index + 1])
        # Compiled code writes where a code points to.
        codes = one_or_none(codes, stop - start)
        found = np.empty(stop - start + 1, dtype=np.int64)
        if layout.in_histograms[index] or not layout.on_bits[index]:
            np.add(codes, 1, out=self._codes[index, : self._rows], casting="unsafe")
        if layout.on_bits[index]:
            self._kernels.spread(np.ascontiguousarray(codes), self._bits[start:stop], found)
        else:
            found = np.bincount(self._codes[index, : self._rows], minlength=found.size)
        self._one_way[start:stop] += found[1:]
        self._nowhere[index] += found[0]
        # The counts are the same either way.
        self._present[start] = found[0] > 0

    def jobs(self) -> list[Callable[[], None]]:
        """What is left to do of the batch: pieces that write to different cells."""
        layout, cells, counts = self._layout, self._schema.cells, self._pairs
        order, low, high = layout.pairing(self._present)
        tiles = [
            np.array([first, min(first + _TILE_LEVELS, order.size), begin, begin + _TILE_PARTNERS])
            for first in range(0, order.size, _TILE_LEVELS)
            for begin in range(int(low[first]), int(high[first]), _TILE_PARTNERS)
        ]
        where = cells.attribute_of_level, cells.offsets, cells.strips
        add_bits = partial(self._kernels.add_bits, self._bits, self._words, order, low, high, *where)
        add_codes = partial(self._kernels.add_codes, self._codes, self._rows, cells.sizes, *where[1:])
        slices = range(0, len(layout.histograms), _HISTOGRAMS_AT_ONCE)
        return [
            *(partial(add_codes, layout.histograms[start : start + _HISTOGRAMS_AT_ONCE], counts) for start in slices),
            *(partial(add_bits, tile, counts) for tile in tiles),
        ]

    def counts(self) -> Counts:
        """The counts of all batches, once: no batch may follow."""
        cells, reach = self._schema.cells, self._layout.reach
        given = cells.offsets, cells.strips, reach, self._nowhere, self._one_way, self._pairs
        # Attributes without partners on bits have nothing to complete.
        side_by_side(lambda i: self._kernels.complete(i, *given), np.flatnonzero(reach).tolist())
        return Counts(n_rows=self.n_rows, one_way=self._one_way, pairs=self._pairs)
