import doctest
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import counting, scale
from sklar.kernel.cells import Cells
from sklar.kernel.count import count_plainly, no_counts


def run(engine: str = "local", size: int = 1000, **facts: Any) -> dict[str, Any]:
    """A run as `scale` keeps it, made up."""
    found = {
        "engine": engine,
        "size": size,
        "rows": 1000,
        "digest": "abc",
        "seconds": 2.0,
        "threads": 2,
        "load": 0.25,
        "partitions": None,
        "cell_bytes": 0.125,
        "kept_rows": 400,
    }
    if engine == "local":
        found |= {"cpu_seconds": 4.0, "peak_bytes": 1_250_000_000}
    else:
        found |= {"start_seconds": 9.0, "partial_bytes": 64_000_000, "partials": 7}
    return found | facts


def test_doctests() -> None:
    assert doctest.testmod(scale).failed == 0


def test_equal_counts_have_equal_digests() -> None:
    cells = Cells([2, 3])
    none = no_counts(cells)
    some = count_plainly(np.zeros((2, 1), dtype=np.int32), cells)
    assert counting.digest(none) == counting.digest(no_counts(cells))
    assert counting.digest(none) != counting.digest(some)


def test_the_page_says_what_was_measured(tmp_path: Path) -> None:
    runs = {"here": run(rows=50_000_000), "resumed": run(), "spark": run("spark")}
    growth = {
        "rows": [run(), run("spark")],
        "columns": [run(size=500), run(size=1000), run("spark", 1000)],
        "partitions": [run("spark", 4), run("spark", 16)],
    }
    scale.write(scale.document(runs, growth), tmp_path)
    page = (tmp_path / "scale.md").read_text()
    for text in ("400 rows kept", "50,000,000", "25,000,000", "1.25", "64.00", "250 GB", "1,600 of 64 MB", "102 GB"):
        assert text in page
    # 1,000 rows x 499,500 pairs in 4 CPU seconds, for 10^9 rows x 1,999,000 pairs.
    assert f"{1e9 * 1_999_000 / (1000 * 499_500 / 4) / 3600:,.0f} core hours" in page
    # Two cores for 2 seconds and a million values, for 2 x 10^12.
    assert f"{2 * 2 * 2e6 / 3600:,.0f} core hours" in page
    assert json.loads((tmp_path / "scale.json").read_text())["runs"]["spark"]["partials"] == 7
    assert (tmp_path / "scale.svg").exists()


def test_shards_are_made_once_and_hold_all_rows(tmp_path: Path) -> None:
    import polars as pl

    folder, schema = scale.shards(1000, 3, tmp_path)
    assert [pl.read_parquet(path).height for path in sorted(folder.iterdir())] == [333, 333, 334]
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert scale.shards(1000, 3, tmp_path) == (folder, schema)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert [path.name for path in scale.some_of(folder, 3, tmp_path).iterdir()] == ["0000.parquet"]


def test_engines_that_do_not_agree_are_not_reported(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="the engines do not agree"):
        scale.require_equal([run(), run(digest="other")])


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
