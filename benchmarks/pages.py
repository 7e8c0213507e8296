"""Result pages: of which tree, machine and day they are, a person's text around measured tables, figure and JSON."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.stopwatch import machine

from sklar.files.write import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"

# What a page says of itself in words while others are of a later tree.
EARLIER = re.compile(r"\n\n\*Of an earlier tree of the package \([^)]*\), not renewed since\.\*")


def versions() -> dict[str, str]:
    """What figures depend on: versions, the tree, the machine and the day."""
    packages = ("sklar", "numpy", "scipy", "numba", "polars")
    return {"python": platform.python_version(), **{package: version(package) for package in packages}, **stamp()}


def stamp() -> dict[str, str]:
    """Of which tree (a digest of the package's files as they were on import), machine and day a page is."""
    return {"src": SRC, "machine": machine(), "date": datetime.now(UTC).date().isoformat()}


def stated(text: str) -> dict[str, str]:
    """What the header of a page says, the comment with which it begins; nothing where it has none.

    >>> stated("<!--\\nsrc: 1a2b3c4d\\nseeds: [1, 2]\\n-->\\n\\n# A page")
    {'src': '1a2b3c4d', 'seeds': '[1, 2]'}
    """
    if not text.startswith("<!--\n"):
        return {}
    lines = text.removeprefix("<!--\n").partition("\n-->")[0].splitlines()
    return {key: value for key, _, value in (line.partition(": ") for line in lines)}


def source_digest(folder: Path) -> str:
    """Eight digits that change with the name or the content of any file of a folder; what Python compiled is no file
    of it.
    """
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


# Computed on import: an edit while runs go on must not change what they say of themselves.
SRC = source_digest(ROOT / "src" / "sklar")


def kept(name: str) -> Path:
    """The folder in which runs of this tree alone are kept, so that what was interrupted goes on."""
    return ROOT / "build" / name / SRC


def mark(name: str) -> str:
    """The line between what a person wrote and what a benchmark writes."""
    return f"<!-- What follows is written by benchmarks/{name}.py. -->"


# A person's text on methods and findings, which stands at a page's end.
AT_END = "<!-- What follows is by hand. -->"


def at_end(page: Path) -> str:
    """What a person wrote at a page's end, with its mark; nothing where there is none."""
    _, mark, text = page.read_text(encoding="utf-8").partition(AT_END) if page.exists() else ("", "", "")
    return f"\n{mark}{text.rstrip()}\n" if mark else ""


def by_hand(page: Path, *, marked: str, otherwise: str) -> str:
    """The text of a person between a page's header and its tables; `otherwise` where there is no page yet."""
    if not page.exists():
        return otherwise
    text = EARLIER.sub("", page.read_text(encoding="utf-8"))
    return text.split("-->", 1)[1].split(marked, 1)[0].strip()


def write_page(
    folder: Path,
    name: str,
    *,
    marked: str,
    otherwise: str,
    document: Mapping[str, Any],
    markdown: str,
    figure: Figure | None,
) -> None:
    """Write NAME.json, NAME.md and a figure, if any.

    A page begins with a person's few sentences and its picture, and ends with a person's text on methods: both stay. A
    new page begins with `otherwise`.
    """
    from experiments.figures import save

    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{name}.json", json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    facts = "\n".join(f"{key}: {value}" for key, value in document["header"].items())
    page = folder / f"{name}.md"
    text = by_hand(page, marked=marked, otherwise=otherwise)
    whole = f"<!--\n{facts}\n-->\n\n{text}\n\n{marked}\n\n{markdown.strip()}\n{at_end(page)}"
    write_text(page, whole)
    if figure is not None:
        for kind in ("svg", "png"):
            save(figure, folder / f"{name}.{kind}")
