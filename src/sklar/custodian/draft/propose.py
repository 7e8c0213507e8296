"""What a draft proposes for a column, and the domain that its rows show.

No proposed domain is read from the rows. Numbers get wide bounds by their name and kind, and a release finds the rest
within its budget; well-known codes get their public list; other categories are left for a release to find. Rows decide
only a column's kind, whether it is left out, and which customary codes (a sentinel, a text for "missing") it holds.
`as_seen` reads domains from the rows, at the custodian's risk.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import cast

from sklar.custodian.draft.columns import COMPACT_DAY, CUSTOMARY, WORDS, ColumnSummary
from sklar.public.attribute import NO_WORDS
from sklar.public.axis import AXES, DAY, SECOND, SERIAL, SERIAL_ZERO, days
from sklar.public.codelists import find_list, natural, truth_texts, words_of
from sklar.public.outputs import WHOLE, misfit, parse_output, plain_output
from sklar.public.schema import Attribute, AttributeKind

_WORDS = {name: frozenset(words.split()) for name, words in WORDS["words"].items()}
_BOUNDS = [([set(words.split()) for words in each["words"]], each["low"], each["high"]) for each in WORDS["bounds"]]
_CODES = set(WORDS["codes"]["texts"])
_BINS, _AT_MOST = 20, 50
# From so many rows on, a release finds and tells apart more categories.
_LARGE_TABLE, _AT_MOST_OF_MANY = 20_000, 100
_WIDE, _WIDER, _SIGNED_WIDER = 10**9, 10**15, 10**12
_AGES = (*range(0, 101, 5), 120)
_YEARS = (1000, 3000)
# Days as spreadsheets count them, from 1957 to 2064.
_SERIALS = (21_000, 60_000)
# Digits of codes that are measured: two, and three where so many rows fill a thousand levels.
_MANY_CODES, _MANY_ROWS = 100, 500_000
# A text that this share of the rows has is about no single one of them.
_COMMON = 0.01
# Rows from which on a release finds a code, and the share of rows that must have such ones, to look for whole codes.
_FOUND, _MOSTLY = 200, 0.8
# Codes of people have more distinct ones per row, those of diagnoses or goods mostly fewer.
_FEW_EACH = 0.02
# More digits after the point are those of a computation, not of how a number is written.
_MOST_PLACES = 4
_BEYOND = "could a value lie beyond low or high? They were not read from the rows. Narrower public ones help."
_FEW_ROWS = 20

MOST_CATEGORIES = 200
_QUANTITIES: tuple[AttributeKind, ...] = ("integer", "date", "datetime", "real")
_MOST_UNIT_BINS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnProposal:
    """An entry that a draft proposes, None to leave the column out. The texts hold no figure or value of the rows.

    `repeats` says that the column identifies, and that values occur in several rows: they may be one person's.
    """

    attribute: Attribute | None
    proposed: str
    decide: str = ""
    repeats: bool = False
    # Beside the date of a column of moments: its time and weekday, of which nothing has to be decided.
    parts: tuple[Attribute, ...] = ()


def propose(seen: ColumnSummary) -> ColumnProposal:
    """What a draft proposes for a column."""
    if unfit := _unfit(seen):
        # Names of many people, of whom each has few rows, may say whose rows are.
        people = unfit in ("named", "names") and len(seen.counts) > _MANY_CODES and seen.distinct_share >= _FEW_EACH
        coded = unfit in ("hashes", "numbered", "identifier", "mails") or (unfit == "nearly" and _is_coded(seen))
        repeats = (people or coded) and seen.distinct_share < 1
        several = ", with several rows each" if repeats else ""
        return ColumnProposal(attribute=None, proposed=WORDS["unfit"][unfit] + several, repeats=repeats)
    entry, known = seen.entry, find_list(seen.name, set(seen.counts))
    pair = truth_texts(set(seen.counts))
    if seen.output == "bool":
        # The type of the column, not its rows, says that it is true, false or missing.
        return _proposal(seen, Attribute(name=seen.name, kind="boolean", missing=""), "typed")
    if seen.output == "ordered category":
        return _proposal(seen, replace(entry, values=seen.values(seen.declared), output=seen.output), "declared")
    if seen.type.labels and seen.counts.keys() <= dict(seen.type.labels).keys():
        words = replace(entry.words, labels=seen.type.labels)
        return _proposal(seen, replace(entry, values=seen.values(dict(words.labels)), words=words), "labelled")
    if pair is not None:
        return _proposal(seen, _with_texts(replace(entry, kind="boolean"), seen, pair), "pair")
    if known is not None:
        others = sorted(set(seen.counts) - set(known.values))
        codes = seen.values(text for text in others if _is_code(seen, text))
        # NA is Namibia among countries.
        missing = "" if entry.missing in known.values else entry.missing
        listed = replace(entry, values=seen.values(known.values), ordered=known.ordered, special=codes, missing=missing)
        attribute = _with_output(replace(listed, other=len(codes) < len(others)), seen.output)
        return _proposal(seen, attribute, "known", what=known.what)
    if digits := _code_digits(seen):
        kept = 2 if seen.rows < _MANY_ROWS or digits == 3 else 3
        every = tuple(f"{code:0{kept}}" for code in range(10**kept))
        attribute = replace(entry, values=every, other=True, prefix=kept, length=digits)
        return _proposal(seen, attribute, "digits", kept=kept)
    # Neither a type nor a public list gives the domain. Codes may be those of people, whatever the name says.
    for kind in _preferred(seen):
        odd = seen.axes[kind].odd
        points = len(seen.counts) - len(odd)
        # With too few points beside them, or too many rows, other texts are no codes but values.
        if not odd or (points >= max(10, 3 * len(odd)) and sum(odd.values()) <= 0.95 * max(seen.counted, 1)):
            return _quantity(seen, entry, kind)
    return searched(seen)


def searched(seen: ColumnSummary) -> ColumnProposal:
    """The proposal to let a release find the common values of a column."""
    at_most = _AT_MOST_OF_MANY if seen.rows >= _LARGE_TABLE else _AT_MOST
    entry = replace(seen.entry, domain="private", at_most=at_most, other=True)
    return _proposal(seen, _with_output(entry, seen.output), "searched")


def _proposal(seen: ColumnSummary, attribute: Attribute, why: str, **facts: object) -> ColumnProposal:
    """The proposal of an attribute, with what `words.toml` says of it."""
    proposed, decide = (text.format(**facts) for text in WORDS["proposed"][why])
    return ColumnProposal(attribute=attribute, proposed=proposed, decide=decide, repeats=_is_coded(seen))


def unread(seen: ColumnSummary, attribute: Attribute) -> Attribute:
    """An entry that is accepted as proposed, by nobody who read it, hence without any value that rows may have told.

    Categories that a type or a file declares may have been made from the rows: a release finds them. Of special values
    customary codes stay.
    """
    if attribute.reviewed:
        return attribute
    codes = _CODES | CUSTOMARY
    special = tuple(value for value in attribute.special if str(value).lower() in codes)
    attribute = replace(attribute, special=special, reviewed="unread")
    if attribute.values and (seen.type.labels or seen.output == "ordered category"):
        searched = replace(attribute, domain="private", at_most=_AT_MOST, other=True, ordered=False, output=None)
        return replace(searched, values=())
    return attribute


def _code_digits(seen: ColumnSummary) -> int:
    """How many digits the codes of a column have, where it holds many of one length; 0 where it holds no such codes, or
    most rows have codes that a release finds.
    """
    often = max(_COMMON * seen.rows, _FOUND)
    if sum(times for times in seen.counts.values() if times >= often) >= _MOSTLY * seen.counted:
        return 0
    codes = [re.fullmatch(r"([0-9]{1,8})|([0-9]{5})-[0-9]{4}", text) for text in seen.counts]
    digits = {0 if code is None else len(code[1] or code[2]) for code in codes}
    # Without such a name numbers are codes where some begin with a zero, and none has lost it.
    coded = bool(words_of(seen.name) & _WORDS["code"]) or ("integer" not in seen.axes and len(digits) == 1)
    return max(digits) if coded and len(codes) > _MANY_CODES and 0 not in digits and max(digits) >= 3 else 0


def _split(whole: Attribute, points: Sequence[int], output: str | None) -> tuple[Attribute, ...]:
    """The date, time of day (by hours) and weekday of a column of moments; its date alone where all are midnights."""
    grid = (step for step in (86_400, 3_600, 900, 300, 60) if not any(point % (step * SECOND) for point in points))
    step, days = next(grid, None), tuple(int(edge) // DAY for edge in whole.edges)
    if step == 86_400 and whole.format is None:
        return (_with_output(replace(whole, kind="date", edges=days), output),)
    day = replace(_with_output(whole, output), kind="date", edges=days, name=f"{whole.name}.date", part_of=whole.name)
    public = replace(day, reviewed=True, domain="public", at_most=0, output=None)
    hours = tuple(range(0, DAY + 1, 3_600 * SECOND))
    clock = replace(public, kind="time", edges=hours, step=step, name=f"{whole.name}.time")
    return day, clock, replace(public, kind="weekday", edges=tuple(range(8)), name=f"{whole.name}.weekday")


def _unfit(seen: ColumnSummary) -> str | None:
    """Why a release should not have a column, by its name in `words.toml`; None where it should."""
    texts, typed = list(seen.counts), seen.output == "ordered category"
    if not seen.name or seen.output == "bool":
        return None if seen.name else "nameless"
    if not texts:
        return "empty"
    if len(texts) == 1 and not seen.missing and not typed:
        return "constant"
    words, sample, many = words_of(seen.name), texts[:1000], len(texts) > 100
    whose = words <= _WORDS["name"] or words & (_WORDS["person"] | _WORDS["whose"])
    named = (words & _WORDS["name"] and whose) or words & (_WORDS["id"] | _WORDS["address"])
    if named and not words & _WORDS["about"] and truth_texts(set(texts)) is None:
        return "identifier" if words & _WORDS["id"] else "named"
    if typed or seen.counted < _FEW_ROWS:
        return None
    looks = WORDS["looks"]
    if like := next((each for each in ("mails", "pages", "hashes") if _most(sample, looks[each])), None):
        return like
    if "integer" in seen.axes or _most(sample, r"\d+"):
        axis = seen.axes.get("integer")
        dense = axis is not None and axis.high - axis.low < 2 * len(texts)
        if seen.distinct_share == 1 and (words & _WORDS["key"] or dense):
            return "rows"
        # Numbers of one length, too long to count anything.
        if many and len(texts[0]) >= 9 and all(len(text) == len(texts[0]) and text.isdigit() for text in texts):
            return "numbered"
    elif seen.axes:
        return None
    numbered = words & _WORDS["number"] or any(word.endswith("nummer") for word in words)
    compound = any(word.endswith("nummer") for word in words - _WORDS["number"])
    of_people = words & _WORDS["person"] and (numbered or words <= _WORDS["person"] or _is_coded(seen))
    keyed = words & _WORDS["key"] and (many or words & (_WORDS["person"] | _WORDS["whose"]))
    if keyed or (many and (compound or of_people)):
        return "identifier"
    if "integer" in seen.axes:
        return None
    if seen.distinct_share > 0.9:
        return "nearly"
    if many and sum(len(text.split()) for text in sample) >= 4 * len(sample):
        return "free"
    if len(texts) > _FEW_ROWS and _most(sample, looks["pairs"]):
        return "pairs"
    return "names" if words & _WORDS["name"] and many and seen.distinct_share > _COMMON else None


def _is_coded(seen: ColumnSummary) -> bool:
    """Whether texts look like codes of people or things: with digits, of one form, many and with few rows each."""
    texts, words = list(seen.counts)[:1000], words_of(seen.name)
    if seen.axes or len(seen.counts) <= _MANY_CODES or seen.distinct_share < _FEW_EACH or words & _WORDS["coded"]:
        return False
    forms = Counter(re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "9", text)) for text in texts)
    return _most(texts, r"(?=.*\d)\S+") and forms.most_common(1)[0][1] > 0.9 * len(texts)


def _most(texts: Sequence[str], pattern: str) -> bool:
    return sum(re.fullmatch(pattern, text) is not None for text in texts) > 0.9 * len(texts)


def _preferred(seen: ColumnSummary) -> list[str]:
    """The kinds as which the column reads: that of its type, then those with few odd texts, the plainest first."""
    if "integer" in seen.axes and words_of(seen.name) & _WORDS["code"]:
        return []
    order = ["integer", "date", "datetime", "real", "yearmonth", "time", "duration"]
    if not (COMPACT_DAY in seen.axes and not seen.axes[COMPACT_DAY].odd and len(seen.counts) >= _FEW_ROWS):
        order.append(COMPACT_DAY)
    places = {kind: order.index(kind) if kind in order else -1 for kind in seen.axes}
    return sorted(seen.axes, key=lambda kind: (kind != seen.type.kind, len(seen.axes[kind].odd), places[kind]))


def _quantity(seen: ColumnSummary, entry: Attribute, kind: str) -> ColumnProposal:
    axis = seen.axes[kind]
    codes = [text for text in axis.odd if _is_code(seen, text)]
    plain, _, form = kind.partition(" ")
    sentinels, low, high = _sentinels(seen, kind)
    values = [text for text in seen.counts if text not in axis.odd and text not in sentinels]
    numeric = plain in ("integer", "real")
    special = (*codes, *(int(float(seen.plain(text, kind))) if numeric else text for text in sentinels))
    named = words_of(seen.name)
    if plain == "integer" and named & _WORDS["year"] and low >= _YEARS[0] and high < _YEARS[1]:
        plain = "year"
    if kind == "integer" and named & _WORDS["date"] and low >= _SERIALS[0] and high < _SERIALS[1]:
        # Special values of dates are texts.
        plain, form, special = "date", SERIAL, tuple(map(str, special))
        low, high = (point + days(SERIAL_ZERO.date()) for point in (low, high))
    # A text that is no customary code is not named here; it counts as missing.
    missing = "" if axis.odd and entry.missing is None else entry.missing
    entry = replace(entry, kind=cast(AttributeKind, plain), missing=missing, special=special, format=form or None)
    if named & _WORDS["age"] and plain == "integer" and low >= 0 and high <= 120:
        attribute, proposed = replace(entry, edges=_AGES), "ages in years, in public bins of five"
        decide = "are these bins fine enough?"
    else:
        edges = _bounds(seen, plain, form, low, high)
        step = None if form else _step(seen, values, plain, edges)
        attribute = replace(entry, edges=edges, domain="private", at_most=_BINS, step=step)
        proposed = "a release finds the bins, and values that many rows share, with part of its budget"
        if edges in ((-90.0, 90.0), (-180.0, 180.0)):
            attribute = replace(attribute, at_most=30, weight=3.0)
            proposed += "; with more bins and weight, because a map needs latitude and longitude together"
        decide = _BEYOND
        others = [each for each in seen.axes if each.startswith("date ") and each != kind]
        if kind.startswith("date ") and others:
            decide += f" The days also read as {others[0][5:]}: is the format right?"
    if form == SERIAL:
        decide += " Are these days as spreadsheets count them?"
    doubt = " Do the special values mean something else than a value?" if special else ""
    made: tuple[Attribute, ...] = (_with_output(attribute, seen.output),)
    if plain == "datetime" and not special:
        made = _split(attribute, [int(seen.point(text, kind) or 0) for text in values], seen.output)
        proposed += "; its time of day and weekday are measured too" if made[1:] else "; no value has a time of day"
    return ColumnProposal(attribute=made[0], proposed=proposed, decide=decide + doubt, parts=made[1:])


def round_bounds(attribute: Attribute, seen: ColumnSummary) -> tuple[float, ...]:
    """Round bounds for a plain question, could it exceed them? PRIVATE until they are chosen, then public.

    Of numbers 0, or 1, 2 or 5 times a power of ten, of days and years the ends of decades: the next ones beyond what
    was seen, the upper one as a schema holds it. None where the attribute's are as narrow.
    """
    kind = f"{attribute.kind} {attribute.format}" if attribute.format else attribute.kind
    kind = "integer" if kind == "year" else kind
    if attribute.kind not in ("integer", "real", "year", "date") or not attribute.private or kind not in seen.axes:
        return ()
    _, low, high = _sentinels(seen, kind)
    if attribute.kind in ("year", "date"):
        first, last = (int(attribute.axis.text(end)[:4]) // 10 * 10 for end in (low, high))
        years = max(first, 1), min(last + 10, dt.MAXYEAR)
        starts = tuple(days(dt.date(year, 1, 1)) for year in years)
        ends: tuple[float, ...] = years if attribute.kind == "year" else starts
    else:
        least, most = -_rounded_up(Fraction(max(-low, 0))), _rounded_up(Fraction(max(high, 0)))
        ends = (int(least), int(most) + 1) if attribute.kind == "integer" else (float(least), float(most))
    wider = attribute.edges[0] < ends[0] or ends[1] < attribute.edges[-1]
    return ends if wider and ends[0] < ends[1] else ()


def shown_ends(attribute: Attribute, low: float, high: float) -> tuple[str, str]:
    """Two bounds as people say them: of whole numbers the last one that is inside."""
    last = high - (not attribute.axis.continuous)
    if attribute.kind in ("integer", "real"):
        return f"{low:,.15g}", f"{last:,.15g}"
    return attribute.axis.text(low), attribute.axis.text(last)


def asked(decide: str, attribute: Attribute, seen: ColumnSummary | None) -> str:
    """What is to be decided, with one plain question about a number or a day in place of that about its bounds."""
    if seen is None or not (ends := round_bounds(attribute, seen)):
        return decide or "is it public knowledge?"
    low, high = shown_ends(attribute, *ends)
    plain = f"could it ever exceed {high} or be below {low}?"
    if attribute.kind in ("year", "date"):
        plain = f"could it ever be before {low} or after {high}?"
    return decide.replace(_BEYOND, plain) or plain


def _rounded_up(size: Fraction) -> Fraction:
    """The least of 1, 2 and 5 times a power of ten that is not below a number; 0 for 0."""
    power = Fraction(10) ** (len(str(math.floor(size))) - 1 if size >= 1 else -len(str(math.floor(1 / (size or 1)))))
    return next(power * times for times in (1, 2, 5, 10) if power * times >= size) if size else size


def _is_code(seen: ColumnSummary, text: str) -> bool:
    """Whether a text that is no value may be named: a customary code, or one that many rows have."""
    return text.lower() in _CODES or seen.customary(text, "integer") or seen.counts[text] >= _COMMON * seen.rows


def _sentinels(seen: ColumnSummary, kind: str) -> tuple[tuple[str, ...], float, float]:
    """Customary codes that stand apart from all other values and that more than a few rows have; the others' range."""
    axis, dated = seen.axes[kind], kind in ("date", "datetime")
    points = {text: point for text in seen.counts if (point := seen.point(text, kind)) is not None}
    codes = {text: point for text, point in points.items() if seen.customary(text, kind)}
    low, high = axis.least, axis.most

    def apart(point: float) -> bool:
        below = point < 0 <= low or point < low - (0 if dated else 0.5 * abs(point))
        return below or point > high + 0.1 * abs(point)

    enough = len(points) - len(codes) >= 5
    found = [text for text, point in codes.items() if enough and seen.counts[text] >= 5 and apart(point)]
    rest = [point for text, point in codes.items() if text not in found]
    return tuple(sorted(found, key=lambda text: codes[text])), min([low, *rest]), max([high, *rest])


