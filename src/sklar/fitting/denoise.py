"""Noisy tables to the tables that a latent model is fitted to: post-processing.

Margins come from all tables together; where domains are large and rows few they may be shrunk by empirical Bayes. Each
two-way table then has two readings with these margins: `noisy`, unbiased and possibly negative, and `shrunk`, with less
noise and some bias. A fit's target mixes the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numba
import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import block_of_level
from sklar.fitting.margins import Estimates, average_margins, project, shrink, shrink_rank_one
from sklar.machine.threads import side_by_side
from sklar.public.schema import Schema

# Margins whose noise is expected to cost more total variation than this are tried with empirical Bayes.
LARGE_TV = 0.02

Prior = Literal["none", "shared", "own"]
PRIORS: tuple[Prior, ...] = get_args(Prior)

# Cells of the tables that are worked on together.
_CELLS = 250_000
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
    """Two readings of every two-way table, as probabilities with the margins `levels`, shape (d, d), symmetric.

    `noisy` is unbiased, `shrunk` non-negative; blocks on the diagonal are zero. `precision`, shape (m, m), weighs the
    squared errors of a table's cells: inverse variances of their noise with mean 1 over pairs, zero on the diagonal.
    """

    schema: Schema
    levels: NDArray[np.float64]
    noisy: NDArray[np.float32]
    shrunk: NDArray[np.float32]
    precision: NDArray[np.float64]

    def mixed(self, shrinkage: float) -> NDArray[np.float32]:
        """What to fit: `shrinkage` of the shrunk tables and the rest of the noisy ones."""
        weight = np.float32(shrinkage)
        return self.noisy if shrinkage == 0 else self.noisy + weight * (self.shrunk - self.noisy)


def denoise_margins(estimates: Estimates) -> Margins:
    """Margins from all tables: projected on the simplex, or an empirical-Bayes mean where thinning prefers it.

    Only attributes whose expected total variation, 0.4 K sd / n, exceeds `LARGE_TV` are candidates. Their prior is
    shared by all of them or their own; thinned halves of the averaged margins decide for each, by squared error, at no
    privacy cost.
    """
    schema, n = estimates.schema, estimates.n_rows
    average, sd = average_margins(estimates)
    large = 0.4 * schema.sizes * sd / n > LARGE_TV
    prior = np.zeros(schema.n_attributes, dtype=np.int64)
    if large.any():
        block = block_of_level(schema)
        generator = np.random.Generator(np.random.SFC64(_SEED))
        drawn = sd[block] * generator.standard_normal((_SPLITS, average.size))

        def errors(z: NDArray[np.float64]) -> NDArray[np.float64]:
            z = z - (np.add.reduceat(z, schema.offsets[:-1]) / schema.sizes)[block]
            held = (average - z / _GAIN) / n
            candidates = _candidates(average + _GAIN * z, sd * np.sqrt(1 + _GAIN**2), large, schema, n)
            return np.add.reduceat((candidates - held) ** 2, schema.offsets[:-1], axis=1)

        prior = np.argmin(np.sum(side_by_side(errors, drawn), axis=0), axis=0)
        levels = _candidates(average, sd, large, schema, n)[prior[block], np.arange(average.size)]
    else:
        levels = project(average / n, schema)
    return Margins(levels=levels, priors=tuple(PRIORS[each] for each in prior))


def _candidates(
    average: NDArray[np.float64], sd: NDArray[np.float64], large: NDArray[np.bool_], schema: Schema, n: int
) -> NDArray[np.float64]:
    """Margins with each of `PRIORS`, shape (3, d). Attributes that are not large are projected in all of them."""
    projected = project(average / n, schema)
    candidates = np.stack([projected] * len(PRIORS))
    within = large[block_of_level(schema)]
    observed, spread = average[within], np.repeat(sd[large], schema.sizes[large])
    sizes = schema.sizes[large]
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


@numba.njit(
    numba.void(numba.float64[:, ::1], numba.int64[::1], numba.int64[::1]),
    cache=True,
    nogil=True,
    fastmath={"contract", "reassoc"},
)
def _weigh_by_prior(likelihood: NDArray[np.float64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
    """Likelihoods on the grid, shape (k, grid), times each group's prior, in place."""
    n = likelihood.shape[1]
    prior, shares = np.empty(n), np.empty(n)
    for group in range(starts.size):
        prior[:] = 1.0 / n
        for _ in range(_EM_ROUNDS):
            shares[:] = 0.0
            for i in range(starts[group], ends[group]):
                total = 0.0
                for k in range(n):
                    total += likelihood[i, k] * prior[k]
                scale = 1.0 / total
                for k in range(n):
                    shares[k] += likelihood[i, k] * scale
            for k in range(n):
                prior[k] *= shares[k] / (ends[group] - starts[group])
        for i in range(starts[group], ends[group]):
            for k in range(n):
                likelihood[i, k] *= prior[k]


