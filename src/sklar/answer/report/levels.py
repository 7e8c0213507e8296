"""One attribute at a time: every level with its error bar, beside the synthetic rows.

Bins of numbers stand on their axis, and the area of a bar is its share. What lies on no axis (categories, points,
special values, missing values) has bars of its own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sklar.answer.effects import Floats
from sklar.answer.report.render import percent, short
from sklar.answer.report.svg import Bar, Bins, axis_scale, bars, bend, bins, tick_text, ticks
from sklar.public.schema import Attribute
from sklar.public.shown import shown_levels, shown_name, with_unit

if TYPE_CHECKING:
    from sklar.files.model import Model

# These limits keep the page readable, and below 5 MB, however large the domains are.
MAX_BARS = 40
MANY_BARS = 20
_MAX_BINS = 200
_MAX_FIGURES = 60
_SQUEEZED = 30.0
_FLATTENS = 3.0


def shown_count(count: float, half_width: float) -> str:
    """A noisy count as a person can read it: nobody counts less than nothing.

    >>> shown_count(1234.4, 85.0), shown_count(-12.0, 85.2)
    ('1,234', '0 (noise: ±85)')
    """
    return f"{count:,.0f}" if count > 0 else f"0 (noise: ±{half_width:,.0f})"


def shown_share(count: float, half_width: float, rows: int) -> str:
    """The share of a noisy count, or that it is nothing but noise."""
    return percent(count / rows) if count > 0 else shown_count(count, half_width)


def draw(model: Model, attribute: Attribute, synthetic: Floats) -> dict[str, Any]:
    """The drawings of an attribute, the sentence that says what they are, and the figures behind them.

    `synthetic` are the shares of its levels among synthetic rows, shape (levels,).
    """
    estimate, n, labels = model.estimate(attribute.name), model.n_rows, shown_levels(attribute)
    counts, half, every = estimate.counts, estimate.high - estimate.counts, np.arange(attribute.n_levels)
    on_axis = attribute.bin_codes if attribute.edges else every[:0]
    heaps = _heaps(attribute, counts, on_axis)
    apart = np.union1d(np.setdiff1d(every, on_axis), heaps)
    if on_axis.size - heaps.size <= 1:
        # One bin has no shape.
        on_axis, apart = on_axis[:0], every
    shown, left_out = apart, apart[:0]
    if apart.size > MAX_BARS:
        # The largest levels get a bar each, in the order of the schema; the others share one.
        order = np.argsort(-counts[apart], kind="stable")
        shown, left_out = np.sort(apart[order[:MANY_BARS]]), np.sort(apart[order[MANY_BARS:]])

    def bar(label: str, codes: NDArray[np.int64]) -> Bar:
        # Noise of levels is independent: variances add.
        count, reach = float(counts[codes].sum()), math.sqrt(float((half[codes] ** 2).sum()))
        low, high, mark = (count - reach) / n, (count + reach) / n, float(synthetic[codes].sum())
        told = shown_share(count, reach, n)
        return Bar(label=label, value=count / n, low=low, high=high, mark=mark, told=told)

    entries = [bar(labels[k], every[k : k + 1]) for k in shown]
    if left_out.size:
        entries.append(bar(f"{left_out.size:,} others together", left_out))
    largest = int(np.argmax(counts))
    share, low, high = (max(float(each[largest]), 0.0) / n for each in (counts, estimate.low, estimate.high))
    told = (
        f"The largest is {short(labels[largest], 60)} with {percent(share)} of the rows, 95% interval {percent(low)} "
        f"to {percent(min(high, 1.0))}; synthetic rows have {percent(float(synthetic[largest]))}."
    )
    title, axis = f"Shares of the rows by {short(shown_name(attribute), 60)}", None
    if on_axis.size:
        kept = ~np.isin(every, heaps)
        axis = bins(_on_axis(attribute, n, *(kept * each for each in (counts, half, synthetic))), title, told)
    lows, highs = (np.maximum(each, 0.0) for each in (estimate.low, estimate.high))
    return {
        "name": short(with_unit(attribute, shown_name(attribute)), 90),
        "column": "" if shown_name(attribute) == attribute.name else short(attribute.name, 60),
        "about": " ".join((attribute.words.description or "").split()),
        "sentence": _sentence(attribute, binned=on_axis.size > 0, apart=apart.size, left_out=left_out.size),
        "on_axis": axis,
        # Below an axis a bar stands for its share of all rows, not for the largest of a few.
        "apart": bars(entries, title, told, least=0.5 if on_axis.size else 1e-9) if entries else None,
        "figures": tuple(
            (
                short(labels[k], 80),
                shown_count(float(counts[k]), float(half[k])),
                shown_share(float(counts[k]), float(half[k]), n),
                f"{lows[k]:,.0f} to {highs[k]:,.0f}",
                f"{synthetic[k] * n:,.0f}",
            )
            for k in (every if attribute.n_levels <= _MAX_FIGURES else ())
        ),
    }


def _sentence(attribute: Attribute, *, binned: bool, apart: int, left_out: int) -> str:
    what = "of the rows with each value"
    if binned:
        ends = {"integer": "numbers", "real": "numbers", "date": "dates", "datetime": "moments", "time": "times of day"}
        what = f"of the rows between two {ends.get(attribute.kind, f'{attribute.kind}s')}: a bar's area is its share"
        if apart:
            what += "; single values, and what lies on no axis, have bars below"
    rest = f". The {left_out:,} smallest values have one bar together" if left_out else ""
    return f"Share {what}{rest}."


def _heaps(attribute: Attribute, counts: Floats, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bins of a single whole number that would flatten all others: they stand apart, as points do."""
    if attribute.kind not in ("integer", "year"):
        return codes[:0]
    widths = np.diff(np.array(attribute.edges, dtype=np.float64))
    density = np.maximum(counts[codes], 0.0) / widths
    order = np.argsort(-density, kind="stable")
    heaps = 0
    # From the tallest on, as long as it is a single number that towers over the next.
    while heaps < order.size - 1 and widths[order[heaps]] == 1:
        if density[order[heaps]] <= _FLATTENS * density[order[heaps + 1]]:
            break
        heaps += 1
    return np.asarray(np.sort(codes[order[:heaps]]))


