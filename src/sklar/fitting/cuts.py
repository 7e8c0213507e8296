"""Cut points of the binary copula: of single levels, and of records, where one level of an attribute wins."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri

from sklar.kernel.cells import Cells
from sklar.machine.threads import side_by_side

_CALIBRATION_ROWS = 1 << 16
_CALIBRATION_SEED = 20_200_619
# The cut point of a level that all have.
_CERTAIN = -6.0
_TOGETHER = 4096


def thresholds(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cut points t with P(Y > t) = p for a standard normal Y (the paper's quasi-inverse of F).

    A level nobody has (p = 0) is never drawn: its cut point is +inf.

    >>> thresholds(np.array([0.5, 0.0])).tolist()
    [-0.0, inf]
    """
    # ndtri(1 - p) loses every digit of a small p; -ndtri(p) keeps them.
    return np.asarray(-ndtri(probabilities))


def calibrate(cells: Cells, levels: NDArray[np.float64], factor: NDArray[np.float32]) -> NDArray[np.float64]:
    """Cut points c, shape (d,), with P(argmax of Y_k - c_k = k) = p_k within each attribute.

    Two levels: exactly. More: first as if the Y of one attribute were independent, by quadrature, which is accurate for
    rare levels too; then, as the repair leaves some correlation between them, corrected on a fixed simulated sample.
    """
    from sklar.draw.winners import correlated, differences, settle

    cuts = np.full(levels.size, np.inf)
    first = cells.offsets[:-1][cells.sizes == 2]
    share = levels[first] / (levels[first] + levels[first + 1])
    # A level that nobody has is cut off at infinity; the other needs a cut point all the same.
    cuts[first] = np.maximum(thresholds(share), _CERTAIN)
    cuts[first + 1] = np.maximum(thresholds(1 - share), _CERTAIN)

    larger = np.flatnonzero(cells.sizes != 2)
    own = [cells.offsets[each] + np.flatnonzero(levels[cells.levels(each)] > 0) for each in larger.tolist()]
    shares = [levels[each] / levels[each].sum() for each in own]
    independent = _in_groups(_independent_cuts, shares)
    steepness = slopes(independent)

    def calibrated(place: int) -> NDArray[np.float64]:
        alone = independent[place]
        if alone.size < 2:
            return alone
        rows = factor[own[place]].astype(np.float64)
        within = np.linalg.cholesky(rows @ rows.T).astype(np.float32)
        apart = differences(within, [np.arange(alone.size)])
        drawn = correlated(apart, _CALIBRATION_ROWS, int(larger[place]), _CALIBRATION_SEED)
        won, settled = np.empty(_CALIBRATION_ROWS, dtype=np.uint16), np.empty(alone.size)
        settle(drawn, 0, alone, shares[place] * _CALIBRATION_ROWS, steepness[place], 15, won, settled)
        return settled

    for place, settled in enumerate(side_by_side(calibrated, range(larger.size))):
        cuts[own[place]] = settled
    return cuts


def slopes(cuts: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """How strongly the log chance of each level falls with its own cut point, as if the Y were independent.

    One array of shape (levels,) per attribute.
    """
    return _in_groups(lambda alike: _argmax_chances(alike)[1], cuts)


def _in_groups(
    work: Callable[[NDArray[np.float64]], NDArray[np.float64]], parts: list[NDArray[np.float64]]
) -> list[NDArray[np.float64]]:
    """`work` on every part. Parts of one size are rows of one array: thousands of small calls would be slow."""
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
    c = thresholds(np.minimum(shares, 1 - 1e-9))
    for _ in range(60):
        chance, slope = _argmax_chances(c)
        # All cut points move at once and only differences count: were Y Gumbel, 1 - share would make it Newton's step.
        step = np.log(chance / shares) / slope * (1 - shares)
        c += np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-10:
            break
    return c


def _argmax_chances(c: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """P(k) = int phi(v + c_k) prod_{l != k} Phi(v + c_l) dv for independent normals, and -d log P(k) / d c_k.

    For many attributes with the same number of levels at once, shape (attributes, levels).
    """
    # The trapezoidal rule converges exponentially on a smooth integrand that vanishes at both ends.
    low, high = -c.max(axis=1) - 9.0, -c.min(axis=1) + 9.0
    step = (high - low) / 399
    at = (low[:, None] + step[:, None] * np.arange(400))[:, :, None] + c[:, None, :]
    logs = log_ndtr(at)
    density = np.exp(-0.5 * at**2 - 0.5 * np.log(2 * np.pi) + logs.sum(axis=2, keepdims=True) - logs)
    chance = step[:, None] * density.sum(axis=1)
    return chance, np.maximum(step[:, None] * (at * density).sum(axis=1) / chance, 0.5)
