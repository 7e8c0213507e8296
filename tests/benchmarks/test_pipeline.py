import doctest
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from benchmarks import growth, limits, pipeline, references, shapes, speed, stages
from sklar.fitting.nearest import nearest
from sklar.fitting.tetrachoric import orthant
from sklar.public.schema import Schema

RATES = {
    "popcount": 1e9,
    "histogram": 1e9,
    "multiply_add": 1e9,
    "memory": 1e9,
    "disk_write": 1e9,
    "disk_read": 1e9,
}


def run(method: str = "auto", **facts: Any) -> dict[str, Any]:
    """A run as `pipeline` keeps it, made up."""
    laps = {
        name: {"seconds": 2.0, "cpu_seconds": 3.0, "steps": 0, "peak_bytes": 10**9}
        for name in ("start", "count", "measure", "choose", "fit", "save", "sample")
        if (name, method) != ("choose", "binary")
    }
    found = {
        "shape": "adult",
        "title": "Adult",
        "method": method,
        "rows": 1000,
        "threads": 2,
        "attributes": 3,
        "levels": 9,
        "source": pipeline.SOURCE,
        "load": 0.25,
        "seconds": 20.0,
        "walls": [20.0],
        "cpu_seconds": 30.0,
        "stages": laps,
        "peak_bytes": 1_250_000_000,
        "input_bytes": 10**6,
        "output_bytes": 10**9,
        "model_bytes": 10**4,
        "multiplications": None if method == "auto" else 3_000_000,
        "limits": RATES,
        "kernel": 1.0,
        "floors": {"counting": 0.75, "multiply": None if method == "auto" else 3.0, "pass": 0.3, "disk": 1.0},
        "references": {"dummy_pairs": 1000, "counting": 6.0, "correlations": 7200.0, "repair": 9.0},
    }
    return found | facts


