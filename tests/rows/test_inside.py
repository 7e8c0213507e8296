"""Where numbers lie inside their bins: what rows deal, what it costs, and what follows from it."""

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
from sklar.budget.plan import INSIDE, TOKENS, Beside, beside_of, inside_places, plan_stages
from sklar.fitting.density import rows_inside
from sklar.kernel.cells import Cells
from sklar.kernel.queries import Shares
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema
from sklar.rows.count import Ask, ask_all, count
from sklar.rows.encode import dealt, encode_column
from sklar.trust.verify import verify

SCHEMA = Schema.from_toml("""[attributes]
cost = { type = "real", edges = [0, 10, 100, 10000], points = [50], special = [99999], missing = "" }
days = { type = "integer", edges = [0, 1, 2, 7, 400] }
born = { type = "date", edges = ["1900-01-01", "1950-01-01", "2000-01-01", "2030-01-01"] }
old = { type = "boolean" }
few = { type = "integer", edges = [1, 2, 3] }
""")
ODD = [-1e300, -3, 0, 0.5, 9.999, 10, 50, 99.5, 9999, 10_000, 99999, 1e300, float("inf"), float("-inf"), float("nan")]


def frame_of(rows: int, seed: int = 1) -> pl.DataFrame:
    generator = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "cost": np.where(generator.random(rows) < 0.1, np.nan, generator.lognormal(4, 2, rows).round(1)),
        "days": generator.geometric(0.05, rows) - 1,
        "born": generator.integers(-25_000, 20_000, rows).astype("datetime64[D]"),
        "old": generator.random(rows) < 0.3,
        "few": generator.integers(1, 3, rows),
    }
    return pl.DataFrame(columns).with_columns(pl.col("cost").fill_nan(None))


def inside_of(*sizes: int, share: float = 0.015) -> Beside:
    """First moments inside so many bins each."""
    return Beside(INSIDE, (*sizes, *sizes), share, "row")


def plainly(frame: pl.DataFrame) -> Any:
    """The tokens of all rows by the kernel's plain routine, each table once."""
    entries = []
    for place in inside_places(SCHEMA):
        attribute = SCHEMA.attributes[place]
        codes = encode_column(frame[attribute.name], attribute)
        entries.append((codes.astype(np.int64), dealt(frame[attribute.name], attribute, codes)))
    return np.split(beside_of(SCHEMA)[0].query.count(entries * 2), 2)[0]


def test_attributes_whose_levels_hold_one_number_each_are_left_out() -> None:
    assert [SCHEMA.names[place] for place in inside_places(SCHEMA)] == ["cost", "days", "born"]


