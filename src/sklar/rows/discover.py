"""Exact histograms of attributes whose domain is not public: of the values that occur, texts or numbers.

They leave only with noise, through the vault: categories by a threshold, numbers summed over the cells of public
tables. Memory grows with the number of different values of such an attribute, not with the width of its bounds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.search import MAX_TEXT, Ladder, Units, ladder_of
from sklar.public.schema import Attribute
from sklar.rows.encode import encode_column, numbers_of
from sklar.rows.values import distinct, opaque, readable_text

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

    def __add__(self, other: Histogram) -> Histogram:
        both = Histogram(texts=self.texts + other.texts)
        for values, times in (self.values(), other.values()):
            both.add_times(values, times)
        return both

    def add_column(self, column: pl.Series) -> None:
        """Count the texts, or grains, of a column that `value_column` made."""
        held = column.drop_nulls()
        if held.dtype == pl.String:
            counted = held.alias("text").value_counts(name="times")
            self.texts.update(dict(zip(counted["text"], counted["times"], strict=True)))
        else:
            self.add_times(*np.unique(held.to_numpy(), return_counts=True))

    def add_times(self, values: Units, times: Units) -> None:
        """Count each of these grains so often."""
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


def value_column(column: pl.Series, attribute: Attribute) -> pl.Series:
    """What a histogram counts of a column: texts, or grains; null for what is not in the domain."""
    if not attribute.categorical:
        bounds = replace(attribute, domain="public", at_most=0)
        inside = np.asarray(encode_column(column, bounds) == bounds.bin_codes[0])
        units = np.zeros(len(column), dtype=np.int64)
        units[inside] = ladder_of(attribute).units(numbers_of(column, attribute)[inside])
        return pl.Series(units).scatter(np.flatnonzero(~inside), None)
    if column.dtype == pl.Null or opaque(column.dtype):
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(column))
    values, places = distinct(column)
    known = {"", attribute.missing, *map(str, attribute.special)}
    # The last place is that of nulls. A lone half of a pair of surrogates is not text.
    texts = [(readable_text(value) or "").encode(errors="replace").decode() for value in values]
    held = [None if text in known or len(text) > MAX_TEXT else text for text in texts]
    return pl.Series([*held, None], dtype=pl.String).gather(places)
