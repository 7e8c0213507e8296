"""The experiments' pure functions, and that one of them runs from end to end."""

from __future__ import annotations

import json
import math
import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sklar
from experiments import (
    asked,
    data,
    errors,
    illustrations,
    inference,
    page,
    paper,
    record,
    rules,
    runtimes,
    stopwatch,
    truths,
)
from sklar.answer.infer import answer_to
from sklar.answer.infer.inquiry import Inquiry
from sklar.custodian.evaluate import evaluate
from sklar.machine.progress import Progress, watch
from sklar.rows.encode import encode
from tests.conftest import count_plainly, output_of
from tests.custodian.evaluate.tables import SCHEMA, records

needs_data = pytest.mark.skipif(not data.DEFAULT_FOLDER.is_dir(), reason="needs ../shared/data")

ADULT_SIZES = (16, 9, 16, 16, 7, 15, 6, 5, 2, 20, 18, 20, 42, 2)


def test_the_order_given_to_categories_decides_pearson() -> None:
    assert illustrations.pearson_of_maps((1, 2, 3)) == pytest.approx(1.0)
    assert illustrations.pearson_of_maps((3, 1, 2)) == pytest.approx(-0.426, abs=5e-4)


def test_a_copula_through_numbers_gives_the_papers_counts() -> None:
    first = illustrations.through_numbers((1, 2, 3))
    np.testing.assert_allclose(first, (100, 200, 100), atol=1e-6)
    # The paper's counts are one draw of 400 rows: an sd of about 6 to 10 each.
    np.testing.assert_allclose(first, paper.THROUGH_NUMBERS["1, 2, 3"], atol=25)
    second = illustrations.through_numbers((3, 1, 2), margin_follows=False)
    np.testing.assert_allclose(second, paper.THROUGH_NUMBERS["3, 1, 2"], atol=15)


@pytest.mark.parametrize("n", [10, 100])
@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_the_reversed_prefix_formula_with_its_sign_mended(n: int, share: float) -> None:
    computed, formula, printed = illustrations.reversed_prefix(n, share)
    assert computed == pytest.approx(formula)
    assert printed <= formula
    if share < 1:
        assert printed != pytest.approx(computed, rel=1e-3)


@pytest.mark.parametrize("n", [5, 1000])
def test_one_row_moves_pearson_by_a_quarter_and_more(n: int) -> None:
    before, after = illustrations.pearson_jump(n)
    assert before == pytest.approx(1.0)
    assert after == pytest.approx(np.sqrt((n - 2) / (2 * (n - 1))))
    assert before - after > 0.29


def test_what_the_literal_algorithm_costs_on_adult() -> None:
    assert sum(ADULT_SIZES) == 194
    assert illustrations.claimed_cost(ADULT_SIZES) == 105
    assert illustrations.ratio_cost(ADULT_SIZES) == 210
    assert illustrations.literal_cost(ADULT_SIZES) == 4708
    # It is what a row can move: the 2 x 2 tables of dummy pairs that change with it, each by one in two cells.
    rows = list(product(range(3), range(4)))
    dummies = np.array([[(row[0] == i, row[1] == j) for i, j in rows] for row in rows])
    worst = (dummies[:, None] != dummies[None]).any(axis=3).sum(axis=2).max()
    assert worst == 2 * (3 + 4 - 2)
    # Two dummies of each of two attributes, and the dummy pairs of their one pair.
    assert illustrations.literal_cost((3, 4)) == 2 * 2 + worst


def test_spread_and_table() -> None:
    assert record.spread([17.2, 18.0, 18.9]) == "18 (17-19)"
    assert record.spread([1.04, 1.04]) == "1.0"
    assert record.spread([0.5, 0.7], 3) == "0.600 (0.500-0.700)"
    assert record.table(["", "|a|"], [["x", 1]]) == "|  | \\|a\\| |\n| --- | ---: |\n| x | 1 |\n"


def test_headers_hold_no_paths_and_no_host_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["x", "--data", "/srv/someone/data", "--out=/tmp/x", "--full"])
    header = record.header("errors", epsilon=1.0)
    assert header["command"] == "python -m experiments.errors --data DIR --out=DIR --full"
    assert {"python", "numpy", "sklar", "sampling_seeds", "noise", "epsilon"} <= set(header)
    assert "/" not in json.dumps({key: value for key, value in header.items() if key != "command"})