@pytest.mark.parametrize("module", [growth, limits, pipeline, references, speed])
def test_doctests(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("power", [0.0, 1.0, 2.5])
def test_an_exponent_is_found_in_exact_powers(power: float) -> None:
    sizes = [125, 250, 500, 1000]
    assert growth.exponent(sizes, [3.0 * size**power for size in sizes]) == pytest.approx(power)


def test_an_exponent_is_the_least_squares_slope_and_none_without_one() -> None:
    sizes, seconds = [1.0, 3.0, 10.0, 40.0], [2.0, 1.0, 9.0, 20.0]
    assert growth.exponent(sizes, seconds) == pytest.approx(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    assert growth.exponent([1, 2], [0.0, 1.0]) is None
    assert growth.exponent([5, 5], [1.0, 1.0]) is None


def test_growth_doubles_rows_and_levels() -> None:
    found = {axis: [point for point in growth.points() if point.axis == axis] for axis in growth.AXES}
    assert [point.rows for point in found["n"]] == [1_310_065, 2_620_130, 5_240_260]
    assert [point.attributes for point in found["m"]] == [125, 250, 500, 1000]
    assert [16 * 2**point.packed for point in found["d"]] == [64, 128, 256, 512]


def test_the_counting_floor_takes_the_cheaper_way_for_each_pair() -> None:
    sizes = [2, 5, 300]
    planes = {"popcount": 1e6, "histogram": 1e-3}
    assert limits.counting_floor(6400, sizes, planes) == pytest.approx((4 + 299 + 4 * 299) * 100 / 1e6)
    histograms = {"popcount": 1e-3, "histogram": 1e6}
    assert limits.counting_floor(6400, sizes, histograms) == pytest.approx(3 * 6400 / 1e6)


def test_floors_are_work_over_rates() -> None:
    found = limits.floors(run("binary"), [2, 3, 4], RATES | {"memory": 1e3})
    assert found["counting"] == limits.counting_floor(1000, [2, 3, 4], RATES)
    # 3,000,000 multiply-adds for each of 1,000 rows; a gigabyte; three cells a row, written and read.
    assert (found["multiply"], found["disk"], found["pass"]) == (3.0, 1.0, 6.0)
    assert limits.floors(run("auto"), [2, 3, 4], RATES)["multiply"] is None


def test_the_kernels_of_the_limits_do_what_they_are_timed_for() -> None:
    generator = np.random.default_rng(0)
    one, other = generator.integers(0, 1 << 63, (2, 100)).astype(np.uint64)
    flipped = one.copy()
    flipped[0] ^= np.uint64(1)
    assert limits.and_popcount(one, other, 1) == int(np.bitwise_count(flipped & other).sum())
    codes = generator.integers(0, 16, (2, 1000)).astype(np.uint8)
    table = np.zeros(256, dtype=np.uint32)
    limits.joint_histogram(codes[0], codes[1], table, 2)
    assert (table == 2 * np.bincount(codes[0].astype(int) * 16 + codes[1], minlength=256)).all()
    out = np.zeros(9)
    limits.triad(out, np.arange(9.0), np.ones(9))
    assert out.tolist() == (np.arange(9.0) + 3).tolist()


def test_limits_are_measured_and_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SECONDS", 0.001), ("_TRIAD", 1 << 10), ("_SIDE", 32), ("_DISK", 1 << 23)):
        monkeypatch.setattr(limits, name, value)
    found = limits.measure(tmp_path, 2)
    assert set(found) == set(RATES)
    assert min(found.values()) > 0
    assert list(tmp_path.iterdir()) == []


def test_the_kernels_alone_are_timed_on_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.001)
    entry = {"type": "boolean"}
    rates = [
        limits.counting(
            Schema.from_dict({"table": {"name": "t"}, "attributes": {f"x{index}": entry for index in range(m)}}), 2
        )
        for m in (4, 64)
    ]
    # 2,016 pairs take longer than 6.
    assert rates[0] > 3 * rates[1] > 0


@pytest.mark.parametrize(("h", "k", "r"), [(0.3, -0.5, 0.6), (1.0, 0.2, -0.4)])
def test_the_bisection_finds_the_correlation_as_nearly_as_its_grid_allows(h: float, k: float, r: float) -> None:
    p_i, p_j = (float(orthant(t, -40.0, 0.0)) for t in (h, k))
    assert references.bisection(p_i, p_j, float(orthant(h, k, r))) == pytest.approx(r, abs=0.03)


def test_alternating_projections_end_where_newton_does() -> None:
    matrix = references.noisy_correlation(30, noise=0.3)
    found, turns = references.alternating_projections(matrix)
    assert turns > 2
    assert np.abs(found - nearest(matrix, floor=0.0).correlation).max() < 1e-4
    assert references.alternating_projections(matrix, most=2)[1] == 2


def test_naive_counts_are_counts() -> None:
    dummies = np.random.default_rng(1).random((4, 50)) < 0.4
    both = dummies.astype(int) @ dummies.astype(int).T
    assert (references.count_naively(dummies) == np.triu(both, 1)).all()


def test_references_are_extrapolated_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "GRID", np.linspace(-10.0, 10.0, 21))
    monkeypatch.setattr(references, "COUNTED_ROWS", 100)
    monkeypatch.setattr(references, "COUNTED_SIDE", 8)
    monkeypatch.setattr(references, "TIMED_SIDE", 10)
    monkeypatch.setattr(references, "_cpu", lambda work: (2.0, work()))
    found = references.measure(1_000, [2] * 20)
    assert found["dummy_pairs"] == 190
    # All 20 dummies and a tenth of the rows; 190 pairs of 2 s; a side twice that of the piece.
    assert found["counting"] == pytest.approx(20.0)
    assert found["correlations"] == 380.0
    assert found["repair"] == pytest.approx(found["projections"] * 16.0)


@pytest.mark.parametrize("packed", [1, 3])
def test_inputs_of_fewer_attributes_and_more_levels(tmp_path: Path, packed: int) -> None:
    given = shapes.prepare("syn1", rows=300, attributes=4, packed=packed, work=tmp_path)
    assert given.schema.sizes.tolist() == [2**packed] * 4
    assert Schema.load(given.schema_path) == given.schema
    whole = pl.read_parquet(shapes.prepare("syn1", rows=300, work=tmp_path).path)
    last = pl.read_parquet(given.path).to_series(3).to_numpy().astype(int)
    bits = [whole.to_series(3 * packed + place).to_numpy().astype(int) for place in range(packed)]
    assert (last == sum(bit << place for place, bit in enumerate(bits))).all()


def test_adult_and_hospital_are_generated_where_they_are_not(tmp_path: Path) -> None:
    given = shapes.prepare("adult", rows=50, work=tmp_path, folder=tmp_path / "nothing")
    assert (given.rows, given.origin, given.title) == (50, "generated", "Adult (generated)")
    begun = given.path.stat().st_mtime_ns
    assert shapes.prepare("adult", rows=50, work=tmp_path, folder=tmp_path).path.stat().st_mtime_ns == begun


