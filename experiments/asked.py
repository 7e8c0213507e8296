"""Rows as codes, and releases of their exact counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sklar.answer.infer.onestep import Reference
from sklar.budget.certificate import Measured
from sklar.budget.method import Method
from sklar.budget.plan import TOKENS
from sklar.kernel.cells import Cells
from sklar.kernel.theorems import Budget
from sklar.kernel.vault import Vault
from sklar.machine.progress import SILENT, Progress
from sklar.public.schema import Schema
from sklar.release import measure_stages
from sklar.rows.count import Ask, Exact
from sklar.rows.encode import encode
from sklar.rows.engines import Measurer
from sklar.rows.read import open_source

Codes = NDArray[np.int64]


class Rows:
    """A table of codes, shape (rows, m): how many of its rows have each combination of some attributes' levels."""

    def __init__(self, codes: Codes, sizes: NDArray[np.int64]) -> None:
        self.codes, self._sizes = codes, sizes
        self._seen: dict[tuple[int, ...], Reference] = {}

    def reference(self, where: tuple[int, ...]) -> Reference:
        """The combinations that occur, with their shares."""
        if where not in self._seen:
            sizes = tuple(int(self._sizes[i]) for i in where)
            places = np.ravel_multi_index([self.codes[:, i] for i in where], sizes)
            counts = np.bincount(places, minlength=math.prod(sizes))
            seen = np.flatnonzero(counts)
            self._seen[where] = Reference(
                where=where,
                sizes=sizes,
                codes=np.stack(np.unravel_index(seen, sizes), axis=1),
                weights=(counts[seen] / len(self.codes))[None, :],
                drawn=None,
            )
        return self._seen[where]


def part_of(schema: Schema, names: Sequence[str]) -> Schema:
    """A schema of these attributes alone."""
    return replace(schema, attributes=tuple(schema.attribute(name) for name in names))


def codes_of(path: Path, schema: Schema) -> Codes:
    """The codes of a table's rows, shape (rows, m), without those that have no level of some attribute."""
    source = open_source(path)
    codes = np.concatenate([encode(batch, schema) for batch in source.batches(schema.names)], axis=1)
    return codes.T[(codes >= 0).all(axis=0)].astype(np.int64)


class Counted:
    """Exact counts in place of a table that is counted: an experiment may look at them."""

    name, columns, n_rows, reads_again = "counts", (), None, False

    def __init__(self, counts: Exact) -> None:
        self._counts = counts

    def count(self, ask: Ask, *, progress: Progress = SILENT) -> Exact:  # noqa: ARG002
        """The counts, whatever is asked: codes tell no more of where numbers lie in bins than that it is the middle."""
        if not ask.inside:
            return self._counts
        levels, held = Cells([each.n_levels for each in ask.attributes]), np.zeros(0, dtype=np.int64)
        for index in ask.inside:
            bins = np.isin(np.arange(ask.attributes[index].n_levels), ask.attributes[index].bin_codes)
            held = np.append(held, TOKENS // 2 * bins * self._counts.one_way[levels.levels(index)])
        return replace(self._counts, tables=(*self._counts.tables, held))


def measure_counts(counts: Exact, schema: Schema, budget: Budget) -> Measured:
    """What a release of these counts measures."""
    return measure_stages(Measurer(cast(Any, Counted(counts)), Vault(budget), schema, budget), Method())


def counts_of(codes: Codes, schema: Schema) -> Exact:
    """Exact counts of codes, which an experiment may look at."""
    cells = schema.cells
    dummies = np.zeros((len(codes), cells.n_levels), dtype=np.float32)
    dummies[np.arange(len(codes))[:, None], codes + cells.offsets[:-1]] = 1.0
    # Single precision holds these counts exactly: they are below 2**24.
    together = (dummies.T @ dummies).astype(np.int64)
    return Exact(n_rows=len(codes), tables=(np.diag(together).copy(), cells.flat(together)))
