"""The contracts of `make lint` bite: a planted import that breaks one fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("importlinter")

ROOT = Path(__file__).parents[2]
PLANTED = {
    "exact counts in the release": ("release.py", "from sklar.rows.count import Exact", "Exact counts stay with"),
    "exact counts in a fit": ("fitting/margins.py", "from sklar.rows.count import Exact", "Exact counts stay with"),
    "the vault in an answer": ("answer/query.py", "from sklar.kernel.vault import Vault", "Only the engines open"),
    "the vault in the release": ("release.py", "from sklar.kernel.vault import Vault", "Only the engines open"),
    "rows in a verifier": ("trust/verify/__init__.py", "from sklar.rows.read import open_source", "read rows"),
    "a fit in the rows": ("rows/encode.py", "from sklar.fitting.margins import project", "Rows know nothing"),
    "the custodian in the release": ("release.py", "from sklar.custodian.check import check", "One way down"),
    "a machine in the kernel": ("kernel/vault.py", "from sklar.machine.threads import workers", "The kernel imports"),
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command, settings = [sys.executable, "-c", code, "--no-cache"], os.environ | {"PYTHONPATH": str(folder / "src")}
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_tree_keeps_every_contract(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_import_breaks_a_contract(name: str, copy: Path) -> None:
    file, line, contract = PLANTED[name]
    target = copy / "src" / "sklar" / file
    text = target.read_text()
    where = "from __future__ import annotations\n"
    assert where in text
    target.write_text(text.replace(where, f"{where}{line}\n", 1))
    done = lint(copy)
    assert done.returncode == 1
    broken = [kept for kept in done.stdout.splitlines() if " BROKEN" in kept]
    assert any(contract in kept for kept in broken), done.stdout
