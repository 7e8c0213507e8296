from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sklar
from sklar.budget.method import Method
from sklar.budget.plan import RULES
from sklar.draw.blocks import BLOCK_ROWS
from sklar.draw.sample import BlockSampler, check_draw
from sklar.errors import ModelError, OutputError
from sklar.files.archive import load
from sklar.files.model import Model
from sklar.fitting.latent import LatentModel
from sklar.generate import generate, schema_toml
from sklar.kernel.theorems import Budget
from sklar.machine.threads import using
from sklar.rows.read import open_source
from sklar.trust.verify import verify
from tests.trust.forge import forged

SCHEMA = sklar.Schema.from_toml(schema_toml("census"))


def census(rows: int, seed: int = 0) -> pl.DataFrame:
    return pl.concat(generate("census", rows=rows, seed=seed)[1])


@pytest.fixture(scope="module")
def model() -> Model:
    return sklar.fit(census(3_000), SCHEMA, epsilon=2.0, method="binary")


@pytest.fixture
def saved(model: Model, tmp_path: Path) -> Path:
    path = tmp_path / "census.sklar"
    model.save(path)
    return path


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refined blocks as small as others: what is true of several is seen in fewer rows."""
    monkeypatch.setattr("sklar.draw.blocks.REFINED_ROWS", BLOCK_ROWS)


def assert_kept(model: Model, path: Path, rows: int = 100) -> None:
    """Saved and loaded it is the same in all that a file holds, and so in the rows that are drawn."""
    model.save(path)
    again = load(path)
    for name in ("certificate", "schema", "settings", "n_rows"):
        assert getattr(again, name) == getattr(model, name)
    assert again.summary() == model.summary()
    assert again.sample(rows, seed=3).equals(model.sample(rows, seed=3))
    for one, other in zip(model.measured.blocks, again.measured.blocks, strict=True):
        assert type(one.query) is type(other.query)
        assert one.query.sizes.tolist() == other.query.sizes.tolist()
        assert one.scales.tolist() == other.scales.tolist()
        assert np.array_equal(one.values, other.values)
        assert one.keys == other.keys


def test_a_reloaded_model_draws_the_same_rows(model: Model, tmp_path: Path) -> None:
    assert_kept(model, tmp_path / "m.sklar", 20_000)


@pytest.mark.parametrize(
    "settings",
    [
        {"budget": Budget(epsilon=4.0, neighbors="add-remove")},
        {"epsilon": 1.0, "method": Method(name="binary", paper=True, dummies=True)},
        {"budget": Budget(epsilon=4.0, mechanism="laplace")},
        {"method": "mixture", "budget": Budget(epsilon=4.0, neighbors="add-remove")},
    ],
)
def test_every_kind_of_model_survives_the_round_trip(settings: Any, tmp_path: Path) -> None:
    small = sklar.Schema(name="census", attributes=SCHEMA.attributes[:6])
    assert_kept(sklar.fit(census(2_000), small, **settings), tmp_path / "m.sklar")


def test_seeds_and_types(model: Model) -> None:
    assert model.sample(500, seed=1).equals(model.sample(500, seed=1))
    assert not model.sample(500, seed=1).equals(model.sample(500, seed=2))
    assert not model.sample(500).equals(model.sample(500))
    assert [model.sample(rows, seed=1).height for rows in (100, None)] == [100, 3_000]
    rows = model.sample(2_000, seed=1)
    assert tuple(rows.columns) == SCHEMA.names
    assert rows.schema == model.columns
    kinds: dict[str, Any] = {"age": pl.Int64, "employed": pl.Boolean, "income": pl.Float64, "registered": pl.Date}
    kinds |= {"last_contact": pl.Datetime("us"), "region": pl.String}
    assert {name: rows.schema[name] for name in kinds} == kinds
    assert rows["occupation"].null_count() > 0


def test_equal_models_are_equal_files(model: Model, saved: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "b.sklar")
    assert saved.read_bytes() == (tmp_path / "b.sklar").read_bytes()
    # Nor do they name a column outside the schema.
    with zipfile.ZipFile(saved) as archive:
        assert b"person_id" not in b"".join(archive.read(name) for name in archive.namelist())
    with pytest.raises(OutputError, match=r"must end in \.sklar\.$"):
        model.save(tmp_path / "model.zip")


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("rows", [1, BLOCK_ROWS, BLOCK_ROWS + 1])
def test_files_have_all_rows_at_the_edges_of_blocks(model: Model, tmp_path: Path, rows: int, suffix: str) -> None:
    path = tmp_path / f"rows.{suffix}"
    model.write(path, rows, seed=1)
    assert sum(batch.height for batch in open_source(path).batches(SCHEMA.names)) == rows
    assert model.sample(rows, seed=1).height == rows


def read_lines(path: Path) -> pl.DataFrame:
    moments = pl.col("registered").str.to_date(), pl.col("last_contact").str.to_datetime(time_unit="us")
    return pl.read_ndjson(path).with_columns(*moments)


READ = {"parquet": pl.read_parquet, "arrow": pl.read_ipc, "feather": pl.read_ipc, "ndjson": read_lines, "csv": None}


@pytest.mark.parametrize("suffix", READ)
def test_files_hold_the_sampled_rows_for_any_number_of_threads(model: Model, tmp_path: Path, suffix: str) -> None:
    rows, read = 3 * BLOCK_ROWS + 100, READ[suffix]
    drawn, files = model.sample(rows, seed=4), [tmp_path / f"{threads}.{suffix}" for threads in (1, 2, 5)]
    for threads, path in zip((1, 2, 5), files, strict=True):
        with using(threads):
            model.write(path, rows, seed=4)
            assert model.sample(rows, seed=4).equals(drawn)
    assert len({path.read_bytes() for path in files}) == 1
    assert read is None or (read(files[0]).equals(drawn) and read(files[0]).schema == model.columns)


def test_blocks_drawn_apart_are_the_sample(model: Model, saved: Path) -> None:
    """As on several machines, each with the model file and its own range of blocks."""
    rows, parts = 4 * BLOCK_ROWS + 9, {}
    for first, last in ((3, None), (0, 1), (1, 3)):
        again = load(saved)
        sampler = BlockSampler(again.copula, 12, shapes=again.shapes)
        parts[first] = pl.concat(map(sampler.draw, sampler.blocks(rows, first, last)))
    assert pl.concat(parts[first] for first in sorted(parts)).equals(model.sample(rows, seed=12))


def test_a_stream_draws_few_blocks_ahead_of_its_reader(model: Model) -> None:
    """Not a trillion rows (`in_order` is tested for how few it takes)."""
    stream = model.sample_batches(10**12, seed=1)
    assert next(stream).equals(model.sample(BLOCK_ROWS, seed=1))
    stream.close()  # type: ignore[attr-defined]


def test_rows_and_seeds_are_whole_numbers(model: Model) -> None:
    odd: Any
    for odd in (0, -1, 1.5, True):
        with pytest.raises(ModelError, match=r"^rows must be a whole number of at least 1, got"):
            model.sample(odd)
    for odd in (-1, 2**64, 0.5):
        with pytest.raises(ModelError, match=r"^seed must be a whole number from 0 to 2\*\*64 - 1, got"):
            check_draw(1, odd)


def test_the_summary_says_what_was_spent(model: Model) -> None:
    text = "\n".join(model.summary())
    assert "Table 'census': 3,000 rows, 14 attributes, 119 levels." in text
    assert "epsilon = 2, delta = 9.32e-10, for the content of any one row" in text
    assert "91 two-way tables" in text


@pytest.mark.parametrize(("version", "shown"), [(1, "1"), (3, "3"), (5, "5"), (4.0, "4.0"), (None, "None")])
def test_a_file_of_another_version_is_refused(saved: Path, tmp_path: Path, version: object, shown: str) -> None:
    other = forged(saved, lambda document, _: document.update(version=version), tmp_path / "f.sklar")
    words = rf"its format must have version 4, got {re.escape(shown)}\. Use the Sklar that wrote it\.$"
    with pytest.raises(ModelError, match=words):
        load(other)
    result = verify(other)
    assert result.verdict == "failed"
    assert [check.name for check in result.checks] == ["format"]


def test_what_other_rules_fitted_is_not_recomputed(tmp_path: Path) -> None:
    """That a refit would differ contradicts nothing, and confirms nothing."""
    sklar.fit(census(2_000), SCHEMA, epsilon=2.0).save(tmp_path / "m.sklar")
    other = forged(tmp_path / "m.sklar", lambda d, _: d["settings"].update(rules=RULES + 1), tmp_path / "f.sklar")
    result = verify(other, refit=True)
    assert result.passed
    assert result.verdict == "not verified"
    assert [each.name for each in result.checks if "by the rules of another" in each.detail] == ["plan", "refit"]


def test_components_are_those_of_whole_fits(model: Model) -> None:
    described = model.copula.describe() | {"components": 3, "fits": 2}
    with pytest.raises(ModelError, match="its copula must be of fits of one size, got 3 components of 2 fits"):
        LatentModel.read(model.measured_schema, described, lambda *_: np.zeros(3 * model.measured_schema.n_levels))
