"""One of two linked tables by itself: its counts are unbiased, with the noise that they state, as a forecast says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from sklar.answer.query import estimate
from sklar.budget.forecast import forecast
from sklar.errors import SchemaError
from sklar.fitting.margins import estimate_rows
from sklar.kernel.queries import Tables
from sklar.kernel.theorems import Budget, Neighbors
from sklar.public.schema import Schema
from sklar.release import measure_linked
from tests.conftest import refuses
from tests.linked import EVENTS, PEOPLE, small, tables

LINKED = small(4)
# Nobody has more than four events, so that no chance decides which count.
ROWS = tables(140)
RELEASES = 150
PAIRS = {"people": ("sex", "region"), "events": ("kind", "urgent")}


def true_shares(name: str) -> pl.DataFrame:
    """Each person's unit, or each event's part of one."""
    people, events = ROWS
    if name == "people":
        return people.with_columns(unit=pl.lit(1.0))
    return events.with_columns(unit=1 / pl.len().over("person"))


def truth(name: str, *attributes: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Exact counts in people, in the order of the levels."""
    schema = LINKED.part(name).schema
    sums = true_shares(name).cast({"unit": pl.Float64}).group_by(attributes).agg(pl.col("unit").sum())
    held = {tuple(str(value).lower() for value in row[:-1]): row[-1] for row in sums.iter_rows()}
    levels = [[level.lower() for level in schema.attribute(each).levels] for each in attributes]
    cells = np.array([held.get(cell, 0.0) for cell in np.ndindex(*map(len, levels)) for cell in [_at(levels, cell)]])
    return cells.reshape([len(own) for own in levels])


def _at(levels: list[list[str]], place: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(own[at] for own, at in zip(levels, place, strict=True))


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("name", ["people", "events"])
def test_counts_are_unbiased_with_the_noise_that_they_state(name: str, neighbors: Neighbors) -> None:
    """Squares of standardized errors, one of each table a release and of its total: chi-square.

    Beyond 5.5 of its standard errors, wrong scales by a quarter are told; a false alarm is rarer than one in a million.
    """
    budget, errors = Budget(epsilon=4.0, neighbors=neighbors), list[float]()
    asked = [PAIRS[name][:1], PAIRS[name][1:], PAIRS[name]]
    totals = true_shares(name)["unit"].sum()
    for release in range(RELEASES):
        measured = measure_linked(*ROWS, LINKED, budget).part(name)
        for which in asked:
            found = estimate(measured, *which)
            z = (found.counts - truth(name, *which)) / found.standard_errors
            errors.append(float(z.ravel()[release % z.size]))
        errors += [
            float((block.values[0] - totals) / block.scales[0])
            for block in measured.blocks
            if isinstance(block.query, Tables) and block.query.order == 0
        ]
        assert measured.n_rows == (140 if (name, neighbors) == ("people", "replace-one") else None)
    assert abs(np.mean(np.square(errors)) - 1) < 5.5 * (2 / len(errors)) ** 0.5
    assert abs(np.mean(errors)) < 5.5 / len(errors) ** 0.5


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("name", ["people", "events"])
def test_a_forecast_says_what_a_release_has(name: str, neighbors: Neighbors) -> None:
    budget, part = Budget(epsilon=2.0, neighbors=neighbors), LINKED.part(name)
    measured, expected = measure_linked(*ROWS, LINKED, budget).part(name), forecast(part, budget, rows=140)
    found = [estimate(measured, each).standard_errors[0] for each in PAIRS[name]]
    assert expected.one_way_sd == pytest.approx(found)
    assert expected.pair_sd == pytest.approx(estimate(measured, *PAIRS[name]).standard_errors[0, 0])
    # Both tables cost the whole budget together.
    assert expected.budget.spent(expected.spend) == pytest.approx(2.0, rel=1e-3)
    assert sum(share for _, share in expected.split) == pytest.approx(1)
    assert expected.rows_are_public == (name == "people" and neighbors == "replace-one")
    told = "\n".join(expected.lines())
    assert "with all their events, is protected" in told
    assert ("not a count of events" in told) == (name == "events")
    assert "Rough run time" not in told
    assert expected.to_dict()["rough_seconds"] is None


def test_a_single_attribute_has_no_pairs() -> None:
    one = {"people": "\n".join(PEOPLE.splitlines()[:-1]), "events": "\n".join(EVENTS.splitlines()[:-1])}
    schemas: dict[str, Any] = {name: Schema.from_toml(text) for name, text in one.items()}
    linked = replace(LINKED, **schemas)
    measured = measure_linked(*ROWS, linked, Budget(epsilon=4.0))
    for name in one:
        part = measured.part(name)
        assert estimate_rows(part.blocks, "gaussian", part.n_rows) > 0
        assert forecast(linked.part(name), rows=140, epsilon=1.0).pair_sd.size == 0


def test_a_part_is_named_by_its_heading_or_its_table() -> None:
    linked = type(LINKED)(
        people=Schema.from_toml(PEOPLE.replace('"people"', '"patients"')),
        events=Schema.from_toml(EVENTS.replace('"events"', '"patients"')),
        people_key="id",
        events_key="person",
        at_most=2,
    )
    assert LINKED.part("people").of_people
    assert not linked.part("events").of_people
    for name in ("patients", "visits"):
        refuses(f"have no table '{name}' of its own. Name people", linked.part, name, error=SchemaError)
