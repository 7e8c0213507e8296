"""The forecast's curves as a drawing: errors of counts against epsilon, both on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from sklar.answer.report.render import percent
from sklar.budget.forecast import Forecast
from sklar.studio.pages.cost import TWICE

WIDTH, HEIGHT = 560.0, 250.0
_LEFT, _RIGHT, _TOP, _BASE = 64.0, 440.0, 14.0, 206.0
_LINE = 15.0


def across(epsilon: float, low: float = 0.1, high: float = 10.0) -> float:
    """Where an epsilon lies on the drawing; the script places its marker by the same rule."""
    return _LEFT + (_RIGHT - _LEFT) * math.log(epsilon / low) / math.log(high / low)


def curves(found: Sequence[Forecast]) -> Markup:
    """Expected errors (19 times out of 20) of counts, as a share of the rows."""
    lines = [("one-way counts", "one", [TWICE * each.one_way_error / each.n_rows for each in found])]
    if found[0].pair_sd.size:
        lines.append(("two-way counts", "two", [TWICE * each.pair_error / each.n_rows for each in found]))
    shares = [share for _, _, line in lines for share in line]
    low, high = math.floor(math.log10(min(shares))), math.ceil(math.log10(max(shares)))
    high = max(high, low + 1)

    def up(share: float) -> float:
        return _BASE - (_BASE - _TOP) * (math.log10(share) - low) / (high - low)

    parts = []
    for power in range(low, high + 1):
        y = up(10.0**power)
        parts.append(
            Markup(
                '<line class="axis" x1="{}" y1="{:.1f}" x2="{}" y2="{:.1f}"/>'
                '<text class="soft" x="{}" y="{:.1f}" font-size="12" text-anchor="end">{}</text>'
            ).format(_LEFT, y, _RIGHT, y, _LEFT - 8, y + 4, percent(10.0**power))
        )
    for epsilon in (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0):
        parts.append(
            Markup('<text class="soft" x="{:.1f}" y="{}" font-size="12" text-anchor="middle">{:g}</text>').format(
                across(epsilon), _BASE + 18, epsilon
            )
        )
    parts.append(
        Markup('<text class="soft" x="{}" y="{}" font-size="12" text-anchor="middle">epsilon</text>').format(
            (_LEFT + _RIGHT) / 2, _BASE + 38
        )
    )
    ends = _apart([up(line[-1]) for _, _, line in lines])
    for (label, name, line), end in zip(lines, ends, strict=True):
        points = " ".join(
            f"{across(each.budget.epsilon):.1f},{up(share):.1f}" for each, share in zip(found, line, strict=True)
        )
        parts.append(
            Markup('<polyline class="curve {}" points="{}"/><text x="{}" y="{:.1f}" font-size="12">{}</text>').format(
                name, points, _RIGHT + 8, end + 4, label
            )
        )
    parts.append(
        Markup('<line class="marker" id="marker" x1="{0:.1f}" y1="{1}" x2="{0:.1f}" y2="{2}"/>').format(
            across(1.0), _TOP, _BASE
        )
    )
    title = "Error of a count, 19 times out of 20, as a share of the rows, against epsilon"
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, title, Markup("").join(parts)
    )


def _apart(ends: list[float]) -> list[float]:
    """Where the labels of one or two lines stand: beside their ends, and not over one another.

    >>> _apart([100.0, 104.0]), _apart([100.0, 40.0])
    ([94.5, 109.5], [100.0, 40.0])
    """
    if len(ends) < 2 or abs(ends[0] - ends[1]) >= _LINE:
        return ends
    middle = sum(ends) / 2
    return [middle - _LINE / 2, middle + _LINE / 2] if ends[0] <= ends[1] else [middle + _LINE / 2, middle - _LINE / 2]
