"""Numbers, dates and times as points on an axis: how they are read, checked, spaced and written. More:
docs/derivations.md.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any, Literal, NamedTuple

from sklar.errors import SchemaError
from sklar.machine.wording import stated

AttributeKind = Literal[
    "categorical", "boolean", "integer", "real", "date", "datetime", "time", "duration", "year", "yearmonth", "weekday"
]
Spacing = Literal["equal", "log", "1-2-5"]
SECOND = 1_000_000
DAY = 86_400 * SECOND
# The parts of a moment, from its microseconds.
PARTS: Mapping[str, Callable[[Any], Any]] = {
    "date": lambda moment: moment // DAY,
    "time": lambda moment: moment % DAY,
    "weekday": lambda moment: (moment // DAY + 3) % 7,
}

_WEEKDAYS = {"Monday": 0, "Tuesday": 1, "Wednesday": 2, "Thursday": 3, "Friday": 4, "Saturday": 5, "Sunday": 6}
_INFINITE = ("nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity")
_EPOCH = dt.datetime(1970, 1, 1)
_FIRST = _EPOCH.toordinal()
_TICK = dt.timedelta(microseconds=1)
_ISO = re.compile(r"\d{4}-\d\d|\d\d:\d\d:\d\d", re.ASCII)
_TEXTS = stated("sklar.public", "texts.toml")
_CLOCK, _SPAN, _ISO_SPAN, _MONTH = (re.compile(each, re.IGNORECASE | re.ASCII) for each in _TEXTS["moments"].values())
# What Python and polars read and write alike, from the coarsest to the finest.
_PLAIN: dict[str, str] = _TEXTS["parts"]
_LITERAL = " ./:,_T-"
_FINEST = dict.fromkeys(("%c", "%X", "%T", "%s"), SECOND)
_FINEST |= {"%f": 1, "%S": SECOND, "%M": 60 * SECOND, "%H": 3_600 * SECOND}
# The format of dates that are written as numbers of days, as spreadsheets count them, and the day before their first.
SERIAL, SERIAL_ZERO = "serial", dt.datetime(1899, 12, 30)
_PER_DECADE = 3
# Of the powers of ten that floats hold.
_LEAST_POWER = -320


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What the values of one kind of attribute lie on. Categories and booleans have one without numbers.

    `binned`: there are numbers, whose levels are bins and points; `numeric`: files hold them as numbers, not texts;
    `stepped`: the axis has whole steps that people name: x <= 39 is x < 40; `timed`: it is in microseconds, of which a
    schema counts seconds; `continuous`: numbers are not whole, so the last bin includes its upper edge, which no last
    number precedes; `grows`: zero means nothing, so small and large have a meaning; `dated`: an ISO date stands for a
    number. `example` is how a schema writes an edge that is no number. `read` finds the number of a text, `count` that
    of a moment, and `show` writes one as a text.
    """

    kind: AttributeKind = field(kw_only=False)
    binned: bool = True
    numeric: bool = False
    stepped: bool = False
    timed: bool = False
    continuous: bool = False
    grows: bool = False
    dated: bool = False
    example: str = "ISO texts ('1990-01-31')"
    read: Callable[[str], int | float | None] = lambda _text: None
    count: Callable[[dt.datetime], int] = lambda moment: moment.year
    show: Callable[[int], str] = str

    @property
    def one(self) -> str:
        """What one value is called."""
        return f"{'an' if self.kind == 'integer' else 'a'} {self.kind}"

    def text(self, number: float) -> str:
        """A number on the axis as a person writes it: a number or an ISO date."""
        return str(number) if self.numeric else self.show(int(number))

    def value(self, number: float) -> str | int | float:
        """A number on the axis as a schema file holds it: a number, or the text of a date or time."""
        return number if self.numeric else self.text(number)

    def parse(self, text: str, written: str | None = None) -> int | float | None:
        """The number on the axis that a text stands for, or None when it stands for none. Infinity and nan are numbers.

        `written` is the strptime format of dates and times, or an example of a number. Dates that it does not read are
        read as ISO has them.
        """
        text = text.strip()
        if written is not None and self.numeric:
            plain = number_format(written).plain(text)
            return None if plain is None else self.read(plain)
        moment = None if written is None else read_moment(text, written)
        # Other files of a release hold ISO dates. Reading day before month would change them.
        if written is not None and moment is None and (written.startswith("%Y-%d") or not _ISO.match(text)):
            return None
        number = self.read(text) if moment is None else None
        if number is not None or (moment is None and not self.dated):
            return number
        try:
            return self.count(moment or dt.datetime.fromisoformat(text))
        except (ValueError, OverflowError):
            return None

    def told(self, written: str | None) -> Fraction | None:
        """The unit below which a format says nothing; None without one, and where values are whole."""
        if written is None or not (self.timed or self.continuous):
            return None
        if self.timed:
            return Fraction(next((grain for code, grain in _FINEST.items() if code in written), DAY))
        return Fraction(1, 10 ** number_format(written).places)

    def check(self, edge: object, *, what: str = "edges") -> int | float:
        """The number on the axis that an edge in a schema states."""
        if not self.numeric:
            # TOML has dates and times of its own.
            text = edge.isoformat() if isinstance(edge, dt.date | dt.time) else edge if isinstance(edge, str) else ""
            number = self.parse(text)
            timed = number is not None and self.kind == "date" and dt.datetime.fromisoformat(text.strip()).time()
            if number is None or abs(number) >= 2**63 or timed not in (False, dt.time(0)):
                raise SchemaError(f"{what} of {self.one} must be {self.example}, got {edge!r}.")
            return number
        # Python's whole numbers have no end; floats do.
        if not isinstance(edge, int | float) or isinstance(edge, bool) or not abs(edge) <= sys.float_info.max:
            raise SchemaError(f"{what} must be finite numbers, got {edge!r}.")
        if self.continuous:
            return float(edge)
        if edge != int(edge) or abs(edge) >= 2**63:
            raise SchemaError(f"{what} of {self.one} must be whole and below 2**63, got {edge!r}. Use real.")
        return int(edge)

    def spaced(
        self, first: float, last: float, bins: int, spacing: Spacing = "equal", step: Fraction | None = None
    ) -> tuple[int, ...] | tuple[float, ...]:
        """The edges of at most this many bins between two bounds, at multiples of the step where there is one.

        >>> AXES["real"].spaced(-10, 100, 6, "log")
        (-10.0, -4.6, 0.0, 10.0, 22.0, 47.0, 100.0)
        """
        clock = self.timed and not self.dated
        seconds = clock and not (first % SECOND or last % SECOND)
        unit = step if step is not None or self.continuous else Fraction(SECOND if seconds else 1)
        if spacing == "equal":
            # Exact: floats would miss `last`, overflow, or put microseconds beside full seconds.
            width = (Fraction(last) - Fraction(first)) / bins
            edges = [Fraction(first) + width * place for place in range(bins + 1)]
            if not self.continuous:
                edges = [Fraction(round(edge)) for edge in edges]
            if clock and unit is not None and last - first >= bins * unit:
                step = unit
            if step is not None:
                edges[1:-1] = [round(edge / step) * step for edge in edges[1:-1]]
        else:
            edges = _growing(Fraction(first), Fraction(last), bins, spacing, unit)
        if not self.continuous:
            return tuple(int(edge) for edge in edges)
        # Edges between bounds that are all but equal may fall on one float.
        return tuple(map(float, edges)) if spacing == "equal" else tuple(sorted({float(edge) for edge in edges}))


