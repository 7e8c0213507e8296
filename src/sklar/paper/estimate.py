"""Noisy tables to the paper's copula (Eqs 5-7 and Algorithm 4), and cut points at which records hold the margins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sklar.fitting.denoise import Residuals, shrink
from sklar.fitting.margins import Estimates, margins
from sklar.kernel.cells import Cells, Doubles, Floats, Ints
from sklar.machine.threads import side_by_side, undivided
from sklar.paper.gaussian import BinaryCopula, Repairs
from sklar.paper.nearest import nearest
from sklar.paper.tetrachoric import tetrachoric_matrix, thresholds
from sklar.paper.winners import argmax_chances, correlated, differences, in_groups, settle, slopes
from sklar.public.schema import Schema

_FLOOR = 1e-6
# Noise moves correlations by hundredths; further steps of their repair would move none by a thousandth.
_ACCURACY = 1e-6
_CALIBRATION_ROWS = 1 << 16
_CALIBRATION_SEED = 20_200_619
# The cut point of a level that all have.
_CERTAIN = -6.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probabilities:
    """Estimated probabilities of levels, shape (d,), and of pairs of levels, shape (n_cells,), laid out by `cells`."""

    cells: Cells
    levels: Doubles
    pairs: Doubles


def read_tables(estimates: Estimates, *, paper: bool) -> Probabilities:
    """Noisy counts as probabilities: clipped, over n, as the paper has them (Algorithms 1 and 2, soundly).

    Else margins come from all tables together, on the simplex, and two-way tables are shrunk toward independence.
    """
    cells, n = estimates.cells, estimates.n_rows
    if paper:
        levels, pairs = estimates.one_way / n, estimates.pairs / n
    else:
        levels, pairs = margins(estimates), np.empty(cells.n_cells)

        def fill(members: Ints) -> None:
            tables = Residuals(estimates, levels, members)
            pairs[tables.places] = tables.independent + shrink(tables.centered, tables.sd)

        side_by_side(fill, cells.alike())
    return Probabilities(cells=cells, levels=np.clip(levels, 0.0, 1.0), pairs=np.clip(pairs, 0.0, 1.0))


def fit_binary(probabilities: Probabilities, schema: Schema, *, dummies: bool, weighted: bool) -> BinaryCopula:
    """Fit the copula.

    Dummies keep the paper's structural zeros: correlation -1 between levels of one attribute. Records get exclusiveness
    from the decoding, so that it is 0 instead, but -1 between two levels. `weighted` weighs the repair by the square
    root of the levels' probabilities: rare levels give way first.
    """
    cells, levels = probabilities.cells, probabilities.levels
    # Noise can clip every level of an attribute to zero; a record needs one all the same.
    empty = np.add.reduceat(levels, cells.offsets[:-1]) <= 0
    if not dummies and empty.any():
        attribute = cells.attribute_of_level
        levels = np.where(empty[attribute], 1 / cells.sizes[attribute], levels)
    mirrors = np.zeros(0, dtype=np.int64) if dummies else cells.offsets[:-1][cells.sizes == 2] + 1
    own = np.delete(np.arange(levels.size), mirrors)
    r, clipped = tetrachoric_matrix(probabilities.levels[own], cells.square(probabilities.pairs)[own[:, None], own])
    if not dummies:
        attribute = cells.attribute_of_level[own]
        r[attribute[:, None] == attribute] = 0.0
        np.fill_diagonal(r, 1.0)
    rarity = levels.copy()
    rarity[mirrors - 1] = np.minimum(levels[mirrors - 1], levels[mirrors])
    # Threads of a decomposition wait for each other: on a busy machine they take many times as long as one.
    with undivided():
        weights = np.sqrt(np.maximum(rarity[own], 1e-6)) if weighted else None
        repair = nearest(r, floor=_FLOOR, weights=weights, tolerance=_ACCURACY)
        triangle = np.linalg.cholesky(repair.correlation).astype(np.float32)
    factor = np.zeros((levels.size, levels.size), dtype=np.float32)
    factor[own[:, None], own] = triangle
    factor[mirrors] = -factor[mirrors - 1]
    return BinaryCopula(
        schema=schema,
        dummies=dummies,
        levels=levels,
        cuts=thresholds(levels) if dummies else calibrate(cells, levels, factor),
        factor=factor,
        repairs=Repairs(
            clipped_pairs=clipped,
            empty_attributes=0 if dummies else int(empty.sum()),
            negative_eigenvalues=repair.negative_eigenvalues,
            moved=repair.moved,
            max_moved=repair.max_moved,
        ),
    )


def calibrate(cells: Cells, levels: Doubles, factor: Floats) -> Doubles:
    """Cut points c, shape (d,), with P(argmax of Y_k - c_k = k) = p_k within each attribute.

    Two levels: exactly. More: as if their Y were independent, by quadrature, which is accurate for rare levels too;
    then corrected on a fixed simulated sample, as the repair leaves some correlation.
    """
    cuts = np.full(levels.size, np.inf)
    first = cells.offsets[:-1][cells.sizes == 2]
    share = levels[first] / (levels[first] + levels[first + 1])
    # A level that nobody has is cut off at infinity; the other needs a cut point all the same.
    cuts[first] = np.maximum(thresholds(share), _CERTAIN)
    cuts[first + 1] = np.maximum(thresholds(1 - share), _CERTAIN)

    larger = np.flatnonzero(cells.sizes != 2)
    own = [cells.offsets[each] + np.flatnonzero(levels[cells.levels(each)] > 0) for each in larger.tolist()]
    shares = [levels[each] / levels[each].sum() for each in own]
    independent = in_groups(_independent_cuts, shares)
    steepness = slopes(independent)

    def calibrated(place: int) -> Doubles:
        alone = independent[place]
        if alone.size < 2:
            return alone
        rows = factor[own[place]].astype(np.float64)
        within = np.linalg.cholesky(rows @ rows.T).astype(np.float32)
        apart = differences(within, [np.arange(alone.size)])
        drawn = correlated(apart, _CALIBRATION_ROWS, int(larger[place]), _CALIBRATION_SEED)
        won, settled = np.empty(_CALIBRATION_ROWS, dtype=np.uint16), np.empty(alone.size)
        goals = np.stack([alone, shares[place] * _CALIBRATION_ROWS, steepness[place]])
        settle(drawn, 0, goals, 15, won, settled)
        return settled

    for place, settled in enumerate(side_by_side(calibrated, range(larger.size))):
        cuts[own[place]] = settled
    return cuts


def _independent_cuts(shares: Doubles) -> Doubles:
    """Cut points as if the Y of one attribute were independent, shape (attributes, levels)."""
    c = thresholds(np.minimum(shares, 1 - 1e-9))
    for _ in range(60):
        chance, slope = argmax_chances(c)
        # All cut points move at once and only differences count: were Y Gumbel, 1 - share would make it Newton's step.
        step = np.log(chance / shares) / slope * (1 - shares)
        c += np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-10:
            break
    return c
