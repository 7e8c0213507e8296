"""Counts over three attributes, where their table was measured and its coarse levels tell what is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sklar.answer.query import Counted, exhaustive
from sklar.budget.certificate import Measured
from sklar.kernel.triples import NoisyTriples

# Cells of a table over all levels that a predicate is tried on.
_MAX_CELLS = 1 << 24


def count_three(
    measured: Measured,
    inside: Callable[[], NDArray[np.float64]],
    where: Sequence[int],
    *,
    level: float,
    complete: bool,
) -> Counted | str:
    """The count of rows that satisfy a predicate over these three attributes, ascending, or why there is none.

    `inside` gives the share of every cell of their table, over all levels, that the predicate holds for.
    """
    from scipy.special import ndtri

    noisy, schema = measured.triples, measured.schema
    found = [] if noisy is None else np.flatnonzero((noisy.triples.attributes == where).all(axis=1)).tolist()
    names = ", ".join(f"'{schema.names[i]}'" for i in where)
    if noisy is None or not found:
        return f"no direct measurement exists over {names}; only pairs and {_others(noisy)} were measured"
    coarse = _coarse_cells(measured, noisy, inside, where)
    if coarse is None:
        return f"the table of {names} was measured over coarser levels than this predicate tells apart"
    table = int(found[0])
    counts = noisy.counts[noisy.triples.offsets[table] : noisy.triples.offsets[table + 1]].reshape(coarse.shape)
    public, turned = measured.n_rows, False
    # Where every row has a cell and their number is public, counting the others may be the more precise way.
    if public is not None and 2 * np.count_nonzero(coarse) > coarse.size and (complete or exhaustive(schema, where)):
        coarse, turned = ~coarse, True
    size, summed = int(np.count_nonzero(coarse)), float(counts[coarse].sum())
    sd = float(noisy.scales[table]) * math.sqrt(size)
    by = f"{size:,} noisy cell{'s' if size != 1 else ''} of the coarse table of {names}"
    return Counted(
        count=(public or 0) - summed if turned else summed,
        standard_error=sd,
        half_width=sd * float(ndtri(0.5 + level / 2)),
        by=f"n less {by}" if turned else by,
    )


def _others(noisy: NoisyTriples | None) -> str:
    return "no tables of three" if noisy is None else f"{len(noisy.scales):,} other tables of three"


def _coarse_cells(
    measured: Measured, noisy: NoisyTriples, inside: Callable[[], NDArray[np.float64]], where: Sequence[int]
) -> NDArray[np.bool_] | None:
    """The coarse cells in which a predicate holds; None where it holds in a part of one."""
    schema, triples = measured.schema, noisy.triples
    if math.prod(int(schema.sizes[i]) for i in where) > _MAX_CELLS:
        return None
    held = inside()
    every = np.ones_like(held)
    for axis, i in enumerate(where):
        coarse = triples.coarse[schema.cells.levels(i)]
        held, every = (_summed(table, coarse, int(triples.levels[i]), axis) for table in (held, every))
    return held > 0 if ((held == 0) | (held == every)).all() else None


def _summed(table: NDArray[np.float64], coarse: NDArray[np.int64], levels: int, axis: int) -> NDArray[np.float64]:
    shape = list(table.shape)
    shape[axis] = levels
    summed = np.zeros(shape)
    np.add.at(np.moveaxis(summed, axis, 0), coarse, np.moveaxis(table, axis, 0))
    return summed
