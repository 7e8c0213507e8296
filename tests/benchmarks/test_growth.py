"""What a release does grows as it should with rows, columns, levels and epsilon: counted work alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest
from experiments.stopwatch import Stopwatch

from benchmarks import growth
from sklar import Schema, fit
from sklar.generate import generate, schema_toml


def released(
    *, shape: str = "census-linked", rows: int = 2_000, attributes: int = 8, epsilon: float = 1.0
) -> dict[str, int]:
    whole = Schema.from_toml(schema_toml(shape))
    schema = Schema(name=shape, attributes=whole.attributes[:attributes])
    watch = Stopwatch()
    model = fit(pl.concat(generate(shape, rows=rows)[1]).select(schema.names), schema, epsilon=epsilon, progress=watch)
    return growth.worked((block.values.size for block in model.measured.blocks), watch.laps)


# Exponents over two decades; attributes are bits, whose cells grow with the square. A second pass over the rows may
# start along the way (0.15 of an exponent). Steps follow noisy tables: the limits leave a factor of five and more above
# what releases showed, and catch a fit whose steps grow with the rows, with epsilon or with the columns.
@pytest.mark.parametrize(("axis", "values", "most"), [
    ("rows", (300, 3_000, 30_000), {"cells": 0.2, "rows": 1.3, "steps": 0.9}),
    ("epsilon", (0.1, 1.0, 10.0), {"cells": 0.1, "rows": 0.3, "steps": 0.9}),
    ("attributes", (3, 17, 100), {"cells": 2.1, "rows": 0.3, "steps": 0.9}),
])  # fmt: skip
def test_exponents_of_counted_work(axis: str, values: tuple[float, ...], most: Mapping[str, float]) -> None:
    asked: Any = {"shape": "syn1" if axis == "attributes" else "census-linked"}
    runs = [released(**(asked | {axis: value})) for value in values]
    for what, limit in most.items():
        power = growth.exponent(values, [run[what] for run in runs])
        assert power is not None
        assert power <= limit, (what, [run[what] for run in runs])


def test_a_quadratic_cost_is_found() -> None:
    assert growth.exponent((1, 10, 100), (3, 300, 30_000)) == pytest.approx(2.0)
    assert growth.exponent((1, 10), (0, 3)) is None
