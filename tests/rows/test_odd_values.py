"""One odd value, in any reader: it raises nothing, every other row is as it was, and nothing is said of it."""

from __future__ import annotations

import datetime as dt
import json
import tomllib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sklar.public.schema import Schema
from sklar.rows.count import Ask, count
from sklar.rows.encode import encode
from sklar.rows.read import open_source
from sklar.rows.sql import Query
from tests.rows.test_encode import PASSING

ENTRIES = tomllib.loads(Path(__file__).with_name("odd.toml").read_text())
# Plain, and written in another way: the texts of a table then pass the normalizer.
TABLES = ("", "[table]\ndecimal = ','\nthousands = '.'\nnulls = ['NA']\n")
CATEGORIES = Schema.from_dict({"attributes": {"x": ENTRIES["categorical"]}})
SCHEMAS = [
    pytest.param(
        Schema.from_dict({"table": table, "attributes": {"x": entry}}), id=f"{kind}{' rewritten' * bool(table)}"
    )
    for table in (dict[str, object](), tomllib.loads(TABLES[1])["table"])
    for kind, entry in ENTRIES.items()
]


class Hostile:
    """An object that refuses everything."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("SECRET")

    def __hash__(self) -> int:
        raise TypeError("SECRET")

    def __str__(self) -> str:
        raise ValueError("SECRET")

    __repr__ = __str__


OBJECTS: list[object] = [
    7, None, float("nan"), float("inf"), -0.0, "b", b"a", b"\xff", True, Decimal("7"), Decimal("sNaN"),
    Decimal("Infinity"), [1], {"a": 1}, (1,), {1}, object(), Hostile(), pd.NA, pd.NaT, dt.date(2005, 1, 1),
    dt.datetime(2005, 1, 1, tzinfo=dt.UTC), dt.datetime.max, dt.time(1), dt.timedelta(1), np.int8(7), np.float32("nan"),
    np.datetime64("2005-01-01"), np.array([1, 2]), "\ud800", "\0", "", " ", "9" * 400, "9" * 5_000, 10**5000,
    -(10**400), 1j, "1_000", "NA", "1.5", "1.234,5", "nan", "1e999", "0000-00-00", "2005-02-31", "x" * 100_000,
]  # fmt: skip


def codes(data: object, schema: Schema) -> list[int]:
    return [code for batch in open_source(data, schema).batches(("x",)) for code in encode(batch, schema)[0].tolist()]


CODES: dict[int, list[object]] = {
    0: ["a", b"a"], 1: [7, Decimal("7"), np.int8(7)], 2: [None, float("nan"), pd.NA, pd.NaT],
    3: ["b", True, Decimal("sNaN"), [1], {"a": 1}, dt.date(2000, 1, 1), np.array([1, 2]), "\ud800", 10**5000],
}  # fmt: skip


def index_of(values: list[object]) -> pd.Index:
    return pd.Index(values, dtype=object, name="x", tupleize_cols=False)


MAKE: dict[str, Callable[[list[object]], object]] = {
    "pandas": lambda values: pd.DataFrame({"x": pd.Series(values, dtype=object)}),
    "polars": lambda values: pl.DataFrame({"x": pl.Series(values, dtype=pl.Object)}),
    "pandas index": lambda values: pd.DataFrame({"y": range(len(values))}, index=index_of(values)),
}


@pytest.mark.parametrize("library", MAKE)
def test_the_codes_of_python_objects(library: str) -> None:
    for code, values in CODES.items():
        assert codes(MAKE[library](values), CATEGORIES) == [code] * len(values)


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_python_objects(make: Callable[[list[object]], object], schema: Schema) -> None:
    usual: list[object] = ["a", "7", "5", "15", "true", "2015-01-01"]
    expected = codes(make(usual), schema)
    for value in OBJECTS:
        found = codes(make([*usual[:3], value, *usual[3:]]), schema)
        assert found[:3] + found[4:] == expected
        assert -1 <= found[3] < schema.n_levels
    together = codes(make([*usual, *OBJECTS]), schema)
    assert together == expected + [codes(make([value]), schema)[0] for value in OBJECTS]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_categories_of_pandas(schema: Schema) -> None:
    """Categories are Python objects too, as long as they can be told apart."""
    usual: list[object] = ["a", "7", "5", "15"]
    expected = codes(pd.DataFrame({"x": pd.Categorical(usual, categories=usual)}), schema)
    for value in ("\ud800", b"\xff", 7, 1.5, Decimal(7), (1,), dt.date(2005, 1, 1), dt.timedelta(1), object(), "\0"):
        listed = pd.Index([*usual, value], dtype=object)
        found = codes(pd.DataFrame({"x": pd.Categorical.from_codes([0, 4, 1, 2, 3], categories=listed)}), schema)
        assert found[:1] + found[2:] == expected


@pytest.mark.parametrize("schema", SCHEMAS)
def test_arrow_arrays(schema: Schema) -> None:
    """What a row is encoded as does not depend on the rows beside it."""
    for values in PASSING:
        found = codes(pa.table({"x": values}), schema)
        assert all(-1 <= code < schema.n_levels for code in found)
        alone = [codes(pa.table({"x": values.slice(row, 1)}), schema) for row in range(len(values))]
        assert [[code] for code in found] == alone, values.type


TEXTS = [
    b"", b'"', b"'", b"\xff", b"\0", b"NA", b"1.234,5", b"1.5", b"9" * 5_000, b"x" * 100_000, b"\xed\xa0\x80", b" a",
]  # fmt: skip


def codes_in(path: Path, lines: list[bytes], schema: Schema) -> list[int]:
    """The codes of these lines in a file."""
    path.write_bytes(b"\n".join(lines) + b"\n")
    return codes(path, schema)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_csv_files(tmp_path: Path, schema: Schema) -> None:
    path, usual = tmp_path / "t.csv", [b"x,y", b"a,1", b"7,1", b"5,1", b"15,1", b"2015-01-01,1"]
    expected = sorted(codes_in(path, usual, schema))
    for text in TEXTS:
        # A quote that nobody closes is the last of a file.
        odd = codes_in(path, [*usual, text + b",1"], schema)
        assert len(odd) == len(usual) == len(expected) + 1
        assert sorted(odd[:-1]) == expected or sorted(odd[1:]) == expected


@pytest.mark.parametrize("schema", SCHEMAS)
def test_json_lines(tmp_path: Path, schema: Schema) -> None:
    usual = [json.dumps({"x": value}).encode() for value in ("a", 7, 5, 15, "2015-01-01", True)]
    odd = [b'{"x": "%b"}' % text.replace(b'"', b'\\"').replace(b"\0", b"\\u0000") for text in TEXTS]
    odd += [b'{"x": %b}' % value for value in (b"NaN", b"[1]", b"{}", b"null", b"1e999", b"1" * 9_000, b'"\\ud800"')]
    odd += [b"{", b"7", b"[1]", b"\0", b"\xff", b'{"y": 1}', b'{"x": 1, "x": 2}', b'{"x": 1} trailing']
    odd.append(b'{"x": ' + b"[" * 10_000)
    path = tmp_path / "t.jsonl"
    # A blank line is no row.
    together = codes_in(path, [*usual, b"", *odd], schema)
    assert together[: len(usual)] == codes_in(path, usual, schema)
    assert together[len(usual) :] == [codes_in(path, [line], schema)[0] for line in odd]


# Values that a query may return, each list in one column.
SQL = [
    ["'a'", "''", "'NA'", "'1.234,5'", "repeat('x', 100000)"], ["5.0::DOUBLE", "'nan'::DOUBLE", "'inf'::DOUBLE"],
    ["5::HUGEINT", "170141183460469231731687303715884105727"], ["'2005-01-01'::TIMESTAMP", "'infinity'::TIMESTAMP"],
    ["'2005-01-01'::DATE", "'infinity'::DATE", "'290000-01-01'::DATE"], ["'2005-01-01'::TIMESTAMPTZ"], ["uuid()"],
    ["'1 day'::INTERVAL"], ["'12:00'::TIME"], ["[1]"], ["{'a': 1}"], ["'\\xFF'::BLOB"], ["'a'::ENUM('a', 'b')"],
    ["1::UTINYINT"], ["1.5::DECIMAL(38, 10)"], ["'101'::BIT"], [],
]  # fmt: skip


@pytest.mark.parametrize("schema", [SCHEMAS[kind] for kind in (0, 2, 8)])
def test_queries(tmp_path: Path, schema: Schema) -> None:
    path = tmp_path / "odd.duckdb"
    duckdb.connect(str(path)).close()
    for values in SQL:
        rows = ", ".join(f"({value})" for value in [*values, "NULL"])
        found = codes(Query(path, f"SELECT * FROM (VALUES {rows}) AS t(x)"), schema)
        assert len(found) == len(values) + 1
        assert all(-1 <= code < schema.n_levels for code in found)


@pytest.mark.parametrize("kind", ["categorical", "real", "datetime"])
def test_odd_values_in_a_search_for_a_private_domain(kind: str) -> None:
    bounds = {"real": "low = 0\nhigh = 20\nbins = 4", "datetime": "low = '2000-01-01'\nhigh = '2020-01-01'\nbins = 4"}
    entry = f"type = '{kind}'\ndomain = 'private'\n{bounds.get(kind, '')}"
    schema = Schema.from_toml(f"{TABLES[1]}[attributes.x]\n{entry}")
    frame = pd.DataFrame({"x": pd.Series(OBJECTS, dtype=object)})
    answers = count(open_source(frame, schema).batches(("x",)), Ask(values=tuple(schema.attributes)))
    assert answers.n_rows == len(OBJECTS)
