"""Records of a CSV file, none longer than a reader can hold."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
from numpy.typing import NDArray

_START, _PLAIN, _QUOTED, _CLOSED = 0, 1, 2, 3


@numba.njit("UniTuple(int64, 3)(uint8[::1], uint8[::1], int64, int64, int64, int64)", cache=True, nogil=True)
def bound_records(
    block: NDArray[np.uint8], out: NDArray[np.uint8], state: int, length: int, delimiter: int, limit: int
) -> tuple[int, int, int]:
    """Copy a block of a CSV file, cutting every record after `limit` bytes: (bytes copied, state, length so far).

    A quote opens a quoted field at the start of a field only, and a doubled one inside stands for itself. What is cut
    off in a quoted field is closed first, so that the record ends where it would have. `state` and `length` carry on
    into the next block; both begin with 0. Postcondition: no record in `out` is longer than `limit` + 1 bytes and its
    end of line, and there are as many records as before.
    """
    quote, line_feed, carriage_return = 34, 10, 13
    copied = 0
    for at in range(block.size):
        byte = block[at]
        inside = state == _QUOTED
        if inside:
            state = _CLOSED if byte == quote else _QUOTED
        elif byte in (line_feed, carriage_return):
            out[copied] = byte
            copied += 1
            state, length = _START, 0
            continue
        elif byte == delimiter:
            state = _START
        elif byte == quote and state in (_START, _CLOSED):
            state = _QUOTED
        else:
            state = _PLAIN
        if length < limit:
            out[copied] = byte
            copied += 1
        elif length == limit and inside:
            out[copied] = quote
            copied += 1
        length += 1
    return copied, state, length


def bounded(delimiter: int, limit: int) -> Callable[[bytes], bytes]:
    """A filter over the blocks of a file that cuts records as `bound_records` does."""
    state = length = 0

    def keep(block: bytes) -> bytes:
        nonlocal state, length
        first, last = block.find(b"\n"), max(block.rfind(b"\n"), block.rfind(b"\r"))
        if b'"' not in block and state != _QUOTED and 0 <= first <= limit - length and len(block) - first - 1 <= limit:
            # Every line is a record and fits: most blocks of most files.
            length = len(block) - last - 1
            state = _START if length == 0 or block[-1] == delimiter else _PLAIN
            return block
        text = np.frombuffer(bytearray(block), dtype=np.uint8)
        out = np.empty_like(text)
        copied, state, length = bound_records(text, out, state, length, delimiter, limit)
        # A copy: a view would keep all of `out` for as long as a reader keeps what is left of it.
        return out[:copied].tobytes()

    return keep
