"""Exact histograms of attributes whose domain is not public: of the values that occur, texts or numbers.

They leave only with noise, through the vault: categories by a threshold, numbers summed over the cells of public
tables. Memory grows with the number of different values of such an attribute, not with the width of its bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.ladder import Ladder, Units, ladder_of
from sklar.budget.search import MAX_TEXT
from sklar.machine.progress import SILENT, Progress
from sklar.public.schema import Attribute
from sklar.rows.encode import encode_column, numbers_of
from sklar.rows.values import distinct, opaque, readable_text

# Different numbers of batches are added up once there are as many as were known, and at least so many.
_PENDING = 1 << 16
# In place of a whole number that stands for a value in the domain.
_NOTHING = np.iinfo(np.int64).min


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
        self.add_times(*np.unique(units, return_counts=True))

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


class Finder:
    """Histograms that are filled in two steps, with a choice of rows between them.

    A batch's values become whole numbers first (`codes`): the grains of numbers, and texts by the order in which they
    are seen. Several threads may ask for codes.
    """

    def __init__(self, attributes: Sequence[Attribute]) -> None:
        self._attributes, self._lock = attributes, Lock()
        self._seen: list[dict[str, int]] = [{} for _ in attributes]
        self._found = [Histogram() for _ in attributes]
        self.n_rows = 0

    def codes(self, batch: pl.DataFrame) -> NDArray[np.int64]:
        """A batch as whole numbers, shape (attributes, rows), `_NOTHING` for what is not in the domain."""
        codes = np.full((len(self._attributes), batch.height), _NOTHING)
        for own, column, attribute, seen in zip(codes, batch.iter_columns(), self._attributes, self._seen, strict=True):
            if attribute.categorical:
                texts, places = _categories(column, attribute)
                with self._lock:
                    numbers = [_NOTHING if text is None else seen.setdefault(text, len(seen)) for text in texts]
                own[:] = np.array([*numbers, _NOTHING])[places]
            else:
                inside = _inside(column, attribute)
                own[inside] = ladder_of(attribute).units(numbers_of(column, attribute)[inside])
        return codes

    def add(self, codes: NDArray[np.integer[Any]]) -> None:
        """Count these rows."""
        self.n_rows += codes.shape[1]
        for own, found in zip(codes, self._found, strict=True):
            found.add(np.asarray(own[own != _NOTHING], dtype=np.int64))

    def histograms(self) -> list[Histogram]:
        """What was counted."""
        for attribute, seen, found in zip(self._attributes, self._seen, self._found, strict=True):
            if attribute.categorical:
                texts, (numbers, times) = list(seen), found.values()
                found.texts.update(
                    {texts[number]: count for number, count in zip(numbers.tolist(), times.tolist(), strict=True)}
                )
        return self._found


def value_columns(batch: pl.DataFrame, attributes: Sequence[Attribute]) -> pl.DataFrame:
    """What histograms count of a batch, column by column: texts, or grains; null for what is not in the domain."""
    columns = []
    for column, attribute in zip(batch.iter_columns(), attributes, strict=True):
        if attribute.categorical:
            texts, places = _categories(column, attribute)
            columns.append(pl.Series(column.name, [*texts, None], dtype=pl.String).gather(places))
        else:
            inside = _inside(column, attribute)
            units = np.zeros(batch.height, dtype=np.int64)
            units[inside] = ladder_of(attribute).units(numbers_of(column, attribute)[inside])
            columns.append(pl.Series(column.name, units).scatter(np.flatnonzero(~inside), None))
    return pl.DataFrame(columns)


def count_columns(values: pl.DataFrame, attributes: Sequence[Attribute]) -> list[Histogram]:
    """The histograms of such columns."""
    histograms = [Histogram() for _ in attributes]
    for column, attribute, found in zip(values.iter_columns(), attributes, histograms, strict=True):
        held = column.drop_nulls()
        if attribute.categorical:
            counted = held.alias("text").value_counts(name="times")
            found.texts.update(dict(zip(counted["text"], counted["times"], strict=True)))
        else:
            found.add(held.to_numpy())
    return histograms


def count_values(
    batches: Iterable[pl.DataFrame], attributes: Sequence[Attribute], *, progress: Progress = SILENT
) -> tuple[int, list[Histogram]]:
    """The number of rows, and the histograms of these attributes, which are the batches' columns in order."""
    histograms = [Histogram() for _ in attributes]
    n_rows = 0
    for batch in batches:
        for column, attribute, found in zip(batch.iter_columns(), attributes, histograms, strict=True):
            if attribute.categorical:
                found.texts.update(_texts(column, attribute))
            else:
                found.add(_units(column, attribute))
        n_rows += batch.height
        progress.advance(batch.height)
    return n_rows, histograms


def _units(column: pl.Series, attribute: Attribute) -> Units:
    """The numbers of a column that are in the domain, in grains."""
    return ladder_of(attribute).units(numbers_of(column, attribute)[_inside(column, attribute)])


def _inside(column: pl.Series, attribute: Attribute) -> NDArray[np.bool_]:
    bounds = replace(attribute, domain="public", at_most=0)
    return np.asarray(encode_column(column, bounds) == bounds.bin_codes[0])


def _texts(column: pl.Series, attribute: Attribute) -> dict[str, int]:
    """How often each text occurs that could be a category."""
    texts, places = _categories(column, attribute)
    counts: Counter[str] = Counter()
    for text, count in zip(texts, np.bincount(places, minlength=len(texts) + 1).tolist(), strict=False):
        if count and text is not None:
            counts[text] += count
    return counts


def _categories(column: pl.Series, attribute: Attribute) -> tuple[list[str | None], NDArray[np.int64]]:
    """Texts, None for those that cannot be a category, and which of them each row has: after the last for a null."""
    if column.dtype == pl.Null or opaque(column.dtype):
        return [], np.zeros(len(column), dtype=np.int64)
    values, places = distinct(column)
    known = {"", attribute.missing, *map(str, attribute.special)}
    texts = [readable_text(value) for value in values]
    return [None if text in known or len(text or "") > MAX_TEXT else text for text in texts], places
