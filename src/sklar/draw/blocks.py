"""Blocks of records of a latent model: the unit that is drawn at once, in any thread, on any machine, in any order.

Block b of a sample depends on the model, the seed, b and the number of rows in the block, and on nothing else. A change
of block sizes, generators, or the order of draws changes the rows of every seed, and so what is released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sklar.draw.refine import Refiner
from sklar.kernel.cells import Cells, Codes, Doubles, Floats, Ints
from sklar.machine.compiled import OFFSETS, Worth, compiled
from sklar.public.rules import Allowed, constrained
from sklar.public.schema import Schema

if TYPE_CHECKING:
    from sklar.fitting.latent import LatentModel

BLOCK_ROWS = 1 << 14
# Blocks whose rows are refined are larger: what rounding leaves in each of them adds up.
REFINED_ROWS = 1 << 17
# So are those of models of many components, each of which has so many rows of a block, up to so many values in all.
_ROWS_EACH, _MOST_VALUES = 16, 1 << 25
# Rows of a component that are enough for exchanges, and the least fits that rows are drawn from.
_ROWS_TO_EXCHANGE, _LEAST_FITS = 8, 2
# Values that a sampler deals in NumPy before compiled code is worth loading: it deals a third as many at a time.
_PLAIN_VALUES = 20_000_000
# Up to this many components rows are dealt by NumPy's permutations: components side by side would be too few.
_FEW = 32
# xorshift64* (Vigna 2016): shuffles need speed, and rows of a component are few. Its states come from splitmix64.
_MULTIPLIER = np.uint64(2685821657736338717)
_GOLDEN, _MIX, _MIX_AGAIN = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_12, _25, _27, _30, _31, _32 = (np.uint64(bits) for bits in (12, 25, 27, 30, 31, 32))
_ONE = np.uint64(1)


def blocks(rows: int, size: int, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int]]:
    """Number and size of the blocks of at most `size` of these rows, from block `first` up to and without `last`."""
    end = -(-rows // size)
    for block in range(first, end if last is None else min(last, end)):
        yield block, min(size, rows - block * size)


def stream(seed: int, *numbers: int) -> np.random.Generator:
    """The generator of a block, or of one of several purposes of its own: independent of all others."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, *numbers])))


def dealt_rows(cells: Cells, components: int) -> int:
    """The size of the blocks of a model of this many components, a power of two.

    >>> dealt_rows(Cells([2] * 27), 1_200), dealt_rows(Cells([2] * 27), 2_400), dealt_rows(Cells([2] * 2_000), 2_400)
    (32768, 65536, 16384)
    """
    rows = BLOCK_ROWS
    while rows < _ROWS_EACH * components and 2 * rows * cells.n_attributes <= _MOST_VALUES:
        rows *= 2
    return min(rows, REFINED_ROWS)


