"""A PostgreSQL server of the tests' own, where the machine has the programs."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def serving() -> Iterator[Path]:
    """The folder of a server's socket; user `tester` may do anything. The server ends with the block."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        pytest.skip("no PostgreSQL server in /usr/lib/postgresql: apt install postgresql")
    # PostgreSQL refuses to run as root.
    account = None
    if os.geteuid() == 0:
        try:
            account = pwd.getpwnam("postgres").pw_name
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user 'postgres'")
    home = Path(tempfile.mkdtemp(prefix="sklar-pg-"))
    if account:
        shutil.chown(home, account)

    def run(program: str, *arguments: str) -> None:
        command = [str(programs[-1] / program), *arguments]
        # Not captured: the server inherits the pipe, and the call would wait for its end.
        subprocess.run(command, check=True, user=account, cwd=home, stdout=subprocess.DEVNULL, timeout=120)

    try:
        run("initdb", "-D", f"{home}/data", "-A", "trust", "-U", "tester", "--no-sync")
        run("pg_ctl", "-D", f"{home}/data", "-w", "-l", f"{home}/log", "-o", f"-k {home} -h '' -F", "start")
        try:
            yield home
        finally:
            run("pg_ctl", "-D", f"{home}/data", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)
