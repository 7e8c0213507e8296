"""Q1, Q2 and Q3 of the paper: one-, two- and three-way counts over dummies of distinct attributes, and their errors.

A table is read once, batch by batch; of its rows nothing is kept but counts. It may hold records, or the paper's
dummies (0/1 columns named `attribute=level`), where a row may have none or several levels of an attribute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.errors import DataError
from sklar.kernel.cells import Cells
from sklar.kernel.queries import Tables
from sklar.machine.compiled import load
from sklar.machine.progress import SILENT, Progress, watch
from sklar.machine.threads import side_by_side, undivided
from sklar.machine.wording import said
from sklar.public.schema import Attribute, Schema
from sklar.rows.bounded import chosen_places
from sklar.rows.count import Ask, count
from sklar.rows.encode import encode, encode_column
from sklar.rows.read import open_source
from sklar.rows.source import require_columns

if TYPE_CHECKING:
    from sklar.custodian.evaluate.raw import RawTable

Form: TypeAlias = Literal["records", "dummies"]

# All triples are counted up to here (a quarter of a gigabyte per table); beyond it, a sample of them.
MAX_TRIPLES = 1 << 26
SAMPLED_TRIPLES = 500_000
SAMPLE_SEED = 2020
PERCENTS = (95, 99, 100)

_BIT = Attribute(name="bit", kind="categorical", values=("0", "1"))
_BOOLEAN = Attribute(name="bit", kind="boolean")

# These bound memory: cells of a part of a batch laid out as (d, rows), and queries whose errors are taken at a time.
_MAX_CELLS, _CHUNK = 1 << 24, 1 << 22
# Listed triples that a thread counts at a time.
_AT_ONCE = 4_096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TripleQueries:
    """Which three-way queries are asked: all over distinct attributes, laid out as the kernel's `Tables` of order 3, or
    a list of triples of levels, shape (k, 3).
    """

    schema: Schema
    listed: NDArray[np.int64] | None
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
    one, two, three = (sum(size**power for size in schema.sizes.tolist()) for power in (1, 2, 3))
    # The sum of products of three different sizes (Newton).
    in_all, listed, d = (one**3 - 3 * one * two + 2 * three) // 6, None, schema.n_levels
    if in_all > max_triples:
        generator, block = np.random.default_rng(SAMPLE_SEED), schema.cells.attribute_of_level
        listed = np.empty((0, 3), dtype=np.int64)
        # Three levels at random, again where two are of one attribute: every triple is as likely as any other.
        while len(listed) < sampled:
            drawn = np.sort(generator.integers(d, size=(sampled, 3)), axis=1)
            listed = np.concatenate([listed, drawn[(np.diff(block[drawn], axis=1) > 0).all(axis=1)]])
        listed = np.ascontiguousarray(listed[:sampled])
    return TripleQueries(schema=schema, listed=listed, in_all=in_all)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Answers:
    """Answers to all queries: PRIVATE when they come from real rows, so that no log must print them.

    One-way and two-way tables are flat, as `Cells` lays them out; `triples` is laid out by `asked`. Noisy and computed
    answers may be real numbers. `valid_rows` have one level of every attribute; None where there are no rows.
    """

    schema: Schema
    asked: TripleQueries
    n_rows: int
    one_way: NDArray[Any]
    two_way: NDArray[Any]
    triples: NDArray[Any]
    valid_rows: int | None = None
    form: Form | None = None


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
    dummies = schema.dummy_names
    if set(dummies) <= set(source.columns) and not set(schema.columns) <= set(source.columns):
        return "dummies", (dummies_of(batch) for batch in watch(source.batches(dummies), progress))
    left_out, batches = rows_that_count(data, schema, progress)
    if raw is not None:
        raw.left_out = left_out

    def codes() -> Iterator[NDArray[np.int32]]:
        for batch in batches:
            if raw is not None:
                raw.add(batch)
            yield encode(batch, schema)

    return "records", codes()


def rows_that_count(
    data: object, schema: Schema, progress: Progress = SILENT
) -> tuple[tuple[str, ...], Iterator[pl.DataFrame]]:
    """The columns of a table of records that the schema does not have, and its rows as they count in a release."""
    source, person, kept = open_source(data, schema), schema.person, None
    require_columns(source, schema)
    own = {*schema.columns, *(() if person is None else (person.column,))}
    if person is not None and person.column in source.columns:
        # The original: its rows count as they do in a release, so that shares are compared with shares of one kind.
        kept = chosen_places(source.batches((person.column,)), person)
        source = open_source(data, schema)

    def rows() -> Iterator[pl.DataFrame]:
        first = 0
        for whole in watch(source.batches(tuple(schema.columns)), progress):
            here = None if kept is None else kept[first : first + whole.height]
            yield whole if here is None else whole[: here.size].filter(pl.Series(here))
            first += whole.height

    return tuple(name for name in source.columns if name not in own), rows()


def dummies_of(batch: pl.DataFrame) -> NDArray[np.bool_]:
    """A batch of 0/1 columns as booleans, shape (d, rows)."""
    out = np.empty((batch.width, batch.height), dtype=bool)
    for index, column in enumerate(batch.iter_columns()):
        codes = encode_column(column, _BOOLEAN if column.dtype == pl.Boolean else _BIT)
        if (codes < 0).any():
            raise DataError(said("custodian.dummies", column=column.name))
        out[index] = codes
    return out


def answer_blocks(blocks: Iterable[NDArray[Any]], schema: Schema, asked: TripleQueries, *, form: Form) -> Answers:
    """Exact answers from blocks of codes, shape (m, rows), or of dummies, shape (d, rows)."""
    n_rows = valid_rows = 0
    triples: NDArray[Any] = np.zeros(asked.size, dtype=np.int32)
    step = max(64, _MAX_CELLS // schema.n_levels // 64 * 64)

    def parts() -> Iterator[NDArray[Any]]:
        nonlocal n_rows, valid_rows
        for part in (whole[:, start : start + step] for whole in blocks for start in range(0, whole.shape[1], step)):
            levels = part if form == "dummies" else part >= 0
            # A valid row has one level of every attribute.
            each = np.add.reduceat(levels, schema.offsets[:-1], axis=0, dtype=np.int32) if form == "dummies" else levels
            n_rows, valid_rows = n_rows + part.shape[1], valid_rows + int(np.count_nonzero((each == 1).all(axis=0)))
            if asked.listed is not None and asked.size:
                _add_listed(part if form == "dummies" else _dummies(part, schema), asked.listed, triples)
            yield part

    if form == "records":
        orders = (1, 2) if asked.listed is not None else (1, 2, 3)
        tables = tuple(Tables(cells=schema.cells, order=order) for order in orders)
        frames = (pl.DataFrame([pl.Series(f"code {i}", codes) for i, codes in enumerate(part)]) for part in parts())
        one_way, two_way, *three = count(frames, Ask(attributes=schema.attributes, tables=tables, chosen=True)).tables
        triples = three[0] if three else triples
    else:
        one_way, square = np.zeros(schema.n_levels, dtype=np.int64), np.zeros((schema.n_levels,) * 2, dtype=np.int64)
        for part in parts():
            # Single precision holds these counts exactly: a part has fewer than 2**24 rows.
            dummies = np.ascontiguousarray(part.T, dtype=np.float32)
            one_way += part.sum(axis=1)
            # Threads that share such small products wait for each other.
            with undivided():
                square += (dummies.T @ dummies).astype(np.int64)
                if asked.listed is None:
                    _add_triples(dummies, schema.cells, triples)
        two_way = schema.cells.flat(square)
    if n_rows == 0:
        raise DataError("the table has no rows. It must hold at least one.")
    counts: dict[str, NDArray[Any]] = {"one_way": one_way, "two_way": two_way, "triples": triples}
    return Answers(schema=schema, asked=asked, n_rows=n_rows, valid_rows=valid_rows, form=form, **counts)


def _dummies(codes: NDArray[Any], schema: Schema) -> NDArray[np.bool_]:
    """The dummies of codes, shape (d, rows). Code -1 is no level."""
    dummies = np.zeros((schema.n_levels, codes.shape[1]), dtype=bool)
    attribute, row = np.nonzero(codes >= 0)
    dummies[schema.offsets[attribute] + codes[attribute, row], row] = True
    return dummies


def _add_listed(dummies: NDArray[Any], listed: NDArray[np.int64], triples: NDArray[np.int32]) -> None:
    """Add the counts of listed triples of levels, shape (k, 3): tables of one cell, on bits."""
    padded = np.pad(dummies, ((0, 0), (0, -dummies.shape[1] % 64)))
    bits = np.packbits(padded, axis=1, bitorder="little").view(np.uint64)
    kernel = load("sklar.rows.planes").add_threes

    def add(start: int) -> None:
        part = listed[start : start + _AT_ONCE]
        places = np.arange(start, start + len(part))
        kernel(bits, bits.shape[1], np.ascontiguousarray(part), np.ones_like(part), places, triples)

    side_by_side(add, range(0, len(listed), _AT_ONCE))


def _add_triples(dummies: NDArray[np.float32], cells: Cells, triples: NDArray[np.int32]) -> None:
    """Add all three-way counts of dummies, shape (rows, d), laid out as `Tables`.

    Of the rows that have a level of one attribute, these are the two-way counts of later attributes.
    """
    start = 0
    for attribute, size in enumerate(cells.sizes.tolist()):
        later = Cells(cells.sizes[attribute + 1 :])
        table = np.repeat(np.arange(later.n_pairs), later.pair_sizes)
        for level in range(size):
            own = dummies[dummies[:, cells.offsets[attribute] + level] > 0, cells.offsets[attribute + 1] :]
            # A table with two later attributes has a slab for each level of this one.
            slab = (size - 1) * later.pair_offsets[table] + level * later.pair_sizes[table]
            triples[start + np.arange(later.n_cells) + slab] += later.flat(own.T @ own).astype(np.int32)
        start += size * later.n_cells


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
    found = [pl.DataFrame(schema={"error": pl.Float64, "times": pl.UInt32})]
    for part in (slice(start, start + _CHUNK) for start in range(0, true.size, _CHUNK)):
        chosen = slice(None) if where is None else where[part]
        errors = np.abs(true[part][chosen] - scale * given[part][chosen]).astype(np.float64)
        found.append(pl.Series("error", errors).value_counts(name="times"))
    whole = pl.concat(found).group_by("error").agg(pl.col("times").cast(pl.Int64).sum()).sort("error")
    return Errors(values=whole["error"].to_numpy(), counts=whole["times"].to_numpy())
