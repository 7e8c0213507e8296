"""Exact histograms of attributes whose domain is not public: of the values that occur, texts or numbers.

They leave only with noise, through the vault: categories by a threshold, numbers summed over the cells of public
tables. Memory grows with the number of different values of such an attribute, not with the width of its bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.ladder import Ladder, Units, ladder_of
from sklar.budget.search import MAX_TEXT
from sklar.machine.progress import SILENT, Progress
from sklar.public.schema import Attribute
from sklar.rows.encode import distinct, encode_column, numbers_of, opaque, readable_text

# Different numbers of batches are added up once there are as many as were known, and at least so many.
_PENDING = 1 << 16


@dataclass(slots=True, eq=False)
class Histogram:
    """Exact counts of one attribute: private. `texts` of categories; of numbers, which grains occur and how often."""

    texts: Counter[str] = field(default_factory=Counter)
    _pending: list[tuple[Units, Units]] = field(default_factory=list)
    _waiting: int = 0

    def __repr__(self) -> str:
        return "Histogram(private)"

    def add(self, units: Units) -> None:
        """Count these grains."""
        values, times = np.unique(units, return_counts=True)
        self._pending.append((values, times))
        self._waiting += values.size
        if self._waiting > max(_PENDING, 2 * self._pending[0][0].size):
            self.values()

    def values(self) -> tuple[Units, Units]:
        """The grains that occur, ascending, and how often."""
        if not self._pending:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        values, places = np.unique(np.concatenate([each for each, _ in self._pending]), return_inverse=True)
        times = np.zeros(values.size, dtype=np.int64)
        np.add.at(times, places, np.concatenate([each for _, each in self._pending]))
        self._pending, self._waiting = [(values, times)], values.size
        return values, times

    def table(self, edges: Units) -> NDArray[np.int64]:
        """Counts of the cells between these edges, which no row is outside of: one cell for each row."""
        values, times = self.values()
        upto = np.concatenate([[0], np.cumsum(times)])
        return np.diff(upto[np.searchsorted(values, edges)])

    def rounding(self, ladder: Ladder) -> NDArray[np.int64]:
        """Counts of decade by step: one cell for each row."""
        values, times = self.values()
        counts = np.zeros(ladder.rounding_size, dtype=np.int64)
        np.add.at(counts, ladder.rounding_cells(values), times)
        return counts


def count_values(
    batches: Iterable[pl.DataFrame], attributes: Sequence[Attribute], *, progress: Progress = SILENT
) -> tuple[int, list[Histogram]]:
    """The number of rows, and the histograms of these attributes, which are the batches' columns in order."""
    histograms = [Histogram() for _ in attributes]
    n_rows = 0
    for batch in batches:
        for column, attribute, found in zip(batch.iter_columns(), attributes, histograms, strict=True):
            if attribute.kind == "categorical":
                found.texts.update(_texts(column, attribute))
            else:
                found.add(_units(column, attribute))
        n_rows += batch.height
        progress.advance(batch.height)
    return n_rows, histograms


def _units(column: pl.Series, attribute: Attribute) -> Units:
    """The numbers of a column that are in the domain, in grains."""
    bounds = replace(attribute, domain="public", at_most=0)
    inside = encode_column(column, bounds) == bounds.bin_codes[0]
    return ladder_of(attribute).units(numbers_of(column, attribute)[inside])


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
