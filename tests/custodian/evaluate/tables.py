"""Small tables and slow, obvious answers to the queries, shared by these tests."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.draw.decode import Decoder, decode_dummies
from sklar.public.schema import Attribute, Schema

SCHEMA = Schema(
    name="tiny",
    attributes=(
        Attribute(name="a", kind="categorical", values=("x", "y", "z")),
        Attribute(name="b", kind="boolean", missing="?"),
        Attribute(name="c", kind="integer", edges=(0, 10, 20)),
        Attribute(name="d", kind="categorical", values=("p", "q"), other=True),
    ),
)


def codes(rows: int, seed: int = 0) -> NDArray[np.int32]:
    """Codes of correlated rows, shape (m, rows); every attribute has some rows in no cell."""
    generator = np.random.default_rng(seed)
    latent = generator.integers(0, 3, rows)
    own = (np.where(generator.random(rows) < 0.6, latent, generator.integers(0, 3, rows)) for _ in SCHEMA.sizes)
    return (np.stack(list(own)) % SCHEMA.sizes[:, None]).astype(np.int32)


def records(rows: int, seed: int = 0) -> pl.DataFrame:
    return Decoder(SCHEMA).decode(codes(rows, seed), np.random.default_rng(seed))


def dummy_matrix(rows: int, seed: int = 0) -> NDArray[np.bool_]:
    """Dummies of shape (d, rows) in which attributes may have none or several levels."""
    generator = np.random.default_rng(seed)
    common, own = generator.random(rows) < 0.5, generator.random((SCHEMA.n_levels, rows)) < 0.35
    return own | ((generator.random((SCHEMA.n_levels, 1)) < 0.3) & common)


def dummies(rows: int, seed: int = 0) -> pl.DataFrame:
    return decode_dummies(dummy_matrix(rows, seed), SCHEMA)


def as_dummies(drawn: NDArray[np.int32], schema: Schema = SCHEMA) -> NDArray[np.bool_]:
    """The dummies of codes: of a row in no cell of an attribute, none."""
    return np.concatenate([own == np.arange(size)[:, None] for own, size in zip(drawn, schema.sizes, strict=True)])


def brute_force(matrix: NDArray[np.bool_], order: int, schema: Schema = SCHEMA) -> dict[tuple[int, ...], int]:
    """The count of every conjunction of `order` dummies of distinct attributes."""
    block = schema.cells.attribute_of_level
    return {
        levels: int(matrix[list(levels)].all(axis=0).sum())
        for levels in combinations(range(schema.n_levels), order)
        if len({int(block[level]) for level in levels}) == order
    }
