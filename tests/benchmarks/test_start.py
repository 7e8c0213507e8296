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


def test_cold_and_warm_stand_beside_each_other_and_before_beside_after() -> None:
    now, before = {"query": (0.5, 0.4)}, {"query": (9.0, 1.5)}
    assert list(start.start_table(now, None))[-1] == "| query | 0.50 | 0.40 |"
    assert list(start.start_table(now, before))[-1] == "| query | 9.00 | 0.50 | 1.50 | 0.40 |"


def test_where_compiled_code_pays_is_what_it_costs_over_what_it_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_crossovers", lambda: iter([("noise", "cell", 2e-6, 1e-6, (2.0, 0.5), 400_000.0)]))
    row = list(start.crossover_table())[-1]
    assert row == "| noise | cell | 2 | 1 | 2.00 | 0.50 | 2,000,000 / 500,000 | 400,000 |"


def test_every_command_is_one_of_ours(tmp_path: Path) -> None:
    from sklar.cli import cli

    assert {arguments[0] for arguments in start.commands(tmp_path).values()} - {"--help"} <= set(cli.commands)
