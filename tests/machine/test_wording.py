"""Sentences that rooms hold as data: each is said somewhere, with the facts that it names."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from string import Formatter

import sklar
from sklar.machine.wording import said, stated

ROOT = Path(sklar.__file__).parent
SOURCE = {path: path.read_text() for path in ROOT.rglob("*.py")}


def fields(text: str) -> set[str]:
    return {re.split(r"[.\[]", name)[0] for _, name, _, _ in Formatter().parse(text) if name}


def test_what_is_said_is_there_with_its_facts() -> None:
    for path, text in SOURCE.items():
        for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
            if ast.unparse(call.func) != "said":
                continue
            # None for facts in a table, whose names nobody can tell here.
            given = {keyword.arg for keyword in call.keywords}
            keys = (str(each.value) for each in ast.walk(call.args[0]) if isinstance(each, ast.Constant))
            for room, _, key in (each.partition(".") for each in keys if "." in each):
                texts = stated(f"sklar.{room}", "said.toml")
                assert [own for own in texts if own.startswith(key)], (path, key)
                assert None in given or key not in texts or fields(texts[key]) <= given, (path, key)


def test_every_sentence_is_said() -> None:
    source = "".join(SOURCE.values())
    for path in ROOT.glob("*/said.toml"):
        texts = stated(f"sklar.{path.parent.name}", "said.toml")
        unsaid = {key for key in texts if f'{path.parent.name}.{key}"' not in source and f'"{key}"' not in source}
        assert {key for key in unsaid if not key.startswith(("not_by_", "about_"))} == set(), path
        assert not [text for text in texts.values() if isinstance(text, str) and "  " in text.strip()]


def test_a_fact_may_hold_braces() -> None:
    place = said("budget.anchor_unmade", place="{why}", why="{no}")
    assert place.startswith("the anchor '{why}' cannot be made: {no}.")
