"""What the pages show and do, by requests: every answer is a file in the folder, and no page takes another's place."""

from __future__ import annotations

import json
import re
import stat
import threading

import polars as pl
import pytest

import sklar
from sklar.budget.forecast import TWICE, forecast, group_of
from sklar.budget.ledger import Ledger
from sklar.cli import cli
from sklar.custodian.draft import draft
from sklar.generate import schema_toml
from sklar.public.schema import Schema
from sklar.public.settings import Person
from tests.conftest import output_of
from tests.studio.conftest import READ, SCHEMA, Answer, Browser, await_


def mark(browser: Browser, column: str) -> str:
    """The mark of a column's form on the page."""
    text = browser.get(f"/t/people/describe?column={column}").text
    found = re.search(rf'name="column" value="{column}">\s*<input type="hidden" name="mark" value="(\w+)"', text)
    assert found
    return found[1]


def decide(browser: Browser, column: str, **fields: str) -> Answer:
    """Answer the question about a column."""
    return browser.post("/t/people/describe", **{"column": column, "mark": mark(browser, column)} | fields)


def schema_of(browser: Browser) -> Schema:
    return Schema.load(browser.folder / "people.toml")


def test_a_table_is_opened_with_its_reading_and_a_private_preview(inside: Browser) -> None:
    (inside.folder / "german.csv").write_bytes("größe;ort\n1,5;Köln\n2,5;Bonn\n".encode("latin-1") * 30)
    page = inside.post("/open", file="german.csv")
    assert page.status == 200
    assert all(text in page.said for text in ("PRIVATE", "größe", "Köln"))
    assert all(text in page.text for text in ('<option value=";" selected>', 'value="windows-1252"'))
    notes = inside.folder / ".sklar-studio"
    assert stat.S_IMODE(notes.stat().st_mode) == 0o700
    assert stat.S_IMODE((notes / "german.desk.json").stat().st_mode) == 0o600


def test_a_chosen_reading_is_used_and_a_wrong_one_told(inside: Browser) -> None:
    (inside.folder / "bare.csv").write_text("1|x\n2|y\n" * 40)
    assert "encoding must be one like" in inside.open("bare", encoding="klingon").said
    inside.open("bare", delimiter="|", header="no")
    assert Schema.load(inside.folder / "bare.toml").reading.columns == ("column_1", "column_2")


def test_a_database_needs_a_query(inside: Browser) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(inside.folder / "census.duckdb") as connection:
        connection.execute("CREATE TABLE people AS SELECT range % 7 AS n FROM range(100)")
    assert "say which rows to read with a query" in inside.post("/open", file="census.duckdb").said
    page = inside.post("/open", file="census.duckdb", query="SELECT n FROM people")
    assert all(text in page.said for text in ("SELECT n FROM people", "The first rows"))


@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 50, b"a,b\n"])
def test_a_file_that_cannot_be_read_is_told(inside: Browser, content: bytes) -> None:
    (inside.folder / "odd.csv").write_bytes(content)
    assert inside.post("/open", file="odd.csv").status == 200
    page = inside.post("/t/odd/open", **READ)
    assert (page.status, 'role="alert"' in page.text) == (200, True)
    assert not (inside.folder / "odd.toml").exists()


