"""Ties between columns: what determines or excludes is found, chance is not."""

from __future__ import annotations

import random

import pyarrow as pa

from sklar.custodian.draft import draft
from sklar.custodian.draft.columns import Tie

ROWS = 4_000
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
