"""What becomes of a row depends on that row and the schema alone, however many others there are.

Encoding, reading, counting and searching are tried beyond every size at which another way is taken: a thousand rows,
five thousand, a batch.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from sklar.budget.search import ladder_of
from sklar.public.axis import days
from sklar.public.schema import Attribute, Schema
from sklar.rows.count import Ask, ask_all, count
from sklar.rows.encode import coder, encode_column
from sklar.rows.read import open_source

YEARS = tuple(days(dt.date(year, 1, 1)) for year in (1900, 1950, 2000, 2030))
ATTRIBUTES = {
    "age": Attribute(name="age", kind="integer", edges=(0, 18, 40, 65, 100), missing="?"),
    "score": Attribute(name="score", kind="integer", edges=(0, 18, 40, 65, 100), outside="missing"),
    "income": Attribute(name="income", kind="real", edges=(0.0, 1e3, 5e4, 1e6), missing="-"),
    "born": Attribute(name="born", kind="date", edges=YEARS),
    "city": Attribute(name="city", kind="categorical", values=("Bern", "Rome", "Oslo"), other=True),
    "name": Attribute(name="name", kind="categorical", values=("Bern", "Rome", "Oslo")),
}
# Common values, and rare ones at the edges and beyond.
VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "age": ([20, 21, 30], [0, 17, 18, 64, 65, 99, 100, -7, 10**12, None]),
    "score": ([20, 21, 30], [0, 17, 65, 100, -7, None]),
    "income": ([10.0, 2e3], [0.0, 1e3, 5e4, 1e6, -1.0, 1e300, float("nan"), None]),
    "born": ([dt.date(1960, 5, 5)], [dt.date(1900, 1, 1), dt.date(1066, 1, 1), dt.date(2100, 1, 1), None]),
    "city": (["Bern", "Rome"], ["Oslo", "Atlantis", "", "x" * 5_000, None]),
    "name": (["Bern", "Rome"], ["Oslo", "Atlantis", "", "x" * 5_000, None]),
}


@pytest.mark.parametrize("rows", [12, 1_500, 7_000, 70_000])
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_a_value_has_one_code_whatever_stands_beside_it(name: str, rows: int) -> None:
    """Every rare value at the front, in the middle and at the end of a column of common ones."""
    attribute, (common, rare) = ATTRIBUTES[name], VALUES[name]
    alone, column = coder(attribute), [common[row % len(common)] for row in range(rows)]
    for start in (0, rows // 2, rows - len(rare)):
        column[start : start + len(rare)] = rare
    kind = {"age": pl.Int64, "score": pl.Int64, "income": pl.Float64, "born": pl.Date}.get(name, pl.String)
    expected = {repr(value): alone(value) for value in (*common, *rare)}
    codes = encode_column(pl.Series(name, column, dtype=kind), attribute)
    assert codes.tolist() == [expected[repr(value)] for value in column]


@pytest.mark.parametrize("kind", ["frame", "arrow", "csv", "parquet"])
def test_batches_hold_every_row_once(kind: str, tmp_path: Path) -> None:
    """A frame of two batches and some rows: the rows at their ends come once."""
    rows = 2 * 65_536 + 17
    frame = pl.DataFrame({"x": np.arange(rows)})
    data: Any = frame if kind == "frame" else frame.to_arrow()
    if kind in ("csv", "parquet"):
        data = tmp_path / f"t.{kind}"
        frame.write_csv(data) if kind == "csv" else frame.write_parquet(data)
    batches = [batch.to_series().cast(pl.Int64).to_numpy() for batch in open_source(data).batches(("x",))]
    assert max(batch.size for batch in batches) <= 65_536
    assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(rows))


def test_every_row_is_counted_once_also_those_that_are_in_no_cell() -> None:
    schema = Schema(name="t", attributes=(ATTRIBUTES["score"], ATTRIBUTES["name"]))
    table = pl.DataFrame({"score": [20, None, 30, None], "name": ["Bern", "Rome", None, None]})
    assert count([table], ask_all(schema)).n_rows == 4
    assert count([table], ask_all(schema)).pairs.sum() == 1


def test_a_row_counts_once_in_every_table_of_a_search() -> None:
    """Rows at both ends of a grid, in its cells and beyond its bounds."""
    attribute = Attribute(name="x", kind="integer", edges=(0, 256), domain="private", at_most=4)
    values = np.concatenate([np.arange(256), [255] * 9, [0] * 5, [10**9, -(10**9)]])
    answers = count([pl.DataFrame({"x": values})], Ask(values=(attribute,)))
    rows, (histogram,) = answers.n_rows, answers.values
    assert rows == values.size
    for edges in (ladder_of(attribute).first(), np.array([0, 100, 256]), np.arange(257)):
        expected = np.histogram(np.clip(values, 0, 255), edges - 0.5)[0]
        assert histogram.table(edges).tolist() == expected.tolist()
