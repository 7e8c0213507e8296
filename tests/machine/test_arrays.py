"""Arrow arrays of NumPy's memory say what pyarrow's own would."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklar.machine.arrays import array, filled, held, strings, validity

KINDS = [np.bool_, np.int8, np.uint16, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100])
def test_arrays_are_those_of_pyarrow(kind: type[np.generic], size: int) -> None:
    generator = np.random.Generator(np.random.PCG64(size))
    values, mask = generator.integers(0, 2, size).astype(kind), generator.random(size) < 0.3
    for nulls in (None, mask):
        made = array(values, nulls)
        made.validate(full=True)
        assert made.equals(pa.array(values, mask=nulls))
        assert np.array_equal(filled(made), values if nulls is None else np.where(mask, 0, values).astype(kind))
    assert held(array(values)).dtype == kind
    assert np.array_equal(held(array(values)), values)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", [0, 1, 8, 13])
def test_slices_hold_their_own_part(kind: type[np.generic], start: int) -> None:
    values = np.arange(40).astype(kind)
    assert np.array_equal(held(array(values)[start:30]), values[start:30])
    mask = np.arange(40) % 3 == 0
    part = array(values, mask)[start:30]
    assert np.array_equal(filled(part), np.where(mask, 0, values).astype(kind)[start:30])


def test_values_that_are_not_side_by_side_are_copied() -> None:
    assert array(np.arange(10)[::3]).to_pylist() == [0, 3, 6, 9]


@given(st.lists(st.text()))
def test_strings_come_back(values: list[str]) -> None:
    made = strings(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, type=pa.string()))


def test_a_column_without_nulls_needs_no_validity() -> None:
    assert validity(None) is None
