"""Descriptions in JSON or YAML: a Frictionless Table Schema, SDV metadata, SmartNoise metadata or transformers.

Frictionless: a Table Schema alone, in a Data Resource, or in a Data Package of one resource; domains come from `enum`,
`categories`, `minimum` and `maximum`. SDV states the type of each column, but not its values, except for categories
that have an order. SmartNoise: metadata nests collection, schema, table, column, with bounds `lower` and `upper`;
transformers are listed by column under `constraints`, and a chain of them is read up to its first change of scale.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from sklar.public.attribute import refuse
from sklar.public.axis import AXES
from sklar.public.importers import IDENTIFIER, ColumnEntry, Imported, between, in_format, words_in
from sklar.public.outputs import WHOLE

_ISO = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.%f")
_TIMES = ("%H", "%I", "%M", "%S", "%f", "%p", "%X", "%c")
# Types of Frictionless and SmartNoise are called as they are here, but for these.
_KINDS = {kind: kind for kind in AXES if kind not in ("categorical", "real")}
_KINDS |= {"string": "categorical", "number": "real", "int": "integer", "float": "real"}
_RESCALING = ("LogTransformer", "StandardScaler", "MinMaxTransformer")
_TRANSFORMED = dict.fromkeys(("BinTransformer", "ClampTransformer", *_RESCALING), "real")
_TRANSFORMED |= {"DateTimeTransformer": "datetime", "LabelTransformer": "categorical", "OneHotEncoder": "categorical"}


def from_frictionless(document: Mapping[str, Any], name: str) -> Imported:
    """The attributes that a Table Schema names."""
    words = words_in(document, ("title", "description"))
    if "resources" in document:
        resources = document["resources"]
        names = ", ".join(str(resource.get("name")) for resource in resources)
        refuse((len(resources) != 1, f"the Data Package holds {len(resources)} resources ({names}). Keep only one."))
        document = resources[0]
        words = words_in(document, ("title", "description")) or words
    if "fields" not in document:
        name, document = str(document.get("name", name)), document["schema"]
    key = document.get("primaryKey", ())
    keys = {key} if isinstance(key, str) else set(key)
    # The first text is what nulls are written as.
    missing = _texts(document.get("missingValues", ()))
    columns: dict[str, ColumnEntry | str] = {}
    for described in document["fields"]:
        column, constraints = str(described["name"]), described.get("constraints", {})
        kind = _KINDS.get(described.get("type", "string"))
        if keys == {column} or constraints.get("unique"):
            columns[column] = IDENTIFIER
        elif kind is None and "enum" not in constraints:
            columns[column] = f"no attribute type fits a field of type {described['type']!r}"
        else:
            columns[column] = _field(kind or "categorical", described, constraints, missing)
    source = "a Frictionless Table Schema"
    return Imported(columns=columns, name=name, source=source, nulls=tuple(missing[1:]), words=words)


def _field(kind: str, described: Mapping[str, Any], constraints: Mapping[str, Any], missing: list[str]) -> ColumnEntry:
    keys: dict[str, Any] = {"type": kind}
    categories = described.get("categories", ())
    values = constraints.get("enum") or _plain(categories)
    if values and kind != "boolean":
        keys = {"type": "categorical", "values": _values(values)}
        if categories:
            keys |= {"ordered": True} if described.get("categoriesOrdered") else {"output": "category"}
            pairs = [(each["value"], each.get("label")) for each in categories if isinstance(each, Mapping)]
            labels = {str(value): label for value, label in pairs if isinstance(label, str) and label.strip()}
            keys |= {"labels": labels} if labels else {}
    elif AXES[kind].binned:
        keys |= between(kind, _bound(kind, constraints, "inimum", 1), _bound(kind, constraints, "aximum", -1))
    keys = {"type": keys.pop("type"), **words_in(described), **keys}
    notes = []
    if not constraints.get("required"):
        own = described.get("missingValues")
        # What the whole table has for missing is read as null. A schema reads an empty text as missing in any case.
        named = missing[:1] if own is None else _texts(own)
        keys["missing"] = named[0] if named else ""
        if len(named) > 1:
            # A schema has one text for missing; what the field alone has beside it gets a level of its own each.
            keys["special"] = named[1:]
            others = ", ".join(map(repr, named[1:]))
            notes.append(f"The description has {others} for missing too: each is a special value here.")
    if kind == "boolean" and (described.get("falseValues") or described.get("trueValues")):
        false, true = described.get("falseValues", ["false"]), described.get("trueValues", ["true"])
        keys["texts"] = [str(false[0]), str(true[0])]
    written = described.get("format", "default")
    formatted = kind in ("date", "datetime", "time") and written not in ("default", "any")
    return in_format(keys, written if formatted else None, notes)


def _plain(values: Sequence[Any]) -> list[Any]:
    return [each["value"] if isinstance(each, Mapping) else each for each in values]


def _texts(values: Sequence[Any]) -> list[str]:
    return [text for text in map(str, _plain(values)) if text]


def _values(values: Sequence[Any]) -> list[Any]:
    """Values as a schema lists them: as whole numbers if all of them are, else as texts."""
    if all(type(value) is int for value in values):
        return list(values)
    return [str(value).lower() if isinstance(value, bool) else str(value) for value in values]


def _bound(kind: str, constraints: Mapping[str, Any], end: str, inwards: int) -> Any:
    """The stated bound. An exclusive bound moves inwards by one step, if the kind has steps."""
    stated, excluded = constraints.get(f"m{end}"), constraints.get(f"exclusiveM{end}")
    if stated is not None or excluded is None or kind not in ("integer", "year", "date"):
        return excluded if stated is None else stated
    if kind == "date":
        return dt.date.fromisoformat(str(excluded)) + dt.timedelta(days=inwards)
    return int(excluded) + inwards


def from_sdv(document: Mapping[str, Any], name: str) -> Imported:
    """The attributes that SDV metadata names, in the form of a single table or of several."""
    if document.get("tables") is not None:
        name, document = _only_table(document["tables"], "SDV")
    keys = {document.get("primary_key"), document.get("sequence_key"), *document.get("alternate_keys", ())}
    described = document["columns"].items()
    columns = {column: IDENTIFIER if column in keys else _sdv_column(each) for column, each in described}
    return Imported(columns=columns, name=name, source="SDV metadata")


def _only_table(tables: Mapping[str, Any], what: str) -> tuple[str, Any]:
    named = ", ".join(tables)
    refuse((len(tables) != 1, f"the {what} metadata describes {len(tables)} tables ({named}). Keep only one."))
    return next(iter(tables.items()))


def _sdv_column(described: Mapping[str, Any]) -> ColumnEntry | str:
    """The entry for a column, or the reason why it is left out."""
    kind, missing, keys = described["sdtype"], {"missing": ""}, dict[str, Any]()
    if kind == "datetime":
        written = described.get("datetime_format")
        timed = written is None or any(code in written for code in _TIMES)
        return in_format({"type": "datetime" if timed else "date"} | missing, None if written in _ISO else written)
    if kind == "numerical":
        held = str(described.get("computer_representation", "Float")).lower()
        output = {} if held not in (*WHOLE, "float32") or held == "int64" else {"output": held}
        keys = {"type": "integer" if held in WHOLE else "real"} | output
    elif kind in ("boolean", "categorical"):
        order = described.get("order") if kind == "categorical" else None
        keys = {"type": kind} | ({"values": _values(order), "ordered": True} if order else {})
    elif kind == "id" or described.get("pii", True):
        return IDENTIFIER
    return ColumnEntry(keys=keys | missing) if keys else f"no attribute type fits a column of SDV's type {kind!r}"


def from_smartnoise(document: Mapping[str, Any], name: str) -> Imported:
    """The attributes that SmartNoise's metadata, or its transformers, name."""
    columns: dict[str, ColumnEntry | str] = {}
    if "constraints" in document:
        for column, described in document["constraints"].items():
            chain = described["params"] if described["name"] == "ChainTransformer" else [described]
            columns[str(column)] = _transformed(chain) or "SmartNoise drops it or makes it up"
        return Imported(columns=columns, name=name, source="SmartNoise transformers")
    name, table = _only_table(_smartnoise_tables(document), "SmartNoise")
    for column, described in table.items():
        if not isinstance(described, Mapping):
            continue  # a setting of the table: rows, max_ids, row_privacy
        kind, value = _KINDS.get(described["type"]), described.get("missing_value")
        if described.get("private_id"):
            columns[str(column)] = IDENTIFIER
        elif kind is None:
            columns[str(column)] = f"no attribute type fits a column of type {described['type']!r}"
        else:
            bounds = (described.get("lower"), described.get("upper")) if AXES[kind].numeric else (None, None)
            missing = {"missing": ""} if described.get("nullable", True) else {}
            keys = {"type": kind} | between(kind, *bounds) | missing
            notes = [] if value is None else [f"SmartNoise was told to put {value!r} where a value is missing."]
            columns[str(column)] = ColumnEntry(keys=keys, notes=notes)
    return Imported(columns=columns, name=name, source="SmartNoise metadata")


