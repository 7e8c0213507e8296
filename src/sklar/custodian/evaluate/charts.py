"""Histograms of every column, the real rows beside the synthetic ones, for the private report."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sklar.answer.report import svg
from sklar.answer.report.render import short
from sklar.answer.report.svg import Paired, axis_scale, bend, paired_bars, tick_text, ticks
from sklar.custodian.evaluate.numbers import brief
from sklar.custodian.evaluate.sketch import Distribution
from sklar.custodian.evaluate.verdict import Column
from sklar.public.schema import Attribute
from sklar.public.shown import shown_levels, shown_name, with_unit

MAX_CHARTS = 300
_BINS = 40
_BARS = 20
_HEAPS = 6


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Chart:
    """The drawings of one column: the numbers on their axis, and bars for heaps, missing values, texts or levels."""

    name: str
    told: str
    warned: bool
    numbers: Markup | None
    bars: Markup | None


def shown_title(column: Column) -> str:
    """What people call a column, with its unit."""
    return short(with_unit(column.attribute, shown_name(column.attribute)), 90)


def draw_category(column: Column, real: NDArray[np.float64], synthetic: NDArray[np.float64]) -> Chart:
    """The levels of a category in the order of the schema: all, or the largest. Shares of the rows, shape (levels,)."""
    largest = np.argsort(-np.maximum(real, synthetic), kind="stable")[:_BARS]
    levels = shown_levels(column.attribute)
    entries = [
        Paired(label=levels[place], first=float(real[place]), second=float(synthetic[place]))
        for place in np.sort(largest)
    ]
    left_out = len(levels) - len(entries)
    told = f"total variation {column.tv:.3f}" + (f", {left_out:,} smaller levels not shown" if left_out else "")
    name = shown_title(column)
    return Chart(
        name=name,
        told=told,
        warned=bool(column.warnings),
        numbers=None,
        bars=paired_bars(entries, title=f"Levels of {name}", description=told),
    )


def draw_numbers(column: Column, real: Distribution, synthetic: Distribution, rows: tuple[int, int]) -> Chart:
    """The numbers of a column without its heaps, and its heaps, missing values and texts as bars below.

    All heights are shares of the rows. Heaps stand apart because one of them would flatten all that is around it.
    """
    name, numbers = shown_title(column), column.numbers
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
        Paired(label=f"exactly {heap.what}", first=heap.real * held[0], second=heap.synthetic * held[1])
        for heap in sorted(apart, key=lambda heap: heap.value)
    ]
    others = ([column.missing] if column.missing is not None else []) + list(column.texts)
    entries += [
        Paired(label=each.what, first=each.real, second=each.synthetic)
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
        # Below an axis a bar stands for its share of all rows, not for the largest of a few.
        bars=paired_bars(entries, title=f"Heaps and gaps of {name}", description=told, least=0.5) if entries else None,
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
    low, high = bend(edges[[0, -1]], scale)

    def place(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((bend(values, scale) - low) / (high - low))

    at = ticks(attribute, float(edges[0]), float(edges[-1]), scale)
    labels = (tick_text(attribute, value) for value in at)
    labeled = tuple(zip(place(np.array(at)).tolist(), labels, strict=True))
    return svg.Steps(
        edges=place(edges), first=first, second=second, ticks=labeled, marks=tuple(place(without).tolist())
    )


def _edges(attribute: Attribute, values: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """At most `_BINS` bins from the least value to the largest; one for each of few whole numbers."""
    low, high = float(values[0]), float(values[-1])
    whole = attribute.kind != "real" or bool((values == np.rint(values)).all())
    if not whole:
        ends = bend(np.array([low, high]), scale)
        even = np.linspace(ends[0], ends[1] if high > low else ends[0] + 1.0, _BINS + 1)
        edges = even if scale == 0 else scale * np.sinh(even)
        edges[[0, -1]] = low, max(high, float(edges[-1]))
        return np.asarray(edges)
    if scale == 0:
        width = max(math.ceil((high - low + 1) / _BINS), 1)
        bins = math.ceil((high - low + 1) / width)
        return np.asarray(low - 0.5 + width * np.arange(bins + 1))
    first, last = bend(np.array([low - 0.5, high + 0.5]), scale)
    bent = np.linspace(first, last, _BINS + 1)
    # Between whole numbers, so that no bin is empty because none lies in it.
    inner = np.unique(np.ceil(scale * np.sinh(bent[1:-1])) - 0.5)
    inner = inner[(inner > low - 0.5) & (inner < high + 0.5)]
    return np.concatenate([[low - 0.5], inner, [high + 0.5]])
