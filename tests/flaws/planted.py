"""Planted flaws: each a small change to a copy of the package that breaks its privacy claim."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import sklar

PACKAGE = Path(sklar.__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """One text of one file replaced by another."""

    name: str
    file: str
    old: str
    new: str


FLAWS = (
    Flaw(
        name="half the sensitivity",
        file="kernel/theorems.py",
        old='return 2 if self.neighbors == "replace-one" else 1',
        new="return 1",
    ),
    Flaw(
        name="seven tenths of the noise",
        file="kernel/vault.py",
        old="return draw(scales, sizes, threads=self._threads)",
        new="return draw((0.7 * scales).astype(np.float32).astype(np.float64), sizes, threads=self._threads)",
    ),
    Flaw(
        name="noise on seen cells only",
        file="kernel/vault.py",
        old="            part += exact\n",
        new="            part[exact == 0] = 0\n            part += exact\n",
    ),
    Flaw(
        name="one noise for all cells",
        file="kernel/vault.py",
        old="            part += exact\n",
        new="            part[:] = part[:1] if part.size else part\n            part += exact\n",
    ),
    Flaw(
        name="a key that is always the same",
        file="kernel/noise.py",
        old="AES256(urandom(32))",
        new="AES256(bytes(32))",
    ),
    Flaw(
        name="a row counted twice",
        file="kernel/count.py",
        old="cells.table(found.pairs, i, j)[:] = table[1:, 1:]",
        new="cells.table(found.pairs, i, j)[:] = 2 * table[1:, 1:]",
    ),
)


def plant(flaw: Flaw, folder: Path) -> Path:
    """A copy of the package with the flaw in it; returns the folder to put on the path.

    What was compiled is copied too, with its time stamps: only the changed file is compiled again.
    """
    copy = folder / "sklar"
    shutil.copytree(PACKAGE, copy)
    target = copy / flaw.file
    text = target.read_text()
    assert text.count(flaw.old) == 1, f"{flaw.name}: the text to replace must stand in {flaw.file} once"
    target.write_text(text.replace(flaw.old, flaw.new))
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A `sklar` command with the package of this folder."""
    return subprocess.run(
        [sys.executable, "-m", "sklar", *arguments],
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
