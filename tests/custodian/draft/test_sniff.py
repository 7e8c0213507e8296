"""How a file seems to be written: from the guess to the counts, which are those of the same table written plainly."""

from __future__ import annotations

import gzip
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sklar.custodian.draft.sniff import Remark, sniff
from sklar.public.schema import Schema
from sklar.public.settings import PLAIN, Reading
from sklar.rows.count import ask_all
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


def table(reading: Reading, rows: int = 300) -> list[tuple[str, int, float, float]]:
    """Where quotes enclose nothing, some texts begin with one."""
    generator = np.random.default_rng(5)
    pay = np.exp(generator.normal(9, 1.5, rows)).round(2).tolist()
    towns, ages = generator.integers(4, size=rows), generator.integers(18, 95, rows).tolist()
    shares = generator.uniform(-1, 1, rows).round(3).tolist()
    lines = list(zip([TOWNS[town] for town in towns], ages, pay, shares, strict=True))
    return lines if reading.quote else lines + [('"Jena', 18, 1.0, 0.5)] * 30


def written(reading: Reading, delimiter: str) -> str:
    """The table as a file of text."""

    def number(value: float, places: int) -> str:
        return f"{value:,.{places}f}".translate({ord(","): reading.thousands or "", ord("."): reading.decimal})

    def field(text: str) -> str:
        return f"{reading.quote}{text}{reading.quote}" if delimiter in text or reading.quote == "'" else text

    lines = [(town, str(age), number(pay, 2), number(share, 3)) for town, age, pay, share in table(reading)]
    return "".join(delimiter.join(map(field, line)) + "\n" for line in [SCHEMA.names] * reading.header + lines)


NO_NAMES = ("column_1", "column_2", "column_3", "column_4")


@pytest.mark.parametrize(("file", "encoding", "reading"), [
    ("t.csv", "latin-1", Reading(delimiter=";", decimal=",", encoding="windows-1252")),
    ("t.csv.gz", "latin-1", Reading(delimiter=";", decimal=",", thousands=".", encoding="windows-1252")),
    ("t.csv", "utf-8", Reading(thousands=",")), ("t.csv", "utf-8-sig", Reading(delimiter=";", thousands="'")),
    ("t.csv", "utf-8", Reading(columns=NO_NAMES)),
    ("t.csv", "cp850", Reading(delimiter=";", decimal=",", encoding="cp850", columns=NO_NAMES)),
    ("t.csv", "utf-16", Reading(delimiter="\t", encoding="utf-16")),
    ("t.tsv", "utf-16-le", Reading(encoding="utf-16-le")), ("t.csv", "utf-8", Reading(quote="'")),
    ("t.csv", "utf-8", Reading(delimiter="|", quote="")), ("t.csv", "utf-8", PLAIN),
])  # fmt: skip
def test_from_the_guess_to_the_counts_of_the_plain_table(
    tmp_path: Path, file: str, encoding: str, reading: Reading
) -> None:
    """A table that is written so, in this encoding and under this name, is found to be."""
    path, clean = tmp_path / file, tmp_path / "clean.csv"
    data = written(reading, reading.delimiter or ("\t" if path.suffix == ".tsv" else ",")).encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    assert sniff(path)[0] == reading
    pl.DataFrame(table(reading), schema=list(SCHEMA.names), orient="row").write_csv(clean)
    named = zip(SCHEMA.attributes, reading.columns or SCHEMA.names, strict=True)
    attributes = tuple(replace(attribute, name=column) for attribute, column in named)
    schema = Schema.from_toml(replace(SCHEMA, reading=reading, attributes=attributes).to_toml())
    ours, plain = (open_table(*each).count(ask_all(each[1])) for each in ((path, schema), (clean, SCHEMA)))
    assert ours.n_rows == plain.n_rows == len(table(reading))
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


CASES = tomllib.loads(Path(__file__).with_name("sniffed.toml").read_text())["cases"]


@pytest.mark.parametrize(("text", "header", "decimal", "thousands"), CASES)
def test_header_decimal_and_thousands(tmp_path: Path, text: str, header: bool, decimal: str, thousands: str) -> None:
    reading, _ = sniff(put(tmp_path / "t.csv", text))
    assert (reading.header, reading.decimal, reading.thousands or "") == (header, decimal, thousands)


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
