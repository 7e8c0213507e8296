"""Addresses of files: what leads where, what a folder holds, and what is said of a store that cannot be reached."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sklar.errors import DataError, MissingExtraError
from sklar.machine.stores import Remote, place_of, version_of


@pytest.fixture
def memory() -> Iterator[Any]:
    """A store that fsspec has in this process."""
    store = pytest.importorskip("fsspec", reason="fsspec is not installed").filesystem("memory")
    yield store
    store.rm("/", recursive=True)


def test_addresses_lead_to_paths_or_stores() -> None:
    assert place_of("data/t.csv") == Path("data/t.csv")
    assert place_of("file:///a%20b/t.csv") == Path("/a b/t.csv")
    assert str(place_of("s3a://bucket/t.parquet")) == "s3://bucket/t.parquet"
    there = place_of("hdfs://host:9000/d/t.csv.gz")
    assert isinstance(there, Remote)
    assert (there.scheme, there.suffix, there.suffixes) == ("hdfs", ".gz", [".csv", ".gz"])


def test_a_local_file_is_known_by_its_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a")
    first = version_of(path)
    path.write_text("ab")
    assert version_of(path) != first


def test_files_of_a_store(memory: Any, tmp_path: Path) -> None:
    for name in ("b/2.csv", "1.csv", "_notes/x.csv", ".hidden"):
        memory.pipe(f"/d/{name}", b"abc")
    folder = Remote("memory://d")
    assert [str(file) for file in folder.files()] == ["memory://d/1.csv", "memory://d/b/2.csv"]
    assert [str(file) for file in (folder / "1.csv").files()] == ["memory://d/1.csv"]
    assert Remote("memory://e").files() == []
    own = tmp_path / "own"
    own.write_bytes(b"0123456789")
    # Through a name that no reader takes for data.
    (folder / "new.csv").put(own)
    assert sorted(path for path in memory.find("/d") if "new" in path) == ["/d/new.csv"]
    with (folder / "new.csv").open() as file:
        assert file.read() == b"0123456789"
    before = version_of(folder / "1.csv")
    assert [(folder / name).stat().st_size for name in ("1.csv", "new.csv")] == [3, 10]
    memory.pipe("/d/1.csv", b"xyz")
    assert version_of(folder / "1.csv") != before
    folder.remove_folder()
    assert folder.files() == []


def test_what_a_store_needs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"begins with memory:// needs fsspec and its package for that store"):
        Remote("memory://secret").files()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"begins with memory:// needs pyarrow: pip install 'sklar\[spark\]'"):
        Remote("memory://secret").stat()


def test_a_store_that_cannot_be_reached_is_not_quoted() -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    with pytest.raises(DataError, match=r"the nosuch:// address cannot be reached by pyarrow or fsspec") as caught:
        Remote("nosuch://user:secret@host/t.csv").stat()
    assert "secret" not in str(caught.value)
