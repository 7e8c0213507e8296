from __future__ import annotations

import numpy as np
import pytest

from sklar.fitting.steps import contrast_levels, contrast_tables, contrasts
from tests.fitting.test_denoise import mixture_joint, schema_of


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_contrasts_are_orthonormal_and_blind_to_constants(size: int) -> None:
    schema = schema_of(size)
    q = contrasts(np.eye(size, dtype=np.float32), schema.cells)
    assert q.shape == (size - 1, size)
    assert np.allclose(q @ q.T, np.eye(size - 1), atol=1e-6)
    assert np.allclose(q @ np.ones(size), 0.0, atol=1e-6)


def test_contrasts_of_a_table_are_those_of_its_rows_and_then_of_its_columns() -> None:
    cells = schema_of(2, 4, 1, 3).cells
    square = np.random.default_rng(0).standard_normal((10, 10)).astype(np.float32)
    wanted = contrasts(contrasts(cells.square(cells.flat(square)), cells).T, cells).T
    assert np.allclose(np.triu(contrast_tables(cells.flat(square), cells)), wanted, atol=1e-6)


def test_squared_distances_of_tables_are_the_sum_of_three() -> None:
    schema = schema_of(2, 3, 1, 5)
    first, second = mixture_joint(schema, 3, 0), mixture_joint(schema, 3, 1)
    moved = contrast_tables(schema.cells.flat((first - second).astype(np.float32)), schema.cells)
    margins = contrast_levels(np.diag(first) - np.diag(second), schema.cells)
    starts = np.concatenate([[0], np.cumsum(schema.sizes - 1)])
    for i in range(4):
        for j in range(i + 1, 4):
            a, b = (slice(schema.offsets[k], schema.offsets[k + 1]) for k in (i, j))
            u, v = (slice(starts[k], starts[k + 1]) for k in (i, j))
            assert not moved[u, u].any()
            parts = (moved[u, v] ** 2).sum()
            parts += (margins[u] ** 2).sum() / schema.sizes[j] + (margins[v] ** 2).sum() / schema.sizes[i]
            assert np.array_equal(moved[u, v], moved[v, u].T)
            assert np.isclose(parts, ((first - second)[a, b] ** 2).sum(), rtol=1e-4, atol=1e-9)
