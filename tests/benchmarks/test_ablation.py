"""The ablation takes out what it names, and states changes of means."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

import pytest
from benchmarks.ablation import ALL, DRAWN, FITTED, MEASURES, PLANNED, changes, markdown


def run(table: str, draw: int, error: float, without: float) -> dict[str, Any]:
    """A job whose errors are `error` with all parts and `without` one of them, whichever."""
    parts = dict.fromkeys((*DRAWN, *PLANNED, *FITTED), dict.fromkeys(MEASURES, without))
    return {"table": table, "epsilon": 1.0, "draw": draw, "errors": {ALL: dict.fromkeys(MEASURES, error), **parts}}


def test_every_part_is_in_the_package_and_differs_from_what_takes_its_place() -> None:
    for place, value in (*PLANNED.values(), *FITTED.values()):
        assert resolve_name(":".join(place.rsplit(".", 1))) != value


def test_changes_are_of_means_over_draws_and_parts_that_bring_little_are_marked() -> None:
    runs = [run("a", 1, 1.0, 1.0), run("a", 2, 3.0, 5.0), run("b", 1, 2.0, 2.0)]
    assert changes(runs, "scores", "tv2").tolist() == pytest.approx([0.5, 0.0])
    assert "| scores | +25.0% | +25.0% | +25.0% | 25.0% | 1 of 2 | +25.0% |" in markdown(runs)
    assert "| scores * | +0.0% |" in markdown([run("a", 1, 1.0, 1.0)])
