"""Result pages that are half measured and half written by hand: a header, a person's text, tables, a figure, JSON."""

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


def versions() -> dict[str, str]:
    """What figures depend on beside the machine."""
    packages = ("sklar", "numpy", "scipy", "numba", "polars")
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}


def source_digest(patterns: Iterable[str]) -> str:
    """Eight digits that change with any line of these files of the package."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in patterns for path in (ROOT / "src" / "sklar").glob(pattern)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def mark(name: str) -> str:
    """The line between what a person wrote and what a benchmark writes."""
    return f"<!-- What follows is written by benchmarks/{name}.py. -->"


def by_hand(page: Path, *, marked: str, otherwise: str) -> str:
    """What stands on a page between its header and its tables: written by a person, kept as it is."""
    if not page.exists():
        return otherwise
    return page.read_text(encoding="utf-8").split("-->", 1)[1].split(marked, 1)[0].strip()


def write_page(
    folder: Path, name: str, *, marked: str, otherwise: str, document: Mapping[str, Any], markdown: str, figure: Figure
) -> None:
    """Write NAME.json, NAME.md and the figure; `otherwise` is the text where nobody has written any yet."""
    from sklar.custodian.evaluate.plots import save

    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{name}.json", json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    facts = "\n".join(f"{key}: {value}" for key, value in document["header"].items())
    page = folder / f"{name}.md"
    text = by_hand(page, marked=marked, otherwise=otherwise)
    write_text(page, f"<!--\n{facts}\n-->\n\n{text}\n\n{marked}\n\n{markdown.strip()}\n")
    for kind in ("svg", "png"):
        save(figure, folder / f"{name}.{kind}")
