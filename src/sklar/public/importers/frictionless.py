"""A Frictionless Table Schema, alone, in a Data Resource, or in a Data Package of one resource.

Domains come from what it states: `enum`, `categories`, `minimum` and `maximum`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from sklar.errors import SchemaError
from sklar.public.importers.proposal import IDENTIFIER, Imported, Proposal, between, listed

_KINDS = {
    "string": "categorical",
    "boolean": "boolean",
    "integer": "integer",
    "year": "integer",
    "number": "real",
    "date": "date",
    "datetime": "datetime",
}


def from_document(document: Mapping[str, Any], name: str) -> Imported:
    """The attributes that a Table Schema names."""
    if "resources" in document:
        resources = document["resources"]
        if len(resources) != 1:
            names = ", ".join(str(resource.get("name")) for resource in resources)
            raise SchemaError(f"the Data Package holds {len(resources)} resources ({names}). Keep the one to release.")
        document = resources[0]
    if "fields" not in document:
        name, document = str(document.get("name", name)), document["schema"]
    key = document.get("primaryKey", ())
    keys = {key} if isinstance(key, str) else set(key)
    missing = document.get("missingValues", [""])
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
    return Imported(name=name, source="a Frictionless Table Schema", entries=entries, left_out=left_out)


def _proposal(kind: str, described: Mapping[str, Any], constraints: Mapping[str, Any], missing: list[Any]) -> Proposal:
    keys: dict[str, Any] = {"type": kind}
    values = constraints.get("enum") or [_plain(each) for each in described.get("categories", ())]
    if values and kind != "boolean":
        keys = {"type": "categorical", "values": listed(values)}
        if described.get("categories"):
            keys["output"] = "ordered category" if described.get("categoriesOrdered") else "category"
    elif kind not in ("categorical", "boolean"):
        keys |= between(kind, _bound(kind, constraints, "inimum", 1), _bound(kind, constraints, "aximum", -1))
    notes = []
    if not constraints.get("required"):
        texts = [str(_plain(each)) for each in described.get("missingValues", missing)]
        # A schema reads an empty text as missing in any case.
        named = [text for text in texts if text]
        keys["missing"] = named[0] if named else ""
        if len(named) > 1:
            notes.append(
                f"The description also has {', '.join(map(repr, named[1:]))} for missing; a schema has one text."
            )
    if kind in ("date", "datetime") and described.get("format", "default") not in ("default", "any"):
        notes.append(f"Texts of the form {described['format']!r} are not read as dates: convert the column first.")
    return Proposal(keys=keys, notes=notes)


def _plain(each: Any) -> Any:
    return each["value"] if isinstance(each, Mapping) else each


def _bound(kind: str, constraints: Mapping[str, Any], end: str, inwards: int) -> Any:
    """The stated bound. An exclusive bound moves inwards by one step, if the kind has steps."""
    stated = constraints.get(f"m{end}")
    if stated is not None:
        return stated
    excluded = constraints.get(f"exclusiveM{end}")
    if excluded is None or kind in ("real", "datetime"):
        return excluded
    if kind == "integer":
        return int(excluded) + inwards
    return dt.date.fromisoformat(str(excluded)) + dt.timedelta(days=inwards)
