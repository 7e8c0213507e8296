"""Exact counts, which are private, and a plain routine that anyone can read and every other way is held to.

A row adds one to at most one cell of each one-way and each two-way table, so counts of parts of the rows add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.kernel.cells import Cells, Whole
from sklar.kernel.codes import one_or_none
from sklar.kernel.triples import SCORE_UNITS, Triples

_MOST_IN_32_BITS = 2**31 - 1
# Cells of more rows than this are scored as if they had no more.
_MOST_SCORED = 2**31


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counts:
    """Exact counts of some rows: private. `one_way` has shape (d,), `pairs` (n_cells,), both laid out by `Cells`.

    A row adds at most one to a cell, so that two-way cells may take 32 bits up to 2^31 - 1 rows.
    """

    n_rows: int
    one_way: NDArray[np.int64]
    pairs: Whole

    def __repr__(self) -> str:
        # A traceback or a debugger's log must not print counts.
        return "Counts(private)"

    def __add__(self, other: Counts) -> Counts:
        rows = self.n_rows + other.n_rows
        return Counts(
            n_rows=rows,
            one_way=self.one_way + other.one_way,
            pairs=np.add(self.pairs, other.pairs, dtype=np.int64 if rows > _MOST_IN_32_BITS else None),
        )


def no_counts(cells: Cells) -> Counts:
    """The counts of no rows, over the full public domain."""
    return Counts(
        n_rows=0, one_way=np.zeros(cells.n_levels, dtype=np.int64), pairs=np.zeros(cells.n_cells, dtype=np.int64)
    )


def count_plainly(codes: Sequence[NDArray[np.integer[Any]]] | NDArray[np.integer[Any]], cells: Cells) -> Counts:
    """Exact counts of codes, one array of shape (rows,) per attribute.

    A row without a level of an attribute stands in no cell of any of its tables.

    >>> count_plainly(np.array([[0, 1, 1], [0, 2, -1]]), Cells([2, 3])).pairs.tolist()
    [1, 0, 0, 0, 0, 1]
    """
    found = no_counts(cells)
    # One place more in every table, for the rows that have no level.
    shifted = [
        one_or_none(own, size).astype(np.intp) + 1 for own, size in zip(codes, cells.sizes.tolist(), strict=True)
    ]
    rows = len(shifted[0]) if shifted else 0
    for i, first in enumerate(shifted):
        height = int(cells.sizes[i]) + 1
        found.one_way[cells.levels(i)] = np.bincount(first, minlength=height)[1:]
        for j in range(i + 1, len(shifted)):
            width = int(cells.sizes[j]) + 1
            table = np.bincount(first * width + shifted[j], minlength=height * width).reshape(height, width)
            cells.table(found.pairs, i, j)[:] = table[1:, 1:]
    return Counts(n_rows=rows, one_way=found.one_way, pairs=found.pairs)


def count_triples_plainly(
    codes: Sequence[NDArray[np.integer[Any]]] | NDArray[np.integer[Any]], triples: Triples
) -> NDArray[np.int64]:
    """Exact counts of coarse three-way tables, shape (n_cells,): private. Codes are those of `count_plainly`.

    A row without a level of one of the three attributes stands in no cell of their table.

    >>> triples = Triples(cells=Cells([2, 2, 2]), attributes=np.array([[0, 1, 2]]), coarse=np.array([0, 1] * 3))
    >>> count_triples_plainly(np.array([[0, 1], [1, 1], [1, -1]]), triples).tolist()
    [0, 0, 0, 1, 0, 0, 0, 0]
    """
    cells, counts = triples.cells, []
    own = [one_or_none(each, size) for each, size in zip(codes, cells.sizes.tolist(), strict=True)]
    for chosen, shape in zip(triples.attributes.tolist(), triples.shapes.tolist(), strict=True):
        inside = np.logical_and.reduce([own[each] >= 0 for each in chosen])
        levels = [triples.coarse[cells.levels(each)][own[each][inside]] for each in chosen]
        places = np.ravel_multi_index(levels, shape)
        counts.append(np.bincount(places, minlength=int(np.prod(shape))))
    return np.concatenate([np.empty(0, dtype=np.int64), *counts])


def score_plainly(exact: NDArray[np.int64], triples: Triples, reference: NDArray[np.int64]) -> NDArray[np.int64]:
    """How far coarse three-way tables lie from a public reference, beyond what pairs say, shape (t,): private.

    With T the counts of a table of I x J x K cells and R its reference, whole numbers both, and C the projection that
    takes out means along each of the three attributes, the score is floor(15 |C (T - R)| + 1/2): whole parts of a row.

    **Sensitivity.** Let T and T' be those of neighbors. Then |T - T'| <= d = sqrt(shifts) L in L2 (`theorems`), also
    where a value without a level leaves a row out. Claim: the two scores differ by at most 16 d.

    1. Counts are cut at 2^31, cell by cell, which brings no two tables further apart.
    2. C is the product of I - 1 1'/I, of J - 1 1'/J and of K - 1 1'/K along different axes: orthogonal projections that
       commute. So it is one, |C x| <= |x|, and | |C (T - R)| - |C (T' - R)| | <= |C (T - T')| <= |T - T'| <= d.
    3. I J K C (T - R) is made of whole numbers below 2^32 14^3 < 2^44: exact. Its squares, at most 512 numbers that are
       not negative, are added in double precision: the root is right up to 400 roundings of 2^-53, a share of 5e-14.
       It is below 2^32 sqrt(512) < 2^37. So 15 times it is off by less than 0.11, and the final sum by less than 1e-3.
    4. For real a and b, floor(a) - floor(b) < a - b + 1. So scores differ by a whole number below 15 d + 1 + 0.3. Where
       d = L is whole (add-remove), that is at most 15 L + 1 <= 16 L. Where d = sqrt(2) L (replace-one), it is less than
       15 d + 1.3 <= 16 d, because 1.3 < sqrt(2) <= d.

    **Cost.** Noise of scale 16 s on a score costs no more than noise of scale s on a table: (16 d)^2 / (2 (16 s)^2) is
    the table's zCDP d^2 / (2 s^2), and (16 d)^2 / ((16 s)^2 - 4) <= d^2 / (s^2 - 4), its square of mu.

    >>> triples = Triples(cells=Cells([2, 2, 2]), attributes=np.array([[0, 1, 2]]), coarse=np.array([0, 1] * 3))
    >>> parity = np.array([8, 0, 0, 8, 0, 8, 8, 0])
    >>> score_plainly(parity, triples, np.zeros(8, dtype=np.int64)).tolist(), round(15 * 8 * 8**0.5 / 2)
    ([170], 170)
    """
    apart = np.minimum(exact, _MOST_SCORED) - np.clip(reference, -_MOST_SCORED, _MOST_SCORED)
    scores = []
    for table, shape in zip(np.split(apart, triples.offsets[1:-1]), triples.shapes.tolist(), strict=True):
        centered = table.reshape(shape)
        for axis, size in enumerate(shape):
            centered = size * centered - centered.sum(axis=axis, keepdims=True)
        norm = np.sqrt(np.sum(np.square(centered, dtype=np.float64))) / table.size
        scores.append(np.floor(SCORE_UNITS * norm + 0.5))
    return np.array(scores, dtype=np.int64)
