"""Records of a latent model, block by block: components and levels allotted systematically, dealt to rows at random."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import REFINED_ROWS, Codes, dealt_rows, empty_codes
from sklar.draw.refine import ThreeWay, refine
from sklar.machine.compiled import OFFSETS, Worth, compiled
from sklar.public.rules import constrained
from sklar.public.solve import Allowed

if TYPE_CHECKING:
    from sklar.fitting.latent import LatentModel

# Values that a sampler draws in NumPy before compiled code is worth loading (`python -m benchmarks.start --crossover`).
_PLAIN_VALUES = 20_000_000
# Up to this many components rows are dealt by NumPy's permutations: components side by side would be too few.
_FEW = 32
# xorshift64* (Vigna 2016): shuffles need speed, and rows of a component are few. Its states come from splitmix64.
_MULTIPLIER = np.uint64(2685821657736338717)
_GOLDEN, _MIX, _MIX_AGAIN = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_12, _25, _27, _30, _31, _32 = (np.uint64(bits) for bits in (12, 25, 27, 30, 31, 32))
_ONE = np.uint64(1)

# Rows of a product that are made at a time.
_STRIP = 512


class LatentSampler:
    """Draws any block of a model's rows; whatever all blocks share is worked out once.

    Every record has exactly the model's distribution, and attributes are independent within a component. But components
    and levels are allotted systematically, so that counts of levels are within about one of their expectation in each
    block, and two-way counts are brought nearer to theirs where the model says so (`refine`).

    `chances`, shape (components,), are those of components where they are not equally likely.
    """

    def __init__(self, model: LatentModel, chances: NDArray[np.float64] | None = None) -> None:
        self._cells, self._components = model.schema.cells, model.n_components
        self._upto = None if chances is None else np.concatenate([[0.0], np.cumsum(chances)])
        self._visits = _visits(model.probabilities, self._cells.offsets)
        self._shares = shares_of(model.probabilities, self._cells.offsets)
        self._rounds = model.rounds
        self._worth_compiling = Worth(_PLAIN_VALUES)
        self.block_rows = REFINED_ROWS if model.rounds else dealt_rows(self._cells, self._components)
        if model.rounds:
            self._pairs = steady_pairs(model.probabilities, chances)
            # A repair draws the attributes of rules anew.
            fixed = constrained(model.schema.allowed)
            self._free = np.array([i for i in range(self._cells.n_attributes) if i not in fixed], dtype=np.int64)
            wide = model.matched == 3 and self._free.size > 2
            self._triples = ThreeWay.of(model.probabilities, self._cells, self._free) if wide else None

    def draw(self, seed: int, block: int, rows: int) -> Codes:
        """A block of codes, shape (m, rows)."""
        return self.draw_by(np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, block]))), rows)

    def draw_by(self, generator: np.random.Generator, rows: int) -> Codes:
        """Codes of this many rows, shape (m, rows)."""
        cells = self._cells
        bounds = _systematic(generator, rows, self._components, self._upto)
        place = generator.permutation(rows).astype(np.uint32)
        uniforms = generator.random(cells.n_levels)
        keys = generator.integers(1, 2**63, size=cells.n_attributes, dtype=np.uint64)
        codes = empty_codes(cells, rows)
        # Whichever way, the rows are the same.
        fast = self._worth_compiling(codes.size)
        if self._components <= _FEW:
            deal_few(codes, self._shares, cells.offsets, self._visits, bounds, place, uniforms, generator)
        elif not fast:
            deal_plainly(codes, self._shares, cells.offsets, self._visits, bounds, place, uniforms, keys)
        elif codes.dtype == np.uint8:
            deal_bytes(codes, self._shares, cells.offsets, self._visits, bounds, place, uniforms, keys)
        else:
            deal_shorts(codes, self._shares, cells.offsets, self._visits, bounds, place, uniforms, keys)
        if self._rounds and self._free.size > 1:
            key = generator.integers(1, 2**63, dtype=np.uint64)
            targets = self._pairs * np.float32(rows)
            refine(codes, place, bounds, targets, cells.offsets, self._free, self._rounds, key, self._triples)
        return codes


def steady_pairs(probabilities: NDArray[np.float32], chances: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
    """Predicted two-way tables, shape (d, d), the same to the last bit on any number of threads.

    Sums in double precision differ in their last bits by how threads share the work; rounded to single precision they
    do not, but for one in millions of millions. Exchanges, and so the rows of a seed, depend on every bit.
    """
    pairs = np.empty((probabilities.shape[1],) * 2, dtype=np.float32)
    exact = probabilities.astype(np.float64)
    weighed = exact / len(exact) if chances is None else exact * chances[:, None]
    for first in range(0, len(pairs), _STRIP):
        pairs[first : first + _STRIP] = exact[:, first : first + _STRIP].T @ weighed
    return pairs


class RedrawGivenOthers:
    """Draws the attributes that rules are about, given the other attributes of some records."""

    def __init__(self, model: LatentModel, codes: Codes, allowed: Allowed) -> None:
        self._probabilities, self._cells = model.probabilities, model.schema.cells
        self._touched = constrained(allowed)
        others = sorted(set(range(len(codes))) - set(self._touched))
        self._odds = np.cumsum(component_odds(self._probabilities, self._cells.offsets, codes, others), axis=1)

    def __call__(self, codes: Codes, rows: NDArray[np.int64], generator: np.random.Generator) -> Codes:
        """Fresh records in place of `codes`, which are those of these rows."""
        fresh = codes.copy()
        component = pick(self._odds[rows], generator)
        for i in self._touched:
            own = self._probabilities[component, self._cells.levels(i)]
            fresh[i] = pick(np.cumsum(own, axis=1, dtype=np.float64), generator)
        return fresh


def component_odds(
    probabilities: NDArray[np.float32], offsets: NDArray[np.int64], codes: Codes, attributes: Sequence[int]
) -> NDArray[np.float64]:
    """How likely each component is beside the likeliest, given these attributes of records: (rows, components)."""
    logs = np.zeros((codes.shape[1], len(probabilities)), dtype=np.float32)
    # Components are equally likely and attributes independent within them, so these products are their odds.
    for i in attributes:
        own = probabilities[:, offsets[i] + codes[i]].T
        logs += np.log(np.maximum(own, np.float32(1e-30)))
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)), dtype=np.float64)


def pick(cumulative: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.int64]:
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


def shares_of(probabilities: NDArray[np.float32], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each level's share of those levels of its attribute that do not come before it, shape (components, d)."""
    shares = np.empty(probabilities.shape)
    for first, last in pairwise(offsets):
        own = probabilities[:, first:last].astype(np.float64)
        # Summed from the last level back: one that nobody can take after it has all that is left, to the last bit.
        rest = np.cumsum(own[:, ::-1], axis=1)[:, ::-1]
        shares[:, first:last] = np.divide(own, rest, out=np.ones_like(own), where=rest > own)
    return shares


