"""`sklar schema review` on a terminal: keyboard only, every answer saved at once, and nothing vouched for unread."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import click
import pytest
from click.testing import Result

from sklar.public.schema import Schema
from tests.cli.conftest import call, on_a_terminal

ROWS = 2_000


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table and its draft."""
    folder, pick = tmp_path_factory.mktemp("people"), random.Random(50)
    lines = ["id,town,role,sex,income"]
    for number in range(ROWS):
        role = pick.choice(["Wife", "Husband", "Child"])
        sex = {"Wife": "Female", "Husband": "Male"}.get(role, pick.choice(["Male", "Female"]))
        lines.append(f"{number},{pick.choice(['Ulm', 'Bonn'])},{role},{sex},{pick.randrange(90_000)}")
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    drafted = call("schema", "draft", "people.csv", "-o", "d.toml", cwd=folder)
    assert "Left out: id" in drafted.stdout
    assert "PRIVATE, for your eyes: what the rows show is in d.PRIVATE.html." in drafted.stdout
    return folder


@pytest.fixture
def folder(people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("people.csv", "d.toml"):
        (tmp_path / name).write_bytes((people / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def review(*arguments: str, typed: str = "", code: int = 0) -> Result:
    return call("schema", "review", "d.toml", *arguments, cwd=Path.cwd(), typed=typed, code=code)


def test_answers_one_by_one(folder: Path) -> None:
    done = review("people.csv", typed="c\nr\n\nb\n0, 1000000\ny\nn\n")
    assert "[1 of 4] town  (categorical)" in done.output
    assert "PRIVATE   no value is missing; 2 different values." in done.output
    assert "1 read from the rows, at the custodian's risk.\nEntries that were read from the rows: 1, and" in done.output
    schema = Schema.load(folder / "d.toml")
    schema.require_reviewed()
    assert schema.attribute("town").values == ("Bonn", "Ulm")
    assert schema.attribute("income").edges == (0, 1_000_000)
    assert schema.read_from_rows == ("role",)
    assert len(schema.rules) == 1
    # It is public now: other people may read it.
    umask = os.umask(0)
    os.umask(umask)
    assert (folder / "d.toml").stat().st_mode & 0o777 == 0o666 & ~umask


def test_stopping_and_going_on(folder: Path) -> None:
    first = review("people.csv", typed="v\nUlm, Bonn\nq\n")
    assert "Stopped; 3 columns are open. All answers are in d.toml: run it again to go on." in first.output
    assert (folder / "d.toml").stat().st_mode & 0o777 == 0o600
    # The end of the input stops as well.
    second = review("people.csv", typed="\n")
    assert "[1 of 3] role" in second.output
    assert "Stopped; 2 columns are open." in second.output
    third = review("people.csv", typed="A\n")
    assert "[1 of 2] sex" in third.output
    assert "Its entries: 2 public knowledge, 2 found with budget.\nEvery entry is reviewed." in third.output
    assert Schema.load(folder / "d.toml").attribute("town").values == ("Ulm", "Bonn")
    assert "Every entry is reviewed" in review("people.csv").output


def test_help_and_wrong_keys(folder: Path) -> None:
    done = review(typed="?\nz\nv\n\nv\nUlm\nA\n")
    assert "found with budget  a release finds the domain itself" in done.output
    assert "Type one of a, v, x, A, ? or q." in done.output
    assert "values must list at least one text." in done.output
    assert "Give the table too" in done.output
    assert Schema.load(folder / "d.toml").attribute("town").values == ("Ulm",)


def test_nothing_is_asked_with_accept(folder: Path) -> None:
    done = review("--accept", "--json")
    assert json.loads(done.output) == {
        "provenance": {"public": 1, "found": 3, "rows": 0}, "attributes": 4, "person": None, "rules": 0, "out": "d.toml"
    }  # fmt: skip
    text = (folder / "d.toml").read_text()
    assert "# Rule?" not in text
    Schema.from_toml(text).require_reviewed()


def test_people_come_first(folder: Path) -> None:
    """Where ids repeat, nothing is accepted before it is said whose rows are; else it says what was taken."""
    taken = "It protects one row: each is taken for another person's (else add --people COLUMN)."
    assert taken in review("--accept").output
    lines = (folder / "people.csv").read_text().splitlines()
    visits = [f"P{n % 500:03},{line.partition(',')[2]}" for n, line in enumerate(lines[1:])]
    (folder / "v.csv").write_text("\n".join([lines[0].replace("id", "patient_id"), *visits]) + "\n")
    call("schema", "draft", "v.csv", "-o", "d.toml", "--replace", cwd=folder)
    before = (folder / "d.toml").read_text()
    assert "can a person have several rows? patient_id may say" in review("--accept", code=1).stderr
    assert (folder / "d.toml").read_text() == before
    done = review("v.csv", typed="?\npatient_id=0\npatient_id=4\nA\n")
    assert done.output.index("Can a person have several rows?") < done.output.index("columns to decide")
    for said in (
        "patient_id repeats: 4.0 rows with one value on average, 50% of the values",
        "whose rows are must be said by one of patient_id, town, role, sex, income, got '?'. Or say each-row.",
        "rows_per_person must be a whole number from 1 to 1,000, got 0",
        "It protects one person, all rows of one patient_id, and counts rows: at most 4 of each person",
    ):
        assert said in " ".join(done.output.replace("PRIVATE", "").split())
    assert 'person = "patient_id"\ncount = "rows"\nrows_per_person = 4\n' in (folder / "d.toml").read_text()
    for said, column in (("patient_id", "patient_id"), ("each-row", None)):
        (folder / "d.toml").write_text(before)
        assert json.loads(review("--people", said, "--accept", "--json").output)["person"] == column


def test_what_is_refused(folder: Path) -> None:
    """--accept does not vouch for rows, and --json asks nothing."""
    before = '[attributes.town]\ntype = "categorical"\nvalues = ["Ulm"]\nreviewed = false\n'
    (folder / "d.toml").write_text(before)
    assert review("--accept", code=1).stderr == (
        "sklar: these entries were read from the rows, or nobody says where they are from: town. Accepting unread "
        "does not vouch for them: answer their questions one by one.\n"
    )
    assert "--json asks nothing: add --accept." in review("--json", code=2).stderr
    assert (folder / "d.toml").read_text() == before


def test_on_a_terminal(folder: Path) -> None:
    """The real thing once: keys go in, colors come out."""
    drawn = on_a_terminal("schema", "review", "d.toml", cwd=folder, typed=b"\nA\n")
    assert "\x1b[1m[1 of 4] town" in drawn
    assert "Every entry is reviewed" in click.unstyle(drawn)
