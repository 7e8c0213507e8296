"""What the rows show of each column, and which columns determine others: exact, hence PRIVATE; all a draft knows."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.custodian.check import tally_texts, texts_and_places
from sklar.errors import DataError
from sklar.kernel.cells import Doubles
from sklar.machine.progress import Progress, watch
from sklar.machine.wording import stated
from sklar.public.arrow import ColumnType
from sklar.public.attribute import Attribute, Words
from sklar.public.axis import AXES, NumberFormat, number_format
from sklar.public.description import toml_value
from sklar.public.outputs import parse_output
from sklar.public.settings import PLAIN, Reading
from sklar.rows.encode import is_nothing
from sklar.rows.source import Source

WORDS = stated("sklar.custodian.draft", "words.toml")
MISSING_TEXTS = frozenset(WORDS["codes"]["missing"])
# Texts are counted one by one up to this many distinct ones; then only their ranges are kept. Of so many in a column of
# numbers each may be no number: they may be codes for "not applicable".
MOST_TEXTS, MOST_ODD = 20_000, 6
# Ties are searched for in the first rows, among columns with few distinct texts.
TIED_ROWS, TIED_TEXTS = 100_000, 200

# Days without any sign between their parts.
COMPACT_DAY = "date %Y%m%d"
_MOST_DIGITS = 15
_NUMBERS = ("integer", "real")
# How people write days, beside 1912-04-14, and moments of them.
_DAYS = WORDS["patterns"]["days"]
_FORMATS = [f"date {day}" for day in _DAYS] + [f"datetime {day} {at}" for day in _DAYS for at in ("%H:%M", "%H:%M:%S")]
_DIGITS = {"%Y": r"\d{4}", "%M": r"\d{2}", "%S": r"\d{2}", "%b": "[A-Za-z]{3}"}
_PATTERNS = {
    form: re.sub("%[a-zA-Z]", lambda part: _DIGITS.get(part[0], r"\d{1,2}"), form.partition(" ")[2].replace(".", r"\."))
    for form in _FORMATS
} | WORDS["patterns"]["plain"]
# Signs around numbers, of currencies and percent, and the signs of decimals and of groups that go together.
_SIGN = "(?:US|A|C|R)?[$]|[\u20ac\u00a3\u00a5\u20b9%]|USD|EUR|GBP|CHF|JPY|CAD|AUD|INR|CNY|SEK|NOK|DKK|PLN|kr|Rs"
_ENDS = (re.compile(rf"^\(?[+-]?((?:{_SIGN})\s?)"), re.compile(rf"(\s?(?:{_SIGN}))\)?$"))
_STYLES = {f"real {point}{group}": NumberFormat("", "", group, point) for point, group in (".,", ",.", ", ", ".'")}
_WIDE, _WIDER, _MOST_PLACES = 10**9, 10**12, (6, 3)
# Customary codes: numbers and days that mean something other than a value.
CUSTOMARY = {*map(str, WORDS["codes"]["numbers"]), *WORDS["codes"]["days"]}
# This share of the rows may break what is still proposed as a rule: real tables hold mistakes.
_BROKEN = 0.001
_READ_AS = (*_NUMBERS, *_PATTERNS, *_STYLES)
# A combination that chance alone would have given this many rows, and that hardly any row has, may be impossible.
_EXPECTED, _HARDLY = 100.0, 0.005
# A value that determines another one must occur this often on average, or every table would have such columns.
_ROWS_EACH = 10.0
_MOST_COLUMNS = _MOST_LEVELS = 60
RULE = "# Rule? "
_UNTYPED = ColumnType(nullable=True, family="")


@dataclass(slots=True, kw_only=True, repr=False)
class AxisRange:
    """How a column reads as points on an axis: their range, that without customary codes, and texts that are none."""

    low: float = math.inf
    high: float = -math.inf
    least: float = math.inf
    most: float = -math.inf
    odd: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True, repr=False)
class ColumnSummary:
    """What the rows show of one column: PRIVATE. It is filled batch by batch, and not changed afterwards.

    `counts` are the distinct texts that are not missing, with how many rows have each; `many` says that more of them
    occur than were kept, and `counted` how many rows had a value until then. `axes` are the kinds as which (nearly)
    all texts read: "integer", or "date %d.%m.%Y" with its format. `declared` are the categories of the column's type.
    `codes` are places in `coded` of the first rows, -1 for a missing value; none where there are many distinct texts.
    """

    name: str
    type: ColumnType
    reading: Reading = PLAIN
    rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    many: bool = False
    counted: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    axes: dict[str, AxisRange] = field(default_factory=lambda: {kind: AxisRange() for kind in _READ_AS})
    declared: dict[str, None] = field(default_factory=dict)
    objects: set[str] = field(default_factory=set)
    coded: dict[str, int] = field(default_factory=dict)
    codes: list[NDArray[np.int32]] = field(default_factory=list)

    def point(self, text: str, kind: str) -> float | None:
        """The point that a text is as a value of this kind, where people write such values so; None otherwise."""
        pattern = _PATTERNS.get(kind)
        if pattern is not None and re.fullmatch(pattern, text, re.ASCII) is None:
            return None
        plain, _, form = kind.partition(" ")
        point = AXES[plain].parse(self.plain(text, kind), None if plain in _NUMBERS else form or None)
        odd = point is None or not math.isfinite(point) or (plain == "integer" and isinstance(point, float))
        return None if odd else point

    def plain(self, text: str, kind: str) -> str:
        """A text with its number as Python writes it, where the kind is one of numbers."""
        if kind in _STYLES:
            return _STYLES[kind].plain(text, _SIGN) or ""
        written = kind.partition(" ")[2] if kind.startswith(("integer ", "real ")) else ""
        if written:
            return number_format(written).plain(text) or ""
        return self.reading.plain(text) if kind in _NUMBERS else text

    def customary(self, text: str, kind: str) -> bool:
        """Whether a text is a customary code among values of this kind: -999, 9999,0, 9999-12-31."""
        return re.sub(r"\.0+$", "", self.plain(text, kind)) in CUSTOMARY

    def name_formats(self) -> None:
        """Name the axis of numbers with a sign after an example of how most are written; drop it where none has one."""
        ends = [Counter(found[1] if (found := end.search(text)) else "" for text in self.counts) for end in _ENDS]
        usual = [next((sign for sign, _ in each.most_common(1)), "") for each in ends]
        signs = {sign.strip() for each in ends for sign in each} - {""}
        brackets = any(text.startswith("(") for text in self.counts)
        named = list[tuple[tuple[int, bool, bool], str, AxisRange]]()
        for kind, form in _STYLES.items():
            axis = self.axes.pop(kind, None)
            if axis is None or len(signs) > 1 or not (any(usual) if signs else brackets):
                continue
            last = [re.search(rf"{re.escape(form.point)}([0-9]+)\D*$", text) for text in self.counts]
            places = max((len(found[1]) for found in last if found), default=0)
            grouped = any(re.search(f"[0-9]{re.escape(form.group)}[0-9]", text) for text in self.counts)
            digits = f"1{form.group}234" if grouped else "12"
            example = (digits + (form.point + "50".ljust(places, "0")[:places] if places else "")).join(usual)
            largest = max(-axis.low, axis.high)
            if largest < _WIDER and places <= _MOST_PLACES[largest >= _WIDE]:
                kind = f"{'real' if places else 'integer'} {f'({example})' if brackets else example}"
                named.append(((len(axis.odd), places == 3, form.point != self.reading.decimal), kind, axis))
        self.axes |= {kind: axis for _, kind, axis in sorted(named, key=lambda each: each[0])[:1]}

    def points(self, attribute: Attribute) -> tuple[Doubles, Doubles]:
        """The values on the axis of an attribute's kind, and how often each occurs: without its special values."""
        kinds = (each for each in self.axes if each.split()[0] == attribute.kind)
        axis = next(kinds, "integer" if attribute.kind == "year" and "integer" in self.axes else None)
        read = [] if axis is None else [(self.point(text, axis), times) for text, times in self.counts.items()]
        kept = [each for each in read if each[0] is not None and each[0] not in attribute.special_numbers]
        points = np.array(kept, dtype=np.float64).reshape(-1, 2)
        return points[:, 0], points[:, 1]

    @property
    def entry(self) -> Attribute:
        """What a schema says of any column of this name: its missing text and its title."""
        # The text that stands for a missing value most often.
        missing = max(self.missing, key=lambda text: self.missing[text]) if self.missing else None
        words = Words(title=self.type.title or None)
        return Attribute(name=self.name, kind="categorical", missing=missing, reviewed=False, words=words)

    @property
    def rows_each(self) -> str:
        """How many rows the values of a column of ids have: what `rows_per_person` would cut, if they are people."""
        times = sorted(self.counts.values())
        often = ((share, times[int(share * (len(times) - 1))]) for share in (0.5, 0.9, 0.99))
        shares = ", ".join(f"{share:.0%} of the values have at most {most:,}" for share, most in often)
        return f"{sum(times) / len(times):.1f} rows with one value on average, {shares}, the most is {times[-1]:,}"

    @property
    def distinct_share(self) -> float:
        """How many distinct texts there are per row that has one; 1 when all differ."""
        return len(self.counts) / max(self.counted, 1)

    def values(self, texts: Iterable[str]) -> tuple[int, ...] | tuple[str, ...]:
        """Texts as values of the column's type."""
        return tuple(map(int, texts)) if self.type.whole else tuple(texts)

    @property
    def output(self) -> str | None:
        """The type of the column in the words of a schema, where it has one; of objects, the one they share."""
        if self.type is not _UNTYPED:
            return self.type.output
        described = [parse_output(word) for word in self.objects]
        decimals = [each for each in described if each is not None and each.name == "decimal"]
        if decimals and len(decimals) == len(described):
            scale = max(each.scale for each in decimals)
            whole = max(each.precision - each.scale for each in decimals)
            return f"decimal({whole + scale}, {scale})"
        return next(iter(self.objects)) if len(self.objects) == 1 and described[0] is not None else None

    def add(self, column: pl.Series) -> None:
        """Add a batch."""
        if column.dtype == pl.Object:
            self.objects |= {_word_of(value) for value in column if not is_nothing(value)}
        if isinstance(column.dtype, pl.Enum):
            # Categories belong to the type of the column: their order is kept, and those that no row has.
            self.declared |= dict.fromkeys(text for text in column.dtype.categories if text not in MISSING_TEXTS)
        texts, places = texts_and_places(column)
        for text, number in tally_texts(texts, places).items():
            if text is None or text in MISSING_TEXTS:
                self.missing[text or ""] += number
                continue
            if self.type.kind == "categorical":
                self.declared.setdefault(text)
            known = text in self.counts
            if known or not self.many:
                self.counts[text] += number
                self.counted += number
                self.many = len(self.counts) >= MOST_TEXTS
            if not known or any(text in axis.odd for axis in self.axes.values()):
                self._place(text, number)
        if self.rows < TIED_ROWS and (self.codes or not self.rows):
            lookup = np.full(len(texts) + 1, -1, dtype=np.int32)
            for place, text in enumerate(texts):
                if text is not None and text not in MISSING_TEXTS and len(self.coded) <= TIED_TEXTS:
                    lookup[place] = self.coded.setdefault(text, len(self.coded))
            few = len(self.coded) <= TIED_TEXTS
            self.codes = [*self.codes, lookup[places[: TIED_ROWS - self.rows]]] if few else []
        self.rows += len(column)

    def _place(self, text: str, times: int) -> None:
        """Read a text on every axis that the column may still have."""
        digits = self.reading.plain(text).lstrip("+-")
        # A leading zero makes a code (a ZIP code), and so does great length: no quantity.
        if (digits[:1] == "0" and digits[1:2].isdigit()) or (digits.isdigit() and len(digits) > _MOST_DIGITS):
            for kind in _NUMBERS:
                self.axes.pop(kind, None)
        for kind, axis in tuple(self.axes.items()):
            point = self.point(text, kind)
            if point is None:
                axis.odd[text] = axis.odd.get(text, 0) + times
                if len(axis.odd) > MOST_ODD:
                    del self.axes[kind]
            else:
                axis.low, axis.high = min(axis.low, point), max(axis.high, point)
                if not self.customary(text, kind):
                    axis.least, axis.most = min(axis.least, point), max(axis.most, point)


