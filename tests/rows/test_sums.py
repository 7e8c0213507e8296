"""Sums of what parts were counted to: whatever the order, whoever adds, and however often a piece comes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sklar.errors import DataError
from sklar.kernel.count import Counts, count_plainly
from sklar.public.schema import Schema
from sklar.rows import sums
from sklar.rows.discover import count_columns, count_values, value_columns
from tests.rows.test_fast import same, schema_of

FOUND = Schema.from_toml(
    '[attributes.city]\ntype = "categorical"\ndomain = "private"\nat_most = 5\n'
    '[attributes.income]\ntype = "integer"\ndomain = "private"\nlow = -100\nhigh = 1000\nbins = 8\n'
)


def counted(sizes: list[int], parts: int) -> tuple[Schema, list[Counts], Counts]:
    schema, rng = schema_of(sizes), np.random.default_rng(1)
    codes = np.stack([rng.integers(-1, size, 300) for size in sizes]).astype(np.int32)
    pieces = [count_plainly(each, schema.cells) for each in np.array_split(codes, parts, axis=1)]
    return schema, pieces, count_plainly(codes, schema.cells)


def test_pieces_of_parts_add_up_in_any_order_and_however_often_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "RUN", 7)
    schema, parts, whole = counted([3, 4, 2], 5)
    pieces = [piece for number, part in enumerate(parts) for piece in sums.cut_counts(part, number)]
    order = np.random.default_rng(2).permutation(len(pieces)).tolist()
    mixed = [pieces[at] for at in order] + pieces[:4]
    # Two places where pieces meet, by their runs.
    added = [*sums.add_counts(p for p in mixed if p[0] % 2), *sums.add_counts(p for p in mixed if not p[0] % 2)]
    assert sums.runs_of(schema.cells) == len(added) > 3
    assert same(sums.join_counts(added, schema, 5), whole)


def test_a_part_that_lacks_anywhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "RUN", 7)
    schema, parts, _ = counted([3, 4, 2], 3)
    pieces = [piece for number, part in enumerate(parts) for piece in sums.cut_counts(part, number)]
    for lacking in (pieces[1:], pieces[: -sums.runs_of(schema.cells)], []):
        with pytest.raises(DataError, match=r"partial counts do not add up\. Nothing was released\. Run it again"):
            sums.join_counts(list(sums.add_counts(lacking)), schema, 3)


def test_more_rows_than_four_bytes_hold() -> None:
    schema = schema_of([2, 2])
    large = Counts(n_rows=2**40, one_way=np.full(4, 2**39), pairs=np.full(4, 2**38))
    added = list(sums.add_counts([*sums.cut_counts(large, 0), *sums.cut_counts(large, 1)]))
    assert same(sums.join_counts(added, schema, 2), large + large)


def test_histograms_of_parts_add_up_to_those_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "_WAITING", 3)
    rng, attributes = np.random.default_rng(3), FOUND.private_domains
    texts = ["Bern", "Rome", "", "x" * 999, None]
    rows = pl.DataFrame(
        {"city": [texts[at] for at in rng.integers(0, 5, 200)], "income": rng.integers(-150, 1100, 200)}
    )
    n_rows, whole = count_values([rows], attributes)
    pieces: list[sums.Piece] = []
    for number, part in enumerate(rows.iter_slices(45)):
        own = count_columns(value_columns(part, attributes), attributes)
        pieces += sums.cut_histograms(part.height, own, number, 3)
    added = [piece for bucket in range(3) for piece in sums.add_histograms(p for p in pieces * 2 if p[0] == bucket)]
    found_rows, found = sums.join_histograms(added, attributes, 3, 5)
    assert found_rows == n_rows == 200
    for one, other in zip(found, whole, strict=True):
        assert dict(one.texts) == dict(other.texts)
        assert [each.tolist() for each in one.values()] == [each.tolist() for each in other.values()]
    with pytest.raises(DataError, match="do not add up"):
        sums.join_histograms(added[1:], attributes, 3, 5)
