"""How events follow one another: chains keep what events are, noise fades, and what is drawn is in order."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sklar.budget.certificate import LinkedMeasured, certify
from sklar.budget.plan import plan_linked
from sklar.draw.sample import LinkedSampler
from sklar.fitting.classes import LinkedClasses, fit_classes
from sklar.fitting.order import _chain, _drawn_to
from sklar.kernel.theorems import Budget
from sklar.public.events import Linked
from sklar.rows.shares import count_tokens, join
from tests.fitting.test_margins import noisy_blocks
from tests.linked import days, in_order, tables

AFTER = {"a": "b", "b": "c", "c": "a"}


def events_in_turn(n: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """People with events one after the other: a, b, c, a, and so on, from a kind that not everybody begins with."""
    people, events = tables(n)
    turn = (pl.int_range(pl.len()).over("person") + (pl.col("person") % 5 == 0).cast(pl.Int64)) % 3
    return people, days(events.with_columns(kind=turn.replace_strict([0, 1, 2], ["a", "b", "c"])))


def fitted(linked: Linked, n: int = 3_000, *, noise: float = 0.05) -> LinkedClasses:
    """A model of tables with so much of the noise that is due."""
    budget = Budget(epsilon=1.0, rows_per_person=1)
    plan = plan_linked(linked, budget)
    blocks = noisy_blocks(plan, count_tokens(join(*events_in_turn(n), linked), linked, plan), 5, noise)
    certificate = certify(linked, budget, blocks, n)
    return fit_classes(LinkedMeasured(linked=linked, blocks=tuple(blocks), certificate=certificate))[0]


def steps(events: pl.DataFrame) -> pl.DataFrame:
    """Every event but a person's first, with the kind before it and the gap to that."""
    before = events.select(pl.col("kind", "day").shift().over("person").name.prefix("last_"))
    return pl.concat([events, before], how="horizontal").drop_nulls()


def test_drawn_events_follow_one_another() -> None:
    _, events = LinkedSampler(fitted(in_order(4)), 1).draw((0, 6_000))
    found = steps(events)
    assert found.select((pl.col("day") >= pl.col("last_day")).all()).item()
    assert events["day"].is_between(0, 9).all()
    # In truth all do, and all gaps are 2; the first bin of gaps with two days is that from 2 to 4.
    right = found.select((pl.col("last_kind").replace_strict(AFTER) == pl.col("kind")).mean()).item()
    assert right > 0.85
    assert found.select((pl.col("day") - pl.col("last_day")).is_between(2, 3).mean()).item() > 0.8
    # Four in five begin with a.
    first = events.group_by("person", maintain_order=True).first()["kind"]
    assert (first == "a").mean() == pytest.approx(0.8, abs=0.08)


def test_noise_alone_has_an_order_too() -> None:
    people, events = LinkedSampler(fitted(in_order(4), 30, noise=1.0), 1).draw((0, 500))
    assert people.height == 500
    assert events.select((pl.col("day").diff().over("person") >= 0).all()).item()


@pytest.mark.parametrize("follows", ["kind", ""])
def test_times_that_must_be_unique_are(follows: str) -> None:
    _, events = LinkedSampler(fitted(in_order(4, follows=follows, unique=("day",)), noise=1.0), 1).draw((0, 5_000))
    assert events.select((pl.col("day").diff().over("person") >= 1).all()).item()
    # As many as their number says: none had to be left out.
    assert set(events.group_by("person").len()["len"]) == {1, 2, 3, 4}


def test_what_else_must_be_unique_is() -> None:
    _, events = LinkedSampler(fitted(in_order(4, unique=("kind", "urgent")), noise=1.0), 1).draw((0, 2_000))
    assert not events.select("person", "kind", "urgent").is_duplicated().any()


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
    found = _chain(state, number, {"first-event": (at_first, 1e-12), "next-event": (steps, 1e-12)})
    again, at_first_again, steps_again = rolled(number, *found)
    assert steps_again == pytest.approx(steps, rel=0.05)
    assert at_first_again == pytest.approx(at_first, rel=0.05)
    # Over all classes events are what they were, in each one nearly so.
    assert abs(again.mean(axis=0) - state.mean(axis=0)).max() < 0.01
    assert abs(again - state).mean() < 0.03
    assert abs(state - state.mean(axis=0)).mean() > 0.05


def test_noise_fades_from_tables_as_it_grows() -> None:
    noisy, expected = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    assert _drawn_to(noisy, expected, 1e-9) == pytest.approx(noisy, abs=1e-6)
    assert _drawn_to(noisy, expected, 10.0) == pytest.approx(expected)
    assert _drawn_to(-noisy, expected, 1e-9) == pytest.approx(expected)