def test_a_large_table_is_waited_for(inside: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    monkeypatch.setattr("sklar.studio.looks.draft", lambda *table, **how: held.wait(300) and draft(*table, **how))
    monkeypatch.setattr("sklar.studio.pages.opening._WAIT_S", 0.05)
    page = inside.open()
    assert "The rows are being read." in page.said
    assert '<input type="hidden" name="encoding" value="utf-8">' in page.text
    assert json.loads(inside.get("/t/people/reading/rows").text) == {"rows": 0, "over": False}
    # A schema that is there already can be described meanwhile, without what the rows will tell.
    monkeypatch.setattr("sklar.studio.pages.describing._WAIT_S", 0.05)
    (inside.folder / "people.toml").write_text(SCHEMA)
    meanwhile = inside.get("/t/people/describe?column=age").said
    told = ("The rows are being read (0 so far)", "What it costs is known when the rows have been read")
    assert all(text in meanwhile for text in told)
    (inside.folder / "people.toml").unlink()
    held.set()
    await_(lambda: bool(json.loads(inside.get("/t/people/reading/rows").text)["over"]))
    assert "Who and what" in inside.post("/t/people/open", **READ).said
    assert "The first rows" in inside.get("/t/people/reading?note=unknown").said


def test_a_draft_is_the_command_lines_and_waits_for_answers(drafted: Browser) -> None:
    path, table = drafted.folder / "people.toml", drafted.folder / "people.csv"
    assert path.read_text() == draft(table, name="people", reading=schema_of(drafted).reading).to_toml()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    page = drafted.get("/t/people/describe")
    assert all(text in page.said for text in ("what the rows show", "50 different values", "To decide 4"))
    assert "not reviewed" in drafted.post("/t/people/release").said
    assert not (drafted.folder / "ledger.db").exists()
    table.unlink()
    assert "does not exist any more" in drafted.get("/t/people/describe").said


def test_answers_change_one_entry_each_and_say_where_it_is_from(drafted: Browser) -> None:
    fields = {"choice": "e", "typed-e": "0, 30, 60, 120", "points": "0", "special-e": '999, "N"'}
    assert "'age' is decided. 3 to go." in decide(drafted, "age", **fields).said
    age = schema_of(drafted).attribute("age")
    assert (age.edges, age.points, age.provenance, age.reviewed) == ((0, 30, 60, 120), (0,), "public", True)
    assert age.special == (999, "N")
    decide(drafted, "region", choice="toml", toml='type = "categorical"\nvalues = ["n", "s", "w"]', provenance="rows")
    assert schema_of(drafted).attribute("region").provenance == "rows"
    assert "Accepted unread" in drafted.post("/t/people/describe/accept").said
    assert schema_of(drafted).not_reviewed == ()
    assert "'smoker' is left out" in decide(drafted, "smoker", choice="x").said
    assert "smoker" not in schema_of(drafted).names


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"choice": "e", "typed-e": "9, 3"}, "edges must increase"),
        ({"choice": "b", "typed-b": "1"}, "bounds must be two"),
        ({"choice": "toml", "toml": "type = "}, "not valid TOML"),
        ({"choice": "zz"}, "choose one of the answers"),
        ({"choice": "e", "typed-e": "0, 9", "special-e": "N"}, "numbers or texts in quotes"),
    ],
)
def test_a_wrong_answer_is_told_and_what_was_typed_stays(drafted: Browser, fields: dict[str, str], says: str) -> None:
    before = (drafted.folder / "people.toml").read_text()
    page = decide(drafted, "age", **fields)
    assert says in page.said
    assert (drafted.folder / "people.toml").read_text() == before
    if "typed-e" in fields:
        assert f'value="{fields["typed-e"]}"' in page.text


def test_a_form_of_an_older_page_is_refused(drafted: Browser) -> None:
    # Two tabs: the second one answers what the first has changed meanwhile.
    old = mark(drafted, "sex")
    decide(drafted, "sex", choice="a")
    assert "was changed meanwhile" in decide(drafted, "sex", mark=old, choice="x").said
    assert "sex" in schema_of(drafted).names


def test_costs_follow_what_is_typed(drafted: Browser) -> None:
    for fields, says in (
        ({"choice": "e", "typed-e": "0, 50, 100"}, '"2 levels. At epsilon 1'),
        ({"choice": "e", "typed-e": "0, 25, 50, 100"}, '"3 levels.'),
        ({"choice": "a"}, "levels. At epsilon 1"),
        ({"choice": "x"}, "it is left out"),
        ({"choice": "e", "typed-e": "5, 1"}, '"problem":"attribute'),
    ):
        assert says in drafted.post("/t/people/describe/cost", column="age", **fields).text


