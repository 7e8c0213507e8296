"""Any block of the rows of a model and a seed, here or on another machine, in any thread."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from sklar.draw.blocks import blocks
from sklar.draw.decode import Decoder, decode_dummies, dummy_schema
from sklar.draw.repair import RecordSampler
from sklar.draw.shapes import Shape
from sklar.errors import ModelError
from sklar.fitting.protocols import Copula, Sampler
from sklar.machine.extras import lazily

if TYPE_CHECKING:
    import polars as pl

    from sklar.draw.given import Condition
else:
    pl = lazily("polars")


class BlockSampler:
    """Draws blocks of rows. Whoever draws some of `blocks(rows)` draws the same rows as whoever draws all.

    `columns` are the names and types of what is drawn; `shapes` and `enums` are the decoder's. Under a `condition`,
    rows are those of the model given it; then shapes are those of its divided bins.
    """

    def __init__(
        self,
        copula: Copula,
        seed: int,
        *,
        shapes: Mapping[str, Shape] | None = None,
        enums: bool = False,
        condition: Condition | None = None,
    ) -> None:
        self._seed = seed
        self._schema = copula.schema.whole or copula.schema
        self._sampler: Sampler = RecordSampler(copula)
        if condition is not None:
            # Imported here: most rows are drawn without a condition.
            from sklar.draw.given import given_sampler

            self._schema, self._sampler = condition.schema, given_sampler(copula, condition)
        self._decoder = None if copula.dummies else Decoder(self._schema, shapes=shapes, enums=enums)
        self.columns = dummy_schema(self._schema) if self._decoder is None else self._decoder.columns

    def blocks(self, rows: int, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int]]:
        """Number and size of the blocks of this many rows, from block `first` up to and without `last`."""
        return blocks(rows, self._sampler.block_rows, first, last)

    def draw(self, block: tuple[int, int]) -> pl.DataFrame:
        """The rows of a block, given as its number and its size."""
        number, rows = block
        drawn = self._sampler.draw(self._seed, number, rows)
        if self._decoder is None:
            return decode_dummies(drawn.view(np.bool_), self._schema)
        # A stream of its own, so that where a value lies in its bin says nothing about the copula's draw.
        generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([self._seed, number, 1])))
        return self._decoder.decode(self._schema.complete(drawn), generator)


def check_draw(rows: int | None, seed: int | None) -> tuple[int | None, int]:
    """The number of rows to draw (None: as many as the original has) and a seed, fresh where none is given."""
    if rows is not None and (type(rows) is not int or rows < 1):
        raise ModelError(f"rows must be a whole number of at least 1, got {rows!r}.")
    if seed is None:
        seed = secrets.randbits(63)
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise ModelError(f"seed must be a whole number from 0 to 2**64 - 1, got {seed!r}.")
    return rows, seed
