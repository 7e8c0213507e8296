"""What a description says about one attribute and about a table, and how it becomes a schema file to complete."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sklar.errors import SchemaError
from sklar.public.axis import AXES, DAY, SECOND
from sklar.public.declare import Entry, parse_words
from sklar.public.schema import Schema
from sklar.public.toml import toml_key, toml_value

_BINS = 20
_MOST_UNIT_BINS = 50
IDENTIFIER = "it identifies a row or a person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
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
        lines = [f"[attributes.{toml_key(name)}]", *(f"# {_printable(note)}" for note in notes)]
        return "\n".join([*lines, *(f"{key} = {toml_value(value)}" for key, value in keys.items())]) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The schema that a description implies, and the columns that are left out, each with the reason.

    `nulls` are texts that stand for nothing in every column, `words` what people call the table.
    """

    name: str
    source: str
    entries: Mapping[str, Proposal]
    left_out: Mapping[str, str]
    nulls: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def open(self) -> tuple[str, ...]:
        """Attributes whose domain is not known yet."""
        return tuple(name for name, entry in self.entries.items() if entry.is_open)

    def to_toml(self) -> str:
        """The schema as a file to complete."""
        if not self.entries:
            raise SchemaError(
                f"the imported file ({self.source}) describes no column that a release could have. Write a schema."
            )
        lines = [
            f"# Imported from {self.source}; no row was read. Complete the entries marked reviewed = false from",
            "# public knowledge (a code book, a legal limit), and remove the mark. The imported file stated the other",
            "# domains: if some tool had inferred them from the rows, they are not public.",
            *(f"# Left out: {_printable(name)}: {reason}" for name, reason in self.left_out.items()),
        ]
        tables = [entry.to_toml(name) for name, entry in self.entries.items()]
        table = {"name": self.name, **self.words} | ({"nulls": list(self.nulls)} if self.nulls else {})
        keys = "".join(f"{key} = {toml_value(value)}\n" for key, value in table.items())
        return "\n".join(["\n".join(lines) + "\n", f"[table]\n{keys}", *tables])


def between(kind: str, low: Any, high: Any) -> dict[str, Any]:
    """The keys for bins of equal width from low to high, both included; no keys where a bound is unknown."""
    if low is None or high is None:
        return {}
    if kind == "real":
        return {"low": float(low), "high": float(high), "bins": _BINS}
    if kind in ("integer", "year"):
        span = int(high) + 1 - int(low)
        return {"low": int(low), "high": int(high) + 1, "bins": max(1, span if span <= _MOST_UNIT_BINS else _BINS)}
    if kind in ("time", "duration", "yearmonth"):
        axis = AXES[kind]
        begin, most = int(axis.check("low", low)), int(axis.check("high", high))
        # A month, or a second, after the upper bound, which is included.
        after = most + (1 if kind == "yearmonth" else SECOND)
        after = min(after, DAY) if kind == "time" else after
        bins = max(1, min(_BINS, after - begin))
        return {"low": axis.text(begin), "high": axis.text(after), "bins": bins}
    first, last = dt.datetime.fromisoformat(str(low)), dt.datetime.fromisoformat(str(high))
    if kind == "date":
        end = last.date() + dt.timedelta(days=1)
        return {
            "low": first.date().isoformat(),
            "high": end.isoformat(),
            "bins": max(1, min(_BINS, (end - first.date()).days)),
        }
    # Bins exclude their upper edge: the last one ends after the bound, so that it includes it.
    return {"low": first.isoformat(), "high": (last + dt.timedelta(seconds=1)).isoformat(), "bins": _BINS}


def words_of(described: Mapping[str, Any], *, unit: bool = True) -> dict[str, Any]:
    """The title, description and unit that a description states, as far as a schema can hold them.

    >>> words_of({"title": "Age", "description": "", "unit": "years"})
    {'title': 'Age', 'unit': 'years'}
    """
    found = {}
    for key in ("title", "description", "unit") if unit else ("title", "description"):
        try:
            found[key] = getattr(parse_words("", {key: " ".join(str(described.get(key) or "").split())}), key)
        except SchemaError:
            # Nothing, or longer than anybody reads.
            continue
    return found


def labels_of(listed: Sequence[Any]) -> dict[str, Any]:
    """The labels of values that a description lists with theirs: [{"value": 1, "label": "yes"}, ...]."""
    pairs = [(each["value"], each.get("label")) for each in listed if isinstance(each, Mapping)]
    named = {str(value): label for value, label in pairs if isinstance(label, str) and label.strip()}
    return {"labels": named} if named else {}


def in_format(keys: dict[str, Any], written: str | None, notes: Sequence[str] = ()) -> Proposal:
    """The entry with the format of its dates or times, where a schema can read them by it; else a note for a person."""
    if written is None:
        return Proposal(keys=keys, notes=list(notes))
    try:
        Entry("the column", AXES[keys["type"]], {"format": written}).format()
    except SchemaError:
        told = f"Texts of the form {written!r} are not read as a {keys['type']}: convert the column first."
        return Proposal(keys=keys, notes=[*notes, told])
    return Proposal(keys=keys | {"format": written}, notes=list(notes))


def listed(values: Sequence[Any]) -> list[Any]:
    """Values as a schema lists them: as whole numbers if all of them are, else as texts."""
    if all(type(value) is int for value in values):
        return list(values)
    return [str(value).lower() if isinstance(value, bool) else str(value) for value in values]


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)
