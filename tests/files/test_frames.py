"""What people hold comes in and comes back: every library, every type and every kind of attribute."""

from __future__ import annotations

import datetime as dt
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sklar
from sklar.custodian.draft import draft
from sklar.draw.decode import Decoder
from sklar.errors import MissingExtraError, ModelError
from sklar.files.model import Model
from sklar.files.write import arrow_schema, check_library, to_arrow, to_library, write_frames
from sklar.public.schema import Schema
from sklar.rows.encode import encode
from sklar.rows.read import open_source

ROWS = 60
MOMENT = dt.datetime(2020, 6, 1, 12, tzinfo=dt.UTC)


class Case(NamedTuple):
    """A column's values, and its type in each library."""

    values: list[Any]
    arrow: pa.DataType
    pandas: str
    polars: Any
    duckdb: str


CASES = {
    "nullable integer": Case([1, 2, None], pa.int32(), "Int32", pl.Int32, "INTEGER"),
    "integer": Case([1, 200, 3], pa.uint8(), "uint8", pl.UInt8, "UTINYINT"),
    "real": Case([1.5, 2.25, None], pa.float64(), "float64", pl.Float64, "DOUBLE"),
    "single": Case([1.5, 2.25, 3.0], pa.float32(), "float32", pl.Float32, "FLOAT"),
    "category": Case(["b", "a", None], pa.dictionary(pa.int32(), pa.string()), "category", pl.Categorical, "VARCHAR"),
    "boolean": Case([True, False, None], pa.bool_(), "boolean", pl.Boolean, "BOOLEAN"),
    "date": Case([dt.date(2020, 1, 1), dt.date(2021, 2, 3), None], pa.date32(), "object", pl.Date, "DATE"),
    "timestamp": Case(
        [MOMENT.replace(tzinfo=None)] * 3, pa.timestamp("ns"), "datetime64[ns]", pl.Datetime("ns"), "TIMESTAMP_NS"
    ),
    "zoned": Case(
        [MOMENT, MOMENT + dt.timedelta(days=40), None],
        pa.timestamp("us", "Europe/Berlin"),
        "datetime64[us, Europe/Berlin]",
        pl.Datetime("us", "Europe/Berlin"),
        "TIMESTAMP WITH TIME ZONE",
    ),
    "decimal": Case(
        [Decimal("0.10"), Decimal("19.99"), None], pa.decimal128(10, 2), "object", pl.Decimal(10, 2), "DECIMAL(10,2)"
    ),
    "leading zeros": Case(["00501", "90210", "02134"], pa.string(), "", pl.String, "VARCHAR"),
    "digits in texts": Case(["501", "90210", None], pa.string(), "", pl.String, "VARCHAR"),
    "yes in texts": Case(["yes", "no", None], pa.string(), "", pl.String, "VARCHAR"),
}


def held() -> pa.Table:
    """The table as Arrow holds it."""
    return pa.table({name: pa.array((case.values * ROWS)[:ROWS], case.arrow) for name, case in CASES.items()})


def as_held(library: str, folder: Path) -> Any:
    """The same table as this library's users hold it."""
    table = held()
    if library == "pandas":
        return table.to_pandas().astype({"nullable integer": "Int32", "boolean": "boolean"})
    if library == "polars":
        return pl.from_arrow(table)
    if library == "duckdb":
        return duckdb.from_arrow(table)
    if library == "parquet":
        pq.write_table(table, folder / "t.parquet")
        return folder / "t.parquet"
    if library == "folder":
        (folder / "parts").mkdir()
        for part in range(2):
            pq.write_table(table.slice(part * 30, 30), folder / "parts" / f"{part}.parquet")
        return str(folder / "parts")
    return table


@pytest.fixture(scope="module", params=["arrow", "pandas", "polars", "duckdb", "parquet", "folder"])
def released(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Schema, Model]:
    """The library, the draft of its table as if reviewed, and a model that was measured from its table."""
    data = as_held(request.param, tmp_path_factory.mktemp("held"))
    schema = Schema.from_toml(draft(data).as_seen().reviewed("rows").to_toml())
    # Fitting every time would test the fit. The binary copula is the fastest, and decodes as all do.
    return request.param, schema, sklar.fit(data, schema, epsilon=50.0, method="binary")


