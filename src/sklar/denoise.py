"""Noisy tables to the tables that a latent model is fitted to: post-processing.

Margins come from all tables together; where domains are large and rows few they may be shrunk by empirical Bayes. Each
two-way table then has two readings with these margins: `noisy`, unbiased and possibly negative, and `shrunk`, with less
noise and some bias. A fit's target mixes the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sklar.margins import Estimates, average_margins, project, shrink
from sklar.schema import Schema
from sklar.tables import block_of_level

# Margins whose noise is expected to cost more total variation than this are tried with empirical Bayes.
LARGE_TV = 0.02

Prior = Literal["none", "shared", "own"]
PRIORS: tuple[Prior, ...] = get_args(Prior)

_MAX_CELLS = 20_000_000
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
        errors = np.zeros((len(PRIORS), schema.n_attributes))
        for _ in range(_SPLITS):
            z = sd[block] * generator.standard_normal(average.size)
            z -= (np.add.reduceat(z, schema.offsets[:-1]) / schema.sizes)[block]
            held = (average - z / _GAIN) / n
            candidates = _candidates(average + _GAIN * z, sd * np.sqrt(1 + _GAIN**2), large, schema, n)
            errors += np.add.reduceat((candidates - held) ** 2, schema.offsets[:-1], axis=1)
        prior = np.argmin(errors, axis=0)
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
    candidates[1, within] = posterior_means(average[within], np.repeat(sd[large], schema.sizes[large]))
    for i in np.nonzero(large)[0]:
        own = slice(schema.offsets[i], schema.offsets[i + 1])
        candidates[2, own] = posterior_means(average[own], np.full(schema.sizes[i], sd[i]))
        for each in candidates[1:, own]:
            # A prior that holds nothing but zero has nothing to say.
            each[:] = each / each.sum() if each.sum() > 0 else projected[own]
    return candidates


def posterior_means(observed: NDArray[np.float64], sd: NDArray[np.float64]) -> NDArray[np.float64]:
    """Empirical-Bayes means of non-negative quantities seen with Gaussian noise of known sds, shape (k,).

    The prior is the non-parametric maximum-likelihood one on a grid (Kiefer and Wolfowitz 1956; Jiang and Zhang 2009),
    found by EM.
    """
    top = max(float(observed.max()), float(sd.max()))
    # Finer near zero, where most levels of a large domain are.
    grid = top * np.linspace(0.0, 1.0, _GRID) ** 2
    logs = -0.5 * ((observed[:, None] - grid[None, :]) / sd[:, None]) ** 2
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    prior = np.full(_GRID, 1.0 / _GRID)
    for _ in range(_EM_ROUNDS):
        prior *= (likelihood / (likelihood @ prior)[:, None]).mean(axis=0)
    joint = likelihood * prior
    return np.asarray(joint @ grid / joint.sum(axis=1))


def denoise_tables(estimates: Estimates, levels: NDArray[np.float64]) -> Targets:
    """Both readings of every two-way table, with the given margins."""
    schema, n = estimates.schema, estimates.n_rows
    d = schema.n_levels
    noisy, shrunk = np.zeros((d, d), dtype=np.float32), np.zeros((d, d), dtype=np.float32)
    for group in _groups(schema):
        interaction, small, independent = _interactions(estimates, levels, group)
        noisy[group.rows, group.columns] = independent + interaction
        shrunk[group.rows, group.columns] = _fit_margins(
            independent + small, levels[group.rows[:, :, 0]], levels[group.columns[:, 0, :]]
        )
    for tables in (noisy, shrunk):
        tables += tables.T
    return Targets(
        schema=schema, levels=levels, noisy=noisy, shrunk=shrunk, precision=_precision(estimates.pair_sd / n)
    )


def _precision(sd: NDArray[np.float64]) -> NDArray[np.float64]:
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
    for group in _groups(schema):
        _, small, independent = _interactions(estimates, levels, group)
        fitted = _fit_margins(independent + small, levels[group.rows[:, :, 0]], levels[group.columns[:, 0, :]])
        distances[group.members] = np.abs(fitted - independent).sum(axis=(1, 2)) * estimates.n_rows
    return distances


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Group:
    """Two-way tables of one shape: their numbers, attributes, and where their cells stand."""

    members: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]


def _groups(schema: Schema) -> Iterator[_Group]:
    sizes, offsets = schema.sizes, schema.offsets
    first, second = np.triu_indices(sizes.size, 1)
    shapes, which = np.unique(np.stack([sizes[first], sizes[second]]), axis=1, return_inverse=True)
    for shape, (rows, columns) in enumerate(shapes.T):
        members = np.nonzero(which == shape)[0]
        for part in np.array_split(members, 1 + members.size * rows * columns // _MAX_CELLS):
            i, j = first[part], second[part]
            yield _Group(
                members=part,
                first=i,
                second=j,
                rows=offsets[i][:, None, None] + np.arange(rows)[None, :, None],
                columns=offsets[j][:, None, None] + np.arange(columns)[None, None, :],
            )


def _interactions(
    estimates: Estimates, levels: NDArray[np.float64], group: _Group
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Of a group's tables: the double-centred residual, the same with its singular values shrunk, and independence."""
    n = estimates.n_rows
    independent = levels[group.rows] * levels[group.columns]
    residual = estimates.pairs[group.rows, group.columns] / n - independent
    residual -= residual.mean(axis=1, keepdims=True)
    residual -= residual.mean(axis=2, keepdims=True)
    sd = estimates.pair_sd[group.first, group.second] / n
    if min(residual.shape[1:]) == 2:
        return residual, _shrink_rank_one(residual, sd), independent
    return residual, shrink(residual, sd), independent


