"""Invented tables, their neighbors, and their releases as an attacker sees them: noisy cells and public facts.

The code of every value is written down here by hand, so that right counts are known without the code under attack.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.certificate import LinkedMeasured, Measured
from sklar.kernel.queries import Distances, Tables
from sklar.kernel.theorems import Budget
from sklar.public.axis import days
from sklar.public.schema import Attribute, Schema
from sklar.public.settings import Count, Person
from sklar.release import measure

# Noise at this epsilon is zero but for a chance below exp(-1000).
EXACT = Budget(epsilon=1e9)
ONE = Budget(epsilon=1.0)
_BORN = tuple(days(dt.date(year, 1, 1)) for year in (1900, 1950, 2000, 2030))
PEOPLE = Schema(
    name="audit",
    attributes=(
        Attribute(name="age", kind="integer", edges=(0, 18, 40, 65, 100), missing="?"),
        Attribute(name="city", kind="categorical", values=("Bern", "Rome", "Oslo"), other=True),
        Attribute(name="income", kind="real", edges=(0.0, 1000.0, 50_000.0, 1e6), missing="-", outside="missing"),
        Attribute(name="born", kind="date", edges=_BORN),
        Attribute(name="member", kind="boolean"),
    ),
)
# Values as texts and their codes, the common ones first: the rare ones lie at edges, outside, and nowhere.
_TEXTS: tuple[tuple[tuple[str, int], ...], ...] = (
    (("21", 1), ("17", 0), ("39", 1), ("40", 2), ("18", 1), ("64", 2), ("0", 0), ("", 4), ("65", 3), ("99", 3),
     ("100", 3), ("-1", 0), ("123456789", 3), ("?", 4), ("old", 4)),
    (("Bern", 0), ("Rome", 1), ("Oslo", 2), ("Atlantis", 3), ("", 3), ("bern", 3), ("Bern ", 3)),
    (("999.99", 0), ("1000", 1), ("0", 0), ("49999.5", 1), ("", 3), ("50000", 2), ("1000000", 2), ("-0.01", 3),
     ("1000000.5", 3), ("-", 3), ("much", 3)),
    (("1949-12-31", 0), ("1950-01-01", 1), ("2000-01-01", 2), ("1999-12-31", 1), ("", -1), ("1900-01-01", 0),
     ("2030-01-01", 2), ("1066-10-14", 0), ("soon", -1)),
    (("true", 1), ("false", 0), ("yes", 1), ("0", 0), ("", -1), ("perhaps", -1)),
)  # fmt: skip
# The same for a file that has types of its own.
_TYPED: tuple[tuple[tuple[Any, int], ...], ...] = (
    ((21, 1), (17, 0), (40, 2), (18, 1), (0, 0), (None, 4), (65, 3), (99, 3), (100, 3), (-1, 0), (2**62, 3)),
    (("Bern", 0), ("Rome", 1), ("Oslo", 2), ("Atlantis", 3), (None, 3), ("", 3)),
    ((999.99, 0), (1000.0, 1), (0.0, 0), (None, 3), (50_000.0, 2), (1e6, 2), (-0.01, 3), (1e300, 3), (float("nan"), 3)),
    ((dt.date(1949, 12, 31), 0), (dt.date(1950, 1, 1), 1), (dt.date(2000, 1, 1), 2), (None, -1),
     (dt.date(2030, 1, 1), 2), (dt.date(1066, 10, 14), 0)),
    ((True, 1), (False, 0), (None, -1)),
)  # fmt: skip
_TYPES = (pl.Int64, pl.String, pl.Float64, pl.Date, pl.Boolean)
# What no schema foresees.
ODD = (
    "", " ", "\x00", "\t", "\ufeff", "é", "名", '"', '""', "'", ",", ";", "\n", "\r\n", "\\", "=1+1", "NULL", "null",
    "nan", "NaN", "inf", "-inf", "1e999", "-0", "+18", " 18 ", "1_8", "18.0", "0x12", "\uff11\uff18", "9" * 400,
    "x" * 100_000,
    "0001-01-01", "9999-12-31", "2020-02-30", "2020-01-01T00:00:00", "TRUE", "t", "1", "other", "(missing)",
)  # fmt: skip


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


def facts_of(measured: Measured | LinkedMeasured) -> dict[str, str]:
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
    note("schema", (measured.linked if isinstance(measured, LinkedMeasured) else measured.schema).to_dict())
    for number, block in enumerate(measured.blocks):
        query = block.query.of if isinstance(block.query, Distances) else block.query
        shown = {name: getattr(query, name, None) for name in ("order", "orders", "sets", "coarse")}
        shown |= {"kind": type(block.query).__name__, "cells": block.values.size, "scales": block.scales}
        note(f"block {number}", shown)
    return facts
