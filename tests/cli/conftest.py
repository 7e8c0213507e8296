"""The command line from its arguments to its exit code: in this process, in one of its own, and on a terminal."""

from __future__ import annotations

import atexit
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sklar.cli import main


class Program:
    """What `CliRunner` invokes: the whole program, without what a process does at its end."""

    name = "sklar"

    def main(self, args: Any, prog_name: str, **_: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [prog_name, *args])
            patch.setattr(sys, "unraisablehook", sys.unraisablehook)
            patch.setattr(atexit, "register", lambda leave: leave)
            main()


def call(*arguments: str | Path, cwd: Path, typed: str = "", code: int = 0) -> Result:
    """Run a command, which ends with this exit code, in this process, which has loaded everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        done = CliRunner().invoke(Program(), [*map(str, arguments)], input=typed)  # type: ignore[arg-type]
    assert done.exit_code == code, done.output
    return done


def run(*arguments: str | Path, cwd: Path, code: int = 0, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run a command, which ends with this exit code, in a process of its own."""
    command = [sys.executable, "-m", "sklar", *map(str, arguments)]
    settings.setdefault("stdout", subprocess.PIPE)
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=cwd, check=False, **settings)
    assert done.returncode == code, done.stderr
    return done


def on_a_terminal(*arguments: str, cwd: Path, typed: bytes = b"", **environment: str) -> str:
    """All that a command draws on a terminal where this is typed; it ends well."""
    ours, theirs = pty.openpty()
    clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    clean |= {"TERM": "xterm-256color"} | environment
    command = [sys.executable, "-m", "sklar", *arguments]
    process = subprocess.Popen(command, cwd=cwd, env=clean, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, typed)
    drawn = b""
    # Linux says that a terminal has ended by an error.
    with suppress(OSError):
        while block := os.read(ours, 65_536):
            drawn += block
    os.close(ours)
    assert process.wait() == 0
    return drawn.decode()
