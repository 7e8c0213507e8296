"""Bars with room for their labels: beside each other for categories, on an axis for bins of numbers.

Labels are never cut as long as three lines hold them; the drawing gives them the room that they need.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sklar.answer.report.render import percent
from sklar.answer.report.svg import axis, digits, drawing, element, fitted, rect, text, text_width

WIDTH = 380.0
_SIZE, _LINE = 11.5, 13.5
_MOST_LINES = 3
# The part of the drawing that labels may take.
_LABELS = 0.45
_CAPS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: a label, a value with its interval, a mark for a second value, and what is written behind it."""

    label: str
    value: float
    low: float
    high: float
    mark: float
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two shares of one thing: a label, and the shares of two tables."""

    label: str
    first: float
    second: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bins:
    """Bins on an axis: edges and ticks as positions from 0 to 1; shares, their intervals, and a second table's shares.

    `told` says of each bin what it is and how large, for those who point at it.
    """

    edges: NDArray[np.float64]
    shares: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    marks: NDArray[np.float64]
    ticks: tuple[tuple[float, str], ...]
    told: tuple[str, ...]


def wrap(label: str, width: float, size: float = _SIZE) -> list[str]:
    """A label in at most three lines of this width, broken between words where it has any."""
    lines: list[str] = []
    line = ""
    for word in re.findall(r"\S+\s*", label) or [label]:
        while text_width(word.rstrip(), size) > width and len(word) > 1:
            # A word that is longer than a line is broken where the line ends.
            room = len(word)
            while room > 1 and text_width(line + word[:room], size) > width:
                room -= 1
            if room == 1 and line:
                lines.append(line.rstrip())
                line = ""
                continue
            lines.append((line + word[:room]).rstrip())
            line, word = "", word[room:]
        if line and text_width((line + word).rstrip(), size) > width:
            lines.append(line.rstrip())
            line = ""
        line += word
    lines.append(line.rstrip())
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], fitted(" ".join(lines[_MOST_LINES - 1 :]) + "…", width, size)]
    return [line for line in lines if line] or [label]


def bars(entries: Sequence[Bar], *, title: str, description: str, least: float = 1e-9) -> Markup:
    """Horizontal bars on an axis of shares, with whiskers for intervals and ticks for marks.

    The axis reaches to the largest of them, and to `least` at least.
    """
    left, labels = _labels([entry.label for entry in entries])
    right = WIDTH - max(text_width(entry.told, 11) for entry in entries) - 10
    top = max(max(max(entry.high, entry.mark) for entry in entries), least)
    scale = (right - left) / top
    parts, y = [], 2.0
    for entry, lines in zip(entries, labels, strict=True):
        height = max(19.0, _LINE * len(lines) + 5)
        middle = y + height / 2
        low, high = (left + scale * min(max(bound, 0.0), top) for bound in (entry.low, entry.high))
        ends = "".join(f"M{digits(end)} {digits(middle - 3)}v6" for end in (low, high))
        parts += [
            *_lines(lines, left - 7, middle),
            rect("bar", left, middle - 5.5, scale * max(entry.value, 0.0), 11),
            element("path", class_="whisker", d=f"M{digits(low)} {digits(middle)}H{digits(high)}{ends}"),
            element(
                "path", class_="tick", d=f"M{digits(left + scale * max(entry.mark, 0.0))} {digits(middle - 7.5)}v15"
            ),
            text(WIDTH - 2, middle + 4, entry.told, size=11, anchor="end", class_="soft"),
        ]
        y += height
    return drawing(WIDTH, y + 2, [axis(left, 0, left, y), *parts], title=title, description=description)


def paired_bars(entries: Sequence[Paired], *, title: str, description: str, least: float = 1e-9) -> Markup:
    """Two horizontal bars for each entry, one above the other, with both shares beside them. `least` as in `bars`."""
    left, labels = _labels([entry.label for entry in entries])
    told = [f"{percent(entry.first)} | {percent(entry.second)}" for entry in entries]
    right = WIDTH - max(text_width(each, 11) for each in told) - 10
    scale = (right - left) / max(max(max(entry.first, entry.second) for entry in entries), least)
    parts, y = [], 2.0
    for entry, lines, written in zip(entries, labels, told, strict=True):
        height = max(24.0, _LINE * len(lines) + 6)
        middle = y + height / 2
        parts += [
            *_lines(lines, left - 7, middle),
            rect("bar", left, middle - 9, scale * entry.first, 9),
            rect("second", left, middle, scale * entry.second, 9),
            text(WIDTH - 2, middle + 4, written, size=11, anchor="end", class_="soft"),
        ]
        y += height
    return drawing(WIDTH, y + 2, [axis(left, 0, left, y), *parts], title=title, description=description)


def bins(shown: Bins, *, title: str, description: str) -> Markup:
    """Upright bars on an axis: the area of each is its share, so that wide bins do not look larger than they are."""
    left, right, top, base = 6.0, WIDTH - 6.0, 8.0, 132.0
    across = left + (right - left) * shown.edges
    widths = np.maximum(np.diff(across), 0.5)
    tallest = max(float((np.maximum(shown.shares, shown.marks) / widths).max()), 1e-12)
    # Whiskers of narrow bins may be very tall: they end at the top of the drawing.
    tallest = min(max(tallest, float((shown.high / widths).max())), 1.6 * tallest)

    def height(share: float, width: float) -> float:
        return (base - top) * min(max(share / width / tallest, 0.0), 1.0)

    parts = [axis(left, base, right, base)]
    caps = len(widths) <= _CAPS
    for at, (x, width) in enumerate(zip(across[:-1], widths, strict=True)):
        bar, low, high, mark = (
            base - height(float(each[at]), float(width)) for each in (shown.shares, shown.low, shown.high, shown.marks)
        )
        middle, cap = float(x) + float(width) / 2, min(3.0, float(width) / 3)
        ends = "".join(f"M{digits(middle - cap)} {digits(y)}h{digits(2 * cap)}" for y in (low, high)) if caps else ""
        inside = [
            element("title", shown.told[at]),
            # As wide as the bin and as tall as the drawing, so that small bins can be pointed at.
            rect("hover", float(x), top, float(width), base - top),
            rect("bar", float(x), bar, max(float(width) - 0.6, 0.4), base - bar),
            element("path", class_="whisker", d=f"M{digits(middle)} {digits(low)}V{digits(high)}{ends}"),
            element("path", class_="tick", d=f"M{digits(float(x))} {digits(mark)}h{digits(float(width))}"),
        ]
        parts.append(element("g", Markup("").join(inside)))
    for place, label in shown.ticks:
        x = left + (right - left) * place
        half = text_width(label, 11) / 2
        parts += [
            axis(x, base, x, base + 4),
            text(min(max(x, half), WIDTH - half), base + 17, label, anchor="middle", class_="soft"),
        ]
    return drawing(WIDTH, base + 22, parts, title=title, description=description)


def _labels(labels: Sequence[str]) -> tuple[float, list[list[str]]]:
    """Where bars begin, and the lines of each label to the left of it."""
    longest = max(text_width(label, _SIZE) for label in labels)
    room = min(longest, WIDTH * _LABELS)
    return room + 10, [wrap(label, room) for label in labels]


def _lines(lines: Sequence[str], x: float, middle: float) -> list[Markup]:
    first = middle + 4 - _LINE * (len(lines) - 1) / 2
    return [text(x, first + _LINE * at, line, size=_SIZE, anchor="end") for at, line in enumerate(lines)]
