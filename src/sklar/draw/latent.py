"""Records of a latent model, block by block: components and levels allotted systematically, dealt to rows at random."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numba
import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import BLOCK_ROWS, REFINED_ROWS, Codes, empty_codes
from sklar.draw.refine import ThreeWay, refine
from sklar.public.rules import constrained
from sklar.public.solve import Allowed

if TYPE_CHECKING:
    from sklar.fitting.latent import LatentModel


class LatentSampler:
    """Draws any block of a model's rows; whatever all blocks share is worked out once.

    Every record has exactly the model's distribution, and attributes are independent within a component. But components
    and levels are allotted systematically, so that counts of levels are within about one of their expectation in each
    block, and two-way counts are brought nearer to theirs where the model says so (`refine`).
    """

    def __init__(self, model: LatentModel) -> None:
        self._cells, self._components = model.schema.cells, model.n_components
        self._visits = _visits(model.probabilities, self._cells.offsets)
        self._shares = _shares(model.probabilities, self._cells.offsets)
        self._rounds = model.rounds
        self.block_rows = REFINED_ROWS if model.rounds else BLOCK_ROWS
        if model.rounds:
            self._pairs = model.predict_pairs()
            # A repair draws the attributes of rules anew.
            fixed = constrained(model.schema.allowed)
            self._free = np.array([i for i in range(self._cells.n_attributes) if i not in fixed], dtype=np.int64)
            wide = model.matched == 3 and self._free.size > 2
            self._triples = ThreeWay.of(model.probabilities, self._cells, self._free) if wide else None

    def draw(self, seed: int, block: int, rows: int) -> Codes:
        """A block of codes, shape (m, rows)."""
        cells = self._cells
        generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, block])))
        bounds = _systematic(generator, rows, self._components)
        place = generator.permutation(rows).astype(np.uint32)
        uniforms = generator.random(cells.n_levels)
        keys = generator.integers(1, 2**63, size=cells.n_attributes, dtype=np.uint64)
        codes = empty_codes(cells, rows)
        _draw(codes, self._shares, cells.offsets, self._visits, bounds, place, uniforms, keys)
        if self._rounds and self._free.size > 1:
            key = generator.integers(1, 2**63, dtype=np.uint64)
            targets = self._pairs * np.float32(rows)
            refine(codes, place, bounds, targets, cells.offsets, self._free, self._rounds, key, self._triples)
        return codes


class RedrawGivenOthers:
    """Draws the attributes that rules are about, given the other attributes of some records."""

    def __init__(self, model: LatentModel, codes: Codes, allowed: Allowed) -> None:
        self._probabilities, self._cells = model.probabilities, model.schema.cells
        self._touched = constrained(allowed)
        logs = np.zeros((codes.shape[1], model.n_components), dtype=np.float32)
        # Components are equally likely and attributes independent within them, so these products are their odds.
        for i in set(range(len(codes))) - set(self._touched):
            own = self._probabilities[:, self._cells.offsets[i] + codes[i]].T
            logs += np.log(np.maximum(own, np.float32(1e-30)))
        odds = np.exp(logs - logs.max(axis=1, keepdims=True)).astype(np.float64)
        self._odds = np.cumsum(odds, axis=1)

    def __call__(self, codes: Codes, rows: NDArray[np.int64], generator: np.random.Generator) -> Codes:
        """Fresh records in place of `codes`, which are those of these rows."""
        fresh = codes.copy()
        component = _pick(self._odds[rows], generator)
        for i in self._touched:
            own = self._probabilities[component, self._cells.levels(i)]
            fresh[i] = _pick(np.cumsum(own, axis=1, dtype=np.float64), generator)
        return fresh


def _pick(cumulative: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.int64]:
    """One index per row of running totals of weights, shape (rows, choices)."""
    at = generator.random(len(cumulative)) * cumulative[:, -1]
    return np.asarray((cumulative <= at[:, None]).sum(axis=1).clip(max=cumulative.shape[1] - 1))


def _visits(probabilities: NDArray[np.float32], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """The order in which each attribute's levels are dealt out to components, shape (m, components): like to like.

    Rounding errors of one component are made good in the next; they cancel in full where the two are alike.
    """
    visits = np.empty((offsets.size - 1, len(probabilities)), dtype=np.int32)
    for a, (first, last) in enumerate(pairwise(offsets)):
        own = probabilities[:, first:last]
        top = own.argmax(axis=1)
        visits[a] = np.lexsort((own[np.arange(len(own)), top], top))
    return visits


def _shares(probabilities: NDArray[np.float32], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each level's share of those levels of its attribute that do not come before it, shape (components, d)."""
    shares = np.empty(probabilities.shape)
    for first, last in pairwise(offsets):
        own = probabilities[:, first:last].astype(np.float64)
        # Summed from the last level back: one that nobody can take after it has all that is left, to the last bit.
        rest = np.cumsum(own[:, ::-1], axis=1)[:, ::-1]
        shares[:, first:last] = np.divide(own, rest, out=np.ones_like(own), where=rest > own)
    return shares


