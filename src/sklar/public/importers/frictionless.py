"""A Frictionless Table Schema, alone, in a Data Resource, or in a Data Package of one resource.

Domains come from what it states: `enum`, `categories`, `minimum` and `maximum`. Titles, descriptions and labels of
categories come along.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from sklar.errors import SchemaError
from sklar.public.importers.proposal import (
    IDENTIFIER,
    Imported,
    Proposal,
    between,
    in_format,
    labels_of,
    listed,
    words_of,
)

_KINDS = {
    "string": "categorical",
    "boolean": "boolean",
    "integer": "integer",
    "year": "year",
    "yearmonth": "yearmonth",
    "number": "real",
    "date": "date",
    "datetime": "datetime",
    "time": "time",
    "duration": "duration",
}


def from_document(document: Mapping[str, Any], name: str) -> Imported:
    """The attributes that a Table Schema names."""
    words = words_of(document, unit=False)
    if "resources" in document:
        resources = document["resources"]
        if len(resources) != 1:
            names = ", ".join(str(resource.get("name")) for resource in resources)
            raise SchemaError(f"the Data Package holds {len(resources)} resources ({names}). Keep the one to release.")
        document = resources[0]
        words = words_of(document, unit=False) or words
    if "fields" not in document:
        name, document = str(document.get("name", name)), document["schema"]
    key = document.get("primaryKey", ())
    keys = {key} if isinstance(key, str) else set(key)
    # The first text is what nulls are written as.
    missing = [text for text in _texts(document.get("missingValues", [""])) if text]
    entries, left_out = {}, {}
    for described in document["fields"]:
        column, constraints = str(described["name"]), described.get("constraints", {})
        kind = _KINDS.get(described.get("type", "string"))
        if keys == {column} or constraints.get("unique"):
            left_out[column] = IDENTIFIER
        elif kind is None and "enum" not in constraints:
            left_out[column] = f"no attribute type fits a field of type {described['type']!r}"
        else:
            entries[column] = _proposal(kind or "categorical", described, constraints, missing)
    source = "a Frictionless Table Schema"
    return Imported(name=name, source=source, entries=entries, left_out=left_out, nulls=tuple(missing[1:]), words=words)


def _proposal(kind: str, described: Mapping[str, Any], constraints: Mapping[str, Any], missing: list[Any]) -> Proposal:
    keys: dict[str, Any] = {"type": kind}
    words = words_of(described)
    values = constraints.get("enum") or [_plain(each) for each in described.get("categories", ())]
    if values and kind != "boolean":
        keys = {"type": "categorical", "values": listed(values)}
        if described.get("categories"):
            keys |= {"ordered": True} if described.get("categoriesOrdered") else {"output": "category"}
            keys |= labels_of(described["categories"])
    elif kind not in ("categorical", "boolean"):
        keys |= between(kind, _bound(kind, constraints, "inimum", 1), _bound(kind, constraints, "aximum", -1))
    keys = {"type": keys.pop("type"), **words, **keys}
    notes = []
    if not constraints.get("required"):
        own = described.get("missingValues")
        # What the whole table has for missing is read as null. A schema reads an empty text as missing in any case.
        named = [text for text in _texts(own if own is not None else missing[:1]) if text]
        keys["missing"] = named[0] if named else ""
        if len(named) > 1:
            # A schema has one text for missing; what the field alone has beside it gets a level of its own each.
            keys["special"] = named[1:]
            told = ", ".join(map(repr, named[1:]))
            notes.append(f"The description has {told} for missing too: each is a special value here.")
    if kind == "boolean" and (described.get("falseValues") or described.get("trueValues")):
        false, true = described.get("falseValues", ["false"]), described.get("trueValues", ["true"])
        keys["texts"] = [str(false[0]), str(true[0])]
    written = described.get("format", "default")
    if kind in ("date", "datetime", "time") and written not in ("default", "any"):
        return in_format(keys, written, notes)
    return Proposal(keys=keys, notes=notes)


def _texts(values: Sequence[Any]) -> list[str]:
    return [str(_plain(each)) for each in values]


def _plain(each: Any) -> Any:
    return each["value"] if isinstance(each, Mapping) else each


def _bound(kind: str, constraints: Mapping[str, Any], end: str, inwards: int) -> Any:
    """The stated bound. An exclusive bound moves inwards by one step, if the kind has steps."""
    stated = constraints.get(f"m{end}")
    if stated is not None:
        return stated
    excluded = constraints.get(f"exclusiveM{end}")
    if excluded is None or kind not in ("integer", "year", "date"):
        return excluded
    if kind in ("integer", "year"):
        return int(excluded) + inwards
    return dt.date.fromisoformat(str(excluded)) + dt.timedelta(days=inwards)
