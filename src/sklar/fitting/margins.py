"""Noisy tables to mutually consistent probabilities: post-processing.

Two readings of the same tables. `plain` is the paper's: each count stands alone, negative counts become zero.
`consistent` uses every table for every margin, puts margins on the simplex and shrinks each two-way table toward
independence as far as its known noise asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import NoisyTables, above_diagonal, block_of_level
from sklar.machine.threads import side_by_side
from sklar.public.schema import Schema

# Cells of a (d, d) array that are worked on together.
_CELLS = 250_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probabilities:
    """Estimated probabilities of levels, shape (d,), and of pairs of levels, shape (d, d), symmetric.

    Entries of `pairs` within one attribute are zero: two of its levels never occur together.
    """

    schema: Schema
    n_rows: int
    levels: NDArray[np.float64]
    pairs: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimates:
    """Unbiased estimates of all counts from all measurements, with the standard deviation of their noise.

    `one_way` has shape (d,), its sds (m,); `pairs` has shape (d, d) with the blocks of attributes i < j filled, its sds
    (m, m), symmetric, zero on the diagonal.
    """

    schema: Schema
    n_rows: int
    one_way: NDArray[np.float64]
    one_way_sd: NDArray[np.float64]
    pairs: NDArray[np.float64]
    pair_sd: NDArray[np.float64]


def pool(measured: Sequence[NoisyTables]) -> Estimates:
    """Inverse-variance averages of what several measurements say of the same tables."""
    schema = measured[0].schema
    m, d, sizes, offsets = schema.n_attributes, schema.n_levels, schema.sizes, schema.offsets
    block = block_of_level(schema)
    one_way, one_way_weight = np.zeros(d), np.zeros(m)
    pairs, pair_weights = np.zeros((d, d)), np.zeros((len(measured), m, m))
    for tables, pair_weight in zip(measured, pair_weights, strict=True):
        if tables.plan.one_way.size:
            weight = 1 / tables.variances(tables.plan.one_way)
            one_way += tables.one_way * weight[block]
            one_way_weight += weight
        if tables.plan.pairs.size:
            with np.errstate(divide="ignore"):
                pair_weight[:] = 1 / tables.variances(tables.plan.pair_scales(m))
            np.fill_diagonal(pair_weight, 0.0)
    whole = pair_weights.sum(axis=0)
    np.fill_diagonal(whole, 1.0)
    one_way /= one_way_weight[block]

    def fill(first: int, last: int) -> None:
        rows = slice(offsets[first], offsets[last])
        for tables, pair_weight in zip(measured, pair_weights, strict=True):
            if tables.plan.pairs.size:
                shares = pair_weight[first:last] / whole[first:last]
                pairs[rows] += tables.pairs[rows] * shares.repeat(sizes[first:last], axis=0).repeat(sizes, axis=1)

    side_by_side(lambda span: fill(*span), _spans(schema))
    pair_sd = whole**-0.5
    np.fill_diagonal(pair_sd, 0.0)
    return Estimates(
        schema=schema,
        n_rows=estimate_rows(measured),
        one_way=one_way,
        one_way_sd=one_way_weight**-0.5,
        pairs=pairs,
        pair_sd=pair_sd,
    )


def _spans(schema: Schema) -> list[tuple[int, int]]:
    """Runs of attributes, from the first to before the last, whose rows of a (d, d) array hold about `_CELLS` cells."""
    d, offsets = schema.n_levels, schema.offsets
    starts = np.searchsorted(offsets, np.arange(0, d, max(_CELLS // d, 1)))
    return list(pairwise(np.unique(np.append(starts, schema.n_attributes)).tolist()))


def plain(estimates: Estimates) -> Probabilities:
    """The paper's reading (Algorithms 1 and 2, soundly): noisy counts clipped to [0, n], over n."""
    n = estimates.n_rows
    pairs = np.clip(estimates.pairs / n, 0.0, 1.0)
    return Probabilities(
        schema=estimates.schema, n_rows=n, levels=np.clip(estimates.one_way / n, 0.0, 1.0), pairs=pairs + pairs.T
    )


