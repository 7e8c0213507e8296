"""One look at the raw values of a table, batch by batch, in bounded memory. Private: nothing here has noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.custodian.evaluate.rounding import steps_of
from sklar.custodian.evaluate.sketch import MAX_CELLS, Distribution, Sketch
from sklar.custodian.evaluate.values import is_number, read_values
from sklar.public.schema import Attribute, Schema

# All columns together hold at most this many cells, and the sample this many numbers: about 100 MB and 32 MB.
_MAX_IN_ALL = 1 << 22
_FEWEST = 1 << 12
SAMPLED_ROWS = 1 << 16
_SEED = 2020

# A column of free text must not fill the memory.
MAX_TEXTS = 1_000
MORE_TEXTS = "(more texts)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Seen:
    """What one attribute's raw values are. `numbers` is None where there are none.

    `round` counts, for each of `steps_of(kind)`, the numbers other than 0 that are round in that way.
    """

    attribute: Attribute
    missing: int
    texts: Mapping[str, int]
    numbers: Distribution | None
    round: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Looked:
    """What a table's raw values are: every attribute, and the correlations of those on an axis, shape (k, k).

    Correlations are over the rows where both have a number; nan where one never varies. Ranks are those among all
    numbers of a column. `sampled` rows gave Spearman's correlations; all rows gave Pearson's.
    """

    n_rows: int
    columns: tuple[Seen, ...]
    numbers: tuple[int, ...]
    pearson: NDArray[np.float64]
    spearman: NDArray[np.float64]
    sampled: int


class Look:
    """Collects what `Looked` says, from batches whose columns are the schema's attributes in order."""

    def __init__(self, schema: Schema, *, max_rows: int = SAMPLED_ROWS) -> None:
        self._attributes = schema.attributes
        self._axes = tuple(index for index, each in enumerate(schema.attributes) if is_number(each))
        wide = max(len(self._axes), 1)
        limit = int(np.clip(_MAX_IN_ALL // wide, _FEWEST, MAX_CELLS))
        self._sketches = {index: Sketch(limit) for index in self._axes}
        self._round = {index: np.zeros(len(steps_of(self._attributes[index].kind)), np.int64) for index in self._axes}
        self._missing = [0] * schema.n_attributes
        self._texts = [Counter[str]() for _ in self._attributes]
        self._n_rows = 0
        self._products = _Products(len(self._axes))
        self._sample = _Sample(len(self._axes), min(max_rows, _MAX_IN_ALL // wide))

    def add(self, batch: pl.DataFrame) -> None:
        """Look at a batch."""
        self._n_rows += batch.height
        numbers = np.empty((len(self._axes), batch.height))
        for index, attribute in enumerate(self._attributes):
            values = read_values(batch.to_series(index), attribute)
            self._missing[index] += values.missing
            _add_texts(self._texts[index], values.texts)
            if index in self._sketches:
                numbers[self._axes.index(index)] = values.numbers
                here = values.numbers[~np.isnan(values.numbers)]
                self._sketches[index].add(here)
                here = here[here != 0]
                self._round[index] += [np.count_nonzero(step.holds(here)) for step in steps_of(attribute.kind)]
        if self._axes:
            self._products.add(numbers)
            self._sample.add(numbers)

    def done(self) -> Looked:
        """All that was seen."""
        held = {index: sketch.done() for index, sketch in self._sketches.items()}
        ranks = np.full_like(self._sample.rows, np.nan)
        for place, index in enumerate(self._axes):
            numbers = held[index]
            if numbers is not None:
                ranks[place] = numbers.ranks(self._sample.rows[place])
        ranked = _Products(len(self._axes))
        ranked.add(ranks)
        return Looked(
            n_rows=self._n_rows,
            columns=tuple(
                Seen(
                    attribute=attribute,
                    missing=self._missing[index],
                    texts=dict(self._texts[index].most_common()),
                    numbers=held.get(index),
                    round=tuple(self._round[index].tolist()) if index in held else (),
                )
                for index, attribute in enumerate(self._attributes)
            ),
            numbers=self._axes,
            pearson=self._products.correlations(),
            spearman=ranked.correlations(),
            sampled=self._sample.rows.shape[1],
        )


def _add_texts(tally: Counter[str], found: Counter[str]) -> None:
    for text, times in found.items():
        known = text in tally or len(tally) < MAX_TEXTS
        tally[text if known else MORE_TEXTS] += times


class _Products:
    """Sums of products of all pairs of columns over the rows where both have a number."""

    def __init__(self, columns: int) -> None:
        self._shift: NDArray[np.float64] | None = None
        self._scale = np.ones(columns)
        self._rows, self._sums, self._squares, self._both = (np.zeros((columns, columns)) for _ in range(4))

    def add(self, numbers: NDArray[np.float64]) -> None:
        """Add rows, shape (columns, rows), with nan where there is no number."""
        here = ~np.isnan(numbers)
        filled = np.where(here, numbers, 0.0)
        if self._shift is None:
            # Moments are 10^15 from their origin: without a shift, squares would lose all that varies.
            times = np.maximum(here.sum(axis=1), 1)
            self._shift = filled.sum(axis=1) / times
            spread = np.sqrt((np.where(here, numbers - self._shift[:, None], 0.0) ** 2).sum(axis=1) / times)
            self._scale = np.where(spread > 0, spread, 1.0)
        filled = np.where(here, (filled - self._shift[:, None]) / self._scale[:, None], 0.0)
        present = here.astype(np.float64)
        self._rows += present @ present.T
        self._sums += filled @ present.T
        self._squares += filled**2 @ present.T
        self._both += filled @ filled.T

    def correlations(self) -> NDArray[np.float64]:
        """Correlations, nan where a column does not vary over the rows of a pair."""
        rows = np.where(self._rows > 0, self._rows, np.nan)
        mean = self._sums / rows
        variance = self._squares / rows - mean**2
        # What rounding leaves of a constant is no variance.
        variance = np.where(variance > 1e-12 * (1 + mean**2), variance, np.nan)
        both = self._both / rows - mean * mean.T
        return np.asarray(np.clip(both / np.sqrt(variance * variance.T), -1.0, 1.0))


class _Sample:
    """A uniform sample of rows, from one pass."""

    def __init__(self, columns: int, wanted: int) -> None:
        self.rows: NDArray[np.float64] = np.empty((columns, 0))
        self._keys: NDArray[np.float64] = np.empty(0)
        self._wanted = wanted
        self._generator = np.random.default_rng(_SEED)

    def add(self, numbers: NDArray[np.float64]) -> None:
        """Add rows, shape (columns, rows)."""
        keys: NDArray[np.float64] = self._generator.random(size=(numbers.shape[1],))
        if self._keys.size == self._wanted:
            # Once the sample is full, few rows of a batch still get in.
            entering = keys < self._keys.max()
            numbers, keys = numbers[:, entering], keys[entering]
        self.rows = np.concatenate([self.rows, numbers], axis=1)
        self._keys = np.concatenate([self._keys, keys])
        if self._keys.size > self._wanted:
            # The smallest of independent random keys are a uniform sample, however long the table.
            chosen = np.argpartition(self._keys, self._wanted - 1)[: self._wanted]
            self.rows, self._keys = self.rows[:, chosen], self._keys[chosen]
