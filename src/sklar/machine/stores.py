"""Files: new ones on this machine with the rights that they must have, and those of stores by their address.

Stores are those of pyarrow and fsspec (hdfs, s3, gs, abfss and others), which are loaded only for them. Credentials are
those of the environment.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path, PurePosixPath
from secrets import token_hex
from shutil import copyfileobj
from socket import gethostname
from types import SimpleNamespace
from typing import IO, Any, cast
from urllib.parse import unquote, urlsplit
from zlib import crc32

from sklar.errors import DataError, MissingExtraError, OutputError
from sklar.machine.wording import failing, said

# Hadoop's names of what others call s3.
_HADOOP = {"s3a": "s3", "s3n": "s3"}
_OBJECTS = ("s3", "gs", "gcs", "abfs", "abfss", "az")
_COPIED_AT_ONCE = 1 << 22
# How files begin that nothing is written over, whoever named them: ledgers and anchors, and keys that sign.
_NEVER = {b"SQLite format 3\0": "a database, as ledgers and anchors are", b"-----BEGIN PRIVATE": "a private key"}
# What the present command reads.
_READ: ContextVar[tuple[object, ...]] = ContextVar("_READ", default=())


@contextmanager
def reading(places: Iterable[object]) -> Iterator[None]:
    """A block in which no file is written over one of these places (see `require_apart`)."""
    token = _READ.set((*_READ.get(), *places))
    try:
        yield
    finally:
        _READ.reset(token)


def require_apart(path: Path, *inputs: object) -> None:
    """Refuse an output that is an input, by any spelling or link; or a folder around one, or a file in one.

    Inputs are paths and `file://` addresses; whatever else a caller reads is no file of this machine. A file in a
    folder of inputs would be one of them the next time.
    """
    remedy, real = "Name another file.", path.resolve()
    for place in (*_READ.get(), *inputs):
        other = place_of(str(place)) if isinstance(place, str | Path) else None
        if not isinstance(other, Path):
            continue
        resolved, same = other.resolve(), False
        with suppress(OSError):
            same = path.samefile(other)
        if same or resolved == real or real in resolved.parents:
            raise OutputError(f"'{path}' must not be written over '{other}', which is read. {remedy}")
        if resolved in real.parents:
            raise OutputError(f"'{path}' must not lie in '{other}', whose files are read. {remedy}")
    with suppress(OSError), path.open("rb") as file:
        begins = file.read(32)
        for head, what in _NEVER.items():
            if begins.startswith(head):
                raise OutputError(f"'{path}' is {what}, and is never written over. {remedy}")


def fresh_file(path: Path, *, private: bool = False) -> Path:
    """A new empty file beside `path`, to be written and then renamed to it; returns where it is.

    A private one is its owner's alone (0600) from its first moment, whatever the umask. Its name has this machine and
    process in it: those that killed processes of this machine have left are removed.
    """
    require_apart(path)
    ours = f".{path.name}.{crc32(gethostname().encode()):08x}-"
    for left in path.parent.glob(f"{glob.escape(ours)}*.part"):
        number = left.name.removeprefix(ours).partition("-")[0]
        with suppress(OSError):
            if number.isdigit() and not _runs(int(number)):
                left.unlink()
    temporary = path.with_name(f"{ours}{os.getpid()}-{token_hex(8)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    os.close(os.open(temporary, flags, 0o600 if private else 0o666))
    if private:
        # A umask may take rights from the owner too.
        temporary.chmod(0o600)
    return temporary


@contextmanager
def own_folder(folder: Path) -> Iterator[None]:
    """A folder for private files, made where it is not there: closed to others, for one run at a time."""
    import fcntl

    with failing(OutputError, f"the checkpoint folder '{folder}' cannot be used: {{why}}.", OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        facts = os.fstat(handle)
        if facts.st_mode & 0o077 or facts.st_uid != os.geteuid():
            raise OutputError(said("machine.open_folder", folder=folder))
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OutputError(said("machine.in_use", folder=folder)) from None
        yield
    finally:
        os.close(handle)


def _runs(process: int) -> bool:
    """Whether a process of this number exists; where only killing one would tell, it does."""
    try:
        if os.name == "posix":
            os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def place_of(text: str) -> Path | Remote:
    """Where an address leads: a path of this machine, or a file elsewhere."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Path(text)
    if scheme == "file":
        return Path(unquote(urlsplit(text).path))
    return Remote(f"{_HADOOP.get(scheme, scheme)}://{rest}")


