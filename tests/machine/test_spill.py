"""Large arrays in files without a name: private, erased, and refused before a full disk could end the process."""

from __future__ import annotations

import gc
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from sklar.errors import OutputError
from sklar.machine import spill
from sklar.machine.spill import is_large, memory, room_for


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine whose memory a few kilobytes fill, and an empty folder for temporary files."""
    monkeypatch.setattr(spill, "_SHARE", 4096 / memory())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_small_arrays_stay_in_memory() -> None:
    assert not is_large(1 << 20)
    assert room_for(10, np.int64).base is None


def test_a_large_array_is_zeros_in_a_file_of_no_name_and_of_its_owner(small_memory: Path) -> None:
    array = room_for((3, 1000), np.float32, private=True)
    assert array.shape == (3, 1000)
    assert array.dtype == np.float32
    assert not array.any()
    array[1] = 7
    assert array.sum() == 7000
    # Nobody can find it in a folder, and who finds it in the process's own list finds it closed.
    assert list(small_memory.iterdir()) == []
    held = [found for found in map(_held, Path("/proc/self/fd").iterdir()) if found and found.st_size == 12_000]
    assert held
    assert all(stat.S_IMODE(found.st_mode) == 0o600 and found.st_nlink == 0 for found in held)


def _held(handle: Path) -> os.stat_result | None:
    with suppress(OSError):
        return os.fstat(int(handle.name))
    return None


def test_what_a_private_array_held_is_overwritten_when_it_is_let_go(
    small_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[bytes] = []

    def look(handle: int) -> None:
        left.append(os.pread(handle, 1 << 20, 0))

    monkeypatch.setattr(os, "fsync", look)
    array = room_for(3_000_000, np.int8, private=True)
    array[:] = 1
    view = array[5:]
    del array
    gc.collect()
    assert not left
    del view
    gc.collect()
    assert left == [bytes(1 << 20)]
    # What is public is let go as it is.
    room_for(5000, np.int8)[:] = 1
    gc.collect()
    assert len(left) == 1


def test_a_full_disk_is_an_error_with_a_remedy(small_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int, _start: int, _size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutputError, match=r"needs a temporary file of 6\.0 GiB, for which there is no room .*TMPDIR"):
        room_for(6 << 30, np.uint8)
