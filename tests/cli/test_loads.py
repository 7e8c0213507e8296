"""What each command loads, on a small table: whoever lets one load more must say so here."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

STATED = tomllib.loads(Path(__file__).with_name("loads.toml").read_text())
HEAVY = {*STATED["heavy"].split()}
NAMED, TABLE = STATED["named"], STATED["loaded"]


def loaded_by(code: str, folder: Path | None = None) -> set[str]:
    """The modules that a process has loaded when it has run this code."""
    code = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def heavy_of(command: str, folder: Path) -> set[str]:
    """Which of these packages a command has loaded when it is done."""
    run = f"from sklar.cli import main\nsys.argv = {['sklar', *command.split()]!r}\ntry:\n    main()\n"
    return HEAVY & loaded_by(f"{run}except SystemExit as done:\n    assert not done.code, done.code", folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small table with quoted values, and what was released of it."""
    folder = tmp_path_factory.mktemp("loads")
    places = ("north", '"south, east"', "west")
    rows = [f"{17 * i % 100},{places[i * i % 3]},{'true' if i % 4 else 'false'}" for i in range(400)]
    (folder / "people.csv").write_text("\n".join(["age,place,seen", *rows]) + "\n")
    odd = "\n".join(["age,place,seen", *(row.replace("west", 'we"st') for row in rows)])
    (folder / "odd.csv").write_text(odd + "\n")
    shutil.copy(Path(__file__).with_name("loaded.toml"), folder / "people.toml")
    assert "numba" not in heavy_of(f"release {NAMED} --out people-synthetic.csv --model people.sklar", folder)
    return folder


@pytest.mark.parametrize("command", TABLE)
def test_a_command_loads_what_the_table_says(folder: Path, command: str) -> None:
    assert heavy_of(command, folder) == {*TABLE[command].split()}
