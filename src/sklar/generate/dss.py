"""A table in the shape of the paper's DSS, which is not public: 27 attributes, 10 of them small, 674 levels.
And one in that of a national census linked with registers: 60 attributes.

Invented people. Six latent normal factors stand behind a row, and every attribute cuts its own mixture of them into
levels: the structure in the TOML files is all there is, it is public, and only the rows depend on the seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from sklar.generate.blueprint import TYPES, Blueprint
from sklar.kernel.cells import Doubles
from sklar.machine.wording import stated

BLOCK_ROWS = 65_536
_FACTORS = ("place", "age", "means", "origin", "work", "need")
# A latent is rounded to 1/256 before it is cut, so that cutting is one look-up: several times as fast as a search.
_STEPS, _REACH = 256, 5

_TYPES = {**TYPES, "categorical": pl.Categorical()}


@dataclass(frozen=True)
class _Column:
    """One attribute: `loads` on the factors, own noise up to variance 1, and `margin`, the shares of its levels.

    Levels are texts, or bins between integer or ISO date `edges`. `same` names an earlier attribute whose latent is
    used as it is, which makes this one a function of that one where their margins nest.
    """

    name: str
    kind: str
    margin: Doubles
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
def _grid() -> Doubles:
    """The normal distribution function at every rounded latent."""
    normal = NormalDist()
    return np.array([normal.cdf((step + 0.5) / _STEPS - _REACH) for step in range(2 * _REACH * _STEPS)])


def _shares(count: int, law: Sequence[float] | Mapping[str, Any]) -> Doubles:
    """The shares of so many levels, as they are listed or by the law that they follow."""
    if not isinstance(law, Mapping):
        return np.array(law)
    first = law.get("first")
    places = np.arange(count - (first is not None))
    if law["law"] == "zipf":
        weights = (places + 1.0) ** -law["power"]
    elif law["law"] == "flat":
        weights = 1 + 0.2 * np.sin(places * 2.4)
    else:
        weights = np.exp(-0.5 * ((places / places.size - law["center"]) / law["width"]) ** 2) + 0.002
    shares = (weights / weights.sum())[:: -1 if law.get("reversed") else 1]
    return shares if first is None else np.concatenate([[first], (1 - first) * shares])


def _columns(file: str) -> list[_Column]:
    columns = []
    for name, entry in stated("sklar.generate", file)["columns"].items():
        own = {"loads": {}, **entry}
        count = len(own.get("levels", ())) or max(len(own.get("edges", ())) - 1, 2)
        columns.append(_Column(name=name, margin=_shares(count, own.pop("shares")), **own))
    return columns


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
def _table(file: str, stream: int) -> Blueprint:
    columns = _columns(file)
    attributes = {column.name: column.entry for column in columns}
    kinds, draw = pl.Schema({column.name: _TYPES[column.kind] for column in columns}), partial(_draw, columns)
    return Blueprint(stream=stream, block_rows=BLOCK_ROWS, attributes=attributes, columns=kinds, draw=draw)


def table() -> Blueprint:
    """DSS and its public schema."""
    return _table("dss.toml", 3)


def census_linked() -> Blueprint:
    """The linked census and its public schema."""
    return _table("census_linked.toml", 7)
