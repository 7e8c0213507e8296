"""A Croissant 1.1 description (croissant.json): files and fields of the synthetic rows, for machine learning tools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from sklar.trust.passport.facts import Column, Facts
from sklar.trust.passport.layout import FILES, MEDIA, MODEL, ROWS_CSV, ROWS_PARQUET, TABLES

CONFORMS = "http://mlcommons.org/croissant/1.1"
# Names that Croissant puts into its own namespace.
_OWN = (
    "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileObject",
    "fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5",
    "parentField", "path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate", "separator",
    "source", "subField", "transform",
)  # fmt: skip
# How Croissant's tools name Parquet.
_FORMATS = {".parquet": "application/x-parquet"}
_TYPES = {
    "string": "sc:Text",
    "integer": "sc:Integer",
    "number": "sc:Float",
    "boolean": "sc:Boolean",
    "date": "sc:Date",
    "datetime": "sc:DateTime",
    "time": "sc:Time",
}


def croissant(facts: Facts) -> dict[str, Any]:
    """The description. The publisher, the license, the address and the date are there where they were stated."""
    publication = facts.publication
    document: dict[str, Any] = {
        "@context": _context(),
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS,
        "name": facts.slug,
        "description": facts.description,
        "alternateName": facts.title,
        "citeAs": facts.citation,
        "version": "1.0.0",
        "isLiveDataset": False,
        "keywords": ["synthetic data", "differential privacy"],
        "isAccessibleForFree": True,
    }
    if publication.license_address is not None:
        document["license"] = publication.license_address
    if publication.url is not None:
        document["url"] = publication.url
    if publication.date is not None:
        document["datePublished"] = publication.date
    if publication.publisher is not None:
        agent = {"@type": "sc:Organization", "name": publication.publisher}
        document |= {"creator": agent, "publisher": agent}
    document["distribution"] = [_file(facts, name) for name in (ROWS_CSV, ROWS_PARQUET, TABLES, MODEL)]
    # Croissant has no type for durations: they are in the files alone.
    typed = [column for column in facts.columns if column.family in _TYPES]
    document["recordSet"] = [
        {
            "@type": "cr:RecordSet",
            "@id": "rows",
            "name": "rows",
            "description": f"{facts.rows:,} synthetic rows, drawn with seed {facts.seed}.",
            "field": [_field(column, named) for column, named in zip(typed, ids_of(typed), strict=True)],
        }
    ]
    return document


def _context() -> dict[str, Any]:
    prefixes = {
        "@language": "en",
        "@vocab": "https://schema.org/",
        "cr": "http://mlcommons.org/croissant/",
        "rai": "http://mlcommons.org/croissant/RAI/",
        "dct": "http://purl.org/dc/terms/",
        "sc": "https://schema.org/",
        "conformsTo": "dct:conformsTo",
        "data": {"@id": "cr:data", "@type": "@json"},
        "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        "description": {"@container": "@language"},
        "examples": {"@id": "cr:examples", "@type": "@json"},
        "name": {"@container": "@language"},
    }
    return prefixes | {name: f"cr:{name}" for name in _OWN}


def _file(facts: Facts, name: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "description": FILES[name],
        "contentUrl": facts.address(name),
        "contentSize": f"{facts.contents[name].size} B",
        "encodingFormat": _FORMATS.get(PurePath(name).suffix, MEDIA[PurePath(name).suffix]),
        "sha256": facts.contents[name].sha256,
    }


def ids_of(columns: Sequence[Column]) -> list[str]:
    """A name for each column that is part of an address: letters, digits, and no two alike."""
    found: dict[str, None] = {}
    for number, column in enumerate(columns, start=1):
        plain = re.sub("[^A-Za-z0-9._-]+", "_", column.name)
        while plain in found:
            plain += f"_{number}"
        found[plain] = None
    return list(found)


def _field(column: Column, named: str) -> dict[str, Any]:
    told = f"{column.title}. {column.description}".strip() if column.description else column.title
    if column.labels:
        told += " " + "; ".join(f"{value}: {label}" for value, label in column.labels) + "."
    return {
        "@type": "cr:Field",
        "@id": f"rows/{named}",
        "name": column.name,
        "description": told,
        "dataType": _TYPES[column.family],
        # In the Parquet file what is missing is null; in a CSV file it may be any text, which Croissant cannot state.
        "source": {"fileObject": {"@id": ROWS_PARQUET}, "extract": {"column": column.name}},
    }
