"""Linked tables beside the real ones: exact distances, verdicts, and the private page."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sklar.custodian.evaluate import NOTICE
from sklar.custodian.evaluate.linked import Judged, LinkedEvaluation, evaluate_linked
from sklar.generate.visits import generate_visits, linked
from tests.linked import small, tables

LINKED = small(4)


def fit(found: LinkedEvaluation, kind: str, name: str = "") -> Judged:
    return next(fit for fit in found.fits if (fit.kind, fit.name) == (kind, name))


def test_equal_tables_lose_nothing() -> None:
    found = evaluate_linked(tables(), tables(), LINKED)
    assert {each.lost for each in found.fits} == {0.0}
    assert [(part, verdict) for part, verdict, _ in found.summary] == [
        ("People", "use"), ("Events", "use"), ("Together", "use")
    ]  # fmt: skip
    assert NOTICE in found.lines()[0] == NOTICE
    assert "Nothing is lost" in "\n".join(found.lines())
    # Of every kind but the number of people, and what is counted beside.
    assert len({each.kind for each in found.fits}) == 10
    assert repr(found) == f"LinkedEvaluation({len(found.fits)} tables; {NOTICE})"


def test_distances_are_those_of_exact_tables() -> None:
    """Events that changed hands: each table stays as it is, and how they go together is lost."""
    people, events = tables(7_000)
    mixed = events.with_columns(pl.col("person").gather(np.random.default_rng(1).permutation(events.height)))
    found = evaluate_linked((people, events), (people, mixed), LINKED)
    assert {each.lost for each in found.fits if each.part == "People"} == {0.0}
    verdicts = {part: verdict for part, verdict, _ in found.summary}
    assert verdicts == {"People": "use", "Events": "use", "Together": "do not use"}
    assert "The worst: " in found.summary[2][2]

    def shares(given: pl.DataFrame) -> dict[tuple[str, str], float]:
        unit = given.join(people, left_on="person", right_on="id").with_columns(unit=1 / pl.len().over("person"))
        sums = unit.group_by("region", "kind").agg(pl.col("unit").sum())
        return {row[:2]: row[2] / sums["unit"].sum() for row in sums.rows()}

    real, other = shares(events), shares(mixed)
    distance = sum(abs(real.get(cell, 0.0) - other.get(cell, 0.0)) for cell in real | other) / 2
    assert distance > 0.5
    across = fit(found, "tables of an attribute of people and one of events", "region x kind")
    assert across.lost == pytest.approx(distance, abs=2e-3)
    assert across.largest[0][0] == "north, a"
    assert across.largest[0][1:] == pytest.approx((1 / 3, 1 / 9), abs=0.03)
    # A person's events were of one kind, and are not.
    twice = fit(found, "different levels among a person's events", "kind")
    assert twice.largest[1][1] == 1.0
    assert twice.lost == pytest.approx(1 - twice.largest[1][2])


def test_no_events_are_as_far_from_some_as_can_be(tmp_path: Path) -> None:
    people, events = tables(60)
    found = evaluate_linked((people, events), (people, events.clear()), LINKED, report=tmp_path / "PRIVATE.html")
    assert fit(found, "one-way tables of events", "kind").lost == 1.0
    assert {each.lost for each in evaluate_linked((people, events.clear()), (people, events.clear()), LINKED).fits} == {
        0.0
    }
    assert "do not use" in (tmp_path / "PRIVATE.html").read_text()


def test_sums_of_numbers_and_the_private_page(tmp_path: Path) -> None:
    real, synthetic = (next(iter(generate_visits(600, seed=seed))) for seed in (0, 1))
    page = tmp_path / "PRIVATE.html"
    found = evaluate_linked(real, synthetic, linked(), report=page)
    # Two draws of one law differ by chance alone.
    assert {verdict for _, verdict, _ in found.summary} == {"use"}
    sums = fit(found, "sums over a person's events, by tenths", "cost")
    assert [share for _, share, _ in sums.largest] == pytest.approx([0.1] * 10, abs=0.05)
    assert sums.largest[0][0].startswith("to ")
    text = page.read_text()
    assert text.count(NOTICE.partition("For the")[0]) >= 2
    assert text.count("<figure>") == len(found.worst) == len(found.to_columns()["what"])
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert found.to_dict()["People"]["verdict"] == "use"
