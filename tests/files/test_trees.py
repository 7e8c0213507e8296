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
from sklar.files.archive import load
from sklar.files.model import TreeModel
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from sklar.public.tree import Lookup, Tree
from tests.conftest import few_steps, refuses
from tests.linked import EVENTS, deep, deep_tables, small, tables
from tests.linked import tree as linked_tree
from tests.trust.forge import forged, put

WARDS = Lookup(name="areas", id="region", columns=(("region", ("north", "south", "west")), ("beds", ("4", None, "7"))))


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    yield from few_steps()


@pytest.fixture(scope="module")
def model() -> TreeModel:
    return fit(deep_tables(), replace(deep(), lookups=(WARDS,)), 6.0)


def fit(frames: Any, tree: Tree, budget: float | Budget) -> TreeModel:
    given = {"epsilon": budget} if isinstance(budget, float) else {"budget": budget}
    found: Any = sklar.fit(frames, tree, **given, anyway=True)
    assert isinstance(found, TreeModel)
    return found


@pytest.fixture(scope="module")
def saved(model: TreeModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("linked") / "m.sklar"
    model.save(path)
    return path


def test_every_row_hangs_on_one_of_the_same_person(model: TreeModel) -> None:
    found = model.sample(20_000, seed=1)
    people, events, steps, drugs = (found[name] for name in ("people", "events", "steps", "drugs"))
    assert people["id"].to_list() == list(range(1, 20_001))
    assert {name: frame.columns for name, frame in found.items()} == {
        "people": ["id", "sex", "region"], "events": ["person", "event", "kind", "urgent"],
        "steps": ["person", "event", "step"], "drugs": ["person", "drug"],
    }  # fmt: skip
    assert {name: frame.schema for name, frame in found.items()} == model.columns
    assert events["event"].is_unique().all()
    for below, above in ((events, people.rename({"id": "person"})), (drugs, people.rename({"id": "person"})),
        (steps, events.select("person", "event"))):  # fmt: skip
        keys = [key for key in above.columns if key in ("person", "event") and key in below.columns]
        assert below.join(above, on=keys, how="anti").height == 0
    # Noise may leave nobody without events, or with three.
    for frame, key, most in ((events, "person", 3), (steps, "event", 2), (drugs, "person", 2)):
        assert set(frame.group_by(key).len()["len"].unique()) <= set(range(1, most + 1))


def test_a_seed_means_the_same_tables(model: TreeModel, saved: Path) -> None:
    again = load(saved)
    first, second = model.sample(500, seed=7), again.sample(500, seed=7)
    assert all(first[name].equals(second[name]) for name in first)
    assert not model.sample(500, seed=8)["people"].equals(first["people"])
    assert model.sample()["people"].height == 400
    assert {type(each).__module__.split(".")[0] for each in model.sample(5, to="pandas").values()} == {"pandas"}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_folder_holds_what_is_sampled(model: TreeModel, tmp_path: Path, kind: str) -> None:
    model.write(tmp_path / "out", 300, seed=7, kind=kind)
    read: Any = {"csv": pl.read_csv, "parquet": pl.read_parquet}[kind]
    for name, frame in model.sample(300, seed=7).items():
        assert read(tmp_path / "out" / f"{name}.{kind}").cast(frame.schema).equals(frame)
    assert read(tmp_path / "out" / f"areas.{kind}")["beds"].cast(pl.Int64).to_list() == [4, None, 7]
    (tmp_path / "x").write_text("")
    refuses("is a file. Name a folder", model.write, tmp_path / "x", error=OutputError)
    refuses("must be a folder, or a database that ends in", model.write, tmp_path / "a.csv", error=OutputError)
    odd: Any
    for odd in (0, -1, 2.5):
        refuses("rows must be a whole number of at least 1", model.sample, odd, error=ModelError)
    refuses("complete is about one table", model.complete, pl.DataFrame(), error=ModelError)


def test_what_it_says_of_itself(model: TreeModel) -> None:
    text = "\n".join(model.summary())
    assert "for the content of any one person, with all their rows" in text
    assert "400 people" in text
    assert "of a person at most 3 events, at most 2 steps, at most 2 drugs." in text
    assert "one attribute in two of a person's events" in text
    certificate = model.certificate.to_dict()
    assert (certificate["rows_per_person"], certificate["public_rows"]) == (1, 400)
    assert certificate["tokens"] > 1


def test_under_add_remove_the_number_of_people_is_measured(tmp_path: Path) -> None:
    made = fit(tables(), small(), Budget(epsilon=3.0, neighbors="add-remove"))
    assert made.certificate.public_rows is None
    # The noise of the number of people is about 20: 400 within 250 but for a chance far below one in a million.
    assert abs(made.n_rows - 400) < 250
    assert "about" in made.summary()[0]
    made.save(tmp_path / "m.sklar")
    assert load(tmp_path / "m.sklar").n_rows == made.n_rows


# Where in the description, what stands there, and why that is refused.
WRONG = tomllib.loads(Path(__file__).with_name("archive.toml").read_text())["wrong of linked tables"] + [
    ("certificate.tokens", None, "must state tokens of people")
]


@pytest.mark.parametrize(("place", "value", "words"), WRONG)
def test_what_a_file_may_not_say(saved: Path, tmp_path: Path, place: str, value: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        load(forged(saved, put(place, value), tmp_path / "m.sklar"))


def test_no_kind_of_table_may_be_missing(saved: Path, tmp_path: Path) -> None:
    def change(document: Any, arrays: Any) -> None:
        del document["blocks"][-1], arrays[f"block{len(document['blocks'])}"]

    with pytest.raises(ModelError):
        load(forged(saved, change, tmp_path / "m.sklar"))


@pytest.mark.parametrize("odd", [np.nan, -0.5, 2.0])
def test_laws_must_be_probabilities(tmp_path: Path, odd: float) -> None:
    from tests.linked import days, in_order

    fit(days(tables()), in_order(), 3.0).save(tmp_path / "ordered.sklar")

    def change(_document: Any, arrays: Any) -> None:
        arrays["events_first"].flat[0] = odd

    with pytest.raises(ModelError, match="'events_first' must hold probabilities"):
        load(forged(tmp_path / "ordered.sklar", change, tmp_path / "m.sklar"))


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_no_rows_make_a_release_fail(neighbors: Any) -> None:
    """People without events, values that nobody can read, keys that nobody has: a release like any other."""
    frames = deep_tables(20)
    events = pl.DataFrame(
        {"event": [1, 2, 3], "person": [None] * 3, "kind": [[1], [2], None], "urgent": [b"\xff", None, b"x"]}
    )
    odd = {
        **frames,
        "events": events,
        "drugs": frames["drugs"].clear(),
        "steps": frames["steps"].with_columns(step=pl.lit(7)),
    }
    budget = Budget(epsilon=1.0, neighbors=neighbors)
    made = fit(odd, deep(), budget)
    assert made.sample(10, seed=1)["people"].height == 10
    nobody = {**frames, "people": frames["people"].clear()}
    if neighbors == "add-remove":
        assert fit(nobody, deep(), budget).n_rows >= 1
    else:
        # The number of people is public, and none are none.
        refuses("the table has no rows", fit, nobody, deep(), budget, error=DataError)


def test_people_may_be_drawn_under_a_condition(model: TreeModel) -> None:
    """Who they are, and what their events are, is as among all people who satisfy it: within six standard errors."""
    every, drawn = model.sample(30_000, seed=4), model.sample(20_000, given="region = 'north' and sex = 'M'", seed=5)
    assert drawn["people"].drop("id").unique().rows() == [("M", "north")]
    held = every["people"].filter(region="north", sex="M")["id"]
    among = every["events"].filter(pl.col("person").is_in(held.implode()))
    per_person = [(events.height / n, n) for events, n in ((among, held.len()), (drawn["events"], 20_000))]
    assert abs(per_person[0][0] - per_person[1][0]) < 6 * 3 * (1 / held.len() + 1 / 20_000) ** 0.5
    for kind in "abc":
        # Events of a person are alike: as if there were one of each.
        one, other = ((each["kind"].to_numpy() == kind).mean() for each in (among, drawn["events"]))
        assert abs(one - other) < 6 * 0.5 * (1 / held.len() + 1 / 20_000) ** 0.5
    again = model.sample(20_000, given={"region": "north", "sex": "M"}, seed=5)
    assert again["events"].equals(drawn["events"])
    assert set(model.sample(500, given="events >= 2", seed=1)["events"].group_by("person").len()["len"]) <= {2, 3}
    with pytest.raises(QueryError, match="no attribute 'kind'"):
        model.sample(10, given="kind = 'a'")


def test_questions_are_about_people_and_one_of_their_rows(model: TreeModel) -> None:
    """Half of the people are women, a seventh has no events, and of one of the events of each a third is urgent."""
    for asked, share in (
        ("sex = 'F'", 1 / 2),
        ("events = 0", 1 / 7),
        ("events.urgent = true", 2 / 7),
        ("drugs >= 1", 1 / 3),
    ):
        answer = model.query(asked)
        assert answer.estimate is not None
        assert abs(answer.estimate / answer.n_rows - share) < 0.25
        inferred = model.infer(f"share({asked})", target="table")
        assert "400 people" in "\n".join(inferred.lines())


@pytest.mark.parametrize("ending", ["duckdb", "sqlite", "db"])
def test_one_database_holds_all_tables_with_their_keys(model: TreeModel, tmp_path: Path, ending: str) -> None:
    path, drawn = tmp_path / f"all.{ending}", model.sample(300, seed=7)
    model.write(path, 300, seed=7)
    database: Any = duckdb.connect(path) if ending == "duckdb" else sqlite3.connect(path)
    for name, frame in drawn.items():
        assert database.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall() == frame.rows()
    assert database.execute("SELECT region, beds FROM areas ORDER BY rowid").fetchall() == [("north", "4"),
        ("south", None), ("west", "7")]  # fmt: skip
    if ending != "duckdb":
        database.execute("PRAGMA foreign_keys = ON")
    first = drawn["events"]["person"][0]
    for statement in (
        "INSERT INTO events VALUES (301, 9999999, 'a', false)", "INSERT INTO people VALUES (1, 'F', 'west')",
        f"INSERT INTO steps VALUES ({first}, 9999999, 'x')", "INSERT INTO drugs VALUES (301, 'x')",
        "INSERT INTO people VALUES (301, 'F', 'east')",
    ):  # fmt: skip
        with pytest.raises((duckdb.ConstraintException, sqlite3.IntegrityError)):
            database.execute(statement)
    database.close()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", ["duckdb", "sqlite"])
def test_what_a_database_cannot_hold_leaves_no_file(tmp_path: Path, ending: str) -> None:
    people = Schema.from_toml('[attributes]\nsex = {type = "boolean"}\nSex = {type = "boolean"}')
    own, events = small().branches
    rows = pl.DataFrame({"id": [1, 2], "sex": [True, False], "Sex": [True, False]})
    made = fit(
        {"people": rows, "events": tables(20)["events"]}, Tree(branches=(replace(own, schema=people), events)), 1.0
    )
    refuses("take any table. Nothing was left behind", made.write, tmp_path / f"both.{ending}", error=OutputError)
    assert not [*tmp_path.iterdir()]


def test_private_domains_rules_and_targets_are_those_of_one_table(tmp_path: Path) -> None:
    listed = 'kind = {type = "categorical", values = ["a", "b", "c"]}'
    sought = """kind = {type = "categorical", domain = "private", at_most = 5}
        cost = {type = "integer", domain = "private", low = 0, high = 1000}"""
    rules = {"rules": [{"forbid": {"sex": "F", "events.urgent": "true"}}]}
    tree = Tree.from_dict(linked_tree(events=EVENTS.replace(listed, sought)).aimed("sex").to_dict() | rules)
    frames = tables(3_000)
    frames["events"] = frames["events"].with_columns(cost=pl.int_range(pl.len()) % 300)
    model = fit(frames, tree, 4.0)
    assert {*model.tree.branches[1].schema.attribute("kind").values} == {"a", "b", "c"}
    drawn: Any = model.sample(2_000, seed=1)
    both = drawn["events"].join(drawn["people"], left_on="person", right_on="id")
    assert both.filter((pl.col("sex") == "F") & pl.col("urgent")).is_empty()
    assert both.filter((pl.col("sex") == "M") & pl.col("urgent")).height > 100
    assert set(both["kind"].cast(pl.String).drop_nulls()) >= {"a", "b", "c"}
    assert both["cost"].is_between(0, 999).all()
    model.save(tmp_path / "m.sklar")
    assert sklar.verify(tmp_path / "m.sklar", refit=True).passed
    # A rule that leaves some people no row: they have none.
    nothing = {"rules": [{"forbid": {"sex": "F", "events.kind": ["a", "b", "c"]}}]}
    drawn = fit(tables(), Tree.from_dict(small().to_dict() | nothing), 4.0).sample(500, seed=1)
    both = drawn["events"].join(drawn["people"], left_on="person", right_on="id")
    assert set(both["sex"].cast(pl.String)) == {"M"}
