"""Drawings as SVG: bars, histograms, heat maps, lines and axes. Colors come from the page, so that dark mode works."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
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
# What labels of bars take on the left, for lengths in different drawings to be compared.
_ROOM = 140.0
_CAPS = 40
# Text on the darkest cell needs a contrast above 4.5 in light and in dark mode, so no cell is more opaque than this.
_DEEPEST = 0.5
# An exponent below one keeps weak cells visible beside one pair that says the same thing twice.
_SOFTER = 0.6
# Sides of the cells of a map with at most so many.
_SIDES = ((10, 28.0), (24, 22.0), (30, 20.0))
# The most room that a label of a map gets, and one below a small table.
_LONGEST, _FOOT = 240.0, 60.0
# Widths of letters in parts of their height, as fonts without serifs have them.
_NARROW, _WIDE_LETTERS = frozenset("iljtfrI.,:;'|![]() "), frozenset("mwMWQ@%&—…")
# Narrow letters, wide ones, those of East Asian scripts, capitals; all others are 0.6.
_WIDTHS = (0.36, 0.95, 1.05, 0.72)
# An axis is symmetric-logarithmic when the largest number is this many times a small one (the least tenth of them).
_WIDE = 30.0
# A tail with less than this share of rows is told and not drawn; how much taller than all others a narrow bar is that
# is cut; up to so many whole numbers heights are told of each.
TAIL, _TOWERS, _FEW = 0.005, 3.0, 200
# A single value so near to the end of an axis still stands there: 0 below a bin that begins at 1.
_NEAR_END = 0.02
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SECOND = 1_000_000
# Months between ticks of dates.
_MONTHS = (1, 3, 6, 12, 24, 60, 120, 240, 600, 1_200)
_MOST_TICKS = 6
# Spans of time by which heights are told, in days, and what one is on an axis.
_SPANS = {"decade": 3_652.5, "year": 365.25, "month": 30.4375, "week": 7.0, "day": 1.0, "hour": 1 / 24}
_SPANS |= {"minute": 1 / 1_440, "second": 1 / 86_400}
_DAY = {"date": 1.0, "weekday": 1.0, "yearmonth": 1 / 30.4375}

_NUMBER = Attribute(name="", kind="real", edges=(0.0, 1.0))

# Labels of an axis and their positions from 0 to 1.
Ticks: TypeAlias = tuple[tuple[float, str], ...]
# The axis that all bars of shares have.
SHARES: Ticks = ((0.0, "0"), (0.25, "25%"), (0.5, "50%"), (0.75, "75%"), (1.0, "100%"))


class Bar(NamedTuple):
    """One bar: a label, a value with its interval, a mark for a second value, and the text behind it."""

    label: str
    value: float
    low: float
    high: float
    mark: float
    told: str


class Spike(NamedTuple):
    """A single value: where it stands, four shares as those of a bin, what it is, and its code."""

    place: float
    shares: Sequence[float]
    told: str
    code: int


class Binned(NamedTuple):
    """Shares of two tables in bins on an axis: edges and ticks are positions from 0 to 1.

    `shares`, shape (4, bins), are those of a table, the ends of their intervals, and those of a second table, nan where
    there is none; `heights` are the same in as much of the axis as `unit` says, so that the area of a bar is its share,
    unless it is narrower. `told` says what each bin is, to those who point at it, and `beyond` what lies where the
    drawing ends. `spikes` are single values, as tall as their shares.
    """

    edges: Doubles
    shares: Doubles
    heights: Doubles
    unit: str
    ticks: Ticks
    told: Sequence[str]
    beyond: str = ""
    spikes: Sequence[Spike] = ()


def binned(
    attribute: Attribute,
    edges: Doubles,
    scale: float,
    shares: Doubles,
    told: Sequence[str],
    beyond: str,
    heaps: Iterable[tuple[float, Sequence[float], int]] = (),
) -> Binned:
    """Bins between these edges, and single values near them (number, shares, code), on an axis of this scale."""
    bent, heaps = bend(edges, scale), [*heaps]
    points, values = [point for point, *_ in heaps], ticks(attribute, float(edges[0]), float(edges[-1]), scale)
    places, across, spots = (
        (bend(np.asarray(each, dtype=np.float64), scale) - bent[0]) / (bent[-1] - bent[0])
        for each in (values, edges, points)
    )
    spikes = [
        Spike(spot, own, f"{tick_text(attribute, point)}: {percent(own[0])}", code)
        for spot, (point, own, code) in zip(spots.tolist(), heaps, strict=True)
        if -_NEAR_END <= spot <= 1 + _NEAR_END
    ]
    widths = np.diff(bent)
    if attribute.axis.stepped and not scale:
        # Of whole numbers, those that stand alone are not in the bin around them.
        widths = np.maximum(widths - np.histogram(points, edges)[0], 1.0)
    width, unit = _unit(attribute, widths, shares[0], scale)
    marks = tuple(zip(places.tolist(), (tick_text(attribute, value) for value in values), strict=True))
    return Binned(across, shares, shares * width / np.maximum(widths, width), unit, marks, told, beyond, spikes)


def _unit(attribute: Attribute, widths: Doubles, shares: Doubles, scale: float) -> tuple[float, str]:
    """As much of an axis as heights are told of, and its name: the width of all bins, or a round one below most.

    A whole number where there are few of them.
    """
    least = float(np.quantile(widths, 0.1, weights=np.maximum(shares, 0.0) + 1e-12, method="inverted_cdf"))
    if scale:
        factor = next((each for each in (10, 5, 2, 1.5, 1.2, 1.1) if math.log(each) <= least), 1.05)
        return math.log(factor), f"per factor of {factor:g}"
    if not attribute.axis.numeric:
        day = _DAY.get(attribute.kind, 86_400.0 * _SECOND)
        name = next((name for name, days in _SPANS.items() if 0.9 * days * day <= least), "second")
        return _SPANS[name] * day, f"per {name}"
    whole, even = not attribute.axis.continuous, float(np.ptp(widths)) < 1e-6 * least
    size = 1.0 if whole and not even and widths.sum() <= _FEW else least if even else rounded(least / 2.5)
    if size <= 1 and whole:
        return 1.0, "per year" if attribute.kind == "year" else "at each number"
    unit = attribute.words.unit or ("years" if attribute.kind == "year" else "")
    return size, f"per {tick_text(_NUMBER, size)} {unit}".rstrip()


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


def bars(entries: Sequence[Bar], title: str, description: str, *, marks: Ticks = SHARES) -> Markup:
    """Horizontal bars with whiskers for intervals and ticks for second values, on an axis as long as its marks.

    Whiskers that lead beyond it end there with an arrow. Labels stand on the left, texts on the right: drawings with
    texts of one kind have one scale.
    """
    told, top = max(text_width(entry.told, 11) for entry in entries), marks[-1][0]
    left, right = _ROOM + 10, WIDTH - 10 - next((width for width in (38.0, 88.0) if told <= width), told)
    parts, grid, y = list[Markup](), list[Markup](), 2.0
    for entry in entries:
        lines = wrap(entry.label, _ROOM)
        height = max(19.0, _LINE * len(lines) + 5.0)
        middle, y = y + height / 2, y + height
        first = middle + 4 - _LINE * (len(lines) - 1) / 2
        value, low, high, mark = (left + (right - left) * min(max(each / top, 0.0), 1.0) for each in entry[1:5])
        ends: list[str | float] = ["M", low, middle - 3, "v", 6, "M", high, middle - 3, "v", 6]
        if entry.high > top:
            ends[5:] = ["M", high - 5, middle - 3, "L", high, middle, "l", -5, 3]
        parts += [text(left - 7, first + _LINE * at, line, size=_SIZE, anchor="end") for at, line in enumerate(lines)]
        parts.append(rect("bar", left, middle - 5.5, value - left, 11))
        parts += [path("whisker", "M", low, middle, "H", high, *ends)] * bool(entry.low < entry.high)
        parts += [path("tick", "M", mark, middle - 7.5, "v", 15), soft(WIDTH - 2, middle + 4, entry.told, anchor="end")]
    for share, label in marks:
        x = left + (right - left) * share / top
        grid += [axis(x, 0, x, y + 3), soft(x, y + 14, label, size=9.5, anchor="middle")]
    return drawing(WIDTH, y + 18, [*grid, *parts], title, description)


def paired_bars(entries: Sequence[tuple[str, float, float]], title: str, description: str) -> Markup:
    """A bar for each label with a mark for a second share, and both shares beside them."""
    told = [f"{percent(one)} | {percent(two)}" for _, one, two in entries]
    drawn = [Bar(label, one, one, one, two, both) for (label, one, two), both in zip(entries, told, strict=True)]
    return bars(drawn, title, description, marks=SHARES[::2])


def flows(tables: Sequence[tuple[str, Doubles]], labels: Sequence[str], title: str, description: str) -> Markup:
    """What flows from a level on the left to one on the right, in bands as wide as their shares, table by table."""
    room, tall = 0.9 * _ROOM, 22.0 * len(labels)
    middle, right, gap, parts = WIDTH / 2, WIDTH - room, 6.0, list[Markup]()
    for number, (name, table) in enumerate(tables):
        shares, top = table / max(float(np.sum(table)), 1e-300), number * (tall + gap * len(labels) + 24) + 22
        parts.append(soft(middle, top - 8, name, anchor="middle"))
        ends = []
        for side, (at, anchor) in enumerate(((room - 4, "end"), (right + 4, "start"))):
            own = shares.sum(axis=1 - side) * tall
            ends.append(top + np.cumsum(own) - own + gap * np.arange(own.size))
            places = zip(labels, ends[-1] + own / 2 + 4, strict=True)
            parts += [text(at, y, fitted(label, room - 4, 12), anchor=anchor) for label, y in places]
        for (i, j), share in np.ndenumerate(shares):
            one, two, wide = float(ends[0][i]), float(ends[1][j]), share * tall
            there = ("C", middle, one, middle, two, right, two, "L", right, two + wide)
            back = ("C", middle, two + wide, middle, one + wide, room, one + wide, "Z")
            parts.append(path("flow", "M", room, one, *there, *back))
            ends[0][i], ends[1][j] = one + wide, two + wide
    return drawing(WIDTH, len(tables) * (tall + gap * len(labels) + 24) + 10, parts, title, description)


def inner(shares: NDArray[Any]) -> tuple[int, int]:
    """The bins to draw, from the first to before the last: without tails of half a percent.

    >>> inner(np.array([0.5, 0.499, 0.001]))
    (0, 2)
    """
    upto = np.cumsum(shares) / max(float(shares.sum()), 1e-300)
    first, last = (int(at) for at in (np.searchsorted(upto, TAIL, "right"), np.searchsorted(upto, 1 - TAIL) + 1))
    return min(first, shares.size - 1), min(last, shares.size)


def spread(
    attribute: Attribute, points: Doubles, weights: NDArray[Any], most: int, *, bent: bool = True
) -> tuple[Doubles, float]:
    """Edges of at most so many even bins of round width over points without their tails, and the scale of their axis.

    Whole numbers stand in bins of equally many of them; on an axis that turns logarithmic, in bins that hold some.
    """
    values, place = np.unique(points, return_inverse=True)
    first, last = inner(np.bincount(place, weights))
    low, high = float(values[first]), float(values[last - 1])
    kept = (low <= points) & (points <= high)
    scale = axis_scale(attribute, points[kept], weights[kept]) if bent else 0.0
    whole = float(not attribute.axis.continuous or bool((values == np.rint(values)).all()))
    if scale == 0:
        step = max(rounded(((high - low) or 1.0 - whole) / most + 1e-300), whole)
        start = low - 0.5 if whole else step * math.floor(low / step)
        return np.asarray(start + step * np.arange(math.floor((high - start) / step) + 2)), scale
    start, end = bend(np.array([low - whole / 2, high + whole / 2]), scale)
    even = np.asarray(scale * np.sinh(np.linspace(start, end, most + 1)))
    even[[0, -1]] = low - whole / 2, max(high + whole / 2, float(even[-1]))
    if whole:
        # Between whole numbers, so that no bin is empty because none lies in it.
        inside = np.ceil(even[1:-1]) - 0.5
        even = np.unique([even[0], *inside[(inside > even[0]) & (inside < even[-1])], even[-1]])
    return even, scale


def histogram(attribute: Attribute, tables: Sequence[tuple[Doubles, NDArray[Any]]], most: int = 40) -> Binned:
    """Numbers of one table, or of two, in bins that fit their axis; each number has a share of the table's rows."""
    points, weights = (np.concatenate(each) for each in zip(*tables, strict=True))
    edges, scale = spread(attribute, points, weights, most)
    shares = np.stack([np.histogram(own, edges, weights=shares)[0] for own, shares in tables])
    lost, beyond = [own.sum() - drawn.sum() for (_, own), drawn in zip(tables, shares, strict=True)], ""
    if max(lost) > 1e-9:
        end = points.max() if points.max() > edges[-1] else points.min()
        beyond = (
            f"{' | '.join(percent(float(each)) for each in lost)} lie beyond, as far as {tick_text(attribute, end)}"
        )
    told = [" | ".join(map(percent, each)) for each in shares.T.tolist()]
    second = shares[1] if len(tables) > 1 else np.full(shares.shape[1], np.nan)
    return binned(attribute, edges, scale, np.stack([*[shares[0]] * 3, second]), told, beyond)


