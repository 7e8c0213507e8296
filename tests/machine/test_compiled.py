"""Kernels are compiled when they are called, kept, told of, and compiled by another process ahead."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import sklar
from sklar.budget.method import Method
from sklar.cli import cli
from sklar.machine import compiled as machine
from sklar.machine.cache import FOLDER
from sklar.machine.compiled import Compiled, Worth, compile_ahead, compiled, is_kept, population_count, prange, telling
from sklar.machine.warm import KERNELS, warm
from sklar.public.schema import Schema
from sklar.release import kernels_for

SOURCE = Path(sklar.__file__).parent


@compiled()
def _double(x: float) -> float:
    return 2 * x


@compiled("float64(float64)")
def twice_and_one(x: float) -> float:
    """What calls another kernel."""
    return _double(x) + 1


@compiled(["int64(uint64[::1])", "int64(int64[::1])"], parallel=True)
def bits_of(words: NDArray[np.integer[Any]]) -> int:
    """What counts bits, for words of two types, with threads that share the turns."""
    total = 0
    for i in prange(words.size):
        total += population_count(np.uint64(words[i]))
    return total


def test_a_kernel_runs_compiled_and_as_python_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    with telling(told.append):
        assert twice_and_one(1.5) == 4.0
    assert twice_and_one.plain.__code__ is not twice_and_one.kernel
    assert twice_and_one.__doc__ == "What calls another kernel."
    assert len(told) <= 1
    # The first one tells, unless the code is kept already; and once.
    monkeypatch.setenv(FOLDER, str(tmp_path))
    again = Compiled(twice_and_one.plain, "float64(float64)", {"nogil": True})
    told.clear()
    with telling(told.append):
        assert again(2.0) == 5.0
        again.compile()
    assert told == ["compiling for this machine, once"]


def test_where_numba_is_loaded_a_tenth_of_the_work_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    worth = Worth(100)
    assert [worth(60), worth(30), worth(20), worth(0)] == [False, False, True, True]
    monkeypatch.setitem(sys.modules, "numba", machine)
    worth = Worth(100)
    assert [worth(8), worth(3)] == [False, True]


def test_names_of_numba_are_found_when_a_kernel_is_compiled() -> None:
    words = np.array([0, 1, 2**64 - 1, 0b1011], dtype=np.uint64)
    assert bits_of.plain(words) == bits_of(words) == 68
    assert bits_of(words.view(np.int64)) == 68
    assert list(prange(3)) == [0, 1, 2]


def test_nobody_is_told_of_code_that_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    (tmp_path / "draw_0").mkdir()
    assert not is_kept("sklar.draw.refine")
    (tmp_path / "draw_0" / "refine.exchange-58.py311.nbi").touch()
    assert is_kept("sklar.draw.refine")
    assert is_kept("sklar.draw.refine", "exchange")
    assert not is_kept("sklar.draw.refine", "other")
    told: list[str] = []
    with telling(told.append):
        machine._expect("sklar.draw.refine", "exchange")
        assert not told
        machine._expect("sklar.draw.latent")
    assert told == [machine.NOTE]


def test_another_process_compiles_ahead_and_who_needs_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    class Process:
        waited = 0

        def __init__(self, command: list[str], **_streams: int) -> None:
            started.append(command)

        def wait(self) -> None:
            Process.waited += 1

        def kill(self) -> None:
            """Nothing is there."""

    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", Process)
    told: list[str] = []
    try:
        with telling(told.append):
            compile_ahead(["sklar.fitting.steps", "sklar.draw.latent"])
            compile_ahead(["sklar.fitting.steps"])
    finally:
        machine._expect("sklar.fitting.steps")
        machine._expect("sklar.draw.latent")
    assert [command[-2:] for command in started] == [["sklar.fitting.steps", "sklar.draw.latent"]]
    assert started[0][1:4] == ["-P", "-m", "sklar.machine.warm"]
    assert told == [machine.NOTE]
    assert Process.waited == 2


def test_where_no_process_can_be_started_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    compile_ahead(["sklar.fitting.steps"])
    assert not machine._helpers


def test_the_other_process_compiles_what_it_is_told_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    command = [sys.executable, "-P", "-m", "sklar.machine.warm", "sklar.fitting.choose"]
    subprocess.run(command, env=os.environ | {FOLDER: str(tmp_path)}, check=True)
    assert {path.name.split(".")[0] for path in tmp_path.rglob("*.nbi")} == {"choose"}


def test_warm_knows_every_module_with_kernels() -> None:
    marks = re.compile(r"^@compiled\(|^\w+ = compiled\(|from numba import njit", re.MULTILINE)
    found = {
        ".".join(["sklar", *path.relative_to(SOURCE).with_suffix("").parts])
        for path in SOURCE.rglob("*.py")
        if marks.search(path.read_text())
    }
    assert found - {"sklar.machine.compiled"} == set(KERNELS)


def test_warm_compiles_every_kernel_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    warm(["sklar.kernel.noise", "sklar.draw.refine"], begin=begun.append)
    assert begun == ["sklar.kernel.noise", "sklar.draw.refine"]
    monkeypatch.setattr("sklar.machine.warm.warm", lambda *, begin: [begin(name) for name in KERNELS])
    done = CliRunner().invoke(cli, ["warm"])
    assert done.exit_code == 0
    assert "compile noise: done\n" in done.stderr
    assert done.stdout == f"Compiled for this machine: {len(KERNELS)} parts, kept in {os.environ[FOLDER]}.\n"


def test_what_a_release_needs_follows_from_its_schema() -> None:
    def schema(attributes: int) -> Schema:
        return Schema.from_dict({"attributes": {f"a{i}": {"type": "boolean"} for i in range(attributes)}})

    assert kernels_for(schema(20), Method.of("auto")) == kernels_for(schema(20), Method.of("binary")) == []
    assert kernels_for(schema(300), Method.of("auto")) == ["sklar.fitting.steps", "sklar.fitting.choose"]
    assert "sklar.kernel.noise" in kernels_for(schema(600), Method.of("binary"))
    assert {"sklar.fitting.tetrachoric", "sklar.draw.winners"} < set(kernels_for(schema(300), Method.of("binary")))
