"""Generated tables whose structure lies in three and more columns, where pairs show little of it.

Whole numbers, 60,000 rows each, drawn one after the other from one seed: none can be drawn without those before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

SEED = 11
ROWS = 60_000

TITLES = {
    "functions": "functions of two columns (generated)",
    "sequences": "second-order sequences (generated)",
    "bits": "16 bits, three of them functions of others (generated)",
    "sums": "sums of two and three columns (generated)",
}

_Column = NDArray[np.int64]


@cache
def structures() -> Mapping[str, pl.DataFrame]:
    """All of `TITLES`.

    >>> bits = structures()["bits"]
    >>> bits.shape, bool((bits["b7"] == bits["b8"] ^ bits["b9"]).all())
    ((60000, 16), True)
    """
    generator = np.random.default_rng(SEED)
    drawn = {"functions": _functions(generator), "sequences": _sequences(generator), "bits": _bits(generator)}
    drawn["sums"] = _sums(generator)
    return {name: pl.DataFrame(columns) for name, columns in drawn.items()}


def _functions(generator: np.random.Generator) -> dict[str, _Column]:
    """Functions of two columns, some with noise, beside columns that depend on one or on none."""
    a, b, z = (generator.integers(0, size, ROWS) for size in (5, 4, 3))
    return {
        "a": a,
        "b": b,
        "f": (a * 3 + b * b + (generator.random(ROWS) < 0.1)) % 6,
        "z": z,
        "g": (a * z + b + (generator.random(ROWS) < 0.2)) % 5,
        "y": (z + generator.integers(0, 2, ROWS)) % 4,
        "w": generator.integers(0, 6, ROWS),
        "s": np.minimum(a + b, 6),
    }


def _sequences(generator: np.random.Generator) -> dict[str, _Column]:
    """Nine steps; each is the sum of the two before it, modulo 5, in seven cases of ten, else drawn at random."""
    steps = [generator.integers(0, 5, ROWS)]
    for step in range(8):
        before = steps[-2] if step else steps[-1]
        kept = generator.random(ROWS) < 0.7
        steps.append(np.where(kept, (steps[-1] + before) % 5, generator.integers(0, 5, ROWS)))
    return {f"s{step}": values for step, values in enumerate(steps)}


def _bits(generator: np.random.Generator) -> dict[str, _Column]:
    """Sixteen bits of six classes; one is an AND, one an XOR of two others, one is flipped by an AND."""
    classes, bits = generator.integers(0, 6, ROWS), 16
    levels = generator.normal(0, 1.2, (6, bits)) - 1
    x = (generator.random((ROWS, bits)) < 1 / (1 + np.exp(-levels[classes]))).astype(np.int64)
    x[:, 5] = x[:, 0] & x[:, 1]
    x[:, 6] ^= x[:, 2] & x[:, 3]
    x[:, 7] = x[:, 8] ^ x[:, 9]
    return {f"b{bit}": x[:, bit] for bit in range(bits)}


def _sums(generator: np.random.Generator) -> dict[str, _Column]:
    """Four skewed columns, sums of two and of three of them, and the remainder of a sum."""
    odds = np.array([0.4, 0.3, 0.2, 0.1])
    a, b, c, d = (generator.choice(4, ROWS, p=odds) for _ in range(4))
    late = generator.random(ROWS) < 0.1
    return {"a": a, "b": b, "c": c, "d": d, "ab": a + b, "bcd": b + c + d, "rest": (a + c + late) % 3}
