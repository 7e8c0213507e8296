"""Dot plots of `docs/results/aim.json`: errors of two- and three-way tables beside MST, AIM and two limits (`near`).

`python -m benchmarks.results --tables` draws docs/images/benchmark.svg, and for the larger epsilons benchmark-4.svg and
benchmark-10.svg.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from benchmarks.aim_page import MEASURES, NAMED, OURS, groups, mean
from benchmarks.pages import RESULTS, ROOT
from sklar.answer.report.svg import element
from sklar.files.write import write_text

IMAGES = ROOT / "docs" / "images"
PICTURES = {1.0: IMAGES / "benchmark.svg", 4.0: IMAGES / "benchmark-4.svg", 10.0: IMAGES / "benchmark-10.svg"}
_GROUP = "Tables that nobody looked at"
_LIMITS = {"rows drawn again": "#15803d", "best unbiased": "#9333ea"}
_COLORS = {OURS: "#1d4f9c", "aim3-8": "#c2410c", "aim2-8": "#f59e0b", "mst": "#6b7280"}
_INK, _SOFT, _LINE = "#16202c", "#4a5766", "#d5dce4"
_LEFT, _PANEL, _GAP, _ROW, _HEAD, _SIZE = 170.0, 330.0, 30.0, 20.0, 66.0, 12.0
_TICKS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)


def plot(document: Mapping[str, Any], epsilon: float = 1.0) -> str:
    """The plot of one epsilon as SVG: hollow dots are runs that were stopped, strokes are limits."""
    chosen = document["groups"][_GROUP]
    by_table = {
        table: by for (table, each), by in groups(document["runs"]).items() if each == epsilon and table in chosen
    }
    tables = sorted(by_table, key=lambda table: mean(by_table[table][OURS], "tv2"))
    limits = {table: near(document, table, epsilon) for table in tables}
    shown = [mean(runs, measure) for by in by_table.values() for runs in by.values() for measure in MEASURES]
    shown += [value for own in limits.values() for each in own.values() for value in each.values()]
    low, high = math.log(min(shown) * 0.8), math.log(max(shown) * 1.25)
    foot = _HEAD + _ROW * len(tables)
    width = _LEFT + 2 * _PANEL + _GAP + 16

    def text(x: float, y: float, told: str, color: str = _INK, anchor: str = "start", weight: str = "400") -> Markup:
        return element("text", told, x=x, y=y, font_size=_SIZE, fill=color, text_anchor=anchor, font_weight=weight)

    def line(x1: float, y1: float, x2: float, y2: float) -> Markup:
        return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=_LINE, stroke_width=1)

    def dot(x: float, y: float, color: str, *, whole: bool = True) -> Markup:
        return element("circle", cx=x, cy=y, r=4.5, fill=color if whole else "#fff", stroke=color, stroke_width=1.5)

    def stroke(x: float, y: float, color: str) -> Markup:
        return element("line", x1=x, y1=y - 7, x2=x, y2=y + 7, stroke=color, stroke_width=2.5)

    parts = [element("rect", x=0, y=0, width=width, height=foot + 52, fill="#fff")]
    x = 12.0
    for method, color in _COLORS.items():
        name = NAMED[method].strip("*")
        parts += [dot(x, 14, color), text(x + 9, 18, name)]
        x += 9 + 8.0 * len(name) + 20
    parts += [dot(x, 14, _SOFT, whole=False), text(x + 9, 18, "stopped before its end")]
    x += 180
    for name, color in _LIMITS.items():
        parts += [stroke(x, 14, color), text(x + 7, 18, name)]
        x += 7 + 7.0 * len(name) + 14
    for panel, (measure, title) in enumerate(MEASURES.items()):
        left = _LEFT + panel * (_PANEL + _GAP)

        def across(value: float, left: float = left) -> float:
            return left + _PANEL * (math.log(value) - low) / (high - low)

        columns = "two columns" if panel == 0 else "three columns"
        parts.append(text(left, 44, f"{title}: mean error of tables of {columns}", weight="600"))
        for tick in (each for each in _TICKS if low <= math.log(each) <= high):
            parts += [line(across(tick), _HEAD - 8, across(tick), foot)]
            parts += [text(across(tick), foot + 16, f"{tick:g}", _SOFT, "middle")]
        for at, table in enumerate(tables):
            y = _HEAD + _ROW * (at + 0.5)
            parts.append(line(left, y, left + _PANEL, y))
            if panel == 0:
                parts.append(text(left - 10, y + 4, table, anchor="end"))
            for name, color in _LIMITS.items():
                if measure in limits[table].get(name, {}):
                    parts.append(stroke(across(limits[table][name][measure]), y, color))
            # Ours last, so that it lies above.
            for method in reversed(_COLORS):
                if runs := by_table[table].get(method):
                    whole = all(run["whole"] for run in runs)
                    parts.append(dot(across(mean(runs, measure)), y, _COLORS[method], whole=whole))
    header = document["header"]
    how = f"epsilon {epsilon:g}, delta {header['delta']}, means over draws, sklar {header['sklar']}"
    told = f"Left is better; the axes are logarithmic. {how}"
    parts.append(text(_LEFT, foot + 40, told, _SOFT))
    body = "\n".join([element("title", "Errors beside MST and AIM"), *parts])
    font = 'font-family="system-ui,-apple-system,Segoe UI,Roboto,sans-serif"'
    size = f'viewBox="0 0 {width:g} {foot + 52:g}" width="{width:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>\n{body}\n</svg>\n'


def near(document: Mapping[str, Any], table: str, epsilon: float) -> dict[str, dict[str, float]]:
    """The limits of a table: those of rows drawn again, and of the best unbiased two-way tables at this epsilon."""
    if not (own := document.get("limits", {}).get(table)):
        return {}
    return dict(zip(_LIMITS, (own["resampled"], {"tv2": own["unbiased_tv2"][f"{epsilon:g}"]}), strict=True))


def draw() -> list[Path]:
    """Draw what the page's JSON says; returns the pictures that changed."""
    document, changed = json.loads((RESULTS / "aim.json").read_text(encoding="utf-8")), []
    for epsilon, picture in PICTURES.items():
        before = picture.read_text(encoding="utf-8") if picture.exists() else ""
        if (new := plot(document, epsilon)) != before:
            write_text(picture, new)
            changed.append(picture)
    return changed
