"""The paper's copula over dummy-coded attributes.

A standard normal Y_k per level, correlated across attributes. The paper's output (`dummies`) sets level k where
Y_k > t_k, so that a row may have none or several levels of an attribute. Valid records take the level whose exceedance
Y_k - c_k is largest, with c calibrated so that the margins hold. Of an attribute with two levels the second is the
mirror of the first, Y_2 = -Y_1 and c_2 = -c_1, so that a record takes the first where Y_1 > t_1: one normal and one cut
point, as the paper has for a binary attribute.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from sklar.copula.blocks import blocks
from sklar.margins import Probabilities
from sklar.schema import Schema
from sklar.tables import block_of_level
from sklar.threads import side_by_side, workers

# Rows drawn from one generator. Part of what a seed means: changing it changes every release.

_CALIBRATION_ROWS = 1 << 16
_CALIBRATION_SEED = 20_200_619
_FLOOR = 1e-6
# The cut point of a level that all have.
_CERTAIN = -6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """What the fit had to change, for the report."""

    clipped_pairs: int
    empty_attributes: int
    negative_eigenvalues: int
    moved: float
    max_moved: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BinaryCopula:
    """A Gaussian copula over d levels.

    `levels` are their probabilities and `cuts` their cut points, shape (d,); `factor`, shape (d, d), is lower
    triangular, in single precision. A level that mirrors another has the negative of its row, and a column of zeros.
    """

    schema: Schema
    dummies: bool
    levels: NDArray[np.float64]
    cuts: NDArray[np.float64]
    factor: NDArray[np.float32]
    repairs: Repairs


def fit_binary(probabilities: Probabilities, *, dummies: bool, weighted: bool) -> BinaryCopula:
    """Fit the copula (Eqs 5-7 and Algorithm 4 of the paper).

    Dummies keep the paper's structural zeros: levels of one attribute never occur together, which asks for correlation
    -1 between them. Records get exclusiveness from the decoding, so that their correlation is 0 instead, but for
    attributes of two levels, where -1 is what it is. `weighted` weighs the repair by the square root of the levels'
    probabilities: rare levels give way first.
    """
    from sklar.copula.nearest import nearest
    from sklar.copula.tetrachoric import thresholds

    schema, levels = probabilities.schema, probabilities.levels
    # Noise can clip every level of an attribute to zero; a record needs one all the same.
    empty = np.add.reduceat(levels, schema.offsets[:-1]) <= 0
    if not dummies and empty.any():
        block = block_of_level(schema)
        levels = np.where(empty[block], 1 / schema.sizes[block], levels)
    mirrors = np.zeros(0, dtype=np.int64) if dummies else schema.offsets[:-1][schema.sizes == 2] + 1
    own = np.delete(np.arange(levels.size), mirrors)
    raw, clipped = _gaussian_correlations(probabilities, own, structural_zeros=dummies)
    rarity = levels.copy()
    rarity[mirrors - 1] = np.minimum(levels[mirrors - 1], levels[mirrors])
    # One large decomposition at a time is the one thing here that is faster spread over all processors.
    with threadpool_limits(workers(), user_api="blas"):
        repair = nearest(raw, floor=_FLOOR, weights=np.sqrt(np.maximum(rarity[own], 1e-6)) if weighted else None)
        triangle = np.linalg.cholesky(repair.correlation).astype(np.float32)
    factor = np.zeros((levels.size, levels.size), dtype=np.float32)
    factor[own[:, None], own] = triangle
    factor[mirrors] = -factor[mirrors - 1]
    return BinaryCopula(
        schema=schema,
        dummies=dummies,
        levels=levels,
        cuts=thresholds(levels) if dummies else _calibrate(schema, levels, factor),
        factor=factor,
        repairs=Repairs(
            clipped_pairs=clipped,
            empty_attributes=0 if dummies else int(empty.sum()),
            negative_eigenvalues=repair.negative_eigenvalues,
            moved=repair.moved,
            max_moved=repair.max_moved,
        ),
    )


def _gaussian_correlations(
    probabilities: Probabilities, own: NDArray[np.int64], *, structural_zeros: bool
) -> tuple[NDArray[np.float64], int]:
    """The paper's P of the levels `own`, and how many of their pairs lay outside the Frechet bounds."""
    from sklar.copula.tetrachoric import tetrachoric_matrix

    solved = tetrachoric_matrix(probabilities.levels[own], probabilities.pairs[own[:, None], own])
    raw = solved.r
    if not structural_zeros:
        block = block_of_level(probabilities.schema)[own]
        raw[block[:, None] == block] = 0.0
        np.fill_diagonal(raw, 1.0)
    return raw, solved.clipped


