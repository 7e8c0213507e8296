"""A schema proposed from the rows: it tells what it finds in them, so it is private, for the custodian's eyes."""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction

import polars as pl

from sklar.custodian.check import texts_of
from sklar.errors import DataError
from sklar.machine.progress import SILENT, Progress
from sklar.public.axis import days, microseconds, parse_edge
from sklar.public.importers.arrow import ColumnType
from sklar.public.schema import Attribute, AttributeKind, Schema
from sklar.public.types import misfit, parse_output, plain_output
from sklar.rows.encode import is_nothing
from sklar.rows.read import open_source

_MISSING_TEXTS = ("", "(missing)", "?", "NA", "N/A", "n/a", "null", "NULL", "None", "nan", "NaN", ".", "-")
_BOOLEAN_TEXTS = {"true", "false", "yes", "no", "t", "f", "y", "n"}
_QUANTITIES: tuple[AttributeKind, ...] = ("integer", "date", "datetime", "real")
_MOST_CATEGORIES = 200
_MOST_UNIT_BINS = 50
_BINS = 20
_MOST_DIGITS = 15
_TOO_MANY = f"it holds more than {_MOST_CATEGORIES} different texts; list public values and other = true to keep it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A proposed schema whose entries were read from the rows, and the columns that it leaves out, with the reason."""

    schema: Schema
    left_out: Mapping[str, str]

    def to_toml(self) -> str:
        """The draft as a file to edit."""
        lines = [
            "# A draft, read from the rows. A domain read from the rows tells who is in them: compare each entry with",
            "# public knowledge (a code book, a legal limit), correct it, and remove its line reviewed = false.",
            "# Or let a release find it within its budget: replace the values of a category, the edges of a number, by",
            '# domain = "private" (a number needs low, high and bins beside it: wide bounds from public knowledge).',
            # A comment must stay one, whatever the column is called.
            *(
                f"# Left out: {name if name.isprintable() else ascii(name)}: {reason}"
                for name, reason in self.left_out.items()
            ),
        ]
        return "\n".join(lines) + "\n\n" + self.schema.to_toml()


@dataclass(slots=True)
class _Sketch:
    """What a draft needs to know of one column."""

    type: ColumnType | None = None
    listed: dict[str, None] = field(default_factory=dict)
    distinct: set[str] = field(default_factory=set)
    many: bool = False
    kinds: set[str] = field(default_factory=lambda: {"boolean", "integer", "real", "date", "datetime"})
    low: dict[str, float] = field(default_factory=dict)
    high: dict[str, float] = field(default_factory=dict)
    missing: Counter[str] = field(default_factory=Counter)
    objects: set[str] = field(default_factory=set)

    @property
    def output(self) -> str | None:
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

    def add(self, column: pl.Series) -> None:
        kind = column.dtype
        if kind == pl.Object:
            self.objects |= {_word_of(value) for value in column if not is_nothing(value)}
        if isinstance(kind, pl.Enum):
            # Categories belong to the type of the column: their order is kept, and those that no row has.
            self.listed |= dict.fromkeys(text for text in kind.categories if text not in _MISSING_TEXTS)
        for text, times in texts_of(column).items():
            if text is None or text in _MISSING_TEXTS:
                self.missing[text or ""] += times
                continue
            if self.type is not None and self.type.kind == "categorical":
                self.listed.setdefault(text)
            self._weigh(text)
            if not self.many:
                self.distinct.add(text)
                self.many = len(self.distinct) > _MOST_CATEGORIES
                if self.many:
                    self.distinct.clear()

    def _weigh(self, text: str) -> None:
        for kind in tuple(self.kinds):
            if kind == "boolean":
                if text.lower() not in _BOOLEAN_TEXTS:
                    self.kinds.discard(kind)
                continue
            edge = parse_edge(text, kind)
            digits = text.lstrip("+-")
            # A leading zero makes an identifier (a ZIP code), a long integer too; neither is a quantity.
            zero = digits[:1] == "0" and digits[1:2].isdigit()
            coded = kind in ("integer", "real") and (zero or (digits.isdigit() and len(digits) > _MOST_DIGITS))
            dated = kind in ("date", "datetime") and not (len(text) > 8 and text[4:5] == "-")
            partial = kind == "integer" and isinstance(edge, float)
            timed = kind == "date" and len(text) > 10
            if edge is None or not math.isfinite(edge) or coded or dated or partial or timed:
                self.kinds.discard(kind)
                continue
            self.low[kind] = min(edge, self.low.get(kind, edge))
            self.high[kind] = max(edge, self.high.get(kind, edge))


def _word_of(value: object) -> str:
    """The type of one Python object, in the words of a schema; a text that is no such word where there is none."""
    if isinstance(value, Decimal) and value.is_finite():
        _, digits, exponent = value.as_tuple()
        scale = max(-int(exponent), 0)
        return f"decimal({max(len(digits) + int(exponent), 0) + scale or 1}, {scale})"
    words = {str: "string", dt.date: "date32", dt.datetime: "timestamp[us]", float: "float64"}
    return words.get(type(value), "none")


