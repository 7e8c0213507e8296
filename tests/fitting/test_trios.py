"""Parities as a part of a fit: tables from them, halves of them, their gradient, and what only triples show."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import sklar
from sklar.fitting.choose import thin
from sklar.fitting.margins import Estimates, crossed_tables, pool
from sklar.fitting.trios import Trios
from sklar.kernel.cells import Cells
from sklar.kernel.count import count_plainly
from sklar.kernel.parities import odd_trios_plainly
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema
from sklar.release import measure


def schema(m: int) -> Schema:
    return Schema(
        name="bits", attributes=tuple(Attribute(name=f"b{i}", kind="integer", edges=(0, 1, 2)) for i in range(m))
    )


def frame(codes: NDArray[np.int64]) -> pl.DataFrame:
    return pl.DataFrame({f"b{i}": column for i, column in enumerate(codes)})


def with_xor(rows: int, m: int, seed: int = 1) -> NDArray[np.int64]:
    """Independent bits, the last of which is the first two's exclusive or."""
    codes = (np.random.default_rng(seed).random((m, rows)) < 0.4).astype(np.int64)
    codes[-1] = codes[0] ^ codes[1]
    return codes


def test_tables_follow_from_parities_without_noise() -> None:
    codes = with_xor(500, 4)
    measured = measure(frame(codes), schema(4), Budget(epsilon=1e9))
    estimates, exact = pool(measured.stages), count_plainly(codes, Cells([2] * 4))
    assert np.array_equal(estimates.one_way, exact.one_way)
    assert np.array_equal(estimates.pairs, exact.pairs)
    assert np.array_equal(estimates.trios, odd_trios_plainly(codes, Cells([2] * 4)))
    assert estimates.crossed


def estimates_of(m: int = 5, n: int = 10_000) -> Estimates:
    generator, cells = np.random.default_rng(0), Cells([2] * m)
    ones, odd = generator.uniform(2_000, 8_000, m), generator.uniform(2_000, 6_000, cells.n_pairs)
    return Estimates(
        cells=cells,
        n_rows=n,
        one_way=np.column_stack([n - ones, ones]).ravel(),
        one_way_sd=np.full(m, 30.0),
        pairs=crossed_tables(cells, ones, odd, n),
        pair_sd=np.full(cells.n_pairs, 40.0),
        crossed=True,
        trios=generator.uniform(3_000, 6_000, cells.n_trios),
        trio_sd=100.0,
    )


def test_halves_keep_their_margins_and_the_noise_that_they_state() -> None:
    whole = estimates_of()
    train, held = thin(whole, np.random.default_rng(5))
    for half in (train, held):
        ones = half.one_way[1::2]
        for i, j in zip(*whole.cells.pairs, strict=True):
            table = whole.cells.table(half.pairs, i, j)
            assert table.sum() == pytest.approx(whole.n_rows)
            assert table[1].sum() == pytest.approx(ones[i])
            assert table[:, 1].sum() == pytest.approx(ones[j])
    assert train.trio_sd == pytest.approx(100 * np.sqrt(1.25))
    assert held.pair_sd[0] == pytest.approx(40 * np.sqrt(5))
    # The weights of the two halves that undo the thinning give the whole back: no noise is in both alike.
    for name in ("one_way", "pairs", "trios"):
        back = (getattr(train, name) * 4 + getattr(held, name)) / 5
        assert np.allclose(back, getattr(whole, name))


def test_the_gradient_is_that_of_the_squared_errors() -> None:
    whole = estimates_of()
    trios = Trios(whole)
    generator = np.random.default_rng(2)
    found = generator.uniform(-0.7, 0.7, (5, 7)).astype(np.float32)

    def loss(values: NDArray[np.float64]) -> float:
        i, j, k = whole.cells.trios
        predicted = (values[i] * values[j] * values[k]).mean(axis=1)
        wanted = (1 - 2 * whole.trios / whole.n_rows) / np.sqrt(8)
        return float(trios.weight * np.sum((predicted - wanted) ** 2))

    assert trios.weight == pytest.approx(2 * 40**2 / 100**2)
    assert trios.score(found, np.zeros(5, dtype=np.float32))[0] == pytest.approx(loss(found.astype(float)), rel=1e-5)
    pull = np.zeros_like(found)
    trios.pull(found, pull)
    for at in [(0, 0), (3, 5), (4, 6)]:
        step = np.zeros(found.shape)
        step[at] = 1e-4
        slope = (loss(found + step) - loss(found - step)) / 2e-4
        assert float(pull[at]) == pytest.approx(slope * 7 / 2, rel=1e-3, abs=1e-6)


def test_an_exclusive_or_is_seen() -> None:
    """Its pairs are independent: without triples the joint distribution is off by 0.24 and more.

    The noise of the parity of the three is 0.2% of the rows: 0.05 would be 25 standard deviations.
    """
    codes = with_xor(40_000, 4)
    model = sklar.fit(frame(codes), schema(4), epsilon=1.0)
    drawn = model.sample(40_000, seed=3).to_numpy().T.astype(np.int64)

    def joint(rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(np.bincount(rows[0] * 4 + rows[1] * 2 + rows[3], minlength=8) / rows.shape[1])

    assert np.abs(joint(codes) - joint(drawn)).sum() / 2 < 0.05


def test_a_stream_and_a_person_have_no_second_pass() -> None:
    codes = with_xor(5_000, 4)
    table = frame(codes).to_arrow()
    assert measure(table, schema(4), Budget(epsilon=1.0)).stages[0].trios.size == 4
    assert measure(table.to_reader(), schema(4), Budget(epsilon=1.0)).stages[0].trios.size == 0
