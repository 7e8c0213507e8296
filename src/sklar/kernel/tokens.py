"""Shares of people as whole numbers: every person deals at most G tokens to the cells of a table, however many rows.

Claim: one person's tokens in a table are a vector v of whole numbers, none negative, whose sum is at most G; and they
depend on that person's entries alone. Hence, whatever a person's rows are and however many there are:

    adding or removing a person moves the table by v:     |v|_1 <= G    and |v|_2 <= |v|_1 <= G
    replacing a person moves it by v - v':                |v - v'|_1 <= 2 G, and
        |v - v'|_2^2 = |v|_2^2 + |v'|_2^2 - 2 v.v' <= G^2 + G^2, since no product of their cells is negative.

So with G = 1 a table moves as one of counts does in which a person stands in one cell, and in general as G times such a
table: its L2 sensitivity is G sqrt(`Budget.shifts`). Gaussian noise of scale G s on it costs no more than noise of
scale s on a table of counts, by both bounds of `theorems.gaussian_epsilon`: zCDP asks for D^2 / (2 sigma^2), which is
the same, and the curve for D^2 / (sigma^2 - 4) = shifts / (s^2 - 4 / G^2), which is no more than shifts / (s^2 - 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tokens:
    """Tokens of some people in the cells of one table: private. A person has dealt at most `each`."""

    table: NDArray[np.int64]
    each: int

    def __repr__(self) -> str:
        # A traceback or a debugger's log must not print counts.
        return "Tokens(private)"


def deal(
    person: NDArray[np.int64],
    cell: NDArray[np.int64],
    weight: NDArray[np.int64],
    whole: NDArray[np.int64],
    *,
    cells: int,
    each: int,
) -> Tokens:
    """Deal `each` tokens of every person to cells in proportion to weights, by largest remainder.

    Entry e says that `person[e]` has `weight[e]` parts of `whole[e]` in `cell[e]`; entries of one cell add up. Entries
    outside of the cells, or without weight, get nothing. Of equal remainders the earlier cell's comes first.

    Postcondition, for any entries: a person's tokens are whole numbers, none negative, of sum at most `each`, and a
    function of that person's entries. Why: with W the largest `whole` of a person, or the sum of the weights where that
    is more, cells get floor(each w / W), and floor(each sum(w) / W) - sum of these floors, which is less than the
    number of cells with a remainder, get one more.

    >>> two, one = np.array([0, 0, 1]), np.ones(3, dtype=np.int64)
    >>> deal(two, np.array([2, 0, 1]), one, np.array([2, 2, 1]), cells=3, each=3).table.tolist()
    [2, 3, 1]
    """
    kept = (cell >= 0) & (cell < cells) & (weight > 0)
    table = np.zeros(cells, dtype=np.int64)
    if not kept.any():
        return Tokens(table=table, each=each)
    place = person[kept].astype(np.int64) * cells + cell[kept]
    order = np.argsort(place, kind="stable")
    place = place[order]
    first = np.flatnonzero(np.diff(place, prepend=-1))
    weights = np.add.reduceat(weight[kept][order].astype(np.int64), first)
    wholes = np.maximum.reduceat(whole[kept][order].astype(np.int64), first)
    owner, cell = np.divmod(place[first], cells)

    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    each_owner = np.diff(begins, append=owner.size)
    sums = np.add.reduceat(weights, begins)
    parts = np.repeat(np.maximum(np.maximum.reduceat(wholes, begins), sums), each_owner)
    shares = each * weights // parts
    left = each * sums // parts[begins] - np.add.reduceat(shares, begins)
    # Large remainders first within a person: both in one number, which sorts several times as fast as two.
    wide = int(parts.max()) + 1
    number = np.repeat(np.arange(begins.size), each_owner)
    ranked = np.argsort(number * wide + (wide - 1 - (each * weights - shares * parts)), kind="stable")
    rank = np.arange(owner.size) - np.repeat(begins, each_owner)
    shares[ranked] += rank < np.repeat(left, each_owner)
    np.add.at(table, cell, shares)
    return Tokens(table=table, each=each)