def _bounds(seen: ColumnSummary, kind: str, form: str, low: float, high: float) -> tuple[int, ...] | tuple[float, ...]:
    """Bounds that the name and the kind of a column imply; whether values are negative is all that rows decide."""
    if kind in WORDS["ends"]:
        every = [tuple(int(cast(int, AXES[kind].parse(end))) for end in ends) for ends in WORDS["ends"][kind]]
        return next((ends for ends in every if ends[0] <= low and high < ends[1]), every[-1])
    words = words_of(seen.name) | ({"percent"} if form.endswith("%") else set())
    for needed, least, most in _BOUNDS:
        if all(words & each for each in needed) and least <= low and high <= most:
            return (least, most + 1) if kind == "integer" else (float(least), float(most))
    if kind == "real" and low >= 0 and high <= 1:
        return (0.0, 1.0)
    # Values beyond are clipped: a bound that held them would depend on the rows.
    wide = _WIDE if max(-low, high) < _WIDE else _SIGNED_WIDER if form else _WIDER
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
    return (first, last) if kind == "integer" else (float(first), float(last))


def _step(seen: ColumnSummary, values: Sequence[str], kind: str, edges: Sequence[float]) -> float | None:
    """The grain of decimal numbers, where all of them have few places, and floats between the bounds can hold it."""
    if kind != "real":
        return None
    plain = (seen.plain(text, kind) for text in values)
    places = [len(text.partition(".")[2]) if re.fullmatch(r"[+-]?\d+(\.\d+)?", text) else 99 for text in plain]
    most = max(places, default=99)
    held = all(edge == edge // 1 and abs(edge) * 10**most < 2**53 for edge in edges)
    if most > _MOST_PLACES or not held:
        return None
    # As a schema file says it: 1 and not 1.0.
    return float(f"1e-{most}") if most else 1


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
    entry = replace(seen.entry, words=NO_WORDS, provenance="rows")
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
        first, last = (int(AXES[kind].text(edge)[:4]) for edge in (low, high))
        years = max(1, math.ceil((last + 1 - first) / _BINS))
        # Python's last year is 9999; its last day, which data use for "no end", is then clipped into the last bin.
        starts = (
            dt.datetime(year, 1, 1) if year <= dt.MAXYEAR else dt.datetime(dt.MAXYEAR, 12, 31)
            for year in range(first, last + 1 + years, years)
        )
        return tuple(map(AXES[kind].count, starts))
    if kind == "integer" and high - low < _MOST_UNIT_BINS:
        return tuple(range(int(low), int(high) + 2))
    # Exact, because floats near one another would fall on one edge. One value alone gets a bin of its own size.
    least, most = Fraction(low), Fraction(high)
    width = (most - least) / _BINS or abs(least) or Fraction(1)
    step = max(_rounded_up(width * Fraction("0.999")), finest)
    edges = [step * index for index in range(math.floor(least / step), math.floor(most / step) + 2)]
    if kind == "integer":
        return tuple(int(edge) for edge in edges)
    largest = Fraction(sys.float_info.max)
    return tuple(sorted({float(min(max(edge, -largest), largest)) for edge in edges}))
