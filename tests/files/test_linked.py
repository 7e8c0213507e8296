"""Models of linked tables: what they draw, and that their files are read strictly."""

from __future__ import annotations

import sqlite3
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

import sklar
from sklar.answer.predicate import QueryError
from sklar.errors import DataError, ModelError, OutputError
from sklar.files.archive import is_linked, load, load_linked
from sklar.files.model import LinkedModel
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from tests.conftest import refuses
from tests.linked import small, tables
from tests.trust.forge import forged, put


@pytest.fixture(scope="module", autouse=True)
def few_steps() -> Iterator[None]:
    """Short fits: how good they are is another test's business."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sklar.fitting.classes.MAX_STEPS", 40)
        yield


@pytest.fixture(scope="module")
def model() -> LinkedModel:
    return sklar.fit_linked(*tables(), small(), epsilon=3.0)


@pytest.fixture(scope="module")
def saved(model: LinkedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("linked") / "m.sklar"
    model.save(path)
    return path


def test_every_event_has_a_person(model: LinkedModel) -> None:
    people, events = model.sample(40_000, seed=1)
    assert people["id"].to_list() == list(range(1, 40_001))
    assert events["person"].is_sorted()
    assert set(events["person"].unique()) <= set(people["id"])
    numbers = events.group_by("person").len()["len"]
    # Noise may leave nobody without events, or with three.
    assert set(numbers.unique()) <= {1, 2, 3}
    assert len(numbers) <= people.height
    assert people.columns == ["id", "sex", "region"]
    assert events.columns == ["person", "kind", "urgent"]


def test_a_seed_means_the_same_tables(model: LinkedModel, saved: Path) -> None:
    again = load_linked(saved)
    for first, second in zip(model.sample(500, seed=7), again.sample(500, seed=7), strict=True):
        assert first.equals(second)
    assert not model.sample(500, seed=8)[0].equals(model.sample(500, seed=7)[0])
    assert model.sample()[0].height == 400


def test_files_hold_what_is_sampled(model: LinkedModel, tmp_path: Path) -> None:
    model.write(tmp_path / "p.csv", tmp_path / "e.parquet", 300, seed=7)
    people, events = model.sample(300, seed=7)
    assert pl.read_csv(tmp_path / "p.csv").equals(people)
    assert pl.read_parquet(tmp_path / "e.parquet").equals(events)
    with pytest.raises(OutputError, match="need a file each"):
        model.write(tmp_path / "p.csv", tmp_path / "p.csv")
    odd: Any
    for odd in (0, -1, 2.5):
        with pytest.raises(ModelError, match="people must be a whole number of at least 1"):
            model.sample(odd)


def test_what_it_says_of_itself(model: LinkedModel) -> None:
    text = "\n".join(model.summary())
    assert "for the content of any one person, with all their events" in text
    assert "400 people, at most 3 events each" in text
    assert "  4 tables of an attribute of people and one of events, noise of scale" in text
    assert model.certificate.to_dict()["unit"] == "person"
    assert model.certificate.public_rows == 400


def test_under_add_remove_the_number_of_people_is_measured(tmp_path: Path) -> None:
    made = sklar.fit_linked(*tables(), small(), Budget(epsilon=3.0, neighbors="add-remove"))
    assert made.certificate.public_rows is None
    assert made.n_people == made.measured.n_people
    # The noise of the number of people is about 20: 400 within 150 but for a chance far below one in a million.
    assert abs(made.n_people - 400) < 250
    assert "about" in made.summary()[0]
    made.save(tmp_path / "m.sklar")
    assert load_linked(tmp_path / "m.sklar").n_people == made.n_people


def test_files_are_told_apart(saved: Path, tmp_path: Path) -> None:
    assert is_linked(saved)
    assert not is_linked(tmp_path / "no.sklar")
    (tmp_path / "text.sklar").write_text("no zip")
    assert not is_linked(tmp_path / "text.sklar")
    with pytest.raises(ModelError, match="it is a model of linked tables"):
        load(saved)
    with pytest.raises(ModelError, match="does not exist"):
        load_linked(tmp_path / "no.sklar")
    with pytest.raises(ModelError, match="or it is damaged"):
        load_linked(tmp_path / "text.sklar")


# Where in the description, what stands there, and why that is refused.
WRONG = tomllib.loads(Path(__file__).with_name("archive.toml").read_text())["wrong of linked tables"] + [
    ("certificate.public_people", None, "public where neighbors share it"),
    ("certificate.rows_per_person", None, "rows_per_person must be a whole number"),
]


@pytest.mark.parametrize(("place", "value", "words"), WRONG)
def test_what_a_file_may_not_say(saved: Path, tmp_path: Path, place: str, value: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        load_linked(forged(saved, put(place, value), tmp_path / "m.sklar"))


def test_no_kind_of_table_may_be_missing(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="must hold all kinds of tables that its schema has, each once"):
        load_linked(forged(saved, lambda document, _: document["blocks"].pop(), tmp_path / "m.sklar"))


@pytest.mark.parametrize("odd", [np.nan, -0.5, 2.0])
def test_classes_must_be_probabilities(saved: Path, tmp_path: Path, odd: float) -> None:
    def change(_document: Any, arrays: Any) -> None:
        arrays["person"].flat[0] = odd

    with pytest.raises(ModelError, match="'person' must hold probabilities"):
        load_linked(forged(saved, change, tmp_path / "m.sklar"))


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_no_rows_make_a_release_fail(neighbors: Any) -> None:
    """People without events, values that nobody can read, keys that nobody has: a release like any other."""
    people, events = tables(20)
    odd = pl.DataFrame({"person": [None] * 3, "kind": [[1], [2], None], "urgent": [b"\xff", None, b"x"]})
    made = sklar.fit_linked(people, odd, small(), Budget(epsilon=1.0, neighbors=neighbors))
    assert made.sample(10, seed=1)[0].height == 10
    if neighbors == "add-remove":
        nobody = sklar.fit_linked(people.clear(), events, small(), Budget(epsilon=1.0, neighbors=neighbors))
        assert nobody.n_people >= 1
    else:
        # The number of people is public, and none are none.
        with pytest.raises(DataError, match="the table has no rows"):
            sklar.fit_linked(people.clear(), events, small(), epsilon=1.0)


@pytest.mark.parametrize("name", ["people", "events"])
def test_a_table_by_itself_answers_as_any_model_does(model: LinkedModel, saved: Path, name: str) -> None:
    table, asked = model.table(name), {"people": "sex = 'F'", "events": "urgent = true"}[name]
    answer, shared = table.query(asked), "whose events share one unit of each (not a count of events)"
    assert answer.estimate is not None
    assert answer.choosing_error is None
    # Half of the people, a third of everybody's events; noise of about 20 of 400.
    assert abs(answer.estimate / answer.n_rows - {"people": 1 / 2, "events": 1 / 3}[name]) < 0.4
    assert abs(table.copula.margins().sum() - 2) < 1e-3
    inferred = table.infer(f"share({asked})", target="table")
    text = "\n".join([*answer.lines(), *inferred.lines(), sklar.report(saved, table=name).html])
    assert text.count(shared) == (0 if name == "people" else 4)
    assert ("It is not the share of events." in text) == (name == "events")
    assert f"sklar query m.sklar --table {name} " in text
    assert "with all their events" in text
    assert "rows, 19 times" not in "".join(answer.lines())
    assert "people):" in inferred.lines()[0]
    refuses("is no model of its own. Save the linked model", table.save, "x.sklar", error=ModelError)
    refuses("of one table. Name none", sklar.report, table, table=name, error=ModelError)
    refuses("two linked tables. Name one of them, people or events", sklar.report, model, error=ModelError)


def test_the_model_of_events_draws_as_the_linked_one(model: LinkedModel) -> None:
    """One random event of each of 60,000 people: six standard errors, and what rounding of classes may move."""
    people, events = model.sample(60_000, seed=3)
    one = events.group_by("person").agg(pl.all().first())
    kind, urgent = one["kind"].to_numpy(), one["urgent"].to_numpy()
    shares = np.array([*((kind == each).mean() for each in "abc"), 1 - urgent.mean()])
    expected = model.table("events").copula.margins()[:4]
    assert (abs(shares - expected) < 6 * (expected * (1 - expected) / one.height) ** 0.5 + 0.002).all()
    assert (
        abs(model.table("people").copula.margins()[0] - (people["sex"].to_numpy() == "F").mean())
    ) < 6 * 0.5 / 60_000**0.5


def test_people_may_be_drawn_under_a_condition(model: LinkedModel) -> None:
    """Who they are, and what their events are, is as among all people who satisfy it: within six standard errors."""
    people, events = model.sample(30_000, seed=4)
    drawn = model.sample(20_000, given="region = 'north' and sex = 'M'", seed=5)
    assert drawn[0].drop("id").unique().rows() == [("M", "north")]
    held = people.filter(region="north", sex="M")["id"]
    among = events.filter(pl.col("person").is_in(held.implode()))
    per_person = [(events.height / n, n) for events, n in ((among, held.len()), (drawn[1], 20_000))]
    assert abs(per_person[0][0] - per_person[1][0]) < 6 * 3 * (1 / held.len() + 1 / 20_000) ** 0.5
    for kind in "abc":
        # Events of a person are alike: as if there were one of each.
        one, other = ((each["kind"].to_numpy() == kind).mean() for each in (among, drawn[1]))
        assert abs(one - other) < 6 * 0.5 * (1 / held.len() + 1 / 20_000) ** 0.5
    again = model.sample(20_000, given={"region": "north", "sex": "M"}, seed=5)
    assert again[1].equals(drawn[1])
    with pytest.raises(QueryError, match="no attribute 'kind'"):
        model.sample(10, given="kind = 'a'")


@pytest.mark.parametrize("ending", ["duckdb", "sqlite", "db"])
def test_one_database_holds_both_tables_with_their_keys(model: LinkedModel, tmp_path: Path, ending: str) -> None:
    path, drawn = tmp_path / f"both.{ending}", model.sample(300, seed=7)
    model.write(path, people=300, seed=7)
    database: Any = duckdb.connect(path) if ending == "duckdb" else sqlite3.connect(path)
    for name, frame in zip(("people", "events"), drawn, strict=True):
        rows = database.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall()
        assert rows == frame.rows()
    if ending != "duckdb":
        database.execute("PRAGMA foreign_keys = ON")
    for statement in ("INSERT INTO events VALUES (301, 'a', false)", "INSERT INTO people VALUES (1, 'F', 'west')"):
        with pytest.raises((duckdb.ConstraintException, sqlite3.IntegrityError)):
            database.execute(statement)
    database.close()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    refuses("a file each, or one file that ends in .duckdb, ", model.write, path, tmp_path / "e.csv", error=OutputError)
    refuses("Name two files, or a database alone", model.write, tmp_path / "p.csv", error=OutputError)


@pytest.mark.parametrize("ending", ["duckdb", "sqlite"])
def test_what_a_database_cannot_hold_leaves_no_file(tmp_path: Path, ending: str) -> None:
    people = Schema.from_toml('[attributes]\nsex = {type = "boolean"}\nSex = {type = "boolean"}')
    rows = pl.DataFrame({"id": [1, 2], "sex": [True, False], "Sex": [True, False]})
    made = sklar.fit_linked(rows, tables(20)[1], replace(small(), people=people), epsilon=1.0)
    refuses("take any table. Nothing was left behind", made.write, tmp_path / f"both.{ending}", error=OutputError)
    assert not [*tmp_path.iterdir()]