def days(value: dt.date) -> int:
    """Days since 1970-01-01."""
    return value.toordinal() - _FIRST


def microseconds(value: dt.datetime) -> int:
    """Microseconds since 1970-01-01 UTC; a time without a zone is taken as UTC."""
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return (value - _EPOCH) // _TICK


def parse_number(text: str) -> int | float | None:
    """The finite number that a text stands for, or None when it stands for none."""
    # Python reads 1_000 as a number; no data file means that.
    if "_" in text or len(text) > 400:
        return None
    with suppress(ValueError):
        # Whole numbers are finite, and may be too large for a float.
        return int(text)
    with suppress(ValueError):
        return number if math.isfinite(number := float(text)) else None
    return None


def parse_clock(text: str) -> int | None:
    """Microseconds since midnight, of texts such as 13:05, 13:05:00.5 and 1:05 pm."""
    parts = _CLOCK.fullmatch(text)
    if parts is None or (parts[5] and not 1 <= int(parts[1]) <= 12):
        return None
    hour = int(parts[1]) % 12 + 12 * (parts[5].lower() == "p") if parts[5] else int(parts[1])
    counted = (hour * 3_600 + int(parts[2]) * 60 + int(parts[3] or 0)) * SECOND + _fraction(parts[4])
    return counted if counted <= DAY else None


