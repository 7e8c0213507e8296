"""Domains as the rows show them, at the custodian's risk: a domain read from the rows tells who is in them."""

from __future__ import annotations

import datetime as dt
import math
import sys
from dataclasses import replace
from fractions import Fraction

from sklar.custodian.draft.look import Seen
from sklar.public.axis import days, microseconds
from sklar.public.codes import natural, truth_texts
from sklar.public.schema import Attribute, AttributeKind
from sklar.public.types import misfit, parse_output, plain_output

MOST_CATEGORIES = 200
_QUANTITIES: tuple[AttributeKind, ...] = ("integer", "date", "datetime", "real")
_MOST_UNIT_BINS = 50
_BINS = 20


def as_seen(seen: Seen) -> Attribute | None:
    """The domain that covers every value of the rows, not reviewed; None where they hold too many texts, or none."""
    output = seen.output
    if output == "bool":
        # The type of the column, not its rows, says that it is true, false or missing.
        return Attribute(name=seen.name, kind="boolean", missing="")
    if not seen.counts:
        return None
    proposed = Attribute(
        name=seen.name, kind="categorical", missing=missing_text(seen), reviewed=False, provenance="rows"
    )
    if output in ("category", "ordered category") and len(seen.declared) <= MOST_CATEGORIES:
        whole = seen.type is not None and seen.type.whole
        values = tuple(int(text) for text in seen.declared) if whole else tuple(seen.declared)
        return replace(proposed, values=values, output=output)
    # A column of texts holds texts, even where they are yes and no; a text file says nothing of types.
    pair = truth_texts(set(seen.counts))
    if output != "string" and pair is not None:
        return with_texts(replace(proposed, kind="boolean"), seen, pair)
    for kind in _QUANTITIES:
        axis = seen.axes.get(kind)
        if axis is not None and not axis.odd:
            described = parse_output(output) if output else None
            finest = Fraction(1, 10**described.scale) if described and described.name == "decimal" else Fraction(0)
            edges = _nice_edges(kind, axis.low, axis.high, finest)
            return with_output(replace(proposed, kind=kind, edges=edges), output)
    if len(seen.counts) > MOST_CATEGORIES:
        return None
    return with_output(replace(proposed, values=tuple(sorted(seen.counts, key=natural))), output)


def missing_text(seen: Seen) -> str | None:
    """The text that stands for a missing value most often; None when no value is missing."""
    return max(seen.missing, key=lambda text: seen.missing[text]) if seen.missing else None


def with_output(attribute: Attribute, output: str | None) -> Attribute:
    """The attribute with the type of its column as its output, where that says more and can hold its domain."""
    described = parse_output(output) if output else None
    if described is None or described == plain_output(attribute):
        return attribute
    if misfit(described, attribute) is not None:
        return attribute
    return replace(attribute, output=output)


def with_texts(attribute: Attribute, seen: Seen, pair: tuple[str, str]) -> Attribute:
    """The boolean with the column's own texts for false and true, where the column holds texts."""
    if seen.output not in (None, "string"):
        return with_output(attribute, seen.output)
    # A schema reads and writes false and true without being told.
    return attribute if pair == ("false", "true") else replace(attribute, texts=pair)


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
