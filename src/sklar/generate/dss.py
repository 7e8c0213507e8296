"""A table in the shape of the paper's DSS, which is not public: 27 attributes, 10 of them small, 674 levels.

Invented recipients of invented benefits. Six latent normal factors stand behind a row, and every attribute cuts its own
mixture of them into levels: the structure below is all there is, it is public, and only the rows depend on the seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from math import sqrt
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from sklar.generate.blueprint import TYPES, Blueprint

BLOCK_ROWS = 65_536
_FACTORS = ("place", "age", "means", "origin", "work", "need")
# A latent is rounded to 1/256 before it is cut, so that cutting is one look-up: several times as fast as a search.
_STEPS, _REACH = 256, 5

_TYPES = {**TYPES, "categorical": pl.Categorical()}

Shares: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Column:
    """One attribute: `loads` on the factors, own noise up to variance 1, and `margin`, the shares of its levels.

    Levels are texts, or bins between integer or ISO date `edges`. `same` names an earlier attribute whose latent is
    used as it is, which makes this one a function of that one where their margins nest.
    """

    name: str
    kind: str
    margin: Shares
    loads: Mapping[str, float]
    levels: Sequence[str] = ()
    edges: Sequence[int] | Sequence[str] = ()
    same: str | None = None

    @property
    def entry(self) -> dict[str, Any]:
        """The column in the public schema."""
        listed = {"values": sorted(self.levels)} if self.levels else {}
        return {"type": self.kind, **listed, **({"edges": list(self.edges)} if self.edges else {})}

    @cached_property
    def level(self) -> npt.NDArray[np.int8]:
        """The level of every rounded latent."""
        level = np.searchsorted(np.cumsum(self.margin)[:-1], _grid(), side="right")
        if self.levels:
            # The place of each text among the sorted ones.
            level = np.unique(self.levels, return_inverse=True)[1][level]
        return level.astype(np.int8)

    @cached_property
    def numbers(self) -> npt.NDArray[np.int32]:
        """The edges as numbers: dates in days since 1970."""
        return np.array(self.edges, "datetime64[D]" if self.kind == "date" else np.int32).astype(np.int32)

    def values(self, code: npt.NDArray[np.int8], rng: np.random.Generator) -> pl.Series:
        """The values of rows with these levels."""
        if self.levels:
            return pl.Series(sorted(self.levels), dtype=pl.Categorical).gather(code)
        if not self.edges:
            return pl.Series(code.view(np.bool_))
        # Uniform within the bin, in integers: floor(u / 2^16 * width) cannot reach the upper edge.
        widths = np.diff(self.numbers).astype(np.uint32)
        within = (rng.integers(0, 2**16, BLOCK_ROWS, dtype=np.uint16) * widths[code]) >> 16
        return pl.Series(self.numbers[code] + within.astype(np.int32)).cast(_TYPES[self.kind])


@cache
def _grid() -> Shares:
    """The normal distribution function at every rounded latent."""
    normal = NormalDist()
    return np.array([normal.cdf((step + 0.5) / _STEPS - _REACH) for step in range(2 * _REACH * _STEPS)])


def _nominal(name: str, levels: Sequence[str], margin: Shares, same: str | None = None, **loads: float) -> _Column:
    return _Column(name, "categorical", margin, loads, levels=levels, same=same)


def _binned(name: str, edges: Sequence[int] | Sequence[str], margin: Shares, **loads: float) -> _Column:
    return _Column(name, "date" if isinstance(edges[0], str) else "integer", margin, loads, edges=edges)


def _boolean(name: str, share: float, **loads: float) -> _Column:
    return _Column(name, "boolean", np.array([1 - share, share]), loads)


def _zipf(levels: int, power: float = 1.0) -> Shares:
    return _shares(np.arange(1.0, levels + 1.0) ** -power)


def _flat(levels: int) -> Shares:
    return _shares(1 + 0.2 * np.sin(np.arange(levels) * 2.4))


def _bell(levels: int, centre: float, width: float) -> Shares:
    return _shares(np.exp(-0.5 * ((np.arange(levels) / levels - centre) / width) ** 2) + 0.002)


def _mostly(share: float, rest: Shares) -> Shares:
    """One level with that share, and the others as `rest`."""
    return np.concatenate([[share], (1 - share) * rest])


def _shares(weights: Shares) -> Shares:
    shares: Shares = weights / weights.sum()
    return shares


def _codes(prefix: str, count: int) -> list[str]:
    """Code numbers in latent order: a code book's order means nothing, and a prime step past any count mixes it."""
    return [f"{prefix}{index * 211 % count + 1:03d}" for index in range(count)]


