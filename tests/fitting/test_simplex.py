from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sklar.fitting.simplex import project, project_levels, scale_levels
from sklar.kernel.cells import Cells


@settings(max_examples=100, deadline=None)
@given(arrays(np.float64, st.integers(1, 12), elements=st.floats(-3, 3)), st.floats(0.01, 5))
def test_the_projection_is_the_nearest_point(point: np.ndarray, total: float) -> None:
    projected = project(point, total)
    assert (projected >= 0).all()
    assert projected.sum() == pytest.approx(total)
    # The optimality condition of a projection onto a convex set, at its corners.
    assert ((point - projected) @ (total * np.eye(point.size) - projected).T <= 1e-9).all()


def test_a_sum_of_zero_leaves_nothing() -> None:
    sums = np.array([[0.0], [2.0]])
    assert project(np.array([[3.0, -1.0], [3.0, -1.0]]), sums).tolist() == [[0.0, 0.0], [2.0, 0.0]]


def test_projection_takes_every_attribute_alone() -> None:
    levels = np.random.default_rng(0).normal(0.3, 0.5, 9)
    parts = [project(levels[first:last]) for first, last in ((0, 3), (3, 5), (5, 8), (8, 9))]
    assert np.allclose(project_levels(levels, Cells([3, 2, 3, 1])), np.concatenate(parts))


def test_scaling_takes_every_attribute_alone() -> None:
    assert scale_levels(np.array([[1.0, 3.0, 5.0]]), Cells([2, 1])).tolist() == [[0.25, 0.75, 1.0]]
