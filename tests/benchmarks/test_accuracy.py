"""Everyone is judged alike, at the same privacy, from one list; whoever did not finish is named."""

import importlib.util
import json
import math
import sys
import time
from itertools import combinations, count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from benchmarks import accuracy, accuracy_page, aim, graphical, judge, pages, peers, pool, structures, tables
from sklar.custodian.evaluate import choose_triples, compare
from sklar.custodian.evaluate.conjunctions import answer_blocks
from sklar.public.schema import Attribute, Schema
from tests.conftest import output_of, refuses

SIZES = (2, 3, 4, 5)
COLUMNS = tuple(Attribute(name=f"a{size}", kind="categorical", values=tuple(range(size))) for size in SIZES)
SCHEMA = Schema(name="small", attributes=COLUMNS)


def codes(seed: int, rows: int = 200) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(seed)
    return np.stack([generator.integers(size, size=rows) for size in SCHEMA.sizes]).astype(np.int32)


def bench(name: str = "small") -> tables.Bench:
    drawn = codes(1)
    rows = pl.DataFrame(dict(zip(SCHEMA.names, drawn, strict=True)))
    return tables.Bench(name=name, title="Small", schema=SCHEMA, rows=rows, codes=drawn)


@pytest.mark.parametrize("max_cells", [1, 1 << 22])
def test_three_way_tv_is_the_evaluation_s(monkeypatch: pytest.MonkeyPatch, max_cells: int) -> None:
    monkeypatch.setattr(judge, "_MAX_CELLS", max_cells)
    real, synthetic = codes(1), codes(2)
    asked = choose_triples(SCHEMA)
    true, given = (answer_blocks([each], SCHEMA, asked, form="records") for each in (real, synthetic))
    found, largest = judge.three_way_errors(real, synthetic, SCHEMA.sizes.tolist(), judge.triples_of(4))
    assert found == pytest.approx(compare(true, given).result("three-way").tv)
    table = np.zeros((2, *SCHEMA.sizes[[0, 1, 2]]))
    for own, each in zip(table, (real, synthetic), strict=True):
        np.add.at(own, tuple(each[:3]), 1)
    one = judge.three_way_errors(real, synthetic, SCHEMA.sizes.tolist(), [(0, 1, 2)])[1]
    assert one == pytest.approx(np.abs(table[0] - table[1]).max())
    assert largest >= one


def test_triples_are_all_or_a_fixed_sample_of_distinct_ones() -> None:
    assert judge.triples_of(15) == list(combinations(range(15), 3))
    sampled = judge.triples_of(90)
    assert len(set(sampled)) == judge.SAMPLED_TRIPLES
    assert sampled == judge.triples_of(90)
    assert all(a < b < c < 90 for a, b, c in sampled)


def test_the_judge_finds_no_error_in_the_real_rows_and_some_in_others() -> None:
    same, other = judge.judge(bench(), codes(1)), judge.judge(bench(), codes(2))
    assert {same[key] for key in ("one_way_maximum", "two_way_maximum", "three_way_maximum", "tv3")} == {0.0}
    assert same["valid"] == 1.0
    assert 0 < other["tv1"] < other["tv2"] < other["tv3"]


def test_the_judge_reads_codes_and_dummies_alike() -> None:
    levels = [np.arange(size)[:, None] == column for size, column in zip(SCHEMA.sizes, codes(2), strict=True)]
    dummies = pl.DataFrame(dict(zip(SCHEMA.dummy_names, np.concatenate(levels), strict=True)))
    assert judge.judge(bench(), dummies) == judge.judge(bench(), codes(2)) | {"three_way_maximum": None}


def test_independent_codes_have_the_margins() -> None:
    drawn = accuracy.independent(bench(), epsilon=100.0, seed=1)
    assert drawn.shape == bench().codes.shape
    assert judge.judge(bench(), drawn)["tv1"] < 0.15


@pytest.mark.parametrize("method", ["mixture", "binary", "dpc"])
def test_a_release_of_ours_is_judged_and_says_of_which_source_it_is(tmp_path: Path, method: str) -> None:
    run = accuracy.Run(table="small", method=method, epsilon=5.0, draw=1)
    found = accuracy.perform(bench(), run, python=None, work=tmp_path, limit=1.0)
    assert (found["status"], found["source"], found["rows"]) == ("finished", pages.SRC, 200)
    assert found["tv2"] > 0
    assert (found["valid"] == 1.0) == (method != "dpc")


def test_a_command_is_stopped_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for code, limit, patience, status in (
        ("pass", 60.0, 60, None),
        ("raise SystemExit(3)", 60.0, 60, "failed (exit status 3)"),
        ("import time; time.sleep(600)", 0.2, 6, "stopped after 1.2 s"),
        ("while True: pass", 1.0, 600, "stopped after 1 s of a core"),
    ):
        monkeypatch.setattr(accuracy, "PATIENCE", patience)
        assert accuracy.stopped_after([sys.executable, "-c", code], limit) == status


class Mechanism:
    rho, sigma = 0.02, 5.0

    def exponential_mechanism(self, qualities: Any, epsilon: float, sensitivity: float = 1.0) -> tuple[float, float]:
        return epsilon, sensitivity


