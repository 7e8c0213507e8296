"""How rows follow one another: chains keep what rows are, noise fades, and what is drawn is in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest

import sklar
from sklar.fitting.margins import drawn_to
from sklar.fitting.order import _chain
from sklar.public.tree import Tree
from tests.conftest import few_steps
from tests.linked import days, in_order, tables

AFTER = {"a": "b", "b": "c", "c": "a"}


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    yield from few_steps()


def drawn(tree: Tree, n: int = 400, *, epsilon: float = 0.5, rows: int = 3_000) -> pl.DataFrame:
    """Events of a model of people with one after the other: a, b, c, a, and so on, from where not everybody begins."""
    frames = tables(n)
    turn = (pl.int_range(pl.len()).over("person") + (pl.col("person") % 5 == 0).cast(pl.Int64)) % 3
    turned = frames["events"].with_columns(kind=turn.replace_strict([0, 1, 2], ["a", "b", "c"]))
    model: Any = sklar.fit(days({**frames, "events": turned}), tree, epsilon=epsilon, anyway=True)
    events: pl.DataFrame = model.sample(rows, seed=1)["events"]
    assert events["day"].is_between(0, 9).all()
    assert events.select((pl.col("day").diff().over("person") >= (tree.branches[1].unique == ("day",))).all()).item()
    return events


def test_drawn_events_follow_one_another() -> None:
    events = drawn(in_order(4), 3_000, epsilon=20, rows=6_000)
    before = events.select(pl.col("kind", "day").shift().over("person").name.prefix("last_"))
    found = pl.concat([events, before], how="horizontal").drop_nulls()
    # In truth all do, and all gaps are 2; the first bin of gaps with two days is that from 2 to 4.
    right = found.select((pl.col("last_kind").replace_strict(AFTER) == pl.col("kind")).mean()).item()
    assert right > 0.85
    assert found.select((pl.col("day") - pl.col("last_day")).is_between(2, 3).mean()).item() > 0.8
    # Four in five begin with a.
    first = events.group_by("person", maintain_order=True).first()["kind"]
    assert (first == "a").mean() == pytest.approx(0.8, abs=0.08)


def test_noise_alone_has_an_order_too() -> None:
    """Whatever it says: that nobody has an event, too."""
    for _ in range(5):
        drawn(in_order(4), 30, epsilon=0.05)


@pytest.mark.parametrize("follows", ["kind", ""])
def test_times_that_must_be_unique_are(follows: str) -> None:
    events = drawn(in_order(4, follows=follows, unique=("day",)), epsilon=3)
    # As many as their number says: none had to be left out.
    assert set(events.group_by("person").len()["len"]) == {1, 2, 3, 4}


def test_what_else_must_be_unique_is() -> None:
    assert not drawn(in_order(4, unique=("kind", "urgent"))).select("person", "kind", "urgent").is_duplicated().any()


def rolled(number: np.ndarray, first: np.ndarray, following: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What events of a class of people are, each weighing 1/k, over all classes their first ones, and their steps."""
    law, events, made = first, np.zeros_like(first), np.zeros(following.shape[1:])
    for k in range(1, number.shape[1]):
        events += (number[:, k:] / np.arange(k, number.shape[1])).sum(axis=1, keepdims=True) * law
        after = (number[:, k + 1 :] / np.arange(k, number.shape[1] - 1)).sum(axis=1, keepdims=True) * law
        made += np.einsum("hs,hst->st", after, following) / len(first)
        law = np.einsum("hs,hst->ht", law, following)
    some = number[:, 1:].sum(axis=1, keepdims=True)
    return events / some, (first * some).mean(axis=0), made


def test_a_chain_keeps_what_events_are_and_has_the_steps_that_were_measured() -> None:
    rng = np.random.default_rng(2)
    number, first = rng.dirichlet([2.0] * 6, size=40), rng.dirichlet([6.0, 3.0, 2.0], size=40)
    common = np.array([[0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.6, 0.2, 0.2]])
    following = common * rng.dirichlet([8.0] * 3, size=40)[:, None]
    state, at_first, steps = rolled(number, first, following / following.sum(axis=2, keepdims=True))
    found = _chain(state, number, {"first": (at_first, 1e-12), "next": (steps, 1e-12)})
    again, at_first_again, steps_again = rolled(number, *found)
    assert steps_again == pytest.approx(steps, rel=0.05)
    assert at_first_again == pytest.approx(at_first, rel=0.05)
    # Over all classes events are what they were, in each one nearly so.
    assert abs(again.mean(axis=0) - state.mean(axis=0)).max() < 0.01
    assert abs(again - state).mean() < 0.03
    assert abs(state - state.mean(axis=0)).mean() > 0.05


def test_noise_fades_from_tables_as_it_grows() -> None:
    noisy, expected = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    assert drawn_to(noisy, expected, 1e-9) == pytest.approx(noisy, abs=1e-6)
    assert drawn_to(noisy, expected, 10.0) == pytest.approx(expected)
    assert drawn_to(-noisy, expected, 1e-9) == pytest.approx(expected)
