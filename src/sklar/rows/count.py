"""Rows to exact answers, in one pass, on all threads: what `Tables.count` counts plainly, fast for large tables.

The first rows are counted by the kernel's plain routine, until their work would repay loading compiled code. After that
small tables are counted on bits and large ones as histograms of codes; the attributes' sizes alone decide. A batch's
columns are prepared side by side, then its tables are counted side by side, each into cells of its own: memory is a few
batches and four bytes a cell, whatever the number of threads and rows; beyond a part of the machine's memory the cells
lie in a file without a name (`machine.spill`). Counts are the plain routine's to the last unit, whatever the way, and
those of parts of the rows add up (`tests/rows/test_engines.py`). They are private.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.kernel.cells import Cells, Whole
from sklar.kernel.queries import NO_CELL, Codes, Tables, one_or_none
from sklar.machine.compiled import load
from sklar.machine.extras import lazily
from sklar.machine.progress import SILENT, Progress
from sklar.machine.spill import room_for
from sklar.machine.threads import ahead, crew, side_by_side
from sklar.public.schema import Attribute, Schema
from sklar.rows.discover import Histogram, value_column
from sklar.rows.encode import encode_column

na = lazily("nanoarrow")

# Of tables times rows, with rows for the overhead of a table: below this the plain routine is at least as fast as
# loading compiled code, and never compiles.
_PLAIN_WORK, _TABLE_OVERHEAD = 3e7, 2_000
# The plain routine holds all cells a few times, in eight bytes each.
_PLAIN_CELLS = 1 << 23
# A cell has four bytes: after this many rows counting goes on in a new counter, and sums are wider.
_MOST_ROWS = 2**31 - 1
# A two-way table with this many cells, first levels left out, costs as much on bits as a histogram of codes does.
_CELLS_ON_BITS = 300
# The same for three-way tables, of which all levels are counted.
_THREES_ON_BITS = 64
# To make the bits of this many levels costs about as much as a histogram.
_LEVELS_PER_HISTOGRAM = 12
# Both sides of a tile stay in a second-level cache, and tiles are many enough to keep all threads at work.
_TILE_LEVELS, _TILE_PARTNERS = 64, 192
_TABLES_AT_ONCE = 16
_GROUPS_OF_COLUMNS = 32

Job = Callable[[], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Ask:
    """What one pass counts: tables of a schema's attributes, and the values of attributes whose domain is private.

    Batches have the columns of `columns`. Where rows are `chosen`, they come as `prepare` left them.
    """

    attributes: tuple[Attribute, ...] = ()
    tables: tuple[Tables, ...] = ()
    values: tuple[Attribute, ...] = ()
    chosen: bool = False

    @cached_property
    def used(self) -> tuple[int, ...]:
        """The numbers of the attributes that some table has."""
        return tuple(sorted({index for table in self.tables for index in np.unique(table.members).tolist()}))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that are read."""
        names = [self.attributes[index].name for index in self.used] + [each.name for each in self.values]
        return tuple(dict.fromkeys(names)) or tuple(each.name for each in self.attributes[:1])

    def codes(self, batch: pl.DataFrame, index: int) -> NDArray[Any]:
        """A batch's codes of one attribute, shape (rows,)."""
        if self.chosen:
            return batch.get_column(f"code {index}").to_numpy()
        return encode_column(batch.get_column(self.attributes[index].name), self.attributes[index])

    def value_column(self, batch: pl.DataFrame, number: int) -> pl.Series:
        """A batch's values of an attribute whose domain is private: texts or grains, null where outside."""
        if self.chosen:
            return batch.get_column(f"value {number}")
        return value_column(batch.get_column(self.values[number].name), self.values[number])

    def prepare(self, batch: pl.DataFrame) -> pl.DataFrame:
        """All that is counted of a batch, row by row: for rows among which is chosen first."""
        narrow = np.int16 if all(self.attributes[index].n_levels < 2**15 for index in self.used) else np.int32
        codes = [pl.Series(f"code {index}", self.codes(batch, index).astype(narrow)) for index in self.used]
        values = [self.value_column(batch, number).alias(f"value {number}") for number in range(len(self.values))]
        return pl.DataFrame([*codes, *values]) if codes or values else batch.select(pl.lit(0).alias("row"))


