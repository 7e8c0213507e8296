"""Drawings as SVG: histograms, heat maps, lines, and what they are made of. Colors come from the page, so that dark
mode works. `bars` has those that need room for long labels.

Every drawing carries a title and a description for those who cannot see it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sklar.answer.report.render import clean, percent

# Text on the darkest cell needs a contrast above 4.5 in light and in dark mode, so no cell is more opaque than this.
_DEEPEST = 0.5
# An exponent below one keeps weak cells visible beside one pair that says the same thing twice.
_SOFTER = 0.6

# The most room that a label of a map gets.
_LONGEST = 240.0
# Widths of letters in parts of their height, as fonts without serifs have them.
_NARROW, _WIDE_LETTERS = frozenset("iljtfrI.,:;'|![]() "), frozenset("mwMWQ@%&—…")

DASHES = ("", "6 3", "2 2", "8 2 2 2")
STROKES = ("var(--ink)", "var(--point)", "var(--bar)", "var(--soft)")


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


def text_width(label: str, size: float) -> float:
    """About how wide a text is: fonts differ, so it is estimated from above.

    >>> text_width("iii", 10) < text_width("abc", 10) < text_width("WWW", 10)
    True
    """
    total = 0.0
    for letter in label:
        if letter in _NARROW:
            total += 0.36
        elif letter in _WIDE_LETTERS:
            total += 0.95
        elif ord(letter) > 0x2E7F:
            total += 1.05
        else:
            total += 0.72 if letter.isupper() else 0.6
    return total * size


def fitted(label: str, width: float, size: float) -> str:
    """A text that fits, cut where it does not."""
    if text_width(label, size) <= width:
        return label
    kept = label
    while kept and text_width(f"{kept}…", size) > width:
        kept = kept[:-1]
    return f"{kept.rstrip()}…"


def paired_steps(steps: Steps, *, title: str, description: str) -> Markup:
    """Two histograms over the same bins: the first filled, the second as an outline over it."""
    left, right, top, base, width = 34.0, 352.0, 6.0, 126.0, 360.0
    most = max(float(max(steps.first.max(), steps.second.max())), 1e-9)
    across = left + (right - left) * steps.edges
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = base - (base - top) * share
        parts += [axis(left, y, right, y), text(left - 4, y + 4, percent(share * most), anchor="end", class_="soft")]
    for x, wide, share in zip(across, np.diff(across), steps.first, strict=False):
        tall = (base - top) * float(share) / most
        if tall > 0:
            parts.append(rect("bar", float(x), base - tall, max(float(wide) - 0.4, 0.4), tall))
    outline = f"M{digits(float(across[0]))} {digits(base)}" + "".join(
        f"V{digits(base - (base - top) * float(share) / most)}H{digits(float(end))}"
        for end, share in zip(across[1:], steps.second, strict=True)
    )
    parts.append(element("path", class_="outline", d=f"{outline}V{digits(base)}"))
    for place in steps.marks:
        x = left + (right - left) * place
        parts.append(element("path", class_="mark", d=f"M{digits(x)} {digits(base + 1)}l-3 6h6z"))
    for place, label in steps.ticks:
        x = left + (right - left) * place
        anchor = "start" if place < 0.08 else "end" if place > 0.92 else "middle"
        parts += [
            axis(x, base, x, base + 4),
            text(min(max(x, 4.0), width - 2), base + 20, label, anchor=anchor, class_="soft"),
        ]
    return drawing(width, base + 26, parts, title=title, description=description)


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
    across_top = labels if columns is None else columns
    left = min(max(max(text_width(label, 11.5) for label in labels) + 14, 60.0), _LONGEST)
    # A label is turned by 42 degrees: it rises by two thirds of its length.
    longest = min(max(text_width(label, 11) for label in across_top), _LONGEST)
    head, beyond = 20.0 + 0.67 * longest, 0.75 * longest
    width, height = left + side * across + max(beyond - side / 2, 10.0), head + low * rows + 4
    most = top if top is not None else max(float(values.max(initial=0.0)), 1e-12)
    parts = []
    for j, label in enumerate(across_top):
        x, y = left + side * (j + 0.5), head - 6
        told = fitted(label, _LONGEST - 10, 11)
        parts.append(text(x, y, told, size=11, transform=f"rotate(-42 {digits(x)} {digits(y)})"))
    for i in range(rows):
        y = head + low * i
        parts.append(text(left - 7, y + low / 2 + 4, fitted(labels[i], left - 10, 11.5), size=11.5, anchor="end"))
        for j in range(across):
            if columns is None and i == j:
                continue
            x = left + side * j
            shade = _DEEPEST * min(max(float(values[i, j]) / most, 0.0), 1.0) ** _SOFTER
            if shade >= 0.005:
                parts.append(rect("cell", x, y, side - 1, low - 1, fill_opacity=f"{shade:.2f}"))
            if written is not None or across <= 24:
                shown = written[i][j] if written is not None else f"{100 * values[i, j]:.0f}"
                parts.append(text(x + side / 2 - 0.5, y + low / 2 + 3.5, shown, size=10, anchor="middle"))
    return drawing(width, height, parts, title=title, description=description), int(width)


def histogram(counts: Sequence[int], labels: Sequence[str], *, title: str, description: str) -> Markup:
    """Upright bars with counts above and labels below."""
    width, height, base = 640.0, 190.0, 150.0
    step = (width - 20) / len(counts)
    most = max(max(counts), 1)
    parts = [axis(10, base, width - 10, base)]
    for index, (count, label) in enumerate(zip(counts, labels, strict=True)):
        x, tall = 10 + step * index, 120 * count / most
        parts += [
            rect("bar", x + 3, base - tall, step - 6, tall),
            text(x + step / 2, base - tall - 5, f"{count:,}", size=12, anchor="middle"),
            text(x + step / 2, base + 18, label, size=12, anchor="middle", class_="soft"),
        ]
    return drawing(width, height, parts, title=title, description=description)


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
        parts += [axis(left, y, right, y), text(left - 6, y + 4, f"{share:.0%}", anchor="end", class_="soft")]
    for value in (0, *(10**k for k in range(decades + 1))):
        x = float(across(np.array(float(value))))
        parts += [axis(x, top, x, base), text(x, base + 16, f"{value:,}", anchor="middle", class_="soft")]
    middle = (left + right) / 2
    parts.append(text(middle, base + 36, "absolute error (rows)", size=12, anchor="middle", class_="soft"))
    for index, line in enumerate(lines):
        xs, ys = across(line.x), up(line.y)
        path = f"M{digits(left)} {digits(base)}H{digits(float(xs[0]))}" + "".join(
            f"V{digits(float(b))}H{digits(float(a))}" for a, b in zip([*xs[1:], right], ys, strict=True)
        )
        at = base + 62 + 18 * index
        stroke = {"style": f"stroke:{STROKES[index % 4]}", "stroke_dasharray": DASHES[index % 4]}
        parts += [
            element("path", class_="line", d=drawn, **stroke)
            for drawn in (path, f"M{digits(left)} {digits(at - 4)}h34")
        ]
        parts.append(text(left + 44, at, line.label, size=12))
    return drawing(width, height, parts, title=title, description=description)


def drawing(width: float, height: float, parts: Sequence[Markup], *, title: str, description: str) -> Markup:
    """A drawing of these parts."""
    told = [element("title", title), element("desc", description)]
    box = f"0 0 {digits(width)} {digits(height)}"
    return element(
        "svg", Markup("\n").join([*told, *parts]), viewBox=box, role="img", aria_label=f"{title}. {description}"
    )


def rect(class_: str, x: float, y: float, width: float, height: float, **attributes: str) -> Markup:
    """A rectangle."""
    return element("rect", class_=class_, x=x, y=y, width=width, height=height, **attributes)


def axis(x1: float, y1: float, x2: float, y2: float) -> Markup:
    """A thin line."""
    return element("line", class_="axis", x1=x1, y1=y1, x2=x2, y2=y2)


def text(x: float, y: float, content: str, *, size: float = 11, anchor: str = "start", **attributes: str) -> Markup:
    """A line of text."""
    return element("text", content, x=x, y=y, font_size=size, text_anchor=anchor, **attributes)


def element(name: str, content: str | None = None, **attributes: str | float) -> Markup:
    """Make an element, with its attributes and content escaped. All drawings consist of these elements."""
    written = Markup("").join(
        Markup(' {}="{}"').format(
            key.rstrip("_").replace("_", "-"), clean(value) if isinstance(value, str) else digits(value)
        )
        for key, value in attributes.items()
    )
    if content is None:
        return Markup("<{}{}/>").format(name, written)
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, clean(content))


def digits(value: float) -> str:
    """A coordinate, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")
