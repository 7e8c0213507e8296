"""The paper's copula over dummy-coded attributes.

A standard normal Y_k per level, correlated across attributes. The paper's output (`dummies`) sets level k where
Y_k > t_k, so that a row may have none or several levels of an attribute. Valid records take the level whose exceedance
Y_k - c_k is largest, with c calibrated so that the margins hold. Of an attribute with two levels the second is the
mirror of the first, Y_2 = -Y_1 and c_2 = -c_1, so that a record takes the first where Y_1 > t_1: one normal and one cut
point, as the paper has for a binary attribute.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import block_of_level
from sklar.draw.blocks import Codes, blocks, empty_codes
from sklar.fitting.margins import Probabilities
from sklar.machine.threads import in_order, side_by_side, undivided
from sklar.public.schema import Schema

_CALIBRATION_ROWS = 1 << 16
_CALIBRATION_SEED = 20_200_619
_FLOOR = 1e-6
# Of the repair: noise moves correlations by hundredths, further steps would move none by a thousandth.
_ACCURACY = 1e-6
# The cut point of a level that all have.
_CERTAIN = -6.0
_TOGETHER = 4096
# Passes over a block that settle it on the margins.
_ROUNDS = 5
# The first of the words that round the counts: where no normal of any row is drawn from.
_ROUNDING = 0xFFFFFFFF << 32


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
    from sklar.fitting.nearest import nearest
    from sklar.fitting.tetrachoric import thresholds

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
    # Threads of a decomposition wait for each other: on a busy machine they take many times as long as one.
    with undivided():
        weights = np.sqrt(np.maximum(rarity[own], 1e-6)) if weighted else None
        repair = nearest(raw, floor=_FLOOR, weights=weights, tolerance=_ACCURACY)
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
    from sklar.fitting.tetrachoric import tetrachoric_matrix

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
    from sklar.draw.winners import correlated, settle
    from sklar.fitting.tetrachoric import thresholds

    cuts = np.full(levels.size, np.inf)
    first = schema.offsets[:-1][schema.sizes == 2]
    share = levels[first] / (levels[first] + levels[first + 1])
    # A level that nobody has is cut off at infinity; the other needs a cut point all the same.
    cuts[first] = np.maximum(thresholds(share), _CERTAIN)
    cuts[first + 1] = np.maximum(thresholds(1 - share), _CERTAIN)

    larger = np.flatnonzero(schema.sizes != 2)
    own = [start + np.flatnonzero(levels[start:stop] > 0) for start, stop in zip(*_spans(schema, larger), strict=True)]
    shares = [levels[each] / levels[each].sum() for each in own]
    independent = _in_groups(_independent_cuts, shares)
    slopes = _in_groups(_slopes, independent)

    def calibrated(place: int) -> NDArray[np.float64]:
        alone = independent[place]
        if alone.size < 2:
            return alone
        rows = factor[own[place]].astype(np.float64)
        within = np.linalg.cholesky(rows @ rows.T).astype(np.float32)
        apart = _differences(within, [np.arange(alone.size)])
        drawn = correlated(apart, _CALIBRATION_ROWS, int(larger[place]), _CALIBRATION_SEED)
        won, settled = np.empty(_CALIBRATION_ROWS, dtype=np.uint16), np.empty(alone.size)
        settle(drawn, 0, alone, shares[place] * _CALIBRATION_ROWS, slopes[place], 15, won, settled)
        return settled

    for place, settled in enumerate(side_by_side(calibrated, range(larger.size))):
        cuts[own[place]] = settled
    return cuts


def _spans(schema: Schema, attributes: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Where the levels of these attributes begin and end among all levels."""
    return schema.offsets[attributes].tolist(), schema.offsets[attributes + 1].tolist()


