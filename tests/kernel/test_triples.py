"""Three-way tables over coarse levels: their layout, what a row moves, what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.errors import BudgetError
from sklar.kernel import vault as door
from sklar.kernel.cells import Cells
from sklar.kernel.count import count_plainly, count_triples_plainly
from sklar.kernel.theorems import Budget, Spend
from sklar.kernel.triples import NoisyTriples, Triples
from sklar.kernel.vault import Vault

CELLS = Cells([4, 5, 2, 3])
COARSE = np.array([0, 0, 1, 1, 2, 0, 1, 1, 0, 0, 1, 0, 1, 1])
TRIPLES = Triples(cells=CELLS, attributes=np.array([[0, 1, 2], [0, 1, 3], [1, 2, 3]]), coarse=COARSE)


def codes(rows: int, seed: int = 0) -> NDArray[np.int32]:
    generator = np.random.default_rng(seed)
    return np.stack([generator.integers(-1, size, rows) for size in CELLS.sizes]).astype(np.int32)


def vault(rows: NDArray[np.int32], budget: Budget) -> Vault:
    held = Vault(budget)
    held.hold(count_plainly(rows, CELLS), CELLS)
    return held


def test_the_layout_is_that_of_the_attributes_coarse_levels() -> None:
    assert TRIPLES.levels.tolist() == [2, 3, 2, 2]
    assert TRIPLES.shapes.tolist() == [[2, 3, 2], [2, 3, 2], [3, 2, 2]]
    assert TRIPLES.offsets.tolist() == [0, 12, 24, 36]
    assert TRIPLES.n_cells == 36
    none = Triples(cells=CELLS, attributes=np.empty((0, 3), dtype=np.int64), coarse=COARSE)
    assert none.n_cells == count_triples_plainly(codes(5), none).size == 0


@pytest.mark.parametrize("chosen", [[[0, 0, 1]], [[1, 0, 2]], [[0, 1, 4]], [[-1, 1, 2]], [[0, 1]]])
def test_a_triple_names_three_attributes_in_order(chosen: list[list[int]]) -> None:
    with pytest.raises(BudgetError, match=r"^a triple must name three attributes of the schema, in ascending order\.$"):
        Triples(cells=CELLS, attributes=np.array(chosen), coarse=COARSE)


@pytest.mark.parametrize("chosen", [[[0, 1, 2], [0, 1, 2]], [[0, 1, 3], [0, 1, 2]]])
def test_triples_stand_in_the_one_order_that_there_is(chosen: list[list[int]]) -> None:
    with pytest.raises(BudgetError, match=r"^triples must differ, and stand in ascending order\.$"):
        Triples(cells=CELLS, attributes=np.array(chosen), coarse=COARSE)


@pytest.mark.parametrize("level", [-1, 8])
def test_coarse_levels_are_few(level: int) -> None:
    coarse = COARSE.copy()
    coarse[3] = level
    with pytest.raises(BudgetError, match=r"^every level must belong to a coarse level from 0 to 7\.$"):
        Triples(cells=CELLS, attributes=TRIPLES.attributes, coarse=coarse)


def test_plain_counts_are_those_of_rows_one_by_one() -> None:
    rows = codes(200)
    wanted = np.zeros(TRIPLES.n_cells, dtype=np.int64)
    for row in rows.T.tolist():
        for table, chosen in enumerate(TRIPLES.attributes.tolist()):
            own = [row[each] for each in chosen]
            if min(own) < 0:
                continue
            place = 0
            for each, code in zip(chosen, own, strict=True):
                place = place * int(TRIPLES.levels[each]) + int(COARSE[CELLS.levels(each)][code])
            wanted[TRIPLES.offsets[table] + place] += 1
    assert count_triples_plainly(rows, TRIPLES).tolist() == wanted.tolist()
    outside = rows.copy()
    outside[0, :50] = 99
    rows[0, :50] = -1
    assert (count_triples_plainly(outside, TRIPLES) == count_triples_plainly(rows, TRIPLES)).all()


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_no_row_shifts_more_than_is_claimed(neighbors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the noise recorded instead of drawn: the summed cost of the shifts stays within the claim, and meets it."""
    drawn: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = []

    def draw(scales: NDArray[np.float64], sizes: NDArray[np.int64], **_threads: int) -> NDArray[np.int64]:
        drawn.append((scales.copy(), sizes.copy()))
        return np.zeros(int(sizes.sum()), dtype=np.int64)

    monkeypatch.setitem(vars(door), "discrete_gaussian", draw)
    budget, scales = Budget(epsilon=1.0, neighbors=neighbors), np.array([50.0, 60.0, 70.0])

    def out(rows: NDArray[np.int32]) -> NDArray[np.int64]:
        return vault(rows, budget).triples(count_triples_plainly(rows, TRIPLES), TRIPLES, scales).counts

    rows = codes(2, seed=1)
    rows[:, 0] = 0
    reference = out(rows)
    per_cell = np.repeat(*drawn[0])
    assert per_cell.size == reference.size
    every = np.stack(np.meshgrid(*[np.arange(-1, size) for size in CELLS.sizes]), axis=-1).reshape(-1, 4)
    changes = [np.concatenate([each[:, None], rows[:, 1:]], axis=1) for each in every.astype(np.int32)]
    if neighbors == "add-remove":
        changes = [rows[:, 1:]]
    worst = 0.0
    for changed in changes:
        shift = np.abs(out(changed) - reference)
        assert shift.max(initial=0) <= 1
        worst = max(worst, float(np.sum(shift**2 / per_cell**2)))
    claimed = float(np.sum(budget.shifts / scales**2))
    assert worst == pytest.approx(claimed)
    # Whatever the rows, the same noise is drawn.
    assert all((own == scales).all() and (sizes == TRIPLES.sizes).all() for own, sizes in drawn)


