"""The table of stages by threads."""

from __future__ import annotations

from benchmarks.threads import STAGES, main, table
from click.testing import CliRunner


def test_only_stages_that_all_runs_have_are_compared() -> None:
    runs = [
        {"threads": 1, "seconds": 3.0, "stages": {name: {"seconds": 1.0} for name in STAGES}},
        {"threads": 4, "seconds": 1.0, "stages": {"count": {"seconds": 0.25}, "draw": {"seconds": 0.0}}},
    ]
    lines = table(runs).splitlines()
    assert lines[0] == "| stage | 1 thread | 4 threads |"
    assert lines[2] == "| count | 1.00 | 0.25 (4.0x) |"
    assert [line.split()[1] for line in lines[2:]] == ["count", "draw", "all"]


def test_threads_are_whole_numbers() -> None:
    for given in ("0", "1,x", ""):
        result = CliRunner().invoke(main, ["--threads", given])
        assert result.exit_code == 2
        assert f"must be whole numbers of at least 1 with commas between, got {given}." in result.output
