"""Counting: every way gives what the kernel's plain routine gives, for every query, over any split of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations, pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from sklar.kernel.cells import Cells
from sklar.kernel.queries import Tables
from sklar.machine.threads import using
from sklar.public.schema import Attribute, Schema
from sklar.rows import count as counting
from sklar.rows import planes as kernels
from sklar.rows.count import Ask, Counter, Exact, ask_all, count, no_answers
from sklar.rows.encode import encode

Codes = NDArray[np.int32]
# Rows that are counted at a time where they do not come in batches.
PIECE = 1 << 16


class Told:
    """A progress that keeps the totals of stages and the steps that it is told."""

    def __init__(self) -> None:
        self.totals: list[int | None] = []
        self.steps: list[int] = []

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        self.totals.append(total)

    def advance(self, steps: int) -> None:
        self.steps.append(steps)


def schema_of(sizes: Sequence[int]) -> Schema:
    return Schema(
        name="t",
        attributes=tuple(
            Attribute(name=f"a{i}", kind="categorical", values=tuple(range(size))) for i, size in enumerate(sizes)
        ),
    )


def some_tables(cells: Cells, seed: int) -> tuple[Tables, ...]:
    """All orders: all sets and some of them, over levels and coarser ones."""
    rng, m = np.random.default_rng(seed), cells.n_attributes
    coarse = np.concatenate([np.minimum(rng.integers(0, 9, size), size - 1) for size in cells.sizes.tolist()])
    asked = [Tables(cells=cells, order=order) for order in range(min(m, 3) + 1) if order < 3 or cells.sizes.max() < 20]
    for order in range(1, min(m, 3) + 1):
        every = np.array(list(combinations(range(m), order)))
        asked.append(Tables(cells=cells, order=order, sets=every[rng.random(len(every)) < 0.6], coarse=coarse))
    return tuple(asked)


def answers_by(codes: Codes, ask: Ask, *, compiled: bool = True) -> Exact:
    """Codes counted by compiled code, a piece at a time, or by the kernel's plain routine."""
    if not compiled:
        return Exact(n_rows=codes.shape[1], tables=tuple(table.count(codes) for table in ask.tables))
    counter = Counter(ask)
    for start in range(0, codes.shape[1], PIECE):
        part = codes[:, start : start + PIECE]
        counter.begin(part.shape[1])
        for index in ask.used:
            counter.put_codes(index, part[index])
        for job in counter.jobs():
            job()
    return counter.answers()


def brute_force(codes: Codes, schema: Schema) -> Exact:
    """One row after the other."""
    cells, found = schema.cells, no_answers(ask_all(schema))
    for row in codes.T:
        for i, a in enumerate(row):
            if a >= 0:
                found.one_way[cells.offsets[i] + a] += 1
            for j in range(i + 1, len(row)):
                if a >= 0 and row[j] >= 0:
                    cells.table(found.pairs, i, j)[a, row[j]] += 1
    return Exact(n_rows=codes.shape[1], tables=found.tables)


def same(left: Exact, right: Exact) -> bool:
    return left.n_rows == right.n_rows and all(map(np.array_equal, left.tables, right.tables))


def drawn(sizes: Sequence[int], rows: int, nowhere: float = 0.2) -> Codes:
    rng = np.random.default_rng([rows, *sizes])
    codes = (rng.random((len(sizes), rows)) ** 2 * np.array(sizes)[:, None]).astype(np.int32)
    return np.where(rng.random(codes.shape) < nowhere, -1, codes).astype(np.int32)


