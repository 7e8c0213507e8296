"""Rules in the schema: syntax, round trip, contradictions, what is measured, what every record honors."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings

import sklar
from sklar.answer.predicate import QueryError
from sklar.answer.query import answer
from sklar.answer.report import publishable
from sklar.budget.method import PAPER, Method
from sklar.cli import cli
from sklar.custodian.check import broken_rules
from sklar.errors import SchemaError
from sklar.files.archive import load
from sklar.public.rules import Determined, EffortError, Forbidden, SearchSteps, groups, solve, violating
from sklar.public.schema import Schema
from sklar.trust.verify import verify_model
from tests import public
from tests.conftest import output_of, refuses
from tests.public.test_refusals import assert_refused

ATTRIBUTES: dict[str, Any] = {
    "sex": {"type": "categorical", "values": ["Female", "Male"]},
    "role": {"type": "categorical", "values": ["Husband", "Wife", "Child"], "missing": ""},
    "age": {"type": "integer", "edges": [0, 15, 16, 65, 99]},
    "band": {"type": "categorical", "values": ["young", "old"]},
    "member": {"type": "boolean"},
    "born": {"type": "date", "edges": ["2000-01-01", "2000-01-02", "2001-01-01"]},
    "code": {"type": "categorical", "values": [1, 2]},
}
YOUNG = {"[0, 15)": "young", "15": "young", "[16, 65)": "old", "[65, 99)": "old"}
BANDS = {"attribute": "band", "determined_by": "age", "map": YOUNG}
WIVES = {"forbid": {"sex": "Male", "role": "Wife"}}
HUSBANDS = {"forbid": {"sex": ["Female"], "role": ["Husband"]}}
AGES = {"attribute": "age", "determined_by": "band", "map": {"young": 15, "old": "[16, 65)"}}
TRIANGLE = [{"forbid": {"sex": "Female", "code": 1}}, {"forbid": {"sex": "Female", "member": True}}]
CHILDREN = {"forbid": {"role": ["Husband", "Wife"], "age": {"below": 16}}}


def ruled(*rules: Any, attributes: dict[str, Any] = ATTRIBUTES) -> Schema:
    return Schema.from_dict({"attributes": attributes, "rules": list(rules)})


def test_rules_are_read_from_toml_and_written_back() -> None:
    schema = Schema.from_toml(
        """
        [attributes]
        sex = { type = "categorical", values = ["Female", "Male"] }
        "year of birth" = { type = "integer", low = 1900, high = 1904, bins = 4 }
        decade = { type = "categorical", values = [1900, 1910] }
        [[rules]]
        forbid = { sex = "Male", "year of birth" = { from = 1902 } }
        [[rules]]
        attribute = "decade"
        determined_by = "year of birth"
        map = { 1900 = 1900, 1901 = 1900, 1902 = 1910, 1903 = 1910 }
        """
    )
    assert schema.rules == (
        Forbidden(sides=(("sex", (1,)), ("year of birth", (2, 3)))),
        Determined(attribute="decade", by="year of birth", levels=(0, 0, 1, 1)),
    )
    assert Schema.from_toml(schema.to_toml()) == schema == Schema.from_dict(schema.to_dict())


def test_levels_may_be_written_as_people_write_them() -> None:
    schema = ruled(
        {"forbid": {"member": True, "code": 2}},
        {"forbid": {"member": "false", "role": "(missing)"}},
        {"forbid": {"born": "2000-01-01", "age": 15}},
        {"forbid": {"born": "[2000-01-02, 2001-01-01)", "code": "1"}},
    )
    spoken = [[levels for _, levels in rule.sides] for rule in schema.rules if isinstance(rule, Forbidden)]
    assert spoken == [[(1,), (1,)], [(0,), (3,)], [(0,), (1,)], [(1,), (0,)]]
    native = Schema.from_toml(schema.to_toml().replace('born = ["2000-01-01"]', "born = 2000-01-01"))
    assert native == schema


def test_rules_are_about_points_and_special_values_too() -> None:
    hours = {"type": "integer", "edges": [0, 40, 60], "points": [0, 40], "special": ["N"]}
    attributes = {"hours": hours, "works": {"type": "boolean"}}
    named: list[tuple[Any, tuple[int, ...]]] = [(0, (0,)), (40.0, (2,)), ("N", (4,)), (["0", "(0, 40)"], (0, 1))]
    ranges = [({"from": 40}, (2, 3)), ({"below": 40}, (0, 1)), ({"below": 60}, (0, 1, 2, 3))]
    for levels, codes in named + ranges:
        schema = ruled({"forbid": {"hours": levels, "works": False}}, attributes=attributes)
        assert schema.rules == (Forbidden(sides=(("hours", codes), ("works", (0,)))),)
        assert Schema.from_toml(schema.to_toml()) == schema


def test_the_digest_covers_rules_and_leaves_other_schemas_as_they_were() -> None:
    plain = ruled()
    assert "rules" not in plain.to_dict()
    assert len({plain.digest, ruled(WIVES).digest, ruled(HUSBANDS).digest, ruled(BANDS).digest}) == 4
    assert ruled(BANDS).measured.digest == ruled(BANDS).digest


@pytest.mark.parametrize(("forbid", "message"), public.REFUSED["forbidden"])
def test_what_cannot_be_forbidden_is_refused(forbid: str, message: str) -> None:
    assert_refused(f"{ruled().to_toml()}\n[[rules]]\nforbid = {forbid}", message)


@pytest.mark.parametrize(("rules", "message"), public.REFUSED["contradictions"])
def test_contradictions_are_refused_when_the_schema_is_loaded(rules: str, message: str) -> None:
    for name in ("WIVES", "BANDS", "AGES"):
        rules = rules.replace(name, json.dumps(globals()[name]))
    with pytest.raises(SchemaError) as caught:
        Schema.from_dict({"attributes": ATTRIBUTES, "rules": json.loads(rules)})
    assert message in str(caught.value)


def test_a_search_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sklar.public.rules.MAX_EFFORT", 10)
    rules = [{"forbid": {"sex": "Male", "code": 1}}, {"forbid": {"sex": "Male", "member": True}}]
    ruled(*rules)  # no cycle: no search
    with pytest.raises(SchemaError, match="was not decided within 10 steps of search"):
        ruled(*rules, {"forbid": {"code": 2, "member": True}})


@settings(max_examples=75, deadline=None)
@given(st.data())
def test_loading_agrees_with_trying_every_record(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    attributes = {f"a{i}": {"type": "categorical", "values": list(range(size))} for i, size in enumerate(sizes)}
    codes = [st.lists(st.integers(0, size - 1), min_size=1, unique=True) for size in sizes]
    two = st.lists(st.integers(0, len(sizes) - 1), min_size=2, max_size=2, unique=True)
    forbidden = [(i, data.draw(codes[i]), j, data.draw(codes[j])) for i, j in data.draw(st.lists(two, max_size=6))]
    every = list(product(*(range(size) for size in sizes)))
    records = [each for each in every if not any(each[i] in one and each[j] in two for i, one, j, two in forbidden)]
    possible = all({record[i] for record in records} == set(range(size)) for i, size in enumerate(sizes))
    rules = [{"forbid": {f"a{i}": one, f"a{j}": two}} for i, one, j, two in forbidden]
    refused = None
    try:
        schema = ruled(*rules, attributes=attributes)
    except SchemaError as error:
        refused = str(error)
    assert possible == (refused is None) or "earlier rules already forbid" in (refused or "")
    if refused is not None:
        return
    drawn = np.array(every, dtype=np.int32).T
    honored = {tuple(record) for record in drawn[:, ~violating(drawn, schema.allowed)].T.tolist()}
    assert honored == set(records)


def test_determined_attributes_are_not_measured_and_their_rules_pass_on() -> None:
    schema = ruled(BANDS, WIVES, {"forbid": {"role": "Husband", "band": "young"}})
    part = schema.measured
    assert part.names == ("sex", "role", "age", "member", "born", "code")
    assert part.whole is schema
    assert schema.determined == {"band": "age"}
    assert set(part.rules) == {
        Forbidden(sides=(("sex", (1,)), ("role", (1,)))),
        Forbidden(sides=(("role", (0,)), ("age", (0, 1)))),
    }
    codes = np.array([[0], [0], [3], [0], [0], [0]], dtype=np.int32)
    assert schema.complete(codes)[:, 0].tolist() == [0, 0, 3, 1, 0, 0, 0]
    assert schema.complete(np.full((6, 1), -1, dtype=np.int32))[:, 0].tolist() == [-1] * 7


def test_chains_of_determination_end_at_a_measured_attribute() -> None:
    member = {"attribute": "member", "determined_by": "band", "map": {"young": False, "old": True}}
    schema = ruled(member, BANDS)
    assert schema.measured.names == ("sex", "role", "age", "born", "code")
    assert [(source, levels.tolist()) for source, levels in schema.sources][3:5] == [(2, [0, 0, 1, 1])] * 2


FOUR = {name: ATTRIBUTES[name] for name in ("sex", "role", "age", "band")}
SMALL = ruled(BANDS, WIVES, HUSBANDS, CHILDREN, attributes=FOUR)


def rows_of_small(rows: int = 4000) -> pa.Table:
    """Rows of which some break every rule."""
    generator = np.random.default_rng(5)
    return pa.table(
        {
            "sex": generator.choice(["Female", "Male"], rows),
            "role": generator.choice(["Husband", "Wife", "Child", ""], rows, p=[0.3, 0.2, 0.4, 0.1]),
            "age": generator.integers(0, 99, rows),
            "band": generator.choice(["young", "old"], rows),
        }
    )


@pytest.fixture(scope="module")
def model() -> sklar.Model:
    return sklar.fit(rows_of_small(), SMALL, epsilon=3.0, method="mixture")


@pytest.mark.parametrize("method", ["mixture", "binary", PAPER])
def test_every_released_record_honors_all_rules(method: Any, model: sklar.Model, tmp_path: Path) -> None:
    """Of tables with the determined column, without it, and with nothing in it: it is not read."""
    rows = rows_of_small()
    if method == "binary":
        model = sklar.fit(rows.drop_columns("band"), SMALL, epsilon=3.0, method=method)
    elif method == PAPER:
        empty = rows.set_column(3, "band", pa.array([None] * rows.num_rows))
        model = sklar.fit(empty, SMALL, epsilon=5.0, method=PAPER)
    synthetic = model.sample(4_000, seed=1)
    assert min(broken_rules(rows, SMALL)) > 100
    assert broken_rules(synthetic, SMALL) == [0, 0, 0, 0]
    assert synthetic.columns == list(SMALL.names)
    model.save(tmp_path / "m.sklar")
    again = load(tmp_path / "m.sklar")
    assert again.schema == SMALL
    assert again.sample(4_000, seed=1).equals(synthetic)
    assert verify_model(again).passed


def test_dummies_are_refused() -> None:
    with pytest.raises(SchemaError, match="rules are about records, and dummies are single 0/1 columns"):
        sklar.fit(rows_of_small(), SMALL, epsilon=1.0, method=Method(name="binary", dummies=True))


def test_the_summary_and_the_report_tell_the_rules(model: sklar.Model) -> None:
    assert "Rules: 'band' is determined by 'age' and was not measured." in model.summary()
    assert "Rules: 3 forbidden combinations; no record holds one." in model.summary()
    page = publishable(model)
    assert "Rules that every synthetic record honors" in page
    assert "&#39;band&#39; is determined by &#39;age&#39;." in page
    assert "its 3 attributes that others do not determine" in page


def test_determined_attributes_are_answered_by_those_that_determine_them(model: sklar.Model) -> None:
    ages, bands = model.estimate("age"), model.estimate("band")
    assert bands.levels == (("young", "old"),)
    assert np.allclose(bands.counts, [ages.counts[:2].sum(), ages.counts[2:].sum()])
    # Of k of s levels what is not known grows as k (1 - k / s).
    assert np.allclose(bands.standard_errors, ages.standard_errors[0] * np.sqrt(4 / 3))
    assert np.allclose(bands.high - bands.counts, 1.959964 * bands.standard_errors)
    crossed = model.estimate("band", "age")
    assert np.allclose(crossed.counts.sum(axis=0), ages.counts)
    assert crossed.standard_errors[1, 0] == 0
    pair = model.estimate("band", "sex")
    assert np.allclose(pair.counts[0], model.estimate("sex", "age").counts[:, :2].sum(axis=1))
    by_age, by_band = answer(model, "age < 16"), answer(model, "band = 'young'")
    assert (by_age.estimate, by_age.standard_error) == (by_band.estimate, by_band.standard_error)
    assert by_band.attributes == ("band",)
    assert answer(model, "band = 'old' and age < 16 and sex = 'Male'").estimate == 0
    assert answer(model, "sex = 'Male' and role = 'Wife'").synthetic == 0
    assert answer(model, "role = 'Child'").synthetic_by.startswith("counted in ")
    refuses("has no value 'middle'", answer, model, "band = 'middle'", error=QueryError)


def test_a_forecast_is_about_what_is_measured() -> None:
    with_rules = sklar.forecast(SMALL, rows=4000, epsilon=1.0)
    part = Schema.from_dict({"attributes": {name: ATTRIBUTES[name] for name in ("sex", "role", "age")}})
    assert with_rules.one_way_error == sklar.forecast(part, rows=4000, epsilon=1.0).one_way_error
    assert "Not measured, because rules determine them: 'band' (by 'age')." in with_rules.lines()


def test_schema_check_tells_rules_and_to_the_custodian_who_breaks_them(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SMALL.to_toml())
    pa.csv.write_csv(rows_of_small(), tmp_path / "rows.csv")
    command = ["schema", "check", str(tmp_path / "s.toml")]
    public = output_of(cli, *command)
    assert "3 one-way and 3 two-way tables to measure." in public
    assert "Rule 2: no record has 'sex' = 'Male' together with 'role' = 'Wife'." in public
    assert "broken" not in public
    private = output_of(cli, *command, tmp_path / "rows.csv")
    wives = sum(row == {"sex": "Male", "role": "Wife"} for row in rows_of_small().select(["sex", "role"]).to_pylist())
    assert f"Rule 2: broken by {wives:,} rows." in private.split("PRIVATE")[1]


def test_a_search_finds_a_record_or_proves_that_there_is_none() -> None:
    differ = ~np.eye(2, dtype=bool)
    allowed = {(0, 1): differ, (1, 2): differ, (0, 2): differ}
    domains = {i: np.ones(2, dtype=bool) for i in range(3)}
    assert solve(domains, allowed, effort=SearchSteps(1000)) is None
    record = solve(domains, {(0, 1): differ, (1, 2): differ}, effort=SearchSteps(1000))
    assert record is not None
    assert record[0] != record[1] != record[2]
    refuses(None, solve, domains, allowed, effort=SearchSteps(3), error=EffortError)
    # Levels are tried in the order asked for.
    alike = {(0, 1): np.eye(2, dtype=bool)}
    backwards = solve(domains, alike, effort=SearchSteps(1000), order=lambda _attribute, codes: codes[::-1].tolist())
    assert backwards == {0: 1, 1: 1, 2: 1}
    # Attributes are grouped by the rules that tie them together.
    assert groups({(0, 3): differ, (1, 2): differ, (3, 4): differ}) == [[0, 3, 4], [1, 2]]