def denoise_tables(estimates: Estimates, levels: NDArray[np.float64]) -> Targets:
    """Both readings of every two-way table, with the given margins."""
    schema, d = estimates.schema, estimates.schema.n_levels
    noisy, shrunk = np.zeros((d, d), dtype=np.float32), np.zeros((d, d), dtype=np.float32)

    def fill(group: _Group) -> None:
        rows, columns = group.rows, group.columns
        interaction, small, independent = _interactions(estimates, levels, group)
        noisy[rows, columns] = independent + interaction
        small += independent
        fit_margins(small, levels[rows[:, :, 0]], levels[columns[:, 0, :]])
        shrunk[rows, columns] = small

    side_by_side(fill, _groups(schema))
    for tables in (noisy, shrunk):
        tables += tables.T
    return Targets(
        schema=schema,
        levels=levels,
        noisy=noisy,
        shrunk=shrunk,
        precision=relative_precision(estimates.pair_sd),
    )


def relative_precision(sd: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inverse variances of all pairs, shape (m, m), over their mean; zero on the diagonal."""
    m = len(sd)
    off = ~np.eye(m, dtype=bool)
    precision = np.zeros((m, m))
    if m > 1:
        precision[off] = sd[off] ** -2.0
        precision /= precision[off].mean()
    return precision


def interactions(estimates: Estimates, levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """The L1 distance, in rows, of every denoised two-way table from independence, shape (m (m - 1) / 2,)."""
    schema = estimates.schema
    distances = np.zeros(schema.n_attributes * (schema.n_attributes - 1) // 2)

    def measure(group: _Group) -> None:
        _, small, independent = _interactions(estimates, levels, group)
        small += independent
        fit_margins(small, levels[group.rows[:, :, 0]], levels[group.columns[:, 0, :]])
        distances[group.members] = np.abs(small - independent).sum(axis=(1, 2)) * estimates.n_rows

    side_by_side(measure, _groups(schema))
    return distances


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Group:
    """Two-way tables of one shape: their numbers, their attributes, and the sizes and offsets of all attributes."""

    members: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows of their cells, shape (tables, rows, 1)."""
        size = self.sizes[self.first[0]]
        return self.offsets[self.first][:, None, None] + np.arange(size)[None, :, None]

    @property
    def columns(self) -> NDArray[np.int64]:
        """The columns of their cells, shape (tables, 1, columns)."""
        size = self.sizes[self.second[0]]
        return self.offsets[self.second][:, None, None] + np.arange(size)[None, None, :]


def _groups(schema: Schema) -> Iterator[_Group]:
    sizes, offsets = schema.sizes, schema.offsets
    first, second = np.triu_indices(sizes.size, 1)
    # Shapes as single numbers: unique pairs of millions take seconds.
    shapes = sizes[first] * (sizes.max() + 1) + sizes[second]
    for shape in np.unique(shapes):
        members = np.nonzero(shapes == shape)[0]
        cells = members.size * sizes[first[members[0]]] * sizes[second[members[0]]]
        for part in np.array_split(members, min(members.size, 1 + cells // _CELLS)):
            yield _Group(members=part, first=first[part], second=second[part], sizes=sizes, offsets=offsets)


def _interactions(
    estimates: Estimates, levels: NDArray[np.float64], group: _Group
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Of a group's tables: the double-centred residual, the same with its singular values shrunk, and independence."""
    n = estimates.n_rows
    rows, columns = group.rows, group.columns
    independent = levels[rows] * levels[columns]
    residual = estimates.pairs[rows, columns] / n - independent
    residual -= residual.mean(axis=1, keepdims=True)
    residual -= residual.mean(axis=2, keepdims=True)
    sd = estimates.pair_sd[group.first, group.second] / n
    if min(residual.shape[1:]) == 2:
        return residual, shrink_rank_one(residual, sd), independent
    return residual, shrink(residual, sd), independent


@numba.njit(
    numba.void(numba.float64[:, :, ::1], numba.float64[:, ::1], numba.float64[:, ::1]),
    cache=True,
    nogil=True,
    error_model="numpy",
    fastmath={"contract", "reassoc"},
)
def fit_margins(tables: NDArray[np.float64], rows: NDArray[np.float64], columns: NDArray[np.float64]) -> None:
    """Move tables to the nearest non-negative ones with these margins, shapes (t, r, c), (t, r) and (t, c).

    Dykstra's alternating projections come near; a few sweeps of proportional fitting make the margins all but exact.
    """
    r, c = tables.shape[1:]
    correction, over_rows, over_columns = np.empty((r, c)), np.empty(r), np.empty(c)
    for t in range(tables.shape[0]):
        point = tables[t]
        correction[:] = 0.0
        for _ in range(_DYKSTRA_ROUNDS):
            over_columns[:] = columns[t]
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
