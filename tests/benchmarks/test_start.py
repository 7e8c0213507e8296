"""The benchmark of starts: what it prints, without the minutes that it takes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import pytest

from benchmarks import start


def test_processor_time_is_that_of_the_command(tmp_path: Path) -> None:
    took = start.timed([sys.executable, "-c", "sum(range(10**6))"], tmp_path, dict(os.environ))
    assert took.cpu > 0
    assert took.wall > 0
    with pytest.raises(click.ClickException, match="no such thing"):
        start.timed([sys.executable, "-c", "raise SystemExit('no such thing')"], tmp_path, dict(os.environ))


def test_every_command_is_one_of_ours(tmp_path: Path) -> None:
    from sklar.cli import cli

    assert {arguments[0] for arguments in start.commands(tmp_path).values()} - {"--help"} <= set(cli.commands)