class Remote:
    """A file or a folder in a store. It has those methods of a `Path` that readers of text files use."""

    __slots__ = ("address", "scheme", "suffix", "suffixes")

    def __init__(self, address: str) -> None:
        path = PurePosixPath(address)
        self.address, self.scheme = address, address.partition("://")[0]
        self.suffix, self.suffixes = path.suffix, path.suffixes

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.address.rstrip('/')}/{name}")

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Its bytes, to be read, or to be written ("wb")."""
        system, path = self._located()
        return cast(IO[bytes], system.open_output_stream(path) if mode == "wb" else system.open_input_file(path))

    def files(self) -> list[Remote]:
        """The files in this folder and below it, in order, but for hidden ones; itself where it is a file."""
        from pyarrow import fs

        system, path = self._located()
        if system.get_file_info(path).type == fs.FileType.File:
            return [self]
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
        names = sorted(each.path.removeprefix(path.rstrip("/")) for each in found if each.type == fs.FileType.File)
        return [Remote(self.address.rstrip("/") + name) for name in names if not re.search("(^|/)[._]", name)]

    def stat(self) -> Any:
        """Its size and its time of change; a store of fsspec without times has another key for its files."""
        system, path = self._located()
        info = system.get_file_info(path)
        changed = info.mtime_ns
        if changed is None and hasattr(system, "handler"):
            changed = system.handler.fs.ukey(path)
        return SimpleNamespace(st_size=info.size or 0, st_mtime_ns=changed)

    def make_folder(self) -> None:
        """Make this folder, where the store has folders."""
        system, path = self._located()
        system.create_dir(path, recursive=True)

    def remove_folder(self) -> None:
        """Remove this folder with all that is in it."""
        system, path = self._located()
        system.delete_dir(path)

    def put(self, file: Path) -> None:
        """Copy a file of this machine here, whole or not at all."""
        system, path = self._located()
        # An object appears in its store when it is closed; in other stores readers would see half a file.
        home, _, name = path.rpartition("/")
        there = path if self.scheme in _OBJECTS else f"{home}/_{name}.{token_hex(8)}"
        with file.open("rb") as source, system.open_output_stream(there) as target:
            copyfileobj(source, target, _COPIED_AT_ONCE)
        if there != path:
            system.move(there, path)

    def _located(self) -> tuple[Any, str]:
        """The file system and the path in it, by pyarrow or by fsspec."""
        needs = f"an address that begins with {self.scheme}:// needs "
        try:
            from pyarrow import ArrowInvalid, fs
        except ImportError:
            raise MissingExtraError(f"{needs}pyarrow: pip install 'sklar[spark]'") from None
        try:
            try:
                return cast(tuple[Any, str], fs.FileSystem.from_uri(self.address))
            except ArrowInvalid:
                import fsspec

                system, path = fsspec.core.url_to_fs(self.address)
                return fs.PyFileSystem(fs.FSSpecHandler(system)), path
        except Exception as error:
            if isinstance(error, ImportError) and error.name == "fsspec":
                raise MissingExtraError(f"{needs}fsspec and its package for that store: pip install fsspec") from None
            # The address may hold a password: it is not repeated.
            kind = type(error).__name__
            raise DataError(said("machine.unreached", scheme=self.scheme, kind=kind)) from None


def version_of(place: Path | Remote) -> str:
    """A text that changes when the file does: its size and its time of change."""
    facts = place.stat()
    return f"{facts.st_size} {facts.st_mtime_ns}"
