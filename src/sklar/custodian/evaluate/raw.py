"""The raw values of a table, batch by batch and in bounded memory: numbers on their axes, categories as written.

PRIVATE: nothing here has noise. A column's distribution is exact while it has few distinct numbers, and in fine cells
after: the lowest bits of doubles are dropped, one more whenever more cells are occupied than the limit. So the cells
depend on the numbers alone and not on their order. Of more categories than the limit those are kept whose hash begins
with zeros, one more bit each time: the same ones in every table. A value that many rows have stays exact in both cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.custodian.check import texts_and_places
from sklar.public.schema import Attribute, Schema
from sklar.rows.encode import coder, plainly_written, typed_numbers

Floats: TypeAlias = NDArray[np.float64]

MAX_CELLS = 1 << 16
# A value with one in this many of the numbers stays exact.
_HEAVY = 1 << 10
_SIGN = np.int64(2**63 - 1)
# All columns together hold at most this many cells, and the sample this many numbers: about 100 MB and 32 MB.
_MAX_IN_ALL = 1 << 22
_FEWEST = 1 << 12
SAMPLED_ROWS = 1 << 14
MISSING = "(missing)"
# Categories are cut to this length, and shown to this one: free text must not fill the memory.
_LONGEST, _SHOWN = 200, 40
_SEED = 2020
# Texts among numbers, likewise.
MAX_TEXTS = 1_000
MORE_TEXTS = "(more texts)"

_MINUTE = 60e6
_CLOCKS = {"hour of the day": (24, ("datetime", "time")), "weekday": (7, ("datetime", "date"))}


def read_values(column: pl.Series, attribute: Attribute) -> tuple[Floats, int, Counter[str]]:
    """The numbers of one column of a batch, shape (rows,) with nan where a row has none, and what those rows have.

    That is how many have a null, an empty text or the missing text, and counts of whatever else is not a finite number.
    """
    typed, labels, places = typed_numbers(column, attribute), list[str | None](), np.arange(len(column))
    if typed is not None:
        points = typed.astype(np.float64)
        points[column.is_null().to_numpy()] = np.nan
        nothing = np.isnan(points)
    else:
        labels, places = texts_and_places(column)
        plain = plainly_written(pl.Series(labels, dtype=pl.String), attribute)
        points = plain.cast(pl.Float64).fill_null(np.nan).to_numpy().copy()
        nothing = np.zeros(points.size, dtype=bool)
        blanks = ("", "nan") if attribute.kind in ("integer", "real") else ("",)
        for place in np.flatnonzero(np.isnan(points)).tolist():
            text = labels[place]
            if text is None or text == attribute.missing or text.strip().lower() in blanks:
                nothing[place] = True
            elif (point := attribute.read(text)) is not None:
                points[place] = point
    times, sentinel = np.bincount(places, minlength=points.size), attribute.missing_number
    if sentinel is not None:
        nothing |= points == sentinel
    missing, texts = int(times[nothing].sum()), Counter[str]()
    for value, number in zip(attribute.special, attribute.special_numbers, strict=True):
        if number is not None:
            here = ~nothing & (points == number)
            texts[str(value)] += int(times[here].sum())
            nothing |= here
    for place in np.flatnonzero(~nothing & ~np.isfinite(points)).tolist():
        texts[(labels[place] or "") if labels else str(points[place])] += int(times[place])
    points[nothing | ~np.isfinite(points)] = np.nan
    return points[places], missing, +texts


def read_categories(column: pl.Series, attribute: Attribute) -> tuple[list[str], NDArray[np.int64]]:
    """The categories of one column of a batch as they are written, whether or not they are levels, and each row's."""
    texts, places = texts_and_places(column)
    gone = ("", attribute.missing)
    labels = [MISSING if text is None or text.strip() in gone else text.strip()[:_LONGEST] for text in texts]
    if attribute.boolean:
        # Truth values may be written otherwise in a release.
        names = dict(enumerate(attribute.levels[:2]))
        labels = [each if each == MISSING else names.get(coder(attribute)(each), each) for each in labels]
    return labels, places


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Categories:
    """Categories by a 53-bit hash of their text, their `key`: `frame` has key, text and counts, the commonest first.

    Of the rare ones, a share of 2^-bits is kept; the others are left out by their keys.
    """

    frame: pl.DataFrame
    size: int
    bits: int


