"""Markdown and YAML of the folder: every text that somebody else wrote is escaped, so that it can only be read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_MARKS = re.compile(r"([\\`*_{}\[\]#|~$])")


def plain(text: str) -> str:
    """A text as Markdown shows it and does not interpret it, in one line.

    >>> plain("a_b <i> | [x]")
    'a\\\\_b &lt;i&gt; \\\\| \\\\[x\\\\]'
    """
    shown = "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))
    return _MARKS.sub(r"\\\1", shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def code(text: str) -> str:
    """A text as a piece of code in a line."""
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    edge = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{edge}{shown}{edge}{ticks}".replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def yaml(document: Mapping[str, Any], indent: int = 0) -> str:
    """Mappings, lists, texts and numbers as YAML, whose texts are those of JSON.

    >>> print(yaml({"a": {"b": [1, "x"]}, "c": "y: z"}))
    a:
      b:
        - 1
        - "x"
    c: "y: z"
    <BLANKLINE>
    """
    space, lines = " " * indent, []
    for key, value in document.items():
        if isinstance(value, Mapping):
            lines.append(f"{space}{key}:\n{yaml(value, indent + 2)}")
        elif isinstance(value, list):
            lines.append(f"{space}{key}:\n{_listed(value, indent + 2)}")
        else:
            lines.append(f"{space}{key}: {_scalar(value)}\n")
    return "".join(lines)


def _listed(values: Sequence[Any], indent: int) -> str:
    space = " " * indent
    lines = []
    for value in values:
        if isinstance(value, Mapping):
            # The first key stands behind the dash.
            lines.append(f"{space}- {yaml(value, indent + 2)[indent + 2 :]}")
        else:
            lines.append(f"{space}- {_scalar(value)}\n")
    return "".join(lines)


def _scalar(value: object) -> str:
    if isinstance(value, float):
        # YAML reads 1e-09 as a text: a number has a point.
        return f"{value:.1f}" if value == int(value) and abs(value) < 1e15 else _pointed(repr(value))
    # What is not ASCII is escaped: YAML has rules of its own for it.
    return json.dumps(value)


def _pointed(text: str) -> str:
    digits, power, exponent = text.partition("e")
    return f"{digits if '.' in digits else f'{digits}.0'}{power}{exponent}"