def test_people_and_rules(inside: Browser) -> None:
    rows = "".join(f"{row // 2},{'abcd'[row % 4]},{'AABB'[row % 4]}\n" for row in range(400))
    (inside.folder / "people.csv").write_text(f"id,town,county\n{rows}")
    inside.open()
    assert "whole number" in inside.post("/t/people/describe/person", person="id", count="rows", rows="x").said
    # Whose rows are is asked first: nothing is accepted before.
    page = inside.get("/t/people/describe")
    assert "Can a person have several rows?" in page.said
    assert "PRIVATE: what the rows show id repeats: 2.0 rows" in page.said
    assert "Say first whether a person can have several rows" in inside.post("/t/people/describe/accept").said
    # Nor is a total set, which would be for rows or for people for ever.
    assert "Say first whether a person can have several rows" in inside.get("/t/people/plan").said
    assert "Say first whether a person" in inside.post("/t/people/plan", epsilon="1", total="3").said
    assert not (inside.folder / "ledger.db").exists()
    inside.post("/t/people/describe/person", person="id", count="people")
    assert "200 people · noise" in inside.get("/t/people/describe").said
    inside.post("/t/people/describe/person", person="id", count="rows", rows="2")
    page = inside.get("/t/people/describe")
    assert "any one person, with all rows that have the same id" in page.said
    assert "400 rows · noise" in page.said
    assert schema_of(inside).person == Person(column="id", count="rows", rows_per_person=2)
    for column in ("town", "county"):
        decide(inside, column, choice="c")
    assert "town determines county" in inside.get("/t/people/describe").said
    rule = {"first": "town", "how": "determines", "second": "county", "public": "yes"}
    assert "every released record honors it" in inside.post("/t/people/describe/rule", **rule).said
    assert schema_of(inside).determined == {"county": "town"}
    assert "Costs nothing: a rule says" in inside.get("/t/people/describe?column=county").said
    assert "decided meanwhile" in inside.post("/t/people/describe/rule", **rule).said
    inside.post("/t/people/describe/person", person="")
    assert schema_of(inside).person is None
    assert "Releases are for town." in inside.post("/t/people/describe/target", target="town").said
    assert schema_of(inside).target == ("town",)
    assert '<option value="town" selected>' in inside.get("/t/people/describe").text
    assert "Name 'town' instead" in inside.post("/t/people/describe/target", target="county").said
    inside.post("/t/people/describe/target", target="")
    assert schema_of(inside).target == ()


def test_many_columns_are_paged_and_searched(inside: Browser) -> None:
    names = [f"question_{number}" for number in range(200)]
    pl.DataFrame({name: ["yes", "no"] * 5 for name in names}).write_csv(inside.folder / "wide.csv")
    (inside.folder / "wide.toml").write_text("".join(f'[attributes.{name}]\ntype = "boolean"\n' for name in names))
    inside.open("wide")
    for query, cards, says in (
        ("", 100, "Page 1 of 2"),
        ("?page=2", 100, "question_199"),
        ("?q=_123", 1, "question_123"),
        ("?q=nothing", 0, "No column is called so"),
        ("?page=x", 100, "Page 1 of 2"),
        ("?only=open", 0, "No column is called so"),
    ):
        page = inside.get(f"/t/wide/describe{query}")
        assert page.text.count('<th scope="row">') == cards
        assert says in page.said


def test_a_plan_forecasts_asks_and_sets_the_total_once(reviewed: Browser) -> None:
    def goals(**fields: str) -> Answer:
        return reviewed.post("/t/people/plan/goals", **fields)

    def planned(epsilon: str, total: str) -> Answer:
        return reviewed.post("/t/people/plan", epsilon=epsilon, total=total)

    page = reviewed.get("/t/people/plan")
    assert all(text in page.said for text in ("usable for counts of one and of two", "2.72 times as likely"))
    assert "22,100 times" in reviewed.get("/t/people/plan/forecast?epsilon=10").said
    assert reviewed.get("/t/people/plan/forecast?epsilon=10").text.count("<svg") == 2
    # Nothing is foreseen of another epsilon than was asked for.
    assert all(reviewed.get(f"/t/people/plan/forecast?epsilon={odd}").status == 400 for odd in ("nan", "5000", ""))
    goals(want="age x sex within 40%", epsilon="1")
    page = goals(want="region = 'n' within 1 rows")
    assert "age x sex within 40% yes: ±" in page.said
    assert "region = 'n' within 1 rows no: ±" in page.said
    assert "sklar plan --schema people.toml --rows 400 --epsilon 1 --want 'age x sex within 40%'" in page.said
    page = goals(want="height within 2%")
    assert all(text in page.text for text in ("height", 'role="alert"', 'value="height within 2%"'))
    assert "age x sex within" not in goals(remove="0").said
    page = planned("2", "1")
    assert "must be at least this release's" in page.said
    # A form that comes back has the figures of what was typed.
    figures = re.findall(r"\u00b1[\d,]+", reviewed.get("/t/people/plan/forecast?epsilon=2").said)[:2]
    assert figures == re.findall(r"\u00b1[\d,]+", page.said)[:2]
    assert 'value="2" inputmode' in page.text
    assert "must be a number from 0.001 to 1000, got '-1'" in planned("-1", "1").said
    planned("2", "3")
    planned("1.5", "99")
    assert Ledger(reviewed.folder / "ledger.db").account("people").epsilon == 3
    assert "would refuse epsilon 4" in reviewed.get("/t/people/plan/forecast?epsilon=4").said
    # The total is for rows: a schema of people does not add up with it.
    reviewed.post("/t/people/describe/person", person="smoker")
    assert "counts its budget for any one row, and the schema protects any one person" in planned("1", "3").said


