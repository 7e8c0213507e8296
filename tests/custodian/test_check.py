"""What a schema would do to the rows, and how many rows people have: every value meets one fate, ids and keys match."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from sklar.custodian.check import check, check_links, check_values, likely_cause, rows_per_person
from sklar.custodian.draft import draft
from sklar.custodian.evaluate.conjunctions import read
from sklar.errors import DataError, SchemaError
from sklar.generate import generate
from sklar.public.schema import Attribute, Schema
from sklar.public.settings import Person, Reading
from sklar.rows.encode import encode
from sklar.rows.read import open_source
from tests.linked import small, tables

SCHEMA = Schema.load(Path(__file__).with_name("fates.toml"))
# Values of each attribute, and how many are in the domain, missing, clipped, folded and in no cell.
FATES: dict[str, tuple[list[str | None], tuple[int, ...]]] = {
    "folding": (["a", "b", "c", "?", "", None], (2, 3, 0, 1, 0)),
    "bare": (["a", "b", "c", "?", "", None], (2, 0, 0, 0, 4)),
    "age": (["5", "20", "-7", "-1", " ", "five"], (1, 2, 2, 1, 0)),
    "share": (["1", "0", "1.5", "-0.1", "nan", "?"], (2, 2, 0, 2, 0)),
    "flag": (["yes", "0", "TRUE", "?", "", "maybe"], (3, 2, 0, 1, 0)),
    "gain": (["0", "5", "N", "-9", "-8", "n"], (4, 0, 1, 1, 0)),
    "day": (["1912-04-14", "14.04.1912", "soon", "1850-01-01", "", None], (1, 2, 1, 2, 0)),
}


def test_a_check_counts_each_fate(tmp_path: Path) -> None:
    columns = {name: values for name, (values, _) in FATES.items()}
    pl.DataFrame(columns).write_csv(tmp_path / "t.csv")
    for data in (pa.table(columns), tmp_path / "t.csv"):
        for fate, (_, counts) in zip(check_values(data, SCHEMA), FATES.values(), strict=True):
            assert (fate.listed, fate.missing, fate.clipped, fate.folded, fate.no_cell) == counts
    with pytest.raises(DataError, match="the table has no column for 'folding', 'bare'"):
        check_values(pa.table({"age": [1]}), SCHEMA)


def test_a_check_agrees_with_the_codes() -> None:
    _, frames = generate("census", rows=600, seed=9)
    table = pl.concat(frames)
    schema = draft(table).as_seen()
    codes = encode(pl.concat(open_source(table).batches(schema.names)), schema)
    for attribute, column, fate in zip(schema.attributes, codes, check_values(table, schema), strict=True):
        assert fate.no_cell == np.count_nonzero(column == -1)
        assert fate.listed + fate.clipped == np.count_nonzero((column >= 0) & (column < attribute.n_values))


@pytest.mark.parametrize(
    ("entry", "values", "unfit"),
    [
        ("type = 'integer'\nedges = [0, 10]", ["5", "50"], False),
        ("type = 'integer'\nedges = [0, 10]", ["5", "50", "60"], True),
        ("type = 'integer'\nlow = 0\nhigh = 10\nbins = 2\ndomain = 'private'", ["5", "50", "60"], True),
        ("type = 'categorical'\nvalues = ['a']", ["a", "b", "c"], True),
        ("type = 'categorical'\nvalues = ['a']\nother = true", ["a", "b", "c"], True),
        ("type = 'categorical'\nvalues = ['a']", ["a", None, None], True),
        ("type = 'categorical'\nvalues = ['a']\nmissing = ''", ["a", None, None], False),
        ("type = 'categorical'\nvalues = ['a']\nother = true\ndomain = 'found'", ["a", "b", "c"], False),
        ("type = 'categorical'\ndomain = 'private'", ["a", "b", "c"], False),
    ],
)
def test_more_than_half_outside_is_unfit(entry: str, values: list[str | None], unfit: bool) -> None:
    (fate,) = check_values(pa.table({"x": values}), Schema.from_toml(f"[attributes.x]\n{entry}"))
    assert bool(fate.cause) is unfit


def test_a_check_reads_as_the_schema_says(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x;y\n1,5;a\n2,5;a\n")
    text = "[attributes.x]\ntype = 'real'\nedges = [0, 10]\n[attributes.y]\ntype = 'categorical'\nvalues = ['a']"
    fates = check_values(tmp_path / "t.csv", Schema.from_toml(f"[table]\ndelimiter = ';'\ndecimal = ','\n{text}"))
    assert [fate.listed for fate in fates] == [2, 2]
    (wrong, _) = check_values(tmp_path / "t.csv", Schema.from_toml(f"[table]\ndelimiter = ';'\n{text}"))
    cause = 'They are numbers in another writing: set decimal = "," in [table].'
    assert wrong.warning == f"x: 100% of its values are outside its domain. {cause}"


def test_rules_are_counted_beside_a_domain_that_a_release_has_yet_to_find() -> None:
    text = "[attributes]\nc = { type = 'categorical', domain = 'private' }\n"
    text += "".join(f"{name} = {{ type = 'categorical', values = ['x', 'y'] }}\n" for name in "ab")
    schema = Schema.from_toml(text + "[[rules]]\nforbid = { a = ['x'], b = ['y'] }\n")
    checked = check(schema, pa.table({"a": ["x", "x", "y", None], "b": ["y", "x", "y", "y"], "c": ["p"] * 4}))
    assert checked.rows_that_break == (1,)
    assert "Rule 1: broken by 1 rows." in checked.lines()


DATE = Attribute(name="d", kind="date", edges=(-20_000, 0, 20_000))
MOMENT = Attribute(name="d", kind="datetime", edges=(0, 10**15))
NUMBER = Attribute(name="x", kind="real", edges=(0.0, 10.0, 100.0))
CODES = Attribute(name="c", kind="categorical", values=("Private", "01"))
FLAG = Attribute(name="f", kind="boolean")


CAUSES = tomllib.loads(Path(__file__).with_name("causes.toml").read_text())


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, each in CAUSES.items() for case in each])
def test_a_likely_cause(name: str, case: dict[str, Any]) -> None:
    attribute: Attribute = globals()[name]
    texts = [None if text == "(null)" else text for text in case["texts"]]
    assert case["cause"] in likely_cause(attribute, Reading(), Counter(texts))
    comma = Reading(decimal=",")
    pointed = 'They are numbers with a decimal point: remove decimal = "," from [table].'
    assert likely_cause(NUMBER, comma, Counter(map(comma.plain, ("1.5", "2.5")))) == pointed


PERSON = Person(column="id", count="people")
BY_PERSON = Schema(name="v", attributes=(replace(CODES, name="ward", values=("A", "B")),), person=PERSON)


def visits(ids: Sequence[str | None]) -> pl.DataFrame:
    return pl.DataFrame({"id": ids, "ward": ["A"] * len(ids)}, schema_overrides={"id": pl.String})


def test_the_custodian_sees_rows_per_person() -> None:
    crowd = rows_per_person(visits([*["a"] * 5, *["b"] * 3, "c", None, ""]), BY_PERSON)
    assert (crowd.rows, crowd.people, crowd.without_id, crowd.most) == (11, 5, 2, 5)
    assert crowd.quantiles == ((0.5, 1), (0.9, 5), (0.99, 5))
    assert dict(crowd.kept)[2] == pytest.approx(7 / 11)
    assert crowd.warning is None
    dropped = replace(BY_PERSON, person=replace(PERSON, null_ids="drop"))
    assert rows_per_person(visits(["a", "a", None]), dropped).people == 1
    with pytest.raises(SchemaError, match="the schema names no person"):
        rows_per_person(visits(["a"]), replace(BY_PERSON, person=None))
    with pytest.raises(DataError, match="has no column 'id'"):
        rows_per_person(visits(["a"]).drop("id"), BY_PERSON)


def test_many_batches_are_brought_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sklar.rows.count._PENDING", 10)
    crowd = rows_per_person(visits([str(number % 70_000) for number in range(210_000)]), BY_PERSON)
    assert (crowd.people, crowd.most) == (70_000, 3)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", "a", "a"], "All rows have one id in 'id': the whole table would be one person's"),
        (["a", "b", "c"], "Every row has an id of its own in 'id': it tells rows apart, not people"),
        ([None, None], "No row has an id in 'id': each would be a person of its own"),
    ],
)
def test_ids_that_are_no_peoples_are_explained(ids: list[str | None], message: str) -> None:
    assert rows_per_person(visits(ids), BY_PERSON).lines()[-1].startswith(message)


def test_check_shows_people_to_the_custodian() -> None:
    checked = check(BY_PERSON, visits(["a", "a", "b"]))
    assert "\nAny one person, with all their rows, is protected. Counted are" in "\n".join(checked.lines())
    assert "People by 'id': 2, in 3 rows; 0 rows have no id." in checked.lines()
    assert json.loads(json.dumps(checked.to_dict()))["PRIVATE"]["people"]["people"] == 2


def test_an_evaluation_reads_the_original_by_person() -> None:
    rows = pl.DataFrame({"id": np.repeat(np.arange(50), 4), "ward": ["A", "B"] * 100})
    # A synthetic table has no ids: all its rows count.
    for table, counted in ((rows, 50), (rows.drop("id"), 200)):
        assert sum(codes.shape[1] for codes in read(table, BY_PERSON)[1]) == counted


def test_links_are_counted_exactly() -> None:
    frames = tables(70)
    stray = frames["events"].head(5).with_columns(person=pl.lit(-1, dtype=pl.Int64))
    frames["events"] = pl.concat([frames["events"], stray])
    frames["people"] = pl.concat([frames["people"], frames["people"].head(2)])
    numbers = [0 if i % 7 == 0 else 1 + i % 4 for i in range(70)]
    counted, beyond = sum(min(number, 2) for number in numbers), sum(max(number - 2, 0) for number in numbers)
    found = check(small(2), frames)
    assert found.links == (
        "PRIVATE: 70 people count; 2 more rows have the key of another one, and are dropped.",
        f"PRIVATE: events: {counted} rows count, 2 of one person or row at most; 5 name nobody that counts, and "
        f"{beyond} are too many (at_most = 2) or not unique: they are dropped.",
    )
    assert [fate.attribute for fate in found.values or ()] == ["sex", "region", "events.kind", "events.urgent"]


@pytest.mark.parametrize(
    ("ids", "owner", "words"),
    [
        (range(20), ["x"] * 9, "no row has a person. Are the keys the same thing"),
        (range(20), range(9), "nobody has two rows. If the key is unique for every row, it names rows"),
        ([1] * 20, [1] * 9, "it names nobody"),
    ],
)
def test_keys_that_match_nobody_are_explained(ids: Sequence[int], owner: Sequence[object], words: str) -> None:
    people = tables(20)["people"].with_columns(id=pl.Series(ids))
    events = pl.DataFrame({"person": owner, "kind": ["a"] * 9, "urgent": [True] * 9})
    assert words in check_links({"people": people, "events": events}, small())[-1]