@pytest.mark.parametrize("name", ["MST", "AIM", "PrivBayes"])
def test_replaced_rows_cost_a_peer_what_it_was_given(name: str) -> None:
    mechanism: Any = type(name, (Mechanism,), {})()
    peers.replace_one(mechanism)
    if name != "AIM":
        # It fixed its noise scale when it was made.
        assert mechanism.sigma == pytest.approx(math.sqrt(2) * Mechanism.sigma)
    if name == "PrivBayes":
        assert mechanism.exponential_mechanism([1.0], 1.0) == (1.0, 1.0)
        return
    # As both peers do: a share of the code's rho on one measurement, another on one selection.
    sigma, selected = math.sqrt(1 / (2 * 0.9 * mechanism.rho)), math.sqrt(8 * 0.1 * mechanism.rho)
    epsilon, sensitivity = mechanism.exponential_mechanism([1.0], selected, sensitivity=1.0)
    assert sensitivity == 2.0
    assert 2 / (2 * sigma**2) + epsilon**2 / 8 == pytest.approx(Mechanism.rho)


def test_a_schema_by_rule_has_a_level_for_every_value() -> None:
    rows = pl.DataFrame({"text": ["b", None, "a"], "few": [1, 2, 2], "many": [0.5, 7.25, 30.0]})
    schema = tables.schema_by_rule("rule", rows)
    assert schema.sizes.tolist() == [3, 2, tables.BINS]
    assert tables.codes_of(rows, schema).tolist() == [[1, 2, 0], [0, 1, 1], [0, 2, 9]]


def test_generated_tables_and_unknown_names(tmp_path: Path) -> None:
    wide = tables.opened("wide", work=tmp_path)
    assert wide.codes.shape == (90, 10_000)
    assert wide.codes.min() == 0
    refuses("table must be one of adult, ", tables.opened, "nothing", work=tmp_path, error=ValueError)
    refuses("Give --peers-python", tables.opened, "fertil2", work=tmp_path, error=ValueError)


def test_a_peer_that_was_stopped_is_named_and_a_draw_not_tried_is_not(tmp_path: Path) -> None:
    for draw, status in ((1, "stopped after 900 s"), (2, "not tried")):
        run = accuracy.Run(table="adult", method="aim", epsilon=1.0, draw=draw)
        (tmp_path / f"{run.stem}.json").write_text(json.dumps({"method": "aim", "status": status}))
    document = accuracy.collected(tmp_path)
    assert document["runs"] == [{"method": "aim", "status": "stopped after 900 s"}]
    assert document["header"]["peers"]["dpmm"]
    assert "| AIM | stopped after 900 s |" in accuracy_page.results_table(document["runs"])


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aim, "opened", lambda name, **_: bench(name))
    monkeypatch.setattr(aim, "warm_up", lambda: None)


def made(**facts: Any) -> dict[str, Any]:
    """A run as it is recorded, made up."""
    run = {"table": "azpro", "title": "A", "rows": 10, "attributes": 3, "levels": 9, "method": "auto", "epsilon": 1.0}
    run |= {"draw": 1, "seconds": 2.0, "whole": True, "tv2": 0.0104, "tv3": 0.02, "two_way_maximum": 5.0}
    return run | ({"source": "x"} if facts.get("method", "auto") == "auto" else {"rounds": 7}) | facts


def test_structures_have_the_structure_that_they_are_named_for() -> None:
    drawn = {name: frame.to_numpy().T for name, frame in structures.structures().items()}
    sizes = {"functions": 8, "sequences": 9, "bits": 16, "sums": 7}
    assert {name: codes.shape for name, codes in drawn.items()} == {name: (m, 60_000) for name, m in sizes.items()}
    steps = drawn["sequences"]
    assert (steps[2:] == (steps[1:-1] + steps[:-2]) % 5).mean() == pytest.approx(0.7 + 0.3 / 5, abs=0.01)
    a, b, c, d, ab, bcd, _ = drawn["sums"]
    assert (ab == a + b).all()
    assert (bcd == b + c + d).all()
    # The very tables of earlier figures: their sums, which a change in the order of drawing would move.
    assert [int(drawn[name].sum()) for name in ("functions", "sequences", "bits")] == [959_238, 1_026_328, 314_988]


def test_jobs_are_asked_for_in_order_and_codes_are_exported(tmp_path: Path, opened: None) -> None:
    output_of(aim.main, "export", "--tables", "azpro,mid", "--work", str(tmp_path))
    lines = (tmp_path / "jobs.txt").read_text().splitlines()
    assert lines[:3] == ["azpro aim3-8 10 1", "mid aim3-8 10 1", "azpro aim3-8 4 1"]
    assert len(set(lines)) == len(lines) == 2 * 3 * len(aim.PEERS)
    with np.load(tmp_path / "mid.npz") as kept:
        assert (bench().codes == kept["codes"].T).all()
        assert kept["sizes"].tolist() == list(SIZES)


