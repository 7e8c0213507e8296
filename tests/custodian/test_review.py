"""Reviews: every open decision is asked, an answer changes its entry alone, and says where the entry comes from."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sklar.custodian import review
from sklar.custodian.draft import HEADING, Draft, draft
from sklar.custodian.draft.propose import round_bounds
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
    assert income.decide.startswith("could it ever exceed 100,000 or be below 0?")
    assert "could a value lie beyond low or high?" in unseen[-1].decide
    assert "100,000" not in str(unseen[-1].choices)
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


TYPED = tomllib.loads(Path(__file__).with_name("typed.toml").read_text())["cases"]


@pytest.mark.parametrize(("name", "key", "typed", "entry"), TYPED)
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


DRAFT = "\n".join([*HEADING, "", Path(__file__).with_name("draft.toml").read_text()])


def test_what_is_proposed_is_accepted_and_rules_and_entries_of_the_rows_are_not() -> None:
    accepted = review.accept_all(DRAFT)
    assert Schema.from_toml(accepted).not_reviewed == ()
    assert "#" not in accepted
    with pytest.raises(SchemaError, match="read from the rows, or nobody says where they are from: patient"):
        review.accept_all(DRAFT.replace('values = ["a", "b"]', 'values = ["a", "b"]\nprovenance = "rows"'))


def test_one_plain_question_gives_round_bounds_which_are_public_when_they_are_chosen(drafted: Draft) -> None:
    never = choose(drafted.to_toml(), "income", "n", drafted)
    assert never.says == "no, by public knowledge: 0 to 100,000, as the file then says to everybody"
    income = Schema.from_toml(take(drafted.to_toml(), drafted, income="n")).attribute("income")
    assert (income.edges, income.domain, income.at_most, income.provenance) == ((0, 100_001), "private", 20, "public")


@pytest.mark.parametrize(
    ("low", "high", "ends", "asks"),
    [
        (0, 20_000, (0, 20_001), "exceed 20,000 or be below 0?"),
        (-7, 19, (-10, 21), "exceed 20 or be below -10?"),
        (3, 3_001, (0, 5_001), "exceed 5,000 or be below 0?"),
        ("1987-03-01", "2009-12-31", (3_652, 14_610), "be before 1980-01-01 or after 2009-12-31?"),
    ],
)
def test_round_bounds_hold_what_was_seen(low: Any, high: Any, ends: tuple[int, int], asks: str) -> None:
    made = draft(pa.table({"n": [low, low, high, high] * 13, "x": [1.5, 2.5] * 26}))
    assert round_bounds(made.schema.attribute("n"), made.columns[0]) == ends
    assert round_bounds(made.schema.attribute("x"), made.columns[1]) == (0.0, 5.0)
    [question] = review.questions(made.to_toml(), made, about={"n"})
    assert question.decide == f"could it ever {asks}"
    stated = Schema.from_toml(take(made.to_toml(), made, n="n")).attribute("n")
    assert (stated.edges, stated.domain) == (ends, "private")


def test_a_column_that_was_left_out_comes_back_as_a_question() -> None:
    made = draft(pa.table({"zip": [f"{i:05}" for i in range(300)], "sex": ["f", "m"] * 150}))
    text, schema = made.to_toml(), made.schema
    assert "zip" in review.left_out(schema, made)
    back = review.bring_back(text, made, "zip")
    [question] = review.questions(back, made, about={"zip"})
    assert (question.default, question.private[0][:24]) == ("a", "no value is missing; 300")
    assert '# Left out: "zip"' in text
    assert '# Left out: "zip"' not in back
    assert review.left_out(Schema.from_toml(back), made) == {}
    assert Schema.from_toml(review.accept_all(back)).unread == ("sex", "zip")
    with pytest.raises(SchemaError, match="no column 'zip' was left out"):
        review.bring_back(back, made, "zip")


ASKED = (
    "can a person have several rows? patient_id may say whose rows are. Say it first: it decides whom a release "
    "protects. sklar schema review and release --draft take --people COLUMN, or --people each-row; Python "
    "draft.people(...)."
)


def test_nothing_is_accepted_before_it_is_said_whose_rows_are() -> None:
    visits = draft(
        pa.table({"patient_id": [f"P{i % 150}" for i in range(600)], "age": [str(i % 90) for i in range(600)]})
    )
    assert (visits.schema.ask_person, Schema.from_toml(visits.to_toml())) == (("patient_id",), visits.schema)
    assert "4.0 rows with one value on average" in visits.private_page()
    text = visits.to_toml()
    refused: list[Callable[[], object]] = [
        lambda: review.accept_all(text), lambda: visits.schema.reviewed("public"), visits.schema.require_reviewed
    ]  # fmt: skip
    for call in refused:
        with pytest.raises(SchemaError, match=f"^{re.escape(ASKED)}$"):
            call()
    for said, person in (
        ("each-row", None), ("patient_id", Person(column="patient_id", count="people")),
        ("patient_id=8", Person(column="patient_id", count="rows", rows_per_person=8)),
    ):  # fmt: skip
        answered = visits.people(said)
        assert (answered.schema.person, answered.schema.ask_person) == (person, ())
        answered.schema.reviewed("public").require_reviewed()
        done = Schema.from_toml(review.accept_all(review.name_person(text, person)))
        assert (done.person, done.names, done.ask_person) == (person, answered.schema.names, ())
    with pytest.raises(SchemaError, match=r"^the table has no column 'id'. Name the one that says whose rows are.$"):
        visits.people("id")


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


def test_a_target_is_written_into_the_file() -> None:
    columns = "[attributes.a]\ntype = 'boolean'\n[attributes.b]\ntype = 'boolean'\n"
    text = f"# mine\n[table]\nname = 't'\ntarget = 'b'\n{columns}"
    changed = review.say_target(text, "a")
    assert changed.startswith("# mine\n[table]\nname = 't'\n")
    assert Schema.from_toml(changed).target == ("a",)
    assert "target" not in review.say_target(changed, "")
    bare = review.say_target("[attributes.a]\ntype = 'boolean'\n", "a")
    assert Schema.from_toml(bare).target == ("a",)
    with pytest.raises(SchemaError, match="no attribute 'c'"):
        review.say_target(text, "c")
