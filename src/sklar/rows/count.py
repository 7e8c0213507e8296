"""Rows to exact answers, in one pass, on all threads: what `Tables.count` counts plainly, fast for large tables.

The first rows are counted by the kernel's plain routine, until their work would repay loading compiled code. Beyond,
small tables are counted on bits and large ones as histograms of codes, by the attributes' sizes alone. A batch's
columns are prepared side by side, then its tables counted side by side, each into cells of its own. Memory is a few
batches and four bytes a cell; beyond a part of the machine's memory, cells lie in a file without a name
(`machine.spill`). Counts are the plain routine's to the last unit, and those of parts of the rows add up
(`tests/rows/test_engines.py`). They are private.

Of attributes whose domain is not public, the values that occur are counted, texts or numbers. They leave only with
noise, through the vault: categories by a threshold, numbers summed over the cells of public tables. Memory grows with
the number of different values of such an attribute, not with the width of its bounds.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import call
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.plan import inside_places
from sklar.budget.search import Ladder, Units
from sklar.kernel.cells import Cells, Ints, Whole
from sklar.kernel.queries import NO_CELL, Shares, Tables, one_or_none
from sklar.machine.compiled import load
from sklar.machine.extras import lazily
from sklar.machine.progress import SILENT, Progress
from sklar.machine.spill import room_for
from sklar.machine.threads import Together, ahead, crew, side_by_side
from sklar.public.schema import Attribute, Schema
from sklar.public.tree import Tree
from sklar.rows.encode import dealt, encode_column, value_column

na = lazily("nanoarrow")

# Pending values are merged once they outnumber the merged ones, and at least this many.
_PENDING = 1 << 16
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


class Histogram:
    """Exact counts of the values of one attribute that occur, texts or grains: private."""

    def __init__(self, attribute: Attribute, *frames: pl.DataFrame) -> None:
        kinds = {"value": pl.String if attribute.categorical else pl.Int64, "times": pl.Int64}
        self._attribute, self._frames = attribute, [pl.DataFrame(schema=kinds), *frames]

    def __repr__(self) -> str:
        return "Histogram(private)"

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(self._attribute, self.frame(), other.frame())

    def add_column(self, column: pl.Series) -> None:
        """Count the texts, or grains, of a column that `value_column` made."""
        counted = column.drop_nulls().alias("value").value_counts(name="times")
        self._frames.append(counted.cast({"times": pl.Int64}))
        if sum(frame.height for frame in self._frames[1:]) > max(_PENDING, self._frames[0].height):
            self.frame()

    def frame(self) -> pl.DataFrame:
        """The values that occur, ascending, and how often."""
        total = pl.concat(self._frames).group_by("value").agg(pl.col("times").sum()).sort("value")
        self._frames = [total]
        return total

    @property
    def texts(self) -> collections.Counter[str]:
        """The counts by text."""
        return collections.Counter(dict(self.frame().iter_rows()))

    def values(self) -> tuple[Units, Units]:
        """Values and counts as arrays."""
        frame = self.frame()
        return frame["value"].to_numpy(), frame["times"].to_numpy()

    def table(self, edges: Units) -> Ints:
        """Counts of the cells between these edges, which no row is outside of: one cell for each row."""
        values, times = self.values()
        upto = np.concatenate([[0], np.cumsum(times)])
        return np.diff(upto[np.searchsorted(values, edges)])

    def rounding(self, ladder: Ladder) -> Ints:
        """Counts of decade by step: one cell for each row."""
        values, times = self.values()
        counts = np.zeros(ladder.rounding_size, dtype=np.int64)
        np.add.at(counts, ladder.rounding_cells(values), times)
        return counts


@dataclass(frozen=True, kw_only=True, eq=False)
class Ask:
    """What one pass counts: tables of a schema's attributes, and the values of attributes whose domain is private; also
    the tokens that rows deal to levels of the attributes at the places `inside`, in one table more; and the `sides` of
    linked tables (`rows.trees`), whose `tree` it is about, in `each` tokens a person.

    Batches have the columns of `columns`. Where rows are `chosen`, they come as `prepare` left them; where they are
    `weighed`, with tokens, which are counted.
    """

    attributes: tuple[Attribute, ...] = ()
    tables: tuple[Tables, ...] = ()
    values: tuple[Attribute, ...] = ()
    inside: tuple[int, ...] = ()
    sides: tuple[Shares, ...] = ()
    chosen: bool = False
    weighed: bool = False
    tree: Tree | None = None
    each: int = 1

    @cached_property
    def sizes(self) -> list[int]:
        """The number of cells of each table."""
        own = [table.n_cells for table in self.tables]
        own += [sum(self.attributes[index].n_levels for index in self.inside)] if self.inside else []
        return [*own, *(query.n_cells for query in self.sides)]

    @cached_property
    def used(self) -> tuple[int, ...]:
        """The numbers of the attributes that some table has."""
        return tuple(sorted({index for table in self.tables for index in np.unique(table.members).tolist()}))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that are read."""
        names = [self.attributes[index].column for index in self.used] + [each.column for each in self.values]
        return tuple(dict.fromkeys(names)) or tuple(each.column for each in self.attributes[:1])

    def codes(self, batch: pl.DataFrame, index: int) -> NDArray[Any]:
        """A batch's codes of one attribute, shape (rows,)."""
        if self.chosen:
            return batch.get_column(f"code {index}").to_numpy()
        return encode_column(batch.get_column(self.attributes[index].column), self.attributes[index])

    def deal(self, batch: pl.DataFrame, index: int, codes: NDArray[Any], *table: Ints) -> None:
        """Add a batch's tokens of one attribute, whose codes these are, to the table of all tokens."""
        if index in self.inside:
            first = sum(self.attributes[other].n_levels for other in self.inside[: self.inside.index(index)])
            # What is in no cell deals nothing.
            np.add.at(table[0], first + np.maximum(codes, 0), self.tokens(batch, index, codes))

    def tokens(self, batch: pl.DataFrame, index: int, codes: NDArray[Any]) -> NDArray[Any]:
        """What a batch's rows deal to the levels of one attribute, shape (rows,)."""
        if self.chosen:
            return batch.get_column(f"tokens {index}").to_numpy()
        return dealt(batch.get_column(self.attributes[index].column), self.attributes[index], codes)

    def value_column(self, batch: pl.DataFrame, number: int) -> pl.Series:
        """A batch's values of an attribute whose domain is private: texts or grains, null where outside."""
        if self.chosen:
            return batch.get_column(f"value {number}")
        return value_column(batch.get_column(self.values[number].column), self.values[number])

    def prepare(self, batch: pl.DataFrame) -> pl.DataFrame:
        """All that is counted of a batch, row by row: for rows among which is chosen first."""
        narrow = np.int16 if all(self.attributes[index].n_levels < 2**15 for index in self.used) else np.int32
        codes = [pl.Series(f"code {index}", self.codes(batch, index).astype(narrow)) for index in self.used]
        for index in self.inside:
            tokens = self.tokens(batch, index, codes[self.used.index(index)].to_numpy())
            codes.append(pl.Series(f"tokens {index}", tokens.astype(np.int16)))
        values = [self.value_column(batch, number).alias(f"value {number}") for number in range(len(self.values))]
        return pl.DataFrame([*codes, *values]) if codes or values else batch.select(pl.lit(0).alias("row"))