def test_a_summary_has_every_run() -> None:
    runs = [evaluate(records(60, 0), records(60, seed), SCHEMA) for seed in (1, 2, 3)]
    found = record.summary(runs)
    best = [run.result("two-way").errors.best(95) for run in runs]
    assert found["classes"]["two-way"]["95"]["average"] == [round(each.average, 3) for each in best]
    assert found["valid_share"] == [1.0, 1.0, 1.0]


def test_missing_data_is_said_with_the_remedy(tmp_path: Path) -> None:
    shown = output_of(illustrations.main, "--data", tmp_path, "--out", tmp_path, code=1)
    assert "needs adult.csv and adult.toml" in shown
    assert "--data DIR" in shown


def test_generated_tables_are_measured_and_timed() -> None:
    with data.generated("census", 500) as dataset:
        found = runtimes.measure(dataset)
        assert found["rows"] == 500
        assert set(found["seconds"]) == set(runtimes.STAGES)
    assert not dataset.path.exists()
    assert "cores" in stopwatch.machine()


@needs_data
def test_illustrations_run_from_end_to_end(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    output_of(illustrations.main, "--out", tmp_path)
    assert sorted(path.suffix for path in tmp_path.glob("illustrations.*")) == [".json", ".md", ".png", ".svg"]
    document = json.loads((tmp_path / "illustrations.json").read_text(encoding="utf-8"))
    assert document["results"]["literal_cost_adult"]["noisy cells"]["in_units_of_epsilon_each"] == 4708


RECORDED = all((record.RESULTS / f"{name}.json").is_file() for name in page.PARTS)
needs_results = pytest.mark.skipif(not RECORDED, reason="needs the recorded results")


def recorded() -> dict[str, dict[str, Any]]:
    return {name: json.loads((record.RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in page.PARTS}


@needs_results
def test_recorded_errors_on_adult_are_within_a_fifth_of_the_papers() -> None:
    documents = recorded()
    ratios = errors.ratios(documents["errors"]["results"])
    assert len(ratios) == 2 * 3 * 5
    assert documents["errors"]["ours_over_paper_adult"] == {name: round(ratio, 3) for name, ratio in ratios.items()}
    outside = {name for name, ratio in ratios.items() if abs(ratio - 1) > 0.2}
    # Extremes of 194 one-way errors scatter more than that from run to run; the paper's must be among thirty runs.
    assert all("one-way, 99% maximum" in name for name in outside)
    assert all(documents["scatter"]["within"][name] for name in outside)


@needs_results
def test_the_page_is_what_the_recorded_results_say() -> None:
    written = (record.RESULTS / "README.md").read_text(encoding="utf-8")
    assert written.split("-->\n\n", 1)[-1] == page.page(recorded())
    for figure in re.findall(r"\]\(([a-z_]+\.(?:png|md))\)", written):
        assert (record.RESULTS / figure).is_file(), figure
    # They are small, and name no place.
    for path in record.RESULTS.iterdir():
        text = path.read_text(encoding="utf-8") if path.suffix in (".json", ".md", ".svg") else ""
        assert path.stat().st_size < 500_000, path.name
        assert not re.search(r"/(work|home|tmp|root)/", text), path.name


@needs_data
def test_the_rules_fit_adult_and_leave_one_attribute_out() -> None:
    schema = rules.with_rules(data.from_folder("adult").schema)
    assert schema.determined == {"education-num": "education"}
    assert schema.measured.n_attributes == 13
    levels = dict(schema.sources)[schema.names.index("education")]
    assert sorted(levels.tolist()) == list(range(16))


def test_counts_and_classical_answers_are_those_of_the_rows() -> None:
    frame = truths.drawn("modulo", np.random.default_rng(1))
    schema = truths.schema_of("modulo", "raw values")
    rows = encode(frame.select(schema.names), schema).T.astype(np.int64)
    ours, plain = asked.counts_of(rows, schema), count_plainly(rows.T, schema.cells)
    assert np.array_equal(ours.one_way, plain.one_way)
    assert np.array_equal(ours.pairs, plain.pairs)
    model = sklar.fit(frame.select(schema.names), schema, epsilon=4.0)
    inquiry = Inquiry(model, "share(flag = true) by group")
    found = answer_to(inference.AsIfReal(inquiry, asked.Rows(rows, schema.sizes))).figures[1]
    own = frame.filter(frame["group"] == "b")["flag"].to_numpy()
    assert found.estimate == pytest.approx(own.mean())
    assert found.standard_error == pytest.approx(own.std() / math.sqrt(len(own)), rel=0.02)


def test_truths_are_those_of_weighted_raw_values() -> None:
    """Against NumPy's, on rows that are repeated as often as they weigh."""
    generator = np.random.default_rng(2)
    own = {name: generator.gamma(2, 10, 60) for name in "xy"} | {"w": generator.integers(1, 4, 60).astype(float)}
    x, y = (np.repeat(own[name], own["w"].astype(int)) for name in "xy")
    assert truths.mean(own, own["x"]) == pytest.approx(x.mean())
    assert truths.sd(own, own["x"]) == pytest.approx(x.std())
    assert truths.corr(own, own["x"], own["y"]) == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert truths.quantile(own, own["x"], 0.25) == np.quantile(x, 0.25, method="inverted_cdf")
    assert truths.glm(own, own["y"], own["x"]) == pytest.approx([np.polyfit(x, y, 1)[0]])
    assert truths.gini(own["x"], own["w"]) == pytest.approx(np.abs(x[:, None] - x).mean() / 2 / x.mean())


@pytest.mark.slow
def test_the_experiment_on_inference_runs_saves_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truths, "REAL", ())
    arguments = ["--part", "0.001", "--out", str(tmp_path), "--saved", str(tmp_path / "kept")]
    told = output_of(inference.main, *arguments)
    places = sorted((tmp_path / "kept").iterdir())
    # People counted in two ways, and three columns, at four budgets.
    assert len(places) == 12
    row = "| three columns | shares of three columns | 10 | 27 |"
    assert row in told
    assert row in (tmp_path / "inference.md").read_text()
    kept = {path: path.stat().st_mtime_ns for path in places}
    output_of(inference.main, *arguments)
    places[0].unlink()
    output_of(inference.main, *arguments, "--minutes", "0")
    assert {path: path.stat().st_mtime_ns for path in places[1:]} == {path: kept[path] for path in places[1:]}
    assert not places[0].exists()


def test_stages_are_timed_from_one_to_the_next_and_repeated_ones_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(wall=0.0, cpu=0.0)
    # Stands in for `time`: each reading is told beforehand.
    readings = SimpleNamespace(perf_counter=lambda: clock.wall, process_time=lambda: clock.cpu)
    monkeypatch.setattr(stopwatch, "time", readings)
    timed = stopwatch.Stopwatch()
    progress: Progress = timed
    clock.wall = 100.0  # before the first stage: nobody's
    progress.stage("count", unit="rows")
    clock.wall, clock.cpu = 103.0, 5.0
    assert [len(batch) for batch in watch([range(7), range(7)], progress)] == [7, 7]
    progress.stage("fit", total=3)
    clock.wall, clock.cpu = 104.0, 6.0
    progress.stage("count")
    clock.wall, clock.cpu = 104.5, 6.25
    progress.advance(1)
    timed.stop()
    clock.wall = 200.0
    timed.stop()
    assert list(timed.laps) == ["count", "fit"]
    count, fit = timed.laps.values()
    assert (count.seconds, count.cpu_seconds, count.steps) == (3.5, 5.25, 15)
    assert (fit.seconds, fit.cpu_seconds, fit.steps) == (1.0, 1.0, 0)
    assert count.peak_bytes >= fit.peak_bytes > 0


def test_the_peak_of_memory_stays_when_memory_is_given_back() -> None:
    before = stopwatch.peak_bytes()
    held = b"x" * (before + (64 << 20))
    del held
    # Linux adds up pages of each processor now and then: its figures are right within a few hundred kilobytes.
    assert stopwatch.peak_bytes() > before + (60 << 20)
