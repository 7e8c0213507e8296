"""Schemas of linked tables: both forms of the file, the joint table, and every mistake in it."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from sklar.errors import SchemaError
from sklar.public.schema import Schema
from sklar.public.tree import NONE, Branch, Tree, known_of
from tests.conftest import refuses
from tests.linked import DAY, EVENTS, PEOPLE, deep, in_order, small, tree

schema = Schema.from_toml
RULE = '[[rules]]\nforbid = { kind = "a", urgent = "true" }\n'
MAPPED = '[[rules]]\nattribute = "urgent"\ndetermined_by = "kind"\nmap = { a = "true", b = "false", c = "false" }\n'


def test_one_file_holds_all_schemas_or_names_files_beside_it(tmp_path: Path) -> None:
    beside = '[people]\nschema = "p.toml"\nkey = "id"\n[events]\nschema = "e.toml"\nkey = "person"\nat_most = 3\n'
    files = {"p.toml": PEOPLE, "e.toml": EVENTS, "all.toml": small().to_toml(), "beside.toml": beside}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert Tree.load(tmp_path / "all.toml") == Tree.load(tmp_path / "beside.toml") == small()
    assert known_of(tmp_path / "all.toml").digest == small().digest
    assert known_of(tmp_path / "p.toml") == schema(PEOPLE)
    for own in (deep(), in_order(follows="kind", unique=("day",)), tree(events=EVENTS + RULE)):
        assert Tree.from_dict(own.to_dict()) == Tree.from_dict(tomllib.loads(own.to_toml())) == own
    assert len({each.digest for each in (in_order(), in_order(unique=("day",)), in_order(follows=""), small())}) == 4


def test_a_person_is_one_row_of_the_joint_table() -> None:
    joint = deep().joint
    assert joint.names == (
        "sex", "region", "events", "events.kind", "events.urgent", "steps", "steps.step", "drugs", "drugs.drug"
    )  # fmt: skip
    assert deep().ties == (0, 0, 0, 1, 1, 1, 1, 0, 2)
    assert deep().people.names == ("sex", "region", "events", "drugs")
    # Who has no row has a level for that, but for numbers of a person's own rows.
    assert [NONE in each.levels for each in joint.attributes] == [False] * 3 + [True] * 4 + [False, True]
    assert joint.person is not None
    assert joint.person.rows_per_person == 1
    assert small(30).joint.attribute("events").edges == (0, 1, 2, 3, 5, 9, 17, 31)
    assert small(1).branches[1].bins == (0, 1, 2)
    assert small(1_000).branches[1].bins[-1] == 1_001


def test_rules_weights_and_targets_of_tables_are_those_of_the_joint_one() -> None:
    table = '[table]\ntarget = "kind"'
    weighed = EVENTS.replace("[table]", table).replace('"boolean"', '"boolean", weight = 2') + RULE
    joint = tree(events=weighed).joint
    assert joint.target == ("events.kind",)
    assert joint.attribute("events.urgent").weight == 2
    free = joint.allowed[3, 4]
    assert not free[0, 1]
    assert free.sum() == free.size - 1
    determined = tree(events=EVENTS + MAPPED).joint
    assert determined.determined == {"events.urgent": "events.kind"}
    # Who has no event has no urgency.
    levels = determined.attribute("events.urgent").levels
    assert [levels[code] for code in determined.sources[4][1]] == ["true", "false", "false", NONE]
    across = replace(small(), rules=tree(events=EVENTS + RULE).joint.rules[:1])
    assert Tree.from_dict(across.to_dict()) == across
    assert small().aimed("sex", "events.kind").joint.target == ("sex", "events.kind")
    refuses("has no attribute 'kind'", small().aimed, "kind", error=SchemaError)


def test_times_are_counted_in_steps_of_their_attribute() -> None:
    course = in_order(unique=("day",)).branches[1].course
    assert course is not None
    assert (course.step, course.first, course.edges, course.strict, course.width) == (1, 0, (0, 2, 5, 10), True, 10)
    assert (course.states, course.gaps, course.numbers) == (3, (0, 1, 2, 4, 8, 10), (0, 1, 2, 3, 4))
    hours = 'at = {type = "datetime", edges = ["2024-01-01 00:00:00", "2024-01-03 00:00:00"], step = 3600}'
    timed = tree(events=EVENTS + hours, order="at").branches[1].course
    assert timed is not None
    assert (timed.step, timed.edges, timed.gaps) == (3_600_000_000, (0, 48), (0, 1, 2, 4, 8, 16, 32, 48))
    assert timed.first == 1_704_067_200 // 3_600
    assert small().branches[1].course is None


def test_what_was_read_from_rows_is_named_and_what_was_not_reviewed_is_refused() -> None:
    read = tree(events=EVENTS.replace('"boolean"', '"boolean", provenance = "rows"'))
    assert (read.name, read.joint.read_from_rows) == ("people", ("events.urgent",))
    waiting = tree(events=EVENTS.replace('"boolean"', '"boolean", reviewed = false'))
    refuses(r"\[events\] .*not reviewed: urgent", waiting.require_reviewed, error=SchemaError)


def test_categories_may_be_rows_of_a_public_table(tmp_path: Path) -> None:
    (tmp_path / "wards.csv").write_text("ward,beds\nA,10\nB,12\n")
    entries = {"schema": {"attributes": {"ward": {"type": "categorical"}}}, "key": "person", "at_most": 2}
    document = {"people": {"schema": schema(PEOPLE).to_dict(), "key": "id"}, "stays": entries}
    made = Tree.from_dict(document | {"wards": {"public": "wards.csv", "id": "ward"}}, folder=tmp_path)
    assert made.branches[1].schema.attribute("ward").values == ("A", "B")
    assert made.lookups[0].columns == (("ward", ("A", "B")), ("beds", ("10", "12")))
    assert Tree.from_dict(tomllib.loads(made.to_toml())) == made
    wrong = [({"A": [1]}, "ward", "a column 'ward'"), ({"ward": ["A", "A"]}, "ward", "another text in every row")]
    for public, column, words in wrong:
        refuses(words, Tree.from_dict, document | {"wards": {"public": public, "id": column}}, error=SchemaError)
    listed = {"attributes": {"ward": {"type": "categorical", "values": ["A", "C"]}}}
    public = {"wards": {"public": {"ward": ["A", "B"]}, "id": "ward"}}
    lost = document | {"stays": entries | {"schema": listed}} | public
    refuses("it has no row 'C', a value of 'ward'", Tree.from_dict, lost, error=SchemaError)
    refuses(
        "cannot be read",
        Tree.from_dict,
        document | {"w": {"public": "no.csv", "id": "w"}},
        folder=tmp_path,
        error=SchemaError,
    )


WEEKS = '\nweeks = {type = "integer", low = 0, high = 100, bins = 20}'
ORDER = {"events": EVENTS + DAY + WEEKS, "order": "day"}


@pytest.mark.parametrize(("changes", "words"), [
    ({"at_most": 0}, "at_most must be a whole number from 1 to 1,000, got 0"),
    ({"at_most": 1_001}, "got 1001. Give the number of rows that hardly anyone exceeds"),
    ({"at_most": 2.5}, "got 2.5"), ({"at_most": True}, "got True"),
    ({"people": '[table]\nperson = "id"\ncount = "people"\n' + PEOPLE.replace("[table]", "")},
        r"\[people\] the key says whose row it is: its schema takes no \[table\] person"),
    (ORDER | {"order": "when"}, r"\[events\] order, follows and unique must name attributes of its schema, got 'when'"),
    (ORDER | {"order": ["day"]}, "must name attributes"),
    (ORDER | {"order": "kind"}, "order must be one of date, datetime, .*: 'kind' is a categorical"),
    (ORDER | {"at_most": 1}, "order needs an at_most of 2 or more"),
    (ORDER | {"follows": "day"}, "follows must name another attribute than order, got 'day' for both"),
    (ORDER | {"unique": "day"}, "unique must be a list of attributes, got 'day'"),
    (ORDER | {"unique": ("kind", "kind")}, "unique names an attribute twice"),
    (ORDER | {"unique": ("day",), "at_most": 11}, "unique 'day' has 10 values: at_most must be at most so many"),
    (ORDER | {"unique": ("weeks",)}, "unique attributes need levels of one value each: 'weeks' has bins of several"),
    (ORDER | {"follows": "weeks"}, "follows takes at most 16 levels: 'weeks' has 20"),
    (ORDER | {"events": EVENTS + DAY.replace("}", ', missing = "?"}')}, "order takes bins alone: remove missing"),
    ({"events": EVENTS + MAPPED, "unique": ("kind",), "order": "urgent"}, "order must be one of"),
    ({"follows": "kind"}, "follows needs an order: name the attribute by which"),
    ({"events": '[attributes.kind]\ntype = "categorical"\ndomain = "private"', "unique": ("kind",)},
        "need public domains, got a private one: 'kind'"),
    ({"people": "".join(f'[attributes.x{n}]\ntype="integer"\nlow=0\nhigh=15000\nbins=14999\n' for n in range(2))},
        "two attributes must have at most"),
])  # fmt: skip
def test_what_cannot_be_linked_is_refused(changes: dict[str, Any], words: str) -> None:
    refuses(words, tree, **changes, error=SchemaError)


PERSON, BELOW = small().branches


@pytest.mark.parametrize(("branches", "words"), [
    ((replace(PERSON, key=""), BELOW), r"\[people\] key must name the column"),
    ((PERSON, replace(BELOW, key=cast("str", 7))), r"\[events\] key must name the column that says whose row it is"),
    ((replace(PERSON, key="sex"), BELOW), "key 'sex' is also an attribute of its schema.* not released: remove it"),
    ((PERSON, replace(BELOW, id="kind")), r"\[events\] id 'kind' is also an attribute"),
    ((PERSON, *(own for k in range(4) for own in (
        replace(BELOW, name=f"t{k}", id="no"), replace(BELOW, name=f"u{k}", of=f"t{k}", parent="no"),
    ))), "at most 3 can have tables below them"),
    ((PERSON,), "linked tables are people and at least one other table"),
    ((PERSON, replace(BELOW, of="visits")), "of must name a table that stands before it, got 'visits'"),
    ((replace(PERSON, of="people"), BELOW), "hangs on none. Remove of"),
    ((PERSON, replace(BELOW, name="people")), "tables must differ in name, got 'people' twice"),
    ((PERSON, replace(BELOW, name="a.b")), "a table's name must be letters"),
    ((PERSON, replace(BELOW, parent="event")), "parent is for rows that hang on rows of a table below people"),
    ((*small().branches, replace(BELOW, name="steps", of="events", parent="x")), r"\[events\] needs an id"),
    ((PERSON, replace(BELOW, id="e"), replace(BELOW, name="steps", of="events")), "parent must name the column"),
    (tuple(replace(each, name=f"t{n}", of="t0" if n else "") for n, each in enumerate([PERSON] + [BELOW] * 7)),
        "at most 6 tables can hang on people"),
    ((*deep().branches[:2], deep().branches[3], deep().branches[2]), "tables must follow those that they hang on"),
    ((PERSON, replace(BELOW, name="sex")), "'sex' is an attribute of people"),
])  # fmt: skip
def test_tables_hang_together(branches: tuple[Branch, ...], words: str) -> None:
    refuses(words, Tree, branches=branches, error=SchemaError)


BOTH = '[people]\nkey = "id"\nschema = {}\n[events]\nkey = "x"\nschema = {}\n{}'


@pytest.mark.parametrize(("text", "words"), [
    (None, "does not exist"), (b"\xff\xfe", "must be a UTF-8 text file"), (b"[people", "not valid TOML"),
    (b'[people]\nkey = "x"', r"\[people\] must say its schema, or which file is public"),
    (b'[people]\nschema = "p.toml"\n[events]\nschema = "p.toml"', r"\[people\] key must name the column"),
    (BOTH.format('"p.toml"', '"p.toml"', "at_least = 1").encode(), r"\[events\] unknown key 'at_least'"),
    (BOTH.format(3, 3, "at_most = 2").encode(), r"\[people\] schema must name a schema file .*, got 3"),
    (BOTH.format('"no.toml"', '"p.toml"', "at_most = 2").encode(), "does not exist"),
])  # fmt: skip
def test_mistakes_in_the_file_are_told(text: bytes | None, words: str, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(PEOPLE)
    if text is not None:
        (tmp_path / "all.toml").write_bytes(text)
    refuses(words, Tree.load, tmp_path / "all.toml", error=SchemaError)


def test_where_one_table_is_meant_linked_ones_are_refused(tmp_path: Path) -> None:
    (tmp_path / "all.toml").write_text(small().to_toml())
    refuses("describes linked tables, and one is meant here", Schema.load, tmp_path / "all.toml", error=SchemaError)
