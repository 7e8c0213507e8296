"""An imported attribute, and how an import is written as a file to complete."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sklar.errors import SchemaError
from sklar.public.schema import Schema, toml_key, toml_value

_BINS = 20
_MOST_UNIT_BINS = 50
IDENTIFIER = "it identifies a row or a person"


@dataclass(slots=True, kw_only=True)
class Entry:
    """One attribute: the keys that are known, and what a person should know or must add."""

    keys: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether the domain is not known yet."""
        return self.keys["type"] != "boolean" and not {"values", "edges", "bins"} & set(self.keys)

    def to_toml(self, name: str) -> str:
        """The entry; an open one carries an empty domain, a remark and `reviewed = false`, and is refused as it is."""
        keys, notes = dict(self.keys), list(self.notes)
        if self.is_open:
            categorical = keys["type"] == "categorical"
            keys |= {"values" if categorical else "edges": [], "reviewed": False}
            notes.append(f"To do: {'list the values' if categorical else 'state edges, or low, high and bins'}.")
        else:
            # Refused here, with its name, when the description contradicts itself.
            Schema.from_dict({"attributes": {name: keys}})
        lines = [f"[attributes.{toml_key(name)}]", *(f"# {_printable(note)}" for note in notes)]
        return "\n".join([*lines, *(f"{key} = {toml_value(value)}" for key, value in keys.items())]) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What a description says of a table, and the columns that it leaves out, with the reason."""

    name: str
    source: str
    entries: Mapping[str, Entry]
    left_out: Mapping[str, str]

    @property
    def open(self) -> tuple[str, ...]:
        """Attributes whose domain is not known yet."""
        return tuple(name for name, entry in self.entries.items() if entry.is_open)

    def to_toml(self) -> str:
        """The schema as a file to complete."""
        if not self.entries:
            raise SchemaError(
                f"the {self.source} describes no column that a release could have. Write a schema by hand."
            )
        lines = [
            f"# Imported from {self.source}; no row was read. Complete the entries marked reviewed = false from",
            "# public knowledge (a code book, a legal limit), and remove the mark. Domains that stand here were stated",
            "# by the imported file: if some tool had inferred them from the rows, they are not public.",
            *(f"# Left out: {_printable(name)}: {reason}" for name, reason in self.left_out.items()),
        ]
        tables = [entry.to_toml(name) for name, entry in self.entries.items()]
        return "\n".join(["\n".join(lines) + "\n", f"[table]\nname = {toml_value(self.name)}\n", *tables])


def between(kind: str, low: Any, high: Any) -> dict[str, Any]:
    """Keys of a number or date from low to high, both included, in bins of equal width; none where a bound is open."""
    if low is None or high is None:
        return {}
    if kind == "real":
        return {"low": float(low), "high": float(high), "bins": _BINS}
    if kind == "integer":
        span = int(high) + 1 - int(low)
        return {"low": int(low), "high": int(high) + 1, "bins": max(1, span if span <= _MOST_UNIT_BINS else _BINS)}
    first, last = dt.datetime.fromisoformat(str(low)), dt.datetime.fromisoformat(str(high))
    if kind == "date":
        end = last.date() + dt.timedelta(days=1)
        return {
            "low": first.date().isoformat(),
            "high": end.isoformat(),
            "bins": max(1, min(_BINS, (end - first.date()).days)),
        }
    # The bound itself stands in the last bin, which has no upper end.
    return {"low": first.isoformat(), "high": (last + dt.timedelta(seconds=1)).isoformat(), "bins": _BINS}


def listed(values: Sequence[Any]) -> list[Any]:
    """Values as the schema takes them: whole numbers where all are, else texts."""
    if all(type(value) is int for value in values):
        return list(values)
    return [str(value).lower() if isinstance(value, bool) else str(value) for value in values]


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)
