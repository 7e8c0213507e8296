"""Drawings as SVG: bars, histograms, heat maps, lines and axes. Colors come from the page, so that dark mode works."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sklar.answer.report.render import clean, percent
from sklar.kernel.cells import Doubles
from sklar.public.schema import Attribute

# Of drawings of one attribute.
WIDTH = 380.0
_SIZE, _LINE = 11.5, 13.5
_MOST_LINES = 3
# The part of the drawing that labels may take.
_LABELS = 0.45
_CAPS = 40
# Text on the darkest cell needs a contrast above 4.5 in light and in dark mode, so no cell is more opaque than this.
_DEEPEST = 0.5
# An exponent below one keeps weak cells visible beside one pair that says the same thing twice.
_SOFTER = 0.6
# Sides of the cells of a map with at most so many.
_SIDES = ((10, 28.0), (24, 22.0), (60, 18.0))
# The most room that a label of a map gets.
_LONGEST = 240.0
# Widths of letters in parts of their height, as fonts without serifs have them.
_NARROW, _WIDE_LETTERS = frozenset("iljtfrI.,:;'|![]() "), frozenset("mwMWQ@%&—…")
# Narrow letters, wide ones, those of East Asian scripts, capitals; all others are 0.6.
_WIDTHS = (0.36, 0.95, 1.05, 0.72)
# An axis is symmetric-logarithmic when the largest number is this many times a small one (the least tenth of them).
_WIDE = 30.0
# A tail with less than this share of rows is not drawn where it would take most of an axis; how much taller than all
# others a narrow bar is that is cut.
_TAIL, _TOWERS = 0.005, 3.0
# A single value so near to the end of an axis still stands there: 0 below a bin that begins at 1.
_NEAR_END = 0.02
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SECOND = 1_000_000
# Months between ticks of dates.
_MONTHS = (1, 3, 6, 12, 24, 60, 120, 240, 600, 1_200)
_MOST_TICKS = 6

# Labels of an axis and their positions from 0 to 1.
Ticks: TypeAlias = tuple[tuple[float, str], ...]


class Bar(NamedTuple):
    """One bar: a label, a value with its interval, a mark for a second value, and the text behind it."""

    label: str
    value: float
    low: float
    high: float
    mark: float
    told: str


class Binned(NamedTuple):
    """Shares of two tables in bins on an axis: edges and ticks are positions from 0 to 1.

    `shares`, shape (4, bins), are those of a table, the ends of their intervals, and those of a second table; `told`
    says what each bin is, to those who point at it, and `beyond` what lies where the drawing ends. `spikes` are single
    values: where each stands, its share of the first table, and what it is.
    """

    edges: Doubles
    shares: Doubles
    ticks: Ticks
    told: Sequence[str]
    beyond: str = ""
    spikes: Sequence[tuple[float, float, str]] = ()


def binned(
    attribute: Attribute,
    edges: Doubles,
    scale: float,
    shares: Doubles,
    told: Sequence[str],
    beyond: str,
    heaps: Iterable[tuple[float, float]] = (),
) -> Binned:
    """Bins between these edges, and single values with their shares, on an axis of this scale with its ticks."""
    low, high = bend(edges[[0, -1]], scale)
    values, heaps = ticks(attribute, float(edges[0]), float(edges[-1]), scale), [*heaps]
    points = [point for point, _ in heaps]
    places, across, spots = ((bend(np.asarray(each), scale) - low) / (high - low) for each in (values, edges, points))
    labels = (tick_text(attribute, value) for value in values)
    spikes = [
        (spot, share, f"{tick_text(attribute, point)}: {percent(max(share, 0.0))}")
        for spot, (point, share) in zip(spots.tolist(), heaps, strict=True)
        if -_NEAR_END <= spot <= 1 + _NEAR_END
    ]
    return Binned(across, shares, tuple(zip(places.tolist(), labels, strict=True)), told, beyond, spikes)


def text_width(label: str, size: float) -> float:
    """About how wide a text is: fonts differ, so it is estimated from above."""
    kinds = ((letter in _NARROW, letter in _WIDE_LETTERS, ord(letter) > 0x2E7F, letter.isupper()) for letter in label)
    return size * sum(next((width for of, width in zip(kind, _WIDTHS, strict=True) if of), 0.6) for kind in kinds)


def fitted(label: str, width: float, size: float) -> str:
    """A text that fits, cut where it does not."""
    if text_width(label, size) <= width:
        return label
    while label and text_width(f"{label}…", size) > width:
        label = label[:-1]
    return f"{label.rstrip()}…"


def wrap(label: str, width: float) -> list[str]:
    """A label in at most three lines of this width: as many letters a line as fit in all of them."""
    if text_width(label, _SIZE) <= width:
        return [label]
    # No letter is narrower than the narrow ones.
    most = int(width / (_SIZE * _WIDTHS[0]))
    tried = (textwrap.wrap(label, size, max_lines=_MOST_LINES, placeholder="…") for size in range(most, 0, -1))
    return next((lines for lines in tried if all(text_width(line, _SIZE) <= width for line in lines)), None) or [label]


def bars(
    entries: Sequence[Bar], title: str, description: str, *, least: float = 1e-9, most: float = math.inf
) -> Markup:
    """Horizontal bars with whiskers for intervals and ticks for marks, on an axis of shares up to `least` or more.

    Whiskers that lead beyond `most` end there with an arrow.
    """
    top = min(max(max(max(entry.high, entry.mark) for entry in entries), least), most)

    def draw(at: int, left: float, right: float, middle: float) -> list[Markup]:
        entry, scale = entries[at], (right - left) / top
        low, high = (left + scale * min(max(bound, 0.0), top) for bound in (entry.low, entry.high))
        ends: list[str | float] = ["M", low, middle - 3, "v", 6, "M", high, middle - 3, "v", 6]
        if entry.high > top:
            ends[5:] = ["M", high - 5, middle - 3, "L", high, middle, "l", -5, 3]
        return [
            rect("bar", left, middle - 5.5, scale * max(entry.value, 0.0), 11),
            path("whisker", "M", low, middle, "H", high, *ends),
            path("tick", "M", left + scale * max(entry.mark, 0.0), middle - 7.5, "v", 15),
        ]

    return _rows([(entry.label, entry.told) for entry in entries], (19.0, 5.0), draw, title, description)


def paired_bars(
    entries: Sequence[tuple[str, float, float]], title: str, description: str, *, least: float = 1e-9
) -> Markup:
    """Two horizontal bars for each label, one above the other, with both shares beside them. `least` as in `bars`."""
    top = max(max(max(shares) for _, *shares in entries), least)

    def draw(at: int, left: float, right: float, middle: float) -> list[Markup]:
        shares, scale = entries[at][1:], (right - left) / top
        tops = zip(("bar", "second"), (middle - 9, middle), shares, strict=True)
        return [rect(class_, left, y, scale * share, 9) for class_, y, share in tops]

    labels = [(label, f"{percent(first)} | {percent(second)}") for label, first, second in entries]
    return _rows(labels, (24.0, 6.0), draw, title, description)


def flows(tables: Sequence[tuple[str, Doubles]], labels: Sequence[str], title: str, description: str) -> Markup:
    """What flows from a level on the left to one on the right, in bands as wide as their shares, table by table."""
    room = min(1.15 * max(text_width(label, 11) for label in labels) + 8, WIDTH * _LABELS / 1.5)
    across, height, gap = WIDTH - 2 * room, 26.0 * len(labels) + 40, 6.0
    tall, parts = height - 40 - gap * (len(labels) - 1), list[Markup]()
    for number, (name, table) in enumerate(tables):
        shares, top = np.asarray(table) / max(float(np.sum(table)), 1e-300), number * (height + 14) + 22
        parts.append(soft(WIDTH / 2, top - 8, name, anchor="middle"))
        ends = []
        for side in (0, 1):
            own = shares.sum(axis=1 - side) * tall
            ends.append(top + np.cumsum(own) - own + gap * np.arange(own.size))
            for label, y, size in zip(labels, ends[-1], own, strict=True):
                at, anchor = ((room - 4, "end"), (WIDTH - room + 4, "start"))[side]
                parts.append(text(at, y + size / 2 + 4, fitted(label, room - 4, 12), anchor=anchor))
        left, right = ends
        for (i, j), share in np.ndenumerate(shares):
            wide, x1, x2, middle = share * tall, room, room + across, room + across / 2
            there = ("C", middle, left[i], middle, right[j], x2, right[j])
            back = ("C", middle, right[j] + wide, middle, left[i] + wide, x1, left[i] + wide)
            parts.append(path("flow", "M", x1, left[i], *there, "L", x2, right[j] + wide, *back, "Z"))
            left[i], right[j] = left[i] + wide, right[j] + wide
    return drawing(WIDTH, len(tables) * (height + 14) + 22, parts, title, description)


def _rows(
    entries: Sequence[tuple[str, str]],
    heights: tuple[float, float],
    draw: Callable[[int, float, float, float], list[Markup]],
    title: str,
    description: str,
) -> Markup:
    """Entries with a label on the left and a text on the right.

    `draw` draws an entry between two places, around a middle. `heights` are the least of a row, and what lines leave.
    """
    room = min(max(text_width(label, _SIZE) for label, _ in entries), WIDTH * _LABELS)
    left, right = room + 10, WIDTH - max(text_width(told, 11) for _, told in entries) - 10
    parts, y = [], 2.0
    for number, (label, told) in enumerate(entries):
        lines = wrap(label, room)
        height = max(heights[0], _LINE * len(lines) + heights[1])
        middle = y + height / 2
        first = middle + 4 - _LINE * (len(lines) - 1) / 2
        parts += [text(left - 7, first + _LINE * at, line, size=_SIZE, anchor="end") for at, line in enumerate(lines)]
        parts += [*draw(number, left, right, middle), soft(WIDTH - 2, middle + 4, told, anchor="end")]
        y += height
    return drawing(WIDTH, y + 2, [axis(left, 0, left, y), *parts], title, description)


def inner(edges: Doubles, shares: NDArray[Any]) -> tuple[int, int]:
    """The bins to draw, from the first to before the last: without tails of half a percent that take half of an axis.

    >>> inner(np.array([0.0, 1.0, 2.0, 1e9]), np.array([0.5, 0.499, 0.001]))
    (0, 2)
    """
    upto = np.cumsum(shares) / max(float(shares.sum()), 1e-300)
    first, last = (int(at) for at in (np.searchsorted(upto, _TAIL, "right"), np.searchsorted(upto, 1 - _TAIL) + 1))
    last = min(last, shares.size)
    cut = edges[last] - edges[first] < (edges[-1] - edges[0]) / 2
    return (first, last) if cut else (0, shares.size)


def bins(binned: Binned, title: str, description: str) -> Markup:
    """Upright bars on two axes: the area of each is its share, so that wide bins do not look larger than they are.

    Narrow bars that tower over all others would flatten them: they are cut, with their share above.
    """
    left, right, top, base = 40.0, WIDTH - 6.0, 18.0, 132.0
    across = left + (right - left) * binned.edges
    widths = np.maximum(np.diff(across), 0.5)
    # Shares of as many rows as a twentieth of the axis would hold.
    density = binned.shares / widths * (right - left) / 20
    order = np.argsort(-density[[0, 3]].max(axis=0), kind="stable")
    sizes, narrow = density[[0, 3]].max(axis=0)[order], widths[order] <= (right - left) / 20
    towers = narrow[:-1] & (sizes[:-1] > _TOWERS * sizes[1:]) & (sizes[1:] > 0)
    tallest = max(float(sizes[int(np.argmin([*towers, False]))]), 1e-12)
    # Whiskers of narrow bins may be very tall: they end at the top of the drawing.
    tallest = min(max(tallest, float(np.where(density[0] <= tallest, density[2], 0).max())), 1.6 * tallest)
    heights = base - (base - top) * np.clip(density / tallest, 0.0, 1.0)
    parts, caps = [axis(left, base, right, base)], len(widths) <= _CAPS
    for share in (0.5, 1.0):
        y = base - (base - top) * share
        parts += [axis(left, y, right, y), soft(left - 4, y + 4, percent(share * tallest), anchor="end")]
    every = zip(across.tolist(), widths.tolist(), heights.T.tolist(), strict=False)
    for at, (x, width, (bar, low, high, mark)) in enumerate(every):
        middle, cap = x + width / 2, min(3.0, width / 3)
        ends = [step for y in (low, high) for step in ("M", middle - cap, y, "h", 2 * cap)] if caps else []
        inside = [
            element("title", binned.told[at]),
            # As wide as the bin and as tall as the drawing, so that small bins can be pointed at.
            rect("hover", x, top, width, base - top),
            rect("bar", x, bar, max(width - 0.6, 0.4), base - bar),
            *([path("whisker", "M", middle, low, "V", high, *ends)] if low != high else []),
            path("tick", "M", x, mark, "h", width),
        ]
        if max(density[0, at], density[3, at]) > tallest:
            told = percent(float(binned.shares[0, at]))
            anchor = "start" if middle < left + 20 else "end" if middle > right - 20 else "middle"
            inside += [path("cut", "M", x - 3, top + 9, "l", width + 6, -5), text(middle, top - 4, told, anchor=anchor)]
        parts.append(element("g", Markup("").join(inside)))
    for place, share, told in binned.spikes:
        x, tall = left + (right - left) * place, (base - top) * min(max(share, 0.0) / tallest, 1.0)
        inside = [element("title", told), path("spike", "M", x, base, "v", -tall)]
        inside += [path("cut", "M", x - 4, top + 9, "l", 8, -5)] * bool(share > tallest)
        parts.append(element("g", Markup("").join(inside)))
    for place, label in binned.ticks:
        x, half = left + (right - left) * place, text_width(label, 11) / 2
        parts += [axis(x, base, x, base + 4), soft(min(max(x, half), WIDTH - half), base + 17, label, anchor="middle")]
    if binned.beyond:
        parts += [
            path("cut", "M", right - 7, base + 4, "l", 5, -8),
            soft(right, base + 33, binned.beyond, anchor="end"),
        ]
    return drawing(WIDTH, base + (38 if binned.beyond else 22), parts, title, description)


def heat_map(
    values: Doubles,
    labels: Sequence[str],
    title: str,
    description: str,
    *,
    links: Mapping[tuple[int, int], str] | None = None,
) -> tuple[Markup, int]:
    """Symmetric, with an empty diagonal and darker cells for larger values; and its width.

    `links` are where cells lead, by row and column or column and row.
    """
    across = len(values)
    side = next((size for most, size in _SIDES if across <= most), 12.0)
    left = min(max(max(text_width(label, 11.5) for label in labels) + 14, 60.0), _LONGEST)
    # A label is turned by 42 degrees: it rises by two thirds of its length.
    longest = min(max(text_width(label, 11) for label in labels), _LONGEST)
    head, beyond = 20.0 + 0.67 * longest, 0.75 * longest
    width, height = left + side * across + max(beyond - side / 2, 10.0), head + side * across + 4
    most = max(float(values.max(initial=0.0)), 1e-12)
    parts = []
    for j, label in enumerate(labels):
        x, y = left + side * (j + 0.5), head - 6
        told = fitted(label, _LONGEST - 10, 11)
        parts.append(text(x, y, told, size=11, transform=f"rotate(-42 {digits(x)} {digits(y)})"))
    for i, label in enumerate(labels):
        y = head + side * i
        parts.append(text(left - 7, y + side / 2 + 4, fitted(label, left - 10, 11.5), size=11.5, anchor="end"))
        for j in range(across):
            shade = _DEEPEST * min(max(float(values[i, j]) / most, 0.0), 1.0) ** _SOFTER
            if i == j or shade < 0.005:
                continue
            x = left + side * j
            cell = [rect("cell", x, y, side - 1, side - 1, fill_opacity=f"{shade:.2f}")]
            if across <= 24:
                shown = f"{100 * values[i, j]:.0f}"
                cell.append(text(x + side / 2 - 0.5, y + side / 2 + 3.5, shown, size=10, anchor="middle"))
            place = (links or {}).get((min(i, j), max(i, j)))
            parts += cell if place is None else [element("a", Markup("").join(cell), href=place)]
    return drawing(width, height, parts, title, description), int(width)


def grids(
    tables: Mapping[str, Doubles], labels: tuple[Sequence[str], Sequence[str]], title: str, description: str
) -> Markup:
    """Tables of shares beside each other, darker for larger ones; what is negative has the second color.

    Tables without a negative share have one scale, the others one of their own each.
    """
    rows, columns = labels
    left = min(max(text_width(label, 9) for label in rows) + 8, WIDTH / 4)
    wide, head = (WIDTH - left) / len(tables), 27.0
    side = (wide - 8) / len(columns)
    tall = min(max(side, 11.0), 16.0)
    foot, parts = head + tall * len(rows), list[Markup]()
    for at, label in enumerate(rows):
        own = fitted(label, left - 5, 9)
        parts.append(text(left - 4, head + tall * (at + 0.5) + 3, own, size=9, anchor="end"))
    common = max(float(each.max()) for each in tables.values() if each.min() >= 0)
    for place, (name, table) in enumerate(tables.items()):
        x, scale = left + wide * place, common if table.min() >= 0 else float(np.abs(table).max())
        parts += [text(x, 11, name, size=10.5), soft(x, 22, f"darkest {percent(scale)}", size=9)]
        parts.append(rect("frame", x, head, wide - 8, foot - head))
        for (i, j), share in np.ndenumerate(table):
            told = element("title", f"{rows[i]}, {columns[j]}: {percent(float(share))}")
            where, shade = (x + side * j, head + tall * i, side, tall), (abs(share) / max(scale, 1e-12)) ** _SOFTER
            box = rect("second" if share < 0 else "cell", *where, fill_opacity=f"{shade:.2f}")
            parts += [element("g", told + box)] * bool(shade >= 0.005)
        ends = (columns[0], x, "start"), (columns[-1], x + wide - 8, "end")
        parts += [soft(at, foot + 11, fitted(end, wide / 2 - 8, 9), size=9, anchor=how) for end, at, how in ends]
    return drawing(WIDTH, foot + 16, parts, title, description)


def axis_scale(attribute: Attribute, points: Doubles, counts: NDArray[Any]) -> float:
    """Up to which size the axis is linear before it turns logarithmic; 0 when it is linear throughout, as for dates."""
    sizes = np.abs(points)
    order = np.argsort(sizes)
    order = order[sizes[order] > 0]
    if not attribute.axis.grows or order.size == 0:
        return 0.0
    upto = np.cumsum(counts[order])
    small = float(sizes[order[int(np.searchsorted(upto, upto[-1] / 10))]])
    return 0.0 if sizes.max() < _WIDE * small else float(10.0 ** math.floor(math.log10(small)))


def bend(values: Doubles, scale: float) -> Doubles:
    """Where numbers stand on an axis of this scale."""
    return values if scale == 0 else np.asarray(np.arcsinh(values / scale))


def ticks(attribute: Attribute, low: float, high: float, scale: float) -> list[float]:
    """Round numbers to label between the ends of an axis."""
    if scale == 0:
        if attribute.axis.numeric:
            power = 10.0 ** math.floor(math.log10((high - low) / 5))
            step = next(power * each for each in (1, 2, 5, 10) if power * each >= (high - low) / 5 * (1 - 1e-9))
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
    inside = [float(each) for each in months.astype("datetime64[D]").astype(np.int64) * day if low <= each <= high]
    return inside if len(inside) > 1 else [float(math.ceil(low)), float(math.floor(high))]


def tick_text(attribute: Attribute, value: float) -> str:
    """A label of an axis, short: 1.5M."""
    if attribute.kind in ("integer", "real"):
        size, unit = next((each for each in _UNITS if abs(value) >= each[0]), (1.0, ""))
        return f"{value / size:.4g}{unit}" if abs(value) < 1e15 else f"{value:.0e}"
    if attribute.axis.timed:
        value = round(value / _SECOND) * _SECOND
    written = attribute.axis.text(round(value))
    if attribute.kind in ("date", "datetime") and written[4:10] == "-01-01" and written[10:] in ("", "T00:00:00"):
        return written[:4]
    return written[:16].replace("T", " ").removesuffix(" 00:00") if attribute.kind == "datetime" else written


def drawing(width: float, height: float, parts: Sequence[Markup], title: str, description: str) -> Markup:
    """A drawing of these parts."""
    content = Markup("\n").join([element("title", title), element("desc", description), *parts])
    box = f"0 0 {digits(width)} {digits(height)}"
    return element("svg", content, viewBox=box, role="img", aria_label=f"{title}. {description}")


def rect(class_: str, x: float, y: float, width: float, height: float, **attributes: str) -> Markup:
    """A rectangle."""
    return element("rect", class_=class_, x=x, y=y, width=width, height=height, **attributes)


def axis(x1: float, y1: float, x2: float, y2: float) -> Markup:
    """A thin line."""
    return element("line", class_="axis", x1=x1, y1=y1, x2=x2, y2=y2)


def text(x: float, y: float, content: str, *, size: float = 11, anchor: str = "start", **attributes: str) -> Markup:
    """A line of text."""
    return element("text", content, x=x, y=y, font_size=size, text_anchor=anchor, **attributes)


def soft(x: float, y: float, content: str, *, size: float = 11, anchor: str = "start") -> Markup:
    """A line of text in a softer color."""
    return text(x, y, content, size=size, anchor=anchor, class_="soft")


def path(class_: str, *steps: str | float, **attributes: str) -> Markup:
    """A path of letters and coordinates."""
    written = " ".join(each if isinstance(each, str) else digits(each) for each in steps)
    return element("path", class_=class_, d=re.sub(" ?([A-Za-z]) ?", r"\1", written), **attributes)


def element(name: str, content: str | None = None, **attributes: str | float) -> Markup:
    """Make an element, with its attributes and content escaped. All drawings consist of these elements."""
    texts = {key: clean(value) if isinstance(value, str) else digits(value) for key, value in attributes.items()}
    pieces = (Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value) for key, value in texts.items())
    written = Markup("").join(pieces)
    if content is None:
        return Markup("<{}{}/>").format(name, written)
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, clean(content))


def digits(value: float) -> str:
    """A coordinate, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")
