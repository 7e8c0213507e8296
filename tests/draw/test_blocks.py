from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sklar.draw.blocks import BLOCK_ROWS, Copula, blocks, component_rows
from sklar.draw.repair import sample_codes
from sklar.fitting.choose import fit_steps
from sklar.fitting.descent import Start
from sklar.fitting.latent import LatentModel, independent
from sklar.machine.threads import using
from sklar.paper.estimate import fit_binary
from sklar.public.schema import Schema
from tests.fitting.test_denoise import noisy_estimates, schema_of
from tests.fitting.test_descent import random_model


@pytest.mark.parametrize("rows", [1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS, 5 * BLOCK_ROWS + 7])
def test_blocks_and_ranges_of_them_cover_all_rows_once(rows: int) -> None:
    cut = list(blocks(rows, BLOCK_ROWS))
    assert [number for number, _ in cut] == list(range(len(cut)))
    assert sum(size for _, size in cut) == rows
    assert all(size == BLOCK_ROWS for _, size in cut[:-1])
    assert 1 <= cut[-1][1] <= BLOCK_ROWS
    ranges = [(0, 2), (2, 4), (4, 100)]
    assert cut == [block for first, last in ranges for block in blocks(rows, BLOCK_ROWS, first, last)]


def drawn(model: Copula, rows: int, seed: int = 1) -> np.ndarray:
    return np.concatenate(list(sample_codes(model, rows, seed)), axis=1)


def pair_frequencies(schema: Schema, codes: np.ndarray) -> np.ndarray:
    """Of all pairs of levels, shape (d, d), with those of levels on the diagonal."""
    dummies = np.zeros((codes.shape[1], schema.n_levels))
    for code, offset in zip(codes, schema.offsets, strict=False):
        dummies[np.arange(codes.shape[1]), offset + code] = 1
    return np.asarray(dummies.T @ dummies / codes.shape[1])


def dirichlet_model(schema: Schema, components: int, alpha: float = 0.5, seed: int = 0, **rest: Any) -> LatentModel:
    generator = np.random.default_rng(seed)
    parts = [generator.dirichlet(np.full(size, alpha), components) for size in schema.sizes]
    return LatentModel(schema=schema, probabilities=np.hstack(parts).astype(np.float32), **rest)