def parse_span(text: str) -> int | None:
    """Microseconds of a duration: hours, minutes and seconds, with days before them, or as ISO 8601 has it.

    >>> [parse_span(text) for text in ("0:00:01.5", "PT1.5S", "-1 day, 23:59:59", "2 days", "P1M")]
    [1500000, 1500000, -1000000, 172800000000, None]
    """
    parts = _ISO_SPAN.fullmatch(text)
    if parts is not None and text[-1].upper() not in "PT":
        weeks, whole, hours, minutes, seconds = (int(part or 0) for part in parts.groups()[1:6])
        counted = ((weeks * 7 + whole) * 86_400 + hours * 3_600 + minutes * 60 + seconds) * SECOND + _fraction(parts[7])
        return -counted if parts[1] == "-" else counted
    parts = _SPAN.fullmatch(text)
    if parts is None or not text:
        return None
    hours, minutes, seconds = (int(part or 0) for part in parts.groups()[2:5])
    clock = (hours * 3_600 + minutes * 60 + seconds) * SECOND + _fraction(parts[6])
    # Python and pandas write -1 day, 23:59:59 for one second less than nothing.
    return int(parts[1] or 0) * DAY + (-clock if parts[2] == "-" else clock)


def parse_month(text: str) -> int | None:
    """Months since the year 0, of texts such as 2024-03 and 202403."""
    parts = _MONTH.fullmatch(text)
    if parts is None:
        return None
    year, month = int(parts[1]), int(parts[2] or parts[3])
    return year * 12 + month - 1 if 1 <= month <= 12 and year else None


def span_text(counted: int) -> str:
    """A duration as hours, minutes and seconds, with a fraction where it has one."""
    seconds, fraction = divmod(abs(counted), SECOND)
    shown = f"{seconds // 3_600}:{seconds // 60 % 60:02}:{seconds % 60:02}" + (f".{fraction:06}" if fraction else "")
    return f"-{shown}" if counted < 0 else shown


def clock_text(counted: int) -> str:
    """A time of day, two digits of hours; the end of the day is 24:00:00."""
    return span_text(counted).rjust(8 if counted % SECOND == 0 else 15, "0")


def _clock(moment: dt.datetime) -> int:
    return microseconds(moment.replace(tzinfo=None)) % DAY


def _number_or_infinity(text: str) -> int | float | None:
    return float(text) if text.lower() in _INFINITE else parse_number(text)