def test_triples_are_noised_in_every_cell_charged_and_refused_beyond_the_budget() -> None:
    budget = Budget(epsilon=1.0)
    scales = np.repeat(budget.scales(np.ones(6))[:1], 3)
    paid: list[Spend] = []
    held = Vault(budget, charge=paid.append)
    held.hold(count_plainly(codes(9), CELLS), CELLS)
    exact = np.zeros(TRIPLES.n_cells, dtype=np.int64)
    held.reserve(Spend.of(scales) + Spend.of(scales))
    noisy = held.triples(exact, TRIPLES, scales)
    assert isinstance(noisy, NoisyTriples)
    # Zeros are noised as well. 36 cells at a scale above 10: all but a third of them are zero with chance below 1e-18.
    assert np.count_nonzero(noisy.counts) > 12
    assert budget.spent(held.spent) == budget.spent(noisy.spend) < 1.0
    held.triples(exact, TRIPLES, scales)
    with pytest.raises(BudgetError, match="above the budget"):
        held.triples(exact, TRIPLES, scales)
    short = Vault(budget, charge=paid.append)
    short.hold(count_plainly(codes(9), CELLS), CELLS)
    short.reserve(Spend.of(scales[:2]))
    with pytest.raises(BudgetError, match="costs more than the ledger was charged for"):
        short.triples(exact, TRIPLES, scales)


def test_noise_has_the_scale_of_its_table() -> None:
    budget, scales = Budget(epsilon=8.0), np.array([40.0, 60.0, 90.0])
    exact = np.zeros(TRIPLES.n_cells, dtype=np.int64)
    noise = np.stack([vault(codes(5), budget).triples(exact, TRIPLES, scales).counts for _ in range(150)])
    for table, scale in enumerate(scales):
        own = noise[:, TRIPLES.offsets[table] : TRIPLES.offsets[table + 1]]
        # The sd of 1,800 draws is known to 1.7%: 6 of them fail once in 10^8.
        assert np.std(own) == pytest.approx(scale, rel=0.1)


def test_counts_of_another_layout_are_refused() -> None:
    budget, scales = Budget(epsilon=1.0), np.full(3, 100.0)
    exact = np.zeros(TRIPLES.n_cells, dtype=np.int64)
    for counts, own in ((exact[1:], scales), (exact, scales[1:])):
        with pytest.raises(BudgetError, match=r"^three-way tables need a count for every cell and a scale for every"):
            vault(codes(5), budget).triples(counts, TRIPLES, own)
    other = Triples(cells=Cells([4, 5, 3, 2]), attributes=TRIPLES.attributes, coarse=COARSE)
    with pytest.raises(BudgetError, match=r"^three-way tables must be those of the attributes that the vault holds\."):
        vault(codes(5), budget).triples(np.zeros(other.n_cells, dtype=np.int64), other, scales)
