"""Counting: equal to brute force, a sum over any split, and the sensitivity that the privacy claim rests on."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from sklar.private.count import Counts, count, count_codes, merge, no_counts
from sklar.private.encode import encode
from sklar.schema import Attribute, Schema


def schema_of(sizes: list[int]) -> Schema:
    return Schema(
        name="t",
        attributes=tuple(
            Attribute(name=f"a{i}", kind="categorical", values=tuple(range(size))) for i, size in enumerate(sizes)
        ),
    )


@st.composite
def coded(draw: st.DrawFn, min_rows: int = 0) -> tuple[Schema, NDArray[np.int32]]:
    """A schema of 1 to 4 attributes, one level to 300, and codes, -1 among them."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 300]), min_size=1, max_size=4))
    rows = draw(st.integers(min_rows, 30))
    codes = [draw(st.lists(st.integers(-1, size - 1), min_size=rows, max_size=rows)) for size in sizes]
    return schema_of(sizes), np.array(codes, dtype=np.int32).reshape(len(sizes), rows)


def brute_force(codes: NDArray[np.int32], schema: Schema) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    d, offsets = schema.n_levels, schema.offsets
    one_way, pairs = np.zeros(d, dtype=np.int64), np.zeros((d, d), dtype=np.int64)
    for row in codes.T:
        for i, a in enumerate(row):
            if a >= 0:
                one_way[offsets[i] + a] += 1
            for j in range(i + 1, len(row)):
                if a >= 0 and row[j] >= 0:
                    pairs[offsets[i] + a, offsets[j] + row[j]] += 1
    return one_way, pairs


def same(left: Counts, right: Counts) -> bool:
    return (
        left.n_rows == right.n_rows
        and left.one_way.tolist() == right.one_way.tolist()
        and left.pairs.tolist() == right.pairs.tolist()
    )


@given(case=coded())
@settings(max_examples=60, deadline=None)
def test_counts_equal_brute_force(case: tuple[Schema, NDArray[np.int32]]) -> None:
    schema, codes = case
    counts = count_codes(codes, schema)
    one_way, pairs = brute_force(codes, schema)
    assert counts.n_rows == codes.shape[1]
    assert counts.one_way.dtype == counts.pairs.dtype == np.int64
    assert counts.one_way.tolist() == one_way.tolist()
    assert counts.pairs.tolist() == pairs.tolist()


@given(case=coded(), cuts=st.lists(st.integers(0, 30), max_size=4))
@settings(max_examples=40, deadline=None)
def test_any_split_gives_the_same_counts(case: tuple[Schema, NDArray[np.int32]], cuts: list[int]) -> None:
    schema, codes = case
    whole = count_codes(codes, schema)
    parts = [count_codes(part, schema) for part in np.split(codes, sorted(cuts), axis=1)]
    assert same(merge(parts, schema), whole)
    assert same(merge(reversed(parts), schema), whole)
    assert same(merge([], schema), no_counts(schema))


@given(case=coded(min_rows=1), data=st.data())
@settings(max_examples=60, deadline=None)
def test_replacing_a_row_moves_at_most_two_cells_of_each_table_by_one(
    case: tuple[Schema, NDArray[np.int32]], data: st.DataObject
) -> None:
    schema, codes = case
    row = data.draw(st.integers(0, codes.shape[1] - 1))
    other = codes.copy()
    other[:, row] = [data.draw(st.integers(-1, int(size) - 1)) for size in schema.sizes]
    before, after = count_codes(codes, schema), count_codes(other, schema)
    assert before.n_rows == after.n_rows
    one_way, pairs = np.abs(before.one_way - after.one_way), np.abs(before.pairs - after.pairs)
    blocks = [slice(start, stop) for start, stop in zip(schema.offsets, schema.offsets[1:], strict=False)]
    for i, rows in enumerate(blocks):
        assert one_way[rows].sum() <= 2
        assert one_way[rows].max() <= 1
        for columns in blocks[i + 1 :]:
            assert pairs[rows, columns].sum() <= 2
            assert pairs[rows, columns].max() <= 1


def test_the_bound_of_two_cells_is_reached_in_every_table() -> None:
    schema = schema_of([2, 2, 2])
    before, after = (count_codes(np.full((3, 1), code, dtype=np.int32), schema) for code in (0, 1))
    assert np.abs(before.one_way - after.one_way).sum() == 2 * 3
    assert np.abs(before.pairs - after.pairs).sum() == 2 * 3


def test_batches_are_encoded_and_summed_and_told_to_the_progress() -> None:
    told: list[int] = []

    class Watch:
        def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
            raise AssertionError(name)

        def advance(self, steps: int) -> None:
            told.append(steps)

    schema = schema_of([2, 3])
    table = pa.table({"a0": ["0", "1", "x", "1"], "a1": [2, 2, 2, None]})
    batches = table.to_batches(max_chunksize=3)
    counts = count(batches, schema, progress=Watch())
    assert counts.n_rows == 4
    assert counts.one_way.tolist() == [1, 2, 0, 0, 3]
    assert counts.pairs.sum() == 2
    assert counts.pairs[0, 4] == counts.pairs[1, 4] == 1
    assert told == [3, 1]
    assert same(counts, merge((count_codes(encode(batch, schema), schema) for batch in batches), schema))


def test_counts_print_no_number() -> None:
    counts = count_codes(np.zeros((2, 7), dtype=np.int32), schema_of([2, 2]))
    for text in (repr(counts), str(counts), f"{counts}", f"{[counts]}"):
        assert not any(character.isdigit() for character in text)


def test_counts_of_columns_cut_out_of_a_larger_array() -> None:
    codes = np.zeros((2, 10), dtype=np.int32)
    codes[:, 5:] = 1
    counts = count_codes(codes[:, ::2], schema_of([2, 2]))
    assert counts.one_way.tolist() == [3, 2, 3, 2]


@pytest.mark.parametrize("rows", [0, 1])
def test_one_attribute_has_no_pairs(rows: int) -> None:
    counts = count_codes(np.zeros((1, rows), dtype=np.int32), schema_of([3]))
    assert counts.one_way.tolist() == [rows, 0, 0]
    assert not counts.pairs.any()
