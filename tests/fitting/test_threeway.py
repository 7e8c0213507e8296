"""Three-way tables and parities of triples in a fit: predictions, loss, gradient, thinning, and what only they show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import sklar
from sklar.fitting import descent
from sklar.fitting.choose import thin
from sklar.fitting.denoise import denoise_margins, denoise_tables
from sklar.fitting.descent import PARTS, REST, WEIGHT, CellWeights, Fit, Loss, Start
from sklar.fitting.margins import Estimates, crossed_tables, pool
from sklar.fitting.steps import contrasts
from sklar.kernel.cells import Cells
from sklar.kernel.queries import Parities, Tables
from sklar.kernel.theorems import Budget
from sklar.machine.threads import undivided
from sklar.public.schema import Attribute, Schema
from sklar.release import measure
from tests.fitting.test_denoise import estimates

CELLS = Cells([3, 12, 2, 1, 9])
GENERATOR = np.random.default_rng(5)
COARSE = np.concatenate([[0, 1, 1], np.arange(12) * 8 // 12, [0, 1], [0], np.arange(9) % 5])
TRIPLES = Tables(cells=CELLS, order=3, sets=np.array([[0, 1, 2], [0, 1, 4], [0, 3, 4], [1, 2, 4]]), coarse=COARSE)


def components(cells: Cells = CELLS, number: int = 7, seed: int = 0) -> NDArray[np.float32]:
    """Probabilities of levels in components, shape (d, D)."""
    drawn = np.random.default_rng(seed).gamma(0.7, size=(cells.n_levels, number))
    return (drawn / np.add.reduceat(drawn, cells.offsets[:-1])[cells.attribute_of_level]).astype(np.float32)


def predicted(probabilities: NDArray[np.float32], triples: Tables) -> NDArray[np.float64]:
    """The flat tables that components predict, cell by cell."""
    tables, cells = [], triples.cells
    for chosen, shape in zip(triples.members.tolist(), triples.shapes.tolist(), strict=True):
        parts = []
        for each, levels in zip(chosen, shape, strict=True):
            own, coarse = probabilities[cells.levels(each)], np.asarray(triples.coarse)[cells.levels(each)]
            parts.append(np.stack([own[coarse == k].sum(axis=0, dtype=np.float64) for k in range(levels)]))
        tables.append((np.einsum("ic,jc,kc->ijk", *parts) / probabilities.shape[1]).ravel())
    return np.concatenate(tables)


WEIGHTS = np.array([0.5, 2.0, 1.0, 3.0])
NONE = np.zeros(CELLS.n_levels - CELLS.n_attributes, dtype=np.float32)


def test_the_loss_is_the_weighted_squared_distance() -> None:
    targets, own, other = GENERATOR.random(TRIPLES.n_cells), components(), components(number=1, seed=1)
    per_cell = np.repeat(WEIGHTS, TRIPLES.sizes)
    loss = descent.TableLoss([TRIPLES], targets, WEIGHTS, 3.0)
    error, distance = loss.score(contrasts(own, CELLS), contrasts(other, CELLS)[:, 0])
    assert error == pytest.approx(float(per_cell @ (predicted(own, TRIPLES) - targets) ** 2) - 3.0, rel=1e-4)
    apart = per_cell @ (predicted(own, TRIPLES) - predicted(other, TRIPLES)) ** 2
    assert distance == pytest.approx(WEIGHT * float(apart), rel=1e-3)


def test_every_part_is_renewed_in_turn() -> None:
    three = descent.TableLoss([TRIPLES], GENERATOR.random(TRIPLES.n_cells), np.ones(4))
    start, moved = (contrasts(components(seed=seed), CELLS) for seed in (0, 3))
    add, turn = three.pull(), np.zeros_like(start)
    add(start, turn)
    for _ in range(REST * PARTS):
        turn = np.zeros_like(start)
        add(moved, turn)
    whole = np.zeros_like(start)
    three.pull()(moved, whole)
    assert turn == pytest.approx(whole, abs=1e-5)


def estimates_of(cells: Cells, triples: Tables, codes: NDArray[np.int64], sd: float) -> Estimates:
    """Exact counts that claim noise of this sd."""
    queries = (Tables(cells=cells, order=1), Tables(cells=cells, order=2), triples)
    one_way, pairs, three = (query.count(codes).astype(np.float64) for query in queries)
    third_sd = np.full(len(triples.members), sd)
    return estimates(cells, codes.shape[1], one_way, pairs, sd, wider=(triples,), third=three, third_sd=third_sd)


def test_a_fit_begins_near_the_cells_of_a_table_of_four() -> None:
    """The parity of three bits and the fourth: no table of three depends, and fits from independence stay there."""
    cells, generator = Cells([2, 2, 2, 2, 3]), np.random.default_rng(1)
    codes = np.stack([generator.integers(0, size, 20_000) for size in cells.sizes])
    codes[3] = codes[:3].sum(axis=0) % 2
    four = Tables(cells=cells, order=4, sets=np.array([[0, 1, 2, 3]]), coarse=np.append(np.tile([0, 1], 4), [0, 0, 0]))
    exact = estimates_of(cells, four, codes, 100.0)
    begun = descent.three_way_loss(exact)
    assert isinstance(begun, descent.TableLoss)
    first = begun.lean(160, generator)
    # As many components near every cell as its share of rows: eight of sixteen cells, each to 20 of 160.
    near = [tuple((first[:8, at].reshape(4, 2)[:, 1] > 0).astype(int).tolist()) for at in range(160)]
    assert all(abs(near.count((a, b, c, a ^ b ^ c)) - 20) <= 1 for a, b, c in np.ndindex(2, 2, 2))
    assert not first[8:].any()
    # Noise alone begins nowhere, nor do tables of three.
    even = replace(exact, third=np.full(16, 1_250.0))
    assert not descent.three_way_loss(even).lean(160, generator).any()  # type: ignore[union-attr]
    targets = denoise_tables(exact, denoise_margins(exact).levels)
    weights, shares = CellWeights(cells, targets.precision), four.count(codes) / 20_000
    errors = []
    for three in (begun, descent.TableLoss([four], shares, np.ones(1))):
        fit = Fit(Loss(targets, 0.4, weights, three=three), Start(components=40))
        fit.advance(20)
        found = np.einsum("ic,jc,kc,lc->ijkl", *fit.probabilities[:8].reshape(4, 2, 40)).ravel() / 40
        errors.append(float(np.abs(found - shares).sum()) / 2)
    assert errors[0] < 0.1 < 0.3 < errors[1]


@pytest.mark.parametrize("wide", [False, True])
def test_a_fit_finds_what_pairs_cannot_see(wide: bool) -> None:
    """The third of three attributes is the sum of two others modulo 3: no pair of them depends."""
    cells = Cells([3, 3, 3, descent.SMALL + 10 if wide else 4])
    generator = np.random.default_rng(1)
    codes = np.stack([generator.integers(0, size, 20_000) for size in cells.sizes])
    codes[2] = (codes[0] + codes[1]) % 3
    coarse = np.concatenate([np.tile(np.arange(3), 3), np.arange(cells.sizes[3]) % 4])
    triples = Tables(cells=cells, order=3, sets=np.array([[0, 1, 2]]), coarse=coarse)
    exact = estimates_of(cells, triples, codes, 20.0)
    targets = denoise_tables(exact, denoise_margins(exact).levels)
    weights = CellWeights(cells, targets.precision)
    errors = []
    for three in (None, descent.three_way_loss(exact)):
        fit = Fit(Loss(targets, 0.4, weights, three=three), Start(components=40))
        with undivided():
            fit.advance(250)
        found = predicted(fit.probabilities, triples)
        errors.append(float(np.abs(found - triples.count(codes) / 20_000).sum()) / 2)
    assert errors[0] > 0.5
    assert errors[1] < 0.2


def test_cells_that_nobody_has_are_shrunk_to_nothing() -> None:
    """Of 36 cells 12 have rows: shrinkage takes away most of the noise in the others, and keeps the total."""
    cells, generator = Cells([4, 3, 3]), np.random.default_rng(4)
    codes = np.stack([generator.integers(0, size, 20_000) for size in cells.sizes])
    codes[2] = (codes[0] + codes[1]) % 3
    triples = Tables(cells=cells, order=3, coarse=np.concatenate([np.arange(size) for size in cells.sizes]))
    exact, truth = estimates_of(cells, triples, codes, 200.0), triples.count(codes) / 20_000
    noisy = replace(exact, third=exact.third + 200 * generator.standard_normal(36))
    found = []
    for shrunk in (False, True):
        loss = descent.three_way_loss(noisy, shrunk=shrunk)
        assert isinstance(loss, descent.TableLoss)
        found.append(np.concatenate([group.targets.ravel() for group in loss._groups]))
    assert [own.sum() for own in found] == pytest.approx([1.0, 1.0], rel=1e-5)
    errors = [np.abs(np.sort(own) - np.sort(truth)).sum() for own in found]
    assert errors[1] < 0.4 * errors[0]


def test_tables_short_of_rows_are_centered_and_weighed_by_their_noise() -> None:
    nobody = estimates_of(CELLS, TRIPLES, np.empty((5, 0), dtype=np.int64), 20.0)
    loss = descent.three_way_loss(replace(nobody, n_rows=100, third_sd=np.array([10.0, 20.0, 20.0, 20.0])))
    assert loss is not None
    even = (1 / CELLS.sizes[CELLS.attribute_of_level]).astype(np.float32)[:, None]
    weights = WEIGHT * np.repeat([4.0, 1.0, 1.0, 1.0], TRIPLES.sizes)
    flat = np.repeat(1 / TRIPLES.sizes, TRIPLES.sizes)
    # Noise alone adds as much to every table: its cells times the weight of a pair's noise.
    expected = float(weights @ (predicted(even, TRIPLES) - flat) ** 2) - WEIGHT * (20 / 100) ** 2 * TRIPLES.n_cells
    assert loss.score(contrasts(even, CELLS), NONE)[0] == pytest.approx(expected, rel=1e-3, abs=1e-7)


BITS = Schema(name="t", attributes=tuple(Attribute(name=f"b{i}", kind="integer", edges=(0, 1, 2)) for i in range(4)))


def frame(codes: NDArray[np.int64]) -> pl.DataFrame:
    return pl.DataFrame({f"b{i}": column for i, column in enumerate(codes)})


def with_xor(rows: int) -> NDArray[np.int64]:
    """Independent bits, the last of which is the first two's exclusive or."""
    codes = (np.random.default_rng(1).random((4, rows)) < 0.4).astype(np.int64)
    codes[-1] = codes[0] ^ codes[1]
    return codes


