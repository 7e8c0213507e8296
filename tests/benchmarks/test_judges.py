"""Outside judges: what they are given, which goals their figures meet, and what is said where one is silent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import output_of

pd = pytest.importorskip("pandas")
from benchmarks.judges import __main__ as judges  # noqa: E402
from benchmarks.judges import judging  # noqa: E402


def run(table: str, draft: Any, test: Any = None) -> dict[str, Any]:
    said = {"sdmetrics.draft": draft, "sdmetrics.test": test or {"score": 0.99, "columns": 1.0, "pairs": 0.98}}
    return {"table": table, "draw": 1, "rows": 9, "columns": ["a"], "said": said}


def test_nists_bins_are_percentiles_of_the_released_rows() -> None:
    generator = np.random.default_rng(0)
    train = pd.DataFrame({"n": generator.permutation(2_000).astype(float), "c": "x"})
    judged = pd.DataFrame({"n": [-5.0, 50.0, 99.0, 100.0, 1_999.0, 9_999.0, np.nan], "c": "y"})
    kinds = {"n": "number", "c": "category"}
    binned, other = judging.nist_bins(train, judged, kinds)
    counts = binned["n"].value_counts()
    assert sorted(counts.index) == list(range(20))
    # Bins hold a twentieth each, but for where a rank stands on an edge.
    assert counts.between(99, 101).all()
    assert other["n"].tolist() == [0, 0, 1, 1, 19, 19, -1]
    assert other["c"].tolist() == ["y"] * 7
    # A row is in one bin however often it is asked for.
    again = judging.nist_bins(train, train, kinds)
    assert (again[0]["n"] == again[1]["n"]).all()


def test_goals_are_met_within_their_limit_and_silence_is_said() -> None:
    near = run("near", {"score": 0.985, "columns": 1.0, "pairs": 0.97})
    far = run("far", {"score": 0.97, "columns": 1.0, "pairs": 0.94})
    silent = run("silent", "needs .venv-raw. Run make judges.")
    lines = judges.passes([near, far, silent])
    assert lines == [
        "PASS  sdmetrics on near: 0.985, +0.0050 behind real rows (at most 0.01)",
        "FAIL  sdmetrics on far: 0.970, +0.0200 behind real rows (at most 0.01)",
        "NONE  sdmetrics.draft of silent, draw 1: needs .venv-raw. Run make judges.",
    ]
    page = judges.page_of([near, far, silent])
    assert "| far | sdmetrics | 0.01 | +0.0200 | FAIL |" in page
    assert page.index("## Goals") < page.index("## sdmetrics") < page.index("## Methods")


def test_a_judge_without_its_environment_or_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n1,x\n2,y\n")
    monkeypatch.setattr(judges, "ROOT", tmp_path)
    assert judges.said("sdnist", rows, rows, rows, ["a"]) == "needs .venv-sdnist. Run make judges."
    python = tmp_path / ".venv-sdnist" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    found = judges.said("sdnist", rows, rows, rows, ["a"])
    assert isinstance(found, str)
    assert "No module named" in found
    assert judges.columns_of([rows, rows]) == ["a", "b"]
    unknown = output_of(judges.main, "--judges", "nobody", code=2)
    assert "no such one: nobody. Choose from sdmetrics, mostlyai, sdnist, anonymeter." in unknown
