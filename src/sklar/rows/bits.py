"""Boolean columns of a batch as the bits that polars holds them in.

Polars lets no one see its bits but through Arrow's C interface, where they lie eight rows to a byte, the first in the
lowest bit: as the counting kernels want them. All columns of a batch pass in one export, because asking for one column
at a time takes longer than counting it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.machine.extras import lazily

na = lazily("nanoarrow")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """A column of true and false: bit (offset + r) % 8 of byte (offset + r) // 8 is row r. Other bits mean nothing."""

    bits: NDArray[np.uint8]
    offset: int


def packed_columns(batch: pl.DataFrame) -> dict[int, Packed]:
    """The boolean columns of a batch without nulls, by their number."""
    numbers = [number for number, kind in enumerate(batch.dtypes) if kind == pl.Boolean]
    if not numbers or not batch.height:
        return {}
    whole = batch.select(pl.nth(numbers)).rechunk() if len(numbers) < batch.width else batch.rechunk()
    view = na.c_array_stream(whole).get_next().view()
    found = {}
    for at, number in enumerate(numbers):
        column = view.child(at)
        if not column.null_count:
            found[number] = Packed(bits=np.frombuffer(column.buffer(1), dtype=np.uint8), offset=column.offset)
    return found
