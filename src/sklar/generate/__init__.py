"""Seeded test tables of the paper's shapes, streamed: to try a size without downloading anything.

Nothing here is real and nothing is private: names are invented, structures are in the code, and a seed gives the same
rows again. Rows come in blocks, each from its own random stream, so the first rows do not depend on how many follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import polars as pl

from sklar.errors import DataError
from sklar.generate import binary, census, dss, hospital
from sklar.generate.blueprint import Blueprint
from sklar.public.schema import Schema

__all__ = ["SHAPES", "TableShape", "generate", "schema_toml"]


class TableShape(NamedTuple):
    """A table that can be generated: how many rows it has unless told, what it is like, and how it is drawn."""

    rows: int
    description: str
    table: Callable[[], Blueprint]


_CENSUS = "census-like people: 14 attributes of every type, nulls, values outside the schema"
_HOSPITAL = "the paper's Hospital: 9 attributes (1,201 levels), 8 of them facts about a hospital"
_DSS = "the paper's DSS: 27 attributes, 10 of them small, 674 levels, correlated and skewed"
SHAPES: Mapping[str, TableShape] = MappingProxyType(
    {
        "census": TableShape(30_000, _CENSUS, census.table),
        "hospital": TableShape(10_000, _HOSPITAL, hospital.table),
        "dss": TableShape(5_240_260, _DSS, dss.table),
        "syn1": TableShape(5_240_260, "the paper's Syn 1: 1,000 correlated binary attributes", binary.syn1),
        "syn2": TableShape(5_240_260, "the paper's Syn 2: 2,000 correlated binary attributes", binary.syn2),
    }
)


def generate(shape: str, *, rows: int | None = None, seed: int = 0) -> tuple[pl.Schema, Iterator[pl.DataFrame]]:
    """Names and types of the columns of a test table, and its rows as frames, drawn one block at a time.

    `rows` is the shape's own number unless given. A shorter table is the beginning of a longer one of the same seed.

    >>> columns, frames = generate("hospital", rows=25_000)
    >>> [frame.height for frame in frames]
    [10120, 10120, 4760]
    """
    table = _table(shape)
    rows = SHAPES[shape].rows if rows is None else rows
    if type(rows) is not int or rows < 1:
        raise DataError(f"rows must be a whole number of at least 1, got rows={rows!r}. Leave it out for the default.")
    if type(seed) is not int or seed < 0:
        raise DataError(f"seed must be a whole number of at least 0, got seed={seed!r}. Leave it out for seed 0.")
    return table.columns, _frames(table, rows, seed)


def schema_toml(shape: str) -> str:
    """The public schema of a test table, as the TOML text that Sklar reads.

    >>> schema_toml("syn1").splitlines()[:5]
    ['[table]', 'name = "syn1"', '', '[attributes.x0001]', 'type = "boolean"']
    """
    return Schema.from_dict({"table": {"name": shape}, "attributes": _table(shape).attributes}).to_toml()


def _table(shape: str) -> Blueprint:
    if shape not in SHAPES:
        raise DataError(f"shape must be one of {', '.join(SHAPES)}, got {shape!r}. Choose one of those.")
    return SHAPES[shape].table()


def _frames(table: Blueprint, rows: int, seed: int) -> Iterator[pl.DataFrame]:
    for block, first in enumerate(range(0, rows, table.block_rows)):
        rng = np.random.default_rng(np.random.SeedSequence([seed, table.stream, block]))
        yield table.draw(rng, first).head(rows - first)