def consistent(estimates: Estimates) -> Probabilities:
    """Margins from all tables together, on the simplex; two-way tables shrunk toward independence."""
    levels = margins(estimates)
    return Probabilities(
        schema=estimates.schema,
        n_rows=estimates.n_rows,
        levels=levels,
        pairs=shrunk_pairs(estimates, levels),
    )


def estimate_rows(measured: Sequence[NoisyTables]) -> int:
    """The public number of rows; under add-remove, the inverse-variance average of all noisy totals, at least 1."""
    public = measured[0].n_rows
    if public is not None:
        return public
    weighted, weights = 0.0, 0.0
    for tables in measured:
        plan, sizes = tables.plan, tables.schema.sizes
        first, second = np.triu_indices(sizes.size, 1)
        offsets = tables.schema.offsets[:-1]
        parts: list[tuple[object, object]] = []
        if tables.total is not None:
            parts.append(([tables.total], [1]))
        if plan.one_way.size:
            parts.append((np.add.reduceat(tables.one_way, offsets), sizes))
        if plan.pairs.size:
            blocks = np.add.reduceat(np.add.reduceat(tables.pairs, offsets, axis=0), offsets, axis=1)
            parts.append((blocks[first, second], sizes[first] * sizes[second]))
        totals, cells = (np.concatenate([np.asarray(part[side]) for part in parts]) for side in (0, 1))
        weight = 1 / (cells * tables.variances(plan.scales))
        weighted += float(weight @ totals)
        weights += float(weight.sum())
    return max(1, round(weighted / weights))


def average_margins(estimates: Estimates) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The best linear estimate of level counts, shape (d,), and the sd of its noise before centring, shape (m,).

    The direct one-way table and the sums of every two-way table are unbiased for the same counts; each is centred to n
    and they are averaged by inverse variance (K_j sigma_ij^2 for sums over the K_j levels of j).
    """
    schema, n = estimates.schema, estimates.n_rows
    sizes, offsets = schema.sizes, schema.offsets
    block = block_of_level(schema)
    over_rows, implied = np.empty((sizes.size, block.size)), np.empty((block.size, sizes.size))

    def add(first: int, last: int) -> None:
        start, stop = offsets[first], offsets[last]
        pairs = estimates.pairs[start:stop]
        np.add.reduceat(pairs, offsets[first:last] - start, axis=0, out=over_rows[first:last])
        np.add.reduceat(pairs, offsets[:-1], axis=1, out=implied[start:stop])

    side_by_side(lambda span: add(*span), _spans(schema))
    implied += over_rows.T
    implied[np.arange(block.size), block] = estimates.one_way
    variances = estimates.pair_sd**2 * sizes[None, :]
    np.fill_diagonal(variances, estimates.one_way_sd**2)
    precision = 1 / variances
    weights = precision / precision.sum(axis=1, keepdims=True)
    totals = np.add.reduceat(implied, offsets[:-1], axis=0)
    implied += ((n - totals) / sizes[:, None])[block]
    return np.sum(weights[block] * implied, axis=1), precision.sum(axis=1) ** -0.5


def margins(estimates: Estimates) -> NDArray[np.float64]:
    """Probabilities of the levels of each attribute, shape (d,): the averaged counts over n, on the simplex."""
    return project(average_margins(estimates)[0] / estimates.n_rows, estimates.schema)


def project(levels: NDArray[np.float64], schema: Schema) -> NDArray[np.float64]:
    """Each attribute's levels moved to the nearest point of the simplex, shape (d,)."""
    projected = np.empty_like(levels)
    for size in np.unique(schema.sizes):
        # Attributes of one size together.
        at = schema.offsets[:-1][schema.sizes == size][:, None] + np.arange(size)
        projected[at] = simplex(levels[at])
    return projected


