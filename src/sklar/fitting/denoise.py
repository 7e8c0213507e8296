"""Noisy tables to the tables that a latent model is fitted to: post-processing.

Each two-way table has two readings: `noisy`, unbiased and possibly negative, and `shrunk`, with less noise and some
bias. A fit mixes the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from sklar.fitting.margins import Estimates, average_margins, implied_counts, project_levels, with_alike
from sklar.kernel.cells import Cells, Doubles, Floats, Ints
from sklar.machine.spill import room_for
from sklar.machine.threads import side_by_side

# Margins whose noise is expected to cost more total variation than this are tried with empirical Bayes.
LARGE_TV = 0.02

Prior = Literal["none", "shared", "own"]
PRIORS: tuple[Prior, ...] = get_args(Prior)

_AT_ONCE = 1 << 22
# Cells of tables that are moved to their margins together: they stay in the cache.
_CACHED = 65_536
_DYKSTRA_ROUNDS, _FITTING_SWEEPS = 30, 5
_GRID, _EM_ROUNDS = 120, 120
_SHARPENING_ROUNDS = 3
_SPLITS, _GAIN, _SEED = 6, 0.5, 20_260_103


class Margins(NamedTuple):
    """Probabilities of levels, shape (d,), each attribute on the simplex, and each attribute's prior, of `PRIORS`."""

    levels: Doubles
    priors: tuple[Prior, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Targets:
    """Two readings of every two-way table, as probabilities with the margins `levels`, shape (n_cells,) each.

    `precision`, shape (m, m), has inverse variances of the tables' noise over their mean, zero on the diagonal.
    """

    cells: Cells
    levels: Doubles
    noisy: Floats
    shrunk: Floats
    precision: Doubles

    def mixed(self, shrinkage: float) -> Floats:
        """What to fit: `shrinkage` of the shrunk tables and the rest of the noisy ones."""
        if shrinkage == 0:
            return self.noisy
        mixed: Floats = room_for(self.noisy.size, np.float32)
        for run in (slice(start, start + _AT_ONCE) for start in range(0, mixed.size, _AT_ONCE)):
            mixed[run] = self.noisy[run] + np.float32(shrinkage) * (self.shrunk[run] - self.noisy[run])
        return mixed


def denoise_margins(estimates: Estimates) -> Margins:
    """Margins from all tables: projected on the simplex, or an empirical-Bayes mean where thinning prefers it.

    Candidates are attributes whose expected total variation, 0.4 K sd / n, exceeds `LARGE_TV`. Thinned halves of the
    averaged margins decide by squared error whether their prior is shared, their own or none.
    """
    cells, n = estimates.cells, estimates.n_rows
    average, sd = sharpened(estimates)
    large = 0.4 * cells.sizes * sd / n > LARGE_TV
    prior = np.zeros(cells.n_attributes, dtype=np.int64)
    if large.any():
        attribute, starts = cells.attribute_of_level, cells.offsets[:-1]
        generator = np.random.Generator(np.random.SFC64(_SEED))
        drawn = sd[attribute] * generator.standard_normal((_SPLITS, average.size))

        def errors(z: Doubles) -> Doubles:
            z = z - (np.add.reduceat(z, starts) / cells.sizes)[attribute]
            held = (average - z / _GAIN) / n
            candidates = _candidates(average + _GAIN * z, sd * np.sqrt(1 + _GAIN**2), large, cells, n)
            return np.add.reduceat((candidates - held) ** 2, starts, axis=1)

        prior = np.argmin(np.sum(side_by_side(errors, drawn), axis=0), axis=0)
        levels = _candidates(average, sd, large, cells, n)[prior[attribute], np.arange(average.size)]
    else:
        levels = project_levels(average / n, cells)
    return Margins(levels=levels, priors=tuple(PRIORS[each] for each in prior))


def sharpened(estimates: Estimates) -> tuple[Doubles, Doubles]:
    """`average_margins`, and what interactions say of margins where they are hardly more than noise.

    With f = p - 1 / K a centered pair table is f_i f_j^T + R + noise, where R is what depends. So its product with f_j,
    over |f_j|^2, is another estimate of f_i, of variance sigma^2 (1 + rho (K_j - 1)) / |f_j|^2: rho is how large R is
    beside the noise, the excess of chi-square over its degrees of freedom, one sd more than seen. In each of
    `_SHARPENING_ROUNDS` all estimates are averaged by inverse variance.
    """
    cells, n, attribute = estimates.cells, estimates.n_rows, estimates.cells.attribute_of_level
    average, sd = average_margins(estimates)
    if estimates.crossed or not cells.n_pairs:
        return average, sd
    squares, (first, second), starts = np.zeros(cells.n_pairs), cells.pairs, cells.offsets[:-1]

    def measure(members: Ints) -> None:
        squares[members] = (center(estimates.pairs[cells.places(members)]) ** 2).sum(axis=(1, 2))

    with_alike(cells, measure)
    degrees = np.maximum((cells.sizes[first] - 1) * (cells.sizes[second] - 1), 1)
    even, direct = n / cells.sizes, sd**-2.0
    own = average - even[attribute]
    found, whole = own, direct
    for _ in range(_SHARPENING_ROUNDS):
        products = implied_counts(estimates.pairs, cells, found / n)
        products -= (np.add.reduceat(products, starts, axis=0) / cells.sizes[:, None])[attribute]
        # Of f_j in shares of rows; an attribute with even margins says nothing of others.
        lengths = np.maximum(np.add.reduceat((found / n) ** 2, starts), 1e-12)
        cross = np.add.reduceat((found / n)[:, None] * products, starts, axis=0)[first, second]
        excess = squares - 2 * n * cross + n**2 * lengths[first] * lengths[second]
        rho = np.maximum(excess * estimates.pair_sd**-2.0 / degrees - 1 + np.sqrt(2 / degrees), 0)
        weights = cells.symmetric(estimates.pair_sd**-2.0) / (1 + cells.symmetric(rho) * (cells.sizes - 1))
        whole = direct + weights @ lengths
        found = own * (direct / whole)[attribute]
        found += np.einsum("ij,ij->i", products, (weights / whole[:, None])[attribute])
    return found + even[attribute], whole**-0.5


def _candidates(average: Doubles, sd: Doubles, large: NDArray[np.bool_], cells: Cells, n: int) -> Doubles:
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


def posterior_means(observed: Doubles, sd: Doubles, starts: Ints) -> Doubles:
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
    sizes = ends - starts
    for size in np.unique(sizes):
        at = starts[sizes == size][:, None] + np.arange(size)
        own, prior = likelihood[at], np.full((len(at), _GRID, 1), 1 / _GRID)
        for _ in range(_EM_ROUNDS):
            prior *= own.transpose(0, 2, 1) @ (1 / (own @ prior)) / size
        likelihood[at] = own * prior[:, None, :, 0]
    return np.asarray((likelihood * grid).sum(axis=1) / likelihood.sum(axis=1))


class PairTables:
    """Two-way tables of one group of `Cells.alike`, (tables, rows, columns): independence, and the centered rest."""

    def __init__(self, estimates: Estimates, levels: Doubles, members: Ints) -> None:
        cells, n = estimates.cells, estimates.n_rows
        self.places = cells.places(members)
        first, second = (each[members] for each in cells.pairs)
        self._rows = levels[cells.offsets[first][:, None] + np.arange(self.places.shape[1])]
        self._columns = levels[cells.offsets[second][:, None] + np.arange(self.places.shape[2])]
        self.independent = self._rows[:, :, None] * self._columns[:, None, :]
        self.centered = center(estimates.pairs[self.places] / n - self.independent)
        self.sd = estimates.pair_sd[members] / n

    def fitted(self) -> Doubles:
        """Tables with their singular values shrunk, non-negative and with their margins."""
        return fit_margins(self.independent + shrink(self.centered, self.sd), self._rows, self._columns)


def center(tables: Doubles) -> Doubles:
    """Tables, shape (tables, rows, columns), less the means of their rows and of their columns."""
    centered = tables - tables.mean(axis=1, keepdims=True)
    centered -= centered.mean(axis=2, keepdims=True)
    return np.asarray(centered)


def shrink(centered: Doubles, sd: Doubles) -> Doubles:
    """Denoised interactions of tables of one shape, (tables, rows, columns), with noise of these sds on their cells.

    Centered both ways, noise is white on (rows - 1) x (columns - 1) dimensions. Singular values are shrunk optimally
    (Gavish and Donoho 2017, Frobenius loss): with beta = rows / columns <= 1 and y the singular value over
    sd sqrt(columns), keep sqrt((y^2 - beta - 1)^2 - 4 beta) / y where y > 1 + sqrt(beta), else nothing.
    """
    short, long = sorted((centered.shape[1] - 1, centered.shape[2] - 1))
    if short == 0:
        return np.zeros_like(centered)
    beta = short / long
    if short == 1:
        norms = np.sqrt((centered**2).sum(axis=(1, 2)))
        y = np.maximum(norms / (sd * np.sqrt(long)), 1e-150)
        return np.asarray(centered * (_kept(y, beta) / y)[:, None, None])
    unit = sd[:, None] * np.sqrt(long)
    left, values, right = np.linalg.svd(centered, full_matrices=False)
    kept = _kept(np.maximum(values / unit, 1e-300), beta) * unit
    return np.asarray((left * kept[:, None, :]) @ right)


def _kept(y: Doubles, beta: float) -> Doubles:
    kept = np.sqrt(np.maximum((y**2 - beta - 1) ** 2 - 4 * beta, 0.0)) / y
    return np.where(y > 1 + np.sqrt(beta), kept, 0.0)


def denoise_tables(estimates: Estimates, levels: Doubles) -> Targets:
    """Both readings of every two-way table, with the given margins."""
    cells = estimates.cells
    noisy, shrunk = (room_for(cells.n_cells, np.float32) for _ in range(2))

    def fill(members: Ints) -> None:
        tables = PairTables(estimates, levels, members)
        noisy[tables.places] = tables.independent + tables.centered
        shrunk[tables.places] = tables.fitted()

    side_by_side(fill, cells.alike())
    return Targets(
        cells=cells, levels=levels, noisy=noisy, shrunk=shrunk, precision=relative_precision(cells, estimates.pair_sd)
    )


def missed(estimates: Estimates, levels: Doubles, predicted: Floats) -> Floats:
    """What noisy two-way tables show that predictions with these margins lack, in shares, shape (n_cells,) each.

    With R the interaction that is missed, seen with noise of variance sigma^2 in k dimensions, it is R times
    max(0, 1 - k sigma^2 / |R|^2) (James and Stein 1961): nothing where a table is as near as noise lets one see.
    """
    cells, found = estimates.cells, np.zeros(predicted.size, dtype=np.float32)

    def fill(members: Ints) -> None:
        tables = PairTables(estimates, levels, members)
        rest = tables.centered - center(predicted[tables.places] - tables.independent)
        noise = (rest.shape[1] - 1) * (rest.shape[2] - 1) * tables.sd**2
        squares = np.maximum((rest**2).sum(axis=(1, 2)), 1e-300)
        found[tables.places] = np.maximum(1 - noise / squares, 0.0)[:, None, None] * rest

    with_alike(cells, fill)
    return found


def relative_precision(cells: Cells, pair_sd: Doubles) -> Doubles:
    """Inverse variances of all pairs over their mean, shape (m, m), symmetric; zero on the diagonal."""
    precision = pair_sd**-2.0
    return cells.symmetric(precision / precision.mean() if precision.size else precision)


def interactions(estimates: Estimates, levels: Doubles) -> Doubles:
    """The L1 distance, in rows, of every denoised two-way table from independence, shape (n_pairs,)."""
    cells = estimates.cells
    distances = np.zeros(cells.n_pairs)

    def measure(members: Ints) -> None:
        tables = PairTables(estimates, levels, members)
        distances[members] = np.abs(tables.fitted() - tables.independent).sum(axis=(1, 2)) * estimates.n_rows

    side_by_side(measure, cells.alike())
    return distances


def fit_margins(tables: Doubles, rows: Doubles, columns: Doubles) -> Doubles:
    """The nearest non-negative tables with these margins, shapes (t, r, c), (t, r) and (t, c).

    Dykstra's alternating projections come near; a few sweeps of proportional fitting make the margins all but exact.
    """
    fitted = np.empty_like(tables)
    # Tables along the last axis: sums then run along memory.
    size = max(1, _CACHED // max(tables[0].size, 1))
    for run in (slice(start, start + size) for start in range(0, len(tables), size)):
        point = np.ascontiguousarray(np.moveaxis(tables[run], 0, 2))
        over = np.ascontiguousarray(rows[run].T)[:, None], np.ascontiguousarray(columns[run].T)[None]
        _dykstra(point, *over)
        # A cell that proportional fitting may need must not be zero.
        point += 1e-9 * over[0] * over[1]
        for _ in range(_FITTING_SWEEPS):
            for axis, margin in ((1, over[0]), (0, over[1])):
                total = point.sum(axis=axis, keepdims=True)
                point *= np.divide(margin, total, out=np.zeros_like(total), where=total > 0)
        fitted[run] = np.moveaxis(point, 2, 0)
    return fitted


def _dykstra(whole: Doubles, rows: Doubles, columns: Doubles) -> None:
    """Project tables, shape (r, c, t), in place; margins have shapes (r, 1, t) and (1, c, t)."""
    point, correction, left, (r, c, _) = whole, np.zeros_like(whole), np.arange(whole.shape[2]), whole.shape
    for _ in range(_DYKSTRA_ROUNDS):
        over_rows = (rows - point.sum(axis=1, keepdims=True)) / c
        over_columns = (columns - point.sum(axis=0, keepdims=True)) / r
        over_rows -= over_rows.mean(axis=0, keepdims=True)
        point += correction
        point += over_rows
        point += over_columns
        # What is cut off is never positive: where nothing is, the projections agree.
        np.minimum(point, 0.0, out=correction)
        point -= correction
        cut = correction.any(axis=(0, 1))
        if 2 * np.count_nonzero(cut) < cut.size:
            whole[:, :, left] = point
            left = left[cut]
            point, correction, rows, columns = (each[:, :, cut] for each in (point, correction, rows, columns))
            if not left.size:
                return
    whole[:, :, left] = point