def _in_groups(
    work: Callable[[NDArray[np.float64]], NDArray[np.float64]], parts: list[NDArray[np.float64]]
) -> list[NDArray[np.float64]]:
    """`work` on every part, those of one size together as rows of one array: thousands of small calls would be slow."""
    alike: dict[int, list[int]] = {}
    for index, part in enumerate(parts):
        alike.setdefault(part.size, []).append(index)
    groups = [
        members[start : start + max(_TOGETHER // size, 1)]
        for size, members in alike.items()
        for start in range(0, len(members), max(_TOGETHER // size, 1))
    ]
    done = side_by_side(lambda group: work(np.stack([parts[index] for index in group])), groups)
    found = {
        index: row for group, rows in zip(groups, done, strict=True) for index, row in zip(group, rows, strict=True)
    }
    return [found[index] for index in range(len(parts))]


def _independent_cuts(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cut points as if the Y of one attribute were independent, shape (attributes, levels)."""
    from sklar.fitting.tetrachoric import thresholds

    c = thresholds(np.minimum(shares, 1 - 1e-9))
    for _ in range(60):
        chance, slope = _argmax_chances(c)
        # All cut points move at once and only differences count: were Y Gumbel, 1 - share would make it Newton's step.
        step = np.log(chance / shares) / slope * (1 - shares)
        c += np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-10:
            break
    return c


def _slopes(cuts: NDArray[np.float64]) -> NDArray[np.float64]:
    """How strongly the log chance of each level falls with its own cut point, as if the Y were independent."""
    return _argmax_chances(cuts)[1]


def _argmax_chances(c: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """P(k) = int phi(v + c_k) prod_{l != k} Phi(v + c_l) dv for independent normals, and -d log P(k) / d c_k.

    For many attributes of as many levels at once, shape (attributes, levels).
    """
    from scipy.special import log_ndtr

    # The trapezoidal rule converges exponentially on a smooth integrand that vanishes at both ends.
    low, high = -c.max(axis=1) - 9.0, -c.min(axis=1) + 9.0
    step = (high - low) / 399
    at = (low[:, None] + step[:, None] * np.arange(400))[:, :, None] + c[:, None, :]
    logs = log_ndtr(at)
    density = np.exp(-0.5 * at**2 - 0.5 * np.log(2 * np.pi) + logs.sum(axis=2, keepdims=True) - logs)
    chance = step[:, None] * density.sum(axis=1)
    return chance, np.maximum(step[:, None] * (at * density).sum(axis=1) / chance, 0.5)


def sample_binary(copula: BinaryCopula, rows: int, seed: int) -> Iterator[Codes | NDArray[np.bool_]]:
    """Blocks of codes, shape (m, rows of block), or of dummies, shape (d, rows of block); `rows` rows in all."""
    sampler = BinarySampler(copula)
    return in_order(lambda block: sampler.draw(seed, *block), blocks(rows))


class BinarySampler:
    """Draws any block of a copula's rows; whatever all blocks share is worked out once.

    Dummies need every Y. A record depends only on differences between the Y of one attribute, so that those between
    each level and the attribute's last one are drawn instead: jointly normal too, and one fewer per attribute, which
    is half of them where attributes are boolean. Levels that nobody has are left out.
    """

    def __init__(self, copula: BinaryCopula) -> None:
        # Here and not in a thread: compiled once, and the libraries loaded before threads limit those they know of.
        import sklar.draw.winners  # noqa: F401

        self._copula = copula
        self._scratch = threading.local()
        if copula.dummies:
            self._factor = np.asfortranarray(copula.factor)
            return
        offsets = copula.schema.offsets
        self._present = [_finite(copula.cuts[first:last]) for first, last in pairwise(offsets)]
        at = [first + present for first, present in zip(offsets[:-1], self._present, strict=True)]
        # In one thread: the same factor whatever the number of threads.
        (self._factor,) = side_by_side(lambda levels: _differences(copula.factor, levels), [at])
        sizes = np.array([levels.size for levels in at])
        first = np.cumsum(sizes - 1) - (sizes - 1)
        self._shares = [copula.levels[levels] / copula.levels[levels].sum() for levels in at]
        self._one, self._two, more = (np.flatnonzero(which) for which in (sizes == 1, sizes == 2, sizes > 2))
        cuts = [copula.cuts[at[index]] for index in more]
        self._more = list(zip(more.tolist(), first[more].tolist(), cuts, _in_groups(_slopes, cuts), strict=True))
        # Of two levels the first wins where their difference is above that of their cut points.
        between = np.array([-np.diff(copula.cuts[at[index]])[0] for index in self._two])
        sd = np.maximum(np.linalg.norm(self._factor[first[self._two]], axis=1), 1e-6).astype(np.float64)
        density = np.exp(-0.5 * (between / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
        self._between = (first[self._two], between, np.maximum(density, 1e-12))

    def draw(self, seed: int, block: int, rows: int) -> Codes | NDArray[np.bool_]:
        """A block of codes, shape (m, rows), or of dummies, shape (d, rows)."""
        from sklar.draw.normals import words
        from sklar.draw.winners import correlated, settle, settle_two

        drawn = correlated(self._factor, rows, block, seed, self._scratch)
        if self._copula.dummies:
            above = drawn > self._copula.cuts.astype(np.float32)[:, None]
            return np.ascontiguousarray(above.swapaxes(0, 1).reshape(len(self._copula.cuts), -1)[:, :rows])
        codes = empty_codes(self._copula.schema, rows)
        for index in self._one.tolist():
            codes[index] = self._present[index][0]
        # Settling each block on the margins takes most of the sampling error out of one-way counts.
        if self._two.size:
            chance = np.empty(-(-self._two.size // 4) * 4, dtype=np.uint32)
            words(chance, _ROUNDING, block, seed)
            wanted = np.array([self._shares[index][0] * rows for index in self._two])
            second = np.empty((self._two.size, rows), dtype=np.uint8)
            settle_two(drawn, *self._between, wanted, chance, _ROUNDS, second)
            codes[self._two] = second
            for place, index in enumerate(self._two.tolist()):
                if self._present[index][1] != 1:
                    codes[index] = self._present[index][second[place]]
        won = np.empty(rows, dtype=np.uint16)
        for index, first, cuts, slopes in self._more:
            settle(drawn, first, cuts, self._shares[index] * rows, slopes, _ROUNDS, won, np.empty(cuts.size))
            present = self._present[index]
            codes[index] = won if present[-1] == present.size - 1 else present[won]
        return codes


def draw_records(copula: BinaryCopula, rows: int, generator: np.random.Generator) -> NDArray[np.int32]:
    """Codes of so many independent records, shape (m, rows), at the fitted cut points."""
    exceed = copula.factor @ generator.standard_normal((copula.cuts.size, rows), dtype=np.float32)
    exceed -= copula.cuts.astype(np.float32)[:, None]
    won = [exceed[start:stop].argmax(axis=0) for start, stop in pairwise(copula.schema.offsets)]
    return np.stack(won).astype(np.int32)


def _finite(cuts: NDArray[np.float64]) -> NDArray[np.int64]:
    """The levels that can win; the first one where a damaged model leaves none."""
    return np.flatnonzero(np.isfinite(cuts)) if np.isfinite(cuts).any() else np.zeros(1, dtype=np.int64)


def _differences(factor: NDArray[np.float32], levels: list[NDArray[np.int64]]) -> NDArray[np.float32]:
    """A factor of the covariance of Y_k - Y_l, for all of an attribute's levels k but its last one, l.

    The differences are A factor @ normals for a matrix A, and (A factor)^T = Q R gives them the covariance R^T R.
    """
    rows = np.concatenate([own[:-1] for own in levels])
    last = np.concatenate([np.full(own.size - 1, own[-1]) for own in levels])
    upper = np.asarray(np.linalg.qr((factor[rows] - factor[last]).T, mode="r"))
    return np.asfortranarray(upper.T)
