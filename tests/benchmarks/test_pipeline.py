"""What is timed is the whole release, limits and references do the work they stand for, and ratios are right."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from experiments.illustrations import orthant
from experiments.stopwatch import Stopwatch

from benchmarks import growth, limits, pages, pipeline, references, shapes
from sklar import fit
from sklar.generate import generate, schema_toml
from sklar.paper.estimate import nearest
from sklar.public.schema import Attribute, Schema


def test_an_exponent_is_the_least_squares_slope_and_none_without_one() -> None:
    sizes, seconds = [1.0, 3.0, 10.0, 40.0], [2.0, 1.0, 9.0, 20.0]
    assert growth.exponent(sizes, seconds) == pytest.approx(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    assert growth.exponent([1, 2], [0.0, 1.0]) is None
    assert growth.exponent([5, 5], [1.0, 1.0]) is None


# Over two decades; cells grow with the square of columns and of levels, beside first moments. A second pass over the
# rows may start on the way (0.15 of an exponent). Steps of fits follow noisy tables: limits leave five times
# what was seen, and catch steps that grow with the rows, with epsilon or with the columns.
@pytest.mark.parametrize(("axis", "values", "most"), [
    ("rows", (300, 3_000, 30_000), {"cells": 0.2, "rows": 1.3, "steps": 0.9}),
    ("epsilon", (0.1, 1.0, 10.0), {"cells": 0.1, "rows": 0.3, "steps": 0.9}),
    ("columns", (3, 17, 100), {"cells": 2.1, "rows": 0.3, "steps": 0.9}),
    ("levels", (2, 20, 200), {"cells": 2.3, "rows": 0.3, "steps": 0.9}),
])  # fmt: skip
def test_exponents_of_counted_work(axis: str, values: tuple[float, ...], most: dict[str, float]) -> None:
    shape = "syn1" if axis == "columns" else "census-linked"
    whole, found = Schema.from_toml(schema_toml(shape)), []
    for value in values:
        asked: Any = {"rows": 2_000, "epsilon": 1.0, "columns": 8} | {axis: value}
        schema = Schema(name=shape, attributes=whole.attributes[: asked["columns"]])
        rows, watch = pl.concat(generate(shape, rows=asked["rows"])[1]).select(schema.names), Stopwatch()
        if axis == "levels":
            edges = tuple(range(int(value) + 1))
            schema = Schema(name=axis, attributes=tuple(Attribute(name=n, kind="integer", edges=edges) for n in "abc"))
            sums = np.random.default_rng(1).integers(1_000, size=(3, 2_000)).cumsum(axis=0)
            rows = pl.DataFrame(dict(zip("abc", (sums * value / 3_000).astype(int), strict=True)))
        blocks = fit(rows, schema, epsilon=asked["epsilon"], progress=watch).measured.blocks
        found.append(growth.worked((block.values.size for block in blocks), watch.laps))
    for what, limit in most.items():
        power = growth.exponent(values, [run[what] for run in found])
        assert power is not None
        assert power <= limit, (what, found)


def test_the_counting_floor_takes_the_cheaper_way_for_each_pair() -> None:
    planes, histograms = (4 + 299 + 4 * 299) * 100 / 1e6, 3 * 6400 / 1e6
    for popcount, histogram, seconds in ((1e6, 1e-3, planes), (1e-3, 1e6, histograms)):
        found = limits.counting_floor(6400, [2, 5, 300], {"popcount": popcount, "histogram": histogram})
        assert found == pytest.approx(seconds)


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
    assert set(found) == {"popcount", "histogram", "multiply_add", "memory", "disk_write", "disk_read"}
    assert min(found.values()) > 0
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize("packed", [1, 3])
def test_inputs_of_fewer_attributes_and_more_levels(tmp_path: Path, packed: int) -> None:
    given = shapes.prepare("syn1", rows=300, attributes=4, packed=packed, work=tmp_path)
    assert given.schema.sizes.tolist() == [2**packed] * 4
    assert Schema.load(given.schema_path) == given.schema
    whole = pl.read_parquet(shapes.prepare("syn1", rows=300, work=tmp_path).path)
    last = pl.read_parquet(given.path).to_series(3).to_numpy().astype(int)
    bits = [whole.to_series(3 * packed + place).to_numpy().astype(int) for place in range(packed)]
    assert (last == sum(bit << place for place, bit in enumerate(bits))).all()


def test_categories_that_look_like_numbers_stay_text(tmp_path: Path) -> None:
    (tmp_path / "hospital.csv").write_text("zip,beds,left_out\n01234,10,a\n00001,25,b\n")
    zips, beds = 'type = "categorical", values = ["01234", "00001"]', 'type = "integer", edges = [0, 50]'
    (tmp_path / "hospital.toml").write_text(f"[attributes]\nzip = {{{zips}}}\nbeds = {{{beds}}}\n")
    given = shapes.prepare("hospital", work=tmp_path, folder=tmp_path)
    assert pl.read_parquet(given.path).to_dict(as_series=False) == {"zip": ["01234", "00001"], "beds": [10, 25]}
    assert (given.origin, given.title) == ("read", "Hospital")


@pytest.mark.parametrize("method", pipeline.METHODS)
def test_a_release_is_timed_as_a_whole_and_stage_by_stage(tmp_path: Path, method: str) -> None:
    # The rarest level has 485 rows, more than ten sds of its noise: none is lost to it, but once in 10^20 releases.
    given = shapes.prepare("syn1", rows=20_000, attributes=3, work=tmp_path)
    found = pipeline.release(given, method=method, threads=1, work=tmp_path)
    # These columns may show no dependence: then nothing is left to fit.
    assert {"count", "measure", "fit" if method == "binary" else "choose", "save", "sample"} <= set(found["stages"])
    assert found["stages"]["count"]["steps"] == found["stages"]["sample"]["steps"] == found["rows"] == 20_000
    # What the process takes beside its stages is its start.
    for clock in ("seconds", "cpu_seconds"):
        assert found["stages"]["start"][clock] > 0
        assert sum(lap[clock] for lap in found["stages"].values()) == pytest.approx(found[clock])
    assert (found["attributes"], found["levels"], found["threads"]) == (3, 6, 1)
    # Three attributes of two levels: three normals.
    assert found["multiplications"] == (None if method == "auto" else 6)


def test_a_page_shows_the_largest_run_of_each_shape_and_none_of_another_source(tmp_path: Path) -> None:
    run = {"shape": "adult", "method": "auto", "rows": 1000, "threads": 2, "source": pages.SRC}
    runs = {
        "small": run | {"rows": 40},
        "large": run | {"rows": 60},
        "other": run | {"method": "binary", "rows": 50},
        "old": run | {"rows": 90, "source": "another"},
        "trial": run | {"axis": "n", "most_rows": 40},
        "grown": run | {"axis": "n", "most_rows": 400},
    }
    for name, each in runs.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(each))
    assert pipeline.kept(tmp_path / "nothing.json") is None
    found = pipeline.collected(tmp_path)
    assert found["runs"] == [runs["large"], runs["other"]]
    assert found["growth"] == [runs["grown"]]
    assert str(tmp_path) not in json.dumps(found)