_MONTHS: dict[str, Any] = {"example": "texts such as '1990-01'", "read": parse_month}
_MONTHS |= {"count": lambda moment: moment.year * 12 + moment.month - 1}
_MONTHS |= {"show": lambda n: f"{n // 12:04}-{n % 12 + 1:02}"}
AXES: Mapping[str, Axis] = {
    axis.kind: axis
    for axis in (
        Axis("categorical", binned=False),
        Axis("boolean", binned=False),
        Axis("integer", numeric=True, stepped=True, grows=True, read=_number_or_infinity),
        Axis("real", numeric=True, continuous=True, grows=True, read=_number_or_infinity),
        Axis("date", stepped=True, dated=True, count=days, show=lambda n: dt.date.fromordinal(n + _FIRST).isoformat()),
        Axis("datetime", timed=True, dated=True, count=microseconds, show=lambda n: (_EPOCH + n * _TICK).isoformat()),
        Axis("time", timed=True, example="texts such as '13:30:00'", read=parse_clock, count=_clock, show=clock_text),
        Axis("duration", timed=True, grows=True, example="texts such as '1:30:00'", read=parse_span, show=span_text),
        Axis("year", numeric=True, stepped=True, dated=True, read=_number_or_infinity),
        Axis("yearmonth", stepped=True, dated=True, **_MONTHS),
        Axis("weekday", stepped=True, read=lambda text: _WEEKDAYS.get(text), show=lambda n: [*_WEEKDAYS][n % 7]),
    )
}


class NumberFormat(NamedTuple):
    """How numbers are written: the signs around them, of groups and of decimals, and whether brackets are a minus."""

    before: str
    after: str
    group: str
    point: str
    places: int = 0
    brackets: bool = False

    def plain(self, text: str, any_sign: str = "") -> str | None:
        """The number of a text as Python reads it, with its signs or without; None where it is none."""
        before, after, group, point = (re.escape(sign.strip() or sign) for sign in self[:4])
        before, after = before or any_sign, after or any_sign
        digits = f"[0-9]{{1,3}}(?:{group}[0-9]{{2,3}})*{group}[0-9]{{3}}|[0-9]+" if group else "[0-9]+"
        number = rf"((?:{digits})(?:{point}[0-9]*)?|{point}[0-9]+)"
        signed = rf"(\()?\s*([+-]?)\s*(?:{before})?\s*([+-]?)\s*{number}\s*(?:{after})?\s*(\))?"
        parts = re.fullmatch(signed, text[:400])
        signs = [] if parts is None else [sign for sign in parts.group(1, 2, 3) if sign]
        if parts is None or bool(parts[1]) != bool(parts[5]) or len(signs) > 1:
            return None
        plain = parts[4].replace(self.group, "").replace(self.point, ".")
        return plain if signs in ([], ["+"]) else f"-{plain}"

    def text(self, number: float) -> str:
        """A number as it is written."""
        digits = f"{abs(number):,.{self.places}f}".translate({ord(","): self.group, ord("."): self.point})
        shown = f"{self.before}{digits}{self.after}"
        return shown if number >= 0 else f"({shown})" if self.brackets else f"-{shown}"


@lru_cache(maxsize=256)
def number_format(example: str) -> NumberFormat:
    """The format that an example shows: $1,234.50, 1.234,50 EUR, 12.5%, (1,234) where brackets mean negative.

    One sign before three last digits parts groups, as in 1,234; behind a zero or four digits it is the decimal sign.
    """
    parts = re.fullmatch(_TEXTS["example"], example, re.VERBOSE)
    if parts is None or bool(parts[1]) != bool(parts[10]) or (parts[5] and parts[5] == parts[6]):
        raise ValueError("no example of a number")
    before, after, group = (parts[2] or "") + parts[3], parts[8] + (parts[9] or ""), parts[5] or ""
    point = parts[6] or ("," if group == "." else ".")
    return NumberFormat(before, after, group, point, len(parts[7] or ""), bool(parts[1]))


def read_moment(text: str, written: str) -> dt.datetime | None:
    """The moment that a text of this format stands for."""
    try:
        if written == SERIAL:
            counted = parse_number(text)
            return None if counted is None else SERIAL_ZERO + dt.timedelta(days=counted)
        return dt.datetime.strptime(text, written)
    except (ValueError, OverflowError):
        return None


