from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from sklar.draw.blocks import BLOCK_ROWS, REFINED_ROWS
from sklar.draw.refine import MOST_ROUNDS, exchange, exchange_plainly, refine, refining_rounds
from sklar.draw.repair import RecordSampler
from sklar.fitting.latent import LatentModel
from sklar.public.schema import Schema
from tests.fitting.test_denoise import schema_of


def model_of(schema: Schema, components: int, rounds: int, seed: int = 0) -> LatentModel:
    generator = np.random.default_rng(seed)
    parts = [generator.dirichlet(np.full(size, 0.5), components) for size in schema.sizes]
    return LatentModel(schema=schema, probabilities=np.hstack(parts).astype(np.float32), rounds=rounds)


def pair_counts(codes: np.ndarray, schema: Schema) -> np.ndarray:
    hot = np.zeros((codes.shape[1], schema.n_levels))
    for i, own in enumerate(codes):
        hot[np.arange(own.size), schema.offsets[i] + own] = 1
    return hot.T @ hot


def squared_error(model: LatentModel, rows: int, seed: int = 3) -> float:
    schema = model.schema
    counts = pair_counts(model.sampler().draw(seed, 0, rows), schema)
    apart = schema.cells.attribute_of_level[:, None] != schema.cells.attribute_of_level
    return float((((counts - rows * model.predict_pairs()) * apart) ** 2).sum())


def test_two_way_counts_come_nearer_to_the_models() -> None:
    """The error falls to less than a third (it is a fifth here): rows of 20,000 among 200 cells leave little else."""
    model = model_of(schema_of(3, 4, 2, 5), 20, 0)
    assert squared_error(replace(model, rounds=18), 20_000) < squared_error(model, 20_000) / 3


def test_exchanges_keep_each_component_and_every_one_way_count() -> None:
    schema = schema_of(3, 4, 2)
    generator = np.random.default_rng(1)
    rows, bounds = 600, np.array([0, 1, 200, 200, 600])
    codes = np.stack([generator.integers(0, size, rows) for size in schema.sizes]).astype(np.uint8)
    place = generator.permutation(rows).astype(np.uint32)
    before, targets = codes.copy(), np.zeros((9, 9), dtype=np.float32)
    refine(codes, place, bounds, targets, schema.offsets, np.arange(3), 5, np.uint64(7))
    assert (codes != before).any()
    for first, last in pairwise(bounds):
        own = place[first:last]
        assert np.array_equal(np.sort(codes[:, own], axis=1), np.sort(before[:, own], axis=1))


def test_python_and_compiled_code_make_the_same_exchanges() -> None:
    schema, generator = schema_of(3, 4, 2, 5), np.random.default_rng(2)
    rows = (np.stack([generator.integers(0, size, 200) for size in schema.sizes]).T + schema.offsets[:-1]).astype(
        np.int32
    )
    targets = -generator.integers(0, 200 * 128, (14, 14)).astype(np.int32)
    done = []
    for work in (exchange, exchange_plainly):
        own = np.array(rows, order="C")
        work(own, np.array([0, 90, 90, 91, 200]), targets + targets.T, 6, np.uint64(2**63 + 12345))
        done.append(own)
    assert (done[0] != rows).any()
    assert np.array_equal(done[0], done[1])


def test_attributes_that_are_not_free_stay() -> None:
    schema = schema_of(3, 4, 2)
    generator = np.random.default_rng(1)
    codes = np.stack([generator.integers(0, size, 300) for size in schema.sizes]).astype(np.uint8)
    before = codes.copy()
    targets = np.zeros((9, 9), dtype=np.float32)
    place = np.arange(300, dtype=np.uint32)
    refine(codes, place, np.array([0, 300]), targets, schema.offsets, np.array([0, 2]), 5, np.uint64(7))
    assert np.array_equal(codes[1], before[1])
    assert (codes[[0, 2]] != before[[0, 2]]).any()


def test_records_with_rules_are_valid_and_their_attributes_are_left_to_the_repair() -> None:
    schema = Schema.from_toml(
        '[attributes.a]\ntype = "categorical"\nvalues = ["x", "y"]\n'
        '[attributes.b]\ntype = "categorical"\nvalues = ["u", "v"]\n'
        '[attributes.c]\ntype = "categorical"\nvalues = ["1", "2", "3"]\n'
        '[attributes.d]\ntype = "categorical"\nvalues = ["1", "2", "3"]\n'
        '[[rules]]\nforbid = { a = "x", b = "u" }\n'
    )
    codes = RecordSampler(model_of(schema, 8, 6)).draw(2, 0, 3_000)
    assert not ((codes[0] == 0) & (codes[1] == 0)).any()


def test_a_block_is_a_function_of_model_seed_number_and_rows() -> None:
    sampler = model_of(schema_of(3, 4, 2), 6, 4).sampler()
    one = sampler.draw(9, 1, 500)
    assert np.array_equal(one, sampler.draw(9, 1, 500))
    assert not np.array_equal(one, sampler.draw(9, 2, 500))
    assert not np.array_equal(one, sampler.draw(8, 1, 500))


def test_refined_blocks_are_larger() -> None:
    model = model_of(schema_of(3, 4), 4, 2)
    assert model.sampler().block_rows == REFINED_ROWS
    assert replace(model, rounds=0).sampler().block_rows == BLOCK_ROWS


@pytest.mark.parametrize(
    ("rows", "attributes", "rounds"),
    [(1, 1, MOST_ROUNDS), (32_561, 14, MOST_ROUNDS), (1_000_000, 10, MOST_ROUNDS), (5_000_000, 27, 0), (10**12, 3, 0)],
)
def test_large_tables_are_left_as_they_are_drawn(rows: int, attributes: int, rounds: int) -> None:
    assert refining_rounds(rows, attributes, 20_000) == rounds
    assert refining_rounds(rows, attributes, 20_001) == 0