def key_of(tables: Tables) -> tuple[int, bytes, bytes]:
    """A key that distinguishes queries about the same cells."""
    sets, coarse = (b"" if part is None else part.tobytes() for part in (tables.sets, tables.coarse))
    return tables.order, sets, coarse


def ask_all(schema: Schema, *, inside: bool = False, sides: tuple[Shares, ...] = ()) -> Ask:
    """All one-way and two-way tables of a schema; with `inside`, also where numbers lie inside their bins."""
    tables = Tables(cells=schema.cells, order=1), Tables(cells=schema.cells, order=2)
    return Ask(attributes=schema.attributes, tables=tables, inside=inside_places(schema) if inside else (), sides=sides)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exact:
    """Exact answers about some rows, in the order of what was asked: private.

    A row adds at most one to a cell, so that cells may take 32 bits up to 2^31 - 1 rows, but for tokens.
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
            if not self.n_rows:
                return more
            fits = mine.dtype == more.dtype and (more.dtype == np.int64 or rows <= _MOST_ROWS) and more.flags.writeable
            return np.add(mine, more, out=more if fits else None, dtype=None if fits else np.int64)

        tables = tuple(added(*both) for both in zip(self.tables, other.tables, strict=True))
        values = tuple(mine + more for mine, more in zip(self.values, other.values, strict=True))
        return Exact(n_rows=rows, tables=tables, values=values)


def no_answers(ask: Ask) -> Exact:
    """The answers about no rows, over the full public domain."""
    tables = tuple(np.zeros(size, dtype=np.int64) for size in ask.sizes)
    return Exact(n_rows=0, tables=tables, values=tuple(map(Histogram, ask.values)))


def count(batches: Iterable[pl.DataFrame], ask: Ask, *, progress: Progress = SILENT) -> Exact:
    """Exact answers about the rows of all batches."""
    total, counter = no_answers(ask), None
    n_tables, n_cells = sum(table.sizes.size for table in ask.tables), sum(ask.sizes)
    with ExitStack() as stack:
        for batch in ahead(batches):
            for number, histogram in enumerate(total.values):
                histogram.add_column(ask.value_column(batch, number))
            rows = total.n_rows + batch.height
            few = counter is None and n_cells <= _PLAIN_CELLS and n_tables * (rows + _TABLE_OVERHEAD) <= _PLAIN_WORK
            if few or ask.weighed:
                tokens = batch["weight"].to_numpy() if ask.weighed else None
                nowhere = np.full(batch.height, NO_CELL, dtype=np.int32)
                own = {index: ask.codes(batch, index) for index in ask.used}
                codes = [own.get(index, nowhere) for index in range(len(ask.attributes))]
                for index, each in own.items():
                    ask.deal(batch, index, each, total.tables[-1])
                for counts, table in zip(total.tables, ask.tables, strict=False):
                    np.add(counts, table.count(codes, tokens), out=counts)
                total = replace(total, n_rows=rows)
            else:
                if counter is None:
                    counter, together = Counter(ask), stack.enter_context(crew())
                elif counter.n_rows + batch.height > _MOST_ROWS:
                    total, counter = total + counter.answers(), Counter(ask)
                counter.add(batch, together)
            progress.advance(batch.height)
    return total if counter is None else total + counter.answers()


class Counter:
    """Running counts by compiled code. Batch by batch: `begin`, put every column, do all `jobs`, each in any order."""

    def __init__(self, ask: Ask) -> None:
        # Here, before threads begin: only one of them could compile.
        kernels = load("sklar.rows.planes")
        self._ask, self.n_rows, self._rows = ask, 0, 0
        self._groups = np.array_split(np.array(ask.used, dtype=np.int64), min(len(ask.used), _GROUPS_OF_COLUMNS) or 1)
        self._cells = cells = ask.tables[0].cells if ask.tables else Cells([])
        self._one_way, self._nowhere = (np.zeros(size, dtype=np.int64) for size in (cells.n_levels, cells.n_attributes))
        self._counts = [room_for(t.n_cells if t.order > 1 else 0, np.int32, private=True) for t in ask.tables]
        self._tokens = no_answers(ask).tables[-1:] if ask.inside else ()
        plain = [t.order == 2 and t.sets is None and t.coarse is None for t in ask.tables]
        self._pairs = _Pairs(kernels, cells, self._counts[plain.index(True)] if any(plain) else None)
        self._sets: list[_Sets] = []
        for table, counts, all_pairs in zip(ask.tables, self._counts, plain, strict=True):
            if table.order < 2:
                continue
            members, sizes = table.members, table.sizes
            offsets = np.cumsum(sizes) - sizes
            on_bits = self._pairs.include(members) if all_pairs else (sizes <= _THREES_ON_BITS) & (table.order == 3)
            self._sets.append(_Sets(kernels.add_codes, table, (members[~on_bits], offsets[~on_bits]), counts))
            if not all_pairs:
                threes = members[on_bits], offsets[on_bits]
                self._sets.append(_Sets(kernels.add_threes, table, threes, counts, on_bits=True))
        self._layouts: tuple[_Pairs | _Sets, ...] = (self._pairs, *self._sets)
        # Attributes of which codes are needed: a table has them as codes, or they have no partners on bits.
        self._coded = {index for sets in self._sets for index in sets.used}
        self._coded.update(np.flatnonzero(self._pairs.reach == 0).tolist())

    def add(self, batch: pl.DataFrame, together: Together) -> None:
        """Count a batch."""
        self.begin(batch.height)
        together(partial(self._put_columns, batch, packed_columns(batch, self._ask)), self._groups)
        together(call, self.jobs())

    def begin(self, rows: int) -> None:
        """A batch of this many rows comes; the one before it is counted."""
        self.n_rows, self._rows = self.n_rows + rows, rows
        for layout in self._layouts:
            layout.begin(rows)

    def _put_columns(self, batch: pl.DataFrame, packed: dict[int, Any], group: Ints) -> None:
        on_bits = [index in packed and index not in self._coded for index in group.tolist()]
        for index, bits in zip(group.tolist(), on_bits, strict=True):
            if bits:
                self._pairs.place(index, packed[index])
            else:
                codes = self._ask.codes(batch, index)
                self.put_codes(index, codes)
                # Each attribute has cells of its own.
                self._ask.deal(batch, index, codes, *self._tokens)
        true = self._cells.offsets[group[on_bits]] + 1
        ones = self._pairs.ones(true)
        self._one_way[true] += ones
        self._one_way[true - 1] += self._rows - ones

    def put_codes(self, index: int, codes: NDArray[np.integer[Any]]) -> None:
        """Take the batch's codes of one attribute, shape (rows,)."""
        size = int(self._cells.sizes[index])
        # Compiled code writes where a code points to. Held plus one: 0 is a row without a level.
        own = (one_or_none(codes, size) + 1).astype(np.uint8 if size < 255 else np.int32)
        on_bits = self._pairs.reach[index] > 0
        times = self._pairs.put(index, own) if on_bits else np.bincount(own, minlength=size + 1)
        self._one_way[self._cells.levels(index)] += times[1:]
        self._nowhere[index] += times[0]
        for sets in self._sets:
            sets.put(index, own)

    def jobs(self) -> list[Callable[[], None]]:
        """The remaining work of the batch: pieces that write to different cells."""
        return [job for layout in self._layouts for job in layout.jobs()]

    def answers(self) -> Exact:
        """The counts of all batches, once: no batch may follow."""
        self._pairs.complete(self._nowhere, self._one_way)
        tables: list[Whole] = []
        for table, cells in zip(self._ask.tables, self._counts, strict=True):
            if table.order == 0:
                tables.append(np.array([self.n_rows]))
            elif table.order == 1:
                counts, begins = np.zeros(table.n_cells, dtype=np.int64), np.full(self._cells.n_attributes, -1)
                begins[table.members[:, 0]] = table.offsets[:-1]
                begins = begins[self._cells.attribute_of_level]
                np.add.at(counts, (begins + _coarse(table))[begins >= 0], self._one_way[begins >= 0])
                tables.append(counts)
            else:
                # Only of all pairs there are so many cells that their width matters.
                tables.append(cells.astype(np.int32 if table.order == 2 else np.int64, copy=False))
        tables += self._tokens
        return Exact(n_rows=self.n_rows, tables=tuple(tables), values=tuple(map(Histogram, self._ask.values)))


