"""The PRIVATE page of a draft: what the rows show of each column, beside what is proposed for it.

This module decides what is shown; `templates/draft.html.j2` has the words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from sklar.answer.report import svg
from sklar.answer.report.render import Rows, percent, render, short
from sklar.custodian.check import Hidden
from sklar.custodian.draft.columns import ColumnSummary, TableSummary, Tie
from sklar.custodian.draft.propose import ColumnProposal

NOTICE = "PRIVATE: exact facts about the rows, for the custodian only. Do not publish"
_TOP = 12
_EXAMPLES = 5
_OFTEN = (0.5, 0.9, 0.99)
_BARS = 16
_MAX_COLUMNS = 300
_MAX_PAIRS = 20
_KINDS = {"real": "decimal number", "integer": "whole number", "datetime": "date and time"}
_TIED = {"determines": ("determines", "goes with"), "excludes": ("excludes values of", "never with")}


def private_page(
    name: str, seen: TableSummary, proposals: Mapping[str, ColumnProposal], ties: Sequence[Tie], remarks: Rows
) -> str:
    """The page as one HTML document."""
    columns = []
    for number, column in enumerate(seen.columns[:_MAX_COLUMNS]):
        proposal = proposals[column.name]
        columns.append(
            Hidden(
                name=column.name or "(no name)",
                anchor=f"column-{number}",
                proposed=proposal.proposed,
                decide=proposal.decide,
                left_out=proposal.attribute is None,
                facts=(*facts(column), *(_rows_each(column) if proposal.attribute is None else ())),
                common=common(column),
                histogram=_histogram(column),
            )
        )
    shown = Hidden(
        banner=NOTICE,
        table=name,
        rows=seen.rows,
        n_columns=len(seen.columns),
        columns=tuple(columns),
        remarks=remarks,
        ties=tuple(_tie(tie) for tie in ties),
    )
    return render("sklar.custodian.draft", "draft.html.j2", shown)


def facts(seen: ColumnSummary) -> tuple[str, ...]:
    """What was seen of a column, a sentence each: exact, for the custodian's eyes."""
    values, kind = seen.counts.total(), next(iter(seen.axes), None)
    lines = ["no value is missing"]
    if seen.n_missing:
        lines = [f"{percent(seen.n_missing / max(seen.rows, 1))} of {seen.rows:,} rows have no value"]
    lines.append(f"{'more than ' if seen.many else ''}{len(seen.counts):,} different values")
    texts = ", ".join(f"'{short(text)}'" for text in seen.missing if text)
    if texts:
        lines.append(f"for a missing value stand {texts}")
    if kind is None:
        return tuple(lines)
    odd = seen.axes[kind].odd
    ordered = sorted((text for text in seen.counts if text not in odd), key=lambda text: seen.point(text, kind) or 0.0)
    if ordered:
        plain = kind.partition(" ")[0]
        lines.append(f"read as a {_KINDS.get(plain, plain)}, from {short(ordered[0])} to {short(ordered[-1])}")
    if odd:
        lines.append("not of that kind: " + ", ".join(f"'{short(text)}' ({times:,})" for text, times in odd.items()))
    heaps = [(text, times) for text, times in seen.counts.most_common(_EXAMPLES) if times >= 0.05 * values]
    if len(seen.counts) > 20 and heaps:
        shared = ", ".join(f"{short(text)} ({percent(times / values)})" for text, times in heaps)
        lines.append(f"many rows share {shared}")
    return tuple(lines)


def common(seen: ColumnSummary, most: int = _TOP) -> Rows:
    """The most common values of a column, with how many rows have them, and their share."""
    ordered = sorted(seen.counts.items(), key=lambda item: (-item[1], item[0]))[:most]
    return tuple((short(text, 60), f"{times:,}", percent(times / max(seen.rows, 1))) for text, times in ordered)


def _rows_each(seen: ColumnSummary) -> tuple[str, ...]:
    """How many rows the values of a column of ids have: what `rows_per_person` would cut, if they are people."""
    times = sorted(seen.counts.values())
    if len(times) < 2 or times[-1] == 1:
        return ()
    shares = ", ".join(
        f"{share:.0%} of the values have at most {times[int(share * (len(times) - 1))]:,}" for share in _OFTEN
    )
    return (
        f"rows with one value: {sum(times) / len(times):.1f} on average, {shares}, the most is {times[-1]:,}; if these "
        "are people, rows_per_person in [table] would cut there (docs/people.md)",
    )


def _histogram(seen: ColumnSummary) -> Markup | None:
    """Bars of even width over the middle of a column's numbers; the ends say how many lie beyond."""
    kind = next((kind for kind in seen.axes if kind in ("integer", "real")), None)
    if kind is None or len(seen.counts) < _BARS:
        return None
    read = [(point, times) for text, times in seen.counts.items() if (point := seen.point(text, kind)) is not None]
    points, times = np.array(sorted(read), dtype=np.float64).T
    share = np.cumsum(times) / times.sum()
    low, high = (float(points[np.searchsorted(share[:-1], part)]) for part in (0.01, 0.99))
    if not low < high:
        return None
    # Bars of whole numbers hold equally many of them each.
    width = math.ceil((high - low + 1) / _BARS) if kind == "integer" else (high - low) / _BARS
    edges = low + width * np.arange(math.ceil((high - low) / width) + 1)
    edges[-1] = max(edges[-1], high)
    counts, _ = np.histogram(np.clip(points, low, high), bins=edges, weights=times)
    return svg.histogram(
        counts.astype(int).tolist(),
        [_compact(edge) for edge in edges[:-1]],
        title=f"Histogram of {short(seen.name, 60)}",
        description="Numbers beyond the middle 98% are counted in the outer bars.",
    )


def _compact(number: float) -> str:
    """A number in a few letters.

    >>> _compact(12285.0), _compact(2_500_000.0), _compact(0.25)
    ('12.3k', '2.5M', '0.25')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= 10 * size or (letter != "k" and abs(number) >= size):
            return f"{number / size:.3g}{letter}"
    return f"{number:.4g}"


def _tie(tie: Tie) -> tuple[str, ...]:
    how, arrow = _TIED[tie.how]
    pairs = [f"{short(one, 24)} {arrow} {short(two, 24)}" for one, two in tie.pairs[:_MAX_PAIRS]]
    if len(tie.pairs) > _MAX_PAIRS:
        pairs.append(f"and {len(tie.pairs) - _MAX_PAIRS:,} more")
    return (f"{short(tie.first, 40)} {how} {short(tie.second, 40)}", "; ".join(pairs), f"{tie.broken:,}")
