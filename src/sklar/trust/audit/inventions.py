"""Invented tables, their neighbors, and their releases as an attacker sees them: noisy cells and public facts.

The code of every value is written down here by hand, so that right counts are known without the code under attack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.certificate import Measured
from sklar.kernel.queries import Distances, Tables
from sklar.kernel.theorems import Budget
from sklar.machine.wording import stated
from sklar.public.schema import Attribute, Schema
from sklar.public.settings import Count, Person
from sklar.release import measure

# Noise at this epsilon is zero but for a chance below exp(-1000).
EXACT = Budget(epsilon=1e9)
ONE = Budget(epsilon=1.0)
_STATED = stated("sklar.trust.audit", "inventions.toml")
PEOPLE = Schema.from_dict(_STATED["people"])
# Values and their codes, the common ones first: the rare ones lie at edges, outside, and nowhere. As texts, and as a
# file with types of its own holds them, where a code alone is that of null.
_TEXTS, _TYPED = (
    [[(None, *each)[-2:] for each in _STATED[kind][name]] for name in PEOPLE.names] for kind in ("texts", "typed")
)
_TYPES = (pl.Int64, pl.String, pl.Float64, pl.Date, pl.Boolean)
# What no schema foresees.
ODD = (*_STATED["odd"]["texts"], "9" * 400, "x" * 100_000)


def whole_numbers(*sizes: int) -> Schema:
    """Attributes that are whole numbers from 0 on, with these numbers of levels; nulls are in no cell."""
    named = ((f"a{index}", tuple(range(size + 1))) for index, size in enumerate(sizes))
    own = (Attribute(name=name, kind="integer", edges=edges) for name, edges in named)
    return Schema(name="audit", attributes=tuple(own))


def people_of(schema: Schema, count: Count, most: int = 1) -> Schema:
    """The schema for people, whose ids are in the column `id`."""
    return replace(schema, person=Person(column="id", count=count, rows_per_person=most))


def frame_of(schema: Schema, codes: NDArray[np.integer]) -> pl.DataFrame:
    """A table of whole numbers, from codes of shape (m, rows); those of no level are null."""
    return pl.DataFrame(dict(zip(schema.names, codes, strict=True))).with_columns(pl.all().replace(-1, None))


class Invented(NamedTuple):
    """Rows of the schema `PEOPLE`, and the codes that they have, shape (m, rows)."""

    frame: pl.DataFrame
    codes: NDArray[np.int64]

    def ordered(self) -> Invented:
        """The same rows in the order of their codes."""
        order = np.lexsort(self.codes[::-1])
        return Invented(self.frame[order.tolist()], self.codes[:, order])


def invent(rows: int, *, typed: bool = False) -> Invented:
    """This many rows, of texts or of typed values; most hold common values, a few rare ones."""
    columns, codes, generator = {}, [], np.random.default_rng()
    for name, values, kind in zip(PEOPLE.names, _TYPED if typed else _TEXTS, _TYPES, strict=True):
        # The k-th value is half as common as the one before, down to a few in a thousand: rare bins must be seen too.
        weights = np.maximum(0.5 ** np.arange(len(values)), 0.004)
        chosen = generator.choice(len(values), rows, p=weights / weights.sum())
        listed = pl.Series(name, [value for value, _ in values], dtype=kind if typed else pl.String)
        columns[name] = listed.gather(chosen)
        codes.append(np.array([code for _, code in values])[chosen])
    return Invented(pl.DataFrame(columns), np.array(codes))


def right_counts(codes: NDArray[Any], schema: Schema) -> NDArray[np.int64]:
    """The one-way and two-way counts of these codes, laid out as a release lays them out."""
    sizes = schema.cells.sizes.tolist()
    counts = [np.bincount(own[own >= 0], minlength=size) for own, size in zip(codes, sizes, strict=True)]
    for first, second in combinations(range(len(sizes)), 2):
        both = (codes[first] >= 0) & (codes[second] >= 0)
        flat = codes[first][both].astype(np.int64) * sizes[second] + codes[second][both]
        counts.append(np.bincount(flat, minlength=sizes[first] * sizes[second]))
    return np.concatenate(counts).astype(np.int64)


def write(frame: pl.DataFrame, path: Path) -> Path:
    """The table as a file of the kind that its name says."""
    (frame.write_csv if path.suffix == ".csv" else frame.write_parquet)(path)
    return path


def neighbors(frame: pl.DataFrame, count: int, odd: Iterator[str]) -> Iterator[tuple[int, pl.DataFrame]]:
    """The table with one row replaced, and the place of that row, so often.

    A place is the first, the last, one at the end of a batch, or any. A third of the rows hold the next `odd` texts, a
    third the rarest values (those at edges and outside), a third any.
    """
    rows, typed, generator = frame.height, frame.dtypes[0] != pl.String, np.random.default_rng()
    ends = [0, rows - 1, *(place for end in range(65_536, rows, 65_536) for place in (end - 1, end))]
    listed = _TYPED if typed else _TEXTS
    for number in range(count):
        place = ends[number // 2 % len(ends)] if number % 2 else int(generator.integers(rows))
        if number % 3 == 0 and not typed:
            row = [next(odd) for _ in listed]
        else:
            first = [len(values) - len(values) // 2 if number % 3 == 1 else 0 for values in listed]
            row = [values[generator.integers(low, len(values))][0] for values, low in zip(listed, first, strict=True)]
        other = pl.DataFrame([row], schema=frame.schema, orient="row")
        yield place, pl.concat([frame[:place], other, frame[place + 1 :]])


class Released(NamedTuple):
    """The noisy cells of the tables of all attributes, the noise scale of each, and the number of its table."""

    cells: NDArray[np.int64]
    scales: NDArray[np.float64]
    tables: NDArray[np.int64]


def released(data: object, schema: Schema, budget: Budget, **settings: Any) -> Released:
    """Measure, and read the tables of all attributes out of what comes."""
    blocks = measure(data, schema, budget, **settings).blocks
    own = [each for each in blocks if isinstance(each.query, Tables) and each.query.sets is None]
    sizes = np.concatenate([each.query.sizes for each in own])
    return Released(
        cells=np.concatenate([each.values for each in own]),
        scales=np.repeat(np.concatenate([each.scales for each in own]), sizes),
        tables=np.repeat(np.arange(sizes.size), sizes),
    )


def facts_of(measured: Measured) -> dict[str, str]:
    """All that is released beside noisy cells, each thing by where it stands."""
    facts: dict[str, str] = {}

    def note(place: str, value: Any) -> None:
        value = value.tolist() if isinstance(value, np.ndarray) else value
        if isinstance(value, list | tuple):
            value = {"length": len(value), **dict(enumerate(value))}
        if isinstance(value, dict):
            for key, item in value.items():
                note(f"{place}.{key}", item)
        else:
            facts[place] = repr(value)

    note("certificate", measured.certificate.to_dict())
    note("schema", measured.known.to_dict())
    for number, block in enumerate(measured.blocks):
        query = block.query.of if isinstance(block.query, Distances) else block.query
        shown = {name: getattr(query, name, None) for name in ("order", "orders", "sets", "coarse")}
        shown |= {"kind": type(block.query).__name__, "cells": block.values.size, "scales": block.scales}
        note(f"block {number}", shown)
    return facts