@given(st.lists(st.one_of(st.floats(), st.sampled_from(ODD)), min_size=1, max_size=20), st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_row_deals_no_more_than_its_tokens_whatever_its_number_is(values: list[float], texts: bool) -> None:
    """Any floats, as numbers and as texts, far beyond the edges too: from 0 to `TOKENS`, none outside of bins."""
    column = pl.Series("x", [str(value) for value in values] if texts else values, strict=False)
    for attribute in SCHEMA.attributes[:2]:
        codes = encode_column(column, attribute)
        tokens = dealt(column, attribute, codes)
        assert tokens.dtype == np.int64
        assert ((tokens >= 0) & (tokens <= TOKENS)).all()
        assert not tokens[~np.isin(codes, attribute.bin_codes)].any()
        alone = [int(dealt(column[[row]], attribute, codes[[row]])[0]) for row in range(len(column))]
        assert alone == tokens.tolist()


@pytest.mark.parametrize(("values", "name", "expected"), [
    ([0.0, 5.0, 10.0, 55.0, 50.0, 5050.0, 1e9, None, 99999.0], "cost", [0, 512, 0, 512, 0, 512, 1024, 0, 0]),
    ([0, 1, 2, 4, 7, 400, 10**18, -(10**18)], "days", [0, 0, 0, 410, 0, 1024, 1024, 0]),
    (["1900-01-01", "1925-01-01", "2100-01-01", "no date", ""], "born", [0, 512, 1024, 0, 0]),
    ([[1], [2]], "days", [0, 0]),
])  # fmt: skip
def test_tokens_are_the_part_of_the_way_through_a_bin(values: list[Any], name: str, expected: list[int]) -> None:
    column, attribute = pl.Series(name, values), SCHEMA.attribute(name)
    assert dealt(column, attribute, encode_column(column, attribute)).tolist() == expected


@pytest.mark.parametrize("size", [70, 4000])
@pytest.mark.parametrize("plain", [True, False])
def test_counted_are_the_tokens_that_the_plain_routine_deals(
    size: int, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sklar.rows.count._PLAIN_WORK", 3e7 if plain else 0)
    frame, ask = frame_of(9000), ask_all(SCHEMA, inside=True)
    answers = count(frame.iter_slices(size), ask)
    assert [table.size for table in answers.tables] == ask.sizes
    assert answers.tables[2].tolist() == plainly(frame).tolist()
    prepared = (ask.prepare(part) for part in frame.iter_slices(size))
    chosen = count(prepared, Ask(attributes=ask.attributes, tables=ask.tables, inside=ask.inside, chosen=True))
    assert chosen.tables[2].tolist() == answers.tables[2].tolist()
    without = count(frame.iter_slices(size), ask_all(SCHEMA)).tables
    assert [a.tolist() for a in without] == [b.tolist() for b in answers.tables[:2]]


@pytest.mark.parametrize("rows_per_person", [None, 3])
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_a_table_costs_no_more_than_the_counts_that_it_is_paid_as(neighbors: Any, rows_per_person: Any) -> None:
    budget = Budget(epsilon=1.0, delta=1e-6, neighbors=neighbors, rows_per_person=rows_per_person)
    for scale in (3.0, 60.0, 4000.0):
        own = budget.cost(inside_of(4).query.bound(np.full(2, scale * TOKENS), budget))
        table = budget.cost(budget.tables([scale, scale]))
        assert table.covers(own)
        assert own.rho == pytest.approx(table.rho, rel=1e-12)


def test_moments_take_their_share_and_no_more_and_are_left_out_where_they_cannot_be_drawn() -> None:
    cells, budget = Cells([9, 4, 4, 5]), Budget(epsilon=1.0, delta=1e-6)
    for sizes, share in (((9,), 0.015), ((9, 4), 0.03), ((9, 4, 4, 5), 0.05)):
        dealt = (inside_of(*sizes, share=share),)
        stages, without = (plan_stages(cells, budget, 5000, beside=own) for own in (dealt, ()))
        query, scales = stages.first.parts[-1]
        assert isinstance(query, Shares)
        taken = float(np.sum((scales / TOKENS) ** -2.0))
        assert taken / (stages.precision + taken) == pytest.approx(share, rel=1e-3)
        assert stages.precision == pytest.approx(without.precision * (1 - share), rel=1e-2)
        assert budget.spent(stages.spend) <= budget.epsilon
    poor = Budget(epsilon=2e-3, delta=1e-6)
    stages = plan_stages(cells, poor, 5000, beside=(inside_of(9),))
    assert stages.spend.scales.max() < 2**24
    assert all(not isinstance(query, Shares) for query, _ in stages.first.parts)


Released = tuple[Any, pl.DataFrame, Path]


@pytest.fixture(scope="module", params=["replace-one", "people", "add-remove"])
def released(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Released:
    frame, schema = frame_of(6000), SCHEMA
    if request.param == "people":
        frame = frame.with_columns(id=pl.Series(np.arange(6000) // 2))
        table = {"name": "t", "person": "id", "count": "rows", "rows_per_person": 2}
        schema = Schema.from_dict(SCHEMA.to_dict() | {"table": table})
    relation: Any = "add-remove" if request.param == "add-remove" else None
    model = sklar.fit(frame, schema, epsilon=8.0, neighbors=relation)
    path = tmp_path_factory.mktemp("inside") / "model.sklar"
    model.save(path)
    return model, frame, path


def test_a_release_holds_moments_up_to_noise_and_is_verified(released: Released) -> None:
    """Within six standard errors, as all but once in ten million releases; so are means."""
    model, frame, path = released
    sizes = SCHEMA.sizes[[*inside_places(SCHEMA)]]
    again, exact = sklar.load(path), np.split(plainly(frame) / TOKENS, np.cumsum(sizes)[:-1])
    found = rows_inside(again.measured)
    assert sorted(found) == [0, 1, 2]
    for place, own in zip(found, exact, strict=True):
        assert np.abs(found[place][0] - own).max() < 6 * found[place][1]
    checks = {check.name: check for check in verify(path).checks}
    assert all(check.passed is not False for check in checks.values())
    for name, ends in (("days", (0, 399)), ("cost", (0.0, 10_000.0))):
        answer = again.infer(f"mean({name})", target="table")
        values = frame[name].drop_nulls().clip(*ends).to_numpy()
        figure = answer.figures[0]
        assert figure.estimate == pytest.approx(values[values != 99999].mean(), abs=6 * figure.standard_error)
        drawn = model.sample(6000, seed=1)[name].drop_nulls().to_numpy().mean()
        assert drawn == pytest.approx(figure.estimate, abs=6 * figure.standard_error + 0.05 * figure.estimate)


def test_moments_without_noise_are_noticed(released: Released, tmp_path: Path) -> None:
    """With the noise of one look put in place of the other's, differences are too small."""
    model, *_ = released
    blocks = [
        replace(block, values=np.tile(np.split(block.values, 2)[0], 2))
        if getattr(block.query, "what", "") == INSIDE
        else block
        for block in model.measured.blocks
    ]
    replace(model, measured=replace(model.measured, blocks=tuple(blocks))).save(tmp_path / "same.sklar")
    assert any(check.passed is False for check in verify(tmp_path / "same.sklar").checks)


def test_the_mean_inside_a_bin_is_the_measured_one_where_it_has_less_noise(released: Released) -> None:
    model, *_ = released
    at = SCHEMA.names.index("days")
    (block,) = [each for each in model.measured.blocks if getattr(each.query, "what", "") == INSIDE]
    moments, rows = rows_inside(model.measured)[at][0], model.estimate("days").counts
    for wanted in (0.1, 0.8):
        first = SCHEMA.sizes[inside_places(SCHEMA)[0]]
        values = block.values.copy()
        for start in (first, first + values.size // 2):
            values[start + 2] = wanted * rows[2] * TOKENS
        sure = replace(block, values=values, scales=np.full(block.scales.size, 2.0**-9))
        kept = tuple(sure if each is block else each for each in model.measured.blocks)
        shape = replace(model, measured=replace(model.measured, blocks=kept)).shapes["days"]
        assert shape.means is not None
        assert shape.errors is not None
        assert shape.means[2] == pytest.approx(2 + 5 * wanted + 0.5, abs=0.15)
        assert shape.errors[2] < 0.01
        drawn = shape.draw(np.full(20_000, 2), np.random.default_rng(1))
        assert float(drawn.mean()) == pytest.approx(float(shape.means[2]), abs=0.05)
    assert moments.size == 4


def test_a_number_that_is_not_spread_has_no_moments() -> None:
    assert not inside_places(Schema(name="t", attributes=(Attribute(name="x", kind="integer", edges=(0, 1, 2)),)))
