"""The geometry of tables against loops over all pairs, on small and odd shapes."""

from __future__ import annotations

from itertools import combinations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from sklar.kernel.cells import Cells

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=6)


@given(SIZES)
@settings(max_examples=100, deadline=None)
def test_tables_follow_one_another_in_the_order_of_pairs(sizes: list[int]) -> None:
    cells, flat, at = Cells(sizes), np.arange(10_000), 0
    for number, (i, j) in enumerate(combinations(range(len(sizes)), 2)):
        assert (cells.pairs[0][number], cells.pairs[1][number]) == (i, j)
        assert cells.pair(i, j) == number
        assert cells.pair_offsets[number] == at
        assert cells.pair_sizes[number] == sizes[i] * sizes[j]
        table = cells.table(flat, i, j)
        assert table.shape == (sizes[i], sizes[j])
        assert table.ravel().tolist() == list(range(at, at + table.size))
        at += table.size
    assert cells.n_cells == at
    assert cells.n_pairs == len(sizes) * (len(sizes) - 1) // 2
    assert cells.n_levels == sum(sizes)
    assert cells.attribute_of_level.tolist() == [i for i, size in enumerate(sizes) for _ in range(size)]


@given(SIZES)
@settings(max_examples=100, deadline=None)
def test_a_square_holds_each_table_once_and_is_undone(sizes: list[int]) -> None:
    cells = Cells(sizes)
    flat = 1 + np.arange(cells.n_cells)
    square = cells.square(flat)
    assert np.count_nonzero(square) == cells.n_cells
    for i, j in combinations(range(len(sizes)), 2):
        assert (square[cells.levels(i), cells.levels(j)] == cells.table(flat, i, j)).all()
    assert (cells.flat(square) == flat).all()


@given(SIZES)
@settings(max_examples=100, deadline=None)
def test_groups_of_one_shape_hold_every_table_once(sizes: list[int]) -> None:
    cells = Cells(sizes)
    groups = list(cells.alike())
    assert sorted(np.concatenate([*groups, []]).tolist()) == list(range(cells.n_pairs))
    flat = np.arange(cells.n_cells)
    for members in groups:
        for member, table in zip(members, flat[cells.places(members)], strict=True):
            i, j = (int(side[member]) for side in cells.pairs)
            assert (table == cells.table(flat, i, j)).all()


def test_large_groups_are_cut() -> None:
    cells = Cells([20] * 60)
    groups = list(cells.alike())
    assert len(groups) > 1
    assert max(members.size for members in groups) * 400 <= 260_000


def test_a_number_per_table_as_a_matrix() -> None:
    square = Cells([2, 3, 4]).symmetric(np.array([1.0, 2.0, 3.0]))
    assert square.tolist() == [[0, 1, 2], [1, 0, 3], [2, 3, 0]]


def test_what_is_handed_out_cannot_be_changed_and_equal_cells_are_equal() -> None:
    cells = Cells([2, 3])
    for array in (cells.sizes, cells.offsets, cells.pair_offsets, cells.attribute_of_level, *cells.pairs):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7
    assert cells == Cells(np.array([2, 3]))
    assert hash(cells) == hash(Cells([2, 3]))
    assert cells != Cells([3, 2])
    assert cells != [2, 3]
