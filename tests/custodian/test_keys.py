"""Ids and keys: how many rows people have, how events match people, and when a column names nobody."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from sklar.cli import cli
from sklar.custodian.check import check_links, rows_per_person
from sklar.custodian.evaluate.conjunctions import read
from sklar.errors import DataError, SchemaError
from sklar.public.schema import Schema
from tests.linked import small, tables

TOML = """[table]
name = "v"
person = "id"
count = "people"
[attributes.ward]
type = "categorical"
values = ["A", "B"]
"""
SCHEMA = Schema.from_toml(TOML)


def table(ids: Sequence[str | None]) -> pl.DataFrame:
    return pl.DataFrame({"id": ids, "ward": ["A"] * len(ids)}, schema={"id": pl.String, "ward": pl.String})


def test_the_custodian_sees_rows_per_person() -> None:
    crowd = rows_per_person(table([*["a"] * 5, *["b"] * 3, "c", None, ""]), SCHEMA)
    assert (crowd.rows, crowd.people, crowd.without_id, crowd.most) == (11, 5, 2, 5)
    assert crowd.quantiles == ((0.5, 1), (0.9, 5), (0.99, 5))
    assert dict(crowd.kept)[2] == pytest.approx(7 / 11)
    assert crowd.warning is None
    dropped = replace(SCHEMA, person=replace(SCHEMA.person, null_ids="drop"))  # type: ignore[type-var]
    assert rows_per_person(table(["a", "a", None]), dropped).people == 1


def test_many_batches_are_brought_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sklar.custodian.check._PENDING", 10)
    crowd = rows_per_person(table([str(number % 70_000) for number in range(210_000)]), SCHEMA)
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
    crowd = rows_per_person(table(ids), SCHEMA)
    assert crowd.warning is not None
    assert crowd.warning.startswith(message)
    assert crowd.warning in crowd.lines()


def test_a_table_or_schema_without_people_is_refused() -> None:
    with pytest.raises(SchemaError, match="the schema names no person"):
        rows_per_person(table(["a"]), replace(SCHEMA, person=None))
    with pytest.raises(DataError, match="has no column 'id'"):
        rows_per_person(table(["a"]).drop("id"), SCHEMA)


def test_check_shows_people_to_the_custodian(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(TOML)
    table(["a", "a", "b"]).write_csv(tmp_path / "t.csv")
    command = ["schema", "check", str(tmp_path / "s.toml"), str(tmp_path / "t.csv")]
    shown = CliRunner().invoke(cli, command)
    assert shown.exit_code == 0, shown.output
    assert "Any one person, with all their rows, is protected. Counted are people" in shown.output
    assert "People by 'id': 2, in 3 rows; 0 rows have no id." in shown.output
    document = json.loads(CliRunner().invoke(cli, [*command, "--json"]).stdout)
    assert document["PRIVATE"]["people"]["people"] == 2


def test_an_evaluation_reads_the_original_by_person() -> None:
    rows = pl.DataFrame({"id": np.repeat(np.arange(50), 4), "ward": ["A", "B"] * 100})
    _, batches = read(rows, SCHEMA)
    assert sum(codes.shape[1] for codes in batches) == 50
    # A synthetic table has no ids: all its rows count.
    _, batches = read(rows.drop("id"), SCHEMA)
    assert sum(codes.shape[1] for codes in batches) == 200


def test_links_are_counted_exactly() -> None:
    people, events = tables(70)
    events = pl.concat([events, events.head(5).with_columns(person=pl.lit(-1, dtype=pl.Int64))])
    people = pl.concat([people, people.head(2)])
    found = check_links(people, events, small(2))
    numbers = [0 if i % 7 == 0 else 1 + i % 4 for i in range(70)]
    assert found.to_dict() == {
        "people": 70,
        "events": sum(min(number, 2) for number in numbers),
        "unmatched": 5,
        "beyond": sum(max(number - 2, 0) for number in numbers),
        "repeated": 2,
        "without_events": numbers.count(0),
        "most": 2,
    }
    assert all(line.startswith("PRIVATE: ") for line in found.lines())
    assert "2 rows of people have the key of an earlier row" in found.lines()[3]


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (["x"] * 9, "no event has a person. Are both keys the same thing"),
        (list(range(9)), "nobody has two events. If the key is unique for every event, it names events"),
    ],
)
def test_keys_that_match_nobody_are_explained(owner: list[object], words: str) -> None:
    people, _ = tables(20)
    events = pl.DataFrame({"person": owner, "kind": ["a"] * 9, "urgent": [True] * 9})
    assert words in "\n".join(check_links(people, events, small()).lines())
    same = check_links(people.with_columns(id=pl.lit(1)), events.with_columns(person=pl.lit(1)), small())
    assert "it names nobody" in same.lines()[-1]
