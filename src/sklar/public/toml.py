"""Schema files: parsing and checking what a person wrote as TOML, and writing a schema as one.

An error names the attribute, what is required, what was given, and how to mend it.
"""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

from sklar.errors import ModelError, SchemaError
from sklar.public.axis import edge_value
from sklar.public.checks import check_apart, check_step, format_of, points_of, special_of, step_of, texts_of
from sklar.public.description import open_model
from sklar.public.domains import EVERY_VALUE, bounds_of, domain_of, edges_of, values_of
from sklar.public.person import PERSON_KEYS, check_person, describe_person, parse_person
from sklar.public.reading import KEYS, check_reading, describe_reading, parse_reading
from sklar.public.rules import describe_rule, parse_rules
from sklar.public.schema import (
    BINNED,
    Attribute,
    AttributeKind,
    Outside,
    Provenance,
    Schema,
    repeated,
)
from sklar.public.types import grain, misfit, parse_output
from sklar.public.weights import describe_pairs, pair_weights_of, weight_of
from sklar.public.words import ATTRIBUTE_WORDS, TABLE_WORDS, describe_words, parse_words

_KINDS: tuple[str, ...] = get_args(AttributeKind)
_KEYS = {
    "categorical": {"values", "ordered", "missing", "other", "domain", "at_most"},
    "boolean": {"texts", "missing"},
    **{
        kind: {"edges", "low", "high", "bins", "spacing", "points", "step", "missing", "outside", "domain"}
        for kind in BINNED
    },
}
for _kind in ("date", "datetime", "time", "yearmonth"):
    _KEYS[_kind] |= {"format"}
_EVERYWHERE = {"type", "special", "output", "reviewed", "provenance", "weight", *ATTRIBUTE_WORDS}


