"""Counts from parities: exact without noise, with the standard error that noise has."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest

from sklar.answer.effects import centered, has_parities, pool_effects
from sklar.answer.query import count_by_parities, count_cells, estimate
from sklar.budget.certificate import Measured
from sklar.kernel.theorems import Budget, Neighbors
from sklar.public.schema import Attribute, Schema
from sklar.release import measure

CODES = (np.random.default_rng(4).random((4, 5_000)) < 0.3).astype(np.int64)
SCHEMA = Schema(
    name="bits", attributes=tuple(Attribute(name=f"b{i}", kind="integer", edges=(0, 1, 2)) for i in range(4))
)
FRAME = pl.DataFrame({f"b{i}": column for i, column in enumerate(CODES)})


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_counts_are_exact_without_noise(neighbors: Neighbors) -> None:
    measured = measure(FRAME, SCHEMA, Budget(epsilon=1e9, neighbors=neighbors))
    for where in ((0,), (2, 1), (1, 3), (3, 0, 2)):
        if not has_parities(measured, len(where)):
            assert neighbors == "add-remove"
            continue
        shape = (2,) * len(where)
        for mask in product((False, True), repeat=2 ** len(where)):
            cells = np.array(mask).reshape(shape)
            wanted = int(cells[tuple(CODES[i] for i in where)].sum())
            assert count_by_parities(measured, cells, where)[0] == pytest.approx(wanted)


def shifted(measured: Measured, at: int) -> Measured:
    """With one noisy parity moved by one in both looks."""
    blocks = []
    for block in measured.blocks:
        values = np.array(block.values)
        values[at] += 1
        blocks.append(replace(block, values=values))
    return replace(measured, blocks=tuple(blocks))


def test_standard_errors_are_those_of_the_linear_function() -> None:
    measured = measure(FRAME, SCHEMA, Budget(epsilon=1.0))
    cells = np.array([[True, False], [False, False]])
    base, sd = count_by_parities(measured, cells, (1, 2))
    query, scales = measured.blocks[0].query, measured.blocks[0].scales
    variance = 0.0
    for at, scale in enumerate(np.repeat(scales, query.sizes)):
        slope = count_by_parities(shifted(measured, at), cells, (1, 2))[0] - base
        variance += slope**2 * float(scale) ** 2 / 2
    assert sd == pytest.approx(np.sqrt(variance))
    found = count_cells(measured, cells, (1, 2))
    assert (found.count, found.standard_error) == (base, sd)
    assert found.by == "the noisy parities of 'b1' and 'b2'"
    assert found.half_width == pytest.approx(1.959964 * sd, rel=1e-5)


def test_tables_are_turned_as_asked() -> None:
    measured = measure(FRAME, SCHEMA, Budget(epsilon=1e9))
    one, other = estimate(measured, "b0", "b2"), estimate(measured, "b2", "b0")
    assert np.allclose(one.counts, other.counts.T)
    exact = [[int(((CODES[0] == a) & (CODES[2] == b)).sum()) for b in (0, 1)] for a in (0, 1)]
    assert np.allclose(one.counts, exact)


def test_inference_sees_the_effects_of_parities() -> None:
    """Without noise they are those of the exact tables, for sets of one, two and three bits."""
    effects = pool_effects(measure(FRAME, SCHEMA, Budget(epsilon=1e9)), (0, 1, 3))
    assert set(effects.by_set) == {(0,), (1,), (3,), (0, 1), (0, 3), (1, 3), (0, 1, 3)}
    for subset, effect in effects.by_set.items():
        shares = np.zeros((2,) * len(subset))
        np.add.at(shares, tuple(CODES[i] for i in subset), 1 / CODES.shape[1])
        assert np.allclose(effect.values, centered(shares, len(subset)))
        assert effect.variance < 1e-6
