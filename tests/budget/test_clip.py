"""The sum of numbers up to a clip: what rows deal, what it costs, and what follows from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

import sklar
from sklar.budget.search import SUM_SHARE, TOKENS, Ladder, ladder_of, plan_search, sum_query
from sklar.draw.decode import Decoder
from sklar.errors import SchemaError
from sklar.files.model import Model
from sklar.fitting.density import clipped_mean, searched
from sklar.fitting.domains import found_numbers
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from sklar.rows.count import Histogram
from sklar.rows.encode import coder, encode
from sklar.trust.verify import verify

ENTRY = 'cost = {{ type = "{}", domain = "private", low = 0, {}, bins = 12 }}'
ROWS = 6000
COSTS = np.where(np.arange(ROWS) % 10, 0, np.random.default_rng(1).lognormal(8, 1.2, ROWS)).astype(np.int64)


def clipped(kind: str = "integer", said: str = "clip = 10_000") -> Schema:
    return Schema.from_toml(f"[attributes]\n{ENTRY.format(kind, said)}\nsex = {{ type = 'boolean' }}")


@pytest.fixture(scope="module", params=["integer", "real"])
def model(request: pytest.FixtureRequest) -> Model:
    frame = pl.DataFrame({"cost": COSTS.astype(int if request.param == "integer" else float), "sex": COSTS % 2 == 0})
    return sklar.fit(frame, clipped(request.param), epsilon=2.0)


def tokens(values: Any, ladder: Ladder) -> Any:
    histogram = Histogram(clipped().attributes[0])
    histogram.add_column(pl.Series(np.asarray(values, dtype=np.int64)))
    return histogram.tokens(ladder)


@given(st.lists(st.integers(-5, 2**40), min_size=1, max_size=20), st.integers(0, 50), st.integers(1, 2**40))
@settings(max_examples=200, deadline=None)
def test_a_row_deals_its_tokens_and_no_more_as_the_plain_routine_does(values: list[int], low: int, width: int) -> None:
    """For any number, and any bounds: one row's tokens are whole, none negative, of sum `TOKENS`."""
    ladder = replace(ladder_of(clipped().attributes[0]), low=low, high=low + width + 1)
    for value in values:
        alone = tokens([value], ladder)
        assert alone.min() >= 0
        assert alone.sum() == TOKENS
    way, rows = np.clip(values, low, low + width) - low, np.arange(len(values))
    parts, whole = np.concatenate([way, width - way]), np.full(2 * len(values), width)
    entries = np.tile(rows, 2), np.repeat([0, 1], len(values)), parts, whole
    assert tokens(values, ladder).tolist() == sum_query("cost").count([entries]).tolist()


