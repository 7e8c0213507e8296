"""Descriptions of tables that exist already (SDV, SmartNoise, Frictionless, Arrow), as schemas to complete.

Importers read descriptions and never a row. A domain that the description states goes into the schema as it is. A
domain that it does not state is marked `reviewed = false`, and a release refuses the schema until somebody fills it in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sklar.errors import SchemaError
from sklar.machine.extras import require
from sklar.public.importers.proposal import Imported

__all__ = ["FORMATS", "Imported", "import_schema"]

FORMATS = ("arrow", "frictionless", "sdv", "smartnoise")


def import_schema(path: str | Path, *, format: str | None = None) -> Imported:  # noqa: A002
    """The schema that a description implies, as far as it goes. The format is recognized unless it is given."""
    # Imported here: who reads rows needs one part of one of them.
    from sklar.public.importers import arrow, documents

    path = Path(path)
    if format is not None and format not in FORMATS:
        raise SchemaError(f"format must be one of {', '.join(FORMATS)}, got '{format}'.")
    if not path.is_file():
        raise SchemaError(f"file '{path}' does not exist. Check the path.")
    name = path.name.split(".")[0] or "table"
    if format == "arrow" or (format is None and path.suffix.lower() in arrow.SUFFIXES):
        return arrow.from_file(path, name)
    document = _load(path)
    kind = format or _recognize(document)
    if kind is None:
        raise SchemaError(
            f"'{path}' is not recognized as SDV metadata, SmartNoise metadata or a Frictionless Table Schema. "
            "Say what it is with --format."
        )
    try:
        return documents.READERS[kind](document, name)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise SchemaError(f"'{path}' does not have the layout of {kind} descriptions. Check its format.") from None


def _load(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        document = _yaml(text) if path.suffix.lower() in (".yaml", ".yml") else json.loads(text)
    except (OSError, ValueError, RecursionError):
        raise SchemaError(f"'{path}' cannot be read. It must be a JSON, YAML, Parquet or Arrow file.") from None
    if not isinstance(document, dict):
        raise SchemaError(f"'{path}' must hold an object with keys, got a {type(document).__name__}.")
    return document


def _yaml(text: str) -> Any:
    require("yaml", what="a YAML file", package="PyYAML", extra="yaml")
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ValueError from None


def _recognize(document: Mapping[str, Any]) -> str | None:
    if "fields" in document or "resources" in document or isinstance(document.get("schema"), dict):
        return "frictionless"
    if "METADATA_SPEC_VERSION" in document or "columns" in document or "tables" in document:
        return "sdv"
    from sklar.public.importers.documents import smartnoise_tables

    return "smartnoise" if "constraints" in document or smartnoise_tables(document) else None