def test_tables_follow_from_parities_without_noise() -> None:
    codes = with_xor(500)
    pooled, cells = pool(measure(frame(codes), BITS, Budget(epsilon=1e9))), BITS.cells
    assert np.array_equal(pooled.one_way, Tables(cells=cells, order=1).count(codes))
    assert np.array_equal(pooled.pairs, Tables(cells=cells, order=2).count(codes))
    assert np.array_equal(pooled.third, Parities(cells=cells, orders=3).count(codes)[-4:])
    assert pooled.crossed


def parities(m: int = 5, n: int = 10_000) -> Estimates:
    generator, cells = np.random.default_rng(0), Cells([2] * m)
    ones, odd = generator.uniform(2_000, 8_000, m), generator.uniform(2_000, 6_000, cells.n_pairs)
    sds = {"one_way_sd": np.full(m, 30.0), "third_sd": np.full(cells.n_triples, 100.0)}
    pairs, third = crossed_tables(cells, ones, odd, n), generator.uniform(3_000, 6_000, cells.n_triples)
    return estimates(cells, n, np.column_stack([n - ones, ones]).ravel(), pairs, 40.0, crossed=True, third=third, **sds)


def test_halves_keep_their_margins_and_the_noise_that_they_state() -> None:
    codes = np.stack([np.random.default_rng(2).integers(0, size, 500) for size in CELLS.sizes])
    whole = parities()
    for each in (estimates_of(CELLS, TRIPLES, codes, 30.0), whole):
        train, held = thin(each, np.random.default_rng(5))
        assert train.third_sd == pytest.approx(each.third_sd * np.sqrt(1.25))
        assert held.pair_sd == pytest.approx(each.pair_sd * np.sqrt(5))
        # The weights of the two halves that undo the thinning give the whole back: no noise is in both alike.
        for name in ("one_way", "pairs", "third"):
            assert np.allclose((getattr(train, name) * 4 + getattr(held, name)) / 5, getattr(each, name))
    for half in thin(whole, np.random.default_rng(5)):
        ones = half.one_way[1::2]
        for i, j in zip(*whole.cells.pairs, strict=True):
            table = whole.cells.table(half.pairs, i, j)
            assert table.sum() == pytest.approx(whole.n_rows)
            assert table[1].sum() == pytest.approx(ones[i])
            assert table[:, 1].sum() == pytest.approx(ones[j])


