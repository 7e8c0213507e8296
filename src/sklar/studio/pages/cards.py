"""The cards of columns: what was decided, or the question about it, with what the rows show and a picture of bins."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from markupsafe import Markup

from sklar.answer.report.render import clean
from sklar.custodian.draft.columns import ColumnSummary
from sklar.custodian.review import Question, open_rules, questions
from sklar.public.description import toml_value
from sklar.public.schema import Attribute, Schema
from sklar.studio.looks import TableLook
from sklar.studio.pages.cost import column_cost, parsed

MOST_LEVELS_SHOWN = 40
NOT_KNOWN = "What it costs is known when the rows have been read: their number decides."
_BARS = 60
# Kinds whose edges a person can drag: numbers, and days.
_DRAGGED = ("integer", "real", "year", "date")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Picture:
    """The bins of a column as a picture: exact counts (PRIVATE) over an axis, and where the edges are."""

    kind: str
    low: float
    high: float
    bars: tuple[int, ...]
    edges: tuple[str, ...]
    bounds: bool

    def to_json(self) -> str:
        """For the script that draws it."""
        return json.dumps(asdict(self))


# The question about a column and the picture of its bins; none about one that is decided.
About: TypeAlias = tuple[Question | None, Picture | None]


def questions_about(text: str, look: TableLook | None, marks: Mapping[str, str]) -> dict[str, About]:
    """The questions about columns, given with the marks of their entries, each with a picture of its bins."""
    rules = open_rules(text)
    shown, draft = ({}, None) if look is None else (look.shown, look.draft)
    fresh = {name for name, mark in marks.items() if (name, mark, rules) not in shown}
    schema = parsed(text)
    for question in questions(text, draft, about=fresh) if fresh else ():
        summary = None if draft is None else draft.column(question.name)
        picture = _picture(schema.attribute(question.name), summary)
        shown[question.name, marks[question.name], rules] = (question, picture)
    return {name: shown[name, mark, rules] for name, mark in marks.items()}


def card_of(
    schema: Schema,
    entry: Mapping[str, Any],
    attribute: Attribute,
    about: About,
    epsilon: float,
    rows: int | None,
    typed: Mapping[str, str],
) -> dict[str, Any]:
    """The card of one column: what was decided, or the question about it with what the rows show; and its cost."""
    keys = [f"{key} = {toml_value(value)}" for key, value in entry.items() if key not in ("reviewed", "provenance")]
    typed = typed if typed.get("column") == attribute.name else {}
    return {
        "name": attribute.name,
        "place": schema.names.index(attribute.name),
        "kind": attribute.kind,
        "known_from": attribute.known_from,
        "waiting": not attribute.reviewed,
        "stated": ", ".join(keys),
        "toml": _lines(typed.get("toml", "\n".join(keys))),
        "mark": mark_of(entry),
        "cost": (NOT_KNOWN,) if rows is None else column_cost(schema, attribute.name, epsilon, rows),
        "question": about[0],
        "picture": about[1],
        "typed": typed,
        "levels": attribute.levels[:MOST_LEVELS_SHOWN] if not attribute.private else (),
        "special": ", ".join(toml_value(value) for value in attribute.special),
    }


def _lines(text: str) -> Markup:
    """A text of several lines, which templates would take for control characters."""
    return Markup("\n").join(clean(line) for line in text.splitlines())


def mark_of(entry: Mapping[str, Any]) -> str:
    """A mark of an entry as a page has shown it: a form about another one is refused."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _picture(attribute: Attribute, summary: ColumnSummary | None) -> Picture | None:
    """The bins over what the rows show: 60 bars over the middle 98% of the values."""
    if attribute.kind not in _DRAGGED or not attribute.edges:
        return None
    edges = tuple(map(attribute.axis.text, attribute.edges))
    points, times = _points(attribute.kind, summary)
    bars: tuple[int, ...] = ()
    low, high = float(attribute.edges[0]), float(attribute.edges[-1])
    if points.size:
        order = np.argsort(points)
        points, times = points[order], times[order]
        share = np.cumsum(times) / times.sum()
        least, most = (float(points[min(np.searchsorted(share, part), points.size - 1)]) for part in (0.01, 0.99))
        room = max(most - least, 1.0)
        # Wide bounds would squeeze what there is to see into one bar.
        if high - low > 4 * room:
            low, high = least - 0.1 * room, most + 0.1 * room
        else:
            low, high = min(low, least), max(high, most)
        counted, _ = np.histogram(np.clip(points, low, high), bins=_BARS, range=(low, high), weights=times)
        bars = tuple(int(count) for count in counted)
    return Picture(kind=attribute.kind, low=low, high=high, bars=bars, edges=edges, bounds=attribute.private)


def _points(kind: str, summary: ColumnSummary | None) -> tuple[Any, Any]:
    """The values of a column on the axis of its kind, and how often each occurs."""
    axes = () if summary is None else summary.axes
    axis = kind if kind in axes else next((each for each in axes if each.split()[0] == kind), None)
    axis = "integer" if axis is None and kind == "year" and "integer" in axes else axis
    if axis is None or summary is None:
        return np.empty(0), np.empty(0)
    read = [(summary.point(text, axis), times) for text, times in summary.counts.items()]
    kept = [(point, times) for point, times in read if point is not None]
    return np.array([point for point, _ in kept], dtype=np.float64), np.array([times for _, times in kept])
