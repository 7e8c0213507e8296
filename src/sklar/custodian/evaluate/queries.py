"""Q1, Q2 and Q3 of the paper: one-, two- and three-way counts over dummies of distinct attributes, exactly.

A table is read once, batch by batch; of its rows nothing is kept but counts. It may hold records, or the paper's
dummies (0/1 columns named `attribute=level`), where a row may have none or several levels of an attribute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.custodian.evaluate import counting
from sklar.custodian.evaluate.look import Look
from sklar.errors import DataError
from sklar.machine.compiled import Worth
from sklar.machine.progress import SILENT, Progress
from sklar.public.schema import Attribute, Schema
from sklar.rows.encode import encode, encode_column
from sklar.rows.people import chosen_places
from sklar.rows.read import open_source
from sklar.rows.source import require_columns

Form: TypeAlias = Literal["records", "dummies"]

# All triples are counted up to here (a quarter of a gigabyte per table); beyond it, a sample of them.
MAX_TRIPLES = 1 << 26
SAMPLED_TRIPLES = 500_000
SAMPLE_SEED = 2020

_BIT = Attribute(name="bit", kind="categorical", values=("0", "1"))
_BOOLEAN = Attribute(name="bit", kind="boolean")

# Of rows times tables, with rows for the overhead of a table, and cells: what NumPy counts (3 ns each) before compiled
# code is worth loading (1 s, or 3 s where it must be compiled).
_PLAIN_WORK, _TABLE_OVERHEAD = 5e8, 4_000
# Cells of a batch laid out as (d, rows): 64 MB.
_MAX_CELLS = 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Triples:
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


def choose_triples(
    schema: Schema, *, max_triples: int = MAX_TRIPLES, sampled: int = SAMPLED_TRIPLES, seed: int = SAMPLE_SEED
) -> Triples:
    """All triples of levels of distinct attributes when there are at most `max_triples`, else a random sample.

    The sample is drawn with replacement from the public schema alone.
    """
    schema.require_square("an evaluation")
    m, sizes, d = schema.n_attributes, schema.sizes, schema.n_levels
    after = d - schema.offsets[1:]
    cells = np.triu(np.outer(sizes, sizes * after), 1)
    bases = np.concatenate([[0], np.cumsum(cells.ravel())[:-1]]).reshape(m, m)
    in_all = int(cells.sum())
    listed = _sample(schema, sampled, seed) if in_all > max_triples else None
    return Triples(schema=schema, listed=listed, bases=bases, in_all=in_all)


def _sample(schema: Schema, wanted: int, seed: int) -> NDArray[np.int64]:
    generator, block = np.random.default_rng(seed), schema.cells.attribute_of_level
    kept = np.empty((0, 3), dtype=np.int64)
    # Three levels at random, again where two are of one attribute: every triple is as likely as any other.
    while len(kept) < wanted:
        drawn = np.sort(generator.integers(schema.n_levels, size=(wanted, 3)), axis=1)
        of = block[drawn]
        kept = np.concatenate([kept, drawn[(of[:, 0] < of[:, 1]) & (of[:, 1] < of[:, 2])]])
    return np.ascontiguousarray(kept[:wanted])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """Answers to all queries: private when they come from real rows.

    `one_way` has shape (d,); `pairs` (d, d), filled for attributes i < j; `triples` is laid out by `asked`. Counts of a
    table are integers; noisy and computed answers may be real numbers. `valid_rows` have exactly one level of every
    attribute; None when there are no rows to look at.
    """

    schema: Schema
    asked: Triples
    n_rows: int
    one_way: NDArray[Any]
    pairs: NDArray[Any]
    triples: NDArray[Any]
    valid_rows: int | None = None
    form: Form | None = None

    def __repr__(self) -> str:
        # A traceback or a debugger's log must not print counts.
        return "Answers(private)"

    @property
    def two_way(self) -> NDArray[Any]:
        """The two-way answers over distinct attributes, flat."""
        return self.schema.cells.flat(self.pairs)


def answer(
    data: object, schema: Schema, asked: Triples, *, progress: Progress = SILENT, look: Look | None = None
) -> Answers:
    """Exact answers on a table of records or of dummies: a path, or anything that exports an Arrow stream.

    Where the table has records, `look` sees its raw values on the way.
    """
    form, batches = read(data, schema, look)
    return answer_blocks(_watched(batches, progress), schema, asked, form=form)


def _watched(batches: Iterable[NDArray[Any]], progress: Progress) -> Iterator[NDArray[Any]]:
    for batch in batches:
        yield batch
        progress.advance(batch.shape[1])


def read(data: object, schema: Schema, look: Look | None = None) -> tuple[Form, Iterator[NDArray[Any]]]:
    """The form of a table, and its batches: codes of shape (m, rows), or 0/1 dummies of shape (d, rows)."""
    source = open_source(data, schema)
    dummies = schema.dummy_names
    if set(dummies) <= set(source.columns) and not set(schema.names) <= set(source.columns):
        return "dummies", (dummies_of(batch) for batch in source.batches(dummies))
    require_columns(source, schema)
    batches = source.batches(schema.names)
    if schema.person is not None and schema.person.column in source.columns:
        # The original: its rows count as they do in a release, so that shares are compared with shares of one kind.
        kept = chosen_places(source.batches((schema.person.column,)), schema.person)
        batches = _kept(open_source(data, schema).batches(schema.names), kept)
    return "records", (_encoded(batch, schema, look) for batch in batches)


def _kept(batches: Iterable[pl.DataFrame], kept: NDArray[np.bool_]) -> Iterator[pl.DataFrame]:
    first = 0
    for batch in batches:
        here = np.zeros(batch.height, dtype=bool)
        part = kept[first : first + batch.height]
        here[: part.size] = part
        first += batch.height
        yield batch.filter(pl.Series(here))


def _encoded(batch: pl.DataFrame, schema: Schema, look: Look | None) -> NDArray[np.int32]:
    if look is not None:
        look.add(batch)
    return encode(batch, schema)


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


def answer_blocks(blocks: Iterable[NDArray[Any]], schema: Schema, asked: Triples, *, form: Form) -> Answers:
    """Exact answers from blocks of codes, shape (m, rows), or of dummies, shape (d, rows)."""
    d = schema.n_levels
    one_way, pairs = np.zeros(d, dtype=np.int64), np.zeros((d, d), dtype=np.int64)
    triples = np.zeros(asked.size, dtype=np.int32)
    worth_compiling = Worth(_PLAIN_WORK)
    n_rows = valid_rows = 0
    for whole in blocks:
        step = max(64, _MAX_CELLS // d // 64 * 64)
        for start in range(0, whole.shape[1], step):
            part = whole[:, start : start + step]
            if form == "records" and not worth_compiling(_plain_work(part.shape[1], asked)):
                _add_plainly(part, asked, pairs, triples)
            else:
                _add(part, asked, form, pairs, triples)
            one_way += _level_counts(part, schema, form)
            n_rows += part.shape[1]
            valid_rows += int(np.count_nonzero(valid(part, schema, form)))
    if n_rows == 0:
        raise DataError("the table has no rows. It must hold at least one.")
    return Answers(
        schema=schema,
        asked=asked,
        n_rows=n_rows,
        one_way=one_way,
        pairs=pairs,
        triples=triples,
        valid_rows=valid_rows,
        form=form,
    )


def _plain_work(rows: int, asked: Triples) -> float:
    """What it takes to count this many rows in NumPy."""
    m, every = asked.schema.n_attributes, asked.listed is None
    tables = math.comb(m, 2) + (math.comb(m, 3) if every else 0)
    # Of listed triples, a word holds 64 rows.
    return (rows + _TABLE_OVERHEAD) * tables + asked.size * (1 if every else rows / 64)


def _add_plainly(block: NDArray[Any], asked: Triples, pairs: NDArray[np.int64], triples: NDArray[np.int32]) -> None:
    schema = asked.schema
    every = triples if asked.listed is None else None
    counting.add_tables_plainly(block, schema.offsets, pairs, asked.bases, every)
    if asked.listed is not None:
        counting.add_listed_plainly(_bits(block, schema.offsets, schema.n_levels, "records"), asked.listed, triples)


def _add(block: NDArray[Any], asked: Triples, form: Form, pairs: NDArray[np.int64], triples: NDArray[np.int32]) -> None:
    schema = asked.schema
    m, d, offsets, block_of = schema.n_attributes, schema.n_levels, schema.offsets, schema.cells.attribute_of_level
    # A row has about m levels. Lists take m^2 / 2 steps for its pairs, bits d^2 / 128.
    wide = 64 * m * m > d * d
    # The layouts are large: each is made only where it is read.
    if wide or asked.listed is not None:
        bits = _bits(block, offsets, d, form)
        if wide:
            counting.add_pair_bits(bits, block_of, offsets, pairs)
        if asked.listed is not None:
            counting.add_triple_bits(bits, asked.listed, triples)
    if not wide or asked.listed is None:
        starts, levels = _lists(block, offsets, form)
        if not wide:
            counting.add_pairs(starts, levels, block_of, pairs)
        if asked.listed is None:
            counting.add_triples(starts, levels, block_of, offsets, asked.bases, triples)


def valid(block: NDArray[Any], schema: Schema, form: Form) -> NDArray[np.bool_]:
    """Which rows have exactly one level of every attribute, shape (rows,)."""
    if form == "records":
        return np.asarray((block >= 0).all(axis=0))
    levels = np.add.reduceat(block.astype(np.uint16), schema.offsets[:-1], axis=0)
    return np.asarray((levels == 1).all(axis=0))


def _level_counts(block: NDArray[Any], schema: Schema, form: Form) -> NDArray[np.int64]:
    """How many rows have each level, shape (d,)."""
    if form == "dummies":
        return np.asarray(block.sum(axis=1, dtype=np.int64))
    counts = (np.bincount(row[row >= 0], minlength=size) for row, size in zip(block, schema.sizes, strict=True))
    return np.concatenate(list(counts))


def _lists(block: NDArray[Any], offsets: NDArray[np.int64], form: Form) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The levels that each row has, as (starts, levels)."""
    if form == "records":
        here = np.ascontiguousarray((block >= 0).T)
        levels = (block + offsets[:-1, None].astype(np.int32)).T[here]
    else:
        here = np.ascontiguousarray(block.T)
        levels = np.nonzero(here)[1].astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(here.sum(axis=1, dtype=np.int64))])
    return starts, np.ascontiguousarray(levels)


def _bits(block: NDArray[Any], offsets: NDArray[np.int64], d: int, form: Form) -> NDArray[np.uint64]:
    """One bit per level and row, shape (d, words)."""
    rows = block.shape[1]
    padded = np.zeros((d, -(-rows // 64) * 64), dtype=bool)
    if form == "records":
        attribute, row = np.nonzero(block >= 0)
        padded[offsets[attribute] + block[attribute, row], row] = True
    else:
        padded[:, :rows] = block
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def pearson(answers: Answers) -> NDArray[np.float64]:
    """Pearson correlations of the dummies, flat, in the order of `two_way`; 0 where a dummy never varies."""
    mean = answers.one_way / answers.n_rows
    flat, variance = answers.schema.cells.flat, mean * (1 - mean)
    spread = flat(np.sqrt(np.outer(variance, variance)))
    covariance = answers.two_way / answers.n_rows - flat(np.outer(mean, mean))
    return np.asarray(np.divide(covariance, spread, out=np.zeros_like(spread), where=spread > 0))
