"""Drawings as SVG: bars, histograms, heat maps, lines. Colors come from the page, so that dark mode works.

Every drawing carries a title and a description for those who cannot see it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sklar.answer.report.render import clean, percent, short

# Text on the darkest cell needs a contrast above 4.5 in light and in dark mode, so no cell is more opaque than this.
_DEEPEST = 0.5
# An exponent below one keeps weak cells visible beside one pair that says the same thing twice.
_SOFTER = 0.6

DASHES = ("", "6 3", "2 2", "8 2 2 2")
STROKES = ("var(--ink)", "var(--point)", "var(--bar)", "var(--soft)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: a label, a value with its interval, and a mark for a second value."""

    label: str
    value: float
    low: float
    high: float
    mark: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two shares of one thing: a label, and the shares of two tables."""

    label: str
    first: float
    second: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """Shares of two tables in the same bins, with the bins' edges and labeled places as positions from 0 to 1."""

    edges: NDArray[np.float64]
    first: NDArray[np.float64]
    second: NDArray[np.float64]
    ticks: tuple[tuple[float, str], ...]
    marks: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line:
    """One line of a chart: a step function with the share `y` from the error `x` on."""

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]


def bars(entries: Sequence[Bar], *, title: str, description: str) -> Markup:
    """Horizontal bars on an axis of percent, with whiskers for intervals and ticks for marks."""
    left, right, step, width = 122.0, 312.0, 19.0, 360.0
    top = max(max(max(entry.high, entry.mark) for entry in entries), 1e-9)
    scale = (right - left) / top
    height = step * len(entries) + 4
    parts = [_axis(left, 0, left, height)]
    for index, entry in enumerate(entries):
        middle = step * index + 9.5
        low, high = (left + scale * min(max(bound, 0.0), top) for bound in (entry.low, entry.high))
        ends = "".join(f"M{_n(end)} {_n(middle - 3)}v6" for end in (low, high))
        parts += [
            _text(left - 6, middle + 4, short(entry.label, 17), size=11.5, anchor="end"),
            _rect("bar", left, middle - 5.5, scale * max(entry.value, 0.0), 11),
            _element("path", class_="whisker", d=f"M{_n(low)} {_n(middle)}H{_n(high)}{ends}"),
            _element("path", class_="tick", d=f"M{_n(left + scale * entry.mark)} {_n(middle - 7.5)}v15"),
            _text(width - 2, middle + 4, percent(entry.value), size=11, anchor="end", class_="soft"),
        ]
    return _svg(width, height, parts, title=title, description=description)


def paired_bars(entries: Sequence[Paired], *, title: str, description: str) -> Markup:
    """Two horizontal bars for each entry, one above the other, with both shares beside them."""
    left, right, step, width = 118.0, 278.0, 24.0, 360.0
    scale = (right - left) / max(max(max(entry.first, entry.second) for entry in entries), 1e-9)
    height = step * len(entries) + 4
    parts = [_axis(left, 0, left, height)]
    for index, entry in enumerate(entries):
        top = step * index + 3
        written = f"{percent(entry.first)} | {percent(entry.second)}"
        parts += [
            _text(left - 6, top + 13, short(entry.label, 17), size=11.5, anchor="end"),
            _rect("bar", left, top, scale * entry.first, 9),
            _rect("second", left, top + 9, scale * entry.second, 9),
            _text(width - 2, top + 13, written, size=11, anchor="end", class_="soft"),
        ]
    return _svg(width, height, parts, title=title, description=description)


def paired_steps(steps: Steps, *, title: str, description: str) -> Markup:
    """Two histograms over the same bins: the first filled, the second as an outline over it."""
    left, right, top, base, width = 34.0, 352.0, 6.0, 126.0, 360.0
    most = max(float(max(steps.first.max(), steps.second.max())), 1e-9)
    across = left + (right - left) * steps.edges
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = base - (base - top) * share
        parts += [_axis(left, y, right, y), _text(left - 4, y + 4, percent(share * most), anchor="end", class_="soft")]
    for x, wide, share in zip(across, np.diff(across), steps.first, strict=False):
        tall = (base - top) * float(share) / most
        if tall > 0:
            parts.append(_rect("bar", float(x), base - tall, max(float(wide) - 0.4, 0.4), tall))
    outline = f"M{_n(float(across[0]))} {_n(base)}" + "".join(
        f"V{_n(base - (base - top) * float(share) / most)}H{_n(float(end))}"
        for end, share in zip(across[1:], steps.second, strict=True)
    )
    parts.append(_element("path", class_="outline", d=f"{outline}V{_n(base)}"))
    for place in steps.marks:
        x = left + (right - left) * place
        parts.append(_element("path", class_="mark", d=f"M{_n(x)} {_n(base + 1)}l-3 6h6z"))
    for place, label in steps.ticks:
        x = left + (right - left) * place
        anchor = "start" if place < 0.08 else "end" if place > 0.92 else "middle"
        parts += [
            _axis(x, base, x, base + 4),
            _text(min(max(x, 4.0), width - 2), base + 20, label, anchor=anchor, class_="soft"),
        ]
    return _svg(width, base + 26, parts, title=title, description=description)


