"""Drafts: the file is public in form, with no figure of the rows; the page beside it is private and has them all."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklar.custodian.draft import Draft, draft
from sklar.custodian.draft.columns import Tie
from sklar.errors import DataError, SchemaError
from sklar.public.axis import days
from sklar.public.schema import Attribute, Schema
from sklar.release import fit
from tests.conftest import refuses

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
        entry = text.partition(f"[attributes.{name}]\n")[2]
        assert entry.startswith("# Proposed: ")
        assert "# Decide: " in entry.partition("type = ")[0]
    refuses("not reviewed: age, town, income, smoker, price", made.schema.require_reviewed, error=SchemaError)


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
    assert "Ulm" not in repr(made.columns) + repr(made.ties)


def test_values_in_the_page_cannot_break_out_and_heaps_are_on_it() -> None:
    evil = "<script>alert(1)</script>"
    page = drafted(evil, [evil, "b"] * 30).private_page()
    assert evil not in page
    assert "&lt;script&gt;" in page
    hours = draft(pa.table({"hours": ["40"] * 300 + [str(number) for number in range(10, 90)]}))
    assert "many rows share 40 (79%)" in hours.private_page()
    assert "40" not in hours.to_toml()


def test_tables_without_anything_to_draft_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n")
    column = "the table has no column that a draft could describe"
    for data, need in ((path, f"file '{path}' has no rows to draft a schema from"), (pa.table({"a": [None]}), column)):
        refuses(f"^{re.escape(need)}. Write the schema by hand.$", draft, data, error=DataError)


ROWS = 3_000
PICK = random.Random(30)
GRADES = {"primary": "1", "secondary": "2", "college": "3", "doctor": "4", "other": "1"}


def ties(columns: dict[str, list[str]]) -> dict[tuple[str, str, str], Tie]:
    return {(tie.first, tie.how, tie.second): tie for tie in draft(pa.table(columns)).ties}


def people() -> dict[str, list[str]]:
    grades = [PICK.choice(list(GRADES)) for _ in range(ROWS)]
    roles = [PICK.choice(["Wife", "Husband", "Child"]) for _ in range(ROWS)]
    sexes = [{"Wife": "Female", "Husband": "Male"}.get(role, PICK.choice(["Male", "Female"])) for role in roles]
    towns, numbers = [PICK.choice(["A", "B", "C"]) for _ in range(ROWS)], [GRADES[grade] for grade in grades]
    return {"grade": grades, "grade_number": numbers, "role": roles, "sex": sexes, "town": towns}


def test_what_determines_and_what_excludes() -> None:
    found = ties(people())
    assert set(found) == {("grade", "determines", "grade_number"), ("role", "excludes", "sex")}
    assert dict(found["grade", "determines", "grade_number"].pairs) == GRADES
    assert set(found["role", "excludes", "sex"].pairs) == {("Wife", "Male"), ("Husband", "Female")}


def test_a_few_mistakes_do_not_hide_a_tie_and_questions_name_no_values() -> None:
    columns = people()
    columns["sex"][columns["role"].index("Wife")] = "Male"
    tie = ties(columns)["role", "excludes", "sex"]
    assert (tie.broken, ("Wife", "Male") in tie.pairs) == (1, True)
    text = draft(pa.table(columns)).to_toml()
    assert '# Rule? "role" excludes "sex"\n' in text
    assert "Wife" not in text
    # Few rows and constant columns tie nothing.
    assert ties({"a": ["x", "y", "z"], "b": ["1", "2", "3"], "c": ["k", "l", "k"]}) == {}
    rare = ["1"] * (ROWS - 9) + ["2"] * 9
    assert ties({"a": [PICK.choice("xyz") for _ in range(ROWS)], "b": rare}) == {}


def drafted(name: str, values: Sequence[object], kind: pa.DataType | None = None) -> Draft:
    return draft(pa.table({name: pa.array(values, kind), "y": [True] * len(values)}))


def some(*texts: str, rows: int = 200) -> list[str]:
    return [PICK.choice(texts) for _ in range(rows)]


def numbers(low: int, high: int, rows: int = 400) -> list[str]:
    return [str(PICK.randrange(low, high)) for _ in range(rows)]


def decimals(low: float, high: float, places: int) -> list[str]:
    return [f"{PICK.uniform(low, high):.{places}f}" for _ in range(99)]


def moments(form: str) -> list[str]:
    minutes = (PICK.randrange(30_000_000) for _ in range(300))
    return [f"{dt.datetime(1912, 1, 1) + dt.timedelta(minutes=each):{form}}" for each in minutes]


TO_MINUTES = "%d.%m.%Y %H:%M"
CENTURIES = tuple(days(dt.date(year, 1, 1)) for year in (1900, 2100))


@pytest.mark.parametrize(("name", "values", "expected"), [
    # Categories are private, and public lists are proposed whole.
    ("town", some("Ulm", "Bonn"), {"kind": "categorical", "domain": "private", "values": (), "at_most": 50}),
    ("town", [f"Town {i % 300}" for i in range(3_000)], {"domain": "private", "at_most": 50}),
    ("county name", some(*(f"County {i}" for i in range(120)), rows=20_000), {"domain": "private"}),
    ("state", some("TX", "AL", "NY"), {"domain": "public", "n_values": 56}),
    ("sex", some("Male", "Female"), {"values": ("Female", "Male")}),
    ("month", some("2", "10", "1"), {"values": tuple(map(str, range(1, 13)))}),
    ("smoker", some("Y", "N"), {"kind": "boolean", "texts": ("N", "Y")}),
    # Codes in digits are categories; numbers that nearly all differ, but are not in a row, are quantities.
    ("ZIP Code", numbers(1_000, 90_000), {"kind": "categorical", "n_values": 100, "prefix": 2, "length": 5}),
    ("ZIP Code", [*(str(98_101 + i % 9) for i in range(3_000)), *(str(10_000 + 97 * i) for i in range(400))],
        {"kind": "categorical", "domain": "private", "prefix": 0}),
    ("branch", [f"{i:04}" for i in numbers(0, 900)], {"n_values": 100, "prefix": 2, "length": 4, "other": True}),
    ("ward code", numbers(100, 190), {"domain": "private", "prefix": 0}),
    ("region_id", numbers(1, 12), {"kind": "categorical", "domain": "private"}),
    ("income", numbers(0, 10**6, rows=300), {"kind": "integer"}),
    # Numbers get wide public bounds, and keep their places.
    ("hours-per-week", numbers(1, 99), {"domain": "private", "edges": (0, 169)}),
    ("pct_done", numbers(0, 100), {"domain": "private", "edges": (0, 101)}),
    ("lat", decimals(-80, 80, 5), {"edges": (-90.0, 90.0), "step": None, "at_most": 30, "weight": 3.0}),
    ("long", [f"{i / 3:.5f}" for i in range(-300, 300)], {"edges": (-180.0, 180.0), "at_most": 30}),
    ("share", decimals(0, 1, 5), {"domain": "private", "edges": (0.0, 1.0)}),
    ("income", numbers(0, 10**6), {"domain": "private", "edges": (0, 10**9)}),
    ("balance", numbers(-500, 500), {"domain": "private", "edges": (-(10**9), 10**9)}),
    ("large", numbers(0, 10**12), {"domain": "private", "edges": (0, 10**15)}),
    ("price", decimals(0, 900, 2), {"domain": "private", "edges": (0.0, 1e9), "step": 0.01}),
    # Ages have public bins, but not what only has the word in its name.
    ("Age", numbers(17, 91), {"domain": "public", "edges": (*range(0, 101, 5), 120)}),
    ("age_in_days", numbers(0, 40_000), {"edges": (0, 10**9)}),
    # A common text among numbers is special, and sentinels are that stand apart.
    ("PINCP", [*numbers(0, 90_000), *["N"] * 60], {"kind": "integer", "special": ("N",), "domain": "private"}),
    ("income", [*numbers(0, 5_000), *["-9"] * 20], {"special": (-9,)}),
    ("income", [*numbers(0, 500), *["999"] * 20, *["998"] * 20], {"special": (998, 999)}),
    ("income", [*numbers(0, 1_000), *["999"] * 20], {"special": ()}),
    ("income", [*numbers(-50, 50), *["-9"] * 20], {"special": ()}),
    ("income", [*numbers(0, 5_000), "-9"], {"special": ()}),
    ("temperature", [*decimals(-20, 40, 1), *["-999.0"] * 20], {"special": (-999,), "edges": (-1e9, 1e9), "step": 0.1}),
    # Numbers with signs keep them; of two signs nobody knows what they mean together.
    ("price", [f"${i * 7919 % 30_011:,}.50" for i in range(300)],
        {"kind": "real", "format": "$1,234.50", "step": None}),
    ("price", [f"{i}.{i % 9}50 €" for i in range(1, 300)], {"kind": "integer", "format": "1.234 €"}),
    ("price", [f"{i},5 kr" for i in range(300)], {"format": "12,5 kr", "edges": (0.0, 1e9)}),
    ("price", [f"{i} 000,00 EUR" for i in range(1, 300)], {"format": "1 234,50 EUR"}),
    ("price", [f"£{10**9 + i}" for i in range(300)], {"format": "£12", "edges": (0, 10**12)}),
    ("change", [f"({i})" if i % 2 else f"{i},000" for i in range(300)],
        {"format": "(1,234)", "edges": (-(10**9), 10**9)}),
    ("share", [f"{i / 4}%" for i in range(300)], {"format": "12.50%", "edges": (0.0, 100.0)}),
    ("price", [*[f"${i}" for i in range(300)], *["N"] * 9], {"format": "$12", "special": ("N",)}),
    ("price", [f"{'$' if i % 2 else '€'}{i}" for i in range(80)] * 5, {"kind": "categorical", "format": None}),
    ("price", [f"${10**13 + i % 90}" for i in range(400)], {"kind": "categorical"}),
    ("zip", [f"0{i % 60:04}" for i in range(400)], {"kind": "categorical"}),
    # Days as spreadsheets count them, by the column's name.
    ("visit date", numbers(40_000, 45_000), {"kind": "date", "format": "serial", "edges": CENTURIES}),
    ("income", numbers(40_000, 45_000), {"kind": "integer", "format": None}),
    # Codes beside a public list: common or customary ones are special, a rare one is not named.
    ("sex", [*some("F", "M"), *["U"] * 9], {"n_values": 3, "special": ("U",), "other": False}),
    ("state", [*some("Ohio", "Texas", "Iowa", "Utah"), "hidden"], {"n_values": 56, "special": (), "other": True}),
    # Of no person.
    ("phone_type", some("home", "work"), {"kind": "categorical"}),
    ("has_email", some("yes", "no"), {"kind": "boolean"}),
    ("product name", some("nut", "bolt"), {"kind": "categorical"}),
    ("length", [f"{PICK.uniform(0, 9):.9f}" for _ in range(300)], {"kind": "real"}),
    # Days and times are what they are.
    ("sailed", moments("%d.%m.%Y"), {"kind": "date", "format": "%d.%m.%Y", "edges": CENTURIES}),
    ("sailed", moments("%m/%d/%Y"), {"kind": "date", "format": "%m/%d/%Y"}),
    ("until", [*moments("%Y-%m-%d"), *["9999-12-31"] * 30], {"special": ("9999-12-31",), "edges": CENTURIES}),
    ("at", moments("%H:%M"), {"kind": "time", "shown": ["00:00:00", "24:00:00"]}),
    ("took", [f"{i % 90}:07:00" for i in range(300)], {"kind": "duration", "shown": ["0:00:00", "100000:00:00"]}),
    ("built_year", moments("%Y"), {"kind": "year", "shown": ["1900", "2100"]}),
    ("built", moments("%Y"), {"kind": "integer", "shown": ["0", "1000000000"]}),
    ("in", moments("%Y-%m"), {"kind": "yearmonth", "shown": ["1900-01", "2100-01"]}),
    ("day", moments("%Y%m%d"), {"kind": "date", "format": "%Y%m%d", "edges": CENTURIES}),
    # Moments are a date, a time of day and a weekday; a date alone where none has a time.
    ("seen.date", moments(TO_MINUTES), {"kind": "date", "part_of": "seen", "format": TO_MINUTES, "edges": CENTURIES}),
    ("seen.time", moments(TO_MINUTES), {"n_bins": 24, "step": 60, "reviewed": True, "format": TO_MINUTES}),
    ("seen.weekday", moments(TO_MINUTES), {"kind": "weekday", "domain": "public", "n_levels": 7}),
    ("seen", [dt.datetime(2001, 1, 1 + i % 28) for i in range(200)], {"kind": "date", "output": "timestamp[us]"}),
    ("seen", [*moments("%Y-%m-%d %H:%M:%S"), *["N"] * 30], {"kind": "datetime", "special": ("N",)}),
    # Types say what texts do not.
    ("x", [True, None], {"kind": "boolean", "missing": "", "reviewed": True}),
    ("n", list(range(0, 600, 3)), {"output": None}),
    ("wait", [dt.timedelta(minutes=7 * i) for i in range(200)], {"kind": "duration", "domain": "private"}),
])  # fmt: skip
def test_what_is_proposed(name: str, values: list[object], expected: dict[str, object]) -> None:
    attribute = drafted(name.partition(".")[0], values).schema.attribute(name)
    shown = {"shown": [attribute.axis.text(edge) for edge in attribute.edges]} if attribute.binned else {}
    assert {key: shown[key] if key in shown else getattr(attribute, key) for key in expected} == expected


def test_a_rare_text_among_numbers_is_not_named_and_doubtful_days_are_a_question() -> None:
    made = drafted("income", [*numbers(0, 90_000), "rather not say"])
    attribute = made.schema.attribute("income")
    assert (attribute.kind, attribute.special, attribute.missing) == ("integer", (), "")
    assert "rather" not in made.to_toml()
    assert "rather not say" in made.private_page()
    made = drafted("sailed", [f"{i % 12 + 1:02}/{i % 11 + 1:02}/2001" for i in range(200)])
    assert "The days also read as %m/%d/%Y: is the format right?" in made.to_toml()


PEOPLE, SEVERAL = "its name says that it holds names or addresses of people", ", with several rows each"
RATIO = "it holds two numbers in one text, as 120/80 does: split it into two columns, and draft again"


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("PassengerId", [str(i) for i in range(1, 300)], "it looks like an identifier: every row has another number"),
        ("number", [str(i) for i in range(1, 300)], "it looks like an identifier: every row has another number"),
        ("contact", [f"{3347930000 + 7919 * i}" for i in range(300)], "it looks like identifying numbers"),
        ("x", [f"{PICK.getrandbits(128):032x}" for _ in range(200)], "it looks like hashes or keys"),
        ("x", [f"a{i}@example.org" for i in range(200)], "it looks like addresses of people"),
        ("x", [f"https://a.org/{i}" for i in range(200)], "it looks like addresses of pages"),
        ("x", [f"Person {i}" for i in range(200)], "nearly every row has another text: it identifies"),
        ("x", [f"P{i % 190}" for i in range(200)], f"nearly every row has another text: it identifies{SEVERAL}"),
        # A full name that 900 rows share was published once: names go by the column's, however few they are.
        ("Name", ["Ann Lee"] * 900 + ["Bob Ray"] * 90, PEOPLE),
        ("First.Name", some("Ann", "Bob"), PEOPLE),
        ("Name", [f"Jane {i % 190}" for i in range(800)], f"{PEOPLE}{SEVERAL}"),
        ("customerName", some("A", "B"), PEOPLE),
        ("home_address", some("1 Elm", "2 Elm"), PEOPLE),
        ("Email", [f"a{i}@example.org" for i in range(200)], "its name is that of an identifier"),
        ("phone", some("1", "2"), f"its name is that of an identifier{SEVERAL}"),
        ("patient_id", [f"P{i % 40}" for i in range(400)], f"its name is that of an identifier{SEVERAL}"),
        ("bp", [f"{90 + i % 90}/{50 + i % 60}" for i in range(300)], RATIO),
        ("remarks", [f"seen on day {i % 150} by me" for i in range(300)], "it looks like free text"),
        ("site", ["Ulm"] * 200, "it is constant"),
        ("nothing", ["", "?"] * 100, "it holds no values"),
        ("Provider ID", [f"{10_000 + i % 150}" for i in range(1_000)], f"its name is that of an identifier{SEVERAL}"),
    ],
)
def test_what_identifies_or_says_nothing_is_left_out(name: str, values: list[str], reason: str) -> None:
    made = drafted(name, values)
    assert made.left_out[name] == reason
    assert made.schema.ask_person == ((name,) if reason.endswith(SEVERAL) else ())


PEOPLE_CODES = tomllib.loads(Path(__file__).with_name("people.toml").read_text())["cases"]


@pytest.mark.parametrize(("name", "asked", "form"), PEOPLE_CODES)
def test_codes_of_people_that_repeat_ask_whose_rows_they_are(name: str, asked: bool, form: str) -> None:
    made = drafted(name, [form.format(17 * (i % 150)) for i in range(600)])
    assert made.schema.ask_person == ((name,) if asked else ())
    if asked:
        assert made.people(name).schema.person
        assert name not in made.people(name).schema.names
        assert made.people("each-row").schema.ask_person == ()


CELLS: dict[str, st.SearchStrategy[Any]] = {
    "float64": st.none() | st.integers(-(10**6), 10**6),
    "Float64": st.none() | st.floats(-1e5, 1e5).map(lambda number: round(number, 2)),
    "Int64": st.none() | st.integers(-(2**62), 2**62),
    "int32": st.integers(-100, 100),
    "boolean": st.none() | st.booleans(),
    "string": st.none() | st.text(max_size=4) | st.sampled_from(["1", "2.50", "01/02/2020", "yes", "no"]),
    "category": st.sampled_from(["a", "b", "1"]),
    "datetime64[ns]": st.none() | st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)),
    "timedelta64[ns]": st.timedeltas(dt.timedelta(0), dt.timedelta(days=5)),
}


@st.composite
def frames(draw: st.DrawFn) -> Any:
    """Frames of pandas, of columns of any type; whole numbers with gaps are floats there."""
    pandas, rows = pytest.importorskip("pandas"), draw(st.integers(1, 30))
    names = draw(st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=4, unique=True))
    kinds = [draw(st.sampled_from(sorted(CELLS))) for _ in names]
    columns = [draw(st.lists(CELLS[kind], min_size=rows, max_size=rows)) for kind in kinds]
    return pandas.DataFrame(
        {name: pandas.Series(cells, dtype=kind) for name, kind, cells in zip(names, kinds, columns, strict=True)}
    )


@settings(max_examples=100, deadline=None)
@given(frames())
def test_a_draft_survives_its_own_file(frame: Any) -> None:
    try:
        made = draft(frame)
    except (DataError, SchemaError):
        return
    Schema.from_toml(made.to_toml())
    for schema in (made.schema, made.schema.reviewed("public") if not made.schema.ask_person else made.schema):
        for again in (Schema.from_toml(schema.to_toml()), Schema.from_dict(json.loads(json.dumps(schema.to_dict())))):
            assert again.digest == schema.digest


def test_a_schema_that_its_file_does_not_give_back_is_refused_before_the_charge() -> None:
    numbers = Attribute(name="x", kind="real", edges=(0.0, 5.0, 10.0), step=1.0)
    schema = Schema(name="t", attributes=(numbers,))
    with pytest.raises(SchemaError, match=r"gives back, and this one differs: x\. Nobody could read its model\."):
        fit(pa.table({"x": [1.0, 7.0] * 50}), schema, epsilon=1.0)
    fit(pa.table({"x": [1.0, 7.0] * 50}), Schema.from_toml(schema.to_toml()), epsilon=1.0)
