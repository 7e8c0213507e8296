"""What a draft proposes for a column: nothing that was read from the rows is a domain.

Numbers get wide bounds, by their name and kind, and a release finds the rest within its budget; codes that everybody
knows get their public list; other categories are left for a release to find. What rows do decide is the kind of a
column, whether it is left out, and which customary codes (a sentinel, a text for "missing") it holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from sklar.custodian.draft.look import COMPACT_DAY, Axis, Seen
from sklar.custodian.draft.rows import missing_text, with_output, with_texts
from sklar.public.axis import parse_edge
from sklar.public.codes import find_list, truth_texts, words_of
from sklar.public.schema import Attribute, AttributeKind
from sklar.public.types import WHOLE, parse_output

_BINS = 20
_AT_MOST = 50
_WIDE = 10**9
_WIDER = 10**15
_AGES = (*range(0, 101, 5), 120)
_AGE_WORDS = {"age", "ages", "alter", "edad", "eta", "idade"}
# Words of a name that speak for bounds: one of each set must be there. Whole numbers include the upper bound.
_BOUNDS: tuple[tuple[tuple[set[str], ...], int, int], ...] = (
    (({"hours", "hour", "hrs", "stunden"}, {"week", "weekly", "wk", "woche"}), 0, 168),
    (({"hours", "hour", "hrs", "stunden"}, {"day", "daily", "tag"}), 0, 24),
    (({"minutes", "minute", "mins", "min"}, {"day", "daily"}), 0, 1_440),
    (({"percent", "percentage", "pct", "prozent"},), 0, 100),
    (({"latitude", "lat"},), -90, 90),
    (({"longitude", "lon", "lng"},), -180, 180),
    ((_AGE_WORDS,), 0, 120),
)
_YEAR_WORDS = {"year", "yr", "yob", "jahr", "annee", "ano", "anno"}
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
_KEY_WORDS = {
    "id",
    "ids",
    "uuid",
    "guid",
    "ssn",
    "key",
    "phone",
    "telephone",
    "telefon",
    "mobile",
    "fax",
    "email",
    "mail",
}
_KEY_WORDS |= {"iban", "passport", "hash", "url"}
_NAME_WORDS = {"name", "surname", "firstname", "lastname", "address", "street", "adresse"}
# Whole numbers under such a name count nothing.
_CODE_WORDS = {"id", "code", "codes", "zip", "postal", "postcode", "plz", "fips"}
_SENTINELS = {"-1", "-2", "-3", "-4", "-5", "-6", "-7", "-8", "-9", "-66", "-77", "-88", "-99"}
_SENTINELS |= {sign + digit * times for sign in ("", "-") for digit in "789" for times in range(3, 10)}
_SENTINELS |= {"77", "88", "97", "98", "99", "996", "997", "998", "9996", "9997", "9998"}
_DATE_SENTINELS = {"9999-12-31", "9999-01-01", "9999-09-09", "8888-08-08", "1900-01-01", "0001-01-01"}
# Texts that customarily stand in a column of numbers.
_CODES = {
    "n",
    "na",
    "nap",
    "x",
    "*",
    "**",
    "***",
    "-",
    "--",
    "n.a.",
    "not applicable",
    "unknown",
    "unk",
    "u",
    "refused",
}
_CODES |= {
    "r",
    "suppressed",
    "s",
    "d",
    "dk",
    "don't know",
    "not stated",
    "none",
    "missing",
    "m",
    "b",
    "bb",
    "bbb",
    "..",
}
# A text that this share of the rows has is about no single one of them.
_COMMON = 0.01
# More digits after the point are those of a computation, not of how a number is written.
_MOST_PLACES = 4
_FEW_ROWS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """An entry that a draft proposes, None where the column is left out; what is proposed, and what is to be decided.

    Both texts are public: they hold no figure and no value of the rows.
    """

    attribute: Attribute | None
    proposed: str
    decide: str = ""


def propose(seen: Seen) -> Proposal:
    """What a draft proposes for a column."""
    if not seen.name:
        return _left_out("it has no name")
    if seen.output == "bool":
        # The type of the column, not its rows, says that it is true, false or missing.
        attribute = Attribute(name=seen.name, kind="boolean", missing="")
        return Proposal(attribute=attribute, proposed="true or false, as the column's type says")
    if not seen.counts:
        return _left_out("it holds no values")
    if seen.output == "ordered category":
        return _declared(seen)
    return _unfit(seen) or _truth(seen) or _listed(seen) or _number(seen) or _category(seen)


def _left_out(reason: str) -> Proposal:
    return Proposal(attribute=None, proposed=reason)


def _entry(seen: Seen, kind: AttributeKind = "categorical") -> Attribute:
    return Attribute(name=seen.name, kind=kind, missing=missing_text(seen), reviewed=False)


def _declared(seen: Seen) -> Proposal:
    whole = seen.type is not None and seen.type.whole
    values = tuple(int(text) for text in seen.declared) if whole else tuple(seen.declared)
    return Proposal(
        attribute=replace(_entry(seen), values=values, output=seen.output),
        proposed="the ordered categories that the column's type declares",
        decide="was the type declared from public knowledge, or made from the rows?",
    )


def _unfit(seen: Seen) -> Proposal | None:
    """Columns that a release should not have: they identify, are free text, or say nothing."""
    texts, rows = list(seen.counts), seen.counted
    if len(texts) == 1 and not seen.n_missing:
        return _left_out("it is constant")
    if rows < _FEW_ROWS:
        return None
    words = words_of(seen.name)
    named = bool(words & _KEY_WORDS) or (bool(words & _NAME_WORDS) and seen.distinct_share > _COMMON)
    sample = texts[:1000]
    if _most(sample, r"[^@\s]+@[^@\s]+\.\w+") or _most(sample, r"https?://\S+"):
        return _left_out("it looks like addresses of people or pages")
    if _most(sample, r"(?=.*\d)(?=.*[a-fA-F])[0-9a-fA-F]{16,}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"):
        return _left_out("it looks like hashes or keys")
    repeated = " with several rows each: if they are people, name it as person in [table] (docs/people.md)"
    if _numbered(seen):
        if seen.distinct_share == 1 and (named or _dense(seen)):
            return _left_out("it looks like an identifier: every row has another number")
        if _long_numbers(texts) and len(texts) > 100:
            return _left_out("it looks like identifying numbers" + ("" if seen.distinct_share > 0.9 else repeated))
        if named and len(texts) > 100:
            return _left_out("its name is that of an identifier" + ("" if seen.distinct_share > 0.9 else repeated))
        return None
    if seen.axes:
        return None
    if seen.distinct_share > 0.9:
        return _left_out("nearly every row has another text: it identifies")
    if len(texts) > 100 and _words(sample) >= 4:
        return _left_out("it looks like free text")
    if named and len(texts) > 100:
        return _left_out("its name is that of an identifier" + repeated)
    return None


def _most(texts: Sequence[str], pattern: str) -> bool:
    return sum(re.fullmatch(pattern, text) is not None for text in texts) > 0.9 * len(texts)


def _words(texts: Sequence[str]) -> float:
    return sum(len(text.split()) for text in texts) / len(texts)


def _numbered(seen: Seen) -> bool:
    return "integer" in seen.axes or _most(list(seen.counts)[:1000], r"\d+")


def _dense(seen: Seen) -> bool:
    axis = seen.axes.get("integer")
    return axis is not None and axis.high - axis.low < 2 * len(seen.counts)


def _long_numbers(texts: Sequence[str]) -> bool:
    """Whether all are numbers of one length, too long to count anything."""
    lengths = {len(text) for text in texts}
    return len(lengths) == 1 and lengths.pop() >= 9 and all(text.isdigit() for text in texts)


def _truth(seen: Seen) -> Proposal | None:
    pair = truth_texts(set(seen.counts))
    if pair is None:
        return None
    return Proposal(
        attribute=with_texts(_entry(seen, "boolean"), seen, pair),
        proposed="yes or no, in the column's own texts",
        decide="does the column hold nothing else?",
    )


def _listed(seen: Seen) -> Proposal | None:
    known = find_list(seen.name, set(seen.counts))
    if known is None:
        return None
    whole = seen.type is not None and seen.type.whole
    values = tuple(int(text) for text in known.values) if whole else known.values
    return Proposal(
        attribute=with_output(replace(_entry(seen), values=values, ordered=known.ordered), seen.output),
        proposed=f"a public list: {known.what}",
        decide="does the column hold these codes, and no others?",
    )


def _category(seen: Seen) -> Proposal:
    return Proposal(
        attribute=with_output(replace(_entry(seen), domain="private", at_most=_AT_MOST, other=True), seen.output),
        proposed="a release finds the common categories with part of its budget; rare ones become 'other'",
        decide="is there a public list (a code book)? Then list its values in place of domain and at_most.",
    )


def _number(seen: Seen) -> Proposal | None:
    for kind in _preferred(seen):
        axis, codes = seen.axes[kind], _codes(seen, kind)
        if codes is not None:
            return _quantity(seen, kind, axis, codes)
    return None


def _preferred(seen: Seen) -> list[str]:
    """The kinds as which the column reads: that of its type, then those with few odd texts, the plainest first."""
    if "integer" in seen.axes and words_of(seen.name) & _CODE_WORDS:
        return []
    order = ["integer", "date", "datetime", "real", "yearmonth", "time", "duration"]
    typed = None if seen.type is None else seen.type.kind
    if not (COMPACT_DAY in seen.axes and not seen.axes[COMPACT_DAY].odd and len(seen.counts) >= _FEW_ROWS):
        order.append(COMPACT_DAY)
    found = sorted(seen.axes, key=lambda kind: order.index(kind) if kind in order else -1)
    return sorted(found, key=lambda kind: (kind != typed, len(seen.axes[kind].odd)))


def _codes(seen: Seen, kind: str) -> tuple[str, ...] | None:
    """The texts among the points of an axis that are customary codes; None where the texts are no codes but values."""
    odd = seen.axes[kind].odd
    points = len(seen.counts) - len(odd)
    if not odd:
        return ()
    if points < max(10, 3 * len(odd)) or sum(odd.values()) > 0.95 * max(seen.counted, 1):
        return None
    return tuple(text for text, times in odd.items() if text.lower() in _CODES or times >= _COMMON * seen.rows)


def _quantity(seen: Seen, kind: str, axis: Axis, codes: tuple[str, ...]) -> Proposal:
    plain, _, form = kind.partition(" ")
    sentinels = _sentinels(seen, plain)
    values = [text for text in seen.counts if text not in axis.odd and text not in sentinels]
    points = [point for text in values if (point := seen.point(text, kind)) is not None] if sentinels else []
    low, high = (min(points), max(points)) if points else (axis.low, axis.high)
    special = (*codes, *(_sentinel(seen.plain(text, plain), plain) for text in sentinels))
    named = words_of(seen.name)
    if plain == "integer" and named & _YEAR_WORDS and low >= _YEARS[0] and high < _YEARS[1]:
        plain = "year"
    entry = _entry(seen, cast(AttributeKind, plain))
    if axis.odd and entry.missing is None:
        # A text that is no customary code is not named here; it counts as missing.
        entry = replace(entry, missing="")
    entry = replace(entry, special=special, format=form or None)
    ages = named & _AGE_WORDS and plain == "integer" and low >= 0 and high <= 120
    if ages:
        attribute = with_output(replace(entry, edges=_AGES), seen.output)
        return Proposal(
            attribute=attribute,
            proposed="ages in years, in public bins of five",
            decide="are these bins fine enough?" + _special_question(special),
        )
    edges = _bounds(seen, plain, low, high)
    attribute = replace(entry, edges=edges, domain="private", at_most=_BINS, step=_step(seen, values, plain, edges))
    return Proposal(
        attribute=with_output(attribute, seen.output),
        proposed="a release finds the bins, and values that many rows share, with part of its budget",
        decide="are low and high safe by public knowledge? They were not read from the rows. Narrower ones help."
        + _format_question(seen, kind)
        + _special_question(special),
    )


def _special_question(special: Sequence[object]) -> str:
    return " Do the special values mean something else than a value?" if special else ""


def _format_question(seen: Seen, kind: str) -> str:
    others = [each for each in seen.axes if each.startswith("date ") and each != kind]
    return (
        f" The days also read as {others[0][5:]}: is the format right?" if kind.startswith("date ") and others else ""
    )


def _sentinels(seen: Seen, kind: str) -> tuple[str, ...]:
    """Customary codes that stand apart from all other values of a column, and that more than a few rows have."""
    if seen.many and kind != "date":
        return ()
    customary = _DATE_SENTINELS if kind in ("date", "datetime") else _SENTINELS
    points = {text: point for text in seen.counts if (point := seen.point(text, kind)) is not None}
    candidates = [text for text in points if seen.plain(text, kind) in customary and seen.counts[text] >= 5]
    rest = [point for text, point in points.items() if text not in candidates]
    if not candidates or len(rest) < 5:
        return ()
    low, high = min(rest), max(rest)
    found = [
        text
        for text in candidates
        if points[text] < 0 <= low
        or points[text] > high + 0.1 * abs(points[text])
        or (kind in ("date", "datetime") and points[text] < low)
    ]
    return tuple(sorted(found, key=lambda text: points[text]))


def _sentinel(text: str, kind: str) -> str | int:
    return int(text) if kind in ("integer", "real") else text


def _bounds(seen: Seen, kind: str, low: float, high: float) -> tuple[int, ...] | tuple[float, ...]:
    """Bounds that the name and the kind of a column imply; whether values are negative is all that rows decide."""
    if kind in _ENDS:
        every = [(_edge(first, kind), _edge(last, kind)) for first, last in _ENDS[kind]]
        return next((ends for ends in every if ends[0] <= low and high < ends[1]), every[-1])
    words = words_of(seen.name)
    for needed, least, most in _BOUNDS:
        if all(words & each for each in needed) and least <= low and high <= most:
            return (least, most + 1) if kind == "integer" else (float(least), float(most))
    if kind == "real" and low >= 0 and high <= 1:
        return (0.0, 1.0)
    wide = _WIDE if max(-low, high) < _WIDE else _WIDER
    first, last = (0 if low >= 0 else -wide), wide
    held = _held(seen.output)
    if held is not None:
        first, last = max(first, held[0]), min(last, held[1])
    if kind == "integer":
        return (first, last)
    return (float(min(first, low)), float(max(last, high)))


def _held(output: str | None) -> tuple[int, int] | None:
    """The numbers that a column's type can hold at all, the second one excluded; None where it sets no limit."""
    described = parse_output(output) if output else None
    if described is None:
        return None
    if described.name in WHOLE:
        bits, signed = int(described.name.lstrip("uint")), not described.name.startswith("u")
        return (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
    if described.name == "decimal":
        most = 10 ** (described.precision - described.scale)
        return (1 - most, most)
    return None


def _edge(text: str, kind: str) -> int:
    return int(cast(int, parse_edge(text, kind)))


def _step(seen: Seen, values: Sequence[str], kind: str, edges: Sequence[float]) -> float | None:
    """The grain of decimal numbers, where all of them have few places, and floats between the bounds can hold it."""
    if kind != "real":
        return None
    plain = (seen.plain(text, kind) for text in values)
    places = [len(text.partition(".")[2]) if re.fullmatch(r"[+-]?\d+(\.\d+)?", text) else 99 for text in plain]
    most = max(places, default=99)
    held = all(edge == edge // 1 and abs(edge) * 10**most < 2**53 for edge in edges)
    return float(f"1e-{most}") if most <= _MOST_PLACES and held else None
