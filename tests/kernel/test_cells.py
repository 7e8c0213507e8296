"""The geometry of tables against loops over all pairs, on small and odd shapes."""

from __future__ import annotations

from itertools import combinations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from sklar.kernel.cells import Cells
from sklar.kernel.codes import NO_CELL, one_or_none
from sklar.kernel.count import Counts, count_plainly, no_counts

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


@given(st.lists(st.integers(-(2**40), 2**40), max_size=20), st.integers(1, 300))
@settings(max_examples=100, deadline=None)
def test_a_code_is_one_level_or_none(codes: list[int], size: int) -> None:
    checked = one_or_none(np.array(codes, dtype=np.int64), size)
    assert checked.dtype == np.int32
    for code, found in zip(codes, checked.tolist(), strict=True):
        assert found == (code if 0 <= code < size else NO_CELL)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64])
def test_codes_of_every_width_are_checked(kind: type[np.integer]) -> None:
    codes = np.array([0, 1, 2, 127], dtype=kind)
    assert one_or_none(codes, 3).tolist() == [0, 1, 2, -1]


@given(st.data(), SIZES)
@settings(max_examples=100, deadline=None)
def test_plain_counts_equal_loops_over_rows(data: st.DataObject, sizes: list[int]) -> None:
    cells = Cells(sizes)
    rows = data.draw(st.lists(st.tuples(*[st.integers(-2, size + 1) for size in sizes]), max_size=12))
    codes = np.array(rows, dtype=np.int64).reshape(len(rows), len(sizes)).T
    found = count_plainly(codes, cells)
    assert found.n_rows == len(rows)
    wanted = no_counts(cells)
    for row in rows:
        for i, code in enumerate(row):
            if 0 <= code < sizes[i]:
                wanted.one_way[cells.offsets[i] + code] += 1
        for i, j in combinations(range(len(sizes)), 2):
            if 0 <= row[i] < sizes[i] and 0 <= row[j] < sizes[j]:
                cells.table(wanted.pairs, i, j)[row[i], row[j]] += 1
    assert (found.one_way == wanted.one_way).all()
    assert (found.pairs == wanted.pairs).all()


def test_counts_add_up_and_do_not_show_themselves() -> None:
    cells = Cells([2, 2])
    one = count_plainly(np.array([[0, 1], [1, 1]]), cells)
    both = one + one
    assert (both.n_rows, both.one_way.tolist(), both.pairs.tolist()) == (4, [2, 2, 0, 4], [0, 2, 0, 2])
    assert repr(both) == "Counts(private)"
    assert isinstance(both, Counts)
