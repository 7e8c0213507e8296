"""Syn 1 and Syn 2, the paper's widest shapes: 1,000 or 2,000 correlated binary attributes, drawn 64 rows to a word.
More: docs/derivations.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TypeAlias

import nanoarrow as na
import numpy as np
import numpy.typing as npt
import polars as pl

from sklar.generate.blueprint import Blueprint

FACTORS = 24
BLOCK_ROWS = 65_536

_WORDS = BLOCK_ROWS // 64
_DIGITS = 8  # of a uniform: means are multiples of 1/256
_MIX_DIGITS = 3  # of a mixing probability: w is a multiple of 1/8
_TIE = 3  # eighths of the rows in which a factor is the common one
_GOLDEN = 0.6180339887498949

Words: TypeAlias = npt.NDArray[np.uint64]


def attribute(j: int) -> tuple[float, float, int, bool]:
    """The public structure of attribute j: its mean, its mixing probability, its factor, and whether it is reversed."""
    # The golden-ratio sequence spreads the means over (0.02, 0.98) evenly, and within every factor too.
    mean = round(256 * (0.02 + 0.96 * (j * _GOLDEN % 1.0)))
    return min(max(mean, 6), 250) / 256, (4 + j // FACTORS % 4) / 8, j % FACTORS, j // FACTORS % 3 == 0


def _below(digits: Words, threshold: int, out: Words) -> Words:
    """Bits of [u < threshold], where `digits` holds u's binary digits, complemented, the lowest first."""
    out[:] = 0
    for k, digit in enumerate(digits):
        # From the lowest digit up: the highest digit in which u and the threshold differ decides.
        (np.bitwise_or if threshold >> k & 1 else np.bitwise_and)(out, digit, out=out)
    return out


def _factors(rng: np.random.Generator) -> Words:
    """The digits of every factor: (FACTORS, _DIGITS, words)."""
    common = _random(rng, _DIGITS)
    scratch = np.empty(_WORDS, np.uint64)
    factors = np.empty((FACTORS, _DIGITS, _WORDS), np.uint64)
    for own in factors:
        own[:] = _random(rng, _DIGITS)
        own ^= (own ^ common) & _below(_random(rng, _MIX_DIGITS), _TIE, scratch)
    return factors


def _random(rng: np.random.Generator, count: int) -> Words:
    return rng.integers(0, 2**64, size=(count, _WORDS), dtype=np.uint64)


def _draw(columns: pl.Schema, rng: np.random.Generator, _first: int) -> pl.DataFrame:
    factors = _factors(rng)
    reverse = ~factors
    bits = np.empty((len(columns), _WORDS), np.uint64)
    coin, mix = np.empty(_WORDS, np.uint64), np.empty(_WORDS, np.uint64)
    for j, column in enumerate(bits):
        mean, weight, factor, reversed_ = attribute(j)
        fresh = _random(rng, _DIGITS + _MIX_DIGITS)
        threshold = round(mean * 2**_DIGITS)
        _below((reverse if reversed_ else factors)[factor], threshold, column)
        _below(fresh[:_DIGITS], threshold, coin)
        _below(fresh[_DIGITS:], round(weight * 2**_MIX_DIGITS), mix)
        # column = column where mix else coin
        np.bitwise_xor(column, coin, out=column)
        np.bitwise_and(column, mix, out=column)
        np.bitwise_xor(column, coin, out=column)
    # Arrow's own layout of booleans: polars takes it as it is.
    cells = pl.Series(na.c_array_from_buffers(na.bool_(), 64 * bits.size, [None, bits]))
    return pl.DataFrame([cells.slice(index * BLOCK_ROWS, BLOCK_ROWS).alias(name) for index, name in enumerate(columns)])


@cache
def table(stream: int, columns: int) -> Blueprint:
    """A table of so many bits and its public schema."""
    names = [f"x{j + 1:04d}" for j in range(columns)]
    attributes, kinds = {name: {"type": "boolean"} for name in names}, pl.Schema(dict.fromkeys(names, pl.Boolean()))
    draw = partial(_draw, kinds)
    return Blueprint(stream=stream, block_rows=BLOCK_ROWS, attributes=attributes, columns=kinds, draw=draw)


syn1: Callable[[], Blueprint] = partial(table, 4, 1_000)
syn2: Callable[[], Blueprint] = partial(table, 5, 2_000)
