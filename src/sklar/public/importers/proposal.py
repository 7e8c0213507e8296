"""What a description says about one attribute and about a table, and how it becomes a schema file to complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sklar.errors import SchemaError
from sklar.public.axis import AXES, DAY, SECOND
from sklar.public.declare import AttributeEntry, parse_words
from sklar.public.schema import Schema
from sklar.public.toml import toml_key, toml_table

_BINS, _MOST_UNIT_BINS = 20, 50
IDENTIFIER = "it identifies a row or a person"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnEntry:
    """A schema's entry for one attribute, as far as a description goes: the known keys, and notes for a person."""

    keys: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether the domain is not known yet."""
        return self.keys["type"] != "boolean" and not {"values", "edges", "bins"} & set(self.keys)

    def to_toml(self, name: str) -> str:
        """The entry in TOML. An unknown domain is written empty, with `reviewed = false`: a release refuses it."""
        keys, notes = dict(self.keys), list(self.notes)
        if self.is_open:
            categorical = keys["type"] == "categorical"
            keys |= {"values" if categorical else "edges": [], "reviewed": False}
            notes.append(f"To do: {'list the values' if categorical else 'state edges, or low, high and bins'}.")
        else:
            # A description that contradicts itself is refused here, by the attribute's name.
            Schema.from_dict({"attributes": {name: keys}})
        heading = [f"[attributes.{toml_key(name)}]", *(f"# {_printable(note)}" for note in notes)]
        return toml_table("\n".join(heading), keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The schema that a description implies, and the columns that are left out, each with the reason.

    `nulls` are texts that stand for nothing in every column, `words` what people call the table.
    """

    name: str
    source: str
    entries: Mapping[str, ColumnEntry]
    left_out: Mapping[str, str]
    nulls: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Mapping[str, ColumnEntry | str], *, name: str, source: str, **settings: Any) -> Imported:
        """What is imported of these columns: an entry each, or the reason why it is left out."""
        entries = {column: each for column, each in columns.items() if isinstance(each, ColumnEntry)}
        left_out = {column: each for column, each in columns.items() if isinstance(each, str)}
        return cls(name=name, source=source, entries=entries, left_out=left_out, **settings)

    @property
    def open(self) -> tuple[str, ...]:
        """Attributes whose domain is not known yet."""
        return tuple(name for name, entry in self.entries.items() if entry.is_open)

    def to_toml(self) -> str:
        """The schema as a file to complete."""
        if not self.entries:
            raise SchemaError(f"the imported file ({self.source}) describes no column to release. Write a schema.")
        lines = [
            f"# Imported from {self.source}; no row was read. Complete the entries marked reviewed = false from",
            "# public knowledge (a code book, a legal limit), and remove the mark. The imported file stated the other",
            "# domains: if some tool had inferred them from the rows, they are not public.",
            *(f"# Left out: {_printable(name)}: {reason}" for name, reason in self.left_out.items()),
        ]
        table = {"name": self.name, **self.words} | ({"nulls": list(self.nulls)} if self.nulls else {})
        tables = [entry.to_toml(name) for name, entry in self.entries.items()]
        return "\n".join(["\n".join(lines) + "\n", toml_table("[table]", table), *tables])


def between(kind: str, low: Any, high: Any) -> dict[str, Any]:
    """The keys for bins of equal width from low to high, both included; no keys where a bound is unknown."""
    if low is None or high is None:
        return {}
    if kind == "real":
        return {"low": float(low), "high": float(high), "bins": _BINS}
    axis = AXES[kind]
    first, last = (int(axis.check("bounds", int(each) if axis.numeric else str(each))) for each in (low, high))
    # Bins exclude their upper edge: the last one ends a step, or a second, after the bound.
    end = last + (SECOND if axis.timed else 1)
    end = min(end, DAY) if kind == "time" else end
    few = end - first <= (_MOST_UNIT_BINS if axis.numeric else _BINS)
    return {"low": axis.value(first), "high": axis.value(end), "bins": max(1, end - first) if few else _BINS}


def words_in(described: Mapping[str, Any], *, unit: bool = True) -> dict[str, Any]:
    """The title, description and unit that a description states, as far as a schema can hold them.

    >>> words_in({"title": "Age", "description": "", "unit": "years"})
    {'title': 'Age', 'unit': 'years'}
    """
    words = {}
    for key in ("title", "description", "unit") if unit else ("title", "description"):
        try:
            words[key] = getattr(parse_words("", {key: " ".join(str(described.get(key) or "").split())}), key)
        except SchemaError:
            # Nothing, or longer than anybody reads.
            continue
    return words


def in_format(keys: dict[str, Any], written: str | None, notes: Sequence[str] = ()) -> ColumnEntry:
    """The entry with the format of its dates or times, where a schema can read them by it; else a note for a person."""
    if written is None:
        return ColumnEntry(keys=keys, notes=list(notes))
    try:
        AttributeEntry("the column", AXES[keys["type"]], {"format": written}).format()
    except SchemaError:
        unread = f"Texts of the form {written!r} are not read as a {keys['type']}: convert the column first."
        return ColumnEntry(keys=keys, notes=[*notes, unread])
    return ColumnEntry(keys=keys | {"format": written}, notes=list(notes))


def listed(values: Sequence[Any]) -> list[Any]:
    """Values as a schema lists them: as whole numbers if all of them are, else as texts."""
    if all(type(value) is int for value in values):
        return list(values)
    return [str(value).lower() if isinstance(value, bool) else str(value) for value in values]


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)