def ask_all(schema: Schema) -> Ask:
    """All one-way and two-way tables of a schema."""
    tables = Tables(cells=schema.cells, order=1), Tables(cells=schema.cells, order=2)
    return Ask(attributes=schema.attributes, tables=tables)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exact:
    """Exact answers about some rows, in the order of what was asked: private.

    A row adds at most one to a cell, so that cells may take 32 bits up to 2^31 - 1 rows.
    """

    n_rows: int
    tables: tuple[Whole, ...] = ()
    values: tuple[Histogram, ...] = ()

    def __repr__(self) -> str:
        # A traceback or a debugger's log must not print counts.
        return "Exact(private)"

    @property
    def one_way(self) -> Whole:
        """All one-way tables, of `ask_all`."""
        return self.tables[0]

    @property
    def pairs(self) -> Whole:
        """All two-way tables, of `ask_all`."""
        return self.tables[1]

    def __add__(self, other: Exact) -> Exact:
        """The sum, in the memory of the second where its cells hold it: a third array of many cells is not made."""
        rows = self.n_rows + other.n_rows

        def added(mine: Whole, more: Whole) -> Whole:
            fits = mine.dtype == more.dtype and (more.dtype == np.int64 or rows <= _MOST_ROWS) and more.flags.writeable
            return np.add(mine, more, out=more if fits else None, dtype=None if fits else np.int64)

        tables = tuple(added(*both) for both in zip(self.tables, other.tables, strict=True))
        values = tuple(mine + more for mine, more in zip(self.values, other.values, strict=True))
        return Exact(n_rows=rows, tables=tables, values=values)


def no_answers(ask: Ask) -> Exact:
    """The answers about no rows, over the full public domain."""
    tables = tuple(np.zeros(table.n_cells, dtype=np.int64) for table in ask.tables)
    return Exact(n_rows=0, tables=tables, values=tuple(Histogram() for _ in ask.values))


def count(batches: Iterable[pl.DataFrame], ask: Ask, *, progress: Progress = SILENT) -> Exact:
    """Exact answers about the rows of all batches."""
    sizes = [table.sizes for table in ask.tables]
    n_tables, is_plain = sum(map(len, sizes)), sum(int(each.sum()) for each in sizes) <= _PLAIN_CELLS
    total = no_answers(ask) if is_plain else Exact(n_rows=0, values=tuple(Histogram() for _ in ask.values))
    compiled: Counter | None = None
    with ExitStack() as stack:
        for batch in ahead(batches):
            for number, histogram in enumerate(total.values):
                histogram.add_column(ask.value_column(batch, number))
            rows = total.n_rows + batch.height
            if compiled is None and is_plain and n_tables * (rows + _TABLE_OVERHEAD) <= _PLAIN_WORK:
                total = Exact(n_rows=rows, tables=_added_plainly(total.tables, batch, ask), values=total.values)
                progress.advance(batch.height)
                continue
            if compiled is None:
                compiled, together = Counter(ask), stack.enter_context(crew())
            elif compiled.n_rows + batch.height > _MOST_ROWS:
                total = _with(total, compiled)
                compiled = Counter(ask)
            compiled.begin(batch.height)
            together(partial(compiled.put_columns, batch, packed_columns(batch, ask)), compiled.groups)
            together(_call, compiled.jobs())
            progress.advance(batch.height)
    return total if compiled is None else _with(total, compiled)


def count_plainly(codes: Codes, cells: Cells) -> Exact:
    """All one-way and two-way tables of codes by the kernel's plain routine, for whoever holds codes already."""
    tables = tuple(Tables(cells=cells, order=order).count(codes) for order in (1, 2))
    return Exact(n_rows=len(codes[0]), tables=tables)


def _added_plainly(totals: tuple[Whole, ...], batch: pl.DataFrame, ask: Ask) -> tuple[Whole, ...]:
    nowhere = np.full(batch.height, NO_CELL, dtype=np.int32)
    own = {index: ask.codes(batch, index) for index in ask.used}
    codes = [own.get(index, nowhere) for index in range(len(ask.attributes))]
    return tuple(total + table.count(codes) for total, table in zip(totals, ask.tables, strict=True))


def _with(total: Exact, compiled: Counter) -> Exact:
    part = Exact(n_rows=compiled.n_rows, tables=compiled.tables(), values=tuple(Histogram() for _ in total.values))
    if not total.n_rows:
        return Exact(n_rows=part.n_rows, tables=part.tables, values=total.values)
    return total + part


def _call(job: Job) -> None:
    job()


