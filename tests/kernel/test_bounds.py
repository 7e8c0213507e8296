"""Every bound by exhaustion: no person moves an answer by more than its query's `bound`, on all small domains.

A world is what others hold; in it stand the answers with nobody (row 0) and with every possible person of up to two
rows. A class of `QUERIES` without examples fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.kernel.cells import Cells
from sklar.kernel.people import deal
from sklar.kernel.queries import QUERIES, Common, Distances, Parities, Query, Shares, Tables
from sklar.kernel.theorems import BLUR, Budget, Neighbors

Worlds = Iterator[NDArray[np.int64]]
# A query, scales that hurt, its worlds for people of so many rows, and the least share of the bound that is reached.
Example = tuple[Query, list[NDArray[np.float64]], Callable[[int], Worlds], float]
DOMAINS = [sizes for m in (1, 2, 3) for sizes in combinations_with_replacement((1, 2, 3), m)]


def rows_of(sizes: tuple[int, ...], *, missing: bool = True) -> list[tuple[int, ...]]:
    return list(product(*(range(-1 if missing else 0, size) for size in sizes)))


def people_of(rows: Sequence[tuple[int, ...]], most: int) -> list[tuple[tuple[int, ...], ...]]:
    return [chosen for number in range(most + 1) for chosen in combinations_with_replacement(rows, number)]


def codes_of(rows: Any, m: int) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(-1, m).T


def added_up(query: Tables | Parities, rows: list[tuple[int, ...]], most: int) -> Worlds:
    """One world, where an answer is a sum over rows."""
    m = len(rows[0])
    single = np.array([query.count(codes_of([row], m)) for row in rows])
    at = {row: number for number, row in enumerate(rows)}
    people = people_of(rows, most)
    yield np.array([single[[at[row] for row in person]].sum(axis=0) for person in people])


def scales_for(number: int) -> list[NDArray[np.float64]]:
    uneven = 2.05 + np.arange(number) % 5 * 1.7
    return [uneven, np.full(number, 2.01), np.full(number, 40.0), np.full(number, 0.5)]


def tables() -> Iterator[Example]:
    for sizes in DOMAINS:
        cells, rows = Cells(sizes), rows_of(sizes)
        for order in range(len(sizes) + 1):
            query = Tables(cells=cells, order=order)
            # An attribute of one level has nowhere else to go: one move of two. The number of rows may be public.
            share = 0.0 if order == 0 else 1.0 if min(sizes) > 1 else 0.5
            yield query, scales_for(query.sizes.size), partial(added_up, query, rows), share
        if sizes == (3, 3, 3):
            coarse = np.array([0, 1, 1, 1, 0, 1, 0, 0, 1])
            for chosen in (None, np.array([[0, 2], [1, 2]])):
                query = Tables(cells=cells, order=2, sets=chosen, coarse=coarse)
                yield query, scales_for(query.sizes.size), partial(added_up, query, rows), 1.0


def parities() -> Iterator[Example]:
    for m in (1, 2, 3):
        rows = rows_of((2,) * m)
        for orders in range(1, m + 1):
            query = Parities(cells=Cells([2] * m), orders=orders)
            scales = [*scales_for(orders), np.array([2.02, 30.0, 9.0])[:orders], np.array([30.0, 2.02, 2.5])[:orders]]
            # Where the worst rows of the two sums differ, both are paid for: more than any row moves.
            yield query, scales, partial(added_up, query, rows), 0.5


def distances() -> Iterator[Example]:
    examples = (((2, 2, 2), True), ((2, 2, 3), False), ((2, 3, 3), False), ((3, 3, 3), False), ((2, 2, 2, 2), False))
    for sizes, missing in (*examples, ((2, 2, 2, 3), False)):
        rows, size = rows_of(sizes, missing=missing), math.prod(sizes)
        far = np.zeros(size, dtype=np.int64)
        far[:2] = -(2**40), 2**40
        for reference in (np.zeros(size), np.arange(size) % 3 - 1, far)[: 1 if size > 20 else 3]:
            query = Distances(of=Tables(cells=Cells(sizes), order=len(sizes)), reference=reference.astype(np.int64))
            answer = cache(lambda chosen, query=query: query.count(codes_of(chosen, query.of.order)))

            def worlds(most: int, answer: Any = answer, rows: Any = rows) -> Worlds:
                people = people_of(rows, most)
                for base in people_of(rows, 3 - most):
                    yield np.array([answer(tuple(sorted((*base, *person)))) for person in people])

            # A row alone lies sqrt(prod(1 - 1/K)) from nothing, which whole parts of 15 show but for one.
            least = (15 * math.sqrt(math.prod(1 - 1 / k for k in sizes)) - 1) / 44
            yield query, scales_for(1), worlds, 0.0 if reference.any() else least**2


def dealt(query: Tables | Shares, rows: Sequence[tuple[int, ...]]) -> Callable[[int], Worlds]:
    """People with up to two rows whose parts are dealt to the tokens of a person, however many rows others have."""

    def worlds(_most: int) -> Worlds:
        found = [np.zeros(query.n_cells, dtype=np.int64)]
        for chosen in people_of([(*row, part) for row in rows for part in (0, 1, 3)], 2)[1:]:
            *codes, parts = np.array(chosen).T
            tokens = deal(np.zeros_like(parts), parts, query.each)
            found.append(query.count(codes, tokens) if isinstance(query, Tables) else query.count([(codes[0], tokens)]))
        yield np.array(found)

    return worlds


def shares() -> Iterator[Example]:
    for cells, each in product((1, 2, 3), (1, 2, 3, 8)):
        query = Shares(what="test", lengths=np.array([cells]), each=each)
        yield query, scales_for(1), dealt(query, [(cell,) for cell in range(-1, cells + 1)]), 1.0 if cells > 1 else 0.5
    for sizes, each in product(((2,), (2, 3)), (2, 3, 8)):
        whole = Tables(cells=Cells(sizes), order=len(sizes), each=each)
        yield whole, scales_for(1), dealt(whole, rows_of(sizes)), 1.0


def common() -> Iterator[Example]:
    names = (None, "a", "b", "c")
    query = Common(about="town", threshold=60)

    def worlds(most: int) -> Worlds:
        people = people_of([(at,) for at in range(4)], most)
        counted = [query.count([names[at] for (at,) in person]) for person in people]
        yield np.array([[each.get(name, 0) for name in ("a", "b", "c")] for each in counted])

    yield query, [np.array([2.05]), np.array([5.0])], worlds, 1.0


EXAMPLES: dict[type, Callable[[], Iterator[Example]]] = {
    Tables: tables, Parities: parities, Distances: distances, Shares: shares, Common: common,
}  # fmt: skip


def furthest(world: NDArray[np.int64], weights: NDArray[np.float64], neighbors: Neighbors, most: int) -> float:
    """The largest weighted squared length by which a person moves the answer."""
    # From a common origin: large answers would lose the digits of small moves.
    scaled = (world - world[0]) * np.sqrt(weights)
    if neighbors == "add-remove":
        return float((scaled**2).sum(axis=1).max())
    # Where a person has exactly one row, nobody is no neighbor.
    scaled = scaled[1:] if most == 1 else scaled
    squares = (scaled**2).sum(axis=1)
    return float((squares[:, None] + squares[None, :] - 2 * scaled @ scaled.T).max())


def budget_of(neighbors: Neighbors, most: int, query: Query) -> Budget:
    by_person = getattr(query, "each", 1) > 1 or isinstance(query, Shares) or most > 1
    return Budget(epsilon=1.0, neighbors=neighbors, rows_per_person=most if by_person else None)


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("kind", QUERIES)
def test_no_person_moves_an_answer_by_more_than_its_bound(kind: type, neighbors: Neighbors) -> None:
    reached: dict[float, float] = {}
    for query, scale_sets, worlds, share in EXAMPLES[kind]():
        for most in (1, 2):
            budget = budget_of(neighbors, most, query)
            seen = list(worlds(most))
            for scales in scale_sets:
                spend = query.bound(scales, budget)
                sizes = query.sizes if query.sizes.any() else np.array([seen[0].shape[1]])
                cell = np.repeat(scales, sizes)
                paid = float(np.sum(spend.moves * spend.reach**2 / spend.scales**2))
                moved = max(furthest(world, cell**-2.0, neighbors, most) for world in seen)
                assert moved <= paid * (1 + 1e-9)
                reached[share] = max(reached.get(share, 0.0), moved / paid)
                assert moved >= share * paid * (1 - 1e-9) or isinstance(query, Distances)
                if scales.min() ** 2 > BLUR:
                    paid = float(np.sum(spend.moves * spend.reach**2 / (spend.scales**2 - BLUR)))
                    assert max(furthest(w, 1 / (cell**2 - BLUR), neighbors, most) for w in seen) <= paid * (1 + 1e-9)
                if not query.gaussian_only:
                    paid = float(np.sum(spend.moves * spend.reach / spend.scales))
                    for world in seen:
                        others = world[:1] if neighbors == "add-remove" else world
                        apart = np.abs(world[:, None, :] - others[None, : 200 if most == 1 else 20])
                        assert float((apart / cell).sum(axis=-1).max()) <= paid * (1 + 1e-9)
    assert all(found >= share for share, found in reached.items())


def test_every_class_has_examples_and_is_final() -> None:
    assert set(EXAMPLES) == set(QUERIES)


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("sizes", [(8, 8, 8), (8, 8, 4, 2)])
def test_distances_of_large_tables_stay_within_their_bound(
    sizes: tuple[int, ...], neighbors: Neighbors, most: int
) -> None:
    # Rounding grows with counts: at the cut of 2^31 rows and beyond, and with references as far.
    generator = np.random.default_rng(3)
    tables = Tables(cells=Cells(sizes), order=len(sizes))
    budget = budget_of(neighbors, most, tables)
    for top in (10, 2**20, 2**31 - 1, 2**31 + 5):
        reference = generator.integers(-top, top, 512)
        query = Distances(of=tables, reference=reference)
        reach = float(query.bound(np.ones(1), budget).reach[0])
        counts = generator.integers(0, top, 512)
        for _ in range(200):
            moved = counts.copy()
            moved[generator.integers(512)] += most
            if neighbors == "replace-one":
                moved[generator.integers(512)] -= most
            assert abs(int(query.answer(moved)[0] - query.answer(counts)[0])) <= reach
