"""What people call a table, an attribute and its levels: titles, descriptions, units and labels.

They are public and optional, and change nothing but what a person reads: no count, no code and no released value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sklar.errors import SchemaError

TABLE_WORDS = ("title", "description")
ATTRIBUTE_WORDS = (*TABLE_WORDS, "unit", "labels")
_MOST = {"title": 200, "description": 4_000, "unit": 60, "label": 200}
# How a level reads that stands for missing values without a text of its own.
EMPTY = "(missing)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What people call something. `labels` are pairs of a level's name in the schema and what to show for it.

    >>> Words(title="Age at the census", unit="years").unit
    'years'
    """

    title: str | None = None
    description: str | None = None
    unit: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


NO_WORDS = Words()


def parse_words(where: str, entry: Mapping[str, Any], levels: Iterable[str] | None = None) -> Words:
    """The words of an entry, where labels may name these levels only; None where any may be found later."""
    labels = entry.get("labels", {})
    if not isinstance(labels, Mapping):
        raise SchemaError(f"{where}: labels must be a table of levels and texts, got {labels!r}. Write F = 'female'.")
    named = {key or EMPTY: _text(where, "label", text, of=f"labels of '{key}'") for key, text in labels.items()}
    known = None if levels is None else set(levels)
    odd = [] if known is None else [key for key in named if key not in known]
    if odd:
        raise SchemaError(
            f"{where}: labels must name levels, got '{odd[0]}'. Write values as the schema lists them, a bin as "
            "'[0, 18)'; or remove it."
        )
    given = {key: _text(where, key, entry[key]) for key in ("title", "description", "unit") if key in entry}
    return Words(**given, labels=tuple(named.items())) if given or named else NO_WORDS


def describe_words(words: Words) -> dict[str, Any]:
    """The keys that `parse_words` reads."""
    said = {"title": words.title, "description": words.description, "unit": words.unit, "labels": dict(words.labels)}
    return {key: value for key, value in said.items() if value}


def _text(where: str, kind: str, text: object, of: str = "") -> str:
    # A description may have paragraphs.
    plain = isinstance(text, str) and (text.replace("\n", "") if kind == "description" else text).isprintable()
    if not plain or not isinstance(text, str) or not text.strip() or len(text) > _MOST[kind]:
        lines = "" if kind == "description" else " in one line"
        raise SchemaError(
            f"{where}: {of or kind} must be a text of 1 to {_MOST[kind]:,} printable characters{lines}, "
            f"got {text!r:.60}."
        )
    return text.strip()
