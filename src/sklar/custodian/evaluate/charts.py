"""Histograms of every column, the real rows beside the synthetic ones, for the private report."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sklar.answer.report import svg
from sklar.answer.report.render import short
from sklar.custodian.evaluate.numbers import brief
from sklar.custodian.evaluate.sketch import Distribution
from sklar.custodian.evaluate.verdict import Column
from sklar.public.schema import Attribute

MAX_CHARTS = 300
_BINS = 40
_BARS = 12
_HEAPS = 6

# An axis is symmetric-logarithmic when the largest number is this many times a small one (the least tenth of them).
_WIDE = 30.0

_SHORT = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Chart:
    """The drawings of one column: the numbers on their axis, and bars for heaps, missing values, texts or levels."""

    name: str
    told: str
    warned: bool
    numbers: Markup | None
    bars: Markup | None


def draw_category(column: Column, real: NDArray[np.float64], synthetic: NDArray[np.float64]) -> Chart:
    """The levels of a category in the order of the schema: all, or the largest. Shares of the rows, shape (levels,)."""
    largest = np.argsort(-np.maximum(real, synthetic), kind="stable")[:_BARS]
    levels = column.attribute.levels
    entries = [
        svg.Paired(label=levels[place], first=float(real[place]), second=float(synthetic[place]))
        for place in np.sort(largest)
    ]
    left_out = len(levels) - len(entries)
    told = f"total variation {column.tv:.3f}" + (f", {left_out:,} smaller levels not shown" if left_out else "")
    name = short(column.name, 60)
    return Chart(
        name=name,
        told=told,
        warned=bool(column.warnings),
        numbers=None,
        bars=svg.paired_bars(entries, title=f"Levels of {name}", description=told),
    )


def draw_numbers(column: Column, real: Distribution, synthetic: Distribution, rows: tuple[int, int]) -> Chart:
    """The numbers of a column without its heaps, and its heaps, missing values and texts as bars below.

    All heights are shares of the rows. Heaps stand apart because one of them would flatten all that is around it.
    """
    name, numbers = short(column.name, 60), column.numbers
    told = ""
    if numbers is not None:
        means = (brief(column.attribute, each.mean) for each in (numbers.real, numbers.synthetic))
        told = f"KS {numbers.ks:.3f}, mean {' | '.join(means)}"
    heaps = sorted(numbers.heaps if numbers is not None else (), key=lambda heap: -max(heap.real, heap.synthetic))
    listed = max(real.counts.size, synthetic.counts.size) <= _BARS
    apart = [] if listed else heaps[:_HEAPS]
    places = [heap.value for heap in apart]
    held = real.size / rows[0], synthetic.size / rows[1]
    entries = [
        svg.Paired(label=f"exactly {heap.what}", first=heap.real * held[0], second=heap.synthetic * held[1])
        for heap in sorted(apart, key=lambda heap: heap.value)
    ]
    others = ([column.missing] if column.missing is not None else []) + list(column.texts)
    entries += [
        svg.Paired(label=each.what, first=each.real, second=each.synthetic)
        for each in others
        if max(each.real, each.synthetic) > 0
    ]
    steps = bin_numbers(column.attribute, real, synthetic, rows, without=np.array(places))
    heading = f"Numbers of {name}" + (", heaps apart" if places else "")
    return Chart(
        name=name,
        told=told,
        warned=bool(column.warnings),
        numbers=None if steps is None else svg.paired_steps(steps, title=heading, description=told),
        bars=svg.paired_bars(entries, title=f"Heaps and gaps of {name}", description=told) if entries else None,
    )


def bin_numbers(
    attribute: Attribute,
    real: Distribution,
    synthetic: Distribution,
    rows: tuple[int, int],
    *,
    without: NDArray[np.float64],
) -> svg.Steps | None:
    """Both tables' shares of rows in bins that fit the axis, without these values; None when nothing else is left."""
    points, counts = [], []
    for held in (real, synthetic):
        kept = ~(held.single & np.isin(held.low, without))
        points.append(held.center[kept])
        counts.append(held.counts[kept])
    both = np.concatenate(points)
    if both.size == 0:
        return None
    scale = axis_scale(attribute, both, np.concatenate(counts))
    # The axis covers heaps too: they are marked on it.
    ends = np.concatenate([both, without])
    edges = _edges(attribute, np.unique(ends), scale)
    first, second = (
        np.histogram(values, bins=edges, weights=times)[0] / n
        for values, times, n in zip(points, counts, rows, strict=True)
    )
    low, high = _bend(edges[[0, -1]], scale)

    def place(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((_bend(values, scale) - low) / (high - low))

    at = _ticks(attribute, edges, scale)
    ticks = tuple(zip(place(np.array(at)).tolist(), (tick_text(attribute, value) for value in at), strict=True))
    return svg.Steps(edges=place(edges), first=first, second=second, ticks=ticks, marks=tuple(place(without).tolist()))


def axis_scale(attribute: Attribute, points: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
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


def _bend(values: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    return values if scale == 0 else np.asarray(np.arcsinh(values / scale))


def _edges(attribute: Attribute, values: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """At most `_BINS` bins from the least value to the largest; one for each of few whole numbers."""
    low, high = float(values[0]), float(values[-1])
    whole = attribute.kind != "real" or bool((values == np.rint(values)).all())
    if not whole:
        ends = _bend(np.array([low, high]), scale)
        even = np.linspace(ends[0], ends[1] if high > low else ends[0] + 1.0, _BINS + 1)
        edges = even if scale == 0 else scale * np.sinh(even)
        edges[[0, -1]] = low, max(high, float(edges[-1]))
        return np.asarray(edges)
    if scale == 0:
        width = max(math.ceil((high - low + 1) / _BINS), 1)
        bins = math.ceil((high - low + 1) / width)
        return np.asarray(low - 0.5 + width * np.arange(bins + 1))
    first, last = _bend(np.array([low - 0.5, high + 0.5]), scale)
    bent = np.linspace(first, last, _BINS + 1)
    # Between whole numbers, so that no bin is empty because none lies in it.
    inner = np.unique(np.ceil(scale * np.sinh(bent[1:-1])) - 0.5)
    inner = inner[(inner > low - 0.5) & (inner < high + 0.5)]
    return np.concatenate([[low - 0.5], inner, [high + 0.5]])


def _ticks(attribute: Attribute, edges: NDArray[np.float64], scale: float) -> list[float]:
    low, high = float(edges[0]), float(edges[-1])
    if scale == 0:
        if attribute.kind in ("integer", "real"):
            step = _round_up((high - low) / 5)
            return [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
        return [math.ceil(low), math.floor(high)] if high - low >= 1 else [low]
    sizes = [scale * 10.0**k for k in range(-1, 1 + math.ceil(math.log10(max(abs(low), abs(high)) / scale)))]
    inside = [value for size in sizes for value in (size, -size) if low <= value <= high]
    # From the largest on, as long as labels do not touch.
    width, chosen = float(np.ptp(_bend(np.array([low, high]), scale))), [0.0] if low <= 0 <= high else []
    for value in reversed(inside):
        apart = np.abs(_bend(np.array(chosen), scale) - _bend(np.array([value]), scale))
        if apart.min(initial=width) >= width / 7:
            chosen.append(value)
    return sorted(chosen)


def _round_up(width: float) -> float:
    power = 10.0 ** math.floor(math.log10(width))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= width * (1 - 1e-9))


def tick_text(attribute: Attribute, value: float) -> str:
    """A label of an axis: short.

    >>> tick_text(Attribute(name="x", kind="integer", edges=(0, 1)), 1_500_000)
    '1.5M'
    """
    if attribute.kind not in ("integer", "real"):
        return brief(attribute, value).removesuffix(" 00:00")
    size, unit = next((each for each in _SHORT if abs(value) >= each[0]), (1.0, ""))
    return f"{value / size:.4g}{unit}" if abs(value) < 1e15 else f"{value:.0e}"
