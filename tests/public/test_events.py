"""Schemas of linked tables: both forms of the file, and every mistake in it."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sklar.errors import BudgetError, SchemaError
from sklar.kernel.theorems import Budget
from sklar.public.events import Linked
from sklar.public.schema import Schema
from tests.conftest import refuses
from tests.linked import DAY, EVENTS, PEOPLE, in_order, small

schema = Schema.from_toml


def test_one_file_holds_both_schemas_or_names_files_beside_it(tmp_path: Path) -> None:
    beside = '[people]\nschema = "p.toml"\nkey = "id"\n[events]\nschema = "e.toml"\nkey = "person"\nat_most = 3\n'
    files = {"p.toml": PEOPLE, "e.toml": EVENTS, "both.toml": small().to_toml(), "beside.toml": beside}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert Linked.load(tmp_path / "both.toml") == Linked.load(tmp_path / "beside.toml") == small()
    assert Linked.of(tmp_path / "both.toml").digest == small().digest
    assert Linked.of(small()) == Linked.from_dict(small().to_dict()) == small()


def test_bins_cover_every_number_of_events() -> None:
    assert small(1).bins == (0, 1, 2)
    assert small(2).bins == (0, 1, 2, 3)
    assert small(30).bins == (0, 1, 2, 3, 5, 9, 17, 31)
    assert small(1_000).bins[-1] == 1_001


def test_an_order_is_part_of_the_file_and_of_its_digest() -> None:
    linked = in_order(follows="kind", unique=("day",))
    assert Linked.from_dict(linked.to_dict()) == Linked.from_dict(tomllib.loads(linked.to_toml())) == linked
    assert linked.to_dict()["events"]["unique"] == ["day"]
    assert not {"order", "follows", "unique"} & set(small().to_dict()["events"])
    assert len({each.digest for each in (linked, in_order(), replace(linked, order="day", follows=""))}) == 3


def test_times_are_counted_in_steps_of_their_attribute() -> None:
    course = in_order(unique=("day",)).course
    assert course is not None
    assert (course.step, course.first, course.edges, course.strict, course.width) == (1, 0, (0, 2, 5, 10), True, 10)
    assert (course.states, course.gaps, course.numbers) == (3, (0, 1, 2, 4, 8, 10), (0, 1, 2, 3, 4))
    hours = 'at = {type = "datetime", edges = ["2024-01-01 00:00:00", "2024-01-03 00:00:00"], step = 3600}'
    timed = replace(small(), events=schema(EVENTS + hours), order="at").course
    assert timed is not None
    assert (timed.step, timed.edges, timed.gaps) == (3_600_000_000, (0, 48), (0, 1, 2, 4, 8, 16, 32, 48))
    assert timed.first == 1_704_067_200 // 3_600
    assert small().course is None


def test_what_was_read_from_rows_is_named_and_what_was_not_reviewed_is_refused() -> None:
    linked = replace(small(), people=schema(PEOPLE.replace('"west"]', '"west"], provenance = "rows"')))
    assert (linked.name, linked.read_from_rows) == ("people", ("people: region",))
    with pytest.raises(SchemaError, match="not reviewed: urgent"):
        replace(small(), events=schema(EVENTS.replace('"boolean"', '"boolean", reviewed = false'))).require_reviewed()


PRIVATE = '{ type = "categorical", domain = "private" }'
TALL = '{ type = "integer", low = 0, high = 20000, bins = 19999 }'
DATE = '[attributes."at.date"]\ntype = "date"\npart_of = "at"\nlow = "2001-01-01"\nhigh = "2002-01-01"\nbins = 2\n'
WEEKDAY = '[attributes."at.weekday"]\ntype = "weekday"\npart_of = "at"\n'
WEEKS = '\nweeks = {type = "integer", low = 0, high = 100, bins = 20}'
ORDER = {"events": schema(EVENTS + DAY + WEEKS), "order": "day"}
RULE = '[[rules]]\nforbid = { kind = "a", urgent = "true" }\n'


@pytest.mark.parametrize(("changes", "words"), [
    ({"at_most": 0}, "at_most must be a whole number from 1 to 1,000, got 0"),
    ({"at_most": 1_001}, "got 1001. Give the number of events that hardly anyone exceeds"),
    ({"at_most": 2.5}, "got 2.5"), ({"at_most": True}, "got True"),
    ({"people_key": ""}, r"\[people\] key must name the column"),
    ({"events_key": 7}, r"\[events\] key must name the column that says whose row it is, got 7"),
    ({"people_key": "sex"}, "key 'sex' is also an attribute of its schema.* not released: remove it"),
    ({"events_key": "kind"}, r"\[events\] key 'kind' is also an attribute"),
    ({"people": schema("attributes.city = " + PRIVATE)}, "must be public, got a private one: 'city'"),
    ({"people": schema('[table]\nperson = "id"\ncount = "people"\n' + PEOPLE.replace("[table]", ""))},
        r"\[people\] the key says whose row it is: its schema takes no \[table\] person"),
    ({"events": schema(EVENTS + RULE)}, r"\[events\] linked tables take no rules yet"),
    ({"people": schema(DATE + WEEKDAY)}, r"linked tables take no parts of columns yet. Give"),
    ({"people": schema('attributes.x = { type = "boolean", weight = 2 }')},
        r"\[people\] linked tables take no weights yet\. Remove weight and \[\[pairs\]\]"),
    (ORDER | {"order": "when"}, r"\[events\] order must name attributes of its schema, got 'when'. It has kind, urge"),
    (ORDER | {"order": ["day"]}, "order must name attributes"),
    (ORDER | {"order": "kind"}, "order must be one of date, datetime, .*: 'kind' is a categorical"),
    (ORDER | {"at_most": 1}, "order needs an at_most of 2 or more"),
    (ORDER | {"follows": "day"}, "follows must name another attribute than order, got 'day' for both"),
    (ORDER | {"unique": "day"}, "unique must be a list of attributes, got 'day'"),
    (ORDER | {"unique": ("kind", "kind")}, "unique names an attribute twice"),
    (ORDER | {"unique": ("day",), "at_most": 11}, "unique 'day' has 10 values: at_most must be at most so many"),
    (ORDER | {"unique": ("weeks",)}, "unique attributes need levels of one value each: 'weeks' has bins of several"),
    (ORDER | {"follows": "weeks"}, "follows takes at most 16 levels: 'weeks' has 20"),
    (ORDER | {"events": schema(EVENTS + DAY.replace("}", ', missing = "?"}'))},
        "order takes bins alone: remove missing, special, points and clip of 'day'"),
    ({"follows": "kind"}, "follows needs an order: name the attribute by which"),
    ({"people": schema("attributes.x = " + TALL)}, "both schemas must have at most 20000 levels together"),
])  # fmt: skip
def test_what_cannot_be_linked_is_refused(changes: dict[str, Any], words: str) -> None:
    refuses(words, replace, small(), **changes, error=SchemaError)


BOTH = '[people]\nkey = "id"\nschema = {}\n[events]\nkey = "x"\nschema = {}\n{}'


@pytest.mark.parametrize(("text", "words"), [
    (None, "does not exist"), (b"\xff\xfe", "must be a UTF-8 text file"), (b"[people", "not valid TOML"),
    (b'[visits]\nkey = "x"', r"unknown key 'visits'. Known are \[people\] and \[events\]"),
    (b"", r"linked tables need \[people\] with key, schema"),
    (b'[people]\nkey = "id"\n', r"\[people\] 'schema' is missing. It has key, schema"),
    (BOTH.format('"p.toml"', '"p.toml"', "at_least = 1").encode(), r"\[events\] unknown key 'at_least'"),
    (BOTH.format(3, 3, "at_most = 2").encode(), r"\[people\] schema must name a schema file .*, got 3"),
    (BOTH.format('"no.toml"', '"p.toml"', "at_most = 2").encode(), "does not exist"),
])  # fmt: skip
def test_mistakes_in_the_file_are_told(text: bytes | None, words: str, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(PEOPLE)
    if text is not None:
        (tmp_path / "both.toml").write_bytes(text)
    refuses(words, Linked.load, tmp_path / "both.toml", error=SchemaError)


def test_budgets_are_by_person() -> None:
    assert small().budget_for(Budget(epsilon=1.0)).rows_per_person == 1
    with pytest.raises(BudgetError, match="cost the same for any number of events, got rows_per_person=4"):
        small().budget_for(Budget(epsilon=1.0, rows_per_person=4))
