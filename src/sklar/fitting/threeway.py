"""Three-way tables in the loss of a fit: coarse tables of chosen triples of attributes, or parities of triples of bits.

**Tables.** With A, B and C the probabilities of the coarse levels of three attributes in D equally likely components,
the predicted table is the sum over components of A_i B_j C_k / D. Tables that share two attributes are worked on
together, as one matrix product. A gradient takes 6 D I J K operations for every table of I x J x K cells.

**Parities.** In contrasts (`steps`) a bit with probability p of 1 is f = (1 - 2 p) / sqrt(2), so that a component
predicts the parity X of three bits of n rows as f_i f_j f_k = (1 - 2 X / n) / sqrt(8), and pairs as
f_i f_j = (1 - 2 X / n) / 2. The noise of X has sqrt(2) times the weight in n f_i f_j that it has in n f_i f_j f_k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from sklar.fitting.margins import Estimates
from sklar.kernel.cells import Doubles, Floats, Ints
from sklar.kernel.queries import Tables

# Adds a gradient in contrasts, shape (d - m, D) and times D / 2, to that of pairs.
Pull: TypeAlias = Callable[[Floats, Floats], None]

# One step in three looks at the tables, at one part of them: fits are no worse for it.
REST, PARTS = 3, 4
# How much of its inverse variance a three-way table weighs: most of its cells are noise, which is learned before pairs.
WEIGHT = 0.5


class _Group(NamedTuple):
    """Tables that share two attributes: the coarse levels of these two, and of all third attributes.

    `targets` has shape (I x J, thirds), `weights` (thirds,).
    """

    first: slice
    second: slice
    thirds: Ints
    targets: Floats
    weights: Floats


class TableLoss:
    """Sum over tables t of weight_t |P_t - target_t|^2, with its gradient in contrasts.

    `targets` are probabilities, laid out by `triples`; `noise` is the loss that the noise of the targets alone adds.
    With p = 1/K + Q^T f the probabilities of an attribute's levels and S the sums over coarse levels, of n_g levels
    each, the coarse ones are S p = n_g / K + (S Q^T) f, and a gradient G in them is (S Q^T)^T G in the contrasts f.
    """

    def __init__(self, triples: Tables, targets: Doubles, weights: Doubles, noise: float = 0.0) -> None:
        starts, offsets = np.concatenate([[0], np.cumsum(triples.levels)]), triples.cells.offsets
        self._n_coarse, self._noise = int(starts[-1]), noise
        self._groups = list(_groups(triples, starts, targets.astype(np.float32), weights.astype(np.float32)))
        # The largest first, each to the part that has the least.
        self._parts: list[list[_Group]] = [[] for _ in range(PARTS)]
        work = [0] * PARTS
        for group in sorted(self._groups, key=lambda each: -each.targets.size):
            least = work.index(min(work))
            self._parts[least].append(group)
            work[least] += group.targets.size
        self._maps = [
            (
                slice(int(starts[own]), int(starts[own + 1])),
                slice(int(offsets[own]) - own, int(offsets[own + 1]) - own - 1),
                *_coarse_map(triples, own),
            )
            for own in np.unique(triples.members).tolist()
        ]

    def score(self, found: Floats, margins: Floats) -> tuple[float, float]:
        """The loss of components with these contrasts, less the noise's, and the distance from independence.

        The latter is weighed as the variance of a gain by chance is.
        """
        error, distance = -self._noise, 0.0
        coarse, alone = self._coarse(found), self._coarse(margins[:, None])
        for group in self._groups:
            predicted, independent = _predict(coarse, group), _predict(alone, group)
            error += float(np.sum(group.weights * (predicted - group.targets) ** 2, dtype=np.float64))
            distance += float(np.sum(group.weights * (predicted - independent) ** 2, dtype=np.float64))
        return error, WEIGHT * distance

    def pull(self, fits: int = 1) -> Pull:
        """The gradient of several fits side by side. Every `REST`-th step renews one of `PARTS` parts."""
        slopes, held, steps = np.empty((0, 0, 0), dtype=np.float32), np.empty((0, 0), dtype=np.float32), 0

        def add(found: Floats, pull: Floats) -> None:
            nonlocal slopes, held, steps
            if not steps:
                slopes = np.empty((PARTS, self._n_coarse, found.shape[1]), dtype=np.float32)
            if steps % REST == 0:
                for part in range(PARTS) if not steps else [steps // REST % PARTS]:
                    for own, out in zip(
                        np.split(found, fits, axis=1), np.split(slopes[part], fits, axis=1), strict=True
                    ):
                        self._slopes(own, part, out)
                held, summed = np.zeros_like(pull), slopes.sum(axis=0)
                for coarse, contrasts, spread, _ in self._maps:
                    held[contrasts] = spread.T @ summed[coarse]
            pull += held
            steps += 1

        return add

    def _slopes(self, found: Floats, part: int, out: Floats) -> None:
        """The gradient of one of the parts in the coarse probabilities, times D / 2."""
        coarse, scale = self._coarse(found), np.float32(1 / found.shape[1])
        out[:] = 0.0
        for group in self._parts[part]:
            one, two, third = coarse[group.first], coarse[group.second], coarse[group.thirds]
            both = (one[:, None, :] * two).reshape(len(one) * len(two), -1)
            residual = both @ third.T
            residual *= scale
            residual -= group.targets
            residual *= group.weights
            out[group.thirds] += residual.T @ both
            products = (residual @ third).reshape(len(one), len(two), -1)
            out[group.first] += np.einsum("ijc,jc->ic", products, two)
            out[group.second] += np.einsum("ijc,ic->jc", products, one)

    def _coarse(self, found: Floats) -> Floats:
        """Probabilities of coarse levels, shape (coarse levels of all attributes, D); zero where no table has them."""
        probabilities = np.zeros((self._n_coarse, found.shape[1]), dtype=np.float32)
        for coarse, contrasts, spread, base in self._maps:
            probabilities[coarse] = spread @ found[contrasts] + base[:, None]
        return probabilities


def _predict(coarse: Floats, group: _Group) -> Floats:
    one, two = coarse[group.first], coarse[group.second]
    both = (one[:, None, :] * two).reshape(len(one) * len(two), -1)
    return np.multiply(both @ coarse[group.thirds].T, np.float32(1 / coarse.shape[1]))


def _coarse_map(triples: Tables, attribute: int) -> tuple[Floats, Floats]:
    """S Q^T of an attribute, shape (coarse levels, K - 1), and n_g / K, shape (coarse levels,)."""
    own = np.arange(triples.cells.sizes[attribute])
    if triples.coarse is not None:
        own = triples.coarse[triples.cells.levels(attribute)]
    members = (own[None, :] == np.arange(triples.levels[attribute])[:, None]).astype(np.float64)
    counts, root = members.sum(axis=1), np.sqrt(own.size)
    # An attribute of one level has no contrasts: the slope is that of none.
    slope = (counts / root - members[:, 0]) / max(root - 1, 1e-3)
    return (members[:, 1:] - slope[:, None]).astype(np.float32), (counts / own.size).astype(np.float32)


def _groups(triples: Tables, starts: Ints, targets: Floats, weights: Floats) -> Iterator[_Group]:
    """All tables, each in one group: always those of the two attributes that most of the rest share."""
    levels = [np.arange(first, last) for first, last in pairwise(starts.tolist())]
    left = {table: tuple(chosen) for table, chosen in enumerate(triples.members.tolist())}
    while left:
        shared: dict[tuple[int, int], list[int]] = {}
        for table, (a, b, c) in left.items():
            for pair in ((a, b), (a, c), (b, c)):
                shared.setdefault(pair, []).append(table)
        (first, second), tables = max(shared.items(), key=lambda item: (len(item[1]), item[0]))
        thirds, places, numbers = [], [], []
        for table in tables:
            chosen = left.pop(table)
            at = next(place for place, each in enumerate(chosen) if each not in (first, second))
            cells = np.arange(triples.offsets[table], triples.offsets[table + 1]).reshape(triples.shapes[table])
            cells = np.moveaxis(cells, at, 2)
            thirds.append(levels[chosen[at]])
            places.append(cells.reshape(-1, cells.shape[2]))
            numbers.append(np.full(cells.shape[2], table))
        one, two = (slice(int(starts[each]), int(starts[each + 1])) for each in (first, second))
        own, table_of = targets[np.concatenate(places, axis=1)], np.concatenate(numbers)
        yield _Group(first=one, second=two, thirds=np.concatenate(thirds), targets=own, weights=weights[table_of])


class ParityLoss:
    """Sum over triples of bits of weight x (predicted - target)^2, with its gradient in contrasts.

    The one weight is the precision of each beside the mean precision of pairs. Arrays have a row for every pair of bits
    and a column for every third one, zero where that is one of the two: every triple stands in three places.
    """

    def __init__(self, estimates: Estimates) -> None:
        cells = estimates.cells
        self._first, self._second = cells.pairs
        # Where the triple of every pair and every third bit stands among all triples, shape (n_pairs, m); -1 for none.
        places = np.full((cells.n_attributes,) * 3, -1)
        i, j, k = cells.trios
        for triple in ((i, j, k), (i, k, j), (j, k, i)):
            places[triple] = np.arange(cells.n_trios)
        place = places[cells.pairs]
        targets = (1 - 2 * estimates.third / estimates.n_rows) / np.sqrt(8.0)
        self._targets = np.where(place >= 0, targets[place], 0.0).astype(np.float32)
        self.weight = 2 / (np.mean(estimates.pair_sd**-2.0) * float(estimates.third_sd[0]) ** 2)
        self._weights = (self.weight * (place >= 0)).astype(np.float32)

    def score(self, found: Floats, margins: Floats) -> tuple[float, float]:
        """Weighted squared distances of what these components predict: from the targets, and from independence."""
        predicted = np.float32(1 / found.shape[1]) * ((found[self._first] * found[self._second]) @ found.T)
        alone = np.outer(margins[self._first] * margins[self._second], margins)
        error, distance = (
            float(np.sum(self._weights * (predicted - other) ** 2, dtype=np.float64)) / 3
            for other in (self._targets, alone)
        )
        return error, distance

    def pull(self, fits: int = 1) -> Pull:
        """The gradient of several fits side by side: of f_i, the sum over pairs (j, k) of residual_ijk f_j f_k."""

        def add(found: Floats, pull: Floats) -> None:
            for own, out in zip(np.split(found, fits, axis=1), np.split(pull, fits, axis=1), strict=True):
                pairs = own[self._first] * own[self._second]
                residual = pairs @ own.T
                residual *= np.float32(1 / own.shape[1])
                residual -= self._targets
                residual *= self._weights
                out += residual.T @ pairs

        return add


ThreeWayLoss: TypeAlias = TableLoss | ParityLoss


def three_way_loss(estimates: Estimates) -> ThreeWayLoss | None:
    """The part of a fit's loss that three-way tables or parities of triples make, where any were measured.

    Weights are inverse variances over the mean of those of pairs, of tables `WEIGHT` of that. Tables are centered to a
    total of one, since rows without a level may be missing from them.
    """
    triples, n_rows = estimates.triples, estimates.n_rows
    if triples is None:
        return ParityLoss(estimates) if estimates.third.size else None
    shares = estimates.third / n_rows
    missing = 1 - np.add.reduceat(shares, triples.offsets[:-1])
    weights = WEIGHT * estimates.third_sd**-2.0 / np.mean(estimates.pair_sd**-2.0)
    noise = float(weights @ (triples.sizes * (estimates.third_sd / n_rows) ** 2))
    return TableLoss(triples, shares + np.repeat(missing / triples.sizes, triples.sizes), weights, noise)
