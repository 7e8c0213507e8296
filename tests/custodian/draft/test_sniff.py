"""How a file seems to be written: from the guess to the counts, which are those of the same table written plainly."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sklar.custodian.draft.sniff import Remark, sniff
from sklar.public.schema import Schema
from sklar.public.settings import PLAIN, Reading
from sklar.rows.count import Exact, ask_all
from sklar.rows.engines import open_table

TOWNS = ["Köln", "São Tomé", "Ulm, Donau", "Jena"]
SCHEMA = Schema.from_toml(
    """
    [attributes]
    town = { type = "categorical", values = ["Köln", "São Tomé", "Ulm, Donau", "Jena"] }
    age = { type = "integer", edges = [0, 30, 60, 100], missing = "-" }
    pay = { type = "real", edges = [0, 800, 12000, 50000, 200000] }
    share = { type = "real", edges = [-1, 0, 0.5, 1] }
    """
)
NAMES = SCHEMA.names
Rows = list[tuple[str, int, float, float]]


def table(rows: int = 300) -> Rows:
    generator = np.random.default_rng(5)
    pay = np.exp(generator.normal(9, 1.5, rows)).round(2)
    towns, ages = generator.integers(4, size=rows), generator.integers(18, 95, rows)
    shares = generator.uniform(-1, 1, rows).round(3)
    return list(zip([TOWNS[town] for town in towns], ages.tolist(), pay.tolist(), shares.tolist(), strict=True))


def counts(data: object, schema: Schema) -> Exact:
    return open_table(data, schema).count(ask_all(schema))


def written(delimiter: str, decimal: str = ".", thousands: str = "", quote: str = '"', header: bool = True) -> str:
    """The table as a file of text."""

    def number(value: float, places: int) -> str:
        return f"{value:,.{places}f}".translate({ord(","): thousands, ord("."): decimal})

    def field(text: str) -> str:
        return f"{quote}{text}{quote}" if delimiter in text or quote == "'" else text

    lines = [(town, str(age), number(pay, 2), number(share, 3)) for town, age, pay, share in table()]
    return "".join(delimiter.join(map(field, line)) + "\n" for line in ([NAMES] if header else []) + lines)


NO_NAMES = ("column_1", "column_2", "column_3", "column_4")
# How a file is written, in which encoding and under which name, and the reading that it must be found to have.
FILES: dict[str, tuple[str, str, str, Reading]] = {
    "semicolons, decimal commas, latin-1": (
        *(written(";", ","), "latin-1", "t.csv"),
        Reading(delimiter=";", decimal=",", encoding="windows-1252"),
    ),
    "points between thousands": (
        *(written(";", ",", "."), "latin-1", "t.csv.gz"),
        Reading(delimiter=";", decimal=",", thousands=".", encoding="windows-1252"),
    ),
    "commas between thousands": (written(",", ".", ","), "utf-8", "t.csv", Reading(thousands=",")),
    "apostrophes between thousands": (
        *(written(";", ".", "'"), "utf-8-sig", "t.csv"),
        Reading(delimiter=";", thousands="'"),
    ),
    "no header": (written(",", header=False), "utf-8", "t.csv", Reading(columns=NO_NAMES)),
    "no header, semicolons, decimal commas": (
        *(written(";", ",", header=False), "cp850", "t.csv"),
        Reading(delimiter=";", decimal=",", encoding="cp850", columns=NO_NAMES),
    ),
    "utf-16": (written("\t"), "utf-16", "t.csv", Reading(delimiter="\t", encoding="utf-16")),
    "utf-16 without a mark": (written("\t"), "utf-16-le", "t.tsv", Reading(encoding="utf-16-le")),
    "single quotes": (written(",", quote="'"), "utf-8", "t.csv", Reading(quote="'")),
    "bars and quotes that enclose nothing": (
        *(written("|") + '"Jena|18|1.00|0.5\n' * 30, "utf-8", "t.csv"),
        Reading(delimiter="|", quote=""),
    ),
    "plain": (written(","), "utf-8", "t.csv", PLAIN),
}


@pytest.mark.parametrize("name", FILES)
def test_from_the_guess_to_the_counts_of_the_plain_table(tmp_path: Path, name: str) -> None:
    text, encoding, file, reading = FILES[name]
    path = tmp_path / file
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    assert sniff(path)[0] == reading
    rows: list[tuple[object, ...]] = list(table())
    rows += [('"Jena', 18, 1.0, 0.5)] * 30 if "enclose nothing" in name else []
    clean = pl.DataFrame(rows, schema=list(NAMES), orient="row")
    clean.write_csv(tmp_path / "clean.csv")
    schema = replace(SCHEMA, reading=reading)
    if reading.columns:
        renamed = zip(SCHEMA.attributes, reading.columns, strict=True)
        schema = replace(schema, attributes=tuple(replace(attribute, name=column) for attribute, column in renamed))
    ours, plain = counts(path, Schema.from_toml(schema.to_toml())), counts(tmp_path / "clean.csv", SCHEMA)
    assert ours.n_rows == plain.n_rows == len(rows)
    assert ours.one_way.tolist() == plain.one_way.tolist()
    assert ours.pairs.tolist() == plain.pairs.tolist()


def remarks(path: Path) -> dict[str, Remark]:
    return {remark.key: remark for remark in sniff(path)[1]}


def test_each_guess_says_how_sure_it_is_and_why(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(("town;x\n" + "Köln;1.234,5\nUlm;NA\n" * 20).encode("latin-1"))
    found = remarks(path)
    assert {key: (each.value, each.sureness) for key, each in found.items()} == {
        "delimiter": (";", "certain"),
        "decimal": (",", "certain"),
        "thousands": (".", "certain"),
        "encoding": ("windows-1252", "likely"),
    }
    assert found["delimiter"].reason == "with semicolons all of the first records have the same number of fields"
    assert found["decimal"].reason == "numbers have a comma before their last digits"
    assert all(each.reason for each in found.values())


def put(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("a,b\n1,2\n3,4\n", True),
        ("1,x\n3,y\n5,z\n", False),
        ("2020-01-01,x\n2020-01-02,y\n", False),
        ("yes,low\n" + "no,high\nyes,low\n" * 10, False),
        ("member,risk\n" + "no,high\nyes,low\n" * 10, True),
        ("country,2019,2020,2021\n" + "a,1,2,3\nb,4,5,6\n" * 5, True),
        ("NA,5\n3,6\n4,7\n", False),
        ("only one line\n", True),
        ("x,x\ny,z\nv,w\n", False),
    ],
)
def test_a_first_record_that_looks_like_the_others_is_no_header(tmp_path: Path, text: str, header: bool) -> None:
    assert sniff(put(tmp_path / "t.csv", text))[0].header is header


@pytest.mark.parametrize(
    ("values", "decimal", "thousands"),
    [
        (["1,234", "999", "12,345"], ".", ","),
        (["1,234", "2,500", "0,125"], ",", None),
        (["1,234", "5,678"], ",", None),
        (["1,234,567", "1"], ".", ","),
        (["1.234", "5.678"], ".", None),
        (["1.234.567", "8,5"], ",", "."),
        (["12 345", "7"], ".", " "),
        (["12\u202f345,5", "7"], ",", " "),
        (["14.04.1912", "15.04.1912"], ".", None),
        (["1e3", "5"], ".", None),
    ],
)
def test_decimal_and_thousands(tmp_path: Path, values: list[str], decimal: str, thousands: str | None) -> None:
    reading, _ = sniff(put(tmp_path / "t.csv", "x;y\n" + "".join(f"{value};a\n" for value in values * 5)))
    assert (reading.decimal, reading.thousands) == (decimal, thousands)


def test_files_that_say_how_they_are_written_are_plain_and_foreign_letters_are_guesses(tmp_path: Path) -> None:
    pl.DataFrame({"a": ["1,5"]}).write_parquet(tmp_path / "t.parquet")
    assert sniff(tmp_path / "t.parquet") == (PLAIN, ())
    (tmp_path / "d").mkdir()
    put(tmp_path / "d" / "1.csv", "a;b\n1;2\n")
    assert sniff(tmp_path / "d")[0].delimiter == ";"
    (tmp_path / "t.csv").write_bytes(bytes(range(0xC0, 0xF0)) + b",x\n1,2\n")
    assert remarks(tmp_path / "t.csv")["encoding"].sureness == "guess"
    # A delimiter that is not there.
    reading, guesses = sniff(put(tmp_path / "t.csv", "a\n1\n2\n"))
    assert (reading, [(remark.key, remark.sureness) for remark in guesses]) == (PLAIN, [("delimiter", "guess")])
