"""Batches to exact parities of all triples of bits: what `kernel.parities` counts plainly, on 64 rows at a time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import ahead
from sklar.public.schema import Schema
from sklar.rows.encode import encode_column


def count_trios(
    batches: Iterable[pl.DataFrame], schema: Schema, *, progress: Progress = SILENT
) -> tuple[NDArray[np.int64], int]:
    """Of every three attributes, how many rows have an odd sum of bits, and the number of rows.

    The batches' columns are the schema's attributes in order, all of them of two levels.
    """
    cells, n_rows = schema.cells, 0
    odd = np.zeros(cells.n_trios, dtype=np.int64)
    for batch in ahead(batches):
        columns = zip(batch.iter_columns(), schema.attributes, strict=True)
        bits = _words(np.array([encode_column(column, attribute) == 1 for column, attribute in columns]))
        at = 0
        for i in range(cells.n_attributes):
            for j in range(i + 1, cells.n_attributes):
                both = bits[i] ^ bits[j]
                found = np.bitwise_count(bits[j + 1 :] ^ both).sum(axis=1, dtype=np.int64)
                odd[at : at + found.size] += found
                at += found.size
        n_rows += batch.height
        progress.advance(batch.height)
    return odd, n_rows


def _words(bits: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Bits of shape (m, rows) in words, (m, words); those after the last row are 0."""
    packed = np.packbits(bits, axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)
