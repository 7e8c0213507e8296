"""Correlated normals in tiles, and who wins, against plain NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import norm

from sklar.paper.winners import correlated, differences, fill_normals, settle, settle_two, to_normals, words


def lower(n: int, seed: int = 0) -> NDArray[np.float32]:
    return np.tril(np.random.default_rng(seed).standard_normal((n, n), dtype=np.float32))


@pytest.mark.parametrize(("n", "rows"), [(0, 10), (1, 1), (7, 2048), (130, 4100)])
def test_tiles_hold_factor_times_normals(n: int, rows: int) -> None:
    factor = lower(n)
    drawn = correlated(np.asfortranarray(factor), rows, 3, 4)
    tiles, _, columns = drawn.shape
    assert (tiles - 1) * columns < rows <= tiles * columns
    normals = np.empty((n, tiles * columns), dtype=np.float32)
    fill_normals(normals, 0, 3, 4)
    np.testing.assert_allclose(np.hstack(list(drawn)), factor @ normals, atol=1e-4)


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
    settle(drawn, 0, np.stack([np.zeros(3), np.full(3, np.nan), np.ones(3)]), 5, won, settled)
    assert (won < 3).all()
    second, some = np.full((1, 100), 9, dtype=np.uint8), np.full((3, 1), bad)
    settle_two(drawn, np.zeros(1, dtype=np.int64), some, np.zeros(1, dtype=np.uint32), 5, second)
    assert (second < 2).all()


@pytest.mark.parametrize("rows", [1, 2047, 2048, 16_384])
def test_two_levels_are_settled_within_a_few_rows_of_what_is_wanted(rows: int) -> None:
    factor = lower(40)
    drawn = correlated(np.asfortranarray(factor), rows, 0, 1)
    first = np.array([1, 7, 38])
    sd = np.linalg.norm(factor[first], axis=1).astype(np.float64)
    wanted = rows * np.array([0.5, 0.1, 0.97])
    # Cut points that are off by a tenth of a standard deviation, and densities by a third.
    cuts = sd * (norm.isf(wanted / rows) + 0.1)
    densities = 0.7 * norm.pdf(cuts / sd) / sd
    won = np.full((3, rows), 9, dtype=np.uint8)
    settle_two(drawn, first, np.stack([cuts, densities, wanted]), np.zeros(3, dtype=np.uint32), 6, won)
    own = np.hstack(list(drawn[:, first]))[:, :rows]
    for values, winners, each in zip(own, won, wanted, strict=True):
        assert set(winners.tolist()) <= {0, 1}
        # The first level has the largest differences.
        assert min(values[winners == 0], default=np.inf) > max(values[winners == 1], default=-np.inf)
        if rows > 2_000:
            assert abs((winners == 0).sum() - each) < 4 + 0.02 * rows * 10 / min(each, rows - each)


def test_a_rare_level_of_two_is_as_frequent_as_wanted_on_average() -> None:
    rows, blocks, wanted = 2_048, 200, 0.7
    cut = np.array([norm.isf(wanted / rows)])
    won, found = np.empty((1, rows), dtype=np.uint8), 0
    for block in range(blocks):
        drawn = correlated(np.ones((1, 1), dtype=np.float32, order="F"), rows, block, 1)
        chance = np.array([block * 2**32 // blocks], dtype=np.uint32)
        settle_two(drawn, np.zeros(1, dtype=np.int64), np.array([cut, norm.pdf(cut), [wanted]]), chance, 5, won)
        found += int((won == 0).sum())
    assert abs(found - blocks * wanted) < 4 * np.sqrt(blocks * wanted)


def test_counts_of_two_levels_are_rounded_without_bias() -> None:
    rows, wanted = 2_048, np.array([1_000.25])
    drawn = correlated(np.ones((1, 1), dtype=np.float32, order="F"), rows, 0, 1)
    won, found = np.empty((1, rows), dtype=np.uint8), []
    for word in range(0, 2**32, 2**28):
        goals = np.array([[0.0], [norm.pdf(0.0)], wanted])
        settle_two(drawn, np.zeros(1, dtype=np.int64), goals, np.array([word], dtype=np.uint32), 12, won)
        found.append(int((won == 0).sum()))
    assert len(set(found)) == 2
    natural = int((drawn > 0).sum())
    aimed = natural + 1_000.25 / 1_010.25 * (1_000.25 - natural)
    assert abs(np.mean(found) - aimed) <= 1 / 16


FULL = 2**64 - 1


@pytest.mark.parametrize(
    ("counter", "upper", "seed", "expected"),
    [
        (0, 0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (FULL, FULL, FULL, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (0x85A308D3243F6A88, 0x0370734413198A2E, 0x299F31D0A4093822, "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_words_are_the_published_ones(counter: int, upper: int, seed: int, expected: str) -> None:
    """Known answers for Philox4x32-10 of Random123, the library of Salmon, Moraes, Dror and Shaw (kat_vectors)."""
    drawn = np.empty(4, dtype=np.uint32)
    words(drawn, counter, upper, seed)
    assert " ".join(f"{word:08x}" for word in drawn) == expected


def test_every_counter_has_its_own_four_words() -> None:
    long, short = np.empty(400, dtype=np.uint32), np.empty(4, dtype=np.uint32)
    # Across the border between the two lowest words of the counter.
    words(long, 2**32 - 50, 7, 9)
    for i in range(100):
        words(short, 2**32 - 50 + i, 7, 9)
        assert np.array_equal(long[4 * i : 4 * i + 4], short)
    assert np.unique(long).size == long.size


def test_each_word_gives_its_quantile() -> None:
    some = np.random.default_rng(1).integers(0, 2**31, 1 << 18)
    half = np.concatenate(
        [np.arange(1 << 14), 2**31 - 1 - np.arange(1 << 14), np.geomspace(1, 2**31 - 1, 1 << 16).astype(int), some]
    )
    near_the_split = int(2**31 * (1 - math.sqrt(1 - math.exp(-5)))) + np.arange(-500, 500)
    half = np.concatenate([half, near_the_split]).astype(np.uint32)
    exact = -ndtri((half + 0.5) * 2.0**-32)
    for sign in (0, 1):
        normals = np.empty(half.size, dtype=np.float32)
        to_normals(half << np.uint32(1) | np.uint32(sign), normals)
        # In the middle the spacing of single precision numbers near 1, and elsewhere a relative error.
        assert np.abs(normals * (2 * sign - 1) - exact).max() < 2e-6
        assert np.abs(normals * (2 * sign - 1) / exact - 1)[exact > 0.1].max() < 1e-6


def test_a_value_depends_on_its_place_block_and_seed_alone() -> None:
    whole = np.empty((3, 256), dtype=np.float32)
    fill_normals(whole, 0, 5, 6)
    for first, columns in ((0, 4), (4, 60), (128, 128)):
        part = np.empty((2, columns), dtype=np.float32)
        fill_normals(part, first, 5, 6)
        assert np.array_equal(part, whole[:2, first : first + columns])
    for block, seed in ((4, 6), (5, 7), (5 + 2**32, 6), (5, 6 + 2**32)):
        other = np.empty_like(whole)
        fill_normals(other, 0, block, seed)
        assert (other != whole).mean() > 0.99
    assert np.unique(whole).size == whole.size


@pytest.mark.parametrize(("draws", "seed"), [(4_200_000, 1), pytest.param(10**9, 2, marks=pytest.mark.slow)])
def test_draws_are_normal(draws: int, seed: int) -> None:
    """Moments, Kolmogorov's distance and tails of so many normals, each within bounds of 1e-7 or less."""
    chunk = 1 << 20
    edges = np.linspace(-5, 5, 2001)
    below = np.zeros(edges.size)
    powers = np.zeros(4)
    tails = {t: np.zeros(2) for t in (3.0, 4.0, 4.5, 5.0, 5.5, 6.0)}
    lagged = 0.0
    for block in range(draws // chunk):
        drawn = np.empty((1, chunk), dtype=np.float32)
        fill_normals(drawn, 0, block, seed)
        values = drawn[0].astype(np.float64)
        below += np.searchsorted(np.sort(drawn[0]), edges.astype(np.float32), side="right")
        square = values * values
        powers += [values.sum(), square.sum(), (square * values).sum(), (square * square).sum()]
        lagged += float(values[:-1] @ values[1:])
        for t, counts in tails.items():
            counts += [np.count_nonzero(values > t), np.count_nonzero(values < -t)]
    n = draws // chunk * chunk
    # 5.5 standard errors, 4e-8: x has variance 1, x^2 2, x^3 15, x^4 96.
    errors: NDArray[np.float64] = (powers / n - [0, 1, 0, 3]) / np.sqrt(np.array([1, 2, 15, 96]) / n)
    assert np.abs(errors).max() < 5.5
    assert abs(lagged) < 5.5 * math.sqrt(n - draws // chunk)
    # Kolmogorov: P(sqrt(n) D > 3) = 2 exp(-18) = 3e-8. Edges as they are in single precision.
    assert np.abs(below / n - ndtr(edges.astype(np.float32).astype(np.float64))).max() < 3 / math.sqrt(n)
    for t, counts in tails.items():
        expected = n * float(ndtr(-t))
        # Bernstein: beyond sqrt(2 v L) + 2 L / 3 with chance 2 exp(-L) = 4e-8.
        assert np.abs(counts - expected).max() < math.sqrt(2 * expected * 17.7) + 2 * 17.7 / 3