def test_the_loss_of_parities_is_that_of_their_squared_errors() -> None:
    whole = parities()
    three, found = descent.ParityLoss(whole), GENERATOR.uniform(-0.7, 0.7, (5, 7)).astype(np.float32)
    i, j, k = whole.cells.triples
    missed = (found[i] * found[j] * found[k]).mean(axis=1) - (1 - 2 * whole.third / whole.n_rows) / np.sqrt(8)
    assert three.weight == pytest.approx(2 * 40**2 / 100**2)
    error = three.score(found, np.zeros(5, dtype=np.float32))[0]
    assert error == pytest.approx(three.weight * float(missed @ missed), rel=1e-5)


@pytest.mark.parametrize("what", ["three", "three and four", "parities"])
def test_the_gradient_is_that_of_the_loss(what: str) -> None:
    four = Tables(cells=CELLS, order=4, sets=np.array([[0, 1, 2, 4], [0, 2, 3, 4]]), coarse=np.minimum(COARSE, 2))
    wider = [TRIPLES, four] if "four" in what else [TRIPLES]
    targets, weights = GENERATOR.random(sum(each.n_cells for each in wider)), np.append(WEIGHTS, [3.0, 1.5])
    three: descent.ThreeWayLoss = descent.TableLoss(wider, targets, weights[: 2 + 2 * len(wider)])
    found = contrasts(components(), CELLS)
    if what == "parities":
        three, found = descent.ParityLoss(parities()), GENERATOR.uniform(-0.7, 0.7, (5, 7)).astype(np.float32)
    pull = np.zeros_like(found)
    three.pull()(found, pull)
    for _ in range(12):
        at = tuple(int(GENERATOR.integers(size)) for size in found.shape)
        errors = []
        for step in (0.02, -0.02):
            moved = found.copy()
            moved[at] += np.float32(step)
            errors.append(three.score(moved, NONE[: len(found)])[0])
        # Times D / 2, as all gradients of a fit are.
        assert pull[at] == pytest.approx((errors[0] - errors[1]) / 0.04 * found.shape[1] / 2, rel=0.02, abs=2e-3)


def test_an_exclusive_or_is_seen() -> None:
    """Its pairs are independent: without triples the joint distribution is off by 0.24 and more.

    The noise of the parity of the three is 0.2% of the rows: 0.05 would be 25 standard deviations.
    """
    codes = with_xor(40_000)
    model = sklar.fit(frame(codes), BITS, epsilon=1.0)
    drawn = model.sample(40_000, seed=3).to_numpy().T.astype(np.int64)

    def joint(rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(np.bincount(rows[0] * 4 + rows[1] * 2 + rows[3], minlength=8) / rows.shape[1])

    assert np.abs(joint(codes) - joint(drawn)).sum() / 2 < 0.05


def test_a_stream_and_a_person_have_no_second_pass() -> None:
    table = frame(with_xor(5_000)).to_arrow()
    assert measure(table, BITS, Budget(epsilon=1.0)).blocks[0].query.n_cells == 4 + 6 + 4
    assert measure(table.to_reader(), BITS, Budget(epsilon=1.0)).blocks[0].query.n_cells == 4 + 6
