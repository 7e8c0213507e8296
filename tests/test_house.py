"""How large and how tangled the house is. A number here grows only with its reason, in the same commit."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import sklar

ROOT = Path(sklar.__file__).parent
TESTS = Path(__file__).parent
# Lines that each room has. One grows only with its reason, in the commit that changes its number.
ROOMS = {
    ".": 393,
    "answer": 5_041,
    "budget": 3_307,
    "cli": 1_681,
    "custodian": 4_441,
    "draw": 1_966,
    "files": 1_917,
    "fitting": 3_264,
    "generate": 660,
    "kernel": 1_715,
    "machine": 947,
    "paper": 703,
    "public": 3_849,
    "rows": 4_114,
    "studio": 2_235,
    "trust": 3_763,
}
# Of the package, and of its tests.
MOST_LINES, MOST_TESTS = 40_000, 32_000
# Modules of ours that one module imports, arguments that one function takes, imports inside of functions, and modules
# that have one importer.
MOST_IMPORTED, MOST_ARGUMENTS, MOST_LATE, MOST_SINGLE = 26, 19, 111, 26
# Names that stand in more than one room: the commands about schemas are named as what they are about.
SHARED_STEMS = {"schema"}
SHARED_CLASSES: set[str] = set()
FILES = {path: ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}


def room(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else "."


def ours(tree: ast.AST) -> set[str]:
    """The modules of ours that a module imports, wherever in it."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {node.module for node in nodes if (node.module or "").startswith("sklar.") and node.module}


def lines(folder: Path) -> int:
    return sum(path.read_text().count("\n") for path in folder.rglob("*.py"))


def test_every_room_keeps_to_its_lines() -> None:
    found: Counter[str] = Counter()
    for path in FILES:
        found[room(path)] += path.read_text().count("\n")
    assert set(found) == set(ROOMS)
    assert {name: number for name, number in found.items() if number > ROOMS[name]} == {}


def test_the_whole_keeps_to_its_lines() -> None:
    assert sum(ROOMS.values()) <= MOST_LINES
    assert lines(ROOT) <= MOST_LINES
    assert lines(TESTS) <= MOST_TESTS
    assert (ROOT / "release.py").read_text().count("\n") <= 200


def test_a_name_has_one_meaning() -> None:
    stems = Counter(path.stem for path in FILES if path.stem not in ("__init__", "__main__"))
    assert {name for name, times in stems.items() if times > 1} <= SHARED_STEMS
    classes = Counter(
        node.name.lstrip("_") for tree in FILES.values() for node in tree.body if isinstance(node, ast.ClassDef)
    )
    assert {name for name, times in classes.items() if times > 1} <= SHARED_CLASSES


def test_modules_are_not_tangled() -> None:
    importers: Counter[str] = Counter(module for tree in FILES.values() for module in ours(tree))
    functions = [node for tree in FILES.values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    late = sum(
        isinstance(inner, ast.ImportFrom) and (inner.module or "").startswith("sklar")
        for function in functions
        for inner in ast.walk(function)
    )
    assert max(len(ours(tree)) for tree in FILES.values()) <= MOST_IMPORTED
    assert len(ours(FILES[ROOT / "release.py"])) <= 15
    assert max(len(each.args.args) + len(each.args.kwonlyargs) for each in functions) <= MOST_ARGUMENTS
    assert late <= MOST_LATE
    assert sum(times == 1 for times in importers.values()) <= MOST_SINGLE


def test_a_module_does_nothing_when_it_is_imported() -> None:
    """Beside definitions: no bare call at its top, but for the seal of the kernel's noise and its door."""
    nodes = [
        (path.stem, ast.unparse(node))
        for path, tree in FILES.items()
        for node in tree.body
        if isinstance(node, ast.Expr)
    ]
    calls = [(stem, text) for stem, text in nodes if text.endswith(")") and not text.startswith(("'", '"'))]
    assert calls == [("noise", "seal(__name__)"), ("vault", "seal(__name__)")]
