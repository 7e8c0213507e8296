"""Sums of what parts were counted to: whatever the order, whoever adds, and however often a piece comes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sklar.errors import DataError
from sklar.public.schema import Schema
from sklar.rows import executors
from sklar.rows.count import Ask, Exact, ask_all, count
from tests.rows.test_count import answers_by, drawn, same, schema_of

FOUND = Schema.from_toml(
    '[attributes.city]\ntype = "categorical"\ndomain = "private"\nat_most = 5\n'
    '[attributes.income]\ntype = "integer"\ndomain = "private"\nlow = -100\nhigh = 1000\nbins = 8\n'
)


def test_pieces_of_parts_add_up_in_any_order_and_however_often_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "RUN", 7)
    ask, codes = ask_all(schema_of([3, 4, 2])), drawn([3, 4, 2], 300)
    parts = [answers_by(each, ask, compiled=False) for each in np.array_split(codes, 5, axis=1)]
    pieces = [piece for number, part in enumerate(parts) for piece in executors.cut(part, number)]
    order = np.random.default_rng(2).permutation(len(pieces)).tolist()
    mixed = [pieces[at] for at in order] + pieces[:4]
    # Two places where pieces meet, by their runs.
    added = [piece for place in (0, 1) for piece in executors.add(p for p in mixed if p[0] % 2 == place)]
    assert len(added) > 3
    assert same(executors.join(added, ask, 5), answers_by(codes, ask, compiled=False))
    assert executors.join([], ask).n_rows == 0
    for lacking in (pieces[1:], pieces[: -len(added)], []):
        with pytest.raises(DataError, match=r"partial counts do not add up\. Nothing was released\. Run it again"):
            executors.join(list(executors.add(lacking)), ask, 5)


def test_more_rows_than_four_bytes_hold() -> None:
    ask = ask_all(schema_of([2, 2]))
    large, larger = (Exact(n_rows=n, tables=(np.full(4, n // 2), np.full(4, n // 4))) for n in (2**40, 2**41))
    added = list(executors.add([*executors.cut(large, 0), *executors.cut(large, 1)]))
    assert same(executors.join(added, ask, 2), larger)


def test_histograms_of_parts_add_up_to_those_of_the_table() -> None:
    rng, ask = np.random.default_rng(3), Ask(values=tuple(FOUND.private_domains))
    texts = ["Bern", "Rome", "", "x" * 999, None]
    rows = pl.DataFrame(
        {"city": [texts[at] for at in rng.integers(0, 5, 200)], "income": rng.integers(-150, 1100, 200)}
    )
    whole = count([rows], ask)
    pieces = [
        piece
        for number, part in enumerate(rows.iter_slices(45))
        for piece in executors.cut(count([ask.prepare(part)], Ask(values=ask.values, chosen=True)), number)
    ]
    added = [piece for key in range(3) for piece in executors.add(p for p in pieces * 2 if p[0] == key)]
    found = executors.join(added, ask, 5)
    assert found.n_rows == whole.n_rows == 200
    for one, other in zip(found.values, whole.values, strict=True):
        assert dict(one.texts) == dict(other.texts)
        assert [each.tolist() for each in one.values()] == [each.tolist() for each in other.values()]
    with pytest.raises(DataError, match="do not add up"):
        executors.join(added[1:], ask, 5)
