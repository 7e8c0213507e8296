"""The normals: the published words, the right quantile of each, and the distribution of many."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from sklar.paper.winners import fill_normals, to_normals, words

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


def check(draws: int, seed: int) -> None:
    """Moments, Kolmogorov's distance and tails of so many normals, each within bounds of 1e-7 or less."""
    chunk = 1 << 20
    edges = np.linspace(-5, 5, 2001)
    below = np.zeros(edges.size)
    powers = np.zeros(4)
    tails = {t: np.zeros(2) for t in (3.0, 4.0, 4.5, 5.0, 5.5, 6.0)}
    previous, lagged = 0.0, 0.0
    for block in range(draws // chunk):
        drawn = np.empty((1, chunk), dtype=np.float32)
        fill_normals(drawn, 0, block, seed)
        values = drawn[0].astype(np.float64)
        below += np.searchsorted(np.sort(drawn[0]), edges.astype(np.float32), side="right")
        square = values * values
        powers += [values.sum(), square.sum(), (square * values).sum(), (square * square).sum()]
        lagged += float(values[:-1] @ values[1:])
        previous += chunk - 1
        for t, counts in tails.items():
            counts += [np.count_nonzero(values > t), np.count_nonzero(values < -t)]
    n = draws // chunk * chunk
    # 5.5 standard errors, 4e-8: x has variance 1, x^2 2, x^3 15, x^4 96.
    errors: NDArray[np.float64] = (powers / n - [0, 1, 0, 3]) / np.sqrt(np.array([1, 2, 15, 96]) / n)
    assert np.abs(errors).max() < 5.5
    assert abs(lagged) < 5.5 * math.sqrt(previous)
    # Kolmogorov: P(sqrt(n) D > 3) = 2 exp(-18) = 3e-8. Edges as they are in single precision.
    assert np.abs(below / n - ndtr(edges.astype(np.float32).astype(np.float64))).max() < 3 / math.sqrt(n)
    for t, counts in tails.items():
        expected = n * float(ndtr(-t))
        # Bernstein: beyond sqrt(2 v L) + 2 L / 3 with chance 2 exp(-L) = 4e-8.
        assert np.abs(counts - expected).max() < math.sqrt(2 * expected * 17.7) + 2 * 17.7 / 3


def test_millions_are_normal() -> None:
    check(4_200_000, 1)


@pytest.mark.slow
def test_a_billion_are_normal() -> None:
    check(1_000_000_000, 2)
