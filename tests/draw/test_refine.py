from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.draw.blocks import BLOCK_ROWS, REFINED_ROWS
from sklar.draw.refine import Refiner, exchange, exchange_plainly, refining_rounds, three_way_tables
from sklar.draw.repair import RecordSampler
from sklar.fitting.latent import LatentModel
from sklar.kernel.cells import Cells
from tests.draw.test_blocks import dirichlet_model, pair_frequencies
from tests.draw.test_repair import schema as with_rules
from tests.fitting.test_denoise import schema_of


def squared_error(model: LatentModel, rows: int, seed: int = 3) -> float:
    schema = model.schema
    counts = rows * pair_frequencies(schema, model.sampler().draw(seed, 0, rows))
    apart = schema.cells.attribute_of_level[:, None] != schema.cells.attribute_of_level
    return float((((counts - rows * model.predict_pairs()) * apart) ** 2).sum())


def test_two_way_counts_come_nearer_to_the_models() -> None:
    """The error falls to less than a third (it is a fifth here): rows of 20,000 among 200 cells leave little else."""
    model = dirichlet_model(schema_of(3, 4, 2, 5), 20)
    assert squared_error(replace(model, rounds=18), 20_000) < squared_error(model, 20_000) / 3


def test_exchanges_keep_each_component_every_one_way_count_and_attributes_that_are_not_free() -> None:
    schema, generator = schema_of(3, 4, 2, 3), np.random.default_rng(1)
    rows, bounds = 600, np.array([0, 1, 200, 200, 600])
    codes = np.stack([generator.integers(0, size, rows) for size in schema.sizes]).astype(np.uint8)
    place, before = generator.permutation(rows), codes.copy()
    model = LatentModel(schema=schema, probabilities=np.zeros((4, 12), dtype=np.float32), rounds=5)
    refiner = Refiner(model, np.array([0, 1, 3]))
    refiner(codes, place, bounds, np.uint64(7))
    assert np.array_equal(codes[2], before[2])
    assert all((codes[i] != before[i]).any() for i in (0, 1, 3))
    for first, last in pairwise(bounds):
        own = place[first:last]
        assert np.array_equal(np.sort(codes[:, own], axis=1), np.sort(before[:, own], axis=1))


def test_python_and_compiled_code_make_the_same_exchanges() -> None:
    schema, generator = schema_of(3, 4, 2, 5), np.random.default_rng(2)
    codes = np.stack([generator.integers(0, size, 200) for size in schema.sizes])
    rows = (codes.T + schema.offsets[:-1]).astype(np.int32)
    targets = -generator.integers(0, 200 * 128, (14, 14)).astype(np.int32)
    done = []
    none = (np.empty(0, dtype=np.int32), np.empty((4, 0, 6), dtype=np.int64))
    ways: list[tuple[Any, Any]] = [(exchange, none), (exchange_plainly, ())]
    for work, wider in ways:
        own = np.array(rows, order="C")
        work(own, np.array([0, 90, 90, 91, 200]), targets + targets.T, *wider, 6, np.uint64(2**63 + 12345))
        done.append(own)
    assert (done[0] != rows).any()
    assert np.array_equal(done[0], done[1])


def test_records_with_rules_are_valid_and_their_attributes_are_left_to_the_repair() -> None:
    ruled = with_rules([{"forbid": {"a": "v0", "b": "v0"}}], sizes=(2, 2, 3, 3))
    codes = RecordSampler(dirichlet_model(ruled, 8, rounds=6)).draw(2, 0, 3_000)
    assert not ((codes[0] == 0) & (codes[1] == 0)).any()


def test_refined_blocks_are_larger_and_large_tables_are_left_as_they_are_drawn() -> None:
    model = dirichlet_model(schema_of(3, 4), 4, rounds=2)
    assert model.sampler().block_rows == REFINED_ROWS
    assert replace(model, rounds=0).sampler().block_rows == BLOCK_ROWS
    bits, wide = Cells([2] * 10), Cells([20] * 17)
    # Of three-way tables where there is work enough to load compiled code, and not too much of it.
    found = {rows: refining_rounds(rows, bits) for rows in (1, 200, 20_000, 500_000, 5_000_000, 10**8)}
    assert found == {1: (18, 2), 200: (18, 2), 20_000: (18, 3), 500_000: (18, 2), 5_000_000: (4, 2), 10**8: (0, 2)}
    assert refining_rounds(20_000, wide) == (18, 2)
    assert refining_rounds(20_000, Cells([2, 2])) == (18, 2)
    assert refining_rounds(20_000, Cells([20_001])) == (0, 2)


SCHEMA = schema_of(2, 3, 2, 3)
MODEL = dirichlet_model(SCHEMA, 12, 1.0, seed=3, rounds=12, matched=3)


def tables(codes: NDArray[np.int64], order: int) -> list[NDArray[np.float64]]:
    found = []
    for chosen in combinations(range(4), order):
        shape = tuple(int(SCHEMA.sizes[i]) for i in chosen)
        flat = np.ravel_multi_index([codes[i] for i in chosen], shape)
        found.append(np.bincount(flat, minlength=int(np.prod(shape))) / codes.shape[1])
    return found


def test_three_way_tables_come_nearer_and_margins_stay() -> None:
    plain, wide = (replace(MODEL, matched=matched).sampler().draw(5, 0, 3_000).astype(np.int64) for matched in (2, 3))
    assert all(np.array_equal(a, b) for a, b in zip(tables(plain, 1), tables(wide, 1), strict=True))
    flat, _ = three_way_tables(MODEL.probabilities, SCHEMA.cells, np.arange(4))
    wanted = np.split(flat, np.cumsum([each.size for each in tables(plain, 3)])[:-1])
    errors = [
        float(np.mean([np.abs(a - b).sum() / 2 for a, b in zip(tables(drawn, 3), wanted, strict=True)]))
        for drawn in (plain, wide)
    ]
    assert errors[1] < 0.6 * errors[0]


def test_rows_come_nearer_to_what_the_model_misses() -> None:
    model = dirichlet_model(SCHEMA, 4, 3.0, rounds=18)
    own = np.array([[0.01, -0.01, 0.0], [-0.01, 0.01, 0.0]])
    flat = np.zeros(SCHEMA.cells.n_cells, dtype=np.float32)
    flat[:6] = own.ravel()
    plain, moved = (each.sampler().draw(5, 0, 6_000).astype(np.int64) for each in (model, replace(model, missed=flat)))
    assert np.abs(tables(moved, 2)[0] - tables(plain, 2)[0] - own.ravel()).max() < 0.002
    assert all(np.array_equal(a, b) for a, b in zip(tables(plain, 1), tables(moved, 1), strict=True))


def test_three_way_tables_are_the_products_of_components() -> None:
    probabilities, cells = MODEL.probabilities, SCHEMA.cells
    flat, index = three_way_tables(probabilities, cells, np.arange(4))
    own = [probabilities[:, cells.levels(i)].astype(np.float64) for i in range(4)]
    for i, p in ((0, 0), (2, 1), (3, 2)):
        j, k, start, *steps = index[i, p].tolist()
        for a, b, c in ((0, 0, 0), (1, 1, 1)):
            wanted = float(np.mean(own[i][:, a] * own[j][:, b] * own[k][:, c]))
            levels = cells.offsets[[i, j, k]] + [a, b, c]
            assert float(flat[start + levels @ steps]) == pytest.approx(wanted, rel=1e-5)