class Counter:
    """Running counts by compiled code. Batch by batch: `begin`, put every column, do all `jobs`, each in any order."""

    def __init__(self, ask: Ask) -> None:
        # Here, before threads begin: only one of them could compile.
        self._kernels, self._ask, self.n_rows = load("sklar.rows.planes"), ask, 0
        self.groups = np.array_split(np.array(ask.used, dtype=np.int64), min(len(ask.used), _GROUPS_OF_COLUMNS) or 1)
        self._cells = cells = ask.tables[0].cells if ask.tables else Cells([])
        self._one_way, self._nowhere = (np.zeros(size, dtype=np.int64) for size in (cells.n_levels, cells.n_attributes))
        self._counts: list[NDArray[np.int32] | None] = []
        self._sets: list[_Sets] = []
        self._bits: _OnBits | None = None
        for table in ask.tables:
            counts = None if table.order < 2 else room_for(table.n_cells, np.int32, private=True)
            self._counts.append(counts)
            if counts is None:
                continue
            if table.order == 2 and table.sets is None and table.coarse is None:
                self._bits = _OnBits(self._kernels, cells, counts)
                pairs = self._bits.histograms
                number = pairs[:, 0] * (2 * cells.n_attributes - pairs[:, 0] - 3) // 2 + pairs[:, 1] - 1
                self._sets.append(_Sets(self._kernels, table, pairs, cells.pair_offsets[number], counts))
                continue
            on_bits = (table.sizes <= _THREES_ON_BITS) & (table.order == 3)
            for small in (False, True):
                own = on_bits == small
                self._sets.append(
                    _Sets(self._kernels, table, table.members[own], table.offsets[:-1][own], counts, on_bits=small)
                )
        self._coded = {index for sets in self._sets for index in sets.used}

    def begin(self, rows: int) -> None:
        """A batch of this many rows comes; the one before it is counted."""
        self.n_rows, self._rows = self.n_rows + rows, rows
        for sets in self._sets:
            sets.begin(rows)
        if self._bits:
            self._bits.begin(rows)

    def put_columns(self, batch: pl.DataFrame, packed: Mapping[int, Packed], group: NDArray[np.int64]) -> None:
        """Take the batch's values of these attributes; as bits where they are given."""
        for index in group.tolist():
            own = packed.get(index)
            if own is None or index in self._coded or not (self._bits and self._bits.has[index]):
                self.put_codes(index, self._ask.codes(batch, index))
                continue
            false = int(self._cells.offsets[index])
            ones = self._bits.place(index, own)
            self._one_way[false] += self._rows - ones
            self._one_way[false + 1] += ones

    def put_codes(self, index: int, codes: NDArray[np.integer[Any]]) -> None:
        """Take the batch's codes of one attribute, shape (rows,)."""
        # Compiled code writes where a code points to.
        own = np.ascontiguousarray(one_or_none(codes, int(self._cells.sizes[index])))
        if self._bits and self._bits.has[index]:
            found = self._bits.put(index, own)
        else:
            found = np.bincount(own + 1, minlength=int(self._cells.sizes[index]) + 1)
        self._one_way[self._cells.levels(index)] += found[1:]
        self._nowhere[index] += found[0]
        for sets in self._sets:
            sets.put(index, own)

    def jobs(self) -> list[Job]:
        """What is left to do of the batch: pieces that write to different cells."""
        return [job for sets in self._sets for job in sets.jobs()] + (self._bits.jobs() if self._bits else [])

    def tables(self) -> tuple[Whole, ...]:
        """The counts of all batches, once: no batch may follow."""
        if self._bits:
            self._bits.complete(self._nowhere, self._one_way)
        return tuple(
            # Only of all pairs there are so many cells that their width matters.
            self._small(table) if counts is None else counts if table.order == 2 else counts.astype(np.int64)
            for table, counts in zip(self._ask.tables, self._counts, strict=True)
        )

    def _small(self, table: Tables) -> NDArray[np.int64]:
        """The number of rows, or histograms: sums over levels of one-way counts."""
        if table.order == 0:
            return np.array([self.n_rows])
        own, coarse = self._cells.levels, _coarse(table)
        flat = [
            np.bincount(coarse[own(attribute)], weights=self._one_way[own(attribute)], minlength=size)
            for (attribute,), (size,) in zip(table.members.tolist(), table.shapes.tolist(), strict=True)
        ]
        # Sums of whole numbers far below 2^53 are exact.
        return np.concatenate([np.empty(0), *flat]).astype(np.int64)


