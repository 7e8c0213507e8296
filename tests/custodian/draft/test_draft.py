"""Drafts: the file is public in form, with no figure of the rows; the page beside it is private and has them all."""

from __future__ import annotations

import random
import re
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from sklar.custodian.draft import Draft, draft
from sklar.custodian.draft.columns import Tie
from sklar.errors import DataError, SchemaError
from sklar.generate import generate
from sklar.public.schema import Schema

TOWNS = ("Ulm", "Bonn", "Trier", "Jena")


def table(seed: int, rows: int = 400) -> pa.Table:
    """People: the same shape for every seed, other rows."""
    pick = random.Random(seed)
    return pa.table(
        {
            "person": [f"{pick.getrandbits(64):016x}" for _ in range(rows)],
            "age": [str(pick.randrange(18, 90)) for _ in range(rows)],
            "town": [pick.choice(TOWNS) for _ in range(rows)],
            "income": [pick.choice(["N", "-9", str(pick.randrange(1_000, 90_000))]) for _ in range(rows)],
            "smoker": [pick.choice("YN") for _ in range(rows)],
            "price": [f"{pick.randrange(10, 9_000) / 100:.2f}" for _ in range(rows)],
        }
    )


def test_the_file_holds_no_value_and_no_figure_of_the_rows() -> None:
    """Other rows of the same shape give the same file."""
    text = draft(table(3)).to_toml()
    assert text == draft(table(2)).to_toml()
    incomes = {value for value in table(3)["income"].to_pylist() if value not in ("N", "-9")}
    assert not incomes & set(re.findall(r"\d+", text))
    assert not any(figure in text for figure in (*TOWNS, "400"))


def test_the_file_says_what_is_proposed_and_what_is_to_be_decided() -> None:
    made = draft(table(4), name="people")
    text = made.to_toml()
    assert Schema.from_toml(text) == made.schema
    assert made.schema.name == "people"
    assert '# Left out: "person": it looks like hashes or keys.' in text
    for name in made.schema.names:
        header = f"[attributes.{name}]\n"
        _, _, entry = text.partition(header)
        assert entry.startswith("# Proposed: ")
        assert "# Decide: " in entry.partition("type = ")[0]
    with pytest.raises(SchemaError, match="not reviewed: age, town, income, smoker, price"):
        made.schema.require_reviewed()


def test_names_cannot_become_entries(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(',"odd\n[attributes.evil]",age\n' + "".join(f"{i},text {i},{i % 9}\n" for i in range(300)))
    made = draft(path)
    assert made.schema.names == ("age",)
    assert made.left_out[""] == "it has no name"
    text = made.to_toml()
    assert Schema.from_toml(text) == made.schema
    assert '# Left out: "odd\\n[attributes.evil]": nearly every row has another text: it identifies.' in text


def test_the_page_is_private_and_shows_what_was_seen_and_a_repr_does_not() -> None:
    made = draft(table(5))
    page = made.private_page()
    assert page.count("PRIVATE") > 3
    for shown in ("Ulm", "400", "from 18 to", "not of that kind: &#39;N&#39;", "hashes or keys"):
        assert shown in page
    assert repr(made) == "Draft('table', PRIVATE until it is reviewed: see .to_toml() and .private_page())"
    assert "Ulm" not in repr(made.seen) + repr(made.seen.columns) + repr(made.ties)


def test_values_in_the_page_cannot_break_out() -> None:
    evil = "<script>alert(1)</script>"
    page = draft(pa.table({evil: [evil, "b"] * 30, "x": [True] * 60})).private_page()
    assert evil not in page
    assert "&lt;script&gt;" in page


def test_heaps_and_ranges_are_on_the_page_and_not_in_the_file() -> None:
    hours = ["40"] * 300 + [str(number) for number in range(10, 90)]
    made = draft(pa.table({"hours-per-week": hours}))
    assert "many rows share 40 (79%)" in made.private_page()
    attribute = made.schema.attribute("hours-per-week")
    assert (attribute.domain, attribute.edges) == ("private", (0, 169))


def test_tables_without_anything_to_draft_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n")
    with pytest.raises(DataError) as empty:
        draft(path)
    assert str(empty.value) == f"file '{path}' has no rows to draft a schema from. Write the schema by hand."
    with pytest.raises(DataError) as nothing:
        draft(pa.table({"a": [None]}))
    assert str(nothing.value) == "the table has no column that a draft could describe. Write the schema by hand."


def test_a_draft_of_a_generated_census() -> None:
    _, frames = generate("census", rows=1_000, seed=4)
    made: Draft = draft(pl.concat(frames))
    assert set(made.left_out) == {"person_id"}
    assert {attribute.kind for attribute in made.schema.attributes} >= {"categorical", "integer", "date"}
    public = {attribute.name for attribute in made.schema.attributes if attribute.domain == "public"}
    assert public == {"age", "sex", "employed", "disability"} & set(made.schema.names)


ROWS = 3_000
PICK = random.Random(30)
GRADES = {"primary": "1", "secondary": "2", "college": "3", "doctor": "4", "other": "1"}


def ties(columns: dict[str, list[str]]) -> dict[tuple[str, str, str], Tie]:
    return {(tie.first, tie.how, tie.second): tie for tie in draft(pa.table(columns)).ties}


def people() -> dict[str, list[str]]:
    grades = [PICK.choice(list(GRADES)) for _ in range(ROWS)]
    roles = [PICK.choice(["Wife", "Husband", "Child"]) for _ in range(ROWS)]
    sexes = [{"Wife": "Female", "Husband": "Male"}.get(role, PICK.choice(["Male", "Female"])) for role in roles]
    towns = [PICK.choice(["A", "B", "C"]) for _ in range(ROWS)]
    return {
        "grade": grades,
        "grade_number": [GRADES[grade] for grade in grades],
        "role": roles,
        "sex": sexes,
        "town": towns,
    }


def test_what_determines_and_what_excludes() -> None:
    found = ties(people())
    assert set(found) == {("grade", "determines", "grade_number"), ("role", "excludes", "sex")}
    assert dict(found["grade", "determines", "grade_number"].pairs) == GRADES
    assert set(found["role", "excludes", "sex"].pairs) == {("Wife", "Male"), ("Husband", "Female")}


def test_a_few_mistakes_do_not_hide_a_tie() -> None:
    columns = people()
    columns["sex"][columns["role"].index("Wife")] = "Male"
    tie = ties(columns)["role", "excludes", "sex"]
    assert (tie.broken, ("Wife", "Male") in tie.pairs) == (1, True)


def test_questions_name_columns_and_no_values() -> None:
    text = draft(pa.table(people())).to_toml()
    assert '# Rule? "role" excludes "sex"\n' in text
    assert "Wife" not in text


def test_few_rows_and_constant_columns_tie_nothing() -> None:
    assert ties({"a": ["x", "y", "z"], "b": ["1", "2", "3"], "c": ["k", "l", "k"]}) == {}
    rare = ["1"] * (ROWS - 9) + ["2"] * 9
    assert ties({"a": [PICK.choice("xyz") for _ in range(ROWS)], "b": rare}) == {}