def _systematic(
    generator: np.random.Generator, rows: int, components: int, upto: NDArray[np.float64] | None
) -> NDArray[np.int64]:
    """Where each component's rows end: its share of them on average, rounded by one common uniform.

    `upto`, shape (components + 1,), are running totals of chances; None: all are equally likely.
    """
    shares = np.arange(components + 1) * (rows / components) if upto is None else upto * (rows / upto[-1])
    ends = np.floor(shares + generator.random()).astype(np.int64)
    ends[0], ends[-1] = 0, rows
    return np.asarray(ends)


def _allotted(
    shares: NDArray[np.float64],
    visits: NDArray[np.int32],
    sizes: NDArray[np.int64],
    uniforms: NDArray[np.float64],
) -> NDArray[np.int64]:
    """How many rows of each component get each level of an attribute, shape (components, levels): systematic rounding.

    Levels are split off one at a time. Level k takes its share p_k / (p_k + p_(k+1) + ...) of the rows that a component
    still has, rounded so that the running total over components stays within one of the sum of the shares:
    floor(S_c + u) - floor(S_(c-1) + u) has the right expectation for a uniform u.
    """
    took = np.empty(shares.shape, dtype=np.int64)
    left = sizes[visits]
    for k in range(shares.shape[1]):
        share = shares[visits, k]
        certain = share >= 1.0
        running = np.cumsum(np.concatenate([uniforms[k : k + 1], np.where(certain, 0.0, left * share)]))
        own = np.clip(np.diff(np.floor(running).astype(np.int64)), 0, left)
        took[visits, k] = np.where(certain, left, own)
        left = left - took[visits, k]
    return took


