"""Models of linked tables: what they draw, and that their files are read strictly."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sklar
from sklar.errors import DataError, ModelError
from sklar.files.archive import is_linked, load, load_linked
from sklar.files.model import LinkedModel
from sklar.kernel.theorems import Budget
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
    with pytest.raises(ModelError, match="need a file each"):
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
