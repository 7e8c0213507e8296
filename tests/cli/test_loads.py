"""What each command loads, on a small table: whoever lets one load more must say so here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "cryptography", "duckdb", "jinja2", "matplotlib", "nanoarrow", "numba", "numpy", "pandas", "polars", "pyarrow",
    "pyspark", "rich", "scipy", "sklearn",
}  # fmt: skip

TOML = """
attributes.age = {type = "integer", edges = [0, 18, 65, 120]}
attributes.place = {type = "categorical", values = ["north", "south, east", "west"]}
attributes.seen = {type = "boolean"}
"""

NAMED = "people.csv --schema people.toml --epsilon 1"
# numba is in no row: nothing is compiled for a small table.
TABLE = {
    "--help": set(),
    "query people.sklar age>=18": {"numpy"},
    "forecast --schema people.toml --rows 400 --epsilon 1": {"numpy"},
    "report people.sklar --out report.html": {"numpy", "jinja2"},
    "verify people.sklar": {"numpy", "scipy", "cryptography"},
    "schema check people.toml people.csv": {"numpy", "polars"},
    "sample people.sklar --rows 50 --out more.csv": {"numpy", "polars"},
    f"release {NAMED} --out people-again.csv": {"numpy", "polars", "cryptography"},
    # Quotes where none should be: such records are rewritten.
    "release odd.csv --schema people.toml --epsilon 1 --out odd-synthetic.csv": {"numpy", "polars", "cryptography"},
    "evaluate people.csv people-synthetic.csv --schema people.toml": {"numpy", "polars", "cryptography"},
    "publish people.sklar --out published": {"numpy", "polars", "jinja2", "scipy", "cryptography"},
}


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
    (folder / "people.toml").write_text(TOML)
    assert "numba" not in heavy_of(f"release {NAMED} --out people-synthetic.csv --model people.sklar", folder)
    return folder


@pytest.mark.parametrize("command", TABLE)
def test_a_command_loads_what_the_table_says(folder: Path, command: str) -> None:
    assert heavy_of(command, folder) == TABLE[command]
