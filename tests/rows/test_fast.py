"""Fast counting: equal to the kernel's plain routine and to brute force, a sum over any split, whatever the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from sklar.kernel.cells import Cells
from sklar.kernel.count import Counts, count_plainly, no_counts
from sklar.machine.threads import using
from sklar.public.schema import Attribute, Schema
from sklar.rows import fast as counting
from sklar.rows import planes as kernels
from sklar.rows.encode import encode
from sklar.rows.fast import BitCounter, count


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


# Rows that are counted at a time where they do not come in batches.
PIECE = 1 << 16


def count_codes(codes: NDArray[np.int32], schema: Schema) -> Counts:
    """Codes counted by the compiled code, a piece at a time."""
    counter = BitCounter(schema)
    for start in range(0, codes.shape[1], PIECE):
        part = codes[:, start : start + PIECE]
        counter.begin(part.shape[1])
        for index, column in enumerate(part):
            counter.put_codes(index, column)
        for job in counter.jobs():
            job()
    return counter.counts()


def brute_force(codes: NDArray[np.int32], schema: Schema) -> Counts:
    """One row after the other."""
    cells, found = schema.cells, no_counts(schema.cells)
    for row in codes.T:
        for i, a in enumerate(row):
            if a >= 0:
                found.one_way[cells.offsets[i] + a] += 1
            for j in range(i + 1, len(row)):
                if a >= 0 and row[j] >= 0:
                    cells.table(found.pairs, i, j)[a, row[j]] += 1
    return Counts(n_rows=codes.shape[1], one_way=found.one_way, pairs=found.pairs)


def same(left: Counts, right: Counts) -> bool:
    return (
        left.n_rows == right.n_rows
        and np.array_equal(left.one_way, right.one_way)
        and np.array_equal(left.pairs, right.pairs)
    )


@given(case=coded())
@settings(max_examples=30, deadline=None)
def test_counts_equal_brute_force(case: tuple[Schema, NDArray[np.int32]]) -> None:
    schema, codes = case
    counts = count_codes(codes, schema)
    assert counts.one_way.dtype == np.int64
    assert counts.pairs.dtype == np.int32
    assert same(counts, brute_force(codes, schema))
    assert same(counts, count_plainly(codes, schema.cells))


@given(case=coded(), cuts=st.lists(st.integers(0, 30), max_size=4))
@settings(max_examples=40, deadline=None)
def test_any_split_gives_the_same_counts(case: tuple[Schema, NDArray[np.int32]], cuts: list[int]) -> None:
    schema, codes = case
    whole = count_codes(codes, schema)
    parts = [count_codes(part, schema) for part in np.split(codes, sorted(cuts), axis=1)]
    for order in (parts, parts[::-1]):
        assert same(sum(order, no_counts(schema.cells)), whole)


@given(case=coded(min_rows=1), data=st.data())
@settings(max_examples=30, deadline=None)
def test_replacing_a_row_moves_at_most_two_cells_of_each_table_by_one(
    case: tuple[Schema, NDArray[np.int32]], data: st.DataObject
) -> None:
    schema, codes = case
    row = data.draw(st.integers(0, codes.shape[1] - 1))
    other = codes.copy()
    other[:, row] = [data.draw(st.integers(-1, int(size) - 1)) for size in schema.sizes]
    before, after = count_codes(codes, schema), count_codes(other, schema)
    assert before.n_rows == after.n_rows
    cells = schema.cells
    one_way, pairs = np.abs(before.one_way - after.one_way), np.abs(before.pairs - after.pairs)
    for i in range(cells.n_attributes):
        own = one_way[cells.levels(i)]
        assert own.sum() <= 2
        assert own.max() <= 1
        for j in range(i + 1, cells.n_attributes):
            table = cells.table(pairs, i, j)
            assert table.sum() <= 2
            assert table.max() <= 1


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
    table = pl.DataFrame({"a0": ["0", "1", "x", "1"], "a1": [2, 2, 2, None]})
    batches = list(table.iter_slices(3))
    counts = count(batches, schema, progress=Watch())
    assert counts.n_rows == 4
    assert counts.one_way.tolist() == [1, 2, 0, 0, 3]
    assert counts.pairs.sum() == 2
    assert schema.cells.table(counts.pairs, 0, 1)[:, 2].tolist() == [1, 1]
    assert told == [3, 1]
    assert same(counts, sum((count_codes(encode(each, schema), schema) for each in batches), no_counts(schema.cells)))


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


# Every way to count gives the same counts.

WAYS: dict[str, dict[str, float]] = {
    "plainly": {"_PLAIN_WORK": np.inf},
    "plainly, then by size": {"_PLAIN_WORK": 60.0, "_PAIR_OVERHEAD": 0},
    "by size": {},
    "bits": {"_CELLS_ON_BITS": 10**9, "_LEVELS_PER_HISTOGRAM": 10**9},
    "histograms": {"_CELLS_ON_BITS": -(10**9)},
    "both": {"_CELLS_ON_BITS": 4, "_LEVELS_PER_HISTOGRAM": 10**9},
    "small tiles": {"_CELLS_ON_BITS": 10**9, "_TILE_LEVELS": 5, "_TILE_PARTNERS": 3},
    "small pieces": {"_HISTOGRAMS_AT_ONCE": 1, "_CELLS_ON_BITS": 4},
}


@contextmanager
def counted(way: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ({"_PLAIN_WORK": -1.0} | WAYS[way]).items():
            patch.setattr(counting, name, value)
        if way == "small pieces":
            patch.setitem(globals(), "PIECE", 64)
        yield


def by_products(codes: NDArray[np.int32], schema: Schema) -> Counts:
    """Another way: products of indicators."""
    indicators = np.concatenate(
        [row == np.arange(size)[:, None] for row, size in zip(codes, schema.sizes, strict=True)]
    )
    # Whole numbers far below 2^53: exact.
    products = (indicators.astype(np.float64) @ indicators.T.astype(np.float64)).astype(np.int64)
    return Counts(n_rows=codes.shape[1], one_way=np.diag(products), pairs=schema.cells.flat(products))


def drawn(sizes: list[int], rows: int, nowhere: float = 0.2) -> NDArray[np.int32]:
    rng = np.random.default_rng([rows, *sizes])
    codes = (rng.random((len(sizes), rows)) ** 2 * np.array(sizes)[:, None]).astype(np.int32)
    return np.where(rng.random(codes.shape) < nowhere, -1, codes).astype(np.int32)


def test_ways_are_different_ways() -> None:
    schema = schema_of([2, 3, 4])
    bits, histograms = {}, {}
    for way in WAYS:
        with counted(way):
            layout = counting._Layout(schema.cells)
            bits[way], histograms[way] = int(layout.on_bits.sum()), len(layout.histograms)
    assert bits == dict.fromkeys(WAYS, 3) | {"histograms": 0}
    assert histograms == dict.fromkeys(WAYS, 0) | {"histograms": 3, "both": 1, "small pieces": 1}


@pytest.mark.parametrize("way", WAYS)
def test_every_tail_of_a_word(way: str) -> None:
    sizes = [3, 2, 1, 5, 2, 2, 4, 2]
    schema = schema_of(sizes)
    with counted(way):
        for rows in [*range(131), 511, 512, 513, 575, 576, 577]:
            codes = drawn(sizes, rows)
            assert same(count_codes(codes, schema), by_products(codes, schema)), rows


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [253, 254, 255, 256, 257, 300, 301, 302])
def test_sizes_around_every_boundary(way: str, size: int) -> None:
    # 254 levels and none are the most that a byte holds; 301 levels beside two are the most that are counted on bits.
    sizes = [2, size, 3, 2]
    schema = schema_of(sizes)
    codes = drawn(sizes, 1_100)
    codes[1, :3] = [size - 1, 0, -1]
    with counted(way):
        assert same(count_codes(codes, schema), by_products(codes, schema))


@pytest.mark.parametrize("rows", [400, 200_000])
@pytest.mark.parametrize("size", [65_535, 65_536, 65_537])
def test_histograms_of_very_many_levels(rows: int, size: int) -> None:
    # Larger than a schema may be: the kernel on its own.
    codes = drawn([2, size], rows)
    codes[1, :2] = size - 1
    cells = Cells([2, size])
    counts = np.zeros(2 * size, dtype=np.int32)
    kernels.add_codes(codes + np.int32(1), rows, cells.sizes, cells.offsets, cells.strips, np.array([[0, 1]]), counts)
    both = (codes >= 0).all(axis=0)
    expected = np.bincount(codes[0, both] * size + codes[1, both], minlength=2 * size).reshape(2, size)
    assert cells.table(counts, 0, 1).tolist() == expected.tolist()


@given(
    sizes=st.lists(st.sampled_from([1, 2, 2, 2, 3, 7, 40, 300]), min_size=1, max_size=14),
    rows=st.integers(0, 700),
    nowhere=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    way=st.sampled_from(list(WAYS)),
)
@settings(max_examples=75, deadline=None)
def test_every_way_gives_the_same_counts(sizes: list[int], rows: int, nowhere: float, way: str) -> None:
    schema, codes = schema_of(sizes), drawn(sizes, rows, nowhere)
    with counted(way):
        assert same(count_codes(codes, schema), by_products(codes, schema))


@pytest.mark.parametrize("way", WAYS)
def test_many_rows(way: str) -> None:
    # More than one chunk of words, and more than one piece of rows.
    sizes = [2, 3, 2, 30, 2, 2, 2, 2, 2, 2]
    codes = drawn(sizes, 65_536 + 32_768 + 77, 0.01)
    schema = schema_of(sizes)
    with counted(way):
        assert same(count_codes(codes, schema), by_products(codes, schema))


def test_counts_pass_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell has 32 bits: a counter is left for another before its rows could fill one, and the sum is wider."""
    schema = schema_of([2, 2])
    ones = count_codes(np.ones((2, 3), dtype=np.int32), schema)
    many = Counts(n_rows=2**31 - 2, one_way=ones.one_way * 2**29, pairs=ones.pairs * np.int32(2**29))
    assert (many + ones).pairs.dtype == np.int64
    assert schema.cells.table((many + many).pairs, 0, 1)[1, 1] == 3 * 2**30
    assert (ones + ones).pairs.dtype == np.int32

    monkeypatch.setattr(counting, "_PLAIN_WORK", 0)
    monkeypatch.setattr(counting, "_MOST_ROWS", 7)
    made: list[BitCounter] = []

    def make(schema: Schema) -> BitCounter:
        made.append(BitCounter(schema))
        return made[-1]

    monkeypatch.setattr(counting, "BitCounter", make)
    batch = pl.DataFrame({"a0": [0, 1, 1], "a1": [1, 1, 1]})
    codes = encode(pl.concat([batch] * 5), schema)
    assert same(count([batch] * 5, schema), count_plainly(codes, schema.cells))
    assert [counter.n_rows for counter in made] == [6, 6, 3]