def _smartnoise_tables(document: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of all schemas of the collection, by name; none when the document has another layout."""
    collections = [each for key, each in document.items() if key != "engine"]
    if len(collections) != 1 or not isinstance(collections[0], Mapping):
        return {}
    schemas = [each for each in collections[0].values() if isinstance(each, Mapping)]
    return {str(name): table for schema in schemas for name, table in schema.items() if isinstance(table, Mapping)}


def _transformed(chain: list[Mapping[str, Any]]) -> ColumnEntry | None:
    kind, bins, nullable = None, None, False
    bounds: dict[str, Any] = {}
    for step in chain:
        params = step["params"] if isinstance(step["params"], Mapping) else {}
        kind = kind or _TRANSFORMED.get(step["name"])
        nullable = nullable or bool(params.get("nullable"))
        stated = {key: params[key] for key in ("lower", "upper") if params.get(key) is not None}
        if step["name"] in _RESCALING and not bounds:
            # The steps after this one see another scale.
            bounds = stated
            break
        bins = bins or params.get("bins")
        bounds = bounds or stated
    if kind is None:
        return None
    keys, notes = {"type": kind}, []
    if kind == "real":
        keys |= between(kind, bounds.get("lower"), bounds.get("upper"))
        keys |= {"bins": bins} if bins and "bins" in keys else {}
        notes = ["If it holds whole numbers, write type = 'integer'."]
    return ColumnEntry(keys=keys | ({"missing": ""} if nullable else {}), notes=notes)


def recognize(document: Mapping[str, Any]) -> str | None:
    """The format that a document seems to have."""
    if "fields" in document or "resources" in document or isinstance(document.get("schema"), dict):
        return "frictionless"
    if "METADATA_SPEC_VERSION" in document or "columns" in document or "tables" in document:
        return "sdv"
    return "smartnoise" if "constraints" in document or _smartnoise_tables(document) else None


READERS = {"frictionless": from_frictionless, "sdv": from_sdv, "smartnoise": from_smartnoise}