def bins(binned: Binned, title: str, description: str) -> Markup:
    """Upright bars on two axes. Narrow ones that tower over all others would flatten them: they are cut, and told.

    The share stands above as long as it touches no larger one.
    """
    left, right, top, base = 40.0, WIDTH - 6.0, 34.0, 148.0
    across = left + (right - left) * binned.edges
    places = [(x, max(width, 0.5), "bar") for x, width in zip(across.tolist(), np.diff(across).tolist(), strict=False)]
    caps = len(places) <= _CAPS
    places += [(left + (right - left) * spike.place - 4, 8.0, "spike") for spike in binned.spikes]
    alone = np.array([spike.shares for spike in binned.spikes]).reshape(-1, 4).T
    shares, told = np.hstack([binned.shares, alone])[0], [*binned.told, *(spike.told for spike in binned.spikes)]
    tall = np.hstack([binned.heights, alone])
    sizes = np.fmax(tall[0], tall[3])
    order = np.argsort(-sizes, kind="stable")
    narrow = np.array([width <= (right - left) / 20 for _, width, _ in places])[order]
    towers = narrow[:-1] & (sizes[order][:-1] > _TOWERS * sizes[order][1:]) & (sizes[order][1:] > 0)
    most = max(float(sizes[order][int(np.argmin([*towers, False]))]), 1e-12)
    # Whiskers of narrow bins may be very tall: they end at the top of the drawing.
    most = min(max(most, float(np.where(tall[0] <= most, tall[2], 0).max())), 1.6 * most)
    heights = base - (base - top) * np.clip(tall / most, 0.0, 1.0)
    parts, step = [soft(2, 11, f"% of rows {binned.unit}", size=10.5), axis(left, base, right, base)], rounded(most / 4)
    for share in step * np.arange(1, math.floor(most / step + 1e-9) + 1):
        y = base - (base - top) * share / most
        parts += [axis(left, y, right, y), soft(left - 4, y + 4, f"{100 * share:.4g}%", anchor="end")]
    for at, ((x, width, kind), (bar, low, high, mark)) in enumerate(zip(places, heights.T.tolist(), strict=True)):
        middle, cap, wide = x + width / 2, min(3.0, width / 3), 2.5 if kind == "spike" else max(width - 0.6, 0.4)
        ends = [part for y in (low, high) for part in ("M", middle - cap, y, "h", 2 * cap)] if caps else []
        inside = [
            element("title", told[at]),
            # As wide as the bin and as tall as the drawing, so that small bins can be pointed at.
            rect("hover", x, top, width, base - top),
            rect(kind, middle - wide / 2 - 0.3 * (kind == "bar"), bar, wide, base - bar),
            *([path("whisker", "M", middle, low, "V", high, *ends)] if low != high else []),
            *([] if math.isnan(mark) else [path("tick", "M", x, mark, "h", width)]),
        ]
        inside += [path("cut", "M", x - 3, top + 9, "l", width + 6, -5)] * bool(sizes[at] > most)
        parts.append(element("g", Markup("").join(inside)))
    taken: list[tuple[float, float]] = []
    for at in order[: np.count_nonzero(sizes > most)].tolist():
        label, (x, width, _) = percent(float(shares[at])), places[at]
        half = text_width(label, 11) / 2 + 2
        middle = min(max(x + width / 2, left + half), right - half)
        if all(middle + half <= low or high <= middle - half for low, high in taken):
            taken.append((middle - half, middle + half))
            parts.append(text(middle, top - 4, label, anchor="middle"))
    for place, label in binned.ticks:
        x, half = left + (right - left) * place, text_width(label, 11) / 2
        parts += [axis(x, base, x, base + 4), soft(min(max(x, half), WIDTH - half), base + 17, label, anchor="middle")]
    if binned.beyond:
        parts += [
            path("cut", "M", right - 7, base + 4, "l", 5, -8),
            soft(right, base + 33, binned.beyond, anchor="end"),
        ]
    return drawing(WIDTH, base + (38 if binned.beyond else 22), parts, title, description)