def test_a_table_that_there_is_not_and_peers_without_their_python_are_refused() -> None:
    refusals = {"no such table: nowhere": ["ours", "--tables", "nowhere"], "Give --peers-python": ["peers"]}
    for text, arguments in refusals.items():
        assert text in output_of(aim.main, *arguments, code=2)


def test_the_pool_runs_what_has_no_rows_and_kills_what_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs.txt").write_text("t mst 1 1\nt aim3-8 1 1\nt aim3-8 4 1\n")
    (tmp_path / "t.mst.1.1.npz").touch()
    assert pool.wanted(tmp_path) == [("t", "aim3-8", "1", "1"), ("t", "aim3-8", "4", "1")]
    # Instead of AIM: epsilon 1 ends, epsilon 4 does not. Time passes only when something has ended.
    (tmp_path / "graphical.py").write_text("import sys, time\ntime.sleep(0 if sys.argv[7] == '1' else 600)\n")
    said: list[str] = []
    passed = count()
    clock = SimpleNamespace(monotonic=lambda: float(next(passed)) if said else 0.0, sleep=lambda _: time.sleep(0.05))
    for name, value in (("__file__", str(tmp_path / "pool.py")), ("time", clock), ("RESERVE", 1.0), ("LEAST", 0.5)):
        monkeypatch.setattr(pool, name, value)
    monkeypatch.setattr(pool, "_say", lambda _, what: said.append(what))
    pool.run(tmp_path, processes=1, seconds=3.0)
    assert said == ["ended t.aim3-8.1.1: 0", "ended t.aim3-8.4.1: -9", "0 jobs were not started"]


def test_ours_are_run_once_for_a_state_of_the_package(tmp_path: Path, opened: None) -> None:
    old = tmp_path / "azpro.auto.4.7.json"
    old.write_text(json.dumps(made(source="old")))
    arguments = ("ours", "--tables", "azpro", "--draws", "1", "--work", str(tmp_path))
    assert output_of(aim.main, *arguments).count("TV3") == 3
    assert not old.exists()
    found = json.loads((tmp_path / "azpro.auto.4.1.json").read_text())
    assert found["source"] == pages.SRC
    assert found["tv2"] > 0
    assert output_of(aim.main, *arguments) == ""


def test_peers_rows_are_judged_and_what_the_folder_lacks_is_kept(tmp_path: Path, opened: None) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()
    out.mkdir()
    recorded = [made(method="mst", table="mid", tv2=0.3), made(method="mst", table="azpro", tv2=0.4)]
    theirs = aim.locked_peer()
    (out / "aim.json").write_text(json.dumps({"header": {"peers": theirs}, "runs": recorded}))
    codes = bench().codes.T.astype(np.int16)
    codes[:20] = 0
    np.savez(work / "azpro.mst.1.1.npz", codes=codes, seconds=3.21, rounds=0, whole=True, version=theirs)
    np.savez(work / "azpro.aim3-8.1.1.npz", codes=codes, seconds=9.0, rounds=4, whole=False, version=theirs)
    np.savez(work / "azpro.npz", codes=codes, sizes=SCHEMA.sizes)
    (work / "azpro.auto.1.1.json").write_text(json.dumps(made(source=pages.SRC)))
    (work / "azpro.auto.4.1.json").write_text(json.dumps(made(source="of another tree", epsilon=4.0)))
    assert output_of(aim.main, "page", "--work", work, "--out", out) == ""
    runs = {(run["table"], run["method"]): run for run in json.loads((out / "aim.json").read_text())["runs"]}
    assert list(runs) == [("mid", "mst"), ("azpro", "auto"), ("azpro", "aim3-8"), ("azpro", "mst")]
    found = judge.judge(bench(), codes.T.astype(np.int32))
    assert runs["azpro", "mst"]["tv3"] == found["tv3"] > 0
    assert runs["azpro", "mst"]["seconds"] == 3.2
    assert runs["mid", "mst"]["tv2"] == 0.3
    assert not runs["azpro", "aim3-8"]["whole"]
    assert "| 1 | AIM-3, 8 MB | 1, 1 stopped |" in (out / "aim.md").read_text()


def test_a_table_is_in_one_group_and_every_group_s_table_exists() -> None:
    listed = sorted(name for names in aim.GROUPS.values() for name in names)
    assert listed == sorted(set(listed)) == sorted(aim.TABLES)
    assert set(listed) <= set(tables.NAMES)


@pytest.mark.skipif(importlib.util.find_spec("mbi") is None, reason="needs mbi (requirements/graphical.txt)")
def test_inferred_tables_are_those_of_mbi(tmp_path: Path) -> None:
    sizes = np.array([2, 3, 4, 2, 3, 2, 3])
    table = graphical.Table(np.random.default_rng(0).integers(0, sizes, (500, 7)), sizes)
    a, b, c, d, e, f, g = table.names
    cliques = ((a, b), (b, c), (c, a), (c, d), (d, e, f), (g,))
    model, inferred = graphical.estimated(table, [table.measure(clique, 1.0) for clique in cliques], iters=100)
    for clique in (each for order in (1, 2, 3) for each in combinations(table.names, order)):
        assert np.abs(inferred.table(clique) - np.asarray(model.project(clique).datavector())).max() < 1e-3
