from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from sklar.budget.certificate import above_diagonal, block_of_level
from sklar.draw.blocks import BLOCK_ROWS, blocks
from sklar.fitting import latent
from sklar.fitting.contrasts import contrasts, softmax, through_softmax
from sklar.fitting.denoise import Targets, denoise_tables
from sklar.fitting.latent import (
    MARGIN_WEIGHT,
    Fit,
    Kind,
    LatentModel,
    LatentSampler,
    Loss,
    Start,
    cell_weights,
    fit_latent,
    independent,
    predict_pairs,
    sample_latent,
)
from sklar.machine.threads import using
from sklar.public.schema import Schema
from tests.fitting.test_denoise import mixture_joint, noisy_estimates, schema_of


def random_model(schema: Schema, components: int, seed: int = 0) -> LatentModel:
    logits = 2 * np.random.default_rng(seed).standard_normal((components, schema.n_levels), dtype=np.float32)
    return LatentModel(schema=schema, probabilities=softmaxed(logits.T, schema)[0].T)


def softmaxed(logits: np.ndarray, schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and their contrasts."""
    probabilities = np.empty(logits.shape, dtype=np.float32)
    found = np.empty((schema.n_levels - schema.n_attributes, logits.shape[1]), dtype=np.float32)
    softmax(np.ascontiguousarray(logits), schema.offsets, probabilities, found)
    return probabilities, found


def loss_of(targets: Targets, shrinkage: float) -> Loss:
    return Loss(targets, shrinkage, cell_weights(targets.schema, targets.precision))


def plain_loss(targets: Targets, shrinkage: float, probabilities: np.ndarray) -> float:
    """The definition, cell by cell, for probabilities of shape (d, D)."""
    exact = probabilities.astype(np.float64)
    block = block_of_level(targets.schema)
    error = exact @ exact.T / exact.shape[1] - targets.mixed(shrinkage)
    margin = exact.mean(axis=1) - targets.levels
    weighted = targets.precision[block[:, None], block] * error**2
    return float(weighted.sum()) / 2 + MARGIN_WEIGHT * float(margin @ margin)


def exact_targets(schema: Schema, joint: np.ndarray) -> Targets:
    return denoise_tables(noisy_estimates(schema, joint, 1_000_000, 1e-6), np.diag(joint).copy())


def drawn(model: LatentModel, rows: int, seed: int) -> np.ndarray:
    return np.concatenate(list(sample_latent(model, rows, seed)), axis=1)


def pair_frequencies(schema: Schema, codes: np.ndarray) -> np.ndarray:
    dummies = np.zeros((codes.shape[1], schema.n_levels), dtype=np.float32)
    for code, offset in zip(codes, schema.offsets, strict=False):
        dummies[np.arange(codes.shape[1]), offset + code] = 1
    return dummies.T @ dummies / np.float32(codes.shape[1])


def test_softmax_sums_to_one_within_attributes() -> None:
    schema = schema_of(2, 1, 3)
    logits = np.array([[0, 0, 500, -1000, 0, 1000]], dtype=np.float32).T
    weights, found = softmaxed(logits, schema)
    assert np.allclose(weights.T, [[0.5, 0.5, 1, 0, 0, 1]])
    assert np.allclose(found, contrasts(weights, schema), atol=1e-6)


def test_predicted_pairs_equal_enumeration() -> None:
    schema = schema_of(2, 3, 2)
    model = random_model(schema, 4)
    joint = np.zeros((7, 7))
    for component in model.probabilities.astype(np.float64):
        for codes in product(*(range(size) for size in schema.sizes)):
            at = schema.offsets[:-1] + np.array(codes)
            chance = component[at].prod() / 4
            for i, j in product(range(3), repeat=2):
                if i != j:
                    joint[at[i], at[j]] += chance
    assert np.allclose(predict_pairs(model), joint, atol=1e-6)


def test_softmax_is_numpys_to_single_precision() -> None:
    schema = schema_of(3, 1, 40, 2)
    logits = 12 * np.random.default_rng(0).standard_normal((46, 37)).astype(np.float32)
    logits[4:10, :5] = -1e4
    probabilities, found = softmaxed(logits, schema)
    for first, last in pairwise(schema.offsets):
        exact = np.exp(logits[first:last].astype(np.float64) - logits[first:last].max(axis=0))
        exact /= exact.sum(axis=0)
        assert np.allclose(probabilities[first:last], exact, rtol=2e-5, atol=1e-35)
    assert np.allclose(found, contrasts(probabilities, schema), atol=1e-6)


@pytest.mark.parametrize("strip", [3, 1024])
def test_strips_cover_the_square(strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latent, "_STRIP", strip)
    found = np.random.default_rng(0).random((7, 5), dtype=np.float32)
    room = latent.Room(schema_of(2, 4, 4), 5)
    whole, ends = found @ found.T, [0]
    for first, last, part in latent.predicted_strips(found, room):
        assert np.allclose(part, whole[first:last, first:], atol=1e-6)
        assert first == ends[-1]
        ends.append(last)
    assert ends[-1] == 7


@pytest.mark.parametrize("strip", [4, 1024])
@pytest.mark.parametrize("shrinkage", [0.0, 0.4])
def test_gradient_is_that_of_the_plain_loss(shrinkage: float, strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latent, "_STRIP", strip)
    schema = schema_of(2, 3, 1, 4, 2)
    joint = mixture_joint(schema, 3, 0)
    estimates = noisy_estimates(schema, joint, 1_000, 20.0)
    spread = np.random.default_rng(2).uniform(20, 60, (5, 5))
    targets = denoise_tables(replace(estimates, pair_sd=spread + spread.T), np.diag(joint).copy())
    logits = np.random.default_rng(1).standard_normal((12, 3)).astype(np.float32)
    probabilities, found = softmaxed(logits, schema)
    pull, gradient = np.empty_like(found), np.empty_like(probabilities)
    loss = loss_of(targets, shrinkage)
    loss.gradient(found, pull, latent.Room(schema, 3))
    constant = loss.margin_weights * (found.mean(axis=1) - loss.margins)
    through_softmax(pull, constant, probabilities, schema.offsets, gradient)
    for at in np.ndindex(logits.shape):
        step = np.zeros_like(logits)
        step[at] = 0.03
        up, down = (plain_loss(targets, shrinkage, softmaxed(logits + s * step, schema)[0]) for s in (1, -1))
        # `gradient` is D / 2 times the derivative.
        assert np.isclose(gradient[at], (up - down) / 0.06 * 3 / 2, atol=2e-4, rtol=2e-2)


def test_few_large_attributes_have_the_same_gradient_by_less_work() -> None:
    schema = schema_of(50, 1, 40, 2)
    estimates = noisy_estimates(schema, mixture_joint(schema, 3, 0), 1_000, 20.0)
    spread = np.random.default_rng(2).uniform(20, 60, (4, 4))
    estimates = replace(estimates, pair_sd=spread + spread.T)
    loss = loss_of(denoise_tables(estimates, np.diag(mixture_joint(schema, 3, 0)).copy()), 0.4)
    found = softmaxed(np.random.default_rng(1).standard_normal((93, 6)).astype(np.float32), schema)[1]
    plain, quick = np.empty_like(found), np.empty_like(found)
    room = latent.Room(schema, 6)
    assert room.squares is not None
    loss.gradient(found, quick, room)
    room.squares = None
    loss.gradient(found, plain, room)
    assert np.allclose(quick, plain, rtol=1e-4, atol=1e-6 * np.abs(plain).max())
    # Many attributes, or many components, would make it more.
    assert latent.Room(schema_of(*[2] * 90), 6).squares is None
    assert latent.Room(schema, 60).squares is None


@pytest.mark.parametrize("kind", ["mixture", "factor"])
def test_fit_recovers_the_tables_of_a_known_mixture(kind: Kind) -> None:
    schema = schema_of(3, 4, 2, 5)
    joint = mixture_joint(schema, 3, 2)
    targets = exact_targets(schema, joint)
    model = fit_latent(targets, 0.0, Start(kind=kind, components=60, rank=6), steps=500, fits=2)
    up = above_diagonal(schema)
    pairs = schema.n_attributes * (schema.n_attributes - 1) / 2
    total_variation = np.abs(predict_pairs(model) - joint)[up].sum() / 2 / pairs
    levels = np.diag(joint)
    assert np.abs(np.outer(levels, levels) - joint)[up].sum() / 2 / pairs > 0.1
    assert total_variation < (0.01 if kind == "mixture" else 0.03)
    assert np.abs(model.probabilities.mean(axis=0) - levels).max() < 0.01


def test_a_fit_is_deterministic_and_its_loss_falls() -> None:
    schema = schema_of(3, 4, 2)
    targets = exact_targets(schema, mixture_joint(schema, 3, 2))
    loss = loss_of(targets, 0.0)
    first, second = Fit(loss, Start(components=20)), Fit(loss, Start(components=20))
    before = plain_loss(targets, 0.0, first.probabilities)
    for _ in range(50):
        first.advance(1)
        second.advance(1)
    assert np.array_equal(first.probabilities, second.probabilities)
    assert plain_loss(targets, 0.0, first.probabilities) < 0.1 * before


def test_union_holds_every_fit() -> None:
    schema = schema_of(2, 2)
    targets = exact_targets(schema, mixture_joint(schema, 2, 0))
    model = fit_latent(targets, 0.0, Start(components=10), steps=5, fits=3)
    assert model.n_components == 30
    alone = fit_latent(targets, 0.0, Start(components=10, seed=2), steps=5, fits=1)
    assert np.array_equal(model.probabilities[20:], alone.probabilities)


def test_sample_has_the_models_tables() -> None:
    schema = schema_of(2, 5, 3, 9)
    model, rows = random_model(schema, 7), 200_000
    codes = drawn(model, rows, 3)
    assert codes.shape == (4, rows)
    assert codes.dtype == np.uint8
    assert (codes.min(axis=1) >= 0).all()
    assert (codes.max(axis=1) < schema.sizes).all()
    frequencies, expected = pair_frequencies(schema, codes), predict_pairs(model)
    up = above_diagonal(schema)
    sd = np.sqrt(expected * (1 - expected) / rows)[up]
    # Allotted systematically, tables vary less than independent draws would: 5 sd is never reached by chance.
    assert (np.abs(frequencies - expected)[up] < 5 * sd + 1e-5).all()
    blocks = -(-rows // BLOCK_ROWS)
    margin_error = np.abs(np.diag(frequencies) - model.probabilities.mean(axis=0)) * rows
    assert margin_error.max() < 6 * blocks


def test_every_draw_has_the_right_expectation() -> None:
    schema = schema_of(3, 4)
    model = random_model(schema, 5, seed=4)
    # Blocks of few rows: rounding is at its coarsest.
    tables = np.mean([pair_frequencies(schema, drawn(model, 17, seed)) for seed in range(600)], axis=0)
    expected = predict_pairs(model)
    up = above_diagonal(schema)
    assert np.abs(tables - expected)[up].max() < 5 * 0.5 / np.sqrt(17 * 600)
    assert np.abs(np.diag(tables) - model.probabilities.mean(axis=0)).max() < 5 * 0.5 / np.sqrt(17 * 600)


def test_three_way_tables_match_too() -> None:
    schema = schema_of(2, 2, 2)
    model = random_model(schema, 3, seed=9)
    codes = drawn(model, 100_000, 0)
    ones = model.probabilities.astype(np.float64)[:, [1, 3, 5]].prod(axis=1).mean()
    assert abs(codes.all(axis=0).mean() - ones) < 5 * np.sqrt(ones / 100_000)


def test_a_seed_gives_the_same_rows_and_a_longer_table_begins_alike() -> None:
    model = random_model(schema_of(2, 3), 4)
    codes = drawn(model, 2 * BLOCK_ROWS, 5)
    assert np.array_equal(codes, drawn(model, 2 * BLOCK_ROWS, 5))
    assert np.array_equal(codes, drawn(model, 2 * BLOCK_ROWS + 7, 5)[:, : 2 * BLOCK_ROWS])
    assert not np.array_equal(codes, drawn(model, 2 * BLOCK_ROWS, 6))
    assert not np.array_equal(codes[:, :BLOCK_ROWS], codes[:, BLOCK_ROWS:])
    assert [block.shape for block in sample_latent(model, BLOCK_ROWS + 1, 0)] == [(2, BLOCK_ROWS), (2, 1)]


def test_rows_are_not_sorted_by_component() -> None:
    schema = schema_of(2, 2)
    model = LatentModel(schema=schema, probabilities=np.array([[1, 0, 1, 0], [0, 1, 0, 1]], dtype=np.float32))
    codes = drawn(model, 10_000, 0)
    assert codes[0].sum() == 5_000
    assert np.array_equal(codes[0], codes[1])
    assert abs(codes[0, :5_000].sum() - 2_500) < 200


def test_a_level_with_no_chance_is_never_drawn() -> None:
    schema = schema_of(4, 1, 3)
    levels = np.array([0.3, 0.0, 0.7, 0.0, 1.0, 0.0, 0.1, 0.9])
    codes = drawn(independent(schema, levels), 50_000, 1)
    assert set(np.unique(codes[0])) == {0, 2}
    assert not codes[1].any()
    assert set(np.unique(codes[2])) == {1, 2}


def test_more_components_than_rows() -> None:
    schema = schema_of(3, 2)
    codes = drawn(random_model(schema, 500), 20, 0)
    assert codes.shape == (2, 20)
    assert (codes >= 0).all()
    assert (codes.max(axis=1) < schema.sizes).all()


def test_one_attribute_of_one_level() -> None:
    schema = schema_of(1)
    targets = exact_targets(schema, np.ones((1, 1)))
    model = fit_latent(targets, 0.0, Start(components=5), steps=3, fits=1)
    assert not drawn(model, 100, 0).any()


def test_rows_are_the_same_for_any_number_of_threads_and_any_order_of_blocks() -> None:
    model = random_model(schema_of(2, 5, 3), 40)
    rows = 3 * BLOCK_ROWS + 5
    codes = []
    for threads in (1, 2, 5):
        with using(threads):
            codes.append(drawn(model, rows, 7))
    sampler = LatentSampler(model)
    apart = {number: sampler.draw(7, number, size) for number, size in reversed(list(blocks(rows)))}
    codes.append(np.concatenate([apart[number] for number in sorted(apart)], axis=1))
    assert all(np.array_equal(codes[0], other) for other in codes[1:])


def test_more_levels_than_a_byte_holds() -> None:
    schema = schema_of(300, 2)
    levels = np.concatenate([np.full(300, 1 / 300), [0.25, 0.75]])
    codes = drawn(independent(schema, levels), BLOCK_ROWS, 0)
    # Systematic: within one of the expectation, 54.6.
    assert np.abs(np.bincount(codes[0], minlength=300) - BLOCK_ROWS / 300).max() <= 1
    assert codes[1].sum() == 0.75 * BLOCK_ROWS


def test_attributes_are_independent_within_a_component() -> None:
    """Rows that one attribute gave its rare level say nothing about who gets another's."""
    schema = schema_of(2, 2, 2)
    model = independent(schema, np.array([0.1, 0.9, 0.2, 0.8, 0.5, 0.5]))
    codes = drawn(model, 20 * BLOCK_ROWS, 3)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        correlation = np.corrcoef(codes[first], codes[second])[0, 1]
        # Six standard errors, 2e-9.
        assert abs(correlation) < 6 / np.sqrt(codes.shape[1])
    # Nor which rows were chosen before: neighbors in the block are independent too.
    assert abs(np.corrcoef(codes[0, :-1], codes[0, 1:])[0, 1]) < 6 / np.sqrt(codes.shape[1])
