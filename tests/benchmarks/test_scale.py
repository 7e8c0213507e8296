"""Every engine must count alike, and what a cluster would cost follows from what was measured."""

import json
from pathlib import Path

import click
import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from benchmarks import counting, scale
from sklar.kernel.cells import Cells
from sklar.rows.count import count_plainly


def test_equal_counts_have_equal_digests() -> None:
    cells = Cells([2, 3])
    none = count_plainly(np.zeros((2, 0), dtype=np.int32), cells)
    some = count_plainly(np.zeros((2, 1), dtype=np.int32), cells)
    assert counting.digest(none) == counting.digest(count_plainly(np.zeros((2, 0), dtype=np.int32), cells))
    assert counting.digest(none) != counting.digest(some)


def test_engines_that_do_not_agree_are_not_reported() -> None:
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
    folders = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(scale.main, [*options, *folders], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    kept = json.loads((tmp_path / "out" / "scale.json").read_text())["runs"]
    assert kept["here"]["rows"] == kept["resumed"]["rows"] == 200_000
    assert kept["here"]["digest"] == kept["resumed"]["digest"]
    assert 0 < kept["resumed"]["kept_rows"] <= 200_000
    assert not list((tmp_path / "work").glob("*.checkpoint"))
