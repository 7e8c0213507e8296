"""Coarse three-way tables of latent components: predictions, their part of a fit's loss, and its gradient.

With A, B and C the probabilities of the coarse levels of three attributes in D equally likely components, the predicted
table is the sum over components of A_i B_j C_k / D. Tables that share two attributes are worked on together: the
products of these two are made once, and all third attributes are one factor of a matrix product.

Cost: for every table of I x J x K cells, 6 D I J K operations for a gradient. One step in `REST` takes one part in
`PARTS` of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sklar.kernel.cells import Cells
from sklar.kernel.triples import NoisyTriples, Triples

# One step in three looks at the tables, at one part of them. All of them in every step take longer, and fits are no
# better for it.
REST, PARTS = 3, 4
# How much of its inverse variance a three-way table weighs in a fit. It has many cells, and most of them are noise: at
# its whole weight a fit has learned that noise before it has learned the pairs.
WEIGHT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TripleEstimates:
    """Unbiased estimates of the counts of three-way tables, shape (n_cells,), and the sd of their noise, shape (t,)."""

    triples: Triples
    counts: NDArray[np.float64]
    sd: NDArray[np.float64]

    @classmethod
    def of(cls, noisy: NoisyTriples) -> TripleEstimates:
        """What was measured."""
        return cls(triples=noisy.triples, counts=noisy.counts.astype(np.float64), sd=noisy.scales.copy())

    def thinned(self, step: float, drawn: NDArray[np.float64]) -> TripleEstimates:
        """With `step` times the noise sd times these standard normals added, shape (n_cells,)."""
        spread = np.repeat(self.sd, self.triples.sizes)
        return TripleEstimates(
            triples=self.triples, counts=self.counts + step * spread * drawn, sd=self.sd * np.sqrt(1 + step**2)
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Group:
    """Tables that share two attributes: their coarse levels, and those of all third attributes.

    `places` are the cells of the tables in the flat vector, shape (I x J, thirds), `table` is the table of each third.
    """

    first: slice
    second: slice
    thirds: NDArray[np.int64]
    places: NDArray[np.int64]
    table: NDArray[np.int64]


class Pull:
    """The three-way part of the gradient of fits. Every `REST`-th step renews one of `PARTS` parts, the others stay.

    A fit moves little in so few steps, and its momentum averages over as many of them. Several fits lie side by side,
    `components` of each.
    """

    def __init__(self, three: ThreeWay, components: int, fits: int = 1) -> None:
        self._three, self._components, self._fits, self._steps = three, components, fits, 0
        self._slopes = np.empty((PARTS, three.n_coarse, fits * components), dtype=np.float32)
        self._pull = np.empty((0, 0), dtype=np.float32)

    def add(self, found: NDArray[np.float32], pull: NDArray[np.float32]) -> None:
        """Add the gradient in the contrasts `found`, times D / 2, to `pull`; both have shape (d - m, fits x D)."""
        if self._steps % REST == 0:
            for part in range(PARTS) if not self._steps else [self._steps // REST % PARTS]:
                for fit in range(self._fits):
                    own = slice(fit * self._components, (fit + 1) * self._components)
                    self._three.slopes(found[:, own], part, self._slopes[part, :, own])
            self._pull = np.zeros_like(pull) if not self._steps else self._pull
            self._pull[:] = 0.0
            self._three.add(self._slopes.sum(axis=0), self._pull)
        pull += self._pull
        self._steps += 1


class ThreeWay:
    """Sum over tables t of weight_t |P_t - target_t|^2, with its gradient in contrasts (see `contrasts`).

    `targets` are probabilities, laid out by `triples`; `weights` has shape (t,). An attribute's contrasts f are those
    of its levels' probabilities p = 1/K + Q^T f. With S the sums over coarse levels, of n_g levels each, the coarse
    ones are S p = n_g / K + (S Q^T) f, and a gradient G in them is (S Q^T)^T G in the contrasts.
    """

    def __init__(self, triples: Triples, targets: NDArray[np.float64], weights: NDArray[np.float64]) -> None:
        self._triples, self.n_cells = triples, triples.n_cells
        self._starts = np.concatenate([[0], np.cumsum(triples.levels)])
        self._groups = [
            (group, targets[group.places].astype(np.float32), weights[group.table].astype(np.float32))
            for group in _groups(triples, self._starts)
        ]
        # The largest first, each to the part that has the least.
        self._parts: list[list[tuple[_Group, NDArray[np.float32], NDArray[np.float32]]]] = [[] for _ in range(PARTS)]
        work = [0] * PARTS
        for entry in sorted(self._groups, key=lambda each: -each[1].size):
            least = work.index(min(work))
            self._parts[least].append(entry)
            work[least] += entry[1].size
        self._maps = [
            (attribute, *_coarse_map(triples, attribute)) for attribute in np.unique(triples.attributes).tolist()
        ]

    def error(self, found: NDArray[np.float32]) -> float:
        """The loss of components whose contrasts are these, shape (d - m, D)."""
        return sum(
            float(np.sum(weights * (predicted - targets) ** 2, dtype=np.float64))
            for (_, targets, weights), predicted in zip(self._groups, self._predicted(found), strict=True)
        )

    def apart(self, found: NDArray[np.float32], other: NDArray[np.float32]) -> float:
        """The weighted squared distance between what two sets of components predict."""
        return sum(
            float(np.sum(weights * (one - two) ** 2, dtype=np.float64))
            for (_, _, weights), one, two in zip(
                self._groups, self._predicted(found), self._predicted(other), strict=True
            )
        )

    def slopes(self, found: NDArray[np.float32], part: int, out: NDArray[np.float32]) -> None:
        """The gradient of one of `PARTS` parts of the loss in the coarse probabilities, times D / 2."""
        coarse, scale = self._coarse(found), np.float32(1 / found.shape[1])
        out[:] = 0.0
        for group, targets, weights in self._parts[part]:
            one, two, both, third = _factors(coarse, group)
            residual = both @ third.T
            residual *= scale
            residual -= targets
            residual *= weights
            out[group.thirds] += residual.T @ both
            products = (residual @ third).reshape(len(one), len(two), -1)
            out[group.first] += np.einsum("ijc,jc->ic", products, two)
            out[group.second] += np.einsum("ijc,ic->jc", products, one)

    def add(self, slopes: NDArray[np.float32], pull: NDArray[np.float32]) -> None:
        """Add a gradient in the coarse probabilities to one in the contrasts, shape (d - m, D)."""
        offsets = self._triples.cells.offsets
        for attribute, spread, _ in self._maps:
            rows = slice(int(offsets[attribute]) - attribute, int(offsets[attribute + 1]) - attribute - 1)
            pull[rows] += spread.T @ slopes[self._starts[attribute] : self._starts[attribute + 1]]

    @property
    def n_coarse(self) -> int:
        """The coarse levels of all attributes."""
        return int(self._starts[-1])

    def _predicted(self, found: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        coarse, scale = self._coarse(found), np.float32(1 / found.shape[1])
        for group, _, _ in self._groups:
            _, _, both, third = _factors(coarse, group)
            yield np.multiply(both @ third.T, scale)

    def _coarse(self, found: NDArray[np.float32]) -> NDArray[np.float32]:
        """Probabilities of coarse levels, shape (coarse levels of all attributes, D); zero where no table has them."""
        coarse = np.zeros((int(self._starts[-1]), found.shape[1]), dtype=np.float32)
        offsets = self._triples.cells.offsets
        for attribute, spread, base in self._maps:
            rows = slice(int(offsets[attribute]) - attribute, int(offsets[attribute + 1]) - attribute - 1)
            coarse[self._starts[attribute] : self._starts[attribute + 1]] = spread @ found[rows] + base[:, None]
        return coarse


def three_way(estimates: TripleEstimates, n_rows: int, pair_sd: NDArray[np.float64]) -> ThreeWay:
    """The loss against these estimates: weights are `WEIGHT` of inverse variances, over the mean of those of pairs.

    Tables are centered to a total of one, since rows without a level may be missing from them.
    """
    triples = estimates.triples
    shares = estimates.counts / n_rows
    missing = 1 - np.add.reduceat(shares, triples.offsets[:-1])
    shares = shares + np.repeat(missing / triples.sizes, triples.sizes)
    return ThreeWay(triples, shares, WEIGHT * estimates.sd**-2.0 / np.mean(pair_sd**-2.0))


def three_way_operations(triples: Triples | None) -> float:
    """Multiplications and additions in one step of a fit, for each component."""
    return 0.0 if triples is None else 6.0 / (PARTS * REST) * triples.n_cells


def coarse_components(
    probabilities: NDArray[np.float32], cells: Cells, coarse: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Probabilities of coarse levels in components, shape (D, d) to (coarse levels of all attributes, D)."""
    levels = np.maximum.reduceat(coarse, cells.offsets[:-1]) + 1
    starts = np.concatenate([[0], np.cumsum(levels)])
    summed = np.zeros((int(starts[-1]), len(probabilities)), dtype=np.float32)
    np.add.at(summed, starts[cells.attribute_of_level] + coarse, probabilities.T)
    return summed


