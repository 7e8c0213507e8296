"""A small SVG writer: bars with error bars, heat maps, lines. Colors come from the page, so that dark mode works.

Numbers are written with one decimal, and every drawing carries a title and a description for those who cannot see it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sklar.answer.report.page import short, text

# Text stands on the darkest cell with a contrast above 4.5 in light and in dark, so cells go no further than this.
_DEEPEST = 0.5
# One pair that says the same thing twice must not bleach all others.
_SOFTER = 0.6

DASHES = ("", "6 3", "2 2", "8 2 2 2")
STROKES = ("var(--ink)", "var(--point)", "var(--bar)", "var(--soft)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: its label, its value with an interval, and a mark beside it."""

    label: str
    value: float
    low: float
    high: float
    mark: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line:
    """One line of a chart, as a step function: shares at errors."""

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]


def bars(entries: Sequence[Bar], *, title: str, description: str) -> str:
    """Horizontal bars on an axis of percent, with whiskers for intervals and ticks for marks."""
    left, right, step, width = 122.0, 312.0, 19.0, 360.0
    top = max(max(max(entry.high, entry.mark) for entry in entries), 1e-9)
    scale = (right - left) / top
    height = step * len(entries) + 4
    parts = [f'<line class="axis" x1="{left}" y1="0" x2="{left}" y2="{_n(height)}"/>']
    for index, entry in enumerate(entries):
        y = step * index + 2
        low, high = (left + scale * min(max(bound, 0.0), top) for bound in (entry.low, entry.high))
        mark, middle = left + scale * entry.mark, y + 7.5
        parts += [
            f'<text x="{_n(left - 6)}" y="{_n(middle + 4)}" font-size="11.5" text-anchor="end">'
            f"{text(short(entry.label, 17))}</text>",
            f'<rect class="bar" x="{_n(left)}" y="{_n(y + 2)}" '
            f'width="{_n(scale * max(entry.value, 0.0))}" height="11"/>',
            f'<path class="whisker" d="M{_n(low)} {_n(middle)}H{_n(high)}M{_n(low)} {_n(middle - 3)}v6'
            f'M{_n(high)} {_n(middle - 3)}v6"/>',
            f'<path class="tick" d="M{_n(mark)} {_n(middle - 7.5)}v15"/>',
            f'<text class="soft" x="{_n(width - 2)}" y="{_n(middle + 4)}" font-size="11" text-anchor="end">'
            f"{percent(entry.value)}</text>",
        ]
    return _svg(width, height, parts, title=title, description=description)


def percent(share: float) -> str:
    """A share as text: 12%, 1.2%, 0.12%."""
    value = 100 * share
    if abs(value) < 0.005:
        return "0%"
    return f"{value:.0f}%" if abs(value) >= 9.95 else f"{value:.1f}%" if abs(value) >= 0.995 else f"{value:.2f}%"


def heat_map(
    values: NDArray[np.float64],
    labels: Sequence[str],
    *,
    title: str,
    description: str,
    columns: Sequence[str] | None = None,
    written: Sequence[Sequence[str]] | None = None,
    top: float | None = None,
) -> tuple[str, int]:
    """Cells darker for larger values, with labels and, in small maps, the values written; and the width it needs.

    A symmetric map (no `columns`) leaves its diagonal empty.
    """
    rows, across = values.shape
    side, left, head = (36.0, 128.0, 98.0) if across <= 24 else (18.0, 128.0, 98.0)
    low = side if written is None else 22.0
    width, height = left + side * across + 60, head + low * rows + 4
    if across > 60:
        side = low = 12.0
        width, height = left + side * across + 60, head + low * rows + 4
    most = top if top is not None else max(float(values.max(initial=0.0)), 1e-12)
    parts = []
    for j, label in enumerate(labels if columns is None else columns):
        x = left + side * (j + 0.5)
        parts.append(
            f'<text x="{_n(x)}" y="{_n(head - 6)}" font-size="11" transform="rotate(-42 {_n(x)} {_n(head - 6)})">'
            f"{text(short(label, 17))}</text>"
        )
    for i in range(rows):
        y = head + low * i
        parts.append(
            f'<text x="{_n(left - 7)}" y="{_n(y + low / 2 + 4)}" font-size="11.5" text-anchor="end">'
            f"{text(short(labels[i], 18))}</text>"
        )
        for j in range(across):
            if columns is None and i == j:
                continue
            shade = _DEEPEST * min(max(float(values[i, j]) / most, 0.0), 1.0) ** _SOFTER
            x = left + side * j
            if shade >= 0.005:
                parts.append(
                    f'<rect class="cell" fill-opacity="{shade:.2f}" x="{_n(x)}" y="{_n(y)}" width="{_n(side - 1)}" '
                    f'height="{_n(low - 1)}"/>'
                )
            if written is not None or across <= 24:
                shown = written[i][j] if written is not None else f"{100 * values[i, j]:.0f}"
                parts.append(
                    f'<text x="{_n(x + side / 2 - 0.5)}" y="{_n(y + low / 2 + 3.5)}" font-size="10" '
                    f'text-anchor="middle">{text(shown)}</text>'
                )
    return _svg(width, height, parts, title=title, description=description), int(width)


