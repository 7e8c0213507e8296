"""What a draft proposes for a column, and the domain that its rows show.

Nothing that was read from the rows is a proposed domain: numbers get wide bounds, by their name and kind, and a release
finds the rest within its budget; codes that everybody knows get their public list; other categories are left for a
release to find. What rows do decide is the kind of a column, whether it is left out, and which customary codes (a
sentinel, a text for "missing") it holds. `as_seen` reads domains from the rows, at the custodian's risk.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import cast

from sklar.custodian.draft.columns import COMPACT_DAY, AxisRange, ColumnSummary
from sklar.public.axis import AXES, days, microseconds
from sklar.public.codelists import find_list, natural, truth_texts, words_of
from sklar.public.outputs import WHOLE, misfit, parse_output, plain_output
from sklar.public.schema import Attribute, AttributeKind


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BINS, _AT_MOST = 20, 50
# From so many rows on, a release finds and tells apart more categories.
_MANY_ROWS, _AT_MOST_OF_MANY = 100_000, 100
_WIDE, _WIDER = 10**9, 10**15
_AGES = (*range(0, 101, 5), 120)
_AGE_WORDS = _words("age ages alter edad eta idade")
_HOUR_WORDS = _words("hours hour hrs stunden")
# Words of a name that imply bounds: one of each set must be there. Whole numbers include the upper bound.
_BOUNDS: tuple[tuple[tuple[Set[str], ...], int, int], ...] = (
    ((_HOUR_WORDS, {"week", "weekly", "wk", "woche"}), 0, 168),
    ((_HOUR_WORDS, {"day", "daily", "tag"}), 0, 24),
    (({"minutes", "minute", "mins", "min"}, {"day", "daily"}), 0, 1_440),
    (({"percent", "percentage", "pct", "prozent"},), 0, 100),
    (({"latitude", "lat"},), -90, 90),
    (({"longitude", "lon", "lng"},), -180, 180),
    ((_AGE_WORDS,), 0, 120),
)
_YEAR_WORDS = _words("year yr yob jahr annee ano anno")
_YEARS = (1000, 3000)
_DAYS = (("1900-01-01", "2100-01-01"), ("1000-01-01", "3000-01-01"), ("0001-01-01", "9999-12-31"))
# Bounds of days and times, the narrowest that hold all values; they name no day of the rows.
_ENDS = {
    "date": _DAYS,
    "datetime": _DAYS,
    "year": (("1900", "2100"), ("1000", "3000")),
    "yearmonth": (("1900-01", "2100-01"), ("1000-01", "3000-01"), ("0001-01", "9999-12")),
    "time": (("00:00", "24:00"),),
    "duration": (("0:00:00", "100000:00:00"), ("-100000:00:00", "100000:00:00")),
}
_KEY_WORDS = _words("id ids uuid guid ssn key phone telephone telefon mobile fax email mail iban passport hash url")
_NAME_WORDS = _words("name surname firstname lastname address street adresse")
# Whole numbers under such a name count nothing.
_CODE_WORDS = _words("id code codes zip postal postcode plz fips")
_SENTINELS = _words("-1 -2 -3 -4 -5 -6 -7 -8 -9 -66 -77 -88 -99 77 88 97 98 99 996 997 998 9996 9997 9998")
_SENTINELS |= {sign + digit * times for sign in ("", "-") for digit in "789" for times in range(3, 10)}
_DATE_SENTINELS = _words("9999-12-31 9999-01-01 9999-09-09 8888-08-08 1900-01-01 0001-01-01")
# Texts that customarily stand in a column of numbers.
_CODES = _words("n na nap x * ** *** - -- n.a. unknown unk u refused r suppressed s d dk none missing m b bb bbb ..")
_CODES |= {"not applicable", "don't know", "not stated"}
# A text that this share of the rows has is about no single one of them.
_COMMON = 0.01
# More digits after the point are those of a computation, not of how a number is written.
_MOST_PLACES = 4
_FEW_ROWS = 20

MOST_CATEGORIES = 200
_QUANTITIES: tuple[AttributeKind, ...] = ("integer", "date", "datetime", "real")
_MOST_UNIT_BINS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnProposal:
    """An entry that a draft proposes, None to leave the column out. The texts hold no figure or value of the rows."""

    attribute: Attribute | None
    proposed: str
    decide: str = ""


def propose(seen: ColumnSummary) -> ColumnProposal:
    """What a draft proposes for a column."""
    unfit = _unfit(seen)
    if unfit:
        return ColumnProposal(attribute=None, proposed=unfit)
    entry = Attribute(name=seen.name, kind="categorical", missing=seen.missing_text, reviewed=False)
    known = find_list(seen.name, set(seen.counts))
    pair = truth_texts(set(seen.counts))
    if seen.output == "bool":
        # The type of the column, not its rows, says that it is true, false or missing.
        attribute = Attribute(name=seen.name, kind="boolean", missing="")
        proposed, decide = "true or false, as the column's type says", ""
    elif seen.output == "ordered category":
        attribute = replace(entry, values=seen.values(seen.declared), output=seen.output)
        proposed = "the ordered categories that the column's type declares"
        decide = "was the type declared from public knowledge, or made from the rows?"
    elif pair is not None:
        attribute = _with_texts(replace(entry, kind="boolean"), seen, pair)
        proposed, decide = "yes or no, in the column's own texts", "does the column hold nothing else?"
    elif known is not None:
        listed = replace(entry, values=seen.values(known.values), ordered=known.ordered)
        attribute = _with_output(listed, seen.output)
        proposed, decide = f"a public list: {known.what}", "does the column hold these codes, and no others?"
    else:
        # Neither a type nor a public list gives the domain.
        for kind in _preferred(seen):
            odd = seen.axes[kind].odd
            points = len(seen.counts) - len(odd)
            # With too few points beside them, or too many rows, other texts are no codes but values.
            if not odd or (points >= max(10, 3 * len(odd)) and sum(odd.values()) <= 0.95 * max(seen.counted, 1)):
                return _quantity(seen, entry, kind)
        at_most = _AT_MOST_OF_MANY if seen.rows >= _MANY_ROWS else _AT_MOST
        attribute = _with_output(replace(entry, domain="private", at_most=at_most, other=True), seen.output)
        proposed = "a release finds the common categories with part of its budget; rare ones become 'other'"
        decide = "is there a public list (a code book)? Then list its values in place of domain and at_most."
    return ColumnProposal(attribute=attribute, proposed=proposed, decide=decide)


def _unfit(seen: ColumnSummary) -> str | None:
    """Why a release should not have a column: it identifies, is free text, or says nothing; None where it should."""
    texts, typed = list(seen.counts), seen.output == "ordered category"
    if not seen.name or seen.output == "bool":
        return None if seen.name else "it has no name"
    if not texts:
        return "it holds no values"
    if len(texts) == 1 and not seen.missing and not typed:
        return "it is constant"
    if typed or seen.counted < _FEW_ROWS:
        return None
    words = words_of(seen.name)
    named = bool(words & _KEY_WORDS) or (bool(words & _NAME_WORDS) and seen.distinct_share > _COMMON)
    sample, many = texts[:1000], len(texts) > 100
    if _most(sample, r"[^@\s]+@[^@\s]+\.\w+") or _most(sample, r"https?://\S+"):
        return "it looks like addresses of people or pages"
    if _most(sample, r"(?=.*\d)(?=.*[a-fA-F])[0-9a-fA-F]{16,}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"):
        return "it looks like hashes or keys"
    advice = " with several rows each: if they are people, name it as person in [table] (docs/people.md)"
    repeated = advice if seen.distinct_share <= 0.9 else ""
    if "integer" in seen.axes or _most(sample, r"\d+"):
        axis = seen.axes.get("integer")
        dense = axis is not None and axis.high - axis.low < 2 * len(texts)
        if seen.distinct_share == 1 and (named or dense):
            return "it looks like an identifier: every row has another number"
        # Numbers of one length, too long to count anything.
        if many and len(texts[0]) >= 9 and all(len(text) == len(texts[0]) and text.isdigit() for text in texts):
            return f"it looks like identifying numbers{repeated}"
    elif seen.axes:
        return None
    elif seen.distinct_share > 0.9:
        return "nearly every row has another text: it identifies"
    elif many and sum(len(text.split()) for text in sample) >= 4 * len(sample):
        return "it looks like free text"
    return f"its name is that of an identifier{repeated}" if named and many else None


def _most(texts: Sequence[str], pattern: str) -> bool:
    return sum(re.fullmatch(pattern, text) is not None for text in texts) > 0.9 * len(texts)


def _preferred(seen: ColumnSummary) -> list[str]:
    """The kinds as which the column reads: that of its type, then those with few odd texts, the plainest first."""
    if "integer" in seen.axes and words_of(seen.name) & _CODE_WORDS:
        return []
    order = ["integer", "date", "datetime", "real", "yearmonth", "time", "duration"]
    typed = None if seen.type is None else seen.type.kind
    if not (COMPACT_DAY in seen.axes and not seen.axes[COMPACT_DAY].odd and len(seen.counts) >= _FEW_ROWS):
        order.append(COMPACT_DAY)
    places = {kind: order.index(kind) if kind in order else -1 for kind in seen.axes}
    return sorted(seen.axes, key=lambda kind: (kind != typed, len(seen.axes[kind].odd), places[kind]))


def _quantity(seen: ColumnSummary, entry: Attribute, kind: str) -> ColumnProposal:
    axis: AxisRange = seen.axes[kind]
    codes = [text for text, times in axis.odd.items() if text.lower() in _CODES or times >= _COMMON * seen.rows]
    plain, _, form = kind.partition(" ")
    sentinels = _sentinels(seen, plain)
    values = [text for text in seen.counts if text not in axis.odd and text not in sentinels]
    points = [point for text in values if (point := seen.point(text, kind)) is not None] if sentinels else []
    low, high = (min(points), max(points)) if points else (axis.low, axis.high)
    plain_sentinels = (seen.plain(text, plain) for text in sentinels)
    special = (*codes, *(int(text) if plain in ("integer", "real") else text for text in plain_sentinels))
    named = words_of(seen.name)
    if plain == "integer" and named & _YEAR_WORDS and low >= _YEARS[0] and high < _YEARS[1]:
        plain = "year"
    # A text that is no customary code is not named here; it counts as missing.
    missing = "" if axis.odd and entry.missing is None else entry.missing
    entry = replace(entry, kind=cast(AttributeKind, plain), missing=missing, special=special, format=form or None)
    if named & _AGE_WORDS and plain == "integer" and low >= 0 and high <= 120:
        attribute, proposed = replace(entry, edges=_AGES), "ages in years, in public bins of five"
        decide = "are these bins fine enough?"
    else:
        edges = _bounds(seen, plain, low, high)
        attribute = replace(entry, edges=edges, domain="private", at_most=_BINS, step=_step(seen, values, plain, edges))
        proposed = "a release finds the bins, and values that many rows share, with part of its budget"
        decide = "are low and high safe by public knowledge? They were not read from the rows. Narrower ones help."
        others = [each for each in seen.axes if each.startswith("date ") and each != kind]
        if kind.startswith("date ") and others:
            decide += f" The days also read as {others[0][5:]}: is the format right?"
    doubt = " Do the special values mean something else than a value?" if special else ""
    return ColumnProposal(attribute=_with_output(attribute, seen.output), proposed=proposed, decide=decide + doubt)


def _sentinels(seen: ColumnSummary, kind: str) -> tuple[str, ...]:
    """Customary codes that stand apart from all other values of a column, and that more than a few rows have."""
    if seen.many and kind != "date":
        return ()
    dated = kind in ("date", "datetime")
    customary = _DATE_SENTINELS if dated else _SENTINELS
    points = {text: point for text in seen.counts if (point := seen.point(text, kind)) is not None}
    candidates = [text for text in points if seen.plain(text, kind) in customary and seen.counts[text] >= 5]
    rest = [point for text, point in points.items() if text not in candidates]
    if not candidates or len(rest) < 5:
        return ()
    low, high = min(rest), max(rest)

    def apart(point: float) -> bool:
        return point < 0 <= low or point > high + 0.1 * abs(point) or (dated and point < low)

    return tuple(sorted((text for text in candidates if apart(points[text])), key=lambda text: points[text]))


def _bounds(seen: ColumnSummary, kind: str, low: float, high: float) -> tuple[int, ...] | tuple[float, ...]:
    """Bounds that the name and the kind of a column imply; whether values are negative is all that rows decide."""
    if kind in _ENDS:
        every = [tuple(int(cast(int, AXES[kind].parse(end))) for end in ends) for ends in _ENDS[kind]]
        return next((ends for ends in every if ends[0] <= low and high < ends[1]), every[-1])
    words = words_of(seen.name)
    for needed, least, most in _BOUNDS:
        if all(words & each for each in needed) and least <= low and high <= most:
            return (least, most + 1) if kind == "integer" else (float(least), float(most))
    if kind == "real" and low >= 0 and high <= 1:
        return (0.0, 1.0)
    wide = _WIDE if max(-low, high) < _WIDE else _WIDER
    first, last = (0 if low >= 0 else -wide), wide
    # The numbers that the column's type can hold at all.
    described = parse_output(seen.output) if seen.output else None
    if described is not None and described.name in WHOLE:
        bits, signed = int(described.name.lstrip("uint")), not described.name.startswith("u")
        first = max(first, -(2 ** (bits - 1)) if signed else 0)
        last = min(last, 2 ** (bits - 1) if signed else 2**bits)
    elif described is not None and described.name == "decimal":
        beyond = 10 ** (described.precision - described.scale)
        first, last = max(first, 1 - beyond), min(last, beyond)
    return (first, last) if kind == "integer" else (float(min(first, low)), float(max(last, high)))


def _step(seen: ColumnSummary, values: Sequence[str], kind: str, edges: Sequence[float]) -> float | None:
    """The grain of decimal numbers, where all of them have few places, and floats between the bounds can hold it."""
    if kind != "real":
        return None
    plain = (seen.plain(text, kind) for text in values)
    places = [len(text.partition(".")[2]) if re.fullmatch(r"[+-]?\d+(\.\d+)?", text) else 99 for text in plain]
    most = max(places, default=99)
    held = all(edge == edge // 1 and abs(edge) * 10**most < 2**53 for edge in edges)
    return float(f"1e-{most}") if most <= _MOST_PLACES and held else None


def _with_output(attribute: Attribute, output: str | None) -> Attribute:
    """The attribute with the type of its column as its output, where that says more and can hold its domain."""
    described = parse_output(output) if output else None
    if described is None or described == plain_output(attribute) or misfit(described, attribute) is not None:
        return attribute
    return replace(attribute, output=output)


def _with_texts(attribute: Attribute, seen: ColumnSummary, pair: tuple[str, str]) -> Attribute:
    """The boolean with the column's own texts for false and true, where the column holds texts."""
    if seen.output not in (None, "string"):
        return _with_output(attribute, seen.output)
    # A schema reads and writes false and true without being told.
    return attribute if pair == ("false", "true") else replace(attribute, texts=pair)


