"""What may be asked of rows: a closed list of queries, each with its plain routine and its bound side by side.

A query's answer is a vector of whole numbers, a public function of a sum over rows or people. `count` is the plain
routine that anyone can read; every engine is held to it. `bound` is what the answer costs with noise of these scales,
as `theorems.Spend`: how many moves one person makes, over separate cells, and how far each reaches. `sizes` says how
many cells share each scale, in order. `tests/kernel/test_bounds.py` compares the two for every class by exhaustion.

The argument needs one thing of an encoder: a row has at most one code per attribute, which depends on that row and the
schema alone. Codes are an array of shape (rows,) per attribute; what is no level stands in no cell (`one_or_none`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklar.errors import BudgetError
from sklar.kernel.cells import Cells, Doubles, Ints, Whole
from sklar.kernel.theorems import BLUR, Budget, Spend, chance_of_one

# The code of a value that stands in no cell.
NO_CELL = -1
# A distance is in parts of a row, so many to one.
PARTS = 15
# Tables whose distance is measured have at most so many levels an axis, and cells; cells of more rows count as if they
# had no more.
MOST_COARSE, MOST_APART, _MOST_ROWS = 8, 512, 2**31
# Tokens that a person or row deals at most.
MOST_TOKENS = 1 << 16

Codes: TypeAlias = Sequence[NDArray[np.integer[Any]]] | NDArray[np.integer[Any]]
# Of every entry of a table, the cell and the tokens that it gets: arrays of one length.
Entries: TypeAlias = tuple[Ints, Ints]


def one_or_none(codes: NDArray[np.integer[Any]], size: int) -> NDArray[np.int32]:
    """Codes of an attribute with this many levels, shape (rows,): what is no level becomes `NO_CELL`. Never raises.

    Postcondition: -1 <= code < size. So a row stands in at most one cell of every table that this attribute is in.
    """
    # Compared before they are narrowed: a number that does not fit would become another one.
    outside, narrow = (codes < 0) | (codes >= size), codes.astype(np.int32, copy=False)
    return np.where(outside, np.int32(NO_CELL), narrow) if outside.any() else narrow


class _Shared:
    """What all queries share. The vault takes exactly the classes of `QUERIES`: a subclass could be cheap."""

    __slots__ = ()
    gaussian_only: ClassVar[bool] = False

    @property
    def sizes(self) -> Ints:
        """The number of cells at each scale."""
        raise AssertionError("every query states its sizes")

    @property
    def n_cells(self) -> int:
        """The number of cells in all."""
        return int(self.sizes.sum())

    def lay(self, exact: Any) -> tuple[tuple[str, ...] | None, Whole]:
        """Keys of the cells, where they have any, and exact whole numbers, one for every cell."""
        flat = np.asarray(exact)
        if flat.shape != (self.n_cells,) or flat.dtype.kind not in "iu" or not np.can_cast(flat.dtype, np.int64):
            raise BudgetError("an exact answer must be a whole number for every cell of its query. Count again.")
        return None, flat

    def show(self, keys: tuple[str, ...] | None, noisy: Whole) -> tuple[tuple[str, ...] | None, Whole]:
        """What is let out of noisy cells: all of them."""
        return keys, noisy

    def _refuse(self, scales: Doubles, budget: Budget) -> None:
        if scales.shape != np.shape(self.sizes):
            raise BudgetError("a query needs one noise scale for each of its groups of cells. Make a new plan.")
        if self.gaussian_only and budget.mechanism != "gaussian":
            raise BudgetError(f"{type(self).__name__} take gaussian noise, got '{budget.mechanism}'. Make a new plan.")


def _fixed(array: ArrayLike, dtype: Any = np.int64) -> NDArray[Any]:
    """A copy that nobody can write to: views of a caller's array would stay writable."""
    own = np.array(array, dtype=dtype)
    own.setflags(write=False)
    return own


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tables(_Shared):
    """Contingency tables of sets of attributes, all of one order, over levels or coarser ones; one scale per table.

    `sets` has shape (t, order), ascending within a row and from row to row; None: all sets of this order. The set of
    none is the number of rows, sets of one are histograms. `coarse` has shape (d,), the coarse level of every level,
    laid out by `cells`; None: levels as they are. Tables lie flat, one after the other; within one, cells follow its
    attributes in order, the last one fastest. `about` names the attribute whose values a public grid counts, where the
    cells are not the schema's. Where `each` is more than 1, rows have tokens, at most so many those of one person
    (`people.deal`), and cells count these.

    >>> Tables(cells=Cells([2, 3, 2]), order=2).sizes.tolist(), Tables(cells=Cells([2, 3]), order=0).n_cells
    ([6, 4, 6], 1)
    """

    cells: Cells
    order: int
    sets: Ints | None = None
    coarse: Ints | None = None
    about: str = ""
    each: int = 1

    def __post_init__(self) -> None:
        m, sets, coarse = self.cells.n_attributes, self.sets, self.coarse
        if self.order < 0:
            raise BudgetError(f"a table is of no attribute or more, got {self.order}.")
        _refuse_tokens(self.each)
        if sets is not None:
            sets = _fixed(sets).reshape(-1, self.order)
            sets.setflags(write=False)
            if (np.diff(sets, axis=1) <= 0).any() or (sets < 0).any() or (sets >= m).any():
                raise BudgetError("a table must name attributes of the schema, in ascending order.")
            if any(one >= other for one, other in zip(sets.tolist()[:-1], sets.tolist()[1:], strict=True)):
                raise BudgetError("tables must differ, and stand in ascending order.")
            object.__setattr__(self, "sets", sets)
        if coarse is not None:
            coarse = _fixed(coarse)
            fits = coarse.shape == (self.cells.n_levels,) and (coarse >= 0).all()
            if not fits or (coarse >= self.cells.sizes[self.cells.attribute_of_level]).any():
                raise BudgetError("every level must belong to a coarse level, which are no more than levels.")
            object.__setattr__(self, "coarse", coarse)

    @property
    def levels(self) -> Ints:
        """The number of levels of every attribute in these tables, shape (m,)."""
        if self.coarse is None:
            return self.cells.sizes
        return np.maximum.reduceat(self.coarse, self.cells.offsets[:-1]) + 1

    @property
    def members(self) -> Ints:
        """The attributes of every table, shape (t, order)."""
        if self.sets is not None:
            return self.sets
        if self.order == 2:
            return np.stack(self.cells.pairs, axis=1)
        chosen = list(combinations(range(self.cells.n_attributes), self.order))
        return np.array(chosen, dtype=np.int64).reshape(len(chosen), self.order)

    @property
    def shapes(self) -> Ints:
        """The numbers of levels of each table's attributes, shape (t, order)."""
        return self.levels[self.members]

    @property
    def sizes(self) -> Ints:
        """The number of cells of every table, shape (t,)."""
        if self.sets is None and self.coarse is None and self.order in (1, 2):
            # Of millions of pairs these are known: products along an axis take seconds.
            return self.cells.sizes if self.order == 1 else self.cells.pair_sizes
        return np.asarray(np.prod(self.shapes, axis=1, dtype=np.int64))

    @property
    def offsets(self) -> Ints:
        """Where every table begins in the flat vector, and where the last one ends, shape (t + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    def count(self, codes: Codes, tokens: Ints | None = None) -> Ints:
        """Exact counts of rows, or of their tokens. A row without a level of one of a table's attributes stands in none
        of its cells.

        >>> Tables(cells=Cells([2, 3]), order=2).count(np.array([[0, 1, 1], [0, 2, -1]])).tolist()
        [1, 0, 0, 0, 0, 1]
        """
        own = [one_or_none(np.asarray(each), int(size)) for each, size in zip(codes, self.cells.sizes, strict=True)]
        n_rows = own[0].size if own else 0
        if self.coarse is not None:
            own = [
                np.where(each >= 0, self.coarse[self.cells.levels(i)][each], np.int32(NO_CELL)).astype(np.int32)
                for i, each in enumerate(own)
            ]
        counts = []
        for chosen, shape in zip(self.members.tolist(), self.shapes.tolist(), strict=True):
            inside, place = np.ones(n_rows, dtype=bool), np.zeros(n_rows, dtype=np.int64)
            for attribute, size in zip(chosen, shape, strict=True):
                inside &= own[attribute] >= 0
                place = place * size + own[attribute]
            counts.append(_summed(place[inside], None if tokens is None else tokens[inside], math.prod(shape)))
        return np.concatenate([np.empty(0, dtype=np.int64), *counts])

    def bound(self, scales: Doubles, budget: Budget) -> Spend:
        """A row has at most one code per attribute, so one coarse code, and stands in at most one cell of each table.

        At most L rows of a person are counted: `shifts` moves of reach L a table (`theorems`, top). With tokens, those
        of a person are whole numbers, none negative, of sum at most G = `each`: the same with G for L, however many
        rows have them (`Shares.bound`).
        """
        self._refuse(scales, budget)
        if self.each > 1:
            _require_people(budget)
            return Spend.of(scales, budget.shifts, self.each)
        return budget.tables(scales)


def moved_sets(m: int) -> Doubles:
    """How many sets of one, two and three of m bits change parity when s bits change, shape (m + 1, 3)."""
    orders = ((s, s * (m - s), s * math.comb(m - s, 2) + math.comb(s, 3)) for s in range(m + 1))
    return np.array(list(orders), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parities(_Shared):
    """Of every set of one to `orders` bits (at most three), the rows whose bits sum to an odd number; a scale an order.

    A bit is 1 for the second level of an attribute, and 0 for the first level and for a value without one. With the
    number of rows, ones and parities of pairs say all that one-way and two-way tables do.
    """

    cells: Cells
    orders: int
    gaussian_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.cells.are_bits or not 1 <= self.orders <= min(3, self.cells.n_attributes):
            raise BudgetError("parities are of sets of one to three bits. Measure tables of other attributes.")

    @property
    def sizes(self) -> Ints:
        """The number of sets of each order, shape (orders,)."""
        return np.array([math.comb(self.cells.n_attributes, order) for order in range(1, self.orders + 1)])

    @property
    def tables(self) -> tuple[Tables, ...]:
        """The tables that the answer is a function of, one query per order."""
        return tuple(Tables(cells=self.cells, order=order) for order in range(1, self.orders + 1))

    def answer(self, *counts: Whole) -> Ints:
        """The same from exact `tables`: of bits a, b, c the odd sum is a + b + c - 2 (ab + ac + bc) + 4 abc."""
        ones = [np.asarray(flat[2**order - 1 :: 2**order], dtype=np.int64) for order, flat in enumerate(counts, 1)]
        parts = [ones[0]]
        if self.orders > 1:
            i, j = self.cells.pairs
            parts.append(ones[0][i] + ones[0][j] - 2 * ones[1])
        if self.orders > 2:
            i, j, k = self.cells.triples
            both = sum(ones[1][self.cells.pair(*two)] for two in ((i, j), (i, k), (j, k)))
            parts.append(ones[0][i] + ones[0][j] + ones[0][k] - 2 * both + 4 * ones[2])
        return np.concatenate(parts)

    def count(self, codes: Codes) -> Ints:
        """Exact numbers of rows with an odd sum, sets in the order of `Tables.members`, order after order."""
        bits = np.array([np.asarray(each) == 1 for each in codes])
        sets = [chosen for table in self.tables for chosen in table.members.tolist()]
        return np.array([int(np.logical_xor.reduce(bits[chosen], axis=0).sum()) for chosen in sets], dtype=np.int64)

    def bound(self, scales: Doubles, budget: Budget) -> Spend:
        """Replacing a row changes s of its m bits, and the parity of sets with an odd number of these: n_k(s) of order
        k.

        Of sets of one attribute s do, of pairs s (m - s), of triples s C(m - s, 2) + C(s, 3); each count moves by one.
        Adding or removing a row moves the counts of its odd sets by one: the same numbers, with s for its ones. So
        under both neighbors a row moves n_k(s) counts of order k by one, for one s. A person of up to L rows, the same
        ones in all orders, moves the counts by a sum of at most L such vectors. Weighed by 1/sigma^2 each has a squared
        length of at most M = max over s of sum n_k(s) / sigma_k^2, so by the triangle inequality the sum's is at most
        L^2 M: n_k(s) moves of reach L. Likewise with weights 1/(sigma^2 - 4). Let s be where the first sum is largest;
        where another s has a second sum r times as large, the moves are multiplied by r: both sums are then paid for.
        """
        self._refuse(scales, budget)
        return Spend.of(scales, self.moves(scales), budget.rows)

    def moves(self, scales: Doubles) -> Doubles:
        """The moves of each order that `bound` pays for, shape (orders,)."""
        moved = moved_sets(self.cells.n_attributes)[:, : self.orders]
        worst = moved[int(np.argmax(moved @ scales**-2.0))]
        if scales.min() ** 2 > BLUR:
            second = moved @ (1 / (scales**2 - BLUR))
            worst = worst * max(1.0, float(second.max() / (worst @ (1 / (scales**2 - BLUR)))))
        return np.asarray(worst)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distances(_Shared):
    """How far each of some tables lies from a public reference beyond what smaller tables say; one scale for all.

    With T the counts of a table and R its reference, whole numbers both, and C the projection that takes out means
    along each axis, it is floor(15 |C (T - R)| / G + 1/2): whole parts of a row. `reference` is laid out as the tables;
    None where a file did not keep it: then nothing can be counted. T and R count tokens, G to a row, where `of` does.
    """

    of: Tables
    reference: Ints | None
    gaussian_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        wide = self.of.shapes.max(initial=0) > MOST_COARSE or self.of.sizes.max(initial=0) > MOST_APART
        if self.of.order not in (3, 4) or wide:
            over = f"at most {MOST_COARSE} levels an attribute and {MOST_APART} cells"
            raise BudgetError(f"distances are of tables of three or four attributes over {over}.")
        if self.reference is not None:
            object.__setattr__(self, "reference", _fixed(self.reference))
            if self.reference.shape != (self.of.n_cells,):
                raise BudgetError("distances need a reference for every cell.")

    @property
    def sizes(self) -> Ints:
        """The number of tables, shape (1,)."""
        return np.array([self.of.sizes.size])

    @property
    def tables(self) -> tuple[Tables, ...]:
        """The tables that the answer is a function of."""
        return (self.of,)

    def answer(self, *counts: Whole) -> Ints:
        """The same from exact `tables`."""
        if self.reference is None:
            raise BudgetError("distances need the reference that they were measured from. Make a new plan.")
        apart = np.minimum(counts[0], _MOST_ROWS) - np.clip(self.reference, -_MOST_ROWS, _MOST_ROWS)
        found = []
        for table, shape in zip(np.split(apart, self.of.offsets[1:-1]), self.of.shapes.tolist(), strict=True):
            centered = table.reshape(shape)
            for axis, size in enumerate(shape):
                centered = size * centered - centered.sum(axis=axis, keepdims=True)
            norm = np.sqrt(np.sum(np.square(centered, dtype=np.float64))) / (table.size * self.of.each)
            found.append(np.floor(PARTS * norm + 0.5))
        return np.array(found, dtype=np.int64)

    def count(self, codes: Codes) -> Ints:
        """Exact distances, shape (t,)."""
        return self.answer(self.of.count(codes))

    def bound(self, scales: Doubles, budget: Budget) -> Spend:
        """One move a table, of reach floor(15 d + 1.3) with d = sqrt(shifts) L, the L2 sensitivity of a table.

        1. Counts are cut at 2^31, cell by cell, which brings no two tables further apart.
        2. C is the product of I - 1 1'/I along each axis, I its levels: orthogonal projections that commute, however
           many there are. So it is one, |C x| <= |x|, and | |C (T - R)| - |C (T' - R)| | <= |C (T - T')| <= d.
           With tokens |T - T'| <= G d (`Tables.bound`), and all is divided by G.
        3. |C (T - R)| times the number of cells is the length of whole numbers: an axis of I <= 8 levels makes x into
           I x less a sum of I such, of which one is x: at most 14 times as large. So they stay below 2^32 14^4 < 2^48:
           exact. Their squares, at most 512 numbers that are not negative, are added in double precision: the root is
           right up to 400 roundings of 2^-53, a share of 5e-14, whatever the order. Over the number of cells it is
           below 2^32 sqrt(512) < 2^37. So 15 times it is off by less than 0.11, the final sum by 1e-3.
        4. For real a and b, floor(a) - floor(b) < a - b + 1. So distances differ by a whole number below 15 d + 1.3.
        """
        self._refuse(scales, budget)
        if self.of.each > 1:
            _require_people(budget)
        return Spend.of(scales, self.sizes, math.floor(PARTS * math.sqrt(budget.shifts) * budget.rows + 1.3))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shares(_Shared):
    """Tables to whose cells each person (or row) deals at most `each` = G whole tokens, none negative; a scale a table.

    `what` says in a word which tables these are, `lengths` how many cells each has, `per` who deals.
    """

    what: str
    lengths: Ints
    each: int
    per: Literal["person", "row"] = "person"
    gaussian_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", _fixed(self.lengths))
        _refuse_tokens(self.each)
        if self.per not in ("person", "row") or (self.lengths < 1).any():
            raise BudgetError("a person or row deals tokens to tables of cells.")

    @property
    def sizes(self) -> Ints:
        """The number of cells of every table, shape (t,)."""
        return self.lengths

    def count(self, entries: Sequence[Entries]) -> Ints:
        """Tokens by cell, those of one table after the other. What stands in no cell counts for nothing."""
        counts = []
        for (cell, tokens), n in zip(entries, self.lengths.tolist(), strict=True):
            inside = (cell >= 0) & (cell < n)
            counts.append(_summed(cell[inside], tokens[inside], n))
        return np.concatenate([np.empty(0, dtype=np.int64), *counts])

    def bound(self, scales: Doubles, budget: Budget) -> Spend:
        """One dealer's tokens in a table are whole numbers, none negative, of sum at most G (`people.deal`), or fewer
        where some stand in no cell.

        So a person's are a vector v as that of a table of counts, with G for L, or G L where rows deal and L of them
        are counted: `shifts` moves of that reach (`theorems`, top), however many entries a person has. People can deal
        only where neighbors differ in all of a person: a single row that comes or goes changes its person's v to
        another.
        """
        self._refuse(scales, budget)
        if self.per == "person":
            _require_people(budget)
        return Spend.of(scales, budget.shifts, self.each * (budget.rows if self.per == "row" else 1))


def _summed(cell: Ints, tokens: Ints | None, cells: int) -> Ints:
    """Rows, or their tokens, in each cell: sums of whole numbers below 2^53, which double precision holds exactly."""
    return np.bincount(cell, tokens, cells).astype(np.int64)


def _refuse_tokens(each: int) -> None:
    if not 1 <= each <= MOST_TOKENS:
        raise BudgetError(f"a person or row deals 1 to {MOST_TOKENS:,} tokens, got {each}.")


def _require_people(budget: Budget) -> None:
    if budget.rows_per_person is None:
        raise BudgetError("shares of people need a budget by person. Name the person in the schema.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Common(_Shared):
    """The values of the attribute `about` whose noisy number of rows reaches the threshold, named; one scale."""

    about: str
    threshold: int
    gaussian_only: ClassVar[bool] = True

    @property
    def sizes(self) -> Ints:
        """Not public: a placeholder for the values that occur, shape (1,)."""
        return np.array([0])

    def lay(self, exact: Any) -> tuple[tuple[str, ...] | None, Whole]:
        """The values that occur, sorted, and their exact counts."""
        names = tuple(sorted(exact))
        if not isinstance(exact, Mapping) or not all(type(count) is int for count in exact.values()):
            raise BudgetError("the exact answer about common values must be whole numbers by name. Count again.")
        return names, np.array([exact[name] for name in names], dtype=np.int64)

    def show(self, keys: tuple[str, ...] | None, noisy: Whole) -> tuple[tuple[str, ...] | None, Whole]:
        """Those that reach the threshold."""
        kept = noisy >= self.threshold
        return tuple(key for key, keep in zip(keys or (), kept, strict=True) if keep), noisy[kept]

    def count(self, values: Sequence[str | None]) -> dict[str, int]:
        """Exact numbers of rows by value; None is no value."""
        names, times = np.unique([value for value in values if value is not None], return_counts=True)
        return dict(zip(map(str, names), times.tolist(), strict=True))

    def bound(self, scales: Doubles, budget: Budget) -> Spend:
        """One table's moves, and `chance_of_one` of delta, as `Budget.less` proves; how many values occur stays inside.

        The chance is proven for Gaussian noise alone. How long the draw takes tells how many values occur.
        """
        self._refuse(scales, budget)
        return budget.tables(scales, 1, chance_of_one(float(scales[0]), self.threshold, budget.rows))


Query: TypeAlias = Tables | Parities | Distances | Shares | Common
QUERIES: tuple[type[Query], ...] = (Tables, Parities, Distances, Shares, Common)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """What was measured by one query: the scales of the noise that was drawn, and noisy values, public both.

    `keys` names the values where the query does not (`Common`).
    """

    query: Query
    scales: Doubles
    values: Whole
    keys: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for array in (self.scales, self.values):
            array.setflags(write=False)

    def spend(self, budget: Budget) -> Spend:
        """What it cost."""
        return self.query.bound(self.scales, budget)

    def by_scale(self) -> list[NDArray[Any]]:
        """The values at each scale: table after table."""
        return np.split(self.values, np.cumsum(self.query.sizes)[:-1])

    @property
    def in_rows(self) -> Block:
        """The same with tokens as parts of a row (or person), so that values are whole numbers no more."""
        query = self.query
        if not isinstance(query, Tables | Shares) or query.each == 1:
            return self
        values: Any = self.values / query.each
        return replace(self, query=replace(query, each=1), scales=self.scales / query.each, values=values)