def heat_map(
    values: NDArray[np.float64],
    labels: Sequence[str],
    *,
    title: str,
    description: str,
    columns: Sequence[str] | None = None,
    written: Sequence[Sequence[str]] | None = None,
    top: float | None = None,
) -> tuple[Markup, int]:
    """Draw darker cells for larger values, and write the values into them in small maps. Also returns the width.

    Without `columns` the map is symmetric, and its diagonal stays empty.
    """
    rows, across = values.shape
    side = 36.0 if across <= 24 else 18.0 if across <= 60 else 12.0
    low = 22.0 if written is not None and across <= 60 else side
    left, head = 128.0, 98.0
    width, height = left + side * across + 60, head + low * rows + 4
    most = top if top is not None else max(float(values.max(initial=0.0)), 1e-12)
    parts = []
    for j, label in enumerate(labels if columns is None else columns):
        x, y = left + side * (j + 0.5), head - 6
        parts.append(_text(x, y, short(label, 17), size=11, transform=f"rotate(-42 {_n(x)} {_n(y)})"))
    for i in range(rows):
        y = head + low * i
        parts.append(_text(left - 7, y + low / 2 + 4, short(labels[i], 18), size=11.5, anchor="end"))
        for j in range(across):
            if columns is None and i == j:
                continue
            x = left + side * j
            shade = _DEEPEST * min(max(float(values[i, j]) / most, 0.0), 1.0) ** _SOFTER
            if shade >= 0.005:
                parts.append(_rect("cell", x, y, side - 1, low - 1, fill_opacity=f"{shade:.2f}"))
            if written is not None or across <= 24:
                shown = written[i][j] if written is not None else f"{100 * values[i, j]:.0f}"
                parts.append(_text(x + side / 2 - 0.5, y + low / 2 + 3.5, shown, size=10, anchor="middle"))
    return _svg(width, height, parts, title=title, description=description), int(width)


def histogram(counts: Sequence[int], labels: Sequence[str], *, title: str, description: str) -> Markup:
    """Upright bars with counts above and labels below."""
    width, height, base = 640.0, 190.0, 150.0
    step = (width - 20) / len(counts)
    most = max(max(counts), 1)
    parts = [_axis(10, base, width - 10, base)]
    for index, (count, label) in enumerate(zip(counts, labels, strict=True)):
        x, tall = 10 + step * index, 120 * count / most
        parts += [
            _rect("bar", x + 3, base - tall, step - 6, tall),
            _text(x + step / 2, base - tall - 5, f"{count:,}", size=12, anchor="middle"),
            _text(x + step / 2, base + 18, label, size=12, anchor="middle", class_="soft"),
        ]
    return _svg(width, height, parts, title=title, description=description)


def cdfs(lines: Sequence[Line], *, title: str, description: str) -> Markup:
    """Shares of queries by absolute error. The axis is linear below one and logarithmic above."""
    width, left, right, top, base = 520.0, 46.0, 490.0, 10.0, 284.0
    height = base + 52 + 18 * len(lines)
    most = max(max((float(line.x[-1]) for line in lines), default=1.0), 10.0)
    decades = math.ceil(math.log10(most))

    def across(x: NDArray[np.float64]) -> NDArray[np.float64]:
        share = np.where(x <= 1, x, 1 + np.log10(np.maximum(x, 1.0))) / (1 + decades)
        return left + (right - left) * share

    def up(y: NDArray[np.float64]) -> NDArray[np.float64]:
        return base - (base - top) * y

    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = float(up(np.array(share)))
        parts += [_axis(left, y, right, y), _text(left - 6, y + 4, f"{share:.0%}", anchor="end", class_="soft")]
    for value in (0, *(10**k for k in range(decades + 1))):
        x = float(across(np.array(float(value))))
        parts += [_axis(x, top, x, base), _text(x, base + 16, f"{value:,}", anchor="middle", class_="soft")]
    middle = (left + right) / 2
    parts.append(_text(middle, base + 36, "absolute error (rows)", size=12, anchor="middle", class_="soft"))
    for index, line in enumerate(lines):
        xs, ys = across(line.x), up(line.y)
        path = f"M{_n(left)} {_n(base)}H{_n(float(xs[0]))}" + "".join(
            f"V{_n(float(b))}H{_n(float(a))}" for a, b in zip([*xs[1:], right], ys, strict=True)
        )
        at = base + 62 + 18 * index
        stroke = {"style": f"stroke:{STROKES[index % 4]}", "stroke_dasharray": DASHES[index % 4]}
        parts += [
            _element("path", class_="line", d=drawn, **stroke) for drawn in (path, f"M{_n(left)} {_n(at - 4)}h34")
        ]
        parts.append(_text(left + 44, at, line.label, size=12))
    return _svg(width, height, parts, title=title, description=description)


def _svg(width: float, height: float, parts: Sequence[Markup], *, title: str, description: str) -> Markup:
    told = [_element("title", title), _element("desc", description)]
    box = f"0 0 {_n(width)} {_n(height)}"
    return _element(
        "svg", Markup("\n").join([*told, *parts]), viewBox=box, role="img", aria_label=f"{title}. {description}"
    )


def _rect(class_: str, x: float, y: float, width: float, height: float, **attributes: str) -> Markup:
    return _element("rect", class_=class_, x=x, y=y, width=width, height=height, **attributes)


def _axis(x1: float, y1: float, x2: float, y2: float) -> Markup:
    return _element("line", class_="axis", x1=x1, y1=y1, x2=x2, y2=y2)


def _text(x: float, y: float, content: str, *, size: float = 11, anchor: str = "start", **attributes: str) -> Markup:
    return _element("text", content, x=x, y=y, font_size=size, text_anchor=anchor, **attributes)


def _element(name: str, content: str | None = None, **attributes: str | float) -> Markup:
    """Make an element, with its attributes and content escaped. All drawings consist of these elements."""
    written = Markup("").join(
        Markup(' {}="{}"').format(
            key.rstrip("_").replace("_", "-"), clean(value) if isinstance(value, str) else _n(value)
        )
        for key, value in attributes.items()
    )
    if content is None:
        return Markup("<{}{}/>").format(name, written)
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, clean(content))


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
