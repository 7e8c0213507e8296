"""The contract of engines: exact answers to every query, and equal rows, wherever they are counted and drawn.

Exact are those of `query.count`, the kernel's plain routine, on codes that the tests encode in one piece.
"""

from __future__ import annotations

import datetime as dt
import gzip
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from pyarrow import dataset

from sklar.budget.method import Method
from sklar.draw.blocks import BLOCK_ROWS
from sklar.draw.sample import BlockSampler
from sklar.errors import DataError, MissingExtraError
from sklar.files.model import Model
from sklar.kernel.queries import Common, Distances, Parities, Tables
from sklar.kernel.theorems import NOTHING, Budget
from sklar.kernel.vault import Vault
from sklar.machine.extras import Engine, choose_engine, is_spark, session
from sklar.machine.threads import using
from sklar.public.schema import Attribute, Schema
from sklar.public.settings import NullIds, Person
from sklar.release import fit
from sklar.rows import executors, read
from sklar.rows.count import Ask, Exact, ask_all, count, no_answers
from sklar.rows.encode import encode
from sklar.rows.engines import Measurer, open_table
from sklar.rows.read import open_source, reads_again
from sklar.rows.sql import Query
from tests.conftest import refuses
from tests.rows.test_count import answers_by, brute_force, same, schema_of, some_tables
from tests.rows.test_count import drawn as random_codes

SCHEMA = Schema.load(Path(__file__).with_name("engines.toml"))
CELLS = SCHEMA.cells
ASK = Ask(attributes=SCHEMA.attributes, tables=some_tables(CELLS, 0))
ENGINES = ["local", pytest.param("spark", marks=pytest.mark.spark)]
AGAIN = [*ENGINES, pytest.param("frame", marks=pytest.mark.spark), "database"]
WAYS = [*AGAIN, "stream", "checkpoint"]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "spark":
        request.getfixturevalue("spark")
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=WAYS)
def count_in(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Path, Ask, Schema], Exact]:
    """Counting a file or a folder by every engine: by path, as a stream, a DataFrame, a query; with a checkpoint."""
    way = request.param
    session = request.getfixturevalue("spark") if way in ("spark", "frame") else None

    def counted(path: Path, ask: Ask, schema: Schema = SCHEMA) -> Exact:
        data: Any = path
        if way in ("stream", "frame", "database"):
            kind = "parquet" if not path.is_file() else {".arrow": "ipc"}.get(path.suffix, path.suffix[1:])
            rows = dataset.dataset(path, format=kind, exclude_invalid_files=path.is_dir()).scanner()
            data = rows.to_reader()
        if session is not None and way == "frame":
            plain = [f"c{number}" for number in range(len(data.schema))]
            # Spark reads what is too large to be handed over by the driver.
            if rows.count_rows() > 1_000_000:
                frame = session.read.parquet(str(path))
            else:
                frame = session.createDataFrame(data.read_all().combine_chunks().rename_columns(plain))
            data = frame.repartition(3).toDF(*[field.name for field in data.schema])
        if way == "database":
            import duckdb

            with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
                connection.register("given", data)
                connection.execute("CREATE OR REPLACE TABLE t AS SELECT * FROM given")
            data = Query(tmp_path / "t.duckdb", "SELECT * FROM t")
        checkpoint = tmp_path / "kept" if way == "checkpoint" and path.is_dir() else None
        engine = way if way in ("local", "spark") else None
        return open_table(data, schema, engine=engine, checkpoint=checkpoint).count(ask)

    return counted


