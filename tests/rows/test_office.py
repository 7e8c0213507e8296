"""Zips, lists of JSON, workbooks, and files of Stata and SPSS: the same rows as in a CSV file, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyreadstat
import pytest
import xlsxwriter

from sklar.custodian.check import check
from sklar.custodian.draft import draft
from sklar.errors import DataError, MissingExtraError, OutputError
from sklar.files.write import check_target, write_frames
from sklar.public.schema import Schema
from sklar.rows import text
from sklar.rows.encode import NO_TEXT, encode
from sklar.rows.read import open_source, reads_again
from tests.conftest import refuses

SECRET = "SECRETCELL"
SCHEMA = Schema.from_toml("""
[attributes]
sex = {type = "categorical", values = [1, 2], labels = {1 = "male", 2 = "female"}, title = "Sex", missing = ""}
income = {type = "real", edges = [0, 100, 1000], missing = ""}
born = {type = "date", edges = ["1900-01-01", "1950-01-01", "2100-01-01"], missing = ""}
seen = {type = "datetime", edges = ["1900-01-01 00:00", "2000-01-01 12:00", "2100-01-01 00:00"], missing = ""}
town = {type = "categorical", values = ["=A", "http://b", "\u00e4"], missing = "?"}
alive = {type = "boolean", missing = ""}
""")
ROWS = pl.DataFrame(
    {
        "sex": [1, 2, 1, None],
        "income": [1.5, None, 250.0, 100.0],
        "born": [dt.date(1949, 12, 31), None, dt.date(1950, 1, 1), dt.date(1899, 1, 1)],
        "seen": [dt.datetime(2000, 1, 1, 11, 59, 59), None, dt.datetime(2000, 1, 1, 12), dt.datetime(2050, 1, 1)],
        "town": ["=A", "http://b", None, "\u00e4"],
        "alive": [True, False, True, None],
    }
)
CODES = encode(ROWS, SCHEMA).tolist()


def written(path: Path, rows: pl.DataFrame = ROWS) -> Path:
    write_frames(path, rows.schema, [rows.head(2), rows.tail(-2)], SCHEMA)
    return path


def zipped(path: Path, *files: tuple[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files:
            archive.writestr(name, data)
    return path


def codes(data: object) -> object:
    source = open_source(data, SCHEMA)
    return encode(pl.concat(source.batches(SCHEMA.names)), SCHEMA).tolist()


@pytest.mark.parametrize("kind", [".json", ".xlsx", ".dta", ".sav"])
def test_what_is_written_is_read_with_types_and_labels_the_same_bytes_again(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path / f"people{kind}")
    before = path.read_bytes()
    assert codes(path) == codes(str(path)) == CODES
    assert reads_again(path)
    written(path)
    assert path.read_bytes() == before
    assert check(SCHEMA, path).values is not None
    drafted = draft(path)
    kinds = {each.name: each.kind for each in drafted.schema.attributes}
    assert (kinds["born"], kinds["seen.date"], kinds["seen.time"]) == ("date", "date", "time")
    if kind in (".dta", ".sav"):
        sex = drafted.schema.attribute("sex")
        assert (sex.values, sex.words.labels, sex.words.title) == ((1, 2), (("1", "male"), ("2", "female")), "Sex")
        assert Schema.from_toml(drafted.to_toml()).attribute("sex") == sex
        assert b"Jan 1980" in before or b"01 Jan 80" in before


def test_a_workbook_holds_no_formula_link_author_or_time_of_its_own(tmp_path: Path) -> None:
    with zipfile.ZipFile(written(tmp_path / "people.xlsx")) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
        assert {each.date_time for each in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert not any(b"<f>" in part or b"hyperlink " in part for part in parts.values())
    assert b"<dc:creator></dc:creator>" in parts["docProps/core.xml"]
    assert parts["docProps/core.xml"].count(b"1980-01-01T00:00:00Z") == 2


def test_a_sheet_is_the_first_or_the_one_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "people.xlsx"
    with xlsxwriter.Workbook(path) as book:
        for name in ("One", "Two.2"):
            sheet = book.add_worksheet(name)
            # A cell's text depends on the cell alone: not on whether its column holds others.
            sheet.write_column(0, 0, [name, 1, 1.5, "n/a", 12345678901])
            sheet.write_column(0, 1, ["t", "x"])
            sheet.write_datetime(2, 1, dt.time(3, 4, 5), book.add_format({"num_format": "hh:mm:ss"}))
    for given, column in ((path, "One"), (f"{path}#Two.2", "Two.2")):
        source = open_source(given)
        assert source.columns == (column, "t")
        (batch,) = source.batches(source.columns)
        assert batch.rows() == [("1", "x"), ("1.5", "03:04:05"), ("n/a", None), ("12345678901", None)]
        assert reads_again(given)
    assert draft(f"{path}#Two.2").rows == 4
    absent = r"people.xlsx' has no sheet 'Three'\. Check its name, or leave it out"
    refuses(absent, open_source, f"{path}#Three", error=DataError)


def test_missing_values_of_spss_and_stata_are_null_and_lose_their_labels(tmp_path: Path) -> None:
    labels: Any = {"a": {1: "yes", 2: "no", 9: "refused"}}
    pyreadstat.write_sav(
        pl.DataFrame({"a": [1, 2, 9, 95]}), tmp_path / "t.sav", missing_ranges={"a": [9, {"lo": 90, "hi": 99}]},
        variable_value_labels=labels,
    )  # fmt: skip
    marked: Any = {"missing_user_values": {"a": ["a"]}, "variable_value_labels": {"a": {1: "yes", 2: "no", "a": "x"}}}
    values = pl.DataFrame({"a": [1, 2, "a", None]}, schema={"a": pl.Object}).to_pandas()
    pyreadstat.write_dta(values, tmp_path / "t.dta", **marked)
    for name in ("t.sav", "t.dta"):
        source = open_source(tmp_path / name)
        assert pl.concat(source.batches(("a",)))["a"].to_list() == [1, 2, None, None]
        assert source.types is not None
        assert source.types["a"].labels == (("1", "yes"), ("2", "no"))


def test_a_zip_of_one_text_file_is_that_file(tmp_path: Path) -> None:
    rows, lines = ROWS.write_csv(), "".join(f"{json.dumps(row, default=str)}\n" for row in ROWS.to_dicts())
    for name, inside in (("people.csv", rows), ("a/people.ndjson", lines)):
        path = zipped(tmp_path / "people.zip", ("a/", ""), (name, inside), ("__MACOSX/a/._people.csv", b"\0"))
        assert codes(path) == CODES
    assert draft(zipped(tmp_path / "p.zip", ("p.csv", rows.replace(",", ";")))).schema.reading.delimiter == ";"


@pytest.mark.parametrize(
    "files", [[], [("a.csv", "a\n1\n"), ("b.csv", "a\n1\n")], [("a.csv.gz", "x")], [("a.xlsx", "x")], [("a", "a\n1\n")]]
)
def test_other_zips_are_refused_with_what_to_do(tmp_path: Path, files: list[tuple[str, str]]) -> None:
    with pytest.raises(DataError, match=r"must be a zip of one CSV, TSV or JSON file, without a password\. Unpack"):
        open_source(zipped(tmp_path / "t.zip", *files))


def test_a_zip_is_unpacked_no_further_than_it_declares(tmp_path: Path) -> None:
    path = zipped(tmp_path / "t.zip", ("a.csv", "a\n" + f"{SECRET}\n" * 1000))
    data = path.read_bytes()
    declared = len(b"a\n" + f"{SECRET}\n".encode() * 1000).to_bytes(4, "little")
    assert data.count(declared) == 2
    path.write_bytes(data.replace(declared, (13).to_bytes(4, "little")))
    with pytest.raises(DataError, match="no readable header") as raised:
        open_source(path)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("written", "rows"),
    [
        ('[]', []),
        ('\ufeff [ {"a": 1, "b": "x,]}\\"["} , {"a": [1, {"q": 2}]}]', ["1", NO_TEXT]),
        ('[7, {"a": 2.50}, null, {"b": 1}, "a"]', [None, "2.50", None, None, None]),
        ('[{"a": 1}, {"a": 2', ["1", None]),
        ('[{"a": 1}, {"a": "2}, {"a": 3}]', ["1", None]),
        ('[{"a": "\\\\"}, {"a": true}] and more', ["\\", "true"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("block", [1, 7, 1 << 17])
def test_a_list_of_json_never_fails_because_of_a_row(
    tmp_path: Path, written: str, rows: list[str | None], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.json"
    path.write_text(written, encoding="utf-8")
    source = open_source(path)
    monkeypatch.setattr(text, "_BLOCK", block)
    assert [row for batch in source.batches(("a",)) for row in batch["a"].to_list()] == rows


def test_an_element_that_is_too_long_is_a_row_of_nulls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_LONGEST", 40)
    monkeypatch.setattr(text, "_BLOCK", 16)
    (tmp_path / "t.json").write_text(json.dumps([{"a": "x" * 100}, {"a": "y"}]))
    (batch,) = open_source(tmp_path / "t.json").batches(("a",))
    assert batch["a"].to_list() == [None, "y"]


@pytest.mark.parametrize("kind", [".xlsx", ".dta", ".sav"])
@pytest.mark.parametrize("damage", [lambda _data: SECRET.encode() * 50, lambda data: data[: len(data) // 2]])
def test_damage_is_refused_without_a_word_of_the_rows(
    tmp_path: Path, kind: str, damage: Callable[[bytes], bytes]
) -> None:
    path = written(tmp_path / f"t{kind}")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match="damaged") as raised:
        list(open_source(path).batches(SCHEMA.names))
    assert SECRET not in str(raised.value)


def test_a_workbook_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "t.xlsx")
    monkeypatch.setattr("sklar.rows.office._MOST_BYTES", 1000)
    refuses(r"is larger than 4 GiB when it is unpacked\. Save the sheet as CSV", open_source, path, error=DataError)


@pytest.mark.parametrize(
    ("kind", "package", "extra"),
    [(".xlsx", "fastexcel", "excel"), (".dta", "pyreadstat", "stata"), (".sav", "pyreadstat", "spss")],
)
def test_a_missing_extra_is_named(
    tmp_path: Path, kind: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / f"t{kind}")
    for hidden in ("fastexcel", "xlsxwriter", "pyreadstat"):
        monkeypatch.setitem(sys.modules, hidden, None)
    needs = rf"a file that ends in {kind} needs {package}: .*sklar\[{extra}\]"
    refuses(needs, open_source, path, error=MissingExtraError)
    refuses(rf"sklar\[{extra}\]", check_target, path, (kind,), error=MissingExtraError)


def test_what_a_format_cannot_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = pl.DataFrame({"hours-per-week": [1]})
    with pytest.raises(OutputError, match=r"t.dta' could not be written: .*; CSV and Parquet take any table\. Not"):
        write_frames(tmp_path / "t.dta", odd.schema, [odd], None)
    monkeypatch.setattr("sklar.files.write._MOST_ROWS", 3)
    with pytest.raises(OutputError, match=r"a workbook holds at most 3 rows and 16,384 columns, got 4 and 6\. Draw"):
        written(tmp_path / "t.xlsx")
    assert list(tmp_path.iterdir()) == []


def test_a_store_holds_none_of_them() -> None:
    from sklar.machine.stores import Remote
    from sklar.rows.read import open_part

    with pytest.raises(DataError, match=r"is not read from a store\. Copy it to a disk first"):
        open_part(Remote("s3://bucket/t.sav"), None, SCHEMA)