def _coarse(table: Tables) -> Ints:
    """The coarse level of every level, shape (d,); itself where levels are taken as they are."""
    cells = table.cells
    within = np.arange(cells.n_levels) - cells.offsets[cells.attribute_of_level]
    return np.asarray(within if table.coarse is None else table.coarse)


def _spread(codes: NDArray[Any], levels: NDArray[Any], bits: NDArray[np.uint64]) -> None:
    """Write which rows have each of these codes as bits, shape (levels, words)."""
    bits[:, -1:] = 0
    packed = np.packbits(codes == levels[:, None].astype(codes.dtype), axis=1, bitorder="little")
    bits.view(np.uint8)[:, : packed.shape[1]] = packed


class _Sets:
    """Some tables of two attributes or more, over levels or coarser ones: histograms of codes, or on bits.

    `sets` are their attributes and where their cells begin. A batch is held as codes plus one, a row for each
    attribute, or as bits, a row of words for each level.
    """

    def __init__(
        self, kernel: Any, table: Tables, sets: tuple[Ints, Ints], counts: NDArray[np.int32], *, on_bits: bool = False
    ) -> None:
        members, self._offsets = sets
        self._kernel, self._counts, self._on_bits = kernel, counts, on_bits
        attributes, places = np.unique(members, return_inverse=True)
        levels, coarse = table.levels, _coarse(table)
        kind: Any = np.uint8 if levels[attributes].max(initial=0) < 255 else np.int32
        ends = np.cumsum(levels[attributes]) if on_bits else np.arange(1, attributes.size + 1)
        begins = np.concatenate([[0], ends])
        self.used = {index: slice(*begins[at : at + 2]) for at, index in enumerate(attributes.tolist())}
        self._lookups = {i: np.append(0, coarse[table.cells.levels(i)] + 1).astype(kind) for i in self.used}
        self._members, self._shapes = begins[places.reshape(members.shape)], levels[members]
        self._held = np.empty((int(begins[-1]), 0), dtype=np.uint64 if on_bits else kind)

    def begin(self, rows: int) -> None:
        self._width = -(-rows // 64) if self._on_bits else rows
        if self._width > self._held.shape[1]:
            self._held = np.empty((self._held.shape[0], self._width), dtype=self._held.dtype)

    def put(self, index: int, codes: NDArray[Any]) -> None:
        if index not in self.used:
            return
        held, own = self._held[self.used[index], : self._width], self._lookups[index][codes]
        if self._on_bits:
            _spread(own, np.arange(1, len(held) + 1), held)
        else:
            held[0] = own

    def jobs(self) -> list[Callable[[], None]]:
        parts = [slice(at, at + _TABLES_AT_ONCE) for at in range(0, len(self._members), _TABLES_AT_ONCE)]
        kernel, counts = partial(self._kernel, self._held, self._width), self._counts
        return [partial(kernel, self._members[p], self._shapes[p], self._offsets[p], counts) for p in parts]


class _Pairs:
    """Two-way tables of all attributes, those on bits: public, by the attributes' sizes alone.

    Two attributes are counted on bits when both have bits and (size - 1)(size' - 1) <= `_CELLS_ON_BITS`; an attribute
    has bits when enough partners pay for making them. `reach` is the size of its largest such partner, 0 for none.

    A batch is held as bits (d, words). Those of an attribute's first level are not made: in their place stand those of
    the rows that are in no cell of it, where there are any, and `complete` makes up for it.
    """

    def __init__(self, kernels: Any, cells: Cells, counts: NDArray[np.int32] | None) -> None:
        self._kernels, self._cells, self._counts = kernels, cells, counts
        sizes = cells.sizes if counts is not None else np.zeros_like(cells.sizes)
        reach = np.minimum(_CELLS_ON_BITS // np.maximum(sizes - 1, 1) + 1, sizes.max(initial=0))
        partners = np.searchsorted(np.sort(sizes), reach, side="right") - (sizes <= reach)
        reach[(partners == 0) | (partners * _LEVELS_PER_HISTOGRAM < sizes - 1)] = 0
        self.reach = reach
        # Small attributes first: then the partners of each one stand side by side.
        ranked = np.argsort(sizes, kind="stable")
        ranked = ranked[reach[ranked] > 0]
        self._rank = np.repeat(np.arange(ranked.size), sizes[ranked])
        self._levels = np.concatenate([np.empty(0, dtype=np.int64), *(np.r_[cells.levels(i)] for i in ranked)])
        self._bits = np.empty((cells.n_levels, 0), dtype=np.uint64)

    def include(self, members: Ints) -> NDArray[np.bool_]:
        """Which of these pairs of attributes are counted on bits."""
        return np.asarray((self._cells.sizes[members] <= self.reach[members[:, ::-1]]).all(axis=1))

    def begin(self, rows: int) -> None:
        self._rows, self._words = rows, -(-rows // 64)
        if self._words > self._bits.shape[1]:
            # Pages that are never written take no memory.
            self._bits = np.empty((self._cells.n_levels, self._words), dtype=np.uint64)
        self._present = np.ones(self._cells.n_levels, dtype=bool)

    def put(self, index: int, codes: NDArray[Any]) -> Ints:
        """Take codes plus one; returns how many rows have each."""
        own = self._cells.levels(index)
        planes = np.r_[own]
        _spread(codes, np.append(0, planes[1:] - own.start + 1), self._bits[own, : self._words])
        times = self.ones(planes)
        self._present[own.start] = times[0] > 0
        return np.insert(times, 1, self._rows - times.sum())

    def place(self, index: int, column: Any) -> None:
        """Take a column that is bits already."""
        own = self._cells.levels(index)
        first, shift = divmod(column.offset, 8)
        packed = np.frombuffer(column.buffer(1), dtype=np.uint8)[first : first + -(-(shift + self._rows) // 8)]
        if shift or self._rows % 8:
            values = np.unpackbits(packed, count=shift + self._rows, bitorder="little")
            packed = np.packbits(values[shift:], bitorder="little")
        ones = self._bits[own.start + 1, : self._words]
        ones[-1:] = 0
        ones.view(np.uint8)[: packed.size] = packed
        # The level of missing values, where there is one: this batch has none.
        self._bits[own.start + 2 : own.stop, : self._words] = 0
        self._present[own.start] = False

    def ones(self, levels: Ints) -> Ints:
        """How many rows have each of these levels."""
        return np.asarray(np.bitwise_count(self._bits[levels, : self._words]).sum(axis=1, dtype=np.int64))

    def jobs(self) -> list[Callable[[], None]]:
        here = self._present[self._levels]
        order, rank = self._levels[here], self._rank[here]
        attributes = self._cells.attribute_of_level[order]
        # The first and last partner of each level.
        low = np.searchsorted(rank, rank, side="right")
        high = np.maximum(np.searchsorted(self._cells.sizes[attributes], self.reach[attributes], side="right"), low)
        partners = np.stack([low, high], axis=1)
        tiles = [
            np.array([first, min(first + _TILE_LEVELS, order.size), begin, begin + _TILE_PARTNERS])
            for first in range(0, order.size, _TILE_LEVELS)
            for begin in range(int(low[first]), int(high[first]), _TILE_PARTNERS)
        ]
        where = self._cells.attribute_of_level, self._cells.offsets, self._cells.strips
        kernel = partial(self._kernels.add_pairs, self._bits, self._words, order, partners, *where)
        return [partial(kernel, tile, self._counts) for tile in tiles]

    def complete(self, nowhere: Ints, one_way: Ints) -> None:
        """Put in the counts of first levels, once."""
        given = self._cells.offsets, self._cells.strips, self.reach, nowhere, one_way, self._counts
        # Attributes without partners on bits have nothing to complete.
        side_by_side(lambda i: self._kernels.complete(i, *given), np.flatnonzero(self.reach).tolist())


def packed_columns(batch: pl.DataFrame, ask: Ask) -> dict[int, Any]:
    """The columns without nulls of a batch that hold boolean attributes as booleans, by the attribute's number.

    Polars lets no one see its bits but through Arrow's C interface, where they lie as `place` wants them: bit
    (offset + r) % 8 of byte (offset + r) // 8 is row r. All columns pass in one export, because asking for one at a
    time takes longer than counting it.
    """
    names = {ask.attributes[index].name: index for index in ask.used if ask.attributes[index].boolean}
    places = [at for at, (name, kind) in enumerate(batch.schema.items()) if kind == pl.Boolean and name in names]
    if not places or not batch.height:
        return {}
    whole = (batch if len(places) == batch.width else batch.select(pl.nth(places))).rechunk()
    view = na.c_array_stream(whole).get_next().view()
    columns = {names[name]: view.child(at) for at, name in enumerate(whole.columns)}
    return {index: column for index, column in columns.items() if not column.null_count}