def _calibrate(schema: Schema, levels: NDArray[np.float64], factor: NDArray[np.float32]) -> NDArray[np.float64]:
    """Cut points c, shape (d,), with P(argmax of Y_k - c_k = k) = p_k within each attribute.

    Two levels: exactly. More: first as if the Y of one attribute were independent, by quadrature, which is accurate for
    rare levels too; then, as the repair leaves some correlation between them, corrected on a fixed simulated sample.
    """
    from sklar.copula.tetrachoric import thresholds

    cuts = np.zeros_like(levels)
    first = schema.offsets[:-1][schema.sizes == 2]
    share = levels[first] / (levels[first] + levels[first + 1])
    cuts[first], cuts[first + 1] = thresholds(share), thresholds(1 - share)
    # A level that nobody has is cut off at infinity; the other needs a cut point all the same.
    cuts = np.maximum(cuts, _CERTAIN)

    def settle(attribute: int) -> None:
        block = _blocks(schema)[attribute]
        rows = factor[block, : block.stop].astype(np.float64)
        within = np.linalg.cholesky(rows @ rows.T)
        generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([_CALIBRATION_SEED, attribute])))
        normal = generator.standard_normal((len(within), _CALIBRATION_ROWS), dtype=np.float32)
        cuts[block] = _calibrate_attribute(levels[block], within.astype(np.float32) @ normal)

    side_by_side(settle, np.nonzero(schema.sizes != 2)[0].tolist())
    return cuts


def _blocks(schema: Schema) -> list[slice]:
    """Where each attribute's levels stand among all levels."""
    return [slice(int(first), int(last)) for first, last in pairwise(schema.offsets)]


def _calibrate_attribute(levels: NDArray[np.float64], simulated: NDArray[np.float32]) -> NDArray[np.float64]:
    from sklar.copula.tetrachoric import thresholds

    present = levels > 0
    target = levels[present] / levels[present].sum()
    c = thresholds(np.minimum(target, 1 - 1e-9))
    for _ in range(60):
        chance, slope = _argmax_chances(c)
        step = np.log(chance / target) / slope
        c += np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-10:
            break
    cuts = np.full(levels.size, np.inf)
    cuts[present] = c
    return _settle(cuts, levels, simulated, rounds=15)


def _settle(
    cuts: NDArray[np.float64], levels: NDArray[np.float64], drawn: NDArray[np.float32], *, rounds: int
) -> NDArray[np.float64]:
    """Cut points moved so that the winners among these draws, shape (levels, rows), have the wanted margins."""
    present = np.isfinite(cuts)
    wanted = levels[present] / levels[present].sum() * drawn.shape[1]
    slope = _argmax_chances(cuts[present])[1]
    # A level wanted a few times only is left to chance: forcing its count would round it to nothing.
    gain = wanted / (wanted + 10.0) / slope
    best, least, direction, step = cuts, np.inf, np.zeros(wanted.size), 0.5
    for _ in range(rounds):
        trial = best.copy()
        trial[present] += step * direction
        wins = np.bincount(_winners(drawn, trial), minlength=cuts.size)[present]
        error = float(np.abs(wins - wanted) @ gain)
        if error < least:
            best, least, direction = trial, error, gain * np.log((wins + 0.5) / (wanted + 0.5))
        else:
            # Correlated levels answer more strongly than independent ones would.
            step /= 2
    return best


def _argmax_chances(c: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """P(k) = int phi(v + c_k) prod_{l != k} Phi(v + c_l) dv for independent normals, and -d log P(k) / d c_k."""
    from scipy.special import log_ndtr

    # The trapezoidal rule converges exponentially on a smooth integrand that vanishes at both ends.
    v = np.linspace(-c.max() - 9.0, -c.min() + 9.0, 400)
    at = v[:, None] + c[None, :]
    logs = log_ndtr(at)
    density = np.exp(-0.5 * at**2 - 0.5 * np.log(2 * np.pi) + logs.sum(axis=1, keepdims=True) - logs)
    step = v[1] - v[0]
    chance = step * density.sum(axis=0)
    return chance, np.maximum(step * (at * density).sum(axis=0) / chance, 0.5)


def sample_binary(
    copula: BinaryCopula, rows: int, seed: int, first: int = 0
) -> Iterator[NDArray[np.int32] | NDArray[np.bool_]]:
    """Blocks of codes, shape (m, rows of block), or of dummies, shape (d, rows of block); `rows` rows in all, without
    the blocks before `first`. A block depends on (copula, seed, its number, its rows) alone.
    """
    for block, wanted in blocks(rows, first):
        generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, block])))
        normal = generator.standard_normal((copula.cuts.size, wanted), dtype=np.float32)
        drawn = copula.factor @ normal
        if copula.dummies:
            yield drawn > copula.cuts.astype(np.float32)[:, None]
        else:
            yield np.stack([_decide(drawn[levels], copula, levels) for levels in _blocks(copula.schema)])


def _decide(drawn: NDArray[np.float32], copula: BinaryCopula, levels: slice) -> NDArray[np.int32]:
    # Settling each block on the margins takes most of the sampling error out of one-way counts.
    return _winners(drawn, _settle(copula.cuts[levels], copula.levels[levels], drawn, rounds=5))


def _winners(drawn: NDArray[np.float32], cuts: NDArray[np.float64]) -> NDArray[np.int32]:
    """The level with the largest exceedance, for each column of `drawn`, shape (levels, rows)."""
    winners = np.zeros(drawn.shape[1], dtype=np.int32)
    # A running maximum over long rows is many times faster than numpy's argmax over short columns.
    best = drawn[0] - np.float32(cuts[0])
    for level in range(1, cuts.size):
        exceedance = drawn[level] - np.float32(cuts[level])
        better = exceedance > best
        winners[better] = level
        np.maximum(best, exceedance, out=best)
    return winners
