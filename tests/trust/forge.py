"""Model files that are written as Sklar writes them, byte by byte, and say something else."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sklar.files.archive import member
from sklar.public.description import parse, written

# Changes the description and the arrays of a file in place.
Change: TypeAlias = Callable[[dict[str, Any], dict[str, NDArray[Any]]], object]


def opened(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
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


def rewritten(document: dict[str, Any], arrays: dict[str, NDArray[Any]], to: Path) -> Path:
    """A file of these parts in Sklar's own layout."""
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member("model.json"), written(document), compresslevel=1)
        for name, array in arrays.items():
            archive.writestr(member(f"{name}.npy"), packed(array), compresslevel=1)
    return to


def rescale(document: dict[str, Any], arrays: dict[str, NDArray[Any]], factor: float) -> None:
    """State noise of so many times the scale, in all places."""
    for name in arrays:
        if name.endswith("_scales"):
            arrays[name] = arrays[name] * factor
    for stage in document["stages"]:
        if stage["total_scale"] is not None:
            stage["total_scale"] *= factor
    if "scores" in document:
        document["scores"]["scale"] *= factor
    for entry in (*document["certificate"]["measurements"], *document["certificate"]["domains"]):
        entry["scale"] *= factor
