"""Descriptions of tables that exist already (SDV, SmartNoise, Frictionless, Arrow), as schemas to complete.

Importers read descriptions and never a row. A domain that the description states goes into the schema as it is. A
domain that it does not state is marked `reviewed = false`, and a release refuses the schema until somebody fills it in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sklar.errors import SchemaError
from sklar.machine.extras import require
from sklar.public.attribute import within
from sklar.public.axis import AXES, DAY, SECOND
from sklar.public.declare import parse_format, parse_words
from sklar.public.description import toml_key, toml_table
from sklar.public.schema import Schema

FORMATS = ("arrow", "frictionless", "sdv", "smartnoise")
IDENTIFIER = "it identifies a row or a person"
_BINS, _MOST_UNIT_BINS = 20, 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnEntry:
    """A schema's entry for one attribute, as far as a description goes: the known keys, and notes for a person."""

    keys: dict[str, Any]
    notes: Sequence[str] = ()

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
    """The schema that a description implies: an entry for each column, or the reason why it is left out.

    `nulls` are texts that stand for nothing in every column, `words` what people call the table.
    """

    name: str
    source: str
    columns: Mapping[str, ColumnEntry | str]
    nulls: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def entries(self) -> dict[str, ColumnEntry]:
        """The attributes."""
        return {name: each for name, each in self.columns.items() if isinstance(each, ColumnEntry)}

    @property
    def left_out(self) -> dict[str, str]:
        """The columns that become no attribute, each with the reason."""
        return {name: each for name, each in self.columns.items() if isinstance(each, str)}

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


def import_schema(path: str | Path, *, format: str | None = None) -> Imported:  # noqa: A002
    """The schema that a description implies, as far as it goes. The format is recognized unless it is given."""
    # Imported here: both are built on this module, and who reads rows needs one part of one of them.
    from sklar.public.importers import arrow, documents

    path = Path(path)
    if format is not None and format not in FORMATS:
        raise SchemaError(f"format must be one of {', '.join(FORMATS)}, got '{format}'.")
    if not path.is_file():
        raise SchemaError(f"file '{path}' does not exist. Check the path.")
    name, suffix = path.name.split(".")[0] or "table", path.suffix.lower()
    if format == "arrow" or (format is None and suffix in arrow.SUFFIXES):
        return arrow.from_file(path, name)
    parse: Callable[[str], Any] = json.loads
    if suffix in (".yaml", ".yml"):
        require("yaml", what="a YAML file", package="PyYAML", extra="yaml")
        from yaml import safe_load as parse
    try:
        document = parse(path.read_text(encoding="utf-8"))
    except Exception:
        # Whatever a parser raises: report one clear error.
        raise SchemaError(f"'{path}' cannot be read. It must be a JSON, YAML, Parquet or Arrow file.") from None
    if not isinstance(document, dict):
        raise SchemaError(f"'{path}' must hold an object with keys, got a {type(document).__name__}.")
    kind = format or documents.recognize(document)
    if kind is None:
        known = "SDV metadata, SmartNoise metadata or a Frictionless Table Schema"
        raise SchemaError(f"'{path}' is not recognized as {known}. Say what it is with --format.")
    try:
        return documents.READERS[kind](document, name)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise SchemaError(f"'{path}' does not have the layout of {kind} descriptions. Check its format.") from None


def between(kind: str, low: Any, high: Any) -> dict[str, Any]:
    """The keys for bins of equal width from low to high, both included; no keys where a bound is unknown."""
    if low is None or high is None:
        return {}
    if kind == "real":
        return {"low": float(low), "high": float(high), "bins": _BINS}
    axis = AXES[kind]
    with within("bounds: "):
        first, last = (int(axis.check(int(each) if axis.numeric else str(each))) for each in (low, high))
    # Bins exclude their upper edge: the last one ends a step, or a second, after the bound.
    end = last + (SECOND if axis.timed else 1)
    end = min(end, DAY) if kind == "time" else end
    few = end - first <= (_MOST_UNIT_BINS if axis.numeric else _BINS)
    return {"low": axis.value(first), "high": axis.value(end), "bins": max(1, end - first) if few else _BINS}


def words_in(described: Mapping[str, Any], keys: Sequence[str] = ("title", "description", "unit")) -> dict[str, Any]:
    """The words that a description states, as far as a schema can hold them."""
    words = {}
    for key in keys:
        try:
            words[key] = getattr(parse_words({key: " ".join(str(described.get(key) or "").split())}), key)
        except SchemaError:
            # Nothing, or longer than anybody reads.
            continue
    return words


def in_format(keys: dict[str, Any], written: str | None, notes: Sequence[str] = ()) -> ColumnEntry:
    """The entry with the format of its dates or times, where a schema can read them by it; else a note for a person."""
    try:
        parse_format(AXES[keys["type"]], written)
    except SchemaError:
        unread = f"Texts of the form {written!r} are not read as a {keys['type']}: convert the column first."
        return ColumnEntry(keys=keys, notes=[*notes, unread])
    return ColumnEntry(keys=keys | ({} if written is None else {"format": written}), notes=notes)


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)
