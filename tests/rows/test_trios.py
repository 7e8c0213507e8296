"""Parities of triples, 64 rows at a time, are the kernel's plain ones."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sklar.kernel.parities import odd_trios_plainly
from sklar.public.schema import Attribute, Schema
from sklar.rows.trios import count_trios


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 1_000])
@pytest.mark.parametrize("m", [3, 7])
def test_counts_are_the_plain_ones(rows: int, m: int) -> None:
    codes = np.random.default_rng(rows).choice([-1, 0, 1], size=(m, rows))
    schema = Schema(
        name="bits",
        attributes=tuple(Attribute(name=f"b{i}", kind="integer", edges=(0, 1, 2), outside="missing") for i in range(m)),
    )
    frame = pl.DataFrame({f"b{i}": np.where(column < 0, 77, column) for i, column in enumerate(codes)})
    parts = [frame[: rows // 3], frame[rows // 3 :]]
    odd, seen = count_trios(parts, schema)
    assert seen == rows
    assert np.array_equal(odd, odd_trios_plainly(codes, schema.cells))