def histogram(counts: Sequence[int], labels: Sequence[str], *, title: str, description: str) -> str:
    """Upright bars with their counts above and labels below."""
    width, height, base = 640.0, 190.0, 150.0
    step = (width - 20) / len(counts)
    most = max(max(counts), 1)
    parts = [f'<line class="axis" x1="10" y1="{base}" x2="{width - 10}" y2="{base}"/>']
    for index, (number, label) in enumerate(zip(counts, labels, strict=True)):
        x, tall = 10 + step * index, 120 * number / most
        parts += [
            f'<rect class="bar" x="{_n(x + 3)}" y="{_n(base - tall)}" width="{_n(step - 6)}" height="{_n(tall)}"/>',
            f'<text x="{_n(x + step / 2)}" y="{_n(base - tall - 5)}" font-size="12" '
            f'text-anchor="middle">{number:,}</text>',
            f'<text class="soft" x="{_n(x + step / 2)}" y="{_n(base + 18)}" font-size="12" text-anchor="middle">'
            f"{text(label)}</text>",
        ]
    return _svg(width, height, parts, title=title, description=description)


def cdfs(lines: Sequence[Line], *, title: str, description: str) -> str:
    """Shares of queries against their absolute error, on an axis that is linear below one and logarithmic above."""
    drawn = [line for line in lines if line.x.size]
    width, left, right, top, base = 520.0, 46.0, 490.0, 10.0, 284.0
    height = base + 52 + 18 * len(drawn)
    most = max(max((float(line.x[-1]) for line in drawn), default=1.0), 10.0)
    decades = math.ceil(math.log10(most))

    def across(x: NDArray[np.float64]) -> NDArray[np.float64]:
        share = np.where(x <= 1, x, 1 + np.log10(np.maximum(x, 1.0))) / (1 + decades)
        return left + (right - left) * share

    def up(y: NDArray[np.float64]) -> NDArray[np.float64]:
        return base - (base - top) * y

    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = float(up(np.array(share)))
        parts += [
            f'<line class="axis" x1="{left}" y1="{_n(y)}" x2="{right}" y2="{_n(y)}"/>',
            f'<text class="soft" x="{left - 6}" y="{_n(y + 4)}" font-size="11" text-anchor="end">{share:.0%}</text>',
        ]
    for value in (0, *(10**k for k in range(decades + 1))):
        x = float(across(np.array(float(value))))
        parts += [
            f'<line class="axis" x1="{_n(x)}" y1="{top}" x2="{_n(x)}" y2="{base}"/>',
            f'<text class="soft" x="{_n(x)}" y="{base + 16}" font-size="11" text-anchor="middle">{value:,}</text>',
        ]
    parts.append(
        f'<text class="soft" x="{_n((left + right) / 2)}" y="{base + 36}" font-size="12" text-anchor="middle">'
        "absolute error (rows)</text>"
    )
    for index, line in enumerate(drawn):
        xs, ys = across(line.x), up(line.y)
        path = f"M{_n(left)} {_n(base)}H{_n(float(xs[0]))}" + "".join(
            f"V{_n(float(b))}H{_n(float(a))}" for a, b in zip([*xs[1:], right], ys, strict=True)
        )
        stroke = f'style="stroke:{STROKES[index % 4]}" stroke-dasharray="{DASHES[index % 4]}"'
        at = base + 62 + 18 * index
        parts += [
            f'<path class="line" {stroke} d="{path}"/>',
            f'<path class="line" {stroke} d="M{left} {_n(at - 4)}h34"/>',
            f'<text x="{left + 44}" y="{_n(at)}" font-size="12">{text(line.label)}</text>',
        ]
    return _svg(width, height, parts, title=title, description=description)


def key(kind: str) -> str:
    """A small sample of a mark, for a legend; its meaning stands beside it as text."""
    drawn = {
        "bar": '<rect class="bar" x="1" y="3" width="22" height="9"/>',
        "whisker": '<path class="whisker" d="M3 7.5H21M3 4.5v6M21 4.5v6"/>',
        "tick": '<path class="tick" d="M12 0v15"/>',
    }[kind]
    return f'<svg viewBox="0 0 24 15" aria-hidden="true" focusable="false">{drawn}</svg>'


def _svg(width: float, height: float, parts: Sequence[str], *, title: str, description: str) -> str:
    return (
        f'<svg viewBox="0 0 {_n(width)} {_n(height)}" role="img" aria-label="{text(title)}. {text(description)}">\n'
        f"<title>{text(title)}</title>\n<desc>{text(description)}</desc>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