def test_figures_are_those_of_the_command_line_the_notebook_and_the_report(reviewed: Browser) -> None:
    schema, model = reviewed.folder / "people.toml", reviewed.folder / "people-1.sklar"
    told = output_of(cli, "forecast", "--schema", schema, "--rows", 400, "--epsilon", 1)
    one, two = re.findall(r"\u00b1[\d,]+", told)[:2]
    page, card = reviewed.get("/t/people/plan").said, forecast(schema, rows=400, epsilon=1.0)._repr_html_()
    for shown in (page, card):
        assert re.search(f"{one} rows.*{two} rows", shown, re.DOTALL)
    sklar.fit(reviewed.folder / "people.csv", schema, epsilon=1.0).save(model)
    # Of known levels the figures of a forecast are those of the release, and so is the attacker's bound.
    report = reviewed.get("/t/people/report/page?release=1").said
    expected = forecast(schema, rows=400, epsilon=1.0)
    group, error = group_of(expected.schema.sizes, 400), TWICE * expected.one_way_error
    assert (
        f"One column {expected.grades[0]} A group of average size, {group}, comes back as {group - error:.0f}" in report
    )
    [limit] = re.findall(r"is right at most ([\d.]+%) of the time", page)
    assert f"at most {limit} are right" in report
    answered = output_of(cli, "query", model, "sex = 'female'")
    count, interval = re.findall(r"estimate +([\d,]+),|interval +([\d,]+ to [\d,]+)", answered)
    row = ["female", count[0], interval[1]]
    assert re.search(".*".join(map(re.escape, row)), reviewed.get("/t/people/report/page?release=1").said)


def test_every_page_shows_commands_that_the_command_line_knows(reviewed: Browser) -> None:
    reviewed.post("/t/people/plan", epsilon="1", total="3")
    for step in ("open", "describe", "plan", "release", "books"):
        commands = re.search(r"<pre[^>]*><code>(.*?)</code>", reviewed.get(f"/t/people/{step}").text, re.DOTALL)
        assert commands, step
        for program, command, *_ in map(str.split, commands[1].strip().splitlines()):
            assert (program, command in cli.commands) == ("sklar", True)


def test_steps_without_a_table_or_release_say_what_is_missing(reviewed: Browser) -> None:
    for step in ("look", "report", "publish"):
        assert "There is no release yet" in reviewed.get(f"/t/people/{step}").said
    for path in ("look/comparison", "report/page", "publish/verdict", "files/people-1.sklar"):
        assert reviewed.get(f"/t/people/{path}").status == 400
    assert "no such release" in reviewed.post("/t/people/look", release="7").said
    assert "no such release" in reviewed.post("/t/people/publish", release="x").said
    assert "Set the data set" in reviewed.post("/t/people/release").said


def test_the_generated_census_can_be_described(inside: Browser) -> None:
    # Every kind of attribute has a card.
    (inside.folder / "people.toml").write_text(schema_toml("census"))
    page = inside.open()
    for attribute in Schema.from_toml(schema_toml("census")).attributes:
        assert attribute.name in page.text
        assert inside.get(f"/t/people/describe?column={attribute.name}").status == 200
