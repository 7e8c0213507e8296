"""Folders of linked releases: what is in them, and that any change of a file is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import sklar
from sklar.trust.passport import content_of, publish, sums, verify_folder
from sklar.trust.passport.facts import SUMS, files_of
from tests.cli.conftest import call
from tests.linked import small, tables


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed folder of a linked release, whose model was recomputed."""
    place = tmp_path_factory.mktemp("published")
    sklar.fit(tables(200), small(), epsilon=3.0).save(place / "private-name.sklar")
    call("sign", "--new-key", "k.key", cwd=place)
    stated = ("--rows", "150", "--sign", "k.key", "--publisher", "Clinic | `x`")
    call("publish", "private-name.sklar", "--out", "out", *stated, cwd=place)
    return place / "out"


def test_it_holds_all_tables_and_is_verified(folder: Path) -> None:
    named = files_of(sklar.load(folder / "model.sklar"))
    assert {each.name for each in folder.iterdir()} - {"model.sklar.sig", f"{SUMS}.sig"} == {*named}
    people, events = (pl.read_parquet(folder / f"{name}.parquet") for name in ("people", "events"))
    assert people.height == 150
    assert events["person"].is_in(people["id"].implode()).all()
    assert pl.read_csv(folder / "events.csv").equals(events)
    found = verify_folder(folder, signer=str(folder.parent / "k.key.pub"))
    assert {check.name: check.passed for check in found.checks if not check.passed} == {"model": None}
    assert json.loads((folder / "certificate.json").read_text())["count"] == "everyone"
    for text in ((folder / "README.md").read_text(), (folder / "SYNTHETIC.txt").read_text()):
        assert "150 people" in text
        assert "private-name" not in text
    assert "A share of rows is another question." in (folder / "report.html").read_text()


def _redrawn(folder: Path) -> None:
    events = pl.read_csv(folder / "events.csv")
    events.with_columns(pl.lit("a").alias("kind")).write_csv(folder / "events.csv")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_redrawn, "'events.csv' does not hold the rows that the model and seed 0 give"),
        (
            lambda folder: (folder / "events.parquet").write_bytes((folder / "people.parquet").read_bytes()),
            "events.par",
        ),
        (lambda folder: (folder / "report.html").write_text("all is well"), "'report.html' is not what the model says"),
        (lambda folder: (folder / "people.csv").unlink(), "'people.csv' is missing"),
        (lambda folder: (folder / "synthetic.csv").write_text("x"), "'synthetic.csv' is none of the files"),
    ],
)
def test_a_changed_file_is_found(folder: Path, tmp_path: Path, change: Callable[[Path], object], said: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    change(copy)
    for name in ("model.sklar.sig", f"{SUMS}.sig"):
        (copy / name).unlink()
    names = [each.name for each in copy.iterdir() if each.name != SUMS]
    (copy / SUMS).write_text(sums({name: content_of(copy / name) for name in names}))
    failed = [check.detail for check in verify_folder(copy).checks if check.passed is False]
    assert any(said in detail for detail in failed), failed


def test_the_same_call_may_write_it_again(folder: Path, tmp_path: Path) -> None:
    model = folder.parent / "private-name.sklar"
    first, again = (publish(model, tmp_path / "out", rows=50, refit=False) for _ in range(2))
    assert first == again
    assert "not shown to follow" in (tmp_path / "out" / "README.md").read_text()
