"""Parities of bits: what is measured of a table whose attributes all have two levels, and what that costs.

A bit is 1 for the second level of an attribute, and 0 for the first level and for a value that has none. Of every set
of one, two or three attributes, the rows are counted whose bits sum to an odd number: ones, and parities of pairs and
of triples. With the number of rows, ones and parities of pairs say all that the one-way and two-way tables do.

**Sensitivity.** Replacing a row changes its bits in some s of the m attributes. The parity of a set changes where an
odd number of its attributes is among these s, and then the count moves by one: of sets of one attribute s do, of pairs
s (m - s), of triples s C(m - s, 2) + C(s, 3). Adding or removing a row moves the counts of its odd sets by one: the
same numbers, with s for its ones. So under both neighbors a row shifts n_k(s) counts of order k by one unit, for one s.

A person of up to L rows moves the counts by a sum of at most L such vectors, each of which has, weighed by 1/sigma^2,
a squared length of at most M = max over s of sum n_k(s) / sigma_k^2. By the triangle inequality the sum's is at most
L^2 M: as with tables, L rows cost what L^2 do.
"""

from __future__ import annotations

import math
from math import comb

import numpy as np
from numpy.typing import NDArray

from sklar.kernel.cells import Cells
from sklar.kernel.theorems import BLUR, ROUNDING, Neighbors, Spend


def moved_sets(m: int) -> NDArray[np.float64]:
    """How many sets of one, two and three of m bits change parity when s bits change, shape (m + 1, 3).

    >>> moved_sets(3).astype(int).tolist()
    [[0, 0, 0], [1, 2, 1], [2, 2, 0], [3, 0, 1]]
    """
    return np.array([(s, s * (m - s), s * comb(m - s, 2) + comb(s, 3)) for s in range(m + 1)], dtype=np.float64)


def parity_spend(m: int, scales: NDArray[np.float64], neighbors: Neighbors) -> Spend:
    """What parities of m bits cost at these scales, one for each order from 1 on: as much as so many tables.

    Sensitivity: n_k(s) unit shifts of counts of order k, for one s (top of this file). Cost: both bounds of
    `gaussian_epsilon` grow with sums over unit shifts, of 1/sigma^2 and of 1/(sigma^2 - 4); let s be where the first is
    largest. A spend is priced at `shifts` unit shifts a table. At one (add-remove) n_k(s) tables at sigma are n_k(s)
    unit shifts; at two (replace-one) n_k(s) tables at the scale t with 2 / (t^2 - 4) = 1 / (sigma^2 - 4) cost as much
    in the second sum, and 2 / t^2 > 1 / sigma^2 in the first; where sigma^2 <= 4, t = sigma pays twice. Where another s
    has a second sum r times as large, t^2 is divided by r: that makes both sums at least r times as large.

    >>> parity_spend(4, np.array([20.0, 10.0]), "add-remove").tables.tolist()
    [4, 2]
    """
    moved = moved_sets(m)[:, : scales.size]
    worst = moved[int(np.argmax(moved @ scales**-2.0))]
    stated, blurred = scales, scales.min() ** 2 > BLUR
    if neighbors == "replace-one":
        stated = np.where(scales**2 > BLUR, np.sqrt(np.abs(2 * scales**2 - BLUR)), scales)
    if blurred:
        second = moved @ (1 / (scales**2 - BLUR))
        stated = stated / math.sqrt(float(second.max() / (worst @ (1 / (scales**2 - BLUR)))))
    # Rounded down: less noise is stated than there is.
    return Spend.of(stated * (1 - ROUNDING), worst.astype(np.int64))


def odd_trios_plainly(codes: NDArray[np.int64], cells: Cells) -> NDArray[np.int64]:
    """Of every three bits, how many rows have an odd sum of them, from codes of shape (m, rows): shape (n_trios,).

    >>> odd_trios_plainly(np.array([[1, 1], [1, 0], [1, -1]]), Cells([2, 2, 2])).tolist()
    [2]
    """
    bits = codes == 1
    first, second, third = cells.trios
    odd = [int(np.count_nonzero(bits[i] ^ bits[j] ^ bits[k])) for i, j, k in zip(first, second, third, strict=True)]
    return np.array(odd, dtype=np.int64)
