"""Noisy tables as Parquet: every cell of one and two attributes, with its levels and its noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import sklar
from sklar.files.tables import KEY, ODD, write_tables
from sklar.kernel.queries import Parities, Tables
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from tests.cli.conftest import call

SCHEMA = Schema.load(Path(__file__).with_name("smokers.toml"))
TEXTS = ["attribute", "level", "attribute_2", "level_2"]


def rows_of(n: int = 2000) -> pa.Table:
    generator = np.random.default_rng(2)
    return pa.table(
        {
            "smoker": generator.random(n) < 0.3,
            "age group": generator.integers(0, 66, n),
            "city": generator.choice(["Bern", "Basel", "Chur"], n),
        }
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "mixture", "budget": Budget(epsilon=2.0)},
        {"method": "binary", "budget": Budget(epsilon=2.0)},
        {"method": "mixture", "budget": Budget(epsilon=2.0, mechanism="laplace")},
        {"method": "mixture", "budget": Budget(epsilon=2.0, neighbors="add-remove")},
    ],
)
def test_every_cell_stands_with_its_levels_and_its_noise(settings: Any, tmp_path: Path) -> None:
    model = sklar.fit(rows_of(), SCHEMA, **settings)
    write_tables(model.measured, tmp_path / "t.parquet")
    written, place = pl.read_parquet(tmp_path / "t.parquet"), 0
    stages = dict.fromkeys((0, 1, 2), 0)
    for block in model.measured.blocks:
        # Three-way tables, which a release may choose, distances and moments are in the model file alone.
        if not isinstance(block.query, Tables) or block.query.order > 2:
            continue
        stages[block.query.order] += 1
        for members, counts, scale in zip(block.query.members.tolist(), block.by_scale(), block.scales, strict=True):
            own = written[place : (place := place + counts.size)]
            assert own["value"].to_list() == counts.tolist()
            assert own["scale"].unique().to_list() == [scale]
            for side, i in zip(("", "_2"), members, strict=False):
                assert own[f"attribute{side}"].unique().to_list() == [SCHEMA.names[i]]
                assert set(own[f"level{side}"]) == set(SCHEMA.attributes[i].levels)
            assert own.select(TEXTS).unique().height == own.height
            assert all(own[name].null_count() == own.height for name in TEXTS[2 * len(members) :])
    assert place == written.height
    assert written["stage"].max() == max(stages.values())
    document = json.loads(pl.read_parquet_metadata(tmp_path / "t.parquet")[KEY])
    assert document["rows"] == model.certificate.public_rows
    stated = document["certificate"]
    assert (stated["by"], stated["epsilon"]) == (f"sklar {sklar.__version__}", 2.0)
    assert stated["mechanism"] == settings["budget"].mechanism


def test_a_parity_is_one_cell(tmp_path: Path) -> None:
    bits = Schema.from_toml('[attributes.a]\ntype = "boolean"\n[attributes.b]\ntype = "boolean"')
    model = sklar.fit(pa.table({"a": [True, False] * 50, "b": [True, True] * 50}), bits, epsilon=2.0)
    assert isinstance(model.measured.blocks[0].query, Parities)
    write_tables(model.measured, tmp_path / "t.parquet")
    written = pl.read_parquet(tmp_path / "t.parquet").filter(stage=1)
    assert written["level"].to_list() == ["true", "true", ODD]
    assert written["value"].to_list() == model.measured.blocks[0].values.tolist()


def test_the_command_line_exports(tmp_path: Path) -> None:
    model = sklar.fit(rows_of(), SCHEMA, epsilon=2.0)
    model.save(tmp_path / "m.sklar")
    assert "No privacy was spent." in call("tables", "m.sklar", "--out", "t.parquet", cwd=tmp_path).output
    write_tables(model.measured, tmp_path / "own.parquet")
    assert (tmp_path / "t.parquet").read_bytes() == (tmp_path / "own.parquet").read_bytes()