FLAGS = Schema(
    name="flags",
    attributes=(
        Attribute(name="a", kind="boolean"),
        Attribute(name="b", kind="boolean", missing="?"),
        Attribute(name="c", kind="boolean"),
        Attribute(name="d", kind="categorical", values=("x", "y", "z")),
    ),
)


@given(
    rows=st.integers(0, 200),
    cuts=st.lists(st.integers(0, 200), max_size=3),
    nulls=st.tuples(*[st.sampled_from([0.0, 0.0, 0.3])] * 4),
    way=st.sampled_from(list(WAYS)),
    threads=st.sampled_from([1, 2, 5]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_columns_of_booleans_wherever_they_are_cut(
    rows: int, cuts: list[int], nulls: tuple[float, ...], way: str, threads: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    columns = [rng.random(rows) < 0.4 for _ in range(3)] + [rng.choice(["x", "y", "z", "?"], rows)]
    whole = pl.DataFrame(
        [
            pl.Series(name, column.tolist()).scatter(np.flatnonzero(rng.random(rows) < share), None)
            for name, column, share in zip(FLAGS.names, columns, nulls, strict=True)
        ]
    )
    batches = [whole.slice(start, stop - start) for start, stop in pairwise(sorted([0, *cuts, rows]))]
    batches = [batch for batch in batches if batch.height or seed % 2]
    if seed % 3 == 0 and len(batches) > 1:
        # A batch in several pieces.
        batches = [pl.concat(batches, rechunk=False)]
    codes = np.concatenate([encode(batch, FLAGS) for batch in batches] or [np.empty((4, 0), dtype=np.int32)], axis=1)
    with counted(way), using(threads):
        assert same(count(batches, FLAGS), by_products(codes, FLAGS))


def test_booleans_are_not_unpacked_wherever_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise AssertionError

    schema = Schema(name="t", attributes=FLAGS.attributes[:3])
    values = np.random.default_rng(0).random((3, 1_003)) < 0.3
    batch = pl.DataFrame(dict(zip("abc", values, strict=True)))
    monkeypatch.setattr(counting, "encode_column", refuse)
    monkeypatch.setattr(counting, "_PLAIN_WORK", -1.0)
    for start, stop in ((16, 1_003), (0, 1_003), (3, 64), (13, 14), (7, 1_000)):
        expected = by_products(values[:, start:stop].astype(np.int32), schema)
        assert same(count([batch.slice(start, stop - start)], schema), expected)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_counts(threads: int) -> None:
    sizes = [2] * 150 + [3, 9, 70, 300]
    schema, codes = schema_of(sizes), drawn(sizes, 3_000, 0.01)
    batches = [
        pl.DataFrame(dict(zip(schema.names, codes[:, start : start + 700], strict=True)))
        for start in range(0, 3_000, 700)
    ]
    with using(threads):
        assert same(count(batches, schema), by_products(codes, schema))


def test_a_failure_while_reading_is_the_one_that_is_seen() -> None:
    def broken() -> Iterator[pl.DataFrame]:
        yield pl.DataFrame({"a0": [1]})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        count(broken(), schema_of([2]))


def test_small_tables_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of Adult's size stays below the work at which compiled code is loaded; a wide one does not."""

    def refuse(*_arguments: object) -> None:
        raise AssertionError("compiled code was loaded")

    monkeypatch.setattr(counting, "BitCounter", refuse)
    sizes = [16] * 14
    schema, codes = schema_of(sizes), drawn(sizes, 5_000)
    batch = pl.DataFrame(dict(zip(schema.names, codes, strict=True)))
    assert same(count([batch] * 6, schema), sum([count_plainly(codes, schema.cells)] * 6, no_counts(schema.cells)))
    wide = schema_of([2] * 300)
    with pytest.raises(AssertionError, match="compiled code was loaded"):
        count([pl.DataFrame({name: [1] for name in wide.names})], wide)


def test_a_code_out_of_range_is_in_no_cell() -> None:
    """Whatever an encoder says: compiled code writes where a code points to."""
    schema = schema_of([2, 3])
    wrong, right = np.array([[0, 7, -9, 1], [2, 2, 2, 3]]), np.array([[0, -1, -1, 1], [2, 2, 2, -1]])
    found = count_codes(wrong.astype(np.int32), schema)
    assert same(found, count_codes(right.astype(np.int32), schema))
