"""The benchmarks of single stages run, on small tables: what they print follows from what they measured."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click
import numpy as np
import polars as pl
import pytest

from benchmarks import counting, levels, linked, people, scale, start, threads, visits
from sklar.cli import cli
from sklar.generate.visits import KEY, generate_visits
from sklar.kernel.cells import Cells
from sklar.rows.encode import encode
from tests.conftest import count_plainly, output_of


def test_every_stage_is_told_with_its_memory(tmp_path: Path) -> None:
    sizes = ["--levels", "13", "--attributes", "4", "--rows", "300"]
    shown = output_of(levels.main, *sizes, "--stage", "measure", "--json", tmp_path / "levels.json")
    assert "300 rows x 4 attributes, 13 levels, 63 two-way cells" in shown
    found = json.loads((tmp_path / "levels.json").read_text())
    assert list(found["stages"]) == ["count", "measure"]
    assert found["cells"] == 63


def test_figures_are_zero_for_equal_tables_only() -> None:
    ((real,), (other,)) = (generate_visits(3_000, seed=seed) for seed in (0, 1))
    assert {name: value for name, value in linked.compared(real, real).items() if value} == {"median gap": 12.0}
    apart = linked.compared(real, other)
    assert apart.keys() == {*linked.GOALS, "two visits", "median gap"}
    assert min(apart.values()) > 0
    frames, tree = linked.panel(50)
    assert linked.repeated(frames["years"])[0] == 0.0
    assert not any(each.order for each in linked.without_order(tree).branches)


@pytest.mark.parametrize("how", ["people", "rows"])
def test_counting_people_is_measured(how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people.make(tmp_path, 2_000, 100)
    people.count(tmp_path, how, 8)
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"seconds", "cpu_seconds", "peak_bytes", "counted"}
    # The tables are the same in every run: two people have fewer than eight rows.
    assert found["counted"] == (100 if how == "people" else 798)


def test_shares_over_people_weigh_people_alike() -> None:
    rows, schema = visits.joined(200)
    codes = encode(rows.select(schema.names), schema)
    _, person, times = np.unique(rows[KEY].to_numpy(), return_inverse=True, return_counts=True)
    by_rows, by_people = (visits.shares(codes, schema, each) for each in (np.ones(rows.height), 1 / times[person]))
    assert all(table.sum() == pytest.approx(1.0) for table in by_people)
    # Age is a patient's own: over people it is the share of patients.
    patients = rows.unique(KEY).get_column("sex").value_counts()
    women = patients.filter(patients["sex"] == "F")["count"][0] / times.size
    assert by_people[schema.names.index("sex")][0] == pytest.approx(women)
    assert visits.distances(by_rows, by_people, schema.n_attributes)[0] > 0


def test_engines_that_do_not_agree_are_not_reported() -> None:
    cells = Cells([2, 3])
    none, again, some = (count_plainly(np.zeros((2, rows), dtype=np.int32), cells) for rows in (0, 0, 1))
    assert counting.digest(none) == counting.digest(again) != counting.digest(some)
    scale.require_equal([{"digest": "abc"}, {"digest": "abc"}])
    with pytest.raises(click.ClickException, match="the engines do not agree: abc, other"):
        scale.require_equal([{"digest": "abc"}, {"digest": "other"}])


def test_shards_are_made_once_and_hold_all_rows(tmp_path: Path) -> None:
    folder, schema = scale.shards(1000, 3, tmp_path)
    assert [pl.read_parquet(path).height for path in sorted(folder.iterdir())] == [333, 333, 334]
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert scale.shards(1000, 3, tmp_path) == (folder, schema)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert [path.name for path in scale.some_of(folder, 3, tmp_path).iterdir()] == ["0000.parquet"]


@pytest.mark.slow
def test_a_small_run_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real process is killed in the middle, another goes on, and both count what one pass counts."""
    monkeypatch.setattr(scale, "ATTRIBUTES", (3, 4))
    options = ["--rows", "200000", "--shards", "8", "--wide-rows", "500", "--no-spark", "--page"]
    output_of(scale.main, *options, "--work", tmp_path / "work", "--out", tmp_path / "out")
    kept = json.loads((tmp_path / "out" / "scale.json").read_text())["runs"]
    assert kept["here"]["rows"] == kept["resumed"]["rows"] == 200_000
    assert kept["here"]["digest"] == kept["resumed"]["digest"]
    assert 0 < kept["resumed"]["kept_rows"] <= 200_000
    assert not list((tmp_path / "work").glob("*.checkpoint"))


def test_processor_time_is_that_of_the_command(tmp_path: Path) -> None:
    took = start.timed([sys.executable, "-c", "sum(range(10**6))"], tmp_path, dict(os.environ))
    assert took.cpu > 0
    assert took.wall > 0
    with pytest.raises(click.ClickException, match="no such thing"):
        start.timed([sys.executable, "-c", "raise SystemExit('no such thing')"], tmp_path, dict(os.environ))


def test_every_command_is_one_of_ours(tmp_path: Path) -> None:
    assert {arguments[0] for arguments in start.commands(tmp_path).values()} - {"--help"} <= set(cli.commands)


def test_only_stages_that_all_runs_have_are_compared() -> None:
    runs = [
        {"threads": 1, "seconds": 3.0, "stages": {name: {"seconds": 1.0} for name in threads.STAGES}},
        {"threads": 4, "seconds": 1.0, "stages": {"count": {"seconds": 0.25}, "draw": {"seconds": 0.0}}},
    ]
    lines = threads.table(runs).splitlines()
    assert lines[0] == "| stage | 1 thread | 4 threads |"
    assert lines[2] == "| count | 1.00 | 0.25 (4.0x) |"
    assert [line.split()[1] for line in lines[2:]] == ["count", "draw", "all"]


def test_threads_are_whole_numbers() -> None:
    for given in ("0", "1,x", ""):
        shown = output_of(threads.main, "--threads", given, code=2)
        assert f"must be whole numbers of at least 1 with commas between, got {given}." in shown
