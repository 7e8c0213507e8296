"""Compiled code is kept where nobody else can put any: what numba finds there it unpickles, and so runs."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sklar.kernel import noise
from sklar.machine import cache
from sklar.machine.cache import is_private, keep_compiled_code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "cache"
    made.mkdir(mode=0o700)
    return made


def test_a_folder_of_the_user_alone_is_used(folder: Path) -> None:
    assert is_private(folder)


@pytest.mark.parametrize("rights", [0o755, 0o770, 0o777, 0o1777, 0o500])
def test_a_folder_that_others_can_enter_is_not(folder: Path, rights: int) -> None:
    folder.chmod(rights)
    assert not is_private(folder)


def test_a_folder_of_somebody_else_is_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    assert not is_private(folder)


def test_neither_is_a_link_nor_a_file_nor_nothing(folder: Path) -> None:
    link, file = folder.parent / "link", folder.parent / "file"
    link.symlink_to(folder)
    file.touch(mode=0o700)
    assert not any(is_private(path) for path in (link, file, folder / "none"))


def test_nor_one_that_others_could_replace(folder: Path) -> None:
    above = folder.parent
    try:
        above.chmod(0o777)
        assert not is_private(folder)
        # As the temporary folder of a system: all may write, none may rename what is another's.
        above.chmod(0o1777)
        assert is_private(folder)
    finally:
        above.chmod(0o700)


def kept_code() -> Path:
    """Where the compiled code of the sampler came from."""
    return Path(noise._compiled()["_fill"]._cache.cache_path)


def choose(monkeypatch: pytest.MonkeyPatch, **settings: Path | str) -> Path:
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    keep_compiled_code()
    return Path(os.environ["NUMBA_CACHE_DIR"])


def test_where_compiled_code_goes(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    temporary.chmod(0o1777)
    named = temporary / f"sklar-{os.geteuid()}"
    assert choose(monkeypatch, NUMBA_CACHE_DIR=folder, HOME=home) == folder
    folder.chmod(0o755)
    assert choose(monkeypatch, NUMBA_CACHE_DIR=folder, HOME=home) == home / ".cache" / "sklar"
    assert (home / ".cache" / "sklar").stat().st_mode & 0o777 == 0o700
    # A home that is not there, as on a cluster.
    assert choose(monkeypatch, HOME=tmp_path / "none" / "home", TMPDIR=temporary) == named
    # Somebody was there first: a folder for this process alone.
    named.chmod(0o777)
    alone = choose(monkeypatch, HOME=tmp_path / "none" / "home", TMPDIR=temporary)
    assert alone not in (named, folder)
    assert is_private(alone)
    shutil.rmtree(alone)


def test_numba_that_was_loaded_before_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder))
    keep_compiled_code()
    assert vars(numba.config)["CACHE_DIR"] == str(folder)


def test_a_system_without_such_rights_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "geteuid")
    monkeypatch.setenv("NUMBA_CACHE_DIR", "anything")
    keep_compiled_code()
    assert os.environ["NUMBA_CACHE_DIR"] == "anything"


class Planted:
    """What runs when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (77,)


@pytest.mark.parametrize(("rights", "runs"), [(0o777, False), (0o700, True)], ids=["open", "closed"])
def test_a_planted_file_does_not_run(folder: Path, rights: int, runs: bool) -> None:
    """In the user's own folder it would, which shows that the plant is a real one."""
    kept = kept_code()
    shutil.copytree(kept, folder / kept.name)
    for index in folder.rglob("*.nbi"):
        index.write_bytes(pickle.dumps(Planted()))
    folder.chmod(rights)
    done = subprocess.run(
        [sys.executable, "-c", "from sklar.kernel import noise; noise._compiled()"],
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder)},
        check=False,
    )
    assert done.returncode == (77 if runs else 0)


def test_the_package_keeps_its_own_code_there() -> None:
    kept = kept_code()
    assert is_private(kept.parent)
    assert kept.parent == Path(os.environ[cache.FOLDER])
