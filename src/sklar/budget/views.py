"""Noisy tables by stage, made from blocks. Transitional: rooms that loop over blocks need none of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sklar.kernel.cells import Cells, Whole
from sklar.kernel.queries import PARTS, Block, Common, Distances, Parities, Tables
from sklar.kernel.theorems import Mechanism, Neighbors, noise_variance

Answer = Mapping[str, int] | tuple[NDArray[np.int64], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scales:
    """Noise scales of one stage."""

    one_way: NDArray[np.float64]
    pairs: NDArray[np.float64]
    total: float | None = None
    trios: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    parities: Neighbors | None = None

    def sizes(self, cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The number of counts at each scale of `one_way` and of `pairs`: the cells of a table, or one parity."""
        if self.parities is None:
            return cells.sizes[: self.one_way.size], cells.pair_sizes if self.pairs.size else cells.pair_sizes[:0]
        return np.ones(self.one_way.size, dtype=np.int64), np.ones(self.pairs.size, dtype=np.int64)

    @property
    def scales(self) -> NDArray[np.float64]:
        """All scales, one per table or parity: the total's, then those of orders one, two and three."""
        total = [] if self.total is None else [self.total]
        return np.concatenate([total, self.one_way, self.pairs, self.trios])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyTables:
    """What one stage let out."""

    cells: Cells
    mechanism: Mechanism
    n_rows: int | None
    total: int | None
    one_way: NDArray[np.int64]
    pairs: Whole
    plan: Scales
    trios: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def variances(self, scales: NDArray[np.float64]) -> NDArray[np.float64]:
        """Variance of the noise at these scales."""
        return noise_variance(self.mechanism, scales)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Triples:
    """Three-way tables of these attributes, over coarse levels."""

    cells: Cells
    attributes: NDArray[np.int64]
    coarse: NDArray[np.int64]

    @property
    def query(self) -> Tables:
        """As a query."""
        return Tables(cells=self.cells, order=3, sets=self.attributes, coarse=self.coarse)

    @property
    def levels(self) -> NDArray[np.int64]:
        """The number of coarse levels of every attribute, shape (m,)."""
        return self.query.levels

    @property
    def shapes(self) -> NDArray[np.int64]:
        """The numbers of coarse levels of each table's attributes, shape (t, 3)."""
        return self.query.shapes

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of cells of every table, shape (t,)."""
        return self.query.sizes

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where every table begins in the flat vector, and where the last one ends, shape (t + 1,)."""
        return self.query.offsets

    @property
    def n_cells(self) -> int:
        """The cells of all tables."""
        return self.query.n_cells


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyTriples:
    """Three-way tables with noise on every cell."""

    triples: Triples
    counts: NDArray[np.int64]
    scales: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyScores:
    """Noisy distances of all three-way tables: `scale` is that of the noise that was drawn."""

    scores: NDArray[np.int64]
    scale: float

    @property
    def rows(self) -> NDArray[np.float64]:
        """The scores in rows, shape (n_trios,)."""
        return self.scores / PARTS

    @property
    def sd(self) -> float:
        """The sd of their noise, in rows."""
        return self.scale / PARTS


def is_of_schema(block: Block) -> bool:
    """Whether a block is about the schema's own attributes, and not of a search."""
    return not getattr(block.query, "about", "")


def stage_numbers(blocks: Sequence[Block]) -> list[int]:
    """The stage of every block, from 1; 0 for those of a search.

    A stage ends where a question is asked again, and before what only follows from earlier answers: distances and
    chosen tables.
    """
    asked: set[tuple[str | int, ...]] = set()
    numbers, stage = [], 1
    for block in blocks:
        query = block.query
        if not is_of_schema(block):
            numbers.append(0)
            continue
        later = isinstance(query, Distances) or (isinstance(query, Tables) and query.sets is not None)
        kind = ("later",) if later else (type(query).__name__, getattr(query, "order", getattr(query, "what", 0)))
        if (kind in asked and not later) or (later and kind not in asked):
            stage, asked = stage + bool(asked), set()
        asked.add(kind)
        numbers.append(stage)
    return numbers


def stages_of(
    blocks: Sequence[Block],
    cells: Cells,
    mechanism: Mechanism,
    n_rows: int | None,
    neighbors: Neighbors = "replace-one",
) -> tuple[NoisyTables, ...]:
    """Noisy tables, stage after stage."""
    none, no_scales = np.empty(0, dtype=np.int64), np.empty(0)
    found = []
    numbers = stage_numbers(blocks)
    for stage in sorted({number for number in numbers if number}):
        parts: dict[int, tuple[Whole, NDArray[np.float64]]] = {}
        parities: Neighbors | None = None
        for block, number in zip(blocks, numbers, strict=True):
            query = block.query
            if number != stage:
                continue
            if isinstance(query, Tables) and query.sets is None and query.coarse is None:
                parts[query.order] = (block.values, block.scales)
            elif isinstance(query, Parities):
                parities = neighbors
                for order, (values, scale, size) in enumerate(
                    zip(block.by_scale(), block.scales, query.sizes, strict=True), start=1
                ):
                    parts[order] = (values, np.full(int(size), scale))
        if not parts:
            continue
        total = parts.get(0)
        found.append(
            NoisyTables(
                cells=cells,
                mechanism=mechanism,
                n_rows=n_rows,
                total=None if total is None else int(total[0][0]),
                one_way=parts.get(1, (none, no_scales))[0],
                pairs=parts.get(2, (none, no_scales))[0],
                trios=parts.get(3, (none, no_scales))[0],
                plan=Scales(
                    total=None if total is None else float(total[1][0]),
                    one_way=parts.get(1, (none, no_scales))[1],
                    pairs=parts.get(2, (none, no_scales))[1],
                    trios=parts.get(3, (none, no_scales))[1],
                    parities=parities,
                ),
            )
        )
    return tuple(found)


def triples_of(blocks: Sequence[Block]) -> NoisyTriples | None:
    """Chosen three-way tables, where any were measured."""
    for block in blocks:
        query = block.query
        if isinstance(query, Tables) and query.sets is not None and query.coarse is not None:
            own = Triples(cells=query.cells, attributes=query.sets, coarse=query.coarse)
            return NoisyTriples(triples=own, counts=np.asarray(block.values), scales=block.scales)
    return None


def scores_of(blocks: Sequence[Block]) -> NoisyScores | None:
    """Distances of all three-way tables, where they were measured."""
    for block in blocks:
        if isinstance(block.query, Distances):
            return NoisyScores(scores=np.asarray(block.values), scale=float(block.scales[0]))
    return None


def answers_of(blocks: Sequence[Block], tables: Sequence[int]) -> tuple[Answer, ...]:
    """The noisy answers of searches, of which each took so many tables."""
    searched = [block for block in blocks if not is_of_schema(block)]
    answers: list[Answer] = []
    for number in tables if searched else ():
        own, searched = searched[:number], searched[number:]
        first = own[0]
        if isinstance(first.query, Common):
            answers.append(dict(zip(first.keys or (), first.values.tolist(), strict=True)))
        else:
            answers.append(tuple(block.values for block in own))
    return tuple(answers)
