"""SmartNoise: the metadata of its SQL reader (YAML), or the transformers of its synthesizers written as JSON.

Metadata nests collection, schema, table, column; bounds are `lower` and `upper`. Transformers are listed by column
under `constraints`, each with a name and parameters. A chain of them is read up to its first change of scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklar.errors import SchemaError
from sklar.public.importers.proposal import IDENTIFIER, Imported, Proposal, between

_KINDS = {
    "boolean": "boolean",
    "datetime": "datetime",
    "int": "integer",
    "float": "real",
    "string": "categorical",
    "time": "time",
}
_TRANSFORMED = {
    "BinTransformer": "real",
    "MinMaxTransformer": "real",
    "StandardScaler": "real",
    "ClampTransformer": "real",
    "LogTransformer": "real",
    "DateTimeTransformer": "datetime",
    "LabelTransformer": "categorical",
    "OneHotEncoder": "categorical",
}


def from_document(document: Mapping[str, Any], name: str) -> Imported:
    """The attributes that SmartNoise's metadata, or its transformers, name."""
    if "constraints" in document:
        return _from_transformers(document["constraints"], name)
    tables = tables_of(document)
    if len(tables) != 1:
        raise SchemaError(
            f"the SmartNoise metadata describes {len(tables)} tables ({', '.join(tables)}). Keep the one to release."
        )
    [(name, columns)] = tables.items()
    entries, left_out = {}, {}
    for column, described in columns.items():
        if not isinstance(described, Mapping):
            continue  # a setting of the table: rows, max_ids, row_privacy
        kind = _KINDS.get(described["type"])
        if described.get("private_id"):
            left_out[str(column)] = IDENTIFIER
        elif kind is None:
            left_out[str(column)] = f"no attribute type fits a column of type {described['type']!r}"
        else:
            keys = {"type": kind}
            if kind in ("integer", "real"):
                keys |= between(kind, described.get("lower"), described.get("upper"))
            if described.get("nullable", True):
                keys["missing"] = ""
            entries[str(column)] = Proposal(keys=keys, notes=_filled(described))
    return Imported(name=name, source="SmartNoise metadata", entries=entries, left_out=left_out)


def tables_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of all schemas of the collection, by name; none when the document has another layout."""
    collections = [each for key, each in document.items() if key != "engine"]
    if len(collections) != 1 or not isinstance(collections[0], Mapping):
        return {}
    schemas = [each for each in collections[0].values() if isinstance(each, Mapping)]
    return {str(name): table for schema in schemas for name, table in schema.items() if isinstance(table, Mapping)}


def _filled(described: Mapping[str, Any]) -> list[str]:
    value = described.get("missing_value")
    return [] if value is None else [f"SmartNoise was told to put {value!r} where a value is missing."]


def _from_transformers(constraints: Mapping[str, Any], name: str) -> Imported:
    entries, left_out = {}, {}
    for column, described in constraints.items():
        chain = described["params"] if described["name"] == "ChainTransformer" else [described]
        proposed = _proposal(chain)
        if proposed is None:
            left_out[str(column)] = "SmartNoise drops it or makes it up"
        else:
            entries[str(column)] = proposed
    return Imported(name=name, source="SmartNoise transformers", entries=entries, left_out=left_out)


def _proposal(chain: list[Mapping[str, Any]]) -> Proposal | None:
    kind, bins, nullable = None, None, False
    bounds: dict[str, Any] = {}
    for step in chain:
        params = step["params"] if isinstance(step["params"], Mapping) else {}
        kind = kind or _TRANSFORMED.get(step["name"])
        nullable = nullable or bool(params.get("nullable"))
        if step["name"] in ("LogTransformer", "StandardScaler", "MinMaxTransformer") and not bounds:
            # The steps after this one see another scale.
            bounds = {key: params.get(key) for key in ("lower", "upper")}
            break
        bins = bins or params.get("bins")
        bounds = bounds or {key: params[key] for key in ("lower", "upper") if params.get(key) is not None}
    if kind is None:
        return None
    keys: dict[str, Any] = {"type": kind}
    if kind == "real":
        keys |= between(kind, bounds.get("lower"), bounds.get("upper"))
        if bins and "bins" in keys:
            keys["bins"] = bins
    notes = ["If it holds whole numbers, write type = 'integer'."] if kind == "real" else []
    return Proposal(keys=keys | ({"missing": ""} if nullable else {}), notes=notes)