def as_seen(seen: ColumnSummary) -> Attribute | None:
    """The domain that covers every value of the rows, not reviewed; None where there are too many texts, or none."""
    output, texts = seen.output, list(seen.counts)
    if output == "bool":
        return Attribute(name=seen.name, kind="boolean", missing="")
    if not texts:
        return None
    entry = Attribute(name=seen.name, kind="categorical", missing=seen.missing_text, reviewed=False, provenance="rows")
    if output in ("category", "ordered category") and len(seen.declared) <= MOST_CATEGORIES:
        return replace(entry, values=seen.values(seen.declared), output=output)
    # A column of texts holds texts, even where they are yes and no; a text file says nothing of types.
    pair = truth_texts(set(texts))
    if output != "string" and pair is not None:
        return _with_texts(replace(entry, kind="boolean"), seen, pair)
    for kind in _QUANTITIES:
        axis = seen.axes.get(kind)
        if axis is not None and not axis.odd:
            described = parse_output(output) if output else None
            finest = Fraction(1, 10**described.scale) if described and described.name == "decimal" else Fraction(0)
            edges = _nice_edges(kind, axis.low, axis.high, finest)
            return _with_output(replace(entry, kind=kind, edges=edges), output)
    if len(texts) > MOST_CATEGORIES:
        return None
    return _with_output(replace(entry, values=tuple(sorted(texts, key=natural))), output)


