"""The files of a folder, each once: under two names a file's rows would count twice, which no release accounts for.

Links are followed. What is refused depends on the entries of folders alone; no file is opened. Copies of a file are
files of their own: only their rows could tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from sklar.errors import DataError


def files_of(folder: Path) -> list[Path]:
    """The files in a folder and below it, in order; refused where two names lead to one file or folder."""
    try:
        files = sorted(_files(folder, {}))
    except OSError as error:
        raise DataError(f"the folder '{folder}' cannot be read: {error.strerror or error}.") from None
    if not files:
        raise DataError(f"the folder '{folder}' holds no files. It must hold CSV, JSON lines, Parquet or Arrow files.")
    require_different(files)
    return files


def require_different(files: Iterable[Path]) -> None:
    """Refuse one file under two names: a symbolic link, a hard link, or a path that was given twice."""
    seen: dict[object, Path] = {}
    for file in files:
        if not file.exists():
            raise DataError(f"file '{file}' does not exist. Check the path.")
        first = seen.setdefault(_identity(file), file)
        if first is not file:
            raise DataError(
                f"'{first}' and '{file}' are the same file (a link, or a path given twice): its rows would count "
                "twice. Remove one of them."
            )


def _files(folder: Path, seen: dict[object, Path]) -> Iterator[Path]:
    first = seen.setdefault(_identity(folder), folder)
    if first is not folder:
        raise DataError(
            f"'{first}' and '{folder}' are the same folder (one is a link): its rows would count twice. Remove one of "
            "them."
        )
    for entry in folder.iterdir():
        # Names that begin with a dot or an underline are notes of the tool that wrote the folder, not data.
        if entry.name[0] in "._":
            continue
        if entry.is_dir():
            yield from _files(entry, seen)
        elif entry.is_file():
            yield entry
        elif entry.is_symlink():
            raise DataError(f"'{entry}' is a link to a file that does not exist. Remove it, or bring the file back.")


def _identity(path: Path) -> object:
    found = path.stat()
    # Some file systems give no numbers.
    return (found.st_dev, found.st_ino) if found.st_ino else path.resolve()
