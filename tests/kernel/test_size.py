"""The kernel is small and closed, and stays so: whoever lets it grow must say so here, with the reason."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterable
from pathlib import Path

import sklar.kernel

FOLDER = Path(sklar.kernel.__file__).parent
ROWS = FOLDER.parent / "rows"
FILES = ("__init__", "cells", "noise", "people", "queries", "seal", "theorems", "vault")
# Lines of code, docstrings and comments not counted.
MOST_LINES = 1_000
# The second ring: files of rows/ on which the claim rests too, what each must do, and the test that holds it.
RING = {
    "encode": ("a row's codes depend on that row and the schema alone", "guarantees/test_row_by_row.py"),
    "count": ("exact answers equal the plain routine's", "rows/test_count.py"),
    "planes": ("the same on bits, compiled", "rows/test_count.py"),
    "bounded": ("at most so many rows of a person, the same in every pass", "rows/test_people.py"),
    "trees": ("a person's entries are that person's alone", "rows/test_trees.py"),
    "engines": ("every engine gives the same answers, a file once also after an interruption", "rows/test_engines.py"),
    "executors": ("the same on a cluster, where partial answers add up", "rows/test_spark.py"),
}
# The goal is 1,500. Trees of linked tables, here and on Spark, took 126 more than two tables in memory.
MOST_RING = 1_721
OUTSIDE = {"cryptography", "numpy", "typing", "sklar.errors"}


def code_lines(source: str) -> int:
    """Lines that hold code: no comments, no blank lines, no docstrings."""
    strings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            strings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - strings)


def imported(source: str) -> set[str]:
    """Every module that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module is not None
            found.add(node.module)
    return found


def test_code_lines_are_counted_as_a_person_would() -> None:
    source = (
        '"""Doc\nstring."""\n\n# why\nx = 1  # because\n\n\ndef f():\n    """What."""\n    return (\n        x\n    )\n'
    )
    assert code_lines(source) == 5


def lines_of(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """Lines of code by file."""
    return {name: code_lines((folder / f"{name}.py").read_text()) for name in names}


def test_the_kernel_is_small() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(FILES)
    assert sum(lines_of(FOLDER, FILES).values()) <= MOST_LINES


def test_the_kernel_imports_nothing_else_of_ours() -> None:
    for name in FILES:
        for module in imported((FOLDER / f"{name}.py").read_text()):
            top = module.split(".")[0]
            own = module in {f"sklar.kernel.{file}" for file in FILES}
            allowed = own or module in OUTSIDE or top in OUTSIDE or top in sys.stdlib_module_names
            assert allowed, f"kernel/{name}.py imports {module}"


def test_the_second_ring_is_small_and_held_by_tests() -> None:
    assert sum(lines_of(ROWS, RING).values()) <= MOST_RING
    assert all((Path(__file__).parents[1] / test).is_file() for _, test in RING.values())


def report() -> str:
    """The kernel's files, their lines of code and what they import, and the second ring: `make kernel`."""
    lines, ring, rows = lines_of(FOLDER, FILES), lines_of(ROWS, RING), []
    for name in FILES:
        modules = imported((FOLDER / f"{name}.py").read_text())
        outside = sorted(module for module in modules if module.split(".")[0] not in sys.stdlib_module_names)
        rows.append(f"{name + '.py':<14}{lines[name]:>6}  {', '.join(outside)}")
    held = [f"rows/{name + '.py':<14}{ring[name]:>6}  {what} (tests/{test})" for name, (what, test) in RING.items()]
    return "\n".join(
        [
            f"{'kernel':<14}{'lines':>6}  imports",
            *rows,
            f"{'in all':<14}{sum(lines.values()):>6}  of at most {MOST_LINES:,}",
            "",
            f"{'second ring':<19}{'lines':>6}  what it must do, and the test that holds it",
            *held,
            f"{'in all':<19}{sum(ring.values()):>6}  of at most {MOST_RING:,}",
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(report() + "\n")
