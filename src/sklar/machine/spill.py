"""Arrays too large for memory, in mapped files that have no name.

A file is its owner's alone (0600) and nameless from the first moment, so it is gone when the process ends, however that
ends. Disk space is taken when the array is made: a full disk is an error there, not the end of the process. A private
array is overwritten when it is let go, unless the process is killed: free blocks then hold it, as those of swap do.
"""

from __future__ import annotations

import math
import mmap
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sklar.errors import OutputError
from sklar.machine.wording import said

# Of the memory, what one array may take.
_SHARE = 1 / 16
_LINE = 64
# What a container may use, by the two ways in which Linux says it.
_GRANTED = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@lru_cache(maxsize=1)
def memory() -> int:
    """Bytes of memory that this process may use: the machine's, or fewer where a container grants fewer."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else [8 << 30]
    for name in _GRANTED:
        with suppress(OSError, ValueError):
            limits.append(int(Path(name).read_text(encoding="ascii")))
    return min(limits)


def is_large(size: int) -> bool:
    """Whether an array of this many bytes goes to a file."""
    return size > memory() * _SHARE


def room_for(shape: int | tuple[int, ...], kind: DTypeLike, *, private: bool = False) -> NDArray[Any]:
    """An array of zeros that begins a cache line, in memory or, where it is large, in a file.

    Where memory lies decides in which order some libraries add up products of matrices, and so the last bits of fits.
    `private` is for exact counts.
    """
    size = math.prod(np.atleast_1d(shape).tolist()) * np.dtype(kind).itemsize
    if not is_large(size):
        raw = np.zeros(size + _LINE, dtype=np.uint8)
        first = -raw.ctypes.data % _LINE
        return raw[first : first + size].view(kind).reshape(shape)
    try:
        with tempfile.TemporaryFile(prefix="sklar-", buffering=0) as file:
            # A file with holes would end the process where the disk is full.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                _write_zeros(file.fileno(), size)
            mapped = mmap.mmap(file.fileno(), size)
            if private:
                weakref.finalize(mapped, _erase, os.dup(file.fileno()), size)
    except OSError:
        raise _no_room(size) from None
    return np.frombuffer(mapped, dtype=kind).reshape(shape)


def require_disk(size: int) -> None:
    """Refuse work whose files would take this many bytes together, before it begins, where the disk has fewer."""
    try:
        free = shutil.disk_usage(tempfile.gettempdir()).free
    except OSError:
        free = 0
    if free < size:
        raise _no_room(size)


def _no_room(size: int) -> OutputError:
    return OutputError(said("machine.no_room", size=size / 2**30, folder=tempfile.gettempdir()))


def _erase(handle: int, size: int) -> None:
    # Where the disk fails here too, nothing better can be done.
    with suppress(OSError):
        _write_zeros(handle, size)
        os.fsync(handle)
    os.close(handle)


def _write_zeros(handle: int, size: int) -> None:
    zeros = bytes(1 << 20)
    os.lseek(handle, 0, os.SEEK_SET)
    while size:
        size -= os.write(handle, zeros[:size])