def load_schema(path: str | Path) -> Schema:
    """Read a schema file, or the schema of a model file."""
    if zipfile.is_zipfile(path):
        return _load_from_model(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SchemaError(f"schema file '{path}' does not exist. Check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"schema file '{path}' cannot be read: {error}. It must be a UTF-8 text file.") from None
    return parse_schema(text)


def _load_from_model(path: str | Path) -> Schema:
    """The schema that a model file holds. Whoever loads the model checks the rest of it."""
    try:
        with open_model(path) as (_archive, document):
            schema = document.get("schema")
    except ModelError as error:
        raise SchemaError(str(error)) from None
    if not isinstance(schema, Mapping) or "attributes" not in schema:
        raise SchemaError(f"'{path}' is neither a schema nor a model of one table.")
    return build_schema(schema)


def parse_schema(text: str) -> Schema:
    """The schema that a TOML text describes."""
    try:
        document = tomllib.loads(text)
    except ValueError as error:
        raise SchemaError(f"the schema is not valid TOML: {error}.") from None
    return build_schema(document)


def build_schema(document: Mapping[str, Any]) -> Schema:
    """The schema that parsed TOML, or the same structure in JSON, describes."""
    _require_known_keys("schema", document, {"table", "attributes", "rules", "pairs"})
    table, attributes = document.get("table", {}), document.get("attributes")
    if not isinstance(table, Mapping):
        raise SchemaError("[table] must be a table of settings. Write [table] and name = '...' below it.")
    _require_known_keys("[table]", table, {"name", *TABLE_WORDS, *KEYS, *PERSON_KEYS})
    name = table.get("name", "table")
    if not isinstance(name, str) or not name:
        raise SchemaError(f"[table] name must be a text that is not empty, got {name!r}.")
    if not isinstance(attributes, Mapping) or not attributes:
        raise SchemaError("the schema lists no attributes. Add [attributes.NAME] for each column to release.")
    built = tuple(_build_attribute(key, entry) for key, entry in attributes.items())
    reading = parse_reading(table)
    check_reading(reading, ((each.name, (*each.values, *each.special)) for each in built))
    person = parse_person(table)
    check_person(person, (attribute.name for attribute in built))
    words = parse_words("[table]", table)
    schema = Schema(name=name, attributes=built, reading=reading, person=person, words=words).checked()
    rules = document.get("rules", [])
    schema = replace(schema, rules=parse_rules(rules, schema.attributes)) if rules != [] else schema
    pairs = pair_weights_of(document.get("pairs", []), schema.names, schema.determined)
    return replace(schema, pairs=pairs) if pairs else schema


def describe_schema(schema: Schema) -> dict[str, Any]:
    """The structure that `build_schema` reads."""
    document: dict[str, Any] = {
        "table": _describe_table(schema),
        "attributes": {attribute.name: _describe_attribute(attribute) for attribute in schema.attributes},
    }
    if schema.rules:
        document["rules"] = [describe_rule(rule, schema.attributes) for rule in schema.rules]
    if schema.pairs:
        document["pairs"] = describe_pairs(schema.pairs)
    return document


def write_schema(schema: Schema) -> str:
    """The schema as TOML text, one line per key, as a person would write it."""
    parts = [f"[table]\n{_lines(_describe_table(schema))}"]
    for attribute in schema.attributes:
        parts.append(f"[attributes.{toml_key(attribute.name)}]\n{_lines(_describe_attribute(attribute))}")
    for rule in schema.rules:
        parts.append(f"[[rules]]\n{_lines(describe_rule(rule, schema.attributes))}")
    parts += [f"[[pairs]]\n{_lines(entry)}" for entry in describe_pairs(schema.pairs)]
    return "\n".join(parts)


def _describe_table(schema: Schema) -> dict[str, Any]:
    named = {"name": schema.name} | describe_words(schema.words)
    return named | describe_person(schema.person) | describe_reading(schema.reading)


def toml_key(name: str) -> str:
    """A name as a TOML key, without quotes where TOML allows that."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else _quoted(name)


def toml_value(value: object) -> str:
    """A text, number, truth value, list or table as TOML writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(toml_value(entry) for entry in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    # A JSON string is a TOML string, except for one control character that TOML wants escaped too.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _lines(entry: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {toml_value(value)}\n" for key, value in entry.items())


def _require_known_keys(where: str, entry: Mapping[str, Any], keys: Iterable[str]) -> None:
    unknown = sorted(set(entry) - set(keys))
    if unknown:
        raise SchemaError(f"{where}: unknown key '{unknown[0]}'. Known keys are {', '.join(sorted(keys))}.")


def _build_attribute(name: str, entry: object) -> Attribute:
    where = f"attribute '{name}'"
    if not name:
        raise SchemaError("an attribute's name must not be empty. Give [attributes.NAME] the name of its column.")
    if not isinstance(entry, Mapping):
        raise SchemaError(f"{where}: must be a table, got {entry!r}. Write [attributes.{name}] and its keys below it.")
    kind = entry.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise SchemaError(f"{where}: type must be one of {', '.join(_KINDS)}, got {kind!r}.")
    _require_known_keys(where, entry, _KEYS[kind] | _EVERYWHERE)
    missing, other = entry.get("missing"), _flag(where, entry, "other", default=False)
    if missing is not None and not isinstance(missing, str):
        raise SchemaError(f"{where}: missing must be the text that stands for a missing value, got {missing!r}.")
    outside = entry.get("outside", "clip")
    if outside not in get_args(Outside):
        raise SchemaError(f"{where}: outside must be 'clip' or 'missing', got {outside!r}.")
    if outside == "missing" and missing is None:
        raise SchemaError(f"{where}: outside = 'missing' needs a missing level. Add missing = '' or another text.")
    provenance = entry.get("provenance")
    if provenance is not None and provenance not in get_args(Provenance):
        raise SchemaError(
            f"{where}: provenance must be 'public' (public knowledge) or 'rows' (read from the rows), got "
            f"{provenance!r}."
        )
    domain, at_most = domain_of(where, kind, entry)
    if domain == "private":
        # Categories that are not found, or are more than at_most, need a level.
        other = kind == "categorical"
    elif kind == "categorical" and domain == "found" and not other:
        raise SchemaError(f"{where}: a domain that was found needs other = true. Add it.")
    values = values_of(where, entry, domain) if kind == "categorical" else ()
    edges = bounds_of(where, kind, entry) if domain == "private" else edges_of(where, kind, entry)
    attribute = Attribute(
        name=name,
        kind=cast(AttributeKind, kind),
        values=values,
        edges=edges,
        missing=missing,
        other=other,
        outside=cast(Outside, outside),
        output=entry.get("output"),
        reviewed=_flag(where, entry, "reviewed", default=True),
        domain=domain,
        at_most=at_most,
        provenance=provenance,
        points=points_of(where, kind, entry, edges),
        special=special_of(where, kind, entry, values),
        step=step_of(where, kind, entry),
        texts=texts_of(where, entry),
        format=format_of(where, kind, entry),
        ordered=_flag(where, entry, "ordered", default=False),
        weight=weight_of(where, entry),
    )
    if attribute.output is not None:
        attribute = replace(attribute, output=_output(where, attribute))
    unit = grain(attribute) if domain == "private" and kind in BINNED and "bins" not in entry else None
    if unit is not None and (edges[-1] - edges[0]) / unit <= EVERY_VALUE:
        attribute = replace(attribute, at_most=max(int((edges[-1] - edges[0]) / unit), 1))
    check_step(where, attribute)
    check_apart(where, attribute)
    twice = repeated(attribute.levels)
    if twice is not None:
        raise SchemaError(f"{where}: levels must differ, got '{twice}' twice. Remove or rename one.")
    _check_missing(where, attribute)
    # A release may find what a label names, or not.
    words = parse_words(where, entry, attribute.levels if domain == "public" else None)
    return replace(attribute, words=words)


def _output(where: str, attribute: Attribute) -> str:
    """The output type in its standard spelling, if it holds every value of the domain."""
    output = parse_output(attribute.output) if isinstance(attribute.output, str) else None
    if output is None:
        raise SchemaError(
            f"{where}: output must be a column type such as 'int32', 'decimal(10, 2)', 'timestamp[us, tz=UTC]', "
            f"'string' or 'category', got {attribute.output!r}."
        )
    reason = misfit(output, attribute)
    if reason is not None:
        raise SchemaError(f"{where}: output '{output}' {reason}.")
    return str(output)


def _check_missing(where: str, attribute: Attribute) -> None:
    """Refuse a missing text that also reads as a value of the domain, or that a listed value hides."""
    missing = attribute.missing
    if missing is None:
        return
    if attribute.kind == "categorical" and "" in attribute.values:
        raise SchemaError(f"{where}: values must not list '' beside missing, which takes empty texts. Remove one.")
    if attribute.kind == "boolean" and attribute.truth_of(missing) is not None:
        raise SchemaError(f"{where}: missing must not be a text for true or false, got '{missing}'. Use another text.")
    edge = attribute.number_of(missing)
    if edge is not None and attribute.edges[0] <= edge <= attribute.edges[-1]:
        raise SchemaError(f"{where}: missing must not lie within the edges, got '{missing}'. Move the edges past it.")


def _flag(where: str, entry: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = entry.get(key, default)
    if not isinstance(value, bool):
        raise SchemaError(f"{where}: {key} must be true or false, got {value!r}.")
    return value


def _describe_attribute(attribute: Attribute) -> dict[str, Any]:
    """The entry that `_build_attribute` reads."""
    entry: dict[str, Any] = {"type": attribute.kind} | describe_words(attribute.words)
    shown = [edge_value(attribute.kind, edge) for edge in attribute.edges]
    if attribute.domain != "public":
        entry["domain"] = attribute.domain
    if attribute.kind == "categorical" and attribute.domain == "private":
        entry["at_most"] = attribute.at_most
    elif attribute.kind == "categorical":
        entry["values"] = list(attribute.values)
    elif attribute.domain == "private":
        entry |= {"low": shown[0], "high": shown[1], "bins": attribute.at_most}
    elif attribute.kind in BINNED:
        entry["edges"] = shown
    if attribute.points:
        entry["points"] = [edge_value(attribute.kind, point) for point in attribute.points]
    if attribute.step is not None:
        entry["step"] = attribute.step
    if attribute.texts:
        entry["texts"] = list(attribute.texts)
    if attribute.format is not None:
        entry["format"] = attribute.format
    if attribute.ordered:
        entry["ordered"] = True
    if attribute.special:
        entry["special"] = list(attribute.special)
    if attribute.missing is not None:
        entry["missing"] = attribute.missing
    if attribute.other and attribute.domain != "private":
        entry["other"] = True
    if attribute.outside != "clip":
        entry["outside"] = attribute.outside
    if attribute.output is not None:
        entry["output"] = attribute.output
    if not attribute.reviewed:
        entry["reviewed"] = False
    if attribute.provenance is not None:
        entry["provenance"] = attribute.provenance
    if attribute.weight != 1:
        entry["weight"] = attribute.weight
    return entry
