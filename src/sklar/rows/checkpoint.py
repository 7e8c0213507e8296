"""Counting a folder of files so that an interrupted pass does not start again.

The counts so far are kept in a folder of their own, with the files that they cover: exact counts, hence private. The
folder is its owner's alone (0700), so is the file in it (0600); it is replaced as a whole, and deleted when all rows
are counted, before any noise is drawn. What is kept is used again only for the same schema and for files of the same
name, size and time of change; otherwise counting begins anew, without a word, as nothing of the rows may steer what is
said.
"""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from sklar.errors import DataError, OutputError
from sklar.machine.progress import SILENT, Progress
from sklar.machine.stores import fresh_file
from sklar.machine.threads import merged
from sklar.public.schema import Schema
from sklar.rows.count import Ask, Exact, count, no_answers
from sklar.rows.source import Source, files_at_once

_FILE = "counts.npz"
# Counts are kept seldom enough that keeping them takes a tenth of the time at most.
_PATIENCE = 10

Shard = tuple[str, int, int]


def count_resumable(
    source: Source, schema: Schema, ask: Ask, folder: str | Path, *, progress: Progress = SILENT
) -> Exact:
    """Exact answers about a folder of files, kept in `folder` on the way: a later call goes on where this one ended."""
    folder = Path(folder)
    if source.path is None or not source.parts:
        raise DataError(f"a checkpoint is for a folder of files, got {source.name}. Leave it out.")
    if folder.resolve().is_relative_to(source.path.resolve()):
        raise DataError(f"the checkpoint folder '{folder}' must lie outside of {source.name}. Choose another.")
    # What is kept is good for these files under this schema, and for the tables that were counted.
    about = {"schema": schema.digest, "origin": str(source.path.resolve()), "tables": _digest(ask)}
    with _own(folder):
        shards = {_shard(part, source.path): part for part in source.parts}
        total: Exact | None
        total, done = _read(folder, about, ask) or (None, [])
        if not shards.keys() >= set(done):
            total, done = None, []
        if total is not None:
            progress.advance(total.n_rows)
        covered, last, took = set(done), 0.0, 0.0
        rest, together = [shard for shard in shards if shard not in covered], files_at_once(source.parts)
        for first in range(0, len(rest), together):
            group = rest[first : first + together]
            parts = [shards[shard] for shard in group]
            batches = merged((part.batches(ask.columns) for part in parts), together)
            part = count(batches, ask, progress=progress)
            total = part if total is None else total + part
            if group != [_shard(part, source.path) for part in parts]:
                raise DataError(f"{source.name} changed while it was read. Nothing was released. Run it again.")
            done += group
            if time.monotonic() - last >= _PATIENCE * took:
                begun = time.monotonic()
                _write(folder, about | {"done": done}, total)
                last = time.monotonic()
                took = last - begun
        _forget(folder)
    return total or no_answers(ask)


def _digest(ask: Ask) -> str:
    """A text that says which tables are counted."""
    made = sha256()
    for table in ask.tables:
        made.update(f"{table.order} {table.sets is None} {table.coarse is None}".encode())
        for array in (table.members, table.levels if table.coarse is None else table.coarse):
            made.update(array.tobytes())
    return made.hexdigest()


def _shard(part: Source, folder: Path) -> Shard:
    if part.path is None:
        raise TypeError("a part of a folder is a file")
    found = part.path.stat()
    return part.path.relative_to(folder).as_posix(), found.st_size, found.st_mtime_ns


@contextmanager
def _own(folder: Path) -> Iterator[None]:
    """The folder, made where it is not there, closed to others, for one run at a time."""
    import fcntl

    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise OutputError(f"the checkpoint folder '{folder}' cannot be used: {error.strerror or error}.") from None
    try:
        found = os.fstat(handle)
        if found.st_mode & 0o077 or found.st_uid != os.geteuid():
            raise OutputError(
                f"the checkpoint folder '{folder}' must be yours and closed to others, as exact counts are kept in it. "
                "Run chmod 700 on it, or choose another."
            )
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OutputError(
                f"the checkpoint folder '{folder}' is in use by another run. Wait, or choose another."
            ) from None
        _sweep(folder)
        yield
    finally:
        os.close(handle)


def _sweep(folder: Path) -> None:
    """Remove what a killed run was writing."""
    for left in folder.glob(f".{_FILE}.*.part"):
        left.unlink(missing_ok=True)


def _forget(folder: Path) -> None:
    _sweep(folder)
    (folder / _FILE).unlink(missing_ok=True)
    # What somebody else put there stays.
    with suppress(OSError):
        folder.rmdir()


def _write(folder: Path, about: dict[str, Any], answers: Exact) -> None:
    try:
        temporary = fresh_file(folder / _FILE, private=True)
        with temporary.open("wb") as file:
            arrays: dict[str, Any] = {f"table_{number}": counts for number, counts in enumerate(answers.tables)}
            arrays["about"] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
            np.savez(file, n_rows=np.array([answers.n_rows]), **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / _FILE)
    except OSError as error:
        _sweep(folder)
        raise OutputError(
            f"the checkpoint in '{folder}' could not be written: {error.strerror or error}. Nothing was released."
        ) from None


def _read(folder: Path, about: dict[str, Any], ask: Ask) -> tuple[Exact, list[Shard]] | None:
    """The counts that are kept and the files that they cover; None where there are none of this schema and folder."""
    path = folder / _FILE
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            written: dict[str, Any] = json.loads(kept["about"].tobytes())
            if any(written[key] != value for key, value in about.items()):
                return None
            tables = tuple(kept[f"table_{number}"] for number in range(len(ask.tables)))
            if any(counts.shape != (table.n_cells,) for table, counts in zip(ask.tables, tables, strict=True)):
                raise ValueError("other cells than the schema's")
            if any(counts.dtype not in (np.int64, np.int32) for counts in tables):
                raise ValueError("other numbers than counts")
            n_rows = int(kept["n_rows"][0])
            done = [(str(name), int(size), int(changed)) for name, size, changed in written["done"]]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        raise DataError(f"the checkpoint in '{folder}' is damaged. Delete it to count from the beginning.") from None
    return Exact(n_rows=n_rows, tables=tables), done
