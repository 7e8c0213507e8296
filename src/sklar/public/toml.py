"""Texts, numbers, lists and tables as TOML writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def toml_key(name: str) -> str:
    """A name as a TOML key, without quotes where TOML allows that."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_value(value: object) -> str:
    """A text, number, truth value, list or table as TOML writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(toml_value(entry) for entry in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    # A JSON string is a TOML string, except for one control character that TOML wants escaped too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F") if isinstance(value, str) else repr(value)


def toml_table(heading: str, entry: Mapping[str, Any]) -> str:
    """A table with its heading, one line for each key."""
    return f"{heading}\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in entry.items())
