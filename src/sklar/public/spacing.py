"""Edges from public bounds alone: bins of equal width, or bins that grow with the numbers, for skewed columns.

`log` divides by equal ratios, `1-2-5` at the round numbers 1, 2, 5, 10, 20 and so on. About three bins make a decade;
what is nearer to zero than the smallest bin is one bin. Negative numbers mirror positive ones, and zero is an edge.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from sklar.public.axis import SECOND

Spacing = Literal["equal", "log", "1-2-5"]

# Kinds whose zero means nothing, so that small and large have a meaning.
GROWING = ("integer", "real", "duration")

_PER_DECADE = 3
_ROUND = (1, 2, 5)
# Of the powers of ten that floats hold.
_LEAST = -320


def spaced_edges(
    kind: str, first: float, last: float, bins: int, spacing: Spacing = "equal", step: Fraction | None = None
) -> tuple[int, ...] | tuple[float, ...]:
    """The edges of at most this many bins between two bounds, at multiples of the step where there is one.

    >>> spaced_edges("integer", 0, 1_000, 6, "1-2-5")
    (0, 20, 50, 100, 200, 500, 1000)
    >>> spaced_edges("integer", 0, 1_000, 5, "log"), spaced_edges("real", -10, 100, 6, "log")
    ((0, 46, 99, 214, 463, 1000), (-10.0, -4.6, 0.0, 10.0, 22.0, 47.0, 100.0))
    """
    seconds = kind in ("time", "duration") and not (first % SECOND or last % SECOND)
    unit = step if step is not None or kind == "real" else Fraction(SECOND if seconds else 1)
    if spacing == "equal":
        # Exact: floats would miss `last`, overflow, or put microseconds beside full seconds.
        width = (Fraction(last) - Fraction(first)) / bins
        edges = [Fraction(first) + width * step for step in range(bins + 1)]
        if kind != "real":
            edges = [Fraction(round(edge)) for edge in edges]
        if kind in ("time", "duration") and unit is not None and last - first >= bins * unit:
            step = unit
        if step is not None:
            edges[1:-1] = [round(edge / step) * step for edge in edges[1:-1]]
    else:
        edges = _growing(Fraction(first), Fraction(last), bins, spacing, unit)
    if kind != "real":
        return tuple(int(edge) for edge in edges)
    held = [float(edge) for edge in edges]
    # Edges between bounds that are all but equal may fall on one float.
    return tuple(held if spacing == "equal" else sorted(set(held)))


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
            # What is left must leave room for the bins that are left.
            edge = min(max(edge, before + unit), last - unit * (left - 1))
        if not before < edge < last:
            break
        edges.append(edge)
    return [*edges, last]


def _series(first: Fraction, last: Fraction, bins: int, unit: Fraction | None) -> list[Fraction]:
    """Edges at the largest round numbers between the bounds: 1, 2, 5, 10, 20 and so on."""
    found: list[Fraction] = []
    # Durations are counted in seconds.
    whole = Fraction(SECOND if unit is not None and unit % SECOND == 0 else 1)
    power = math.floor(_decades(last / whole)) + 1
    smallest = max(first, unit or Fraction(0)) / whole
    while len(found) < bins - 1 and power > _LEAST and 10 * Fraction(10) ** power > smallest:
        power -= 1
        for digit in reversed(_ROUND):
            edge = digit * Fraction(10) ** power * whole
            if first < edge < last and len(found) < bins - 1 and (unit is None or edge % unit == 0):
                found.append(edge)
    return [first, *reversed(found), last]


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
