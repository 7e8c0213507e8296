"""Numbers to probabilities, in one place: the nearest point of the simplex, or the same numbers over their sum."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklar.kernel.cells import Cells


def project(points: NDArray[np.float64], sums: ArrayLike = 1.0) -> NDArray[np.float64]:
    """The nearest points with non-negative entries and these sums, along the last axis (Held, Wolfe, Crowder 1974).

    `sums` has the shape of `points` with a last axis of length 1, or is one number for all.

    >>> project(np.array([0.8, 0.6, -0.2])).round(3).tolist()
    [0.6, 0.4, 0.0]
    """
    ordered = np.sort(points, axis=-1)[..., ::-1]
    excess = (np.cumsum(ordered, axis=-1) - np.asarray(sums)) / np.arange(1, points.shape[-1] + 1)
    # The entries that stay positive are the largest ones, and the first one does unless all must vanish.
    kept = np.count_nonzero(ordered > excess, axis=-1)[..., None].clip(1)
    return np.asarray(np.maximum(points - np.take_along_axis(excess, kept - 1, axis=-1), 0.0))


def project_levels(levels: NDArray[np.float64], cells: Cells) -> NDArray[np.float64]:
    """Every attribute's levels moved to the nearest probabilities, shape (d,)."""
    projected = np.empty_like(levels)
    for size in np.unique(cells.sizes):
        # Attributes of one size together.
        at = cells.offsets[:-1][cells.sizes == size][:, None] + np.arange(size)
        projected[at] = project(levels[at])
    return projected


def scale_levels(weights: NDArray[np.float64], cells: Cells) -> NDArray[np.float64]:
    """Weights of levels, shape (..., d), divided by their sum within each attribute."""
    totals = np.add.reduceat(weights, cells.offsets[:-1], axis=-1)
    return np.asarray(weights / totals[..., cells.attribute_of_level])
