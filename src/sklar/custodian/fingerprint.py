"""Fingerprints of the files that rows lie in, for a ledger to notice two names of the same rows. PRIVATE.

Compared by the custodian's commands alone: a release that did would be refused or not depending on rows.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from sklar.errors import DataError
from sklar.machine.progress import SILENT, Progress
from sklar.rows.read import open_source

_PIECE = 1 << 20


def hash_files(data: object, *, progress: Progress = SILENT) -> tuple[bytes, ...]:
    """The SHA-256 of every file that this path stands for: a file, or the files of a folder."""
    if not isinstance(data, str | Path) or "://" in str(data):
        raise DataError("a data set is bound to files: give a file or a folder, not a database or an object store.")
    source = open_source(data)
    paths = [part.path for part in source.parts or (source,) if part.path is not None]
    progress.stage("hash", total=sum(path.stat().st_size for path in paths), unit="bytes")
    return tuple(_hash_file(path, progress) for path in paths)


def _hash_file(path: Path, progress: Progress) -> bytes:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
                progress.advance(len(piece))
    except OSError as error:
        raise DataError(f"file '{path}' cannot be read: {error.strerror or error}. Check the path.") from None
    return digest.digest()