def _systematic(generator: np.random.Generator, rows: int, components: int) -> NDArray[np.int64]:
    """Where each component's rows end: rows / components for each on average, rounded by one common uniform."""
    ends = np.floor(np.arange(components + 1) * (rows / components) + generator.random()).astype(np.int64)
    ends[0], ends[-1] = 0, rows
    return np.asarray(ends)


@numba.njit(cache=True, nogil=True)
def _draw(
    codes: Codes,
    shares: NDArray[np.float64],
    offsets: NDArray[np.int64],
    visits: NDArray[np.int32],
    bounds: NDArray[np.int64],
    place: NDArray[np.uint32],
    uniforms: NDArray[np.float64],
    keys: NDArray[np.uint64],
) -> None:
    """Levels of every attribute: counts per component by systematic rounding, dealt to its rows at random.

    Levels are split off one at a time. Level k takes its share p_k / (p_k + p_(k+1) + ...) of the rows that a component
    still has, rounded so that the running total over components stays within one of the sum of the shares:
    floor(S_c + u) - floor(S_(c-1) + u) has the right expectation for a uniform u.

    `place` holds the rows, component by component, and is shuffled on the way.
    """
    for a in range(codes.shape[0]):
        first, last = offsets[a], offsets[a + 1]
        own = codes[a]
        running = uniforms[first:last].copy()
        floors = np.zeros(last - first, dtype=np.int64)
        took = np.empty(last - first, dtype=np.int64)
        state = keys[a]
        for visit in range(visits.shape[1]):
            c = visits[a, visit]
            begin, end = bounds[c], bounds[c + 1]
            left = end - begin
            if left == 0:
                continue
            reached, largest = 0, 0
            for k in range(last - first):
                share = shares[c, first + k]
                if share >= 1.0:
                    took[k] = left
                else:
                    running[k] += left * share
                    took[k] = min(max(np.int64(np.floor(running[k])) - floors[k], 0), left)
                    floors[k] += took[k]
                if took[k] > took[largest]:
                    largest = k
                left -= took[k]
                reached = k + 1
                if left == 0:
                    break
            # All rows get the most frequent level; then each of the others takes rows that none has taken yet, by a
            # shuffle that goes only as far as it must. Where the shuffle starts from makes no difference.
            for row in range(begin, end):
                own[place[row]] = largest
            taken = begin
            for k in range(reached):
                if k == largest:
                    continue
                for _ in range(took[k]):
                    # xorshift64*: shuffles need speed, and rows of a component are few.
                    state ^= state >> np.uint64(12)
                    state ^= state << np.uint64(25)
                    state ^= state >> np.uint64(27)
                    word = (state * np.uint64(2685821657736338717)) >> np.uint64(32)
                    other = taken + np.int64((word * np.uint64(end - taken)) >> np.uint64(32))
                    chosen = place[other]
                    place[other] = place[taken]
                    place[taken] = chosen
                    own[chosen] = k
                    taken += 1