def _on_axis(attribute: Attribute, n: int, counts: Floats, half: Floats, synthetic: Floats) -> Bins:
    """The bins of an attribute, neighbors together where they are too many to draw."""
    codes, labels, edges = attribute.bin_codes, shown_levels(attribute), np.array(attribute.edges, dtype=np.float64)
    starts = np.unique(np.linspace(0, codes.size, min(codes.size, _MAX_BINS) + 1).astype(np.int64))[:-1]
    counts, marks = (np.add.reduceat(each[codes], starts) for each in (counts, synthetic))
    half = np.sqrt(np.add.reduceat(half[codes] ** 2, starts))
    kept = edges[[*starts, codes.size]]
    middles = (kept[:-1] + kept[1:]) / 2
    # The axis stays linear unless half of the rows would be squeezed into a small part of it.
    weights, sizes = np.maximum(counts, 0.0) + 1e-9, np.abs(middles)
    order = np.argsort(sizes)
    upto = np.cumsum(weights[order])
    median = float(sizes[order[int(np.searchsorted(upto, upto[-1] / 2))]])
    scale = 0.0 if sizes.max() < _SQUEEZED * median else axis_scale(attribute, middles, weights)
    low, high = bend(kept[[0, -1]], scale)

    def place(values: Floats) -> Floats:
        return np.asarray((bend(values, scale) - low) / (high - low))

    at = ticks(attribute, float(kept[0]), float(kept[-1]), scale)
    shares = np.stack([*(np.maximum(each, 0.0) / n for each in (counts, counts - half, counts + half)), marks])
    told = [
        f"{labels[codes[start]]}{' and on' if starts.size < codes.size else ''}: "
        f"{shown_share(float(counts[k]), float(half[k]), n)}, 95% interval {percent(float(shares[1, k]))} to "
        f"{percent(float(shares[2, k]))}; synthetic rows {percent(float(marks[k]))}"
        for k, start in enumerate(starts)
    ]
    labeled = tuple(zip(place(np.array(at)).tolist(), (tick_text(attribute, each) for each in at), strict=True))
    return Bins(edges=place(kept), shares=shares, ticks=labeled, told=tuple(told))
