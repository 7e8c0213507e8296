"""Scores of three-way tables: what they are, how far a row moves them, what their noise is, what they cost."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.errors import BudgetError
from sklar.kernel import vault as door
from sklar.kernel.cells import Cells
from sklar.kernel.count import count_plainly, count_triples_plainly, score_plainly
from sklar.kernel.theorems import Budget, Spend, cost
from sklar.kernel.triples import SCORE_MOVES, SCORE_UNITS, NoisyScores, Triples
from sklar.kernel.vault import Vault
from tests.kernel.test_triples import CELLS, COARSE, codes, vault

LARGE = Triples(cells=Cells([8, 8, 8]), attributes=np.array([[0, 1, 2]]), coarse=np.tile(np.arange(8), 3))
EVERY = Triples(cells=CELLS, attributes=np.stack(CELLS.trios, axis=1), coarse=COARSE)
BUDGET = Budget(epsilon=1.0)


def reference(seed: int = 0) -> NDArray[np.int64]:
    """Any public whole numbers will do."""
    return np.random.default_rng(seed).integers(-3, 9, EVERY.n_cells)


def norms(exact: NDArray[np.int64], expected: NDArray[np.int64], triples: Triples = EVERY) -> NDArray[np.float64]:
    """Of the centered differences, one after the other, with projections as matrices."""
    found = []
    for table, shape in zip(np.split(exact - expected, triples.offsets[1:-1]), triples.shapes.tolist(), strict=True):
        one, two, three = (np.eye(size) - 1 / size for size in shape)
        found.append(np.linalg.norm(np.kron(np.kron(one, two), three) @ table))
    return np.array(found)


@pytest.mark.parametrize("seed", range(5))
def test_a_score_is_the_length_of_what_pairs_do_not_say(seed: int) -> None:
    exact, expected = count_triples_plainly(codes(4_000, seed), EVERY), reference(seed)
    assert score_plainly(exact, EVERY, expected).tolist() == np.floor(15 * norms(exact, expected) + 0.5).tolist()
    # Whatever one-way and two-way tables say is not part of it.
    shifted = expected.copy()
    shape = EVERY.shapes[0].tolist()
    own = shifted[: EVERY.offsets[1]].reshape(shape)
    own += np.arange(shape[0])[:, None, None] * np.arange(shape[2]) + 7 * np.arange(shape[1])[:, None]
    assert score_plainly(exact, EVERY, shifted).tolist() == score_plainly(exact, EVERY, expected).tolist()


def test_the_units_leave_room_for_rounding() -> None:
    """The numbers of the proof: one unit for the floor, and the slack that floating-point errors may take."""
    assert SCORE_UNITS * math.sqrt(2) + 1.3 <= SCORE_MOVES * math.sqrt(2)
    assert SCORE_UNITS + 1 <= SCORE_MOVES
    # `vault` draws noise of so many times a scale exactly because it is a power of two.
    assert SCORE_MOVES & (SCORE_MOVES - 1) == 0


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("rows", [1, 3])
def test_no_person_moves_a_score_by_more_than_is_paid_for(
    neighbors: Any, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the noise recorded instead of drawn: every score moves by less than the noise that is paid for allows."""
    drawn: list[tuple[float, int]] = []

    def draw(scales: NDArray[np.float64], sizes: NDArray[np.int64], **_threads: int) -> NDArray[np.int64]:
        drawn.extend(zip(scales.tolist(), sizes.tolist(), strict=True))
        return np.zeros(int(sizes.sum()), dtype=np.int64)

    monkeypatch.setitem(vars(door), "discrete_gaussian", draw)
    budget = replace(BUDGET, neighbors=neighbors, rows_per_person=None if rows == 1 else rows)
    # As many levels as there can be: fewer take more of a row's length out.
    generator = np.random.default_rng(3)
    start = generator.integers(-1, 8, (3, 12)).astype(np.int32)
    start[:, :rows] = 0

    def out(table: NDArray[np.int32], expected: NDArray[np.int64]) -> NDArray[np.int64]:
        held = Vault(budget)
        held.hold(count_plainly(table, LARGE.cells), LARGE.cells)
        return held.scores(count_triples_plainly(table, LARGE), LARGE, expected, 600.0).scores

    worst = 0.0
    # From an exact reference a row moves a score the most: from nothing to its whole length.
    for expected in (generator.integers(-3, 9, 512), count_triples_plainly(start, LARGE)):
        before = out(start, expected)
        for each in generator.integers(-1, 8, (100, 3)).astype(np.int32):
            changed = np.repeat(each[:, None], rows, axis=1)
            after = np.concatenate([changed, start[:, rows if neighbors == "replace-one" else 0 :]], axis=1)
            worst = max(worst, float(np.abs(out(after, expected) - before).max()))
    # At scale 600, a table is paid for as if it moved by sqrt(shifts) times the rows, a score by so many times that.
    paid = math.sqrt(budget.shifts) * budget.rows * drawn[0][0] / 600.0
    assert 0.7 * paid < worst <= paid
    assert set(drawn) == {(SCORE_MOVES * 600.0, 1)}


