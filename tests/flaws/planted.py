"""Planted flaws: each a small change to a copy of the package that breaks its privacy claim (`planted.toml`).

`make flaws` plants each and reports who catches it (`tests.flaws.run`). A change whose text is not found fails loudly:
whoever rewrites that text says here how the flaw looks now.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

import sklar
from sklar.machine.compiled import cache_folder

PACKAGE = Path(sklar.__file__).parent
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Edit:
    """One text of one file replaced by another."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """A flaw: what it does, how it is planted, and the tests that must notice it."""

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    audited: bool = True


_VAULT, _ADD = "kernel/vault.py", "        noisy += counts\n"
# A place of the vault's own, for flaws that remember what was drawn before.
_MEMORY = (
    Edit(_VAULT, '"_spent", "_threads")', '"_spent", "_threads", "_old")'),
    Edit(_VAULT, "        self._lock = Lock()\n", "        self._lock, self._old = Lock(), {}\n"),
)
_REUSED = """\
pool = {reused}
old = self._old.get(pool) if pool else None
if pool and old is None:
    self._old[pool] = noisy / every
if old is not None:
    k = min(old.size, noisy.size)
    noisy[:k] = np.rint({share} * old[:k] * every[:k] + {rest} * noisy[:k])
"""
_REPEATED = """\
if noisy.size and {repeated}:
    within = np.concatenate([np.arange(size) for size in sizes])
    noisy = np.rint((noisy / every)[within] * every).astype(np.int64)
"""


def _read(entry: Mapping[str, Any]) -> Flaw:
    """The flaw that an entry of `planted.toml` states."""
    stated = [each for each in entry.get("edits", [entry]) if "old" in each]
    edits = tuple(Edit(each["file"], each["old"], each["new"]) for each in stated)
    tests = entry.get("tests", ["guarantees/test_noise_together.py"])
    if "noise" in entry:
        tests = entry.get("tests", ["guarantees/test_noise_on_the_way.py"])
        edits = (Edit(_VAULT, _ADD, indent(entry["noise"], 8 * " ") + _ADD),)
    elif not edits:
        form = _REUSED if "reused" in entry else _REPEATED
        lines = entry.get("together") or form.format(**{"share": 1.0, "rest": 0.0, **entry})
        lines = indent(f"every = np.repeat(own, sizes)\n{lines}", 8 * " ")
        edits = (*_MEMORY, Edit(_VAULT, _ADD, lines + _ADD))
    named = tuple(f"tests/{test}" for test in tests)
    return Flaw(name=entry["name"], edits=edits, tests=named, audited=entry.get("audited", True))


FLAWS = tuple(map(_read, tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["flaws"]))


def flawed_texts(flaw: Flaw) -> dict[str, str]:
    """The files that the flaw changes, by their place in the package, with the flaw in them."""
    texts: dict[str, str] = {}
    for edit in flaw.edits:
        text = texts.get(edit.file) or (PACKAGE / edit.file).read_text()
        if text.count(edit.old) != 1:
            raise AssertionError(f"{flaw.name}: the text to replace must stand in {edit.file} once: {edit.old!r}")
        texts[edit.file] = text.replace(edit.old, edit.new)
    return texts


def plant(flaw: Flaw, folder: Path) -> Path:
    """A copy of the package with the flaw in it; returns the folder to put on the path."""
    copy = folder / "sklar"
    # With the bytecode of the files that stay as they are.
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*-pytest-*"))
    for file, text in flawed_texts(flaw).items():
        target = copy / file
        target.write_text(text)
        for kept in target.parent.glob(f"__pycache__/{target.stem}.*"):
            kept.unlink()
    _bring_compiled_code(copy, folder / "cache")
    return folder


def _bring_compiled_code(copy: Path, cache: Path) -> None:
    """What was compiled of the sound package, for the copy: numba names a folder by the path of the source's, and
    compiles what differs again."""
    cache.mkdir(mode=0o700)
    for room in (each for each in copy.rglob("*") if each.is_dir()):
        kept = (cache_folder() or cache) / _cache_name(PACKAGE / room.relative_to(copy))
        if kept.is_dir():
            shutil.copytree(kept, cache / _cache_name(room))


def _cache_name(room: Path) -> str:
    return f"{room.name}_{hashlib.sha1(str(room).encode(), usedforsecurity=False).hexdigest()}"


def environment(folder: Path) -> dict[str, str]:
    """Settings under which Python finds the package of this folder."""
    ours = {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    return dict(os.environ) | ours