# Ways to count. Public sizes alone choose among them.
WAYS: dict[str, dict[str, float]] = {
    "by size": {},
    "bits": {"_CELLS_ON_BITS": 10**9, "_LEVELS_PER_HISTOGRAM": 10**9, "_THREES_ON_BITS": 10**9},
    "histograms": {"_CELLS_ON_BITS": -(10**9), "_THREES_ON_BITS": 0},
    "both": {"_CELLS_ON_BITS": 4, "_LEVELS_PER_HISTOGRAM": 10**9, "_THREES_ON_BITS": 8},
    "small tiles": {"_CELLS_ON_BITS": 10**9, "_TILE_LEVELS": 5, "_TILE_PARTNERS": 3},
    "small pieces": {"_TABLES_AT_ONCE": 1, "_CELLS_ON_BITS": 4},
    "plainly, then by size": {"_PLAIN_WORK": 60.0, "_TABLE_OVERHEAD": 0},
}


@contextmanager
def counted(way: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ({"_PLAIN_WORK": -1.0} | WAYS[way]).items():
            patch.setattr(counting, name, value)
        if way == "small pieces":
            patch.setitem(globals(), "PIECE", 64)
        yield


def assert_plain(codes: Codes, tables: tuple[Tables, ...], way: str = "by size") -> None:
    """Compiled code gives the plain answers."""
    ask = Ask(attributes=schema_of(tables[0].cells.sizes.tolist()).attributes, tables=tables)
    with counted(way):
        assert same(answers_by(codes, ask), answers_by(codes, ask, compiled=False)), codes.shape


def test_ways_are_different_ways() -> None:
    cells = Cells([2, 3, 4])
    on_bits = {}
    for way in WAYS:
        with counted(way):
            layout = counting._Pairs(None, cells, np.zeros(cells.n_cells, dtype=np.int32))
            own = layout.include(np.stack(cells.pairs, axis=1))
            on_bits[way] = (int((layout.reach > 0).sum()), int((~own).sum()))
    assert on_bits == dict.fromkeys(WAYS, (3, 0)) | {"histograms": (0, 3), "both": (3, 1), "small pieces": (3, 1)}


@given(
    sizes=st.lists(st.sampled_from([1, 2, 2, 2, 3, 7, 40, 300]), min_size=1, max_size=9),
    rows=st.integers(0, 700),
    nowhere=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    way=st.sampled_from(list(WAYS)),
    seed=st.integers(0, 99),
)
@settings(max_examples=90, deadline=None)
def test_every_way_gives_the_plain_answers(sizes: list[int], rows: int, nowhere: float, way: str, seed: int) -> None:
    schema, codes = schema_of(sizes), drawn(sizes, rows, nowhere)
    ask = Ask(attributes=schema.attributes, tables=some_tables(schema.cells, seed))
    with counted(way):
        assert same(answers_by(codes, ask), answers_by(codes, ask, compiled=False))
        if rows:
            batches = pl.DataFrame(dict(zip(schema.names, codes, strict=True))).iter_slices(150)
            assert same(count(batches, ask), answers_by(codes, ask, compiled=False))


@given(
    sizes=st.lists(st.sampled_from([1, 2, 3, 300]), min_size=1, max_size=4),
    rows=st.integers(0, 30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
)
@settings(max_examples=40, deadline=None)
def test_any_split_gives_the_answers_of_brute_force(sizes: list[int], rows: int, cuts: list[int]) -> None:
    schema, codes = schema_of(sizes), drawn(sizes, rows)
    whole = brute_force(codes, schema)
    parts = [answers_by(part, ask_all(schema)) for part in np.split(codes, sorted(cuts), axis=1)]
    for order in (parts, parts[::-1]):
        total = no_answers(ask_all(schema))
        for part in order:
            total = total + Exact(n_rows=part.n_rows, tables=tuple(each.copy() for each in part.tables))
        assert same(total, whole)


@pytest.mark.parametrize("way", WAYS)
def test_every_tail_of_a_word(way: str) -> None:
    sizes = [3, 2, 1, 5, 2, 2, 4]
    tables = tuple(Tables(cells=Cells(sizes), order=order) for order in (1, 2, 3, 4))
    for rows in [*range(0, 131, 2), 63, 65, 511, 512, 513, 575, 577]:
        assert_plain(drawn(sizes, rows), tables, way)


@pytest.mark.parametrize("way", ["by size", "bits", "histograms"])
@pytest.mark.parametrize("size", [253, 254, 255, 256, 301, 302])
def test_sizes_around_every_boundary(way: str, size: int) -> None:
    # 254 levels and none are the most that a byte holds; 301 levels beside two are the most that are counted on bits.
    cells, codes = Cells([2, size, 3, 2]), drawn([2, size, 3, 2], 1_100)
    codes[1, :3] = [size - 1, 0, -1]
    assert_plain(codes, (Tables(cells=cells, order=2), Tables(cells=cells, order=3, sets=np.array([[0, 1, 3]]))), way)


@pytest.mark.parametrize("rows", [400, 200_000])
@pytest.mark.parametrize("size", [65_535, 65_537])
def test_histograms_of_very_many_levels(rows: int, size: int) -> None:
    # Larger than a schema may be: the kernel on its own.
    codes = drawn([2, size], rows)
    codes[1, :2] = size - 1
    counts = np.zeros(2 * size, dtype=np.int32)
    kernels.add_codes(codes + np.int32(1), rows, np.array([[0, 1]]), np.array([[2, size]]), np.array([0]), counts)
    assert np.array_equal(counts, Tables(cells=Cells([2, size]), order=2).count(codes))


@pytest.mark.parametrize("way", WAYS)
def test_many_rows(way: str) -> None:
    # More than one chunk of words, and more than one piece of rows.
    sizes = [2, 3, 2, 30, 2, 2, 2]
    assert_plain(drawn(sizes, 65_536 + 32_768 + 77, 0.01), some_tables(Cells(sizes), 1), way)


def test_only_the_attributes_that_a_table_has_are_read() -> None:
    schema = schema_of([2, 3, 2, 4])
    tables = Tables(cells=schema.cells, order=3, sets=np.array([[0, 2, 3]]))
    ask = Ask(attributes=schema.attributes, tables=(tables,))
    assert ask.columns == ("a0", "a2", "a3")
    codes = drawn([2, 3, 2, 4], 50)
    batch = pl.DataFrame({name: codes[index] for index, name in zip(ask.used, ask.columns, strict=True)})
    for plain in (1e9, -1.0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(counting, "_PLAIN_WORK", plain)
            assert np.array_equal(count([batch], ask).tables[0], tables.count(codes))


def test_batches_are_summed_and_told_to_the_progress() -> None:
    schema = schema_of([2, 3])
    table = pl.DataFrame({"a0": ["0", "1", "x", "1"], "a1": [2, 2, 2, None]})
    told = Told()
    answers = count(table.iter_slices(3), ask_all(schema), progress=told)
    assert (answers.n_rows, told.steps, told.totals) == (4, [3, 1], [])
    assert answers.one_way.tolist() == [1, 2, 0, 0, 3]
    assert schema.cells.table(answers.pairs, 0, 1).tolist() == [[0, 0, 1], [0, 0, 1]]


def test_answers_print_no_number() -> None:
    answers = answers_by(np.zeros((2, 7), dtype=np.int32), ask_all(schema_of([2, 2])))
    for text in (repr(answers), str(answers), f"{[answers]}"):
        assert not any(character.isdigit() for character in text)


def test_counts_pass_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell has 32 bits: a counter is left for another before its rows could fill one, and the sum is wider."""
    schema = schema_of([2, 2])
    ask = ask_all(schema)

    def ones(times: int = 1) -> Exact:
        found = answers_by(np.ones((2, 3), dtype=np.int32), ask)
        return Exact(n_rows=3 * times, tables=(found.one_way * times, found.pairs * np.int32(times)))

    many = ones(2**29)
    assert many.pairs.dtype == (ones() + ones()).pairs.dtype == np.int32
    assert schema.cells.table((many + ones(2**29)).pairs, 0, 1)[1, 1] == 3 * 2**30

    monkeypatch.setattr(counting, "_PLAIN_WORK", 0)
    monkeypatch.setattr(counting, "_MOST_ROWS", 7)
    made: list[Counter] = []

    def make(ask: Ask) -> Counter:
        made.append(Counter(ask))
        return made[-1]

    monkeypatch.setattr(counting, "Counter", make)
    batch = pl.DataFrame({"a0": [0, 1, 1], "a1": [1, 1, 1]})
    codes = encode(pl.concat([batch] * 5), schema)
    assert same(count([batch] * 5, ask), answers_by(codes, ask, compiled=False))
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
    tables: tuple[Any, ...] = ask_all(FLAGS).tables
    if seed % 2:
        tables += (Tables(cells=FLAGS.cells, order=3, sets=np.array([[0, 1, 3]])),)
    ask = Ask(attributes=FLAGS.attributes, tables=tables)
    with counted(way), using(threads):
        assert same(count(batches, ask), answers_by(codes, ask, compiled=False))


def test_booleans_are_not_unpacked_wherever_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise AssertionError

    schema = Schema(name="t", attributes=FLAGS.attributes[:3])
    values = np.random.default_rng(0).random((3, 1_003)) < 0.3
    batch = pl.DataFrame(dict(zip("abc", values, strict=True)))
    monkeypatch.setattr(counting, "encode_column", refuse)
    monkeypatch.setattr(counting, "_PLAIN_WORK", -1.0)
    for start, stop in ((16, 1_003), (0, 1_003), (3, 64), (13, 14), (7, 1_000)):
        plain = answers_by(values[:, start:stop].astype(np.int32), ask_all(schema), compiled=False)
        assert same(count([batch.slice(start, stop - start)], ask_all(schema)), plain)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_counts(threads: int) -> None:
    sizes = [2] * 150 + [3, 9, 70, 300]
    schema, codes = schema_of(sizes), drawn(sizes, 3_000, 0.01)
    batches = pl.DataFrame(dict(zip(schema.names, codes, strict=True))).iter_slices(700)
    with using(threads):
        assert same(count(batches, ask_all(schema)), answers_by(codes, ask_all(schema), compiled=False))


def test_a_failure_while_reading_is_the_one_that_is_seen() -> None:
    def broken() -> Iterator[pl.DataFrame]:
        yield pl.DataFrame({"a0": [1]})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        count(broken(), ask_all(schema_of([2])))


def test_small_tables_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of Adult's size stays below the work at which compiled code is loaded; a wide one does not."""

    def refuse(*_arguments: object) -> None:
        raise AssertionError("compiled code was loaded")

    monkeypatch.setattr(counting, "Counter", refuse)
    schema, codes = schema_of([16] * 14), drawn([16] * 14, 5_000)
    batch = pl.DataFrame(dict(zip(schema.names, codes, strict=True)))
    assert count([batch] * 6, ask_all(schema)).n_rows == 30_000
    wide = schema_of([2] * 300)
    with pytest.raises(AssertionError, match="compiled code was loaded"):
        count([pl.DataFrame({name: [1] for name in wide.names})], ask_all(wide))


def test_a_code_out_of_range_is_in_no_cell() -> None:
    """Whatever an encoder says: compiled code writes where a code points to."""
    schema = schema_of([2, 3, 2])
    ask = Ask(attributes=schema.attributes, tables=some_tables(schema.cells, 0))
    wrong = np.array([[0, 7, -9, 1], [2, 2, 2, 3], [1, 1, 9, 0]], dtype=np.int32)
    right = np.array([[0, -1, -1, 1], [2, 2, 2, -1], [1, 1, -1, 0]], dtype=np.int32)
    assert same(answers_by(wrong, ask), answers_by(right, ask, compiled=False))


def test_counts_of_columns_cut_out_of_a_larger_array() -> None:
    codes = np.zeros((2, 10), dtype=np.int32)
    codes[:, 5:] = 1
    assert answers_by(codes[:, ::2], ask_all(schema_of([2, 2]))).one_way.tolist() == [3, 2, 3, 2]
