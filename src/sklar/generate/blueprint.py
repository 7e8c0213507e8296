"""What every generated table consists of: a public schema, types of columns, and blocks of rows drawn one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from sklar.errors import DataError

# The columns' types by the types of their attributes.
TYPES: dict[str, pl.DataType] = {"categorical": pl.String(), "integer": pl.Int32(), "boolean": pl.Boolean()}
TYPES |= {"real": pl.Float64(), "date": pl.Date(), "datetime": pl.Datetime("ms")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """How to draw one test table.

    `draw(rng, first)` returns exactly `block_rows` rows, of which the first is row number `first` of the table. A block
    is always drawn whole and cut afterwards: that is what makes a short table a prefix of a long one.
    """

    stream: int
    block_rows: int
    attributes: Mapping[str, Mapping[str, Any]]
    columns: pl.Schema
    draw: Callable[[np.random.Generator, int], pl.DataFrame]


def blocks(
    rows: int, seed: int, *, stream: int, block_rows: int, name: str = "rows"
) -> Iterator[tuple[np.random.Generator, int]]:
    """The random stream of every block, and the number of its first row; `name` is what error messages call rows."""
    if type(rows) is not int or rows < 1:
        needs = f"{name} must be a whole number of at least 1, got {name}={rows!r}."
        raise DataError(f"{needs} Leave it out for the default.")
    if type(seed) is not int or seed < 0:
        raise DataError(f"seed must be a whole number of at least 0, got seed={seed!r}. Leave it out for seed 0.")
    firsts = enumerate(range(0, rows, block_rows))
    return ((np.random.default_rng([seed, stream, block]), first) for block, first in firsts)


def choose(
    rng: np.random.Generator, weights: npt.ArrayLike, group: npt.NDArray[np.intp] | None = None, rows: int | None = None
) -> npt.NDArray[np.intp]:
    """One level for each row: from `weights[group[row]]`, or for `rows` rows from one list of weights.

    >>> choose(np.random.default_rng(0), [[1, 0], [0, 1]], np.array([0, 1, 1])).tolist()
    [0, 1, 1]
    """
    table = np.asarray(weights, dtype=float)
    upper = np.cumsum(table, axis=-1) / table.sum(axis=-1, keepdims=True)
    each = upper if group is None else upper[group]
    uniform = rng.random(len(group) if group is not None else rows)
    # The last upper bound is 1 up to rounding; leaving it out keeps every draw inside the list.
    level: npt.NDArray[np.intp] = (uniform[:, None] >= each[..., :-1]).sum(axis=-1)
    return level