@pytest.mark.parametrize("width", [1, 2**50 - 1, 2**50, 2**55 + 7, 2**61])
def test_a_row_deals_no_more_between_bounds_of_any_width(width: int) -> None:
    """Products of 63 bits and more would wrap, and a person's tokens be negative."""
    ladder = replace(ladder_of(clipped().attributes[0]), low=-width // 2, high=width - width // 2 + 1)
    for value in (-(2**62), -width // 2, 0, width // 3, width - width // 2, 2**62):
        alone = tokens([value], ladder)
        assert alone.min() >= 0
        assert alone.sum() == TOKENS


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_a_sum_costs_no_more_than_the_table_that_it_is_paid_as(neighbors: Any) -> None:
    budget = Budget(epsilon=1.0, delta=1e-6, neighbors=neighbors)
    for scale in (3.0, 60.0, 4000.0):
        own = budget.cost(sum_query("cost").bound(np.array([scale * TOKENS]), budget))
        table = budget.cost(budget.tables([scale]))
        assert table.covers(own)
        assert own.rho == pytest.approx(table.rho, rel=1e-12)


def test_a_clip_is_planned_for_and_only_where_numbers_are_searched() -> None:
    budget = Budget(epsilon=1.0, delta=1e-6)
    plan = plan_search(clipped(), budget, n_rows=ROWS)
    assert [finding.of for finding in plan.findings] == ["domain", "rounding", "sum"]
    without = plan_search(clipped(said="high = 10_001"), budget, n_rows=ROWS)
    assert plan.share == pytest.approx(without.share + SUM_SHARE)
    assert plan_search(clipped(said="clip = 10"), budget, n_rows=ROWS).findings == ()
    entries = "\n".join(ENTRY.replace("cost", f"cost{each}").format("integer", "clip = 10_000") for each in range(100))
    many = plan_search(Schema.from_toml(f"[attributes]\n{entries}"), budget, n_rows=ROWS)
    assert many.share == pytest.approx(0.15 + 0.06)


def test_larger_numbers_have_a_level_of_their_own_and_special_ones_keep_theirs() -> None:
    searching = Schema.from_toml(
        '[attributes]\ncost = { type = "integer", domain = "private", low = 0, clip = 1000, special = [99999] }'
    ).attributes[0]
    attribute = found_numbers(searching, [np.zeros(ladder_of(searching).first().size - 1, dtype=np.int64)] * 4, 30.0)
    schema, values = Schema(name="t", attributes=(attribute,)), [-3, 0, 999, 1000, 1001, 10**12, 99999]
    codes = encode(pl.DataFrame({"cost": values}), schema)[0]
    names = [attribute.levels[code] for code in codes]
    assert names[3:] == ["1000 or more"] * 3 + ["99999"]
    assert "or more" not in names[2]
    assert [coder(attribute)(value) for value in values] == codes.tolist()
    drawn = Decoder(schema).decode(codes[None, :], np.random.default_rng(1))["cost"]
    assert drawn[3:].to_list() == [1000, 1000, 1000, 99999]
    assert Schema.from_toml(schema.to_toml()).attributes == schema.attributes


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("type = 'integer', low = 0, high = 10, bins = 2, clip = 5", 'clip goes with domain = "private". Add it'),
        (
            "type = 'real', domain = 'private', low = 0, high = 10, clip = 50",
            "clip must lie below high, got 50.0 and 10",
        ),
        (
            "type = 'real', domain = 'private', low = 0, clip = 'a'",
            "clip must be a number smaller than 2**50, got 'a'.",
        ),
        ("type = 'real', domain = 'private', low = 0", "needs low and high: wide bounds"),
    ],
)
def test_a_clip_that_makes_no_sense_is_refused(entry: str, message: str) -> None:
    with pytest.raises(SchemaError) as error:
        Schema.from_toml(f"[attributes]\ncost = {{ {entry} }}")
    assert message in str(error.value)


def test_a_release_with_a_clip_is_saved_verified_and_asked(model: Model, tmp_path: Path) -> None:
    """Its means lie within six standard errors, as all but once in a hundred million releases."""
    model.save(tmp_path / "clip.sklar")
    again, attribute = sklar.load(tmp_path / "clip.sklar"), model.schema.attribute("cost")
    assert all(check.passed is not False for check in verify(tmp_path / "clip.sklar").checks)
    truth = float(np.minimum(COSTS, 10_000).mean())
    found = clipped_mean(again.measured, attribute)
    assert found is not None
    assert found[0] == pytest.approx(truth, abs=6 * found[1] + 2)
    answer = again.infer("mean(cost)", target="table")
    assert answer.limits == {"cost": "[0, 10000]"}
    assert answer.figures[0].estimate == pytest.approx(truth, abs=6 * answer.figures[0].standard_error)
    assert "sum of 'cost' found: limited to its clip" in "\n".join(model.summary())
    assert model.sample(2000, seed=1)["cost"].max() == 10_000
    # Nothing beyond the clip is known, and to ask there gives no certain zero.
    assert (model.query("cost > 10000").beyond_most or 0) > 10
    assert model.query("cost >= 10000").beyond == ()


def test_a_sum_with_less_noise_moves_the_mean_toward_it(model: Model) -> None:
    blocks, domains = model.measured.blocks, model.certificate.domains
    (block,) = [own[0] for finding, own in searched(domains, blocks) if finding.of == "sum"]
    planted = replace(block, values=np.array([TOKENS * ROWS // 2] * 2))
    kept = tuple(planted if each is block else each for each in blocks)
    sure = tuple(replace(each, scale=1e-6) if each.of == "sum" else each for each in domains)
    measured = replace(model.measured, blocks=kept, certificate=replace(model.certificate, domains=sure))
    moved = replace(model, measured=measured)
    before, after = (each.infer("mean(cost)", target="table").figures[0] for each in (model, moved))
    assert abs(after.estimate - 5000) < abs(before.estimate - 5000) / 4
    assert after.model_error < before.model_error