def _shrink_rank_one(residual: NDArray[np.float64], sd: NDArray[np.float64]) -> NDArray[np.float64]:
    """`shrink` for double-centred tables with two rows or columns: one singular value, the Frobenius norm."""
    long = max(residual.shape[1:]) - 1
    beta = 1 / long
    y = np.maximum(np.sqrt((residual**2).sum(axis=(1, 2))) / (sd * np.sqrt(long)), 1e-150)
    kept = np.sqrt(np.maximum((y**2 - beta - 1) ** 2 - 4 * beta, 0.0)) / y**2
    return residual * np.where(y > 1 + np.sqrt(beta), kept, 0.0)[:, None, None]


def _fit_margins(
    tables: NDArray[np.float64], rows: NDArray[np.float64], columns: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The nearest non-negative tables with these margins, shapes (t, r, c), (t, r) and (t, c).

    Dykstra's alternating projections come near; a few sweeps of proportional fitting make the margins all but exact.
    """
    r, c = tables.shape[1:]
    point, correction = tables, np.zeros_like(tables)
    for _ in range(_DYKSTRA_ROUNDS):
        over_rows = (rows - point.sum(axis=2)) / c
        over_columns = (columns - point.sum(axis=1)) / r
        over = over_rows.sum(axis=1) / r
        point = point + over_rows[:, :, None] + over_columns[:, None, :] - over[:, None, None]
        shifted = point + correction
        point = np.maximum(shifted, 0.0)
        correction = shifted - point
        if correction.max(initial=0.0) == 0 and correction.min(initial=0.0) == 0:
            break
    # A cell that proportional fitting may need must not be zero.
    point = point + 1e-9 * rows[:, :, None] * columns[:, None, :]
    for _ in range(_FITTING_SWEEPS):
        point *= _ratio(rows, point.sum(axis=2))[:, :, None]
        point *= _ratio(columns, point.sum(axis=1))[:, None, :]
    return point


def _ratio(wanted: NDArray[np.float64], present: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(wanted, present, out=np.zeros_like(wanted), where=present > 0)
