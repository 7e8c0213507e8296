"""Reviews: every open decision is asked, an answer changes its entry alone, and says where the entry comes from."""

from __future__ import annotations

import random
import re

import pyarrow as pa
import pytest

from sklar.custodian import review
from sklar.custodian.draft import HEADING, Draft, draft
from sklar.errors import SchemaError
from sklar.public.rules import Determined, Forbidden
from sklar.public.schema import Schema
from sklar.public.settings import Person
from tests.custodian.draft.test_draft import ROWS, people


@pytest.fixture(scope="module")
def drafted() -> Draft:
    income = [str(random.Random(row).randrange(90_000)) for row in range(ROWS)]
    return draft(pa.table({name: values for name, values in people().items() if name != "town"} | {"income": income}))


def choose(text: str, name: str, key: str, drafted: Draft | None = None) -> review.ReviewChoice:
    question = next(question for question in review.questions(text, drafted) if question.name == name)
    return next(choice for choice in question.choices if choice.key == key)


def take(text: str, drafted: Draft, **keys: str) -> str:
    for name, key in keys.items():
        text = review.answer(text, name, choose(text, name, key, drafted).entry)
    return text


def test_every_open_entry_is_a_question_and_what_the_rows_show_needs_the_rows(drafted: Draft) -> None:
    text = drafted.to_toml()
    asked, unseen = review.questions(text, drafted), review.questions(text)
    assert [question.name for question in asked] == list(drafted.schema.names)
    assert all(question.default == "a" == question.choices[0].key for question in asked)
    income = asked[-1]
    assert income.proposed.startswith("a release finds the bins")
    assert income.stated.startswith("low = 0, high = 1000000000, bins = 20")
    assert "are low and high safe" in income.decide
    assert all(question.private == () for question in unseen)
    assert "Wife" not in repr(unseen[0]) + str([question.choices for question in unseen])
    different, common = next(question.private for question in asked if question.name == "role")
    assert "3 different values" in different
    assert "Wife (" in common


def test_an_answer_changes_its_entry_alone(drafted: Draft) -> None:
    header = "[attributes.role]\n"
    before = "# mine\n" + drafted.to_toml().replace(header, f"# above role\n{header}# of role\n")
    after = review.answer(before, "role", choose(before, "role", "a").entry)
    role = Schema.from_toml(after).attribute("role")
    assert (role.reviewed, role.provenance, role.domain) == (True, "public", "private")
    assert {"# mine", "# above role", "# of role"} <= set(after.splitlines())
    assert "# Proposed" not in after.partition(header)[2].partition("\n[")[0]
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
    assert review.questions(text) == []
    # What a draft said is gone when all is answered.
    for rule in review.open_rules(text):
        text = review.answer_rule(text, rule, ())
    assert "#" not in text
    assert text.startswith("[table]\n")


def test_a_column_that_is_left_out_takes_its_questions_along(drafted: Draft) -> None:
    text = take(drafted.to_toml(), drafted, role="x")
    assert "role" not in text
    assert [rule.first for rule in review.open_rules(text)] == ["grade"]
    for name in ("grade", "grade_number", "sex"):
        text = review.answer(text, name, None)
    with pytest.raises(SchemaError, match=r"^'income' is the last column of the schema, which needs one\. Keep it\.$"):
        review.answer(text, "income", None)


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
            review.answer(text, name, review.complete(choice, typed, attribute))
    else:
        made = review.complete(choice, typed, attribute)
        assert entry.items() <= made.items()
        changed = Schema.from_toml(review.answer(text, name, made)).attribute(name)
        assert (changed.reviewed, changed.provenance) == (True, "public")


def test_rules_are_stated_once_both_sides_list_their_values(drafted: Draft) -> None:
    text = drafted.to_toml()
    determined = review.open_rules(text)[0]
    assert review.rule_entries(determined, text, drafted) == []
    # One that is declined is not asked again.
    declined = review.answer_rule(text, determined, ())
    assert review.open_rules(declined) == review.open_rules(text)[1:]
    assert Schema.from_toml(declined).rules == ()
    text = take(text, drafted, grade="c", grade_number="c", role="c", sex="a", income="a")
    for rule in review.open_rules(text):
        text = review.answer_rule(text, rule, review.rule_entries(rule, text, drafted))
    assert review.open_rules(text) == ()
    assert "# Is it public knowledge" not in text
    assert [type(rule) for rule in Schema.from_toml(text).rules] == [Determined, Forbidden, Forbidden]


def test_nobody_vouches_unread_for_what_came_from_the_rows(drafted: Draft) -> None:
    """Neither for what says so, nor for what an earlier version drafted without saying so."""
    said = drafted.as_seen().to_toml()
    for text in (said, said.replace('provenance = "rows"\n', "")):
        assert {question.default for question in review.questions(text)} == {None}
    assert [choice.key for choice in review.questions(said)[0].choices][:2] == ["p", "r"]
    risked = review.answer(said, "grade", choose(said, "grade", "r").entry)
    assert Schema.from_toml(risked).read_from_rows == Schema.from_toml(said).read_from_rows


def test_entries_with_odd_names_and_long_lines_are_found() -> None:
    text = (
        '[attributes]\n\n[attributes."a.b [c]"] # odd\ntype = "categorical"\nvalues = [\n  "x",\n  "y",\n]\n'
        'reviewed = false\n\n[ attributes . plain ]\ntype = "boolean"\nreviewed = false\n'
    )
    for name in ("a.b [c]", "plain"):
        text = review.answer(text, name, review.questions(text)[0].choices[0].entry)
    Schema.from_toml(text).require_reviewed()
    text = 'attributes = { a = { type = "boolean", reviewed = false }, b = { type = "boolean" } }\n'
    refused = r"^attribute 'a': its header \[attributes.a\] was not found\. Edit the file by hand\.$"
    with pytest.raises(SchemaError, match=refused):
        review.answer(text, "a", review.questions(text)[0].choices[0].entry)


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
    accepted = review.accept_all(DRAFT)
    assert Schema.from_toml(accepted).not_reviewed == ()
    assert "#" not in accepted
    with pytest.raises(SchemaError, match="read from the rows, or nobody says where they are from: patient"):
        review.accept_all(DRAFT.replace('values = ["a", "b"]', 'values = ["a", "b"]\nprovenance = "rows"'))


def test_a_person_is_named_changed_and_taken_back() -> None:
    text, bare = DRAFT, '[attributes.age]\ntype = "boolean"\n'
    for person in (Person(column="patient", count="people"), Person(column="patient", count="rows", rows_per_person=4)):
        text = review.name_person(text, person)
        schema = Schema.from_toml(text)
        # A column of ids is no attribute.
        assert (schema.names, schema.person, schema.name) == (("age",), person, "visits")
        assert text.count("\nperson =") == 1
        # A file without a table gets one.
        assert review.name_person(bare, person).startswith("[table]")
        assert Schema.from_toml(review.name_person(bare, person)).person == person
    assert Schema.from_toml(review.name_person(text, None)).person is None