def test_very_many_rows_neither_raise_nor_move_a_score_too_far() -> None:
    """All cells of up to 2^31 rows, and more: the errors of floating-point sums stay within their bound."""
    triples = LARGE
    generator = np.random.default_rng(0)
    exact = generator.integers(0, 2**31, 512)
    expected = generator.integers(-(2**40), 2**40, 512)
    before = score_plainly(exact, triples, expected)[0]
    for cell in range(0, 512, 3):
        moved = exact.copy()
        moved[cell] += 1
        moved[511 - cell] -= 1
        assert abs(score_plainly(moved, triples, expected)[0] - before) <= 16 * math.sqrt(2)
    # Cells are cut at 2^31.
    assert (
        score_plainly(exact + 2**50, triples, expected) == score_plainly(np.full(512, 2**31), triples, expected)
    ).all()


def test_noise_has_its_scale_and_every_score_is_charged() -> None:
    paid: list[Spend] = []
    held = Vault(replace(BUDGET, epsilon=50.0), charge=paid.append)
    held.hold(vault(codes(9), BUDGET)._held, CELLS)
    exact, expected = count_triples_plainly(codes(9), EVERY), reference()
    held.reserve(Spend.of([40.0], [4 * 200]))
    bare = score_plainly(exact, EVERY, expected)
    noise = np.concatenate([held.scores(exact, EVERY, expected, 40.0).scores - bare for _ in range(200)])
    # The sd of 800 draws is known to 2.5%: 6 of them fail once in 10^8.
    assert np.std(noise) == pytest.approx(16 * 40.0, rel=0.15)
    assert held.spent.scales.tolist() == [40.0]
    assert held.spent.tables.tolist() == [800]
    with pytest.raises(BudgetError, match="costs more than the ledger was charged for"):
        held.scores(exact, EVERY, expected, 40.0)
    small = vault(codes(9), BUDGET)
    with pytest.raises(BudgetError, match="above the budget"):
        small.scores(exact, EVERY, expected, 2.0)
    assert small.spent.scales.size == 0


def test_a_score_costs_no_more_than_a_table() -> None:
    """The squares of the shift over the noise, in both currencies, against what `Spend` says."""
    scores = NoisyScores(scores=np.zeros(4, dtype=np.int64), scale=30.0)
    claimed = cost("gaussian", 2, scores.spend)
    shift, noise = SCORE_MOVES * math.sqrt(2), SCORE_MOVES * 30.0
    assert 4 * shift**2 / (2 * noise**2) <= claimed.rho * (1 + 1e-9)
    assert 4 * shift**2 / (noise**2 - 4) <= claimed.mu_squared * (1 + 1e-9)
    assert scores.sd == pytest.approx(32.0)
    assert not scores.scores.flags.writeable


def test_scores_of_another_layout_are_refused() -> None:
    exact, expected = np.zeros(EVERY.n_cells, dtype=np.int64), reference()
    some = Triples(cells=CELLS, attributes=EVERY.attributes[1:].copy(), coarse=COARSE)
    with pytest.raises(BudgetError, match=r"^scores must be those of all triples of attributes that the vault holds\."):
        vault(codes(5), BUDGET).scores(exact[some.n_cells :], some, expected[some.n_cells :], 100.0)
    for counts, own in ((exact[1:], expected), (exact, expected[1:])):
        with pytest.raises(BudgetError, match=r"^scores need a count and a reference for every cell\. Count again\.$"):
            vault(codes(5), BUDGET).scores(counts, EVERY, own, 100.0)
    laplace = Budget(epsilon=1.0, mechanism="laplace")
    with pytest.raises(BudgetError, match=r"^scores of three-way tables take gaussian noise\. Make a new plan\.$"):
        vault(codes(5), laplace).scores(exact, EVERY, expected, 100.0)
