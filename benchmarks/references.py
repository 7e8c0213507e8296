"""The paper's own way of doing each stage, timed on a piece and extrapolated to the whole table.

Everything runs in one thread and is compared by CPU seconds. These are our plain NumPy readings of what the paper
describes, kinder than its own code: temporaries are reused, and counting runs over contiguous bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits

Array = NDArray[np.float64]

# The paper integrates with steps of 0.01 on [-10, 10]^2. Twenty halvings leave r uncertain by 2e-6.
GRID = np.linspace(-10.0, 10.0, 2001)
HALVINGS = 20

# Alternating projections: one is timed on a matrix of at most the first size, their number is found on the second.
TIMED_SIDE = 1000
COUNTED_SIDE = 200
TOLERANCE = 1e-7
MAX_PROJECTIONS = 1000

COUNTED_ROWS = 100_000
COUNTED_DUMMIES = 32


def extrapolated(seconds: float, piece: float, whole: float, *, power: float = 1.0) -> float:
    """Seconds of the whole from the seconds of a piece, where time grows as a power of size.

    >>> extrapolated(2.0, 10, 30), extrapolated(2.0, 10, 30, power=3)
    (6.0, 54.0)
    """
    return float(seconds * (whole / piece) ** power)


def dummies_of(sizes: Sequence[int]) -> NDArray[np.int64]:
    """How many dummies each attribute has: one per level, and one for a binary attribute, as in the paper's Syn 1.

    >>> dummies_of([2, 3, 4]).tolist()
    [1, 3, 4]
    """
    each = np.asarray(sizes, dtype=np.int64)
    return np.where(each == 2, 1, each)


def dummy_pairs(sizes: Sequence[int]) -> int:
    """Pairs of dummies of distinct attributes: each has a Gaussian correlation to be found.

    >>> dummy_pairs([2, 3, 4])
    19
    """
    each = dummies_of(sizes)
    return int(each.sum() ** 2 - (each**2).sum()) // 2


def bisection(p_i: float, p_j: float, p_ij: float) -> float:
    """The r with E{Xi Xj} = p_ij (Eqs 5-7), bisected over the double integral on the grid.

    >>> round(bisection(0.5, 0.5, 1 / 3), 1)
    0.5
    """
    from scipy.special import ndtri

    weights = np.outer(-ndtri(p_i) < GRID, -ndtri(p_j) < GRID).astype(np.float64)
    squares, products = GRID[:, None] ** 2 + GRID**2, np.outer(GRID, GRID)
    density, step = np.empty_like(products), GRID[1] - GRID[0]
    low, high = -0.9999, 0.9999
    for _ in range(HALVINGS):
        r = (low + high) / 2
        np.multiply(products, 2 * r, out=density)
        density -= squares
        density /= 2 * (1 - r * r)
        np.exp(density, out=density)
        density *= weights
        expected = density.sum() * step * step / (2 * np.pi * np.sqrt(1 - r * r))
        low, high = (r, high) if expected < p_ij else (low, r)
    return (low + high) / 2


def projected(matrix: Array) -> Array:
    """The nearest positive semidefinite matrix."""
    values, vectors = eigh(matrix, driver="evd", check_finite=False)
    kept = values > 0
    return np.asarray((vectors[:, kept] * values[kept]) @ vectors[:, kept].T)


def alternating_projections(matrix: Array, *, most: int = MAX_PROJECTIONS) -> tuple[Array, int]:
    """The nearest correlation matrix by Higham's method (2002, algorithm 3.3), and how many projections it took.

    >>> alternating_projections(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]))[0].round(4).tolist()
    [[1.0, 0.7607, 0.1573], [0.7607, 1.0, 0.7607], [0.1573, 0.7607, 1.0]]
    """
    point, correction = matrix.copy(), np.zeros_like(matrix)
    turns = 0
    while turns < most:
        turns += 1
        shifted = point - correction
        inside = projected(shifted)
        correction = inside - shifted
        before, point = point, inside.copy()
        np.fill_diagonal(point, 1.0)
        if np.linalg.norm(point - before) <= TOLERANCE * np.linalg.norm(point):
            break
    return point, turns


def noisy_correlation(side: int, noise: float = 0.1) -> Array:
    """A correlation matrix of a few factors with noise on every entry, which has to be repaired."""
    generator = np.random.default_rng(0)
    loadings = generator.standard_normal((side, 5)) * 0.4
    covariance = loadings @ loadings.T + np.eye(side)
    scale = np.sqrt(np.diag(covariance))
    noisy = covariance / scale[:, None] / scale + noise * generator.standard_normal((side, side))
    matrix = np.clip((noisy + noisy.T) / 2, -1.0, 1.0)
    np.fill_diagonal(matrix, 1.0)
    return np.asarray(matrix)


def count_naively(dummies: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Rows in which both of two dummies are set, for every pair of rows of `dummies`, shape (d, rows)."""
    d = len(dummies)
    counts = np.zeros((d, d), dtype=np.int64)
    for i in range(d):
        for j in range(i + 1, d):
            counts[i, j] = np.count_nonzero(dummies[i] & dummies[j])
    return counts


def _cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    found = work()
    return time.process_time() - begin, found


def measure(rows: int, sizes: Sequence[int]) -> dict[str, Any]:
    """CPU seconds of the paper's way for a table of this shape: of the timed pieces, and extrapolated to the whole."""
    d, pairs = int(dummies_of(sizes).sum()), dummy_pairs(sizes)
    with threadpool_limits(1):
        piece = min(rows, COUNTED_ROWS), min(d, COUNTED_DUMMIES)
        dummies = np.random.default_rng(0).random((piece[1], piece[0])) < 0.3
        counting, _ = _cpu(lambda: count_naively(dummies))
        pair, _ = _cpu(lambda: bisection(0.4, 0.3, 0.18))
        small, (_, turns) = _cpu(lambda: alternating_projections(noisy_correlation(min(d, COUNTED_SIDE))))
        side = min(d, TIMED_SIDE)
        matrix = noisy_correlation(side)
        turn, _ = _cpu(lambda: projected(matrix))
    return {
        "dummy_pairs": pairs,
        "counting_timed": {"rows": piece[0], "pairs": piece[1] * (piece[1] - 1) // 2, "cpu_seconds": counting},
        "counting": extrapolated(counting, piece[0] * piece[1] * (piece[1] - 1) / 2, rows * pairs),
        "pair_timed": pair,
        "correlations": extrapolated(pair, 1, pairs),
        "projections": turns,
        "projection_timed": {"side": side, "cpu_seconds": turn},
        # A small matrix was repaired as a whole.
        "repair": small if d <= COUNTED_SIDE else turns * extrapolated(turn, side, d, power=3),
    }