def test_categories_that_look_like_numbers_stay_text(tmp_path: Path) -> None:
    (tmp_path / "hospital.csv").write_text("zip,beds,left_out\n01234,10,a\n00001,25,b\n")
    schema = {
        "zip": {"type": "categorical", "values": ["01234", "00001"]},
        "beds": {"type": "integer", "edges": [0, 50]},
    }
    text = Schema.from_dict({"table": {"name": "h"}, "attributes": schema}).to_toml()
    (tmp_path / "hospital.toml").write_text(text)
    given = shapes.prepare("hospital", work=tmp_path, folder=tmp_path)
    assert pl.read_parquet(given.path).to_dict(as_series=False) == {"zip": ["01234", "00001"], "beds": [10, 25]}
    assert (given.origin, given.title) == ("read", "Hospital")


@pytest.mark.parametrize("method", ["auto", "binary"])
def test_a_release_is_timed_stage_by_stage(tmp_path: Path, method: str) -> None:
    given = shapes.prepare("syn1", rows=400, attributes=3, work=tmp_path)
    found = stages.timed(given.path, given.schema, tmp_path, method=method)
    # So few rows may support no dependence: then nothing is left to fit.
    assert {"count", "measure", "fit" if method == "binary" else "choose", "save", "sample"} <= set(found["stages"])
    assert found["stages"]["count"]["steps"] == found["stages"]["sample"]["steps"] == found["rows"] == 400
    assert pl.scan_parquet(tmp_path / "release.parquet").select(pl.len()).collect().item() == 400
    assert (found["multiplications"] is None) == (method == "auto")


def test_a_whole_benchmark_runs_keeps_its_runs_and_writes_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    released: list[tuple[str, str]] = []

    def release(given: shapes.Input, *, method: str, threads: int | None, work: Path) -> dict[str, Any]:
        released.append((given.shape, method))
        facts = {"attributes": given.schema.n_attributes, "levels": given.schema.n_levels, "threads": threads or 2}
        return run(method, shape=given.shape, title=given.title, rows=given.rows, **facts)

    monkeypatch.setattr(pipeline, "release", release)
    monkeypatch.setattr(pipeline, "warm_up", lambda methods, work: None)
    monkeypatch.setattr(limits, "measure", lambda folder, threads: RATES)
    monkeypatch.setattr(limits, "counting", lambda schema, threads: 1e3)
    monkeypatch.setattr(references, "measure", lambda rows, sizes: run()["references"])
    monkeypatch.setattr(growth, "ATTRIBUTES", (2, 4))
    monkeypatch.setattr(growth, "PACKED", (1, 2))
    work, out = tmp_path / "work", tmp_path / "out"

    def call(*arguments: str) -> None:
        command = [*arguments, "--work", str(work), "--out", str(out), "--data", str(tmp_path)]
        result = CliRunner().invoke(pipeline.main, command, catch_exceptions=False)
        assert result.exit_code == 0

    call("--shape", "adult", "--rows", "60")
    call("--growth", "--rows", "40", "--page")
    assert len(released) == 2 + 2 * (3 + 2 + 2)
    page = out / "speed.md"
    assert "## Findings" in page.read_text()
    page.write_text(page.read_text().replace("Not written yet.", "By hand."))
    call("--growth", "--shape", "adult", "--rows", "40", "--page")
    # Another number of rows is another run; the growth was there.
    assert len(released) == 2 + 2 * (3 + 2 + 2) + 2
    text = page.read_text()
    assert text.count(speed.MARK) == 1
    assert "By hand." in text
    # The largest run of a shape is the one that is shown.
    assert "| Adult (generated), `binary` | 60 |" in text
    assert "| Adult (generated), `binary` | 40 |" not in text
    assert {path.name for path in out.iterdir()} == {"speed.md", "speed.json", "speed.svg", "speed.png"}
    assert str(tmp_path) not in (out / "speed.json").read_text() + text
    call("--shape", "adult", "--rows", "60", "--fresh")
    assert json.loads((work / "adult.60.auto.all.json").read_text())["attributes"] == 14
    assert not list(work.glob("growth.*.json"))