@pytest.mark.parametrize("name", CASES)
def test_a_type_survives_the_round_trip(released: tuple[str, Schema, Model], name: str) -> None:
    library, schema, model = released
    case = CASES[name]
    assert name in schema.names
    if library == "pandas":
        frame = model.sample(50, seed=1, to="pandas")
        # What pandas calls a column of texts depends on its version.
        assert str(frame[name].dtype) == (case.pandas or str(held().to_pandas()[name].dtype))
        if name in ("date", "decimal"):
            assert set(frame[name].dropna().map(type)) == {dt.date if name == "date" else Decimal}
        return
    if library == "polars":
        assert model.sample(50, seed=1, to="polars").schema[name] == case.polars
        return
    table = model.sample(50, seed=1, to="arrow")
    if library == "duckdb":
        found = duckdb.from_arrow(table)
        kind = dict(zip(found.columns, map(str, found.types), strict=True))[name]
        assert kind == case.duckdb or (name == "category" and kind.startswith("ENUM"))
        return
    assert table.schema.field(name).type == case.arrow


@pytest.mark.parametrize("name", CASES)
def test_values_stay_what_they_were(released: tuple[str, Schema, Model], name: str) -> None:
    _, schema, model = released
    drawn = [value for value in model.sample(200, seed=2)[name].to_list() if value is not None]
    given = [value for value in CASES[name].values if value is not None]
    assert drawn
    assert {type(value) for value in drawn} == {type(given[0])}
    if schema.attribute(name).kind == "categorical":
        assert set(drawn) <= set(given)
    if name == "decimal":
        assert all(value.as_tuple().exponent == -2 for value in drawn)


def test_a_csv_file_has_no_types_to_keep(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("zip,age,smoker\n00501,30,yes\n02134,40,no\n")
    schema = draft(tmp_path / "t.csv").as_seen()
    assert [each.kind for each in schema.attributes] == ["categorical", "integer", "boolean"]
    assert {each.output for each in schema.attributes} == {None}


def test_an_ordered_category_keeps_its_order_in_every_library() -> None:
    sizes = pd.DataFrame({"size": pd.Categorical(["S", "L"] * 20, categories=["S", "M", "L"], ordered=True)})
    schema = draft(sizes).schema.reviewed("public")
    model = sklar.fit(sizes, schema, epsilon=9.0)
    assert model.sample(9, to="pandas")["size"].dtype == sizes["size"].dtype
    assert model.sample(9).schema["size"] == pl.Enum(["S", "M", "L"])
    kind = model.sample(9, to="arrow")["size"]
    assert kind.type.ordered
    assert kind.chunk(0).dictionary.to_pylist() == ["S", "M", "L"]
    # A polars Enum comes in as one, too.
    frame = pl.DataFrame({"size": pl.Series(["S", "L"] * 20, dtype=pl.Enum(["S", "M", "L"]))})
    attribute = draft(frame).schema.attributes[0]
    assert (attribute.values, attribute.output, attribute.reviewed) == (("S", "M", "L"), "ordered category", False)


def test_what_may_not_be_missing_needs_no_nullable_type() -> None:
    schema = Schema.from_toml(
        '[attributes.a]\ntype = "integer"\nedges = [0, 9]\n[attributes.b]\ntype = "boolean"\n'
        '[attributes.c]\ntype = "boolean"\nmissing = ""\n'
    )
    rows = pa.table({"a": [1, 2] * 9, "b": [True, False] * 9, "c": [True, None] * 9})
    model = sklar.fit(rows, schema, epsilon=9.0)
    assert [str(kind) for kind in model.sample(5, to="pandas").dtypes] == ["int64", "bool", "boolean"]
    dummies = sklar.fit(rows, schema, epsilon=9.0, method=sklar.Method(name="binary", dummies=True))
    assert {str(kind) for kind in dummies.sample(5, to="pandas").dtypes} == {"uint8"}


def test_the_same_rows_in_every_library(released: tuple[str, Schema, Model]) -> None:
    _, schema, model = released
    assert (schema.names, model.n_rows) == (tuple(CASES), ROWS)
    rows = model.sample(40, seed=3, to="arrow").to_pylist()
    assert model.sample(40, seed=3).to_dicts() == rows
    frame = model.sample(40, seed=3, to="pandas").astype(object)
    assert frame.where(frame.notna(), None).to_dict("records") == rows


@pytest.mark.parametrize(("library", "package"), [("pandas", "pandas"), ("pandas", "pyarrow"), ("arrow", "pyarrow")])
def test_a_library_that_is_unknown_or_not_installed(
    library: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="to must be 'polars', 'pandas' or 'arrow', got 'spark'"):
        check_library("spark")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"to='{library}' needs {package}: pip install 'sklar\[{library}\]'"):
        check_library(library)
    check_library("polars")


EXACT = Schema.load(Path(__file__).with_name("exact.toml"))