def draft(data: object, *, name: str = "table", progress: Progress = SILENT) -> Draft:
    """Propose a schema from the rows: private, and every entry that came from them is marked as not reviewed."""
    source = open_source(data)
    columns = source.find_columns() if source.find_columns else source.columns
    types = source.types or {}
    sketches = {column: _Sketch(type=types.get(column)) for column in columns}
    progress.stage("read", unit="rows")
    rows = 0
    for batch in source.batches(columns):
        for series, sketch in zip(batch.iter_columns(), sketches.values(), strict=True):
            sketch.add(series)
        rows += batch.height
        progress.advance(batch.height)
    if rows == 0:
        raise DataError(f"{source.name} has no rows to draft a schema from. Write the schema by hand.")
    attributes, left_out = [], {}
    for column, sketch in sketches.items():
        proposed = _propose(column, sketch) if column else "it has no name"
        if isinstance(proposed, str):
            left_out[column] = proposed
        else:
            attributes.append(proposed)
    if not attributes:
        raise DataError(f"{source.name} has no column that a draft could describe. Write the schema by hand.")
    return Draft(schema=Schema(name=name, attributes=tuple(attributes)).checked(), left_out=left_out)


def _propose(name: str, sketch: _Sketch) -> Attribute | str:
    missing = max(sketch.missing, key=lambda text: sketch.missing[text]) if sketch.missing else None
    output = sketch.output
    if output == "bool":
        # The type of the column, not its rows, says that it is true, false or missing.
        return Attribute(name=name, kind="boolean", missing="")
    if not sketch.distinct and not sketch.many:
        return "it holds no values"
    proposed = Attribute(name=name, kind="categorical", missing=missing, reviewed=False)
    if output in ("category", "ordered category") and len(sketch.listed) <= _MOST_CATEGORIES:
        whole = sketch.type is not None and sketch.type.whole
        values = tuple(int(text) for text in sketch.listed) if whole else tuple(sketch.listed)
        return replace(proposed, values=values, output=output)
    # A column of texts holds texts, even where they are yes and no; a text file says nothing of types.
    if "boolean" in sketch.kinds and len(sketch.distinct) == 2 and output != "string":
        return replace(proposed, kind="boolean")
    for kind in _QUANTITIES:
        if kind in sketch.kinds:
            described = parse_output(output) if output else None
            finest = Fraction(1, 10**described.scale) if described and described.name == "decimal" else Fraction(0)
            edges = _nice_edges(kind, sketch.low[kind], sketch.high[kind], finest)
            return _with_output(replace(proposed, kind=kind, edges=edges), output)
    if sketch.many:
        return _TOO_MANY
    return _with_output(replace(proposed, values=tuple(sorted(sketch.distinct))), output)


def _with_output(attribute: Attribute, output: str | None) -> Attribute:
    """The attribute with the type of its column as its output, where that says more and can hold its domain."""
    described = parse_output(output) if output else None
    if described is None or described == plain_output(attribute):
        return attribute
    if misfit(described, attribute) is not None:
        return attribute
    return replace(attribute, output=output)


def _nice_edges(
    kind: str, low: float, high: float, finest: Fraction = Fraction(0)
) -> tuple[int, ...] | tuple[float, ...]:
    """Edges that cover low to high, at round numbers or new years, no finer than told."""
    if kind in ("date", "datetime"):
        first, last = (_year(kind, edge) for edge in (low, high))
        years = max(1, math.ceil((last + 1 - first) / _BINS))
        return tuple(_new_year(kind, year) for year in range(first, last + 1 + years, years))
    if kind == "integer" and high - low < _MOST_UNIT_BINS:
        return tuple(range(int(low), int(high) + 2))
    # Exact, because floats near one another would fall on one edge. One value alone gets a bin of its own size.
    least, most = Fraction(low), Fraction(high)
    width = (most - least) / _BINS or abs(least) or Fraction(1)
    power = Fraction(10) ** (len(str(math.floor(width))) - 1 if width >= 1 else -len(str(math.floor(1 / width))))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= width * Fraction("0.999"))
    step = max(step, finest)
    first, last = math.floor(least / step), math.floor(most / step) + 1
    edges = [step * index for index in range(first, last + 1)]
    if kind == "integer":
        return tuple(int(edge) for edge in edges)
    return tuple(sorted({_within_floats(edge) for edge in edges}))


def _within_floats(edge: Fraction) -> float:
    largest = sys.float_info.max
    return float(min(max(edge, Fraction(-largest)), Fraction(largest)))


def _year(kind: str, edge: float) -> int:
    day = int(edge) if kind == "date" else int(edge) // 86_400_000_000
    return (dt.date(1970, 1, 1) + dt.timedelta(days=day)).year


def _new_year(kind: str, year: int) -> int:
    # Python's last year is 9999; its last day, which data use for "no end", is then clipped into the last bin.
    day = dt.datetime(year, 1, 1) if year <= dt.MAXYEAR else dt.datetime(dt.MAXYEAR, 12, 31)
    return days(day.date()) if kind == "date" else microseconds(day)
