"""What the rows show of each column: exact, hence private, and all that a draft knows of them."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.custodian.check import texts_and_places
from sklar.errors import DataError
from sklar.machine.progress import SILENT, Progress
from sklar.public.axis import parse_edge
from sklar.public.importers.arrow import ColumnType
from sklar.public.reading import PLAIN, Reading
from sklar.public.types import parse_output
from sklar.rows.source import Source
from sklar.rows.values import is_nothing

MISSING_TEXTS = ("", "(missing)", "?", "NA", "N/A", "n/a", "null", "NULL", "None", "nan", "NaN", ".", "-")
# Texts are counted one by one up to this many different ones; then only their ranges are kept.
MOST_TEXTS = 20_000
# How many different texts may not read as numbers in a column of numbers: they may be codes for "not applicable".
MOST_ODD = 6
# Which columns decide others is looked for in the first rows, among columns with few different texts.
TIED_ROWS = 100_000
TIED_TEXTS = 200

# Days without any sign between their parts.
COMPACT_DAY = "date %Y%m%d"
_MOST_DIGITS = 15
# How people write days, beside 1912-04-14, and moments of them: a pattern, and the formats that it may be.
_DAYS = (
    (r"\d{1,2}\.\d{1,2}\.\d{4}", ("%d.%m.%Y",)),
    (r"\d{1,2}/\d{1,2}/\d{4}", ("%d/%m/%Y", "%m/%d/%Y")),
    (r"\d{1,2}-\d{1,2}-\d{4}", ("%d-%m-%Y", "%m-%d-%Y")),
    (r"\d{4}/\d{1,2}/\d{1,2}", ("%Y/%m/%d",)),
    (r"\d{4}\.\d{1,2}\.\d{1,2}", ("%Y.%m.%d",)),
    (r"\d{1,2}-[A-Za-z]{3}-\d{4}", ("%d-%b-%Y",)),
    (r"\d{1,2} [A-Za-z]{3} \d{4}", ("%d %b %Y",)),
)
_CLOCKS = ((r" \d{1,2}:\d{2}", " %H:%M"), (r" \d{1,2}:\d{2}:\d{2}", " %H:%M:%S"))
_PATTERNS = {f"date {form}": pattern for pattern, forms in _DAYS for form in forms}
_PATTERNS |= {
    f"datetime {form}{clock}": pattern + time for pattern, forms in _DAYS for form in forms for time, clock in _CLOCKS
}
_PATTERNS |= {
    COMPACT_DAY: r"(19|20)\d{6}",
    "date": r"\d{4}-.{5}",
    "datetime": r"\d{4}-.{4,}",
    "time": r"\d{1,2}:\d{2}.*",
    "yearmonth": r"\d{4}-\d{2}",
    "duration": r"[+-]?(\d+:\d{2}.*|P.*|-?\d+ days?.*)",
}
_NUMBERS = ("integer", "real")
_KINDS = (*_NUMBERS, *_PATTERNS)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Axis:
    """How a column reads as points on an axis: the least and the largest, and the texts that are no point."""

    low: float
    high: float
    odd: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Seen:
    """What the rows show of one column: private.

    `counts` are the different texts that are not missing, with how many rows have each; `many` says that there are more
    of them than were kept, and `counted` how many rows had a value until then. `axes` are the kinds as which (nearly)
    all texts read: "integer", or "date %d.%m.%Y" with its format. `declared` are the categories of the column's type.
    """

    name: str
    rows: int
    type: ColumnType | None
    output: str | None
    counts: Mapping[str, int]
    many: bool
    counted: int
    missing: Mapping[str, int]
    axes: Mapping[str, Axis]
    declared: tuple[str, ...]
    reading: Reading = PLAIN

    def point(self, text: str, kind: str) -> float | None:
        """The point that one of the texts is as a value of this kind; None where it is none."""
        return point_of(self.plain(text, kind), kind)

    def plain(self, text: str, kind: str) -> str:
        """A text with its number as Python writes it, where the kind is one of numbers."""
        return self.reading.plain(text) if kind in _NUMBERS else text

    @property
    def n_missing(self) -> int:
        """How many rows have no value."""
        return sum(self.missing.values())

    @property
    def distinct_share(self) -> float:
        """How many different texts there are per row that has one; 1 when all differ."""
        return len(self.counts) / max(self.counted, 1)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Look:
    """What the rows show of a table: its columns, and the first rows of those with few different texts, as codes."""

    name: str
    rows: int
    columns: tuple[Seen, ...]
    coded: Mapping[str, tuple[tuple[str, ...], NDArray[np.int32]]]

    def column(self, name: str) -> Seen | None:
        """The column of that name, where there is one."""
        return next((seen for seen in self.columns if seen.name == name), None)


def look(source: Source, reading: Reading = PLAIN, *, progress: Progress = SILENT) -> Look:
    """Read all rows once, and keep what a draft needs. `reading` says how the table's text is written."""
    columns = source.find_columns() if source.find_columns else source.columns
    types = source.types or {}
    sketches = {column: _Sketch(type=types.get(column), reading=reading) for column in columns}
    progress.stage("read", unit="rows")
    rows = 0
    for batch in source.batches(columns):
        for series, sketch in zip(batch.iter_columns(), sketches.values(), strict=True):
            sketch.add(series, rows)
        rows += batch.height
        progress.advance(batch.height)
    if rows == 0:
        raise DataError(f"{source.name} has no rows to draft a schema from. Write the schema by hand.")
    coded = {
        name: (tuple(sketch.places), np.concatenate(sketch.codes)) for name, sketch in sketches.items() if sketch.codes
    }
    return Look(
        name=source.name,
        rows=rows,
        columns=tuple(each.seen(name, rows) for name, each in sketches.items()),
        coded=coded,
    )