def deal_few(
    codes: Codes,
    shares: NDArray[np.float64],
    offsets: NDArray[np.int64],
    visits: NDArray[np.int32],
    bounds: NDArray[np.int64],
    place: NDArray[np.uint32],
    uniforms: NDArray[np.float64],
    generator: np.random.Generator,
) -> None:
    """Levels of every attribute, where components are few: the rows of each get their levels in random order."""
    for a, (first, last) in enumerate(pairwise(offsets)):
        took = _allotted(shares[:, first:last], visits[a], np.diff(bounds), uniforms[first:last])
        for own, (begin, end) in zip(took, pairwise(bounds), strict=True):
            codes[a, place[begin:end]] = generator.permutation(np.repeat(np.arange(last - first), own))


def deal_plainly(
    codes: Codes,
    shares: NDArray[np.float64],
    offsets: NDArray[np.int64],
    visits: NDArray[np.int32],
    bounds: NDArray[np.int64],
    place: NDArray[np.uint32],
    uniforms: NDArray[np.float64],
    keys: NDArray[np.uint64],
) -> None:
    """Do the same as `_deal` in NumPy, the shuffles of all components side by side."""
    sizes = np.diff(bounds)
    for a, (first, last) in enumerate(pairwise(offsets)):
        took = _allotted(shares[:, first:last], visits[a], sizes, uniforms[first:last])
        largest = took.argmax(axis=1)
        codes[a, place] = np.repeat(largest, sizes)
        took[np.arange(sizes.size), largest] = 0
        steps = took.sum(axis=1)
        # Those with most steps first: those that still go on are then a part of the front.
        order = np.argsort(-steps, kind="stable")
        going = np.searchsorted(-steps[order], -np.arange(steps.max(initial=0)), side="left")
        state = keys[a] + (order + 1).astype(np.uint64) * _GOLDEN
        state = (state ^ (state >> _30)) * _MIX
        state = (state ^ (state >> _27)) * _MIX_AGAIN
        state = (state ^ (state >> _31)) | _ONE
        begin, size = bounds[:-1][order], sizes[order]
        for step, active in enumerate(going.tolist()):
            own = state[:active]
            own ^= own >> _12
            own ^= own << _25
            own ^= own >> _27
            word = (own * _MULTIPLIER) >> _32
            at = begin[:active] + step
            other = at + ((word * (size[:active] - step).astype(np.uint64)) >> _32).astype(np.int64)
            chosen = place[other]
            place[other] = place[at]
            place[at] = chosen
        dealt = np.repeat(np.tile(np.arange(last - first), sizes.size), took.ravel())
        within = np.arange(dealt.size) - np.repeat(np.cumsum(steps) - steps, steps)
        codes[a, place[np.repeat(bounds[:-1], steps) + within]] = dealt


def _deal(
    codes: Codes,
    shares: NDArray[np.float64],
    offsets: NDArray[np.int64],
    visits: NDArray[np.int32],
    bounds: NDArray[np.int64],
    place: NDArray[np.uint32],
    uniforms: NDArray[np.float64],
    keys: NDArray[np.uint64],
) -> None:
    """Levels of every attribute: allotted to components as in `_allotted`, dealt to the rows of each at random.

    `place` holds the rows, component by component, and is shuffled on the way.
    """
    for a in range(codes.shape[0]):
        first, last = offsets[a], offsets[a + 1]
        own = codes[a]
        running = uniforms[first:last].copy()
        took = np.empty(last - first, dtype=np.int64)
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
                    before = np.int64(np.floor(running[k]))
                    running[k] += left * share
                    took[k] = min(max(np.int64(np.floor(running[k])) - before, 0), left)
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
            state = keys[a] + np.uint64(c + 1) * _GOLDEN
            state = (state ^ (state >> _30)) * _MIX
            state = (state ^ (state >> _27)) * _MIX_AGAIN
            state = (state ^ (state >> _31)) | _ONE
            taken = begin
            for k in range(reached):
                if k == largest:
                    continue
                for _ in range(took[k]):
                    state ^= state >> _12
                    state ^= state << _25
                    state ^= state >> _27
                    word = (state * _MULTIPLIER) >> _32
                    other = taken + np.int64((word * np.uint64(end - taken)) >> _32)
                    chosen = place[other]
                    place[other] = place[taken]
                    place[taken] = chosen
                    own[chosen] = k
                    taken += 1


_REST = f"float64[:, ::1], {OFFSETS}, int32[:, ::1], int64[::1], uint32[::1], float64[::1], uint64[::1]"
deal_bytes = compiled(f"void(uint8[:, ::1], {_REST})")(_deal)
deal_shorts = compiled(f"void(uint16[:, ::1], {_REST})")(_deal)
