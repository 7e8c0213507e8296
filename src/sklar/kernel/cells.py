"""Which cells exist: the geometry of one-way and two-way tables, by the attributes' sizes alone.

All one-way tables are one flat vector of d cells, attribute after attribute. All two-way tables are another, table
after table in the order (0, 1), (0, 2), ..., (1, 2), ...; within a table, row after row of the first attribute's
levels. Every array of counts, noise or scales in the package is laid out by this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)
# Counts of many cells take 32 bits each where these hold them.
Whole: TypeAlias = NDArray[np.signedinteger[Any]]
# Levels of records, shape (m, rows); and arrays of whole numbers, in double precision and in single precision.
Codes: TypeAlias = NDArray[np.integer[Any]]
Ints: TypeAlias = NDArray[np.int64]
Doubles: TypeAlias = NDArray[np.float64]
Floats: TypeAlias = NDArray[np.float32]

# More cells than this take 32 bits each where these hold them: 20,000 levels have no more.
MANY_CELLS = 200_000_000
# Cells of tables of one shape that are worked on together.
_TOGETHER = 250_000


class Cells:
    """The cells of m attributes with these numbers of levels. Every array that it hands out is read-only.

    >>> cells = Cells([2, 3, 2])
    >>> cells.n_levels, cells.pair(0, 2), cells.table(np.arange(16), 0, 2).tolist()
    (7, 1, [[6, 7], [8, 9]])
    """

    def __init__(self, sizes: Sequence[int] | Ints) -> None:
        self.sizes = read_only(np.array(sizes, dtype=np.int64))
        self.offsets = read_only(np.concatenate([[0], np.cumsum(self.sizes)]))
        self.n_attributes, self.n_levels = self.sizes.size, int(self.offsets[-1])
        self.n_pairs = self.n_attributes * (self.n_attributes - 1) // 2
        self.n_triples = self.n_pairs * (self.n_attributes - 2) // 3
        self.n_cells = (self.n_levels**2 - int(np.sum(self.sizes**2))) // 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cells) and np.array_equal(self.sizes, other.sizes)

    def __hash__(self) -> int:
        return hash(self.sizes.tobytes())

    @cached_property
    def attribute_of_level(self) -> Ints:
        """The attribute that each of the d levels belongs to, shape (d,)."""
        return read_only(np.repeat(np.arange(self.n_attributes), self.sizes))

    @cached_property
    def pairs(self) -> tuple[Ints, Ints]:
        """The first and the second attribute of every two-way table, shape (n_pairs,) each."""
        first, second = np.triu_indices(self.n_attributes, 1)
        return read_only(first), read_only(second)

    @cached_property
    def triples(self) -> tuple[Ints, Ints, Ints]:
        """The first, second and third attribute of every set of three, in lexical order, shape (n_triples,) each."""
        found = np.array(list(combinations(range(self.n_attributes), 3)), dtype=np.int64).reshape(-1, 3)
        return read_only(found[:, 0].copy()), read_only(found[:, 1].copy()), read_only(found[:, 2].copy())

    @cached_property
    def pair_sizes(self) -> Ints:
        """The number of cells of every two-way table, shape (n_pairs,)."""
        first, second = self.pairs
        return read_only(self.sizes[first] * self.sizes[second])

    @cached_property
    def pair_offsets(self) -> Ints:
        """Where every two-way table begins in the flat vector, and where the last one ends, shape (n_pairs + 1,)."""
        return read_only(np.concatenate([[0], np.cumsum(self.pair_sizes)]))

    @cached_property
    def strips(self) -> Ints:
        """Where the tables of each attribute with later ones begin in the flat vector, and their end, shape (m + 1,).

        Such a strip has a cell for each of the attribute's levels with each level of a later attribute.
        """
        later = self.n_levels - self.offsets[1:]
        return read_only(np.concatenate([[0], np.cumsum(self.sizes * later)]))

    @property
    def are_bits(self) -> bool:
        """Whether every attribute has two levels."""
        return self.n_attributes > 0 and bool((self.sizes == 2).all())

    def levels(self, attribute: int) -> slice:
        """The levels of an attribute among all d."""
        return slice(int(self.offsets[attribute]), int(self.offsets[attribute + 1]))

    def pair(self, first: Any, second: Any) -> Any:
        """The number of the two-way table of attributes first < second, or the numbers of many, as arrays."""
        return first * (2 * self.n_attributes - first - 1) // 2 + second - first - 1

    def table(self, flat: NDArray[Number], first: int, second: int) -> NDArray[Number]:
        """The two-way table of attributes first < second in a flat vector: a view, one row per level of the first."""
        start = int(self.pair_offsets[self.pair(first, second)])
        height, width = int(self.sizes[first]), int(self.sizes[second])
        return flat[start : start + height * width].reshape(height, width)

    def places_of(self, first: Ints, second: Ints) -> Ints:
        """Where the cells of these levels stand in the flat vector of two-way tables.

        Levels are numbers among all d; those of the earlier attribute come first.
        """
        i, j = self.attribute_of_level[first], self.attribute_of_level[second]
        table = self.pair_offsets[self.pair(i, j)]
        return np.asarray(table + (first - self.offsets[i]) * self.sizes[j] + second - self.offsets[j])

    def square(self, flat: NDArray[Number]) -> NDArray[Number]:
        """All two-way tables as one (d, d) array: the table of i < j at rows of i and columns of j, zero elsewhere.

        >>> Cells([2, 2]).square(np.array([5, 6, 7, 8])).tolist()
        [[0, 0, 5, 6], [0, 0, 7, 8], [0, 0, 0, 0], [0, 0, 0, 0]]
        """
        square = np.zeros((self.n_levels, self.n_levels), dtype=flat.dtype)
        for rows, columns, run, order in self._strips():
            square[rows, columns] = flat[run][order]
        return square

    def flat(self, square: NDArray[Number]) -> NDArray[Number]:
        """The inverse of `square`: what stands above the diagonal blocks of a (d, d) array, as a flat vector."""
        flat = np.empty(self.n_cells, dtype=square.dtype)
        for rows, columns, run, order in self._strips():
            flat[run][order] = square[rows, columns]
        return flat

    def _strips(self) -> Iterator[tuple[slice, slice, slice, Ints]]:
        """Attribute by attribute: its rows and columns in the square, its run of the flat vector, its cells' places."""
        width = self.sizes[self.attribute_of_level]
        table = self.offsets[self.attribute_of_level]
        within = np.arange(self.n_levels) - table
        start = 0
        for attribute, height in enumerate(self.sizes.tolist()):
            rows = self.levels(attribute)
            columns = slice(rows.stop, self.n_levels)
            # The tables with later attributes follow one another; within one, its rows do.
            order = height * (table[columns] - rows.stop) + within[columns]
            order = order + np.arange(height)[:, None] * width[columns]
            yield rows, columns, slice(start, start + order.size), order
            start += order.size

    def symmetric(self, each: Doubles) -> Doubles:
        """One number per two-way table as a symmetric (m, m) matrix with a diagonal of zeros."""
        square = np.zeros((self.n_attributes, self.n_attributes))
        square[self.pairs] = each
        return square + square.T

    def alike(self) -> Iterator[Ints]:
        """The numbers of tables of one shape, in groups that are small enough to be worked on together."""
        first, second = self.pairs
        if not first.size:
            return
        # Shapes as single numbers: to sort millions of pairs takes seconds.
        shapes = self.sizes[first] * (self.sizes.max() + 1) + self.sizes[second]
        for shape in np.unique(shapes):
            members = np.flatnonzero(shapes == shape)
            parts = 1 + members.size * int(self.pair_sizes[members[0]]) // _TOGETHER
            yield from np.array_split(members, min(members.size, parts))

    def places(self, members: Ints) -> Ints:
        """Where the cells of tables of one shape stand in the flat vector, shape (tables, rows, columns)."""
        first, second = self.pairs
        height, width = int(self.sizes[first[members[0]]]), int(self.sizes[second[members[0]]])
        return self.pair_offsets[members][:, None, None] + np.arange(height * width).reshape(height, width)


def read_only(array: NDArray[Number]) -> NDArray[Number]:
    """The array, which nobody can change any more: it is computed once and handed to everyone."""
    array.setflags(write=False)
    return array
