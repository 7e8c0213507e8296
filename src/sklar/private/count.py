"""Codes to exact one- and two-way counts, as partial sums that merge by addition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sklar.private.encode import encode
from sklar.progress import SILENT, Progress
from sklar.schema import Schema


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


def count_codes(codes: NDArray[np.int32], schema: Schema) -> Counts:
    """Exact counts of a batch of codes, shape (m, rows)."""
    from sklar.private.kernels import count_pairs

    counts = no_counts(schema)
    offsets = schema.offsets
    for index, (start, size) in enumerate(zip(offsets, schema.sizes, strict=False)):
        column = codes[index]
        counts.one_way[start : start + size] = np.bincount(column[column >= 0], minlength=size)
    count_pairs(np.ascontiguousarray(codes), offsets, counts.pairs)
    return Counts(n_rows=codes.shape[1], one_way=counts.one_way, pairs=counts.pairs)


def merge(parts: Iterable[Counts], schema: Schema) -> Counts:
    """The sum of partial counts."""
    return reduce(Counts.__add__, parts, no_counts(schema))


def count(batches: Iterable[pa.RecordBatch], schema: Schema, *, progress: Progress = SILENT) -> Counts:
    """Exact counts of all batches, whose columns are the schema's attributes in order."""
    total = no_counts(schema)
    n_rows = 0
    for batch in batches:
        part = count_codes(encode(batch, schema), schema)
        # In place: the square array may be large and batches are many.
        np.add(total.one_way, part.one_way, out=total.one_way)
        np.add(total.pairs, part.pairs, out=total.pairs)
        n_rows += part.n_rows
        progress.advance(part.n_rows)
    return Counts(n_rows=n_rows, one_way=total.one_way, pairs=total.pairs)
