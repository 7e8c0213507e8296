"""Exchanges that match three-way tables: margins stay, errors fall, and the rule that decides is public."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.draw.refine import ThreeWay, triple_rounds
from sklar.fitting.latent import LatentModel
from sklar.kernel.cells import Cells
from sklar.public.schema import Attribute, Schema

SCHEMA = Schema(
    name="t",
    attributes=tuple(
        Attribute(name=f"a{i}", kind="categorical", values=tuple("xyz"[:size])) for i, size in enumerate((2, 3, 2, 3))
    ),
)


def model(matched: int) -> LatentModel:
    generator = np.random.default_rng(3)
    parts = [generator.dirichlet(np.ones(size), 12) for size in SCHEMA.sizes]
    return LatentModel(schema=SCHEMA, probabilities=np.hstack(parts).astype(np.float32), rounds=12, matched=matched)


def tables(codes: NDArray[np.int64], order: int) -> list[NDArray[np.float64]]:
    found = []
    for chosen in combinations(range(4), order):
        shape = tuple(int(SCHEMA.sizes[i]) for i in chosen)
        flat = np.ravel_multi_index([codes[i] for i in chosen], shape)
        found.append(np.bincount(flat, minlength=int(np.prod(shape))) / codes.shape[1])
    return found


def test_three_way_tables_come_nearer_and_margins_stay() -> None:
    plain, wide = (model(matched).sampler().draw(5, 0, 3_000).astype(np.int64) for matched in (2, 3))
    assert all(np.array_equal(a, b) for a, b in zip(tables(plain, 1), tables(wide, 1), strict=True))
    three = ThreeWay.of(model(3).probabilities, SCHEMA.cells, np.arange(4))
    wanted = np.split(three.probabilities, np.cumsum([each.size for each in tables(plain, 3)])[:-1])
    errors = [
        float(np.mean([np.abs(a - b).sum() / 2 for a, b in zip(tables(drawn, 3), wanted, strict=True)]))
        for drawn in (plain, wide)
    ]
    assert errors[1] < 0.6 * errors[0]


def test_three_way_tables_are_the_products_of_components() -> None:
    probabilities, cells = model(3).probabilities, SCHEMA.cells
    three = ThreeWay.of(probabilities, cells, np.arange(4))
    own = [probabilities[:, cells.levels(i)].astype(np.float64) for i in range(4)]
    for i, p in ((0, 0), (2, 1), (3, 2)):
        j, k, start, *steps = three.index[i, p].tolist()
        for a, b, c in ((0, 0, 0), (1, 1, 1)):
            wanted = float(np.mean(own[i][:, a] * own[j][:, b] * own[k][:, c]))
            at = start + a * steps[0] + b * steps[1] + c * steps[2]
            assert float(three.probabilities[at]) == pytest.approx(wanted, rel=1e-5)


def test_the_rule_is_by_sizes_and_noise() -> None:
    small = Cells([2] * 10)
    assert triple_rounds(20_000, small, 0.01) == 18
    assert triple_rounds(20_000, small, 0.05) == 0
    assert triple_rounds(5_000_000, small, 0.01) == 0
    assert triple_rounds(20_000, Cells([20] * 10), 0.01) == 0
    assert triple_rounds(20_000, Cells([2, 2]), 0.01) == 0
