"""The cards of columns: what was decided, or the question about it, with what the rows show and a picture of bins."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from sklar.answer.report.render import clean
from sklar.custodian.draft.columns import ColumnSummary
from sklar.custodian.review import Question, open_rules, questions
from sklar.public.schema import Attribute, Schema
from sklar.public.toml import toml_value
from sklar.studio.looks import Look
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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Card:
    """One column: what was decided, or the question about it with what the rows show."""

    name: str
    place: int
    kind: str
    known_from: str
    waiting: bool
    stated: str
    toml: Markup
    mark: str
    cost: tuple[str, ...]
    question: Question | None
    picture: Picture | None
    typed: Mapping[str, str]
    levels: tuple[str, ...]
    special: str


def questions_about(
    text: str, look: Look | None, asked: Mapping[str, str]
) -> dict[str, tuple[Question | None, Picture | None]]:
    """The questions about columns, given with the marks of their entries, each with a picture of its bins."""
    rules = open_rules(text)
    known = {} if look is None else look.shown
    fresh = [name for name, mark in asked.items() if (name, mark, rules) not in known]
    draft = None if look is None else look.draft
    schema = parsed(text)
    for question in questions(text, draft, about=set(fresh)) if fresh else ():
        seen = None if draft is None else draft.seen.column(question.name)
        picture = _picture(schema.attribute(question.name), seen)
        known[question.name, asked[question.name], rules] = (question, picture)
    return {name: known[name, mark, rules] for name, mark in asked.items()}


def card_of(
    schema: Schema,
    entry: Mapping[str, Any],
    attribute: Attribute,
    about: tuple[Question | None, Picture | None],
    epsilon: float,
    rows: int | None,
    typed: Mapping[str, str],
) -> Card:
    """The card of one column, with its cost and, where it was asked about, its question and picture."""
    kept = {key: value for key, value in entry.items() if key not in ("reviewed", "provenance")}
    levels = attribute.levels if attribute.domain != "private" else ()
    return Card(
        name=attribute.name,
        place=schema.names.index(attribute.name),
        kind=attribute.kind,
        known_from=attribute.known_from,
        waiting=not attribute.reviewed,
        stated=", ".join(f"{key} = {toml_value(value)}" for key, value in kept.items()),
        toml=_lines(
            typed["toml"]
            if typed.get("column") == attribute.name and "toml" in typed
            else "\n".join(f"{key} = {toml_value(value)}" for key, value in kept.items())
        ),
        mark=mark_of(entry),
        cost=(NOT_KNOWN,) if rows is None else column_cost(schema, attribute.name, epsilon, rows),
        question=about[0],
        picture=about[1],
        typed=typed if typed.get("column") == attribute.name else {},
        levels=levels[:MOST_LEVELS_SHOWN],
        special=", ".join(toml_value(value) for value in attribute.special),
    )


def _lines(text: str) -> Markup:
    """A text of several lines, which templates would take for control characters."""
    return Markup("\n").join(clean(line) for line in text.splitlines())


def mark_of(entry: Mapping[str, Any]) -> str:
    """A mark of an entry as a page has shown it: a form about another one is refused."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _picture(attribute: Attribute, seen: ColumnSummary | None) -> Picture | None:
    """The bins over what the rows show: 60 bars over the middle 98% of the values."""
    if attribute.kind not in _DRAGGED or not attribute.edges:
        return None
    edges = tuple(map(attribute.edge_text, attribute.edges))
    points, times = _points(attribute.kind, seen)
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
    return Picture(
        kind=attribute.kind, low=low, high=high, bars=bars, edges=edges, bounds=attribute.domain == "private"
    )


def _points(kind: str, seen: ColumnSummary | None) -> tuple[Any, Any]:
    if seen is None:
        return np.empty(0), np.empty(0)
    axis = kind if kind in seen.axes else next((each for each in seen.axes if each.split()[0] == kind), None)
    axis = "integer" if axis is None and kind == "year" and "integer" in seen.axes else axis
    if axis is None:
        return np.empty(0), np.empty(0)
    read = [(seen.point(text, axis), times) for text, times in seen.counts.items()]
    kept = [(point, times) for point, times in read if point is not None]
    return np.array([point for point, _ in kept], dtype=np.float64), np.array([times for _, times in kept])
