"""SDV metadata: one table, in the form of a single table (SINGLE_TABLE_V1) or of several (V1, MULTI_TABLE_V1).

It states the type of each column, but not its values, except for categories that have an order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklar.errors import SchemaError
from sklar.public.importers.proposal import IDENTIFIER, Imported, Proposal, in_format, listed
from sklar.public.outputs import WHOLE

_ISO = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.%f")
_TIMES = ("%H", "%I", "%M", "%S", "%f", "%p", "%X", "%c")


def from_document(document: Mapping[str, Any], name: str) -> Imported:
    """The attributes that SDV metadata names."""
    tables = document.get("tables")
    if tables is not None:
        if len(tables) != 1:
            raise SchemaError(
                f"the SDV metadata describes {len(tables)} tables ({', '.join(tables)}). Keep the one to release."
            )
        [(name, document)] = tables.items()
    keys = {document.get("primary_key"), document.get("sequence_key"), *document.get("alternate_keys", ())}
    entries, left_out = {}, {}
    for column, described in document["columns"].items():
        proposed = IDENTIFIER if column in keys else _proposal(described)
        if isinstance(proposed, str):
            left_out[column] = proposed
        else:
            entries[column] = proposed
    return Imported(name=name, source="SDV metadata", entries=entries, left_out=left_out)


def _proposal(described: Mapping[str, Any]) -> Proposal | str:
    """The entry for a column, or the reason why it is left out."""
    kind = described["sdtype"]
    if kind == "boolean":
        return Proposal(keys={"type": "boolean", "missing": ""})
    if kind == "categorical":
        order = described.get("order")
        values = {"values": listed(order), "ordered": True} if order else {}
        return Proposal(keys={"type": "categorical", **values, "missing": ""})
    if kind == "numerical":
        return Proposal(keys={**_number(str(described.get("computer_representation", "Float"))), "missing": ""})
    if kind == "datetime":
        written = described.get("datetime_format")
        timed = written is None or any(code in written for code in _TIMES)
        keys = {"type": "datetime" if timed else "date", "missing": ""}
        return in_format(keys, None if written in _ISO else written)
    if kind == "id" or described.get("pii", True):
        return IDENTIFIER
    return f"no attribute type fits a column of SDV's type {kind!r}"


def _number(representation: str) -> dict[str, Any]:
    lowered = representation.lower()
    if lowered in WHOLE:
        return {"type": "integer"} | ({} if lowered == "int64" else {"output": lowered})
    return {"type": "real"} | ({"output": "float32"} if lowered == "float32" else {})
