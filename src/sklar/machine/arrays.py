"""Arrow arrays of NumPy's memory, and back.

`pyarrow.array`, `pyarrow.scalar` and `to_numpy` load pandas wherever it is installed, to ask whether one of its objects
is meant, which takes longer than counting a small table. What is here asks nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def array(values: NDArray[Any], mask: NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers or truth values, shape (n,), with nulls where the mask is set. Numbers are not copied.

    >>> array(np.array([1, 2]), np.array([False, True])).to_pylist()
    [1, None]
    """
    data = _bits(values) if values.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [validity(mask), data])


def validity(mask: NDArray[np.bool_] | None) -> pa.Buffer | None:
    """The buffer in which Arrow marks what is not null, given what is; none where nothing is."""
    return None if mask is None else _bits(~mask)


def strings(values: Sequence[str]) -> pa.Array:
    """Texts, none of them null.

    >>> strings(["a", "é"]).to_pylist()
    ['a', 'é']
    """
    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(encoded), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))])


def held(column: pa.Array) -> NDArray[Any]:
    """The numbers or truth values of a column, shape (n,), read-only. What stands where it is null may be anything.

    >>> held(array(np.array([True, False]))).tolist()
    [True, False]
    """
    if pa.types.is_boolean(column.type):
        return np.asarray(held(column.cast(pa.uint8())).view(np.bool_))
    kind = np.dtype(column.type.to_pandas_dtype())
    if len(column) == 0:
        return np.empty(0, dtype=kind)
    return np.frombuffer(column.buffers()[1], kind, len(column), column.offset * kind.itemsize)


def filled(column: pa.Array) -> NDArray[Any]:
    """The same with 0 or False for nulls.

    >>> filled(array(np.array([3, 4]), np.array([False, True]))).tolist()
    [3, 0]
    """
    if column.null_count:
        zero = pa.Array.from_buffers(column.type, 1, [None, pa.py_buffer(bytes(8))])
        column = column.fill_null(zero[0])
    return held(column)


def _bits(values: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))
