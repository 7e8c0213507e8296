"""Model files that are written as Sklar writes them, byte by byte, and say something else."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import measurements
from sklar.files.archive import load, member
from sklar.kernel.queries import Block
from sklar.kernel.theorems import NOTHING, Budget
from sklar.public.description import parse, written
from sklar.trust.verify import Verification

# Changes the description and the arrays of a file in place.
Document: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, NDArray[Any]]
Change: TypeAlias = Callable[[Document, Arrays], object]


def failed(found: Verification) -> set[str]:
    """The names of the checks that fail."""
    return {check.name for check in found.checks if check.passed is False}


def opened(path: Path) -> tuple[Document, Arrays]:
    """The description and the arrays of a model file."""
    with zipfile.ZipFile(path) as archive:
        document = parse(archive.read("model.json"))
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        return document, {name[:-4]: np.load(io.BytesIO(archive.read(name))) for name in names}


def packed(array: NDArray[Any]) -> bytes:
    """An array as a member holds it."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def forged(path: Path, change: Change, to: Path) -> Path:
    """A copy of a model file with a change, in Sklar's own layout."""
    document, arrays = opened(path)
    change(document, arrays)
    return rewritten(document, arrays, to)


def rewritten(document: Document, arrays: Arrays, to: Path) -> Path:
    """A file of these parts in Sklar's own layout."""
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member("model.json"), written(document), compresslevel=1)
        for name, array in arrays.items():
            archive.writestr(member(f"{name}.npy"), packed(array), compresslevel=1)
    return to


def blocks_of(document: Document, arrays: Arrays) -> tuple[Block, ...]:
    """What such a file holds."""
    with TemporaryDirectory() as folder:
        return load(rewritten(document, arrays, Path(folder, "m.sklar"))).measured.blocks


def tables_of(document: Document, order: int) -> list[str]:
    """The names of the arrays of all tables of this order, stage after stage."""
    entries = enumerate(document["blocks"])
    return [f"block{n}" for n, each in entries if each.get("order") == order and each["sets"] is None]


def scales_of(document: Document, arrays: Arrays) -> list[NDArray[Any]]:
    """Views of the scales of every block."""
    return np.split(arrays["scales"], np.cumsum([each.scales.size for each in blocks_of(document, arrays)])[:-1])


def drop_blocks(document: Document, arrays: Arrays, numbers: list[int]) -> None:
    """Leave these blocks out, with their scales and answers."""
    with TemporaryDirectory() as folder:
        model = load(rewritten(document, arrays, path := Path(folder, "m.sklar")))
        kept = tuple(block for number, block in enumerate(model.measured.blocks) if number not in numbers)
        # Whoever forges does not read what was written.
        with patch("sklar.files.archive.load"):
            replace(model, measured=replace(model.measured, blocks=kept)).save(path)
        changed, left = opened(path)
    document |= changed
    arrays.clear()
    arrays |= left


def restate(document: Document, arrays: Arrays) -> None:
    """Measurements in the certificate that agree with the arrays of scales."""
    stated = document["certificate"]
    unit = Budget(epsilon=1.0, neighbors=stated["neighbors"], rows_per_person=stated["rows_per_person"])
    stated["measurements"] = [asdict(entry) for entry in measurements(blocks_of(document, arrays), unit)]


def state_what_it_costs(document: Document, arrays: Arrays) -> None:
    """State the epsilon that the stated scales cost."""
    stated = document["certificate"]
    settings = {key: stated[key] for key in ("delta", "neighbors", "mechanism", "composition")}
    budget = Budget(epsilon=1.0, **settings)
    stated["epsilon"] = budget.spent(sum((block.spend(budget) for block in blocks_of(document, arrays)), NOTHING))


def rescale(document: Document, arrays: Arrays, factor: float) -> None:
    """State noise of so many times the scale, in all places."""
    arrays["scales"] = arrays["scales"] * factor
    for entry in (*document["certificate"]["measurements"], *document["certificate"]["domains"]):
        entry["scale"] *= factor


def put(paths: str, value: Any) -> Change:
    """Something else at these places of the description."""

    def change(document: Document, _arrays: Arrays) -> None:
        for path in paths.split():
            place: Any = document
            *keys, last = (int(key) if key.isdigit() else key for key in path.split("."))
            for key in keys:
                place = place[key]
            place[last] = value

    return change
