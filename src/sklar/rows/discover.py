"""Exact histograms of attributes whose domain is not public: of the values that occur, or on a public grid.

They leave only with noise, through the vault. Memory grows with the number of different values of such an attribute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

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


class Finder:
    """Histograms of attributes whose domain is private, filled batch by batch.

    A batch's values become numbers first (`codes`): of the cells of a number's finest grid, or of texts in the order in
    which they are seen; -1 for what is neither. Several threads may ask for codes.
    """

    def __init__(self, attributes: Sequence[Attribute]) -> None:
        self._attributes = attributes
        self._grids = [None if attribute.kind == "categorical" else grid(attribute) for attribute in attributes]
        self._seen: list[dict[str, int]] = [{} for _ in attributes]
        self._counts = [np.zeros(0 if fine is None else fine.n_values, dtype=np.int64) for fine in self._grids]
        self._lock = Lock()

    def codes(self, batch: pl.DataFrame) -> NDArray[np.int32]:
        """The numbers of a batch's values, shape (attributes, rows). Its columns are the attributes in order."""
        codes = np.empty((len(self._attributes), batch.height), dtype=np.int32)
        for number, column in enumerate(batch.iter_columns()):
            fine = self._grids[number]
            if fine is None:
                codes[number] = self._numbers(column, number)
            else:
                found = encode_column(column, fine)
                codes[number] = np.where(found < fine.n_values, found, -1)
        return codes

    def add(self, codes: NDArray[np.integer[Any]]) -> None:
        """Count these numbers, shape (attributes, rows)."""
        for number, own in enumerate(codes):
            counts = self._counts[number]
            found = np.bincount(own[own >= 0], minlength=counts.size)
            found[: counts.size] += counts
            self._counts[number] = found

    def histograms(self) -> list[Histogram]:
        """What was counted."""
        found = []
        for fine, seen, counts in zip(self._grids, self._seen, self._counts, strict=True):
            # A text that was seen may have been counted in no row.
            texts = {text: int(counts[place]) for text, place in seen.items() if place < counts.size and counts[place]}
            found.append(Histogram(Counter(texts), counts[:0] if fine is None else counts))
        return found

    def _numbers(self, column: pl.Series, number: int) -> NDArray[np.int32]:
        """Each row's text as a number, -1 for what cannot be a category."""
        if column.dtype == pl.Null or opaque(column.dtype):
            return np.full(len(column), -1, dtype=np.int32)
        values, places = distinct(column)
        attribute, seen = self._attributes[number], self._seen[number]
        known = {"", attribute.missing, *map(str, attribute.special)}
        lookup = np.full(len(values) + 1, -1, dtype=np.int32)
        with self._lock:
            for place, value in enumerate(values):
                text = readable_text(value)
                if text is not None and text not in known and len(text) <= MAX_TEXT:
                    lookup[place] = seen.setdefault(text, len(seen))
        return lookup[places]


def count_values(
    batches: Iterable[pl.DataFrame], attributes: Sequence[Attribute], *, progress: Progress = SILENT
) -> tuple[int, list[Histogram]]:
    """The number of rows, and the histograms of these attributes, which are the batches' columns in order."""
    finder, n_rows = Finder(attributes), 0
    for batch in batches:
        finder.add(finder.codes(batch))
        n_rows += batch.height
        progress.advance(batch.height)
    return n_rows, finder.histograms()
