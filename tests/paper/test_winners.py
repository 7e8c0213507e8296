"""Correlated normals in tiles, and who wins, against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.draw.blocks import stream
from sklar.paper.winners import correlated, differences, settle


def lower(n: int, seed: int = 0) -> NDArray[np.float32]:
    return np.tril(np.random.default_rng(seed).standard_normal((n, n), dtype=np.float32))


@pytest.mark.parametrize(("n", "rows"), [(0, 10), (1, 1), (7, 2048), (130, 4100)])
def test_tiles_hold_factor_times_normals(n: int, rows: int) -> None:
    factor = lower(n)
    drawn = correlated(np.asfortranarray(factor), rows, 3, 4)
    tiles, _, columns = drawn.shape
    assert (tiles - 1) * columns < rows <= tiles * columns
    # A tile depends on the seed, its block and its number alone.
    for number, tile in enumerate(drawn):
        normals = stream(4, 3, number).standard_normal((n, columns), dtype=np.float32)
        np.testing.assert_allclose(tile, factor @ normals, atol=1e-4)


def test_differences_have_their_covariance() -> None:
    factor = lower(6, 1)
    first, second, alone = np.array([0, 2, 3]), np.array([4, 5]), np.array([1])
    reduced = differences(factor, [first, alone, second])
    contrast = np.zeros((3, 6))
    for row, (level, last) in enumerate([(0, 3), (2, 3), (4, 5)]):
        contrast[row, level], contrast[row, last] = 1, -1
    assert np.array_equal(reduced, np.tril(reduced))
    np.testing.assert_allclose(reduced @ reduced.T, contrast @ factor @ factor.T @ contrast.T, atol=1e-5)


@pytest.mark.parametrize(("levels", "rows"), [(2, 1), (3, 3_000), (8, 2_047), (30, 3_000)])
def test_the_largest_exceedance_wins(levels: int, rows: int) -> None:
    drawn = correlated(np.asfortranarray(lower(levels + 3)), rows, 0, 1)
    cuts = np.random.default_rng(2).standard_normal(levels)
    own = np.hstack(list(drawn[:, 2 : 2 + levels - 1]))[:, :rows]
    exceedance = np.vstack([own, np.zeros((1, rows), np.float32)]) - cuts.astype(np.float32)[:, None]
    won, settled = np.empty(rows, dtype=np.uint16), np.empty(levels)
    settle(drawn, 2, np.stack([cuts, np.full(levels, rows / levels), np.ones(levels)]), 1, won, settled)
    assert np.array_equal(won, exceedance.argmax(axis=0))
    assert np.array_equal(settled, cuts)


@pytest.mark.parametrize("levels", [2, 5, 12])
def test_settling_brings_winners_to_what_is_wanted(levels: int) -> None:
    rows = 16_384
    drawn = correlated(np.eye(levels - 1, dtype=np.float32, order="F"), rows, 0, 1)
    wanted = rows * np.arange(1.0, levels + 1) / np.arange(1, levels + 1).sum()
    won, settled = np.empty(rows, dtype=np.uint16), np.empty(levels)

    def error(rounds: int) -> float:
        settle(drawn, 0, np.stack([np.zeros(levels), wanted, np.ones(levels)]), rounds, won, settled)
        return float(np.abs(np.bincount(won, minlength=levels) - wanted).max())

    before = error(1)
    assert before > 500
    assert error(15) < before / 20
    # The winners are those of the settled cut points.
    again, kept = np.empty_like(won), np.empty(levels)
    settle(drawn, 0, np.stack([settled, wanted, np.ones(levels)]), 1, again, kept)
    assert np.array_equal(again, won)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_damaged_model_still_leaves_every_row_with_a_level(bad: float) -> None:
    drawn = correlated(np.eye(2, dtype=np.float32, order="F"), 100, 0, 1)
    won, settled = np.full(100, 60_000, dtype=np.uint16), np.empty(3)
    settle(drawn, 0, np.stack([np.zeros(3), np.full(3, bad), np.ones(3)]), 5, won, settled)
    assert (won < 3).all()
