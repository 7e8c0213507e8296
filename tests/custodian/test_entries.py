"""A schema file under review as a whole: accepting all, naming the person, and who may read it meanwhile."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sklar.custodian.draft import HEADING
from sklar.custodian.review import accept_all, name_person, save
from sklar.errors import SchemaError
from sklar.public.person import Person
from sklar.public.schema import Schema

DRAFT = f"""{HEADING[0]}
{HEADING[1]}

[table]
name = "visits"

[attributes.age]
# Proposed: wide bounds.
type = "integer"
domain = "private"
low = 0
high = 120
reviewed = false

[attributes.patient]
# Proposed: a list.
type = "categorical"
values = ["a", "b"]
reviewed = false

# Rule? "age" determines "patient"
"""


def test_what_is_proposed_is_accepted_and_rules_are_not() -> None:
    accepted = accept_all(DRAFT)
    assert Schema.from_toml(accepted).not_reviewed == ()
    assert "Rule?" not in accepted
    assert "# A draft" not in accepted


def test_entries_read_from_the_rows_are_not_accepted_unread() -> None:
    text = DRAFT.replace('values = ["a", "b"]', 'values = ["a", "b"]\nprovenance = "rows"')
    with pytest.raises(SchemaError, match="read from the rows, or nobody says where they are from: patient"):
        accept_all(text)


def test_a_person_is_named_changed_and_taken_back() -> None:
    people = Person(column="patient", count="people")
    named = name_person(DRAFT, people)
    # A column of ids is no attribute.
    assert Schema.from_toml(named).names == ("age",)
    assert Schema.from_toml(named).person == people
    rows = Person(column="patient", count="rows", rows_per_person=4)
    changed = name_person(named, rows)
    assert Schema.from_toml(changed).person == rows
    assert changed.count("\nperson =") == 1
    assert Schema.from_toml(name_person(changed, None)).person is None
    assert 'name = "visits"' in changed


def test_a_file_without_a_table_gets_one() -> None:
    named = name_person('[attributes.age]\ntype = "boolean"\n', Person(column="id", count="people"))
    assert named.startswith("[table]")
    person = Schema.from_toml(named).person
    assert person is not None
    assert person.column == "id"


def test_a_file_is_its_owners_alone_while_something_waits(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    save(path, DRAFT)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    save(path, accept_all(DRAFT))
    assert stat.S_IMODE(path.stat().st_mode) & 0o044
