"""Whether the noise of three-way tables is the noise that they state: their margins are seen in other tables, too.

A table of I x J x K cells with equal, independent noise of variance v has orthogonal parts: its total, contrasts of
each attribute's margin, interactions of each two attributes' margin, and interactions of all three. The variances of
orthonormal contrasts of a margin are v times the number of cells that each of its cells sums up. All but the last part
is measured elsewhere: the number of rows where it is public, coarse margins in one-way tables, and coarse two-way
tables in the pooled two-way tables, where a coarse cell of g x h levels has g h times a cell's variance.

So every margin is seen by its one-way or two-way table and by all three-way tables that have it. Each is compared with
the best estimate from those before it: x with covariance P, then y with covariance R gives z = L^-1 (y - x), where
L L^T = P + R, and x moves by P (P + R)^-1 (y - x). These recursive residuals are independent standard normals: those of
one margin by construction, those of different margins because the parts are orthogonal. What is tested, and why too
little noise is found even where rows have no level of some attribute, is said in `noise`. One-way and two-way tables
are part of other tests, and these are not added up with them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sklar.budget.views import NoisyTables, NoisyTriples
from sklar.fitting.margins import Estimates, pool_blocks
from sklar.kernel.queries import Block, Tables
from sklar.public.schema import Schema
from sklar.trust.verify.noise import LEAST_SCALE, SMEAR, NoiseTest, Squares, each_test, squares_test

Array = NDArray[np.float64]


def examine_triples(stages: Sequence[NoisyTables], triples: NoisyTriples | None, schema: Schema) -> list[NoiseTest]:
    """All tests of the noise of three-way tables; none where there are none, or their scales are too small to tell."""
    if triples is None or triples.scales.min() < LEAST_SCALE:
        return []
    complete = all(each.missing is not None or each.other for each in schema.attributes)
    found, tables = residuals_of_triples(stages, triples)
    return [
        *squares_test("margins of three-way tables", found, "gaussian", both=complete),
        *each_test("each three-way table's margins", tables, "gaussian", both=False),
    ]


def residuals_of_triples(stages: Sequence[NoisyTables], noisy: NoisyTriples) -> tuple[Squares, Array]:
    """Squares of all residuals, and their sums and degrees of freedom table by table, shape (2, tables)."""
    triples, n_rows = noisy.triples, stages[0].n_rows
    generator = _smear(stages, noisy)
    seen = _Seen(stages, noisy, generator)
    found, tables = Squares(), np.zeros((2, len(noisy.scales)))
    for number, (chosen, shape) in enumerate(zip(triples.attributes.tolist(), triples.shapes.tolist(), strict=True)):
        variance = float(noisy.scales[number]) ** 2 + SMEAR
        counts = noisy.counts[triples.offsets[number] : triples.offsets[number + 1]]
        table = (counts + math.sqrt(SMEAR) * generator.standard_normal(counts.size)).reshape(shape)
        residuals = [] if n_rows is None else [np.array([(table.sum() - n_rows) / math.sqrt(table.size * variance)])]
        for kept in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2)):
            left = tuple(axis for axis in range(3) if axis not in kept)
            margin = _contrasted(table.sum(axis=left))
            spread = variance * math.prod(shape[axis] for axis in left)
            residuals.append(seen.compare(tuple(chosen[axis] for axis in kept), margin, spread))
        z = np.concatenate(residuals)
        found.add(z)
        tables[:, number] = float(z @ z), z.size
    return found, tables


def _pooled(stages: Sequence[NoisyTables]) -> Estimates:
    blocks = [
        Block(query=Tables(cells=own.cells, order=order), scales=scales, values=values)
        for own in stages
        for order, scales, values in ((1, own.plan.one_way, own.one_way), (2, own.plan.pairs, own.pairs))
        if scales.size
    ]
    return pool_blocks(blocks, "gaussian", stages[0].n_rows)


class _Seen:
    """The best estimate so far of every margin, in contrasts, with its covariance."""

    def __init__(self, stages: Sequence[NoisyTables], noisy: NoisyTriples, generator: np.random.Generator) -> None:
        self._triples, self._pooled = noisy.triples, _pooled(stages)
        self._generator = generator
        self._known: dict[tuple[int, ...], tuple[Array, Array]] = {}

    def compare(self, attributes: tuple[int, ...], margin: Array, variance: float) -> Array:
        """Residuals of a margin whose contrasts have this variance; it is then part of the estimate."""
        if attributes not in self._known:
            self._known[attributes] = self._first(attributes)
        known, covariance = self._known[attributes]
        both = covariance + variance * np.eye(margin.size)
        apart = margin - known
        gain = np.linalg.solve(both, covariance).T
        self._known[attributes] = known + gain @ apart, covariance - gain @ covariance
        return np.asarray(np.linalg.solve(np.linalg.cholesky(both), apart))

    def _first(self, attributes: tuple[int, ...]) -> tuple[Array, Array]:
        """What one-way and two-way tables say of it: coarse cells whose variance is that of the cells they sum up."""
        triples, pooled = self._triples, self._pooled
        cells = triples.cells
        sums = [_sums(triples.coarse[cells.levels(each)], int(triples.levels[each])) for each in attributes]
        if len(attributes) == 1:
            table = pooled.one_way[cells.levels(attributes[0])]
            sd = float(pooled.one_way_sd[attributes[0]])
        else:
            table = cells.table(pooled.pairs, *attributes)
            sd = float(pooled.pair_sd[cells.pair(*attributes)])
        smeared = table + math.sqrt(SMEAR) * self._generator.standard_normal(table.shape)
        variances = np.array([(sd**2 + SMEAR)])
        for matrix in sums:
            smeared = np.moveaxis(np.tensordot(matrix, smeared, axes=(1, 0)), 0, -1)
            variances = np.multiply.outer(variances, matrix.sum(axis=1))
        # Contrasts of all cells, from those of unit cells.
        shape = tuple(len(matrix) for matrix in sums)
        units = np.eye(math.prod(shape)).reshape(-1, *shape)
        design = np.stack([_contrasted(unit) for unit in units], axis=1)
        return _contrasted(smeared), (design * variances.ravel()) @ design.T


def _sums(coarse: NDArray[np.int64], levels: int) -> Array:
    """The sums over coarse levels as a matrix, shape (coarse levels, levels)."""
    return np.asarray(coarse[None, :] == np.arange(levels)[:, None], dtype=np.float64)


def _contrasted(table: Array) -> Array:
    """Orthonormal contrasts along all axes, flat: what is left when sums along any of them are taken out."""
    for axis in range(table.ndim):
        k = np.arange(1, table.shape[axis]).reshape(-1, *[1] * (table.ndim - 1))
        along = np.moveaxis(table, axis, 0)
        means = np.cumsum(along[:-1], axis=0) / k
        table = np.moveaxis((along[1:] - means) * np.sqrt(k / (k + 1)), 0, axis)
    return np.asarray(np.ravel(table))


def _smear(stages: Sequence[NoisyTables], noisy: NoisyTriples) -> np.random.Generator:
    """Public randomness that no forger of a file can choose apart from its tables."""
    digest = hashlib.sha256(noisy.counts.tobytes())
    for tables in stages:
        digest.update(tables.pairs.data)
    return np.random.Generator(np.random.SFC64(np.frombuffer(digest.digest(), dtype=np.uint32)))
