"""The kernel that rewrites records of a CSV file, for files that need it (`sklar.rows.records`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sklar.machine.compiled import compiled

# What is remembered of a record from block to block, and how many records were ragged.
STATE, LENGTH, DELIMITERS, FIELD, OPENED, RETURNED, RAGGED = range(7)
MEMORY = 7
START, PLAIN, QUOTED, CLOSED = 0, 1, 2, 3


@compiled(
    "UniTuple(int64, 2)"
    "(Array(uint8, 1, 'C', readonly=True), uint8[::1], int64, int64[::1], int64, int64, int64, int64, int64)",
    boundscheck=False,
)
def rewrite(
    block: NDArray[np.uint8] | bytes,
    out: NDArray[np.uint8] | bytearray,
    copied: int,
    memory: NDArray[np.int64] | list[int],
    delimiter: int,
    quote: int,
    quoted: int,
    fields: int,
    limit: int,
) -> tuple[int, int]:
    """Write the records of a block: (bytes of whole records, bytes in all). The last one may go on in the next block.

    Given: `out` begins with the `copied` bytes of a record that the block before left unfinished, and has room for
    three bytes per byte of the block. `memory` is all 0 before the first block.

    Where `quoted` is 0, nothing is: `quote` is a character like others, but for what is written. Else
    a quote opens a quoted field at the start of a field only; inside, a doubled one stands for itself; what follows
    after it was closed belongs to the field. Any quote elsewhere is a character like others. A line feed, a carriage
    return, or both end a record. Ensured: every field that holds a quote is quoted as a whole, with its quotes doubled;
    bytes of a record after its first `limit` are left out, and its quote is closed; a record that has then not exactly
    `fields` fields is left out and counted; an empty line is left out, but a quoted empty field where `fields` is 1.
    """
    line_feed, carriage_return = 10, 13
    state, length, delimiters, field = memory[STATE], memory[LENGTH], memory[DELIMITERS], memory[FIELD]
    opened, returned, ragged = memory[OPENED], memory[RETURNED], memory[RAGGED]
    whole = 0
    for byte in block:
        if returned:
            returned = 0
            if byte == line_feed:
                continue
        if state != QUOTED and byte in (line_feed, carriage_return):
            if length > 0 or fields == 1:
                if opened or length == 0:
                    if length == 0:
                        out[copied] = quote
                        copied += 1
                    out[copied] = quote
                    copied += 1
                out[copied] = line_feed
                copied += 1
                if delimiters + 1 == fields:
                    whole = copied
                else:
                    ragged += 1
                    copied = whole
            state, length, delimiters, field, opened = START, 0, 0, 0, 0
            returned = 1 if byte == carriage_return else 0
            continue
        kept = length < limit
        length += 1
        if state == QUOTED:
            if byte == quote:
                state = CLOSED
            elif kept:
                out[copied] = byte
                copied += 1
        elif byte == delimiter:
            state = START
            if kept:
                if opened:
                    out[copied] = quote
                    copied += 1
                out[copied] = byte
                copied += 1
                delimiters += 1
                field, opened = copied - whole, 0
        elif byte == quote:
            if quoted and state != PLAIN:
                if kept:
                    # The quote that opens, or one of a pair and its like.
                    out[copied] = quote
                    copied += 1
                    if state == CLOSED:
                        out[copied] = quote
                        copied += 1
                    opened = 1
                state = QUOTED
                continue
            state = PLAIN
            if kept:
                if not opened:
                    begin = whole + field
                    for at in range(copied, begin, -1):
                        out[at] = out[at - 1]
                    out[begin] = quote
                    copied += 1
                    opened = 1
                out[copied] = quote
                out[copied + 1] = quote
                copied += 2
        else:
            state = PLAIN
            if kept:
                out[copied] = byte
                copied += 1
    memory[STATE], memory[LENGTH], memory[DELIMITERS], memory[FIELD] = state, length, delimiters, field
    memory[OPENED], memory[RETURNED], memory[RAGGED] = opened, returned, ragged
    return whole, copied