def _factors(coarse: NDArray[np.float32], group: _Group) -> tuple[NDArray[np.float32], ...]:
    one, two = coarse[group.first], coarse[group.second]
    return one, two, (one[:, None, :] * two).reshape(len(one) * len(two), -1), coarse[group.thirds]


def _coarse_map(triples: Triples, attribute: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """S Q^T of an attribute, shape (coarse levels, K - 1), and n_g / K, shape (coarse levels,)."""
    own = triples.coarse[triples.cells.levels(attribute)]
    size, levels = own.size, int(triples.levels[attribute])
    counts = np.bincount(own, minlength=levels).astype(np.float64)
    if size == 1:
        return np.zeros((levels, 0), dtype=np.float32), counts.astype(np.float32)
    members = (own[None, :] == np.arange(levels)[:, None]).astype(np.float64)
    root = np.sqrt(size)
    spread = members[:, 1:] - ((counts / root - members[:, 0]) / (root - 1))[:, None]
    return spread.astype(np.float32), (counts / size).astype(np.float32)


def _groups(triples: Triples, starts: NDArray[np.int64]) -> Iterator[_Group]:
    """All tables, each in one group: always those of the two attributes that most of the rest share."""
    left = {table: tuple(chosen) for table, chosen in enumerate(triples.attributes.tolist())}
    while left:
        shared: dict[tuple[int, int], list[int]] = {}
        for table, (a, b, c) in left.items():
            for pair in ((a, b), (a, c), (b, c)):
                shared.setdefault(pair, []).append(table)
        (first, second), tables = max(shared.items(), key=lambda item: (len(item[1]), item[0]))
        thirds, places, numbers = [], [], []
        for table in tables:
            chosen, shape = triples.attributes[table].tolist(), triples.shapes[table].tolist()
            other = next(each for each in chosen if each not in (first, second))
            cells = triples.offsets[table] + np.arange(int(triples.sizes[table])).reshape(shape)
            cells = np.moveaxis(cells, chosen.index(other), 2)
            thirds.append(np.arange(starts[other], starts[other + 1]))
            places.append(cells.reshape(-1, cells.shape[2]))
            numbers.append(np.full(cells.shape[2], table))
            del left[table]
        yield _Group(
            first=slice(int(starts[first]), int(starts[first + 1])),
            second=slice(int(starts[second]), int(starts[second + 1])),
            thirds=np.concatenate(thirds),
            places=np.concatenate(places, axis=1),
            table=np.concatenate(numbers),
        )
