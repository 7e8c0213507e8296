"""The table that guarantees are tested on: two attributes for all of them, and more where a test wants them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

BASE = """[table]
name = "people"
[attributes]
age = {type = "integer", edges = [0, 20, 40, 60, 120]}
city = {type = "categorical", values = ["Bern", "Rome"], missing = "?"}
"""
FLAG = """[attributes.ok]
type = "boolean"
"""
MONEY_AND_DATE = """income = {type = "real", edges = [0, 100000, 500000]}
born = {type = "date", edges = ["1900-01-01", "1950-01-01", "2000-01-01"]}
"""
WAYS: dict[str, list[str]] = {"auto": [], "binary": ["--method", "binary"], "paper": ["--preset", "paper", "--dummies"]}


def walk(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All parts of a document, each with the names on the way to it, of which items of lists have none."""
    yield path, node
    named = [*node.items()] if isinstance(node, dict) else []
    listed = [("", each) for each in node] if isinstance(node, list | tuple) else []
    for name, each in named + listed:
        yield from walk(each, f"{path}/{name}")
