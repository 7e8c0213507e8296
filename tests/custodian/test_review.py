"""Reviews: every open decision is asked, an answer changes its entry alone, and says where the entry comes from."""

from __future__ import annotations

import random
import re
import stat
from pathlib import Path

import pyarrow as pa
import pytest

from sklar.custodian.draft import HEADING, Draft, draft
from sklar.custodian.review import (
    ReviewChoice,
    accept_all,
    answer,
    answer_rule,
    complete,
    name_person,
    open_rules,
    questions,
    rule_entries,
    save,
)
from sklar.errors import SchemaError
from sklar.public.rules import Determined, Forbidden
from sklar.public.schema import Schema
from sklar.public.settings import Person
from tests.custodian.draft.test_draft import ROWS, people


@pytest.fixture(scope="module")
def drafted() -> Draft:
    income = [str(random.Random(row).randrange(90_000)) for row in range(ROWS)]
    return draft(pa.table({name: values for name, values in people().items() if name != "town"} | {"income": income}))


def choose(text: str, name: str, key: str, drafted: Draft | None = None) -> ReviewChoice:
    question = next(question for question in questions(text, drafted) if question.name == name)
    return next(choice for choice in question.choices if choice.key == key)


def take(text: str, drafted: Draft, **keys: str) -> str:
    for name, key in keys.items():
        text = answer(text, name, choose(text, name, key, drafted).entry)
    return text


def test_every_open_entry_is_a_question_and_what_the_rows_show_needs_the_rows(drafted: Draft) -> None:
    text = drafted.to_toml()
    asked, unseen = questions(text, drafted), questions(text)
    assert [question.name for question in asked] == list(drafted.schema.names)
    assert all(question.default == "a" == question.choices[0].key for question in asked)
    income = asked[-1]
    assert income.proposed.startswith("a release finds the bins")
    assert income.stated.startswith("low = 0, high = 1000000000, bins = 20")
    assert "are low and high safe" in income.decide
    assert all(question.private == () for question in unseen)
    assert "Wife" not in repr(unseen[0]) + str([question.choices for question in unseen])
    shown = {question.name: question.private for question in asked}
    assert "3 different values" in shown["role"][0]
    assert "Wife (" in shown["role"][1]


def test_an_answer_changes_its_entry_alone(drafted: Draft) -> None:
    before = "# mine\n" + drafted.to_toml().replace(
        "[attributes.role]\n", "# above role\n[attributes.role]\n# of role\n"
    )
    after = answer(before, "role", choose(before, "role", "a").entry)
    role = Schema.from_toml(after).attribute("role")
    assert (role.reviewed, role.provenance, role.domain) == (True, "public", "private")
    kept = [line for line in before.splitlines() if line in after.splitlines()]
    assert {"# mine", "# above role", "# of role"} <= set(kept)
    assert "# Proposed" not in after.partition("[attributes.role]\n")[2].partition("\n[")[0]
    others = [[each for each in Schema.from_toml(text).attributes if each.name != "role"] for text in (before, after)]
    assert others[0] == others[1]


def test_all_answers_make_a_schema_that_a_release_takes(drafted: Draft) -> None:
    text = take(drafted.to_toml(), drafted, grade="c", grade_number="c", role="r", sex="a", income="a")
    schema = Schema.from_toml(text)
    schema.require_reviewed()
    assert schema.attribute("grade").values == ("college", "doctor", "other", "primary", "secondary")
    assert {each.name: each.known_from for each in schema.attributes} == {
        "grade": "public", "grade_number": "public", "role": "rows", "sex": "public", "income": "found"
    }  # fmt: skip
    assert schema.read_from_rows == ("role",)
    assert questions(text) == []
    # What a draft said is gone when all is answered.
    for rule in open_rules(text):
        text = answer_rule(text, rule, ())
    assert "#" not in text
    assert text.startswith("[table]\n")


def test_a_column_that_is_left_out_takes_its_questions_along(drafted: Draft) -> None:
    text = take(drafted.to_toml(), drafted, role="x")
    assert "role" not in text
    assert [rule.first for rule in open_rules(text)] == ["grade"]
    for name in ("grade", "grade_number", "sex"):
        text = answer(text, name, None)
    with pytest.raises(SchemaError) as last:
        answer(text, "income", None)
    assert str(last.value) == "'income' is the last column of the schema, which needs one. Keep it."