def rounded(size: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is not below a positive number."""
    power = 10.0 ** math.floor(math.log10(size))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= size * (1 - 1e-9))


def heat_map(
    values: Doubles, labels: Sequence[str], links: Mapping[tuple[int, int], str], title: str, description: str
) -> tuple[Markup, int]:
    """Symmetric, with an empty diagonal and darker cells for larger values; and its width.

    `links` are where cells lead, by row and column with the smaller one first.
    """
    across = len(values)
    side = next((size for most, size in _SIDES if across <= most), 18.0)
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
        for j in np.flatnonzero(values[i]).tolist():
            shade, x = _DEEPEST * min(float(values[i, j]) / most, 1.0) ** _SOFTER, left + side * j
            cell = [
                element("title", f"{label}, {labels[j]}: {percent(float(values[i, j]))}"),
                rect("cell", x, y, side - 1, side - 1, fill_opacity=f"{shade:.2f}"),
                text(x + side / 2 - 0.5, y + side / 2 + 3.5, f"{100 * values[i, j]:.0f}", size=10, anchor="middle"),
            ]
            parts.append(element("a", Markup("").join(cell), href=links[min(i, j), max(i, j)]))
    # Its cells are links: no picture, to those who cannot see it.
    return drawing(width, height, parts, title, description, role="group"), int(width)


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
            named = element("title", f"{rows[i]}, {columns[j]}: {percent(float(share))}")
            where, shade = (x + side * j, head + tall * i, side, tall), (abs(share) / max(scale, 1e-12)) ** _SOFTER
            box = rect("second" if share < 0 else "cell", *where, fill_opacity=f"{shade:.2f}")
            parts += [element("g", named + box)] * bool(shade >= 0.005)
        for j, label in enumerate(columns):
            spot, told = x + side * (j + 0.5) + 3, fitted(label, _FOOT, 8.5)
            turned = f"rotate(-60 {digits(spot)} {digits(foot + 9)})"
            parts.append(text(spot, foot + 9, told, size=8.5, anchor="end", class_="soft", transform=turned))
    room = 0.87 * min(max(text_width(label, 8.5) for label in columns), _FOOT)
    return drawing(WIDTH, foot + 16 + room, parts, title, description)


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
            step = max(rounded((high - low) / 5), float(attribute.kind == "year"))
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


def drawing(
    width: float, height: float, parts: Sequence[Markup], title: str, description: str, *, role: str = "img"
) -> Markup:
    """A drawing of these parts."""
    content = Markup("\n").join([element("title", title), element("desc", description), *parts])
    box = f"0 0 {digits(width)} {digits(height)}"
    return element("svg", content, viewBox=box, role=role, aria_label=f"{title}. {description}")


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
