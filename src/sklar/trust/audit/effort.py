"""How often an audit tries: what it takes, and how small a flaw it sees. Sound code passes whatever the effort."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How many of what each attack tries: releases, where nothing else is said."""

    # Rows of the widest table whose counts are compared: enough for compiled counting.
    wide_rows: int
    # Replacements of a row, by the number of rows of the table.
    neighbors: Mapping[int, int]
    cells: int
    stretches: int
    # Of the sampler by itself.
    draws: int
    ratio: int
    person: int
    once: int
    twice: int


FULL = Effort(
    wide_rows=100_000,
    neighbors=dict.fromkeys((3, 40, 1_500, 7_000, 100_000), 300),
    cells=400,
    stretches=8,
    draws=2_000_000,
    ratio=20_000,
    person=4_000,
    once=8_000,
    twice=3_000,
)
QUICK = Effort(
    wide_rows=45_000,
    neighbors={3: 60, 40: 60, 1_500: 24, 7_000: 16, 100_000: 32},
    cells=100,
    stretches=2,
    draws=200_000,
    ratio=500,
    person=150,
    once=300,
    twice=60,
)
