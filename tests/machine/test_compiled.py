"""Kernels are compiled when they are called, and kept where nobody else can put code, which numba would run."""

from __future__ import annotations

import importlib
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import sklar
from sklar.cli import cli
from sklar.machine import compiled as machine
from sklar.machine.compiled import FOLDER, KERNELS, cache_folder, compiled, is_private, load, population_count

SOURCE = Path(sklar.__file__).parent
MODULES = {
    ".".join(["sklar", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__"): path.read_text()
    for path in SOURCE.rglob("*.py")
}


@compiled()
def _double(x: float) -> float:
    return 2 * x


@compiled("float64(float64)")
def twice_and_one(x: float) -> float:
    """A kernel that calls another."""
    return _double(x) + 1


@compiled(["int64(uint64[::1])", "int64(int64[::1])"])
def bits_of(words: NDArray[np.integer[Any]]) -> int:
    """A kernel for words of two types."""
    total = 0
    for i in range(words.size):
        total += population_count(np.uint64(words[i]))
    return total


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "cache"
    made.mkdir(mode=0o700)
    return made


def test_a_kernel_runs_compiled_and_as_python_runs_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config: Any = importlib.import_module("numba").config
    assert twice_and_one.plain.__code__ is not twice_and_one.kernel
    assert twice_and_one.__doc__ == "A kernel that calls another."
    # The first compilation is announced, once; one that is in the cache is not.
    monkeypatch.setenv(FOLDER, str(folder))
    before = config.CACHE_DIR
    notes: list[str] = []
    for _ in range(2):
        again = machine.Compiled(twice_and_one.plain, "float64(float64)", {"nogil": True, "cache": True})
        with machine.telling(notes.append):
            assert again(2.0) == 5.0
            assert again(3.0) == 7.0
    assert notes == ["compiling for this machine, once"]
    assert machine.is_kept(__name__, "twice_and_one")
    assert not machine.is_kept(__name__, "bits_of")
    assert not machine.is_kept("sklar.draw.refine")
    # A user's own kernels go where they went before.
    assert before == config.CACHE_DIR


def test_names_of_numba_are_found_when_a_kernel_is_compiled() -> None:
    words = np.array([0, 1, 2**64 - 1, 0b1011], dtype=np.uint64)
    assert bits_of.plain(words) == bits_of(words) == bits_of(words.view(np.int64)) == 68


def test_where_numba_is_loaded_a_tenth_of_the_work_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    worth = machine.Worth(100)
    assert [worth(60), worth(30), worth(20), worth(0)] == [False, False, True, True]
    monkeypatch.setitem(sys.modules, "numba", machine)
    worth = machine.Worth(100)
    assert [worth(8), worth(3)] == [False, True]


def test_warm_knows_every_module_with_kernels_and_says_what_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = re.compile(r"^@compiled\(|^\w+ = compiled\(", re.MULTILINE)
    assert {name for name, text in MODULES.items() if marks.search(text)} == set(KERNELS)
    for name in KERNELS:
        importlib.import_module(name)
    assert "kernel" in vars(vars(load("sklar.draw.refine"))["exchange"])
    monkeypatch.setattr(machine, "load", lambda _: None)
    done = CliRunner().invoke(cli, ["warm"])
    assert done.exit_code == 0
    assert "compile counting: done\n" in done.stderr
    assert done.stdout == f"Compiled for this machine: {len(KERNELS)} parts, kept in {cache_folder()}.\n"


def test_a_folder_that_others_can_enter_or_replace_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rights, private in dict.fromkeys([0o755, 0o770, 0o777, 0o1777, 0o500], False).items() | {(0o700, True)}:
        folder.chmod(rights)
        assert is_private(folder) == private
    folder.chmod(0o700)
    try:
        folder.parent.chmod(0o777)
        assert not is_private(folder)
        # As the temporary folder of a system: all may write, none may rename what is another's.
        folder.parent.chmod(0o1777)
        assert is_private(folder)
    finally:
        folder.parent.chmod(0o700)
    link, file = folder.parent / "link", folder.parent / "file"
    link.symlink_to(folder)
    file.touch(mode=0o700)
    assert not any(is_private(path) for path in (link, file, folder / "none"))
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    assert not is_private(folder)


def test_where_compiled_code_goes(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(**settings: Path) -> Path | None:
        for name in (FOLDER, "XDG_CACHE_HOME", "TMPDIR"):
            monkeypatch.delenv(name, raising=False)
        for name, value in settings.items():
            monkeypatch.setenv(name, str(value))
        return cache_folder()

    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    temporary.chmod(0o1777)
    named = temporary / f"sklar-{os.geteuid()}"
    assert choose(NUMBA_CACHE_DIR=folder, HOME=home) == folder
    folder.chmod(0o755)
    assert choose(NUMBA_CACHE_DIR=folder, HOME=home) == home / ".cache" / "sklar"
    assert (home / ".cache" / "sklar").stat().st_mode & 0o777 == 0o700
    # A home that does not exist, as on a cluster.
    assert choose(HOME=tmp_path / "none" / "home", TMPDIR=temporary) == named
    # Somebody was there first: a folder for this process alone.
    named.chmod(0o777)
    alone = choose(HOME=tmp_path / "none" / "home", TMPDIR=temporary)
    assert alone is not None
    assert alone not in (named, folder)
    assert is_private(alone)
    assert alone == cache_folder()
    shutil.rmtree(alone)
    machine._folder_of_process.cache_clear()
    # Systems without such rights are left alone.
    monkeypatch.setattr(machine, "os", SimpleNamespace())
    assert cache_folder() is None


class Planted:
    """Ends the process when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (77,)


@pytest.mark.parametrize(("rights", "runs"), [(0o777, False), (0o700, True)], ids=["open", "closed"])
def test_a_planted_file_does_not_run(folder: Path, rights: int, runs: bool) -> None:
    """In the user's own folder it would, which shows that the plant is a real one."""
    load("sklar.draw.refine")
    kept = cache_folder()
    assert kept is not None
    assert is_private(kept)
    for index in kept.glob("*/refine.*.nbi"):
        (folder / index.parent.name).mkdir(exist_ok=True)
        (folder / index.parent.name / index.name).write_bytes(pickle.dumps(Planted()))
    folder.chmod(rights)
    code = "from sklar.machine.compiled import load; load('sklar.draw.refine')"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {FOLDER: str(folder)}, check=False)
    assert done.returncode == (77 if runs else 0)


def test_imports_change_nothing_of_the_process(tmp_path: Path) -> None:
    """Not the environment, nor filters of warnings, logging, threads, signals or exit hooks; no file is made."""
    code = f"""
import atexit, importlib, logging, os, signal, sys, threading, warnings
def state():
    return (dict(os.environ), list(warnings.filters), list(logging.root.handlers), logging.root.level,
            threading.active_count(), signal.getsignal(signal.SIGINT), sys.excepthook, sys.unraisablehook,
            sys.path[:], os.getcwd(), atexit._ncallbacks())
def load(names, ours):
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            assert not ours or not (error.name or "").startswith("sklar"), error
def unchanged(names):
    before = state()
    load(names, ours=True)
    assert before == state(), [pair for pair in zip(before, state()) if pair[0] != pair[1]]
unchanged(["sklar"])
assert "numba" not in sys.modules
# What other packages do when they are loaded is not ours.
load(["numba", "numpy", "scipy.optimize", "scipy.stats", "polars", "starlette.applications", "uvicorn", "pandas",
      "pyarrow", "rich.progress", "jinja2", "nanoarrow", "cryptography", "duckdb", "threadpoolctl"], ours=False)
unchanged({sorted(MODULES)!r})
assert sys.modules["numba"].config.CACHE_DIR == "/a/users/own"
"""
    environment = os.environ | {FOLDER: "/a/users/own", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True)
    assert not (tmp_path / ".cache" / "sklar").exists()
