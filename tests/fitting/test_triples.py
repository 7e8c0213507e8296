"""Coarse three-way tables in a fit: predictions, loss, gradient, thinning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.fitting.choose import Split, loss_of_triples, thin
from sklar.fitting.contrasts import contrasts
from sklar.fitting.denoise import denoise_margins, denoise_tables, relative_precision
from sklar.fitting.descent import SMALL, CellWeights, Fit, Loss, Room, Start, step_operations
from sklar.fitting.margins import Estimates
from sklar.fitting.triples import PARTS, REST, WEIGHT, Pull, ThreeWay, TripleEstimates, coarse_components, three_way
from sklar.kernel.cells import Cells
from sklar.kernel.count import count_plainly, count_triples_plainly
from sklar.kernel.triples import Triples
from sklar.machine.threads import undivided

CELLS = Cells([3, 12, 2, 1, 9])
GENERATOR = np.random.default_rng(5)
COARSE = np.concatenate([[0, 1, 1], np.arange(12) * 8 // 12, [0, 1], [0], np.arange(9) % 5])
TRIPLES = Triples(cells=CELLS, attributes=np.array([[0, 1, 2], [0, 1, 4], [0, 3, 4], [1, 2, 4]]), coarse=COARSE)


def components(cells: Cells = CELLS, number: int = 7, seed: int = 0) -> NDArray[np.float32]:
    """Probabilities of levels in components, shape (d, D)."""
    drawn = np.random.default_rng(seed).gamma(0.7, size=(cells.n_levels, number))
    return (drawn / np.add.reduceat(drawn, cells.offsets[:-1])[cells.attribute_of_level]).astype(np.float32)


def predicted(probabilities: NDArray[np.float32], triples: Triples) -> NDArray[np.float64]:
    """The flat tables that components predict, cell by cell."""
    tables, cells = [], triples.cells
    for chosen, shape in zip(triples.attributes.tolist(), triples.shapes.tolist(), strict=True):
        parts = []
        for each, levels in zip(chosen, shape, strict=True):
            own, coarse = probabilities[cells.levels(each)], triples.coarse[cells.levels(each)]
            parts.append(np.stack([own[coarse == k].sum(axis=0, dtype=np.float64) for k in range(levels)]))
        tables.append((np.einsum("ic,jc,kc->ijk", *parts) / probabilities.shape[1]).ravel())
    return np.concatenate(tables)


def test_the_loss_is_the_weighted_squared_distance() -> None:
    targets, weights = GENERATOR.random(TRIPLES.n_cells), np.array([0.5, 2.0, 1.0, 3.0])
    three, own, other = ThreeWay(TRIPLES, targets, weights), components(), components(seed=1)
    per_cell = np.repeat(weights, TRIPLES.sizes)
    found = [contrasts(each, CELLS) for each in (own, other)]
    assert three.error(found[0]) == pytest.approx(float(per_cell @ (predicted(own, TRIPLES) - targets) ** 2), rel=1e-4)
    apart = per_cell @ (predicted(own, TRIPLES) - predicted(other, TRIPLES)) ** 2
    assert three.apart(*found) == pytest.approx(float(apart), rel=1e-3)


def test_the_gradient_is_that_of_the_loss() -> None:
    three = ThreeWay(TRIPLES, GENERATOR.random(TRIPLES.n_cells), np.array([0.5, 2.0, 1.0, 3.0]))
    found = contrasts(components(), CELLS)
    pull = np.zeros_like(found)
    Pull(three, found.shape[1]).add(found, pull)
    for _ in range(12):
        at = tuple(int(GENERATOR.integers(size)) for size in found.shape)
        steps = []
        for step in (0.02, -0.02):
            moved = found.copy()
            moved[at] += np.float32(step)
            steps.append(three.error(moved))
        # Times D / 2, as all gradients of a fit are.
        assert pull[at] == pytest.approx((steps[0] - steps[1]) / 0.04 * found.shape[1] / 2, rel=0.02, abs=2e-3)


def test_every_part_is_renewed_in_turn() -> None:
    three = ThreeWay(TRIPLES, GENERATOR.random(TRIPLES.n_cells), np.ones(4))
    start, moved = (contrasts(components(seed=seed), CELLS) for seed in (0, 3))
    pull, turn = Pull(three, 7), np.zeros_like(start)
    pull.add(start, turn)
    for _ in range(REST * PARTS):
        turn = np.zeros_like(start)
        pull.add(moved, turn)
    whole = np.zeros_like(start)
    Pull(three, 7).add(moved, whole)
    assert turn == pytest.approx(whole, abs=1e-5)


def estimates_of(cells: Cells, triples: Triples, codes: NDArray[np.int64], sd: float) -> Estimates:
    """Exact counts that claim noise of this sd."""
    counts = count_plainly(codes, cells)
    three = count_triples_plainly(codes, triples).astype(np.float64)
    return Estimates(
        cells=cells,
        n_rows=codes.shape[1],
        one_way=counts.one_way.astype(np.float64),
        one_way_sd=np.full(cells.n_attributes, sd),
        pairs=counts.pairs.astype(np.float64),
        pair_sd=np.full(cells.n_pairs, sd),
        triples=TripleEstimates(triples=triples, counts=three, sd=np.full(len(triples.attributes), sd)),
    )


@pytest.mark.parametrize("wide", [False, True])
def test_a_fit_finds_what_pairs_cannot_see(wide: bool) -> None:
    """The third of three attributes is the sum of two others modulo 3: no pair of them depends."""
    cells = Cells([3, 3, 3, SMALL + 10 if wide else 4])
    generator = np.random.default_rng(1)
    codes = np.stack([generator.integers(0, size, 20_000) for size in cells.sizes])
    codes[2] = (codes[0] + codes[1]) % 3
    coarse = np.concatenate([np.tile(np.arange(3), 3), np.arange(cells.sizes[3]) % 4])
    triples = Triples(cells=cells, attributes=np.array([[0, 1, 2]]), coarse=coarse)
    estimates = estimates_of(cells, triples, codes, 20.0)
    targets = denoise_tables(estimates, denoise_margins(estimates).levels)
    weights = CellWeights(cells, targets.precision)
    errors = []
    for three in (None, loss_of_triples(estimates)):
        fit = Fit(Loss(targets, 0.4, weights, three=three), Start(components=40))
        with undivided():
            fit.advance(250)
        found = predicted(fit.probabilities, triples)
        errors.append(float(np.abs(found - count_triples_plainly(codes, triples) / 20_000).sum()) / 2)
    assert errors[0] > 0.5
    assert errors[1] < 0.2


def test_thinned_triples_are_independent_and_no_other_noise_changes() -> None:
    codes = np.stack([np.random.default_rng(2).integers(0, size, 500) for size in CELLS.sizes])
    with_triples = estimates_of(CELLS, TRIPLES, codes, 30.0)
    assert with_triples.triples is not None
    halves = [thin(with_triples, np.random.default_rng(7)) for _ in range(2)]
    without = thin(replace(with_triples, triples=None), np.random.default_rng(7))
    assert (without[0].pairs == halves[0][0].pairs).all()
    assert without[0].triples is None
    parts = [half.triples for half in halves[0]]
    assert parts[0] is not None
    assert parts[1] is not None
    # h + g s z and h - s z / g: their sum over the weights g and 1/g gives h back.
    assert 2 * parts[0].counts + 0.5 * parts[1].counts == pytest.approx(2.5 * with_triples.triples.counts)
    assert parts[0].sd == pytest.approx(30.0 * np.sqrt(1.25))
    assert parts[1].sd == pytest.approx(30.0 * np.sqrt(5))


def test_held_out_error_counts_triples_without_their_noise() -> None:
    """Beside the truth, the excess of three-way tables over their noise is about nothing."""
    codes = np.stack([np.random.default_rng(3).integers(0, size, 4_000) for size in CELLS.sizes])
    estimates = estimates_of(CELLS, TRIPLES, codes, 40.0)
    weights = CellWeights(CELLS, relative_precision(CELLS, estimates.pair_sd))
    found = contrasts(np.repeat(estimates.one_way / 4_000, 1)[:, None].astype(np.float32), CELLS)
    errors = []
    for given in (estimates, replace(estimates, triples=None)):
        split = Split(given, np.random.default_rng(11), weights)
        errors.append(split.score(found, Room(CELLS, 1)))
    # Attributes are independent: both are all but the error of independence.
    assert errors[0][0] == pytest.approx(1.0, abs=0.05)
    assert errors[1][0] == pytest.approx(1.0, abs=0.05)


def test_tables_short_of_rows_are_centered_and_weighed_by_their_noise() -> None:
    three = TripleEstimates(triples=TRIPLES, counts=np.zeros(TRIPLES.n_cells), sd=np.array([10.0, 20.0, 20.0, 20.0]))
    loss = three_way(three, 100, np.full(CELLS.n_pairs, 20.0))
    even = contrasts((1 / CELLS.sizes[CELLS.attribute_of_level]).astype(np.float32)[:, None], CELLS)
    spread = predicted((1 / CELLS.sizes[CELLS.attribute_of_level]).astype(np.float32)[:, None], TRIPLES)
    weights = WEIGHT * np.repeat([4.0, 1.0, 1.0, 1.0], TRIPLES.sizes)
    flat = np.repeat(1 / TRIPLES.sizes, TRIPLES.sizes)
    assert loss.error(even) == pytest.approx(float(weights @ (spread - flat) ** 2), rel=1e-3, abs=1e-7)


def test_coarse_components_add_levels_up() -> None:
    own = components()
    summed = coarse_components(np.ascontiguousarray(own.T), CELLS, COARSE)
    assert summed.shape == (int(TRIPLES.levels.sum()), 7)
    assert summed[1] == pytest.approx(own[1] + own[2])


def test_a_step_with_triples_costs_what_they_take() -> None:
    plain = step_operations(CELLS, Start(components=10))
    assert step_operations(CELLS, Start(components=10), TRIPLES) == plain + 10 * 6 / (PARTS * REST) * TRIPLES.n_cells
