"""Seeded test tables of the paper's shapes and of a linked census, streamed: to try a size with no download.

Nothing here is real. A seed gives the same rows again, in blocks with a random stream each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import polars as pl

from sklar.errors import DataError
from sklar.generate import binary, census, dss, hospital
from sklar.generate.blueprint import Blueprint, blocks
from sklar.public.schema import Schema


class TableShape(NamedTuple):
    """A table that can be generated: how many rows it has unless told, what it is like, and how it is drawn."""

    rows: int
    description: str
    table: Callable[[], Blueprint]


_CENSUS = "census-like people: 14 attributes of every type, nulls, values outside the schema"
_HOSPITAL = "the paper's Hospital: 9 attributes (1,201 levels), 8 of them facts about a hospital"
_DSS = "the paper's DSS: 27 attributes, 10 of them small, 674 levels, correlated and skewed"
_LINKED = "a national census linked with registers: 60 attributes, 561 levels, correlated and skewed"
SHAPES: Mapping[str, TableShape] = {
    "census": TableShape(30_000, _CENSUS, census.table),
    "hospital": TableShape(10_000, _HOSPITAL, hospital.table),
    "dss": TableShape(5_240_260, _DSS, dss.table),
    "census-linked": TableShape(1_000_000, _LINKED, dss.census_linked),
    "syn1": TableShape(5_240_260, "the paper's Syn 1: 1,000 correlated binary attributes", binary.syn1),
    "syn2": TableShape(5_240_260, "the paper's Syn 2: 2,000 correlated binary attributes", binary.syn2),
}


def generate(shape: str, *, rows: int | None = None, seed: int = 0) -> tuple[pl.Schema, Iterator[pl.DataFrame]]:
    """Names and types of the columns of a test table, and its rows as frames, drawn one block at a time.

    `rows` is the shape's own number unless given. A shorter table is the beginning of a longer one of the same seed.

    >>> columns, frames = generate("hospital", rows=25_000)
    >>> [frame.height for frame in frames]
    [10120, 10120, 4760]
    """
    table = _table(shape)
    rows = SHAPES[shape].rows if rows is None else rows
    drawn = blocks(rows, seed, stream=table.stream, block_rows=table.block_rows)
    return table.columns, (table.draw(rng, first).head(rows - first) for rng, first in drawn)


def schema_toml(shape: str) -> str:
    """The public schema of a test table, as the TOML text that Sklar reads."""
    return Schema.from_dict({"table": {"name": shape}, "attributes": _table(shape).attributes}).to_toml()


def _table(shape: str) -> Blueprint:
    if shape not in SHAPES:
        raise DataError(f"shape must be one of {', '.join(SHAPES)}, got {shape!r}. Choose one of those.")
    return SHAPES[shape].table()
