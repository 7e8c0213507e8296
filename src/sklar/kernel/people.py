"""Which rows of each person are counted, and how a person's tokens are dealt to entries.

The privacy argument needs three things of this file, and nothing else: at most `most` rows of a person are chosen;
which of a person's rows are chosen depends on that person's rows and keys alone; and the tokens of a person's entries
are whole numbers, none negative, of sum at most `each`, by that person's entries alone. A person is a mark, which
stands for an id.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def choose_rows(marks: NDArray[np.uint64], keys: NDArray[np.uint64], most: int) -> NDArray[np.intp]:
    """The places of the rows that are counted: of the rows of each mark, the `most` with the smallest keys.

    `marks` has shape (rows, 2), `keys` (rows,). Postcondition: no mark has more than `most` places, and a mark with
    fewer rows has all of them.

    Keys are independent and uniform, so of a person's k rows every set of min(k, most) is chosen with the same chance.
    The smallest of a whole are the smallest among the smallest of its parts: parts may be reduced first.

    >>> choose_rows(np.array([[7, 0], [8, 0], [7, 0], [7, 0]], dtype=np.uint64), np.array([3, 9, 1, 2]), 2).tolist()
    [2, 3, 1]
    """
    order = np.lexsort((keys, marks[:, 1], marks[:, 0]))
    ordered = marks[order]
    first = np.ones(order.size, dtype=bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    places = np.arange(order.size)
    # A row's rank among its person's: how far it stands from the first of them.
    rank = places - np.maximum.accumulate(np.where(first, places, 0))
    return order[rank < most]


def deal(owner: NDArray[np.int64], parts: NDArray[np.int64], each: int) -> NDArray[np.int64]:
    """Whole tokens of entries, in proportion to their parts: `each` to every owner, shape (entries,).

    Postcondition, for any owners and parts: tokens are whole numbers, none negative; those of one owner sum to `each`,
    or to none where no entry has parts; and they depend on that owner's entries, in their order, alone. Why: with T the
    sum of an owner's parts, and P that up to and with an entry of p, it gets floor(each P / T) - floor(each (P - p) /
    T). Floors do not fall as P grows, and the sum over the owner's entries telescopes to floor(each T / T).
    Precondition, by public limits: the parts of one owner sum to less than 2^46, so that no product exceeds 64 bits.
    Sums over several owners may: they wrap, and differences within an owner are exact.

    >>> deal(np.array([7, 8, 7, 7]), np.array([1, 5, 1, 1]), 8).tolist()
    [2, 8, 3, 3]
    """
    order = np.argsort(owner, kind="stable")
    own, part = owner[order], np.maximum(parts[order], 0)
    first = np.flatnonzero(np.append(True, own[1:] != own[:-1])[: own.size])
    sizes, upto = np.diff(first, append=own.size), np.cumsum(part)
    upto -= np.repeat((upto - part)[first], sizes)
    total = np.maximum(np.repeat(np.add.reduceat(part, first) if first.size else part, sizes), 1)
    tokens = np.empty_like(part)
    tokens[order] = each * upto // total - each * (upto - part) // total
    return tokens
