from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from sklar.fitting import descent
from sklar.fitting.choose import fit_steps
from sklar.fitting.denoise import Targets, denoise_tables
from sklar.fitting.descent import CellWeights, Fit, Loss, Room, Start
from sklar.fitting.latent import LatentModel
from sklar.fitting.steps import CompiledLogits, Logits, attribute_of_contrast, contrast_tables, contrasts
from sklar.kernel.cells import Cells
from sklar.public.schema import Schema
from tests.fitting.test_denoise import mixture_joint, noisy_estimates, schema_of


def softmaxed(logits: np.ndarray, schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and their contrasts."""
    made = CompiledLogits(schema.cells, logits, damping=0.0)
    return made.probabilities, made.contrasts


def loss_of(targets: Targets, shrinkage: float) -> Loss:
    return Loss(targets, shrinkage, CellWeights(targets.cells, targets.precision))


def plain_loss(targets: Targets, shrinkage: float, probabilities: np.ndarray) -> float:
    """The definition, cell by cell, for probabilities of shape (d, D)."""
    exact, cells = probabilities.astype(np.float64), targets.cells
    error = cells.flat(exact @ exact.T / exact.shape[1]) - targets.mixed(shrinkage)
    margin = exact.mean(axis=1) - targets.levels
    weighted = np.repeat(targets.precision[cells.pairs], cells.pair_sizes) * error**2
    return float(weighted.sum()) + descent.MARGIN_WEIGHT * float(margin @ margin)


def uneven_targets(schema: Schema, low: float, high: float) -> Targets:
    """Targets of tables whose noise differs."""
    joint = mixture_joint(schema, 3, 0)
    sd = np.random.default_rng(2).uniform(low, high, schema.cells.n_pairs)
    noisy = replace(noisy_estimates(schema, joint, 1_000, 20.0), pair_sd=sd)
    return denoise_tables(noisy, np.diag(joint).copy())


def exact_targets(schema: Schema, joint: np.ndarray) -> Targets:
    return denoise_tables(noisy_estimates(schema, joint, 1_000_000, 1e-6), np.diag(joint).copy())


def test_softmax_is_numpys_to_single_precision() -> None:
    schema = schema_of(3, 1, 40, 2)
    logits = 12 * np.random.default_rng(0).standard_normal((46, 37)).astype(np.float32)
    logits[4:10, :5] = -1e4
    probabilities, found = softmaxed(logits, schema)
    for first, last in pairwise(schema.offsets):
        exact = np.exp(logits[first:last].astype(np.float64) - logits[first:last].max(axis=0))
        exact /= exact.sum(axis=0)
        assert np.allclose(probabilities[first:last], exact, rtol=2e-5, atol=1e-35)
    assert np.allclose(found, contrasts(probabilities, schema.cells), atol=1e-6)


@pytest.mark.parametrize("sizes", [(3, 1, 40, 2), (2,) * 120, (1, 1)])
def test_numpy_and_compiled_code_take_the_same_step(sizes: tuple[int, ...]) -> None:
    cells, rng = Cells(sizes), np.random.default_rng(0)
    logits = 3 * rng.standard_normal((cells.n_levels, 7)).astype(np.float32) + 100
    pull = rng.standard_normal((cells.n_levels - cells.n_attributes, 7)).astype(np.float32)
    taken = []
    for kind in (CompiledLogits, Logits):
        made = kind(cells, logits, damping=0.03)
        before = made.probabilities, made.contrasts.copy(), made.back(pull, pull[:, :1]), made.in_order(made.gradient)
        for _ in range(3):
            made.move(pull, pull[:, :1])
        taken.append((*before, made.probabilities, made.contrasts))
    for fast, plain in zip(*taken, strict=True):
        assert np.allclose(fast, plain, rtol=2e-5, atol=4e-6)


@pytest.mark.parametrize("block", [3, 4, 1024])
@pytest.mark.parametrize("shrinkage", [0.0, 0.4])
def test_gradient_is_that_of_the_plain_loss(shrinkage: float, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descent, "_BLOCK", block)
    schema = schema_of(2, 3, 1, 4, 2)
    targets = uneven_targets(schema, 40, 120)
    logits = np.random.default_rng(1).standard_normal((12, 3)).astype(np.float32)
    made, loss = CompiledLogits(schema.cells, logits, damping=0.0), loss_of(targets, shrinkage)
    found, pull = made.contrasts, np.empty_like(made.contrasts)
    # The mean over all blocks: each is drawn as often as every other.
    parts = []
    for number in range(-(-len(found) // block)):
        loss.gradient(found, pull, Room(schema.cells, 3), number)
        parts.append(pull.copy())
    pull = np.mean(parts, axis=0)
    constant = loss.margin_weights * (found.mean(axis=1) - loss.margins)
    made.back(pull, constant[:, None])
    for at in np.ndindex(logits.shape):
        step = np.zeros_like(logits)
        step[at] = 0.03
        up, down = (plain_loss(targets, shrinkage, softmaxed(logits + s * step, schema)[0]) for s in (1, -1))
        # `gradient` is D / 2 times the derivative.
        assert np.isclose(made.gradient[at], (up - down) / 0.06 * 3 / 2, atol=2e-4, rtol=2e-2)


def test_blocks_of_a_wide_table_lead_where_the_whole_residual_does(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of(*[3] * 12)
    targets = exact_targets(schema, mixture_joint(schema, 3, 2))
    losses = []
    for small in (256, 1):
        monkeypatch.setattr(descent, "SMALL", small)
        monkeypatch.setattr(descent, "_BLOCK", 6)
        fit = Fit(loss_of(targets, 0.0), Start(components=40))
        before = plain_loss(targets, 0.0, fit.probabilities)
        fit.advance(300)
        losses.append(plain_loss(targets, 0.0, fit.probabilities) / before)
    assert max(losses) < 0.02


def test_a_fit_whose_end_is_known_comes_to_rest() -> None:
    schema = schema_of(3, 4, 2)
    loss = loss_of(exact_targets(schema, mixture_joint(schema, 3, 2)), 0.0)
    resting, open_ended = Fit(loss, Start(components=20), until=100), Fit(loss, Start(components=20))
    for fit in (resting, open_ended):
        fit.advance(89)
    assert np.array_equal(resting.probabilities, open_ended.probabilities)
    moved = []
    for fit in (resting, open_ended):
        fit.advance(10)
        before = fit.probabilities.copy()
        fit.advance(1)
        moved.append(float(np.abs(fit.probabilities - before).max()))
    assert 0 < moved[0] < 0.3 * moved[1]


def test_small_tables_are_fitted_side_by_side_and_others_one_by_one() -> None:
    start = Start(components=150)
    # Short steps by one thread, others by all.
    assert descent.fits_together(Cells([3, 4, 2, 5]), start, 16) == (15, 1)
    assert descent.fits_together(Cells([3, 4, 2, 5]), start, 2) == (2, 1)
    assert descent.fits_together(Cells([3, 4, 2, 5]), replace(start, components=3_000), 16) == (1, None)
    assert descent.fits_together(Cells([2] * 300), replace(start, components=10), 16) == (1, None)


def test_weights_are_the_same_when_their_rows_are_made_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = Cells([3, 1, 4, 2])
    precision = cells.symmetric(np.arange(1.0, cells.n_pairs + 1))
    whole = CellWeights(cells, precision).rows(0, 6)
    assert whole.tolist() == whole.T.tolist()
    assert whole[0].tolist() == [0, 0, 2, 2, 2, 3]
    monkeypatch.setattr(descent, "_HELD", 0)
    made = CellWeights(cells, precision)
    assert np.array_equal(np.concatenate([made.rows(0, 4), made.rows(4, 9)]), whole)


def random_model(schema: Schema, components: int, seed: int = 0) -> LatentModel:
    logits = 2 * np.random.default_rng(seed).standard_normal((components, schema.n_levels), dtype=np.float32)
    return LatentModel(schema=schema, probabilities=softmaxed(logits.T, schema)[0].T)


def test_predicted_pairs_equal_enumeration() -> None:
    schema = schema_of(2, 3, 2)
    model, joint = random_model(schema, 4), np.zeros((7, 7))
    for component, *codes in product(model.probabilities.astype(np.float64), *(range(size) for size in schema.sizes)):
        at = schema.offsets[:-1] + np.array(codes)
        joint[np.ix_(at, at)] += (1 - np.eye(3)) * component[at].prod() / 4
    assert np.allclose(model.predict_pairs(), joint, atol=1e-6)


def test_fit_recovers_the_tables_of_a_known_mixture() -> None:
    schema = schema_of(3, 4, 2, 5)
    joint = mixture_joint(schema, 3, 2)
    cells, levels = schema.cells, np.diag(joint)
    estimates = noisy_estimates(schema, joint, 1_000_000, 1e-6)
    model = fit_steps(estimates, schema, levels, Start(components=60), steps=500, fits=2)
    total_variation = np.abs(cells.flat(model.predict_pairs() - joint)).sum() / 2 / cells.n_pairs
    assert np.abs(cells.flat(np.outer(levels, levels) - joint)).sum() / 2 / cells.n_pairs > 0.1
    assert total_variation < 0.01
    assert np.abs(model.margins() - levels).max() < 0.01


def test_union_holds_every_fit() -> None:
    schema = schema_of(2, 2)
    joint = mixture_joint(schema, 2, 0)
    estimates, levels = noisy_estimates(schema, joint, 1_000_000, 1e-6), np.diag(joint)
    model = fit_steps(estimates, schema, levels, Start(components=10), steps=5, fits=3)
    assert model.n_components == 30
    alone = fit_steps(estimates, schema, levels, Start(components=10, seed=2), steps=5, fits=1)
    # Sums within a product may take another order.
    assert np.allclose(model.probabilities[20:], alone.probabilities, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_contrasts_are_orthonormal_and_blind_to_constants(size: int) -> None:
    q = contrasts(np.eye(size, dtype=np.float32), Cells([size]))
    assert q.shape == (size - 1, size)
    assert np.allclose(q @ q.T, np.eye(size - 1), atol=1e-6)
    assert np.allclose(q @ np.ones(size), 0.0, atol=1e-6)


def test_contrasts_of_a_table_are_those_of_its_rows_and_then_of_its_columns() -> None:
    cells = Cells([2, 4, 1, 3])
    square = np.random.default_rng(0).standard_normal((10, 10)).astype(np.float32)
    wanted = contrasts(contrasts(cells.square(cells.flat(square)), cells).T, cells).T
    assert np.allclose(np.triu(contrast_tables(cells.flat(square), cells)), wanted, atol=1e-6)


def test_squared_distances_of_tables_are_the_sum_of_three() -> None:
    cells = Cells([2, 3, 1, 5])
    first, second = (mixture_joint(schema_of(2, 3, 1, 5), 3, seed) for seed in (0, 1))
    apart = first - second
    moved = contrast_tables(cells.flat(apart.astype(np.float32)), cells)
    margins = contrasts(np.diag(apart).astype(np.float32)[:, None], cells)[:, 0]
    own = [attribute_of_contrast(cells) == k for k in range(4)]
    for i, j in combinations(range(4), 2):
        table, squares = moved[np.ix_(own[i], own[j])], [(margins[each] ** 2).sum() for each in (own[i], own[j])]
        assert not moved[np.ix_(own[i], own[i])].any()
        assert np.array_equal(table, moved[np.ix_(own[j], own[i])].T)
        parts = (table**2).sum() + squares[0] / cells.sizes[j] + squares[1] / cells.sizes[i]
        assert np.isclose(parts, (apart[cells.levels(i), cells.levels(j)] ** 2).sum(), rtol=1e-4, atol=1e-9)


def test_a_fit_repeats_itself_to_the_last_bit() -> None:
    """200 small fits, each with other memory taken before it; what products of matrices read begins a cache line."""
    targets = uneven_targets(schema_of(3, 4, 2, 5), 5.0, 30.0)
    loss, taken, seen = loss_of(targets, 0.4), [], set()
    for run in range(200):
        taken.append(bytearray(1 + 997 * run % 4_001))
        fit = Fit(loss, Start(components=20), fits=1 + run % 2)
        fit.advance(25)
        seen.add((run % 2, fit.probabilities.tobytes()))
        held = (fit.contrasts, fit.room.strip, fit.room.rows)
        assert not any(each.ctypes.data % 64 for each in held)
    assert len(seen) == 2
