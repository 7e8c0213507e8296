"""Linked tables beside the real ones: exact distances, verdicts, and the private page."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sklar.custodian.evaluate import NOTICE
from sklar.custodian.evaluate.linked import Judged, TreeEvaluation, evaluate_tree
from sklar.generate.visits import generate_visits, hospital
from tests.linked import small, tables

TREE = small(4)


def fit(found: TreeEvaluation, kind: str, name: str = "") -> Judged:
    return next(fit for fit in found.fits if (fit.kind, fit.name) == (kind, name))


def test_equal_tables_lose_nothing() -> None:
    found = evaluate_tree(tables(), tables(), TREE)
    assert {each.lost for each in found.fits} == {0.0}
    assert {verdict for _, verdict, _ in found.summary} == {"use"}
    assert [name for name, _ in found.by_row] == ["people", "events"]
    assert NOTICE in found.lines()[0] == NOTICE
    # Of the joint table attributes of each table, numbers, and pairs of all these; sides; and what is counted beside.
    assert len({each.kind for each in found.fits}) == 11
    assert repr(found) == f"TreeEvaluation(2 tables, {len(found.fits)} comparisons; {NOTICE})"


def test_distances_are_those_of_exact_tables() -> None:
    """Events that changed hands: each table stays as it is, and how they go together is lost."""
    frames = tables(7_000)
    people, events = frames["people"], frames["events"]
    mixed = events.with_columns(pl.col("person").gather(np.random.default_rng(1).permutation(events.height)))
    found = evaluate_tree(frames, {"people": people, "events": mixed}, TREE)
    assert {each.lost for each in found.fits if each.kind.startswith("people, ")} == {0.0}
    verdicts = {kind: verdict for kind, verdict, _ in found.summary}
    assert verdicts["people, two attributes"] == "use"
    assert verdicts["people and events"] == "with care"
    assert verdicts["one attribute in two of a person's events"] == "do not use"
    assert any("The worst: " in words for *_, words in found.summary)

    def shares(given: pl.DataFrame) -> dict[tuple[str, str], float]:
        unit = given.join(people, left_on="person", right_on="id").with_columns(unit=1 / pl.len().over("person"))
        sums = unit.group_by("region", "kind").agg(pl.col("unit").sum())
        return {row[:2]: row[2] / people.height for row in sums.rows()}

    real, other = shares(events), shares(mixed)
    without = [1 - sum(each.values()) for each in (real, other)]
    distance = sum(abs(real.get(cell, 0.0) - other.get(cell, 0.0)) for cell in real | other) / 2
    across = fit(found, "people and events", "region x events.kind")
    assert across.lost == pytest.approx(distance + abs(without[0] - without[1]) / 2, abs=0.02)
    # A person's events were of one kind, and are not.
    twice = fit(found, "different levels among a person's events", "kind")
    assert twice.largest[1][1] == 1.0
    assert twice.lost == pytest.approx(1 - twice.largest[1][2])


def test_no_events_are_as_far_from_some_as_can_be(tmp_path: Path) -> None:
    frames = tables(60)
    empty = {**frames, "events": frames["events"].clear()}
    found = evaluate_tree(frames, empty, TREE, report=tmp_path / "PRIVATE.html")
    assert fit(found, "different levels among a person's events", "kind").lost == 1.0
    assert {each.lost for each in evaluate_tree(empty, empty, TREE).fits} == {0.0}
    assert "do not use" in (tmp_path / "PRIVATE.html").read_text()


def test_sums_of_numbers_and_the_private_page(tmp_path: Path) -> None:
    real, synthetic = (next(iter(generate_visits(600, seed=seed))) for seed in (0, 1))
    page = tmp_path / "PRIVATE.html"
    found = evaluate_tree(real, synthetic, hospital(), report=page)
    # Two draws of one law differ by chance alone.
    assert {verdict for _, verdict, _ in found.summary} == {"use"}
    sums = fit(found, "sums over a person's visits, by tenths", "cost")
    assert [share for _, share, _ in sums.largest] == pytest.approx([0.1] * 10, abs=0.05)
    assert sums.largest[0][0].startswith("to ")
    text = page.read_text()
    assert text.count(NOTICE.partition("For the")[0]) >= 2
    # Steps flow from a level to the next one.
    assert text.count('class="flow"') > 10
    assert text.count("<figure>") == len(found.worst) == len(found.to_columns()["what"])
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert found.to_dict()["verdicts"]["visits and prescriptions"]["verdict"] == "use"