def component_rows(rows: int, components: int, fits: int, uniform: float, *, few: bool) -> Ints:
    """How many of these rows each component gets, in the first fits of a model: where there are `few`, of two at least.

    A fit gets whole rounds, a row for each of its components; what is no round is spread over one of the fits, rounded
    by a uniform. Spread over all components it would move one-way counts by as much as the components differ. Values
    are exchanged within a component, so that few rows are drawn from so few fits that each of theirs has eight.

    >>> component_rows(10, 4, 2, 0.5, few=False).tolist(), component_rows(7, 6, 3, 0.5, few=True).tolist()
    ([3, 3, 2, 2], [2, 2, 2, 1])
    """
    each = components // fits
    rounds, rest = divmod(rows, each)
    used = min(max(rounds // _ROWS_TO_EXCHANGE, _LEAST_FITS), fits) if few else fits
    sizes = np.repeat(rounds // used + (np.arange(used) < rounds % used), each)
    sizes[rounds % used * each :][:each] += np.diff(np.floor(np.arange(each + 1) * rest / each + uniform).astype(int))
    return sizes


def empty_codes(cells: Cells, rows: int) -> Codes:
    """Room for the codes of this many rows, shape (m, rows); no attribute has more than 40,000 levels."""
    return np.empty((cells.n_attributes, rows), dtype=np.uint8 if cells.sizes.max() <= 256 else np.uint16)


# Reads a flat array of a model file by its name, type and size.
ReadArray: TypeAlias = Callable[[str, type[np.generic], int], NDArray[Any]]

# Fresh records in place of codes, shape (m, some rows), which stand in these rows of the records it was made for.
Redraw: TypeAlias = Callable[[Codes, Ints, np.random.Generator], Codes]


class Sampler(Protocol):
    """Draws any block of a model's rows, in any thread."""

    # Rows of all blocks but the last.
    block_rows: int

    def draw(self, seed: int, block: int, rows: int) -> Codes:
        """A block of codes, shape (m, rows), or of dummies 0 and 1, shape (d, rows)."""


class Copula(Protocol):
    """A joint distribution of the measured attributes, fitted to noisy tables. `kind` names it in model files.

    Only `release`, which fits models, and `files.archive`, which reads them, know which kinds there are.
    """

    kind: ClassVar[str]

    @property
    def schema(self) -> Schema:
        """The measured part of the schema."""

    @property
    def dummies(self) -> bool:
        """Whether rows are the paper's 0/1 columns instead of valid records."""

    def margins(self) -> Doubles:
        """Probabilities of levels before any repair, shape (d,)."""

    def predict_pairs(self) -> Floats | None:
        """Probabilities of pairs of levels, shape (d, d), zero within attributes; None without a closed form."""

    def components(self) -> Floats | None:
        """Probabilities of levels in D equally likely components, independent within each, shape (D, d), if any."""

    def sampler(self) -> Sampler:
        """Draws any block of rows, before any repair."""

    def redrawing(self, codes: Codes, allowed: Allowed, fixed: Sequence[int] = (), /) -> Redraw:
        """Draws anew the records that break a rule, given as codes, shape (m, rows), but for what is `fixed`."""

    def scaled(self, step: Doubles, allowed: Allowed, /) -> Self:
        """The model with levels these many times as likely, shape (d,), where a repair may move them."""

    def describe(self) -> dict[str, Any]:
        """What a model file says of it in JSON."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a model file holds of it as flat arrays."""

    @classmethod
    def read(cls, schema: Schema, described: Mapping[str, Any], array: ReadArray) -> Self:
        """The model that a file describes."""

    def summary(self, settings: Mapping[str, Any], /) -> list[str]:
        """How it was fitted, in a few lines."""


class LatentSampler:
    """Draws any block of a model's rows. `chances`, shape (components,): where components are not equally likely.

    Every record has exactly the model's distribution. But components and levels are allotted systematically, so that
    counts of levels are within about one of their expectation in each block, and two-way counts are brought nearer to
    theirs where the model says so (`refine`).
    """

    def __init__(self, model: LatentModel, chances: Doubles | None = None) -> None:
        self._cells, self._components, self._fits = model.schema.cells, model.n_components, model.fits
        self._upto = None if chances is None else np.concatenate([[0.0], np.cumsum(chances)])
        self._visits, self._shares = _visits_and_shares(model.probabilities, self._cells.offsets)
        self.block_rows = REFINED_ROWS if model.rounds else dealt_rows(self._cells, self._components)
        self._worth_compiling = Worth(_PLAIN_VALUES)
        # A repair draws the attributes of rules anew.
        free = np.setdiff1d(np.arange(self._cells.n_attributes), constrained(model.schema.allowed))
        self._refiner = Refiner(model, free, chances) if model.rounds and free.size > 1 else None

    def draw(self, seed: int, block: int, rows: int) -> Codes:
        """A block of codes, shape (m, rows)."""
        return self.draw_by(stream(seed, block), rows)

    def draw_by(self, generator: np.random.Generator, rows: int) -> Codes:
        """Codes of this many rows, shape (m, rows)."""
        cells, upto, number, shares, visits = self._cells, self._upto, self._components, self._shares, self._visits
        uniform = generator.random()
        if upto is None:
            few = self._refiner is not None
            sizes = component_rows(rows, number, self._fits, uniform, few=few)
        else:
            # Each component's share of the rows on average.
            sizes = np.diff(np.floor(np.append(upto[:-1] * (rows / upto[-1]) + uniform, rows)).astype(np.int64))
        number = sizes.size
        if number < self._components:
            visits, shares = visits[visits < number].reshape(len(visits), -1), np.ascontiguousarray(shares[:, :number])
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        place = generator.permutation(rows)
        uniforms = generator.random(cells.n_levels)
        keys = generator.integers(1, 2**63, size=cells.n_attributes, dtype=np.uint64)
        codes = empty_codes(cells, rows)
        # Whichever way, the rows are the same.
        if number > _FEW and self._worth_compiling(codes.size):
            deal = deal_bytes if codes.dtype == np.uint8 else deal_shorts
            deal(codes, shares, cells.offsets, visits, bounds, place, uniforms, keys)
        else:
            for own, order, key, (first, last) in zip(codes, visits, keys, pairwise(cells.offsets), strict=True):
                took = _allotted(shares[first:last], order, sizes, uniforms[first:last])
                if number > _FEW:
                    _deal(own, took, bounds, place, key)
                    continue
                for counts, (begin, end) in zip(took, pairwise(bounds), strict=True):
                    own[place[begin:end]] = generator.permutation(np.repeat(np.arange(counts.size), counts))
        if self._refiner is not None:
            self._refiner(codes, place, bounds, generator.integers(1, 2**63, dtype=np.uint64))
        return codes


def _visits_and_shares(probabilities: Floats, offsets: Ints) -> tuple[NDArray[np.int32], Doubles]:
    """The order in which each attribute's levels are dealt out to components, shape (m, components): like to like.

    Rounding errors of one component are made good in the next, in full where the two are alike. And each level's share
    of those levels of its attribute that do not come before it, shape (d, components).
    """
    visits = np.empty((offsets.size - 1, len(probabilities)), dtype=np.int32)
    shares = np.empty(probabilities.shape[::-1])
    for a, (first, last) in enumerate(pairwise(offsets)):
        chances = probabilities[:, first:last]
        top = chances.argmax(axis=1)
        visits[a] = np.lexsort((chances[np.arange(len(chances)), top], top))
        own = chances.T.astype(np.float64)
        # Summed from the last level back: one that nobody can take after it has all that is left, to the last bit.
        rest = np.cumsum(own[::-1], axis=0)[::-1]
        shares[first:last] = np.divide(own, rest, out=np.ones_like(own), where=rest > own)
    return visits, shares


def _allotted(shares: Doubles, visits: NDArray[np.int32], sizes: Ints, uniforms: Doubles) -> Ints:
    """How many rows of each component get each level of an attribute, shape (components, levels): systematic rounding.

    Levels are split off one at a time. Level k takes its share p_k / (p_k + p_(k+1) + ...) of the rows that a component
    still has, rounded so that the running total over components stays within one of the sum of the shares:
    floor(S_c + u) - floor(S_(c-1) + u) has the right expectation for a uniform u.
    """
    took = np.empty((visits.size, len(shares)), dtype=np.int64)
    left = sizes[visits]
    for k, (level, uniform) in enumerate(zip(shares, uniforms, strict=True)):
        share = level[visits]
        certain = share >= 1.0
        running = np.cumsum(np.concatenate([[uniform], np.where(certain, 0.0, left * share)]))
        own = np.clip(np.diff(np.floor(running).astype(np.int64)), 0, left)
        took[visits, k] = own = np.where(certain, left, own)
        left = left - own
    return took


def _deal(codes: Codes, took: Ints, bounds: Ints, place: Ints, key: np.uint64) -> None:
    """Levels of an attribute dealt at random to the rows of each component, as many as it `took` of each.

    `place` holds the rows, component by component. All rows get the component's most frequent level but those at its
    front, to which a shuffle, cut short, brings random rows in all components side by side; `place` stays shuffled.
    """
    starts, sizes, largest = bounds[:-1], np.diff(bounds), took.argmax(axis=1)
    took[np.arange(sizes.size), largest] = 0
    steps = took.sum(axis=1)
    # Those with most steps first: those that still go on are then a part of the front.
    order = np.argsort(-steps, kind="stable")
    going = np.searchsorted(-steps[order], -np.arange(steps.max(initial=0)), side="left")
    state = key + (order + 1).astype(np.uint64) * _GOLDEN
    state = (state ^ (state >> _30)) * _MIX
    state = (state ^ (state >> _27)) * _MIX_AGAIN
    state = (state ^ (state >> _31)) | _ONE
    at, left = starts[order], sizes[order].astype(np.uint64)
    for active in going.tolist():
        own, here = state[:active], at[:active]
        own ^= own >> _12
        own ^= own << _25
        own ^= own >> _27
        word = (own * _MULTIPLIER) >> _32
        word *= left[:active]
        word >>= _32
        other = here + word.view(np.int64)
        chosen = place.take(other)
        place[other] = place.take(here)
        place[here] = chosen
        here += 1
        left[:active] -= _ONE
    dealt = np.repeat(largest.astype(codes.dtype), sizes)
    others = np.repeat(np.tile(np.arange(took.shape[1], dtype=codes.dtype), sizes.size), took.ravel())
    dealt[np.arange(others.size) + np.repeat(starts - np.cumsum(steps) + steps, steps)] = others
    codes[place] = dealt


def _deal_all(
    codes: Codes,
    shares: Doubles,
    offsets: Ints,
    visits: NDArray[np.int32],
    bounds: Ints,
    place: Ints,
    uniforms: Doubles,
    keys: NDArray[np.uint64],
) -> None:
    """The same as `_allotted` and `_deal` for all attributes, to the last bit: component by component, compiled."""
    for a in range(codes.shape[0]):
        own, first, last = codes[a], offsets[a], offsets[a + 1]
        running, took = uniforms[first:last].copy(), np.empty(last - first, dtype=np.int64)
        for c in visits[a]:
            begin, end = bounds[c], bounds[c + 1]
            left, largest, reached = end - begin, 0, 0
            while left > 0:
                share = shares[first + reached, c]
                took[reached] = left
                if share < 1.0:
                    before = np.int64(np.floor(running[reached]))
                    running[reached] += left * share
                    took[reached] = min(max(np.int64(np.floor(running[reached])) - before, 0), left)
                largest = reached if took[reached] > took[largest] else largest
                left -= took[reached]
                reached += 1
            for row in range(begin, end):
                own[place[row]] = largest
            state = keys[a] + np.uint64(c + 1) * _GOLDEN
            state = (state ^ (state >> _30)) * _MIX
            state = (state ^ (state >> _27)) * _MIX_AGAIN
            state = (state ^ (state >> _31)) | _ONE
            for k in range(reached):
                for _ in range(took[k] if k != largest else 0):
                    state ^= state >> _12
                    state ^= state << _25
                    state ^= state >> _27
                    word = (state * _MULTIPLIER) >> _32
                    other = begin + np.int64((word * np.uint64(end - begin)) >> _32)
                    chosen = place[other]
                    place[other] = place[begin]
                    place[begin] = chosen
                    own[chosen] = k
                    begin += 1


_REST = f"float64[:, ::1], {OFFSETS}, int32[:, ::1], int64[::1], int64[::1], float64[::1], uint64[::1]"
deal_bytes = compiled(f"void(uint8[:, ::1], {_REST})")(_deal_all)
deal_shorts = compiled(f"void(uint16[:, ::1], {_REST})")(_deal_all)
