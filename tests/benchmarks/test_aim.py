"""AIM, MST and ours are run from one list, judged alike, and a run that was stopped says so."""

import importlib.util
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from benchmarks.accuracy import SOURCE
from click.testing import CliRunner

from benchmarks import aim, graphical, judge, pool, structures, tables
from sklar.public.schema import Attribute, Schema

SCHEMA = Schema(
    name="small",
    attributes=tuple(Attribute(name=f"a{size}", kind="categorical", values=tuple(range(size))) for size in (2, 3, 4)),
)


def bench(name: str = "azpro", rows: int = 200) -> tables.Bench:
    generator = np.random.default_rng(1)
    codes = np.stack([generator.integers(size, size=rows) for size in SCHEMA.sizes]).astype(np.int32)
    frame = pl.DataFrame(dict(zip(SCHEMA.names, codes, strict=True)))
    return tables.Bench(name=name, title="Small", schema=SCHEMA, rows=frame, codes=codes)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aim, "opened", lambda name, **_: bench(name))


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(aim.main, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def made(**facts: Any) -> dict[str, Any]:
    """A run as it is recorded, made up."""
    run = {"table": "azpro", "title": "A", "rows": 10, "attributes": 3, "levels": 9, "method": "auto", "epsilon": 1.0}
    run |= {"draw": 1, "seconds": 2.0, "whole": True, "tv2": 0.0104, "tv3": 0.02, "two_way_maximum": 5.0}
    return run | ({"source": "x"} if facts.get("method", "auto") == "auto" else {"rounds": 7}) | facts


def test_structures_have_the_structure_that_they_are_named_for() -> None:
    drawn = {name: frame.to_numpy().T for name, frame in structures.structures().items()}
    assert {name: codes.shape for name, codes in drawn.items()} == {
        "functions": (8, 60_000),
        "sequences": (9, 60_000),
        "bits": (16, 60_000),
        "sums": (7, 60_000),
    }
    steps = drawn["sequences"]
    kept = (steps[2:] == (steps[1:-1] + steps[:-2]) % 5).mean()
    assert kept == pytest.approx(0.7 + 0.3 / 5, abs=0.01)
    a, b, c, d, ab, bcd, _ = drawn["sums"]
    assert (ab == a + b).all()
    assert (bcd == b + c + d).all()
    # The very tables of earlier figures: their sums, which a change in the order of drawing would move.
    assert [int(drawn[name].sum()) for name in ("functions", "sequences", "bits")] == [959_238, 1_026_328, 314_988]


def test_jobs_are_asked_for_in_order_and_codes_are_exported(tmp_path: Path, opened: None) -> None:
    invoke("export", "--tables", "azpro,mid", "--work", str(tmp_path))
    lines = (tmp_path / "jobs.txt").read_text().splitlines()
    assert lines[:3] == ["azpro aim3-8 10 1", "mid aim3-8 10 1", "azpro aim3-8 4 1"]
    assert len(set(lines)) == len(lines) == 2 * 3 * len(aim.PEERS)
    with np.load(tmp_path / "mid.npz") as kept:
        assert (bench().codes == kept["codes"].T).all()
        assert kept["sizes"].tolist() == [2, 3, 4]


def test_a_table_that_there_is_not_and_peers_without_their_python_are_refused() -> None:
    for arguments, text in (
        (["ours", "--tables", "adult"], "no such table: adult"),
        (["peers"], "Give --peers-python"),
    ):
        result = CliRunner().invoke(aim.main, arguments)
        assert result.exit_code == 2
        assert text in result.output


def test_the_pool_runs_what_has_no_rows_and_kills_what_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.txt").write_text("t mst 1 1\nt aim3-8 1 1\nt aim3-8 4 1\n")
    (tmp_path / "t.mst.1.1.npz").touch()
    assert pool.wanted(tmp_path) == [("t", "aim3-8", "1", "1"), ("t", "aim3-8", "4", "1")]
    # Instead of AIM: epsilon 1 ends, epsilon 4 does not.
    (tmp_path / "graphical.py").write_text("import sys, time\ntime.sleep(0 if sys.argv[5] == '1' else 60)\n")
    for name, value in (("__file__", str(tmp_path / "pool.py")), ("RESERVE", 1.0), ("LEAST", 0.5)):
        monkeypatch.setattr(pool, name, value)
    pool.run(tmp_path, processes=1, seconds=3.0)
    said = capsys.readouterr().out
    assert "ended t.aim3-8.1.1: 0" in said
    assert "ended t.aim3-8.4.1: -9" in said
    assert "0 jobs were not started" in said


def test_ours_are_run_once_for_a_state_of_the_package(
    tmp_path: Path, opened: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aim, "warm_up", lambda: None)
    old = tmp_path / "azpro.auto.4.7.json"
    old.write_text(json.dumps(made(source="old")))
    arguments = ("ours", "--tables", "azpro", "--draws", "1", "--work", str(tmp_path))
    assert invoke(*arguments).count("TV3") == 3
    assert not old.exists()
    found = json.loads((tmp_path / "azpro.auto.4.1.json").read_text())
    assert found["source"] == SOURCE
    assert found["tv2"] > 0
    assert invoke(*arguments) == ""


def test_peers_rows_are_judged_and_what_the_folder_lacks_is_kept(tmp_path: Path, opened: None) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()
    out.mkdir()
    recorded = [made(method="mst", table="mid", tv2=0.3), made(method="mst", table="azpro", tv2=0.4)]
    (out / "aim.json").write_text(json.dumps({"runs": recorded}))
    codes = bench().codes.T.astype(np.int16)
    codes[:20] = 0
    np.savez(work / "azpro.mst.1.1.npz", codes=codes, seconds=3.21, rounds=0, whole=True)
    np.savez(work / "azpro.aim3-8.1.1.npz", codes=codes, seconds=9.0, rounds=4, whole=False)
    np.savez(work / "azpro.npz", codes=codes, sizes=SCHEMA.sizes)
    (work / "azpro.auto.1.1.json").write_text(json.dumps(made()))
    said = invoke("page", "--work", str(work), "--out", str(out))
    runs = {(run["table"], run["method"]): run for run in json.loads((out / "aim.json").read_text())["runs"]}
    assert list(runs) == [("mid", "mst"), ("azpro", "auto"), ("azpro", "aim3-8"), ("azpro", "mst")]
    found = judge.judge(bench(), codes.T.astype(np.int32))
    assert runs["azpro", "mst"]["tv3"] == found["tv3"] > 0
    assert runs["azpro", "mst"]["seconds"] == 3.2
    assert runs["mid", "mst"]["tv2"] == 0.3
    assert not runs["azpro", "aim3-8"]["whole"]
    assert said == ""
    page = (out / "aim.md").read_text()
    assert "| 1 | AIM-3, 8 MB | 1, 1 stopped |" in page


def test_a_table_is_in_one_group_and_every_group_s_table_exists() -> None:
    listed = [name for names in aim.GROUPS.values() for name in names]
    assert sorted(listed) == sorted(set(listed)) == sorted(aim.TABLES)
    assert set(listed) <= set(tables.NAMES)


@pytest.mark.skipif(importlib.util.find_spec("mbi") is None, reason="needs mbi (requirements/graphical.txt)")
def test_inferred_tables_are_those_of_mbi(tmp_path: Path) -> None:
    sizes = np.array([2, 3, 4, 2, 3, 2, 3])
    table = graphical.Table(np.random.default_rng(0).integers(0, sizes, (500, 7)), sizes)
    a, b, c, d, e, f, g = table.names
    model, inferred = graphical.estimated(
        table, [table.measure(clique, 1.0) for clique in ((a, b), (b, c), (c, a), (c, d), (d, e, f), (g,))], iters=100
    )
    for clique in (each for order in (1, 2, 3) for each in combinations(table.names, order)):
        assert np.abs(inferred.table(clique) - np.asarray(model.project(clique).datavector())).max() < 1e-3
