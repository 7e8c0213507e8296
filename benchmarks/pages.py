"""Result pages that hold a person's text above measured tables, with their figure and JSON."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklar.files.write import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"

# The files of the package that decide what a release counts, and what it releases.
COUNTING = ("kernel/**/*.py", "rows/**/*.py", "machine/**/*.py", "public/**/*.py")
RELEASE = ("release.py", *COUNTING, "budget/**/*.py", "fitting/**/*.py", "draw/**/*.py", "files/**/*.py")


def versions() -> dict[str, str]:
    """The versions that figures depend on, beside the machine."""
    packages = ("sklar", "numpy", "scipy", "numba", "polars")
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}


def source_digest(patterns: Iterable[str]) -> str:
    """Eight digits that change with any line of these files of the package; every pattern must match some file."""
    digest = hashlib.sha256()
    for pattern in patterns:
        found = sorted((ROOT / "src" / "sklar").glob(pattern))
        if not found:
            raise ValueError(f"the package has no file '{pattern}'. Name the rooms that it has.")
        for path in found:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def mark(name: str) -> str:
    """The line between what a person wrote and what a benchmark writes."""
    return f"<!-- What follows is written by benchmarks/{name}.py. -->"


def by_hand(page: Path, *, marked: str, otherwise: str) -> str:
    """The text of a person between a page's header and its tables; `otherwise` where there is no page yet."""
    if not page.exists():
        return otherwise
    return page.read_text(encoding="utf-8").split("-->", 1)[1].split(marked, 1)[0].strip()


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
    """Write NAME.json, NAME.md and a figure, if any. A person's text on the page stays; a new page gets `otherwise`."""
    from experiments.figures import save

    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{name}.json", json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    facts = "\n".join(f"{key}: {value}" for key, value in document["header"].items())
    page = folder / f"{name}.md"
    text = by_hand(page, marked=marked, otherwise=otherwise)
    write_text(page, f"<!--\n{facts}\n-->\n\n{text}\n\n{marked}\n\n{markdown.strip()}\n")
    if figure is not None:
        for kind in ("svg", "png"):
            save(figure, folder / f"{name}.{kind}")
