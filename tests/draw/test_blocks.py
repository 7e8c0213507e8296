from __future__ import annotations

import numpy as np
import pytest

from sklar.draw.blocks import BLOCK_ROWS, blocks, empty_codes
from sklar.kernel.cells import Cells


@pytest.mark.parametrize("rows", [1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS, 3 * BLOCK_ROWS + 7])
def test_blocks_cover_all_rows_once(rows: int) -> None:
    cut = list(blocks(rows, BLOCK_ROWS))
    assert [number for number, _ in cut] == list(range(len(cut)))
    assert sum(size for _, size in cut) == rows
    assert all(size == BLOCK_ROWS for _, size in cut[:-1])
    assert 1 <= cut[-1][1] <= BLOCK_ROWS


def test_ranges_of_blocks_put_together_are_all_blocks() -> None:
    rows = 5 * BLOCK_ROWS + 1
    ranges = [(0, 2), (2, 4), (4, 100)]
    parts = [block for first, last in ranges for block in blocks(rows, BLOCK_ROWS, first, last)]
    assert parts == list(blocks(rows, BLOCK_ROWS))


def test_codes_are_bytes_where_these_suffice() -> None:
    assert empty_codes(Cells([2, 256]), 3).dtype == np.uint8
    assert empty_codes(Cells([2, 257]), 3).dtype == np.uint16
    assert empty_codes(Cells([2, 257]), 3).shape == (2, 3)