def _coarse(table: Tables) -> NDArray[np.int64]:
    """The coarse level of every level, shape (d,); itself where levels are taken as they are."""
    if table.coarse is not None:
        return table.coarse
    cells = table.cells
    return np.asarray(np.arange(cells.n_levels) - cells.offsets[cells.attribute_of_level])


class _Sets:
    """Some tables of two or three attributes, over levels or coarser ones: histograms of codes, or small ones on bits.

    Codes are held plus one, 0 for a row without a level: so are planes of bits, the first of which stays empty.
    """

    def __init__(
        self,
        kernels: Any,
        table: Tables,
        members: NDArray[np.int64],
        offsets: NDArray[np.int64],
        counts: NDArray[np.int32],
        *,
        on_bits: bool = False,
    ) -> None:
        self._kernels, self._counts, self._on_bits = kernels, counts, on_bits
        self.used = dict(zip(np.unique(members).tolist(), range(members.size), strict=False))
        levels, coarse = table.levels, _coarse(table)
        self._lookups = {index: np.append(coarse[table.cells.levels(index)], -1) for index in self.used}
        self._sizes = levels[list(self.used)]
        self._planes = np.concatenate([[0], np.cumsum(self._sizes + 1)])
        places = np.searchsorted(list(self.used), members)
        self._members = self._planes[places] + 1 if on_bits else places
        self._last, self._full = places[:, -1], np.zeros(self._sizes.size, dtype=bool)
        self._shapes, self._offsets = levels[members], np.ascontiguousarray(offsets)
        kind: Any = np.uint8 if self._sizes.max(initial=0) < 255 else np.int32
        height = self._planes[-1] if on_bits else self._sizes.size
        self._held = np.empty((int(height), 0), dtype=np.uint64 if on_bits else kind)

    def begin(self, rows: int) -> None:
        self._rows, self._words = rows, -(-rows // 64)
        width = self._words if self._on_bits else rows
        if width > self._held.shape[1]:
            self._held = np.empty((self._held.shape[0], width), dtype=self._held.dtype)

    def put(self, index: int, codes: NDArray[np.int32]) -> None:
        at = self.used.get(index)
        if at is None:
            return
        own = (self._lookups[index] + 1).astype(np.int32 if self._on_bits else self._held.dtype)[codes]
        if self._on_bits:
            planes = self._held[self._planes[at] : self._planes[at + 1]]
            found = np.empty(planes.shape[0] + 1, dtype=np.int64)
            self._kernels.spread(own, planes, found)
            self._full[at] = found[1] == 0
        else:
            self._held[at, : self._rows] = own

    def jobs(self) -> list[Job]:
        def some(first: int) -> None:
            part = slice(first, first + _TABLES_AT_ONCE)
            members, shapes, offsets = self._members[part], self._shapes[part], self._offsets[part]
            if self._on_bits:
                full = self._full[self._last[part]]
                self._kernels.add_threes(self._held, self._words, members, shapes, full, offsets, self._counts)
            else:
                self._kernels.add_codes(self._held, self._rows, members, shapes, offsets, self._counts)

        return [partial(some, first) for first in range(0, len(self._members), _TABLES_AT_ONCE)]


class _OnBits:
    """Two-way tables of all attributes on bits, but for `histograms`: public, by the attributes' sizes alone.

    Two attributes are counted on bits when both have bits and (size - 1)(size' - 1) <= `_CELLS_ON_BITS`; an attribute
    has bits when enough partners pay for making them. `reach` is the size of its largest such partner, 0 for none.

    A batch is held as bits (d, words). Those of an attribute's first level are not made: in their place stand those of
    the rows that are in no cell of it, where there are any, and `complete` makes up for it.
    """

    def __init__(self, kernels: Any, cells: Cells, counts: NDArray[np.int32]) -> None:
        self._kernels, self._cells, self._counts = kernels, cells, counts
        m, sizes, offsets = cells.n_attributes, cells.sizes, cells.offsets
        reach = np.minimum(_CELLS_ON_BITS // np.maximum(sizes - 1, 1) + 1, sizes.max())
        partners = np.searchsorted(np.sort(sizes), reach, side="right") - (sizes <= reach)
        reach[(partners == 0) | (partners * _LEVELS_PER_HISTOGRAM < sizes - 1)] = 0
        # As a list, to be asked of one column after the other.
        self._reach, self.has = reach, (reach > 0).tolist()
        others = [np.flatnonzero((sizes[i + 1 :] > reach[i]) | (sizes[i] > reach[i + 1 :])) for i in range(m)]
        first = np.repeat(np.arange(m), [each.size for each in others])
        self.histograms = np.stack([first, np.concatenate(others) + first + 1], axis=1)
        # Small attributes first: then the partners of each one stand side by side.
        ranked = np.argsort(sizes, kind="stable")
        ranked = ranked[reach[ranked] > 0]
        rank = np.repeat(np.arange(ranked.size), sizes[ranked])
        self._attributes = ranked[rank]
        self._levels = offsets[self._attributes] + np.arange(rank.size) - np.searchsorted(rank, rank)
        self._bits = np.empty((cells.n_levels, 0), dtype=np.uint64)

    def begin(self, rows: int) -> None:
        self._rows, self._words = rows, -(-rows // 64)
        if self._words > self._bits.shape[1]:
            # What is not needed is never written, and takes no memory.
            self._bits = np.empty((self._cells.n_levels, self._words), dtype=np.uint64)
        self._present = np.ones(self._cells.n_levels, dtype=bool)

    def put(self, index: int, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Take codes; returns how many rows have each, from -1 on."""
        own = self._cells.levels(index)
        found = np.empty(own.stop - own.start + 1, dtype=np.int64)
        self._kernels.spread(codes, self._bits[own], found)
        # The counts are the same either way.
        self._present[own.start] = found[0] > 0
        return found

    def place(self, index: int, packed: Packed) -> int:
        """Take a column that is bits already; returns how many are ones."""
        own = self._cells.levels(index)
        ones = self._kernels.place(packed.bits, packed.offset, self._bits[own.start + 1, : self._words], self._rows)
        # The level of missing values, which this batch has none of.
        self._bits[own.start + 2 : own.stop, : self._words] = 0
        self._present[own.start] = False
        return int(ones)

    def jobs(self) -> list[Job]:
        here = self._present[self._levels]
        order, attributes = self._levels[here], self._attributes[here]
        last = np.flatnonzero(np.append(attributes[1:] != attributes[:-1], True)[: order.size]) + 1
        # The first partner of each level, and where its partners end.
        low = np.repeat(last, np.diff(last, prepend=0))
        high = np.searchsorted(self._cells.sizes[attributes], self._reach[attributes], side="right")
        high = np.maximum(high, low)
        tiles = [
            np.array([first, min(first + _TILE_LEVELS, order.size), begin, begin + _TILE_PARTNERS])
            for first in range(0, order.size, _TILE_LEVELS)
            for begin in range(int(low[first]), int(high[first]), _TILE_PARTNERS)
        ]
        where = self._cells.attribute_of_level, self._cells.offsets, self._cells.strips
        add = partial(self._kernels.add_bits, self._bits, self._words, order, low, high, *where)
        return [partial(add, tile, self._counts) for tile in tiles]

    def complete(self, nowhere: NDArray[np.int64], one_way: NDArray[np.int64]) -> None:
        """Put in the counts of first levels, once."""
        given = self._cells.offsets, self._cells.strips, self._reach, nowhere, one_way, self._counts
        # Attributes without partners on bits have nothing to complete.
        side_by_side(lambda i: self._kernels.complete(i, *given), np.flatnonzero(self._reach).tolist())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """A column of true and false: bit (offset + r) % 8 of byte (offset + r) // 8 is row r. Other bits mean nothing."""

    bits: NDArray[np.uint8]
    offset: int


def packed_columns(batch: pl.DataFrame, ask: Ask) -> dict[int, Packed]:
    """The columns without nulls of a batch that hold boolean attributes as booleans, by the attribute's number.

    Polars lets no one see its bits but through Arrow's C interface, where they lie as the counting kernels want them.
    All columns pass in one export, because asking for one at a time takes longer than counting it.
    """
    names = {ask.attributes[index].name: index for index in ask.used if ask.attributes[index].boolean}
    numbers = [at for at, (name, kind) in enumerate(batch.schema.items()) if kind == pl.Boolean and name in names]
    if not numbers or not batch.height:
        return {}
    whole = batch.select(pl.nth(numbers)).rechunk() if len(numbers) < batch.width else batch.rechunk()
    view = na.c_array_stream(whole).get_next().view()
    columns = {names[name]: view.child(at) for at, name in enumerate(whole.columns)}
    return {
        index: Packed(bits=np.frombuffer(column.buffer(1), dtype=np.uint8), offset=column.offset)
        for index, column in columns.items()
        if not column.null_count
    }
