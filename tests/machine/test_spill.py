"""Large arrays in files without a name: private, erased, and refused before a full disk could end the process."""

from __future__ import annotations

import gc
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest

import sklar
from sklar.budget.certificate import Measured
from sklar.errors import DataError, OutputError
from sklar.files import archive
from sklar.files.model import fit_tables
from sklar.fitting import choose, margins
from sklar.kernel import vault
from sklar.kernel.queries import Tables
from sklar.kernel.theorems import Budget
from sklar.machine import spill
from sklar.machine.spill import memory, room_for
from sklar.public.schema import Attribute, Schema
from sklar.rows import count as counting
from sklar.trust.verify import verify


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine whose memory a few kilobytes fill, and an empty folder for temporary files."""
    monkeypatch.setattr(spill, "_SHARE", 4096 / memory())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_large_array_is_zeros_in_a_file_of_no_name_and_of_its_owner(small_memory: Path) -> None:
    assert type(room_for(10, np.int64).base) is np.ndarray
    array = room_for((3, 1000), np.float32, private=True)
    assert (array.shape, str(array.dtype), int(array.sum())) == ((3, 1000), "float32", 0)
    array[1] = 7
    assert array.sum() == 7000
    # Nobody can find it in a folder, and who finds it in the process's own list finds it closed.
    assert list(small_memory.iterdir()) == []
    handles = [handle.stat() for handle in Path("/proc/self/fd").iterdir() if handle.exists()]
    held = [(stat.S_IMODE(found.st_mode), found.st_nlink) for found in handles if found.st_size == 12_000]
    assert set(held) == {(0o600, 0)}


def test_where_the_system_reserves_no_room_zeros_are_put(small_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    assert room_for(3_000_001, np.int8).sum() == 0
    assert list(small_memory.iterdir()) == []


def test_what_a_private_array_held_is_overwritten_at_last(small_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda handle: left.append(os.pread(handle, 1 << 20, 0)))
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
    monkeypatch.setattr(os, "posix_fallocate", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OutputError, match=r"needs temporary files of 6\.0 GiB, for which there is no room .*TMPDIR"):
        room_for(6 << 30, np.uint8)


def of_levels(names: Iterable[str], levels: int) -> Schema:
    values = tuple(range(levels))
    return Schema(name="t", attributes=tuple(Attribute(name=name, kind="categorical", values=values) for name in names))


def test_a_release_that_the_disk_cannot_hold_is_refused_before_it_is_charged(
    small_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, room = of_levels("ab", 40), SimpleNamespace(free=12 * 4 * 1600 - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: room)
    with pytest.raises(OutputError, match=r"needs temporary files of 0\.0 GiB"):
        sklar.measure("nowhere.csv", schema, Budget(epsilon=1.0))
    room.free += 1
    with pytest.raises(DataError, match="does not exist"):
        sklar.measure("nowhere.csv", schema, Budget(epsilon=1.0))


@pytest.fixture(scope="module")
def measured() -> Measured:
    """Noisy tables of a few attributes whose dependence is plain."""
    codes = np.random.default_rng(0).integers(0, 4, 3_000)
    columns = {f"c{i}": (codes + i) % 4 for i in range(4)}
    return sklar.measure(pl.DataFrame(columns), of_levels(columns, 4), Budget(epsilon=5.0))


def test_a_fit_is_the_same_whether_its_arrays_lie_in_memory_or_in_files(
    measured: Measured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = fit_tables(measured)
    monkeypatch.setattr(spill, "_SHARE", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    there = fit_tables(measured)
    assert here.settings == there.settings
    assert here.settings["kind"] == "mixture"
    assert here.copula.arrays()["probabilities"].tobytes() == there.copula.arrays()["probabilities"].tobytes()


def test_very_many_cells_go_the_whole_way(measured: Measured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From rows to a file that is verified, as if 48 cells were very many and no array fitted the memory."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(spill, "_SHARE", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for module in (margins, choose, archive):
        monkeypatch.setattr(module, "MANY_CELLS", 40)
    monkeypatch.setitem(vars(vault), "MANY_CELLS", 40)
    monkeypatch.setattr(counting, "_PLAIN_CELLS", 0)
    rows = fit_tables(measured).sample(seed=1)
    model = sklar.fit(rows, measured.schema, epsilon=5.0)
    pairs = [b.values for b in model.measured.blocks if isinstance(b.query, Tables) and b.query.order == 2]
    assert {values.dtype for values in pairs} == {np.dtype(np.int32)}
    assert margins.pool(model.measured).pairs.dtype == np.float32
    assert model.settings["kind"] == "mixture"
    model.save(tmp_path / "t.sklar")
    again = sklar.load(tmp_path / "t.sklar")
    for one, other in zip(model.measured.blocks, again.measured.blocks, strict=True):
        assert one.values.dtype == other.values.dtype
        assert np.array_equal(one.values, other.values)
    assert verify(tmp_path / "t.sklar").passed
    assert again.sample(seed=2).equals(model.sample(seed=2))
    assert list(temporary.iterdir()) == []
