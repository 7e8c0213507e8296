"""Axes of numbers, dates and times: linear, or logarithmic where numbers are skewed; ticks and their labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.public.schema import Attribute

# An axis is symmetric-logarithmic when the largest number is this many times a small one (the least tenth of them).
_WIDE = 30.0
_SHORT = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SECOND = 1_000_000
# Months between ticks of dates.
_MONTHS = (1, 3, 6, 12, 24, 60, 120, 240, 600, 1_200)
_MOST_TICKS = 6


def axis_scale(attribute: Attribute, points: NDArray[np.float64], counts: NDArray[Any]) -> float:
    """Up to which size the axis is linear before it turns logarithmic; 0 when it is linear throughout.

    Dates, years and times of day have no zero that means anything: they are always linear.
    """
    sizes = np.abs(points)
    order = np.argsort(sizes)
    order = order[sizes[order] > 0]
    if attribute.kind not in ("integer", "real", "duration") or order.size == 0:
        return 0.0
    upto = np.cumsum(counts[order])
    small = float(sizes[order[int(np.searchsorted(upto, upto[-1] / 10))]])
    if sizes.max() < _WIDE * small:
        return 0.0
    return float(10.0 ** math.floor(math.log10(small)))


def bend(values: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Where numbers stand on an axis of this scale."""
    return values if scale == 0 else np.asarray(np.arcsinh(values / scale))


def ticks(attribute: Attribute, low: float, high: float, scale: float) -> list[float]:
    """Round numbers to label between the ends of an axis."""
    if scale == 0:
        if attribute.kind in ("integer", "real", "year"):
            step = _round_up((high - low) / 5)
            step = max(step, 1.0) if attribute.kind == "year" else step
            return [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
        if attribute.kind in ("date", "datetime"):
            return _months(attribute, low, high)
        return [math.ceil(low), math.floor(high)] if high - low >= 1 else [low]
    sizes = [scale * 10.0**k for k in range(-1, 1 + math.ceil(math.log10(max(abs(low), abs(high)) / scale)))]
    inside = [value for size in sizes for value in (size, -size) if low <= value <= high]
    # From the largest on, as long as labels do not touch.
    width, chosen = float(np.ptp(bend(np.array([low, high]), scale))), [0.0] if low <= 0 <= high else []
    for value in reversed(inside):
        apart = np.abs(bend(np.array(chosen), scale) - bend(np.array([value]), scale))
        if apart.min(initial=width) >= width / 7:
            chosen.append(value)
    return sorted(chosen)


def _months(attribute: Attribute, low: float, high: float) -> list[float]:
    """The first days of months or years between two dates or moments; the ends where there are none."""
    day = 1 if attribute.kind == "date" else 86_400 * _SECOND
    dates = np.array([math.floor(low / day), math.floor(high / day)]).astype("datetime64[D]")
    first, last = (int(each) for each in dates.astype("datetime64[M]").astype(np.int64))
    step = next((each for each in _MONTHS if (last - first) / each <= _MOST_TICKS), _MONTHS[-1])
    # Months are counted from 1970: years begin at multiples of twelve, decades at 1970, 1980 and so on.
    months = np.arange(-(-first // step) * step, last + 1, step).astype("datetime64[M]")
    found = [float(each) for each in months.astype("datetime64[D]").astype(np.int64) * day if low <= each <= high]
    return found if len(found) > 1 else [float(math.ceil(low)), float(math.floor(high))]


def _round_up(width: float) -> float:
    power = 10.0 ** math.floor(math.log10(width))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= width * (1 - 1e-9))


def tick_text(attribute: Attribute, value: float) -> str:
    """A label of an axis: short.

    >>> tick_text(Attribute(name="x", kind="integer", edges=(0, 1)), 1_500_000)
    '1.5M'
    """
    if attribute.kind in ("integer", "real"):
        size, unit = next((each for each in _SHORT if abs(value) >= each[0]), (1.0, ""))
        return f"{value / size:.4g}{unit}" if abs(value) < 1e15 else f"{value:.0e}"
    if attribute.kind in ("datetime", "time", "duration"):
        value = round(value / _SECOND) * _SECOND
    written = attribute.edge_text(round(value))
    if attribute.kind in ("date", "datetime") and written[4:10] == "-01-01" and written[10:] in ("", "T00:00:00"):
        return written[:4]
    return written[:16].replace("T", " ").removesuffix(" 00:00") if attribute.kind == "datetime" else written