@pytest.mark.parametrize(
    ("name", "key", "typed", "entry"),
    [
        ("role", "v", 'Wife, "Smith, J.", Child', {"values": ["Wife", "Smith, J.", "Child"]}),
        ("income", "b", "0, 1_000_000", {"low": 0, "high": 1_000_000}),
        ("income", "e", "0,10,20.0", {"edges": [0, 10, 20.0]}),
        ("role", "v", " ", "values must list at least one text. Separate them by commas."),
        ("income", "b", "7", "bounds must be two, the lower and the upper one, got '7'. Write 0, 1000000."),
        ("income", "e", "a, b", "'a' is not a number. Write numbers, separated by commas."),
        ("income", "e", "5, 3", "attribute 'income': edges must increase, got 3 after 5. Remove one."),
    ],
)
def test_what_is_typed_completes_an_entry_or_is_refused(
    drafted: Draft, name: str, key: str, typed: str, entry: dict[str, object] | str
) -> None:
    text = drafted.to_toml()
    choice, attribute = choose(text, name, key, drafted), drafted.schema.attribute(name)
    if isinstance(entry, str):
        with pytest.raises(SchemaError, match=f"^{re.escape(entry)}$"):
            answer(text, name, complete(choice, typed, attribute))
    else:
        made = complete(choice, typed, attribute)
        assert entry.items() <= made.items()
        changed = Schema.from_toml(answer(text, name, made)).attribute(name)
        assert (changed.reviewed, changed.provenance) == (True, "public")


def test_rules_are_stated_once_both_sides_list_their_values(drafted: Draft) -> None:
    text = drafted.to_toml()
    determined = open_rules(text)[0]
    assert rule_entries(determined, text, drafted) == []
    # One that is declined is not asked again.
    declined = answer_rule(text, determined, ())
    assert open_rules(declined) == open_rules(text)[1:]
    assert Schema.from_toml(declined).rules == ()
    text = take(text, drafted, grade="c", grade_number="c", role="c", sex="a", income="a")
    for rule in open_rules(text):
        text = answer_rule(text, rule, rule_entries(rule, text, drafted))
    assert open_rules(text) == ()
    assert "# Is it public knowledge" not in text
    assert [type(rule) for rule in Schema.from_toml(text).rules] == [Determined, Forbidden, Forbidden]


def test_nobody_vouches_unread_for_what_came_from_the_rows(drafted: Draft) -> None:
    """Neither for what says so, nor for what an earlier version drafted without saying so."""
    said = drafted.as_seen().to_toml()
    unsaid = said.replace('provenance = "rows"\n', "")
    assert {question.default for question in questions(said)} == {None}
    assert {question.default for question in questions(unsaid)} == {None}
    assert [choice.key for choice in questions(said)[0].choices][:2] == ["p", "r"]
    risked = answer(said, "grade", choose(said, "grade", "r").entry)
    assert Schema.from_toml(risked).read_from_rows == Schema.from_toml(said).read_from_rows


def test_entries_with_odd_names_and_long_lines_are_found() -> None:
    text = (
        '[attributes]\n\n[attributes."a.b [c]"] # odd\ntype = "categorical"\nvalues = [\n  "x",\n  "y",\n]\n'
        'reviewed = false\n\n[ attributes . plain ]\ntype = "boolean"\nreviewed = false\n'
    )
    for name in ("a.b [c]", "plain"):
        text = answer(text, name, questions(text)[0].choices[0].entry)
    Schema.from_toml(text).require_reviewed()
    text = 'attributes = { a = { type = "boolean", reviewed = false }, b = { type = "boolean" } }\n'
    with pytest.raises(SchemaError) as refused:
        answer(text, "a", questions(text)[0].choices[0].entry)
    assert str(refused.value) == "attribute 'a': its header [attributes.a] was not found. Edit the file by hand."


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


def test_what_is_proposed_is_accepted_and_rules_and_entries_of_the_rows_are_not() -> None:
    accepted = accept_all(DRAFT)
    assert Schema.from_toml(accepted).not_reviewed == ()
    assert "#" not in accepted
    with pytest.raises(SchemaError, match="read from the rows, or nobody says where they are from: patient"):
        accept_all(DRAFT.replace('values = ["a", "b"]', 'values = ["a", "b"]\nprovenance = "rows"'))


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
    # A file without a table gets one.
    bare = name_person('[attributes.age]\ntype = "boolean"\n', people)
    assert bare.startswith("[table]")
    assert Schema.from_toml(bare).person == people


def test_a_file_is_its_owners_alone_while_something_waits(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    for text, others in ((DRAFT, 0), (accept_all(DRAFT), 0o044)):
        save(path, text)
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == others