def summarize(source: Source, reading: Reading, progress: Progress) -> tuple[ColumnSummary, ...]:
    """Read all rows once, and keep what a draft needs. `reading` says how the table's text is written."""
    names = source.find_columns() if source.find_columns else source.columns
    types = source.types or {}
    columns = [ColumnSummary(name=name, type=types.get(name, _UNTYPED), reading=reading) for name in names]
    progress.stage("read", unit="rows")
    for batch in watch(source.batches(names), progress):
        for series, column in zip(batch.iter_columns(), columns, strict=True):
            column.add(series)
    if not any(column.rows for column in columns):
        raise DataError(f"{source.name} has no rows to draft a schema from. Write the schema by hand.")
    for column in columns:
        column.axes = {kind: axis for kind, axis in column.axes.items() if axis.low <= axis.high}
        column.name_formats()
    return tuple(columns)


def _word_of(value: object) -> str:
    """The type of one Python object, in the words of a schema; a text that is no such word where there is none."""
    if isinstance(value, Decimal) and value.is_finite():
        _, digits, exponent = value.as_tuple()
        scale = max(-int(exponent), 0)
        return f"decimal({max(len(digits) + int(exponent), 0) + scale or 1}, {scale})"
    words = {str: "string", dt.date: "date32", dt.datetime: "timestamp[us]", float: "float64"}
    return words.get(type(value), "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRule:
    """A tie between two columns, which one "determines" or of which one "excludes" values: perhaps a public rule."""

    first: str
    how: str
    second: str

    @property
    def line(self) -> str:
        """Its line in the file of a draft."""
        return f"{RULE}{toml_value(self.first)} {self.how} {toml_value(self.second)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Tie(OpenRule):
    """A tie with the `pairs` of values that go with, or exclude, each other, and the rows that break it: PRIVATE."""

    pairs: tuple[tuple[str, str], ...]
    broken: int


def find_ties(columns: Iterable[ColumnSummary]) -> tuple[Tie, ...]:
    """The ties among these columns."""
    coded = [(column, np.concatenate(column.codes)) for column in columns if column.codes and len(column.coded) > 1]
    pairs = combinations(coded[:_MOST_COLUMNS], 2)
    ties = [tie for one, two in pairs if (tie := _tie(*one, *two)) is not None]
    # Each column is determined once; determined columns are left out of exclusions.
    led = {tie.second: tie for tie in reversed(ties) if tie.how == "determines"}
    return tuple(tie for tie in ties if tie is led.get(tie.second) or not ({tie.first, tie.second} & led.keys()))


def _tie(one: ColumnSummary, codes: NDArray[np.int32], two: ColumnSummary, partners: NDArray[np.int32]) -> Tie | None:
    both, shape = (codes >= 0) & (partners >= 0), (len(one.coded), len(two.coded))
    places = codes[both].astype(np.int64) * shape[1] + partners[both]
    table = np.bincount(places, minlength=shape[0] * shape[1]).reshape(shape)
    # The column with more values, or the first of two with as many, is the one that determines.
    total = int(table.sum())
    for first, second, counts in sorted([(one, two, table), (two, one, table.T)], key=lambda pair: -len(pair[2])):
        broken, used = total - int(counts.max(axis=1).sum()), np.asarray(counts.any(axis=1))
        often = total >= _ROWS_EACH * np.count_nonzero(used)
        # A second column that is nearly constant needs no rule.
        if often and broken <= _BROKEN * total and counts.sum(axis=0).max() < 0.98 * total:
            values, results = list(first.coded), list(second.coded)
            pairs = tuple((values[k], results[j]) for k, j in enumerate(counts.argmax(axis=1)) if used[k])
            return Tie(how="determines", first=first.name, second=second.name, pairs=pairs, broken=broken)
    if max(table.shape) > _MOST_LEVELS or not total:
        return None
    expected: NDArray[Any] = np.outer(table.sum(axis=1), table.sum(axis=0)) / total
    empty = (expected >= _EXPECTED) & (table <= _HARDLY * expected)
    if not empty.any():
        return None
    values, results = list(one.coded), list(two.coded)
    pairs = tuple((values[k], results[j]) for k, j in zip(*np.nonzero(empty), strict=True))
    return Tie(how="excludes", first=one.name, second=two.name, pairs=pairs, broken=int(table[empty].sum()))