def _columns() -> list[_Column]:
    states = ("north", "harbour", "lakes", "plains", "hills", "coast", "islands", "south")
    channels = ("online", "phone", "office", "post", "agent", "visit")
    regions = [f"{state}-{number:02d}" for state in states for number in range(1, 12)]
    years = [f"{year}-01-01" for year in range(1990, 2021)]
    months = [f"{year}-{month:02d}-01" for year in (2018, 2019) for month in range(1, 13)] + ["2020-01-01"]
    return [
        _nominal("region", regions, _flat(88), place=0.99),
        _nominal("state", states, _flat(88).reshape(8, 11).sum(axis=1), same="region"),
        _nominal("office", _codes("OF", 100), _zipf(100, 0.8), place=0.98),
        _nominal("remoteness", ("city", "inner", "outer", "far", "very far"), _zipf(5, 1.4), place=0.6, need=0.2),
        _binned("age", range(15, 101, 5), _bell(17, 0.45, 0.3), age=0.97),
        _nominal("sex", ("female", "male", "not stated"), np.array([0.55, 0.44, 0.01]), work=0.4, need=0.2),
        _boolean("partnered", 0.42, age=0.5, means=0.3),
        _binned("children", range(11), _mostly(0.5, _zipf(9, 1.3)), age=-0.5, need=0.4),
        _boolean("homeowner", 0.35, age=0.5, means=0.6),
        _boolean("student", 0.1, age=-0.8),
        _boolean("disability", 0.14, need=0.8),
        _nominal("condition", ["no condition", *_codes("M", 17)], _mostly(0.8, _zipf(17)), need=0.85, age=0.2),
        _nominal("country", ["home", *_codes("C", 59)], _mostly(0.68, _zipf(59, 0.9)), origin=0.98),
        _nominal("language", ["main", *_codes("L", 39)], _mostly(0.76, _zipf(39, 1.1)), origin=0.97),
        _nominal("interpreter", ("no", "phone", "in person"), np.array([0.92, 0.06, 0.02]), origin=0.75, age=0.3),
        _nominal("education", _codes("E", 12), _bell(12, 0.4, 0.3), means=0.5, work=0.5, age=-0.3),
        _nominal("occupation", _codes("O", 43), _zipf(43, 0.6), work=0.95),
        _nominal("industry", _codes("I", 19), _flat(19), work=0.92, place=0.25),
        _nominal("payment_type", _codes("P", 20), _zipf(20, 1.1), age=0.7, need=0.5, work=-0.2),
        _nominal("payment_rate", ("full", "part", "zero", "suspended"), np.array([0.6, 0.3, 0.07, 0.03]), means=0.8),
        _binned("payment_amount", range(0, 2001, 50), _bell(40, 0.45, 0.25), means=-0.7, need=0.5),
        _binned("income", range(0, 5001, 100), _mostly(0.45, _zipf(49, 0.7)), means=0.75, work=0.45),
        _binned("assets", range(0, 400_001, 10_000), _zipf(40), means=0.75, age=0.5),
        _binned("start_date", years, _zipf(30, 0.7)[::-1], age=-0.7, need=-0.2),
        _binned("review_date", months, _flat(24), need=0.4, means=-0.3),
        _binned("weeks_paid", range(0, 53, 2), _mostly(0.04, _zipf(25, 0.5)[::-1]), need=0.4, means=-0.5),
        _nominal("channel", channels, _zipf(6, 1.2), age=0.6, origin=0.3),
    ]


def _draw(columns: Sequence[_Column], rng: np.random.Generator, _first: int) -> pl.DataFrame:
    factors = {factor: rng.standard_normal(BLOCK_ROWS, dtype=np.float32) for factor in _FACTORS}
    rounded: dict[str, npt.NDArray[np.intp]] = {}
    drawn = []
    for column in columns:
        if column.same is None:
            noise = np.float32(sqrt(1 - sum(load**2 for load in column.loads.values())))
            latent = noise * rng.standard_normal(BLOCK_ROWS, dtype=np.float32)
            # No matrix product: its rounding, and so the rows, would depend on the machine.
            for factor, load in column.loads.items():
                latent += np.float32(load) * factors[factor]
            position = ((latent + _REACH) * _STEPS).astype(np.intp)
            rounded[column.name] = np.clip(position, 0, 2 * _REACH * _STEPS - 1, out=position)
        code = column.level[rounded[column.same or column.name]]
        drawn.append(column.values(code, rng).alias(column.name))
    return pl.DataFrame(drawn)


@cache
def table() -> Blueprint:
    """DSS and its public schema."""
    columns = _columns()
    return Blueprint(
        stream=3,
        block_rows=BLOCK_ROWS,
        attributes={column.name: column.entry for column in columns},
        columns=pl.Schema({column.name: _TYPES[column.kind] for column in columns}),
        draw=partial(_draw, columns),
    )