def test_arrow_and_pandas_hold_what_polars_cannot() -> None:
    drawn = Decoder(EXACT).decode(
        np.stack([np.random.default_rng(2).integers(0, size, 300) for size in EXACT.sizes]), np.random.default_rng(1)
    )
    table, frame = to_arrow(drawn, EXACT), to_library(drawn, "pandas", EXACT)
    assert table.schema == arrow_schema(EXACT)
    assert table.schema.types == [
        pa.date64(),
        pa.timestamp("s"),
        pa.timestamp("ms", "+05:30"),
        pa.timestamp("us", "-03:00"),
        pa.dictionary(pa.int32(), pa.int64()),
        pa.dictionary(pa.int32(), pa.string(), ordered=True),
        pa.int16(),
    ]
    assert table["number"].chunk(0).dictionary.to_pylist() == [30, 10, 20]
    assert table["rank"].chunk(0).dictionary.to_pylist() == ["30", "10", "20", "other"]
    for name in ("day", "second", "offset", "hours", "number", "rank", "code"):
        assert table[name].to_pylist() == drawn[name].to_list(), name
    assert isinstance(frame, pd.DataFrame)
    assert frame["number"].dtype == pd.CategoricalDtype([30, 10, 20])
    assert frame["rank"].dtype == pd.CategoricalDtype(["30", "10", "20", "other"], ordered=True)
    assert str(frame["offset"].dtype) == "datetime64[ms, UTC+05:30]"
    assert set(frame["day"].dropna().map(type)) == {dt.date}


KINDS = Schema.load(Path(__file__).with_name("kinds.toml"))
CODES = np.stack([np.random.default_rng(7).integers(0, size, 120) for size in KINDS.sizes]).astype(np.int32)
FRAME = Decoder(KINDS).decode(CODES, np.random.default_rng(1))


@pytest.mark.parametrize("given", ["polars", "pandas", "arrow", ".csv", ".parquet", ".arrow", ".ndjson"])
def test_libraries_and_files_give_the_codes_back(given: str, tmp_path: Path) -> None:
    data: Any = tmp_path / f"t{given}"
    if given.startswith("."):
        write_frames(data, FRAME.schema, [FRAME], KINDS)
    else:
        data = to_library(FRAME, given, KINDS)
    parts = open_source(data).batches(KINDS.names)
    assert np.array_equal(np.concatenate([encode(part, KINDS) for part in parts], axis=1), CODES)


def test_types_of_each_library() -> None:
    kinds: dict[str, Any] = dict.fromkeys(("waited", "month", "born", "flag", "gain"), pl.String)
    kinds |= {"clock": pl.Time, "coarse": pl.Time, "rate": pl.Float64, "size": pl.Enum(["S", "M", "L", "-"])}
    kinds |= {"took": pl.Duration("us"), "since": pl.Int16, "first": pl.Date, "seen": pl.Datetime("ms")}
    assert dict(FRAME.schema) == kinds
    table: Any = to_library(FRAME, "arrow", KINDS)
    assert [table.schema.field(name).type for name in ("clock", "coarse", "took", "size")] == [
        pa.time64("us"),
        pa.time32("s"),
        pa.duration("us"),
        pa.dictionary(pa.int32(), pa.string(), ordered=True),
    ]
    frame = to_library(FRAME, "pandas", KINDS)
    assert isinstance(frame, pd.DataFrame)
    assert str(frame["took"].dtype) == "timedelta64[us]"
    assert frame["size"].cat.ordered


def test_a_csv_holds_what_people_wrote(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_frames(path, FRAME.schema, [FRAME], KINDS)
    columns = {name: set(pl.read_csv(path, infer_schema=False, columns=[name])[name]) for name in KINDS.names}
    assert "12:00:00" in columns["clock"]
    assert "0:00:00.000000" in columns["took"]
    assert columns["flag"] == {"N", "Y", None}
    assert {"N", "-9", "0"} <= columns["gain"]
    assert all(text is None or text in ("N", "-9") or int(text) % 100 == 0 for text in columns["gain"])
    assert all(len(str(text).partition(".")[2]) <= 2 for text in columns["rate"])
    assert all(len(str(text).split(".")) == 3 or text is None for text in columns["born"])
    assert all(str(text)[2] == "/" and len(str(text)) == 16 for text in columns["seen"])


def test_months_of_pandas() -> None:
    periods = pd.DataFrame({"month": pd.PeriodIndex(["1999-12", "2000-06", None], freq="M")})
    schema = Schema(name="t", attributes=(KINDS.attribute("month"),))
    (batch,) = open_source(periods).batches(("month",))
    assert encode(batch, schema).tolist() == [[0, 1, 2]]
