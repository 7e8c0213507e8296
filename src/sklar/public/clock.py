"""Times of day, durations, months and formatted dates: texts, and where they stand on an axis.

A time of day is counted in microseconds since midnight, a duration in microseconds, a month in months since the year 0.
What a text stands for depends on that text alone; a text that stands for nothing is None.
"""

from __future__ import annotations

import datetime as dt
import re

SECOND = 1_000_000
DAY = 86_400 * SECOND
_MICROSECOND = dt.timedelta(microseconds=1)

_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,9}))?)?(?: ?([ap])\.?m\.?)?", re.IGNORECASE | re.ASCII)
_SPAN = re.compile(
    r"(?:(-?\d{1,9}) days?,? ?)?(?:([+-])?(\d{1,12}):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,9}))?)?)?",
    re.IGNORECASE | re.ASCII,
)
_ISO_SPAN = re.compile(
    r"([+-])?P(?:(\d{1,9})W)?(?:(\d{1,9})D)?"
    r"(?:T(?:(\d{1,12})H)?(?:(\d{1,12})M)?(?:(\d{1,12})(?:[.,](\d{1,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_MONTH = re.compile(r"(\d{4})(?:[-/.](\d{1,2})|(\d{2}))", re.ASCII)
# What Python and polars read and write alike, two digits each and four of a year, from the coarsest to the finest.
_PLAIN = {"%Y": "[1-9][0-9]{3}", "%m": "[0-9]{2}", "%d": "[0-9]{2}", "%H": "[0-2][0-9]", "%M": "[0-5][0-9]"}
_PLAIN |= {"%S": "[0-5][0-9]"}
_LITERAL = " ./:,_T-"
_FINEST = (("%f", 1), ("%S", SECOND), ("%M", 60 * SECOND), ("%H", 3_600 * SECOND))
_WHOLE = ("%c", "%X", "%T", "%s")


def parse_clock(text: str) -> int | None:
    """Microseconds since midnight.

    >>> parse_clock("13:05"), parse_clock("1:05 pm") == parse_clock("13:05:00.000"), parse_clock("25:00")
    (47100000000, True, None)
    """
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    hour = int(found[1])
    if found[5]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (found[5].lower() == "p")
    counted = (hour * 3_600 + int(found[2]) * 60 + int(found[3] or 0)) * SECOND + _fraction(found[4])
    return counted if counted <= DAY else None


def parse_span(text: str) -> int | None:
    """Microseconds of a duration: hours, minutes and seconds, with days before them, or as ISO 8601 has it.

    >>> [parse_span(text) for text in ("0:00:01.5", "PT1.5S", "-1 day, 23:59:59", "2 days", "P1M")]
    [1500000, 1500000, -1000000, 172800000000, None]
    """
    found = _ISO_SPAN.fullmatch(text)
    if found is not None and text[-1].upper() not in "PT":
        weeks, days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:6])
        counted = ((weeks * 7 + days) * 86_400 + hours * 3_600 + minutes * 60 + seconds) * SECOND + _fraction(found[7])
        return -counted if found[1] == "-" else counted
    found = _SPAN.fullmatch(text)
    if found is None or not text:
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.groups()[2:5])
    clock = (hours * 3_600 + minutes * 60 + seconds) * SECOND + _fraction(found[6])
    # Python and pandas write -1 day, 23:59:59 for one second less than nothing.
    return int(found[1] or 0) * DAY + (-clock if found[2] == "-" else clock)


def parse_month(text: str) -> int | None:
    """Months since the year 0, of a year and a month.

    >>> parse_month("2024-03") == parse_month("202403") == 2024 * 12 + 2, parse_month("2024-13")
    (True, None)
    """
    found = _MONTH.fullmatch(text)
    if found is None:
        return None
    month = int(found[2] or found[3])
    return int(found[1]) * 12 + month - 1 if 1 <= month <= 12 and int(found[1]) else None


def span_text(counted: int) -> str:
    """A duration as hours, minutes and seconds, with a fraction where it has one.

    >>> span_text(5_400_000_000), span_text(-1_500_000)
    ('1:30:00', '-0:00:01.500000')
    """
    seconds, fraction = divmod(abs(counted), SECOND)
    shown = f"{seconds // 3_600}:{seconds // 60 % 60:02}:{seconds % 60:02}" + (f".{fraction:06}" if fraction else "")
    return f"-{shown}" if counted < 0 else shown


def clock_text(counted: int) -> str:
    """A time of day, two digits of hours; the end of the day is 24:00:00."""
    return span_text(counted).rjust(8, "0") if counted % SECOND == 0 else span_text(counted).rjust(15, "0")


def month_text(counted: int) -> str:
    """A year and a month."""
    return f"{counted // 12:04}-{counted % 12 + 1:02}"


def microseconds_of(span: dt.timedelta) -> int:
    """Microseconds of a duration."""
    return span // _MICROSECOND


def read_moment(text: str, written: str) -> dt.datetime | None:
    """The moment that a text of this format stands for."""
    try:
        return dt.datetime.strptime(text, written)
    except (ValueError, OverflowError):
        return None


def plain_pattern(written: str) -> str | None:
    """A pattern of those texts of a format that Python and polars read alike; None for a format with other parts.

    >>> plain_pattern("%d.%m.%Y")
    '^[0-9]{2}[.][0-9]{2}[.][1-9][0-9]{3}$'
    """
    parts = re.findall(r"%.|[^%]", written, re.DOTALL)
    codes = [part for part in parts if part[0] == "%"]
    if len(set(codes)) != len(codes) or not set(parts) <= {*_PLAIN, *_LITERAL}:
        return None
    return "^" + "".join(_PLAIN.get(part, f"[{part}]") for part in parts) + "$"


def format_grain(written: str) -> int:
    """The microseconds below which a format says nothing: those of a day where it has no time."""
    if any(code in written for code in _WHOLE):
        return SECOND
    return next((grain for code, grain in _FINEST if code in written), DAY)


def _fraction(digits: str | None) -> int:
    return int((digits or "0")[:6].ljust(6, "0"))