def simplex(point: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest points with non-negative entries that sum to one, along the last axis (Held, Wolfe, Crowder 1974).

    >>> simplex(np.array([0.8, 0.6, -0.2])).round(3).tolist()
    [0.6, 0.4, 0.0]
    """
    ordered = np.sort(point, axis=-1)[..., ::-1]
    excess = (np.cumsum(ordered, axis=-1) - 1) / np.arange(1, point.shape[-1] + 1)
    # The entries that stay positive are the largest ones, and the first always does.
    kept = np.count_nonzero(ordered > excess, axis=-1)[..., None]
    return np.asarray(np.maximum(point - np.take_along_axis(excess, kept - 1, axis=-1), 0.0))


def shrunk_pairs(estimates: Estimates, levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Two-way probabilities with the given margins, each table shrunk toward independence, shape (d, d), symmetric.

    A noisy table less independence, centred both ways, is the interaction plus white noise of known sd; its singular
    values are shrunk as is optimal for that noise level. Tables of one shape are decomposed together.
    """
    schema, n = estimates.schema, estimates.n_rows
    sizes, offsets = schema.sizes, schema.offsets
    joint = np.where(above_diagonal(schema), np.outer(levels, levels), 0.0)
    sds = estimates.pair_sd / n
    first, second = np.triu_indices(sizes.size, 1)
    # Shapes as single numbers: unique pairs of millions take seconds.
    shapes = sizes[first] * (sizes.max() + 1) + sizes[second]

    def fill(part: NDArray[np.int64]) -> None:
        i, j = first[part], second[part]
        rows = offsets[i][:, None, None] + np.arange(sizes[i[0]])[None, :, None]
        columns = offsets[j][:, None, None] + np.arange(sizes[j[0]])[None, None, :]
        residual = estimates.pairs[rows, columns] / n - joint[rows, columns]
        joint[rows, columns] += shrink(residual, sds[i, j])

    parts: list[NDArray[np.int64]] = []
    for shape in np.unique(shapes):
        members = np.nonzero(shapes == shape)[0]
        cells = members.size * sizes[first[members[0]]] * sizes[second[members[0]]]
        parts += np.array_split(members, min(members.size, 1 + cells // _CELLS))
    side_by_side(fill, parts)
    np.clip(joint, 0.0, 1.0, out=joint)
    return joint + joint.T


def shrink(residual: NDArray[np.float64], sd: NDArray[np.float64]) -> NDArray[np.float64]:
    """Denoised interactions of tables of one shape, (tables, rows, columns), with noise of these sds on their cells.

    Gavish and Donoho (2017), Frobenius loss: with beta = rows / columns <= 1 and y the singular value over
    sd sqrt(columns), keep sqrt((y^2 - beta - 1)^2 - 4 beta) / y where y > 1 + sqrt(beta), else nothing. Centring both
    ways leaves white noise on (rows - 1) x (columns - 1) dimensions.
    """
    centred = residual - residual.mean(axis=1, keepdims=True)
    centred -= centred.mean(axis=2, keepdims=True)
    short, long = sorted((residual.shape[1] - 1, residual.shape[2] - 1))
    if short == 0:
        return np.zeros_like(residual)
    if short == 1:
        return shrink_rank_one(centred, sd)
    beta = short / long
    unit = sd[:, None] * np.sqrt(long)
    left, values, right = np.linalg.svd(centred, full_matrices=False)
    y = np.maximum(values / unit, 1e-300)
    kept = np.sqrt(np.maximum((y**2 - beta - 1) ** 2 - 4 * beta, 0.0)) / y
    shrunk = np.where(y > 1 + np.sqrt(beta), kept, 0.0) * unit
    return np.asarray((left * shrunk[:, None, :]) @ right)


def shrink_rank_one(centred: NDArray[np.float64], sd: NDArray[np.float64]) -> NDArray[np.float64]:
    """`shrink` of tables with two rows or columns, centred both ways: one singular value, the Frobenius norm."""
    long = max(centred.shape[1:]) - 1
    beta = 1 / long
    y = np.maximum(np.sqrt((centred**2).sum(axis=(1, 2))) / (sd * np.sqrt(long)), 1e-150)
    kept = np.sqrt(np.maximum((y**2 - beta - 1) ** 2 - 4 * beta, 0.0)) / y**2
    return np.asarray(centred * np.where(y > 1 + np.sqrt(beta), kept, 0.0)[:, None, None])