def test_sample_has_the_models_tables() -> None:
    schema = schema_of(2, 5, 3, 9)
    model, rows = random_model(schema, 7), 200_000
    codes = drawn(model, rows, 3)
    assert codes.shape == (4, rows)
    assert codes.dtype == np.uint8
    assert (codes.min(axis=1) >= 0).all()
    assert (codes.max(axis=1) < schema.sizes).all()
    frequencies, expected = pair_frequencies(schema, codes), model.predict_pairs()
    sd = np.sqrt(schema.cells.flat(expected * (1 - expected)) / rows)
    # Allotted systematically, tables vary less than independent draws would: 5 sd is never reached by chance.
    assert (np.abs(schema.cells.flat(frequencies - expected)) < 5 * sd + 1e-5).all()
    blocks = -(-rows // BLOCK_ROWS)
    margin_error = np.abs(np.diag(frequencies) - model.probabilities.mean(axis=0)) * rows
    assert margin_error.max() < 6 * blocks


def test_every_draw_has_the_right_expectation() -> None:
    schema = schema_of(3, 4)
    model = random_model(schema, 5, seed=4)
    # Blocks of few rows: rounding is at its coarsest.
    tables = np.mean([pair_frequencies(schema, drawn(model, 17, seed)) for seed in range(600)], axis=0)
    expected = model.predict_pairs()
    assert np.abs(schema.cells.flat(tables - expected)).max() < 5 * 0.5 / np.sqrt(17 * 600)
    assert np.abs(np.diag(tables) - model.probabilities.mean(axis=0)).max() < 5 * 0.5 / np.sqrt(17 * 600)


def test_a_seed_gives_the_same_rows_and_a_longer_table_begins_alike() -> None:
    model = random_model(schema_of(2, 3), 4)
    codes = drawn(model, 2 * BLOCK_ROWS, 5)
    assert np.array_equal(codes, drawn(model, 2 * BLOCK_ROWS, 5))
    assert np.array_equal(codes, drawn(model, 2 * BLOCK_ROWS + 7, 5)[:, : 2 * BLOCK_ROWS])
    assert not np.array_equal(codes, drawn(model, 2 * BLOCK_ROWS, 6))
    assert not np.array_equal(codes[:, :BLOCK_ROWS], codes[:, BLOCK_ROWS:])
    assert [block.shape for block in sample_codes(model, BLOCK_ROWS + 1, 0)] == [(2, BLOCK_ROWS), (2, 1)]


def test_rows_are_not_sorted_by_component_and_a_level_with_no_chance_is_never_drawn() -> None:
    schema = schema_of(2, 2)
    model = LatentModel(schema=schema, probabilities=np.array([[1, 0, 1, 0], [0, 1, 0, 1]], dtype=np.float32))
    codes = drawn(model, 10_000, 0)
    assert codes[0].sum() == 5_000
    assert np.array_equal(codes[0], codes[1])
    assert abs(codes[0, :5_000].sum() - 2_500) < 200
    levels = np.array([0.3, 0.0, 0.7, 0.0, 1.0, 0.0, 0.1, 0.9])
    codes = drawn(independent(schema_of(4, 1, 3), levels), 50_000, 1)
    assert [set(own.tolist()) for own in codes] == [{0, 2}, {0}, {1, 2}]


def test_more_components_than_rows_one_level_and_more_levels_than_a_byte_holds() -> None:
    schema = schema_of(3, 2)
    codes = drawn(random_model(schema, 500), 20, 0)
    assert codes.shape == (2, 20)
    assert (codes >= 0).all()
    assert (codes.max(axis=1) < schema.sizes).all()
    schema = schema_of(1)
    estimates = noisy_estimates(schema, np.ones((1, 1)), 1_000_000, 1e-6)
    model = fit_steps(estimates, schema, np.ones(1), Start(components=5), steps=3, fits=1)
    assert not drawn(model, 100, 0).any()
    levels = np.concatenate([np.full(300, 1 / 300), [0.25, 0.75]])
    codes = drawn(independent(schema_of(300, 2), levels), BLOCK_ROWS, 0)
    # Systematic: within one of the expectation, 54.6.
    assert np.abs(np.bincount(codes[0], minlength=300) - BLOCK_ROWS / 300).max() <= 1
    assert codes[1].sum() == 0.75 * BLOCK_ROWS


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 1, 7, 2), (300, 2, 5)])
@pytest.mark.parametrize(("components", "rows"), [(33, 20), (200, 3_000)])
def test_compiled_code_deals_the_same_rows(
    sizes: tuple[int, ...], components: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, dealt = dirichlet_model(schema_of(*sizes), components, 0.2), []
    # Levels that nobody has in a component, or all.
    model.probabilities[: components // 3, : sizes[0]] = np.eye(sizes[0], dtype=np.float32)[sizes[0] // 2]
    for most in (np.inf, 0):
        monkeypatch.setattr("sklar.draw.blocks._PLAIN_VALUES", most)
        dealt.append(model.sampler().draw(7, 3, rows))
    assert np.array_equal(dealt[0], dealt[1])


@pytest.mark.parametrize("kind", ["latent", "records", "dummies"])
def test_rows_are_the_same_for_any_number_of_threads_and_any_order_of_blocks(kind: str) -> None:
    from tests.paper.test_estimate import SCHEMA, probabilities

    model: Copula = random_model(schema_of(2, 5, 3), 40)
    if kind != "latent":
        model = fit_binary(probabilities(), SCHEMA, dummies=kind == "dummies", weighted=True)
    rows, codes = 3 * BLOCK_ROWS + 5, []
    for threads in (1, 2, 5):
        with using(threads):
            codes.append(drawn(model, rows, 7))
    sampler = model.sampler()
    apart = {number: sampler.draw(7, number, size) for number, size in reversed(list(blocks(rows, sampler.block_rows)))}
    codes.append(np.concatenate([apart[number] for number in sorted(apart)], axis=1))
    assert all(np.array_equal(codes[0], other) for other in codes[1:])


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


@pytest.mark.parametrize(("components", "rounds", "matched", "expected"), [
    (5, 0, 2, "980b5eddbdf33932"), (50, 0, 2, "f58c6054c6eee24e"), (200, 6, 2, "0fd6ff3057544eb0"),
    (20, 6, 3, "7f0facc22f916c1f"),
])  # fmt: skip
def test_a_seed_has_the_rows_that_it_had_in_earlier_versions(
    components: int, rounds: int, matched: int, expected: str
) -> None:
    """Published folders are checked by drawing their rows again: a change here breaks every one of them."""
    model = dirichlet_model(schema_of(3, 4, 2, 5), components, 0.4, rounds=rounds, matched=matched)
    codes = model.sampler().draw(5, 2, 3_000).astype(np.uint8)
    assert hashlib.sha256(codes.tobytes()).hexdigest()[:16] == expected


def test_few_rows_are_drawn_from_few_whole_fits_and_come_nearer_to_the_model() -> None:
    """Eight rows of a component, of two fits at least; fits that have as many rows each as they can."""
    schema, rows = schema_of(3, 4, 2, 5, 3), 1_000
    one = dirichlet_model(schema, 150, rounds=18)
    moved = np.random.default_rng(1).permutation(150)
    model = replace(one, probabilities=np.concatenate([one.probabilities[moved] for _ in range(8)]), fits=8)
    # Rows follow the same model nearer where each component has rows to exchange (at least 5 times here).
    found = (pair_frequencies(schema, drawn(each, rows)) for each in (replace(model, fits=1), model))
    apart = [float(np.mean((each - one.predict_pairs())[schema.offsets[1] :, :3] ** 2)) for each in found]
    assert apart[1] < apart[0] / 2
    for number in (1, 100, 150, 1_199, 8 * 150 * 8, 12_000):
        sizes = component_rows(number, 150 * 8, 8, 0.3, few=True)
        assert sizes.sum() == number
        assert sizes.size == 150 * min(max(number // 1_200, 2), 8)
        # Whole fits have whole rounds, and so the fit's own distribution, but one.
        assert sum(each.min() < each.max() for each in sizes.reshape(-1, 150)) == (number % 150 > 0)
    assert component_rows(10_000, 1_200, 8, 0.3, few=False).size == 1_200
