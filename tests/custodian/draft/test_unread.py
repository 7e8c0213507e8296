"""A draft that is accepted unread: it holds no value of the rows, is marked so, and every release of it says so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyreadstat
import pytest

import sklar
from sklar.custodian import review
from sklar.files.archive import load
from sklar.public.schema import Schema
from tests.cli.conftest import call

SECRET = {"town": "SECRETTOWN", "size": "SECRETCODE", "wide": 7654321e6, "grade": "SECRETGRADE", "income": 86420.1357}
SAID = "drafted from the rows and accepted unread: what it states of 3 columns is not covered by epsilon."


def people(rows: int = 60) -> pl.DataFrame:
    draw = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "town": draw.choice(["A", "B"], rows),
            # Numbers, among which texts may be codes.
            "size": draw.integers(0, 25, rows).astype(str),
            "wide": draw.random(rows) * 1e8,
            "grade": draw.choice(["low", "high"], rows),
            "income": np.round(draw.lognormal(10, 1, rows), 2),
        }
    )


def with_secret(frame: pl.DataFrame) -> pl.DataFrame:
    """A neighbor: the last row holds values that no other row has."""
    frame = pl.concat([frame.head(-1), pl.DataFrame([SECRET], schema=frame.schema)])
    return frame.with_columns(frame["grade"].cast(pl.Enum(["low", "SECRETGRADE", "high"])))


def test_no_value_of_a_row_is_in_a_schema_that_was_accepted_unread() -> None:
    neighbors = people().with_columns(pl.col("grade").cast(pl.Enum(["low", "high"]))), with_secret(people())
    one, other = (sklar.draft(each, name="t").unread() for each in neighbors)
    for schema in (one, other):
        assert schema.unread == schema.names
        schema.require_reviewed()
        assert Schema.from_toml(schema.to_toml()) == schema
    text = other.to_toml()
    assert not any(part in text for part in ("SECRET", "7654", "86420", '"low"', '"high"'))
    # What one person changes is a kind or one of few public bounds: what the certificate says is not covered.
    assert (one.attribute("wide").edges, other.attribute("wide").edges) == ((0.0, 1e9), (0.0, 1e15))
    assert one.attribute("grade") == other.attribute("grade")
    assert other.attribute("grade").private
    # A person who reads the draft is asked about what rows may have told.
    assert "SECRETGRADE" in sklar.draft(neighbors[1], name="t").to_toml()
    assert "SECRETCODE" in sklar.draft(neighbors[1], name="t").to_toml()


def test_no_bound_is_a_value_of_the_rows(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x\n" + "".join(f"{number}.5e3\n" for number in range(60)) + "-7.654321e77\n")
    assert sklar.draft(tmp_path / "t.csv").unread().attribute("x").edges == (-1e15, 1e15)


def test_labels_are_published_for_values_that_noise_found(tmp_path: Path) -> None:
    frame = pl.DataFrame({"job": [1, 2] * 1500 + [3], "ill": [0, 1, 1] * 1000 + [0]})
    labels: Any = {"job": {1: "nurse", 2: "teacher", 3: "SECRETJOB"}}
    pyreadstat.write_sav(frame, tmp_path / "t.sav", variable_value_labels=labels, column_labels={"job": "Occupation"})
    schema = sklar.draft(tmp_path / "t.sav").unread()
    assert (schema.attribute("job").private, len(schema.attribute("job").words.labels)) == (True, 3)
    # Noise lifts one row over the threshold, or sinks 1,500 below it, less than once in a billion runs.
    model = sklar.fit(tmp_path / "t.sav", schema, epsilon=10)
    job = model.schema.attribute("job")
    assert (job.values, job.words.labels) == (("1", "2"), (("1", "nurse"), ("2", "teacher")))
    model.save(tmp_path / "t.sklar")
    assert load(tmp_path / "t.sklar").certificate.unread == ("job", "ill")


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("draft")
    people(rows=600).drop("grade").with_columns(size=pl.int_range(600)).write_csv(folder / "people.csv")
    done = call("release", "people.csv", "--draft", "--epsilon", "1", "--out", "out.xlsx", cwd=folder)
    (folder / "said.txt").write_text(done.output)
    return folder


def test_one_command_goes_from_a_file_to_a_release(released: Path) -> None:
    said = (released / "said.txt").read_text()
    for line in (
        "PRIVATE until it is reviewed: what was assumed after a look at the rows, and read by nobody.",
        "  town: categorical, found with part of the budget",
        "  income: real from 0.0 to 1000000000.0, found with part of the budget",
        "  size: left out, it looks like an identifier: every row has another number",
        f"  The schema was {SAID}",
        "All that was lost, PRIVATE: sklar evaluate people.csv out.xlsx --schema out.sklar",
        "Nobody has read people.schema.toml. To release again by it (--schema): sklar schema review people.schema.toml",
    ):
        assert line in said
    # Off a terminal nothing of an evaluation is shown.
    assert "Overall" not in said
    schema = Schema.load(released / "people.schema.toml")
    assert schema.unread == ("town", "wide", "income") == load(released / "out.sklar").certificate.unread
    assert (released / "people.schema.toml").stat().st_mode & 0o777 == 0o600


def test_what_was_lost_is_shown_on_a_terminal(released: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sklar.cli.measuring._on_terminal", lambda: True)
    again = ("release", "people.csv", "--draft", "--replace", "--epsilon", "1", "--out", "again.csv")
    assert "PRIVATE, for your eyes: what was lost.\nPRIVATE: " in call(*again, cwd=released).output
    assert "PRIVATE" not in call(*again, "--json", cwd=released).stdout


def test_a_schema_that_is_there_is_kept(released: Path) -> None:
    schema = released / "people.schema.toml"
    before = schema.read_bytes()
    schema.write_bytes(before + b"# A word of somebody's.\n")
    done = call("release", "people.csv", "--draft", "--epsilon", "1", "--out", "o.csv", cwd=released, code=1)
    assert "exists, and the same command on the same inputs did not write it." in done.output
    assert schema.read_bytes() != before
    assert not (released / "o.sklar").exists()
    schema.write_bytes(before)


def test_every_page_of_a_release_says_what_nobody_read(released: Path) -> None:
    call("report", "out.sklar", "--out", "report.html", cwd=released)
    page = (released / "report.html").read_text()
    assert "It does not cover what the schema states of 3 attributes</b> (town, wide, income)" in page
    assert page.count("drafted from the records, accepted unread") == 3
    assert "The categories and bins of 0 of the 3 attributes are public knowledge" in page
    call("publish", "out.sklar", "--out", "folder", cwd=released)
    pages = "".join(path.read_text() for path in (released / "folder").glob("*.md"))
    assert "it was drafted from the records and accepted unread" in pages
    assert "who accepted a draft unread" in pages
    assert "3 entries were accepted unread" in call("verify", "out.sklar", cwd=released).output
    assert "accepted unread" in load(released / "out.sklar").certificate._repr_html_()


def test_a_review_asks_about_what_nobody_read_and_takes_the_mark_away(released: Path) -> None:
    text = (released / "people.schema.toml").read_text()
    waiting = review.questions(text)
    assert [question.name for question in waiting] == ["town", "wide", "income"]
    for question in waiting:
        text = review.answer(text, question.name, question.choices[0].entry)
    assert Schema.from_toml(text).unread == ()


def test_what_is_accepted_in_bulk_is_marked(tmp_path: Path) -> None:
    people().write_csv(tmp_path / "t.csv")
    sklar.draft(tmp_path / "t.csv", out=tmp_path / "t.toml")
    done = call("schema", "review", "t.toml", "--accept", cwd=tmp_path)
    assert re.search(
        r"Its entries: \d accepted unread\.\n\d entries were accepted unread: epsilon does not cover", done.output
    )
    assert Schema.load(tmp_path / "t.toml").unread