def test_runs_of_another_source_are_repeated(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    assert pipeline.kept(path) is None
    path.write_text(json.dumps(run()))
    assert pipeline.kept(path) == run()
    path.write_text(json.dumps(run(source="another")))
    assert pipeline.kept(path) is None


def test_what_a_process_takes_beside_its_stages_is_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = shapes.prepare("syn1", rows=100, attributes=2, work=tmp_path)
    written = json.dumps({"rows": 100, "stages": {"count": {"seconds": 0.0, "cpu_seconds": 0.0}}})
    script = f"import sys, pathlib; pathlib.Path(sys.argv[5], 'stages.json').write_text({written!r})"
    run_it = subprocess.run

    def instead(command: list[str], **how: Any) -> Any:
        assert command[1:3] == ["-m", "benchmarks.stages"]
        assert command[-4:] == ["--method", "auto", "--threads", "1"]
        return run_it([command[0], "-c", script, *command[1:]], **how)

    monkeypatch.setattr(subprocess, "run", instead)
    found = pipeline.release(given, method="auto", threads=1, work=tmp_path)
    assert list(found["stages"]) == ["start", "count"]
    assert found["stages"]["start"]["seconds"] == found["seconds"] > 0
    assert (found["attributes"], found["levels"]) == (2, 4)


def test_short_releases_are_repeated_and_the_middle_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walls = iter([3.0, 5.0, 1.0, 4.0, 2.0, 21.0])

    def release(given: shapes.Input, **_options: Any) -> dict[str, Any]:
        return {"seconds": next(walls)}

    monkeypatch.setattr(pipeline, "release", release)
    given = shapes.prepare("adult", rows=10, work=tmp_path, folder=tmp_path)
    found = pipeline.typical(given, method="auto", threads=None, work=tmp_path)
    assert found == {"seconds": 3.0, "walls": [1.0, 2.0, 3.0, 4.0, 5.0]}
    assert "**3.0** (1.0 to 5.0)" in speed.shapes_table([run() | found])
    assert pipeline.typical(given, method="auto", threads=None, work=tmp_path)["walls"] == [21.0]


def test_tables_of_the_page() -> None:
    runs = [run("auto"), run("binary")]
    assert "| Adult, `auto` | 1,000 | 3 | 9 | **20.0** | 30.0 | 1.25 | 50 | 0.00 | 0.2 | 32,560 | 6 min 47 s |" in (
        speed.shapes_table(runs)
    )
    # `choose` stands where `auto` has it, and `binary` has none.
    head, _, auto, binary = speed.stages_table(list(reversed(runs))).splitlines()
    assert head == "|  | start | count | measure | choose | fit | save | sample |"
    assert auto.count("2.00 (3.00)") == 6
    assert binary.count("2.00 (3.00)") == 7
    # Limits in CPU seconds are set beside 3 s; the disk's beside 2 s of wall time.
    head = "| 3.00 | 1.000 | 0.750 | 75.0% | 25.0% |"
    assert f"{head} 3.00 | 3.000 | 100.0% | 10.0% | 50.0% |" in speed.limits_table(runs)
    assert f"{head} 3.00 | - | - | 10.0% | 50.0% |" in speed.limits_table(runs)
    assert "| Adult, `auto` | 1.00 | 1.00 | 2.00 | 1.00 | 1.00 | 1.00 |" in speed.rates_table(runs)
    # Counting 6 s over 3; 7,209 s over 6 of choosing and fitting, or 3; all over 30.
    assert "| 1,000 | 6 s | 2.0 x | 2.0 h | 9 s | 1,202 x | 240 x |" in speed.references_table(runs[:1])
    assert "| 2,403 x | 240 x |" in speed.references_table(runs[1:])


def test_the_authors_package_is_extrapolated_and_says_so() -> None:
    assert "not timed" in speed.authors_text(None, [run()])
    taken = {"seconds": 70.0, "cpu_seconds": 18.0}
    found = {"rows": 1000, "pairs": 6, "release": taken, "pair": {"seconds": 4.0, "cpu_seconds": 1.5}}
    text = speed.authors_text(found, [run()])
    assert "takes 1.50 CPU s." in text
    assert "For Adult's 1,000 pairs that is 1,500 s of CPU time, **extrapolated**" in text
    assert "extrapolated" not in speed.authors_text(found, [])


def test_growth_is_told_with_its_exponents() -> None:
    def grown(rows: int, seconds: float) -> dict[str, Any]:
        laps = {name: {"seconds": seconds, "cpu_seconds": seconds} for name in ("start", "count", "fit", "sample")}
        return run(shape="dss", rows=rows, seconds=seconds, cpu_seconds=seconds, stages=laps, axis="n")

    text = growth.markdown([grown(200, 4.0), grown(100, 2.0)])
    lines = text.splitlines()
    assert lines[2].startswith("| auto, n = 100 | 100 | 2.0 | 2.0 | 2.00 | 0.00 | 2.00 | 2.00 | 1.25 |")
    assert lines[4] == "| *auto, exponent of n* |  | *1.00* | *1.00* | *1.00* | *-* | *1.00* | *1.00* | *0.00* |"
