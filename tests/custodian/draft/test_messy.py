"""A messy file from draft to released rows: what is recognized comes back as it was written, and names stay out."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pytest

import sklar
from sklar.custodian import review
from sklar.custodian.check import check_values
from sklar.custodian.draft import draft
from sklar.public.schema import Schema
from sklar.rows.encode import encode
from sklar.rows.read import as_released, open_source
from sklar.rows.sql import Query

ROWS, PICK = 2_000, random.Random(28)
DECIMAL = r"-?\d+(\.\d)?"
GERMAN = str.maketrans(",.", ".,")
# How each column is written; what is left out has no pattern.
COLUMNS: dict[str, tuple[Callable[[], str], str]] = {
    "Name": (lambda: PICK.choice(["Ann Lee", "Bob Ray"]), ""),
    "price": (lambda: f"${PICK.uniform(1, 20_000):,.2f}", r"\$\d{1,3}(,\d{3})*\.\d\d"),
    "paid": (lambda: f"£{PICK.randrange(900)}", r"£\d+"),
    "euro": (lambda: f"{PICK.uniform(-50, 9_999):,.2f}".translate(GERMAN) + " €", r"-?\d{1,3}(\.\d{3})*,\d\d €"),
    "share": (lambda: f"{PICK.uniform(0, 100):.1f}%", r"\d+\.\d%"),
    "gain": (lambda: re.sub("^-(.*)", r"(\1)", f"{PICK.randrange(-5_000, 5_000):,}"), r"\d{1,3}(,\d{3})*|\([\d,]+\)"),
    "bp": (lambda: f"{PICK.randrange(90, 180)}/{PICK.randrange(50, 110)}", ""),
    "visit date": (lambda: str(PICK.randrange(40_000, 45_000)), r"\d{1,6}"),
    "celsius": (lambda: PICK.choice(["-999,0", *[f"{PICK.uniform(-20, 40):.1f}".translate(GERMAN)] * 9]), DECIMAL),
    "state": (lambda: PICK.choice(["Ohio", "Texas", "Iowa", "Maine", "XX", "Unknown"]), r"[A-Za-z ]+"),
}  # fmt: skip


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("messy") / "messy.csv"
    rows = [[make() for make, _ in COLUMNS.values()] for _ in range(ROWS)]
    path.write_text("".join(";".join(fields) + "\n" for fields in [list(COLUMNS), *rows]), encoding="utf-8")
    return path


def test_a_messy_file_comes_back_as_it_was_written(messy: Path, tmp_path: Path) -> None:
    made = draft(messy)
    assert list(made.left_out) == ["Name", "bp"]
    schema = Schema.from_toml(review.accept_all(made.to_toml()))
    assert {each.name: each.format for each in schema.attributes if each.format} == {
        "price": "$1,234.50", "paid": "£12", "euro": "1.234,50 €", "share": "12.5%", "gain": "(1,234)",
        "visit date": "serial",
    }  # fmt: skip
    assert (schema.attribute("celsius").special, schema.attribute("state").special) == ((-999,), ("Unknown", "XX"))
    # Every value has a home: nothing is clipped, folded or lost.
    assert {(fate.clipped, fate.folded, fate.no_cell) for fate in check_values(messy, schema)} == {(0, 0, 0)}
    sklar.fit(messy, schema, epsilon=5.0).write(tmp_path / "out.csv", 300, seed=1)
    text = (tmp_path / "out.csv").read_text(encoding="utf-8")
    assert "Ann" not in text
    released = pl.read_csv(tmp_path / "out.csv", infer_schema=False)
    for name in released.columns:
        assert all(re.fullmatch(COLUMNS[name][1], value) for value in released[name]), name
    assert pl.read_csv(tmp_path / "out.csv").schema["visit date"] == pl.Int64
    # The original's schema reads the released rows again, each value inside its domain.
    fates = check_values(as_released(tmp_path / "out.csv", schema), schema)
    assert {(fate.listed + fate.missing, fate.clipped) for fate in fates} == {(300, 0)}


def test_signs_are_read_alike_from_files_frames_and_queries(messy: Path, tmp_path: Path) -> None:
    """The same codes by every way in; numbers that are numbers already need no sign."""
    schema = Schema.from_toml("""
        [attributes]
        price = {type = "real", edges = [0, 5000, 10000, 20000], format = "$1,234.50", missing = ""}
        gain = {type = "integer", edges = [-5000, -2500, 0, 2500, 5000], format = "(1,234)", missing = ""}
        "visit date" = {type = "date", edges = ["2009-01-01", "2015-01-01", "2024-01-01"], format = "serial"}
    """)
    texts = pl.read_csv(messy, separator=";", infer_schema=False).select(schema.names)
    texts.write_csv(tmp_path / "t.csv")
    texts.write_parquet(tmp_path / "t.parquet")
    texts.write_ndjson(tmp_path / "t.ndjson")
    with duckdb.connect(tmp_path / "t.duckdb") as database:
        database.execute(f"CREATE TABLE t AS SELECT * FROM read_parquet('{tmp_path / 't.parquet'}')")
    query = Query(tmp_path / "t.duckdb", "SELECT * FROM t")
    categories, few = texts.cast(pl.Categorical), texts.head(40)
    ways = (tmp_path / "t.csv", tmp_path / "t.ndjson", texts, texts.to_pandas(), texts.to_arrow(), categories, query)
    codes = [encode(pl.concat(open_source(way, schema).batches(schema.names)), schema).tolist() for way in ways]
    assert all(each == codes[0] for each in codes)
    assert encode(few, schema).tolist() == [row[:40] for row in codes[0]]
    assert min(map(min, codes[0])) >= 0
    assert [len(set(row)) for row in codes[0]] == [3, 4, 2]
    plain = pl.DataFrame({"price": [6000.5], "gain": [-7], "visit date": [43_831]})
    assert encode(plain, schema).ravel().tolist() == [1, 1, 1]


def test_a_missing_text_that_a_public_list_holds_is_a_value(tmp_path: Path) -> None:
    """Namibia is NA."""
    rows = "".join(f"{('US', 'NA', 'DE', 'FR', '', 'IT')[i % 6]},{i % 7}\n" for i in range(600))
    (tmp_path / "c.csv").write_text("country,x\n" + rows)
    entry = sklar.draft(tmp_path / "c.csv").schema.attribute("country")
    assert "NA" in entry.values
    assert entry.missing != "NA"
