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
from sklar.machine.stores import fresh_file, version_of
from sklar.machine.threads import merged
from sklar.public.schema import Schema
from sklar.rows.count import Ask, Exact, count, key_of, no_answers
from sklar.rows.source import Source, files_at_once

_FILE = "counts.npz"
# Counts are kept seldom enough that keeping them takes a tenth of the time at most.
_PATIENCE = 10

# The name of a file and its version.
Shard = tuple[str, str]


def count_resumable(
    source: Source, schema: Schema, ask: Ask, folder: str | Path, *, progress: Progress = SILENT
) -> Exact:
    """Exact answers about a folder of files, kept in `folder` on the way: a later call goes on where this one ended."""
    folder, origin = Path(folder), source.path
    if origin is None or not source.parts:
        raise DataError(f"a checkpoint is for a folder of files, got {source.name}. Leave it out.")
    if folder.resolve().is_relative_to(origin.resolve()):
        raise DataError(f"the checkpoint folder '{folder}' must lie outside of {source.name}. Choose another.")

    def shard_of(part: Source) -> Shard:
        path = part.path or origin
        return path.relative_to(origin).as_posix(), version_of(path)

    # What is kept is good for these files under this schema, and for the tables that were counted.
    tables = sha256(repr([key_of(table) for table in ask.tables]).encode()).hexdigest()
    about = {"schema": schema.digest, "origin": str(origin.resolve()), "tables": tables}
    with _own(folder):
        shards = {shard_of(part): part for part in source.parts}
        total, done = _read(folder, about, ask)
        if not shards.keys() >= set(done):
            total, done = no_answers(ask), []
        if done:
            progress.advance(total.n_rows)
        covered, last, took = set(done), 0.0, 0.0
        rest, together = [shard for shard in shards if shard not in covered], files_at_once(source.parts)
        for first in range(0, len(rest), together):
            group = rest[first : first + together]
            parts = [shards[shard] for shard in group]
            total += count(merged((part.batches(ask.columns) for part in parts), together), ask, progress=progress)
            if group != [shard_of(part) for part in parts]:
                raise DataError(f"{source.name} changed while it was read. Nothing was released. Run it again.")
            done += group
            begun = time.monotonic()
            if begun - last >= _PATIENCE * took:
                _write(folder, about | {"done": done, "rows": total.n_rows}, total)
                last = time.monotonic()
                took = last - begun
        _sweep(folder)
        (folder / _FILE).unlink(missing_ok=True)
        # What somebody else put there stays.
        with suppress(OSError):
            folder.rmdir()
    return total


@contextmanager
def _own(folder: Path) -> Iterator[None]:
    """The folder, made where it is not there, closed to others, for one run at a time."""
    import fcntl

    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise OutputError(f"the checkpoint folder '{folder}' cannot be used: {error.strerror or error}.") from None
    try:
        facts = os.fstat(handle)
        if facts.st_mode & 0o077 or facts.st_uid != os.geteuid():
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


def _write(folder: Path, about: dict[str, Any], answers: Exact) -> None:
    try:
        temporary = fresh_file(folder / _FILE, private=True)
        with temporary.open("wb") as file:
            np.savez(file, np.frombuffer(json.dumps(about).encode(), dtype=np.uint8), *answers.tables)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / _FILE)
    except OSError as error:
        _sweep(folder)
        raise OutputError(
            f"the checkpoint in '{folder}' could not be written: {error.strerror or error}. Nothing was released."
        ) from None


def _read(folder: Path, about: dict[str, Any], ask: Ask) -> tuple[Exact, list[Shard]]:
    """The counts that are kept and the files that they cover; none where none are of this schema and folder."""
    if not (folder / _FILE).exists():
        return no_answers(ask), []
    try:
        with (folder / _FILE).open("rb") as file, np.load(file, allow_pickle=False) as kept:
            first, *tables = (kept[name] for name in kept.files)
            written: dict[str, Any] = json.loads(first.tobytes())
            if any(written[key] != value for key, value in about.items()):
                return no_answers(ask), []
            if [counts.shape for counts in tables] != [(table.n_cells,) for table in ask.tables]:
                raise ValueError("other cells than the schema's")
            if any(counts.dtype not in (np.int64, np.int32) for counts in tables):
                raise ValueError("other numbers than counts")
            done = [(str(name), str(version)) for name, version in written["done"]]
            return Exact(n_rows=int(written["rows"]), tables=tuple(tables)), done
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        raise DataError(f"the checkpoint in '{folder}' is damaged. Delete it to count from the beginning.") from None
