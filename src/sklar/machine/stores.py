"""Files by their address, wherever they lie: on this machine's file systems, or where pyarrow or fsspec reach.

An address is a path, a `file://` address, or one of a store (hdfs://, s3://, gs://, abfss:// and what fsspec knows).
pyarrow and fsspec are asked only for the last kind. Credentials are those of the environment.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from secrets import token_hex
from shutil import copyfileobj
from typing import IO, Any, cast
from urllib.parse import unquote, urlsplit

from sklar.errors import DataError, MissingExtraError, SklarError

# Hadoop's names of what others call s3.
_HADOOP = {"s3a": "s3", "s3n": "s3"}
_OBJECTS = ("s3", "gs", "gcs", "abfs", "abfss", "az")
_COPIED_AT_ONCE = 1 << 22


def place_of(text: str) -> Path | Remote:
    """Where an address leads: a path of this machine, or a file elsewhere.

    >>> place_of("file:///data/a%20b.csv")
    PosixPath('/data/a b.csv')
    """
    scheme, found, rest = text.partition("://")
    if not found:
        return Path(text)
    if scheme == "file":
        return Path(unquote(urlsplit(text).path))
    return Remote(f"{_HADOOP.get(scheme, scheme)}://{rest}")


class Remote:
    """A file or a folder in a store. It has those methods of a `Path` that readers of text files use."""

    __slots__ = ("_path", "address")

    def __init__(self, address: str) -> None:
        self.address, self._path = address, PurePosixPath(address)

    def __str__(self) -> str:
        return self.address

    @property
    def scheme(self) -> str:
        """What stands before ://."""
        return self.address.partition("://")[0]

    @property
    def suffix(self) -> str:
        """The end of its name, from the last point on."""
        return self._path.suffix

    @property
    def suffixes(self) -> list[str]:
        """All ends of its name."""
        return self._path.suffixes

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Its bytes, to be read, or to be written ("wb")."""
        system, path = self._found()
        return cast(IO[bytes], system.open_output_stream(path) if mode == "wb" else system.open_input_file(path))

    def files(self) -> list[Remote]:
        """The files in this folder and below it, in order, without those that begin with a dot or an underline; itself
        where it is a file, and none where nothing is there.
        """
        from pyarrow import fs

        system, path = self._found()
        info = system.get_file_info(path)
        if info.type == fs.FileType.File:
            return [self]
        if info.type == fs.FileType.NotFound:
            return []
        base, own = self.address.rstrip("/"), path.rstrip("/")
        inside = (
            each.path.removeprefix(own)
            for each in system.get_file_info(fs.FileSelector(path, recursive=True))
            if each.type == fs.FileType.File
        )
        return [
            Remote(base + place)
            for place in sorted(inside)
            if not any(name[0] in "._" for name in place.split("/") if name)
        ]

    def version(self) -> str:
        """A text that changes when the file does."""
        system, path = self._found()
        info = system.get_file_info(path)
        if info.mtime_ns is not None:
            return f"{info.size} {info.mtime_ns}"
        # A store of fsspec that does not tell a time knows its files by something else.
        return str(system.handler.fs.ukey(path))

    def size(self) -> int:
        """How many bytes it has."""
        system, path = self._found()
        return int(system.get_file_info(path).size or 0)

    def make_folder(self) -> None:
        """Make this folder, where the store has folders."""
        system, path = self._found()
        system.create_dir(path, recursive=True)

    def remove_folder(self) -> None:
        """Remove this folder with all that is in it."""
        system, path = self._found()
        system.delete_dir(path)

    def put(self, file: Path) -> None:
        """Copy a file of this machine here, whole or not at all."""
        system, path = self._found()
        # What is written to an object store is there when it is closed; elsewhere it would be seen half.
        home, _, name = path.rpartition("/")
        there = path if self.scheme in _OBJECTS else f"{home}/_{name}.{token_hex(8)}"
        with file.open("rb") as source, system.open_output_stream(there) as target:
            copyfileobj(source, target, _COPIED_AT_ONCE)
        if there != path:
            system.move(there, path)

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.address.rstrip('/')}/{name}")

    def _found(self) -> tuple[Any, str]:
        """The file system and the path in it."""
        try:
            from pyarrow import ArrowInvalid, fs
        except ImportError:
            raise MissingExtraError(
                f"an address that begins with {self.scheme}:// needs pyarrow: pip install 'sklar[spark]'"
            ) from None
        try:
            return cast(tuple[Any, str], fs.FileSystem.from_uri(self.address))
        except ArrowInvalid:
            return self._by_fsspec()
        except SklarError:
            raise
        except Exception as error:
            raise _unreachable(self.scheme, error) from None

    def _by_fsspec(self) -> tuple[Any, str]:
        from pyarrow import fs

        try:
            import fsspec
        except ImportError:
            raise MissingExtraError(
                f"an address that begins with {self.scheme}:// needs fsspec and its package for that store: "
                "pip install fsspec"
            ) from None
        try:
            system, path = fsspec.core.url_to_fs(self.address)
        except Exception as error:
            raise _unreachable(self.scheme, error) from None
        return fs.PyFileSystem(fs.FSSpecHandler(system)), path


def _unreachable(scheme: str, error: Exception) -> DataError:
    # The address may hold a password: it is not repeated.
    return DataError(
        f"the {scheme}:// address cannot be reached by pyarrow or fsspec ({type(error).__name__}). Check the address, "
        "the store's own package, and the credentials in the environment."
    )


def version_of(place: Path | Remote) -> str:
    """A text that changes when the file does: its size and its time of change."""
    if isinstance(place, Remote):
        return place.version()
    found = place.stat()
    return f"{found.st_size} {found.st_mtime_ns}"


def size_of(place: Path | Remote) -> int:
    """How many bytes a file has."""
    return place.size() if isinstance(place, Remote) else place.stat().st_size
