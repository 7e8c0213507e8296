"""The second pass: three-way tables of the same rows, by the same codes, in every way of counting."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from sklar.errors import DataError
from sklar.kernel.count import count_triples_plainly, score_plainly
from sklar.kernel.theorems import Budget
from sklar.kernel.triples import Triples
from sklar.kernel.vault import Vault
from sklar.public.person import Person
from sklar.public.schema import Attribute, Schema
from sklar.rows import triples as counting
from sklar.rows.engines import (
    CountedTable,
    LocalTable,
    hold_counts,
    measure_scores,
    measure_triples,
    open_table,
    takes_triples,
)
from sklar.rows.read import reads_again

SCHEMA = Schema(
    name="t",
    attributes=(
        Attribute(name="a", kind="categorical", values=tuple("uvwxyz")),
        Attribute(name="b", kind="integer", edges=tuple(range(0, 101, 10)), missing=""),
        Attribute(name="c", kind="boolean"),
        Attribute(name="d", kind="categorical", values=("p", "q", "r"), other=True),
    ),
)
CELLS = SCHEMA.cells
COARSE = np.concatenate(
    [np.array([0, 0, 1, 1, 2, 2]), np.arange(11) // 2 + (np.arange(11) == 10), [0, 1], [0, 1, 1, 2]]
)
TRIPLES = Triples(cells=CELLS, attributes=np.array([[0, 1, 2], [0, 2, 3], [1, 2, 3]]), coarse=COARSE)


def drawn(rows: int, seed: int = 0) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """Rows with values outside of every domain among them, and their codes."""
    generator = np.random.default_rng(seed)
    texts: tuple[list[str | None], ...] = (
        [*"uvwxyz", "?", None],
        ["5", "95", "45", "", None, "odd"],
        ["true", "false", "maybe"],
        ["p", "q", "r", "s"],
    )
    codes = [0, 1, 2, 3, 4, 5, -1, -1], [0, 9, 4, 10, 10, 10], [1, 0, -1], [0, 1, 2, 3]
    picked = [generator.integers(0, len(each), rows) for each in texts]
    frame = pl.DataFrame(
        {name: [own[i] for i in at] for name, own, at in zip(SCHEMA.names, texts, picked, strict=True)},
        schema=dict.fromkeys(SCHEMA.names, pl.String),
    )
    return frame, np.stack([np.array(own)[at] for own, at in zip(codes, picked, strict=True)])


def counted(table: CountedTable, schema: Schema = SCHEMA) -> NDArray[np.int64]:
    assert isinstance(table, LocalTable)
    table.count(schema)
    return table.count_triples(schema, TRIPLES)


@pytest.mark.parametrize("compiled", [False, True])
def test_every_way_gives_the_plain_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    if compiled:
        monkeypatch.setattr(counting, "_PLAIN_WORK", 1_000.0)
    frame, codes = drawn(3_000)
    wanted = count_triples_plainly(codes, TRIPLES)
    assert 0 < wanted.sum() < 3 * 3_000
    frame.write_csv(tmp_path / "t.csv")
    for part in range(3):
        (tmp_path / "parts").mkdir(exist_ok=True)
        frame[part * 1_000 : (part + 1) * 1_000].write_parquet(tmp_path / "parts" / f"{part}.parquet")
    for data in (frame, frame.to_pandas(), frame.to_arrow(), tmp_path / "t.csv", tmp_path / "parts"):
        assert (counted(open_table(data, SCHEMA)) == wanted).all()


def test_compiled_code_counts_as_the_plain_routine_does() -> None:
    """Random sizes, coarse levels, triples and codes, those of no level among them."""
    from contextlib import ExitStack

    for seed in range(20):
        generator = np.random.default_rng(seed)
        sizes = generator.integers(1, 30, generator.integers(3, 7))
        schema_cells = type(CELLS)(sizes)
        coarse = np.concatenate([generator.integers(0, 8, size) for size in sizes])
        every = np.array(list(combinations(range(sizes.size), 3)))
        triples = Triples(cells=schema_cells, attributes=every[generator.random(len(every)) < 0.7], coarse=coarse)
        codes = np.stack([generator.integers(-2, size + 2, 500) for size in sizes])
        with ExitStack() as stack:
            counter = counting.Counter(triples, stack)
            counter._work = 1e9
            for part in np.array_split(codes, 3, axis=1):
                counter.add(dict(enumerate(part)))
            assert (counter.counts == count_triples_plainly(codes, triples)).all()


def test_only_the_attributes_that_a_table_has_are_read() -> None:
    some = Triples(cells=CELLS, attributes=np.array([[0, 2, 3]]), coarse=COARSE)
    assert counting.columns_of(SCHEMA, some) == ("a", "c", "d")


def test_at_most_so_many_rows_of_a_person_are_counted(tmp_path: Path) -> None:
    frame, codes = drawn(600)
    person = Person(column="id", count="rows", rows_per_person=2)
    schema = Schema(name="t", attributes=SCHEMA.attributes, person=person)
    alone = frame.with_columns(id=pl.int_range(600))
    assert (counted(open_table(alone, schema), schema) == count_triples_plainly(codes, TRIPLES)).all()
    # One person with 600 equal rows: two of them count, whichever they are.
    same = pl.DataFrame({"a": ["u"] * 600, "b": ["5"] * 600, "c": ["true"] * 600, "d": ["p"] * 600, "id": [7] * 600})
    assert sorted(counted(open_table(same, schema), schema).tolist())[-4:] == [0, 2, 2, 2]


def test_a_table_that_changes_between_the_passes_is_refused(tmp_path: Path) -> None:
    frame, _ = drawn(50)
    frame.write_csv(tmp_path / "t.csv")
    table = open_table(tmp_path / "t.csv", SCHEMA)
    assert isinstance(table, LocalTable)
    table.count(SCHEMA)
    frame[:49].write_csv(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"^the table changed while it was read"):
        table.count_triples(SCHEMA, TRIPLES)


def test_what_can_be_read_again_is_a_public_fact(tmp_path: Path) -> None:
    frame, _ = drawn(5)
    frame.write_csv(tmp_path / "t.csv")
    for data in (
        frame,
        frame.to_pandas(),
        frame.to_arrow(),
        tmp_path,
        tmp_path / "t.csv",
        [tmp_path / "t.csv"],
        "s3://b/t",
    ):
        assert reads_again(data)
    arrow = frame.to_arrow()
    once = pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches())
    for data in (once, frame.lazy(), iter([]), "postgresql://h/d", tmp_path / "none"):
        assert not reads_again(data)
    assert takes_triples(open_table(tmp_path, SCHEMA))
    assert not takes_triples(open_table(tmp_path, SCHEMA, checkpoint=tmp_path / "c"))
    assert not takes_triples(open_table(once, SCHEMA))


def test_counts_leave_with_noise_alone() -> None:
    frame, codes = drawn(500)
    budget, scales = Budget(epsilon=1.0), np.full(3, 200.0)
    table, vault = open_table(frame, SCHEMA), Vault(budget)
    hold_counts(table, vault, SCHEMA)
    told: list[tuple[str, int | None]] = []

    class Watch:
        def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
            told.append((name, total))

        def advance(self, steps: int) -> None:
            del steps

    noisy = measure_triples(table, vault, SCHEMA, TRIPLES, scales, progress=Watch())
    z = (noisy.counts - count_triples_plainly(codes, TRIPLES)) / 200.0
    # Over 126 cells the mean square is known to 13%: six of them fail once in 10^8.
    assert np.mean(z**2) == pytest.approx(1.0, abs=0.78)
    assert told == [("count again", None)]
    assert budget.spent(vault.spent) == budget.spent(noisy.spend)


def test_scores_leave_with_noise_alone() -> None:
    frame, codes = drawn(500)
    every = Triples(cells=CELLS, attributes=np.stack(CELLS.trios, axis=1), coarse=COARSE)
    expected = np.random.default_rng(0).integers(0, 30, every.n_cells)
    table, vault = open_table(frame, SCHEMA), Vault(Budget(epsilon=1.0))
    hold_counts(table, vault, SCHEMA)
    exact = score_plainly(count_triples_plainly(codes, every), every, expected)
    noisy = measure_scores(table, vault, SCHEMA, every, expected, 100.0)
    z = (noisy.scores - exact) / 1_600
    # Four of them: one is beyond six once in 10^8, and all are below a thousandth once in 10^12.
    assert 1e-3 < np.abs(z).max() < 6
    assert vault.spent.scales.tolist() == [100.0]
    assert vault.spent.tables.tolist() == [len(every.attributes)]