def _nice_edges(kind: str, low: float, high: float, finest: Fraction) -> tuple[int, ...] | tuple[float, ...]:
    """Edges that cover low to high, at round numbers or new years, no finer than told."""
    if kind in ("date", "datetime"):
        day = 1 if kind == "date" else 86_400_000_000
        first, last = ((dt.date(1970, 1, 1) + dt.timedelta(days=int(edge) // day)).year for edge in (low, high))
        years = max(1, math.ceil((last + 1 - first) / _BINS))
        # Python's last year is 9999; its last day, which data use for "no end", is then clipped into the last bin.
        starts = (
            dt.datetime(year, 1, 1) if year <= dt.MAXYEAR else dt.datetime(dt.MAXYEAR, 12, 31)
            for year in range(first, last + 1 + years, years)
        )
        return tuple(days(start.date()) if kind == "date" else microseconds(start) for start in starts)
    if kind == "integer" and high - low < _MOST_UNIT_BINS:
        return tuple(range(int(low), int(high) + 2))
    # Exact, because floats near one another would fall on one edge. One value alone gets a bin of its own size.
    least, most = Fraction(low), Fraction(high)
    width = (most - least) / _BINS or abs(least) or Fraction(1)
    power = Fraction(10) ** (len(str(math.floor(width))) - 1 if width >= 1 else -len(str(math.floor(1 / width))))
    nice = next(power * times for times in (1, 2, 5, 10) if power * times >= width * Fraction("0.999"))
    step = max(nice, finest)
    edges = [step * index for index in range(math.floor(least / step), math.floor(most / step) + 2)]
    if kind == "integer":
        return tuple(int(edge) for edge in edges)
    largest = Fraction(sys.float_info.max)
    return tuple(sorted({float(min(max(edge, -largest), largest)) for edge in edges}))
