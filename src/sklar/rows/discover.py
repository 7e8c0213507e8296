"""Exact histograms of attributes whose domain is not public: of the values that occur, or on a public grid.

They leave only with noise, through the vault. Memory grows with the number of different values of such an attribute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.search import BRANCHES, MAX_TEXT, depth, grid
from sklar.machine.progress import SILENT, Progress
from sklar.public.schema import Attribute
from sklar.rows.encode import distinct, encode_column, opaque, readable_text


@dataclass(slots=True, eq=False)
class Histogram:
    """Exact counts of one attribute: private. `texts` of categories, `cells` of the finest grid of a number."""

    texts: Counter[str]
    cells: NDArray[np.int64]

    def __repr__(self) -> str:
        return "Histogram(private)"

    def levels(self, attribute: Attribute) -> list[NDArray[np.int64]]:
        """Counts of every level of the grid, the coarsest first: a row stands in at most one cell of each."""
        every = depth(attribute)
        padded = np.zeros(BRANCHES**every, dtype=np.int64)
        padded[: self.cells.size] = self.cells
        return [padded.reshape(BRANCHES**level, -1).sum(axis=1) for level in range(1, every + 1)]


def count_values(
    batches: Iterable[pl.DataFrame], attributes: Sequence[Attribute], *, progress: Progress = SILENT
) -> tuple[int, list[Histogram]]:
    """The number of rows, and the histograms of these attributes, which are the batches' columns in order."""
    grids = [None if attribute.kind == "categorical" else grid(attribute) for attribute in attributes]
    sizes = [0 if fine is None else fine.n_values for fine in grids]
    histograms = [Histogram(Counter(), np.zeros(size, dtype=np.int64)) for size in sizes]
    n_rows = 0
    for batch in batches:
        for column, attribute, fine, found in zip(batch.iter_columns(), attributes, grids, histograms, strict=True):
            if fine is None:
                found.texts.update(_texts(column, attribute))
            else:
                codes = encode_column(column, fine)
                found.cells += np.bincount(codes[(codes >= 0) & (codes < fine.n_values)], minlength=fine.n_values)
        n_rows += batch.height
        progress.advance(batch.height)
    return n_rows, histograms


def _texts(column: pl.Series, attribute: Attribute) -> dict[str, int]:
    """How often each text occurs that could be a category."""
    if column.dtype == pl.Null or opaque(column.dtype):
        return {}
    values, places = distinct(column)
    times = np.bincount(places, minlength=len(values) + 1)
    counts: Counter[str] = Counter()
    known = {"", attribute.missing, *map(str, attribute.special)}
    for value, count in zip([*values, None], times.tolist(), strict=True):
        text = readable_text(value)
        if count and text is not None and text not in known and len(text) <= MAX_TEXT:
            counts[text] += count
    return counts
