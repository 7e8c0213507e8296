"""Everyone is judged alike, at the same privacy, and whoever did not finish is named."""

import json
import math
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from benchmarks import accuracy, accuracy_page, judge, peers, tables
from sklar.custodian.evaluate import choose_triples, compare
from sklar.custodian.evaluate.conjunctions import answer_blocks
from sklar.public.schema import Attribute, Schema

SCHEMA = Schema(
    name="small",
    attributes=tuple(
        Attribute(name=f"a{size}", kind="categorical", values=tuple(range(size))) for size in (2, 3, 4, 5)
    ),
)


def codes(seed: int, rows: int = 200) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(seed)
    return np.stack([generator.integers(size, size=rows) for size in SCHEMA.sizes]).astype(np.int32)


def bench() -> tables.Bench:
    drawn = codes(1)
    rows = pl.DataFrame(dict(zip(SCHEMA.names, drawn, strict=True)))
    return tables.Bench(name="small", title="Small", schema=SCHEMA, rows=rows, codes=drawn)


@pytest.mark.parametrize("max_cells", [1, 1 << 22])
def test_three_way_tv_is_the_evaluation_s(monkeypatch: pytest.MonkeyPatch, max_cells: int) -> None:
    monkeypatch.setattr(judge, "_MAX_CELLS", max_cells)
    real, synthetic = codes(1), codes(2)
    asked = choose_triples(SCHEMA)
    true, given = (answer_blocks([each], SCHEMA, asked, form="records") for each in (real, synthetic))
    found = judge.three_way_tv(real, synthetic, SCHEMA.sizes.tolist(), judge.triples_of(4))
    assert found == pytest.approx(compare(true, given).result("three-way").tv)


def test_triples_are_all_or_a_fixed_sample_of_distinct_ones() -> None:
    assert judge.triples_of(15) == list(combinations(range(15), 3))
    sampled = judge.triples_of(90)
    assert len(set(sampled)) == judge.SAMPLED_TRIPLES
    assert sampled == judge.triples_of(90)
    assert all(a < b < c < 90 for a, b, c in sampled)


def test_the_judge_finds_no_error_in_the_real_rows_and_some_in_others() -> None:
    same, other = judge.judge(bench(), codes(1)), judge.judge(bench(), codes(2))
    assert {same[key] for key in ("one_way_maximum", "two_way_maximum", "tv1", "tv2", "tv3")} == {0.0}
    assert same["valid"] == 1.0
    assert 0 < other["tv1"] < other["tv2"] < other["tv3"]


def test_the_judge_reads_codes_and_dummies_alike() -> None:
    synthetic = codes(2)
    levels = [np.arange(size)[:, None] == column for size, column in zip(SCHEMA.sizes, synthetic, strict=True)]
    dummies = pl.DataFrame(dict(zip(SCHEMA.dummy_names, np.concatenate(levels), strict=True)))
    assert judge.judge(bench(), dummies) == judge.judge(bench(), synthetic)


def test_independent_codes_have_the_margins() -> None:
    table = bench()
    drawn = accuracy.independent(table, epsilon=100.0, seed=1)
    assert drawn.shape == table.codes.shape
    assert judge.judge(table, drawn)["tv1"] < 0.15


@pytest.mark.parametrize("method", ["mixture", "binary", "dpc"])
def test_a_release_of_ours_is_judged_and_says_of_which_source_it_is(tmp_path: Path, method: str) -> None:
    run = accuracy.Run(table="small", method=method, epsilon=5.0, draw=1)
    found = accuracy.perform(bench(), run, python=None, work=tmp_path, limit=1.0)
    assert (found["status"], found["source"], found["rows"]) == ("finished", accuracy.SOURCE, 200)
    assert found["tv2"] > 0
    assert (found["valid"] == 1.0) == (method != "dpc")


def test_a_command_is_stopped_when_its_time_is_over() -> None:
    assert accuracy.stopped_after([sys.executable, "-c", "pass"], 60.0) is None
    assert accuracy.stopped_after([sys.executable, "-c", "raise SystemExit(3)"], 60.0) == "failed (exit status 3)"
    assert accuracy.stopped_after([sys.executable, "-c", "import time; time.sleep(60)"], 0.2) == "stopped after 1.2 s"
    assert accuracy.stopped_after([sys.executable, "-c", "while True: pass"], 1.0) == "stopped after 1 s of a core"


class Mechanism:
    rho, sigma = 0.02, 5.0

    def exponential_mechanism(self, qualities: Any, epsilon: float, sensitivity: float = 1.0) -> tuple[float, float]:
        return epsilon, sensitivity


MST = type("MST", (Mechanism,), {})
AIM = type("AIM", (Mechanism,), {})
PrivBayes = type("PrivBayes", (Mechanism,), {})


@pytest.mark.parametrize("kind", [MST, AIM])
def test_replaced_rows_cost_a_peer_what_it_was_given(kind: type) -> None:
    mechanism, rho = kind(), Mechanism.rho
    peers.replace_one(mechanism)
    # As both peers do: a share of the code's rho on one measurement, another on one selection.
    sigma, selected = math.sqrt(1 / (2 * 0.9 * mechanism.rho)), math.sqrt(8 * 0.1 * mechanism.rho)
    epsilon, sensitivity = mechanism.exponential_mechanism([1.0], selected, sensitivity=1.0)
    assert sensitivity == 2.0
    assert 2 / (2 * sigma**2) + epsilon**2 / 8 == pytest.approx(rho)


def test_noise_scales_that_a_peer_fixed_when_it_was_made_are_raised() -> None:
    for kind in (MST, PrivBayes):
        mechanism = kind()
        peers.replace_one(mechanism)
        assert mechanism.sigma == pytest.approx(math.sqrt(2) * Mechanism.sigma)
    assert mechanism.exponential_mechanism([1.0], 1.0) == (1.0, 1.0)


def test_a_schema_by_rule_has_a_level_for_every_value() -> None:
    rows = pl.DataFrame({"text": ["b", None, "a"], "few": [1, 2, 2], "many": [0.5, 7.25, 30.0]})
    schema = tables.schema_by_rule("rule", rows)
    assert schema.sizes.tolist() == [3, 2, tables.BINS]
    assert tables.codes_of(rows, schema).tolist() == [[1, 2, 0], [0, 1, 1], [0, 2, 9]]


def test_generated_tables_and_unknown_names(tmp_path: Path) -> None:
    wide = tables.opened("wide", work=tmp_path)
    assert wide.codes.shape == (90, 10_000)
    assert wide.codes.min() == 0
    with pytest.raises(ValueError, match="table must be one of adult, "):
        tables.opened("nothing", work=tmp_path)
    with pytest.raises(ValueError, match="Give --peers-python"):
        tables.opened("fertil2", work=tmp_path)


def test_a_peer_that_was_stopped_is_named_and_a_draw_not_tried_is_not(tmp_path: Path) -> None:
    for draw, status in ((1, "stopped after 900 s"), (2, "not tried")):
        run = accuracy.Run(table="adult", method="aim", epsilon=1.0, draw=draw)
        (tmp_path / f"{run.stem}.json").write_text(json.dumps({"method": "aim", "status": status}))
    document = accuracy.collected(tmp_path)
    assert document["runs"] == [{"method": "aim", "status": "stopped after 900 s"}]
    assert document["header"]["peers"]["dpmm"]
    assert "| AIM | stopped after 900 s |" in accuracy_page.results_table(document["runs"])