def plain_pattern(written: str) -> str | None:
    """A pattern of those texts of a format that Python and polars read alike; None for a format with other parts."""
    parts = re.findall(r"%.|[^%]", written, re.DOTALL)
    codes = [part for part in parts if part[0] == "%"]
    if len(set(codes)) != len(codes) or not set(parts) <= {*_PLAIN, *_LITERAL}:
        return None
    return "^" + "".join(_PLAIN.get(part, f"[{part}]") for part in parts) + "$"


def _fraction(digits: str | None) -> int:
    return int((digits or "0")[:6].ljust(6, "0"))


def _growing(first: Fraction, last: Fraction, bins: int, spacing: str, unit: Fraction | None) -> list[Fraction]:
    divide = _ratios if spacing == "log" else _series
    if first >= 0:
        return divide(first, last, bins, unit)
    if last <= 0:
        return [-edge for edge in reversed(divide(-last, -first, bins, unit))]
    if bins == 1:
        return [first, last]
    # Each side gets bins by its decades above the smallest bin of the larger side.
    decades = bins / 2 / _PER_DECADE
    larger = max(-first, last)
    shares = [max(decades + _decades(size / larger), 1 / _PER_DECADE) for size in (-first, last)]
    below = min(max(round(bins * shares[0] / sum(shares)), 1), bins - 1)
    negative = divide(Fraction(0), -first, below, unit)
    return [-edge for edge in reversed(negative[1:])] + divide(Fraction(0), last, bins - below, unit)


def _ratios(first: Fraction, last: Fraction, bins: int, unit: Fraction | None) -> list[Fraction]:
    """Edges at equal ratios, each at least a unit above the one before it."""
    edges = [first]
    if unit is not None:
        bins = min(bins, int((last - first) / unit))
    if first == 0 and bins > 1:
        smallest = _short(last * _power(-(bins - 1) / _PER_DECADE), unit)
        edges.append(smallest if unit is None else min(max(smallest, unit), last - unit * (bins - 1)))
    while len(edges) < bins:
        left, before = bins + 1 - len(edges), edges[-1]
        edge = _short(before * _power(_decades(last / before) / left), unit)
        if unit is not None:
            # The remaining width must hold the remaining bins.
            edge = min(max(edge, before + unit), last - unit * (left - 1))
        if not before < edge < last:
            break
        edges.append(edge)
    return [*edges, last]


def _series(first: Fraction, last: Fraction, bins: int, unit: Fraction | None) -> list[Fraction]:
    """Edges at the largest round numbers between the bounds: 1, 2, 5, 10, 20 and so on."""
    # Durations are counted in seconds.
    whole = Fraction(SECOND if unit is not None and unit % SECOND == 0 else 1)
    powers = range(math.floor(_decades(last / whole)), _LEAST_POWER - 1, -1)
    falling = (digit * Fraction(10) ** power * whole for power in powers for digit in (5, 2, 1))
    within = takewhile(lambda edge: first < edge and (unit or 0) <= edge, falling)
    edges = islice((edge for edge in within if edge < last and (unit is None or edge % unit == 0)), bins - 1)
    return [first, *reversed(list(edges)), last]


def _decades(ratio: Fraction) -> float:
    return math.log10(ratio.numerator) - math.log10(ratio.denominator)


def _power(decades: float) -> Fraction:
    whole = math.floor(decades)
    return Fraction(10) ** whole * Fraction(10 ** (decades - whole))


def _short(edge: Fraction, unit: Fraction | None) -> Fraction:
    """A number of two digits, or a multiple of the unit, near this one."""
    if unit is not None:
        return round(edge / unit) * unit
    digits = Fraction(10) ** (math.floor(_decades(edge)) - 1)
    return round(edge / digits) * digits