@dataclass(slots=True)
class _Reading:
    """One kind that a column may be of, while its texts are read."""

    low: float = math.inf
    high: float = -math.inf
    odd: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Sketch:
    """What is known of one column while it is read."""

    type: ColumnType | None = None
    reading: Reading = PLAIN
    declared: dict[str, None] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    counted: int = 0
    many: bool = False
    readings: dict[str, _Reading] = field(default_factory=lambda: {kind: _Reading() for kind in _KINDS})
    missing: Counter[str] = field(default_factory=Counter)
    objects: set[str] = field(default_factory=set)
    places: dict[str, int] = field(default_factory=dict)
    codes: list[NDArray[np.int32]] = field(default_factory=list)

    def add(self, column: pl.Series, rows_before: int) -> None:
        kind = column.dtype
        if kind == pl.Object:
            self.objects |= {_word_of(value) for value in column if not is_nothing(value)}
        if isinstance(kind, pl.Enum):
            # Categories belong to the type of the column: their order is kept, and those that no row has.
            self.declared |= dict.fromkeys(text for text in kind.categories if text not in MISSING_TEXTS)
        texts, places = texts_and_places(column)
        found = Counter[str | None]()
        for text, number in zip(texts, np.bincount(places, minlength=len(texts)).tolist(), strict=True):
            found[text] += number
        for text, number in (+found).items():
            if text is None or text in MISSING_TEXTS:
                self.missing[text or ""] += number
                continue
            if self.type is not None and self.type.kind == "categorical":
                self.declared.setdefault(text)
            known = text in self.counts
            if known or not self.many:
                self.counts[text] += number
                self.counted += number
                self.many = len(self.counts) >= MOST_TEXTS
            if not known or any(text in reading.odd for reading in self.readings.values()):
                self._weigh(text, number)
        self._code(texts, places, rows_before)

    def _code(self, texts: list[str | None], places: NDArray[np.int64], rows_before: int) -> None:
        """Keep the codes of the first rows, while there are few different texts; -1 is a missing value."""
        if rows_before >= TIED_ROWS or (rows_before and not self.codes):
            return
        lookup = np.full(len(texts) + 1, -1, dtype=np.int32)
        for place, text in enumerate(texts):
            if text is not None and text not in MISSING_TEXTS and len(self.places) <= TIED_TEXTS:
                lookup[place] = self.places.setdefault(text, len(self.places))
            if len(self.places) > TIED_TEXTS:
                self.codes.clear()
                return
        self.codes.append(lookup[places[: TIED_ROWS - rows_before]])

    def _weigh(self, text: str, times: int) -> None:
        plain = self.reading.plain(text)
        if _is_code(plain):
            for kind in _NUMBERS:
                self.readings.pop(kind, None)
        for kind, reading in tuple(self.readings.items()):
            point = point_of(plain if kind in _NUMBERS else text, kind)
            if point is None:
                reading.odd[text] = reading.odd.get(text, 0) + times
                if len(reading.odd) > MOST_ODD:
                    del self.readings[kind]
            else:
                reading.low, reading.high = min(reading.low, point), max(reading.high, point)

    def seen(self, name: str, rows: int) -> Seen:
        """What was seen, for good."""
        axes = {
            kind: Axis(low=reading.low, high=reading.high, odd=reading.odd)
            for kind, reading in self.readings.items()
            if reading.low <= reading.high
        }
        return Seen(
            name=name,
            rows=rows,
            type=self.type,
            output=self._output,
            counts=self.counts,
            many=self.many,
            counted=self.counted,
            missing=self.missing,
            axes=axes,
            declared=tuple(self.declared),
            reading=self.reading,
        )

    @property
    def _output(self) -> str | None:
        """The type of the column in the words of a schema, where it has one; of objects, the one they share."""
        if self.type is not None:
            return self.type.output
        described = [parse_output(word) for word in self.objects]
        decimals = [each for each in described if each is not None and each.name == "decimal"]
        if decimals and len(decimals) == len(described):
            scale = max(each.scale for each in decimals)
            whole = max(each.precision - each.scale for each in decimals)
            return f"decimal({whole + scale}, {scale})"
        return next(iter(self.objects)) if len(self.objects) == 1 and described[0] is not None else None


def point_of(text: str, kind: str) -> float | None:
    """The point that a text is as a value of this kind, where people write such values so; None otherwise.

    >>> point_of("14.04.1912", "date %d.%m.%Y"), point_of("7.5", "integer"), point_of("1990", "date")
    (-21081, None, None)
    """
    pattern = _PATTERNS.get(kind)
    if pattern is not None and re.fullmatch(pattern, text, re.ASCII) is None:
        return None
    plain, _, form = kind.partition(" ")
    point = parse_edge(text, plain, form or None)
    if point is None or not math.isfinite(point) or (plain == "integer" and isinstance(point, float)):
        return None
    return point


def _is_code(text: str) -> bool:
    """Whether digits are no quantity: a leading zero makes a code (a ZIP code), and so does great length."""
    digits = text.lstrip("+-")
    return (digits[:1] == "0" and digits[1:2].isdigit()) or (digits.isdigit() and len(digits) > _MOST_DIGITS)


def _word_of(value: object) -> str:
    """The type of one Python object, in the words of a schema; a text that is no such word where there is none."""
    if isinstance(value, Decimal) and value.is_finite():
        _, digits, exponent = value.as_tuple()
        scale = max(-int(exponent), 0)
        return f"decimal({max(len(digits) + int(exponent), 0) + scale or 1}, {scale})"
    words = {str: "string", dt.date: "date32", dt.datetime: "timestamp[us]", float: "float64"}
    return words.get(type(value), "none")
