"""Q1, Q2 and Q3 of the paper: one-, two- and three-way counts over dummies of distinct attributes, and their errors.

A table is read once, batch by batch; of its rows nothing is kept but counts. It may hold records, or the paper's
dummies (0/1 columns named `attribute=level`), where a row may have none or several levels of an attribute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.errors import DataError
from sklar.machine.compiled import OFFSETS, Worth, compiled, population_count, prange
from sklar.machine.progress import SILENT, Progress, watch
from sklar.public.schema import Attribute, Schema
from sklar.rows.bounded import chosen_places
from sklar.rows.encode import encode, encode_column
from sklar.rows.read import open_source
from sklar.rows.source import require_columns

if TYPE_CHECKING:
    from sklar.custodian.evaluate.raw import RawTable

Form: TypeAlias = Literal["records", "dummies"]
# Which row has which level, by rows and levels in ascending order.
_Levels: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]

# All triples are counted up to here (a quarter of a gigabyte per table); beyond it, a sample of them.
MAX_TRIPLES = 1 << 26
SAMPLED_TRIPLES = 500_000
SAMPLE_SEED = 2020
PERCENTS = (95, 99, 100)

_BIT = Attribute(name="bit", kind="categorical", values=("0", "1"))
_BOOLEAN = Attribute(name="bit", kind="boolean")

# NumPy counts this much (3 ns each) before compiled code is worth loading (1 s; 3 s where it must be compiled): rows
# times tables, with rows for the overhead of a table, and cells.
_PLAIN_WORK, _TABLE_OVERHEAD = 5e8, 4_000
# These bound memory: cells of a part of a batch laid out as (d, rows), words of bits that NumPy holds at a time, and
# queries whose errors are taken at a time.
_MAX_CELLS, _WORDS, _CHUNK = 1 << 24, 1 << 19, 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TripleQueries:
    """Which three-way queries are asked: all over distinct attributes, or a list of triples of levels, shape (k, 3).

    All triples a < b < c are laid out by the attributes i < j of a and b, then the pair (a, b), then every level c of
    the attributes after j; `bases[i, j]` says where that begins.
    """

    schema: Schema
    listed: NDArray[np.int64] | None
    bases: NDArray[np.int64]
    in_all: int

    @property
    def size(self) -> int:
        """How many queries are asked."""
        return self.in_all if self.listed is None else len(self.listed)

    @property
    def stated(self) -> str:
        """In words, for every output."""
        if self.listed is None:
            return f"all {self.in_all:,} triples"
        return f"a random sample of {len(self.listed):,} of {self.in_all:,} triples (seed {SAMPLE_SEED})"


def choose_triples(schema: Schema, *, max_triples: int = MAX_TRIPLES, sampled: int = SAMPLED_TRIPLES) -> TripleQueries:
    """All triples of levels of distinct attributes, or, of more than `max_triples`, a sample with replacement."""
    schema.require_square("an evaluation")
    m, sizes, d = schema.n_attributes, schema.sizes, schema.n_levels
    cells = np.triu(np.outer(sizes, sizes * (d - schema.offsets[1:])), 1)
    bases = np.concatenate([[0], np.cumsum(cells.ravel())[:-1]]).reshape(m, m)
    in_all, listed = int(cells.sum()), None
    if in_all > max_triples:
        generator, block = np.random.default_rng(SAMPLE_SEED), schema.cells.attribute_of_level
        listed = np.empty((0, 3), dtype=np.int64)
        # Three levels at random, again where two are of one attribute: every triple is as likely as any other.
        while len(listed) < sampled:
            drawn = np.sort(generator.integers(d, size=(sampled, 3)), axis=1)
            listed = np.concatenate([listed, drawn[(np.diff(block[drawn], axis=1) > 0).all(axis=1)]])
        listed = np.ascontiguousarray(listed[:sampled])
    return TripleQueries(schema=schema, listed=listed, bases=bases, in_all=in_all)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Answers:
    """Answers to all queries: PRIVATE when they come from real rows, so that no log must print them.

    `one_way` has shape (d,); `pairs` (d, d), filled for attributes i < j; `triples` is laid out by `asked`. Noisy and
    computed answers may be real numbers. `valid_rows` have one level of every attribute; None where there are no rows.
    """

    schema: Schema
    asked: TripleQueries
    n_rows: int
    one_way: NDArray[Any]
    pairs: NDArray[Any]
    triples: NDArray[Any]
    valid_rows: int | None = None
    form: Form | None = None

    @property
    def two_way(self) -> NDArray[Any]:
        """The two-way answers over distinct attributes, flat."""
        return self.schema.cells.flat(self.pairs)


def answer(
    data: object, schema: Schema, asked: TripleQueries, *, progress: Progress = SILENT, raw: RawTable | None = None
) -> Answers:
    """Exact answers on a table of records, whose raw values are added to `raw` on the way, or of dummies."""
    form, batches = read(data, schema, raw, progress)
    return answer_blocks(batches, schema, asked, form=form)


def read(
    data: object, schema: Schema, raw: RawTable | None = None, progress: Progress = SILENT
) -> tuple[Form, Iterator[NDArray[Any]]]:
    """The form of a table, and its batches: codes of shape (m, rows), or 0/1 dummies of shape (d, rows)."""
    source = open_source(data, schema)
    dummies, person = schema.dummy_names, schema.person
    if set(dummies) <= set(source.columns) and not set(schema.names) <= set(source.columns):
        return "dummies", (dummies_of(batch) for batch in watch(source.batches(dummies), progress))
    require_columns(source, schema)
    kept = None
    if person is not None and person.column in source.columns:
        # The original: its rows count as they do in a release, so that shares are compared with shares of one kind.
        kept = chosen_places(source.batches((person.column,)), person)
        source = open_source(data, schema)

    def codes() -> Iterator[NDArray[np.int32]]:
        first = 0
        for whole in watch(source.batches(schema.names), progress):
            here = None if kept is None else kept[first : first + whole.height]
            batch = whole if here is None else whole[: here.size].filter(pl.Series(here))
            first += whole.height
            if raw is not None:
                raw.add(batch)
            yield encode(batch, schema)

    return "records", codes()


def dummies_of(batch: pl.DataFrame) -> NDArray[np.bool_]:
    """A batch of 0/1 columns as booleans, shape (d, rows)."""
    out = np.empty((batch.width, batch.height), dtype=bool)
    for index, column in enumerate(batch.iter_columns()):
        codes = encode_column(column, _BOOLEAN if column.dtype == pl.Boolean else _BIT)
        if (codes < 0).any():
            raise DataError(
                f"column '{column.name}' of a table of dummies must hold 0 or 1 in every row. "
                "Write it with sklar, or evaluate records instead."
            )
        out[index] = codes
    return out


def answer_blocks(blocks: Iterable[NDArray[Any]], schema: Schema, asked: TripleQueries, *, form: Form) -> Answers:
    """Exact answers from blocks of codes, shape (m, rows), or of dummies, shape (d, rows)."""
    d, m = schema.n_levels, schema.n_attributes
    one_way, pairs = np.zeros(d, dtype=np.int64), np.zeros((d, d), dtype=np.int64)
    triples = np.zeros(asked.size, dtype=np.int32)
    worth_compiling, step = Worth(_PLAIN_WORK), max(64, _MAX_CELLS // d // 64 * 64)
    n_rows = valid_rows = 0
    for part in (whole[:, start : start + step] for whole in blocks for start in range(0, whole.shape[1], step)):
        rows = part.shape[1]
        # The levels that rows have. Code -1 is no level.
        row, level = np.nonzero((part if form == "dummies" else part >= 0).T)
        if form == "records":
            level = schema.offsets[level] + part[level, row]
        if form == "records" and not worth_compiling(_plain_work(rows, asked)):
            _add_plainly(part, (row, level), asked, pairs, triples)
        else:
            _add(rows, (row, level), asked, pairs, triples)
        one_way += np.bincount(level, minlength=d)
        # A valid row has as many levels as there are attributes, each of another attribute than the one before.
        another = np.diff(row * m + schema.cells.attribute_of_level[level], prepend=-1) != 0
        exact = [np.bincount(each, minlength=rows) == m for each in (row, row[another])]
        n_rows, valid_rows = n_rows + rows, valid_rows + int(np.count_nonzero(exact[0] & exact[1]))
    if n_rows == 0:
        raise DataError("the table has no rows. It must hold at least one.")
    tables: dict[str, NDArray[Any]] = {"one_way": one_way, "pairs": pairs, "triples": triples}
    return Answers(schema=schema, asked=asked, n_rows=n_rows, valid_rows=valid_rows, form=form, **tables)


def _plain_work(rows: int, asked: TripleQueries) -> float:
    """What it takes to count this many rows in NumPy."""
    m, every = asked.schema.n_attributes, asked.listed is None
    tables = math.comb(m, 2) + (math.comb(m, 3) if every else 0)
    # Of listed triples, a word holds 64 rows.
    return (rows + _TABLE_OVERHEAD) * tables + asked.size * (1 if every else rows / 64)


def _add_plainly(
    codes: NDArray[Any], levels: _Levels, asked: TripleQueries, pairs: NDArray[np.int64], triples: NDArray[np.int32]
) -> None:
    """Do what `_add` does, in NumPy: for inputs too small to repay compilation."""
    offsets, m, d = asked.schema.offsets, asked.schema.n_attributes, asked.schema.n_levels
    sizes, shifted = np.diff(offsets), codes.astype(np.int64) + 1
    for i, j in combinations(range(m), 2):
        # The place of a row that is in no cell is cut off from every table.
        both, shape = shifted[i] * (sizes[j] + 1) + shifted[j], (int(sizes[i]) + 1, int(sizes[j]) + 1)
        table = np.bincount(both, minlength=shape[0] * shape[1]).reshape(shape)
        pairs[offsets[i] : offsets[i + 1], offsets[j] : offsets[j + 1]] += table[1:, 1:]
        if asked.listed is not None:
            continue
        cells, after = int(sizes[i] * sizes[j]), int(offsets[j + 1])
        own = triples[asked.bases[i, j] : asked.bases[i, j] + cells * (d - after)].reshape(cells, d - after)
        for k in range(j + 1, m):
            size = int(sizes[k])
            three = np.bincount(both * (size + 1) + shifted[k], minlength=shape[0] * shape[1] * (size + 1))
            block = three.reshape(*shape, size + 1)[1:, 1:, 1:].reshape(cells, size)
            own[:, offsets[k] - after : offsets[k + 1] - after] += block.astype(np.int32)
    if asked.listed is not None:
        bits = _bits(levels, codes.shape[1], d)
        step = max(_WORDS // max(bits.shape[1], 1), 1)
        for start in range(0, len(asked.listed), step):
            first, second, third = asked.listed[start : start + step].T
            all_three = bits[first] & bits[second] & bits[third]
            triples[start : start + step] += np.bitwise_count(all_three).sum(axis=1, dtype=np.int32)


def _add(
    rows: int, levels: _Levels, asked: TripleQueries, pairs: NDArray[np.int64], triples: NDArray[np.int32]
) -> None:
    schema = asked.schema
    m, d, offsets, block_of = schema.n_attributes, schema.n_levels, schema.offsets, schema.cells.attribute_of_level
    # A row has about m levels. Lists take m^2 / 2 steps for its pairs, bits d^2 / 128.
    wide, every = 64 * m * m > d * d, asked.listed is None
    # The layouts are large: each is made only where it is read.
    if wide or asked.listed is not None:
        bits = _bits(levels, rows, d)
        if wide:
            first, second = np.nonzero(block_of[:, None] < block_of)
            counts = np.zeros(first.size, dtype=np.int32)
            add_bits(bits, np.stack([first, second, second], axis=1), counts)
            pairs[first, second] += counts
        if asked.listed is not None:
            add_bits(bits, asked.listed, triples)
    if not wide or every:
        starts = np.concatenate([[0], np.cumsum(np.bincount(levels[0], minlength=rows))])
        # An empty array is not added to.
        own = (pairs[:0] if wide else pairs), (triples if every else triples[:0])
        add_lists(starts, levels[1].astype(np.int32), block_of, offsets, asked.bases, *own)


def _bits(levels: _Levels, rows: int, d: int) -> NDArray[np.uint64]:
    """One bit per level and row, shape (d, words)."""
    padded = np.zeros((d, -(-rows // 64) * 64), dtype=bool)
    padded[levels[1], levels[0]] = True
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


@compiled(
    f"void(int64[::1], int32[::1], {OFFSETS}, {OFFSETS}, int64[:, ::1], int64[:, ::1], int32[::1])",
    parallel=True,
    boundscheck=False,
)
def add_lists(
    starts: NDArray[np.int64],
    levels: NDArray[np.int32],
    block: NDArray[np.int64],
    offsets: NDArray[np.int64],
    bases: NDArray[np.int64],
    pairs: NDArray[np.int64],
    triples: NDArray[np.int32],
) -> None:
    """Add every pair, and every triple, of levels of distinct attributes that a row has, to those that are not empty.

    Row r has the levels `levels[starts[r]:starts[r + 1]]`, ascending: cheap when attributes have many levels.
    """
    d = block.size
    # Each thread takes a first attribute, so that no two threads write to the same cells.
    for first in prange(block[-1] + 1):
        for row in range(starts.size - 1):
            stop = starts[row + 1]
            for x in range(starts[row], stop):
                a = levels[x]
                if block[a] > first:
                    break
                if block[a] == first:
                    for y in range(x + 1, stop):
                        b = levels[y]
                        second = block[b]
                        if second > first:
                            if pairs.size:
                                pairs[a, b] += 1
                            if triples.size:
                                after = offsets[second + 1]
                                cell = (a - offsets[first]) * (after - offsets[second]) + b - offsets[second]
                                base = bases[first, second] + cell * (d - after) - after
                                for z in range(y + 1, stop):
                                    c = levels[z]
                                    if c >= after:
                                        triples[base + c] += 1


@compiled("void(uint64[:, ::1], int64[:, ::1], int32[::1])", parallel=True, boundscheck=False)
def add_bits(bits: NDArray[np.uint64], listed: NDArray[np.int64], counts: NDArray[np.int32]) -> None:
    """Add the counts of listed triples of levels, shape (k, 3), on bits (d, words): cheap where levels are few."""
    words = bits.shape[1]
    for t in prange(listed.shape[0]):
        a, b, c = listed[t, 0], listed[t, 1], listed[t, 2]
        total = np.uint64(0)
        for word in range(words):
            total += population_count(bits[a, word] & bits[b, word] & bits[c, word])
        counts[t] += np.int32(total)


def pearson(answers: Answers) -> NDArray[np.float64]:
    """Pearson correlations of the dummies, flat, in the order of `two_way`; 0 where a dummy never varies."""
    mean = answers.one_way / answers.n_rows
    flat, variance = answers.schema.cells.flat, mean * (1 - mean)
    spread = flat(np.sqrt(np.outer(variance, variance)))
    covariance = answers.two_way / answers.n_rows - flat(np.outer(mean, mean))
    return np.asarray(np.divide(covariance, spread, out=np.zeros_like(spread), where=spread > 0))


class Best(NamedTuple):
    """The best `percent` % of the queries: their number, and the average and maximum of their errors."""

    percent: int
    queries: int
    average: float
    maximum: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Errors:
    """The distribution of absolute errors: the distinct values, ascending, and the number of queries with each."""

    values: NDArray[np.float64]
    counts: NDArray[np.int64]

    @property
    def size(self) -> int:
        """The number of queries."""
        return int(self.counts.sum())

    @property
    def total(self) -> float:
        """The sum of all errors."""
        return float(self.values @ self.counts)

    def best(self, percent: int) -> Best:
        """The paper's (alpha, beta): average and maximum of the smallest errors, a share of 1 - beta (rounded up)."""
        kept = (self.size * percent + 99) // 100
        if kept == 0:
            return Best(percent=percent, queries=0, average=0.0, maximum=0.0)
        upto = np.cumsum(self.counts)
        last = int(np.searchsorted(upto, kept))
        whole = self.values[:last] @ self.counts[:last]
        rest = kept - (int(upto[last - 1]) if last else 0)
        average = float(whole + rest * self.values[last]) / kept
        return Best(percent=percent, queries=kept, average=average, maximum=float(self.values[last]))

    def cdf(self, points: int = 200) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The CDF as (errors, shares): at all values, or at `points` of them, spread evenly on a logarithmic axis."""
        at = self.values
        if at.size > points:
            grid = np.geomspace(max(float(at[at > 0][0]), 0.5), at[-1], points - 1)
            # Only values that occur are used, so that no point lies between two steps.
            near = np.searchsorted(at, grid, side="right") - 1
            at = np.unique(np.concatenate([at[:1], at[np.clip(near, 0, at.size - 1)], at[-1:]]))
        return at, np.cumsum(self.counts)[np.searchsorted(self.values, at)] / max(self.size, 1)


def absolute_errors(
    true: NDArray[Any], given: NDArray[Any], *, factor: float = 1.0, where: NDArray[np.bool_] | None = None
) -> Errors:
    """The errors |true - factor * given| of all queries, or of those in `where`, one chunk at a time."""
    # One as a whole number keeps whole numbers whole.
    scale = 1 if factor == 1.0 else factor
    values, counts = [np.zeros(0)], [np.zeros(0, dtype=np.int64)]
    for part in (slice(start, start + _CHUNK) for start in range(0, true.size, _CHUNK)):
        chosen = slice(None) if where is None else where[part]
        errors = np.abs(true[part][chosen] - scale * given[part][chosen])
        if errors.dtype.kind in "iu":
            # Whole numbers are counted without sorting.
            times = np.bincount(errors)
            values.append(np.flatnonzero(times).astype(np.float64))
            counts.append(times[times > 0])
        else:
            distinct, times = np.unique(errors, return_counts=True)
            values.append(distinct)
            counts.append(times)
    distinct, which = np.unique(np.concatenate(values), return_inverse=True)
    times = np.zeros(distinct.size, dtype=np.int64)
    np.add.at(times, which, np.concatenate(counts))
    return Errors(values=distinct, counts=times)
