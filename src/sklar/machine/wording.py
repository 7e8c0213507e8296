"""What packages hold as data beside their code: tables of facts, and sentences for people."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def stated(package: str, name: str) -> dict[str, Any]:
    """A TOML file of a package."""
    return tomllib.loads((files(package) / name).read_text("utf-8"))


def said(key: str, /, **facts: object) -> str:
    """The sentence that a room's `said.toml` has under a key, `room.key`, with these facts where it names them."""
    room, _, name = key.partition(".")
    return str(stated(f"sklar.{room}", "said.toml")[name]).format(**facts)
