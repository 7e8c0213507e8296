"""What queries answer, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklar.errors import BudgetError
from sklar.kernel.cells import Cells
from sklar.kernel.queries import Common, Distances, Parities, Shares, Tables, moved_sets, one_or_none
from sklar.kernel.theorems import Budget

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(st.data(), SIZES)
@settings(max_examples=100, deadline=None)
def test_plain_counts_equal_loops_over_rows(data: st.DataObject, sizes: list[int]) -> None:
    rows = data.draw(st.lists(st.tuples(*(st.integers(-1, size) for size in sizes)), min_size=1, max_size=8))
    cells = Cells(sizes)
    coarse = np.concatenate([data.draw(st.permutations(range(size))) for size in sizes]).astype(np.int64) // 2
    for order in range(len(sizes) + 1):
        for query in (Tables(cells=cells, order=order), Tables(cells=cells, order=order, coarse=coarse)):
            levels = query.levels.tolist()
            wanted = []
            for chosen in combinations(range(len(sizes)), order):
                table = np.zeros([levels[each] for each in chosen], dtype=np.int64)
                for row in rows:
                    place = [row[each] if 0 <= row[each] < sizes[each] else -1 for each in chosen]
                    if min(place, default=0) >= 0:
                        if query.coarse is not None:
                            place = [int(coarse[cells.offsets[i] + at]) for i, at in zip(chosen, place, strict=True)]
                        table[tuple(place)] += 1
                wanted += table.ravel().tolist()
            assert query.count(np.array(rows).T).tolist() == wanted
            assert query.n_cells == len(wanted) == query.offsets[-1]


@given(st.lists(st.integers(-(2**40), 2**40), max_size=20), st.integers(1, 300))
@settings(max_examples=100, deadline=None)
def test_a_code_is_one_level_or_none(codes: list[int], size: int) -> None:
    checked = one_or_none(np.array(codes, dtype=np.int64), size)
    assert checked.dtype == np.int32
    assert checked.tolist() == [code if 0 <= code < size else -1 for code in codes]
    for kind in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64):
        assert one_or_none(np.array([0, 1, 2, np.iinfo(kind).max], dtype=kind), 2).tolist() == [0, 1, -1, -1]


def tables(sizes: list[int], order: int = 2, **settings: Any) -> Tables:
    arrays: dict[str, Any] = {name: np.array(each) for name, each in settings.items()}
    return Tables(cells=Cells(sizes), order=order, **arrays)


REFUSED: list[tuple[Callable[[], object], str]] = [
    *(
        (partial(tables, [2, 3, 2], sets=sets), "in ascending order")
        for sets in ([[0, 0]], [[1, 0]], [[0, 4]], [[-1, 1]], [[0, 1], [0, 1]], [[0, 2], [0, 1]])
    ),
    *(
        (partial(tables, [2, 3], coarse=coarse), "every level must belong to a coarse level")
        for coarse in ([0, 1, 0, 1], [0, 1, 0, 1, -1], [0, 1, 0, 1, 3])
    ),
    (partial(tables, [2], -1), "of no attribute or more, got -1"),
    *(
        (partial(Parities, cells=Cells(sizes), orders=orders), "parities are of sets of one to three bits")
        for sizes, orders in (([2, 3], 1), ([2, 2], 3), ([2, 2, 2, 2], 4), ([2, 2], 0), ([], 1))
    ),
    *(
        (
            partial(Distances, of=tables(sizes, order), reference=None),
            "of tables of three or four attributes over at most",
        )
        for sizes, order in (([9, 2, 2], 3), ([2, 2], 2), ([8, 8, 8, 2], 4), ([2] * 5, 5))
    ),
    (partial(Distances, of=tables([2, 2, 2], 3), reference=np.zeros(7, dtype=np.int64)), "a reference for every cell"),
    (
        lambda: Distances(of=tables([2, 2, 2], 3), reference=None).answer(np.zeros(8, dtype=np.int64)),
        "the reference that they were measured from",
    ),
    *(
        (partial(Shares, what="number", lengths=np.array([3]), each=each), "deals 1 to 65,536 tokens")
        for each in (0, 2**16 + 1)
    ),
    (lambda: Common(about="town", threshold=5).lay({"a": 2.5}), "whole numbers by name"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_no_proof_covers_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(BudgetError, match=message):
        make()


def test_what_a_query_holds_cannot_be_changed() -> None:
    sets, coarse, reference = np.array([[0, 1, 2]]), np.zeros(6, dtype=np.int64), np.zeros(1, dtype=np.int64)
    query = Tables(cells=Cells([2, 2, 2]), order=3, sets=sets, coarse=coarse)
    distances = Distances(of=query, reference=reference)
    sets[:], coarse[:], reference[:] = 7, 7, 7
    assert query.members.tolist() == [[0, 1, 2]]
    assert query.n_cells == 1
    assert distances.answer(np.array([0])).tolist() == [0]
    for array in (query.sets, query.coarse, distances.reference):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 1


@given(st.lists(st.lists(st.integers(-1, 2), min_size=4, max_size=4), min_size=1, max_size=10))
@settings(max_examples=60, deadline=None)
def test_parities_follow_from_tables(rows: list[list[int]]) -> None:
    codes = np.array(rows).T
    for orders in (1, 2, 3):
        query = Parities(cells=Cells([2] * 4), orders=orders)
        assert query.answer(*(table.count(codes) for table in query.tables)).tolist() == query.count(codes).tolist()


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_rows_move_as_many_parities_as_the_theorem_says(m: int) -> None:
    for s in range(m + 1):
        changed = set(range(s))
        odd = [sum(len(changed & set(each)) % 2 for each in combinations(range(m), k)) for k in (1, 2, 3)]
        assert moved_sets(m)[s].tolist() == odd


@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_a_distance_is_the_length_of_what_smaller_tables_do_not_say(seed: int, order: int) -> None:
    generator = np.random.default_rng(seed)
    shape = tuple(generator.integers(2, 9 if order == 3 else 5, order).tolist())
    counts, reference = generator.integers(0, 50, shape), generator.integers(-5, 50, shape)
    apart = (counts - reference).astype(np.float64)
    for axis in range(order):
        apart -= apart.mean(axis=axis, keepdims=True)
    query = Distances(of=Tables(cells=Cells(shape), order=order), reference=reference.ravel())
    assert query.answer(counts.ravel()).tolist() == [round(15 * float(np.linalg.norm(apart)))]


def test_shares_of_people_need_a_budget_by_person() -> None:
    people = Shares(what="number", lengths=np.array([3]), each=4)
    with pytest.raises(BudgetError, match="shares of people need a budget by person"):
        people.bound(np.array([9.0]), Budget(epsilon=1.0))
    rows = Shares(what="moments", lengths=np.array([3]), each=4, per="row")
    assert rows.bound(np.array([9.0]), Budget(epsilon=1.0, rows_per_person=5)).reach.tolist() == [20.0]
    assert people.bound(np.array([9.0]), Budget(epsilon=1.0, rows_per_person=5)).reach.tolist() == [4.0]


@pytest.mark.parametrize(("query", "scales"), [
    (Parities(cells=Cells([2, 2]), orders=2), [9.0, 9.0]),
    (Distances(of=Tables(cells=Cells([2, 2, 2]), order=3), reference=np.zeros(8, dtype=np.int64)), [9.0]),
    (Shares(what="number", lengths=np.array([3]), each=4), [9.0]),
    (Common(about="town", threshold=9), [9.0]),
])  # fmt: skip
def test_bounds_that_are_proven_for_gaussian_noise_refuse_any_other(query: Any, scales: list[float]) -> None:
    with pytest.raises(BudgetError, match="take gaussian noise, got 'laplace'"):
        query.bound(np.array(scales), Budget(epsilon=1.0, mechanism="laplace", rows_per_person=1))
    with pytest.raises(BudgetError, match="one noise scale for each"):
        query.bound(np.array([9.0] * 5), Budget(epsilon=1.0, rows_per_person=1))


def test_common_values_are_counted_by_name() -> None:
    query = Common(about="town", threshold=5)
    keys, exact = query.lay({"b": 3, "a": 9})
    assert (keys, exact.tolist()) == (("a", "b"), [9, 3])
    assert query.show(keys, np.array([5, 4]))[0] == ("a",)


def test_all_pairs_of_two_thousand_bits_are_laid_out_at_once() -> None:
    query = Tables(cells=Cells([2] * 2000), order=2)
    assert query.sets is None
    assert query.n_cells == 4 * 1999 * 1000
