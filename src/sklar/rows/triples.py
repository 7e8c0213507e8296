"""A second pass over the rows, for three-way tables of coarse levels that were chosen after the first.

Values become codes as in the first pass, and codes coarse codes by a table. The first rows are counted by the kernel's
plain routine, until their work would repay loading compiled code; the counts are the same either way
(`tests/rows/test_triples.py`). Only the attributes that some table has are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.views import Triples
from sklar.kernel.queries import NO_CELL, one_or_none
from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import Together, crew, in_order
from sklar.public.person import Person
from sklar.public.schema import Schema
from sklar.rows.cubes import NOWHERE, add_cubes
from sklar.rows.encode import encode_column

Codes = dict[int, NDArray[np.integer[Any]]]

# Of tables times rows: below this the plain routine is as fast as loading compiled code.
_PLAIN_WORK = 2e7
_TABLES_AT_ONCE = 8


def columns_of(schema: Schema, triples: Triples) -> tuple[str, ...]:
    """The names of the attributes that these tables have, in the schema's order."""
    return tuple(schema.names[index] for index in _used(triples))


def count_triples(
    batches: Iterable[pl.DataFrame],
    schema: Schema,
    triples: Triples,
    *,
    person: Person | None = None,
    progress: Progress = SILENT,
) -> tuple[int, NDArray[np.int64]]:
    """The number of rows that were read, and exact counts of these tables, shape (n_cells,): private.

    The batches' columns are those of `columns_of`, then, where there is a `person`, the ids.
    """
    rows = 0

    def read() -> Iterator[pl.DataFrame]:
        nonlocal rows
        for batch in batches:
            rows += batch.height
            progress.advance(batch.height)
            yield batch

    with ExitStack() as stack:
        counter = Counter(triples, stack)
        for codes in _codes(read(), schema, triples, person):
            counter.add(codes)
        return rows, counter.counts


class Counter:
    """Running counts of three-way tables."""

    def __init__(self, triples: Triples, stack: ExitStack) -> None:
        self._triples, self._stack = triples, stack
        self._work = 0.0
        self._together: Together | None = None
        self.counts = np.zeros(triples.n_cells, dtype=np.int64)

    def add(self, codes: Codes) -> None:
        """Count these rows: codes of every attribute that some table has."""
        rows = len(next(iter(codes.values())))
        self._work += rows * len(self._triples.attributes)
        if self._work <= _PLAIN_WORK:
            none = np.full(rows, NO_CELL, dtype=np.int32)
            every = [codes.get(index, none) for index in range(self._triples.cells.n_attributes)]
            self.counts += self._triples.query.count(every)
            return
        triples = self._triples
        if self._together is None:
            # Before threads begin: only one of them could compile.
            add_cubes.compile()
            self._together = self._stack.enter_context(crew())
        coarse = np.empty((triples.cells.n_attributes, rows), dtype=np.uint8)
        self._together(partial(self._put, coarse), codes.items())
        attributes, shapes, offsets = triples.attributes, triples.shapes, triples.offsets

        def some(first: int) -> None:
            part = slice(first, first + _TABLES_AT_ONCE)
            # Compiled code takes arrays that it may write to.
            add_cubes(coarse, rows, attributes[part].copy(), shapes[part].copy(), offsets[part].copy(), self.counts)

        self._together(some, range(0, len(attributes), _TABLES_AT_ONCE))

    def _put(self, coarse: NDArray[np.uint8], item: tuple[int, NDArray[np.integer[Any]]]) -> None:
        index, codes = item
        own = self._triples.coarse[self._triples.cells.levels(index)]
        # The last place is that of rows without a level: code -1.
        lookup = np.append(own, NOWHERE).astype(np.uint8)
        coarse[index] = lookup[one_or_none(codes, own.size)]


def _used(triples: Triples) -> list[int]:
    return [int(index) for index in np.unique(triples.attributes)]


def _codes(batches: Iterable[pl.DataFrame], schema: Schema, triples: Triples, person: Person | None) -> Iterator[Codes]:
    used = _used(triples)

    def encoded(batch: pl.DataFrame) -> list[NDArray[np.int32]]:
        return [encode_column(batch.to_series(at), schema.attributes[index]) for at, index in enumerate(used)]

    if person is None:
        for codes in in_order(encoded, batches):
            yield dict(zip(used, codes, strict=True))
        return
    # Imported here: most tables have a row for each person.
    from sklar.rows.people import choose

    for chosen in choose(batches, person, lambda batch: np.stack(encoded(batch))):
        yield dict(zip(used, chosen, strict=True))
