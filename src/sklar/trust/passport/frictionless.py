"""A Frictionless Data Package (datapackage.json): the folder's files, and the fields of the synthetic rows."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from sklar.trust.passport.facts import Column, Facts
from sklar.trust.passport.layout import FILES, MEDIA, MODEL, ROWS_CSV, ROWS_PARQUET, TABLES


def data_package(facts: Facts) -> dict[str, Any]:
    """The descriptor. It states no time: equal models give equal folders."""
    publication = facts.publication
    document: dict[str, Any] = {
        "profile": "data-package",
        "name": facts.slug,
        "title": facts.title,
        "description": facts.description,
        "version": facts.certificate.schema_sha256[:16],
        "keywords": ["synthetic data", "differential privacy"],
    }
    if publication.url is not None:
        document["homepage"] = publication.url
    if publication.date is not None:
        document["created"] = f"{publication.date}T00:00:00Z"
    if publication.license is not None and publication.license_address is not None:
        named = {} if publication.license == publication.license_address else {"name": publication.license}
        document["licenses"] = [{**named, "path": publication.license_address}]
    if publication.publisher is not None:
        document["contributors"] = [{"title": publication.publisher, "role": "publisher"}]
    resources = [_resource(facts, name) for name in (ROWS_CSV, ROWS_PARQUET, TABLES, MODEL)]
    resources[0] |= {
        "profile": "tabular-data-resource",
        "type": "table",
        "dialect": {"delimiter": ",", "lineTerminator": "\n", "quoteChar": '"', "doubleQuote": True},
        "schema": {"fields": [_field(column) for column in facts.columns], "missingValues": [""]},
    }
    return document | {"resources": resources}


def _resource(facts: Facts, name: str) -> dict[str, Any]:
    content, path = facts.contents[name], PurePath(name)
    return {
        # Only the rows are described field by field.
        "type": "file",
        "name": path.stem.replace("_", "-") + ("" if name == ROWS_CSV else f"-{path.suffix[1:]}"),
        "title": FILES[name],
        "path": name,
        "format": path.suffix[1:],
        "mediatype": MEDIA[path.suffix],
        "encoding": "utf-8",
        "bytes": content.size,
        "hash": f"sha256:{content.sha256}",
    }


def _field(column: Column) -> dict[str, Any]:
    # Durations are written as 1:30:00, which is not how the standard writes them.
    family = "string" if column.family == "duration" else column.family
    field: dict[str, Any] = {"name": column.name, "type": family, "title": column.title}
    if column.description:
        field["description"] = column.description
    if column.unit is not None:
        field["unit"] = column.unit
    if column.family in ("datetime", "time"):
        # Seconds may have fractions, and a time zone may follow.
        field["format"] = "any"
    constraints: dict[str, Any] = {} if column.missing is not None else {"required": True}
    if column.missing:
        field["missingValues"] = ["", column.missing]
    if column.values:
        constraints["enum"] = list(column.values)
    if column.labels:
        field["categories"] = [{"value": value, "label": label} for value, label in column.labels]
    if column.least is not None:
        constraints |= {"minimum": column.least, "maximum": column.largest}
    return field | ({"constraints": constraints} if constraints else {})