def table(rows: int, seed: int = 0) -> pa.Table:
    """Every type that Spark and Arrow share, with nulls, decimals, bytes, and values outside of the schema."""
    rng = np.random.default_rng(seed)

    def some(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([values[index] for index in rng.integers(0, len(values), rows)], kind)

    moments = [dt.datetime(year, 6, 1, 12) for year in (2019, 2020, 2021, 2023)]
    return pa.table(
        {
            "unused": some(["x"], pa.string()),
            "code": some([1, 2, 3, 4, None], pa.int16()),
            "city": some(["Bern", "Lugano", "a,b", "line\nbreak", 'say "hi"', "?", "", "Rome", None], pa.string()),
            "odd.name `x`": some([-5, 0, 9, 10, 25, 40, None], pa.int32()),
            "price": some([Decimal("0.01"), Decimal("1.50"), Decimal("99.50"), None], pa.decimal128(9, 2)),
            "born": some([dt.date(1960, 1, 1), dt.date(1989, 12, 31), dt.date(2000, 1, 1), None], pa.date32()),
            "seen": some([*moments, None], pa.timestamp("us")),
            "citizen": some([True, False, None], pa.bool_()),
        }
    )


def codes_of(rows: pa.Table) -> NDArray[np.int32]:
    return np.concatenate([encode(batch, SCHEMA) for batch in open_source(rows).batches(tuple(SCHEMA.columns))], axis=1)


def expected(rows: pa.Table) -> Exact:
    """All one-way and two-way tables, by the tests' own loop over rows."""
    return brute_force(codes_of(rows), SCHEMA)


def one_file(folder: Path, rows: pa.Table, row_group_size: int = 300, **options: Any) -> Path:
    pq.write_table(rows, folder / "t.parquet", row_group_size=row_group_size, **options)
    return folder / "t.parquet"


def skewed(folder: Path, rows: pa.Table) -> Path:
    """Shards of very unequal sizes, one without rows, one in a folder of its own."""
    shards = folder / "shards"
    (shards / "more").mkdir(parents=True)
    bounds = [0, 1, 1, 3, rows.num_rows - 10, rows.num_rows]
    for number, (first, last) in enumerate(pairwise(bounds)):
        home = shards / "more" if number == 4 else shards
        pq.write_table(rows.slice(first, last - first), home / f"{number}.parquet", compression="zstd")
    (shards / "_notes").write_text("not data")
    return shards


def orders(folder: Path, rows: pa.Table) -> Path:
    """Files whose columns stand in different orders."""
    shards, names = folder / "shards", rows.column_names
    shards.mkdir()
    for number in range(3):
        own = names[number:] + names[:number]
        pq.write_table(rows.select(own).slice(number * 1500, 1500), shards / f"{number}.parquet")
    return shards


def dictionaries(folder: Path, rows: pa.Table) -> Path:
    """Files with dictionary pages, with none, with few values in each, and with columns whose type is a dictionary."""
    shards, cut = folder / "shards", [rows.slice(first, 1100) for first in range(0, rows.num_rows, 1100)]
    shards.mkdir()
    pq.write_table(cut[0], shards / "0.parquet", use_dictionary=True)
    pq.write_table(cut[1], shards / "1.parquet", use_dictionary=False, version="1.0")
    pq.write_table(cut[2], shards / "2.parquet", use_dictionary=True, dictionary_pagesize_limit=16, data_page_size=64)
    # Without Arrow's own schema, which would bring dictionaries back.
    pq.write_table(cut[3], shards / "3.parquet", use_dictionary=["city"], store_schema=False, data_page_version="2.0")
    return shards


def single_rows(folder: Path, rows: pa.Table) -> Path:
    """Row groups of one row, a hundred of them, and one of the rest."""
    with pq.ParquetWriter(folder / "t.parquet", rows.schema) as writer:
        for row in range(100):
            writer.write_table(rows.slice(row, 1))
        writer.write_table(rows.slice(100))
    return folder / "t.parquet"


def arrow(folder: Path, rows: pa.Table) -> Path:
    with pa.OSFile(str(folder / "t.arrow"), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=700)
    return folder / "t.arrow"


LAYOUTS: dict[str, Callable[[Path, pa.Table], Path]] = {
    "file": one_file, "skewed": skewed, "orders": orders, "dictionaries": dictionaries,
    "no statistics": partial(one_file, row_group_size=1000, write_statistics=False, compression="none"),
    "single rows": single_rows, "arrow": arrow,
}  # fmt: skip


@pytest.fixture(scope="module")
def whole() -> tuple[pa.Table, Exact]:
    rows = table(4321)
    return rows, answers_by(codes_of(rows), ASK, compiled=False)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_answers_are_those_of_the_plain_routine(
    count_in: Callable[[Path, Ask], Exact],
    layout: str,
    whole: tuple[pa.Table, Exact],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Parts of a few rows, and tasks of a few parts.
    monkeypatch.setattr(read, "_LEAST_ROWS", 100)
    monkeypatch.setattr(read, "TASK_SECONDS", 1e-4)
    rows, wanted = whole
    assert same(count_in(LAYOUTS[layout](tmp_path, rows), ASK), wanted)


BITS = Schema(name="t", attributes=tuple(Attribute(name=f"a{i}", kind="boolean") for i in range(5)))


def test_every_query_of_bits_is_measured_by_every_engine(engine: Engine, tmp_path: Path) -> None:
    """Parities and distances in passes of their own: noise of a scale far below one leaves the exact answers."""
    codes = random_codes([2] * 5, 900, 0.1)
    values = [[None if code < 0 else bool(code) for code in column] for column in codes]
    pq.write_table(pa.table(dict(zip(BITS.names, values, strict=True))), tmp_path / "t.parquet")
    budget = Budget(epsilon=1e9, delta=1e-6)
    queries: list[tuple[Any, Any]] = [
        (Tables(cells=BITS.cells, order=0), np.array([2**-4])),
        (Parities(cells=BITS.cells, orders=3), np.full(3, 2**-4)),
        (Distances(of=Tables(cells=BITS.cells, order=3), reference=np.arange(80)), np.array([2**-4])),
        (Tables(cells=BITS.cells, order=3, sets=np.array([[0, 1, 4], [1, 2, 3]])), np.full(2, 2**-4)),
        (Distances(of=Tables(cells=BITS.cells, order=4), reference=np.arange(80)), np.array([2**-4])),
    ]
    vault = Vault(budget)
    measurer = Measurer(open_table(tmp_path / "t.parquet", BITS, engine=engine), vault, BITS, budget)
    assert measurer.reads_again
    measurer.count_all()
    spends = [query.bound(scales, budget) for query, scales in queries]
    vault.reserve(sum(spends, NOTHING))
    for query, scales in queries:
        # A scale of 1/16 is off by one once in 10^55.
        assert np.array_equal(measurer.measure(query, scales).values, query.count(codes))
    with pytest.raises(DataError, match="Common are not counted from the rows of one table"):
        measurer.measure(Common(about="a0", threshold=9), np.array([1.0]))


FOUND = Schema.from_toml(
    '[attributes.city]\ntype = "categorical"\ndomain = "private"\nat_most = 5\nmissing = "?"\n'
    '[attributes.code]\ntype = "integer"\ndomain = "private"\nlow = 0\nhigh = 3\nbins = 2\n'
)


@pytest.mark.parametrize("count_in", AGAIN, indirect=True)
def test_values_of_private_domains_are_those_of_the_plain_routine(
    count_in: Callable[[Path, Ask, Schema], Exact], tmp_path: Path
) -> None:
    rows = table(700)
    answers = count_in(skewed(tmp_path, rows), Ask(values=FOUND.attributes), FOUND)
    cities, codes = answers.values
    named = [None if city in (None, "", "?") else city for city in rows["city"].to_pylist()]
    assert dict(cities.texts) == Common(about="city", threshold=1).count(named)
    _, times = codes.values()
    held = Counter(min(code, 3) for code in rows["code"].to_pylist() if code is not None)
    assert int(times.sum()) == sum(held.values())
    assert answers.n_rows == 700


@pytest.mark.parametrize("count_in", [*AGAIN, "stream"], indirect=True)
def test_people_are_counted_by_every_engine(count_in: Callable[[Path, Ask, Schema], Exact], tmp_path: Path) -> None:
    """Where all rows of a person count nothing is left to chance; else as many rows as are paid for."""
    rows = table(900)
    rows = rows.append_column("id", pa.array([None if n % 50 == 0 else f"p{n % 90}" for n in range(900)]))
    choices: list[tuple[int, NullIds]] = [(999, "person"), (999, "drop"), (2, "person"), (2, "drop")]
    for most, null_ids in choices:
        person = Person(column="id", count="rows", rows_per_person=most, null_ids=null_ids)
        found = count_in(skewed(tmp_path / f"{most}{null_ids}", rows), ASK, replace(SCHEMA, person=person))
        kept = rows if null_ids == "person" else rows.filter(pa.compute.is_valid(rows["id"]))
        if most == 999:
            assert same(found, answers_by(codes_of(kept), ASK, compiled=False))
        else:
            times = Counter(own for own in rows["id"].to_pylist() if own is not None)
            none = kept["id"].null_count
            assert found.n_rows == none + sum(min(own, 2) for own in times.values())


@pytest.mark.slow
def test_a_row_group_of_ten_million_rows(count_in: Callable[[Path, Ask, Schema], Exact], tmp_path: Path) -> None:
    size, path = 10_000_000, tmp_path / "t.parquet"
    rng = np.random.default_rng(4)
    codes = np.stack([rng.integers(0, 2, size), rng.integers(0, 3, size)]).astype(np.int32)
    rows = pa.table({"citizen": codes[0].astype(bool), "code": codes[1] + 1})
    pq.write_table(rows, path, row_group_size=size)
    assert pq.read_metadata(path).num_row_groups == 1
    schema = Schema(name="t", attributes=(SCHEMA.attribute("citizen"), SCHEMA.attribute("code")))
    assert same(count_in(path, ask_all(schema), schema), answers_by(codes, ask_all(schema), compiled=False))


@pytest.mark.parametrize("packed", [False, True])
def test_text_files_are_read_alike(engine: Engine, packed: bool, tmp_path: Path) -> None:
    """Quotes, separators and line ends in values, ragged rows, bytes that are no text, an empty last value."""
    text = (
        b'city,born,"odd.name `x`",price,seen,citizen,code\r\n'
        b"Bern,1980-01-01,5,1.0,2020-02-02T10:00:00,true,1\r\n"
        b'"a,b",2000-01-01,15,2.5,2021-02-02T10:00:00,false,2\r\n'
        b'"line\nbreak",unknown,,0.5,,no,9\r\n'
        b'"say ""hi""",,29,1e1,2020-12-31,yes,\r\n'
        b"Lugano,1980-01-01,5\r\n"
        b"Lugano,1980-01-01,5,1.0,2020-02-02T10:00:00,true,1,too,many\r\n"
        b' Bern ,1980-01-01, 5 ,"",2020-02-02T10:00:00,TRUE,3\r\n'
    ) + b"B\xffrn,1980-01-01,5,1.0,2020-02-02T10:00:00,true,1\r\n"
    folder = tmp_path / "shards"
    folder.mkdir()
    half = text.index(b"Lugano")
    header = text[: text.index(b"\r\n") + 2]
    for name, part in (("a.csv", text[:half]), ("b.csv", header + text[half:])):
        (folder / f"{name}{'.gz' * packed}").write_bytes(gzip.compress(part) if packed else part)
    counts = open_table(folder, SCHEMA, engine=engine).count(ask_all(SCHEMA))
    # A ragged row is a row of unknown values.
    codes = [
        [0, 2, 3, 4, 5, 5, 5, 5], [0, 1, 3, 2, 3, 3, 0, 0], [0, 1, 0, 1, -1, -1, -1, 0], [0, 1, 2, 2, 2, 2, 0, 0],
        [0, 1, -1, 0, -1, -1, 0, 0], [0, 0, -1, 0, -1, -1, 0, 0], [6, 1, -1, 3, -1, -1, 6, 6],
        [1, 0, 0, 1, -1, -1, 1, 1], [0, 1, 3, 3, 3, 3, 2, 0],
    ]  # fmt: skip
    assert same(counts, answers_by(np.array(codes, dtype=np.int32), ask_all(SCHEMA), compiled=False))


def test_a_table_without_rows_has_no_counts(engine: Engine, tmp_path: Path) -> None:
    counts = open_table(one_file(tmp_path, table(0)), SCHEMA, engine=engine).count(ask_all(SCHEMA))
    assert same(counts, no_answers(ask_all(SCHEMA)))


def test_a_column_that_is_not_there_is_named(engine: Engine, tmp_path: Path) -> None:
    path = one_file(tmp_path, table(3).drop_columns(["citizen"]))
    refuses("has no column for 'citizen'", fit, path, SCHEMA, epsilon=1.0, engine=engine, error=DataError)


def test_a_path_that_is_not_there(engine: Engine, tmp_path: Path) -> None:
    refuses("does not exist", open_table, tmp_path / "nothing.parquet", SCHEMA, engine=engine, error=DataError)


def test_threads_change_nothing(tmp_path: Path) -> None:
    rows = table(2000)
    path = skewed(tmp_path, rows)
    for threads in (1, 2, 5):
        with using(threads):
            assert same(open_table(path, SCHEMA, engine="local").count(ask_all(SCHEMA)), expected(rows))


def drawn(engine: Engine, model: Model, rows: int, seed: int) -> pl.DataFrame:
    if engine == "local":
        # In an order of its own.
        sampler = BlockSampler(model.copula, seed, shapes=model.shapes)
        parts = [sampler.draw(block) for block in reversed(list(sampler.blocks(rows)))]
        return pl.concat(reversed(parts))
    from sklar.files.spark import sample_on_spark

    there = pl.from_arrow(sample_on_spark(model, rows, seed=seed).toArrow())
    assert isinstance(there, pl.DataFrame)
    return there.cast(model.columns)


@pytest.mark.parametrize("method", ["mixture", "binary", "dummies"])
def test_blocks_are_the_same_rows_wherever_they_are_drawn(engine: Engine, method: str) -> None:
    chosen = Method(name="binary", dummies=True) if method == "dummies" else Method.of(method)
    model = fit(table(3000, seed=1), SCHEMA, epsilon=5.0, method=chosen)
    rows = 3 * BLOCK_ROWS + 77
    found = drawn(engine, model, rows, 7)
    assert found.equals(model.sample(rows, seed=7))
    assert not found.equals(model.sample(rows, seed=8))


def test_the_engine_is_chosen_by_what_is_given() -> None:
    assert choose_engine(None, table(1)) == choose_engine(None, "x.csv") == "local"
    assert choose_engine("spark", "x.csv") == "spark"
    assert not is_spark(table(1))
    with pytest.raises(DataError, match=r"engine must be one of local, spark, got 'dask'\."):
        choose_engine("dask", "x.csv")  # type: ignore[arg-type]


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    refuses(r"needs PySpark 4 and Java 17: pip install 'sklar\[spark\]'", session, error=MissingExtraError)


def test_spark_takes_no_checkpoint_and_only_paths_and_its_own_tables(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a checkpoint is for engine 'local', got engine 'spark'"):
        open_table("x.parquet", SCHEMA, engine="spark", checkpoint=tmp_path)
    with pytest.raises(DataError, match="takes a path or a Spark DataFrame, got Table"):
        open_table(table(1), SCHEMA, engine="spark")


def test_a_table_that_changes_between_passes_is_refused(tmp_path: Path) -> None:
    opened = open_table(one_file(tmp_path, table(50)), SCHEMA)
    opened.count(ask_all(SCHEMA))
    one_file(tmp_path, table(49))
    refuses(r"^the table changed while it was read", opened.count, ask_all(SCHEMA), error=DataError)


def test_what_can_be_read_again_is_a_public_fact(tmp_path: Path) -> None:
    arrow = table(5)
    frame, path = pl.DataFrame(arrow), one_file(tmp_path, arrow)
    query = Query("t.duckdb", "SELECT * FROM t")
    for data in (frame, frame.to_pandas(), arrow, tmp_path, path, [path], "s3://b/t", query):
        assert reads_again(data)
    assert not reads_again(Query("t.duckdb", "SELECT * FROM t USING SAMPLE 10%"))
    assert not reads_again(Query("postgresql://h/d", "SELECT * FROM t"))
    once = pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches())
    for data in (once, frame.lazy(), iter([]), "postgresql://h/d", tmp_path / "none"):
        assert not reads_again(data)
    assert open_table(path, SCHEMA).reads_again
    assert not open_table(tmp_path, SCHEMA, checkpoint=tmp_path / "c").reads_again
    assert not open_table(once, SCHEMA).reads_again


def test_pieces_of_parts_add_up_in_any_order_and_however_often_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "RUN", 7)
    ask, codes = ask_all(schema_of([3, 4, 2])), random_codes([3, 4, 2], 300)
    parts = [answers_by(each, ask, compiled=False) for each in np.array_split(codes, 5, axis=1)]
    pieces = [piece for number, part in enumerate(parts) for piece in executors.cut(part, number)]
    order = np.random.default_rng(2).permutation(len(pieces)).tolist()
    mixed = [pieces[at] for at in order] + pieces[:4]
    # Two places where pieces meet, by their runs.
    added = [piece for place in (0, 1) for piece in executors.add(p for p in mixed if p[0] % 2 == place)]
    assert len(added) > 3
    assert same(executors.join(added, ask, 5), answers_by(codes, ask, compiled=False))
    assert executors.join([], ask).n_rows == 0
    for lacking in (pieces[1:], pieces[: -len(added)], []):
        with pytest.raises(DataError, match=r"partial counts do not add up\. Nothing was released\. Run it again"):
            executors.join(list(executors.add(lacking)), ask, 5)


def test_more_rows_than_four_bytes_hold() -> None:
    ask = ask_all(schema_of([2, 2]))
    large, larger = (Exact(n_rows=n, tables=(np.full(4, n // 2), np.full(4, n // 4))) for n in (2**40, 2**41))
    added = list(executors.add([*executors.cut(large, 0), *executors.cut(large, 1)]))
    assert same(executors.join(added, ask, 2), larger)


def test_histograms_of_parts_add_up_to_those_of_the_table() -> None:
    rows, ask = pl.DataFrame(table(200)).select("city", "code"), Ask(values=FOUND.attributes)
    whole = count([rows], ask)
    parts = [count([ask.prepare(part)], replace(ask, chosen=True)) for part in rows.iter_slices(45)]
    pieces = [piece for number, part in enumerate(parts) for piece in executors.cut(part, number)]
    added = [piece for key in range(3) for piece in executors.add(p for p in pieces * 2 if p[0] == key)]
    found = executors.join(added, ask, 5)
    assert found.n_rows == whole.n_rows == 200
    assert all(one.frame().equals(other.frame()) for one, other in zip(found.values, whole.values, strict=True))
    refuses("do not add up", executors.join, added[1:], ask, 5, error=DataError)
