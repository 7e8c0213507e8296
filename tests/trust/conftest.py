"""Genuine model files of every kind, made once: small, and wide enough for their noise to be tested."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sklar
from sklar.budget.method import PAPER, Method
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema
from tests.linked import days, in_order
from tests.linked import tables as linked_tables

ROWS = 1_500
SIZES = (3, 4, 5, 6, 2, 8)


def schema(sizes: Iterable[int], *, complete: bool = True) -> Schema:
    """Attributes of these sizes, which give every value a level when they are complete."""
    values = [tuple(f"v{level}" for level in range(size - complete)) for size in sizes]
    missing = "?" if complete else None
    named = (Attribute(name=f"a{n}", kind="categorical", values=each, missing=missing) for n, each in enumerate(values))
    return Schema(name="people", attributes=tuple(named))


SCHEMA = schema(size + 1 for size in SIZES)
RULED = Schema.from_dict({**SCHEMA.to_dict(), "rules": [{"forbid": {"a0": "v0", "a1": ["v1"]}}]})
PRIVATE = Schema.load(Path(__file__).with_name("towns.toml"))


def table(rows: int = ROWS) -> pl.DataFrame:
    """Rows that depend on each other; a few of every attribute are missing."""
    generator = np.random.default_rng(7)
    hidden = generator.integers(0, 3, rows)
    columns = {}
    for index, size in enumerate(SIZES):
        drawn = (hidden * (index + 1) + generator.integers(0, size, rows) * generator.integers(0, 2, rows)) % (size + 1)
        columns[f"a{index}"] = [f"v{level}" if level < size else None for level in drawn]
    return pl.DataFrame(columns)


def towns(rows: int = 4_000) -> pl.DataFrame:
    generator = np.random.default_rng(8)
    return pl.DataFrame(
        {
            "town": [f"town {number}" for number in generator.geometric(0.3, rows)],
            "income": generator.gamma(3.0, 9_000.0, rows),
            "age": generator.integers(0, 100, rows),
            "smoker": generator.random(rows) < 0.3,
        }
    )


def ruled() -> pl.DataFrame:
    return table().filter(~((pl.col("a0") == "v0") & (pl.col("a1") == "v1")).fill_null(value=False))


BITS = Schema(name="bits", attributes=tuple(Attribute(name=f"b{i}", kind="integer", edges=(0, 1, 2)) for i in range(8)))


def bits(rows: int = 4_000) -> pl.DataFrame:
    """Bits that depend on each other, three of them in no pair."""
    generator = np.random.default_rng(9)
    drawn = (generator.random((8, rows)) < generator.choice([0.2, 0.6], rows)).astype(np.int64)
    drawn[7] = drawn[0] ^ drawn[1]
    return pl.DataFrame({f"b{i}": column for i, column in enumerate(drawn)})


VISITS = Schema.load(Path(__file__).with_name("visits.toml"))


def visits() -> pl.DataFrame:
    """Of 400 people, who have up to eight rows each."""
    generator = np.random.default_rng(3)
    ids = np.repeat(np.arange(400), generator.integers(1, 9, 400))
    return pl.DataFrame({"id": ids, "a": generator.random(ids.size) < 0.3, "b": generator.random(ids.size) < 0.6})


def threes(rows: int = 3_000) -> pl.DataFrame:
    """Six attributes, of which one is a function of two others: worth a three-way table."""
    drawn = np.random.default_rng(1).integers(0, 2, (6, rows))
    drawn[2] = drawn[0] ^ drawn[1]
    return pl.DataFrame({f"a{index}": [f"v{level}" for level in column] for index, column in enumerate(drawn)})


FIT = partial(sklar.fit, table(), SCHEMA, epsilon=2.0)
PRESENCE: Any = {"epsilon": 2.0, "neighbors": "add-remove"}
MIXED = partial(sklar.fit, table(), SCHEMA, method="mixture")
KINDS: dict[str, Any] = {
    "auto": FIT,
    "binary": partial(FIT, method="binary"),
    "dummies": partial(FIT, method=Method(name="binary", paper=True, dummies=True)),
    "paper": partial(FIT, method=PAPER),
    "laplace": partial(MIXED, Budget(epsilon=2.0, mechanism="laplace")),
    "add-remove": partial(MIXED, Budget(**PRESENCE)),
    "rules": partial(sklar.fit, ruled(), RULED, epsilon=2.0, method="mixture"),
    "domains": partial(sklar.fit, towns(), PRIVATE, epsilon=4.0, method="mixture"),
    "bits": partial(sklar.fit, bits(), BITS, epsilon=2.0),
    "people": partial(sklar.fit, visits(), VISITS, epsilon=2.0),
    "third": partial(sklar.fit, threes(), schema((3,) * 6), epsilon=4.0),
    "counted": partial(MIXED, Budget(**PRESENCE, mechanism="laplace")),
}


def make(folder: Path) -> dict[str, Path]:
    """A file of every kind, and one of linked tables."""
    found = {}
    for kind, fit in KINDS.items():
        found[kind] = folder / f"{kind}.sklar"
        fit().save(found[kind])
    found["linked"] = folder / "linked.sklar"
    sklar.fit(days(linked_tables()), in_order(), epsilon=3.0).save(found["linked"])
    return found


@pytest.fixture(scope="session")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of every kind."""
    return make(tmp_path_factory.mktemp("genuine"))
