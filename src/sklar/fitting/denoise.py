"""Noisy tables to the tables that a latent model is fitted to: post-processing.

Margins come from all tables together. Where domains are large and rows few, empirical Bayes may shrink them. Each
two-way table then has two readings with these margins: `noisy`, unbiased and possibly negative, and `shrunk`, with less
noise and some bias. A fit's target mixes the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sklar.fitting.margins import Estimates, Residuals, average_margins, shrink
from sklar.fitting.simplex import project_levels
from sklar.kernel.cells import Cells
from sklar.machine.compiled import compiled
from sklar.machine.spill import room_for
from sklar.machine.threads import side_by_side

# Margins whose noise is expected to cost more total variation than this are tried with empirical Bayes.
LARGE_TV = 0.02

Prior = Literal["none", "shared", "own"]
PRIORS: tuple[Prior, ...] = get_args(Prior)

# Cells of all tables up to which NumPy moves them to their margins sooner than compiled code is there.
PLAIN_CELLS = 500_000
_AT_ONCE = 1 << 22
_DYKSTRA_ROUNDS = 30
_FITTING_SWEEPS = 5
_GRID = 120
_EM_ROUNDS = 120
_SPLITS = 6
_GAIN = 0.5
_SEED = 20_260_103


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Margins:
    """Probabilities of levels, shape (d,), each attribute on the simplex, and each attribute's prior, of `PRIORS`."""

    levels: NDArray[np.float64]
    priors: tuple[Prior, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Targets:
    """Two readings of every two-way table, as probabilities with the margins `levels`, shape (n_cells,) each.

    `noisy` is unbiased, `shrunk` non-negative. `precision`, shape (m, m), weighs the squared errors of a table's cells:
    inverse variances of their noise with mean 1 over pairs, zero on the diagonal. `noise` is the variance of the noise
    in a cell, as a probability, of a table with precision 1.
    """

    cells: Cells
    levels: NDArray[np.float64]
    noisy: NDArray[np.float32]
    shrunk: NDArray[np.float32]
    precision: NDArray[np.float64]
    noise: float

    def mixed(self, shrinkage: float) -> NDArray[np.float32]:
        """What to fit: `shrinkage` of the shrunk tables and the rest of the noisy ones."""
        weight = np.float32(shrinkage)
        if shrinkage == 0:
            return self.noisy
        mixed: NDArray[np.float32] = room_for(self.noisy.size, np.float32)
        # In pieces: what is added up on the way would take as much room again.
        for start in range(0, mixed.size, _AT_ONCE):
            run = slice(start, start + _AT_ONCE)
            mixed[run] = self.noisy[run] + weight * (self.shrunk[run] - self.noisy[run])
        return mixed


def denoise_margins(estimates: Estimates) -> Margins:
    """Margins from all tables: projected on the simplex, or an empirical-Bayes mean where thinning prefers it.

    Only attributes whose expected total variation, 0.4 K sd / n, exceeds `LARGE_TV` are candidates. Their prior is
    shared by all of them or their own; thinned halves of the averaged margins decide for each, by squared error, at no
    privacy cost.
    """
    cells, n = estimates.cells, estimates.n_rows
    average, sd = average_margins(estimates)
    large = 0.4 * cells.sizes * sd / n > LARGE_TV
    prior = np.zeros(cells.n_attributes, dtype=np.int64)
    if large.any():
        attribute, starts = cells.attribute_of_level, cells.offsets[:-1]
        generator = np.random.Generator(np.random.SFC64(_SEED))
        drawn = sd[attribute] * generator.standard_normal((_SPLITS, average.size))

        def errors(z: NDArray[np.float64]) -> NDArray[np.float64]:
            z = z - (np.add.reduceat(z, starts) / cells.sizes)[attribute]
            held = (average - z / _GAIN) / n
            candidates = _candidates(average + _GAIN * z, sd * np.sqrt(1 + _GAIN**2), large, cells, n)
            return np.add.reduceat((candidates - held) ** 2, starts, axis=1)

        prior = np.argmin(np.sum(side_by_side(errors, drawn), axis=0), axis=0)
        levels = _candidates(average, sd, large, cells, n)[prior[attribute], np.arange(average.size)]
    else:
        levels = project_levels(average / n, cells)
    return Margins(levels=levels, priors=tuple(PRIORS[each] for each in prior))


def _candidates(
    average: NDArray[np.float64], sd: NDArray[np.float64], large: NDArray[np.bool_], cells: Cells, n: int
) -> NDArray[np.float64]:
    """Margins with each of `PRIORS`, shape (3, d). Attributes that are not large are projected in all of them."""
    projected = project_levels(average / n, cells)
    candidates = np.stack([projected] * len(PRIORS))
    within, sizes = large[cells.attribute_of_level], cells.sizes[large]
    observed, spread = average[within], np.repeat(sd[large], sizes)
    starts = np.cumsum(sizes) - sizes
    candidates[1, within] = posterior_means(observed, spread, np.zeros(1, dtype=np.int64))
    candidates[2, within] = posterior_means(observed, spread, starts)
    for each in candidates[1:]:
        totals = np.repeat(np.add.reduceat(each[within], starts), sizes)
        # A prior that holds nothing but zero has nothing to say.
        each[within] = np.where(totals > 0, each[within] / np.where(totals > 0, totals, 1.0), projected[within])
    return candidates


def posterior_means(
    observed: NDArray[np.float64], sd: NDArray[np.float64], starts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Empirical-Bayes means of non-negative quantities seen with Gaussian noise of known sds, shape (k,).

    Each group, from one of `starts` to the next, has a prior of its own: the non-parametric maximum-likelihood one on a
    grid (Kiefer and Wolfowitz 1956; Jiang and Zhang 2009), found by EM.
    """
    top = np.maximum(np.maximum.reduceat(observed, starts), np.maximum.reduceat(sd, starts))
    # Finer near zero, where most levels of a large domain are.
    grids = top[:, None] * np.linspace(0.0, 1.0, _GRID) ** 2
    ends = np.append(starts[1:], observed.size)
    grid = np.repeat(grids, ends - starts, axis=0)
    likelihood = -0.5 * ((observed[:, None] - grid) / sd[:, None]) ** 2
    likelihood -= likelihood.max(axis=1, keepdims=True)
    np.exp(likelihood, out=likelihood)
    _weigh_by_prior(likelihood, starts, ends)
    return np.asarray((likelihood * grid).sum(axis=1) / likelihood.sum(axis=1))


def _weigh_by_prior(likelihood: NDArray[np.float64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
    """Likelihoods on the grid, shape (k, grid), times each group's prior, in place."""
    sizes, n = ends - starts, likelihood.shape[1]
    for size in np.unique(sizes):
        # Groups of one size together.
        at = starts[sizes == size][:, None] + np.arange(size)
        own = likelihood[at]
        prior = np.full((len(at), n, 1), 1 / n)
        for _ in range(_EM_ROUNDS):
            prior *= own.transpose(0, 2, 1) @ (1 / (own @ prior)) / size
        likelihood[at] = own * prior[:, None, :, 0]


def denoise_tables(estimates: Estimates, levels: NDArray[np.float64]) -> Targets:
    """Both readings of every two-way table, with the given margins."""
    cells = estimates.cells
    noisy, shrunk = (room_for(cells.n_cells, np.float32) for _ in range(2))

    def fill(members: NDArray[np.int64]) -> None:
        tables = Residuals.of(estimates, levels, members)
        noisy[tables.places] = tables.independent + tables.centered
        shrunk[tables.places] = _fitted(tables, cells)

    side_by_side(fill, cells.alike())
    return Targets(
        cells=cells,
        levels=levels,
        noisy=noisy,
        shrunk=shrunk,
        precision=relative_precision(cells, estimates.pair_sd),
        noise=float(1 / np.mean(estimates.pair_sd**-2.0)) / estimates.n_rows**2 if cells.n_pairs else 0.0,
    )


def relative_precision(cells: Cells, pair_sd: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inverse variances of all pairs over their mean, shape (m, m), symmetric; zero on the diagonal."""
    precision = pair_sd**-2.0
    return cells.symmetric(precision / precision.mean() if precision.size else precision)


def interactions(estimates: Estimates, levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """The L1 distance, in rows, of every denoised two-way table from independence, shape (n_pairs,)."""
    cells = estimates.cells
    distances = np.zeros(cells.n_pairs)

    def measure(members: NDArray[np.int64]) -> None:
        tables = Residuals.of(estimates, levels, members)
        distances[members] = np.abs(_fitted(tables, cells) - tables.independent).sum(axis=(1, 2)) * estimates.n_rows

    side_by_side(measure, cells.alike())
    return distances


def _fitted(tables: Residuals, cells: Cells) -> NDArray[np.float64]:
    """Tables with their singular values shrunk, non-negative and with their margins."""
    fitted = tables.independent + shrink(tables.centered, tables.sd)
    fit = fit_margins if cells.n_cells <= PLAIN_CELLS else fit_margins_fast
    fit(fitted, tables.rows, tables.columns)
    return fitted


def fit_margins(tables: NDArray[np.float64], rows: NDArray[np.float64], columns: NDArray[np.float64]) -> None:
    """Move tables to the nearest non-negative ones with these margins, shapes (t, r, c), (t, r) and (t, c).

    Dykstra's alternating projections come near; a few sweeps of proportional fitting make the margins all but exact.
    """
    correction, r, c = np.zeros_like(tables), *tables.shape[1:]
    for _ in range(_DYKSTRA_ROUNDS):
        over_rows = (rows - tables.sum(axis=2)) / c
        over_columns = (columns - tables.sum(axis=1)) / r
        over_rows -= over_rows.mean(axis=1, keepdims=True)
        tables += correction
        tables += over_rows[:, :, None]
        tables += over_columns[:, None, :]
        # What is cut off is never positive: where nothing is, the projections agree.
        np.minimum(tables, 0.0, out=correction)
        tables -= correction
        if not correction.any():
            break
    # A cell that proportional fitting may need must not be zero.
    tables += 1e-9 * rows[:, :, None] * columns[:, None, :]
    for _ in range(_FITTING_SWEEPS):
        for axis, wanted in ((2, rows[:, :, None]), (1, columns[:, None, :])):
            total = tables.sum(axis=axis, keepdims=True)
            tables *= np.divide(wanted, total, out=np.zeros_like(total), where=total > 0)


@compiled(
    "void(float64[:, :, ::1], float64[:, ::1], float64[:, ::1])",
    error_model="numpy",
    fastmath={"contract", "reassoc"},
)
def fit_margins_fast(tables: NDArray[np.float64], rows: NDArray[np.float64], columns: NDArray[np.float64]) -> None:
    """Do the same as `fit_margins`, in compiled code."""
    r, c = tables.shape[1:]
    correction, over_rows, over_columns = np.empty((r, c)), np.empty(r), np.empty(c)
    for t in range(tables.shape[0]):
        point = tables[t]
        correction[:] = 0.0
        for _ in range(_DYKSTRA_ROUNDS):
            for j in range(c):
                over_columns[j] = columns[t, j]
            over = 0.0
            for i in range(r):
                total = 0.0
                for j in range(c):
                    total += point[i, j]
                    over_columns[j] -= point[i, j]
                over_rows[i] = (rows[t, i] - total) / c
                over += over_rows[i] / r
            corrected = 0.0
            for i in range(r):
                for j in range(c):
                    shifted = point[i, j] + over_rows[i] + over_columns[j] / r - over + correction[i, j]
                    point[i, j] = max(shifted, 0.0)
                    correction[i, j] = shifted - point[i, j]
                    corrected += correction[i, j]
            # Corrections are never positive: without any, the projections agree.
            if corrected == 0.0:
                break
        for i in range(r):
            for j in range(c):
                # A cell that proportional fitting may need must not be zero.
                point[i, j] += 1e-9 * rows[t, i] * columns[t, j]
        for _ in range(_FITTING_SWEEPS):
            over_columns[:] = 0.0
            for i in range(r):
                total = 0.0
                for j in range(c):
                    total += point[i, j]
                scale = rows[t, i] / total if total > 0 else 0.0
                for j in range(c):
                    point[i, j] *= scale
                    over_columns[j] += point[i, j]
            for j in range(c):
                over_columns[j] = columns[t, j] / over_columns[j] if over_columns[j] > 0 else 0.0
            for i in range(r):
                for j in range(c):
                    point[i, j] *= over_columns[j]