class CategorySketch:
    """Collects the categories of a column batch by batch."""

    def __init__(self, limit: int = MAX_CELLS) -> None:
        self._limit, self._bits, self._size = limit, 0, 0
        self._frame = pl.DataFrame(schema={"key": pl.Float64, "text": pl.String, "counts": pl.Int64})

    def add(self, labels: Sequence[str], places: NDArray[np.int64]) -> Floats:
        """Add a batch's categories and return the key of each row."""
        texts = pl.Series("text", labels, dtype=pl.String)
        keys, counts = (texts.hash() // (1 << 11)).cast(pl.Float64), np.bincount(places, minlength=len(labels))
        self._size += places.size
        shown = texts.str.slice(0, _SHOWN)
        new = pl.DataFrame({"key": keys, "text": shown, "counts": counts}).filter(pl.col("counts") > 0)
        whole = pl.concat([self._frame, new]).group_by("key").agg(pl.col("text").first(), pl.col("counts").sum())
        while whole.filter(kept := self._kept()).height > self._limit:
            self._bits += 1
        self._frame = whole.filter(kept)
        return keys.to_numpy()[places]

    def _kept(self) -> pl.Expr:
        return is_sampled(self._bits) | (pl.col("counts") >= self._size / min(_HEAVY, max(self._limit // 4, 1)))

    def done(self) -> Categories:
        """The collected categories."""
        ranked = self._frame.sort("counts", "key", descending=[True, False])
        return Categories(frame=ranked, size=self._size, bits=self._bits)


def is_sampled(bits: int) -> pl.Expr:
    """Whether a rare category is kept where a share of 2^-bits of them is."""
    return pl.col("key") < 2.0 ** (53 - bits)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Distribution:
    """Values and occupied cells, ascending: their counts, least, largest and mean numbers. `bits` were dropped.

    `single` entries are one value. `widest` is the largest share of the numbers, `size` in all, in a cell with several
    values: a distribution function is known to this.
    """

    bits: int
    counts: NDArray[np.int64]
    low: Floats
    high: Floats
    center: Floats
    mean: float
    sd: float
    size: int
    single: NDArray[np.bool_]
    widest: float

    def share(self, value: float) -> float:
        """The share of the numbers that are exactly this: 0 where it is too rare to be kept apart in its cell."""
        place = int(np.searchsorted(self.low, value))
        kept = place < self.low.size and self.low[place] == self.high[place] == value
        return float(self.counts[place] / self.size) if kept else 0.0

    def percentiles(self, percents: Sequence[float]) -> list[float]:
        """The smallest values that at least these percents of the numbers do not exceed."""
        upto = np.cumsum(self.counts)
        places = np.searchsorted(upto, np.ceil(np.array(percents) / 100 * upto[-1] - 1e-9))
        return [float(value) for value in self.center[np.minimum(places, upto.size - 1)]]


class Sketch:
    """Collects the numbers of a column batch by batch."""

    def __init__(self, limit: int = MAX_CELLS) -> None:
        self._limit, self._bits = limit, 0
        # Merged cells: their counts, least, largest and mean numbers.
        self._parts: list[pl.DataFrame] = []
        self._n, self._mean, self._squares = 0, 0.0, 0.0

    def add(self, numbers: Floats) -> None:
        """Add finite numbers."""
        if numbers.size == 0:
            return
        mean = float(numbers.mean())
        apart, n = mean - self._mean, self._n + numbers.size
        self._squares += float(((numbers - mean) ** 2).sum()) + apart**2 * self._n * numbers.size / n
        self._mean += apart * numbers.size / n
        self._n = n
        # Minus zero is zero.
        values, counts = np.unique(numbers + 0.0, return_counts=True)
        self._parts.append(pl.DataFrame({"counts": counts, "low": values, "high": values, "center": values}))
        if sum(part.height for part in self._parts) > 2 * self._limit:
            self._merge()

    def _merge(self) -> pl.DataFrame:
        single = pl.col("low") == pl.col("high")
        items = _put_together(pl.concat(self._parts), 0, single)
        apart = single & (pl.col("counts") >= self._n / min(_HEAVY, max(self._limit // 4, 1)))
        if self._bits:
            items = _put_together(items, self._bits, apart)
        while items.height > self._limit:
            self._bits += 1
            items = _put_together(items, self._bits, apart)
        self._parts = [items]
        return items

    def done(self) -> Distribution | None:
        """The distribution of the numbers; None without any number."""
        if not self._parts:
            return None
        held: dict[str, Any] = {name: column.to_numpy() for name, column in self._merge().to_dict().items()}
        single = held["low"] == held["high"]
        held |= {"mean": self._mean, "sd": float(np.sqrt(self._squares / self._n)), "size": self._n}
        widest = float(held["counts"][~single].max(initial=0) / self._n)
        return Distribution(bits=self._bits, single=single, widest=widest, **held)


def cells(numbers: Floats, bits: int) -> NDArray[np.int64]:
    """The cells of numbers: whole numbers that ascend with them, with the lowest bits dropped."""
    held = (numbers + 0.0).view(np.int64)
    return np.asarray(np.where(held < 0, -(held & _SIGN), held) >> bits)


def _put_together(items: pl.DataFrame, bits: int, apart: pl.Expr) -> pl.DataFrame:
    """Put all that falls into one cell together, but each value that is `apart` with its equals alone; ascending."""
    low, high, counts = pl.col("low").min(), pl.col("high").max(), pl.col("counts")
    # From the least number on: the weighted mean of equal numbers must be that number.
    middle = low + ((pl.col("center") - low) * counts).sum() / counts.sum()
    cell = pl.Series("cell", cells(items["low"].to_numpy(), bits))
    groups = items.group_by(cell, pl.when(apart).then(pl.col("low")).alias("own"))
    kept = groups.agg(counts.sum(), low, high, middle.clip(low, high).alias("center"))
    return kept.select("counts", "low", "high", "center").sort("low", maintain_order=True)


def distance(real: Distribution, other: Distribution) -> float:
    """The largest difference of distribution functions (KS), off by both `widest` at most: cells lie at their ends."""
    bits, places = max(real.bits, other.bits), list[Floats]()
    for each in (real, other):
        last = ((cells(each.low, bits) + 1) << bits) - 1
        places.append(np.where(each.single, each.low, np.where(last < 0, -last | ~_SIGN, last).view(np.float64)))
    points, shares = np.union1d(*places), list[Floats]()
    for held, at in zip((real, other), places, strict=True):
        order = np.argsort(at, kind="stable")
        upto = np.concatenate([[0], np.cumsum(held.counts[order])]) / held.size
        shares.append(upto[np.searchsorted(at[order], points, side="right")])
    return float(np.abs(shares[0] - shares[1]).max())


class RawColumn:
    """One attribute's raw values. `clock` counts the numbers by hour of the day and by weekday, Monday first."""

    def __init__(self, attribute: Attribute, limit: int) -> None:
        self.attribute, self.missing = attribute, 0
        self.sketch, self.collected = Sketch(limit), CategorySketch(limit)
        self.texts = Counter[str]()
        self.clock = {name: np.zeros(size) for name, (size, kinds) in _CLOCKS.items() if attribute.kind in kinds}
        self.numbers: Distribution | None = None
        self.categories: Categories | None = None

    def add(self, column: pl.Series) -> Floats:
        """Add a batch, and return its numbers, or the keys of its categories."""
        if not self.attribute.binned:
            if self.attribute.prefix:
                codes = column.cast(pl.String)
                column = codes.replace({text: self.attribute.cut(text) for text in codes.drop_nulls().unique()})
            labels, places = read_categories(column, self.attribute)
            self.missing += int(np.isin(places, [at for at, text in enumerate(labels) if text == MISSING]).sum())
            return self.collected.add(labels, places)
        numbers, missing, texts = read_values(column, self.attribute)
        self.missing += missing
        for text, times in texts.items():
            self.texts[text if text in self.texts or len(self.texts) < MAX_TEXTS else MORE_TEXTS] += times
        here = numbers[~np.isnan(numbers)]
        self.sketch.add(here)
        day = 1.0 if self.attribute.kind == "date" else 24 * 60 * _MINUTE
        for name, counts in self.clock.items():
            # The first of January 1970 was a Thursday.
            hours = here // (60 * _MINUTE) % 24 if counts.size == 24 else (here // day + 3) % 7
            self.clock[name] = counts + np.bincount(hours.astype(np.int64), minlength=counts.size)
        return numbers


class RawTable:
    """A table's raw values, from batches with the columns of its schema.

    Once all is `done`, `rows` is a random sample, shape (columns, rows): numbers, nan where a row has none, and keys of
    categories. `left_out` are the columns of the table that the schema does not have.
    """

    def __init__(self, schema: Schema, *, max_rows: int = SAMPLED_ROWS) -> None:
        wide, self.n_rows = max(schema.n_attributes, 1), 0
        self.left_out: tuple[str, ...] = ()
        limit = int(np.clip(_MAX_IN_ALL // wide, _FEWEST, MAX_CELLS))
        self.columns = tuple(RawColumn(each, limit) for each in schema.attributes)
        self._sample = RowSample(wide, min(max_rows, _MAX_IN_ALL // wide), np.float64)

    def add(self, batch: pl.DataFrame) -> None:
        """Add a batch."""
        self.n_rows += batch.height
        self._sample.add(np.stack([column.add(batch.get_column(column.attribute.column)) for column in self.columns]))

    def done(self) -> RawTable:
        """The table, once all batches were added."""
        for column in self.columns:
            column.numbers, column.texts = column.sketch.done(), Counter(dict(column.texts.most_common()))
            column.categories = None if column.attribute.binned else column.collected.done()
        self.rows: Floats = self._sample.rows
        return self


class RowSample:
    """A uniform sample of rows, from one pass and with a fixed seed: those with the smallest random keys."""

    def __init__(self, columns: int, most: int, dtype: type) -> None:
        self.rows: NDArray[Any] = np.empty((columns, 0), dtype=dtype)
        self._keys, self._most, self._generator = np.empty(0), most, np.random.default_rng(_SEED)

    def add(self, rows: NDArray[Any]) -> None:
        """Add rows, shape (columns, rows)."""
        keys = self._generator.random(size=(rows.shape[1],))
        if self._keys.size == self._most:
            # Once the sample is full, few rows of a batch still get in.
            entering = keys < self._keys.max(initial=0.0)
            rows, keys = rows[:, entering], keys[entering]
        self.rows, self._keys = np.concatenate([self.rows, rows], axis=1), np.concatenate([self._keys, keys])
        if self._keys.size > self._most:
            chosen = np.sort(np.argpartition(self._keys, self._most - 1)[: self._most])
            self.rows, self._keys = self.rows[:, chosen], self._keys[chosen]
